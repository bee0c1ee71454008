"""Functions of rows behind the means of levels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import RowFunction, Slopes, for_rows
from rff_stream.level_means.means import LevelMeans


@dataclass(frozen=True, slots=True, eq=False)
class LevelFunction:
    """x ↦ g of x with means in the place of levels."""

    function: RowFunction
    means: LevelMeans

    @property
    def width(self) -> int:
        """That of g."""
        return self.function.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        return self.function(self.means(x))

    def for_rows(self, count: int) -> LevelFunction:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, function=for_rows(self.function, count))


@dataclass(frozen=True, slots=True, eq=False)
class LevelSlopes:
    """x ↦ the slopes of g; 0 along a level, which is a step."""

    slopes: Slopes
    means: LevelMeans

    def __call__(self, x: Array) -> Float64:
        """(n, d, T) of rows (n, d)."""
        found = np.array(self.slopes(self.means(x)))
        found[:, self.means.places] = 0.0
        return found
