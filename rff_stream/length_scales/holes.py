"""Errors inside holes: what a map is worth where the nearest rows are missing together.

Left-out errors of rows say what it is worth beside near rows. Among places and times rows are also
missing in clouds, storms and failures, and of two maps that are as good beside near rows one may be
far better there. A hole is a set of neighbouring rows whose inner ones are predicted by the outer
ones, by the process itself:

    K = κ(U, U) + α diag(1/w),   ŷ = m + κ(U', U) K⁻¹ (y − m),   m = 1ᵀK⁻¹y/(1ᵀK⁻¹1)

Where rows are of sites, such as stations that are read every day, all rows of a site are missing at
a new one: a hole is a site, and rows of those around it predict its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.length_scales.budget import seconds_of_look
from rff_stream.length_scales.left_out import CellShape, cut, kernel_values, merge_inputs
from rff_stream.length_scales.window_evidence import MetricFit, RowWindow
from rff_stream.length_scales.windows import deviation
from rff_stream.pilot import neighbour_scale, smallest

MOST_INPUTS = 3
"""Of places and times. Among more inputs a row alone is a hole: rows are not near each other."""

HOLE_ROWS, FEWEST_HOLES, HOLES = 400, 8, 80
"""Rows of a hole, about, inner and outer ones (set on heaton_sim, with AS_GOOD); how many holes
tell a standard error; and most holes: an error costs .1 CPU s for each map."""

FEWEST_SITES, ROWS_OF_SITE, SITES_NEAR = 20, 4, 40
"""Sites from which they are holes: fewer are a design. Rows of a site, on average. Sites that
predict one of them, of HOLE_ROWS rows together."""

ALIKE = 1.5
"""Places that two inputs have together, over those of the one that has more, up to which they name
the same sites: one input determines the other. Crossed inputs have at least twice as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows that are hidden, the inner half of a place or a fold, and those that predict them."""

    known: RowWindow
    hidden: RowWindow


def holes_of(places: Sequence[RowWindow]) -> list[Split]:
    """Some cells of a random tree in units of the steps from row to row, each a hole.

    The tree is that of a generator of its own: what else is drawn does not change.
    """
    rng, found = np.random.default_rng(0), []
    for rows in places:
        unit = np.diag(1 / neighbour_scale(rows.x))
        cells = cut(rows, unit, CellShape(HOLE_ROWS, HOLE_ROWS), rng)
        for i in rng.permutation(len(cells))[: -(-HOLES // len(places))].tolist():
            own = merge_inputs(rows.part(cells[i].at))
            apart = ((own.x - own.x.mean(axis=0)) @ unit) ** 2
            order = np.argsort(apart.sum(axis=1), kind="stable")
            inner, outer = np.split(order, [len(order) // 2])
            if len(inner) > 1:
                found.append(Split(own.part(outer), own.part(inner)))
    return found


def sites_of(x: Float64) -> list[tuple[Array, Array]]:
    """Inputs (d,) that name a site together, and the site (n,) of each row; for each kind of sites.

    Two inputs or more, such as longitude and latitude, that have few places together and determine
    each other, while few others, such as times, vary at each place.
    """
    n, d = x.shape
    codes = [_codes(column) for column in x.T]
    counts = np.array([each.max() + 1 for each in codes])
    named = np.flatnonzero((counts > 2) & (ROWS_OF_SITE * counts <= n))
    kinds: list[tuple[Array, Array]] = []
    for j in named[np.argsort(-counts[named], kind="stable")].tolist():
        alone = np.arange(d) == j
        for i, (own, sites) in enumerate(kinds):
            both = _codes(sites * counts[j] + codes[j])
            together = both.max() + 1
            if together <= ALIKE * (sites.max() + 1) and ROWS_OF_SITE * together <= n:
                kinds[i] = (own | alone, both)
                break
        else:
            kinds.append((alone, codes[j]))
    return [
        (own, sites)
        for own, sites in kinds
        if own.sum() > 1 and 0 < (~own).sum() <= MOST_INPUTS and sites.max() >= FEWEST_SITES - 1
    ]


def _codes(values: Array) -> Array:
    """0, 1, … for the values (n,) in ascending order."""
    return np.asarray(np.unique(values, return_inverse=True)[1])


def sites_as_holes(rows: RowWindow) -> list[Split]:
    """Some sites of each kind, each a hole among the sites nearest to it; [] where there are none.

    Of these sites the rows that are nearest by the other inputs: so many as a hole has.
    """
    rng, found = np.random.default_rng(0), []
    u = (rows.x - rows.x.mean(axis=0)) / deviation(rows.x)
    for own, sites in sites_of(rows.x):
        first = np.unique(sites, return_index=True)[1]
        for site in rng.permutation(len(first))[:HOLES].tolist():
            apart = ((u[first][:, own] - u[first[site], own]) ** 2).sum(axis=1)
            near = np.flatnonzero(np.isin(sites, smallest(apart, SITES_NEAR)))
            start = rng.choice(np.flatnonzero(sites == site))
            apart = ((u[near][:, ~own] - u[start, ~own]) ** 2).sum(axis=1)
            part = near[smallest(apart, HOLE_ROWS)]
            hidden = sites[part] == site
            if hidden.sum() > 1 and not hidden.all():
                inner, outer = (merge_inputs(rows.part(part[at])) for at in (hidden, ~hidden))
                found.append(Split(outer, inner))
    return found


def errors_in_holes(fit: MetricFit, holes: Sequence[Split]) -> list[Float64]:
    """Errors (m, T) of the inner rows of each hole; NaN where a kernel has no Cholesky factor."""
    return [_errors_in(fit, hole) for hole in holes]


def folds_of(rows: RowWindow, count: int) -> list[Split]:
    """So many folds: row i is hidden in fold i mod ``count``, and known in the others."""
    at = np.arange(len(rows.x))
    return [Split(rows.part(at % count != i), rows.part(at % count == i)) for i in range(count)]


def errors_of_folds(fits: Sequence[MetricFit], folds: Sequence[Split]) -> Float64:
    """Errors (m, T) of all rows in their order, those of each fold by its own fit."""
    errors = np.empty((sum(len(each.hidden.x) for each in folds), folds[0].hidden.y.shape[1]))
    for i, (fit, fold) in enumerate(zip(fits, folds, strict=True)):
        errors[i :: len(folds)] = _errors_in(fit, fold)
    return errors


def seconds_of_holes(holes: Sequence[Split], n_inputs: int) -> float:
    """CPU seconds of the errors of one map: as much as a look at the rows of each, about."""
    return sum(seconds_of_look(len(each.known.x), n_inputs, True) for each in holes)


def _errors_in(fit: MetricFit, split: Split) -> Float64:
    known, hidden = split.known, split.hidden
    middle = known.x.mean(axis=0)
    u, v = (known.x - middle) @ fit.matrix, (hidden.x - middle) @ fit.matrix
    K = np.array(kernel_values(fit.kernel, u))
    K[np.diag_indices_from(K)] += fit.alpha / known.w
    try:
        factor = linalg.cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return np.full(hidden.y.shape, np.nan)
    ones = linalg.cho_solve(factor, np.ones(len(u)), check_finite=False)
    mean = (ones @ known.y) / ones.sum()
    weights = linalg.cho_solve(factor, known.y - mean, check_finite=False)
    return np.asarray(hidden.y - mean - kernel_values(fit.kernel, v, u) @ weights)
