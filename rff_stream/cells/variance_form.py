"""Mean and variance of f in a cell from one triangular product of a row's kernel values.

With A = G + αI, S = I − θαA⁻¹ = CᵀC (C lower), W = CL⁻¹ and k(x, U_c) = δ + m1, m one number,

    v/σ_f² = k(x,x) − zᵀz + θα[(z − z̄)ᵀA⁻¹(z − z̄) + 1/Σw] = k(x,x) + c − ‖Wδ + mCL⁻¹1‖² − 2hᵀz
    f = ȳ + (z − z̄)ᵀβ,    h = θαA⁻¹z̄

Where z = L⁻¹k and F⁻¹(z − z̄) are two products, this is one, and W is better conditioned than L⁻¹:
what L⁻¹ enlarges most, C makes small. But a variance that is small beside σ_f² is then a difference
of nearly equal numbers, so a bound of its rounding says in which precision W serves, or that none
does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from rff_stream._array import Array, Float64
from rff_stream.features.dense_triangle import factor_in_place
from rff_stream.features.packed_triangle import multiply_rows, pack_triangle, unpack_triangle

ROWS_A_COLUMN = 5.0
"""So many rows for each column of a cell take as much longer by two products as W takes to make:
1.15 ms against .8 µs a row at R = 256, .18 ms against .32 µs at R = 128 (EPYC)."""

MOST_MOVED = 2.5e-3
"""Share of the variance of f that rounding may move by its bound; the mean, of the deviation."""


@dataclass(frozen=True, slots=True, eq=False)
class VarianceForm:
    """δ ↦ f and v/σ_f² of rows of one cell."""

    level: float  # m
    factor: Array  # (R(R+1)/2,): W, packed
    lines: Array  # (R, 1 + T), of δ: 2L⁻ᵀh + 2mWᵀCL⁻¹1, and L⁻ᵀβ
    constant: float  # c − 2mhᵀL⁻¹1 − m²‖CL⁻¹1‖²
    least: float  # θα/Σw, which v/σ_f² is at least
    offset: Float64  # (T,): ȳ − z̄ᵀβ + m(L⁻¹1)ᵀβ

    def __call__(self, values: Array, own_kernel: Float64) -> tuple[Float64, Float64]:
        """f (n, T) and v/σ_f² (n,) of δ (n, R), which is written over, and k(x, x) (n,)."""
        lines = values @ self.lines
        multiply_rows(self.factor, values)
        explained = np.vecdot(values, values).astype(np.float64)
        explained += lines[:, 0]
        variance = np.maximum(own_kernel + self.constant - explained, self.least)
        return lines[:, 1:] + self.offset, variance


@dataclass(frozen=True, slots=True, eq=False)
class CellFit:
    """What is known of a cell."""

    inverse_landmarks: Array  # L⁻¹, packed, in float32 or float64
    of_ones: Array  # (R,): L⁻¹1
    inverse_system: Array  # F⁻¹ of FFᵀ = A, packed, in float32 or float64
    alpha: float
    share: float  # mean of α(z − z̄)ᵀA⁻¹(z − z̄) over its rows
    centre: Float64  # (R,): z̄
    coef: Float64  # (R, T): β
    target_mean: Float64  # (T,): ȳ
    signal: Float64  # (T,): σ_f²
    weight: float  # Σw, or ∞ without an intercept
    largest: float  # largest k(x, x)
    level: float  # m: about the mean of k(x, U_c)


def variance_form(fit: CellFit) -> VarianceForm | None:
    """The form of a cell; None where rounding in float64 would move its variances too much.

    Rounding to u of the entries of W and δ moves ‖Wδ‖² by about 2u·max‖W_i‖·k(x,x)^3/2 at most, as
    ‖Wδ‖² ≤ k(x,x); that of a line by u times its length and k(x,x).
    """
    r, epsilon = len(fit.centre), float(np.finfo(fit.inverse_system.dtype).eps)
    packed = fit.inverse_landmarks, fit.inverse_system
    landmarks, system = (unpack_triangle(each, r) for each in packed)
    of_ones = fit.of_ones.astype(np.float64)
    # A⁻¹ of a rounded F⁻¹ may have eigenvalues above 1/α: θ keeps S positive definite, and
    # changes the variance by this share of itself.
    theta_alpha = fit.alpha * (1 - 4 * epsilon * math.sqrt(r))
    white = system @ fit.centre
    h = theta_alpha * (system.T @ white)
    S, _ = lapack.dlauum(system, lower=1, overwrite_c=1)
    S *= -theta_alpha
    S[np.diag_indices(r)] += 1.0
    turned = np.asfortranarray(S[::-1, ::-1].T)  # CᵀC: the factor that begins at the other end
    if not factor_in_place(turned):
        return None
    C = np.asfortranarray(turned[::-1, ::-1].T)
    W = blas.dtrmm(1.0, C, landmarks, lower=1)
    m, level = fit.level, C @ of_ones
    lines = np.column_stack([2 * (landmarks.T @ h + m * (W.T @ level)), landmarks.T @ fit.coef])
    dtype = _precision(fit, W, lines)
    if dtype is None:
        return None
    least = theta_alpha / fit.weight
    of_level = m * (2 * float(h @ of_ones) + m * float(level @ level))
    return VarianceForm(
        level=m,
        factor=pack_triangle(np.asfortranarray(W, dtype)),
        lines=lines.astype(dtype),
        constant=least + theta_alpha * float(white @ white) - of_level,
        least=least,
        offset=fit.target_mean - (fit.centre - m * of_ones) @ fit.coef,
    )


def _precision(fit: CellFit, W: Float64, lines: Float64) -> np.dtype[Any] | None:
    """The coarsest in which rounding moves variances and means little enough."""
    size, deviation = fit.largest, np.sqrt(fit.signal * fit.share)
    widest = 2 * float(np.sqrt(np.einsum("ij,ij->i", W, W).max()))
    lengths = np.sqrt(np.einsum("ij,ij->j", lines, lines)) * size
    moved = widest * size**1.5 + lengths[0]
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        unit = float(np.finfo(dtype).eps) / 2
        fits = unit * moved <= MOST_MOVED * fit.share
        fits &= bool((unit * lengths[1:] <= MOST_MOVED * deviation).all())
        if fits and dtype.itemsize >= fit.inverse_system.itemsize:  # no digit of F⁻¹ is dropped
            return dtype
    return None
