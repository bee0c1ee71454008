"""What a map around another has in common with all such: a line beside it, means in front of it.

All but what it adds is that of the map inside, and of its family.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rff_stream._array import Array, digest
from rff_stream.families.protocol import Family, MapParameters, StoredAnswer, Totals, family_of
from rff_stream.features.base import NamedMap, Nesting
from rff_stream.features.composed import periods_of, specs_of
from rff_stream.moments import AugmentedRow
from rff_stream.planning import PlanRequest
from rff_stream.sources.protocol import Source


@dataclass(frozen=True, eq=False, repr=False)
class MapAround(NamedMap):
    """A map around another. A subclass has ``own_arrays``, and says how it is rebuilt."""

    map: Any

    @property
    def own_arrays(self) -> dict[str, Array]:
        """What is stored beside the map inside."""
        return {}

    @property
    def maps(self) -> tuple[Any, ...]:
        """Those whose answers are averaged, or the one."""
        return tuple(getattr(self.map, "maps", (self.map,)))

    @property
    def periods(self) -> Mapping[int, float]:
        """Those of the map inside."""
        return periods_of(self.map)

    @property
    def n_inputs(self) -> int:
        """d."""
        return int(self.map.n_inputs)

    @property
    def n_components(self) -> int:
        """Columns of the map inside."""
        return int(self.map.n_components)

    @property
    def row_columns(self) -> int:
        """Those of the map inside."""
        return int(self.map.row_columns)

    @property
    def dtype(self) -> Any:
        """That of the map inside."""
        return self.map.dtype

    @property
    def nesting(self) -> Nesting:
        """The first columns alone are not a map."""
        return "none"

    @cached_property
    def fingerprint(self) -> str:
        """That of each map, and after it that of what is around."""
        own = digest("", self.own_arrays)
        return "+".join(f"{each}~{own}" for each in self.map.fingerprint.split("+"))

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays: those of the map inside under names that begin with p0_."""
        parts, arrays = specs_of((self.map,))
        return {"map": self.short_name(), "parts": parts}, arrays | self.own_arrays


class FamilyAround(Family):
    """The family of such maps. A subclass draws them, and says what their sums and answers are."""

    @abstractmethod
    def inner_sums(self, features: Any, sums: Any) -> Any:
        """The sums as they are for the map inside: their sampled rows are other ones."""

    @abstractmethod
    def outer_answer(self, features: Any, answer: Any) -> Any:
        """The answer for rows as they are read, from that of the map inside."""

    def growth(self, features: Any, n_rows: int) -> float:
        return family_of(features.map).growth(features.map, n_rows)

    def tells_left_out(self, features: Any) -> bool:
        return family_of(features.map).tells_left_out(features.map)

    def check(self, parameters: MapParameters, n_inputs: int) -> None:
        inner: Any = parameters.features
        family_of(inner.map).check(replace(parameters, features=inner.map), n_inputs)

    def request(self, features: Any, n_components: int, source: Source) -> PlanRequest:
        return family_of(features.map).request(features.map, n_components, source)

    def foresee(self, request: PlanRequest, parameters: MapParameters, n_rows: int) -> PlanRequest:
        inner: Any = parameters.features
        own = replace(parameters, features=inner.map)
        return family_of(inner.map).foresee(request, own, n_rows)

    def zero(self, features: Any, row: AugmentedRow, order: int) -> Any:
        return family_of(features.map).zero(features.map, row, order)

    def solve(
        self, totals: Totals, alpha: Any, *, fit_intercept: bool, refine: int, variances: bool
    ) -> Any:
        features, given = totals.features, totals.parameters
        inner = features.map
        groups = {label: self.inner_sums(features, part) for label, part in totals.groups.items()}
        own = replace(
            totals,
            features=inner,
            groups=groups,
            total=self.inner_sums(features, totals.total),
            parameters=None if given is None else replace(given, features=inner),
        )
        found = family_of(inner).solve(
            own, alpha, fit_intercept=fit_intercept, refine=refine, variances=variances
        )
        return self.outer_answer(features, found)

    def restore(self, stored: StoredAnswer, *, variances: bool) -> Any:
        features, total = stored.features, stored.total
        total = None if total is None else self.inner_sums(features, total)
        own = replace(stored, features=features.map, total=total)
        return self.outer_answer(
            features, family_of(features.map).restore(own, variances=variances)
        )
