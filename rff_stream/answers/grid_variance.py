"""Uncertainty on a grid of frequencies as functions of rows: solves for a few, draws for maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.grid import GridPosterior, evaluate
from rff_stream.features.grid import GridFeatures
from rff_stream.systems.grid import (
    BLOCK,
    Elimination,
    GridSystem,
    conjugate_gradients,
    inverse_root,
)

SOLVED_ROWS = 16
"""Rows at a time that a variance is solved for: more are cheaper from draws."""

MOST_STEPS = 80
"""Of Lanczos; they stop where the draw changes by less than 1e-4."""

ROWS_AT_ONCE = 1 << 15
"""Rows that all draws are evaluated at together."""


def posterior_variance(
    system: GridSystem,
    alpha: float,
    noise_variance: float,
    X: Array,
    *,
    block: int = BLOCK,
    tolerance: float = 1e-5,
) -> Float64:
    """Posterior variance (n,) of the function at a few rows (n, d): one solve for each.

    var f(x) = σₙ² [φᴴ A⁻¹ φ + (t − …)ᵀ B⁻¹ (t − …)], with φ = D e^{−ij·θ(x)} less its part that
    the trend explains, plus what the grid does not resolve.
    """
    elimination = Elimination(system, alpha, block)
    found = np.empty(len(X))
    for lo in range(0, len(X), SOLVED_ROWS):
        part = slice(lo, lo + SOLVED_ROWS)
        phi, trend = _functionals(system, X[part])
        solved = conjugate_gradients(elimination, phi, tolerance=tolerance).x
        found[part] = system.dot(phi, solved) + (trend * system.project(trend)).sum(axis=0)
    return noise_variance * (found + system.unresolved * system.kernel.variance / alpha)


def posterior_covariance(
    system: GridSystem, alpha: float, noise_variance: float, X: Array
) -> Float64:
    """Posterior covariance (n, n) of the function at all pairs of a few rows (n, d).

    Its diagonal is :func:`posterior_variance`. What the grid does not resolve is added there
    alone: the exact process has it between near rows, too. NaN where a row has a NaN. n solves,
    16·n bytes a frequency.
    """
    there = np.isfinite(X).all(axis=1)
    found = np.full((len(X), len(X)), np.nan)
    elimination = Elimination(system, alpha, BLOCK)
    phi, trend = _functionals(system, X[there])
    among = trend.T @ system.project(trend)
    for i, each in enumerate(phi):
        solved = conjugate_gradients(elimination, each[None], tolerance=1e-8).x
        among[i] += system.dot(phi, solved)
    unresolved = system.unresolved * system.kernel.variance / alpha
    found[np.ix_(there, there)] = (among + among.T) / 2 + unresolved * np.eye(len(phi))
    return noise_variance * found


def _functionals(system: GridSystem, X: Array) -> tuple[Array, Float64]:
    """φ (n, half shape) of rows (n, d), less what the trend explains; the trend there (p, n)."""
    grid = system.features
    angles = grid.angles(X)
    index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
    trend = np.vstack([np.ones(len(X)), angles / (2 * np.pi)])[: system.n_trend]
    phi = system.weights * np.exp(-1j * np.tensordot(angles.T, index, ((1,), (-1,))))
    if system.n_trend:
        phi = phi - np.tensordot(system.project(trend).T, system.coupling, 1)
    return phi, trend


def draw_posterior(
    system: GridSystem,
    alpha: float,
    noise_variance: float,
    *,
    draws: int,
    rng: np.random.Generator,
    block: int = BLOCK,
) -> Array:
    """Random deviations from the posterior mean, as coefficients D u (draws, half shape).

    σₙ A^{−½} ε, as in :func:`~rff_stream.systems.grid.inverse_root`. The trend of each
    follows by :meth:`GridSystem.trend_deviation`. For maps: all points of a draw cost one
    transform.
    """
    elimination = Elimination(system, alpha, block)
    roots = [inverse_root(elimination, system.noise((1,), rng), MOST_STEPS) for _ in range(draws)]
    return np.asarray(np.sqrt(noise_variance) * np.concatenate(roots))


@dataclass(frozen=True, slots=True, eq=False)
class Deviations:
    """Functions drawn from the posterior less its mean, S for each target."""

    features: GridFeatures
    coef: Array  # (T, S, half shape) complex128
    trend: Float64  # (T, p, S)

    def __call__(self, x: Array) -> Float64:
        """Values (T, S, n) at rows (n, d)."""
        angles = self.features.angles(x)
        targets, size = self.coef.shape[:2]
        values = evaluate(self.features, self.coef.reshape(-1, *self.coef.shape[2:]), angles)
        columns = np.column_stack([np.ones(len(x)), (angles / (2 * np.pi)).T])
        trend = np.einsum("np,tps->tsn", columns[:, : self.trend.shape[1]], self.trend)
        return np.asarray(values.reshape(targets, size, -1) + trend)


def draw_deviations(
    system: GridSystem, posterior: GridPosterior, *, draws: int, seed: int
) -> Deviations:
    """Draws of every target; targets of one α share them but for their scale."""
    rng = np.random.default_rng(seed)
    by_alpha = {}
    for alpha in np.unique(posterior.alpha).tolist():
        u = draw_posterior(system, alpha, 1.0, draws=draws, rng=rng)
        by_alpha[alpha] = system.weights * u, system.trend_deviation(u, 1.0, rng)
    scale = np.sqrt(posterior.noise_variance)
    alphas = posterior.alpha.tolist()
    return Deviations(
        posterior.features,
        np.stack([by_alpha[a][0] * s for a, s in zip(alphas, scale, strict=True)]),
        np.stack([by_alpha[a][1] * s for a, s in zip(alphas, scale, strict=True)]),
    )


def steady_variance(rough: Float64, draws: int) -> Float64:
    """Variances (n, T) from those of a few draws, with less chance in them.

    log s² of S draws has variance 2/S about log σ² − 1/S. Each is drawn to the mean over rows by
    the share of the spread that this explains (James and Stein 1961).
    """
    logs = np.log(np.maximum(rough, 1e-300)) + 1 / draws
    centre, spread = logs.mean(axis=0), logs.var(axis=0)
    own = np.maximum(1 - 2 / draws / np.maximum(spread, 1e-300), 0.0)
    return np.asarray(np.exp(centre + own * (logs - centre)))


def of_finite(function: Callable[[Array], Float64], x: Array, width: int) -> Float64:
    """Values (n, width) of a function of rows; NaN where an input is."""
    there = np.isfinite(x).all(axis=1)
    if there.all():
        return function(x)
    found = np.full((len(x), width), np.nan)
    found[there] = function(x[there])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class GridStd:
    """x ↦ standard deviation of f (or of y, with noise).

    Up to 16 rows at a time are solved for; for more it is the spread of S draws, with a relative
    standard error of 1/√(2S).
    """

    system: GridSystem
    posterior: GridPosterior
    deviations: Deviations
    noise: bool

    @property
    def width(self) -> int:
        """T."""
        return len(self.posterior.alpha)

    def __call__(self, x: Array) -> Float64:
        """Standard deviations (n, T) of rows (n, d)."""
        variance = of_finite(
            self._variance_by_solves if len(x) <= SOLVED_ROWS else self._variance_by_draws,
            x,
            self.width,
        )
        if self.noise:
            variance = variance + self.posterior.noise_variance
        return np.sqrt(variance)

    def _variance_by_solves(self, x: Array) -> Float64:
        pairs = zip(self.posterior.alpha, self.posterior.noise_variance, strict=True)
        found = [posterior_variance(self.system, float(a), float(s), x) for a, s in pairs]
        return np.stack(found, axis=1)

    def _variance_by_draws(self, x: Array) -> Float64:
        found = np.empty((len(x), self.width))
        for lo in range(0, len(x), ROWS_AT_ONCE):
            part = slice(lo, lo + ROWS_AT_ONCE)
            found[part] = (self.deviations(x[part]) ** 2).mean(axis=1).T
        return found + self.posterior.unresolved * self.posterior.signal_variance


@dataclass(frozen=True, slots=True, eq=False)
class GridDraws:
    """x ↦ values of S functions drawn from the posterior, target by target."""

    posterior: GridPosterior
    deviations: Deviations

    @property
    def width(self) -> int:
        """T·S."""
        return int(np.prod(self.deviations.coef.shape[:2]))

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        return of_finite(self._values, x, self.width)

    def _values(self, x: Array) -> Float64:
        values = self.posterior.mean(x).T[:, None] + self.deviations(x)
        return values.reshape(self.width, -1).T
