"""Moments of classes that are found in the pass: one-hot targets that grow with the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.features.base import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import Accumulator
from rff_stream.moments.classes import ClassMoments, class_row, one_hot, sorted_labels
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.groups import Groups, fold_runs
from rff_stream.statistics.protocol import Sink

__all__ = ["ClassStatistic", "codes_of", "weighted_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassStatistic:
    """Class moments by (fold, label): whole runs of rows, and labels kept apart if asked.

    Parameters
    ----------
    features : FeatureMap
    row : AugmentedRow
        Without targets.
    sums, sample_rows, n_places
        As in :class:`~rff_stream.moments.accumulate.Accumulator`.
    labels : tuple
        Labels known from the pilot; others are added where they appear.
    class_weight : mapping of label to float
        Row weights are multiplied by it; 1 where absent, and 0 leaves rows out.
    folds : int
        Whole runs of rows kept apart under (fold, ·), 0 for none: (None, ·).
    apart : bool
        Every label has sums of its own under (·, label), in place of (·, None): their weights
        can be chosen after the read.
    """

    features: FeatureMap
    row: AugmentedRow
    sums: Literal["float32", "float64"]
    sample_rows: int
    n_places: int
    labels: tuple[Any, ...] = ()
    class_weight: Mapping[Any, float] | None = None
    folds: int = 0
    apart: bool = False

    def start(self) -> Sink:
        return _ClassSink(self)


class _ClassSink:
    def __init__(self, statistic: ClassStatistic) -> None:
        self._of = statistic
        self._open: dict[tuple[Any, Any], _Growing] = {}

    def add(self, rows: Rows, places: Array) -> None:
        rows, places = weighted_rows(rows, places, self._of.class_weight)
        for fold, lo, hi in self._runs(places):
            for label, chosen in self._parts(_labels(rows), np.arange(lo, hi)):
                self._group(fold, label).add(rows, chosen, places)

    def _parts(self, labels: Array, run: Array) -> Iterator[tuple[Any, Array]]:
        """Rows of a run: all under None, or those of each label."""
        if not self._of.apart:
            yield None, run
            return
        found, inverse = np.unique(labels[run], return_inverse=True)
        for code, label in enumerate(found.tolist()):
            yield label, run[inverse == code]

    def _runs(self, places: Array) -> Iterator[tuple[int | None, int, int]]:
        if self._of.folds:
            yield from fold_runs(places, self._of.n_places, self._of.folds)
        elif len(places):
            yield None, 0, len(places)

    def _group(self, fold: int | None, label: Any) -> _Growing:
        key = (fold, label)
        if key not in self._open:
            known = self._of.labels if label is None else (label,)
            self._open[key] = _Growing(self._of, known)
        return self._open[key]

    def result(self) -> Groups:
        found: dict[Any, Any] = {key: part.result() for key, part in self._open.items()}
        return Groups(found)


class _Growing:
    """One accumulator whose one-hot targets grow: a new label closes it and opens a wider one."""

    def __init__(self, statistic: ClassStatistic, labels: tuple[Any, ...]) -> None:
        self._of = statistic
        self._done: ClassMoments | None = None
        self._turn_to(labels)

    def add(self, rows: Rows, chosen: Array, places: Array) -> None:
        """Take some of the rows."""
        found, codes = np.unique(_labels(rows)[chosen], return_inverse=True)
        names = found.tolist()
        if not set(names) <= set(self._labels):
            self._done = self.result()
            self._turn_to(sorted_labels([*self._labels, *names]))
        at = np.array([self._labels.index(name) for name in names])
        y = one_hot(at[codes], len(self._labels))
        w = None if rows.w is None else rows.w[chosen]
        self._open.add(rows.x[chosen], y, w, places[chosen])

    def _turn_to(self, labels: tuple[Any, ...]) -> None:
        of = self._of
        self._labels = labels
        self._open = Accumulator(
            of.features,
            class_row(of.row, labels),
            sums=of.sums,
            sample_rows=of.sample_rows,
            n_places=of.n_places,
        )

    def result(self) -> ClassMoments:
        found = ClassMoments(self._labels, self._open.result())
        return found if self._done is None else self._done + found


def weighted_rows(
    rows: Rows, places: Array, class_weight: Mapping[Any, float] | None
) -> tuple[Rows, Array]:
    """Rows with the weights of their classes, without those of weight 0."""
    if not class_weight:
        return rows, places
    labels, codes = np.unique(_labels(rows), return_inverse=True)
    factors = np.array([float(class_weight.get(label, 1.0)) for label in labels.tolist()])
    w = factors[codes] if rows.w is None else rows.w * factors[codes]
    keep: Any = w > 0
    if keep.all():
        keep = slice(None)  # no copies
    found = Rows(rows.x[keep], rows.y[keep], w[keep], None, rows.start, _labels(rows)[keep])
    return found, places[keep]


def codes_of(rows: Rows, labels: tuple[Any, ...]) -> Array:
    """Class numbers (m,) of the rows' labels; −1 for a label that is not among these."""
    found, inverse = np.unique(_labels(rows), return_inverse=True)
    known = {label: i for i, label in enumerate(labels)}
    return np.array([known.get(label, -1) for label in found.tolist()], dtype=int)[inverse]


def _labels(rows: Rows) -> Array:
    if rows.label is None:
        raise DataError("Rows carry no labels. Open the source with a y of labels.")
    return rows.label
