"""The commands plan and fit."""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from rff_stream.cli import arguments, output
from rff_stream.cli.arguments import Learner, Machine, RowOptions, computing
from rff_stream.cli.output import Facts, Line, show
from rff_stream.cli.predict import scores
from rff_stream.errors import ModelError

Value = TypeVar("Value")

SCORED = ("", "by a second streamed pass, on exactly the rows that the fit left out")


@click.command(epilog="Example: rff-stream plan data.zarr --target y --memory 4GiB")
@arguments.data_argument
@arguments.fitted_rows
@arguments.learner
@arguments.machine
@arguments.seed
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Plan for N processes.")
@arguments.as_json
def plan(
    data: str,
    chosen: RowOptions,
    learner: Learner,
    machine: Machine,
    seed: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Print the memory and time that a fit of DATA needs; reads only metadata.

    Takes the options of fit. Prints memory, flops, network traffic and time of the pass. If
    the plan needs more than --memory, the exit code is 3.
    """
    with computing(machine):
        facts, lines = planned(data, chosen, learner, machine, seed, workers)
    show({"command": "plan", "data": data, **facts}, lines, as_json)


@click.command(epilog="Example: rff-stream fit data.zarr --target y --model model.zarr")
@arguments.data_argument
@arguments.fitted_rows
@arguments.learner
@arguments.machine
@arguments.seed
@click.option("--model", metavar="M.zarr", help="Where the model is written.")
@click.option(
    "--moments/--no-moments",
    default=True,
    help="Keep the moments with the model (R²/2 numbers), which update needs.",
)
@click.option(
    "--batch", metavar="NAME",
    help="The name under which all of DATA are counted: update --batch NAME knows them.",
)  # fmt: skip
@click.option(
    "--by", metavar="COLUMN",
    help="Every label is a batch, COLUMN=LABEL, which update --by knows and forget takes out.",
)  # fmt: skip
@arguments.overwrite
@arguments.dry_run
@arguments.as_json
def fit(
    data: str,
    chosen: RowOptions,
    learner: Learner,
    machine: Machine,
    seed: int,
    model: str | None,
    moments: bool,
    batch: str | None,
    by: str | None,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fit a regression, a Gaussian process or a classifier from one read of DATA.

    DATA is a path or URL: Zarr, icechunk, netCDF, Parquet, Arrow or CSV. Of a folder or a quoted
    pattern of files, such as 'days/*.parquet', each file is a batch under its name: update counts
    the later ones, and forget takes one out. With --holdout, a second streamed pass scores the
    model on exactly the rows that were left out.

    With --model, finished sums are kept in M.zarr.checkpoint every 30 seconds: the same command
    continues after an interrupt or a crash and gives the same result. With other options, it
    stops with exit code 4.
    """
    if batch is not None and by is not None:
        raise click.UsageError("--batch and --by were both given. Name all rows, or label each.")
    if model is not None and was_finished(model, overwrite):
        show({"command": "fit", "model": model}, [("saved", f"{model} before")], as_json)
        return
    from rff_stream.cli.products import check_free

    check_free(model, overwrite, data)
    if model is None and not dry_run:
        click.echo(
            "rff-stream: warning: no --model was given, so the fit is not kept when it is done. "
            "Give --model M.zarr to keep it.",
            err=True,
        )
    with computing(machine):
        if dry_run:
            facts, lines = planned(data, chosen, learner, machine, seed, None)
        else:
            named: dict[str, Any] = {} if batch is None else {"batch": batch}
            named = named if by is None else {"by": by, "batch": True}
            run = functools.partial(fitted_model, data, chosen, learner, machine, seed, named)
            fitted, seconds = fitted_at(model, overwrite, run)
            facts, lines = output.of_fit(fitted, seconds)
            if model is not None:
                options = chosen.storage_options
                fitted.save(model, moments=moments, overwrite=overwrite, storage_options=options)
                finish(model)
                facts, lines = facts | {"model": model}, [*lines, ("saved", model)]
            else:
                lines = [*lines, ("saved", "nowhere: no --model was given")]
            if chosen.holdout is not None:
                facts["held_out"], found = scores(fitted, data, chosen, seed)
                lines = [*lines, *[("held out", f"{name}: {text}") for name, text in found], SCORED]
    show({"command": "fit", "data": data, **facts}, lines, as_json)


def fitted_model(
    data: str,
    chosen: RowOptions,
    learner: Learner,
    machine: Machine,
    seed: int,
    named: Mapping[str, Any],
    checkpoint: str | None = None,
) -> tuple[Any, float]:
    """A fitted model, and the seconds from call to return of fit."""
    model = arguments.estimator(learner, chosen, machine, seed)
    started = time.monotonic()
    absent = [name for name in named if name not in inspect.signature(model.fit).parameters]
    if absent:
        raise click.UsageError(
            f"--{absent[0]} names rows that later ones are added to, which a "
            f"{type(model).__name__} of this fit does not take. Leave it out."
        )
    model.fit(checkpoint=checkpoint, **named, **chosen.selection(data, seed).arguments)
    return model, time.monotonic() - started


def checkpoint_of(model: str) -> str:
    """Where sums are kept until the model is."""
    return f"{model.rstrip('/')}.checkpoint"


def fitted_at(model: str | None, overwrite: bool, fit: Callable[[str | None], Value]) -> Value:
    """What ``fit(checkpoint)`` gives; ``overwrite`` drops the checkpoint of another fit."""
    from rff_stream.store import OtherPass, discard

    if model is None or "://" in model:
        return fit(None)
    path, taken = checkpoint_of(model), os.path.lexists(model)
    try:
        return fit(path)
    except OtherPass:
        if not overwrite:
            raise
        discard(path)
        return fit(path)
    except ModelError as error:
        if taken or not os.path.lexists(model):
            raise
        raise ModelError(
            f"{model} was saved by another run of this command while this one was reading. It is "
            "whole: load it, or choose another --model."
        ) from error


def finish(model: str) -> None:
    """The model is saved: its checkpoint goes."""
    from rff_stream.store import discard

    if "://" not in model:
        discard(checkpoint_of(model))


def was_finished(model: str, overwrite: bool) -> bool:
    """Whether an earlier run saved this model and was stopped before it could tidy up."""
    from rff_stream.store import load_model, token_in

    if overwrite or "://" in model or not os.path.lexists(model):
        return False
    token = token_in(checkpoint_of(model))
    if token is None or load_model(model).header.get("fitted", {}).get("pass") != token:
        return False
    finish(model)
    return True


def planned(
    data: str, chosen: RowOptions, learner: Learner, machine: Machine, seed: int,
    workers: int | None,
) -> tuple[Facts, list[Line]]:  # fmt: skip
    """The plan of a fit: here, or for so many processes."""
    from dask.system import CPU_COUNT

    from rff_stream.estimators.base import plan_of

    model = arguments.estimator(learner, chosen, machine, seed)
    source = arguments.source_of(data, chosen, seed, labels=learner.classify is not None)
    processes = None if workers is None else (workers, machine.threads or CPU_COUNT)
    return output.of_plan(plan_of(model, source, processes))
