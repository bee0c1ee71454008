"""All that a fit knows, as one frozen value; and which rows it has counted."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.errors import ModelError
from rff_stream.families import Family, MapParameters, Totals, family_of
from rff_stream.features import FeatureMap
from rff_stream.moments import AugmentedRow
from rff_stream.moments.row_sample import reach_of
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Selection
from rff_stream.sources.levels import column_of_level

if TYPE_CHECKING:
    from rff_stream.model.kept_rows import KeptRows
    from rff_stream.store import ModelPlace


CHOSEN = "n_chosen"
"""Name of the number of rows that a map was chosen on, among its scales."""

UNREAD = ""
"""In place of the content of rows of a label that a fit read once."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Identities of rows that were counted: they are counted once."""

    records: tuple[Mapping[str, Any], ...] = ()
    """Row ranges along one dimension, each beginning where the one before ends; see
    :mod:`rff_stream.sources.growth`."""
    batches: Mapping[str, str] = field(default_factory=dict)
    """Hash of the content of every named batch; rows without a name are under their hash."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of every file, by its id, its name, the digest of its content, its stamp, and the ids of
    files whose place it took; see :mod:`rff_stream.sources.data_files`."""

    @classmethod
    def of(cls, labels: Iterable[Mapping[str, Any]]) -> Self:
        """A hash of the labels of some batches, whatever their order."""
        records: list[Mapping[str, Any]] = []
        batches: dict[str, str] = {}
        files: dict[str, Mapping[str, Any]] = {}
        for each in labels:
            records += each.get("records", ())
            batches |= each.get("batches", {})
            files |= each.get("files", {})
        records.sort(key=lambda record: (record["start"], record["stop"]))
        return cls(tuple(records), batches, files)

    def __add__(self, other: Self) -> Self:
        return type(self).of([self.labels(), other.labels()])

    def labels(self) -> dict[str, Any]:
        """The labels of a batch, with the ends of its rows: batches are chosen by them."""
        found: dict[str, Any] = {}
        if self.records:
            first, last = self.records[0], self.records[-1]
            found |= {"start": first["start"], "stop": last["stop"]}
            found |= {"first": first["first"], "last": last["last"]} if "first" in first else {}
            found["records"] = [dict(record) for record in self.records]
        found |= {"batches": dict(self.batches)} if self.batches else {}
        files = {id: dict(said) for id, said in self.files.items()}
        return found | ({"files": files} if files else {})

    def under(self, batch: str | None) -> Self:
        """The one batch under another name, if one is given."""
        if batch is None:
            return self
        (content,) = self.batches.values()
        return replace(self, batches={batch: content})

    def holds(self, content: str) -> bool:
        """Whether rows of this content were counted, under any name."""
        return content in self.batches.values()

    def knows(
        self, batch: str, content: str, before: Callable[[], Collection[str]], *names: str
    ) -> bool:
        """Whether this batch was counted; refuses other content under its name.

        Rows that were counted without a name are known by their content, under any name. ``before``
        gives what an older rff_stream would have called the same content, and ``names`` are what
        it may have called the batch.
        """
        known = next((self.batches[n] for n in (batch, *names) if n in self.batches), None)
        if known is None:
            return self.batches.get(content) == content
        if known == UNREAD:
            raise ModelError(
                f"The fit counted rows of {batch!r}, but it did not look at them twice, so it is "
                "not known whether these are the same rows. If they are, leave them out. If they "
                "are new, give them a name of their own: batch=…."
            )
        if known != content and known not in before():
            raise ModelError(
                f"The batch {batch!r} was counted before with other rows ({known[:12]}…, now "
                f"{content[:12]}…). A name stands for one content: give another, and forget this "
                "one in the store if it was wrong."
            )
        return True


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """One batch that was counted."""

    id: str
    groups: dict[Any, Any]
    seen: int
    ledger: Ledger
    kept: KeptRows | None = None
    """The rows of the model with these, where they are kept."""
    needs_map: bool = False
    """Whether a map is to be chosen for these rows; then there are no sums."""

    @property
    def rows(self) -> int:
        """Rows that count."""
        return sum(part.n for part in self.groups.values())

    @property
    def labels(self) -> dict[str, Any]:
        """What a store keeps beside its sums."""
        return {**self.ledger.labels(), "seen": self.seen}


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """All that a fit knows. Fitting, updating and loading each make a new one."""

    columns: Columns  # names and units of inputs and targets
    features: FeatureMap
    scales: Mapping[str, Array]  # as in DrawnMap
    answer: Any = None
    """What was solved from the sums; its class is the estimator's. None: not solved yet."""
    groups: Mapping[Any, Any] | None = None
    """By label or fold, else one under None. None for a model that was saved without."""
    n_rows: int = 0  # number of rows used
    n_missing: int = 0  # number of rows that were read but not used
    flat: bool = True  # a single target is (n,), not (n, 1)
    feature_names: tuple[str, ...] = ()
    """Of a DataFrame that was fitted; scikit-learn compares them later."""
    ledger: Ledger = field(default_factory=Ledger)  # which rows were counted
    batches: tuple[CountedBatch, ...] = ()
    """The batches that its sums are of, where a model in memory keeps them apart: each of the
    files of a fit."""
    kept: KeptRows | None = None
    """All rows so far, while they are few and the map was chosen for them; not stored."""
    forgotten: frozenset[str] = frozenset()  # ids of batches that a model in memory counts no more
    selection: Selection = field(default_factory=Selection)
    """Which rows were asked for, without the rows; see :attr:`Selection.lasting`."""
    saved_at: ModelPlace | None = None  # the store that it was loaded from, and commits to
    answer_name: str = ""
    """Under which the store keeps the answer: it says which batches the answer is of."""
    token: str = ""  # of the checkpoint of the pass; "" without one
    fraction: float | None = None  # share of the rows that were read
    plan: Plan | None = None  # of the pass; None for a model that was loaded
    history: tuple[HeldOutError, ...] = ()  # errors on held-out leaves, where a fit stopped early
    classes: tuple[Any, ...] = ()  # labels of a classifier, as they were stored
    declared_classes: tuple[Any, ...] | None = None
    """The only labels that later rows may have. None: a new label is a new class."""
    total: Any = field(init=False)

    def __post_init__(self) -> None:
        groups = None if self.groups is None else self.groups.values()
        whole = functools.reduce(operator.add, groups) if groups else None
        object.__setattr__(self, "total", whole)

    @property
    def row(self) -> AugmentedRow:
        """What the numbers of the sums mean."""
        row: AugmentedRow = self.needed_total.row
        return row

    @property
    def needed_total(self) -> Any:
        """The sum over all groups; refuses a model that has none."""
        if self.total is None:
            raise ModelError(
                "This model has no moments, so nothing can be added to them. Fit it, or load one "
                "that was saved with moments=True."
            )
        return self.total

    @property
    def held_bytes(self) -> int:
        """Bytes of its sums, of rows, and of its answer where that is large and tells its size."""
        groups = self.groups or {}
        several = self.total if len(groups) > 1 else None
        kept = 0 if self.kept is None else self.kept.nbytes
        return kept + sum(map(sys.getsizeof, (*groups.values(), several, self.answer)))

    @property
    def family(self) -> Family:
        """The family of its map."""
        return family_of(self.features)

    def totals(self, parameters: MapParameters | None = None) -> Totals:
        """The sums that an answer comes from; refuses a model that has none."""
        total = self.needed_total
        spare = 0 if self.plan is None else self.plan.spare_bytes
        return Totals(self.features, self.groups or {}, total, parameters, self.scales, spare)

    @property
    def n_inputs(self) -> int:
        """d."""
        return len(self.columns.inputs)

    @property
    def n_chosen(self) -> int:
        """Number of rows that the map was chosen on; 0 where it was not chosen."""
        return int(self.scales.get(CHOSEN, 0))

    @property
    def labels_by(self) -> Any:
        """Name(s) of the column(s) that label the rows; None where there are none, or an array."""
        return self.selection.labels_by

    @property
    def length_scale(self) -> Any:
        """In input units: a number, or one for each input."""
        scale = np.asarray(self.scales.get("length_scale", 1.0))
        return float(scale) if scale.ndim == 0 else scale

    @property
    def stored_scale(self) -> dict[str, Array]:
        """The same, as a store keeps it beside an answer."""
        return {"length_scale": np.asarray(self.length_scale, np.float64)}

    @property
    def sampled_rows(self) -> Array:
        """[x, y, w] (m, d + T + 1) of the row sample; no rows for a model that has none."""
        none = np.empty((0, self.n_inputs + len(self.columns.targets) + 1))
        return none if self.total is None else np.asarray(self.total.sample.rows)

    @property
    def row_sample(self) -> Array | None:
        """Inputs (m, d) of the sampled rows; None for a model that has none."""
        sample = self.sampled_rows
        return sample[:, : self.n_inputs] if len(sample) else None

    def need_sample(
        self, purpose: str, remedy: str = "Fit with sample_rows=2000, or save with moments=True."
    ) -> Array:
        """The sampled rows [x, y, w].

        Raises ModelError: there are none, for this purpose, with this remedy.
        """
        rows = self.sampled_rows
        if not len(rows):
            raise ModelError(
                "This model has no row sample (sample_rows=0, or saved without moments), "
                f"{purpose}. {remedy}"
            )
        return rows

    @property
    def input_range(self) -> Array | None:
        """Least and greatest value (2, d) of each input over all rows; None if not known.

        Those of the row sample where a store of before they were kept does not tell them.
        """
        sample = self.row_sample
        if sample is None or self.total is None:
            return self.scales.get("input_range")
        reach: Array | None = self.total.sample.reach
        return reach_of(sample) if reach is None else reach

    @property
    def text_columns(self) -> Array:
        """For each input 1, 2, … where it is one of all levels "sky=rain" of a column, else 0."""
        sample, names = self.row_sample, [column_of_level(name) for name in self.columns.inputs]
        found = np.zeros(len(names), np.int64)
        if sample is None:
            return self.scales.get("text_columns", found)
        for name in dict.fromkeys(filter(None, names)):
            levels = np.array([name == own for own in names])
            if (sample[:, levels].sum(axis=1) == 1).all():  # else some rows have none of them
                found[levels] = found.max() + 1
        return found

    def with_groups(self, groups: Mapping[Any, Any]) -> Self:
        """A copy with other sums and without an answer."""
        n_rows = sum(part.n for part in groups.values())
        return replace(self, groups=dict(groups), n_rows=n_rows, answer=None)
