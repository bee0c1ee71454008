"""A grid of frequencies for one to three inputs: its sums are the same for every kernel."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from rff_stream._array import Array, Float64, add_to_diagonals, is_named
from rff_stream.answers.early_stopping import HeldOutError, state_of_errors
from rff_stream.answers.evidence import warn_of_constants
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.errors import ModelError, warn
from rff_stream.execution import Reading
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.longitude import TURN, longitudes_in, reaches_around
from rff_stream.families.parameters import check_inputs, number_or_array
from rff_stream.families.protocol import (
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
)
from rff_stream.families.windows_of_pilot import neighbouring_rows
from rff_stream.grid.answers import (
    GridDraws,
    GridPosterior,
    GridVariances,
    PosteriorVariance,
    draw_deviations,
    grid_leaf_errors,
    of_finite,
    posterior_covariance,
    solve_grid,
    steady_variance,
)
from rff_stream.grid.cost import PROBES, GridCost
from rff_stream.grid.map import (
    MOST_INPUTS,
    PADDING,
    TAIL,
    Grid,
    GridFeatures,
    check_n_inputs,
    share_modes,
)
from rff_stream.grid.moments import GridMoments, grid_row, import_finufft
from rff_stream.grid.near_rows import fit_near_rows
from rff_stream.grid.selection import (
    GridChoice,
    Scales,
    choose_grid_kernel,
    grid_evidence,
    penalty_by_folds,
)
from rff_stream.grid.statistic import GridStatistic
from rff_stream.grid.system import GridSystem, expected_steps, is_small
from rff_stream.kernels import Kernel, kernel_from_spec, length_scale_vector
from rff_stream.leaf_layout import n_rows_of
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow
from rff_stream.moments import AugmentedRow
from rff_stream.moments.copies import Observations
from rff_stream.pilot import Pilot
from rff_stream.planning import PlanRequest
from rff_stream.predictors import DirectPredictor, SideBySide
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source
from rff_stream.stored_fields import pack_fields, unpack_fields

ASSUMED_SCALE, ASSUMED_ALPHA = 0.1, 0.01
"""Length-scale relative to the extent, and σₙ²/σ_f², in a plan if they are not given."""

LEVERAGE_DRAWS = 16
"""Functions from which leverages of sampled rows are computed."""

DRAWS = 64
"""Functions from which the part of variances outside the block is computed: the relative error of
a standard deviation is at most 1/√(2·64)."""


@dataclass(frozen=True, eq=False)
class GridAnswer:
    """The mean of a process on a grid of frequencies.

    Its methods are those of a :class:`~rff_stream.families.protocol.RidgeAnswer`.
    """

    posterior: GridPosterior
    kernel: Kernel  # with its length-scales in units of the inputs
    trend: Any  # {"none", "constant", "linear"}
    df: Float64  # (T,): effective degrees of freedom, estimated
    log_evidence: Float64  # (T,)
    evidence_error: float  # its Monte-Carlo standard error
    moments: GridMoments | None  # variances need them; a model that was saved without has none

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return self.posterior.target_origin

    def mean(self) -> RowFunction:
        width = len(self.posterior.alpha)
        mean = functools.partial(of_finite, self.posterior.mean, width=width)
        return DirectPredictor(mean, width)

    def slopes(self) -> Slopes:
        return self.posterior.slopes

    def state(self, tests: Sequence[GridMoments], n_rows: int, fraction: float) -> HeldOutError:
        errors = np.stack([grid_leaf_errors(test, self.posterior) for test in tests])
        weights = np.array([test.weight for test in tests])
        return state_of_errors(errors, weights, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """The kernel with its length-scales, α, df, and the posterior."""
        scale = length_scale_vector(self.kernel, self.posterior.features.n_inputs)
        return {
            "posterior_": self.posterior,
            "kernel_": self.kernel,
            "length_scale_": float(scale[0]) if len(scale) == 1 else scale,
            "alpha_": number_or_array(self.posterior.alpha, flat),
            "df_": number_or_array(self.df, flat),
        }

    def pack(self) -> Packed:
        """Coefficients as pairs of real and imaginary parts, and numbers; kernel and trend."""
        posterior = self.posterior
        scale = length_scale_vector(self.kernel, posterior.features.n_inputs)
        numbers = [self.df.mean(), self.evidence_error, posterior.unresolved, posterior.steps]
        _, arrays = pack_fields(posterior)
        arrays |= {
            "length_scale": scale,
            "df": self.df,
            "log_marginal_likelihood": self.log_evidence,
            "numbers": np.array(numbers),
        }
        return Packed({"grid": {"kernel": self.kernel.spec(), "trend": self.trend}}, arrays)


@dataclass(frozen=True, eq=False)
class GridProcess(GridAnswer):
    """The same with its uncertainty: a :class:`~rff_stream.families.protocol.Process`."""

    @cached_property
    def system(self) -> GridSystem:
        """The equations that variances are solved from."""
        if self.moments is None:
            raise ModelError(
                "This model was saved without moments, and a standard deviation on a grid of "
                "frequencies is solved from them. Save it with moments=True."
            )
        return GridSystem(self.moments, self.kernel, self.trend)

    @cached_property
    def by_alpha(self) -> dict[float, PosteriorVariance]:
        """The variance of f for every α."""
        alphas = np.unique(self.posterior.alpha).tolist()
        return {a: PosteriorVariance.of(self.system, a, draws=DRAWS, seed=0) for a in alphas}

    def variances(self) -> RowFunction:
        return GridVariances(self.posterior, self.by_alpha)

    def mean_and_variances(self) -> RowFunction:
        return SideBySide((self.mean(), self.variances()))

    def covariance(self, x: Array, noise: bool) -> Float64:
        posterior = self.posterior
        pairs = zip(posterior.alpha.tolist(), posterior.noise_variance.tolist(), strict=True)
        found = np.stack([posterior_covariance(self.system, a, s, x) for a, s in pairs])
        if noise:
            add_to_diagonals(found, posterior.row_noise)
        return found

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        drawn = draw_deviations(self.system, self.posterior, draws=n_samples, seed=seed)
        return GridDraws(self.posterior, drawn)

    def leave_one_out(self, sample: Float64) -> Float64:
        """Residuals over 1 − h, with leverages h from 16 draws.

        Each ĥ has a relative standard error of √(2/16) = 35 %. So log ĥ is moved towards its mean
        over the rows by the share of its spread that chance explains: the errors of all rows
        together compare models, that of one row is rough.
        """
        d = self.posterior.features.n_inputs
        x, y, w = sample[:, :d], sample[:, d:-1], sample[:, -1:]
        drawn = draw_deviations(self.system, self.posterior, draws=LEVERAGE_DRAWS, seed=0)
        rough = (drawn(x) ** 2).mean(axis=1).T  # (n, T)
        variance = steady_variance(rough, LEVERAGE_DRAWS)
        variance = variance + self.posterior.unresolved * self.posterior.signal_variance
        noise = self.posterior.noise_variance
        ratio = np.where(noise > 0, variance / np.where(noise > 0, noise, 1.0), 0.0)
        leverage = np.minimum(w * ratio, 0.95)
        residual = y - self.posterior.mean(x)
        return np.asarray(residual / (1 - leverage))

    def left_out(self, sample: Float64) -> LeftOut:
        return LeftOut.of_process(self, sample)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the mean, and the variances with their evidence."""
        posterior = self.posterior
        return GridAnswer.attributes(self, flat) | {
            "noise_variance_": number_or_array(posterior.row_noise, flat),
            "signal_variance_": number_or_array(posterior.signal_variance, flat),
            "log_marginal_likelihood_": number_or_array(self.log_evidence, flat),
            "std_error_": 0.0 if is_small(self.posterior.features) else 1 / np.sqrt(2 * DRAWS),
        }


REFUSES = {
    "refine": "refine={value} but the equations of a grid of frequencies are solved by iterations "
    "to the end. Use refine=0.",
    "classes": "features='grid' but grids are for KernelRidge and GaussianProcessRegressor. "
    "Choose a map of the whole space here.",
}


@dataclass(frozen=True, slots=True)
class GridFamily(Family):
    """:class:`~rff_stream.GridFeatures` with their :class:`~rff_stream.grid.moments.GridMoments`.

    ``features="grid"``, a :class:`~rff_stream.Grid` that says how many modes and which inputs
    are periodic, or a grid that is made.
    """

    name: ClassVar[str | None] = "grid"
    kinds: ClassVar[tuple[type, ...]] = (Grid, GridFeatures)
    refuses: ClassVar[Mapping[str, str]] = REFUSES

    def serves(self, n_inputs: int) -> bool:
        return n_inputs <= MOST_INPUTS and importlib.util.find_spec("finufft") is not None

    def tells_left_out(self, features: Any) -> bool:
        return is_small(features)

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        import_finufft()
        check_n_inputs(n_inputs)
        given: Any = parameters.features
        if isinstance(given, GridFeatures):
            check_inputs(given.n_inputs, n_inputs)
        else:
            _request(given).modes_of(n_inputs)
        if parameters.sums == "float32":
            raise ValueError(
                "sums='float32' but sums on a grid of frequencies are float64: less does not "
                "resolve small noise. Use sums='auto'."
            )
        if is_named(parameters.penalty, "gcv"):
            raise ValueError(
                "alpha='gcv' but the penalty on a grid of frequencies is a number, 'evidence' or "
                "'cv'. Choose one of them."
            )
        for kernel in parameters.kernels.named:
            kernel.spectral_density(np.ones((1, n_inputs)))

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        if isinstance(features, GridFeatures):
            modes = features.modes
        else:
            modes = _request(features).modes_of(len(source.columns.inputs))
        size = int(np.prod([2 * m + 1 for m in modes]))
        return PlanRequest(GridCost(size, modes))

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        assert isinstance(request.cost, GridCost)
        return replace(request, cost=foresee_solve(request.cost, parameters, n_rows))

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """The grid for the extent of pilot rows.

        Modes that are not given are shared among the axes by the length-scales: those that are
        numbers, or those of small windows of neighbouring rows, whose left-out error is kept
        beside the map.
        """
        given: Any = parameters.features
        pilot = reading.pilot(parameters.seed)
        if isinstance(given, GridFeatures):
            return DrawnMap(parameters.features, self.row(given, pilot, columns), {})
        request = _request(given)
        features: Any = _grid_over(request, pilot, columns)
        kernel: Any = parameters.kernels.known
        scales: dict[str, Array] = {}
        tail = TAIL
        if request.modes is None and kernel is None:
            near = _look_near(reading, pilot, parameters)
            if near is not None:
                kernel, tail = near[0].own_kernel, TAIL_OF_NOISE * near[0].alpha
                scales["near_error"] = near[1]
        if request.modes is None and kernel is not None:
            most, spacing = request.columns_of(features.n_inputs), _spacing(pilot.x)
            modes = share_modes(kernel, features.period, most, tail=tail, spacing=spacing)
            features = replace(features, modes=modes)
        return DrawnMap(features, self.row(features, pilot, columns), scales)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        return grid_row(
            features, columns.inputs, columns.targets, columns.units, pilot.target_origin
        )

    def statistic(self, request: SumRequest) -> Statistic:
        return GridStatistic(request.features, request.row, request.sample_rows)

    def zero(self, features: Any, row: AugmentedRow, order: int) -> GridMoments:
        return GridMoments.zero(features, row)

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> GridAnswer:
        return _solve(GridProcess if variances else GridAnswer, totals, alpha, fit_intercept)

    def restore(self, stored: StoredAnswer, *, variances: bool) -> GridAnswer:
        return _restore(GridProcess if variances else GridAnswer, stored)


def foresee_solve(cost: GridCost, parameters: MapParameters, n_rows: int) -> GridCost:
    """The cost with the steps of conjugate gradients to expect.

    A kernel without length-scales, or of rows whose extent no box says, is taken at a tenth of
    the extent, and a penalty that is to be found at σₙ² = σ_f²/100.
    """
    kernels, features = parameters.kernels.named, parameters.features
    known, d = parameters.kernels.known, len(cost.modes)
    scales, box = np.full(d, ASSUMED_SCALE), getattr(features, "box", None) or {}
    if known is not None and isinstance(features, GridFeatures):
        scales = length_scale_vector(known, d) / features.period * (1 + PADDING)
    elif known is not None and len(box) == d:
        extents = np.array([high - low for low, high in box.values()])
        scales = length_scale_vector(known, d) / extents
    found = isinstance(parameters.penalty, str)
    alpha = ASSUMED_ALPHA if found else float(np.mean(parameters.penalty))
    unit = kernels[0].with_length_scale(tuple(scales.tolist()))
    steps = expected_steps(cost.modes, unit, alpha, n_rows)
    return replace(cost, steps=steps, n_searched=len(kernels) if known is None else 0)


Answer = TypeVar("Answer", bound=GridAnswer)


def _solve(kind: type[Answer], totals: Totals, penalty: Any, fit_intercept: bool) -> Answer:
    """The answer at the kernel and α that are asked for, or of highest evidence."""
    moments: GridMoments = totals.total
    trend = _trend_of(totals, fit_intercept)
    kernel, choice = _kernel_of(totals, penalty, trend)
    if isinstance(penalty, str):
        penalty = _penalty_of(totals, penalty, kernel, choice, trend)
    system = GridSystem(moments, kernel, trend)
    warn_of_constants(system.scatter, moments.row.targets)
    posterior = solve_grid(system, penalty)
    _warn_of_modes(posterior, moments.features.modes)
    near = totals.scales.get("near_error")
    row_weight = moments.weight / max(Observations.of(moments).n, 1)
    _warn_of_error_near(posterior, near, row_weight)
    df, logs, errors = np.empty((3, moments.row.n_targets))
    for alpha in np.unique(posterior.alpha).tolist():
        at = np.flatnonzero(posterior.alpha == alpha)
        if choice is not None and len(logs) == 1 and alpha == choice.alpha:
            there = choice.evidence
        else:
            system = GridSystem(moments.with_targets(at.tolist()), kernel, trend)
            there = grid_evidence(system, alpha, probes=PROBES)
        df[at], logs[at], errors[at] = there.df, there.log_evidence, there.error
    return kind(posterior, kernel, trend, df, logs, float(errors.max()), moments)


def _trend_of(totals: Totals, fit_intercept: bool) -> Any:
    """What is not penalised; refuses sums of too few rows for it, or of no kernel."""
    moments, parameters = totals.total, totals.parameters
    if parameters is None:
        raise ModelError("An answer from sums on a grid of frequencies needs a kernel. Give one.")
    trend = _request(parameters.features).trend if fit_intercept else "none"
    least = 1 + {"none": 0, "constant": 1, "linear": 1 + moments.features.n_inputs}[trend]
    if moments.n < least:
        raise ValueError(
            f"These moments hold {moments.n} sample(s). Variances about trend={trend!r} need at "
            f"least {least}. Collect more rows."
        )
    return trend


def _kernel_of(totals: Totals, penalty: Any, trend: Any) -> tuple[Kernel, GridChoice | None]:
    """The kernel that is given, or of highest evidence with what was found beside it."""
    moments, parameters = totals.total, totals.parameters
    assert parameters is not None
    kernel = parameters.kernels.known
    several = moments.row.n_targets > 1
    if kernel is not None and (several or not is_named(penalty, "evidence")):
        return kernel, None
    one: Scales = "one" if parameters.kernels.rule == "evidence" else "each"
    choice = choose_grid_kernel(
        moments,
        parameters.kernels.named if kernel is None else [kernel],
        scales=one if kernel is None else "given",
        trend=trend,
        alpha=None if isinstance(penalty, str) else float(np.mean(penalty)),
    )
    return choice.kernel, choice


def _penalty_of(
    totals: Totals, rule: str, kernel: Kernel, choice: GridChoice | None, trend: Any
) -> Float64 | float:
    """α by folds, that of the choice of the kernel, or of highest evidence target by target."""
    if rule == "cv":
        return penalty_by_folds(totals.groups, kernel, trend=trend)
    n_targets = totals.total.row.n_targets
    if choice is not None and n_targets == 1:
        return choice.alpha
    parts = [totals.total.with_targets([t]) for t in range(n_targets)]
    choices = (choose_grid_kernel(p, [kernel], scales="given", trend=trend) for p in parts)
    return np.array([each.alpha for each in choices])


TAIL_OF_NOISE = 0.001
"""Variance of the kernel that modes may leave out along an axis, relative to that of the noise."""

WORSE_THAN_NEAR = 1.25
"""Noise variance, relative to the squared error of rows left out of windows, at which a warning
is given: with enough modes it was .2 to .4 on soundings, temperatures and depths, and 2.1 with
too few."""

LEFT_OUT = 2.0
"""Variance of the kernel beyond the grid, relative to that of the noise, at which a warning is
given. Of 24 fits of synthetic data with a gap, those above it had errors of 0.8 to 1.9 standard
deviations of y in the gap; images and soundings with calibrated intervals have .04 to 1.4."""


def _warn_of_modes(posterior: GridPosterior, modes: tuple[int, ...]) -> None:
    """Warn where the grid leaves out more variance of the kernel than the noise has.

    What is left out is the same error at neighbouring rows, and a fit that takes it for signal
    swings in gaps.
    """
    share = np.where(posterior.noise_variance > 0, posterior.unresolved / posterior.alpha, 0.0)
    worst = float(np.max(share))
    if worst > LEFT_OUT:
        warn(
            f"Frequencies beyond modes={modes} hold {posterior.unresolved:.2g} of the kernel's "
            f"variance: {worst:.2g} times that of the noise. The grid is too coarse for these "
            "length-scales, and predictions in gaps may oscillate. Use more modes, as in "
            f"features=Grid(modes={tuple(2 * m for m in modes)}), or longer length-scales."
        )


def _warn_of_error_near(posterior: GridPosterior, near: Array | None, weight: float) -> None:
    """Say that small windows of neighbouring rows leave a smaller error than the grid has noise.

    ``weight`` is that of a row on average: its noise is less the more it weighs.
    """
    if near is None:
        return
    noise = posterior.noise_variance / weight
    share = noise / np.maximum(near, 1e-300)
    worst = int(np.argmax(share))
    if share[worst] > WORSE_THAN_NEAR:
        modes = posterior.features.modes
        warn(
            f"{posterior.features.n_components:,} columns of modes={modes} leave noise of standard "
            f"deviation {noise[worst] ** 0.5:.3g}, but 128 neighbours predict a row with an error "
            f"of {near[worst] ** 0.5:.3g}. The grid is too coarse, the kernel too "
            "smooth, or the data differ from place to place. Allow more columns, as in "
            f"features=Grid(columns={4 * posterior.features.n_components}), or use "
            "features='local'."
        )


def _restore(kind: type[Answer], stored: StoredAnswer) -> Answer:
    """The same from what a store keeps."""
    arrays, plain = stored.arrays, stored.plain["grid"]
    mean_df, error, unresolved, steps = arrays["numbers"].tolist()
    posterior = unpack_fields(
        GridPosterior, {}, arrays,
        features=stored.features, steps=int(steps), unresolved=unresolved,
    )  # fmt: skip
    kernel, evidence = kernel_from_spec(plain["kernel"]), arrays["log_marginal_likelihood"]
    df = arrays.get("df", np.full(len(evidence), mean_df))  # one for all, in older models
    return kind(posterior, kernel, plain["trend"], df, evidence, error, stored.total)


def _request(features: Any) -> Grid:
    return features if isinstance(features, Grid) else Grid()


def _grid_over(request: Grid, pilot: Pilot, columns: Columns) -> GridFeatures:
    """The grid of a request for the extent of pilot rows."""
    low, high = pilot.x.min(axis=0), pilot.x.max(axis=0)
    for name, (least, greatest) in (request.box or {}).items():
        axis = _axis(name, columns)
        low[axis], high[axis] = least, greatest
    places = longitudes_in(columns)
    periods = {place: TURN for place in places if reaches_around(pilot.x[:, place])}
    periods |= {_axis(name, columns): value for name, value in (request.periods or {}).items()}
    boxed = {_axis(name, columns) for name in request.box or {}}
    pilot.warn_of_stretched_range(sorted({*range(len(low))} - boxed - periods.keys()))
    modes = request.modes_of(len(low))
    return GridFeatures.over(low, high, modes=modes, periods=periods, padding=request.padding)


def _look_near(
    reading: Reading, pilot: Pilot, parameters: MapParameters
) -> tuple[MetricFit, Float64] | None:
    """What small windows of neighbouring rows say of the kernel; None where they are too few."""
    rng = np.random.default_rng(parameters.seed)
    rows = RowWindow(pilot.x, pilot.y, pilot.w)
    with single_threaded_blas():
        n_rows = pilot.usable(n_rows_of(reading.source))
        blocks, _ = neighbouring_rows(reading, rows, n_rows, rng, parameters.seed)
        return fit_near_rows(blocks, rows, parameters.kernels.named, rng=rng)


def _spacing(x: Float64) -> Float64:
    """Least distance between two values of each input (d,)."""
    steps = (np.diff(np.unique(column)) for column in x.T)
    return np.array([step.min() if len(step) else np.inf for step in steps])


def _axis(name: Any, columns: Columns) -> int:
    """The number of an input by name, or by number."""
    if isinstance(name, int) and 0 <= name < len(columns.inputs):
        return name
    if name not in columns.inputs:
        raise ValueError(
            f"The grid names input {name!r}, but the inputs are {', '.join(columns.inputs)}. "
            "Name one of them, or give its number."
        )
    return columns.inputs.index(name)


FAMILY = GridFamily()
