"""Moments of a grid of frequencies of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, GridMoments
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentSink, pack_sample, unpack_sample
from rff_stream.statistics.protocol import Packed, Sink


@dataclass(frozen=True, slots=True, eq=False)
class GridStatistic:
    """:class:`~rff_stream.grid.moments.GridMoments` of rows [x, y, w]."""

    features: GridFeatures  # as in GridAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return MomentSink(GridAccumulator(self.features, self.row, self.sample_rows))

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
