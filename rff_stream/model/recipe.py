"""What differs between the estimators: what each asks of a read, and how it answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from rff_stream._array import Array
from rff_stream.arguments import Rule
from rff_stream.contracts import Packed, Statistic
from rff_stream.execution import Reading
from rff_stream.execution.leaves import PartialSum
from rff_stream.families import DrawnMap, MapParameters, SumRequest
from rff_stream.families.kernel_request import length_scale_asked
from rff_stream.families.level_intercepts import coded_inputs
from rff_stream.families.longitude import longitudes_in
from rff_stream.families.maps import chosen_map, scale_of_map
from rff_stream.families.parameters import RULES, check_pairs, check_parameters
from rff_stream.families.register import decided, default_request
from rff_stream.features import FeatureMap
from rff_stream.leaf_layout import n_rows_of
from rff_stream.model.checked_values import Target
from rff_stream.model.fitted import Fitted
from rff_stream.model.input_rows import Opened, chosen_alike, open_later, open_rows
from rff_stream.model.serialisation import pack_map, unpack_map
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.moments.tree_sum import add_into
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Selection
from rff_stream.statistics.groups import RUNS, Slabs
from rff_stream.store import Checkpoint

Groups = dict[Any, Any]

FEWEST_AVERAGED = 1000
"""``sample_rows`` from which the mean of two maps competes: the mean of so many squared normal
errors has a standard error of √(2/1000) = 4.5 %."""


@dataclass(frozen=True, slots=True, eq=False)
class PassRequest:
    """One read of all rows, before it starts."""

    opened: Opened
    reading: Reading
    plan: Plan
    parameters: MapParameters  # resolved once, from those of the estimator and the columns
    grouped: bool = False  # by the labels that rows carry
    checkpoint: Checkpoint | None = None
    """Where map and finished sums are kept, or were by an earlier run."""
    before: Fitted | None = None  # the fit that a warm start goes on from
    batch: str | Literal[True] | None = None
    """The name under which all its rows are counted; True: every label is one."""

    @property
    def finds_sizes(self) -> bool:
        """Whether pilot rows tell the size of the map."""
        return self.is_chosen or bool(coded_inputs(self.opened.columns.inputs))

    @property
    def may_be_drawn_again(self) -> bool:
        """Whether rows say what the map is made of: with more rows it would be another one."""
        levels = self.parameters.is_named and coded_inputs(self.opened.columns.inputs)
        return self.is_chosen or bool(levels)

    @property
    def is_chosen(self) -> bool:
        """Whether the data decide on the map."""
        return bool(self.parameters.features == default_request())

    def drawn_by(self, seed: int, memory: int | None, *, float64: bool = False) -> MapParameters:
        """The parameters, with what the search and the map may take by the plan of the pass.

        ``float64`` says whether columns in float64 may be taken where they fit.
        """
        plan = self.plan
        float64 = float64 and self.reading.allows(plan.in_float64(), memory)
        own = plan.in_float64() if float64 else plan
        larger = (replace(own, cost=cost) for cost in plan.cost.larger())
        return replace(
            self.parameters,
            seed=seed,
            search_seconds=plan.search_limit,
            planned=plan.cost,
            float64_fits=float64,
            larger_fit=all(self.reading.allows(each, memory) for each in larger),
        )

    def sums(self, statistic: Statistic, words: str) -> PartialSum:
        """Sum of another statistic over the same rows, by one more read; the bar says the words."""
        return self.reading.sums(statistic, self.plan.layout, words)


@dataclass(frozen=True, slots=True, eq=False)
class PassResult:
    """What one read of the rows gave."""

    request: PassRequest
    """With the precision that the pilot asked for; estimators may read the rows again."""
    drawn: DrawnMap
    groups: Groups  # label -> what a pass added up
    seen: int  # rows that were looked at


def unread(opened: Opened, drawn: DrawnMap, data: Selection) -> Fitted:
    """A fit whose map is drawn and that has read no row."""
    return Fitted(
        columns=opened.columns,
        features=drawn.features,
        scales=drawn.scales,
        flat=opened.flat,
        feature_names=opened.feature_names,
        selection=data.lasting,
    )


FOLD_SLABS = "fold_slabs"
"""Name of the slabs of folds among what is kept beside a map: later rows are split alike."""


def with_slabs(drawn: DrawnMap, pilot: Pilot, folds: int) -> DrawnMap:
    """The same with the slabs of so many folds, where pilot rows stand more than once.

    A copy of a held-out row among the others would make the model that interpolates look best.
    """
    if not folds or pilot.different == 1.0 or FOLD_SLABS in drawn.scales:
        return drawn
    numbers = Slabs.of_rows(pilot.x, folds).numbers
    return replace(drawn, scales={**drawn.scales, FOLD_SLABS: numbers})


def slabs_in(scales: Mapping[str, Array], n_inputs: int) -> Slabs | None:
    """The slabs that were decided before the pass; None where rows stand once."""
    found = scales.get(FOLD_SLABS)
    return None if found is None else Slabs.from_numbers(found, n_inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(ABC):
    """What an estimator's parameters mean: what it asks of a read, and how it answers from sums.

    A subclass writes the abstract methods; the functions of this subpackage call them.
    """

    params: Any  # estimator: only its public parameters are looked at
    declared_classes: tuple[Any, ...] | None = None  # labels that a classifier was told to expect
    penalty: Any = None  # α as it was asked for; None where there is none
    sums: SumsDtype = "auto"  # precision of the sums
    order: Literal[1, 2] = 2  # of the moments that the answer needs
    chooses: bool = False
    """Whether "auto" leaves the map to the data; else it is one map of the whole space."""
    searches: bool = False
    """Whether the data then decide on the kernel of that one map."""

    target: ClassVar[Target] = "numbers"
    """What y is in the rows of a fit and later ones."""

    rules: ClassVar[Mapping[str, Rule]] = RULES
    """What the parameters may be, by their names."""

    adds_files: ClassVar[bool] = True
    """Whether the map is known before the pass, so that each file of a fit has sums of its own."""

    after_the_pass: ClassVar[frozenset[str]] = frozenset()
    """Parameters that the sums do not depend on, besides ``memory`` and ``progress``."""

    # ------------------------------------------------------------------------------- rows

    def check(self) -> None:
        """Refuse parameters before anything is opened."""
        check_parameters(self.params, self.rules)
        check_pairs(self.params.n_components, self.params.features)

    def open(self, data: Selection) -> Opened:
        """The rows of a fit."""
        return open_rows(self.params, data, self.target)

    def open_more(self, fitted: Fitted, data: Selection) -> Opened:
        """Rows that come later, by the columns and conditions of the fit."""
        return open_later(self.params, fitted.columns, chosen_alike(fitted, data), self.target)

    def for_refit(self, fitted: Fitted, opened: Opened) -> Self:
        """The recipe of a new fit to the rows of an earlier one and later rows together."""
        return self

    @abstractmethod
    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        """Refuse parameters that do not fit these inputs and targets, before a row is read."""

    def checked_parameters(self, columns: Columns) -> MapParameters:
        """What the map of these columns is drawn by; refuses what does not fit them."""
        parameters = self.map_parameters(columns)
        self.check_columns(columns, parameters)
        return parameters

    # -------------------------------------------------------------------------------- map

    def map_parameters(self, columns: Columns) -> MapParameters:
        """What the map is drawn by."""
        params = self.params
        metric = getattr(params, "metric", None)
        seconds = getattr(params, "search_seconds", None)
        features, kernels, size = decided(
            chosen_map(params.features, columns.inputs, params.kernel),
            params.kernel,
            length_scale_asked(params),
            params.n_components,
            metric,
            choose=self.chooses,
            search=self.searches,
            coded=self.has_intercepts and bool(coded_inputs(columns.inputs)),
        )
        return MapParameters(
            features,
            kernels,
            n_components=size,
            dtype=params.dtype,
            sums=getattr(params, "sums", "auto"),
            penalty=self.penalty,
            seed=0,
            progress=params.progress,
            averages=getattr(params, "sample_rows", 0) >= FEWEST_AVERAGED,
            metric=metric,
            longitudes=longitudes_in(columns),
            asked_seconds=math.inf if seconds is None else seconds,
        )

    @property
    def has_intercepts(self) -> bool:
        """Whether many levels have random intercepts; else they are means, where data decide."""
        return not self.chooses

    def parameters_of(self, fitted: Fitted) -> MapParameters:
        """The same, for later rows: the map is that of a fit."""
        return replace(self.map_parameters(fitted.columns), features=fitted.features)

    @abstractmethod
    def draw(self, request: PassRequest) -> DrawnMap:
        """The map, drawn for the pilot, and what a row of the sums means."""

    def scales_in(self, features: FeatureMap) -> Mapping[str, Array]:
        """What a map that was given was drawn for."""
        return {"length_scale": scale_of_map(features)}

    # ------------------------------------------------------------------------------- sums

    def n_folds(self, n_targets: int) -> int:
        """Folds to keep apart in the pass, 0 for none."""
        return 0

    def plan(
        self,
        reading: Reading,
        columns: Columns,
        parameters: MapParameters,
        n_groups: int | None = None,
    ) -> Plan:
        """The plan of a pass: of the map to come, or of one that is drawn."""
        source, family = reading.source, parameters.family
        folds = self.n_folds(len(columns.targets))
        request = replace(
            family.request(parameters.features, parameters.n_components, source),
            order=self.order,
            sums=self.sums,
            dtype=getattr(parameters.features, "dtype", parameters.dtype),
            n_groups=max(folds, 1) if n_groups is None else n_groups,
            search_limit=getattr(self.params, "search_seconds", None),
        )
        request = family.foresee(request, parameters, n_rows_of(source))
        return reading.plan(request, memory=self.params.memory)

    def plan_of_map(self, request: PassRequest, drawn: DrawnMap) -> Plan:
        """The plan of a map that is drawn: sizes and numbers of levels are known by now."""
        plan, columns = request.plan, request.opened.columns
        if request.finds_sizes:
            known = replace(request.parameters, features=drawn.features)
            plan = self.plan(request.reading, columns, known)
            plan = replace(plan, reduced_from=request.plan.reduced_from)
        plan = replace(plan, dtype=drawn.features.dtype)
        return self.choose_precision(plan, drawn.scales, request.reading)

    def choose_precision(self, plan: Plan, scales: Mapping[str, Array], reading: Reading) -> Plan:
        """The plan with sums as precise as the answer needs, as far as pilot and memory allow."""
        return plan

    def sum_rows(self, request: PassRequest, drawn: DrawnMap) -> tuple[Groups, int]:
        """The sums of all rows by label or fold, and how many rows were looked at."""
        reading, plan = request.reading, request.plan
        sums = SumRequest(
            drawn.features, drawn.row, plan, self.params.sample_rows, reading.places(plan)
        )
        return reading.moments(
            drawn.family.statistic(sums),
            plan,
            grouped=request.grouped,
            folds=0 if request.grouped else self.n_folds(drawn.row.n_targets),
            runs=RUNS,
            slabs=slabs_in(drawn.scales, len(request.opened.columns.inputs)),
            checkpoint=request.checkpoint,
        )

    def read(self, request: PassRequest) -> PassResult:
        """Draw the map, or take it from the checkpoint, and add up all rows."""
        drawn, request = self.begin(request)
        groups, seen = self.sum_rows(request, drawn)
        return PassResult(request, drawn, groups, seen)

    def begin(self, request: PassRequest) -> tuple[DrawnMap, PassRequest]:
        """The map, drawn or of the checkpoint, and the request with the plan of it."""
        checkpoint = request.checkpoint
        drawn = None if checkpoint is None else unpack_map(checkpoint)
        if drawn is None:
            drawn = self.draw(request)
        if checkpoint is not None:
            checkpoint.begin(drawn.row, request.plan.order, *pack_map(drawn))
        return drawn, replace(request, plan=self.plan_of_map(request, drawn))

    def read_more(
        self, fitted: Fitted, opened: Opened, row: AugmentedRow, *, grouped: bool
    ) -> tuple[Groups, int]:
        """The sums of later rows with the map of the fit, and how many were looked at."""
        held = fitted.held_bytes
        reading = Reading(opened.source, progress=self.params.progress, held_bytes=held)
        parameters = self.parameters_of(fitted)
        plan = self.plan(reading, fitted.columns, parameters)
        plan = self.choose_precision(plan, fitted.scales, reading)
        drawn = DrawnMap(fitted.features, row, fitted.scales)
        request = PassRequest(opened, reading, plan, parameters, grouped)
        groups, seen = self.sum_rows(request, drawn)
        zero = fitted.family.zero(fitted.features, row, self.order)
        return groups or {None: zero}, seen

    # -------------------------------------------------------------------- sums of batches

    def require_mergeable(self) -> None:  # noqa: B027  # most answers need the sums alone
        """Refuse more rows where the answer needs more than the sums."""

    def merge(self, groups: Mapping[Any, Any], more: Mapping[Any, Any]) -> Groups:
        """Sums by group with those of one more batch, which may be written into."""
        found = dict(groups)
        for label, part in more.items():
            found[label] = add_into(part, found[label]) if label in found else part
        return found

    def packed(self, groups: Mapping[Any, Any]) -> dict[Any, Moments]:
        """Sums as a store keeps them."""
        return dict(groups)

    def unpacked(self, groups: Mapping[Any, Moments], plain: Mapping[str, Any]) -> Groups:
        """Sums from what a store kept."""
        return dict(groups)

    # ------------------------------------------------------------------------------ answer

    @abstractmethod
    def answer(self, fitted: Fitted) -> Any:
        """A frozen result of the sums alone."""

    def answer_of_pass(self, fitted: Fitted, done: PassResult) -> Any:
        """The result of a fit, which may read the rows again."""
        return self.answer(fitted)

    @abstractmethod
    def attributes(self, fitted: Fitted) -> dict[str, Any]:
        """The result as public attributes, by their names."""

    @abstractmethod
    def pack(self, fitted: Fitted) -> Packed:
        """The result for the store: named arrays, and plain JSON."""

    @abstractmethod
    def restore(self, fitted: Fitted, packed: Packed) -> Any:
        """The result from what a store kept."""
