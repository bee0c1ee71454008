"""Fits of more and more rows: each with its error on leaves that none of them has seen."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rff_stream.answers.early_stopping import HeldOutError, has_settled
from rff_stream.arguments import number
from rff_stream.errors import PlanError
from rff_stream.execution import Leaves, Reading
from rff_stream.execution.leaves import Leaf, PartialSum
from rff_stream.families import SumRequest, require
from rff_stream.leaf_layout import LEAF_ROWS
from rff_stream.model.counted_rows import ledger_of
from rff_stream.model.file_batches import files_of, first_files
from rff_stream.model.fit import open_checked, solve
from rff_stream.model.fitted import Fitted
from rff_stream.model.recipe import PassRequest, Recipe, slabs_in, unread
from rff_stream.moments import AugmentedRow
from rff_stream.moments.tree_sum import TreeSum
from rff_stream.progress import Progress
from rff_stream.sources import Selection
from rff_stream.statistics.groups import RUNS, ByFold, by_label
from rff_stream.store.batch_writing import checked_id

Groups = Mapping[Any, Any]

STEP = 1.4
"""Factor by which rows grow between two tests of ``fit(until=…)``; each test needs a solve."""

MOST_HELD, FEWEST_HELD = 24, 6
"""Number of leaves that are held out to measure the error; with fewer than the second, no
standard error can be estimated."""

HELD_SHARE = 0.1  # of the leaves, within the two numbers above


EVERY = number(
    "the share of a step in (0, 1), or a factor above 1",
    lambda value: bool(0 < value < math.inf and value != 1),
)

UNTIL = number("a share of the error in (0, 1)", lambda value: bool(0 < value < 1), "Use 0.01.")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A fit of some leaves, its error on others, and the sums of each of these."""

    fitted: Fitted
    state: HeldOutError
    held_out: Sequence[Groups]
    seen: int  # rows of those held out, missing ones included

    def with_held_out(self, recipe: Recipe) -> Fitted:
        """The fit of all leaves that were read; the sums of those held out are written into."""
        fitted, groups = self.fitted, self.fitted.groups
        assert groups is not None
        for each in self.held_out:
            groups = recipe.merge(groups, each)
        seen = fitted.n_rows + fitted.n_missing + self.seen
        found = solve(recipe, fitted.with_groups(groups))
        return replace(found, n_missing=seen - found.n_rows)


def stream(
    recipe: Recipe, data: Selection, every: float, batch: str | None = None
) -> Iterator[Step]:
    """Fits of more and more leaves, in their seeded order; see ``KernelRidge.stream``.

    The answer of a regression tells its error on held-out leaves. ``every`` is the share of the
    leaves in a step, or the factor by which they grow. All rows count as known from the first step
    on, also those that are held out or are not read.
    """
    EVERY.check("every", every)
    opened, parameters = open_checked(recipe, data)
    require(parameters.features, "until")
    reading = Reading(opened.source, progress=recipe.params.progress)
    reading.count_partitions()
    plan = recipe.plan(reading, opened.columns, parameters)
    leaves = Leaves(opened.source, plan.layout)
    if len(leaves) < 2 * FEWEST_HELD:
        raise too_few(f"The {rows_in(leaves):,} rows are read in", len(leaves))
    request = PassRequest(opened, reading, plan, parameters, batch=batch)
    ledger = ledger_of(recipe, request, data)
    for file in first_files(files_of(data), data.storage_options) if batch is None else []:
        ledger += file.ledger
    drawn = recipe.draw(request)
    plan = recipe.plan_of_map(request, drawn)
    empty = replace(unread(opened, drawn, data), plan=plan, ledger=ledger)
    with Progress("looking", rows_in(leaves), shown=recipe.params.progress) as bar:
        yield from steps(recipe, empty, drawn.row, reading, leaves, every, bar)


def fit_until(
    recipe: Recipe,
    data: Selection,
    until: float,
    checkpoint: object,
    batch: str | Literal[True] | None = None,
) -> Fitted:
    """Fit more and more rows until the error no longer changes, and then all that were read."""
    UNTIL.check("until", until)
    if checkpoint is not None or data.by is not None:
        raise ValueError(
            f"until={until!r} goes without checkpoint and by: a fit that stops early is short. "
            "Leave them out."
        )
    if batch is True:
        raise ValueError(
            "batch=True names rows by the labels of by, which until goes without. Name the batch."
        )
    batch = None if batch is None else checked_id(batch, "batch")
    history: list[HeldOutError] = []
    for step in stream(recipe, data, STEP, batch):
        history.append(step.state)
        if has_settled(history, until):
            break
    return replace(step.with_held_out(recipe), history=tuple(history))


def steps(
    recipe: Recipe,
    empty: Fitted,
    row: AugmentedRow,
    reading: Reading,
    leaves: Sequence[Leaf],
    every: float,
    bar: Progress,
) -> Iterator[Step]:
    """Fits after each step through the leaves; the first ones that have rows are held out.

    Raises PlanError: rows that count are in too few leaves.
    """
    held, so_far, wanted = list[Groups](), TreeSum[PartialSum](), held_out(len(leaves))
    n_held, seen = 0, 0
    with bar.shared():
        while len(held) < wanted and n_held < len(leaves):
            found = sum_of(recipe, empty, row, reading, leaves[n_held : n_held + 1], apart=True)
            n_held, seen, groups = n_held + 1, seen + found.seen, by_label(found.value)
            if any(moments.n for moments in groups.values()):
                held.append(groups)
    tests = [functools.reduce(operator.add, groups.values()) for groups in held]
    train, read, rows = leaves[n_held:], rows_in(leaves[:n_held]), rows_in(leaves)
    if not train:
        raise too_few("The rows that count are in", len(held))
    is_fitted = False
    for step, (start, stop) in enumerate(step_bounds(len(train), every)):
        with bar.shared():
            so_far.add(step, sum_of(recipe, empty, row, reading, train[start:stop]))
        read += rows_in(train[start:stop])
        current = so_far.total()
        assert current is not None
        groups = by_label(current.value)
        if not any(moments.n for moments in groups.values()):
            continue
        fitted = solve(recipe, empty.with_groups(groups))
        fraction = read / rows
        fitted = replace(fitted, n_missing=current.seen - fitted.n_rows, fraction=fraction)
        state = fitted.answer.state(tests, fitted.n_rows, fraction)
        bar.say(state.error)
        is_fitted = True
        yield Step(fitted, state, held, seen)
    if not is_fitted:
        raise too_few("The rows that count are in", len(held))


def held_out(n_leaves: int) -> int:
    """How many leaves are kept apart."""
    return min(MOST_HELD, max(FEWEST_HELD, round(HELD_SHARE * n_leaves)))


def too_few(what: str, count: int) -> PlanError:
    """The refusal of rows in so few leaves that no error is told apart from chance."""
    return PlanError(
        f"{what} {count} leaves, but at least {2 * FEWEST_HELD} are needed to estimate the "
        f"standard error of the error: some {2 * FEWEST_HELD * LEAF_ROWS:,} rows. Use fit without "
        "until."
    )


def step_bounds(count: int, every: float) -> list[tuple[int, int]]:
    """Leaves start:stop of each step: ``every`` as a share of all, or a factor above 1.

    A step has one leaf or more.
    """
    if every > 1:
        stops, size = [count], float(count)
        while size / every > 1:
            size = min(size / every, stops[-1] - 1.0)
            stops.append(math.ceil(size))
        stops.reverse()
    else:
        share = max(every, 1 / count)
        steps = range(1, 1 + math.ceil(1 / share))
        stops = sorted({min(count, math.ceil(count * share * k)) for k in steps})
    return list(zip([0, *stops[:-1]], stops, strict=True))


def sum_of(
    recipe: Recipe,
    fitted: Fitted,
    row: AugmentedRow,
    reading: Reading,
    leaves: Sequence[Leaf],
    *,
    apart: bool = False,
) -> PartialSum:
    """Moments of some leaves; those kept apart in float64, for their errors are small."""
    places = reading.source.n_rows
    if places is None:
        raise PlanError(
            "The data have blocks of unknown length, so the share that was read is unknown. Use "
            "fit, or compute the lengths first: compute_chunk_sizes()."
        )
    assert fitted.plan is not None
    plan = replace(fitted.plan, n_groups=1)
    plan = replace(plan, sums="float64") if apart else plan
    sums = SumRequest(fitted.features, row, plan, recipe.params.sample_rows, places)
    statistic = fitted.family.statistic(sums)
    folds = recipe.n_folds(row.n_targets)
    if folds:
        statistic = ByFold(statistic, folds, places, RUNS, slabs_in(fitted.scales, fitted.n_inputs))
    return reading.sum_leaves(statistic, leaves, words="looking")


def rows_in(leaves: Sequence[Leaf]) -> int:
    """Rows of some leaves, missing ones included."""
    return sum(math.prod(hi - lo for lo, hi in leaf.box) for leaf in leaves)
