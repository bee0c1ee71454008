"""The bare call in batches beside one fit of all rows.

    python tests/accuracy/batches.py [--sets kin40k,argo2016] [--seeds 0,1,2]

One batch; a first one of 1,000 rows and then all others; 1,000, 3,000, 12,000 and the rest. RMSE in
standard deviations of y (of letter the share of errors), share of held-out values inside the 95 %
interval, CPU seconds of all batches together.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from bare import Table, classes, of_local, uci

from rff_stream import GaussianProcessRegressor, KernelClassifier

SETS = {"kin40k": uci("kin40k"), "protein": uci("protein"), "argo2016": of_local("argo2016"),
        "letter": classes("letter")}  # fmt: skip

FIRST = ((), (1000,), (1000, 4000, 16_000))
"""Rows so far after each batch but the last."""


def figures(table: Table, ends: tuple[int, ...], seed: int) -> str:
    """A line of errors, coverage and seconds of a model that was fed in batches."""
    started = time.process_time()
    kind = KernelClassifier if table.kind == "classes" else GaussianProcessRegressor
    model, low = kind(random_state=seed, progress=False), 0
    for high in ends:
        model.partial_fit(table.X[low:high], table.y[low:high])
        low = high
    seconds = time.process_time() - started
    if table.kind == "classes":
        error = float((model.predict(table.X_test) != table.y_test).mean())
        return f"{error:8.4f} {'':8} {seconds:8.1f}"
    mean, std = model.predict(table.X_test, return_std=True)
    missed = table.y_test - mean
    cover = float((np.abs(missed) < 1.96 * std).mean())
    error = float(np.sqrt((missed**2).mean())) / table.scale
    return f"{error:8.4f} {cover:8.3f} {seconds:8.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", default="0")
    asked = parser.parse_args()
    print(f"{'set, seed':16} {'rows so far':30} {'error':>8} {'cover':>8} {'CPU s':>8}")
    for name in asked.sets.split(","):
        for seed in map(int, asked.seeds.split(",")):
            table = SETS[name](seed)
            order = np.random.default_rng(seed).permutation(len(table.y))
            table = Table(table.X[order], table.y[order], table.X_test, table.y_test, table.kind)
            for first in FIRST:
                ends = (*(end for end in first if end < len(table.y)), len(table.y))
                words = ", ".join(f"{end:,}" for end in ends)
                print(f"{name + ', ' + str(seed):16} {words:30} {figures(table, ends, seed)}",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
