"""pandas DataFrames and Series: columns by name, values in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream.errors import DataError
from rff_stream.sources.columns import Found, align
from rff_stream.sources.grid import GridSource
from rff_stream.sources.kinds import check_index, is_from
from rff_stream.sources.request import Request
from rff_stream.sources.tables import Table
from rff_stream.sources.variable import Variable, column_values, variable_of
from rff_stream.words import list_names

if TYPE_CHECKING:
    import pandas


def open_container(X: Any, y: Any, request: Request) -> GridSource:
    """A source of the rows of a DataFrame (or of a Series as its one column)."""
    check_index(X, y=y, sample_weight=request.sample_weight, by=request.by)
    frame = frame_of(X)
    draft = align(Frame(frame, request.missing_chunks), y, request)
    return draft.source(partial(frame_wrap, frame.index), request)


def table_of(X: Any) -> Table:
    """The columns of a DataFrame (or of a Series, the only one) by name."""
    return Frame(frame_of(X), "auto")


def frame_of(X: Any) -> Any:
    """A DataFrame as it is; a Series as its one column."""
    return X if hasattr(X, "columns") else X.to_frame(X.name if X.name is not None else "x0")


class Frame(Table):
    """The columns of a DataFrame; y may be another one, its rows paired by place."""

    def __init__(self, frame: Any, missing_chunks: str) -> None:
        names = text_names(frame)

        def column(name: str) -> Variable:
            return column_of(name, frame.iloc[:, names.index(name)])

        super().__init__(names, column, "the DataFrame", missing_chunks)

    def targets(self, y: Any) -> list[Found]:
        """Targets by name, or columns and arrays with a row each."""
        return named_targets(y) if is_from(y, "pandas") else super().targets(y)


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
            f"The DataFrame has several columns named {list_names(twice)}. Columns are found by "
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
