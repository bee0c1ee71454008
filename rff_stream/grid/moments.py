"""Moments on a grid of frequencies: sums from which any stationary kernel can be answered.

Shapes: n rows, d inputs, T targets, modes j of a grid (|j_a| ≤ m_a), differences k of two
modes (|k_a| ≤ 2m_a). With θ = 2π(x − c)/L and the trend t(x) = [1, (x − c)/L],

    density  T_k = Σ w e^{−ik·θ}            projection  b_j = Σ w (y − y₀) e^{−ij·θ}
    trend    C_j = Σ w t e^{−ij·θ}          border      B   = Σ w [t, y − y₀] [t, y − y₀]ᵀ

T is Toeplitz as a matrix T_{j−l}. All are real sums with T_{−k} = T_k*, so the half with a last
index ≥ 0 is kept. They are computed by non-uniform fast Fourier transforms (type 1), two real
sums in one, for some hundred thousand rows at a time: finufft (Barnett, Magland & af Klinteberg
2019), one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.grid.map import GridFeatures
from rff_stream.hashes import hash_rows
from rff_stream.moments.moments import AugmentedRow, CountedMoments, ProductMoments
from rff_stream.moments.row_sample import RowSample, reach_of
from rff_stream.moments.stored import Form, numbers_of

BATCH_ROWS = 2**18
"""Rows of one transform: the FFT of the grid is then a small part of the work."""

TOLERANCE = 1e-10
"""Relative error of a transform. Float32 sums are not precise enough for small noise."""


def import_finufft() -> Any:
    """The module finufft; where it is absent, an error with the line that installs it."""
    try:
        import finufft
    except ImportError as error:
        raise ImportError(
            "finufft is not installed, and a frequency grid needs it. "
            "pip install 'rff_stream[grid]'."
        ) from error
    return finufft


def grid_row(
    features: GridFeatures,
    inputs: tuple[str, ...],
    targets: tuple[str, ...],
    units: tuple[str, ...] = (),
    target_origin: Float64 | None = None,
) -> AugmentedRow:
    """What the sums mean: the map, names, units and origins of y; no columns of its own."""
    n_targets = len(targets)
    return AugmentedRow(
        map_fingerprint=features.fingerprint,
        prior=np.empty(0),
        nesting="none",
        feature_origin=np.empty(0),
        target_origin=np.zeros(n_targets) if target_origin is None else target_origin,
        target_scale=np.ones(n_targets),
        inputs=inputs,
        targets=targets,
        units=units,
    )


@dataclass(frozen=True, slots=True, eq=False)
class GridMoments(CountedMoments, ProductMoments):
    """Sums over rows on a grid of frequencies, as one vector: an abelian group under ``+``."""

    kind = "Moments on a grid"

    features: GridFeatures
    row: AugmentedRow  # names, units and origins. Only moments of equal rows add.
    sums: Float64
    """(size,), density, projections and trends as pairs of real and imaginary parts, then the
    border."""
    n: int  # rows, exactly
    squared_weight: float  # Σ w²
    log_weight: float  # Σ log w
    sample: RowSample  # a mergeable uniform sample of rows

    mark: ClassVar[str] = "grid"
    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {"grid": ("field", "input")}

    @classmethod
    def own_arrays(cls, groups: Sequence[Self]) -> dict[str, Array | list[Array]]:
        """grid: centre, period, reach and modes."""
        grid = groups[0].features
        fields = [grid.centre, grid.period, grid.reach, np.array(grid.modes, float)]
        return {"grid": np.stack(fields), "moments": [each.sums for each in groups]}

    @classmethod
    def own_forms(
        cls, row: AugmentedRow, order: int, count: int, found: Mapping[str, Form]
    ) -> dict[str, Form]:
        size = found.get("moments", ((count, 0), ""))[0][1]
        return {"grid": ((4, len(row.inputs)), "float64"), "moments": ((count, size), "float64")}

    @classmethod
    def from_stored(
        cls, row: AugmentedRow, order: int, arrays: Mapping[str, Any], i: int, sample: RowSample
    ) -> Self:
        centre, period, reach, modes = arrays["grid"]
        grid = GridFeatures(centre, period, reach, tuple(modes.astype(int).tolist()))
        n, squared, logarithm = numbers_of(arrays, i)
        return cls(grid, row, arrays["moments"][i], n, squared, logarithm, sample)

    def own_faults(self) -> Iterator[tuple[str, bool]]:
        size, fingerprint = sums_size(self.features, self.row), self.features.fingerprint
        yield "sums of another size than its grid", len(self.sums) != size
        yield "another grid than its row", fingerprint != self.row.map_fingerprint

    @classmethod
    def zero(cls, features: GridFeatures, row: AugmentedRow, sample_rows: int = 0) -> Self:
        """No rows: the neutral element of ``+``."""
        sample = RowSample.empty(sample_rows, len(row.inputs) + row.n_targets + 1)
        size = sum(_sizes(features, row))
        return cls(features, row, np.zeros(size), 0, 0.0, 0.0, sample)

    def leading(self, modes: Sequence[int]) -> Self:
        """Moments on the grid of fewer modes with the same period: no second read."""
        grid = replace(self.features, modes=tuple(int(m) for m in modes))
        row = replace(self.row, map_fingerprint=grid.fingerprint)
        density = self.density[_within(self.features.difference_shape, grid.difference_shape)]
        inside = (slice(None), *_within(self.features.half_shape, grid.half_shape))
        parts = [density, self.projections[inside], self.trends[1:][inside]]
        sums = _joined(parts, self.border)
        return replace(self, features=grid, row=row, sums=sums)

    def with_targets(self, targets: Sequence[int]) -> Self:
        """Moments of some of the targets, by position and in that order, sample included."""
        row, columns = self.row.with_targets(targets)
        first, own = 1 + self.features.n_inputs, np.asarray(list(targets), dtype=int)
        kept = np.r_[0:first, first + own]
        parts = [self.density, self.projections[own], self.trends[1:]]
        sums = _joined(parts, self.border[np.ix_(kept, kept)])
        return replace(self, row=row, sums=sums, sample=self.sample.columns(columns))

    @property
    def density(self) -> Array:
        """T_k, complex, differences in half shape."""
        return self._part(0).reshape(self.features.difference_shape)

    @property
    def projections(self) -> Array:
        """b_j of each target, complex (T, half shape)."""
        return self._part(1).reshape(self.row.n_targets, *self.features.half_shape)

    @property
    def trends(self) -> Array:
        """C_j of each column of the trend, complex (1 + d, half shape); that of 1 is first."""
        inner = self.density[_leading(self.features)]
        linear = self._part(2).reshape(self.features.n_inputs, *self.features.half_shape)
        return np.concatenate([inner[None], linear])

    @property
    def border(self) -> Float64:
        """B (1 + d + T, 1 + d + T)."""
        width = 1 + self.features.n_inputs + self.row.n_targets
        return self.sums[-(width**2) :].reshape(width, width)

    @property
    def weight(self) -> float:
        """Σ w."""
        return float(self.border[0, 0])

    def _part(self, index: int) -> Array:
        sizes = _sizes(self.features, self.row)
        start = sum(sizes[:index])
        return self.sums[start : start + sizes[index]].view(np.complex128)

    def __sizeof__(self) -> int:
        return int(self.sums.nbytes + self.sample.nbytes + 512)


def _joined(parts: Sequence[Array], border: Float64) -> Float64:
    """Complex parts as pairs of real and imaginary numbers, then the border, in one vector."""
    flat = [np.ascontiguousarray(part).reshape(-1).view(np.float64) for part in parts]
    return np.concatenate([*flat, border.reshape(-1)])


def _sizes(features: GridFeatures, row: AugmentedRow) -> tuple[int, int, int, int]:
    """Float64 numbers of density, projections, trends and border."""
    half = 2 * int(np.prod(features.half_shape))
    width = 1 + features.n_inputs + row.n_targets
    differences = 2 * int(np.prod(features.difference_shape))
    return differences, half * row.n_targets, half * features.n_inputs, width**2


def sums_size(features: GridFeatures, row: AugmentedRow) -> int:
    """Numbers of the sums of a grid."""
    return sum(_sizes(features, row))


def _leading(features: GridFeatures) -> tuple[Any, ...]:
    """Where the modes j stand among the differences k."""
    return _within(features.difference_shape, features.half_shape)


def _within(shape: tuple[int, ...], smaller: tuple[int, ...]) -> tuple[Any, ...]:
    """Where the frequencies of a smaller half shape stand in a larger one."""
    axes = [np.fft.ifftshift(np.arange(-(n // 2), n // 2 + 1)) for n in smaller[:-1]]
    return np.ix_(*(axis % n for axis, n in zip(axes, shape, strict=False)), np.arange(smaller[-1]))


class GridAccumulator:
    """Takes rows in any portions and gives their moments on a grid; same rows, same bits."""

    def __init__(self, features: GridFeatures, row: AugmentedRow, sample_rows: int = 0) -> None:
        self._total = GridMoments.zero(features, row, sample_rows)
        self._rows: list[tuple[Array, Array, Array, Array]] = []
        self._waiting = 0

    def add(self, x: Array, y: Array, w: Array | None, places: Array) -> None:
        """Take rows x (m, d), y (m, T) of weights w (m,) that stood at ``places`` (m,)."""
        w = np.ones(len(x)) if w is None else np.asarray(w, np.float64)
        start = 0
        while start < len(x):
            stop = min(len(x), start + BATCH_ROWS - self._waiting)
            part = slice(start, stop)
            self._rows.append((x[part].copy(), y[part].copy(), w[part].copy(), places[part].copy()))
            self._waiting += stop - start
            start = stop
            if self._waiting == BATCH_ROWS:
                self._flush()

    def result(self) -> GridMoments:
        """The moments of all rows taken so far."""
        self._flush()
        return self._total

    def _flush(self) -> None:
        if self._waiting:
            x, y, w, places = (np.concatenate(parts) for parts in zip(*self._rows, strict=True))
            self._rows, self._waiting = [], 0
            self._total = self._total + _moments_of(self._total, x, y, w, places)


def _moments_of(like: GridMoments, x: Array, y: Array, w: Array, places: Array) -> GridMoments:
    """Moments of one batch of rows, with the map and row of ``like``."""
    features, row = like.features, like.row
    angles = features.angles(x)
    y = np.asarray(y, np.float64) - row.target_origin
    trend = angles / (2 * np.pi)
    weighted = np.concatenate([(y * w[:, None]).T, trend * w])
    sides = [2 * m + 1 for m in features.modes]
    density = _transform(angles, w[None], [4 * m + 1 for m in features.modes])[0]
    others = _transform(angles, weighted, sides)
    columns = np.column_stack([np.ones(len(x)), trend.T, y])
    border = columns.T @ (columns * w[:, None])
    t = row.n_targets
    # Sums of frequency 0 are known without the error of a transform, which grows with n: what a
    # constant explains must cancel exactly.
    density.flat[0] = w.sum()
    others.reshape(len(others), -1)[:, 0] = weighted.sum(axis=1)
    parts = [density, others[:t], others[t:]]
    sums = _joined(parts, (border + border.T) / 2)
    sample = like.sample
    if sample.size:
        rows = np.column_stack([x, y + row.target_origin, w]).astype(np.float64)
        raw = np.asarray(y + row.target_origin)
        sample = RowSample.of(sample.size, hash_rows(places, x, raw), rows, reach_of(x))
    weight = float(np.log(w).sum())
    return GridMoments(features, row, sums, len(x), float(w @ w), weight, sample)


def _transform(angles: Float64, strengths: Float64, shape: list[int]) -> Array:
    """Σ c e^{−ik·θ} (s, half shape) of strengths c (s, n), in the order of NumPy's transforms.

    Two real strengths share a complex transform F of c₁ + ic₂: their own are
    (F_k + F_{−k}*)/2 and (F_k − F_{−k}*)/2i. The error of a transform is relative to the larger
    of the two, so each is first scaled to between ½ and 1, by a power of two: exactly.
    """
    finufft = import_finufft()
    count, n = strengths.shape
    half = shape[-1] // 2 + 1
    pairs = -(-count // 2)
    largest = np.abs(strengths).max(axis=1, initial=0.0)
    exponents = np.clip(np.frexp(largest)[1], -1000, 1000)  # of which both powers are finite
    down = np.ldexp(1.0, -exponents)[:, None]
    up = np.where(largest == 0, 0.0, np.ldexp(1.0, exponents))
    packed = np.zeros((pairs, n), np.complex128)
    np.multiply(strengths[::2], down[::2], out=packed.real)
    np.multiply(strengths[1::2], down[1::2], out=packed.imag[: count // 2])
    plan = finufft.Plan(
        1, tuple(shape), n_trans=pairs, eps=TOLERANCE, isign=-1, nthreads=1, modeord=1
    )
    plan.setpts(*np.ascontiguousarray(angles))
    full = plan.execute(packed).reshape(pairs, *shape)
    turned = full
    for axis in range(1, full.ndim):  # k -> −k
        turned = np.roll(np.flip(turned, axis), 1, axis)
    here, there = full[..., :half], turned[..., :half].conj()
    found = np.empty((count, *shape[:-1], half), np.complex128)
    found[::2] = (here + there) / 2
    found[1::2] = ((here - there) / 2j)[: count // 2]
    found *= up.reshape(-1, *(1,) * len(shape))
    return found
