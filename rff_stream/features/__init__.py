"""Feature maps: rows (n, d) -> raw, nested columns (n, R)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.features.base import FeatureMap
from rff_stream.features.fourier import FourierFeatures

__all__ = ["FeatureMap", "FourierFeatures", "map_from_spec"]

_MAPS = {"fourier": FourierFeatures}


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
    return _MAPS[name].from_spec(plain, arrays)
