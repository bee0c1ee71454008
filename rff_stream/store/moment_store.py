"""Moments of named batches: each is added exactly once, and can be removed (forgotten)."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rff_stream._array import Array
from rff_stream.errors import ModelError, warn
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.notebook_display import store_card
from rff_stream.store.batch_reading import (
    ANSWERS,
    ChosenGroups,
    SumInPlace,
    Weights,
    Where,
    answer_log,
    answers_beyond,
    batch_chooser,
    bytes_of,
    find_answer,
    find_name,
    lost_entries,
    read_batch,
    read_batches,
    read_root,
    read_weighted,
    read_whole,
    sum_by_group,
)
from rff_stream.store.batch_writing import (
    COMPACTED,
    NewBatch,
    Outdated,
    Root,
    checked_id,
    commit_batch,
    content_of,
    is_there,
    not_there,
    shared_labels,
    write_store,
)
from rff_stream.store.block_sums import (
    SUMS,
    kept_sums,
    names_of_blocks,
    read_sum,
    sorted_batches,
    sum_of_batches,
)
from rff_stream.store.commit_log import Batch, Entry, Log, LogState, Replaced, entry_name, ever
from rff_stream.store.files import CLAIMS, Files
from rff_stream.store.local import open_files
from rff_stream.store.moments_codec import Label

PARTIAL = re.compile(r"log/\d{20}/\..*\.partial")


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found where every byte verified."""

    entries: int  # commits
    batches: int  # batches that count
    rows: int  # their rows
    bytes: int  # of all files that were read
    unnamed: list[str]
    """Files that no live batch needs: forgotten, compacted, left by a process that died, or put
    there by others. ``gc`` removes those under ``data/`` when they are a day old (list of str)."""


def verify_store(files: Files, max_bytes: int | None) -> Verified:
    """Read the log from its first entry and everything live; see :meth:`MomentStore.verify`."""
    log = Log.open(files)
    history = log.history()
    if beyond := answers_beyond(log, history, files.folders(ANSWERS)):
        raise lost_entries(log, beyond)
    problems = list(_problems(log, max_bytes))
    if problems:
        more = f" … and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ModelError("\n".join(problems[:5]) + more)
    found = files.sizes("")
    named = _list_named(log, history)
    if (answer := answer_log(log, log.state.live.values())) is not None:
        start = f"{ANSWERS}/{find_name(log, log.state.live.values())}/"
        named |= {f"{start}{name}" for name in _list_named(answer, answer.history())}
    named |= {f"{SUMS}/zarr.json"}
    for sum_name in names_of_blocks(log, sorted_batches(log)).keys() & kept_sums(log):
        own = files.below(f"{SUMS}/{sum_name}")
        inside = Log.open(own) if own.folders("log") else None  # else it was never finished
        listed = set() if inside is None else _list_named(inside, inside.history())
        named |= {f"{SUMS}/{sum_name}/{name}" for name in listed}
    live = log.state.live.values()
    return Verified(
        entries=len(history),
        batches=len(live),
        rows=sum(batch.rows for batch in live),
        bytes=sum(size for name, size in found.items() if name in named),
        unnamed=sorted(found.keys() - named),
    )


def collect_garbage(log: Log, older_than: float) -> list[str]:
    """Remove old data that no live batch names; see :meth:`MomentStore.gc`."""
    state = log.current()
    live = {batch.data for batch in state.live.values()}
    gone = {batch.data: batch.number for batch in state.gone.values()}
    answer = find_name(log, state.live.values())
    removed: list[str] = []
    stayed: list[str] = []
    for name in log.files.sizes(CLAIMS):
        if log.files.age(name) > older_than:  # its process was killed
            log.files.remove(name)

    def remove(name: str) -> None:
        log.files.remove(name)
        (stayed if log.files.sizes(name) else removed).append(name)

    for data in log.files.folders("data"):
        folder = f"data/{data}"
        since = [entry_name(gone[data])] if data in gone else list(log.files.sizes(folder))
        if data in live or any(log.files.age(name) <= older_than for name in since or [folder]):
            continue
        with log.files.hold(folder) as free:  # its writer may go on, and holds it first
            if free and data not in {batch.data for batch in log.current().live.values()}:
                remove(folder)
    for name in log.files.folders(ANSWERS):
        folder = f"{ANSWERS}/{name}"
        kept = name in (log.first.answers, answer)
        if not kept and all(log.files.age(n) > older_than for n in log.files.sizes(folder)):
            remove(folder)
    blocks = names_of_blocks(log, sorted_batches(log))
    for name in kept_sums(log) - blocks.keys():
        folder = f"{SUMS}/{name}"
        if all(log.files.age(n) > older_than for n in log.files.sizes(folder)):
            remove(folder)
    for name in log.files.sizes("log"):
        if PARTIAL.fullmatch(name) and log.files.age(name) > older_than:
            log.files.remove(name)
            removed.append(name)
    if stayed:
        raise ModelError(
            f"{log.files.place}/{stayed[0]} is still there after it was removed, one of "
            f"{len(stayed)}. The model is whole: no batch needs them. Look at the right to delete "
            "there, then run again."
        )
    return removed


def _problems(log: Log, max_bytes: int | None) -> Iterator[str]:
    """What is wrong with the root and with each live batch."""
    try:
        root = read_root(log, max_bytes)
    except ModelError as error:
        yield str(error)
        return
    try:
        find_answer(log, log.state.live.values(), max_bytes)
    except ModelError as error:
        yield str(error)
    there, blocks = kept_sums(log), names_of_blocks(log, sorted_batches(log))
    for name in blocks.keys() & there:
        try:
            read_sum(log, name, blocks[name], root, max_bytes)
        except ModelError as error:
            yield str(error)
    for batch in log.state.live.values():
        try:
            read_batch(log, batch, root, max_bytes)
        except ModelError as error:
            yield str(error)


def _list_named(log: Log, history: list[Entry]) -> set[str]:
    """Every file that the log needs: its entries, the root, and what is live."""
    live = {batch.data for batch in log.state.live.values()}
    named = {entry_name(entry.number) for entry in history}
    for entry in history:
        own = f"data/{entry.data}/"
        named |= {name for name in entry.files if entry.data in live or not name.startswith(own)}
    return named


DAY = 86_400.0  # seconds

Ever = dict[str, dict[str, Any]]
"""Labels by id of every batch that was ever committed."""


class MomentStore:
    """Moments of named batches in a Zarr group; several processes can append at once.

    Make one with :meth:`create` or :meth:`open`. A model that was saved with its moments is
    a store, too. Every method includes what others committed before the call.

    Notes
    -----
    A batch counts if and only if the log has an entry for it. Nothing is ever overwritten, so a
    process that dies leaves either the previous state or the new one. The store detects every
    change of files that the log names. It cannot detect that the newest entries were deleted; for
    that, keep :attr:`head` and compare.

    Examples
    --------
    >>> import tempfile, numpy as np, rff_stream as rs
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 16, rng=0)
    >>> january = rs.collect(features, np.arange(31.0)[:, None])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = MomentStore.create(f"{folder}/months.zarr", january.row)
    ...     once, again = store.append("2024-01", january), store.append("2024-01", january)
    ...     rows = store.total(where=lambda batch: batch.id >= "2024").n
    >>> once, again, rows
    (True, False, 31)
    """

    def __init__(self, log: Log, root: Root, max_bytes: int | None) -> None:
        self._log = log
        self._root = root
        self._max_bytes = max_bytes

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        row: AugmentedRow,
        *,
        order: int = 2,
        header: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        pilot: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """A new store for moments of one meaning.

        Parameters
        ----------
        path : path or URL
            The path must not exist.
        row : AugmentedRow
            The meaning of the sums; moments with another row are refused.
        order : {1, 2}
        header : dict, optional
            Plain JSON values to keep with it.
        arrays : mapping of str to array, optional
            Arrays to keep with it, such as those of the feature map under ``map/``.
        pilot : sequence of str
            Ids of the batches that the feature map and the origins were made from.
            A warning is given if one of them is forgotten, because the map still depends on it.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.
        """
        ids = tuple(checked_id(name) for name in pilot)
        root = Root(header or {}, arrays or {}, row=row, order=order, pilot=ids)
        write_store(path, root, storage_options=storage_options)
        return cls.open(path, storage_options=storage_options)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """The store at ``path``; ``max_bytes`` bounds each batch before memory is taken.

        Raises
        ------
        ModelError
            If a model lies there that was saved without moments.
        """
        files = open_files(path, storage_options)
        log, root = read_whole(files, lambda files: _open(files, max_bytes))
        if root.row is None:
            raise ModelError(
                f"{log.files.place} is a model that was saved without moments, so it has no "
                "batches. Fit it again and save it with moments."
            )
        return cls(log, root, max_bytes)

    @property
    def log(self) -> Log:
        """The log of commits: for what is built on a store."""
        return self._log

    @property
    def row(self) -> AugmentedRow:
        """What the numbers mean."""
        assert self._root.row is not None
        return self._root.row

    @property
    def order(self) -> int:
        """Order of the moments: 1 or 2."""
        return self._root.order

    @property
    def header(self) -> dict[str, Any]:
        """Plain values the store was created with."""
        return dict(self._root.header)

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays the store was created with."""
        return dict(self._root.arrays)

    @property
    def pilot(self) -> tuple[str, ...]:
        """Ids of the batches that the feature map and the origins were made from."""
        return self._root.pilot

    @property
    def head(self) -> str:
        """sha256 of the newest commit, and so of all before it: equal heads, equal stores."""
        self._log.refresh()
        return self._log.head

    def append(
        self,
        id: str,
        moments: Moments | Mapping[Any, Moments],
        labels: Mapping[str, Any] | None = None,
        *,
        still: Callable[[Ever], bool] | None = None,
    ) -> bool:
        """Commit moments under an id, exactly once.

        Parameters
        ----------
        id : str
            Any text of at most 512 bytes. An id can never be used for other content.
        moments : Moments, or mapping of group label to Moments
        labels : dict of plain values, optional
            Labels that ``where`` of :meth:`total` can select: ``{"month": "2024-01"}``.
        still : callable, optional
            A test of the result of :meth:`ever`, made at the moment of the commit.

        Returns
        -------
        bool
            True if this call committed; False if the same content was there before.

        Raises
        ------
        ModelError
            If the id was used for other content or was forgotten, or if the moments have another
            meaning than those of the store; ``Outdated`` if ``still`` is false.
        """
        groups = moments if isinstance(moments, Mapping) else {None: moments}
        new = NewBatch(checked_id(id), groups, labels or {}).checked(self.row, self.order)
        state = self._log.current()
        if new.id in state.live or new.id in state.gone:
            return not is_there(state, new.id, content_of(new))

        def build(state: LogState, fields: dict[str, Any]) -> dict[str, Any] | None:
            if is_there(state, new.id, fields["content"]):
                return None
            if still is not None and not still(ever(state)):
                raise Outdated(
                    f"Other batches were committed to {self._log.files.place} meanwhile."
                )
            return {"op": "add", **fields}

        return commit_batch(self._log, new, build) is not None

    def ever(self) -> Ever:
        """Labels by id of every batch that was ever committed, forgotten and compacted ones too."""
        return ever(self._log.current())

    def ids(self) -> list[str]:
        """Ids of the batches that count, sorted."""
        return sorted(self._log.current().live)

    def batches(self, where: Where | None = None) -> list[Batch]:
        """The facts about each batch that need no read of its moments, sorted by id."""
        state = self._log.current()
        live, counts = state.live, batch_chooser(where, state)
        return [live[key] for key in sorted(live) if counts(live[key])]

    def sizes(self) -> dict[str, int]:
        """Bytes of each batch, by id."""
        return {batch.id: bytes_of(self._log, batch) for batch in self.batches()}

    def each(self, where: Where | None = None) -> Iterator[tuple[Batch, dict[Label, Moments]]]:
        """Batches with their moments by group, in order of id, one at a time."""
        return self._read_batches(self.batches(where))

    def total(
        self,
        where: Where | None = None,
        *,
        groups: ChosenGroups | None = None,
        weights: Weights | None = None,
    ) -> Moments:
        """Sum of all batches and groups: in order of id, from left to right, every byte verified.

        The bits depend only on the batches, not on when or by whom they were committed. If
        nothing is selected, the result is zero moments.

        Parameters
        ----------
        where : callable, collection of ids, or dict, optional
            Which batches count: a function of a :class:`Batch`, ``lambda batch: batch.rows > 100``;
            ids that count, ``store.ids()[-30:]``; or labels,
            ``{"month": slice("2024-01", "2024-06")}`` (both ends included),
            ``{"region": ["north", "south"]}``.
        groups : callable, collection of labels, or dict, optional
            Which groups count; ``{"month": [6, 7, 8]}`` for those of ``by=["month", "region"]``.
        weights : callable or dict of id to number, optional
            The weight of each batch: ``lambda batch: 0.5 ** (age(batch) / 30)`` forgets gradually.
            0 leaves a batch out.
        """
        total = SumInPlace()
        for found in self._read(where, groups, weights):
            for moments in found.values():
                total.add(moments)
        return Moments.zero(self.row, self.order) if total.value is None else total.value

    def groups(
        self,
        where: Where | None = None,
        *,
        groups: ChosenGroups | None = None,
        weights: Weights | None = None,
    ) -> dict[Label, Moments]:
        """Sum of each group over the batches, as :meth:`total` sums."""
        if where is None and groups is None and weights is None:
            return sum_of_batches(self._log, self.batches(), self._root, self._max_bytes)
        return sum_by_group(self._read(where, groups, weights))

    def forget(self, id: str) -> None:
        """Commit that a batch no longer counts; :meth:`gc` removes its bytes a day later.

        Raises
        ------
        ModelError
            If there is no such batch, or it was forgotten or compacted before; the message has the
            date.
        """
        key = checked_id(id)
        if key in self._root.pilot:
            warn(
                f"The feature map and origins of this store were made from a sample of {key!r}: "
                "its rows no longer count, but the map still depends on them. Fit a new model.",
                UserWarning,
            )

        def build(state: LogState) -> dict[str, Any]:
            if key not in state.live:
                raise not_there(state, key)
            return {"op": "forget", "id": key}

        self._log.commit(build)

    def compact(self, where: Where | None = None) -> str | None:
        """Replace batches by their sum, group by group; values do not change, up to rounding.

        A compacted batch cannot be forgotten any more, because its own moments no longer exist.

        Parameters
        ----------
        where : callable, optional
            Which batches to replace; by default all. Labels that all of them share are kept.

        Returns
        -------
        str or None
            Id of the sum; None if there are fewer than two batches.
        """
        while True:
            chosen = self.batches(where)
            if len(chosen) < 2:
                return None
            groups = sum_by_group(g for _, g in self._read_batches(chosen))
            new = NewBatch(COMPACTED, groups, shared_labels(chosen))

            def build(
                state: LogState, fields: dict[str, Any], chosen: list[Batch] = chosen
            ) -> dict[str, Any] | None:
                if any(state.live.get(batch.id) != batch for batch in chosen):
                    return None  # one was taken away meanwhile: sum again
                named = {**fields, "id": COMPACTED + fields["content"][:32]}
                return {"op": "compact", "replaces": [b.id for b in chosen], **named}

            new = new.checked(self.row, self.order)
            if (entry := commit_batch(self._log, new, build)) is not None:
                return entry.id

    def verify(self) -> Verified:
        """Read and check every byte that counts and the whole log; lists other files.

        Raises
        ------
        ModelError
            If files do not match their checksums; the message names each.
        """
        with self._log.watched():
            return verify_store(self._log.files, self._max_bytes)

    def history(self) -> list[Entry]:
        """Every commit from the first on, its chain of sha256 verified."""
        self._log.refresh()
        return self._log.history()

    def gc(self, older_than: float = DAY) -> list[str]:
        """Remove data that no live batch needs; returns what was removed.

        Parameters
        ----------
        older_than : float
            Age in seconds, since the data were written, or since their batch was forgotten or
            compacted. It must be longer than the longest append or sum of another process,
            which would otherwise lose its data.
        """
        return collect_garbage(self._log, older_than)

    def __len__(self) -> int:
        return len(self.ids())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and unicodedata.normalize("NFC", id) in self.ids()

    def __repr__(self) -> str:
        try:
            return store_card(self, self._log.files.place).line("place", "batches", "rows")
        except Replaced:
            return f"MomentStore({self._log.files.place}: no longer what was opened)"

    def _repr_html_(self) -> str:
        return store_card(self, self._log.files.place).html()

    def _read(
        self,
        where: Where | None,
        groups: ChosenGroups | None = None,
        weights: Weights | None = None,
    ) -> Iterator[dict[Label, Moments]]:
        return read_weighted(
            self._log, self.batches(where), self._root, self._max_bytes, groups, weights
        )

    def _read_batches(
        self, batches: Sequence[Batch]
    ) -> Iterator[tuple[Batch, dict[Label, Moments]]]:
        return read_batches(self._log, batches, self._root, self._max_bytes)


def _open(files: Files, max_bytes: int | None) -> tuple[Log, Root]:
    log = Log.open(files)
    return log, read_root(log, max_bytes)
