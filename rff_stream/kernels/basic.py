"""Gaussian, Laplacian and Cauchy kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import ndtri

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import (
    Composable,
    LengthScale,
    distances,
    inverse_square,
    length_scale_vector,
    normalise,
    plain_scale,
    scaled_rows,
    spec_of,
)

__all__ = ["Cauchy", "Gaussian", "Laplacian"]


@dataclass(frozen=True, slots=True)
class Gaussian(Composable):
    """κ(δ) = exp(−‖δ‖²/2ℓ²); its spectral measure is N(0, ℓ⁻² I).

    Parameters
    ----------
    length_scale : float or sequence of d floats, optional
        ℓ > 0 in units of the inputs; a sequence is ARD.
    variance : float
        κ(0) > 0; multiplies the formula.

    References
    ----------
    Rahimi & Recht 2007, figure 1. Rasmussen & Williams 2006, eq. 4.9.

    Examples
    --------
    >>> import numpy as np
    >>> float(Gaussian(2.0)(np.array([[0.0]]), np.array([[2.0]]))[0, 0])
    0.6065306597126334
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    isotropic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.of_squared_distance(distances(self, X, Y, "sqeuclidean"))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ N(0, ℓ⁻²)."""
        return rng.standard_normal((n, d)) / length_scale_vector(self, d)

    def uniforms(self, d: int) -> int:
        """Uniform numbers that make one ω."""
        return d

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at quantiles u (n, d) in (0, 1)."""
        return np.asarray(ndtri(u)) / length_scale_vector(self, d)

    def second_moment(self, d: int) -> float:
        """E‖ω‖² = −∇²κ(0)/κ(0)."""
        return inverse_square(self, d)

    def of_squared_distance(self, squared: Float64) -> Float64:
        """κ (n, m) where ‖δ/ℓ‖² is ``squared``."""
        return self.variance * np.exp(-0.5 * squared)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("gaussian", self)


@dataclass(frozen=True, slots=True)
class Laplacian(Composable):
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
    isotropic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.variance * np.exp(-distances(self, X, Y, "cityblock"))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Cauchy(0, 1/ℓ)."""
        return rng.standard_cauchy((n, d)) / length_scale_vector(self, d)

    def uniforms(self, d: int) -> int:
        return d

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        return np.tan(np.pi * (u - 0.5)) / length_scale_vector(self, d)

    def second_moment(self, d: int) -> float:
        return math.inf

    def sample_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Widths (n, d) of the bins of random grids: density p(w) ∝ w κ''(w), a Gamma(2, ℓ)."""
        return rng.gamma(2.0, size=(n, d)) * length_scale_vector(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("laplacian", self)


@dataclass(frozen=True, slots=True)
class Cauchy(Composable):
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
    isotropic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m), one input at a time."""
        X, Y = scaled_rows(self, X, Y)
        product = np.ones((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            product *= 1 + (x[:, None] - y) ** 2
        return self.variance / product

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Laplace(0, 1/ℓ)."""
        return rng.laplace(size=(n, d)) / length_scale_vector(self, d)

    def uniforms(self, d: int) -> int:
        return d

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        tail = np.log(2 * np.minimum(u, 1 - u))
        return np.asarray(-np.sign(u - 0.5) * tail / length_scale_vector(self, d))

    def second_moment(self, d: int) -> float:
        return 2 * inverse_square(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("cauchy", self)
