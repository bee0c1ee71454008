"""What a pass will take, computed and checked before anything is read.

The layout (which rows make a leaf, in which order leaves are added) is a frozen value:
the same plan gives the same bits for any number of threads, workers and deaths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream.accumulate import Sums, resolve_sums
from rff_stream.errors import PlanError
from rff_stream.features.base import BATCH_ROWS
from rff_stream.moments import packed_size
from rff_stream.sources.base import SLAB_ROWS, Box, BoxCost, Source

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "Layout",
    "Plan",
    "available_memory",
    "check_memory",
    "fits",
    "format_bytes",
    "format_seconds",
    "lay_out",
    "pilot_boxes",
    "plan",
]

LEAF_ROWS = 65_536  # traffic is then 0.85 % of compute over 1 GB/s, whatever R
LEAF_SECONDS = 1.0  # Dask costs up to 1 ms a task
LEAF_BYTES = 64 << 20  # native bytes of merged chunks
MOST_SEGMENTS = 128
FEWEST_LEAVES = 64  # so many leaves before they grow beyond LEAF_ROWS
DECODE_AGAIN = 0.03  # share of the work that cutting a big chunk may decode again
AMPLIFICATION = 8  # most bytes decoded per byte needed
DECODE_RATE = 1e9  # bytes a second
CHUNK_SECONDS = 0.25e-3
LINK_RATE = 1e9  # bytes a second
BASE_BYTES = 320 << 20  # interpreter, NumPy, Dask, xarray, Zarr
TASK_SECONDS = 1.2e-3

_FLOPS = {"float32": 140e9, "float64": 68e9}  # useful flops a second of the rank-k update
_COSINE = {"float32": 0.9e-9, "float64": 14.6e-9}  # seconds a value


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rows make a leaf and in which order leaves are summed.

    Parameters
    ----------
    edges : tuple of tuple of int
        Boundaries of the coarse boxes along every sample dimension.
    parts : int
        Pieces that every coarse box is cut into, along dimension ``cut``.
    cut : int
    segment_leaves : int
        2^k leaves make a segment: the unit of checkpoint and of what is in flight.
    seed : int
        Of the permutation of coarse boxes.
    """

    edges: tuple[tuple[int, ...], ...]
    parts: int = 1
    cut: int = 0
    segment_leaves: int = 1
    seed: int = 0

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
        places = np.unravel_index(coarse, [len(e) - 1 for e in self.edges])
        box = [(e[int(i)], e[int(i) + 1]) for e, i in zip(self.edges, places, strict=True)]
        lo, hi = box[self.cut]
        size = hi - lo
        box[self.cut] = (lo + size * part // self.parts, lo + size * (part + 1) // self.parts)
        return tuple(box)


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes, flops, traffic and time of one pass, and its layout.

    Parameters
    ----------
    layout : Layout
    n_rows : int
        Rows of the grid, missing ones included; an estimate where lengths are unknown.
    n_inputs, n_features, n_targets, n_groups, order : int
        d, R, T, label groups, order of the moments.
    sums : {"float32", "float64"}
    threads, workers : int
        Leaves at a time in a process; computing processes.
    leaf_rows : int
        Rows of the largest leaf.
    state_bytes : int
        One packed set of moments of all groups.
    task_bytes : int
        Upper bound on what one thread holds.
    driver_bytes : int
        Moments waiting on the driver, then the solve.
    source_bytes : int
        Native bytes read, decoding again included.
    flops : float
        Useful flops of the rank-k updates.
    traffic_bytes : float
        Moments sent between processes.
    seconds : float
        Expected wall time.
    """

    layout: Layout
    n_rows: int
    n_inputs: int
    n_features: int
    n_targets: int
    n_groups: int
    order: int
    sums: str
    threads: int
    workers: int
    leaf_rows: int
    state_bytes: int
    task_bytes: int
    driver_bytes: int
    source_bytes: int
    flops: float
    traffic_bytes: float
    seconds: float

    @property
    def process_bytes(self) -> int:
        """Promise for the peak of a computing process that is also the driver."""
        return BASE_BYTES + max(
            self.threads * self.task_bytes + (0 if self.workers > 1 else self.driver_bytes),
            self.solve_bytes,
        )

    @property
    def solve_bytes(self) -> int:
        """Three R×R in float64 (order 1 needs none)."""
        return 3 * 8 * self.n_features**2 if self.order == 2 else 0

    def __str__(self) -> str:
        layout = self.layout
        rows = [
            ("rows", f"{self.n_rows:,} × {self.n_inputs} inputs, {self.n_targets} targets"),
            ("features", f"R = {self.n_features}, order {self.order}, sums in {self.sums}"),
            ("groups", f"{self.n_groups}"),
            ("leaves", f"{layout.n_leaves:,} of at most {self.leaf_rows:,} rows"),
            ("segments", f"{layout.n_segments:,} of {layout.segment_leaves}"),
            ("read", format_bytes(self.source_bytes)),
            ("work", f"{self.flops:.3g} flops"),
            ("moments", format_bytes(self.state_bytes)),
            ("traffic", format_bytes(self.traffic_bytes)),
            ("task", format_bytes(self.task_bytes)),
            ("process", f"{format_bytes(self.process_bytes)} with {self.threads} threads"),
            ("solve", f"{format_bytes(self.solve_bytes)} on the driver"),
            ("time", f"about {format_seconds(self.seconds)} on {self.workers} process(es)"),
        ]
        return "\n".join(f"{name:<9} {text}" for name, text in rows)

    def _repr_html_(self) -> str:
        cells = (line.split(None, 1) for line in str(self).splitlines())
        return "<table>" + "".join(f"<tr><th>{a}</th><td>{b}</td></tr>" for a, b in cells) + "</table>"


def plan(
    source: Source,
    *,
    n_features: int,
    order: int = 2,
    sums: Sums = "auto",
    dtype: DTypeLike = "float32",
    n_groups: int = 1,
    threads: int = 1,
    workers: int = 1,
    seed: int = 0,
) -> Plan:
    """The layout of a pass over a source, and what it takes; reads metadata only.

    Parameters
    ----------
    source : Source
        From :func:`rff_stream.sources.open_source`.
    n_features : int
        R.
    order, sums, dtype
        Of moments, sums and features.
    n_groups : int
        Label groups expected.
    threads, workers : int
        They change bytes and time, never the layout.
    seed : int
        Of the order in which leaves are read.

    Raises
    ------
    PlanError
        If a variable's chunks force more than 8 bytes decoded per byte needed.
    """
    d, t = len(source.columns.inputs), len(source.columns.targets)
    width = n_features + 1 + t
    n_rows = _rows(source)
    precision = resolve_sums(sums, source.n_rows)
    name = np.dtype(dtype).name
    row_seconds = n_features * _COSINE[name] + d * n_features * 2 / _FLOPS[name]
    if order == 2:
        row_seconds += width**2 / _FLOPS[precision]
    layout = lay_out(source, row_seconds, seed=seed)
    largest = _largest(source, layout)
    state = n_groups * 8 * (packed_size(width) if order == 2 else 33 * width)
    depth = layout.segment_leaves.bit_length() + 1
    leaf = largest.decoded_bytes + largest.needed_bytes
    leaf += 3 * 8 * min(SLAB_ROWS, largest.rows) * (d + t + 3)
    leaf += _accumulator_bytes(width, d, order, precision, n_groups) + state
    waiting = math.ceil(math.log2(layout.n_segments + 1)) + 2
    read, chunks = _reading(source, layout)
    compute = n_rows * row_seconds + read / DECODE_RATE + chunks * CHUNK_SECONDS
    solve = 8 * (n_features / 1000) ** 3 * 0.16 if order == 2 else 0.0
    return Plan(
        layout=layout,
        n_rows=n_rows,
        n_inputs=d,
        n_features=n_features,
        n_targets=t,
        n_groups=n_groups,
        order=order,
        sums=precision,
        threads=threads,
        workers=workers,
        leaf_rows=largest.rows,
        state_bytes=state,
        task_bytes=max(leaf, 3 * state) + depth * state,
        driver_bytes=waiting * state,
        source_bytes=read,
        flops=float(n_rows) * (width**2 if order == 2 else 0),
        traffic_bytes=float(layout.n_leaves) * state if workers > 1 else 0.0,
        seconds=compute / (threads * workers) + layout.n_leaves * TASK_SECONDS + solve,
    )


def fits(found: Plan, memory: int | None = None) -> bool:
    """Whether a computing process can hold the plan."""
    return found.process_bytes <= (available_memory() if memory is None else memory)


def check_memory(found: Plan, memory: int | None = None) -> None:
    """Refuse a plan that a computing process cannot hold; nothing was read yet.

    Raises
    ------
    PlanError
        With the bytes needed, the bytes allowed and what to change.
    """
    if fits(found, memory):
        return
    allowed = available_memory() if memory is None else memory
    raise PlanError(
        f"The pass needs {format_bytes(found.process_bytes)} in one process but "
        f"{format_bytes(allowed)} are allowed ({found.threads} threads × "
        f"{format_bytes(found.task_bytes)} a task, R={found.n_features}, "
        f"groups={found.n_groups}, leaf of {found.leaf_rows:,} rows; solve "
        f"{format_bytes(found.solve_bytes)}). Nothing was read. Lower n_components, use fewer "
        "threads or groups (or order=1), smaller chunks, or allow more memory."
    )


def lay_out(source: Source, row_seconds: float, *, seed: int = 0) -> Layout:
    """Merge chunks until a leaf is worth a task; cut big ones while decoding again is cheap."""
    n_rows = max(_rows(source), 1)
    most = max(LEAF_ROWS, int(LEAF_SECONDS / row_seconds))
    target = min(max(LEAF_ROWS, n_rows // FEWEST_LEAVES), most)
    bounds = source.bounds
    edges = _merge(source, bounds, target)
    edges = _widen(source, edges)
    coarse = Layout(edges, seed=seed)
    parts, cut = _parts(source, coarse, target, row_seconds)
    leaves = coarse.n_boxes * parts
    segment = 1 << max(0, math.ceil(math.log2(leaves / MOST_SEGMENTS)))
    return Layout(edges, parts, cut, segment, seed)


def _rows(source: Source) -> int:
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


def _merge(
    source: Source, bounds: tuple[tuple[int, ...], ...], target: int
) -> tuple[tuple[int, ...], ...]:
    """Runs of chunks along the fastest dimensions until a box has ``target`` rows."""
    edges = list(bounds)
    for axis in reversed(range(len(edges))):
        cost = source.cost(_first_box(edges))
        grow = min(
            target / max(cost.rows, 1),
            LEAF_BYTES / max(cost.needed_bytes, 1),
        )
        if grow >= 2:
            widest = int(np.diff(edges[axis]).max(initial=1))
            edges[axis] = _runs(edges[axis], int(widest * grow))
    return tuple(edges)


def _runs(edges: Sequence[int], length: int) -> tuple[int, ...]:
    """Edges with neighbours joined while a run is at most ``length`` long."""
    kept = [edges[0]]
    for previous, edge in zip(edges[:-1], edges[1:], strict=True):
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
        wider = [_joined(edges, axis) for axis in range(len(edges)) if len(edges[axis]) > 2]
        costs = [source.cost(_first_box(e)) for e in wider]
        excesses = [c.decoded_bytes / max(c.needed_bytes, 1) for c in costs]
        best = int(np.argmin(excesses)) if excesses else -1
        small = best >= 0 and costs[best].decoded_bytes <= max(8 * LEAF_BYTES, cost.decoded_bytes)
        if best < 0 or not small:
            _refuse_amplification(source, edges, cost, excess)
            return edges
        edges = wider[best]


def _joined(edges: tuple[tuple[int, ...], ...], axis: int) -> tuple[tuple[int, ...], ...]:
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


def _parts(
    source: Source, layout: Layout, target: int, row_seconds: float
) -> tuple[int, int]:
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


def pilot_boxes(source: Source, blocks: int, rows: int, seed: int) -> tuple[list[Box], int]:
    """Boxes for the pilot, in the order to read them, and the rows to keep of each.

    The first ``blocks`` are spread over the data; the others follow in seeded order, for
    data whose first blocks hold no valid row. Data of at most ``blocks`` × ``rows`` rows
    are taken whole.
    """
    chunks = Layout(source.bounds)
    count = chunks.n_boxes
    if _rows(source) <= blocks * rows:
        whole: Box = tuple((0, size) for size in source.shape)
        return [whole], blocks * rows
    if count < blocks:
        return _cut_boxes(source, chunks, -(-blocks // count), rows)
    rng = np.random.default_rng(seed)
    spread = (np.arange(blocks) * count + rng.integers(0, count, blocks)) // blocks
    others = np.setdiff1d(rng.permutation(count)[: 8 * blocks], spread, assume_unique=False)
    order = np.concatenate([spread, rng.permutation(others)])
    return [_at_least(source, chunks.box(int(i)), 4 * rows) for i in order], rows


def _cut_boxes(
    source: Source, chunks: Layout, pieces: int, rows: int
) -> tuple[list[Box], int]:
    """Few chunks: several places in each where that is cheap, else whole chunks."""
    boxes = [chunks.box(i) for i in range(chunks.n_boxes)]
    sizes = [hi - lo for lo, hi in boxes[0]]
    axis = int(np.argmax([size >= pieces for size in sizes]))
    whole = source.cost(boxes[0])
    length = max(1, -(-4 * rows * sizes[axis] // max(whole.rows, 1)))
    if source.n_rows is None or length * pieces >= sizes[axis]:
        return boxes, rows * pieces
    lo, hi = boxes[0][axis]
    one = (*boxes[0][:axis], (lo, lo + length), *boxes[0][axis + 1 :])
    if source.cost(one).decoded_bytes * pieces > 2 * whole.decoded_bytes:
        return boxes, rows * pieces
    cut = []
    for box in boxes:
        lo, hi = box[axis]
        for start in np.linspace(lo, max(lo, hi - length), pieces).astype(int).tolist():
            cut.append((*box[:axis], (start, min(start + length, hi)), *box[axis + 1 :]))
    return cut, rows


def _at_least(source: Source, box: Box, rows: int) -> Box:
    """The box, longer along its fastest dimensions until it has so many rows."""
    found = list(box)
    for axis in reversed(range(len(found))):
        have = max(source.cost(tuple(found)).rows, 1)
        lo, hi = found[axis]
        want = min(source.shape[axis], (hi - lo) * -(-rows // have))
        lo = min(lo, source.shape[axis] - want)
        found[axis] = (lo, max(hi, lo + want))
        if have >= rows:
            break
    return tuple(found)


def _largest(source: Source, layout: Layout) -> BoxCost:
    """Cost of the largest leaf."""
    box = list(_first_box(layout.edges))
    lo, hi = box[layout.cut]
    box[layout.cut] = (lo, lo + -(-(hi - lo) // layout.parts))
    return source.cost(tuple(box))


def _reading(source: Source, layout: Layout) -> tuple[int, int]:
    """Bytes decoded and chunks touched in all, from the largest leaf."""
    cost = _largest(source, layout)
    share = _rows(source) / max(cost.rows, 1)
    return int(cost.decoded_bytes * share), int(cost.chunks * share)


def _accumulator_bytes(width: int, d: int, order: int, sums: str, n_groups: int) -> int:
    """Triangles, one batch of Z, and the map's scratch."""
    batch = BATCH_ROWS * (2 * 8 * width + 3 * 8 * (d + 2))
    if order == 1:
        return n_groups * (batch + 8 * 33 * width)
    triangles = 8 * width**2 if sums == "float64" else 12 * width**2
    return n_groups * (batch + triangles)


def available_memory() -> int:
    """Bytes this process may use: the container's limit, or the machine's memory."""
    import os

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(name)
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdigit():
            total = min(total, int(text))
    return total


def format_bytes(count: float) -> str:
    """Bytes in binary units: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Seconds in words: "12 s", "3.5 min", "2.1 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


