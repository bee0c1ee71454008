"""Published regression benchmarks, run again: our models beside the field, in one harness.

    python tests/accuracy/regression.py [--sets bike,protein] [--seeds 0,1,2] [--rivals]
    python tests/accuracy/regression.py --seeds= --rivals
    python tests/accuracy/regression.py --sums --sets bike,elevators,keggdirected

Data: uci_datasets, 90/10 splits, rows of split 0 held out; inputs and target z-scored by
train statistics; RMSE in std(y). Nothing is chosen on the test part. ``RFF_STREAM_DATA``
names the folder; see CONTRIBUTING.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import rff_stream as rs
from rff_stream.errors import NumericalWarning

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

COMPONENTS = {
    "elevators": 4096,
    "bike": 4096,
    "keggdirected": 4096,
    "protein": 6144,
    "kin40k": 6144,
}
RIVAL_COMPONENTS = 2048
"""R at which ours and Nystroem are compared: more takes scikit-learn's way past 10 GB."""

LINES = {
    "elevators": 0.374,
    "bike": 0.077,
    "keggdirected": 0.093,
    "protein": 0.640,
    "kin40k": 0.130,
}
MOONSHOTS = {
    "elevators": 0.355,
    "bike": 0.043,
    "keggdirected": 0.085,
    "protein": 0.560,
    "kin40k": 0.090,
}


def folder() -> Path:
    """Where the data sets are."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    return Path(os.environ.get("RFF_STREAM_DATA", default))


def raw(name: str, split: int = 0) -> Split:
    """Train X, y and test X, y as they are stored."""
    data = np.load(folder() / f"{name}.npz")
    X, y = data["X"].astype(float), data["y"].astype(float).ravel()
    test = data["fold"] == split if "fold" in data else data["test_mask"][:, split]
    return X[~test], y[~test], X[test], y[test]


def load(name: str, split: int = 0) -> Split:
    """Train X, y and test X, y, z-scored by the train part."""
    X, y, X_test, y_test = raw(name, split)
    scale = X.std(axis=0)
    scale, centre = np.where(scale > 0, scale, 1.0), X.mean(axis=0)
    level, unit = y.mean(), y.std()
    return (
        (X - centre) / scale,
        (y - level) / unit,
        (X_test - centre) / scale,
        (y_test - level) / unit,
    )


def rmse(predicted: np.ndarray, y: np.ndarray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def ours(split: Split, n_components: int, seed: int, kernel: Any = "gaussian") -> dict[str, float]:
    """One read: length-scales by evidence on the pilot, noise and signal by evidence."""
    X, y, X_test, y_test = split
    started, cpu = time.perf_counter(), time.process_time()
    model = rs.GaussianProcessRegressor(
        kernel=kernel,
        length_scale="ard",
        n_components=n_components,
        sums="float64",
        random_state=seed,
        progress=False,
    ).fit(X, y)
    mean, std = model.predict(X_test, return_std=True, noise=True)
    lower, upper = model.predict_interval(X_test)
    return {
        "rmse": rmse(mean, y_test),
        "coverage": float(np.mean(np.abs(mean - y_test) < 1.96 * std)),
        "conformal": float(np.mean((y_test > lower) & (y_test < upper))),
        "df": float(model.df_),
        "wall": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
    }


def rivals(split: Split, n_components: int) -> dict[str, float]:
    """Linear ridge, Nystroem + ridge at equal R, histogram gradient boosting: RMSE."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge, RidgeCV
    from sklearn.pipeline import make_pipeline

    X, y, X_test, y_test = split
    median = np.median(rs.KernelRidge(n_components=2, progress=False).fit(X, y).length_scale_)
    models = {
        "linear": Ridge(1e-6),
        "Nystroem + RidgeCV": make_pipeline(
            Nystroem(gamma=0.5 / median**2, n_components=n_components, random_state=0),
            RidgeCV(np.geomspace(1e-6, 1e2, 9), cv=None),
        ),
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
    }
    return {name: rmse(model.fit(X, y).predict(X_test), y_test) for name, model in models.items()}


def precisions(name: str, split: Split, n_components: int = 1024) -> str:
    """RMSE with α by evidence from float32 and from float64 sums, at two length-scales."""
    X, y, X_test, y_test = split
    median = rs.KernelRidge(n_components=2, progress=False).fit(X, y).length_scale_
    found = []
    for factor in (1, 4):
        errors = []
        for sums in ("float32", "float64"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NumericalWarning)  # α raised: what is shown
                model = rs.KernelRidge(
                    length_scale=factor * median, n_components=n_components, sums=sums,
                    random_state=0, progress=False,
                ).fit(X, y)  # fmt: skip
            errors.append(rmse(model.predict(X_test), y_test))
        found.append(f"{errors[0]:.4f} | {errors[1]:.4f} | {errors[0] / errors[1]:.4f}")
    return f"| {name} | {n_components} | {' | '.join(found)} |"


def row(name: str, runs: list[dict[str, float]]) -> str:
    """A line of the table from the runs of all seeds."""
    errors = np.array([run["rmse"] for run in runs])
    each = ", ".join(f"{error:.4f}" for error in errors)
    means = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
    spread = f" ± {errors.std(ddof=1):.4f}" if len(runs) > 1 else ""
    return (
        f"| {name} | {COMPONENTS[name]} | {errors.mean():.4f}{spread} ({each}) | {LINES[name]} | "
        f"{MOONSHOTS[name]} | {means['coverage']:.3f} | {means['conformal']:.3f} | "
        f"{means['df']:.0f} | {means['wall']:.0f} | {means['cpu']:.0f} |"
    )


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(COMPONENTS))
    parser.add_argument("--seeds", default="0,1,2", help="none: the rivals only")
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--sums", action="store_true", help="float32 against float64 sums only")
    chosen = parser.parse_args()
    if chosen.sums:
        print("| set | R | float32 | float64 | ratio | at 4 times the scale | float64 | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for name in chosen.sets.split(","):
            print(precisions(name, load(name)), flush=True)
        return
    seeds = [int(s) for s in chosen.seeds.split(",") if s]
    print(
        "| set | R | RMSE (seeds) | line | moonshot | 95 % covered | conformal | df | s | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in chosen.sets.split(","):
        split, r = load(name), COMPONENTS[name]
        if seeds:
            print(row(name, [ours(split, r, seed) for seed in seeds]), flush=True)
        if chosen.rivals:
            found = {"ours": ours(split, RIVAL_COMPONENTS, seed=0)["rmse"]}
            found |= rivals(split, RIVAL_COMPONENTS)
            text = ", ".join(f"{rival} {error:.4f}" for rival, error in found.items())
            print(f"| {name} | {RIVAL_COMPONENTS} | {text} |", flush=True)


if __name__ == "__main__":
    main()
