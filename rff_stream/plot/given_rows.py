"""Rows that a picture is given, opened as ``predict`` and ``score`` open them: by name."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from rff_stream._array import Array, Float64
from rff_stream.arguments import ROWS, Rule, array_shape
from rff_stream.model.checked_values import Target
from rff_stream.model.input_rows import open_later
from rff_stream.plot.canvas import without_names
from rff_stream.sources import Selection, kind_of, table_of

NAMED = ("table", "labelled", "lazy")
"""Kinds of containers that may have names."""

PAIR = Rule(
    "a pair, of rows and of a value for each",
    lambda value: isinstance(value, tuple | list | np.ndarray), lambda value: len(value) == 2,
    optional=True,
)  # fmt: skip

SEVERAL_ROWS = Rule(
    "an array of numbers (n, d), a table or labelled data, as predict takes them",
    lambda value: kind_of(value) in NAMED or bool(array_shape(value)),
    lambda value: kind_of(value) in NAMED or ROWS.holds(value),
)


def rows_and_values(
    model: Any, X: Any, y: Any, *, target: int = 0, names: Sequence[str] = ("X", "y")
) -> tuple[Float64, Array]:
    """x (m, d), and values of one target or labels (m,), of the rows that have both.

    Inputs are matched by name if they have names, else by position. Values (n,) are those of the
    one target, (n, T) of all.

    Raises TypeError, ValueError or DataError: for other kinds or names, or if no row has both.
    """
    if len(array_shape(X) or ()) == 1:  # places along one input
        X = np.asarray(X)[:, None]
    SEVERAL_ROWS.check(names[0], X)
    _a_value_for_each(X).check(names[1], y)
    X, y = (each.compute() if is_dask_collection(each) else each for each in (X, y))
    if not hasattr(model, "columns_"):
        return _by_feature_names(model, X), np.asarray(y)
    columns, own = model.columns_, copy.copy(model)
    own.missing_rows = "drop"  # a picture leaves them out
    labels = hasattr(model, "classes_")
    if not labels and len(array_shape(y) or ()) == 1:
        columns, target = replace(columns, targets=columns.targets[target:][:1]), 0
    with without_names():
        kind: Target = "labels" if labels else "numbers"
        opened = open_later(own, columns, Selection(X, y), kind, scored=True)
    slabs = [each for each in opened.slabs if len(each.x)]
    if not slabs:
        raise ValueError(
            f"No row has all inputs in {names[0]} and a value in {names[1]}, but a picture shows "
            "rows that have both. Give some."
        )
    x = np.concatenate([each.x for each in slabs])
    return x, np.concatenate(
        [each.y[:, target] if each.label is None else each.label for each in slabs]
    )


def _a_value_for_each(X: Any) -> Rule:
    """What values of rows may be; those of labelled rows are paired where they are opened."""
    known = kind_of(X) in ("array", "table")
    n = (X.shape[0] if hasattr(X, "shape") else len(X)) if known else None
    return Rule(
        "an array with a value for each row" + (f", {n} of them" if known else ""),
        lambda value: kind_of(value) not in (None, "stored") and getattr(value, "ndim", 1) > 0,
        lambda value: n is None or len(value) == n,
    )


def _by_feature_names(model: Any, X: Any) -> Float64:
    """Rows (n, d) for a model of scikit-learn, in the order of the names that it knows."""
    if kind_of(X) != "table":
        return np.asarray(X, np.float64)
    table = table_of(X)
    inputs = getattr(model, "feature_names_in_", table.names)
    return np.column_stack([table.find(name).variable.data for name in inputs]).astype(np.float64)
