"""Prediction from the cells of random trees: a Gaussian process in each cell, averaged over trees.

    v(x) = σ_f²[k(x,x) − zᵀz] + σₙ²[(z − z̄)ᵀ(G_c + αI)⁻¹(z − z̄) + 1/Σw]

and J trees give f(x) = Σ_t ω_t f_t with ω_t ∝ v_t⁻ᵖ, and a variance with p ≤ 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64, JoinedArrays
from rff_stream.cells.map import LocalFeatures
from rff_stream.cells.spectrum import LocalTrees, TreeCells, TreeFactors, TreeSpectrum, coefficients
from rff_stream.cells.variance_form import ROWS_A_COLUMN, CellFit, VarianceForm, variance_form
from rff_stream.features.nystroem import self_kernel
from rff_stream.features.random_trees import order_by_cell
from rff_stream.moments.copies import Observations
from rff_stream.side_by_side import side_by_side

FLOAT64 = np.dtype(np.float64)
EPSILON = float(np.finfo(FLOAT64).eps)

RUN_CELLS, BATCH = 8, 512
"""Cells whose rows a thread predicts in one task, and rows at a time: their columns stay in the L2
cache."""

LEVEL_ROWS = 8
"""Landmarks whose kernel values give a cell's level: any number serves, a near one loses fewest
digits."""

ROUNDING = 1e-6
"""Relative difference that rounding can make between variances of f of equal rows."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeMoments:
    """One tree's mean of f and its variance, and s_c² of the cell and σₙ² (n, T)."""

    mean: Float64
    variance: Float64
    scale: Float64
    noise: Float64


@dataclass(frozen=True, slots=True, eq=False)
class _RowParts:
    """What the sums of one tree say of rows, (n, T) each."""

    mean: Float64  # f
    missing: Float64
    """k(x,x) − zᵀz (n,) of a cell, times σ_f² of a tree; all of the variance where a form tells it.
    """
    spread: Float64  # (z − z̄)ᵀ(G + αI)⁻¹(z − z̄) + 1/Σw
    rest: Float64  # the least 1 − h of rows that were counted, else 1


class NotSent(dict[Any, Any]):
    """Values that a process keeps for itself: pickled it is empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@dataclass(frozen=True, slots=True, eq=False)
class LocalPosterior:
    """x ↦ mean and variance of f, averaged over trees; picklable."""

    solved: LocalTrees
    alpha: Float64  # (J, T)
    noise_variance: Float64  # (J, T)
    power: float  # p of the weights v⁻ᵖ of trees
    inflation: Float64
    """(T,), c: factor of the deviation of the noise, calibrated on left-out rows; 1 without one."""
    of_function: Float64
    """(T,), the same of f: it is larger where the noise has heavy tails."""
    near: Float64
    far: Float64
    """(T,), quantiles (75 % and 95 % of left-out rows) of the variance of f before s_c². Between
    them a factor of f rises to ``gap_factor``, because in a gap the errors of the trees are
    alike."""
    cell_scale: tuple[Float64, ...]  # of J arrays (k, T) float64: s_c² of the cells held
    gap_factor: Float64 | float = 1.0  # (T,), least factor of the deviation of f far from rows
    unknown: Float64 | float = 0.0
    """(T,), share of the noise of a typical row that is of f: kernel and metric were found on the
    rows."""
    left_out_known: tuple[Float64, list[TreeMoments]] | None = None
    """The row sample that calibrated, and what trees say of it: that costs as much as a solve, and
    a choice among models asks again. Not stored."""
    rows_ahead: int = 0
    """Rows that are going to be asked for in several calls; not stored."""
    forms: NotSent = field(default_factory=NotSent, repr=False)
    """:class:`VarianceForm` of each (tree, cell) where one was made, or None: none serves."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.inflation)} targets: {self.solved.features}>"

    def for_rows(self, count: int) -> Self:
        """The same for so many rows in all, in calls of any size: they are answered alike."""
        return replace(self, rows_ahead=count)

    def mean(self, x: Array) -> Float64:
        """E f (n, T) of rows x (n, d)."""
        return self.moments(x)[0]

    def slopes(self, x: Array) -> Float64:
        """∂f/∂x_j (n, d, T) at rows x (n, d), the weights of the trees held at those of each row.

        How weights change says where one tree knows more than another, and not how y changes.
        """
        features = self.solved.features
        rows, routes = self.route(np.asarray(x, np.float64))
        found = np.zeros((*rows.shape, len(self.inflation)))
        for tree, (cells, share) in enumerate(zip(routes, self._tree_shares(x), strict=True)):
            own, alpha = self.solved.trees[tree], self.alpha[tree]
            for cell, places in runs_of_cells(cells):
                k = own.index[cell]
                if k < 0:
                    continue
                weights = own.kernel_weights(features, (tree, cell), own.solution(k, alpha))
                landmarks = features.landmark_rows(tree, cell)
                slopes = features.kernel.input_slopes(rows[places], landmarks, weights)
                found[places] += share[places, None] * slopes
        return found if features.encoding is None else features.encoding.slopes(x, found)

    def _tree_shares(self, x: Array) -> Float64:
        """ω (J, n, T) of each tree."""
        count, shape = len(self.alpha), (len(x), len(self.inflation))
        if count == 1 or self.power == 0:
            return np.full((count, *shape), 1 / count)
        return tree_shares([tree.variance for tree in self._of_trees(x)], self.power)

    def std(self, x: Array, *, noise: bool = False) -> Float64:
        """Standard deviation (n, T) of f, or of y with noise, in units of y."""
        of_f, own = np.split(self.variances(x), 2, axis=1)
        return np.asarray(np.sqrt(of_f + own if noise else of_f))

    def variances(self, x: Array) -> Float64:
        """Variances (n, 2T) of f, and of the noise of a new y."""
        return self.mean_and_variances(x)[:, len(self.inflation) :]

    def mean_and_variances(self, x: Array) -> Float64:
        """All (n, 3T): each costs as much as all, as the mean is weighed by variances."""
        return np.hstack(self._calibrated(self._of_trees(x)))

    def _calibrated(self, trees: list[TreeMoments]) -> tuple[Float64, Float64, Float64]:
        """Mean and variances (n, T) of rows with these moments of each tree."""
        mean, variance, own, plain = self._combine(trees)
        own, counted = self.inflation**2 * own, self.solved.observations
        of_f = self._factor(plain) ** 2 * variance + self.unknown * own / counted.typical_weight
        noise = (1 - self.unknown) * own / counted.copies
        return mean, of_f, np.broadcast_to(noise, mean.shape)

    def _factor(self, plain: Float64) -> Float64:
        """Of the deviation of f (n, T), where its variance before s_c² is this."""
        c = self.of_function
        return c + np.maximum(self.gap_factor - c, 0) * far_share(plain, self.near, self.far)

    def loadings(self, x: Array) -> Float64:
        """g√ω_t s_c (J, n, T): Σ of its squares times v_t, over the trees, is the variance of f."""
        trees = self._of_trees(x)
        variances = np.array([tree.variance for tree in trees])
        shares = tree_shares(variances, min(self.power, 1))
        squares = shares * [tree.scale for tree in trees]
        total = np.maximum((squares * variances).sum(axis=0), np.finfo(float).tiny)
        return np.asarray(np.sqrt(squares * (self._calibrated(trees)[1] / total)))

    def arrays(self) -> dict[str, Any]:
        """The posterior as named arrays, for :meth:`from_arrays`: 4·J·B·R² bytes, or twice that."""
        solved, n_cells = self.solved, self.solved.features.n_cells
        trees, counted = solved.trees, solved.observations
        held = [t * n_cells + np.flatnonzero(tree.index >= 0) for t, tree in enumerate(trees)]
        joined = {
            name: JoinedArrays(tuple(getattr(tree, name) for tree in trees))
            for name in trees[0].own_arrays
        }
        return {
            **joined,
            "cells": np.concatenate(held).astype(np.int64),
            "all_mean": solved.target_mean,
            "rows": np.array([counted.n, int(solved.fit_intercept)], np.int64),
            "log_weight": np.array([counted.log_weight]),
            **({"copies": np.array([counted.copies])} if counted.copies != 1 else {}),
            "tree_alpha": self.alpha,
            "tree_noise": self.noise_variance,
            "power": np.array([self.power]),
            "inflation": self.inflation,
            "of_function": self.of_function,
            "near": self.near,
            "far": self.far,
            "gap_factor": np.broadcast_to(self.gap_factor, self.inflation.shape),
            "cell_scale": np.concatenate(self.cell_scale),
            **({"unknown": np.atleast_1d(self.unknown)} if np.any(self.unknown) else {}),
        }

    def __sizeof__(self) -> int:
        trees = self.solved.trees
        return sum(getattr(tree, name).nbytes for tree in trees for name in tree.own_arrays)

    @classmethod
    def from_arrays(
        cls, features: LocalFeatures, arrays: Mapping[str, Array], targets: tuple[str, ...]
    ) -> Self:
        """The posterior that gave these arrays."""
        cells, trees = arrays["cells"], []
        kind: type[TreeCells] = TreeSpectrum if "rotation" in arrays else TreeFactors
        ends = np.searchsorted(cells, np.arange(features.n_trees + 1) * features.n_cells)
        for tree, (lo, hi) in enumerate(pairwise(ends.tolist())):
            index = np.full(features.n_cells, -1, np.int32)
            index[cells[lo:hi] - tree * features.n_cells] = np.arange(hi - lo)
            own: dict[str, Any] = {
                name: arrays[name][lo:hi] for name in kind.own_arrays if name in arrays
            }
            if kind is TreeFactors and "coef" not in own:  # of models that were stored before
                own["coef"] = coefficients(own["inverse_factor"], own["rhs"])
            trees.append(kind(index=index, **own))
        n, fit_intercept = arrays["rows"].tolist()
        solved = LocalTrees(
            features,
            tuple(trees),
            Observations(n, float(arrays["log_weight"][0]), float(arrays.get("copies", [1.0])[0])),
            bool(fit_intercept),
            arrays["all_mean"],
            targets,
        )
        inflation = arrays["inflation"]
        scale = arrays.get("cell_scale", np.ones((len(cells), len(inflation))))
        near = arrays.get("near", np.zeros(len(inflation)))
        near = np.where(np.isfinite(near), near, 0.0)  # ∞ in models of fewer than 100 rows, once
        return cls(
            solved,
            arrays["tree_alpha"],
            arrays["tree_noise"],
            float(arrays["power"][0]),
            inflation,
            arrays.get("of_function", inflation),
            near,
            arrays.get("far", 2 * near),
            tuple(np.split(scale, ends[1:-1])),
            np.asarray(arrays.get("gap_factor", np.ones(1))),
            np.asarray(arrays.get("unknown", np.zeros(1))),
        )

    def noise(self) -> Float64:
        """Variance (T,) of the noise of a new row: the mean of the trees'."""
        return np.asarray(self.noise_variance.mean(axis=0) / self.solved.observations.copies)

    def moments(self, x: Array) -> tuple[Float64, Float64]:
        """Mean and variance (n, T) of f before calibration: J·(2R² + Rd) flops a row."""
        return self._combine(self._of_trees(x))[:2]

    def left_out(self, rows: Float64) -> tuple[Float64, Float64]:
        """Mean and variance (m, T) of f at rows [x, y, w] under the fit without each of them.

        Exact for the sums: a row's residual is r/(1 − h), h its leverage in its own cell, in
        every tree. A row that is a landmark is predicted from the other landmarks of its cell, as
        a new row is. Sums of rounded columns can say h ≥ 1; a row that was counted has

            1 − h ≥ (1 − w/Σw) α/(α + s),    s = w‖z − z̄‖²/(1 − w/Σw)

        with equality where it alone has this direction.
        """
        return self._combine(self.left_out_trees(rows))[:2]

    def leave_one_out(self, rows: Float64) -> Float64:
        """Residuals y − f (m, T) of rows [x, y, w] under the fit without each of them."""
        t = len(self.inflation)
        return np.asarray(rows[:, -t - 1 : -1] - self.left_out(rows)[0])

    def left_out_variances(self, rows: Float64) -> tuple[Float64, Float64, Float64]:
        """The same residuals, and variances (m, T) there of f, and of the noise."""
        mean, of_f, own = self._calibrated(self.left_out_trees(rows))
        return rows[:, -mean.shape[1] - 1 : -1] - mean, of_f, own

    def left_out_trees(self, rows: Float64) -> list[TreeMoments]:
        """What every tree says there, before trees are combined."""
        if self.left_out_known is not None and np.array_equal(rows, self.left_out_known[0]):
            return self.left_out_known[1]
        t = len(self.inflation)
        x, y, w = rows[:, : -t - 1], rows[:, -t - 1 : -1], rows[:, -1:]
        trees = []
        encoded, routes = self.route(x)
        for tree, cells in enumerate(routes):
            found = self._of_rows(tree, cells, encoded, w)
            rest = np.maximum(1 - found.spread * w, found.rest)  # 1 − h
            mean, spread = y - (y - found.mean) / rest, found.spread / rest
            trees.append(self._scale_tree(tree, cells, mean, found.missing, spread))
        return trees

    def _combine(self, trees: list[TreeMoments]) -> tuple[Float64, Float64, Float64, Float64]:
        return combine_trees(trees, self.power)

    def _of_trees(self, x: Array) -> list[TreeMoments]:
        """Those of every tree."""
        trees = []
        rows, routes = self.route(x)
        for tree, cells in enumerate(routes):
            found = self._of_rows(tree, cells, rows)
            trees.append(self._scale_tree(tree, cells, found.mean, found.missing, found.spread))
        return trees

    def _scale_tree(
        self, tree: int, cells: Array, mean: Float64, missing: Float64, spread: Float64
    ) -> TreeMoments:
        """Mean and variance of one tree, and s_c² of each row's cell; 1 for cells without rows."""
        noise = self.noise_variance[tree]
        scales = np.vstack([self.cell_scale[tree], np.ones(noise.shape)])
        scale = scales[self.solved.trees[tree].index[cells]]  # −1: the last
        return TreeMoments(mean, missing + noise * spread, scale, noise)

    def route(self, x: Array) -> tuple[Float64, Array]:
        """Encoded rows, and their cell (J, n) in each tree."""
        features = self.solved.features
        rows = features.encode(x)
        return rows, features.partition.route(rows)

    def _of_rows(self, tree: int, cells: Array, x: Float64, w: Float64 | None = None) -> _RowParts:
        """What one tree says of encoded rows x (n, d) in these cells.

        With weights w (n, 1) of rows that were counted: without the landmark that a row is.
        """
        features, own = self.solved.features, self.solved.trees[tree]
        order, ends = order_by_cell(cells, features.n_cells)
        held = np.flatnonzero(np.diff(ends) * (own.index >= 0))
        count, n_targets = len(x), len(self.inflation)
        x, w = x[order], None if w is None else w[order]  # rows of a cell lie together
        mean = np.broadcast_to(self.solved.target_mean, (count, n_targets)).copy()
        missing = self_kernel(features.kernel, x)
        spread, rest = np.zeros(mean.shape), np.ones(mean.shape)
        places = features.rows_of_cells(tree, cells[order], x)
        dense = max(count, self.rows_ahead) >= (
            ROWS_A_COLUMN * features.n_components * features.n_cells
        )

        def add(some: Array) -> None:
            for cell in some.tolist():
                start, stop = int(ends[cell]), int(ends[cell + 1])
                form = self._form(tree, cell) if dense and w is None else None
                dtype = self._precision(tree, cell, form) if w is None else FLOAT64
                batches = max(round((stop - start) / BATCH), 1)
                edges = [start + (stop - start) * i // batches for i in range(batches + 1)]
                for lo, hi in pairwise(edges):
                    rows = slice(lo, hi)
                    values = np.empty((hi - lo, features.n_components), dtype)
                    if form is not None:  # the spread is 0: the form tells the sum of both
                        features.kernel_values(tree, cell, places[rows], values, form.level)
                        mean[rows], missing[rows] = form(values, missing[rows])
                        continue
                    features.kernel_values(tree, cell, places[rows], values)
                    found = self._of_cell(tree, cell, values, missing[rows])
                    if w is not None:
                        found = self._without_landmarks(tree, cell, x[rows], w[rows], *found)
                    told = found[0]
                    mean[rows], missing[rows] = told.mean, told.missing
                    spread[rows], rest[rows] = told.spread, told.rest

        side_by_side(add, np.array_split(held, max(len(held) // RUN_CELLS, 1)))
        signal = self.noise_variance[tree] / self.alpha[tree]
        missing = np.maximum(missing, 0)[:, None] * signal
        return _RowParts(*(_unsorted(each, order) for each in (mean, missing, spread, rest)))

    def _precision(self, tree: int, cell: int, form: VarianceForm | None) -> np.dtype[Any]:
        """Of the kernel values of rows that are predicted."""
        if form is not None:
            return form.factor.dtype
        own: TreeCells = self.solved.trees[tree]
        return own.precision(own.index[cell], self.alpha[tree])

    def _form(self, tree: int, cell: int) -> VarianceForm | None:
        """The form of a cell, which is made once; None where none serves."""
        own: TreeCells = self.solved.trees[tree]
        key = (tree, cell)
        if not isinstance(own, TreeFactors):
            return None
        form: VarianceForm | None = self.forms.get(key)
        if key not in self.forms:
            features, k, alpha = self.solved.features, own.index[cell], float(self.alpha[tree][0])
            weight, landmarks = float(own.weight[k]), features.landmark_rows(tree, cell)
            fit = CellFit(
                *features.inverse_factor(tree, cell),
                inverse_system=own.inverse_factor[k],
                alpha=alpha,
                share=alpha * float(own.freedom[k]) / weight,
                centre=own.centre[k],
                coef=own.coef[k],
                target_mean=own.target_mean[k],
                signal=self.noise_variance[tree] / alpha,
                weight=weight if self.solved.fit_intercept else np.inf,
                largest=float(self_kernel(features.kernel, landmarks).max()),
                level=float(features.kernel(landmarks[:LEVEL_ROWS], landmarks).mean()),
            )
            self.forms[key] = form = variance_form(fit)
            if form is not None:
                features.forget_factor(tree, cell)
        return form

    def _of_cell(
        self, tree: int, cell: int, values: Float64, own_kernel: Float64
    ) -> tuple[_RowParts, Float64, Float64]:
        """The same for rows of one cell, of k(x, U_c) (n, R), written over, and k(x, x) (n,).

        And their coordinates about the centre of the cell, plain and white.
        """
        own, features, alpha = self.solved.trees[tree], self.solved.features, self.alpha[tree]
        k = own.index[cell]
        coordinates = own.coordinates(features, (tree, cell), values)
        missing = own_kernel - _squares(coordinates)
        centre, solution = (
            each.astype(coordinates.dtype, copy=False)
            for each in (own.centre[k], own.solution(k, alpha))
        )
        coordinates -= centre
        white = own.whitened(k, coordinates)
        mean = own.target_mean[k] + coordinates @ solution
        spread = own.spread(k, white, alpha)
        spread += float(self.solved.fit_intercept) / own.weight[k]
        return _RowParts(mean, missing, spread, np.ones(mean.shape)), coordinates, white

    def _without_landmarks(
        self,
        tree: int,
        cell: int,
        x: Float64,
        w: Float64,
        found: _RowParts,
        coordinates: Float64,
        white: Float64,
    ) -> tuple[_RowParts, Float64, Float64]:
        """The same for rows of one cell that were counted, without the landmarks that they are."""
        own, features, alpha = self.solved.trees[tree], self.solved.features, self.alpha[tree]
        k, border = own.index[cell], float(self.solved.fit_intercept)
        inverse, alone = own.inverse(k, alpha), _squares(coordinates)
        mean, missing, spread = found.mean, found.missing, found.spread
        at, landmarks = features.landmarks_at(tree, cell, x)
        if len(at):
            # Without its landmark f is at right angles to L⁻¹e, which is ``normal``.
            normal = own.landmark_normals(features, (tree, cell), landmarks)
            alone[at] -= np.einsum("ij,ij->i", coordinates[at], normal) ** 2 / _squares(normal)
            there = np.einsum("ij,ij->i", coordinates[at] + own.centre[k], normal)
            missing[at] += there**2 / _squares(normal)
            without = normal @ own.solution(k, alpha)
            normal = own.whitened(k, normal)
            along = (white[at] * normal) @ inverse / (normal**2 @ inverse)
            mean[at] -= along * without
            spread[at] -= along**2 * (normal**2 @ inverse)
        others = np.maximum(1 - border * w / own.weight[k], EPSILON)
        rest = others * alpha / (alpha + w * alone[:, None] / others)
        return _RowParts(mean, missing, spread, rest), coordinates, white


def _unsorted(rows: Float64, order: Array) -> Float64:
    """Sorted rows in the order in which they came."""
    found = np.empty_like(rows)
    found[order] = rows
    return found


def _squares(rows: Float64) -> Float64:
    """Squared lengths (n,) of rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def far_share(variance: Float64, near: Float64, far: Float64) -> Float64:
    """0 where a variance of f is that of rows beside others, 1 where hardly one has as much."""
    # equal rows, of a lattice say, have one variance up to rounding: near = far is a step
    width = np.maximum(np.maximum(far - near, ROUNDING * near), np.finfo(float).tiny)
    return np.asarray(np.clip(variance - near, 0, width) / width)


def tree_shares(variances: ArrayLike, power: float) -> Float64:
    """ω ∝ v⁻ᵖ (J, n, T) of variances v (J, n, T): they add to 1."""
    v = np.asarray(variances)
    least = np.maximum(v.min(axis=0), np.finfo(float).tiny)
    ratios = (np.maximum(v, least) / least) ** -power
    return np.asarray(ratios / ratios.sum(axis=0))


def combine_trees(
    trees: list[TreeMoments], power: float
) -> tuple[Float64, Float64, Float64, Float64]:
    """Σ ω_t f_t with ω_t ∝ v_t⁻ᵖ; Σ ω_t s_t²v_t, Σ ω_t s_t²σₙ² and Σ ω_t v_t with p ≤ 1.

    Weights follow the distance from landmarks and rows alone, not the noise of a cell. With a
    large p the variance would be the least of J, which is too small in gaps.
    """
    variances = np.array([tree.variance for tree in trees])
    weights, shares = (tree_shares(variances, p) for p in (power, min(power, 1)))
    mean, variance, noise = np.zeros((3, *variances[0].shape))
    for tree, weight, share in zip(trees, weights, shares, strict=True):
        mean += weight * tree.mean
        variance += share * tree.scale * tree.variance
        noise += share * tree.scale * tree.noise
    return mean, variance, noise, (shares * variances).sum(axis=0)


def runs_of_cells(cells: Array) -> Iterator[tuple[int, Array]]:
    """(cell, its rows) of each cell that occurs, rows in their order."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, cuts) if len(order) else []:
        yield int(cells[rows[0]]), rows
