"""Moments of cells of the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.features.cells import LocalFeatures
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate_cells import CellAccumulator
from rff_stream.moments.cells import CellMoments
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.packing import Packed, pack_sample, unpack_sample
from rff_stream.statistics.protocol import Sink

__all__ = ["CellStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistic:
    """:class:`~rff_stream.moments.cells.CellMoments` of rows [x, y, w].

    Parameters
    ----------
    features, row, sums, sample_rows
        As in :class:`~rff_stream.moments.accumulate_cells.CellAccumulator`.
    """

    features: LocalFeatures
    row: AugmentedRow
    sums: Any
    sample_rows: int

    def start(self) -> Sink:
        return _CellSink(self)

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


class _CellSink:
    def __init__(self, statistic: CellStatistic) -> None:
        self._accumulator = CellAccumulator(
            statistic.features,
            statistic.row,
            sums=statistic.sums,
            sample_rows=statistic.sample_rows,
        )

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> CellMoments:
        return self._accumulator.result()
