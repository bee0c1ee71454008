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

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.special import ndtr, stdtrit

from rff_stream._array import Array, Float64
from rff_stream.errors import warn
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.features.normal_scores import NormalScores
from rff_stream.features.random_trees import random_cell
from rff_stream.kernels import ExactKernel, Matern, RadialKernel
from rff_stream.length_scales.budget import (
    SearchBudget,
    seconds_of_columns,
    seconds_of_judging,
    seconds_of_look,
)
from rff_stream.length_scales.holes import (
    FEWEST_HOLES,
    MOST_INPUTS,
    Split,
    errors_in_holes,
    errors_of_folds,
    folds_of,
    holes_of,
    seconds_of_holes,
)
from rff_stream.length_scales.input_warps import FIT_ROWS, can_warp, input_warp, seconds_of_warp
from rff_stream.length_scales.left_out import CellShape, cut, left_out_errors, merge_inputs
from rff_stream.length_scales.linear_fit import LinearFit
from rff_stream.length_scales.relevant_inputs import (
    inputs_of_sizes,
    relevant_inputs,
    seconds_of_relevance,
)
from rff_stream.length_scales.shared_slopes import (
    SharedDirections,
    seconds_of_directions,
    seconds_of_slopes,
    shared_directions,
    slope_metric,
)
from rff_stream.length_scales.window_evidence import (
    BY_NUMBER,
    LEAST_ALPHA,
    MOST_ALPHA,
    START_ALPHA,
    MetricFit,
    RowWindow,
    WindowEvidence,
    best_multiple,
    best_start,
    climb_from,
    left_out_residuals,
    mixes,
    squared_distances,
)
from rff_stream.length_scales.windows import (
    compact_windows,
    deviation,
    input_scale,
    nearest_to_median,
    scattered_windows,
)
from rff_stream.moments.copies import equal_rows
from rff_stream.pilot import neighbour_scale, weight_unit

TINY = float(np.finfo(float).tiny)

FIRST = Matern(nu=1.5)
"""The kernel whose length-scales the others begin from."""

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

BEHIND = 0.2
"""Difference of log p a row at which a kernel is left out: e⁸⁰ for 400 rows."""

WITHIN_REACH = 1.1
"""A candidate whose squared error is more than this times the least one is not developed."""

AS_GOOD = 1.05
"""A map of at most so many times the least squared error competes by its errors in holes, too. Set
on heaton_sim, where the map that fills clouds has up to 1.036; checked on argo2016 and baja."""

DEVELOPED = 2
"""Kernels that learn a metric."""

BY_CHANCE = 1.645
"""Standard deviations that a metric's gain must be above chance: a level of 5 %."""

SURE = 3.0
"""Standard errors by which left-out rows must be against a metric that was asked for."""

MOST_OF_CELL = 384
"""Largest number of rows of a cell whose halves are left out: their cost grows as m³."""

LARGER = 4
"""Factor between sizes of cells that compete."""

MOST_OF_MANY_COLUMNS = 20_000
"""Rows up to which cells of twice as many columns compete: they cost four times as much a row."""

MOST_OF_METRIC = 48
"""Largest number of inputs of which a full metric is learnt: its entries are their square. Of more
inputs, so many directions at most."""

MOST_OF_DIRECTIONS = 1000
"""Largest number of inputs of which directions are found: M is a matrix of their square."""

TURNS, PATIENCE = 8, 2
"""Most turns of the search for directions, and how many in a row may be no better: a second
direction stands out only when the metric of the first is known well."""

LEAST_FOLDS, FOLDS = 2, 5
"""Least and most folds that judge directions found without them. At the rows that gave them 58
numbers tell the classes of 80 rows apart by chance alone (Cover 1965)."""

CHEAP = 0.1
"""Share of the budget up to which a turn may follow one that was no better."""

SLOPE_FIT_ROWS, ALPHA_ROWS, SLOPE_TURNS = 2000, 1000, 4
"""Rows whose slopes give a metric of classes, those that say its α, and most turns: on letter
errors fall for four."""

SCORE_SECONDS = 150e-9
"""CPU seconds of the normal score of one value."""

MILD = 0.25
"""Power of M, where inputs are many: few rows know the ratios of their slopes less well. On 4,000
rows of MNIST's training part that 4,000 others judge, errors .040 -> .034, and .042 for 1/2."""

LOOKS_OF_STEPS = 6
"""Looks at all windows of two first steps, about."""

SEEN, FEWEST_SEEN = 8, 1000
"""One in so many rows may give slopes of many inputs, and how many must. The others say penalties
and calibrate: those that the metric saw look too easy. Held-out digits, errors with and without a
metric of an eighth of 4,000 rows: .053 and .049; of 8,000: .034 and .041; of 16,000: .026 and .031.
"""

KEPT_SHARE = 0.25
"""Share of the rows of many inputs that judge alone."""

LINE_WITHIN_REACH = 2.0
"""Error of a line, relative to that of the first kernel, up to which the kernel is fitted to what a
line leaves, too, where no input has heavy tails. As targets of the others, of 30 columns of 15
tables, it paid at .07 to 1.5."""

FAR_WORSE = 2.0
"""Error of heavy-tailed inputs as they are, relative to that of their normal scores, from which the
scores are taken without a test. Where one row is all of a difference, its standard error is as
large: of an input of 1e30 in one of 300 rows the mean squares were 1.91 and .02, and t was .995."""

WARP_TURNS, WARP_SURE, WARP_GAIN = 3, 2.0, 0.02
"""Most turns; standard errors, and share of the squared error, that a turn must gain: length-scales
are no longer in units of the inputs. Set on cars, thyroids and NO2 of PMLB."""

FEWEST_WARPED = 100
"""Rows from which scales of inputs are learnt: half of them give six pieces."""

WARPED = "warped inputs, "
"""Before the names of candidates whose inputs are on other scales."""

BESIDE = "a line + "
"""Before the names of candidates for what a line leaves."""

EXACT_ROWS = 1536
"""Rows up to which the process itself is fitted: one cell whose landmarks are all rows."""

APART = 3.0
"""Ratio between length-scales of compact windows and of all at which both are candidates."""

RELEVANT_ROWS = 3000
"""Rows on which relevant inputs are searched for."""

SIZED_ROWS, HIDDEN = 1500, 0.3
"""Rows of which sizes of errors are looked at; an input that they depend on starts at least at so
much of the largest ratio of a deviation to its length-scale."""

SHARE_OF_MEDIAN, SCALE_STEP, SCALE_TURNS = 0.5, 1.5, 8
"""Length-scale of one candidate relative to the median distance; factor between length-scales that
are compared by left-out errors, and how many at most."""

LEAST_GAIN, SURE_OF_MEAN = 0.01, 1.0
"""Share of the left-out error that a mean of two maps must save, and standard errors of the paired
difference that it must be better by: it costs a second map in the pass and in each prediction."""

NEIGHBOURS, RIVAL_ROWS = 5, 1000
"""Rows whose mean is a simple rule to be compared with, and rows where it is."""

SAME_SCALE = 1e-9
"""Relative difference of length-scales, in units of the inputs, that is rounding."""

UNUSED = 30.0
"""Length-scale of inputs that seem irrelevant, relative to the typical distance of rows."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate, and what was found."""

    name: str
    error: float  # root mean square over targets, each over its standard deviation
    behind: float  # mean squared error − that of the best
    spread: float  # standard error of this difference
    seconds: float  # CPU seconds of its search
    in_holes: float | None = None  # the same error in holes, where it was compared


@dataclass(frozen=True, slots=True, eq=False)
class MapChoice:
    """The kernel on rows xA that was taken, with all that was compared."""

    unit_kernel: ExactKernel  # of length-scale 1
    matrix: Float64  # A (d, k)
    shape: CellShape
    taken: str  # name of the trial
    n_rows: int  # rows that were compared
    trials: tuple[Trial, ...]
    normal_scores: NormalScores | None = None
    """What comes before A."""
    trend: LinearTrend | None = None
    """What is taken from the targets before all."""
    n_free: int = 0  # numbers of kernel and metric that were found from targets
    second: MapChoice | None = None
    """A map whose mean with this one is better than either."""
    budget: SearchBudget | None = None
    rivals: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_constant(cls, kernel: ExactKernel, x: Float64, shape: CellShape) -> MapChoice:
        """Where no target or no input varies: one standard deviation along each input."""
        if len(x) > 1 and (x == x[:1]).all():
            warn(
                f"Every input is constant in the {len(x)} pilot rows, so predictions are the mean "
                "of the targets. Look at the inputs, or give length_scale as numbers if they vary "
                "in other rows."
            )
        return cls(kernel, np.diag(1 / deviation(x)), shape, kernel.text, 0, ())

    @property
    def maps(self) -> list[MapChoice]:
        """The choice alone, or with the one whose mean with it answers."""
        return [self] if self.second is None else [self, self.second]

    @property
    def metric(self) -> Float64 | None:
        """A where it mixes inputs."""
        return self.matrix if mixes(self.matrix) else None

    @property
    def own_kernel(self) -> ExactKernel:
        """The kernel of rows x where there is no metric, else that of rows xA."""
        if self.metric is not None:
            return self.unit_kernel
        return self.unit_kernel.with_length_scale(tuple((1 / self.matrix.diagonal()).tolist()))

    @property
    def left_out_error(self) -> float:
        """Root mean squared error at left-out rows, over the standard deviation of y."""
        return next((each.error for each in self.trials if each.name == self.taken), np.nan)

    @property
    def stored(self) -> dict[str, Array]:
        """What is stored of a search beside its map: what was compared, if anything was."""
        return {"choice": self.packed()} if self.trials else {}

    def packed(self) -> Array:
        """The trials as bytes, for the store."""
        plain: dict[str, Any] = {
            "taken": self.taken,
            "n_rows": self.n_rows,
            "n_free": self.n_free,
            "trials": [_known(asdict(each)) for each in self.trials],
        }
        if self.rivals:
            plain["rivals"] = dict(self.rivals)
        if self.budget is not None:
            plain["seconds"], plain["limit"] = self.budget.spent, self.budget.limit
            plain["not_begun"] = self.budget.left_out
        return np.frombuffer(json.dumps(plain).encode(), np.uint8).astype(np.int64)


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """What was compared before the read, and what was taken: ``choice_`` of a model."""

    taken: str
    n_rows: int  # rows that were compared
    trials: tuple[Trial, ...]
    seconds: float = np.nan  # CPU seconds of the search, by its work
    limit: float = np.inf  # those that it was allowed
    not_begun: tuple[str, ...] = ()  # candidates for which nothing was left
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Errors of simple rules at the same rows, in the same units."""
    n_free: int | None = None
    """Numbers of kernel and metric that were found from targets; older stores do not say them."""

    @classmethod
    def of(cls, packed: Array) -> SearchRecord:
        """The record of a search from its bytes."""
        plain = json.loads(bytes(packed.astype(np.uint8)))
        plain["trials"] = tuple(Trial(**each) for each in plain["trials"])
        return cls(**plain | {"not_begun": tuple(plain.get("not_begun", ()))})

    @property
    def taken_names(self) -> tuple[str, ...]:
        """Of the candidates that answer: one, or a mean that is a candidate, too."""
        return (self.taken,)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the candidates."""
        return tuple(each.name for each in self.trials)

    @property
    def errors(self) -> Float64:
        """Root mean squared errors at left-out rows, over the standard deviation of y."""
        return np.array([each.error for each in self.trials])

    @property
    def words(self) -> str:
        """What was taken and the errors, in a line."""
        taken = next(each for each in self.trials if each.name == self.taken)
        others = [each for each in self.trials if each is not taken]
        found = f"{self.taken}: error {taken.error:.3g} at {self.n_rows:,} left-out rows"
        if others:
            near = min(others, key=lambda each: each.error)
            spread = (near.spread + taken.spread) / 2 / max(near.error, TINY)
            found += f"; {near.name} {near.error:.3g} ± {spread:.1g}"
        for name, error in self.rivals.items():
            found += f"; {name} {error:.3g}"
        left = f", {len(self.not_begun)} not begun" if self.not_begun else ""
        if np.isfinite(self.seconds):
            found += f"; {len(self.trials)} compared{left} in {self.seconds:.2g} CPU s"
        return found

    def __str__(self) -> str:
        lines = [f"errors at {self.n_rows:,} left-out rows, over the spread of y"]
        for each in sorted(self.trials, key=lambda trial: trial.error):
            spread = each.spread / 2 / max(each.error, TINY)
            known = f"{each.error:.4g} ± {spread:.1g}" if spread else f"{each.error:.4g}"
            mark = "  taken" if each.name == self.taken else ""
            holes = "" if each.in_holes is None else f", {each.in_holes:.3g} in holes"
            lines.append(f"{known:<18} {each.seconds:5.1f} s  {each.name}{holes}{mark}")
        lines += [f"{error:<18.4g} {'':7}  {name}" for name, error in self.rivals.items()]
        lines += [f"{'not begun':<18} {'':7}  {name}" for name in self.not_begun]
        if np.isfinite(self.seconds):
            limit = f" of {self.limit:.3g}" if np.isfinite(self.limit) else ""
            lines.append(f"search: {self.seconds:.2g}{limit} CPU s by its work")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class _FoldFits:
    """How directions are judged that the same rows gave: each fold by a fit to the other rows."""

    fits: tuple[MetricFit, ...]  # of the folds; none where the budget had no room for them
    factor: float  # of all errors: fits without a fold have fewer rows

    def stretched(self, factor: float) -> _FoldFits:
        """The same with length-scales so many times as long."""
        return replace(self, fits=tuple(each.stretched(factor) for each in self.fits))


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    name: str
    kernel: ExactKernel
    matrix: Float64
    alpha: float
    shape: CellShape
    errors: Float64  # (m, T)
    seconds: float
    is_learnt: bool = False  # whether its matrix was learnt as a metric
    has_one_scale: bool = False  # whether all inputs have one length-scale, in the search's units
    fold_fits: _FoldFits | None = None

    @property
    def squares(self) -> Float64:
        """(m,), mean over targets; infinite where a fit failed."""
        found = (self.errors**2).mean(axis=1)
        return np.where(np.isfinite(found), found, np.inf)

    @property
    def error(self) -> float:
        return float(np.sqrt(self.squares.mean()))

    @property
    def n_numbers(self) -> int:
        """How many numbers its metric has: d if it is diagonal."""
        return numbers_of(self.matrix) if mixes(self.matrix) else len(self.matrix)

    @property
    def n_free(self) -> int:
        """How many of them are free: 1 where all inputs have one length-scale."""
        return 1 if self.has_one_scale else self.n_numbers

    @property
    def fit(self) -> MetricFit:
        """Where a search goes on."""
        return MetricFit(self.kernel, self.matrix, self.alpha, np.nan)

    @property
    def map_key(self) -> tuple[ExactKernel, int]:
        """The same of candidates that differ in their cells alone: they share one matrix."""
        return self.kernel, id(self.matrix)

    def is_simpler(self, other: _Candidate) -> bool:
        """Whether it has fewer numbers or columns, and not more of either."""
        own, theirs = ((each.n_free, each.shape.n_components) for each in (self, other))
        return own != theirs and own[0] <= theirs[0] and own[1] <= theirs[1]

    def behind(self, other: _Candidate) -> tuple[float, float]:
        """Mean difference of squared errors, and its standard error; (∞, 0) where a fit failed."""
        if not np.isfinite(self.error):
            return np.inf, 0.0
        gain = self.squares - other.squares
        return float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))


@dataclass(slots=True, eq=False)
class MapSearch:
    """The candidates so far; see the head of this file."""

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
    candidates: list[_Candidate] = field(default_factory=list)
    settled: _Candidate | None = None
    """That of the map which was taken, where errors in holes were compared."""
    holes: list[Split] = field(default_factory=list)
    _in_holes: dict[tuple[ExactKernel, int], list[Float64]] = field(default_factory=dict)
    first_looks: list[_Candidate] = field(default_factory=list)
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

    def run(self) -> _Candidate:
        """The best candidate of the smallest cells."""
        unit = weight_unit(self.rows.w)
        targets = self.rows.y.std(axis=0)
        targets = np.where(targets > 0, targets, 1.0)

        middle, origin = self.rows.x.mean(axis=0), self.rows.y.mean(axis=0)

        def scaled(rows: RowWindow) -> RowWindow:
            return RowWindow(rows.x - middle, (rows.y - origin) / targets, rows.w / unit)

        self.rows, self.blocks = scaled(self.rows), [scaled(each) for each in self.blocks]
        started = time.process_time()
        self.budget.reserve = self._seconds_to_judge(min(len(self.rows.x), JUDGED_ROWS), self.shape)
        if self.of_many_inputs and not self._is_one_set:
            self._keep_rows()
        self.unit = input_scale(self.rows)
        first = self._first_scales()
        self.regions = self.regions or self._regions(first.matrix)
        plain = self.rows, self.blocks, self.regions
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
        if self._can_have_scales and not self.best.is_learnt and self._compare_warps(plain, middle):
            self._learn()
            if self.compares_scales:
                self._compare_scales(self._metrics)
        if not self.compares_scales and self.rows.x.shape[1] <= MOST_INPUTS:
            self._compare_in_holes()
        if self.sizes:
            self._compare_sizes()
        return self.best

    @property
    def of_many_inputs(self) -> bool:
        """Whether there are more than a full metric is learnt of."""
        return bool(self.rows.x.shape[1] > MOST_OF_METRIC)

    @property
    def _plain(self) -> list[_Candidate]:
        return [each for each in self.candidates if not each.is_learnt]

    @property
    def _metrics(self) -> list[_Candidate]:
        return [each for each in self.candidates if each.is_learnt]

    @property
    def best(self) -> _Candidate:
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

    def _is_better(self, found: _Candidate, other: _Candidate) -> bool:
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
            spread *= _factor_of_few(other.squares - found.squares)
        return behind > spread + self._optimism(found, other)

    def _final_error(self, found: _Candidate) -> float:
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

    def _optimism(self, found: _Candidate, other: _Candidate) -> float:
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

    def second(self) -> tuple[_Candidate, Trial] | None:
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
        """Errors of a line, and of the mean of near rows, at some of the rows that are compared.

        Of targets alone: classes are compared by their probabilities.
        """
        region = max(self.regions_before_trend or self.regions, key=lambda each: len(each.x))
        n, count = len(region.x), min(len(region.x), RIVAL_ROWS)
        if self.compares_scales or n <= NEIGHBOURS:
            return {}
        x, y = region.x / input_scale(region), region.y
        missed = {f"{NEIGHBOURS} neighbours": y[:count] - _near_means(x, y, count)}
        line = LinearFit.of(x, y, region.w)
        rest = 1 - line.leverage(x, region.w)
        missed["a line"] = line.residuals(x, y) / rest[:, None]
        return {name: float(np.sqrt((each**2).mean())) for name, each in missed.items()}

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

    def _near_best(self) -> list[_Candidate]:
        ordered = sorted(self.candidates, key=lambda each: each.error)
        found: list[_Candidate] = []
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
        self,
        scales: NormalScores,
        plain: tuple[RowWindow, Sequence[RowWindow], list[RowWindow]],
        middle: Float64,
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

    def _compare_scores(self, plain: MetricFit, started: float, middle: Float64) -> MetricFit:
        """Go on with the normal scores of heavy-tailed inputs if they predict better."""
        scores = self.normal_scores
        assert scores is not None
        self._judge("inputs as they are", plain, started)
        started = time.process_time()
        before = self._take_scales(scores, (self.rows, self.blocks, self.regions), middle)
        fit = self._first_scales()
        self._judge("their normal scores", fit, started)
        self.first_looks, self.candidates = self.candidates, []
        as_they_are, of_scores = self.first_looks
        far_worse = as_they_are.error > FAR_WORSE * of_scores.error
        if far_worse or self._is_better(of_scores, as_they_are):
            return fit
        self.normal_scores = None
        self.rows, self.blocks, self.regions, self.unit = before
        return plain

    def _compare_warps(
        self, plain: tuple[RowWindow, Sequence[RowWindow], list[RowWindow]], middle: Float64
    ) -> bool:
        """Whether to go on with inputs on scales along which y changes evenly: they predict better.

        Each turn begins from the scales of the one before. Half of the rows give them, or fewer,
        and the others judge. ``plain`` are the rows as they came, less their ``middle``.
        """
        raw, is_warped, n = plain[0].x + middle, False, len(self.rows.x)
        some = np.random.default_rng(0).permutation(n)[: min(n // 2, FIT_ROWS)]
        fitted = np.lexsort(raw.T)[some]  # the same rows in any order of all
        others = self._rows_beside(fitted)
        if not others.any():
            return False
        for turn in range(1, WARP_TURNS + 1):
            least = min(self._plain, key=lambda each: each.error)
            prefix = WARPED if turn == 1 else f"inputs warped {turn} times, "
            need = seconds_of_warp(*self.rows.x.shape)
            if not can_warp(least.kernel) or not self.budget.allows(
                prefix + least.kernel.text, need
            ):
                break
            started, rng = time.process_time(), np.random.default_rng(turn)
            self.budget.spent += need
            fit = least.fit
            if self.compares_scales:
                few = self.rows.part(fitted[:ALPHA_ROWS])
                fit = replace(fit, alpha=self._alpha_of(few, fit))
            warp = input_warp(self.rows, fitted, raw, fit, self.normal_scores, rng)
            if warp is None:
                break
            kept = self.candidates, self.prefix
            before = self._take_scales(warp, plain, middle)
            self.candidates, self.prefix = [], prefix
            drawn, self.rng = self.rng, np.random.default_rng(0)  # windows to come are as they were
            windows = self._windows(np.diag(1 / self.unit), *FEW_WINDOWS)
            self.rng = drawn
            start = best_start(windows, least.kernel, self.unit, self.budget)
            steps = self._steps(FIRST_STEPS)
            found = climb_from(windows, least.kernel, start, self.ard, steps, self.budget)
            self._judge(least.kernel.text, found, started)
            is_near = self.candidates[0].error ** 2 <= WITHIN_REACH * least.error**2
            if self.compares_scales and is_near:
                self._compare_scales(self.candidates)
            now = min(self.candidates, key=lambda each: each.error)
            if not self._is_surely_better(now, least, others):
                self.first_looks += self.candidates
                self.rows, self.blocks, self.regions, self.unit = before
                self.candidates, self.prefix = kept
                break
            self.first_looks += kept[0]
            self.normal_scores, is_warped = warp, True
        if is_warped:
            first, self._most_evidence = self.candidates[0], -np.inf
            kernels = [each for each in self.kernels if each != first.kernel]
            self._compare_kernels(first.fit, kernels)
            least = min(self._plain, key=lambda each: each.error)
            if self.compares_scales and least.kernel != first.kernel:
                self._compare_scales(self._plain)
        return is_warped

    def _is_surely_better(self, found: _Candidate, other: _Candidate, some: Array) -> bool:
        """Whether errors at some rows are smaller by two standard errors, and by 2 %, squared."""
        if not np.isfinite(found.error):
            return False
        gain = (other.squares - found.squares)[some]
        sure = WARP_SURE * gain.std() / np.sqrt(len(gain))
        return bool(gain.mean() > max(sure, WARP_GAIN * other.squares[some].mean()))

    def _rows_beside(self, some: Array) -> Array:
        """Which of the rows that judge (m,) are none of these rows, nor copies of them."""
        judged = np.concatenate([each.x for each in self.regions])
        if self.judges is not None:
            judged = judged[self.judges]
        _, same = equal_rows(np.concatenate([self.rows.x[some], judged]))
        return np.asarray(~np.isin(same[len(some) :], same[: len(some)]))

    def _compare_trend(
        self,
        before: MetricFit,
        plain: tuple[RowWindow, Sequence[RowWindow], list[RowWindow]],
        middle: Float64,
        targets: Float64,
    ) -> MetricFit:
        """Go on with what a line of the inputs leaves if it is predicted better.

        So few rows that they are one set show a line before they show a curve: with them it goes on
        so unless that is predicted worse, if a line alone has at most twice the error. Not of many
        inputs: beside a line their directions were not found.

        ``plain`` are the rows before scores, less their ``middle``; y is in units of ``targets``.
        """
        started, kept = time.process_time(), (self.rows, self.blocks, self.regions)
        if self.first_looks:
            of_kernel = self.first_looks[0 if self.normal_scores is None else -1]
        else:
            self._judge("targets as they are", before, started)
            of_kernel = self.candidates.pop()
        line = LinearFit.of(plain[0].x, plain[0].y, plain[0].w)
        errors, own_share = self._errors_of_line(line, plain[2])
        far = float(np.sqrt((errors**2).mean())) > LINE_WITHIN_REACH * of_kernel.error
        need = self._seconds_to_judge(len(own_share), self.shape)
        if (far and not self.first_looks) or not self.budget.allows("a line", need):
            return before

        def less_line(each: RowWindow, raw: RowWindow) -> RowWindow:
            return RowWindow(each.x, line.residuals(raw.x, raw.y), each.w)

        started = time.process_time()
        self.rows = less_line(self.rows, plain[0])
        self.blocks = [less_line(*each) for each in zip(self.blocks, plain[1], strict=True)]
        self.regions = [less_line(*each) for each in zip(self.regions, plain[2], strict=True)]
        self.own_share, self.regions_before_trend = own_share, kept[2]
        drawn, self.rng = self.rng, np.random.default_rng(0)  # windows to come are as they were
        windows, steps = self._windows(before.matrix, *FEW_WINDOWS), self._steps(LATER_STEPS)
        self.rng = drawn
        fit = climb_from(windows, before.kernel, before.matrix, self.ard, steps, self.budget)
        self._judge("what a line leaves", fit, started)
        found = self.candidates.pop()
        self.first_looks = [*(self.first_looks or [of_kernel]), found]
        if self._is_one_set and not far and not self.of_many_inputs:
            takes_line = not self._is_better(of_kernel, found)
        else:
            takes_line = self._is_better(found, of_kernel)
        if takes_line:
            noise = (errors**2).mean(axis=0) * targets**2
            self.trend = LinearTrend(line.origin + middle, line.slopes * targets, line.root, noise)
            return fit
        self.own_share, self.regions_before_trend = None, []
        self.rows, self.blocks, self.regions = kept
        return before

    def _errors_of_line(self, line: LinearFit, regions: list[RowWindow]) -> tuple[Float64, Float64]:
        """Errors of a line at the rows that judge, and what rows add to their own (m, T).

        A row is left out of the line, too, if it was fitted to it: r/(1 − h) is r + rh/(1 − h).
        """
        left = np.concatenate([line.residuals(each.x, each.y) for each in regions])
        own = np.zeros_like(left)
        if self.in_rows and self.judges is None:
            share = np.concatenate([line.leverage(each.x, each.w) for each in regions])
            own = left * (share / (1 - share))[:, None]
        return (left + own)[slice(None) if self.judges is None else self.judges], own

    # ------------------------------------------------------------------------ length-scales

    def _first_scales(self) -> MetricFit:
        """Length-scales of one kernel, from several starts and then in its own units.

        Of many inputs by :meth:`_first_of_many`; where all rows judge, by what has more evidence.
        """
        kernel = self.kernels[0] if len(self.kernels) == 1 else FIRST
        spread = self.unit
        many = [self._first_of_many(kernel)] if self.of_many_inputs else []
        if many and (self.judges is not None or not self.ard):
            return many[0]
        steps = np.median([neighbour_scale(block.x) for block in self.blocks], axis=0)
        windows = self._windows(np.diag(1 / steps), *FIRST_WINDOWS)
        matrices = [best_start(windows, kernel, unit, self.budget) for unit in (spread, steps)]
        for matter in self._sets_of_inputs(spread) if self.ard else []:
            steps = np.where(matter, np.sqrt(matter.sum()), UNUSED * np.sqrt(len(matter)))
            matrices.append(np.diag(1 / (spread * steps)))
        found = [
            climb_from(windows, kernel, each, self.ard, self._steps(FIRST_STEPS), self.budget)
            for each in matrices
        ]
        best = max(many + found, key=lambda each: each.log_evidence)
        return self._with_hidden_inputs(windows, best) if self.ard else best

    def _with_hidden_inputs(self, windows: Sequence[RowWindow], first: MetricFit) -> MetricFit:
        """The same from where inputs that the size of its errors depends on act, too.

        A search cannot find an input that acts in products alone: where its length-scale is long
        the evidence has no slope, and where all are short it sees noise. pumadyn32nm has two such
        of 32: .27 without them and .21 with them.
        """
        few = np.random.default_rng(0).permutation(len(self.rows.x))[:SIZED_ROWS]
        rows = self.rows.part(few)
        need = seconds_of_look(len(few), 0, True)
        if not self.budget.allows("hidden inputs", need):
            return first
        self.budget.spent += need
        errors = left_out_residuals(rows, first)
        if not np.isfinite(errors).all():
            return first
        inverse, unit = first.matrix.diagonal(), self.unit
        least = HIDDEN * (inverse * unit).max() / unit
        hidden = inputs_of_sizes(rows.x, errors, rows.w) & (inverse < least)
        if not hidden.any():
            return first
        start = np.diag(np.where(hidden, least, inverse))
        found = WindowEvidence(windows, start, self.budget).climb_scales(
            first.kernel, first.alpha, ard=True, iterations=self._steps(FIRST_STEPS)
        )
        by_chance = BY_NUMBER * (len(inverse) + 1)
        return found if found.log_evidence > first.log_evidence + by_chance else first

    def _first_of_many(self, kernel: ExactKernel) -> MetricFit:
        """One length-scale for all inputs, or one for each of those that matter alone.

        Of inputs as they are where these explain more than inputs over their deviations: pixels
        are in one unit, and those at the edge, which hardly vary, are noise. One length-scale for
        each of many inputs takes more from few rows than they know. Sets alone: among many inputs
        no row has near neighbours.
        """
        windows = self._windows(np.diag(1 / self.unit), FEW_WINDOWS[0], 0)
        found = self._scaled(windows, kernel, np.diag(1 / self.unit))
        varies = self.rows.x.std(axis=0) > 0
        one = np.full(len(varies), np.sqrt((self.unit[varies] ** 2).mean()))
        as_they_are = self._scaled(windows, kernel, np.diag(1 / one))
        lead = as_they_are.log_evidence - found.log_evidence
        if lead > BEHIND * sum(len(each.x) for each in windows):
            self.unit, self.normal_scores, self.ard = one, None, False
            return as_they_are
        unit = self.unit
        sets = self._sets_of_inputs(unit) if self.ard else []
        if not sets:
            return found
        matter = sets[0]
        start = best_multiple(windows, kernel, np.diag(1 / unit)[:, matter], self.budget)
        few = climb_from(windows, kernel, start, True, self._steps(FIRST_STEPS), self.budget)
        if few.log_evidence <= found.log_evidence:
            return found
        along = np.abs(few.matrix).sum(axis=0)  # 1/ℓ of each that matters
        rest = np.linalg.norm(along * unit[matter]) / (UNUSED * np.sqrt(len(unit)))
        inverse = rest / unit  # all others together move rows 1/30 as far
        inverse[matter] = along
        return replace(few, matrix=np.diag(inverse))

    def _sets_of_inputs(self, unit: Float64) -> list[Array]:
        """Inputs (d,) that y depends on, and these with those that its size depends on.

        Neither where it is all inputs, or none.
        """
        few = np.random.default_rng(0).permutation(len(self.rows.x))[:RELEVANT_ROWS]
        x, y, w = self.rows.x[few], self.rows.y[few], self.rows.w[few]
        y = y - y.mean(axis=0)
        self.budget.spent += seconds_of_relevance(len(x), x.shape[1], y.shape[1])
        matter = relevant_inputs((x - x.mean(axis=0)) / unit, y / deviation(y), w)
        both = matter | inputs_of_sizes(x, y, w)
        sets = [matter, both] if (both != matter).any() else [matter]
        return [each for each in sets if each.any() and not each.all()]

    def _compare_kernels(self, first: MetricFit, kernels: Sequence[ExactKernel]) -> None:
        """Some kernels, from the length-scales of the first."""
        started = time.process_time()
        windows = self._windows(first.matrix, *FEW_WINDOWS)
        for kernel in sorted(kernels, key=lambda each: each != first.kernel):
            if self.candidates and not self.budget.allows(
                kernel.text, self._least(windows, kernel)
            ):
                continue
            fit = self._fit_kernel(windows, kernel, first)
            if fit is not None:
                self._judge(kernel.text, fit, started)
            started = time.process_time()

    def _fit_kernel(
        self, windows: Sequence[RowWindow], kernel: ExactKernel, first: MetricFit
    ) -> MetricFit | None:
        """A kernel's own length-scales, from those of the first; None if it is far behind.

        Of classes evidence, which takes targets for Gaussian numbers, chooses among radial kernels
        alone. Left-out errors judge the others, with the first length-scales times a factor. Where
        thresholds of single inputs decide, log-loss was .056 without the Laplacian, .038 with it.
        """
        evidence = WindowEvidence(windows, first.matrix, self.budget)
        steps = self._steps(LATER_STEPS)
        found = evidence.climb_scales(kernel, first.alpha, ard=False, iterations=steps)
        lead = self._most_evidence - found.log_evidence / evidence.freedom
        if lead > BEHIND:
            is_judged = self.compares_scales and not isinstance(kernel, RadialKernel)
            return found if is_judged else None
        if self.ard:
            evidence = WindowEvidence(windows, found.matrix, self.budget)
            found = evidence.climb_scales(kernel, found.alpha, ard=True, iterations=steps)
        self._most_evidence = max(self._most_evidence, found.log_evidence / evidence.freedom)
        return found

    def _least(self, windows: Sequence[RowWindow], kernel: ExactKernel) -> float:
        """Seconds before a search ends for its budget: a step in each of two. Few inputs: 0, about.

        A step takes some looks, and one at a kernel that is no function of distances a second
        where there are a thousand inputs.
        """
        if not self.of_many_inputs:
            return 0.0
        radial, d = isinstance(kernel, RadialKernel), self.rows.x.shape[1]
        return LOOKS_OF_STEPS * sum(seconds_of_look(len(each.x), d, radial) for each in windows)

    def _compact_alone(self) -> None:
        """Where seasons and weather act together, scattered rows see the former alone."""
        least = min(self._plain, key=lambda each: each.error)
        if not self.budget.allows(f"{least.kernel.text}, near rows"):
            return
        started = time.process_time()
        steps = np.median([neighbour_scale(block.x) for block in self.blocks], axis=0)
        windows = self._windows(np.diag(1 / steps), 0, FEW_WINDOWS[1])
        if len(windows) < 2:
            return
        start = best_start(windows, least.kernel, steps, self.budget)
        found = climb_from(
            windows, least.kernel, start, self.ard, self._steps(LATER_STEPS), self.budget
        )
        moved = np.log(np.abs(found.matrix).sum(axis=0) / np.abs(least.matrix).sum(axis=0))
        if np.abs(moved).max() >= np.log(APART):
            self._judge(f"{least.kernel.text}, near rows", found, started)

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
    def _can_have_scales(self) -> bool:
        return self.warps and not self.of_many_inputs and len(self.rows.x) >= FEWEST_WARPED

    @property
    def _can_have_directions(self) -> bool:
        return bool(self.rows.x.shape[1] <= MOST_OF_DIRECTIONS)

    def _directions_of_many(self, first: MetricFit) -> None:
        """The first fit and directions from it, before each input has its own length-scale."""
        self._judge(f"{first.kernel.text}, first length-scales", first, time.process_time())
        learns = self.metric and self._can_have_directions and self._tells_directions
        if learns and isinstance(first.kernel, RadialKernel):
            self._learn_of_many(self.candidates[-1])

    def _learn_of_many(self, start: _Candidate) -> None:
        """A metric of many inputs: a few directions that are sure, or all of inputs in one unit.

        Of 784 pixels 260 directions tell digits better than length-scales do, of 123 marks one.
        """
        of_all = self.compares_scales and not self.ard and self.n_rows >= SEEN * FEWEST_SEEN
        (self._learn_slopes if of_all else self._learn_directions)(start)

    def _learn_metric(self, start: _Candidate) -> bool:
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

    def _learn_slopes(self, start: _Candidate) -> None:
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

    def _alpha_of(self, rows: RowWindow, fit: MetricFit) -> float:
        """α of the least left-out error of the exact fit to some rows, by steps of four."""
        errors: dict[int, float] = {}

        def error(step: int) -> float:
            if step not in errors:
                self.budget.spent += seconds_of_look(len(rows.x), 0, True)
                left = left_out_residuals(rows, replace(fit, alpha=START_ALPHA * 4.0**step))
                errors[step] = float((self.errors_of(left, rows.y) ** 2).mean())
            return errors[step]

        step, next_step = 0, min((-1, 0, 1), key=error)
        while next_step != step and LEAST_ALPHA < START_ALPHA * 4.0**next_step < MOST_ALPHA:
            step, next_step = next_step, min((next_step - 1, next_step, next_step + 1), key=error)
        return float(START_ALPHA * 4.0**step)

    def _learn_directions(self, start: _Candidate) -> None:
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

    def _take_turns(self, start: _Candidate) -> list[MetricFit]:
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
        self, start: _Candidate, learnt: _Candidate, fits: Sequence[MetricFit]
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
            fold_fits = _FoldFits((), np.sqrt((n + p) / (n - p)) if p < n else np.inf)
        else:
            fold_fits = self._fit_folds(start, fits, folds_of(rows, n_folds))
        self._judge(name, learnt.fit, started, is_learnt=True, fold_fits=fold_fits)

    def _fit_folds(
        self, start: _Candidate, fits: Sequence[MetricFit], folds: Sequence[Split]
    ) -> _FoldFits:
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
        return _FoldFits(tuple(own), factor)

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

    def _scaled(
        self, windows: Sequence[RowWindow], kernel: ExactKernel, matrix: Float64
    ) -> MetricFit:
        """The best multiple of a metric."""
        start = best_multiple(windows, kernel, matrix, self.budget)
        return climb_from(windows, kernel, start, False, self._steps(LATER_STEPS), self.budget)

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

    def _share_metric(self, other: _Candidate) -> None:
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

    # ------------------------------------------------------------------------------- windows

    def _windows(self, matrix: Float64, n_sets: int, n_compact: int) -> list[RowWindow]:
        """Scattered sets, and windows of neighbours in units of a metric.

        All rows, in sets, where they are so few that windows would overlap.
        """
        rows, n = self.rows, len(self.rows.x)
        count = 1 if n <= ONE_SET else -(-n // SET_OF_MANY)
        if self.in_rows and count <= SETS_OF_ALL:
            return scattered_windows(rows, size=-(-n // count), count=count, rng=self.rng)
        sets = scattered_windows(rows, size=SET_ROWS, count=n_sets, rng=self.rng)
        if not self.in_rows:
            near = [nearest_to_median(each, matrix, WINDOW_ROWS) for each in self.blocks]
            return sets + [each for each in near if len(each.x) > 1]
        centres = self.rng.permutation(n)[:n_compact]
        return sets + compact_windows(rows, matrix, size=WINDOW_ROWS, centres=centres)

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

    # ---------------------------------------------------------------------------- comparison

    def _one_for_all(self) -> None:
        """The first kernel with a share of the median distance of standardised rows."""
        unit = self.unit
        u = self.rows.x / unit
        half = len(u) // 2
        typical = float(np.median(np.linalg.norm(u[:half] - u[half : 2 * half], axis=1)))
        kernel, started = self.kernels[0], time.process_time()
        if not self.budget.allows(f"{kernel.text}, one length-scale"):
            return
        matrix = np.diag(1 / (unit * (SHARE_OF_MEDIAN * typical or 1.0)))
        fit = MetricFit(kernel, matrix, START_ALPHA, np.nan)
        self._judge(f"{kernel.text}, one length-scale", fit, started)

    def _compare_scales(self, *kinds: list[_Candidate]) -> None:
        """Longer and shorter length-scales of the best of each kind of candidates, if near."""
        leaders = [min(kind, key=lambda each: each.error) for kind in kinds if kind]
        limit = WITHIN_REACH * min(each.error for each in self.candidates) ** 2
        for best in leaders:
            if best.error**2 <= limit:
                self._compare_scales_of(best)

    def _compare_scales_of(self, best: _Candidate) -> None:
        """The same of one candidate, while errors fall."""
        for sign in (1, -1):
            least = best
            for turn in range(1, SCALE_TURNS + 1):
                factor, started = SCALE_STEP ** (sign * turn), time.process_time()
                name = f"{self._own_name(best)}, ℓ × {factor:.3g}"
                if not self.budget.allows(name):
                    return
                fold_fits = best.fold_fits and best.fold_fits.stretched(factor)
                fit, learnt = best.fit.stretched(factor), best.is_learnt
                self._judge(name, fit, started, is_learnt=learnt, fold_fits=fold_fits)
                if self.candidates[-1].error >= least.error:
                    break
                least = self.candidates[-1]
            if least is not best:
                return

    def _compare_in_holes(self) -> None:
        """Take another map where it gains more in holes than it loses at left-out rows.

        Both are logarithms of ratios of squared errors, and that of holes is a mean of equal holes.
        The sum must be more than its standard error.
        """
        best = self.best
        near = [
            each
            for each in self.candidates
            if each.error**2 <= AS_GOOD * best.error**2 and each is not best
        ]
        holes = holes_of([self.rows] if self.in_rows else self.blocks) if near else []
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
        self, before: _Candidate, other: _Candidate, weight: float = 1.0
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
        squares[~np.isfinite(squares[:, 1]), 1] = np.inf
        logs = np.diff(-np.log(np.maximum(squares, TINY)), axis=1)[:, 0]
        rows = before.errors - weight * (before.errors - other.errors)
        at_rows = np.log((before.errors**2).mean() / max((rows**2).mean(), TINY))
        return float(logs.mean() + at_rows), float(logs.std() / np.sqrt(len(logs)))

    def _errors_in_holes(self, found: _Candidate) -> list[Float64]:
        """Errors (m, T) in each hole, kept for each map: those of larger cells are the same."""
        if found.map_key not in self._in_holes:
            self.budget.spent += seconds_of_holes(self.holes, self.rows.x.shape[1])
            self._in_holes[found.map_key] = errors_in_holes(found.fit, self.holes)
        return self._in_holes[found.map_key]

    def error_in_holes(self, found: _Candidate) -> float | None:
        """Root mean squared error in holes; None where it was not compared."""
        own = self._in_holes.get(found.map_key, [])
        return float(np.sqrt((np.concatenate(own) ** 2).mean())) if own else None

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
        if n <= MOST_OF_MANY_COLUMNS and self.budget.allows(
            name, self._seconds_to_judge(judged, more)
        ):
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

    def _judge(
        self,
        name: str,
        fit: MetricFit,
        started: float,
        shape: CellShape | None = None,
        *,
        is_learnt: bool = False,
        fold_fits: _FoldFits | None = None,
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
        found = _Candidate(
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
        return self.errors_of(errors, y)

    def _own_name(self, found: _Candidate) -> str:
        """Its name without the scales of its inputs."""
        return found.name.removeprefix(self.prefix)

    def _seconds_to_judge(self, n_rows: int, shape: CellShape) -> float:
        """What errors of so many rows cost: of the process itself, or in cells."""
        if n_rows <= shape.n_components:
            return seconds_of_look(n_rows, 0, True)
        return seconds_of_judging(n_rows, shape.n_components)


def _known(plain: dict[str, Any]) -> dict[str, Any]:
    """A trial as it is stored: without its error in holes where it has none."""
    return {name: each for name, each in plain.items() if each is not None}


def numbers_of(matrix: Float64) -> int:
    """How many numbers AAᵀ (d, d) has for A (d, k): dk − k(k − 1)/2."""
    d, k = matrix.shape
    return int(d * k - k * (k - 1) // 2)


def _factor_of_few(differences: Float64) -> float:
    """How much wider Student's t is than a normal deviate, for the few rows that tell.

    They are (Σd²)²/Σd⁴ of d (m,), a third of all for normal d; the quantiles at one standard
    deviation are compared, for so many rows less one and for at least one degree of freedom.

    References
    ----------
    Kish 1965 (effective number of rows); Student 1908.
    """
    squares = differences**2
    tell = squares.sum() ** 2 / max(float((squares**2).sum()), TINY)
    return float(stdtrit(max(tell - 1, 1.0), ndtr(1.0)))


def _near_means(x: Float64, y: Float64, count: int) -> Float64:
    """The mean target of the nearest rows of each of the first rows, without itself."""
    squared = squared_distances(x[:count], x)
    squared[np.arange(count), np.arange(count)] = np.inf
    near = np.argpartition(squared, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return np.asarray(y[near].mean(axis=1))


def search_map(search: MapSearch) -> MapChoice:
    """The best candidate of a search, and what was compared."""
    best = search.run()
    trials = []
    for each in search.first_looks + search.candidates:
        behind, in_holes = each.behind(best), search.error_in_holes(each)
        trials.append(Trial(each.name, each.error, *behind, each.seconds, in_holes))
    n_rows, scores, second = len(best.errors), search.normal_scores, None
    partner, taken = search.second() if search.averages else None, best.name
    if partner is not None:
        other, mean = partner
        second = MapChoice(other.kernel, other.matrix, other.shape, other.name, n_rows, (), scores)
        trials, taken = [*trials, mean], mean.name
    if search.trend is not None:
        first = search.looks_before_line
        trials[first:] = [replace(e, name=BESIDE + e.name) for e in trials[first:]]
        taken = BESIDE + taken
    return MapChoice(
        best.kernel, best.matrix, best.shape, taken, n_rows, tuple(trials), scores, search.trend,
        best.n_free, second, search.budget, search.rivals(),
    )  # fmt: skip
