"""Targets that are far from those of the rows around them, and that no row around tells.

Evidence takes errors for normal ones. Where a few rows have most of the squared error it finds
length-scales so short that f goes through them: of twelve fits to data with 1 or 3 % outliers three
had no noise at all, and errors of f of more than its deviation. So such rows weigh less while a
kernel is sought, as much as at three deviations, and larger errors than six of them count as six
when maps are compared. What is summed and solved after the search has all rows as they are, with a
penalty of at least the one of least left-out error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.duplicate_rows import nearest
from rff_stream.length_scales.budget import PRODUCT_SECONDS
from rff_stream.length_scales.window_evidence import RowWindow

FEWEST, NEIGHBOURS, COMPARED = 40, 10, 2000
"""Rows that say what is usual, rows around whose median target a row is compared with, and rows
that these are chosen of."""

FAR, WEIGHED_AS = 6.0, 3.0
"""Standard deviations of the usual difference, by its median, from which a row is far: none of 10⁸
normal ones. And at which it has its whole weight."""

MOST, LEAST_SHARE = 0.05, 0.5
"""Largest share of the rows that are far, and least share of the squared differences that they
have. Of 69 tables, data of this project and of PMLB, five have so few with so much."""

ALIKE = 0.75
"""Share of the squared differences of far rows, from the rows around, that a fit misses where each
is left out: outliers between so much and 1/so much (twelve draws, .84 to 1.03). Of far rows of
parabolas, products, exponentials, lognormal noise, baja_bathymetry and a table of PMLB .01 to .64:
they are what is to be learnt. A fit that misses more is a poor one, as where an input has one far
value (1.4 to 5)."""

USUAL = 1.4826
"""A normal standard deviation over the median size."""


@dataclass(frozen=True, slots=True, eq=False)
class Outliers:
    """How far rows are from those around them."""

    apart: Float64  # (m, T): targets less the median of those around
    bound: Float64  # (T,): size of what is far; ∞ for a target without outliers

    @classmethod
    def of(cls, rows: RowWindow, unit: Float64) -> Outliers | None:
        """Of rows whose inputs are in units (d,); None where few far ones do not have most."""
        if len(rows.x) < FEWEST:
            return None
        some = np.random.default_rng(0).permutation(len(rows.x))[:COMPARED]
        around = rows.y[nearest(rows.x / unit, NEIGHBOURS, some)]
        apart = rows.y - np.median(around, axis=1)
        bound = FAR * USUAL * np.median(abs(apart), axis=0)
        far = (abs(apart) > bound) & (bound > 0)
        squares = apart**2
        heavy = (squares * far).sum(axis=0) > LEAST_SHARE * squares.sum(axis=0)
        heavy &= far.mean(axis=0) <= MOST
        return cls(apart, np.where(heavy, bound, np.inf)) if heavy.any() else None

    def weighed(self, rows: RowWindow) -> RowWindow:
        """The rows, the far ones with less weight."""
        size = abs(self.apart)
        share = np.ones_like(size)
        np.divide(WEIGHED_AS / FAR * self.bound, size, out=share, where=size > self.bound)
        return replace(rows, w=rows.w * share.min(axis=1) ** 2)

    def part(self, some: Array) -> Outliers:
        """Those of some of the rows, by their places."""
        return Outliers(self.apart[some], self.bound)

    def are_as_far_from(self, left: Float64) -> bool:
        """Whether left-out errors (m, T) of a fit are as large as differences from rows around.

        Not where a kernel has no Cholesky factor: they are NaN.
        """
        far = abs(self.apart) > self.bound
        missed, most = float((left[far] ** 2).sum()), float((self.apart[far] ** 2).sum())
        return ALIKE * most < missed < most / ALIKE


def seconds_of_outliers(n_rows: int, d: int) -> float:
    """What they take in CPU: distances, and the least of each row, as dear as 60 products each."""
    return PRODUCT_SECONDS * n_rows * min(n_rows, COMPARED) * (d + 60)
