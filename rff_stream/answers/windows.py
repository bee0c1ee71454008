"""Length-scales from compact windows of rows: what a local model must know about its cells.

Rows scattered over the whole range cannot see scales shorter than the distance between them. A
window is a few hundred neighbouring rows; several windows (and some sets of scattered rows, which
see the long scales) share one kernel and one α, and each has its own flat mean:

    K = κ(X, X) + α diag(1/w),   P = K⁻¹ − K⁻¹11ᵀK⁻¹/(1ᵀK⁻¹1),   Q = yᵀPy
    −2 log p = Σ [(m − 1) log 2πσ² + log|K| + log 1ᵀK⁻¹1 + Q/σ²],   σ² = ΣQ/Σ(m − 1)
    ∂(−2 log p) = Σ tr(E ∂K),   E = P − Pyyᵀ P/σ²

Exact, dense and small: 20 windows of 256 rows cost a second for 60 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from scipy import linalg, optimize
from scipy.linalg import lapack
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.answers.system import mirror_lower
from rff_stream.kernels import ExactKernel, RadialKernel

__all__ = [
    "Window",
    "compact_windows",
    "fit_windows",
    "neighbour_scale",
    "scattered_windows",
    "search_windows",
    "sparse_evidence",
]

RANGE = 1e3
"""Length-scales are looked for within this factor of where they start."""

NUGGET = 1e-8
"""ε of the landmarks, in units of k(x, x)."""

LEAST_ALPHA, MOST_ALPHA = 1e-8, 1e2
"""Ends of the search over α = σₙ²/σ_f² of rows of weight 1."""

START_ALPHA = 0.05
STARTS = (0.3, 1.0, 3.0)
"""Multiples of the typical distance inside the windows that a search starts from."""

FLAT = 1e-6
"""Relative change of log p at which a search ends."""

FAILED = 1e300


SPARSE_ROWS, SPARSE_BLOCKS = 512, 6
"""Rows of a block, and blocks, on which candidates are compared with as few landmarks as cells
will have."""

FACTORS = (0.5, 0.7, 1.0, 1.4)
"""Length-scales that are compared: those found, times each of these."""

WINDOW_ROWS, SCATTERED_ROWS, SCATTERED_SETS = 256, 400, 3
"""Rows of a compact window that is fitted; rows and number of the scattered sets beside them."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Rows looked at together.

    Parameters
    ----------
    x, y, w : (m, d), (m, T), (m,) float64
    """

    x: Float64
    y: Float64
    w: Float64


@dataclass(frozen=True, slots=True, eq=False)
class WindowFit:
    """The kernel that explains the windows best.

    Parameters
    ----------
    kernel : ExactKernel
        With its length-scales, in units of the inputs.
    alpha : float
        σₙ²/σ_f² of a row of weight 1.
    log_evidence : float
        Σ log p of the windows.
    evaluations : int
    """

    kernel: ExactKernel
    alpha: float
    log_evidence: float
    evaluations: int


def neighbour_scale(x: Float64) -> Float64:
    """Typical step from row to row along each input (d,), 1 for a constant one.

    range/Lᵃ with L different values and a such that ΠLᵃ = m: the spacing of a grid (a = 1), an
    equal share of the range for scattered rows (a = 1/d), and between them what is between.
    """
    levels = np.array([len(np.unique(column)) for column in x.T], np.float64)
    spread = np.ptp(x, axis=0)
    logs = np.log(levels)
    share = np.log(len(x)) / logs.sum() if logs.sum() > 0 else 1.0
    return np.where(spread > 0, spread / levels ** min(share, 1.0), 1.0)


def search_windows(
    blocks: Sequence[Window],
    rows: Window,
    kernels: Sequence[ExactKernel],
    *,
    ard: bool,
    rng: Generator,
    share: float | None = None,
) -> WindowFit:
    """Kernel and length-scales from blocks of neighbouring rows and from rows of everywhere.

    Windows are first compact in steps from row to row; where that has told length-scales, once
    more in their units, so that a window is as long as it is wide for the kernel.

    Parameters
    ----------
    blocks : sequence of Window
        Neighbouring rows at the full density of the data, more than a window needs.
    rows : Window
        Scattered over the data.
    kernels : sequence of ExactKernel
        Those that compete.
    ard : bool
    rng : Generator
    share : float, optional
        Landmarks of a cell over its rows. With few landmarks another kernel or length-scale may
        be better than for all rows: the ends of the searches, and multiples of them, are then
        compared by the evidence of models with as few.

    Notes
    -----
    5 to 20 CPU seconds for ten blocks and one kernel.
    """
    scattered = scattered_windows(
        rows.x, rows.y, rows.w, size=SCATTERED_ROWS, count=SCATTERED_SETS, rng=rng
    )
    scale = np.median([neighbour_scale(block.x) for block in blocks], axis=0)
    windows, unit = [*_centres(blocks, scale), *scattered], _deviation(rows.x)
    ends = [fit_windows(windows, [kernel], scale=unit, ard=ard) for kernel in kernels]
    first = max(ends, key=lambda end: end.log_evidence)
    learnt = np.asarray(first.kernel.length_scale, np.float64)
    windows = [*_centres(blocks, learnt), *scattered]
    second = fit_windows(windows, [first.kernel], scale=learnt, ard=ard, start=learnt)
    if share is None or share >= 1:
        return second
    candidates = [_stretch(end, factor) for end in [second, *ends] for factor in FACTORS]
    few = _centres(blocks[:SPARSE_BLOCKS], learnt, SPARSE_ROWS)
    order = rng.permutation(SPARSE_ROWS)
    return max(candidates, key=lambda end: sparse_evidence(end.kernel, few, share, order))


def _stretch(end: WindowFit, factor: float) -> WindowFit:
    """The same kernel with length-scales times a factor."""
    scales = np.asarray(end.kernel.length_scale, np.float64) * factor
    return replace(end, kernel=end.kernel.with_length_scale(tuple(scales.tolist())))


def sparse_evidence(
    kernel: ExactKernel, windows: Sequence[Window], share: float, order: Array
) -> float:
    """log p of windows as cells of a local model whose landmarks are a share of their rows.

    α is the best one for all windows together, as it will be for all cells of a tree.

    Parameters
    ----------
    kernel : ExactKernel
    windows : sequence of Window
        At most as many rows each as ``order`` has.
    share : float
    order : (m,) int array
        Landmarks are the first rows in this order.
    """
    eigenvalues, squared, scatter, freedom, constant = [], [], 0.0, 0, 0.0
    for each in windows:
        n = len(each.x)
        chosen = order[order < n][: max(round(share * n), 1)]
        U = each.x[chosen]
        values = np.asarray(kernel(U, U))
        values[np.diag_indices_from(values)] += NUGGET * kernel.variance
        factor = linalg.cholesky(values, lower=True, check_finite=False)
        Z = linalg.solve_triangular(factor, kernel(U, each.x), lower=True, check_finite=False).T
        root = np.sqrt(each.w)[:, None]
        Z = root * (Z - np.average(Z, axis=0, weights=each.w))
        y = root * (each.y - np.average(each.y, axis=0, weights=each.w))
        found, vectors = linalg.eigh(Z.T @ Z, check_finite=False, driver="evd")
        eigenvalues.append(found)
        squared.append((vectors.T @ (Z.T @ y)) ** 2)
        scatter = scatter + (y**2).sum(axis=0)
        freedom += n - 1
        constant += float(np.log(each.w.sum()) - np.log(each.w).sum())
    joined = np.concatenate(eigenvalues)[:, None]
    total = np.asarray(scatter)
    profile = Profile(
        eigenvalues=joined,
        squared_rhs=np.concatenate(squared),
        scatter=total,
        least=total * NUGGET**2,
        freedom=freedom,
        constant=freedom * float(np.log(2 * np.pi)) + constant,
    )
    alpha = best_alpha(profile, float(joined.max()), NUGGET * len(order), shared=True)
    values = profile.log_evidence(alpha, profile.noise(alpha))
    return float(values[total > 0].sum())


def _centres(blocks: Sequence[Window], scale: Float64, size: int = WINDOW_ROWS) -> list[Window]:
    """The rows of each block that are nearest to its median row, over ``scale``."""
    windows = []
    for block in blocks:
        centre = np.median(block.x, axis=0)
        distance = (((block.x - centre) / scale) ** 2).sum(axis=1)
        near = np.sort(np.argsort(distance, kind="stable")[:size])
        windows.append(Window(block.x[near], block.y[near], block.w[near]))
    return [window for window in windows if len(window.x) > 1]


def compact_windows(
    x: Float64,
    y: Float64,
    w: Float64,
    *,
    scale: Float64,
    size: int,
    count: int,
    rng: Generator,
) -> list[Window]:
    """``count`` windows: a row drawn at random with its ``size`` − 1 nearest, over ``scale``."""
    centres = rng.permutation(len(x))[:count]
    scaled = x / scale
    windows = []
    for centre in centres:
        distance = cdist(scaled[centre : centre + 1], scaled, "sqeuclidean")[0]
        near = np.sort(np.argsort(distance, kind="stable")[:size])
        windows.append(Window(x[near], y[near], w[near]))
    return windows


def scattered_windows(
    x: Float64, y: Float64, w: Float64, *, size: int, count: int, rng: Generator
) -> list[Window]:
    """``count`` disjoint sets of ``size`` random rows; fewer where there are not so many."""
    order = rng.permutation(len(x))
    sets = [order[i * size : (i + 1) * size] for i in range(count)]
    return [Window(x[rows], y[rows], w[rows]) for rows in sets if len(rows) > 1]


def fit_windows(
    windows: Sequence[Window],
    kernels: Sequence[ExactKernel],
    *,
    scale: Float64,
    ard: bool = True,
    start: Float64 | None = None,
    iterations: int = 60,
) -> WindowFit:
    """The kernel, length-scales and α of the highest joint evidence of some windows.

    Parameters
    ----------
    windows : sequence of Window
    kernels : sequence of ExactKernel
        Those that compete; their own length-scales are not used.
    scale : (d,) float64
        Units in which inputs are compared at the start.
    ard : bool
        One length-scale for each input, else one multiple of ``scale``.
    start : (d,) float64, optional
        Length-scales to start from, in units of the inputs; several multiples of the typical
        distance in the windows where absent.
    iterations : int
        Most steps of each search.

    Returns
    -------
    WindowFit

    Notes
    -----
    Windows × m³ flops a step, gradients included (three times a Cholesky factor).
    """
    target = _Targets(windows, scale)
    ends = [
        _search(target, kernel, first, ard, iterations)
        for kernel in kernels
        for first in target.starts(start)
    ]
    return max(ends, key=lambda end: end.log_evidence)


def _search(
    target: _Targets, kernel: ExactKernel, first: Float64, ard: bool, iterations: int
) -> WindowFit:
    """L-BFGS from one start: all inputs alike first, then each for itself."""
    rounds = (False, True) if ard else (False,)
    log_scale, log_alpha, count = np.zeros(1), float(np.log(START_ALPHA)), 0
    value = FAILED
    for each in rounds:
        free = np.broadcast_to(log_scale, (len(first) if each else 1,))
        bounds = [(-np.log(RANGE), np.log(RANGE))] * len(free)
        bounds += [(np.log(LEAST_ALPHA), np.log(MOST_ALPHA))]
        result = optimize.minimize(
            target.objective,
            np.r_[free, log_alpha],
            args=(kernel, first),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": iterations, "ftol": FLAT},
        )
        log_scale, log_alpha = result.x[:-1], float(result.x[-1])
        value, count = float(result.fun), count + int(result.nfev)
    scales = np.broadcast_to(np.exp(log_scale), first.shape) * first
    return WindowFit(
        kernel.with_length_scale(tuple(scales.tolist())),
        float(np.exp(log_alpha)),
        -value * target.freedom,
        count,
    )


class _Targets:
    """−log p of all windows, over their rows, as the minimiser asks for it."""

    def __init__(self, windows: Sequence[Window], scale: Float64) -> None:
        unit = np.sqrt(np.mean([_variance(window.y) for window in windows], axis=0))
        kept = unit > 0
        if not kept.any():
            raise ValueError(
                "Every target is constant in all windows: there is nothing to learn "
                "length-scales from. Give them as numbers."
            )
        self._windows = [Window(each.x, each.y[:, kept] / unit[kept], each.w) for each in windows]
        self._scale = scale
        self.freedom = sum(len(each.x) - 1 for each in windows)

    def starts(self, start: Float64 | None) -> list[Float64]:
        """Length-scales (d,) that searches begin from."""
        if start is not None:
            return [np.asarray(start, np.float64)]
        spread = [np.sqrt(_variance(each.x / self._scale).sum()) for each in self._windows]
        typical = float(np.median(spread)) or 1.0
        return [self._scale * typical * factor for factor in STARTS]

    def objective(
        self, point: Float64, kernel: ExactKernel, first: Float64
    ) -> tuple[float, Float64]:
        """−log p / rows at [log ℓ/first, log α], and its gradient."""
        scales = np.broadcast_to(np.exp(point[:-1]), first.shape) * first
        alpha = float(np.exp(point[-1]))
        unit = kernel.with_length_scale(tuple(scales.tolist()))
        n_targets = self._windows[0].y.shape[1]
        parts = [_solve(unit, window, alpha) for window in self._windows]
        if any(part is None for part in parts):
            return FAILED, np.zeros_like(point)
        solved = [part for part in parts if part is not None]
        noise = np.sum([part.misfit for part in solved], axis=0) / self.freedom  # (T,)
        value = self.freedom * (np.log(2 * np.pi * noise) + 1).sum()
        value += n_targets * sum(part.log_det for part in solved)
        value *= 0.5 / self.freedom
        gradient = np.zeros(len(first) + 1)
        for part, window in zip(solved, self._windows, strict=True):
            gradient += _gradient(unit, window, part, noise, scales, alpha)
        gradient *= 0.5 / self.freedom
        if len(point) == 2:
            gradient = np.r_[gradient[:-1].sum(), gradient[-1]]
        return float(value), gradient


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """What value and gradient of one window share."""

    inverse: Float64  # P (m, m)
    weighed: Float64  # Py (m, T)
    misfit: Float64  # Q (T,)
    log_det: float  # log|K| + log 1ᵀK⁻¹1


def _solve(kernel: ExactKernel, window: Window, alpha: float) -> _Solved | None:
    matrix = np.array(kernel(window.x, window.x))
    matrix[np.diag_indices_from(matrix)] += alpha / window.w
    factor, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed:
        return None
    log_det = 2 * float(np.log(factor.diagonal()).sum())
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    mirror_lower(inverse)
    ones = inverse.sum(axis=0)
    total = float(ones.sum())
    inverse -= np.outer(ones / total, ones)
    weighed = inverse @ window.y
    misfit = np.maximum((window.y * weighed).sum(axis=0), 1e-300)
    return _Solved(inverse, weighed, misfit, log_det + float(np.log(total)))


def _gradient(
    kernel: ExactKernel,
    window: Window,
    solved: _Solved,
    noise: Float64,
    scales: Float64,
    alpha: float,
) -> Float64:
    """∂(−2 log p)/∂[log ℓ (d,), log α] of one window."""
    change = len(noise) * solved.inverse - (solved.weighed / noise) @ solved.weighed.T  # E
    to_alpha = alpha * float((change.diagonal() / window.w).sum())
    if not isinstance(kernel, RadialKernel):
        to_scale = (change * kernel.length_scale_gradient(window.x, window.x)).sum(axis=(1, 2))
        return np.concatenate([to_scale, [to_alpha]])
    x = window.x / scales
    # ∂κ/∂ log ℓⱼ = −2κ'(‖δ‖²) δⱼ²: products of matrices in place of d of them
    change *= kernel.slope(cdist(x, x, "sqeuclidean"))
    x = x - x.mean(axis=0)
    to_scale = (x**2 * change.sum(axis=1)[:, None]).sum(axis=0) - (x * (change @ x)).sum(axis=0)
    return np.concatenate([-4 * to_scale, [to_alpha]])


def _variance(values: Float64) -> Float64:
    return np.asarray(values.var(axis=0))


def _deviation(values: Float64) -> Float64:
    """Standard deviation of columns; 1 for a constant one."""
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0)
