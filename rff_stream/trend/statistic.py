"""Sums of what a line leaves of the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Packed, Sink, Statistic, packing_of
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.moments.row_sample import RowSample, with_samples
from rff_stream.sources.protocol import Rows


@dataclass(frozen=True, slots=True, eq=False)
class TrendStatistic:
    """Any statistic of moments, of rows [x, y − line(x), w]; sampled rows are [x, y, w]."""

    statistic: Statistic
    trend: LinearTrend
    sample_rows: int

    def start(self) -> Sink:
        return _Sink(self.statistic.start(), self.trend, self.sample_rows)

    def pack(self, value: Any) -> Packed:
        return packing_of(self.statistic).pack(value)

    def unpack(self, packed: Packed) -> Any:
        return packing_of(self.statistic).unpack(packed)


class _Sink:
    def __init__(self, sink: Sink, trend: LinearTrend, sample_rows: int) -> None:
        self._sink, self._trend = sink, trend
        # Its own: y − line + line is y but for rounding, by which equal targets would differ.
        self._sample = RowSample.empty(sample_rows, sum(trend.slopes.shape) + 1)

    def add(self, rows: Rows, places: Array) -> None:
        if self._sample.size:
            self._sample = self._sample.with_rows(places, rows.x, rows.y, rows.w)
        self._sink.add(replace(rows, y=rows.y - self._trend(rows.x)), places)

    def result(self) -> Any:
        return with_samples(self._sink.result(), lambda _: self._sample)


def without_line(moments: Any, trend: LinearTrend) -> Any:
    """The same sums, with sampled rows [x, y − line(x), w] that know what was observed."""

    def change(sample: RowSample) -> RowSample:
        rows = rows_without_line(sample.rows, trend)
        return replace(sample, rows=rows, observed=sample.rows[:, :-1])

    return with_samples(moments, change)


def rows_without_line(rows: Float64, trend: LinearTrend) -> Float64:
    """Rows [x, y − line(x), w] of rows [x, y, w]."""
    d = len(trend.origin)
    return np.column_stack([rows[:, :d], rows[:, d:-1] - trend(rows[:, :d]), rows[:, -1]])
