"""Quantiles of a score over all rows: one histogram between two bounds from a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink

__all__ = ["Histogram", "HistogramStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Weight below, in equal bins between two bounds, and above: they add.

    Parameters
    ----------
    low, high : float
    weights : (B + 2,) float64
    """

    low: float
    high: float
    weights: Float64

    def __add__(self, other: Self) -> Self:
        return type(self)(self.low, self.high, self.weights + other.weights)

    def __sizeof__(self) -> int:
        return int(self.weights.nbytes) + 64

    def quantile(self, share: float) -> float:
        """The edge nearest to which this share of the weight lies below; ∓∞ outside the bounds."""
        below = np.cumsum(self.weights)
        edge = int(np.abs(below[:-1] - share * below[-1]).argmin())
        if share * below[-1] < below[0]:
            return -np.inf
        if share * below[-1] > below[-2]:
            return np.inf
        return self.low + (self.high - self.low) * edge / (len(self.weights) - 2)


@dataclass(frozen=True, slots=True, eq=False)
class HistogramStatistic:
    """What a leaf adds up for a quantile.

    Parameters
    ----------
    score : callable
        (m, d) -> (m, 1), picklable.
    low, high : float
    bins : int
    """

    score: Callable[[Array], Float64]
    low: float
    high: float
    bins: int = 65_536

    def start(self) -> Sink:
        return _HistogramSink(self)


class _HistogramSink:
    def __init__(self, statistic: HistogramStatistic) -> None:
        self._of = statistic
        self._weights = np.zeros(statistic.bins + 2)

    def add(self, rows: Rows, places: Array) -> None:
        of = self._of
        share = (self._of.score(rows.x)[:, 0] - of.low) / (of.high - of.low)
        bins = np.clip(np.floor(share * of.bins) + 1, 0, of.bins + 1).astype(np.int64)
        self._weights += np.bincount(bins, rows.w, len(self._weights))

    def result(self) -> Histogram:
        return Histogram(self._of.low, self._of.high, self._weights)
