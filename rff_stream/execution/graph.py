"""The Dask graph of a pass: leaves, their fixed tree, and what all leaves share."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from dask._task_spec import convert_legacy_graph  # no public name yet
from dask.task_spec import Task, TaskRef

from rff_stream._array import Array, Float64
from rff_stream.execution.leaves import Job, Leaf
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.leaf_layout import lay_out
from rff_stream.moments.tree_sum import TreeSum
from rff_stream.row_functions import RowFunction
from rff_stream.sources.protocol import Box, Reader, Source

Graph = dict[Any, Any]
WAIST_LEAVES = 16
"""Leaves looked at, spread over the data, to find what every leaf depends on."""


def segment_tasks(
    source: Source,
    job: Any,
    leaves: Sequence[Leaf],
    first: int,
    token: str,
    together: int = 1,
    fan_in: int = 2,
) -> tuple[str, Graph]:
    """Tasks of one segment and the key of its sum.

    Neighbours are added pairwise, a lone one moves up: the same tree as
    :class:`~rff_stream.moments.tree_sum.TreeSum`, so segments cut nothing.
    ``together`` leaves are read and summed by one task, ``fan_in`` sums are added by one: powers
    of two, along the same tree. The job is a value, TaskRef or Future with reader and statistic.
    Keys carry the number of a leaf (that of the ``first`` is given) and its box in words.
    """
    tasks: Graph = {}
    level = []
    for start in range(0, len(leaves), together):
        run = leaves[start : start + together]
        more = f" and {len(run) - 1} more" if len(run) > 1 else ""
        key = f"rff_leaf-{first + start:09} [{source.describe(run[0].box)}{more}] {token}"
        tasks[key] = (
            Task(key, run_leaves, job, pack_leaves(run))
            if more
            else Task(key, run_after, None, job, run[0], *source.arguments(run[0].box))
        )
        level.append(key)
    span = together
    while len(level) > 1:
        above = []
        for i in range(0, len(level), fan_in):
            key = f"rff_add-{fan_in * span}-{first + i * span:09} {token}"
            few = level[i : i + fan_in]
            if len(few) > 1:
                tasks[key] = Task(key, add_up, *map(TaskRef, few))
            above.append(key if len(few) > 1 else few[0])
        level, span = above, fan_in * span
    return level[0], tasks


def sequence_tasks(
    source: Source,
    job: Any,
    leaves: Sequence[Leaf],
    first: int,
    token: str,
    *,
    window: int,
    done: list[str],
) -> tuple[str, Graph]:
    """The same with leaves that are added one after the other: few sums wait at a time.

    A leaf starts when the one ``window`` places before it has been added. ``done`` are the keys of
    what has added each leaf so far; those of these leaves are appended.
    """
    tasks: Graph = {}
    total = ""
    for place, leaf in enumerate(leaves, start=first):
        key = f"rff_leaf-{place:09} [{source.describe(leaf.box)}] {token}"
        after = TaskRef(done[-window]) if len(done) >= window else None
        tasks[key] = Task(key, run_after, after, job, leaf, *source.arguments(leaf.box))
        if total:
            added = f"rff_add-{place:09} {token}"
            tasks[added] = Task(added, add_up, TaskRef(total), TaskRef(key))
            key = added
        total = key
        done.append(total)
    return total, tasks


def boxes_of(key: str, source: Source, leaves: Sequence[Leaf], together: int) -> list[str]:
    """Boxes in words that the task of a key reads; none where it reads none.

    They lie anywhere in the data: leaves are read in seeded order.
    """
    kind, _, rest = key.partition("-")
    if kind != "rff_leaf":
        return []
    first = int(rest.partition(" ")[0])
    return [source.describe(leaf.box) for leaf in leaves[first : first + together]]


def run_after(other: Any, job: Job, leaf: Leaf, *values: Any) -> Any:
    """One leaf, as a task that may start after another, whose value it does not need."""
    return job.run(leaf, *values)


def add_up(*values: Any) -> Any:
    """Sum of neighbours in the tree, along it."""
    total: TreeSum[Any] = TreeSum()
    for index, value in enumerate(values):
        total.add(index, value)
    return total.total()


def run_leaves(job: Job, leaves: Array) -> Any:
    """Neighbours in the tree, each of which reads its own slice, as one task."""
    total: TreeSum[Any] = TreeSum()
    with single_threaded_blas():  # once, not once a leaf
        for index, (start, *edges) in enumerate(leaves.tolist()):
            box = tuple(zip(edges[::2], edges[1::2], strict=True))
            total.add(index, job.run(Leaf(box, start)))
    return total.total()


def pack_leaves(leaves: Sequence[Leaf]) -> Array:
    """Start and edges of each leaf (k, 1 + 2 dims) int64: Dask hashes and sends one array."""
    return np.array([(leaf.start, *chain.from_iterable(leaf.box)) for leaf in leaves])


def ancestors(graph: Mapping[Any, Any], keys: Iterable[Any]) -> set[Any]:
    """Keys of ``graph`` that these depend on, themselves included."""
    reached: set[Any] = set()
    waiting = [key for key in keys if key in graph]
    while waiting:
        key = waiting.pop()
        if key not in reached:
            reached.add(key)
            waiting.extend(k for k in graph[key].dependencies if k in graph)
    return reached


def waist(graph: Mapping[Any, Any], leaves: Sequence[Sequence[Any]]) -> list[Any]:
    """Nodes to compute first: shared by all leaves and used directly by most of them.

    A lazily standardised input ``(x - x.mean()) / x.std()`` makes every leaf depend on
    all of the data through two small values. Those two are the waist; the raw chunks
    behind them are shared too, but each is used directly by one leaf only. What each leaf takes
    as arguments (its keys are given) is never part of the waist.
    """
    step = max(1, len(leaves) // WAIST_LEAVES)
    chosen = leaves[::step][:WAIST_LEAVES]
    if len(chosen) < 2:
        return []
    reach = [ancestors(graph, keys) for keys in chosen]
    shared = set.intersection(*reach)
    direct = {key for keys in chosen for key in keys}
    users: dict[Any, int] = {}
    for own in reach:
        outside = own - shared
        touched = {k for key in outside for k in graph[key].dependencies if k in shared}
        for key in touched:
            users[key] = users.get(key, 0) + 1
    often = [k for k, count in users.items() if count > len(chosen) / 2 and k not in direct]
    return [k for k in often if graph[k].dependencies]


def as_tasks(graph: Mapping[Any, Any]) -> Graph:
    """The graph in Dask's task form."""
    converted: Graph = convert_legacy_graph(graph)
    return converted


def keys_of(arguments: Iterable[Any]) -> list[Any]:
    """Graph keys among a leaf's arguments."""
    return [a.key for a in arguments if isinstance(a, TaskRef)]


ROW_SECONDS = 1e-5


@dataclass(frozen=True, slots=True)
class RowJob:
    """Reader and function: shipped once per worker, under one key."""

    reader: Reader
    function: RowFunction

    def run(self, box: Box, known: bool, *values: Any) -> Float64:
        """Function values (box shape + (width,)); NaN where a row is missing."""
        slabs = []
        with single_threaded_blas():
            for rows in self.reader.read(box, *values):
                values_of_slab = np.full((rows.n_slab, self.function.width), np.nan)
                kept = slice(None) if rows.keep is None else rows.keep
                values_of_slab[kept] = self.function(rows.x)
                slabs.append(values_of_slab)
        flat = np.concatenate(slabs) if slabs else np.empty((0, self.function.width))
        shape = tuple(hi - lo for lo, hi in box) if known else (len(flat),)
        return flat.reshape(*shape, self.function.width)


def map_rows(source: Source, function: RowFunction) -> Any:
    """Values of a row-wise function as a Dask array (grid shape + (width,)); lazy.

    Chunks follow the source's; unknown lengths stay unknown.
    """
    import dask.array as da

    known = source.n_rows is not None
    edges = lay_out(source, ROW_SECONDS).uniform_edges() if known else source.bounds
    token = uuid.uuid4().hex
    name, job = f"rff_rows-{token}", f"rff_rowjob-{token}"
    tasks: Graph = {job: Task(job, itself, RowJob(source.reader, function))}
    counts = [len(e) - 1 for e in edges]
    for place in np.ndindex(*counts):
        box = tuple((e[i], e[i + 1]) for e, i in zip(edges, place, strict=True))
        key = (name, *place, 0)
        tasks[key] = Task(key, RowJob.run, TaskRef(job), box, known, *source.arguments(box))
    if source.graph is not None:
        own = as_tasks(source.graph)
        wanted = {k for task in tasks.values() for k in task.dependencies}
        tasks |= {k: own[k] for k in ancestors(own, wanted)}
    lengths = [np.diff(e).tolist() if known else [math.nan] * (len(e) - 1) for e in edges]
    chunks = (*map(tuple, lengths), (function.width,))
    return da.Array(tasks, name, chunks, dtype=np.float64)


def itself(job: Any) -> Any:
    """A constant as a task: the scheduler keeps its recipe, so no worker's death loses it."""
    return job
