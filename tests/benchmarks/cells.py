"""CPU of the local pass beside bare BLAS of the same flops: triangle times rows, rank-k update.

    python tests/benchmarks/cells.py [--rows 65536] [--inputs 9] [--repeats 3]

Bare: 512 rows a cell, the factor and the triangle of each cell in turn, as a batched call would
do it ("cells"); and one factor and one triangle for all, which then never leave the cache ("one").
All are measured in turn, in CPU seconds of one thread; the least of the repeats counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import rff_stream as rs
from rff_stream.cells.moments import CellAccumulator, cell_row
from rff_stream.features.packed_triangle import (
    add_products,
    multiply_rows,
    pack_triangle,
    triangle_size,
)

SHAPES = ((128, 4, 256), (256, 4, 128), (512, 4, 32))
"""R, trees and cells: protein's is the second."""


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def bare(n_rows: int, r: int, n_visits: int, n_cells: int, dtype: str) -> Callable[[], None]:
    """The same products in batches of 512 rows that are there already."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(512, r)).astype(dtype)
    factor = pack_triangle(np.linalg.cholesky(np.eye(r) * 4 + 0.1).astype(dtype))
    factors = np.tile(factor, (n_cells, 1))
    triangles = np.zeros((n_cells, triangle_size(r)), dtype)

    def work() -> None:
        for visit in range(n_visits * -(-n_rows // 512)):
            batch = rows.copy()
            multiply_rows(factors[visit % n_cells], batch)
            add_products(batch, triangles[visit % n_cells], 0.0)

    return work


def bare_product(n_rows: int, r: int, n_visits: int, n_cells: int) -> Callable[[], None]:
    """One triangle times 512 rows in float32, the triangle of each cell in turn."""
    rows = np.random.default_rng(0).normal(size=(512, r)).astype("f4")
    factors = np.tile(pack_triangle(0.5 * np.eye(r, dtype="f4")), (n_cells, 1))

    def work() -> None:
        for visit in range(n_visits * -(-n_rows // 512)):
            multiply_rows(factors[visit % n_cells], rows)
            if visit % 64 == 0:  # halves of halves would become denormal
                rows[...] = 1.0

    return work


def local(features: rs.LocalFeatures, X: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """The pass over rows in memory."""
    names, one = tuple(f"x{i}" for i in range(X.shape[1])), np.ones(1)
    row = cell_row(features, target_origin=0 * one, target_scale=one, inputs=names, targets=("y",))
    places = np.arange(len(X))

    def work() -> None:
        sink = CellAccumulator(features, row, sums="float32", at_rest="float32")
        sink.add(X, y, None, places)
        sink.result()

    return work


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--inputs", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(asked.rows, asked.inputs)), rng.normal(size=(asked.rows, 1))
    names = ("R", "trees", "cells", "µs a row", "by cell", "ratio", "one", "ratio")
    print("{:>4} {:>5} {:>5} {:>9} {:>8} {:>6} {:>8} {:>6}".format(*names))
    for r, trees, cells in SHAPES:
        features = rs.LocalFeatures.sample(
            rs.Matern(2.0, nu=1.5), X[: 2 * r * cells], n_cells=cells, n_trees=trees,
            n_components=r, rng=0,
        )  # fmt: skip
        for tree in range(trees):
            for cell in range(cells):
                features.inverse_factor(tree, cell)  # once for a process, not for a row
        works = [
            local(features, X, y),
            bare(asked.rows, r, trees, trees * cells, "float32"),
            bare(asked.rows, r, trees, 1, "float32"),
        ]
        turns = [[cpu(work) for work in works] for _ in range(asked.repeats)]
        mine, *bases = (1e6 * min(side) / asked.rows for side in zip(*turns, strict=True))
        beside = " ".join(f"{base:8.2f} {mine / base:6.2f}" for base in bases)
        print(f"{r:4} {trees:5} {cells:5} {mine:9.2f} {beside}", flush=True)


if __name__ == "__main__":
    main()
