"""The log: numbered entries, each with its own hash. To commit is to create the next one."""

from __future__ import annotations

import datetime
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.store.files import Files, Manifest, damage, sha256
from rff_stream.store.moments_codec import Label
from rff_stream.store.zarr_files import (
    MAX_JSON,
    canonical,
    dump,
    group_metadata,
    parse,
    parse_loosely,
)

FORMAT = 1
"""The newest format this build reads, and the one it writes."""

OPS = ("create", "add", "forget", "compact", "checkpoint")
PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
NAME = re.compile(rf"(?:{PART}/){{0,15}}{PART}")
"""A file of a store. The chunks of a grid of three inputs have nine parts in their names."""


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
class RemovedBatch:
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
    """Every file of this commit: name -> [bytes, sha256] (dict)."""
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
    """Every 128th entry: all batches before it, those that count and those that were removed,
    and sha256 of entry 0."""

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
        self.gone: dict[str, RemovedBatch] = {}

    def apply(self, entry: Entry, commit: str, place: str) -> None:
        """Take one more entry."""
        leaving = [str(entry.id)] if entry.op == "forget" else entry.replaces
        for key in leaving:
            batch = self.live.pop(key, None)
            if batch is None:
                raise ModelError(f"{place} removes {key!r}, which does not exist: the log is torn.")
            was = batch.content, batch.data, batch.labels
            self.gone[key] = RemovedBatch(entry.op, entry.number, entry.time, *was)
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
                state.gone[key] = RemovedBatch(**value)
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{place} holds a state that cannot be read: {error!r}.") from error
        return state


def ever(state: LogState) -> dict[str, dict[str, Any]]:
    """Labels by id of every batch that was ever committed, what is gone included."""
    known: dict[str, Any] = {**state.gone, **state.live}
    return {key: known[key].labels for key in sorted(known)}


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


SNAPSHOT_EVERY = 128
"""Every entry with such a number holds the full state, so that opening reads at most this many."""

MAX_STATE = MAX_JSON // 2
"""Bytes of the largest full state: about 100,000 batches."""

KEPT = 2 * SNAPSHOT_EVERY
"""Entries held in memory."""

NUMBER = re.compile(r"\d{20}")


class Replaced(ModelError):
    """Another store, or another history, stands where the one that was opened stood."""


class Log:
    """Entries of a store, verified, and the state they add up to.

    Entry 0 vouches for ``root``, the store's ``zarr.json``. ``head`` is the sha256 of the last
    entry, and so of the whole history. A store whose last entries were taken away looks like an
    older, valid one: only who kept its ``head`` can tell.
    """

    def __init__(self, files: Files, root: bytes) -> None:
        self.files = files
        self.root = root
        self.state = LogState()
        self.head = ""
        self.last = -1
        self._recent: dict[int, tuple[Entry, str]] = {}
        self._lock = threading.RLock()

    @classmethod
    def open(cls, files: Files) -> Log:
        """The log as it stands: one listing, and at most 128 small reads."""
        log = cls(files, _read_root(files))
        numbers = _numbers(files)
        if not numbers:
            raise ModelError(
                f"{files.place} holds no commit: {files.place}/{entry_name(0)} is missing. It was "
                "never finished, or its log is lost. Fit and save it again."
            )
        log._start(numbers[-1] - numbers[-1] % SNAPSHOT_EVERY)
        log.refresh()
        hole = next((i for i, number in enumerate(numbers) if i != number), log.last + 1)
        if hole <= numbers[-1]:
            raise damage(files.place, entry_name(hole), "is missing from the log")
        return log

    @property
    def first(self) -> Entry:
        """The entry that made the store."""
        return self._recent[0][0]

    @property
    def origin(self) -> str:
        """sha256 of the entry that made the store: no other store has it."""
        return self._recent[0][1]

    def refresh(self) -> None:
        """Take the entries that came since.

        Raises Replaced: where another store, or another history, has taken the place of this one.
        """
        with self._lock:
            self._refresh(self.files)

    def current(self) -> LogState:
        """The state now, as a value that stays."""
        with self._lock:
            self.refresh()
            return self.state.copy()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Tell an error by its cause where another store has taken the place of this one.

        Its files went with it: that looks like damage, or like a folder that cannot be written.

        Raises Replaced: in the place of another error of the store.
        """
        try:
            yield
        except Replaced:
            raise
        except ModelError as error:
            try:
                if self.last >= 0:
                    self.check_has(0, self.origin)
            except Replaced as cause:
                raise cause from error
            raise

    def entry(self, number: int, commit: str) -> Entry:
        """An entry by its number and sha256."""
        entry, known = self._recent.get(number, (None, ""))
        if entry is not None and known == commit:
            return entry
        name = entry_name(number)
        data = self._read(number)
        if sha256(data) != commit:
            raise damage(self.files.place, name, f"is not the entry {commit[:12]}… of that number")
        return Entry.from_bytes(data, self.files.place, name)

    def entry_of(self, batch: Batch) -> Entry:
        """The entry that vouches for the files of a batch."""
        found = self.entry(batch.number, batch.commit)
        if found.batch(batch.commit) != batch:
            name = entry_name(batch.number)
            raise damage(self.files.place, name, f"does not add the batch {batch.id!r} as known")
        return found

    def recent(self) -> list[Entry]:
        """The newest entries, as many as are in memory: in a short log all of them."""
        numbers = sorted(self._recent, reverse=True)
        without_hole = (n for i, n in enumerate(numbers) if n == self.last - i)
        return [self._recent[number][0] for number in without_hole][::-1]

    def history(self) -> list[Entry]:
        """Every entry from the first on, its chain verified."""
        found: list[Entry] = []
        previous = None
        for number in range(self.last + 1):
            data = self._read(number)
            found.append(self._parse(number, data, previous))
            previous = sha256(data)
        if previous != self.head:
            name = entry_name(self.last)
            raise damage(self.files.place, name, "is not the last entry that was read before")
        return found

    def commit(self, build: Callable[[LogState], dict[str, Any] | None]) -> Entry | None:
        """Commit the entry that ``build`` makes of the state; again if another writer was first.

        ``build`` gives the fields of the entry, or None where there is nothing to do. It is
        called again with the new state whenever another writer was faster.
        """
        with self._lock, self.watched():
            while True:
                with self.files.pinned() as files:
                    self._refresh(files)
                    fields = build(self.state)
                    if fields is None:
                        return None
                    entry = self._next(fields)
                    if self._put(entry, files):
                        return entry

    def _refresh(self, files: Files) -> None:
        """Take the entries that came since, if they follow those that were read."""
        known = {entry_name(n): MAX_JSON for n in {0, self.last, self.last + 1} if n >= 0}
        found = files.find_all(known)
        self._check_same(found)
        data = found[entry_name(self.last + 1)]
        while data is not None:
            self._take(self.last + 1, data)
            data = files.find(entry_name(self.last + 1), MAX_JSON)

    def _check_same(self, found: Mapping[str, bytes | None]) -> None:
        """Refuse another first or last entry than those that were read."""
        if self.last < 0:
            return
        for number, wanted in ((0, self.origin), (self.last, self.head)):
            self._check_entry(number, wanted, found[entry_name(number)])

    def check_has(self, number: int, commit: str) -> None:
        """Refuse a log whose entry of a number is not the one that was read before."""
        self._check_entry(number, commit, self.files.find(entry_name(number), MAX_JSON))

    def _check_entry(self, number: int, commit: str, data: bytes | None) -> None:
        if data is None or sha256(data) != commit:
            is_now = "missing" if data is None else f"{sha256(data)[:12]}…"
            raise Replaced(
                f"{self.files.place} is no longer what was opened: entry {number} of its log was "
                f"{commit[:12]}… and is {is_now}. The store was overwritten, moved, or restored "
                "from an older copy. Nothing was written to what is there now; open or load it "
                "again."
            )

    def _put(self, entry: Entry, files: Files) -> bool:
        """Whether this entry, and not that of another writer, got its number."""
        data, name = entry.to_bytes(), entry_name(entry.number)
        if self.last >= 0:  # what this entry builds on must outlive it
            files.settle([entry_name(self.last)])
        held = nullcontext(True) if entry.data is None else files.hold(f"data/{entry.data}")
        with held as free:
            if self.last >= 0:
                self._check_own(entry, files, free)
            # Where the reply to our create was lost, the file holds our own bytes.
            if not files.create(name, data) and files.find(name, MAX_JSON) != data:
                return False
            if self.last >= 0:
                self._check_place(entry, files)
        self._take(entry.number, data)
        return True

    def _check_own(self, entry: Entry, files: Files, free: bool) -> None:
        """Refuse to commit data that were removed while their writer stood still."""
        if entry.data is None:
            return
        folder = f"data/{entry.data}"
        own = {name: size for name, (size, _) in entry.files.items() if name.startswith(folder)}
        if not free or files.sizes(folder) != own:
            raise ModelError(
                f"{self.files.place}/{folder} is not as it was written for the batch {entry.id!r}: "
                "files that no commit names are removed when they are a day old (gc). Nothing was "
                "committed; append the batch again."
            )

    def _check_place(self, entry: Entry, files: Files) -> None:
        """Remove an entry that was written as the store was replaced, or its data removed."""
        name = entry_name(entry.number)
        try:
            known = {entry_name(n): MAX_JSON for n in {0, self.last}}
            self._check_same(files.find_all(known))
            if files.identity() != self.files.identity():
                raise Replaced(
                    f"{self.files.place} was replaced during a commit. What is there now is as "
                    "its writer left it, and the commit is not in it; open or load it again."
                )
            self._check_own(entry, files, True)
        except ModelError:
            files.remove(name)
            raise

    def _start(self, snapshot: int) -> None:
        """Entry 0, and the state before the last entry that holds one."""
        self._take(0, self._read(0))
        if self.first.files.get("zarr.json") != [len(self.root), sha256(self.root)]:
            raise damage(self.files.place, "zarr.json", "is not the one its first commit names")
        origin = self.head
        for number in range(snapshot, 0, -SNAPSHOT_EVERY):
            name = entry_name(number)
            entry = Entry.from_bytes(self._read(number), self.files.place, name)
            if entry.state is None:
                continue
            if entry.state.get("origin") != origin:
                raise damage(self.files.place, name, "holds the state of another store")
            self.state = LogState.from_plain(entry.state, f"{self.files.place}/{name}")
            self.last, self.head = number - 1, str(entry.previous)
            return

    def _take(self, number: int, data: bytes) -> None:
        entry = self._parse(number, data, self.head or None)
        commit = sha256(data)
        self.state.apply(entry, commit, f"{self.files.place}/{entry_name(number)}")
        self._recent[number] = entry, commit
        if number > KEPT:
            self._recent.pop(number - KEPT, None)
        self.last, self.head = number, commit

    def _parse(self, number: int, data: bytes, previous: str | None) -> Entry:
        name = entry_name(number)
        entry = Entry.from_bytes(data, self.files.place, name)
        if entry.number != number or (entry.op == "create") != (number == 0):
            words = f"is entry {entry.number} ({entry.op}), which does not belong under this number"
            raise damage(self.files.place, name, words)
        if entry.previous != previous:
            raise damage(self.files.place, name, "does not follow the entry before it")
        return entry

    def _read(self, number: int) -> bytes:
        data = self.files.find(entry_name(number), MAX_JSON)
        if data is None:
            raise damage(self.files.place, entry_name(number), "is missing")
        return data

    def _next(self, fields: dict[str, Any]) -> Entry:
        number = self.last + 1
        return Entry(
            number=number,
            time=now(),
            nonce=uuid.uuid4().hex,
            previous=self.head or None,
            state=self._snapshot() if number and number % SNAPSHOT_EVERY == 0 else None,
            **fields,
        )

    def _snapshot(self) -> dict[str, Any] | None:
        """The full state; None where it is too long to read: then opening begins before it."""
        state = self.state.to_plain(self._recent[0][1])
        return state if len(dump(state)) < MAX_STATE else None


def entry_name(number: int) -> str:
    """The file that is an entry."""
    return f"log/{number:020}/zarr.json"


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _numbers(files: Files) -> list[int]:
    """Numbers of the entries that a listing shows, sorted; without an unfinished last one."""
    numbers = [int(name) for name in files.folders("log") if NUMBER.fullmatch(name)]
    while numbers and files.find(entry_name(numbers[-1]), MAX_JSON) is None:
        numbers.pop()
    return numbers


def _read_root(files: Files) -> bytes:
    """``zarr.json`` of a model; refuses what is none, and a format that is too new."""
    data = files.find("zarr.json", MAX_JSON)
    if data is None and files.recover():
        data = files.find("zarr.json", MAX_JSON)
    if data is None and not files.sizes(""):
        raise ModelError(
            f"{files.place} is not a model of rff_stream: nothing is there. Look at the path, and "
            "at its storage options if it is a URL."
        )
    if data is None:
        raise ModelError(f"{files.place} is not a model of rff_stream: it has no zarr.json.")
    plain = parse_loosely(data, f"{files.place}/zarr.json")
    if not is_root(plain):
        kind = f"Zarr format {plain.get('zarr_format')!s:.20}, {plain.get('node_type')!s:.20}"
        raise ModelError(
            f"{files.place} is not a model of rff_stream: zarr.json is that of something else "
            f"({kind}). Look at the path."
        )
    check_format(plain, files.place, "zarr.json")
    parse(data, f"{files.place}/zarr.json")
    return data
