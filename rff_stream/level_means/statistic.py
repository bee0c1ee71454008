"""Sums of rows with means in the place of levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Packed, Sink, Statistic, packing_of
from rff_stream.level_means.means import LevelMeans
from rff_stream.moments.row_sample import RowSample, with_samples
from rff_stream.sources.protocol import Rows


@dataclass(frozen=True, slots=True, eq=False)
class LevelStatistic:
    """Any statistic of rows whose levels are means; sampled rows are as they were read."""

    statistic: Statistic
    means: LevelMeans
    sample_width: int | None = None
    """Columns of a sampled row; None of sums without a sample."""
    sample_rows: int = 0

    def start(self) -> Sink:
        return _Sink(self)

    def pack(self, value: Any) -> Packed:
        return packing_of(self.statistic).pack(value)

    def unpack(self, packed: Packed) -> Any:
        return packing_of(self.statistic).unpack(packed)


class _Sink:
    def __init__(self, asked: LevelStatistic) -> None:
        self._inner, self._means = asked.statistic.start(), asked.means
        width = asked.sample_width
        self._sample = None if width is None else RowSample.empty(asked.sample_rows, width)

    def add(self, rows: Rows, places: Array) -> None:
        if self._sample is not None and self._sample.size:
            self._sample = self._sample.with_rows(places, rows.x, rows.y, rows.w)
        self._inner.add(replace(rows, x=self._means.of_fit(rows.x, rows.y)), places)

    def result(self) -> Any:
        found, sample = self._inner.result(), self._sample
        return found if sample is None else with_samples(found, lambda _: sample)


@dataclass(frozen=True, slots=True, eq=False)
class LevelClassStatistic(LevelStatistic):
    """The same of rows with one-hot classes, for so many classes as the row of the sums has."""

    row: Any = None

    @property
    def _of_row(self) -> LevelStatistic:
        inner: Any = self.statistic
        width = len(self.row.inputs) + self.row.n_targets + 1
        return LevelStatistic(replace(inner, row=self.row), self.means, width, self.sample_rows)

    def start(self) -> Sink:
        return self._of_row.start()

    def pack(self, value: Any) -> Packed:
        return self._of_row.pack(value)

    def unpack(self, packed: Packed) -> Any:
        return self._of_row.unpack(packed)


def with_means(moments: Any, means: LevelMeans, n_inputs: int) -> Any:
    """The same sums, with means in the place of the levels of sampled rows."""

    def change(sample: RowSample) -> RowSample:
        return replace(sample, rows=rows_with_means(sample.rows, means, n_inputs))

    return with_samples(moments, change)


def rows_with_means(rows: Float64, means: LevelMeans, n_inputs: int) -> Float64:
    """Rows [x, y, w] of a fit with means in the place of levels."""
    if not len(rows):
        return rows
    x, y = rows[:, :n_inputs], rows[:, n_inputs:-1]
    return np.column_stack([means.of_fit(x, y), y, rows[:, -1]])
