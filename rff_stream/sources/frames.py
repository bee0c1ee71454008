"""pandas DataFrames and Series: columns by name, values in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream.errors import DataError
from rff_stream.sources.columns import Found, Request
from rff_stream.sources.grid import GridSource
from rff_stream.sources.tables import Table
from rff_stream.sources.values import column_values, is_from, listed
from rff_stream.sources.variable import Variable, variable_of

if TYPE_CHECKING:
    import pandas

__all__ = ["column_of", "frame_wrap", "open_frame", "text_names"]


def open_frame(X: Any, y: Any, request: Request) -> GridSource:
    """A source of the rows of a DataFrame (or of a Series as its one column)."""
    frame = X if hasattr(X, "columns") else X.to_frame(X.name if X.name is not None else "x0")
    names = text_names(frame)

    def column(name: str) -> Variable:
        return column_of(name, frame.iloc[:, names.index(name)])

    table = Table(names, column, "the DataFrame")
    targets = named_targets(y) if is_from(y, "pandas") else table.targets(y, request)
    wrap = partial(frame_wrap, frame.index)
    return table.draft(targets, request).source(wrap, request)


def named_targets(y: Any) -> list[Found]:
    """A Series or the columns of a DataFrame; rows are paired by place."""
    if y.ndim == 1:
        name = "y" if y.name is None else str(y.name)
        return [Found(name, column_of(name, y))]
    names = text_names(y)
    return [Found(name, column_of(name, y.iloc[:, i])) for i, name in enumerate(names)]


def text_names(frame: Any) -> list[str]:
    """Names of the columns as text, each once."""
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"The DataFrame has several columns named {listed(twice)}. Columns are found by "
            f"name, so each has its own. Rename them."
        )
    return names


def column_of(name: str, series: pandas.Series[Any]) -> Variable:
    """A column as a variable, with what it holds where numpy cannot say it."""
    kind = str(series.dtype)
    note = ""
    if kind == "category":
        note = "categories (dtype category)"
    elif kind in ("object", "str", "string") or kind.startswith("string"):
        note = f"{'objects' if kind == 'object' else 'strings'} (dtype {kind})"
    return variable_of(name, ("rows",), column_values(series), note=note)


def frame_wrap(index: Any, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
    """A Series, or a DataFrame where there are several values a row."""
    import pandas

    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1 and len(names) == 1:
        values = values[:, 0]
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names[0])
    return pandas.DataFrame(values, index=index, columns=list(names))
