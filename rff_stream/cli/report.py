"""The command report."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rff_stream.cli import arguments, objects
from rff_stream.cli.arguments import DataSelection, Machine
from rff_stream.cli.objects import computing
from rff_stream.cli.output import redact_text, show
from rff_stream.words import format_bytes

if TYPE_CHECKING:
    from rff_stream.report import Assessment


@click.command(epilog="Example: rff-stream report model.zarr --data test.zarr -o report.html")
@click.argument("model", type=arguments.place)
@click.option("--data", type=arguments.place, metavar="TEST", help="Rows that the fit did not see.")
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
    """Write a page about MODEL: how good, how sure, cost, drift.

    With what was fitted on what, and where the model comes from.

    One HTML file that needs no network and no script. With the --holdout and --seed of a fit,
    the data are scored on exactly the rows that the fit left out.
    """
    from rff_stream.cli.products import PAGE
    from rff_stream.report import write_report
    from rff_stream.store.atomic import replacing

    page = check_page(output, overwrite, model, *([] if data is None else [data]))
    loaded = objects.load_model(model, machine, selection, selection.storage_options)
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
        objects.open_data(data),
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
