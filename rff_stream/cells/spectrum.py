"""The cells of every tree solved: decomposed for every penalty, or factored for one.

A tree is block-diagonal. In cell c, with its own mean ȳ_c and z̄_c,

    G_c = Z̃ᵀWZ̃ (R, R),  C_c = Z̃ᵀWỹ (R, T),  β_c = (G_c + αI)⁻¹C_c

G_c = UΛUᵀ serves every α, and G_c + αI = FFᵀ one α at a sixteenth of the price. Both give rows
coordinates in which (G_c + αI)⁻¹ is diagonal, so answers are computed alike from either.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import blas, lapack

from rff_stream._array import Array, Float64
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellMoments
from rff_stream.features.dense_triangle import factor_in_place, invert_in_place
from rff_stream.features.packed_triangle import multiply_rows, pack_triangle, unpack_triangle
from rff_stream.moments.copies import Observations
from rff_stream.side_by_side import side_by_side
from rff_stream.systems.spectrum import rounding_floor

RUN_CELLS = 16
"""Cells that a thread solves at a time."""

ETA_RUN = 256
"""Cells in which a thread looks for the η of all: the n-th of them raises it once in n times."""

EPSILON = float(np.finfo(np.float64).eps)

LEAST_VARIANCE = 2e-3
"""Rows are predicted with products in float32 in cells where the variance of f is on average at
least this share of σ_f². Rounding moves it by about 1e-6 of σ_f², at most 5e-6: on temperatures of
weather stations deviations by 1.4e-5 of themselves (at most 1.3e-4), means by 5e-5 deviations."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeCells:
    """The solved cells of one tree; k of its B cells hold rows."""

    own_arrays: ClassVar[tuple[str, ...]] = ("rhs", "centre", "target_mean", "weight", "scatter")
    """Fields that are stored cell after cell."""

    index: Array  # (B,) int32: place of each cell among the k held, or −1
    rhs: Float64  # (k, R, T): C in the coordinates of :meth:`whitened`
    centre: Float64  # (k, R): z̄ in those of :meth:`coordinates`; zeros without an intercept
    target_mean: Float64  # (k, T): ȳ_c in units of y; zeros without an intercept
    weight: Float64  # (k,): Σ w of each cell
    scatter: Float64  # (k, T): ỹᵀWỹ

    @abstractmethod
    def coordinates(
        self, features: LocalFeatures, key: tuple[int, int], values: Float64
    ) -> Float64:
        """Rows (n, R) as long as z, of rows k(x, U_c) (n, R), which may be overwritten.

        The key of a cell is its tree and its number there.
        """

    @abstractmethod
    def landmark_normals(
        self, features: LocalFeatures, key: tuple[int, int], landmarks: Array
    ) -> Float64:
        """Coordinates (m, R) of L⁻¹e: at right angles to them f is without that landmark."""

    @abstractmethod
    def whitened(self, place: int, rows: Float64) -> Float64:
        """Coordinates in which (G_c + αI)⁻¹ is the diagonal of :meth:`inverse`."""

    @abstractmethod
    def kernel_weights(
        self, features: LocalFeatures, key: tuple[int, int], weights: Float64
    ) -> Float64:
        """Weights (R, T) of k(x, U_c) that say what those of :meth:`coordinates` say."""

    def precision(self, place: int, alpha: Float64) -> np.dtype[Any]:
        """Of the columns of rows that are predicted."""
        return np.dtype(np.float64)

    @abstractmethod
    def solution(self, place: int, alpha: Float64) -> Float64:
        """β (R, T) in the coordinates of :meth:`coordinates`."""

    @abstractmethod
    def inverse(self, place: int, alpha: Float64) -> Float64:
        """That diagonal (R, T) for α (T,)."""

    def spread(self, place: int, white: Float64, alpha: Float64) -> Float64:
        """uᵀ(G_c + αI)⁻¹u (n, T) of rows u, of :meth:`whitened`."""
        return np.asarray(white**2 @ self.inverse(place, alpha))

    @abstractmethod
    def explained(self, alpha: Float64) -> Float64:
        """C_cᵀβ_c (k, T) of every cell."""

    @abstractmethod
    def df(self, alpha: Float64) -> Float64:
        """Σ λ/(λ + α) (T,) of all cells."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeSpectrum(TreeCells):
    """The cells of one tree, each in the eigenbasis of its own G_c: for every α."""

    own_arrays: ClassVar[tuple[str, ...]] = (*TreeCells.own_arrays, "eigenvalues", "rotation")

    eigenvalues: Float64  # (k, R): λ, increasing in each cell
    rotation: Float64  # (k, R, R), L⁻ᵀU: k(x, U_c) · rotation are the coordinates of a row
    rounding: float = 0.0  # of the columns of a row, times its weight

    def coordinates(
        self, features: LocalFeatures, key: tuple[int, int], values: Float64
    ) -> Float64:
        return np.asarray(values @ self.rotation[self.index[key[1]]])

    @property
    def eta(self) -> float:
        """The smallest α that rounding allows: of columns, of sums, and of what centring takes.

        The last matters where all rows of a cell are equal, and nothing but rounding is left.
        """
        sums = max((rounding_floor(each) for each in self.eigenvalues), default=0.0)
        taken = self.weight * (self.centre**2).sum(axis=1)
        return max(self.rounding, sums, 3 * EPSILON * float(taken.max(initial=0.0)))

    def landmark_normals(
        self, features: LocalFeatures, key: tuple[int, int], landmarks: Array
    ) -> Float64:
        return np.asarray(self.rotation[self.index[key[1]]][landmarks])

    def whitened(self, place: int, rows: Float64) -> Float64:
        return rows

    def kernel_weights(
        self, features: LocalFeatures, key: tuple[int, int], weights: Float64
    ) -> Float64:
        return np.asarray(self.rotation[self.index[key[1]]] @ weights)

    def solution(self, place: int, alpha: Float64) -> Float64:
        return np.asarray(self.rhs[place] * self.inverse(place, alpha))

    def inverse(self, place: int, alpha: Float64) -> Float64:
        return np.asarray(1 / (self.eigenvalues[place][:, None] + alpha))

    def explained(self, alpha: Float64) -> Float64:
        return np.asarray((self.rhs**2 / (self.eigenvalues[..., None] + alpha)).sum(axis=1))

    def df(self, alpha: Float64) -> Float64:
        positive = np.maximum(self.eigenvalues, 0)[..., None]
        return np.asarray((positive / (self.eigenvalues[..., None] + alpha)).sum(axis=(0, 1)))


@dataclass(frozen=True, slots=True, eq=False)
class TreeFactors(TreeCells):
    """The cells of one tree factored at one α for all targets; ``rhs`` is F⁻¹C."""

    own_arrays: ClassVar[tuple[str, ...]] = (
        *TreeCells.own_arrays,
        "inverse_factor",
        "freedom",
        "coef",
    )

    inverse_factor: Array  # (k, R(R+1)/2): F⁻¹ of each cell, packed, in float32 or float64
    freedom: Float64  # (k,): Σ λ/(λ + α) of each cell
    coef: Float64  # (k, R, T): β

    def coordinates(
        self, features: LocalFeatures, key: tuple[int, int], values: Float64
    ) -> Float64:
        mean = np.einsum("ij->i", values) / np.asarray(values.shape[1], values.dtype)
        values -= mean[:, None]
        features.project(*key, values, mean)
        return values

    def landmark_normals(
        self, features: LocalFeatures, key: tuple[int, int], landmarks: Array
    ) -> Float64:
        units = np.zeros((len(landmarks), features.n_components))
        units[np.arange(len(landmarks)), landmarks] = 1.0
        return self.coordinates(features, key, units)

    def precision(self, place: int, alpha: Float64) -> np.dtype[Any]:
        wide = alpha.min() * self.freedom[place] >= LEAST_VARIANCE * self.weight[place]
        return self.inverse_factor.dtype if wide else np.dtype(np.float64)

    def whitened(self, place: int, rows: Float64) -> Float64:
        white = rows.astype(self.inverse_factor.dtype)
        multiply_rows(self.inverse_factor[place], white)
        return white

    def solution(self, place: int, alpha: Float64) -> Float64:
        return np.asarray(self.coef[place])

    def kernel_weights(
        self, features: LocalFeatures, key: tuple[int, int], weights: Float64
    ) -> Float64:
        inverse, _ = features.inverse_factor(*key)
        return np.asarray(unpack_triangle(inverse, len(weights)).T @ weights)

    def inverse(self, place: int, alpha: Float64) -> Float64:
        return np.ones((self.rhs.shape[1], len(alpha)))

    def spread(self, place: int, white: Float64, alpha: Float64) -> Float64:
        squares = np.einsum("ij,ij->i", white, white)
        return np.repeat(squares[:, None], len(alpha), axis=1)

    def explained(self, alpha: Float64) -> Float64:
        return np.asarray((self.rhs**2).sum(axis=1))

    def df(self, alpha: Float64) -> Float64:
        return np.full(len(alpha), self.freedom.sum())


def coefficients(inverse_factor: Array, rhs: Float64) -> Float64:
    """β = F⁻ᵀ(F⁻¹C) (k, R, T) of cells, of packed F⁻¹ and F⁻¹C."""
    pairs = zip(inverse_factor, rhs, strict=True)
    return np.reshape([unpack_triangle(one, len(own)).T @ own for one, own in pairs], rhs.shape)


@dataclass(frozen=True, slots=True, eq=False)
class LocalTrees:
    """Every tree's cells solved, all in one way."""

    features: LocalFeatures
    trees: tuple[Any, ...]  # of TreeCells
    observations: Observations  # what evidence counts
    fit_intercept: bool  # whether each cell has its own free mean
    target_mean: Float64
    """(T,), mean of all rows, for cells without rows; zeros without an intercept."""
    targets: tuple[str, ...]

    def df(self, alpha: Array) -> Float64:
        """Effective degrees of freedom (J, T) of each tree at α (J, T)."""
        return np.array(
            [
                tree.df(own) + len(tree.weight) * float(self.fit_intercept)
                for tree, own in zip(self.trees, alpha, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class LocalSpectrum(LocalTrees):
    """Every tree's cells decomposed: serves every α."""

    trees: tuple[TreeSpectrum, ...]

    @property
    def eta(self) -> float:
        """η, the smallest α that the rounding of the sums allows in every cell."""
        return max((tree.eta for tree in self.trees), default=0.0)


def local_spectrum(
    features: LocalFeatures, moments: CellMoments, *, fit_intercept: bool = True
) -> LocalSpectrum:
    """Decompositions of all cells, from moments of the same map.

    Notes
    -----
    About ten R³ flops a cell; J·B·R² float64 are held.
    """
    require_rows(moments)
    trees = tuple(
        tree_spectrum(features, moments, tree, fit_intercept) for tree in range(moments.n_trees)
    )
    return LocalSpectrum(features, trees, *facts_of_rows(moments, fit_intercept))


def facts_of_rows(
    moments: CellMoments, fit_intercept: bool
) -> tuple[Observations, bool, Float64, tuple[str, ...]]:
    """The fields of :class:`LocalTrees` that are not those of a tree."""
    row = moments.row
    mean = moments.target_mean() if fit_intercept else np.zeros(row.n_targets)
    return Observations.of(moments), fit_intercept, mean, row.target_names


def tree_spectrum(
    features: LocalFeatures,
    moments: CellMoments,
    tree: int,
    fit_intercept: bool,
    places: Array | None = None,
) -> TreeSpectrum:
    """Decompositions of the cells of a tree; of those at some places without their rotations."""
    span = moments.of_tree(tree)
    held = np.arange(span.start, span.stop) if places is None else places
    row, common = moments.row, _empty_cells(moments, tree, held)
    r, k = row.n_features, len(held)
    eigenvalues = np.empty((k, r))
    rotation = np.empty((k, r, r) if places is None else (k, 0, 0))

    def solve(cells: range) -> None:
        for i in cells:
            place = int(held[i])
            system = _cell_system(moments, place, fit_intercept)
            eigenvalues[i], vectors = np.linalg.eigh(system.matrix)
            _fill(common, i, system, vectors.T @ system.rhs, vectors.T @ system.mean_z)
            if places is None:
                cell = int(moments.cells[place]) % moments.n_cells
                inverse = features.inverse_triangle(tree, cell)
                rotation[i] = blas.dtrmm(1.0, inverse, vectors, lower=1, trans_a=1)

    side_by_side(solve, _runs(k))
    rounding = features.rounding * moments.weight / moments.n
    return TreeSpectrum(**common, eigenvalues=eigenvalues, rotation=rotation, rounding=rounding)


def tree_eta(moments: CellMoments, fit_intercept: bool, held: Array, known: float) -> float:
    """:attr:`TreeSpectrum.eta` of cells at these places, where the η of some of them is known.

    A cell whose G + (η/3)I has a Cholesky factor does not raise η; any other is decomposed.
    """
    r = moments.row.n_features

    def largest(cells: range) -> float:
        eta = known
        for i in cells:
            system = _cell_system(moments, int(held[i]), fit_intercept)
            diagonal = system.matrix.diagonal()
            taken = float(system.weight * (system.mean_z**2).sum())
            eta = max(eta, 3 * EPSILON * taken)
            shifted = system.matrix.copy(order="F")
            shifted[np.diag_indices(r)] += eta / 3
            if eta < r * EPSILON * diagonal.sum() or not factor_in_place(shifted):
                eta = max(eta, rounding_floor(np.linalg.eigh(system.matrix)[0]))
        return eta

    count = len(held)
    runs = [range(i, min(i + ETA_RUN, count)) for i in range(0, count, ETA_RUN)]
    return max(side_by_side(largest, runs), default=known)


@dataclass(frozen=True, slots=True, eq=False)
class FactoredTree:
    """A tree factored at α, with what its evidence needs."""

    cells: TreeFactors
    log_det: float  # Σ log(1 + λ/α)
    change: Float64  # (T,): ∂(ỹᵀWỹ − Σ Cᵀβ)/∂α


def factored_tree(
    moments: CellMoments, tree: int, alpha: float, fit_intercept: bool, inverses: Array, held: Array
) -> FactoredTree | None:
    """Cells of a tree at these places, at one α; None where rounding makes one indefinite.

    F⁻¹ of each cell is written into ``inverses`` (k, R(R+1)/2), in their dtype.
    """
    row = moments.row
    common = _empty_cells(moments, tree, held)
    r, k = row.n_features, len(held)
    freedom, log_dets = np.empty(k), np.empty(k)
    coef = np.empty((k, r, row.n_targets))

    def solve(cells: range) -> bool:
        for i in cells:
            system = _cell_system(moments, int(held[i]), fit_intercept)
            matrix, rhs = system.matrix, np.ascontiguousarray(system.rhs.T)
            matrix[np.diag_indices(r)] += alpha
            if not factor_in_place(matrix):
                return False
            log_dets[i] = 2 * float(np.log(matrix.diagonal()).sum())
            invert_in_place(matrix)
            packed = pack_triangle(matrix)
            inverses[i], freedom[i] = packed, r - alpha * float(np.vdot(packed, packed))
            multiply_rows(packed, rhs)
            coef[i] = blas.dtrmm(1.0, matrix, rhs.T, lower=1, trans_a=1)
            _fill(common, i, system, rhs.T, system.mean_z)
        return True

    if not all(side_by_side(solve, _runs(k))):
        return None
    cells = TreeFactors(
        **common, inverse_factor=inverses, freedom=np.maximum(freedom, 0), coef=coef
    )
    log_det = float(log_dets.sum()) - k * r * float(np.log(alpha))
    return FactoredTree(cells, log_det, (coef**2).sum(axis=(0, 1)))


def _runs(count: int) -> list[range]:
    """So many cells in runs that one thread solves."""
    return [range(i, min(i + RUN_CELLS, count)) for i in range(0, count, RUN_CELLS)]


@dataclass(frozen=True, slots=True, eq=False)
class _CellSystem:
    """The equations of one cell."""

    matrix: Float64  # (R, R): G_c, its lower triangle
    rhs: Float64  # (R, T): C_c
    mean_z: Float64  # (R,): z̄
    mean_y: Float64  # (T,): ȳ
    scatter: Float64  # (T,): ỹᵀWỹ
    weight: float  # Σw


def _cell_system(moments: CellMoments, place: int, fit_intercept: bool) -> _CellSystem:
    """M_c as the scatter about z̄ and ȳ. Without an intercept both are 0, and y₀ is added back."""
    row = moments.row
    r, width = row.n_features, row.width
    matrix, _ = lapack.dtfttr(width, moments.sums[place], transr="N", uplo="L")  # in float64
    matrix[r:, r:] = moments.borders[place]
    weight = float(matrix[r, r])
    border = np.concatenate([matrix[r, : r + 1], matrix[r + 1 :, r]])  # Σ w a
    shift = border / weight
    if not fit_intercept:
        shift[:r] = 0.0
        shift[r + 1 :] = -row.target_origin
    v = border - 0.5 * weight * shift
    v[r] = shift[r] = 0.0
    matrix = blas.dsyr2(-1.0, shift, v, lower=1, a=matrix, overwrite_a=1)
    scatter = np.maximum(matrix.diagonal()[r + 1 :], 0)
    rhs, mean_y = matrix[r + 1 :, :r].T, shift[r + 1 :] + row.target_origin
    return _CellSystem(np.asfortranarray(matrix[:r, :r]), rhs, shift[:r], mean_y, scatter, weight)


def _empty_cells(moments: CellMoments, tree: int, held: Array) -> dict[str, Any]:
    """The fields that all trees have, for the cells at these places."""
    r, t, k = moments.row.n_features, moments.row.n_targets, len(held)
    index = np.full(moments.n_cells, -1, np.int32)
    index[moments.cells[held] - tree * moments.n_cells] = np.arange(k)
    return {
        "index": index,
        "rhs": np.empty((k, r, t)),
        "centre": np.empty((k, r)),
        "target_mean": np.empty((k, t)),
        "weight": moments.cell_weights()[held],
        "scatter": np.empty((k, t)),
    }


def _fill(
    common: dict[str, Any], i: int, system: _CellSystem, rhs: Float64, centre: Float64
) -> None:
    common["rhs"][i], common["centre"][i] = rhs, centre
    common["target_mean"][i], common["scatter"][i] = system.mean_y, system.scatter


def _starts(moments: CellMoments) -> range:
    """Of runs of the cells held: a test of all of them at once would take a byte a number."""
    return range(0, len(moments.cells), RUN_CELLS)


def require_rows(moments: CellMoments) -> None:
    """Refuse moments of nothing, or that are not finite."""
    if moments.n < 1 or moments.row.n_targets < 1:
        raise ValueError(
            f"These moments hold {moments.n} rows and {moments.row.n_targets} targets. "
            "A fit needs at least one of each."
        )
    finite = (np.isfinite(moments.sums[i : i + RUN_CELLS]).all() for i in _starts(moments))
    if not all(finite):
        raise ValueError(
            "These moments hold sums that are not finite. A fit needs finite rows; "
            "check the data for NaN, inf and overflow, and collect the moments again."
        )
