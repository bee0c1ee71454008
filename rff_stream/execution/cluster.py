"""Segments in flight on a ``distributed`` cluster, and the errors when it fails."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from dask.task_spec import Task

from rff_stream import __version__
from rff_stream.errors import ClusterError
from rff_stream.execution.graph import Graph, itself
from rff_stream.execution.leaves import Job, versions_question
from rff_stream.execution.threads import seconds
from rff_stream.planning import segments_in_flight

logger = logging.getLogger("rff_stream")
RETRIES = 3
CHECK_SECONDS = 2.0

_checked: weakref.WeakSet[Any] = weakref.WeakSet()


class Flight:
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
        self._job = self._client.get({key: Task(key, itself, job)}, key, sync=False)
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
