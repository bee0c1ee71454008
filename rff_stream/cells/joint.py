"""Rows of cells together: the covariance of f between them, and functions drawn with it.

In one tree the rows of a cell belong to one process, and rows of two cells are independent:

    C_t(x, x') = σ_f²[k(x, x') − zᵀz'] + σₙ²[(z − z̄)ᵀ(G_c + αI)⁻¹(z' − z̄) + 1/Σw],  or 0.

A single cell, which few rows are, says all of it. Of J trees each has a share ω_t of the variance,
as in :class:`~rff_stream.cells.posterior.LocalPosterior`, so that with g and s_c from there

    Cov(f(x), f(x')) = g(x) g(x') Σ_t √(ω_t(x) ω_t(x')) s_c s_c' C_t(x, x')

has the variances of f on its diagonal. It is that of f = E f + g Σ_t √ω_t s_c d_t with independent
d_t of covariance C_t, which is what a draw adds up: it jumps where a tree has a seam, by less than
a deviation. The mean of trees of one variance has no more than the mean of their covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.cells.posterior import LocalPosterior, runs_of_cells
from rff_stream.features import FourierFeatures
from rff_stream.features.nystroem import self_kernel
from rff_stream.kernels import Kernel
from rff_stream.side_by_side import side_by_side

BATCH = 256
"""Rows at a time: what is between them and the answer stays small."""

RESIDUAL_COLUMNS = 256
"""M, Fourier columns by which a draw follows f where landmarks do not tell it. Variances there are
exact; correlations have a standard error of about 1/√M."""


@dataclass(frozen=True, slots=True, eq=False)
class _RowsOfCell:
    """Rows (m, d) that one tree sends to one cell; R is 0 where the cell holds no rows."""

    rows: Float64  # (m, d): encoded
    coordinates: Float64  # (m, R): as long as z
    white: Float64  # (m, R): of z − z̄, in which (G_c + αI)⁻¹ is diagonal


def covariance(posterior: LocalPosterior, x: Array) -> Float64:
    """Cov(f(x), f(x')) (T, n, n) of all pairs of rows x (n, d); n²R flops in each cell."""
    loadings, kernel = posterior.loadings(x), posterior.solved.features.kernel
    rows, routes = posterior.route(x)
    found = np.zeros((len(posterior.inflation), len(x), len(x)))
    for tree, cells in enumerate(routes):
        noise, alpha = posterior.noise_variance[tree], posterior.alpha[tree]
        for cell, places in runs_of_cells(cells):
            key = (tree, cell)
            own = _rows_of_cell(posterior, key, rows[places])
            inverse, of_mean = _uncertainty(posterior, key)
            sides = np.sqrt(noise) * loadings[tree, places]
            for start in range(0, len(places), BATCH):
                some = slice(start, start + BATCH)
                missing = kernel(own.rows[some], own.rows)
                missing -= own.coordinates[some] @ own.coordinates.T
                for target, side in enumerate(sides.T):
                    term = (own.white[some] * inverse[:, target]) @ own.white.T
                    term += of_mean
                    term += missing / alpha[target]
                    term *= side[some, None]
                    term *= side
                    found[target, places[some, None], places] += term
    return found


@dataclass(frozen=True, slots=True, eq=False)
class CellDraws:
    """x ↦ values (T·S) of S functions drawn for T targets, target by target; picklable."""

    posterior: LocalPosterior
    kernel: Kernel  # of the posterior
    n_samples: int
    seed: int

    @property
    def width(self) -> int:
        """T·S."""
        return len(self.posterior.inflation) * self.n_samples

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        posterior = self.posterior
        loadings = posterior.loadings(x)
        rows, routes = posterior.route(x)
        found = np.repeat(posterior.mean(x)[:, :, None], self.n_samples, axis=2)  # (n, T, S)
        for tree, cells in enumerate(routes):

            def add(run: tuple[int, Array], tree: int = tree) -> None:
                cell, places = run
                deviation = self._of_cell((tree, cell))
                for start in range(0, len(places), BATCH):
                    at = places[start : start + BATCH]
                    found[at] += loadings[tree, at, :, None] * deviation(rows[at])

            side_by_side(add, list(runs_of_cells(cells)))
        return found.reshape(len(x), -1)

    def _of_cell(self, key: tuple[int, int]) -> Callable[[Float64], Float64]:
        """Encoded rows (m, d) of a cell ↦ d_t (m, T, S), by numbers that are those of the cell."""
        posterior, features = self.posterior, self.posterior.solved.features
        rng, (tree, _) = np.random.default_rng([self.seed, *key]), key
        noise, alpha = posterior.noise_variance[tree], posterior.alpha[tree]
        inverse, of_mean = _uncertainty(posterior, key)
        fourier = FourierFeatures.sample(
            self.kernel, features.partition.n_inputs, RESIDUAL_COLUMNS, rng=rng, dtype="float64"
        )
        size = (len(noise), self.n_samples)
        of_missing = rng.standard_normal((RESIDUAL_COLUMNS, *size)) / np.sqrt(alpha)[:, None]
        constant = np.sqrt(of_mean) * rng.standard_normal(size)
        of_known = rng.standard_normal((len(inverse), *size)) * np.sqrt(inverse)[:, :, None]
        at_landmarks = np.empty((RESIDUAL_COLUMNS, 0))
        if len(inverse):
            values = np.ascontiguousarray(fourier(features.landmark_rows(*key)).T)
            at_landmarks = posterior.solved.trees[tree].coordinates(features, key, values)

        def deviation(rows: Float64) -> Float64:
            own = _rows_of_cell(posterior, key, rows)
            missing = _missing_columns(own, self.kernel, fourier(rows), at_landmarks)
            found = np.tensordot(missing, of_missing, 1) + np.tensordot(own.white, of_known, 1)
            return np.asarray((found + constant) * np.sqrt(noise)[:, None])

        return deviation


def draws(posterior: LocalPosterior, n_samples: int, seed: int) -> CellDraws:
    """Functions drawn from the posterior: the same ones, whichever rows they are asked at.

    Raises
    ------
    ValueError
        If the kernel has no frequencies that can be drawn.
    """
    kernel = posterior.solved.features.kernel
    if not (isinstance(kernel, Kernel) and kernel.stationary):
        raise ValueError(
            f"Functions of cells are drawn by frequencies of the kernel, and {kernel!r} is no "
            "function of x − x', so it has none. Draw values at a few thousand rows from "
            "predict(X, return_cov=True), or fit with features='whole'."
        )
    return CellDraws(posterior, kernel, n_samples, seed)


def _missing_columns(
    own: _RowsOfCell, kernel: Kernel, columns: Array, at_landmarks: Array
) -> Float64:
    """E (m, M) with EEᵀ about k(x, x') − zᵀz', and exact on its diagonal.

    Fourier columns φ(x) less what landmarks tell of them, φ(x) − (L⁻¹φ(U))ᵀz(x).
    """
    left = columns - own.coordinates @ at_landmarks.T
    told = np.vecdot(own.coordinates, own.coordinates)
    variance = np.maximum(self_kernel(kernel, own.rows) - told, 0)
    length = np.maximum(np.sqrt(np.vecdot(left, left)), np.finfo(float).tiny)
    return np.asarray(left * (np.sqrt(variance) / length)[:, None])


def _uncertainty(posterior: LocalPosterior, key: tuple[int, int]) -> tuple[Float64, float]:
    """Of a cell the diagonal of (G_c + αI)⁻¹ (R, T), and 1/Σw; 0 without an intercept."""
    tree, cell = key
    cells, alpha = posterior.solved.trees[tree], posterior.alpha[tree]
    k = cells.index[cell]
    if k < 0:
        return np.empty((0, len(alpha))), 0.0
    return cells.inverse(k, alpha), float(posterior.solved.fit_intercept) / float(cells.weight[k])


def _rows_of_cell(posterior: LocalPosterior, key: tuple[int, int], rows: Float64) -> _RowsOfCell:
    """Encoded rows (m, d) of one cell."""
    tree, cell = key
    cells, features = posterior.solved.trees[tree], posterior.solved.features
    k = cells.index[cell]
    if k < 0:
        return _RowsOfCell(rows, *np.empty((2, len(rows), 0)))
    values = np.empty((len(rows), features.n_components))
    places = features.rows_of_cells(tree, np.array([cell]), rows)
    features.kernel_values(tree, cell, places, values)
    coordinates = np.array(cells.coordinates(features, key, values))
    white = cells.whitened(k, coordinates - cells.centre[k])
    return _RowsOfCell(rows, coordinates, white)
