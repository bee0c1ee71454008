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
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import polygamma

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
    n_sampled: int  # rows that they are of


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
    return Profile(tuple(names), np.array(values), np.array(variances), len(x))


def look_at(
    name: str, new: Profile, n_rows: int, reference: Sequence[tuple[str, Profile]], level: float
) -> Look:
    """Compare a batch with earlier ones, without outliers among them.

    Notes
    -----
    With J numbers the p-value is J times the smallest (Bonferroni). An earlier batch is left out
    if it is unlike the others at 0.01 for all of them, the largest first, and at most a third: so
    one bad batch neither hides the next one nor makes good ones look bad. Batches without rows tell
    nothing, and a number is compared with the batches in which it is defined.
    """
    reference = [(id, each) for id, each in reference if each.n_sampled]
    if len(reference) < FEWEST:
        return Look(name, n_rows, 1.0, level, (), len(reference))
    kept = _without_outliers(ProfileTable.of([each for _, each in reference]))
    own = [each for (_, each), stays in zip(reference, kept, strict=True) if stays]
    mean, spread, each = ProfileTable.of(own).compare(new)
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
    return Look(name, n_rows, min(1.0, count * least), level, moved, len(own), left)


def level_of_look(alpha: float, number: int) -> float:
    """The level of the k-th look, k = 1, 2, …; the levels of all looks sum to α.

    The first 100 looks share α/2, the next 200 α/4, the next 400 α/8. So the probability of any
    false alarm, ever, is at most α, however often one looks and whatever the dependence of looks.
    """
    block, first = 1, SEASON
    while number > first:
        number, first, block = number - first, 2 * first, block + 1
    return float(alpha / 2**block / first)


@dataclass(frozen=True, slots=True, eq=False)
class ProfileTable:
    """The profiles of n batches in arrays, with 0 where a number is not defined."""

    known: Array  # (n, J): whether a number is defined
    values: Float64  # (n, J)
    chance: Float64  # (n, J): variances by chance of the rows
    n_sampled: Float64  # (n, 1)

    @classmethod
    def of(cls, batches: Sequence[Profile]) -> ProfileTable:
        """The table of some profiles."""
        values = np.stack([each.values for each in batches])
        chance = np.stack([each.variances for each in batches])
        known = np.isfinite(values)
        rows = np.array([[max(each.n_sampled, 1)] for each in batches], float)
        return cls(known, np.where(known, values, 0.0), np.where(known, chance, 0.0), rows)

    def compare(self, new: Profile) -> tuple[Float64, Float64, Float64]:
        """Mean (J,) and deviation of a normal batch by n others, and the p-value of each number."""
        n, total = self.known.sum(axis=0), self.values.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = total / n
            squares = np.sum(self.known * (self.values - mean) ** 2, axis=0)
        within = self.chance.sum(axis=0), (self.chance * self.n_sampled).sum(axis=0)
        spread = _spread(squares, n, within, new.variances, max(new.n_sampled, 1))
        return mean, spread, _p_values(new.values, mean, spread, n)

    def left_out(self) -> Float64:
        """p-values (n, J) of each batch beside the others, from sums of all."""
        count = self.known.sum(axis=0)
        others = count - self.known
        total, rows = self.values.sum(axis=0), self.chance * self.n_sampled
        with np.errstate(divide="ignore", invalid="ignore"):
            middle, mean = total / count, (total - self.values) / others
            off = np.where(self.known, self.values - middle, 0.0)
            squares = (off**2).sum(axis=0) - off**2 * count / others
        within = self.chance.sum(axis=0) - self.chance, rows.sum(axis=0) - rows
        spread = _spread(np.maximum(squares, 0), others, within, self.chance, self.n_sampled)
        return _p_values(np.where(self.known, self.values, np.nan), mean, spread, others)


def _spread(
    squares: Float64, n: Array, within: tuple[Float64, Float64], own: Float64, rows: Any
) -> Float64:
    """Deviation of a normal batch of so many rows, by n others.

    ``squares`` are Σ (value − mean)² of the others, and ``within`` Σ v and Σ m v of their variances
    v by chance of m rows each. Few batches may agree by luck, and a small one varies more: the
    variance is at least that by chance of the rows of either.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = np.maximum(within[0] / n, within[1] / n / rows)
        floor = np.fmax(floor, own)
        return np.asarray(np.sqrt(np.maximum(squares / (n - 1), floor) * (1 + 1 / n)))


def _p_values(values: Array, mean: Array, spread: Array, n: Array) -> Float64:
    """Of numbers beside the mean of n others; NaN where a number is not defined in enough."""
    off = np.abs(values - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(off <= 1e-9 * np.abs(mean), 0.0, off / spread)
    p = 2 * stats.t.sf(t, np.clip(n - 1, 1, FREEDOM))
    return np.asarray(np.where(np.isfinite(off) & (n >= FEWEST), p, np.nan))


def _without_outliers(table: ProfileTable) -> Array:
    """Which batches (n,) stay: each is compared with the others, and the worst goes, one by one."""
    kept = np.ones(len(table.values), bool)
    for _ in range(int(MOST_OUT * len(kept))):
        rows = np.flatnonzero(kept)
        if len(rows) <= FEWEST:
            break
        parts = table.known, table.values, table.chance, table.n_sampled
        p = ProfileTable(*(each[rows] for each in parts)).left_out()
        count = max(int(np.isfinite(p).any(axis=0).sum()), 1) * len(rows)
        least = np.where(np.isfinite(p), p, 1.0).min(axis=1)
        if count * least.min() > OUTLIER:
            break
        kept[rows[int(least.argmin())]] = False
    return kept


def _mean_and_deviation(name: str, values: Array) -> list[tuple[str, float, float]]:
    """Mean and log standard deviation of a column, with their variances by chance."""
    m = len(values)
    mean = float(values.mean()) if m else np.nan
    deviation = float(values.std(ddof=1)) if m > 1 else np.nan
    by_chance = deviation**2 / m if m > 1 else 0.0
    of_spread = float(polygamma(1, max(m - 1, 1) / 2)) / 4  # of half a log χ² of m − 1 degrees
    return [
        (f"mean of {name}", mean, by_chance),
        (f"log spread of {name}", _log(deviation), of_spread),
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
