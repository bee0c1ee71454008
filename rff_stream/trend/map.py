"""A map for what a line of the inputs leaves of the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from rff_stream._array import Array, digest
from rff_stream.features.base import MapRequest, NamedMap, Nesting
from rff_stream.features.composed import parts_of, periods_of, specs_of
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.stored_fields import pack_fields, unpack_fields


@dataclass(frozen=True, eq=False, repr=False)
class TrendFeatures(NamedMap):
    """A map, and the line that was taken from the targets of its sums."""

    map: Any
    trend: LinearTrend

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: a search finds the line."""
        raise ValueError(f"features={choice!r} but a line is found by a search: choose a map.")

    @property
    def maps(self) -> tuple[Any, ...]:
        """Those whose answers are averaged, or the one."""
        return tuple(getattr(self.map, "maps", (self.map,)))

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
        """That of each map, and after it that of the line."""
        line = digest("", self._arrays)
        return "+".join(f"{each}~{line}" for each in self.map.fingerprint.split("+"))

    @property
    def _arrays(self) -> dict[str, Array]:
        return pack_fields(self.trend)[1]

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays: those of the map under names that begin with p0_."""
        parts, arrays = specs_of((self.map,))
        return {"map": "trend", "parts": parts}, arrays | self._arrays

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        (own,) = parts_of(plain, arrays)
        return cls(own, unpack_fields(LinearTrend, {}, arrays))

    def __repr__(self) -> str:
        return f"<Trend: a line + {self.map!r}>"
