"""What a store holds, read and verified: batches, chosen, weighted and summed.

Arguments where=, groups= and weights= become functions that select and weight batches.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from rff_stream._array import Array, Float64, digest
from rff_stream.arguments import Rule, is_several
from rff_stream.contracts import Packed
from rff_stream.errors import ModelError
from rff_stream.label_forms import canonical, text_of
from rff_stream.moments import Moments
from rff_stream.store.batch_writing import Root, checked_id, not_there
from rff_stream.store.commit_log import Batch, Entry, Log, LogState, Replaced, entry_name
from rff_stream.store.files import Files, Manifest, damage, read_verified
from rff_stream.store.local import LocalFiles
from rff_stream.store.moments_codec import (
    Label,
    decode_moments,
    decode_packed,
    decode_row,
    is_packed,
    label_key,
)
from rff_stream.store.zarr_files import decode, parse

Where = Callable[[Batch], bool] | Collection[str] | Mapping[str, Any]
"""Truth of "this batch counts", ids, or values of labels: a value, several, or a slice."""

ChosenGroups = Callable[[Label], bool] | Collection[Label] | Mapping[str, Any]
"""The same for groups; names are those of ``by=["month", "region"]``."""

Weights = Callable[[Batch], float] | Mapping[str, float]
"""A weight ≥ 0 for each batch, by a function or by id; 0 leaves it out."""


def batch_chooser(where: Where | None, state: LogState) -> Callable[[Batch], bool]:
    """Truth of "this batch counts"; refuses an id that is not live."""
    if where is None:
        return lambda batch: True
    if callable(where):
        return where
    if isinstance(where, Mapping):
        wanted = dict(where)
        return lambda batch: _agrees(wanted, batch.labels)
    ids = {checked_id(id) for id in _several("where", where)}
    absent = min(ids.difference(state.live), default=None)
    if absent is not None:
        raise not_there(state, absent)
    return lambda batch: batch.id in ids


def group_chooser(groups: ChosenGroups | None) -> Callable[[Label], bool]:
    """Truth of "this group counts"."""
    if groups is None:
        return lambda label: True
    if callable(groups):
        return groups
    if isinstance(groups, Mapping):
        wanted = {name: _texts(value) for name, value in groups.items()}
        return lambda label: _agrees(wanted, named_parts(label))
    chosen = {_one_form(label) for label in _several("groups", groups)}
    return lambda label: _one_form(label) in chosen


WEIGHTS = Rule(
    "a mapping of batches to weights, or a function of a batch",
    lambda value: isinstance(value, Mapping) or callable(value),
)


def weigher(weights: Weights | None, state: LogState) -> Callable[[Batch], float]:
    """The weight of a batch; refuses what is none, and an id that is not live."""
    if weights is None:
        return lambda batch: 1.0
    by_id = None
    WEIGHTS.check("weights", weights)
    if isinstance(weights, Mapping):
        by_id = {checked_id(id): value for id, value in weights.items()}
        absent = min(by_id.keys() - state.live.keys(), default=None)
        if absent is not None:
            raise not_there(state, absent)
    found: Any = weights

    def weight(batch: Batch) -> float:
        value = float(found(batch) if by_id is None else by_id.get(batch.id, 1.0))
        if not (math.isfinite(value) and value >= 0):
            raise ModelError(
                f"The weight of the batch {batch.id!r} is {value}, but weights must be finite and "
                ">= 0; 0 leaves a batch out."
            )
        return value

    return weight


NEXT_PART = re.compile(",(?=[^,=]*=)")
"""A comma before the next name; one within a value has no "=" behind it."""


def named_parts(label: Label) -> dict[str, str]:
    """ "month=1,region=north" -> {"month": "1", "region": "north"}; {} for other labels."""
    parts = (part.partition("=") for part in NEXT_PART.split(str(label)))
    return {name: value for name, equals, value in parts if equals}


def _agrees(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether every name that was asked for is there with a value that was asked for."""
    return all(name in found and _is_in(found[name], value) for name, value in wanted.items())


def _is_in(value: Any, wanted: Any) -> bool:
    """Whether a value is the one, one of several, or between both ends of a slice."""
    if isinstance(wanted, slice):
        above = wanted.start is None or value >= wanted.start
        return above and (wanted.stop is None or value <= wanted.stop)
    if isinstance(wanted, list | tuple | set | frozenset | range):
        return value in wanted
    return bool(value == wanted)


def _texts(wanted: Any) -> Any:
    """Values as the text that labels of several columns hold."""
    if isinstance(wanted, slice):
        raise ModelError(
            f"groups={wanted} is a slice, but groups of several columns are told apart by text. "
            "List the values."
        )
    several = isinstance(wanted, list | tuple | set | frozenset | range)
    return {text_of(value) for value in wanted} if several else text_of(wanted)


def _one_form(label: Any) -> tuple[type, Any]:
    """A label in its one form, apart from those that Python takes for equal: 1 and True."""
    label = canonical(label)
    return type(label), label


SEVERAL = Rule("a list", is_several)


def _several(name: str, values: Any) -> Collection[Any]:
    """Refuse a lone text, whose letters would be taken for ids."""
    if isinstance(values, str):
        raise ModelError(f"{name}={values!r} is one text; give several as a list: [{values!r}].")
    SEVERAL.check(name, values)
    found: Collection[Any] = values
    return found


READERS = 2
"""Threads that read and hash ahead of the sum; hashing releases the GIL."""

Value = TypeVar("Value")
Groups = dict[Label, Moments]


def read_whole(files: Files, read: Callable[[Files], Value]) -> Value:
    """What ``read`` gives of one model, though another is put in its place meanwhile."""
    while True:
        before = files.identity()
        try:
            return read(files)
        except Replaced:
            continue
        except ModelError:
            if files.identity() == before:
                raise


def read_root(log: Log, max_bytes: int | None) -> Root:
    """Header, arrays, answers and row of a store, verified against its first commit."""
    files, place = log.files, log.files.place
    data = moments_files(log.first.files)
    mine = {name: said for name, said in log.first.files.items() if name not in data}
    found = read_verified(files, mine, max_bytes)
    arrays = {name: decode(name, found, place) for name in _array_names(found, place)}
    attributes = parse(found["zarr.json"], f"{place}/zarr.json")["attributes"]
    header, plain, order = (attributes.get(key) for key in ("header", "row", "order"))
    pilot = attributes.get("pilot")
    texts = isinstance(pilot, list) and all(isinstance(name, str) for name in pilot)
    if not (isinstance(header, dict) and type(order) is int and order in (1, 2) and texts):
        raise damage(place, "zarr.json", "has no fitting header, order or pilot")
    row = _take(arrays, "row/")
    return Root(
        header=header,
        answers=_take(arrays, f"answers/{log.first.answers}/"),
        row=None if plain is None else decode_row(plain, row, f"{place}/row"),
        order=order,
        pilot=tuple(pilot),
        arrays=arrays,
    )


def read_batch(log: Log, batch: Batch, root: Root, max_bytes: int | None) -> Groups:
    """The moments of one batch, verified against its own commit; none of a packed value."""
    if root.row is None:
        raise ModelError(
            f"{log.files.place} was saved without moments, so it has no batches. Fit again and "
            "save with moments."
        )
    entry = log.entry_of(batch)
    data = moments_files(entry.files)
    files = read_verified(log.files, data, max_bytes)
    folder, place = f"data/{batch.data}", log.files.place
    if is_packed(files, folder, place):
        return {}
    groups = decode_moments(root.row, root.order, batch.groups, files, folder, place)
    if sum(moments.n for moments in groups.values()) != batch.rows:
        raise damage(place, f"{folder}/rows", f"does not hold the {batch.rows} rows committed")
    return groups


def read_packed(log: Log, batch: Batch, max_bytes: int | None) -> Packed | None:
    """The packed value of one batch, verified against its own commit; None where it has moments."""
    files = read_verified(log.files, moments_files(log.entry_of(batch).files), max_bytes)
    folder, place = f"data/{batch.data}", log.files.place
    return decode_packed(files, folder, place) if is_packed(files, folder, place) else None


def read_batches(
    log: Log, batches: Iterable[Batch], root: Root, max_bytes: int | None
) -> Iterator[tuple[Batch, Groups]]:
    """The moments of batches, in their order; the next ones are read while one is used."""
    every = list(batches)
    calls = (partial(read_batch, log, batch, root, max_bytes) for batch in every)
    with log.watched():
        yield from zip(every, read_ahead(calls), strict=True)


def read_ahead(calls: Iterable[Callable[[], Value]]) -> Iterator[Value]:
    """What calls give, in their order; the next ones run while one is used."""
    waiting: collections.deque[Future[Value]] = collections.deque()
    with ThreadPoolExecutor(READERS, "rff-stream-store") as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) > READERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def read_weighted(
    log: Log,
    batches: Sequence[Batch],
    root: Root,
    max_bytes: int | None,
    groups: ChosenGroups | None = None,
    weights: Weights | None = None,
) -> Iterator[Groups]:
    """Chosen groups of batches, in their order, times the weight of each batch."""
    counts, weight = group_chooser(groups), weigher(weights, log.current())
    factors = {batch.id: factor for batch in batches if (factor := weight(batch)) > 0}
    chosen = [batch for batch in batches if batch.id in factors]
    for batch, found in read_batches(log, chosen, root, max_bytes):
        factor = factors[batch.id]
        yield {
            label: moments if factor == 1 else moments.scale(factor)
            for label, moments in found.items()
            if counts(label)
        }


class SumInPlace:
    """Moments added from left to right, into the one array that the first addition made."""

    def __init__(self) -> None:
        self.value: Moments | None = None
        self._own: Float64 | None = None

    def add(self, moments: Moments) -> None:
        """Take one more; the value of before is no longer to be looked at."""
        if self.value is None:
            self.value = moments
            return
        self.value = self.value.plus(moments, self._own)
        self._own = self.value.sums


def sum_by_group(parts: Iterable[Groups]) -> Groups:
    """Sum of each group, from left to right; groups in the order they are stored."""
    found: collections.defaultdict[Label, SumInPlace] = collections.defaultdict(SumInPlace)
    for groups in parts:
        for label, moments in groups.items():
            found[label].add(moments)
    total = {label: each.value for label, each in found.items() if each.value is not None}
    return dict(sorted(total.items(), key=lambda item: label_key(item[0])))


def bytes_of(log: Log, batch: Batch) -> int:
    """Bytes of the files of a batch."""
    return sum(size for size, _ in moments_files(log.entry_of(batch).files).values())


def moments_files(manifest: Manifest) -> Manifest:
    """Files of the batch alone, without those of the store itself."""
    return {
        name: said
        for name, said in manifest.items()
        if name.startswith("data/") and name != "data/zarr.json"
    }


def _array_names(files: Mapping[str, bytes], place: str) -> list[str]:
    """Names of all that is not a group; what is no array either, its decoding refuses."""
    metadata = [name for name in files if name.endswith("/zarr.json")]
    kinds = {name: parse(files[name], f"{place}/{name}").get("node_type") for name in metadata}
    return [name.removesuffix("/zarr.json") for name in metadata if kinds[name] != "group"]


def _take(arrays: dict[str, Array], start: str) -> dict[str, Array]:
    """Remove the arrays whose names begin so; returns them by the rest of their names."""
    names = [name for name in arrays if name.startswith(start)]
    return {name.removeprefix(start): arrays.pop(name) for name in names}


ANSWERS = "answers"

NAME = re.compile(r"[0-9a-f]{64}")
"""An answer; not what a process that was killed left beside it."""


def find_answer(log: Log, batches: Collection[Batch], max_bytes: int | None) -> Root | None:
    """What was solved from exactly these batches, every byte verified; None if nothing was."""
    try:
        found = answer_log(log, batches)
        return None if found is None else read_root(found, max_bytes)
    except ModelError as error:
        place = f"{log.files.place}/{ANSWERS}/{find_name(log, batches)}"
        raise ModelError(f"{error} Or remove {place}: it is a cache, and solved again.") from error


def is_answered(log: Log) -> bool:
    """Whether the model need not be solved when it is loaded; reads no moments."""
    live = log.current().live.values()
    own = log.first.answers is not None and {batch.data for batch in live} == {log.first.data}
    return own or find_name(log, live) is not None


def answer_log(log: Log, batches: Collection[Batch]) -> Log | None:
    """The log of the store that holds the answer of some batches."""
    name = find_name(log, batches)
    if name is None:
        return None
    inside = log.files.below(f"{ANSWERS}/{name}")
    # Local stores come into being at one instant; elsewhere a driver may have died before.
    unfinished = not isinstance(log.files, LocalFiles) and not inside.folders("log")
    return None if unfinished else Log.open(inside)


def find_name(log: Log, batches: Collection[Batch]) -> str | None:
    """The folder that holds the answer of some batches; None where none does."""
    there = log.files.folders(ANSWERS)  # no links
    # The second is of before the model was part of the name.
    names = answer_name(log, batches), digest({batch.id: batch.content for batch in batches})
    return next((name for name in names if name in there), None)


def check_answered(log: Log) -> None:
    """Refuse a log that lost its newest entries, where an answer of theirs is still there.

    An answer is written after the commit of its batches, under their name. Of a log of more
    than 256 entries the newest are looked at: an older answer may be of older entries.
    """
    there = log.files.folders(ANSWERS)
    if not answers_beyond(log, log.recent(), there):
        return
    log.refresh()  # another process may commit and answer now
    beyond = answers_beyond(log, log.recent(), there)
    if beyond:
        raise lost_entries(log, beyond)


def lost_entries(log: Log, beyond: Sequence[str]) -> ModelError:
    """The error for a log whose newest entries were deleted, or restored from an older copy."""
    place, left = log.files.place, sum(batch.rows for batch in log.state.live.values())
    return ModelError(
        f"{place}/{entry_name(log.last + 1)} is missing: {ANSWERS}/{beyond[0]} was solved from "
        "batches that no entry of the log names. The newest entries were deleted, or an older "
        f"copy was restored over them. Restore the log; or, to go on with the {left:,} rows that "
        f"are left, remove {place}/{ANSWERS}/{beyond[0]} and add what came later again."
    )


def answers_beyond(log: Log, entries: Sequence[Entry], there: Collection[str]) -> list[str]:
    """Of these answers, those of no state from the last of these entries back to the first.

    The end of the log is missing where there are any. None where the entries do not begin with
    that of number 0.
    """
    left = {name for name in there if NAME.fullmatch(name)} - {log.first.answers}
    state = log.state
    live = {key: batch.content for key, batch in state.live.items()}
    for entry in reversed(entries):
        if not left:
            break
        left -= {_answer_of(log, live), digest(live)}
        if entry.data is not None:
            del live[str(entry.id)]
        removed = [str(entry.id)] if entry.op == "forget" else entry.replaces
        live |= {key: state.gone[key].content for key in removed}
    return sorted(left) if entries and entries[0].number == 0 else []


def answer_name(log: Log, batches: Collection[Batch]) -> str:
    """The folder of the answer of some batches of a model, whatever their order."""
    return _answer_of(log, {batch.id: batch.content for batch in batches})


def _answer_of(log: Log, contents: Mapping[str, str]) -> str:
    return digest({"model": log.origin, "batches": digest(contents)})
