"""Whether a batch is unlike those before it: a test for every look, at one level for all looks.

A batch is told by a few numbers of its sampled rows: mean and log standard deviation of each input,
of the predictions and of the residuals; the correlation of residuals with each input, which is not
0 where the target depends on it in another way than before; and the share of rows that count.
Batches differ from each other by more than chance within them, so each number of the new batch is
compared with those of n earlier batches: by Student's t with n − 1 degrees of freedom, but at most
8. So a normal day may be as far off as the tails of a t distribution allow, and need not be
normally distributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rff_stream._array import Array, Float64

FEWEST = 3
"""Smallest number of earlier batches to compare with."""

FREEDOM = 8
"""Most degrees of freedom. Where days differ by a t distribution with 5 degrees of freedom, 4 of
200 seasons of 100 days had a false alarm at 1 %, and 16 at 10 %; with the n − 1 of normal days 11
of 40 had one at 1 %, and with 6 a shift of 12 standard deviations of a day was hardly found."""

SEASON = 100
"""Looks that share a half of the level; twice as many share a quarter of it, and so on."""

OUTLIER = 0.01
"""Probability at which some batch of a normal reference is left out of it as an outlier."""

MOST_OUT = 1 / 3
"""Largest share of a reference that is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What a batch is told by: J numbers, and the variance that each has by chance of its rows."""

    names: tuple[str, ...]
    values: Float64  # (J,), NaN where a number is not defined
    variances: Float64  # (J,)


@dataclass(frozen=True, slots=True)
class Moved:
    """One number of a batch beside those of earlier batches."""

    name: str
    value: float
    expected: float  # mean of the earlier batches
    spread: float  # standard deviation of a normal batch
    p_value: float  # of this number alone


@dataclass(frozen=True, slots=True)
class Look:
    """A batch compared with earlier ones."""

    batch: str
    n_rows: int
    p_value: float
    """That a normal batch is so unlike the earlier ones in any of its numbers; 1 without enough of
    them."""
    level: float  # an alarm is a p-value of at most this
    moved: tuple[Moved, ...]  # numbers that are unlike those of before at this level, worst first
    n_reference: int
    left_out: tuple[str, ...] = ()  # outliers among the earlier batches

    @property
    def alarm(self) -> bool:
        """Whether the batch is called unlike the earlier ones."""
        return self.p_value <= self.level

    def __str__(self) -> str:
        if self.n_reference < FEWEST:
            return f"{self.n_reference} earlier batches, at least {FEWEST} are needed: no alarm"
        found = f"p = {self.p_value:.2g}, level {self.level:.2g}"
        words = [
            f"{m.name} {m.value:.4g} (was {m.expected:.4g} ± {m.spread:.2g})" for m in self.moved
        ]
        return f"{found}: {'; '.join(words)}" if words else f"{found}: no alarm"


def profile(
    inputs: Sequence[str],
    x: Array,
    predicted: Array | None,
    residuals: Array | None,
    targets: Sequence[str],
    used: tuple[int, int],
) -> Profile:
    """The numbers of a batch from its sampled rows.

    Parameters
    ----------
    inputs, x : names and (m, d) array
    predicted, residuals : (m, T) array or None
        Of the model, and y minus it.
    targets : sequence of str
    used : (int, int)
        Rows that count, and rows that were looked at.
    """
    found: list[tuple[str, float, float]] = []
    for name, column in zip(inputs, x.T, strict=True):
        found += _mean_and_deviation(name, column)
    if predicted is not None:
        for name, column in zip(targets, predicted.T, strict=True):
            found += _mean_and_deviation(f"predicted {name}", column)
    if residuals is not None:
        for name, column in zip(targets, residuals.T, strict=True):
            found += _mean_and_deviation(f"residual of {name}", column)
            found += [
                (f"correlation of residual of {name} with {each}", *_correlation(column, own))
                for each, own in zip(inputs, x.T, strict=True)
            ]
    rows, seen = used
    share = rows / seen if seen else np.nan
    found.append(("share of rows used", share, share * (1 - share) / max(seen, 1)))
    names, values, variances = zip(*found, strict=True)
    return Profile(tuple(names), np.array(values), np.array(variances))


def look_at(
    name: str, new: Profile, n_rows: int, reference: Sequence[tuple[str, Profile]], level: float
) -> Look:
    """Compare a batch with earlier ones, without outliers among them.

    Notes
    -----
    With J numbers the p-value is J times the smallest (Bonferroni). An earlier batch is left out
    if it is unlike the others at 0.01 for all of them, the largest first, and at most a third: so
    one bad batch neither hides the next one nor makes good ones look bad.
    """
    if len(reference) < FEWEST:
        return Look(name, n_rows, 1.0, level, (), len(reference))
    values = np.stack([each.values for _, each in reference])
    chance = np.stack([each.variances for _, each in reference])
    kept = _without_outliers(values, chance)
    values, chance = values[kept], chance[kept]
    mean, spread, each = _compare(new.values, new.variances, values, chance)
    known = np.isfinite(each)
    count = max(int(known.sum()), 1)
    order = np.argsort(np.where(known, each, 2.0), kind="stable")
    moved = tuple(
        Moved(new.names[j], float(new.values[j]), float(mean[j]), float(spread[j]), float(each[j]))
        for j in order
        if known[j] and count * each[j] <= level
    )
    least = float(each[order[0]]) if known.any() else 1.0
    left = tuple(id for (id, _), stays in zip(reference, kept, strict=True) if not stays)
    return Look(name, n_rows, min(1.0, count * least), level, moved, len(values), left)


def level_of_look(alpha: float, number: int) -> float:
    """The level of the k-th look, k = 1, 2, …; the levels of all looks sum to α.

    The first 100 looks share α/2, the next 200 α/4, the next 400 α/8. So the probability of any
    false alarm, ever, is at most α, however often one looks and whatever the dependence of looks.
    """
    block, first = 1, SEASON
    while number > first:
        number, first, block = number - first, 2 * first, block + 1
    return float(alpha / 2**block / first)


def _compare(
    new: Array, new_chance: Array, values: Array, chance: Array
) -> tuple[Float64, Float64, Float64]:
    """Mean (J,) and deviation of a normal batch by n others (n, J), and the p-value of each."""
    n = len(values)
    mean, between = values.mean(axis=0), values.var(axis=0, ddof=1)
    # Few batches may agree by luck: their variance is at least that by chance of their rows.
    floor = np.maximum(chance.mean(axis=0), new_chance)
    spread = np.sqrt(np.maximum(between, floor) * (1 + 1 / n))
    return mean, spread, _p_values(new, mean, spread, n)


def _p_values(values: Array, mean: Array, spread: Array, n: int) -> Float64:
    """Of numbers beside the mean of n others; NaN where a number is not defined."""
    off = np.abs(values - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(off <= 1e-9 * np.abs(mean), 0.0, off / spread)
    p = 2 * stats.t.sf(t, min(n - 1, FREEDOM))
    return np.asarray(np.where(np.isfinite(off), p, np.nan))


def _without_outliers(values: Array, chance: Array) -> Array:
    """Which batches (n,) stay: each is compared with the others, and the worst goes, one by one."""
    kept = np.ones(len(values), bool)
    for _ in range(int(MOST_OUT * len(values))):
        rows = np.flatnonzero(kept)
        if len(rows) <= FEWEST:
            break
        p = _left_out(values[rows], chance[rows])
        count = max(int(np.isfinite(p).any(axis=0).sum()), 1) * len(rows)
        least = np.where(np.isfinite(p), p, 1.0).min(axis=1)
        if count * least.min() > OUTLIER:
            break
        kept[rows[int(least.argmin())]] = False
    return kept


def _left_out(values: Array, chance: Array) -> Float64:
    """p-values (n, J) of each batch beside the n − 1 others, from sums of all."""
    n = len(values)
    others = n - 1
    total, middle = values.sum(axis=0), values.mean(axis=0)
    mean = (total - values) / others
    squares = ((values - middle) ** 2).sum(axis=0) - (values - middle) ** 2 * n / others
    between = np.maximum(squares, 0) / (others - 1)
    floor = np.maximum((chance.sum(axis=0) - chance) / others, chance)
    spread = np.sqrt(np.maximum(between, floor) * (1 + 1 / others))
    return _p_values(values, mean, spread, others)


def _mean_and_deviation(name: str, values: Array) -> list[tuple[str, float, float]]:
    """Mean and log standard deviation of a column, with their variances by chance."""
    m = len(values)
    mean = float(values.mean()) if m else np.nan
    deviation = float(values.std(ddof=1)) if m > 1 else np.nan
    by_chance = deviation**2 / m if m > 1 else 0.0
    return [
        (f"mean of {name}", mean, by_chance),
        (f"log spread of {name}", _log(deviation), 1 / (2 * max(m - 1, 1))),
    ]


def _correlation(a: Array, b: Array) -> tuple[float, float]:
    """Of two columns, with its variance by chance; NaN where one is constant."""
    m = len(a)
    if m < 3 or not (np.ptp(a) > 0 and np.ptp(b) > 0):
        return np.nan, 0.0
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b))), 1 / (m - 1)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else np.nan
