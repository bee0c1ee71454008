"""CPU of a prediction of cells with deviations, by one product a tree and by two.

    python tests/benchmarks/cells_predict.py [--rows 20000,160000,600000] [--inputs 3]
        [--cells 256,4,512] [--repeats 3]

Rows are made; the model is fitted to 310 rows a cell, in one thread. Both ways are measured in
turn, on a warm model; the least of the repeats counts. Beside them the bare products: a triangle
of a cell times 512 rows that are there already, once a tree. From 5 R rows a cell on both are one
product.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rff_stream as rs
from cells import bare_product
from rff_stream.execution.threads import single_threaded_blas


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="20000,160000,600000")
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--cells", default="256,4,512", help="R, trees, cells")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    r, trees, cells = map(int, asked.cells.split(","))
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(310 * cells, asked.inputs))
    y = np.sin(9 * X).sum(axis=1) + 0.5 * rng.normal(size=len(X))
    model: Any = rs.GaussianProcessRegressor(
        rs.Matern(0.5, nu=1.5), features=rs.Cells(r, trees, cells), random_state=0, progress=False
    ).fit(X, y)
    posterior = model.posterior_
    with single_threaded_blas():
        once = cpu(lambda: posterior.for_rows(10**12).std(X))
        print(f"making all forms and one prediction of {len(X):,} rows: {once:.2f} s")
        posterior.std(X)
        print(f"{'rows':>11} {'one µs':>8} {'two µs':>8} {'bare µs':>8}", flush=True)
        for count in map(int, asked.rows.split(",")):
            new = rng.uniform(size=(count, asked.inputs))
            many, few = posterior.for_rows(10**12), posterior.for_rows(-1)
            works = [
                lambda many=many, new=new: many.std(new),
                lambda few=few, new=new: few.std(new),
                bare_product(count, r, trees, trees * cells),
            ]
            turns = [[cpu(work) for work in works] for _ in range(asked.repeats)]
            least = [1e6 * min(side) / count for side in zip(*turns, strict=True)]
            print(f"{count:11,} " + " ".join(f"{each:8.2f}" for each in least), flush=True)


if __name__ == "__main__":
    main()
