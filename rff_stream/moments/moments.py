"""Moments: the mergeable state that one pass over the data leaves behind.

Shapes: n rows, d inputs, R features, T targets, P = R + 1 + T. One row contributes the
augmented row a = [z − z₀, 1, y − y₀] (P,); order 2 keeps M = Σ w a aᵀ, order 1 keeps
m = Σ w a. Everything else is a pure function of these.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from rff_stream._array import Array, Float64, digest
from rff_stream.errors import ModelError
from rff_stream.features.base import Nesting
from rff_stream.moments.row_sample import RowSample
from rff_stream.moments.runs import EMPTY, N_PARTS, Labels, add_runs, label_runs, under_way
from rff_stream.moments.stored import Form, StoredMoments, numbers_of
from rff_stream.notebook_display import moments_card

PAIRS_AT_A_TIME = 32
"""Pairs of rows of M that are reordered at once: they stay in the L2 cache up to R = 1,024."""


@dataclass(frozen=True, slots=True, eq=False)
class AugmentedRow:
    """What the numbers of a = [z − z₀, 1, y − y₀] mean; equal specs may be summed."""

    map_fingerprint: str  # sha256 of the feature map's spec
    prior: Float64  # (R,): s, so that K ≈ Z diag(s) Zᵀ
    nesting: Nesting
    """How s follows for the first R' columns; see :data:`~rff_stream.features.base.Nesting`."""
    feature_origin: Float64  # (R,): z₀, from the pilot
    target_origin: Float64  # (T,): y₀ from the pilot, in units of y
    target_scale: Float64
    """(T,), a power of two by which y − y₀ is divided before a cast to float32. The sums
    themselves are in units of y."""
    inputs: tuple[str, ...]  # names of the columns
    targets: tuple[str, ...] = ()  # names of the columns
    units: tuple[str, ...] = ()  # units (or encodings) of inputs, then targets; "" where unknown
    n_features: int = field(init=False)  # R
    n_targets: int = field(init=False)  # T
    width: int = field(init=False)  # P = R + 1 + T
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        sizes = len(self.prior), len(self.target_origin)
        object.__setattr__(self, "n_features", sizes[0])
        object.__setattr__(self, "n_targets", sizes[1])
        object.__setattr__(self, "width", sizes[0] + 1 + sizes[1])
        plain = [self.map_fingerprint, self.nesting, self.inputs, self.targets, self.units]
        arrays = {
            "prior": self.prior,
            "feature_origin": self.feature_origin,
            "target_origin": self.target_origin,
            "target_scale": self.target_scale,
        }
        object.__setattr__(self, "fingerprint", digest(plain, arrays))

    @property
    def target_names(self) -> tuple[str, ...]:
        """``targets``; y0, y1, … where they have no names."""
        return self.targets or tuple(f"y{i}" for i in range(self.n_targets))

    def leading(self, n_components: int) -> Self:
        """The row of the map's first R' columns; refuses where they are not a map."""
        if not 1 <= n_components <= self.n_features:
            raise ValueError(
                f"n_components={n_components} but these moments have 1 to {self.n_features} "
                "feature columns. Ask for a number in this range."
            )
        if n_components == self.n_features:
            return self
        if self.nesting == "none":
            raise ValueError(
                f"The first {n_components} of {self.n_features} columns of this feature map are "
                "not a map by themselves. Fit the smaller map, or use one that nests (Fourier)."
            )
        if self.nesting == "pairs" and n_components % 2:
            raise ValueError(
                f"n_components={n_components} is odd but cosines and sines come in pairs. "
                f"Use n_components={n_components + 1}."
            )
        drawn = self.nesting in ("average", "pairs")
        share = self.n_features / n_components if drawn else 1.0
        return replace(
            self,
            map_fingerprint=f"{self.map_fingerprint.partition('[')[0]}[:{n_components}]",
            prior=self.prior[:n_components] * share,
            feature_origin=self.feature_origin[:n_components],
        )

    def with_targets(self, targets: Sequence[int]) -> tuple[Self, Array]:
        """The row of some targets, by position, and their columns in [x, y, w]."""
        chosen, d = list(targets), len(self.inputs)
        if len({*chosen} & {*range(self.n_targets)}) != len(chosen):
            raise ValueError(
                f"targets={chosen} but these moments have targets 0 to {self.n_targets - 1}. "
                "Give each position at most once, from this range."
            )
        own = np.asarray(chosen, dtype=int)
        units = tuple(self.units[d + i] for i in chosen if self.units)
        row = replace(
            self,
            target_origin=self.target_origin[own],
            target_scale=self.target_scale[own],
            targets=tuple(self.targets[i] for i in chosen),
            units=self.units[:d] + units,
        )
        return row, np.r_[0:d, d + own, d + self.n_targets]

    def difference(self, other: Self) -> str:
        """Name the first thing in which two specs differ, with both values."""
        pairs: list[tuple[str, object, object]] = [
            ("feature map", self.map_fingerprint[:12], other.map_fingerprint[:12]),
            ("names of inputs", self.inputs, other.inputs),
            ("names of targets", self.targets, other.targets),
            ("units", self.units, other.units),
            ("number of features", self.n_features, other.n_features),
            ("target origin", self.target_origin.tolist(), other.target_origin.tolist()),
            ("target scale", self.target_scale.tolist(), other.target_scale.tolist()),
        ]
        for what, mine, theirs in pairs:
            if mine != theirs:
                return f"{what} ({mine} and {theirs})"
        return "feature origin z₀ or prior"


class Border:
    """The border [1, (y − y₀)/scale] of rows, times √w, and its second moments in float64."""

    def __init__(self, row: AugmentedRow, n_rows: int) -> None:
        self._row = row
        self._values = np.ones((n_rows, row.width - row.n_features))
        self.sums = np.zeros((row.width - row.n_features,) * 2)

    def take(self, y: Float64, root: Float64 | None) -> Float64:
        """The border (m, 1 + T) of rows of weights root²; it is a buffer."""
        values = self._values[: len(y)]
        values[:, 0] = 1.0
        np.subtract(y, self._row.target_origin, out=values[:, 1:])
        values[:, 1:] /= self._row.target_scale
        if root is not None:
            values *= root[:, None]
        self.sums += values.T @ values
        return values

    def packed(self, rows: Iterable[Float64]) -> Float64:
        """Packed upper triangle of M in units of y, this border its last diagonal block."""
        scale = np.concatenate([[1.0], self._row.target_scale])
        block = self.sums * scale[:, None] * scale
        return pack_bordered(rows, scale, block, self._row.width)


class MomentGroup(StoredMoments, ABC):
    """Sums over rows as an abelian group: what is the same for moments of every kind.

    Each kind is a frozen dataclass. It says how its sums are added (:meth:`plus`), negated and
    scaled; only values of one kind and of equal rows add.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

    kind: ClassVar[str]
    row: AugmentedRow
    sample: RowSample

    @property
    def kept(self) -> Any:
        """The rows themselves, at least two, where they are kept: of :class:`FewRows` alone."""
        return None

    @abstractmethod
    def plus(self, other: Self, out: Float64 | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given and fits."""

    @abstractmethod
    def __neg__(self) -> Self:
        """The inverse: adding it takes the rows out."""

    @abstractmethod
    def _scaled(self, factor: float) -> Self:
        """:meth:`scale` without its check."""

    def __add__(self, other: Self) -> Self:
        return self.plus(other)

    def __sub__(self, other: Self) -> Self:
        return replace(self + -other, sample=self.sample - other.sample)

    def scale(self, factor: float) -> Self:
        """Every weight times ``factor`` > 0: M and Σw by c, Σw² by c², n unchanged.

        Raises
        ------
        ValueError
            If the factor is not finite and positive.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"factor={factor!r} but it must be a finite number > 0.")
        return self._scaled(factor)

    def without_sample(self) -> Self:
        """The sums alone: samples need not be merged where nobody asks for rows."""
        return replace(self, sample=RowSample.empty(0, self.sample.rows.shape[1]))

    def _require_same(self, other: Self) -> None:
        if type(self).kind != getattr(type(other), "kind", None):
            raise TypeError(f"{self.kind} cannot be added to {type(other).__name__}.")
        if self.row.fingerprint != other.row.fingerprint:
            raise ModelError(
                f"{self.kind} that differ in {self.row.difference(other.row)} cannot be added. "
                "Collect both with the same feature map, origins, names and units."
            )


class CountedMoments(MomentGroup):
    """All sums in one vector, with the number of rows and the sums of their weights."""

    __slots__ = ()

    sums: Float64
    n: int
    squared_weight: float
    log_weight: float

    def plus(self, other: Self, out: Float64 | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given."""
        self._require_same(other)
        return replace(
            self,
            sums=np.add(self.sums, other.sums, out=out),
            n=self.n + other.n,
            squared_weight=self.squared_weight + other.squared_weight,
            log_weight=self.log_weight + other.log_weight,
            sample=self.sample + other.sample,
        )

    def __neg__(self) -> Self:
        return replace(
            self,
            sums=-self.sums,
            n=-self.n,
            squared_weight=-self.squared_weight,
            log_weight=-self.log_weight,
        )

    def _scaled(self, factor: float) -> Self:
        return replace(
            self,
            sums=self.sums * factor,
            squared_weight=self.squared_weight * factor**2,
            log_weight=self.log_weight + self.n * float(np.log(factor)),
            sample=self.sample.scale(factor),
        )


class ProductMoments(MomentGroup):
    """Sums of products of columns and of nothing less: they keep no runs of neighbouring rows."""

    __slots__ = ()

    order: ClassVar[int] = 2
    parts: ClassVar[None] = None
    runs: ClassVar[None] = None


@dataclass(frozen=True, slots=True, eq=False)
class Moments(CountedMoments):
    """Σ w a aᵀ (order 2, one packed triangle) or Σ w a (order 1) with their counts.

    Moments can be added and subtracted: ``n`` is exact, the sums are right up to rounding.

    Parameters
    ----------
    row : AugmentedRow
        The meaning of the sums: map, origins, names and units. Only moments with equal ``row``
        can be added.
    order : {1, 2}
    sums : (P(P+1)/2,) or (P,) float64
        Upper triangle of M, row by row, or m.
    n : int
        Rows, exactly.
    squared_weight, log_weight : float
        Σ w² and Σ log w. Σ w is an entry of ``sums``.
    parts : (32, P) float64, optional
        Order 1 only: m of at most 32 runs of neighbouring rows; they add up to ``sums``.
    sample : RowSample
        A mergeable uniform sample of rows, for thresholds, calibration and plots.
    runs : (32, 2) int64, optional
        Order 1 only: for each of ``parts``, the read that it comes from, and its place there.
        Runs of different reads are never mixed: see :mod:`~rff_stream.moments.runs`.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 32, rng=0)
    >>> x = np.arange(100.0)[:, None]
    >>> parts = rs.collect(features, x, x[:, 0], by=x[:, 0] < 60, n_groups=2)
    >>> (parts[True] + parts[False]).n, parts[True].leading(8).row.n_features
    (100, 8)
    """

    kind = "Moments"

    row: AugmentedRow
    order: int
    sums: Float64
    n: int
    squared_weight: float
    log_weight: float
    parts: Float64 | None
    sample: RowSample
    runs: Labels | None = None

    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "parts": ("group", "part", "column"),
        "runs": ("group", "part", "label"),
    }

    @classmethod
    def own_arrays(cls, groups: Sequence[Self]) -> dict[str, Array | list[Array]]:
        found: dict[str, Array | list[Array]] = {}
        labels = [each.runs for each in groups if each.runs is not None]
        if len(labels) == len(groups):  # order 1
            found["runs"] = np.stack(labels)
        found["moments"] = [each.sums for each in groups]
        parts = [each.parts for each in groups if each.parts is not None]
        return found | ({"parts": parts} if parts else {})

    @classmethod
    def own_forms(
        cls, row: AugmentedRow, order: int, count: int, found: Mapping[str, Form]
    ) -> dict[str, Form]:
        if order == 2:
            return {"moments": ((count, packed_size(row.width)), "float64")}
        parts = ((count, N_PARTS, row.width), "float64")
        expected = {"moments": ((count, row.width), "float64"), "parts": parts}
        if "runs" in found:  # not in stores of before they were kept
            expected["runs"] = ((count, N_PARTS, 2), "int64")
        return expected

    @classmethod
    def from_stored(
        cls, row: AugmentedRow, order: int, arrays: Mapping[str, Any], i: int, sample: RowSample
    ) -> Moments:
        n, squared, logarithm = numbers_of(arrays, i)
        parts = arrays["parts"][i] if order == 1 else None
        runs = arrays["runs"][i] if "runs" in arrays else None
        return Moments(row, order, arrays["moments"][i], n, squared, logarithm, parts, sample, runs)

    @classmethod
    def zero(cls, row: AugmentedRow, order: int = 2, sample_rows: int = 0) -> Self:
        """No rows: the neutral element of ``+``."""
        size = packed_size(row.width) if order == 2 else row.width
        parts = np.zeros((N_PARTS, row.width)) if order == 1 else None
        width = len(row.inputs) + row.n_targets + 1
        sample = RowSample.empty(sample_rows, width)
        runs = under_way(np.full(N_PARTS, EMPTY)) if order == 1 else None
        return cls(row, order, np.zeros(size), 0, 0.0, 0.0, parts, sample, runs)

    def plus(self, other: Self, out: Float64 | None = None) -> Self:
        """The sum; its sums are put into ``out`` where that is given.

        Raises
        ------
        ModelError
            If the orders differ.
        """
        self._require_same(other)
        if self.order != other.order:
            raise ModelError(
                f"Moments of order {self.order} and {other.order} cannot be added. "
                "Collect both with the same order."
            )
        parts, runs = self._added_runs(other)
        return replace(CountedMoments.plus(self, other, out), parts=parts, runs=runs)

    def _added_runs(self, other: Self) -> tuple[Float64 | None, Labels | None]:
        if self.parts is None or other.parts is None:
            return None, None
        mine, theirs = (self.parts, self.runs), (other.parts, other.runs)
        return add_runs(mine, theirs, self.row.n_features)

    def end_reading(self, reading: int) -> Self:
        """The moments of a reading, by its number, that has ended: runs no longer mix."""
        if self.parts is None:
            return self
        return replace(self, runs=label_runs(self.runs, reading))

    def __neg__(self) -> Self:
        parts = None if self.parts is None else -self.parts
        return replace(CountedMoments.__neg__(self), parts=parts)

    def _scaled(self, factor: float) -> Self:
        parts = None if self.parts is None else self.parts * factor
        return replace(CountedMoments._scaled(self, factor), parts=parts)

    def leading(self, n_components: int) -> Self:
        """Moments of the map's first R' columns, prior re-scaled: no second read."""
        keep = np.r_[0:n_components, self.row.n_features : self.row.width]
        return self._select(self.row.leading(n_components), keep)

    def with_targets(self, targets: Sequence[int]) -> Self:
        """Moments of some of the targets, by position and in that order, sample included."""
        row, columns = self.row.with_targets(targets)
        first = self.row.n_features + 1
        keep = np.r_[0:first, first + np.asarray(list(targets), dtype=int)]
        return replace(self._select(row, keep), sample=self.sample.columns(columns))

    def matrix(self) -> Float64:
        """M (P, P), symmetric, both triangles; order 2 only.

        Raises
        ------
        ValueError
            Of moments of order 1, which have no ZᵀZ.
        """
        if self.order != 2:
            raise ValueError(
                "order=1 moments hold a mean and no ZᵀZ. Collect them with order=2 for this answer."
            )
        return unpack(self.sums, self.row.width)

    @property
    def weight(self) -> float:
        """Σ w."""
        r, width = self.row.n_features, self.row.width
        return float(self.sums[r if self.order == 1 else row_start(r, width)])

    def feature_mean(self) -> Float64:
        """Weighted mean feature vector z̄ (R,), about the origin 0 of the raw map."""
        r = self.row.n_features
        return np.asarray(self.row.feature_origin + self._border()[:r] / self._positive_weight())

    def target_mean(self) -> Float64:
        """Weighted mean of y (T,), in units of y."""
        r = self.row.n_features
        mean = self._border()[r + 1 :] / self._positive_weight()
        return np.asarray(self.row.target_origin + mean)

    def target_squares(self) -> Float64:
        """Σ w (y − y₀)² (T,); order 2 only."""
        targets = np.arange(self.row.n_features + 1, self.row.width)
        return np.asarray(self.sums[row_start(targets, self.row.width)])

    def spread(self, row: AugmentedRow, keep: Array, sample: RowSample) -> Self:
        """Moments of a longer row, whose columns ``keep`` are those of this one; others are 0."""
        old, sums = self.row.width, np.zeros(packed_size(row.width))
        for i, place in enumerate(keep):
            start, end = row_start(i, old), row_start(i + 1, old)
            sums[row_start(place, row.width) + keep[i:] - place] = self.sums[start:end]
        return replace(self, row=row, sums=sums, sample=sample)

    def _border(self) -> Float64:
        """Σ w a (P,): the row of the 1 in M, or m itself."""
        if self.order == 1:
            return self.sums
        width, r = self.row.width, self.row.n_features
        rows = np.arange(r + 1)
        above = self.sums[row_start(rows, width) + (r - rows)]
        start = row_start(r, width)
        return np.concatenate([above, self.sums[start + 1 : start + width - r]])

    def _positive_weight(self) -> float:
        if self.n < 1 or not self.weight > 0:
            raise ValueError(
                f"These moments hold {self.n} rows with total weight {self.weight}. "
                "A mean needs at least one row of positive weight."
            )
        return self.weight

    def _select(self, row: AugmentedRow, keep: Array) -> Self:
        if self.order == 2:
            return replace(self, row=row, sums=_select_packed(self.sums, self.row.width, keep))
        parts = None if self.parts is None else self.parts[:, keep]
        return replace(self, row=row, sums=self.sums[keep], parts=parts)

    def __sizeof__(self) -> int:
        parts = 0 if self.parts is None else self.parts.nbytes
        spec = 3 * self.row.prior.nbytes
        return int(self.sums.nbytes + parts + spec + self.sample.nbytes + 256)

    def __repr__(self) -> str:
        return moments_card(self).line("rows", "features", "targets", "bytes", "map")

    def _repr_html_(self) -> str:
        return moments_card(self).html()


def ended_readings(groups: Mapping[Any, Moments]) -> dict[Any, Moments]:
    """The groups of one reading that has ended: they share its number, a hash of their sums."""
    if all(moments.parts is None for moments in groups.values()):
        return dict(groups)
    sums = {str(i): moments.sums for i, moments in enumerate(groups.values())}
    number = int(digest("reading", sums)[:15], 16) + 1
    return {label: moments.end_reading(number) for label, moments in groups.items()}


AnyMoments = TypeVar("AnyMoments", bound=MomentGroup)


def total(parts: Iterable[AnyMoments]) -> AnyMoments:
    """Sum of at least one value, from left to right."""
    return functools.reduce(lambda a, b: a + b, parts)


def packed_size(width: int) -> int:
    """P(P+1)/2."""
    return width * (width + 1) // 2


def pack(matrix: Float64) -> Float64:
    """Upper triangle of M (P, P), row by row, as (P(P+1)/2,). Reads nothing below it."""
    return _pack_rows(matrix, len(matrix))


def _pack_rows(rows: Iterable[Float64], width: int) -> Float64:
    packed = np.empty(packed_size(width))
    for i, row in enumerate(rows):
        start = row_start(i, width)
        packed[start : start + width - i] = row[i:]
    return packed


def pack_bordered(rows: Iterable[Float64], scale: Float64, block: Float64, width: int) -> Float64:
    """Packed upper triangle: border columns times ``scale``, last diagonal block replaced.

    The rows (P,) are all of M, or those above that block.
    """
    r = width - len(block)
    packed = _pack_rows(rows, width)
    numbers = np.arange(r)[:, None]
    packed[row_start(numbers, width) + np.arange(r, width) - numbers] *= scale
    packed[row_start(r, width) :] = pack(block)
    return packed


def rows_in_pairs(matrix: Float64, count: int) -> Iterator[Float64]:
    """Rows of M, but its last, of columns in pairs, from M of m first and m second columns.

    Row i is valid until the next and from entry i on. Only the upper triangle is read.
    """
    end = 2 * count
    block = np.empty((PAIRS_AT_A_TIME, 2, len(matrix)))
    for lo in range(0, count, PAIRS_AT_A_TIME):
        hi = min(lo + PAIRS_AT_A_TIME, count)
        first, second = slice(lo, hi), slice(count + lo, count + hi)
        rows, even, odd = block[: hi - lo], slice(2 * lo, end, 2), slice(2 * lo + 1, end, 2)
        rows[:, 0, even] = matrix[first, lo:count]
        rows[:, 0, odd] = matrix[first, count + lo : end]
        rows[:, 1, even] = matrix[lo:count, second].T
        rows[:, 1, odd] = matrix[second, count + lo : end]
        rows[:, 0, end:] = matrix[first, end:]
        rows[:, 1, end:] = matrix[second, end:]
        yield from rows.reshape(-1, len(matrix))


def unpack(packed: Float64, width: int) -> Float64:
    """Symmetric M (P, P) of its packed upper triangle."""
    matrix = np.empty((width, width))
    for i in range(width):
        start = row_start(i, width)
        matrix[i, i:] = packed[start : start + width - i]
        matrix[i + 1 :, i] = matrix[i, i + 1 :]
    return matrix


def row_start(i: Any, width: int) -> Any:
    """Where row i of the upper triangle starts in the packed array."""
    return i * width - i * (i - 1) // 2


def _select_packed(packed: Float64, width: int, keep: Array) -> Float64:
    """Packed triangle of the rows and columns ``keep``, in any order."""
    size = len(keep)
    chosen = np.empty(packed_size(size))
    for i, old in enumerate(keep):
        start = row_start(i, size)
        upper, right = np.minimum(keep[i:], old), np.maximum(keep[i:], old)
        chosen[start : start + size - i] = packed[row_start(upper, width) + right - upper]
    return chosen
