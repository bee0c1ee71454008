"""The bare call on raw columns, beside what others would try first, in the same run.

    python tests/accuracy/bare.py [--sets argo2016,protein] [--seeds 0,1,2] [--rivals] [--unseen]
    python tests/accuracy/bare.py --only-rivals --tsv rivals.tsv
    python tests/accuracy/bare.py --rivals --cache rivals.tsv

Nothing is set but names: ``GaussianProcessRegressor().fit(X, y)`` and, for classes,
``KernelClassifier().fit(X, y)``; a cube with hidden cells also needs ``missing_rows="drop"``.
Columns are as they are stored, without any scaling. Rows are split as ``regression.py``,
``local.py`` and ``classification.py`` split them; the seed is the number of the split, or draws
a random tenth. Without ``--seeds``, small sets have three. heaton_sim, letter, higgs_sample,
adult_a9a and the six points have one split.

Columns: RMSE and mean absolute error, or share of errors and log-loss; share of held-out values
inside the 95 % interval of a new observation; CPU seconds of fit and of prediction, of the whole
process; its peak of memory; and how often fit and prediction warned. RMSE and absolute errors are
in standard deviations of y over the training rows; of heaton_sim and of the air cube in °C and K.
Each fit has a process of its own and one BLAS thread. With ``--rivals`` the last table divides our
figures by those of the best rival.

Rivals: boosted trees (LightGBM, 2,000 trees of 63 leaves, rate .05; for classes also 500), the
mean of the 5 nearest rows (inputs over their standard deviation), and a line (ridge). For tables
of strings: one-hot columns, and ``TargetEncoder``, before ridge. For few rows: the exact process
of scikit-learn, whose length-scales, noise and kernel maximise the likelihood. For the air cube:
the mean of the two nearest times that are not hidden. LightGBM is no dependency of this project:
``pip install lightgbm``. ``--cache`` keeps the figures of rivals in a file, and reads them there.

``--unseen`` are tables of which no constant in this project was chosen: one column of data for
classification or novelty from the others, hidden cells of a climate model, made functions, and the
sets that scikit-learn brings along. ``RFF_STREAM_DATA`` names the folder; see CONTRIBUTING. A set
that is not there is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import classification
import local
import numpy as np
from regression import Split, folder, raw

from rff_stream import GaussianProcessRegressor, KernelClassifier
from rff_stream.errors import RffStreamError
from rff_stream.process_memory import peak_bytes

PENALTIES = np.geomspace(1e-6, 1e6, 13)
"""Ridge regression chooses one of them."""


@dataclass(frozen=True)
class Table:
    """Training and test rows; ``unit`` of errors, by default the spread of y."""

    X: Any
    y: Any
    X_test: Any
    y_test: np.ndarray
    kind: str = "numbers"
    unit: float | None = None
    names: dict[str, Any] = field(default_factory=dict)
    """Names that a fit needs."""

    @property
    def scale(self) -> float:
        return float(np.std(self.y)) if self.unit is None else self.unit


Loader = Callable[[int], Table]

NUMBERS = ("line", "nearest", "lgbm2000")
CLASSES = ("line", "nearest", "lgbm500", "lgbm2000")
TEXT = ("one_hot", "target_encoder", "lgbm2000")


@dataclass(frozen=True)
class Task:
    """A table for each seed, its rivals, and the seeds unless some are asked for."""

    load: Loader
    rivals: tuple[str, ...] = NUMBERS
    n_seeds: int = 1


@dataclass(frozen=True)
class Fit:
    """What predicts the test rows, and what the model says of its choice.

    Predicted are mean and standard deviation (or None), or labels and probabilities.
    """

    predict: Callable[[], tuple[Any, Any]]
    choice: str = ""


@dataclass(frozen=True)
class Line:
    """A line of the table; NaN where a figure has no meaning."""

    name: str
    seed: int
    model: str
    rmse: float = np.nan
    mae: float = np.nan
    cover: float = np.nan
    error: float = np.nan
    log_loss: float = np.nan
    fit_s: float = np.nan
    predict_s: float = np.nan
    peak_mib: float = np.nan
    fit_warnings: int = 0
    predict_warnings: int = 0
    said: str = ""
    choice: str = ""

    def __str__(self) -> str:
        of_classes = not np.isnan(self.error)
        first, second = (self.error, self.log_loss) if of_classes else (self.rmse, self.mae)
        cover = "" if np.isnan(self.cover) else f"{self.cover:.3f}"
        title = f"{self.name}, {self.seed}"
        text = (
            f"{title:26} {self.model:14} {first:9.4f} {second:9.4f} {cover:>6} {self.fit_s:8.1f} "
        )
        text += f"{self.predict_s:8.2f} {self.peak_mib:8.0f}"
        if self.model != "bare":
            return text
        return f"{text} {self.fit_warnings:4}+{self.predict_warnings} {self.said[:90]}"


HEADER = (
    f"{'set, seed':26} {'model':14} {'RMSE':>9} {'MAE':>9} {'cover':>6} {'fit, s':>8} "
    f"{'predict':>8} {'peak MiB':>8} {'warned':>6}\n{'':26} {'':14} {'or error':>9} {'log-loss':>9}"
)


# Data.


def uci(name: str) -> Loader:
    """A set with stored splits."""
    return lambda seed: Table(*raw(name, seed))


def bike_without_parts(seed: int) -> Table:
    """bike without its last two inputs, casual and registered: y is the log of their sum."""
    X, y, X_test, y_test = raw("bike", seed)
    return Table(X[:, :-2], y, X_test[:, :-2], y_test)


def of_local(name: str, unit: float | None = None) -> Loader:
    """A set of local.py."""

    def read(seed: int) -> Table:
        data = local.SETS[name](seed)
        return Table(data.X, data.y, data.X_test, data.y_test, unit=unit)

    return read


def tenth(X: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """A random tenth is the test part."""
    X, y, X_test, y_test = local.held_out(X, y, seed)
    return X, y, X_test, y_test


def whole_set(name: str, kind: str = "numbers") -> Loader:
    """A set without splits, a random tenth held out."""

    def read(seed: int) -> Table:
        data = np.load(folder() / f"{name}.npz")
        y = data["y"] if kind == "classes" else data["y"].astype(float)
        return Table(*tenth(data["X"].astype(float), y, seed), kind)

    return read


def classes(name: str) -> Loader:
    """A set of classification.py."""
    return lambda seed: Table(*classification.load(name), "classes")


def air(seed: int) -> Table:
    """Six-hourly air temperature with a random tenth of its cells hidden, in K."""
    import xarray as xr

    truth = xr.open_zarr(folder() / "air_temperature.zarr", chunks=None)["air"].load()
    hidden = np.random.default_rng(seed).random(truth.shape) < 0.1
    axes = ["lat", "lon", "time"]
    cells = truth.to_dataframe().reset_index()[axes][hidden.ravel()]
    known = truth.where(~hidden).to_dataset(name="air")
    return Table(known, "air", cells, truth.values[hidden], "cube", 1.0, {"inputs": axes})


def eight_inputs(seed: int) -> Table:
    """400 rows of a function of eight inputs, each in a unit of its own, noise .1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (2400, 8))
    f = np.sin(X @ rng.normal(size=8)) + np.cos(1.5 * X[:, 0]) * X[:, 1]
    X, y = X * 10.0 ** np.arange(-4, 4), f + 0.1 * rng.normal(size=len(X))
    return Table(X[:400], y[:400], X[400:], y[400:], "process")


def twenty_rows(seed: int) -> Table:
    """20 rows of a sine, noise .1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, (520, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=len(x))
    return Table(x[:20], y[:20], x[20:], y[20:], "process")


def six_points(at_them: bool) -> Loader:
    """The six points of x·sin(x) in scikit-learn's first example of a process."""

    def read(seed: int) -> Table:
        x = np.linspace(0, 10, 1000)[:, None]
        y = (x * np.sin(x)).ravel()
        known = np.random.RandomState(1).choice(len(y), size=6, replace=False)
        asked = known if at_them else np.arange(len(y))
        return Table(x[known], y[known], x[asked], y[asked], "process")

    return read


def three_levels(seed: int) -> Table:
    """4,500 made rows: the level shifts the target, and turns the effect of a number over."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    level, x = rng.integers(0, 3, 4500), rng.normal(size=(4500, 2))
    f = np.array([0.0, 1.0, 3.0])[level] + np.array([1, -1, 0.5])[level] * np.sin(2 * x[:, 0])
    y = f + 0.5 * x[:, 1] + 0.2 * rng.normal(size=len(x))
    text = np.array(["low", "middle", "high"])[level]
    frame = pd.DataFrame({"speed": x[:, 0], "grade": text, "depth": x[:, 1]})
    return text_table(frame, y, 4000)


def many_levels(seed: int) -> Table:
    """22,000 made rows of 2,000 places, unequally frequent, each with an intercept of its own.

    Some places occur in the test part only.
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    share = 1 / (10 + np.arange(2000))
    place, x = rng.choice(2000, 22_000, p=share / share.sum()), rng.normal(size=(22_000, 2))
    f = rng.normal(size=2000)[place] + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    y = f + 0.5 * rng.normal(size=len(x))
    text = np.array([f"place {i}" for i in rng.permutation(2000)])[place]
    frame = pd.DataFrame({"speed": x[:, 0], "place": text, "depth": x[:, 1]})
    return text_table(frame, y, 20_000)


def text_table(frame: Any, y: np.ndarray, n: int) -> Table:
    """The first n rows to train, the others to test."""
    return Table(frame[:n], y[:n], frame[n:], y[n:], "text")


def column(name: str, target: int) -> Loader:
    """A column of X from the other columns, a random tenth held out."""

    def read(seed: int) -> Table:
        X = np.load(folder() / f"{name}.npz")["X"].astype(float)
        return Table(*tenth(np.delete(X, target, axis=1), X[:, target], seed))

    return read


def water(seed: int) -> Table:
    """The water in concrete from its other parts, its age and its strength."""
    data = np.load(folder() / "concrete.npz")
    X = np.column_stack([data["X"], data["y"]]).astype(float)
    return Table(*tenth(np.delete(X, 3, axis=1), X[:, 3], seed))


def climate_model(seed: int) -> Table:
    """Annual means of 40 years on a grid, a random tenth of the cells held out."""
    import xarray as xr

    with xr.open_dataset(folder() / "A1B_north_america.nc", decode_times=False) as data:
        values = data["air_temperature"][-40:].load()
    frame = values.to_series().reset_index()
    X = frame[["time", "latitude", "longitude"]].to_numpy(float)
    return Table(*tenth(X, frame["air_temperature"].to_numpy(float), seed))


def bundled(name: str) -> Loader:
    """A set that scikit-learn brings along, a third held out."""

    def read(seed: int) -> Table:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        kind = "numbers" if name == "diabetes" else "classes"
        return part_of(X[:, X.std(axis=0) > 0], y, seed, 3, kind)

    return read


def part_of(X: np.ndarray, y: np.ndarray, seed: int, share: int, kind: str = "numbers") -> Table:
    """A random part, one row of so many, is the test part."""
    order = np.random.default_rng(seed).permutation(len(y))
    test, rest = np.split(order, [len(y) // share])
    return Table(X[rest], y[rest], X[test], y[test], kind)


def made(function: Callable[[np.random.Generator], tuple[Any, Any]], kind: str) -> Loader:
    """Rows of a function, half of them held out."""
    return lambda seed: part_of(*function(np.random.default_rng(1000 + seed)), seed, 2, kind)


def steps(rng: np.random.Generator) -> tuple[Any, Any]:
    """Jumps at values of single inputs, and of two together."""
    X = rng.uniform(size=(8000, 6))
    f = 2.0 * (X[:, 0] > 0.3) + 3 * (X[:, 1] > 0.7) * (X[:, 2] < 0.5) + np.floor(4 * X[:, 3])
    return X, f + 0.3 * rng.normal(size=len(X))


def additive(rng: np.random.Generator) -> tuple[Any, Any]:
    """Twelve sines of one input each, and eight inputs that say nothing."""
    X = rng.normal(size=(6000, 20))
    f = sum(np.sin(0.6 * (j + 1) * X[:, j]) / (1 + 0.2 * j) for j in range(12))
    return X, f + 0.5 * rng.normal(size=len(X))


def products(rng: np.random.Generator) -> tuple[Any, Any]:
    """Four of 30 inputs, of which two have no mean effect, alone or in pairs."""
    X = rng.uniform(-1, 1, size=(6000, 30))
    f = np.sin(4 * X[:, 3]) * X[:, 11]
    f *= 1 + 3 * np.cos(2 * X[:, 20]) * np.sin(2 * X[:, 27])
    return X, f + 0.1 * f.std() * rng.normal(size=len(X))


def few_of_many(rng: np.random.Generator) -> tuple[Any, Any]:
    """Three of 60 inputs."""
    X = rng.normal(size=(5000, 60))
    f = np.sin(2 * X[:, 3]) * X[:, 17] + X[:, 41] ** 2
    return X, f + 0.3 * rng.normal(size=len(X))


def unequal_noise(rng: np.random.Generator) -> tuple[Any, Any]:
    """Noise whose deviation an input multiplies by up to e⁴."""
    X = rng.uniform(-2, 2, (5000, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + np.exp(X[:, 2] - 1) * rng.normal(size=len(X))


def counts(rng: np.random.Generator) -> tuple[Any, Any]:
    """Poisson counts of a mean that varies by some hundred."""
    X = rng.normal(size=(6000, 8))
    return X, rng.poisson(np.exp(0.5 * X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * X[:, 2])) * 1.0


def places_and_days(rng: np.random.Generator) -> tuple[Any, Any]:
    """A map, a season and a slope."""
    X = np.column_stack([rng.normal([48, 8], [3, 4], (12_000, 2)), rng.integers(0, 365, 12_000)])
    f = 2 * np.sin(2 * X[:, 0]) * np.cos(1.5 * X[:, 1]) + 3 * np.sin(2 * np.pi * X[:, 2] / 365)
    return X, f + 0.1 * X[:, 0] + 0.4 * rng.normal(size=len(X))


def noise_alone(rng: np.random.Generator) -> tuple[Any, Any]:
    """Nothing to be found."""
    return rng.normal(size=(2000, 8)), rng.normal(size=2000)


def classes_of_a_line(rng: np.random.Generator) -> tuple[Any, Any]:
    """Four classes, whose log-odds are linear in 30 inputs."""
    X = rng.normal(size=(1500, 30))
    scores = X @ rng.normal(size=(30, 4))
    return X, (scores + 2 * rng.gumbel(size=scores.shape)).argmax(axis=1)


def rare_class(rng: np.random.Generator) -> tuple[Any, Any]:
    """One row of twenty, by a product of two inputs."""
    X = rng.normal(size=(12_000, 8))
    p = 1 / (1 + np.exp(4.5 - 1.5 * X[:, 0] * X[:, 1] - X[:, 2]))
    return X, (rng.random(len(X)) < p).astype(int)


# Models: each is a function that fits a table.


def bare(table: Table) -> Fit:
    """Nothing is set but names."""
    if table.kind == "classes":
        classifier = KernelClassifier().fit(table.X, table.y)
        asked = table.X_test
        return Fit(lambda: (classifier.predict(asked), classifier.predict_proba(asked)))
    hidden: dict[str, Any] = {"missing_rows": "drop"} if table.kind == "cube" else {}
    model = GaussianProcessRegressor(**hidden).fit(table.X, table.y, **table.names)
    choice = str(getattr(model, "choice_", ""))
    return Fit(lambda: model.predict(table.X_test, return_std=True, noise=True), choice)


def fitted(model: Any, table: Table) -> Fit:
    """A model with scikit-learn's methods, fitted."""
    model.fit(table.X, table.y)
    if table.kind != "classes":
        return Fit(lambda: (model.predict(table.X_test), None))

    def predict() -> tuple[Any, Any]:
        probability = model.predict_proba(table.X_test)
        return model.classes_[probability.argmax(axis=1)], probability

    return Fit(predict)


def over_spread(table: Table) -> Table:
    """The same table, inputs over their standard deviation in the training rows."""
    spread = table.X.std(axis=0)
    spread[spread == 0] = 1.0
    return replace(table, X=table.X / spread, X_test=table.X_test / spread)


def line(table: Table) -> Fit:
    """Ridge regression, its penalty by leave-one-out errors; for classes, logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = LogisticRegression(max_iter=1000) if table.kind == "classes" else RidgeCV(PENALTIES)
    return fitted(make_pipeline(StandardScaler(), last), table)


def nearest(table: Table) -> Fit:
    """The mean of the 5 nearest rows; for classes, their shares."""
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    model = KNeighborsClassifier(5) if table.kind == "classes" else KNeighborsRegressor(5)
    return fitted(model, over_spread(table))


def lightgbm() -> Any:
    """The package, which is no dependency of this project."""
    try:
        import lightgbm as package
    except ImportError:
        raise SystemExit(
            "LightGBM is not installed. It is one of the rivals. Install it: pip install lightgbm; "
            "or leave out --rivals."
        ) from None
    return package


def boosted(table: Table, n_trees: int) -> Fit:
    """So many trees of LightGBM; strings are its categories."""
    package = lightgbm()
    kind = package.LGBMClassifier if table.kind == "classes" else package.LGBMRegressor
    model = kind(n_estimators=n_trees, learning_rate=0.05, num_leaves=63, n_jobs=1, verbose=-1)
    return fitted(model, with_categories(table) if table.kind == "text" else table)


def with_categories(table: Table) -> Table:
    """The same table, strings as categories of the training rows."""
    X, X_test = table.X.copy(), table.X_test.copy()
    for name in X.select_dtypes(exclude="number"):
        X[name] = X[name].astype("category")
        X_test[name] = X_test[name].astype(X[name].dtype)
    return replace(table, X=X, X_test=X_test)


def encoded(table: Table, encoder: Any) -> Fit:
    """Ridge regression on numbers and encoded strings, its penalty by five folds."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    numbers = make_column_selector(dtype_include="number")
    text = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer((StandardScaler(), numbers), (encoder, text))
    steps = make_pipeline(columns, Ridge())
    return fitted(GridSearchCV(steps, {"ridge__alpha": PENALTIES[3:-3]}), table)


def one_hot(table: Table) -> Fit:
    """One column of 0 and 1 for each level."""
    from sklearn.preprocessing import OneHotEncoder

    return encoded(table, OneHotEncoder(handle_unknown="ignore"))


def target_encoder(table: Table) -> Fit:
    """The mean of the target at each level, left out of its own fold and shrunk."""
    from sklearn.preprocessing import TargetEncoder

    return encoded(table, TargetEncoder())


def exact_process(table: Table) -> Fit:
    """scikit-learn's process: of four kernels, the one of greatest likelihood."""
    from sklearn import gaussian_process
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    table = over_spread(table)
    ones, bounds = np.ones(table.X.shape[1]), (1e-3, 1e3)
    fits = [
        gaussian_process.GaussianProcessRegressor(
            ConstantKernel(1.0, (1e-3, 1e4)) * kernel + WhiteKernel(0.1, (1e-10, 1e2)),
            normalize_y=True,
            n_restarts_optimizer=2,
            random_state=0,
        ).fit(table.X, table.y)
        for kernel in (RBF(ones, bounds), *(Matern(ones, bounds, nu) for nu in (0.5, 1.5, 2.5)))
    ]
    best = max(fits, key=lambda model: model.log_marginal_likelihood_value_)
    return Fit(lambda: best.predict(table.X_test, return_std=True), str(best.kernel_))


def between_times(table: Table) -> Fit:
    """The mean of the nearest times before and after at which the same cell is not hidden."""
    import pandas as pd

    values = table.X["air"].values
    cells = pd.DataFrame(values.reshape(len(values), -1))  # a column for each cell
    before, after = cells.ffill(), cells.bfill()
    mean = (before.fillna(after) + after.fillna(before)) / 2
    found = mean.to_numpy().reshape(values.shape)[np.isnan(values)]
    return Fit(lambda: (found, None))


MODELS: dict[str, Callable[[Table], Fit]] = {
    "bare": bare,
    "line": line,
    "nearest": nearest,
    "lgbm500": partial(boosted, n_trees=500),
    "lgbm2000": partial(boosted, n_trees=2000),
    "one_hot": one_hot,
    "target_encoder": target_encoder,
    "exact_process": exact_process,
    "between_times": between_times,
}

SETS: dict[str, Task] = {
    "argo2016": Task(of_local("argo2016")),
    "noaa_tmax_1990_93": Task(of_local("noaa_tmax")),
    "baja_bathymetry": Task(of_local("baja_bathymetry")),
    "kin40k": Task(uci("kin40k")),
    "protein": Task(uci("protein")),
    "elevators": Task(uci("elevators")),
    "keggdirected": Task(uci("keggdirected")),
    "bike without its parts": Task(bike_without_parts),
    "california_housing": Task(whole_set("california_housing")),
    "cpu_act": Task(whole_set("cpu_act"), n_seeds=3),
    "hl_kin8nm": Task(uci("hl_kin8nm"), n_seeds=3),
    "hl_power_plant": Task(uci("hl_power_plant"), n_seeds=3),
    "hl_concrete": Task(uci("hl_concrete"), n_seeds=3),
    "hl_energy": Task(uci("hl_energy"), n_seeds=3),
    "airfoil": Task(uci("airfoil"), n_seeds=3),
    "wine": Task(uci("wine"), n_seeds=3),
    "yacht": Task(uci("yacht"), n_seeds=3),
    "heaton_sim": Task(of_local("heaton_sim", unit=1.0)),
    "air_temperature.zarr": Task(air, ("between_times",)),
    "letter": Task(classes("letter"), CLASSES),
    "elec2": Task(whole_set("elec2", "classes"), CLASSES),
    "higgs_sample": Task(classes("higgs_sample"), CLASSES),
    "adult_a9a": Task(classes("adult_a9a"), CLASSES),
    "400 rows": Task(eight_inputs, (*NUMBERS, "exact_process"), n_seeds=3),
    "20 rows": Task(twenty_rows, ("exact_process",), n_seeds=3),
    "six points": Task(six_points(at_them=False), ("exact_process",)),
    "six points (at them)": Task(six_points(at_them=True), ("exact_process",)),
    "three levels": Task(three_levels, TEXT, n_seeds=3),
    "2000 levels": Task(many_levels, TEXT),
}

UNSEEN: dict[str, Task] = {
    "magic.gamma: length": Task(column("ad_magic.gamma", 0)),
    "mammography: 0": Task(column("ad_mammography", 0)),
    "pendigits: 0": Task(column("ad_pendigits", 0), n_seeds=3),
    "satimage-2: 16": Task(column("ad_satimage-2", 16), n_seeds=3),
    "cardio: 19": Task(column("ad_cardio", 19), n_seeds=3),
    "cpu_act: 9": Task(column("cpu_act", 9), n_seeds=3),
    "shuttle: 4": Task(column("ad_shuttle", 4)),
    "letter: 9": Task(column("letter", 9)),
    "elec2: nswdemand": Task(column("elec2", 2)),
    "climate model": Task(climate_model),
    "concrete: water": Task(water, n_seeds=3),
    "steps": Task(made(steps, "numbers")),
    "additive": Task(made(additive, "numbers")),
    "few of many": Task(made(few_of_many, "numbers")),
    "products": Task(made(products, "numbers"), n_seeds=3),
    "unequal noise": Task(made(unequal_noise, "numbers")),
    "counts": Task(made(counts, "numbers")),
    "places and days": Task(made(places_and_days, "numbers")),
    "noise alone": Task(made(noise_alone, "numbers")),
    "diabetes": Task(bundled("diabetes"), n_seeds=3),
    "breast_cancer": Task(bundled("breast_cancer"), CLASSES, n_seeds=3),
    "wine (classes)": Task(bundled("wine"), CLASSES, n_seeds=3),
    "digits": Task(bundled("digits"), CLASSES),
    "classes of a line": Task(made(classes_of_a_line, "classes"), CLASSES, n_seeds=3),
    "rare class": Task(made(rare_class, "classes"), CLASSES),
}


def measure(name: str, seed: int, model: str) -> Line:
    """One line of the table, in a process of its own."""
    table = (SETS | UNSEEN)[name].load(seed)
    if model.startswith("lgbm"):
        lightgbm()  # its import does not count
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            started = time.process_time()
            fit = MODELS[model](table)
            between, in_fit = time.process_time(), len(caught)
            predicted = fit.predict()
            ended = time.process_time()
        except (RffStreamError, ValueError) as refusal:
            return Line(name, seed, model, said=f"refused: {one_line(refusal)}")
    return Line(
        name,
        seed,
        model,
        **scores(table, *predicted),
        fit_s=between - started,
        predict_s=ended - between,
        peak_mib=peak_bytes() / 2**20,
        fit_warnings=in_fit,
        predict_warnings=len(caught) - in_fit,
        said=" | ".join(one_line(each.message) for each in caught),
        choice=one_line(fit.choice),
    )


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def scores(table: Table, first: Any, second: Any) -> dict[str, float]:
    """Figures of predicted means and standard deviations, or of labels and probabilities."""
    if table.kind == "classes":
        from sklearn.metrics import log_loss

        wrong = np.mean(np.asarray(first) != table.y_test)
        return {"error": float(wrong), "log_loss": float(log_loss(table.y_test, second))}
    error = np.asarray(first).reshape(table.y_test.shape) - table.y_test
    found = {
        "rmse": np.sqrt(np.mean(error**2)) / table.scale,
        "mae": np.mean(abs(error)) / table.scale,
    }
    if second is not None:
        found["cover"] = np.mean(abs(error) < 1.96 * np.asarray(second).reshape(error.shape))
    return {key: float(value) for key, value in found.items()}


def apart(name: str, seed: int, model: str) -> Line:
    """The line, from a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measure, name, seed, model).result()
        except BrokenProcessPool:
            return Line(name, seed, model, said="its process was killed")


def append(path: Path | None, line: Line) -> None:
    """One more line of a file of tab-separated values."""
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Line)], delimiter="\t")
        if new:
            writer.writeheader()
        writer.writerow(asdict(line))


def kept_lines(path: Path | None) -> dict[tuple[str, int, str], Line]:
    """Lines of fits that ended, from such a file."""
    if path is None or not path.exists():
        return {}
    types: dict[str, type] = {"str": str, "int": int, "float": float}
    read = {each.name: types[str(each.type)] for each in fields(Line)}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    lines = [Line(**{key: read[key](text) for key, text in row.items()}) for row in rows]
    return {(line.name, line.seed, line.model): line for line in lines if line.fit_s >= 0}


def line_of(name: str, seed: int, model: str, cache: Path | None) -> Line:
    """A line of ours, fitted now; of a rival, from the cache if it is there."""
    if model == "bare":
        return apart(name, seed, model)
    line = kept_lines(cache).get((name, seed, model))
    if line is None:
        line = apart(name, seed, model)
        append(cache, line)
    return line


def mean_of(lines: list[Line], figure: str) -> float:
    """The mean of a figure over seeds."""
    return float(np.mean([getattr(line, figure) for line in lines]))


def beside_best(name: str, lines: list[Line]) -> list[str]:
    """Lines of the last table: our figure over that of the best rival, means over seeds."""
    found = []
    for figure in ("rmse", "error", "log_loss"):
        means = {
            model: mean_of([line for line in lines if line.model == model], figure)
            for model in dict.fromkeys(line.model for line in lines)
        }
        ours = means.pop("bare", np.nan)
        rivals = {model: mean for model, mean in means.items() if not np.isnan(mean)}
        if rivals:
            best = min(rivals, key=lambda model: rivals[model])
            text = f"{name:26} {figure:8} {ours:9.4f} {rivals[best]:10.4f} {best:14}"
            found.append(f"{text} {ours / rivals[best]:6.3f}")
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", help="names, with commas; by default all")
    parser.add_argument("--seeds", help="by default 0; 0,1,2 for small sets")
    parser.add_argument("--unseen", action="store_true", help="tables that nothing is chosen on")
    parser.add_argument("--rivals", action="store_true", help="the rivals, too")
    parser.add_argument("--only-rivals", action="store_true")
    parser.add_argument("--tsv", type=Path, help="add the lines to this file")
    parser.add_argument("--cache", type=Path, help="rivals' lines: read where known, else added")
    asked = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    names = asked.sets.split(",") if asked.sets else list(UNSEEN if asked.unseen else SETS)
    ours = () if asked.only_rivals else ("bare",)
    beside = asked.rivals or asked.only_rivals
    if beside:
        lightgbm()  # absent: said before anything runs
    print(HEADER)
    last = []
    for name in names:
        task = (SETS | UNSEEN)[name]
        try:
            task.load(0)
        except FileNotFoundError as absent:
            print(f"{name:26} skipped: {absent}", flush=True)
            continue
        seeds = map(int, asked.seeds.split(",")) if asked.seeds else range(task.n_seeds)
        models = (*ours, *(task.rivals if beside else ()))
        lines = []
        for seed, model in product(seeds, models):
            lines.append(line_of(name, seed, model, asked.cache))
            append(asked.tsv, lines[-1])
            print(lines[-1], flush=True)
        last += beside_best(name, lines)
    if last:
        print(f"\n{'set':26} {'figure':8} {'bare':>9} {'best rival':>10} {'':14} {'ratio':>6}")
        print("\n".join(last))


if __name__ == "__main__":
    main()
