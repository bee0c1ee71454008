"""From what a caller gives to rows that can be read: checked in memory, by name elsewhere."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError, ModelError
from rff_stream.model.fitted import Data, Fitted
from rff_stream.sources import Columns, Source, kind_of, open_source, table_of
from rff_stream.sources.columns import plain_names
from rff_stream.sources.container_types import check_index, is_names, needed_package, plain_array


def in_memory(X: Any, where: Sequence[Any] = (), by: Any = None) -> bool:
    """Whether X is an array, list or table in memory, without named dimensions.

    A table whose rows are chosen or labelled by its columns is read by its source, as stored
    data are: an array of its inputs would have lost them.
    """
    kind = kind_of(X)
    named = isinstance(by, str) or is_names(by)
    chosen = any(getattr(each, "by", each) is not None for each in where)
    return kind == "array" or (kind == "table" and not (named or chosen))


def in_storage(X: Any) -> bool:
    """Whether X is a path, a URL or a Zarr object: what it holds may not fit in memory."""
    return kind_of(X) == "stored"


def names_of(X: Any) -> tuple[Any, ...] | None:
    """Column names of a table; None for arrays."""
    columns = getattr(X, "column_names", getattr(X, "columns", None))
    return None if columns is None else tuple(columns)


def target_names(y: Any) -> tuple[str, ...]:
    """Names that the targets of rows in memory were given by, or bring; none for arrays."""
    if isinstance(y, str):
        return (y,)
    own: Any = y if is_names(y) else names_of(y) or (getattr(y, "name", None),)
    return tuple(own) if all(isinstance(name, str) for name in own) else ()


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


def rows_in_memory(
    estimator: Any, data: Data, *, later: bool = False
) -> tuple[Data, tuple[str, ...]]:
    """The rows of a fit by column, and the names of the inputs of a table.

    X and weights are checked, y is as it was given. ``later`` ones are for an estimator that is
    fitted. Number and names of the columns of a fit are noted on it, as scikit-learn does.

    Raises ValueError: in scikit-learn's words: NaN, infinity, shapes, complex data, weights.
    """
    from sklearn.utils.validation import _check_sample_weight, validate_data

    inputs = _fitted_names(estimator, data.X) if later else data.inputs
    X, y, weight, names = _by_name(data.X, data.y, data.sample_weight, inputs)
    if later:
        X = checked_rows(estimator, data.X)
    else:
        with _remedy_for_missing(estimator):
            X = validate_data(
                estimator, X, ensure_all_finite=_finite(estimator), dtype="numeric",
                accept_sparse="csr",
            )  # fmt: skip
        if names:
            estimator.feature_names_in_ = np.array(names, dtype=object)
    if weight is not None:
        weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
        if not (weight > 0).any():
            raise ValueError(
                "Sample weights must contain at least one non-zero number: all are zero. "
                "Give the rows that should count a positive weight."
            )
    return replace(data, X=X, y=y, sample_weight=weight, inputs=None), names


def checked_targets(estimator: Any, rows: Data) -> Any:
    """Targets as an array; rows with NaN stay where they will be dropped."""
    from sklearn.utils.validation import check_array, check_consistent_length

    require_target(estimator, rows.y)
    finite = _finite(estimator)
    with _remedy_for_missing(estimator):
        y = check_array(
            rows.y, accept_sparse=True, ensure_2d=False, ensure_all_finite=finite, dtype="numeric",
            input_name="y",
        )  # fmt: skip  # sparse ones are refused by name where they are opened
    check_consistent_length(rows.X, y)
    return y


def checked_labels(estimator: Any, rows: Data) -> tuple[Any, Array]:
    """Class numbers (n,) and the sorted labels.

    Numbers are NaN where a label is missing and such rows are dropped.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, column_or_1d

    require_target(estimator, rows.y)
    y = column_or_1d(rows.y, warn=True)
    check_consistent_length(rows.X, y)
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
    check_classification_targets(y[there])
    cut = next((label for label in y[there] if isinstance(label, str) and label[-1:] == "\0"), None)
    if cut is not None:
        raise DataError(
            f"A label is {cut!r}, and NumPy does not keep a zero at the end of a text, so it "
            "would become another label. Rename it."
        )
    labels, found = np.unique(y[there], return_inverse=True)
    codes = np.full(len(y), np.nan)
    codes[there] = found
    return codes.astype(np.int64) if there.all() else codes, labels


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
    """Rows in memory after a fit (n, d): columns of a table by name, others are ignored.

    Sparse rows stay sparse: they are made dense slab by slab where they are read.
    """
    from sklearn.utils.validation import _check_n_features, check_array, validate_data

    finite = _finite(estimator)
    if kind_of(X) != "table":
        X = plain_array(X) if isinstance(X, np.ma.MaskedArray) else X
        return validate_data(
            estimator, X, reset=False, ensure_all_finite=finite, dtype="numeric",
            accept_sparse="csr",
        )  # fmt: skip
    table = table_of(X)
    names = _fitted_names(estimator, X)
    rows = table.matrix(table.names if names is None else names)
    _check_n_features(estimator, rows, reset=False)
    return check_array(rows, ensure_all_finite=finite, dtype="numeric", input_name="X")


def _fitted_names(estimator: Any, X: Any) -> list[str] | None:
    """Names of the inputs of the fit among the columns of a table; None where it had none."""
    if kind_of(X) != "table":
        return None
    table, inputs = table_of(X), list(estimator.columns_.inputs)
    if plain_names(inputs) and not set(inputs) <= set(table.names):
        return None
    absent = [name for name in inputs if not table.has(name)]
    if absent:
        raise DataError(
            f"X has no column {absent[0]!r}; its columns are {', '.join(table.names)}. The feature "
            f"names should match those that were passed during fit: {', '.join(inputs)}. Columns "
            f"are found by name, in any order; give all of these."
        )
    return inputs


def _finite(estimator: Any) -> bool | str:
    return "allow-nan" if getattr(estimator, "missing_rows", "error") == "drop" else True


def _by_name(
    X: Any, y: Any, weight: Any, inputs: Sequence[str] | None
) -> tuple[Any, Any, Any, tuple[str, ...]]:
    """X, y and weights of rows in memory as arrays, and the names of the inputs of a table.

    Columns of a table are found by name; what is neither target nor weight is an input. What a
    mask hides is NaN from here on: scikit-learn drops masks.
    """
    check_index(X, y=y, sample_weight=weight)
    masked = np.ma.MaskedArray
    X, y, weight = (plain_array(v) if isinstance(v, masked) else v for v in (X, y, weight))
    if kind_of(X) != "table":
        by_name = inputs is not None or isinstance(y, str) or isinstance(weight, str)
        if by_name and not is_names(y):
            raise DataError(
                f"Columns were given by name but X is a {type(X).__name__} without names. "
                "Give arrays, or X as a DataFrame, Dataset or Zarr store."
            )
        return X, _beside(y), _beside(weight), ()
    table, named = table_of(X), all(isinstance(name, str) for name in names_of(X) or ())
    targets = [y] if isinstance(y, str) else list(y) if is_names(y) else []
    used = [*targets, *([weight] if isinstance(weight, str) else [])]
    if y is not None and not isinstance(y, str) and np.ndim(y) == 0:
        raise DataError(
            f"y is {y!r}, which is neither an array nor a name: names are text. Give a value for "
            f"each row, or the name of a column as text, such as {str(y)!r}."
        )
    columns = [n for n in table.names if n not in used]
    wanted = columns if inputs is None else [str(name) for name in inputs]
    unknown = [name for name in (*wanted, *used) if not table.has(name)]
    if unknown:
        raise DataError(
            f"X has no column {unknown[0]!r}; its columns are {', '.join(table.names)}. "
            "Give names from this list."
        )
    wanted = table.input_names(wanted, named=inputs is not None)
    weight = table.numbers(weight) if isinstance(weight, str) else _beside(weight)
    if len(targets) == 1 and isinstance(y, str):
        y = _target(table, y)
    else:
        y = table.matrix(targets) if targets else _beside(y)
    return table.matrix(wanted), y, weight, tuple(wanted) if named else ()


def _target(table: Any, name: str) -> Any:
    """A column as it is, for labels may be strings; times in days."""
    values = table.find(name).variable.data
    return table.numbers(name) if values.dtype.kind in "mM" else values


def _beside(values: Any) -> Any:
    """y or weights of rows in memory: NumPy arrays, unless scikit-learn accepts them unchanged."""
    if values is None or isinstance(values, np.ndarray):
        return values
    if kind_of(values) == "table" and not hasattr(values, "iloc"):
        table = table_of(values)
        return table.matrix(table.names)
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


def open_values(asked: Any, data: Data) -> Opened:
    """The rows of a regression; refuses data without a target."""
    targets = target_names(data.y)
    names: tuple[str, ...] = ()
    flat = data.y is None or isinstance(data.y, str) or getattr(data.y, "ndim", 1) == 1
    if in_memory(data.X, data.where, data.by):
        data, names = rows_in_memory(copy.copy(asked), data)
        data = replace(data, y=checked_targets(asked, data))
        flat = data.y.ndim == 1
    else:
        targets = ()
    source = source_of(asked, data)
    require_target(asked, source.columns.targets or None)
    columns = with_given_names(source.columns, names, targets)
    return Opened(source, columns, flat and len(columns.targets) == 1, names)


def open_inputs(asked: Any, data: Data) -> Opened:
    """The rows of an estimator that has no target: y is not looked at."""
    data = replace(data, y=None)
    names: tuple[str, ...] = ()
    if in_memory(data.X, data.where, data.by):
        data, names = rows_in_memory(copy.copy(asked), data)
    source = source_of(asked, data)
    return Opened(source, with_given_names(source.columns, names, ()), True, names)


def open_labels(asked: Any, data: Data, fitted: Fitted | None = None) -> Opened:
    """The rows of a classifier; ``fitted`` where it goes on from a fit."""
    target, table = target_names(data.y), None
    names: tuple[str, ...] = ()
    if in_memory(data.X, data.where):
        data, names = rows_in_memory(copy.copy(asked), data, later=fitted is not None)
        y, table = checked_labels(asked, data)
        data = replace(data, y=y)
    require_target(asked, data.y)
    columns = None if fitted is None else replace(fitted.columns, targets=(), weight="")
    source = source_of(asked, data, y_labels=True, columns=columns)
    if fitted is not None:
        return Opened(source, fitted.columns, True, fitted.feature_names, table)
    units = source.columns.units
    found = replace(
        source.columns, targets=target[:1] or ("y",), units=(*units, "") if units else ()
    )
    return Opened(source, with_given_names(found, names, ()), True, names, table)


def open_later(asked: Any, fitted: Fitted, data: Data, *, labels: bool = False) -> Opened:
    """Rows that come after those of a fit, with its columns and conditions.

    Raises ModelError: when their names or units are not those of the fit.
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
    rows, _ = rows_in_memory(asked, data, later=True)
    y = checked_targets(asked, rows) if targets else None
    given = 0 if y is None else int(np.prod(y.shape[1:]))
    if given != len(targets):
        raise ModelError(
            f"y has {given} targets, but the model was fitted on {len(targets)} "
            f"({', '.join(targets)}). Give those."
        )
    source = source_of(asked, Data(rows.X, y, rows.sample_weight))
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
