"""The sums of boxes over the rows of a leaf."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from boxes.map import BoxFeatures
from boxes.moments import BoxMoments
from rff_stream._array import Array
from rff_stream.contracts import Packed, Sink
from rff_stream.moments import AugmentedRow
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.moment_statistics import pack_moments, unpack_moments


@dataclass(frozen=True, slots=True, eq=False)
class BoxStatistic:
    """Adds up :class:`~boxes.moments.BoxMoments`."""

    features: BoxFeatures
    row: AugmentedRow
    sample_rows: int

    def start(self) -> Sink:
        return BoxSink(self)

    def pack(self, value: BoxMoments) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> BoxMoments:
        moments: BoxMoments = unpack_moments(packed, self.row)
        return moments


class BoxSink:
    """The running sum of one leaf."""

    def __init__(self, statistic: BoxStatistic) -> None:
        self._features = statistic.features
        self._total = BoxMoments.zero(
            statistic.row, statistic.features.n_components, statistic.sample_rows
        )

    def add(self, rows: Rows, places: Array) -> None:
        row, y = self._total.row, np.asarray(rows.y, np.float64)
        w = np.ones(len(y)) if rows.w is None else np.asarray(rows.w, np.float64)
        added, box = BoxMoments.zero(row, self._total.n_boxes), self._features.box_of(rows.x)
        centred = y - row.target_origin
        np.add.at(added._boxes, box, w[:, None] * np.column_stack([np.ones(len(y)), centred]))
        added.target_squares()[...] = w @ centred**2
        added = replace(
            added, n=len(y), squared_weight=float(w @ w), log_weight=float(np.log(w).sum())
        )
        sample = self._total.sample
        if sample.size:
            sample = sample.with_rows(places, rows.x, y, w)
        self._total = replace(self._total + added, sample=sample)

    def result(self) -> BoxMoments:
        return self._total
