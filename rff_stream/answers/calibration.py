"""What held-out rows say of a model: scores -> log-odds, and intervals that cover.

    log-odds = a·f + b, with one slope a > 0 for all classes and an offset for each

Platt's sigmoid, and its softmax for several classes: the ranking of rows by the score of a class
does not change. Each row is scored by a model that was fitted without it. A line of the inputs may
be added: :mod:`rff_stream.answers.odds_line`. Intervals need no law of the noise: they are a
quantile of residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from rff_stream._array import Array, Float64
from rff_stream.arguments import PROBABILITY
from rff_stream.moments.class_moments import one_hot

SLOWEST = 1e-3
"""Smallest slope. If scores carry no information, the offsets alone give the probabilities."""

NO_SCORE = 1e-100
"""Size of scores of which none tells anything: the square of its inverse is still a number."""

WEIGHT, PRIOR = 1000.0, 1e-4
"""Total weight of all rows, and the precision of a and b about 0, which determines Σb."""

MOST_STEPS = 100  # of Newton; three tables of 2,500 rows (2 to 26 classes) took at most 8

COVERAGE, NORMAL = 0.95, 1.959963984540054
"""After calibration, this share of left-out rows is within this many standard deviations."""

FEWEST_CALIBRATING = 100
"""With fewer sampled rows nothing is calibrated, because a quantile would be too uncertain."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Log-odds a·f + b of scores f, or a·f + b + Bᵀx with inputs x."""

    slope: float  # a > 0
    offset: Float64  # (K,): b
    line: Float64 | None = None  # B (d, K), in units of the inputs

    def __call__(self, scores: Float64, x: Array | None = None) -> Float64:
        """Log-odds (m, K)."""
        found = self.slope * scores + self.offset
        return found if self.line is None or x is None else found + x @ self.line


def mean_calibration(each: Sequence[Calibration]) -> Calibration:
    """The mean of log-odds of the same scores."""
    lines = [one.line for one in each if one.line is not None]
    line = np.sum(lines, axis=0) / len(each) if lines else None
    slope = float(np.mean([one.slope for one in each]))
    return Calibration(slope, np.mean([one.offset for one in each], axis=0), line)


def probabilities(log_odds: Float64) -> Float64:
    """Class probabilities (m, C): of the second class for K = 1, a softmax otherwise."""
    if log_odds.shape[1] > 1:
        return np.asarray(softmax(log_odds, axis=1))
    return np.concatenate([expit(-log_odds), expit(log_odds)], axis=1)


def calibrate(
    scores: Float64, codes: Array, weights: Float64, counts: Float64 | None = None
) -> Calibration:
    """The slope and offsets of least log-loss of held-out scores (m, K), K = 1 for two classes.

    Targets are smoothed by two rows: (N + 1)/(N + 2), with N the rows behind each of two classes,
    and of several behind all: they share the slope, and one of 26 classes has few rows of its own.
    Rows are ``counts`` (C,), Σ of weights where absent. Of ``weights`` only the shares matter.

    References
    ----------
    Platt 1999, for the targets. Guo et al. 2017 (vector scaling).
    """
    binary, both = scores.shape[1] == 1, of_every_class(scores)
    w = weights * (WEIGHT / weights.sum())
    targets = _smooth_targets(codes, weights, counts, both.shape[1])
    found = _newton(both, targets, w, free=True)
    if found[0] < SLOWEST:
        found = _newton(both, targets, w, free=False)
    offset = found[1:]
    return Calibration(float(found[0]), offset[1:] - offset[:1] if binary else offset)


def of_every_class(scores: Float64) -> Float64:
    """Scores (m, C): 0 for the first of two classes."""
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def _smooth_targets(
    codes: Array, weights: Float64, counts: Float64 | None, n_classes: int
) -> Float64:
    """(m, C): one-hot classes, less sure where few rows are behind them."""
    known = np.bincount(codes, weights, n_classes) if counts is None else counts
    known = known * max(1.0, len(codes) / known.sum())  # small weights make no row less sure
    behind = known[codes] if n_classes == 2 else np.full(len(codes), known.sum())
    smooth = 2 / (np.maximum(behind, 1.0) + 2)
    return np.asarray(
        one_hot(codes, n_classes) * (1 - smooth)[:, None] + (smooth / n_classes)[:, None]
    )


def _newton(scores: Float64, targets: Float64, w: Float64, *, free: bool) -> Float64:
    """[a, b…] of least loss; the slope stays at its least where it is not free."""
    theta = np.zeros(scores.shape[1] + 1)
    size = float(np.sqrt(np.average(scores**2, weights=w, axis=0).mean()))
    theta[0] = 1 / size if free and size > NO_SCORE else SLOWEST
    moving = np.arange(0 if free else 1, len(theta))
    value, gradient, hessian = _loss(theta, scores, targets, w)
    for _ in range(MOST_STEPS):
        step = np.zeros_like(theta)
        step[moving] = np.linalg.solve(hessian[np.ix_(moving, moving)], -gradient[moving])
        slope = float(gradient @ step)
        length = 1.0
        found = _loss(theta + step, scores, targets, w)
        while found[0] > value + 1e-4 * length * slope + 1e-12 * abs(value) and length > 1e-8:
            length /= 2
            found = _loss(theta + length * step, scores, targets, w)
        theta = theta + length * step
        value, gradient, hessian = found
        if -slope <= 1e-20 * WEIGHT:
            break
    return theta


def _loss(
    theta: Float64, scores: Float64, targets: Float64, w: Float64
) -> tuple[float, Float64, Float64]:
    """Log-loss with its gradient and Hessian in [a, b…]."""
    odds = theta[0] * scores + theta[1:]
    p = softmax(odds, axis=1)
    shifted = odds - odds.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    value = -float(w @ (targets * logs).sum(axis=1)) + PRIOR / 2 * float(theta @ theta)
    missed = w[:, None] * (p - targets)
    gradient = np.concatenate([[np.sum(missed * scores)], missed.sum(axis=0)]) + PRIOR * theta
    mean = (p * scores).sum(axis=1, keepdims=True)
    spread = w[:, None] * p * (scores - mean)
    inner = np.diag(w @ p) - p.T @ (w[:, None] * p)
    hessian = np.empty((len(theta), len(theta)))
    hessian[0, 0] = float(np.sum(spread * scores))
    hessian[0, 1:] = hessian[1:, 0] = spread.sum(axis=0)
    hessian[1:, 1:] = inner
    return value, gradient, hessian + PRIOR * np.eye(len(theta))


def conformal_quantile(residuals: Array, coverage: float = 0.95, *, chosen: int = 0) -> Float64:
    """Half width q (T,) of intervals ŷ ± q that cover a new row with this probability.

    The ⌈(m + 1)·coverage⌉-th smallest of m |residuals| of rows that the fit did not see: exact for
    exchangeable rows, whatever the model; infinite where m is too small. Residuals divided by each
    row's standard deviation give intervals of varying width. m rows that together chose some
    numbers, such as a penalty, do not show that under fits without single rows: for each ``chosen``
    number the next larger residual is taken, where there is one.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani & Wasserman 2018, algorithm 2 (split conformal).
    """
    sizes = np.abs(np.asarray(residuals, dtype=np.float64))
    sizes = sizes.reshape(len(sizes), -1)
    PROBABILITY.check("coverage", coverage)
    if not np.isfinite(sizes).all():
        raise ValueError("residuals hold NaN or inf. Give residuals of finite rows only.")
    rank = int(np.ceil((len(sizes) + 1) * coverage * (1 - 1e-12)))
    if rank > len(sizes):
        return np.full(sizes.shape[1], np.inf)
    rank = min(rank + chosen, len(sizes))
    return np.asarray(np.partition(sizes, rank - 1, axis=0)[rank - 1])
