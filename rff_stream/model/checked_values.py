"""Checks of values in memory, in scikit-learn's words, before their rows are opened."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.label_forms import is_absent
from rff_stream.sources import Selection, kind_of, table_of
from rff_stream.sources.container_types import check_index, is_from, is_names, plain_array
from rff_stream.sources.rows import RULES, Labels, check_ends
from rff_stream.sources.variables import typed_values

Target = Literal["numbers", "labels", "none"]
"""What y is: numbers, the class of each row, or nothing that is looked at."""


def is_in_memory(X: Any) -> bool:
    """Whether X is an array, list or table in memory, without named dimensions."""
    return kind_of(X) in ("array", "table")


def names_of(X: Any) -> tuple[Any, ...] | None:
    """Column names of a table; None for arrays."""
    columns = getattr(X, "column_names", getattr(X, "columns", None))
    return None if columns is None else tuple(columns)


def check_values(
    estimator: Any,
    selection: Selection,
    target: Target,
    *,
    later: bool = False,
    scored: bool = False,
) -> tuple[Selection, Array | None]:
    """A selection whose values in memory are checked; and the sorted labels that stand beside X.

    Such labels become their numbers, or stay as they are where they are ``scored``. Columns of a
    table are found and looked at where its source is read, as are those of other containers.
    ``later`` rows are for an estimator that is fitted.

    Raises ValueError: in scikit-learn's words: NaN, infinity, shapes, complex data, weights.
    """
    if target != "none":
        require_target(estimator, selection.y)
    if not is_in_memory(selection.X):
        return selection, None
    found = with_checked_inputs(estimator, selection, later=later)
    if target == "none":
        return found, None
    if are_columns(found.X, found.y):
        return (replace(found, y=one_column(found.y)) if target == "labels" else found), None
    if target == "numbers":
        return with_checked_targets(estimator, found), None
    if scored:
        return with_plain_labels(estimator, found), None
    return with_class_numbers(estimator, found)


def with_checked_inputs(estimator: Any, data: Selection, *, later: bool) -> Selection:
    """Inputs and weights: a table stays one; what a mask hides is NaN, in y and weights, too."""
    from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

    X, y, weight = data.X, data.y, data.sample_weight
    check_index(X, y=y, sample_weight=weight, by=data.by)
    named = y is None or isinstance(y, str) or names_of(y) is not None
    if kind_of(X) == "table" and not named and np.ndim(y) == 0:
        raise DataError(
            f"y is {y!r}, which is neither an array nor a name: names are text. Give a value for "
            f"each row, or the name of a column as text, such as {str(y)!r}."
        )
    if kind_of(X) != "table":
        if data.inputs is not None or isinstance(y, str) or isinstance(weight, str):
            raise DataError(
                f"Columns were given by name but X is a {type(X).__name__} without names. "
                "Give arrays, or X as a DataFrame, Dataset or Zarr store."
            )
        X = plain_array(X) if isinstance(X, np.ma.MaskedArray) else X
        with _remedy_for_missing(estimator):
            X = validate_data(
                estimator, X, reset=not later, ensure_all_finite=_finite(estimator),
                dtype="numeric", accept_sparse="csr",
            )  # fmt: skip
    if weight is not None and not isinstance(weight, str):
        some = np.empty((_num_samples(X), 0))
        weight = _check_sample_weight(
            _beside(weight), some, dtype=np.float64, ensure_non_negative=True
        )
        if not (weight > 0).any():
            raise ValueError(
                "Sample weights must contain at least one non-zero number: all are zero. "
                "Give the rows that should count a positive weight."
            )
    y = y if are_columns(X, y) else _beside(y)
    return replace(data, X=X, y=y, sample_weight=weight)


def with_checked_targets(estimator: Any, data: Selection) -> Selection:
    """Targets beside X as an array; rows with NaN stay where they will be dropped."""
    from sklearn.utils.validation import check_array, check_consistent_length

    finite = _finite(estimator)
    try:
        with _remedy_for_missing(estimator):
            y = check_array(
                data.y, accept_sparse=True, ensure_2d=False, ensure_all_finite=finite,
                dtype="numeric", input_name="y",
            )  # fmt: skip  # sparse ones are refused by name where they are opened
    except ValueError as error:
        text = next((each for each in np.ravel(data.y) if isinstance(each, str)), None)
        if text is None:
            raise
        raise DataError(
            f"y holds text such as {str(text)!r}, but {type(estimator).__name__} predicts numbers. "
            "Use KernelClassifier for classes, or convert y to numbers."
        ) from error
    check_consistent_length(data.X, y)
    return replace(data, y=y)


def with_class_numbers(estimator: Any, data: Selection) -> tuple[Selection, Array | None]:
    """Labels beside X as numbers, and the sorted labels.

    Numbers are NaN where a label is missing and such rows are dropped.
    """
    from sklearn.utils.multiclass import check_classification_targets

    y, there = labels_beside(estimator, data)
    known = y[there] if there.all() else as_numbers(y[there])  # None made objects of them
    check_classification_targets(known)
    labels, found = np.unique(known, return_inverse=True)
    codes = np.full(len(y), np.nan)
    codes[there] = found
    return replace(data, y=codes.astype(np.int64) if there.all() else codes), labels


def with_plain_labels(estimator: Any, data: Selection) -> Selection:
    """Labels beside X in one dtype: None where one is missing, or NaN among numbers."""
    y, there = labels_beside(estimator, data)
    known = as_numbers(y[there])
    if there.all():
        return replace(data, y=known)
    numbers = known.dtype.kind in "iufb"
    y = np.full(len(y), np.nan) if numbers else np.full(len(y), None, object)
    y[there] = known
    return replace(data, y=y)


def as_numbers(labels: Array) -> Array:
    """Numbers that came as objects as numbers; other labels as they are."""
    return np.array(labels.tolist()) if labels.dtype.kind == "O" else labels


def labels_beside(estimator: Any, data: Selection) -> tuple[Array, Array]:
    """Labels (n,) of rows in memory, and which of them are there: "" is missing, as in files."""
    from sklearn.utils.validation import check_consistent_length, column_or_1d

    own = data.y
    if is_from(own, "pandas") and own.ndim == 1 and not isinstance(own.dtype, np.dtype):
        own = typed_values(own)
    y = column_or_1d(own, warn=True)
    y = times_as_labels(y.astype(object) if y.dtype.kind == "T" else y)
    check_consistent_length(data.X, y)
    there = np.array([not is_absent(label) and label != "" for label in y], bool)
    if estimator.missing_rows == "error" and not there.all():
        raise ValueError(
            f"Input y contains NaN, None or '': {(~there).sum()} labels are missing. Leave such "
            'rows out with missing_rows="drop", or name that class.'
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(
            f"Input y contains infinity: {np.isinf(y).sum()} labels. Labels are finite numbers "
            "or strings."
        )
    check_ends(y[there])
    return y, there


def times_as_labels(y: Array) -> Array:
    """Times and spans in the form that labels of a column have; other labels as they are."""
    if y.dtype.kind in "mM":
        return Labels()(y)
    if y.dtype.kind != "O":
        return y
    there = [label for label in y.tolist() if not is_absent(label)]
    times = all(hasattr(label, "isoformat") or isinstance(label, timedelta) for label in there)
    return Labels()(y) if there and times else y


def are_columns(X: Any, y: Any) -> bool:
    """Whether y names columns of a table: of an array, texts are labels."""
    return kind_of(X) == "table" and (isinstance(y, str) or is_names(y))


def one_column(names: Any) -> str:
    """The one column of labels; refuses several."""
    found = [names] if isinstance(names, str) else list(names)
    if len(found) != 1:
        raise DataError(
            f"y should be a 1d array of labels, but {len(found)} columns were named: "
            f"{', '.join(found)}. A row has one class. Name one column."
        )
    return str(found[0])


def require_target(estimator: Any, y: Any) -> None:
    """Refuse rows without a target, in scikit-learn's words."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )


@contextlib.contextmanager
def _remedy_for_missing(estimator: Any) -> Iterator[None]:
    """The remedy that there is here, in place of scikit-learn's list of other estimators."""
    try:
        yield
    except ValueError as error:
        found = re.match("Input [Xy] contains NaN", str(error))
        if found is None:
            raise
        raise DataError(f"{found[0]}. {RULES['NaN']}") from None


def _finite(estimator: Any) -> bool | str:
    return True if estimator.missing_rows == "error" else "allow-nan"


def _beside(values: Any) -> Any:
    """y or weights of rows in memory: NumPy arrays, unless scikit-learn accepts them unchanged.

    What a mask hides is NaN: scikit-learn drops masks.
    """
    if isinstance(values, np.ma.MaskedArray):
        return plain_array(values)
    if values is None or isinstance(values, np.ndarray):
        return values
    if kind_of(values) == "table" and not hasattr(values, "iloc"):
        table = table_of(values)
        return np.column_stack([table.variable(name).data for name in table.names])
    native = type(values).__module__.partition(".")[0] in ("polars", "pyarrow")
    return np.asarray(values) if native else values
