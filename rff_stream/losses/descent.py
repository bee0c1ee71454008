"""Convex minimisation with few passes over the data: each pass tries several step lengths.

Every pass returns value and gradient at several steps along one direction. Directions are those
of Newton where the pass also sums a Hessian. Otherwise they are those of L-BFGS, which starts
from an upper bound of every Hessian: the first steps are safe and the later ones fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from rff_stream._array import Float64

STEPS = (1.0, 0.5, 2.0)  # Newton's, and one to either side that the same pass looks at
FIRST_STEPS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The first direction uses an upper bound of the Hessian, so the step is far too short."""

SHRINK = 16.0
"""Steps are shorter by this where none was lower: a pass looks at 1/16, 1/32 and 1/8 at once. 8 and
32 changed no pass of three tables (huber, logistic, squared hinge)."""
SUFFICIENT = 1e-4
"""Share of the decrease by the slope (Nocedal & Wright 2006, §3.1); half and twice changed none."""
MEMORY = 20
"""Pairs that are kept. With 10 and 40 the same tables took 159, 140 and 868, and 159, 141 and 847
passes; with 20, 159, 141 and 868."""

Metric = Callable[[Float64], Float64]
"""g ↦ H⁻¹g for some positive H."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Coefficients with the objective, its gradient and perhaps its curvature there."""

    theta: Float64  # (p, K)
    value: float
    gradient: Float64  # (p, K)
    metric: Metric | None = None  # by the Hessian; None where none was summed


Probe = Callable[[Float64, Float64, tuple[float, ...]], list[tuple[float, Point]]]
"""(θ, direction, steps) -> lengths t, those steps or better ones, and the points θ + t·direction:
one pass over the rows."""


Pair = tuple[Float64, Float64, Float64]
"""A step, the change of the gradient along it, and H⁻¹ of that change."""


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """Where a minimisation stands: enough to go on."""

    point: Point
    decrement: float  # √(gᵀH⁻¹g): the objective is about half its square above the minimum
    passes: int  # looks at the data so far
    converged: bool
    history: tuple[float, ...] = ()  # the objective after each pass
    pairs: tuple[Pair, ...] = field(default=(), repr=False)


def minimise(
    probe: Probe,
    start: Point,
    metric: Metric,
    *,
    tol: float,
    max_passes: int,
    first_steps: tuple[float, ...] = FIRST_STEPS,
    later_steps: tuple[float, ...] = STEPS,
) -> Iterator[Descent]:
    """Descents after each pass, until the decrement is at most ``tol`` or passes are used up.

    The ``metric`` is by a matrix above the Hessian, or the Hessian at the start; ``tol`` is in
    units of the square root of the objective.

    References
    ----------
    Nocedal & Wright 2006, algorithm 7.4 (two loops). Böhning 1992, for the bound.
    """
    state, steps = Descent(start, np.inf, 0, False, (start.value,)), first_steps
    solved = (start.metric or metric)(start.gradient)
    while True:
        direction = -_two_loops(state.point.gradient, solved, state.pairs)
        slope = float(np.vdot(state.point.gradient, direction))
        state = replace(state, decrement=float(np.sqrt(max(-slope, 0.0))))
        if state.decrement <= tol:
            state = replace(state, converged=True)
        yield state
        if state.converged or state.passes >= max_passes:
            return
        found = probe(state.point.theta, direction, steps)
        better = _lowest(state.point, found, slope)
        steps = later_steps if better is not None else tuple(t / SHRINK for t in steps)
        before = solved
        if better is not None:
            solved = (better.metric or metric)(better.gradient)
        state = _advance(state, better, solved - before)
        if better is None and max(steps) < np.finfo(float).eps:
            yield replace(state, converged=True)  # no step changes the value: rounding
            return


def _lowest(at: Point, found: list[tuple[float, Point]], slope: float) -> Point | None:
    """The lowest point that decreases enough; equal values are judged by their gradients."""
    noise = 8 * np.finfo(float).eps * abs(at.value)
    fine = [p for t, p in found if p.value <= at.value + SUFFICIENT * t * slope + noise]
    if not fine:
        return None
    least = min(p.value for p in fine)
    near = [p for p in fine if p.value <= least + noise]
    return min(near, key=lambda p: float(np.vdot(p.gradient, p.gradient)))


def _advance(state: Descent, to: Point | None, solved: Float64) -> Descent:
    """The state after one more pass; a pair of steps is kept where nothing better is known.

    ``solved`` is H⁻¹ of the gradient's change.
    """
    passes = state.passes + 1
    if to is None:
        return replace(state, passes=passes, history=(*state.history, state.point.value))
    step, change = to.theta - state.point.theta, to.gradient - state.point.gradient
    pairs = state.pairs
    if to.metric is not None:
        pairs = ()
    elif np.vdot(step, change) > 0:
        pairs = (*pairs, (step, change, solved))[-MEMORY:]
    return replace(state, point=to, passes=passes, history=(*state.history, to.value), pairs=pairs)


def _two_loops(gradient: Float64, solved: Float64, pairs: tuple[Pair, ...]) -> Float64:
    """H⁻¹g by the pairs of steps and gradient changes, about the metric that gave ``solved``.

    The metric is linear: what it makes of a difference is the difference of what it made.
    """
    q, r, weights = gradient.copy(), solved.copy(), []
    for step, change, own in reversed(pairs):
        weight = np.vdot(step, q) / np.vdot(step, change)
        weights.append(weight)
        q -= weight * change
        r -= weight * own
    if pairs:
        step, change, own = pairs[-1]
        r *= np.vdot(step, change) / np.vdot(change, own)
    for (step, change, _), weight in zip(pairs, reversed(weights), strict=True):
        r += step * (weight - np.vdot(change, r) / np.vdot(step, change))
    return r
