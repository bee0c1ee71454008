"""Threads of this process: BLAS pinned to one while any leaf runs, and a watch on passes."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import dask
from dask.system import CPU_COUNT

from rff_stream.errors import ClusterError
from rff_stream.side_by_side import threads_of_one

ONE_THREAD_FEATURES = 2048
"""Largest R for which a solve is too short for a second BLAS thread to help."""

_lock = threading.Lock()
_users = 0
_limits: Any = None
_libraries: tuple[int, Any] = (-1, None)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS of this process to one thread until the last user leaves.

    ``threadpool_limits`` is process-wide: two tasks that enter and leave at different
    times would undo each other, so users are counted.
    """
    global _users, _limits
    with _lock:
        if _users == 0:
            _anyone_may_set()
            _limits = _loaded_libraries().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _anyone_may_set()
                _limits.restore_original_limits()
                _anyone_may_set()
                _limits = None


@contextmanager
def threads_of_solve(n_features: int) -> Iterator[None]:
    """One BLAS thread for the solves of a small map, and many cells at a time.

    A large map has the setting of the process.
    """
    if n_features > ONE_THREAD_FEATURES:
        yield
        return
    with single_threaded_blas(), threads_of_one(own_threads()):
        yield


def own_threads() -> int:
    """Threads that Dask would use in this process."""
    pool = dask.config.get("pool", None)
    size = getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None)
    synchronous = dask_scheduler() is dask.local.get_sync
    return 1 if synchronous else int(size or CPU_COUNT)


def dask_scheduler() -> Any:
    """Dask's own choice; asking it imports distributed, so only where that can matter."""
    if dask.config.get("scheduler", None) is None and "distributed" not in sys.modules:
        return None
    return dask.base.get_scheduler()


def _loaded_libraries() -> Any:
    """The BLAS libraries of this process, looked up again when modules were imported since.

    A look-up reads the memory map of the process: 5 ms, as much as a fit of 20 rows.
    """
    global _libraries
    from threadpoolctl import ThreadpoolController

    if _libraries[0] != len(sys.modules):
        _libraries = len(sys.modules), ThreadpoolController()
    return _libraries[1]


def _anyone_may_set() -> None:
    """Lift the rule of threadpoolctl 3.8 that only the first thread may set OpenBLAS."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


logger = logging.getLogger("rff_stream")


def seconds(name: str, default: float) -> float:
    """A time limit from Dask's configuration, ``rff-stream.<name>``, in seconds."""
    return float(dask.config.get(f"rff-stream.{name}", default))


_watched: contextvars.ContextVar[weakref.ref[WatchedPool]] = contextvars.ContextVar("_watched")
"""The pool whose task runs here."""


def report_activity() -> None:
    """Tell the pool whose task runs here that it has not stalled."""
    watched = _watched.get(None)
    pool = None if watched is None else watched()
    if pool is not None:
        pool._last = time.monotonic()


class WatchedPool:
    """A pool for ``dask.threaded.get`` whose tasks are not waited for without end.

    A warning is logged while no task, and no part of one, was finished for
    ``rff-stream.stall-warning`` seconds (60); after ``rff-stream.stall-timeout`` (1800) whoever
    waits gets a ClusterError. The words say what is being waited for. Without a pool the threads
    are its own: Dask keeps its pool for the whole process, and a forked child inherits that
    without its threads.
    """

    def __init__(self, words: str, threads: int, pool: Executor | None = None) -> None:
        self._words, self._own = words, pool is None
        self._pool = ThreadPoolExecutor(threads, "rff-stream") if pool is None else pool
        self._max_workers = threads  # Dask asks for it
        self._waiting: dict[Future[Any], str] = {}
        self._done = threading.Event()
        self._last = time.monotonic()
        # The thread ends with the pool, even where an interrupt comes before the with block.
        watch = (weakref.ref(self), self._done)
        self._thread = threading.Thread(target=_watch, args=watch, name="rff-watch", daemon=True)

    def submit(self, function: Callable[..., Any], tasks: Any) -> Future[Any]:
        """Run some tasks of a graph; what is given back can be given up."""
        given: Future[Any] = Future()
        self._waiting[given] = str(tasks[0][0])
        context = contextvars.copy_context()
        context.run(_watched.set, weakref.ref(self))
        self._pool.submit(context.run, function, tasks).add_done_callback(
            lambda found: self._hand_over(found, given)
        )
        return given

    def _hand_over(self, found: Future[Any], given: Future[Any]) -> None:
        self._last = time.monotonic()
        self._waiting.pop(given, None)
        try:
            if found.cancelled():
                given.cancel()
            elif (error := found.exception()) is not None:
                given.set_exception(error)
            else:
                given.set_result(found.result())
        except InvalidStateError:  # given up meanwhile
            return

    def _look(self, every: float, limit: float, said: float) -> float:
        """Warn or give up where it is time; returns when the last warning was."""
        now = time.monotonic()
        waited = now - self._last
        if waited > limit:
            self._give_up(waited)
        elif waited > every and now - said > every / 4:
            logger.warning("still waiting for %s after %.0f s", self._words, waited)
            return now
        return said

    def _give_up(self, waited: float) -> None:
        for given, key in list(self._waiting.items()):
            self._waiting.pop(given, None)
            error = ClusterError(
                f"Nothing finished for {waited:.0f} s in threads of this process, which were at "
                f"{key}. A read that hangs needs its storage looked at; if one leaf may take so "
                "long, raise rff-stream.stall-timeout (seconds) in Dask's configuration."
            )
            try:
                given.set_exception(error)
            except InvalidStateError:  # finished at this very moment
                continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._own:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _watch(pool: weakref.ref[WatchedPool], done: threading.Event) -> None:
    """Look at a pool until it is done, or nobody holds it any more."""
    every, limit = seconds("stall-warning", 60), seconds("stall-timeout", 1800)
    said = time.monotonic()
    while not done.wait(min(every, limit) / 4):
        watched = pool()
        if watched is None:
            return
        said = watched._look(every, limit, said)
        del watched
