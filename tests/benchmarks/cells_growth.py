"""Error and memory of local features as rows grow to 2·10⁷: made rows, four inputs.

    python tests/benchmarks/cells_growth.py [--rows 1000000,2000000,19000000] [--last 1000000]
        [--cells 128,4,2048] [--workers 2]

y = f(x) + ε, f a sum of waves as short as 1/50 of the range of the first input (1/6, 1/3 and 1
of the others) with standard deviation 1, ε of .1. Rows are made by the tasks that read them. Each
fit is a process of its own; the error is told against f on 20,000 rows that no fit has seen, so an
error of .02 adds 2 % to that of the noise. The cells are as many at each size. With ``--last`` so
many rows more are counted by ``partial_fit`` after each fit, in the same cells, and told below it.
With ``--workers`` the rows are read by so many processes of one thread, and CPU seconds are those
of all processes; the driver's, which searches, draws, adds and solves, stand beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

CHUNK, WAVES, NOISE = 1 << 18, 64, 0.1
SHORTEST = np.array([1 / 50, 1 / 6, 1 / 3, 1])
"""Wavelengths over the range of each input."""


def truth(x: np.ndarray) -> np.ndarray:
    """f (n,) of rows x (n, 4) in [0, 1]."""
    rng = np.random.default_rng(7)
    turns = rng.uniform(-1, 1, (WAVES, 4)) / SHORTEST
    phases = rng.uniform(0, 2 * np.pi, WAVES).astype("f4")
    turns = 2 * np.pi * turns.T
    values = [  # a few rows at a time: this is no memory of the fit
        np.cos((each @ turns).astype("f4") + phases).sum(axis=1)
        for each in np.array_split(x, -(-len(x) // 4096))
    ]
    return np.concatenate(values) * np.sqrt(2 / WAVES)


def block(number: int, rows: int) -> np.ndarray:
    """Rows [x, y] (rows, 5) of a chunk."""
    rng = np.random.default_rng([number, 1])
    x = rng.uniform(size=(rows, 4))
    return np.column_stack([x, truth(x) + NOISE * rng.normal(size=rows)])


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of so many processes of one thread; None for no process."""
    if not workers:
        yield None
        return
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(workers, threads_per_worker=1, dashboard_address=None) as started,
        Client(started) as client,
    ):
        client.run(__import__, "rff_stream")
        yield client


def fit(
    n_rows: int, sizes: tuple[int, int, int], last: int, client: Any = None
) -> list[dict[str, Any]]:
    """One fit in this process, or in those of a client, and one of ``last`` rows more."""
    import dask
    import dask.array as da

    import rff_stream as rs

    chunks = [min(CHUNK, n_rows - lo) for lo in range(0, n_rows, CHUNK)]
    parts = [
        da.from_delayed(dask.delayed(block, pure=True)(i, m), (m, 5), float)
        for i, m in enumerate(chunks)
    ]
    table = da.concatenate(parts)
    before = sum(client.run(time.process_time).values()) if client else 0.0
    cpu, wall = time.process_time(), time.perf_counter()
    model = rs.GaussianProcessRegressor(
        "gaussian", features=rs.Cells(*sizes), length_scale="ard", random_state=0, progress=False
    )
    model.fit(table[:, :4], table[:, 4])
    found = [describe(model, n_rows, cpu, wall)]
    if client:
        found[0]["cpu"] += sum(client.run(time.process_time).values()) - before
    if last:
        cpu, wall = time.process_time(), time.perf_counter()
        rows = block(10**6, last)
        model.partial_fit(rows[:, :4], rows[:, 4])
        found.append(describe(model, n_rows + last, cpu, wall))
    return found


def describe(model: Any, n_rows: int, cpu: float, wall: float) -> dict[str, Any]:
    """Error of a fit that began at these times, and what it took."""
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    x = np.random.default_rng(99).uniform(size=(20_000, 4))
    mean, std = model.predict(x, return_std=True)
    error = truth(x) - mean
    from rff_stream.process_memory import peak_bytes

    peak = peak_bytes() / 2**30
    return {
        "rows": n_rows,
        "error": float(np.sqrt(np.mean(error**2))),
        "cover": float(np.mean(abs(error) < 1.96 * std)),
        "cpu": cpu,
        "driver": cpu,
        "wall": wall,
        "peak": peak,
        "planned": model.plan_.process_bytes / 2**30,
        "state": model.plan_.state_bytes / 2**30,
        "length_scale": np.round(model.length_scale_, 3).tolist(),
    }


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1000000,2000000,19000000")
    parser.add_argument("--last", type=int, default=0)
    parser.add_argument("--cells", default="128,4,2048", help="R, trees, cells")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--one", type=int, help="for the processes that this one starts")
    asked = parser.parse_args()
    sizes: Any = tuple(map(int, asked.cells.split(",")))
    if asked.one:
        with cluster(asked.workers) as client:
            print(json.dumps(fit(asked.one, sizes, asked.last, client)))
        return
    names = ("error of f", "cover", "CPU s", "driver's", "wall s", "peak GiB", "plan GiB")
    print(f"{'rows':>11} " + " ".join(f"{name:>10}" for name in names), flush=True)
    for n_rows in asked.rows.split(","):
        command = [sys.executable, __file__, "--one", n_rows, "--cells", asked.cells]
        command += ["--last", str(asked.last), "--workers", str(asked.workers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{int(n_rows):11,} {done.stderr.strip()[-600:]}", flush=True)
            continue
        for found in json.loads(done.stdout.splitlines()[-1]):
            keys = ("error", "cover", "cpu", "driver", "wall", "peak", "planned")
            numbers = " ".join(f"{found[key]:10.5g}" for key in keys)
            print(f"{found['rows']:11,} {numbers} {found['length_scale']}", flush=True)


if __name__ == "__main__":
    main()
