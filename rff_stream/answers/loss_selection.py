"""The penalty of a loss, chosen on pilot rows in memory: no pass over the data for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.copies import group_copies
from rff_stream.answers.laplace import average_log_odds, laplace_functions
from rff_stream.answers.ridge import ridge
from rff_stream.answers.selection_table import Selection
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.features.rowwise import RowwiseMap
from rff_stream.features.sums import linear_form, sweep_of
from rff_stream.losses.classification import Loss, MultinomialPairs
from rff_stream.losses.descent import Metric
from rff_stream.losses.penalised import Penalised, PenalisedClasses, penalise
from rff_stream.losses.regression import RegressionLoss
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import accumulate
from rff_stream.moments.class_moments import class_row
from rff_stream.pilot import Pilot
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import select
from rff_stream.statistics.kept_features import KeptFeatures, descents_of_kept
from rff_stream.statistics.loss import (
    FEW_FEATURES,
    LossStatistic,
    follow_corners,
    minimisers,
)
from rff_stream.statistics.moments import ClassStatistic
from rff_stream.systems.system import System, ridge_system

Coefficients = tuple[Float64, Float64]
"""Raw coefficients (R, K) and intercepts (K,)."""

ALPHAS = np.geomspace(10.0, 1e-5, 13)
"""From 1 over the variance of scores that hardly differ to that of scores of ±300."""

START = 4
"""Number of the penalty that is tried first: 0.1, where scores of ±3 are likely."""

SPREADS = np.array([0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0])
"""Of the Laplace posterior, from the fit alone to the whole posterior."""

MOST_HELD_OUT = 6000
FEW_ROWS = 2000
"""Fewer rows are held out in four turns, more only once."""

FEW_OF_CLASS = 100
"""The same for the rows of a class."""

TOL, PASSES = 3e-3, 6
"""Enough to compare penalties: a start from the one before is near."""

CLEAR = 3.0
"""Standard errors of the difference from which one rise of the held-out loss is enough."""

NUGGET = 1e-12
"""Added to a Gram matrix of few rows, in units of its diagonal."""

FACTOR = 4.0
"""Times that α/κ may change before κG + α is factored again: the factor only guides the steps."""

MOST_COMPONENTS = 2048
"""Leading features that are looked at, where a map's leading columns are a map: with 1,024 the
best α of letter is three times that of 4,096, with 2,048 the same."""

FEW_COMPONENTS = 512
"""The same for a loss with a Hessian in every pass, which costs R² a row."""


def choose_alpha(
    features: FeatureMap,
    row: AugmentedRow,
    pilot: Pilot,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
) -> tuple[Selection, Coefficients | None, System | None]:
    """The α of least held-out loss on pilot rows: a quarter of them, or each quarter of few.

    Also the raw coefficients of a fit of pilot rows near it, where a descent may start, and the
    system that guided its steps; None for a loss with corners. The pilot's y is one-hot, the row
    without targets, and rows are held out in turn along the pilot.

    α is the inverse prior variance of scores, so its best value hardly depends on n, nor on R
    once the kernel is near. Rows are mapped once: 47 MiB for 2,048 features.
    """
    x, codes, w = _classes_of(pilot, class_weight)
    size, turns = _size(features), _turns(x, codes)
    scores = np.full((len(turns), len(ALPHAS)), np.nan)
    if loss.cornered:
        if features.nesting != "none":
            size = min(size, FEW_COMPONENTS)
        for losses, turn in zip(scores, turns, strict=True):
            parts = (_leading_rows(features, size, x[at], codes[at], w[at]) for at in turn)
            losses[:], _ = _cornered_path(row.leading(size), loss, *parts)
        return _selection("held-out loss on pilot rows", ALPHAS, scores, size), None, None
    z = _leading_features(features, size, x, "float64" if size <= FEW_FEATURES else None)
    prior = row.leading(size).prior
    basis = None
    if len(z) < size:
        z, basis = _own_columns(z, prior)
    every = KeptFeatures(z, codes, w, loss.n_classes)
    root = np.ones(z.shape[1]) if basis is not None else prior
    fits: dict[int, Coefficients] = {}
    guide: System | None = None
    for losses, (train, held) in zip(scores, turns, strict=True):
        fitted = every.take(train)
        problem = fitted.penalise(root, loss, float(ALPHAS[0]))
        guide = problem.system if basis is None else None
        losses[:], more = _smooth_path(problem, fitted, every.take(held))
        fits |= more
    found = _selection("held-out loss on pilot rows", ALPHAS, scores, size)
    best = int(np.argmin(np.abs(ALPHAS - found.best.alpha)))
    if best not in fits:
        return found, None, None
    coef, intercept = fits[best]
    if basis is not None:
        coef = basis @ coef
    whole = np.zeros((features.n_components, len(intercept)))
    whole[:size] = coef
    return found, (whole, intercept), guide


def _classes_of(
    pilot: Pilot, class_weight: Mapping[Any, float] | None
) -> tuple[Array, Array, Array]:
    """x, class numbers and weights > 0 of at most 6,000 pilot rows, each class by its weight."""
    step = -(-len(pilot.x) // MOST_HELD_OUT)
    x, codes, w = pilot.x[::step], pilot.y[::step].argmax(axis=1), pilot.w[::step]
    given = class_weight or {}
    w = w * np.array([given.get(k, 1.0) for k in range(pilot.y.shape[1])])[codes]
    return x[w > 0], codes[w > 0], w[w > 0]


def _own_columns(z: Array, prior: Array) -> tuple[Float64, Float64]:
    """Columns (m, m) of m < R rows with the same products, and β (R, m) of a unit of each.

    With B = Z diag(s)^½ and LLᵀ = BBᵀ a function Bγ in the span of the rows is LLᵀ(BBᵀ)⁻¹Bγ: γ =
    BᵀL⁻ᵀc has the size of c.
    """
    rows = z.astype(np.float64) * np.sqrt(prior)
    gram = rows @ rows.T
    gram.flat[:: len(gram) + 1] += NUGGET * float(np.trace(gram)) / len(gram)
    lower = linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    basis = linalg.solve_triangular(lower, rows, lower=True, check_finite=False).T
    return lower, np.sqrt(prior)[:, None] * basis


def choose_regression(
    features: FeatureMap,
    row: AugmentedRow,
    rows: Rows,
    loss: RegressionLoss,
    alpha: float | None,
) -> tuple[RegressionLoss, float, Selection | None]:
    """The loss with its scale, and the α of least held-out loss, on a sample of rows in memory.

    Rows are in random order, and ``row`` is without targets. What the loss leaves open (``scale``,
    ``dispersion``) is found on held-out rows, twice: first beside the misses of the best constant,
    then beside those of the fit. Where α is given, there is no selection.
    """
    turns, size = _turns(rows.x), _size(features)
    if features.nesting != "none":
        size = min(size, FEW_COMPONENTS)
    z = _leading_features(features, size, rows.x)
    rows, features, row = replace(rows, x=z), _IdentityMap(size), row.leading(size)
    assert rows.w is not None
    constant = loss.constant(rows.y, rows.w)
    free = loss
    loss = free.of_residuals(np.tile(constant, (len(rows.y), 1)), rows.y, rows.w)
    found: Selection | None = None
    for _ in range(1 if loss is free else 2):
        unit = unit_of(loss, rows)
        spread = 1.0 if loss.log_link else max(float(rows.y.var()), np.finfo(float).tiny)
        grid = ALPHAS * (unit / spread) if alpha is None else np.array([alpha])
        scores = np.full((len(turns), len(grid)), np.nan)
        fits = np.full((len(grid), *rows.y.shape), np.nan)
        for losses, (train, held) in zip(scores, turns, strict=True):
            path = _regression_path(features, row, select(rows, train), loss, grid, unit)
            for i, linear in enumerate(path):
                F = _predict(features, linear, rows.x[held])
                fits[i, held] = F
                w = rows.w[held]
                losses[i] = w @ loss.with_width(0.0).value(F, rows.y[held]) / w.sum()
                if i > 1 and losses[i] > losses[i - 1] > losses[i - 2]:
                    break
        best = 0
        if alpha is None:
            found = _selection("held-out loss on the row sample", grid, scores, size)
            best = int(np.argmin(np.abs(grid - found.best.alpha)))
        known = np.isfinite(fits[best]).all(axis=1)
        loss = free.of_residuals(fits[best][known], rows.y[known], rows.w[known])
    return loss, float(grid[best]), found


def unit_of(loss: RegressionLoss, rows: Rows) -> float:
    """The mean loss of the best constant, about: the unit of tolerances."""
    w = np.ones(len(rows.x)) if rows.w is None else rows.w
    constant = np.tile(loss.constant(rows.y, w), (len(rows.y), 1))
    return max(float(w @ loss.value(constant, rows.y) / w.sum()), float(np.finfo(float).tiny))


def regression_start(
    moments: Moments, loss: RegressionLoss, alpha: float, rows: Rows
) -> tuple[Float64, Float64]:
    """Where descent starts: the best constant under a logarithm, else least squares."""
    if loss.log_link:
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        r, t = moments.row.n_features, moments.row.n_targets
        return np.zeros((r, t)), loss.constant(rows.y, w)
    least = ridge(moments, max(alpha, 1e-6 * moments.weight), floor="raise_silently")
    return least.coef, least.intercept


def _regression_path(
    features: FeatureMap,
    row: AugmentedRow,
    train: Rows,
    loss: RegressionLoss,
    alphas: Float64,
    unit: float,
) -> Iterator[tuple[Float64, Float64]]:
    """(β, μ) for each α, largest first; each fit starts from the one before."""
    named = class_row(row, range(train.y.shape[1]))
    moments = accumulate(features, train.x, train.y, train.w, row=named, sums="float64")
    problem = Penalised(ridge_system(moments), loss, float(alphas[0]))
    nothing = np.empty((features.n_components, 0))
    statistic = LossStatistic(features, loss, None, nothing, np.empty(0), (), None, row)
    start = regression_start(moments, loss, float(alphas[0]), train)
    for alpha in alphas:
        at = replace(problem, alpha=float(alpha))
        for state in minimisers(
            _sums_over(train), statistic, at, start, unit=unit, tol=TOL, max_passes=40
        ):
            theta = state.point.theta
        start = problem.linear(theta)
        yield start


def _turns(x: Array, codes: Array | None = None) -> list[tuple[Array, Array]]:
    """(fitted, held out) rows: a quarter is held out, or each quarter of few; copies together.

    Rows are few where those of a class are, too: ten held-out rows tell little of it.
    """
    n, number = len(x), group_copies(x)
    counts = np.array([n]) if codes is None else np.bincount(codes)
    few = n < FEW_ROWS or counts[counts > 0].min() < FEW_OF_CLASS
    quarter = np.arange(n) % 4 if number is None else number % 4
    return [
        (quarter != turn, quarter == turn)
        for turn in range(4 if few else 1)
        if (quarter == turn).any() and (quarter != turn).any()
    ]


def _selection(criterion: str, alphas: Float64, scores: Float64, size: int) -> Selection:
    """The held-out losses (turns, α) as a selection."""
    return Selection(
        criterion=criterion,
        targets=("loss",),
        folds=tuple(map(str, range(len(scores)))),
        sizes=(size,),
        alphas=alphas[::-1].copy(),
        scores=scores[:, None, ::-1, None],  # α increases
        scale=np.ones(1),
        df=np.full((1, len(alphas)), np.nan),
        eta=np.zeros(1),
        rule="best",
    )


def _size(features: FeatureMap) -> int:
    """Features that are looked at."""
    r = features.n_components
    return r if features.nesting == "none" else min(r, MOST_COMPONENTS)


class _IdentityMap(RowwiseMap):
    """Rows that are features already: a copy. It has no spec and stays in this module."""

    dtype, nesting = np.float32, "none"

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def n_inputs(self) -> int:
        return self._size

    @property
    def n_components(self) -> int:
        return self._size

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        Z = np.empty(X.shape) if out is None else out
        Z[:] = X
        return Z


def _predict(features: FeatureMap, linear: Coefficients, x: Array) -> Float64:
    """μ + z(x)ᵀβ (m, T)."""
    coef, intercept = linear
    return linear_form(sweep_of(features, np.dtype(np.float64)), x, coef) + intercept


def _leading_features(features: FeatureMap, size: int, x: Array, dtype: str | None = None) -> Array:
    """The leading features (m, size) of rows, all R of few rows at a time."""
    z = np.empty((len(x), size), dtype or features.dtype)
    for start in range(0, len(z), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        z[part] = features(x[part])[:, :size]
    return z


def _leading_rows(features: FeatureMap, size: int, x: Array, codes: Array, w: Array) -> Rows:
    """Labelled rows whose columns are their leading features."""
    z = _leading_features(features, size, x)
    return Rows(z, np.empty((len(z), 0)), w, None, 0, codes)


def _walk(
    descend: Callable[[float, Coefficients | None], Coefficients],
    held_losses: Callable[[Coefficients], Float64],
    w: Float64,
) -> tuple[Float64, dict[int, Coefficients]]:
    """Mean held-out loss for each α from the middle one on, NaN where none was looked at.

    Smaller penalties first, larger ones only where no smaller one is better; each way ends where
    the loss has risen twice, or once by more than chance. Beside them the fits by the number of
    their α.
    """
    means, fits = np.full(len(ALPHAS), np.nan), dict[int, Coefficients]()
    share = w / w.sum()

    def walk(numbers: range, start: Coefficients | None, before: Float64 | None) -> None:
        rises = 0
        for i in numbers:
            start = fits[i] = descend(float(ALPHAS[i]), start)
            losses = held_losses(start)
            means[i] = share @ losses
            rise = np.zeros(1) if before is None else losses - before
            mean = float(share @ rise) if before is not None else -1.0
            rises, before = rises + 1 if mean > 0 else 0, losses
            chance = np.sqrt(share**2 @ (rise - mean) ** 2) if mean > 0 else 0.0
            if rises == 2 or (rises and mean > CLEAR * chance):
                break

    walk(range(START, len(ALPHAS)), None, None)
    if np.nanargmin(means) == START:
        walk(range(START - 1, -1, -1), fits[START], held_losses(fits[START]))
    return means, fits


def _cornered_path(
    row: AugmentedRow, loss: Loss, train: Rows, held: Rows
) -> tuple[Float64, dict[int, Coefficients]]:
    """The walk of a loss with corners on rows that are features: a Hessian for each step."""
    mapped, labels = _IdentityMap(row.n_features), tuple(range(loss.n_classes))
    counted = ClassStatistic(mapped, row, "float64", 0, 1, labels)
    problem = penalise(_sums_over(train)(counted), loss, float(ALPHAS[0]))
    statistic = _bare_statistic(mapped, loss, row)
    constant = problem.linear(problem.constant())
    assert held.w is not None
    assert held.label is not None
    codes = held.label

    def descend(alpha: float, start: Coefficients | None) -> Coefficients:
        at = replace(problem, alpha=alpha)
        *_, last = follow_corners(
            _sums_over(train), statistic, at, start or constant, unit=1.0, tol=0.03, max_passes=40
        )
        return problem.linear(last.point.theta)

    def held_losses(linear: Coefficients) -> Float64:
        return loss.value(_predict(mapped, linear, held.x), codes)

    return _walk(descend, held_losses, held.w)


def _smooth_path(
    problem: PenalisedClasses, train: KeptFeatures, held: KeptFeatures
) -> tuple[Float64, dict[int, Coefficients]]:
    """The walk of a smooth loss: each fit is near the least loss.

    One factor of κG + α serves until α/κ has changed by more than :data:`FACTOR`.
    """
    loss, curvature = problem.loss, problem.curvature_at_start()
    factor: tuple[float, float, Metric] | None = None

    def descend(alpha: float, start: Coefficients | None) -> Coefficients:
        nonlocal curvature, factor
        at = replace(problem, alpha=alpha)
        if factor is None or not 1 / FACTOR < factor[0] * curvature / alpha < FACTOR:
            factor = alpha / curvature, curvature, at.bound(curvature, train.dtype)
        of, solve = factor[1:]
        size = of / curvature
        *_, last = descents_of_kept(
            train, at, start, tol=TOL, max_passes=PASSES,
            metric=lambda gradient: size * solve(gradient),
        )  # fmt: skip
        linear = problem.linear(last.point.theta)
        curvature = train.mean_curvature(loss, train.scores(*linear))
        return linear

    return _walk(descend, partial(held.losses, loss), held.w)


def _bare_statistic(features: FeatureMap, loss: Loss, row: AugmentedRow) -> LossStatistic:
    """What sums a loss of numbered classes and its Hessian; its coefficients are not set."""
    nothing, labels = np.empty((features.n_components, 0)), tuple(range(loss.n_classes))
    return LossStatistic(features, loss, labels, nothing, np.empty(0), (), None, row)


def choose_spread(
    features: FeatureMap,
    row: AugmentedRow,
    pilot: Pilot,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
    alpha: float,
    n_draws: int,
) -> float:
    """The spread τ of the Laplace posterior of least held-out loss on pilot rows, 0 to 1.

    0 is the fit itself. Classes that are told apart without error ask for a narrow posterior,
    classes that overlap for that of the textbook, 1.

    Notes
    -----
    Looks at leading features whose H has at most 2,048 columns, as :func:`choose_alpha` at rows.
    """
    x, codes, w = _classes_of(pilot, class_weight)
    size = features.n_components
    if features.nesting != "none":
        n_scores = 1 if loss.n_classes == 2 else loss.n_classes
        size = min(size, max(MOST_COMPONENTS // n_scores, 2))
    leading, losses = row.leading(size), np.zeros(len(SPREADS))
    statistic = _bare_statistic(_IdentityMap(size), loss, leading)
    for turn in _turns(x):
        train, held = (_leading_rows(features, size, x[at], codes[at], w[at]) for at in turn)
        kept = KeptFeatures(train.x.astype(np.float64), codes[turn[0]], w[turn[0]], loss.n_classes)
        problem = kept.penalise(leading.prior, loss, alpha)
        *_, last = descents_of_kept(kept, problem, tol=TOL, max_passes=PASSES)
        theta = last.point.theta
        found = _sums_over(train)(with_curvatures(statistic, leading, *problem.linear(theta)))
        functions = laplace_functions(
            problem, theta, found.curvatures, n_draws=n_draws, rng=np.random.default_rng(0)
        )
        scores = functions(held.x)
        mean = scores.mean(axis=0)
        for i, spread in enumerate(SPREADS):
            odds = average_log_odds(mean + spread * (scores - mean))
            losses[i] += float(w[turn[1]] @ loss.value(odds, codes[turn[1]]))
    return float(SPREADS[np.argmin(losses)])


def with_curvatures(
    statistic: LossStatistic, row: AugmentedRow, coef: Float64, intercept: Float64
) -> LossStatistic:
    """What sums the curvatures of all pairs of classes at these coefficients."""
    loss: Any = statistic.loss
    if loss.n_classes > 2:
        loss = MultinomialPairs(loss.n_classes)
    return replace(
        statistic,
        loss=loss,
        coef=np.hstack([coef, np.zeros_like(coef)]),
        intercept=np.concatenate([intercept, np.zeros_like(intercept)]),
        steps=(0.0,),
        row=row,
    )


def _sums_over(rows: Rows) -> Any:
    """A statistic -> its sum over rows in memory."""

    def sums(statistic: LossStatistic) -> Any:
        sink = statistic.start()
        sink.add(rows, np.arange(len(rows.x)))
        return sink.result()

    return sums
