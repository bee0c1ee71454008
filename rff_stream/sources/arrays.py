"""numpy and dask arrays: the first axis counts rows, the second inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.blocks import BlockSource, Member, block_source, check_counts
from rff_stream.sources.columns import Draft, Find, Found, Request, draft_of
from rff_stream.sources.protocol import Source
from rff_stream.sources.trace import rechecked
from rff_stream.sources.values import is_from, suggestion
from rff_stream.sources.variable import Variable, variable_of

__all__ = ["array_like", "named_like", "numbered", "open_arrays", "target_names"]


def open_arrays(X: Any, y: Any, request: Request) -> Source:
    """A source of the rows of X (n, d), y (n,) or (n, T) and weights (n,)."""
    X = array_like(X, request.missing_chunks)
    if len(X.shape) != 2:
        raise DataError(
            f"Expected 2D array, got {len(X.shape)}D array instead: X has shape {X.shape}. X is "
            f"(rows, inputs). Reshape your data: X.reshape(-1, 1) for one input, "
            f"X.reshape(1, -1) for one row."
        )
    if any(has_unknown_rows(each) for each in (X, y, request.sample_weight, request.by)):
        return open_array_blocks(X, y, request)
    inputs = numbered("x", variable_of("X", ("rows", "columns"), X))
    table = ArrayTable(inputs, None if y is None else targets_of(y, request))
    return table.draft(request).source(as_it_is, request, arrays=True)


def has_unknown_rows(values: Any) -> bool:
    """Whether this is a dask array whose lengths are not known."""
    return is_from(values, "dask.array") and bool(np.isnan(values.shape[0]))


class ArrayTable:
    """X and y under the names x0, x1, … and y or y0, y1, …."""

    def __init__(self, inputs: Found, targets: Found | None) -> None:
        self.inputs = inputs
        self.targets = targets

    @property
    def names(self) -> dict[str, Found]:
        """Every name with the array that it is a column of."""
        both = (found for found in (self.inputs, self.targets) if found is not None)
        return {name: found for found in both for name in found.columns or ()}

    def find(self, name: str) -> Found:
        """A column of X or y."""
        names = self.names
        if name not in names:
            raise DataError(f"There is no column {name!r} in the arrays. {suggestion(name, names)}")
        found = names[name]
        place = (found.columns or ()).index(name)
        picks = ((place,),) if len(found.variable.dims) > 1 else None
        return Found(name, found.variable, picks=picks)

    def chosen(self, request: Request) -> list[Found]:
        """The inputs asked for; all columns of X by default."""
        if request.inputs is not None:
            return [self.find(f"x{i}" if isinstance(i, int) else i) for i in request.inputs]
        check_count(self.inputs.variable.shape[1], request)
        return [self.inputs]

    def draft(self, request: Request) -> Draft:
        """The columns that were asked for."""
        targets = [] if self.targets is None else [self.targets]
        weight = named_like("sample_weight", request.sample_weight, self.find, request)
        label = named_like("by", request.by, self.find, request)
        rows = {"rows": self.inputs.variable.shape[0]}
        draft = draft_of(
            ("rows",), rows, self.chosen(request), targets, weight, label, request.y_labels
        )
        draft.choose(request, self.find)
        return draft


def check_count(found: int, request: Request) -> None:
    """As many columns as the model was fitted on."""
    if request.columns is not None and len(request.columns.inputs) != found:
        wanted = len(request.columns.inputs)
        raise DataError(
            f"X has {found} features, but the model is expecting {wanted} features as input: "
            f"an array is taken by the number of its columns. Give the columns of the fit."
        )


def array_like(values: Any, missing_chunks: str = "auto") -> Any:
    """Arrays as they are, stored ones on the checked store; lists and the like in numpy."""
    if is_from(values, "zarr"):
        return rechecked(values, (), missing_chunks)
    if is_from(values, "dask.array") or is_from(values, "numpy") or is_from(values, "rff_stream"):
        return values
    if is_from(values, "scipy.sparse"):
        raise DataError(
            f"X is a sparse {type(values).__name__} of shape {values.shape}, but rows are dense. "
            f"Convert it with .toarray(), or map it in dense chunks with dask."
        )
    if is_from(values, "xarray"):
        return values.data
    return np.asarray(values)


def numbered(stem: str, variable: Variable) -> Found:
    """A two-dimensional variable whose columns are named x0, x1, …."""
    names = tuple(f"{stem}{i}" for i in range(variable.shape[1]))
    return Found(variable.name, variable, columns=names)


def target_names(count: int) -> tuple[str, ...]:
    """ "y", or "y0", "y1", … for several."""
    return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))


def targets_of(y: Any, request: Request) -> Found:
    """y (n,) or (n, T), named y or y0, y1, …."""
    y = array_like(y, request.missing_chunks)
    if len(y.shape) not in (1, 2):
        raise DataError(
            f"y has shape {y.shape}, but rows of an array have targets (n,) or (n, T). "
            f"Reshape y, or give X and y as xarray objects with named dimensions."
        )
    variable = variable_of("y", ("rows", "targets")[: len(y.shape)], y)
    return Found("y", variable, columns=target_names(1 if y.ndim == 1 else y.shape[1]))


def named_like(name: str, values: Any, find: Find, request: Request) -> Found | None:
    """A weight or label: a name that is looked up, or an array with a value a row."""
    if values is None or isinstance(values, Found):
        return values
    if isinstance(values, str):
        return find(values)
    values = array_like(values, request.missing_chunks)
    if len(values.shape) != 1:
        raise DataError(
            f"{name} has shape {values.shape}, but Sample weights must be 1D array or scalar: "
            f"one value a row. Reshape it."
        )
    return Found(name, variable_of(name, ("rows",), values))


def as_it_is(values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
    """Arrays in, arrays out."""
    return values


def open_array_blocks(X: Any, y: Any, request: Request) -> BlockSource:
    """A source of dask arrays of which some have unknown chunks along rows."""
    given = {"X": X, "y": y, "sample_weight": request.sample_weight, "by": request.by}
    arrays = {name: each for name, each in given.items() if not isinstance(each, str | None)}
    check_blocks(arrays)
    stubs = {name: stub(name, array) for name, array in arrays.items()}
    inputs = numbered("x", variable_of("X", ("rows", "columns"), stubs["X"]))
    targets = targets_of(stubs["y"], request) if "y" in stubs else None
    request = replace(
        request,
        sample_weight=stubs.get("sample_weight", request.sample_weight),
        by=stubs.get("by", request.by),
    )
    members = [Member(name, array.numblocks[1] if array.ndim > 1 else 1)
               for name, array in arrays.items()]  # fmt: skip
    place = {name: (i, None) for i, name in enumerate(arrays)}
    draft = ArrayTable(inputs, targets).draft(request)
    return block_source(
        draft, members, list(arrays.values()), lambda v: place[v.name], as_it_is, request
    )


def stub(name: str, array: Any) -> Array:
    """No rows of an array's columns and dtype."""
    if array.ndim > 1 and np.isnan(array.shape[1]):
        raise DataError(
            f"{name} has unknown lengths along its columns (shape {array.shape}). Columns are "
            f"counted before anything runs; call compute_chunk_sizes()."
        )
    return np.empty((0, *(int(size) for size in array.shape[1:])), array.dtype)


def check_blocks(collections: Mapping[str, Any]) -> None:
    """All are dask arrays with as many blocks along rows."""
    counts = {}
    for name, each in collections.items():
        if not is_from(each, "dask.array"):
            raise DataError(
                f"{name} is in memory ({type(each).__name__}), but the lengths of other blocks "
                f"are unknown. Rows are paired block by block; give {name} as a dask array with "
                f"the same blocks, or call compute_chunk_sizes()."
            )
        counts[name] = each.numblocks[0]
    check_counts(counts)
