"""The constant kernel: a random level that all rows share, as a part of a sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rff_stream._array import Float64
from rff_stream.kernels.base import Kernel, LengthScale


@dataclass(frozen=True, slots=True)
class Constant(Kernel):
    """κ(δ) = variance, whatever δ; all of its spectral measure is at ω = 0.

    ``Gaussian() + Constant(9.0)`` is a Gaussian process about an unknown level of standard
    deviation 3. The estimators have an intercept without it.

    Parameters
    ----------
    variance : float
        κ > 0.
    length_scale : float or sequence, optional
        Changes nothing; kernels have one.
    """

    variance: float
    length_scale: LengthScale = None

    @property
    def isotropic(self) -> bool:
        return True

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        return np.ones((len(X), len(Y)))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω = 0 (n, d)."""
        return np.zeros((n, d))

    def unit_second_moment(self, d: int) -> float:
        return 0.0
