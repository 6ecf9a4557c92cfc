"""What a router sent where, as a radix tree: how many leading tokens of a prompt each replica has seen before."""

from __future__ import annotations

from batchsim.kv.content import Path, Signature


class _Node:
    """Tokens `start` to `end` of the prompts through here, which begin as `path` does. `seen`: by these replicas."""

    __slots__ = ("children", "end", "path", "seen", "start")

    def __init__(self, start: int, end: int, path: Path, seen: set[int]) -> None:
        self.start, self.end, self.path, self.seen = start, end, path, seen
        self.children: dict[Signature, _Node] = {}


class Radix:
    """One tree for all replicas. `tokens`: how many it remembers of each."""

    def __init__(self, replicas: int) -> None:
        self._root = _Node(0, 0, Path((), -1), set(range(replicas)))
        self.tokens = [0] * replicas

    def match(self, path: Path, tokens: int) -> dict[int, int]:
        """Leading tokens of the first `tokens` that each replica has seen; those that saw none are left out."""
        found: dict[int, int] = {}
        node, depth = self._root, 0
        while depth < tokens:
            child = node.children.get(path.signature(depth, depth + 1))
            if child is None:
                break
            depth = path.common(child.path, depth, min(child.end, tokens))
            for replica in child.seen:
                found[replica] = depth
            if depth < child.end:
                break
            node = child
        return found

    def insert(self, path: Path, tokens: int, replica: int) -> None:
        """The replica is sent a prompt that begins with these tokens."""
        node, depth = self._root, 0
        while depth < tokens:
            signature = path.signature(depth, depth + 1)
            child = node.children.get(signature)
            if child is None:
                child = node.children[signature] = _Node(depth, tokens, path, set())
            else:
                agree = path.common(child.path, depth, min(child.end, tokens))
                if agree < child.end:
                    _split(child, agree)
            if replica not in child.seen:
                child.seen.add(replica)
                self.tokens[replica] += child.end - child.start
            depth = child.end
            node = child


def _split(node: _Node, depth: int) -> None:
    lower = _Node(depth, node.end, node.path, set(node.seen))
    lower.children, node.children = node.children, {node.path.signature(depth, depth + 1): lower}
    node.end = depth
