"""The Gaussian kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from scipy.special import ndtri

from rff_stream._array import Float64
from rff_stream.kernels.base import Kernel, LengthScale, RadialKernel, length_scale_vector


@dataclass(frozen=True, slots=True)
class Gaussian(RadialKernel):
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
    aliases: ClassVar[tuple[str, ...]] = ("rbf",)

    def length_scale_of_gamma(self, gamma: float) -> float:
        return 1 / math.sqrt(2 * gamma)

    def unit_radial(self, squared: Float64) -> Float64:
        return np.exp(-0.5 * squared)

    def write_radial(self, squared: Float64, spare: Float64) -> None:
        np.multiply(squared, -0.5, out=squared)
        np.exp(squared, out=squared)

    def unit_decay(self, squared: Float64) -> Float64:
        return squared * np.exp(-0.5 * squared)

    def write_unit(self, squared: Float64, value: Float64, slope: Float64) -> None:
        np.multiply(squared, -0.5, out=value)
        np.exp(value, out=value)
        np.multiply(value, -0.5, out=slope)

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ N(0, 1)."""
        return rng.standard_normal((n, d))

    def uniforms(self, d: int) -> int:
        return d

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        return np.asarray(ndtri(u))

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        constant = frequencies.shape[1] * math.log(2 * math.pi)
        return np.asarray(-0.5 * ((frequencies**2).sum(axis=1) + constant))

    def unit_second_moment(self, d: int) -> float:
        return d

    def self_convolution(self, d: int) -> Gaussian:
        return Gaussian(tuple(math.sqrt(2) * length_scale_vector(self, d)))

    def multiplied(self, other: Kernel, d: int) -> Gaussian | None:
        if not isinstance(other, Gaussian):
            return None
        precision = length_scale_vector(self, d) ** -2.0 + length_scale_vector(other, d) ** -2.0
        return Gaussian(tuple(np.sqrt(1 / precision)))
