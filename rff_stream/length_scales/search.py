"""What all steps of a search share: rows that judge, and candidates that compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.errors import warn
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.features.normal_scores import NormalScores
from rff_stream.features.random_trees import random_cell
from rff_stream.kernels import ExactKernel, RadialKernel
from rff_stream.length_scales.budget import (
    SearchBudget,
    seconds_of_columns,
    seconds_of_judging,
    seconds_of_look,
)
from rff_stream.length_scales.candidates import Candidate, FoldFits, factor_of_few, numbers_of
from rff_stream.length_scales.holes import Split, errors_of_folds, folds_of, seconds_of_holes
from rff_stream.length_scales.left_out import CellShape, cut, left_out_errors, merge_inputs
from rff_stream.length_scales.window_evidence import (
    LEAST_ALPHA,
    MOST_ALPHA,
    START_ALPHA,
    MetricFit,
    RowWindow,
    best_multiple,
    climb_from,
    left_out_residuals,
    mixes,
)
from rff_stream.length_scales.windows import (
    compact_windows,
    input_scale,
    nearest_to_median,
    scattered_windows,
)
from rff_stream.moments.copies import equal_rows

SET_ROWS, WINDOW_ROWS = 400, 256
"""Rows of a scattered set and of a compact window."""

FIRST_WINDOWS, FEW_WINDOWS, MANY_WINDOWS = (2, 5), (3, 10), (6, 20)
"""Scattered sets and compact windows: for several starts, for length-scales and for a metric."""

ONE_SET, SET_OF_MANY, SETS_OF_ALL = 800, 500, 4
"""Rows that are one set; rows of a set, and number of sets, that more rows are cut into; of still
more rows some are looked at, in compact windows, too."""

FIRST_STEPS, LATER_STEPS, METRIC_STEPS = 30, 12, 25
"""Steps of a first search for length-scales, of one that goes on, and of one for a metric."""

STEPS_OF_FEW = 60
"""Steps of each search where rows are so few that windows hold them all: they cost little."""

JUDGED_ROWS, REGIONS = 12_288, 3
"""Rows whose left-out errors are compared, and regions that they come from."""

WITHIN_REACH = 1.1
"""A candidate whose squared error is more than this times the least one is not developed."""

BY_CHANCE = 1.645
"""Standard deviations that a metric's gain must be above chance: a level of 5 %."""

SURE = 3.0
"""Standard errors by which left-out rows must be against a metric that was asked for."""

MOST_OF_CELL = 384
"""Largest number of rows of a cell whose halves are left out: their cost grows as m³."""

MOST_OF_METRIC = 48
"""Largest number of inputs of which a full metric is learnt: its entries are their square. Of more
inputs, so many directions at most."""

ALPHA_ROWS = 1000
"""Rows that say the α of classes."""

KEPT_SHARE = 0.25
"""Share of the rows of many inputs that judge alone."""

RELEVANT = 0.1
"""Least length of an input in units of its length-scale, relative to the longest, that counts: one
of it adds a hundredth to squared distances."""

SAME_SCALE = 1e-9
"""Relative difference of length-scales, in units of the inputs, that is rounding."""


RowSets = tuple[RowWindow, Sequence[RowWindow], list[RowWindow]]
"""Rows of the pilot, blocks of neighbouring rows, and regions whose rows judge."""


@dataclass(slots=True, eq=False)
class Search:
    """The candidates so far, the rows that judge them, and how two of them compare."""

    rows: RowWindow  # of the pilot
    blocks: Sequence[RowWindow]  # of neighbouring rows
    in_rows: bool  # whether blocks are rows of the pilot
    kernels: Sequence[ExactKernel]
    shape: CellShape
    rng: Generator
    ard: bool = True
    metric: bool = True
    only_metric: bool = False
    n_rows: int = 0  # of all data
    sizes: bool = False  # whether cells of other sizes compete
    more_columns: bool = True  # whether larger cells of more columns do
    finer: CellShape | None = None  # cells of half the rows that compete
    averages: bool = False  # whether the mean of two maps competes
    trends: bool = False  # whether what a line leaves competes with the targets as they are
    warps: bool = False  # whether inputs on scales along which y changes evenly compete
    normal_scores: NormalScores | None = None
    """Of heavy-tailed inputs, to be compared; kept if they predict better. Or other scales of
    inputs that were found."""
    say: Callable[[str], None] = lambda line: None
    errors_of: Callable[[Float64, Float64], Float64] = lambda errors, y: errors
    """Errors (m, T) that are compared, from those of targets y (m, T) less their means; of classes,
    those of their probabilities."""
    budget: SearchBudget = field(default_factory=SearchBudget)
    compares_scales: bool = False
    """Whether length-scales compete by left-out errors, too. Evidence takes targets for Gaussian
    numbers; for classes its length-scales are too short."""
    candidates: list[Candidate] = field(default_factory=list)
    settled: Candidate | None = None
    """That of the map which was taken, where errors in holes were compared."""
    holes: list[Split] = field(default_factory=list)
    _in_holes: dict[tuple[ExactKernel, int], list[Float64]] = field(default_factory=dict)
    first_looks: list[Candidate] = field(default_factory=list)
    """At inputs as they are, at their scores, and on scales that others are better than."""
    looks_before_line: int = 0
    """How many of them were at targets of which no line was taken."""
    unit: Float64 = field(default_factory=lambda: np.empty(0))
    """Of the inputs (d,): the deviation of each, or one for all."""
    regions: list[RowWindow] = field(default_factory=list)
    judges: Array | None = None
    """Which rows of the regions judge; all of them unless there are many inputs."""
    trend: LinearTrend | None = None
    """What was taken from the targets."""
    regions_before_trend: list[RowWindow] = field(default_factory=list)
    """The regions with the targets as they are; none where no line was taken from them."""
    own_share: Float64 | None = None
    """By how much rows of the regions (m, T) pull the line towards their own targets."""
    prefix: str = ""
    """Of the names of candidates: the scales of their inputs."""
    _most_evidence: float = -np.inf  # a row, of the kernels so far
    bound: Float64 | None = None
    """(T,): size at which errors count no more, where a few targets are far from all around."""
    weight: float = 1.0  # in the data, of a row whose weight is 1 in the search
    added_noise: Float64 | None = None
    """Deviations (T,), with signs, of the noise that windows have beside the targets."""

    @property
    def of_many_inputs(self) -> bool:
        """Whether there are more than a full metric is learnt of."""
        return bool(self.rows.x.shape[1] > MOST_OF_METRIC)

    @property
    def _plain(self) -> list[Candidate]:
        return [each for each in self.candidates if not each.is_learnt]

    @property
    def _metrics(self) -> list[Candidate]:
        return [each for each in self.candidates if each.is_learnt]

    @property
    def best(self) -> Candidate:
        """That of the least squared error; a simpler one if the difference is noise.

        Simpler are fewer numbers of a metric or fewer columns, and not more of the other. Of
        several such the one of least squared error is next, until none is simpler. Cells of one map
        of many inputs are compared by their errors alone: few rows judge. On 10,000 held-out digits
        twice as many columns had errors .023, and cells of more rows .029, which tied in searches.
        """
        taken, near = None, self.candidates
        if self.settled is not None:
            near = [each for each in near if each.map_key == self.settled.map_key]
        while near:
            taken = least = min(near, key=lambda each: each.error)
            near = [
                each
                for each in near
                if each.is_simpler(least)
                and not self._is_better(least, each)
                and not (self.of_many_inputs and each.map_key == least.map_key)
            ]
        assert taken is not None
        return taken

    def _is_better(self, found: Candidate, other: Candidate) -> bool:
        """Whether errors are smaller by more than a standard error, and by more than optimism.

        Rows that are kept apart to judge are few, and of classes fewer tell. Two of 284 digits
        chose a metric that had errors .040 at new rows, for .012 without it.

        One length-scale and one for each input are compared by :meth:`_final_error` alone. With a
        standard error, too, 700 rows of classes took the one where it was worse. So are directions
        that are judged by folds: of 72 searches of noise one took some.
        """
        if found is other:
            return False
        if found.fold_fits is not None and other.fold_fits is None:
            return found.error < other.error
        are_scales = found.shape == other.shape and not mixes(found.matrix)
        if are_scales and not mixes(other.matrix) and found.n_free != other.n_free:
            return self._final_error(found) < self._final_error(other)
        behind, spread = other.behind(found)
        if self.judges is not None:
            spread *= factor_of_few(other.squares - found.squares)
        return behind > spread + self._optimism(found, other)

    def _final_error(self, found: Candidate) -> float:
        """The squared error at new rows: (n + p)/(n − p) times that of the n rows that judge.

        These helped to find its p free numbers. It is infinite for p ≥ n.

        References
        ----------
        Akaike 1969 (final prediction error).
        """
        if self.judges is not None:
            return found.error**2
        p, n = found.n_free, len(self.rows.x)
        return found.error**2 * (n + p) / (n - p) if p < n else np.inf

    def _optimism(self, found: Candidate, other: Candidate) -> float:
        """By how much squared errors of a metric are too small, beside those of length-scales.

        Left-out rows helped to find its numbers: p of them save χ² of p degrees over n of the
        squared error (Akaike 1974). A metric has more numbers, and where it has not, both savings
        are chance: their difference is normal, about, of variance 2(p + p'). Without this, noise
        alone gives a metric. No number helped where the rows that judge are kept apart.
        """
        p, before = found.n_numbers, other.n_numbers
        if self.judges is not None or found.fold_fits is not None:
            return 0.0
        numbers = 2.0 * max(p - before, 0)
        if mixes(found.matrix) != mixes(other.matrix):
            numbers += BY_CHANCE * np.sqrt(2 * (p + before))
        return float(numbers / len(self.rows.x) * other.error**2)

    def _take_metrics(self) -> None:
        """The metrics alone, as was asked for, and a warning where left-out rows tell against."""
        plain = min(self._plain, key=lambda each: each.error)
        self.candidates = self._metrics
        behind, spread = self.best.behind(plain)
        if behind > SURE * spread:
            warn(
                f"metric='full' has a left-out error of {self.best.error:.3g} standard deviations "
                f"of y, and length-scales alone have {plain.error:.3g}. Use metric='auto', which "
                "takes the better of both, or None."
            )

    def _near_best(self) -> list[Candidate]:
        ordered = sorted(self.candidates, key=lambda each: each.error)
        found: list[Candidate] = []
        for each in ordered:
            new = all(each.kernel != other.kernel for other in found)
            near = each.error**2 <= WITHIN_REACH * ordered[0].error ** 2
            if (near or (self.only_metric and not found)) and new:
                found += [each] * isinstance(each.kernel, RadialKernel)
        return found

    @property
    def _is_one_set(self) -> bool:
        """Whether rows are so few that all are looked at together."""
        return self.in_rows and len(self.rows.x) <= ONE_SET

    @property
    def _sees_all(self) -> bool:
        """Whether windows hold all rows."""
        return self.in_rows and len(self.rows.x) <= SETS_OF_ALL * SET_OF_MANY

    def _steps(self, of_many: int) -> int:
        return STEPS_OF_FEW if self._sees_all else of_many

    def _take_scales(
        self, scales: NormalScores, plain: RowSets, middle: Float64
    ) -> tuple[RowWindow, Sequence[RowWindow], list[RowWindow], Float64]:
        """Go on with inputs on other scales; what was before. Targets stay.

        ``plain`` are the rows as they came, less their ``middle``.
        """
        before = self.rows, self.blocks, self.regions, self.unit
        shift = (scales(plain[0].x + middle) - middle).mean(axis=0)

        def scaled(now: RowWindow, rows: RowWindow) -> RowWindow:
            return RowWindow(scales(rows.x + middle) - (middle + shift), now.y, now.w)

        self.rows = scaled(self.rows, plain[0])
        self.blocks = [scaled(*each) for each in zip(self.blocks, plain[1], strict=True)]
        self.regions = [scaled(*each) for each in zip(self.regions, plain[2], strict=True)]
        self.unit = input_scale(self.rows)
        return before

    def _alpha_of(self, rows: RowWindow, fit: MetricFit) -> float:
        """α of the least left-out error of the exact fit to some rows, by steps of four."""
        errors: dict[int, float] = {}

        def error(step: int) -> float:
            if step not in errors:
                self.budget.spent += seconds_of_look(len(rows.x), 0, True)
                left = left_out_residuals(rows, replace(fit, alpha=START_ALPHA * 4.0**step))
                found = float((self.errors_of(left, rows.y) ** 2).mean())
                errors[step] = found if np.isfinite(found) else np.inf
            return errors[step]

        step, next_step = 0, min((-1, 0, 1), key=error)
        while next_step != step and LEAST_ALPHA < START_ALPHA * 4.0**next_step < MOST_ALPHA:
            step, next_step = next_step, min((next_step - 1, next_step, next_step + 1), key=error)
        return float(START_ALPHA * 4.0**step)

    def _scaled(
        self, windows: Sequence[RowWindow], kernel: ExactKernel, matrix: Float64
    ) -> MetricFit:
        """The best multiple of a metric."""
        start = best_multiple(windows, kernel, matrix, self.budget)
        return climb_from(windows, kernel, start, False, self._steps(LATER_STEPS), self.budget)

    def _windows(self, matrix: Float64, n_sets: int, n_compact: int) -> list[RowWindow]:
        """Scattered sets, and windows of neighbours in units of a metric.

        All rows, in sets, where they are so few that windows would overlap.
        """
        rows, n = self.rows, len(self.rows.x)
        count = 1 if n <= ONE_SET else -(-n // SET_OF_MANY)
        if self.in_rows and count <= SETS_OF_ALL:
            size = -(-n // count)
            return self._with_noise(scattered_windows(rows, size=size, count=count, rng=self.rng))
        sets = scattered_windows(rows, size=SET_ROWS, count=n_sets, rng=self.rng)
        if not self.in_rows:
            near = [nearest_to_median(each, matrix, WINDOW_ROWS) for each in self.blocks]
            near = [each for each in near if len(each.x) > 1]
        else:
            centres = self.rng.permutation(n)[:n_compact]
            near = compact_windows(rows, matrix, size=WINDOW_ROWS, centres=centres)
        near = [each for each in near if (each.x != each.x[:1]).any()]  # not of one level alone
        return self._with_noise(self._that_vary(sets + near))

    def _with_noise(self, windows: list[RowWindow]) -> list[RowWindow]:
        """Windows with the noise that exact targets need beside others; one number for each row."""
        if self.added_noise is None:
            return windows
        rng, noise = np.random.default_rng(0), self.added_noise
        numbers = [rng.standard_normal((len(each.y), 1)) for each in windows]
        return [
            replace(each, y=each.y + e * noise) for each, e in zip(windows, numbers, strict=True)
        ]

    def _that_vary(self, windows: list[RowWindow]) -> list[RowWindow]:
        """Windows, the first one with rare rows where no target varies in any of them."""
        if not windows or any((each.y != each.y[:1]).any() for each in windows):
            return windows
        first = windows[0]
        rare = np.flatnonzero((self.rows.y != first.y[:1]).any(axis=1))
        some = self.rows.part(rare[: len(first.x) // 2])
        return [some.joined(first.part(np.arange(len(some.x), len(first.x)))), *windows[1:]]

    def _keep_rows(self) -> None:
        """Take the rows that judge from those that the search sees; copies go together."""
        if not self.in_rows:
            self.regions = self._regions(np.eye(self.rows.x.shape[1]))
            self.judges = np.ones(sum(len(each.x) for each in self.regions), bool)
            return
        _, same = equal_rows(self.rows.x)
        kept = (self.rng.random(same.max() + 1) < KEPT_SHARE)[same]
        rows, marked = self.rows, np.column_stack([self.rows.y, kept])
        self.rows = RowWindow(rows.x, marked, rows.w)
        regions = self._regions(np.diag(1 / input_scale(rows)))
        self.judges = np.concatenate([each.y[:, -1] > 0.5 for each in regions])
        self.regions = [RowWindow(each.x, each.y[:, :-1], each.w) for each in regions]
        self.rows = rows.part(np.flatnonzero(~kept))

    def _regions(self, matrix: Float64) -> list[RowWindow]:
        """Rows whose errors are compared: all, or some places at the full density of the data."""
        n = len(self.rows.x)
        if not self.in_rows:
            step = max(-(-sum(len(each.x) for each in self.blocks) // JUDGED_ROWS), 1)
            return [merge_inputs(each) for each in self.blocks[::step]]
        if n <= JUDGED_ROWS:
            return [merge_inputs(self.rows)]
        depth, u = int(np.ceil(np.log2(n * REGIONS / JUDGED_ROWS))), self.rows.x @ matrix
        places = [random_cell(u, depth, np.ones(u.shape[1]), self.rng) for _ in range(REGIONS)]
        return [merge_inputs(self.rows.part(own)) for own in places]

    def cells_of(self, matrix: Float64) -> list[RowWindow]:
        """Rows of cells of the size that is asked for, and not larger, in units of xA."""
        shape = CellShape(min(self.shape.n_rows, MOST_OF_CELL), self.shape.n_components)
        cells = [cell for each in self.regions for cell in cut(each, matrix, shape, self.rng)]
        return [RowWindow(each.u, each.y, each.w) for each in cells if len(each.u) > 1]

    def _judge(
        self,
        name: str,
        fit: MetricFit,
        started: float,
        shape: CellShape | None = None,
        *,
        is_learnt: bool = False,
        fold_fits: FoldFits | None = None,
    ) -> None:
        """One more candidate, with its errors in cells of a shape, or those of folds."""
        shape = shape or self.shape
        n_rows, (d, k) = sum(len(each.x) for each in self.regions), fit.matrix.shape
        self.budget.spent += self._seconds_to_judge(n_rows, shape)
        if mixes(fit.matrix):
            self.budget.spent += seconds_of_columns(n_rows, d, k)
        if fold_fits is not None and fold_fits.fits:
            folds = folds_of(self.regions[0], len(fold_fits.fits))
            self.budget.spent += seconds_of_holes(folds, d)
            errors = errors_of_folds(fold_fits.fits, folds)
        elif len(self.regions) == 1 and len(self.regions[0].x) <= shape.n_components:
            errors = left_out_residuals(self.regions[0], fit)
        else:
            errors = left_out_errors(fit, self.regions, shape, seed=0)  # the same trees for all
        errors = self._judged(errors) * (1.0 if fold_fits is None else fold_fits.factor)
        seconds, name = time.process_time() - started, self.prefix + name
        along = np.abs(fit.matrix).sum(axis=1) * self.unit
        alike = not mixes(fit.matrix) and np.allclose(along, along[0], rtol=SAME_SCALE, atol=0.0)
        found = Candidate(
            name, fit.kernel, fit.matrix, fit.alpha, shape, errors, seconds, is_learnt, alike,
            fold_fits,
        )  # fmt: skip
        self.say(f"{name}: left-out error {found.error:.4g}, {seconds:.1f} CPU s")
        self.candidates.append(found)

    def _judged(self, errors: Float64) -> Float64:
        """Errors (m, T) that are compared, from those of all rows of the regions."""
        if self.own_share is not None:
            errors = errors + self.own_share
        y = np.concatenate([each.y for each in self.regions])
        if self.judges is not None:
            errors, y = errors[self.judges], y[self.judges]
        return self.errors_of(self.bounded(errors), y)

    def bounded(self, errors: Float64) -> Float64:
        """Errors (m, T) as they count."""
        return errors if self.bound is None else np.clip(errors, -self.bound, self.bound)

    def _own_name(self, found: Candidate) -> str:
        """Its name without the scales of its inputs."""
        return found.name.removeprefix(self.prefix)

    def relevant_numbers(self, found: Candidate) -> int:
        """How many of its free numbers its errors at the judged rows can depend on.

        A length-scale so long that its input adds nothing to distances is none of them: of 500
        inputs and 50 rows three matter, and deviations were five times too large. Nor are those of
        inputs that depend on others: of 20 copies of three inputs a metric of two directions has 5
        numbers, not 119.
        """
        if found.has_one_scale:
            return found.n_free
        d, k = found.matrix.shape
        if self.of_many_inputs:  # some may depend on others
            u = (self.rows.x - self.rows.x.mean(axis=0)) / self.unit
            d = int(np.linalg.matrix_rank(u.T @ u, hermitian=True))
            k = min(k, d)
        if mixes(found.matrix):
            return numbers_of(d, k)
        along = found.matrix.diagonal() * self.unit
        return int(min((along >= RELEVANT * along.max()).sum(), d))

    def _seconds_to_judge(self, n_rows: int, shape: CellShape) -> float:
        """What errors of so many rows cost: of the process itself, or in cells."""
        if n_rows <= shape.n_components:
            return seconds_of_look(n_rows, 0, True)
        return seconds_of_judging(n_rows, shape.n_components)
