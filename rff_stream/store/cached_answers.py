"""Cached answers of an updated model: stored beside its moments, solved again where absent.

``answers/<sha256>/`` is a small store with a commit of its own, which lists its files. Its name
is the hash of all that the answer depends on: the first entry of the model's log (which fixes
map and parameters) and the batches that count. So the answer of older batches or of another
model is never used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rff_stream._array import digest
from rff_stream.errors import ModelError
from rff_stream.store.commit_log import Log, entry_name
from rff_stream.store.contents import Root, read_root
from rff_stream.store.local import LocalFiles
from rff_stream.store.log_entries import Batch, Entry

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
