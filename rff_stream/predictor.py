"""A fitted linear model of features, as a small picklable function of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import MAP_ROWS, FeatureMap

__all__ = ["LinearPredictor"]


@dataclass(frozen=True, slots=True, eq=False)
class LinearPredictor:
    """x ↦ μ + z(x)ᵀ β for T targets.

    Parameters
    ----------
    features : FeatureMap
    coef : (R, T) float64
    intercept : (T,) float64
    """

    features: FeatureMap
    coef: Float64
    intercept: Float64

    @property
    def width(self) -> int:
        """T."""
        return self.coef.shape[1]

    def __call__(self, x: Array) -> Float64:
        """Predictions (n, T) of rows (n, d): n·R work, in blocks that stay in cache."""
        found = np.empty((len(x), self.width))
        Z = np.empty((MAP_ROWS, self.features.n_components), self.features.dtype)
        exact = np.empty(Z.shape)
        for start in range(0, len(x), MAP_ROWS):
            m = min(MAP_ROWS, len(x) - start)
            exact[:m] = self.features(x[start : start + m], out=Z[:m])
            np.matmul(exact[:m], self.coef, out=found[start : start + m])
        return found + self.intercept
