"""Every estimator on hard data beside an exact or robust reference: who is wrong in silence?

    python tests/accuracy/hard_data.py [--only "heavy tails,duplicates"] [--seeds 0,1]

One line for each kind of data and estimator: its error, that of the reference, and the outcome.
"right": at most 1.5 times the error of the reference and .03 (of the spread of the truth, of a
share of rows, or of a score). "warned", "refused": wrong, but with a NumericalWarning or an error
of the package's own. "SILENT": wrong, and nothing was said; a warning of NumPy counts as silent.

References: a Gaussian process of scikit-learn with its likelihood maximised, on inputs over robust
scales, on 400 rows (errors are medians of absolute errors about the truth, which outliers do not
move); gradient boosting for classes; ``sklearn.neighbors.KernelDensity`` of the same bandwidth;
``IsolationForest``; ``sklearn.decomposition.KernelPCA``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KernelDensity

import rff_stream as rs
from rff_stream.errors import NumericalWarning, RffStreamError

FEW = 400
"""Rows of references that take n³ work."""

MANY = 300_000
"""Rows above which losses that need many passes are left out."""

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}


@dataclass(frozen=True)
class Rows:
    """Rows to fit, and rows to ask at with the truth there."""

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    f_new: np.ndarray
    w: np.ndarray | None = None
    unit: float = 1.0  # what y was multiplied by
    level: float = 0.0  # and what was added then


def smooth(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def plain(rng: np.random.Generator, n: int = 2000, noise: float = 0.1) -> Rows:
    """Kind data, which others are made from."""
    x = rng.normal(size=(n + 500, 2))
    f = smooth(x)
    return Rows(x[:n], f[:n] + noise * rng.normal(size=n), x[n:], f[n:])


def heavy_inputs(rng: np.random.Generator) -> Rows:
    x = rng.standard_cauchy((2500, 2))
    near = np.abs(x[2000:]).max(axis=1) < 5
    y = smooth(x[:2000]) + 0.1 * rng.normal(size=2000)
    return Rows(x[:2000], y, x[2000:][near], smooth(x[2000:][near]))


def heavy_noise(rng: np.random.Generator) -> Rows:
    rows = plain(rng, noise=0.0)
    return replace(rows, y=rows.y + 0.1 * rng.standard_t(2, 2000))


def cauchy_noise(rng: np.random.Generator) -> Rows:
    rows = plain(rng, noise=0.0)
    return replace(rows, y=rows.y + 0.1 * rng.standard_cauchy(2000))


def million_hard(rng: np.random.Generator) -> Rows:
    """Cauchy inputs far from 0, noise of two moments at most."""
    n, shift = 1_000_000, np.array([1e5, -1e3])
    x = rng.standard_cauchy((n + 2000, 2))
    near = np.abs(x[n:]).max(axis=1) < 5
    y = smooth(x[:n]) + 0.1 * rng.standard_t(2, n)
    return Rows(x[:n] + shift, y, x[n:][near] + shift, smooth(x[n:][near]))


def outlier(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    x = rows.x.copy()
    x[:20] *= 1000
    return replace(rows, x=x)


def target_outlier(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    y = rows.y.copy()
    y[:2] += 1e4
    return replace(rows, y=y)


def duplicates(rng: np.random.Generator) -> Rows:
    rows = plain(rng, 100)
    return replace(rows, x=np.repeat(rows.x, 20, axis=0), y=np.repeat(rows.y, 20))


def collinear(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    more = [
        np.column_stack([x, x[:, 0] + 1e-9 * rng.normal(size=len(x))]) for x in (rows.x, rows.x_new)
    ]
    return replace(rows, x=more[0], x_new=more[1])


def offsets(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    shift = np.array([1e9, -1e7])
    return replace(rows, x=rows.x + shift, y=rows.y + 1e8, x_new=rows.x_new + shift, level=1e8)


def few_values(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    x, x_new = (np.round(np.clip(x, -2, 2)) for x in (rows.x, rows.x_new))
    return Rows(x, smooth(x) + 0.1 * rng.normal(size=len(x)), x_new, smooth(x_new))


def giant_weight(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    w = np.ones(len(rows.x))
    w[0] = 1e8
    return replace(rows, w=w)


def tiny_weights(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, w=np.full(len(rows.x), 1e-300))


def huge_target(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, y=rows.y * 1e160, unit=1e160)


def tiny_target(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, y=rows.y * 1e-30, unit=1e-30)


def units(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    scale = np.array([1e-12, 1e12])
    return replace(rows, x=rows.x * scale, x_new=rows.x_new * scale)


def constant_target(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, y=np.full(len(rows.y), 3.0), f_new=np.full(len(rows.f_new), 3.0))


def constant_column(rng: np.random.Generator) -> Rows:
    rows = plain(rng)
    x, x_new = (np.column_stack([x, np.full(len(x), 7.0)]) for x in (rows.x, rows.x_new))
    return replace(rows, x=x, x_new=x_new)


def gap_in_time(rng: np.random.Generator) -> Rows:
    """Two years of days with thirty years between; asked inside the two."""
    t = np.concatenate([rng.uniform(0, 730, 1250), rng.uniform(11_000, 11_730, 1250)])
    rng.shuffle(t)
    f = np.sin(2 * np.pi * t / 365)
    y = f[:2000] + 0.1 * rng.normal(size=2000)
    return Rows(t[:2000, None], y, t[2000:, None], f[2000:])


def sorted_rows(rng: np.random.Generator) -> Rows:
    rows = plain(rng, 20_000)
    order = np.argsort(rows.x[:, 0])
    return replace(rows, x=rows.x[order], y=rows.y[order])


def skewed(rng: np.random.Generator) -> Rows:
    """Log-normal inputs: the function is smooth in their logarithms."""
    rows = plain(rng)
    return replace(rows, x=np.exp(2 * rows.x), x_new=np.exp(2 * rows.x_new))


DATA: dict[str, Callable[[np.random.Generator], Rows]] = {
    "kind": plain,
    "heavy-tailed inputs": heavy_inputs,
    "log-normal inputs": skewed,
    "heavy-tailed noise": heavy_noise,
    "Cauchy noise": cauchy_noise,
    "1 % of inputs times 1000": outlier,
    "two targets of 1e4": target_outlier,
    "every row 20 times": duplicates,
    "near-collinear column": collinear,
    "huge offsets": offsets,
    "few distinct values": few_values,
    "one giant weight": giant_weight,
    "weights of 1e-300": tiny_weights,
    "targets of 1e160": huge_target,
    "targets of 1e-30": tiny_target,
    "units of 1e-12 and 1e12": units,
    "n < R": lambda rng: plain(rng, 40),
    "constant target": constant_target,
    "constant column": constant_column,
    "long gap in time": gap_in_time,
    "sorted rows": sorted_rows,
    "a million rows": lambda rng: plain(rng, 1_000_000),
    "a million hard rows": million_hard,
}

REGRESSORS: dict[str, Callable[[], Any]] = {
    "KernelRidge": lambda: rs.KernelRidge(n_components=256, **QUIET),
    "KernelRidge, cv": lambda: rs.KernelRidge(n_components=256, alpha="cv", **QUIET),
    "KernelRidge, gcv": lambda: rs.KernelRidge(n_components=256, alpha="gcv", **QUIET),
    "GaussianProcess": lambda: rs.GaussianProcessRegressor(n_components=256, **QUIET),
    "GaussianProcess, cells": lambda: rs.GaussianProcessRegressor(
        features=rs.Cells(64, 2), length_scale="median", **QUIET
    ),
}


@dataclass(frozen=True)
class Outcome:
    """An error, or None where it was refused; warnings of the package and of others."""

    error: float
    said: tuple[str, ...]
    refused: str = ""

    def verdict(self, reference: float) -> str:
        if self.refused:
            return "refused"
        if self.error <= 1.5 * reference + 0.03:
            return "right"
        return "warned" if self.said else "SILENT"


def attempt(work: Callable[[], float]) -> Outcome:
    """Run it, and keep what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            error = work()
        except (RffStreamError, ValueError) as refusal:
            return Outcome(np.nan, (), str(refusal).splitlines()[0])
    own = tuple(str(each.message) for each in caught if issubclass(each.category, NumericalWarning))
    return Outcome(error if np.isfinite(error) else np.inf, own)


def median_error(predicted: Any, rows: Rows) -> float:
    """Median of |ŷ − f| over the spread of f."""
    found = (np.asarray(predicted) - rows.level) / rows.unit
    return float(np.median(np.abs(found - rows.f_new)) / max(rows.f_new.std(), 1e-3))


def regression_reference(rows: Rows) -> float:
    """A process of scikit-learn on robust scales, without weights, of 400 rows."""
    x, y = rows.x[:: max(1, len(rows.x) // FEW)], rows.y[:: max(1, len(rows.x) // FEW)]
    low, centre, high = np.quantile(rows.x, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, high - low, 1.0)
    unit, level = rows.unit, rows.level
    kernel = ConstantKernel() * RBF(1.0, (1e-3, 1e3)) + WhiteKernel(0.1, (1e-8, 1e3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = (y - level) / unit
        model = GaussianProcessRegressor(kernel, normalize_y=True).fit((x - centre) / scale, target)
        predicted = model.predict((rows.x_new - centre) / scale)
    return median_error(predicted * unit + level, rows)


def regression(rows: Rows) -> dict[str, tuple[Outcome, float]]:
    """Every regressor beside the reference."""
    reference = regression_reference(rows)

    def work(make: Callable[[], Any]) -> Outcome:
        return attempt(
            lambda: median_error(make().fit(rows.x, rows.y, rows.w).predict(rows.x_new), rows)
        )

    return {name: (work(make), reference) for name, make in REGRESSORS.items()}


def classes(rows: Rows) -> dict[str, tuple[Outcome, float]]:
    """Whether y is above its 98th percentile: 1 − area under the curve, beside boosting's."""
    line = np.quantile(rows.f_new, 0.98)
    y, truth = (rows.y - rows.level) / rows.unit > line, rows.f_new > line
    if min(y.sum(), truth.sum()) < 5 or y.all() or truth.all():
        return {}

    def missed(scores: Any) -> float:
        return 1 - float(roc_auc_score(truth, scores))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        boosted = HistGradientBoostingClassifier(random_state=0).fit(rows.x, y)
        reference = missed(boosted.predict_proba(rows.x_new)[:, 1])

    def work(loss: str) -> float:
        model = rs.KernelClassifier(loss, n_components=256, **QUIET)
        return missed(model.fit(rows.x, y, rows.w).decision_function(rows.x_new))

    return {
        f"KernelClassifier, {loss}": (attempt(lambda loss=loss: work(loss)), reference)
        for loss in ("squared", "logistic", "squared_hinge")[: 1 if len(y) > MANY else 3]
    }


def densities(rows: Rows) -> dict[str, tuple[Outcome, float]]:
    """Median of |p̂ − p|/p of the exact kernel density of the same rows and bandwidth."""

    def work() -> float:
        model = rs.KernelDensity(n_components=4096, **QUIET).fit(rows.x, sample_weight=rows.w)
        scale = np.broadcast_to(np.asarray(model.bandwidth_, float), rows.x.shape[1])
        some = rows.x[:: max(1, len(rows.x) // 20_000)]
        centre = some.mean(axis=0)
        weights = None if rows.w is None else rows.w / rows.w.max()
        exact = KernelDensity(bandwidth=1.0, rtol=1e-6).fit(
            (some - centre) / scale, sample_weight=weights
        )
        log_p = exact.score_samples((rows.x_new - centre) / scale) - np.log(scale).sum()
        found = model.density(rows.x_new)
        known = ~found.below_error  # the others are told
        if not known.any():
            return 0.0
        return float(np.median(np.abs(found.density[known] / np.exp(log_p[known]) - 1)))

    return {"KernelDensity": (attempt(work), 0.2)}


def novelties(rows: Rows) -> dict[str, tuple[Outcome, float]]:
    """1 − area under the curve of rows far away, beside an isolation forest."""
    x = rows.x[:20_000]
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    scale = np.where(high > low, high - low, 1.0)
    angle = np.random.default_rng(0).normal(size=(200, x.shape[1]))
    far = centre + 6 * scale * angle / np.linalg.norm(angle, axis=1, keepdims=True)
    both = np.concatenate([rows.x_new, far])
    label = np.repeat([1, 0], [len(rows.x_new), len(far)])

    def missed(model: Any) -> float:
        return 1 - float(roc_auc_score(label, model.fit(x).score_samples(both)))

    reference = missed(IsolationForest(random_state=0))
    found = {}
    for white in (False, True):
        name = "NoveltyDetector" + (", whitened" if white else "")
        choices = {"n_components": 256, "whitened": white, **QUIET}
        found[name] = (attempt(lambda c=choices: missed(rs.NoveltyDetector(**c))), reference)
    return found


def components(rows: Rows) -> dict[str, tuple[Outcome, float]]:
    """1 − correlation of the first component with that of scikit-learn's, on the same rows."""
    x = rows.x[:: max(1, len(rows.x) // FEW)]

    def work() -> float:
        model = rs.KernelPCA(n_components=1, n_map_components=2048, **QUIET).fit(x)
        scale = np.broadcast_to(np.asarray(model.length_scale_, float), x.shape[1])
        centred = (x - x.mean(axis=0)) / scale
        exact = KernelPCA(1, kernel="rbf", gamma=0.5).fit_transform(centred)[:, 0]
        return 1 - abs(float(np.corrcoef(exact, np.asarray(model.transform(x))[:, 0])[0, 1]))

    return {"KernelPCA": (attempt(work), 0.02)}


def measure(name: str, seed: int) -> list[str]:
    """Lines of one kind of data; those who are wrong in silence."""
    rows, silent = DATA[name](np.random.default_rng(seed)), []
    found = regression(rows)
    for part in (classes, densities, novelties, components):
        found |= part(rows)
    for who, (outcome, reference) in found.items():
        verdict = outcome.verdict(reference)
        note = outcome.refused or (outcome.said[0] if outcome.said else "")
        note = "" if verdict == "right" else note.replace("\n", " ")[:90]
        print(
            f"{name:26} {who:28} {outcome.error:10.3g} {reference:10.3g} {verdict:8} {note}",
            flush=True,
        )
        if verdict == "SILENT":
            silent.append(f"{name}: {who}")
    return silent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(DATA))
    parser.add_argument("--seeds", default="0")
    asked = parser.parse_args()
    print(f"{'data':26} {'estimator':28} {'error':>10} {'reference':>10} outcome")
    silent = []
    for name in asked.only.split(","):
        for seed in map(int, asked.seeds.split(",")):
            silent += measure(name, seed)
    print(f"wrong in silence: {len(silent)}", *silent, sep="\n  ")


if __name__ == "__main__":
    main()
