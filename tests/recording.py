"""Digests of what fits compute, to the last bit: sums, coefficients, predictions, plan, checkpoint.

``python tests/recording.py`` makes ``tests/digests.json`` anew for this kind of machine;
``tests/project/test_recorder.py`` compares. Only public names are used here, so that every
part of the package may move while the digests stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import threadpoolctl
import zarr

import rff_stream as rs
from places import ROOT, TESTS
from rff_stream import leaf_layout as layout
from rff_stream.contracts import Packed
from rff_stream.errors import NumericalWarning
from rff_stream.store import Checkpoint, MomentStore

DIGESTS = TESTS / "digests.json"

ROWS, NEW, CHUNK = 6000, 50, 500
INPUTS = ["a", "b", "c"]
SMALL: dict[str, Any] = {"n_components": 24, "random_state": 0, "progress": False}

Digests = dict[str, str]
"""sha256 (16 digits) of what is named."""


# What is fitted ---------------------------------------------------------------------------------

Make = Callable[[], Any]

MODELS: dict[str, tuple[Make, str | None]] = {
    "KernelRidge, evidence": (lambda: rs.KernelRidge(**SMALL), "y"),
    "KernelRidge, cv, float32 sums, refined": (
        lambda: rs.KernelRidge(alpha="cv", cv=3, sums="float32", refine=2, **SMALL),
        "y",
    ),
    "GaussianProcessRegressor": (lambda: rs.GaussianProcessRegressor(**SMALL), "y"),
    "KernelClassifier, squared": (
        lambda: rs.KernelClassifier(class_weight="balanced", **SMALL),
        "label",
    ),
    "KernelClassifier, logistic": (
        lambda: rs.KernelClassifier(loss="logistic", alpha=1e-2, tol=2e-2, **SMALL),
        "label",
    ),
    "KernelRidge, local": (lambda: rs.KernelRidge(features=local_map(), alpha=1e-2, **SMALL), "y"),
    "GaussianProcessRegressor, grid": (
        lambda: rs.GaussianProcessRegressor(
            rs.Gaussian(1.0), features=rs.Grid(modes=(3, 4, 3)), noise=1e-2, **SMALL
        ),
        "y",
    ),
    "KernelRidge, grid, cv": (
        lambda: rs.KernelRidge(
            rs.Gaussian(1.0), features=rs.Grid(modes=(3, 3, 4)), alpha="cv", cv=3, **SMALL
        ),
        "y",
    ),
    "KernelDensity": (lambda: rs.KernelDensity(**SMALL), None),
    "NoveltyDetector": (lambda: rs.NoveltyDetector(**SMALL), None),
    "KernelPCA": (lambda: rs.KernelPCA(n_map_components=24, random_state=0, progress=False), None),
}
"""Makers of the six estimators, and what they learn."""

MAPS = ("orthogonal", "fourier", "phase", "qmc", "structured", "nystroem", "binning", "hermite")

SUMS: dict[str, dict[str, Any]] = {
    "together": {},
    "by label": {"by": "label"},
    "by run": {"folds": 3},
    "by label, order 1": {"by": "label", "order": 1},
    "by run, order 1": {"folds": 3, "order": 1},
    "float32": {"sums": "float32"},
}
"""Choices of ``collect``."""


@cache
def local_map() -> Any:
    """A map of 2 trees of 4 small cells."""
    columns = table()
    x = np.column_stack([columns[name] for name in INPUTS])[:400]
    choices: Any = {"n_cells": 4, "n_trees": 2, "n_components": 16}
    return rs.LocalFeatures.sample(rs.Gaussian(1.0), x, **choices, rng=0)


@cache
def table() -> dict[str, np.ndarray[Any, Any]]:
    """Columns of the rows: float32 inputs, a target, a weight, a label."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3)).astype(np.float32)
    noise, w = rng.normal(size=ROWS), rng.uniform(0.5, 2.0, ROWS)
    label = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0.5)
    y = np.sin(2 * x[:, 0]) + x[:, 1].astype(float) ** 2 + noise / 10
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "w": w, "label": label}


def write_zarr(path: Path) -> Path:
    """The columns as a Zarr group."""
    group = zarr.create_group(path)
    for name, values in table().items():
        group.create_array(name, data=values, chunks=(CHUNK,))
    return path


Given = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
"""Names of y, w and by -> arguments of fit or collect."""


def containers(folder: Path) -> dict[str, Given]:
    """The same rows in four containers."""
    columns = table()
    x = np.column_stack([columns[name] for name in INPUTS])
    frame = pd.DataFrame(columns)
    path = folder / "rows.zarr"
    if not path.exists():
        write_zarr(path)

    def arrays(wrap: Callable[[Any], Any]) -> Given:
        def given(y: Any, w: Any, **by: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            values = [None if name is None else wrap(columns[name]) for name in (y, w)]
            return (wrap(x), *values), {key: columns[name] for key, name in by.items()}

        return given

    def named(data: Any) -> Given:
        return lambda y, w, **by: ((data, y, w), {"inputs": INPUTS, **by})

    return {
        "NumPy": arrays(lambda values: values),
        "Dask": arrays(lambda values: da.from_array(values, chunks=(CHUNK, *values.shape[1:]))),
        "DataFrame": named(frame),
        "Zarr": named(path),
    }


def new_rows(container: str) -> Any:
    """Rows to predict, with names where the fit had some."""
    values = np.random.default_rng(1).normal(size=(NEW, 3))
    return pd.DataFrame(values, columns=INPUTS) if container in ("DataFrame", "Zarr") else values


# How -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_leaves() -> Iterator[None]:
    """12 leaves in 3 segments from 6,000 rows; one BLAS thread; every segment is written."""
    small = {
        "LEAF_ROWS": CHUNK, "MOST_SEGMENTS": 3, "BIG_LEAVES": ROWS, "SEQUENCE_LEAVES": ROWS
    }  # fmt: skip
    before = {name: getattr(layout, name) for name in small}
    vars(layout).update(small)
    try:
        with (
            threadpoolctl.threadpool_limits(1, "blas"),
            dask.config.set({"rff-stream.checkpoint-seconds": 0, "num_workers": 4}),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", NumericalWarning)  # the maps are far too small
            yield
    finally:
        vars(layout).update(before)


def fit(name: str, given: Given, **more: Any) -> Any:
    """One of the models, fitted."""
    make, target = MODELS[name]
    weight = None if target == "label" else "w"
    arguments, choices = given(target, weight)
    if target is None:
        arguments = (arguments[0], *arguments[2:])
        return make().fit(arguments[0], sample_weight=arguments[1], **choices, **more)
    return make().fit(*arguments, **choices, **more)


def collect(name: str, given: Given, **more: Any) -> Any:
    """Moments by one of the choices."""
    choices = dict(SUMS[name])
    by = {"by": choices.pop("by")} if "by" in choices else {}
    (x, y, w), named = given("y", "w", **by)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 24, rng=0)
    asked = {**named, **choices, **more}
    return rs.collect(features, x, y, sample_weight=w, progress=False, **asked)


# Digests ---------------------------------------------------------------------------------------


def digest(*values: Any) -> str:
    """16 digits of the sha256 of arrays' bytes, and of the text of other values."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray | np.generic | float):
            array = np.ascontiguousarray(value)
            found.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
        else:
            found.update(repr(value).encode())
        found.update(b";")
    return found.hexdigest()[:16]


def digest_of_moments(moments: Any) -> str:
    """Of everything that adds up."""
    parts = np.empty(0) if moments.parts is None else moments.parts
    exact = moments.order, moments.n, float(moments.squared_weight), float(moments.log_weight)
    cells = (moments.cells, moments.counts, moments.powers) if hasattr(moments, "cells") else ()
    return digest(*exact, moments.sums, parts, moments.sample.keys, moments.sample.rows, *cells)


def digest_of_groups(groups: Any) -> str:
    """Of moments, or of moments by label."""
    if not isinstance(groups, dict):
        return digest_of_moments(groups)
    return digest([(str(label), digest_of_moments(each)) for label, each in groups.items()])


def digest_of_plan(plan: Any) -> str:
    """Of what leaves are, how they are added, and the bytes of the sums."""
    cut = plan.layout
    leaves = [cut.edges, cut.parts, cut.cut, cut.n_leaves, cut.segment_leaves, cut.seed]
    order = cut.order().tolist()
    facts = [plan.order, plan.sums, plan.dtype, plan.n_groups, plan.state_bytes, plan.width]
    return digest(leaves, order, facts)


def digest_of_coefficients(model: Any) -> str:
    """Of all numbers that a fit finds."""
    names = (
        "length_scale_", "bandwidth_", "alpha_", "df_", "coef_", "intercept_", "offset_",
        "eigenvalues_", "explained_variance_ratio_", "log_marginal_likelihood_",
        "noise_variance_", "signal_variance_", "classes_", "objective_", "n_rows_", "n_missing_",
    )  # fmt: skip
    found = [(name, np.asarray(getattr(model, name))) for name in names if hasattr(model, name)]
    if hasattr(model, "selection_"):
        found.append(("selection_", model.selection_.scores))
    return digest([(name, digest(values)) for name, values in found])


def digest_of_predictions(model: Any, container: str) -> str:
    """Of every answer that a model gives."""
    x = new_rows(container)
    found = [
        (name, digest(np.asarray(getattr(model, name)(x), np.float64)))
        for name in ("predict", "predict_proba", "decision_function", "score_samples", "transform")
        if hasattr(model, name)
    ]
    if isinstance(model, rs.GaussianProcessRegressor):
        mean, deviation = model.predict(x, return_std=True, noise=False)
        found.append(("return_std", digest(np.asarray(mean), np.asarray(deviation))))
    return digest(found)


def digests_of_model(model: Any, container: str) -> Digests:
    """Of a fitted model."""
    return {
        "map": digest(model.features_.fingerprint),
        "sums": digest_of_moments(model.moments_),
        "coefficients": digest_of_coefficients(model),
        "predictions": digest_of_predictions(model, container),
        "plan": digest_of_plan(model.plan_),
    }


def digests_of_checkpoint(path: Path) -> Digests:
    """Of the nodes of a checkpoint, and of the names of the facts that it keeps."""
    store = MomentStore.open(path)
    store.verify()
    facts = store.header["checkpoint"]
    nodes = sorted(
        (f"node {level} {index}", seen, parts_of_node(value))
        for (level, index), (value, seen) in Checkpoint(path, facts).nodes().items()
    )
    return {"nodes": digest(nodes), "facts": digest(sorted(facts))}


def parts_of_node(value: Any) -> list[tuple[str, str]]:
    """Digests of moments by group, or of the arrays of another statistic's packed value."""
    if isinstance(value, Packed):
        arrays = [(name, digest(values)) for name, values in sorted(value.arrays.items())]
        return [(repr(value.plain), ""), *arrays]
    groups = sorted(value.items(), key=str)
    return [(str(label), digest_of_moments(each)) for label, each in groups]


# The fit that is stopped ------------------------------------------------------------------------


class Stopped(KeyboardInterrupt):
    """What Ctrl-C does."""


def innermost(statistic: Any) -> Any:
    """What is added up by group, by fold or with weights of classes."""
    return innermost(statistic.statistic) if hasattr(statistic, "statistic") else statistic


@contextlib.contextmanager
def stopping(at: int, end: Callable[[], None], read: list[int] | None = None) -> Iterator[None]:
    """``end`` is called at the given leaf after the pilot; leaves run one after the other.

    ``read`` takes the place of every leaf that is read.
    """
    from rff_stream.execution.leaves import Job
    from rff_stream.pilot import PilotStatistic

    original, count = Job.run, 0

    def run(self: Any, leaf: Any, *values: Any) -> Any:
        nonlocal count
        if not isinstance(self.statistic, PilotStatistic):
            count += 1
            if read is not None:
                read.append(leaf.start)
            if count == at:
                end()
        return original(self, leaf, *values)

    Job.run = run  # type: ignore[method-assign]
    try:
        with dask.config.set(num_workers=1):
            yield
    finally:
        Job.run = original  # type: ignore[method-assign]


def stop() -> None:
    """Stop as Ctrl-C does."""
    raise Stopped


def die() -> None:
    """End this process as the system would, without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def fit_and_die(name: str, folder: Path) -> None:
    """For a process of its own: a fit that is killed at its seventh leaf."""
    with small_leaves(), stopping(7, die):
        fit(name, containers(folder)["Zarr"], checkpoint=folder / "checkpoint")


def killed_fit(name: str, folder: Path) -> int:
    """Run :func:`fit_and_die` in a process; how it ended."""
    words = [sys.executable, str(TESTS / "recording.py"), "--killed", name, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(words, env=environment, timeout=300, check=False).returncode


# The record of this kind of machine ---------------------------------------------------------------


def machine() -> str:
    """What bits depend on and this package does not decide: versions, BLAS kernels, NumPy's cos."""
    versions = []
    for name in ("numpy", "scipy", "scikit-learn"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    blas = sorted(
        {
            f"{each['internal_api']} {each['version']} {each.get('architecture')}"
            for each in threadpoolctl.threadpool_info()
            if each["user_api"] == "blas"
        }
    )
    t = np.linspace(-20, 20, 4097)
    a = np.random.default_rng(0).normal(size=(96, 96))
    probe = [np.cos(t), np.cos(t.astype(np.float32)), np.exp(t), np.log(t + 21)]
    with threadpoolctl.threadpool_limits(1, "blas"):
        probe += [a @ a.T, (b := a.astype(np.float32)) @ b.T, np.linalg.eigvalsh(a + a.T)]
    return ", ".join([*versions, *blas, f"probe {digest(*probe)}"])


def record(folder: Path) -> dict[str, Digests]:
    """Digests of everything, by "what, container"."""
    found: dict[str, Digests] = {}
    with small_leaves():
        for container, given in containers(folder).items():
            for name in MODELS:
                found[f"{name}; {container}"] = digests_of_model(fit(name, given), container)
            for name in SUMS:
                found[f"collect {name}; {container}"] = {
                    "sums": digest_of_groups(collect(name, given))
                }
        found |= {f"map {name}; NumPy": digests_of_map(name, folder) for name in MAPS}
        found |= digests_of_stopped(folder)
    return found


def digests_of_stopped(folder: Path) -> dict[str, Digests]:
    """Of what stopped fits left in their checkpoints."""
    found = {}
    for name in MODELS:
        path = folder / f"{name}.checkpoint"
        with contextlib.suppress(Stopped), stopping(7, stop):
            fit(name, containers(folder)["Zarr"], checkpoint=path)
        found[f"stopped {name}; Zarr"] = digests_of_checkpoint(path)
    return found


def digests_of_map(name: str, folder: Path) -> Digests:
    """Of a ridge on a kind of feature map."""
    arguments, _ = containers(folder)["NumPy"]("y", "w")
    kernel = "laplacian" if name == "binning" else "gaussian"
    model = rs.KernelRidge(kernel, features=name, length_scale=1.0, alpha=1e-2, **SMALL)
    return digests_of_model(model.fit(*arguments), "NumPy")


def records() -> dict[str, dict[str, Digests]]:
    """What is on file, by machine."""
    return json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}


def main() -> None:
    """Record this machine, in place of what was on file for it."""
    with tempfile.TemporaryDirectory() as folder:
        known = records() | {machine(): record(Path(folder))}
    DIGESTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{len(known[machine()])} records for {machine()}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--killed"]:
        fit_and_die(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
