"""Dask arrays that know which of their blocks were computed."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from typing import Any

import dask.array as da
import numpy as np

from rff_stream._array import Array

__all__ = ["Blocks"]


class Blocks:
    """A dask array that counts how often each block is computed, and how many are alive."""

    def __init__(self, values: Array, chunk: int, *, seconds: float = 0.0) -> None:
        self.computed: Counter[int] = Counter()
        self.alive = self.most_alive = 0
        self.threads: set[str] = set()
        self._lock = threading.Lock()
        self._values, self._chunk, self._seconds = values, chunk, seconds
        self.count = -(-len(values) // chunk)
        ids = da.arange(self.count, chunks=1)
        lengths = tuple(len(values[i : i + chunk]) for i in range(0, len(values), chunk))
        more = {"new_axis": 1, "chunks": (lengths, (values.shape[1],))} if values.ndim == 2 else {}
        more = more or {"chunks": (lengths,)}
        meta = np.empty((0,) * values.ndim)
        self.array = da.map_blocks(self._load, ids, dtype=values.dtype, meta=meta, **more)

    def _load(self, ids: Array) -> Array:
        i = int(ids[0])
        time.sleep(self._seconds)
        found = self._values[i * self._chunk : (i + 1) * self._chunk].copy()
        with self._lock:
            self.computed[i] += 1
            self.alive += 1
            self.most_alive = max(self.most_alive, self.alive)
            self.threads.add(threading.current_thread().name)
        weakref.finalize(found, self._gone)
        return found

    def _gone(self) -> None:
        self.alive -= 1

    def __getstate__(self) -> dict[str, Any]:  # dask's own tokens and optimisations may copy it
        raise TypeError("The counting source was pickled.")

    def __deepcopy__(self, memo: object) -> Blocks:
        return self
