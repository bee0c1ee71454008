"""A map for what a line of the inputs leaves of the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rff_stream._array import Array
from rff_stream.families.around import MapAround
from rff_stream.features.base import MapRequest
from rff_stream.features.composed import parts_of
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.stored_fields import pack_fields, unpack_fields


@dataclass(frozen=True, eq=False, repr=False)
class TrendFeatures(MapAround):
    """A map, and the line that was taken from the targets of its sums."""

    trend: LinearTrend

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: a search finds the line."""
        raise ValueError(f"features={choice!r} but a line is found by a search: choose a map.")

    @property
    def own_arrays(self) -> dict[str, Array]:
        """The line."""
        return pack_fields(self.trend)[1]

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        (own,) = parts_of(plain, arrays)
        return cls(own, unpack_fields(LinearTrend, {}, arrays))

    def __repr__(self) -> str:
        return f"<Trend: a line + {self.map!r}>"
