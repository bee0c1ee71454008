"""A map behind numbers in the place of many levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rff_stream._array import Array, Float64, nested_arrays
from rff_stream.families.around import MapAround
from rff_stream.features.base import MapRequest
from rff_stream.features.composed import parts_of
from rff_stream.level_means.means import LevelMeans
from rff_stream.stored_fields import pack_fields, unpack_fields


@dataclass(frozen=True, eq=False, repr=False)
class LevelFeatures(MapAround):
    """A map of rows in which each level is its mean."""

    means: LevelMeans

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: means are found from targets."""
        raise ValueError(f"features={choice!r} but means of levels are found by a fit.")

    @property
    def known_levels(self) -> Mapping[int, Float64]:
        """The numbers of the levels that have a mean, by the place of their input."""
        return self.means.known

    @property
    def own_arrays(self) -> dict[str, Array]:
        """The means."""
        return {f"level_{name}": own for name, own in pack_fields(self.means)[1].items()}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        (own,) = parts_of(plain, arrays)
        return cls(own, unpack_fields(LevelMeans, {}, nested_arrays(arrays, "level_")))

    def __repr__(self) -> str:
        return f"<Levels: means of {len(self.means.codes):,} levels before {self.map!r}>"
