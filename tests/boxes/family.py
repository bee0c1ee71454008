"""Means of boxes: f is a value of its own in each box, N(0, σ_f²), about the mean of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from boxes.classes import BoxClasses
from boxes.cost import BoxCost
from boxes.map import Boxes, BoxFeatures
from boxes.moments import BoxMoments
from boxes.predictors import BoxTable, draw_boxes
from boxes.statistic import BoxStatistic
from rff_stream._array import Array, Float64
from rff_stream.answers.early_stopping import HeldOutError, state_of_errors
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.execution import Reading
from rff_stream.families.parameters import check_inputs, number_or_array
from rff_stream.families.protocol import (
    ONE_KERNEL,
    ClassFamily,
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
)
from rff_stream.moments import AugmentedRow
from rff_stream.pilot import Pilot
from rff_stream.planning import PlanRequest
from rff_stream.predictors import SideBySide
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source

ALPHAS = np.logspace(-4, 4, 81)
"""Penalties α = σₙ²/σ_f² whose evidence is compared."""

FIELDS = ("values", "weights", "alpha", "noise_variance", "log_evidence", "target_origin")


@dataclass(frozen=True, slots=True, eq=False)
class BoxProcess:
    """The process given its data, for models with variances and without."""

    features: BoxFeatures
    values: Float64  # (R, T): mean of f in each box
    weights: Float64  # (R,): Σw
    alpha: Float64  # (T,)
    noise_variance: Float64  # (T,): σₙ² of a row of weight 1
    log_evidence: Float64  # (T,)
    target_origin: Float64  # (T,)

    def mean(self) -> RowFunction:
        return BoxTable(self.features, self.values)

    def slopes(self) -> Slopes:
        return BoxTable(self.features, self.values).slopes

    def state(self, tests: Sequence[BoxMoments], n_rows: int, fraction: float) -> HeldOutError:
        f = self.values - self.target_origin
        errors = np.stack(
            [
                each.target_squares() - 2 * (f * each.values).sum(0) + each.weights @ f**2
                for each in tests
            ]
        )
        weights = np.array([each.weight for each in tests])
        return state_of_errors(errors, weights, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        shrunk = self.weights[:, None] / (self.weights[:, None] + self.alpha)
        return {
            "alpha_": number_or_array(self.alpha, flat),
            "df_": number_or_array(shrunk.sum(axis=0), flat),
            "noise_variance_": number_or_array(self.noise_variance, flat),
            "signal_variance_": number_or_array(self.noise_variance / self.alpha, flat),
            "log_marginal_likelihood_": number_or_array(self.log_evidence, flat),
        }

    def pack(self) -> Packed:
        return Packed({}, {name: getattr(self, name) for name in FIELDS})

    @property
    def of_boxes(self) -> Float64:
        """Variance (R, T) of f in each box."""
        return self.noise_variance / (self.weights[:, None] + self.alpha)

    def variances(self) -> RowFunction:
        of_f = self.of_boxes
        noise = np.broadcast_to(self.noise_variance, of_f.shape)
        return BoxTable(self.features, np.hstack([of_f, noise]))

    def mean_and_variances(self) -> RowFunction:
        return SideBySide((self.mean(), self.variances()))

    def covariance(self, x: Array, noise: bool) -> Float64:
        box = self.features.box_of(x)
        of_f = np.where(box[:, None] == box, self.of_boxes[box].T[:, None], 0.0)
        return of_f + noise * self.noise_variance[:, None, None] * np.eye(len(x))

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        normal = np.random.default_rng(seed).standard_normal((*self.values.shape, n_samples))
        drawn = self.values[..., None] + np.sqrt(self.of_boxes)[..., None] * normal
        return BoxTable(self.features, drawn.reshape(len(drawn), -1))

    def leave_one_out(self, sample: Float64) -> Float64:
        return self.left_out(sample).residual

    def left_out(self, sample: Float64) -> LeftOut:
        d = self.features.n_inputs
        x, y, w = sample[:, :d], sample[:, d:-1], sample[:, -1:]
        own = self.weights[self.features.box_of(x)][:, None] + self.alpha
        residual = (y - self.mean()(x)) * own / (own - w)
        return LeftOut(residual, self.noise_variance / (own - w), self.noise_variance / w)


@dataclass(frozen=True, slots=True)
class BoxFamily(Family):
    """:class:`~boxes.map.BoxFeatures` with their :class:`~boxes.moments.BoxMoments`."""

    name: ClassVar[str | None] = "boxes"
    kinds: ClassVar[tuple[type, ...]] = (Boxes, BoxFeatures)
    refuses: ClassVar[Mapping[str, str]] = {
        "with_kernel": ONE_KERNEL,
        "refine": "refine={value} but means of boxes are exact. Use refine=0.",
    }
    classes: ClassVar[ClassFamily | None] = BoxClasses()

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        given: Any = parameters.features
        if isinstance(given, BoxFeatures):
            check_inputs(given.n_inputs, n_inputs)
        if isinstance(parameters.penalty, str) and parameters.penalty in ("cv", "gcv"):
            raise ValueError(
                f"alpha={parameters.penalty!r} but the penalty of boxes is a number or 'evidence'. "
                "Choose one of them."
            )

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        d = len(source.columns.inputs)
        return PlanRequest(BoxCost(int(_asked(features).per_input ** d)))

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        return request

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        given, pilot = _asked(parameters.features), reading.pilot(parameters.seed)
        features = draw_boxes(given, pilot.x) if isinstance(given, Boxes) else given
        scales = {"length_scale": features.size}
        return DrawnMap(features, self.row(features, pilot, columns), scales)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        """What the sums mean: the map, names, units and origins of y; no columns of its own."""
        nothing = np.empty(0)
        ones = np.ones(len(columns.targets))
        return AugmentedRow(
            features.fingerprint, nothing, "none", nothing, pilot.target_origin, ones,
            columns.inputs, columns.targets, columns.units,
        )  # fmt: skip

    def statistic(self, request: SumRequest) -> Statistic:
        return BoxStatistic(request.features, request.row, request.sample_rows)

    def zero(self, features: Any, row: AugmentedRow, order: int) -> BoxMoments:
        return BoxMoments.zero(row, features.n_components)

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> BoxProcess:
        """σₙ² and, where it is not a number, α of highest evidence."""
        moments: BoxMoments = totals.total
        weights, t = moments.weights, moments.row.n_targets
        centre = moments.values.sum(axis=0) / moments.weight
        if not fit_intercept:
            centre = -moments.row.target_origin
        about = moments.values - weights[:, None] * centre
        squares = (
            moments.target_squares()
            - 2 * centre * moments.values.sum(axis=0)
            + moments.weight * centre**2
        )
        given = ALPHAS if isinstance(alpha, str) else np.unique(alpha)
        logs = np.empty((len(given), t))
        noises = np.empty_like(logs)
        for i, each in enumerate(given):
            shrunk = weights + each
            noises[i] = (squares - (about**2 / shrunk[:, None]).sum(axis=0)) / moments.n
            logs[i] = -moments.n / 2 * (np.log(2 * np.pi * noises[i]) + 1)
            logs[i] += moments.log_weight / 2 - np.log(shrunk / each).sum() / 2
        if isinstance(alpha, str):
            best = logs.argmax(axis=0)
        else:
            best = np.searchsorted(given, np.broadcast_to(alpha, t))
        at, chosen = np.arange(t), given[best]
        values = moments.row.target_origin + centre + about / (weights[:, None] + chosen)
        return BoxProcess(
            totals.features, values, weights, chosen, noises[best, at], logs[best, at],
            moments.row.target_origin,
        )  # fmt: skip

    def restore(self, stored: StoredAnswer, *, variances: bool) -> BoxProcess:
        return BoxProcess(stored.features, *(np.asarray(stored.arrays[name]) for name in FIELDS))


def _asked(features: Any) -> Any:
    """The request that a name means, or the map or request itself."""
    return Boxes() if isinstance(features, str) else features


FAMILY = BoxFamily()
