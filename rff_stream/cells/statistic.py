"""Moments of cells of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellAccumulator, CellMoments
from rff_stream.moments import AugmentedRow
from rff_stream.statistics.moment_statistics import MomentSink, pack_sample, unpack_sample
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
        sample = value.sample
        arrays: dict[str, Array] = {
            "cells": value.cells,
            "counts": value.counts,
            "powers": value.powers,
            "sums": value.sums,
            "sizes": np.array([value.n_trees, value.n_cells, sample.size], np.int64),
            **pack_sample(sample),
        }
        return Packed(None, arrays)

    def unpack(self, packed: Packed) -> CellMoments:
        arrays: Any = packed.arrays
        n_trees, n_cells, size = arrays["sizes"].tolist()
        return CellMoments(
            row=self.row,
            n_trees=n_trees,
            n_cells=n_cells,
            cells=arrays["cells"],
            counts=arrays["counts"],
            powers=arrays["powers"],
            sums=arrays["sums"],
            sample=unpack_sample(size, arrays),
        )
