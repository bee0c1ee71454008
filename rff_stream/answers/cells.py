"""Answers of local features: a ridge model or Gaussian process in each cell, averaged over trees.

A tree is block-diagonal: in cell c, with its own mean ȳ_c and z̄_c,

    G_c = Z̃ᵀWZ̃ (R, R),  C_c = Z̃ᵀWỹ (R, T),  β_c = (G_c + αI)⁻¹C_c
    log p = Σ_c log p_c,       α and both variances shared by the cells of a tree
    v(x) = σ_f²[k(x,x) − zᵀz] + σₙ²[(z − z̄)ᵀ(G_c + αI)⁻¹(z − z̄) + 1/Σw]

and J trees give f(x) = Σ_t ω_t f_t with ω_t ∝ v_t⁻ᵖ. One decomposition of each G_c answers every α.

Data that vary more in one place than in another: both variances of cell c are s_c² times those of
its tree, with νσₙ²/(s_c²σₙ²) ~ χ²_ν over the cells. With Q_c = ỹᵀWỹ − C_cᵀβ_c and n_c = rows − 1

    s_c² = (Q_c/σₙ² + ν)/(n_c + ν),
    log p = Σ_c [log Γ((ν + n_c)/2) − log Γ(ν/2) + ν/2 log(νσₙ²) − (ν + n_c)/2 log(νσₙ² + Q_c)] + …

and ν of highest evidence: one noise for all cells is ν → ∞.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy import linalg, optimize
from scipy.special import gammaln

from rff_stream._array import Array, Float64
from rff_stream.answers.conformal import conformal_quantile
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.features.cells import LocalFeatures, encode_rows
from rff_stream.features.landmarks import prior_variance
from rff_stream.moments.cells import CellMoments
from rff_stream.systems.spectrum import alpha_of_targets, largest_eigenvalue, rounding_floor

POWERS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""ω ∝ v⁻ᵖ: 0 is the plain mean of the trees; leave-one-out errors choose."""

ALIKE = 1.005
"""Powers whose leave-one-out error is within this factor of the least are equally good there."""

COVERAGE = 0.95
"""Intervals of ±1.96 standard deviations cover this share of left-out rows after calibration."""

FEWEST_CALIBRATING = 100
"""Rows of the sample below which nothing is calibrated: a quantile of fewer is noise."""

NEAR_SHARE = 0.75
"""Share of left-out rows that count as near: a calibration factor below 1 is for these alone."""

FEWEST_FREEDOM, MOST_FREEDOM = 1.0, 1e6
"""Bounds of ν; at the upper one every cell has the variances of its tree."""

EPSILON = float(np.finfo(np.float64).eps)

TREE_ARRAYS = (
    "eigenvalues",
    "rotation",
    "rhs",
    "centre",
    "target_mean",
    "weight",
    "scatter",
)
"""Fields of a tree that lie cell after cell."""

BLOCK_CELLS = 64
"""Cells decomposed together."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeSpectrum:
    """The cells of one tree, each in the eigenbasis of its own G_c; k of B cells hold rows.

    Parameters
    ----------
    index : (B,) int32
        Place of each cell among the k held, or −1.
    eigenvalues : (k, R) float64
        λ, increasing in each cell.
    rotation : (k, R, R) float64
        L⁻ᵀU: k(x, U_c) · rotation are the coordinates ζ of a row.
    rhs : (k, R, T) float64
        UᵀC.
    centre : (k, R) float64
        Uᵀz̄; zeros without an intercept.
    target_mean : (k, T) float64
        ȳ_c in units of y; zeros without an intercept.
    weight : (k,) float64
        Σ w of each cell.
    scatter : (k, T) float64
        ỹᵀWỹ.
    """

    index: Array
    eigenvalues: Float64
    rotation: Float64
    rhs: Float64
    centre: Float64
    target_mean: Float64
    weight: Float64
    scatter: Float64


@dataclass(frozen=True, slots=True, eq=False)
class LocalSpectrum:
    """Every tree's cells decomposed: serves every α.

    Parameters
    ----------
    features : LocalFeatures
    trees : tuple of TreeSpectrum
    n : int
        Rows.
    log_weight : float
        Σ log w.
    fit_intercept : bool
        Whether each cell has its own free mean.
    target_mean : (T,) float64
        Mean of all rows, for cells without rows; zeros without an intercept.
    targets : tuple of str
    """

    features: LocalFeatures
    trees: tuple[TreeSpectrum, ...]
    n: int
    log_weight: float
    fit_intercept: bool
    target_mean: Float64
    targets: tuple[str, ...]

    @property
    def eta(self) -> float:
        """η, the smallest α that the rounding of the sums allows in every cell."""
        floors = [rounding_floor(each) for tree in self.trees for each in tree.eigenvalues]
        return max(floors, default=0.0)

    def df(self, alpha: Array) -> Float64:
        """Effective degrees of freedom (J, T) of each tree at α (J, T)."""
        counts = [
            (np.maximum(tree.eigenvalues, 0)[..., None] / (tree.eigenvalues[..., None] + a)).sum(
                axis=(0, 1)
            )
            + len(tree.weight) * float(self.fit_intercept)
            for tree, a in zip(self.trees, alpha, strict=True)
        ]
        return np.array(counts)


@dataclass(frozen=True, slots=True, eq=False)
class LocalEvidence:
    """Variances that explain the data best, tree by tree.

    Parameters
    ----------
    alpha, noise_variance, signal_variance : (J, T) float64
        σₙ²/σ_f², σₙ² of a row of weight 1 and σ_f² (times k(x, x)), in units of y².
    log_evidence : (J, T) float64
        Of the rows under each tree alone.
    spectrum : LocalSpectrum
    """

    alpha: Float64
    noise_variance: Float64
    signal_variance: Float64
    log_evidence: Float64
    spectrum: LocalSpectrum


def local_spectrum(
    features: LocalFeatures, moments: CellMoments, *, fit_intercept: bool = True
) -> LocalSpectrum:
    """Decompositions of all cells, from moments of the same map.

    Notes
    -----
    About ten R³ flops a cell; J·B·R² float64 are held.
    """
    row = moments.row
    _require_rows(moments)
    trees = tuple(
        _tree_spectrum(features, moments, tree, fit_intercept) for tree in range(moments.n_trees)
    )
    mean = moments.target_mean() if fit_intercept else np.zeros(row.n_targets)
    names = row.targets or tuple(f"y{i}" for i in range(row.n_targets))
    return LocalSpectrum(features, trees, moments.n, moments.log_weight, fit_intercept, mean, names)


def local_evidence(
    spectrum: LocalSpectrum, *, shared: bool = False, alpha: Array | float | None = None
) -> LocalEvidence:
    """Noise and signal variance of each tree by maximal marginal likelihood.

    Parameters
    ----------
    spectrum : LocalSpectrum
    shared : bool
        One α for all targets of a tree.
    alpha : float or (T,), optional
        A given α: only the variances are found.
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


def cell_gcv(spectrum: LocalSpectrum, alphas: Array) -> Float64:
    """Generalised cross-validation (J, A, T) of each tree, α and target, in units of y².

        (RSS/Σw) / (1 − df/n)²,   RSS = Σ_c ỹᵀWỹ − Σ_c Σ (Uᵀc)² (λ + 2α)/(λ + α)²

    It assumes independent rows, as :func:`~rff_stream.answers.selection.gcv` does.

    Parameters
    ----------
    spectrum : LocalSpectrum
    alphas : (A,) array
        Positive; η is taken in place of smaller ones.
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


@dataclass(frozen=True, slots=True, eq=False)
class TreeMoments:
    """One tree's mean of f and its variance, and s_c² of the cell and σₙ² (n, T)."""

    mean: Float64
    variance: Float64
    scale: Float64
    noise: Float64


@dataclass(frozen=True, slots=True, eq=False)
class LocalPosterior:
    """x ↦ mean and variance of f, averaged over trees; picklable.

    Parameters
    ----------
    spectrum : LocalSpectrum
    alpha, noise_variance : (J, T) float64
    power : float
        p of the weights v⁻ᵖ of trees.
    inflation : (T,) float64
        Factor of standard deviations from calibration on left-out rows; 1 without one.
    near : (T,) float64
        Variance of f below which 75 % of left-out rows lie. From there on, to twice as much, a
        factor below 1 rises to 1: in a gap without data the standard deviation returns to that
        of the prior.
    cell_scale : tuple of J arrays (k, T) float64
        s_c² of the cells held.
    """

    spectrum: LocalSpectrum
    alpha: Float64
    noise_variance: Float64
    power: float
    inflation: Float64
    near: Float64
    cell_scale: tuple[Float64, ...]

    def mean(self, x: Array) -> Float64:
        """E f (n, T) of rows x (n, d)."""
        return self.moments(x)[0]

    def std(self, x: Array, *, noise: bool = False) -> Float64:
        """Standard deviation (n, T) of f, or of y with noise, in units of y."""
        _, variance, own = self._combine(self._of_trees(x))
        share = np.clip(variance / self.near - 1, 0, 1)  # 0 near rows, 1 far from them
        factor = self.inflation + np.maximum(1 - self.inflation, 0) * share
        return np.asarray(np.sqrt(variance + own if noise else variance) * factor)

    def arrays(self) -> dict[str, Array]:
        """The posterior as named arrays, for :meth:`from_arrays`: 8·J·B·R² bytes."""
        spectrum, n_cells = self.spectrum, self.spectrum.features.n_cells
        trees = spectrum.trees
        held = [t * n_cells + np.flatnonzero(tree.index >= 0) for t, tree in enumerate(trees)]
        joined = {
            name: np.concatenate([getattr(tree, name) for tree in trees]) for name in TREE_ARRAYS
        }
        return {
            **joined,
            "cells": np.concatenate(held).astype(np.int64),
            "all_mean": spectrum.target_mean,
            "rows": np.array([spectrum.n, int(spectrum.fit_intercept)], np.int64),
            "log_weight": np.array([spectrum.log_weight]),
            "tree_alpha": self.alpha,
            "tree_noise": self.noise_variance,
            "power": np.array([self.power]),
            "inflation": self.inflation,
            "near": self.near,
            "cell_scale": np.concatenate(self.cell_scale),
        }

    def __sizeof__(self) -> int:
        trees = self.spectrum.trees
        return sum(getattr(tree, name).nbytes for tree in trees for name in TREE_ARRAYS)

    @classmethod
    def from_arrays(
        cls, features: LocalFeatures, arrays: Mapping[str, Array], targets: tuple[str, ...]
    ) -> Self:
        """The posterior that gave these arrays."""
        cells, trees = arrays["cells"], []
        ends = np.searchsorted(cells, np.arange(features.n_trees + 1) * features.n_cells)
        for tree, (lo, hi) in enumerate(pairwise(ends.tolist())):
            index = np.full(features.n_cells, -1, np.int32)
            index[cells[lo:hi] - tree * features.n_cells] = np.arange(hi - lo)
            own: dict[str, Any] = {name: arrays[name][lo:hi] for name in TREE_ARRAYS}
            trees.append(TreeSpectrum(index=index, **own))
        n, fit_intercept = arrays["rows"].tolist()
        spectrum = LocalSpectrum(
            features,
            tuple(trees),
            n,
            float(arrays["log_weight"][0]),
            bool(fit_intercept),
            arrays["all_mean"],
            targets,
        )
        inflation = arrays["inflation"]
        scale = arrays.get("cell_scale", np.ones((len(cells), len(inflation))))
        return cls(
            spectrum,
            arrays["tree_alpha"],
            arrays["tree_noise"],
            float(arrays["power"][0]),
            inflation,
            arrays.get("near", np.full(len(inflation), np.inf)),
            tuple(np.split(scale, ends[1:-1])),
        )

    def noise(self) -> Float64:
        """σₙ² (T,) of a row of weight 1: the mean of the trees'."""
        return np.asarray(self.noise_variance.mean(axis=0))

    def moments(self, x: Array) -> tuple[Float64, Float64]:
        """Mean and variance (n, T) of f before calibration: J·(2R² + Rd) flops a row."""
        return self._combine(self._of_trees(x))[:2]

    def left_out(self, rows: Float64) -> tuple[Float64, Float64]:
        """Mean and variance (m, T) of f at rows [x, y, w] under the fit without each of them.

        Exact for the sums: a row's residual is r/(1 − h), h its leverage in its own cell, in
        every tree. Landmarks stay where they are. Sums of rounded columns can say h ≥ 1; a row
        that was counted has

            1 − h ≥ (1 − w/Σw) α/(α + s),    s = w‖z − z̄‖²/(1 − w/Σw)

        with equality where it alone has this direction.
        """
        return self._combine(self._left_out_trees(rows))[:2]

    def _left_out_trees(self, rows: Float64) -> list[TreeMoments]:
        t = len(self.inflation)
        x, y, w = rows[:, : -t - 1], rows[:, -t - 1 : -1], rows[:, -1:]
        trees = []
        for tree, cells in enumerate(self._route(x)):
            mean, missing, spread, rest = self._parts(tree, cells, x, w)
            rest = np.maximum(1 - spread * w, rest)  # 1 − h
            mean = y - (y - mean) / rest
            trees.append(self._scale_tree(tree, cells, mean, missing, spread / rest))
        return trees

    def _combine(self, trees: list[TreeMoments]) -> tuple[Float64, Float64, Float64]:
        return _combine(trees, self.power)

    def _of_trees(self, x: Array) -> list[TreeMoments]:
        """Those of every tree."""
        return [
            self._scale_tree(tree, cells, *self._parts(tree, cells, x)[:3])
            for tree, cells in enumerate(self._route(x))
        ]

    def _scale_tree(
        self, tree: int, cells: Array, mean: Float64, missing: Float64, spread: Float64
    ) -> TreeMoments:
        """Mean and variance of one tree, and s_c² of each row's cell; 1 for cells without rows."""
        noise = self.noise_variance[tree]
        scales = np.vstack([self.cell_scale[tree], np.ones(noise.shape)])
        scale = scales[self.spectrum.trees[tree].index[cells]]  # −1: the last
        return TreeMoments(mean, missing + noise * spread, scale, noise)

    def _route(self, x: Array) -> Array:
        return self.spectrum.features.route(x)

    def _parts(
        self, tree: int, cells: Array, x: Array, w: Float64 | None = None
    ) -> tuple[Float64, Float64, Float64, Float64]:
        """f, σ_f²[k(x,x) − zᵀz] and (z − z̄)ᵀ(G + αI)⁻¹(z − z̄) + 1/Σw of one tree, (n, T) each.

        With weights w (n, 1) of rows that were counted also the least 1 − h of each; else ones.
        """
        own, features = self.spectrum.trees[tree], self.spectrum.features
        prior = prior_variance(features.kernel, encode_rows(features.encoding, x))
        n_targets, alpha = len(self.inflation), self.alpha[tree]
        mean = np.broadcast_to(self.spectrum.target_mean, (len(x), n_targets)).copy()
        short, spread = prior.copy(), np.zeros((len(x), n_targets))
        rest = np.ones((len(x), n_targets))
        border = float(self.spectrum.fit_intercept)
        for cell, rows in _runs(cells):
            k = own.index[cell]
            if k < 0:
                continue
            values = np.empty((len(rows), features.n_components))
            features.kernel_values(tree, cell, x[rows], values)
            coordinates = values @ own.rotation[k]
            short[rows] -= np.einsum("ij,ij->i", coordinates, coordinates)
            coordinates -= own.centre[k]
            inverse = 1 / (own.eigenvalues[k][:, None] + alpha)
            mean[rows] = own.target_mean[k] + coordinates @ (own.rhs[k] * inverse)
            np.square(coordinates, out=coordinates)
            if w is not None:
                others = np.maximum(1 - border * w[rows] / own.weight[k], EPSILON)
                alone = w[rows] * coordinates.sum(axis=1, keepdims=True) / others
                rest[rows] = others * alpha / (alpha + alone)
            spread[rows] = coordinates @ inverse + border / own.weight[k]
        signal = self.noise_variance[tree] / alpha
        return mean, np.maximum(short, 0)[:, None] * signal, spread, rest


def local_posterior(evidence: LocalEvidence, sample: Float64 | None = None) -> LocalPosterior:
    """The process given the data, its trees weighed and its intervals calibrated on left-out rows.

    Parameters
    ----------
    evidence : LocalEvidence
    sample : (m, d + T + 1) float64, optional
        Rows [x, y, w] of the data; without at least 100 of them weights are 1/v and nothing is
        calibrated.

    Notes
    -----
    p is the largest power whose absolute leave-one-out error is within .5 % of the least: beside
    rows all trees know as much, and in a gap the tree that knows most is right. Standard
    deviations are multiplied so that ±1.96 of them cover 95 % of the left-out rows.
    """
    plain = LocalPosterior(
        spectrum=evidence.spectrum,
        alpha=evidence.alpha,
        noise_variance=evidence.noise_variance,
        power=1.0,
        inflation=np.ones(evidence.alpha.shape[1]),
        near=np.full(evidence.alpha.shape[1], np.inf),
        cell_scale=tuple(np.ones(tree.scatter.shape) for tree in evidence.spectrum.trees),
    )
    if sample is None or len(sample) < FEWEST_CALIBRATING:
        return plain
    plain = replace(plain, cell_scale=_cell_scales(evidence))
    t, tiny = len(plain.inflation), np.finfo(float).tiny
    y, w = sample[:, -t - 1 : -1], sample[:, -1:]
    trees = plain._left_out_trees(sample)
    fits = [(power, *_combine(trees, power)) for power in POWERS]
    unit = np.maximum(plain.noise(), tiny)
    losses = [float((w * abs(y - fit[1]) / np.sqrt(unit)).sum()) for fit in fits]
    alike = [fit for fit, loss in zip(fits, losses, strict=True) if loss <= ALIKE * min(losses)]
    power, mean, variance, noise = alike[-1]
    spread = np.sqrt(np.maximum(variance + noise / w, tiny))
    normal = 1.959963984540054
    inflation = conformal_quantile((y - mean) / spread, COVERAGE) / normal
    near = np.maximum(np.quantile(variance, NEAR_SHARE, axis=0), tiny)
    return replace(plain, power=power, inflation=inflation, near=near)


def _cell_scales(evidence: LocalEvidence) -> tuple[Float64, ...]:
    """s_c² (k, T) of the cells of each tree; their rows are counted by their share of Σ w."""
    spectrum = evidence.spectrum
    scales = []
    for tree, alpha, noise in zip(
        spectrum.trees, evidence.alpha, evidence.noise_variance, strict=True
    ):
        rows = spectrum.n * tree.weight / tree.weight.sum()
        freedom = np.maximum(rows - spectrum.fit_intercept, 0)
        scales.append(_cell_scale(tree, alpha, noise, freedom))
    return tuple(scales)


def _cell_scale(tree: TreeSpectrum, alpha: Float64, noise: Float64, freedom: Float64) -> Float64:
    """s_c² (k, T) of the cells of a tree, for the ν of highest evidence of each target."""
    misfit = tree.scatter - (tree.rhs**2 / (tree.eigenvalues[..., None] + alpha)).sum(axis=1)
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


def leave_one_out(posterior: LocalPosterior, sample: Float64) -> Float64:
    """Residuals y − f (m, T) of rows [x, y, w] under the fit without each of them."""
    t = len(posterior.inflation)
    return np.asarray(sample[:, -t - 1 : -1] - posterior.left_out(sample)[0])


def cross_validate_cells(
    features: LocalFeatures,
    folds: list[CellMoments],
    alphas: Array,
    *,
    fit_intercept: bool = True,
) -> Float64:
    """Held-out Σ w (y − f_t)² (K, J, A, T) of each fold, tree, α and target: exact, no second read.

    Parameters
    ----------
    features : LocalFeatures
    folds : list of CellMoments
        K ≥ 2 disjoint parts of the data; each is predicted from the sum of the others.
    alphas : (A,) array
        Positive.
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


def _tree_spectrum(
    features: LocalFeatures, moments: CellMoments, tree: int, fit_intercept: bool
) -> TreeSpectrum:
    row, span = moments.row, moments.of_tree(tree)
    r, t, k = row.n_features, row.n_targets, span.stop - span.start
    cells = moments.cells[span] - tree * moments.n_cells
    index = np.full(moments.n_cells, -1, np.int32)
    index[cells] = np.arange(k)
    found = TreeSpectrum(
        index=index,
        eigenvalues=np.empty((k, r)),
        rotation=np.empty((k, r, r)),
        rhs=np.empty((k, r, t)),
        centre=np.zeros((k, r)),
        target_mean=np.zeros((k, t)),
        weight=moments.cell_weights()[span],
        scatter=np.empty((k, t)),
    )
    for start in range(0, k, BLOCK_CELLS):
        block = slice(start, min(start + BLOCK_CELLS, k))
        matrices = moments.matrices(slice(span.start + block.start, span.start + block.stop))
        mean_z, mean_y = _centre(matrices, row.target_origin, r, fit_intercept)
        eigenvalues, vectors = np.linalg.eigh(matrices[:, :r, :r])
        turned = vectors.transpose(0, 2, 1)
        found.eigenvalues[block] = eigenvalues
        found.rhs[block] = turned @ matrices[:, :r, r + 1 :]
        found.centre[block] = (turned @ mean_z[..., None])[..., 0]
        found.target_mean[block] = mean_y
        found.scatter[block] = np.maximum(
            np.diagonal(matrices[:, r + 1 :, r + 1 :], axis1=1, axis2=2), 0
        )
        for i in range(block.start, block.stop):
            factor = features.exact_factor(tree, int(cells[i]))
            found.rotation[i] = linalg.solve_triangular(
                factor, vectors[i - start], lower=True, trans="T", check_finite=False
            )
    return found


def _centre(
    matrices: Float64, target_origin: Float64, r: int, fit_intercept: bool
) -> tuple[Float64, Float64]:
    """z̄ (k, R) and ȳ (k, T); M (k, P, P) becomes the scatter about them, in place.

    Without an intercept both are 0, and y₀ is added back.
    """
    weight = matrices[:, r, r].copy()
    border = matrices[:, r].copy()  # Σ w a
    shift = border / weight[:, None]
    if not fit_intercept:
        shift[:, :r] = 0.0
        shift[:, r + 1 :] = -target_origin
    v = border - 0.5 * weight[:, None] * shift
    v[:, r] = shift[:, r] = 0.0
    matrices -= shift[:, :, None] * v[:, None, :]
    matrices -= v[:, :, None] * shift[:, None, :]
    mean_y = shift[:, r + 1 :] + target_origin
    return shift[:, :r], mean_y


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


def _combine(trees: list[TreeMoments], power: float) -> tuple[Float64, Float64, Float64]:
    """Σ ω_t f_t, Σ ω_t s_t²v_t and Σ ω_t s_t²σₙ² with ω_t ∝ v_t⁻ᵖ.

    Weights follow the distance from landmarks and rows alone, not the noise of a cell.
    """
    variances = np.array([tree.variance for tree in trees])
    least = np.maximum(variances.min(axis=0), np.finfo(float).tiny)
    weights = (np.maximum(variances, least) / least) ** -power
    weights /= weights.sum(axis=0)
    mean, variance, noise = np.zeros((3, *least.shape))
    for tree, weight in zip(trees, weights, strict=True):
        mean += weight * tree.mean
        variance += weight * tree.scale * tree.variance
        noise += weight * tree.scale * tree.noise
    return mean, variance, noise


def _runs(cells: Array) -> Iterator[tuple[int, Array]]:
    """(cell, its rows) of each cell that occurs, rows in their order."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, cuts) if len(order) else []:
        yield int(cells[rows[0]]), rows


def _require_rows(moments: CellMoments) -> None:
    if moments.n < 1 or moments.row.n_targets < 1:
        raise ValueError(
            f"These moments hold {moments.n} rows and {moments.row.n_targets} targets. "
            "A fit needs at least one of each."
        )
    if not np.isfinite(moments.sums).all():
        raise ValueError(
            "These moments hold sums that are not finite. A fit needs finite rows; "
            "check the data for NaN, inf and overflow, and collect the moments again."
        )
