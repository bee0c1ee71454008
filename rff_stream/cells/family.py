"""Cells of random trees, each with columns and moments of its own."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from rff_stream._array import Array, Float64, add_to_diagonals, is_named
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.cells import joint
from rff_stream.cells.calibration import least_alpha, local_posterior, numbers_found
from rff_stream.cells.classes import CellClasses
from rff_stream.cells.cost import CellCost
from rff_stream.cells.draw import (
    cell_cost,
    check_cells,
    cost_of_shape,
    draw_cells,
    encoding_of,
    finer_cells,
    has_default_cells,
)
from rff_stream.cells.evidence import (
    cell_evidence,
    cell_gcv,
    cross_validate_cells,
    few_rows,
    local_evidence,
)
from rff_stream.cells.gap_factor import gap_factor
from rff_stream.cells.map import Cells, ChosenCells, LocalFeatures
from rff_stream.cells.moments import CellMoments, cell_row
from rff_stream.cells.posterior import LocalPosterior
from rff_stream.cells.spectrum import local_spectrum
from rff_stream.cells.statistic import CellStatistic
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.errors import warn
from rff_stream.execution import Reading
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import coded_inputs
from rff_stream.families.longitude import around_the_globe
from rff_stream.families.maps import chosen_map
from rff_stream.families.metric import behind, in_metric, matrix_of
from rff_stream.families.parameters import number_or_array
from rff_stream.families.protocol import (
    ONE_KERNEL,
    ClassFamily,
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
    family_of,
)
from rff_stream.families.register import behind_means, beside, joined
from rff_stream.families.windows_of_pilot import (
    map_search,
    neighbouring_rows,
    pilot_windows,
    searched_rows,
    seconds_of_windows,
)
from rff_stream.features.composed import encode_rows
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.features.packed_triangle import triangle_size
from rff_stream.leaf_layout import n_rows_of
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_choice import MapChoice
from rff_stream.length_scales.map_search import search_map
from rff_stream.length_scales.unseen_folds import NUMBERS_TOLD, numbers_told
from rff_stream.moments import AugmentedRow
from rff_stream.moments.copies import sample_without_copies, weights_of_single_copies
from rff_stream.pilot import PILOT_BLOCKS, PILOT_ROWS, Pilot
from rff_stream.planning import PlanRequest
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source

GAP_CELLS = 8
"""Cells whose halves are left out to see how wide errors in gaps are."""

MOST_AVERAGED = 50_000
"""Rows up to which the mean of two maps competes: at 41,000 rows of nine inputs the second map took
9 CPU seconds, half as much as the search."""

ABOVE_ROUNDING = 10.0
"""Squared relative error at left-out rows, over the rounding of columns in float32, below which
columns are float64. On 5,000 rows of a made function (deviation .6) errors were then 1.0 to 1.3
times a noise of 1e-3 and 1.0 times one of 3e-4, in float32 1.1 to 1.6 and 1.3 times; above it both
were 1.0 times a noise of 3e-3."""

FELT_BY_FLOAT32 = 1e-3
"""Squared relative error at left-out rows, about σₙ²/σ_f² of a cell, below which sums are float64:
of sums in float32 η is .3 to 1.4e-3 (cells of 128 to 256 columns, 200 to 1,600 rows)."""

NOTHING_SEEN = 0.97
"""Error at left-out rows, relative to their standard deviation, at which length-scales are
noise."""

ALPHAS = np.logspace(-6, 3, 28)
"""Penalties that cross-validation compares, times the mean eigenvalue of a cell's matrix."""


REFUSES = {
    "until": "features='local' is read to the end: sums of leaves held out tell the error of each "
    "tree, not that of their mean, and take as much memory each as all the data. Fit a part of the "
    "rows without until, or use a map of the whole space.",
    "with_kernel": ONE_KERNEL,
    "refine": "refine={value} but the coefficients of cells are solved once: a cell has few rows, "
    'so its sums lose few digits. Use refine=0, and sums="float64" if every digit matters.',
}


@dataclass(frozen=True, slots=True, eq=False)
class CellFunction:
    """x ↦ what a posterior answers; picklable."""

    posterior: LocalPosterior
    ask: Callable[[LocalPosterior, Array], Float64]
    width: int

    def __call__(self, x: Array) -> Float64:
        """Values (n, width) of rows (n, d)."""
        return self.ask(self.posterior, x)

    def for_rows(self, count: int) -> CellFunction:
        """The same for so many rows in all, in calls of any size."""
        return replace(self, posterior=self.posterior.for_rows(count))


@dataclass(frozen=True, slots=True, eq=False)
class CellAnswer:
    """The mean of a process in the cells of random trees.

    Its methods are those of a :class:`~rff_stream.families.protocol.RidgeAnswer`.
    """

    posterior: LocalPosterior
    log_evidence: Float64  # (T,): log p(y) as the mean over trees
    target_origin: Float64  # (T,), y₀ of the moments: residuals are summed about it

    def mean(self) -> RowFunction:
        return CellFunction(self.posterior, LocalPosterior.mean, len(self.posterior.inflation))

    def slopes(self) -> Slopes:
        return self.posterior.slopes

    def state(self, tests: Sequence[CellMoments], n_rows: int, fraction: float) -> HeldOutError:
        raise ValueError(REFUSES["until"])

    def attributes(self, flat: bool) -> dict[str, Any]:
        """α and df are those of the trees, averaged."""
        posterior = self.posterior
        alpha = np.exp(np.log(posterior.alpha).mean(axis=0))
        df = posterior.solved.df(posterior.alpha).mean(axis=0)
        return {
            "posterior_": posterior,
            "alpha_": number_or_array(alpha, flat),
            "df_": number_or_array(df, flat),
        }

    def pack(self) -> Packed:
        """The posterior of every cell."""
        return Packed({}, {**self.posterior.arrays(), "target_origin": self.target_origin})

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.posterior)


@dataclass(frozen=True, slots=True, eq=False)
class CellProcess(CellAnswer):
    """The same with its uncertainty: a :class:`~rff_stream.families.protocol.Process`."""

    def variances(self) -> RowFunction:
        width = 2 * len(self.posterior.inflation)
        return CellFunction(self.posterior, LocalPosterior.variances, width)

    def mean_and_variances(self) -> RowFunction:
        width = 3 * len(self.posterior.inflation)
        return CellFunction(self.posterior, LocalPosterior.mean_and_variances, width)

    def covariance(self, x: Array, noise: bool) -> Float64:
        found = joint.covariance(self.posterior, x)
        if noise:
            own = np.split(self.posterior.variances(x), 2, axis=1)[1]
            add_to_diagonals(found, own)
        return found

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        return joint.draws(self.posterior, n_samples, seed)

    def leave_one_out(self, sample: Float64) -> Float64:
        return self.posterior.leave_one_out(sample)

    def left_out(self, sample: Float64) -> LeftOut:
        return LeftOut(*self.posterior.left_out_variances(sample))

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Those of the mean, and the variances with their evidence."""
        posterior = self.posterior
        signal = (posterior.noise_variance / posterior.alpha).mean(axis=0)
        return CellAnswer.attributes(self, flat) | {
            "noise_variance_": number_or_array(posterior.noise(), flat),
            "signal_variance_": number_or_array(signal, flat),
            "log_marginal_likelihood_": number_or_array(self.log_evidence, flat),
        }

    def pack(self) -> Packed:
        """The posterior of every cell, and the evidence."""
        return CellAnswer.pack(self).with_arrays({"log_marginal_likelihood": self.log_evidence})


@dataclass(frozen=True, slots=True)
class CellFamily(Family):
    """:class:`~rff_stream.LocalFeatures` with their :class:`~rff_stream.cells.moments.CellMoments`.

    ``features="local"``, :class:`~rff_stream.Cells` that say how many, or a map that is drawn.
    """

    name: ClassVar[str | None] = "local"
    kinds: ClassVar[tuple[type, ...]] = (Cells, LocalFeatures)
    refuses: ClassVar[Mapping[str, str]] = REFUSES
    default_request: ClassVar[Any] = ChosenCells()
    classes: ClassVar[ClassFamily | None] = CellClasses()

    def finds_kernels(self, features: Any) -> bool:
        return not isinstance(features, LocalFeatures)

    def growth(self, features: Any, n_rows: int) -> float:
        fresh = cell_cost(ChosenCells(), n_rows, features.n_inputs)
        columns = int(features.n_cells * features.n_components)
        return fresh.n_cells * fresh.n_features / columns

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        given = parameters.features
        check_cells(given, parameters.kernels, n_inputs, parameters.metric)

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        cost = cell_cost(features, n_rows_of(source), len(source.columns.inputs))
        return PlanRequest(cost, shrinks=has_default_cells(features))

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        if is_named(parameters.penalty, "cv") or is_named(parameters.penalty, "gcv"):
            request = replace(request, cost=replace(request.cost, decomposed=True))  # type: ignore[type-var]
        if isinstance(parameters.features, LocalFeatures):
            return request
        if parameters.kernels.known is not None:
            return request
        return replace(
            request, search_seconds=seconds_of_windows(len(parameters.kernels.named), n_rows)
        )

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """The map, drawn for pilot rows, and what a row of one of its cells means.

        A map that is given stays as it is. Length-scales are numbers, those of the kernel, or
        found on compact windows of rows: one for "evidence", else ("ard", and "median", which
        cannot see local scales) one for each input.
        """
        features: Any = parameters.features
        if coded_inputs(columns.inputs):
            return behind_means(self, reading, columns, parameters)
        seed, n_rows, d = parameters.seed, n_rows_of(reading.source), len(columns.inputs)
        sizes = cell_cost(features, n_rows, d, parameters.planned)
        rows = max(-(-sizes.pilot_rows // PILOT_BLOCKS), PILOT_ROWS)
        pilot = reading.pilot(seed, rows=rows, cells=sizes.all_cells)
        pilot, n_rows = pilot.with_bounded_inputs(), pilot.usable(n_rows)
        sizes = cell_cost(features, n_rows, d, parameters.planned)
        scales: dict[str, Array] = {}
        maps: list[Any] = [features]
        trend: LinearTrend | None = None
        if not isinstance(features, LocalFeatures):
            encoding = chosen_map(encoding_of(features), columns.inputs)
            encoding = encoding or around_the_globe(parameters, pilot.x)
            encoding = behind(encoding, matrix_of(parameters.metric), pilot.x)
            known = parameters.kernels.known
            if known is not None:
                maps = [draw_cells(known, pilot, parameters, sizes, encoding)]
            else:
                with single_threaded_blas():
                    found, scales = _search(reading, pilot, parameters, n_rows, sizes, encoding)
                maps, trend = [], found.trend
                for each in found.maps:
                    kernel, before = in_metric(each, encoding, pilot.x)
                    shaped = cost_of_shape(sizes, each.shape, n_rows)
                    drawn = draw_cells(kernel, pilot, parameters, shaped, before)
                    least = min(found.left_out_error**2, each.alpha)
                    exact = least < ABOVE_ROUNDING * drawn.rounding
                    precise = exact and parameters.float64_fits
                    maps.append(drawn.in_float64() if precise else drawn)
        scales["length_scale"] = maps[0].length_scale
        features = joined(maps)
        if trend is not None:
            features = beside(features, trend)
        return DrawnMap(features, family_of(features).row(features, pilot, columns), scales)

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        return cell_row(
            features,
            target_origin=pilot.target_origin,
            target_scale=pilot.target_scale,
            inputs=columns.inputs,
            targets=columns.targets,
            units=columns.units,
        )

    def statistic(self, request: SumRequest) -> Statistic:
        return CellStatistic.of(request)

    def zero(self, features: Any, row: AugmentedRow, order: int) -> CellMoments:
        return CellMoments.zero(row, features.n_trees, features.n_cells)

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> CellAnswer:
        return _solve(CellProcess if variances else CellAnswer, totals, alpha, fit_intercept)

    def restore(self, stored: StoredAnswer, *, variances: bool) -> CellAnswer:
        return _restore(CellProcess if variances else CellAnswer, stored)


Answer = TypeVar("Answer", bound=CellAnswer)


def _solve(kind: type[Answer], totals: Totals, alpha: Any, fit_intercept: bool) -> Answer:
    """The answer at an α: numbers, or the name of the rule that finds them.

    "cv" and "gcv" minimise the error of folds and of generalised cross-validation; any other name
    is evidence, tree by tree.
    """
    moments: CellMoments = totals.total
    sample = sample_without_copies(moments)
    release = functools.partial(release_factors, totals, sample)
    if is_named(alpha, "cv"):  # before anything is solved
        alpha = penalty_by_folds(totals, fit_intercept=fit_intercept)
    if is_named(alpha, "gcv"):
        release()
        spectrum = local_spectrum(totals.features, moments, fit_intercept=fit_intercept)
        alphas = penalties(totals.features, moments.weight)
        alpha = alphas[cell_gcv(spectrum, alphas).sum(axis=0).argmin(axis=0)]
        evidence = local_evidence(spectrum, alpha=alpha)
    else:
        solve = functools.partial(
            cell_evidence, totals.features, moments, fit_intercept=fit_intercept, release=release
        )
        evidence = solve(alpha=None if isinstance(alpha, str) else alpha)
        least = least_alpha(totals) if isinstance(alpha, str) else 0.0
        if (evidence.alpha < least).any():
            evidence = solve(alpha=np.maximum(evidence.alpha.max(axis=0), least))
    gap_factor = np.asarray(totals.scales.get("gap_factor", np.ones(1)))
    n = max(evidence.solved.observations.n, 1)
    posterior = local_posterior(
        evidence, sample, gap_factor,
        single_weights=weights_of_single_copies(moments), optimism=numbers_found(totals, n) / n,
    )  # fmt: skip
    return kind(posterior, evidence.log_evidence.mean(axis=0), moments.row.target_origin)


def release_factors(totals: Totals, sample: Float64, itemsize: int = 8) -> None:
    """Let go of factors of landmarks for which the plan has no room beside the solve.

    The solve needs those of the row sample. The plan counts F⁻¹ in float64.
    """
    features = totals.features
    saved = (8 - itemsize) * len(totals.total.cells) * triangle_size(features.n_components)
    features.keep_factors(sample[:, : features.n_inputs], totals.spare_bytes + saved)


def _restore(kind: type[Answer], stored: StoredAnswer) -> Answer:
    """The same from arrays of the store."""
    features, arrays, targets = stored.features, stored.arrays, stored.targets
    posterior = LocalPosterior.from_arrays(features, arrays, targets)
    unknown = np.full(len(targets), np.nan)
    evidence = arrays.get("log_marginal_likelihood", unknown)
    return kind(posterior, np.asarray(evidence), arrays["target_origin"])


def penalty_by_folds(totals: Totals, *, fit_intercept: bool) -> Float64:
    """α (T,) of the least held-out error, summed over folds and trees."""
    features, parts = totals.features, list(totals.groups.values())
    alphas = penalties(features, float(np.mean([part.weight for part in parts])) * len(parts))
    losses = cross_validate_cells(features, parts, alphas, fit_intercept=fit_intercept)
    return np.asarray(alphas[losses.sum(axis=(0, 1)).argmin(axis=0)])


def penalties(features: LocalFeatures, weight: float) -> Float64:
    """α (A,) that are compared, for rows of this Σ w."""
    share = weight / features.n_cells * features.kernel.variance / features.n_components
    return np.asarray(ALPHAS * share)


def _search(
    reading: Reading,
    pilot: Pilot,
    parameters: MapParameters,
    n_rows: int,
    sizes: CellCost,
    encoding: Any,
) -> tuple[MapChoice, dict[str, Array]]:
    """Kernel and metric that predict left-out rows best, and what is stored of the search."""
    rng = np.random.default_rng(parameters.seed)
    rows = searched_rows(encode_rows(encoding, pilot.x), pilot.y, pilot.w, rng)
    cell_rows = max(min(n_rows // sizes.n_cells, len(rows.x)), 1)
    shape = CellShape(cell_rows, sizes.n_features, sizes.n_trees)
    if not rows.varies:
        return MapChoice.of_constant(parameters.kernels.named[0], rows.x, shape), {}
    blocks, of_pilot = neighbouring_rows(reading, rows, n_rows, rng, parameters.seed, encoding)
    chosen = isinstance(parameters.features, ChosenCells)
    dense = not of_pilot or 2 * len(rows.x) >= n_rows  # cells of so many rows are as large as drawn
    finer = finer_cells(parameters.features, sizes, n_rows) if dense else None
    pays = (
        parameters.averages and is_named(parameters.penalty, "evidence") and n_rows <= MOST_AVERAGED
    )
    options: dict[str, Any] = {
        "scores": encoding is None,
        "sizes": chosen,
        "finer": finer and CellShape(cell_rows // 2, finer.n_features, finer.n_trees),
        "averages": chosen and pays and parameters.larger_fit,
        "trends": chosen and encoding is None,
    }
    search = map_search(rows, blocks, of_pilot, parameters, shape, rng, **options)
    found = search_map(search)
    if of_pilot and 2 * len(rows.x) < n_rows:
        warn_of_spacing(found.left_out_error, len(rows.x))
    cells = search.cells_of(found.matrix)[:GAP_CELLS]
    if not cells:
        raise few_rows(n_rows, sizes.n_cells)
    order = rng.permutation(max(len(each.x) for each in cells))
    unit = found.unit_kernel.with_length_scale(1.0)

    def again(seen: Array, seconds: float) -> MapChoice:
        known, own = rows.part(seen), np.random.default_rng(parameters.seed)
        asked = replace(parameters, search_seconds=seconds, progress=False)
        windows = pilot_windows(known, own)
        return search_map(map_search(known, windows, True, asked, shape, own, **options))

    told = numbers_told(rows, found, again)
    stored = {"gap_factor": gap_factor(unit, cells, sizes.n_features, order)} | found.stored
    if told is not None:
        stored[NUMBERS_TOLD] = told
    if found.left_out_error**2 < FELT_BY_FLOAT32:  # not of NaN
        stored["float64_sums"] = np.ones(1)
    return found, stored


def warn_of_spacing(left_out_error: float, n_rows: int) -> None:
    """Warn that the data may have structure finer than the rows that were looked at."""
    if left_out_error > NOTHING_SEEN:
        warn(
            f"The {n_rows} rows that were used to find length-scales do not predict each other: "
            f"the error at left-out rows is {left_out_error:.3f} standard deviations. "
            "Structure finer than the distance between them cannot be found. Give length_scale as "
            "numbers, or store neighbouring rows side by side, so that dense windows are read."
        )


FAMILY = CellFamily()
