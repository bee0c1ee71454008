"""Errors at left-out rows of cells: what a kernel, a metric or a size is worth on new rows.

Every candidate sees the same rows, cut into cells of its own, with the columns that its cells will
have. α is the one of highest evidence in some of the cells. With residuals r and leverages h of a
cell, errors are r/(1 − h). Rows with equal inputs are one row: they leave together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import linalg
from scipy.linalg import blas

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.features.dense_triangle import inverse_factor
from rff_stream.features.random_trees import Partition
from rff_stream.kernels import ExactKernel, RadialKernel
from rff_stream.length_scales.window_evidence import (
    MetricFit,
    RowWindow,
    rows_along,
    squared_distances,
)
from rff_stream.moments.copies import equal_rows

NUGGET = 1e-8
"""ε of the landmarks, in units of k(x, x)."""

LEAST_REST = 1e-6
"""Smallest 1 − h, with h a row's leverage: a smaller value is rounding error."""

COLUMNS, ROWS_A_COLUMN = 256, 1.5
"""Of a cell, and rows of data for each of them, where neither is said."""

CELLS_OF_ALPHA = 6
"""Cells whose evidence gives α."""


@dataclass(frozen=True, slots=True)
class CellShape:
    """Of the cells that a candidate is tried in."""

    n_rows: int  # rows of data
    n_components: int  # R landmarks; the process itself where there are no more rows
    n_trees: int = 0  # J; 0 for as many as were planned

    @classmethod
    def for_rows(cls, n_rows: int) -> CellShape:
        """Of the cells that so many rows are cut into, where nothing is said."""
        halvings = round(np.log2(max(n_rows / (ROWS_A_COLUMN * COLUMNS), 1.0)))
        return cls(max(n_rows >> halvings, 1), COLUMNS)


def merge_inputs(rows: RowWindow) -> RowWindow:
    """One row in place of all with equal inputs: the mean of y, the sum of weights."""
    first, inverse = equal_rows(rows.x)
    if len(first) == len(rows.x):
        return rows
    counts = np.bincount(inverse)
    w = np.bincount(inverse, rows.w)
    y = np.stack([np.bincount(inverse, rows.w * column) / w for column in rows.y.T], axis=1)
    order = np.argsort(first)
    return RowWindow(rows.x[first[order]], y[order], (w / counts)[order])


def left_out_errors(
    fit: MetricFit, regions: Sequence[RowWindow], shape: CellShape, *, seed: int
) -> Float64:
    """Errors (m, T) of all rows of the regions in cells of a tree, each under the fit without it.

    NaN where a kernel has no Cholesky factor. 2mR² + R³ multiply-adds for a cell of m rows.
    """
    rng = np.random.default_rng(seed)
    cells = [cut(each, fit.matrix, shape, rng) for each in regions]
    flat = [cell for region in cells for cell in region]
    orders = [rng.permutation(len(cell.u)) for cell in flat]
    some, r = rng.permutation(len(flat))[:CELLS_OF_ALPHA].tolist(), shape.n_components
    try:
        known = {i: _columns(fit.kernel, flat[i], orders[i], r) for i in some}
        alpha = _alpha([(flat[i], known[i]) for i in some])
        errors = []
        for i, (cell, order) in enumerate(zip(flat, orders, strict=True)):
            Z = known.pop(i) if i in known else _columns(fit.kernel, cell, order, r)
            errors.append(_errors_in(cell, Z, alpha))
    except linalg.LinAlgError:
        size = sum(len(each.x) for each in regions), regions[0].y.shape[1]
        return np.full(size, np.nan)
    return _in_order(cells, errors)


@dataclass(frozen=True, slots=True, eq=False)
class CellRows:
    """Rows of a region that share a cell."""

    at: Array  # places in the region
    u: Float64  # (m, k): xA, about its mean
    y: Float64  # (m, T)
    w: Float64  # (m,)


def cut(region: RowWindow, matrix: Float64, shape: CellShape, rng: Generator) -> list[CellRows]:
    """The cells of a random tree over the rows of a region, in a metric."""
    u = rows_along(region.x, matrix)
    n_cells = 1 << max(round(np.log2(len(u) / shape.n_rows)), 0)
    places = np.zeros(len(u), int)
    if n_cells > 1:
        places = Partition.plant(u, n_cells=n_cells, n_trees=1, rng=rng).route(u)[0]
    order = np.argsort(places, kind="stable")
    parts = np.split(order, np.searchsorted(places[order], np.arange(1, n_cells)))
    return [
        CellRows(at, u[at] - u[at].mean(axis=0), region.y[at], region.w[at])
        for at in parts
        if len(at)
    ]


def _in_order(cells: list[list[CellRows]], errors: list[Float64]) -> Float64:
    """Errors (m, T) of the cells' rows in the order of the regions' rows."""
    found, source = [], iter(errors)
    for region in cells:
        size = sum(len(cell.at) for cell in region)
        own = np.empty((size, region[0].y.shape[1]))
        for cell in region:
            own[cell.at] = next(source)
        found.append(own)
    return np.concatenate(found)


def kernel_values(kernel: ExactKernel, u: Float64, v: Float64 | None = None) -> Float64:
    """k(uᵢ, vⱼ) (n, m); v is u where nothing is said."""
    if isinstance(kernel, RadialKernel):
        return kernel.of_squared_distance(squared_distances(u, v))
    return kernel(u, u if v is None else v)


def _columns(kernel: ExactKernel, cell: CellRows, order: Array, r: int) -> Float64:
    """√w (z − z̄) (R, m) with landmarks at the first R rows in ``order``."""
    chosen = order[:r]
    values = np.array(kernel_values(kernel, cell.u[chosen], cell.u))
    own = np.asfortranarray(values[:, chosen])
    own[np.diag_indices_from(own)] = (1 + NUGGET) * kernel.variance
    Z = blas.dtrmm(1.0, _inverse_factor(own), values, lower=1)
    Z -= (Z @ (cell.w / cell.w.sum()))[:, None]
    Z *= np.sqrt(cell.w)
    return np.asarray(Z)


def _inverse_factor(matrix: Float64) -> Float64:
    """L⁻¹ of a matrix LLᵀ."""
    found = inverse_factor(matrix)
    if found is None:
        raise linalg.LinAlgError
    return found


def _targets(cell: CellRows) -> Float64:
    return np.sqrt(cell.w)[:, None] * (cell.y - np.average(cell.y, axis=0, weights=cell.w))


def _alpha(cells: Sequence[tuple[CellRows, Float64]]) -> float:
    """α of highest evidence in some cells together, with their columns."""
    values, squares, border = [], [], 0.0
    scatter = np.zeros(cells[0][0].y.shape[1])
    for cell, Z in cells:
        y = _targets(cell)
        found, vectors = linalg.eigh(Z @ Z.T, check_finite=False, driver="evd")
        values.append(np.maximum(found, 0))
        squares.append((vectors.T @ (Z @ y)) ** 2)
        scatter += (y**2).sum(axis=0)
        border += float(np.log(cell.w.sum()) - np.log(cell.w).sum())
    varies = scatter > 0
    if not np.any(varies):
        return 1.0
    freedom = sum(len(cell.u) - 1 for cell, _ in cells)
    profile = Profile(
        eigenvalues=np.concatenate(values)[:, None],
        squared_rhs=np.concatenate(squares)[:, varies],
        scatter=scatter[varies],
        least=scatter[varies] * NUGGET**2,
        freedom=freedom,
        constant=freedom * float(np.log(2 * np.pi)) + border,
    )
    largest = float(profile.eigenvalues.max())
    return float(best_alpha(profile, largest, NUGGET * largest, shared=True)[0])


def _errors_in(cell: CellRows, Z: Float64, alpha: float) -> Float64:
    """r/(1 − h) (m, T), in units of y, with columns Z (R, m)."""
    y, normal = _targets(cell), Z @ Z.T
    normal[np.diag_indices_from(normal)] += alpha
    B = blas.dtrmm(1.0, _inverse_factor(normal), Z, lower=1)
    residual = y - B.T @ (B @ y)
    leverage = np.einsum("rm,rm->m", B, B) + cell.w / cell.w.sum()
    rest = np.maximum(1 - leverage, LEAST_REST) * np.sqrt(cell.w)
    return np.asarray(residual / rest[:, None])
