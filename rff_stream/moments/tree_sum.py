"""A sum whose bits do not depend on the order in which its terms arrive."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Node", "TreeSum"]

Value = TypeVar("Value", bound=Any)

Node = tuple[int, int]
"""(level, i): the sum of the values i·2^level … (i+1)·2^level − 1."""


class TreeSum(Generic[Value]):
    """Adds values by their index along one fixed binary tree.

    Two siblings merge as soon as both are there, so at most log₂(count) + (values out of
    order) nodes are held. What is left at the end is summed from the right.
    """

    def __init__(self) -> None:
        self._nodes: dict[Node, Value] = {}

    @property
    def nodes(self) -> dict[Node, Value]:
        """What is held now: disjoint nodes that cover every value taken."""
        return dict(self._nodes)

    def add(self, index: int, value: Value, level: int = 0) -> None:
        """Take the value with this index, or the node (level, index); every value once."""
        while (sibling := self._nodes.pop((level, index ^ 1), None)) is not None:
            value = sibling + value if index & 1 else value + sibling
            level, index = level + 1, index >> 1
        self._nodes[level, index] = value

    def covers(self, index: int) -> bool:
        """Whether the value with this index was taken."""
        return any((level, index >> level) in self._nodes for level in range(64))

    def total(self) -> Value | None:
        """Sum of all values taken; None if there were none."""
        nodes = sorted(self._nodes, key=lambda node: node[1] << node[0], reverse=True)
        found = None
        for node in nodes:
            found = self._nodes[node] if found is None else self._nodes[node] + found
        return found
