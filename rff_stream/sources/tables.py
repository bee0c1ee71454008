"""Named columns of equal length: what tables of pandas, Arrow and plain Zarr groups share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.arrays import as_it_is, one_a_row, targets_of
from rff_stream.sources.columns import (
    Found,
    align,
    gather_levels,
    plain_names,
    virtual_column,
    with_levels,
)
from rff_stream.sources.grid import GridSource, Variable, variable_of
from rff_stream.sources.request import Request
from rff_stream.sources.trace import recheck
from rff_stream.words import list_names, suggestion

CF_ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def open_table(arrays: Mapping[str, Any], y: Any, request: Request, name: str) -> GridSource:
    """A source of the arrays of a plain Zarr group, one or two dimensions each."""

    def column(key: str) -> Variable:
        return stored_column(key, arrays[key], request, name)

    table = Table(sorted(arrays), column, name, request.missing_chunks)
    return align(table, y, request).source(as_it_is, request)


def stored_column(key: str, array: Any, request: Request, name: str) -> Variable:
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
    data = recheck(array, (), request.missing_chunks)
    units = str(array.attrs.get("units", ""))
    return variable_of(key, ("rows", "columns")[: array.ndim], data, units=units)


class Table:
    """Columns by name; a column of two dimensions holds several, t[0], t[1], ….

    A :class:`~.columns.Container`. ``make`` gives the Variable of a name, and is called once for
    each; ``what`` is the table in messages.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str], Variable],
        what: str,
        missing_chunks: str = "auto",
    ) -> None:
        self.names = list(names)
        self.variable = functools.cache(make)
        self.what = what
        self.missing_chunks = missing_chunks

    def find(self, name: str) -> Found:
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

    def matrix(self, names: Sequence[str]) -> Array:
        """Columns in memory (n, k) as numbers; times in days, and columns of objects tried.

        Raises KindError: strings, categories and other values that are no numbers: by the column's
        name.
        """
        parts = [self.values(each) for each in gather_levels(self.find(name) for name in names)]
        if not parts:
            rows = self.variable(self.names[0]).shape[0] if self.names else 0
            return np.empty((rows, 0))
        return np.column_stack(parts)

    def input_names(self, names: Sequence[str], named: bool) -> list[str]:
        """Names of columns in memory, with a name for each level of one that has levels.

        Columns of text have them where they were ``named``, those of categories always.
        """
        several = [with_levels(self.find(name), named) for name in names]
        return [name for each in several for name in (each.columns or (each.name,))]

    def numbers(self, name: str) -> Array:
        """A column in memory as numbers."""
        return self.values(self.find(name))

    def values(self, found: Found) -> Array:
        """A column in memory as numbers, or one for each of its levels."""
        variable = found.variable
        if not found.levels and variable.note.startswith("objects") and variable.dtype.kind == "O":
            try:
                return variable.data.astype(np.float64)  # type: ignore[no-any-return]
            except (TypeError, ValueError):
                pass
        values = found.numbers()(variable.data)
        return values.astype(np.uint8) if values.dtype.kind == "b" else values

    def whole(self, name: str) -> Found:
        """A column, or all the columns of a two-dimensional one."""
        variable = self.variable(name)
        if len(variable.dims) == 1:
            return Found(name, variable)
        names = tuple(f"{name}[{i}]" for i in range(variable.shape[1]))
        return Found(name, variable, columns=names)

    def single(self, name: str, stem: str, place: int) -> Found:
        """One of the columns of a two-dimensional one."""
        variable = self.variable(stem)
        if len(variable.dims) == 1 or place >= variable.shape[1]:
            shape = variable.shape
            raise DataError(f"There is no {name!r} in {self.what}: {stem!r} has shape {shape}.")
        return Found(name, variable, picks=((place,),))

    def targets(self, y: Any) -> list[Found]:
        """Targets by name, or an array with a row each."""
        names = [y] if isinstance(y, str) else y
        if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
            return [self.find(name) for name in names]
        return [targets_of(y, self.missing_chunks)]

    def column(self, role: str, values: Any) -> Found:
        return self.find(values) if isinstance(values, str) else self.on_grid(role, values)

    def on_grid(self, role: str, values: Any, sizes: Mapping[str, int] | None = None) -> Found:
        return one_a_row(role, values, self.missing_chunks)

    def sizes(
        self, request: Request, inputs: Sequence[Found], targets: Sequence[Found], y: Any
    ) -> dict[str, int]:
        return {"rows": (*targets, *inputs)[0].variable.shape[0]}

    def inputs(
        self, request: Request, targets: Sequence[Found], weight: Found | None
    ) -> list[Found]:
        """Inputs: those of the fit, those asked for, or all the other columns."""
        if request.columns is not None:
            return self.columns_of_fit(request.columns.inputs)
        if request.inputs is not None:
            return [self.find(str(name)) for name in request.inputs]
        used = {found.variable.name for found in (*targets, *((weight,) if weight else ()))}
        found = [self.whole(name) for name in self.names if name not in used]
        if not found:
            raise DataError(
                f"There are no inputs left in {self.what}: {list_names(self.names)} are target or "
                f"weight. A model needs at least one other column."
            )
        return found

    def columns_of_fit(self, names: Sequence[str]) -> list[Found]:
        """The inputs of the fit by name; by count where the fit had no names."""
        if not plain_names(names) or set(names) <= set(self.names):
            return [self.find(name) for name in names]
        found = [self.whole(name) for name in self.names]
        count = sum(len(each.columns or (each.name,)) for each in found)
        if count != len(names):
            raise DataError(
                f"X has {count} features, but the model is expecting {len(names)} features as "
                f"input: a fit without names takes columns by their number. Give those columns."
            )
        return found
