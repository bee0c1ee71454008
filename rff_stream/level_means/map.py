"""A map behind numbers in the place of many levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from rff_stream._array import Array, Float64, digest
from rff_stream.features.base import MapRequest, NamedMap, Nesting
from rff_stream.features.composed import parts_of, periods_of, specs_of
from rff_stream.level_means.means import LevelMeans
from rff_stream.stored_fields import pack_fields, unpack_fields


@dataclass(frozen=True, eq=False, repr=False)
class LevelFeatures(NamedMap):
    """A map of rows in which each level is its mean."""

    map: Any
    means: LevelMeans

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: means are found from targets."""
        raise ValueError(f"features={choice!r} but means of levels are found by a fit.")

    @property
    def maps(self) -> tuple[Any, ...]:
        """Those whose answers are averaged, or the one."""
        return tuple(getattr(self.map, "maps", (self.map,)))

    @property
    def known_levels(self) -> Mapping[int, Float64]:
        """The numbers of the levels that have a mean, by the place of their input."""
        return self.means.known

    @property
    def periods(self) -> Mapping[int, float]:
        """Those of the map."""
        return periods_of(self.map)

    @property
    def n_inputs(self) -> int:
        """d."""
        return int(self.map.n_inputs)

    @property
    def n_components(self) -> int:
        """Columns of the map."""
        return int(self.map.n_components)

    @property
    def row_columns(self) -> int:
        """Those of the map."""
        return int(self.map.row_columns)

    @property
    def dtype(self) -> Any:
        """That of the map."""
        return self.map.dtype

    @property
    def nesting(self) -> Nesting:
        """The first columns alone are not a map."""
        return "none"

    @cached_property
    def fingerprint(self) -> str:
        """That of each map, and after it that of the means."""
        means = digest("", self._arrays)
        return "+".join(f"{each}~{means}" for each in self.map.fingerprint.split("+"))

    @property
    def _arrays(self) -> dict[str, Array]:
        return {f"level_{name}": own for name, own in pack_fields(self.means)[1].items()}

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays: those of the map under names that begin with p0_."""
        parts, arrays = specs_of((self.map,))
        return {"map": "level", "parts": parts}, arrays | self._arrays

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        (own,) = parts_of(plain, arrays)
        values = {
            name.removeprefix("level_"): each
            for name, each in arrays.items()
            if name.startswith("level_")
        }
        return cls(own, unpack_fields(LevelMeans, {}, values))

    def __repr__(self) -> str:
        return f"<Levels: means of {len(self.means.codes):,} levels before {self.map!r}>"
