"""Structured orthogonal features: projections by fast Walsh-Hadamard transforms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import hadamard

from rff_stream._array import Array, Float64
from rff_stream.features.base import (
    PADDED_ROWS,
    FeatureDtype,
    MapRequest,
    RandomState,
    check_drawn,
    check_dtype,
    frozen,
    refuse_overflow,
    scratch,
    shifted_rows,
)
from rff_stream.features.cosine_map import CosineMap, check_components, write_waves
from rff_stream.kernels import Kernel, length_scale_vector

SWEEP_ROWS = 48
"""Rows transformed at once, whole tiles of BLAS: three buffers of 1,024 stay in the L2 cache."""

SMALLEST_SIZE = 64
"""Inputs are padded to at least this number: with fewer, random signs are no good rotation."""


@dataclass(frozen=True, eq=False, repr=False)
class StructuredFeatures(CosineMap):
    """Fourier features whose directions are the rows of H D₁ H D₂ H D₃: O(R log d) a row.

    H is the Walsh-Hadamard matrix of D = 2ᵖ ≥ d, the Dᵢ are random signs; D₃ serves all blocks
    of D frequencies. Lengths are those of the kernel's D-dimensional measure.

    Parameters
    ----------
    signs : (blocks, 2, D) float32
        Diagonals of D₁ and D₂ of each block.
    first_signs : (D,) float32
        Diagonal of D₃.
    lengths : (m,) float64
        ‖ω‖.
    phases : (m,) float64 or None
        None: pairs cos, sin.
    origin, scale : (d,) float64
    variance : float
    dtype : {"float32", "float64"}
    kernel : mapping
        ``spec()`` of the kernel: provenance only.

    Raises
    ------
    ValueError
        If signs do not make so many directions, or a scale or the variance is not
        positive.

    Notes
    -----
    H of D = ab is H_a ⊗ H_b: two products with small matrices, which BLAS does faster than
    NumPy could do log₂ D sweeps of additions. Directions are orthogonal inside a block but not
    exactly uniform: the bias is O(1/D) (Yu et al. 2016, theorem 3). Pays from some hundred
    inputs on; below, the dense :class:`FourierFeatures` are exact and no slower.

    References
    ----------
    Yu et al. 2016, section 4. Le et al. 2013 (Fastfood).
    """

    signs: Array
    first_signs: Array
    lengths: Float64
    phases: Float64 | None
    origin: Float64
    scale: Float64
    variance: float
    dtype: FeatureDtype
    kernel: Mapping[str, Any]
    choices: ClassVar[tuple[str, ...]] = ("structured",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        blocks, _, size = np.shape(self.signs)
        m, d = len(self.lengths), len(self.origin)
        if not (size & (size - 1) == 0 and d <= size and (blocks - 1) * size < m <= blocks * size):
            raise ValueError(f"signs of shape {np.shape(self.signs)} do not make {m} by {d}.")
        for name, shape in {"signs": (blocks, 2, size), "first_signs": (size,)}.items():
            object.__setattr__(self, name, frozen(name, getattr(self, name), shape, np.float32))
        shapes = {"lengths": (m,), "origin": (d,), "scale": (d,)}
        for name, length in (shapes if self.paired else shapes | {"phases": (m,)}).items():
            object.__setattr__(self, name, frozen(name, getattr(self, name), length))
        if not ((self.scale > 0).all() and 0 < self.variance < np.inf):
            raise ValueError(f"scale={self.scale}, variance={self.variance} but both must be > 0.")

    @classmethod
    def sample(
        cls,
        kernel: Kernel,
        n_inputs: int,
        n_components: int,
        *,
        paired: bool = True,
        origin: ArrayLike | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """A map drawn from an isotropic kernel's spectral measure; parameters as for Fourier.

        Raises
        ------
        ValueError
            If the kernel is not isotropic.
        """
        check_drawn(
            kernel=kernel, n_inputs=n_inputs, n_components=n_components,
            origin=origin, rng=rng, dtype=dtype,
        )  # fmt: skip
        check_components(n_components, paired)
        if not kernel.isotropic:
            raise ValueError(
                f"The {type(kernel).__name__} kernel is not isotropic but structured directions "
                "are rotated. Use FourierFeatures with frequencies='iid'."
            )
        generator = np.random.default_rng(rng)
        size = max(SMALLEST_SIZE, 1 << (n_inputs - 1).bit_length())
        count = n_components // 2 if paired else n_components
        unit = kernel.with_length_scale(None)
        first = generator.choice([-1.0, 1.0], size)
        signs, lengths, phases = [], [], []
        for _ in range(0, count, size):  # whole blocks: so draws nest
            signs.append(generator.choice([-1.0, 1.0], (2, size)))
            lengths.append(np.linalg.norm(unit.sample_frequencies(size, size, generator), axis=1))
            phases.append(generator.uniform(0, 2 * np.pi, size))
        return cls(
            signs=np.array(signs),
            first_signs=first,
            lengths=np.concatenate(lengths)[:count],
            phases=None if paired else np.concatenate(phases)[:count],
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            scale=length_scale_vector(kernel, n_inputs),
            variance=kernel.variance,
            dtype=dtype,
            kernel=kernel.spec(),
        )

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """About the pilot's mean; pairs where R is even."""
        return cls.sample(
            request.kernel,
            request.rows.shape[1],
            request.n_components,
            paired=request.n_components % 2 == 0,
            origin=request.origin,
            rng=request.seed,
            dtype=request.dtype,
        )

    @property
    def n_inputs(self) -> int:
        return len(self.origin)

    @property
    def n_frequencies(self) -> int:
        return len(self.lengths)

    @classmethod
    def _fields_of(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        return super()._fields_of({"paired": "phases" not in arrays} | dict(plain), arrays)

    @property
    def frequencies(self) -> Float64:
        """Ω (m, d), for comparison: the transforms of the unit vectors."""
        rows = np.eye(self.n_inputs) * self.scale + self.origin
        parts = [
            np.hstack([a.copy() for a in self._angles(rows[i : i + SWEEP_ROWS], phases=False)])
            for i in range(0, len(rows), SWEEP_ROWS)
        ]
        return np.vstack(parts).T.astype(np.float64)

    @property
    def _size(self) -> int:
        return len(self.first_signs)

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """H_b and H_a with ab = D."""
        half = (self._size.bit_length() - 1) // 2
        a = 1 << half
        return hadamard(self._size // a, self.dtype), hadamard(a, self.dtype)

    @cached_property
    def _diagonals(self) -> tuple[Array, Array, Array]:
        """D₃, the D₁ and D₂, and the lengths over D^{3/2}, in the dtype of the features."""
        lengths = np.zeros(len(self.signs) * self._size)
        lengths[: len(self.lengths)] = self.lengths / self._size**1.5
        with np.errstate(over="ignore"):
            return (
                self.first_signs.astype(self.dtype),
                self.signs.astype(self.dtype),
                lengths.astype(self.dtype).reshape(-1, self._size),
            )

    @cached_property
    def _largest_input(self) -> float:
        """The largest |x̃| whose transforms and angles are all finite."""
        widest = max(float(self.lengths.max()) * self.n_inputs**0.5, float(self._size) ** 2)
        return float(np.finfo(self.dtype).max / (4 * widest))

    def _transform(self, values: Array, out: Array) -> Array:
        """H of each row (48, D), its outcomes in a fixed order, into ``out``."""
        wide, narrow = self._factors
        b, a = len(wide), len(narrow)
        half, turned = (
            scratch.take(name, self._size, self.dtype, SWEEP_ROWS) for name in ("half", "turned")
        )
        np.matmul(values.reshape(-1, b), wide, out=half.reshape(-1, b))
        turned.reshape(-1, b, a)[...] = half.reshape(-1, a, b).swapaxes(1, 2)
        np.matmul(turned.reshape(-1, a), narrow, out=out.reshape(-1, a))
        return out

    def _angles(self, x: Array, *, phases: bool = True) -> Iterator[Array]:
        """Ωx̃ + b (rows, ≤ D) of each block, for at most 48 rows; valid until the next."""
        first, signs, lengths = self._diagonals
        base, values, out = (
            scratch.take(name, self._size, self.dtype, SWEEP_ROWS)
            for name in ("base", "values", "transformed")
        )
        values[:] = 0
        values[: len(x), : self.n_inputs] = self._shift(x)
        values *= first
        self._transform(values, base)
        for block, (outer, inner) in enumerate(signs):
            np.multiply(base, inner, out=values)
            self._transform(values, out)
            np.multiply(out, outer, out=values)
            self._transform(values, out)
            np.multiply(out, lengths[block], out=out)
            lo = block * self._size
            used = out[: len(x), : len(self.lengths) - lo]
            if phases and self.phases is not None:
                used += self.phases[lo : lo + self._size].astype(self.dtype)
            yield used

    def _shift(self, x: Array) -> Float64:
        """x̃ in float64; refuses what would overflow."""
        exact = shifted_rows(x, self.origin, self.scale)[: len(x)]
        if not np.abs(exact).max(initial=0) <= self._largest_input:  # so too when there is a NaN
            refuse_overflow(
                x, exact, self._largest_input,
                lambda i, j: f"which origin and scale turn into {exact[i, j]:.3g}: too large for "
                f"{self.dtype}. Mask such values.",
            )  # fmt: skip
        return exact

    def _map_batch(self, x: Array, Z: Array) -> None:
        columns = self._waves_of(Z)
        for start in range(0, min(len(x), PADDED_ROWS), SWEEP_ROWS):
            rows = slice(start, start + SWEEP_ROWS)
            lo = 0
            for angles in self._angles(x[rows]):
                hi = lo + angles.shape[1]
                write_waves(angles, (out[rows, lo:hi] for out in columns))
                lo = hi
