"""The family of a map, found in the folders that are known; what is refused of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rff_stream.families.level_intercepts import mapped_inputs, refuse_coded
from rff_stream.families.maps import check_metric
from rff_stream.families.protocol import WHOLE, Family, MapParameters
from rff_stream.registry import family_modules


def family_of(features: Any) -> Family:
    """The family of a map, of the name of one, or of a request for one."""
    named = isinstance(features, str)
    families: list[Family] = [module.FAMILY for module in family_modules("family")]
    for family in families[:-1]:
        if features == family.name if named else isinstance(features, family.kinds):
            return family
    return families[-1]


def check_map(asked: MapParameters, inputs: Sequence[str]) -> None:
    """Refuse, before a row is read, a map that is not for these inputs.

    Raises
    ------
    ValueError
        Naming the parameter, or the column of many levels that the family has no columns for.
    """
    check_metric(asked, len(inputs))
    family = family_of(asked.features)
    if family.name != WHOLE:
        refuse_coded(inputs, f"features={asked.features!r}")
    family.check(asked, mapped_inputs(asked.features, inputs))


def check_whole_space(features: Any, name: str) -> None:
    """Refuse maps of other families for an estimator (by name) that has no answer for them."""
    if family_of(features).name != WHOLE:
        raise ValueError(
            f"features={features!r} but {name} answers for maps of the whole space; cells and "
            "grids are for KernelRidge and GaussianProcessRegressor. Choose another map."
        )
