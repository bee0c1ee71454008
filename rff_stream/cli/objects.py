"""Names on the command line -> objects: data, models, and where a command computes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from rff_stream.cli.arguments import DataSelection, Learner, Machine
from rff_stream.errors import ClusterError


def open_data(data: str) -> Any:
    """The lazy Dataset of a netCDF file, whose coordinates go with predictions; else the path."""
    from rff_stream.sources.paths import format_of, netcdf

    return netcdf(data) if format_of(data) == "netcdf" else data


def source_of(data: str, selection: DataSelection, seed: int, *, labels: bool = False) -> Any:
    """The source that a fit reads, of labels or of numbers; touches metadata only."""
    from rff_stream.sources import open_source

    return open_source(
        open_data(data),
        selection.one_target,
        selection.weights,
        inputs=selection.inputs,
        y_labels=labels,
        **selection.rows(seed),
        **selection.missing,
    )


def estimator(learner: Learner, selection: DataSelection, machine: Machine, seed: int) -> Any:
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
        **selection.missing,
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
    from rff_stream.features import Candidates

    name, cells = learner.features, learner.cells
    if cells is not None and name in ("whole", "grid"):
        raise click.UsageError(
            f"--features {name} has no cells, but --cells was given. Give --features local or "
            "auto, or leave one of them out."
        )
    if name == "auto":
        return Candidates() if cells is None else Candidates(("whole", cells))
    return cells if cells is not None else name or "whole"


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
    selection: DataSelection | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """A saved model, with what this run says about memory and missing values."""
    import rff_stream as rs

    model = rs.load(path, storage_options=storage_options)
    asked: dict[str, Any] = {"memory": machine.memory}
    if selection is not None:
        asked["missing_rows"] = selection.missing_rows
        asked["missing_chunks"] = selection.missing_chunks
    return model.set_params(**{name: each for name, each in asked.items() if each is not None})


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


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """The workers of a scheduler; its certificates come from Dask's configuration."""
    from distributed import Client

    started = time.monotonic()
    try:
        client = Client(address)
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # TypeError: no certificate
        waited = time.monotonic() - started
        raise ClusterError(
            f"No Dask scheduler answered at {address} within {waited:.1f} s "
            f"({type(error).__name__}: {error}). Look at the address, the network and, for "
            f"tls://, at the certificates in Dask's configuration (distributed.comm.tls)."
        ) from error
    with client:
        yield
