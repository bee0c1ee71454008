"""Feature maps: rows (n, d) -> raw, nested columns (n, R)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.features.base import FeatureMap
from rff_stream.features.binning import RandomBinningFeatures
from rff_stream.features.composed import ByColumns, SideBySide, Then, by_columns
from rff_stream.features.encodings import OneHot, Periodic, PiecewiseLinear, Scaled, Sphere
from rff_stream.features.fourier import FourierFeatures
from rff_stream.features.hermite import HermiteFeatures
from rff_stream.features.nystroem import NystroemFeatures
from rff_stream.features.structured import StructuredFeatures

__all__ = [
    "ByColumns",
    "FeatureMap",
    "FourierFeatures",
    "HermiteFeatures",
    "NystroemFeatures",
    "OneHot",
    "Periodic",
    "PiecewiseLinear",
    "RandomBinningFeatures",
    "Scaled",
    "SideBySide",
    "Sphere",
    "StructuredFeatures",
    "Then",
    "by_columns",
    "map_from_spec",
]

_MAPS: dict[str, Any] = {
    "fourier": FourierFeatures,
    "structured": StructuredFeatures,
    "nystroem": NystroemFeatures,
    "binning": RandomBinningFeatures,
    "hermite": HermiteFeatures,
    "periodic": Periodic,
    "piecewise_linear": PiecewiseLinear,
    "one_hot": OneHot,
    "sphere": Sphere,
    "scaled": Scaled,
    "side_by_side": SideBySide,
    "then": Then,
    "by_columns": ByColumns,
}


def map_from_spec(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
    """The feature map that gave this ``spec()``.

    Raises
    ------
    ModelError
        When the spec names no map of this version, or its fields do not fit.
    """
    name = plain.get("map")
    if name not in _MAPS:
        raise ModelError(
            f"The spec names feature map {name!r} but this version has {', '.join(_MAPS)}. "
            "Upgrade rff_stream, or check where the spec comes from."
        )
    found: FeatureMap = _MAPS[name].from_spec(plain, arrays)
    return found
