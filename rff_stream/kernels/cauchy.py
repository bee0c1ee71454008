"""The Cauchy kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rff_stream._array import Float64
from rff_stream.kernels.base import Kernel, LengthScale, length_scale_vector


@dataclass(frozen=True, slots=True)
class Cauchy(Kernel):
    """κ(δ) = Πⱼ 1/(1 + δⱼ²/ℓⱼ²); its spectral measure is a Laplace of scale 1/ℓ for each input.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.

    References
    ----------
    Rahimi & Recht 2007, figure 1 (there κ = Π 2/(1 + δ²), without its factor 2).

    Examples
    --------
    >>> import numpy as np
    >>> float(Cauchy(2.0)(np.array([[0.0]]), np.array([[2.0]]))[0, 0])
    0.5
    """

    length_scale: LengthScale = None
    variance: float = 1.0

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        """Exact values (n, m), one input at a time."""
        product = np.ones((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            product *= 1 + (x[:, None] - y) ** 2
        return 1 / product

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """κ·2δⱼ²/(1 + δⱼ²)."""
        value, squares = self.unit_value(X, Y), (X.T[:, :, None] - Y.T[:, None]) ** 2
        return np.asarray(value * 2 * squares / (1 + squares))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Laplace(0, 1)."""
        return rng.laplace(size=(n, d))

    def uniforms(self, d: int) -> int:
        return d

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        return np.asarray(-np.sign(u - 0.5) * np.log(2 * np.minimum(u, 1 - u)))

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        return np.asarray(-(np.abs(frequencies) + math.log(2)).sum(axis=1))

    def unit_second_moment(self, d: int) -> float:
        return 2 * d

    def self_convolution(self, d: int) -> Cauchy:
        return Cauchy(tuple(2 * length_scale_vector(self, d)))
