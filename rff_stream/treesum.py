"""A sum whose bits do not depend on the order in which its terms arrive."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["TreeSum"]

Value = TypeVar("Value", bound=Any)


class TreeSum(Generic[Value]):
    """Adds values by their index along one fixed binary tree.

    Node (level, i) is the sum of the values i·2^level … (i+1)·2^level − 1. Two siblings
    merge as soon as both are there, so at most log₂(count) + (values out of order) are
    held. What is left at the end is summed from the right.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], Value] = {}

    def add(self, index: int, value: Value) -> None:
        """Take the value with this index; every index once."""
        level = 0
        while (sibling := self._nodes.pop((level, index ^ 1), None)) is not None:
            value = sibling + value if index & 1 else value + sibling
            level, index = level + 1, index >> 1
        self._nodes[level, index] = value

    def total(self) -> Value | None:
        """Sum of all values taken; None if there were none."""
        nodes = sorted(self._nodes, key=lambda node: node[1] << node[0], reverse=True)
        found = None
        for node in nodes:
            found = self._nodes[node] if found is None else self._nodes[node] + found
        return found
