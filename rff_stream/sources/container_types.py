"""What containers and values are, told by the names of their types: nothing is imported for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import OPTIONS
from rff_stream.errors import DataError, RffStreamError
from rff_stream.remote_calls import no_answer
from rff_stream.text_formatting import cause_words, hide_options, redact_url


class KindError(DataError, TypeError):
    """A column holds what cannot be a number: strings, objects, complex values."""


def is_from(value: Any, name: str) -> bool:
    """Whether the type (or a base of it) comes from a module or has this whole name.

    Nothing is imported for it.
    """
    kind: Any = type(value)
    return type_is_from(kind, name)


@functools.lru_cache(maxsize=4096)
def type_is_from(kind: Any, name: str) -> bool:
    """The same of a type: few are asked about, and often."""
    names = (f"{base.__module__}.{base.__qualname__}." for base in kind.__mro__)
    return any(each.startswith(f"{name}.") for each in names)


TABLES_OF_PANDAS = ("pandas.DataFrame", "pandas.Series", "pandas.core.frame.DataFrame",
                    "pandas.core.series.Series", "modin")  # fmt: skip
"""Tables of pandas, which have an index; pandas before 3 gives the longer names."""


def is_table_of_pandas(values: Any) -> bool:
    """Whether this is a DataFrame or Series; other objects of pandas have no index."""
    return any(is_from(values, name) for name in TABLES_OF_PANDAS)


def unknown_container(role: str, values: Any) -> KindError:
    """The error that names a type which is no container here."""
    kind = type(values)
    return KindError(
        f"{role} is a {kind.__module__}.{kind.__qualname__}, which is not a known type of "
        "container. Known are arrays (NumPy, Dask, lists), tables, xarray objects, Zarr groups and "
        "paths. Convert it: numpy.asarray(…) where it fits in memory, dask.array.from_array(…) "
        "where slices of it can be read."
    )


def is_names(values: Any) -> bool:
    """Whether this is a list of names, at least one."""
    several = isinstance(values, list | tuple) and len(values) > 0
    return several and all(isinstance(name, str) for name in values)


def is_sparse(values: Any) -> bool:
    """Whether these are values of scipy.sparse: rows of them are made dense slab by slab."""
    return is_from(values, "scipy.sparse")


def have_unknown_rows(*several: Any) -> bool:
    """Whether one of these is a Dask array whose lengths are not known."""
    arrays = (each for each in several if is_from(each, "dask.array"))
    return any(bool(np.isnan(each.shape[0])) for each in arrays)


def plain_array(values: Any) -> Array:
    """A numpy array without a mask: masked entries become NaN."""
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind in "biuf":
            values = values.astype(np.float64)
        return np.ma.filled(values, np.nan)
    return np.asarray(values)


def needed_package(name: str, extra: str, fact: str) -> Any:
    """A package of an extra.

    Raises DataError: it is not installed: with the line that installs it.
    """
    try:
        return import_module(name)
    except ImportError as cause:
        raise DataError(
            f"{fact}, which is read with {name}, and that is not installed ({cause}). It comes "
            f"with an extra. Install it: pip install 'rff_stream[{extra}]'."
        ) from cause


EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""Packages of file systems, and the extra that installs them."""


def file_system_of(
    path: str, storage_options: Mapping[str, Any] | None, opened: Callable[..., Any]
) -> Any:
    """What ``opened`` returns for a URL and its options; no error shows a secret among these.

    Raises DataError: the package of the file system is absent, or refuses the options.
    """
    OPTIONS.check("storage_options", storage_options)
    hide_options(storage_options)
    try:
        return opened()
    except ImportError as cause:
        raise missing_extra(path, cause) from cause
    except Exception as cause:
        raise DataError(
            f"{redact_url(path)} cannot be opened: {cause_words(cause)}. storage_options are those "
            f"of its file system. Look at their names and values, and at the address."
        ) from cause


@contextmanager
def reached(path: str) -> Iterator[None]:
    """What a file system refuses is an error of the data, with the address and without secrets."""
    try:
        yield
    except RffStreamError:
        raise
    except Exception as cause:
        why = no_answer(cause) or cause_words(cause)
        raise DataError(
            f"{redact_url(path)} cannot be reached: {why}. Look at the address, the "
            f"network and the credentials (storage_options=, or the settings of the provider)."
        ) from cause


def missing_extra(
    path: str, cause: ImportError, error: type[RffStreamError] = DataError
) -> RffStreamError:
    """The error of a URL whose file system is not installed, with the line that installs it."""
    extra = next((extra for name, extra in EXTRAS.items() if name in str(cause)), "all")
    return error(
        f"{redact_url(path)} is on a file system whose package is not installed ({cause}). It "
        f"comes with an extra. Install it: pip install 'rff_stream[{extra}]'."
    )


def check_index(X: Any, *, name: str = "X", **others: Any) -> None:
    """pandas objects beside a pandas X, which a message calls by this name, have its index.

    Rows are paired by place.

    Raises DataError: naming what differs, and its first label that does.
    """
    if not is_table_of_pandas(X):
        return
    for role, each in others.items():
        if not is_table_of_pandas(each) or len(each) != len(X) or X.index.equals(each.index):
            continue
        first = next(i for i, (a, b) in enumerate(zip(X.index, each.index, strict=True)) if a != b)
        raise DataError(
            f"{role} and {name} have other indexes: {each.index[first]} and {X.index[first]} at "
            f"place {first}. Rows are paired by position, so indexes must agree. Give "
            f"{role}.loc[{name}.index], or {role}.to_numpy() if the positions are right."
        )
