"""Scores of few rows by maps that were searched without them.

Scores of rows that are left out of a fit alone look better than those of new rows, where the same
rows had a say in the length-scales: of few rows the odds are then too sure. So a search is made
without each fold of the rows, and its map predicts them. Such a map knows fewer rows than the one
that answers: its scores look worse than those of new rows. The odds are the mean of what either
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from rff_stream._array import Array, Float64, json_array, json_in, nested_arrays
from rff_stream.hashes import hash_values

NAME = "fold_scores"
"""Before the names of the arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class FoldScores:
    """Scores (m, C) of rows, each by a map that did not see its fold."""

    keys: Array  # (m,): hashes of their inputs, increasing
    scores: Float64
    classes: tuple[str, ...]  # names of the C classes

    @classmethod
    def of(cls, x: Float64, scores: Float64, classes: Sequence[str]) -> Self:
        """Those of rows x (m, d)."""
        keys, first = np.unique(hash_values(x), return_index=True)
        return cls(keys, scores[first], tuple(classes))

    def at(self, x: Float64, classes: Sequence[str]) -> Float64 | None:
        """Scores of rows x (m, d) for these classes; None unless all of both are known."""
        keys = hash_values(x)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if tuple(classes) != self.classes or not (self.keys[place] == keys).all():
            return None
        return self.scores[place]

    @property
    def stored(self) -> dict[str, Array]:
        """The scores as arrays, for :meth:`from_stored`."""
        own = {
            "keys": self.keys.view(np.int64),
            "scores": self.scores,
            "classes": json_array(self.classes),
        }
        return {f"{NAME}_{name}": values for name, values in own.items()}

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array]) -> Self | None:
        """The scores among arrays; None where there are none."""
        own = nested_arrays(arrays, f"{NAME}_")
        if not own:
            return None
        return cls(own["keys"].view(np.uint64), own["scores"], tuple(json_in(own["classes"])))
