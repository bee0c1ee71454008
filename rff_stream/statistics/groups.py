"""Values by label, and rows by fold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.moments import Moments

__all__ = ["Groups", "fold_runs"]


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


def fold_runs(places: Array, n_places: int, folds: int) -> Iterator[tuple[int, int, int]]:
    """(fold, lo, hi) of runs of rows in one fold: fold k holds the k-th run of all places."""
    fold = np.minimum(places * folds // n_places, folds - 1)
    cuts = np.r_[0, np.flatnonzero(np.diff(fold)) + 1, len(fold)]
    for lo, hi in pairwise(cuts.tolist()):
        if hi > lo:
            yield int(fold[lo]), lo, hi
