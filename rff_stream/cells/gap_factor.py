"""How much wider errors in gaps are than a fit says, from halves of cells that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import COVERAGE, NORMAL
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.kernels import ExactKernel
from rff_stream.length_scales.left_out import LEAST_REST, NUGGET
from rff_stream.length_scales.window_evidence import RowWindow

HALVED = 4
"""Largest number of inputs along which a cell is halved."""


def gap_factor(
    kernel: ExactKernel, cells: Sequence[RowWindow], n_components: int, order: Array
) -> Float64:
    """The square root (T,) of errors in left-out halves of cells over what the fit says of them.

    95 % lie below, so it is 1 where ±1.96 standard deviations cover 95 % there. The root, halfway
    to 1, as few cells tell the ratio to 15 % and a mean of trees errs less than one. A half lies
    below or above the median of an input along which the cell is long. With H_oo the part of the
    hat matrix of the rows left out, errors are (I − H_oo)⁻¹r_o and variances
    σₙ²(I − H_oo)⁻¹ + σ_f²(k − zᵀz): m³/4 multiply-adds for each cell of m rows and each input.
    """
    fit = _fit_cells(kernel, cells, n_components, order)
    if fit is None:
        return np.ones(1)
    ratios, tiny = [], np.finfo(float).tiny
    for each in fit.cells:
        residual, root = each.residual(fit.alpha), np.sqrt(each.share)
        length = each.x.std(axis=0) / np.asarray(kernel.length_scale, np.float64)
        for column in each.x.T[np.argsort(-length, kind="stable")[:HALVED]]:
            upper = column > np.median(column)
            for rows in (np.flatnonzero(upper), np.flatnonzero(~upper)) if upper.any() else ():
                Z = each.Z[rows]
                hat = (Z / (each.eigenvalues + fit.alpha)) @ Z.T + np.outer(root[rows], root[rows])
                rest = np.linalg.inv((1 + LEAST_REST) * np.eye(len(rows)) - hat)
                variance = fit.noise * (rest.diagonal() + each.missing[rows] / fit.alpha)[:, None]
                ratios.append(abs(rest @ residual[rows]) / np.sqrt(np.maximum(variance, tiny)))
    factor = np.ones(len(fit.varies))
    if ratios:
        covering = np.quantile(np.concatenate(ratios), COVERAGE, axis=0)
        factor[fit.varies] = np.sqrt(covering / NORMAL)
    return factor


@dataclass(frozen=True, slots=True, eq=False)
class _FittedCell:
    """Rows of a cell, centred and times √w, in the eigenbasis of ZᵀZ."""

    x: Float64  # (m, d)
    Z: Float64  # (m, R)
    y: Float64  # (m, T)
    eigenvalues: Float64  # (R,)
    share: Float64  # (m,): w/Σw
    missing: Float64  # (m,): w (k − zᵀz)

    def residual(self, alpha: float) -> Float64:
        return np.asarray(self.y - (self.Z / (self.eigenvalues + alpha)) @ (self.Z.T @ self.y))

    def leverage(self, alpha: float) -> Float64:
        return np.asarray((self.Z**2) @ (1 / (self.eigenvalues + alpha)) + self.share)

    @classmethod
    def of(cls, kernel: ExactKernel, window: RowWindow, y: Float64, U: Float64) -> _FittedCell:
        values = np.asarray(kernel(U, U))
        values[np.diag_indices_from(values)] += NUGGET * kernel.variance
        factor = linalg.cholesky(values, lower=True, check_finite=False)
        Z = linalg.solve_triangular(factor, kernel(U, window.x), lower=True, check_finite=False).T
        missing = window.w * np.maximum(kernel.variance - (Z**2).sum(axis=1), 0)
        root = np.sqrt(window.w)[:, None]
        Z = root * (Z - np.average(Z, axis=0, weights=window.w))
        y = root * (y - np.average(y, axis=0, weights=window.w))
        eigenvalues, vectors = linalg.eigh(Z.T @ Z, check_finite=False, driver="evd")
        share = window.w / window.w.sum()
        return cls(window.x, Z @ vectors, y, np.maximum(eigenvalues, 0), share, missing)


@dataclass(frozen=True, slots=True, eq=False)
class _FittedCells:
    """Cells that share α and a noise (T,) for each target that varies."""

    cells: list[_FittedCell]
    alpha: float
    noise: Float64
    varies: Array  # (T,) bool, of all targets


def _fit_cells(
    kernel: ExactKernel, cells: Sequence[RowWindow], n_components: int, order: Array
) -> _FittedCells | None:
    """The fit of highest evidence; None where no target varies."""
    kept = np.any([(each.y != each.y[:1]).any(axis=0) for each in cells], axis=0)
    if not kept.any():
        return None
    fits = [
        _FittedCell.of(
            kernel, each, each.y[:, kept], each.x[order[order < len(each.x)][:n_components]]
        )
        for each in cells
    ]
    freedom = sum(len(each.x) - 1 for each in cells)
    scatter = np.sum([(each.y**2).sum(axis=0) for each in fits], axis=0)
    border = sum(float(np.log(each.w.sum()) - np.log(each.w).sum()) for each in cells)
    eigenvalues = np.concatenate([each.eigenvalues for each in fits])[:, None]
    profile = Profile(
        eigenvalues=eigenvalues,
        squared_rhs=np.concatenate([(each.Z.T @ each.y) ** 2 for each in fits]),
        scatter=scatter,
        least=scatter * NUGGET**2,
        freedom=freedom,
        constant=freedom * float(np.log(2 * np.pi)) + border,
    )
    floor = NUGGET * len(order)
    alpha = best_alpha(profile, float(eigenvalues.max()), floor, shared=True)
    return _FittedCells(fits, float(alpha[0]), profile.noise(alpha), kept)
