"""Which rows make a leaf, and in which order leaves are added: fixed before anything runs.

The same layout gives the same bits for any number of threads and workers, and if workers die.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rff_stream.errors import PlanError
from rff_stream.sources.protocol import Box, BoxCost, Source
from rff_stream.text_formatting import format_bytes

LEAF_ROWS = 65_536  # sending sums at 1 GB/s is then 0.85 % of computing, for every R
LEAF_SECONDS = 1.0  # Dask costs up to 1 ms a task
LEAF_BYTES = 64 << 20  # native bytes of merged chunks
MOST_SEGMENTS = 128  # a checkpoint is written 64 to 128 times; a kill costs a few of these parts
SEGMENT_LEAVES = 4096  # at most: a scheduler holds 6.5 kB for each leaf of the segments in flight
BIG_LEAVES = 8  # at least, where the sums of a leaf are big: as many threads have work
SEQUENCE_LEAVES = 1  # the same for leaves in sequence: all threads add to one of them
FEWEST_LEAVES = 64  # leaves exceed LEAF_ROWS only if there are so many
DECODE_AGAIN = 0.03  # share of the work that cutting a big chunk may decode again
MOST_TASK_SECONDS = 16.0  # of work in a task of a cluster, at most: what is lost when a worker dies
TASK_LEAVES = 64  # at most, however short
TASKS_A_THREAD = 16  # at least, before a task takes several leaves: all threads end at one time
AMPLIFICATION = 8  # most bytes decoded per byte needed
DECODE_RATE = 1e9  # bytes a second
CHUNK_SECONDS = 0.25e-3  # a small chunk


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows make a leaf and in which order leaves are summed."""

    edges: tuple[tuple[int, ...], ...]
    """Boundaries of the coarse boxes along every sample dimension."""
    parts: int = 1  # pieces that every coarse box is cut into, along dimension ``cut``
    cut: int = 0
    segment_leaves: int = 1
    """2^k leaves form a segment, the unit of checkpoints and of tasks in flight."""
    seed: int = 0  # of the permutation of coarse boxes
    task_leaves: int = 1  # leaves that one task of a cluster may sum: it changes no bit
    in_sequence: bool = False
    """The sums are so large that leaves are added one after the other, not along a tree."""

    @property
    def n_boxes(self) -> int:
        """Coarse boxes."""
        return math.prod(len(e) - 1 for e in self.edges)

    @property
    def n_leaves(self) -> int:
        """L."""
        return self.n_boxes * self.parts

    @property
    def n_segments(self) -> int:
        """S."""
        return -(-self.n_leaves // self.segment_leaves)

    def leaves_a_task(self, threads: int) -> int:
        """Leaves that one task of a cluster reads and sums: a power of two, 1 where there are few.

        A task costs the scheduler more than 1 ms of CPU, whatever it does.
        """
        share = self.n_leaves // (TASKS_A_THREAD * max(threads, 1))
        most = min(share, self.segment_leaves, self.task_leaves)
        return 1 << max(most, 1).bit_length() - 1

    def uniform_edges(self) -> tuple[tuple[int, ...], ...]:
        """Chunk boundaries for output with one value a row; a single box is cut into equal parts.

        Steps are equal but for the last, as Zarr needs them.
        """
        along = self.edges[self.cut]
        if self.parts == 1 or len(along) != 2:
            return self.edges
        step = -(-along[-1] // self.parts)
        even = (*range(0, along[-1], step), along[-1])
        return (*self.edges[: self.cut], even, *self.edges[self.cut + 1 :])

    def segment(self, index: int) -> range:
        """Leaves of a segment."""
        start = index * self.segment_leaves
        return range(start, min(start + self.segment_leaves, self.n_leaves))

    def order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Seeded permutation: the coarse box behind each position."""
        return np.random.default_rng(self.seed).permutation(self.n_boxes)

    def starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of the grid before each coarse box, boxes in C order, then the total."""
        sizes = np.ones(1, np.int64)
        for edges in self.edges:
            sizes = np.multiply.outer(sizes, np.diff(edges)).ravel()
        return np.concatenate([[0], np.cumsum(sizes)])

    def box(self, coarse: int, part: int = 0) -> Box:
        """The box of one leaf; may be empty where a coarse box is thinner than ``parts``."""
        box: list[tuple[int, int]] = []
        for edges in reversed(self.edges):
            coarse, i = divmod(coarse, len(edges) - 1)
            box.insert(0, (edges[i], edges[i + 1]))
        lo, hi = box[self.cut]
        size = hi - lo
        box[self.cut] = (lo + size * part // self.parts, lo + size * (part + 1) // self.parts)
        return tuple(box)


def lay_out(
    source: Source,
    row_seconds: float,
    *,
    seed: int = 0,
    fewest_rows: int = LEAF_ROWS,
    in_sequence: bool = False,
) -> Layout:
    """Merge small chunks until a leaf is work enough for a task; cut large ones if that is cheap.

    A leaf has at least ``fewest_rows`` rows, so that adding its sums is cheap beside computing
    them, if the data fill :data:`BIG_LEAVES` such leaves, or one where they are in sequence.
    Cutting is cheap while little is decoded twice.
    """
    n_rows = max(n_rows_of(source), 1)
    most = max(LEAF_ROWS, int(LEAF_SECONDS / row_seconds))
    target = min(max(LEAF_ROWS, n_rows // FEWEST_LEAVES), most)
    fewest_leaves = SEQUENCE_LEAVES if in_sequence else BIG_LEAVES
    target = max(target, min(fewest_rows, n_rows // fewest_leaves))
    bounds = source.bounds
    edges = merge_chunks(source, bounds, target)
    edges = _widen(source, edges)
    coarse = Layout(edges, seed=seed)
    parts, cut = _parts(source, coarse, target, row_seconds)
    leaves = max(1, coarse.n_boxes * parts)
    segment = min(1 << max(0, math.ceil(math.log2(leaves / MOST_SEGMENTS))), SEGMENT_LEAVES)
    found = Layout(edges, parts, cut, segment, seed)
    leaf = largest_leaf(source, found)
    reading = leaf.decoded_bytes / DECODE_RATE + leaf.chunks * CHUNK_SECONDS
    together = int(
        MOST_TASK_SECONDS / max(leaf.rows * row_seconds + reading, MOST_TASK_SECONDS / TASK_LEAVES)
    )
    if in_sequence:
        return replace(found, in_sequence=True)
    return replace(found, task_leaves=max(together, 1))


def n_rows_of(source: Source) -> int:
    """Rows of the grid, or their estimate."""
    if source.n_rows is not None:
        return source.n_rows
    return source.cost(tuple((0, size) for size in source.shape)).rows


def _first_box(edges: Sequence[Sequence[int]]) -> Box:
    """The box between the widest pair of edges along every dimension."""
    box = []
    for e in edges:
        widest = int(np.argmax(np.diff(e))) if len(e) > 1 else 0
        box.append((e[widest], e[min(widest + 1, len(e) - 1)]))
    return tuple(box)


def merge_chunks(
    source: Source, bounds: tuple[tuple[int, ...], ...], target: int
) -> tuple[tuple[int, ...], ...]:
    """Runs of chunks along the fastest dimensions until a box has ``target`` rows."""
    edges = list(bounds)
    for axis in reversed(range(len(edges))):
        cost = source.cost(_first_box(edges))
        grow = min(target / max(cost.rows, 1), LEAF_BYTES / max(cost.needed_bytes, 1))
        if grow >= 2:
            widest = int(np.diff(edges[axis]).max(initial=1))
            edges[axis] = _runs(edges[axis], int(widest * grow))
    return tuple(edges)


def _runs(edges: Sequence[int], length: int) -> tuple[int, ...]:
    """Edges with neighbours joined while a run is at most ``length`` long."""
    kept = [edges[0]]
    for previous, edge in pairwise(edges):
        if edge - kept[-1] > length and previous > kept[-1]:
            kept.append(previous)
    if edges[-1] > kept[-1]:
        kept.append(edges[-1])
    return tuple(kept)


def _widen(source: Source, edges: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Join boxes while another variable's chunks are decoded many times over."""
    while True:
        cost = source.cost(_first_box(edges))
        excess = cost.decoded_bytes / max(cost.needed_bytes, 1)
        if excess <= 2:
            return edges
        wider = [_join(edges, axis) for axis in range(len(edges)) if len(edges[axis]) > 2]
        costs = [source.cost(_first_box(e)) for e in wider]
        excesses = [c.decoded_bytes / max(c.needed_bytes, 1) for c in costs]
        best = int(np.argmin(excesses)) if excesses else -1
        small = best >= 0 and costs[best].decoded_bytes <= max(8 * LEAF_BYTES, cost.decoded_bytes)
        if best < 0 or not small:
            _refuse_amplification(source, edges, cost, excess)
            return edges
        edges = wider[best]


def _join(edges: tuple[tuple[int, ...], ...], axis: int) -> tuple[tuple[int, ...], ...]:
    """Neighbouring boxes joined in pairs along one axis."""
    paired = (*edges[axis][:-1:2], edges[axis][-1])
    return (*edges[:axis], paired, *edges[axis + 1 :])


def _refuse_amplification(
    source: Source, edges: tuple[tuple[int, ...], ...], cost: BoxCost, excess: float
) -> None:
    if excess <= AMPLIFICATION or cost.decoded_bytes <= LEAF_BYTES:
        return
    box = _first_box(edges)
    sizes = {dim: hi - lo for dim, (lo, hi) in zip(source.dims, box, strict=True)}
    raise PlanError(
        f"A box of {source.describe(box)} needs {format_bytes(cost.needed_bytes)} but "
        f"{format_bytes(cost.decoded_bytes)} must be decoded for it ({excess:.0f}×): the "
        f"variables' chunks do not fit together, and at most {AMPLIFICATION}× is read. "
        f"Rechunk them alike first, e.g. data.chunk({sizes}).to_zarr(...)."
    )


def _parts(source: Source, layout: Layout, target: int, row_seconds: float) -> tuple[int, int]:
    """Pieces that every box is cut into, and the dimension cut."""
    box = _first_box(layout.edges)
    sizes = [hi - lo for lo, hi in box]
    cost = source.cost(box)
    wanted = min(round(cost.rows / target), max(sizes, default=1))
    if wanted < 2 or source.n_rows is None:
        return 1, 0
    cut = next((i for i, size in enumerate(sizes) if size >= wanted), int(np.argmax(sizes)))
    for parts in range(min(wanted, sizes[cut]), 1, -1):
        lo, hi = box[cut]
        piece = (*box[:cut], (lo, lo + (hi - lo) // parts), *box[cut + 1 :])
        again = parts * source.cost(piece).decoded_bytes - cost.decoded_bytes
        if again / DECODE_RATE <= DECODE_AGAIN * cost.rows * row_seconds:
            return parts, cut
    return 1, 0


def largest_leaf(source: Source, layout: Layout) -> BoxCost:
    """Cost of the largest leaf."""
    box = list(_first_box(layout.edges))
    lo, hi = box[layout.cut]
    box[layout.cut] = (lo, lo + -(-(hi - lo) // layout.parts))
    return source.cost(tuple(box))
