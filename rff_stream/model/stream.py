"""Fits of more and more rows: each with its error on leaves that none of them has seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rff_stream.answers.early_stopping import HeldOutError, has_settled
from rff_stream.arguments import number
from rff_stream.errors import PlanError
from rff_stream.execution import Leaves, Reading
from rff_stream.execution.leaves import Leaf, PartialSum
from rff_stream.execution.progress import Progress
from rff_stream.families import SumRequest, require
from rff_stream.model.fit import open_checked, solve
from rff_stream.model.fitted import Fitted
from rff_stream.model.recipe import PassRequest, Recipe, slabs_in, unread
from rff_stream.moments import AugmentedRow
from rff_stream.moments.tree_sum import TreeSum
from rff_stream.sources import Selection
from rff_stream.statistics.groups import RUNS, ByFold, by_label

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


def stream(recipe: Recipe, data: Selection, every: float) -> Iterator[tuple[Fitted, HeldOutError]]:
    """Fits of more and more leaves, in their seeded order; see ``KernelRidge.stream``.

    The answer of a regression tells its error on held-out leaves. ``every`` is the share of the
    leaves in a step, or the factor by which they grow.
    """
    EVERY.check("every", every)
    opened, parameters = open_checked(recipe, data)
    require(parameters.features, "until")
    reading = Reading(opened.source, progress=recipe.params.progress)
    plan = recipe.plan(reading, opened.columns, parameters)
    leaves = Leaves(opened.source, plan.layout)
    held = held_out(len(leaves))
    request = PassRequest(opened, reading, plan, parameters)
    drawn = recipe.draw(request)
    plan = recipe.plan_of_map(request, drawn)
    empty = replace(unread(opened, drawn, data), plan=plan)
    with Progress("looking", rows_in(leaves), shown=recipe.params.progress) as bar:
        yield from steps(
            recipe, empty, drawn.row, reading, (leaves[:held], leaves[held:]), every, bar
        )


def fit_until(recipe: Recipe, data: Selection, until: float, checkpoint: object) -> Fitted:
    """Fit more and more rows until the error no longer changes."""
    UNTIL.check("until", until)
    if checkpoint is not None or data.by is not None:
        raise ValueError(
            f"until={until!r} goes without checkpoint and by: a fit that stops early is short. "
            "Leave them out."
        )
    history: list[HeldOutError] = []
    last: Fitted | None = None
    for fitted, state in stream(recipe, data, STEP):
        history.append(state)
        last = fitted
        if has_settled(history, until):
            break
    assert last is not None
    return replace(last, history=tuple(history))


def steps(
    recipe: Recipe,
    empty: Fitted,
    row: AugmentedRow,
    reading: Reading,
    parts: tuple[Sequence[Leaf], Sequence[Leaf]],
    every: float,
    bar: Progress,
) -> Iterator[tuple[Fitted, HeldOutError]]:
    """Fits after each step through the second part of the leaves; the first is held out."""
    held, train = parts
    with bar.shared():
        each = [sum_of(recipe, empty, row, reading, [leaf], apart=True).value for leaf in held]
    tests, so_far = [moments for moments in each if moments.n], TreeSum[PartialSum]()
    read, rows = rows_in(held), rows_in([*held, *train])
    for step, (start, stop) in enumerate(step_bounds(len(train), every)):
        with bar.shared():
            so_far.add(step, sum_of(recipe, empty, row, reading, train[start:stop]))
        read += rows_in(train[start:stop])
        current = so_far.total()
        assert current is not None
        groups = by_label(current.value)
        if not tests or not any(moments.n for moments in groups.values()):
            continue
        fitted = solve(recipe, empty.with_groups(groups))
        fraction = read / rows
        fitted = replace(fitted, n_missing=current.seen - fitted.n_rows, fraction=fraction)
        state = fitted.answer.state(tests, fitted.n_rows, fraction)
        bar.say(state.error)
        yield fitted, state


def held_out(n_leaves: int) -> int:
    """How many leaves are kept apart; refuses data with too few leaves."""
    held = min(MOST_HELD, max(FEWEST_HELD, round(HELD_SHARE * n_leaves)))
    if n_leaves < 2 * FEWEST_HELD:
        raise PlanError(
            f"The data are read in {n_leaves} leaves, but at least {2 * FEWEST_HELD} are needed to "
            "estimate the standard error of the error. Use fit instead."
        )
    return held


def step_bounds(count: int, every: float) -> list[tuple[int, int]]:
    """Leaves start:stop of each step: ``every`` as a share of all, or a factor above 1."""
    if every > 1:
        sizes = [math.ceil(count * every**-k) for k in range(64) if count * every**-k > 1]
        stops = sorted({*sizes, count})
    else:
        stops = sorted(
            {min(count, math.ceil(count * every * k)) for k in range(1, 1 + math.ceil(1 / every))}
        )
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
    folds = 0 if apart else recipe.n_folds(row.n_targets)
    if folds:
        statistic = ByFold(statistic, folds, places, RUNS, slabs_in(fitted.scales, fitted.n_inputs))
    return reading.sum_leaves(statistic, leaves, words="looking")


def rows_in(leaves: Sequence[Leaf]) -> int:
    """Rows of some leaves, missing ones included."""
    return sum(math.prod(hi - lo for lo, hi in leaf.box) for leaf in leaves)
