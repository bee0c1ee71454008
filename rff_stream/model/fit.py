"""What an estimator asks of a read and how it answers (its recipe), and the fit by such a recipe.

From rows to their moments, and from rows or moments to a :class:`Fitted`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, ClassVar, Literal

from rff_stream._array import Array
from rff_stream.answers.duplicate_rows import warn_of_few
from rff_stream.errors import ModelError, PlanError
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.checkpoints import checkpoint_of_pass, description_of, kept_row
from rff_stream.execution.leaves import Tally
from rff_stream.execution.threads import few_features_blas
from rff_stream.families import DrawnMap, MapParameters, SumRequest, family_of
from rff_stream.families.maps import check_n_components, check_sample_rows, chosen_map, scale_of_map
from rff_stream.features import FeatureMap
from rff_stream.leaf_layout import n_rows_of
from rff_stream.model.fitted import Data, Fitted, Ledger
from rff_stream.model.input_rows import Opened, open_later
from rff_stream.model.serialisation import draft_in, draft_of, plain_selection, plain_value
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.moments.tree_sum import add_into
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Source, open_source
from rff_stream.sources.growth import record_of
from rff_stream.sources.variables import can_grow
from rff_stream.statistics.groups import RUNS
from rff_stream.statistics.protocol import Statistic
from rff_stream.store import Checkpoint

Groups = dict[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class PassRequest:
    """One read of all rows, before it starts."""

    opened: Opened
    reading: Reading
    plan: Plan
    grouped: bool = False  # by the labels that rows carry
    checkpoint: Checkpoint | None = None
    """Where map and finished sums are kept, or were by an earlier run."""
    before: Fitted | None = None  # the fit that a warm start goes on from

    def sums(self, statistic: Statistic, words: str) -> Tally:
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


@dataclass(frozen=True, slots=True, eq=False)
class PassRecipe(ABC):
    """What an estimator asks of a read: its rows, its map, its sums."""

    asked: Any  # estimator: only its public parameters are looked at
    announced: tuple[Any, ...] | None = None  # labels that a classifier was told to expect
    penalty: Any = None  # α as it was asked for; None where there is none
    sums: SumsDtype = "auto"  # precision of the sums
    order: Literal[1, 2] = 2  # of the moments that the answer needs

    after_the_pass: ClassVar[frozenset[str]] = frozenset()
    """Parameters that the sums do not depend on, besides ``memory`` and ``progress``."""

    # ------------------------------------------------------------------------------- rows

    def check(self) -> None:
        """Refuse parameters before anything is opened."""
        check_n_components(self.asked.n_components, self.asked.features)
        check_sample_rows(self.asked.sample_rows)

    @abstractmethod
    def open(self, data: Data) -> Opened:
        """The rows of a fit."""

    def open_more(self, fitted: Fitted, data: Data) -> Opened:
        """Rows that come later, by the columns and conditions of the fit."""
        return open_later(self.asked, fitted, data)

    @abstractmethod
    def check_columns(self, columns: Columns) -> None:
        """Refuse parameters that do not fit these inputs and targets, before a row is read."""

    # -------------------------------------------------------------------------------- map

    def choice(self, columns: Columns) -> Any:
        """``features``, where columns that choose their own are one map of the inputs."""
        return chosen_map(self.asked.features, columns.inputs)

    def map_parameters(self, columns: Columns, seed: int = 0) -> MapParameters:
        """What the map is drawn by."""
        asked = self.asked
        return MapParameters(
            self.choice(columns),
            kernel=asked.kernel,
            length_scale=getattr(asked, "length_scale", None),
            n_components=int(asked.n_components),
            dtype=asked.dtype,
            sums=getattr(asked, "sums", "auto"),
            penalty=self.penalty,
            seed=seed,
            progress=asked.progress,
        )

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
        features: FeatureMap | None = None,
        n_groups: int | None = None,
    ) -> Plan:
        """The plan of a pass: of the map to come, or of one that is drawn."""
        asked, source = self.map_parameters(columns), reading.source
        if features is not None:
            asked = replace(asked, features=features)
        family, folds = family_of(asked.features), self.n_folds(len(columns.targets))
        request = replace(
            family.request(asked.features, asked.n_components, source),
            order=self.order,
            sums=self.sums,
            dtype=asked.dtype,
            n_groups=max(folds, 1) if n_groups is None else n_groups,
        )
        request = family.foresee(request, asked, n_rows_of(source))
        return reading.plan(request, memory=self.asked.memory)

    def precise(self, plan: Plan, scales: Mapping[str, Array]) -> Plan:
        """The plan with sums as precise as the answer needs, as far as the pilot told."""
        return plan

    def add_up(self, request: PassRequest, drawn: DrawnMap) -> tuple[Groups, int]:
        """The sums of all rows by label or fold, and how many rows were looked at."""
        reading, plan = request.reading, request.plan
        sums = SumRequest(
            drawn.features, drawn.row, plan, self.asked.sample_rows, reading.places(plan)
        )
        return reading.moments(
            family_of(drawn.features).statistic(sums),
            plan,
            grouped=request.grouped,
            folds=0 if request.grouped else self.n_folds(drawn.row.n_targets),
            runs=RUNS,
            checkpoint=request.checkpoint,
        )

    def read(self, request: PassRequest) -> PassResult:
        """Draw the map, or take it from the checkpoint, and add up all rows."""
        checkpoint = request.checkpoint
        drawn = None if checkpoint is None else draft_in(checkpoint)
        if drawn is None:
            drawn = self.draw(request)
        if checkpoint is not None:
            checkpoint.begin(drawn.row, request.plan.order, *draft_of(drawn))
        request = replace(request, plan=self.precise(request.plan, drawn.scales))
        groups, seen = self.add_up(request, drawn)
        return PassResult(request, drawn, groups, seen)

    def read_more(
        self, fitted: Fitted, opened: Opened, row: AugmentedRow, *, grouped: bool
    ) -> tuple[Groups, int]:
        """The sums of later rows with the map of the fit, and how many were looked at."""
        held = fitted.held_bytes
        reading = Reading(opened.source, progress=self.asked.progress, held_bytes=held)
        plan = self.precise(self.plan(reading, fitted.columns, fitted.features), fitted.scales)
        drawn = DrawnMap(fitted.features, row, fitted.scales)
        groups, seen = self.add_up(PassRequest(opened, reading, plan, grouped), drawn)
        zero = fitted.family.zero(fitted.features, row, self.order)
        return groups or {None: zero}, seen


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(PassRecipe):
    """What an estimator's parameters mean: what it asks of a read, and how it answers from sums.

    A subclass writes the abstract methods; the functions of this room call them.
    """

    # -------------------------------------------------------------------- sums of batches

    def check_grows(self) -> None:
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
    def arrays(self, fitted: Fitted) -> dict[str, Array]:
        """The result as named arrays, for the store."""

    def plain_values(self, fitted: Fitted) -> dict[str, Any]:
        """What else the result is, as plain JSON, for the store."""
        return {}

    @abstractmethod
    def restore(self, fitted: Fitted, arrays: Mapping[str, Array], plain: Mapping[str, Any]) -> Any:
        """The result from what a store kept."""


Place = str | PathLike[str]

ANY_TIME = {"memory", "progress"}
"""Parameters of every estimator that no sum depends on."""


def fit(
    recipe: Recipe, data: Data, checkpoint: Place | None = None, before: Fitted | None = None
) -> Fitted:
    """Read the rows once, and answer from the sums as a recipe says.

    Finished sums and the map are kept at ``checkpoint``, or were by an earlier run. ``before`` is
    the fit that a warm start goes on from.
    """
    opened = open_rows(recipe, data)
    reading = Reading(opened.source, progress=recipe.asked.progress)
    counted = ledger_of(opened.source)
    plan = recipe.plan(reading, opened.columns)
    kept = None
    if checkpoint is not None:
        kept = checkpoint_of_fit(recipe, opened, data, plan, checkpoint)
    grouped = data.by is not None
    done = recipe.read(PassRequest(opened, reading, plan, grouped, kept, before))
    fitted = Fitted(
        columns=opened.columns,
        features=done.drawn.features,
        scales=done.drawn.scales,
        flat=opened.flat,
        feature_names=opened.feature_names,
        ledger=counted,
        selection=data.selection,
        token="" if kept is None else kept.token,
        fraction=1.0,
        plan=done.request.plan,
        announced=recipe.announced,
    ).with_groups(done.groups)
    if not fitted.n_rows:
        raise no_rows(opened.source)
    fitted = replace(fitted, n_missing=done.seen - fitted.n_rows)
    if data.sample_weight is not None:
        warn_of_few(fitted.n_rows, fitted.total.weight, fitted.total.squared_weight)
    with few_features_blas(fitted.features.n_components):
        return replace(fitted, answer=recipe.answer_of_pass(fitted, done))


def open_rows(recipe: Recipe, data: Data) -> Opened:
    """The rows to read, and parameters that fit them."""
    recipe.check()
    opened = recipe.open(data)
    recipe.check_columns(opened.columns)
    return opened


def checkpoint_of_fit(
    recipe: Recipe, opened: Opened, data: Data, plan: Plan, path: Place
) -> Checkpoint:
    """The checkpoint of this fit, which may exist already; refuses that of another fit."""
    later = recipe.after_the_pass | ANY_TIME
    parameters = recipe.asked.get_params(deep=False).items()
    chosen = {name: plain_value(value) for name, value in parameters if name not in later}
    chosen |= plain_selection(data.selection)
    source = opened.source
    description = description_of(source, plan, model=type(recipe.asked).__name__, **chosen)
    description["folds"] = recipe.n_folds(len(source.columns.targets))
    return Checkpoint(fspath(path), description)


def solve(recipe: Recipe, fitted: Fitted) -> Fitted:
    """The same fit with the answer from its sums.

    Raises ModelError: where the sums hold no rows.
    """
    if not fitted.n_rows:
        raise ModelError(
            "0 rows are left to answer from: the batches and groups that were chosen hold "
            "none. Choose others."
        )
    with few_features_blas(fitted.features.n_components):
        return replace(fitted, answer=recipe.answer(fitted))


def fit_moments(
    recipe: Recipe, features: FeatureMap, moments: Moments | Mapping[Any, Moments], flat: bool
) -> Fitted:
    """A model from moments that were collected: nothing is read."""
    groups = moments if isinstance(moments, Mapping) else {None: moments}
    row = next(iter(groups.values())).row
    if row.map_fingerprint != features.fingerprint:
        raise ModelError(
            f"The moments are of the map {row.map_fingerprint[:12]}…, but the one given is "
            f"{features.fingerprint[:12]}…. Give the map that they were collected with."
        )
    fitted = Fitted(
        columns=Columns(row.inputs, row.targets, row.units),
        features=features,
        scales=recipe.scales_in(features),
        flat=flat and row.n_targets <= 1,
    )
    return solve(recipe, fitted.with_groups(recipe.unpacked(groups, {})))


def ledger_of(source: Source) -> Ledger:
    """What a fit of a source counts."""
    if not can_grow(source):
        return Ledger()
    size = source.shape[0]
    return Ledger((record_of(source, source.dims[0], 0, size),)) if size else Ledger()


def collect(
    features: FeatureMap,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    by: Any = None,
    folds: int = 0,
    order: int = 2,
    sums: SumsDtype = "auto",
    inputs: Sequence[str] | None = None,
    dim: Any = None,
    missing_rows: str = "error",
    missing_chunks: str = "auto",
    sample_rows: int = 2000,
    n_groups: int = 1,
    row: AugmentedRow | None = None,
    plan: Plan | None = None,
    memory: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Any:
    """Moments of all rows, from one read: eager, same bits on any scheduler.

    Parameters
    ----------
    features : FeatureMap
        d inputs, R features.
    X, y, sample_weight, inputs, dim
        Data, as in :meth:`rff_stream.KernelRidge.fit`.
    by : str, list of str or array, optional
        Label of each row: the same read then keeps moments for each label. Several columns
        make labels such as "month=1,region=north".
    folds : int
        Number of runs of rows with their own moments, for cross-validation. This needs no extra
        work, and gives a realistic error if neighbouring rows are correlated. For random folds
        give their labels as ``by``.
    order : {2, 1}
        1 keeps only mean feature vectors.
    sums : {"auto", "float32", "float64"}
        Precision of the sums.
    missing_rows : {"error", "drop"}
    missing_chunks : {"auto", "error", "fill"}
    sample_rows : int
        Number of rows in the row sample; 0 turns it off.
    n_groups : int
        Expected number of groups, for the memory in the plan.
    row : AugmentedRow, optional
        Origins and names of the sums; by default from the pilot.
    plan : Plan, optional
        A layout to use; the same plan gives the same bits.
    memory : int, optional
        Bytes that a computing process may use.
    checkpoint : path or URL, optional
        Where finished sums are stored every 30 seconds. If the read was interrupted, the next
        call with the same arguments continues from there and gives the same bits. Remove it when
        the result is saved.
    progress : bool

    Returns
    -------
    Moments, or dict of label -> Moments if ``by`` or ``folds`` is given.

    Raises
    ------
    DataError
        Naming store, array, chunk or rows.
    PlanError
        If the pass does not fit in memory, or the plan is for other data; nothing was read.
    ModelError
        If ``row`` is of another map or of other columns, or the checkpoint of another pass.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0)
    >>> rs.collect(features, x, x[:, 0]).n
    500
    """
    missing: Any = {"missing_rows": missing_rows, "missing_chunks": missing_chunks}
    source = open_source(X, y, sample_weight, inputs=inputs, dim=dim, by=by, **missing)
    _require_fit(source, features, row, plan, order, sums)
    reading = Reading(source, progress=progress)
    family = family_of(features)
    request = replace(
        family.request(features, 0, source),
        order=order, sums=sums, dtype=features.dtype, n_groups=max(n_groups, folds),
    )  # fmt: skip
    plan = plan or reading.plan(request, memory=memory)
    chosen: dict[str, Any] = {"sample_rows": sample_rows, "folds": folds}
    kept = checkpoint_of_pass(checkpoint, source, plan, features, by=str(by), **missing, **chosen)
    row = row or kept_row(kept) or family.row(features, reading.pilot(), source.columns)
    if kept is not None:
        kept.begin(row, plan.order)
    asked = SumRequest(features, row, plan, sample_rows, reading.places(plan))
    groups, _ = reading.moments(
        family.statistic(asked), plan, grouped=by is not None, folds=folds, checkpoint=kept
    )
    if not any(moments.n for moments in groups.values()):
        raise no_rows(source)
    return groups[None] if by is None and not folds else groups


def _require_fit(
    source: Source,
    features: FeatureMap,
    row: AugmentedRow | None,
    plan: Plan | None,
    order: int,
    sums: SumsDtype,
) -> None:
    """Refuse a map, row or plan that was made for other data."""
    columns, d = source.columns, len(source.columns.inputs)
    if features.n_inputs != d:
        raise ValueError(
            f"The feature map takes {features.n_inputs} inputs but the data have {d} "
            f"({', '.join(columns.inputs)}). Name the inputs of the map with inputs=[…]."
        )
    if row is not None:
        mine = replace(
            row,
            map_fingerprint=features.fingerprint,
            inputs=columns.inputs,
            targets=columns.targets,
            units=columns.units,
        )
        if mine.fingerprint != row.fingerprint:
            raise ModelError(
                f"The row= that was given differs from the data in {row.difference(mine)}. Give "
                "data with the names and units of that AugmentedRow, or leave row= out."
            )
    if plan is not None:
        wanted = plan.sums if sums == "auto" else sums
        if (order, wanted, features.dtype) != (plan.order, plan.sums, plan.dtype):
            raise PlanError(
                f"The plan is for order={plan.order}, sums={plan.sums!r} and columns of "
                f"{plan.dtype}, but order={order}, sums={sums!r} and columns of {features.dtype} "
                "were asked for. Make the plan with these values, or leave plan= out."
            )
        ends = tuple(edges[-1] for edges in plan.layout.edges)
        planned = (ends, plan.n_features, plan.n_inputs, plan.n_targets)
        given = (source.shape, features.n_components, d, len(columns.targets))
        if planned != given:
            words = ("grid of rows", "number of features", "inputs", "targets")
            different = [w for w, a, b in zip(words, planned, given, strict=True) if a != b]
            raise PlanError(
                f"The plan is for another {' and '.join(different)}: {planned} and not {given}. "
                "Make the plan from these data and this map."
            )
