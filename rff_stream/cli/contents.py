"""What a store keeps: batches, groups, rows and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rff_stream.cli.output import Line
from rff_stream.cli.summary import Facts

SHOWN = 12
"""Batches or groups that are printed; --json has all."""


def of_store(path: str, storage_options: Any) -> tuple[Facts, list[Line]]:
    """Batches and groups of a stored model, with their rows and sizes."""
    from rff_stream.store import MomentStore
    from rff_stream.words import format_bytes

    store = MomentStore.open(path, storage_options=storage_options if "://" in path else None)
    batches = store.batches()
    sizes = store.sizes()
    several_groups = len({label for batch in batches for label in batch.groups}) > 1
    parts = store.groups() if several_groups else {}
    facts: Facts = {
        "batches": [
            {"id": b.id, "rows": b.rows, "bytes": sizes[b.id], "time": b.time, **ends(b.labels)}
            for b in batches
        ],
        "groups": {str(label): part.n for label, part in parts.items()},
        "bytes": sum(sizes.values()),
    }
    lines = [("moments", f"{len(batches):,} batches, {format_bytes(facts['bytes'])}")]
    texts = [f"{b.id}: {b.rows:,} rows, {format_bytes(sizes[b.id])}" for b in batches]
    lines += several("batch", texts)
    lines += several("group", [f"{name}: {n:,} rows" for name, n in facts["groups"].items()])
    return facts, lines


def ends(labels: Mapping[str, Any]) -> dict[str, Any]:
    """First and last rows of a batch, where they have coordinates."""
    return {name: labels[name] for name in ("first", "last") if name in labels}


def several(name: str, texts: list[str]) -> list[Line]:
    """One line each; the middle of many left out."""
    if len(texts) <= SHOWN:
        return [(name, text) for text in texts]
    half = SHOWN // 2
    left = f"… {len(texts) - SHOWN:,} more"
    return [(name, text) for text in [*texts[:half], left, *texts[-half:]]]
