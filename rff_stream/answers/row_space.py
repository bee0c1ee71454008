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
from rff_stream.systems.system import CONSTANT, System

EXACT_DIRECTION = 1e-8
"""λ/λ_max from which Bᵀv/√λ has lost no more than half of the digits."""


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
    """:func:`~rff_stream.answers.ridge.ridge`, from n × n where moments keep their rows.

    n²R + n³ flops in place of nR² + R³. A penalty at the level of rounding is left to R × R.
    """
    asked = alpha_of_targets(alpha, moments.row.n_targets)
    systems = _systems(moments, fit_intercept)
    if systems is not None:
        system, rows, kernel = systems
        rounding = system.n_features * np.finfo(np.float64).eps * float(np.trace(kernel.matrix))
        if asked.min() > rounding:
            found = ridge_of(kernel, asked, floor=floor)
            coef = _coef(system, rows, found.coef)
            return replace(found, coef=coef, intercept=system.intercept(coef))
    return ridge(moments, asked, fit_intercept=fit_intercept, floor=floor)


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
    w = np.ones(len(kept.x)) if kept.w is None else kept.w
    root, share = np.sqrt(w)[:, None], float(fit_intercept) * w / w.sum()
    Z = np.asarray(kept.features(kept.x), np.float64)
    mean_z = share @ Z
    mean_y = row.target_origin * float(fit_intercept) + share @ (kept.y - row.target_origin)
    rows, targets = Z, kept.y - mean_y
    root_prior = np.sqrt(row.prior)
    rows -= mean_z
    if kept.w is not None:
        rows *= root
    rows *= root_prior
    targets *= root
    scatter = (targets**2).sum(axis=0)
    varies = scatter > CONSTANT * (w[:, None] * (kept.y - row.target_origin) ** 2).sum(axis=0)
    targets, n_targets = np.where(varies, targets, 0.0), row.n_targets
    system = System(
        matrix=np.empty((0, 0)),
        rhs=np.empty((0, n_targets)),
        target_scatter=np.where(varies, scatter, 0.0),
        root_prior=root_prior,
        feature_mean=mean_z,
        target_mean=mean_y,
        weight=float(w.sum()),
        log_weight=moments.log_weight,
        n=len(w),
        fit_intercept=fit_intercept,
        targets=row.target_names,
    )
    kernel = replace(
        system,
        matrix=rows @ rows.T,
        rhs=targets,
        root_prior=np.ones(len(w)),
        feature_mean=np.zeros(len(w)),
        target_mean=np.zeros(n_targets),
    )
    return (system, rows, kernel) if np.isfinite(scatter).all() else None
