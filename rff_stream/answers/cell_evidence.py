"""Penalty and variances of trees of cells: by evidence, generalised cross-validation, or folds.

The cells of a tree are independent and share α and both variances: log p = Σ_c log p_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.cell_spectrum import LocalSpectrum, TreeSpectrum, local_spectrum
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.features.cells import LocalFeatures
from rff_stream.moments.cells import CellMoments
from rff_stream.systems.spectrum import alpha_of_targets, largest_eigenvalue


@dataclass(frozen=True, slots=True, eq=False)
class LocalEvidence:
    """Variances that explain the data best, tree by tree."""

    alpha: Float64
    """(J, T), σₙ²/σ_f², σₙ² of a row of weight 1 and σ_f² (times k(x, x)), in units of y²."""
    noise_variance: Float64  # (J, T)
    signal_variance: Float64  # (J, T)
    log_evidence: Float64  # (J, T): of the rows under each tree alone
    spectrum: LocalSpectrum


def local_evidence(
    spectrum: LocalSpectrum, *, shared: bool = False, alpha: Array | float | None = None
) -> LocalEvidence:
    """Noise and signal variance of each tree by maximal marginal likelihood, or at a given α.

    One α for all targets of a tree where it is ``shared``.
    """
    eta, found = spectrum.eta, []
    for tree in spectrum.trees:
        profile = _profile(tree, spectrum)
        largest = largest_eigenvalue(tree.eigenvalues)
        if alpha is None:
            chosen = best_alpha(profile, largest, eta, shared)
        else:
            chosen = np.maximum(alpha_of_targets(alpha, len(spectrum.targets)), eta)
        noise = profile.noise(chosen)
        found.append((chosen, noise, profile.log_evidence(chosen, noise)))
    alphas, noises, values = (np.array(each) for each in zip(*found, strict=True))
    return LocalEvidence(alphas, noises, noises / alphas, values, spectrum)


def _profile(tree: TreeSpectrum, spectrum: LocalSpectrum) -> Profile:
    """log p of one tree as a function of α: the blocks of its cells side by side."""
    k, _, t = tree.rhs.shape
    freedom = spectrum.n - k * int(spectrum.fit_intercept)
    if freedom < 1:
        raise ValueError(
            f"These moments hold {spectrum.n} rows in {k} cells. Variances need more rows than "
            "cells. Use fewer cells, or collect more rows."
        )
    border = float(np.log(tree.weight).sum()) if spectrum.fit_intercept else 0.0
    scatter = tree.scatter.sum(axis=0)
    return Profile(
        eigenvalues=tree.eigenvalues.reshape(-1, 1),
        squared_rhs=(tree.rhs**2).reshape(-1, t),
        scatter=scatter,
        least=scatter * np.finfo(np.float64).eps,
        freedom=freedom,
        constant=float(freedom * np.log(2 * np.pi) + border - spectrum.log_weight),
    )


def cell_gcv(spectrum: LocalSpectrum, alphas: Array) -> Float64:
    """Generalised cross-validation (J, A, T) of each tree, α > 0 and target, in units of y².

        (RSS/Σw) / (1 − df/n)²,   RSS = Σ_c ỹᵀWỹ − Σ_c Σ (Uᵀc)² (λ + 2α)/(λ + α)²

    It assumes independent rows, as :func:`~rff_stream.answers.penalty_selection.gcv` does. An α
    below η counts as η.
    """
    alphas = np.maximum(np.asarray(alphas, np.float64), spectrum.eta)
    n_trees, n_targets = len(spectrum.trees), len(spectrum.targets)
    scores = np.empty((n_trees, len(alphas), n_targets))
    for i, alpha in enumerate(alphas):
        df = spectrum.df(np.full((n_trees, n_targets), alpha))
        held = np.maximum(1 - df / spectrum.n, 1 / spectrum.n)
        for j, tree in enumerate(spectrum.trees):
            shrunk = (tree.eigenvalues + 2 * alpha) / (tree.eigenvalues + alpha) ** 2
            scatter = tree.scatter.sum(axis=0) - np.einsum("kr,krt->t", shrunk, tree.rhs**2)
            scores[j, i] = np.maximum(scatter, 0) / tree.weight.sum() / held[j] ** 2
    return scores


def cross_validate_cells(
    features: LocalFeatures, folds: list[CellMoments], alphas: Array, *, fit_intercept: bool = True
) -> Float64:
    """Held-out Σ w (y − f_t)² (K, J, A, T) of each fold, tree, α > 0 and target: no second read.

    Each of K ≥ 2 disjoint parts of the data is predicted from the sum of the others, exactly.
    """
    if len(folds) < 2:
        raise ValueError(f"{len(folds)} fold(s) but cross-validation needs at least 2.")
    alphas = np.asarray(alphas, np.float64)
    losses = np.zeros((len(folds), features.n_trees, len(alphas), folds[0].row.n_targets))
    for k, held in enumerate(folds):
        rest = [fold for i, fold in enumerate(folds) if i != k]
        total = rest[0]
        for fold in rest[1:]:
            total = total + fold
        spectrum = local_spectrum(features, total, fit_intercept=fit_intercept)
        for tree in range(features.n_trees):
            losses[k, tree] = _held_out_errors(spectrum, tree, held, alphas)
    return losses


def _held_out_errors(
    spectrum: LocalSpectrum, tree: int, held: CellMoments, alphas: Float64
) -> Float64:
    """Σ w (y − f)² (A, T) of the rows of ``held`` from its moments alone: vᵀM_c v."""
    own, row, r = spectrum.trees[tree], held.row, held.row.n_features
    t = row.n_targets
    losses = np.zeros((len(alphas), t))
    span = held.of_tree(tree)
    for place in range(span.start, span.stop):
        cell = int(held.cells[place]) - tree * held.n_cells
        k, matrix = own.index[cell], held.matrices(place)
        vectors = np.zeros((len(alphas), t, row.width))
        constant = np.broadcast_to(spectrum.target_mean, (len(alphas), t))
        if k >= 0:
            # β = Uγ in the basis of z: rotation = L⁻ᵀU, so U = Lᵀ rotation
            basis = spectrum.features.exact_factor(tree, cell).T @ own.rotation[k]
            inner = own.rhs[k] / (own.eigenvalues[k][:, None] + alphas[:, None, None])  # (A, R, T)
            coef = np.einsum("rs,ast->atr", basis, inner)
            constant = own.target_mean[k] - np.einsum("s,ast->at", own.centre[k], inner)
            vectors[:, :, :r] = -coef
        vectors[:, :, r] = row.target_origin - constant
        vectors[:, np.arange(t), r + 1 + np.arange(t)] = 1.0
        losses += np.einsum("ati,ij,atj->at", vectors, matrix, vectors, optimize=True)
    return losses
