"""Which kernel, metric and cells predict left-out rows best, found before the read.

1. Length-scales of each kernel by the evidence of windows: compact ones see short scales, and
   scattered ones see long ones. Windows are compact in the units that were learnt so far. Where
   inputs have heavy tails, the first kernel says whether their normal scores predict better; and
   where a line of the inputs says nearly as much as it does, whether it does better beside a line.
2. The kernels compete by their errors at left-out rows of cells; so do length-scales from compact
   windows alone, where both disagree; and then inputs on scales along which the best of these
   changes evenly, for functions that jump at a value of an input and are flat beside it.
3. The best kernels learn a metric: a matrix A in place of one length-scale for each input, for
   functions of combinations of inputs. It is taken where left-out rows say so. Directions that do
   nothing are left out. Classes learn it from the slopes of their scores.
4. Of maps that are about as good at left-out rows, the one that is better in holes is taken, where
   inputs are few: places and times, whose rows are missing together.
5. Sizes of cells compete by left-out rows.

Of many inputs the numbers of a metric are as many as the rows. So a few directions are found, by
slopes that two halves share, before all else: from one length-scale for all inputs, or from the
inputs that stand out. The rows that judge took no part in what they judge; where rows are one set a
quarter is too few to tell, so all judge, each input may have a length-scale from the beginning, and
directions are judged in folds.

A search goes on with what is within reach of the best, by paired differences of squared errors,
and while there is something left of its budget.
"""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import numpy as np

from rff_stream._array import Float64
from rff_stream.length_scales.budget import seconds_of_look
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.holes import (
    FEWEST_HOLES,
    MOST_INPUTS,
    errors_in_holes,
    holes_of,
    seconds_of_holes,
    sites_as_holes,
)
from rff_stream.length_scales.left_out import CellShape, left_out_errors
from rff_stream.length_scales.linear_fit import LinearFit
from rff_stream.length_scales.map_choice import MapChoice, Trial
from rff_stream.length_scales.metric_search import MetricSearch
from rff_stream.length_scales.outliers import Outliers, seconds_of_outliers
from rff_stream.length_scales.scale_search import SIZED_ROWS, UNUSED, ScaleSearch
from rff_stream.length_scales.search import ALPHA_ROWS, JUDGED_ROWS, RowSets
from rff_stream.length_scales.window_evidence import (
    START_ALPHA,
    MetricFit,
    RowWindow,
    left_out_residuals,
    squared_distances,
)
from rff_stream.length_scales.windows import TINY, input_scale
from rff_stream.pilot import weight_unit

AS_GOOD = 1.05
"""A map of at most so many times the least squared error competes by its errors in holes, too. Set
on heaton_sim, where the map that fills clouds has up to 1.036; checked on argo2016 and baja."""

LARGER = 4
"""Factor between sizes of cells that compete."""

MOST_OF_MANY_COLUMNS = 20_000
"""Rows up to which cells of twice as many columns compete: they cost four times as much a row."""

LEAST_MISSED = 0.05
"""Deviations of a target that simple rules miss at least: an exact line of the inputs must not
decide alone."""

SCORE_SECONDS = 150e-9
"""CPU seconds of the normal score of one value."""

LONG = "long length-scales"
"""The name of a candidate that is nearly a line. Its α is at least that of the search."""

BESIDE = "a line + "
"""Before the names of candidates for what a line leaves."""

LEAST_GAIN, SURE_OF_MEAN = 0.01, 1.0
"""Share of the left-out error that a mean of two maps must save, and standard errors of the paired
difference that it must be better by: it costs a second map in the pass and in each prediction."""

SURE_OF_FINER = 2.0
"""Standard errors of the paired difference by which errors in finer cells must be smaller."""

NEIGHBOURS, RIVAL_ROWS = 5, 1000
"""Rows whose mean is a simple rule to be compared with, and rows where it is."""

NEAR_VALUES = 2**20
"""Distances between rows that are held at a time, 8 MiB."""


class MapSearch(ScaleSearch, MetricSearch):
    """All steps of a search, in turn; see the head of this file."""

    __slots__ = ()

    def run(self) -> Candidate:
        """The best candidate of the smallest cells."""
        started = time.process_time()
        middle, targets = self._take_units()
        self.budget.reserve = self._seconds_to_judge(min(len(self.rows.x), JUDGED_ROWS), self.shape)
        if self.of_many_inputs and not self._is_one_set:
            self._keep_rows()
        self.unit = input_scale(self.rows)
        self.added_noise = self._noise_of_exact_targets()
        first = self._first_beside_outliers()
        plain = self.rows, self.blocks, self.regions
        first = self._compare_ways_to_begin(first, plain, started, middle, targets)
        self._compare_maps(first)
        if self._can_have_scales and not self.best.is_learnt and self._compare_warps(plain, middle):
            self._learn()
            if self.compares_scales:
                self._compare_scales(self._metrics)
        if not self.compares_scales:
            if not self.only_metric:
                self._compare_long_scales()
            self._compare_in_holes()
        if self.finer is not None:
            self._compare_finer(self.finer)
        if self.sizes and self.best.shape != self.finer:
            self._compare_sizes()
        return self.best

    def _first_beside_outliers(self) -> MetricFit:
        """The first length-scales, and the regions; far targets that no row tells weigh less.

        Not of heavy-tailed inputs: in units of far values others hardly differ, and tell nothing.
        """
        first, rows = self._first_scales(), self.rows
        outliers = None
        if self.in_rows and not self.compares_scales and self.normal_scores is None:
            self.budget.spent += seconds_of_outliers(*rows.x.shape)
            outliers = Outliers.of(rows, self.unit)
        if outliers is not None and self._misses(outliers, first):
            self.say("a few targets are far from those of all rows around: they weigh less")
            self.bound, self.rows = outliers.bound, outliers.weighed(rows)
            first = self._first_scales()
        weighed, self.rows = self.rows, rows
        self.regions = self.regions or self._regions(first.matrix)
        self.rows = weighed
        return first

    def _misses(self, outliers: Outliers, fit: MetricFit) -> bool:
        """Whether a fit to some of the rows misses them where they are left out, and no worse."""
        few = np.random.default_rng(0).permutation(len(self.rows.x))[:SIZED_ROWS]
        self.budget.spent += seconds_of_look(len(few), 0, True)
        left = left_out_residuals(self.rows.part(few), fit)
        return outliers.part(few).are_as_far_from(left)

    def _take_units(self) -> tuple[Float64, Float64]:
        """Take from rows their middle (d,), divide targets by units (T,): both are returned."""
        unit = self.weight = weight_unit(self.rows.w)
        targets = self._target_units()
        middle, origin = self.rows.x.mean(axis=0), self.rows.y.mean(axis=0)

        def scaled(rows: RowWindow) -> RowWindow:
            return RowWindow(rows.x - middle, (rows.y - origin) / targets, rows.w / unit)

        self.rows, self.blocks = scaled(self.rows), [scaled(each) for each in self.blocks]
        return np.asarray(middle), targets

    def _compare_ways_to_begin(
        self, first: MetricFit, plain: RowSets, started: float, middle: Float64, targets: Float64
    ) -> MetricFit:
        """The first fit, of inputs or of their normal scores, to targets or to what a line leaves.

        ``plain`` are the rows as they came, less their ``middle``; y is in units of ``targets``.
        """
        values = sum(each.x.size for each in (self.rows, *self.blocks, *self.regions))
        need = SCORE_SECONDS * values + self._seconds_to_judge(len(self.rows.x), self.shape)
        if self.normal_scores is not None and not self.budget.allows("normal scores", need):
            self.normal_scores = None
        if self.normal_scores is not None:
            self.budget.spent += SCORE_SECONDS * values
            first = self._compare_scores(first, started, middle)
        if self.trends:
            first = self._compare_trend(first, plain, middle, targets)
        self.looks_before_line = len(self.first_looks)
        return first

    def _compare_maps(self, first: MetricFit) -> None:
        """Kernels, one length-scale or many, and metrics."""
        if self.of_many_inputs and first.kernel in self.kernels:
            self._directions_of_many(first)
        self._compare_kernels(first, self.kernels)
        if not (self.of_many_inputs and self.compares_scales):
            self._compact_alone()
        if self.compares_scales:
            self._one_for_all()
        self._learn()
        if self.compares_scales:
            self._compare_scales(self._plain, self._metrics)

    def _target_units(self) -> Float64:
        """What targets (T,) are divided by: their deviations, in units of what simple rules miss.

        Errors of several targets are averaged, and those of noise, however large, must not hide
        those of a target that a map can tell. The mean square of errors is one over the targets,
        weighted by the inverse square of what near rows or a line miss.
        """
        rows = self.rows
        deviations = rows.y.std(axis=0)
        deviations = np.where(deviations > 0, deviations, 1.0)
        if self.compares_scales or rows.y.shape[1] == 1 or len(rows.x) <= NEIGHBOURS:
            return np.asarray(deviations)
        order = np.random.default_rng(0).permutation(len(rows.x))
        x, w = (rows.x[order] - rows.x.mean(axis=0)) / input_scale(rows), rows.w[order]
        y, count = rows.y[order] / deviations, min(len(order), RIVAL_ROWS)
        of_line = _errors_of_line(x, y, w)
        of_near = y[:count] - _near_means(x, y, count)
        missed = np.minimum((of_line**2).mean(axis=0), (of_near**2).mean(axis=0))
        inverse = 1 / np.clip(missed, LEAST_MISSED**2, 1.0)
        return np.asarray(deviations * np.sqrt(inverse.mean() / inverse))

    def second(self) -> tuple[Candidate, Trial] | None:
        """The candidate whose weighted mean with the best has the least error, if it pays."""
        best, found = self.best, []
        for each in self.candidates:
            if each is best or not np.isfinite(each.error):
                continue
            apart = best.errors - each.errors
            weight = (best.errors * apart).mean() / max(float((apart**2).mean()), TINY)
            squares = ((best.errors - np.clip(weight, 0, 1) * apart) ** 2).mean(axis=1)
            change = squares - best.squares
            spread = float(change.std() / np.sqrt(len(change)))
            error, name = float(np.sqrt(squares.mean())), f"mean of {best.name} and {each.name}"
            pays = error < (1 - LEAST_GAIN) * best.error
            least = SURE_OF_MEAN * spread + self._optimism(each, best)
            pays = pays and change.mean() < -least
            if pays and self.settled is not None:
                pays = self._gain(best, each, float(np.clip(weight, 0, 1)))[0] > 0
            if pays:
                found.append((each, Trial(name, error, float(change.mean()), spread, 0.0)))
        return min(found, key=lambda pair: pair[1].error, default=None)

    def rivals(self) -> dict[str, float]:
        """Errors of a line at the rows that are compared, and of the mean of near rows at some.

        Of targets alone: classes are compared by their probabilities.
        """
        regions = self.regions_before_trend or self.regions
        if self.compares_scales or min(len(each.x) for each in regions) <= NEIGHBOURS:
            return {}
        rows, near = self._rows_compared(), []
        unit = input_scale(rows)
        for each in regions:
            count = min(-(-RIVAL_ROWS * len(each.x) // len(rows.x)), len(each.x))
            near.append(each.y[:count] - _near_means(each.x / unit, each.y, count))
        missed = {
            f"{NEIGHBOURS} neighbours": self.bounded(np.concatenate(near)),
            "a line": self._errors_of_region_line(),
        }
        return {name: float(np.sqrt((each**2).mean())) for name, each in missed.items()}

    def _rows_compared(self) -> RowWindow:
        """All rows of the regions, with the targets before a line."""
        regions = self.regions_before_trend or self.regions
        x, y, w = (
            np.concatenate([getattr(each, name) for each in regions]) for name in ("x", "y", "w")
        )
        return RowWindow(x, y, w)

    def _errors_of_region_line(self) -> Float64:
        """Errors (m, T) of a line of the rows that are compared, each left out of it."""
        rows = self._rows_compared()
        x = rows.x / input_scale(rows)
        return self.bounded(_errors_of_line(x, rows.y, rows.w))

    def _compare_long_scales(self) -> None:
        """A map that is nearly a line, where a line predicts better than all maps so far.

        Evidence takes targets for normal ones. Where a few of them are very large it finds a
        function through these, which is worse than the mean elsewhere: so left-out errors give α.
        """
        best, line = self.best, float(np.sqrt((self._errors_of_region_line() ** 2).mean()))
        if not line < best.error or not self.budget.allows(LONG):
            return
        started, longest = time.process_time(), UNUSED * np.sqrt(len(self.unit))
        fit = MetricFit(best.kernel, np.diag(1 / (longest * self.unit)), START_ALPHA, np.nan)
        few = np.random.default_rng(0).permutation(len(self.rows.x))[:ALPHA_ROWS]
        self._judge(LONG, replace(fit, alpha=self._alpha_of(self.rows.part(few), fit)), started)

    def least_alpha(self, best: Candidate) -> float:
        """The α below which evidence is not followed, for rows of the data; 0 where it is right.

        That of the least left-out error, where a few targets rule the evidence.
        """
        if LONG in best.name:
            return best.alpha * self.weight
        if self.bound is None:
            return 0.0
        rows = functools.reduce(RowWindow.joined, self.regions)
        few = np.random.default_rng(0).permutation(len(rows.x))[:ALPHA_ROWS]
        return self._alpha_of(rows.part(few), best.fit) * self.weight

    def _compare_in_holes(self) -> None:
        """Take another map where it gains more in holes than it loses at left-out rows.

        Holes are sites, or places of few inputs. Both are logarithms of ratios of squared errors,
        in holes of their sums over equal holes. The sum must be more than its standard error.
        """
        best = self.best
        near = [
            each
            for each in self.candidates
            if each.error**2 <= AS_GOOD * best.error**2 and each is not best
        ]
        holes = sites_as_holes(self.rows) if near and not self.of_many_inputs else []
        if near and not holes and self.rows.x.shape[1] <= MOST_INPUTS:
            holes = holes_of([self.rows] if self.in_rows else self.blocks)
        need = (1 + len(near)) * seconds_of_holes(holes, self.rows.x.shape[1])
        if len(holes) < FEWEST_HOLES or not self.budget.allows("errors in holes", need):
            return
        self.holes, self.settled = holes, best
        gain = 0.0
        for each in near:
            found, spread = self._gain(best, each)
            if found > max(gain, spread):
                self.settled, gain = each, found

    def _gain(
        self, before: Candidate, other: Candidate, weight: float = 1.0
    ) -> tuple[float, float]:
        """What is gained in holes and at left-out rows, and its standard error.

        By another map in place of the one before, or by a mean of both where its weight is less.
        """
        own, theirs = self._errors_in_holes(before), self._errors_in_holes(other)
        squares = np.array(
            [
                [(a**2).mean(), ((a - weight * (a - b)) ** 2).mean()]
                for a, b in zip(own, theirs, strict=True)
            ]
        )
        if not np.isfinite(squares).all():  # a kernel has no Cholesky factor
            return -np.inf, 0.0
        total = np.maximum(squares.sum(axis=0), TINY)
        apart = squares[:, 0] / total[0] - squares[:, 1] / total[1]
        rows = before.errors - weight * (before.errors - other.errors)
        at_rows = np.log((before.errors**2).mean() / max((rows**2).mean(), TINY))
        gain = float(np.log(total[0] / total[1]) + at_rows)
        return gain, float(apart.std() * np.sqrt(len(apart)))

    def _errors_in_holes(self, found: Candidate) -> list[Float64]:
        """Errors (m, T) in each hole, kept for each map: those of larger cells are the same."""
        if found.map_key not in self._in_holes:
            self.budget.spent += seconds_of_holes(self.holes, self.rows.x.shape[1])
            errors = errors_in_holes(found.fit, self.holes)
            self._in_holes[found.map_key] = [self.bounded(each) for each in errors]
        return self._in_holes[found.map_key]

    def error_in_holes(self, found: Candidate) -> float | None:
        """Root mean squared error in holes; None where it was not compared."""
        own = self._in_holes.get(found.map_key, [])
        return float(np.sqrt((np.concatenate(own) ** 2).mean())) if own else None

    def _compare_finer(self, finer: CellShape) -> None:
        """Cells of half the rows, of fewer trees and columns, where memory allows no more.

        They compete if surely better. Two trees tell what errors all trees have in common: it is
        left in the mean of J trees, with 1/J of the rest.
        """
        least, started = self.best, time.process_time()
        fit = MetricFit(least.kernel, least.matrix, least.alpha, np.nan)
        name = f"{self._own_name(least)}, {finer.n_trees} trees of cells of {finer.n_rows:,} rows"
        seconds = self._seconds_to_judge(sum(len(each.x) for each in self.regions), self.shape)
        if not self.budget.allows(name, 4 * seconds):
            return
        self.budget.spent += 4 * seconds

        def squares(shape: CellShape) -> Float64:
            """(m,): of the mean of J trees, about."""
            trees = (left_out_errors(fit, self.regions, shape, seed=seed) for seed in (0, 1))
            one, other = (self._judged(errors) for errors in trees)
            common, every = one * other, (one**2 + other**2) / 2
            return np.asarray((common + (every - common) / shape.n_trees).mean(axis=1))

        gain = squares(self.shape) - squares(finer)
        if gain.mean() > SURE_OF_FINER * gain.std() / np.sqrt(len(gain)):
            self._judge(name, fit, started, finer)

    def _compare_sizes(self) -> None:
        """Larger cells, of as many columns and of more, while errors fall.

        Many rows a column average noise out; many columns represent more.
        """
        least, r = self.best, self.shape.n_components
        largest = max(len(each.x) for each in self.regions)
        fit = MetricFit(least.kernel, least.matrix, least.alpha, np.nan)
        if self.shape.n_rows >= largest:
            return
        self.budget.reserve = 0.0
        n, judged = len(self.rows.x), sum(len(each.x) for each in self.regions)
        more = CellShape(2 * self.shape.n_rows, 2 * r)
        own = self._own_name(least)
        name = f"{own}, {2 * r} columns"
        few = self.more_columns and n <= MOST_OF_MANY_COLUMNS
        if few and self.budget.allows(name, self._seconds_to_judge(judged, more)):
            self._judge(name, fit, time.process_time(), more)
        rows = LARGER * self.shape.n_rows
        before = least.error
        while rows <= largest:
            started, name = time.process_time(), f"{own}, cells of {rows:,} rows"
            shape = CellShape(rows, r)
            if not self.budget.allows(name, self._seconds_to_judge(judged, shape)):
                return
            self._judge(name, fit, started, shape)
            if self.candidates[-1].error >= before:
                return
            before, rows = self.candidates[-1].error, LARGER * rows


def _errors_of_line(x: Float64, y: Float64, w: Float64) -> Float64:
    """Errors (m, T) of a line of rows, each left out of it."""
    line = LinearFit.of(x, y, w)
    return np.asarray(line.residuals(x, y) / (1 - line.leverage(x, w))[:, None])


def _near_means(x: Float64, y: Float64, count: int) -> Float64:
    """The mean target of the nearest rows of each of the first rows, without itself."""
    found, size = np.empty((count, y.shape[1])), max(NEAR_VALUES // len(x), 1)
    for start in range(0, count, size):
        own = np.arange(start, min(start + size, count))
        squared = squared_distances(x[own], x)
        squared[own - start, own] = np.inf
        near = np.argpartition(squared, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        found[own] = y[near].mean(axis=1)
    return found


def search_map(search: MapSearch) -> MapChoice:
    """The best candidate of a search, and what was compared."""
    best = search.run()
    trials = []
    for each in search.first_looks + search.candidates:
        behind, in_holes = each.behind(best), search.error_in_holes(each)
        trials.append(Trial(each.name, each.error, *behind, each.seconds, in_holes))
    n_rows, scores, second = len(best.errors), search.normal_scores, None
    is_long = LONG in best.name
    partner, taken = search.second() if search.averages and not is_long else None, best.name
    if partner is not None:
        other, mean = partner
        own = other.kernel, other.matrix, other.shape, other.name, n_rows, ()
        second = MapChoice(*own, scores, alpha=other.alpha)
        trials, taken = [*trials, mean], mean.name
    if search.trend is not None:
        first = search.looks_before_line
        trials[first:] = [replace(e, name=BESIDE + e.name) for e in trials[first:]]
        taken = BESIDE + taken
    return MapChoice(
        best.kernel, best.matrix, best.shape, taken, n_rows, tuple(trials), scores, search.trend,
        search.relevant_numbers(best), best.alpha, second, search.budget, search.rivals(),
        search.least_alpha(best),
    )  # fmt: skip
