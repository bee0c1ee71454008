"""Sums and products of kernels, and a kernel made of a user's functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.kernels.base import (
    Composable,
    LengthScale,
    length_scale_vector,
    normalise,
    plain_scale,
    scaled_rows,
    spec_of,
)

__all__ = ["Product", "Sum", "UserKernel"]


class _Parts(Composable):
    """What sums and products share: ℓ divides the inputs of all parts."""

    __slots__ = ()
    parts: tuple[Any, ...]
    length_scale: LengthScale

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if len(parts) < 2:
            raise ValueError(f"{len(parts)} parts but a {self._name} has two or more. Give them.")
        parts = tuple(inner for part in parts for inner in self._flat(part))
        scale = plain_scale(self.length_scale)
        if scale is None and any(part.length_scale is not None for part in parts):
            scale = 1.0  # the parts bring their own
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "length_scale", scale)

    def _flat(self, part: Any) -> tuple[Any, ...]:
        """The parts of a part of the same kind: (a + b) + c is a + b + c."""
        same = isinstance(part, type(self)) and part.length_scale in (None, 1.0)
        return part.parts if same else (part,)

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    @property
    def isotropic(self) -> bool:
        """Whether each part is, and none has a length-scale for each input."""
        return all(
            getattr(part, "isotropic", False) and not isinstance(part.length_scale, tuple)
            for part in self.parts
        )

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        """The same kernel with another ℓ on top of those of its parts."""
        own: Any = self
        changed: Self = replace(own, length_scale=plain_scale(length_scale))
        return changed

    def spec(self) -> dict[str, Any]:
        scale = self.length_scale
        plain = list(scale) if isinstance(scale, tuple) else scale
        parts = [part.spec() for part in self.parts]
        return {"kernel": self._name, "length_scale": plain, "parts": parts}

    def _values(self, X: Array, Y: Array) -> list[Float64]:
        X, Y = scaled_rows(self, X, Y)  # type: ignore[arg-type]
        return [part(X, Y) for part in self.parts]

    def _samplers(self, method: str) -> list[Callable[..., Float64]]:
        """A method of each part, or the name of the part that has none."""
        for part in self.parts:
            if not hasattr(part, method):
                raise TypeError(
                    f"{type(part).__name__} has no {method}: it is a value without that sampler. "
                    "Use NystroemFeatures, or leave this part out."
                )
        return [getattr(part, method) for part in self.parts]


@dataclass(frozen=True, slots=True)
class Sum(_Parts):
    """k₁ + k₂ + …; its spectral measure is the mixture with the variances as weights.

    Parameters
    ----------
    parts : sequence of kernels
        Made by ``k1 + k2``.
    length_scale : float or sequence, optional
        Divides the inputs of all parts. Not set: 1 if a part brings its own.
    """

    parts: tuple[Any, ...]
    length_scale: LengthScale = None

    @property
    def variance(self) -> float:
        """Σ of the variances."""
        return float(sum(part.variance for part in self.parts))

    def __call__(self, X: Array, Y: Array) -> Float64:
        values = self._values(X, Y)
        return np.asarray(sum(values[1:], start=values[0]))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d), each from one part."""
        return self._mixed("sample_frequencies", n, d, rng) / self._scale(d)

    def sample_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Widths (n, d) of bins, those of a grid from one part."""
        return self._mixed("sample_pitches", n, d, rng) * self._scale(d)

    def _mixed(self, method: str, n: int, d: int, rng: Generator) -> Float64:
        """Draws (n, d) of the parts, chosen with their variances as weights."""
        weights = np.array([part.variance for part in self.parts]) / self.variance
        draws = np.stack([sample(n, d, rng) for sample in self._samplers(method)])
        return np.asarray(draws[rng.choice(len(weights), n, p=weights), np.arange(n)])

    def _scale(self, d: int) -> Float64:
        return length_scale_vector(self, d)

    def second_moment(self, d: int) -> float:
        """E‖ω‖², for one ℓ for all inputs; an upper bound for ARD."""
        found = sum(p.variance * second_moment(p, d) for p in self.parts) / self.variance
        return float(found / self._scale(d).min() ** 2)

    def scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(part.scaled(factor) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Product(_Parts):
    """k₁·k₂·…; a frequency is the sum of one of each part.

    Parameters
    ----------
    parts : sequence of kernels
        Made by ``k1 * k2``.
    length_scale : float or sequence, optional
        Divides the inputs of all parts. Not set: 1 if a part brings its own.
    """

    parts: tuple[Any, ...]
    length_scale: LengthScale = None

    @property
    def variance(self) -> float:
        """Π of the variances."""
        return float(math.prod(part.variance for part in self.parts))

    def __call__(self, X: Array, Y: Array) -> Float64:
        return np.asarray(math.prod(self._values(X, Y)))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) = ω₁ + ω₂ + …."""
        draws = [sample(n, d, rng) for sample in self._samplers("sample_frequencies")]
        return np.asarray(np.sum(draws, axis=0) / length_scale_vector(self, d))

    def second_moment(self, d: int) -> float:
        """E‖ω‖², for one ℓ for all inputs; an upper bound for ARD."""
        found = sum(second_moment(part, d) for part in self.parts)
        return float(found / length_scale_vector(self, d).min() ** 2)

    def scaled(self, factor: float) -> Self:
        first, *rest = self.parts
        return replace(self, parts=(first.scaled(factor), *rest))


def second_moment(kernel: Any, d: int) -> float:
    """E‖ω‖² where a kernel knows it, else infinity."""
    own = getattr(kernel, "second_moment", None)
    return math.inf if own is None else float(own(d))


def _absent(*_: Any) -> Float64:
    raise ModelError(
        "This kernel was loaded by its name: Python functions are not stored. "
        "Fourier maps predict without them; for Nyström maps, or to fit again, pass the "
        "UserKernel with its functions."
    )


@dataclass(frozen=True, slots=True)
class UserKernel(Composable):
    """κ by a function of yours, with a sampler of its spectral measure.

    Parameters
    ----------
    name : str
        What a stored model calls it. The functions themselves are not stored: a loaded model
        of Fourier features predicts (its map is arrays) but must be given the kernel again to be
        fitted; one of Nyström features needs the functions to predict.
    function : callable
        (X, Y) -> values (n, m) at ℓ = 1 of rows (n, d) and (m, d), 1 on the diagonal.
    sampler : callable
        (n, d, rng) -> frequencies (n, d) at ℓ = 1. Leave it out for Nyström features alone.
    isotropic : bool
        Whether a rotation keeps the spectral measure; True allows orthogonal frequencies.
    length_scale, variance
        As in :class:`Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> sinc = UserKernel(
    ...     "sinc",
    ...     lambda X, Y: np.sinc((X - Y.T) / np.pi),
    ...     lambda n, d, rng: rng.uniform(-1, 1, (n, d)),
    ... )
    >>> float(sinc(np.array([[0.0]]), np.array([[0.0]]))[0, 0])
    1.0
    """

    name: str
    function: Callable[[Float64, Float64], Array] = _absent
    sampler: Callable[[int, int, Generator], Array] = _absent
    isotropic: bool = False
    length_scale: LengthScale = None
    variance: float = 1.0

    def __post_init__(self) -> None:
        normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        X, Y = scaled_rows(self, X, Y)
        values = np.asarray(self.function(X, Y), np.float64)
        return self.variance * self._of_shape("function", values, (len(X), len(Y)))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) of the sampler, divided by ℓ."""
        omega = np.asarray(self.sampler(n, d, rng), np.float64)
        return self._of_shape("sampler", omega, (n, d)) / length_scale_vector(self, d)

    def _of_shape(self, function: str, values: Float64, shape: tuple[int, int]) -> Float64:
        if values.shape != shape:
            raise ValueError(
                f"The {function} of UserKernel {self.name!r} gave shape {values.shape} where "
                f"{shape} is needed. Return one value for each."
            )
        return values

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return spec_of("user", self) | {"name": self.name, "isotropic": self.isotropic}
