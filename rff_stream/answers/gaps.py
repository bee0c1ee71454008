"""Is a model safe in gaps? Blocks of pilot rows are held out and compared with a linear trend.

Evidence judges a model where the rows are. With too few columns it may buy a closer fit there
with coefficients so large that predictions between the rows swing far outside the data. Held-out
rows at random do not show this, held-out blocks do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from rff_stream._array import Array, Float64

__all__ = ["FEWEST_ROWS", "MOST_ROWS", "block_of_rows", "gap_test"]

MOST_ROWS = 4096
"""Pilot rows that are looked at: Cholesky factors of at most this size."""

FEWEST_ROWS = 256
"""Rows from which blocks have neighbours."""

WORSE = {3: 1.5, 5: 1.25}
"""By how often rows are halved, 8 blocks or 32: errors over those of the better of mean and linear
trend that are neither taken for chance nor for what extrapolation costs any model."""

SMALL = 0.1
"""Share of the error of the mean below which an error is no swing, however well a line does."""

FOLDS = 8
"""Times that a model is fitted without an eighth of the blocks."""

STEP = 10**0.5
"""Ratio of the penalties that are tried."""


@dataclass(frozen=True, slots=True)
class GapTest:
    """Errors of one target in held-out blocks, of the size where they were worst beside a trend.

    Parameters
    ----------
    alpha : float
        The penalty that was asked for.
    error, trend_error : float
        Root mean squared error of the model at ``alpha``, and the smaller of those of the mean
        and of a linear trend, in units of y.
    least_alpha : float
        ``alpha`` where it is safe, else the smallest one whose model is no worse than the trend.
    least_error : float
        Error of the model at ``least_alpha``.
    """

    alpha: float
    error: float
    trend_error: float
    least_alpha: float
    least_error: float

    @property
    def is_safe(self) -> bool:
        """Whether the model at ``alpha`` is about as good as the trend, or better."""
        return self.least_alpha == self.alpha


def block_of_rows(x: Float64, levels: int, seed: int = 0) -> Array:
    """Blocks (n,) of rows (n, d): halves at the median along random directions, again and again."""
    rng, block = np.random.default_rng(seed), np.zeros(len(x), np.intp)
    for _ in range(levels):
        side = np.zeros(len(x), np.intp)
        for each in np.unique(block):
            rows = np.flatnonzero(block == each)
            along = x[rows] @ rng.standard_normal(x.shape[1])
            side[rows] = along > np.median(along)
        block = 2 * block + side
    return block


def gap_test(
    Z: Array,
    x: Array,
    y: Array,
    w: Array,
    prior: Array,
    alpha: Float64,
    weight: float,
    *,
    largest: float,
) -> tuple[GapTest, ...]:
    """Test a penalty of each target on blocks of rows that are left out of the fit.

    Parameters
    ----------
    Z : (m, R) array
        Feature rows.
    x : (m, d) array
        Their inputs, scaled so that a distance means the same along each.
    y, w : (m, T), (m,) arrays
    prior : (R,) array
        s.
    alpha : (T,) float64
        Penalties, in units of w.
    weight : float
        Σw of all rows of the fit. A search for a larger penalty weighs the m rows as so many:
        what explodes is what the columns cannot represent, and that adds up.
    largest : float
        No larger penalty is tried, such as the largest eigenvalue of the fit.

    Returns
    -------
    tuple of GapTest
        One for each target.

    Notes
    -----
    A Gram matrix of min(m, R)² and 16 Cholesky factors for each target: about 3 CPU s at R=2048.
    Only where a penalty fails are others tried.
    """
    blocks = _Blocks.of(np.asarray(Z, np.float64) * np.sqrt(prior), np.asarray(y, np.float64), w)
    tests = [GapTest(float(asked), np.nan, np.nan, float(asked), np.nan) for asked in alpha]
    for levels, worse in WORSE.items():
        block = block_of_rows(np.asarray(x, np.float64), levels) % FOLDS
        mean_errors = _trend_error(np.empty((len(x), 0)), y, w, block)
        trend_errors = np.minimum(mean_errors, _trend_error(x, y, w, block))
        for t, (trend_error, mean_error) in enumerate(zip(trend_errors, mean_errors, strict=True)):
            asked, before = tests[t].least_alpha, tests[t]
            error = blocks.error(block, t, asked, 1.0)
            chosen, least = asked, error
            if error > max(worse * trend_error, SMALL * mean_error):
                bound = max(float(trend_error), SMALL * float(mean_error))
                chosen, least = _search(blocks, block, t, asked, weight, bound, largest)
            if before.is_safe or chosen > asked:
                tests[t] = GapTest(before.alpha, error, float(trend_error), chosen, least)
    return tuple(tests)


def _search(
    blocks: _Blocks,
    block: Array,
    target: int,
    asked: float,
    weight: float,
    bound: float,
    largest: float,
) -> tuple[float, float]:
    """The smallest larger penalty whose error is at most ``bound``, or the best; its error."""
    scale, found = weight / blocks.weight, (float(asked), np.inf)
    alpha = max(asked, 1e-12 * largest)
    while alpha < largest:
        alpha *= STEP
        error = blocks.error(block, target, alpha, scale)
        if error < found[1]:
            found = (float(alpha), error)
        if error <= bound:
            break
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Rows times √s, their targets and weights, and the smaller of their two Gram matrices."""

    rows: Float64  # (m, R)
    y: Float64  # (m, T)
    w: Float64  # (m,)
    gram: Float64  # (R, R) Σ w z zᵀ, or (m, m) of inner products where m ≤ R

    @classmethod
    def of(cls, rows: Float64, y: Float64, w: Array) -> _Blocks:
        w, many = np.asarray(w, np.float64), len(rows) > rows.shape[1]
        return cls(rows, y, w, rows.T @ (w[:, None] * rows) if many else rows @ rows.T)

    @property
    def weight(self) -> float:
        """Σw of the rows that a fold is fitted on."""
        return float(self.w.sum()) * (1 - 1 / FOLDS)

    def error(self, block: Array, target: int, alpha: float, scale: float) -> float:
        """Root mean squared error over blocks left out, with weights times ``scale``."""
        predict = self._by_columns if len(self.gram) != len(self.rows) else self._by_rows
        missed = 0.0
        for fold in range(FOLDS):
            out = block == fold
            y, w = self.y[:, target], self.w[~out]
            mean = float(np.average(y[~out], weights=w))
            fitted = predict(out, y[~out] - mean, alpha / scale)
            missed += float(self.w[out] @ (y[out] - mean - fitted) ** 2)
        return float(np.sqrt(missed / self.w.sum()))

    def _by_columns(self, out: Array, y: Float64, alpha: float) -> Float64:
        """Predictions at the rows left out, from the R × R system; infinite without a factor."""
        w, kept, left = self.w[~out], self.rows[~out], self.rows[out]
        mean = np.average(kept, axis=0, weights=w)
        system = self.gram - left.T @ (self.w[out, None] * left) - w.sum() * np.outer(mean, mean)
        coef = _solve(system, kept.T @ (w * y) - mean * float(w @ y), alpha)
        return np.full(len(left), np.inf) if coef is None else np.asarray((left - mean) @ coef)

    def _by_rows(self, out: Array, y: Float64, alpha: float) -> Float64:
        """The same from the n × n system of rows kept."""
        root, share = np.sqrt(self.w[~out]), self.w[~out] / self.w[~out].sum()
        inner = self.gram[np.ix_(~out, ~out)]
        with_mean = inner @ share  # ⟨z, z̄⟩
        centred = inner - with_mean - with_mean[:, None] + float(share @ with_mean)
        dual = _solve(root[:, None] * centred * root, root * y, alpha)
        if dual is None:
            return np.full(out.sum(), np.inf)
        coef = root * dual - float(root @ dual) * share
        return np.asarray(self.gram[np.ix_(out, ~out)] @ coef - float(with_mean @ coef))


def _solve(matrix: Float64, rhs: Float64, alpha: float) -> Float64 | None:
    """(matrix + αI)⁻¹ rhs by Cholesky, α not below rounding; None where that fails."""
    rounding = 8 * np.finfo(np.float64).eps * float(np.trace(matrix))
    matrix[np.diag_indices(len(matrix))] += max(alpha, rounding)
    factor, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    if info:
        return None
    found, _ = lapack.dpotrs(factor, rhs, lower=1)
    return np.asarray(found)


def _trend_error(columns: Array, y: Array, w: Array, block: Array) -> Float64:
    """Root mean squared error (T,) of least squares on [1, columns] over blocks left out."""
    design, missed = np.column_stack([np.ones(len(y)), columns]), np.zeros(y.shape[1])
    for fold in range(FOLDS):
        out, root = block == fold, np.sqrt(w[block != fold])[:, None]
        coef, *_ = np.linalg.lstsq(root * design[~out], root * y[~out], rcond=None)
        missed += w[out] @ (y[out] - design[out] @ coef) ** 2
    return np.asarray(np.sqrt(missed / w.sum()))
