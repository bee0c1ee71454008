"""How the moments of some groups lie in a store, said by the class of the moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.registry import family_modules

Form = tuple[tuple[int, ...], str]
"""Shape and dtype."""

SHARED_DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "moments": ("group", "packed"),
    "rows": ("group",),
    "weights": ("group", "power"),
    "sample_sizes": ("group", "size"),
    "sample_keys": ("sampled",),
    "sample_rows": ("sampled", "sampled_column"),
    "sample_reach": ("group", "end", "input"),
}
"""Arrays of a batch of any class. weights: Σw² and Σlog w. sample_sizes: k and m of each group.
sample_reach: least and greatest value of each input, where all groups know them."""

_CLASSES: dict[str, type[StoredMoments]] = {}


class StoredMoments:
    """Moments of groups as arrays: those that every class has, and ``own_arrays``."""

    __slots__ = ()

    mark: ClassVar[str] = ""
    """The array that only groups of this class have; "" for the class that has none."""
    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Of the arrays that are its own."""
    several: ClassVar[bool] = False
    """Whether a value is ``members``, sums of several maps, each in a folder of its own."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "dimensions" in vars(cls):
            _CLASSES[cls.mark] = cls

    @classmethod
    def own_arrays(cls, groups: Sequence[Any]) -> dict[str, Array | list[Array]]:
        """Besides rows, weights and samples; a list is an array with one chunk a group."""
        return {"moments": [each.sums for each in groups]}

    @classmethod
    def own_forms(
        cls, row: Any, order: int, count: int, found: Mapping[str, Form]
    ) -> dict[str, Form]:
        """What these arrays must be, for so many groups of a row; ``found`` says what they are."""
        raise NotImplementedError

    @classmethod
    def from_stored(
        cls, row: Any, order: int, arrays: Mapping[str, Any], i: int, sample: Any
    ) -> Self:
        """The moments of group i."""
        raise NotImplementedError

    def own_faults(self) -> Iterator[tuple[str, bool]]:
        """(what, whether) of everything that cannot be in the moments of rows."""
        yield from ()


def stored_class(names: Sequence[str]) -> type[Any]:
    """The class whose groups have arrays of these names."""
    family_modules("moments")  # defines them
    return next((cls for mark, cls in _CLASSES.items() if mark and mark in names), _CLASSES[""])


def all_dimensions() -> dict[str, tuple[str, ...]]:
    """Arrays that a batch may have, of every class."""
    family_modules("moments")
    found = dict(SHARED_DIMENSIONS)
    for cls in _CLASSES.values():
        found |= cls.dimensions
    return found


def numbers_of(arrays: Mapping[str, Any], i: int) -> tuple[int, float, float]:
    """Rows, Σw² and Σlog w of group i."""
    squared, logarithm = (float(weight) for weight in np.asarray(arrays["weights"][i]))
    return int(arrays["rows"][i]), squared, logarithm
