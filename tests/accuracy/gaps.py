"""Is a model worse than a linear trend in gaps, in silence? Blocks of real data are left out.

    python tests/accuracy/gaps.py [--sets "heaton_sim;argo2016"] [--seeds 0,1,2] [--models process]
                                  [--components 512] [--rows 20000]

heaton_sim has gaps of its own; elsewhere rows are halved five times along random directions (for
"clusters": by cluster), and 8 of the 32 blocks are held out. Columns: RMSE of the model in them,
of a linear trend and of the mean of the other rows; share of held-out values inside the 95 %
interval; whether a NumericalWarning told that gaps are unsafe; the share of 16 other choices of 8
blocks in which the same map and penalty are worse than the trend by more than a twentieth (one
choice is luck: of 21 fits with a share between .1 and .5 5 were worse in their own). A line ends
in SILENT where the model is worse in its own gaps or in half of those choices and nothing was
said, in "needless" where a good one was warned of: worse neither there nor in a tenth of them.
``RFF_STREAM_DATA`` names the folder.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from regression import folder, rmse

import rff_stream as rs
from rff_stream.answers.ridge import ridge
from rff_stream.errors import NumericalWarning
from rff_stream.moments import total
from rff_stream.whole.gap_test import block_of_rows

Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows to fit with their targets, rows in the gaps with theirs, the block of each row of both."""

WORSE, CHOICES = 1.05, 16

MODELS: dict[str, Callable[[int, int], Any]] = {
    "process": lambda r, seed: rs.GaussianProcessRegressor(
        n_components=r, random_state=seed, progress=False
    ),
    "process, ARD Matérn": lambda r, seed: rs.GaussianProcessRegressor(
        "matern", "ard", n_components=r, random_state=seed, progress=False
    ),
    "ridge, cv": lambda r, seed: rs.KernelRidge(
        alpha="cv", n_components=r, random_state=seed, progress=False
    ),
    "ridge, gcv": lambda r, seed: rs.KernelRidge(
        alpha="gcv", n_components=r, random_state=seed, progress=False
    ),
    "process, local": lambda r, seed: rs.GaussianProcessRegressor(
        features=rs.Cells(128, 4), length_scale="evidence", random_state=seed, progress=False
    ),
    "process, grid": lambda r, seed: rs.GaussianProcessRegressor(
        "matern", "ard", features="grid", random_state=seed, progress=False
    ),
}


def without_blocks(x: np.ndarray, y: np.ndarray, seed: int, block: Any = None) -> Parts:
    """Rows of 24 of 32 blocks, of the other 8, and the blocks."""
    block = block_of_rows((x - x.mean(0)) / x.std(0), 5, seed) if block is None else block
    labels = np.unique(block)
    out = np.random.default_rng(seed).permutation(labels)[: len(labels) // 4]
    held = np.isin(block, out)
    return x[~held], y[~held], x[held], y[held], np.r_[block[~held], block[held]]


def scattered(name: str, y: str = "y") -> Callable[[int, int], Parts]:
    """Rows of a file of arrays."""

    def read(rows: int, seed: int) -> Parts:
        data = np.load(folder() / f"{name}.npz")
        some = np.random.default_rng(seed).permutation(len(data[y]))[:rows]
        return without_blocks(data["X"][some].astype(float), data[y][some].astype(float), seed)

    return read


def heaton(rows: int, seed: int) -> Parts:
    """A satellite image with cloud gaps."""
    data = np.load(folder() / "heaton_sim.npz")
    X, y, X_test, y_test = (data[k].astype(float) for k in ("X", "y", "X_test", "y_test"))
    kept, asked = np.flatnonzero(np.isfinite(y)), np.flatnonzero(np.isfinite(y_test))
    rng = np.random.default_rng(seed)
    kept, asked = rng.permutation(kept)[: 2 * rows], rng.permutation(asked)[:rows]
    x, x_test = X[kept], X_test[asked]
    both = np.concatenate([x, x_test])
    block = block_of_rows((both - both.mean(0)) / both.std(0), 5, seed)
    return x, y[kept], x_test, y_test[asked], block


def air(rows: int, seed: int) -> Parts:
    """Air temperature: a year of steps, in K."""
    import xarray as xr

    data = xr.open_zarr(folder() / "air_temperature.zarr", chunks=None)["air"][:1460]
    axes = np.meshgrid(6.0 * np.arange(1460), data["lat"], data["lon"], indexing="ij")
    some = np.random.default_rng(seed).permutation(data.size)[:rows]
    x = np.stack([axis.ravel()[some] for axis in axes], axis=1).astype(float)
    return without_blocks(x, np.asarray(data, float).ravel()[some], seed)


def clusters(width: float, length_scale: float) -> Callable[[int, int], Parts]:
    """A trend and a rough field, seen in 32 clusters of this width."""

    def read(rows: int, seed: int) -> Parts:
        rng = np.random.default_rng(seed)
        n = min(rows, 6000)
        centres, block = rng.uniform(-2, 2, (32, 2)), rng.integers(32, size=n)
        x = centres[block] + width * rng.normal(size=(n, 2))
        field = rs.FourierFeatures.sample(
            rs.Laplacian(length_scale), 2, 2000, rng=seed, dtype="float64"
        )
        y = 2 * x[:, 0] + field(x) @ rng.normal(size=2000) / 2000**0.5
        return without_blocks(x, y + 0.02 * rng.normal(size=n), seed, block)

    return read


SETS: dict[str, Callable[[int, int], Parts]] = {
    "heaton_sim": heaton,
    "argo2016": scattered("argo2016"),
    "baja_bathymetry": scattered("baja_bathymetry"),
    "noaa_tmax_1990_93": scattered("noaa_tmax_1990_93"),
    "air_temperature": air,
    "california_housing": scattered("california_housing"),
    "clusters .02": clusters(0.02, 0.3),
    "clusters .1": clusters(0.1, 0.3),
    "clusters .1, smooth": clusters(0.1, 2.0),
    "clusters .3": clusters(0.3, 0.3),
}


def trend(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Least squares on the inputs."""
    centre, scale = x.mean(0), x.std(0)
    design = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    coef, *_ = np.linalg.lstsq(design, y, rcond=None)
    return np.column_stack([np.ones(len(x_test)), (x_test - centre) / scale]) @ coef


def share_worse(fitted: Any, parts: Parts, seed: int) -> float:
    """Share of other choices of blocks in which the same map and penalty are worse than a trend."""
    x, y = (np.concatenate([parts[i], parts[i + 2]]) for i in (0, 1))
    features, alpha = fitted.features_, fitted.alpha_
    origin = y.mean()
    sums = {
        block: rs.collect(
            features, x[parts[4] == block], y[parts[4] == block] - origin, row=fitted.moments_.row,
            sums="float64", progress=False,
        )
        for block in np.unique(parts[4])
    }  # fmt: skip
    rng, worse = np.random.default_rng(1000 + seed), []
    for _ in range(CHOICES):
        out = rng.permutation(list(sums))[: len(sums) // 4]
        held = np.isin(parts[4], out)
        found = ridge(total([sums[b] for b in sums if b not in out]), alpha)
        error = rmse(found.predict(features(x[held]))[:, 0], y[held] - origin)
        line = trend(x[~held], y[~held], x[held])
        worse.append(error > WORSE * min(rmse(line, y[held]), rmse(y[~held].mean(), y[held])))
    return float(np.mean(worse))


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    said: bool
    worse: bool  # in its own gaps
    share: float  # of other choices of blocks; NaN where they were not looked at

    @property
    def silent(self) -> bool:
        return not self.said and (self.worse or self.share >= 0.5)

    @property
    def good(self) -> bool:
        return not self.worse and self.share <= 0.1


def measure(name: str, model: str, components: int, rows: int, seed: int) -> Line:
    """One line of the table."""
    parts = SETS[name](rows, seed)
    x, y, x_test, y_test, _ = parts
    started = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericalWarning)
        fitted = MODELS[model](components, seed).fit(x, y)
        if model.startswith("process"):
            mean, std = fitted.predict(x_test, return_std=True, noise=True)
            cover = f"{np.mean(abs(y_test - mean) < 1.96 * std):.2f}"
        else:
            mean, cover = fitted.predict(x_test), ""
    seconds = time.process_time() - started
    said = any("in held-out blocks of" in str(each.message) for each in caught)
    error, line = rmse(mean, y_test), rmse(trend(x, y, x_test), y_test)
    own = model in ("process, local", "process, grid")  # penalties of no one map
    share = np.nan if own else share_worse(fitted, parts, seed)
    found = Line(said, error > WORSE * line, share)
    print(
        f"{name:20} {model:20} {seed:4} {error:11.4g} {line:11.4g} {rmse(y.mean(), y_test):11.4g} "
        f"{cover:>6} {'yes' if said else '':>4} {share:6.2f} {seconds:6.1f} "
        f"{'SILENT' if found.silent else 'needless' if found.good and said else ''}",
        flush=True,
    )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=";".join(SETS))
    parser.add_argument("--models", default=";".join(MODELS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--components", type=int, default=512)
    parser.add_argument("--rows", type=int, default=20_000)
    asked = parser.parse_args()
    print(
        f"{'set':20} {'model':20} seed {'model':>11} {'trend':>11} {'mean':>11}  cover said  worse"
        "  CPU s"
    )
    lines = [
        measure(name.strip(), model.strip(), asked.components, asked.rows, seed)
        for name in asked.sets.split(";")
        for model in asked.models.split(";")
        for seed in map(int, asked.seeds.split(","))
    ]
    good, silent = [each for each in lines if each.good], [each for each in lines if each.silent]
    print(
        f"silent: {len(silent)} of {len(lines)}; {sum(e.share >= 0.5 for e in silent)} of them are "
        f"worse in half of other gaps. Good (a tenth at most, and not their own): {len(good)}, "
        f"{sum(each.said for each in good)} of them with a warning"
    )


if __name__ == "__main__":
    main()
