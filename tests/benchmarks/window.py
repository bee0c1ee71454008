"""What a window of a store costs: 400 daily segments, verified, summed and solved.

    python tests/benchmarks/window.py                  R=1024: 1.8 GB in a temporary folder
    python tests/benchmarks/window.py --folder F       keeps the store in F for the next time
    python tests/benchmarks/window.py --quick

Each turn is a fresh process. The files are in the system's memory, as after a backup or a turn
before; a cold disk adds the time to read them. CPU is user + system time of all threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

D, ROWS = 8, 1000  # rows of a day
SPARE = 20  # days before the window


def day(number: int) -> tuple[np.ndarray, np.ndarray]:
    """X (1000, d) and y of a day."""
    rng = np.random.default_rng(number)
    x = 0.4 * rng.standard_normal((ROWS, D))
    return x, np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(ROWS)


def make(path: Path, days: int, components: int) -> None:
    """A model of one day, and a segment for each day after it."""
    import rff_stream as rs

    model = rs.KernelRidge(
        length_scale=1.0, n_components=components, random_state=0, progress=False
    )
    model.fit(*day(0)).save(path, moments=True)
    store = rs.MomentStore.open(path)
    for number in range(1, days):
        moments = rs.collect(model.features_, *day(number), row=store.row, progress=False)
        store.append(f"day {number:04}", moments, {"day": number})


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def answer(path: Path, first: int) -> dict[str, tuple[float, float]]:
    """Seconds of a model of the window, of its sum alone, and of its solve alone."""
    import rff_stream as rs
    from rff_stream.store import MomentStore

    features = rs.load(path, where={"day": first}).features_  # and what is imported at first use
    window = {"day": slice(first, None)}
    found = {"model": timed(lambda: rs.load(path, where=window))}
    store = MomentStore.open(path)
    total = store.total(where=window)
    fresh = rs.KernelRidge(progress=False)
    found["solve"] = timed(lambda: fresh.fit_moments(features, total))
    found["sum"] = timed(lambda: MomentStore.open(path).total(where=window))
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=400)
    parser.add_argument("--components", type=int, default=1024, metavar="R")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the store goes and stays")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.segments, options.components, options.repeats = 10, 64, 1
    return options


def main() -> None:
    options = parse()
    if options.child:
        print(json.dumps(answer(Path(options.child), SPARE)))
        return
    with tempfile.TemporaryDirectory(prefix="rff-stream-bench-") as beside:
        folder = options.folder or Path(beside)
        store = folder / f"window-{options.segments}-{options.components}.zarr"
        if not store.exists():
            make(store, options.segments + SPARE, options.components)
        report(store, options)


def report(store: Path, options: argparse.Namespace) -> None:
    words = [sys.executable, __file__, "--child", str(store)]
    turns = [
        json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        for _ in range(options.repeats)
    ]
    print(f"\n{options.segments} segments, R={options.components}, median of {len(turns)}\n")
    print("| | wall s | CPU s |\n| --- | ---: | ---: |")
    for name, said in (
        ("sum", "opened, verified, summed"),
        ("solve", "solved"),
        ("model", "both: `rs.load(path, where=…)`"),
    ):
        wall, cpu = (statistics.median(turn[name][i] for turn in turns) for i in (0, 1))
        print(f"| {said} | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
