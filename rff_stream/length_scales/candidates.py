"""One candidate of a search: a kernel on rows xA in cells, and its errors at left-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, stdtrit

from rff_stream._array import Float64
from rff_stream.kernels import ExactKernel
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.window_evidence import MetricFit, mixes
from rff_stream.length_scales.windows import TINY


@dataclass(frozen=True, slots=True, eq=False)
class FoldFits:
    """How directions are judged that the same rows gave: each fold by a fit to the other rows."""

    fits: tuple[MetricFit, ...]  # of the folds; none where the budget had no room for them
    factor: float  # of all errors: fits without a fold have fewer rows

    def stretched(self, factor: float) -> FoldFits:
        """The same with length-scales so many times as long."""
        return replace(self, fits=tuple(each.stretched(factor) for each in self.fits))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A map that competes, and its errors at the rows that judge."""

    name: str
    kernel: ExactKernel
    matrix: Float64
    alpha: float
    shape: CellShape
    errors: Float64  # (m, T)
    seconds: float
    is_learnt: bool = False  # whether its matrix was learnt as a metric
    has_one_scale: bool = False  # whether all inputs have one length-scale, in the search's units
    fold_fits: FoldFits | None = None

    @property
    def squares(self) -> Float64:
        """(m,), mean over targets; infinite where a fit failed."""
        found = (self.errors**2).mean(axis=1)
        return np.where(np.isfinite(found), found, np.inf)

    @property
    def error(self) -> float:
        return float(np.sqrt(self.squares.mean()))

    @property
    def n_numbers(self) -> int:
        """How many numbers its metric has: d if it is diagonal."""
        return numbers_of(*self.matrix.shape) if mixes(self.matrix) else len(self.matrix)

    @property
    def n_free(self) -> int:
        """How many of them are free: 1 where all inputs have one length-scale."""
        return 1 if self.has_one_scale else self.n_numbers

    @property
    def fit(self) -> MetricFit:
        """Where a search goes on."""
        return MetricFit(self.kernel, self.matrix, self.alpha, np.nan)

    @property
    def map_key(self) -> tuple[ExactKernel, int]:
        """The same of candidates that differ in their cells alone: they share one matrix."""
        return self.kernel, id(self.matrix)

    def is_simpler(self, other: Candidate) -> bool:
        """Whether it has fewer numbers or columns, and not more of either."""
        own, theirs = ((each.n_free, each.shape.n_components) for each in (self, other))
        return own != theirs and own[0] <= theirs[0] and own[1] <= theirs[1]

    def behind(self, other: Candidate) -> tuple[float, float]:
        """Mean difference of squared errors, and its standard error; (∞, 0) where a fit failed."""
        if not np.isfinite(self.error):
            return np.inf, 0.0
        gain = self.squares - other.squares
        return float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))


def numbers_of(d: int, k: int) -> int:
    """How many numbers AAᵀ (d, d) has for A (d, k): dk − k(k − 1)/2."""
    return d * k - k * (k - 1) // 2


def factor_of_few(differences: Float64) -> float:
    """How much wider Student's t is than a normal deviate, for the few rows that tell.

    They are (Σd²)²/Σd⁴ of d (m,), a third of all for normal d; the quantiles at one standard
    deviation are compared, for so many rows less one and for at least one degree of freedom.

    References
    ----------
    Kish 1965 (effective number of rows); Student 1908.
    """
    squares = differences**2
    tell = squares.sum() ** 2 / max(float((squares**2).sum()), TINY)
    return float(stdtrit(max(tell - 1, 1.0), ndtr(1.0)))
