"""Local features on real data, beside a global map and what others would try first.

    python tests/accuracy/local.py [--sets protein,kin40k] [--seeds 0,1,2] [--rivals] [--auto]

With ``--auto`` cells, one map of 2,048 columns and (up to three inputs) a grid of frequencies are
collected in one read, and leave-one-out errors choose, as ``features="auto"`` does.

Columns: RMSE and mean absolute error in units of the table's note, share of held-out values
inside the 95 % interval, CPU seconds of fit and prediction, and the peak of memory so far.
Nothing is chosen on the test part: kernels, length-scales, noise and the weights of trees come
from the training rows. ``RFF_STREAM_DATA`` names the folder; see CONTRIBUTING.

Rivals: the mean of the 5 nearest rows (inputs over their standard deviation), boosted trees
(``HistGradientBoostingRegressor`` with 500 trees), one global map of 2,048 columns, and a plane;
for the air cube also its climatology: the mean of the cell at the same hour and day of each year.
``--only-rivals climatology,whole`` names some of them and leaves cells out.

The inputs of bike hold casual and registered, whose sum is the count; y is the logarithm of the
count. So a small error on it tells that these two were found; without them it is another task.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from regression import folder, load

import rff_stream as rs
from rff_stream.errors import NumericalWarning
from rff_stream.process_memory import peak_bytes

KERNELS = (rs.Gaussian(), rs.Matern(nu=0.5), rs.Matern(nu=1.5), rs.Matern(nu=2.5))
"""They compete on compact windows of the training rows."""


@dataclass(frozen=True)
class Data:
    """Training and test rows, and how to cut them."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    cells: rs.Cells
    choices: dict[str, Any]
    line: float | None = None
    kernels: tuple[Any, ...] = KERNELS


def uci(name: str, cells: rs.Cells, line: float, **choices: Any) -> Callable[[int], Data]:
    """A set of uci_datasets, split 0, z-scored."""
    return lambda seed: Data(*load(name), cells, choices, line)


def bike_without_parts(seed: int) -> Data:
    """bike without its last two inputs, casual and registered: y is the log of their sum."""
    X, y, X_test, y_test = load("bike")
    choices = {"sums": "float64", "dtype": "float64"}
    return Data(X[:, :-2], y, X_test[:, :-2], y_test, rs.Cells(256, 4), choices)


def held_out(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """A random tenth apart."""
    test = np.random.default_rng(seed).random(len(X)) < 0.1
    return X[~test], y[~test], X[test], y[test]


def air(
    steps: int | None, cells: rs.Cells, days: int = 0, hour: bool = False
) -> Callable[[int], Data]:
    """air_temperature.zarr, its first steps or all, in K.

    A random tenth of the cells is held out, or so many whole days. With ``hour`` its cosine and
    sine are two more inputs, and one kernel is given: left-out rows, which lie beside others,
    would choose one that is too smooth for a day.
    """

    def read(seed: int) -> Data:
        import xarray as xr

        data = xr.open_zarr(folder() / "air_temperature.zarr", chunks=None)
        values = data["air"][:steps]
        hours = 6.0 * np.arange(len(values))
        axes = np.meshgrid(hours, data["lat"], data["lon"], indexing="ij")
        X = np.stack([axis.ravel() for axis in axes], axis=1).astype(float)
        y, choices = np.asarray(values, float).ravel(), {"sums": "float32"}
        kernels = KERNELS
        if hour:
            turn = 2 * np.pi * X[:, :1] / 24
            X, kernels = np.hstack([X, np.cos(turn), np.sin(turn)]), (rs.Matern(nu=1.5),)
        if not days:
            return Data(*held_out(X, y, seed), cells, choices, 1.0)
        last = int(hours[-1] // 24)
        hidden = np.random.default_rng(seed).choice(np.arange(1, last), days, replace=False)
        test = np.isin(X[:, 0] // 24, hidden)
        return Data(X[~test], y[~test], X[test], y[test], cells, choices, None, kernels)

    return read


def heaton(cells: rs.Cells) -> Callable[[int], Data]:
    """A satellite image with masked squares, in °C; the line is of the mean absolute error."""

    def read(seed: int) -> Data:
        data = np.load(folder() / "heaton_sim.npz")
        names = ("X", "y", "X_test", "y_test")
        X, y, X_test, y_test = (data[name].astype(float) for name in names)
        kept, asked = np.isfinite(y), np.isfinite(y_test)
        choices = {"sums": "float64", "dtype": "float64"}
        return Data(X[kept], y[kept], X_test[asked], y_test[asked], cells, choices, 0.62)

    return read


def scattered(name: str, target: str, cells: rs.Cells) -> Callable[[int], Data]:
    """Scattered observations, a random tenth held out, in units of y."""

    def read(seed: int) -> Data:
        data = np.load(folder() / f"{name}.npz")
        X, y = data["X"].astype(float), data[target].astype(float)
        y = y if y.ndim == 1 else y[:, 0]
        kept = np.isfinite(y) & np.isfinite(X).all(axis=1)
        return Data(*held_out(X[kept], y[kept], seed), cells, {"sums": "float64"})

    return read


def smooth(seed: int) -> Data:
    """20,000 made rows of a function that varies over the range of its eight inputs, noise .1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (22_000, 8))
    f = np.sin(X @ rng.normal(size=8)) + np.cos(1.5 * X[:, 0]) * X[:, 1]
    y = f + 0.1 * rng.normal(size=len(X))
    return Data(X[:20_000], y[:20_000], X[20_000:], f[20_000:], rs.Cells(256, 4), {})


SETS: dict[str, Callable[[int], Data]] = {
    "protein": uci("protein", rs.Cells(256, 4, 128), 0.515),
    "kin40k": uci("kin40k", rs.Cells(512, 4, 32), 0.105, sums="float64", dtype="float64"),
    "elevators": uci("elevators", rs.Cells(256, 4), 0.368, sums="float64"),
    "bike": uci("bike", rs.Cells(256, 4), 0.045, sums="float64", dtype="float64"),
    "bike without its parts": bike_without_parts,
    "keggdirected": uci("keggdirected", rs.Cells(256, 4), 0.092, sums="float64"),
    "heaton_sim": heaton(rs.Cells(256, 4, 256)),
    "argo2016": scattered("argo2016", "y", rs.Cells(256, 4)),
    "baja_bathymetry": scattered("baja_bathymetry", "y", rs.Cells(256, 4)),
    "noaa_tmax": scattered("noaa_tmax_1990_93", "y", rs.Cells(256, 4)),
    "smooth (made)": smooth,
    "air (730 steps)": air(730, rs.Cells(128, 4, 2048)),
    "air": air(None, rs.Cells(128, 3, 8192)),
    "air (8 days)": air(None, rs.Cells(128, 3, 8192), days=8),
    "air (8 days) and hour": air(None, rs.Cells(128, 3, 8192), days=8, hour=True),
    "air (364 steps, 4 days)": air(364, rs.Cells(128, 3, 1024), days=4),
    "air (364 steps, 4 days) and hour": air(364, rs.Cells(128, 3, 1024), days=4, hour=True),
}


def score(mean: np.ndarray, std: np.ndarray | None, y: np.ndarray) -> str:
    """RMSE, mean absolute error and cover."""
    error = y - mean
    cover = "" if std is None else f"{np.mean(abs(error) < 1.96 * std):.3f}"
    return f"{np.sqrt(np.mean(error**2)):9.4f} {np.mean(abs(error)):9.4f} {cover:>7}"


def measure(label: str, fit: Callable[[Data, int], tuple[Any, Any]], data: Data, seed: int) -> None:
    """One line of the table."""
    started = time.process_time()
    mean, std = fit(data, seed)
    seconds = time.process_time() - started
    peak = peak_bytes() / 2**30
    print(f"{label:34} {score(mean, std, data.y_test)} {seconds:9.1f} {peak:8.2f}", flush=True)


def local(data: Data, seed: int) -> tuple[Any, Any]:
    """Cells of random trees."""
    asked = {"random_state": seed, "progress": False, "length_scale": "ard", **data.choices}
    model = rs.GaussianProcessRegressor(data.kernels, features=data.cells, **asked)
    model.fit(data.X, data.y)
    return model.predict(data.X_test, return_std=True, noise=True)


def whole(data: Data, seed: int) -> tuple[Any, Any]:
    """One map of 2,048 columns, length-scales by evidence on its pilot."""
    asked = {"random_state": seed, "progress": False, "length_scale": "ard"}
    model = rs.GaussianProcessRegressor("gaussian", n_components=2048, **asked)
    model.fit(data.X, data.y)
    return model.predict(data.X_test, return_std=True, noise=True)


def auto(data: Data, seed: int) -> tuple[Any, Any]:
    """One read of all of them, then a choice."""
    grid = ("grid",) if data.X.shape[1] <= 3 else ()
    asked = {"random_state": seed, "progress": False, "length_scale": "ard", **data.choices}
    candidates = rs.Candidates(("whole", data.cells, *grid))
    model = rs.GaussianProcessRegressor(data.kernels, features=candidates, **asked)
    model.fit(data.X, data.y)
    print(f"  {model.choice_}")
    return model.predict(data.X_test, return_std=True, noise=True)


def linear(data: Data, seed: int) -> tuple[Any, None]:
    """A plane."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(data.X, data.y).predict(data.X_test), None


def nearest(data: Data, seed: int) -> tuple[Any, None]:
    """The mean of the 5 nearest rows."""
    from sklearn.neighbors import KNeighborsRegressor

    scale = data.X.std(axis=0)
    scale[scale == 0] = 1.0
    model = KNeighborsRegressor(5).fit(data.X / scale, data.y)
    return model.predict(data.X_test / scale), None


def climatology(data: Data, seed: int) -> tuple[Any, None]:
    """The mean of the cell at the same hour and day of the other years; of the cell where none is.

    The first input counts hours, from 0 on, in years of 365 days.
    """
    both = np.concatenate([data.X, data.X_test])
    place = np.unique(both[:, 1:], axis=0, return_inverse=True)[1].ravel()
    key = (both[:, 0] // 6).astype(int) % 1460 + 1460 * place
    n = len(data.X)
    count, total = (np.bincount(key[:n], w, key.max() + 1) for w in (None, data.y))
    cells, sums = (np.bincount(place[:n], w, place.max() + 1) for w in (None, data.y))
    key, place = key[n:], place[n:]
    with np.errstate(invalid="ignore"):
        mean = np.where(count[key] > 0, total[key] / count[key], sums[place] / cells[place])
    return mean, None


def boosted(data: Data, seed: int) -> tuple[Any, None]:
    """Boosted trees on the same inputs."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=500, random_state=seed).fit(data.X, data.y)
    return model.predict(data.X_test), None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--only-rivals", default="")
    parser.add_argument("--auto", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", NumericalWarning)
    print(f"{'':34} {'RMSE':>9} {'MAE':>9} {'cover':>7} {'CPU s':>9} {'peak GiB':>8}")
    for name in asked.sets.split(","):
        for seed in map(int, asked.seeds.split(",")):
            data = SETS[name](seed)
            line = "" if data.line is None else f" (line {data.line})"
            rivals = [linear, nearest, boosted, whole]
            rivals += [climatology] if name.startswith("air") else []
            if only := asked.only_rivals.split(",") if asked.only_rivals else []:
                rivals = [each for each in rivals if each.__name__ in only]
            else:
                measure(f"{name}, seed {seed}{line}", auto if asked.auto else local, data, seed)
            if only or (asked.rivals and seed == int(asked.seeds.split(",")[0])):
                for rival in rivals:
                    measure(f"  {rival.__name__}, seed {seed}", rival, data, seed)


if __name__ == "__main__":
    main()
