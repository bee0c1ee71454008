"""The protocol of a statistic: it starts at zero, takes rows, and its values can be added.

A checkpoint keeps values as plain JSON and named arrays, and gives them back bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from rff_stream._array import Array
from rff_stream.features.base import nested_arrays
from rff_stream.sources.protocol import Rows


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

    def result(self) -> Any:
        """Their value, a :class:`Summable`; the value of no rows is the zero."""


class Statistic(Protocol):
    """What to add up: a frozen value that every process of a cluster gets a copy of.

    ``statistic.start().result()`` is the zero. To keep values of another kind than moments in
    a checkpoint, it is a :class:`PackingStatistic`.
    """

    def start(self) -> Sink:
        """An empty sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """What a checkpoint keeps of a value, whatever statistic it is of."""

    plain: Any  # JSON value, what is not an array: labels, names
    arrays: Mapping[str, Array]
    """By names of letters, digits and _; "a/b" is the array b of part a."""


@runtime_checkable
class PackingStatistic(Statistic, Protocol):
    """A statistic whose values a checkpoint can keep: ``unpack(pack(value))`` is the value."""

    def pack(self, value: Any) -> Packed:
        """The value without what the statistic knows itself, its row say."""

    def unpack(self, packed: Packed) -> Any:
        """The value; its arrays are read-only."""


def packing_of(statistic: Statistic) -> PackingStatistic:
    """The statistic, if its values can be kept.

    Raises TypeError where they cannot.
    """
    if not isinstance(statistic, PackingStatistic):
        raise TypeError(
            f"{type(statistic).__name__} has no pack and unpack; a checkpoint needs these "
            "methods to store its values. Write them, or read without a checkpoint."
        )
    return statistic


def pack_parts(parts: Mapping[Any, Packed]) -> Packed:
    """Values by label as one: labels are plain JSON, arrays of part i are named "i/…"."""
    plain = [[label, part.plain] for label, part in parts.items()]
    arrays = {
        f"{i}/{name}": values
        for i, part in enumerate(parts.values())
        for name, values in part.arrays.items()
    }
    return Packed(plain, arrays)


def unpack_parts(packed: Packed) -> dict[Any, Packed]:
    """The values that :func:`pack_parts` made one."""
    return {
        label: Packed(plain, nested_arrays(packed.arrays, f"{i}/"))
        for i, (label, plain) in enumerate(packed.plain)
    }
