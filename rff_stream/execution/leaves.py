"""The leaves of a layout in the order of the tree, and the task of one: box -> rows -> a sum."""

from __future__ import annotations

import functools
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, overload

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import ClusterError, PlanError
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.leaf_layout import Layout, lay_out
from rff_stream.moments.tree_sum import add_into
from rff_stream.sources.protocol import Box, Reader, Source
from rff_stream.statistics.protocol import Statistic

UNKNOWN_PLACES = 32
"""Bits of a place within a leaf where lengths are unknown."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A box, and the place of its first row in the whole data."""

    box: Box
    start: int


class Leaves(Sequence[Leaf]):
    """Boxes and the places of their first rows; 16 bytes each, whatever their number."""

    def __init__(self, source: Source, layout: Layout) -> None:
        self._layout, self._known = layout, source.n_rows is not None
        self._count = layout.n_leaves
        self._order, self._starts = layout.order(), layout.starts()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Leaf: ...
    @overload
    def __getitem__(self, at: slice) -> list[Leaf]: ...
    def __getitem__(self, at: int | slice) -> Leaf | list[Leaf]:
        if isinstance(at, slice):
            return [self._leaf(i) for i in range(*at.indices(len(self)))]
        return self._leaf(range(len(self))[at])

    def __iter__(self) -> Iterator[Leaf]:
        return map(self._leaf, range(len(self)))

    def _leaf(self, index: int) -> Leaf:
        place, part = divmod(index, self._layout.parts)
        coarse, cut = int(self._order[place]), self._layout.cut
        box = self._layout.box(coarse, part)
        if not self._known:
            return Leaf(box, coarse << UNKNOWN_PLACES)
        before = box[cut][0] - self._layout.box(coarse)[cut][0] if part else 0
        across = math.prod(hi - lo for i, (lo, hi) in enumerate(box) if i != cut)
        return Leaf(box, int(self._starts[coarse]) + before * across)


def leaves_of(source: Source, layout: Layout) -> Leaves:
    """Leaves in the order of the tree, with the place of their first row."""
    return Leaves(source, layout)


def places_of(source: Source, layout: Layout) -> int:
    """Places of the whole data: rows, or room for them where lengths are unknown."""
    return layout.n_boxes << UNKNOWN_PLACES if source.n_rows is None else source.n_rows


def grid_leaves(source: Source) -> Sequence[Leaf]:
    """Leaves spread over the grid, to see what they share."""
    return [] if source.graph is None else Leaves(source, lay_out(source, 1e-5))


def versions_question() -> Callable[[], dict[str, str | None]]:
    """A function that gives the versions that decide the bits of a leaf, by package.

    It travels by value, so that a process without this package can answer: with None.
    """

    def versions() -> dict[str, str | None]:
        import importlib

        found: dict[str, str | None] = {}
        for name in ("rff_stream", "numpy", "scipy"):
            try:
                found[name] = str(importlib.import_module(name).__version__)
            except ImportError:
                found[name] = None
        return found

    return versions


own_versions = functools.cache(versions_question())


@functools.cache
def own_kernels() -> str:
    """The machine code that NumPy and its BLAS run here; other code rounds otherwise.

    ``OPENBLAS_CORETYPE`` and the processor decide it, not the versions.
    """
    from threadpoolctl import threadpool_info

    blas = {
        f"{each['internal_api']} {each['version']} {each.get('architecture', '')}".strip()
        for each in threadpool_info()
        if each["user_api"] == "blas"
    }
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # before NumPy 2.1
        return ", ".join(sorted(blas))
    cosine = opt_func_info(func_name="^cos$").get("cos", {}).get("ff", {})
    return ", ".join([*sorted(blas), f"NumPy {cosine.get('current') or 'baseline'}"])


def check_same(versions: Mapping[str, str | None]) -> None:
    """Refuse work that was planned with other versions: a worker may join late."""
    mine = own_versions()
    for name, theirs in versions.items():
        if mine[name] != theirs:
            raise ClusterError(
                f"The worker on {socket.gethostname()} (process {os.getpid()}) has {name} "
                f"{mine[name] or 'none'}, but the fit runs with {theirs}. All parts of a cluster "
                "need the same one. Install it there and start the worker again."
            )


@dataclass(frozen=True, slots=True)
class Tally:
    """A statistic's value and the rows that were looked at for it, missing ones included."""

    value: Any
    seen: int
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Where leaves ran in other processes: :func:`own_kernels`, each with one host."""

    def __add__(self, other: Self) -> Self:
        return self._joined(other, self.value + other.value)

    def __iadd__(self, other: Self) -> Self:
        """The sum, for which the value of this one may be written into."""
        return self._joined(other, add_into(self.value, other.value))

    def _joined(self, other: Self, value: Any) -> Self:
        return type(self)(value, self.seen + other.seen, {**other.kernels, **self.kernels})

    def __sizeof__(self) -> int:
        return int(self.value.__sizeof__()) + 64


@dataclass(frozen=True, slots=True)
class Job:
    """Reader and statistic: shipped once per worker, under one key."""

    reader: Reader
    statistic: Statistic
    grid: tuple[int, ...] = ()
    """Lengths of the sample dimensions where places count along the first one, the slowest,
    whatever the chunks: runs of rows are then runs of time. Empty: places of the leaves."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Those of the driver, where leaves run elsewhere: see :func:`versions_question`."""

    def run(self, leaf: Leaf, *values: Any) -> Tally:
        """Value of one leaf; refuses a process that would give other bits."""
        check_same(self.versions)
        try:
            return self._sum(leaf, values)
        except MemoryError as error:  # NumPy's says how much, not for what
            box = ", ".join(f"{lo}:{hi}" for lo, hi in leaf.box)
            raise PlanError(
                f"The box [{box}], rows from {leaf.start} on, found no memory: {error}. A plan "
                "counts the memory of this program, not of others. Leave more memory free, or "
                "use fewer threads, a smaller n_components or smaller chunks."
            ) from error

    def _sum(self, leaf: Leaf, values: tuple[Any, ...]) -> Tally:
        with single_threaded_blas():
            sink = self.statistic.start()
            seen = 0
            if all(hi > lo for lo, hi in leaf.box):
                for rows in self.reader.read(leaf.box, *values):
                    size = rows.n_slab
                    places = self._places(leaf, np.arange(size) + rows.start)
                    sink.add(rows, places if rows.keep is None else places[rows.keep])
                    seen += size
            kernels = {own_kernels(): socket.gethostname()} if self.versions else {}
            return Tally(sink.result(), seen, kernels)

    def _places(self, leaf: Leaf, inside: Array) -> Array:
        """Places of rows of a leaf: in the order of the leaves, or of a grid where one is given."""
        if not self.grid:
            return inside + leaf.start
        within = np.unravel_index(inside, tuple(hi - lo for lo, hi in leaf.box))
        along = tuple(at + lo for at, (lo, _) in zip(within, leaf.box, strict=True))
        return np.asarray(np.ravel_multi_index(along, self.grid))
