"""What a metric is worth: none, where left-out rows prefer it, and always; on real and made rows.

    python tests/accuracy/metric.py [--sets kin40k,protein] [--seeds 0] [--states 0,1,2]
        [--metrics none,auto] [--cache rivals.tsv]
    python tests/accuracy/metric.py --made 10000,100000 [--seeds 0,1,2]
    python tests/accuracy/metric.py --many 100,300,1000
    python tests/accuracy/metric.py --noise 200

Real rows are those of ``bare.py``, split in the same way, one BLAS thread and a process for each
fit: ``GaussianProcessRegressor(metric=…)`` on raw columns with nothing else set, and LightGBM with
2,000 trees (from ``--cache`` where it is there). RMSE is in standard deviations of y over the
training rows; cover is the share of held-out values inside the 95 % interval of a new observation.
A seed is a split, and a state a ``random_state``: of one split, states tell what chance does alone.
Classes by ``KernelClassifier(metric=…)``, with their share of errors and log-loss; ``--sets mnist``
has all 784 pixels.

``--metrics auto,M,step``: a second fit whose metric all rows gave, M^½ or a step of the first.

Made rows: y = sin(2u) + v²/2 + ε, u and v two orthogonal combinations of 20 inputs, ε of .2
of the deviation. The largest principal angle to the truth is that of the metric which the pilot
found, and that of M = mean ∇f∇fᵀ of the fit over all rows (``rs.inspect``): both by their two
leading eigenvectors; "step" is a fit in the directions that ``rs.inspect.metric_step`` moved by all
rows, with the standard error that it tells. A perfect answer leaves the noise.

Many inputs: 4,000 rows of normal numbers, noise .2, and sin(u) + v|v|/2 of two combinations of all
inputs, sin(2x₀) + x₁x₂ + |x₃| + x₄, or nothing but noise of deviation 1.

Noise alone: how often a metric is taken for 400 rows of 5 inputs that tell nothing of y.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import bare
import numpy as np
import relevance
from scipy.linalg import subspace_angles

import rff_stream as rs
from rff_stream.features import Projection

N_INPUTS, NOISE, N_TEST = 20, 0.2, 4000
SETS = (
    "kin40k", "elevators", "protein", "keggdirected", "hl_kin8nm", "cpu_act",
    "california_housing", "bike without its parts", "hl_power_plant", "four of 32 inputs",
    "letter", "higgs_sample", "elec2",
)  # fmt: skip


def few_inputs(seed: int) -> bare.Table:
    """The rows of relevance.py: four of 32 inputs matter, and none is combined with another."""
    X, y = relevance.rows(7000 + relevance.N_TEST, seed)
    return bare.Table(X[:7000], y[:7000], X[7000:], y[7000:])


def thirty_inputs(seed: int) -> bare.Table:
    """40,000 made rows of 30 inputs, for the price of a metric."""
    X, y, _ = made(40_000 + N_TEST, seed, 30)
    return bare.Table(X[:40_000], y[:40_000], X[40_000:], y[40_000:])


def two_hundred_inputs(seed: int) -> bare.Table:
    """40,000 made rows of 200 inputs: more directions than a pilot of 4,000 rows can tell."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((44_000, 200))
    y = function_of(X, "two directions") + NOISE * rng.standard_normal(44_000)
    return bare.Table(X[:40_000], y[:40_000], X[40_000:], y[40_000:])


def with_metric(table: bare.Table, metric: str | None, state: int) -> bare.Fit:
    """The bare call with a metric, and what the search says."""
    if table.kind == "classes":
        sorter = rs.KernelClassifier(metric=metric, random_state=state)
        sorter.fit(table.X, table.y)
        asked = table.X_test
        return bare.Fit(
            lambda: (sorter.predict(asked), sorter.predict_proba(asked)), str(sorter.choice_)
        )
    passes = isinstance(metric, str) and metric.startswith(SECOND)
    first = "auto" if passes else metric
    model = rs.GaussianProcessRegressor(metric=first, random_state=state).fit(table.X, table.y)
    if passes:
        model.set_params(metric=second_metric(model, table, metric)).fit(table.X, table.y)
    choice = str(getattr(model, "choice_", ""))
    return bare.Fit(lambda: model.predict(table.X_test, return_std=True, noise=True), choice)


def second_metric(model: rs.GaussianProcessRegressor, table: bare.Table, name: str) -> np.ndarray:
    """A (d, d) for a second fit, from all rows: M^½, or the metric of the first moved by a step."""
    if name == f"{SECOND} step":
        return np.asarray(rs.inspect.metric_step(model, table.X, table.y).matrix)
    M = rs.inspect.gradient_outer_product(model, table.X).matrix()
    spread = np.std(table.X, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    values, vectors = np.linalg.eigh(M * np.outer(spread, spread))
    kept = values > 1e-6 * values[-1]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]) / spread[:, None])


def digits(seed: int) -> bare.Table:
    """MNIST: 784 pixels, no principal components."""
    data = np.load(bare.folder() / "mnist.npz")
    own = (data[name] for name in ("X", "y", "X_test", "y_test"))
    X, y, X_test, y_test = own
    return bare.Table(X / 255, y, X_test / 255, y_test, "classes")


SECOND = "second"
METRICS: dict[str, str | None] = {"none": None, "auto": "auto", "full": "full"}
SECONDS = {"M": SECOND, "step": f"{SECOND} step"}
bare.SETS["four of 32 inputs"] = bare.Task(few_inputs)
bare.SETS["mnist"] = bare.Task(digits, bare.CLASSES)
bare.SETS["two of 30 directions"] = bare.Task(thirty_inputs)
bare.SETS["two of 200 directions"] = bare.Task(two_hundred_inputs)
STATES = range(10)
bare.MODELS |= {
    f"metric {key} {state}": partial(with_metric, metric=metric, state=state)
    for (key, metric), state in product((METRICS | SECONDS).items(), STATES)
}


def real_rows(asked: argparse.Namespace) -> None:
    """A line for each set, seed and metric, and one of LightGBM."""
    print(bare.HEADER)
    metrics = asked.metrics.split(",") if asked.metrics else METRICS
    for name in asked.sets.split(",") if asked.sets else SETS:
        for seed in map(int, asked.seeds.split(",")):
            for state, metric in product(asked.states.split(","), metrics):
                line = bare.apart(name, seed, f"metric {metric} {state}")
                bare.append(asked.tsv, line)
                print(line, line.choice[:60].partition("(")[0], flush=True)
            print(bare.line_of(name, seed, "lgbm2000", asked.cache), flush=True)


def made(n: int, seed: int, d: int = N_INPUTS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (n, d), targets (n,) and the two directions (d, 2)."""
    rng = np.random.default_rng(seed)
    truth = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    X = rng.standard_normal((n, d))
    u, v = (X @ truth).T
    signal = np.sin(2 * u) + 0.5 * v**2
    return X, signal / signal.std() + NOISE * rng.standard_normal(n), truth


def angle(matrix: np.ndarray, truth: np.ndarray) -> float:
    """Largest principal angle in degrees of the two leading eigenvectors to the truth."""
    leading = np.linalg.eigh(matrix)[1][:, -2:]
    return float(np.degrees(subspace_angles(leading, truth).max()))


def made_rows(asked: argparse.Namespace) -> None:
    """Angles and errors for each number of rows."""
    print(
        f"{'rows, seed':>14} {'metric':>7} {'angle of it':>12} {'of M':>7} {'RMSE/noise':>11} "
        f"{'inside':>7} CPU s"
    )
    for n in map(int, asked.made.split(",")):
        for seed in map(int, asked.seeds.split(",")):
            X, y, truth = made(n + N_TEST, seed)
            along = X @ truth
            low, high = along[:n].min(axis=0), along[:n].max(axis=0)
            inside = ((along[n:] >= low) & (along[n:] <= high)).all(axis=1)
            for name in (asked.metrics or "none,auto,full,auto step").split(","):
                metric, words = METRICS[name.removesuffix(" step")], ""
                started = time.process_time()
                model = rs.GaussianProcessRegressor(metric=metric, random_state=seed)
                model.fit(X[:n], y[:n])
                if name.endswith("step"):
                    step = rs.inspect.metric_step(model, X[:n], y[:n])
                    model.set_params(metric=step.matrix).fit(X[:n], y[:n])
                    error = step.standard_errors.max()
                    words = f" k = {step.n_directions}, standard error {error:.3f}"
                seconds = time.process_time() - started
                squares = ((model.predict(X[n:]) - y[n:]) / NOISE) ** 2
                error, near = np.sqrt(squares.mean()), np.sqrt(squares[inside].mean())
                encoding = getattr(model.features_, "encoding", None)
                found = np.nan
                if isinstance(encoding, Projection):
                    found = angle(encoding.matrix @ encoding.matrix.T, truth)
                M = rs.inspect.gradient_outer_product(model, X[:n]).matrix()
                print(
                    f"{n:>10}, {seed:2} {name:>9} {found:10.3f} {angle(M, truth):7.3f} "
                    f"{error:11.3f} {near:7.3f} {seconds:5.1f}{words}",
                    flush=True,
                )


def function_of(X: np.ndarray, name: str) -> np.ndarray:
    """A function of many inputs."""
    if name == "five inputs":
        return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + X[:, 4]
    if name == "nothing":
        return np.zeros(len(X))
    truth = np.linalg.qr(np.random.default_rng(99).standard_normal((X.shape[1], 2)))[0]
    u, v = (X @ truth).T
    return np.sin(u) + v * np.abs(v) / 2


def many_inputs(asked: argparse.Namespace) -> None:
    """Errors of the function itself for each number of inputs."""
    print("inputs, function            std   RMSE  cover  CPU s  foreseen  taken")
    for d in map(int, asked.many.split(",")):
        for name in ("two directions", "five inputs", "nothing"):
            rng = np.random.default_rng(0)
            X = rng.standard_normal((6000, d))
            f = function_of(X, name)
            y = f + (NOISE if f.any() else 1.0) * rng.standard_normal(len(f))
            started = time.process_time()
            model = rs.GaussianProcessRegressor(random_state=0).fit(X[:4000], y[:4000])
            seconds = time.process_time() - started
            mean, std = model.predict(X[4000:], return_std=True)
            error = np.sqrt(np.mean((mean - f[4000:]) ** 2))
            cover = np.mean(np.abs(mean - y[4000:]) < 1.96 * std)
            choice = model.choice_
            print(
                f"{d:6}, {name:16} {f.std():6.3f} {error:6.3f} {cover:6.3f} {seconds:6.1f} "
                f"{choice.seconds:9.1f}  {choice.taken}",
                flush=True,
            )


def noise_alone(count: int) -> None:
    """How often a metric is taken where there is nothing to learn."""
    taken, slopes = 0, []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((400, 5)), rng.standard_normal(400)
        model = rs.GaussianProcessRegressor(random_state=seed).fit(X, y)
        taken += any("metric" in name for name in model.choice_.taken_names)
        M = rs.inspect.gradient_outer_product(model).standardised()
        slopes.append(np.trace(M) / y.var())
    middle, high = np.quantile(slopes, (0.5, 0.95))
    print(f"a metric is taken in {taken} of {count} fits of noise")
    print(f"mean squared slope over Var y: median {middle:.2g}, 95 % below {high:.2g}")


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", help="names, with commas; by default all")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--made", help="numbers of rows, with commas")
    parser.add_argument("--metrics", help="names, with commas; of made rows 'auto step', too")
    parser.add_argument("--states", default="0", help="random states of each fit, with commas")
    parser.add_argument("--many", help="numbers of inputs, with commas")
    parser.add_argument("--noise", type=int, help="how many fits of noise alone")
    parser.add_argument("--tsv", type=Path, help="add the lines to this file")
    parser.add_argument("--cache", type=Path, help="rivals' lines: read where known, else added")
    asked = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    if asked.made or asked.noise or asked.many:
        warnings.simplefilter("ignore")
    if asked.made:
        made_rows(asked)
    elif asked.many:
        many_inputs(asked)
    elif asked.noise:
        noise_alone(asked.noise)
    else:
        real_rows(asked)


if __name__ == "__main__":
    main()
