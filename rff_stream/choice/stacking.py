"""One of several models, or a weighted mean of them, chosen by leave-one-out errors of a sample.

With e_ik the error of model k at the sampled row i under its fit without that row, and E = Σ w eeᵀ,
the weighted mean Σ v_k f_k of least squared error has

    v = E⁻¹1 / 1ᵀE⁻¹1        over the models whose weights are positive, Σ v = 1, v ≥ 0

(Breiman 1996; the best set of models is found by trying every one). The mean is taken where its
squared error is below that of the best model by more than one standard error of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import COVERAGE, NORMAL
from rff_stream.stored_fields import stored

STANDARD_ERRORS = 1.0
"""Number of standard errors of the difference by which a weighted mean must be better than one
model."""

LEAST_WEIGHT = 0.02
"""Models with a smaller weight are not used, because each model costs its prediction."""

JITTER = 1e-10
"""Share of the mean squared error that keeps E invertible if two models are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What was compared, and what was taken."""

    names: tuple[str, ...] = field(metadata=stored(plain=True, write=list, read=tuple))
    """Of the K candidates."""
    errors: Float64 = field(metadata=stored("choice_errors"))
    """(K, T), leave-one-out RMSE of each model on the row sample, in units of y; inf for a model
    that was left out."""
    weights: Float64 = field(metadata=stored("choice_weights"))
    """(K, T), of the answer; they add to 1 for each target."""
    error: Float64 = field(metadata=stored("choice_error"))  # (T,): of the answer, like errors
    rows: int = field(metadata=stored("choice_rows"))  # of the sample

    @property
    def best(self) -> int:
        """The candidate of most weight, over all targets."""
        return int(self.weights.sum(axis=1).argmax())

    @property
    def taken_names(self) -> tuple[str, ...]:
        """Of the candidates that answer."""
        used = zip(self.names, self.weights, strict=True)
        return tuple(name for name, shares in used if (shares > 0).any())

    def __str__(self) -> str:
        shares = self.weights.mean(axis=1)
        taken = [
            name if share == 1 else f"{share:.0%} {name}"
            for name, share in zip(self.names, shares.tolist(), strict=True)
            if share > 0
        ]
        if len(self.names) == 1:
            return f"{taken[0]}, the only candidate"
        errors = [
            f"{name} {error:.4g}" if np.isfinite(error) else f"{name} left out"
            for name, error in zip(self.names, _root_mean(self.errors).tolist(), strict=True)
        ]
        mean = f", together {_root_mean(self.error[None])[0]:.4g}" if len(taken) > 1 else ""
        words = f"leave-one-out RMSE {', '.join(errors)}{mean}, on {self.rows:,} rows"
        return f"{' + '.join(taken)} ({words})"


def choose_models(names: tuple[str, ...], residuals: list[Float64 | None], w: Array) -> Choice:
    """The model, or the weighted mean, of least leave-one-out error, target by target.

    Of K residuals (m, T) at sampled rows; None for a model that has no answer. A model with errors
    that are not finite is not chosen.
    """
    first = next(each for each in residuals if each is not None)
    if first.shape[0] == 0:
        weights, unknown = np.zeros((len(names), first.shape[1])), np.full(first.shape[1], np.nan)
        weights[0] = 1.0
        return Choice(names, np.broadcast_to(unknown, weights.shape), weights, unknown, 0)
    none = np.full(first.shape, np.inf)
    e = np.stack([none if each is None else each for each in residuals])  # (K, m, T)
    e = np.where(np.isfinite(e).all(axis=1, keepdims=True), e, np.inf)
    share = w / w.sum()
    columns = [_weights(e[:, :, t], share) for t in range(first.shape[1])]
    weights = np.stack(columns, axis=1)
    squared = np.einsum("m,kmt->kt", share, e**2)
    taken = np.einsum("kt,kmt->mt", weights, np.where(np.isfinite(e), e, 0.0))
    return Choice(names, np.sqrt(squared), weights, np.sqrt(share @ taken**2), first.shape[0])


def noise_factor(residuals: Float64, variance: Float64, noise: Float64) -> Float64:
    """c (T,) such that ±1.96 √(variance + c·noise) covers 95 % of left-out rows (m, T)."""
    needed = (residuals / NORMAL) ** 2 - variance
    ratio = needed / np.maximum(noise, np.finfo(float).tiny)
    rank = min(int(np.ceil((len(ratio) + 1) * COVERAGE)), len(ratio)) - 1
    return np.asarray(np.maximum(np.sort(ratio, axis=0)[rank], 1e-3))


def _weights(e: Float64, share: Float64) -> Float64:
    """v (K,) for the errors (K, m) of one target."""
    count = len(e)
    squared = e**2 @ share
    best = int(squared.argmin())
    alone: Float64 = np.eye(count)[best]
    if squared[best] == 0:  # a constant target: nothing is left to gain
        return alone
    finite = np.flatnonzero(np.isfinite(squared))
    sets = chain.from_iterable(combinations(finite.tolist(), k) for k in range(2, count + 1))
    tried = [(alone, squared[best])]
    for members in sets:
        chosen = list(members)
        E = (e[chosen] * share) @ e[chosen].T
        solved = np.linalg.solve(E + JITTER * np.trace(E) * np.eye(len(chosen)), np.ones(len(E)))
        own = solved / solved.sum()
        if (own >= LEAST_WEIGHT).all():
            v = np.zeros(count)
            v[chosen] = own
            tried.append((v, own @ E @ own))
    stacked, _ = min(tried, key=lambda each: float(each[1]))
    together = np.where(stacked[:, None] > 0, e, 0.0)
    gain = e[best] ** 2 - (stacked @ together) ** 2
    mean = share @ gain
    spread = np.sqrt(share**2 @ (gain - mean) ** 2)
    return stacked if bool(mean > STANDARD_ERRORS * spread) else alone


def _root_mean(errors: Float64) -> Float64:
    """Over targets (..., T): the error of each candidate as one number."""
    return np.asarray(np.sqrt((errors**2).mean(axis=-1)))
