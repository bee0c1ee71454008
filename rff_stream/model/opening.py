"""From what a caller gives to rows that can be read: checked in memory, by name elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.model.fitted import Data, Fitted
from rff_stream.model.inputs import (
    checked_batch,
    checked_fit,
    checked_inputs,
    checked_labels,
    in_memory,
    names_in,
    require_target,
    target_names,
)
from rff_stream.sources import Columns, Source, open_source


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Rows that can be read."""

    source: Source
    columns: Columns  # under the names that they were given by
    flat: bool = True  # the target is (n,), not (n, 1)
    feature_names: tuple[str, ...] = ()  # of a DataFrame
    table: Array | None = None  # (C,): labels of rows in memory, which carry their numbers


def open_values(asked: Any, data: Data) -> Opened:
    """The rows of a regression; refuses data without a target."""
    arrays = in_memory(data.X, data.where, data.by)
    y, targets = data.y, target_names(data.y)
    flat = y is None or isinstance(y, str) or getattr(y, "ndim", 1) == 1
    stand_in = copy.copy(asked)  # scikit-learn notes the columns on what it checks
    if arrays:
        X, y, weight = checked_fit(
            stand_in, data.X, y, data.sample_weight, data.inputs, asked.missing_rows
        )
        data, flat = replace(data, X=X, y=y, sample_weight=weight, inputs=None), y.ndim == 1
    source = source_of(asked, data)
    require_target(asked, source.columns.targets or None)
    names = names_in(stand_in) if arrays else ()
    columns = with_given_names(source.columns, names, targets if arrays else ())
    return Opened(source, columns, flat and len(columns.targets) == 1, names)


def open_inputs(asked: Any, data: Data) -> Opened:
    """The rows of an estimator that has no target: y is not looked at."""
    arrays, stand_in = in_memory(data.X, data.where, data.by), copy.copy(asked)
    data = replace(data, y=None)
    if arrays:
        X, weight = checked_inputs(
            stand_in, data.X, data.sample_weight, data.inputs, asked.missing_rows
        )
        data = replace(data, X=X, sample_weight=weight, inputs=None)
    source = source_of(asked, data)
    names = names_in(stand_in) if arrays else ()
    return Opened(source, with_given_names(source.columns, names, ()), True, names)


def open_labels(asked: Any, data: Data, fitted: Fitted | None = None) -> Opened:
    """The rows of a classifier; ``fitted`` where it goes on from a fit."""
    arrays, target, table = in_memory(data.X, data.where), target_names(data.y), None
    stand_in = copy.copy(asked)
    if arrays:
        X, y, weight, table = checked_labels(
            stand_in,
            data.X,
            data.y,
            data.sample_weight,
            data.inputs,
            asked.missing_rows,
            reset=fitted is None,
        )
        data = replace(data, X=X, y=y, sample_weight=weight, inputs=None)
    require_target(asked, data.y)
    columns = None if fitted is None else replace(fitted.columns, targets=(), weight="")
    source = source_of(asked, data, y_labels=True, columns=columns)
    if fitted is not None:
        return Opened(source, fitted.columns, True, fitted.feature_names, table)
    units = source.columns.units
    found = replace(
        source.columns, targets=target[:1] or ("y",), units=(*units, "") if units else ()
    )
    names = names_in(stand_in) if arrays else ()
    return Opened(source, with_given_names(found, names, ()), True, names, table)


def open_later(asked: Any, fitted: Fitted, data: Data, *, labels: bool = False) -> Opened:
    """Rows that come after those of a fit, with its columns and conditions.

    Raises
    ------
    ModelError
        When their names or units are not those of the fit.
    """
    if in_memory(data.X) and data.by is None:
        return open_labels(asked, data, fitted) if labels else _of_arrays(asked, fitted, data)
    columns = fitted.columns
    names = list(columns.targets)
    y, weight = data.y, data.sample_weight
    if y is None and names:
        y = names[0] if len(names) == 1 else names
    data = replace(
        data,
        y=y,
        sample_weight=columns.weight if weight is None and columns.weight else weight,
        inputs=list(columns.inputs),
        dim=fitted.selection.get("dim"),
        where=(*fitted.selection.get("where", ()), *data.where),
    )
    source = source_of(asked, data, y_labels=labels)
    _check_columns(columns, source.columns, labels)
    return Opened(source, columns, fitted.flat, fitted.feature_names)


def source_of(asked: Any, data: Data, **choices: Any) -> Source:
    """The source of data under the estimator's rules for missing values."""
    return open_source(
        data.X,
        data.y,
        data.sample_weight,
        inputs=data.inputs,
        dim=data.dim,
        where=data.where,
        by=data.by,
        missing_rows=asked.missing_rows,
        missing_chunks=asked.missing_chunks,
        storage_options=data.storage_options,
        **choices,
    )


def with_given_names(
    columns: Columns, inputs: tuple[str, ...], targets: tuple[str, ...]
) -> Columns:
    """Columns under the names that they were given by, where there are some."""
    given: Mapping[str, Any] = {"inputs": inputs, "targets": targets}
    return replace(columns, **{kind: names for kind, names in given.items() if names})


def _of_arrays(asked: Any, fitted: Fitted, data: Data) -> Opened:
    """Rows in memory, checked against the fit."""
    targets = fitted.columns.targets
    X, y, weight = checked_batch(
        asked, data.X, data.y, data.sample_weight, bool(targets), asked.missing_rows
    )
    given = 0 if y is None else int(np.prod(y.shape[1:]))
    if given != len(targets):
        raise ModelError(
            f"y has {given} targets, but the model was fitted on {len(targets)} "
            f"({', '.join(targets)}). Give those."
        )
    source = source_of(asked, Data(X, y, weight))
    return Opened(source, fitted.columns, fitted.flat, fitted.feature_names)


def _check_columns(wanted: Columns, given: Columns, labels: bool) -> None:
    """Refuse other names or units than those of the fit; labels are no column of numbers."""
    d = len(wanted.inputs) if labels else None
    pairs: list[tuple[str, Any, Any]] = [("inputs", wanted.inputs, given.inputs)]
    if not labels:
        pairs.append(("targets", wanted.targets, given.targets))
    pairs.append(("units", wanted.units[:d], given.units[:d]))
    for what, a, b in pairs:
        if a != b and not (what == "units" and not any((*a, *b))):
            raise ModelError(
                f"The {what} of the data are {b}, but the model was fitted on {a}. "
                "Give data with the names and units of the fit."
            )
