"""The linear kernel. It has no spectral sampler: use Nyström features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Float64
from rff_stream.kernels.base import DotProductKernel, LengthScale


@dataclass(frozen=True, slots=True)
class Linear(DotProductKernel):
    """k = variance·xᵀx'/ℓ²: linear regression, of inputs as they are.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`, but ℓ = 1 unless you give another: "linear" is xᵀx', as in
        scikit-learn. Of highest rank d; :class:`Polynomial` of degree 1 has an offset, too.
    """

    length_scale: LengthScale = 1.0
    variance: float = 1.0

    def unit_of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        return products

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """−2 xⱼx'ⱼ."""
        return np.asarray(-2 * X.T[:, :, None] * Y.T[:, None])
