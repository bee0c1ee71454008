"""Checks of a store: every byte against its commit, files of no commit, and their removal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rff_stream.errors import ModelError
from rff_stream.store.cached_answers import (
    ANSWERS,
    answer_log,
    answers_beyond,
    find_answer,
    find_name,
    lost_entries,
)
from rff_stream.store.commit_log import Log, entry_name
from rff_stream.store.contents import read_batch, read_root
from rff_stream.store.files import CLAIMS, Files
from rff_stream.store.log_entries import Entry

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
