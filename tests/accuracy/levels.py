"""Columns of text as they come: 3 levels, and 2,000 with a random intercept.

    python tests/accuracy/levels.py [--seeds 3]

RMSE on new rows, in standard deviations of y, beside ridge on one-hot columns, and ridge on the
target's mean per level (scikit-learn's ``TargetEncoder``, which is cross-fitted). Also the same
with the function of the quantities made easy for a line, where only the intercepts matter. CPU
seconds are of the fit.

The rivals have a line of the quantities, and also random Fourier features of them: only beside
those is a difference one of how levels are treated, and not of the function of the quantities.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import rff_stream as rs

ALPHAS = np.logspace(-3, 4, 15)


def table(n_levels: int, seed: int, curved: bool = True, n: int = 20_000) -> pd.DataFrame:
    """Two quantities and a level with N(0, 1) intercepts; noise of standard deviation 1.

    Levels are about as frequent as 1/(rank + 10), as places are: of 2,000 the rarest have 2 rows
    of the fit or none.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    often = 1 / (np.arange(n_levels) + 10)
    level = rng.choice(n_levels, n, p=often / often.sum())
    own = rng.normal(size=n_levels)
    f = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) if curved else 0.5 * X[:, 0] - 0.3 * X[:, 1]
    y = f + own[level] + rng.normal(size=n)
    names = np.array([f"place {number}" for number in range(n_levels)], dtype=object)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "place": names[level], "y": y})


def rivals(seed: int) -> dict[str, Any]:
    """Ridge on a line and on a curve of the quantities, with two codes of the level; and ours."""
    curve = make_pipeline(
        StandardScaler(), RBFSampler(gamma=0.5, n_components=256, random_state=seed)
    )
    codes = {
        "one-hot": OneHotEncoder(handle_unknown="ignore"),
        "TargetEncoder": TargetEncoder(cv=KFold(5, shuffle=True, random_state=seed)),
    }
    ridges = {
        f"{name}, {of}": make_pipeline(
            make_column_transformer((basis, ["a", "b"]), (code, ["place"])), RidgeCV(ALPHAS)
        )
        for of, basis in (("line", StandardScaler()), ("curve", curve))
        for name, code in codes.items()
    }
    return {
        **ridges,
        "KernelRidge": rs.KernelRidge(n_components=256, random_state=seed, progress=False),
        "GaussianProcessRegressor": rs.GaussianProcessRegressor(
            n_components=256, random_state=seed, progress=False
        ),
    }


def errors(frame: pd.DataFrame, seed: int) -> dict[str, tuple[float, float]]:
    """RMSE in standard deviations of y, and CPU seconds of the fit."""
    half = len(frame) // 2
    train, test = frame[:half], frame[half:]
    X, y, new, seen = train.drop(columns="y"), train.y, test.drop(columns="y"), test.y.to_numpy()
    found = {}
    for name, model in rivals(seed).items():
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
            seconds = time.process_time() - started
            missed = np.asarray(model.predict(new)) - seen
        found[name] = float(np.sqrt(np.mean(missed**2)) / seen.std()), seconds
    return found


def main() -> None:
    """Print a line for each table and model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    for n_levels in (3, 2000):
        for curved in (True, False):
            runs = [errors(table(n_levels, seed, curved), seed) for seed in range(seeds)]
            print(f"{n_levels} levels, {'curved' if curved else 'a line'}")
            for name in runs[0]:
                rmse, seconds = np.mean([run[name] for run in runs], axis=0)
                each = " ".join(f"{run[name][0]:.4f}" for run in runs)
                print(f"  {name:26} {rmse:.4f} ({each})  {seconds:5.1f} s")


if __name__ == "__main__":
    main()
