"""The commands predict and score."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from rff_stream.cli import arguments, tables
from rff_stream.cli.arguments import Machine, RowOptions, computing
from rff_stream.cli.output import Facts, Line, of_class_scores, of_prediction, of_scores, show
from rff_stream.errors import ModelError

places_argument = click.argument("places", nargs=-1, metavar="MODEL DATA")
model_option = click.option(
    "--model", metavar="M.zarr", hidden=True, help="The model; write it before DATA instead.",
    deprecated="Write MODEL before DATA.",
)  # fmt: skip


@click.command(epilog="Example: rff-stream predict model.zarr data.zarr --output predicted.zarr")
@places_argument
@model_option
@click.option(
    "--output", metavar="OUT", required=True,
    help="Where predictions are written: .zarr, or of a table .parquet, .arrow or .csv.",
)  # fmt: skip
@click.option(
    "--keep", type=arguments.names, metavar="A,B",
    help="Columns of a table that stand before the predictions of each row, such as id,date.",
)  # fmt: skip
@click.option(
    "--std", is_flag=True,
    help="For a Gaussian process: also the standard deviation of a new observation, NAME_std.",
)  # fmt: skip
@click.option(
    "--interval", type=float, metavar="COVERAGE",
    help="For a Gaussian process: also the interval that contains a new observation with this "
    "probability, such as 0.9: NAME_lower and NAME_upper.",
)  # fmt: skip
@click.option(
    "--noise/--no-noise", default=None,
    help="Whether --std and --interval include the noise of a new observation; they do unless "
    "you say --no-noise, which gives those of the function.",
)  # fmt: skip
@click.option(
    "--probabilities", is_flag=True,
    help="For a classifier: the probability of each class, not the label.",
)  # fmt: skip
@arguments.machine
@arguments.storage_options
@arguments.overwrite
@arguments.dry_run
@arguments.as_json
def predict(
    places: tuple[str, ...],
    model: str | None,
    output: str,
    std: bool,
    interval: float | None,
    noise: bool | None,
    probabilities: bool,
    keep: tuple[str, ...] | None,
    machine: Machine,
    storage_options: dict[str, Any] | None,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the predictions of MODEL for DATA to OUT, block by block.

    For a table and an OUT that is a table, rows are in the order of DATA, with the index that
    pandas wrote and the columns of --keep; several files make a folder of files of the same names.
    For OUT.zarr: dimensions and coordinates are those of DATA, units those of the target. For
    arrays and tables it is an array of rows, with an attribute "columns". Predictions are NaN
    where an input is missing.
    """
    uncertainty = Uncertainty(std, interval, noise)
    uncertainty.check()
    if uncertainty.is_any and probabilities:
        raise click.UsageError(
            f"{uncertainty.option} and --probabilities were both given. Give one of them."
        )
    from rff_stream.cli import products

    model, data = model_and_data(places, model)
    if tables.is_table(output):
        facts, lines = predicted_table(
            (model, data, output), uncertainty, probabilities, keep or (), machine, storage_options,
            overwrite=overwrite, dry_run=dry_run,
        )  # fmt: skip
        show({"command": "predict", "data": data, **facts}, lines, as_json)
        return
    if keep is not None:
        raise tables.keeps_nothing(keep, output)
    products.check_output(output, overwrite, model, data, storage_options=storage_options)
    loaded = arguments.load_model(model, machine, storage_options=storage_options)
    loaded.set_params(missing_rows="drop")  # a row without an input has no prediction
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        path = None
        if not dry_run:
            path = stack.enter_context(products.destination(output, overwrite))
        stack.enter_context(computing(machine))
        rows = arguments.open_data(data)
        if probabilities:
            found = probabilities_of(loaded, rows, storage_options)
        else:
            found = answer_of(loaded, rows, storage_options, uncertainty)
        if path is not None:
            products.write_predictions(
                found, path, output, overwrite=overwrite, storage_options=storage_options,
                columns=columns_of(loaded, uncertainty, probabilities),
            )  # fmt: skip
    seconds = time.monotonic() - started
    words = "to predict" if dry_run else f"predicted in {seconds:.1f} s"
    facts, lines = of_prediction(loaded, products.sizes(found), words)
    facts |= {"model": model, "output": output, "seconds": seconds}
    lines = [*lines, ("output", output)]
    show({"command": "predict", "data": data, **facts}, lines, as_json)


def predicted_table(
    places: tuple[str, str, str],
    uncertainty: Uncertainty,
    probabilities: bool,
    keep: tuple[str, ...],
    machine: Machine,
    storage_options: Any,
    *,
    overwrite: bool,
    dry_run: bool,
) -> tuple[Facts, list[Line]]:
    """Write the predictions of a table as a table; what to say about it."""
    model, data, output = places
    files = tables.files_to_predict(data, output, storage_options)
    path = tables.check_table(files, output, overwrite, model, data)
    loaded = arguments.load_model(model, machine, storage_options=storage_options)
    loaded.set_params(missing_rows="drop")  # a row without an input has no prediction

    def values(table: Any) -> list[Any]:
        if probabilities:
            found = [probabilities_of(loaded, table, None)]
        elif uncertainty.is_any:
            found = uncertainty.values(loaded, table, None)
        else:
            answer = plain_answer(loaded, table)
            found = list(answer) if isinstance(answer, tuple) else [answer]
        return [column for each in found for column in np.asarray(each).reshape(len(table), -1).T]

    names = columns_of(loaded, uncertainty, probabilities)
    request = tables.TableRequest(values, names, loaded.columns_.inputs, keep)
    started = time.monotonic()
    rows = 0
    if not dry_run:
        with computing(machine):
            rows = tables.write_tables(files, request, path, output, overwrite, storage_options)
    seconds = time.monotonic() - started
    words = "to predict" if dry_run else f"predicted in {seconds:.1f} s"
    facts: Facts = {"model": model, "output": output, "seconds": seconds, "n_rows": rows}
    facts |= {"files": [file.name for file in files], "columns": [*keep, *names]}
    count = "" if dry_run else f"{rows:,} rows of "
    told = f"{count}{len(files):,} files {words}: {', '.join(names)}"
    return facts, [("rows", told), ("output", output)]


@click.command(epilog="Example: rff-stream score model.zarr data.zarr")
@places_argument
@model_option
@arguments.test_rows
@arguments.machine
@arguments.seed
@arguments.as_json
def score(
    places: tuple[str, ...],
    model: str | None,
    chosen: RowOptions,
    machine: Machine,
    seed: int,
    as_json: bool,
) -> None:
    """Print R² and RMSE of MODEL on DATA, per target, from one streamed pass.

    For a classifier: accuracy, log-loss, and for each class AUROC and recall.

    With the --holdout, --holdout-by, --where, --dim and --seed of a fit: on exactly the rows
    that the fit held out.
    """
    model, data = model_and_data(places, model)
    loaded = arguments.load_model(model, machine, chosen, chosen.storage_options)
    with computing(machine):
        facts, lines = scores(loaded, data, chosen, seed)
    facts = {"command": "score", "data": data, "model": model, **facts}
    show(facts, lines, as_json)


def model_and_data(given: Sequence[str], model: str | None) -> tuple[str, str]:
    """MODEL DATA, or (deprecated) DATA with --model; both are there."""
    every = model_and_places(given, model)
    if len(every) != 2:
        raise wrong_count(given, model)
    return every[0], every[1]


def model_and_places(given: Sequence[str], model: str | None) -> list[str]:
    """MODEL and at least one DATA."""
    every = (*given,) if model is None else (model, *given)
    if len(every) < 2 or not given:
        raise wrong_count(given, model)
    return [arguments.place(each) for each in every]


def wrong_count(given: Sequence[str], model: str | None) -> click.UsageError:
    """The error of too few or too many paths."""
    return click.UsageError(
        f"{len(given)} paths were given{'' if model is None else ' besides --model'}, but the "
        f"command takes two. Write MODEL DATA."
    )


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What predictions are to say of their errors: --std, --interval, --noise/--no-noise."""

    std: bool
    interval: float | None
    noise: bool | None

    @property
    def is_any(self) -> bool:
        """Whether anything was asked for."""
        return self.std or self.interval is not None

    @property
    def option(self) -> str:
        """The option that asks for it."""
        return "--std" if self.std else "--interval"

    @property
    def endings(self) -> tuple[str, ...]:
        """What follows the name of a target in those of the columns."""
        interval = () if self.interval is None else ("lower", "upper")
        return (*(("std",) if self.std else ()), *interval)

    def check(self) -> None:
        """Refuse a coverage that is none, and words about a noise that is not asked for."""
        if self.interval is not None and not 0 < self.interval < 1:
            raise click.UsageError(
                f"--interval {self.interval:g} but a coverage lies between 0 and 1, such as 0.9."
            )
        if self.noise is not None and not self.is_any:
            raise click.UsageError(
                f"{'--noise' if self.noise else '--no-noise'} says what a standard deviation or "
                "an interval includes, but neither was asked for. Give --std or --interval 0.9."
            )

    def values(self, model: Any, data: Any, storage_options: Any) -> list[Any]:
        """Means, and what was asked for."""
        if not hasattr(model, "predict_interval"):
            raise ModelError(
                f"{self.option} asks how sure the model is, but it is a {type(model).__name__}, "
                "which gives no standard deviation. Fit one with --estimator gp."
            )
        options = {"noise": self.noise is not False, "storage_options": storage_options}
        found = model.predict(data, return_std=self.std, **options)
        found = list(found) if self.std else [found]
        if self.interval is not None:
            found += model.predict_interval(data, self.interval, **options)
        return found


def answer_of(model: Any, data: Any, storage_options: Any, uncertainty: Uncertainty) -> Any:
    """What a model says of rows: labels or values, a density with its errors, components."""
    from rff_stream.cli import products

    if uncertainty.is_any:
        return products.combined(*uncertainty.values(model, data, storage_options))
    found = plain_answer(model, data, storage_options)
    return products.stack_columns(found) if isinstance(found, tuple) else found


def plain_answer(model: Any, data: Any, storage_options: Any = None) -> Any:
    """Labels or values, a density with its errors, or components."""
    for name in ("predict", "density", "transform"):
        if hasattr(model, name):
            return getattr(model, name)(data, storage_options=storage_options)
    raise ModelError(f"{type(model).__name__} has no predictions for single rows.")


def probabilities_of(model: Any, data: Any, storage_options: Any) -> Any:
    """What a classifier says of each class."""
    require_classes(model)
    return model.predict_proba(data, storage_options=storage_options)


def require_classes(model: Any) -> None:
    """Refuse probabilities of a model without classes."""
    if not hasattr(model, "predict_proba"):
        raise ModelError(
            f"--probabilities are those of classes, which a {type(model).__name__} has not. Fit a "
            "model with --classify logistic."
        )


def columns_of(model: Any, uncertainty: Uncertainty, probabilities: bool) -> tuple[str, ...]:
    """Names of what is predicted, in the order of the columns of an array of rows."""
    if probabilities:
        require_classes(model)
        from rff_stream.estimators.classifier import names_of

        return names_of(model, "probability")
    targets = tuple(model.columns_.targets)
    if not targets:
        if hasattr(model, "density"):
            from rff_stream.answers.density import DensityEstimate

            return DensityEstimate._fields
        components = getattr(model, "get_feature_names_out", None)
        return ("label",) if components is None else tuple(components().tolist())
    return (*targets, *(f"{name}_{end}" for end in uncertainty.endings for name in targets))


def scores(model: Any, data: str, chosen: RowOptions, seed: int) -> tuple[Facts, list[Line]]:
    """Scores on the rows selected; on the test part where rows were held out."""
    if not model.columns_.targets:
        raise ModelError(
            f"The model is a {type(model).__name__}, which was fitted without a target, so there "
            "is nothing to compare its answers with. Use predict to write them, or report --data."
        )
    labels = hasattr(model, "classes_")
    rows = chosen.selection(arguments.open_data(data), seed, "test")
    rows = replace(rows, inputs=None)  # they are those of the fit
    found = (model.scores if labels else model.residuals)(**rows.arguments)
    if labels:
        return of_class_scores(found)
    columns = model.columns_
    units = columns.units[len(columns.inputs) :] or ("",) * len(columns.targets)
    return of_scores(found, columns.targets, units)
