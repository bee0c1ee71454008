"""Values of any statistic as plain JSON and named arrays, and back bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rff_stream._array import Array
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.row_sample import RowSample
from rff_stream.statistics.protocol import Statistic

__all__ = ["Packed", "PackingStatistic", "packing_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """What a checkpoint keeps of a value, whatever statistic it is of.

    Parameters
    ----------
    plain : JSON value
        What is not an array: labels, names.
    arrays : mapping of str to float64, float32, int64 or uint64 array
        By names of letters, digits and _; "a/b" is the array b of part a.
    """

    plain: Any
    arrays: Mapping[str, Array]


@runtime_checkable
class PackingStatistic(Statistic, Protocol):
    """A statistic whose values a checkpoint can keep: ``unpack(pack(value))`` is the value."""

    def pack(self, value: Any) -> Packed:
        """The value without what the statistic knows itself, its row say."""
        ...

    def unpack(self, packed: Packed) -> Any:
        """The value; its arrays are read-only."""
        ...


def packing_of(statistic: Statistic) -> PackingStatistic:
    """The statistic, if its values can be kept.

    Raises
    ------
    TypeError
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
        label: Packed(plain, arrays_of(packed, f"{i}/"))
        for i, (label, plain) in enumerate(packed.plain)
    }


def arrays_of(packed: Packed, start: str) -> dict[str, Array]:
    """Arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(start): values
        for name, values in packed.arrays.items()
        if name.startswith(start)
    }


def pack_sample(sample: RowSample) -> dict[str, Array]:
    """A row sample but for its size."""
    reach = {} if sample.reach is None else {"sample_reach": sample.reach}
    return {"sample_keys": sample.keys, "sample_rows": sample.rows, **reach}


def unpack_sample(size: int, arrays: Mapping[str, Any]) -> RowSample:
    """The sample that gave these arrays."""
    reach = arrays.get("sample_reach")
    return RowSample(size, arrays["sample_keys"], arrays["sample_rows"], reach)


def pack_moments(moments: Moments) -> Packed:
    """Moments without their row."""
    sample = moments.sample
    arrays: dict[str, Array] = {
        "sums": moments.sums,
        "counts": np.array([moments.order, moments.n, sample.size], np.int64),
        "weights": np.array([moments.squared_weight, moments.log_weight]),
        **pack_sample(sample),
    }
    for name, values in (("parts", moments.parts), ("runs", moments.runs)):
        if values is not None:
            arrays[name] = values
    return Packed(None, arrays)


def unpack_moments(packed: Packed, row: AugmentedRow) -> Moments:
    """Moments of a row."""
    arrays: Any = packed.arrays
    order, n, size = arrays["counts"].tolist()
    squared, logarithm = arrays["weights"].tolist()
    sample = unpack_sample(size, arrays)
    parts, runs = arrays.get("parts"), arrays.get("runs")
    return Moments(row, order, arrays["sums"], n, squared, logarithm, parts, sample, runs)
