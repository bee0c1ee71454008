"""Classifiers behind the means of many levels."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.contracts import RowFunction, Slopes, Statistic
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import coded_inputs
from rff_stream.families.protocol import (
    WHOLE,
    ClassFamily,
    Descended,
    LogOdds,
    LossRequest,
    MapParameters,
    SumRequest,
    Totals,
    family_of,
)
from rff_stream.features import FeatureMap
from rff_stream.level_means.comparison import intercepts_serve
from rff_stream.level_means.functions import LevelFunction, LevelSlopes
from rff_stream.level_means.map import LevelFeatures
from rff_stream.level_means.means import LevelMeans, can_fold
from rff_stream.level_means.statistic import LevelClassStatistic, with_means
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.statistics.moment_statistics import ClassStatistic


@dataclass(frozen=True, slots=True, eq=False)
class LevelLogOdds:
    """Log-odds of rows whose levels are not means yet.

    See :class:`~rff_stream.families.protocol.LogOdds`.
    """

    log_odds: LogOdds
    means: LevelMeans

    def predictor(self) -> RowFunction:
        return LevelFunction(self.log_odds.predictor(), self.means)

    def slopes(self) -> Slopes:
        return LevelSlopes(self.log_odds.slopes(), self.means)

    def attributes(self) -> dict[str, Any]:
        """Those behind the means."""
        return self.log_odds.attributes()

    def arrays(self) -> dict[str, Array]:
        """Those behind the means, which are in the map."""
        return self.log_odds.arrays()

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.log_odds)


@dataclass(frozen=True, slots=True)
class LevelClasses:
    """One-hot classes of rows with means in the place of levels.

    See :class:`~rff_stream.families.protocol.ClassFamily`.
    """

    def check(self, loss: str, alpha: float | str) -> None:
        """As of the maps that are chosen: a fit that has means had no other loss."""

    def draw_behind(
        self,
        family: ClassFamily,
        pilot: Pilot,
        inputs: Sequence[str],
        parameters: MapParameters,
        plan: Plan,
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """What a family draws for rows with means."""
        coded = coded_inputs(inputs)
        if can_fold(pilot.x, pilot.y, coded, classes=True):
            with single_threaded_blas():
                means = LevelMeans.of(pilot.x, pilot.y, pilot.w, coded, classes=True)
                features, scales = _drawn(family, pilot, inputs, parameters, plan, means)
                if not intercepts_serve(pilot, features, scales):
                    return features, scales
        whole = replace(parameters, features=WHOLE)
        return _classes_of(WHOLE).draw(pilot, inputs, whole, plan)

    def draw(
        self, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        features: Any = parameters.features
        own, family = replace(parameters, features=features.map), _classes_of(features.map)
        return _drawn(family, pilot, inputs, own, plan, features.means)

    def statistic(self, request: SumRequest) -> Statistic:
        features = request.features
        found: Any = _classes_of(features.map).statistic(replace(request, features=features.map))
        sums = LevelClassStatistic(
            found.sums, features.means, None, request.sample_rows, row=request.row
        )
        return ClassStatistic(sums, request.labels)

    def least_squares(
        self, totals: Totals, class_weight: Mapping[Any, float], alpha: float | str
    ) -> LevelLogOdds:
        features: Any = totals.features

        def behind(classes: Any) -> Any:
            moments = with_means(classes.moments, features.means, features.n_inputs)
            return replace(classes, moments=moments)

        groups = {label: behind(part) for label, part in totals.groups.items()}
        own = replace(totals, features=features.map, groups=groups, total=behind(totals.total))
        found = _classes_of(features.map).least_squares(own, class_weight, alpha)
        return LevelLogOdds(found, features.means)

    def least_loss(self, request: LossRequest) -> Descended:
        """Refused by what is behind the means."""
        features: Any = request.features
        return _classes_of(features.map).least_loss(request)

    def restore(self, features: Any, arrays: Mapping[str, Array]) -> LevelLogOdds:
        found = _classes_of(features.map).restore(features.map, arrays)
        return LevelLogOdds(found, features.means)


def _classes_of(features: Any) -> ClassFamily:
    found = family_of(features).classes
    assert found is not None  # a map that was drawn for classes
    return found


def _drawn(
    family: ClassFamily,
    pilot: Pilot,
    inputs: Sequence[str],
    parameters: MapParameters,
    plan: Plan,
    means: LevelMeans,
) -> tuple[FeatureMap, Mapping[str, Array]]:
    """What a family draws for rows with these means."""
    known = replace(pilot, x=means.of_fit(pilot.x, np.empty((len(pilot.x), 0))))
    names = tuple(f"mean {place}" if place in means.known else name
                  for place, name in enumerate(inputs))  # fmt: skip
    inner, scales = family.draw(known, names, parameters, plan)
    features: Any = LevelFeatures(inner, means)
    return features, scales
