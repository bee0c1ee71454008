"""The commands density, novelty and drift: answers of the mean feature vector."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from rff_stream.cli import arguments, tables
from rff_stream.cli.arguments import Machine, RowOptions, computing
from rff_stream.cli.output import Facts, Line, number, numbers, show

if TYPE_CHECKING:
    from rff_stream.answers.maximum_mean_discrepancy import TwoSample
    from rff_stream.moments import Moments
    from rff_stream.sources.data_files import DataFile

inputs = click.option(
    "--inputs", type=arguments.names, metavar="A,B,C",
    help="Variables, coordinates or virtual names (time.dayofyear). Default: all variables.",
)  # fmt: skip
rows = arguments.group(RowOptions, "chosen", inputs, *arguments.ROWS)
ALARM = 5
"""Exit code of an alarm."""

model = click.option("--model", metavar="M.zarr", help="Where the model is written.")
output = click.option(
    "--output", metavar="OUT",
    help="Where the results are written: .zarr, or of a table .parquet, .arrow or .csv.",
)  # fmt: skip
keep = click.option(
    "--keep", type=arguments.names, metavar="A,B",
    help="Columns of a table that stand before the results of each row, such as id,date.",
)  # fmt: skip
at = click.option(
    "--at", "places", type=arguments.place, metavar="OTHER", help="Rows to evaluate; default DATA."
)


def components(default: int) -> Callable[[arguments.Command], arguments.Command]:
    """R, by default so many."""
    return click.option(
        "--n-components", type=click.IntRange(min=1), default=default, show_default=True,
        metavar="R", help="Random features: the error falls as 1/√R, time grows as R.",
    )  # fmt: skip


def kernel(default: str) -> Callable[[arguments.Command], arguments.Command]:
    """The kernel, by default this one."""
    return click.option(
        "--kernel", default=default, show_default=True, type=arguments.KernelName(), help="Kernel.",
    )  # fmt: skip


@click.command(epilog="Example: rff-stream density data.zarr --model density.zarr")
@arguments.data_argument
@rows
@click.option(
    "--bandwidth", type=arguments.length_scale, default="scott", show_default=True, metavar="H",
    help="scott, silverman, cv, a number, or one per input with commas, in units of the inputs.",
)  # fmt: skip
@kernel("gaussian")
@components(4096)
@at
@model
@output
@keep
@arguments.machine
@arguments.seed
@arguments.overwrite
@arguments.as_json
def density(
    data: str, chosen: RowOptions, bandwidth: Any, kernel: str, n_components: int,
    places: str | None, model: str | None, output: str | None, keep: tuple[str, ...] | None,
    machine: Machine, seed: int, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fit a kernel density from one read of DATA.

    With --output, also writes the density of every row, its standard errors, and whether it is
    below its own error. Values are NaN where an input is missing. For a table and an OUT that is
    a table, rows are written as predict writes them. Of arrays and tables OUT.zarr is an array of
    rows, with an attribute "columns".
    """
    import rff_stream as rs
    from rff_stream.answers.density import DensityEstimate

    choices: dict[str, Any] = {"kernel": kernel, "n_components": n_components}
    choices |= {"memory": machine.memory, "random_state": seed, **chosen.missing}
    made = rs.KernelDensity(bandwidth, **choices)

    def of_rows(rows: Any, options: Any) -> Any:
        return made.density(rows, storage_options=options)

    written = Written(model, output, overwrite, keep, DensityEstimate._fields, of_rows)
    facts, lines = fitted_and_written(made, data, chosen, machine, seed, written, places)
    scale, share = made.bandwidth_, below_error(made)
    facts |= {"bandwidth": scale, "n_components": made.features_.n_components}
    facts["below_error"] = share
    lines.insert(2, ("bandwidth", numbers(scale)))
    lines.insert(4, ("floored", f"{share:.1%} of sampled rows: their density is below its error"))
    show({"command": "density", "data": data, **facts}, lines, as_json)


def below_error(made: Any) -> float:
    """Share of the sampled rows whose density is below its own error."""
    rows = made.moments_.sample.rows[:, : made.n_features_in_]
    return float(made.density_(made.features_(rows)).below_error.mean())


@click.command(epilog="Example: rff-stream novelty data.zarr --output scores.zarr")
@arguments.data_argument
@rows
@click.option(
    "--contamination", type=click.FloatRange(0, 0.5, min_open=True), default=0.1,
    show_default=True, metavar="SHARE", help="Share of the rows below the threshold.",
)  # fmt: skip
@click.option(
    "--length-scale", type=arguments.length_scale, default="half-median", show_default=True,
    metavar="L", help="half-median, median, a number, or one per input with commas.",
)  # fmt: skip
@kernel("rational_quadratic")
@components(512)
@click.option("--whitened", is_flag=True, help="A better ranking, at R² operations per row.")
@click.option("--exact", is_flag=True, help="Compute the threshold in a second read.")
@at
@model
@output
@keep
@arguments.machine
@arguments.seed
@arguments.overwrite
@arguments.as_json
def novelty(
    data: str, chosen: RowOptions, contamination: float, length_scale: Any, kernel: str,
    n_components: int, whitened: bool, exact: bool, places: str | None, model: str | None,
    output: str | None, keep: tuple[str, ...] | None, machine: Machine, seed: int, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Find rows of DATA that are unlike the others, from one read.

    With --output, also writes the score of every row (larger: like the others) and its label
    (−1: novel). Scores are NaN where an input is missing. For a table and an OUT that is a table,
    rows are written as predict writes them. Of arrays and tables OUT.zarr is an array of rows,
    with an attribute "columns".
    """
    import rff_stream as rs

    choices: dict[str, Any] = {"kernel": kernel, "n_components": n_components, "whitened": whitened}
    choices |= {"memory": machine.memory, "random_state": seed, **chosen.missing}
    threshold: Any = "exact" if exact else "sample"
    made = rs.NoveltyDetector(
        contamination, length_scale=length_scale, threshold=threshold, **choices
    )

    def of_rows(rows: Any, options: Any) -> Any:
        score = made.score_samples(rows, storage_options=options)
        label = (score >= made.offset_) * 2 - 1 + 0 * score
        if hasattr(score, "to_dataset"):
            return score.to_dataset(name="score").assign(label=label)
        return score, label

    written = Written(model, output, overwrite, keep, ("score", "label"), of_rows)
    facts, lines = fitted_and_written(made, data, chosen, machine, seed, written, places)
    facts |= {"threshold": made.offset_, "length_scale": made.length_scale_}
    lines.insert(2, ("threshold", f"{number(made.offset_)}: {contamination:.3g} of the rows below"))
    show({"command": "novelty", "data": data, **facts}, lines, as_json)


@click.command(epilog="Example: rff-stream drift model.zarr 2026-01-12.parquet --alarm 0.01")
@click.argument("places", nargs=-1, metavar="DATA | MODEL [NEW]", required=True)
@rows
@click.option("--by", metavar="NAME", help="Compare labels, such as time.year.")
@click.option(
    "--buckets", type=click.IntRange(min=2), metavar="N",
    help="Number of runs of rows to compare, in their own order (default 12), or the largest "
    "number of labels that --by finds.",
)  # fmt: skip
@click.option(
    "--reference", type=arguments.names, metavar="A,B",
    help="Labels or numbers of the normal buckets. Default: all other buckets.",
)  # fmt: skip
@click.option(
    "--alarm", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="ALPHA",
    help="End with exit code 5 if NEW (or a bucket) is unlike the others. With a model, ALPHA is "
    "the probability of any false alarm in all looks, one at each later batch.",
)  # fmt: skip
@click.option(
    "--window", type=click.IntRange(min=1), metavar="N",
    help="With a model: how many batches before NEW it is compared with (default 100).",
)  # fmt: skip
@components(512)
@arguments.machine
@arguments.seed
@arguments.as_json
def drift(
    places: tuple[str, ...], chosen: RowOptions, by: str | None, buckets: int | None,
    reference: tuple[str, ...] | None, alarm: float | None, window: int | None, n_components: int,
    machine: Machine, seed: int, as_json: bool,
) -> int:  # fmt: skip
    """Print how much rows change over time, with p-values.

    With MODEL: compare a batch with those that were counted before it, by means and spreads of
    its inputs, predictions and residuals; what moved is named. NEW is the name of a batch or a
    counted file, of which nothing is read, or other rows. Default: the newest batch.

    With DATA, from one read: compare each bucket with the reference: the distance between their
    means in feature space, the expected distance if nothing has changed, and the p-value, which
    allows for correlation between neighbouring rows. By default the reference is all other
    buckets without those that are unlike the others.
    """
    from rff_stream.answers.maximum_mean_discrepancy import drift as compared
    from rff_stream.moments import total

    data, *new = places
    arguments.place(data)
    if is_model(data):
        if len(new) > 1:
            raise click.UsageError(f"{len(new)} paths were given after MODEL. Give one NEW.")
        return model_drift(data, new, alarm, window, machine, chosen, as_json)
    if new or window is not None:
        raise click.UsageError(
            f"{data} is no model, so it is not compared with {new[0] if new else '--window'}. "
            "Write DATA alone, or MODEL NEW."
        )
    with computing(machine):
        groups = collect_moments(data, chosen, by, buckets or 12, n_components, machine, seed)
    normal = None
    if reference is not None:
        known = {str(label): moments for label, moments in groups.items()}
        absent = [name for name in reference if name not in known]
        if absent:
            raise click.UsageError(
                f"--reference {absent[0]} is none of the buckets {', '.join(known)}. "
                f"Give names from this list."
            )
        normal = total(known[name] for name in reference)
        groups = {k: v for k, v in groups.items() if str(k) not in reference}
    try:
        found = compared(groups, normal)
    except ValueError:
        if by is None or len(groups) <= (buckets or 12):
            raise
        raise click.UsageError(
            f"--by {by} has {len(groups)} labels, and p-values of runs of rows were prepared for "
            f"{buckets or 12}. Give --buckets {len(groups)}."
        ) from None
    facts, lines = of_drift(found)
    unlike = [str(k) for k, each in found.items() if alarm and each.p_value <= alarm / len(found)]
    lines += [("alarm", ", ".join(unlike))] if unlike else []
    show({"command": "drift", "data": data, "buckets": facts, "alarm": unlike}, lines, as_json)
    return ALARM if unlike else 0


def is_model(place: str) -> bool:
    """Whether a model lies there."""
    from rff_stream.store.batch_writing import is_model_at

    return is_model_at(place)


def model_drift(
    model: str, new: Sequence[str], alarm: float | None, window: int | None, machine: Machine,
    chosen: RowOptions, as_json: bool,
) -> int:  # fmt: skip
    """A batch of a model beside those before it; the exit code."""
    from rff_stream.model.batches import WINDOW

    loaded = arguments.load_model(model, machine, chosen, chosen.storage_options)
    with computing(machine):
        look = loaded.drift(*new, alarm=alarm or 0.01, window=window or WINDOW)
    facts: Facts = {"command": "drift", "model": model, "batch": look.batch, "n_rows": look.n_rows}
    facts |= {"p_value": look.p_value, "level": look.level, "n_reference": look.n_reference}
    facts |= {"moved": [asdict(each) for each in look.moved], "left_out": look.left_out}
    facts["alarm"] = look.alarm
    lines = [(look.batch, str(look)), ("reference", f"{look.n_reference} batches")]
    lines += [("left out", ", ".join(look.left_out))] if look.left_out else []
    show(facts, lines, as_json)
    return ALARM if look.alarm and alarm is not None else 0


def collect_moments(
    data: str, chosen: RowOptions, by: str | None, buckets: int, n_components: int,
    machine: Machine, seed: int,
) -> dict[Any, Moments]:  # fmt: skip
    """Mean feature vectors of the buckets, with a map of the data's median length-scale."""
    from rff_stream.costs import WholeCost
    from rff_stream.execution import Reading
    from rff_stream.execution.threads import single_threaded_blas
    from rff_stream.families import SumRequest, family_of
    from rff_stream.features import FourierFeatures
    from rff_stream.kernels import Gaussian
    from rff_stream.planning import PlanRequest
    from rff_stream.sources import open_selection

    rows = chosen.selection(arguments.open_data(data), seed)
    source = open_selection(replace(rows, by=by))
    reading, columns = Reading(source), source.columns
    request = PlanRequest(WholeCost(n_components), order=1, n_groups=buckets)
    plan = reading.plan(request, memory=machine.memory)
    pilot = reading.pilot(seed)
    kernel = Gaussian(tuple(pilot.median_length_scale().tolist()))
    with single_threaded_blas():
        features = FourierFeatures.sample(
            kernel, len(columns.inputs), n_components, origin=pilot.origin, rng=seed,
            paired=n_components % 2 == 0,
        )  # fmt: skip
    family = family_of(features)
    row = family.row(features, pilot, columns)
    sums = SumRequest(features, row, plan, 0, reading.places(plan))
    folds = 0 if by is not None else buckets
    groups, _ = reading.moments(family.statistic(sums), plan, grouped=by is not None, folds=folds)
    return groups


def of_drift(found: Mapping[Any, TwoSample]) -> tuple[Facts, list[Line]]:
    """Comparisons of buckets with the reference."""
    facts = {
        str(label): {
            "n_rows": each.n_a,
            "distance": each.distance,
            "expected": each.expected,
            "p_value": each.p_value,
        }
        for label, each in found.items()
    }
    lines = [("bucket", f"{'rows':>12} {'distance':>9} {'by chance':>9} {'p':>7}")]
    for label, each in found.items():
        distances = f"{each.distance:>9.4f} {each.expected:>9.4f}"
        lines.append((str(label), f"{each.n_a:>12,} {distances} {each.p_value:>7.4f}"))
    return facts, lines


@dataclass(frozen=True, slots=True)
class Written:
    """Where a model and its answers are written, and what these are."""

    model: str | None
    output: str | None
    overwrite: bool
    keep: tuple[str, ...] | None  # columns of a table
    names: tuple[str, ...]  # of the answers
    of_rows: Callable[[Any, Any], Any]
    """Rows and storage options -> a Dataset of labelled rows, or a column for each name."""

    def check(self, data: str, at: str, options: Any) -> list[DataFile]:
        """Refuse places that are taken, before anything is read; the files of a table."""
        from rff_stream.cli import products

        products.check_free(self.model, self.overwrite, data, at)
        read = [data, at, *([] if self.model is None else [self.model])]
        if self.output is not None and tables.is_table(self.output):
            files = tables.files_to_predict(at, self.output, options)
            tables.check_table(files, self.output, self.overwrite, *read)
            return files
        if self.keep is not None:
            raise tables.keeps_nothing(self.keep, self.output)
        if self.output is not None:
            products.check_output(self.output, self.overwrite, *read, storage_options=options)
        return []

    def write_table(self, made: Any, files: Sequence[DataFile], options: Any) -> None:
        """Write the answers of a table, row by row and file by file."""

        def values(table: Any) -> list[Any]:
            return [np.asarray(column) for column in self.of_rows(table, None)]

        output = str(self.output)
        request = tables.TableRequest(values, self.names, made.columns_.inputs, self.keep or ())
        path = tables.check_table(files, output, self.overwrite)
        tables.write_tables(files, request, path, output, self.overwrite, options)

    def write_zarr(self, path: str, at: str, options: Any) -> None:
        """Write the answers block by block."""
        from rff_stream.cli import products

        found = self.of_rows(arguments.open_data(at), options)
        products.write_predictions(
            found if hasattr(found, "data_vars") else products.stack_columns(found), path,
            str(self.output), overwrite=self.overwrite, storage_options=options,
            columns=self.names,
        )  # fmt: skip


def fitted_and_written(
    made: Any, data: str, chosen: RowOptions, machine: Machine, seed: int, written: Written,
    places: str | None,
) -> tuple[Facts, list[Line]]:  # fmt: skip
    """Fit, save and answer; what to say about it."""
    from rff_stream.cli import products

    at, options = places or data, chosen.storage_options
    files = written.check(data, at, options)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        path = None
        if written.output is not None and not files:
            path = stack.enter_context(products.destination(written.output, written.overwrite))
        stack.enter_context(computing(machine))
        made.fit(**chosen.selection(arguments.open_data(data), seed).arguments)
        seconds = time.monotonic() - started
        if written.model is not None:
            made.save(written.model, overwrite=written.overwrite, storage_options=options)
        made.set_params(missing_rows="drop")  # a row without an input has no value
        if files:
            written.write_table(made, files, options)
        elif path is not None:
            written.write_zarr(path, at, options)
    seen = made.n_rows_ + made.n_missing_
    facts = {"n_rows": made.n_rows_, "n_rows_seen": seen, "inputs": made.columns_.inputs}
    facts |= {"seconds": seconds, "fingerprint": made.features_.fingerprint}
    lines = [
        ("rows", f"{made.n_rows_:,} fitted of {seen:,}"),
        ("inputs", ", ".join(made.columns_.inputs)),
        ("components", f"R = {made.features_.n_components}"),
        ("time", f"{seconds:.1f} s, {seen / seconds:,.0f} rows/s"),
    ]
    for name, place in (("model", written.model), ("output", written.output)):
        if place is not None:
            facts[name] = place
            lines.append((name, place))
    return facts, lines
