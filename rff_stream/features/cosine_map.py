"""Maps whose columns are cosines of random projections: frequencies, and what they share.

A row has the same features whatever extras are installed and whatever batch it comes in. The
float32 cosines of NumPy give the same bits with AVX2 and with AVX-512. Frequencies are orthogonal,
independent or quasi-Monte-Carlo; a small draw is the beginning of a larger draw from the same
generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.features.base import Nesting, RowwiseMap, prior_count
from rff_stream.kernels import Kernel

Frequencies = Literal["orthogonal", "iid", "sobol", "halton"]

PORTION_ROWS = 64
"""Approximate number of frequencies that are drawn at once."""

SOBOL_BITS = 30
"""Binary digits of SciPy's Sobol points; half a last digit is added, so that quantiles are never
0 or 1."""


class CosineMap(RowwiseMap):
    """m frequencies as pairs cos, sin (``phases`` is None), or as cosines with phases.

    Beside ``phases``, a subclass has ``variance`` and ``kernel`` as fields, and ``n_frequencies``.
    """

    if TYPE_CHECKING:
        phases: Float64 | None
        variance: float
        kernel: Mapping[str, Any]

    @property
    def n_frequencies(self) -> int:
        """m."""
        raise NotImplementedError

    @cached_property
    def paired(self) -> bool:
        """Whether columns are cos/sin pairs."""
        return self.phases is None

    @cached_property
    def n_components(self) -> int:
        return (2 if self.paired else 1) * self.n_frequencies

    @property
    def nesting(self) -> Nesting:
        return "pairs" if self.paired else "average"

    @property
    def independent_terms(self) -> tuple[int, float]:
        """How many terms the kernel is the mean of, and the range of one at variance 1."""
        return self.n_frequencies, 2.0 if self.paired else 4.0

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) = 2·variance/R' for each of the first R' columns."""
        count = prior_count(n_components, self.n_components)
        check_components(count, self.paired)
        return np.full(count, 2 * self.variance / count)

    @classmethod
    def _fields_of(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        fields = super()._fields_of(plain, arrays)
        if fields.pop("paired"):
            fields["phases"] = None
        return fields

    def __repr__(self) -> str:
        name, kind = self.kernel.get("kernel"), "cos/sin pairs" if self.paired else "phases"
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<{type(self).__name__} of {name}: {size} ({kind}), {self.dtype}>"

    def _waves_of(self, Z: Array) -> list[Array]:
        """Views of the columns of cosines (n, m) in Z (n, R), and of sines for pairs."""
        return [Z[:, 0::2], Z[:, 1::2]] if self.paired else [Z]


def write_waves(angles: Array, columns: Iterable[Array]) -> None:
    """cos of angles (n, m) into the first of the arrays (n, m), and sin into the second, if any."""
    for wave, out in zip((np.cos, np.sin), columns, strict=False):
        wave(angles, out=out)


def draw(
    unit: Kernel, count: int, d: int, how: Frequencies, rng: Generator, paired: bool
) -> tuple[Float64, Float64]:
    """Ω (count, d) and b (count,) of a kernel of ℓ = 1."""
    if how in ("sobol", "halton"):
        return _low_discrepancy(unit, count, d, how, rng, paired)
    return _portions(unit, count, d, how == "orthogonal", rng)


def _portions(
    unit: Kernel, count: int, d: int, orthogonal: bool, rng: Generator
) -> tuple[Float64, Float64]:
    """Ω (count, d) and b (count,), in portions that depend on d alone: so draws nest."""
    size = max(1, PORTION_ROWS // d) * d
    omega, phases = [], []
    for _ in range(0, count, size):
        portion = unit.sample_frequencies(size, d, rng)
        if orthogonal:
            norms = np.linalg.norm(portion, axis=1, keepdims=True)
            portion = norms * rotations(size // d, d, rng).reshape(size, d)
        omega.append(portion)
        phases.append(rng.uniform(0, 2 * np.pi, size))
    return np.concatenate(omega)[:count], np.concatenate(phases)[:count]


def _low_discrepancy(
    unit: Any, count: int, d: int, how: str, rng: Generator, paired: bool
) -> tuple[Float64, Float64]:
    """Ω and b at the quantiles of scrambled points, of which any first ones are a draw."""
    from scipy.stats import qmc  # half a second to import, and few need it

    columns = unit.uniforms(d)
    extra = 0 if paired else 1
    seed = int(rng.integers(2**32))
    points: Any
    if how == "sobol":
        points = qmc.Sobol(columns + extra, scramble=True, seed=seed, bits=SOBOL_BITS)
    else:
        points = qmc.Halton(columns + extra, scramble=True, seed=seed)
    with warnings.catch_warnings():  # balance needs a power of 2; any count is a fair start
        warnings.simplefilter("ignore", UserWarning)
        u = np.asarray(points.random(count), np.float64)
    u = np.clip(u + 2.0 ** -(SOBOL_BITS + 1), 2.0**-40, 1 - 2.0**-40)
    phases = 2 * np.pi * u[:, -1] if extra else np.empty(count)
    return unit.frequencies_at(u[:, :columns], d), phases


def rotations(count: int, d: int, rng: Generator) -> Float64:
    """Haar-random (count, d, d): QR with R's diagonal made positive (Mezzadri 2007, section 5)."""
    q, r = np.linalg.qr(rng.standard_normal((count, d, d)))
    return np.asarray(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[:, None, :])


def resolve(kernel: Kernel, frequencies: Frequencies | None) -> Frequencies:
    """How to draw: orthogonal where a rotation keeps the measure, unless iid is asked."""
    if not kernel.stationary:
        raise ValueError(
            f"The {type(kernel).__name__} kernel has no spectral measure to draw from. "
            "Use NystroemFeatures (features='nystroem')."
        )
    if frequencies is None:
        return "orthogonal" if kernel.isotropic else "iid"
    if frequencies not in ("orthogonal", "iid", "sobol", "halton"):
        raise ValueError(
            f"frequencies={frequencies!r} but it must be one of 'orthogonal', 'iid', 'sobol', "
            "'halton'."
        )
    if frequencies == "orthogonal" and not kernel.isotropic:
        raise ValueError(
            f"frequencies='orthogonal' but a rotation changes the spectral measure of the "
            f"{type(kernel).__name__} kernel. Use frequencies='iid'."
        )
    if frequencies in ("sobol", "halton") and not kernel.uniforms(1):
        raise ValueError(
            f"frequencies={frequencies!r} but the {type(kernel).__name__} kernel does not know "
            "the quantiles of its spectral measure. Use frequencies='iid'."
        )
    return frequencies


def check_components(n_components: int, paired: bool) -> None:
    """R is even for pairs."""
    if paired and n_components % 2:
        raise ValueError(
            f"n_components={n_components} is odd but cos and sin come in pairs. "
            f"Use n_components={n_components + 1}."
        )
