"""Recognises any container and opens it as a source of rows.

A new kind of container is a file of this subpackage with ``open_container(selection)`` and a
line in ``OPENERS``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from rff_stream.errors import DataError
from rff_stream.sources.container_types import TABLES_OF_PANDAS, type_is_from, unknown_container
from rff_stream.sources.missing import without_indicators
from rff_stream.sources.protocol import Columns, Source
from rff_stream.sources.request import Selection, Where

if TYPE_CHECKING:
    from rff_stream.sources.tables import Table

ContainerKind = Literal["array", "table", "labelled", "lazy", "stored"]
"""What a container is: rows in memory without names or with names, named dimensions, a graph or
query that is computed when it is read, or a path."""


@dataclass(frozen=True, slots=True)
class Opener:
    """A kind of container, and the module that opens it."""

    module: str
    """Where ``open_container(selection) -> Source`` is; ".paths" is a file beside this one."""
    kind: ContainerKind  # {"array", "table", "labelled", "lazy", "stored"}
    types: tuple[str, ...]
    """Modules that the type of X, or a base of it, comes from, or whole names of types."""


PATHS = Opener(".paths", "stored", ("builtins.str", "pathlib", "zarr", "icechunk"))
"""Also opens whatever is a path by ``os.PathLike``."""

OPENERS = (
    PATHS,
    Opener(".labelled", "labelled", ("xarray",)),
    Opener(".tables", "lazy", ("dask.dataframe", "dask_expr")),
    Opener(".tables", "table", TABLES_OF_PANDAS),
    Opener(".arrays", "array", ("pandas",)),  # Categorical, other arrays of pandas, Index
    Opener(
        ".arrow_and_parquet",
        "table",
        ("polars.dataframe", "pyarrow.lib.Table", "pyarrow.lib.RecordBatch"),
    ),
    Opener(".arrow_and_parquet", "lazy", ("polars.lazyframe", "pyarrow._dataset", "duckdb")),
    Opener(".arrays", "lazy", ("dask.array",)),
    Opener(".arrays", "array", ("numpy", "builtins.list", "builtins.tuple", "builtins.range")),
    Opener(".arrays", "array", ("builtins.memoryview", "array.array", "scipy.sparse")),
    Opener(".arrays", "array", ("torch", "jax", "jaxlib")),
    Opener(".arrays", "array", ("sklearn",)),  # containers of its checks
)
"""The first that knows a type opens it; what none knows is refused by its name."""


STREAM = Opener(".arrow_and_parquet", "lazy", ())
"""Opens what gives Arrow batches by the PyCapsule protocol: relations, queries, readers."""


def opener_of(X: Any) -> Opener | None:
    """The opener of X; None for a container that is not known."""
    container: Any = type(X)
    return _opener_of(container)


@functools.lru_cache(maxsize=256)
def _opener_of(container: Any) -> Opener | None:
    known = (each for each in OPENERS if any(type_is_from(container, name) for name in each.types))
    found = next(known, None)
    if found is None and issubclass(container, os.PathLike):
        return PATHS
    return STREAM if found is None and hasattr(container, "__arrow_c_stream__") else found


def kind_of(X: Any) -> ContainerKind | None:
    """The kind of container that X is; None if it is not known."""
    opener = opener_of(X)
    return None if opener is None else opener.kind


def table_of(X: Any) -> Table:
    """The columns of a table in memory (``kind_of(X) == "table"``) by name."""
    opener = opener_of(X)
    if opener is None or opener.kind != "table":
        raise unknown_container("X", X)
    table: Table = import_module(opener.module, __package__).table_of(X)
    return table


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
        For labelled data it is broadcast by name. Rows of weight 0 are left out.
    inputs : names, optional
        Variables, coordinates or virtual names ("time.dayofyear"). By default all data
        variables except y and the weight.
    dim : str or sequence of str, optional
        Sample dimensions; by default those of y. Others become columns, such as u[level=500].
    by : name, names or array-like, optional
        Group label of each row; for several columns the text "month=1,region=north".
    y_labels : bool
        y is the class of each row, not a number; then ``by`` is not used.
    missing_rows : {"error", "drop", "indicate"}
        The meaning of a NaN in a row. Use "drop" if the data have gaps. "indicate": inputs are NaN
        where they are missing, for an estimator that fills them; rows without a target are left
        out.
    missing_chunks : {"auto", "error", "fill"}
        The meaning of an absent Zarr chunk. "auto": its rows are missing if the fill value
        means missing, otherwise it is an error. "fill": all its values are the fill value.
    where : sequence of (name, op, value) or HoldOut
        Conditions. Rows that do not meet all of them are left out.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.
    columns : Columns, optional
        For prediction, the columns of the fit: the source gives these inputs in this order.

    Returns
    -------
    Source

    Raises
    ------
    DataError
        If a name does not exist, lengths differ, or a column does not hold numbers.

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
    return open_selection(
        Selection(
            X,
            y,
            sample_weight,
            inputs,
            dim,
            where,
            by,
            storage_options,
            missing_rows,
            missing_chunks,
            y_labels,
            columns,
        )
    )


def open_selection(selection: Selection) -> Source:
    """The rows of a selection, as :func:`open_source` gives them; nothing is read or computed."""
    selection.check()
    opener = opener_of(selection.X)
    if opener is None:
        raise unknown_container("X", selection.X)
    if selection.columns is not None:
        selection = replace(selection, columns=without_indicators(selection.columns))
    if opener is PATHS:
        from rff_stream.sources.data_files import files_below, open_together

        if files := files_below(selection.X, selection.storage_options):
            names = selection.columns.inputs if selection.columns else selection.inputs
            together = open_together(files, selection.y, selection.storage_options, names)
            return open_selection(replace(selection, X=together))
    source: Source = import_module(opener.module, __package__).open_container(selection)
    if selection.columns is None:
        for name in selection.dims or ():
            if name not in source.dims:
                raise DataError(
                    f"dim={selection.dims!r}, but X has no dimension {name!r}. Only labelled data, "
                    "such as a Dataset of xarray or a Zarr store, have dimensions with names. "
                    "Leave dim out."
                )
    return source
