"""Has anybody compared eigenfunctions with random features? Kernel error against R, by d and ℓ.

    python tests/accuracy/hermite.py [--plot hermite.png]

Rows are N(0, I) in d inputs, the measure that the Hermite expansion is best for; also rows of a
t distribution of 3 degrees of freedom, which it is not made for. Relative Frobenius error of the
kernel matrix of 500 rows; random maps are means ± standard deviations of 5 draws. CPU seconds of
drawing a map and microseconds a row of mapping are at the largest R, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from rff_stream.features import FeatureMap, FourierFeatures, HermiteFeatures, NystroemFeatures
from rff_stream.kernels import Gaussian, approximation_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (16, 64, 256, 1024)
DRAWS = 5
STYLES = {
    "orthogonal": {"marker": "o", "color": "#0072B2"},
    "sobol": {"marker": "s", "color": "#56B4E9"},
    "nystroem": {"marker": "^", "color": "#D55E00"},
    "hermite": {"marker": "D", "color": "#009E73"},
}
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


@dataclass(frozen=True)
class Draws:
    """What maps of one kind and size gave, one after the other."""

    errors: np.ndarray
    made: float  # CPU s of the fastest draw
    mapped: float  # CPU µs a row, of the fastest

    @property
    def mean(self) -> float:
        return float(self.errors.mean())

    def __str__(self) -> str:
        spread = f" ± {self.errors.std(ddof=1):.0e}" if len(self.errors) > 1 else ""
        return f"{self.mean:.1e}{spread}"


def draws_of(
    make: Callable[[int, int], FeatureMap], r: int, count: int, kernel: Gaussian, X: np.ndarray
) -> Draws:
    """Error and cost of so many draws of R columns."""
    errors, made, mapped = [], [], []
    for seed in range(count):
        started = time.thread_time()
        features = make(r, seed)
        made.append(time.thread_time() - started)
        started = time.thread_time()
        features(X)
        mapped.append((time.thread_time() - started) / len(X) * 1e6)
        errors.append(approximation_error(features, kernel, X).frobenius)
    return Draws(np.array(errors), min(made), min(mapped))


def errors(rows: str, d: int, length_scale: float) -> dict[str, list[Draws]]:
    """Relative Frobenius error of each kind of map for each R."""
    rng, kernel = np.random.default_rng(0), Gaussian(length_scale)
    pilot, X = ROWS[rows](rng, 4000, d), ROWS[rows](rng, 500, d)
    return {
        name: [draws_of(make, r, 1 if name == "hermite" else DRAWS, kernel, X) for r in SIZES]
        for name, make in makers(kernel, pilot).items()
    }


Table = dict[tuple[str, int, float], dict[str, list[Draws]]]


def main() -> None:
    """Print the table in Markdown, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot")
    chosen = parser.parse_args()
    sizes = " | ".join(f"R={r}" for r in SIZES)
    print(f"| rows | d | ℓ | map | {sizes} | CPU s to draw | CPU µs a row |")
    print("|---|---|---|---|" + "---|" * (len(SIZES) + 2))
    with threadpool_limits(1):
        table = measured()
    if chosen.plot:
        draw(table).savefig(chosen.plot)


def measured() -> Table:
    """Every case, printed as it is found."""
    table = {}
    for rows in ROWS:
        for d, length_scale in ((1, 0.5), (2, 1.0), (3, 1.0), (5, 2.0), (8, 3.0)):
            table[rows, d, length_scale] = errors(rows, d, length_scale)
            for name, values in table[rows, d, length_scale].items():
                cells = " | ".join(map(str, values))
                cost = f"{values[-1].made:.2f} | {values[-1].mapped:.0f}"
                print(f"| {rows} | {d} | {length_scale} | {name} | {cells} | {cost} |", flush=True)
    return table


def draw(table: Table) -> Figure:
    """One panel for each case; a band of a standard deviation about random maps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=80, layout="constrained")
    axes = figure.subplots(2, len(table) // 2, sharex=True, sharey=True)
    for axis, ((rows, d, length_scale), found) in zip(axes.flat, table.items(), strict=True):
        for name, values in found.items():
            means = np.array([value.mean for value in values])
            spread = np.array([value.errors.std() for value in values])
            (line,) = axis.loglog(SIZES, means, label=name, **STYLES[name])
            axis.fill_between(
                SIZES, np.maximum(means - spread, means / 10), means + spread,
                color=line.get_color(), alpha=0.25, linewidth=0,
            )  # fmt: skip
        axis.set_title(f"{rows} rows, d = {d}, ℓ = {length_scale}", fontsize="medium")
    figure.supxlabel("features R")
    figure.supylabel("relative Frobenius error of the kernel")
    axes.flat[-1].legend(fontsize="small")
    return figure


if __name__ == "__main__":
    main()
