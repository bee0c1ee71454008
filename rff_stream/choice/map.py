"""Several candidate maps: one read adds up the sums of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import Rule, is_several
from rff_stream.features.base import MAPS, MapRequest, NamedMap, Nesting, UndrawnMap
from rff_stream.features.composed import parts_of, periods_of, specs_of

MAPS_OR_NAMES = Rule("a list of maps or names", is_several)


@dataclass(frozen=True, slots=True)
class Candidates(UndrawnMap):
    """Maps to choose from after one read: ``features=Candidates(…)``; "auto" is ``Candidates()``.

    Parameters
    ----------
    maps : tuple of str, Cells or Grid, optional
        Names of maps, or requests. The default is "whole"; "local" if there are more rows than
        columns of that map; and "grid" for up to three inputs if finufft is installed. Candidates
        that do not fit in memory are left out.

    Raises
    ------
    ValueError
        If a candidate is neither cells, a grid nor the name of a map.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).uniform(-1, 1, (1000, 2)); y = np.sin(20 * X[:, 0]) * X[:, 1]
    >>> candidates = rs.Candidates(("whole", rs.Cells(n_components=64, n_trees=2)))
    >>> model = rs.KernelRidge(length_scale=0.2, features=candidates, random_state=0).fit(X, y)
    >>> model.choice_.names
    ('whole', 'local')
    """

    maps: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.maps is None:
            return
        MAPS_OR_NAMES.check("maps", self.maps)
        object.__setattr__(self, "maps", tuple(self.maps))
        known = MAPS.by_choice
        for each in self.maps or (None,):
            if not (_is_one_map(each) or (isinstance(each, str) and each in known)):
                raise ValueError(
                    f"maps={self.maps!r} but candidates are Cells(…), Grid(…) or names: "
                    f"{', '.join(map(repr, sorted(known)))}. Give one or more of them."
                )

    def plain(self, of: Callable[[Any], Any]) -> Any:
        return of(self.maps)

    @classmethod
    def from_plain(cls, plain: Any, value: Callable[[Any], Any]) -> Any:
        return cls(value(plain))


def _is_one_map(features: Any) -> bool:
    return isinstance(features, UndrawnMap) and not isinstance(features, Candidates)


@dataclass(frozen=True, eq=False, repr=False)
class CandidateFeatures(NamedMap):
    """Maps of the same inputs, each of a family and with sums of its own."""

    maps: tuple[Any, ...]

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: its maps are drawn by their families."""
        raise ValueError(f"features={choice!r} but candidates are for regressors: choose a map.")

    @property
    def periods(self) -> Mapping[int, float]:
        """Those that all maps agree on."""
        first, *others = (periods_of(each) for each in self.maps)
        alike = (place for place in first if all(first[place] == own.get(place) for own in others))
        return {place: first[place] for place in alike}

    @property
    def n_inputs(self) -> int:
        """d."""
        return int(self.maps[0].n_inputs)

    @property
    def n_components(self) -> int:
        """Columns of all maps together."""
        return sum(each.n_components for each in self.maps)

    @property
    def dtype(self) -> Any:
        """float64 if that of any map is."""
        return np.result_type(*(np.dtype(each.dtype) for each in self.maps)).name

    @property
    def nesting(self) -> Nesting:
        """The first columns alone are not a map."""
        return "none"

    @cached_property
    def fingerprint(self) -> str:
        """Those of the maps, one after the other."""
        return "+".join(each.fingerprint for each in self.maps)

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays: those of map i under names that begin with p<i>_."""
        parts, arrays = specs_of(self.maps)
        return {"map": "candidates", "parts": parts}, arrays

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The maps that gave this spec, bit for bit."""
        return cls(parts_of(plain, arrays))

    @classmethod
    def short_name(cls) -> str:
        """What specs call it."""
        return "candidates"

    def __repr__(self) -> str:
        return f"<Candidates: {', '.join(map(repr, self.maps))}>"
