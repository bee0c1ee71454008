"""CPU seconds to load a model of many batches and to update it with one file.

    python tests/benchmarks/many_batches.py --batches 10000 --columns 256

The store takes 4 GB for these, and minutes to be written; 1000 batches are enough to look.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import rff_stream as rs
from rff_stream.store import MomentStore

ROWS = 200


def write_day(folder: Path, i: int) -> Path:
    """A daily file."""
    rng = np.random.default_rng(i)
    u, v, noise = rng.normal(size=(3, ROWS))
    path = folder / f"day{i:05d}.parquet"
    pd.DataFrame({"u": u, "v": v, "t": np.sin(u) + 0.1 * noise}).to_parquet(path)
    return path


def main() -> None:
    """Print the times of two updates: the first keeps the sums, the second has them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=256)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.zarr"
        model = rs.KernelRidge(n_components=asked.columns, random_state=0, progress=False)
        model.fit(write_day(Path(folder), 0), "t").save(place, moments=True)
        store = MomentStore.open(place)
        ((_, groups),) = store.each()
        for i in range(1, asked.batches):
            store.append(f"batch{i:05d}", groups, {"seen": ROWS})
        for words in ("first update", "second update"):
            start = time.process_time()
            loaded = rs.load(place)
            read = time.process_time()
            loaded.update(write_day(Path(folder), store.log.last + 1))
            done = time.process_time()
            print(f"{words}: load {read - start:.1f} s, update {done - read:.1f} s of CPU")
            store.log.refresh()


if __name__ == "__main__":
    main()
