"""Residuals as sums over rows: R² and RMSE from one streamed pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink

__all__ = ["ResidualStatistic", "Residuals"]


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Σw, Σw(y − y₀), Σw(y − y₀)², Σw(y − ŷ)² of T targets: they add.

    Parameters
    ----------
    sums : (4, T) float64
    n : int
        Rows.
    outside : value that adds, or None
        What else was counted of the inputs.
    """

    sums: Float64
    n: int
    outside: Any = None

    def __add__(self, other: Self) -> Self:
        there = self.outside is not None and other.outside is not None
        outside = self.outside + other.outside if there else self.outside or other.outside
        return type(self)(self.sums + other.sums, self.n + other.n, outside)

    def r2(self) -> Float64:
        """1 − Σw(y − ŷ)²/Σw(y − ȳ)² (T,); as scikit-learn for a constant target."""
        weight, first, second, missed = self.sums
        scatter = second - first**2 / weight
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1 - missed / scatter
        constant = np.where(missed > 0, 0.0, 1.0)
        return np.asarray(np.where(scatter > 0, r2, constant))

    def rmse(self) -> Float64:
        """√(Σw(y − ŷ)²/Σw) (T,), in units of y."""
        return np.asarray(np.sqrt(self.sums[3] / self.sums[0]))


@dataclass(frozen=True, slots=True, eq=False)
class ResidualStatistic:
    """What a leaf adds up for a score.

    Parameters
    ----------
    predict : callable
        (m, d) -> (m, T), picklable.
    origin : (T,) float64
        y₀: sums about it do not cancel.
    outside : callable, optional
        x (m, d) -> a value that adds: what else is counted of the inputs.
    """

    predict: Callable[[Array], Float64]
    origin: Float64
    outside: Callable[[Array], Any] | None = None

    def start(self) -> Sink:
        return _ResidualSink(self)


class _ResidualSink:
    def __init__(self, statistic: ResidualStatistic) -> None:
        self._statistic = statistic
        self._sums = np.zeros((4, len(statistic.origin)))
        self._n = 0
        self._outside: Any = None

    def add(self, rows: Rows, places: Array) -> None:
        count = self._statistic.outside
        if count is not None:
            more = count(rows.x)
            self._outside = more if self._outside is None else self._outside + more
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        y = rows.y - self._statistic.origin
        missed = rows.y - self._statistic.predict(rows.x)
        self._sums += np.stack([np.full(y.shape[1], w.sum()), w @ y, w @ y**2, w @ missed**2])
        self._n += len(rows.x)

    def result(self) -> Residuals:
        return Residuals(self._sums, self._n, self._outside)
