"""Finished parts of a long fit as batches of a store: nodes of a sum, and whole passes.

Moments are stored as in every store; values of other statistics are packed. The commit of a
node replaces the nodes below it. A whole pass is stored under the sha256 of its inputs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from rff_stream._array import Array, digest
from rff_stream.contracts import Packed
from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.tree_sum import Node, covers
from rff_stream.store.atomic import remove_whole
from rff_stream.store.batch_reading import read_packed
from rff_stream.store.batch_writing import NewBatch, commit_batch
from rff_stream.store.commit_log import Batch, LogState
from rff_stream.store.files import MAX_BYTES, damage
from rff_stream.store.local import LocalFiles, open_files
from rff_stream.store.moment_store import MomentStore
from rff_stream.store.zarr_files import MAX_JSON

ID = re.compile(r"node (\d+) (\d+)")
PASS = "pass "
EMPTY, PACKED, SEEN = "empty", "packed", "seen"
"""Labels of a batch."""


class OtherPass(ModelError):
    """The checkpoint there is of another pass: names what differs."""


class Checkpoint:
    """Where a long fit keeps nodes of its sums and whole passes; nothing before the first.

    The description is what the sum depends on, by names that a person understands.

    Raises OtherPass: when the checkpoint there is of another pass: it names what differs.
    """

    def __init__(self, path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
        self._path = path
        self._description: dict[str, Any] = json.loads(json.dumps(dict(description)))
        self._header: dict[str, Any] = {}
        self._arrays: dict[str, Array] = {}
        self._row: AugmentedRow | None = None
        self._order = 2
        self._store = self._find()

    @property
    def path(self) -> str:
        """Where it lies."""
        return os.fspath(self._path)

    @property
    def token(self) -> str:
        """sha256 of the description."""
        return digest(self._description)

    @property
    def store(self) -> MomentStore | None:
        """What an earlier run left here."""
        return self._store

    def begin(
        self,
        row: AugmentedRow,
        order: int,
        header: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        """Say what the nodes mean; ``header`` and ``arrays`` are kept beside them."""
        if self._store is not None and self._store.row.fingerprint != row.fingerprint:
            raise self._differs(f"it differs in {self._store.row.difference(row)}")
        self._row, self._order = row, order
        self._header, self._arrays = dict(header or {}), dict(arrays or {})

    def nodes(self) -> dict[Node, tuple[Any, int]]:
        """Finished nodes: moments by group or a packed value, and the rows looked at for them."""
        if self._store is None:
            return {}
        live = {node: batch for batch in self._store.batches() if (node := node_of(batch.id))}
        found: dict[Node, tuple[Any, int]] = {}
        for node, batch in live.items():
            if batch.labels.get(PACKED):
                found[node] = self._pack(batch), int(batch.labels[SEEN])
        plain = {batch.id for node, batch in live.items() if node not in found}
        for batch, groups in self._store.each(lambda batch: batch.id in plain):
            node = node_of(batch.id)
            assert node is not None
            found[node] = {} if batch.labels.get(EMPTY) else groups, int(batch.labels[SEEN])
        return found

    def save(self, node: Node, value: Mapping[Any, Moments] | Packed, seen: int) -> None:
        """Commit a node in place of those below it; nothing where it is covered already."""

        def replaces(state: LogState) -> list[str] | None:
            live = {key: each for key in state.live if (each := node_of(key)) is not None}
            if id_of(node) in state.gone or any(covers(each, node) for each in live.values()):
                return None
            return sorted(key for key, each in live.items() if covers(node, each))

        self._commit(id_of(node), value, {SEEN: seen}, replaces)

    def find(self, question: str) -> Packed | None:
        """What a whole pass gave that was asked this; None where it was not asked."""
        live = {} if self._store is None else {b.id: b for b in self._store.batches()}
        batch = live.get(f"{PASS}{question}")
        return None if batch is None else self._pack(batch)

    def keep(self, question: str, value: Packed) -> None:
        """Commit what a whole pass gave; another driver may have been faster with the same.

        The question is the sha256 of all that the pass depends on. Who asks the same again, in
        the same order, goes on where it was stopped without knowing that it was.
        """
        id = f"{PASS}{question}"
        self._commit(id, value, {}, lambda state: None if id in state.live else [])

    def _commit(
        self,
        id: str,
        value: Mapping[Any, Moments] | Packed,
        labels: dict[str, Any],
        replaces: Callable[[LogState], list[str] | None],
    ) -> None:
        """One batch in place of those that ``replaces`` names; none where it gives None."""
        store = self._make()
        if isinstance(value, Packed):
            new = NewBatch(id, {}, {**labels, PACKED: True}, value, labels.get(SEEN, 0))
        elif value:
            new = NewBatch(id, value, labels)
        else:
            zero = Moments.zero(store.row, store.order)
            new = NewBatch(id, {None: zero}, {**labels, EMPTY: True})

        def build(state: LogState, fields: dict[str, Any]) -> dict[str, Any] | None:
            going = replaces(state)
            return None if going is None else {"op": "checkpoint", "replaces": going, **fields}

        commit_batch(store.log, new.checked(store.row, store.order), build)

    def _pack(self, batch: Batch) -> Packed:
        assert self._store is not None
        packed = read_packed(self._store.log, batch, MAX_BYTES)
        if packed is None:
            raise damage(self.path, batch.id, "is no packed value, but its commit says so")
        return packed

    def _find(self) -> MomentStore | None:
        """The store there, if it is of this very pass."""
        files = open_files(self._path)
        if files.find("zarr.json", MAX_JSON) is None:
            return None
        store = MomentStore.open(self._path)
        known = store.header.get("checkpoint")
        if known is None:
            raise ModelError(
                f"{files.place} is a model and no checkpoint. A checkpoint has its own path: "
                "choose another."
            )
        for name in [*known, *(name for name in self._description if name not in known)]:
            if known.get(name) != self._description.get(name):
                was, now = (json.dumps(each.get(name))[:80] for each in (known, self._description))
                raise self._differs(f"{name} was {was} and is {now}")
        return store

    def _make(self) -> MomentStore:
        """The store, made with its first node."""
        if self._store is None:
            assert self._row is not None
            try:
                self._store = MomentStore.create(
                    self._path,
                    self._row,
                    order=self._order,
                    header={"checkpoint": self._description, **self._header},
                    arrays=self._arrays,
                )
            except ModelError:  # another driver of the same pass may have been faster
                self._store = self._find()
                if self._store is None:
                    raise
        return self._store

    def _differs(self, what: str) -> OtherPass:
        place = open_files(self._path).place
        return OtherPass(
            f"{place} is the checkpoint of another pass: {what}. A pass goes on only with the "
            "same data and choices. Give those of before, or another path, or remove the "
            "checkpoint to start anew."
        )


def token_in(path: str | os.PathLike[str]) -> str | None:
    """Token of the checkpoint at a path; None where there is none."""
    if open_files(path).find("zarr.json", MAX_JSON) is None:
        return None
    known = MomentStore.open(path).header.get("checkpoint")
    return None if known is None else digest(known)


def discard(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint: it is there, or it is not; refuses to remove anything else."""
    if token_in(path) is None:
        return
    files = open_files(path)
    if isinstance(files, LocalFiles):
        remove_whole(files.root)
        return
    for name in ("zarr.json", "log", "data", "row", "map", "fitted", "answers", "passes"):
        files.remove(name)


def id_of(node: Node) -> str:
    """ "node 3 12": level and place."""
    return f"node {node[0]} {node[1]}"


def node_of(id: str) -> Node | None:
    """The node that an id names; None for others."""
    found = ID.fullmatch(id)
    return None if found is None else (int(found[1]), int(found[2]))
