"""Answers that are safe in gaps: by a larger penalty, by columns of a trend, or with a warning."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import Evidence, evidence, evidence_at
from rff_stream.errors import NumericalWarning
from rff_stream.features.base import FeatureMap
from rff_stream.features.composed import SideBySide
from rff_stream.features.fourier import nearly_linear
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import accumulate
from rff_stream.moments.few_rows import FewRowsSink
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.systems.spectrum import largest_eigenvalue
from rff_stream.whole.gap_test import (
    FEWEST_TESTED,
    MOST_TESTED,
    GapRows,
    gap_test,
    trend_share,
    warn_of_gaps,
)

TREND_GAIN, MOST_TREND = 0.9, 1 / 16
"""Error of a line relative to that of the mean at which nearly linear columns are used; largest
share of the columns that they may be."""


@dataclass(frozen=True, slots=True, eq=False)
class CheckRows:
    """Rows of the pilot or of the sample, kept until there is an answer to be tested."""

    x: Float64  # (m, d): at most 1,024 rows
    y: Float64  # (m, T)
    w: Float64  # (m,)
    origin: Float64  # (d,): of the inputs
    scale: Float64  # (d,)

    @classmethod
    def of(cls, pilot: Pilot) -> Self:
        """Every k-th row, so that 1,024 are left: matrices of 8 MB."""
        k = slice(None, None, -(-len(pilot.x) // MOST_TESTED))
        return cls(pilot.x[k], pilot.y[k], pilot.w[k], pilot.origin, pilot.scale)

    def with_trend(self, features: FeatureMap, weight: float) -> FeatureMap:
        """The map, or one with nearly linear columns beside it, by blocks that are held out.

        Columns of short length-scales know nothing of a trend: away from the data the posterior
        returns to the mean, with linear columns to a line. These are taken where a line is a
        tenth better than the mean in blocks, and the map is not better than the line in all sets.
        ``weight`` is Σw of all rows. One system of at most 1,024 rows: .3 CPU s.
        """
        varies = (self.x != self.x[:1]).any(axis=0)
        few = 2 * varies.sum() <= MOST_TREND * features.n_components
        if len(self.x) < FEWEST_TESTED or not few or not self._needs_trend(features, weight):
            return features
        dtype: Any = np.dtype(features.dtype).name
        return SideBySide((features, nearly_linear(self.origin, self.scale, varies, dtype)))

    def _needs_trend(self, features: FeatureMap, weight: float) -> bool:
        """Whether a line serves better in some blocks than the map at the penalty of evidence."""
        x = (self.x - self.origin) / self.scale
        if not (trend_share(x, self.y, self.w) < TREND_GAIN).any():
            return False
        pilot = Pilot(self.x, self.y, self.w)
        inputs = tuple(f"x{j}" for j in range(x.shape[1]))
        targets = tuple(f"y{j}" for j in range(self.y.shape[1]))
        row = augmented_row(features, pilot, inputs, targets)
        if len(x) < features.n_components:
            sink = FewRowsSink(features, row, 0, nullcontext)
            sink.add(self.x, self.y, self.w, np.arange(len(x)))
            moments: Moments = sink.result()
        else:
            moments = accumulate(features, self.x, self.y, self.w, row=row, sums="float64")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)  # said of the fit itself
            alpha = evidence(moments).alpha
        if not (alpha > 0).all():
            return False
        rows = GapRows(x, self.y, self.w, features(self.x), row.prior)
        tests = gap_test(rows, alpha, weight)
        return any(test.worst >= 1 for test in tests)

    def check_evidence(self, features: FeatureMap, found: Evidence) -> Evidence:
        """The evidence's answer, or one of a larger α where held-out blocks show that it explodes.

        A NumericalWarning gives both penalties and the errors in the blocks.
        """
        if not (found.alpha > 0).all():
            return found
        largest = largest_eigenvalue(found.spectrum.eigenvalues)
        system = found.spectrum.system
        alpha = self.check_alpha(
            features, system.root_prior**2, found.alpha, system.weight, largest, system.targets
        )
        return found if (alpha == found.alpha).all() else evidence_at(found.spectrum, alpha)

    def check_alpha(
        self,
        features: FeatureMap,
        prior: Array,
        alpha: Float64,
        weight: float,
        largest: float,
        targets: tuple[str, ...],
    ) -> Float64:
        """Penalties (T,), larger where held-out blocks show that predictions would explode.

        ``weight`` is Σw of all rows; no penalty above ``largest`` is tried.
        """
        if len(self.x) < FEWEST_TESTED:
            return alpha
        x = (self.x - self.origin) / self.scale
        rows = GapRows(x, self.y, self.w, features(self.x), prior)
        tests = gap_test(rows, alpha, weight, largest=largest)
        for test, name in zip(tests, targets, strict=True):
            warn_of_gaps(test, name)
        return np.array([test.least_alpha for test in tests])


def safe_evidence(
    features: FeatureMap, moments: Moments, *, fit_intercept: bool = True
) -> Evidence:
    """Noise and signal by evidence, with a larger α where held-out blocks show that it explodes.

    The blocks are of the moments' own sample of rows: nothing is read for them.
    """
    found, seen = evidence(moments, fit_intercept=fit_intercept), _take_sample(moments)
    return found if seen is None else seen.check_evidence(features, found)


def safe_alpha(features: FeatureMap, moments: Moments, alpha: Float64, largest: float) -> Float64:
    """Penalties (T,) of another criterion, larger where held-out blocks show that they explode.

    ``largest`` is the largest eigenvalue of G, above which none is tried.
    """
    seen = _take_sample(moments)
    if seen is None:
        return alpha
    row = moments.row
    return seen.check_alpha(features, row.prior, alpha, moments.weight, largest, row.target_names)


def _take_sample(moments: Any) -> CheckRows | None:
    """The moments' sample of rows, where there are enough for blocks."""
    rows, d = moments.sample.rows, len(moments.row.inputs)
    if len(rows) < FEWEST_TESTED:
        return None
    return CheckRows.of(Pilot(rows[:, :d], rows[:, d:-1], rows[:, -1], moments.row.inputs))
