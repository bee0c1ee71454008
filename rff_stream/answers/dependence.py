"""Do two groups of columns depend on each other? From second moments of both maps side by side.

    HSIC = ‖C_xy‖² with C_xy = cov(√s z(x), √t z(y)):  0 in the limit only for independent x and y

For independent rows the law of both under independence follows from C_xx and C_yy: a weighted sum
of χ². For rows that depend on their neighbours, the sums of runs of rows are given random signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, stats

from rff_stream._array import Float64
from rff_stream.arguments import SEED, Rule, is_whole
from rff_stream.arguments import whole as whole_number
from rff_stream.errors import takes
from rff_stream.moments import Moments, total
from rff_stream.systems.normal_equations import scatter_about

FEWEST_RUNS = 8
"""Smallest number of runs for a p-value by random signs: 2⁷ different ones."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """How strongly two groups of columns depend on each other."""

    statistic: float  # HSIC
    expected: float  # its mean if the groups were independent
    p_value: float  # probability of at least this statistic if they were
    n: int  # rows


@takes("Moments", remedy="Give rs.collect(…, by=…), or model.moments_.", groups=None)
def hsic(
    moments: Moments | Mapping[Any, Moments],
    split: int,
    *,
    n_signs: int = 9999,
    random_state: int = 0,
) -> Dependence:
    """The Hilbert–Schmidt independence criterion of two groups of columns, with a p-value.

    Parameters
    ----------
    moments : Moments, or mapping of label to Moments
        Order 2, of a map with the columns of z(x) first, then those of z(y): made by
        :func:`~rff_stream.features.by_columns`. A single value assumes independent rows. A
        mapping (``collect(folds=32)``, or whole days by ``by=``) assumes independent members.
    split : int
        R₁, the columns of z(x).
    n_signs : int
        Random signs for a mapping; the smallest p-value is 1/(n_signs + 1).
    random_state : int
        Seed of the signs.

    Returns
    -------
    Dependence

    Raises
    ------
    ValueError
        If split is outside the columns, or there are fewer than 8 runs of rows.

    Notes
    -----
    tr(KHLH)/n² of the kernels ZSZᵀ without a matrix of n × n. Under independence n·HSIC is
    Σ λᵢμⱼχ², λ and μ the eigenvalues of C_xx and C_yy; its tail is that of the χ² with the same
    mean, variance and skewness (Buckley & Eagleson 1988). That is the law of many rows: of two rare
    flags about 5 rows must be expected to have both (Cochran 1954). With .1 expected (300 rows,
    shares of .02), 3.5 % of independent pairs had p < .005. Copies are not independent rows.

    References
    ----------
    Gretton et al. 2008. Zhang, Filippi, Gretton & Sejdinovic 2018 (Fourier features). Cochran 1954.
    Chwialkowski, Sejdinovic & Gretton 2014 (dependent rows).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from rff_stream.features import by_columns
    >>> x = np.random.default_rng(0).normal(size=(1000, 2))
    >>> x[:, 1] += x[:, 0] ** 2  # dependent, hardly correlated
    >>> one = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 32, rng=0)
    >>> both = by_columns({"a": one, "b": one}, ["a", "b"])
    >>> hsic(rs.collect(both, x), 32).p_value < 1e-6
    True
    """
    Rule("a whole number", is_whole).check("split", split)
    whole_number(1).check("n_signs", n_signs)
    SEED.check("random_state", random_state)
    blocks = _RunCovariances.of(moments, split)
    x, y = linalg.eigvalsh(blocks.xx), linalg.eigvalsh(blocks.yy)
    return _test_independence(blocks, x, y, n_signs, random_state)


@dataclass(frozen=True, slots=True, eq=False)
class _RunCovariances:
    """Covariances of scaled features, and Σ w z̃(x) z̃(y)ᵀ of each run of rows."""

    xx: Float64
    yy: Float64
    crosses: Sequence[Float64]
    weight: float
    effective: float
    n: int

    @classmethod
    def of(cls, moments: Moments | Mapping[Any, Moments], split: int) -> _RunCovariances:
        parts = list(moments.values()) if isinstance(moments, Mapping) else [moments]
        parts = [part for part in parts if part.n]
        if not parts:
            raise ValueError("No rows were given, and dependence is that of rows. Collect some.")
        whole = total(parts)
        row = whole.row
        if not 0 < split < row.n_features:
            raise ValueError(
                f"split={split} but the map has {row.n_features} columns, some of x and some of y. "
                "Give the number of those of x."
            )
        if whole.order != 2:
            raise ValueError(
                f"These moments have order {whole.order}, which is means alone, and covariances "
                "need order 2. Collect with order=2."
            )
        if isinstance(moments, Mapping) and len(parts) < FEWEST_RUNS:
            raise ValueError(
                f"{len(parts)} runs of rows were given, but a p-value of dependent rows needs "
                f"{FEWEST_RUNS}. Collect with folds=32."
            )
        mean, root = whole.feature_mean(), np.sqrt(row.prior)
        scaled = [
            scatter_about(part, mean, part.target_mean())[0] * root * root[:, None]
            for part in parts
        ]
        both = np.sum(scaled, axis=0) / whole.weight
        return cls(
            xx=both[:split, :split],
            yy=both[split:, split:],
            crosses=[each[:split, split:] for each in scaled],
            weight=whole.weight,
            effective=whole.weight**2 / whole.squared_weight,
            n=whole.n,
        )


def _test_independence(
    blocks: _RunCovariances, x: Float64, y: Float64, n_signs: int, random_state: int
) -> Dependence:
    """‖C_xy‖² against its law under independence."""
    flat = np.stack([cross.ravel() for cross in blocks.crosses]) / blocks.weight
    statistic = float((flat.sum(axis=0) ** 2).sum())
    if len(flat) == 1:
        expected, p_value = _weighted_chi2(statistic * blocks.effective, x, y)
        return Dependence(statistic, expected / blocks.effective, p_value, blocks.n)
    products = flat @ flat.T
    signs = np.random.default_rng(random_state).choice([-1.0, 1.0], (n_signs, len(flat)))
    chance = np.einsum("bi,ij,bj->b", signs, products, signs, optimize=True)
    more = int((chance >= statistic * (1 - 1e-9)).sum())
    p_value = (more + 1) / (n_signs + 1)
    return Dependence(statistic, float(np.trace(products)), p_value, blocks.n)


def _weighted_chi2(value: float, x: Float64, y: Float64) -> tuple[float, float]:
    """Mean of Σ λᵢμⱼχ²₁ and P(it ≥ value), by the χ² of equal mean, variance and skewness."""
    x, y = np.maximum(x, 0.0), np.maximum(y, 0.0)
    first, second, third = (float((x**k).sum() * (y**k).sum()) for k in (1, 2, 3))
    if not third > 0:
        return first, 1.0
    freedom = second**3 / third**2
    distance = (value - first) / np.sqrt(2 * second)
    return first, float(stats.chi2.sf(freedom + np.sqrt(2 * freedom) * distance, freedom))
