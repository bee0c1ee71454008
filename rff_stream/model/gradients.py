"""M = Σ w ∇f∇fᵀ of a fitted model: of its row sample, or of rows that are read for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import ModelError
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.features.normal_scores import normal_scores_of
from rff_stream.model.fitted import Fitted
from rff_stream.model.predict import score_rows
from rff_stream.sources import Selection
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.gradients import GradientProducts, GradientStatistic


def gradient_statistic(model: Any) -> GradientStatistic:
    """What a pass adds up of the slopes of a fitted model.

    Raises
    ------
    ModelError
        For a model that fits no function of rows.
    """
    fitted: Fitted = model._held()
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
    return GradientStatistic(answer.slopes(), columns.inputs, targets, origin, variance, scores)


def target_variance(fitted: Fitted) -> Float64:
    """Variances (T,) of the targets in the row sample; NaN where there is none."""
    rows, d = fitted.sampled_rows, fitted.n_inputs
    if not len(rows):
        return np.full(len(fitted.columns.targets), np.nan)
    y, w = rows[:, d:-1], rows[:, -1]
    return np.asarray(np.average((y - np.average(y, axis=0, weights=w)) ** 2, axis=0, weights=w))


def of_sample(model: Any) -> GradientProducts:
    """M of the row sample of a model.

    Raises
    ------
    ModelError
        For a model that has none.
    """
    fitted: Fitted = model._held()
    statistic = gradient_statistic(model)
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

    That of input j is E(∂f/∂x_j)² Var x_j over the sum of all inputs: 0 for an input that f does
    not depend on, and for a constant f. See :func:`rff_stream.inspect.gradient_outer_product`.
    """
    return of_sample(model).importance()
