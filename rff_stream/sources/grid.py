"""Variables over a grid of samples: one source for numpy, dask, xarray and Zarr.

A variable has some of the sample dimensions and perhaps extra ones, which become
columns. The worker gets slices of the variables of a box and fills rows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.protocol import Box, BoxCost, Columns, PlacesAlong, Reader, Rows
from rff_stream.sources.request import HoldOut
from rff_stream.sources.rows import Filler, Rules, Slab, Use, is_dense, slab_slices
from rff_stream.sources.trace import generation_of, one_graph
from rff_stream.sources.variable import Part, Variable

Window = Mapping[str, tuple[int, int]]
"""Part of the extra dimensions that is read: (lo, hi) each."""

Wrap = Callable[[Any, tuple[str, ...], tuple[str, ...]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class GridReader:
    """Worker side of a grid."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    parts: tuple[Part, ...]  # the arrays
    windows: tuple[Window, ...]  # per part, which of its extra dimensions' places are read
    filler: Filler
    rules: Rules
    holdouts: tuple[HoldOut, ...] = ()  # hold-outs by the row's place in the whole grid

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the box in slabs, in C order."""
        arrays = self.arrays(box, values)
        words = in_words(self.dims, box)

        def slabs() -> Iterator[Slab]:
            return convert_slabs(self.slabs(box, arrays), words)

        yield from self.rules.read(slabs, words, self.place(box))

    def arrays(self, box: Box, values: Sequence[Any]) -> list[Array]:
        """The slices of all parts, one axis per sample dimension."""
        feed = iter(values)
        return [
            self.array(part, window, box, feed)
            for part, window in zip(self.parts, self.windows, strict=True)
        ]

    def array(self, part: Part, window: Window, box: Box, feed: Iterator[Any]) -> Array:
        """One part's slice; a failure names the variable, the box and the cause."""
        words = in_words(self.dims, box)
        try:
            values = part.take(slices_of(part.dims, self.dims, box, window), feed)
        except DataError as cause:
            raise DataError(f"{part.name!r} in {words}: {cause}") from cause
        except Exception as cause:
            raise DataError(
                f"{part.name!r} could not be read in {words}: {type(cause).__name__}: {cause}. "
                f"Every value must be readable; look at the file or the code it comes from."
            ) from cause
        if not is_dense(values):  # rows and columns, in this order
            return values
        ordered: Array = values.transpose(axes(part.dims, self.dims))
        lacking = (slice(None) if dim in part.dims else None for dim in self.dims)
        return ordered[(*lacking, ...)]  # axes of length 1

    def slabs(self, box: Box, arrays: Sequence[Array]) -> Iterator[Slab]:
        """Slabs of the box, hold-outs applied."""
        ready = self.filler.ready(arrays)
        shape = tuple(hi - lo for lo, hi in box)
        for start, slices in slab_slices(shape):
            slab = self.filler.slab(ready, slices, start)
            for holdout in self.holdouts:
                slab.select(holdout.of_places(places(box, slices, self.shape)))
            yield slab

    def place(self, box: Box) -> Callable[[int], str]:
        """Words for a row of the box: "time 4 lat 7"."""
        shape = tuple(hi - lo for lo, hi in box)

        def words(row: int) -> str:
            found = np.unravel_index(row, shape)
            pairs = zip(self.dims, found, box, strict=True)
            return " ".join(f"{singular(dim)} {lo + int(i)}" for dim, i, (lo, _) in pairs)

        return words


def convert_slabs(slabs: Iterator[Slab], words: str) -> Iterator[Slab]:
    """The slabs; values that cannot be converted are named by their box."""
    try:
        yield from slabs
    except DataError:
        raise
    except Exception as cause:
        raise DataError(
            f"A value in {words} cannot become a number or label: {type(cause).__name__}: "
            f"{cause}. All values of a column must be of one kind; correct them."
        ) from cause


def singular(dim: str) -> str:
    """ "row" for "rows": one place along a dimension that we named."""
    return {"rows": "row", "partitions": "partition"}.get(dim, dim)


def in_words(dims: Sequence[str], box: Box) -> str:
    """The box in words: "time 0:100 lat 0:180"."""
    return " ".join(f"{dim} {lo}:{hi}" for dim, (lo, hi) in zip(dims, box, strict=True))


def slices_of(
    own: Sequence[str], dims: Sequence[str], box: Box, window: Window
) -> tuple[slice, ...]:
    """A box as slices of an array with these dimensions."""
    ranges = dict(window) | dict(zip(dims, box, strict=True))
    return tuple(slice(*ranges[dim]) for dim in own)


def axes(own: Sequence[str], dims: Sequence[str]) -> tuple[int, ...]:
    """Order of axes that puts the sample dimensions first, in their order."""
    extra = [dim for dim in own if dim not in dims]
    return tuple(own.index(dim) for dim in (*dims, *extra) if dim in own)


def places(box: Box, slices: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    """Places in the whole grid (C order) of the rows of a slab."""
    found: Array = np.zeros((), dtype=np.uint64)
    for axis, ((lo, _), part) in enumerate(zip(box, slices, strict=True)):
        along = np.arange(lo + part.start, lo + part.stop, dtype=np.uint64)
        found = found[..., None] + along * np.uint64(prod(shape[axis + 1 :]))
    return found.reshape(-1)


SMALL_BYTES = 64 << 20
"""A variable of a condition is looked at as a whole, before anything else, up to this size."""


class GridSource:
    """Driver side of a grid; see :class:`rff_stream.sources.protocol.Source`.

    Variables are in the order of the reader's parts.
    """

    def __init__(
        self,
        columns: Columns,
        reader: GridReader,
        variables: Sequence[Variable],
        wrap: Wrap,
        missing_chunks: str = "auto",
    ) -> None:
        self.columns = columns
        self.dims = reader.dims
        self.shape = reader.shape
        self.n_rows: int | None = prod(reader.shape)
        self._reader = reader
        self.windows = reader.windows
        self.variables = tuple(variables)
        self.bounds = costliest_bounds(variables, reader.dims, reader.shape)
        self.missing_chunks = missing_chunks
        self._wrap = wrap
        self._costs: dict[Box, BoxCost] = {}

    @cached_property
    def reader(self) -> Reader:
        """What a worker needs to read a box; stored arrays list their chunks for it."""
        for variable in self.variables:
            if variable.is_stored:
                variable.data.list_chunks()
        return self._reader

    @property
    def is_lazy(self) -> bool:
        return any(variable.kind != "memory" for variable in self.variables)

    @cached_property
    def graph(self) -> Mapping[Any, Any] | None:
        """One optimised graph of all dask arrays; None without any."""
        arrays = [variable.data for variable in self.variables if variable.kind == "graph"]
        if not arrays:
            return None
        return one_graph(arrays, self.missing_chunks)

    def slices(self, box: Box) -> list[tuple[Variable, tuple[slice, ...]]]:
        """Every variable with its slice of a box."""
        return [
            (variable, slices_of(variable.dims, self.dims, box, window))
            for variable, window in zip(self.variables, self.windows, strict=True)
        ]

    def arguments(self, box: Box) -> tuple[Any, ...]:
        """Views of arrays in memory; layouts and keys of dask blocks."""
        pairs = self.slices(box)
        return tuple(value for variable, part in pairs for value in variable.arguments(part))

    def cost(self, box: Box) -> BoxCost:
        """Bytes, rows and chunks of a box, from metadata; a layout asks for few boxes often."""
        known = self._costs.get(box)
        if known is None:
            costs = [variable.cost(part) for variable, part in self.slices(box)]
            needed, decoded, chunks = (sum(each) for each in zip(*costs, strict=True))
            rows = prod(hi - lo for lo, hi in box)
            known = self._costs[box] = BoxCost(rows, needed, decoded, chunks)
        return known

    def selection(self) -> PlacesAlong | None:
        """Places along each dimension that may meet all conditions; None without any.

        A condition on several dimensions says of each where it holds anywhere.
        """
        uses = [use for use in self._reader.filler.uses if use.role == "condition"]
        if not uses:
            return None
        along: list[Array | None] = [None] * len(self.dims)
        for use in uses:
            met = self._holds(use)
            for axis in range(0 if met is None else met.ndim):
                others = tuple(i for i in range(len(self.dims)) if i != axis)
                if met is not None and met.shape[axis] == self.shape[axis]:
                    here, before = np.asarray(met.any(axis=others)), along[axis]
                    along[axis] = here if before is None else before & here
        return tuple(along)

    def _holds(self, use: Use) -> Array | None:
        """Where a condition holds, one axis per dimension; None where that is dear to know."""
        variable, window = self.variables[use.part], self.windows[use.part]
        box = tuple((0, size) for size in self.shape)
        part = slices_of(variable.dims, self.dims, box, window)
        if variable.kind == "graph" or variable.cost(part)[0] > SMALL_BYTES:
            return None
        try:
            values = iter(variable.arguments(part))
            array = self._reader.array(variable.part(), window, box, values)
            return use.columns(use.convert(array), len(self.dims))[..., 0]
        except Exception:  # the leaf that reads these values says what is wrong, and where
            return None

    def generation(self) -> str:
        return generation_of(self.variables, self.graph)

    def describe(self, box: Box) -> str:
        return in_words(self.dims, box)

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        return self._wrap(values, names, units)


def costliest_bounds(
    variables: Sequence[Variable], dims: Sequence[str], shape: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Chunk boundaries along each dimension, of the largest variable that has it."""
    found = []
    order = sorted(variables, key=lambda v: (v.chunked, v.nbytes), reverse=True)
    for dim, size in zip(dims, shape, strict=True):
        with_it = (v.bounds[v.dims.index(dim)] for v in order if dim in v.dims)
        found.append(tuple(sorted({0, size, *next(with_it, ())})))
    return tuple(found)
