"""Moments of a grid of frequencies of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass

from rff_stream.contracts import Sink
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentPacking, MomentSink


@dataclass(frozen=True, slots=True, eq=False)
class GridStatistic(MomentPacking):
    """:class:`~rff_stream.grid.moments.GridMoments` of rows [x, y, w]."""

    features: GridFeatures  # as in GridAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return MomentSink(GridAccumulator(self.features, self.row, self.sample_rows))
