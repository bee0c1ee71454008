"""ZᵀWe for residuals or directions, in float64 over the features as the map defines them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink


@dataclass(frozen=True, slots=True, eq=False)
class NormalEquationSums:
    """Σ w z eᵀ (R, T), Σ w e (T,), Σ w z (R,) and Σ w: they add."""

    cross: Float64  # (R + 1, T + 1): [z, 1]ᵀ W [e, 1]

    def __add__(self, other: Self) -> Self:
        return type(self)(self.cross + other.cross)

    def __sizeof__(self) -> int:
        return int(self.cross.nbytes) + 64

    @property
    def weight(self) -> float:
        """Σ w."""
        return float(self.cross[-1, -1])

    @property
    def feature_mean(self) -> Float64:
        """z̄ (R,)."""
        return np.asarray(self.cross[:-1, -1] / self.weight)

    @property
    def mean(self) -> Float64:
        """ē (T,)."""
        return np.asarray(self.cross[-1, :-1] / self.weight)

    def centred(self) -> Float64:
        """(Z − 1z̄ᵀ)ᵀW(e − ē) (R, T)."""
        return np.asarray(self.cross[:-1, :-1] - np.outer(self.feature_mean, self.cross[-1, :-1]))

    def raw(self) -> Float64:
        """ZᵀWe (R, T)."""
        return np.asarray(self.cross[:-1, :-1])


@dataclass(frozen=True, slots=True, eq=False)
class NormalEquationStatistic:
    """e = y − μ − zβ (residuals), or e = zβ + μ where ``residuals`` is False."""

    features: FeatureMap
    coef: Float64  # (R, T)
    intercept: Float64  # (T,)
    residuals: bool

    def start(self) -> Sink:
        return _NormalEquationSink(self)


class _NormalEquationSink:
    def __init__(self, statistic: NormalEquationStatistic) -> None:
        self._of = statistic
        r, t = statistic.coef.shape
        self._cross = np.zeros((r + 1, t + 1))
        self._z = np.ones((BATCH_ROWS, r + 1))
        self._e = np.ones((BATCH_ROWS, t + 1))

    def add(self, rows: Rows, places: Array) -> None:
        for start in range(0, len(rows.x), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            w = None if rows.w is None else rows.w[part]
            self._take(rows.x[part], rows.y[part], w)

    def _take(self, x: Float64, y: Float64, w: Float64 | None) -> None:
        z, e = self._z[: len(x)], self._e[: len(x)]
        self._of.features(x, out=z[:, :-1])
        fitted = z[:, :-1] @ self._of.coef + self._of.intercept
        e[:, :-1] = y - fitted if self._of.residuals else fitted
        self._cross += z.T @ (e if w is None else e * w[:, None])

    def result(self) -> NormalEquationSums:
        return NormalEquationSums(self._cross)
