"""How an estimator reads, draws its map and answers: what differs between the estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from rff_stream._array import Array
from rff_stream.costs import Cost
from rff_stream.execution import Reading
from rff_stream.families import DrawnMap, family_of, search_before
from rff_stream.families.maps import chosen_map
from rff_stream.features import FeatureMap
from rff_stream.layout import rows_of
from rff_stream.model.fitted import Data, Fitted
from rff_stream.model.opening import Opened
from rff_stream.model.plain import draft_in, draft_of
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Sums
from rff_stream.moments.tree_sum import add_into
from rff_stream.planning import Plan
from rff_stream.sources import Columns
from rff_stream.statistics.groups import RUNS
from rff_stream.store import Checkpoint

__all__ = ["PassResult", "Recipe"]

Groups = dict[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class PassResult:
    """What one read of the rows gave.

    Parameters
    ----------
    opened : Opened
    reading : Reading
        For estimators that read the rows again.
    draft : DrawnMap
    plan : Plan
    groups : dict of label to Sums
    seen : int
        Rows that were looked at.
    checkpoint : Checkpoint or None
    """

    opened: Opened
    reading: Reading
    draft: DrawnMap
    plan: Plan
    groups: Groups
    seen: int
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True, eq=False)
class Recipe(ABC):
    """What an estimator's parameters mean: how it reads, draws its map and answers.

    A subclass writes the abstract methods; the functions of this room call them.

    Parameters
    ----------
    asked : estimator
        Only its public parameters are looked at.
    announced : tuple or None
        Labels that a classifier was told to expect.
    """

    asked: Any
    announced: tuple[Any, ...] | None = None

    after_the_pass: ClassVar[frozenset[str]] = frozenset()
    """Parameters that the sums do not depend on, besides ``memory`` and ``progress``."""

    # ------------------------------------------------------------------------------- rows

    @abstractmethod
    def check(self) -> None:
        """Refuse parameters before anything is opened."""

    @abstractmethod
    def open(self, data: Data) -> Opened:
        """The rows of a fit."""

    @abstractmethod
    def open_more(self, fitted: Fitted, data: Data) -> Opened:
        """Rows that come later, by the columns and conditions of the fit."""

    @abstractmethod
    def check_columns(self, columns: Columns) -> None:
        """Refuse parameters that do not fit these inputs and targets, before a row is read."""

    def check_grows(self) -> None:  # noqa: B027 - most answers need nothing but the sums
        """Refuse more rows where the answer needs more than the sums."""

    # -------------------------------------------------------------------------------- map

    @property
    def n_components(self) -> int:
        """R of a map that is to be drawn."""
        return int(self.asked.n_components)

    @property
    def sums(self) -> Sums:
        """Precision of the sums."""
        return "auto"

    def choice(self, columns: Columns) -> Any:
        """``features``, where columns that choose their own are one map of the inputs."""
        return chosen_map(self.asked.features, columns.inputs)

    @abstractmethod
    def draw(self, reading: Reading, columns: Columns, before: Fitted | None) -> DrawnMap:
        """The map, drawn for the pilot, and what a row of the sums means."""

    @abstractmethod
    def scales_in(self, features: FeatureMap) -> Mapping[str, Array]:
        """What a map that was given was drawn for."""

    # ------------------------------------------------------------------------------- sums

    @property
    def order(self) -> Literal[1, 2]:
        """Of the moments that the answer needs."""
        return 2

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
        chosen = self.choice(columns) if features is None else features
        folds = self.n_folds(len(columns.targets))
        n_rows = int(rows_of(reading.source))
        request = family_of(chosen).request(chosen, self.n_components, reading.source)
        request = replace(
            request,
            cost=self.foresee(request.cost, chosen, n_rows),
            order=self.order,
            sums=self.sums,
            dtype=self.asked.dtype,
            n_groups=max(folds, 1) if n_groups is None else n_groups,
            search_seconds=self.search_seconds(chosen, n_rows),
        )
        return reading.plan(request, memory=self.asked.memory)

    def foresee(self, cost: Cost, features: Any, n_rows: int) -> Cost:
        """The cost with what is foreseen of the solve."""
        return cost

    def search_seconds(self, features: Any, n_rows: int) -> float:
        """CPU seconds of the search for length-scales, at most about."""
        kernel, scale = (getattr(self.asked, name, None) for name in ("kernel", "length_scale"))
        return search_before(features, kernel, scale, n_rows)

    def precise(self, plan: Plan, scales: Mapping[str, Array]) -> Plan:
        """The plan with sums as precise as the answer needs, as far as the pilot told."""
        return plan

    def add_up(
        self,
        reading: Reading,
        features: FeatureMap,
        row: AugmentedRow,
        plan: Plan,
        *,
        grouped: bool,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[Groups, int]:
        """The sums of all rows by label or fold, and how many rows were looked at."""
        statistic = family_of(features).statistic(
            features,
            row,
            plan,
            sample_rows=self.asked.sample_rows,
            n_places=reading.places(plan),
        )
        folds = 0 if grouped else self.n_folds(row.n_targets)
        return reading.moments(
            statistic, plan, grouped=grouped, folds=folds, runs=RUNS, checkpoint=checkpoint
        )

    def read(
        self,
        opened: Opened,
        reading: Reading,
        plan: Plan,
        grouped: bool,
        checkpoint: Checkpoint | None,
        before: Fitted | None,
    ) -> PassResult:
        """Draw the map, or take it from the checkpoint, and add up all rows."""
        draft = None if checkpoint is None else draft_in(checkpoint)
        if draft is None:
            draft = self.draw(reading, opened.columns, before)
        if checkpoint is not None:
            checkpoint.begin(draft.row, plan.order, *draft_of(draft))
        plan = self.precise(plan, draft.scales)
        groups, seen = self.add_up(
            reading, draft.features, draft.row, plan, grouped=grouped, checkpoint=checkpoint
        )
        return PassResult(opened, reading, draft, plan, groups, seen, checkpoint)

    def read_more(
        self, fitted: Fitted, opened: Opened, row: AugmentedRow, *, grouped: bool
    ) -> tuple[Groups, int]:
        """The sums of later rows with the map of the fit, and how many were looked at."""
        held = fitted.held_bytes
        reading = Reading(opened.source, progress=self.asked.progress, held_bytes=held)
        plan = self.precise(self.plan(reading, fitted.columns, fitted.features), fitted.scales)
        groups, seen = self.add_up(reading, fitted.features, row, plan, grouped=grouped)
        zero = family_of(fitted.features).zero(fitted.features, row, self.order)
        return groups or {None: zero}, seen

    def merge(self, groups: Mapping[Any, Any], more: Mapping[Any, Any]) -> Groups:
        """Sums by group with those of one more batch, which may be written into."""
        found = dict(groups)
        for label, part in more.items():
            found[label] = add_into(part, found[label]) if label in found else part
        return found

    def packed(self, groups: Mapping[Any, Any]) -> dict[Any, Moments]:
        """Sums as a store keeps them."""
        return dict(groups)

    def unpacked(self, groups: Mapping[Any, Moments], facts: Mapping[str, Any]) -> Groups:
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

    def facts(self, fitted: Fitted) -> dict[str, Any]:
        """What else the result is, as plain JSON, for the store."""
        return {}

    @abstractmethod
    def restore(self, fitted: Fitted, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Any:
        """The result from what a store kept."""
