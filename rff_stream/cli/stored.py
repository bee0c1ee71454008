"""The commands update, inspect, verify, compact and report: of a stored model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rff_stream.cli import arguments, output
from rff_stream.cli.arguments import Machine, RowOptions, computing
from rff_stream.cli.output import Facts, Line, redact_text, show
from rff_stream.cli.predict import model_and_places, model_option
from rff_stream.text_formatting import format_bytes

if TYPE_CHECKING:
    from rff_stream.model.fitted import CountedBatch
    from rff_stream.model.update import LaterRows
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


@click.command(epilog="Example: rff-stream update model.zarr days/")
@click.argument("places", nargs=-1, metavar="MODEL DATA...")
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
    "--replace",
    is_flag=True,
    help="Count a file that has changed in place of what it was; otherwise it is refused.",
)
@click.option(
    "--answer/--no-answer",
    default=True,
    help="Solve the model again after the rows are counted (a sum of all batches, one solve). "
    "Use --no-answer for many updates in a row: the model is then solved when it is loaded.",
)
@arguments.missing_chunks
@arguments.machine
@arguments.storage_options
@arguments.dry_run
@arguments.as_json
def update(
    places: tuple[str, ...],
    model: str | None,
    batch: str | None,
    by: str | None,
    replace: bool,
    answer: bool,
    missing_chunks: str | None,
    machine: Machine,
    storage_options: dict[str, Any] | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add the new rows of DATA to MODEL, exactly once.

    DATA are a file, several, a folder, or a quoted pattern of Parquet, Arrow, CSV or netCDF files:
    every file is a batch under its name and the digest of its content, counted files are not read
    again, and a counted file that has changed is refused. A file that is not complete is left for
    the next update.

    If DATA have grown along their first dimension, only the new rows are read. Rows are counted
    once, also if the command runs twice or in two processes. If counted rows have changed, the exit
    code is 3 and the message names them. Rows that are not written yet are left for the next
    update.
    """
    if batch is not None and by is not None:
        raise click.UsageError("--batch and --by were both given. Name all rows, or label each.")
    model, *data = model_and_places(places, model)
    from rff_stream.estimators.base import count_in_store, keep_answer_in_store
    from rff_stream.model.update import after_commit, warn_of_rows_again
    from rff_stream.store import is_answered

    started = time.monotonic()
    own: Any = {"memory": machine.memory, "storage_options": storage_options}
    counted: list[CountedBatch] = []
    known: list[str] = []
    waiting: list[str] = []
    if dry_run:
        show(*looked_at(model, data, replace, storage_options), as_json)
        return
    with computing(machine):
        for each in data:
            later = later_rows(each, batch, by, replace, storage_options)
            found, store = count_in_store(model, later, **own, missing_chunks=missing_chunks)
            counted += found.added
            known += found.known
            waiting += [found.waiting] if found.waiting else []
        if answer and not is_answered(store.log):
            with after_commit("The new rows are counted" if counted else ""):
                solved = keep_answer_in_store(model, **own)
            warn_of_rows_again(solved, counted, later, counted=True)
    added = {each.id: each.rows for each in counted}
    seconds, total = time.monotonic() - started, sum(each.rows for each in store.batches())
    rows = sum(added.values())
    words = ", ".join(f"{id} ({n:,} rows)" for id, n in added.items()) or "nothing is new"
    lines = [("added", words), ("rows", f"{total:,} in {len(store):,} batches")]
    lines += [("known", f"{len(known):,} files, not read again")] if known else []
    lines += [("waiting", f"{', '.join(waiting)}, so it is not taken")] if waiting else []
    lines += [("time", f"{seconds:.1f} s")]
    facts = {
        "command": "update",
        "model": model,
        "data": data[0] if len(data) == 1 else data,
        "added": added,
        "known": known,
        "n_rows_added": rows,
        "n_rows": total,
        "waiting": ", ".join(waiting),
        "seconds": seconds,
    }
    show(facts, lines, as_json)


def later_rows(
    data: str,
    batch: str | None,
    by: str | None,
    replace: bool,
    storage_options: dict[str, Any] | None,
) -> LaterRows:
    """Rows of a path or URL that may be new."""
    from rff_stream.model.update import LaterRows
    from rff_stream.sources import Selection

    return LaterRows(Selection(data, storage_options=storage_options), batch, by, replace)


def looked_at(
    model: str, data: Sequence[str], replace: bool, storage_options: dict[str, Any] | None
) -> tuple[Facts, list[Line]]:
    """Which files an update would count: reads their digests, no rows."""
    from rff_stream.model.update import new_files
    from rff_stream.store import MomentStore

    store = MomentStore.open(model, storage_options=storage_options)
    new: list[str] = []
    known: list[str] = []
    waiting: list[str] = []
    for each in data:
        later = later_rows(each, None, None, replace, storage_options)
        files = later.files()
        if files is None:
            raise click.UsageError(
                f"--dry-run tells which files are new, and {each} is no file, folder or pattern of "
                "files that are written once. Leave it out."
            )
        found = new_files(store, later, files)
        new += [one.file.name for one in found.new]
        known += found.known
        waiting += found.waiting
    facts = {"command": "update", "model": model, "new": new, "known": known, "waiting": waiting}
    lines = [("new", ", ".join(new) or "nothing"), ("known", f"{len(known):,} files")]
    return facts, lines + ([("waiting", ", ".join(waiting))] if waiting else [])


@click.command(epilog="Example: rff-stream watch model.zarr days/ --every 60")
@click.argument("model", type=arguments.place)
@click.argument("data", type=arguments.place)
@click.option(
    "--every", type=click.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
    help="Time between two looks.",
)  # fmt: skip
@click.option(
    "--looks", type=click.IntRange(min=2), metavar="N", help="End after N looks, not by a signal."
)
@click.option("--replace", is_flag=True, help="As of update.")
@arguments.machine
@arguments.storage_options
@arguments.as_json
def watch(
    model: str,
    data: str,
    every: float,
    looks: int | None,
    replace: bool,
    machine: Machine,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Count the files of a folder in MODEL as they appear.

    A file is counted when it is complete and did not change between two looks; each is one
    commit. Ctrl-C or SIGTERM end it: what was counted stays, and the same command goes on from
    there.
    """
    loaded = arguments.load_model(model, machine, None, storage_options)
    choices: dict[str, Any] = {"every": every, "looks": looks, "replace": replace}
    with computing(machine):
        for names in loaded.watch(data, storage_options=storage_options, **choices):
            facts = {"command": "watch", "model": model, "added": names}
            facts["n_rows"] = loaded.n_rows_
            show(facts, [("added", f"{', '.join(names)}: {loaded.n_rows_:,} rows")], as_json)


@click.command(epilog="Example: rff-stream batches model.zarr")
@click.argument("model", type=arguments.place)
@click.option(
    "--alarm", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.01,
    show_default=True, metavar="ALPHA", help="Probability that any normal batch is marked.",
)  # fmt: skip
@arguments.storage_options
@arguments.as_json
def batches(
    model: str, alarm: float, storage_options: dict[str, Any] | None, as_json: bool
) -> None:
    """List the batches of MODEL: rows, date, residuals, and whether one is unlike the others."""
    loaded = arguments.load_model(model, Machine(None, None, None), None, storage_options)
    found = loaded.batches(alarm=alarm)
    columns = loaded.columns_.targets
    facts = [
        {
            "id": each.id, "name": each.name, "n_rows": each.rows, "time": each.time,
            "rmse": dict(zip(columns, each.errors, strict=False)), "p_value": each.look.p_value,
            "alarm": each.look.alarm, "moved": [moved.name for moved in each.look.moved],
        }
        for each in found
    ]  # fmt: skip
    lines = [("batch", f"{'rows':>12} {'committed':>20} {'rmse':>20} {'p':>8}")]
    for each in found:
        errors = ", ".join(f"{error:.4g}" for error in each.errors)
        moved = ", ".join(one.name for one in each.look.moved)
        words = f"{each.rows:>12,} {each.time[:19]:>20} {errors:>20} {each.look.p_value:>8.2g}"
        lines.append((each.name, f"{words}  {moved}".rstrip()))
    show({"command": "batches", "model": model, "batches": facts}, lines, as_json)


@click.command(epilog="Example: rff-stream forget model.zarr 2026-01-12.parquet")
@click.argument("model", type=arguments.place)
@click.argument("batches", nargs=-1, metavar="BATCH...", required=True)
@click.option(
    "--answer/--no-answer",
    default=True,
    help="Solve the model again. With --no-answer it is solved when it is loaded.",
)
@arguments.storage_options
@arguments.dry_run
@arguments.as_json
def forget(
    model: str,
    batches: tuple[str, ...],
    answer: bool,
    storage_options: dict[str, Any] | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take batches out of MODEL: it answers as if it had never seen them.

    BATCH is the name of a file, a name given with --batch, or an id that the command batches
    prints. The same content is not counted again; another content under the name of a file is.
    """
    from rff_stream.estimators.base import keep_answer_in_store
    from rff_stream.model.file_batches import chosen_ids
    from rff_stream.model.update import after_commit, forget_in
    from rff_stream.store import MomentStore, is_answered

    store = MomentStore.open(model, storage_options=storage_options)
    live = {batch.id: batch for batch in store.batches()}
    ids = chosen_ids(batches, {id: batch.labels for id, batch in live.items()})
    if not dry_run:
        forget_in(store, ids)
        if answer and len(store) and not is_answered(store.log):
            with after_commit("The batches are forgotten"):
                keep_answer_in_store(model, storage_options=storage_options)
    gone = {id: live[id].rows for id in ids}
    left = sum(batch.rows for id, batch in live.items() if id not in gone)
    facts: Facts = {"command": "forget", "model": model, "dry_run": dry_run}
    facts |= {"forgotten": gone, "n_rows": left, "batches": len(live) - len(gone)}
    words = ", ".join(f"{id} ({n:,} rows)" for id, n in gone.items())
    name = "would forget" if dry_run else "forgotten"
    show(facts, [(name, words), ("rows", f"{left:,} in {facts['batches']:,} batches")], as_json)


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
    chosen: RowOptions,
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
    loaded = arguments.load_model(model, machine, chosen, chosen.storage_options)
    started = time.monotonic()
    with computing(machine):
        test = None if data is None else assess_rows(loaded, data, chosen, seed)
        with replacing(page, overwrite, PAGE) as beside:
            write_report(beside, loaded, test=test, place=model)
    seconds, size = time.monotonic() - started, Path(output).stat().st_size
    facts: dict[str, Any] = {"command": "report", "model": model, "output": output}
    facts |= {"seconds": seconds, "bytes": size}
    show(facts, [("report", f"{output}, {format_bytes(size)}, in {seconds:.1f} s")], as_json)


def assess_rows(model: Any, data: str, chosen: RowOptions, seed: int) -> Assessment:
    """The model on the rows selected; on the test part where rows were held out."""
    from rff_stream.report import assess

    rows = chosen.selection(arguments.open_data(data), seed, "test")
    return assess(
        model,
        rows.X,
        place=redact_text(data),
        target=rows.y,
        weights=rows.sample_weight,
        dim=rows.dim,
        where=rows.where,
        storage_options=rows.storage_options,
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
