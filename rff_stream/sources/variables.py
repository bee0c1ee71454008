"""Variables over a grid of samples: one source for numpy, dask, xarray and Zarr.

A variable has some of the sample dimensions and perhaps extra ones, which become columns. The
driver holds a ``Variable`` (the array itself, its chunks, its names), the worker a ``Part`` (how to
get the slice it needs) and fills rows from slices. There are three ways to get one: a view that
arrives with the task (memory), blocks of a dask graph that the part puts in place (graph), or a
handle that is sliced where the work is done (lazy: Zarr, netCDF).
"""

from __future__ import annotations

import copy
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self, TypeGuard

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.errors import DataError
from rff_stream.sources.container_types import is_from, is_sparse, plain_array
from rff_stream.sources.graph_arrays import of_graph, one_graph
from rff_stream.sources.protocol import (
    Bounds,
    Box,
    BoxCost,
    Columns,
    PlacesAlong,
    Reader,
    Rows,
    Source,
)
from rff_stream.sources.request import HoldOut
from rff_stream.sources.rows import Filler, NonNumbers, Numbers, Rules, Slab, VariableUse, as_text
from rff_stream.text_formatting import cause_words

if TYPE_CHECKING:
    import pandas


VariableKind = Literal["memory", "graph", "lazy"]

SliceLayout = tuple[tuple[int, int, tuple[int, ...]], ...]
"""Per dimension: where the slice starts in its first block, its length, block lengths."""

Slices = tuple[slice, ...]

SAMPLED = 4096
"""Number of values of an array in memory that its hash uses."""


def boundaries(chunks: Sequence[int]) -> tuple[int, ...]:
    """Where chunks of these lengths begin and end, from 0."""
    return (0, *(int(place) for place in np.cumsum(chunks, dtype=np.int64)))


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Driver side: one array with named dimensions."""

    name: str
    dims: tuple[str, ...]
    data: Any  # numpy array, dask array, or what can be sliced (zarr.Array, xarray.Variable)
    kind: VariableKind  # {"memory", "graph", "lazy"}
    bounds: Bounds  # per dimension, where its chunks begin and end: (0, size) where there are none
    chunked: bool = False  # whether a chunk has to be decoded as a whole
    units: str = ""
    long_name: str = ""  # what it is in words, for pictures: an attribute of the CF conventions
    calendar: str = ""  # of cftime objects; "" for everything else
    labels: Mapping[str, Array] = field(default_factory=dict)
    """Dimension -> the coordinate values that name its places."""
    holds: NonNumbers | None = None  # what is no number or time, where the dtype does not say it
    file: str = ""  # path of the file it is in, "" if unknown
    levels: tuple[str, ...] | None = None
    """Categories, where the values cannot be looked at before they are read; none if unknown."""
    shape: tuple[int, ...] = field(init=False)  # of the data, decoded
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.data.shape))
        object.__setattr__(self, "dtype", np.dtype(self.data.dtype))

    @property
    def is_stored(self) -> bool:
        """Whether its values lie in a Zarr array, whose chunks can be listed."""
        return hasattr(self.data, "list_chunks")

    @property
    def nbytes(self) -> int:
        """Native bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize

    def size(self, dim: str) -> int:
        """Length along one dimension."""
        return self.shape[self.dims.index(dim)]

    def arguments(self, slices: Slices) -> tuple[Any, ...]:
        """What a worker needs to have this slice: a view, or a layout and graph keys."""
        if self.kind == "memory":
            return (self.data[slices or ...],)  # a scalar coordinate stays an array
        return self.blocks(slices) if self.kind == "graph" else ()

    def blocks(self, slices: Slices) -> tuple[Any, ...]:
        """The layout of a slice and the keys of the blocks it overlaps, in C order."""
        from dask.task_spec import TaskRef

        spans = [span(edges, part) for edges, part in zip(self.bounds, slices, strict=True)]
        layout = tuple(
            (part.start - edges[first], part.stop - part.start, lengths(edges, first, last))
            for edges, part, (first, last) in zip(self.bounds, slices, spans, strict=True)
        )
        places = product(*(range(first, last) for first, last in spans))
        return (layout, *(TaskRef((self.data.name, *place)) for place in places))

    def cost(self, slices: Slices) -> tuple[int, int, int]:
        """(needed bytes, decoded bytes, chunks) of a slice."""
        needed = prod(part.stop - part.start for part in slices) * self.dtype.itemsize
        if not self.chunked:
            return needed, needed, 0
        spans = [span(edges, part) for edges, part in zip(self.bounds, slices, strict=True)]
        covered = prod(
            edges[last] - edges[first]
            for edges, (first, last) in zip(self.bounds, spans, strict=True)
        )
        chunks = prod(last - first for first, last in spans)
        return needed, covered * self.dtype.itemsize, chunks

    def identity(self, most: int, look: Callable[[Any], Any]) -> Any:
        """What tells one state of it from another; in memory by about so many values.

        ``look`` gives the identity of files that several variables lie in.
        """
        if self.kind == "graph":
            return str(self.data.name)
        if self.kind == "memory":
            return of_memory(self.data, most)
        if hasattr(self.data, "files"):
            return [self.data.name, look(self.data.files)]
        return self.data.identity() if hasattr(self.data, "identity") else of_file(self.file)

    def part(self) -> Part:
        """The worker's side; holds no data that are in memory."""
        handle = self.data if self.kind == "lazy" else None
        return Part(self.name, self.dims, self.dtype, self.kind, handle)


def span(edges: Sequence[int], part: slice) -> tuple[int, int]:
    """First and one past the last chunk that a slice overlaps."""
    if part.stop <= part.start:
        return 0, 0
    return bisect_right(edges, part.start) - 1, bisect_left(edges, part.stop)


def lengths(edges: Sequence[int], first: int, last: int) -> tuple[int, ...]:
    """Lengths of the chunks first … last − 1."""
    return tuple(edges[i + 1] - edges[i] for i in range(first, last))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Worker side of a variable: picklable, without data in memory."""

    name: str  # as in Variable, like all up to ``kind``
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    kind: VariableKind
    handle: Any = None  # object: what is sliced where the work is done; None for other kinds

    def take(self, slices: Slices, values: Iterator[Any]) -> Array:
        """The slice as a numpy array; takes from ``values`` what its variable sent."""
        if self.kind == "memory":
            sent: Array = next(values)
            return sent
        if self.kind == "graph":
            return self.place_blocks(next(values), values)
        return np.asarray(self.handle[slices])

    def place_blocks(self, layout: SliceLayout, values: Iterator[Any]) -> Array:
        """Blocks put in place: a view where one block holds the slice."""
        sizes = [lengths for _, _, lengths in layout]
        blocks = [
            self.check_block(next(values), shape, place)
            for place, shape in zip(
                product(*(range(len(size)) for size in sizes)), product(*sizes), strict=True
            )
        ]
        inside = tuple(slice(start, start + size) for start, size, _ in layout)
        if len(blocks) == 1:
            return blocks[0][inside or ...]
        return join_blocks(blocks, sizes, self.dtype)[inside]

    def check_block(self, block: Any, shape: tuple[int, ...], place: tuple[int, ...]) -> Array:
        """A block that is what its array said it would be."""
        values = plain_array(block)
        if values.shape != shape:
            raise DataError(
                f"Block {place} (counted from the first one read) of {self.name!r} has shape "
                f"{values.shape}, but its array says {shape}. A block must be as long as its "
                f"chunks say; give the right chunks or meta to map_blocks, or call "
                f"compute_chunk_sizes()."
            )
        if values.dtype.kind not in kinds_like(self.dtype):
            raise DataError(
                f"A block of {self.name!r} has dtype {values.dtype}, but its array says "
                f"{self.dtype}. A block must hold what its array says; give the right dtype "
                f"or meta to map_blocks."
            )
        return values


def of_memory(values: Any, most: int) -> str:
    """Shape, dtype and a strided sample of about so many values."""
    if not isinstance(values, np.ndarray):
        stored = values.data, values.indices
        return digest([list(values.shape), *(of_memory(np.asarray(each), most) for each in stored)])
    sample = np.asarray(values.flat[:: max(1, values.size // max(1, most))])
    kind = [values.dtype.str, list(values.shape)]
    if sample.dtype.kind in "biufc":
        return digest(kind, {"sample": sample})
    return digest([kind, as_text(sample).tolist()])


def of_file(path: str) -> list[Any]:
    """Path, size and time of a file; the path alone where it is none."""
    if not os.path.isfile(path):
        return [path]
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]


def kinds_like(dtype: np.dtype[Any]) -> str:
    """Kinds of dtype that may stand where this one was announced."""
    return "biuf" if dtype.kind in "biuf" else dtype.kind


def join_blocks(blocks: list[Array], sizes: list[tuple[int, ...]], dtype: np.dtype[Any]) -> Array:
    """Blocks in C order of their grid, as one array."""
    dtypes = [block.dtype for block in blocks]
    out = np.empty([sum(size) for size in sizes], np.result_type(*dtypes) if dtypes else dtype)
    edges = [boundaries(size) for size in sizes]
    grid = product(*(range(len(size)) for size in sizes))
    for block, place in zip(blocks, grid, strict=True):
        target = (slice(edge[i], edge[i + 1]) for edge, i in zip(edges, place, strict=True))
        out[tuple(target)] = block
    return out


def variable_of(name: str, dims: Sequence[str], data: Any, **more: Any) -> Variable:
    """A variable from an array in memory, a dask array with known chunks, or a stored one."""
    if not isinstance(data, np.ndarray):
        if is_from(data, "dask.array"):
            bounds = tuple(boundaries(chunks) for chunks in data.chunks)
            return Variable(name, tuple(dims), data, "graph", bounds, chunked=True, **more)
        if is_from(data, "rff_stream"):
            return Variable(name, tuple(dims), data, "lazy", data.bounds(), True, **more)
    if isinstance(data, np.ndarray) or not is_sparse(data):
        data = plain_array(data)
    bounds = tuple((0, size) for size in data.shape)
    return Variable(name, tuple(dims), data, "memory", bounds, **more)


def column_values(series: pandas.Series[Any]) -> Array:
    """Values of a column in numpy: views where they are; nullable numbers with NaN.

    Categories that are numbers come as numbers, as in Arrow.

    Raises DataError: nullable integers are no float64.
    """
    import pandas

    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if pandas.api.types.is_datetime64_any_dtype(dtype):
        return as_naive_utc(series)
    if pandas.api.types.is_timedelta64_dtype(dtype):
        return series.astype("timedelta64[ns]").to_numpy()
    if isinstance(dtype, pandas.CategoricalDtype):
        return _category_values(series, dtype.categories)
    truths = pandas.api.types.is_bool_dtype(dtype)  # those of Arrow are no numbers in pandas
    if truths or pandas.api.types.is_numeric_dtype(dtype):
        if pandas.api.types.is_integer_dtype(dtype):
            unsigned = pandas.api.types.is_unsigned_integer_dtype(dtype)
            whole = series.dropna().to_numpy(dtype=np.uint64 if unsigned else np.int64)
            Numbers(str(series.name))(whole)
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.to_numpy(dtype=object, na_value=None)  # type: ignore[call-overload, no-any-return]


def typed_values(series: pandas.Series[Any]) -> Array:
    """Values of a column in memory: nullable integers and truths keep their type if all are there.

    Other columns, and those of parts of a lazy frame, have :func:`column_values`.
    """
    import pandas

    values, dtype = column_values(series), series.dtype
    if isinstance(dtype, np.dtype | pandas.CategoricalDtype) or series.isna().any():
        return values
    if pandas.api.types.is_bool_dtype(dtype):
        return values.astype(bool)
    if pandas.api.types.is_signed_integer_dtype(dtype):
        return values.astype(np.int64)
    return values


def _category_values(series: pandas.Series[Any], categories: pandas.Index[Any]) -> Array:
    """Numbers that float64 holds as such, with NaN where one is missing; others as objects."""
    own = np.asarray(categories)
    small = own.dtype.kind == "f" or (
        own.dtype.kind in "iu" and np.abs(own.astype(np.float64)).max(initial=0) < 2**53
    )
    if small and series.isna().any():
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if small:
        return np.asarray(series, own.dtype)
    return series.to_numpy(dtype=object, na_value=None)  # type: ignore[call-overload, no-any-return]


def as_naive_utc(series: pandas.Series[Any]) -> Array:
    """Times with a zone in UTC, without it."""
    zone = getattr(series.dt, "tz", None)
    times = series if zone is None else series.dt.tz_convert("UTC").dt.tz_localize(None)
    return times.astype("datetime64[ns]").to_numpy()


Window = Mapping[str, tuple[int, int]]
"""Part of the extra dimensions that is read: (lo, hi) each."""

Wrap = Callable[[Any, tuple[str, ...], tuple[str, ...]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class VariablesReader:
    """Worker side of variables over the same samples."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    parts: tuple[Part, ...]  # the arrays
    windows: tuple[Window, ...]  # per part, which of its extra dimensions' places are read
    filler: Filler
    rules: Rules
    holdouts: tuple[HoldOut, ...] = ()  # hold-outs by the row's place in the whole grid

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the box in slabs, in C order."""
        feed, pairs = iter(values), zip(self.parts, self.windows, strict=True)
        arrays = [self.array(part, window, box, feed) for part, window in pairs]
        slabs = partial(self.slabs, box, arrays)
        yield from self.rules.read(slabs, in_words(self.dims, box), partial(self.place, box))

    def array(self, part: Part, window: Window, box: Box, feed: Iterator[Any]) -> Array:
        """One part's slice; a failure names the variable, the box and the cause."""
        words = in_words(self.dims, box)
        try:
            values: Any = part.take(slices_of(part.dims, self.dims, box, window), feed)
        except DataError as cause:
            raise DataError(f"{part.name!r} in {words}: {cause}") from cause
        except Exception as cause:
            raise DataError(
                f"{part.name!r} could not be read in {words}: {cause_words(cause)}. "
                f"Every value must be readable; look at the file or the code it comes from."
            ) from cause
        if not isinstance(values, np.ndarray):  # rows and columns, in this order
            return values  # type: ignore[no-any-return]
        extra = [dim for dim in part.dims if dim not in self.dims]
        order = (part.dims.index(dim) for dim in (*self.dims, *extra) if dim in part.dims)
        lacking = (slice(None) if dim in part.dims else None for dim in self.dims)
        ordered: Array = values.transpose(tuple(order))[(*lacking, ...)]  # axes of length 1
        return ordered

    def slabs(self, box: Box, arrays: Sequence[Array]) -> Iterator[Slab]:
        """Slabs of the box, hold-outs applied; what cannot be converted is named by its box."""
        try:
            for slices, slab in self.filler.slabs(arrays, tuple(hi - lo for lo, hi in box)):
                for holdout in self.holdouts:
                    slab.select(holdout.of_places(places(box, slices, self.shape)))
                yield slab
        except DataError:
            raise
        except Exception as cause:
            raise DataError(
                f"A value in {in_words(self.dims, box)} cannot become a number or label: "
                f"{cause_words(cause)}. All values of a column must be of one kind; "
                f"correct them."
            ) from cause

    def place(self, box: Box, row: int) -> str:
        """A row of the box in words: "time 4 lat 7"."""
        found = np.unravel_index(row, tuple(hi - lo for lo, hi in box))
        pairs = zip(self.dims, found, box, strict=True)
        return " ".join(f"{singular(dim)} {lo + int(i)}" for dim, i, (lo, _) in pairs)


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


def places(box: Box, slices: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    """Places in the whole grid (C order) of the rows of a slab."""
    found: Array = np.zeros((), dtype=np.uint64)
    for axis, ((lo, _), part) in enumerate(zip(box, slices, strict=True)):
        along = np.arange(lo + part.start, lo + part.stop, dtype=np.uint64)
        found = found[..., None] + along * np.uint64(prod(shape[axis + 1 :]))
    return found.reshape(-1)


SMALL_BYTES = 64 << 20
"""A variable in a condition is read as a whole, before anything else, up to this size."""


class VariablesSource:
    """Driver side of variables over the same samples: a :class:`.protocol.Source`.

    Variables are in the order of the reader's parts.
    """

    def __init__(
        self,
        columns: Columns,
        reader: VariablesReader,
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

    @property
    def filler(self) -> Filler:
        """How rows are filled from the variables."""
        return self._reader.filler

    def read_as(self, columns: Columns, filler: Filler) -> Self:
        """The same rows with other columns."""
        found = copy.copy(self)
        found.__dict__.pop("reader", None)
        found.columns, rules = columns, replace(self._reader.rules, columns=columns)
        found._reader = replace(self._reader, filler=filler, rules=rules)
        return found

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

    def possible_places(self) -> PlacesAlong | None:
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

    def _holds(self, use: VariableUse) -> Array | None:
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


def can_grow(source: Source) -> TypeGuard[VariablesSource]:
    """Whether rows are read by slices of a grid, so that it can be told which are new."""
    if not isinstance(source, VariablesSource) or source.graph is not None or not source.dims:
        return False
    return any(variable.is_stored for variable in source.variables)


def is_loaded(source: Source) -> bool:
    """Whether all values of a grid are in memory."""
    if not isinstance(source, VariablesSource) or source.graph is not None:
        return False
    return not any(variable.is_stored for variable in source.variables)


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


def generation_of(
    variables: Sequence[Variable], graph: Mapping[Any, Any] | None, most: int = SAMPLED
) -> str:
    """One hash of all variables, and of the stored arrays that the graph reads.

    Of an array in memory about ``most`` values enter. Files that several variables lie in are
    looked at once.
    """
    look = cache(lambda files: files.identity())
    named = [[each.name, list(each.dims), each.identity(most, look)] for each in variables]
    return digest([named, of_graph(graph) if graph else []])
