"""The commands update, inspect, verify, compact and report: of a stored model."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rff_stream.cli import arguments, output
from rff_stream.cli.arguments import DataSelection, Machine, computing
from rff_stream.cli.output import Line, redact_text, show
from rff_stream.cli.predict import model_and_data, model_option, places_argument
from rff_stream.text_formatting import format_bytes

if TYPE_CHECKING:
    from rff_stream.report import Assessment


@click.command(epilog="Example: rff-stream inspect model.zarr")
@click.argument("model", type=arguments.place)
@arguments.storage_options
@arguments.as_json
def inspect(model: str, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    """Describe MODEL: inputs, kernel, penalty, rows, batches.

    Prints also length-scales, units, groups and the memory of the moments. Every byte of the
    model is verified.
    """
    loaded = arguments.load_model(model, Machine(None, None, None), None, storage_options)
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
    """Check every byte of MODEL against its checksums.

    If a file is missing, changed or extra, the exit code is 4 and the message names it. Also
    counts the files that no batch needs: of forgotten or compacted batches, or of killed
    processes.
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
@click.option("--gc", is_flag=True, help="Also remove data older than a day that no batch needs.")
@arguments.storage_options
@arguments.as_json
def compact(model: str, gc: bool, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    """Replace all batches of MODEL by their sum: it loads faster.

    Answers do not change, up to rounding. A compacted batch can no longer be forgotten, but its
    name is still known, so it is not counted again.
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


@click.command(epilog="Example: rff-stream update model.zarr data.zarr")
@places_argument
@model_option
@click.option(
    "--batch",
    metavar="NAME",
    help="Count all of DATA under this name, once: for data that are not growing.",
)
@click.option(
    "--by", metavar="COLUMN", help="Every label of this column is a batch; known ones are skipped."
)
@click.option(
    "--answer/--no-answer",
    default=True,
    help="Solve the model again after the rows are counted (a sum of all batches, one solve). "
    "Use --no-answer for many updates in a row: the model is then solved when it is loaded.",
)
@arguments.machine
@arguments.storage_options
@arguments.as_json
def update(
    places: tuple[str, ...],
    model: str | None,
    batch: str | None,
    by: str | None,
    answer: bool,
    machine: Machine,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Add the new rows of DATA to MODEL, exactly once.

    If DATA have grown along a dimension, only the new rows are read. Rows are counted once, also
    if the command runs twice or in two processes. If counted rows have changed, the exit code
    is 3 and the message names them. Rows that are not written yet are left for the next update.
    """
    if batch is not None and by is not None:
        raise click.UsageError("--batch and --by were both given. Name all rows, or label each.")
    model, data = model_and_data(places, model)
    from rff_stream.estimators.base import count_in_store, keep_answer_in_store
    from rff_stream.model.fitted import Data
    from rff_stream.model.update import LaterRows
    from rff_stream.store import is_answered

    started = time.monotonic()
    own: Any = {"memory": machine.memory, "storage_options": storage_options}
    later = LaterRows(Data(arguments.open_data(data), storage_options=storage_options), batch, by)
    with computing(machine):
        found, store = count_in_store(model, later, **own)
        if answer and not is_answered(store.log):
            keep_answer_in_store(model, **own)
    seconds, total = time.monotonic() - started, sum(each.rows for each in store.batches())
    added = {each.id: each.rows for each in found.added}
    rows = sum(added.values())
    words = ", ".join(f"{id} ({n:,} rows)" for id, n in added.items()) or "nothing is new"
    lines = [("added", words), ("rows", f"{total:,} in {len(store):,} batches")]
    lines += [("waiting", f"{found.waiting}, so it is not taken")] if found.waiting else []
    lines += [("time", f"{seconds:.1f} s")]
    facts = {
        "command": "update",
        "model": model,
        "data": data,
        "added": added,
        "n_rows_added": rows,
        "n_rows": total,
        "waiting": found.waiting,
        "seconds": seconds,
    }
    show(facts, lines, as_json)


@click.command(epilog="Example: rff-stream report model.zarr --data test.zarr -o report.html")
@click.argument("model", type=arguments.place)
@click.option("--data", type=arguments.place, metavar="TEST", help="Rows that were not in the fit.")
@click.option("-o", "--output", metavar="FILE.html", required=True, help="Where it is written.")
@arguments.test_rows
@arguments.machine
@arguments.seed
@arguments.overwrite
@arguments.as_json
def report(
    model: str,
    data: str | None,
    output: str,
    selection: DataSelection,
    machine: Machine,
    seed: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a page about MODEL: errors, intervals, cost, drift.

    The page also shows the model, its data and its origin.

    One HTML file that needs no network and no script. With the --holdout and --seed of a fit,
    the data are scored on exactly the rows that the fit left out.
    """
    from rff_stream.cli.products import PAGE
    from rff_stream.report import write_report
    from rff_stream.store.atomic import replacing

    page = check_page(output, overwrite, model, *([] if data is None else [data]))
    loaded = arguments.load_model(model, machine, selection, selection.storage_options)
    started = time.monotonic()
    with computing(machine):
        test = None if data is None else assess_rows(loaded, data, selection, seed)
        with replacing(page, overwrite, PAGE) as beside:
            write_report(beside, loaded, test=test, place=model)
    seconds, size = time.monotonic() - started, Path(output).stat().st_size
    facts: dict[str, Any] = {"command": "report", "model": model, "output": output}
    facts |= {"seconds": seconds, "bytes": size}
    show(facts, [("report", f"{output}, {format_bytes(size)}, in {seconds:.1f} s")], as_json)


def assess_rows(model: Any, data: str, selection: DataSelection, seed: int) -> Assessment:
    """The model on the rows selected; on the test part where rows were held out."""
    from rff_stream.report import assess

    return assess(
        model,
        arguments.open_data(data),
        place=redact_text(data),
        target=selection.one_target,
        weights=selection.weights,
        **selection.rows(seed, "test"),
    )


def check_page(output: str, overwrite: bool, *read: str) -> str:
    """The path of a page; refuses one that is taken, read or in no folder."""
    from rff_stream.cli.products import PAGE
    from rff_stream.store.atomic import check_target
    from rff_stream.store.local import check_apart

    check_apart(output, *read)
    path = os.path.realpath(output)
    check_target(path, overwrite, PAGE)
    return path
