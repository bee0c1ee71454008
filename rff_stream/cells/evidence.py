"""Penalty and variances of trees of cells: by evidence, generalised cross-validation, or folds.

The cells of a tree are independent and share α and both variances: log p = Σ_c log p_c. Its
maximum over α is looked for in a few decomposed cells first; a Newton step or two from the exact
slope of log p lead to the maximum of as many factored cells as tell it; then all are factored.
"""

from __future__ import annotations

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
        solve = _TreeSolve.of(features, moments, tree, fit_intercept, before)
        found.append(solve.best() if given is None else solve.at(float(given[0])))
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


@dataclass(slots=True, eq=False)
class _TreeSolve:
    """A tree of cells on the way to its penalty."""

    features: LocalFeatures
    moments: CellMoments
    tree: int
    fit_intercept: bool
    before: _TreeEvidence | None
    """A tree of the same rows: the search starts at its α, by its sampled cells."""
    sample: _SampledCells
    room: Array | None = None
    """F⁻¹ of all cells, written again at every α."""

    @classmethod
    def of(
        cls,
        features: LocalFeatures,
        moments: CellMoments,
        tree: int,
        fit_intercept: bool,
        before: _TreeEvidence | None,
    ) -> _TreeSolve:
        facts = features, moments, tree, fit_intercept
        sample = _SampledCells.of(*facts) if before is None else before.sample
        return cls(*facts, before, sample)

    @property
    def held(self) -> Array:
        """Places of the cells (k,)."""
        span = self.moments.of_tree(self.tree)
        return np.arange(span.start, span.stop)

    def factored_at(
        self, alpha: float, least: float, held: Array | None = None
    ) -> _TreeEvidence | None:
        """The cells, or those at some places, at an α; None unless it is more than ``least``."""
        if not alpha > least:
            return None
        every = self.held
        held = every if held is None else held
        if self.before is None:
            dtype = _stored_precision(self.features, self.sample.largest / alpha)
        else:
            dtype = self.before.precision
        if self.room is None or (least == 0 and self.room.dtype != dtype):
            self.room = np.empty((len(every), triangle_size(self.moments.row.n_features)), dtype)
        room = self.room[: len(held)]
        found = factored_tree(self.moments, self.tree, alpha, self.fit_intercept, room, held)
        if found is None:
            return None
        n = int(self.moments.counts[held].sum())
        counted = Observations.of(self.moments).part(n)
        facts = _TreeFacts.of(found.cells, counted, self.fit_intercept)
        return _TreeEvidence.of(self.sample, found, alpha, facts)

    def at(self, alpha: float) -> _TreeEvidence:
        """At the α given, or at the η of all cells where that is more."""
        solved = self.factored_at(alpha, CLEAR_OF_ROUNDING * self.sample.eta)
        if solved is None:
            solved = self._not_below(max(alpha, self._eta()))
        return solved

    def best(self) -> _TreeEvidence:
        """At the α of highest evidence.

        Where that of sampled cells is near their η, the η of all is computed first; it is α where
        less would be likelier. Where an end of the search decides, the eigenvalues of all cells
        tell α.
        """
        solved = self._stepped_to(CLEAR_OF_ROUNDING * self.sample.eta, self.sample.eta)
        if solved is not None:
            return solved
        eta = self._eta()
        solved = self._stepped_to(eta, eta)
        if solved is not None:
            return solved
        profile, largest, alpha = self.sample.profile, self.sample.largest, None
        if profile is not None and profile.scatter[0] > 0:
            at_sample = float(best_alpha(profile, largest, self.sample.eta, False)[0])
            alpha = eta if at_sample <= eta * (1 + TOLERANCE) else None
        if alpha is None:
            facts = (Observations.of(self.moments), self.fit_intercept)
            whole = tree_spectrum(
                self.features, self.moments, self.tree, self.fit_intercept, self.held
            )
            alpha = float(_tree_alpha(whole, whole.eta, facts, False, None)[0])
        return self._not_below(alpha)

    def _eta(self) -> float:
        """The η of all cells, from now on by sampled cells of this tree."""
        if self.before is not None:
            facts = self.features, self.moments, self.tree, self.fit_intercept
            self.sample = _SampledCells.of(*facts)
        return tree_eta(self.moments, self.fit_intercept, self.held, self.sample.eta)

    def _not_below(self, alpha: float) -> _TreeEvidence:
        """At this α, or at the next multiple by two at which all cells are definite."""
        alpha = max(alpha, float(np.finfo(np.float64).tiny))
        while (solved := self.factored_at(alpha, 0.0)) is None:
            alpha *= 2  # the sums are indefinite by more than rounding
        return solved

    def _stepped_to(self, least: float, eta: float) -> _TreeEvidence | None:
        """The maximum of log p over α by Newton steps from that of the sampled cells, or a start.

        Steps are those of as many of the cells as make the standard error of log α, which is
        (−∂² log p)^−½, as small as the last step; then all are factored. Of all cells where half of
        them would be needed.
        """
        profile, largest = self.sample.profile, self.sample.largest
        if profile is None:
            return None
        alpha = best_alpha(profile, largest, eta, False)
        inside = max(least, WELL_INSIDE * LOWEST * largest), HIGHEST * largest / WELL_INSIDE
        if not (inside[0] < alpha[0] < inside[1] and profile.scatter[0] > 0):
            return None
        nearby = np.exp([-LARGEST_STEP / 4, LARGEST_STEP / 4])
        below, above = (float(profile.slope(alpha * each)[0]) for each in nearby)
        curvature = (above - below) / (LARGEST_STEP / 2) / self.sample.count
        if not curvature < 0:
            return None
        every = self.held
        k, needed = len(every), int(np.ceil(-1 / (curvature * TOLERANCE**2)))
        some = every if 2 * needed > k else every[np.arange(needed) * k // needed]
        curvature *= len(some)
        start = float(alpha[0]) if self.before is None else float(self.before.alpha[0])
        place, step_before = float(np.log(start)), None
        for _ in range(MOST_STEPS):
            found = self.factored_at(float(np.exp(place)), least, some)
            if found is None:
                return None
            slope = float(found.slope[0])
            if step_before is not None:
                now = (slope - step_before[1]) / (place - step_before[0])
                curvature = now if now < 0 else curvature
            step = float(np.clip(-slope / curvature, -LARGEST_STEP, LARGEST_STEP))
            if abs(step) <= TOLERANCE:
                at_end = float(np.exp(place + step))
                return found if some is every else self.factored_at(at_end, least)
            step_before, place = (place, slope), place + step
        return None


def _stored_precision(features: LocalFeatures, ratio: float) -> str:
    """Of F⁻¹, for a largest λ/α: of columns in float32, where a deviation does not show it."""
    return "float32" if features.dtype == "float32" and ratio <= MOST_RATIO else "float64"


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
