"""Segments in flight on a ``distributed`` cluster, and what to say when they stop."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from types import TracebackType
from typing import Any, Self

from dask.task_spec import Task

from rff_stream.errors import ClusterError, RffStreamError
from rff_stream.onepass.graph import Graph
from rff_stream.onepass.leaf import Job, Tally
from rff_stream.onepass.watch import seconds

__all__ = ["Flight"]

logger = logging.getLogger("rff_stream")
RETRIES = 3
CHECK_SECONDS = 2.0


class Flight:
    """Submits segments, takes their sums as they finish, cancels what is left.

    Parameters
    ----------
    client : distributed.Client
    token : str
        Part of the job's key.
    """

    def __init__(self, client: Any, token: str) -> None:
        self._client = client
        self._token = f"{token}-{uuid.uuid4().hex[:8]}"
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting: dict[str, tuple[int, Any]] = {}
        self._job: Any = None
        self._last_event = time.monotonic()
        self._workers = len(client.nthreads())

    @property
    def waiting(self) -> int:
        """Segments submitted and not yet taken."""
        return len(self._waiting)

    def window(self, segment_leaves: int) -> int:
        """Segments to keep in flight: two leaves and two segments a thread."""
        threads = max(1, sum(self._client.nthreads().values()))
        return int(max(2 * threads // segment_leaves, 2)) + 2

    def ship(self, job: Job) -> Any:
        """The job as one key of the scheduler's: sent once to a worker, kept if one dies."""
        key = f"rff_job-{self._token}"
        self._job = self._client.get({key: Task(key, _itself, job)}, key, sync=False)
        return self._job

    def submit(self, index: int, key: str, tasks: Graph) -> None:
        """Start one segment."""
        future = self._client.get(tasks, key, sync=False, retries=RETRIES)
        self._waiting[future.key] = (index, future)
        future.add_done_callback(self._finished.put)

    def next(self) -> tuple[int, Tally]:
        """Index and sum of the next segment to finish; says what it waits for meanwhile."""
        while True:
            try:
                future = self._finished.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                self._look()
                continue
            self._last_event = time.monotonic()
            index, held = self._waiting.pop(future.key)
            value = self._result(future, index)
            held.release()
            return index, value

    def _result(self, future: Any, index: int) -> Tally:
        from distributed import CancelledError, KilledWorker

        try:
            value: Tally = future.result()
        except RffStreamError:
            raise
        except KilledWorker as error:
            raise ClusterError(
                f"Segment {index} killed its workers: {error}. The key names the leaf and its "
                "box. Look at the workers' logs; if they ran out of memory, lower n_components "
                "or threads, or give each worker more memory."
            ) from error
        except CancelledError as error:
            raise ClusterError(
                f"The scheduler at {self._address()} gave up segment {index}: {error}. "
                "It was lost or restarted; start the cluster and run the fit again."
            ) from error
        return value

    def _look(self) -> None:
        """Raise when the cluster is gone; warn when nothing moved for a minute."""
        waited = time.monotonic() - self._last_event
        if self._client.status != "running":
            raise ClusterError(
                f"The client lost the scheduler at {self._address()} with {self.waiting} "
                "segments in flight. Start the cluster and run the fit again."
            )
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if len(workers) < self._workers:
            logger.warning(
                "%d worker(s) lost; their leaves are computed again", self._workers - len(workers)
            )
        self._workers = len(workers)
        if not workers and waited > seconds("no-workers-timeout", 300):
            raise ClusterError(
                f"No workers at {self._address()} for {waited:.0f} s; at least one is needed. "
                "Start workers (dask worker ADDRESS) and run the fit again."
            )
        if waited > seconds("stall-timeout", 1800):
            raise ClusterError(f"Nothing finished for {waited:.0f} s. {self._state(workers)}")
        if waited > seconds("stall-warning", 60):
            logger.warning("nothing finished for %.0f s: %s", waited, self._state(workers))

    def _state(self, workers: dict[str, Any]) -> str:
        """Workers by status and the oldest keys they run."""
        paused = [
            f"{name} paused at {info['metrics'].get('memory', 0) / 2**30:.1f} GiB"
            for name, info in workers.items()
            if info.get("status") == "paused"
        ]
        running = [str(key) for keys in self._client.processing().values() for key in keys]
        return (
            f"{len(workers)} workers at {self._address()}, {'; '.join(paused) or 'none paused'}; "
            f"running: {', '.join(running[:3]) or 'nothing'}. A paused worker has too little "
            "memory or a full local directory; a hung read needs its storage looked at."
        )

    def _address(self) -> str:
        scheduler = getattr(self._client, "scheduler", None)
        return getattr(scheduler, "address", None) or "its address"

    def __enter__(self) -> Self:
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


def _itself(job: Job) -> Job:
    """A constant as a task: the scheduler keeps its recipe, so no worker's death loses it."""
    return job
