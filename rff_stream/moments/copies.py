"""Copies: rows that stand more than once with equal inputs and targets.

With a copy of a held-out row among the others, the model that interpolates looks best; and so it
does where one unit of a heavy row is left out. Copies are one observation of their summed weight:
where a map is drawn, where a row is held out, and where penalties and variances follow from sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.moments.row_sample import RowSample

FEWEST = 20
"""Smallest number of different rows for which equal inputs are copies. With fewer, inputs are
levels, and new rows have them again."""

SHARE = 0.5
"""Smallest share of the different rows that one input alone distinguishes, for which equal rows are
copies. Rows on a lattice of levels may be repeated without being copies."""

NEARLY = 0.5
"""On a lattice, rows with an equal target are copies if pairs that differ in one or two columns are
fewer than this share of equal pairs. Of 97 tables with equal rows the share was up to .27 where
some were written twice (wine_quality .01 and .02), and .62 and more where levels coincide."""

OF_A_LEVEL = 2
"""Different rows of a level, on average, up to which equal ones are no copies: a level beside an
input of two values has two."""

FEWEST_AGAIN = 8
"""Rows that tell whether rows come again, at the least."""

COMPARED = 2**24
"""Numbers that are compared to count such pairs: .05 s."""

OF_ITS_OWN = 0.95
"""Share of the different rows that have a value of their own in one column, from which equal rows
are copies however often each stands. In tables whose values coincide it was .75 (keggdirected), .71
(mammography) and .51 (spambase); of numbers that are not rounded it is 1."""


def equal_rows(x: Array) -> tuple[Array, Array]:
    """The first place of each different row of x (m, d), and which of these each row (m,) is."""
    exact = np.ascontiguousarray(x) + 0  # −0 becomes 0: equal inputs are equal bytes
    whole = exact.view(np.dtype((np.void, exact.itemsize * x.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return first, inverse


def group_copies(x: Array, *, with_target: bool = False) -> Array | None:
    """A number (m,) for each row of x (m, d), the same for the same inputs; None for levels.

    Rows without copies are numbered by their place, copies by that of the first of them. With a
    target in the last column, whose noise differs from row to row, rows on a lattice are copies if
    nearly equal ones are rare. Not of one that is 0 or 1, as of classes: equal rows say how often.
    """
    if len(x) < FEWEST or not x.shape[1]:
        return None
    first, inverse = equal_rows(x)
    if len(first) < FEWEST:
        return None
    if len(first) < len(x) and max(len(np.unique(each)) for each in x.T) < SHARE * len(first):
        noisy = with_target and not np.isin(x[:, -1], (0, 1)).all()
        if not noisy or _coincide(x[first], np.bincount(inverse)):
            return None
    return np.asarray(first[inverse])


def _coincide(x: Array, counts: Array) -> bool:
    """Whether different rows x (m', d), each so often, are repeated because values coincide.

    Then most of their columns coincide more often than all of them do.
    """
    repeated = np.flatnonzero(counts > 1)
    count = min(len(repeated), max(COMPARED // x.size, 1))
    some = repeated[np.linspace(0, len(repeated) - 1, count).astype(int)]
    differ = (np.count_nonzero(x != x[row], axis=1) for row in some)
    nearly = sum(int(counts[(each > 0) & (each <= 2)].sum()) for each in differ)
    return nearly >= NEARLY * int((counts[some] - 1).sum())


def levels_repeat(x: Array, levels: Sequence[int]) -> bool:
    """Whether equal rows of x (m, d) are observations of one level, and no copies.

    The columns ``levels`` hold numbers of levels. They are observations where hardly any other
    input tells the rows of a level apart.
    """
    if not levels:
        return False
    most = max(len(np.unique(x[:, place])) for place in levels)
    return len(equal_rows(x)[0]) <= OF_A_LEVEL * most


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """What is held out with each of m sampled rows."""

    weight: Float64  # (m,), in all data: its own, and that of its copies
    number: Array | None
    """(m,) int: equal for copies of one row; None if the sample has no copies."""
    share: Float64  # (m,), the weight of each row, by which copies are averaged

    @classmethod
    def of(
        cls,
        x: Array,
        weights: Float64,
        units: Float64,
        n_rows: int,
        keys: Array | None = None,
        *,
        with_target: bool = False,
        levels: Sequence[int] = (),
    ) -> Self:
        """For sampled rows x (m, d) with their weights (m,), of so many rows.

        ``units`` (m,) is held out where inputs are levels, such as one unit of each weight;
        ``keys`` as in :func:`drawn_together`, ``with_target`` as in :func:`group_copies`,
        ``levels`` as in :func:`levels_repeat`.

        Notes
        -----
        A sample misses copies. With μ others of a row in all data on average, a row that the
        sample (a share p of all) holds c times has (1 − p)cμ/(pμ + 1) more: a gamma prior of
        shape 1, Poisson counts.
        """
        repeat = levels_repeat(x, levels)
        number = None if repeat else group_copies(x, with_target=with_target)
        if number is None:
            return cls(units, None, weights)
        if (np.bincount(number) <= 1).all():
            return cls(weights, None, weights)
        first, times = drawn_together(len(x), keys)
        counts = np.bincount(number[first], minlength=len(x))[number[first]]
        seen = min(1.0, len(x) / max(n_rows, 1))
        others = float(np.average(counts - 1, weights=times)) / seen
        unseen = (1 - seen) * others / (seen * others + 1)  # of each that is seen
        together = np.bincount(number, weights, len(x))[number]
        return cls(np.asarray(together * (1 + unseen)), number, weights)

    def mean(self, values: Float64) -> Float64:
        """Values (m, k) of rows as the means of their copies."""
        if self.number is None:
            return values
        total, weight = np.zeros_like(values), np.zeros(len(values))
        np.add.at(total, self.number, self.share[:, None] * values)
        np.add.at(weight, self.number, self.share)
        return np.asarray(total[self.number] / weight[self.number, None])

    def with_absent(self, count: int) -> Self:
        """The same with so many rows more, which no fit has met."""
        none, m = np.zeros(count), len(self.weight)
        number = None if self.number is None else np.append(self.number, m + np.arange(count))
        return type(self)(np.append(self.weight, none), number, np.append(self.share, none + 1))


def drawn_together(m: int, keys: Array | None) -> tuple[Array, Array]:
    """Places (m',) of the first rows of each key, and how many of the m rows have it.

    Copies of a row that stand at its place in other batches have its key (``RowSample.keys``): a
    sample holds all of them or none. Copies at other places are drawn independently.
    """
    if keys is None:
        return np.arange(m), np.ones(m)
    _, first, times = np.unique(keys, return_index=True, return_counts=True)
    return first, times


def distinct_rows(
    sample: Float64,
    n_rows: int,
    keys: Array | None = None,
    *,
    with_target: bool = False,
    observed: Array | None = None,
) -> Float64:
    """Rows [x, y, w] (m, ·) of a sample without copies, each with the weight of all of them.

    Those of other rows of the data, so many in all, are estimated as in :class:`HeldOut`.
    ``observed`` (m, ·) tells which rows are equal in place of [x, y].
    """
    w, x = sample[:, -1], sample[:, :-1] if observed is None else observed
    held = HeldOut.of(x, w, w, n_rows, keys, with_target=with_target)
    if held.number is None:
        return sample
    first = held.number == np.arange(len(sample))
    return np.asarray(np.column_stack([sample[first, :-1], held.weight[first]]))


def sample_without_copies(moments: CountedSums) -> Float64:
    """Rows [x, y, w] of the row sample of some sums, copies as one row of their weight.

    All rows where each is an observation (:func:`different_share`).
    """
    sample, observed = moments.sample, moments.sample.as_observed()
    if different_share(observed, with_target=True) == 1.0:
        return sample.rows
    return distinct_rows(sample.rows, moments.n, sample.keys, with_target=True, observed=observed)


def weights_of_single_copies(moments: CountedSums) -> Float64:
    """Weight (m,) of a single copy of each row that :func:`sample_without_copies` gives."""
    rows, observed = moments.sample.rows, moments.sample.as_observed()
    number = group_copies(observed, with_target=True)
    if number is None or _share_of(observed, number) == 1.0:
        return rows[:, -1]
    first = np.flatnonzero(number == np.arange(len(number)))
    return np.asarray(np.bincount(number, rows[:, -1])[first] / np.bincount(number)[first])


def different_share(x: Array, *, with_target: bool = False) -> float:
    """Share of the rows x (m, d) that count as observations, as far as these rows tell.

    Rows that were written several times stand about equally often: their counts vary no more than
    those of chance (variance ≤ mean, as of a Poisson law). Where some stand a hundred times and
    most once, values coincide, and every row is an observation; but not where one column alone has
    a value of its own in nearly every different row: such values do not coincide.
    """
    number = group_copies(x, with_target=with_target)
    return 1.0 if number is None else _share_of(x, number)


def _share_of(x: Array, number: Array) -> float:
    """The same of rows whose copies have one number (m,)."""
    different = len(np.unique(number))
    alike = are_alike(np.bincount(number))
    if alike or max(len(np.unique(each)) for each in x.T) >= OF_ITS_OWN * different:
        return different / len(x)
    return 1.0


def are_alike(counts: Array) -> bool:
    """Whether rows that stand so often vary no more than by chance; those of 0 are no rows."""
    some = counts[counts > 0]
    return bool(some.var() <= some.mean())


def mean_copies(
    x: Float64, n_rows: int, keys: Array | None = None, *, with_target: bool = False
) -> float:
    """How often a row stands in all data on average: rows divided by different rows.

    By Good & Turing: each row that the sample (a share p of all) holds j times has (j + 1)fⱼ₊₁/fⱼ ·
    (1 − p)/p copies that were not sampled, where fⱼ rows were met j times. Where some stand much
    more often than others, those met c > 1 times have (c − 1)/p others: a few rows that stand very
    often count once each. Copies of one key are counted as they are (:func:`drawn_together`).

    References
    ----------
    Good 1953, The population frequencies of species and the estimation of population parameters.
    """
    number = group_copies(x, with_target=with_target)
    return 1.0 if number is None else _mean_of(_counted(x, n_rows, keys, number))


def copies_of(moments: SampledSums) -> float:
    """:func:`mean_copies` of some sums by their row sample; 1 where each row is an observation."""
    sample = moments.sample
    if different_share(sample.rows[:, :-1]) == 1.0:
        return 1.0
    return mean_copies(sample.rows[:, :-1], moments.n, sample.keys)


def copies_of_each(groups: Mapping[Any, SampledSums]) -> dict[Any, float]:
    """:func:`copies_of` of sums that are compared.

    Whether equal rows of a group of few different rows are copies, or levels, all rows tell.
    """
    found = {label: copies_of(each) for label, each in groups.items()}
    samples = {label: each.sample for label, each in groups.items() if len(each.sample.rows)}
    few = [
        label
        for label, sample in samples.items()
        if len(equal_rows(sample.rows[:, :-1])[0]) < min(FEWEST, len(sample.rows))
    ]
    every = [each.rows[:, :-1] for each in samples.values()]
    if few and different_share(np.concatenate(every)) < 1:
        for label in few:
            x, n, keys = samples[label].rows[:, :-1], groups[label].n, samples[label].keys
            first, inverse = equal_rows(x)
            found[label] = _mean_of(_counted(x, n, keys, first[inverse]))
    return found


def _mean_of(counted: tuple[Array, Array, Float64]) -> float:
    """The mean number of copies, each different row once."""
    _, times, each = counted
    return float(1 / np.average(1 / each, weights=times))


def _counted(
    x: Array, n_rows: int, keys: Array | None, number: Array
) -> tuple[Array, Array, Float64]:
    """Rows (m',) of different keys, how many of the sample have each, and their copies (m',).

    ``number`` (m,) is the same for copies.
    """
    first, times = drawn_together(len(x), keys)
    number = number[first]
    counts = np.bincount(number, minlength=len(x))[number]
    seen = min(1.0, len(x) / max(n_rows, 1))
    rows = np.bincount(counts, minlength=counts.max() + 2)  # j f_j: rows that stand j times
    ratio = rows[counts + 1] / (rows[counts] / counts)  # (j + 1) f_(j+1) / f_j
    each = counts + ratio * (1 - seen) / seen
    if not are_alike(np.bincount(number)):
        each = np.where(counts == 1, each, 1 + (counts - 1) / seen)
    return first, times, times * each


def merge_copies(
    x: Float64, y: Float64, w: Float64, *, of_classes: bool = False
) -> tuple[Float64, Float64, Float64]:
    """Rows [x, y, w] without copies, in the order of the first of each, with summed weights.

    Rows on a lattice of levels stay as they are: equal ones are other observations. So do those of
    numbered classes.
    """
    number = group_copies(np.column_stack([x, y]), with_target=not of_classes)
    if number is None:
        return x, y, w
    first = np.flatnonzero(number == np.arange(len(number)))
    if len(first) == len(x):
        return x, y, w
    return x[first], y[first], np.asarray(np.bincount(number, w, len(x))[first], np.float64)


class SampledSums(Protocol):
    """Sums over rows, some of which are kept."""

    @property
    def n(self) -> int: ...
    @property
    def sample(self) -> RowSample: ...


def share_counted(known: Array, n_known: int, new: Array, n_targets: int) -> tuple[float, int]:
    """About which share of new rows [x, y] was counted, wherever they stand; how many tell so.

    ``known`` (k, d + T) are some of n counted rows. Rows are equal in float32. A place may be
    observed again, so that only known rows with targets of their own tell: of new rows that were
    counted, as many are equal to one of these as are among the n. Less those by chance, as often
    as known rows have copies; none if they are less than three standard errors.
    """
    if not n_targets or not len(new) or n_known <= 0:
        return 0.0, 0
    rows = np.concatenate([known, new]).astype(np.float32)
    (_, which), (_, target) = equal_rows(rows), equal_rows(rows[: len(known), -n_targets:])
    own, later = np.split(which, [len(known)])
    before, after = (np.bincount(part, minlength=len(rows)) for part in (own, later))
    telling = own[np.bincount(target)[target] == 1]
    once = int((after == 1).sum())
    expected = once * len(telling) / n_known
    found, by_chance = int((after[telling] == 1).sum()), once * float((before[own] > 1).mean())
    if expected < FEWEST_AGAIN or found - by_chance < 3 * np.sqrt(found + by_chance):
        return 0.0, 0
    return (found - by_chance) / expected, found


def share_of_sample_counted(
    known: RowSample, n_known: int, new: RowSample, n_targets: int
) -> tuple[float, int]:
    """:func:`share_counted` of two row samples: some new rows may be at their old places.

    Such a row is in both samples or in none, so that these rows are counted by themselves. Where
    targets are levels, such as 0, an equal one at a place does not tell that a row comes again.
    """
    if not n_targets:
        return 0.0, 0
    at_place = np.isin(new.keys, known.keys)
    rows = np.concatenate([known.rows, new.rows])[:, -1 - n_targets : -1].astype(np.float32)
    _, target = equal_rows(rows)
    own, later = np.split(target, [len(known.keys)])
    tells = np.bincount(own, minlength=len(rows))[later] <= 1
    found, of = int((at_place & tells).sum()), int((new.is_told_by(known) & tells).sum())
    share = found / of if found >= FEWEST_AGAIN else 0.0
    others = known.rows[~np.isin(known.keys, new.keys), :-1], new.rows[~at_place, :-1]
    moved, more = share_counted(others[0], n_known, others[1], n_targets)
    return share + (1 - share) * moved, found + more


class CountedSums(SampledSums, Protocol):
    """The same with the weights of the rows."""

    @property
    def log_weight(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Observations:
    """What evidence counts: copies are one row of their summed weight."""

    n: int  # different rows
    log_weight: float  # Σ log w over them
    copies: float = 1.0  # of each, on average

    @classmethod
    def of(cls, moments: CountedSums) -> Self:
        """Of sums with a row sample: exact where it holds all rows, else estimated from it.

        All rows where there is no sample, or where it holds no copies.
        """
        rows, n = moments.sample.rows, moments.n
        every, x = cls(n, moments.log_weight), moments.sample.as_observed()
        number = group_copies(x, with_target=True)
        if number is None or _share_of(x, number) == 1.0:
            return every
        first, times, each = _counted(x, n, moments.sample.keys, number)
        if (each <= times).all() and (times == 1).all():
            return every
        w = rows[:, -1]
        if len(rows) == n:
            _, _, together = merge_copies(x[:, :0], x, w)
            return cls(len(together), float(np.log(together).sum()), n / len(together))
        share = times / each
        count = max(round(n * float(share.sum() / times.sum())), 1)
        log_weight = float(np.average(np.log(w[first] * each), weights=share))
        return cls(count, count * log_weight, n / count)

    @property
    def typical_weight(self) -> float:
        """The geometric mean of their weights."""
        return float(np.exp(self.log_weight / max(self.n, 1)))

    def part(self, n_rows: int) -> Self:
        """Of so many of the rows; Σ log w, which is the same for every penalty, stays."""
        return replace(self, n=max(round(n_rows / self.copies), 1))
