"""Any container -> a source of rows: recognises what it is, and opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from rff_stream.errors import DataError
from rff_stream.sources.columns import Request, Where
from rff_stream.sources.protocol import Columns, Source
from rff_stream.sources.values import is_from

__all__ = ["open_source"]


def open_source(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    inputs: Sequence[Any] | str | None = None,
    dim: Sequence[str] | str | None = None,
    by: Any = None,
    y_labels: bool = False,
    missing_rows: str = "error",
    missing_chunks: str = "auto",
    where: Sequence[Where] = (),
    storage_options: Mapping[str, Any] | None = None,
    columns: Columns | None = None,
) -> Source:
    """The rows of any container, aligned and named; nothing is read or computed.

    Parameters
    ----------
    X : array, DataFrame, DataArray, Dataset, Zarr path, URL, group or store
    y : array-like, or name(s) in X, optional
    sample_weight : array-like or name in X, optional
        Broadcast by name for labelled data; rows of weight 0 are left out.
    inputs : names, optional
        Variables, coordinates or virtual names ("time.dayofyear"). Default: all data
        variables except y and the weight.
    dim : str or sequence of str, optional
        Sample dimensions; default those of y. Others become columns u[level=500].
    by : name, names or array-like, optional
        Group label of each row; of several columns the text "month=1,region=north".
    y_labels : bool
        y is the label of each row, of any kind, in place of ``by``: a class, not a number.
    missing_rows : {"error", "drop"}
        What a NaN in a row means. "drop" when the data have gaps.
    missing_chunks : {"auto", "error", "fill"}
        What an absent Zarr chunk means: "auto" takes it for missing rows where the fill
        value is missing, else an error; "fill" when fill values were left unwritten.
    where : sequence of (name, op, value) or HoldOut
        Rows that do not meet all of them are left out.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.
    columns : Columns, optional
        The fitted columns, at prediction: the source gives these inputs in this order.

    Returns
    -------
    Source

    Raises
    ------
    DataError
        Names that are not there, lengths that differ, columns that hold no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> source = open_source(np.eye(3), np.arange(3), where=[("y", ">", 0)])
    >>> source.columns.inputs, source.shape
    (('x0', 'x1', 'x2'), (3,))
    >>> box = ((0, 3),)
    >>> for rows in source.reader.read(box, *source.arguments(box)):
    ...     print(rows.y.ravel(), rows.keep)
    [1. 2.] [False  True  True]
    """
    several = isinstance(by, list | tuple) and all(isinstance(name, str) for name in by)
    request = Request(
        as_names(inputs), as_names(dim), tuple(where), missing_rows, missing_chunks, columns,
        sample_weight, None if several else by, y_labels, tuple(by) if several else (),
    )  # fmt: skip
    check_choice("missing_rows", missing_rows, ("error", "drop"))
    check_choice("missing_chunks", missing_chunks, ("auto", "error", "fill"))
    if isinstance(X, (str, PathLike)) or is_from(X, "zarr"):
        from rff_stream.sources.zarr import open_zarr

        return open_zarr(X, y, request, storage_options)
    return open_object(X, y, request)


def open_object(X: Any, y: Any, request: Request) -> Source:
    """A source of what is already open."""
    if is_from(X, "xarray"):
        from rff_stream.sources.labelled import open_labelled

        return open_labelled(X, y, request)
    if is_from(X, "dask.dataframe"):
        from rff_stream.sources.daskframes import open_dask_frame

        return open_dask_frame(X, y, request)
    if is_from(X, "pandas"):
        from rff_stream.sources.frames import open_frame

        return open_frame(X, y, request)
    from rff_stream.sources.arrays import open_arrays

    return open_arrays(X, y, request)


def as_names(names: Sequence[Any] | str | None) -> tuple[Any, ...] | None:
    """One name or several, as a tuple."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """The value is one of the choices."""
    if value not in choices:
        raise DataError(f"{name}={value!r}, but it is one of {', '.join(map(repr, choices))}.")
