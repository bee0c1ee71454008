"""Answers of a model that grew: derived from its moments, kept beside them, solved where absent.

``answers/<sha256 of the batches that count>/`` is a small store of its own, which verifies by
its own commit. Batches that come or go make another name, so an old answer is never taken
for a new one.
"""

from __future__ import annotations

from collections.abc import Collection

from rff_stream._array import digest
from rff_stream.errors import ModelError
from rff_stream.store.contents import Root, read_root
from rff_stream.store.entries import Batch
from rff_stream.store.files import Files
from rff_stream.store.local import LocalFiles
from rff_stream.store.log import Log

__all__ = ["ANSWERS", "answer_log", "answer_name", "find_answer", "is_answered"]

ANSWERS = "answers"


def find_answer(files: Files, batches: Collection[Batch], max_bytes: int) -> Root | None:
    """What was solved from exactly these batches, every byte verified; None if nothing was."""
    try:
        log = answer_log(files, batches)
        return None if log is None else read_root(log, max_bytes)
    except ModelError as error:
        place = f"{files.place}/{ANSWERS}/{answer_name(batches)}"
        raise ModelError(f"{error} Or remove {place}: it is derived, and solved again.") from error


def is_answered(log: Log) -> bool:
    """Whether the model need not be solved when it is loaded; reads no moments."""
    live = log.current().live.values()
    own = log.first.answers is not None and {batch.data for batch in live} == {log.first.data}
    return own or answer_name(live) in log.files.folders(ANSWERS)


def answer_log(files: Files, batches: Collection[Batch]) -> Log | None:
    """The log of the store that holds the answer of some batches."""
    name = answer_name(batches)
    if name not in files.folders(ANSWERS):  # nor a link to one
        return None
    inside = files.below(f"{ANSWERS}/{name}")
    # Local stores come into being at one instant; elsewhere a driver may have died before.
    unfinished = not isinstance(files, LocalFiles) and not inside.folders("log")
    return None if unfinished else Log.open(inside)


def answer_name(batches: Collection[Batch]) -> str:
    """The folder of the answer of some batches, whatever their order."""
    return digest({batch.id: batch.content for batch in batches})
