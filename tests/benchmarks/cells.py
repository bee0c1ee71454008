"""CPU of the local pass beside bare BLAS of the same flops: a triangular solve and a rank-k update.

    python tests/benchmarks/cells.py [--rows 65536] [--inputs 9] [--repeats 3]

Both sides are measured in turn, in CPU seconds of one thread; the least of the repeats counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import rff_stream as rs
from rff_stream.features.rectangular import add_products, packed, solve_rows, triangle_size
from rff_stream.moments.accumulate_cells import CellAccumulator, plain_cell_row

SHAPES = ((128, 4, 256), (256, 4, 128), (512, 4, 32))
"""R, trees and cells: protein's is the second."""


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def bare(n_rows: int, r: int, trees: int, dtype: str) -> Callable[[], None]:
    """The same products in batches of 512 rows that are there already."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(512, r)).astype(dtype)
    factor = packed(np.linalg.cholesky(np.eye(r) * 4 + 0.1).astype(dtype))
    triangle = np.zeros(triangle_size(r), dtype)

    def work() -> None:
        for _ in range(trees * -(-n_rows // 512)):
            batch = rows.copy()
            solve_rows(factor, batch)
            add_products(batch, triangle, 0.0)

    return work


def local(features: rs.LocalFeatures, X: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """The pass over rows in memory."""
    row, places = plain_cell_row(features, 1), np.arange(len(X))

    def work() -> None:
        sink = CellAccumulator(features, row, sums="float32")
        sink.add(X, y, None, places)
        sink.result()

    return work


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--inputs", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(asked.rows, asked.inputs)), rng.normal(size=(asked.rows, 1))
    print(f"{'R':>4} {'trees':>5} {'cells':>5} {'µs a row':>9} {'bare µs':>8} {'ratio':>6}")
    for r, trees, cells in SHAPES:
        features = rs.LocalFeatures.sample(
            rs.Matern(2.0, nu=1.5), X[: 2 * r * cells], n_cells=cells, n_trees=trees,
            n_components=r, rng=0,
        )  # fmt: skip
        for tree in range(trees):
            for cell in range(cells):
                features.factor(tree, cell)  # once for a process, not for a row
        ours, theirs = local(features, X, y), bare(asked.rows, r, trees, "float32")
        pairs = [(cpu(ours), cpu(theirs)) for _ in range(asked.repeats)]
        mine, base = (1e6 * min(side) / asked.rows for side in zip(*pairs, strict=True))
        print(f"{r:4} {trees:5} {cells:5} {mine:9.2f} {base:8.2f} {mine / base:6.2f}", flush=True)


if __name__ == "__main__":
    main()
