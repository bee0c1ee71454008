"""Kernel, length-scales and penalty on a grid of frequencies, by evidence or by folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import linalg
from scipy.optimize import minimize

from rff_stream._array import Array, Float64
from rff_stream.answers.penalty_selection import sums_of_others
from rff_stream.grid.answers import grid_leaf_errors, solve_grid
from rff_stream.grid.map import GridFeatures
from rff_stream.grid.moments import GridMoments
from rff_stream.grid.system import BLOCK, Elimination, GridSystem, Trend, conjugate_gradients
from rff_stream.kernels import Kernel, length_scale_vector
from rff_stream.moments.copies import Observations

Scales = Literal["each", "one", "given"]

LONGEST = 3.0
"""Largest length-scale relative to the period: a larger one changes only the scale of σ_f²."""

MIDDLE_EVALUATIONS, LAST_EVALUATIONS, PENALTY_EVALUATIONS = 12, 4, 8
"""Evaluations of the evidence on finer grids; each search starts at the result of the coarser
grid. The third is for the last search when only α is searched for, because α changes with the
grid."""

FLAT, LINE_SEARCH = 1e-5, 6
"""Relative change of log p at which a search ends; evaluations along one direction."""

STEP = 1e-3
"""Step in log ℓ for slopes of the spectral density by central differences."""

ROUNDING = 1e-11
"""Smallest α relative to Σw: below it α is smaller than the error of the sums and has no effect."""

PROBES = 8
"""Random vectors for the evidence, the same ones throughout a search. Of 20,000 rows of two inputs
on 8,281 columns log p had a standard deviation of 13 with 4, 7 with 8 and 5 with 16; of three on
15,625 it was 8, 5 and 3. An evaluation took .40, .48 and .62 CPU seconds, and .6, .9 and 1.4."""

PROBE_TOLERANCE = 1e-3
"""Tolerance of the solves of random vectors. With ten times this value, log p jumps by tens when
a solve takes one step more, and a search follows these jumps."""

EVIDENCE_TOLERANCE = 1e-6
SEARCH_TOLERANCE = 1e-4
"""Tolerance of the solve of y during the search. The quadratic form in log p needs more digits
than predictions, but during the search its error, the square of this, may be larger: on the two
grids of ``PROBES`` log p was wrong by at most 1e-5 and .13 (1e-3 at a tolerance of 1e-5)."""

DECADES = 12
"""Largest number of decades of α below Σw in the search."""

FINER = (-0.5, -0.25, 0.25, 0.5)
"""Fractions of a decade about the best α that are evaluated afterwards."""

TOLERANCE = 1e-5
"""Tolerance of the solves: errors on held-out rows need fewer digits than predictions."""


@dataclass(frozen=True, slots=True, eq=False)
class GridEvidence:
    """log p(y) of a kernel and α, with its Monte-Carlo error and its slopes."""

    log_evidence: Float64
    """(T,), natural logarithm, with σₙ² at its maximum; +∞, with slopes 0, for a constant
    target."""
    error: float  # standard error of the estimated log-determinant, halved
    noise_variance: Float64  # (T,)
    df: float  # effective degrees of freedom, estimated
    slope_alpha: Float64  # (T,), ∂ log p/∂ log α
    influence: Float64
    """(T, half shape): ∂ log p/∂ log D_j, from which slopes by any parameter of the kernel
    follow."""
    steps: int  # of conjugate gradients

    @property
    def total(self) -> float:
        """log p(y) of all targets that are not constant."""
        return float(self.log_evidence[np.isfinite(self.log_evidence)].sum())


def grid_evidence(
    system: GridSystem,
    alpha: float,
    *,
    probes: int = PROBES,
    seed: int = 0,
    block: int = BLOCK,
    tolerance: tuple[float, float] = (EVIDENCE_TOLERANCE, PROBE_TOLERANCE),
) -> GridEvidence:
    """log p(y | kernel, α) with σₙ² at its maximum, by stochastic Lanczos quadrature.

    log p = −½[(n−p)(log 2πσₙ² + 1) + log|A/α| + log|B| − Σ log w],  σₙ² = Q/(n − p)

    α is shared by all targets. The random ``probes`` for the log-determinant and its slopes are the
    same for one seed: the estimate is a smooth function of α and of the kernel. ``block`` real
    columns are eliminated exactly; tolerances are of the solve of y and of those of the probes.
    """
    grid, moments = system.features, system.moments
    elimination = Elimination(system, alpha, block)
    noise = elimination.rest(system.noise((probes,), np.random.default_rng(seed)))
    vectors = noise * np.sqrt(elimination.diagonal)
    right = np.concatenate([system.right_sides, vectors])
    targets = moments.row.n_targets
    found = conjugate_gradients(
        elimination, right, tolerance=np.repeat(tolerance, [targets, probes])
    )
    u, solved = found.x[:targets], found.x[targets:]
    rows = Observations.of(moments)
    freedom = rows.n - system.n_trend
    objective = np.maximum(
        system.scatter - system.dot(system.right_sides, u), 1e-15 * system.scatter
    )
    norms = system.dot(noise, noise)
    logs = norms * np.array([_log_quadrature(*t) for t in found.tridiagonals[targets:]])
    log_det = elimination.log_determinant + float(logs.mean()) - grid.n_components * np.log(alpha)
    border = np.linalg.slogdet(system.border)[1] if system.n_trend else 0.0
    varies = system.scatter > 0
    positive = np.where(varies, objective, 1.0)
    value = -0.5 * (
        freedom * (np.log(2 * np.pi * positive / freedom) + 1) + log_det + border - rows.log_weight
    )
    share = 1 - alpha * _inverse_diagonal(elimination, noise, solved)
    df = float((grid.multiplicity * share).sum())
    power = np.abs(u) ** 2
    gain = freedom * alpha / positive
    square = system.dot(u, u)
    bent, counted = (each.reshape(-1, *(1,) * grid.n_inputs) for each in (gain, varies))
    return GridEvidence(
        log_evidence=np.where(varies, value, np.inf),
        error=0.5 * float(logs.std(ddof=1) / np.sqrt(probes)) if probes > 1 else np.inf,
        noise_variance=objective / freedom,
        df=df + system.n_trend,
        slope_alpha=0.5 * varies * (df - gain * square),
        influence=counted * grid.multiplicity * (bent * power - share),
        steps=found.steps,
    )


def _inverse_diagonal(elimination: Elimination, noise: Array, solved: Array) -> Float64:
    """(A⁻¹)_jj, estimated from solutions x = A⁻¹z of random z ~ N(0, d) outside the block.

    (E⁻¹ or 1/d)_jj + E [x v* − z z*/d²]_jj with v = W z/d, where W extends to the block:
    A⁻¹ = E⁻¹ + W S⁻¹ Wᴴ.
    """
    plain = noise / np.sqrt(elimination.diagonal)
    v = elimination.extend(plain)
    change = (solved.real * v.real + solved.imag * v.imag - np.abs(plain) ** 2).mean(axis=0)
    return np.asarray(elimination.inverse_diagonal + change)


def _log_quadrature(diagonal: Float64, off: Float64) -> float:
    """e₁ᵀ log(T) e₁ of Lanczos' tridiagonal matrix; 0 where no step was needed."""
    if not len(diagonal):
        return 0.0
    values, vectors = linalg.eigh_tridiagonal(diagonal, off)
    return float((vectors[0] ** 2) @ np.log(np.maximum(values, 1e-300)))


@dataclass(frozen=True, slots=True, eq=False)
class GridChoice:
    """The kernel and α of highest evidence, found after the read."""

    kernel: Kernel  # with its length-scales in units of the inputs
    alpha: float
    evidence: GridEvidence  # of this kernel and α
    tried: tuple[tuple[Kernel, float], ...]
    """Each kernel with its best length-scales, and its log evidence summed over targets, on the
    finest grid that it was compared on."""
    evaluations: int  # of the evidence, over all kernels


def _is_behind(value: tuple[float, float], best: tuple[float, float]) -> bool:
    """Whether an evidence is below the best one by more than four times the errors of both."""
    return best[0] - value[0] > 4 * (best[1] + value[1])


def choose_grid_kernel(
    moments: GridMoments,
    kernels: Sequence[Kernel],
    *,
    scales: Scales = "each",
    trend: Trend = "constant",
    alpha: float | None = None,
    near_alpha: float | None = None,
    evaluations: int = 30,
    probes: int = 2,
    block: int = BLOCK,
) -> GridChoice:
    """Kernel, length-scales and α of highest evidence, from the same sums.

    Parameters
    ----------
    scales : {"each", "one", "given"}
        A length-scale for each input; one common factor of the first ones, a twelfth of the period
        where axes have more modes than others so much less; or those of the kernels, so that α
        alone is chosen.
    alpha, near_alpha : float, optional
        α, where it is given and stays; that of a kernel much like these, where the search begins,
        on all modes.
    evaluations : int
        Limit for each kernel, on the coarsest grid.

    Notes
    -----
    L-BFGS on log ℓ and log α with the slopes of :func:`grid_evidence`: on the leading modes
    first, where the block is all of them and an evaluation costs a tenth of a second, then
    from there on more, and at last the best kernel on all of them. Kernels that fall behind the
    best by more than the errors of both are left before. A length-scale is at least that of the
    finest mode of its grid, and at most three times the period: a rough process may be smooth
    along one axis. Constant targets are left out; where all are, the first kernel is answered as it
    begins.
    """
    grid = moments.features
    plain = _Search(moments, kernels[0], scales, alpha, trend, probes, block)
    tried = {i: _first(moments, kernel, scales, alpha) for i, kernel in enumerate(kernels)}
    if not (GridSystem(moments, kernels[0], trend).scatter > 0).any():
        return plain.choice(tried[0], (), 1)
    sizes, fewest = (
        _growing_grids(grid),
        PENALTY_EVALUATIONS if scales == "given" else LAST_EVALUATIONS,
    )
    if near_alpha is not None:
        sizes, tried = [grid.modes], {i: (scale, near_alpha) for i, (scale, _) in tried.items()}
        evaluations = min(evaluations, MIDDLE_EVALUATIONS)
    reached: dict[int, tuple[Kernel, float]] = {}
    values, total = dict[int, tuple[float, float]](), 0
    for number, modes in enumerate(sizes):
        last = number == len(sizes) - 1
        part = moments if modes == grid.modes else moments.leading(modes)
        most = evaluations if number == 0 else (fewest if last else MIDDLE_EVALUATIONS)
        for i in tried:
            search = replace(plain, moments=part, kernel=kernels[i])
            tried[i], used = search.best(tried[i], most)
            there = search.evidence(tried[i])
            values[i] = there.total, there.error
            total += used + 1
            reached[i] = search.at(tried[i])[0], values[i][0]
        best = max(tried, key=lambda i: values[i][0])
        if number == len(sizes) - 2:
            tried = {best: tried[best]}
        elif number > 0:
            tried = {i: at for i, at in tried.items() if not _is_behind(values[i], values[best])}
    exact = replace(plain, kernel=kernels[best], probes=2 * probes, tolerance=EVIDENCE_TOLERANCE)
    return exact.choice(tried[best], tuple(reached.values()), total + 1)


def _growing_grids(grid: GridFeatures) -> list[tuple[int, ...]]:
    """Modes of the grids that a search goes through: as many as the exact block, some, all."""
    shares = [(BLOCK / grid.n_components) ** (1 / grid.n_inputs), 0.36]
    sizes = [
        tuple(min(m, max(4, int(share * m))) for m in grid.modes) for share in shares if share < 0.7
    ]
    kept: list[tuple[int, ...]] = []
    for size in [*(each for each in sizes if min(each) > 1), grid.modes]:
        if kept and _columns(size) < 2 * _columns(kept[-1]):
            kept.pop()
        kept.append(size)
    return kept


def _columns(modes: tuple[int, ...]) -> float:
    return float(np.prod([2.0 * m + 1 for m in modes]))


def _first(
    moments: GridMoments, kernel: Kernel, scales: Scales, alpha: float | None
) -> tuple[Float64, float]:
    """Length-scales (d,) and α that a search begins at."""
    grid = moments.features
    if scales == "given":
        begin = length_scale_vector(kernel, grid.n_inputs)
    else:
        alike = np.exp(np.log(grid.modes).mean()) / np.array(grid.modes)
        begin = grid.period * alike / 12
    unit = moments.weight / max(moments.n, 1)
    return begin, 0.01 * max(moments.n, 1) ** 0.5 * unit if alpha is None else alpha


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """−log p and its slopes, as a function of log ℓ (about a start) and log α."""

    moments: GridMoments
    kernel: Kernel
    scales: Scales
    alpha: float | None
    trend: Trend
    probes: int
    block: int
    tolerance: float = SEARCH_TOLERANCE

    def best(
        self, start: tuple[Float64, float], evaluations: int
    ) -> tuple[tuple[Float64, float], int]:
        """Length-scales and α of highest evidence near a start, and evaluations of it."""
        grid = self.moments.features
        lowest = 0.5 * grid.period / (2 * np.pi * np.array(grid.modes))
        highest = LONGEST * grid.period
        about, alpha = start
        if self.scales != "given":
            about = np.clip(about, 1.5 * lowest, 0.8 * highest)
        ends = np.log(np.stack([lowest / about, highest / about]))
        bounds: list[Any] = []
        if self.scales == "each":
            bounds += ends.T.tolist()
        elif self.scales == "one":
            bounds.append([ends[0].max(), ends[1].min()])
        if self.alpha is None:
            n = max(self.moments.n, 1)
            unit = self.moments.weight / n
            bounds.append(np.log([max(1e-8, ROUNDING * n) * unit, n * unit]).tolist())
        if not bounds:
            return (about, alpha), 0
        first = np.zeros(len(bounds))
        if self.alpha is None:
            first[-1] = np.log(alpha)
        unit = 0.0

        def scaled(theta: Float64) -> tuple[float, Float64]:
            """In units in which the first step is of length 1, not to the next bound."""
            nonlocal unit
            value, slopes = self(theta, about)
            unit = unit or max(float(np.linalg.norm(slopes)), 1e-300)
            return value / unit, slopes / unit

        found = minimize(
            scaled,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxfun": evaluations, "ftol": FLAT, "maxls": LINE_SEARCH},
        )
        return self.point(found.x, about), int(found.nfev)

    def point(self, theta: Float64, about: Float64) -> tuple[Float64, float]:
        """Length-scales (d,) and α of a point of the search."""
        alpha = float(np.exp(theta[-1])) if self.alpha is None else self.alpha
        return about * np.exp(self._log_factors(theta, len(about))), alpha

    def _log_factors(self, theta: Float64, d: int) -> Float64:
        """log of the factor of each length-scale."""
        if self.scales == "each":
            return theta[:d]
        return np.full(d, theta[0]) if self.scales == "one" else np.zeros(d)

    def at(self, point: tuple[Float64, float]) -> tuple[Kernel, float]:
        """The kernel and α there."""
        if self.scales == "given":
            return self.kernel, point[1]
        found: Kernel = self.kernel.with_length_scale(tuple(point[0].tolist()))
        return found, point[1]

    def choice(
        self, point: tuple[Float64, float], tried: tuple[tuple[Kernel, float], ...], count: int
    ) -> GridChoice:
        """The kernel, α and evidence there, with what it took."""
        return GridChoice(*self.at(point), self.evidence(point), tried, count)

    def evidence(self, point: tuple[Float64, float]) -> GridEvidence:
        """The evidence there."""
        kernel, alpha = self.at(point)
        system = GridSystem(self.moments, kernel, self.trend)
        return grid_evidence(
            system,
            alpha,
            probes=self.probes,
            block=self.block,
            tolerance=(self.tolerance, PROBE_TOLERANCE),
        )

    def __call__(self, theta: Float64, about: Float64) -> tuple[float, Float64]:
        found = self.evidence(self.point(theta, about))
        influence = found.influence.sum(axis=0)
        slopes = np.empty(len(theta))
        moving = len(theta)
        if self.alpha is None:
            slopes[-1] = found.slope_alpha.sum()
            moving -= 1
        for axis in range(moving):
            step = np.zeros(len(theta))
            step[axis] = STEP
            ends = (self._log_weights(theta + sign * step, about) for sign in (1, -1))
            slopes[axis] = (influence * (next(ends) - next(ends)) / (2 * STEP)).sum()
        return -found.total, -slopes

    def _log_weights(self, theta: Float64, about: Float64) -> Float64:
        """log D but for a constant."""
        grid = self.moments.features
        omega = grid.frequencies.reshape(-1, grid.n_inputs)
        kernel, _ = self.at(self.point(theta, about))
        return np.asarray(0.5 * kernel.log_spectral_density(omega)).reshape(grid.half_shape)


def cross_validate_grid(
    groups: Mapping[Any, GridMoments],
    kernel: Kernel,
    alphas: Array | Sequence[float],
    *,
    trend: Trend = "constant",
) -> Float64:
    """Mean squared error of each fold under the fit to the other folds: exact, no second read.

    Parameters
    ----------
    groups : mapping of label to GridMoments
        K ≥ 2 folds.
    kernel : Kernel
        With its length-scales.
    alphas : (A,) array
        Penalties > 0.
    trend : {"constant", "linear", "none"}

    Returns
    -------
    (K, A, T) float64
        Weighted in a fold, in units of y².

    Raises
    ------
    ValueError
        For fewer than two folds, a fold without rows, or a penalty ≤ 0.

    Notes
    -----
    K·A solves; the error of a fold is a quadratic form of its own sums.
    """
    folds = list(groups.values())
    if len(folds) < 2 or min(fold.weight for fold in folds) <= 0:
        raise ValueError(
            f"{len(folds)} fold(s) of weights {[fold.weight for fold in folds]}, but "
            "cross-validation needs at least 2 with rows. Ask for other folds."
        )
    found = np.empty((len(folds), len(alphas), folds[0].row.n_targets))
    for k, others in sums_of_others(folds):
        system = GridSystem(others, kernel, trend)
        for a, alpha in enumerate(np.asarray(alphas, np.float64).tolist()):
            posterior = solve_grid(system, alpha, tolerance=TOLERANCE)
            found[k, a] = grid_leaf_errors(folds[k], posterior) / folds[k].weight
    return found


def penalty_by_folds(
    groups: Mapping[Any, GridMoments], kernel: Kernel, *, trend: Trend = "constant"
) -> Float64:
    """α (T,) of least held-out error for each target.

    From Σw downwards by decades until the error of every target has grown twice, since smaller
    penalties take more steps; then by quarters of a decade about each best one.
    """
    total = sum(fold.weight for fold in groups.values())
    errors: dict[float, Float64] = {}

    def add(alpha: float) -> None:
        if alpha not in errors:
            errors[alpha] = cross_validate_grid(groups, kernel, [alpha], trend=trend)[:, 0].mean(0)

    def best() -> Float64:
        alphas = np.array(list(errors))
        return np.asarray(alphas[np.stack(list(errors.values())).argmin(axis=0)])

    for decade in range(DECADES + 1):
        add(total * 10.0**-decade)
        if total * 10.0**-decade < best().min() / 50:
            break
    for alpha in np.unique(best()).tolist():
        for step in FINER:
            add(alpha * 10.0**step)
    return best()


@dataclass(frozen=True, slots=True, eq=False)
class KernelComparison:
    """log p(y) of K kernels at L length-scales, each with its best α."""

    kernels: tuple[Kernel, ...]  # K
    length_scales: Float64  # (L,): in units of the inputs, or factors of their ratios
    log_evidence: Float64  # (K, L): summed over targets
    error: Float64  # (K, L): its Monte-Carlo standard error
    alpha: Float64  # (K, L)

    @property
    def best(self) -> tuple[int, int]:
        """Kernel and length-scale of highest evidence, by position."""
        k, at = np.unravel_index(int(self.log_evidence.argmax()), self.log_evidence.shape)
        return int(k), int(at)


def compare_kernels(
    moments: GridMoments,
    kernels: Sequence[Kernel],
    length_scales: Array | Sequence[float],
    *,
    ratios: Array | Sequence[float] | None = None,
    trend: Trend = "constant",
    probes: int = 4,
) -> KernelComparison:
    """The evidence of every kernel at every length-scale, from one read.

    Parameters
    ----------
    moments : GridMoments
        For example ``model.moments_``.
    kernels : sequence of Kernel
        K; their length-scales are replaced.
    length_scales : (L,) array
    ratios : (d,) array, optional
        Ratios of the length-scales of the inputs to the compared one; by default all 1.
    trend : {"constant", "linear", "none"}
    probes : int
        Random vectors that estimate log-determinants.

    Returns
    -------
    KernelComparison

    Notes
    -----
    At each length-scale α is searched for, starting from the previous one: about five evaluations
    of the evidence. Fewer modes are enough for a plot: ``moments.leading((40, 40))``.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (2000, 1)); y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2000)
    >>> model = rs.KernelRidge("gaussian", features=rs.Grid(modes=(64,)), random_state=0)
    >>> sums = model.set_params(progress=False).fit(X, y).moments_
    >>> found = compare_kernels(sums, [rs.Matern(nu=0.5), rs.Gaussian()], [0.3, 1.0, 3.0])
    >>> found.log_evidence.shape, found.best[0]
    ((2, 3), 1)
    """
    scales = np.asarray(length_scales, np.float64)
    along = np.ones(moments.features.n_inputs) if ratios is None else np.asarray(ratios, float)
    shape = len(kernels), len(scales)
    values, errors, alphas = np.empty(shape), np.empty(shape), np.empty(shape)
    for k, given in enumerate(kernels):
        near: float | None = None
        for at, scale in enumerate(scales):
            kernel = given.with_length_scale(tuple((scale * along).tolist()))
            found = choose_grid_kernel(
                moments, [kernel], scales="given", trend=trend, near_alpha=near, probes=probes // 2
            )
            near = found.alpha
            values[k, at] = found.evidence.total
            errors[k, at], alphas[k, at] = found.evidence.error, found.alpha
    return KernelComparison(tuple(kernels), scales, values, errors, alphas)
