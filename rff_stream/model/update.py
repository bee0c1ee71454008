"""Counting later rows exactly once: what is new, its sums, one commit for each batch."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from rff_stream.errors import DataError, ModelError, warn
from rff_stream.execution import Reading
from rff_stream.families import DrawnMap
from rff_stream.families.level_intercepts import SHARED, shares_columns, taken_columns
from rff_stream.label_forms import former_texts
from rff_stream.model.checked_values import is_in_memory
from rff_stream.model.counted_rows import RowIdentity, batch_of_label, contents_by_label
from rff_stream.model.file_batches import (
    CountedFiles,
    FoundFiles,
    NewFile,
    chosen_ids,
    files_of,
    forget_here,
    read_file,
)
from rff_stream.model.fit import fit, refit, solve
from rff_stream.model.fitted import CountedBatch, Fitted, Ledger
from rff_stream.model.input_rows import Opened
from rff_stream.model.kept_rows import GROWTH
from rff_stream.model.persistence import keep_answer
from rff_stream.model.recipe import PassRequest, Recipe
from rff_stream.moments import AugmentedRow
from rff_stream.moments.copies import FEWEST_AGAIN, share_counted, share_of_sample_counted
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources import Selection, Source
from rff_stream.sources.container_types import is_names
from rff_stream.sources.data_files import DataFile
from rff_stream.sources.growth import PartSource, check_unchanged, growth_of, record_of
from rff_stream.sources.levels import column_of_level
from rff_stream.sources.variables import can_grow
from rff_stream.store import (
    Batch,
    MomentStore,
    Outdated,
    Replaced,
    answer_name,
    is_answered,
    keep_sums,
)
from rff_stream.store.batch_writing import checked_id

Groups = dict[Any, Any]
AGAIN, MOST_OF_THEM = 0.9, 0.5
"""Share of known rows that come again in data that have grown, which hold all that were counted, at
their places (by chance so many agree only where rows hardly differ); share of the new rows where
some come again in another order or container."""

MOST_COMPARED = 2**16
"""Rows that are compared, of those that are kept: about .1 s."""

ATTEMPTS = 100  # of a read that others' commits undo: as many must come before it gives up


@dataclass(frozen=True, slots=True)
class Update:
    """What an update found: batches, what is not written yet, and files that were counted."""

    added: tuple[CountedBatch, ...] = ()
    waiting: str = ""
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LaterRows:
    """Rows that may be new, and how they are named: all as a batch, by labels, or by files."""

    data: Selection
    batch: str | None = None
    by: str | None = None
    replaces: bool = False
    """Whether a file that changed is counted in place of what it was."""

    def __post_init__(self) -> None:
        if self.batch is not None:
            object.__setattr__(self, "batch", checked_id(self.batch, "batch"))
        by: Any = self.by
        if by is not None and not (isinstance(by, str) or is_names(by)):
            raise ValueError(
                f"by is a {type(by).__name__} of labels, but batches are known by the name of "
                "the column that labels their rows. Give the labels as a column of X, and by= the "
                "name of the column."
            )

    def files(self) -> list[DataFile] | None:
        """The files that rows are in; None where they are in a store, or are named."""
        return None if self.batch or self.by else files_of(self.data)


def update(recipe: Recipe, fitted: Fitted, later: LaterRows) -> Fitted:
    """Count what is new and answer from all; see :meth:`rff_stream.KernelRidge.update`."""
    row = fitted.row  # refuses a model without sums
    recipe.require_mergeable()
    if fitted.saved_at is None:
        files = later.files()
        if files is not None:
            return add_files(recipe, fitted, later, files)
        added = NewRowFinder(recipe, fitted, fitted.ledger, row, later).read().added
        warn_of_unread(fitted, added)
        warn_of_rows_again(fitted, added, later)
        return add_batches(recipe, fitted, added)
    store = fitted.saved_at.open()
    added = ingest(recipe, fitted, store, later).added
    warn_of_unread(fitted, added)
    with after_commit("The new rows are counted" if added else ""):
        solved = answered(recipe, fitted, store)
    warn_of_rows_again(solved, added, later, counted=True)  # what was replaced is forgotten
    return solved


def warn_of_unread(fitted: Fitted, added: Sequence[CountedBatch]) -> None:
    """Warn where nothing is added to a fit that has read some of its rows."""
    if not added and fitted.fraction is not None and fitted.fraction < 1:
        warn(
            f"No row was counted: the fit knows all of these rows, and stopped when it had read "
            f"{fitted.fraction:.0%} of its own. Fit them without until or stream to count them all."
        )


def warn_of_rows_again(
    fitted: Fitted, added: Sequence[CountedBatch], later: LaterRows, *, counted: bool = False
) -> None:
    """Warn where rows that were counted are among what was added, as far as samples of both tell.

    The fit has ``counted`` what was added, or not yet. Not where rows were named: other names are
    other batches.
    """
    total = fitted.total
    if later.batch is not None or later.by is not None or total is None:
        return
    known, n = total.sample, total.n
    t = len(fitted.columns.targets)
    if counted:
        for batch in added:
            known, n = known - _sample_of(batch), n - batch.rows
    for batch in added:
        new = _sample_of(batch)
        is_alike = new.rows.shape[1] == known.rows.shape[1]  # or there are none, or a class more
        again = _kept_again(fitted, batch, t)
        if is_alike and not again:
            again = _rows_again(known, n, new, batch.rows, t)
        if again:
            warn(
                f"{again}, so they count twice now. Rows are known by their file or store, in "
                "memory all together, and in one kind of container: give only new rows, grow a "
                "file or store, or name them, batch=…, if they are to count. forget takes out a "
                "batch of a file or store."
            )
        if is_alike:
            known, n = known + new, n + batch.rows


def _sample_of(batch: CountedBatch) -> RowSample:
    """Rows of a batch; none where it has no sums."""
    samples = [part.sample for part in batch.groups.values()]
    return functools.reduce(operator.add, samples) if samples else RowSample.empty(0, 0)


def _rows_again(known: RowSample, n: int, new: RowSample, count: int, n_targets: int) -> str:
    """How many of n rows, of which some are known, come again, at their old places or anywhere."""
    share, of = known.share_in(new)
    if of >= FEWEST_AGAIN and share >= AGAIN:
        return (
            f"{share:.0%} of {of:,} sampled rows that were counted before stand at the same "
            f"places in these {count:,} rows"
        )
    return _words_for_share(*share_of_sample_counted(known, n, new, n_targets), count)


def _kept_again(fitted: Fitted, batch: CountedBatch, n_targets: int) -> str:
    """The same of all rows, where those of the model are kept."""
    if fitted.kept is None or batch.kept is None or batch.kept.y.ndim == 1:  # labels
        return ""
    n, x, y = len(fitted.kept), batch.kept.x, batch.kept.y
    few = slice(None, None, -(-len(x) // MOST_COMPARED))
    rows = np.column_stack([x, y])
    return _words_for_share(*share_counted(rows[:n][few], n, rows[n:][few], n_targets), len(x) - n)


def _words_for_share(share: float, of: int, count: int) -> str:
    """The words for a share of so many rows that come again; "" where it is small."""
    if share < MOST_OF_THEM:
        return ""
    return (
        f"About {min(share, 1):.0%} of these {count:,} rows have the inputs and targets of rows "
        f"that were counted before, as {of:,} sampled ones have"
    )


def forget(recipe: Recipe, fitted: Fitted, names: Sequence[str]) -> Fitted:
    """The model without some batches; see :meth:`rff_stream.KernelRidge.forget`."""
    recipe.require_mergeable()
    if fitted.saved_at is None:
        return solve(recipe, forget_here(recipe, fitted, names))
    store = fitted.saved_at.open()
    forget_in(store, names)
    with after_commit("The batches are forgotten"):
        return answered(recipe, fitted, store)


def forget_in(store: MomentStore, names: Sequence[str]) -> list[str]:
    """Forget batches of a store by id, name or file; their ids. All are known before one goes."""
    ids = chosen_ids(names, {batch.id: batch.labels for batch in store.batches()})
    for id in ids:
        store.forget(id)
    return ids


@contextlib.contextmanager
def after_commit(done: str) -> Iterator[None]:
    """Say in an error of the store what was done before it, if anything: it is not done again."""
    try:
        yield
    except Replaced:  # what was committed went with the model that was there
        raise
    except ModelError as error:
        if not done:
            raise
        raise ModelError(
            f"{done}, but the model could not be solved: {error} Once this is mended, rs.load "
            "solves it; nothing has to be counted or forgotten again."
        ) from error


def answered(recipe: Recipe, fitted: Fitted, store: MomentStore) -> Fitted:
    """The answer from what a store holds now, which is kept there."""
    with store.log.watched():
        fitted, batches = as_stored(recipe, fitted, store)
        if not is_answered(store.log):
            keep_answer(recipe, fitted, store, batches)
        return fitted


def partial_fit(
    recipe: Recipe, fitted: Fitted | None, data: Selection, batch: str | None
) -> Fitted:
    """One more batch of rows; the first one makes the map, unless one was given."""
    batch = None if batch is None else checked_id(batch, "batch")
    if batch is not None and not is_in_memory(data.X):
        raise ModelError(
            f"A batch by name needs rows in memory, but X is a {type(data.X).__name__}. Use "
            "update()."
        )
    if fitted is None:
        first = fit(recipe, data)
        return replace(first, ledger=first.ledger.under(batch))
    recipe.require_mergeable()
    store = None if fitted.saved_at is None else fitted.saved_at.open()
    ledger = fitted.ledger if store is None else Ledger.of(store.ever().values())
    opened, mine = recipe.open_more(fitted, data), Ledger()
    if opened.in_memory:
        identity = RowIdentity.of(opened, data, ledger)
        mine = identity.under(batch)
        if batch is not None and identity.is_counted(ledger, batch):
            return fitted if store is None else as_stored(recipe, fitted, store)[0]
    row = fitted.row if store is None else store.row
    id = batch or f"batch {uuid.uuid4().hex}"
    counted = count_rows(recipe, fitted, opened, row, CountedBatch(id, {}, 0, mine))
    if store is not None:
        store.append(id, recipe.packed(counted.groups), counted.labels)
        return as_stored(recipe, fitted, store)[0]
    return add_batches(recipe, fitted, (counted,))


def count_rows(
    recipe: Recipe,
    fitted: Fitted,
    opened: Opened,
    row: AugmentedRow,
    batch: CountedBatch,
    *,
    grouped: bool = False,
) -> CountedBatch:
    """A batch with the sums of its rows; without sums where the map is to be chosen again."""
    kept, before = None, fitted.kept
    if before is not None and len(before) == fitted.n_rows:  # else others came or went since
        more = opened.rows_to_keep
        kept = None if more is None else before + more
    if kept is not None and (
        len(kept) >= GROWTH * fitted.n_chosen or shares_columns(fitted.features, kept.x)
    ):
        return replace(batch, seen=opened.source.n_rows or 0, kept=kept, needs_map=True)
    groups, seen = recipe.read_more(fitted, opened, row, grouped=grouped)
    return replace(batch, groups=groups, seen=seen, kept=kept)


def ingest(recipe: Recipe, fitted: Fitted, store: MomentStore, later: LaterRows) -> Update:
    """Count what is new in a store; the model need not be solved.

    Whoever commits first wins; who comes second looks again at what is left.
    """
    files = later.files()
    if files is not None:
        found = new_files(store, later, files)
        new = [count_file(recipe, fitted, store, later.data, each) for each in found.new]
        counted = tuple(each for each in new if each is not None)
        return Update(counted, ", ".join(found.waiting), found.known)
    added: list[CountedBatch] = []
    for _ in range(ATTEMPTS):
        ledger = Ledger.of(store.ever().values())
        looked = NewRowFinder(recipe, fitted, ledger, store.row, later).read()
        try:
            for each in looked.added:
                groups = recipe.packed(each.groups)
                if store.append(each.id, groups, each.labels, still=follows(each.ledger)):
                    added.append(each)
            return Update(tuple(added), looked.waiting)
        except Outdated:
            continue
    raise changed_too_often(store)


def new_files(store: MomentStore, later: LaterRows, files: Sequence[DataFile]) -> FoundFiles:
    """Which of these files a store has not counted."""
    ever, gone = store.ever(), store.log.current().gone
    held = {id: labels.get("files", {}) for id, labels in ever.items()}
    forgotten = {f for id in held if id in gone and gone[id].op == "forget" for f in held[id]}
    together = {f for id in held if id in gone or [*held[id]] != [id] for f in held[id]}
    counted = CountedFiles(Ledger.of(ever.values()).files, forgotten, together)
    return counted.new_among(files, later.data.storage_options, replaces=later.replaces)


def count_file(
    recipe: Recipe, fitted: Fitted, store: MomentStore, data: Selection, new: NewFile
) -> CountedBatch | None:
    """Read one file and commit it, after what it replaces is forgotten; None if another did."""
    added = read_file(recipe, fitted, store.row, data, new)

    def still(ever: Mapping[str, Mapping[str, Any]]) -> bool:
        """Nobody counted another content under this name since it was looked for."""
        return not any(
            each["name"] == new.file.name and file not in new.counted
            for id in store.log.state.live
            for file, each in ever[id].get("files", {}).items()
        )

    forget_in(store, [id for id in new.replaces if id in store])
    done = store.append(added.id, recipe.packed(added.groups), added.labels, still=still)
    return added if done else None


def add_files(
    recipe: Recipe, fitted: Fitted, later: LaterRows, files: Sequence[DataFile]
) -> Fitted:
    """A model in memory with the files that it has not counted."""
    apart = {each.id for each in fitted.batches if [*each.ledger.files] == [each.id]}
    together = fitted.ledger.files.keys() - apart
    known = CountedFiles(fitted.ledger.files, fitted.forgotten, together)
    options = later.data.storage_options
    found = known.new_among(files, options, replaces=later.replaces)
    added = [read_file(recipe, fitted, fitted.row, later.data, new) for new in found.new]
    gone = [id for new in found.new for id in new.replaces]
    before = forget_here(recipe, fitted, gone) if gone else fitted
    warn_of_rows_again(before, added, later)
    return add_batches(recipe, before, tuple(added))


def changed_too_often(store: MomentStore) -> ModelError:
    """The error of a store to which others commit all the time."""
    return ModelError(f"{store!r} changed {ATTEMPTS} times during an update. Run it again.")


def follows(mine: Ledger) -> Any:
    """Truth of "these rows come right after those that were counted"."""

    def still(ever: Mapping[str, Mapping[str, Any]]) -> bool:
        known = Ledger.of(ever.values())
        start = mine.records[0]["start"] if mine.records else None
        stop = known.records[-1]["stop"] if known.records else 0
        return start is None or start == stop

    return still


def as_stored(recipe: Recipe, fitted: Fitted, store: MomentStore) -> tuple[Fitted, list[Batch]]:
    """The answer from what the store holds now, and from which batches it is.

    Others may commit while it is read: then it is read again, at most ``ATTEMPTS`` times.
    """
    for _ in range(ATTEMPTS):
        batches = store.batches()
        saved_at = None if fitted.saved_at is None else fitted.saved_at.at(store)
        answer, ledger = answer_name(store.log, batches), Ledger.of(store.ever().values())
        fitted = replace(fitted, saved_at=saved_at, ledger=ledger)
        if answer == fitted.answer_name:
            return fitted, batches
        if saved_at is not None:
            keep_sums(saved_at, store)
        groups = store.groups()
        if store.batches() == batches:
            break
    else:
        raise changed_too_often(store)
    groups = recipe.unpacked(groups, store.header["fitted"])
    solved = solve(recipe, fitted.with_groups(groups))
    warn_if_outgrown(recipe, fitted, solved)
    warn_of_shared_columns(fitted, solved)
    warn_of_levels_without_input(fitted, solved)
    missing = sum(int(b.labels.get("seen", b.rows)) - b.rows for b in batches)
    return replace(solved, answer_name=answer, n_missing=missing), batches


def add_batches(recipe: Recipe, fitted: Fitted, added: tuple[CountedBatch, ...]) -> Fitted:
    """A model in memory with some batches more, and its answer."""
    if not added:
        return fitted
    if added[0].needs_map:
        again = refit(recipe, fitted, added[0])
        warn_of_levels_without_input(fitted, again)
        return again
    kept = added[0].kept if len(added) == 1 else None
    assert fitted.groups is not None
    groups, ledger, apart = fitted.groups, fitted.ledger, fitted.batches
    apart = (*apart, *copy.deepcopy(added)) if apart else ()  # sums are added into others
    for each in added:
        groups, ledger = recipe.merge(groups, each.groups), ledger + each.ledger
    missing = fitted.n_missing + sum(each.seen - each.rows for each in added)
    solved = solve(recipe, fitted.with_groups(groups))
    warn_if_outgrown(recipe, fitted, solved)
    warn_of_shared_columns(fitted, solved)
    warn_of_levels_without_input(fitted, solved)
    return replace(solved, ledger=ledger, n_missing=missing, batches=apart, kept=kept)


def warn_if_outgrown(recipe: Recipe, before: Fitted, after: Fitted) -> None:
    """Warn where a map that was chosen for few rows has four times as many by now, or 16, 64, ….

    Cells are drawn once: later rows add to their sums, and do not divide them.
    """
    if "choice" not in after.scales or not isinstance(recipe.params.features, str):
        return  # not chosen, or of sizes that were asked for
    was, now = (
        max(each.family.growth(each.features, each.n_rows), 1.0) for each in (before, after)
    )
    if int(np.log2(now) / 2) > int(np.log2(was) / 2):
        warn(
            f"The map was chosen for fewer rows than the {after.n_rows:,} by now: a fit to all of "
            f"them would have {now:.0f} times as many columns, and a smaller error. An update adds "
            "rows to the map as it is. Fit all rows again."
        )


def doublings(share: float) -> int:
    """How often it has doubled since the share that is warned of; −1 below."""
    return int(np.log2(share / SHARED)) if share >= SHARED else -1


def warn_of_shared_columns(before: Fitted, after: Fitted) -> None:
    """Warn where 1/16 of the columns for new levels holds rows by now, or 1/8, 1/4, 1/2, all."""
    was, now = (taken_columns(each.features, each.total) for each in (before, after))
    for place, (share, taken, spare) in now.items():
        earlier, *_ = was.get(place, (0.0,))
        if share < SHARED or doublings(share) <= doublings(earlier):
            continue
        name = column_of_level(after.columns.inputs[place])
        warn(
            f"{name!r} has new levels: rows of them are in {taken} of the {spare} columns that are "
            "kept for levels without rows in the fit. Two of them may share a column, and a level "
            f"that comes later has the mean of another one with probability {share:.0%}, which its "
            "standard deviation does not say. Fit all rows again: then each has its own column."
        )


def warn_of_levels_without_input(before: Fitted, after: Fitted) -> None:
    """Warn where rows first come that have none of the levels of a column, each an input."""
    had, sample, names = before.text_columns, after.row_sample, after.columns.inputs
    if sample is None:
        return
    for column in range(1, int(had.max(initial=0)) + 1):
        none = sample[:, had == column].sum(axis=1) == 0
        if none.any():
            name = column_of_level(names[int(np.argmax(had == column))])
            warn(
                f"{none.mean():.2%} of the rows have a value of {name} by now that no row of the "
                "fit had. All inputs made of it are 0 there: to the map these values are one, and "
                "nearer to each level than levels are to each other, so that predictions of all "
                "levels can be wrong. Fit all rows again: then each value has an input."
            )


@dataclass(frozen=True, slots=True, eq=False)
class NewRowFinder:
    """Rows of later data that a ledger, of a model or of its store, does not hold yet.

    Each ``read`` is a pass over data; sums are of this ``row``.
    """

    recipe: Recipe
    fitted: Fitted
    ledger: Ledger
    row: AugmentedRow
    later: LaterRows

    def read(self) -> Update:
        """New rows of growing data, new labels, or all rows as one batch."""
        later = self.later
        if later.batch is not None and later.by is not None:
            raise ValueError(
                "batch= and by= were both given: name all rows, or label each. Use one."
            )
        data = replace(later.data, by=later.by or self.fitted.labels_by)
        opened = self.recipe.open_more(self.fitted, data)
        grown = self.growing(opened)
        if grown is not None:
            return self.read_growth(grown)
        if later.by is not None:
            return Update(tuple(self.read_labels(opened, later.by)))
        if later.batch is not None or not can_grow(opened.source):
            return Update(tuple(self.read_batch(opened, data)))
        raise ModelError(
            "It is not known which rows this model has counted: it was not fitted on growing "
            "data (a Zarr store, or xarray opened without chunks). Name the new rows: batch=…."
        )

    def growing(self, opened: Opened) -> Opened | None:
        """The growing data of the fit, whose rows are known by their place; None for other data.

        Raises DataError: where neither a batch nor labels are named and what was counted has
        changed.
        """
        later, records = self.later, self.ledger.records
        if not (records and can_grow(opened.source)):
            return None
        if later.batch is None and later.by is None:
            check_unchanged(opened.source, records)
            return opened
        try:
            by = self.fitted.labels_by
            if later.by not in (None, by):
                opened = self.recipe.open_more(self.fitted, replace(later.data, by=by))
            check_unchanged(opened.source, records)
        except DataError:
            return None
        return opened

    def read_growth(self, opened: Opened) -> Update:
        """Rows that growing data have after those counted."""
        source = opened.source
        growth = growth_of(source, self.ledger.records, self.recipe.params.missing_chunks)
        if growth.stop <= growth.start:
            return Update(waiting=growth.waiting)
        part: Source = PartSource(source, growth.dim, growth.start, growth.stop)
        record = record_of(source, growth.dim, growth.start, growth.stop)
        groups, seen = self.read_sums(replace(opened, source=part))
        id = f"{growth.dim} {growth.start}:{growth.stop}"
        return Update((CountedBatch(id, groups, seen, Ledger((record,))),), growth.waiting)

    def read_batch(self, opened: Opened, data: Selection) -> Iterator[CountedBatch]:
        """All rows, under their name; those in memory without named dimensions need none."""
        batch = self.later.batch
        if batch is None and not opened.are_loaded:
            raise ModelError(
                f"It is not known which rows of this {type(data.X).__name__} are new: its values "
                "are computed when they are read. Open the data without chunks (a Zarr path, "
                "chunks=None), or name the rows: batch=…."
            )
        identity = RowIdentity.of(opened, data, self.ledger)
        if not identity.is_counted(self.ledger, batch):
            if batch is None and not opened.in_memory:  # part of them may be what was counted
                raise ModelError(
                    f"It is not known which rows of this {type(data.X).__name__} are new: labelled "
                    "data in memory are known all together, and these were not counted as they "
                    "are. Give the new rows alone, under a name: batch=…."
                )
            new = CountedBatch(batch or identity.content, {}, 0, identity.under(batch))
            grouped = self.fitted.labels_by is not None
            yield count_rows(self.recipe, self.fitted, opened, self.row, new, grouped=grouped)

    def read_labels(self, opened: Opened, by: str) -> Iterator[CountedBatch]:
        """Every label that is not known as a batch of its own."""
        recipe, fitted = self.recipe, self.fitted
        data = replace(self.later.data, by=fitted.labels_by)
        whole = RowIdentity.of(recipe.open_more(fitted, data), data, self.ledger)
        if self.ledger.holds(whole.content):
            return
        reading = Reading(opened.source, progress=recipe.params.progress)
        parameters = recipe.parameters_of(fitted)
        plan = recipe.plan(reading, fitted.columns, parameters)
        request = PassRequest(opened, reading, plan, parameters, grouped=True)
        new = self.new_labels(request, by)
        if not new:
            return
        groups, _ = recipe.sum_rows(request, DrawnMap(fitted.features, self.row, fitted.scales))
        for label, (name, content) in new.items():
            kept = {label if fitted.labels_by is not None else None: groups[label]}
            yield CountedBatch(name, kept, groups[label].n, Ledger(batches={name: content}))

    def new_labels(self, request: PassRequest, by: str) -> dict[Any, tuple[str, str]]:
        """Labels that are not known as batches, with the name and the content of each."""
        every = cache(partial(contents_by_label, request, as_before=True))

        def former(label: Any) -> tuple[str, ...]:
            return (every()[label],)

        new = {}
        for label, content in sorted(contents_by_label(request).items()):
            name = batch_of_label(by, label)
            older = [f"{by}={text}" for text in former_texts(label)]
            if not self.ledger.knows(name, content, partial(former, label), *older):
                new[label] = name, content
        return new

    def read_sums(self, opened: Opened) -> tuple[Groups, int]:
        """Sums of all rows by the labels of the fit, and how many were looked at."""
        grouped = self.fitted.labels_by is not None
        return self.recipe.read_more(self.fitted, opened, self.row, grouped=grouped)
