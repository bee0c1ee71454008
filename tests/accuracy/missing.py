"""Missing inputs as information, beside boosted trees, which take them as they come.

    python tests/accuracy/missing.py [--sets california_housing,wine] [--seeds 0,1,2]

A fifth of the values of every input is removed: at random, or two fifths of the values above the
median of their input, so that absence tells of the value. RMSE in standard deviations of y over the
training rows (a random tenth is held out), and CPU seconds of the fit: ``missing_rows="indicate"``,
the bare call on medians in place of what is missing, and LightGBM (2,000 trees of 63 leaves, rate
.05). LightGBM is no dependency of this project: ``pip install lightgbm``.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from bare import SETS

from rff_stream import GaussianProcessRegressor

SHOWN = "california_housing,cpu_act,wine,airfoil"


def removed(x: np.ndarray, how: str, rng: np.random.Generator) -> np.ndarray:
    """The inputs without a fifth of their values."""
    if how == "at random":
        gone = rng.random(x.shape) < 0.2
    else:
        gone = (x > np.median(x, axis=0)) & (rng.random(x.shape) < 0.4)
    return np.where(gone, np.nan, x)


def bare(x, y, new, seed, **parameters):
    model = GaussianProcessRegressor(random_state=seed, progress=False, **parameters).fit(x, y)
    return model.predict(new)


def indicate(x, y, new, seed):
    return bare(x, y, new, seed, missing_rows="indicate")


def medians(x, y, new, seed):
    middle = np.nanmedian(x, axis=0)
    return bare(np.where(np.isnan(x), middle, x), y, np.where(np.isnan(new), middle, new), seed)


def trees(x, y, new, seed):
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(
        n_estimators=2000, learning_rate=0.05, num_leaves=63, n_jobs=1, verbose=-1, seed=seed
    )
    return model.fit(x, y).predict(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=SHOWN)
    parser.add_argument("--seeds", default="0")
    chosen = parser.parse_args()
    print(f"{'data':20} {'seed':4} {'removed':14} {'indicate':>14} {'medians':>14} {'trees':>14}")
    for name in chosen.sets.split(","):
        for seed in map(int, chosen.seeds.split(",")):
            table = SETS[name].load(seed)
            x, new = np.asarray(table.X, float), np.asarray(table.X_test, float)
            for how in ("at random", "above median"):
                rng = np.random.default_rng(seed)
                less, less_new = removed(x, how, rng), removed(new, how, rng)
                texts = []
                for model in (indicate, medians, trees):
                    started = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = np.asarray(model(less, table.y, less_new, seed))
                    spent = time.process_time() - started
                    error = np.sqrt(np.mean((found - table.y_test) ** 2)) / table.scale
                    texts.append(f"{error:8.4f} {spent:4.0f}s")
                print(f"{name:20} {seed:4} {how:14} {' '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
