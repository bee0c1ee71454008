"""What a feature map is, rows (n, d) -> raw, nested columns (n, R), and what every map shares."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64, aligned_bytes, digest
from rff_stream.arguments import NUMBERS, POSITIVE, SEED, Rule, one_of, whole
from rff_stream.errors import DataError, ModelError
from rff_stream.kernels import ExactKernel, Kernel
from rff_stream.registry import Registry, family_modules, snake_case

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

FeatureDtype = Literal["float32", "float64"]
RandomState = Generator | np.random.SeedSequence | int | None

PRODUCT_COLUMNS, MARGIN, PADDED_ROWS = 256, 16, 144
"""Every product is (144, k) by (k, 16 + 256 + 16), whatever the rows and R.

BLAS may add up the last rows and the outer columns in another order than the rest, and cuts wide
products (AVX2: past 320 columns). 144 is whole tiles of 2, 3, 4, 6, 8, 12, 16, 24 or 48 rows, and
the outer columns are not used: so, on one BLAS thread, a row's bits depend neither on its place
in a batch nor on R. Without this, OpenBLAS on AVX2 (Haswell, Zen) gives other bits.
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

    def slopes(self, X: Array, weights: Float64) -> Float64:
        """Σ_r c_r ∂z_r/∂x_j (n, d, T) of rows X (n, d), weights c (R, T) or (n, R, T)."""

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


MAPS: Registry[Any] = Registry(
    "feature map", lambda name, cls: cls.choices, lambda: family_modules("map")
)
"""Every map by the name in its spec, also those of other packages once they are imported."""


UNDRAWN: Registry[Any] = Registry("request for a map", complete=lambda: family_modules("map"))
"""Every request for a map by the name that a stored model calls it."""


class UndrawnMap:
    """A map that is asked for by a value, ``features=Cells(…)``, and drawn from pilot rows."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        UNDRAWN.add(cls)

    @classmethod
    def short_name(cls) -> str:
        """What a stored model calls it."""
        return snake_case(cls.__name__)

    def plain(self, of: Callable[[Any], Any]) -> Any:
        """Its fields as JSON, by what makes JSON of a value."""
        return {
            each.name: of(getattr(self, each.name)) for each in dataclasses.fields(cast(Any, self))
        }

    @classmethod
    def from_plain(cls, plain: Any, value: Callable[[Any], Any]) -> Any:
        """The request whose :meth:`plain` this is."""
        return cls(**{name: value(each) for name, each in plain.items()})


class NamedMap:
    """What every map says of itself: its name, its place among all maps, its fingerprint."""

    choices: ClassVar[tuple[str, ...]] = ()
    """Short names that ``features=`` of estimators accepts."""
    reaches_all: ClassVar[bool] = True
    """Whether every row has columns; else ``covers`` tells which rows have."""

    if TYPE_CHECKING:

        @property
        def n_components(self) -> int: ...

        def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]: ...

    def __init_subclass__(cls) -> None:
        MAPS.add(cls)

    @classmethod
    def short_name(cls) -> str:
        """What specs call it: "piecewise_linear", "fourier" for FourierFeatures."""
        return snake_case(cls.__name__.removesuffix("Features"))

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Any:
        """The map that an estimator asks for by one of ``choices``.

        Raises
        ------
        ValueError
            If the choice is the name of another map.
        """
        raise ValueError(f"features={choice!r} names no map that {cls.__name__} draws.")

    @property
    def row_columns(self) -> int:
        """Columns of the row that moments are sums of; 0 where sums are not of columns."""
        return self.n_components

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
            f"features={choice!r} but it must be one of {', '.join(map(repr, sorted(known)))} or "
            "a map."
        )
    return known[choice]


class RowwiseMap(NamedMap):
    """What every map shares; a map is one frozen dataclass derived from it, in one file.

    It has the fields that rebuild it (arrays, numbers, texts), the properties ``n_inputs``,
    ``n_components`` and ``nesting`` of :class:`FeatureMap`, ``dtype`` as a field or a property,
    ``prior``, and ``_map_batch``, which writes the features of at most 128 rows. Its name, spec
    and fingerprint come from here. For a short name that estimators know (``features="…"``), set
    ``choices`` and write ``drawn_for``.

    Rows are mapped in batches padded to one size, so that (on one BLAS thread) a row has the
    same bits whatever batch it arrives in and however it lies in memory.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        @property
        def n_inputs(self) -> int: ...
        @property
        def n_components(self) -> int: ...
        @property
        def dtype(self) -> Any: ...
        @property
        def nesting(self) -> Nesting: ...
        def prior(self, n_components: int | None = None) -> Float64: ...

    @classmethod
    def _fields(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def row_entries(cls, n_components: int) -> int:
        """Entries of a row of R columns that are not 0, before the map is drawn."""
        return n_components

    @property
    def independent_terms(self) -> tuple[int, float] | None:
        """How many terms the kernel is the mean of, and the range of one; None: not random."""
        return None

    def _map_batch(self, x: Array, Z: Array) -> None:
        """Write the features (rows, R) of at most 128 rows."""
        raise NotImplementedError

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit; its fields are those of the class.

        Raises
        ------
        ModelError
            If a field is absent, of another kind, or too many, or has a value that the map refuses.
        """
        try:
            fields = cls._fields_of(plain, arrays)
            for absent in sorted(set(cls._fields()) - fields.keys()):
                raise KeyError(absent)
            return cls(**fields)  # refuses one too many
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(
                f"The spec of a map {plain.get('map')!r} cannot be read: {error!r}. "
                "Check where it comes from; a stored model has all of its fields."
            ) from error

    @classmethod
    def _fields_of(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        """The fields in a spec, by name."""
        return {name: plain[name] for name in plain.keys() - {"map"}} | dict(arrays)

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads; a field of None is left out."""
        plain: dict[str, Any] = {"map": self.short_name()}
        arrays: dict[str, Array] = {}
        for name in self._fields():
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                arrays[name] = value
            elif isinstance(value, ExactKernel):
                plain[name] = value.spec()
            elif value is not None:
                plain[name] = dict(value) if isinstance(value, Mapping) else value
        return plain, arrays

    def __call__(self, X: Array, out: Array | None = None) -> Array:
        """Z (n, R) of rows X (n, d).

        Parameters
        ----------
        X : (n, d) array
            Rows with NaN give rows of NaN.
        out : (n, R) array, optional
            Written and returned; any strides, any floating dtype.

        Raises
        ------
        DataError
            When a finite value is too large for ``dtype`` after shift and scale.
        """
        X = check_rows(X, self.n_inputs)
        shape = (len(X), self.n_components)
        Z = np.empty(shape, self.dtype) if out is None else out
        if Z.shape != shape:
            raise ValueError(f"out has shape {Z.shape} but Z has {shape}. Pass out of this shape.")
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(X), MAP_ROWS):
                stop = start + MAP_ROWS
                self._map_batch(X[start:stop], Z[start:stop])
        return Z

    def slopes(self, X: Array, weights: Float64) -> Float64:
        """Σ_r c_r ∂z_r/∂x_j (n, d, T) of rows X (n, d): the slopes of f = zᵀc, in closed form.

        Parameters
        ----------
        X : (n, d) array
        weights : (R, T) float64, or (n, R, T) for other weights at every row
            c; those of a row are what the slopes of a later map say of the columns of this one.

        Raises
        ------
        ValueError
            For a map whose slopes are not known, or that is a step.
        """
        X = check_rows(X, self.n_inputs)
        found = np.empty((*X.shape, weights.shape[-1]))
        for start in range(0, len(X), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            own = weights[rows] if weights.ndim == 3 else weights
            found[rows] = self._batch_slopes(X[rows], own)
        return found

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """Those of at most 512 rows."""
        raise ValueError(
            f"{self!r} has no slopes in closed form. Use cells (features='local'), a grid, "
            "Fourier features (features='whole') or landmarks (features='nystroem')."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (getattr(self, name) for name in self._fields())
        return type(self), tuple(fields)  # without what is cached: the map travels light

    def __sklearn_clone__(self) -> Self:
        return self  # frozen: scikit-learn need not copy the arrays of a parameter

    def __or__(self, other: Any) -> Any:
        """Columns of both maps of the same inputs, one beside the other: k₁ + k₂."""
        if not isinstance(other, FeatureMap):
            return NotImplemented
        return MAPS.by_name["side_by_side"]((self, other))

    def then(self, other: FeatureMap) -> Any:
        """``other`` of the columns of this map: rows → self → other."""
        return MAPS.by_name["then"](self, other)


def check_rows(X: Array, n_inputs: int) -> Array:
    """Rows as an array; refuses other numbers of inputs, and what is no number."""
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] != n_inputs:
        found = f"{X.shape[1]} columns" if X.ndim == 2 else f"shape {X.shape}"
        raise ValueError(
            f"X has {found} but the map was made for {n_inputs} inputs. "
            "Pass rows (n, d) with the same columns in the same order."
        )
    if X.dtype.kind not in "biuf":
        raise DataError(
            f"X has dtype {X.dtype} but a map takes numbers. "
            "Encode the columns as floats, or leave them out."
        )
    return X


class Scratch(threading.local):
    """Buffers for each thread, grown to the largest that it asked for."""

    def __init__(self) -> None:
        self._bytes: dict[str, Array] = {}

    def take(self, role: str, columns: int, dtype: str, rows: int = PADDED_ROWS) -> Array:
        """(rows, columns), C order, from a 64-byte boundary; what it holds is left over."""
        size = rows * columns * np.dtype(dtype).itemsize
        if role not in self._bytes or len(self._bytes[role]) < size:
            self._bytes[role] = aligned_bytes(size)
        return self._bytes[role][:size].view(dtype).reshape(rows, columns)


scratch = Scratch()


def shifted_rows(x: Array, origin: Float64, scale: Float64) -> Float64:
    """(x − origin)/scale in float64, padded with 0 to 144 rows; a scratch buffer."""
    exact = scratch.take("exact", x.shape[1], "float64")
    used = exact[: len(x)]
    np.subtract(np.asarray(x, np.float64), origin, out=used)
    np.divide(used, scale, out=used)
    exact[len(x) :] = 0
    return exact


def refuse_overflow(
    x: Array, exact: Float64, largest: float, why: Callable[[int, int], str]
) -> None:
    """Name the first finite value whose shifted one is too large: "Column j of X holds v, " why."""
    finite = np.isfinite(np.asarray(x, np.float64))
    for i, j in np.argwhere(finite & ~(np.abs(exact) <= largest)):
        raise DataError(f"Column {j} of X holds {x[i, j]}, {why(i, j)}")


def padded_blocks(table: Array, dtype: str) -> Array:
    """Rows of a table in blocks (·, 288, k): 256 rows between margins of 16 rows of 0."""
    rest = -len(table) % PRODUCT_COLUMNS
    blocks = np.pad(table, ((0, rest), (0, 0))).reshape(-1, PRODUCT_COLUMNS, table.shape[1])
    with np.errstate(over="ignore"):
        return np.pad(blocks, ((0, 0), (MARGIN, MARGIN), (0, 0))).astype(dtype)


def frozen(name: str, values: ArrayLike, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """A read-only copy of finite values of this shape."""
    array = np.array(values, dtype, order="C")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape} but needs {shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite.")
    array.flags.writeable = False
    return array


DRAWN: Mapping[str, Rule] = {
    "kernel": Rule("a kernel, such as Gaussian(1.0)", lambda value: isinstance(value, ExactKernel)),
    "n_inputs": whole(1),
    "n_components": whole(1, "A map has at least 1 column."),
    "n_grids": whole(1),
    "n_trees": whole(1),
    "origin": NUMBERS,
    "deviation": NUMBERS,
    "floor": replace(POSITIVE, optional=True),
    "nugget": replace(POSITIVE, optional=True),
    "rng": SEED,
    "dtype": one_of("float32", "float64"),
}
"""What a map may be drawn by, by the names of arguments."""


def check_drawn(**given: Any) -> None:
    """Refuse what no map can be drawn by."""
    for name, value in given.items():
        DRAWN[name].check(name, value)


def check_dtype(dtype: Any) -> None:
    """Refuse a dtype of features that is not one."""
    one_of("float32", "float64").check("dtype", dtype)


def is_map(value: Any) -> bool:
    """Whether a value is a map that is drawn."""
    return isinstance(value, FeatureMap | NamedMap) and not isinstance(value, type)


MAP = Rule("a map, such as FourierFeatures.sample(…)", is_map)


def prior_count(n_components: int | None, most: int) -> int:
    """R' from 1 to R."""
    count = most if n_components is None else n_components
    check_drawn(n_components=count)
    if count > most:
        raise ValueError(
            f"n_components={count} but this map has {most}. "
            "Ask for at most that many, or draw a larger map."
        )
    return count
