"""Several maps from one read; leave-one-out errors of sampled rows choose one, or a weighted mean.

1. Before the read: every candidate draws its own map (:class:`~rff_stream.Candidates` says which).
   Ruled out: cells where there are no more rows than columns of one map of the whole space, which
   is then the process itself; grids for more than three inputs; what does not fit in memory.
2. The read: a statistic that is a tuple of statistics, so that groups, batches, checkpoints and the
   store do for all what they do for one.
3. After it: each candidate is a Gaussian process with its own noise and signal. Its leave-one-out
   errors at the rows of the mergeable sample are exact for its sums, so
   :func:`~rff_stream.choice.stacking.choose_models` compares what predictions are worth. The
   answer keeps the candidates of positive weight alone; the sums keep all, so that later rows may
   change the choice.
"""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rff_stream._array import Array, Float64, add_to_diagonals, nested_arrays
from rff_stream.answers.calibration import FEWEST_CALIBRATING
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.choice.cost import SeveralCosts
from rff_stream.choice.map import CandidateFeatures, Candidates
from rff_stream.choice.moments import CandidateMoments, candidate_row, rows_of_candidates
from rff_stream.choice.stacking import Choice, choose_models, noise_factor
from rff_stream.choice.statistic import CandidateStatistic
from rff_stream.contracts import Packed, RowFunction, Slopes, Statistic
from rff_stream.execution import Reading
from rff_stream.execution.scheduler import worker_memory
from rff_stream.families.kernel_request import KernelRequest
from rff_stream.families.maps import scale_of_map
from rff_stream.families.protocol import (
    ONE_KERNEL,
    DrawnMap,
    Family,
    LeftOut,
    MapParameters,
    Process,
    StoredAnswer,
    SumRequest,
    Totals,
    family_of,
)
from rff_stream.leaf_layout import n_rows_of
from rff_stream.moments import AugmentedRow
from rff_stream.moments.copies import sample_without_copies, weights_of_single_copies
from rff_stream.pilot import Pilot
from rff_stream.planning import PlanRequest, fits, plan_for
from rff_stream.predictors import StackedDraws, StackedMean, StackedVariances, stacked_loadings
from rff_stream.sources import Columns
from rff_stream.sources.protocol import Source
from rff_stream.stored_fields import pack_fields, unpack_fields

logger = logging.getLogger("rff_stream")

SHOWN = (
    "alpha_",
    "df_",
    "kernel_",
    "length_scale_",
    "log_marginal_likelihood_",
    "noise_variance_",
    "signal_variance_",
)
"""Attributes of the candidate with the largest weight that a model shows as its own."""


REFUSES = {
    "until": "features=Candidates(…) is read to the end: the choice is made from the row sample of "
    "all rows. Use fit without until, or features='whole'.",
    "with_kernel": ONE_KERNEL,
    "refine": "refine={value} but candidates are compared without it. Use refine=0, or one map.",
    "classes": "features=Candidates(…) but candidates are for KernelRidge and "
    "GaussianProcessRegressor. Choose one map here.",
}


@dataclass(frozen=True, eq=False)
class ChoiceAnswer:
    """One candidate, or a weighted mean of some.

    Its methods are those of a :class:`~rff_stream.families.protocol.Process`.
    """

    choice: Choice
    features: tuple[Any, ...]  # of all candidates
    processes: dict[int, Process]
    """Candidates with weight, by position; and one that covers every row, if none of them does."""
    noise_factor: Float64
    """(T,), factor of the noise of a weighted mean, so that intervals have their coverage on
    left-out rows; 1 where these are fewer than 100, as their quantile is too uncertain."""

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return np.asarray(next(iter(self.processes.values())).target_origin)

    def __sizeof__(self) -> int:
        return sum(map(sys.getsizeof, self.processes.values()))

    def mean(self) -> RowFunction:
        alone = self._alone()
        if alone is not None:
            return alone.mean()
        means = tuple(each.mean() for each in self.processes.values())
        return StackedMean(means, self._weights(), self._reaches())

    def slopes(self) -> Slopes:
        alone = self._alone()
        if alone is not None:
            return alone.slopes()
        means: Any = self.mean()
        each = [process.slopes() for process in self.processes.values()]
        return functools.partial(means.blend, functions=each, shape=(self.features[0].n_inputs,))

    def variances(self) -> RowFunction:
        alone = self._alone()
        if alone is not None:
            return alone.variances()
        return self._stacked(self._variances())

    def mean_and_variances(self) -> RowFunction:
        alone = self._alone()
        if alone is not None:
            return alone.mean_and_variances()
        return self._stacked(tuple(each.mean_and_variances() for each in self.processes.values()))

    def _stacked(self, functions: tuple[RowFunction, ...]) -> RowFunction:
        return StackedVariances(functions, self._weights(), self._reaches(), self.noise_factor)

    def covariance(self, x: Array, noise: bool) -> Float64:
        """Σ of those of the candidates times b√v_k of both rows: as wide as :meth:`variances`."""
        alone = self._alone()
        if alone is not None:
            return alone.covariance(x, noise)
        loadings = stacked_loadings(x, self._variances(), self._weights(), self._reaches())
        found = np.zeros((loadings.shape[2], len(x), len(x)))
        for process, own in zip(self.processes.values(), loadings, strict=True):
            there = np.flatnonzero(own.any(axis=1))
            sides = own[there].T
            terms = sides[:, :, None] * process.covariance(x[there], False) * sides[:, None]
            found[:, there[:, None], there] += terms
        if noise:
            add_to_diagonals(found, np.split(self.variances()(x), 2, axis=1)[1])
        return found

    def draws(self, n_samples: int, seed: int) -> RowFunction:
        alone = self._alone()
        if alone is not None:
            return alone.draws(n_samples, seed)
        each = tuple(self.processes.values())
        return StackedDraws(
            tuple(process.draws(n_samples, seed + 1 + i) for i, process in enumerate(each)),
            tuple(process.mean() for process in each),
            self._variances(),
            self._weights(),
            self._reaches(),
        )

    def leave_one_out(self, sample: Float64) -> Float64:
        weights = self.choice.weights
        errors = [weights[i] * p.leave_one_out(sample) for i, p in self.processes.items()]
        return np.asarray(np.sum(errors, axis=0))

    def left_out(self, sample: Float64) -> LeftOut:
        return self._mean_of([each.left_out(sample) for each in self.processes.values()])

    def _mean_of(self, each: Sequence[LeftOut]) -> LeftOut:
        """Of what the candidates with weight say: errors of f are taken to be alike."""
        weights = self._weights()[:, None]
        residual, std, noise = (
            (weights * np.array(values)).sum(axis=0)
            for values in (
                [own.residual for own in each],
                [np.sqrt(own.variance) for own in each],
                [own.noise for own in each],
            )
        )
        return LeftOut(residual, std**2, self.noise_factor * noise)

    def state(self, tests: Sequence[Any], n_rows: int, fraction: float) -> HeldOutError:
        raise ValueError(REFUSES["until"])

    def attributes(self, flat: bool) -> dict[str, Any]:
        """The choice, and what is known of the candidate of most weight."""
        best = self.choice.best
        own: Any = self.features[best]
        scale = np.asarray(getattr(own, "length_scale", scale_of_map(own)))
        found = {"length_scale_": float(scale) if scale.ndim == 0 else scale}
        found |= self.processes[best].attributes(flat)
        return {name: found[name] for name in SHOWN if name in found} | {"choice_": self.choice}

    def pack(self) -> Packed:
        """Names, weights and errors of the candidates, and what each that is kept says."""
        kept = {i: each.pack() for i, each in self.processes.items()}
        own = {f"p{i}_{name}": a for i, each in kept.items() for name, a in each.arrays.items()}
        plain, arrays = pack_fields(self.choice)
        plain["kept"] = [[i, each.plain] for i, each in kept.items()]
        return Packed({"choice": plain}, own | arrays | {"noise_factor": self.noise_factor})

    def _variances(self) -> tuple[RowFunction, ...]:
        return tuple(each.variances() for each in self.processes.values())

    def _weights(self) -> Float64:
        return self.choice.weights[list(self.processes)]

    def _reaches(self) -> tuple[Any, ...]:
        """Of those kept, the maps that do not reach every row; None for the others."""
        maps = (self.features[i] for i in self.processes)
        return tuple(None if each.reaches_all else each for each in maps)

    def _alone(self) -> Process | None:
        """The only candidate kept; None where there are several."""
        return next(iter(self.processes.values())) if len(self.processes) == 1 else None


@dataclass(frozen=True, slots=True)
class ChoiceFamily(Family):
    """:class:`~rff_stream.Candidates`: features="auto" of regressors, and maps that were drawn."""

    name: ClassVar[str | None] = None
    kinds: ClassVar[tuple[type, ...]] = (Candidates, CandidateFeatures)
    refuses: ClassVar[Mapping[str, str]] = REFUSES

    def join(self, maps: Sequence[Any]) -> Any:
        return CandidateFeatures(tuple(maps))

    def growth(self, features: Any, n_rows: int) -> float:
        return min(family_of(each).growth(each, n_rows) for each in features.maps)

    def tells_left_out(self, features: Any) -> bool:
        return all(family_of(each).tells_left_out(each) for each in features.maps)

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        if isinstance(parameters.penalty, str) and parameters.penalty != "evidence":
            raise ValueError(
                f"alpha={parameters.penalty!r} but candidates are compared at the penalty of "
                "highest evidence, or at a number. Use one of these, or one map for "
                f"alpha={parameters.penalty!r}."
            )
        given: Any = parameters.features
        for each in getattr(given, "maps", None) or ("whole", "local"):
            family_of(each).check(replace(parameters, features=each), n_inputs)

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        maps = _members(features, n_components, source)
        several = (family_of(each).request(each, n_components, source) for each in maps)
        return PlanRequest(SeveralCosts(tuple(each.cost for each in several), maps))

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        """The solves of the members; their searches are not counted."""
        assert isinstance(request.cost, SeveralCosts)
        members = []
        for each, cost in zip(request.cost.maps, request.cost.members, strict=True):
            own = replace(parameters, features=each)
            members.append(family_of(each).foresee(PlanRequest(cost), own, n_rows).cost)
        return replace(request, cost=replace(request.cost, members=tuple(members)))

    def draw(self, reading: Reading, columns: Columns, parameters: MapParameters) -> DrawnMap:
        """Every candidate draws its map; "median" is a search for those of the whole space, too."""
        members = _members(parameters.features, parameters.n_components, reading.source)
        own = (
            replace(parameters, kernels=_searched(parameters.kernels))
            if len(members) > 1
            else parameters
        )
        all_drawn = [
            family_of(each).draw(reading, columns, replace(own, features=each)) for each in members
        ]
        features: Any = CandidateFeatures(tuple(drawn.features for drawn in all_drawn))
        scales = {name: value for drawn in all_drawn[::-1] for name, value in drawn.scales.items()}
        scales.pop("choice", None)  # of the search of a member
        return DrawnMap(
            features, self.row(features, reading.pilot(parameters.seed), columns), scales
        )

    def row(self, features: Any, pilot: Pilot, columns: Columns) -> AugmentedRow:
        return candidate_row([family_of(each).row(each, pilot, columns) for each in features.maps])

    def statistic(self, request: SumRequest) -> Statistic:
        features, costs = request.features, request.plan.cost
        if len(features.maps) > 1 and not request.sample_rows:
            raise ValueError(
                "sample_rows=0 but candidates are compared on the row sample. Use "
                "sample_rows=2000, or choose one map."
            )
        assert isinstance(costs, SeveralCosts)
        several = (
            replace(request, features=each, row=row, plan=replace(request.plan, cost=cost))
            for each, row, cost in zip(
                features.maps, _own_rows(features, request.row), costs.members, strict=True
            )
        )
        statistics = (family_of(each.features).statistic(each) for each in several)
        return CandidateStatistic(request.row, tuple(statistics))

    def zero(self, features: Any, row: AugmentedRow, order: int) -> CandidateMoments:
        several = zip(features.maps, _own_rows(features, row), strict=True)
        return CandidateMoments(
            row, tuple(family_of(each).zero(each, own, order) for each, own in several)
        )

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> ChoiceAnswer:
        """Each is a process: their left-out errors and noise are what is compared."""
        maps, total = totals.features.maps, totals.total
        sample = sample_without_copies(total)
        several = len(maps) > 1
        processes: dict[int, Process] = {}
        left_out: dict[int, LeftOut] = {}
        residuals: list[Float64 | None] = []
        said: dict[int, list[Any]] = {}
        for i, (each, sums) in enumerate(zip(maps, total.members, strict=True)):
            if sums is None:
                residuals.append(None)
                continue
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                found = family_of(each).solve(
                    _own_totals(totals, i),
                    alpha,
                    fit_intercept=fit_intercept,
                    refine=0,
                    variances=True,
                )
                if several:
                    left_out[i] = found.left_out(sample)
            own = left_out.get(i)
            residuals.append(np.empty((0, total.row.n_targets)) if own is None else own.residual)
            processes[i], said[i] = found, heard
        names = tuple(family_of(each).name or "" for each in maps)
        choice = choose_models(names, residuals, sample[:, -1] if several else np.empty(0))
        answer = _answer(choice, maps, processes)
        for i in answer.processes:
            for each in said[i]:
                warnings.warn(each.message, stacklevel=2)
        if several and totals.parameters is not None and totals.parameters.progress:
            logger.info("features: %s", choice)
        if len(answer.processes) == 1 or len(sample) < FEWEST_CALIBRATING:
            return answer
        both = answer._mean_of([left_out[i] for i in answer.processes])
        noise = both.noise / weights_of_single_copies(total)[:, None]
        return replace(answer, noise_factor=noise_factor(both.residual, both.variance, noise))

    def restore(self, stored: StoredAnswer, *, variances: bool) -> ChoiceAnswer:
        arrays, plain = stored.arrays, stored.plain["choice"]
        maps, processes = stored.features.maps, {}
        for i, own in plain["kept"]:
            named = nested_arrays(arrays, f"p{i}_")
            total = None if stored.total is None else stored.total.members[i]
            processes[i] = family_of(maps[i]).restore(
                StoredAnswer(maps[i], named, own, stored.targets, total), variances=True
            )
        choice = unpack_fields(Choice, plain, arrays)
        return ChoiceAnswer(choice, maps, processes, arrays["noise_factor"])


def _members(features: Any, n_components: int, source: Source) -> tuple[Any, ...]:
    """The maps, or the requests for them, that compete for these data."""
    if features.maps is not None:
        return tuple(features.maps)
    several = ["whole"]
    if n_rows_of(source) > n_components:
        several.append("local")
        if family_of("grid").serves(len(source.columns.inputs)):
            several.append("grid")
    limit = worker_memory()
    return tuple(
        each
        for each in several
        if each == "whole"
        or fits(plan_for(source, family_of(each).request(each, n_components, source)), limit)
    )


def _searched(kernels: KernelRequest) -> KernelRequest:
    """As asked for; with a search for length-scales where nothing but the default was said."""
    unsaid = kernels.rule == "median" and kernels.known is None
    return replace(kernels, length_scale="ard") if unsaid else kernels


def _own_rows(features: CandidateFeatures, row: AugmentedRow) -> list[AugmentedRow]:
    """The row of each map."""
    return rows_of_candidates(row, [each.row_columns for each in features.maps])


def _own_totals(totals: Totals, i: int) -> Totals:
    """The sums of map i, and the parameters of a kernel that is chosen after the read."""
    maps, parameters = totals.features.maps, totals.parameters
    if parameters is not None:
        given: Any = parameters.features
        requests = getattr(given, "maps", None) or ()
        own = requests[i] if len(requests) == len(maps) else maps[i]
        parameters = replace(parameters, features=own)
    groups = {label: part.members[i] for label, part in totals.groups.items()}
    return Totals(maps[i], groups, totals.total.members[i], parameters, totals.scales)


def _answer(choice: Choice, maps: tuple[Any, ...], processes: dict[int, Process]) -> ChoiceAnswer:
    """The answer with those of positive weight, and one that reaches every row."""
    kept = [i for i in processes if (choice.weights[i] > 0).any()]
    far = [i for i in processes if maps[i].reaches_all]
    if far and not set(kept) & set(far):
        kept.append(min(far, key=lambda i: float(choice.errors[i].sum())))
    own = {i: processes[i] for i in sorted(kept)}
    return ChoiceAnswer(choice, maps, own, np.ones(choice.weights.shape[1]))


FAMILY = ChoiceFamily()
