"""The contract between data and the pass: a grid of samples, read box by box.

A source is a grid of samples (one or more named dimensions) with natural boundaries
(its chunks). A box is one slice per dimension; its rows come in C order. What a worker
needs to turn a box into rows is the small picklable ``reader``; what only the driver
knows (dask graphs, containers, coordinates) stays in the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rff_stream._array import Array, Float64

SLAB_ROWS = 8192
"""Most rows that a reader turns into float64 at a time."""

LARGEST = 1e140
"""Largest absolute target of a row, and deviation of inputs and targets: squares and their sums
stay in the range of float64."""

Box = tuple[tuple[int, int], ...]
"""(lo, hi) along every sample dimension."""


Bounds = tuple[tuple[int, ...], ...]
"""Per dimension, where chunks begin and end."""


PlacesAlong = tuple[Array | None, ...]
"""Per sample dimension, which places may hold rows that were asked for; None: any may."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names and units of what a row holds."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...] = ()
    """Column names: ``"t"``, ``"u[level=500]"``, ``"time.dayofyear"``; "x0", "x1", … and "y"
    (or "y0", "y1", …) for unnamed arrays."""
    units: tuple[str, ...] = ()
    """Units of inputs, then targets: the ``units`` attribute, "days since 1970-01-01" (with
    " (calendar)" for others than the standard one) for times, "" if unknown."""
    weight: str = ""  # name of the weight column, "" if rows have no weights
    fills: tuple[tuple[str, float], ...] = ()
    """(input, what stands in the place of a missing value) with ``missing_rows="indicate"``."""
    indicated: tuple[str, ...] = ()
    """Inputs whose missing values are information: the last inputs, "u=missing", say where."""
    long_names: tuple[tuple[str, str], ...] = ()
    """(column, its attribute ``long_name``) where it has one: the words of pictures."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A slab of rows in float64, only the valid ones, and where they stood."""

    x: Float64  # (m, d)
    y: Float64  # (m, T)
    w: Float64 | None  # (m,); None: every row weighs 1
    keep: Array | None
    """(slab rows,) bool or None: Which rows of the slab are in x; None: all of them."""
    start: int  # place of the slab's first row in its box (C order), dropped rows counted
    label: Array | None = None  # (m,) array or None, group label of each row, where asked for


@dataclass(frozen=True, slots=True)
class BoxCost:
    """What reading one box takes, known before it is read."""

    rows: int  # rows, valid or not; an estimate where lengths are unknown
    needed_bytes: int  # native bytes of the box's own values
    decoded_bytes: int  # native bytes of the chunks that must be decoded for it (≥ needed_bytes)
    chunks: int  # chunks touched


class Reader(Protocol):
    """Worker side: picklable, a few kB, no data of size n."""

    def read(self, box: Box, *values: Any) -> Iterator[Rows]:
        """Rows of the box in slabs of at most ``SLAB_ROWS``, in C order.

        ``values`` are what ``Source.arguments(box)`` named, now as arrays or frames.
        Every error names store, array, chunk or rows.
        """


class Source(Protocol):
    """Driver side: the grid, its boundaries and how to label what comes out."""

    columns: Columns
    dims: tuple[str, ...]
    """Names of the sample dimensions."""
    shape: tuple[int, ...]
    """Size of the grid; partitions, not rows, where lengths are unknown."""
    bounds: Bounds
    """Natural boundaries of each dimension, from 0 to its size: those of the costliest variable."""
    n_rows: int | None
    """Rows of the grid; None where lengths are unknown."""

    @property
    def reader(self) -> Reader:
        """What a worker needs to turn a box into rows."""

    @property
    def graph(self) -> Mapping[Any, Any] | None:
        """Optimised dask graph that ``arguments`` refer to; None for sources read by slices."""

    @property
    def is_lazy(self) -> bool:
        """Whether anything has to be computed or read for a row."""

    def arguments(self, box: Box) -> tuple[Any, ...]:
        """What the reader needs besides the box: graph keys, or views of arrays in memory."""

    def cost(self, box: Box) -> BoxCost:
        """Bytes, rows and chunks of a box; touches metadata only."""

    def possible_places(self) -> PlacesAlong | None:
        """Where the rows that meet all conditions may lie; None without conditions.

        Conditions on small variables (coordinates) are looked at, others are left open.
        """

    def generation(self) -> str:
        """Hash that changes when the data change: looked at again before a commit."""

    def describe(self, box: Box) -> str:
        """The box in words: "time 0:100 lat 0:180"."""

    def wrap(self, values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Any:
        """Values (grid shape, or grid shape + (T,)) in the container the user gave."""


def regular_bounds(shape: Sequence[int], steps: Sequence[int]) -> Bounds:
    """Where chunks of one length begin and end along each dimension."""
    pairs = zip(shape, steps, strict=True)
    return tuple((*range(0, n, max(1, step)), n) if n else (0,) for n, step in pairs)
