"""The pilot: a few rows, read first, that give origins, scales and the median length-scale.

Everything here comes from at most 32 blocks of 512 valid rows and becomes part of the
model's spec; it is never drawn again. The statistics that read it are here too: some rows of
every block, and windows of neighbours that length-scales are learnt from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import pdist

from rff_stream._array import Array, Float64
from rff_stream.contracts import Sink
from rff_stream.errors import DataError, warn
from rff_stream.features.base import FeatureMap
from rff_stream.features.column_sweep import column_sums, sweep_of
from rff_stream.hashes import Keys, hash_places
from rff_stream.moments import AugmentedRow
from rff_stream.moments.row_sample import RowSample
from rff_stream.sources.protocol import LARGEST, Rows

PILOT_BLOCKS = 32
"""Number of places of the data that are read."""
PILOT_ROWS = 512
"""Of each: 16,384 rows give a standard deviation to .6 % and a share to .4 %."""
MEDIAN_ROWS = 1024
"""Rows whose pairs give the median: half a million distances."""

FAR = 2.0**100
"""Length-scale of an input that is left out of a map: divided by it, all values are equal."""

SMALLEST = 1e-140
"""Smallest deviation of inputs and targets that vary: its square is in the range of float64."""

SMALLEST_WEIGHT = 1e-80
"""Smallest weight of a row; the largest one is its inverse. Penalties are compared with sums of
weights."""

ROBUST_ROWS = 50
"""Smallest number of rows for which quartiles give a scale."""

WIDE, PART = 0.75, 0.05
"""Share of an input's range without rows at which the median distance is that between two parts,
and the smallest share of the rows in each part."""

EMPTY, BEYOND = 0.15, 4.0
"""Share of an input's range, and number of length-scales, at which a warning about a gap is
given: its middle is then two length-scales from any row, where a Gaussian kernel is .14."""

DISAGREE = 3.0
"""Ratio of standard deviations to robust scales above which the robust scale is used: 1.2 for an
exponential distribution, 2 for a log-normal one, 3 if 1 % of the rows are 28 standard deviations
away."""

FAR_VALUE = 2.0**26
"""Distance from the median, in robust scales, from which a value is bounded: ε^(−1/2), beyond which
in float64 its square hides those of all other rows. Of rows of a Pareto distribution without a
mean (index 1/2) the farthest of 5,000 is as far."""

CENTRES = ((0.25, 0.75, 1.349), (0.05, 0.95, 3.290), (0.01, 0.99, 4.653))
"""Two quantiles, and the number of σ between them for a normal distribution: the first pair of
different values counts."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Pilot rows and their weighted statistics."""

    x: Float64  # (m, d)
    y: Float64  # (m, T)
    w: Float64  # (m,): positive
    inputs: tuple[str, ...] = ()  # names for messages; x0, x1, … where absent
    valid: float = 1.0  # share of the rows looked at that are neither missing nor of weight 0
    different: float = 1.0  # share of the rows read that are no copies of others
    one_unit: bool = False  # whether inputs are in one unit, as combinations by a metric are
    classes: tuple[str, ...] = ()  # names of one-hot targets

    def __post_init__(self) -> None:
        for what, values in (("input", self.x), ("target", self.y)):
            spread = np.abs(values - values[:1]).max(axis=0, initial=0.0)
            for j in np.flatnonzero((spread > 0) & ~((spread > SMALLEST) & (spread < LARGEST))):
                name = self._name(int(j)) if what == "input" else f"y{j}"
                raise _out_of_range(f"The {what} {name} varies by {spread[j]:.3g}", what)
        for weight in (self.w.min(initial=1.0), self.w.max(initial=1.0)):
            if not SMALLEST_WEIGHT < weight < 1 / SMALLEST_WEIGHT:
                raise _out_of_range(f"A row has weight {weight:.3g}", "weights")

    def with_targets(self, y: Float64) -> Self:
        """The same inputs with other targets: their quantiles are not looked for again."""
        found = replace(self, y=y)
        found.__dict__["has_outliers"] = self.has_outliers
        return found

    def part(self, own: Array) -> Self:
        """Some of the rows, by their places."""
        return replace(self, x=self.x[own], y=self.y[own], w=self.w[own])

    def without_copies(self, n_rows: int) -> int:
        """How many of so many rows are no copies of others."""
        return max(round(n_rows * self.different), 1)

    def usable(self, n_rows: int) -> int:
        """How many of so many places hold a row that is neither missing nor a copy of another."""
        return self.without_copies(round(n_rows * self.valid))

    @cached_property
    def origin(self) -> Float64:
        """Weighted mean of the inputs (d,); the median of one with far outliers."""
        mean = np.average(self.x, axis=0, weights=self.w)
        for j in np.flatnonzero(self.has_outliers):
            mean[j] = weighted_median(self.x[:, j], self.w)
        return np.asarray(mean)

    @cached_property
    def scale(self) -> Float64:
        """Scale of the inputs (d,), which "median", "evidence" and "ard" divide them by.

        The weighted standard deviation; the robust scale where a few far values make the
        former 3 times as large; 1 for a constant column. Their root mean square for all inputs
        where these are in one unit.
        """
        own = np.where(self.has_outliers, self.robust_scale, self._spread)
        return np.full(len(own), np.sqrt((own**2).mean())) if self.one_unit else own

    @cached_property
    def _spread(self) -> Float64:
        """Weighted standard deviation (d,); 1 for a constant column."""
        return _deviation(self.x, self.w)

    @property
    def is_constant(self) -> Array:
        """Which inputs (d,) have one value in all rows, of two rows or more."""
        return np.asarray((self.x == self.x[:1]).all(axis=0) & (len(self.x) > 1))

    @cached_property
    def has_outliers(self) -> Array:
        """Which inputs (d,) have a standard deviation that a few far values make."""
        if len(self.x) < ROBUST_ROWS:
            return np.zeros(self.x.shape[1], bool)
        return np.asarray(self._spread > DISAGREE * self.robust_scale)

    @cached_property
    def robust_scale(self) -> Float64:
        """Interquartile range over 1.349 (d,): σ of a normal law, whatever a few rows hold.

        Where half of the rows have one value, wider quantiles; where 98 % have it, the
        standard deviation.
        """
        found = self._spread.copy()
        for j in range(self.x.shape[1]):
            column = _Quantiles(self.x[:, j], self.w)
            spreads = (column.between(low, high) / unit for low, high, unit in CENTRES)
            found[j] = next((spread for spread in spreads if spread > 0), found[j])
        return found

    @property
    def smaller_scale(self) -> Float64:
        """The smaller of standard deviation and robust scale (d,): Silverman 1986, eq. 3.30."""
        return np.minimum(self._spread, self.robust_scale)

    def leave_out(self, length_scale: Array) -> Float64:
        """Length-scales (d,) with ``FAR`` for constant inputs, and a warning that names them.

        Nothing is known of how a target depends on them: a map that has them predicts
        anything where they vary.
        """
        constant = np.flatnonzero(self.is_constant)
        if len(constant):
            values = ", ".join(f"{self._name(int(j))}={self.x[0, j]:g}" for j in constant)
            warn(
                f"Inputs that are constant in the {len(self.x)} pilot rows are left out of the "
                f"map: {values}. Predictions do not depend on them. Drop these inputs, or give "
                "length_scale as one number per input if they vary in other rows."
            )
        return np.where(self.is_constant, FAR, length_scale)

    def warn_of_outliers(self) -> None:
        """Name the inputs whose robust scale is used, with both scales."""
        outliers = np.flatnonzero(self.has_outliers)
        if len(outliers):
            deviation, robust = self._spread, self.robust_scale
            names = (self._name(int(j)) for j in outliers)
            pairs = (
                f"{name} ({deviation[j]:.3g} and {robust[j]:.3g})"
                for name, j in zip(names, outliers, strict=True)
            )
            warn(
                "A few extreme values make the standard deviation more than 3 times the one that "
                f"the quartiles give: {', '.join(pairs)}. The quartiles are used. Look at the "
                "extreme values, transform the input, or give a number in its units."
            )

    def warn_of_stretched_range(self, axes: Sequence[int]) -> None:
        """Name the inputs, of some, whose range a few extreme values make, with both ranges."""
        for j in axes:
            if self.has_outliers[j]:
                low, high = np.percentile(self.x[:, j], [1, 99])
                warn(
                    f"{self._name(j)} goes from {self.x[:, j].min():.6g} to "
                    f"{self.x[:, j].max():.6g}, but 98% of its {len(self.x):,} pilot rows lie "
                    f"between {low:.6g} and {high:.6g}. A grid has one spacing for the whole "
                    "range, so little of it is left for these. Look at the extreme values: leave "
                    "such rows out with where, transform the input, or use features='cells'."
                )

    def with_bounded_inputs(self) -> Self:
        """The same with far values moved to ``FAR_VALUE`` robust scales, and a warning of them.

        For searches and trees, which take means over rows: one value of 1e30 hides all others.
        """
        low, high = self.bounds(FAR_VALUE)
        far = (self.x < low) | (self.x > high)
        if not far.any():
            return self
        named = []
        for j in np.flatnonzero(far.any(axis=0)):
            value = self.x[far[:, j], j][0]
            named.append(f"{self._name(int(j))} ({value:.4g} in {int(far[:, j].sum())})")
        warn(
            f"Of {len(self.x):,} pilot rows, some hold a value that is more than {FAR_VALUE:.2g} "
            f"robust standard deviations from the median: {', '.join(named)}. The map is made as "
            "if these were nearer; predictions for such rows are the mean. If the value stands for "
            "a missing one, make it NaN and use missing_rows='drop'; else correct or leave out "
            "these rows, for example with where."
        )
        return replace(self, x=np.clip(self.x, low, high))

    def bounds(self, factor: float) -> tuple[Float64, Float64]:
        """The medians of the inputs − and + so many robust scales (d,)."""
        middle, reach = np.median(self.x, axis=0), factor * self.robust_scale
        return middle - reach, middle + reach

    def warn_of_wide_gaps(
        self, remedy: str = "Give length_scale as numbers, or 'evidence'."
    ) -> None:
        """Name the inputs whose rows lie in two far parts: distances between those say nothing."""
        for name, low, high, share in self._gaps():
            if share > WIDE:
                warn(
                    f"Between {low:.6g} and {high:.6g} {name} has no rows: {share:.0%} of its "
                    "range. A scale that is estimated from the rows measures this gap, and "
                    f"variation inside the two parts may be lost. {remedy}"
                )

    def warn_of_far_gaps(self, length_scale: Float64) -> None:
        """Name the inputs with a gap of many length-scales: the rows say nothing inside it."""
        scales = dict(zip(map(self._name, range(self.x.shape[1])), length_scale, strict=True))
        for name, low, high, share in self._gaps():
            reach = (high - low) / scales[name]
            if share > EMPTY and reach > BEYOND:
                warn(
                    f"Between {low:.6g} and {high:.6g} {name} has no rows: {reach:.0f} length-"
                    "scales. Predictions there are not reliable: look at their standard deviation. "
                    "A linear trend may be better, and so may inputs that repeat inside the gap, "
                    "such as the season."
                )

    def _gaps(self) -> Iterator[tuple[str, float, float, float]]:
        """The widest gap of each input with rows on both sides: name, ends, share of the range."""
        if len(self.x) < 2 * ROBUST_ROWS:
            return
        for j in np.flatnonzero(~self.is_constant):
            values = np.sort(self.x[:, j])
            steps, m = np.diff(values), len(values)
            k = int(np.argmax(steps)) + 1
            parts = values[:k], values[k:]
            if (
                min(k, m - k) > PART * m
                and min(len(np.unique(part)) for part in parts) >= ROBUST_ROWS
            ):
                share = float(steps[k - 1] / (values[-1] - values[0]))
                yield self._name(int(j)), float(parts[0][-1]), float(parts[1][0]), share

    def _name(self, j: int) -> str:
        return self.inputs[j] if j < len(self.inputs) else f"x{j}"

    @property
    def target_origin(self) -> Float64:
        """Weighted mean of y (T,)."""
        return np.average(self.y, axis=0, weights=self.w)

    @property
    def target_scale(self) -> Float64:
        """Power of two next to the weighted standard deviation of y (T,)."""
        return np.asarray(2.0 ** np.round(np.log2(_deviation(self.y, self.w))))

    def median_length_scale(self) -> Float64:
        """Median distance between rows of scaled inputs, in input units (d,).

        Inputs are divided by their scale; the median is over pairs of rows
        further apart than 0, weighted by wᵢwⱼ. 1 standard deviation if all rows are equal.
        """
        step = -(-len(self.x) // MEDIAN_ROWS)
        x, w = self.x[::step] / self.scale, self.w[::step]
        distances = pdist(x - x.mean(axis=0))
        apart = distances > 0
        if not apart.any():
            return self.scale
        if (w == w[0]).all():
            return self.scale * weighted_median(distances[apart], None)
        i, j = np.triu_indices(len(x), 1)
        return self.scale * weighted_median(distances[apart], (w[i] * w[j])[apart])


def augmented_row(
    features: FeatureMap,
    pilot: Pilot,
    inputs: tuple[str, ...],
    targets: tuple[str, ...] = (),
    units: tuple[str, ...] = (),
) -> AugmentedRow:
    """The row [z − z₀, 1, y − y₀] with z₀ and y₀ from the pilot."""
    sweep = sweep_of(features, np.dtype(np.float64))
    total = column_sums(sweep, pilot.x, pilot.w, features.n_components)
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=features.prior(),
        nesting=features.nesting,
        feature_origin=total / pilot.w.sum(),
        target_origin=pilot.target_origin,
        target_scale=pilot.target_scale,
        inputs=inputs,
        targets=targets,
        units=units,
    )


def _out_of_range(fact: str, what: str) -> DataError:
    return DataError(
        f"{fact}: squares and sums of such numbers leave the range of float64, and a fit would be "
        f"wrong. Multiply the {what} by a constant, so that its scale is nearer to 1."
    )


def warn_where_left_out_vary(x: Array, length_scale: Array, names: Sequence[str]) -> None:
    """Name the inputs of rows x (n, d) that vary although the map was made without them."""
    scale = np.asarray(length_scale)
    left_out = np.flatnonzero(scale == FAR).tolist()  # not: long, of inputs that are large
    vary = [j for j in left_out if len(x) and (x[:, j] != x[0, j]).any()]
    if vary:
        warn(
            f"{', '.join(names[j] for j in vary)} vary in these rows but were constant in those of "
            "the fit: the predictions do not depend on them. Fit on rows where they vary."
        )


def neighbour_scale(x: Float64) -> Float64:
    """Typical step from row to row along each input (d,), 1 for a constant one.

    range/Lᵃ with L different values and a such that ΠLᵃ = m: the spacing of a grid (a = 1), an
    equal share of the range for scattered rows (a = 1/d), and between them what is between.
    """
    levels = np.array([len(np.unique(column)) for column in x.T], np.float64)
    spread = np.ptp(x, axis=0)
    logs = np.log(levels)
    share = np.log(len(x)) / logs.sum() if logs.sum() > 0 else 1.0
    return np.where(spread > 0, spread / levels ** min(share, 1.0), 1.0)


def weighted_median(values: Array, weights: Array | None) -> float:
    """The smallest value with at least half of the weight at or below it."""
    if weights is None:  # a selection, ten times cheaper than a sort
        middle = (len(values) - 1) // 2
        return float(np.partition(values, middle)[middle])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, 0.5 * below[-1])])


class _Quantiles:
    """Weighted quantiles of one column: smallest values with at least a share at or below."""

    def __init__(self, values: Float64, weights: Float64) -> None:
        order = np.argsort(values, kind="stable")
        self._values, self._below = values[order], np.cumsum(weights[order])

    def between(self, low: float, high: float) -> float:
        """How far apart two quantiles are."""
        wanted = np.array([low, high]) * self._below[-1] * (1 - 1e-12)
        first, last = self._values[np.searchsorted(self._below, wanted)]
        return float(last - first)


def _deviation(values: Float64, weights: Float64) -> Float64:
    """Weighted standard deviation of columns; 1 for a constant one.

    About the first row: the mean of many equal numbers is rounded, their difference is not.
    """
    shifted = values - values[0]
    mean = np.average(shifted, axis=0, weights=weights)
    spread = np.sqrt(np.average((shifted - mean) ** 2, axis=0, weights=weights))
    return np.asarray(np.where(shifted.any(axis=0), spread, 1.0))


def weight_unit(w: Float64) -> float:
    """What penalties of rows of these weights are times those of rows of weight 1: the mean."""
    largest = w.max()
    return float(largest * (w / largest).mean())  # equal weights: exactly theirs


@dataclass(frozen=True, slots=True)
class PilotStatistic:
    """Up to ``size`` valid rows [x, y, w] of every box, drawn by the hash of their place.

    With ``labelled`` rows, y is the place of the row's label among those met.
    """

    size: int
    seed: int
    labelled: bool = False

    def start(self) -> Sink:
        return _PilotSink(self)


@dataclass(frozen=True, slots=True, eq=False)
class PilotRows:
    """Rows [x, y, w]; adding puts them one under the other."""

    rows: Float64  # (m, d + T + 1)
    labels: tuple[Any, ...] = ()  # of rows that carry one, whose y is a place among them
    n_valid: int = 0  # rows that these were drawn from

    def __add__(self, other: Self) -> Self:
        labels = (*dict.fromkeys((*self.labels, *other.labels)),)
        parts = [p._over(labels) for p in (self, other) if p.rows.size]
        n_valid = self.n_valid + other.n_valid
        return type(self)(np.concatenate(parts), labels, n_valid) if parts else self

    def _over(self, labels: tuple[Any, ...]) -> Float64:
        """The rows with their labels' places among these."""
        if labels == self.labels:
            return self.rows
        at = np.array([labels.index(label) for label in self.labels], np.float64)
        rows = self.rows.copy()
        rows[:, -2] = at[rows[:, -2].astype(int)]
        return rows

    def __sizeof__(self) -> int:
        return int(self.rows.nbytes) + 64


class _PilotSink:
    def __init__(self, statistic: PilotStatistic) -> None:
        self._statistic = statistic
        self._sample: RowSample | None = None
        self._waiting: list[tuple[Keys, Float64]] = []  # slabs that the sample will take together
        self._n_waiting = 0
        self._labels: dict[Any, int] = {}
        self._n = 0

    def add(self, rows: Rows, places: Array) -> None:
        self._n += len(rows.x)
        y = self._codes(rows.label)[:, None] if self._statistic.labelled else rows.y
        if self._sample is None:
            width = rows.x.shape[1] + y.shape[1] + 1
            self._sample = RowSample.empty(self._statistic.size, width)
        keys = hash_places(places, self._statistic.seed)
        own = self._sample.chosen(keys)
        w = np.ones(len(own)) if rows.w is None else rows.w[own]
        table = np.column_stack([rows.x[own], y[own], w]).astype(np.float64)
        self._waiting.append((keys[own], table))
        self._n_waiting += len(own)
        if self._n_waiting >= self._statistic.size:
            self._merge()

    def _merge(self) -> None:
        """Take what waits into the sample: its rows are sorted once for many small slabs."""
        if self._sample is not None and self._waiting:
            keys, tables = map(np.concatenate, zip(*self._waiting, strict=True))
            self._sample += RowSample.of(self._statistic.size, keys, tables)
            self._waiting, self._n_waiting = [], 0

    def _codes(self, labels: Array | None) -> Array:
        """Places (m,) of the rows' labels among those met."""
        assert labels is not None
        present, inverse = np.unique(labels, return_inverse=True)
        at = [self._labels.setdefault(label, len(self._labels)) for label in present.tolist()]
        return np.asarray(at)[inverse]

    def result(self) -> PilotRows:
        self._merge()
        rows = np.empty((0, 0)) if self._sample is None else self._sample.rows
        return PilotRows(rows, tuple(self._labels), self._n)


MOST_OF_LEAF = 131_072
"""Largest number of rows of a leaf in the pilot: the first ones."""


@dataclass(frozen=True, slots=True)
class WindowStatistic:
    """The ``size`` rows [x, y, w] nearest to each of some rows of a leaf, drawn by their hashes.

    Distances are in units of the typical step from row to row along each input.
    """

    size: int
    seed: int
    count: int = 1  # windows of a leaf

    def start(self) -> Sink:
        return _WindowSink(self)


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """Windows (m, d + T + 1) of rows [x, y, w]; adding puts them one after the other."""

    windows: tuple[Float64, ...] = ()

    def __add__(self, other: Self) -> Self:
        return type(self)(self.windows + other.windows)

    def __sizeof__(self) -> int:
        return sum(window.nbytes for window in self.windows) + 64


class _WindowSink:
    def __init__(self, statistic: WindowStatistic) -> None:
        self._statistic = statistic
        self._rows: list[Float64] = []
        self._places: list[Array] = []
        self._d = self._n = 0

    def add(self, rows: Rows, places: Array) -> None:
        room = max(MOST_OF_LEAF - self._n, 0)
        w = np.ones(len(rows.x)) if rows.w is None else rows.w
        kept = np.column_stack([rows.x, rows.y, w])[:room].astype(np.float64)
        self._rows.append(kept)
        self._places.append(places[:room])
        self._n, self._d = self._n + len(kept), rows.x.shape[1]

    def result(self) -> WindowRows:
        if not self._n:
            return WindowRows()
        rows, places = np.concatenate(self._rows), np.concatenate(self._places)
        x = rows[:, : self._d]
        keys = hash_places(places, self._statistic.seed)
        centres = np.argsort(keys, kind="stable")[: self._statistic.count]
        windows = near_rows(x / neighbour_scale(x), centres, self._statistic.size)
        return WindowRows(tuple(rows[near] for near in windows))


def near_rows(u: Float64, centres: Array, size: int) -> list[Array]:
    """Places of the ``size`` rows of u (m, k) nearest to each of some, in order."""
    found = []
    for centre in centres:
        distance = ((u - u[centre]) ** 2).sum(axis=1)
        found.append(smallest(distance, size))
    return found


def smallest(values: Float64, size: int) -> Array:
    """Places of the ``size`` smallest of some values (m,), in order; of equal ones the first.

    A partition takes a fifth of the time of a sort of 65,536 values.
    """
    if size >= len(values):
        return np.arange(len(values))
    last = np.partition(values, size - 1)[size - 1]
    chosen = values < last
    chosen[np.flatnonzero(values == last)[: size - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)
