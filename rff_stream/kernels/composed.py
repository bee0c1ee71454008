"""Sums and products of kernels: what ``+`` and ``*`` make."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator
from scipy.special import logsumexp

from rff_stream._array import Array, Float64
from rff_stream.kernels.base import (
    ExactKernel,
    Kernel,
    LengthScale,
    kernel_from_spec,
    length_scale_vector,
    plain_scale,
    scaled_rows,
)


class _ComposedKernel(Kernel):
    """What sums and products share: ℓ divides the inputs of all parts."""

    __slots__ = ()
    parts: tuple[Any, ...]

    if TYPE_CHECKING:

        def _value(self, X: Float64, Y: Float64) -> Float64: ...
        def _gradient(self, X: Float64, Y: Float64) -> Float64: ...

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if len(parts) < 2:
            name = self.short_name()
            raise ValueError(f"{len(parts)} parts but a {name} has two or more. Give them.")
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
    def stationary(self) -> bool:
        """Whether each part is."""
        return all(part.stationary for part in self.parts)

    @property
    def isotropic(self) -> bool:
        """Whether each part is, and none has a length-scale for each input."""
        return all(
            part.isotropic and not isinstance(part.length_scale, tuple) for part in self.parts
        )

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self._value(*scaled_rows(self, X, Y))

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        return self._value(X, Y) / self.variance

    def length_scale_gradient(self, X: Array, Y: Array) -> Float64:
        return self._gradient(*scaled_rows(self, X, Y))

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        return self._gradient(X, Y) / self.variance

    def second_moment(self, d: int) -> float:
        """E‖ω‖², for one ℓ for all inputs; an upper bound for ARD."""
        return float(self.unit_second_moment(d) / length_scale_vector(self, d).min() ** 2)

    def spec(self) -> dict[str, Any]:
        """Plain JSON that :func:`kernel_from_spec` reads, with the specs of the parts."""
        scale = self.length_scale
        return {
            "kernel": self.short_name(),
            "length_scale": list(scale) if isinstance(scale, tuple) else scale,
            "parts": [part.spec() for part in self.parts],
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The kernel that gave this ``spec()``."""
        parts = tuple(kernel_from_spec(part) for part in spec.get("parts", ()))
        own = dict(spec) | ({"parts": parts} if "parts" in spec else {})
        return super().from_spec(own)

    def _draws(self, method: str) -> list[Callable[..., Float64]]:
        """A sampler of each part; refuses a part that is no function of x − x', by its name."""
        for part in self.parts:
            if not part.stationary:
                raise TypeError(
                    f"{type(part).__name__} has no {method}: it has a formula but no sampler. "
                    "Use NystroemFeatures, or leave this part out."
                )
        return [getattr(part, method) for part in self.parts]


@dataclass(frozen=True, slots=True)
class Sum(_ComposedKernel):
    """k₁ + k₂ + …; its spectral measure is the mixture with the variances as weights."""

    parts: tuple[Any, ...]  # made by ``k1 + k2``
    length_scale: LengthScale = None
    """Divides the inputs of all parts. If not set, it is 1 if a part has its own (float or
    sequence)."""

    @property
    def variance(self) -> float:
        """Σ of the variances."""
        return float(sum(part.variance for part in self.parts))

    @property
    def text(self) -> str:
        """The parts with + between."""
        return " + ".join(part.text for part in self.parts)

    def scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(part.scaled(factor) for part in self.parts))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d), each from one part."""
        return self._mix("sample_frequencies", n, d, rng)

    def unit_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Widths (n, d) of cells, those of a grid from one part."""
        return self._mix("sample_pitches", n, d, rng)

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """A mixture with the variances as weights."""
        every = [part.log_spectral_density(frequencies) for part in self.parts]
        return np.asarray(logsumexp(every, axis=0, b=self._shares()[:, None]))

    def unit_second_moment(self, d: int) -> float:
        moments = [part.second_moment(d) if part.stationary else math.inf for part in self.parts]
        return float(sum(self._shares() * moments))

    def _shares(self) -> Float64:
        return np.array([part.variance for part in self.parts]) / self.variance

    def _mix(self, method: str, n: int, d: int, rng: Generator) -> Float64:
        """Draws (n, d) of the parts, chosen with their variances as weights."""
        draws = np.stack([sample(n, d, rng) for sample in self._draws(method)])
        return np.asarray(draws[rng.choice(len(draws), n, p=self._shares()), np.arange(n)])

    def _value(self, X: Float64, Y: Float64) -> Float64:
        return functools.reduce(operator.add, (part(X, Y) for part in self.parts))

    def _gradient(self, X: Float64, Y: Float64) -> Float64:
        every = (part.length_scale_gradient(X, Y) for part in self.parts)
        return functools.reduce(operator.add, every)


@dataclass(frozen=True, slots=True)
class Product(_ComposedKernel):
    """k₁·k₂·…; a frequency is the sum of one of each part."""

    parts: tuple[Any, ...]  # made by ``k1 * k2``
    length_scale: LengthScale = None
    """Divides the inputs of all parts. Not set: 1 if a part brings its own (float or sequence)."""

    @property
    def variance(self) -> float:
        """Π of the variances."""
        return float(math.prod(part.variance for part in self.parts))

    @property
    def text(self) -> str:
        """The parts with * between, sums in brackets."""
        texts = (f"({p.text})" if isinstance(p, Sum) else p.text for p in self.parts)
        return " * ".join(texts)

    def scaled(self, factor: float) -> Self:
        first, *rest = self.parts
        return replace(self, parts=(first.scaled(factor), *rest))

    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) = ω₁ + ω₂ + …."""
        draws = [sample(n, d, rng) for sample in self._draws("sample_frequencies")]
        return np.asarray(np.sum(draws, axis=0))

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """Of parts whose product is one kernel; other convolutions have no closed form."""
        single, *rest = self.parts
        for part in rest:
            single = single.multiplied(part, frequencies.shape[1])
            if single is None:
                return ExactKernel.log_spectral_density(self, frequencies)
        return np.asarray(single.log_spectral_density(frequencies))

    def unit_second_moment(self, d: int) -> float:
        return float(sum(p.second_moment(d) if p.stationary else math.inf for p in self.parts))

    def _value(self, X: Float64, Y: Float64) -> Float64:
        return np.asarray(math.prod(part(X, Y) for part in self.parts))

    def _gradient(self, X: Float64, Y: Float64) -> Float64:
        values = [part(X, Y) for part in self.parts]
        slopes = (
            part.length_scale_gradient(X, Y) * math.prod(values[:i] + values[i + 1 :])
            for i, part in enumerate(self.parts)
        )
        return functools.reduce(operator.add, slopes)
