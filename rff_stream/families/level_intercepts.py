"""Random intercepts for columns of many levels, beside a map of the other inputs.

    y = f(x) + Σ_c b_c(level) + noise,  b_c ~ N(0, τ_c²)

The kernel is that of f plus τ_c² for rows of the same level. A level is a column of the map, so
all sums are those of any map: they merge, grow and forget, and a level that no row has had so
far is at the prior. τ_c² is that of highest evidence on the pilot, a linear mixed model.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, optimize, sparse

from rff_stream._array import Array, Float64
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.kernel_request import KernelRequest
from rff_stream.families.longitude import around_the_globe
from rff_stream.families.maps import PILOT_COMPONENTS, find_kernel, make_features
from rff_stream.families.metric import with_metric
from rff_stream.families.protocol import MapParameters
from rff_stream.features import ByColumns, FeatureMap, LevelIntercepts, Then
from rff_stream.features.level_intercepts import intercepts_in
from rff_stream.features.projection import length_scale_behind
from rff_stream.pilot import Pilot
from rff_stream.sources.levels import EVERY, MAX_LEVELS, column_of_level, is_coded

logger = logging.getLogger("rff_stream")

RATIOS = tuple(10.0 ** (k / 4) for k in range(-12, 9))
"""Candidates for τ²/σₙ²: a level of 1,000 rows feels the smallest, one row the largest."""

SURE = 2.0
"""Gain of log evidence over no intercepts at which there are some, as of a parameter in AIC."""

COMPONENTS = 512
"""R of the map of the other inputs beside which the intercepts are weighed."""

LOG_PENALTIES = (-12.0, 7.0)
"""Bounds of log₁₀(α/n)."""

FLAT = 1e3
"""Prior variance of the intercept of all rows, in units of σ_f²: next to none."""

NO_ROW = 1e-12
"""Mean of a column without rows at most: what rounding leaves of them when they are forgotten."""

SHARED = 1 / 16
"""Share of the columns for new levels from which a map has too few: of m levels that came in turn
the last one shares its column with about this probability."""


def coded_inputs(inputs: Sequence[str]) -> list[int]:
    """Places of the inputs that are numbers of levels."""
    return [place for place, name in enumerate(inputs) if is_coded(name)]


def quantities(inputs: Sequence[str]) -> list[int]:
    """Which inputs are no numbers of levels."""
    coded = coded_inputs(inputs)
    return [place for place in range(len(inputs)) if place not in coded]


def refuse_coded(inputs: Sequence[str], who: str) -> None:
    """Refuse columns of many levels where there is no answer for random intercepts.

    Raises
    ------
    ValueError
        Naming the column.
    """
    coded = coded_inputs(inputs)
    if coded:
        column = column_of_level(inputs[coded[0]])
        raise ValueError(
            f"{column!r} holds more than {MAX_LEVELS} levels (or one is {EVERY!r}, which stands "
            f"for all). They have random intercepts, but {who} has none. Use KernelRidge, "
            "GaussianProcessRegressor or KernelClassifier with features='whole', name the "
            f"levels that matter with inputs=['{column}=…', …], or leave it out."
        )


def mapped_inputs(features: Any, inputs: Sequence[str]) -> int:
    """How many inputs a map of the whole space takes: by its name, those that are quantities."""
    return len(inputs) - (len(coded_inputs(inputs)) if isinstance(features, str) else 0)


def shares_columns(features: Any, x: Float64) -> bool:
    """Whether rows x (n, d) have so many levels without a column of their own that some share."""
    return any(
        len(np.setdiff1d(x[:, place], part.codes)) >= SHARED * part.n_spare
        for place, _, part in intercepts_in(features)
    )


def taken_columns(features: Any, total: Any) -> dict[int, tuple[float, int, int]]:
    """Of the columns for new levels of each such input, by its place: the share that holds rows.

    And how many these are, of how many. By the mean feature vector of the sums, of classes, too;
    nothing without sums.
    """
    found: dict[int, tuple[float, int, int]] = {}
    for place, first, part in () if total is None else intercepts_in(features):
        mean = getattr(total, "moments", total).feature_mean()
        own = mean[first + len(part.codes) : first + part.n_components]
        taken = int((own > NO_ROW).sum())
        found[place] = taken / part.n_spare, taken, part.n_spare
    return found


def draw_whole(
    pilot: Pilot,
    inputs: Sequence[str],
    parameters: MapParameters,
    with_trend: Callable[[FeatureMap, Pilot], FeatureMap] = lambda features, _: features,
) -> tuple[FeatureMap, Float64 | float]:
    """The map of the whole space, and the length-scales of its kernel.

    A name is drawn for the inputs that are quantities; columns of levels have intercepts beside
    it. A map that was given takes all inputs as it likes.
    """
    coded = coded_inputs(inputs) if parameters.is_named else []
    others = [place for place in range(pilot.x.shape[1]) if place not in coded]
    names = tuple(inputs[place] for place in others)
    plain = replace(pilot, x=pilot.x[:, others], inputs=names) if coded else pilot
    before, plain = _around(parameters, plain, others)
    if coded:
        plain = _without_levels(plain, pilot, coded)
        if parameters.finds_metric and not (plain.x != plain.x[:1]).any():  # levels vary alone
            kernels = KernelRequest(parameters.kernels.named[:1], "median")
            parameters = replace(parameters, metric=None, kernels=kernels)
    parameters, plain, metric = with_metric(parameters, plain)
    maps: list[Any] = []
    length_scale: Float64 | float = 1.0
    few = np.empty((len(pilot.x), 0))
    if others:
        # Behind a metric one factor is left to find: as fine as the columns of the map can be.
        size = (
            PILOT_COMPONENTS if metric is None else min(parameters.n_components, PILOT_COMPONENTS)
        )
        kernel = find_kernel(
            parameters.kernels, plain, parameters.seed, parameters.progress, size,
            parameters.asked_seconds,
        )  # fmt: skip
        length_scale = length_scale_behind(metric, kernel)
        with single_threaded_blas():
            make = functools.partial(
                make_features, parameters.features, kernel, pilot=plain, seed=parameters.seed,
                dtype=parameters.dtype,
            )  # fmt: skip
            features = with_trend(make(n_components=parameters.n_components), plain)
            for first in (metric, before):
                features = features if first is None else Then(first, features)
            if not coded:
                return features, length_scale
            small = make(n_components=min(parameters.n_components, COMPONENTS))
            few = np.asarray(small(plain.x) * np.sqrt(small.prior()), np.float64)
        maps.append(features)
    columns = [tuple(others)] if others else []
    for place in coded:
        codes = pilot.x[:, place]
        with single_threaded_blas():
            variance = intercept_variance(few, codes, pilot.y, pilot.w) if others else 1.0
        name = column_of_level(inputs[place])
        if variance == 0:
            logger.info("%s: its levels differ by no more than noise; it is left out.", name)
            continue
        maps.append(LevelIntercepts.of_rows(codes, variance, parameters.dtype))
        columns.append((place,))
    return ByColumns(tuple(maps), tuple(columns), pilot.x.shape[1]), length_scale


def _without_levels(plain: Pilot, pilot: Pilot, coded: Sequence[int]) -> Pilot:
    """The same rows with targets less the means of levels, whose spread hides what inputs do."""
    for place in coded:
        plain = plain.with_targets(subtract_level_means(pilot.x[:, place], plain.y, plain.w))
    return plain


def _around(
    parameters: MapParameters, pilot: Pilot, places: Sequence[int]
) -> tuple[FeatureMap | None, Pilot]:
    """What comes before a map by name where longitudes reach around, and the pilot behind it."""
    own = tuple(places.index(place) for place in parameters.longitudes if place in places)
    named = parameters.is_named
    found = around_the_globe(replace(parameters, longitudes=own), pilot.x) if named else None
    if found is None:
        return None, pilot
    names = tuple(f"column {k} of {' and '.join(pilot.inputs)}" for k in range(found.n_components))
    return found, replace(pilot, x=found(pilot.x), inputs=names, one_unit=False)


def subtract_level_means(codes: Array, y: Float64, w: Float64) -> Float64:
    """Targets (m, T) less the means of their levels' other rows, each drawn to the mean of all.

    A mean is drawn by nτ²/(nτ² + σ²), with σ² within levels and τ² between them as the analysis of
    variance gives them (Searle, Casella & McCulloch 1992, chapter 3). With its own target in it, it
    would tell left-out rows theirs.
    """
    level = np.unique(codes, return_inverse=True)[1]
    size, total = np.bincount(level, w), w.sum()
    middle = np.average(y, axis=0, weights=w)
    means = np.stack([np.bincount(level, w * column) / size for column in y.T], axis=1)
    groups = len(size)
    if len(y) == groups or groups < 2:
        return y
    within = (w[:, None] * (y - means[level]) ** 2).sum(axis=0) / (len(y) - groups)
    between = (size[:, None] * (means - middle) ** 2).sum(axis=0) / (groups - 1)
    typical = (total - (size**2).sum() / total) / (groups - 1)
    variance = np.maximum((between - within) / typical, 0.0)  # τ², within is σ²
    others = np.maximum(size[level] - w, 0.0)[:, None]  # n of the other rows
    total_of_others = size[level, None] * (means - middle)[level] - w[:, None] * (y - middle)
    known = others * variance + within
    drawn = np.divide(variance * total_of_others, known, out=np.zeros_like(y), where=known > 0)
    return np.asarray(y - drawn)


def intercept_variance(Z: Float64, codes: Array, y: Float64, w: Float64) -> float:
    """τ²/σ_f² of highest evidence; 0 where levels say nothing: see :class:`MixedModel`."""
    return MixedModel.of(Z, codes, y, w).variance


@dataclass(frozen=True, slots=True, eq=False)
class MixedModel:
    """y ~ N(μ, σ_f² ZZᵀ + τ² EEᵀ + σₙ² W⁻¹) of highest evidence, by rows.

    With κ = τ²/σₙ² and n_l = Σw of a level, V = W⁻¹ + κEEᵀ has
    V⁻¹ = W − Σ_l κ/(1 + κn_l) w_l w_lᵀ and log|V| = Σ_l log(1 + κn_l) + …: for each κ a small
    system of Z, and for each α of it one sum over its eigenvalues.
    """

    full: Float64  # (n, R + 1): Z, and a column for the intercept of all rows
    level: Array  # (n,)
    y: Float64  # (n, T), less its mean
    w: Float64  # (n,)
    ratio: float  # κ; 0 where levels say nothing
    alpha: float  # σₙ²/σ_f²

    @property
    def variance(self) -> float:
        """τ²/σ_f²."""
        return self.ratio * self.alpha

    @classmethod
    def of(cls, Z: Float64, codes: Array, y: Float64, w: Float64) -> MixedModel:
        """For columns Z (n, R) and targets (n, T) of rows of some levels (n,)."""
        level = np.unique(codes, return_inverse=True)[1]
        full = np.column_stack([Z, np.full(len(Z), np.sqrt(FLAT))])
        weighed = full * w[:, None]
        y = y - np.average(y, axis=0, weights=w)
        size = np.bincount(level, w)
        sums, targets = _by_level(level, weighed), _by_level(level, w[:, None] * y)
        gram, cross = weighed.T @ full, weighed.T @ y
        square = (w[:, None] * y**2).sum(axis=0)

        def best(ratio: float) -> tuple[float, float]:
            """−2 log evidence, up to a constant, and the penalty α of least of it."""
            share = (ratio / (1 + ratio * size))[:, None]
            values, vectors = linalg.eigh(gram - sums.T @ (share * sums))
            values = np.maximum(values, 0.0)
            projected = (vectors.T @ (cross - sums.T @ (share * targets))) ** 2
            left = square - (share * targets**2).sum(axis=0)
            spread = len(targets.T) * np.log1p(ratio * size).sum()

            def loss(log_alpha: float) -> float:
                alpha = len(y) * 10.0**log_alpha
                misfit = left - (projected / (values[:, None] + alpha)).sum(axis=0)
                misfit = np.maximum(misfit, 1e-12 * square + np.finfo(float).tiny)
                logs = len(y) * np.log(misfit).sum()
                return float(logs + y.shape[1] * np.log1p(values / alpha).sum())

            found: Any = optimize.minimize_scalar(loss, bounds=LOG_PENALTIES, method="bounded")
            return spread + found.fun, len(y) * 10.0**found.x

        none, without = best(0.0)
        value, alpha, ratio = min((*best(ratio), ratio) for ratio in RATIOS)
        if not none - value > 2 * SURE:
            alpha, ratio = without, 0.0
        return cls(full, level, y, w, ratio, alpha)

    def left_out(self) -> Float64:
        """Residuals (n, T) of rows, each left out."""
        share = self.ratio / (1 + self.ratio * np.bincount(self.level, self.w))

        def solved(values: Float64) -> Float64:
            """V⁻¹ times columns (n, k)."""
            weighed = self.w[:, None] * values
            sums = _by_level(self.level, weighed)
            return np.asarray(weighed - self.w[:, None] * (share[:, None] * sums)[self.level])

        half, of_y = solved(self.full), solved(self.y)
        system = self.full.T @ half
        system.flat[:: len(system) + 1] += self.alpha
        inner = linalg.cho_solve(linalg.cho_factor(system), half.T).T
        diagonal = self.w - share[self.level] * self.w**2 - np.einsum("nr,nr->n", inner, half)
        return np.asarray((of_y - inner @ (self.full.T @ of_y)) / diagonal[:, None])


def _by_level(level: Array, values: Float64) -> Float64:
    """Sums (L, k) of columns (n, k) over the rows of each level."""
    rows = np.arange(len(level))
    chosen = sparse.csr_array((np.ones(len(level)), (level, rows)))
    return np.asarray(chosen @ values)
