"""Rows that length-scales are learnt from: some of every block, and windows of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.moments.row_sample import RowSample, hash_places
from rff_stream.pilot import neighbour_scale
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink


@dataclass(frozen=True, slots=True)
class PilotStatistic:
    """Up to ``size`` valid rows [x, y, w] of every box, drawn by the hash of their place.

    With ``labelled`` rows, y is the place of the row's label among those met.
    """

    size: int
    seed: int
    labelled: bool = False

    def start(self) -> Sink:
        return _PilotSink(self)


@dataclass(frozen=True, slots=True, eq=False)
class PilotRows:
    """Rows [x, y, w]; adding puts them one under the other."""

    rows: Float64  # (m, d + T + 1)
    labels: tuple[Any, ...] = ()  # of rows that carry one, whose y is a place among them
    n_valid: int = 0  # rows that these were drawn from

    def __add__(self, other: Self) -> Self:
        labels = (*dict.fromkeys((*self.labels, *other.labels)),)
        parts = [p._over(labels) for p in (self, other) if p.rows.size]
        n_valid = self.n_valid + other.n_valid
        return type(self)(np.concatenate(parts), labels, n_valid) if parts else self

    def _over(self, labels: tuple[Any, ...]) -> Float64:
        """The rows with their labels' places among these."""
        if labels == self.labels:
            return self.rows
        at = np.array([labels.index(label) for label in self.labels], np.float64)
        rows = self.rows.copy()
        rows[:, -2] = at[rows[:, -2].astype(int)]
        return rows

    def __sizeof__(self) -> int:
        return int(self.rows.nbytes) + 64


class _PilotSink:
    def __init__(self, statistic: PilotStatistic) -> None:
        self._statistic = statistic
        self._sample: RowSample | None = None
        self._labels: dict[Any, int] = {}
        self._n = 0

    def add(self, rows: Rows, places: Array) -> None:
        self._n += len(rows.x)
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        y = self._codes(rows.label) if self._statistic.labelled else rows.y
        table = np.column_stack([rows.x, y, w]).astype(np.float64)
        keys = hash_places(places, self._statistic.seed)
        sample = RowSample.of(self._statistic.size, keys, table)
        self._sample = sample if self._sample is None else self._sample + sample

    def _codes(self, labels: Array | None) -> Array:
        """Places (m,) of the rows' labels among those met."""
        assert labels is not None
        present, inverse = np.unique(labels, return_inverse=True)
        at = [self._labels.setdefault(label, len(self._labels)) for label in present.tolist()]
        return np.asarray(at)[inverse]

    def result(self) -> PilotRows:
        rows = np.empty((0, 0)) if self._sample is None else self._sample.rows
        return PilotRows(rows, tuple(self._labels), self._n)


MOST_OF_LEAF = 131_072
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
        room = max(MOST_OF_LEAF - self._n, 0)
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
