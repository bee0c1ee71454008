"""Feature maps beside each other: map × data set × CPU seconds × error, at equal R and tuning.

    python tests/accuracy/maps.py [--sets kin40k,protein] [--components 1024,2048] [--seeds 0,1,2]
    python tests/accuracy/maps.py --components 8192 --maps gaussian/orthogonal,gaussian/nystroem

Each kernel's length-scales are found once a seed by evidence on the pilot (ARD, Fourier
features), then every map gets the same kernel; α by evidence. 90/10 splits, rows of split 0 held
out, z-scored by train statistics; RMSE in std(y). Nothing is chosen on the test part. CPU seconds
are of fit, the search left out; the error of the kernel alone is over 1,000 test rows.
``RFF_STREAM_DATA`` names the folder.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from regression import Split, load, rmse

import rff_stream as rs
from rff_stream.errors import RffStreamError

CASES = (
    ("gaussian", "orthogonal"),
    ("gaussian", "fourier"),
    ("gaussian", "phase"),
    ("gaussian", "qmc"),
    ("gaussian", "structured"),
    ("gaussian", "nystroem"),
    ("gaussian", "hermite"),
    ("matern", "orthogonal"),
    ("matern", "qmc"),
    ("matern", "nystroem"),
    ("laplacian", "fourier"),
    ("laplacian", "binning"),
    ("laplacian", "nystroem"),
)


def tuned(kernel: str, split: Split, seed: int) -> Any:
    """The kernel with length-scales of highest evidence on the pilot."""
    model = rs.KernelRidge(
        kernel=kernel, length_scale="ard", n_components=64, alpha=1.0, random_state=seed,
        progress=False, features="auto",
    )  # fmt: skip
    X, y, *_ = split
    named = {"gaussian": rs.Gaussian, "matern": rs.Matern, "laplacian": rs.Laplacian}[kernel]
    return named(tuple(np.atleast_1d(model.fit(X, y).length_scale_).tolist()))


def measured(
    kernel: Any, features: str, split: Split, n_components: int, seed: int
) -> dict[str, float]:
    """RMSE on the test part, CPU seconds of the fit, and the error of the kernel itself."""
    X, y, X_test, y_test = split
    cpu = time.process_time()
    model = rs.KernelRidge(
        kernel=kernel,
        features=features,
        n_components=n_components,
        sums="float64",
        random_state=seed,
        progress=False,
    ).fit(X, y)
    cpu = time.process_time() - cpu
    error = kernel.approximation_error(model.features_, X_test[:1000])
    return {
        "R": model.features_.n_components,
        "rmse": rmse(model.predict(X_test), y_test),
        "cpu": cpu,
        "mean": error.mean,
        "frobenius": error.frobenius,
    }


def row(
    name: str, case: tuple[str, str], kernels: dict[tuple[str, int], Any], split: Split, r: int
) -> str:
    """One line of the table: means over the seeds of the kernels."""
    kernel, features = case
    seeds = [seed for named, seed in kernels if named == kernel]
    head = f"| {name} | {kernel} | {features} |"
    try:
        runs = [measured(kernels[kernel, seed], features, split, r, seed) for seed in seeds]
    except (RffStreamError, ValueError) as error:
        return f"{head} {r} | {error} |"
    mean = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
    spread = f" ± {np.std([run['rmse'] for run in runs], ddof=1):.4f}" if len(runs) > 1 else ""
    return (
        f"{head} {mean['R']:.0f} | {mean['rmse']:.4f}{spread} | {mean['cpu']:.1f} | "
        f"{mean['mean']:.2g} | {mean['frobenius']:.2g} |"
    )


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="kin40k,protein,elevators")
    parser.add_argument("--components", default="1024,2048")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--maps", default=",".join(f"{k}/{f}" for k, f in CASES))
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    sizes = [int(size) for size in chosen.components.split(",")]
    cases = [
        (kernel, features) for kernel, features in (m.split("/") for m in chosen.maps.split(","))
    ]
    print("| set | kernel | map | R | RMSE (seeds) | CPU s | kernel error: mean | Frobenius |")
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen.sets.split(","):
        split = load(name)
        names = dict.fromkeys(kernel for kernel, _ in cases)
        kernels = {(k, seed): tuned(k, split, seed) for k in names for seed in seeds}
        for r in sizes:
            for case in cases:
                print(row(name, case, kernels, split, r), flush=True)


if __name__ == "__main__":
    main()
