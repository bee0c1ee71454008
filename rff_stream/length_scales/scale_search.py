"""Kernels and length-scales that compete, and inputs on other scales, or beside a line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.kernels import ExactKernel, Gaussian, Matern, RadialKernel
from rff_stream.length_scales.budget import seconds_of_look
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.input_warps import FIT_ROWS, can_warp, input_warp, seconds_of_warp
from rff_stream.length_scales.linear_fit import LinearFit
from rff_stream.length_scales.relevant_inputs import (
    inputs_of_sizes,
    relevant_inputs,
    seconds_of_relevance,
)
from rff_stream.length_scales.search import (
    ALPHA_ROWS,
    FEW_WINDOWS,
    FIRST_STEPS,
    FIRST_WINDOWS,
    LATER_STEPS,
    SET_ROWS,
    WITHIN_REACH,
    RowSets,
    Search,
)
from rff_stream.length_scales.window_evidence import (
    BY_NUMBER,
    START_ALPHA,
    MetricFit,
    RowWindow,
    WindowEvidence,
    best_multiple,
    best_start,
    climb_from,
    left_out_residuals,
)
from rff_stream.length_scales.windows import deviation
from rff_stream.moments.copies import equal_rows
from rff_stream.pilot import neighbour_scale

FIRST = Matern(nu=1.5)
"""The kernel whose length-scales the others begin from."""

BEHIND = 0.2
"""Difference of log p a row at which a kernel is left out: e⁸⁰ for 400 rows."""

LOOKS_OF_STEPS = 6
"""Looks at all windows of two first steps, about."""

LINE_WITHIN_REACH = 2.0
"""Error of a line, relative to that of the first kernel, up to which the kernel is fitted to what a
line leaves, too, where no input has heavy tails. As targets of the others, of 30 columns of 15
tables, it paid at .07 to 1.5."""

ROWS_OF_A_NUMBER = 4
"""Rows for each number of a line from which it is compared closely. Of six, left-out errors hardly
tell which of two is worse. Of 37 tables of PMLB, six draws each, the mean square error over that of
the mean was, of 6, 9, 14 and 20 rows, 1.07, .93, .66 and .47 with all lines, .96, .78, .62 and .45
with these; with 6 and 10 rows for a number it is no better. Of fewer rows it is taken where it is
far better: of a table that is a line errors were .57, .036 with 25, 40 rows for 15 numbers, and are
next to nothing."""

MORE_STEPS = "targets as they are, more steps"
"""A line is compared with as many steps without it: of six searches that took one before, four do
not take it any more, and errors at new rows are smaller by .8 to 7 % (three tables)."""

FAR_WORSE = 2.0
"""Error of heavy-tailed inputs as they are, relative to that of their normal scores, from which the
scores are taken without a test; and that without a line from which a line of few rows is taken.
Where one row is all of a difference, its standard error is as large: of an input of 1e30 in one of
300 rows the mean squares were 1.91 and .02, and t was .995."""

WARP_TURNS, WARP_SURE, WARP_GAIN = 3, 2.0, 0.02
"""Most turns; standard errors, and share of the squared error, that a turn must gain: length-scales
are no longer in units of the inputs. Set on cars, thyroids and NO2 of PMLB."""

FEWEST_WARPED = 100
"""Rows from which scales of inputs are learnt: half of them give six pieces."""

WARPED = "warped inputs, "
"""Before the names of candidates whose inputs are on other scales."""

APART = 3.0
"""Ratio between length-scales of compact windows and of all at which both are candidates."""

LITTLE_NOISE, NOISY, NOISE_ALONE = 0.1, 0.1, 0.97
"""Relative error of a target, over that of the worst one, below which it gets noise in windows,
where that of the worst one is at least so large: several exact targets stay as they are. A target
above the last has nothing that an exact one can hide."""

RELEVANT_ROWS = 3000
"""Rows on which relevant inputs are searched for."""

SIZED_ROWS, HIDDEN = 1500, 0.3
"""Rows of which sizes of errors are looked at; an input that they depend on starts at least at so
much of the largest ratio of a deviation to its length-scale."""

SHARE_OF_MEDIAN, SCALE_STEP, SCALE_TURNS = 0.5, 1.5, 8
"""Length-scale of one candidate relative to the median distance; factor between length-scales that
are compared by left-out errors, and how many at most."""

UNUSED = 30.0
"""Length-scale of inputs that seem irrelevant, relative to the typical distance of rows."""


class ScaleSearch(Search):
    """Kernels, length-scales and scales of inputs, that compete."""

    __slots__ = ()

    def _compare_scores(self, plain: MetricFit, started: float, middle: Float64) -> MetricFit:
        """Go on with the normal scores of heavy-tailed inputs if they predict better."""
        scores = self.normal_scores
        assert scores is not None
        self._judge("inputs as they are", plain, started)
        started, ard = time.process_time(), self.ard
        before = self._take_scales(scores, (self.rows, self.blocks, self.regions), middle)
        fit = self._first_scales()
        self._judge("their normal scores", fit, started)
        self.first_looks, self.candidates = self.candidates, []
        as_they_are, of_scores = self.first_looks
        far_worse = as_they_are.error > FAR_WORSE * of_scores.error
        if far_worse or self._is_better(of_scores, as_they_are):
            return fit
        self.normal_scores, self.ard = None, ard
        self.rows, self.blocks, self.regions, self.unit = before
        return plain

    def _compare_warps(self, plain: RowSets, middle: Float64) -> bool:
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

    def _is_surely_better(self, found: Candidate, other: Candidate, some: Array) -> bool:
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
        self, before: MetricFit, plain: RowSets, middle: Float64, targets: Float64
    ) -> MetricFit:
        """Go on with what a line of the inputs leaves if it is predicted better.

        So few rows that they are one set show a line before they show a curve: with them it goes on
        so unless that is predicted worse, if a line alone has at most twice the error; with too few
        for its numbers, if it is far better. Not of many inputs: beside a line their directions
        were not found. Of more rows it is not taken where it is worse than the mean far out, as of
        inputs of heavy tails: there the map says nothing.

        ``plain`` are the rows before scores, less their ``middle``; y is in units of ``targets``.
        """
        few = len(plain[0].x) < ROWS_OF_A_NUMBER * (1 + plain[0].x.shape[1])
        started, kept = time.process_time(), (self.rows, self.blocks, self.regions)
        if self.first_looks:
            of_kernel = self.first_looks[0 if self.normal_scores is None else -1]
        else:
            self._judge("targets as they are", before, started)
            of_kernel = self.candidates.pop()
        line = LinearFit.of(plain[0].x, plain[0].y, plain[0].w)
        errors, own_share = self._errors_of_line(line, plain[2])
        error_of_line = float(np.sqrt((self.bounded(errors) ** 2).mean()))
        far = error_of_line > LINE_WITHIN_REACH * of_kernel.error
        need = self._seconds_to_judge(len(own_share), self.shape)
        if (far and not self.first_looks) or not self.budget.allows("a line", need):
            return before

        def less_line(each: RowWindow, raw: RowWindow) -> RowWindow:
            return RowWindow(each.x, line.residuals(raw.x, raw.y), each.w)

        started = time.process_time()
        left = (
            less_line(self.rows, plain[0]),
            [less_line(*each) for each in zip(self.blocks, plain[1], strict=True)],
            [less_line(*each) for each in zip(self.regions, plain[2], strict=True)],
        )
        noise_before = self.added_noise
        self.rows, self.blocks, self.regions = left
        self.own_share, self.regions_before_trend = own_share, kept[2]
        self.added_noise = noise_beside_line = self._noise_of_exact_targets()
        fit, found = self._go_on("what a line leaves", before, started)
        self.rows, self.blocks, self.regions = kept
        self.own_share, self.regions_before_trend = None, []
        self.added_noise = noise_before
        self.first_looks = [*(self.first_looks or [of_kernel]), found]
        if few and not self.of_many_inputs:
            takes_line = of_kernel.error > FAR_WORSE * found.error
        elif self._is_one_set and not far and not self.of_many_inputs:
            takes_line = not self._is_better(of_kernel, found)
        else:  # windows of neighbours judge, which hold few of the far rows
            rows = plain[0]
            takes_line = self._is_better(found, of_kernel) and line.serves_far_rows(
                rows.x, rows.y, rows.w
            )
            if takes_line and self.budget.allows(MORE_STEPS, need):
                again, more = self._go_on(MORE_STEPS, before, time.process_time())
                self.first_looks.append(more)
                if more.error < of_kernel.error:
                    before, of_kernel = again, more
                takes_line = self._is_better(found, of_kernel)
        if not takes_line:
            return before
        self.rows, self.blocks, self.regions = left
        self.own_share, self.regions_before_trend = own_share, kept[2]
        self.added_noise = noise_beside_line
        noise = (errors**2).mean(axis=0) * targets**2
        self.trend = LinearTrend(line.origin + middle, line.slopes * targets, line.root, noise)
        return fit

    def _noise_of_exact_targets(self) -> Float64 | None:
        """Noise (T,) for targets that have next to none beside one that has; None if all are alike.

        Evidence counts logarithms of errors: 1e-5 in place of 1e-4 gains more for an exact target
        than another one can lose, whatever its noise. Two fits to all tell how exact they are. A
        target of the other sign has noise of the other sign.
        """
        if self.compares_scales or self.of_many_inputs or self.rows.y.shape[1] == 1:
            return None
        order = np.random.default_rng(0).permutation(len(self.rows.x))
        few = self.rows.part(order[:SET_ROWS])
        if not few.varies:
            return None
        missed = []
        for kernel in (FIRST, Gaussian()):
            start = best_start([few], kernel, self.unit, self.budget)
            fit = climb_from([few], kernel, start, self.ard, FIRST_STEPS, self.budget)
            missed.append(np.sqrt((left_out_residuals(few, fit) ** 2).mean(axis=0)))
        y = self.rows.y
        spread = deviation(y)
        error = np.fmin(*missed) / spread  # NaN where no kernel has a factor
        worst = float(error[error < NOISE_ALONE].max(initial=0.0))
        least = LITTLE_NOISE * worst
        exact = (error < least) & (y != y[:1]).any(axis=0)
        if not exact.any() or worst < NOISY:
            return None
        return np.where(exact, np.copysign(least * spread, (y**3).sum(axis=0)), 0.0)

    def _go_on(self, name: str, fit: MetricFit, started: float) -> tuple[MetricFit, Candidate]:
        """A fit after a few steps at the rows as they are now, judged but no candidate."""
        drawn, self.rng = self.rng, np.random.default_rng(0)  # windows to come are as they were
        windows, steps = self._windows(fit.matrix, *FEW_WINDOWS), self._steps(LATER_STEPS)
        self.rng = drawn
        found = climb_from(windows, fit.kernel, fit.matrix, self.ard, steps, self.budget)
        self._judge(name, found, started)
        return found, self.candidates.pop()

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
            self.unit, self.ard = one, False
            if not self.candidates and not self.first_looks:  # else rows may be scores by now
                self.normal_scores = None
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

    @property
    def _can_have_scales(self) -> bool:
        return self.warps and not self.of_many_inputs and len(self.rows.x) >= FEWEST_WARPED

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

    def _compare_scales(self, *kinds: list[Candidate]) -> None:
        """Longer and shorter length-scales of the best of each kind of candidates, if near."""
        leaders = [min(kind, key=lambda each: each.error) for kind in kinds if kind]
        limit = WITHIN_REACH * min(each.error for each in self.candidates) ** 2
        for best in leaders:
            if best.error**2 <= limit:
                self._compare_scales_of(best)

    def _compare_scales_of(self, best: Candidate) -> None:
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
