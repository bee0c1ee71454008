"""Named columns of equal length: what tables of pandas, Dask, Arrow and plain Zarr groups share.

Values of pandas are in memory, those of Dask are computed partition by partition, with X, y and
weights in one frame, so that Parquet is read once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError, warn
from rff_stream.sources.arrays import as_it_is, one_a_row, targets_of
from rff_stream.sources.blocks import BlockSource, Member, block_source, check_counts
from rff_stream.sources.columns import align, plain_names, virtual_column
from rff_stream.sources.container_types import check_index, is_from, is_names, is_table_of_pandas
from rff_stream.sources.graph_arrays import recheck
from rff_stream.sources.levels import level_set
from rff_stream.sources.named_variables import NamedVariable
from rff_stream.sources.protocol import Source
from rff_stream.sources.request import Selection
from rff_stream.sources.rows import NonNumbers
from rff_stream.sources.variables import Variable, VariablesSource, typed_values, variable_of
from rff_stream.text_formatting import list_names, suggestion

if TYPE_CHECKING:
    import pandas


CF_ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def open_table(arrays: Mapping[str, Any], selection: Selection, name: str) -> VariablesSource:
    """A source of the arrays of a plain Zarr group, one or two dimensions each."""

    def column(key: str) -> Variable:
        return stored_column(key, arrays[key], selection, name)

    table = Table(sorted(arrays), column, name, selection.missing_chunks)
    return align(table, selection).source(as_it_is, selection)


def stored_column(key: str, array: Any, selection: Selection, name: str) -> Variable:
    """A Zarr array as a column, or as several along its second axis."""
    packed = [attribute for attribute in CF_ATTRIBUTES if attribute in array.attrs]
    if packed:
        raise DataError(
            f"{name}: array {key!r} has the attributes {list_names(packed)} but no names of "
            f"dimensions. Packed values are decoded by xarray, which needs the names; write "
            f"them (dimension_names, or _ARRAY_DIMENSIONS in Zarr v2), or unpacked values."
        )
    if array.ndim not in (1, 2):
        raise DataError(
            f"{name}: array {key!r} has shape {array.shape} and no names of dimensions. A plain "
            f"array holds rows, or rows and columns. Name its dimensions, or leave it out with "
            f"inputs=[…]."
        )
    data = recheck(array, (), selection.missing_chunks)
    words = {name: str(array.attrs.get(name, "")) for name in ("units", "long_name")}
    return variable_of(key, ("rows", "columns")[: array.ndim], data, **words)


class Table:
    """Columns by name; a column of two dimensions holds several, t[0], t[1], ….

    A :class:`~.columns.Container`. ``make`` gives the Variable of a name, and is called once for
    each; ``what`` is the table in messages. Columns of an ``index`` number the rows: they are
    inputs only where they are named.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str], Variable],
        what: str,
        missing_chunks: str = "auto",
        index: Collection[str] = (),
    ) -> None:
        self.names = list(names)
        self.index = frozenset(index)
        self.variable = functools.cache(make)
        self.what = what
        self.missing_chunks = missing_chunks

    def find(self, name: str) -> NamedVariable:
        """A column, one of several t[0], a virtual name time.dayofyear, or a level sky=rain."""
        if name in self.names:
            return self.whole(name)
        stem, bracket, place = name.removesuffix("]").rpartition("[")
        if bracket and stem in self.names and place.isdigit():
            return self.single(name, stem, int(place))
        found = virtual_column(name, self.names, self.variable)
        if found is None:
            raise DataError(f"There is no {name!r} in {self.what}. {suggestion(name, self.names)}")
        return found

    def has(self, name: str) -> bool:
        """Whether a name is a column, or a field of one."""
        try:
            self.find(name)
        except DataError:
            return False
        return True

    def whole(self, name: str) -> NamedVariable:
        """A column, or all the columns of a two-dimensional one."""
        variable = self.variable(name)
        if len(variable.dims) == 1:
            return NamedVariable(name, variable)
        names = tuple(f"{name}[{i}]" for i in range(variable.shape[1]))
        return NamedVariable(name, variable, columns=names)

    def single(self, name: str, stem: str, place: int) -> NamedVariable:
        """One of the columns of a two-dimensional one."""
        variable = self.variable(stem)
        if len(variable.dims) == 1 or place >= variable.shape[1]:
            shape = variable.shape
            raise DataError(f"There is no {name!r} in {self.what}: {stem!r} has shape {shape}.")
        return NamedVariable(name, variable, picks=((place,),))

    def targets(self, y: Any) -> list[NamedVariable]:
        """Targets by name, or an array with a row each."""
        names = [y] if isinstance(y, str) else y
        if is_names(names):
            return [self.find(name) for name in names]
        return [targets_of(y, self.missing_chunks)]

    def column(self, role: str, values: Any) -> NamedVariable:
        return self.find(values) if isinstance(values, str) else self.on_samples(role, values)

    def on_samples(
        self, role: str, values: Any, sizes: Mapping[str, int] | None = None
    ) -> NamedVariable:
        return one_a_row(role, values, self.missing_chunks)

    def sizes(
        self,
        selection: Selection,
        inputs: Sequence[NamedVariable],
        targets: Sequence[NamedVariable],
    ) -> dict[str, int]:
        return {"rows": (*targets, *inputs)[0].variable.shape[0]}

    def inputs(
        self, selection: Selection, targets: Sequence[NamedVariable], weight: NamedVariable | None
    ) -> list[NamedVariable]:
        """Inputs: those of the fit, those asked for, or all the other columns."""
        others = [each.variable for each in (*targets, *((weight,) if weight else ()))]
        used = {variable.name for variable in others if self.holds(variable)}
        if selection.columns is not None:
            return self.columns_of_fit(selection.columns.inputs, used)
        if selection.input_names is not None:
            return [self.find(str(name)) for name in selection.input_names]
        found = [self.whole(name) for name in self.names if name not in used | self.index]
        if not found:
            raise DataError(
                f"There are no inputs left in {self.what}: {list_names(self.names)} are target, "
                f"weight or index. A model needs at least one other column; an index is an input "
                f"if it is named in inputs=[…]."
            )
        return found

    def holds(self, variable: Variable) -> bool:
        """Whether a target or weight is a column of this table, not values beside it."""
        return variable.name in self.names and self.variable(variable.name) is variable

    def columns_of_fit(self, names: Sequence[str], used: set[str]) -> list[NamedVariable]:
        """The inputs of the fit by name; by count where the fit had no names."""
        if not plain_names(names) or set(names) <= set(self.names):
            absent = next((name for name in names if not self.has(name)), None)
            if absent is not None:
                raise DataError(
                    f"X has no column {absent!r}; its columns are {', '.join(self.names)}. The "
                    "feature names should match those that were passed during fit: "
                    f"{', '.join(names)}. Columns are found by name, in any order; give all of "
                    "these."
                )
            return [self.find(name) for name in names]
        found = [self.whole(name) for name in self.names if name not in used | self.index]
        widths = [len(each.columns or (each.name,)) for each in found]
        count = sum(widths)
        if count != len(names):
            raise DataError(
                f"X has {count} features, but the model is expecting {len(names)} features as "
                f"input: a fit without names takes columns by their number. Give those columns."
            )
        if not all(each.name.isdigit() or each.name in names for each in found):
            warn(
                f"X has names ({', '.join(each.name for each in found)}), but the model was fitted "
                f"without: its columns are taken by place, in this order. Fit with names, or give "
                f"an array.",
                UserWarning,
            )
        own = iter(names)
        return [
            replace(f, columns=tuple(islice(own, w))) for f, w in zip(found, widths, strict=True)
        ]


def open_container(selection: Selection) -> Source:
    """A source of the rows of a DataFrame (or of a Series as its one column)."""
    X = selection.X
    if is_from(X, "dask.dataframe") or is_from(X, "dask_expr"):
        frame = X if hasattr(X, "columns") and X.ndim == 2 else X.to_frame()
        return DaskFrame(frame).source(selection)
    check_index(X, y=selection.y, sample_weight=selection.sample_weight, by=selection.by)
    frame = frame_of(X)
    builder = align(Frame(frame, selection.missing_chunks), selection)
    return builder.source(partial(frame_wrap, frame.index), selection)


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

    def targets(self, y: Any) -> list[NamedVariable]:
        """Targets by name, or columns and arrays with a row each."""
        return named_targets(y) if is_table_of_pandas(y) else super().targets(y)


def named_targets(y: Any) -> list[NamedVariable]:
    """A Series or the columns of a DataFrame; rows are paired by place."""
    if y.ndim == 1:
        name = "y" if y.name is None else str(y.name)
        return [NamedVariable(name, column_of(name, y))]
    names = text_names(y)
    return [NamedVariable(name, column_of(name, y.iloc[:, i])) for i, name in enumerate(names)]


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
    kind, values = str(series.dtype), typed_values(series)
    if kind == "object" and len(series):
        values = numbers_among(values)
        kind = str(values.dtype)
    holds = None
    if kind == "category":
        holds = NonNumbers("categories", kind)
    elif kind in ("object", "str", "string") or kind.startswith("string"):
        holds = NonNumbers("objects" if kind == "object" else "strings", kind)
    return variable_of(name, ("rows",), values, holds=holds)


def numbers_among(values: Array) -> Array:
    """Objects that are numbers, all of them, in their own dtype; others as they are."""
    from pandas import isna
    from pandas.api.types import infer_dtype

    kind = infer_dtype(values, skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float", "boolean", "decimal", "empty"):
        with contextlib.suppress(TypeError, ValueError):
            found = np.array(values.tolist())
            if found.dtype.kind not in "biuf":
                found = np.where(isna(values), np.nan, values).astype(np.float64)
            return found
    return values


def frame_wrap(index: Any, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
    """A Series, or a DataFrame where there are several values a row."""
    import pandas

    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1 and len(names) == 1:
        values = values[:, 0]
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names[0])
    return pandas.DataFrame(values, index=index, columns=list(names))


class DaskFrame(Table):
    """The columns of a Dask DataFrame, and other collections with the same partitions."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.members: dict[str, Any] = {"X": frame}
        self.places: dict[int, tuple[int, Any]] = {}
        super().__init__(text_names(frame), self.frame_column, "the DataFrame")

    def frame_column(self, name: str) -> Variable:
        """A column of the frame, from its meta."""
        place = self.names.index(name)
        return self.placeholder(name, self.frame._meta.iloc[:, place], 0, self.frame.columns[place])

    def placeholder(self, name: str, meta: Any, member: int, column: Any) -> Variable:
        """A variable of no rows, and where its values will be."""
        variable = replace(column_of(name, meta), levels=dask_levels(meta))
        self.places[id(variable)] = (member, column)
        return variable

    def holds(self, variable: Variable) -> bool:
        """By name: values beside a Dask frame are most often its own columns."""
        return variable.name in self.names

    def join(self, name: str, values: Any) -> list[NamedVariable]:
        """The columns of another collection that is paired with the frame."""
        values = as_frame(name, values)
        self.members[name] = values
        place = len(self.members) - 1
        if values.ndim == 1:
            own = str(name if values.name is None else values.name)
            return [NamedVariable(own, self.placeholder(own, values._meta, place, None))]
        metas = ((label, values._meta.iloc[:, i]) for i, label in enumerate(values.columns))
        return [NamedVariable(str(label), self.placeholder(str(label), meta, place, label))
                for label, meta in metas]  # fmt: skip

    def targets(self, y: Any) -> list[NamedVariable]:
        """Targets by name, or another collection with the same partitions."""
        by_name = isinstance(y, (str, list, tuple))
        return super().targets(y) if by_name else self.join("y", y)

    def on_samples(
        self, role: str, values: Any, sizes: Mapping[str, int] | None = None
    ) -> NamedVariable:
        """A collection of one column with the same partitions."""
        return self.join(role, values)[0]

    def source(self, selection: Selection) -> BlockSource:
        """The source of what was asked for."""
        builder = align(self, selection)
        check_counts({name: each.npartitions for name, each in self.members.items()})
        needed = {self.places[id(v)] for v in builder.variables}
        frame = in_tuples(list(self.members.values()), [c for member, c in needed if member == 0])
        members = [Member(name) for name in self.members]
        wrap = partial(dask_frame_wrap, self.frame.index)
        return block_source(
            builder, members, [frame], lambda v: self.places[id(v)], wrap, selection, packed=True
        )


def dask_levels(meta: Any) -> tuple[str, ...]:
    """The categories of a column; none where Dask does not know them, and for other columns."""
    from dask.dataframe.utils import has_known_categories

    if str(meta.dtype) != "category" or not has_known_categories(meta):
        return ()
    return tuple(sorted(level_set(np.asarray(meta.cat.categories, object))))


def as_frame(name: str, values: Any) -> Any:
    """A Dask Series or DataFrame of what is paired with a Dask DataFrame."""
    if is_from(values, "dask.dataframe"):
        return values
    if is_from(values, "dask.array"):
        import dask.dataframe

        return dask.dataframe.from_dask_array(values, columns=name if values.ndim == 1 else None)
    raise DataError(
        f"{name} is in memory ({type(values).__name__}), but X is a Dask DataFrame, whose lengths "
        f"are unknown. Rows are paired partition by partition; give {name} as a column of X by "
        f"its name, or as a Dask Series with the same partitions."
    )


def in_tuples(members: Sequence[Any], columns: Sequence[Any]) -> Any:
    """One frame whose partitions are tuples of the members' partitions.

    It is lowered but not tuned: tuning merges partitions, and not alike for all members.
    """
    first = members[0]
    first = first[sorted(columns, key=list(first.columns).index)]
    whole = first.map_partitions(
        as_tuple, *members[1:], align_dataframes=False, enforce_metadata=False, meta=first._meta
    )
    return whole.simplify().lower_completely()


def as_tuple(*blocks: Any) -> tuple[Any, ...]:
    """The blocks of one partition as one value; the leaf checks their lengths."""
    return blocks


def dask_frame_wrap(index: Any, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
    """A Dask Series, or a Dask DataFrame where there are several values a row."""
    import dask.dataframe

    if values.ndim == 2 and values.shape[1] == 1 and len(names) == 1:
        values = values[:, 0]
    columns = names[0] if values.ndim == 1 else list(names)
    rows = dask.dataframe.from_dask_array(values, columns=columns)
    # Not by its argument index: that loses the tasks of an index of frames that were joined.
    return dask.dataframe.map_partitions(
        under_index, index, rows, meta=under_index(index._meta, rows._meta),
        align_dataframes=False, enforce_metadata=False,
    )  # fmt: skip


def under_index(index: Any, rows: Any) -> Any:
    """The rows of a partition under its index."""
    return rows.set_axis(index)
