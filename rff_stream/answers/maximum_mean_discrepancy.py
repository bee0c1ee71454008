"""Two samples, compared by their mean feature vectors: the distance MMD and its p-value.

MMD² = ‖μ_a − μ_b‖² in the kernel's space = Σ s (z̄_a − z̄_b)². Its p-value permutes sub-sums:
whole batches where there are enough of them, so that days which differ do not look like drift;
else long runs of rows, so that dependence between neighbours does not look like drift either; what
neighbouring runs still have in common makes distances of chance larger.
A test by second moments assumes independent rows and would report drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from rff_stream._array import Float64
from rff_stream.arguments import SEED, Rule, truth
from rff_stream.arguments import whole as whole_number
from rff_stream.errors import DataError, ModelError, takes, warn
from rff_stream.features.base import RandomState
from rff_stream.moments import Moments, total
from rff_stream.moments.copies import copies_of_each
from rff_stream.moments.runs import FEWEST_READINGS, SubSums, held_sub_sums
from rff_stream.progress import Progress

FEWEST_PARTS = 8
"""Smallest number of sub-sums of each sample for a p-value: in pairs, C(8, 4) = 70 splits."""

FEWEST_SPLITS = 900
"""Smallest number of splits for which whole batches are permuted: 6 against 6 have 924."""

MOST_PARTS = 256
"""Most sub-sums of a sample whose splits are compared: a permutation costs their square."""

BLOCK = 1024
"""Permutations evaluated at a time."""

MORE_ROWS = (
    "For groups that are contiguous, such as months, say how many there are (n_groups of collect, "
    "--buckets of the shell); else take more rows."
)
"""The remedy of too few sub-sums."""

MOST_NAMED = 5
"""Groups that a message names."""

_REFERENCE = object()  # its key among groups: no label is equal to it


@dataclass(frozen=True, slots=True)
class TwoSample:
    """The distance between two samples, and its p-value."""

    distance: float  # MMD ≥ 0, in units of √κ(0): 0 for equal means of features, at most √(2κ(0))
    expected: float
    """Root mean square of the distance if nothing has changed and rows are split in the same
    way."""
    p_value: float  # probability of at least this distance when nothing changed
    n_a: int  # rows
    n_b: int


SUMS = Rule(
    "Moments", lambda value: isinstance(value, Moments), remedy="Give rs.collect(…, order=1)."
)


@takes("Moments", remedy="Give rs.collect(…, order=1).")
def mmd(
    a: Moments, b: Moments, *, n_permutations: int = 9999, random_state: RandomState = 0
) -> TwoSample:
    """Maximum mean discrepancy of two samples, with a p-value.

    Parameters
    ----------
    a, b : Moments
        Order 1, of the same map and columns: groups of one pass, or stored batches.
    n_permutations : int
        The smallest p-value is 1/(n_permutations + 1).
    random_state : seed
        Seed of the permutations.

    Returns
    -------
    TwoSample

    Raises
    ------
    ModelError
        If maps or columns differ; the message has both fingerprints.
    ValueError
        For moments of order 2, or too few sub-sums with rows.

    Notes
    -----
    If the moments are sums of enough batches for 900 different splits (6 batches against 6, 3
    against 17), whole batches are permuted: then days may differ from each other. With fewer
    batches, runs of n/16 rows of each sample are permuted; if one sample has 6 batches, the
    p-value is at least that of the F distribution with the variance between batches (Box 1954).
    With fewer than 6 batches on both sides, the effect of a single day cannot be distinguished
    from drift.

    The test is exact for independent rows in sub-sums of equal weight. The distance of a split is
    measured in units of √(1/n_a + 1/n_b), n = (Σw)²/Σw², so weights may be in another unit in each
    sample. For samples of very different sizes p-values are too small: of 200 rows against 2,200,
    7 % were below 0.05 and 0.8 % below 0.002. (:func:`drift` keeps the runs of all groups apart,
    and its p-values are right.)

    Where neighbouring runs are alike, squared distances of chance are 1 + 2ρ times as large, with ρ
    their correlation within a sample: of 200 rows of autocorrelation 0.8 without drift, 12 rows a
    run, 5.5 % of p-values are below 0.05 (14 % as if runs were independent). A correlation that
    reaches over several runs is more than that says: take more rows, or batches.

    Copies of a row are one row of their summed weight: with c of each, a mean varies as that of
    n/c rows. The row samples of both tell c, so sums that were collected with ``sample_rows=0``
    count each row. Where runs are permuted, the squared distances of chance are c times as large,
    as if no two copies were in one run. So copies that are neighbours cost power. Batches that are
    permuted whole differ by as much as they do.

    References
    ----------
    Gretton et al. 2012, section 2; Zhao & Meng 2015 (Fourier features).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(2000, 1))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 128, rng=0)
    >>> parts = rs.collect(features, np.concatenate([x, x + 0.5]), by=[0] * 2000 + [1] * 2000,
    ...                    order=1, n_groups=2)
    >>> rs.mmd(parts[0], parts[1]).p_value < 0.01
    True
    """
    SUMS.check("b", b)
    copies = copies_of_each({"a": a, "b": b})
    return _compare(a, [b], (copies["a"], copies["b"]), n_permutations, random_state)


def _compare(
    a: Moments,
    others: Sequence[Moments],
    copies: tuple[float, float],
    n_permutations: int = 9999,
    random_state: RandomState = 0,
) -> TwoSample:
    """:func:`mmd` of a and the sum of others, of which a row stands so often on average.

    Runs of the others are not joined, as far as there are not too many: splits then are of parts of
    like weight, and small p-values are right.
    """
    whole_number(1).check("n_permutations", n_permutations)
    SEED.check("random_state", random_state)
    b = total(others)
    _require_same(a, b)
    held = [_sub_sums_of(moments, name) for moments, name in ((a, "a"), (b, "b"))]
    counts = [each.n_readings for each in held]
    whole, larger = math.comb(sum(counts), counts[0]) >= FEWEST_SPLITS, 1.0
    if whole:
        parts = [_raw(each.by_reading(), of) for each, of in zip(held, (a, b), strict=True)]
    else:
        runs = [_raw(_sub_sums_of(each, "b").in_pairs(), b) for each in others]
        parts = [_raw(held[0].in_pairs(), a), _at_most(np.concatenate(runs), MOST_PARTS)]
        larger = _dependence([parts[0], *runs], a.row.prior)
    pooled, first = np.concatenate(parts), len(parts[0])
    weights, products = _products(pooled, a.row.prior)
    observed = np.arange(len(weights)) < first
    own = _distances(products, weights, observed[None])
    rng = np.random.default_rng(random_state)
    splits = _permuted_distances(products, weights, observed, n_permutations, rng)
    per_weight = 1 / np.array([weights[observed].sum(), weights[~observed].sum()])
    scale = float(per_weight.sum())
    if not whole:
        larger *= float(per_weight @ copies) / scale
    chance = np.concatenate([larger * np.concatenate(splits), own])
    p_value, expected = float(np.mean(chance >= own[0] * (1 - 1e-9))), float(chance.mean())
    if not whole and max(counts) >= FEWEST_READINGS:
        which = int(np.argmax(counts))
        batches = _raw(held[which].by_reading(), (a, b)[which])
        p_value = max(p_value, _p_of_batches(float(own[0]), batches, a.row.prior))
    return TwoSample(
        distance=math.sqrt(own[0] * scale),
        expected=math.sqrt(expected * scale),
        p_value=p_value,
        n_a=a.n,
        n_b=b.n,
    )


@takes("Moments", remedy="Give rs.collect(…, order=1, by=…).", groups=True)
def drift(
    groups: Mapping[Any, Moments],
    reference: Moments | None = None,
    *,
    progress: bool = True,
    **choices: Any,
) -> dict[Any, TwoSample]:
    """Every group against a reference, or against the sum of all other normal groups.

    Without a reference, the group that is farthest from all others goes first, if its p-value is
    below 0.05 divided by the number of groups; then the next one, against those that are left. At
    most a third go. So one bad day does not make the good ones look changed.

    Parameters
    ----------
    groups : mapping of label to Moments
        Order 1, such as time buckets from ``collect(by=…)`` or ``collect(folds=…)``.
    reference : Moments, optional
        Moments of normal rows, such as the training data.
    progress : bool
        Whether a bar counts the comparisons, after two seconds: a hundred groups take 15 s.
    **choices
        As in :func:`mmd`.

    Returns
    -------
    dict of label to TwoSample
        Without drift, the smallest of m p-values is below 0.05/m with probability 0.05. Groups of
        fewer than 8 sub-sums (of 8 rows, say) are left out, of the others' reference, too.

    Raises
    ------
    DataError
        If fewer than two groups have enough rows, or with a reference none.
    ValueError
        If there is one group and no reference.

    Warns
    -----
    NumericalWarning
        Naming the groups that are left out.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> day = np.repeat([1, 2, 3], 1000)
    >>> X[day == 3] += 0.3
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 128, rng=0)
    >>> found = drift(rs.collect(features, X, by=day, order=1))
    >>> [label for label, each in found.items() if each.p_value < 0.05 / 3]
    [3]
    """
    replace(SUMS, optional=True).check("reference", reference)
    truth().check("progress", progress)
    if len(groups) < 2 and reference is None:
        raise ValueError(
            f"{len(groups)} group was given and no reference, but drift compares two samples. "
            "Give at least two groups, or a reference."
        )
    groups = _with_enough_rows(groups, 2 if reference is None else 1)
    bare = {label: moments.without_sample() for label, moments in groups.items()}
    all_sums = groups if reference is None else {**groups, _REFERENCE: reference}
    copies = copies_of_each(all_sums)
    with Progress("drift", None, shown=progress, unit="comparison") as bar:
        if reference is None:
            return _against_others(bare, copies, bar, choices)
        found, usual = {}, copies[_REFERENCE]
        for label, moments in bare.items():
            found[label] = _compare(moments, [reference], (copies[label], usual), **choices)
            bar.advance(1)
        return found


def _against_others(
    bare: Mapping[Any, Moments],
    copies: Mapping[Any, float],
    bar: Progress,
    choices: Mapping[str, Any],
) -> dict[Any, TwoSample]:
    """Every group against the sum of the others that are not unlike them."""
    unlike: set[Any] = set()
    found: dict[Any, TwoSample] = {}
    # Who is still to be compared with those that are left: after one went, the far ones first.
    again = due = list(bare)
    while again:
        for label in again:
            others = [name for name in bare if name != label and name not in unlike]
            usual = np.average(
                [copies[name] for name in others], weights=[bare[name].n for name in others]
            )
            rest = [bare[name] for name in others]
            found[label] = _compare(bare[label], rest, (copies[label], float(usual)), **choices)
            bar.advance(1)
        due = [label for label in due if label not in again]
        far = [k for k in bare if k not in unlike and found[k].p_value < 0.05 / len(bare)]
        again = due
        if far and 3 * (len(unlike) + 1) <= len(bare):
            worst = max(far, key=lambda label: found[label].distance / found[label].expected)
            unlike.add(worst)
            due = [label for label in bare if label != worst]
            again = [label for label in far if label != worst] or due
    return found


def _distances(products: Float64, weights: Float64, chosen: Any) -> Float64:
    """Σ s (z̄_a − z̄_b)²/(1/w_a + 1/w_b) of each split (m, K) of the sub-sums in two."""
    w_a = chosen @ weights
    w_b = weights.sum() - w_a
    signs = np.where(chosen, 1 / w_a[:, None], -1 / w_b[:, None])
    squared = np.einsum("mk,mk->m", signs @ products, signs)
    return np.asarray(np.maximum(squared, 0.0) / (1 / w_a + 1 / w_b))


def _permuted_distances(
    products: Float64, weights: Float64, observed: Any, count: int, rng: np.random.Generator
) -> list[Float64]:
    """Distances of so many random splits, of as many sub-sums as the observed one, in blocks."""
    return [
        _distances(products, weights, rng.permuted(np.tile(observed, (size, 1)), axis=1))
        for size in (min(BLOCK, count - k) for k in range(0, count, BLOCK))
    ]


def _sub_sums_of(moments: Moments, name: str) -> SubSums:
    """Sub-sums that hold rows; refuses too few."""
    found = _held(moments, name)
    if len(found.sums) < FEWEST_PARTS:
        raise DataError(
            f"{name} has {moments.n} row(s) in {len(found.sums)} of its 32 sub-sums, and a p-value "
            f"needs {FEWEST_PARTS}. {MORE_ROWS}"
        )
    return found


def _held(moments: Moments, name: str) -> SubSums:
    """Sub-sums that hold rows; refuses moments without any."""
    found = held_sub_sums(moments.parts, moments.runs, moments.row.n_features, name)
    if found is None:
        raise ValueError(
            f"{name} has order {moments.order} moments, without the sub-sums of runs of rows that "
            "a p-value of dependent rows needs. Collect it with order=1."
        )
    return found


def _with_enough_rows(groups: Mapping[Any, Moments], fewest: int) -> dict[Any, Moments]:
    """Groups that have a p-value, with a warning that names the others; refuses too few groups."""
    held = {label: _held(moments, f"Group {label!r}") for label, moments in groups.items()}
    few = [label for label, each in held.items() if len(each.sums) < FEWEST_PARTS]
    if not few:
        return dict(groups)
    named = [
        f"{label!r} ({groups[label].n} row(s) in {len(held[label].sums)})"
        for label in few[:MOST_NAMED]
    ]
    named += [f"{len(few) - MOST_NAMED} more"] if len(few) > MOST_NAMED else []
    fact = (
        f"{len(few)} group(s) have rows in fewer than {FEWEST_PARTS} of their 32 sub-sums, which "
        f"a p-value needs: {', '.join(named)}."
    )
    if len(groups) - len(few) < fewest:
        raise DataError(f"{fact} {MORE_ROWS}")
    warn(f"{fact} They are left out of the comparison. {MORE_ROWS}")
    return {label: moments for label, moments in groups.items() if label not in few}


def _at_most(sums: Float64, most: int) -> Float64:
    """The same rows in at most so many sums: of as many neighbours each."""
    return np.add.reduceat(sums, np.arange(0, len(sums), -(-len(sums) // most)), axis=0)


def _raw(sums: Float64, moments: Moments) -> Float64:
    """Sub-sums [Σwz, Σw] (K, R + 1) of the raw map, of weights that add up to n = (Σw)²/Σw²."""
    raw = sums[:, :-1] + sums[:, -1:] * moments.row.feature_origin
    unit = moments.squared_weight / moments.weight
    return np.column_stack([raw, sums[:, -1]]) / unit


def _products(sums: Float64, prior: Float64) -> tuple[Float64, Float64]:
    """Weights (K,), and Σ s mₖmₗ (K, K) of the sub-sums about their common mean."""
    weights = sums[:, -1]
    excess = sums[:, :-1] - weights[:, None] * (sums[:, :-1].sum(axis=0) / weights.sum())
    return weights, (excess * prior) @ excess.T


def _dependence(samples: Sequence[Float64], prior: Float64) -> float:
    """How many times as large the variance of a mean is as that of independent runs, at least 1.

    1 + 2ρ with ρ the correlation of neighbouring runs of each sample, without bias: deviations from
    the mean of K independent runs have −1/K.
    """
    beside = spread = 0.0
    for sums in samples:
        weights, products = _products(sums, prior)
        root = np.sqrt(weights)
        products = products / np.outer(root, root)
        own = float(np.trace(products))
        beside += float(np.trace(products, 1)) + own / len(weights)
        spread += own
    return 1 + 2 * max(beside / spread, 0.0) if spread > 0 else 1.0


def _p_of_batches(distance: float, batches: Float64, prior: Float64) -> float:
    """Probability of a scaled distance, by the spread of K batches.

    The scaled distance is Σ λχ²₁ with the eigenvalues λ of their covariance: by Box it is
    tr Σ · F(ν, ν(K − 1)), ν = (tr Σ)²/tr Σ². Both traces without bias (Bai & Saranadasa 1996).
    """
    weights, products = _products(batches, prior)
    root, free = np.sqrt(weights), len(weights) - 1
    covariance = products / np.outer(root, root) / free
    trace, square = float(np.trace(covariance)), float((covariance**2).sum())
    unbiased = free**2 / ((free + 2) * (free - 1)) * (square - trace**2 / free)
    if not trace > 0:
        return float(distance <= 0)
    freedom = trace**2 / max(unbiased, trace**2 / len(prior))
    return float(stats.f.sf(distance / trace, freedom, freedom * free))


def _require_same(a: Moments, b: Moments) -> None:
    if a.row.map_fingerprint != b.row.map_fingerprint:
        raise ModelError(
            f"a was collected with feature map {a.row.map_fingerprint[:12]} and b with "
            f"{b.row.map_fingerprint[:12]}, and samples are compared in one feature space. "
            "Collect both with the same map, such as model.features_."
        )
    if a.row.inputs != b.row.inputs or a.row.units != b.row.units:
        raise ModelError(
            f"a and b differ in {a.row.difference(b.row)}. Samples are compared in the same "
            "inputs and units; convert one of them."
        )
