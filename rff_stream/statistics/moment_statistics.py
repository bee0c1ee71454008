"""Moments of the rows of a leaf, and of rows with class labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.contracts import Packed, Sink
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.class_moments import ClassMoments, class_row, one_hot, sorted_labels
from rff_stream.moments.few_rows import Context, FewRowsSink
from rff_stream.moments.stored import arrays_of, moments_of
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import labels_of


class MomentSink:
    """The running sum of an accumulator."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator

    def add(self, rows: Rows, places: Array) -> None:
        self._accumulator.add(rows.x, rows.y, rows.w, places)

    def result(self) -> Any:
        return self._accumulator.result()


class MomentPacking:
    """A statistic of moments of a ``row``: a checkpoint keeps them without it."""

    __slots__ = ()
    row: AugmentedRow

    def pack(self, value: Any) -> Packed:
        return pack_moments(value)

    def unpack(self, packed: Packed) -> Any:
        return unpack_moments(packed, self.row)


@dataclass(frozen=True, slots=True, eq=False)
class MomentStatistic(MomentPacking):
    """:class:`~rff_stream.moments.Moments` of rows [x, y, w]."""

    features: FeatureMap  # as in Accumulator, like all up to ``rounds``
    row: AugmentedRow
    order: int
    sums: Any
    sample_rows: int
    n_places: int
    rounds: int = 1
    context: Context | None = None
    """Rows are few: they are kept, and sums are made in this context when they are asked for."""

    def start(self) -> Sink:
        if self.context is not None:
            kept = FewRowsSink(self.features, self.row, self.sample_rows, self.context, self.sums)
            return MomentSink(kept)
        return MomentSink(
            Accumulator(
                self.features,
                self.row,
                order=self.order,
                sums=self.sums,
                sample_rows=self.sample_rows,
                n_places=self.n_places,
                rounds=self.rounds,
            )
        )

    def unpack(self, packed: Packed) -> Any:
        return unpack_moments(packed, self.row, self.order)


@dataclass(frozen=True, slots=True, eq=False)
class ClassStatistic:
    """:class:`~rff_stream.moments.class_moments.ClassMoments` of rows with class labels."""

    sums: Any  # the statistic of rows without targets: it is given the one-hot classes as targets
    labels: tuple[Any, ...] = ()  # labels known from the pilot; others are added where they appear

    def start(self) -> Sink:
        return _ClassSink(self)

    def pack(self, value: ClassMoments) -> Packed:
        return Packed(list(value.labels), self.of_classes(value.labels).pack(value.moments).arrays)

    def unpack(self, packed: Packed) -> ClassMoments:
        labels = tuple(packed.plain)
        return ClassMoments(labels, self.of_classes(labels).unpack(packed))

    def of_classes(self, labels: Sequence[Any]) -> Any:
        """The statistic whose targets are the one-hot classes of these labels."""
        return replace(self.sums, row=class_row(self.sums.row, labels))


class _ClassSink:
    """A sum whose one-hot targets grow: a new label closes it and opens a wider one."""

    def __init__(self, statistic: ClassStatistic) -> None:
        self._of = statistic
        self._closed: ClassMoments | None = None
        self._labels = statistic.labels
        self._open: Any = None

    def add(self, rows: Rows, places: Array) -> None:
        known, codes = np.unique(labels_of(rows), return_inverse=True)
        names = known.tolist()
        if not set(names) <= set(self._labels):
            if self._open is not None:
                self._closed, self._open = self.result(), None
            self._labels = sorted_labels([*self._labels, *names])
        if self._open is None:
            self._open = self._of.of_classes(self._labels).start()
        at = np.array([self._labels.index(name) for name in names], dtype=int)
        self._open.add(replace(rows, y=one_hot(at[codes], len(self._labels))), places)

    def result(self) -> ClassMoments:
        sums = self._of.of_classes(self._labels).start() if self._open is None else self._open
        last = ClassMoments(self._labels, sums.result())
        return last if self._closed is None else self._closed + last


def pack_moments(moments: Any) -> Packed:
    """Moments of any class without their row and order."""
    found = arrays_of([moments], "moments")
    return Packed(None, {n: a[0][None] if isinstance(a, list) else a for n, a in found.items()})


def unpack_moments(packed: Packed, row: AugmentedRow, order: int = 2) -> Any:
    """The moments of a row that gave this."""
    return moments_of(row, order, 1, packed.arrays, "moments")[0]
