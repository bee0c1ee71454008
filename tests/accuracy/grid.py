"""Errors, coverage and CPU of models on a grid of frequencies, on a satellite image with gaps.

    python tests/accuracy/grid.py

heaton_sim (Heaton et al. 2019): 105,569 seen pixels, 44,431 hidden ones in blocks. Published mean
absolute errors of the comparison: 0.61 to 1.1. Kernel, length-scales and noise are found after
the read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

import rff_stream as rs

LINE = 0.612


def main() -> None:
    """One line of figures for each kernel family."""
    folder = Path(os.environ.get("RFF_STREAM_DATA", "../shared/data"))
    data = np.load(folder / "heaton_sim.npz")
    X, y, X_test, y_test = (data[k].astype(float) for k in ("X", "y", "X_test", "y_test"))
    kept, asked = np.isfinite(y), np.isfinite(y_test)
    X, y, X_test, y_test = X[kept], y[kept], X_test[asked], y_test[asked]
    low, high = np.minimum(X.min(0), X_test.min(0)), np.maximum(X.max(0), X_test.max(0))
    box = {axis: (float(low[axis]), float(high[axis])) for axis in (0, 1)}
    for name, kernel in (("Matern 1/2", rs.Matern(nu=0.5)), ("Matern 3/2", rs.Matern(nu=1.5))):
        began = time.process_time()
        model = rs.GaussianProcessRegressor(
            kernel, features=rs.Grid(box=box), random_state=0, progress=False
        ).fit(X, y)
        fitted = time.process_time()
        mean = model.predict(X_test)
        predicted = time.process_time()
        std = model.predict(X_test, return_std=True, noise=True)[1]
        varied = time.process_time()
        error = mean - y_test
        inside = np.mean(np.abs(error) <= 1.96 * std)
        print(
            f"heaton_sim, grid, {name}: MAE {np.abs(error).mean():.4f} (line {LINE}), RMSE "
            f"{np.sqrt((error**2).mean()):.4f}, coverage of 95 % {inside:.1%}, length-scales "
            f"{np.round(model.length_scale_, 3)}; CPU s: "
            f"fit {fitted - began:.1f}, predict {predicted - fitted:.2f}, deviations "
            f"{varied - predicted:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
