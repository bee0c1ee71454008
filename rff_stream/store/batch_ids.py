"""Rules for batch ids: one id has one content for ever; a forgotten id is not used again."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.store.log_entries import Batch, Gone, LogState

COMPACTED = "compacted:"
"""How the ids of sums begin."""

LONGEST_ID = 512  # bytes


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
