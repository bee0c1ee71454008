"""Sums whose bits do not depend on the order in which their terms arrive."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Value = TypeVar("Value", bound=Any)

Node = tuple[int, int]
"""(level, i): the sum of the values i·2^level … (i+1)·2^level − 1; or (FIRST, m)."""

FIRST = 64
"""Level of the sum of the first m values, one after the other: above all levels of a tree."""


def add_into(value: Value, other: Value) -> Value:
    """The sum; ``value`` may be written into, and is not used afterwards."""
    value += other
    return value


def covers(node: Node, other: Node) -> bool:
    """Whether the second is below the first, or it."""
    (level, i), (below, j) = node, other
    if level == FIRST:
        return (j if below == FIRST else (j + 1) << below) <= i
    return level >= below and j >> (level - below) == i


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


class RunningSum(Generic[Value]):
    """Adds values by their index one after the other, for values that are big.

    A value that comes early waits for those before it. So one sum is held, however many values
    there are, where :class:`TreeSum` holds log₂(count). Values belong to the sum once they are
    given to it: ``+=`` may write into them.
    """

    def __init__(self) -> None:
        self._sum: Value | None = None
        self._count = 0
        self._early: dict[int, Value] = {}

    @property
    def nodes(self) -> dict[Node, Value]:
        """What is held now: the sum of the first values, and values that came early."""
        first = {} if self._sum is None else {(FIRST, self._count): self._sum}
        return first | {(0, index): value for index, value in self._early.items()}

    def add(self, index: int, value: Value, level: int = 0) -> None:
        """Take the value with this index, or the sum of the first ``index`` (level FIRST)."""
        if level == FIRST:
            self._sum, self._count = value, index
        else:
            self._early[index] = value
        while self._count in self._early:
            following = self._early.pop(self._count)
            self._sum = following if self._sum is None else add_into(self._sum, following)
            self._count += 1

    @property
    def n_early(self) -> int:
        """Values that wait for others."""
        return len(self._early)

    def covers(self, index: int) -> bool:
        """Whether the value with this index was taken."""
        return index < self._count or index in self._early

    def total(self) -> Value | None:
        """Sum of all values taken, one after the other; None if there were none."""
        found = self._sum
        for index in sorted(self._early):
            found = self._early[index] if found is None else found + self._early[index]
        return found
