"""Penalty and variances of trees of cells: by evidence, generalised cross-validation, or folds.

The cells of a tree are independent and share α and both variances: log p = Σ_c log p_c. Its
maximum over α is looked for in a few decomposed cells first; a Newton step or two from the exact
slope of log p lead to the maximum of as many factored cells as tell it; then all are factored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import HIGHEST, LOWEST, Profile, best_alpha
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.moments import CellMoments
from rff_stream.cells.spectrum import (
    FactoredTree,
    LocalSpectrum,
    LocalTrees,
    TreeCells,
    TreeSpectrum,
    factored_tree,
    facts_of_rows,
    local_spectrum,
    require_rows,
    tree_eta,
    tree_spectrum,
)
from rff_stream.features.packed_triangle import triangle_size
from rff_stream.moments.copies import Observations
from rff_stream.systems.spectrum import alpha_of_targets, largest_eigenvalue

SAMPLED_CELLS, SAMPLED_SHARE = 16, 32
"""Cells of the first tree that are decomposed to begin the search for α: one of 32, and at least
16. With no more than 16 in a tree, those of all trees are."""

CLEAR_OF_ROUNDING = 10.0
"""A penalty this many times the η of the sampled cells is above that of the others, too; any
other is compared with the η of every cell."""

WELL_INSIDE = 10.0
"""So far from both ends of the search, the highest evidence is a maximum and not an end."""

MOST_RATIO = 1e6
"""Largest λ/α at which F⁻¹ is kept in float32: a deviation then changes by 6e-8·√(λ/α) of itself,
at most 6e-5. Means need no F⁻¹."""

LARGEST_STEP, TOLERANCE, MOST_STEPS = 1.0, 0.05, 6
"""Of log α: a Newton step, the step below which α stays, and the number of steps. α is then
within .05 of the maximum of all cells, or of so many of them that its standard error is .05: the
maxima of two trees of the same rows differ by .03 to .6 (kin40k, protein, argo2016, California)."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalEvidence:
    """Variances that explain the data best, tree by tree."""

    alpha: Float64
    """(J, T), σₙ²/σ_f², σₙ² of a row of weight 1 and σ_f² (times k(x, x)), in units of y²."""
    noise_variance: Float64  # (J, T)
    signal_variance: Float64  # (J, T)
    log_evidence: Float64  # (J, T): of the rows under each tree alone
    solved: LocalTrees


def cell_evidence(
    features: LocalFeatures,
    moments: CellMoments,
    *,
    fit_intercept: bool = True,
    alpha: Array | float | None = None,
    release: Callable[..., None] | None = None,
) -> LocalEvidence:
    """Noise and signal variance of each tree by maximal marginal likelihood, or at a given α.

    One Cholesky factor a cell. All cells are decomposed instead where there are few, and where
    targets have penalties of their own. ``release`` makes room for what is kept of all cells; it is
    told of how many bytes a number of F⁻¹ is, once that is known.
    """
    require_rows(moments)
    t, count = moments.row.n_targets, range(moments.n_trees)
    given = None if alpha is None else alpha_of_targets(alpha, t)
    spans = [moments.of_tree(tree) for tree in count]
    few = min(span.stop - span.start for span in spans) <= SAMPLED_CELLS
    if few or (t > 1 if given is None else np.ptp(given) > 0):
        if release is not None:
            release()
        spectrum = local_spectrum(features, moments, fit_intercept=fit_intercept)
        return local_evidence(spectrum, alpha=alpha)
    found: list[_TreeEvidence] = []
    for tree in count:
        before = found[-1] if found else None
        own = None if given is None else float(given[0])
        found.append(_solved_tree(features, moments, tree, fit_intercept, own, before))
        if release is not None and before is None:
            release(np.dtype(found[0].precision).itemsize)
    trees = tuple(each.factored.cells for each in found)
    solved = LocalTrees(features, trees, *facts_of_rows(moments, fit_intercept))
    alphas, noises, values = (
        np.array([getattr(each, name) for each in found])
        for name in ("alpha", "noise", "log_evidence")
    )
    return LocalEvidence(alphas, noises, noises / alphas, values, solved)


@dataclass(frozen=True, slots=True, eq=False)
class _TreeEvidence:
    """A tree factored at its α, (T,) each."""

    sample: _SampledCells
    factored: FactoredTree
    alpha: Float64
    noise: Float64
    log_evidence: Float64
    slope: Float64  # ∂ log p/∂ log α

    @property
    def precision(self) -> str:
        """Of F⁻¹."""
        return str(self.factored.cells.inverse_factor.dtype)

    @classmethod
    def of(
        cls, sample: _SampledCells, factored: FactoredTree, alpha: float, facts: _TreeFacts
    ) -> _TreeEvidence:
        alphas = np.full(len(facts.scatter), alpha)
        left = facts.scatter - factored.cells.explained(alphas).sum(axis=0)
        objective = np.maximum(left, facts.least)
        noise = objective / facts.freedom
        known = noise > 0
        safe = np.where(known, noise, 1.0)
        fit = facts.freedom * (np.log(safe) + known)
        value = np.where(known, -0.5 * (facts.constant + factored.log_det + fit), np.inf)
        gain = alpha * factored.change / safe
        slope = np.where(known, 0.5 * (factored.cells.freedom.sum() - gain), 0.0)
        return cls(sample, factored, alphas, noise, value, slope)


def few_rows(n: int, n_cells: int) -> ValueError:
    """The refusal of fewer rows than variances of so many cells need."""
    if n_cells == 1:
        return ValueError(f"The fit has {n} row(s). Variances need at least 2. Give more rows.")
    return ValueError(
        f"The fit has {n} rows in {n_cells} cells. Variances need more rows than cells, and "
        "length-scales two rows in one cell. Use fewer cells, or give more rows."
    )


@dataclass(frozen=True, slots=True, eq=False)
class _TreeFacts:
    """What the evidence of a tree needs beside its decompositions or factors."""

    scatter: Float64  # ỹᵀWỹ (T,)
    freedom: int  # n − k, or n without means of cells
    constant: float  # freedom·log 2π + Σ log Σw − Σ log w

    @classmethod
    def of(cls, cells: TreeCells, counted: Observations, fit_intercept: bool) -> _TreeFacts:
        k = len(cells.weight)
        freedom = counted.n - k * int(fit_intercept)
        if freedom < 1:
            raise few_rows(counted.n, k)
        border = float(np.log(cells.weight).sum()) if fit_intercept else 0.0
        constant = float(freedom * np.log(2 * np.pi) + border - counted.log_weight)
        return cls(cells.scatter.sum(axis=0), freedom, constant)

    @property
    def least(self) -> Float64:
        """What rounding leaves of Q (T,)."""
        return self.scatter * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True, eq=False)
class _SampledCells:
    """What some decomposed cells of a tree tell of all, and of the other trees of the same rows."""

    count: int
    eta: float  # rounding of their eigenvalues
    largest: float  # eigenvalue
    profile: Profile | None  # log p of α; none with one row a cell

    @classmethod
    def of(
        cls, features: LocalFeatures, moments: CellMoments, tree: int, fit_intercept: bool
    ) -> _SampledCells:
        span = moments.of_tree(tree)
        k = span.stop - span.start
        count = max(SAMPLED_CELLS, k // SAMPLED_SHARE)
        places = span.start + np.arange(count) * k // count
        found = tree_spectrum(features, moments, tree, fit_intercept, places)
        rows, profile = int(moments.counts[places].sum()), None
        if rows > count:
            every = Observations.of(moments)
            counted = every.part(max(rows, round((count + 1) * every.copies)))
            profile = _profile(found, counted, fit_intercept)
        return cls(count, found.eta, largest_eigenvalue(found.eigenvalues), profile)


def _solved_tree(
    features: LocalFeatures,
    moments: CellMoments,
    tree: int,
    fit_intercept: bool,
    alpha: float | None,
    before: _TreeEvidence | None,
) -> _TreeEvidence:
    """The tree at the α given or of highest evidence.

    The tree ``before`` has summed the same rows: the search starts at its α, by its sampled cells.
    Where the α of sampled cells is near their η, that of all cells is computed first; it is α where
    less would be likelier. Where an end of the search decides α, the eigenvalues of all cells tell
    it.
    """
    if before is None:
        sample, start = _SampledCells.of(features, moments, tree, fit_intercept), None
    else:
        sample, start = before.sample, float(before.alpha[0])
    span = moments.of_tree(tree)
    k, held = span.stop - span.start, np.arange(span.start, span.stop)
    least = CLEAR_OF_ROUNDING * sample.eta
    inverses: list[Array] = []
    every = Observations.of(moments)

    def factored_at(alpha: float, least: float = least, held: Array = held) -> _TreeEvidence | None:
        if not alpha > least:
            return None
        ratio = sample.largest / alpha
        dtype = _stored_precision(features, ratio) if before is None else before.precision
        if not inverses or (least == 0 and inverses[0].dtype != dtype):  # written again at every α
            inverses[:] = [np.empty((k, triangle_size(moments.row.n_features)), dtype)]
        room = inverses[0][: len(held)]
        found = factored_tree(moments, tree, alpha, fit_intercept, room, held)
        if found is None:
            return None
        counted = every.part(int(moments.counts[held].sum()))
        facts = _TreeFacts.of(found.cells, counted, fit_intercept)
        return _TreeEvidence.of(sample, found, alpha, facts)

    solved = None
    if alpha is not None:
        solved = factored_at(alpha)
    elif sample.profile is not None:
        solved = _best_factored(sample, held, least, factored_at, start, sample.eta)
    if solved is not None:
        return solved
    if before is not None:
        sample = _SampledCells.of(features, moments, tree, fit_intercept)
    eta = tree_eta(moments, fit_intercept, held, sample.eta)
    if alpha is not None:
        alpha = max(alpha, eta)
    elif sample.profile is not None:
        at_eta = functools.partial(factored_at, least=eta)
        solved = _best_factored(sample, held, eta, at_eta, start, eta)
        if solved is not None:
            return solved
        at_sample = float(best_alpha(sample.profile, sample.largest, sample.eta, False)[0])
        is_end = at_sample <= eta * (1 + TOLERANCE) and sample.profile.scatter[0] > 0
        alpha = eta if is_end else None
    if alpha is None:
        whole = tree_spectrum(features, moments, tree, fit_intercept, held)
        alpha = float(_tree_alpha(whole, whole.eta, (every, fit_intercept), False, None)[0])
    alpha = max(alpha, float(np.finfo(np.float64).tiny))
    while (solved := factored_at(alpha, 0.0)) is None:
        alpha *= 2  # the sums are indefinite by more than rounding
    return solved


def _stored_precision(features: LocalFeatures, ratio: float) -> str:
    """Of F⁻¹, for a largest λ/α: of columns in float32, where a deviation does not show it."""
    return "float32" if features.dtype == "float32" and ratio <= MOST_RATIO else "float64"


def _best_factored(
    sample: _SampledCells,
    held: Array,
    least: float,
    factored_at: Callable[..., _TreeEvidence | None],
    start: float | None,
    eta: float,
) -> _TreeEvidence | None:
    """The maximum of log p over α by Newton steps from that of the sampled cells, or a start.

    Steps are those of as many of the cells at the places ``held`` as
    make the standard error of log α, which is (−∂² log p)^−½, as small as the last step; then all
    are factored. Of all cells where half of them would be needed.
    """
    profile, largest = sample.profile, sample.largest
    assert profile is not None
    alpha = best_alpha(profile, largest, eta, False)
    inside = max(least, WELL_INSIDE * LOWEST * largest), HIGHEST * largest / WELL_INSIDE
    if not (inside[0] < alpha[0] < inside[1] and profile.scatter[0] > 0):
        return None
    nearby = np.exp([-LARGEST_STEP / 4, LARGEST_STEP / 4])
    below, above = (float(profile.slope(alpha * each)[0]) for each in nearby)
    curvature = (above - below) / (LARGEST_STEP / 2) / sample.count
    if not curvature < 0:
        return None
    k, needed = len(held), int(np.ceil(-1 / (curvature * TOLERANCE**2)))
    some = held if 2 * needed > k else held[np.arange(needed) * k // needed]
    curvature *= len(some)
    place, before = float(np.log(alpha[0] if start is None else start)), None
    for _ in range(MOST_STEPS):
        found = factored_at(float(np.exp(place)), held=some)
        if found is None:
            return None
        slope = float(found.slope[0])
        if before is not None and (slope - before[1]) / (place - before[0]) < 0:
            curvature = (slope - before[1]) / (place - before[0])
        if not curvature < 0:
            return None
        step = float(np.clip(-slope / curvature, -LARGEST_STEP, LARGEST_STEP))
        if abs(step) <= TOLERANCE:
            return found if some is held else factored_at(float(np.exp(place + step)))
        before, place = (place, slope), place + step
    return None


def local_evidence(
    spectrum: LocalSpectrum, *, shared: bool = False, alpha: Array | float | None = None
) -> LocalEvidence:
    """Noise and signal variance of each tree by maximal marginal likelihood, or at a given α.

    One α for all targets of a tree where it is ``shared``.
    """
    eta, found = spectrum.eta, []
    for tree in spectrum.trees:
        facts = (spectrum.observations, spectrum.fit_intercept)
        profile, chosen = _profile(tree, *facts), _tree_alpha(tree, eta, facts, shared, alpha)
        noise = profile.noise(chosen)
        found.append((chosen, noise, profile.log_evidence(chosen, noise)))
    alphas, noises, values = (np.array(each) for each in zip(*found, strict=True))
    return LocalEvidence(alphas, noises, noises / alphas, values, spectrum)


def _tree_alpha(
    tree: TreeSpectrum,
    eta: float,
    facts: tuple[Observations, bool],
    shared: bool,
    alpha: Array | float | None,
) -> Float64:
    """α (T,) of highest evidence of a tree, or the one given, but not below η."""
    if alpha is not None:
        return np.maximum(alpha_of_targets(alpha, tree.scatter.shape[1]), eta)
    largest = max(largest_eigenvalue(tree.eigenvalues), eta)  # which may be rounding, too
    return np.asarray(best_alpha(_profile(tree, *facts), largest, eta, shared))


def _profile(tree: TreeSpectrum, counted: Observations, fit_intercept: bool) -> Profile:
    """log p of one tree as a function of α: the blocks of its cells side by side."""
    facts = _TreeFacts.of(tree, counted, fit_intercept)
    return Profile(
        eigenvalues=tree.eigenvalues.reshape(-1, 1),
        squared_rhs=(tree.rhs**2).reshape(-1, len(facts.scatter)),
        scatter=facts.scatter,
        least=facts.least,
        freedom=facts.freedom,
        constant=facts.constant,
    )


def cell_gcv(spectrum: LocalSpectrum, alphas: Array) -> Float64:
    """Generalised cross-validation (J, A, T) of each tree, α > 0 and target, in units of y².

        (RSS/Σw) / (1 − df/n)²,   RSS = Σ_c ỹᵀWỹ − Σ_c Σ (Uᵀc)² (λ + 2α)/(λ + α)²

    It assumes independent rows, as :func:`~rff_stream.answers.penalty_selection.gcv` does. An α
    below η counts as η.
    """
    alphas = np.maximum(np.asarray(alphas, np.float64), spectrum.eta)
    n_trees, n_targets = len(spectrum.trees), len(spectrum.targets)
    n = spectrum.observations.n
    scores = np.empty((n_trees, len(alphas), n_targets))
    for i, alpha in enumerate(alphas):
        df = spectrum.df(np.full((n_trees, n_targets), alpha))
        held = np.maximum(1 - df / n, 1 / n)
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
            # β = Uγ in the basis of z: rotation = L⁻ᵀU
            inverse = spectrum.features.inverse_triangle(tree, cell)
            basis = linalg.solve_triangular(
                inverse, own.rotation[k], lower=True, trans="T", check_finite=False
            )
            inner = own.rhs[k] / (own.eigenvalues[k][:, None] + alphas[:, None, None])  # (A, R, T)
            coef = np.einsum("rs,ast->atr", basis, inner)
            constant = own.target_mean[k] - np.einsum("s,ast->at", own.centre[k], inner)
            vectors[:, :, :r] = -coef
        vectors[:, :, r] = row.target_origin - constant
        vectors[:, np.arange(t), r + 1 + np.arange(t)] = 1.0
        losses += np.einsum("ati,ij,atj->at", vectors, matrix, vectors, optimize=True)
    return losses
