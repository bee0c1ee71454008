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
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator
from scipy import linalg, optimize
from scipy.linalg import lapack
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import COVERAGE, NORMAL
from rff_stream.answers.evidence import Profile, best_alpha
from rff_stream.features.random_trees import random_cell
from rff_stream.kernels import ExactKernel, Gaussian, Matern, RadialKernel
from rff_stream.length_scales.relevant_inputs import relevant_inputs
from rff_stream.pilot import neighbour_scale, weight_unit
from rff_stream.systems.normal_equations import mirror_lower

RANGE = 1e3
"""Length-scales are searched for within this factor of their start."""

NUGGET = 1e-8
"""ε of the landmarks, in units of k(x, x)."""

LEAST_ALPHA, MOST_ALPHA = 1e-8, 1e2
"""Ends of the search over α = σₙ²/σ_f² for rows of weight 1."""

START_ALPHA = 0.05
STARTS, CLIMBED = (0.03, 0.1, 0.3, 1.0, 3.0), 3
"""Multiples of the typical distance inside the windows; searches start from the best of them."""

FLAT = 1e-6
"""Relative change of log p at which a search ends."""

FAILED = 1e300


RELEVANT_ROWS = 3000
"""Rows on which relevant inputs are searched for."""

UNUSED = 30.0
"""Length-scale of inputs that seem irrelevant, relative to the typical distance of rows."""

CELLS_COMPARED = 16
"""Cells in which candidates are compared by their errors at left-out rows."""

APART = 3.0
"""Ratio between length-scales of compact windows and of all rows at which both are candidates."""

SAME = 0.02
"""If left-out errors differ by less than this share, the evidence decides."""

HALVED = 4
"""Largest number of inputs along which a cell is halved."""

LEAST_REST = 1e-6
"""Smallest 1 − h, with h a row's leverage: a smaller value is rounding error."""

FACTORS = (0.5, 0.7, 1.4, 2.0)
"""Factors of the length-scales of the best candidate that are compared."""

WINDOW_ROWS, SCATTERED_ROWS, SCATTERED_SETS = 256, 400, 3
"""Rows of a compact window in a fit; rows and number of the scattered sets that are added."""

NEAR_ROWS, NEAR_STEPS = 128, 30
"""Rows of a window, and steps of each search, in the first comparison."""

RATIOS_OF = Matern(nu=1.5)
"""The kernel whose length-scales give the ratios between inputs in the first comparison."""


ROUGH_START = 2.0
"""Approximate ratio of the length-scales of a Matérn 3/2 to those of a Gaussian on the same
rows."""


@dataclass(frozen=True, slots=True, eq=False)
class RowWindow:
    """Rows looked at together."""

    x: Float64  # (m, d)
    y: Float64  # (m, T)
    w: Float64  # (m,)


@dataclass(frozen=True, slots=True)
class CellSize:
    """What a cell of the model will hold."""

    n_rows: int  # rows of data
    n_components: int  # R landmarks
    in_rows: bool  # whether cells are cut from the scattered rows, else from the blocks


@dataclass(frozen=True, slots=True, eq=False)
class WindowFit:
    """The kernel that explains the windows best."""

    kernel: ExactKernel  # with its length-scales, in units of the inputs
    alpha: float  # σₙ²/σ_f² of a row of weight 1
    log_evidence: float  # Σ log p of the windows
    left_out_error: float = float("nan")
    """Error at left-out rows of cells, relative to the standard deviation of y in them; NaN if
    it was not measured."""
    rougher: float = 0.0
    """Smallest advantage of a Matérn 3/2 in log p per row; 0 if other kernels were compared."""
    gap_factor: Float64 = field(default_factory=lambda: np.ones(1))
    """(T,), factor of standard deviations far from rows: :func:`gap_factor`; 1 if it was not
    estimated."""


def search_windows(
    blocks: Sequence[RowWindow],
    rows: RowWindow,
    kernels: Sequence[ExactKernel],
    *,
    ard: bool,
    rng: Generator,
    cell: CellSize | None = None,
) -> WindowFit:
    """Kernel and length-scales from blocks of neighbouring rows and from rows of everywhere.

    Windows are first compact in steps from row to row; where that has told length-scales, once
    more in their units, so that a window is as long as it is wide for the kernel. Blocks are at the
    full density of the data, and more than a window needs.

    With few landmarks in a ``cell`` another kernel or length-scale may predict better than the one
    of highest evidence: it is taken where it leaves errors at least 2 % smaller at left-out rows of
    such cells. Closer ones differ in gaps and not beside rows, and there the evidence knows more. 5
    to 40 CPU seconds for ten blocks and four kernels.
    """
    blocks, rows = _of_unit_weight(blocks, rows)
    scattered = scattered_windows(
        rows.x, rows.y, rows.w, size=SCATTERED_ROWS, count=SCATTERED_SETS, rng=rng
    )
    scale = np.median([neighbour_scale(block.x) for block in blocks], axis=0)
    windows, unit = [*_centres(blocks, scale), *scattered], _deviation(rows.x)
    ends = _fit_each(windows, rows, kernels, [unit, scale], ard)
    winner = max(range(len(ends)), key=lambda i: ends[i].log_evidence)
    first, learnt = ends[winner], _scales(ends[winner])
    windows = [*_centres(blocks, learnt), *scattered]
    second = fit_windows(windows, [first.kernel], scale=learnt, ard=ard, start=learnt)
    second = replace(second, rougher=_gain_of_roughness(windows, second, kernels))
    if cell is None or cell.n_rows <= cell.n_components:
        return second
    rivals = [kernel for i, kernel in enumerate(kernels) if i != winner]
    close = _without_scattered(blocks, scale, first, rivals, ard)
    cells = _cells(blocks, rows, cell, learnt, rng)
    if close:
        cells += _cells(blocks, rows, cell, _scales(close[0]), rng)
    order = rng.permutation(max(len(each.x) for each in cells))
    return _compete(second, [*ends, *close], cells, cell.n_components, order)


def _of_unit_weight(
    blocks: Sequence[RowWindow], rows: RowWindow
) -> tuple[Sequence[RowWindow], RowWindow]:
    """The same with weights of about 1, which the ends of the search are for."""
    unit = weight_unit(rows.w)
    return [replace(each, w=each.w / unit) for each in blocks], replace(rows, w=rows.w / unit)


def _fit_each(
    windows: Sequence[RowWindow],
    rows: RowWindow,
    kernels: Sequence[ExactKernel],
    units: Sequence[Float64],
    ard: bool,
) -> list[WindowFit]:
    """The fit of each kernel, from all inputs alike or from those that matter alone."""
    unit, *beside = units
    start = _relevant_start(rows, unit) if ard else None
    ends = []
    for kernel in kernels:
        tried = [fit_windows(windows, [kernel], scale=unit, beside=beside, ard=ard)]
        if start is not None:
            tried.append(fit_windows(windows, [kernel], scale=unit, start=start))
        ends.append(max(tried, key=lambda end: end.log_evidence))
    return ends


def _compete(
    held: WindowFit,
    others: Sequence[WindowFit],
    cells: Sequence[RowWindow],
    n_components: int,
    order: Array,
) -> WindowFit:
    """The fit of least error at left-out rows of cells; ``held`` unless another is clearly better.

    The best is tried with its length-scales stretched, too.
    """

    def judge(ends: Sequence[WindowFit]) -> tuple[float, WindowFit]:
        errors = [left_out_error(end.kernel, cells, n_components, order) for end in ends]
        at = int(np.argmin(errors))
        return errors[at], ends[at]

    own, _ = judge([held])
    least, best = min((own, held), judge(others), key=lambda trial: trial[0])
    stretched = judge([_stretch(best, factor) for factor in FACTORS])
    least, best = min((least, best), stretched, key=lambda trial: trial[0])
    if least >= (1 - SAME) * own:
        least, best = own, held
    factor = gap_factor(best.kernel, cells, n_components, order)
    return replace(best, left_out_error=least, rougher=held.rougher, gap_factor=factor)


def fit_near_rows(
    blocks: Sequence[RowWindow], rows: RowWindow, kernels: Sequence[ExactKernel], *, rng: Generator
) -> tuple[WindowFit, Float64] | None:
    """A first look at the kernel, and the error that it leaves at rows among their neighbours.

    Blocks and rows as in :func:`search_windows`. The error (T,) is the mean square at left-out rows
    of compact windows, the others of the window seen. None where there are too few rows, or no
    target varies.

    Two CPU seconds for ten blocks. The ratios of length-scales are those of a rough kernel, as a
    smooth one may see ridges in noise. Its searches start from the steps between rows and from
    their spread: an input that varies quickly and one that hardly matters are both found.
    """
    blocks, rows = _of_unit_weight(blocks, rows)
    scale = np.median([neighbour_scale(block.x) for block in blocks], axis=0)
    near = [each for each in _centres(blocks, scale, NEAR_ROWS) if len(each.x) >= NEAR_ROWS / 2]
    if not near or not any((each.y != each.y[:1]).any() for each in near):
        return None
    far = scattered_windows(rows.x, rows.y, rows.w, size=2 * NEAR_ROWS, count=1, rng=rng)
    windows, units = [*near, *far], (scale, _deviation(rows.x))
    rough = [fit_windows(windows, [RATIOS_OF], scale=unit, iterations=NEAR_STEPS) for unit in units]
    best = max(rough, key=lambda end: end.log_evidence)
    ratios = np.asarray(best.kernel.length_scale, np.float64)
    ends = [
        fit_windows(windows, [each], scale=ratios, ard=False, iterations=NEAR_STEPS)
        for each in kernels
    ]
    found = max(ends, key=lambda end: end.log_evidence)
    return found, left_out_mse(near, found.kernel, found.alpha)


def left_out_mse(windows: Sequence[RowWindow], kernel: ExactKernel, alpha: float) -> Float64:
    """Mean squared error (T,) of rows of windows, each under the exact fit without it.

    (Py)_i / P_ii with P of the head of this file.
    """
    errors, n = np.zeros(windows[0].y.shape[1]), 0
    for window in windows:
        solved = _solve(kernel, window, alpha)
        if solved is not None:
            residual = solved.weighed / solved.inverse.diagonal()[:, None]
            errors, n = errors + (residual**2).sum(axis=0), n + len(residual)
    return np.asarray(errors / n if n else np.full(len(errors), np.nan))


def _relevant_start(rows: RowWindow, unit: Float64) -> Float64 | None:
    """Length-scales (d,) from the inputs that matter alone; None where all do, or none is seen.

    Among many inputs one length-scale for all sees noise, and a search from there goes nowhere.
    """
    few = np.random.default_rng(0).permutation(len(rows.x))[:RELEVANT_ROWS]
    x = (rows.x[few] - rows.x[few].mean(axis=0)) / unit
    y = rows.y[few] - rows.y[few].mean(axis=0)
    matter = relevant_inputs(x, y / _deviation(y), rows.w[few])
    if matter.all() or not matter.any():
        return None
    steps = np.where(matter, np.sqrt(matter.sum()), UNUSED * np.sqrt(len(unit)))
    return np.asarray(unit * steps)


def _gain_of_roughness(
    windows: Sequence[RowWindow], end: WindowFit, kernels: Sequence[ExactKernel]
) -> float:
    """log p a row of a Matérn 3/2 over that of the only kernel, a Gaussian; a short search."""
    if len(kernels) > 1 or not isinstance(kernels[0], Gaussian):
        return 0.0
    scale = ROUGH_START * np.asarray(end.kernel.length_scale, np.float64)
    rough = fit_windows(windows, [RATIOS_OF], scale=scale, ard=False, start=scale, iterations=5)
    n_rows = sum(len(each.x) for each in windows)
    return max(rough.log_evidence - end.log_evidence, 0.0) / n_rows


def _scales(end: WindowFit) -> Float64:
    return np.asarray(end.kernel.length_scale, np.float64)


def _without_scattered(
    blocks: Sequence[RowWindow],
    scale: Float64,
    first: WindowFit,
    others: Sequence[ExactKernel],
    ard: bool,
) -> list[WindowFit]:
    """Fits to compact windows alone, the best first; none where they agree with ``first``.

    Where seasons and weather act together, rows of everywhere see the former alone, and a cell
    needs the latter.
    """
    near = _centres(blocks, scale)

    def fit(kernel: ExactKernel) -> WindowFit:
        return fit_windows(near, [kernel], scale=scale, ard=ard)

    same = fit(first.kernel)
    if abs(np.log(_scales(same) / _scales(first))).max() < np.log(APART):
        return []
    return sorted([same, *map(fit, others)], key=lambda end: -end.log_evidence)


def _stretch(end: WindowFit, factor: float) -> WindowFit:
    """The same kernel with length-scales times a factor."""
    scales = _scales(end) * factor
    return replace(end, kernel=end.kernel.with_length_scale(tuple(scales.tolist())))


def _cells(
    blocks: Sequence[RowWindow], rows: RowWindow, cell: CellSize, scale: Float64, rng: Generator
) -> list[RowWindow]:
    """Rows that one cell could hold: of random trees over ``rows``, or of blocks of the data.

    A cell of a tree reaches into thin regions, which the nearest rows of a row do not; but only
    rows as dense as the data show what lies in a cell.
    """
    if not cell.in_rows:
        return _centres(blocks, scale, cell.n_rows)
    depth = max(round(np.log2(len(rows.x) / cell.n_rows)), 0)
    places = [random_cell(rows.x, depth, scale, rng) for _ in range(CELLS_COMPARED)]
    return [RowWindow(rows.x[own], rows.y[own], rows.w[own]) for own in places if len(own) > 1]


def left_out_error(
    kernel: ExactKernel, cells: Sequence[RowWindow], n_components: int, order: Array
) -> float:
    """Mean absolute error of left-out rows over y's mean deviation, with R landmarks a cell.

    Absolute errors: a few rows far from all others do not decide. Landmarks are the first rows in
    ``order``, which is as long as the largest cell. α is the one of highest evidence for all cells
    together, as it will be in a tree; with residuals r and leverages h of a cell errors are
    r/(1 − h).
    """
    fit = _fit_cells(kernel, cells, n_components, order)
    if fit is None:
        return 0.0
    errors, deviations = np.zeros((2, len(fit.noise)))
    for each in fit.cells:
        rest = np.maximum(1 - each.leverage(fit.alpha), LEAST_REST)
        errors += abs(each.residual(fit.alpha) / rest[:, None]).sum(axis=0)
        deviations += abs(each.y).sum(axis=0)
    return float((errors / deviations).mean())


def gap_factor(
    kernel: ExactKernel, cells: Sequence[RowWindow], n_components: int, order: Array
) -> Float64:
    """The square root (T,) of errors in left-out halves of cells over what the fit says of them.

    95 % lie below, so it is 1 where ±1.96 standard deviations cover 95 % there. The root, halfway
    to 1, as few cells tell the ratio to 15 % and a mean of trees errs less than one. A half lies
    below or above the median of an input along which the cell is long. With H_oo the part of the
    hat matrix of the rows left out, errors are (I − H_oo)⁻¹r_o and variances
    σₙ²(I − H_oo)⁻¹ + σ_f²(k − zᵀz): m³/4 multiply-adds for each cell of m rows and each input.
    """
    fit = _fit_cells(kernel, cells, n_components, order)
    if fit is None:
        return np.ones(1)
    ratios, tiny = [], np.finfo(float).tiny
    for each in fit.cells:
        residual, root = each.residual(fit.alpha), np.sqrt(each.share)
        length = each.x.std(axis=0) / np.asarray(kernel.length_scale, np.float64)
        for column in each.x.T[np.argsort(-length, kind="stable")[:HALVED]]:
            upper = column > np.median(column)
            for rows in (np.flatnonzero(upper), np.flatnonzero(~upper)) if upper.any() else ():
                Z = each.Z[rows]
                hat = (Z / (each.eigenvalues + fit.alpha)) @ Z.T + np.outer(root[rows], root[rows])
                rest = np.linalg.inv((1 + LEAST_REST) * np.eye(len(rows)) - hat)
                variance = fit.noise * (rest.diagonal() + each.missing[rows] / fit.alpha)[:, None]
                ratios.append(abs(rest @ residual[rows]) / np.sqrt(np.maximum(variance, tiny)))
    factor = np.ones(len(fit.varies))
    if ratios:
        covering = np.quantile(np.concatenate(ratios), COVERAGE, axis=0)
        factor[fit.varies] = np.sqrt(covering / NORMAL)
    return factor


@dataclass(frozen=True, slots=True, eq=False)
class _FittedCell:
    """Rows of a cell, centred and times √w, in the eigenbasis of ZᵀZ."""

    x: Float64  # (m, d)
    Z: Float64  # (m, R)
    y: Float64  # (m, T)
    eigenvalues: Float64  # (R,)
    share: Float64  # (m,): w/Σw
    missing: Float64  # (m,): w (k − zᵀz)

    def residual(self, alpha: float) -> Float64:
        return np.asarray(self.y - (self.Z / (self.eigenvalues + alpha)) @ (self.Z.T @ self.y))

    def leverage(self, alpha: float) -> Float64:
        return np.asarray((self.Z**2) @ (1 / (self.eigenvalues + alpha)) + self.share)

    @classmethod
    def of(cls, kernel: ExactKernel, window: RowWindow, y: Float64, U: Float64) -> _FittedCell:
        values = np.asarray(kernel(U, U))
        values[np.diag_indices_from(values)] += NUGGET * kernel.variance
        factor = linalg.cholesky(values, lower=True, check_finite=False)
        Z = linalg.solve_triangular(factor, kernel(U, window.x), lower=True, check_finite=False).T
        missing = window.w * np.maximum(kernel.variance - (Z**2).sum(axis=1), 0)
        root = np.sqrt(window.w)[:, None]
        Z = root * (Z - np.average(Z, axis=0, weights=window.w))
        y = root * (y - np.average(y, axis=0, weights=window.w))
        eigenvalues, vectors = linalg.eigh(Z.T @ Z, check_finite=False, driver="evd")
        share = window.w / window.w.sum()
        return cls(window.x, Z @ vectors, y, np.maximum(eigenvalues, 0), share, missing)


@dataclass(frozen=True, slots=True, eq=False)
class _FittedCells:
    """Cells that share α and a noise (T,) for each target that varies."""

    cells: list[_FittedCell]
    alpha: float
    noise: Float64
    varies: Array  # (T,) bool, of all targets


def _fit_cells(
    kernel: ExactKernel, cells: Sequence[RowWindow], n_components: int, order: Array
) -> _FittedCells | None:
    """The fit of highest evidence; None where no target varies."""
    kept = np.any([(each.y != each.y[:1]).any(axis=0) for each in cells], axis=0)
    if not kept.any():
        return None
    fits = [
        _FittedCell.of(
            kernel, each, each.y[:, kept], each.x[order[order < len(each.x)][:n_components]]
        )
        for each in cells
    ]
    freedom = sum(len(each.x) - 1 for each in cells)
    scatter = np.sum([(each.y**2).sum(axis=0) for each in fits], axis=0)
    border = sum(float(np.log(each.w.sum()) - np.log(each.w).sum()) for each in cells)
    eigenvalues = np.concatenate([each.eigenvalues for each in fits])[:, None]
    profile = Profile(
        eigenvalues=eigenvalues,
        squared_rhs=np.concatenate([(each.Z.T @ each.y) ** 2 for each in fits]),
        scatter=scatter,
        least=scatter * NUGGET**2,
        freedom=freedom,
        constant=freedom * float(np.log(2 * np.pi)) + border,
    )
    floor = NUGGET * len(order)
    alpha = best_alpha(profile, float(eigenvalues.max()), floor, shared=True)
    return _FittedCells(fits, float(alpha[0]), profile.noise(alpha), kept)


def _centres(
    blocks: Sequence[RowWindow], scale: Float64, size: int = WINDOW_ROWS
) -> list[RowWindow]:
    """The rows of each block that are nearest to its median row, over ``scale``."""
    windows = []
    for block in blocks:
        centre = np.median(block.x, axis=0)
        distance = (((block.x - centre) / scale) ** 2).sum(axis=1)
        near = np.sort(np.argsort(distance, kind="stable")[:size])
        windows.append(RowWindow(block.x[near], block.y[near], block.w[near]))
    return [window for window in windows if len(window.x) > 1]


def compact_windows(
    x: Float64, y: Float64, w: Float64, *, scale: Float64, size: int, count: int, rng: Generator
) -> list[RowWindow]:
    """``count`` windows: a row drawn at random with its ``size`` − 1 nearest, over ``scale``."""
    centres = rng.permutation(len(x))[:count]
    scaled = x / scale
    windows = []
    for centre in centres:
        distance = cdist(scaled[centre : centre + 1], scaled, "sqeuclidean")[0]
        near = np.sort(np.argsort(distance, kind="stable")[:size])
        windows.append(RowWindow(x[near], y[near], w[near]))
    return windows


def scattered_windows(
    x: Float64, y: Float64, w: Float64, *, size: int, count: int, rng: Generator
) -> list[RowWindow]:
    """``count`` disjoint sets of ``size`` random rows; fewer where there are not so many."""
    order = rng.permutation(len(x))
    sets = [order[i * size : (i + 1) * size] for i in range(count)]
    return [RowWindow(x[rows], y[rows], w[rows]) for rows in sets if len(rows) > 1]


def fit_windows(
    windows: Sequence[RowWindow],
    kernels: Sequence[ExactKernel],
    *,
    scale: Float64,
    beside: Sequence[Float64] = (),
    ard: bool = True,
    start: Float64 | None = None,
    iterations: int = 60,
) -> WindowFit:
    """The kernel, length-scales and α of the highest joint evidence of some windows.

    Inputs are compared in units of ``scale`` (d,) at the start, or of those of ``beside`` where
    their evidence is higher. Searches start from length-scales ``start``, or from several multiples
    of the typical distance in the windows; they find one multiple of these, and with ``ard`` one
    length-scale for each input. Windows × m³ flops a step, gradients included (three times a
    Cholesky factor).
    """
    target = _Targets(windows, [scale, *beside])
    ends = [
        _climb_from(target, kernel, first, ard, iterations)
        for kernel in kernels
        for first in target.best_starts(kernel, start)
    ]
    return max(ends, key=lambda end: end.log_evidence)


def _climb_from(
    target: _Targets, kernel: ExactKernel, first: Float64, ard: bool, iterations: int
) -> WindowFit:
    """L-BFGS from one start: all inputs alike first, then each for itself."""
    rounds = (False, True) if ard else (False,)
    log_scale, log_alpha, value = np.zeros(1), float(np.log(START_ALPHA)), FAILED
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
        value = float(result.fun)
    scales = np.broadcast_to(np.exp(log_scale), first.shape) * first
    return WindowFit(
        kernel.with_length_scale(tuple(scales.tolist())),
        float(np.exp(log_alpha)),
        -value * target.freedom,
    )


class _Targets:
    """−log p of all windows, over their rows, as the minimiser asks for it."""

    def __init__(self, windows: Sequence[RowWindow], units: Sequence[Float64]) -> None:
        unit = np.sqrt(np.mean([_variance(window.y) for window in windows], axis=0))
        kept = unit > 0
        if not kept.any():
            raise ValueError(
                "Every target is constant in all windows: there is nothing to learn "
                "length-scales from. Give them as numbers."
            )
        self._windows = [
            RowWindow(each.x, each.y[:, kept] / unit[kept], each.w) for each in windows
        ]
        self._units = units
        self.freedom = sum(len(each.x) - 1 for each in windows)

    def best_starts(self, kernel: ExactKernel, start: Float64 | None) -> list[Float64]:
        """Length-scales (d,) that searches begin from: those of highest evidence.

        From a scale far too long the evidence is flat, and a search ends where it began.
        """
        if start is not None:
            return [np.asarray(start, np.float64)]
        point = np.array([0.0, np.log(START_ALPHA)])
        return sorted(self._starts(), key=lambda first: self.objective(point, kernel, first)[0])[
            :CLIMBED
        ]

    def _starts(self) -> list[Float64]:
        starts = []
        for unit in self._units:
            spread = [np.sqrt(_variance(each.x / unit).sum()) for each in self._windows]
            typical = float(np.median(spread)) or 1.0
            starts += [unit * typical * factor for factor in STARTS]
        return starts

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
class _SolvedWindow:
    """What value and gradient of one window share."""

    inverse: Float64  # P (m, m)
    weighed: Float64  # Py (m, T)
    misfit: Float64  # Q (T,)
    log_det: float  # log|K| + log 1ᵀK⁻¹1


def _solve(kernel: ExactKernel, window: RowWindow, alpha: float) -> _SolvedWindow | None:
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
    return _SolvedWindow(inverse, weighed, misfit, log_det + float(np.log(total)))


def _gradient(
    kernel: ExactKernel,
    window: RowWindow,
    solved: _SolvedWindow,
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
