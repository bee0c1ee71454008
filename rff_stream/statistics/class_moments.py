"""Moments of classes that the pass meets: one-hot targets that grow with the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.features.base import FeatureMap
from rff_stream.features.cells import LocalFeatures
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.accumulate_cells import CellAccumulator
from rff_stream.moments.class_moments import ClassMoments, class_row, one_hot, sorted_labels
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.cells import CellStatistic
from rff_stream.statistics.class_weights import labels_of
from rff_stream.statistics.packing import Packed, pack_moments, unpack_moments
from rff_stream.statistics.protocol import Sink

__all__ = ["ClassStatistic"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassStatistic:
    """:class:`~rff_stream.moments.class_moments.ClassMoments` of rows with class labels.

    Parameters
    ----------
    features : FeatureMap
    row : AugmentedRow
        Without targets.
    sums, sample_rows, n_places
        As in :class:`~rff_stream.moments.accumulate.Accumulator`.
    labels : tuple
        Labels known from the pilot; others are added where they appear.
    """

    features: FeatureMap
    row: AugmentedRow
    sums: Literal["float32", "float64"]
    sample_rows: int
    n_places: int
    labels: tuple[Any, ...] = ()

    def start(self) -> Sink:
        return _ClassSink(self)

    def pack(self, value: ClassMoments) -> Packed:
        if isinstance(self.features, LocalFeatures):
            return Packed(list(value.labels), self._of_cells(()).pack(value.moments).arrays)
        return Packed(list(value.labels), pack_moments(value.moments).arrays)

    def unpack(self, packed: Packed) -> ClassMoments:
        labels = tuple(packed.plain)
        if isinstance(self.features, LocalFeatures):
            return ClassMoments(labels, self._of_cells(labels).unpack(packed))
        return ClassMoments(labels, unpack_moments(packed, class_row(self.row, labels)))

    def _of_cells(self, labels: tuple[Any, ...]) -> CellStatistic:
        """What sums of cells are, with the one-hot classes of these labels."""
        features: Any = self.features
        return CellStatistic(features, class_row(self.row, labels), self.sums, self.sample_rows)


class _ClassSink:
    """An accumulator whose one-hot targets grow: a new label closes it and opens a wider one."""

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
            self._open = self._accumulator()
        at = np.array([self._labels.index(name) for name in names], dtype=int)
        self._open.add(rows.x, one_hot(at[codes], len(self._labels)), rows.w, places)

    def _accumulator(self) -> Any:
        of = self._of
        if isinstance(of.features, LocalFeatures):
            row = class_row(of.row, self._labels)
            return CellAccumulator(of.features, row, sums=of.sums, sample_rows=of.sample_rows)
        return Accumulator(
            of.features,
            class_row(of.row, self._labels),
            sums=of.sums,
            sample_rows=of.sample_rows,
            n_places=of.n_places,
        )

    def result(self) -> ClassMoments:
        accumulator = self._accumulator() if self._open is None else self._open
        last = ClassMoments(self._labels, accumulator.result())
        return last if self._closed is None else self._closed + last
