"""Weights of trees, variances of cells and the width of intervals, from rows that are left out.

Data vary more in one place than in another, so each cell has a scale of its own, estimated from
its rows and drawn towards 1 where these are few. Both variances of cell c are s_c² times those of
its tree, with νσₙ²/(s_c²σₙ²) ~ χ²_ν over the cells. With Q_c = ỹᵀWỹ − C_cᵀβ_c and n_c = rows − 1

    s_c² = (Q_c/σₙ² + ν)/(n_c + ν),
    log p = Σ_c [log Γ((ν + n_c)/2) − log Γ(ν/2) + ν/2 log(νσₙ²) − (ν + n_c)/2 log(νσₙ² + Q_c)] + …

and ν of highest evidence: one noise for all cells is ν → ∞.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import optimize
from scipy.special import gammaln
from scipy.stats import t as student_t

from rff_stream._array import Float64
from rff_stream.answers.calibration import COVERAGE, FEWEST_CALIBRATING, NORMAL, conformal_quantile
from rff_stream.cells.evidence import LocalEvidence
from rff_stream.cells.posterior import LocalPosterior, combine_trees, far_share
from rff_stream.cells.spectrum import TreeCells
from rff_stream.families.protocol import Totals
from rff_stream.features import Projection
from rff_stream.length_scales.candidates import numbers_of
from rff_stream.length_scales.map_choice import SearchRecord
from rff_stream.length_scales.metric_search import SEEN
from rff_stream.length_scales.search import MOST_OF_METRIC
from rff_stream.length_scales.unseen_folds import NUMBERS_TOLD

POWERS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Candidates for p in ω ∝ v⁻ᵖ; 0 is the plain mean of the trees. Leave-one-out errors choose."""

ALIKE = 1.005
"""Powers whose leave-one-out error is within this factor of the smallest count as equal."""

NEAR_SHARE, FAR_SHARE = 0.75, 0.95
"""Shares of left-out rows, ordered by their variance of f. From the first to the second, a
factor below 1 loses its effect; beyond the second there are too few rows to estimate a gap."""

LEAST_NOISE = 1e-3
"""Least variance of the noise, relative to the one that a common factor of noise and f gives."""

FEWEST_FREEDOM, MOST_FREEDOM = 1.0, 1e6
"""Bounds of ν. At the upper one every cell has the variances of its tree."""


def local_posterior(
    evidence: LocalEvidence,
    sample: Float64 | None = None,
    gap_factor: Float64 | float = 1.0,
    *,
    single_weights: Float64 | None = None,
    optimism: Float64 | float = 0.0,
) -> LocalPosterior:
    """The process given the data, its trees weighed and its intervals calibrated on left-out rows.

    p is the largest power whose absolute leave-one-out error on the ``sample`` (rows [x, y, w]) is
    within .5 % of the least: beside rows all trees know as much, and in a gap the tree that knows
    most is right. The variance of y is c²σₙ² + g²v, g = c + max(b − c, 0)·far, b the gap factor,
    and c such that ±1.96 of its root cover 95 % of the left-out rows. c < 1 where trees err
    independently, as beside rows that are landmarks of some; in a gap they err alike. Where tails
    of the noise are heavy c is smaller for the noise than for f. With fewer
    than 100 rows weights are 1/v, and c is that of a noise that few rows tell.

    A row of the sample may stand for several copies, and have the sum of their weights. They share
    one noise, that of a new row with the weight of one copy: ``single_weights`` (m,), those of the
    sample if None.

    Squared errors of rows that helped to find p numbers of the kernel are too small by 2p/n, twice
    the ``optimism`` o = p/n, or (T,) of each target (Akaike 1969): c² is larger by as much. A half
    is of errors of f at new rows: the share o/(1 + 2o) of c²σₙ² is of f, and not of the noise.
    """
    plain = LocalPosterior(
        solved=evidence.solved,
        alpha=evidence.alpha,
        noise_variance=evidence.noise_variance,
        power=1.0,
        inflation=np.ones(evidence.alpha.shape[1]),
        of_function=np.ones(evidence.alpha.shape[1]),
        unknown=optimism / (1 + 2 * optimism),
        near=np.zeros(evidence.alpha.shape[1]),
        far=np.zeros(evidence.alpha.shape[1]),
        cell_scale=tuple(np.ones(tree.scatter.shape) for tree in evidence.solved.trees),
    )
    if sample is None:
        return plain
    if len(sample) < FEWEST_CALIBRATING:
        freedom = max(evidence.solved.observations.n - evidence.solved.fit_intercept, 1)
        factor = unknown_noise_factor(freedom) * np.sqrt(1 + 2 * optimism)
        wider = plain.inflation * factor
        return replace(plain, inflation=wider, of_function=wider)
    plain = replace(plain, cell_scale=_cell_scales(evidence))
    t, tiny = len(plain.inflation), np.finfo(float).tiny
    y, w = sample[:, -t - 1 : -1], sample[:, -1:]
    copies = evidence.solved.observations.copies
    counted = w if single_weights is None else single_weights[:, None] * copies
    trees = plain.left_out_trees(sample)
    fits = [(power, *combine_trees(trees, power)) for power in POWERS]
    unit = np.maximum(plain.noise(), tiny)
    losses = [float((w * abs(y - fit[1]) / np.sqrt(unit)).sum()) for fit in fits]
    alike = [fit for fit, loss in zip(fits, losses, strict=True) if loss <= ALIKE * min(losses)]
    power, mean, variance, noise, reach = alike[-1]
    near, far = np.quantile(reach, (NEAR_SHARE, FAR_SHARE), axis=0)
    share = far_share(reach, near, far)
    wanted, larger = ((y - mean) / NORMAL) ** 2, np.sqrt(1 + 2 * optimism)
    of_noise, of_function = _factors(wanted, variance, noise / counted, share, gap_factor)
    return replace(
        plain,
        power=power,
        inflation=of_noise * larger,
        of_function=of_function * larger,
        near=near,
        far=far,
        gap_factor=np.broadcast_to(gap_factor, near.shape),
        left_out_known=(sample, trees),
    )


def numbers_found(totals: Totals, n: float) -> Float64 | float:
    """How many numbers of kernel and metric were found from targets of n rows: p, or (T,).

    By what searches without folds of the rows said, else by their count.
    Of more directions than a full metric has, one row in ``SEEN`` gave the slopes: they tell no
    more numbers than they are.
    """
    if NUMBERS_TOLD in totals.scales:
        return totals.scales[NUMBERS_TOLD]
    if "choice" not in totals.scales:
        return 0
    encoding = totals.features.encoding
    metric = getattr(encoding, "second", encoding)
    mixed = isinstance(metric, Projection)
    found = SearchRecord.of(totals.scales["choice"]).n_free
    if found is None:
        scales = np.size(totals.features.kernel.length_scale)
        found = numbers_of(*metric.matrix.shape) if mixed else int(scales)
    return min(found, n / SEEN) if mixed and metric.n_components > MOST_OF_METRIC else found


def least_alpha(totals: Totals) -> float:
    """The α below which evidence is not followed, as left-out errors of the search say."""
    choice = totals.scales.get("choice")
    return 0.0 if choice is None else SearchRecord.of(choice).least_alpha


def unknown_noise_factor(freedom: int) -> float:
    """By how much a deviation grows so that ±1.96 of it cover 95 % although the noise is estimated.

    With p(σ²) ∝ 1/σ² a new observation has Student's distribution of n − 1 degrees of freedom
    (Santner, Williams & Notz 2018, theorem 4.1.2).
    """
    return float(student_t.ppf((1 + COVERAGE) / 2, freedom) / NORMAL)


def _needed_factor(
    wanted: Float64, variance: Float64, noise: Float64, far: Float64, gap_factor: Float64 | float
) -> Float64:
    """Least c ≥ 0 with c²·noise + (c + max(b − c, 0)·far)²·variance ≥ wanted."""
    tiny, rest = np.finfo(float).tiny, 1 - far
    # up to b the root of c²(noise + rest²·variance) + 2c·half = missing
    half = gap_factor * far * rest * variance
    missing = np.maximum(wanted - (gap_factor * far) ** 2 * variance, 0)
    root = np.sqrt(half**2 + (noise + rest**2 * variance) * missing)
    below = missing / np.maximum(half + root, tiny)
    above = np.sqrt(wanted / np.maximum(variance + noise, tiny))
    return np.where(above > gap_factor, above, np.minimum(below, gap_factor))


def _factors(
    wanted: Float64, variance: Float64, noise: Float64, far: Float64, gap_factor: Float64 | float
) -> tuple[Float64, Float64]:
    """c (T,) of the deviation of the noise, and of that of f: 95 % of the rows are inside.

    Of residuals with heavy tails 95 % are inside a c far below 1, and f, found by least squares, is
    wrong by what the others add to the mean square. So that of f is the root mean square where that
    is larger, if at most 1, what evidence says; no more than covers 95 % with hardly a noise.
    """
    total = variance + noise
    squares = np.divide(NORMAL**2 * wanted, total, out=np.zeros_like(total), where=total > 0)
    one, most = (
        conformal_quantile(_needed_factor(wanted, variance, each, far, gap_factor), COVERAGE)
        for each in (noise, LEAST_NOISE * noise)
    )
    most = np.minimum(np.minimum(np.sqrt(squares.mean(axis=0)), most), 1.0)
    heavy = most > one
    if not heavy.any():
        return one, one
    of_function = np.where(heavy, most, one)
    own = (of_function + np.maximum(gap_factor - of_function, 0) * far) ** 2 * variance
    rest = np.maximum(wanted - own, 0)
    rest = np.divide(rest, noise, out=np.zeros_like(rest), where=heavy & (rest > 0))
    of_noise = np.sqrt(np.maximum(conformal_quantile(rest, COVERAGE), LEAST_NOISE * one**2))
    return np.where(heavy, of_noise, one), of_function


def _cell_scales(evidence: LocalEvidence) -> tuple[Float64, ...]:
    """s_c² (k, T) of the cells of each tree; their rows are counted by their share of Σ w."""
    solved = evidence.solved
    scales = []
    for tree, alpha, noise in zip(
        solved.trees, evidence.alpha, evidence.noise_variance, strict=True
    ):
        rows = solved.observations.n * tree.weight / tree.weight.sum()
        freedom = np.maximum(rows - solved.fit_intercept, 0)
        scales.append(_cell_scale(tree, alpha, noise, freedom))
    return tuple(scales)


def _cell_scale(tree: TreeCells, alpha: Float64, noise: Float64, freedom: Float64) -> Float64:
    """s_c² (k, T) of the cells of a tree, for the ν of highest evidence of each target."""
    misfit = tree.scatter - tree.explained(alpha)
    misfit = np.maximum(misfit, 0)
    scale: Float64 = np.ones_like(misfit)
    for target in np.flatnonzero(noise > 0):
        own = misfit[:, target] / noise[target]

        def loss(log_nu: float, own: Float64 = own) -> float:
            nu = np.exp(log_nu)
            value = gammaln((nu + freedom) / 2) - gammaln(nu / 2) + nu / 2 * np.log(nu)
            return -float((value - (nu + freedom) / 2 * np.log(nu + own)).sum())

        bounds = (np.log(FEWEST_FREEDOM), np.log(MOST_FREEDOM))
        best: Any = optimize.minimize_scalar(loss, bounds=bounds, method="bounded")
        nu = float(np.exp(best.x))
        scale[:, target] = (own + nu) / (freedom + nu)
    return scale
