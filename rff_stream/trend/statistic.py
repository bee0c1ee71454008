"""Sums of what a line leaves of the targets."""

from __future__ import annotations

from collections.abc import Callable
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
        return _with_samples(self._sink.result(), self._observed)

    def _observed(self, sample: RowSample) -> RowSample:
        """The rows with their y, whole to 2⁻⁴⁰ of what the line leaves.

        y − line + line is y but for rounding, by which equal targets would differ.
        """
        rows = shifted_rows(sample.rows, self._trend, 1.0)
        d, noise = len(self._trend.origin), self._trend.noise
        unit = np.exp2(np.floor(np.log2(np.where(noise > 0, noise, 1.0)) / 2) - 40)
        whole = np.rint(rows[:, d:-1] / unit) * unit
        rows[:, d:-1] = np.where(noise > 0, whole, rows[:, d:-1])
        return replace(sample, rows=rows)


def without_line(moments: Any, trend: LinearTrend) -> Any:
    """The same sums; the line is taken from the targets of their sampled rows."""

    def left(sample: RowSample) -> RowSample:
        rows = shifted_rows(sample.rows, trend, -1.0)
        return replace(sample, rows=rows, observed=sample.rows[:, :-1])

    return _with_samples(moments, left)


def _with_samples(moments: Any, change: Callable[[RowSample], RowSample]) -> Any:
    """The same sums with another row sample, or those of several maps."""
    members = getattr(moments, "members", None)
    if members is not None:
        each = (None if own is None else _with_samples(own, change) for own in members)
        return replace(moments, members=tuple(each))
    return replace(moments, sample=change(moments.sample))


def shifted_rows(rows: Float64, trend: LinearTrend, sign: float) -> Float64:
    """Rows [x, y, w] with the line times ``sign`` added to y."""
    d = len(trend.origin)
    return np.column_stack([rows[:, :d], rows[:, d:-1] + sign * trend(rows[:, :d]), rows[:, -1]])
