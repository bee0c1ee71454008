"""Sums of what a line leaves of the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Packed, Sink, Statistic, packing_of
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources.protocol import Rows


@dataclass(frozen=True, slots=True, eq=False)
class TrendStatistic:
    """Any statistic of moments, of rows [x, y − line(x), w]; sampled rows keep their y."""

    statistic: Statistic
    trend: LinearTrend

    def start(self) -> Sink:
        return _Sink(self.statistic.start(), self.trend)

    def pack(self, value: Any) -> Packed:
        return packing_of(self.statistic).pack(value)

    def unpack(self, packed: Packed) -> Any:
        return packing_of(self.statistic).unpack(packed)


class _Sink:
    def __init__(self, sink: Sink, trend: LinearTrend) -> None:
        self._sink, self._trend = sink, trend

    def add(self, rows: Rows, places: Array) -> None:
        self._sink.add(replace(rows, y=rows.y - self._trend(rows.x)), places)

    def result(self) -> Any:
        return shifted(self._sink.result(), self._trend, 1.0)


def shifted(moments: Any, trend: LinearTrend, sign: float) -> Any:
    """The same sums; of their sampled rows the line times ``sign`` is added to y."""
    members = getattr(moments, "members", None)
    if members is not None:  # of several maps
        each = (None if own is None else shifted(own, trend, sign) for own in members)
        return replace(moments, members=tuple(each))
    sample: RowSample = moments.sample
    return replace(moments, sample=replace(sample, rows=shifted_rows(sample.rows, trend, sign)))


def shifted_rows(rows: Float64, trend: LinearTrend, sign: float) -> Float64:
    """Rows [x, y, w] with the line times ``sign`` added to y."""
    d = len(trend.origin)
    return np.column_stack([rows[:, :d], rows[:, d:-1] + sign * trend(rows[:, :d]), rows[:, -1]])
