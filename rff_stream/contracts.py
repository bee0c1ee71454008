"""What reads rows: a statistic, whose values can be added, and a function, with values for each.

A statistic starts at zero and takes rows. A checkpoint keeps its values as plain JSON and named
arrays, and gives them back bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

from rff_stream._array import Array, Float64, nested_arrays
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
    """What a checkpoint or a store keeps of a value, whatever statistic or answer it is of."""

    plain: Any  # JSON value, what is not an array: labels, names
    arrays: Mapping[str, Array]
    """By names of letters, digits and _; "a/b" is the array b of part a."""

    def with_arrays(self, more: Mapping[str, Array]) -> Self:
        """The same with more arrays."""
        return replace(self, arrays={**self.arrays, **more})


@runtime_checkable
class PackingStatistic(Statistic, Protocol):
    """A statistic whose values a checkpoint can keep: ``unpack(pack(value))`` is the value."""

    def pack(self, value: Any) -> Packed:
        """The value without what the statistic knows itself, its row say."""

    def unpack(self, packed: Packed) -> Any:
        """The value; its arrays are read-only."""


class RepeatableStatistic(PackingStatistic, Protocol):
    """One whose sums a second run takes from the checkpoint of the first."""

    def question(self, token: str) -> str:
        """sha256 of all that the sums depend on; ``token`` stands for data and choices."""


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


class RowFunction(Protocol):
    """A picklable function of rows: (m, d) -> (m, width)."""

    @property
    def width(self) -> int:
        """Values a row."""

    def __call__(self, x: Array) -> Float64:
        """Values (m, width) of rows (m, d)."""


def for_rows(function: RowFunction, count: int | None) -> RowFunction:
    """The same function, told how many rows it is asked for in all, where that changes how."""
    told = getattr(function, "for_rows", None)
    return function if told is None or count is None else told(count)


Slopes = Callable[[Array], Float64]
"""x (m, d) -> ∂f/∂x (m, d, T) of T functions; picklable."""
