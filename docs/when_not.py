"""Where boosted trees win and where they do not: the table of docs/when-not.md."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import rff_stream as rs

ROWS, FRESH, NOISE = 20_000, 5_000, 0.1


def smooth(x: np.ndarray) -> np.ndarray:
    """A smooth function of all three inputs."""
    return np.sin(2 * x[:, 0] + x[:, 1]) + np.cos(2 * x[:, 1] * x[:, 2])


def main() -> None:
    """Measure, print, and write the table."""
    rng, table = np.random.default_rng(0), Path(__file__).with_name("when-not-table.md")
    heads = ("data", "this, nothing set", "one map, median", "one map, ARD", "boosted trees")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|"]
    for words, truth, d in (
        ("smooth, 3 inputs", smooth, 3),
        ("smooth in 3 of 30 inputs", smooth, 30),
    ):
        x, fresh = rng.uniform(-2, 2, (ROWS, d)), rng.uniform(-2, 2, (FRESH, d))
        y = truth(x) + NOISE * rng.standard_normal(ROWS)
        cells = []
        for model in (
            rs.KernelRidge(random_state=0),
            rs.KernelRidge(n_components=1024, random_state=0),
            rs.KernelRidge(n_components=1024, length_scale="ard", random_state=0),
            HistGradientBoostingRegressor(max_iter=2000, learning_rate=0.05, random_state=0),
        ):
            started = time.process_time()
            error = np.sqrt(np.mean((model.fit(x, y).predict(fresh) - truth(fresh)) ** 2))
            cells.append(f"{error:.3f} ({time.process_time() - started:.0f} CPU s)")
        lines.append(f"| {words} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
