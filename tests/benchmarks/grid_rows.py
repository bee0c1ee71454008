"""Rows of a plane from Zarr onto a grid of frequencies: rate, peak memory and error as n grows.

    python -m tests.benchmarks.grid_rows 100000 1000000 10000000 100000000

A smooth function on the unit square with noise 0.5, written as Zarr in blocks and read back. A
process of its own for each n, so that the peak is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr

import rff_stream as rs
from rff_stream._array import Array, Float64
from rff_stream.process_memory import peak_bytes

CHUNK, NOISE = 1 << 20, 0.5


def truth(x: Array) -> Float64:
    """Waves down to a fortieth of the square."""
    u, v = 2 * np.pi * x.T
    found = np.sin(u) * np.cos(2 * v) + 0.5 * np.sin(7 * u + 5 * v) + 0.3 * np.cos(23 * u - 17 * v)
    return np.asarray(found + 0.2 * np.sin(40 * v))


def write(path: Path, n: int) -> None:
    """So many rows, in blocks of a million."""
    group = zarr.open_group(path, mode="w")
    size = {"shape": (n,), "chunks": (min(CHUNK, n),), "dtype": "float32"}
    arrays = {
        name: group.create_array(name, dimension_names=["row"], **size) for name in ("u", "v", "y")
    }
    for block, lo in enumerate(range(0, n, CHUNK)):
        m = min(CHUNK, n - lo)
        rng = np.random.default_rng([7, block])
        x = rng.uniform(0, 1, (m, 2)).astype(np.float32)
        y = truth(x.astype(float)) + NOISE * rng.standard_normal(m)
        for name, values in (("u", x[:, 0]), ("v", x[:, 1]), ("y", y)):
            arrays[name][lo : lo + m] = values


def measure(path: Path, n: int) -> dict[str, float]:
    """Fit, and the error against the truth at 20,000 places."""
    features = rs.GridFeatures.over(np.zeros(2), np.ones(2))
    begun, cpu = time.perf_counter(), time.process_time()
    moments = rs.collect(features, str(path), "y", inputs=["u", "v"], sample_rows=0, progress=False)
    read = time.perf_counter() - begun, time.process_time() - cpu
    cpu = time.process_time()
    found = rs.GaussianProcessRegressor(rs.Matern(nu=2.5), features=features, progress=False)
    found.fit_moments(features, moments)
    searched = time.process_time() - cpu
    at = np.random.default_rng(1).uniform(0.01, 0.99, (20_000, 2))
    error = found.predict(at) - truth(at)
    return {
        "rows": n,
        "wall_s": read[0],
        "cpu_s": read[1],
        "cpu_us_a_row": 1e6 * read[1] / n,
        "rows_a_second": n / read[0],
        "search_cpu_s": searched,
        "rmse": float(np.sqrt((error**2).mean())),
        "noise": float(found.noise_variance_) ** 0.5,
        "peak_mib": peak_bytes() / 2**20,
    }


def main(arguments: list[str]) -> None:
    """A line of JSON for each n; ``--one PATH N`` is the process that measures."""
    if arguments[0] == "--one":
        print(json.dumps(measure(Path(arguments[1]), int(arguments[2]))), flush=True)
        return
    for n in map(int, arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.zarr"
            write(path, n)
            command = [sys.executable, "-m", "tests.benchmarks.grid_rows", "--one", str(path)]
            subprocess.run([*command, str(n)], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
