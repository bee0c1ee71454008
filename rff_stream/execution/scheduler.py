"""Running a pass: threads of this process, or any ``distributed`` cluster.

Whatever runs it, segments are summed by their index along one fixed tree, never by
arrival, so the bits are the same.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing.pool
import os
import queue
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import dask
from dask.local import MultiprocessingPoolExecutor
from dask.task_spec import Task, TaskRef

from rff_stream import __version__
from rff_stream.contracts import Statistic
from rff_stream.errors import ClusterError, PlanError, warn
from rff_stream.execution.checkpoints import CheckpointWriter
from rff_stream.execution.leaves import (
    Graph,
    Job,
    Leaf,
    PartialSum,
    ancestors,
    as_tasks,
    boxes_of,
    data_of_leaves,
    grid_leaves,
    identity,
    keys_of,
    segment_tasks,
    sequence_tasks,
    shared_dependencies,
    versions_question,
)
from rff_stream.execution.threads import WatchedPool, dask_scheduler, own_threads, seconds
from rff_stream.leaf_layout import Layout
from rff_stream.moments.tree_sum import RunningSum, TreeSum
from rff_stream.planning import segments_in_flight
from rff_stream.progress import Progress
from rff_stream.sources.protocol import Source

MOST_GRAPH_TASKS = 200_000  # some 200 s of the scheduler, at 1 ms a task
WIDE_SEGMENT = 16  # leaves from which a plan has room for four sums at a time, not two
PAUSED_AT = 0.8  # share of its memory limit at which a worker takes no more tasks
EACH_LEAF = Layout(())  # alone


Segments = Iterator[tuple[int, Sequence[Leaf]]]
"""The number and the leaves of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Summation:
    """What one read adds up, and how."""

    statistic: Statistic
    leaves: Sequence[Leaf]  # in the order of the tree; at least one
    layout: Layout = EACH_LEAF  # which leaves make a segment, and a task; by default each leaf does
    n_rows: int | None = None  # for the progress bar, which says the ``words``
    words: str = "reading"
    grid: tuple[int, ...] = ()  # as in Job
    writer: CheckpointWriter | None = None  # where finished nodes come from and go to


class Pass:
    """Reads one source, as often as asked, with the scheduler that Dask would use.

    What every leaf of a Dask graph depends on (a mean over all data, say) is computed
    once, before the first sum, and put back as a constant. The token is part of every task's
    key: same token, same values.
    """

    def __init__(self, source: Source, *, token: str, progress: bool = True) -> None:
        self._source, self._token, self._progress = source, token, progress
        self._client = active_client()
        if self._client is not None:
            check_versions(self._client)
        self._threads: int | None = None
        self._graph: Graph = {} if source.graph is None else as_tasks(source.graph)
        self._has_shared = False

    def limit(self, threads: int) -> bool:
        """Run at most so many leaves at a time; False where Dask or a cluster decides."""
        mine = self._client is None and dask_scheduler() in (None, dask.threaded.get)
        if not mine or dask.config.get("pool", None) is not None:
            return False
        self._threads = threads
        return True

    def _compute_shared(self) -> None:
        """Compute what all leaves depend on, once, and put it back as constants."""
        if not self._graph or self._has_shared:
            return
        self._has_shared = True
        if len(self._graph) > MOST_GRAPH_TASKS:
            raise PlanError(
                f"The Dask graph of the data has {len(self._graph):,} tasks; at most "
                f"{MOST_GRAPH_TASKS:,} are handled. Open the data without chunks (chunks=None): "
                "leaves then read their own slices and the graph is not needed."
            )
        leaves = grid_leaves(self._source)
        keys = [keys_of(self._source.arguments(leaf.box)) for leaf in leaves]
        shared = shared_dependencies(self._graph, keys)
        if not shared:
            return
        tasks = {key: self._graph[key] for key in ancestors(self._graph, shared)}
        values = self._get(tasks, shared)
        from dask.task_spec import DataNode

        self._graph |= {k: DataNode(k, v) for k, v in zip(shared, values, strict=True)}

    def _data_of(self, leaves: Sequence[Leaf]) -> Graph:
        """Tasks of the data that these leaves run themselves."""
        if not self._graph:
            return {}
        keys = (keys_of(self._source.arguments(leaf.box)) for leaf in leaves)
        return data_of_leaves(self._graph, keys)

    def run(self, summation: Summation) -> PartialSum:
        """Sum of a statistic over all leaves."""
        self._compute_shared()
        layout, leaves, writer = summation.layout, summation.leaves, summation.writer
        total: TreeSum[PartialSum] | RunningSum[PartialSum]
        total = RunningSum() if layout.in_sequence else TreeSum()
        lock = threading.Lock()
        with Progress(summation.words, summation.n_rows, shown=self._progress) as progress:
            if writer is not None:
                progress.advance(writer.restore(total))

            def commit(index: int, value: PartialSum, *after: Any) -> int:
                with lock:
                    total.add(index, value)
                    progress.advance(value.seen)
                    if writer is not None:
                        writer.offer(total)
                    return total.n_early if isinstance(total, RunningSum) else 0

            size = layout.segment_leaves
            starts = enumerate(range(0, len(leaves), size))
            left = [(i, start) for i, start in starts if not total.covers(i)]
            segments = ((i, leaves[start : start + size]) for i, start in left)
            run = self._in_threads if self._client is None else self._on_cluster
            try:
                run(summation, segments, commit)
            finally:
                if writer is not None:
                    with lock:
                        writer.write(total)
        partial_sum = total.total()
        assert partial_sum is not None
        if len(partial_sum.kernels) > 1:
            warn_of_kernels(partial_sum.kernels)
        return partial_sum

    def _in_threads(
        self, summation: Summation, segments: Segments, commit: Callable[..., int]
    ) -> None:
        """One graph in which every segment ends in a task that hands its sum over.

        In sequence, a sum is handed over after those before it; leaves are summed one after the
        other, each by all threads, so that one sum is held and not one a thread.
        """
        threads = (self._threads or thread_count()) if summation.layout.in_sequence else 1
        job = Job(self._source.reader, summation.statistic, summation.grid, threads=threads)
        size = summation.layout.segment_leaves
        tasks, ends, done = dict(self._graph), list[str](), list[str]()
        data = self._data_of(summation.leaves)
        for index, leaves in segments:
            where = (self._source, job, leaves, index * size, self._token, data)
            end, after = f"rff_commit-{index:09} {self._token}", list[TaskRef]()
            if summation.layout.in_sequence:
                key, segment = sequence_tasks(*where, window=1, done=done)
                done[-1], after = end, [TaskRef(key) for key in ends[-1:]]
            else:
                key, segment = segment_tasks(*where)
            tasks |= segment | {end: Task(end, commit, index, TaskRef(key), *after)}
            ends.append(end)
        keep = ancestors(tasks, ends) if self._graph else tasks
        self._get({key: tasks[key] for key in keep}, ends)

    def _on_cluster(
        self, summation: Summation, segments: Segments, commit: Callable[..., int]
    ) -> None:
        """A window of segments; of a graph all at once, unless their sums would wait here."""
        layout, size = summation.layout, summation.layout.segment_leaves
        alone = self._graph or self._source.arguments(summation.leaves[0].box) or layout.in_sequence
        together = 1 if alone else layout.leaves_a_task(thread_count())
        data = self._data_of(summation.leaves)
        boxes = functools.partial(
            boxes_of, source=self._source, leaves=summation.leaves, together=together
        )
        versions = versions_question()()
        with ClusterRun(self._client, self._token, boxes) as cluster_run:
            ship = cluster_run.ship(
                Job(self._source.reader, summation.statistic, summation.grid, versions)
            )
            fan_in = 4 if size >= WIDE_SEGMENT else 2
            # An adaptive cluster grows by what it knows of; but sums in sequence would wait here.
            at_once = self._graph and not layout.in_sequence
            window = 2**31 if at_once else cluster_run.window(size // together)
            early = 0  # sums that wait on the driver count, too
            while True:
                while cluster_run.waiting + early < window:
                    index, leaves = next(segments, (0, ()))
                    if not leaves:
                        break
                    where = (self._source, ship, leaves, index * size, self._token, data)
                    if layout.in_sequence:
                        key, tasks = sequence_tasks(*where, window=fan_in, done=[])
                    else:
                        key, tasks = segment_tasks(*where, together, fan_in)
                    cluster_run.submit(index, key, self._with_graph(tasks))
                if not cluster_run.waiting:
                    return
                early = commit(*cluster_run.next())

    def _with_graph(self, tasks: Graph) -> Graph:
        """Tasks and what they need of the data's own graph."""
        if not self._graph:
            return tasks
        wanted = {k for task in tasks.values() for k in task.dependencies}
        return tasks | {key: self._graph[key] for key in ancestors(self._graph, wanted)}

    def _get(self, tasks: Mapping[Any, Any], keys: Sequence[Any]) -> Sequence[Any]:
        """Values of keys, by the client or by Dask's scheduler for this process."""
        if self._client is not None:
            with ClusterRun(self._client, self._token) as cluster_run:
                return cluster_run.values(keys, dict(tasks))
        get = dask_scheduler() or dask.threaded.get
        if get is not dask.threaded.get:
            return list(get(dict(tasks), list(keys)))
        words = "the next segment in threads of this process"
        pool, threads = dask.config.get("pool", None), self._threads or thread_count()
        with WatchedPool(words, threads, as_executor(pool)) as watched:
            return list(get(dict(tasks), list(keys), pool=watched))


def warn_of_kernels(kernels: Mapping[str, str]) -> None:
    """Warn where workers, late ones included, ran other machine code: bits then vary."""
    words = "; ".join(f"{code} (as on {host})" for code, host in sorted(kernels.items()))
    warn(
        f"Workers of this cluster use {len(kernels)} kinds of machine code: {words}. Sums are "
        "correct up to rounding, but their last bits depend on which worker read which rows. Use "
        "workers with one kind of processor, or set OPENBLAS_CORETYPE and "
        "NPY_DISABLE_CPU_FEATURES to the same values on all of them."
    )


def as_executor(pool: Any) -> Executor | None:
    """A pool of Dask's configuration as an executor."""
    if isinstance(pool, multiprocessing.pool.Pool):
        return MultiprocessingPoolExecutor(pool)
    found: Executor | None = pool
    return found


_inherited: weakref.WeakSet[Any] = weakref.WeakSet()


def _remember_clients() -> None:
    """Remember the clients that a forked child inherits: their threads are not in it."""
    if "distributed" in sys.modules:
        from distributed import Client

        _inherited.update(Client._instances)


os.register_at_fork(after_in_child=_remember_clients)


def active_client() -> Any:
    """The ``distributed.Client`` that Dask would use here; None for threads."""
    get = dask_scheduler()
    owner = getattr(get, "__self__", None)
    if owner is not None and hasattr(owner, "scheduler_info"):
        if owner in _inherited:
            raise ClusterError(
                f"The Dask client of {owner.scheduler.address} was made in the process that this "
                f"one ({os.getpid()}) was forked from, and does not answer here. Make a Client "
                "here, or compute in threads: dask.config.set(scheduler='threads')."
            )
        return owner
    if get is not None and getattr(get, "__module__", "") == "dask.multiprocessing":
        raise ClusterError(
            "Dask's scheduler is set to 'processes', which sends every result through this "
            "process. Start distributed.Client() for processes, or use 'threads'."
        )
    return None


def thread_count() -> int:
    """Leaves that run at a time: of this process, or of all workers."""
    client = active_client()
    if client is not None:
        return max(1, int(sum(client.nthreads().values())))
    return own_threads()


def worker_memory() -> int | None:
    """Bytes that every worker has before it pauses; None for threads, or without a limit."""
    client = active_client()
    workers = client.scheduler_info(n_workers=-1)["workers"].values() if client is not None else ()
    limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
    return int(PAUSED_AT * min(limits)) if limits else None


def computing_processes() -> tuple[int, int, int | None]:
    """Computing processes, threads in each, and bytes as in :func:`worker_memory`."""
    client = active_client()
    if client is None:
        return 1, thread_count(), None
    threads = list(client.nthreads().values()) or [1]
    return len(threads), max(threads), worker_memory()


logger = logging.getLogger("rff_stream")
RETRIES = 3  # of a task whose read failed, as Dask's allowed-failures
CHECK_SECONDS = 2.0  # between looks at workers: how late a word comes of what is waited for

_checked: weakref.WeakSet[Any] = weakref.WeakSet()


class ClusterRun:
    """Submits segments, takes their sums as they finish, cancels what is left.

    The token is part of the job's key. ``boxes`` gives what the task of a key reads, box by box in
    words; nothing where it reads none.
    """

    def __init__(
        self, client: Any, token: str, boxes: Callable[[str], Sequence[str]] = lambda key: ()
    ) -> None:
        self._client, self._boxes = client, boxes
        self._token = f"{token}-{uuid.uuid4().hex[:8]}"
        self._address = str(client.scheduler.address)
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting: dict[str, tuple[int, Any]] = {}
        self._job: Any = None
        self._workers = set(client.nthreads())
        self._last_check = self._moved = self._warned = time.monotonic()
        self._running: dict[str, Any] = {}
        self._slot = contextlib.ExitStack()

    @property
    def waiting(self) -> int:
        """Segments submitted and not yet taken."""
        return len(self._waiting)

    def window(self, segment_tasks: int) -> int:
        """Segments to keep in flight."""
        return segments_in_flight(sum(self._client.nthreads().values()), segment_tasks)

    def ship(self, job: Job) -> Any:
        """The job as one key of the scheduler's: sent once to a worker, kept if one dies."""
        key = f"rff_job-{self._token}"
        self._job = self._client.get({key: Task(key, identity, job)}, key, sync=False)
        return self._job

    def submit(self, index: int, key: str, tasks: Graph) -> None:
        """Start one segment."""
        self._track(index, self._client.get(tasks, key, sync=False, retries=RETRIES))

    def values(self, keys: Sequence[Any], tasks: Graph) -> list[Any]:
        """Values of some keys, all at once."""
        futures = self._client.get(tasks, list(keys), sync=False, retries=RETRIES)
        for index, future in enumerate(futures):
            self._track(index, future)
        by_index = dict(self.next() for _ in futures)
        return [by_index[index] for index in range(len(futures))]

    def _track(self, index: int, future: Any) -> None:
        self._waiting[future.key] = (index, future)
        future.add_done_callback(self._finished.put)

    def next(self) -> tuple[int, Any]:
        """Index and value of the next to finish; says what it waits for meanwhile."""
        while True:
            if time.monotonic() - self._last_check >= CHECK_SECONDS:
                self._check()
            with contextlib.suppress(queue.Empty):
                future = self._finished.get(timeout=CHECK_SECONDS)
                self._moved = time.monotonic()
                index, held = self._waiting.pop(future.key)
                value = self._result(future, index)
                held.release()
                return index, value

    def _result(self, future: Any, index: int) -> Any:
        from distributed import CancelledError, KilledWorker

        try:
            return future.result()
        except KilledWorker as error:
            boxes = self._boxes(str(error.task))
            read = f"It read {len(boxes)} boxes: {', '.join(boxes)}. " if boxes[1:] else ""
            raise ClusterError(
                f"Segment {index} killed its workers: {str(error).rstrip('.')}. The key names "
                f"the leaf and its box. {read}Look at the workers' logs; if they ran out of "
                "memory, lower n_components or threads, or give each worker more memory."
            ) from error
        except (CancelledError, OSError) as error:
            if future.status == "error":  # the leaf's own
                raise
            self._refuse_unread()
            raise ClusterError(
                f"The scheduler at {self._address} gave up segment {index}: "
                f"{str(error).rstrip('.')}. It was lost or restarted; start the cluster and run "
                "the fit again."
            ) from error

    def _refuse_unread(self) -> None:
        """Raise where the scheduler could not load the job: all that needs it is cancelled then."""
        if self._job is not None and self._job.status == "error":
            error = self._job.exception()
            said = str(error).partition(".")[0]
            raise ClusterError(
                f"The scheduler at {self._address} cannot load what the leaves run ({said}; its "
                "log names the module). Scheduler and workers import the classes of maps, kernels "
                "and data: install their package there, or define them in the script."
            ) from error

    def _check(self) -> None:
        """Raise when the cluster is gone or makes no progress; warn after a minute."""
        running = self._processing()
        self._last_check = now = time.monotonic()
        if any(running.values()) and running != self._running:
            self._running, self._moved = running, now
        if lost := self._workers - set(running):
            logger.warning("%d worker(s) lost; their leaves are computed again", len(lost))
        self._workers = set(running)
        still = now - self._moved
        if not running and still > seconds("no-workers-timeout", 300):
            raise ClusterError(
                f"No workers at {self._address} for {still:.0f} s; at least one is needed. "
                "Start workers (dask worker ADDRESS) and run the fit again."
            )
        if still > seconds("stall-timeout", 1800):
            raise ClusterError(f"Nothing finished for {still:.0f} s. {self._state()}")
        every = seconds("stall-warning", 60)
        if still > every and now - self._warned > every:
            self._warned = now
            logger.warning("nothing finished for %.0f s: %s", still, self._state())

    def _processing(self) -> dict[str, Any]:
        """Keys that each worker has before it: they change while a long segment goes on."""
        lost: Exception | None = None
        try:
            if self._client.status == "running":
                return dict(self._client.processing())
        except OSError as error:
            lost = error
        raise ClusterError(
            f"The client lost the scheduler at {self._address} with {self.waiting} "
            "segments in flight. Start the cluster and run the fit again."
        ) from lost

    def _state(self) -> str:
        """Workers by status and the oldest keys they run."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        paused = [
            f"{name} paused at {info['metrics'].get('memory', 0) / 2**30:.1f} GiB"
            for name, info in workers.items()
            if info.get("status") == "paused"
        ]
        running = [str(key) for keys in self._running.values() for key in keys]
        return (
            f"{len(workers)} workers at {self._address}, {'; '.join(paused) or 'none paused'}; "
            f"running: {', '.join(running[:3]) or 'nothing'}. A paused worker has too little "
            "memory or a full local directory; a hung read needs its storage looked at."
        )

    def __enter__(self) -> Self:
        self._slot.enter_context(given_up_slot())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel what is still in flight: `future.result()` alone leaves it running."""
        left = [future for _, future in self._waiting.values()]
        with contextlib.suppress(Exception):
            if left:
                self._client.cancel(left)
        self._waiting.clear()
        if self._job is not None:
            self._job.release()
        self._slot.close()


def given_up_slot() -> contextlib.AbstractContextManager[Any]:
    """Within a task of a worker: give its thread to the leaves until they have run.

    Otherwise a fit that runs as a task would wait for leaves that wait for its thread.
    """
    from distributed import get_worker, worker_client

    try:
        get_worker()
    except ValueError:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[Any] = worker_client()
    return found


def check_versions(client: Any) -> None:
    """Refuse a cluster that would compute other bits; asked once for each client.

    Raises ClusterError: naming what differs, and where.
    """
    if client in _checked:
        return
    ask = versions_question()
    mine = ask() | {"rff_stream": __version__}
    answers = {"the scheduler": client.run_on_scheduler(ask)} | client.run(ask)
    for name, own in mine.items():
        others = {where: had[name] for where, had in answers.items() if had[name] != own}
        if others:
            words = ", ".join(f"{where} has {had or 'none'}" for where, had in others.items())
            raise ClusterError(
                f"This process has {name} {own} but {words}. All parts of a cluster need the "
                "same one. Install it there and start them again."
            )
    _checked.add(client)
