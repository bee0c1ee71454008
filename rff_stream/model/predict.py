"""Values of functions of rows in the container that they were given in, and scores of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from rff_stream._array import Array, Float64
from rff_stream.contracts import RowFunction, Statistic, for_rows
from rff_stream.costs import WholeCost
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.leaves import map_rows
from rff_stream.execution.threads import own_threads, single_threaded_blas
from rff_stream.families.level_intercepts import quantities
from rff_stream.model.checked_values import Target
from rff_stream.model.extrapolation import outside_in, warn_where_outside, watched
from rff_stream.model.input_rows import Opened, open_later
from rff_stream.pilot import warn_where_left_out_vary
from rff_stream.planning import PlanRequest
from rff_stream.side_by_side import threads_of_one
from rff_stream.sources import Selection, kind_of
from rff_stream.sources.container_types import is_sparse, needed_package
from rff_stream.statistics.groups import ByGroup


@dataclass(frozen=True, slots=True)
class Inputs:
    """x ↦ x."""

    width: int  # d

    def __call__(self, x: Array) -> Float64:
        """The rows (n, d) themselves."""
        return x


DIRECT_ROWS = 65_536
"""Up to this number of rows in memory, values are computed without a scheduler."""


def values_of_rows(
    model: Any,
    X: Any,
    function: RowFunction,
    names: Sequence[str],
    units: Sequence[str] = (),
    *,
    flat: bool,
    storage_options: Any = None,
) -> Any:
    """Values of a function of the model's inputs in the container of X, (n,) if ``flat``.

    The parameters of the model say what missing values mean. Names and units are those of the
    values.
    """
    given = (model, X, function, names, units)
    return parts_of_rows(*given, parts=1, flat=flat, storage_options=storage_options)[0]


def parts_of_rows(
    model: Any,
    X: Any,
    function: RowFunction,
    names: Sequence[str],
    units: Sequence[str] = (),
    *,
    parts: int,
    flat: bool,
    storage_options: Any = None,
) -> tuple[Any, ...]:
    """The columns of such values in so many equal parts, each in a container of its own."""
    names, units = tuple(names), tuple(units) or ("",) * len(names)
    width = function.width // parts
    columns = [slice(part * width, (part + 1) * width) for part in range(parts)]
    opened = opened_inputs(model, X, storage_options)
    if opened.in_memory:
        rows = opened.inputs
        function = for_rows(function, rows.shape[0])
        scale, inputs = np.asarray(getattr(model, "length_scale_", 1.0)), model.columns_.inputs
        if not is_sparse(rows):
            own = quantities(inputs)
            if scale.size == len(own) < len(inputs):  # levels have none
                warn_where_left_out_vary(rows[:, own], scale, [inputs[place] for place in own])
            elif scale.size in (1, len(inputs)):  # else of encoded columns
                warn_where_left_out_vary(rows, scale, inputs)
            if type(model).warns_extrapolation:
                warn_where_outside(model._require_fit(), outside_in(model._require_fit(), rows))
        found = computed_values(opened, rows, function)
        return tuple(
            framed_like(model, X, found[:, own.start] if flat else found[:, own], names[own])
            for own in columns
        )
    source = opened.source
    function = for_rows(function, source.n_rows)
    told = watched(model._require_fit(), function) if type(model).warns_extrapolation else function
    values = map_rows(source, told)
    if not (source.is_lazy or kind_of(X) == "stored" or is_dask_collection(X)):
        values = values.compute()
    return tuple(
        source.wrap(values[..., own.start] if flat else values[..., own], names[own], units[own])
        for own in columns
    )


def inputs_of_rows(model: Any, X: Any, storage_options: Any = None) -> Float64:
    """The inputs (n, d) of all rows of a container, in memory; in the order of its dimensions."""
    width = len(model.columns_.inputs)
    opened = opened_inputs(model, X, storage_options)
    return np.asarray(map_rows(opened.source, Inputs(width)).compute()).reshape(-1, width)


def opened_inputs(model: Any, X: Any, storage_options: Any = None) -> Opened:
    """The inputs of rows by the columns of a fit, from any container."""
    selection = Selection(X, storage_options=storage_options)
    return open_later(model, model.columns_, selection, "none")


def score_rows(
    model: Any, data: Selection, statistic: Statistic, target: Target = "numbers"
) -> Any:
    """Sum of a statistic over rows; for each group where groups are asked for."""
    source = open_later(model, model.columns_, data, target, scored=True).source
    reading = Reading(source, progress=model.progress)
    layout = reading.plan(PlanRequest(WholeCost(1), order=1), memory=model.memory).layout
    if data.by is not None:
        return dict(reading.sums(ByGroup(statistic), layout, "scoring").value.by_label)
    found = reading.sums(statistic, layout, "scoring").value
    if not found.n:
        raise no_rows(source)
    return found


def computed_values(opened: Opened, rows: Any, function: RowFunction) -> Float64:
    """Values (n, width) for the inputs of rows in memory; in threads if they are many or sparse."""
    if not is_sparse(rows) and len(rows) <= DIRECT_ROWS:
        with single_threaded_blas(), threads_of_one(own_threads()):
            return function(rows)
    return np.asarray(map_rows(opened.source, function).compute())


def framed_like(estimator: Any, X: Any, values: Any, names: tuple[str, ...]) -> Any:
    """Values of rows as ``set_output`` of the estimator asks: NumPy by default.

    With "pandas" a Series or DataFrame on the index of X, with "polars" one of polars.
    """
    container = getattr(estimator, "_sklearn_output_config", {}).get("transform", "default")
    if container == "pandas":
        from rff_stream.sources.tables import frame_wrap

        return frame_wrap(getattr(X, "index", None), values, names, ())
    if container == "polars":
        polars = needed_package("polars", "tables", "set_output asks for polars")
        if values.ndim == 1:
            return polars.Series(names[0], values)
        return polars.DataFrame(values, schema=list(names))
    return values
