"""The Laplace posterior of a logistic fit, and probabilities averaged over it.

    θ | y ~ N(θ̂, H⁻¹),  H = Σ w (diag p − ppᵀ) ⊗ φφᵀ + α I on γ,  φ = [(z − z̄)√s, 1]

The blocks of H are H_kl = −S_kl and H_kk = Σ_l S_kl + α with S_kl = Σ w p_k p_l φφᵀ: second moments
of one more pass, one for each pair of classes. For two classes with one score it is w p(1 − p).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.random import Generator
from scipy import linalg
from scipy.special import log_expit, log_softmax, logsumexp

from rff_stream._array import Float64
from rff_stream.answers.posterior import Functions
from rff_stream.errors import PlanError
from rff_stream.losses.penalised import Penalised
from rff_stream.moments import Moments

WIDEST = 16_384
"""Largest number of columns of H: 2.1 GB, and 25 s on one core for its factor."""


def check_width(n_features: int, n_scores: int) -> None:
    """Refuse an H that is too large, before any pass for it."""
    width = (n_features + 1) * n_scores
    if width > WIDEST:
        raise PlanError(
            f"laplace needs a matrix of {width:,} columns for R={n_features:,} features and "
            f"{n_scores} classes, and at most {WIDEST:,} are held. Use at most "
            f"n_components={WIDEST // n_scores - 1:,}, or laplace=None."
        )


def laplace_bytes(n_features: int, n_scores: int) -> int:
    """Bytes of H, of its factor, and of the second moments that it is made of."""
    pairs = max(n_scores * (n_scores - 1) // 2, 1)
    return 8 * (2 * ((n_features + 1) * n_scores) ** 2 + pairs * (n_features + 1) ** 2)


def laplace_precision(problem: Penalised, curvatures: Sequence[Moments], n_scores: int) -> Float64:
    """H of the coefficients [γ₁; m₁; γ₂; m₂; …], (K(R + 1), K(R + 1)), from sums of weighted rows.

    Rows are weighted by w p(1 − p) for K = 1 score, else by w p_k p_l for each pair k < l. Adding
    one number to all scores changes no probability, so for K > 1 H is 0 along such a change of the
    intercepts. A number is added there that changes no other direction.
    """
    parts = [problem.curvature(moments) for moments in curvatures]
    p = len(parts[0])
    whole = np.zeros((n_scores, p, n_scores, p))
    if n_scores == 1:
        whole[0, :, 0] = parts[0]
    else:
        for (one, other), part in zip(combinations(range(n_scores), 2), parts, strict=True):
            whole[one, :, other] = whole[other, :, one] = -part
            whole[one, :, one] += part
            whole[other, :, other] += part
        whole[:, -1, :, -1] += problem.system.weight / n_scores**2
    for k in range(n_scores):
        own = whole[k, :, k]
        own[range(p - 1), range(p - 1)] += problem.alpha
    return whole.reshape(n_scores * p, -1)


def laplace_functions(
    problem: Penalised,
    theta: Float64,
    curvatures: Sequence[Moments],
    *,
    n_draws: int,
    rng: Generator,
    spread: float = 1.0,
) -> Functions:
    """Scores drawn from the Laplace posterior at θ̂ (R + 1, K), in S/2 pairs θ̂ ± τδ.

    Raw coefficients (S, R, K) and intercepts (S, K). The ``spread`` τ is 1 for the posterior, and
    less for a narrower one about the same mean.

    References
    ----------
    Williams & Barber 1998. Rasmussen & Williams 2006, section 3.5 and algorithm 3.4 (there in
    function space; here in weight space, where rows need not be kept).
    """
    precision = laplace_precision(problem, curvatures, theta.shape[1])
    scale = np.sqrt(precision.diagonal())
    precision /= scale
    precision /= scale[:, None]
    precision.flat[:: len(precision) + 1] += len(precision) * np.finfo(np.float64).eps
    factor = linalg.cholesky(precision, lower=True, overwrite_a=True)
    noise = rng.standard_normal((len(factor), n_draws // 2))
    shift = linalg.solve_triangular(factor, noise, lower=True, trans="T")
    shift *= spread / scale[:, None]
    moved = shift.T.reshape(len(shift.T), theta.shape[1], len(theta)).transpose(0, 2, 1)
    drawn = [problem.linear(theta + sign * each) for each in moved for sign in (1.0, -1.0)]
    return Functions(np.stack([coef for coef, _ in drawn]), np.stack([m for _, m in drawn]))


def drawn_log_odds(functions: Functions, Z: Float64) -> Float64:
    """Log-odds (m, K) of probabilities averaged over S drawn scores at feature rows (m, R)."""
    return average_log_odds(functions(Z))


def average_log_odds(scores: Float64) -> Float64:
    """Log-odds (m, K) of probabilities averaged over drawn scores (S, m, K).

    K = 1: log p̄/(1 − p̄) of the second class. Otherwise log p̄ of each class.
    """
    if scores.shape[2] == 1:
        yes, no = (logsumexp(log_expit(sign * scores), axis=0) for sign in (1.0, -1.0))
        return np.asarray(yes - no)
    return np.asarray(logsumexp(log_softmax(scores, axis=2), axis=0) - np.log(len(scores)))
