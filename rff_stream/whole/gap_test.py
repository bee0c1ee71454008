"""Is a model safe in gaps? Blocks of pilot rows are held out and compared with a linear trend.

Evidence judges a model where the rows are. With too few columns it may buy a closer fit there
with coefficients so large that predictions between the rows swing far outside the data. Held-out
rows at random do not show this, held-out blocks do. Cells and grids answer with their kernel, which
returns to the mean in gaps: only columns of the whole space are tested.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from rff_stream._array import Array, Float64
from rff_stream.errors import warn
from rff_stream.systems.normal_equations import mirror_lower

MOST_TESTED = 1024
"""Largest number of rows in the test: matrices of 8 MB. Blocks of fewer rows are harder (in 36 fits
of 13 sets of data the ratio of half of the rows was never below .96 times that of all)."""

FEWEST_TESTED = 256
"""Smallest number of rows for which blocks have neighbours."""

HALVINGS = 4
"""Number of times that rows are halved."""

PARTITIONS = ((0, True), (1, True), (2, True), (3, True), (0, False), (1, False))
"""Seed of each set of blocks, and whether it is cut at gaps: then clusters are held out whole."""

EXTREME = 2.0
"""Limit of the log ratio of errors in one gap. If predictions oscillate, errors differ by
factors of 10 between gaps, and a sum of squares depends on one gap alone. With this limit, the
mean of the logarithms over 24 choices of a quarter of the blocks ranked 56 fits nearly as their
medians do (rank correlation .82; .67 for the median of pooled errors of six sets, .60 for the
worst)."""

OSCILLATES = 1.5
"""Ratio to the error of a trend from which a larger penalty is used."""

TRIES = 8
"""Number of directions in which a gap is searched for."""

EDGE = 0.25
"""Smallest share of the rows on either side of a gap."""

SMALL = 0.1
"""An error below this share of the error of the mean is no oscillation, even if a line is
better."""

FOLDS = 8
"""Number of fits, each without an eighth of the blocks."""

KNOWN_BYTES = 2**20
"""Largest size of rows whose blocks are cached, eight sets at a time."""

STEP = 10**0.5
"""Ratio of successive penalties in the search."""


@dataclass(frozen=True, slots=True)
class GapTest:
    """Errors of one target in held-out blocks, over those of the mean or a linear trend."""

    alpha: float  # the penalty that was asked for
    ratio: float  # geometric mean of the ratios in single gaps; NaN where rows cannot be parted
    worst: float  # ratio of pooled errors in the worst of all sets of blocks
    least_alpha: float
    """``alpha``, or where its model oscillates the smallest larger one whose model is no worse than
    the trend, or the best one."""
    least_ratio: float  # at ``least_alpha``


def block_of_rows(x: Float64, halvings: int, seed: int = 0, *, at_gaps: bool = False) -> Array:
    """2^halvings blocks (n,) of rows (n, d): halves along random directions, again and again.

    ``at_gaps`` cuts at the widest gap of the middle half of the rows, of 8 directions, in place of
    the median of one: clusters stay whole.
    """
    rng, block = np.random.default_rng(seed), np.zeros(len(x), np.intp)
    for _ in range(halvings):
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
    sets = _held_blocks(x, y, w)
    if not sets:
        return np.ones(y.shape[1])
    tiny = float(np.finfo(float).tiny)
    shares = [each.trend.sum(axis=0) / np.maximum(each.mean.sum(axis=0), tiny) for each in sets]
    return np.asarray(np.sqrt(np.median(shares, axis=0)))


@dataclass(frozen=True, slots=True, eq=False)
class GapRows:
    """Rows that blocks are cut from, with the columns of their model."""

    x: Float64  # (m, d): inputs, scaled so that a distance means the same along each
    y: Float64  # (m, T)
    w: Float64  # (m,)
    Z: Array  # (m, R): feature rows
    prior: Float64  # (R,): s


def gap_test(
    rows: GapRows, alpha: Float64, weight: float, *, largest: float = 0.0
) -> tuple[GapTest, ...]:
    """Test a penalty (T,) of each target on blocks of rows that are held out of the fit.

    ``weight`` is Σw of all rows of the fit. The m rows count as so many: what explodes is what the
    columns cannot represent, and that adds up. No penalty above ``largest`` is tried.

    Notes
    -----
    A Gram matrix (m, m) and one inverse of it for each penalty, from which the errors of all blocks
    follow. Only where a penalty fails are others tried.

    References
    ----------
    Dubrule 1983 (cross-validation of kriging without fitting again); Ginsbourger & Schärer 2021
    (blocks).
    """
    sets = _held_blocks(rows.x, rows.y, rows.w)
    if not sets:
        return tuple(GapTest(a, np.nan, np.nan, a, np.nan) for a in map(float, alpha))
    scale, blocks = weight / (float(rows.w.sum()) * (1 - 1 / FOLDS)), _Blocks.of(rows)
    found = []
    for target, own in enumerate(map(float, alpha)):
        ratio, worst = blocks.ratios(sets, target, own / scale)
        best, larger = (ratio, own), max(own, 1e-12 * largest)
        if ratio > OSCILLATES and own < largest:
            best = np.inf, own
            while larger < largest and best[0] > 1:
                larger *= STEP
                best = min(best, (blocks.ratios(sets, target, larger / scale)[0], larger))
        found.append(GapTest(own, ratio, worst, best[1], best[0]))
    return tuple(found)


def _held_blocks(x: Float64, y: Float64, w: Float64) -> list[_HeldBlocks]:
    """The sets of blocks whose folds are parts of the rows."""
    find = _cut if x.nbytes <= KNOWN_BYTES else _cut.__wrapped__
    cuts = find(x.tobytes(), x.shape[1])
    return [_HeldBlocks.of(block, x, y, w) for block in cuts if _are_parts(block)]


@functools.lru_cache(maxsize=8)
def _cut(rows: bytes, d: int) -> list[Array]:
    """Blocks of rows by all partitions; a search over parameters asks for the same rows again."""
    x = np.frombuffer(rows).reshape(-1, d)
    return [block_of_rows(x, HALVINGS, k, at_gaps=gaps) for k, gaps in PARTITIONS]


def _are_parts(block: Array) -> bool:
    """Whether no fold is empty or holds most of the rows: inputs may have few distinct values."""
    sizes = np.bincount(block % FOLDS, minlength=FOLDS)
    return bool(sizes.min() > 0 and sizes.max() <= len(block) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class _HeldBlocks:
    """Folds (m,) of whole blocks; Σw r² (FOLDS, T) of the mean, and of a linear trend."""

    fold: Array
    mean: Float64
    trend: Float64

    @classmethod
    def of(cls, block: Array, x: Array, y: Array, w: Array) -> _HeldBlocks:
        fold = block % FOLDS
        mean = _trend_errors(np.empty((len(x), 0)), y, w, fold)
        return cls(fold, mean, np.minimum(mean, _trend_errors(x, y, w, fold)))

    def bound(self, target: int) -> Float64:
        """Errors (FOLDS,) that no model needs to be below: the trend's, or a part of the mean's."""
        least = SMALL**2 * self.mean[:, target].mean()
        found = np.maximum(self.trend[:, target], least * (self.mean[:, target] > 0))
        return np.asarray(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """What a fit without some of the rows is computed from.

    With rows B = √(w s)(z − z̄), Ỹ = √w y, u = √w and A = BBᵀ + αI the residuals of a fit to all
    rows are αPỸ, where P = A⁻¹ − A⁻¹u(A⁻¹u)ᵀ/(uᵀA⁻¹u) takes the intercept out. Those of rows that
    were left out are P_oo⁻¹(PỸ)_o: exact, and no model is fitted again.
    """

    y: Float64  # Ỹ (m, T)
    root: Float64  # u (m,)
    gram: Float64  # BBᵀ + cuuᵀ (m, m), any c > 0 does

    @classmethod
    def of(cls, rows: GapRows) -> _Blocks:
        root = np.sqrt(rows.w)
        B = np.multiply(rows.Z, np.sqrt(rows.prior), dtype=np.float64)
        B -= rows.w @ B / rows.w.sum()
        B *= root[:, None]
        gram = B @ B.T
        # The mean's own direction, which centring left without a size.
        blas.dger(np.trace(gram) / (root @ root) ** 2, root, root, a=gram.T, overwrite_a=1)
        return cls(rows.y * root[:, None], root, gram)

    def ratios(self, sets: list[_HeldBlocks], target: int, alpha: float) -> tuple[float, float]:
        """Geometric mean over all gaps, and that of pooled errors in the worst set."""
        missed = self.errors(target, alpha, [each.fold for each in sets])
        line = np.array([each.bound(target) for each in sets])
        held = line > 0
        if not held.any():
            return 0.0, 0.0
        tiny = float(np.finfo(float).tiny)
        logs = np.log(np.maximum(missed[held] / line[held], tiny)) / 2
        worst = np.sqrt(np.max(missed.sum(axis=1) / line.sum(axis=1)))
        return float(np.exp(np.clip(logs, -EXTREME, EXTREME).mean())), float(worst)

    def errors(self, target: int, alpha: float, folds: list[Array]) -> Float64:
        """Σw r² (sets, FOLDS) over rows left out with their fold; infinite without a factor."""
        missed = np.full((len(folds), FOLDS), np.inf)
        least = 8 * np.finfo(float).eps * np.trace(self.gram)
        matrix, y = self.gram.copy(), self.y[:, target]
        matrix[np.diag_indices(len(matrix))] += max(alpha, least)
        factor, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
        if info:
            return missed
        inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
        mirror_lower(inverse)
        mean = inverse @ self.root
        mean /= np.sqrt(self.root @ mean)
        solved = inverse @ y - mean * (mean @ y)
        for at, fold in enumerate(folds):
            for k in range(FOLDS):
                out = np.flatnonzero(fold == k)
                own = inverse[np.ix_(out, out)] - np.outer(mean[out], mean[out])
                factor, info = lapack.dpotrf(own.T, lower=1, overwrite_a=1)
                if not info:
                    left, _ = lapack.dpotrs(factor, solved[out], lower=1)
                    missed[at, k] = left @ left
        return missed


def _trend_errors(columns: Array, y: Array, w: Array, fold: Array) -> Float64:
    """Σw r² (FOLDS, T) of least squares on [1, columns] over rows left out with their fold."""
    design, missed = np.column_stack([np.ones(len(y)), columns]), np.zeros((FOLDS, y.shape[1]))
    for k in range(FOLDS):
        out, root = fold == k, np.sqrt(w[fold != k])[:, None]
        coef, *_ = np.linalg.lstsq(root * design[~out], root * y[~out], rcond=None)
        missed[k] = w[out] @ (y[out] - design[out] @ coef) ** 2
    return missed


def warn_of_gaps(test: GapTest, name: str) -> None:
    """Warn where another penalty was taken, because predictions would swing in gaps."""
    if test.least_alpha != test.alpha:
        warn(
            f"{name}: in held-out blocks of sampled rows, alpha={test.alpha:.3g} has an error of "
            f"{test.ratio:.2g} times that of the mean or a linear trend: between the data, "
            f"predictions would oscillate. alpha={test.least_alpha:.3g} is used instead (its error "
            f"is {test.least_ratio:.2g} times that of the trend). Use columns for each part of the "
            "data (features='local'), more components, or longer length-scales; to choose the "
            "penalty yourself, give alpha (or noise)."
        )
