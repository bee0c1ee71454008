"""The cells of every tree decomposed: one decomposition of each answers every penalty.

A tree is block-diagonal. In cell c, with its own mean ȳ_c and z̄_c,

    G_c = Z̃ᵀWZ̃ = UΛUᵀ (R, R),  C_c = Z̃ᵀWỹ (R, T),  β_c = (G_c + αI)⁻¹C_c
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.features.cells import LocalFeatures
from rff_stream.moments.cells import CellMoments
from rff_stream.systems.spectrum import rounding_floor

BLOCK_CELLS = 64
"""Cells decomposed together."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeSpectrum:
    """The cells of one tree, each in the eigenbasis of its own G_c; k of B cells hold rows."""

    index: Array  # (B,) int32: place of each cell among the k held, or −1
    eigenvalues: Float64  # (k, R): λ, increasing in each cell
    rotation: Float64  # (k, R, R), L⁻ᵀU: k(x, U_c) · rotation are the coordinates ζ of a row
    rhs: Float64  # (k, R, T): UᵀC
    centre: Float64  # (k, R): Uᵀz̄; zeros without an intercept
    target_mean: Float64  # (k, T): ȳ_c in units of y; zeros without an intercept
    weight: Float64  # (k,): Σ w of each cell
    scatter: Float64  # (k, T): ỹᵀWỹ


@dataclass(frozen=True, slots=True, eq=False)
class LocalSpectrum:
    """Every tree's cells decomposed: serves every α."""

    features: LocalFeatures
    trees: tuple[TreeSpectrum, ...]
    n: int  # rows
    log_weight: float  # Σ log w
    fit_intercept: bool  # whether each cell has its own free mean
    target_mean: Float64
    """(T,), mean of all rows, for cells without rows; zeros without an intercept."""
    targets: tuple[str, ...]

    @property
    def eta(self) -> float:
        """η, the smallest α that the rounding of the sums allows in every cell."""
        floors = [rounding_floor(each) for tree in self.trees for each in tree.eigenvalues]
        return max(floors, default=0.0)

    def df(self, alpha: Array) -> Float64:
        """Effective degrees of freedom (J, T) of each tree at α (J, T)."""
        counts = [
            (np.maximum(tree.eigenvalues, 0)[..., None] / (tree.eigenvalues[..., None] + a)).sum(
                axis=(0, 1)
            )
            + len(tree.weight) * float(self.fit_intercept)
            for tree, a in zip(self.trees, alpha, strict=True)
        ]
        return np.array(counts)


def local_spectrum(
    features: LocalFeatures, moments: CellMoments, *, fit_intercept: bool = True
) -> LocalSpectrum:
    """Decompositions of all cells, from moments of the same map.

    Notes
    -----
    About ten R³ flops a cell; J·B·R² float64 are held.
    """
    row = moments.row
    _require_rows(moments)
    trees = tuple(
        _tree_spectrum(features, moments, tree, fit_intercept) for tree in range(moments.n_trees)
    )
    mean = moments.target_mean() if fit_intercept else np.zeros(row.n_targets)
    return LocalSpectrum(
        features, trees, moments.n, moments.log_weight, fit_intercept, mean, row.target_names
    )


def _tree_spectrum(
    features: LocalFeatures, moments: CellMoments, tree: int, fit_intercept: bool
) -> TreeSpectrum:
    row, span = moments.row, moments.of_tree(tree)
    r, t, k = row.n_features, row.n_targets, span.stop - span.start
    cells = moments.cells[span] - tree * moments.n_cells
    index = np.full(moments.n_cells, -1, np.int32)
    index[cells] = np.arange(k)
    found = TreeSpectrum(
        index=index,
        eigenvalues=np.empty((k, r)),
        rotation=np.empty((k, r, r)),
        rhs=np.empty((k, r, t)),
        centre=np.zeros((k, r)),
        target_mean=np.zeros((k, t)),
        weight=moments.cell_weights()[span],
        scatter=np.empty((k, t)),
    )
    for start in range(0, k, BLOCK_CELLS):
        block = slice(start, min(start + BLOCK_CELLS, k))
        matrices = moments.matrices(slice(span.start + block.start, span.start + block.stop))
        mean_z, mean_y = _centre(matrices, row.target_origin, r, fit_intercept)
        eigenvalues, vectors = np.linalg.eigh(matrices[:, :r, :r])
        turned = vectors.transpose(0, 2, 1)
        found.eigenvalues[block] = eigenvalues
        found.rhs[block] = turned @ matrices[:, :r, r + 1 :]
        found.centre[block] = (turned @ mean_z[..., None])[..., 0]
        found.target_mean[block] = mean_y
        found.scatter[block] = np.maximum(
            np.diagonal(matrices[:, r + 1 :, r + 1 :], axis1=1, axis2=2), 0
        )
        for i in range(block.start, block.stop):
            factor = features.exact_factor(tree, int(cells[i]))
            found.rotation[i] = linalg.solve_triangular(
                factor, vectors[i - start], lower=True, trans="T", check_finite=False
            )
    return found


def _centre(
    matrices: Float64, target_origin: Float64, r: int, fit_intercept: bool
) -> tuple[Float64, Float64]:
    """z̄ (k, R) and ȳ (k, T); M (k, P, P) becomes the scatter about them, in place.

    Without an intercept both are 0, and y₀ is added back.
    """
    weight = matrices[:, r, r].copy()
    border = matrices[:, r].copy()  # Σ w a
    shift = border / weight[:, None]
    if not fit_intercept:
        shift[:, :r] = 0.0
        shift[:, r + 1 :] = -target_origin
    v = border - 0.5 * weight[:, None] * shift
    v[:, r] = shift[:, r] = 0.0
    matrices -= shift[:, :, None] * v[:, None, :]
    matrices -= v[:, :, None] * shift[:, None, :]
    mean_y = shift[:, r + 1 :] + target_origin
    return shift[:, :r], mean_y


def _require_rows(moments: CellMoments) -> None:
    if moments.n < 1 or moments.row.n_targets < 1:
        raise ValueError(
            f"These moments hold {moments.n} rows and {moments.row.n_targets} targets. "
            "A fit needs at least one of each."
        )
    if not np.isfinite(moments.sums).all():
        raise ValueError(
            "These moments hold sums that are not finite. A fit needs finite rows; "
            "check the data for NaN, inf and overflow, and collect the moments again."
        )
