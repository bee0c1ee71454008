"""A metric in front of a map: given, or learnt on pilot rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.kernel_request import KernelRequest
from rff_stream.families.protocol import MapParameters
from rff_stream.families.windows_of_pilot import (
    few_targets,
    map_search,
    pilot_windows,
    searched_rows,
)
from rff_stream.features import Projection, Then
from rff_stream.features.composed import encode_rows
from rff_stream.length_scales.class_errors import compare_probabilities
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_choice import MapChoice
from rff_stream.length_scales.map_search import search_map
from rff_stream.pilot import Pilot


def matrix_of(metric: Any) -> Float64 | None:
    """A (d, k) of a metric that was given; None for one by name, and for none."""
    return None if metric is None or isinstance(metric, str) else np.asarray(metric, np.float64)


def with_metric(
    parameters: MapParameters, pilot: Pilot
) -> tuple[MapParameters, Pilot, Projection | None]:
    """The metric in front of one map of the whole space; parameters and the pilot behind it.

    One that is learnt is that of windows of pilot rows. What these see is often finer than what
    the columns of one map can represent, so one factor of it is found by the evidence of the map.
    """
    matrix = matrix_of(parameters.metric)
    if matrix is None and not parameters.finds_metric:
        return parameters, pilot, None
    pilot = pilot.with_bounded_inputs()
    if parameters.finds_metric:
        with single_threaded_blas():
            found = _learn_metric(pilot, parameters)
        matrix, kernel = found.matrix, found.unit_kernel.with_length_scale(None)
        scale = parameters.kernels.length_scale if parameters.kernels.searched else "evidence"
        if not (pilot.y != pilot.y[:1]).any():
            scale = "median"
        elif pilot.classes and parameters.kernels.free:  # chosen by left-out probabilities
            scale = 1.0
        parameters = replace(parameters, kernels=KernelRequest((kernel,), scale))
    metric = behind(None, matrix, pilot.x)
    along = tuple(f"direction {place}" for place in range(metric.n_components))
    return parameters, replace(pilot, x=metric(pilot.x), inputs=along, one_unit=True), metric


def _learn_metric(pilot: Pilot, parameters: MapParameters) -> MapChoice:
    """Of classes by their probabilities; of the other targets some combinations are looked at."""
    rng = np.random.default_rng(parameters.seed)
    y = pilot.y if pilot.classes else few_targets(pilot.y, rng)
    rows = searched_rows(pilot.x, y, pilot.w, rng)
    shape = CellShape.for_rows(len(pilot.x))
    if not rows.varies:
        return MapChoice.of_constant(parameters.kernels.named[0], rows.x, shape)
    blocks = pilot_windows(rows, rng)
    search = map_search(rows, blocks, True, parameters, shape, rng)
    if pilot.classes:
        compare_probabilities(search, len(rows.x), scales=parameters.kernels.free)
    return search_map(search)


def behind(encoding: Any, matrix: Float64 | None, x: Float64) -> Any:
    """The encoding of rows x (n, d) with a metric behind it, about the mean of x."""
    if matrix is None:
        return encoding
    metric = Projection(matrix, encode_rows(encoding, x).mean(axis=0))
    return metric if encoding is None else Then(encoding, metric)


def in_metric(found: MapChoice, encoding: Any, x: Float64) -> tuple[Any, Any]:
    """The kernel of a choice, and the encoding of rows x (n, d) before it, with the metric."""
    scores = found.normal_scores  # they compete where no encoding was asked for
    return found.own_kernel, behind(scores or encoding, found.metric, x)


def columns_of_metric(metric: Any, n_columns: int) -> int:
    """k: the columns that kernels see, of so many before the metric.

    Raises ValueError: where a matrix is not for them.
    """
    matrix = matrix_of(metric)
    if matrix is None:
        return n_columns
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"metric has shape {matrix.shape}, or holds values that are not finite, but a metric "
            f"is a matrix of finite numbers: one row for each of the {n_columns} inputs, one "
            "column for each combination."
        )
    if len(matrix) != n_columns:
        raise ValueError(
            f"metric has {len(matrix)} rows but there are {n_columns} inputs (of an encoding: its "
            "columns). Give one row for each."
        )
    return int(matrix.shape[1])
