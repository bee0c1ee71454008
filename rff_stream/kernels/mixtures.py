"""Matérn and rational quadratic kernels: Gaussians of many widths at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, gammaln, kve, ndtri

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import (
    Composable,
    LengthScale,
    distances,
    inverse_square,
    length_scale_vector,
    normalise,
    plain_scale,
    positive,
    spec_of,
)

__all__ = ["Matern", "RationalQuadratic"]

SMALLEST_MIXING = 1e-30
"""For tiny ν the chi-square underflows. The floor keeps ω finite, and past 1e15 the phase ωᵀδ
is random for any δ that can be told from 0."""


@dataclass(frozen=True, slots=True)
class Matern(Composable):
    """κ(δ) = 2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), t = √(2ν) ‖δ‖/ℓ; spectral measure: multivariate t, 2ν dof.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    nu : float
        ν > 0, the smoothness: functions have ⌈ν⌉ − 1 derivatives. 0.5 is exp(−‖δ‖/ℓ), 1.5
        the usual choice; above about 10 a Gaussian is as good and cheaper.

    Notes
    -----
    The spectral measure is that of z/√w with z ~ N(0, ℓ⁻² I) and w ~ χ²(2ν)/2ν: a
    multivariate t of scale 1/ℓ. So κ is a mixture of Gaussians, E exp(−‖δ‖²/2wℓ²).

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.14 (κ), 4.15 (its spectral density), 4.16 and
    4.17 (half-integer ν).

    Examples
    --------
    >>> import numpy as np
    >>> round(float(Matern(1.0, nu=0.5)(np.array([[0.0]]), np.array([[1.0]]))[0, 0]), 12)  # exp(−1)
    0.367879441171
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    nu: float = 1.5
    isotropic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        normalise(self)
        if self.nu == math.inf:
            raise ValueError("nu=inf is the Gaussian kernel. Use Gaussian(length_scale).")
        object.__setattr__(self, "nu", positive("nu", self.nu))

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.variance * _matern(distances(self, X, Y, "euclidean"), self.nu)

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ multivariate t with 2ν degrees of freedom and scale 1/ℓ."""
        normal = rng.standard_normal((n, d)) / length_scale_vector(self, d)
        mixing = rng.chisquare(2 * self.nu, (n, 1)) / (2 * self.nu)
        return normal / np.sqrt(np.maximum(mixing, SMALLEST_MIXING))

    def uniforms(self, d: int) -> int:
        return d + 1

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at quantiles u (n, d + 1): of d normals, then of the chi-square."""
        mixing = gammaincinv(self.nu, u[:, d:]) / self.nu
        normal = ndtri(u[:, :d]) / length_scale_vector(self, d)
        return np.asarray(normal / np.sqrt(np.maximum(mixing, SMALLEST_MIXING)))

    def second_moment(self, d: int) -> float:
        return inverse_square(self, d) * self.nu / (self.nu - 1) if self.nu > 1 else math.inf

    def of_squared_distance(self, squared: Float64) -> Float64:
        return self.variance * _matern(np.sqrt(squared), self.nu)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("matern", self) | {"nu": self.nu}


@dataclass(frozen=True, slots=True)
class RationalQuadratic(Composable):
    """κ(δ) = (1 + ‖δ‖²/2aℓ²)^{−a}; spectral measure: a scale mixture of Gaussians.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    mixture : float
        a > 0 (``alpha`` in scikit-learn): length-scales from short to long at once. Large a
        is the Gaussian; small a has heavy tails, for data with structure at many scales.

    Notes
    -----
    κ = E exp(−τ‖δ‖²/2ℓ²) with τ ~ Gamma(a, 1/a), so ω given τ is N(0, τ ℓ⁻² I).

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.19 and 4.20.

    Examples
    --------
    >>> import numpy as np
    >>> float(RationalQuadratic(1.0)(np.array([[0.0]]), np.array([[1.0]]))[0, 0])  # 1/(1 + ½)
    0.6666666666666666
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    mixture: float = 1.0
    isotropic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "mixture", positive("mixture", self.mixture))

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.of_squared_distance(distances(self, X, Y, "sqeuclidean"))

    def of_squared_distance(self, squared: Float64) -> Float64:
        logarithm = np.log1p(squared / (2 * self.mixture))
        return np.asarray(self.variance * np.exp(-self.mixture * logarithm))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ N(0, τ ℓ⁻²), τ ~ Gamma(a, 1/a)."""
        normal = rng.standard_normal((n, d)) / length_scale_vector(self, d)
        return normal * np.sqrt(rng.gamma(self.mixture, 1 / self.mixture, (n, 1)))

    def uniforms(self, d: int) -> int:
        return d + 1

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at quantiles u (n, d + 1): of d normals, then of τ."""
        normal = ndtri(u[:, :d]) / length_scale_vector(self, d)
        return np.asarray(normal * np.sqrt(gammaincinv(self.mixture, u[:, d:]) / self.mixture))

    def second_moment(self, d: int) -> float:
        return inverse_square(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("rational_quadratic", self) | {"mixture": self.mixture}


def _matern(distance: Float64, nu: float) -> Float64:
    """κ at ℓ = 1: closed forms for ν = 1/2, 3/2, 5/2 (Rasmussen & Williams 2006, eq. 4.17)."""
    t = math.sqrt(2 * nu) * distance
    if nu == 0.5:
        return np.exp(-t)
    if nu == 1.5:
        return (1 + t) * np.exp(-t)
    if nu == 2.5:
        return (1 + t + t**2 / 3) * np.exp(-t)
    return _matern_bessel(t, nu) if nu <= 20 else _matern_mixture(distance, nu)


def _matern_bessel(t: Float64, nu: float) -> Float64:
    """2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), by logarithms; 1 where t is too small for Kᵥ (1 − κ < ε)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(nu, t)  # eᵗ Kᵥ(t)
        log = (1 - nu) * math.log(2) - gammaln(nu) + nu * np.log(t) + np.log(bessel) - t
    return np.where(np.isposinf(bessel), 1.0, np.minimum(np.exp(log), 1.0))


def _matern_mixture(distance: Float64, nu: float) -> Float64:
    """E exp(−‖δ‖²/2w), w ~ Gamma(ν, 1/ν), for large ν, where tᵛ Kᵥ(t) overflows.

    The trapezoidal rule in log w, 41 nodes over ±10 standard deviations: its error decays
    like exp(−2π²/h²) with the step h = 1/2, so only rounding is left.
    """
    log_w = np.linspace(-10, 10, 41) / math.sqrt(nu)
    weights = np.exp(nu * (log_w - np.expm1(log_w)))
    squared = distance**2
    value, total = np.zeros_like(squared), 0.0
    for weight, w in zip(weights, np.exp(log_w), strict=True):
        value += weight * np.exp(squared * (-0.5 / w))
        total += weight  # in the same order: so κ(0) is 1 exactly
    return value / total
