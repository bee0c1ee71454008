"""The contract of a kernel, and what every kernel shares."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64

if TYPE_CHECKING:
    from rff_stream.kernels.composed import Sum
    from rff_stream.kernels.error import ApproximationError

__all__ = [
    "Composable",
    "ExactKernel",
    "Kernel",
    "LengthScale",
    "distances",
    "inverse_square",
    "length_scale_vector",
    "normalise",
    "plain_scale",
    "positive",
    "scaled_rows",
    "spec_of",
]

LengthScale = float | tuple[float, ...] | None
"""One ℓ > 0, one for each input (ARD), or None: not set, and read as 1."""


@runtime_checkable
class ExactKernel(Protocol):
    """k(x, x') by its formula, positive definite: what Nyström features need."""

    @property
    def length_scale(self) -> LengthScale:
        """ℓ in units of the inputs; they are divided by it."""
        ...

    @property
    def variance(self) -> float:
        """What multiplies the formula: κ(0) where the kernel is shift-invariant."""
        ...

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m) of rows X (n, d) and Y (m, d)."""
        ...

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        """The same kernel with another ℓ."""
        ...

    def spec(self) -> dict[str, Any]:
        """Plain JSON that :func:`kernel_from_spec` reads."""
        ...


@runtime_checkable
class Kernel(ExactKernel, Protocol):
    """Shift-invariant: k(x, x') = κ(x − x'), with κ(0) = ``variance``.

    To write one, give the formula (``__call__``) and the sampler of its spectral measure
    (``sample_frequencies``); the tests check one against the other. :class:`UserKernel` makes
    one of two functions.
    """

    @property
    def isotropic(self) -> bool:
        """Whether a rotation keeps the spectral measure at ℓ = 1."""
        ...

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """n independent frequencies ω (n, d), in rad per unit of input."""
        ...


class Composable:
    """k₁ + k₂, k₁ * k₂ and c * k of kernels, and how well a map approximates one."""

    __slots__ = ()

    def __add__(self, other: Any) -> Sum:
        from rff_stream.kernels.composed import Sum

        return Sum((self, other)) if isinstance(other, ExactKernel) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        from rff_stream.kernels.composed import Product

        if isinstance(other, ExactKernel):
            return Product((self, other))
        numeric = isinstance(other, (int, float, np.number))
        return self.scaled(float(other)) if numeric else NotImplemented

    __rmul__ = __mul__

    def scaled(self, factor: float) -> Self:
        """c·k for c > 0: the same kernel with c times the variance."""
        own: Any = self
        scaled: Self = replace(own, variance=own.variance * positive("factor", factor))
        return scaled

    def approximation_error(self, features: Any, X: Array) -> ApproximationError:
        """Error of a map's kernel on rows X; see :func:`approximation_error`."""
        from rff_stream.kernels.error import approximation_error

        return approximation_error(features, self, X)  # type: ignore[arg-type]


def length_scale_vector(kernel: ExactKernel, d: int) -> Float64:
    """ℓ of each of d inputs (d,); refuses an ARD length-scale of another length."""
    scale = kernel.length_scale
    if isinstance(scale, tuple) and len(scale) != d:
        raise ValueError(
            f"length_scale has {len(scale)} values but the inputs have {d} columns. "
            "Give one value for all inputs, or one for each."
        )
    return np.full(d, 1.0 if scale is None else scale, dtype=np.float64)


def normalise(kernel: ExactKernel) -> None:
    """Make the fields plain floats, or refuse them."""
    object.__setattr__(kernel, "length_scale", plain_scale(kernel.length_scale))
    object.__setattr__(kernel, "variance", positive("variance", kernel.variance))


def plain_scale(length_scale: ArrayLike | None) -> LengthScale:
    """A float or a tuple of floats, each finite and > 0."""
    if length_scale is None:
        return None
    values = np.asarray(length_scale)
    if values.ndim > 1 or not values.size:
        raise ValueError(f"length_scale has shape {values.shape}. Give a number, or one per input.")
    if values.ndim == 0:
        return positive("length_scale", values.item())
    return tuple(positive(f"length_scale[{i}]", v) for i, v in enumerate(values.tolist()))


def positive(name: str, value: Any) -> float:
    """``value`` as a float that is finite and > 0."""
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}={value!r} but it is a finite number > 0. Give such a number.")
    return number


def spec_of(name: str, kernel: ExactKernel) -> dict[str, Any]:
    """Name, ℓ and variance as plain JSON."""
    scale = kernel.length_scale
    plain = list(scale) if isinstance(scale, tuple) else scale
    return {"kernel": name, "length_scale": plain, "variance": kernel.variance}


def scaled_rows(kernel: ExactKernel, X: Array, Y: Array) -> tuple[Float64, Float64]:
    """X/ℓ and Y/ℓ in float64."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape} but a kernel compares rows of equal length. "
            "Pass arrays of shapes (n, d) and (m, d)."
        )
    scale = length_scale_vector(kernel, X.shape[1])
    return X / scale, Y / scale


def distances(kernel: ExactKernel, X: Array, Y: Array, metric: str) -> Float64:
    """Distances (n, m) of X/ℓ and Y/ℓ."""
    return np.asarray(cdist(*scaled_rows(kernel, X, Y), metric))


def inverse_square(kernel: ExactKernel, d: int) -> float:
    """Σ 1/ℓⱼ²."""
    return float((length_scale_vector(kernel, d) ** -2.0).sum())
