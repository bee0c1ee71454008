"""From what a caller gives to rows that can be read: checked in memory, by name elsewhere."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError, ModelError
from rff_stream.families.level_intercepts import refuse_coded
from rff_stream.model.fitted import Fitted
from rff_stream.sources import (
    Columns,
    Selection,
    Source,
    kind_of,
    open_selection,
    open_source,
    table_of,
)
from rff_stream.sources.arrays import target_names as unnamed_targets
from rff_stream.sources.columns import base_of
from rff_stream.sources.container_types import check_index, is_names, needed_package, plain_array
from rff_stream.sources.levels import column_of_level

Purpose = Literal["count", "score", "predict"]
"""What later rows are for."""


def in_memory(X: Any) -> bool:
    """Whether X is an array, list or table in memory, without named dimensions."""
    return kind_of(X) in ("array", "table")


def in_storage(X: Any) -> bool:
    """Whether X is a path, a URL or a Zarr object: what it holds may not fit in memory."""
    return kind_of(X) == "stored"


def names_of(X: Any) -> tuple[Any, ...] | None:
    """Column names of a table; None for arrays."""
    columns = getattr(X, "column_names", getattr(X, "columns", None))
    return None if columns is None else tuple(columns)


def target_names(X: Any, y: Any) -> tuple[str, ...]:
    """Names that the targets of rows in memory were given by, or bring; none for arrays.

    Texts beside an array are labels.
    """
    if isinstance(y, str):
        return (y,)
    if is_names(y) and kind_of(X) == "array":
        return ()
    own: Any = y if is_names(y) else names_of(y) or (getattr(y, "name", None),)
    return () if None in own or "" in own else tuple(str(name) for name in own)


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


def checked_in_memory(estimator: Any, data: Selection, *, later: bool = False) -> Selection:
    """Rows in memory before they are opened: shapes, indexes, and values without names.

    A table stays one: its columns are found and looked at where its source is read. Arrays are
    checked here, without what a mask hides, as y and weights are that stand beside X.
    ``later`` ones are for an estimator that is fitted.

    Raises ValueError: in scikit-learn's words: NaN, infinity, shapes, complex data, weights.
    """
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

    if are_columns(data.X, data.y):
        return data
    require_target(estimator, data.y)
    finite = _finite(estimator)
    with _remedy_for_missing(estimator):
        y = check_array(
            data.y, accept_sparse=True, ensure_2d=False, ensure_all_finite=finite, dtype="numeric",
            input_name="y",
        )  # fmt: skip  # sparse ones are refused by name where they are opened
    check_consistent_length(data.X, y)
    return replace(data, y=y)


def with_class_numbers(estimator: Any, data: Selection) -> tuple[Selection, Array | None]:
    """Labels beside X as numbers, and the sorted labels; None for a column, which is read as it is.

    Numbers are NaN where a label is missing and such rows are dropped.
    """
    from sklearn.utils.multiclass import check_classification_targets

    if are_columns(data.X, data.y):
        return replace(data, y=one_column(data.y)), None
    y, there = labels_beside(estimator, data)
    check_classification_targets(y[there])
    labels, found = np.unique(y[there], return_inverse=True)
    codes = np.full(len(y), np.nan)
    codes[there] = found
    return replace(data, y=codes.astype(np.int64) if there.all() else codes), labels


def with_plain_labels(estimator: Any, data: Selection) -> Selection:
    """Labels beside X in one dtype: None where one is missing."""
    if are_columns(data.X, data.y):
        return replace(data, y=one_column(data.y))
    y, there = labels_beside(estimator, data)
    if not there.all():
        labels, y = y, np.full(len(y), None, object)
        y[there] = labels[there]
    elif y.dtype.kind == "O":
        y = np.array(list(y))  # numbers that came as objects are numbers
    return replace(data, y=y)


def labels_beside(estimator: Any, data: Selection) -> tuple[Array, Array]:
    """Labels (n,) of rows in memory as they are, and which of them are there."""
    from sklearn.utils.validation import check_consistent_length, column_or_1d

    require_target(estimator, data.y)
    y = column_or_1d(data.y, warn=True)
    check_consistent_length(data.X, y)
    there = np.array([label is not None and label == label for label in y], bool)
    if estimator.missing_rows == "error" and not there.all():
        raise ValueError(
            f"Input y contains NaN: {(~there).sum()} labels are missing. Leave such rows out with "
            'missing_rows="drop".'
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(
            f"Input y contains infinity: {np.isinf(y).sum()} labels. Labels are finite numbers "
            "or strings."
        )
    cut = next((label for label in y[there] if isinstance(label, str) and label[-1:] == "\0"), None)
    if cut is not None:
        raise DataError(
            f"A label is {cut!r}, and NumPy does not keep a zero at the end of a text, so it "
            "would become another label. Rename it."
        )
    return y, there


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
        if found is None or not hasattr(estimator, "missing_rows"):
            raise
        raise DataError(
            f"{found[0]}. A row with a missing value cannot be used. Leave such rows out with "
            'missing_rows="drop", or fill them before.'
        ) from None


def checked_rows(estimator: Any, X: Any) -> Any:
    """Inputs (n, d) of rows in memory after a fit: columns of a table by name, others are ignored.

    Sparse rows stay sparse: they are made dense slab by slab where they are read. Rows of a table
    with a missing value are NaN.
    """
    from sklearn.utils.validation import validate_data

    if kind_of(X) != "table":
        X = plain_array(X) if isinstance(X, np.ma.MaskedArray) else X
        return validate_data(
            estimator, X, reset=False, ensure_all_finite=_finite(estimator), dtype="numeric",
            accept_sparse="csr",
        )  # fmt: skip
    missing = getattr(estimator, "missing_rows", "error")
    source = open_source(X, columns=replace(estimator.columns_, weight=""), missing_rows=missing)
    box = tuple((0, size) for size in source.shape)
    found = np.full((source.shape[0], len(source.columns.inputs)), np.nan)
    for rows in source.reader.read(box, *source.arguments(box)):
        stop = rows.start + (len(rows.x) if rows.keep is None else len(rows.keep))
        found[rows.start : stop][slice(None) if rows.keep is None else rows.keep] = rows.x
    return found


def _finite(estimator: Any) -> bool | str:
    return "allow-nan" if getattr(estimator, "missing_rows", "error") == "drop" else True


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


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Rows that can be read."""

    source: Source
    columns: Columns  # under the names that they were given by
    flat: bool = True  # the target is (n,), not (n, 1)
    feature_names: tuple[str, ...] = ()  # of a DataFrame
    class_labels: Array | None = None  # (C,): labels of rows in memory, which carry their numbers


def open_values(asked: Any, data: Selection) -> Opened:
    """The rows of a regression; refuses data without a target."""
    targets: tuple[str, ...] = ()
    flat = data.y is None or isinstance(data.y, str) or getattr(data.y, "ndim", 1) == 1
    if in_memory(data.X):
        targets = target_names(data.X, data.y)
        data = with_checked_targets(asked, checked_in_memory(copy.copy(asked), data))
        flat = isinstance(data.y, str) or getattr(data.y, "ndim", 2) == 1
    source = source_of(asked, data)
    require_target(asked, source.columns.targets or None)
    columns = with_given_names(source.columns, data, targets)
    return Opened(source, columns, flat and len(columns.targets) == 1, text_names_of(source, data))


def open_inputs(asked: Any, data: Selection) -> Opened:
    """The rows of an estimator that has no target: y is not looked at."""
    data = replace(data, y=None)
    if in_memory(data.X):
        data = checked_in_memory(copy.copy(asked), data)
    source = source_of(asked, data)
    columns = with_given_names(source.columns, data)
    refuse_coded(columns.inputs, type(asked).__name__)
    return Opened(source, columns, True, text_names_of(source, data))


def open_labels(asked: Any, data: Selection) -> Opened:
    """The rows of a classifier."""
    target, labels = target_names(data.X, data.y), None
    if in_memory(data.X):
        data = checked_in_memory(copy.copy(asked), data)
        data, labels = with_class_numbers(asked, data)
    require_target(asked, data.y)
    source = source_of(asked, data, y_labels=True)
    units = source.columns.units
    columns = replace(
        with_given_names(source.columns, data),
        targets=target[:1] or ("y",),
        units=(*units, "") if units else (),
    )
    return Opened(source, columns, True, text_names_of(source, data), labels)


def open_later(asked: Any, fitted: Fitted, data: Selection, *, labels: bool = False) -> Opened:
    """Rows that are counted after those of a fit: by its names, dimensions and conditions.

    Raises ModelError: when their names or units are not those of the fit.
    """
    weight, chosen = data.sample_weight, fitted.selection
    if weight is None and fitted.columns.weight:
        weight = default_weight(fitted.columns.weight, data.X)
    data = replace(data, sample_weight=weight, dim=chosen.dim, where=(*chosen.where, *data.where))
    opened = open_by_fit(asked, fitted, data, "count", labels=labels)
    _check_units(fitted.columns, opened.source.columns, labels)
    return opened


def open_by_fit(
    asked: Any, fitted: Fitted, data: Selection, purpose: Purpose, *, labels: bool = False
) -> Opened:
    """Rows with the columns of a fit, from any container.

    Without y they have the target of the fit, by its name. Labels are compared with the classes
    where they are scored, and may be new where they are counted.

    Raises ModelError: when the names of the targets are not those of the fit.
    """
    columns, classes = fitted.columns, None
    wanted = columns.targets[:1] if labels else columns.targets
    wanted = () if purpose == "predict" else wanted
    if data.y is None and wanted and kind_of(data.X) != "array":
        data = replace(data, y=wanted[0] if len(wanted) == 1 else list(wanted))
    here, scored = in_memory(data.X), purpose == "score"
    named = isinstance(data.y, str) or (is_names(data.y) and kind_of(data.X) != "array")
    if wanted and ((here and not named) or (labels and named)):
        check_targets(wanted, target_names(data.X, data.y), named=True, scored=scored)
    check_inputs(columns.inputs, data.inputs)
    data = replace(data, y=data.y if wanted else None, inputs=None)
    if here:
        data = checked_in_memory(asked, data, later=True)
        if labels and scored:
            data = with_plain_labels(asked, data)
        elif labels:
            data, classes = with_class_numbers(asked, data)
        elif wanted:
            data = with_checked_targets(asked, data)
    fit_columns = replace(columns, weight="")
    source = source_of(asked, data, y_labels=labels, columns=fit_columns)
    if wanted and not labels:
        check_targets(wanted, source.columns.targets, named=named, scored=scored)
    return Opened(source, columns, fitted.flat, fitted.feature_names, classes)


def source_of(asked: Any, data: Selection, **choices: Any) -> Source:
    """The source of data under the estimator's rules for missing values."""
    rules = {"missing_rows": asked.missing_rows, "missing_chunks": asked.missing_chunks}
    return open_selection(replace(data, **(rules | choices)))


def with_given_names(columns: Columns, data: Selection, targets: tuple[str, ...] = ()) -> Columns:
    """Columns under the names that they were given by, where there are some.

    Weights that were values beside X have no name by which later ones could be found.
    """
    named = isinstance(data.sample_weight, str) or getattr(data.sample_weight, "name", None)
    weight = columns.weight if named else ""
    return replace(columns, targets=targets or columns.targets, weight=weight)


def text_names_of(source: Source, data: Selection) -> tuple[str, ...]:
    """Inputs of a table whose names are all text, as scikit-learn keeps them."""
    names = names_of(data.X) if kind_of(data.X) == "table" else None
    text = names is not None and all(isinstance(name, str) for name in names)
    return source.columns.inputs if text else ()


def default_weight(name: str, X: Any) -> str | None:
    """The weight column of a fit, which weighs later rows, too.

    Raises ModelError: where X is an array, which has no such column.
    """
    if kind_of(X) != "array":
        return name
    if name == "sample_weight":  # earlier versions noted values beside X so
        return None
    raise ModelError(
        f"The rows of the fit have weights, {name!r}, but X is a {type(X).__name__} without "
        "names. Rows that are added are weighted alike: give their weights as sample_weight=."
    )


def check_inputs(wanted: tuple[str, ...], given: Any) -> None:
    """Inputs that are named again are those of the fit.

    Raises ModelError: naming the first that is not.
    """
    names = () if given is None else (given,) if isinstance(given, str) else tuple(map(str, given))
    stems = [(name, column_of_level(name), base_of(name)[0]) for name in wanted]
    other = [name for name in names if not any(name in known for known in stems)]
    absent = [known[0] for known in stems if names and not set(known) & set(names)]
    if other or absent:
        raise ModelError(
            f"The inputs of the data are {names}, but the model was fitted on {wanted}: "
            f"{(other or absent)[0]!r} is only in one of them. Later rows have the inputs of the "
            "fit: leave inputs= out."
        )


def check_targets(
    wanted: tuple[str, ...], given: tuple[str, ...], *, named: bool, scored: bool
) -> None:
    """Targets are those of the fit, in their order; without names, as many.

    ``scored`` ones may have other names, such as that of a measurement, but none may be another
    target of the fit.

    Raises ModelError: when they are others.
    """
    if given and len(given) != len(wanted):
        raise ModelError(
            f"y has {len(given)} targets, but the model was fitted on {len(wanted)} "
            f"({', '.join(wanted)}). Give those."
        )
    unnamed = unnamed_targets(len(wanted))
    if not given or wanted == unnamed or (given == unnamed and not named):
        return
    pairs = [(a, b) for a, b in zip(wanted, given, strict=True) if a != b]
    if any(b in wanted or not scored for _, b in pairs):
        raise ModelError(
            f"The targets of the data are {given}, but the model was fitted on {wanted}. "
            "Give the targets of the fit, in its order; values without names are taken by place."
        )


def _check_units(wanted: Columns, given: Columns, labels: bool) -> None:
    """Refuse other units than those of the fit; labels are no column of numbers."""
    d = len(wanted.inputs) if labels else None
    a, b = wanted.units[:d], given.units[:d]
    if a != b and any(a) and any(b):
        raise ModelError(
            f"The units of the data are {b}, but the model was fitted on {a}. "
            "Give data with the names and units of the fit."
        )
