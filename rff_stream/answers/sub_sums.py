"""Sub-sums of a mean that can be treated as independent: whole batches, or runs of rows.

A row depends on its neighbours, and all rows of one day depend on the state of that day. Runs
of rows account for the first. Only whole batches ("readings") account for the second, and there
must be enough of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.moments import Moments

FEWEST_READINGS = 6
"""Readings from which their spread says how much one differs from another."""


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


def held_sub_sums(moments: Moments, name: str = "These moments") -> SubSums | None:
    """The sub-sums that hold rows; None where there are none (order 2).

    Raises ModelError: for a difference of moments whose runs cannot be told apart any more.
    """
    if moments.parts is None:
        return None
    r = moments.row.n_features
    weights = moments.parts[:, r]
    if (weights < 0).any():
        raise ModelError(
            f"{name}: a sub-sum has weight {weights.min():.3g}, because rows were subtracted "
            "whose runs had been joined with others. Add up the remaining batches instead."
        )
    held = weights > 0
    runs = moments.runs
    labels = np.zeros(len(weights), np.int64) if runs is None else runs[:, 0]
    reading = np.cumsum(np.diff(labels[held], prepend=labels[held][:1]) != 0)
    return SubSums(moments.parts[held, : r + 1], reading)
