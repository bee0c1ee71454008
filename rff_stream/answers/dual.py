"""K = Z̃W diag(s) Z̃ᵀ of n < R rows in place of G: the same answers from n × n.

With B = W^½Z̃S^½ (n, R) is G = BᵀB and K = BBᵀ: eigenvalues above 0 are the same, β = S^½Bᵀ(K +
αI)⁻¹W^½ỹ, and cᵀ(G + αI)⁻¹c = ỹᵀWỹ − α ỹᵀW^½(K + αI)⁻¹W^½ỹ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.ridge import Ridge, ridge, ridge_of
from rff_stream.moments import Moments
from rff_stream.moments.copies import Observations
from rff_stream.systems.normal_equations import CONSTANT, System
from rff_stream.systems.spectrum import (
    Decomposition,
    Floor,
    Spectrum,
    Tridiagonal,
    alpha_of_targets,
    range_of,
    spectrum,
    tridiagonal,
    with_rest,
)

EXACT_DIRECTION = 1e-8
"""Smallest λ/λ_max at which Bᵀv/√λ loses at most half of the digits."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSpace(Decomposition):
    """K as a tridiagonal form."""

    form: Tridiagonal  # of K and W^½ỹ
    rows: Float64  # (n, R): B
    targets: Float64  # (n, T): W^½ỹ
    kernel: Float64  # (n, n): K

    def quadratics(self, alpha: Array) -> tuple[Float64, Float64]:
        first, second = self.form.quadratics(alpha)  # of W^½ỹ and K
        return self.system.target_scatter - alpha * first, first - alpha * second

    def coef(self, alpha: Array) -> Float64:
        return _coef(self.system, self.rows, self.form.coef(alpha))

    def directions(self) -> Spectrum:
        eigenvalues, vectors = range_of(self.rows.T.copy(order="F"))
        kept = eigenvalues > len(eigenvalues) * np.finfo(np.float64).eps * eigenvalues[-1]
        rhs = self.rows.T @ self.targets  # C
        eigenvalues, vectors = with_rest(eigenvalues[kept], vectors[:, kept], rhs)
        rotation = vectors * self.system.root_prior[:, None]
        return Spectrum(eigenvalues, self.system, rotation, vectors.T @ rhs)


def row_space(moments: Moments, *, fit_intercept: bool = True) -> RowSpace | None:
    """The decomposition of K, where moments keep their rows; None where they do not.

    Notes
    -----
    n²R + 4n³/3 flops: .1 CPU s for 1,000 rows of 2,048 features.
    """
    found = _systems(moments, fit_intercept)
    if found is None:
        return None
    system, rows, kernel = found
    exact = system.n * np.finfo(np.float64).eps
    if not np.trace(kernel.matrix) > exact**2 * system.weight * (system.root_prior**2).sum():
        return None  # rows that are all the same: what is left of them is rounding
    matrix = kernel.matrix.copy()
    form = tridiagonal(kernel)
    return RowSpace(form.eigenvalues, system, form, rows, kernel.rhs, matrix)


def spectrum_of_rows(moments: Moments) -> Spectrum:
    """:func:`~rff_stream.systems.spectrum.spectrum`, from n × n where moments keep their rows.

    U = BᵀVΛ^-½ loses digits along small λ only, where α is larger: n²R + 9n³ flops.
    """
    found = _systems(moments, True)
    if found is None:
        return spectrum(moments)
    system, rows, kernel = found
    eigenvalues, vectors = linalg.eigh(
        kernel.matrix, overwrite_a=True, check_finite=False, driver="evd"
    )
    kept = eigenvalues > system.n_features * np.finfo(np.float64).eps * eigenvalues[-1]
    if not kept.any():
        return spectrum(moments)
    eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
    vectors /= np.sqrt(eigenvalues)
    rotation = rows.T @ vectors
    rotation *= system.root_prior[:, None]
    return Spectrum(eigenvalues, system, rotation, eigenvalues[:, None] * (vectors.T @ kernel.rhs))


def leading_of_rows(moments: Moments, count: int) -> tuple[Float64, Float64, float, System] | None:
    """The ``count`` largest λ of G, increasing, their U (R, count), the trace, and the means.

    None where moments keep no rows, or their rank is too small for exact directions.
    """
    found = _systems(moments, True)
    if found is None or count >= found[0].n:
        return None
    system, rows, kernel = found
    n, trace = kernel.n, float(np.trace(kernel.matrix))
    eigenvalues, vectors = linalg.eigh(
        kernel.matrix, subset_by_index=(n - count, n - 1), overwrite_a=True, check_finite=False
    )
    if not eigenvalues[0] > EXACT_DIRECTION * eigenvalues[-1]:
        return None
    return eigenvalues, (rows.T @ vectors) / np.sqrt(eigenvalues), trace, system


def ridge_of_rows(
    moments: Moments,
    alpha: Array | float,
    *,
    fit_intercept: bool = True,
    floor: Floor = "raise_alpha",
) -> Ridge:
    """:func:`~rff_stream.from_moments.ridge`, from n × n where moments keep their rows.

    n²R + n³ flops in place of nR² + R³. A penalty at the level of rounding is left to R × R.
    """
    given = alpha_of_targets(alpha, moments.row.n_targets)
    systems = _systems(moments, fit_intercept)
    if systems is not None:
        system, rows, kernel = systems
        rounding = system.n_features * np.finfo(np.float64).eps * float(np.trace(kernel.matrix))
        if given.min() > rounding:
            return _ridge(system, rows, ridge_of(kernel, given, floor=floor))
    return ridge(moments, given, fit_intercept=fit_intercept, floor=floor)


def dual(
    Z: Array,
    y: Array,
    alpha: Array | float,
    prior: Array,
    weights: Array | None = None,
    *,
    fit_intercept: bool = True,
    floor: Floor = "raise_alpha",
) -> Ridge:
    """Ridge regression in function space: the same model as :func:`ridge`, from rows in memory.

    (W^½K̃W^½ + αI)a = W^½ỹ with K̃ = Z̃ diag(s) Z̃ᵀ, and β = diag(s) Z̃ᵀW^½a.

    Parameters
    ----------
    Z : (n, R) array
        Feature rows.
    y : (n,) or (n, T) array
    alpha, fit_intercept, floor
        As in :func:`~rff_stream.from_moments.ridge`.
    prior : (R,) array
        s.
    weights : (n,) array, optional
        Positive; 1 by default.

    Notes
    -----
    n²R + n³ flops, less than nR² + R³ if n < R. Streamed fits do not need it.
    """
    Z, targets = np.array(Z, np.float64), np.asarray(y, np.float64).reshape(len(Z), -1)
    w = None if weights is None else np.asarray(weights, np.float64)
    names = tuple(f"y{i}" for i in range(targets.shape[1]))
    origin = float(fit_intercept) * np.average(targets, axis=0, weights=w)
    root_prior = np.sqrt(np.asarray(prior, np.float64))
    counted = Observations(len(Z), 0.0 if w is None else float(np.log(w).sum()))
    system, rows, kernel = _of_rows(
        Z, targets, w, origin, root_prior, names, fit_intercept, counted
    )
    return _ridge(system, rows, ridge_of(kernel, alpha, floor=floor))


def _ridge(system: System, rows: Float64, solved: Ridge) -> Ridge:
    """The regression on R columns, from the unknowns of the n × n system."""
    coef = _coef(system, rows, solved.coef)
    return replace(solved, coef=coef, intercept=system.intercept(coef))


def _coef(system: System, rows: Float64, solved: Float64) -> Float64:
    """β (R, T) = S^½Bᵀ(K + αI)⁻¹W^½ỹ."""
    return np.asarray(system.root_prior[:, None] * (rows.T @ solved))


def _systems(moments: Moments, fit_intercept: bool) -> tuple[System, Float64, System] | None:
    """The system of R columns without its matrix, B, and the system of n rows.

    None where moments keep no rows, or targets whose squares are no numbers.
    """
    kept, row = moments.kept, moments.row
    if kept is None:
        return None
    Z, root_prior = np.asarray(kept.features(kept.x), np.float64), np.sqrt(row.prior)
    found = _of_rows(
        Z, kept.y, kept.w, row.target_origin, root_prior, row.target_names, fit_intercept,
        Observations.of(moments),
    )  # fmt: skip
    return found if np.isfinite(found[0].target_scatter).all() else None


def _of_rows(
    Z: Float64,
    y: Float64,
    weights: Float64 | None,
    origin: Float64,
    root_prior: Float64,
    names: tuple[str, ...],
    fit_intercept: bool,
    observations: Observations,
) -> tuple[System, Float64, System]:
    """Both systems and B of rows Z (n, R), which it overwrites, and y (n, T) about an origin."""
    w = np.ones(len(Z)) if weights is None else weights
    root, share = np.sqrt(w)[:, None], float(fit_intercept) * w / w.sum()
    mean_z = share @ Z
    mean_y = origin * float(fit_intercept) + share @ (y - origin)
    rows, targets = Z, y - mean_y
    rows -= mean_z
    if weights is not None:
        rows *= root
    rows *= root_prior
    targets *= root
    scatter = (targets**2).sum(axis=0)
    varies = scatter > CONSTANT * (w[:, None] * (y - origin) ** 2).sum(axis=0)
    varies |= ~np.isfinite(scatter)
    targets = np.where(varies, targets, 0.0)
    system = System(
        matrix=np.empty((0, 0)),
        rhs=np.empty((0, len(names))),
        target_scatter=np.where(varies, scatter, 0.0),
        root_prior=root_prior,
        feature_mean=mean_z,
        target_mean=mean_y,
        weight=float(w.sum()),
        n=len(w),
        observations=observations,
        fit_intercept=fit_intercept,
        targets=names,
    )
    kernel = replace(
        system,
        matrix=rows @ rows.T,
        rhs=targets,
        root_prior=np.ones(len(w)),
        feature_mean=np.zeros(len(w)),
        target_mean=np.zeros(len(names)),
    )
    return system, rows, kernel
