"""One array of the data and how a slice of it is read.

The driver holds a ``Variable`` (the array itself, its chunks, its names); the worker
holds a ``Part`` (how to get the slice it needs). There are three ways: a view that
arrives with the task (memory), blocks of a dask graph that the part puts in place
(graph), or a handle that is sliced where the work is done (lazy: Zarr, netCDF).
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rff_stream._array import Array, digest
from rff_stream.errors import DataError
from rff_stream.sources.kinds import is_from, is_masked, is_sparse, plain_array
from rff_stream.sources.rows import as_text

if TYPE_CHECKING:
    import pandas

Kind = Literal["memory", "graph", "lazy"]

Bounds = tuple[tuple[int, ...], ...]

SliceLayout = tuple[tuple[int, int, tuple[int, ...]], ...]
"""Per dimension: where the slice starts in its first block, its length, block lengths."""

Slices = tuple[slice, ...]

SAMPLED = 4096
"""Values of an array in memory that enter its hash."""


def boundaries(chunks: Sequence[int]) -> tuple[int, ...]:
    """Where chunks of these lengths begin and end, from 0."""
    return (0, *(int(place) for place in np.cumsum(chunks, dtype=np.int64)))


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Driver side: one array with named dimensions."""

    name: str
    dims: tuple[str, ...]
    data: Any  # numpy array, dask array, or what can be sliced (zarr.Array, xarray.Variable)
    kind: Kind  # {"memory", "graph", "lazy"}
    bounds: Bounds  # per dimension, where its chunks begin and end: (0, size) where there are none
    chunked: bool = False  # whether a chunk has to be decoded as a whole
    units: str = ""
    calendar: str = ""  # of cftime objects; "" for everything else
    labels: Mapping[str, Array] = field(default_factory=dict)
    """Dimension -> the coordinate values that name its places."""
    note: str = ""  # what it holds where the dtype does not say it: "categories"
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
            return (self.data[slices],)
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

    def identity(self, most: int = SAMPLED) -> Any:
        """What tells one state of it from another; in memory by about so many values."""
        if self.kind == "graph":
            return str(self.data.name)
        if self.kind == "memory":
            return of_memory(self.data, most)
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
    kind: Kind
    handle: Any = None  # object: what is sliced where the work is done; None for other kinds

    def take(self, slices: Slices, values: Iterator[Any]) -> Array:
        """The slice as a numpy array; takes from ``values`` what its variable sent."""
        if self.kind == "memory":
            sent = next(values)
            return sent if is_sparse(sent) else plain_array(sent)
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
            return blocks[0][inside]
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


def of_memory(values: Array, most: int) -> str:
    """Shape, dtype and a strided sample of about so many values."""
    if is_sparse(values):
        stored = values.data, values.indices  # type: ignore[attr-defined]
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
    if is_from(data, "dask.array"):
        bounds = tuple(boundaries(chunks) for chunks in data.chunks)
        return Variable(name, tuple(dims), data, "graph", bounds, chunked=True, **more)
    if is_from(data, "rff_stream"):
        return Variable(name, tuple(dims), data, "lazy", data.bounds(), True, **more)
    if is_sparse(data):
        whole = tuple((0, size) for size in data.shape)
        return Variable(name, tuple(dims), data, "memory", whole, **more)
    data = plain_array(data) if is_masked(data) else np.asarray(data)
    bounds = tuple((0, size) for size in data.shape)
    return Variable(name, tuple(dims), data, "memory", bounds, **more)


def regular_bounds(shape: Sequence[int], steps: Sequence[int]) -> Bounds:
    """Where chunks of one length begin and end along each dimension."""
    pairs = zip(shape, steps, strict=True)
    return tuple((*range(0, n, max(1, step)), n) if n else (0,) for n, step in pairs)


def column_values(series: pandas.Series[Any]) -> Array:
    """Values of a column in numpy: views where they are; nullable numbers with NaN."""
    import pandas

    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return series.to_numpy()
    if pandas.api.types.is_datetime64_any_dtype(dtype):
        return moments_in_time(series)
    if pandas.api.types.is_timedelta64_dtype(dtype):
        return series.astype("timedelta64[ns]").to_numpy()
    if str(dtype) != "category" and pandas.api.types.is_numeric_dtype(dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.to_numpy(dtype=object, na_value=None)  # type: ignore[call-overload, no-any-return]


def moments_in_time(series: pandas.Series[Any]) -> Array:
    """Times with a zone in UTC, without it."""
    zone = getattr(series.dt, "tz", None)
    times = series if zone is None else series.dt.tz_convert("UTC").dt.tz_localize(None)
    return times.astype("datetime64[ns]").to_numpy()
