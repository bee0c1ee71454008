"""Which rows each of the 32 sub-sums of order-1 moments covers; addition keeps runs apart.

A sub-sum is one run of neighbouring rows. A reading is one pass over the data. During a reading,
sub-sums with the same number belong to the same run, and are added. After it, runs of different
readings are kept side by side. Only where there are more than 32, the two neighbours with the
least weight are joined: first inside a reading, then whole readings.

Sub-sums of a mean can be treated as independent: a row depends on its neighbours, and all rows of
one day depend on the state of that day. Runs of rows account for the first. Only whole readings
account for the second, and there must be enough of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError

N_PARTS = 32
"""Sub-sums that order-1 moments keep."""

FEWEST_READINGS = 6
"""Smallest number of reads from which the variance between reads can be estimated."""

UNDER_WAY = 0
"""Number of a read that has not ended."""

EMPTY, MIXED = -1, -2
"""Positions of a sub-sum without rows, and of one that has several runs."""

Labels = NDArray[np.int64]
"""(32, 2): number of the reading, and place of the run in it, of each sub-sum."""


def under_way(places: Array) -> Labels:
    """Labels of a reading that has not ended, of runs at these places (32,)."""
    return np.column_stack([np.full(N_PARTS, UNDER_WAY), places]).astype(np.int64)


def label_runs(runs: Labels | None, reading: int) -> Labels:
    """Labels after a reading has ended; those of a reading that ended before are kept.

    The number of a reading is not 0, and equal for equal data only. Where nothing is known of the
    runs (None), all sub-sums are runs of this reading.
    """
    if runs is None:
        return np.column_stack([np.full(N_PARTS, reading), np.arange(N_PARTS)]).astype(np.int64)
    labels = runs.copy()
    fresh = labels[:, 0] == UNDER_WAY
    labels[fresh, 0] = reading
    if (labels[fresh, 1] == MIXED).any():  # dealt in turn: a sub-sum's number is its place
        labels[fresh, 1] = np.flatnonzero(fresh)
    return labels


def add_runs(
    a: tuple[Float64, Labels | None], b: tuple[Float64, Labels | None], weight: int
) -> tuple[Float64, Labels | None]:
    """Sub-sums (32, P) of two moments, with their labels (32, 2); ``weight`` is the column of Σw.

    Where one of the two readings is under way, sub-sums of the same number add. Sub-sums of one
    reading and one place add, so ``a + b − b`` is ``a`` as long as no runs were joined. Otherwise
    at most 32·P additions.
    """
    (sums_a, runs_a), (sums_b, runs_b) = a, b
    if _empty(sums_b, runs_b):
        return sums_a, runs_a
    if _empty(sums_a, runs_a):
        return sums_b, runs_b
    if runs_a is None or runs_b is None:
        return sums_a + sums_b, None
    if (runs_a[:, 0] == UNDER_WAY).any() or (runs_b[:, 0] == UNDER_WAY).any():
        return sums_a + sums_b, _same_reading(runs_a, runs_b)
    sums, labels = _side_by_side(a, b)  # type: ignore[arg-type]
    kept = (labels[:, 1] != EMPTY) & (sums[:, weight] != 0)
    return _at_most(sums[kept], labels[kept], weight)


def _empty(sums: Float64, runs: Labels | None) -> bool:
    """Whether there are no rows, known without looking at the sums where that is possible."""
    if runs is not None:
        return bool((runs[:, 1] == EMPTY).all())
    return not sums.any()


def _same_reading(a: Labels, b: Labels) -> Labels:
    """Labels of sub-sums that were added number by number."""
    one = np.where(a[:, 1] == b[:, 1], a[:, 1], MIXED)
    places = np.where(a[:, 1] == EMPTY, b[:, 1], np.where(b[:, 1] == EMPTY, a[:, 1], one))
    return under_way(places)


def _side_by_side(a: tuple[Float64, Labels], b: tuple[Float64, Labels]) -> tuple[Float64, Labels]:
    """Runs of both, each once: readings as they came, runs of a reading by their place."""
    sums, labels = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    _, first, reading = np.unique(labels[:, 0], return_index=True, return_inverse=True)
    order = np.lexsort([labels[:, 1], first[reading]])
    sums, labels = sums[order], labels[order]
    starts = np.flatnonzero(np.r_[True, (labels[1:] != labels[:-1]).any(axis=1)])
    return np.add.reduceat(sums, starts, axis=0), labels[starts]


def _at_most(sums: Float64, labels: Labels, weight: int) -> tuple[Float64, Labels]:
    """The same rows in 32 sub-sums, the last ones empty where there are fewer."""
    starts = _starts(sums[:, weight], labels)
    found, known = np.zeros((N_PARTS, sums.shape[1])), under_way(np.full(N_PARTS, EMPTY))
    known[:, 0] = -1  # of no reading
    if len(sums):
        found[: len(starts)] = np.add.reduceat(sums, starts, axis=0)
        known[: len(starts)] = labels[starts]
    return found, known


def _starts(weights: Float64, labels: Labels) -> Array:
    """First of the neighbours that become one run: the two lightest, until 32 are left.

    Runs of different readings only when no reading has two: then their sum is one reading,
    named after its first.
    """
    starts, held, reading = list(range(len(weights))), list(np.abs(weights)), list(labels[:, 0])
    while len(starts) > N_PARTS:
        pairs = np.add(held[1:], held[:-1])
        inside = np.equal(reading[1:], reading[:-1])
        i = int(np.argmin(np.where(inside, pairs, np.inf) if inside.any() else pairs))
        held[i] += held.pop(i + 1)
        del starts[i + 1], reading[i + 1]
    return np.array(starts, dtype=np.intp)


class SubSums(NamedTuple):
    """Sub-sums of order-1 moments that hold rows."""

    sums: Float64
    """(K, R + 1): Σ w (z − z₀) and Σ w of each run, in the order in which runs were read."""
    reading: Array  # (K,), number, from 0, of the reading that each run is of; increasing

    @property
    def n_readings(self) -> int:
        """Readings that the runs are of."""
        return int(self.reading[-1]) + 1 if len(self.reading) else 0

    def by_reading(self) -> Float64:
        """The sums of whole readings (B, R + 1)."""
        return np.add.reduceat(self.sums, np.flatnonzero(np.diff(self.reading, prepend=-1)))

    def in_pairs(self) -> Float64:
        """The sums of neighbouring pairs; an odd last one joins the pair before it."""
        return np.add.reduceat(self.sums, np.arange(0, len(self.sums) - 1, 2), axis=0)


def held_sub_sums(
    parts: Float64 | None, runs: Labels | None, weight: int, name: str = "These moments"
) -> SubSums | None:
    """The sub-sums (32, P) that hold rows, without targets; None where there are none (order 2).

    Raises ModelError: for a difference of moments whose runs cannot be told apart any more.
    """
    if parts is None:
        return None
    weights = parts[:, weight]
    if (weights < 0).any():
        raise ModelError(
            f"{name}: a sub-sum has weight {weights.min():.3g}, because rows were subtracted "
            "whose runs had been joined with others. Add up the remaining batches instead."
        )
    held = weights > 0
    labels = np.zeros(len(weights), np.int64) if runs is None else runs[:, 0]
    reading = np.cumsum(np.diff(labels[held], prepend=labels[held][:1]) != 0)
    return SubSums(parts[held, : weight + 1], reading)
