"""Names on the command line -> objects: data, models and output paths that are free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import click

from rff_stream.cli.arguments import DataSelection, Learner, Machine
from rff_stream.cli.redaction import redact_text

OTHER_ENDINGS = (".nc", ".nc4", ".csv", ".parquet", ".json", ".npy", ".h5")
"""Names of files that a Zarr store would be taken for."""


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

    remote = storage_options if "://" in path else None
    model = rs.load(path, storage_options=remote)
    asked: dict[str, Any] = {"memory": machine.memory}
    if selection is not None:
        asked["missing_rows"] = selection.missing_rows
        asked["missing_chunks"] = selection.missing_chunks
    return model.set_params(**{name: each for name, each in asked.items() if each is not None})


def check_free(path: str | None, overwrite: bool, *read: str) -> None:
    """Refuse a place for a model that is taken, or is read, before anything is read."""
    if path is None:
        return
    from rff_stream.store.atomic import check_target
    from rff_stream.store.creation import MODEL
    from rff_stream.store.location import check_apart, local_path

    check_lasting(path)
    check_apart(path, *read)
    place = local_path(path)
    if place is not None:
        check_target(place, overwrite, MODEL)


def check_lasting(place: str) -> None:
    """Refuse a place that ends with this command, and the name of a file of another format."""
    from rff_stream.errors import ModelError

    ending = PurePath(place).suffix
    if ending in OTHER_ENDINGS:
        raise click.UsageError(
            f"{redact_text(place)} ends in {ending}, but a Zarr store is written. Give a name that "
            "ends in .zarr. In Python, xarray.open_zarr(…).to_netcdf(…) makes a NetCDF file of a "
            "grid, and pandas.DataFrame(zarr.open(…)[:]).to_csv(…) a table of rows."
        )

    if place.rpartition("::")[2].startswith("memory://"):
        raise ModelError(
            f"{place} lies in the memory of this command and would be gone when it ends. Choose a "
            "path, or the URL of a bucket."
        )
