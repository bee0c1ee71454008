"""What one task does: read a box, turn it into rows, give the rows to a statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.accumulate import Accumulator
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
        with single_threaded_blas():
            sink = self.statistic.start()
            seen = 0
            if all(hi > lo for lo, hi in leaf.box):
                for rows in self.reader.read(leaf.box, *values):
                    places = np.arange(rows.n_slab) + (leaf.start + rows.start)
                    sink.add(rows, places if rows.keep is None else places[rows.keep])
                    seen += rows.n_slab
            return Tally(sink.result(), seen)


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
    """Moments of the rows, per label if ``grouped``."""

    features: FeatureMap
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    grouped: bool = False

    def start(self) -> Sink:
        return _GroupedSink(self) if self.grouped else _MomentSink(self)

    def accumulator(self) -> Accumulator:
        """An empty accumulator of this description."""
        return Accumulator(
            self.features,
            self.row,
            order=self.order,
            sums=self.sums,
            sample_rows=self.sample_rows,
            n_places=self.n_places,
        )


class _MomentSink:
    def __init__(self, statistic: MomentStatistic) -> None:
        self._accumulator = statistic.accumulator()

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> Moments:
        return self._accumulator.result()


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
    """Up to ``size`` valid rows [x, y, w] of every box, drawn by the hash of their place."""

    size: int
    seed: int

    def start(self) -> Sink:
        return _PilotSink(self)


@dataclass(frozen=True, slots=True, eq=False)
class PilotRows:
    """Rows [x, y, w]; adding puts them one under the other."""

    rows: Float64

    def __add__(self, other: Self) -> Self:
        found = [p.rows for p in (self, other) if p.rows.size]
        return type(self)(np.concatenate(found)) if found else self

    def __sizeof__(self) -> int:
        return int(self.rows.nbytes) + 64


class _PilotSink:
    def __init__(self, statistic: PilotStatistic) -> None:
        self._statistic = statistic
        self._sample: RowSample | None = None

    def add(self, rows: Rows, places: Array) -> None:
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        found = np.column_stack([rows.x, rows.y, w]).astype(np.float64)
        keys = hash_places(places, self._statistic.seed)
        sample = RowSample.of(self._statistic.size, keys, found)
        self._sample = sample if self._sample is None else self._sample + sample

    def result(self) -> PilotRows:
        return PilotRows(np.empty((0, 0)) if self._sample is None else self._sample.rows)
