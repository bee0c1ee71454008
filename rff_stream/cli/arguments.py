"""Options that several commands share, each group as one frozen value, and what they name.

The ``type`` of an option turns its words into a value, or gives a usage error. Functions at the end
turn values into objects: data, models, and where a command computes.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from rff_stream.cli.output import redact_text
from rff_stream.errors import ClusterError
from rff_stream.text_formatting import hide_options, hide_url

if TYPE_CHECKING:
    from rff_stream.sources import HoldOut, Selection


CONDITION = re.compile(r"((?:\[[^\]]*\]|[^\[<>=!])+)(<=|>=|==|!=|<|>)([^<>=!].*)")


class KernelName(click.Choice[str]):
    """The name of a kernel that has frequencies; which there are is asked on first use."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """ "auto", and names in the order of the alphabet."""
        from rff_stream.kernels import kernel_names

        return ("auto", *kernel_names(stationary=True))


def names(text: str) -> tuple[str, ...]:
    """ "lat,u[level=500,member=3]" -> ("lat", "u[level=500,member=3]")."""
    found = tuple(name.strip() for name in re.split(r",(?![^\[]*\])", text))
    if not all(found):
        raise click.BadParameter(f"{text!r} has an empty name. Separate names by single commas.")
    return found


def cells(text: str) -> Any:
    """ "256,4" or "256,4,1024" -> columns of a cell, trees, and cells of each."""
    from rff_stream import Cells

    parts = text.split(",")
    if not (2 <= len(parts) <= 3 and all(part.strip().isdigit() for part in parts)):
        raise click.BadParameter(
            f"{text!r} is not R,TREES or R,TREES,CELLS in whole numbers. Write for instance 256,4."
        )
    try:
        return Cells(*map(int, parts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def condition(text: str) -> tuple[str, str, str]:
    """ "time<2015" -> ("time", "<", "2015")."""
    found = CONDITION.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not NAME OP VALUE with OP one of < <= > >= == !=. Write for instance "
            f'"time<2015-06-01" or "lat>=30", in quotation marks.'
        )
    name, operator, value = (part.strip() for part in found.groups())
    return name, operator, value.strip("'\"")


def numbers(text: str) -> float | tuple[float, ...] | None:
    """A number, or several with commas; None if it is neither."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        return None
    return found[0] if len(found) == 1 else found


def length_scale(text: str) -> float | list[float] | str:
    """A number, one per input, or a word that the estimator knows."""
    found = numbers(text)
    if found is None:
        return text
    return found if isinstance(found, float) else list(found)


def alpha(text: str) -> Any:
    """A number, one per target, or a word that the estimator knows."""
    found = numbers(text)
    if found is None or isinstance(found, float):
        return text if found is None else found
    import numpy as np

    return np.array(found)


def memory(text: str) -> int:
    """ "4GiB" -> 4294967296."""
    from dask.utils import parse_bytes

    try:
        found = int(parse_bytes(text))
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise click.BadParameter(f"{text!r} is no amount of memory. Write 4GiB, 500MB or bytes.")
    return found


def address(text: str) -> str:
    """The address of a Dask scheduler."""
    hide_url(text)
    if not text.startswith(("tcp://", "tls://")):
        raise click.BadParameter(
            f"{text!r} is no address of a Dask scheduler. Write tcp://host:8786 or "
            f"tls://host:8786, as the scheduler prints it when it starts."
        )
    if "@" in text:
        raise click.BadParameter(
            f"{redact_text(text)} contains a user name, but Dask's schedulers have no users. Write "
            "tls://host:8786; certificates come from Dask's configuration (distributed.comm.tls)."
        )
    return text


def options(text: str) -> dict[str, Any]:
    """A JSON object of storage options; its secrets are never printed."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON ({error}). Write {EXAMPLE}.") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"is JSON, but not an object. Write {EXAMPLE}.")
    hide_options(found)
    return found


EXAMPLE = """'{"anon": true}', in quotation marks"""


def place(text: str) -> str:
    """A path that exists, a pattern of files that do, or a URL."""
    hide_url(text)
    if "://" in text and not text.startswith("file://"):
        return text
    path = Path(text.removeprefix("file://"))
    several = glob.has_magic(str(path)) and any(True for _ in glob.iglob(str(path)))
    if not path.exists() and not several:
        raise click.BadParameter(f"{text} does not exist. {near(path)}")
    return text


def near(path: Path) -> str:
    """Which path may have been meant."""
    if path.is_symlink():
        return f"It is a link to {path.readlink()}, which leads nowhere."
    known = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, known, n=1)
    if close:
        return f"Did you mean {path.with_name(close[0])}?"
    return f"Look at the path; it counts from {Path.cwd()}."


Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RowOptions:
    """What the command line says of the rows and columns of the data."""

    inputs: tuple[str, ...] | None
    target: tuple[str, ...] | None
    dim: tuple[str, ...] | None
    where: tuple[tuple[str, str, str], ...]
    holdout: float | None
    holdout_by: str | None
    weights: str | None
    missing_rows: Literal["error", "drop", "indicate"] | None
    missing_chunks: Literal["auto", "error", "fill"] | None
    storage_options: dict[str, Any] | None

    def selection(
        self, data: Any, seed: int, part: Literal["train", "test"] = "train"
    ) -> Selection:
        """These rows of the data, of which one part may be held out."""
        from rff_stream.sources import Selection

        held = self.held_out(seed, part)
        y = self.target[0] if self.target is not None and len(self.target) == 1 else self.target
        return Selection(
            data,
            y,
            self.weights,
            self.inputs,
            self.dim,
            (*self.where, *([] if held is None else [held])),
            storage_options=self.storage_options,
            **self.missing,
        )

    @property
    def missing(self) -> dict[str, Any]:
        """What missing values mean."""
        rows, chunks = self.missing_rows or "error", self.missing_chunks or "auto"
        return {"missing_rows": rows, "missing_chunks": chunks}

    def held_out(self, seed: int, part: Literal["train", "test"]) -> HoldOut | None:
        """One part of the hold-out; None where none was asked for."""
        if self.holdout is None:
            if self.holdout_by is not None:
                raise click.UsageError("--holdout-by needs --holdout: give the share, as 0.1.")
            return None
        from rff_stream.sources import HoldOut

        return HoldOut(self.holdout, seed, part, self.holdout_by)


@dataclass(frozen=True, slots=True)
class Learner:
    """What is fitted."""

    kernel: str
    nu: float | None
    length_scale: Any
    n_components: int | None
    alpha: Any
    dtype: Literal["float32", "float64"]
    sums: Literal["auto", "float32", "float64"]
    classify: Literal["squared", "logistic", "squared_hinge", "hinge"] | None = None
    estimator: Literal["ridge", "gp"] = "ridge"
    cells: Any = None
    features: Literal["whole", "local", "grid", "auto"] | None = None
    search_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it runs, and what it may use."""

    memory: int | None
    threads: int | None
    scheduler: str | None


def group(kind: type, name: str, *several: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """A decorator: these options reach the command as one value of ``kind``."""
    known = [field.name for field in fields(kind)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(*arguments: Any, **given: Any) -> Any:
            value = kind(**{field: given.pop(field, None) for field in known})
            return command(*arguments, **given, **{name: value})

        return functools.reduce(lambda made, option: option(made), reversed(several), call)  # type: ignore[return-value]

    return decorate


def joined_names(ctx: click.Context, parameter: click.Parameter, several: Any) -> Any:
    """The names of an option and of its repeats; None for none."""
    return tuple(name for each in several for name in each) or None


def names_option(word: str, **choices: Any) -> Callable[[Command], Command]:
    """An option of names with commas; names of a repeated one are added."""
    return click.option(word, type=names, multiple=True, callback=joined_names, **choices)


data_argument = click.argument("data", type=place)
storage_options = click.option(
    "--storage-options", type=options, metavar="JSON",
    help="Options for URLs, as fsspec takes them; secrets are never printed.",
)  # fmt: skip
dry_run = click.option(
    "--dry-run", is_flag=True, help="Print what would be done; reads only metadata."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
overwrite = click.option(
    "--overwrite", is_flag=True, help="Replace what exists there, when the new one is complete."
)

missing_chunks = click.option(
    "--missing-chunks", type=click.Choice(["auto", "error", "fill"]),
    help="auto: rows of an absent chunk are missing if its fill value means missing.",
)  # fmt: skip
ROWS = (
    names_option(
        "--dim", metavar="DIMS",
        help="Sample dimensions; by default those of the target. Others become columns.",
    ),
    click.option(
        "--where", type=condition, metavar="COND", multiple=True,
        help='Use only rows with NAME OP VALUE: "time<2015", "lat>=30". It can be repeated.',
    ),
    click.option(
        "--holdout", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="SHARE",
        help="Hold out this share of the rows for scoring; a hash and --seed choose them.",
    ),
    click.option(
        "--holdout-by", metavar="NAME",
        help="Hold out whole labels, such as time.year: use it if neighbours are correlated.",
    ),
    click.option("--weights", metavar="NAME", help="A weight for every row; 0 leaves it out."),
    click.option(
        "--missing-rows", type=click.Choice(["error", "drop", "indicate"]),
        help="drop: leave out rows with NaN (land, gaps); indicate: a missing input is "
        "information. By default NaN is an error.",
    ),
    missing_chunks,
    storage_options,
)  # fmt: skip

inputs = names_option(
    "--inputs", metavar="A,B,C",
    help="Variables, coordinates or virtual names (time.dayofyear). Default: all variables "
    "except target and weights.",
)  # fmt: skip
needed_target = names_option(
    "--target", metavar="T", required=True,
    help="The variable to predict; several with commas, or by repeating the option.",
)  # fmt: skip
other_target = names_option(
    "--target", metavar="T", help="Name of the target, if not that of the fit."
)
seed = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Seed of the hold-out, the frequencies and the pilot.",
)  # fmt: skip

fitted_rows = group(RowOptions, "chosen", inputs, needed_target, *ROWS)
"""Rows and columns to fit."""

test_rows = group(RowOptions, "chosen", other_target, *ROWS)
"""Rows to score."""

learner = group(
    Learner, "learner",
    click.option(
        "--kernel", default="auto", show_default=True,
        type=KernelName(),
        help="auto: found from the data with cells, else gaussian. Use matern or laplacian if the "
        "function is rough.",
    ),
    click.option(
        "--nu", type=click.FloatRange(0, min_open=True),
        help="Smoothness of the matern kernel: 0.5 rough, 1.5 (its default), 2.5 smooth.",
    ),
    click.option(
        "--length-scale", type=length_scale, default="auto", show_default=True,
        metavar="L", help="auto (found from the data with cells, else median), median, evidence, "
        "ard, a number, or one per input with commas, in units of the inputs.",
    ),
    click.option(
        "--n-components", type=click.IntRange(min=1), show_default="found from the data",
        metavar="R", help="Random features of one map of the whole space. Use more if df is "
        "near R. Time grows as R².",
    ),
    click.option(
        "--features", type=click.Choice(["whole", "local", "grid", "auto"]),
        help="auto (the default): kernel, metric and cells that predict left-out rows of the pilot "
        "best. whole: one map of the whole space, as with --n-components; local: cells; grid: "
        "frequencies for one to three inputs.",
    ),
    click.option(
        "--cells", type=cells, metavar="R,TREES[,CELLS]",
        help="Divide the data into cells with R features each, such as 256,4: for structure that "
        "features of the whole space cannot represent. Length-scales are found from the data.",
    ),
    click.option(
        "--search-seconds", type=click.FloatRange(0), metavar="S",
        help="CPU seconds that the search for kernel, metric and cells may take; by default as "
        "long as the pass, and at least 10.",
    ),
    click.option(
        "--alpha", type=alpha, default="evidence", show_default=True, metavar="ALPHA",
        help="Penalty: evidence, cv, gcv, or a number (noise variance / signal variance).",
    ),
    click.option(
        "--dtype", type=click.Choice(["float32", "float64"]), default="float32",
        show_default=True, help="Type of the features.",
    ),
    click.option(
        "--sums", type=click.Choice(["auto", "float32", "float64"]), default="auto",
        show_default=True, help="Use float64 if a warning says that alpha was raised.",
    ),
    click.option(
        "--estimator", type=click.Choice(["ridge", "gp"]), default="ridge", show_default=True,
        help="gp: a Gaussian process, whose predictions have a standard deviation "
        "(predict --std).",
    ),
    click.option(
        "--classify", type=click.Choice(["squared", "logistic", "squared_hinge", "hinge"]),
        help="The target is a class. squared needs one read of the data, the other losses "
        "several.",
    ),
)  # fmt: skip

machine = group(
    Machine, "machine",
    click.option(
        "--memory", type=memory, metavar="BYTES",
        help="Memory of each computing process, such as 4GiB. A larger plan exits 3.",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1), metavar="N",
        help="Threads of this process; default all CPUs. The bits of the answer do not change.",
    ),
    click.option(
        "--scheduler", type=address, metavar="ADDRESS",
        help="A Dask scheduler, tcp://… or tls://…, whose workers see the same paths.",
    ),
)  # fmt: skip


def open_data(data: str) -> Any:
    """The lazy Dataset of netCDF files, whose coordinates go with predictions; else the path."""
    from rff_stream.sources.data_files import files_at, open_together
    from rff_stream.sources.paths import format_of, netcdf

    if format_of(data) != "netcdf":
        return data
    files = files_at(data)
    return open_together(files, None, inputs=()) if files else netcdf(data)


def source_of(data: str, chosen: RowOptions, seed: int, *, labels: bool = False) -> Any:
    """The source that a fit reads, of labels or of numbers; touches metadata only."""
    from rff_stream.sources import open_selection

    return open_selection(replace(chosen.selection(open_data(data), seed), y_labels=labels))


def estimator(learner: Learner, chosen: RowOptions, machine: Machine, seed: int) -> Any:
    """The estimator that these options describe, not fitted."""
    import rff_stream as rs

    shared: dict[str, Any] = {
        "kernel": kernel_of(learner),
        "length_scale": learner.length_scale,
        "n_components": learner.n_components,
        "dtype": learner.dtype,
        "sums": learner.sums,
        "memory": machine.memory,
        "random_state": seed,
        "features": features_of(learner),
        "search_seconds": learner.search_seconds,
        **chosen.missing,
    }
    by_evidence = isinstance(learner.alpha, str) and learner.alpha == "evidence"
    if learner.estimator == "gp":
        check_gaussian_process(learner, by_evidence)
        return rs.GaussianProcessRegressor(**shared)
    if learner.classify is not None:
        alpha = "sample" if by_evidence else learner.alpha
        return rs.KernelClassifier(learner.classify, alpha=alpha, **shared)
    return rs.KernelRidge(alpha=learner.alpha, **shared)


def check_gaussian_process(learner: Learner, by_evidence: bool) -> None:
    """Refuse options that a Gaussian process has not: it finds noise and signal by evidence."""
    if learner.classify is not None:
        raise click.UsageError("--classify and --estimator gp were both given. Give one of them.")
    if not by_evidence:
        raise click.UsageError(
            f"--alpha {learner.alpha} is a penalty, but a Gaussian process takes its noise by "
            "evidence. Leave --alpha out, or give --estimator ridge."
        )


def features_of(learner: Learner) -> Any:
    """The map, or the maps that compete; cells of the sizes given where they are among them."""
    from rff_stream import Candidates

    name, cells = learner.features, learner.cells
    if cells is not None and name in ("whole", "grid"):
        raise click.UsageError(
            f"--features {name} has no cells, but --cells was given. Give --features local or "
            "auto, or leave one of them out."
        )
    if name == "auto" and cells is not None:
        return Candidates(("whole", cells))
    return cells if cells is not None else name or "auto"


def kernel_of(learner: Learner) -> Any:
    """A kernel by name, or a Matérn of the smoothness given."""
    if learner.nu is None:
        return learner.kernel
    if learner.kernel != "matern":
        raise ValueError(
            f"--nu {learner.nu:g} is the smoothness of a matern kernel, but --kernel is "
            f"{learner.kernel}. Give --kernel matern, or leave --nu out."
        )
    import rff_stream as rs

    return rs.Matern(nu=learner.nu)


def load_model(
    path: str,
    machine: Machine,
    chosen: RowOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """A saved model, with what this run says about memory and missing values."""
    import rff_stream as rs

    model = rs.load(path, storage_options=storage_options)
    given: dict[str, Any] = {"memory": machine.memory}
    if chosen is not None:
        given["missing_rows"] = chosen.missing_rows
        given["missing_chunks"] = chosen.missing_chunks
    return model.set_params(**{name: each for name, each in given.items() if each is not None})


@contextlib.contextmanager
def computing(machine: Machine) -> Iterator[None]:
    """Everything inside runs there; when it ends, nothing is left running."""
    if machine.scheduler is None:
        with threads(machine.threads):
            yield
        return
    if machine.threads is not None:
        raise click.UsageError(
            f"--threads {machine.threads} counts threads of this process, but --scheduler was "
            f"given. Set the threads when you start the workers: dask worker --nthreads."
        )
    with cluster(machine.scheduler):
        yield


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """A pool of threads; an interrupt waits for the leaves that run, and starts no other."""
    import dask
    from dask.system import CPU_COUNT

    pool = ThreadPoolExecutor(count or CPU_COUNT, "rff-stream")
    try:
        with dask.config.set(scheduler="threads", pool=pool):
            yield
    finally:
        pool.shutdown(cancel_futures=True)


PATIENCE = 5.0
"""Seconds after which it is said that a scheduler does not answer yet."""

logger = logging.getLogger("rff_stream")


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """The workers of a scheduler; its certificates come from Dask's configuration."""
    from distributed import Client

    started = time.monotonic()
    say = threading.Timer(
        PATIENCE, logger.warning, ("still waiting for the Dask scheduler at %s", address)
    )
    say.daemon = True
    say.start()
    try:
        client = Client(address)
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # TypeError: no certificate
        waited = time.monotonic() - started
        raise ClusterError(
            f"No Dask scheduler answered at {address} within {waited:.1f} s "
            f"({type(error).__name__}: {error}). Look at the address, the network and, for "
            f"tls://, at the certificates in Dask's configuration (distributed.comm.tls)."
        ) from error
    finally:
        say.cancel()
    with client:
        yield
