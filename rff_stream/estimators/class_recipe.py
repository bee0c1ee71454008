"""How a classifier reads rows, sums them by class and answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.answers.calibration import probabilities
from rff_stream.answers.duplicate_rows import Neighbours
from rff_stream.answers.laplace import laplace_bytes
from rff_stream.arguments import Rule, is_number, is_string, number_or, one_of
from rff_stream.contracts import Packed, Slopes, Statistic
from rff_stream.descents.held_out_penalty import choose_alpha
from rff_stream.descents.kept_rows import AllRowsStatistic
from rff_stream.descents.statistic import LossStatistic, LossSums, SumOfRows
from rff_stream.errors import ModelError, warn
from rff_stream.estimators.regression import searched
from rff_stream.execution import Reading
from rff_stream.execution.checkpoints import remember_passes
from rff_stream.families import (
    DrawnMap,
    MapParameters,
    SumRequest,
    check_map,
    class_family_of,
    family_of,
)
from rff_stream.families.parameters import FOLDS, RULES, seed_of
from rff_stream.families.protocol import LogOdds, LossRequest
from rff_stream.features import FeatureMap
from rff_stream.losses.classification import LOSSES, loss_for
from rff_stream.model.checked_values import Target
from rff_stream.model.fitted import Fitted
from rff_stream.model.input_rows import Opened
from rff_stream.model.recipe import PassRequest, PassResult, Recipe, slabs_in, with_slabs
from rff_stream.model.serialisation import pack_map, unpack_map
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.class_moments import ClassMoments, class_row, sorted_labels
from rff_stream.pilot import PILOT_BLOCKS, Pilot
from rff_stream.planning import Plan, check_memory, fits
from rff_stream.sources import Columns, Selection
from rff_stream.statistics.groups import RUNS, ByClass, ByFold, ClassWeighted, by_label

LOSS_NAMES = ("squared", *LOSSES)

KEPT_BYTES = 2**29
"""If the features of all rows, in float64, need less, a loss keeps them and maps no row again."""

SCORES = 16
"""Columns of scores and slopes that are counted in addition."""

FEW_TO_SEARCH = 800
"""Rows up to which one map of least squares has the median length-scale, as those of other losses
mostly have: see :meth:`ClassRecipe.draw_map`."""

SEED = "seed"
"""Key of the pilot's seed in the header of a checkpoint."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassAnswer:
    """Scores of classes, and how they were found."""

    log_odds: LogOdds
    classes: tuple[Any, ...]  # labels, sorted
    class_weight: dict[Any, float]
    n_passes: int = 1
    converged: bool = True
    objective: tuple[float, ...] = ()
    last: tuple[Array, Array] | None = None
    """Coefficients and intercept before calibration, from which a warm start continues."""

    def slopes(self) -> Slopes:
        """x ↦ the slopes of the scores (d, K)."""
        return self.log_odds.slopes()

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.log_odds)


@dataclass(frozen=True, slots=True, eq=False)
class ClassPass(PassResult):
    """What one read of labelled rows gave."""

    pilot: Pilot
    """Rows on which the penalty of a loss is chosen: those of the classes of the sums, y one-hot
    over all of them."""
    class_weight: dict[Any, float]  # as it was given, or found for "balanced"


LAPLACE = Rule(
    "'sample', a number > 0 (1 is the posterior) or None",
    lambda value: is_string(value) or isinstance(value, bool) or is_number(value),
    lambda value: (
        value == "sample"
        if is_string(value)
        else value is False or bool(is_number(value) and 0 < value < np.inf)
    ),
    optional=True,
)
"""What multiplies the spread of a posterior."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassRecipe(Recipe):
    """Moments of classes by fold, and least squares or the descent of a loss."""

    target: ClassVar[Target] = "labels"

    adds_files: ClassVar[bool] = False  # classes are found in the pass of all rows

    after_the_pass: ClassVar[frozenset[str]] = frozenset(
        {"alpha", "cv", "laplace", "loss", "max_passes", "tol", "warm_start"}
    )

    rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "loss": one_of(*LOSS_NAMES),
        "alpha": number_or("sample", "cv", words="a finite number > 0, 'sample' or 'cv'"),
        "laplace": LAPLACE,
    }

    def check(self) -> None:
        params = self.params
        Recipe.check(self)
        choices = ("sample", "cv") if params.loss == "squared" else ("sample",)
        if isinstance(params.alpha, str) and params.alpha not in choices:
            raise ValueError(
                f"alpha={params.alpha!r} but for loss={params.loss!r} it is a number > 0 or "
                f"{' or '.join(map(repr, choices))}."
            )
        if params.alpha == "cv":
            FOLDS.check("cv", params.cv)
        if params.loss != "logistic" and not params.sample_rows:
            raise ValueError(
                f"sample_rows=0 but loss={params.loss!r} is calibrated on the row sample. Use "
                "sample_rows=2000, or loss='logistic'."
            )
        self.check_laplace()
        self.check_class_weight()

    def check_laplace(self) -> None:
        """Refuse a posterior where the loss has none."""
        params = self.params
        if params.laplace is None or params.laplace is False:
            return
        if params.loss != "logistic":
            raise ValueError(
                f"laplace={params.laplace!r} but loss={params.loss!r}: only the logistic loss is "
                "the logarithm of a probability, which a posterior is made of. Use loss='logistic'."
            )

    def check_class_weight(self) -> None:
        """Refuse what is not a valid weight of classes."""
        given = self.params.class_weight
        if given is None or (isinstance(given, str) and given == "balanced"):
            return
        if not isinstance(given, Mapping):
            raise ValueError(
                f"class_weight={given!r} but it must be a mapping of label to weight, 'balanced' "
                "or None."
            )
        for label, weight in given.items():
            if not 0 <= float(weight) < np.inf:
                raise ValueError(
                    f"class_weight has {weight!r} for {label!r} but weights must be finite and ≥ 0."
                )

    def check_weighted(self, labels: Sequence[Any]) -> None:
        """Refuse weights of no class where a class has none, as scikit-learn: a misspelt label."""
        given = self.params.class_weight
        if not isinstance(given, Mapping) or all(label in given for label in labels):
            return
        counted = (label for label, weight in given.items() if weight)  # 0 leaves a class out
        absent = next((label for label in counted if label not in labels), None)
        if absent is not None:
            raise ValueError(
                f"class_weight has {absent!r}, but the classes are {', '.join(map(repr, labels))}. "
                "Its keys are labels, and a class without a key has weight 1. Correct the key, or "
                "announce the class (classes=…)."
            )

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        class_family_of(parameters.features).check(self.params.loss, self.params.alpha)
        check_map(parameters, columns.inputs)

    def require_mergeable(self) -> None:
        loss, weight = self.params.loss, self.params.class_weight
        if loss != "squared" or weight == "balanced":
            what = f"loss={loss!r}" if loss != "squared" else "class_weight='balanced'"
            raise ModelError(
                f"{what} looks at every row again when rows are added or left out, so moments do "
                "not answer for it. Fit all rows again (warm_start=True is faster), or use "
                "loss='squared' without 'balanced'."
            )

    def open_more(self, fitted: Fitted, data: Selection) -> Opened:
        if data.by is not None:
            raise ValueError(
                "by= names the batch of each row, but the rows of a classifier have a class and no "
                "batch. Give one batch at a time: batch=…."
            )
        return super(ClassRecipe, self).open_more(fitted, data)

    def for_refit(self, fitted: Fitted, opened: Opened) -> Self:
        known, labels = tuple(known_classes(fitted).tolist()), opened.class_labels
        assert labels is not None  # they are in memory
        self.admit({*labels.tolist()} - {*known}, known, fitted)
        return replace(self, declared_classes=fitted.declared_classes and known)

    def plan(
        self,
        reading: Reading,
        columns: Columns,
        parameters: MapParameters,
        n_groups: int | None = None,
    ) -> Plan:
        """The same, with the features that a loss keeps where there is room for them."""
        found = super(ClassRecipe, self).plan(reading, columns, parameters, n_groups)
        if self.params.loss in ("squared", "hinge"):
            return found
        width = found.n_inputs + found.n_features + SCORES
        size = 8 * found.n_rows * width  # of float64, which small tolerances ask for
        keeping = replace(found, kept_bytes=size)
        return keeping if size <= KEPT_BYTES and fits(keeping, self.params.memory) else found

    # -------------------------------------------------------------------------------- map

    def draw(self, request: PassRequest) -> DrawnMap:
        seed = seed_of(self.params.random_state)
        return self.draw_for(request, class_pilot(request, seed)[0], seed)

    def draw_for(self, request: PassRequest, pilot: Pilot, seed: int) -> DrawnMap:
        """The map, drawn for the pilot or that of the fit before, and the row without classes."""
        before, columns = request.before, request.opened.columns
        if before is not None and before.features.n_inputs == pilot.x.shape[1]:
            features, scales = before.features, before.scales
        else:
            features, scales = self.draw_map(request, pilot, seed)
        row = row_without_classes(features, pilot, columns)
        return with_slabs(DrawnMap(features, row, scales), pilot, self.n_folds(1))

    def draw_map(
        self, request: PassRequest, pilot: Pilot, seed: int
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        """The map for the pilot, and what it was drawn for.

        One map of a loss with several reads has the median length-scale, unless the log-loss of
        held-out rows is clearly less with the map that a search of all rows found. The search is
        for exact kernels: a map in float32 cannot represent a function by very long length-scales.
        Each of d length-scales that n rows chose saves them about 1/n of log-loss (Akaike 1974); a
        search must save twice that. Of 42 fits to 21 tables of at most 800 rows the log-loss was
        better with a search in 18 and worse in 24; of 18 fits to nine tables of more rows it was
        better in 15.
        """
        columns = request.opened.columns

        def draw(of: PassRequest) -> tuple[FeatureMap, Mapping[str, Array]]:
            parameters = of.drawn_by(seed, self.params.memory)
            family = class_family_of(parameters.features)
            return family.draw(pilot, columns.inputs, parameters, of.plan)

        plain = replace(self, searches=False).map_parameters(columns)
        same = plain.kernels.rule == request.parameters.kernels.rule
        of_moments = self.params.loss == "squared"
        if same or (of_moments and len(pilot.x) > FEW_TO_SEARCH):
            return draw(request)
        median = draw(replace(request, parameters=plain))
        if of_moments or pilot.y.shape[1] < 2:
            return median
        found, (n, d) = draw(request), pilot.x.shape
        logistic = loss_for("logistic", pilot.y.shape[1])

        def log_loss(features: FeatureMap) -> float:
            row = row_without_classes(features, pilot, columns)
            return choose_alpha(features, row, pilot, logistic, None)[0].best.score

        clear = log_loss(found[0]) < log_loss(median[0]) - 2 * d / n
        return found if clear else median

    # ------------------------------------------------------------------------------- sums

    def n_folds(self, n_targets: int) -> int:
        return self.params.cv if self.params.alpha == "cv" else 0

    def read(self, request: PassRequest) -> ClassPass:
        """Pilot, map and class moments by fold, under the labels that were given."""
        plan, checkpoint = request.plan, request.checkpoint
        drawn = None if checkpoint is None else unpack_map(checkpoint)
        seed = seed_of(self.params.random_state)
        if drawn is not None and checkpoint is not None and checkpoint.store is not None:
            drawn = replace(drawn, row=class_row(drawn.row, ()))
            seed = int(checkpoint.store.header[SEED])
        pilot, labels, met = class_pilot(request, seed)
        request = replace(request, plan=self.plan_of_classes(request, len(labels)))
        if drawn is None:
            drawn = self.draw_for(request, pilot, seed)
        if request.finds_sizes:
            plan = self.plan_of_classes(request, len(labels), drawn.features)
            request = replace(request, plan=plan)
        if checkpoint is not None:
            header, arrays = pack_map(drawn)
            checkpoint.begin(drawn.row, plan.order, header | {SEED: seed}, arrays)
        parts, weights, seen = class_moments(self, request, drawn, labels)
        every = {label for part in parts.values() for label in part.labels}
        if self.declared_classes is not None:
            check_declared(every, self.declared_classes)
        labels = sorted_labels([*sorted_labels(every), *(self.declared_classes or ())])
        self.check_weighted(labels)
        parts = {fold: part.over(labels) for fold, part in parts.items()}
        return ClassPass(request, drawn, parts, seen, over_classes(pilot, met, labels), weights)

    def plan_of_classes(
        self, request: PassRequest, count: int, features: FeatureMap | None = None
    ) -> Plan:
        """The plan with the sums of so many classes, and those of the pairs of a posterior."""
        params, plan, n_groups = self.params, request.plan, 1
        if params.class_weight == "balanced":
            n_groups = max(self.n_folds(1), 1) * count
        if params.laplace:
            n_groups = max(n_groups, count * (count - 1) // 2)
        if n_groups > 1 or features is not None:
            columns, parameters = request.opened.columns, request.parameters
            if features is not None:
                parameters = replace(parameters, features=features)
            plan = self.plan(request.reading, columns, parameters, n_groups)
        if features is not None:
            plan = replace(plan, reduced_from=request.plan.reduced_from)
        if params.laplace:
            posterior = laplace_bytes(plan.n_features, 1 if count == 2 else count)
            plan = replace(plan, posterior_bytes=posterior)
            check_memory(plan, params.memory)
        return plan

    def read_more(
        self, fitted: Fitted, opened: Opened, row: AugmentedRow, *, grouped: bool
    ) -> tuple[dict[Any, ClassMoments], int]:
        known = labels_in(row, known_classes(fitted))
        held = fitted.held_bytes
        reading = Reading(opened.source, progress=self.params.progress, held_bytes=held)
        parameters = self.parameters_of(fitted)
        plan = self.plan(reading, fitted.columns, parameters)
        drawn = DrawnMap(fitted.features, class_row(row, ()), fitted.scales)
        written = known if opened.class_labels is None else ()
        request = PassRequest(opened, reading, plan, parameters)
        parts, _, seen = class_moments(self, request, drawn, written)
        new = {label for part in parts.values() for label in part.labels} - {*known}
        self.admit(new, known, fitted)
        labels = sorted_labels([*known, *new])
        return {fold: part.over(labels) for fold, part in parts.items()}, seen

    def admit(self, new: set[Any], known: tuple[Any, ...], fitted: Fitted) -> None:
        """A label that was not met before: an error where others were announced or stored."""
        if not new:
            return
        if fitted.declared_classes is not None:
            check_declared(new, known)
        warn(
            f"Label {sorted_labels(new)[0]!r} is new in this batch ({len(new)} new in all): it is "
            "a class from now on, and no earlier row belongs to it."
        )

    def merge(self, groups: Mapping[Any, Any], more: Mapping[Any, Any]) -> dict[Any, ClassMoments]:
        every = [*groups.values(), *more.values()]
        labels = sorted_labels(label for part in every for label in part.labels)
        found = Recipe.merge(self, groups, more)
        return {fold: part.over(labels) for fold, part in found.items()}

    def packed(self, groups: Mapping[Any, Any]) -> dict[Any, Moments]:
        return {fold: part.moments for fold, part in groups.items()}

    def unpacked(
        self, groups: Mapping[Any, Moments], plain: Mapping[str, Any]
    ) -> dict[Any, ClassMoments]:
        known = classes_in(plain)
        return {fold: ClassMoments(labels_in(m.row, known), m) for fold, m in groups.items()}

    # ------------------------------------------------------------------------------ answer

    def answer(self, fitted: Fitted) -> ClassAnswer:
        self.require_mergeable()
        given = self.params.class_weight
        return self.least_squares(fitted, dict(given) if given else {})

    def answer_of_pass(self, fitted: Fitted, done: PassResult) -> ClassAnswer:
        assert isinstance(done, ClassPass)
        if self.params.loss == "squared":
            found = self.least_squares(fitted, done.class_weight)
        else:
            found = self.least_loss(fitted, done)
        if isinstance(self.params.alpha, str):  # a number is the caller's own decision
            warn_of_neighbours(classes_of(fitted), found)
        return found

    def least_squares(self, fitted: Fitted, class_weight: dict[Any, float]) -> ClassAnswer:
        """Least squares on one-hot classes, its scores calibrated on the row sample."""
        whole = classes_of(fitted)
        log_odds = class_family_of(fitted.features).least_squares(
            fitted.totals(), class_weight, self.params.alpha
        )
        return ClassAnswer(log_odds, whole.labels, class_weight)

    def least_loss(self, fitted: Fitted, done: ClassPass) -> ClassAnswer:
        """Passes over the rows until the loss is least."""
        params, classes, opened = self.params, classes_of(fitted), done.request.opened
        class_weight = done.class_weight
        written = tuple(as_written(opened, label) for label in classes.labels)
        weights = {as_written(opened, label): w for label, w in class_weight.items()}
        request = LossRequest(
            fitted.features,
            done.drawn.row,
            classes,
            loss_for(params.loss, len(classes.labels)),
            written=written,
            class_weight=class_weight,
            written_weight=weights,
            sums=done.request.plan.sums,
            pilot=done.pilot,
            penalty=None if isinstance(params.alpha, str) else float(params.alpha),
            passes=passes_of(done),
            kept=rows_to_keep(done, classes, written, weights),
            start=start_of(done, classes),
            tol=params.tol,
            max_passes=params.max_passes,
            progress=params.progress,
            laplace=params.laplace or None,
        )
        found = class_family_of(fitted.features).least_loss(request)
        return ClassAnswer(
            found.log_odds,
            classes.labels,
            class_weight,
            n_passes=1 + found.passes,
            converged=found.converged,
            objective=found.objective,
            last=found.last,
        )

    def attributes(self, fitted: Fitted) -> dict[str, Any]:
        answer: ClassAnswer = fitted.answer
        return (
            searched(fitted)
            | answer.log_odds.attributes()
            | {
                "classes_": np.asarray(answer.classes),
                "class_weight_": answer.class_weight,
                "length_scale_": fitted.length_scale,
                "n_passes_": answer.n_passes,
                "converged_": answer.converged,
                "objective_": answer.objective,
            }
        )

    def pack(self, fitted: Fitted) -> Packed:
        answer: ClassAnswer = fitted.answer
        classes = np.asarray(answer.classes)
        plain = {
            "classes": classes.tolist(),
            "class_dtype": classes.dtype.str,
            "class_weight": [[label, weight] for label, weight in answer.class_weight.items()],
            "n_passes": answer.n_passes,
            "converged": answer.converged,
        }
        return Packed(plain, answer.log_odds.arrays() | fitted.stored_scale)

    def restore(self, fitted: Fitted, packed: Packed) -> ClassAnswer:
        plain = packed.plain
        log_odds = class_family_of(fitted.features).restore(fitted.features, packed.arrays)
        classes, weight = tuple(classes_in(plain).tolist()), dict(plain["class_weight"])
        return ClassAnswer(log_odds, classes, weight, plain["n_passes"], plain["converged"])


def classes_of(fitted: Fitted) -> ClassMoments:
    """The class moments of all rows; refuses a single class."""
    whole: ClassMoments = fitted.needed_total
    if len(whole.labels) < 2:
        raise ValueError(
            f"The data hold 1 class ({whole.labels[0]!r}), but a classifier needs at least "
            "two. Give rows of another class."
        )
    return whole


def class_pilot(request: PassRequest, seed: int) -> tuple[Pilot, tuple[Any, ...], tuple[Any, ...]]:
    """The pilot, y one-hot over its classes; and their labels, as rows hold them and as given."""
    rows, cells = request.plan.pilot_rows // PILOT_BLOCKS, request.plan.cost.all_cells
    pilot, labels = request.reading.class_pilot(seed, rows=rows, cells=cells)
    met = tuple(as_label(request.opened, label) for label in labels)
    return replace(pilot, classes=tuple(map(str, met))), labels, met


def over_classes(pilot: Pilot, met: tuple[Any, ...], labels: tuple[Any, ...]) -> Pilot:
    """Pilot rows of these labels, y one-hot over them; its own y is over those that it met.

    Rows of other labels, whose class has weight 0, are left out.
    """
    if met == labels:
        return pilot
    y = np.zeros((len(pilot.x), len(labels)))
    for i, label in enumerate(labels):
        if label in met:
            y[:, i] = pilot.y[:, met.index(label)]
    rows = y.any(axis=1)
    names = tuple(map(str, labels))
    return replace(pilot, x=pilot.x[rows], y=y[rows], w=pilot.w[rows], classes=names)


def warn_of_neighbours(classes: ClassMoments, answer: ClassAnswer) -> None:
    """Warn where the probabilities of sampled rows are worse than shares of their neighbours."""
    rows, d = classes.moments.sample.rows, len(classes.row.inputs)
    if not len(rows):
        return
    pilot = Pilot(rows[:, :d], rows[:, d:-1], rows[:, -1])
    p = probabilities(answer.log_odds.predictor()(pilot.x))
    neighbours = Neighbours.of((pilot.x - pilot.origin) / pilot.scale)
    if neighbours and (found := neighbours.errors(pilot.y, p, pilot.w)):
        warn(
            f"On {len(rows):,} sampled rows the Brier score is {found[0]:.3g}, and that of "
            f"{neighbours.who} is {found[1]:.3g}: the classes change faster than this model "
            "can represent. Use a shorter length_scale (or 'evidence'), more components, or a "
            "smaller alpha."
        )


def class_moments(
    recipe: ClassRecipe, request: PassRequest, drawn: DrawnMap, labels: tuple[Any, ...]
) -> tuple[dict[Any, ClassMoments], dict[Any, float], int]:
    """Class moments of each fold (or of all rows, under None), class weights, rows looked at.

    Balanced weights are chosen after the read: every label has sums of its own until then.
    """
    params, opened, folds = recipe.params, request.opened, recipe.n_folds(1)
    given = dict(params.class_weight) if isinstance(params.class_weight, Mapping) else {}
    weights = {as_written(opened, label): float(w) for label, w in given.items()}
    statistic = class_statistic(recipe, request, drawn, labels, weights)
    partial_sum = request.reading.whole(statistic, request.plan, request.checkpoint)
    groups = {
        (fold, label): part
        for fold, parts in (
            by_label(partial_sum.value) if folds else {None: partial_sum.value}
        ).items()
        for label, part in by_label(parts).items()
    }
    if params.class_weight == "balanced":
        groups, factors = balance(groups)
        given = {as_label(opened, label): factor for label, factor in factors.items()}
    named = {key: under_labels(opened, part) for key, part in groups.items()}
    every = sorted_labels(label for part in named.values() for label in part.labels)
    found: dict[Any, ClassMoments] = {}
    for (fold, _), part in sorted(named.items(), key=lambda item: str(item[0])):
        whole = part.over(every)
        found[fold] = found[fold] + whole if fold in found else whole
    return found, given, partial_sum.seen


def class_statistic(
    recipe: ClassRecipe,
    request: PassRequest,
    drawn: DrawnMap,
    labels: tuple[Any, ...],
    weights: Mapping[Any, float],
) -> Statistic:
    """Sums of labelled rows: by class where weights follow them, by fold, with weights."""
    params, plan, folds = recipe.params, request.plan, recipe.n_folds(1)
    balanced, places = params.class_weight == "balanced", request.reading.places(plan)
    known = tuple(label for label in labels if weights.get(label, 1.0) > 0)
    sums = SumRequest(
        drawn.features, drawn.row, plan, params.sample_rows, places, () if balanced else known
    )
    statistic = class_family_of(drawn.features).statistic(sums)
    statistic = ByClass(statistic) if balanced else statistic
    if folds:
        slabs = slabs_in(drawn.scales, len(request.opened.columns.inputs))
        statistic = ByFold(statistic, folds, places, RUNS, slabs)
    return ClassWeighted(statistic, weights) if weights else statistic


def balance(
    groups: Mapping[tuple[Any, Any], ClassMoments],
) -> tuple[dict[tuple[Any, Any], ClassMoments], dict[Any, float]]:
    """Sums of every label scaled so that all classes weigh the same, and the factors."""
    totals: dict[Any, float] = {}
    for (_, label), part in groups.items():
        totals[label] = totals.get(label, 0.0) + part.moments.weight
    mean = sum(totals.values()) / max(len(totals), 1)
    factors = {label: mean / weight for label, weight in totals.items()}
    return {key: part.scale(factors[key[1]]) for key, part in groups.items()}, factors


def passes_of(done: PassResult) -> SumOfRows:
    """A statistic -> its sum over all rows, or what an earlier run kept of it."""

    def read(statistic: LossStatistic) -> LossSums:
        found: LossSums = done.request.sums(statistic, "fitting").value
        return found

    checkpoint = done.request.checkpoint
    return read if checkpoint is None else remember_passes(read, checkpoint)


def rows_to_keep(
    done: ClassPass, classes: ClassMoments, labels: tuple[Any, ...], weights: Mapping[Any, float]
) -> Callable[[], tuple[Array, Array, Array]] | None:
    """What gives x, class numbers and weights of all rows; None without room for their features.

    Labels are those that the rows hold, with the weights of their classes.
    """
    if not done.request.plan.kept_bytes:
        return None
    few, d = classes.moments.kept, done.drawn.features.n_inputs

    def read() -> tuple[Array, Array, Array]:
        if few is not None:
            return few.x, few.y.argmax(axis=1), np.ones(len(few.x)) if few.w is None else few.w
        statistic = AllRowsStatistic(d, labels, weights)
        rows = done.request.sums(statistic, "keeping rows").value.rows
        return rows[:, :d], rows[:, d].astype(int), rows[:, -1]

    return read


def start_of(done: ClassPass, classes: ClassMoments) -> tuple[Array, Array] | None:
    """Coefficients of the fit before, where it goes on and knew these classes."""
    before = done.request.before
    start: ClassAnswer | None = None if before is None else before.answer
    return start.last if start is not None and start.classes == classes.labels else None


def row_without_classes(features: FeatureMap, pilot: Pilot, columns: Columns) -> AugmentedRow:
    """What a row of the sums means before classes are known."""
    bare = pilot.with_targets(np.empty((len(pilot.x), 0)))
    unlabelled = replace(columns, targets=(), units=columns.units[: len(columns.inputs)])
    return family_of(features).row(features, bare, unlabelled)


def as_written(opened: Opened, label: Any) -> Any:
    """A label as the rows hold it; None where no row holds it."""
    if opened.class_labels is None:
        return label
    found = np.flatnonzero(opened.class_labels == label)
    return int(found[0]) if len(found) else None


def as_label(opened: Opened, written: Any) -> Any:
    """The label that the rows hold in this form."""
    return written if opened.class_labels is None else opened.class_labels.tolist()[int(written)]


def under_labels(opened: Opened, part: ClassMoments) -> ClassMoments:
    """Class moments under the labels that were given."""
    if opened.class_labels is None:
        return part
    return part.renamed(tuple(as_label(opened, code) for code in part.labels))


def classes_in(plain: Mapping[str, Any]) -> Array:
    """The classes that a store knows; none for moments that were collected."""
    return np.array(plain.get("classes", []), dtype=plain.get("class_dtype", "U1"))


def known_classes(fitted: Fitted) -> Array:
    """The classes that were met, or that a store knows."""
    return np.asarray(fitted.classes if fitted.total is None else fitted.total.labels)


def labels_in(row: AugmentedRow, classes: Array) -> tuple[Any, ...]:
    """The labels that are the targets of a row, in the kind of those that are known."""
    known, kind = {str(label): label for label in classes.tolist()}, classes.dtype.kind
    return tuple(known[name] if name in known else label_of(name, kind) for name in row.targets)


def label_of(name: str, kind: str) -> Any:
    """A label of a row's target, in the kind of those that are known."""
    if kind == "U":
        return name
    if name in ("True", "False"):
        return name == "True"
    return int(name) if name.lstrip("-").isdigit() else float(name)


def check_declared(found: Collection[Any], declared_classes: Sequence[Any]) -> None:
    """Every label that was met is among those that were announced or stored."""
    new = sorted_labels({*found} - {*declared_classes})
    if new:
        raise ValueError(
            f"Label {new[0]!r} is not among the classes that were announced or stored with this "
            f"model ({', '.join(map(repr, declared_classes))}). Fit again and announce it "
            "(classes=…), or leave classes= out: in memory, a new label is then a new class."
        )
