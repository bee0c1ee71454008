"""numpy and dask arrays: the first axis counts rows, the second inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import shown
from rff_stream.errors import DataError
from rff_stream.sources.blocks import BlockSource, Member, block_source, check_counts
from rff_stream.sources.columns import align
from rff_stream.sources.container_types import (
    KindError,
    have_unknown_rows,
    is_from,
    is_sparse,
    unknown_container,
)
from rff_stream.sources.graph_arrays import recheck
from rff_stream.sources.named_variables import NamedVariable
from rff_stream.sources.protocol import Source
from rff_stream.sources.request import Selection
from rff_stream.sources.variables import Variable, variable_of
from rff_stream.text_formatting import suggestion

CONVERTED = (
    "builtins.list",
    "builtins.tuple",
    "builtins.range",
    "builtins.memoryview",
    "array.array",
    "torch",
    "jax",
    "jaxlib",
    "sklearn",
    "pandas",
    "polars",
    "pyarrow",
    "modin",
)
"""Where types come from that NumPy takes for arrays in memory; columns may stand beside arrays."""


def open_container(selection: Selection) -> Source:
    """A source of the rows of X (n, d), y (n,) or (n, T) and weights (n,)."""
    X = array_like("X", selection.X, selection.missing_chunks)
    selection = replace(selection, X=X)
    if len(X.shape) != 2:
        raise DataError(
            f"Expected 2D array, got {len(X.shape)}D array instead: X has shape {X.shape}. X is "
            f"(rows, inputs). Reshape your data: X.reshape(-1, 1) for one input, "
            f"X.reshape(1, -1) for one row."
        )
    if have_unknown_rows(X, selection.y, selection.sample_weight, selection.by):
        return open_blocks(selection)
    return align(Arrays(selection), selection).source(as_it_is, selection)


class Arrays:
    """X and y under the names x0, x1, … and y or y0, y1, …; a :class:`~.columns.Container`.

    After a fit they are taken by place, and have its names.
    """

    def __init__(self, selection: Selection) -> None:
        self.missing_chunks, fitted = selection.missing_chunks, selection.columns
        X, y = selection.X, selection.y
        inputs = number_columns("x", variable_of("X", ("rows", "columns"), X))
        self.all_inputs = inputs if fitted is None else renamed(inputs, fitted.inputs)
        self.all_targets = [] if y is None else [targets_of(y, self.missing_chunks)]
        if fitted is not None:
            self.all_targets = [renamed(each, fitted.targets) for each in self.all_targets]

    @property
    def names(self) -> dict[str, NamedVariable]:
        """Every name with the array that it is a column of."""
        both = (self.all_inputs, *self.all_targets)
        return {name: each for each in both for name in each.columns or ()}

    def find(self, name: str) -> NamedVariable:
        """A column of X or y."""
        names = self.names
        if name not in names:
            raise DataError(f"There is no column {name!r} in the arrays. {suggestion(name, names)}")
        whole = names[name]
        place = (whole.columns or ()).index(name)
        picks = ((place,),) if len(whole.variable.dims) > 1 else None
        return NamedVariable(name, whole.variable, picks=picks)

    def targets(self, y: Any) -> list[NamedVariable]:
        return self.all_targets

    def column(self, role: str, values: Any) -> NamedVariable:
        return self.find(values) if isinstance(values, str) else self.on_samples(role, values)

    def inputs(
        self, selection: Selection, targets: Sequence[NamedVariable], weight: NamedVariable | None
    ) -> list[NamedVariable]:
        """The inputs asked for; all columns of X by default."""
        if selection.input_names is not None:
            return [self.find(f"x{i}" if isinstance(i, int) else i) for i in selection.input_names]
        count = self.all_inputs.variable.shape[1]
        if selection.columns is not None and len(selection.columns.inputs) != count:
            wanted = len(selection.columns.inputs)
            raise DataError(
                f"X has {count} features, but the model is expecting {wanted} features as input: "
                f"an array is taken by the number of its columns. Give the columns of the fit."
            )
        return [self.all_inputs]

    def sizes(
        self,
        selection: Selection,
        inputs: Sequence[NamedVariable],
        targets: Sequence[NamedVariable],
    ) -> dict[str, int]:
        return {"rows": self.all_inputs.variable.shape[0]}

    def on_samples(
        self, role: str, values: Any, sizes: Mapping[str, int] | None = None
    ) -> NamedVariable:
        return one_a_row(role, values, self.missing_chunks)


def array_like(role: str, values: Any, missing_chunks: str = "auto") -> Any:
    """Arrays as they are, stored ones on the checked store; lists and the like in numpy.

    Raises KindError: the type is not one that is known to be an array: it is named.
    """
    if isinstance(values, np.ndarray) or is_from(values, "dask.array"):
        return values
    if is_from(values, "zarr"):
        return recheck(values, (), missing_chunks)
    if is_from(values, "numpy") or is_from(values, "rff_stream"):
        return values
    if is_sparse(values):
        if role != "X":
            raise KindError(
                f"{role} is a sparse {type(values).__name__} of shape {values.shape}, but only X "
                f"may be sparse. Convert it: {role}.toarray()."
            )
        return values.tocsr()
    if is_from(values, "xarray"):
        return values.data
    if any(is_from(values, module) for module in CONVERTED):
        try:
            return np.asarray(values)
        except ValueError as error:
            raise KindError(
                f"{role}={shown(values)} but it must be an array, whose rows are equally long. "
                "Give one."
            ) from error
    raise unknown_container(role, values)


def number_columns(stem: str, variable: Variable) -> NamedVariable:
    """A two-dimensional variable whose columns are named x0, x1, …."""
    names = tuple(f"{stem}{i}" for i in range(variable.shape[1]))
    return NamedVariable(variable.name, variable, columns=names)


def renamed(found: NamedVariable, names: tuple[str, ...]) -> NamedVariable:
    """Columns by place under other names, if there are as many."""
    return replace(found, columns=names) if len(names) == len(found.columns or ()) else found


def target_names(count: int) -> tuple[str, ...]:
    """ "y", or "y0", "y1", … for several."""
    return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))


def targets_of(y: Any, missing_chunks: str) -> NamedVariable:
    """y (n,) or (n, T), named y or y0, y1, …."""
    y = array_like("y", y, missing_chunks)
    if len(y.shape) not in (1, 2):
        raise DataError(
            f"y has shape {y.shape}, but rows of an array have targets (n,) or (n, T). "
            f"Reshape y, or give X and y as xarray objects with named dimensions."
        )
    variable = variable_of("y", ("rows", "targets")[: len(y.shape)], y)
    return NamedVariable("y", variable, columns=target_names(1 if y.ndim == 1 else y.shape[1]))


def one_a_row(role: str, values: Any, missing_chunks: str) -> NamedVariable:
    """A weight or label: an array with a value a row."""
    values = array_like(role, values, missing_chunks)
    if len(values.shape) != 1:
        raise DataError(
            f"{role} has shape {values.shape}, but Sample weights must be 1D array or scalar: "
            f"one value a row. Reshape it."
        )
    return NamedVariable(role, variable_of(role, ("rows",), values))


def as_it_is(values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
    """Arrays in, arrays out."""
    return values


def open_blocks(selection: Selection) -> BlockSource:
    """A source of dask arrays of which some have unknown chunks along rows."""
    by = None if selection.labels_by is not None else selection.by
    beside = {"y": selection.y, "sample_weight": selection.sample_weight, "by": by}
    given = {"X": selection.X, **beside}
    arrays = {name: each for name, each in given.items() if not isinstance(each, str | None)}
    check_blocks(arrays)
    stubs: dict[str, Any] = {name: stub(name, array) for name, array in arrays.items()}
    selection = replace(selection, **stubs)
    members = [Member(name, array.numblocks[1] if array.ndim > 1 else 1)
               for name, array in arrays.items()]  # fmt: skip
    place = {name: (i, None) for i, name in enumerate(arrays)}
    builder = align(Arrays(selection), selection)
    return block_source(
        builder, members, list(arrays.values()), lambda v: place[v.name], as_it_is, selection
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
