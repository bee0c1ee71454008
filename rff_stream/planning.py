"""Memory, time and traffic of a pass, estimated and checked before anything is read."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rff_stream.describe import plan_card
from rff_stream.errors import PlanError
from rff_stream.features.base import BATCH_ROWS
from rff_stream.features.local import cell_bytes, pilot_rows
from rff_stream.layout import CHUNK_SECONDS, DECODE_RATE, Layout, largest_leaf, lay_out, rows_of
from rff_stream.moments import packed_size
from rff_stream.moments.accumulate import Sums, resolve_sums
from rff_stream.moments.accumulate_cells import waiting_rows
from rff_stream.moments.entries import counting_bytes, counting_seconds, counts
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS
from rff_stream.sources.protocol import SLAB_ROWS, BoxCost, Source
from rff_stream.words import format_bytes, format_seconds

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "Plan",
    "PlanRequest",
    "available_memory",
    "check_memory",
    "fits",
    "plan",
    "plan_for",
    "row_seconds",
    "segments_in_flight",
]

SAMPLE_ROWS = 2000  # that the moments of a group keep, unless told otherwise
PILOT_COPIES = 4  # joined, scaled, and what statistics make of them
BASE_BYTES = 320 << 20  # interpreter, NumPy, Dask, xarray, Zarr
TASK_SECONDS = 1.2e-3  # of driver and scheduler, for a leaf and its share of the tree
TASK_BYTES = 6500  # of the scheduler, for a task in flight
NETWORK_RATE = 1e9  # bytes a second to and from each process
ROUTING_SECONDS = 2e-9  # of an input of a row at one node of a tree
LOCAL_BLOCK = 64  # cells that are decomposed together
LEAF_ROWS_A_CELL = 400  # adding the sums of a leaf to others then costs 5 % of computing them
GRID_TAPS = 11  # of a transform's spreading along an axis, at its tolerance
GRID_ROWS = 1 << 18  # of one transform
GRID_SECONDS = 1.5e-6  # of a row with one target on a plane
GRID_PROBES, GRID_BLOCK, GRID_STEPS = 8, 2000, 1000  # of evidence, all evaluations together
GRID_STEP_SECONDS = 1.5e-8  # of one number of a padded product
SOLVE_SECONDS = 1.3  # at R = 1000: ten Cholesky factorisations' worth of eigenvalues

# Layouts are cut by these two, and sums added by layouts: another value is another model's bits.
_FLOPS = {"float32": 140e9, "float64": 68e9}  # useful flops a second of the rank-k update
_COSINE = {"float32": 0.9e-9, "float64": 14.6e-9}  # seconds a value

# Time is told from these: one thread of the slower of two machines, while it has it to itself.
# They are not measured here, as a plan is often made on a login node or beside other work.
MACHINE = "AMD EPYC with AVX2, 2026"
_SYRK_FLOPS = {"float32": 75e9, "float64": 37e9}
_VALUE_SECONDS = {"float32": 2e-9, "float64": 16e-9}  # of a feature: projected, its cosine
_STORED_SECONDS = 2e-9  # of a feature that a rank-k update takes


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Bytes, flops, traffic and time of one pass, and its layout.

    Parameters
    ----------
    layout : Layout
    n_rows : int
        Rows of the grid, missing ones included; an estimate where lengths are unknown.
    n_inputs, n_features, n_targets, n_groups, order : int
        d, R, T, label groups, order of the moments.
    n_entries : int, of a row of Z that are not 0: R, or the grids of a map that bins
    n_trees, n_cells : int
        J and B of a local map, R then the columns of one cell; 0 for a map of the whole space.
    modes : tuple of int
        Of a grid of frequencies, R then all of its columns; () for any other map.
    members : tuple of Plan
        Of candidates, one for each map over the same layout: what they take adds up.
    sums, dtype : {"float32", "float64"}
        Of the sums and of the features.
    threads, workers : int
        Leaves at a time in a process; computing processes.
    largest : BoxCost
        Rows and bytes of the largest leaf.
    search_seconds : float
        CPU seconds of the search for length-scales before the pass, at most about; 0 for none.
    """

    layout: Layout
    n_rows: int
    n_inputs: int
    n_features: int
    n_targets: int
    n_groups: int
    order: int
    sums: str
    dtype: str
    threads: int
    workers: int
    largest: BoxCost
    n_entries: int
    n_trees: int = 0
    n_cells: int = 0
    modes: tuple[int, ...] = ()
    members: tuple[Plan, ...] = ()
    search_seconds: float = 0.0

    @property
    def all_cells(self) -> int:
        """Cells of all trees, each with sums of its own; 0 for a map of the whole space."""
        return self.n_trees * self.n_cells + sum(each.all_cells for each in self.members)

    @property
    def counted(self) -> bool:
        """Whether entries are counted in pairs, in place of rank-k updates."""
        return (
            not self.members
            and self.order == 2
            and counts(self.n_features, self.n_entries, self.sums)
        )

    @property
    def width(self) -> int:
        """P = R + 1 + T."""
        return self.n_features + 1 + self.n_targets

    @property
    def state_bytes(self) -> int:
        """One packed set of moments of all groups, row samples included."""
        if self.members:
            return sum(each.state_bytes for each in self.members)
        one = packed_size(self.width) if self.order == 2 else 33 * self.width
        if self.modes:
            one = self._grid_numbers
        one *= max(self.all_cells, 1)
        sample = min(SAMPLE_ROWS, self.n_rows) * (self.n_inputs + self.n_targets + 2)
        return 8 * self.n_groups * (one + sample)

    @property
    def task_bytes(self) -> int:
        """Upper bound on what one thread holds: a leaf, or two sums and their sum."""
        columns = self.n_inputs + self.n_targets + 3
        slab = 3 * 8 * min(SLAB_ROWS, self.largest.rows) * columns
        data = self.largest.decoded_bytes + self.largest.needed_bytes + slab
        leaf = data + self._accumulator_bytes() + self.state_bytes
        if self._added_by_driver:
            return leaf
        depth = self.layout.segment_leaves.bit_length() + 1
        return max(leaf, 3 * self.state_bytes) + depth * self.state_bytes

    @property
    def driver_bytes(self) -> int:
        """Moments that wait on the driver for their sibling in the tree, and the pilot's rows."""
        rows = max(each.pilot_rows for each in (self, *self.members))
        columns = self.n_inputs + self.n_targets + 1
        pilot = PILOT_COPIES * 8 * min(rows, self.n_rows) * columns
        waiting = math.ceil(math.log2(self.layout.n_segments + 1)) + 2
        if self._added_by_driver:  # leaves that are computed count as theirs; one sum is made
            waiting = math.ceil(math.log2(self.layout.n_segments)) + 1
        return waiting * self.state_bytes + pilot

    @property
    def process_bytes(self) -> int:
        """Promise for the peak of a computing process that is also the driver."""
        return max(sum(parts.values()) for parts in self.memory_parts().values())

    @property
    def solve_bytes(self) -> int:
        """Three R×R in float64 (order 1 needs none); one for each cell beside the sums."""
        if self.members:
            return sum(each.solve_bytes for each in self.members)
        if self.all_cells:
            kept = self.all_cells * cell_bytes(self.n_features, self.n_inputs, self.dtype)
            rotations = 8 * self.n_features**2 * (self.all_cells + 3 * LOCAL_BLOCK)
            return self.state_bytes + kept + rotations
        if self.modes:  # a dozen vectors of all probes, and the preconditioner's block
            vectors = 12 * (self.n_targets + GRID_PROBES)
            return 16 * vectors * self.n_features + 3 * 8 * GRID_BLOCK**2
        return 3 * 8 * self.n_features**2 if self.order == 2 else 0

    @property
    def source_bytes(self) -> int:
        """Native bytes decoded, what is decoded again included."""
        return int(self.largest.decoded_bytes * self._leaves_worth)

    @property
    def flops(self) -> float:
        """Useful flops of the rank-k updates, or of the entries counted."""
        if self.members:
            return sum(each.flops for each in self.members)
        if self.modes:  # spreading of the transforms
            return (
                float(self.n_rows)
                * 2.0
                * math.pow(GRID_TAPS, self.n_inputs)
                * self._grid_transforms
            )
        if self.all_cells:  # a triangular solve and a rank-k update in each tree
            return 2.0 * self.n_rows * self.n_trees * self.width**2
        width = self.n_entries + 1 + self.n_targets if self.counted else self.width
        return float(self.n_rows) * (width**2 if self.order == 2 else 0)

    @property
    def traffic_bytes(self) -> float:
        """Moments sent between processes."""
        return float(self.n_tasks) * self.state_bytes if self.workers > 1 else 0.0

    @property
    def task_leaves(self) -> int:
        """Leaves that one task of a cluster sums."""
        return self.layout.leaves_a_task(self.threads * self.workers)

    @property
    def n_tasks(self) -> int:
        """Tasks of a cluster that read: each of them sends one set of moments."""
        return -(-self.layout.n_leaves // self.task_leaves)

    @property
    def seconds(self) -> float:
        """Expected wall time: reading, features and sums in parallel, then the solve."""
        return sum(self.time_parts().values())

    @property
    def scheduler_bytes(self) -> int:
        """What a scheduler holds for the tasks in flight, beyond its own size."""
        a_segment = -(-self.layout.segment_leaves // self.task_leaves)
        tasks = segments_in_flight(self.threads * self.workers, a_segment) * a_segment
        return TASK_BYTES * min(tasks, self.n_tasks)

    def time_parts(self) -> dict[str, float]:
        """Seconds by what takes them."""
        reading = self.source_bytes / DECODE_RATE
        reading += self.largest.chunks * self._leaves_worth * CHUNK_SECONDS
        at_once = self.threads * self.workers
        parallel = {
            "features and sums": self.n_rows * self._row_seconds / at_once,
            "reading": reading / at_once,
            "sending": self.traffic_bytes / (self.workers * NETWORK_RATE),
        }
        # A scheduler of its own works while workers do.
        hidden = sum(parallel.values()) if self.workers > 1 else 0.0
        searched = {"length-scales": self.search_seconds} if self.search_seconds else {}
        return (
            parallel
            | searched
            | {
                "tasks": max(self._scheduling - hidden, 0.0),
                "solve": self._solve_seconds,
            }
        )

    def memory_parts(self) -> dict[str, dict[str, int]]:
        """Bytes of one process while it reads and while it solves, by what takes them."""
        driver = 0 if self.workers > 1 else self.driver_bytes
        reading = {
            "program": BASE_BYTES, "leaves": self.threads * self.task_bytes, "sums": driver
        }  # fmt: skip
        return {"pass": reading, "solve": {"program": BASE_BYTES, "solve": self.solve_bytes}}

    @property
    def pilot_rows(self) -> int:
        """Most rows of the pilot."""
        fewest = PILOT_BLOCKS * PILOT_ROWS
        return max(fewest, pilot_rows(self.n_cells, self.n_features)) if self.n_cells else fewest

    @property
    def _added_by_driver(self) -> bool:
        """Whether no task adds sums: each leaf is a segment, in threads of this process."""
        return bool(self.all_cells) and self.workers == 1 and self.layout.segment_leaves == 1

    @property
    def _solve_seconds(self) -> float:
        """Eigenvalues of the whole matrix, or of that of every cell."""
        if self.members:
            return sum(each._solve_seconds for each in self.members)
        if self.order != 2:
            return 0.0
        if self.modes:
            step = GRID_STEP_SECONDS * math.pow(2, self.n_inputs) * self.n_features
            return GRID_STEPS * (self.n_targets + GRID_PROBES) * step
        return SOLVE_SECONDS * (self.n_features / 1000) ** 3 * max(self.all_cells, 1)

    @property
    def _row_seconds(self) -> float:
        """CPU seconds of one row."""
        if self.members:
            return sum(each._row_seconds for each in self.members)
        if self.all_cells:
            value = _VALUE_SECONDS[self.dtype] + 2 * (self.n_inputs + 2) / _SYRK_FLOPS["float64"]
            products = 2 * self.width**2 / _SYRK_FLOPS[self.sums]
            routing = ROUTING_SECONDS * self.n_inputs * math.log2(self.n_cells + 1)
            return self.n_trees * (self.width * 2 * value + products + routing)
        if self.modes:
            return GRID_SECONDS * math.pow(GRID_TAPS, self.n_inputs - 2) * self._grid_transforms / 4
        if self.counted:
            return counting_seconds(self.n_features, self.n_entries, self.n_inputs)
        value = _VALUE_SECONDS[self.dtype] + 2 * self.n_inputs / _SYRK_FLOPS[self.dtype]
        if self.order == 1:
            return self.width * value
        return self.width * (value + _STORED_SECONDS) + self.width**2 / _SYRK_FLOPS[self.sums]

    @property
    def _grid_transforms(self) -> int:
        """Transforms of a row: density, projections and trends."""
        return 1 + self.n_targets + self.n_inputs

    @property
    def _grid_numbers(self) -> int:
        """Float64 numbers of the sums on a grid of frequencies."""
        own = self.n_features + math.prod(2 * m + 1 for m in self.modes[:-1])
        differences = math.prod(4 * m + 1 for m in self.modes[:-1]) * (4 * self.modes[-1] + 2)
        border = (1 + self.n_inputs + self.n_targets) ** 2
        return differences + own * (self.n_targets + self.n_inputs) + border

    @property
    def _scheduling(self) -> float:
        """CPU seconds of driver and scheduler: tasks of a cluster, leaves in threads."""
        return TASK_SECONDS * (self.n_tasks if self.workers > 1 else self.layout.n_leaves)

    @property
    def _leaves_worth(self) -> float:
        """The data in units of the largest leaf."""
        return self.n_rows / max(self.largest.rows, 1)

    def _accumulator_bytes(self) -> int:
        """Triangles, one batch of Z or its entries, and the map's scratch."""
        if self.members:
            several = (replace(each, threads=self.threads) for each in self.members)
            return sum(each._accumulator_bytes() for each in several)
        rows = BATCH_ROWS * 3 * 8 * (self.n_inputs + 2)
        if self.all_cells:
            waiting = 8 * waiting_rows(self.n_cells) * (self.n_inputs + self.n_targets + 8)
            factors = self.all_cells * cell_bytes(self.n_features, self.n_inputs, self.dtype)
            return waiting + factors // self.threads + 8 * BATCH_ROWS * 8 * self.width
        if self.modes:  # rows that wait for a transform, and its grids
            rows = 8 * GRID_ROWS * (4 * self.n_inputs + 4 * self.n_targets + 8)
            return self.n_groups * rows + (16 << (2 * self.n_inputs)) * self.n_features
        if self.counted:
            rows += counting_bytes(self.n_features, self.n_entries, self.n_targets)
            return self.n_groups * rows
        batch = rows + BATCH_ROWS * 2 * 8 * self.width
        if self.order == 1:
            return self.n_groups * (batch + 8 * 33 * self.width)
        triangles = (8 if self.sums == "float64" else 12) * self.width**2
        return self.n_groups * (batch + triangles)

    def __str__(self) -> str:
        layout = self.layout
        few = f" of which {self.n_entries} are counted" if self.counted else ""
        rows = [
            ("rows", f"{self.n_rows:,} × {self.n_inputs} inputs, {self.n_targets} targets"),
            ("features", f"R = {self.n_features}{few}, order {self.order}, sums in {self.sums}"),
            *(line for each in (self, *self.members) for line in each._map_lines()),
            ("groups", f"{self.n_groups}"),
            ("leaves", f"{layout.n_leaves:,} of at most {self.largest.rows:,} rows"),
            ("segments", f"{layout.n_segments:,} of {layout.segment_leaves}"),
            ("read", format_bytes(self.source_bytes)),
            ("work", f"{self.flops:.3g} flops"),
            ("moments", format_bytes(self.state_bytes)),
            ("traffic", format_bytes(self.traffic_bytes)),
            ("task", format_bytes(self.task_bytes)),
            ("process", f"{format_bytes(self.process_bytes)} with {self.threads} threads"),
            ("solve", f"{format_bytes(self.solve_bytes)} on the driver"),
            *self._search_lines(),
            ("time", f"about {format_seconds(self.seconds)} on {self.workers} process(es)"),
            *(self._cluster_lines() if self.workers > 1 else ()),
            ("assumes", self._assumptions()),
        ]
        return "\n".join(f"{name:<9} {text}" for name, text in rows)

    def _map_lines(self) -> list[tuple[str, str]]:
        """What a local map or a grid of frequencies adds."""
        if self.n_cells:
            share = self.n_rows / self.n_cells
            trees = f"{self.n_trees} trees of {self.n_cells:,}, about {share:,.0f} rows in each"
            return [("cells", f"{trees}, R = {self.n_features}")]
        if self.modes:
            return [("grid", f"{' × '.join(str(2 * m + 1) for m in self.modes)} frequencies")]
        return []

    def _search_lines(self) -> list[tuple[str, str]]:
        """What length-scales cost before the pass."""
        if not self.search_seconds:
            return []
        longest = format_seconds(self.search_seconds)
        return [("search", f"at most about {longest} for length-scales, on rows of the pilot")]

    def _cluster_lines(self) -> list[tuple[str, str]]:
        """What many processes add."""
        parts = self.time_parts()
        busy = parts["features and sums"] + parts["reading"]
        sent = f"{format_seconds(busy)} of work, {parts['sending'] / busy:.2%} more to send"
        scheduling = f"{format_seconds(self._scheduling)} of CPU meanwhile"
        scheduler = f"{scheduling}, {format_bytes(self.scheduler_bytes)}"
        return [("workers", sent), ("scheduler", scheduler)]

    def _assumptions(self) -> str:
        """What the time is made of, and where that was measured."""
        words = (
            f"{_SYRK_FLOPS[self.sums] / 1e9:.0f} GFLOP/s and {DECODE_RATE / 1e9:.0f} GB/s of "
            f"decoding a thread ({MACHINE}; 40 % less with AVX-512, more beside other work)"
        )
        if self.workers == 1:
            return words
        return (
            f"{words}; {NETWORK_RATE / 1e9:.0f} GB/s of network a process; "
            f"{1000 * TASK_SECONDS} ms and {TASK_BYTES / 1000} kB of the scheduler a task"
        )

    def __repr__(self) -> str:
        return plan_card(self).line("rows", "features", "leaves", "process", "time")

    def _repr_html_(self) -> str:
        return plan_card(self).html()


def segments_in_flight(threads: int, segment_tasks: int) -> int:
    """Segments that a cluster is given at a time: two tasks a thread, and two segments more."""
    return max(-(-2 * max(threads, 1) // segment_tasks), 2) + 2


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be summed, as far as bytes and time depend on it; see :func:`plan`."""

    n_features: int
    order: int = 2
    sums: Sums = "auto"
    dtype: DTypeLike = "float32"
    n_groups: int = 1
    n_entries: int | None = None
    n_trees: int = 0
    n_cells: int = 0
    modes: tuple[int, ...] = ()
    members: tuple[PlanRequest, ...] = ()
    search_seconds: float = 0.0


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
    n_entries: int | None = None,
    n_trees: int = 0,
    n_cells: int = 0,
    modes: tuple[int, ...] = (),
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
    n_entries : int, optional
        ``n_grids`` of RandomBinningFeatures, whose second moments cost that squared in place
        of R²; R where absent.
    n_trees, n_cells : int
        Of a local map, whose ``n_features`` are the columns of one cell; 0 for any other.
    modes : tuple of int
        Of a grid of frequencies, whose ``n_features`` are all of its columns; () for any other.

    Raises
    ------
    PlanError
        If a variable's chunks force more than 8 bytes decoded per byte needed.
    ValueError
        For a precision that is neither float32 nor float64.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> source = rs.open_source(np.zeros((100_000, 4), "float32"), np.zeros(100_000))
    >>> found = rs.plan(source, n_features=1024)
    >>> found.n_rows, found.layout.n_leaves
    (100000, 2)
    """
    request = PlanRequest(
        n_features, order, sums, dtype, n_groups, n_entries, n_trees, n_cells, modes
    )
    return plan_for(source, request, threads=threads, workers=workers, seed=seed)


def plan_for(
    source: Source, request: PlanRequest, *, threads: int = 1, workers: int = 1, seed: int = 0
) -> Plan:
    """The same as :func:`plan`, of a request that a family of maps made."""
    d, t = len(source.columns.inputs), len(source.columns.targets)
    order, n_features = request.order, request.n_features
    precision = resolve_sums(request.sums, source.n_rows, order)
    name = np.dtype(request.dtype).name
    if name not in _COSINE:
        raise ValueError(f"dtype={name!r} but features are {' or '.join(map(repr, _COSINE))}.")
    several = request.members or (request,)
    seconds = sum(_leaf_seconds(each, d, t, order, precision, name) for each in several)
    fewest = max(GRID_ROWS if each.modes else LEAF_ROWS_A_CELL * each.n_cells for each in several)
    layout = lay_out(source, seconds, seed=seed, fewest_rows=fewest)
    members = []
    for each in request.members:
        own = replace(each, order=order, sums=request.sums, dtype=name, n_groups=request.n_groups)
        members.append(plan_for(source, own, threads=threads, workers=workers, seed=seed))
    largest = largest_leaf(source, layout)
    return Plan(
        layout=layout,
        n_rows=rows_of(source),
        n_inputs=d,
        n_features=n_features,
        n_targets=t,
        n_groups=request.n_groups,
        order=order,
        sums=precision,
        dtype=name,
        threads=threads,
        workers=workers,
        largest=largest,
        n_entries=n_features if request.n_entries is None else request.n_entries,
        n_trees=request.n_trees,
        n_cells=request.n_cells,
        modes=request.modes,
        members=tuple(replace(each, layout=layout, largest=largest) for each in members),
        search_seconds=request.search_seconds,
    )


def _leaf_seconds(request: PlanRequest, d: int, t: int, order: int, sums: str, dtype: str) -> float:
    """CPU seconds of a row that layouts are cut by."""
    if request.modes:
        return GRID_SECONDS
    width, trees = request.n_features + 1 + t, max(2 * request.n_trees, 1)
    return row_seconds(width, d, order, sums, dtype) * trees


def row_seconds(width: int, d: int, order: int, sums: str, dtype: str) -> float:
    """CPU seconds of one row: projection, cosines and, for order 2, its rank-1 update."""
    features = width * (_COSINE[dtype] + 2 * d / _FLOPS[dtype])
    return features + (width**2 / _FLOPS[sums] if order == 2 else 0.0)


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
        f"groups={found.n_groups}, leaf of {found.largest.rows:,} rows; solve "
        f"{format_bytes(found.solve_bytes)}). Nothing was read. Lower n_components, use fewer "
        "threads or groups (or order=1), smaller chunks, or allow more memory."
    )


def machine_memory() -> int:
    """Bytes of memory in this machine."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil  # Windows; comes with distributed

    return int(psutil.virtual_memory().total)


def available_memory() -> int:
    """Bytes this process may use: the container's limit, or the machine's memory."""
    total = machine_memory()
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(name)
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdigit():
            total = min(total, int(text))
    return total
