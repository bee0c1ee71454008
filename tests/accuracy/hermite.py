"""Has anybody compared eigenfunctions with random features? Kernel error against R, by d and ℓ.

    python tests/accuracy/hermite.py [--plot hermite.png]

Rows are N(0, I) in d inputs, the measure that the Hermite expansion is best for; also rows of a
t distribution of 3 degrees of freedom, which it is not made for. Relative Frobenius error of the
kernel matrix of 500 rows; random maps are means of 5 draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from rff_stream.features import (
    FeatureMap,
    FourierFeatures,
    HermiteFeatures,
    NystroemFeatures,
)
from rff_stream.kernels import Gaussian

SIZES = (16, 64, 256, 1024)
DRAWS = 5
MARKERS = {"orthogonal": "o", "sobol": "s", "nystroem": "^", "hermite": "D"}
ROWS = {
    "normal": lambda rng, n, d: rng.standard_normal((n, d)),
    "t(3)": lambda rng, n, d: rng.standard_t(3, (n, d)),
}


def makers(kernel: Gaussian, X: np.ndarray) -> dict[str, Callable[[int, int], FeatureMap]]:
    """(R, seed) -> map, for each kind."""
    d = X.shape[1]
    return {
        "orthogonal": lambda r, seed: FourierFeatures.sample(kernel, d, r, rng=seed),
        "sobol": lambda r, seed: FourierFeatures.sample(
            kernel, d, r, rng=seed, frequencies="sobol"
        ),
        "nystroem": lambda r, seed: NystroemFeatures.sample(kernel, X, r, rng=seed),
        "hermite": lambda r, seed: HermiteFeatures.sample(
            kernel, d, r, origin=X.mean(axis=0), deviation=X.std(axis=0)
        ),
    }


def errors(rows: str, d: int, length_scale: float) -> dict[str, list[float]]:
    """Relative Frobenius error of each kind of map for each R."""
    rng, kernel = np.random.default_rng(0), Gaussian(length_scale)
    pilot, X = ROWS[rows](rng, 4000, d), ROWS[rows](rng, 500, d)
    found: dict[str, list[float]] = {}
    for name, make in makers(kernel, pilot).items():
        draws = 1 if name == "hermite" else DRAWS
        found[name] = [
            float(
                np.mean(
                    [
                        kernel.approximation_error(make(r, seed), X).frobenius
                        for seed in range(draws)
                    ]
                )
            )
            for r in SIZES
        ]
    return found


def main() -> None:
    """Print the table in Markdown, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot")
    chosen = parser.parse_args()
    print("| rows | d | ℓ | map | " + " | ".join(f"R={r}" for r in SIZES) + " |")
    print("|---|---|---|---|" + "---|" * len(SIZES))
    table = {}
    for rows in ROWS:
        for d, length_scale in ((1, 0.5), (2, 1.0), (3, 1.0), (5, 2.0), (8, 3.0)):
            table[rows, d, length_scale] = errors(rows, d, length_scale)
            for name, values in table[rows, d, length_scale].items():
                cells = " | ".join(f"{value:.1e}" for value in values)
                print(f"| {rows} | {d} | {length_scale} | {name} | {cells} |", flush=True)
    if chosen.plot:
        draw(table, chosen.plot)


def draw(table: dict[tuple[str, int, float], dict[str, list[float]]], path: str) -> None:
    """One panel for each case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.subplots(2, len(table) // 2, sharex=True, sharey=True)
    for axis, ((rows, d, length_scale), found) in zip(axes.flat, table.items(), strict=True):
        for name, values in found.items():
            axis.loglog(SIZES, values, marker=MARKERS[name], label=name)
        axis.set_title(f"{rows} rows, d = {d}, ℓ = {length_scale}", fontsize="medium")
    figure.supxlabel("R")
    figure.supylabel("relative Frobenius error of the kernel")
    axes.flat[-1].legend(fontsize="small")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
