"""Moments on a grid of frequencies, of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.features.grid import GridFeatures
from rff_stream.moments import AugmentedRow
from rff_stream.moments.grid import GridAccumulator, GridMoments
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.packing import Packed, pack_sample, unpack_sample
from rff_stream.statistics.protocol import Sink

__all__ = ["GridStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class GridStatistic:
    """:class:`~rff_stream.moments.grid.GridMoments` of rows [x, y, w].

    Parameters
    ----------
    features, row, sample_rows
        As in :class:`~rff_stream.moments.grid.GridAccumulator`.
    """

    features: GridFeatures
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return _GridSink(self)

    def pack(self, value: GridMoments) -> Packed:
        sample = value.sample
        arrays: dict[str, Array] = {
            "sums": value.sums,
            "counts": np.array([value.n, sample.size], np.int64),
            "weights": np.array([value.squared_weight, value.log_weight]),
            **pack_sample(sample),
        }
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> GridMoments:
        arrays: Any = packed.arrays
        n, size = arrays["counts"].tolist()
        squared, logarithm = arrays["weights"].tolist()
        sample = unpack_sample(size, arrays)
        return GridMoments(self.features, self.row, arrays["sums"], n, squared, logarithm, sample)


class _GridSink:
    def __init__(self, statistic: GridStatistic) -> None:
        self._accumulator = GridAccumulator(
            statistic.features, statistic.row, statistic.sample_rows
        )

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> GridMoments:
        return self._accumulator.result()
