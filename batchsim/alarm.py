"""Events on the SimPy clock, and the order of those at one instant."""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment
from simpy.events import Event

BEFORE_ALL, ARRIVE, END, SEND, PLAN = -1, 0, 1, 1 << 28, 1 << 29
"""SimPy priorities at one instant. Ends and plans add the replica's number, so that nothing hangs on which alarm is older;
between them come the requests that clients send, or routers pass on, because of what ended."""


class Alarm(Event):
    """An event at a given delay and priority that calls one function."""

    def __init__(self, env: Environment, delay_ns: int, priority: int, call: Callable[[Event], None]) -> None:
        self.env = env  # what Event.__init__ does, and in one go what makes it triggered
        self.callbacks = [call]
        self._value = None
        self._ok = True
        env.schedule(self, priority, delay_ns)  # type: ignore[arg-type]  # any whole number orders events
