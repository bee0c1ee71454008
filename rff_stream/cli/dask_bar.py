"""A progress bar for what Dask's threads compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask.callbacks import Callback

from rff_stream.execution.progress import Progress


class DaskBar(Callback):
    """A bar of tasks, a line a minute in logs. A cluster shows its own on its page."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def _start_state(self, dsk: Any, state: Mapping[str, Any]) -> None:
        left = sum(len(state[kind]) for kind in ("ready", "waiting", "running"))
        self._bar = Progress("writing", left, unit="task")

    def _posttask(self, *told: Any) -> None:
        self._bar.advance(1)

    def _finish(self, *told: Any) -> None:
        self._bar.__exit__(None, None, None)
