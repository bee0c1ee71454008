"""Families of feature maps: what each kind of map needs to be planned, drawn, summed and solved.

A family is a kind of map together with the sums that answer for it. Estimators and passes ask
:func:`family_of` for the one of a map (or of ``features=``) and look at the kind no further, so
that a model that is loaded or goes on knows its own. To add a family: write a class that keeps
:class:`~rff_stream.families.protocol.Family` and name it in ``FAMILIES`` of
:mod:`rff_stream.families.choice`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rff_stream.families.choice import family_of
from rff_stream.families.level_intercepts import mapped_inputs, refuse_coded
from rff_stream.families.maps import check_metric
from rff_stream.families.protocol import (
    DrawnMap,
    Family,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
)
from rff_stream.families.whole_space import LinearAnswer, WholeFamily

__all__ = [
    "DrawnMap",
    "Family",
    "LinearAnswer",
    "MapParameters",
    "StoredAnswer",
    "SumRequest",
    "Totals",
    "WholeFamily",
    "check_map",
    "check_whole_space",
    "family_of",
]


def check_map(asked: MapParameters, inputs: Sequence[str]) -> None:
    """Refuse, before a row is read, a map that is not for these inputs.

    Raises
    ------
    ValueError
        Naming the parameter, or the column of many levels that the family has no columns for.
    """
    check_metric(asked, len(inputs))
    family = family_of(asked.features)
    if family != WholeFamily():
        refuse_coded(inputs, f"features={asked.features!r}")
    family.check(asked, mapped_inputs(asked.features, inputs))


def check_whole_space(features: Any, name: str) -> None:
    """Refuse maps of other families for an estimator (by name) that has no answer for them."""
    if family_of(features) != WholeFamily():
        raise ValueError(
            f"features={features!r} but {name} answers for maps of the whole space; cells and "
            "grids are for KernelRidge and GaussianProcessRegressor. Choose another map."
        )
