"""The contract of a feature map: rows (n, d) -> raw, nested columns (n, R)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from rff_stream._array import Array, Float64, digest
from rff_stream.errors import ModelError
from rff_stream.kernels import Kernel
from rff_stream.registry import Registry, snake_case

BATCH_ROWS = 512
"""Rows of one rank-k update: Z of one batch stays in the L2 cache."""

MAP_ROWS = 128
"""Rows mapped at a time, always so many, padded: a row's bits never depend on its batch."""

Nesting = Literal["average", "pairs", "prefix", "none"]
"""How the prior of the first R' columns follows from that of all R.

"average": s' = s·R/R' (Monte-Carlo maps: fewer draws, each counts for more).
"pairs": the same for cosine/sine pairs: R' is even.
"prefix": s' = s[:R'] (Nyström by pivoted Cholesky, Hermite).
"none": the first columns alone are not a map; ``leading`` refuses.
"""


@runtime_checkable
class FeatureMap(Protocol):
    """Row-wise map z with k(x, x') ≈ z(x)ᵀ diag(s) z(x').

    Values are frozen and cheap to ship: arrays, not seeds. ``z(A ⧺ B) = z(A) ⧺ z(B)``
    bit for bit, whatever the batch a row arrives in.
    """

    @property
    def n_inputs(self) -> int:
        """d, the number of input columns."""

    @property
    def n_components(self) -> int:
        """R, the number of feature columns."""

    @property
    def dtype(self) -> Any:
        """float32 or float64: that of the features."""

    @property
    def nesting(self) -> Nesting:
        """How ``prior`` follows for the first R' columns."""

    @property
    def fingerprint(self) -> str:
        """sha256 of ``spec()``: equal fingerprints are equal maps."""

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Z (n, R) of rows X (n, d), raw columns in [-1, 1] for Fourier maps."""

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',): K ≈ Z[:, :R'] diag(s) Z[:, :R']ᵀ."""

    def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        """Plain JSON and arrays, enough to rebuild the map on any machine and day."""


@dataclass(frozen=True, slots=True, eq=False)
class MapRequest:
    """What an estimator knows when it draws a map that the user asked for by a short name."""

    kernel: Kernel  # with its length-scale, in units of the inputs
    n_components: int  # R
    rows: Float64  # (m, d): rows of the pilot
    origin: Float64  # (d,): their mean
    scale: Float64  # (d,): standard deviation
    seed: int
    dtype: Any  # {"float32", "float64"}


MAPS: Registry[Any] = Registry("feature map", lambda name, cls: cls.choices)
"""Every map by the name in its spec, those of other packages too, once they are imported."""


class NamedMap:
    """What every map says of itself: its name, its place among all maps, its fingerprint."""

    choices: ClassVar[tuple[str, ...]] = ()
    """Short names that estimators take as ``features=``."""

    if TYPE_CHECKING:

        def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]: ...

    def __init_subclass__(cls) -> None:
        MAPS.add(cls)

    @classmethod
    def short_name(cls) -> str:
        """What specs call it: "piecewise_linear", "fourier" for FourierFeatures."""
        return snake_case(cls.__name__.removesuffix("Features"))

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Any:
        """The map that an estimator asks for by one of ``choices``."""
        raise ValueError(f"features={choice!r} names no map that {cls.__name__} draws.")

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of ``spec()``: equal fingerprints are equal maps."""
        return digest(*self.spec())


def map_from_spec(plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
    """The feature map that gave this ``spec()``.

    Raises
    ------
    ModelError
        When the spec names no map of this version, or its fields do not fit.
    """
    classes: Mapping[Any, Any] = MAPS.by_name
    name = plain.get("map")
    if name not in classes:
        raise ModelError(
            f"The spec names feature map {name!r} but this version has "
            f"{', '.join(sorted(classes))}. Upgrade rff_stream, import the package of that map, or "
            "check where the spec comes from."
        )
    features: FeatureMap = classes[name].from_spec(plain, arrays)
    return features


def map_class(choice: str) -> Any:
    """The class that draws the map of this short name.

    Raises ValueError: when no class does.
    """
    known = MAPS.by_choice
    if choice not in known:
        raise ValueError(
            f"features={choice!r} but it is one of {', '.join(map(repr, sorted(known)))} or a map."
        )
    return known[choice]


def nested_arrays(arrays: Mapping[str, Array], start: str) -> dict[str, Array]:
    """Arrays whose names begin so, by the rest of their names: those of a map inside a map."""
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
