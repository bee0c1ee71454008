"""Solves on a grid of frequencies: steps as noise falls, and 40 kernels from one read.

    python -m tests.benchmarks.grid_choice steps
    python -m tests.benchmarks.grid_choice kernels [rows [modes]]

``steps`` prints a table of conjugate-gradient steps: with the diagonal alone and with the block of
2,000 columns eliminated. ``kernels`` compares 5 families at 8 length-scales, by one read and by a
fit for each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import rff_stream as rs
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, GridMoments, grid_row
from rff_stream.grid.selection import compare_kernels
from rff_stream.grid.system import BLOCK, Elimination, GridSystem, conjugate_gradients
from tests.benchmarks.grid_rows import truth, write

MODES, MOST, TOLERANCE = (75, 75), 2000, 1e-6
GAPS, WIDTH = 6, 0.16

FAMILIES = (
    rs.Matern(nu=0.5),
    rs.Matern(nu=1.5),
    rs.Matern(nu=2.5),
    rs.Matern(nu=3.5),
    rs.Gaussian(),
)
LENGTH_SCALES = np.geomspace(0.1, 0.8, 8)


def sums(n: int, noise: float) -> GridMoments:
    """Sums of rows on the unit square outside six square gaps."""
    rng = np.random.default_rng(0)
    x, seen = rng.uniform(0, 1, (n, 2)), np.ones(n, bool)
    for centre in rng.uniform(0.1, 0.9, (GAPS, 2)):
        seen &= ~(np.abs(x - centre) < WIDTH / 2).all(axis=1)
    x = x[seen]
    y = truth(x) + noise * rng.standard_normal(len(x))
    features = GridFeatures.over(np.zeros(2), np.ones(2), modes=MODES)
    sink = GridAccumulator(features, grid_row(features, ("u", "v"), ("y",)))
    sink.add(x, y[:, None], None, np.arange(len(x)))
    return sink.result()


def steps() -> None:
    """Steps and CPU seconds of one solve to a residual of 1e-6, as a table."""
    print("| kernel | rows | α | diagonal alone | a block eliminated |\n|---|---|---|---|---|")
    for name, kernel in (
        ("Matérn 1/2", rs.Matern(nu=0.5, length_scale=0.2)),
        ("Matérn 3/2", rs.Matern(nu=1.5, length_scale=0.1)),
    ):
        for n in (10_000, 100_000, 1_000_000):
            for noise in (1e-1, 1e-2, 1e-3):
                system = GridSystem(sums(n, noise), kernel)
                cells = []
                for size in (0, BLOCK):
                    begun = time.process_time()
                    found = conjugate_gradients(
                        Elimination(system, noise**2, size),
                        system.right_sides,
                        tolerance=TOLERANCE,
                        most=MOST,
                    )
                    took, ended = time.process_time() - begun, found.residual[0] <= TOLERANCE
                    cells.append(f"{'' if ended else '> '}{found.steps} ({took:.1f} s)")
                print(f"| {name} | {n:,} | {noise**2:.0e} | {' | '.join(cells)} |", flush=True)


def kernels(n: int, modes: int) -> None:
    """One read and 40 evidences, beside 40 fits of the same kernels."""
    features = GridFeatures.over(np.zeros(2), np.ones(2), modes=(modes, modes))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        write(path, n)
        given = {"features": features, "random_state": 0, "progress": False}

        def fit(kernel: rs.kernels.Kernel) -> rs.GaussianProcessRegressor:
            model = rs.GaussianProcessRegressor(kernel, **given)
            return model.fit(str(path), "y", inputs=["u", "v"])

        first = fit(FAMILIES[0].with_length_scale(0.1))  # imports, compiled code
        begun = time.process_time()
        moments = rs.collect(features, str(path), "y", inputs=["u", "v"], progress=False)
        read = time.process_time() - begun
        found = compare_kernels(moments, FAMILIES, LENGTH_SCALES)
        once = time.process_time() - begun
        begun = time.process_time()
        fits = [[fit(f.with_length_scale(s)) for s in LENGTH_SCALES] for f in FAMILIES]
        each = time.process_time() - begun
    logs = np.array([[model.log_marginal_likelihood_ for model in row] for row in fits])
    k, at = found.best
    print(
        f"{n:,} rows, {first.features_.n_components:,} columns: one read {read:.1f} CPU s and 40 "
        f"evidences {once - read:.1f}, together {once:.1f}; 40 fits {each:.1f}, {each / once:.1f} "
        f"times more. Highest: {FAMILIES[k]} at {LENGTH_SCALES[at]:.3g}; log p differs by at most "
        f"{np.abs(logs - found.log_evidence).max():.3g} (error {found.error.max():.2g})"
    )


def main(arguments: list[str]) -> None:
    """As in the words above."""
    if arguments[0] == "steps":
        steps()
    else:
        n, modes = (*map(int, arguments[1:]), *(1_000_000, 14)[len(arguments) - 1 :])
        kernels(n, modes)


if __name__ == "__main__":
    main(sys.argv[1:])
