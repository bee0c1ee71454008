"""Moments of a grid of frequencies of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass

from rff_stream.contracts import Packed, Sink
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, GridMoments
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentSink, pack_moments, unpack_moments


@dataclass(frozen=True, slots=True, eq=False)
class GridStatistic:
    """:class:`~rff_stream.grid.moments.GridMoments` of rows [x, y, w]."""

    features: GridFeatures  # as in GridAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return MomentSink(GridAccumulator(self.features, self.row, self.sample_rows))

    def pack(self, value: GridMoments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> GridMoments:
        moments: GridMoments = unpack_moments(packed, self.row)
        return moments
