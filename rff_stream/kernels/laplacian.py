"""The Laplacian kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import Kernel, LengthScale, length_scale_vector, scaled_rows

GRADIENT_ROWS = 64
"""Rows whose part of a gradient is added up at a time: 400 pairs of each fit in a cache."""


@dataclass(frozen=True, slots=True)
class Laplacian(Kernel):
    """κ(δ) = exp(−‖δ‖₁/ℓ); its spectral measure is a Cauchy of scale 1/ℓ for each input.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.

    Notes
    -----
    The norm is ℓ1, so a rotation changes the measure: draw frequencies "iid". The rotation
    invariant exp(−‖δ‖/ℓ) is ``Matern(nu=0.5)``.

    References
    ----------
    Rahimi & Recht 2007, figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> float(Laplacian(2.0)(np.array([[0.0]]), np.array([[2.0]]))[0, 0])  # exp(−1)
    0.36787944117144233
    """

    length_scale: LengthScale = None
    variance: float = 1.0

    def length_scale_of_gamma(self, gamma: float) -> float:
        return 1 / gamma

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        return np.asarray(np.exp(-cdist(X, Y, "cityblock")))

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """κ·abs(δⱼ)."""
        value = self.unit_value(X, Y)
        each = (np.abs(x[:, None] - y) * value for x, y in zip(X.T, Y.T, strict=True))
        return np.reshape(list(each), (X.shape[1], len(X), len(Y)))

    def weighted_gradient(self, X: Array, weights: Float64, values: Float64) -> Float64:
        """2 Σ weights κ·abs(δⱼ) of each pair once, a few rows at a time: their values stay near."""
        columns = np.ascontiguousarray(scaled_rows(self, X, X)[0].T)
        found = np.zeros(len(columns))
        for lo in range(0, len(X), GRADIENT_ROWS):
            hi = min(lo + GRADIENT_ROWS, len(X))
            both = weights[lo:hi, :hi] * values[lo:hi, :hi]
            both[:, lo:] = np.tril(both[:, lo:])
            apart = np.empty_like(both)
            for place, x in enumerate(columns):
                np.abs(np.subtract(x[lo:hi, None], x[:hi], out=apart), out=apart)
                found[place] += 2 * np.vdot(apart, both)
        return found

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Cauchy(0, 1)."""
        return rng.standard_cauchy((n, d))

    def uniforms(self, d: int) -> int:
        return d

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        return np.tan(np.pi * (u - 0.5))

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        return np.asarray(-(np.log1p(frequencies**2) + math.log(math.pi)).sum(axis=1))

    def unit_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Gamma(2, 1): density p(w) ∝ w κ''(w)."""
        return np.asarray(rng.gamma(2.0, size=(n, d)))

    def self_convolution(self, d: int) -> _SmoothLaplacian:
        return _SmoothLaplacian(tuple(length_scale_vector(self, d).tolist()))

    def multiplied(self, other: Kernel, d: int) -> Laplacian | None:
        if not isinstance(other, Laplacian):
            return None
        rate = 1 / length_scale_vector(self, d) + 1 / length_scale_vector(other, d)
        return Laplacian(tuple(1 / rate))


@dataclass(frozen=True, slots=True)
class _SmoothLaplacian(Kernel):
    """κ(δ) = Πⱼ (1 + |δⱼ|/ℓⱼ) exp(−|δⱼ|/ℓⱼ): a Laplacian convolved with itself."""

    length_scale: LengthScale = None
    variance: float = 1.0

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        """Exact values (n, m), one input at a time."""
        product = np.ones((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            t = np.abs(x[:, None] - y)
            product *= (1 + t) * np.exp(-t)
        return product

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """√3 ω (n, d) ~ Student's t of 3 degrees of freedom."""
        return rng.standard_t(3, (n, d)) / math.sqrt(3)

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """log Πⱼ (2/π)/(1 + ωⱼ²)²."""
        return np.asarray((math.log(2 / math.pi) - 2 * np.log1p(frequencies**2)).sum(axis=1))
