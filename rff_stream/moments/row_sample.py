"""A mergeable uniform sample: the k rows whose positions have the smallest hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64, column_range
from rff_stream.hashes import Keys, hash_rows


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """The ``size`` rows of smallest hash; merging keeps the smallest of both."""

    size: int  # k, the most rows kept; 0 keeps none
    keys: Keys  # (m,) uint64: hashes of the rows and their places, increasing; m ≤ k
    rows: Float64  # (m, d + T + 1): [x, y, w] of each row, in input units
    reach: Float64 | None = None
    """(2, d), smallest and largest value of each input over all rows, sampled or not; it does
    not shrink when rows are removed. None if some rows come from an older store that did not
    keep it."""

    observed: Float64 | None = None
    """(m, d + T), inputs and targets as they were, where those in ``rows`` are less a line. They
    tell whether equal rows are copies: of whole numbers a line leaves no equal values."""

    @classmethod
    def empty(cls, size: int, width: int) -> Self:
        """No rows of ``width`` columns."""
        return cls(size, np.empty(0, np.uint64), np.empty((0, width)))

    @classmethod
    def of(cls, size: int, keys: Keys, rows: Float64, reach: Float64 | None = None) -> Self:
        """The sample of these rows, which may be more than ``size``."""
        order = np.argsort(keys, kind="stable")[:size]
        return cls(size, keys[order], rows[order], reach)

    def with_rows(self, places: Array, x: Array, y: Array, w: Array | None) -> Self:
        """The sample of these rows too: x (m, d), y (m, T) and w (m,) that stood at ``places``."""
        keys = hash_rows(places, x, y)
        chosen = self.chosen(keys)
        weight = np.ones(len(chosen)) if w is None else w[chosen]
        rows = np.column_stack([x[chosen], y[chosen], weight]).astype(np.float64)
        return self + self.of(self.size, keys[chosen], rows, reach_of(x))

    def chosen(self, keys: Keys) -> Array:
        """Places among rows of these keys of those that may enter: at most ``size``."""
        full = 0 < len(self.keys) == self.size
        found = np.flatnonzero(keys < self.keys[-1]) if full else np.arange(len(keys))
        if len(found) > self.size:
            found = found[np.argpartition(keys[found], self.size)[: self.size]]
        return found

    def __add__(self, other: Self) -> Self:
        size = max(self.size, other.size)
        if not len(other.keys) and other.reach is None:
            return replace(self, size=size)
        keys = np.concatenate([self.keys, other.keys])
        return self.of(size, keys, np.concatenate([self.rows, other.rows]), self._joined(other))

    def _joined(self, other: Self) -> Float64 | None:
        """The reach of both; unknown where that of one with rows is."""
        if self.reach is None or other.reach is None:
            return (
                self.reach if not len(other.keys) else other.reach if not len(self.keys) else None
            )
        low = np.minimum(self.reach[0], other.reach[0])
        return np.stack([low, np.maximum(self.reach[1], other.reach[1])])

    def __sub__(self, other: Self) -> Self:
        first, last = (np.searchsorted(other.keys, self.keys, side) for side in ("left", "right"))
        rank = np.arange(len(self.keys)) - np.searchsorted(self.keys, self.keys)
        keep = rank >= last - first  # equal rows go one for one
        observed = None if self.observed is None else self.observed[keep]
        return replace(self, keys=self.keys[keep], rows=self.rows[keep], observed=observed)

    def share_in(self, other: Self) -> tuple[float, int]:
        """Share of these rows that stand in another sample, too, and of how many it is.

        Of those that the other has if its rows do.
        """
        own = self.keys[self.is_told_by(other)]
        return (float(np.isin(own, other.keys).mean()), len(own)) if len(own) else (0.0, 0)

    def is_told_by(self, other: Self) -> Array:
        """Which rows (m,) have keys so small that another sample has them if its rows do."""
        if len(other.keys) < other.size or not other.size:
            return np.ones(len(self.keys), bool)
        return np.asarray(self.keys <= other.keys[-1])

    def scale(self, factor: float) -> Self:
        """Weights of the rows times ``factor``."""
        rows = self.rows.copy()
        rows[:, -1] *= factor
        return replace(self, rows=rows)

    def as_observed(self) -> Float64:
        """Inputs and targets (m, d + T) of the rows as they were observed."""
        return self.rows[:, :-1] if self.observed is None else self.observed

    def columns(self, keep: Array) -> Self:
        """Some of the columns of [x, y, w]."""
        return replace(self, rows=self.rows[:, keep])

    @property
    def nbytes(self) -> int:
        """Bytes of keys and rows."""
        return int(self.keys.nbytes + self.rows.nbytes)


def reach_of(x: Array) -> Float64 | None:
    """Least and greatest value (2, d) of each column of rows (m, d); None where there are none."""
    if not len(x):
        return None
    return column_range(x).astype(np.float64)


def with_samples(moments: Any, change: Callable[[RowSample], RowSample]) -> Any:
    """The same sums with another row sample, or those of several maps."""
    members = getattr(moments, "members", None)
    if members is not None:
        each = (None if own is None else with_samples(own, change) for own in members)
        return replace(moments, members=tuple(each))
    return replace(moments, sample=change(moments.sample))
