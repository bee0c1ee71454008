"""Kernels with a value but no spectral measure: for Nyström features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.kernels.base import (
    Composable,
    LengthScale,
    normalise,
    plain_scale,
    positive,
    scaled_rows,
    spec_of,
)

__all__ = ["ArcCosine", "Chi2", "Polynomial"]


@dataclass(frozen=True, slots=True)
class Polynomial(Composable):
    """k = variance·(xᵀx'/ℓ² + offset)^degree: all products of up to ``degree`` inputs.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    degree : int
        1 is linear regression; 2 has the interactions.
    offset : float
        c > 0 weighs lower degrees against higher ones.
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    degree: int = 2
    offset: float = 1.0

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "offset", positive("offset", self.offset))
        if self.degree != int(self.degree) or self.degree < 1:
            raise ValueError(f"degree={self.degree!r} but it is a whole number ≥ 1. Give one.")

    def __call__(self, X: Array, Y: Array) -> Float64:
        X, Y = scaled_rows(self, X, Y)
        return self.of_products(X @ Y.T, np.ones(1), np.ones(1))

    def of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        """K (n, m) of scaled products xᵀx' (n, m)."""
        return np.asarray(self.variance * (products + self.offset) ** int(self.degree))

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        own = {"degree": self.degree, "offset": self.offset}
        return spec_of("polynomial", self) | own


@dataclass(frozen=True, slots=True)
class ArcCosine(Composable):
    """k = variance·‖x‖ᵖ‖x'‖ᵖ J_p(θ)/π of inputs divided by ℓ: an infinite layer of units.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    order : {1, 0, 2}
        p: 0 for steps, 1 for rectified linear units, 2 for their squares.

    References
    ----------
    Cho & Saul 2009, eq. 3 to 6.
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    order: int = 1

    def __post_init__(self) -> None:
        normalise(self)
        if self.order not in (0, 1, 2):
            raise ValueError(f"order={self.order!r} but it is 0, 1 or 2. Give one of these.")

    def __call__(self, X: Array, Y: Array) -> Float64:
        X, Y = scaled_rows(self, X, Y)
        norms = (np.linalg.norm(rows, axis=1) for rows in (X, Y))
        return self.of_products(X @ Y.T, *norms)

    def of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        """K (n, m) of scaled products xᵀx' (n, m) and lengths x (n,) and y (m,)."""
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
        return np.asarray(self.variance / np.pi * lengths**self.order * shape)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("arc_cosine", self) | {"order": self.order}


@dataclass(frozen=True, slots=True)
class Chi2(Composable):
    """k = variance·exp(−Σⱼ (xⱼ − x'ⱼ)²/(xⱼ + x'ⱼ)/ℓⱼ) of inputs ≥ 0: for histograms.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`; ``gamma`` of scikit-learn is 1/ℓ.
    """

    length_scale: LengthScale = None
    variance: float = 1.0

    def __post_init__(self) -> None:
        normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m), one input at a time."""
        X, Y = scaled_rows(self, X, Y)
        total = np.zeros((len(X), len(Y)))
        for j, (x, y) in enumerate(zip(X.T, Y.T, strict=True)):
            if min(x.min(initial=0), y.min(initial=0)) < 0:
                raise DataError(
                    f"Column {j} holds values below 0 but the chi² kernel compares histograms. "
                    "Use values ≥ 0, or another kernel."
                )
            added = x[:, None] + y
            added[added == 0] = 1.0
            total += (x[:, None] - y) ** 2 / added
        return self.variance * np.exp(-total)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("chi2", self)
