"""The polynomial kernel. It has no spectral sampler: use Nyström or polynomial features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Float64
from rff_stream.kernels.base import DotProductKernel, LengthScale, positive


@dataclass(frozen=True, slots=True)
class Polynomial(DotProductKernel):
    """k = variance·(xᵀx'/ℓ² + offset)^degree: all products of up to ``degree`` inputs.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    degree : int
        1 is linear regression; 2 has the interactions.
    offset : float
        c > 0 weighs lower degrees against higher ones.

    Raises
    ------
    ValueError
        If the degree is no whole number from 1 on.
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    degree: int = 2
    offset: float = 1.0

    def __post_init__(self) -> None:
        DotProductKernel.__post_init__(self)
        object.__setattr__(self, "offset", positive("offset", self.offset))
        if self.degree != int(self.degree) or self.degree < 1:
            raise ValueError(f"degree={self.degree!r} but it must be a whole number ≥ 1. Give one.")

    def length_scale_of_gamma(self, gamma: float) -> float:
        return 1 / math.sqrt(gamma)

    def unit_of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        return np.asarray((products + self.offset) ** int(self.degree))

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """−2·degree·(xᵀx' + offset)^{degree − 1} xⱼx'ⱼ."""
        slope = -2 * self.degree * (X @ Y.T + self.offset) ** (int(self.degree) - 1)
        return np.asarray(X.T[:, :, None] * Y.T[:, None] * slope)
