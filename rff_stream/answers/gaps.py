"""Is a model safe in gaps? Blocks of pilot rows are held out and compared with a linear trend.

Evidence judges a model where the rows are. With too few columns it may buy a closer fit there
with coefficients so large that predictions between the rows swing far outside the data. Held-out
rows at random do not show this, held-out blocks do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from rff_stream._array import Array, Float64
from rff_stream.systems.system import mirror_lower

MOST_ROWS = 4096
"""Pilot rows that are looked at: Cholesky factors of at most this size."""

FEWEST_ROWS = 256
"""Rows from which blocks have neighbours."""


@dataclass(frozen=True, slots=True)
class Size:
    """Sets of blocks of one size, and how much worse than a trend a model may be there.

    Parameters
    ----------
    halvings : int
        Times that rows are halved.
    partitions : tuple of (int, bool)
        Seed of each set, and whether rows are cut at gaps: clusters are then held out whole.
        Errors in single sets differ by a factor of 2 and more; their median does not.
    worse : float
        Median error over that of the better of mean and linear trend from which a larger penalty
        is looked for.
    """

    halvings: int
    partitions: tuple[tuple[int, bool], ...]
    worse: float


SIZES = (
    Size(5, ((0, False), (1, False), (0, True), (1, True), (2, True)), 1.4),
    Size(4, ((0, True), (1, True), (2, True)), 6.0),
)
"""Blocks of a sample are harder than gaps of the same size in all rows, which lie closer to their
edges: of ten sets of data two models up to 1.4 were worse than a line in gaps of a 32nd of the
rows, by 8 and 44 %; good ones had up to 2 there, and up to 6 in gaps of a 16th."""

NO_BETTER = 1.05
"""Median ratio at the penalty taken from which gaps are warned of."""

UNEVEN, WORST, WORST_RAISED = 2.0, 5.0, 1.5
"""The same of the worst set of all: where the median is above 1, elsewhere, and where a larger
penalty was taken. Of 38 fits all 8 that were worse than a line were warned of, and of the 30 others
10; 19 of 31 by a rule that warned of every larger penalty."""

DEAR = 1.25
"""Ratio of errors at single rows from which a larger penalty is warned of."""

NEARLY, ENOUGH = 1.03, 0.7
"""Times the least ratio, and a ratio, that serve as well: a smaller penalty is better near the
data."""

PATIENCE = 4
"""Penalties that are tried beyond the best one."""

Pair = tuple[float, float]
"""Errors of a model and of a trend."""

TRIES = 8
"""Directions that are looked at for a gap."""

EDGE = 0.25
"""Share of the rows on either side of a gap."""

SMALL = 0.1
"""Share of the error of the mean below which an error is no swing, however well a line does."""

FOLDS = 8
"""Times that a model is fitted without an eighth of the blocks."""

SAFE_SINGLE = 32
"""Penalty over what float32 rounds of the matrix of rows from which its factor serves: there errors
of blocks differed by less than .5 % in one input, .05 % in 2 to 8; at a quarter of it by 1 %."""

FEW_OF_GRAM = 32
"""Rows from which the size of a Gram matrix is estimated, to a factor below 2."""

PRODUCT_ROWS = 128
"""Rows of a matrix that are turned into float64 at a time."""

STEP = 10**0.5
"""Ratio of the penalties that are tried."""


@dataclass(frozen=True, slots=True)
class GapTest:
    """Errors of one target in held-out blocks: of the middle one of several sets of blocks.

    Parameters
    ----------
    alpha : float
        The penalty that was asked for.
    error, trend_error : float
        Root mean squared error of the model at ``alpha``, and the smaller of those of the mean
        and of a linear trend, in units of y; NaN where rows cannot be parted.
    least_alpha : float
        ``alpha`` where it is safe, else the smallest one whose model is no worse than the trend,
        or the one that is best.
    least_error, least_trend_error : float
        Both errors at ``least_alpha``, in the set that is in the middle there. The latter counts
        as a tenth of the error of the mean where a line is still better.
    worst : (float, float)
        Both errors at ``least_alpha`` in the set where the model is worst beside the trend.
    near : (float, float)
        Errors of the model at rows that are left out one by one, at ``least_alpha`` and at
        ``alpha``, where they differ.
    """

    alpha: float
    error: float
    trend_error: float
    least_alpha: float
    least_error: float
    least_trend_error: float
    worst: Pair = (0.0, 1.0)
    near: Pair = (0.0, 1.0)

    @property
    def is_safe(self) -> bool:
        """Whether the model at ``alpha`` does not swing."""
        return self.least_alpha == self.alpha

    @property
    def is_better(self) -> bool:
        """Whether the model at ``least_alpha`` is no worse than the trend, as far as this shows."""
        middle = _ratio((self.least_error, self.least_trend_error))
        return not (middle > NO_BETTER or (middle > 1 and _ratio(self.worst) > UNEVEN))

    @property
    def is_even(self) -> bool:
        """Whether it is about as good in every set of blocks."""
        return _ratio(self.worst) <= (WORST if self.is_safe else WORST_RAISED)

    @property
    def is_cheap(self) -> bool:
        """Whether ``least_alpha`` costs little near the data."""
        return _ratio(self.near) <= DEAR


def block_of_rows(x: Float64, levels: int, seed: int = 0, *, at_gaps: bool = False) -> Array:
    """Blocks (n,) of rows (n, d): halves along random directions, again and again.

    Parameters
    ----------
    x : (n, d) float64
    levels : int
        Of halves: 2^levels blocks.
    seed : int
    at_gaps : bool
        Cut at the widest gap of the middle half of the rows, of 8 directions, in place of the
        median of one: clusters stay whole.
    """
    rng, block = np.random.default_rng(seed), np.zeros(len(x), np.intp)
    for _ in range(levels):
        side = np.zeros(len(x), np.intp)
        for each in np.unique(block):
            rows = np.flatnonzero(block == each)
            if at_gaps:
                side[rows] = _beyond_gap(x[rows], rng)
            else:
                along = x[rows] @ rng.standard_normal(x.shape[1])
                side[rows] = along > np.median(along)
        block = 2 * block + side
    return block


def _beyond_gap(x: Float64, rng: np.random.Generator) -> Array:
    """Which rows (n,) lie beyond the widest gap; of equal gaps, the one next to the median."""
    widest, cut = 0.0, np.zeros(len(x), bool)
    low, high = int(EDGE * len(x)), int(np.ceil((1 - EDGE) * len(x)))
    towards = 1 - 0.1 * np.abs(np.linspace(-1, 1, max(high - low - 1, 0)))
    for _ in range(TRIES):
        along = x @ rng.standard_normal(x.shape[1])
        middle = np.sort(along)[low:high]
        if len(middle) < 2 or not middle[-1] > middle[0]:
            continue
        gaps = np.diff(middle) / (middle[-1] - middle[0]) * towards
        at = int(np.argmax(gaps))
        if gaps[at] > widest:
            widest, cut = gaps[at], along > (middle[at] + middle[at + 1]) / 2
    return cut


def trend_share(x: Float64, y: Float64, w: Float64) -> Float64:
    """Error of a linear trend over that of the mean (T,), at most 1, in blocks held out."""
    sets = _held_blocks(SIZES[0], x, y, w)
    if not sets:
        return np.ones(y.shape[1])
    tiny = float(np.finfo(float).tiny)
    shares = [each.trend_error / np.maximum(each.mean_error, tiny) for each in sets]
    return np.asarray(np.median(shares, axis=0))


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
    kernel: Float64 | None = None,
) -> tuple[GapTest, ...]:
    """Test a penalty of each target on blocks of rows that are held out of the fit.

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
        Σw of all rows of the fit. The m rows count as so many: what explodes is what the columns
        cannot represent, and that adds up.
    largest : float
        No larger penalty is tried, such as the largest eigenvalue of the fit; 0 for none.
    kernel : (m, m) float64, optional
        BBᵀ of the centred rows B = √(w s)(z − z̄), where it is known; Z is then not looked at.

    Returns
    -------
    tuple of GapTest
        One for each target.

    Notes
    -----
    A Gram matrix of min(m, R)² and one inverse of it for each target, from which the errors of
    all blocks follow: about .3 CPU s for 2,000 rows. Only where a penalty fails are others tried.
    The matrix of rows of float32 is of float32, too, where the penalty is ``SAFE_SINGLE`` times
    what that rounds.

    References
    ----------
    Dubrule 1983 (cross-validation of kriging without fitting again); Ginsbourger & Schärer 2021
    (blocks).
    """
    x, y, w = (np.asarray(each, np.float64) for each in (x, y, w))
    scale = weight / (float(w.sum()) * (1 - 1 / FOLDS))
    least = float(np.min(alpha)) / scale
    if kernel is None:
        blocks = _Blocks.of(Z, y, w, prior, least)
    else:
        blocks = _Blocks.of_kernel(kernel, y, w, least)
    sizes = [(size, _held_blocks(size, x, y, w)) for size in SIZES]
    tests = []
    for t, asked in enumerate(map(float, alpha)):
        test = GapTest(asked, np.nan, np.nan, asked, np.nan, np.nan)
        fit_at = functools.lru_cache(maxsize=1)(partial(_fit_at, blocks, t, scale))
        for size, sets in sizes:
            target = _Target(fit_at, sets, t)
            test = target.tested(test, size, largest) if sets else test
        if not test.is_safe:
            near, given = (fit_at(a).error_near() for a in (test.least_alpha, asked))
            test = replace(test, near=(near, given))
        tests.append(test)
    return tuple(tests)


def _fit_at(blocks: _Blocks, target: int, scale: float, alpha: float) -> _Fit:
    """The fit of a target at a penalty of all rows, ``scale`` times that of these."""
    return blocks.fit(target, alpha / scale)


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """One target with sets of blocks of one size."""

    fit_at: Callable[[float], _Fit]
    sets: list[_HeldBlocks]
    number: int

    def pairs(self, alpha: float) -> list[tuple[float, float]]:
        """Errors of the model and of the trend in each set, the best ratio first."""
        fit = self.fit_at(alpha)
        found = [(fit.error(each.fold), each.bound(self.number)) for each in self.sets]
        return sorted(found, key=_ratio)

    def tested(self, test: GapTest, size: Size, largest: float) -> GapTest:
        """The test with errors of this size where it is the first, or fails where others passed."""
        pairs = self.pairs(test.least_alpha)
        first, worst = pairs[len(pairs) // 2], max(pairs[-1], test.worst, key=_ratio)
        if _ratio(first) <= size.worse:
            if np.isnan(test.error):
                return GapTest(test.alpha, *first, test.least_alpha, *first, worst)
            return replace(test, worst=worst)
        least, best, worst = self.least_risk(test.least_alpha, largest)
        before = first if test.is_safe else (test.error, test.trend_error)
        return GapTest(test.alpha, *before, least, *best, worst)

    def least_risk(self, alpha: float, largest: float) -> tuple[float, Pair, Pair]:
        """The smallest larger penalty of nearly the least median ratio; its median and worst."""
        tried = []
        alpha = max(alpha, 1e-12 * largest)
        while alpha < largest:
            alpha *= STEP
            pairs = self.pairs(alpha)
            tried.append((alpha, pairs[len(pairs) // 2], pairs[-1]))
            ratios = [_ratio(median) for _, median, _ in tried]
            if min(ratios) <= 1 and len(ratios) - np.argmin(ratios) > PATIENCE:
                break
        if not tried:
            return alpha, (np.inf, 1.0), (np.inf, 1.0)
        limit = max(NEARLY * min(_ratio(median) for _, median, _ in tried), ENOUGH)
        return next(each for each in tried if _ratio(each[1]) <= limit)


def _ratio(pair: Pair) -> float:
    """A model's error over a trend's."""
    return pair[0] / max(pair[1], float(np.finfo(float).tiny))


def _held_blocks(size: Size, x: Float64, y: Float64, w: Float64) -> list[_HeldBlocks]:
    """The sets of blocks whose folds are parts of the rows."""
    cuts = [block_of_rows(x, size.halvings, k, at_gaps=gaps) for k, gaps in size.partitions]
    return [_HeldBlocks.of(block, x, y, w) for block in cuts if _are_parts(block)]


def _are_parts(block: Array) -> bool:
    """Whether no fold holds most of the rows, as happens where inputs have few distinct values."""
    return bool(np.bincount(block % FOLDS).max() <= len(block) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class _HeldBlocks:
    """Folds (m,) of whole blocks; errors (T,) of the mean, and of the better of mean and line."""

    fold: Array
    mean_error: Float64
    trend_error: Float64

    @classmethod
    def of(cls, block: Array, x: Array, y: Array, w: Array) -> _HeldBlocks:
        fold = block % FOLDS
        mean = _trend_error(np.empty((len(x), 0)), y, w, fold)
        return cls(fold, mean, np.minimum(mean, _trend_error(x, y, w, fold)))

    def bound(self, target: int) -> float:
        """An error that no model needs to be below: the trend's, or a tenth of the mean's."""
        return max(float(self.trend_error[target]), SMALL * float(self.mean_error[target]))


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Rows, centred and times √(w s), and what a fit without some of them is computed from.

    With Ỹ = √w y, u = √w and A = BBᵀ + αI the residuals of a fit to all rows are αPỸ, where
    P = A⁻¹ − A⁻¹u(A⁻¹u)ᵀ/(uᵀA⁻¹u) takes the intercept out. Those of rows that were left out are
    P_oo⁻¹(PỸ)_o: exact, and no model is fitted again.
    """

    rows: Array  # B (m, R); empty where they are not needed
    y: Float64  # Ỹ (m, T)
    root: Float64  # u (m,)
    gram: Array  # BBᵀ + cuuᵀ (m, m), any c > 0 does; or BᵀB (R, R) where m > R

    @classmethod
    def of(cls, Z: Array, y: Float64, w: Array, prior: Array, alpha: float) -> _Blocks:
        """Feature rows Z (m, R), for penalties of ``alpha`` and more."""
        few = len(Z) <= Z.shape[1]
        if few and Z.dtype == np.float32:
            rows = _scaled_rows(Z, w, prior, np.dtype(np.float32))
            if _may_serve(rows, alpha):
                found = cls._of(rows, y, w)
                if found.serves(alpha):
                    return found
        return cls._of(_scaled_rows(Z, w, prior, np.dtype(np.float64)), y, w)

    @classmethod
    def of_kernel(cls, kernel: Float64, y: Float64, w: Array, alpha: float) -> _Blocks:
        """The same from BBᵀ (m, m)."""
        root = np.sqrt(w)
        for dtype in (np.float32, np.float64):
            gram = _with_mean(kernel.astype(dtype), root)
            found = cls(np.empty((len(y), 0)), y * root[:, None], root, gram)
            if found.serves(alpha):
                break
        return found

    @classmethod
    def _of(cls, rows: Array, y: Float64, w: Array) -> _Blocks:
        root = np.sqrt(w)
        few = len(rows) <= rows.shape[1]
        gram = _with_mean(rows @ rows.T, root) if few else rows.T @ rows
        return cls(rows, y * root[:, None], root, gram)

    def serves(self, alpha: float) -> bool:
        """Whether the precision of the Gram matrix is enough for this penalty, by its size."""
        rounding = np.finfo(self.gram.dtype).eps * linalg.norm(self.gram)
        return bool(alpha >= max(SAFE_SINGLE * rounding, self.least_alpha))

    @property
    def least_alpha(self) -> float:
        """The smallest penalty that leaves a factor."""
        return float(8 * np.finfo(self.gram.dtype).eps * np.trace(self.gram))

    def fit(self, target: int, alpha: float) -> _Fit:
        """A fit to all rows at a penalty, or one without residuals where α leaves no factor."""
        alpha = max(alpha, self.least_alpha)
        matrix, y = self.gram.copy(), self.y[:, target]
        matrix[np.diag_indices(len(matrix))] += alpha
        potrf, potri = lapack.get_lapack_funcs(("potrf", "potri"), (matrix,))
        factor, info = potrf(matrix.T, lower=1, overwrite_a=1)
        if info:
            return _Fit(np.empty((0, 0)), y, y, self.root, by_columns=False)
        if len(matrix) == len(y):
            inverse, _ = potri(factor, lower=1, overwrite_c=1)
            mirror_lower(inverse)
            mean, solved = _exact_product(inverse, np.column_stack([self.root, y])).T
            mean /= np.sqrt(self.root @ mean)
            return _Fit(inverse, mean, solved - mean * (mean @ y), self.root, by_columns=False)
        hat = linalg.solve_triangular(factor, self.rows.T, lower=True, check_finite=False)
        hat = np.vstack([hat, self.root / linalg.norm(self.root)])
        return _Fit(hat, y, y - hat.T @ (hat @ y), self.root, by_columns=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """A fit to all rows: its residuals, and how far they move when rows are left out."""

    matrix: Array  # A⁻¹ (m, m); by columns (R + 1, m), its product with itself is I − αP
    mean: Float64  # v (m,) with P = A⁻¹ − vvᵀ
    residuals: Float64  # PỸ; by columns αPỸ (m,)
    root: Float64  # u (m,)
    by_columns: bool

    def error(self, block: Array) -> float:
        """Root mean squared error over blocks left out; infinite where one has no factor."""
        missed = 0.0 if self.matrix.size else np.inf
        for fold in range(FOLDS if self.matrix.size else 0):
            out = np.flatnonzero(block == fold)
            if not len(out):
                continue
            factor, info = lapack.dpotrf(self._system(out), lower=1, overwrite_a=1)
            if info:
                return np.inf
            left, _ = lapack.dpotrs(factor, self.residuals[out], lower=1)
            missed += float(left @ left)
        return float(np.sqrt(missed / float(self.root @ self.root)))

    def error_near(self) -> float:
        """The same over rows left out one by one."""
        if not self.matrix.size:
            return np.inf
        if self.by_columns:
            own = 1 - np.einsum("rm,rm->m", self.matrix, self.matrix)
        else:
            own = np.diag(self.matrix) - self.mean**2
        left = self.residuals / np.maximum(own, np.finfo(float).tiny)
        return float(np.sqrt(left @ left / (self.root @ self.root)))

    def _system(self, out: Array) -> Float64:
        """P_oo, or αP_oo by columns, of rows that are left out; symmetric, as LAPACK reads it."""
        if not self.by_columns:
            some = np.asarray(self.matrix[np.ix_(out, out)], np.float64)
            return np.asarray((some - np.outer(self.mean[out], self.mean[out])).T)
        some = self.matrix[:, out]
        return np.asarray((np.eye(len(out)) - some.T @ some).T)


def _scaled_rows(Z: Array, w: Array, prior: Array, dtype: np.dtype[Any]) -> Array:
    """B (m, R): feature rows, centred and times √(w s)."""
    # In place: each further array of this size takes its pages anew.
    rows: Array = np.multiply(Z, np.sqrt(prior), dtype=dtype)
    rows -= w.astype(dtype) @ rows / w.sum()
    if (w != 1).any():
        rows *= np.sqrt(w)[:, None]
    return rows


def _may_serve(rows: Array, alpha: float) -> bool:
    """Whether a Gram matrix of this precision may serve a penalty, by the size of a few rows."""
    some = rows[:: -(-len(rows) // FEW_OF_GRAM)]
    size = np.sqrt(len(rows) / len(some)) * linalg.norm(some @ rows.T)
    return bool(2 * alpha >= SAFE_SINGLE * np.finfo(rows.dtype).eps * size)


def _with_mean(gram: Array, root: Float64) -> Array:
    """BBᵀ (m, m), in place, and the mean's own direction, which centring left without a size."""
    size = float(np.trace(gram)) / float(root @ root) ** 2
    (ger,) = blas.get_blas_funcs(("ger",), (gram,))
    ger(size, root, root, a=gram.T, overwrite_a=1)
    return gram


def _exact_product(matrix: Array, columns: Float64) -> Float64:
    """Matrix (m, m) of any precision times columns (m, k) in float64, without a copy of it."""
    steps = range(0, len(matrix), PRODUCT_ROWS)
    return np.concatenate([matrix[i : i + PRODUCT_ROWS] @ columns for i in steps])


def _trend_error(columns: Array, y: Array, w: Array, block: Array) -> Float64:
    """Root mean squared error (T,) of least squares on [1, columns] over blocks left out."""
    design, missed = np.column_stack([np.ones(len(y)), columns]), np.zeros(y.shape[1])
    for fold in range(FOLDS):
        out, root = block == fold, np.sqrt(w[block != fold])[:, None]
        coef, *_ = np.linalg.lstsq(root * design[~out], root * y[~out], rcond=None)
        missed += w[out] @ (y[out] - design[out] @ coef) ** 2
    return np.asarray(np.sqrt(missed / w.sum()))
