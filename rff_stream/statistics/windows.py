"""Windows of neighbouring rows at the full density of the data: one from every leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.length_scales.windows import neighbour_scale
from rff_stream.moments.row_sample import hash_places
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink

__all__ = ["WindowRows", "WindowStatistic"]

MOST_ROWS = 131_072
"""Rows of a leaf that are looked at: the first ones."""


@dataclass(frozen=True, slots=True)
class WindowStatistic:
    """The ``size`` rows [x, y, w] nearest to one row of each leaf, drawn by the hash of its place.

    Distances are in units of the typical step from row to row along each input.
    """

    size: int
    seed: int

    def start(self) -> Sink:
        return _WindowSink(self)


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """Windows (m, d + T + 1) of rows [x, y, w]; adding puts them one after the other."""

    windows: tuple[Float64, ...] = ()

    def __add__(self, other: Self) -> Self:
        return type(self)(self.windows + other.windows)

    def __sizeof__(self) -> int:
        return sum(window.nbytes for window in self.windows) + 64


class _WindowSink:
    def __init__(self, statistic: WindowStatistic) -> None:
        self._statistic = statistic
        self._rows: list[Float64] = []
        self._places: list[Array] = []
        self._d = self._n = 0

    def add(self, rows: Rows, places: Array) -> None:
        room = max(MOST_ROWS - self._n, 0)
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        kept = np.column_stack([rows.x, rows.y, w])[:room].astype(np.float64)
        self._rows.append(kept)
        self._places.append(places[:room])
        self._n, self._d = self._n + len(kept), rows.x.shape[1]

    def result(self) -> WindowRows:
        if not self._n:
            return WindowRows()
        rows, places = np.concatenate(self._rows), np.concatenate(self._places)
        x = rows[:, : self._d]
        centre = x[np.argmin(hash_places(places, self._statistic.seed))]
        scale = neighbour_scale(x)
        distance = (((x - centre) / scale) ** 2).sum(axis=1)
        near = np.argsort(distance, kind="stable")[: self._statistic.size]
        return WindowRows((rows[np.sort(near)],))
