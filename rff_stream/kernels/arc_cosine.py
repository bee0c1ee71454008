"""The arc-cosine kernel. It has no spectral sampler: use it with Nyström features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Float64
from rff_stream.kernels.base import DotProductKernel, LengthScale


@dataclass(frozen=True, slots=True)
class ArcCosine(DotProductKernel):
    """k = variance·‖x‖ᵖ‖x'‖ᵖ J_p(θ)/π of inputs divided by ℓ: an infinite layer of units.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    order : {1, 0, 2}
        p: 0 for steps, 1 for rectified linear units, 2 for their squares.

    Raises
    ------
    ValueError
        If the order is not 0, 1 or 2.

    References
    ----------
    Cho & Saul 2009, eq. 3 to 6.
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    order: int = 1

    def __post_init__(self) -> None:
        DotProductKernel.__post_init__(self)
        if self.order not in (0, 1, 2):
            raise ValueError(f"order={self.order!r} but it must be 0, 1 or 2. Give one of these.")

    def unit_of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        lengths = x[:, None] * y
        with np.errstate(invalid="ignore", divide="ignore"):
            cosine = np.where(lengths > 0, products / lengths, np.where(lengths == 0, 1.0, lengths))
        cosine = np.clip(cosine, -1, 1)
        angle, sine = np.arccos(cosine), np.sqrt(1 - cosine**2)
        if self.order == 0:
            shape = np.pi - angle
        elif self.order == 1:
            shape = sine + (np.pi - angle) * cosine
        else:
            shape = 3 * sine * cosine + (np.pi - angle) * (1 + 2 * cosine**2)
        return np.asarray(1 / np.pi * lengths**self.order * shape)
