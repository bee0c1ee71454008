"""Maps of maps: side by side, one after the other, and each for its own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rff_stream._array import Array, Float64, nested_arrays
from rff_stream.errors import ModelError
from rff_stream.features.base import FeatureMap, Nesting, RowwiseMap, map_from_spec, prior_count


def periods_of(features: Any) -> Mapping[int, float]:
    """The period of each input, by its place, that a map takes as periodic."""
    return getattr(features, "periods", {})  # maps of users do not say


class _ComposedMap(RowwiseMap):
    """What maps of maps share: nested specs, and the priors of their parts."""

    maps: tuple[Any, ...]

    @property
    def dtype(self) -> Any:
        """float64 if that of any part is."""
        return np.result_type(*(np.dtype(part.dtype) for part in self.maps)).name

    @property
    def n_components(self) -> int:
        return sum(part.n_components for part in self.maps)

    @property
    def nesting(self) -> Nesting:
        return "none"

    def prior(self, n_components: int | None = None) -> Float64:
        """Those of the parts, one after the other.

        Raises
        ------
        ValueError
            If fewer columns are asked for, and those of the maps do not nest.
        """
        if prior_count(n_components, self.n_components) < self.n_components:
            raise ValueError(
                f"n_components={n_components} but columns of maps side by side do not nest. "
                "Make the smaller map."
            )
        return np.concatenate([part.prior() for part in self.maps])

    def _plain(self) -> dict[str, Any]:
        """What this map says beside its parts."""
        return {}

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays: those of part i under names that begin with p<i>_."""
        parts, arrays = specs_of(self.maps)
        return {"map": self.short_name()} | self._plain() | {"parts": parts}, arrays

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} of {len(self.maps)}: {self.n_inputs} inputs to {self.n_components}>"


def split_columns(maps: Sequence[Any], weights: Float64) -> list[Float64]:
    """Weights (…, R, T) of the columns of each map."""
    ends = np.cumsum([part.n_components for part in maps])
    return np.split(weights, ends[:-1], axis=-2)


def specs_of(maps: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """The specs of maps, and arrays of map i under names that begin with p<i>_."""
    specs = [part.spec() for part in maps]
    arrays = {f"p{i}_{name}": a for i, (_, own) in enumerate(specs) for name, a in own.items()}
    return [plain for plain, _ in specs], arrays


def parts_of(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[FeatureMap, ...]:
    """The maps of a composed spec."""
    try:
        specs = list(plain["parts"])
    except (KeyError, TypeError) as error:
        raise ModelError(
            f"The spec of a composed map cannot be read: {error!r}. Check where it comes from."
        ) from error
    return tuple(
        map_from_spec(spec, nested_arrays(arrays, f"p{i}_")) for i, spec in enumerate(specs)
    )


@dataclass(frozen=True, eq=False, repr=False)
class SideBySide(_ComposedMap):
    """[z₁(x), z₂(x), …] of the same inputs: the kernel is the sum. Made by ``a | b``.

    Raises
    ------
    ValueError
        If the maps take different inputs.
    """

    maps: tuple[Any, ...]

    def __post_init__(self) -> None:
        maps = tuple(
            inner
            for part in self.maps
            for inner in (part.maps if isinstance(part, SideBySide) else (part,))
        )
        object.__setattr__(self, "maps", maps)
        inputs = [part.n_inputs for part in maps]
        if len(set(inputs)) != 1:
            raise ValueError(
                f"Maps side by side take {inputs} inputs but must take the same. "
                "Use by_columns to give each its own."
            )

    @property
    def n_inputs(self) -> int:
        return int(self.maps[0].n_inputs)

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        return super().from_spec({"maps": parts_of(plain, arrays)}, {})

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """The sum of those of the parts."""
        parts = zip(self.maps, split_columns(self.maps, weights), strict=True)
        return np.asarray(sum(part.slopes(X, own) for part, own in parts))

    def _map_batch(self, x: Array, Z: Array) -> None:
        lo = 0
        for part in self.maps:
            part(x, out=Z[:, lo : lo + part.n_components])
            lo += part.n_components


@dataclass(frozen=True, eq=False, repr=False)
class Then(_ComposedMap):
    """z₂(z₁(x)): an encoding, then a map of its columns. Made by ``a.then(b)``.

    Raises
    ------
    ValueError
        If the second map takes another number of inputs than the first has columns.
    """

    first: FeatureMap
    second: FeatureMap

    def __post_init__(self) -> None:
        if self.first.n_components != self.second.n_inputs:
            raise ValueError(
                f"The first map gives {self.first.n_components} columns but the second takes "
                f"{self.second.n_inputs}. Make the second for these columns."
            )

    @property
    def maps(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Both."""
        return self.first, self.second

    @property
    def periods(self) -> Mapping[int, float]:
        """Those of the first."""
        return periods_of(self.first)

    @property
    def dtype(self) -> Any:
        """That of the second."""
        return self.second.dtype

    @property
    def n_inputs(self) -> int:
        return self.first.n_inputs

    @property
    def n_components(self) -> int:
        return self.second.n_components

    @property
    def nesting(self) -> Nesting:
        return self.second.nesting

    def prior(self, n_components: int | None = None) -> Float64:
        """That of the second."""
        return self.second.prior(n_components)

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        names = ("first", "second")
        return super().from_spec(dict(zip(names, parts_of(plain, arrays), strict=False)), {})

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """By the chain rule."""
        between = self.first(X, out=np.empty((len(X), self.first.n_components)))
        return self.first.slopes(X, self.second.slopes(between, weights))

    def _map_batch(self, x: Array, Z: Array) -> None:
        between = np.empty((len(x), self.first.n_components))  # float64: z₁ is only rounded once
        self.second(self.first(x, out=between), out=Z)


@dataclass(frozen=True, eq=False, repr=False)
class ByColumns(_ComposedMap):
    """Each map of its own columns, one beside the other; see :func:`by_columns`.

    Parameters
    ----------
    maps : sequence of FeatureMap
    columns : sequence of sequences of int
        Columns of X that each map takes, in its order.
    n_inputs : int
        d, the columns of X.

    Raises
    ------
    ValueError
        If a map takes another number of columns than it is given.
    """

    maps: tuple[Any, ...]
    columns: tuple[tuple[int, ...], ...]
    n_inputs: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", tuple(self.maps))
        object.__setattr__(self, "columns", tuple(tuple(c) for c in self.columns))
        for part, columns in zip(self.maps, self.columns, strict=True):
            if part.n_inputs != len(columns) or not all(0 <= j < self.n_inputs for j in columns):
                raise ValueError(
                    f"{part!r} takes {part.n_inputs} inputs but got columns {columns} of "
                    f"{self.n_inputs}. Give each map as many columns as it takes."
                )

    @property
    def periods(self) -> Mapping[int, float]:
        """Of the columns that a periodic map takes."""
        pairs = zip(self.maps, self.columns, strict=True)
        return {own[k]: period for part, own in pairs for k, period in periods_of(part).items()}

    def _plain(self) -> dict[str, Any]:
        columns = [list(c) for c in self.columns]
        return {"columns": columns, "n_inputs": self.n_inputs}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        own = {name: plain[name] for name in plain.keys() - {"map", "parts"}}
        return super().from_spec(own | {"maps": parts_of(plain, arrays)}, {})

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """Those of every part along its own columns; 0 along columns that no part takes."""
        found = np.zeros((len(X), self.n_inputs, weights.shape[-1]))
        parts = zip(self.maps, self.columns, split_columns(self.maps, weights), strict=True)
        for part, columns, own in parts:
            found[:, list(columns)] += part.slopes(X[:, list(columns)], own)
        return found

    def _map_batch(self, x: Array, Z: Array) -> None:
        lo = 0
        for part, columns in zip(self.maps, self.columns, strict=True):
            part(x[:, list(columns)], out=Z[:, lo : lo + part.n_components])
            lo += part.n_components


def by_columns(maps: Mapping[Any, FeatureMap], inputs: Sequence[str]) -> ByColumns:
    """A map for each column or group of columns, side by side.

    Parameters
    ----------
    maps : mapping of a column, or a tuple of columns, to a map
        Columns that no map takes are left out.
    inputs : sequence of str
        Names of the columns of X, in their order.

    Raises
    ------
    ValueError
        If a column is not among the inputs.
    TypeError
        If a column is given something that is no map.

    Examples
    --------
    >>> from rff_stream.features import Periodic, Sphere
    >>> place = by_columns(
    ...     {("lat", "lon"): Sphere(), "hour": Periodic(24)}, ["hour", "lat", "lon"]
    ... )
    >>> place
    <ByColumns of 2: 3 inputs to 5>
    """
    for name, part in maps.items():
        if not isinstance(part, FeatureMap):
            raise TypeError(
                f"Column {name!r} chose {part!r}, which is no feature map. Give it one, such as "
                "Periodic(24), or leave the column out; cells are of all columns together: "
                "Cells(encode={'hour': Periodic(24)})."
            )
    positions = {name: j for j, name in enumerate(inputs)}
    chosen = [(name,) if isinstance(name, str) else tuple(name) for name in maps]
    unknown = sorted({name for names in chosen for name in names} - positions.keys())
    if unknown:
        raise ValueError(
            f"Columns {unknown} are not among the inputs {list(inputs)}. Name columns of these."
        )
    columns = tuple(tuple(positions[name] for name in names) for names in chosen)
    return ByColumns(tuple(maps.values()), columns, len(inputs))


def encode_rows(encoding: Any, X: Array) -> Array:
    """Rows X (n, d) in the columns of an encoding, float64; as they are without one."""
    if encoding is None:
        return X
    return np.asarray(encoding(X), np.float64)
