"""Moments of cells of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellAccumulator, CellMoments
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentSink, pack_moments, unpack_moments
from rff_stream.statistics.protocol import Packed, Sink


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistic:
    """:class:`~rff_stream.cells.moments.CellMoments` of rows [x, y, w]."""

    features: LocalFeatures  # as in CellAccumulator, like all up to ``sample_rows``
    row: AugmentedRow
    sums: Any
    sample_rows: int

    def start(self) -> Sink:
        return MomentSink(
            CellAccumulator(self.features, self.row, sums=self.sums, sample_rows=self.sample_rows)
        )

    def pack(self, value: CellMoments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> CellMoments:
        moments: CellMoments = unpack_moments(packed, self.row)
        return moments
