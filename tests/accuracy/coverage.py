"""Does every interval, error and level that the package states cover what it says?

    python tests/accuracy/coverage.py [--seeds 200] [--only interval,novelty]

Every line is one claim on data where the truth is known, over so many seeds (every second one
where a fit is dear): the share that is claimed, the share that is seen, and the standard error of
the latter between seeds; about 8 CPU minutes. A line ends in
MISSES where the share seen is off by more than 3 standard errors and .02 on the side that
misleads: an interval that covers too little, a test that rejects too often. Lines "as a pair" may
miss on either side.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.signal import lfilter

import rff_stream as rs
from rff_stream import leaf_layout as layout
from rff_stream.answers.penalty_selection import cross_validate
from rff_stream.answers.ridge import ridge
from rff_stream.answers.sensitivity import sobol_indices
from rff_stream.features import FourierFeatures
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridAccumulator, grid_row
from rff_stream.grid.selection import grid_evidence
from rff_stream.grid.system import GridSystem
from rff_stream.kernels import Gaussian, approximation_error
from rff_stream.moments import total

Found = float
"""Share of one seed's chances that came true, in [0, 1]."""


@dataclass(frozen=True)
class Claim:
    """What is said, how often it should be true, and whether more or less misleads."""

    words: str
    share: float
    seen: Callable[[int], Found]
    misleads: str = "less"  # "less", "more" or "both"
    every: int = 1  # of so many seeds one is taken, where a seed is dear


def smooth(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) * x[:, 1]


def process_rows(n: int, noise: float, seed: int) -> tuple[Any, Any, Any, Any, np.ndarray]:
    """Rows of a Gaussian process of length-scale 1 in 2 inputs; n with noise, 200 without."""
    rng = np.random.default_rng(seed)
    features = FourierFeatures.sample(Gaussian(1.0), 2, 1000, rng=seed + 10_000, dtype="float64")
    x = rng.uniform(-2, 2, (n + 200, 2))
    f = features(x) @ rng.normal(size=1000) * np.sqrt(features.prior()[0])
    y = f + noise * rng.normal(size=len(f))
    return x[:n], y[:n], x[n:], y[n:], f[n:]


def inside(values: Any, low: Any, high: Any) -> Found:
    return float(np.mean((values >= low) & (values <= high)))


# ------------------------------------------------------------------------- Gaussian processes


def process(n: int, *, noise: bool, **choices: Any) -> Callable[[int], Found]:
    """±1.96 standard deviations of a new y, or of f."""

    def seen(seed: int) -> Found:
        x, y, x_new, y_new, f_new = process_rows(n, 0.3, seed)
        given = {"n_components": 128, "random_state": seed, "progress": False} | choices
        model = rs.GaussianProcessRegressor(**given).fit(x, y)
        mean, std = model.predict(x_new, return_std=True, noise=noise)
        return inside(y_new if noise else f_new, mean - 1.96 * std, mean + 1.96 * std)

    return seen


def functions(n: int) -> Callable[[int], Found]:
    """The middle 95 % of 200 drawn functions."""

    def seen(seed: int) -> Found:
        x, y, x_new, _, f_new = process_rows(n, 0.3, seed)
        model = rs.GaussianProcessRegressor(n_components=128, random_state=seed, progress=False)
        drawn = model.fit(x, y).sample_y(x_new, 200, random_state=seed)
        return inside(f_new, *np.quantile(drawn, [0.025, 0.975], axis=1))

    return seen


def heavy(n: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Noise of a t distribution of 3 degrees of freedom that grows with the first input."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n + 200, 2))
    y = smooth(x) + 0.2 * np.exp(x[:, 0] / 2) * rng.standard_t(3, len(x))
    return x[:n], y[:n], x[n:], y[n:]


def interval(n: int, coverage: float, r: int = 128, **choices: Any) -> Callable[[int], Found]:
    """predict_interval on rows that the model gets wrong."""

    def seen(seed: int) -> Found:
        x, y, x_new, y_new = heavy(n, seed)
        given = {"n_components": r, "random_state": seed, "progress": False} | choices
        model = rs.GaussianProcessRegressor(**given).fit(x, y)
        return inside(y_new, *model.predict_interval(x_new, coverage))

    return seen


# ------------------------------------------------------------------------------ errors of errors


def folds_error(seed: int) -> Found:
    """Score of a fixed α ± t standard errors over 5 folds, beside the error on 20,000 new rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (2000 + 20_000, 2))
    y = smooth(x) + 0.3 * rng.normal(size=len(x))
    features = FourierFeatures.sample(Gaussian(1.0), 2, 64, rng=seed)
    alphas = np.array([0.1])
    folds = rs.collect(features, x[:2000], y[:2000], folds=5, progress=False)
    found = cross_validate(folds, alphas)
    solved = ridge(total(list(folds.values())), 0.1)
    truth = np.mean((y[2000:] - solved.predict(features(x[2000:]))[:, 0]) ** 2) / found.scale[0]
    score, error = found.best.score, found.best.standard_error
    half = stats.t.ppf(0.975, 4) * error
    return float(abs(score - truth) <= half)


def leaves(noise: str) -> Callable[[int], Found]:
    """Error on leaves held out, with the interval of the state, beside that of all other rows."""

    def seen(seed: int) -> Found:
        rng = np.random.default_rng(seed)
        n, run = 30_000, 1000
        x = rng.normal(size=(n, 2))
        shared = np.repeat(rng.normal(size=n // run), run)
        spread = (
            np.exp(np.repeat(0.5 * rng.normal(size=n // run), run)) if noise == "uneven" else 1.0
        )
        y = np.sin(2 * x[:, 0]) + 0.3 * spread * (shared + rng.normal(size=n))
        model = rs.KernelRidge(
            length_scale=1.0, n_components=48, alpha=0.1, random_state=seed, progress=False,
            sums="float64",
        )  # fmt: skip
        state = next(iter(model.stream(x, y, every=0.5)))
        square = np.exp(0.5) if noise == "uneven" else 1.0  # E spread²
        z = rng.normal(size=(20_000, 2))
        own = np.mean((np.sin(2 * z[:, 0]) - model.predict(z)) ** 2)
        truth = np.sqrt(2 * 0.09 * square + own)
        low, high = state.interval(0.95)
        return inside(truth, low[0], high[0])

    return seen


def settled(seed: int) -> Found:
    """After fit(until=.02), would all other rows have won less than 2 %?"""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40_000, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.5 * rng.normal(size=len(x))
    given: dict[str, Any] = {
        "length_scale": 0.6, "n_components": 128, "alpha": 0.1, "random_state": seed,
        "progress": False, "sums": "float64",
    }  # fmt: skip
    early = rs.KernelRidge(**given).fit(x, y, until=0.02)
    whole = rs.KernelRidge(**given).fit(x, y)
    z = rng.normal(size=(20_000, 2))
    truth = np.sin(3 * z[:, 0]) * z[:, 1]
    errors = [np.sqrt(0.25 + np.mean((truth - m.predict(z)) ** 2)) for m in (early, whole)]
    return float(errors[0] <= 1.02 * errors[1])


def indices(seed: int) -> Found:
    """Sobol' indices of x₀ + 2x₁ + x₀x₁ over uniform inputs ± t standard errors of 8 replicates."""
    x = np.repeat((np.arange(4096)[:, None] + 0.5) / 2048 - 1, 2, axis=1)  # taken as independent
    found = sobol_indices(
        lambda z: z[:, :1] + 2 * z[:, 1:] + z[:, :1] * z[:, 1:], x, size=2048, random_state=seed
    )
    truth = np.array([[1 / 3], [4 / 3]]) / (16 / 9)
    half = stats.t.ppf(0.975, 7) * np.concatenate([found.first_error, found.total_error])
    rest = np.concatenate([found.first - truth, found.total - truth - 1 / 16])
    return float(np.mean(np.abs(rest) <= half))


def evidence_of_grid(seed: int) -> Found:
    """log p from 8 random vectors ± t standard errors, beside that of all columns eliminated."""
    x, y, *_ = process_rows(300, 0.3, 0)
    grid = GridFeatures.over(np.full(2, -2.0), np.full(2, 2.0), modes=(16, 16), padding=2.5)
    sink = GridAccumulator(grid, grid_row(grid, ("a", "b"), ("y",), target_origin=np.zeros(1)), 0)
    sink.add(x, y[:, None], None, np.arange(len(x)))
    system = GridSystem(sink.result(), rs.Matern(nu=0.5, length_scale=1.0))
    exact = grid_evidence(system, 0.1, block=10_000)
    found = grid_evidence(system, 0.1, block=20, seed=seed)
    off = abs(found.log_evidence[0] - exact.log_evidence[0])
    return float(off <= stats.t.ppf(0.975, 7) * found.error)


# ------------------------------------------------------------------------------------ densities


def density(n: int, r: int, *, days: int = 1, by: str = "fit") -> Callable[[int], Found]:
    """Density ± 1.96 s.e., beside the normal law smoothed by the kernel; series of AR(.8)."""

    def seen(seed: int) -> Found:
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((n + 200, 1))
        x = lfilter([0.6], [1, -0.8], noise, axis=0)[200:] if by != "fit" else noise[:n]
        model = rs.KernelDensity(0.5, n_components=r, random_state=seed, progress=False)
        if by == "fit" or by == "series":
            model.fit(x)
        else:
            for day in np.array_split(x, days):
                model.partial_fit(day)
        at = np.linspace(-2, 2, 9)[:, None]
        found = model.density(at)
        truth = stats.norm.pdf(at[:, 0], scale=np.sqrt(1 + 0.25))
        return inside(truth, found.density - 1.96 * found.se, found.density + 1.96 * found.se)

    return seen


def probability(model: str, **choices: Any) -> Callable[[int], Found]:
    """Share of the class named, among rows of probability .8 to .9, less the mean of it + .85."""

    def seen(seed: int) -> Found:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(22_000, 2))
        odds = 2 * smooth(x) + x[:, 0]
        label = rng.random(len(x)) < 1 / (1 + np.exp(-odds))
        fitted = rs.KernelClassifier(
            model, n_components=128, random_state=seed, progress=False, **choices
        )
        fitted.fit(x[:2000], label[:2000])
        p = fitted.predict_proba(x[2000:])
        top = p.max(axis=1)
        some = (top > 0.8) & (top < 0.9)
        right = (p.argmax(axis=1) == label[2000:])[some]
        return float(right.mean() - top[some].mean() + 0.85)

    return seen


# ------------------------------------------------------------------------------- tests of drift


def drift(kind: str, shift: float = 0.0) -> Callable[[int], Found]:
    """Whether two samples are told apart at 5 %."""

    def draw(rng: np.random.Generator, count: int) -> list[np.ndarray]:
        if kind == "independent":
            return [rng.normal(size=(1000, 1))]
        noise = rng.standard_normal((1000 * count + 200, 1))
        x = lfilter([0.6], [1, -0.8], noise, axis=0)[200:]
        parts = np.array_split(x, count)
        if kind == "day effects":
            parts = [part + 0.5 * rng.normal() for part in parts]
        return parts

    def seen(seed: int) -> Found:
        rng = np.random.default_rng(seed)
        features = FourierFeatures.sample(Gaussian(1.5), 1, 64, rng=0)
        row = rs.collect(features, rng.normal(size=(1000, 1)), order=1, progress=False).row
        days = {"independent": 1, "one series": 1, "series of 12 days": 12, "day effects": 12}[kind]
        both = []
        for move in (0.0, shift):
            parts = draw(rng, days)
            each = [rs.collect(features, x + move, order=1, row=row, progress=False) for x in parts]
            both.append(total(each))
        found = rs.mmd(*both, n_permutations=499, random_state=seed)
        return float(found.p_value <= 0.05)

    return seen


def novelty(n: int, law: str = "normal", **choices: Any) -> Callable[[int], Found]:
    """Share of new rows of the same law that are called novel, of .05 asked."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        x = rng.normal(size=(count, 2))
        return x if law == "normal" else x + 5 * rng.integers(3, size=(count, 1))

    def seen(seed: int) -> Found:
        rng = np.random.default_rng(seed)
        model = rs.NoveltyDetector(
            0.05, **({"n_components": 256, "random_state": seed, "progress": False} | choices)
        ).fit(draw(rng, n))
        return float(np.mean(model.predict(draw(rng, 2000)) == -1))

    return seen


def bound(seed: int) -> Found:
    """Error of one given pair within Hoeffding's bound at 95 %."""
    x = np.random.default_rng(0).normal(size=(2, 3))
    kernel = Gaussian(1.0)
    features = FourierFeatures.sample(kernel, 3, 64, rng=seed, dtype="float64", frequencies="iid")
    found = approximation_error(features, kernel, x)
    z = features(x) * np.sqrt(features.prior())
    return float(abs(z[0] @ z[1] - kernel(x[:1], x[1:])[0, 0]) <= found.hoeffding)


BAND = 0.93
"""What the documentation states of 95 % bands of f, whose length-scale and noise are estimates."""

CELLS: dict[str, Any] = {"length_scale": 1.0, "features": rs.Cells(32, 2, 8)}
GRID: dict[str, Any] = {"length_scale": 1.0, "features": rs.Grid(modes=(12, 12))}

CLAIMS = {
    "process": [
        Claim("95 % of new y, n=100", 0.95, process(100, noise=True)),
        Claim("95 % of new y, n=500", 0.95, process(500, noise=True)),
        Claim("95 % of f, n=100, kernel known", 0.95, process(100, noise=False, length_scale=1.0)),
        Claim("95 % of f, n=500, kernel known", 0.95, process(500, noise=False, length_scale=1.0)),
        Claim(
            "95 % of f, n=500, R=512, kernel known",
            0.95,
            process(500, noise=False, length_scale=1.0, n_components=512),
            every=2,
        ),
        Claim("95 % of f, n=100, median", BAND, process(100, noise=False)),
        Claim("95 % of f, n=500, median", 0.95, process(500, noise=False)),
        Claim(
            "95 % of f, n=200, evidence",
            0.95,
            process(200, noise=False, length_scale="evidence"),
            every=2,
        ),
        Claim("95 % of drawn functions, n=500, median", 0.95, functions(500)),
        Claim("95 % of new y, grid, n=400", 0.95, process(400, noise=True, **GRID), every=2),
        Claim("95 % of f, grid, n=400", BAND, process(400, noise=False, **GRID), every=2),
        Claim("95 % of new y, cells, n=1,000", 0.95, process(1000, noise=True, **CELLS)),
        Claim("95 % of f, cells, n=1,000", 0.95, process(1000, noise=False, **CELLS)),
    ],
    "interval": [
        Claim("predict_interval, n=30", 0.9, interval(30, 0.9)),
        Claim("predict_interval, n=100", 0.95, interval(100, 0.95)),
        Claim("predict_interval, n=100, no noise level", 0.95, interval(100, 0.95, noise=1e-6)),
        Claim("predict_interval, n=1,000", 0.95, interval(1000, 0.95)),
        Claim("predict_interval, n=1,000", 0.5, interval(1000, 0.5)),
        Claim(
            "predict_interval, 200 of 2,000 rows kept", 0.9, interval(2000, 0.9, sample_rows=200)
        ),
        Claim("predict_interval, cells, n=2,000", 0.95, interval(2000, 0.95, **CELLS)),
    ],
    "errors": [
        Claim("score of cross-validation, t of 4", 0.95, folds_error),
        Claim("error on leaves held out", 0.95, leaves("even")),
        Claim("the same, of leaves that differ much", 0.95, leaves("uneven")),
        Claim("fit(until=.02): others win < 2 %", 0.95, settled),
        Claim("Sobol' indices, t of 7", 0.95, indices),
        Claim("log p of a grid, t of 7", 0.95, evidence_of_grid),
    ],
    "density": [
        Claim("density ± 1.96 s.e., rows", 0.95, density(2000, 2048)),
        Claim("density ± 1.96 s.e., few columns", 0.95, density(10_000, 64)),
        Claim("density ± 1.96 s.e., AR(.8)", 0.95, density(4000, 1024, by="series")),
        Claim("the same, 8 days added", 0.95, density(4000, 256, days=8, by="days")),
    ],
    "probability": [
        Claim("probability .85, squared", 0.85, probability("squared"), "both"),
        Claim("probability .85, logistic", 0.85, probability("logistic"), "both"),
        Claim("probability .85, hinge", 0.85, probability("hinge"), "both", every=2),
        Claim(
            "probability .85, squared hinge", 0.85, probability("squared_hinge"), "both", every=2
        ),
        Claim(
            "probability .85, Laplace's average",
            0.85,
            probability("logistic", laplace="sample"),
            "both",
            every=2,
        ),
    ],
    "drift": [
        Claim("level 5 %, independent rows", 0.05, drift("independent"), "more"),
        Claim("level 5 %, one AR(.8) series of 1,000", 0.05, drift("one series"), "more"),
        Claim("level 5 %, AR(.8) in 12 days", 0.05, drift("series of 12 days"), "more"),
        Claim("level 5 %, 12 days with own effects", 0.05, drift("day effects"), "more"),
        Claim("power, rows moved by .2", 0.9, drift("independent", 0.2)),
        Claim("power, 12 days moved by 1", 0.9, drift("day effects", 1.0)),
    ],
    "novelty": [
        Claim("novel rows, n=50", 0.05, novelty(50), "both"),
        Claim("novel rows, n=100", 0.05, novelty(100), "both"),
        Claim("novel rows, n=100, three clusters", 0.05, novelty(100, "clusters"), "both"),
        Claim("novel rows, n=100, whitened", 0.05, novelty(100, whitened=True), "both"),
        Claim("novel rows, n=2,000", 0.05, novelty(2000), "both"),
        Claim("novel rows, n=2,000, whitened", 0.05, novelty(2000, whitened=True), "both"),
        Claim("novel rows, n=5,000, exact", 0.05, novelty(5000, threshold="exact"), "both"),
    ],
    "kernel": [Claim("Hoeffding's bound of a pair", 0.95, bound)],
}


def small_leaves() -> None:
    """Leaves of 1,000 rows, so that small data have many; quiet."""
    layout.LEAF_ROWS, layout.LEAF_SECONDS, layout.DECODE_AGAIN = 1000, 0.0, 1e9
    warnings.simplefilter("ignore")


def chance_of(place: tuple[str, int, int]) -> Found:
    """One seed of one claim, by its place: a claim is no value that another process can take."""
    name, index, seed = place
    return CLAIMS[name][index].seen(seed)


def measure(name: str, index: int, seeds: int, run: Callable[..., Any]) -> bool:
    """One line; whether it misleads."""
    claim, started = CLAIMS[name][index], time.perf_counter()
    places = [(name, index, seed) for seed in range(0, seeds, claim.every)]
    found = np.array(list(run(chance_of, places)))
    share, error = found.mean(), found.std(ddof=1) / np.sqrt(len(found))
    off = {"less": claim.share - share, "more": share - claim.share}
    worst = max(off.values()) if claim.misleads == "both" else off[claim.misleads]
    misses = worst > max(3 * error, 0.02)
    print(
        f"{claim.words:45} {claim.share:7.3f} {share:7.3f} ± {error:.3f} "
        f"{time.perf_counter() - started:7.1f} {'MISSES' if misses else ''}",
        flush=True,
    )
    return misses


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", default=",".join(CLAIMS))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    print(f"{'claim':45} {'claimed':>7} {'seen':>7} ± {'s.e.':5} {'s':>7}")
    misses = 0
    with ProcessPoolExecutor(asked.jobs, initializer=small_leaves) as pool:
        for name in asked.only.split(","):
            for index in range(len(CLAIMS[name])):
                misses += measure(name, index, asked.seeds, pool.map)
    print(f"claims that mislead: {misses}")


if __name__ == "__main__":
    main()
