"""Classes by their shares in each box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxes.map import Boxes, BoxFeatures
from boxes.predictors import BoxTable, draw_boxes
from boxes.statistic import BoxStatistic
from rff_stream._array import Array
from rff_stream.contracts import RowFunction, Slopes, Statistic
from rff_stream.families.protocol import (
    ClassFamily,
    Descended,
    LossRequest,
    MapParameters,
    SumRequest,
    Totals,
)
from rff_stream.features import FeatureMap
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.statistics.moment_statistics import ClassStatistic


@dataclass(frozen=True, slots=True, eq=False)
class BoxLogOdds:
    """Log-odds of the classes in each box."""

    table: BoxTable

    def predictor(self) -> RowFunction:
        return self.table

    def slopes(self) -> Slopes:
        return self.table.slopes

    def attributes(self) -> dict[str, Any]:
        return {"log_odds_": self.table.values}

    def arrays(self) -> dict[str, Array]:
        return {"log_odds": self.table.values}


@dataclass(frozen=True, slots=True)
class BoxClasses(ClassFamily):
    """(N + α/C)/(Σ N + α) in each box, with N the weights of the C classes; α is 1 if not said."""

    def check(self, loss: str, alpha: float | str) -> None:
        if loss != "squared":
            raise ValueError(f"loss={loss!r} but boxes count classes. Use loss='squared'.")

    def draw(
        self, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        given: Any = parameters.features
        drawn = draw_boxes(given, pilot.x) if isinstance(given, Boxes) else given
        return drawn, {"length_scale": drawn.size}

    def statistic(self, request: SumRequest) -> Statistic:
        of_rows = BoxStatistic(request.features, request.row, request.sample_rows)
        return ClassStatistic(of_rows, request.labels)

    def least_squares(
        self, totals: Totals, class_weight: Mapping[Any, float], alpha: float | str
    ) -> BoxLogOdds:
        classes = totals.total
        factor = np.array([class_weight.get(label, 1.0) for label in classes.labels])
        counts = classes.moments.values * factor
        prior = 1.0 if isinstance(alpha, str) else float(alpha)
        logs = np.log(counts + prior / len(factor))
        if len(factor) == 2:
            logs = logs[:, 1:] - logs[:, :1]
        return BoxLogOdds(BoxTable(totals.features, logs))

    def least_loss(self, request: LossRequest) -> Descended:
        raise ValueError("Boxes count classes and have no descent. Use loss='squared'.")

    def restore(self, features: BoxFeatures, arrays: Mapping[str, Array]) -> BoxLogOdds:
        return BoxLogOdds(BoxTable(features, np.asarray(arrays["log_odds"])))
