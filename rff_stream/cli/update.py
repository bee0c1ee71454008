"""The command update."""

from __future__ import annotations

import time
from typing import Any

import click

from rff_stream.cli import arguments, objects
from rff_stream.cli.arguments import Machine
from rff_stream.cli.objects import computing
from rff_stream.cli.output import show
from rff_stream.cli.predict import model_and_data, model_option, places_argument


@click.command(epilog="Example: rff-stream update model.zarr data.zarr")
@places_argument
@model_option
@click.option(
    "--batch",
    metavar="NAME",
    help="Count all of DATA under this name, once; for data that do not grow in place.",
)
@click.option(
    "--by", metavar="COLUMN", help="Every label of this column is a batch; known ones are skipped."
)
@click.option(
    "--answer/--no-answer",
    default=True,
    help="Solve the model anew when the rows are counted (a sum of all batches and one solve). "
    "Without it whoever loads the model solves: for many updates in a row.",
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
    """Count what is new in DATA in MODEL, exactly once.

    DATA that grew along a dimension are read from the first row on that was not counted.
    Running it twice, or twice at a time, changes nothing. Rows that were counted and have
    changed exit 3 and are named; rows that are not written yet wait for the next time.
    """
    if batch is not None and by is not None:
        raise click.UsageError("--batch and --by were both given. Name all rows, or label each.")
    model, data = model_and_data(places, model)
    from rff_stream.estimators.base import count_in_store, keep_answer_in_store
    from rff_stream.model.fitted import Data
    from rff_stream.model.update import Later
    from rff_stream.store import is_answered

    started = time.monotonic()
    own: Any = {"memory": machine.memory, "storage_options": storage_options}
    later = Later(Data(objects.open_data(data), storage_options=storage_options), batch, by)
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
