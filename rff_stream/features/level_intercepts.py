"""A column for each level of a category that has many: random intercepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.base import FeatureDtype, check_dtype, frozen
from rff_stream.features.composed import ByColumns
from rff_stream.features.encodings import Encoding
from rff_stream.hashes import hash_places

MOST_LEVELS = 4096
"""Most levels with a column of their own: the most frequent ones of the pilot."""

FEWEST_SPARE, MOST_SPARE, SPARE = 64, 1024, 4.0
"""Columns for levels that the pilot did not see: this many times their expected number, within
bounds. Two of m such levels share one of B columns with probability about m/B."""


@dataclass(frozen=True, eq=False, repr=False)
class LevelIntercepts(Encoding):
    """1 in the column of a row's level, 0 elsewhere; new levels have columns by their hash.

    A linear model of these columns with prior variance τ² is a random intercept: the coefficient
    of a level is the mean of its residuals times n/(n + σ²/τ²), 0 for a level without rows.

    Parameters
    ----------
    codes : (L,) float64
        Levels with a column of their own, as numbers, increasing.
    n_spare : int
        Columns of all other levels.
    variance : float
        τ²/σ_f², the prior variance of an intercept.
    dtype : {"float32", "float64"}

    Raises
    ------
    ValueError
        If codes do not increase, or there is no spare column or no positive variance.
    """

    codes: Float64
    n_spare: int
    variance: float
    dtype: FeatureDtype = "float32"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        codes = frozen("codes", self.codes, (np.size(self.codes),))
        if not (np.diff(codes) > 0).all():
            raise ValueError(f"codes={codes} but they must be increasing, each level once.")
        if not (self.n_spare >= 1 and 0 < self.variance < np.inf):
            raise ValueError(
                f"n_spare={self.n_spare} and variance={self.variance} but there is at least one "
                "spare column, and the variance of an intercept is positive."
            )
        object.__setattr__(self, "codes", codes)

    @classmethod
    def of_rows(cls, codes: Array, variance: float, dtype: FeatureDtype = "float32") -> Self:
        """Columns for the levels of pilot rows (m,), and for those that it is likely to lack.

        Chao's estimate of the levels that m rows lack: f₁(f₁ − 1)/(2(f₂ + 1)), of the numbers of
        levels that occur once and twice.
        """
        counts = Counter(codes.tolist())
        often = Counter(counts.values())
        lacking = often[1] * (often[1] - 1) / (2 * (often[2] + 1))
        known = sorted(code for code, _ in counts.most_common(MOST_LEVELS))
        spare = int(np.clip(SPARE * (lacking + len(counts) - len(known)), FEWEST_SPARE, MOST_SPARE))
        return cls(np.array(known), spare, float(variance), dtype)

    @property
    def n_components(self) -> int:
        return len(self.codes) + self.n_spare

    def prior(self, n_components: int | None = None) -> Float64:
        """τ²/σ_f² for each column."""
        return super().prior(n_components) * self.variance

    def _encode_slopes(self, x: Float64) -> Float64:
        return np.zeros((len(x), self.n_components, 1))  # steps

    def _map_batch(self, x: Array, Z: Array) -> None:
        value = np.asarray(x, np.float64)[:, 0]
        missing = np.isnan(value)
        place = np.minimum(np.searchsorted(self.codes, value), max(len(self.codes) - 1, 0))
        own = self.codes[place] == value if len(self.codes) else np.zeros(len(x), bool)
        hashed = hash_places(np.where(missing, 0.0, value).astype(np.int64))
        spare = len(self.codes) + (hashed % np.uint64(self.n_spare)).astype(np.int64)
        Z[...] = 0
        Z[np.arange(len(x)), np.where(own, place, spare)] = 1
        Z[missing] = np.nan


def intercepts_in(features: Any) -> Iterator[tuple[int, int, LevelIntercepts]]:
    """Place of the input, first column and map of each column of levels that a map has."""
    first = 0
    if not isinstance(features, ByColumns):
        return
    for part, own in zip(features.maps, features.columns, strict=True):
        if isinstance(part, LevelIntercepts):
            yield own[0], first, part
        first += part.n_components
