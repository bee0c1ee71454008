"""Random Fourier features: cosines of random projections, as pairs or with phases."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64, aligned_bytes
from rff_stream.errors import DataError, ModelError
from rff_stream.features.base import MAP_ROWS, Nesting, spec_fingerprint
from rff_stream.kernels import Kernel, length_scale_vector

__all__ = ["FeatureDtype", "FourierFeatures", "Frequencies", "RandomState"]

Frequencies = Literal["orthogonal", "iid"]
FeatureDtype = Literal["float32", "float64"]
RandomState = Generator | np.random.SeedSequence | int | None

ANGLE_COLUMNS, MARGIN, PADDED_ROWS = 256, 16, 144
"""Every product is (144, k) by (k, 16 + 256 + 16), whatever the rows and R.

BLAS may add up the last rows and the outer columns in another order than the rest, and cuts wide
products (AVX2: past 320 columns). 144 is whole tiles of 2, 3, 4, 6, 8, 12, 16, 24 or 48 rows, and
the outer columns are not used: so, on one BLAS thread, a row's bits depend neither on its place
in a batch nor on R. Without this, OpenBLAS on AVX2 (Haswell, Zen) gives other bits.
"""

PORTION_ROWS = 64
"""About so many frequencies are drawn at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class FourierFeatures:
    """z(x) = cos and sin of Ωx̃, or cos(Ωx̃ + b), with x̃ = (x − origin)/scale.

    E z(x)ᵀ diag(s) z(x') = κ(x − x') for s = 2·variance/R: raw columns lie in [−1, 1].

    Parameters
    ----------
    frequencies : (m, d) float64
        Ω, in rad per unit of x̃.
    phases : (m,) float64 or None
        b. None: the paired map, R = 2m columns cos(ω₁x̃), sin(ω₁x̃), cos(ω₂x̃), …; else
        R = m columns cos(ωx̃ + b).
    origin, scale : (d,) float64
        In units of the inputs. Both act in float64, before any cast.
    variance : float
        κ(0).
    dtype : {"float32", "float64"}
        Of the features. float64 costs 17 times more per cosine and is for checks.
    kernel : mapping
        ``spec()`` of the kernel the frequencies were drawn from: provenance only.

    Notes
    -----
    Rows are mapped 128 at a time, the last batch padded, so that (on one BLAS thread) a row has
    the same bits whatever batch it arrives in and however it lies in memory. Pairs need half
    the projections and, for the Gaussian, never have more variance than phases.

    References
    ----------
    Rahimi & Recht 2007, algorithm 1. Sutherland & Schneider 2015, section 2.1 (variances).
    Yu et al. 2016 (orthogonal random features).
    """

    frequencies: Float64
    phases: Float64 | None
    origin: Float64
    scale: Float64
    variance: float
    dtype: FeatureDtype
    kernel: Mapping[str, Any]

    def __post_init__(self) -> None:
        if np.ndim(self.frequencies) != 2 or not np.size(self.frequencies):
            raise ValueError(f"frequencies has shape {np.shape(self.frequencies)}, not (m, d).")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype={self.dtype!r} but it is one of 'float32', 'float64'.")
        for name, shape in _shapes(np.shape(self.frequencies), self.paired).items():
            object.__setattr__(self, name, _frozen(name, getattr(self, name), shape))
        if not ((self.scale > 0).all() and 0 < self.variance < np.inf):
            raise ValueError(f"scale={self.scale} and variance={self.variance} but both are > 0.")

    @classmethod
    def sample(
        cls,
        kernel: Kernel,
        n_inputs: int,
        n_components: int,
        *,
        paired: bool = True,
        frequencies: Frequencies | None = None,
        origin: ArrayLike | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """A map drawn from the kernel's spectral measure.

        Parameters
        ----------
        kernel : Kernel
            Its length-scale becomes ``scale``; Ω is drawn at ℓ = 1.
        n_inputs, n_components : int
            d and R; R is even for pairs.
        paired : bool
            False draws phases. Change it only to compare with the literature.
        frequencies : {"orthogonal", "iid"}, optional
            Orthogonal where the kernel is isotropic (a fraction of the variance at small
            distances), else iid. "iid" serves error bounds that assume independence.
        origin : (d,) array, optional
            Subtracted from the inputs; 0 by default. Give the mean of columns with large
            offsets (times, coordinates), or float32 features lose their digits.
        rng : Generator, SeedSequence, int or None
            The same seed gives the same first columns whatever R.
        dtype : {"float32", "float64"}
            Of the features.

        Raises
        ------
        ValueError
            For R < 1, an odd R of pairs, or orthogonal frequencies a rotation would change.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> FourierFeatures.sample(Gaussian(0.5), 3, 256, rng=0)
        <FourierFeatures of gaussian: 3 inputs to 256 components (cos/sin pairs), float32>
        """
        _check_components(n_components, paired)
        scale = length_scale_vector(kernel, n_inputs)
        orthogonal = _resolve(kernel, frequencies) == "orthogonal"
        count = n_components // 2 if paired else n_components
        unit, generator = kernel.with_length_scale(None), np.random.default_rng(rng)
        omega, phases = _draw(unit, count, n_inputs, orthogonal, generator)
        return cls(
            frequencies=omega,
            phases=None if paired else phases,
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            scale=scale,
            variance=kernel.variance,
            dtype=dtype,
            kernel=kernel.spec(),
        )

    @property
    def paired(self) -> bool:
        """Whether columns are cos/sin pairs."""
        return self.phases is None

    @property
    def n_inputs(self) -> int:
        return int(self.frequencies.shape[1])

    @property
    def n_components(self) -> int:
        return len(self.frequencies) * (2 if self.paired else 1)

    @property
    def nesting(self) -> Nesting:
        return "pairs" if self.paired else "average"

    @cached_property
    def fingerprint(self) -> str:
        return spec_fingerprint(self.spec())

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) = 2·variance/R' for each of the first R' columns."""
        count = self.n_components if n_components is None else n_components
        _check_components(count, self.paired)
        if count > self.n_components:
            raise ValueError(
                f"n_components={count} but this map has {self.n_components}. "
                "Ask for at most that many, or draw a larger map."
            )
        return np.full(count, 2 * self.variance / count)

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads."""
        plain = {
            "map": "fourier",
            "paired": self.paired,
            "variance": self.variance,
            "dtype": self.dtype,
            "kernel": dict(self.kernel),
        }
        names = _shapes(self.frequencies.shape, self.paired)
        return plain, {name: getattr(self, name) for name in names}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        try:
            return cls(
                frequencies=arrays["frequencies"],
                phases=None if plain["paired"] else arrays["phases"],
                origin=arrays["origin"],
                scale=arrays["scale"],
                variance=float(plain["variance"]),
                dtype=plain["dtype"],
                kernel=plain["kernel"],
            )
        except (KeyError, ValueError, TypeError) as error:
            raise ModelError(
                f"The spec of a Fourier map cannot be read: {error!r}. "
                "Check where it comes from; a stored model has all of its fields."
            ) from error

    def with_dtype(self, dtype: FeatureDtype) -> Self:
        """The same map with features of another precision."""
        return replace(self, dtype=dtype)

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
        X = self._checked(X)
        shape = (len(X), self.n_components)
        Z = np.empty(shape, self.dtype) if out is None else out
        if Z.shape != shape:
            raise ValueError(f"out has shape {Z.shape} but Z has {shape}. Pass out of this shape.")
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(X), MAP_ROWS):
                stop = start + MAP_ROWS
                self._map_batch(X[start:stop], Z[start:stop])
        return Z

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (getattr(self, name) for name in self.__dataclass_fields__)
        return type(self), tuple(fields)  # without what is cached: the map travels light

    def __repr__(self) -> str:
        name, kind = self.kernel.get("kernel"), "cos/sin pairs" if self.paired else "phases"
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<FourierFeatures of {name}: {size} ({kind}), {self.dtype}>"

    @cached_property
    def _projections(self) -> Array:
        """[Ω, b] in the dtype of the features, in blocks (·, 288, d or d + 1) padded with 0."""
        table = self.frequencies
        if self.phases is not None:
            table = np.column_stack([table, self.phases])
        rest = -len(table) % ANGLE_COLUMNS
        blocks = np.pad(table, ((0, rest), (0, 0))).reshape(-1, ANGLE_COLUMNS, table.shape[1])
        with np.errstate(over="ignore"):
            return np.pad(blocks, ((0, 0), (MARGIN, MARGIN), (0, 0))).astype(self.dtype)

    @cached_property
    def _largest_input(self) -> float:
        """The largest |x̃| whose angles are all finite."""
        widest = np.abs(self._projections).sum(axis=-1, dtype=np.float64).max()
        return float(np.finfo(self.dtype).max / max(2 * widest, 2.0))

    def _checked(self, X: Array) -> Array:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            found = f"{X.shape[1]} columns" if X.ndim == 2 else f"shape {X.shape}"
            raise ValueError(
                f"X has {found} but the map was made for {self.n_inputs} inputs. "
                "Pass rows (n, d) with the same columns in the same order."
            )
        return X

    def _map_batch(self, x: Array, Z: Array) -> None:
        """Write the features (rows, R) of at most 128 rows."""
        inputs, step = self._scaled(x), ANGLE_COLUMNS * (2 if self.paired else 1)
        angles = _scratch.take("angles", ANGLE_COLUMNS + 2 * MARGIN, self.dtype)
        for block, projection in enumerate(self._projections):
            np.matmul(inputs, projection.T, out=angles)
            columns = Z[:, block * step : (block + 1) * step]
            count = columns.shape[1] * ANGLE_COLUMNS // step
            used = angles[: len(x), MARGIN : MARGIN + count]
            if self.paired:
                np.cos(used, out=columns[:, 0::2])
                np.sin(used, out=columns[:, 1::2])
            else:
                np.cos(used, out=columns)

    def _scaled(self, x: Array) -> Array:
        """[x̃, 1] of one batch in the dtype of the features, padded to 144 rows."""
        rows, d = x.shape
        exact = _scratch.take("exact", d, "float64")[:rows]
        np.subtract(np.asarray(x, np.float64), self.origin, out=exact)
        np.divide(exact, self.scale, out=exact)
        if not np.abs(exact).max() <= self._largest_input:  # so too when there is a NaN
            self._refuse_overflow(x, exact)
        inputs = _scratch.take("inputs", self._projections.shape[-1], self.dtype)
        inputs[:rows, :d] = exact
        inputs[rows:] = 0
        inputs[:, d:] = 1  # what b is multiplied by; no column for pairs
        return inputs

    def _refuse_overflow(self, x: Array, exact: Float64) -> None:
        finite = np.isfinite(np.asarray(x, np.float64))
        for i, j in np.argwhere(finite & ~(np.abs(exact) <= self._largest_input)):
            raise DataError(
                f"Column {j} of X holds {x[i, j]}, which origin {self.origin[j]} and scale "
                f"{self.scale[j]} turn into {exact[i, j]:.3g}: too large for {self.dtype}. "
                "Mask such values, or give the column a larger length-scale."
            )


class _Scratch(threading.local):
    """Buffers of 144 rows for each thread, grown to the largest that it asked for."""

    def __init__(self) -> None:
        self._bytes: dict[str, Array] = {}

    def take(self, role: str, columns: int, dtype: str) -> Array:
        """(144, columns), C order, from a 64-byte boundary; what it holds is left over."""
        size = PADDED_ROWS * columns * np.dtype(dtype).itemsize
        if role not in self._bytes or len(self._bytes[role]) < size:
            self._bytes[role] = aligned_bytes(size)
        return self._bytes[role][:size].view(dtype).reshape(PADDED_ROWS, columns)


_scratch = _Scratch()


def _draw(
    unit: Kernel, count: int, d: int, orthogonal: bool, rng: Generator
) -> tuple[Float64, Float64]:
    """Ω (count, d) and b (count,), in portions that depend on d alone: so draws nest."""
    size = max(1, PORTION_ROWS // d) * d
    omega, phases = [], []
    for _ in range(0, count, size):
        portion = unit.sample_frequencies(size, d, rng)
        if orthogonal:
            norms = np.linalg.norm(portion, axis=1, keepdims=True)
            portion = norms * _rotations(size // d, d, rng).reshape(size, d)
        omega.append(portion)
        phases.append(rng.uniform(0, 2 * np.pi, size))
    return np.concatenate(omega)[:count], np.concatenate(phases)[:count]


def _rotations(count: int, d: int, rng: Generator) -> Float64:
    """Haar-random (count, d, d): QR with R's diagonal made positive (Mezzadri 2007, section 5)."""
    q, r = np.linalg.qr(rng.standard_normal((count, d, d)))
    return np.asarray(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[:, None, :])


def _resolve(kernel: Kernel, frequencies: Frequencies | None) -> Frequencies:
    """How to draw: orthogonal where a rotation keeps the measure, unless iid is asked."""
    if frequencies is None:
        return "orthogonal" if kernel.isotropic else "iid"
    if frequencies not in ("orthogonal", "iid"):
        raise ValueError(f"frequencies={frequencies!r} but it is one of 'orthogonal', 'iid'.")
    if frequencies == "orthogonal" and not kernel.isotropic:
        raise ValueError(
            f"frequencies='orthogonal' but a rotation changes the spectral measure of the "
            f"{type(kernel).__name__} kernel. Use frequencies='iid'."
        )
    return frequencies


def _check_components(n_components: int, paired: bool) -> None:
    if n_components < 1:
        raise ValueError(f"n_components={n_components} but a map has at least 1 column.")
    if paired and n_components % 2:
        raise ValueError(
            f"n_components={n_components} is odd but cos and sin come in pairs. "
            f"Use n_components={n_components + 1}."
        )


def _shapes(frequencies: tuple[int, ...], paired: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays of a map."""
    m, d = frequencies
    shapes: dict[str, tuple[int, ...]] = {"frequencies": (m, d), "origin": (d,), "scale": (d,)}
    return shapes if paired else shapes | {"phases": (m,)}


def _frozen(name: str, values: Array, shape: tuple[int, ...]) -> Float64:
    """A read-only float64 copy of finite values of this shape."""
    array = np.array(values, np.float64, order="C")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape} but needs {shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite.")
    array.flags.writeable = False
    return array
