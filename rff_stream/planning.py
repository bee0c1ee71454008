"""Memory, time and traffic of a pass, estimated and checked before anything is read."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rff_stream.arguments import SEED_NUMBER, Rule, is_whole, shown, whole, whole_or
from rff_stream.costs import MACHINE, SYRK_FLOPS, Cost, Precision, Sizes, WholeCost
from rff_stream.errors import PlanError
from rff_stream.leaf_layout import (
    CHUNK_SECONDS,
    DECODE_RATE,
    Layout,
    largest_leaf,
    lay_out,
    n_rows_of,
)
from rff_stream.moments.accumulate import SumsDtype, resolve_sums
from rff_stream.notebook_display import plan_card
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS
from rff_stream.process_memory import available_memory
from rff_stream.sources.protocol import SLAB_ROWS, BoxCost, Source
from rff_stream.text_formatting import format_bytes, format_seconds

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

SAMPLE_ROWS = 2000  # that the moments of a group keep, unless told otherwise
PILOT_COPIES = 4  # joined, scaled, and what statistics make of them
LEAST_SEARCH_SECONDS = 10.0  # that a search may take where the pass takes less
SEARCH_BYTES = 96 << 20  # of a search for length-scales: maps of its rows, three at a time
BASE_BYTES = 320 << 20  # interpreter, NumPy, Dask, xarray, Zarr
SCHEDULING_SECONDS = 1.2e-3  # of driver and scheduler, for a leaf and its share of the tree
TASK_BYTES = 6500  # of the scheduler, for a task in flight
NETWORK_RATE = 1e9  # bytes a second to and from each process


@dataclass(frozen=True, repr=False)
class Plan(Sizes):
    """Bytes, flops, traffic and time of one pass, and its layout.

    Parameters
    ----------
    n_inputs, n_targets, order : int
        d, T and the order of the moments.
    sums, dtype : {"float32", "float64"}
        Precision of sums and of features.
    n_rows : int
        Rows of the grid, missing ones included; an estimate where lengths are unknown.
    layout : Layout
    cost : Cost
        Of the map, or of several maps.
    n_groups : int
        Label groups.
    threads, workers : int
        Of a computing process; number of computing processes.
    largest : BoxCost
        Rows and bytes of the largest leaf.
    search_seconds : float
        CPU seconds, about, of a search for a map that looks at every candidate; 0 for none.
    search_limit : float
        Those that it may take.
    kept_bytes : int
        Features of all rows that a loss keeps after the pass; 0 if it reads the rows again.
    posterior_bytes : int
        The matrix of a Laplace posterior and its factor, known once the classes are.
    held_bytes : int
        Sums and answer of a model that later rows are added to; 0 for a new one.
    reduced_from : Cost, optional
        Of the default sizes of a map, where ``cost`` is smaller because they do not fit the memory.
    float64_if_needed : bool
        Whether the pilot may still ask for sums in float64, which are taken if memory allows.
    """

    layout: Layout
    cost: Cost
    n_groups: int
    threads: int
    workers: int
    largest: BoxCost
    search_seconds: float = 0.0
    search_limit: float = math.inf
    kept_bytes: int = 0
    posterior_bytes: int = 0
    held_bytes: int = 0
    reduced_from: Cost | None = None
    float64_if_needed: bool = False

    @property
    def n_features(self) -> int:
        """R: columns of the map, of one cell, or of all maps together."""
        return self.cost.n_features

    @property
    def width(self) -> int:
        """P = R + 1 + T."""
        return self.n_features + 1 + self.n_targets

    def in_float64(self) -> Plan:
        """The plan for hardly any noise: sums are float64, and columns of cells."""
        return replace(self, sums="float64", dtype="float64" if self.cost.all_cells else self.dtype)

    @cached_property
    def state_bytes(self) -> int:
        """One packed set of moments of all groups, row samples included."""
        one = self.cost.numbers(self)
        sample = min(SAMPLE_ROWS, self.n_rows) * (self.n_inputs + self.n_targets + 2)
        return 8 * self.n_groups * (one + self.cost.n_samples * sample)

    @property
    def pilot_rows(self) -> int:
        """Most rows of the pilot."""
        return max(PILOT_BLOCKS * PILOT_ROWS, self.cost.pilot_rows)

    @property
    def leaves_at_once(self) -> int:
        """Leaves that a process works on at once: one a thread, or one with all threads."""
        return 1 if self._in_threads else self.threads

    @property
    def task_bytes(self) -> int:
        """Upper bound on what is held for one leaf: its sums, or two sums and their sum."""
        columns = self.n_inputs + self.n_targets + 3
        slab = 3 * 8 * min(SLAB_ROWS, self.largest.rows) * columns
        data = self.largest.decoded_bytes + self.largest.needed_bytes + slab
        sums = self.cost.accumulator_bytes(self, self.n_groups, self.leaves_at_once)
        leaf = data + sums + self.state_bytes
        if self._in_threads and self.layout.segment_leaves == 1:
            return leaf
        depth = 2 if self.layout.in_sequence else self.layout.segment_leaves.bit_length() + 1
        return max(leaf, 3 * self.state_bytes) + depth * self.state_bytes

    @property
    def driver_bytes(self) -> int:
        """Moments that wait on the driver to be added, and the pilot's rows."""
        rows = self.pilot_rows
        columns = self.n_inputs + self.n_targets + 1
        pilot = PILOT_COPIES * 8 * min(rows, self.n_rows) * columns
        waiting = math.ceil(math.log2(self.layout.n_segments + 1)) + 2
        if self._in_threads:  # task_bytes counts the leaf in progress
            waiting = 1
        elif self.layout.in_sequence:  # all in flight may wait for the first
            waiting = segments_in_flight(self.threads * self.workers, self.layout.segment_leaves)
        return waiting * self.state_bytes + pilot

    @property
    def process_bytes(self) -> int:
        """Upper limit of the peak memory of a computing process that is also the driver."""
        return max(sum(parts.values()) for parts in self.memory_parts().values())

    @property
    def solve_bytes(self) -> int:
        """Memory of the solve on the driver."""
        return self.cost.solve_bytes(self, self.state_bytes)

    @property
    def spare_bytes(self) -> int:
        """What the process may hold beyond what is counted while it solves."""
        return self.process_bytes - sum(self.memory_parts()["solve"].values())

    @property
    def source_bytes(self) -> int:
        """Native bytes decoded, what is decoded again included."""
        return int(self.largest.decoded_bytes * self._leaves_worth)

    @property
    def flops(self) -> float:
        """Useful flops of the sums."""
        return self.n_rows * self.cost.row_flops(self)

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
        at_once = self.threads * self.workers
        parallel = {
            "features and sums": self._summing / at_once,
            "reading": self._reading / at_once,
            "sending": self.traffic_bytes / (self.workers * NETWORK_RATE),
        }
        # A scheduler of its own works while workers do.
        hidden = sum(parallel.values()) if self.workers > 1 else 0.0
        searched = min(self.search_seconds, self.search_limit)
        return {
            **parallel,
            **({"length-scales": searched} if searched else {}),
            "tasks": max(self._scheduling - hidden, 0.0),
            "solve": self.cost.solve_seconds(self),
        }

    def memory_parts(self) -> dict[str, dict[str, int]]:
        """Bytes of one process while it reads, solves and searches, by what takes them."""
        driver = 0 if self.workers > 1 else self.driver_bytes
        reading = {
            "program": BASE_BYTES,
            "leaves": self.leaves_at_once * self.task_bytes,
            "sums": driver,
        }
        solving = {"program": BASE_BYTES, "solve": self.solve_bytes}
        if self.kept_bytes:
            solving["features"] = self.kept_bytes
        parts = {"pass": reading, "solve": solving}
        if self.held_bytes:
            parts = {name: each | {"model": self.held_bytes} for name, each in parts.items()}
        if self.posterior_bytes:
            parts["posterior"] = {"program": BASE_BYTES, "posterior": self.posterior_bytes}
        if self.search_seconds:
            parts["search"] = {"program": BASE_BYTES, "length-scales": SEARCH_BYTES}
        return parts

    @property
    def _reading(self) -> float:
        """CPU seconds of decoding."""
        chunks = self.largest.chunks * self._leaves_worth
        return self.source_bytes / DECODE_RATE + chunks * CHUNK_SECONDS

    @property
    def _summing(self) -> float:
        """CPU seconds of features and sums."""
        return self.n_rows * self.cost.row_seconds(self)

    @property
    def default_limit(self) -> float:
        """CPU seconds that a search may take if nothing is said; on any number of threads."""
        pass_seconds = self._reading + self._summing + self.cost.solve_seconds(self)
        return max(LEAST_SEARCH_SECONDS, pass_seconds)

    @property
    def _in_threads(self) -> bool:
        """Whether leaves are summed and added one after the other in this process."""
        return self.layout.in_sequence and self.workers == 1

    @property
    def _scheduling(self) -> float:
        """CPU seconds of driver and scheduler: tasks of a cluster, leaves in threads."""
        return SCHEDULING_SECONDS * (self.n_tasks if self.workers > 1 else self.layout.n_leaves)

    @property
    def _leaves_worth(self) -> float:
        """The data in units of the largest leaf."""
        return self.n_rows / max(self.largest.rows, 1)

    def __str__(self) -> str:
        layout = self.layout
        rows = [
            ("rows", f"{self.n_rows:,} × {self.n_inputs} inputs, {self.n_targets} targets"),
            ("features", f"R = {self.n_features}, order {self.order}, sums in {self.sums}"),
            *self.cost.lines(self, self.n_rows),
            *self._reduced_lines(),
            ("groups", f"{self.n_groups}"),
            ("leaves", f"{layout.n_leaves:,} of at most {self.largest.rows:,} rows"),
            ("segments", f"{layout.n_segments:,}, leaves of each: {layout.segment_leaves:,}"),
            ("read", format_bytes(self.source_bytes)),
            ("work", f"{self.flops:.3g} flops"),
            ("moments", format_bytes(self.state_bytes)),
            ("traffic", format_bytes(self.traffic_bytes)),
            ("task", format_bytes(self.task_bytes)),
            ("process", f"{format_bytes(self.process_bytes)} with {self.threads} threads"),
            *self._precise_lines(),
            ("solve", f"{format_bytes(self.solve_bytes)} on the driver"),
            *self._search_lines(),
            ("time", f"about {format_seconds(self.seconds)} on {self.workers} process(es)"),
            *(self._cluster_lines() if self.workers > 1 else ()),
            ("assumes", self._assumptions()),
        ]
        return "\n".join(f"{name:<9} {text}" for name, text in rows)

    def _reduced_lines(self) -> list[tuple[str, str]]:
        """What the default sizes would need, where memory allows less."""
        if self.reduced_from is None:
            return []
        default = replace(self, cost=self.reduced_from)
        (_, sizes), *_ = self.reduced_from.lines(self, self.n_rows)
        needed = format_bytes(default.process_bytes)
        return [("reduced", f"from the default, which needs {needed}: {sizes}")]

    def _precise_lines(self) -> list[tuple[str, str]]:
        """What a process needs if the pilot asks for sums in float64."""
        most = self.in_float64().process_bytes
        if not self.float64_if_needed or most <= self.process_bytes:
            return []
        words = "a process, if y has so little noise that sums are float64"
        return [("float64", f"{format_bytes(most)} {words}")]

    def _search_lines(self) -> list[tuple[str, str]]:
        """What length-scales cost before the pass."""
        if not self.search_seconds:
            return []
        longest = format_seconds(min(self.search_seconds, self.search_limit))
        return [("search", f"at most about {longest} for length-scales, on some of the rows")]

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
            f"{SYRK_FLOPS[self.sums] / 1e9:.0f} GFLOP/s and {DECODE_RATE / 1e9:.0f} GB/s of "
            f"decoding a thread ({MACHINE}; 40 % less time with AVX-512, more beside others)"
        )
        if self.workers == 1:
            return words
        return (
            f"{words}; {NETWORK_RATE / 1e9:.0f} GB/s of network a process; "
            f"{1000 * SCHEDULING_SECONDS} ms and {TASK_BYTES / 1000} kB of the scheduler a task"
        )

    def __repr__(self) -> str:
        return plan_card(self).line("rows", "features", "reduced", "leaves", "process", "time")

    def _repr_html_(self) -> str:
        return plan_card(self).html()


def segments_in_flight(threads: int, segment_tasks: int) -> int:
    """Segments that a cluster is given at a time: two tasks a thread, and two segments more."""
    return max(-(-2 * max(threads, 1) // segment_tasks), 2) + 2


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be summed, as far as bytes and time depend on it; see :func:`plan`."""

    cost: Cost  # of the map, or of several maps
    order: int = 2  # as in plan, like all up to ``n_groups``
    sums: SumsDtype = "auto"
    dtype: DTypeLike = "float32"
    n_groups: int = 1
    search_seconds: float = 0.0  # of the search for length-scales before the pass, if not limited
    search_limit: float | None = None  # what it may take; by default as long as the pass
    shrinks: bool = False  # whether a smaller map is taken where this one does not fit the memory


SOURCE = Rule(
    "a source of rows",
    lambda value: hasattr(value, "columns") and hasattr(value, "n_rows"),
    remedy="Give rs.open_source(X, y).",
)

SIZE = whole_or(
    Rule("the cost of a map", lambda value: isinstance(value, Cost)),
    "Give R, or rff_stream.cells.cost.CellCost(R, n_trees, n_cells).",
)


def plan(
    source: Source,
    *,
    n_features: int | Cost,
    order: int = 2,
    sums: SumsDtype = "auto",
    dtype: DTypeLike = "float32",
    n_groups: int = 1,
    threads: int = 1,
    workers: int = 1,
    seed: int = 0,
) -> Plan:
    """The layout of a pass over a source, and its cost; reads only metadata.

    Parameters
    ----------
    source : Source
        From :func:`rff_stream.sources.open_source`.
    n_features : int or Cost
        R of a map of the whole space, or the cost of another kind of map from
        :mod:`rff_stream.costs`: ``CellCost(R, n_trees, n_cells)``, ``GridCost(R, modes)``, or
        ``WholeCost(R, n_grids)`` for RandomBinningFeatures, whose second moments cost n_grids²,
        not R².
    order, sums, dtype
        Order of the moments; precision of sums and features.
    n_groups : int
        Label groups expected.
    threads, workers : int
        They change memory and time, never the layout.
    seed : int
        Seed of the order in which leaves are read.

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
    SOURCE.check("source", source)
    SIZE.check("n_features", n_features)
    Rule("1 or 2", is_whole, lambda value: value in (1, 2)).check("order", order)
    for name, count in {"n_groups": n_groups, "threads": threads, "workers": workers}.items():
        whole(1).check(name, count)
    SEED_NUMBER.check("seed", seed)
    cost = n_features if isinstance(n_features, Cost) else WholeCost(int(n_features))
    request = PlanRequest(cost, order, sums, dtype, int(n_groups))
    return plan_for(source, request, threads=int(threads), workers=int(workers), seed=seed)


def plan_for(
    source: Source, request: PlanRequest, *, threads: int = 1, workers: int = 1, seed: int = 0
) -> Plan:
    """The same as :func:`plan`, of a request that a family of maps made."""
    sizes = Sizes(
        n_inputs=len(source.columns.inputs),
        n_targets=len(source.columns.targets),
        order=request.order,
        sums=resolve_sums(request.sums, n_rows_of(source), request.order),
        dtype=precision(request.dtype),
        n_rows=n_rows_of(source),
    )
    layout = lay_out(
        source,
        request.cost.layout_seconds(sizes),
        seed=seed,
        fewest_rows=request.cost.fewest_rows,
        in_sequence=request.cost.all_cells > 0,
    )
    found = Plan(
        **asdict(sizes),
        layout=layout,
        cost=request.cost,
        n_groups=request.n_groups,
        threads=threads,
        workers=workers,
        largest=largest_leaf(source, layout),
        search_seconds=request.search_seconds,
    )
    limit = request.search_limit
    return replace(found, search_limit=found.default_limit if limit is None else limit)


def precision(dtype: DTypeLike) -> Precision:
    """The name of a dtype of features; refuses what is none."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = ""
    if name == "float32" or name == "float64":
        return name  # type: ignore[return-value]
    raise ValueError(f"dtype={shown(dtype)} but features are 'float32' or 'float64'.")


def fits(found: Plan, memory: int | None = None) -> bool:
    """Whether a computing process can hold the plan."""
    return found.process_bytes <= (available_memory() if memory is None else memory)


def check_memory(found: Plan, memory: int | None = None) -> None:
    """Refuse a plan that a computing process cannot hold; nothing was read yet.

    Raises PlanError: with the bytes needed, the bytes allowed and what to change.
    """
    if fits(found, memory):
        return
    allowed = available_memory() if memory is None else memory
    fewer = found
    while not fits(fewer, memory) and (cost := fewer.cost.smaller()) is not None:
        fewer = replace(fewer, cost=cost)
    smaller = "Lower n_components,"
    if fewer is not found and not fits(fewer, memory):
        smaller = (
            f"Even the fewest cells need {format_bytes(fewer.process_bytes)}. Ask for one map of "
            "few columns, n_components=128,"
        )
    elif fewer is not found and fewer.cost.all_cells >= 8:  # at most 4 trees
        smaller = f"Ask for fewer cells: features=rs.Cells(n_cells={fewer.cost.all_cells // 4}). Or"
    sizes = found.process_bytes, allowed
    needed, allowed_words = (format_bytes(each) for each in sizes)
    if needed == allowed_words:
        needed, allowed_words = (f"{each:,} bytes" for each in sizes)
    raise PlanError(
        f"The pass needs {needed} in one process but {allowed_words} are allowed "
        f"({found.leaves_at_once} leaves of {format_bytes(found.task_bytes)} at a time, "
        f"R={found.n_features}, "
        f"groups={found.n_groups}, leaf of {found.largest.rows:,} rows; solve "
        f"{format_bytes(found.solve_bytes)}). Nothing was read. {smaller} use fewer threads or "
        "groups (or order=1), smaller chunks, or allow more memory."
    )
