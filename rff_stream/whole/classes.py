"""Classifiers on columns of the whole space: least squares from moments, or a loss by descent."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.class_leave_one_out import (
    HeldOutScores,
    LinearClassifier,
    Sampled,
    almost_left_out,
    calibrate_linear,
    least_squares,
    sample_classes,
    squared_by_folds,
)
from rff_stream.answers.laplace import check_width, drawn_log_odds, laplace_functions
from rff_stream.answers.penalty_selection import Selection
from rff_stream.answers.posterior import Functions
from rff_stream.answers.ridge import ridge
from rff_stream.contracts import Slopes, Statistic
from rff_stream.descents.held_out_penalty import (
    MOST_HELD_OUT,
    choose_alpha,
    choose_spread,
    held_out_of_pilot,
    held_out_scores,
    with_curvatures,
)
from rff_stream.descents.kept_rows import KeptFeatures, descents_of_kept
from rff_stream.descents.sample_fits import Coefficients
from rff_stream.descents.statistic import (
    FEW_FEATURES,
    LEAST_TOL,
    LossStatistic,
    descents,
    minimise_nonsmooth,
)
from rff_stream.errors import warn
from rff_stream.execution.scheduler import thread_count
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import draw_whole
from rff_stream.families.maps import small_data_context
from rff_stream.families.protocol import Descended, LossRequest, MapParameters, SumRequest, Totals
from rff_stream.features import FeatureMap
from rff_stream.features.base import BATCH_ROWS
from rff_stream.losses.classification import Hinge, SquaredHinge
from rff_stream.losses.descent import Descent
from rff_stream.losses.penalised import Penalised, PenalisedClasses, loss_at_constant, penalise
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.predictors import AnswerPredictor, LinearPredictor
from rff_stream.statistics.moment_statistics import ClassStatistic, MomentStatistic
from rff_stream.stored_fields import NOT_STORED, pack_fields, stored, unpack_fields
from rff_stream.systems.normal_equations import System

logger = logging.getLogger("rff_stream")

MARGIN = 0.25
"""Rounding of the hinge for scores without a row: the hinge itself curves at the margin only."""

DRAWS = 200
"""Drawn in pairs θ̂ ± δ: a probability is then within about .01 of the average over all."""


@dataclass(frozen=True, slots=True, eq=False)
class Laplace:
    """A posterior of coefficients, as scores that were drawn from it.

    Parameters
    ----------
    coef, intercept : (S, R, K), (S, K) float64
    spread : float
        τ; 1 is the posterior.
    """

    coef: Float64 = field(metadata=stored("draws"))
    intercept: Float64 = field(metadata=stored("draw_intercepts"))
    spread: float = field(metadata=stored("laplace"))

    @property
    def draws(self) -> Functions:
        """The scores as functions of feature rows."""
        return Functions(self.coef, self.intercept)


@dataclass(frozen=True, slots=True, eq=False)
class LinearLogOdds:
    """Log-odds that are linear in feature columns.

    Its methods are those of :class:`~rff_stream.families.protocol.LogOdds`.
    """

    features: FeatureMap = field(metadata=NOT_STORED)
    linear: LinearClassifier
    support: Float64 | None = None
    """(3, K), for the hinge: the share of the sampled rows on or short of their margin, and the
    log-odds of its margins −1 and 1."""
    laplace: Laplace | None = None  # probabilities are averaged over it

    def predictor(self) -> LinearPredictor | AnswerPredictor:
        if self.laplace is not None:
            draws = self.laplace.draws
            odds = functools.partial(drawn_log_odds, draws)
            return AnswerPredictor(self.features, odds, draws.intercept.shape[1], BATCH_ROWS)
        return LinearPredictor(self.features, self.linear.coef, self.linear.intercept)

    def slopes(self) -> Slopes:
        return functools.partial(self.features.slopes, weights=self.linear.coef)

    def attributes(self) -> dict[str, Any]:
        """β, μ, α and df; the scores of every α where it was chosen."""
        linear = self.linear
        one = linear.coef.shape[1] == 1
        found = {
            "coef_": linear.coef[:, 0] if one else linear.coef,
            "intercept_": float(linear.intercept[0]) if one else linear.intercept,
            "alpha_": linear.alpha,
            "df_": linear.df,
        }
        if self.support is not None:
            share, margins = self.support[0], self.support[1:]
            found["support_share_"] = float(share[0]) if one else share
            found["margins_"] = margins[:, 0] if one else margins
        if self.laplace is not None:
            found["laplace_"] = self.laplace.spread
        return found if linear.selection is None else found | {"selection_": linear.selection}

    def arrays(self) -> dict[str, Array]:
        """The same without the scores."""
        return pack_fields(self)[1]


@dataclass(frozen=True, slots=True)
class WholeClasses:
    """One-hot classes as targets of the moments, or gradients of a loss.

    See :class:`~rff_stream.families.protocol.ClassFamily`.
    """

    def check(self, loss: str, alpha: float | str) -> None:
        """Every loss has an answer."""

    def draw(
        self, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """A map for a kernel found on the pilot; two classes are one target."""
        two = pilot.y.shape[1] == 2
        targets = pilot.with_targets(pilot.y[:, 1:]) if two else pilot
        features, length_scale = draw_whole(targets, inputs, parameters)
        return features, {"length_scale": np.asarray(length_scale)}

    def statistic(self, request: SumRequest) -> Statistic:
        sums, context = request.plan.sums, small_data_context(request)
        of_rows = MomentStatistic(
            request.features,
            request.row,
            2,
            sums,
            request.sample_rows,
            request.n_places,
            context=context,
        )
        return ClassStatistic(of_rows, request.labels)

    def least_squares(
        self, totals: Totals, class_weight: Mapping[Any, float], alpha: float | str
    ) -> LinearLogOdds:
        features, total = totals.features, totals.total
        if alpha == "cv":
            samples = {
                fold: sample_classes(part, features, class_weight)
                for fold, part in totals.groups.items()
            }
            linear = squared_by_folds(total, totals.groups, samples)
        else:
            given = None if isinstance(alpha, str) else float(alpha)
            linear = least_squares(total, sample_classes(total, features, class_weight), given)
        return LinearLogOdds(features, linear)

    def least_loss(self, request: LossRequest) -> Descended:
        """Passes over the rows until the loss is least."""
        if request.laplace is not None:
            count = len(request.classes.labels)
            check_width(request.features.n_components, 1 if count == 2 else count)
        alpha, selection, near, guide = _penalty(request)
        start = near if request.start is None else request.start
        sample = None
        if isinstance(request.loss, SquaredHinge | Hinge):  # its scores are no log-odds
            sample = sample_classes(request.classes, request.features, request.class_weight)
        problem, state, held_out = _descent(request, alpha, start, guide, sample)
        coef, intercept = problem.linear(state.point.theta)
        linear, supports = LinearClassifier(coef, intercept, alpha, np.nan, selection), None
        laplace = _laplace(request, problem, state.point.theta)
        if sample is not None:
            raw, held_out = linear, held_out or _held_out(request, state, linear, sample)
            linear = calibrate_linear(raw, held_out)
            supports = _supports(request, sample, raw, linear)
        _warn_of_slow(request, state, problem)
        return Descended(
            LinearLogOdds(request.features, linear, supports, laplace),
            passes=state.passes
            + (start is not None and not request.loss.nonsmooth)  # the loss there is a read, too
            + (laplace is not None and laplace.spread > 0),
            converged=state.converged,
            objective=tuple(value / problem.system.weight for value in state.history),
            last=(coef, intercept),
        )

    def restore(self, features: Any, arrays: Mapping[str, Array]) -> LinearLogOdds:
        return unpack_fields(LinearLogOdds, {}, arrays, features=features)


def _penalty(
    request: LossRequest,
) -> tuple[float, Selection | None, Coefficients | None, System | None]:
    """The penalty given, or the best on pilot rows with a fit of them and what guided it."""
    if request.penalty is not None:
        return request.penalty, None, None, None
    weights = _numbered_weights(request)
    found, near, guide = choose_alpha(
        request.features, request.row, request.pilot, request.loss, weights
    )
    return found.best.alpha, found, near, guide


def _numbered_weights(request: LossRequest) -> dict[int, float]:
    """Weights of classes by their number."""
    labels = request.classes.labels
    return {i: request.class_weight.get(label, 1.0) for i, label in enumerate(labels)}


def _statistic(request: LossRequest) -> LossStatistic:
    """What sums the loss; its coefficients are not set."""
    features, loss = request.features, request.loss
    nothing = np.empty((features.n_components, 0))
    newton = request.row if loss.n_classes == 2 or loss.nonsmooth else None
    weights = dict(request.written_weight)
    return LossStatistic(
        features, loss, request.written, nothing, np.empty(0), (), weights, newton, request.sums
    )


def _laplace(request: LossRequest, problem: Penalised, theta: Float64) -> Laplace | None:
    """Scores drawn from the Laplace posterior: one pass sums the curvatures at θ̂."""
    if request.laplace is None:
        return None
    spread = request.laplace
    if isinstance(spread, str):
        spread = choose_spread(
            request.features, request.row, request.pilot, request.loss, _numbered_weights(request),
            problem.alpha, DRAWS,
        )  # fmt: skip
    if spread == 0:  # the fit itself
        coef, intercept = problem.linear(theta)
        return Laplace(coef[None], intercept[None], 0.0)
    statistic = with_curvatures(_statistic(request), request.row, *problem.linear(theta))
    curvatures = request.passes(statistic).curvatures
    draws = laplace_functions(
        problem, theta, curvatures, n_draws=DRAWS, rng=np.random.default_rng(0), spread=spread
    )
    return Laplace(draws.coef, draws.intercept, spread)


def _descent(
    request: LossRequest,
    alpha: float,
    start: Coefficients | None,
    guide: System | None,
    sample: Sampled | None,
) -> tuple[PenalisedClasses, Descent, HeldOutScores | None]:
    """The problem, the last state of its descent and, of many kept rows, held-out scores."""
    unit, loss = _unit(request), request.loss
    exact = loss.n_classes == 2 and request.tol * unit**0.5 < LEAST_TOL
    if request.kept is None or exact:  # Newton's steps are worth it
        problem = penalise(request.classes, loss, alpha)
        return problem, _last(request, _states(request, problem, start, unit), unit), None
    tol, held_out = request.tol * unit**0.5, None
    single = tol >= LEAST_TOL and request.features.n_components > FEW_FEATURES
    with single_threaded_blas(), ThreadPoolExecutor(thread_count()) as pool:
        rows = request.kept()
        kept = KeptFeatures.of(
            request.features, rows, loss.n_classes, "float32" if single else "float64", pool.map
        )
        problem = kept.penalise(request.row.prior, loss, alpha, guide)
        states = descents_of_kept(kept, problem, start, tol=tol, max_passes=request.max_passes)
        state = _last(request, states, unit)
        if sample is not None and not _are_few(request):
            held_out = held_out_scores(
                kept, problem, problem.linear(state.point.theta), rows[0],
                _numbered_weights(request), tol=tol, copies=sample.held.number is not None,
            )  # fmt: skip
    return problem, state, held_out


def _are_few(request: LossRequest) -> bool:
    """Whether the pilot holds all rows, copies as one, and all of them are looked at."""
    n_rows = request.pilot.without_copies(request.classes.moments.n)
    return n_rows <= min(len(request.pilot.x), MOST_HELD_OUT)


def _held_out(
    request: LossRequest, state: Descent, linear: LinearClassifier, sample: Sampled
) -> HeldOutScores:
    """Scores of pilot rows by fits to others of them; of many rows, nearly those of a hinge."""
    loss = request.loss
    if _are_few(request) or not isinstance(loss, Hinge):
        return held_out_of_pilot(
            request.features, request.row, request.pilot, loss, _numbered_weights(request),
            linear.alpha, (linear.coef, linear.intercept), request.tol * _unit(request) ** 0.5,
        )  # fmt: skip
    problem = penalise(request.classes, loss, linear.alpha)
    wide = loss.with_width(MARGIN)
    return sample.scored(almost_left_out(problem, wide, state.point, sample))


def _last(request: LossRequest, states: Iterator[Descent], unit: float) -> Descent:
    """The last of the states."""
    for state in states:
        if request.progress:
            weight = request.classes.weight
            logger.info(
                "pass %d: mean loss %.6f, decrement %.2g (stops at %.2g)",
                state.passes, state.point.value / weight, state.decrement / weight**0.5,
                request.tol * unit**0.5,
            )  # fmt: skip
    return state


def _states(
    request: LossRequest, problem: PenalisedClasses, start: Coefficients | None, unit: float
) -> Iterator[Descent]:
    """Descents that read the rows; those of the hinge begin at the least-squares scores ±1."""
    statistic, most = _statistic(request), request.max_passes
    if not request.loss.nonsmooth:
        tol = request.tol * unit**0.5
        return descents(request.passes, statistic, problem, start, tol=tol, max_passes=most)
    if start is None:
        least = ridge(request.classes.moments, problem.alpha, floor="raise_silently")
        start = 2 * least.coef, 2 * least.intercept - 1
        if request.loss.n_classes == 2:
            start = start[0][:, 1:], start[1][1:]
    return minimise_nonsmooth(
        request.passes, statistic, problem, start, unit=1.0, tol=request.tol, max_passes=most
    )


def _unit(request: LossRequest) -> float:
    """The mean loss of the best constant: what tolerances are shares of; 1 for the hinge."""
    if request.loss.nonsmooth:
        return 1.0
    return loss_at_constant(request.loss, request.classes.weights)


def _supports(
    request: LossRequest, sample: Sampled, raw: LinearClassifier, linear: LinearClassifier
) -> Float64 | None:
    """Share (K,) of the sample's weight that holds the hinge's fit, and its margins as log-odds."""
    loss = request.loss
    if not isinstance(loss, Hinge):
        return None
    F = sample.Z @ raw.coef + raw.intercept
    held = loss.with_width(request.tol**2 / 2).supports(F, sample.codes)
    share = sample.weights @ held / sample.weights.sum()
    slope = np.vdot(raw.coef, linear.coef) / np.vdot(raw.coef, raw.coef)
    centre = linear.intercept - slope * raw.intercept
    return np.stack([share, centre - slope, centre + slope])


def _warn_of_slow(request: LossRequest, state: Descent, problem: PenalisedClasses) -> None:
    """Warn where the passes ended before the descent did."""
    if state.converged:
        return
    from sklearn.exceptions import ConvergenceWarning

    share = state.decrement / (problem.system.weight * _unit(request)) ** 0.5
    warn(
        f"After max_passes={request.max_passes} the decrement is {share:.2g}, above "
        f"tol={request.tol:.2g}. Set warm_start=True and fit again, raise "
        "max_passes, or raise alpha.",
        ConvergenceWarning,
    )
