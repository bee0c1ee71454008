"""What a family of feature maps decides: plan, map, sums and answers that belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.costs import Cost
from rff_stream.descents.statistic import SumOfRows
from rff_stream.execution import Reading
from rff_stream.families.kernel_request import AUTO, KernelRequest
from rff_stream.features import FeatureMap
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.losses.classification import Loss
from rff_stream.moments import AugmentedRow
from rff_stream.moments.class_moments import ClassMoments
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan, PlanRequest
from rff_stream.registry import family_modules
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source

ABILITIES = ("until", "with_kernel", "refine", "classes")
"""What a family may refuse: fits of a part of the rows, whose error is computed from sums alone;
another kernel after the read; steps on the exact system; classifiers."""

ONE_KERNEL = (
    "The columns and sums of this model are for one kernel only. Fit with features='grid', whose "
    "kernel is chosen after the read, or fit again."
)
"""The refusal of another kernel, by families whose sums are for one."""

WHOLE = "whole"
"""Name of the family of one map of the whole space."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnMap:
    """What is decided from pilot rows, before the pass."""

    features: FeatureMap
    row: AugmentedRow  # map, origins, names and units of the columns that are summed
    scales: Mapping[str, Array]
    """What the map was drawn for, ``length_scale`` above all: kept beside it."""

    @property
    def family(self) -> Family:
        """The family of the map."""
        return family_of(self.features)


@dataclass(frozen=True, slots=True, eq=False)
class MapParameters:
    """The parameters of an estimator that a map is drawn by, with what was left open decided."""

    features: Any
    """Maps of single columns have already been combined into one map of all inputs (map, name of
    one, or a request such as ``Cells()``)."""
    kernels: KernelRequest
    n_components: Any  # as in KernelRidge, like all up to ``sums``
    dtype: Any
    sums: Any
    penalty: Any  # float, array or str: α as it was given, or the rule that finds it
    seed: int
    progress: bool
    averages: bool = False
    """Whether the mean of two maps may answer: its weights are those of the row sample."""
    metric: Any = None
    """Matrix (d, k) in front of the map, "full", "auto", or None for a length-scale an input."""
    search_seconds: float | None = None
    """CPU seconds that the search for a map may take; None for no limit."""
    asked_seconds: float = math.inf
    """The same, if a number was asked for: a search by evidence of one map has no other limit."""
    longitudes: tuple[int, ...] = ()
    """Places of the inputs that are longitudes."""
    float64_fits: bool = False
    """Whether columns in float64 may be taken, for data with hardly any noise."""
    larger_fit: bool = True
    """Whether memory allows the mean of two maps, and twice the columns, in that precision."""
    planned: Cost | None = None
    """Of the map that memory was planned for."""
    searched: Pilot | None = None
    """Pilot rows that one map is drawn for, where their targets are not those of the data."""

    @property
    def family(self) -> Family:
        """The family of the map."""
        return family_of(self.features)

    @property
    def is_named(self) -> bool:
        """Whether the map is the name of one, so that it is still to be drawn."""
        return isinstance(self.features, str)

    @property
    def learns_metric(self) -> bool:
        """Whether a metric is learnt whatever left-out rows say."""
        return isinstance(self.metric, str) and self.metric == "full"

    @property
    def finds_metric(self) -> bool:
        """Whether windows of rows say what is in front of one map: a metric, or length-scales."""
        return self.learns_metric or self.kernels.rule == AUTO


@dataclass(frozen=True, slots=True, eq=False)
class SumRequest:
    """What a pass is to add up with a map."""

    features: Any
    row: AugmentedRow  # of classifiers: without classes
    plan: Plan
    sample_rows: int  # of the mergeable sample; 0 for none
    n_places: int  # places of the whole data: what runs of rows are cut from
    labels: tuple[Any, ...] = ()  # classes that are known beforehand


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """The sums of a pass and the map that they are of."""

    features: Any
    groups: Mapping[Any, Any]  # label -> sums: by fold or label, else one under None
    total: Any  # sum of the groups
    parameters: MapParameters | None = None  # for a family whose sums are the same for every kernel
    scales: Mapping[str, Array] = field(default_factory=dict)
    """What was found on pilot rows, as in :class:`DrawnMap`."""
    spare_bytes: int = 0
    """What the plan of the pass allows in memory beyond what it counts for the solve."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredAnswer:
    """An answer as a store keeps it."""

    features: Any
    arrays: Mapping[str, Array]
    plain: Mapping[str, Any]  # plain JSON
    targets: tuple[str, ...]
    total: Any = None  # sum of the groups, where they are stored too


class RidgeAnswer(Protocol):
    """A function that was fitted by least squares; a frozen value."""

    @property
    def target_origin(self) -> Float64:
        """y₀ (T,) of the sums: residuals are summed about it."""

    def mean(self) -> RowFunction:
        """x ↦ ŷ (T), a picklable function of rows."""

    def slopes(self) -> Slopes:
        """x ↦ ∂ŷ/∂x (d, T), in closed form; of ln ŷ where the answer is of logarithms."""

    def state(self, tests: Sequence[Any], n_rows: int, fraction: float) -> HeldOutError:
        """Its error on leaves that it has not seen, from their sums alone."""

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Public attributes by name; without the axis of targets if ``flat``."""

    def pack(self) -> Packed:
        """The same for the store."""


class Process(RidgeAnswer, Protocol):
    """A Gaussian process given its data: also an uncertainty, and functions drawn from it."""

    def variances(self) -> RowFunction:
        """x ↦ variances (2T): T of f, and T of the noise that a new y has beside."""

    def mean_and_variances(self) -> RowFunction:
        """x ↦ the mean, too, before them (3T)."""

    def covariance(self, x: Array, noise: bool) -> Float64:
        """Covariance (T, n, n) of f, or of a new y with its noise, at all pairs of rows x (n, d).

        Its diagonal follows from :meth:`variances`.
        """

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        """x ↦ values (T·n_samples) of functions drawn from the posterior, target by target."""

    def leave_one_out(self, sample: Float64) -> Float64:
        """Residuals y − f (m, T) of sampled rows [x, y, w], each under the fit without it."""

    def left_out(self, sample: Float64) -> LeftOut:
        """The same, with variances; those of the fit where a row is one of many."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """What a process says at rows that it has not seen, (m, T) each."""

    residual: Float64  # y − f
    variance: Float64  # of f
    noise: Float64  # of y − f

    @classmethod
    def of_process(cls, process: Process, sample: Float64) -> LeftOut:
        """Residuals of rows [x, y, w] without each of them, and the variances of the fit there."""
        residual = process.leave_one_out(sample)
        x = sample[:, : sample.shape[1] - 1 - residual.shape[1]]
        return cls(residual, *np.split(process.variances()(x), 2, axis=1))


class LogOdds(Protocol):
    """Scores of classes as a function of rows: one for two classes, else one a class."""

    def predictor(self) -> RowFunction:
        """x ↦ log-odds, a picklable function of rows."""

    def slopes(self) -> Slopes:
        """x ↦ the slopes of the scores (d, K), in closed form."""

    def attributes(self) -> dict[str, Any]:
        """Public attributes by name."""

    def arrays(self) -> dict[str, Array]:
        """The same for the store."""


@dataclass(frozen=True, slots=True, eq=False)
class LossRequest:
    """What a loss of several passes is minimised over."""

    features: Any
    row: AugmentedRow  # without classes
    classes: ClassMoments  # of the first pass
    loss: Loss
    written: tuple[Any, ...]  # the labels in the form in which the data hold them
    class_weight: Mapping[Any, float]  # label -> float
    written_weight: Mapping[Any, float]  # written label -> float
    sums: Any  # {"float32", "float64"}
    pilot: Pilot  # a penalty that is not given is chosen on its rows
    penalty: float | None
    passes: SumOfRows  # a statistic -> its sum over all rows
    kept: Callable[[], tuple[Array, Array, Array]] | None
    """Gives x, class numbers and weights of all rows, where their features fit in memory."""
    start: tuple[Array, Array] | None  # (coef, intercept)
    tol: float
    max_passes: int
    progress: bool
    laplace: float | str | None = None
    """Spread of the Laplace posterior that probabilities are averaged over, by one more pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Descended:
    """The state in which a descent ended."""

    log_odds: LogOdds
    passes: int  # after the first
    converged: bool
    objective: tuple[float, ...] = field(default=())  # mean penalised loss after each pass
    last: tuple[Array, Array] | None = None
    """(coef, intercept), before calibration: where a warm start goes on from."""


class ClassFamily(Protocol):
    """What a family decides for classifiers."""

    def check(self, loss: str, alpha: float | str) -> None:
        """Refuse a loss, or a rule for its penalty, that it has no answer for."""

    def draw(
        self, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """The map for pilot rows with one-hot classes, and what it was drawn for."""

    def statistic(self, request: SumRequest) -> Statistic:
        """What the first pass adds up: sums of labelled rows."""

    def least_squares(
        self, totals: Totals, class_weight: Mapping[Any, float], alpha: float | str
    ) -> LogOdds:
        """Least squares on one-hot classes, calibrated on the row sample."""

    def least_loss(self, request: LossRequest) -> Descended:
        """The scores of least loss, by passes over the rows."""

    def restore(self, features: Any, arrays: Mapping[str, Array]) -> LogOdds:
        """The scores from arrays of the store."""


class Family(Protocol):
    """Everything that differs between kinds of feature map.

    Estimators and passes call these methods and never test the kind themselves.

    A new family is a folder that is named in ``FAMILY_FOLDERS`` of :mod:`rff_stream.registry`.
    """

    name: ClassVar[str | None]
    """The string that ``features=`` accepts for it; None if there is none."""
    kinds: ClassVar[tuple[type, ...]]
    """Maps, and requests for one, that are of this family."""
    refuses: ClassVar[Mapping[str, str]] = {}
    """What it cannot do, of ``ABILITIES``, with the message that says so; ``{value}`` in it is that
    of the parameter that asks for it."""
    default_request: ClassVar[Any] = None
    """What ``features="auto"`` asks for, of the one family that it means; None of the others."""

    def join(self, maps: Sequence[Any]) -> Any:
        """These maps as one whose answers are averaged; None of a family that averages none."""
        return None

    def beside(self, features: Any, trend: LinearTrend) -> Any:
        """A map for what a line leaves of the targets; None of a family that adds none."""
        return None

    def draw_behind(
        self, family: Family, reading: Reading, columns: Columns, parameters: MapParameters
    ) -> DrawnMap | None:
        """What a family draws for numbers in the place of many levels; None of one without such."""
        return None

    def serves(self, n_inputs: int) -> bool:
        """Whether it can answer for so many inputs with the packages that are installed."""
        return True

    def finds_kernels(self, features: Any) -> bool:
        """Whether kernels, length-scales and a metric compete where they are not said."""
        return False

    def growth(self, features: Any, n_rows: int) -> float:
        """How many times as many columns the default would draw for so many rows."""
        return 1.0

    def tells_left_out(self, features: Any) -> bool:
        """Whether left-out residuals and variances of a row sample cost little beside a solve."""
        return True

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        """Refuse, before a row is read, what would be refused after the pilot."""

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        """The sizes that a plan is made from, before the map is drawn or after."""

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        """The request with what the kernel costs: a search before the pass, the solve after it."""

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """The map for the pilot's rows, and what a row of the sums means."""

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        """Map, origins, names and units of the columns that are summed, for a map that is given."""

    def statistic(self, request: SumRequest) -> Statistic:
        """What the pass adds up."""

    def zero(self, features: Any, row: AugmentedRow, order: int) -> Any:
        """The sums of no rows."""

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> Any:
        """The :class:`RidgeAnswer`, or the :class:`Process` with variances, of these sums.

        ``alpha`` is a number for each target, α = σₙ²/σ_f² of a process, or the name of the rule
        that finds it: "evidence", "cv" or "gcv".
        """

    def restore(self, stored: StoredAnswer, *, variances: bool) -> Any:
        """Rebuild the result of :meth:`solve` from stored arrays."""

    classes: ClassVar[ClassFamily | None] = None
    """The same for classifiers; None of a family that refuses "classes"."""


def families() -> list[Family]:
    """One value for each folder; the last takes every map that no other does."""
    return [module.FAMILY for module in family_modules("family")]


def family_of(features: Any) -> Family:
    """The family of a map, of the name of one, or of a request for one."""
    named, (*several, last) = isinstance(features, str), families()
    for family in several:
        if features == family.name if named else isinstance(features, family.kinds):
            return family
    return last
