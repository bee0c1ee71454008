"""Kernels: values that know their exact formula and their own spectral measure.

A shift-invariant kernel k(x, x') = κ(x − x') is the Fourier transform of a measure on
frequencies ω (Bochner): κ(δ) = variance · E cos(ωᵀδ). So each kernel is its formula and a
sampler of ω, and one law tests both. Shapes: n and m rows, d inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from scipy.special import gammaln, kve

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError

__all__ = [
    "Cauchy",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "LengthScale",
    "Matern",
    "kernel_from_spec",
    "kernel_named",
    "length_scale_vector",
]

LengthScale = float | tuple[float, ...] | None
"""One ℓ > 0, one for each input (ARD), or None: not set, and read as 1."""


@runtime_checkable
class Kernel(Protocol):
    """Shift-invariant: k(x, x') = κ(x − x'), with κ(0) = ``variance``.

    To write one, give the formula (``__call__``) and the sampler of its spectral measure
    (``sample_frequencies``); the tests check one against the other.
    """

    @property
    def length_scale(self) -> LengthScale:
        """ℓ in units of the inputs."""
        ...

    @property
    def variance(self) -> float:
        """κ(0)."""
        ...

    @property
    def isotropic(self) -> bool:
        """Whether a rotation keeps the spectral measure at ℓ = 1."""
        ...

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m) of rows X (n, d) and Y (m, d)."""
        ...

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """n independent frequencies ω (n, d), in rad per unit of input."""
        ...

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        """The same kernel with another ℓ."""
        ...

    def spec(self) -> dict[str, Any]:
        """Plain JSON that :func:`kernel_from_spec` reads."""
        ...


@dataclass(frozen=True, slots=True)
class Gaussian:
    """κ(δ) = exp(−‖δ‖²/2ℓ²); its spectral measure is N(0, ℓ⁻² I).

    Parameters
    ----------
    length_scale : float or sequence of d floats, optional
        ℓ > 0 in units of the inputs; a sequence is ARD.
    variance : float
        κ(0) > 0; multiplies the formula.

    References
    ----------
    Rahimi & Recht 2007, figure 1. Rasmussen & Williams 2006, eq. 4.9.

    Examples
    --------
    >>> import numpy as np
    >>> float(Gaussian(2.0)(np.array([[0.0]]), np.array([[2.0]]))[0, 0])
    0.6065306597126334
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    isotropic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.variance * np.exp(-0.5 * _distances(self, X, Y, "sqeuclidean"))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ N(0, ℓ⁻²)."""
        return rng.standard_normal((n, d)) / length_scale_vector(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=_plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return _spec("gaussian", self)


@dataclass(frozen=True, slots=True)
class Laplacian:
    """κ(δ) = exp(−‖δ‖₁/ℓ); its spectral measure is a Cauchy of scale 1/ℓ for each input.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.

    Notes
    -----
    The norm is ℓ1, so a rotation changes the measure: draw frequencies "iid". The rotation
    invariant exp(−‖δ‖/ℓ) is ``Matern(nu=0.5)``.

    References
    ----------
    Rahimi & Recht 2007, figure 1.
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    isotropic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.variance * np.exp(-_distances(self, X, Y, "cityblock"))

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Cauchy(0, 1/ℓ)."""
        return rng.standard_cauchy((n, d)) / length_scale_vector(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=_plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return _spec("laplacian", self)


@dataclass(frozen=True, slots=True)
class Cauchy:
    """κ(δ) = Πⱼ 1/(1 + δⱼ²/ℓⱼ²); its spectral measure is a Laplace of scale 1/ℓ for each input.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.

    References
    ----------
    Rahimi & Recht 2007, figure 1 (there κ = Π 2/(1 + δ²), without its factor 2).
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    isotropic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _normalise(self)

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m), one input at a time."""
        X, Y = _scaled_rows(self, X, Y)
        product = np.ones((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            product *= 1 + (x[:, None] - y) ** 2
        return self.variance / product

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ Laplace(0, 1/ℓ)."""
        return rng.laplace(size=(n, d)) / length_scale_vector(self, d)

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=_plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return _spec("cauchy", self)


@dataclass(frozen=True, slots=True)
class Matern:
    """κ(δ) = 2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), t = √(2ν) ‖δ‖/ℓ; spectral measure: multivariate t, 2ν dof.

    Parameters
    ----------
    length_scale, variance
        As in :class:`Gaussian`.
    nu : float
        ν > 0, the smoothness: functions have ⌈ν⌉ − 1 derivatives. 0.5 is exp(−‖δ‖/ℓ), 1.5
        the usual choice; above about 10 a Gaussian is as good and cheaper.

    Notes
    -----
    The spectral measure is that of z/√w with z ~ N(0, ℓ⁻² I) and w ~ χ²(2ν)/2ν: a
    multivariate t of scale 1/ℓ. So κ is a mixture of Gaussians, E exp(−‖δ‖²/2wℓ²).

    References
    ----------
    Rasmussen & Williams 2006, eq. 4.14 (κ), 4.15 (its spectral density), 4.16 and
    4.17 (half-integer ν).
    """

    length_scale: LengthScale = None
    variance: float = 1.0
    nu: float = 1.5
    isotropic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _normalise(self)
        if self.nu == math.inf:
            raise ValueError("nu=inf is the Gaussian kernel. Use Gaussian(length_scale).")
        object.__setattr__(self, "nu", _positive("nu", self.nu))

    def __call__(self, X: Array, Y: Array) -> Float64:
        return self.variance * _matern(_distances(self, X, Y, "euclidean"), self.nu)

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """ω (n, d) ~ multivariate t with 2ν degrees of freedom and scale 1/ℓ."""
        normal = rng.standard_normal((n, d)) / length_scale_vector(self, d)
        mixing = rng.chisquare(2 * self.nu, (n, 1)) / (2 * self.nu)
        # For tiny ν the chi-square underflows. The floor keeps ω finite, and past 1e15 the
        # phase ωᵀδ is random for any δ that can be told from 0.
        return normal / np.sqrt(np.maximum(mixing, 1e-30))

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        return replace(self, length_scale=_plain_scale(length_scale))

    def spec(self) -> dict[str, Any]:
        return _spec("matern", self) | {"nu": self.nu}


_SHIPPED: dict[str, type[Gaussian | Laplacian | Cauchy | Matern]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "cauchy": Cauchy,
    "matern": Matern,
}


def kernel_named(name: str) -> Kernel:
    """The kernel of this name, length-scale not set, variance 1.

    Parameters
    ----------
    name : {"gaussian", "rbf", "laplacian", "cauchy", "matern"}
        "rbf" is the Gaussian; "matern" has ν = 1.5.

    """
    known = _SHIPPED | {"rbf": Gaussian}
    if name not in known:
        raise ValueError(
            f"kernel={name!r} but the named kernels are {', '.join(map(repr, sorted(known)))}. "
            "Use one of these, or pass a kernel such as Matern(nu=2.5)."
        )
    return known[name]()


def kernel_from_spec(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that gave this ``spec()``.

    Raises
    ------
    ModelError
        When the spec names no kernel of this version or has other fields than it.
    """
    name = spec.get("kernel")
    if name not in _SHIPPED:
        raise ModelError(
            f"The spec names kernel {name!r} but this version has {', '.join(_SHIPPED)}. "
            "Upgrade rff_stream, or check where the spec comes from."
        )
    kernel, fields = _SHIPPED[name], dict(spec)
    if fields.keys() != kernel().spec().keys():
        raise ModelError(
            f"The spec of a {name} kernel has fields {sorted(fields)} but needs "
            f"{sorted(kernel().spec())}. Check where the spec comes from."
        )
    del fields["kernel"]
    return kernel(**fields)


def length_scale_vector(kernel: Kernel, d: int) -> Float64:
    """ℓ of each of d inputs (d,); refuses an ARD length-scale of another length."""
    scale = kernel.length_scale
    if isinstance(scale, tuple) and len(scale) != d:
        raise ValueError(
            f"length_scale has {len(scale)} values but the inputs have {d} columns. "
            "Give one value for all inputs, or one for each."
        )
    return np.full(d, 1.0 if scale is None else scale, dtype=np.float64)


def _normalise(kernel: Kernel) -> None:
    """Make the fields plain floats, or refuse them."""
    object.__setattr__(kernel, "length_scale", _plain_scale(kernel.length_scale))
    object.__setattr__(kernel, "variance", _positive("variance", kernel.variance))


def _plain_scale(length_scale: ArrayLike | None) -> LengthScale:
    """A float or a tuple of floats, each finite and > 0."""
    if length_scale is None:
        return None
    values = np.asarray(length_scale)
    if values.ndim > 1 or not values.size:
        raise ValueError(f"length_scale has shape {values.shape}. Give a number, or one per input.")
    if values.ndim == 0:
        return _positive("length_scale", values.item())
    return tuple(_positive(f"length_scale[{i}]", v) for i, v in enumerate(values.tolist()))


def _positive(name: str, value: Any) -> float:
    """``value`` as a float that is finite and > 0."""
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}={value!r} but it is a finite number > 0. Give such a number.")
    return number


def _spec(name: str, kernel: Kernel) -> dict[str, Any]:
    scale = kernel.length_scale
    plain = list(scale) if isinstance(scale, tuple) else scale
    return {"kernel": name, "length_scale": plain, "variance": kernel.variance}


def _scaled_rows(kernel: Kernel, X: Array, Y: Array) -> tuple[Float64, Float64]:
    """X/ℓ and Y/ℓ in float64."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape} but a kernel compares rows of equal length. "
            "Pass arrays of shapes (n, d) and (m, d)."
        )
    scale = length_scale_vector(kernel, X.shape[1])
    return X / scale, Y / scale


def _distances(kernel: Kernel, X: Array, Y: Array, metric: str) -> Float64:
    """Distances (n, m) of X/ℓ and Y/ℓ."""
    return np.asarray(cdist(*_scaled_rows(kernel, X, Y), metric))


def _matern(distance: Float64, nu: float) -> Float64:
    """κ at ℓ = 1: closed forms for ν = 1/2, 3/2, 5/2 (Rasmussen & Williams 2006, eq. 4.17)."""
    t = math.sqrt(2 * nu) * distance
    if nu == 0.5:
        return np.exp(-t)
    if nu == 1.5:
        return (1 + t) * np.exp(-t)
    if nu == 2.5:
        return (1 + t + t**2 / 3) * np.exp(-t)
    return _matern_bessel(t, nu) if nu <= 20 else _matern_mixture(distance, nu)


def _matern_bessel(t: Float64, nu: float) -> Float64:
    """2^{1−ν}/Γ(ν) tᵛ Kᵥ(t), by logarithms; 1 where t is too small for Kᵥ (1 − κ < ε)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(nu, t)  # eᵗ Kᵥ(t)
        log = (1 - nu) * math.log(2) - gammaln(nu) + nu * np.log(t) + np.log(bessel) - t
    return np.where(np.isposinf(bessel), 1.0, np.minimum(np.exp(log), 1.0))


def _matern_mixture(distance: Float64, nu: float) -> Float64:
    """E exp(−‖δ‖²/2w), w ~ Gamma(ν, 1/ν), for large ν, where tᵛ Kᵥ(t) overflows.

    The trapezoidal rule in log w, 41 nodes over ±10 standard deviations: its error decays
    like exp(−2π²/h²) with the step h = 1/2, so only rounding is left.
    """
    log_w = np.linspace(-10, 10, 41) / math.sqrt(nu)
    weights = np.exp(nu * (log_w - np.expm1(log_w)))
    squared = distance**2
    value, total = np.zeros_like(squared), 0.0
    for weight, w in zip(weights, np.exp(log_w), strict=True):
        value += weight * np.exp(squared * (-0.5 / w))
        total += weight  # in the same order: so κ(0) is 1 exactly
    return value / total
