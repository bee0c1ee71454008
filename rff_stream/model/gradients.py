"""M = Σ w ∇f∇fᵀ of a fitted model: of its row sample, or of rows that are read for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.sensitivity import redrawn_variance, variance_of_mark
from rff_stream.arguments import Rule, is_whole
from rff_stream.contracts import RowFunction
from rff_stream.errors import ModelError
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import coded_inputs, quantities
from rff_stream.features.normal_scores import normal_scores_of
from rff_stream.features.projection import projection_of
from rff_stream.model.fitted import Fitted
from rff_stream.model.predict import score_rows
from rff_stream.sources import Selection
from rff_stream.sources.levels import is_coded, places_by_variable
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.dependence import DependenceStatistic
from rff_stream.statistics.gradients import GradientProducts, GradientStatistic
from rff_stream.statistics.metric_step import MetricStepStatistic
from rff_stream.text_formatting import list_names

LEFT_OUT = 0.02
"""Directions are left out while their mean squared slopes are together at most this share of the
mean squared residual: for Gaussian inputs the error then rises by at most half of it (Poincaré)."""

MOST_OF_SCORES = 40
"""Largest number of entries of a row's scores where no number of directions is given."""

MOST_OF_STEP = 4096
"""Largest number of entries of the directions: their sums are its square, 128 MB."""


def gradient_statistic(model: Any, *, every: bool = False) -> GradientStatistic:
    """What a pass adds up of the slopes of a fitted model, by its inputs that are quantities.

    Levels are none: between them is no row, so nothing says what f is there. ``every`` takes all
    inputs.

    Raises
    ------
    ModelError
        For a model that fits no function of rows, or of levels alone.
    """
    fitted: Fitted = model._require_fit()
    answer, columns = fitted.answer, fitted.columns
    if not hasattr(answer, "slopes"):
        raise ModelError(
            f"{type(model).__name__} fits no function of rows, so it has no slopes. Use "
            "KernelRidge, GaussianProcessRegressor, KernelRegressor or KernelClassifier."
        )
    targets, variance = columns.targets, target_variance(fitted)
    if hasattr(answer, "classes"):  # scores have one unit
        several = len(answer.classes) > 2
        targets = tuple(map(str, answer.classes)) if several else columns.targets[:1]
        variance = np.ones(len(targets))
    reach = fitted.input_range
    origin = np.zeros(fitted.n_inputs) if reach is None else np.asarray(reach).mean(axis=0)
    scores = normal_scores_of(fitted.features)
    if scores is not None:
        origin = np.asarray(scores(origin[None]))[0]
    kept = list(range(fitted.n_inputs)) if every else with_slopes(columns.inputs)
    if not kept:
        raise ModelError(
            f"The inputs ({list_names(columns.inputs)}) are levels, and there is no slope by "
            "these. Use rs.inspect.sobol_indices."
        )
    inputs = tuple(columns.inputs[j] for j in kept)
    return GradientStatistic(
        answer.slopes(), inputs, targets, origin[kept], variance, scores, tuple(kept)
    )


def with_slopes(inputs: Sequence[str]) -> list[int]:
    """Places of quantities: no levels, and no marks of missing values."""
    first = {own[0] for name, own in places_by_variable(inputs).items() if name in inputs}
    return [place for place in quantities(inputs) if place in first]


def target_variance(fitted: Fitted) -> Float64:
    """Variances (T,) of the targets in the row sample; NaN where there is none."""
    rows, d = fitted.sampled_rows, fitted.n_inputs
    if not len(rows):
        return np.full(len(fitted.columns.targets), np.nan)
    y, w = rows[:, d:-1], rows[:, -1]
    return np.asarray(np.average((y - np.average(y, axis=0, weights=w)) ** 2, axis=0, weights=w))


def metric_statistic(model: Any, n_directions: int | None) -> MetricStepStatistic:
    """What a pass adds up to move the directions along which a fitted function changes.

    Raises
    ------
    ModelError
        For a model that fits no mean of targets, has no row sample, or changes along no direction.
    ValueError
        If so many directions there are not, or are too many for their sums.
    """
    fitted: Fitted = model._require_fit()
    answer, d = fitted.answer, fitted.n_inputs
    if not hasattr(answer, "mean") or hasattr(answer, "losses"):
        raise ModelError(
            f"{type(model).__name__} has no residuals of a mean, and directions are found by "
            "these. Use KernelRidge or GaussianProcessRegressor."
        )
    if normal_scores_of(fitted.features) is not None:
        raise ModelError(
            "This map compares inputs on other scales (normal scores of heavy tails, or a warp), "
            "and a matrix for the inputs themselves would not be one for these. Give inputs whose "
            "tails are not heavy, their logarithms say, or a length_scale, and fit again."
        )
    Rule(
        f"from 1 to {d}, the inputs", is_whole, lambda value: 1 <= value <= d, optional=True
    ).check("n_directions", n_directions)
    found, mean = of_sample(model, every=True), answer.mean()
    rows = fitted.sampled_rows
    x, y, w = rows[:, :d], rows[:, d:-1], rows[:, -1]
    variance = target_variance(fitted)
    varies = variance > 0
    if varies.any():
        several = len(found.targets) > 1
        M = found.standardised() / (1 if several else variance[0])
        values, vectors = np.linalg.eigh(M)
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    if not varies.any() or not values[0]:
        raise ModelError("The fitted function is constant: it changes along no direction.")
    with single_threaded_blas():
        residuals = np.average((y - mean(x)) ** 2, axis=0, weights=w)
    noise = (residuals[varies] / variance[varies]).sum()
    k = n_directions or max(int((np.cumsum(values[::-1])[::-1] > LEFT_OUT * noise).sum()), 1)
    if k * d > MOST_OF_STEP:
        raise ValueError(
            f"{k} directions of {d} inputs have {k * d:,} entries, but at most {MOST_OF_STEP:,} "
            f"are moved. Give n_directions={max(MOST_OF_STEP // d, 1)}."
        )
    return MetricStepStatistic(
        mean,
        answer.slopes(),
        found.inputs,
        found.targets,
        np.average(x, axis=0, weights=w),
        np.where(found.spread > 0, found.spread, 1.0),
        np.sqrt(np.where(varies, variance, np.inf)),
        _start(fitted, vectors[:, :k], values[:k], found.spread),
    )


def _start(fitted: Fitted, span: Float64, values: Float64, spread: Float64) -> Float64:
    """B (d, k): the metric of the fit along the leading directions; without one, these.

    A metric that was learnt says how far rows are apart along each direction; slopes do not: where
    a function waves twice as fast, they are as large for half the amplitude.
    """
    metric = projection_of(fitted.features)
    if metric is None:
        return np.asarray(span * np.sqrt(values))
    own = span.T @ (metric.matrix * spread[:, None])
    lengths, turn = np.linalg.eigh(own @ own.T)
    return np.asarray(span @ turn[:, ::-1] * np.sqrt(np.maximum(lengths[::-1], 0)))


def dependence_scores(model: Any, data: Selection, n_directions: int | None) -> Any:
    """Residuals against inputs and slopes by all rows; by group where groups are asked for.

    Without a number of directions, so many leading ones that some hundred rows are enough.
    """
    statistic = metric_statistic(model, n_directions)
    if n_directions is None:
        d, k = statistic.directions.shape
        most = max(MOST_OF_SCORES // d - 1, 1)
        statistic = replace(statistic, directions=statistic.directions[:, : min(k, most)])
    return score_rows(model, data, DependenceStatistic(statistic))


def metric_step(model: Any, data: Selection, n_directions: int | None) -> Any:
    """Their step by all rows, by one streamed pass; by group where groups are asked for."""
    inputs = model._require_fit().columns.inputs
    levels = [inputs[j] for j in coded_inputs(inputs)]
    if levels:
        raise ModelError(
            f"{list_names(levels)} holds numbers of levels, but a metric is a matrix for "
            "quantities. Fit without this column, or name the levels that matter: inputs=[…]."
        )
    return score_rows(model, data, metric_statistic(model, n_directions))


def of_sample(model: Any, *, every: bool = False) -> GradientProducts:
    """M of the row sample of a model, by quantities or by every input.

    Raises
    ------
    ModelError
        For a model that has none.
    """
    fitted: Fitted = model._require_fit()
    statistic = gradient_statistic(model, every=every)
    rows = fitted.need_sample("and slopes are those at rows", "Give X, or save with moments=True.")
    sink = statistic.start()
    with single_threaded_blas():
        x, y = rows[:, : fitted.n_inputs], np.empty((len(rows), 0))
        sink.add(Rows(x, y, rows[:, -1], None, 0), np.arange(len(rows)))
    found: GradientProducts = sink.result()
    return found


def of_rows(model: Any, data: Selection) -> Any:
    """M of all rows, by one streamed pass; by group where groups are asked for."""
    return score_rows(model, data, gradient_statistic(model), "none")


def importance(model: Any) -> dict[str, float]:
    """The share of each input in how the fitted function changes, over the row sample.

    That of a quantity is E(∂f/∂x_j)² Var x_j over the sum of all inputs: 0 for an input that f does
    not depend on, and for a constant f. Levels have no slope: a column of them has the mean
    variance of f where they are drawn again, and the mark "u=missing" that where some rows lose u.
    See :func:`rff_stream.inspect.gradient_outer_product`.

    Raises
    ------
    AttributeError
        Where there are no sampled rows, or no slopes: such a model has no such attribute.
    """
    try:
        return shares_of_inputs(model)
    except (ModelError, ValueError) as error:
        raise AttributeError(str(error)) from error


def shares_of_inputs(model: Any) -> dict[str, float]:
    """The same; the reason in an error where there are none."""
    fitted: Fitted = model._require_fit()
    inputs, found = fitted.columns.inputs, {}
    if with_slopes(inputs):
        products = of_sample(model)
        found = dict(zip(products.inputs, products.standardised().diagonal().tolist(), strict=True))
    variables = places_by_variable(inputs)
    drawn = {name: own for name, own in variables.items() if len(own) > 1 or is_coded(name)}
    if drawn:
        rows = fitted.need_sample("and levels are drawn from one", "Save with moments=True.")
        variance = gradient_statistic(model, every=True).variance
        unit = variance if len(variance) > 1 else np.ones(1)
        function, x = function_with_slopes(model), rows[:, : len(inputs)]
        fills = dict(fitted.columns.fills)
        with single_threaded_blas():
            for name, own in drawn.items():
                if name in fills and len(own) > 1:
                    key, moved = inputs[own[1]], variance_of_mark(function, x, own, fills[name])
                else:
                    key, moved = name, redrawn_variance(function, x, own)
                found[key] = float((moved / unit)[unit > 0].sum())
    total = sum(found.values())
    order = [name for name in (*variables, *inputs) if name in found]
    return {name: found[name] / total if total else 0.0 for name in dict.fromkeys(order)}


def function_of(model: Any) -> RowFunction:
    """x ↦ f, of a classifier its scores."""
    answer = model._require_fit().answer
    if not hasattr(answer, "mean") and not hasattr(answer, "log_odds"):
        raise ModelError(
            f"{type(model).__name__} fits no function of rows. Use KernelRidge, "
            "GaussianProcessRegressor, KernelRegressor or KernelClassifier."
        )
    found: RowFunction = answer.mean() if hasattr(answer, "mean") else answer.log_odds.predictor()
    return found


def has_log_link(model: Any) -> bool:
    """Whether the mean is the exponential of what is fitted, whose slopes are told."""
    losses = getattr(model._require_fit().answer, "losses", ())
    return any(loss.log_link for loss in losses)


def function_with_slopes(model: Any) -> Callable[[Array], Float64]:
    """x ↦ f (n, T), or its logarithm where slopes are those of it."""
    mean = function_of(model)
    return (lambda x: np.log(mean(x))) if has_log_link(model) else mean
