"""The queue of waiting requests: by arrival with the evicted in front, or sorted by a scheduler's key."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from batchsim.request import Request

Key = Callable[[Request], Any]


class Fifo(OrderedDict[int, Request]):
    """Requests by arrival; a preempted one can be put in front. Iteration is in queue order."""

    def head(self) -> Request | None:
        """The first in line."""
        for request in self.values():
            return request
        return None

    def push(self, request: Request) -> None:
        """Stand at the end."""
        self[request.index] = request

    def push_front(self, request: Request) -> None:
        """Stand before everyone."""
        self[request.index] = request
        self.move_to_end(request.index, last=False)

    def leave(self, request: Request) -> None:
        """Out of the queue."""
        del self[request.index]

    def rearrange(self, order: list[int]) -> None:
        """Stand in this order of indices; those not named follow behind as they stood."""
        for index in reversed(order):
            self.move_to_end(index, last=False)


class Sorted(Mapping[int, Request]):
    """Requests by a key that does not change while they wait; equal keys by arrival.

    Kept in one descending list, so that the head leaves in O(1) and one insertion is a binary search and a block move.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._items: dict[int, Request] = {}
        self._line: list[tuple[_Down, Request]] = []
        self._keys: dict[int, _Down] = {}

    def head(self) -> Request | None:
        """The first in line."""
        return self._line[-1][1] if self._line else None

    def push(self, request: Request) -> None:
        """Stand where the key says."""
        down = _Down((self._key(request), request.rank))
        self._items[request.index] = request
        self._keys[request.index] = down
        insort(self._line, (down, request), key=_first)

    push_front = push

    def leave(self, request: Request) -> None:
        """Out of the queue."""
        del self._items[request.index]
        down = self._keys.pop(request.index)
        if self._line[-1][1] is request:
            self._line.pop()
            return
        low, high = 0, len(self._line)
        while low < high:
            middle = (low + high) // 2
            if self._line[middle][0] < down:
                low = middle + 1
            else:
                high = middle
        while self._line[low][1] is not request:
            low += 1
        del self._line[low]

    def __getitem__(self, index: int) -> Request:
        return self._items[index]

    def __iter__(self) -> Iterator[int]:
        return (request.index for _, request in reversed(self._line))

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, index: object) -> bool:
        return index in self._items


class _Down:
    """A key that sorts downwards."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Down) -> bool:
        return bool(other.key < self.key)


def _first(entry: tuple[_Down, Request]) -> _Down:
    return entry[0]


Queue = Fifo | Sorted


def queue(order: Key | None) -> Queue:
    """The queue that a scheduler with this `order` wants."""
    return Fifo() if order is None else Sorted(order)
