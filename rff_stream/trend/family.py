"""Cells for what a line of the inputs leaves: y = a line + f(x) + noise, with f a process.

Kernels return to the mean away from the rows, and inputs of heavy tails have rows with few
neighbours. Where a line says much of the targets there, f is fitted to what it leaves. The line
is found on pilot rows before the read, as length-scales are, and taken where left-out rows say so:
each is left out of the line, too. Variances of f and of the line are added: what f has learnt of
the errors of the line is small where there are many rows, and far from them there is none.

References
----------
Rasmussen & Williams 2006, section 2.7 (explicit basis functions).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic, for_rows
from rff_stream.execution import Reading
from rff_stream.families.around import FamilyAround
from rff_stream.families.protocol import (
    ONE_KERNEL,
    DrawnMap,
    LeftOut,
    MapParameters,
    Process,
    SumRequest,
    family_of,
)
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.moments import AugmentedRow
from rff_stream.pilot import Pilot
from rff_stream.sources import Columns
from rff_stream.trend.map import TrendFeatures
from rff_stream.trend.statistic import TrendStatistic, rows_without_line, without_line

REFUSES = {
    "until": "A map beside a line is read to the end. Use fit without until, or features='whole'.",
    "with_kernel": ONE_KERNEL,
    "refine": "refine={value} but the answer of a map beside a line is solved once. Use refine=0, "
    "or one map.",
    "classes": "A map beside a line is for KernelRidge and GaussianProcessRegressor. Choose "
    "another map here.",
}


@dataclass(frozen=True, slots=True, eq=False)
class TrendFunction:
    """x ↦ g(x) with the line added to its first columns."""

    function: RowFunction
    trend: LinearTrend

    @property
    def width(self) -> int:
        """That of g."""
        return self.function.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        found, line = np.array(self.function(x)), self.trend(x)
        found[:, : line.shape[1]] += line
        return found

    def for_rows(self, count: int) -> TrendFunction:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, function=for_rows(self.function, count))


@dataclass(frozen=True, slots=True, eq=False)
class TrendVariances:
    """x ↦ g(x) with the variance of the line added to that of f, before its last T columns."""

    function: RowFunction
    trend: LinearTrend

    @property
    def width(self) -> int:
        """That of g."""
        return self.function.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        found, own = np.array(self.function(x)), self.trend.variance(x)
        found[:, -2 * own.shape[1] : -own.shape[1]] += own
        return found

    def for_rows(self, count: int) -> TrendVariances:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, function=for_rows(self.function, count))


@dataclass(frozen=True, slots=True, eq=False)
class TrendDraws:
    """x ↦ functions that are drawn, each with a line of its own that is drawn, too."""

    functions: RowFunction  # (T·S)
    origin: Float64  # (d,)
    slopes: Float64  # (d, T, S)

    @property
    def width(self) -> int:
        """T·S."""
        return self.functions.width

    def __call__(self, x: Array) -> Float64:
        """Values (n, T·S) of rows (n, d)."""
        lines = np.tensordot(x - self.origin, self.slopes, 1)
        return self.functions(x) + lines.reshape(len(x), -1)


@dataclass(frozen=True, slots=True, eq=False)
class TrendSlopes:
    """x ↦ the slopes of g, and those of the line."""

    slopes: Slopes
    trend: LinearTrend

    def __call__(self, x: Array) -> Float64:
        """(n, d, T) of rows (n, d)."""
        return np.asarray(self.slopes(x) + self.trend.slopes)


@dataclass(frozen=True, eq=False)
class TrendAnswer:
    """The answer of a map for what a line leaves, and the line.

    Its methods are those of a :class:`~rff_stream.families.protocol.Process`.
    """

    process: Process
    trend: LinearTrend

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return np.asarray(self.process.target_origin)

    def mean(self) -> RowFunction:
        return TrendFunction(self.process.mean(), self.trend)

    def slopes(self) -> Slopes:
        return TrendSlopes(self.process.slopes(), self.trend)

    def variances(self) -> RowFunction:
        return TrendVariances(self.process.variances(), self.trend)

    def mean_and_variances(self) -> RowFunction:
        each = self.process.mean_and_variances()
        return TrendFunction(TrendVariances(each, self.trend), self.trend)

    def covariance(self, x: Array, noise: bool) -> Float64:
        return self.process.covariance(x, noise) + self.trend.covariance(x)

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        slopes = self.trend.drawn_slopes(n_samples, seed)
        return TrendDraws(self.process.draws(n_samples, seed), self.trend.origin, slopes)

    def leave_one_out(self, sample: Float64) -> Float64:
        return self.process.leave_one_out(rows_without_line(sample, self.trend))

    def left_out(self, sample: Float64) -> LeftOut:
        found = self.process.left_out(rows_without_line(sample, self.trend))
        own = self.trend.variance(sample[:, : len(self.trend.origin)])
        return replace(found, variance=found.variance + own)

    def state(self, tests: Sequence[Any], n_rows: int, fraction: float) -> HeldOutError:
        raise ValueError(REFUSES["until"])

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the process, and the slopes of the line."""
        slopes = self.trend.slopes
        own = {"trend_slopes_": slopes[:, 0] if flat else slopes}
        return self.process.attributes(flat) | own

    def pack(self) -> Packed:
        """The process; the line is that of the map."""
        return self.process.pack()

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.process)


@dataclass(frozen=True, slots=True)
class TrendFamily(FamilyAround):
    """Maps beside a line: the search of features="auto" draws them."""

    name: ClassVar[str | None] = None
    kinds: ClassVar[tuple[type, ...]] = (TrendFeatures,)
    refuses: ClassVar[Mapping[str, str]] = REFUSES

    def beside(self, features: Any, trend: LinearTrend) -> Any:
        return TrendFeatures(features, trend)

    def inner_sums(self, features: Any, sums: Any) -> Any:
        return without_line(sums, features.trend)

    def outer_answer(self, features: Any, answer: Any) -> TrendAnswer:
        return TrendAnswer(answer, features.trend)

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """A map that is given stays as it is, and so does its line."""
        features: Any = parameters.features
        own = replace(parameters, features=features.map)
        drawn = family_of(features.map).draw(reading, columns, own)
        pilot = reading.pilot(parameters.seed)
        return DrawnMap(features, self.row(features, pilot, columns), drawn.scales)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        left = pilot.with_targets(pilot.y - features.trend(pilot.x))
        row = family_of(features.map).row(features.map, left, columns)
        return replace(row, map_fingerprint=features.fingerprint)

    def statistic(self, request: SumRequest) -> Statistic:
        inner = request.features.map
        own = replace(request, features=inner)
        statistic = family_of(inner).statistic(own)
        return TrendStatistic(statistic, request.features.trend, request.sample_rows)


FAMILY = TrendFamily()
