"""A thread that says what a pass waits for, so that nothing hangs in silence."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

import dask

__all__ = ["Watch", "seconds"]

logger = logging.getLogger("rff_stream")


def seconds(name: str, default: float) -> float:
    """A time limit from Dask's configuration, ``rff-stream.<name>``, in seconds."""
    return float(dask.config.get(f"rff-stream.{name}", default))


class Watch:
    """Logs a warning while nothing was finished for a minute.

    Parameters
    ----------
    words : str
        What is being waited for.
    """

    def __init__(self, words: str) -> None:
        self._words = words
        self._limit = seconds("stall-warning", 60)
        self._done = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="rff-watch", daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(self._limit / 4):
            waited = time.monotonic() - self._last
            if waited > self._limit:
                logger.warning("still waiting for %s after %.0f s", self._words, waited)

    def moved(self) -> None:
        """Something was finished."""
        self._last = time.monotonic()

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
