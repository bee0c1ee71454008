"""Moments of cells of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellAccumulator, precision_at_rest
from rff_stream.contracts import Sink
from rff_stream.families.protocol import SumRequest
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentPacking, MomentSink


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistic(MomentPacking):
    """:class:`~rff_stream.cells.moments.CellMoments` of rows [x, y, w]."""

    features: LocalFeatures  # as in CellAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sums: Any
    at_rest: Any
    sample_rows: int

    @classmethod
    def of(cls, request: SumRequest) -> Self:
        """That of a request for sums."""
        features, row, plan = request.features, request.row, request.plan
        columns = len(row.inputs) + plan.n_targets + 1
        at_rest = precision_at_rest(plan.sums, plan.n_rows, features.n_cells, columns)
        return cls(features, row, plan.sums, at_rest, request.sample_rows)

    def start(self) -> Sink:
        return MomentSink(
            CellAccumulator(
                self.features,
                self.row,
                sums=self.sums,
                at_rest=self.at_rest,
                sample_rows=self.sample_rows,
            )
        )
