"""Cached answers of an updated model: stored beside its moments, solved again where absent.

``answers/<sha256>/`` is a small store with a commit of its own, which lists its files. Its name
is the hash of all that the answer depends on: the first entry of the model's log (which fixes
map and parameters) and the batches that count. So the answer of older batches or of another
model is never used.
"""

from __future__ import annotations

from collections.abc import Collection

from rff_stream._array import digest
from rff_stream.errors import ModelError
from rff_stream.store.commit_log import Log
from rff_stream.store.contents import Root, read_root
from rff_stream.store.entries import Batch
from rff_stream.store.local import LocalFiles

__all__ = ["ANSWERS", "answer_name", "is_answered"]

ANSWERS = "answers"


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
    names = answer_name(log, batches), name_of_batches(batches)
    return next((name for name in names if name in there), None)


def answer_name(log: Log, batches: Collection[Batch]) -> str:
    """The folder of the answer of some batches of a model, whatever their order."""
    return digest({"model": log.origin, "batches": name_of_batches(batches)})


def name_of_batches(batches: Collection[Batch]) -> str:
    """As rff_stream named the folder before the model was part of the name."""
    return digest({batch.id: batch.content for batch in batches})
