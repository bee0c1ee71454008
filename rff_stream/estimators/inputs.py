"""Telling arrays in memory from everything else, and checking the former as scikit-learn does."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rff_stream.errors import DataError
from rff_stream.sources import kind_of
from rff_stream.sources.columns import plain_names
from rff_stream.sources.values import check_index, is_masked, plain_array

__all__ = [
    "checked_batch",
    "checked_fit",
    "checked_inputs",
    "checked_labels",
    "checked_rows",
    "framed_like",
    "in_memory",
    "in_storage",
    "kept_on_error",
    "lock_of",
    "names_of",
    "target_names",
    "unchanged_on_error",
]

LOCKS: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
ALL_LOCKS = threading.Lock()

P = ParamSpec("P")
Result = TypeVar("Result")


def in_memory(X: Any) -> bool:
    """Whether X is an array, list or table in memory, without named dimensions."""
    return kind_of(X) in ("array", "table")


def in_storage(X: Any) -> bool:
    """Whether X is a path, a URL or a Zarr object: what it holds may not fit in memory."""
    return kind_of(X) == "stored"


def names_of(X: Any) -> tuple[str, ...] | None:
    """Column names of a DataFrame; None for arrays."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(columns)


def target_names(y: Any) -> tuple[str, ...]:
    """Names that the targets of rows in memory were given by, or bring; none for arrays."""
    if isinstance(y, str):
        return (y,)
    own: Any = y if _is_names(y) else names_of(y) or (getattr(y, "name", None),)
    return tuple(own) if all(isinstance(name, str) for name in own) else ()


def framed_like(X: Any, values: Any, names: tuple[str, ...]) -> Any:
    """Values of rows of a pandas DataFrame as a Series or DataFrame on its index."""
    if names_of(X) is None or type(X).__module__.partition(".")[0] != "pandas":
        return values
    from rff_stream.sources.frames import frame_wrap

    return frame_wrap(X.index, values, names, ())


def unchanged_on_error(method: Callable[P, Result]) -> Callable[P, Result]:
    """A method that leaves the estimator as it was when it raises; one at a time of an estimator.

    Several threads may call such methods of one estimator: each waits for the one before.
    """

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Result:
        with lock_of(args[0]):
            return kept_on_error(args[0], lambda: method(*args, **kwargs))

    return guarded


def kept_on_error(estimator: Any, act: Callable[[], Result]) -> Result:
    """What ``act()`` gives; where it raises, the attributes are those of before."""
    state = vars(estimator)
    before = dict(state)
    try:
        return act()
    except BaseException:
        state.clear()
        state.update(before)
        raise


def lock_of(estimator: Any) -> threading.RLock:
    """The lock of an estimator; not an attribute, so that it is neither copied nor pickled."""
    with ALL_LOCKS:
        return LOCKS.setdefault(estimator, threading.RLock())


def checked_fit(
    estimator: Any, X: Any, y: Any, weight: Any, inputs: Sequence[str] | None, missing_rows: str
) -> tuple[Any, Any, Any]:
    """X (n, d), y and weights of data in memory, as arrays; sets ``n_features_in_``.

    Raises
    ------
    ValueError
        In scikit-learn's words: NaN, infinity, shapes, complex data, weights.
    """
    X, y, weight = _by_name(X, y, weight, inputs)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    X, y = _checked_pairs(estimator, X, y, missing_rows)
    if weight is not None:
        weight = _checked_weights(X, weight)
    return X, y, weight


def checked_labels(
    estimator: Any, X: Any, y: Any, weight: Any, inputs: Sequence[str] | None, missing_rows: str,
    *, reset: bool = True,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """X (n, d), class numbers (n,), weights and the sorted labels of data in memory.

    Numbers are NaN where a label is missing and such rows are dropped. As :func:`checked_fit`
    otherwise.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

    X, y, weight = _by_name(X, y, weight, inputs)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    finite, X = _finite(missing_rows), X if reset else _as_fitted(estimator, X)
    X = validate_data(estimator, X, reset=reset, ensure_all_finite=finite, dtype="numeric")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    there = np.array([label is not None and label == label for label in y], bool)
    if missing_rows == "error" and not there.all():
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
    labels, found = np.unique(y[there], return_inverse=True)
    codes = np.full(len(y), np.nan)
    codes[there] = found
    codes = codes.astype(np.int64) if there.all() else codes
    return X, codes, None if weight is None else _checked_weights(X, weight), labels


def checked_inputs(
    estimator: Any, X: Any, weight: Any, inputs: Sequence[str] | None, missing_rows: str
) -> tuple[Any, Any]:
    """X (n, d) and weights of data in memory without targets; as :func:`checked_fit`."""
    from sklearn.utils.validation import validate_data

    X, _, weight = _by_name(X, None, weight, inputs)
    X = validate_data(estimator, X, ensure_all_finite=_finite(missing_rows), dtype="numeric")
    return X, None if weight is None else _checked_weights(X, weight)


def _checked_weights(X: Any, weight: Any) -> Any:
    """Weights (n,) ≥ 0, some above."""
    from sklearn.utils.validation import _check_sample_weight

    weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
    if not (weight > 0).any():
        raise ValueError(
            "Sample weights must contain at least one non-zero number: all are zero. "
            "Give the rows that should count a positive weight."
        )
    return weight


def _checked_pairs(estimator: Any, X: Any, y: Any, missing_rows: str) -> tuple[Any, Any]:
    """X (n, d) and y as arrays; rows with NaN in either stay where they will be dropped."""
    from sklearn.utils.validation import check_array, check_consistent_length, validate_data

    if missing_rows == "error":
        X, y = validate_data(estimator, X, y, multi_output=True, y_numeric=True, dtype="numeric")
        return X, y
    finite = _finite(missing_rows)
    X = validate_data(estimator, X, ensure_all_finite=finite, dtype="numeric")
    y = check_array(y, ensure_2d=False, ensure_all_finite=finite, dtype="numeric", input_name="y")
    check_consistent_length(X, y)
    return X, y


def checked_batch(
    estimator: Any, X: Any, y: Any, weight: Any, targets: bool, missing_rows: str
) -> tuple[Any, Any, Any]:
    """X (n, d), y and weights of more rows in memory, for an estimator that is fitted."""
    from sklearn.utils.validation import check_array, check_consistent_length

    X, y, weight = _by_name(X, y, weight, None)
    X = checked_rows(estimator, X, missing_rows)
    if targets:
        if y is None:
            raise ValueError(
                f"{type(estimator).__name__} requires y to be passed, but the target y is None."
            )
        finite = _finite(missing_rows)
        y = check_array(
            y, ensure_2d=False, ensure_all_finite=finite, dtype="numeric", input_name="y"
        )
        check_consistent_length(X, y)
    return X, y if targets else None, None if weight is None else _checked_weights(X, weight)


def checked_rows(estimator: Any, X: Any, missing_rows: str) -> Any:
    """Rows in memory for prediction (n, d)."""
    X = plain_array(X) if is_masked(X) else X
    from sklearn.utils.validation import validate_data

    return validate_data(
        estimator,
        _as_fitted(estimator, X),
        reset=False,
        ensure_all_finite=_finite(missing_rows),
        dtype="numeric",
    )


def _as_fitted(estimator: Any, X: Any) -> Any:
    """Inputs of a DataFrame by name and in order, for a fit on named columns of another kind.

    scikit-learn compares names with those of a fit on a DataFrame; it knows none of a Dataset or
    a store, and would take the columns as they come.
    """
    names, inputs = names_of(X), estimator.columns_.inputs
    if hasattr(estimator, "feature_names_in_") or names is None or plain_names(inputs):
        return X
    absent = [name for name in inputs if name not in names]
    if absent:
        raise DataError(
            f"X has no column {absent[0]!r}; its columns are {', '.join(map(str, names))}. "
            f"Give the inputs of the fit: {', '.join(inputs)}."
        )
    return np.asarray(X[list(inputs)])


def _finite(missing_rows: str) -> bool | str:
    return True if missing_rows == "error" else "allow-nan"


def _by_name(X: Any, y: Any, weight: Any, inputs: Sequence[str] | None) -> tuple[Any, Any, Any]:
    """Columns of a DataFrame that were given by name, and the inputs that are left.

    What a mask hides is NaN from here on: scikit-learn drops masks.
    """
    check_index(X, y=y, sample_weight=weight)
    X, y, weight = (plain_array(v) if is_masked(v) else v for v in (X, y, weight))
    names = names_of(X)
    if inputs is None and not (isinstance(y, str) or _is_names(y) or isinstance(weight, str)):
        return X, y, weight
    if names is None:
        if not _is_names(y):
            raise DataError(
                f"Columns were given by name but X is a {type(X).__name__} without names. "
                "Give arrays, or X as a DataFrame, Dataset or Zarr store."
            )
        return X, y, weight
    targets = [y] if isinstance(y, str) else y if _is_names(y) else []
    used = [*targets, *([weight] if isinstance(weight, str) else [])]
    wanted = list(inputs) if inputs is not None else [n for n in names if n not in used]
    unknown = [n for n in (*wanted, *used) if n not in names]
    if unknown:
        raise DataError(
            f"X has no column {unknown[0]!r}; its columns are {', '.join(map(str, names))}. "
            "Give names from this list."
        )
    if isinstance(weight, str):
        weight = X[weight]
    if targets:
        y = X[y] if isinstance(y, str) else X[list(targets)]
    return X[wanted], y, weight


def _is_names(y: Any) -> bool:
    return isinstance(y, (list, tuple)) and len(y) > 0 and all(isinstance(n, str) for n in y)
