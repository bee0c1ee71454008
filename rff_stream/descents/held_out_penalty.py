"""The penalty of a loss of classes, chosen on pilot rows in memory without a pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import calibrate
from rff_stream.answers.class_leave_one_out import HeldOutScores
from rff_stream.answers.laplace import average_log_odds, laplace_functions
from rff_stream.answers.penalty_selection import Selection
from rff_stream.descents.kept_rows import KeptFeatures, ScoredPoint, descents_of_kept
from rff_stream.descents.sample_fits import (
    ALPHAS,
    FEW_COMPONENTS,
    MOST_COMPONENTS,
    TOL,
    Coefficients,
    IdentityMap,
    leading_features,
    leading_size,
    own_columns,
    predicted,
    selection_of,
    sums_over,
    turns_of,
)
from rff_stream.descents.statistic import FEW_FEATURES, LossStatistic, minimise_nonsmooth
from rff_stream.features.base import BATCH_ROWS, FeatureMap
from rff_stream.losses.classification import Loss, MultinomialPairs, loss_for
from rff_stream.losses.descent import Metric
from rff_stream.losses.penalised import PenalisedClasses, penalise
from rff_stream.moments import AugmentedRow
from rff_stream.moments.copies import group_copies
from rff_stream.pilot import Pilot, weight_unit
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import select
from rff_stream.statistics.moment_statistics import ClassStatistic, MomentStatistic
from rff_stream.systems.normal_equations import System

START = 4
"""Index of the first penalty that is tried: 0.1, for which scores of ±3 are likely."""

UNLIKELY, ROWS_A_COLUMN = 13, 2
"""Index of the first penalty, 3·10⁻⁶, for which scores beyond ±300 are likely; and rows for each
column that it takes. From it on each penalty must be better than the one before by a standard
error, or the search ends. Where few rows are told apart without error, scores grow without an end;
and of fewer rows than columns those held out have a say: one G guides the steps of all folds."""

SPREADS = np.array([0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0])
"""Scales of the Laplace posterior, from the fit alone (0) to the whole posterior (1)."""

MOST_HELD_OUT = 6000  # rows in a fit of each penalty: an error rate is known to .007

MET_AGAIN = 5
"""Mean number of copies from which a few different rows count as levels; with fewer they are
copies, which have the same effect as weights."""

PASSES = 6
"""Sufficient to compare penalties, too."""

ABRUPT_PASSES = 20
"""The same for the squared hinge, whose fits are not finished after six passes: their held-out
losses fell with α, while those of finished fits rose."""

FEW_TO_CALIBRATE = 20
"""Rows of a class below which their calibration tells more of these rows than of a penalty."""

LOOSE_TOL = 0.03
"""``tol`` of fits with corners whose held-out losses are compared."""

MOST_PASSES = 40
"""Passes for scores that are used for calibration."""

CLEAR = 3.0
"""Number of standard errors of the difference at which one rise of the held-out loss is enough
to stop."""

FACTOR = 4.0
"""Factor by which α/κ may change before κG + α is factored again: the factor only guides the
steps."""


def choose_alpha(
    features: FeatureMap,
    row: AugmentedRow,
    pilot: Pilot,
    loss: Loss,
    class_weight: Mapping[Any, float] | None,
) -> tuple[Selection, Coefficients | None, System | None]:
    """The α of least held-out loss on pilot rows: a quarter of them, or each quarter of few.

    Scores that are no log-odds are judged by their log-loss once calibrated, where each class has
    20 rows or more. For them, with few rows, α is the largest within one standard error of the
    best: that of the mean difference of the losses of held-out rows.

    Also the raw coefficients of a fit of pilot rows near it, where a descent may start, and the
    system that guided its steps; None where none did, and for a loss with corners. The pilot's y
    is one-hot, the row without targets, and rows are held out in turn along the pilot.

    α is the inverse prior variance of scores, so its best value hardly depends on n, nor on R
    once the kernel is near. Rows are mapped once: 47 MiB for 2,048 features, half as much again
    where each quarter is held out.
    """
    x, codes, w = _classes_of(pilot, class_weight)
    size, turns = leading_size(features), turns_of(_places(x), codes)
    alphas = ALPHAS[: None if len(x) >= ROWS_A_COLUMN * size else UNLIKELY] * weight_unit(w)
    counts = np.bincount(codes)
    calibrated = (loss.abrupt or loss.nonsmooth) and counts[counts > 0].min() >= FEW_TO_CALIBRATE
    what = "log-loss of calibrated scores" if calibrated else "loss"
    criterion = f"held-out {what} on pilot rows"
    if loss.nonsmooth:
        if features.nesting != "none":
            size = min(size, FEW_COMPONENTS)
        own, each = _columns_of_few_rows(
            row.leading(size), _leading_rows(features, size, x, codes, w)
        )
        nonsmooth = _nonsmooth_turns(own, loss, each, turns, calibrated=calibrated)
        scores, errors, _ = _walk(nonsmooth, w, turns, alphas)
        return selection_of(criterion, alphas, scores, size, errors), None, None
    order, spans = _spans(turns)
    z = leading_features(features, size, x[order], "float64" if size <= FEW_FEATURES else None)
    prior = row.leading(size).prior
    basis = None
    if len(x) < size:
        z, basis = own_columns(z[: len(x)], prior)
        z = z[np.arange(len(order)) % len(x)]
    rows = KeptFeatures(z, codes[order], w[order], loss.n_classes)
    every = rows.part(slice(len(x)))
    root = np.ones(z.shape[1]) if basis is not None else prior
    problem = every.penalise(root, loss, float(alphas[START]))
    parts = [(rows.part(train), rows.part(held)) for train, held in spans]
    smooth = _smooth_turns(every, root, problem, parts, calibrated=calibrated)
    several = loss.abrupt and len(turns) > 1  # early ends and few rows: more than one minimum
    scores, errors, fits = _walk(smooth, w, turns, alphas, every=several)
    found = selection_of(criterion, alphas, scores, size, errors if loss.abrupt else None)
    coef, intercept = fits[int(np.argmin(np.abs(alphas - found.best.alpha)))][-1].linear
    if basis is not None:
        coef = basis @ coef
    whole = np.zeros((features.n_components, len(intercept)))
    whole[:size] = coef
    return found, (whole, intercept), smooth.guide() if basis is None else None


def held_out_scores(
    kept: KeptFeatures,
    problem: PenalisedClasses,
    near: Coefficients,
    x: Array,
    class_weight: Mapping[int, float],
    *,
    tol: float,
    copies: bool,
) -> HeldOutScores:
    """Scores of rows x (n, d) by fits without them: of a quarter, or of each quarter of few.

    The fits start at ``near``, the fit to all rows, and end by its ``tol``: where a loss hardly
    curves, scores of fits that start elsewhere have another scale. ``copies`` of a row are held
    out together.
    """
    F = np.full((len(x), len(near[1])), np.nan)
    curvature = kept.mean_curvature(problem.loss, kept.scores(*near))
    turns = turns_of(_sorted_places(x, kept.w, copies=copies), kept.codes)
    metric = problem.bound(curvature * _share(kept.w, turns), kept.dtype)
    for train, held in turns:
        part = kept.weigh(kept.w * train)
        own = _over(problem, part)
        *_, last = descents_of_kept(part, own, near, tol=tol, max_passes=MOST_PASSES, metric=metric)
        F[held] = part.scores(*own.linear(last.point.theta))[held]
    return _of_known(F, kept.codes, kept.w, class_weight)


def held_out_of_pilot(
    features: FeatureMap,
    row: AugmentedRow,
    pilot: Pilot,
    loss: Loss,
    class_weight: Mapping[int, float],
    alpha: float,
    near: Coefficients,
    tol: float,
) -> HeldOutScores:
    """The same of pilot rows, all of the data or some of many, and of a loss with corners too.

    A hinge does not tell how far beyond its margin a row is, and beside a rare class nearly all
    rows are beyond it: their scores depend on where a descent begins and ends. With a share of
    .014, fits that began elsewhere had scores four times as wide, and mean probabilities of .07.
    """
    x, codes, w = _classes_of(pilot, class_weight)
    size, differ = leading_size(features), len(np.unique(x, axis=0))
    copies = group_copies(x) is not None or differ < len(x) < MET_AGAIN * differ
    own = row.leading(size)
    near = own.prior[0] / row.prior[0] * near[0][:size], near[1]
    if not loss.nonsmooth:
        z = leading_features(features, size, x, "float64" if size <= FEW_FEATURES else None)
        kept = KeptFeatures(z, codes, w, loss.n_classes)
        problem = kept.penalise(own.prior, loss, alpha)
        return held_out_scores(kept, problem, near, x, class_weight, tol=tol, copies=copies)
    rows = _leading_rows(features, size, x, codes, w)
    scores, (own, rows) = rows.x @ near[0], _columns_of_few_rows(own, rows)
    if own.n_features < size:
        near = linalg.solve_triangular(rows.x, scores, lower=True), near[1]
    F = np.full((len(x), len(near[1])), np.nan)
    for train, held in turns_of(_sorted_places(x, w, copies=copies), codes):
        linear = _nonsmooth_fits(own, loss, select(rows, train), tol)(alpha, near)
        F[held] = predicted(IdentityMap(own.n_features), linear, rows.x[held])
    return _of_known(F, codes, w, class_weight)


def _over(problem: PenalisedClasses, part: KeptFeatures) -> PenalisedClasses:
    """The objective over some of the rows; G of all guides the steps."""
    system = replace(problem.system, weight=float(part.w.sum()))
    return replace(problem, system=system, class_weights=part.class_weights)


def _of_known(
    F: Float64, codes: Array, w: Float64, class_weight: Mapping[int, float]
) -> HeldOutScores:
    """The rows whose turn came."""
    known = np.isfinite(F).all(axis=1)
    F, codes, w = F[known], codes[known], w[known]
    factor = np.array([class_weight[k] for k in sorted(class_weight)])
    counts = np.bincount(codes, w / factor[codes], len(factor)).astype(float)
    return HeldOutScores(F, codes, w, counts)


def _classes_of(
    pilot: Pilot, class_weight: Mapping[Any, float] | None
) -> tuple[Array, Array, Array]:
    """x, class numbers and weights > 0 of at most 6,000 pilot rows, each class by its weight."""
    step = -(-len(pilot.x) // MOST_HELD_OUT)
    x, codes, w = pilot.x[::step], pilot.y[::step].argmax(axis=1), pilot.w[::step]
    given = class_weight or {}
    w = w * np.array([given.get(k, 1.0) for k in range(pilot.y.shape[1])])[codes]
    return x[w > 0], codes[w > 0], w[w > 0]


def _places(x: Array) -> Array:
    """Places (n,) of rows in random order: their numbers, of copies that of the first of them."""
    number = group_copies(x)
    return np.arange(len(x)) if number is None else np.unique(number, return_inverse=True)[1]


def _sorted_places(x: Array, w: Array, *, copies: bool) -> Array:
    """Places (n,) of rows along one direction: whatever their order and, of copies, number."""
    some = slice(None, None, -(-len(x) // MOST_HELD_OUT))
    share = w[some] / w[some].sum()
    spread = np.sqrt(share @ (x[some] - share @ x[some]) ** 2)
    towards = np.random.default_rng(0).normal(size=x.shape[1]) / np.where(spread > 0, spread, 1.0)
    parts = (x[i : i + BATCH_ROWS] * towards for i in range(0, len(x), BATCH_ROWS))
    along = np.concatenate([part.sum(axis=1) for part in parts])  # the same bits for each copy
    if copies:
        return np.unique(along, return_inverse=True)[1]
    return np.argsort(np.argsort(along, kind="stable"))


def _share(w: Float64, turns: Sequence[tuple[Array, Array]]) -> float:
    """The part of the weight that is fitted in a turn, on average."""
    return float(np.mean([w[train].sum() for train, _ in turns]) / w.sum())


def _leading_rows(features: FeatureMap, size: int, x: Array, codes: Array, w: Array) -> Rows:
    """Labelled rows whose columns are their leading features."""
    z = leading_features(features, size, x)
    return Rows(z, np.empty((len(z), 0)), w, None, 0, codes)


def _columns_of_few_rows(row: AugmentedRow, rows: Rows) -> tuple[AugmentedRow, Rows]:
    """Where rows are fewer than columns: a column a row, with the same products of rows.

    The new columns are a lower triangle, of prior variance 1.
    """
    if len(rows.x) >= row.n_features:
        return row, rows
    z, _ = own_columns(rows.x, row.prior)
    ones, origin = np.ones(len(z)), z.mean(axis=0)
    own = replace(row, prior=ones, nesting="none", feature_origin=origin)
    return own, replace(rows, x=z)


def _spans(turns: Sequence[tuple[Array, Array]]) -> tuple[Array, list[tuple[slice, slice]]]:
    """An order of the n rows in which the fitted and the held-out rows of each turn are two slices.

    The held-out rows of each turn follow each other (of a single turn, its fitted rows come next);
    after all n rows the first of them stand once more, for turns whose fitted rows go round.
    """
    groups = [np.flatnonzero(held) for _, held in turns]
    if len(turns) == 1:
        groups.append(np.flatnonzero(turns[0][0]))
    order, ends = np.concatenate(groups + groups[:-2]), np.cumsum([len(rows) for rows in groups])
    n, spans = int(ends[-1]), list[tuple[slice, slice]]()
    for rows, end in zip(groups, ends.tolist(), strict=True):
        first = end % n
        spans.append((slice(first, first + n - len(rows)), slice(end - len(rows), end)))
    return order, spans[: len(turns)]


@dataclass(frozen=True, slots=True)
class _Fit:
    """Raw coefficients, and the point from which the fit of the next α starts."""

    linear: Coefficients
    point: ScoredPoint | None = None


@dataclass(frozen=True, slots=True)
class _Turns:
    """Fits of all turns at once: no penalty is looked at in one turn alone."""

    fit: Callable[[float, Sequence[_Fit | None]], list[_Fit]]  # (α, starts)
    losses: Callable[[Sequence[_Fit]], list[Float64]]  # of the held-out rows of each turn
    guide: Callable[[], System | None] = lambda: None  # what guided the steps so far


def _walk(
    of: _Turns,
    w: Float64,
    turns: Sequence[tuple[Array, Array]],
    alphas: Float64,
    *,
    every: bool = False,
) -> tuple[Float64, Float64, dict[int, list[_Fit]]]:
    """Mean held-out losses (turns, α) from the middle α on, NaN where none was looked at.

    Smaller penalties first, larger ones only where no smaller one is better; each way ends where
    the mean over turns has risen twice, or once by more than chance; or ``every`` penalty. Beside
    them the standard error (α,) of each mean's difference from the least, and the fits of the
    turns by the number of their α.
    """
    means, fits = np.full((len(turns), len(alphas)), np.nan), dict[int, list[_Fit]]()
    shares = [w[held] / w[held].sum() / len(turns) for _, held in turns]
    share, losses = np.concatenate(shares), dict[int, Float64]()

    def rise(i: int, j: int) -> tuple[float, float]:
        """How much larger the mean loss is at α number i than at j, and its standard error."""
        rises = losses[i] - losses[j]
        mean = float(share @ rises)
        return mean, float(np.sqrt(share**2 @ (rises - mean) ** 2))

    def walk(numbers: range, start: Sequence[_Fit | None], before: int | None) -> None:
        rises = 0
        for i in numbers:
            start = fits[i] = of.fit(float(alphas[i]), start)
            parts = of.losses(fits[i])
            means[:, i] = [len(turns) * own @ part for own, part in zip(shares, parts, strict=True)]
            losses[i] = np.concatenate(parts)
            mean, chance = (-1.0, 0.0) if before is None else rise(i, before)
            if i >= UNLIKELY and not mean < -chance:
                del losses[i], fits[i]
                means[:, i] = np.nan
                break
            rises, before = rises + 1 if mean > 0 else 0, i
            if not every and (rises == 2 or (rises and mean > CLEAR * chance)):
                break

    walk(range(START, len(alphas)), [None] * len(turns), None)
    if every or np.nanargmin(means.mean(axis=0)) == START:
        walk(range(START - 1, -1, -1), fits[START], START)
    best, errors = int(np.nanargmin(means.mean(axis=0))), np.full(len(alphas), np.nan)
    for i in losses:
        errors[i] = rise(i, best)[1]
    return means, errors, fits


def _nonsmooth_fits(
    row: AugmentedRow, loss: Loss, train: Rows, tol: float
) -> Callable[[float, Coefficients | None], Coefficients]:
    """(α, start) -> the fit of a loss with corners to rows that are features."""
    mapped, labels = IdentityMap(row.n_features), tuple(range(loss.n_classes))
    counted = ClassStatistic(MomentStatistic(mapped, row, 2, "float64", 0, 1), labels)
    problem = penalise(sums_over(train)(counted), loss, float(ALPHAS[0]))
    statistic = _bare_statistic(mapped, loss, row)
    constant = problem.linear(problem.constant())

    def descend(alpha: float, start: Coefficients | None) -> Coefficients:
        at = replace(problem, alpha=alpha)
        *_, last = minimise_nonsmooth(
            sums_over(train), statistic, at, start or constant,
            unit=1.0, tol=tol, max_passes=MOST_PASSES,
        )  # fmt: skip
        return problem.linear(last.point.theta)

    return descend


def _calibrated_losses(
    scores: Sequence[Float64], codes: Sequence[Array], weights: Sequence[Float64]
) -> list[Float64]:
    """Log-losses of held-out rows, whose scores are calibrated on all of them.

    Scores about margins have no scale: their own loss blames a fit for what calibration mends.
    """
    every, numbers = np.concatenate(scores), np.concatenate(codes)
    odds = calibrate(every, numbers, np.concatenate(weights))
    log_loss = loss_for("logistic", max(every.shape[1], 2))
    found = log_loss.value(odds(every), numbers)
    return np.split(found, np.cumsum([len(part) for part in scores])[:-1])


def _nonsmooth_turns(
    row: AugmentedRow,
    loss: Loss,
    rows: Rows,
    turns: Sequence[tuple[Array, Array]],
    *,
    calibrated: bool,
) -> _Turns:
    """A loss with corners on rows that are features: a Hessian for each step."""
    mapped, codes, w = IdentityMap(row.n_features), rows.label, rows.w
    assert codes is not None
    assert w is not None
    each = [_nonsmooth_fits(row, loss, select(rows, train), LOOSE_TOL) for train, _ in turns]

    def fit(alpha: float, starts: Sequence[_Fit | None]) -> list[_Fit]:
        pairs = zip(each, starts, strict=True)
        return [_Fit(own(alpha, start.linear if start else None)) for own, start in pairs]

    def losses(fits: Sequence[_Fit]) -> list[Float64]:
        pairs = zip(fits, turns, strict=True)
        scores = [predicted(mapped, fit.linear, rows.x[held]) for fit, (_, held) in pairs]
        numbers = [codes[held] for _, held in turns]
        if calibrated:
            return _calibrated_losses(scores, numbers, [w[held] for _, held in turns])
        return [loss.value(F, own) for F, own in zip(scores, numbers, strict=True)]

    return _Turns(fit, losses)


def _smooth_turns(
    every: KeptFeatures,
    prior: Array,
    problem: PenalisedClasses,
    turns: Sequence[tuple[KeptFeatures, KeptFeatures]],
    *,
    calibrated: bool = False,
) -> _Turns:
    """A smooth loss on features of fitted and held-out rows: each fit is near the least loss.

    G is summed at the first α that asks for it. One factor of κG + α serves all turns, until α/κ
    has changed by more than :data:`FACTOR`.
    """
    loss, weight = problem.loss, problem.system.weight
    passes = ABRUPT_PASSES if loss.abrupt else PASSES
    share = float(np.mean([train.w.sum() for train, _ in turns]) / weight)
    factor: tuple[float, float, Metric] | None = None

    def bend(starts: Sequence[ScoredPoint | None]) -> float:
        """The mean curvature at starts; without G it is not looked for."""
        if starts[0] is None or not problem.guided:
            return share * problem.curvature_at_start()
        pairs = zip(turns, starts, strict=True)
        return share * float(
            np.mean([train.mean_curvature(loss, at.scores) for (train, _), at in pairs if at])
        )

    def fit(alpha: float, before: Sequence[_Fit | None]) -> list[_Fit]:
        nonlocal problem, factor
        if not problem.guided and replace(problem, alpha=alpha).stiff:
            problem, factor = every.penalise(prior, loss, alpha), None
        starts = [fit.point if fit else None for fit in before]
        at, curvature = replace(problem, alpha=alpha), bend(starts)
        if factor is None or not 1 / FACTOR < factor[0] * curvature / alpha < FACTOR:
            factor = alpha / curvature, curvature, at.bound(curvature, every.dtype)
        of, solve = factor[1:]
        size, found = of / curvature, list[_Fit]()
        for (part, _), start in zip(turns, starts, strict=True):
            *_, last = descents_of_kept(
                part, _over(at, part), start, tol=TOL,
                max_passes=passes if at.guided else 2 * passes,
                metric=lambda gradient: size * solve(gradient),
            )  # fmt: skip
            assert isinstance(last.point, ScoredPoint)
            found.append(_Fit(problem.linear(last.point.theta), last.point))
        return found

    def losses(fits: Sequence[_Fit]) -> list[Float64]:
        pairs = zip(fits, turns, strict=True)
        if not calibrated:
            return [held.losses(loss, fit.linear) for fit, (_, held) in pairs]
        return _calibrated_losses(
            [np.asarray(held.scores(*fit.linear), np.float64) for fit, (_, held) in pairs],
            [held.codes for _, held in turns],
            [held.w for _, held in turns],
        )

    return _Turns(fit, losses, lambda: problem.system if problem.guided else None)


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
    statistic = _bare_statistic(IdentityMap(size), loss, leading)
    for turn in turns_of(_places(x), codes):
        train, held = (_leading_rows(features, size, x[at], codes[at], w[at]) for at in turn)
        kept = KeptFeatures(train.x.astype(np.float64), codes[turn[0]], w[turn[0]], loss.n_classes)
        problem = kept.penalise(leading.prior, loss, alpha)
        *_, last = descents_of_kept(kept, problem, tol=TOL, max_passes=PASSES)
        theta = last.point.theta
        found = sums_over(train)(with_curvatures(statistic, leading, *problem.linear(theta)))
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
