"""A batch is appended: its id, its files, and the commit that makes both count.

One id has one content for ever, and a forgotten id is not used again.
"""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.statistics.protocol import Packed
from rff_stream.store.array_codec import group_metadata
from rff_stream.store.canonical_json import canonical, check_plain
from rff_stream.store.commit_log import Log, Replaced
from rff_stream.store.files import Files
from rff_stream.store.log_entries import Batch, Entry, Gone, LogState, Manifest, sha256
from rff_stream.store.manifest import write_vouched
from rff_stream.store.moments_codec import (
    check_moments,
    encode_moments,
    encode_packed,
    sorted_groups,
)

Fields = dict[str, Any]
"""Fields of an entry of the log."""

COMPACTED = "compacted:"
"""How the ids of sums begin."""

LONGEST_ID = 512  # bytes


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Moments that are to be committed under an id."""

    id: str
    groups: Mapping[Any, Moments]  # label -> Moments: empty for a packed value
    labels: Mapping[str, Any] = field(default_factory=dict)
    packed: Packed | None = None  # a value of any statistic, in place of moments: for checkpoints
    seen: int = 0  # rows that were looked at for a packed value

    def checked(self, row: AugmentedRow, order: int) -> NewBatch:
        """The same with groups in the order they are stored; refuses what cannot be."""
        if self.packed is not None:
            check_plain(self.packed.plain, "a packed value")
            return self
        if not self.groups:
            raise ModelError(f"{self.id!r} has no moments. Give one Moments, or one a group.")
        groups = dict(sorted_groups(self.groups))
        for label, moments in groups.items():
            name = f"The batch {self.id!r}" + (f", group {label!r}," if len(groups) > 1 else "")
            check_moments(moments, row, order, name)
        check_plain(dict(self.labels), "labels")
        return NewBatch(self.id, groups, dict(self.labels))


class Outdated(ModelError):
    """What an append was computed for is no longer so: look again, and compute what is left."""


def checked_id(id: Any) -> str:
    """An id in its one Unicode form (NFC); refuses what cannot be one."""
    try:
        name = unicodedata.normalize("NFC", id)
        size = len(name.encode("utf-8"))
    except (TypeError, UnicodeEncodeError) as error:
        raise ModelError(f"id={id!r} is not text. Name a batch such as '2024-01-31'.") from error
    if not 1 <= size <= LONGEST_ID:
        raise ModelError(
            f"The id {name[:40]!r}… has {size:,} bytes; an id has 1 to {LONGEST_ID}. Shorten it."
        )
    return name


def is_there(state: LogState, key: str, content: str) -> bool:
    """Whether this very content was committed under this id; refuses what it must not become."""
    found: Batch | Gone | None = state.live.get(key) or state.gone.get(key)
    if found is None:
        if key.startswith(COMPACTED):
            raise ModelError(f"The id {key!r} begins as those that compact gives. Choose another.")
        return False
    if isinstance(found, Gone) and found.op == "forget":
        raise ModelError(
            f"The batch {key!r} was forgotten on {found.time} (entry {found.number}), and an id "
            "is not used twice. To count the batch again, append it under a new id."
        )
    if found.content != content:
        raise ModelError(
            f"The batch {key!r} was committed with other content on {found.time} (entry "
            f"{found.number}). An id stands for one content: append under a new id, and forget "
            "this one if it was wrong."
        )
    return True


def not_there(state: LogState, key: str) -> ModelError:
    """The error for a batch that cannot be forgotten."""
    gone = state.gone.get(key)
    if gone is None:
        known = [repr(name) for name in sorted(state.live)]
        shown = ", ".join([*known[:5], "…"] if len(known) > 5 else known)
        return ModelError(
            f"There is no batch {key!r}, so it cannot be forgotten. The store has {len(known):,} "
            f"batches{': ' * bool(known)}{shown}. Look at ids()."
        )
    what = "forgotten" if gone.op == "forget" else "compacted into a sum"
    rest = "" if gone.op == "forget" else ", which cannot be taken apart; sum the others anew"
    return ModelError(
        f"The batch {key!r} was {what} on {gone.time} (entry {gone.number}){rest}. "
        "A batch is forgotten at most once, and before it is compacted."
    )


def shared_labels(batches: Sequence[Batch]) -> dict[str, Any]:
    """Labels that all of these batches have, with one value."""
    first, *others = (batch.labels for batch in batches)
    return {
        key: value
        for key, value in first.items()
        if all(key in labels and labels[key] == value for labels in others)
    }


def commit_batch(
    log: Log, batch: NewBatch, build: Callable[[LogState, Fields], Fields | None]
) -> Entry | None:
    """Write the moments of a checked batch and commit them.

    ``build(state, fields)`` gives the fields of the entry, from what is to be said of the batch;
    None where there is nothing to do: then the moments are removed again.
    """
    fields = write_batch(log.files, batch)
    try:
        entry = log.commit(lambda state: build(state, fields))
    except (Outdated, Replaced):
        log.files.remove(f"data/{fields['data']}")
        raise
    if entry is None:
        log.files.remove(f"data/{fields['data']}")
    return entry


def write_batch(files: Files, batch: NewBatch) -> Fields:
    """Write the moments of a checked batch; returns what their commit says of them."""
    data = uuid.uuid4().hex
    folder, labels = f"data/{data}", list(batch.groups)
    manifest = write_vouched(files, _batch_contents(folder, batch))
    inside = {name.removeprefix(folder): said for name, said in manifest.items()}
    return {
        "id": batch.id,
        "groups": labels,
        "labels": dict(batch.labels),
        "rows": batch.seen + sum(int(moments.n) for moments in batch.groups.values()),
        "data": data,
        "content": _content(batch, inside),
        "files": manifest,
    }


def content_of(batch: NewBatch) -> str:
    """What the commit of a checked batch would give as its content; writes nothing."""
    files = {name: [len(data), sha256(data)] for name, data in _batch_contents("", batch)}
    return _content(batch, files)


def _content(batch: NewBatch, files: Manifest) -> str:
    """sha256 of groups, labels and files: equal for equal batches, whoever writes them."""
    plain = {"groups": list(batch.groups), "labels": dict(batch.labels), "files": files}
    return sha256(canonical(plain, "labels"))


def _batch_contents(folder: str, batch: NewBatch) -> Iterator[tuple[str, bytes]]:
    if batch.packed is not None:
        yield from encode_packed(folder, batch.packed)
        return
    yield f"{folder}/zarr.json", group_metadata({"groups": list(batch.groups)}, "groups")
    yield from encode_moments(folder, list(batch.groups.values()))
