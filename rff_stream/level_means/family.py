"""Many levels as the means of their levels, in front of the map that the data choose.

A random intercept is a level's own constant; as a number, the mean of a level is an input like any
other: it has a length-scale, a place in a metric, and what other inputs do may depend on it. Means
are found on pilot rows before the read, and the map behind them is drawn for rows that have them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.execution import Reading
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.around import FamilyAround
from rff_stream.families.level_intercepts import coded_inputs
from rff_stream.families.protocol import (
    ONE_KERNEL,
    WHOLE,
    ClassFamily,
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    Process,
    SumRequest,
    family_of,
)
from rff_stream.leaf_layout import n_rows_of
from rff_stream.level_means.classes import LevelClasses
from rff_stream.level_means.comparison import intercepts_serve
from rff_stream.level_means.functions import LevelFunction, LevelSlopes
from rff_stream.level_means.map import LevelFeatures
from rff_stream.level_means.means import LevelMeans, can_fold
from rff_stream.level_means.statistic import LevelStatistic, rows_with_means, with_means
from rff_stream.moments import AugmentedRow
from rff_stream.pilot import PILOT_BLOCKS, Pilot
from rff_stream.sources import Columns
from rff_stream.sources.levels import column_of_level

ROWS_A_LEVEL, MOST_ROWS = 64, 2**16
"""Rows a level that tell its mean: its error is then an eighth of the noise. And rows at most: the
columns of the other inputs are then 64 MiB."""

REFUSES = {
    "until": "A map of levels by their means is read to the end. Use fit without until, or "
    "features='whole'.",
    "with_kernel": ONE_KERNEL,
    "refine": "refine={value} but the answer of a map of levels by their means is solved once. Use "
    "refine=0, or features='whole'.",
}


@dataclass(frozen=True, eq=False)
class LevelAnswer:
    """The answer of a map, for rows whose levels are not means yet.

    Its methods are those of a :class:`~rff_stream.families.protocol.Process`.
    """

    process: Process
    features: LevelFeatures

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return np.asarray(self.process.target_origin)

    def _before(self, function: RowFunction) -> RowFunction:
        return LevelFunction(function, self.features.means)

    def _rows(self, sample: Float64) -> Float64:
        return rows_with_means(sample, self.features.means, self.features.n_inputs)

    def mean(self) -> RowFunction:
        return self._before(self.process.mean())

    def slopes(self) -> Slopes:
        return LevelSlopes(self.process.slopes(), self.features.means)

    def variances(self) -> RowFunction:
        return self._before(self.process.variances())

    def mean_and_variances(self) -> RowFunction:
        return self._before(self.process.mean_and_variances())

    def covariance(self, x: Array, noise: bool) -> Float64:
        return self.process.covariance(self.features.means(x), noise)

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        return self._before(self.process.draws(n_samples, seed))

    def leave_one_out(self, sample: Float64) -> Float64:
        return self.process.leave_one_out(self._rows(sample))

    def left_out(self, sample: Float64) -> LeftOut:
        return self.process.left_out(self._rows(sample))

    def state(self, tests: Sequence[Any], n_rows: int, fraction: float) -> HeldOutError:
        raise ValueError(REFUSES["until"])

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the process."""
        return self.process.attributes(flat)

    def pack(self) -> Packed:
        """The process; the means are those of the map."""
        return self.process.pack()

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.process)


class ReadingOfMeans:
    """What a map is drawn from, with means in the place of levels."""

    def __init__(self, reading: Reading, means: LevelMeans) -> None:
        self.source, self._reading, self._means = reading.source, reading, means

    def pilot(self, seed: int = 0, **choices: Any) -> Pilot:
        """Pilot rows."""
        found = self._reading.pilot(seed, **choices)
        return replace(found, x=self._means.of_fit(found.x, found.y))

    def sum_leaves(self, statistic: Statistic, leaves: Any, words: str) -> Any:
        """The sum of a statistic of some leaves."""
        return self._reading.sum_leaves(LevelStatistic(statistic, self._means), leaves, words)


@dataclass(frozen=True, slots=True)
class LevelFamily(FamilyAround):
    """Maps behind means of levels: those of the default, where a column has many levels."""

    name: ClassVar[str | None] = None
    kinds: ClassVar[tuple[type, ...]] = (LevelFeatures,)
    refuses: ClassVar[Mapping[str, str]] = REFUSES
    classes: ClassVar[ClassFamily | None] = LevelClasses()

    def draw_behind(
        self, family: Family, reading: Reading, columns: Columns, parameters: MapParameters
    ) -> DrawnMap:
        pilot, coded = reading.pilot(parameters.seed), coded_inputs(columns.inputs)
        more = _rows_of_means(reading, pilot, coded, parameters.seed)
        if can_fold(more.x, more.y, coded):
            with single_threaded_blas():
                means = LevelMeans.of(more.x, more.y, more.w, coded)
            drawn = _drawn(family, reading, columns, parameters, means)
            with single_threaded_blas():
                if not intercepts_serve(pilot, drawn.features, drawn.scales):
                    return drawn
        whole = replace(parameters, features=WHOLE)
        return family_of(WHOLE).draw(reading, columns, whole)

    def inner_sums(self, features: Any, sums: Any) -> Any:
        return with_means(sums, features.means, features.n_inputs)

    def outer_answer(self, features: Any, answer: Any) -> LevelAnswer:
        return LevelAnswer(answer, features)

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """A map that is given stays as it is, and so do its means."""
        features: Any = parameters.features
        own = replace(parameters, features=features.map)
        return _drawn(family_of(features.map), reading, columns, own, features.means)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        known = replace(pilot, x=features.means.of_fit(pilot.x, pilot.y))
        row = family_of(features.map).row(features.map, known, of_means(columns))
        return _outer(row, features, columns)

    def statistic(self, request: SumRequest) -> Statistic:
        features = request.features
        own = replace(request, features=features.map)
        statistic = family_of(features.map).statistic(own)
        width = len(request.row.inputs) + request.row.n_targets + 1
        return LevelStatistic(statistic, features.means, width, request.sample_rows)


def of_means(columns: Columns) -> Columns:
    """The columns with the means of levels as numbers: "airport=*" is "mean of airport"."""
    coded = coded_inputs(columns.inputs)
    names = tuple(
        f"mean of {column_of_level(name)}" if place in coded else name
        for place, name in enumerate(columns.inputs)
    )
    return replace(columns, inputs=names)


def _rows_of_means(reading: Reading, pilot: Pilot, coded: Sequence[int], seed: int) -> Pilot:
    """The rows that tell means: the pilot's, or more where levels are many."""
    n_levels = max(len(np.unique(pilot.x[:, place])) for place in coded)
    wanted = min(ROWS_A_LEVEL * n_levels, MOST_ROWS)
    if wanted > len(pilot.x) and len(pilot.x) < pilot.usable(n_rows_of(reading.source)):
        pilot = reading.pilot(seed, rows=-(-wanted // PILOT_BLOCKS))
    return pilot


def _drawn(
    family: Family, reading: Reading, columns: Columns, parameters: MapParameters, means: LevelMeans
) -> DrawnMap:
    """What a family draws for rows with these means."""
    known: Any = ReadingOfMeans(reading, means)
    drawn = family.draw(known, of_means(columns), parameters)
    features: Any = LevelFeatures(drawn.features, means)
    return DrawnMap(features, _outer(drawn.row, features, columns), drawn.scales)


def _outer(row: AugmentedRow, features: LevelFeatures, columns: Columns) -> AugmentedRow:
    """A row of the sums, whose inputs are those that were read."""
    return replace(row, inputs=columns.inputs, map_fingerprint=features.fingerprint)


FAMILY = LevelFamily()
"""A map behind the means of levels."""
