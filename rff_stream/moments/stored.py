"""Moments of some groups as named arrays, and back: the one form of stores and checkpoints.

Their class says which arrays are its own (:class:`StoredMoments`); of sums of several maps, those
of map i are named "i/…".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.moments.row_sample import RowSample
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
    """Whether a value is ``members``, sums of several maps, with arrays for each of them."""

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


def arrays_of(groups: Sequence[Any], place: str) -> dict[str, Array | list[Array]]:
    """All arrays of the moments of some groups of one row and order, at least one.

    Raises ModelError: for arrays that no pass gives, by ``place`` and name.
    """
    kind, first = type(groups[0]), groups[0]
    found: dict[str, Any] = {}
    if kind.several:
        several = list(zip(*(group.members for group in groups), strict=True))
        known = [next((m for m in members if m is not None), None) for members in several]
        sizes = [0 if m is None else m.row.n_features for m in known]
        there = [all(each is not None for each in members) for members in several]
        found[kind.mark] = np.array([sizes, there], np.int64).T
        for i in np.flatnonzero(there).tolist():
            own = arrays_of(several[i], f"{place}/{i}")
            found |= {f"{i}/{name}": values for name, values in own.items()}
        return found
    samples = [each.sample for each in groups]
    found = {
        "rows": np.array([each.n for each in groups], np.int64),
        "weights": np.array([[each.squared_weight, each.log_weight] for each in groups]),
        "sample_sizes": np.array([[s.size, len(s.keys)] for s in samples], np.int64),
        "sample_keys": np.concatenate([s.keys for s in samples]),
        "sample_rows": np.concatenate([s.rows for s in samples]),
    }
    reaches = [s.reach for s in samples if s.reach is not None]
    if len(reaches) == len(groups):
        found["sample_reach"] = np.stack(reaches)
    found |= kind.own_arrays(groups)
    _check_shapes(kind, first.row, first.order, len(groups), found, place)
    return found


def moments_of(
    row: Any, order: int, count: int, arrays: Mapping[str, Any], place: str
) -> list[Any]:
    """The moments of so many groups that gave these arrays.

    Raises ModelError: for arrays that moments of this row cannot have, by ``place`` and name.
    """
    kind = stored_class(list(arrays))
    if kind.several:
        return _of_several(kind, row, order, count, arrays, place)
    _check_shapes(kind, row, order, count, arrays, place)
    sizes = arrays["sample_sizes"]
    stops = np.cumsum(sizes[:, 1])
    found = []
    for i in range(count):
        chosen = slice(int(stops[i] - sizes[i, 1]), int(stops[i]))
        keys, rows = arrays["sample_keys"][chosen], arrays["sample_rows"][chosen]
        reach = arrays["sample_reach"][i] if "sample_reach" in arrays else None
        sample = RowSample(int(sizes[i, 0]), keys, rows, reach)
        found.append(kind.from_stored(row, order, arrays, i, sample))
    return found


def _of_several(
    kind: Any, row: Any, order: int, count: int, arrays: Mapping[str, Any], place: str
) -> list[Any]:
    """Sums of several maps, of the arrays of each."""
    facts = arrays[kind.mark]
    names = row.map_fingerprint.split("+")
    if facts.shape != (len(names), 2) or facts[:, 0].sum() != row.n_features or facts.min() < 0:
        raise ModelError(
            f"{place}/{kind.mark} is {facts.tolist()}, but its row has {len(names)} maps "
            f"with {row.n_features} columns. Collect the moments again, or restore the file from "
            "a copy."
        )
    members: list[list[Any]] = []
    rows = kind.member_rows(row, facts[:, 0].tolist())
    for i, (own, there) in enumerate(zip(rows, facts[:, 1].tolist(), strict=True)):
        start = f"{i}/"
        inner = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
        known = moments_of(own, order, count, inner, f"{place}/{i}") if there else [None] * count
        members.append(known)
    return [kind(row, each) for each in zip(*members, strict=True)]


def _shape(values: Any) -> Form:
    """Of an array, or of the array whose rows these are."""
    if isinstance(values, list):
        return (len(values), *values[0].shape), values[0].dtype.name
    return values.shape, values.dtype.name


def _check_shapes(
    kind: Any, row: Any, order: int, count: int, arrays: Mapping[str, Any], place: str
) -> None:
    """Refuse arrays of other shapes or dtypes than groups of this class have."""
    found = {name: _shape(values) for name, values in arrays.items()}
    sizes = arrays.get("sample_sizes", np.zeros((0, 2), np.int64))
    whole = sizes.shape == (count, 2) and bool((sizes >= 0).all())
    sampled = sum(sizes[:, 1].tolist()) if whole else -1
    expected: dict[str, Form] = {
        "rows": ((count,), "int64"),
        "weights": ((count, 2), "float64"),
        "sample_sizes": ((count, 2), "int64"),
        "sample_keys": ((sampled,), "uint64"),
        "sample_rows": ((sampled, len(row.inputs) + row.n_targets + 1), "float64"),
    }
    expected |= kind.own_forms(row, order, count, found)
    if "sample_reach" in found:  # not in stores of before it was kept
        expected["sample_reach"] = ((count, 2, len(row.inputs)), "float64")
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise ModelError(
                f"{place}/{name} is {found.get(name, 'absent')}, but its row, order and groups ask "
                f"for {expected.get(name, 'no such array')}. Collect the moments again, or "
                "restore the file from a copy."
            )


def numbers_of(arrays: Mapping[str, Any], i: int) -> tuple[int, float, float]:
    """Rows, Σw² and Σlog w of group i."""
    squared, logarithm = (float(weight) for weight in np.asarray(arrays["weights"][i]))
    return int(arrays["rows"][i]), squared, logarithm
