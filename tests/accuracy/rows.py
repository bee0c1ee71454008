"""The error of the mean against the number of rows, from a thousand to ten million.

    python tests/accuracy/rows.py [--sizes 1000,10000,100000,1000000,10000000] [--components 256]

The default process on y = sin(2a)b + noise of .05; rows of a size are drawn block by block from a
Dask array, so that ten million take no more memory than one block. Columns: error of the mean on
20,000 rows without noise, noise found for .05, penalty, precision of the sums, CPU seconds. The
last line says whether each error is below the one before.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np

import rff_stream as rs

NOISE = 0.05
BLOCK = 100_000


def smooth(x: Any) -> Any:
    """The function of the issue's script."""
    return np.sin(2 * x[:, 0]) * x[:, 1]


def rows(n: int) -> tuple[Any, Any]:
    """n rows as Dask arrays, the same whatever n."""
    sizes = [min(BLOCK, n - start) for start in range(0, n, BLOCK)]

    def block(block_info: Any = None) -> Any:
        place = block_info[None]["chunk-location"][0]
        rng = np.random.default_rng(place)
        x = rng.uniform(-2, 2, (sizes[place], 2))
        return np.column_stack([x, smooth(x) + NOISE * rng.normal(size=len(x))])

    both = da.map_blocks(block, chunks=(tuple(sizes), (3,)), dtype=float, meta=np.empty((0, 3)))
    return both[:, :2], both[:, 2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000,200000,200001,1000000,10000000")
    parser.add_argument("--components", type=int, default=256)
    asked = parser.parse_args()
    test = np.random.default_rng(10**6).uniform(-2, 2, (20_000, 2))
    print(f"{'rows':>10} {'error':>9} {'noise':>8} {'alpha':>9} {'sums':>8} {'CPU s':>7}")
    errors = []
    for n in map(int, asked.sizes.split(",")):
        started = time.process_time()
        model = rs.GaussianProcessRegressor(
            n_components=asked.components, random_state=0, progress=False
        ).fit(*rows(n))
        errors.append(float(np.sqrt(np.mean((model.predict(test) - smooth(test)) ** 2))))
        print(
            f"{n:10d} {errors[-1]:9.5f} {model.noise_variance_**0.5:8.5f} {model.alpha_:9.2g} "
            f"{model.plan_.sums:>8} {time.process_time() - started:7.1f}",
            flush=True,
        )
    falls = all(later <= 1.05 * before for before, later in pairwise(errors))
    print("falls with every size" if falls else "does NOT fall with every size")


if __name__ == "__main__":
    main()
