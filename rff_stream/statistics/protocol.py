"""The protocol of a statistic: it starts at zero, takes rows, and its values can be added."""

from __future__ import annotations

from typing import Any, Protocol, Self

from rff_stream._array import Array
from rff_stream.sources.protocol import Rows

__all__ = ["Sink", "Statistic"]


class Summable(Protocol):
    """A value of a statistic: plain NumPy, picklable, never changed once it is made.

    ``a + b`` is the value of the rows of both. It is associative and commutative to rounding,
    exactly in counts; a pass adds along one fixed tree, so that the bits do not vary.
    ``__sizeof__`` gives the bytes: Dask moves and spills values by it.
    """

    def __add__(self, other: Self) -> Self: ...
    def __sizeof__(self) -> int: ...


class Sink(Protocol):
    """The running sum of one leaf: the only thing here that changes."""

    def add(self, rows: Rows, places: Array) -> None:
        """Take some rows (m, d) and their places (m,) in the whole data, which increase."""
        ...

    def result(self) -> Any:
        """Their value, a :class:`Summable`; the value of no rows is the zero."""
        ...


class Statistic(Protocol):
    """What to add up: a frozen value that every process of a cluster gets a copy of.

    ``statistic.start().result()`` is the zero. To keep values of another kind than moments in
    a checkpoint, a statistic also has ``pack`` and ``unpack``: see
    :class:`~rff_stream.statistics.packing.PackingStatistic`.
    """

    def start(self) -> Sink:
        """An empty sum."""
        ...
