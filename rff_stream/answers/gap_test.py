"""Is a model safe in gaps? Blocks of pilot rows are held out and compared with a linear trend.

Evidence judges a model where the rows are. With too few columns it may buy a closer fit there
with coefficients so large that predictions between the rows swing far outside the data. Held-out
rows at random do not show this, held-out blocks do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from rff_stream._array import Array, Float64
from rff_stream.errors import warn
from rff_stream.systems.normal_equations import mirror_lower

MOST_TESTED = 4096
"""Largest number of pilot rows in the test: the size of its Cholesky factors."""

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

NO_BETTER, NEARLY = 1.05, 1.03
"""Ratio to the error of a trend at which a larger penalty is searched for and a warning is
given; ratio to the smallest error that is accepted if none is below 1."""

SWINGS, CHEAP, DEAR = 1.5, 1.05, 1.25
"""Ratio to a trend at which a larger penalty is used whatever its cost near the data; below this
ratio, the largest increase of the error at single rows at which it is used, and the increase at
which a warning is given."""

UNEVEN = 1.1
"""Ratio of pooled errors in the worst set of blocks at which a warning is given for a model that
oscillated before: its blocks may suit the larger penalty by chance."""

TWICE, MANY = 2.0, 1 / 8
"""Ratio of errors in one gap that counts as an oscillation; share of such gaps at which a
warning is given."""

MANY_ROWS, ROOM = 1024, 0.9
"""Number of rows from which every second row is tested first, and the ratio that is then
sufficient."""

TRIES = 8
"""Number of directions in which a gap is searched for."""

EDGE = 0.25
"""Smallest share of the rows on either side of a gap."""

SMALL = 0.1
"""An error below this share of the error of the mean is no oscillation, even if a line is
better."""

FOLDS = 8
"""Number of fits, each without an eighth of the blocks."""

SAFE_SINGLE = 32
"""Penalty, relative to the rounding error of float32 in the matrix of rows, from which its
factor is accurate enough: there errors of blocks differed by less than .5 % for one input and
.05 % for 2 to 8; at a quarter of it by 1 %."""

FEW_OF_GRAM = 32
"""Number of rows from which the size of a Gram matrix is estimated, to a factor below 2."""

PRODUCT_ROWS = 128
"""Rows of a matrix that are converted to float64 at once."""

KNOWN_BYTES = 2**20
"""Largest size of rows whose blocks are cached, eight sets at a time."""

STEP = 10**0.5
"""Ratio of successive penalties in the search."""


@dataclass(frozen=True, slots=True)
class GapTest:
    """Errors of one target in held-out blocks, over those of the mean or a linear trend."""

    alpha: float  # the penalty that was asked for
    ratio: float  # geometric mean of the ratios in single gaps; NaN where rows cannot be parted
    least_alpha: float
    """``alpha`` if it is safe or a larger one costs too much; otherwise the smallest one whose
    model is no worse than the trend, or the best one."""
    least_ratio: float  # at ``least_alpha``, as all that follows
    worst: float  # ratio of pooled errors in the worst of all sets of blocks
    swings: float  # share of the gaps where the error is more than twice the trend's
    cost: float = 1.0  # error at rows that are left out one by one, over that at ``alpha``
    near: float = np.nan  # the same over that of a trend, where no larger penalty is tried

    @property
    def is_safe(self) -> bool:
        """Whether the penalty asked for is kept."""
        return self.least_alpha == self.alpha

    @property
    def is_better(self) -> bool:
        """Whether the model at ``least_alpha`` is no worse than the trend, as far as this shows."""
        return not self.least_ratio > NO_BETTER

    @property
    def has_room(self) -> bool:
        """Whether more rows would say the same, surely: no gap swings, no set is worse."""
        return self.ratio <= ROOM and self.worst <= 1 and self.swings <= MANY / 4

    @property
    def is_even(self) -> bool:
        """Whether it seldom swings, nor is worse in some set where it swung at ``alpha``."""
        return not (self.swings > MANY or (self.ratio > SWINGS and self.worst > UNEVEN))

    @property
    def is_cheap(self) -> bool:
        """Whether ``least_alpha`` costs little near the data."""
        return self.cost <= DEAR


def block_of_rows(x: Float64, levels: int, seed: int = 0, *, at_gaps: bool = False) -> Array:
    """2^levels blocks (n,) of rows (n, d): halves along random directions, again and again.

    ``at_gaps`` cuts at the widest gap of the middle half of the rows, of 8 directions, in place of
    the median of one: clusters stay whole.
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
    sets = _held_blocks(x, y, w)
    if not sets:
        return np.ones(y.shape[1])
    tiny = float(np.finfo(float).tiny)
    shares = [each.trend.sum(axis=0) / np.maximum(each.mean.sum(axis=0), tiny) for each in sets]
    return np.asarray(np.sqrt(np.median(shares, axis=0)))


@dataclass(frozen=True, slots=True, eq=False)
class GapRows:
    """Rows that blocks are cut from, with the columns of their model or its kernel."""

    x: Array  # (m, d): inputs, scaled so that a distance means the same along each
    y: Array  # (m, T)
    w: Array  # (m,)
    Z: Array | None = None  # (m, R): feature rows
    prior: Array | None = None  # (R,): s
    kernel: Float64 | None = None
    """(m, m): BBᵀ of the centred rows B = √(w s)(z − z̄), used instead of Z if it is known."""

    def every_second(self) -> Self:
        """Half of the rows."""
        k = slice(None, None, 2)
        Z = None if self.Z is None else self.Z[k]
        kernel = None if self.kernel is None else self.kernel[k, k]
        return replace(self, x=self.x[k], y=self.y[k], w=self.w[k], Z=Z, kernel=kernel)

    def blocks(self, y: Float64, w: Float64, alpha: float) -> _Blocks:
        """What fits without some blocks are computed from, for penalties of ``alpha`` and more."""
        if self.kernel is not None:
            return _Blocks.of_kernel(self.kernel, y, w, alpha)
        assert self.Z is not None
        assert self.prior is not None
        return _Blocks.of(self.Z, y, w, self.prior, alpha)


def gap_test(
    rows: GapRows, alpha: Float64, weight: float, *, largest: float = 0.0
) -> tuple[GapTest, ...]:
    """Test a penalty (T,) of each target on blocks of rows that are held out of the fit.

    ``weight`` is Σw of all rows of the fit. The m rows count as so many: what explodes is what the
    columns cannot represent, and that adds up. No penalty above ``largest`` is tried.

    Notes
    -----
    A Gram matrix of min(m, R)² and one inverse of it for each target, from which the errors of
    all blocks follow: about .4 CPU s for 2,000 rows. Only where a penalty fails are others tried.
    Of many rows every second one is looked at first, .1 CPU s: blocks of fewer rows are harder
    (in 36 fits of 13 sets of data their ratio was never below .96 times that of all), so a model
    that passes there with room passes. The matrix of rows of float32 is of float32, too, where
    the penalty is ``SAFE_SINGLE`` times what that rounds.

    References
    ----------
    Dubrule 1983 (cross-validation of kriging without fitting again); Ginsbourger & Schärer 2021
    (blocks).
    """
    if len(rows.x) > MANY_ROWS:
        first = _test_all(rows.every_second(), alpha, weight, 0.0)
        if all(test.has_room for test in first):
            return first
    return _test_all(rows, alpha, weight, largest)


def _test_all(rows: GapRows, alpha: Float64, weight: float, largest: float) -> tuple[GapTest, ...]:
    """:func:`gap_test` of exactly these rows."""
    x, y, w = (np.asarray(each, np.float64) for each in (rows.x, rows.y, rows.w))
    scale = weight / (float(w.sum()) * (1 - 1 / FOLDS))
    blocks = rows.blocks(y, w, float(np.min(alpha)) / scale)
    sets = _held_blocks(x, y, w)
    if not sets:
        return tuple(GapTest(a, np.nan, a, np.nan, np.nan, np.nan) for a in map(float, alpha))
    near = _line_errors_near(x, y, w)
    targets = (_Target(blocks, sets, t, scale, float(near[t])) for t in range(len(alpha)))
    return tuple(each.test(float(a), largest) for each, a in zip(targets, alpha, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """One target with sets of blocks; ``scale`` is a penalty of all rows over that of these.

    ``line_near`` is the error of a linear trend at rows that are left out one by one.
    """

    blocks: _Blocks
    sets: list[_HeldBlocks]
    number: int
    scale: float
    line_near: float

    def fit(self, alpha: float) -> _Fit:
        return self.blocks.fit(self.number, alpha / self.scale)

    def test(self, alpha: float, largest: float) -> GapTest:
        """The penalty asked for, or a larger one where its model is worse than a trend."""
        fit = self.fit(alpha)
        ratio, worst, swings = self.ratios(fit)
        kept = GapTest(alpha, ratio, alpha, ratio, worst, swings)
        if not largest:
            return replace(kept, near=fit.error_near() / self.line_near)
        if ratio <= NO_BETTER or alpha >= largest:
            return kept
        near, tried = max(fit.error_near(), float(np.finfo(float).tiny)), list[GapTest]()
        larger = max(alpha, 1e-12 * largest)
        while larger < largest and not (tried and tried[-1].least_ratio <= 1):
            larger *= STEP
            fit = self.fit(larger)
            cost = fit.error_near() / near
            if ratio <= SWINGS and cost > CHEAP:
                return kept
            tried.append(GapTest(alpha, ratio, larger, *self.ratios(fit), cost))
        limit = max(NEARLY * min(each.least_ratio for each in tried), 1.0)
        return next(each for each in tried if each.least_ratio <= limit)

    def ratios(self, fit: _Fit) -> tuple[float, float, float]:
        """Geometric mean over all gaps, that of pooled errors in the worst set, share of swings."""
        missed = np.array([fit.errors(each.fold) for each in self.sets])  # (sets, FOLDS)
        line = np.array([each.bound(self.number) for each in self.sets])
        held = line > 0
        if not held.any():
            return 0.0, 0.0, 0.0
        tiny = float(np.finfo(float).tiny)
        logs = np.log(np.maximum(missed[held] / line[held], tiny)) / 2
        worst = np.sqrt(np.max(missed.sum(axis=1) / line.sum(axis=1)))
        mean = np.exp(np.clip(logs, -EXTREME, EXTREME).mean())
        return float(mean), float(worst), float(np.mean(logs > np.log(TWICE)))


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

    def errors(self, fold: Array) -> Float64:
        """Σw r² (FOLDS,) over rows that are left out with their fold; infinite without a factor."""
        missed = np.full(FOLDS, np.inf)
        for k in range(FOLDS if self.matrix.size else 0):
            out = np.flatnonzero(fold == k)
            factor, info = lapack.dpotrf(self._system(out), lower=1, overwrite_a=1)
            if not info:
                left, _ = lapack.dpotrs(factor, self.residuals[out], lower=1)
                missed[k] = left @ left
        return missed

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


def _trend_errors(columns: Array, y: Array, w: Array, fold: Array) -> Float64:
    """Σw r² (FOLDS, T) of least squares on [1, columns] over rows left out with their fold."""
    design, missed = np.column_stack([np.ones(len(y)), columns]), np.zeros((FOLDS, y.shape[1]))
    for k in range(FOLDS):
        out, root = fold == k, np.sqrt(w[fold != k])[:, None]
        coef, *_ = np.linalg.lstsq(root * design[~out], root * y[~out], rcond=None)
        missed[k] = w[out] @ (y[out] - design[out] @ coef) ** 2
    return missed


def _line_errors_near(x: Array, y: Array, w: Array) -> Float64:
    """Root mean squared error (T,) of a linear trend at rows left out one by one; above 0."""
    root = np.sqrt(w)[:, None]
    basis, _ = np.linalg.qr(root * np.column_stack([np.ones(len(x)), x]))
    own = np.maximum(1 - (basis**2).sum(axis=1, keepdims=True), np.finfo(float).eps)
    left = (root * y - basis @ (basis.T @ (root * y))) / own
    return np.asarray(np.sqrt(np.maximum((left**2).sum(axis=0) / w.sum(), np.finfo(float).tiny)))


def warn_of_gaps(test: GapTest, name: str) -> None:
    """Warn where a test says that predictions swing in gaps, and which penalty was taken."""
    if test.is_better and test.is_even and test.is_cheap:
        return
    fact = f"{name}: in held-out blocks of sampled rows, "
    near = (
        "do not use predictions in gaps of that size, or outside the data. Near the data they "
        "may be good."
    )
    if test.is_safe:
        fact += (
            f"the error of the model is typically {test.ratio:.2g} times that of the mean or a "
            f"linear trend, and more than twice that in {test.swings:.0%} of the gaps: {near} "
            "Longer length-scales or a larger alpha (or noise) are safer."
        )
    else:
        fact += (
            f"alpha={test.alpha:.3g} has an error of {test.ratio:.2g} times that of the mean or a "
            "linear trend: between the data, predictions would oscillate. "
            f"alpha={test.least_alpha:.3g} is used instead (its error is {test.least_ratio:.2g} "
            f"times that of the trend, and near the data {test.cost:.3g} times the earlier one). "
        )
        fact += (
            "More components or longer length-scales would be better; to choose the penalty "
            "yourself, give alpha (or noise)."
            if test.is_better and test.is_even
            else f"In some blocks a trend is still better: {near}"
        )
    warn(fact)
