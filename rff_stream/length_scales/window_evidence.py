"""The evidence of a kernel on windows of rows, and its climb over length-scales or a metric.

Windows share one kernel and one α, and each has its own flat mean. With u = xA, A the metric:

    K = κ(U, U) + α diag(1/w),   P = K⁻¹ − K⁻¹11ᵀK⁻¹/(1ᵀK⁻¹1),   Q = yᵀPy
    −2 log p = Σ [(m − 1) log 2πσ² + log|K| + log 1ᵀK⁻¹1 + Q/σ²],   σ² = ΣQ/Σ(m − 1)
    ∂(−2 log p)/∂u_i = 4 Σⱼ Eᵢⱼ κ'(‖uᵢ − uⱼ‖²) (uᵢ − uⱼ),   E = P − Pyyᵀ P/σ²

κ' is the slope by the squared distance. From the derivative by the rows follow, at the cost of one
product, those by length-scales (A diagonal) and by every entry of a matrix A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize
from scipy.linalg import blas

from rff_stream._array import Array, Float64
from rff_stream.features.dense_triangle import invert_positive
from rff_stream.kernels import ExactKernel, RadialKernel
from rff_stream.length_scales.budget import (
    FEW_COLUMNS,
    PRODUCT_SECONDS,
    SearchBudget,
    seconds_of_columns,
    seconds_of_look,
)

LEAST_ALPHA, MOST_ALPHA = 1e-8, 1e2
"""Ends of the search over α = σₙ²/σ_f² for rows of weight 1."""

START_ALPHA = 0.05
"""Where α starts: half and twice change left-out errors of yacht, airfoil, wine and energy by at
most 2 %."""

STARTS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Multiples of the typical distance inside windows that are looked at first."""

RANGE = 1e3
"""Length-scales are searched for within this factor of their start."""

BY_NUMBER, FLAT = 0.5, 0.1
"""What chance alone adds to log p for each number that is sought, and the gain of a step for each
below which a search ends."""

FAILED = 1e300  # −log p of a matrix that has no factor: a line search steps back

SPREAD = 1.0
"""Standard deviation, a priori, of the entries of a metric about where its search begins, and of
logarithms of length-scales about their mean: few rows cannot tell so many numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class RowWindow:
    """Rows looked at together."""

    x: Float64  # (m, d)
    y: Float64  # (m, T)
    w: Float64  # (m,)

    @property
    def varies(self) -> bool:
        """Whether an input and a target vary: else no kernel explains more than another."""
        return bool((self.x != self.x[:1]).any() and (self.y != self.y[:1]).any())

    def part(self, own: Array) -> RowWindow:
        """Some of the rows, by their places."""
        return RowWindow(self.x[own], self.y[own], self.w[own])

    def joined(self, other: RowWindow) -> RowWindow:
        """These rows and others."""
        pairs = ((self.x, other.x), (self.y, other.y), (self.w, other.w))
        return RowWindow(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True, eq=False)
class MetricFit:
    """A kernel on rows xA that explains windows best."""

    kernel: ExactKernel  # of length-scale 1
    matrix: Float64  # A (d, k)
    alpha: float  # σₙ²/σ_f² of a row of weight 1
    log_evidence: float  # Σ log p of the windows, and log p of the numbers a priori

    def stretched(self, factor: float) -> MetricFit:
        """The same with length-scales so many times as long."""
        return replace(self, matrix=self.matrix / factor)

    @property
    def own_kernel(self) -> ExactKernel:
        """The kernel of rows x, with a length-scale for each input, where A is diagonal."""
        return self.kernel.with_length_scale(tuple((1 / self.matrix.diagonal()).tolist()))


class WindowEvidence:
    """−log p of all windows, over their rows, as a minimiser asks for it.

    Raises ValueError: where every target is constant in all windows.
    """

    def __init__(
        self, windows: Sequence[RowWindow], matrix: Float64, budget: SearchBudget | None = None
    ) -> None:
        unit = np.sqrt(np.mean([window.y.var(axis=0) for window in windows], axis=0))
        varied = [(window.y != window.y[:1]).any(axis=0) for window in windows]
        kept = np.any(varied, axis=0) & (unit > 0)  # the variance of equal numbers may be rounding
        if not kept.any():
            raise ValueError(
                "Every target is constant in all windows: there is nothing to learn "
                "length-scales from. Give them as numbers."
            )
        self._rows = [rows_along(each.x - each.x.mean(axis=0), matrix) for each in windows]
        self._vary = [bool((each.x != each.x[:1]).any()) for each in windows]
        self._y = [each.y[:, kept] / unit[kept] for each in windows]
        self._w = [each.w for each in windows]
        self._matrix = matrix
        self._rooms: list[_Room] = []
        self._squared: list[Float64] = []
        self.freedom = sum(len(each.x) - 1 for each in windows)
        self.evaluations = 0
        self._budget = SearchBudget() if budget is None else budget
        if mixes(matrix):
            self._budget.spent += sum(seconds_of_columns(len(u), *matrix.shape) for u in self._rows)

    @property
    def spread(self) -> float:
        """The typical distance of rows from the middle of their window, where they differ."""
        varied = [rows for rows, vary in zip(self._rows, self._vary, strict=True) if vary]
        sizes = [np.sqrt(rows.var(axis=0).sum()) for rows in varied]
        return (float(np.median(sizes)) if sizes else 0.0) or 1.0

    def at(self, kernel: ExactKernel, scale: float, alpha: float = START_ALPHA) -> float:
        """−log p / rows of rows over one length-scale."""
        if self._keeps_distances(kernel):
            return self._evaluate(kernel, self._rows, alpha, 1 / scale)[0]
        return self._evaluate(kernel, [rows / scale for rows in self._rows], alpha)[0]

    def climb_scales(
        self, kernel: ExactKernel, alpha: float, *, ard: bool, iterations: int = 60
    ) -> MetricFit:
        """The best length-scale for all columns of xA, or with ``ard`` one for each.

        A priori the logarithms of the latter are near to their mean.
        """
        k = self._matrix.shape[1]
        alike = not ard and self._keeps_distances(kernel)
        prior = 0.5 / (SPREAD**2 * self.freedom)

        def of_distances(point: Float64) -> tuple[float, Float64]:
            at, factor = float(np.exp(point[-1])), float(np.exp(-point[0]))
            value, slopes, to_alpha = self._evaluate(kernel, self._rows, at, factor)
            return value, np.array([-sum(map(float, slopes)), to_alpha])

        def objective(point: Float64) -> tuple[float, Float64]:
            factors = np.exp(-np.broadcast_to(point[:-1], (k,)))
            rows = [each * factors for each in self._rows]
            value, slopes, to_alpha = self._evaluate(kernel, rows, float(np.exp(point[-1])))
            to_scale = np.zeros(k)
            for each, slope in zip(rows, slopes, strict=True):
                to_scale -= slope if slope.ndim == 1 else (each * slope).sum(axis=0)
            if not ard:
                return value, np.r_[to_scale.sum(), to_alpha]
            moved = point[:-1] - point[:-1].mean()
            value += prior * float(moved @ moved)
            return value, np.r_[to_scale + 2 * prior * moved, to_alpha]

        bound = float(np.log(RANGE))
        start = np.zeros(k if ard else 1)
        wanted = of_distances if alike else objective
        point, value = self._climb(wanted, start, alpha, bound, iterations)
        matrix = self._matrix * np.exp(-np.broadcast_to(point[:-1], (k,)))
        return self._fit(kernel, matrix, point, value)

    def climb_metric(
        self, kernel: RadialKernel, alpha: float, *, iterations: int = 25
    ) -> MetricFit:
        """The best matrix for the columns of xA, near to the identity a priori: A times it."""
        k = self._matrix.shape[1]
        prior = 0.5 / (SPREAD**2 * self.freedom)
        identity = np.eye(k).ravel()

        def objective(point: Float64) -> tuple[float, Float64]:
            S = point[:-1].reshape(k, k)
            rows = [each @ S for each in self._rows]
            value, slopes, to_alpha = self._evaluate(kernel, rows, float(np.exp(point[-1])))
            to_matrix = np.zeros((k, k))
            for each, slope in zip(self._rows, slopes, strict=True):
                to_matrix += each.T @ slope
            moved = point[:-1] - identity
            gradient = to_matrix.ravel() + 2 * prior * moved
            return value + prior * float(moved @ moved), np.r_[gradient, to_alpha]

        point, value = self._climb(objective, identity, alpha, np.inf, iterations)
        return self._fit(kernel, self._matrix @ point[:-1].reshape(k, k), point, value)

    def _climb(
        self,
        objective: Callable[[Float64], tuple[float, Float64]],
        start: Float64,
        alpha: float,
        bound: float,
        iterations: int,
    ) -> tuple[Float64, float]:
        bounds = (
            [(-bound, bound)] * len(start) if np.isfinite(bound) else [(None, None)] * len(start)
        )
        ends = float(np.log(LEAST_ALPHA)), float(np.log(MOST_ALPHA))

        result = optimize.minimize(
            objective,
            np.r_[start, np.clip(np.log(alpha), *ends)],
            jac=True,
            method="L-BFGS-B",
            bounds=[*bounds, ends],
            callback=self._stop(FLAT * (len(start) + 1) / self.freedom),
            options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 0.0},
        )
        return result.x, float(result.fun)

    def _stop(self, flat: float) -> Callable[[optimize.OptimizeResult], None]:
        """Ends a search whose last step gained no more, or whose budget is spent."""
        before = np.inf

        def callback(intermediate_result: optimize.OptimizeResult) -> None:
            nonlocal before
            gain, before = before - intermediate_result.fun, intermediate_result.fun
            if gain < flat or self._budget.is_spent:
                raise StopIteration

        return callback

    def _fit(self, kernel: ExactKernel, matrix: Float64, point: Float64, value: float) -> MetricFit:
        return MetricFit(kernel, matrix, float(np.exp(point[-1])), -value * self.freedom)

    def _keeps_distances(self, kernel: ExactKernel) -> bool:
        """Whether one length-scale is sought from distances that are computed once.

        Of many columns they cost more than all else, and one length-scale only multiplies them.
        """
        return isinstance(kernel, RadialKernel) and self._matrix.shape[1] > FEW_COLUMNS

    def _distances(self) -> list[Float64]:
        """‖uᵢ − uⱼ‖² (m, m) of each window."""
        if not self._squared:
            k = self._matrix.shape[1]
            self._budget.spent += PRODUCT_SECONDS * k * sum(len(u) ** 2 for u in self._rows)
            self._squared = [squared_distances(u) for u in self._rows]
        return self._squared

    def _evaluate(
        self,
        kernel: ExactKernel,
        rows: Sequence[Float64],
        alpha: float,
        factor: float | None = None,
    ) -> tuple[float, list[Float64], float]:
        """−log p/rows; its derivatives by rows (m, k), or by −log ℓ (k,); that by log α.

        With a factor, of the first rows times it: the derivatives are those by its logarithm.
        """
        self.evaluations += 1
        radial, k = isinstance(kernel, RadialKernel), self._matrix.shape[1]
        k = k if factor is None else 0
        self._budget.spent += sum(seconds_of_look(len(u), k, radial) for u in rows)
        if not self._rooms:
            self._rooms = [_Room.of(len(each)) for each in self._rows]
        distances = [] if factor is None else [factor**2 * each for each in self._distances()]
        for room, squared in zip(self._rooms, distances, strict=False):
            room.squared[...] = squared
        solved = []
        for u, y, w, room in zip(rows, self._y, self._w, self._rooms, strict=True):
            part = _solve(kernel, u, y, w, alpha, room, has_distances=factor is not None)
            if part is None:
                none = [np.zeros(each.shape if factor is None else ()) for each in rows]
                return FAILED, none, 0.0
            solved.append(part)
        n_targets = self._y[0].shape[1]
        noise = np.sum([part.misfit for part in solved], axis=0) / self.freedom  # (T,)
        value = self.freedom * (np.log(2 * np.pi * noise) + 1).sum()
        value += n_targets * sum(part.log_det for part in solved)
        slopes, to_alpha = [], 0.0
        for place, (part, u, w) in enumerate(zip(solved, rows, self._w, strict=True)):
            change, own = part.change(w, alpha, noise)
            if factor is None:
                slope = part.slope(kernel, u, change)
            else:
                slope = part.slope_by_factor(change, distances[place])
            slopes.append(slope / (2 * self.freedom))
            to_alpha += own / (2 * self.freedom)
        return float(value) / (2 * self.freedom), slopes, to_alpha


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Matrices (m, m) of one window, written again at every step: new memory costs as much."""

    squared: Float64
    matrix: Float64
    pairs: Float64

    @classmethod
    def of(cls, m: int) -> _Room:
        return cls(*np.empty((3, m, m)))


@dataclass(frozen=True, slots=True, eq=False)
class _SolvedWindow:
    """What value and derivatives of one window share."""

    inverse: Float64  # K⁻¹ (m, m) in Fortran order; what lies above its diagonal is not used
    ones: Float64  # K⁻¹1 (m,)
    weighed: Float64  # Py (m, T)
    misfit: Float64  # Q (T,)
    log_det: float  # log|K| + log 1ᵀK⁻¹1
    pairs: Float64  # (m, m): κ' of a radial kernel, κ of any other

    def change(self, w: Float64, alpha: float, noise: Float64) -> tuple[Float64, float]:
        """E (m, m), below its diagonal, written over the inverse; ∂(−2 log p) by log α."""
        total, n_targets, change = float(self.ones.sum()), len(noise), self.inverse
        taken = np.column_stack(
            [self.ones * np.sqrt(n_targets / total), self.weighed / np.sqrt(noise)]
        )
        blas.dgemm(-1.0, taken, taken, n_targets, change, trans_b=True, overwrite_c=True)
        return change, alpha * float((change.diagonal() / w).sum())

    def slope(self, kernel: ExactKernel, u: Float64, change: Float64) -> Float64:
        """∂(−2 log p) by rows (m, k), or by −log ℓ (k,) where that is all a kernel knows.

        Writes over E.
        """
        if not isinstance(kernel, RadialKernel):
            return -kernel.weighted_gradient(u, change, self.pairs)
        change *= self.pairs.T
        both = blas.dsymm(1.0, change, np.column_stack([u, np.ones(len(u))]), lower=1)
        return np.asarray(4 * (both[:, -1:] * u - both[:, :-1]))

    def slope_by_factor(self, change: Float64, squared: Float64) -> Float64:
        """The same by the logarithm of a factor of all rows: Σ 2 Eᵢⱼ κ' ‖uᵢ − uⱼ‖²."""
        change *= self.pairs.T
        change *= squared.T
        return np.asarray(4 * np.tril(change, -1).sum())


def _solve(
    kernel: ExactKernel,
    u: Float64,
    y: Float64,
    w: Float64,
    alpha: float,
    room: _Room,
    *,
    has_distances: bool = False,
) -> _SolvedWindow | None:
    matrix, pairs = room.matrix, room.pairs
    if isinstance(kernel, RadialKernel):
        if not has_distances:
            squared_distances(u, out=room.squared)
        kernel.write_value_and_slope(room.squared, matrix, pairs)
    else:
        matrix[...] = pairs[...] = kernel(u, u)
    matrix[np.diag_indices_from(matrix)] += alpha / w
    inverse = matrix.T  # the same values in Fortran order
    log_det = invert_positive(inverse)
    if log_det is None:
        return None
    together = blas.dsymm(1.0, inverse, np.column_stack([np.ones(len(u)), y]), lower=1)
    ones, weighed = together[:, 0], together[:, 1:]
    total = float(ones.sum())
    weighed -= np.outer(ones, ones @ y / total)
    misfit = np.maximum((y * weighed).sum(axis=0), 1e-300)
    return _SolvedWindow(inverse, ones, weighed, misfit, log_det + float(np.log(total)), pairs)


def best_start(
    windows: Sequence[RowWindow],
    kernel: ExactKernel,
    unit: Float64,
    budget: SearchBudget | None = None,
) -> Float64:
    """The matrix of the best of some multiples of the typical distance, in units (d,)."""
    return best_multiple(windows, kernel, np.diag(1 / unit), budget)


def best_multiple(
    windows: Sequence[RowWindow],
    kernel: ExactKernel,
    matrix: Float64,
    budget: SearchBudget | None = None,
) -> Float64:
    """The best of some multiples of a matrix (d, k), by the typical distance of rows xA.

    From a scale far too long the evidence is flat, and a search ends where it began.
    """
    evidence = WindowEvidence(windows, matrix, budget)
    scales = [factor * evidence.spread for factor in STARTS]
    return matrix / min(scales, key=lambda scale: evidence.at(kernel, scale))


def fit_windows(
    windows: Sequence[RowWindow],
    kernel: ExactKernel,
    unit: Float64,
    *,
    ard: bool,
    iterations: int = 60,
) -> MetricFit:
    """The length-scales and α of the highest joint evidence of windows.

    The search begins from the best multiple of ``unit`` (d,); it finds one length-scale for all,
    and from there, with ``ard``, one for each input.
    """
    return climb_from(windows, kernel, best_start(windows, kernel, unit), ard, iterations)


def climb_from(
    windows: Sequence[RowWindow],
    kernel: ExactKernel,
    start: Float64,
    ard: bool,
    iterations: int,
    budget: SearchBudget | None = None,
) -> MetricFit:
    """The same from a matrix."""
    evidence = WindowEvidence(windows, start, budget)
    found = evidence.climb_scales(kernel, START_ALPHA, ard=False, iterations=iterations)
    if not ard:
        return found
    evidence = WindowEvidence(windows, found.matrix, budget)
    return evidence.climb_scales(kernel, found.alpha, ard=True, iterations=iterations)


def left_out_residuals(window: RowWindow, fit: MetricFit) -> Float64:
    """Errors (m, T) of rows of a window, each under the exact fit without it: (Py)ᵢ/Pᵢᵢ.

    NaN where the kernel has no Cholesky factor.
    """
    u = rows_along(window.x - window.x.mean(axis=0), fit.matrix)
    y = window.y - window.y.mean(axis=0)
    solved = _solve(fit.kernel, u, y, window.w, fit.alpha, _Room.of(len(u)))
    if solved is None:
        return np.full(window.y.shape, np.nan)
    diagonal = solved.inverse.diagonal() - solved.ones**2 / solved.ones.sum()
    return np.asarray(solved.weighed / diagonal[:, None])


def coefficients(window: RowWindow, fit: MetricFit) -> Float64:
    """Py (m, T): what the exact fit weighs the kernel of each row by; NaN where there is none."""
    u = rows_along(window.x - window.x.mean(axis=0), fit.matrix)
    y = window.y - window.y.mean(axis=0)
    solved = _solve(fit.kernel, u, y, window.w, fit.alpha, _Room.of(len(u)))
    return np.full(y.shape, np.nan) if solved is None else solved.weighed


def mixes(matrix: Float64) -> bool:
    """Whether A (d, k) is a metric, and no length-scale for each input: an input may have none."""
    diagonal = matrix.diagonal()
    return len(diagonal) < len(matrix) or bool((matrix != np.diag(diagonal)).any()) or 0 in diagonal


def rows_along(x: Float64, matrix: Float64) -> Float64:
    """Rows xA (n, k): one product a value, and not d, where A is diagonal."""
    return x @ matrix if mixes(matrix) else x * matrix.diagonal()


def squared_distances(u: Float64, v: Float64 | None = None, out: Float64 | None = None) -> Float64:
    """‖uᵢ − vⱼ‖² (n, m) by one product: rows are best centred. Exactly 0 of a row to itself."""
    other = u if v is None else v
    lengths, ones = np.einsum("ij,ij->i", u, u), np.ones(len(u))
    others = lengths if v is None else np.einsum("ij,ij->i", other, other)
    left = np.column_stack([u, lengths, ones])
    right = np.column_stack([-2 * other, np.ones(len(other)), others])
    squared = np.matmul(left, right.T, out=out)
    np.maximum(squared, 0, out=squared)
    if v is None:
        squared[np.diag_indices_from(squared)] = 0
    return np.asarray(squared)
