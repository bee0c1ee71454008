"""A metric in place of length-scales: a matrix A of all numbers, or of a few directions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from rff_stream._array import Float64
from rff_stream.kernels import ExactKernel, RadialKernel
from rff_stream.length_scales.candidates import Candidate, FoldFits
from rff_stream.length_scales.holes import Split, errors_of_folds, folds_of, seconds_of_holes
from rff_stream.length_scales.search import (
    ALPHA_ROWS,
    FEW_WINDOWS,
    LATER_STEPS,
    MANY_WINDOWS,
    METRIC_STEPS,
    MOST_OF_METRIC,
    WITHIN_REACH,
    Search,
)
from rff_stream.length_scales.shared_slopes import (
    SharedDirections,
    seconds_of_directions,
    seconds_of_slopes,
    shared_directions,
    slope_metric,
)
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow, WindowEvidence
from rff_stream.length_scales.windows import TINY

DEVELOPED = 2
"""Kernels that learn a metric."""

MOST_OF_DIRECTIONS = 1000
"""Largest number of inputs of which directions are found: M is a matrix of their square."""

TURNS, PATIENCE = 8, 2
"""Most turns of the search for directions, and how many in a row may be no better: a second
direction stands out only when the metric of the first is known well."""

LEAST_FOLDS, FOLDS = 2, 5
"""Least and most folds that judge directions found without them. At the rows that gave them 58
numbers tell the classes of 80 rows apart by chance alone (Cover 1965)."""

SLOPE_FIT_ROWS, SLOPE_TURNS = 2000, 4
"""Rows whose slopes give a metric of classes, and most turns: on letter errors fall for four."""

CHEAP = 0.1
"""Share of the budget up to which a turn may follow one that was no better."""

MILD = 0.25
"""Power of M, where inputs are many: few rows know the ratios of their slopes less well. On 4,000
rows of MNIST's training part that 4,000 others judge, errors .040 -> .034, and .042 for 1/2."""

SEEN, FEWEST_SEEN = 8, 1000
"""One in so many rows may give slopes of many inputs, and how many must. The others say penalties
and calibrate: those that the metric saw look too easy. Held-out digits, errors with and without a
metric of an eighth of 4,000 rows: .053 and .049; of 8,000: .034 and .041; of 16,000: .026 and .031.
"""


class MetricSearch(Search):
    """Metrics and directions, that compete with length-scales."""

    __slots__ = ()

    def _learn(self) -> None:
        """Metrics from the best kernels, and what is asked for of them."""
        if not self.metric or self.rows.x.shape[1] == 1 or not self._tells_directions:
            return
        near = self._near_best()[:DEVELOPED]
        if not self.of_many_inputs:
            if near and self.compares_scales:
                self._learn_slopes(near[0])
            elif near and self._learn_metric(near[0]):
                for each in near[1:]:
                    self._share_metric(each)
            if self._metrics:
                self._drop_directions()
        elif near and self._can_have_directions and not near[0].is_learnt:
            tried = [each.error for each in self._metrics]
            if not tried or min(tried) < self._plain[0].error:  # else others find as little
                self._learn_of_many(near[0])
        if self.only_metric:
            self._take_metrics()

    @property
    def _tells_directions(self) -> bool:
        """Whether there are more rows than numbers of one direction, if the same rows judge it."""
        n, d = self.rows.x.shape
        return bool(n > d or self.judges is not None or self.only_metric)

    @property
    def _can_have_directions(self) -> bool:
        return bool(self.rows.x.shape[1] <= MOST_OF_DIRECTIONS)

    def _directions_of_many(self, first: MetricFit) -> None:
        """The first fit and directions from it, before each input has its own length-scale."""
        self._judge(f"{first.kernel.text}, first length-scales", first, time.process_time())
        learns = self.metric and self._can_have_directions and self._tells_directions
        if learns and isinstance(first.kernel, RadialKernel):
            self._learn_of_many(self.candidates[-1])

    def _learn_of_many(self, start: Candidate) -> None:
        """A metric of many inputs: a few directions that are sure, or all of inputs in one unit.

        Of 784 pixels 260 directions tell digits better than length-scales do, of 123 marks one.
        """
        of_all = self.compares_scales and not self.ard and self.n_rows >= SEEN * FEWEST_SEEN
        (self._learn_slopes if of_all else self._learn_directions)(start)

    def _learn_metric(self, start: Candidate) -> bool:
        """Whether a metric is better than its start: of a first turn and, if near, a second.

        Windows of the second are more, and compact in the better of both. Few rows are all seen at
        once. A first turn of few windows may gain nothing where the second gains much, so the
        second is made wherever the first is near: protein had .524 without and .492 with it.
        """
        kernel, before = start.kernel, start
        assert isinstance(kernel, RadialKernel)
        turns = [("metric", FEW_WINDOWS), ("metric, more windows", MANY_WINDOWS)]
        for name, sizes in turns[:1] if self._sees_all else turns:
            if not self.budget.allows(f"{kernel.text}, {name}") and not self.only_metric:
                break
            started = time.process_time()
            windows = self._windows(before.matrix, *sizes)
            found = WindowEvidence(windows, before.matrix, self.budget).climb_metric(
                kernel, before.alpha, iterations=self._steps(METRIC_STEPS)
            )
            self._judge(f"{kernel.text}, {name}", found, started, is_learnt=True)
            judged = self.candidates[-1]
            if judged.error**2 > WITHIN_REACH * before.error**2:
                break
            before = min(before, judged, key=lambda each: each.error)
        return self._is_better(before, start)

    def _learn_slopes(self, start: Candidate) -> None:
        """The same for classes, by the slopes of least squares: their evidence misleads.

        Each turn begins from the metric of the one before.
        """
        before, alpha = start, 0.0
        most = self.n_rows // SEEN if self.of_many_inputs else SLOPE_FIT_ROWS
        order = self.rng.permutation(len(self.rows.x))
        few = self.rows.part(order[: min(SLOPE_FIT_ROWS, most)])
        power = MILD if self.of_many_inputs else 0.5
        for turn in range(1, SLOPE_TURNS + 1):
            name = f"{start.kernel.text}, metric, turn {turn}"
            d, k = before.matrix.shape
            need = seconds_of_slopes(len(few.x), d, k, few.y.shape[1])
            if not self.budget.allows(name, need) and not (self.only_metric and turn == 1):
                break
            started = time.process_time()
            self.budget.spent += need
            alpha = alpha or self._alpha_of(
                few.part(np.arange(min(len(few.x), ALPHA_ROWS))), start.fit
            )
            fit = replace(before.fit, alpha=alpha)
            found = replace(fit, matrix=slope_metric(few, fit, self.unit, power))
            self._judge(name, found, started, is_learnt=True)
            if self.candidates[-1].error >= before.error:
                break
            before = self.candidates[-1]

    def _learn_directions(self, start: Candidate) -> None:
        """The same for many inputs: a few directions, and a full metric of rows along them.

        Where all rows judge, the best is judged again, by directions found without those rows.
        """
        first = len(self.candidates)
        fits = self._take_turns(start)
        learnt = self.candidates[first:]
        best = min(learnt, key=lambda each: each.error, default=start)
        if self.judges is None and best.error < start.error:
            self.candidates = self.candidates[:first]
            self._judge_by_folds(start, best, fits[: 1 + learnt.index(best)])

    def _take_turns(self, start: Candidate) -> list[MetricFit]:
        """Directions by turns, and the fits whose slopes each turn saw."""
        kernel, fits, before, no_better = start.kernel, [start.fit], start, 0
        for turn in range(1, TURNS + 1):
            name, need = f"{kernel.text}, metric, turn {turn}", self._seconds_of_turn(self.rows)
            if not self.budget.allows(name, need) and not (self.only_metric and turn == 1):
                break
            started = time.process_time()
            found = self._shared(self.rows, fits[-1], self.rng)
            if not found.n_leading and not self.only_metric:
                break
            windows = self._windows(found.metric, *FEW_WINDOWS)
            along, d = self._along(windows, kernel, found), len(self.unit)
            name = f"{name}, {found.n_leading or d} of {d} directions"
            self._judge(name, along, started, is_learnt=True)
            judged = self.candidates[-1]
            no_better = no_better + 1 if judged.error >= before.error else 0
            if no_better == (PATIENCE if need <= CHEAP * self.budget.limit else 1):
                break
            before = min(before, judged, key=lambda each: each.error)
            fits.append(self._scaled(windows[: FEW_WINDOWS[0]], kernel, found.whole))
        return fits

    def _judge_by_folds(
        self, start: Candidate, learnt: Candidate, fits: Sequence[MetricFit]
    ) -> None:
        """Judge directions again: rows of each fold by directions that the other rows give.

        There are as many folds as the budget allows. Where these are too few, errors count
        √((n + p)/(n − p)) times, for p numbers that the same n rows gave (Akaike 1969).
        """
        name, started, (rows,) = self._own_name(learnt), time.process_time(), self.regions
        left = self.budget.limit - self.budget.reserve - self.budget.spent
        n_folds = int(min(FOLDS, left // (len(fits) * self._seconds_of_turn(rows))))
        if n_folds < LEAST_FOLDS:
            p, n = learnt.n_numbers, len(rows.x)
            fold_fits = FoldFits((), np.sqrt((n + p) / (n - p)) if p < n else np.inf)
        else:
            fold_fits = self._fit_folds(start, fits, folds_of(rows, n_folds))
        self._judge(name, learnt.fit, started, is_learnt=True, fold_fits=fold_fits)

    def _fit_folds(
        self, start: Candidate, fits: Sequence[MetricFit], folds: Sequence[Split]
    ) -> FoldFits:
        """Directions without each fold, by as many turns; metrics of all rows say their widths.

        Errors count as many times as those of the start are smaller with all rows.
        """
        own = []
        for fold in folds:
            rng = np.random.default_rng(0)
            found = self._shared(fold.known, start.fit, rng)
            for fit in fits[1:]:
                if not found.n_leading:
                    break
                matrix = found.whole * (self._size(fit.matrix) / self._size(found.whole))
                found = self._shared(fold.known, replace(fit, matrix=matrix), rng)
            has_any = (found.n_leading or self.only_metric) and fold.known.varies
            own.append(self._along([fold.known], start.kernel, found) if has_any else start.fit)
        self.budget.spent += seconds_of_holes(folds, len(self.unit))
        of_start = self._judged(errors_of_folds([start.fit] * len(folds), folds))
        factor = start.error / max(float(np.sqrt((of_start**2).mean())), TINY)
        return FoldFits(tuple(own), factor)

    def _size(self, matrix: Float64) -> float:
        """The norm of a metric of inputs in their units."""
        return float(np.linalg.norm(matrix * self.unit[:, None]))

    def _shared(self, rows: RowWindow, fit: MetricFit, rng: Generator) -> SharedDirections:
        self.budget.spent += self._seconds_of_turn(rows)
        return shared_directions(rows, fit, MOST_OF_METRIC, self.unit, rng)

    def _seconds_of_turn(self, rows: RowWindow) -> float:
        return seconds_of_directions(len(rows.x), rows.x.shape[1], rows.y.shape[1])

    def _along(
        self, windows: Sequence[RowWindow], kernel: ExactKernel, found: SharedDirections
    ) -> MetricFit:
        """The best multiple of the metric along directions, and of several a full one."""
        assert isinstance(kernel, RadialKernel)
        along = self._scaled(windows, kernel, found.metric)
        if not 1 < found.n_leading < len(self.unit):
            return along
        return WindowEvidence(windows, along.matrix, self.budget).climb_metric(
            kernel, along.alpha, iterations=self._steps(LATER_STEPS)
        )

    def _drop_directions(self) -> None:
        """The best metric along the directions that do something, where some do nothing.

        It comes before the whole one, so that it is taken where the difference is noise.
        """
        best = min(self._metrics, key=lambda each: each.error)
        if best.error >= min(each.error for each in self._plain) and not self.only_metric:
            return
        d = self.rows.x.shape[1]
        need = seconds_of_directions(len(self.rows.x), d, self.rows.y.shape[1])
        if not self.budget.allows(f"{best.name}, fewer directions", need):
            return
        started = time.process_time()
        self.budget.spent += need
        found = shared_directions(self.rows, best.fit, d, self.unit, self.rng)
        k = found.n_leading
        if 0 < k < d:
            fit = MetricFit(best.kernel, found.of_metric(best.matrix), best.alpha, np.nan)
            name = f"{self._own_name(best)}, {k} of {d} directions"
            self._judge(name, fit, started, is_learnt=True)
            self.candidates.insert(self.candidates.index(best), self.candidates.pop())

    def _share_metric(self, other: Candidate) -> None:
        """The metric of the best as a start for another kernel, with a length-scale of its own."""
        kernel, started = other.kernel, time.process_time()
        assert isinstance(kernel, RadialKernel)
        if not self.budget.allows(f"{kernel.text}, metric"):
            return
        windows = self._windows(self.best.matrix, *FEW_WINDOWS)
        scaled = WindowEvidence(windows, self.best.matrix, self.budget).climb_scales(
            kernel, self.best.alpha, ard=False, iterations=self._steps(LATER_STEPS)
        )
        found = WindowEvidence(windows, scaled.matrix, self.budget).climb_metric(
            kernel, scaled.alpha, iterations=self._steps(LATER_STEPS)
        )
        self._judge(f"{kernel.text}, metric", found, started, is_learnt=True)
