"""Entries of the log: each is one JSON text that includes its own hash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.store.array_codec import group_metadata
from rff_stream.store.canonical_json import canonical, dump, parse, parse_loosely
from rff_stream.store.files import damage
from rff_stream.store.moments_codec import Label

FORMAT = 1
"""The newest format this build reads, and the one it writes."""

Manifest = dict[str, list[Any]]
"""Name of a file -> [bytes, sha256]."""

OPS = ("create", "add", "forget", "compact", "checkpoint")
PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
NAME = re.compile(rf"(?:{PART}/){{0,7}}{PART}")


@dataclass(frozen=True, slots=True)
class Batch:
    """Moments under one id, as a commit left them."""

    id: str
    groups: tuple[Label, ...]  # labels of the groups its moments are kept by
    labels: dict[str, Any]  # what the caller said about the batch as a whole
    rows: int
    data: str  # its folder under ``data/``
    content: str  # sha256 of what it holds: groups, labels and every file
    number: int  # of its entry in the log
    commit: str  # sha256 of that entry
    time: str  # when it was committed, by the clock of its writer


@dataclass(frozen=True, slots=True)
class Gone:
    """What is remembered of a batch that is no longer there by itself."""

    op: str
    number: int
    time: str
    content: str
    data: str
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One commit."""

    number: int  # its place in the log; the order of all commits
    op: str  # {"create", "add", "forget", "compact", "checkpoint"}
    time: str  # for people only: clocks jump
    nonce: str  # tells two writers apart who commit the same
    previous: str | None  # sha256 of the entry before
    files: Manifest = field(default_factory=dict)
    """Every file this commit vouches for: name -> [bytes, sha256] (dict)."""
    id: str | None = None
    """Of its batch, as in :class:`Batch`; ``id`` alone for forget; None without a batch."""
    groups: list[Label] | None = None
    labels: dict[str, Any] | None = None
    rows: int | None = None
    data: str | None = None
    content: str | None = None
    replaces: list[str] = field(default_factory=list)  # list of str: ids whose sum the batch is
    answers: str | None = None  # folder under ``answers/``
    state: dict[str, Any] | None = None
    """Every 128th entry: all that is live and gone before it, and sha256 of entry 0."""

    def to_bytes(self) -> bytes:
        """``zarr.json`` of the group that is this commit."""
        plain = {"format": FORMAT, **{name: getattr(self, name) for name in FIELDS}}
        own = sha256(canonical(plain, f"entry {self.number}"))
        return group_metadata({**plain, "sha256": own}, f"entry {self.number}")

    @classmethod
    def from_bytes(cls, data: bytes, place: str, name: str) -> Entry:
        """The entry that a file holds; refuses one that is not whole or not understood."""
        where = f"{place}/{name}"
        check_format(parse_loosely(data, where), place, name)
        whole = parse(data, where)
        plain = whole.pop("attributes")
        if whole != {"zarr_format": 3, "node_type": "group"}:
            raise damage(place, name, f"has {sorted(whole)} beside the attributes of an entry")
        if plain.pop("sha256", None) != sha256(dump(plain)):
            raise damage(place, name, "does not have the sha256 that it gives for itself")
        del plain["format"]
        wrong = [key for key, fits in FIELDS.items() if key not in plain or not fits(plain[key])]
        if wrong or plain.keys() != FIELDS.keys():
            strange = wrong or sorted(plain.keys() - FIELDS.keys())
            raise damage(place, name, f"has no fitting {strange[0]!r} for an entry of the log")
        entry = cls(**plain)
        entry._check_names(place, name)
        return entry

    def batch(self, commit: str) -> Batch | None:
        """The batch it adds; ``commit`` is the sha256 of the entry."""
        if self.data is None:
            return None
        return Batch(
            id=str(self.id),
            groups=tuple(self.groups or ()),
            labels=dict(self.labels or {}),
            rows=int(self.rows or 0),
            data=self.data,
            content=str(self.content),
            number=self.number,
            commit=commit,
            time=self.time,
        )

    def _check_names(self, place: str, name: str) -> None:
        """Files lie in the commit's own folders: no entry can name the data of another."""
        own = f"data/{self.data}/"
        for file in self.files:
            inside = file.startswith(own) if self.data else False
            free = self.op == "create" and not re.match(r"(log|data)/(?!zarr\.json$)", file)
            if not (inside or free):
                raise damage(place, name, f"vouches for {file!r}, which is not its own")
        batch = [self.id, self.groups, self.labels, self.rows, self.content, self.data]
        given = sum(value is not None for value in batch)
        fitting = {"create": (0, len(batch)), "forget": (1,)}.get(self.op, (len(batch),))
        if given not in fitting or (self.op == "forget" and self.id is None):
            raise damage(place, name, f"is an entry {self.op!r} without its id or its batch")


class LogState:
    """What is live and what is gone after some entries: the fold of the log."""

    def __init__(self) -> None:
        self.live: dict[str, Batch] = {}
        self.gone: dict[str, Gone] = {}

    def apply(self, entry: Entry, commit: str, place: str) -> None:
        """Take one more entry."""
        leaving = [str(entry.id)] if entry.op == "forget" else entry.replaces
        for key in leaving:
            batch = self.live.pop(key, None)
            if batch is None:
                raise ModelError(f"{place} removes {key!r}, which does not exist: the log is torn.")
            was = batch.content, batch.data, batch.labels
            self.gone[key] = Gone(entry.op, entry.number, entry.time, *was)
        batch = entry.batch(commit)
        if batch is not None:
            if batch.id in self.live or batch.id in self.gone:
                raise ModelError(f"{place} adds {batch.id!r} a second time: the log is torn.")
            self.live[batch.id] = batch

    def copy(self) -> LogState:
        """The same state, whatever is applied later."""
        found = LogState()
        found.live, found.gone = dict(self.live), dict(self.gone)
        return found

    def to_plain(self, origin: str) -> dict[str, Any]:
        """As every 128th entry holds it; ``origin`` is the sha256 of entry 0."""
        live = {key: asdict(batch) for key, batch in self.live.items()}
        for plain in live.values():
            del plain["id"]
        gone = {key: asdict(gone) for key, gone in self.gone.items()}
        return {"origin": origin, "live": live, "gone": gone}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], place: str) -> LogState:
        """The state that an entry holds."""
        state = cls()
        try:
            for key, value in plain["live"].items():
                _check_fields(value)
                groups = tuple(value["groups"])
                state.live[key] = Batch(**{**value, "id": key, "groups": groups})
            for key, value in plain["gone"].items():
                _check_fields(value)
                state.gone[key] = Gone(**value)
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{place} holds a state that cannot be read: {error!r}.") from error
        return state


def ever(state: LogState) -> dict[str, dict[str, Any]]:
    """Labels by id of every batch that was ever committed, what is gone included."""
    known: dict[str, Any] = {**state.gone, **state.live}
    return {key: known[key].labels for key in sorted(known)}


def sha256(data: bytes) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def is_root(plain: Mapping[str, Any]) -> bool:
    """Whether this is ``zarr.json`` of a model, of any format."""
    attributes = plain.get("attributes")
    return isinstance(attributes, dict) and attributes.get("software") == "rff_stream"


def check_format(plain: Mapping[str, Any], place: str, name: str) -> None:
    """Refuse what a later rff_stream wrote, and what none did."""
    attributes = plain.get("attributes")
    found = attributes.get("format") if isinstance(attributes, dict) else None
    if type(found) is int and found > FORMAT:
        raise ModelError(
            f"{place}/{name} has format {found}, this build reads <= {FORMAT}; upgrade rff_stream."
        )
    group = plain.get("zarr_format") == 3 and plain.get("node_type") == "group"
    if not group or type(found) is not int or found < 1:
        raise damage(place, name, f"has format {str(found)[:20]}, which does not exist")


def _check_fields(value: Mapping[str, Any]) -> None:
    """Refuse what a batch cannot have."""
    fits = {**FIELDS, "commit": _is_sha256}
    for key, inner in value.items():
        if inner is None or not fits[key](inner):
            raise TypeError(f"{key} is {str(inner)[:40]}")


def _matches(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is_manifest(value: Any) -> bool:
    return isinstance(value, dict) and all(
        NAME.fullmatch(name) is not None
        and isinstance(item, list)
        and len(item) == 2
        and _is_count(item[0])
        and _is_sha256(item[1])
        for name, item in value.items()
    )


_is_sha256 = _matches("[0-9a-f]{64}")
_is_folder = _matches("[0-9a-f]{32}")

FIELDS: dict[str, Callable[[Any], bool]] = {
    "number": _is_count,
    "op": _matches("|".join(OPS)),
    "time": _is(str),
    "nonce": _is_folder,
    "previous": _or_none(_is_sha256),
    "files": _is_manifest,
    "id": _or_none(_is(str)),
    "groups": _or_none(_is_list(_is(str, int, float, type(None)))),
    "labels": _or_none(_is(dict)),
    "rows": _or_none(_is_count),
    "data": _or_none(_is_folder),
    "content": _or_none(_is_sha256),
    "replaces": _is_list(_is(str)),
    "answers": _or_none(_is_sha256),
    "state": _or_none(_is(dict)),
}
