"""Classifiers in the cells of random trees: least squares on one-hot classes, calibrated.

Every class is a target of the process in the cells, with one α for all of them in a tree, so its
scores and those of sampled rows under the fit without each follow from moments alone. α is that of
highest evidence times the factor of least leave-one-out Brier score; the same scores calibrate
probabilities, with as much of a logistic regression on the kernel, and of a line of the inputs, as
pays. Of few rows, scores by maps that were searched without them have as much of a say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import Calibration, mean_calibration
from rff_stream.answers.odds_line import (
    FOLDS,
    OddsLine,
    calibrate_beside_line,
    folds_of,
    shares_beside,
)
from rff_stream.cells.calibration import local_posterior
from rff_stream.cells.cost import CellCost
from rff_stream.cells.draw import cell_cost, cost_of_shape, draw_cells, encoding_of
from rff_stream.cells.evidence import LocalEvidence, cell_evidence, local_evidence
from rff_stream.cells.fold_scores import FoldScores
from rff_stream.cells.map import ChosenCells, LocalFeatures
from rff_stream.cells.odds_map import OddsMap, OddsPart
from rff_stream.cells.posterior import LocalPosterior
from rff_stream.cells.spectrum import local_spectrum
from rff_stream.cells.statistic import CellStatistic
from rff_stream.contracts import RowFunction, Slopes, Statistic
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.level_intercepts import coded_inputs
from rff_stream.families.longitude import around_the_globe
from rff_stream.families.metric import behind, in_metric, matrix_of
from rff_stream.families.protocol import Descended, LossRequest, MapParameters, SumRequest, Totals
from rff_stream.families.register import classes_behind_means
from rff_stream.families.windows_of_pilot import map_search, pilot_windows, searched_rows
from rff_stream.features import FeatureMap
from rff_stream.features.composed import encode_rows, periods_of
from rff_stream.length_scales.class_errors import compare_probabilities
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_choice import MapChoice
from rff_stream.length_scales.map_search import search_map
from rff_stream.length_scales.search import ONE_SET
from rff_stream.length_scales.unseen_folds import errors_of_searches
from rff_stream.length_scales.window_evidence import RowWindow
from rff_stream.moments.class_moments import ClassMoments, one_hot
from rff_stream.moments.copies import sample_without_copies
from rff_stream.pilot import Pilot, weight_unit
from rff_stream.planning import Plan
from rff_stream.statistics.moment_statistics import ClassStatistic

FACTORS = np.logspace(-2, 2, 9)
"""Penalties that are compared, relative to that of highest evidence; variances are not told."""


@dataclass(frozen=True, slots=True, eq=False)
class CellLogOdds:
    """a·f + b + Bᵀx + γᵀz(x) of scores f in cells.

    See :class:`~rff_stream.families.protocol.LogOdds`.
    """

    posterior: LocalPosterior  # of the one-hot classes
    calibration: Calibration
    beside: OddsPart | None = None  # γᵀz(x)

    def predictor(self) -> RowFunction:
        return CellScores(self.posterior, self.calibration, self.beside)

    def slopes(self) -> Slopes:
        return CellScores(self.posterior, self.calibration, self.beside).slopes

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.posterior)

    def attributes(self) -> dict[str, Any]:
        """α and df are those of the trees, averaged."""
        alpha = self.posterior.alpha
        return {
            "posterior_": self.posterior,
            "alpha_": float(np.exp(np.log(alpha).mean())),
            "df_": float(self.posterior.solved.df(alpha).mean()),
        }

    def arrays(self) -> dict[str, Array]:
        """The posterior of every cell, the calibration, and what is beside the scores."""
        odds = self.calibration
        own = {"calibration": np.append(odds.slope, odds.offset)}
        if odds.line is not None:
            own["line"] = odds.line
        if self.beside is not None:
            own |= self.beside.stored
        return self.posterior.arrays() | own


@dataclass(frozen=True, slots=True, eq=False)
class CellScores:
    """x ↦ log-odds: one for two classes, else one a class."""

    posterior: LocalPosterior
    calibration: Calibration
    beside: OddsPart | None = None

    @property
    def width(self) -> int:
        """K."""
        return len(self.calibration.offset)

    def __call__(self, x: Array) -> Float64:
        """Log-odds (n, K) of rows (n, d)."""
        found = self.calibration(_sides(self.posterior.mean(x)), x)
        return found if self.beside is None else found + self.beside(x)

    def slopes(self, x: Array) -> Float64:
        """Those of the log-odds (n, d, K)."""
        found = self.calibration.slope * _sides(self.posterior.slopes(x))
        found = found if self.beside is None else found + self.beside.slopes(x)
        return found if self.calibration.line is None else found + self.calibration.line


SQUARED_ONLY = (
    "loss={loss!r} but classes in cells come from moments: loss='squared', whose probabilities are "
    "calibrated. Use it, or a map of the whole space."
)
"""The refusal of another loss."""


@dataclass(frozen=True, slots=True)
class CellClasses:
    """One-hot classes as targets of the moments of cells.

    See :class:`~rff_stream.families.protocol.ClassFamily`.
    """

    def check(self, loss: str, alpha: float | str) -> None:
        if loss != "squared":
            raise ValueError(SQUARED_ONLY.format(loss=loss))
        if alpha == "cv":
            raise ValueError(
                "alpha='cv' but the penalty of classes in cells is a number or 'sample', chosen "
                "by leave-one-out scores. Use one of them, or a map of the whole space."
            )

    def draw(
        self, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
    ) -> tuple[FeatureMap, Mapping[str, Array]]:
        features: Any = parameters.features
        if coded_inputs(inputs):
            return classes_behind_means(self, pilot, inputs, parameters, plan)
        n_rows, scales = pilot.usable(plan.n_rows), dict[str, Array]()
        as_read = pilot  # far values not bounded, as in the sample: folds follow from values
        if not isinstance(features, LocalFeatures):
            pilot = pilot.with_bounded_inputs()
            cost = cell_cost(features, n_rows, len(inputs), parameters.planned)
            encoding = encoding_of(features) or around_the_globe(parameters, pilot.x)
            encoding = behind(encoding, matrix_of(parameters.metric), pilot.x)
            kernel = parameters.kernels.known
            if kernel is None:
                with single_threaded_blas():
                    found = _search_class_windows(pilot, parameters, cost, n_rows, encoding)
                    scores = _scores_of_folds(pilot, as_read.x, parameters, cost, found, encoding)
                kernel, encoding = in_metric(found, encoding, pilot.x)
                cost, scales = cost_of_shape(cost, found.shape, n_rows), found.stored | scores
            features = draw_cells(kernel, pilot, parameters, cost, encoding)
        scales["length_scale"] = features.length_scale
        with single_threaded_blas():
            beside = _beside_scores(features, as_read.x, as_read.y, as_read.w, as_read.classes)
        return features, scales | beside

    def statistic(self, request: SumRequest) -> Statistic:
        return ClassStatistic(CellStatistic.of(request), request.labels)

    def least_squares(
        self, totals: Totals, class_weight: Mapping[Any, float], alpha: float | str
    ) -> CellLogOdds:
        classes: ClassMoments = totals.total
        rows, codes, weights, counts = _sample(classes, class_weight)
        totals.features.keep_factors(rows[:, : len(classes.row.inputs)], totals.spare_bytes)
        truth = one_hot(codes, len(classes.labels))

        def scored(evidence: LocalEvidence) -> tuple[float, LocalPosterior, Float64]:
            posterior = local_posterior(evidence, rows)
            scores = posterior.left_out(rows)[0]
            return float(weights @ ((scores - truth) ** 2).sum(axis=1)), posterior, scores

        if isinstance(alpha, str):
            spectrum = local_spectrum(totals.features, classes.moments)
            first, eta = local_evidence(spectrum, shared=True), spectrum.eta

            def at(place: int) -> tuple[float, LocalPosterior, Float64]:
                alphas = np.maximum(first.alpha * FACTORS[place], eta)
                return scored(replace(first, alpha=alphas))

            _, posterior, scores = descend(at, len(FACTORS))
        else:
            _, posterior, scores = scored(
                cell_evidence(totals.features, classes.moments, alpha=alpha)
            )
        names, x = classes.row.targets, rows[:, : len(classes.row.inputs)]
        known, line = totals.scales, OddsLine.from_stored(totals.scales)
        if line is None or len(x) > line.n_rows or not set(names) <= set(line.classes):
            with single_threaded_blas():
                known = _beside_scores(totals.features, x, truth, weights, names)
            line = OddsLine.from_stored(known)
        assert line is not None
        beside = OddsMap.from_stored(known)
        beside = None if beside is None else beside.over(names)
        apart, line = FoldScores.from_stored(totals.scales), line.over(names)
        told = [scores, None if apart is None else apart.at(x, names)]
        own_share, map_share, other = 1.0, 0.0, np.zeros(1)
        if beside is not None:  # its kernel was found by all rows, as that of left-out scores
            other = _sides(beside.held_out(x))
            own_share, map_share = shares_beside(_sides(scores), other, codes, weights, counts)
        calibrations = [
            calibrate_beside_line(
                own_share * _sides(each) + map_share * other, x, line, codes, weights, counts
            )
            for each in told
            if each is not None
        ]
        odds = mean_calibration(calibrations)
        map_share *= odds.slope
        odds = replace(odds, slope=odds.slope * own_share)
        if beside is None or not map_share:
            return CellLogOdds(posterior, odds)
        odds = replace(odds, offset=odds.offset + map_share * _sides(beside.intercept[0]))
        part = OddsPart(beside.features, map_share * _sides(beside.coef[0]))
        return CellLogOdds(posterior, odds, part)

    def least_loss(self, request: LossRequest) -> Descended:
        """Refused by :meth:`check`, too."""
        raise ValueError(SQUARED_ONLY.format(loss=request.loss))

    def restore(self, features: Any, arrays: Mapping[str, Array]) -> CellLogOdds:
        names = tuple(f"y{i}" for i in range(arrays["tree_alpha"].shape[1]))
        slope, *offset = arrays["calibration"].tolist()
        posterior = LocalPosterior.from_arrays(features, arrays, names)
        odds = Calibration(slope, np.array(offset), arrays.get("line"))
        return CellLogOdds(posterior, odds, OddsPart.from_stored(arrays))


def _beside_scores(
    features: LocalFeatures, x: Float64, y: Float64, w: Float64, classes: Sequence[str]
) -> dict[str, Array]:
    """What rows x (m, d) with one-hot classes say beside scores in cells, as arrays for the store.

    A line of the inputs, and logistic regression on the kernel of the cells.
    """
    line = OddsLine.of(x, y, w, classes, periods_of(features))
    on_map = OddsMap.of(features.kernel, features.encoding, x, y, w, classes)
    return line.stored | ({} if on_map is None else on_map.stored)


def descend(
    at: Callable[[int], tuple[float, LocalPosterior, Float64]], count: int
) -> tuple[float, LocalPosterior, Float64]:
    """The value of least score at one of so many places, downhill from the middle.

    Scores have one minimum along the places.
    """
    place = count // 2
    best = at(place)
    for step in (-1, 1):
        start = place
        while 0 <= place + step < count:
            found = at(place + step)
            if found[0] >= best[0]:
                break
            best, place = found, place + step
        if place != start:
            break
    return best


def _sample(
    classes: ClassMoments, class_weight: Mapping[Any, float]
) -> tuple[Float64, Array, Float64, Float64]:
    """Sampled rows, their classes (m,) and weights (m,), and rows (C,) of each class there.

    Rows weigh so much that every class has its weight in all rows. A class that the sample missed
    is calibrated with the others.
    """
    rows, d = sample_without_copies(classes.moments), len(classes.row.inputs)
    codes, w = rows[:, d:-1].argmax(axis=1), rows[:, -1]
    counts = np.bincount(codes, w, len(classes.labels))
    share = classes.weights / np.where(counts > 0, counts, 1.0)
    factor = np.array([class_weight.get(label, 1.0) for label in classes.labels])
    return rows, codes, w * share[codes], counts / np.where(factor > 0, factor, 1.0)


def _sides(scores: Float64) -> Float64:
    """One score −1 to 1 for two classes; those of every class otherwise."""
    return scores[..., 1:] - scores[..., :1] if scores.shape[-1] == 2 else scores


def _search_class_windows(
    pilot: Pilot, parameters: MapParameters, cost: CellCost, n_rows: int, encoding: Any
) -> MapChoice:
    """Kernel, metric and sizes of cells that predict left-out classes of pilot rows best."""
    rng = np.random.default_rng(parameters.seed)
    y = pilot.y[:, 1:] if pilot.y.shape[1] == 2 else pilot.y  # two classes are one target
    rows = searched_rows(encode_rows(encoding, pilot.x), y, pilot.w, rng)
    shape = CellShape(max(min(n_rows // cost.n_cells, len(rows.x)), 1), cost.n_features)
    if not rows.varies:
        return MapChoice.of_constant(parameters.kernels.named[0], rows.x, shape)
    chosen, windows = isinstance(parameters.features, ChosenCells), pilot_windows(rows, rng)
    search = map_search(
        rows, windows, True, parameters, shape, rng, scores=encoding is None, sizes=chosen
    )
    compare_probabilities(search, n_rows, scales=parameters.kernels.free)
    return search_map(search)


def _scores_of_folds(
    pilot: Pilot,
    as_read: Float64,
    parameters: MapParameters,
    cost: CellCost,
    found: MapChoice,
    encoding: Any,
) -> dict[str, Array]:
    """Scores of few rows as arrays for the store, those of a fold by a search without that fold.

    Nothing where rows are many, no budget is left, or a class is in one fold alone.
    """
    budget, fold = found.budget, folds_of(as_read)
    if len(pilot.x) > ONE_SET or budget is None or budget.spent >= budget.limit:
        return {}
    rows = RowWindow(pilot.x, pilot.y, pilot.w / weight_unit(pilot.w))
    without = [rows.part(fold != k) for k in range(FOLDS)]
    if not all(each.varies and (each.y > 0).any(axis=0).all() for each in without):
        return {}

    def search(seen: Array, seconds: float) -> MapChoice:
        asked = replace(parameters, search_seconds=seconds, progress=False)
        return _search_class_windows(pilot.part(seen), asked, cost, int(seen.sum()), encoding)

    scores = pilot.y - errors_of_searches(rows, fold, search, budget, encoding)
    if not np.isfinite(scores).all():  # a kernel had no Cholesky factor
        return {}
    return FoldScores.of(as_read, scores, pilot.classes).stored
