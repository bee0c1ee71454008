"""BLAS pinned to one thread while any leaf runs: the same bits, and no oversubscription."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

ONE_THREAD_FEATURES = 2048
"""R up to which a solve is too short for a second BLAS thread to pay."""

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
    _enter()
    try:
        yield
    finally:
        _leave()


def few_features_blas(n_features: int) -> AbstractContextManager[None]:
    """One BLAS thread for the solves of a small map; the setting of the process for a large one."""
    return single_threaded_blas() if n_features <= ONE_THREAD_FEATURES else nullcontext()


def _enter() -> None:
    global _users, _limits
    with _lock:
        if _users == 0:
            _anyone_may_set()
            _limits = _loaded_libraries().limit(limits=1, user_api="blas")
        _users += 1


def _loaded_libraries() -> Any:
    """The BLAS libraries of this process, looked up again when modules were imported since.

    A look-up reads the memory map of the process: 5 ms, as much as a fit of 20 rows.
    """
    global _libraries
    from threadpoolctl import ThreadpoolController

    if _libraries[0] != len(sys.modules):
        _libraries = len(sys.modules), ThreadpoolController()
    return _libraries[1]


def _leave() -> None:
    global _users, _limits
    with _lock:
        _users -= 1
        if _users == 0 and _limits is not None:
            _anyone_may_set()
            _limits.restore_original_limits()
            _anyone_may_set()
            _limits = None


def _anyone_may_set() -> None:
    """Lift the rule of threadpoolctl 3.8 that only the first thread may set OpenBLAS."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)
