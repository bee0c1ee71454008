"""Length-scales of a kernel by the evidence of a small map on a few rows in memory.

Searches of growing size: every kernel on few rows and columns, the best ones on all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.random import Generator
from scipy import optimize
from scipy.spatial.distance import pdist

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError, warn
from rff_stream.features.fourier import FourierFeatures
from rff_stream.kernels import Gaussian, Kernel
from rff_stream.length_scales.budget import SearchBudget
from rff_stream.length_scales.relevant_inputs import relevant_inputs
from rff_stream.length_scales.whole_space_evidence import MapEvidence
from rff_stream.pilot import Pilot, weight_unit

ProgressCallback = Callable[[str], None]
"""Takes a line of text after each search."""

Advance = Callable[[int], None]
"""Takes the number of steps (values of log p with their slopes) since the last call."""

MOST_SEARCHED, ITERATIONS = 6000, 60
"""Largest number of rows and of L-BFGS iterations in the last search."""

STARTS = (1.0, 0.3)
"""Starts of ℓ relative to the median distance: smooth and rough."""

FINALISTS = 2
"""Number of kernels in the last search, with all rows and all components."""

RANGE = 1e3
"""ℓ stays within this factor of its start; an input beyond it has almost no effect."""

UNUSED = 30.0
"""ℓ relative to the median distance, for inputs that seem irrelevant if others are relevant."""

START_ALPHA = 0.1
"""σₙ²/σ_f² at the start."""

GAIN, PATIENCE = 0.1, 3
"""Smallest gain in log p that counts, and number of evaluations without it after which a search
ends: the rounding of float32 may hide smaller gains from line searches, and 57 of 84 evaluations
on 15,000 rows of 26 inputs gained .02. With 8 evaluations, and without the units that a smaller
search gives, 12 searches on four tables took 1.9 times as long; log p differed by up to .009 a
row."""

STIFFEST = 1e6
"""The largest curvature over the least that counts: units differ by a factor of 1,000 at most."""

FLAT = 1e-7
"""Relative change of log p at which a search ends."""


@dataclass(frozen=True, slots=True)
class TrialSize:
    """How large a search is: rows, components, L-BFGS iterations."""

    n_rows: int
    n_components: int
    iterations: int

    def is_smaller_than(self, other: TrialSize) -> bool:
        """Whether it has fewer rows or columns."""
        return self.n_rows < other.n_rows or self.n_components < other.n_components


SCREEN = TrialSize(1500, 256, 15)
"""The first search, for every kernel and start."""

MIDDLE = TrialSize(3000, 512, 30)
"""The second search, for the best start of every kernel."""

STEP_FLOPS = 60e9
"""Useful flops per second of one step, on the slower of two machines."""


def search_seconds(size: TrialSize, n_kernels: int = 1, *, ard: bool = False) -> float:
    """CPU seconds of a search whose rounds all use their iterations up: it may end earlier."""
    screen, middle = _at_most(SCREEN, size), _at_most(MIDDLE, size)
    rounds = [(screen, len(STARTS) * (1 + ard) * n_kernels)]
    if ard or n_kernels > 1 or middle.is_smaller_than(size):
        rounds.append((middle, n_kernels))
    rounds.append((size, min(n_kernels, FINALISTS)))
    return sum(
        k * each.iterations * seconds_of_step(each.n_rows, each.n_components) for each, k in rounds
    )


def seconds_of_step(n_rows: int, n_components: int) -> float:
    """CPU seconds of one value of log p with its slopes.

    4nR² flops, 4n²R where n < R: the products of a map's R columns, and their gradient.
    """
    return 4.0 * n_rows * n_components * min(n_rows, n_components) / STEP_FLOPS


@dataclass(frozen=True, slots=True, eq=False)
class ScaledRows:
    """Pilot rows in random order: inputs of unit variance, centred; targets of unit variance."""

    x: Float64  # (n, d)
    y: Float64  # (n, T)
    w: Float64  # (n,)
    scale: Float64  # (d,): what inputs and targets were divided by
    unit: Float64  # (T,)
    median: float  # median distance between rows of x


@dataclass(frozen=True, slots=True)
class Trial:
    """Where one search ended."""

    kernel: Kernel  # with its length-scale, in units of the inputs
    log_evidence: float  # sum over targets, on ``n_rows`` rows: compare only trials of equal size
    n_rows: int  # of the pilot; components are of the map
    n_components: int
    evaluations: int  # of log p and its gradient, at different points
    finished: bool  # false where its budget was spent


@dataclass(frozen=True, slots=True, eq=False)
class TrialEnd:
    """Where a search ended, in units of scaled rows, and what it climbed."""

    kernel: Kernel
    log_scale: Float64
    log_alpha: float
    unit: Float64  # (k + 1,), of log ℓ and log α: in these units −log p/n has curvatures near 1
    trial: Trial
    target: MapEvidence

    @property
    def score(self) -> float:
        """Log p."""
        return self.trial.log_evidence


@dataclass(frozen=True, eq=False)
class KernelSearch:
    """Searches on one pilot; ``trials`` grows."""

    rows: ScaledRows
    seed: int  # of the frequencies: every size sees the first of the same draw
    ard: bool  # one ℓ for each input
    budget: SearchBudget
    progress: ProgressCallback
    advance: Advance
    trials: list[Trial] = field(default_factory=list)

    def run(self, kernels: tuple[Kernel, ...], size: TrialSize) -> TrialEnd:
        """The best kernel at full size, after rounds that leave fewer kernels each."""
        ends = [
            self._screen_starts(kernel, size, share)
            for kernel, share in zip(kernels, _shares(0.0, 0.2, len(kernels)), strict=True)
        ]
        if self.ard:
            ends = [self._narrow_inputs(end, size) for end in ends]
        middle = _at_most(MIDDLE, size)
        if self.ard or len(ends) > 1 or middle.is_smaller_than(size):
            ends = self._round(ends, middle, 0.2, 0.5)
        ends = sorted(ends, key=lambda end: -end.score)[:FINALISTS]
        return max(self._round(ends, size, 0.5, 1.0), key=lambda end: end.score)

    def _screen_starts(self, kernel: Kernel, size: TrialSize, share: float) -> TrialEnd:
        """The better of a few starts with one ℓ, on few rows."""
        target = self._target(kernel, _at_most(SCREEN, size))
        starts = np.log(self.rows.median * np.array(STARTS))[:, None]
        iterations = min(SCREEN.iterations, size.iterations)
        ends = [
            self._climb(target, kernel, start, self.start_log_alpha, iterations, share)
            for start in starts
        ]
        return max(ends, key=lambda end: end.score)

    def _narrow_inputs(self, end: TrialEnd, size: TrialSize) -> TrialEnd:
        """The end, or a better one from the inputs that matter: found without any kernel.

        Among many inputs one ℓ for all sees noise, and a climb from there goes nowhere.
        """
        matter = self.relevant
        if matter is None:
            return end
        target = self._target(end.kernel, _at_most(SCREEN, size))
        distances = pdist(self.rows.x[: SCREEN.n_rows, matter])
        median = float(np.median(distances[distances > 0]))
        starts = [
            np.log(np.where(matter, share * median, UNUSED * self.rows.median)) for share in STARTS
        ]
        iterations = min(SCREEN.iterations, size.iterations)
        ends = [
            self._climb(target, end.kernel, start, self.start_log_alpha, iterations, 0.2)
            for start in starts
        ]
        return max([end, *ends], key=lambda each: each.score)

    @property
    def start_log_alpha(self) -> float:
        """log α at the start of a search, in the unit of the weights."""
        return float(np.log(START_ALPHA * weight_unit(self.rows.w)))

    @cached_property
    def relevant(self) -> Array | None:
        """Inputs that matter (d,), where those are some and not all."""
        found = relevant_inputs(self.rows.x, self.rows.y, self.rows.w)
        return found if found.any() and not found.all() else None

    def _round(
        self, ends: list[TrialEnd], size: TrialSize, low: float, high: float
    ) -> list[TrialEnd]:
        """A larger search of each kernel from where its smaller one ended."""
        width = self.rows.x.shape[1] if self.ard else 1
        return [
            self._climb(
                self._target(end.kernel, size),
                end.kernel,
                np.broadcast_to(end.log_scale, (width,)),
                end.log_alpha,
                size.iterations,
                share,
                end.unit if len(end.unit) == width + 1 else None,
            )
            for end, share in zip(ends, _shares(low, high, len(ends)), strict=True)
        ]

    def _target(self, kernel: Kernel, size: TrialSize) -> MapEvidence:
        """log p of the kernel's map on the first rows."""
        x, count = self.rows.x[: size.n_rows], size.n_components + size.n_components % 2
        unit = kernel.with_length_scale(None)
        draw = FourierFeatures.sample(unit, x.shape[1], count, rng=self.seed)
        return MapEvidence(
            x=x.astype(np.float32),
            y=self.rows.y[: size.n_rows],
            weights=self.rows.w[: size.n_rows],
            frequencies=draw.frequencies.astype(np.float32),
            variance=kernel.variance,
        )

    def _climb(
        self,
        target: MapEvidence,
        kernel: Kernel,
        log_scale: Float64,
        log_alpha: float,
        iterations: int,
        share: float,
        unit: Float64 | None = None,
    ) -> TrialEnd:
        """L-BFGS from one start, until it is flat or this share of the budget is spent."""
        lowest, highest = np.log(target.lowest_alpha), np.log(1e3 * target.weights.sum())
        start = np.r_[log_scale, np.clip(log_alpha, lowest, highest)]
        width = np.r_[np.full(len(log_scale), np.log(RANGE)), np.inf]
        low, high = start - width, start + width
        low[-1], high[-1] = lowest, highest
        unit = np.ones(len(start)) if unit is None else unit
        best = _Best(target, self.budget, share, self.advance)

        def objective(step: Float64) -> tuple[float, Float64]:
            value, slope = best(start + unit * step)
            return value, unit * slope

        try:
            optimize.minimize(
                objective,
                np.zeros(len(start)),
                jac=True,
                method="L-BFGS-B",
                bounds=np.column_stack([low - start, high - start]) / unit[:, None],
                options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": FLAT},
            )
            finished = True
        except _EndError as end:
            finished = end.finished
        return self._end(kernel, best, finished)

    def _end(self, kernel: Kernel, best: _Best, finished: bool) -> TrialEnd:
        n = len(best.target.x)
        trial = Trial(
            kernel=kernel.with_length_scale(np.exp(best.parameters[:-1]) * self.rows.scale),
            log_evidence=best.value - (n - 1) * float(np.log(self.rows.unit).sum()),
            n_rows=n,
            n_components=2 * len(best.target.frequencies),
            evaluations=best.evaluations,
            finished=finished,
        )
        self.trials.append(trial)
        self.progress(
            f"length-scales: {type(kernel).__name__} on {n} rows, R={trial.n_components}: "
            f"log p {trial.log_evidence:.1f} after {trial.evaluations} steps, "
            f"{self.budget.spent:.2g} CPU s by its work"
        )
        log_scale, log_alpha = best.parameters[:-1], float(best.parameters[-1])
        return TrialEnd(kernel, log_scale, log_alpha, best.unit, trial, best.target)


class _EndError(Exception):
    """Ends a search from inside: nothing more is gained, or its budget is spent."""

    def __init__(self, finished: bool) -> None:
        self.finished = finished


class _Best:
    """−log p/n for the minimiser; remembers what it found and counts the work.

    Line searches come back to the very same point, a sixth of the time and more.
    """

    def __init__(
        self, target: MapEvidence, budget: SearchBudget, share: float, advance: Advance
    ) -> None:
        self.target, self.budget, self.advance = target, budget, advance
        self.end = share * budget.limit
        self.value = -np.inf
        self.parameters: Float64 = np.empty(0)
        self._found: dict[bytes, tuple[float, Float64]] = {}
        # Points with slopes, each the best so far.
        self._lowered: list[tuple[Float64, Float64]] = []
        self._last = -np.inf, 0  # log p, and the evaluation, of the last gain that counts

    @property
    def evaluations(self) -> int:
        """Different points looked at."""
        return len(self._found)

    def __call__(self, parameters: Float64) -> tuple[float, Float64]:
        if self.evaluations and self.budget.spent >= self.end:
            raise _EndError(finished=False)
        place = parameters.tobytes()
        if place not in self._found:
            if self.evaluations - self._last[1] >= PATIENCE:
                raise _EndError(finished=True)
            self._found[place] = self._evaluate(parameters)
            if self.value > self._last[0] + GAIN:
                self._last = self.value, self.evaluations
            self.advance(1)
        value, slope = self._found[place]
        return value, slope.copy()

    def _evaluate(self, parameters: Float64) -> tuple[float, Float64]:
        value, to_scale, to_alpha = self.target(parameters[:-1], float(parameters[-1]))
        n = len(self.target.x)
        slope = -np.r_[to_scale, to_alpha] / n
        if value > self.value:
            self.value, self.parameters = value, parameters.copy()
            self._lowered.append((self.parameters, slope))
        self.budget.spent += seconds_of_step(n, 2 * len(self.target.frequencies))
        return -value / n, slope

    @property
    def unit(self) -> Float64:
        """1/√c of the curvature c of −log p/n along each parameter, by the slopes that were met."""
        found = optimize.BFGS(exception_strategy="damp_update")
        found.initialize(len(self.parameters), "hess")
        for (point, slope), (later, changed) in itertools.pairwise(self._lowered):
            found.update(later - point, changed - slope)
        curvature = np.diag(found.get_matrix())
        return np.asarray(1 / np.sqrt(np.maximum(curvature, curvature.max() / STIFFEST)))


def _at_most(size: TrialSize, full: TrialSize) -> TrialSize:
    """A smaller round that does not exceed the last one."""
    return TrialSize(
        min(size.n_rows, full.n_rows),
        min(size.n_components, full.n_components),
        min(size.iterations, full.iterations),
    )


def _shares(low: float, high: float, count: int) -> list[float]:
    """Where each of ``count`` searches must end, as shares of the budget."""
    return [low + (high - low) * (i + 1) / count for i in range(count)]


@dataclass(frozen=True, slots=True, eq=False)
class LengthScales:
    """The kernel that explains the pilot best."""

    kernel: Kernel  # with its length-scale
    length_scale: Float64
    """(d,), ℓ, in units of the inputs: one multiple of their standard deviations, or ARD."""
    log_evidence: float  # log p of the pilot's targets, summed, in units of y
    alpha: float  # σₙ²/σ_f² on the pilot: a start, not the α of the fit
    noise_variance: Float64  # (T,): on the pilot, in units of y²
    signal_variance: Float64  # (T,): 0 for a constant target
    trials: tuple[Trial, ...] = field(repr=False)  # every search, in order
    seconds: float  # of CPU, by its work

    @property
    def finished(self) -> bool:
        """Whether no search was ended by its limit."""
        return all(trial.finished for trial in self.trials)


def fit_length_scales(
    X: Array,
    y: Array,
    kernels: Kernel | Sequence[Kernel] | None = None,
    *,
    ard: bool = False,
    one_unit: bool = False,
    n_components: int = 1024,
    max_rows: int = MOST_SEARCHED,
    max_iterations: int = ITERATIONS,
    max_seconds: float = math.inf,
    rng: Generator | int | None = None,
    weights: Array | None = None,
    progress: ProgressCallback | None = None,
    advance: Advance | None = None,
) -> LengthScales:
    """Length-scales of the kernel that explains pilot rows best, by evidence.

    Each kernel's unit frequencies are drawn once; log ℓ and log α maximise log p of the map
    they give (exact gradients, L-BFGS). Kernels compete on few rows and columns first, the
    best two on all.

    Parameters
    ----------
    X : (n, d) array
        Finite rows in memory.
    y : (n,) or (n, T) array
        Targets share ℓ and α, each with its own variances.
    kernels : Kernel or sequence of Kernel, optional
        Those that compete, Gaussian where absent; their length-scales are not used.
    ard : bool
        One ℓ for each input in place of one for all: for inputs of unequal relevance,
        where n is well above 10 d.
    one_unit : bool
        Columns are in one unit, as combinations by a metric are: one ℓ is for them as they are,
        and not over their standard deviations.
    n_components : int
        R of the largest map. 1536 for rough targets of many rows (kin40k at R=4096: RMSE .136
        after it, .150 after 768); a step costs 4nR² flops.
    max_rows : int
        Rows used at most, drawn at random.
    max_iterations : int
        Of the last search.
    max_seconds : float
        CPU seconds, counted by the work, after which the best so far is taken, with a warning. It
        is passed by one step at most for each search. Iterations bound the work, too: it is at
        most about 100 s.
    rng : Generator or int, optional
        Rows and frequencies: the same seed, the same result.
    weights : (n,) array, optional
        Positive; 1 where absent.
    progress : callable, optional
        Takes a line of text after each search.
    advance : callable, optional
        Takes the number of steps since the last call, for a bar.

    Returns
    -------
    LengthScales

    Raises
    ------
    DataError
        Fewer than three rows, values that are not finite, or targets that are all constant.
    ValueError
        No kernels, or a limit below its least value.

    Notes
    -----
    Maps are compared, not kernels: a rough kernel spends its features on high frequencies, so
    that at finite R a Gaussian map may explain even a rough process better. On protein log p
    of the maps ranks Gaussian and Matérn 5/2, 3/2, 1/2 as their test errors do at R=4096,
    and that of the exact processes the other way round. One step costs 0.25 CPU s at
    n=6000, R=1024; a search takes 30 to 60 steps.
    """
    budget = SearchBudget(max_seconds)
    generator = np.random.default_rng(rng)
    named = _kernels(kernels)
    for name, limit in {"n_components": n_components, "max_iterations": max_iterations}.items():
        if limit < 2:
            raise ValueError(f"{name}={limit} but it must be at least 2.")
    if not max_seconds >= 0:
        raise ValueError(f"max_seconds={max_seconds} but a limit is ≥ 0. Give e.g. 60.")
    rows, varies = _rows(X, y, weights, max_rows, generator, one_unit)
    search = KernelSearch(
        rows,
        int(generator.integers(2**63)),
        ard,
        budget,
        progress or (lambda line: None),
        advance or (lambda steps: None),
    )
    end = search.run(named, TrialSize(len(rows.x), n_components, max_iterations))
    if not all(trial.finished for trial in search.trials):
        warn(
            f"The search for length-scales reached its limit of {max_seconds:g} CPU s, and took "
            "the best so far. Raise search_seconds, or name fewer kernels."
        )
    return _result(end, search, varies)


def _kernels(kernels: Kernel | Sequence[Kernel] | None) -> tuple[Kernel, ...]:
    if kernels is None:
        return (Gaussian(),)
    named = tuple(kernels) if isinstance(kernels, Sequence) else (kernels,)
    if not named:
        raise ValueError("kernels is empty. Give at least one kernel, such as Gaussian().")
    return named


def _rows(
    X: Array, y: Array, weights: Array | None, max_rows: int, rng: Generator, one_unit: bool
) -> tuple[ScaledRows, Array]:
    """Random rows in random order with the targets that vary, and which those are (T,)."""
    X = np.asarray(X, dtype=np.float64)
    targets = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not (np.isfinite(X).all() and np.isfinite(targets).all() and (w > 0).all()):
        raise DataError("The pilot holds NaN, inf or weights ≤ 0. Leave such rows out.")
    chosen = rng.permutation(len(X))[:max_rows]
    if len(chosen) < 3:
        raise DataError(f"{len(chosen)} rows are too few to find length-scales. Give at least 3.")
    # About the first row: a constant column is then exactly 0, whatever its value.
    x, moved = X[chosen] - X[chosen[0]], targets[chosen] - targets[chosen[0]]
    pilot = Pilot(x, moved, w[chosen], one_unit=one_unit)
    centred = pilot.y - pilot.target_origin
    unit = np.sqrt(np.average(centred**2, axis=0, weights=pilot.w))
    varies = unit > 1e-12 * np.abs(targets[chosen]).max(axis=0)
    if not varies.any():
        raise DataError(
            "Every target is constant on the pilot. Length-scales need a target that varies; "
            'use length_scale="median".'
        )
    median = float(np.median(pilot.median_length_scale() / pilot.scale))
    x, y = (pilot.x - pilot.origin) / pilot.scale, centred[:, varies] / unit[varies]
    return ScaledRows(x, y, pilot.w, pilot.scale, unit[varies], median), varies


def _result(end: TrialEnd, search: KernelSearch, varies: Array) -> LengthScales:
    alpha, noise = float(np.exp(end.log_alpha)), np.zeros(len(varies))
    noise[varies] = search.rows.unit**2 * end.target.noise(end.log_scale, end.log_alpha)
    return LengthScales(
        kernel=end.trial.kernel,
        length_scale=np.exp(end.log_scale) * search.rows.scale,
        log_evidence=end.score,
        alpha=alpha,
        noise_variance=noise,
        signal_variance=noise / alpha,
        trials=tuple(search.trials),
        seconds=search.budget.spent,
    )
