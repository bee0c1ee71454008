"""Measures a pass on real schedulers and workers; prints Markdown.

    make bench-cluster                          everything: about ten minutes on two cores
    make bench-cluster BENCH_ARGS="--sections leaves --leaves 10000"

``leaves`` is what scheduling costs: a real scheduler, this process as the driver, workers that
share one process, and leaves of a few rows each. ``workers`` compares one and two worker processes
with each other and with threads: the same fit from Zarr, in turn, on workers that are up and have
imported everything, and configured as deployments/dask.yaml says, but for TLS. CPU is user +
system time of all threads, from the kernel's own counters.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
from bench import INPUTS, write_zarr

import rff_stream as rs
from rff_stream import leaf_layout as layouts
from rff_stream.costs import WholeCost
from rff_stream.execution import Reading
from rff_stream.families import family_of
from rff_stream.planning import PlanRequest
from rff_stream.sources.protocol import BoxCost, Columns, Rows
from rff_stream.statistics.moment_statistics import MomentStatistic

ROOT = Path(__file__).parents[2]
CASES = ["one", "two", "two, twice the rows", "bare", "threads"]  # taken in turn
ROWS = 16  # of a leaf that costs nothing
WORKERS = """
import asyncio, sys
from distributed import Worker

async def main(address, count):
    each = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1"}
    each["dashboard_address"] = "127.0.0.1:0"
    workers = [await Worker(address, **each) for _ in range(count)]
    await asyncio.gather(*(worker.finished() for worker in workers))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


BARE = """
import sys, time
import numpy as np
from rff_stream.moments.accumulate import rank_update
z, out = np.ones((512, 1024), "float32"), np.zeros((1024, 1024), "float32")
sys.stdin.readline()
begun = time.perf_counter()
for _ in range(300):
    rank_update(z, out, 1.0)
print(time.perf_counter() - begun, flush=True)
"""


class Nothing:
    """Reads rows that are made up on the spot."""

    def read(self, box: Any, *values: Any) -> Iterator[Rows]:
        lo, hi = box[0]
        x = np.arange(lo, hi, dtype=float)[:, None]
        yield Rows(x, x, None, None, 0)


class Leaves:
    """A source of so many leaves."""

    columns = Columns(("x",), ("y",), ("", ""))
    dims = ("row",)
    graph = None
    is_lazy = True

    def __init__(self, count: int) -> None:
        self.reader = Nothing()
        self.n_rows = count * ROWS
        self.shape = (self.n_rows,)
        self.bounds = (tuple(range(0, self.n_rows + 1, ROWS)),)

    def arguments(self, box: Any) -> tuple[()]:
        return ()

    def cost(self, box: Any) -> BoxCost:
        rows = box[0][1] - box[0][0]
        return BoxCost(rows, 16 * rows, 16 * rows, 1)

    def selection(self) -> None:
        return None

    def generation(self) -> str:
        return ""

    def describe(self, box: Any) -> str:
        return f"row {box[0][0]}:{box[0][1]}"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mebibytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as place:
        deployed = dask.config.collect([str(ROOT / "deployments" / "dask.yaml")], env={})
        del deployed["distributed"]["comm"]  # TLS, and certificates that are not here
        (Path(place) / "dask.yaml").write_text(json.dumps(deployed))  # JSON is YAML
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"DASK_CONFIG": place},
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a scheduler on loopback."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    words = ["-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    words += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with started(*words) as process:
        while not (file.exists() and file.read_text()):
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"], process.pid


def measure_leaves(counts: list[int]) -> None:
    from distributed import Client

    layouts.LEAF_ROWS, layouts.FEWEST_LEAVES, layouts.LEAF_SECONDS = ROWS, 1 << 40, 0.0
    print("\n### Scheduling: a real scheduler, 8 workers in one process, R = 2\n")
    print("| leaves | tasks | wall s | driver ms/leaf | scheduler ms/leaf | both | ", end="")
    print("peak driver, scheduler MiB |\n|---|---|---|---|---|---|---|", flush=True)
    features = rs.FourierFeatures.sample(rs.Gaussian(), 1, 2, rng=0)
    for count in counts:
        with tempfile.TemporaryDirectory() as place, scheduler(Path(place)) as (address, pid):
            with started("-c", WORKERS, address, "8"), Client(address, timeout=60) as client:
                client.wait_for_workers(8, timeout=60)
                source: Any = Leaves(count)
                reading = Reading(source, progress=False)
                row = family_of(features).row(features, reading.pilot(), source.columns)
                found = reading.plan(PlanRequest(WholeCost(2), sums="float64"))
                assert found.layout.n_leaves == count
                before, begun = (time.process_time(), cpu_seconds(pid)), time.perf_counter()
                statistic = MomentStatistic(features, row, 2, "float64", 0, reading.places(found))
                reading.moments(statistic, found)
                driver = 1000 * (time.process_time() - before[0]) / count
                scheduling = 1000 * (cpu_seconds(pid) - before[1]) / count
                peaks = f"{peak_mebibytes(os.getpid()):.0f}, {peak_mebibytes(pid):.0f}"
                wall = time.perf_counter() - begun
                row_text = f"{driver:.2f} | {scheduling:.2f} | {driver + scheduling:.2f} | {peaks}"
                print(f"| {count:,} | {found.n_tasks:,} | {wall:.0f} | {row_text} |", flush=True)


def fit(store: str, components: int) -> float:
    """Wall seconds of one fit."""
    model = rs.KernelRidge(
        length_scale=1.0, n_components=components, alpha=1.0, random_state=0, progress=False
    )
    begun = time.perf_counter()
    model.fit(store, "y", inputs=INPUTS)
    return time.perf_counter() - begun


def sent_bytes(client: Any) -> int:
    """What workers gave to each other, by their own counters."""

    def total(dask_worker: Any = None) -> int:
        return int(dask_worker.transfer_outgoing_bytes_total)

    return sum(client.run(total).values())


class Cluster:
    """A scheduler and some workers of one thread, with what they have cost so far."""

    def __init__(self, workers: int, stack: contextlib.ExitStack) -> None:
        from distributed import Client

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, pid = stack.enter_context(scheduler(folder))
        words = ["-m", "dask", "worker", address, "--host", "127.0.0.1", "--no-nanny"]
        words += ["--dashboard-address", "127.0.0.1:0", "--nthreads", "1"]
        words += ["--memory-limit", "4GiB", "--local-directory", str(folder)]
        words += ["--death-timeout", "30"]
        processes = [stack.enter_context(started(*words)) for _ in range(workers)]
        self.pids = [pid, *(process.pid for process in processes)]
        self.client = Client(address, timeout=60, set_as_default=False)
        stack.callback(self.client.close)
        self.client.wait_for_workers(workers, timeout=60)

    def cpu(self) -> float:
        return sum(map(cpu_seconds, self.pids)) + time.process_time()


def measure_workers(n: int, components: int, repeats: int, cases: list[str]) -> None:
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small, large = str(place / "small.zarr"), str(place / "large.zarr")
        write_zarr(small, n)
        if CASES[2] in cases:
            write_zarr(large, 2 * n)
        one, two = Cluster(1, stack), Cluster(2, stack)
        for cluster in (one, two):
            with cluster.client.as_current():
                fit(small, 64)  # they import and compile
        with contextlib.redirect_stdout(None):
            fit_in_threads(small, 64)
        found: dict[str, list[float]] = {}

        def note(name: str, value: float) -> None:
            found.setdefault(name, []).append(value)
            print(f"{name}: {value:.2f}", file=sys.stderr, flush=True)  # should it be cut short

        for _ in range(repeats):
            for name, cluster, store in (
                ("one", one, small), ("two", two, small), ("two, twice the rows", two, large)
            ):  # fmt: skip
                if name not in cases:
                    continue
                before, sent = cluster.cpu(), sent_bytes(cluster.client)
                with cluster.client.as_current():
                    note(f"{name}: s", fit(store, components))
                note(f"{name}: CPU s", cluster.cpu() - before)
                note(f"{name}: MB sent", (sent_bytes(cluster.client) - sent) / 1e6)
            for processes in (1, 2) if "bare" in cases else ():
                note(f"{processes} bare: s", bare(processes))
            if "threads" in cases:
                begun = time.process_time()
                note("threads: s", fit_in_threads(small, components))
                note("threads: CPU s", time.process_time() - begun)
    report(found, n, components, repeats)


def bare(processes: int) -> float:
    """Wall seconds of the same rank-k updates in each of so many processes at once."""
    words, pipe = [sys.executable, "-c", BARE], subprocess.PIPE
    known = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    each = [
        subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=known)
        for _ in range(processes)
    ]
    time.sleep(1.5)  # they import
    for process in each:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in each)


def fit_in_threads(store: str, components: int) -> float:
    with dask.config.set(scheduler="threads", num_workers=2):
        return fit(store, components)


def report(found: dict[str, list[float]], n: int, components: int, repeats: int) -> None:
    def ratio(what: str, a: str, b: str, factor: float = 1.0) -> None:
        if a in found and b in found:
            each = [factor * x / y for x, y in zip(found[a], found[b], strict=True)]
            print(f"| {what} | {statistics.median(each):.2f} |")

    print(f"\n### Workers: n = {n:,}, d = 8, R = {components}, from Zarr, {repeats} turns\n")
    print("| what | median |\n|---|---|")
    for name, values in found.items():
        each = ", ".join(f"{value:.1f}" for value in values)
        print(f"| {name} | {statistics.median(values):.1f} ({each}) |")
    one, two, large = "one: s", "two: s", "two, twice the rows: s"
    ratio("two processes of SYRK alone over one", "1 bare: s", "2 bare: s", 2.0)
    ratio("one over two workers, wall", one, two)
    ratio("weak scaling: n on one over 2 n on two, wall", one, large)
    ratio("two workers over threads, CPU", "two: CPU s", "threads: CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default="leaves,workers")
    parser.add_argument("--leaves", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--components", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
    if "workers" in chosen.sections:
        measure_workers(chosen.rows, chosen.components, chosen.repeats, chosen.cases)
    if "leaves" in chosen.sections:
        measure_leaves(chosen.leaves)


if __name__ == "__main__":
    main()
