"""Two samples from their mean feature vectors: how far apart, and could it be chance.

MMD² = ‖μ_a − μ_b‖² in the kernel's space = Σ s (z̄_a − z̄_b)². Its p-value permutes the 32 + 32
sub-sums, joined in neighbouring pairs: long runs of rows, so that rows which depend on their
neighbours do not look like drift. Second moments, which take rows for independent, would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import ModelError
from rff_stream.features.fourier import RandomState
from rff_stream.moments import Moments, total
from rff_stream.moments.row_sample import RowSample

__all__ = ["TwoSample", "drift", "mmd"]

FEWEST_PARTS = 8
"""Sub-sums of each sample that a p-value needs: in pairs, C(8, 4) = 70 splits."""

BLOCK = 1024
"""Permutations evaluated at a time."""


@dataclass(frozen=True, slots=True)
class TwoSample:
    """How far two samples are apart.

    Parameters
    ----------
    distance : float
        MMD ≥ 0, in units of √κ(0): 0 for equal means of features, at most √(2κ(0)).
    expected : float
        The root mean square of the distance when nothing changed and rows are split alike.
    p_value : float
        Probability of at least this distance when nothing changed.
    n_a, n_b : int
        Rows.
    """

    distance: float
    expected: float
    p_value: float
    n_a: int
    n_b: int


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
        Of the permutations.

    Returns
    -------
    TwoSample

    Raises
    ------
    ModelError
        Different maps or columns, with both fingerprints.
    ValueError
        Order 2, or too few sub-sums with rows.

    Notes
    -----
    Exact for independent rows in sub-sums of equal weight. A split's distance is compared in
    units of √(1/w_a + 1/w_b), so samples of very different sizes keep the level. Runs, n/16
    rows, must be long beside the memory of the rows: 2,000 rows of an autoregression of 0.8
    are below 0.05 with probability 0.06.

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
    _require_same(a, b)
    parts = [_held_parts(moments, name) for moments, name in ((a, "a"), (b, "b"))]
    pooled, first = np.concatenate(parts), len(parts[0])
    weights = pooled[:, -1]
    excess = pooled[:, :-1] - weights[:, None] * (pooled[:, :-1].sum(axis=0) / weights.sum())
    products = (excess * a.row.prior) @ excess.T  # Σ s mₖmₗ of all pairs of sub-sums
    rng = np.random.default_rng(random_state)
    observed = np.arange(len(weights)) < first
    own = _distances(products, weights, observed[None])
    splits = [
        _distances(products, weights, rng.permuted(np.tile(observed, (size, 1)), axis=1))
        for size in _blocks(n_permutations)
    ]
    chance = np.concatenate([*splits, own])
    scale = 1 / weights[observed].sum() + 1 / weights[~observed].sum()
    return TwoSample(
        distance=math.sqrt(own[0] * scale),
        expected=math.sqrt(chance.mean() * scale),
        p_value=float(np.mean(chance >= own[0] * (1 - 1e-9))),
        n_a=a.n,
        n_b=b.n,
    )


def drift(
    groups: Mapping[Any, Moments], reference: Moments | None = None, **choices: Any
) -> dict[Any, TwoSample]:
    """Every group against a reference, or against the sum of all other groups.

    Parameters
    ----------
    groups : mapping of label to Moments
        Order 1, such as time buckets from ``collect(by=…)`` or ``collect(folds=…)``.
    reference : Moments, optional
        What is normal, such as the training data.
    **choices
        As in :func:`mmd`.

    Returns
    -------
    dict of label to TwoSample
        Among m p-values the smallest is below 0.05/m with probability 0.05 by chance.
    """
    if len(groups) < 2 and reference is None:
        raise ValueError(
            f"{len(groups)} group was given and no reference, but drift compares two samples. "
            "Give at least two groups, or a reference."
        )
    bare = {label: _without_sample(moments) for label, moments in groups.items()}
    found = {}
    for label, moments in bare.items():
        others = (other for name, other in bare.items() if name != label)
        found[label] = mmd(moments, total(others) if reference is None else reference, **choices)
    return found


def _without_sample(moments: Moments) -> Moments:
    """The sums alone: samples need not be merged for a mean."""
    width = moments.sample.rows.shape[1]
    return replace(moments, sample=RowSample.empty(0, width))


def _distances(products: Float64, weights: Float64, chosen: Any) -> Float64:
    """Σ s (z̄_a − z̄_b)²/(1/w_a + 1/w_b) of each split (m, K) of the sub-sums in two."""
    w_a = chosen @ weights
    w_b = weights.sum() - w_a
    signs = np.where(chosen, 1 / w_a[:, None], -1 / w_b[:, None])
    squared = np.einsum("mk,mk->m", signs @ products, signs)
    return np.asarray(np.maximum(squared, 0.0) / (1 / w_a + 1 / w_b))


def _blocks(count: int) -> list[int]:
    """Sizes of at most 1,024 that add up."""
    return [min(BLOCK, count - start) for start in range(0, count, BLOCK)]


def _held_parts(moments: Moments, name: str) -> Float64:
    """Sub-sums [Σwz, Σw] (K, R + 1) of the raw map, of neighbouring pairs that hold rows."""
    r = moments.row.n_features
    if moments.parts is None:
        raise ValueError(
            f"{name} has order {moments.order} moments, without the sub-sums of runs of rows that "
            "a p-value of dependent rows needs. Collect it with order=1."
        )
    held = moments.parts[moments.parts[:, r] > 0][:, : r + 1]
    if len(held) < FEWEST_PARTS:
        raise ValueError(
            f"{name} has rows in {len(held)} of its 32 sub-sums, and a p-value needs "
            f"{FEWEST_PARTS}. For groups that are contiguous, such as months, collect with "
            "n_groups=(their number); else take more rows."
        )
    raw = held[:, :r] + held[:, [r]] * moments.row.feature_origin
    pairs = np.arange(0, len(held) - 1, 2)
    return np.asarray(np.add.reduceat(np.column_stack([raw, held[:, r]]), pairs, axis=0))


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
