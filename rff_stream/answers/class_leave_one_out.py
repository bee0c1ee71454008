"""The penalty of least squares on one-hot classes, by leave-one-out Brier score; calibration.

One decomposition gives the fit at every α and, for any sampled row, its score under the fit
without that row: nothing is read or fitted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import Calibration, calibrate
from rff_stream.answers.dual import spectrum_of_rows
from rff_stream.answers.penalty_selection import (
    Selection,
    alpha_grid,
    cross_validate,
    sums_of_others,
)
from rff_stream.answers.ridge import Ridge, ridge, ridge_at
from rff_stream.features.base import FeatureMap
from rff_stream.features.level_intercepts import intercepts_in
from rff_stream.losses.classification import Loss
from rff_stream.losses.descent import Point
from rff_stream.losses.penalised import Penalised
from rff_stream.moments.class_moments import ClassMoments, one_hot
from rff_stream.moments.copies import HeldOut
from rff_stream.stored_fields import NOT_STORED
from rff_stream.systems.spectrum import Spectrum

LEAST_LEFT = 0.05
"""Lower limit of the share of a row's curvature that comes from other rows, in a Newton step."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearClassifier:
    """A linear classifier of raw feature columns: log-odds ≈ intercept + Z coef."""

    coef: Float64  # (R, K); K = 1 for two classes
    intercept: Float64  # (K,)
    alpha: float
    df: float
    selection: Selection | None = field(default=None, metadata=NOT_STORED)
    """Scores of every α, where it was chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Feature rows of the row sample."""

    Z: Float64  # (m, R)
    codes: Array  # (m,) int, class numbers
    weights: Float64  # (m,), scaled so that every class has its weight in all rows
    held: HeldOut
    """Copies that are held out together with a row. If inputs are levels, a row of sample weight
    3 counts as three rows, which are held out one by one."""
    counts: Float64  # (C,), rows of each class in the sample, by their weights

    def scored(self, held_out: Float64) -> HeldOutScores:
        """The rows with their scores (m, K)."""
        return HeldOutScores(held_out, self.codes, self.weights, self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScores:
    """Scores of rows by fits that did not see them."""

    scores: Float64  # (m, K)
    codes: Array  # (m,) int, class numbers
    weights: Float64  # (m,)
    counts: Float64  # (C,), rows of each class, by their own weights


def sample_classes(
    classes: ClassMoments, features: FeatureMap, class_weight: Mapping[Any, float]
) -> Sampled:
    """The row sample of class moments, mapped and weighted by class.

    A class that the sample missed is there as its mean feature row, with its weight.
    """
    moments = classes.moments
    rows, d = moments.sample.rows, len(moments.row.inputs)
    codes, w = rows[:, d:-1].argmax(axis=1), rows[:, -1]
    factor = np.array([class_weight.get(label, 1.0) for label in classes.labels])
    found = np.bincount(codes, w, len(classes.labels))
    absent = np.flatnonzero((found == 0) & (classes.weights > 0))
    share = classes.weights / np.where(found > 0, found, 1.0)
    Z = features(rows[:, :d]).astype(np.float64)
    units = np.minimum(w, factor[codes])
    levels = [place for place, _, _ in intercepts_in(features)]
    keys = moments.sample.keys
    held = HeldOut.of(rows[:, :d], w, units, moments.n, keys, levels=levels)
    return Sampled(
        np.concatenate([Z, classes.class_means(absent)]),
        np.concatenate([codes, absent]),
        np.concatenate([w * share[codes], classes.weights[absent]]),
        held.with_absent(len(absent)),
        found / np.where(factor > 0, factor, 1.0),
    )


def least_squares(classes: ClassMoments, sample: Sampled, alpha: float | None) -> LinearClassifier:
    """Least squares at α, or (None) at that of least leave-one-out Brier score on the sample.

    Calibrated on the same leave-one-out scores. One decomposition of R×R, and 2mR² flops for m
    sampled rows.
    """
    found = spectrum_of_rows(classes.moments)
    out = _LeaveOneOut(found, sample)
    selection = None
    if alpha is None:
        selection = _by_sample(found, out, classes)
        alpha = selection.best.alpha
    answer = ridge_at(found, alpha)
    return _linear(answer, sample.scored(out.scores(float(answer.alpha[0]))), selection)


def squared_by_folds(
    classes: ClassMoments, folds: Mapping[Any, ClassMoments], samples: Mapping[Any, Sampled]
) -> LinearClassifier:
    """Least squares at the α of least Brier score on held-out runs of rows.

    All folds have the labels of the whole. Calibrated on the ``samples`` of the folds, each scored
    by the model of the other folds.
    """
    moments = {fold: part.moments for fold, part in folds.items()}
    chosen = cross_validate(moments, sizes=[classes.moments.row.n_features])
    chosen = replace(chosen, criterion="Brier score", scale=np.ones_like(chosen.scale))
    alpha, order = chosen.best.alpha, list(folds)
    held_out = [np.empty(0)] * len(order)
    for k, others in sums_of_others(list(moments.values())):
        model = ridge(others, alpha, floor="raise_silently")
        held_out[k] = model.predict(samples[order[k]].Z)
    parts = [samples[fold] for fold in order]
    scores = HeldOutScores(
        np.concatenate(held_out),
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.sum([part.counts for part in parts], axis=0),
    )
    return _linear(ridge(classes.moments, alpha), scores, chosen)


def calibrate_linear(linear: LinearClassifier, found: HeldOutScores) -> LinearClassifier:
    """The classifier with log-odds for scores."""
    odds: Calibration = calibrate(found.scores, found.codes, found.weights, found.counts)
    return replace(linear, coef=odds.slope * linear.coef, intercept=odds(linear.intercept))


def almost_left_out(problem: Penalised, loss: Loss, at: Point, sample: Sampled) -> Float64:
    """Scores (m, K) of sampled rows under nearly the fit without one unit of each.

    One Newton step away from each row: f + hℓ′/(1 − hℓ″) with its leverage h by a Hessian from the
    sampled rows, so that it is below 1 whatever α.
    """
    coef, intercept = problem.linear(at.theta)
    F = sample.Z @ coef + intercept
    system = problem.system
    rows = np.ones((len(F), system.n_features + 1))
    rows[:, :-1] = (sample.Z - system.feature_mean) * system.root_prior
    slope, out = sample.held.mean(loss.slope(F, sample.codes)), F.copy()
    for k, curvature in enumerate(loss.curvatures(F, sample.codes).T):
        hessian = (rows.T * (sample.weights * curvature)) @ rows
        hessian.flat[:: len(hessian) + 1] += problem.alpha
        bent = sample.held.mean(curvature[:, None])[:, 0]
        leverage = sample.held.weight * np.einsum("mr,rm->m", rows, linalg.solve(hessian, rows.T))
        out[:, k] += leverage * slope[:, k] / np.maximum(1 - leverage * bent, LEAST_LEFT)
    return out


def _linear(
    answer: Ridge, held_out: HeldOutScores, selection: Selection | None
) -> LinearClassifier:
    """Scores of one-hot targets as one score ±1 for two classes, calibrated."""
    coef, intercept = answer.coef, answer.intercept
    if coef.shape[1] == 2:
        coef, intercept = coef @ _SIDES, intercept @ _SIDES
        held_out = replace(held_out, scores=held_out.scores @ _SIDES)
    plain = LinearClassifier(
        coef, intercept, float(answer.alpha[0]), float(answer.df[0]), selection
    )
    return calibrate_linear(plain, held_out)


_SIDES = np.array([[-1.0], [1.0]])


class _LeaveOneOut:
    """Scores of sampled rows under the fit without one unit of each, at any α."""

    def __init__(self, found: Spectrum, sample: Sampled) -> None:
        system = found.system
        self._found, self._require_fit, self.weights = found, sample.held, sample.weights
        self._rotated = (sample.Z - system.feature_mean) @ found.rotation  # (m, R)
        self._squares = self._rotated**2
        self.targets = one_hot(sample.codes, system.n_targets)
        self._means = sample.held.mean(self.targets)

    def scores(self, alpha: float) -> Float64:
        """y − (y − ŷ)/(1 − h) (m, C), with the mean y of copies."""
        found, system = self._found, self._found.system
        shifted = found.eigenvalues + alpha
        fitted = self._rotated @ (found.rhs / shifted[:, None]) + system.target_mean
        leverage = self._require_fit.weight * (self._squares @ (1 / shifted) + 1 / system.weight)
        left = np.maximum(1 - leverage, np.finfo(np.float64).eps)
        return np.asarray(self._means - (self._means - fitted) / left[:, None])


def _by_sample(found: Spectrum, out: _LeaveOneOut, classes: ClassMoments) -> Selection:
    """Brier scores of every α on the sample."""
    grid = alpha_grid(found.eigenvalues)
    weights = out.weights / out.weights.sum()
    scores = np.array([weights @ (out.scores(a) - out.targets) ** 2 for a in grid])
    return Selection(
        criterion="leave-one-out Brier score on the row sample",
        targets=classes.moments.row.targets,
        folds=(),
        sizes=(classes.moments.row.n_features,),
        alphas=grid,
        scores=scores[None, None],
        scale=np.ones(scores.shape[1]),
        df=found.df(grid)[None],
        eta=np.array([found.eta]),
        rule="best",
    )
