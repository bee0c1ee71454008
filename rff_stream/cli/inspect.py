"""The commands inspect, verify and compact: show, check and shorten a stored model."""

from __future__ import annotations

import time
from typing import Any

import click

from rff_stream.cli import arguments, objects, output
from rff_stream.cli.arguments import Machine
from rff_stream.cli.output import Line, show
from rff_stream.words import format_bytes


@click.command(epilog="Example: rff-stream inspect model.zarr")
@click.argument("model", type=arguments.place)
@arguments.storage_options
@arguments.as_json
def inspect(model: str, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    """Print what MODEL is: inputs, kernel, penalty, rows, batches.

    Also length-scales, units, groups and how much memory the moments take. Every byte of the
    model is verified.
    """
    loaded = objects.load_model(model, Machine(None, None, None), None, storage_options)
    facts, lines = output.of_model(loaded)
    if hasattr(loaded, "moments_"):
        kept, more = output.of_store(model, storage_options)
        facts, lines = facts | kept, [*lines, *more]
    facts = {"command": "inspect", "model": model, **facts}
    show(facts, [("model", f"{type(loaded).__name__}, every byte verified"), *lines], as_json)


@click.command(epilog="Example: rff-stream verify model.zarr")
@click.argument("model", type=arguments.place)
@arguments.storage_options
@arguments.as_json
def verify(model: str, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    """Read every byte of MODEL and compare it with its commits.

    Exits 4 and names the file where one is missing, changed or extra. Files that no batch
    needs are counted: forgotten or compacted batches, and what killed processes left.
    """
    from rff_stream.store import load_model
    from rff_stream.store.local import open_files
    from rff_stream.store.moment_store import verify_store

    started = time.monotonic()
    load_model(model, storage_options=storage_options)
    verified = verify_store(open_files(model, storage_options), None)
    facts = {
        "command": "verify",
        "model": model,
        "entries": verified.entries,
        "batches": verified.batches,
        "n_rows": verified.rows,
        "bytes": verified.bytes,
        "unnamed": verified.unnamed,
        "seconds": time.monotonic() - started,
    }
    lines: list[Line] = [
        ("verified", f"{format_bytes(verified.bytes)} in {facts['seconds']:.1f} s"),
        ("log", f"{verified.entries:,} entries"),
        ("rows", f"{verified.rows:,} in {verified.batches:,} batches"),
        ("unnamed", f"{len(verified.unnamed):,} files that no batch needs"),
    ]
    show(facts, lines, as_json)


@click.command(epilog="Example: rff-stream compact model.zarr --gc")
@click.argument("model", type=arguments.place)
@click.option(
    "--gc", is_flag=True, help="Also remove data of more than a day ago that no batch needs."
)
@arguments.storage_options
@arguments.as_json
def compact(model: str, gc: bool, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    """Replace all batches of MODEL by their sum: it loads faster.

    Answers stay as they were, to rounding. A batch that was compacted can no longer be
    forgotten, but it is still known: it is not counted again.
    """
    from rff_stream.store import MomentStore

    store = MomentStore.open(model, storage_options=storage_options)
    before = len(store)
    made = store.compact()
    removed = store.gc() if gc else []
    facts = {
        "command": "compact",
        "model": model,
        "batches_before": before,
        "batches": len(store),
        "id": made,
        "removed": removed,
    }
    words = f"{before:,} batches are now one" if made else f"nothing to do: {before:,} batches"
    lines: list[Line] = [("compacted", words)]
    if gc:
        lines.append(("removed", f"{len(removed):,} folders and files that no batch needs"))
    show(facts, lines, as_json)
