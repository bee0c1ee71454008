"""The mean of a Gaussian process on a grid of frequencies, and its error on held-out sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.grid import GridFeatures
from rff_stream.moments.grid import GridMoments, import_finufft
from rff_stream.systems.grid import (
    BLOCK,
    TOLERANCE,
    Elimination,
    GridSystem,
    conjugate_gradients,
    inner_product,
    toeplitz_product,
    toeplitz_spectrum,
)

FEWEST_ROWS = 64
"""Rows from which a product of axes is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class GridPosterior:
    """A Gaussian process on a grid of frequencies, given the data."""

    features: GridFeatures
    coef: Array  # (T, half shape) complex128, D u: amplitudes of e^{ij·θ}, in units of y
    trend: Float64  # (p, T): θ, for the columns [1, (x − c)/L]
    target_origin: Float64  # (T,)
    alpha: Float64  # (T,)
    noise_variance: Float64  # (T,)
    signal_variance: Float64  # (T,)
    steps: int  # of conjugate gradients
    residual: Float64  # (T,): ‖r‖/‖rhs‖ that was reached
    unresolved: float  # share of the kernel's variance at frequencies beyond the grid

    def mean(self, X: Array) -> Float64:
        """Posterior mean (n, T) at rows (n, d), by one type-2 transform."""
        angles = self.features.angles(X)
        values = evaluate(self.features, self.coef, angles)
        columns = np.column_stack([np.ones(len(X)), (angles / (2 * np.pi)).T])
        return np.asarray(
            values.T + columns[:, : len(self.trend)] @ self.trend + self.target_origin
        )


def grid_leaf_errors(moments: GridMoments, posterior: GridPosterior) -> Float64:
    """Σ w (y − f)² (T,) of rows that are known by their sums alone: a quadratic form.

    Σ w f² = cᴴTc + 2 θᵀCc + θᵀBθ of coefficients c and trend θ, by one product with T.
    """
    first, p = 1 + moments.features.n_inputs, len(posterior.trend)
    shift = posterior.target_origin - moments.row.target_origin
    grid = moments.features
    coef, theta = posterior.coef, np.zeros((first, len(shift)))
    theta[:p] = posterior.trend
    theta[0] += shift
    along = inner_product(grid, moments.trends[:, None], coef[None])  # (1 + d, T)
    border = moments.border
    square = inner_product(grid, coef, toeplitz_product(grid, toeplitz_spectrum(moments), coef))
    square = square + (theta * (2 * along + border[:first, :first] @ theta)).sum(axis=0)
    cross = inner_product(grid, moments.projections, coef) + (border[first:, :first] * theta.T).sum(
        axis=1
    )
    return np.asarray(np.maximum(np.diag(border)[first:] - 2 * cross + square, 0))


def evaluate(features: GridFeatures, coef: Array, angles: Float64) -> Float64:
    """Σ_j c_j e^{ij·θ} (s, n) of coefficients (s, half shape) at angles (d, n).

    Rows that are all combinations of values of each input, as in a cube, are products of small
    Fourier matrices; others are type-2 non-uniform transforms.
    """
    product = axes_of_product(angles)
    if product is not None:
        return _evaluate_product(features, coef, *product)
    finufft = import_finufft()
    sides = tuple(2 * m + 1 for m in features.modes)
    full = full_spectrum(features, coef)
    plan = finufft.Plan(2, sides, n_trans=len(coef), eps=1e-10, isign=1, nthreads=1, modeord=1)
    plan.setpts(*angles)
    return np.asarray(plan.execute(full).real.reshape(len(coef), -1))


def axes_of_product(columns: Float64) -> tuple[list[Float64], list[int]] | None:
    """Values of each column (d, n), and the axes from slowest to fastest, of rows of a product.

    Row i holds ``values[a][…]`` of the i-th combination, the last axis of ``order`` first to
    change. None where rows are no such product, or too few for it to matter.
    """
    n = columns.shape[1]
    if n < FEWEST_ROWS:
        return None
    changed = [np.flatnonzero(column != column[0]) for column in columns[:, : n // 2 + 1]]
    strides = [int(each[0]) if len(each) else n for each in changed]
    order = sorted(range(len(columns)), key=lambda a: -strides[a])
    values: list[Float64] = [np.empty(0)] * len(columns)
    outer = n
    for a in order:
        if outer % strides[a] or (strides[a] == outer and strides[a] != n):
            return None
        values[a] = columns[a, : outer : strides[a]]
        blocks = columns[a].reshape(n // outer, outer // strides[a], strides[a])
        if not (blocks == values[a][:, None]).all():
            return None
        outer = strides[a]
    return (values, order) if outer == 1 else None


def _evaluate_product(
    features: GridFeatures, coef: Array, values: list[Float64], order: list[int]
) -> Float64:
    """The sum one axis after the other; the last one, of the half shape, in real numbers."""
    *others, last = features.indices()
    found = coef
    for axis, (j, at) in enumerate(zip(others, values[:-1], strict=True)):
        wave = np.exp(1j * at[:, None] * j)
        found = np.moveaxis(np.tensordot(found, wave, ((1 + axis,), (1,))), -1, 1 + axis)
    phase = values[-1][:, None] * last
    twice = np.where(last > 0, 2.0, 1.0)
    half = np.concatenate([twice * np.cos(phase), -twice * np.sin(phase)], axis=1)  # (n_d, 2m+2)
    real = np.concatenate([found.real, found.imag], axis=-1) @ half.T
    return np.ascontiguousarray(real.transpose(0, *(1 + a for a in order)).reshape(len(coef), -1))


def full_spectrum(features: GridFeatures, coef: Array) -> Array:
    """All coefficients (s, 2m+1, …) of those in half shape."""
    m = features.modes[-1]
    lower = coef[..., :0:-1].conj()
    for axis in range(1, features.n_inputs):
        lower = np.roll(np.flip(lower, axis), 1, axis)
    full = np.concatenate([coef, lower], axis=-1)
    assert full.shape[-1] == 2 * m + 1
    return np.ascontiguousarray(full)


def solve_grid(
    system: GridSystem, alpha: Float64 | float, *, block: int = BLOCK, tolerance: float = TOLERANCE
) -> GridPosterior:
    """The penalised fit at α > 0 (one, or one for each target), one solve for each target.

    ``block`` real columns are eliminated exactly, in ``block``³/3 flops; ``tolerance`` is of the
    residual, relative to the right side. A step costs four real transforms of about Π 4m numbers.
    """
    targets = system.moments.row.n_targets
    alphas = np.broadcast_to(np.asarray(alpha, np.float64), (targets,))
    if not (np.isfinite(alphas).all() and (alphas > 0).all()):
        raise ValueError(f"alpha={alpha!r} but a fit on a grid has a finite alpha > 0.")
    solutions = np.zeros_like(system.right_sides)
    steps, residual = 0, np.zeros(targets)
    for value in np.unique(alphas):
        at = np.flatnonzero(alphas == value)
        elimination = Elimination(system, float(value), block)
        found = conjugate_gradients(elimination, system.right_sides[at], tolerance=tolerance)
        solutions[at], residual[at] = found.x, found.residual
        steps = max(steps, found.steps)
    objective = system.scatter - system.dot(system.right_sides, solutions)
    noise = np.maximum(objective, 0) / max(1, system.moments.n - system.n_trend)
    return GridPosterior(
        features=system.features,
        coef=system.weights * solutions,
        trend=system.trend_coefficients(solutions),
        target_origin=system.moments.row.target_origin,
        alpha=np.array(alphas),
        noise_variance=noise,
        signal_variance=noise / alphas,
        steps=steps,
        residual=residual,
        unresolved=system.unresolved,
    )
