"""The n×n system: the smaller one where the rows are in memory and n < R."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.ridge import Ridge, ridge_of
from rff_stream.systems.spectrum import Floor
from rff_stream.systems.system import System


def dual(
    Z: Array,
    y: Array,
    alpha: Array | float,
    prior: Array,
    weights: Array | None = None,
    *,
    fit_intercept: bool = True,
    floor: Floor = "raise_alpha",
) -> Ridge:
    """Ridge regression by function space: the same model as :func:`ridge`, from rows.

    (W^½K̃W^½ + αI)a = W^½ỹ with K̃ = Z̃ diag(s) Z̃ᵀ, and β = diag(s) Z̃ᵀW^½a.

    Parameters
    ----------
    Z : (n, R) array
        Feature rows in memory.
    y : (n,) or (n, T) array
    alpha : float or (T,) array
        As in :func:`~rff_stream.answers.ridge.ridge`.
    prior : (R,) array
        s.
    weights : (n,) array, optional
        Positive; 1 where absent.
    fit_intercept : bool
        Fit an unpenalised μ.
    floor : {"raise_alpha", "refuse"}
        What to do with α below the rounding of K̃.

    Returns
    -------
    Ridge

    Notes
    -----
    n²R + n³ flops against nR² + R³: for n < R. Streamed fits never need it.
    """
    Z, prior = np.asarray(Z, dtype=np.float64), np.asarray(prior, dtype=np.float64)
    targets = np.asarray(y, dtype=np.float64).reshape(len(Z), -1)
    root = np.ones(len(Z)) if weights is None else np.sqrt(np.asarray(weights, np.float64))
    share = float(fit_intercept) * root**2 / (root @ root)
    mean_z, mean_y = share @ Z, share @ targets
    rows, rhs = root[:, None] * (Z - mean_z), root[:, None] * (targets - mean_y)
    system = _row_system(rows * np.sqrt(prior), rhs, root, fit_intercept)
    found = ridge_of(system, alpha, floor=floor)
    coef = prior[:, None] * (rows.T @ found.coef)
    return replace(found, coef=coef, intercept=mean_y - mean_z @ coef)


def _row_system(scaled: Float64, rhs: Float64, root: Float64, fit_intercept: bool) -> System:
    """The system whose unknowns are a (n, T): nothing is left to centre."""
    n, n_targets = rhs.shape
    return System(
        matrix=scaled @ scaled.T,
        rhs=rhs,
        target_scatter=(rhs**2).sum(axis=0),
        root_prior=np.ones(n),
        feature_mean=np.zeros(n),
        target_mean=np.zeros(n_targets),
        weight=float(root @ root),
        log_weight=float(2 * np.log(root).sum()),
        n=n,
        fit_intercept=fit_intercept,
        targets=tuple(f"y{i}" for i in range(n_targets)),
    )
