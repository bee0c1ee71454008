"""The χ² kernel of histograms. It has no spectral sampler: use it with Nyström features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import DataError
from rff_stream.kernels.base import ExactKernel, LengthScale


@dataclass(frozen=True, slots=True)
class Chi2(ExactKernel):
    """k = variance·exp(−Σⱼ (xⱼ − x'ⱼ)²/(xⱼ + x'ⱼ)/ℓⱼ) of inputs ≥ 0: for histograms.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`; ``gamma`` of scikit-learn is 1/ℓ.
    """

    length_scale: LengthScale = None
    variance: float = 1.0

    def length_scale_of_gamma(self, gamma: float) -> float:
        return 1 / gamma

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        """Exact values (n, m), one input at a time."""
        total = np.zeros((len(X), len(Y)))
        for distance in _distances(X, Y):
            total += distance
        return np.exp(-total)

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """k·(xⱼ − x'ⱼ)²/(xⱼ + x'ⱼ)."""
        value = self.unit_value(X, Y)
        each = [value * distance for distance in _distances(X, Y)]
        return np.reshape(each, (X.shape[1], len(X), len(Y)))


def _distances(X: Float64, Y: Float64) -> Iterator[Float64]:
    """(xⱼ − x'ⱼ)²/(xⱼ + x'ⱼ) (n, m) of each input j."""
    for j, (x, y) in enumerate(zip(X.T, Y.T, strict=True)):
        if min(x.min(initial=0), y.min(initial=0)) < 0:
            raise DataError(
                f"Column {j} holds values below 0 but the chi² kernel compares histograms. "
                "Use values ≥ 0, or another kernel."
            )
        added = x[:, None] + y
        added[added == 0] = 1.0
        yield (x[:, None] - y) ** 2 / added
