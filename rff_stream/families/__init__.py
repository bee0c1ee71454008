"""Families of feature maps: what each kind of map needs to be planned, drawn, summed and solved.

A family is a kind of map together with the sums that answer for it. Estimators and passes ask
:func:`family_of` for the one of a map (or of ``features=``) and look at the kind no further, so
that a model that is loaded or goes on knows its own. To add a family: write a class that keeps
:class:`~rff_stream.families.protocol.Family` and name it in ``FAMILIES`` of
:mod:`rff_stream.families.choice`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rff_stream.families.cells import seconds_of_windows
from rff_stream.families.choice import family_of
from rff_stream.families.grid import foresee_solve
from rff_stream.families.maps import seconds_of_search
from rff_stream.families.protocol import (
    DrawnMap,
    Family,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
)
from rff_stream.families.whole import LinearAnswer, WholeFamily
from rff_stream.planning import PlanRequest

__all__ = [
    "DrawnMap",
    "Family",
    "LinearAnswer",
    "MapParameters",
    "StoredAnswer",
    "SumRequest",
    "Totals",
    "check_whole_space",
    "family_of",
    "foresee",
]


def foresee(
    request: PlanRequest, features: Any, kernel: Any, length_scale: Any, penalty: Any, n_rows: int
) -> PlanRequest:
    """The request with what kernel and penalty cost: a search before the pass, the solve after it.

    A grid searches after the pass: that is in the cost of its solve.
    """
    cost = foresee_solve(request.cost, features, kernel, length_scale, penalty, n_rows)
    whole = isinstance(features, str) and family_of(features) == WholeFamily()
    price = seconds_of_search if whole else partial(seconds_of_windows, features)
    seconds = price(kernel, length_scale, n_rows)
    return replace(request, cost=cost, search_seconds=seconds)


def check_whole_space(features: Any, name: str) -> None:
    """Refuse maps of other families for an estimator (by name) that has no answer for them."""
    if family_of(features) != WholeFamily():
        raise ValueError(
            f"features={features!r} but {name} answers for maps of the whole space; cells and "
            "grids are for KernelRidge and GaussianProcessRegressor. Choose another map."
        )
