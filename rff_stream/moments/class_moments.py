"""Moments whose targets are one-hot classes: they can be added when their labels differ.

A class that first appears in the last row of the last leaf is a column of zeros everywhere
before, so nothing is read twice for it and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.moments import AugmentedRow, row_start
from rff_stream.moments.few_rows import under_row
from rff_stream.moments.row_sample import RowSample


@dataclass(frozen=True, slots=True, eq=False)
class ClassMoments:
    """Moments of [z − z₀, 1, y] with y (C,) the one-hot class of a row; they add.

    ZᵀWY is then a sum of feature rows per label, and ΣwY the weight of each class.
    """

    labels: tuple[Any, ...]  # of the C classes met so far, sorted
    moments: Any  # of order 2, T = C targets about the origin 0

    def __add__(self, other: Self) -> Self:
        labels = sorted_labels([*self.labels, *other.labels])
        moments = self.over(labels).moments + other.over(labels).moments
        return type(self)(labels, moments)

    def __sizeof__(self) -> int:
        return int(self.moments.__sizeof__()) + 64 * len(self.labels)

    def over(self, labels: tuple[Any, ...]) -> Self:
        """The same over more labels: columns of zeros for those not met, 1 in place of True."""
        if labels == self.labels and [*map(type, labels)] == [*map(type, self.labels)]:
            return self
        places = {label: i for i, label in enumerate(labels)}
        at = np.array([places[label] for label in self.labels], dtype=int)
        return type(self)(labels, _spread_targets(self.moments, labels, at))

    def renamed(self, labels: tuple[Any, ...]) -> Self:
        """The same classes under other labels, in the same order."""
        return type(self)(labels, under_row(self.moments, class_row(self.moments.row, labels)))

    def scale(self, factor: float) -> Self:
        """Every weight times ``factor`` > 0."""
        return replace(self, moments=self.moments.scale(factor))

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.moments.n)

    @property
    def sample(self) -> RowSample:
        """A mergeable uniform sample of rows."""
        sample: RowSample = self.moments.sample
        return sample

    @property
    def weight(self) -> float:
        """Σw."""
        return float(self.moments.weight)

    @property
    def squared_weight(self) -> float:
        """Σw²."""
        return float(self.moments.squared_weight)

    @property
    def row(self) -> AugmentedRow:
        """What the numbers mean."""
        row: AugmentedRow = self.moments.row
        return row

    @property
    def weights(self) -> Float64:
        """Σw of each class (C,): the diagonal of YᵀWY, exact where weights are whole."""
        return np.asarray(self.moments.target_squares())

    def class_means(self, which: Array) -> Float64:
        """Mean feature rows (c, R) of some classes, by their numbers."""
        row, width = self.moments.row, self.moments.row.width
        if not len(which):
            return np.empty((0, row.n_features))
        rows = np.arange(row.n_features)[:, None]
        columns = row.n_features + 1 + np.asarray(which, int)
        sums = self.moments.sums[row_start(rows, width) + columns - rows].T  # (c, R)
        return np.asarray(row.feature_origin + sums / self.weights[which][:, None])


def class_row(row: AugmentedRow, labels: Iterable[Any]) -> AugmentedRow:
    """A row whose targets are the one-hot classes of these labels."""
    names = tuple(str(label) for label in labels)
    units = row.units[: len(row.inputs)]
    return replace(
        row,
        target_origin=np.zeros(len(names)),
        target_scale=np.ones(len(names)),
        targets=names,
        units=units + ("",) * len(names) if units else (),
    )


def one_hot(codes: Array, n_classes: int) -> Float64:
    """Y (m, C) of class numbers (m,)."""
    found = np.zeros((len(codes), n_classes))
    found[np.arange(len(codes)), codes] = 1.0
    return found


def sorted_labels(labels: Iterable[Any]) -> tuple[Any, ...]:
    """Labels in order, each once; refuses kinds that have no order between them.

    Raises DataError: for labels of several kinds, numbers and strings say.
    """
    found = list(dict.fromkeys(labels))
    try:
        return tuple(sorted(found))
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in found}))
        raise DataError(
            f"The labels are of several kinds ({kinds}). The classes of one target are all "
            "numbers or all strings. Make them so."
        ) from error


def _spread_targets(moments: Any, labels: tuple[Any, ...], at: Array) -> Any:
    """Moments whose target i is now target at[i] of a longer row; the others are zero."""
    old, row = moments.row, class_row(moments.row, labels)
    first = old.n_features + 1
    return moments.spread(row, np.r_[0:first, first + at], _spread_sample(moments, row, at))


def _spread_sample(moments: Any, row: AugmentedRow, at: Array) -> RowSample:
    """Sampled rows [x, y, w] with y over the longer row's classes."""
    sample: RowSample = moments.sample
    rows, d = sample.rows, len(row.inputs)
    found = np.zeros((len(rows), d + row.n_targets + 1))
    found[:, :d], found[:, -1] = rows[:, :d], rows[:, -1]
    found[:, d + at] = rows[:, d:-1]
    return replace(sample, rows=found)
