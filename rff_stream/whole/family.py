"""Columns of the whole space: one map, one matrix of second moments, a linear model of columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rff_stream._array import Array, Float64, add_to_diagonals
from rff_stream.answers.dual import ridge_of_rows
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.answers.evidence import evidence, evidence_at
from rff_stream.answers.penalty_selection import HIGHEST, Selection, cross_validate, gcv
from rff_stream.answers.posterior import Posterior
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.costs import WholeCost
from rff_stream.errors import NumericalWarning, warn
from rff_stream.execution import Reading
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import draw_whole
from rff_stream.families.linear_answer import LinearAnswer
from rff_stream.families.maps import n_columns, n_entries, seconds_of_search, small_data_context
from rff_stream.families.metric import columns_of_metric
from rff_stream.families.parameters import check_map_for, number_or_array
from rff_stream.families.protocol import (
    ONE_KERNEL,
    WHOLE,
    ClassFamily,
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
)
from rff_stream.families.windows_of_pilot import seconds_of_windows
from rff_stream.features import FeatureMap
from rff_stream.features.base import BATCH_ROWS
from rff_stream.leaf_layout import n_rows_of
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import accumulate, resolve_sums
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.planning import PlanRequest
from rff_stream.predictors import AnswerPredictor, FunctionPredictor, LinearPredictor, SideBySide
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source
from rff_stream.statistics.moment_statistics import MomentStatistic
from rff_stream.stored_fields import pack_fields, unpack_fields
from rff_stream.systems.spectrum import Floor, warn_at_floor
from rff_stream.whole.classes import WholeClasses
from rff_stream.whole.gap_remedy import CheckRows, safe_alpha, safe_evidence

FEWEST_IN_FOLD = 10
"""Rows of a fold below which cross-validation says little: of 40 rows the penalties that it chose
ranged from 1e-3 to 3e-1 over 16 seeds, and 3 of them doubled the error."""

FEWEST_OF_GCV = 50
"""The same of rows in all for generalised cross-validation: of 3 sets of 40 rows one had 3 times
the error."""

FLOOR_A_ROW = 4e-9
"""A penalty below this times n is near η of float32 sums: η/n was 3e-9 at 50,000 rows, 6e-10 at
a million, and what is rounded is felt before α reaches η."""


@dataclass(frozen=True, slots=True, eq=False)
class ProcessAnswer:
    """A Gaussian process in the space of the features.

    Its methods are those of a :class:`~rff_stream.families.protocol.Process`.
    """

    linear: LinearAnswer  # its mean
    posterior: Posterior
    noise_variance: Float64  # (T,)
    signal_variance: Float64  # (T,)
    log_marginal_likelihood: Float64  # (T,)

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return self.linear.target_origin

    def mean(self) -> LinearPredictor:
        return self.linear.mean()

    def slopes(self) -> Slopes:
        return self.linear.slopes()

    def variances(self) -> RowFunction:
        width = 2 * len(self.posterior.intercept)
        return AnswerPredictor(self.linear.features, self.posterior.variances, width, BATCH_ROWS)

    def mean_and_variances(self) -> RowFunction:
        return SideBySide((self.mean(), self.variances()))

    @property
    def misfit_variance(self) -> Float64 | float:
        """Variance (T,) of f that the columns cannot represent: equal at all rows, independent."""
        return 0.0 if self.posterior.misfit is None else self.posterior.misfit

    def covariance(self, x: Array, noise: bool) -> Float64:
        found = self.posterior.covariance(self.linear.features(x).astype(np.float64))
        add_to_diagonals(found, self.posterior.row_noise if noise else self.misfit_variance)
        return found

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        functions = self.posterior.functions(n_samples, np.random.default_rng(seed))
        return FunctionPredictor(self.linear.features, functions, self.posterior.misfit, seed)

    def leave_one_out(self, sample: Float64) -> Float64:
        d = self.linear.features.n_inputs
        x, y, w = sample[:, :d], sample[:, d:-1], sample[:, -1]
        Z = self.linear.features(x).astype(np.float64)
        return self.posterior.leave_one_out(Z, y, w)

    def left_out(self, sample: Float64) -> LeftOut:
        return LeftOut.of_process(self, sample)

    def state(self, tests: Sequence[Moments], n_rows: int, fraction: float) -> HeldOutError:
        return self.linear.state(tests, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the mean, the posterior, and the variances with their evidence."""
        return self.linear.attributes(flat) | {
            "posterior_": self.posterior,
            "noise_variance_": number_or_array(self.posterior.row_noise, flat),
            "signal_variance_": number_or_array(self.signal_variance, flat),
            "log_marginal_likelihood_": number_or_array(self.log_marginal_likelihood, flat),
            "misfit_variance_": number_or_array(
                np.broadcast_to(self.misfit_variance, self.noise_variance.shape), flat
            ),
        }

    def pack(self) -> Packed:
        """The same; the posterior by its eigenvectors."""
        return Packed(*pack_fields(self))


@dataclass(frozen=True, slots=True)
class WholeFamily(Family):
    """Any :class:`~rff_stream.features.base.FeatureMap` with its :class:`~rff_stream.Moments`."""

    name: ClassVar[str | None] = WHOLE
    kinds: ClassVar[tuple[type, ...]] = ()  # what no other family takes
    refuses: ClassVar[Mapping[str, str]] = {"with_kernel": ONE_KERNEL}
    classes: ClassVar[ClassFamily | None] = WholeClasses()

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        d = columns_of_metric(parameters.metric, n_inputs)
        check_map_for(parameters.features, parameters.kernels, d)

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        size = n_columns(features, n_components)
        return PlanRequest(WholeCost(size, n_entries(features, size)))

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        count = len(parameters.kernels.named)
        if parameters.finds_metric:
            seconds = seconds_of_windows(count, n_rows)
            seconds += seconds_of_search(1, n_rows, ard=False)
        elif parameters.is_named and parameters.kernels.searched:
            seconds = seconds_of_search(count, n_rows, ard=parameters.kernels.rule == "ard")
            asked = parameters.asked_seconds  # of a search by one map there is no other limit
            return replace(request, search_seconds=seconds, search_limit=asked)
        else:
            return request
        return replace(request, search_seconds=seconds)

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        pilot = reading.pilot(parameters.seed)
        n_rows = round(n_rows_of(reading.source) * pilot.valid)
        searched = parameters.searched or pilot

        def with_trend(features: FeatureMap, plain: Pilot) -> FeatureMap:
            return _with_trend(features, parameters, n_rows, plain)

        features, length_scale = draw_whole(searched, columns.inputs, parameters, with_trend)
        with single_threaded_blas():
            row = augmented_row(features, pilot, columns.inputs, columns.targets, columns.units)
            scales = {"length_scale": np.asarray(length_scale)}
            if _needs_float64(parameters, n_rows, pilot, features, row):
                scales["float64_sums"] = np.ones(1)
        return DrawnMap(features, row, scales)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        with single_threaded_blas():
            return augmented_row(features, pilot, columns.inputs, columns.targets, columns.units)

    def statistic(self, request: SumRequest) -> Statistic:
        plan = request.plan
        return MomentStatistic(
            request.features, request.row, plan.order, plan.sums, request.sample_rows,
            request.n_places, plan.n_groups, context=small_data_context(request),
        )  # fmt: skip

    def zero(self, features: Any, row: AugmentedRow, order: int) -> Moments:
        return Moments.zero(row, order)

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> LinearAnswer | ProcessAnswer:
        if variances:
            return _process(totals, alpha, fit_intercept)
        return _ridge(totals, alpha, fit_intercept, refine)

    def restore(self, stored: StoredAnswer, *, variances: bool) -> LinearAnswer | ProcessAnswer:
        kind: type[Any] = ProcessAnswer if variances else LinearAnswer
        found: LinearAnswer | ProcessAnswer = unpack_fields(
            kind, {}, stored.arrays, features=stored.features
        )
        return found


def _ridge(totals: Totals, alpha: Any, fit_intercept: bool, refine: int) -> LinearAnswer:
    """Ridge regression; steps on the exact system follow, so it may begin near α = 0."""
    moments, selection = totals.total, None
    if isinstance(alpha, str) and alpha == "evidence":
        found = safe_evidence(totals.features, moments, fit_intercept=fit_intercept)
        solved = found.ridge()
    else:
        chosen, selection = _penalty(totals, alpha, fit_intercept, refine)
        floor: Floor = "raise_silently" if refine else "raise_alpha"
        solved = ridge_of_rows(moments, chosen, fit_intercept=fit_intercept, floor=floor)
    return LinearAnswer.of(totals.features, solved, moments.row.target_origin, selection)


def _process(totals: Totals, alpha: Any, fit_intercept: bool) -> ProcessAnswer:
    """The process at an α, or at that of highest evidence."""
    moments = totals.total
    if isinstance(alpha, str):
        found = safe_evidence(totals.features, moments, fit_intercept=fit_intercept)
    else:
        found = evidence_at(moments, alpha, fit_intercept=fit_intercept)
    posterior = _with_misfit(found.posterior(), totals.features, moments)
    linear = LinearAnswer(
        totals.features, posterior.coef, posterior.intercept, found.alpha, found.df,
        moments.row.target_origin,
    )  # fmt: skip
    return ProcessAnswer(
        linear, posterior, found.noise_variance, found.signal_variance, found.log_evidence
    )


def _with_trend(
    features: FeatureMap, parameters: MapParameters, n_rows: int, pilot: Pilot
) -> FeatureMap:
    """The map, with nearly linear columns where length-scales were found and blocks ask for it."""
    found = parameters.is_named and parameters.kernels.searched
    if not (found and isinstance(parameters.penalty, str)):
        return features
    return CheckRows.of(pilot).with_trend(features, float(n_rows))


def _with_misfit(posterior: Posterior, features: FeatureMap, moments: Moments) -> Posterior:
    """The posterior with the variance of f that its columns cannot follow, where there is some."""
    rows, d = moments.sample.rows, len(moments.row.inputs)
    if not len(rows) or not (posterior.noise_variance > 0).all():
        return posterior
    pilot = Pilot(rows[:, :d], rows[:, d:-1], rows[:, -1], moments.row.inputs)
    x = (pilot.x - pilot.origin) / pilot.scale
    found = posterior.find_misfit(features(pilot.x).astype(np.float64), x, pilot.y, pilot.w)
    return replace(posterior, misfit=found) if found.any() else posterior


def _penalty(
    totals: Totals, alpha: Any, fit_intercept: bool, refine: int
) -> tuple[Float64 | float, Selection | None]:
    """The penalty given, or the best of each target by the criterion named."""
    if not isinstance(alpha, str):
        return alpha, None
    moments: Moments = totals.total
    sizes = [moments.row.n_features]
    if alpha == "gcv":
        found = gcv(moments, sizes=sizes, fit_intercept=fit_intercept)
    else:
        found = cross_validate(totals.groups, sizes=sizes, fit_intercept=fit_intercept)
    parts = list(totals.groups.values()) if alpha == "cv" else [moments]
    _warn_of_few_rows(alpha, [part.n for part in parts], sizes[0])
    targets = range(moments.row.n_targets)
    best = np.array([found.of_target(t).best.alpha for t in targets])
    largest = float(found.alphas[-1] / HIGHEST)
    if not refine:  # its steps remove the rounding
        step = float(found.alphas[1] / found.alphas[0])
        warn_at_floor(best, float(found.eta[-1]), largest, moments.row.targets, slack=step)
    return safe_alpha(totals.features, moments, best, largest), found


def _warn_of_few_rows(alpha: str, n_rows: list[int], n_features: int) -> None:
    """Warn where a few rows, or folds of a few, choose a penalty for more columns than rows."""
    fewest = FEWEST_IN_FOLD if alpha == "cv" else FEWEST_OF_GCV
    if min(n_rows) < fewest and sum(n_rows) < n_features:
        folds = f"by folds of {min(n_rows)} rows, " if alpha == "cv" else "from "
        warn(
            f"alpha={alpha!r} chose {folds}{sum(n_rows)} {'in all' if alpha == 'cv' else 'rows'} "
            f"for {n_features} components: with other rows it may be a hundred times larger or "
            "smaller, with twice the error. alpha='evidence' uses all rows at once, or give alpha."
        )


def _needs_float64(
    parameters: MapParameters, n_rows: int, pilot: Pilot, features: FeatureMap, row: AugmentedRow
) -> bool:
    """Whether sums="auto" is float64 beyond its number of rows, for the pilot's penalty."""
    if parameters.sums != "auto" or resolve_sums("auto", int(n_rows)) == "float64":
        return False
    penalty = None if isinstance(parameters.penalty, str) else parameters.penalty
    return rounding_is_felt(pilot, features, row, n_rows, penalty)


def rounding_is_felt(
    pilot: Pilot,
    features: FeatureMap,
    row: AugmentedRow,
    weight: float,
    alpha: Array | float | None,
) -> bool:
    """Whether float32 sums would leave an η near the penalty of the answer.

    ``weight`` is Σw of all rows, such as n. An ``alpha`` that is None is that of highest evidence
    on the pilot's rows.
    """
    if alpha is None:
        seen = CheckRows.of(pilot)
        moments = accumulate(features, seen.x, seen.y, seen.w, row=row, sums="float64")
        if moments.n < 2:
            return True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)  # said of the fit itself
            alpha = evidence(moments).alpha
    return bool(np.min(alpha) < FLOOR_A_ROW * weight)


FAMILY = WholeFamily()
