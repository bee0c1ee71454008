"""What one task does: read a box, turn it into rows, give the rows to a statistic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.accumulate import Accumulator
from rff_stream.errors import PlanError
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.onepass.blas import single_threaded_blas
from rff_stream.rowsample import RowSample, hash_places
from rff_stream.sources.base import Box, Reader, Rows

__all__ = [
    "Groups",
    "Job",
    "Leaf",
    "MomentStatistic",
    "PilotRows",
    "PilotStatistic",
    "Sink",
    "Statistic",
    "Tally",
    "fold_runs",
]


class Sink(Protocol):
    """Takes the rows of one leaf and gives a value that can be added."""

    def add(self, rows: Rows, places: Array) -> None: ...
    def result(self) -> Any: ...


class Statistic(Protocol):
    """Picklable description of what a leaf computes."""

    def start(self) -> Sink: ...


@dataclass(frozen=True, slots=True)
class Leaf:
    """A box, the place of its first row in the whole data, and its words."""

    box: Box
    start: int


@dataclass(frozen=True, slots=True)
class Tally:
    """A statistic's value and the rows that were looked at for it, missing ones included."""

    value: Any
    seen: int

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + other.value, self.seen + other.seen)

    def __sizeof__(self) -> int:
        return int(self.value.__sizeof__()) + 64


@dataclass(frozen=True, slots=True)
class Job:
    """Reader and statistic: shipped once per worker, under one key."""

    reader: Reader
    statistic: Statistic

    def run(self, leaf: Leaf, *values: Any) -> Tally:
        """Value of one leaf."""
        try:
            return self._sum(leaf, values)
        except MemoryError as error:  # NumPy's says how much, not for what
            box = ", ".join(f"{lo}:{hi}" for lo, hi in leaf.box)
            raise PlanError(
                f"The box [{box}], rows from {leaf.start} on, found no memory: {error}. A plan "
                "counts what this program holds, not what others do. Leave more memory free, or "
                "use fewer threads, a smaller n_components or smaller chunks."
            ) from error

    def _sum(self, leaf: Leaf, values: tuple[Any, ...]) -> Tally:
        with single_threaded_blas():
            sink = self.statistic.start()
            seen = 0
            if all(hi > lo for lo, hi in leaf.box):
                for rows in self.reader.read(leaf.box, *values):
                    places = self._places(leaf, rows)
                    sink.add(rows, places if rows.keep is None else places[rows.keep])
                    seen += rows.n_slab
            return Tally(sink.result(), seen)

    def _places(self, leaf: Leaf, rows: Rows) -> Array:
        """Places of a slab: in the order of the leaves, or of the grid if the statistic says so."""
        inside, shape = np.arange(rows.n_slab) + rows.start, getattr(self.statistic, "grid", ())
        if not shape:
            return inside + leaf.start
        found = np.unravel_index(inside, tuple(hi - lo for lo, hi in leaf.box))
        along = tuple(at + lo for at, (lo, _) in zip(found, leaf.box, strict=True))
        return np.asarray(np.ravel_multi_index(along, shape))


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Moments by label; adding merges by label."""

    by_label: Mapping[Any, Moments]

    def __add__(self, other: Self) -> Self:
        merged = dict(self.by_label)
        for label, moments in other.by_label.items():
            merged[label] = merged[label] + moments if label in merged else moments
        return type(self)(merged)

    def __sizeof__(self) -> int:
        return sum(m.__sizeof__() for m in self.by_label.values()) + 64


@dataclass(frozen=True, slots=True, eq=False)
class MomentStatistic:
    """Moments of the rows by label, by fold, or all under the label None.

    Parameters
    ----------
    features, row, order, sums, sample_rows, n_places
        As in :class:`~rff_stream.accumulate.Accumulator`.
    grouped : bool
        By the labels that the rows carry.
    folds : int
        By whole runs of rows: fold k holds the places from k/folds to (k + 1)/folds of the
        data. A leaf meets one or two folds, one after the other, so they cost no memory.
    rounds : int
        Groups expected: see :class:`~rff_stream.accumulate.Accumulator`.
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


def fold_runs(places: Array, n_places: int, folds: int) -> Iterator[tuple[int, int, int]]:
    """(fold, lo, hi) of runs of rows in one fold: fold k holds the k-th run of all places."""
    fold = np.minimum(places * folds // n_places, folds - 1)
    cuts = np.r_[0, np.flatnonzero(np.diff(fold)) + 1, len(fold)]
    for lo, hi in pairwise(cuts.tolist()):
        if hi > lo:
            yield int(fold[lo]), lo, hi


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


@dataclass(frozen=True, slots=True)
class PilotStatistic:
    """Up to ``size`` valid rows [x, y, w] of every box, drawn by the hash of their place.

    With ``labelled`` rows, y is the place of the row's label among those found.
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
        found = [p._over(labels) for p in (self, other) if p.rows.size]
        return type(self)(np.concatenate(found), labels) if found else self

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
        found = np.column_stack([rows.x, y, w]).astype(np.float64)
        keys = hash_places(places, self._statistic.seed)
        sample = RowSample.of(self._statistic.size, keys, found)
        self._sample = sample if self._sample is None else self._sample + sample

    def _codes(self, labels: Array | None) -> Array:
        """Places (m,) of the rows' labels among those found."""
        assert labels is not None
        found, inverse = np.unique(labels, return_inverse=True)
        at = [self._labels.setdefault(label, len(self._labels)) for label in found.tolist()]
        return np.asarray(at)[inverse]

    def result(self) -> PilotRows:
        rows = np.empty((0, 0)) if self._sample is None else self._sample.rows
        return PilotRows(rows, tuple(self._labels))
