"""Moments of the rows of a leaf: by label, by fold, or all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import Accumulator
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import Groups, fold_runs
from rff_stream.statistics.protocol import Sink

__all__ = ["MomentStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class MomentStatistic:
    """Moments of the rows by label, by fold, or all under the label None.

    Parameters
    ----------
    features, row, order, sums, sample_rows, n_places
        As in :class:`~rff_stream.moments.accumulate.Accumulator`.
    grouped : bool
        By the labels that the rows carry.
    folds : int
        By whole runs of rows: fold k holds the places from k/folds to (k + 1)/folds of the
        data. A leaf meets one or two folds, one after the other, so they cost no memory.
    rounds : int
        Groups expected: see :class:`~rff_stream.moments.accumulate.Accumulator`.
    grid : tuple of int
        Lengths of the sample dimensions where places count along the first one, the slowest,
        whatever the chunks: runs of rows are then runs of time. Empty: places of the leaves.
    """

    features: FeatureMap
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    grouped: bool = False
    folds: int = 0
    rounds: int = 1
    grid: tuple[int, ...] = ()

    def start(self) -> Sink:
        return _GroupedSink(self) if self.grouped else _RunSink(self)

    def accumulator(self) -> Accumulator:
        """An empty accumulator of this description."""
        return Accumulator(
            self.features,
            self.row,
            order=self.order,
            sums=self.sums,
            sample_rows=self.sample_rows,
            n_places=self.n_places,
            rounds=self.rounds,
        )


class _RunSink:
    """One accumulator at a time: the current fold's, or that of all rows."""

    def __init__(self, statistic: MomentStatistic) -> None:
        self._statistic = statistic
        self._done = Groups({})
        self._fold: int | None = None
        self._open = statistic.accumulator()

    def add(self, rows: Rows, places: Array) -> None:
        folds = self._statistic.folds
        if not folds:
            self._open.add(rows.x, rows.y, rows.w, places)
            return
        for fold, lo, hi in fold_runs(places, self._statistic.n_places, folds):
            self._turn_to(fold)
            w = None if rows.w is None else rows.w[lo:hi]
            self._open.add(rows.x[lo:hi], rows.y[lo:hi], w, places[lo:hi])

    def _turn_to(self, fold: int) -> None:
        if self._fold not in (None, fold):
            self._done = self.result()
            self._open = self._statistic.accumulator()
        self._fold = fold

    def result(self) -> Groups:
        if self._fold is None and self._statistic.folds:
            return self._done
        return self._done + Groups({self._fold: self._open.result()})


class _GroupedSink:
    def __init__(self, statistic: MomentStatistic) -> None:
        self._statistic = statistic
        self._by_label: dict[Any, Accumulator] = {}

    def add(self, rows: Rows, places: Array) -> None:
        if rows.label is None:
            raise ValueError("Rows carry no labels. Open the source with by=….")
        labels, inverse = np.unique(rows.label, return_inverse=True)
        for i, label in enumerate(labels.tolist()):
            chosen = inverse == i
            if label not in self._by_label:
                self._by_label[label] = self._statistic.accumulator()
            w = None if rows.w is None else rows.w[chosen]
            self._by_label[label].add(rows.x[chosen], rows.y[chosen], w, places[chosen])

    def result(self) -> Groups:
        return Groups({label: a.result() for label, a in self._by_label.items()})
