"""The pilot: some valid rows of every block, drawn by the hash of their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.moments.row_sample import RowSample, hash_places
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.protocol import Sink

__all__ = ["PilotRows", "PilotStatistic"]


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
    """Rows [x, y, w]; adding puts them one under the other.

    Parameters
    ----------
    rows : (m, d + T + 1) float64
    labels : tuple
        Of rows that carry one, whose y is a place among them.
    """

    rows: Float64
    labels: tuple[Any, ...] = ()

    def __add__(self, other: Self) -> Self:
        labels = (*dict.fromkeys((*self.labels, *other.labels)),)
        parts = [p._over(labels) for p in (self, other) if p.rows.size]
        return type(self)(np.concatenate(parts), labels) if parts else self

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

    def add(self, rows: Rows, places: Array) -> None:
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
        return PilotRows(rows, tuple(self._labels))
