"""What a kernel is, and all that every kernel shares.

A kernel is one frozen dataclass in one file. It writes its formula (and, where it is a function
of x − x', a sampler of its spectral measure) at ℓ = 1 and variance 1, in methods whose names
start with ``unit_``. Everything else is here: length-scales and the variance, sums and products,
names, specs, text, integrals and gradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.registry import Registry, snake_case

LengthScale = float | tuple[float, ...] | None
"""One ℓ > 0, one for each input (ARD), or None: not set, which means 1."""


def _names_of(name: str, cls: type) -> tuple[str, ...]:
    """What ``kernel="…"`` takes for a class that needs no argument: its name and its aliases."""
    own: Any = cls
    if any(f.default is MISSING and f.default_factory is MISSING for f in fields(own)):
        return ()
    # A class derived from another has its own name, and not the aliases of its base.
    return (name, *vars(cls).get("aliases", ()))


KERNELS: Registry[ExactKernel] = Registry("kernel", _names_of)
"""Every kernel by its name, also those of other packages once they are imported."""

STEP = 2.0**-17
"""Half the relative step of central differences: errors from rounding and curvature are both
about 1e-10."""

SLOPE_VALUES = 1 << 21
"""Values d·n·m of the slopes of a block of rows: 17 MB."""


class ExactKernel(ABC):
    """k(x, x') by its formula, positive definite: what Nyström features need.

    To write one, make a frozen dataclass with the fields ``length_scale`` and ``variance``, first
    its own if it has any, and give it :meth:`unit_value`. Write :class:`Kernel` instead where k
    depends on x − x' alone, and :class:`RadialKernel` where it depends on ‖x − x'‖.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class ScaledProduct(ExactKernel):
    ...     length_scale: LengthScale = None
    ...     variance: float = 1.0
    ...
    ...     def unit_value(self, X, Y):
    ...         return X @ Y.T
    >>> float(ScaledProduct(2.0)(np.array([[2.0]]), np.array([[6.0]]))[0, 0])  # (2/2)·(6/2)
    3.0
    """

    __slots__ = ()
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names of the kernel, such as "rbf"."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        @property
        def length_scale(self) -> LengthScale:
            """ℓ in units of the inputs; they are divided by it."""

        @property
        def variance(self) -> float:
            """What multiplies the formula: κ(0) where the kernel is shift-invariant."""

    def __init_subclass__(cls) -> None:
        KERNELS.add(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", plain_scale(self.length_scale))
        object.__setattr__(self, "variance", positive("variance", self.variance))

    # what a kernel writes

    @abstractmethod
    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        """k (n, m) of rows X (n, d) and Y (m, d) at ℓ = 1 and variance 1."""

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """∂k/∂ log ℓⱼ (d, n, m) at ℓ = 1 and variance 1; by central differences, error ~1e-10."""
        slopes = []
        for j in range(X.shape[1]):
            sides = []
            for factor in (math.exp(-STEP), math.exp(STEP)):
                near, far = X.copy(), Y.copy()
                near[:, j] *= factor
                far[:, j] *= factor
                sides.append(self.unit_value(near, far))
            slopes.append((sides[0] - sides[1]) / (2 * STEP))
        return np.reshape(slopes, (X.shape[1], len(X), len(Y)))

    # what a kernel has

    @property
    def stationary(self) -> bool:
        """Whether k depends on x − x' alone: then it has a spectral measure, and a sampler."""
        return False

    @property
    def isotropic(self) -> bool:
        """Whether a rotation keeps the spectral measure at ℓ = 1."""
        return False

    def __call__(self, X: Array, Y: Array) -> Float64:
        """Exact values (n, m) of rows X (n, d) and Y (m, d)."""
        return self.variance * self.unit_value(*scaled_rows(self, X, Y))

    def length_scale_gradient(self, X: Array, Y: Array) -> Float64:
        """∂k/∂ log ℓⱼ (d, n, m) of rows X (n, d) and Y (m, d).

        The sum over j is the derivative by the logarithm of one ℓ for all inputs. Where ℓ is
        not set it is 1. Holds d·n·m values.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> x = np.array([[0.0, 0.0], [1.0, 2.0]])
        >>> Gaussian(2.0).length_scale_gradient(x[:1], x[1:]).ravel()  # κ·(δⱼ/ℓ)²
        array([0.13381536, 0.53526143])
        """
        return self.variance * self.unit_gradient(*scaled_rows(self, X, Y))

    def weighted_gradient(self, X: Array, weights: Float64, values: Float64) -> Float64:
        """Σ weightsᵢⱼ ∂k(xᵢ, xⱼ)/∂ log ℓ (d,): what a climb over length-scales asks for.

        Of symmetric weights (n, n), of which the lower triangle is read, and values k(xᵢ, xⱼ).
        """
        both = np.tril(weights) + np.tril(weights, -1).T
        return np.asarray(np.einsum("dnm,nm->d", self.length_scale_gradient(X, X), both))

    def input_slopes(self, X: Array, Y: Array, weights: Float64) -> Float64:
        """∂/∂x_j Σ_u c_u k(x, u) (n, d, T) of rows X (n, d), over the rows u of Y (m, d).

        Weights c are (m, T), or (n, m, T) for other weights at every row of X. What a kernel with
        a corner adds at u itself is 0.

        Raises
        ------
        ValueError
            For a kernel that is no function of x − x'.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> x, u = np.array([[1.0]]), np.array([[0.0]])
        >>> Gaussian(2.0).input_slopes(x, u, np.ones((1, 1))).round(4).tolist()  # −x/ℓ² κ(x)
        [[[-0.2206]]]
        """
        if not self.stationary:
            raise ValueError(
                f"{self!r} has no slopes here, because it is no function of x − x'. Use Gaussian, "
                "Matern or another kernel that is."
            )
        x, y = scaled_rows(self, X, Y)
        found = np.empty((*x.shape, weights.shape[-1]))
        size = max(SLOPE_VALUES // max(y.size, 1), 1)
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            own = weights[rows] if weights.ndim == 3 else weights
            found[rows] = self.unit_slopes(x[rows], y, own)
        return found * (self.variance / length_scale_vector(self, x.shape[1])[:, None])

    def unit_slopes(self, X: Float64, Y: Float64, weights: Float64) -> Float64:
        """The same at ℓ = 1 and variance 1, from −δⱼ ∂κ/∂δⱼ."""
        slopes = self.unit_gradient(X, Y)
        for j, own in enumerate(slopes):
            apart = Y[:, j] - X[:, j, None]
            own /= np.where(apart == 0, np.inf, apart)
        sums = "jnm,nmt->njt" if weights.ndim == 3 else "jnm,mt->njt"
        return np.asarray(np.einsum(sums, slopes, weights, optimize=True))

    def log_spectral_density(self, frequencies: Array) -> Float64:
        """log p(ω) (m,) of frequencies ω (m, d), in rad per unit of input.

        κ(δ) = variance · ∫ p(ω) cos(ωᵀδ) dω with ∫p = 1, so p is in (unit of input)ᵈ.

        Raises
        ------
        ValueError
            For a kernel whose spectral density is not known.
        """
        raise ValueError(
            f"{self!r} has no spectral density that is known. Use Gaussian, Laplacian, Cauchy, "
            "Matern, RationalQuadratic or a sum of them, or give a kernel of your own the method "
            "unit_log_spectral_density(frequencies)."
        )

    def spectral_density(self, frequencies: Array) -> Float64:
        """p(ω) (m,) of frequencies ω (m, d); see :meth:`log_spectral_density`.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> Gaussian(2.0).spectral_density(np.zeros((1, 1)))  # 2/√(2π)
        array([0.79788456])
        """
        return np.exp(self.log_spectral_density(frequencies))

    def sample_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Widths (n, d) of the cells of random grids, in units of the inputs.

        Raises
        ------
        ValueError
            For a kernel that is no mixture of such grids.
        """
        raise ValueError(
            f"The {type(self).__name__} kernel has no density of cell widths. Random "
            "binning is for Laplacian kernels and sums of them; use FourierFeatures."
        )

    def with_length_scale(self, length_scale: ArrayLike | None) -> Self:
        """The same kernel with another ℓ; on top of those of the parts of a sum or product."""
        own: Any = self
        changed: Self = replace(own, length_scale=plain_scale(length_scale))
        return changed

    def with_gamma(self, gamma: float) -> Self:
        """The same kernel with the ℓ that ``gamma`` of scikit-learn says.

        Raises
        ------
        ValueError
            For a kernel that has no gamma there, or a gamma that is no number > 0.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> Gaussian().with_gamma(2.0)  # exp(−2‖δ‖²)
        Gaussian(length_scale=0.5, variance=1.0)
        """
        return self.with_length_scale(self.length_scale_of_gamma(positive("gamma", gamma)))

    def length_scale_of_gamma(self, gamma: float) -> float:
        """ℓ at which this kernel is scikit-learn's kernel of that name with ``gamma``.

        Raises
        ------
        ValueError
            If the kernel has no γ in scikit-learn.
        """
        raise ValueError(
            f"gamma={gamma!r} but {self!r} has no gamma in scikit-learn. Give length_scale."
        )

    def scaled(self, factor: float) -> Self:
        """c·k for c > 0: the same kernel with c times the variance."""
        own: Any = self
        changed: Self = replace(own, variance=own.variance * positive("factor", factor))
        return changed

    def __add__(self, other: Any) -> Any:
        return self._joined("sum", other) if isinstance(other, ExactKernel) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, ExactKernel):
            return self._joined("product", other)
        numeric = isinstance(other, (int, float, np.number))
        return self.scaled(float(other)) if numeric else NotImplemented

    __rmul__ = __mul__

    def _joined(self, name: str, other: ExactKernel) -> Any:
        """The kernel of this name whose parts are both: a class above this one, by its name."""
        joined: Any = KERNELS.by_name[name]
        return joined((self, other))

    # names, specs and text

    @classmethod
    def short_name(cls) -> str:
        """What specs, the command line and ``kernel="…"`` call it: "rational_quadratic"."""
        return snake_case(cls.__name__)

    @property
    def text(self) -> str:
        """The name and the fields of its own: "gaussian", "matern nu=2.5"."""
        shared = {"length_scale", "variance"}
        own = [name for name in self._stored_names() if name not in shared]
        return " ".join([self.short_name(), *(f"{n}={_short(getattr(self, n))}" for n in own)])

    def spec(self) -> dict[str, Any]:
        """Plain JSON that :func:`kernel_from_spec` reads: the name and every stored field."""
        return {"kernel": self.short_name()} | {
            n: _plain(getattr(self, n)) for n in self._stored_names()
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The kernel that gave this ``spec()``.

        Raises
        ------
        ModelError
            When it has other fields than this kernel.
        """
        needed = {"kernel", *cls._stored_names()}
        if spec.keys() != needed:
            raise ModelError(
                f"The spec of a {cls.short_name()} kernel has fields {sorted(spec)} but needs "
                f"{sorted(needed)}. Check where the spec comes from."
            )
        return cls(**{name: spec[name] for name in needed - {"kernel"}})

    @classmethod
    def _stored_names(cls) -> list[str]:
        own: Any = cls
        return [
            field.name for field in fields(own) if field.metadata.get("stored", True) is not None
        ]


class Kernel(ExactKernel):
    """Shift-invariant: k(x, x') = κ(x − x') = variance · E cos(ωᵀ(x − x')), κ(0) = ``variance``.

    To write one, make a frozen dataclass with the fields ``length_scale`` and ``variance``, and
    give it the formula (:meth:`unit_value`) and the sampler of its spectral measure
    (:meth:`unit_frequencies`); the tests check one against the other. Where they are known, add

    - ``isotropic``: True where a rotation keeps the measure: orthogonal frequencies;
    - ``uniforms`` and ``unit_quantiles``: Sobol and Halton points;
    - ``unit_log_spectral_density``: densities, Fourier grids;
    - ``unit_second_moment``: the uniform bound of the approximation error;
    - ``unit_pitches``: random binning;
    - ``self_convolution``: bandwidths by cross-validation;
    - ``multiplied``: the spectral density of products;
    - ``unit_gradient``: in place of differences.
    """

    __slots__ = ()

    # what a kernel writes

    @abstractmethod
    def unit_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """n independent frequencies ω (n, d) at ℓ = 1."""

    def uniforms(self, d: int) -> int:
        """Uniform numbers that make one ω; 0 where the quantiles are not known."""
        return 0

    def unit_quantiles(self, u: Float64, d: int) -> Float64:
        """ω (n, d) at ℓ = 1 of uniform numbers u (n, uniforms) in (0, 1).

        Raises
        ------
        ValueError
            If the kernel does not know the quantiles of its spectral measure.
        """
        raise ValueError(
            f"The {type(self).__name__} kernel does not know the quantiles of its spectral "
            "measure. Use frequencies='iid'."
        )

    def unit_log_spectral_density(self, frequencies: Float64) -> Float64:
        """log p(ω) (m,) at ℓ = 1 of frequencies (m, d)."""
        return ExactKernel.log_spectral_density(self, frequencies)

    def unit_second_moment(self, d: int) -> float:
        """E‖ω‖² at ℓ = 1, the same for each input; infinity where it is, or is not known."""
        return math.inf

    def unit_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        """Widths (n, d) of the cells of random grids at ℓ = 1: density p(w) ∝ w κ''(w)."""
        return ExactKernel.sample_pitches(self, n, d, rng)

    def self_convolution(self, d: int) -> Kernel:
        """The kernel of variance 1 that κ∗κ is proportional to: its spectral density is ∝ p².

        Raises
        ------
        ValueError
            Where it is not known.
        """
        raise ValueError(
            f"{self!r} has no convolution with itself that is known. Use Gaussian, Laplacian, "
            "Cauchy or Matern."
        )

    def multiplied(self, other: Kernel, d: int) -> Kernel | None:
        """The one kernel that the product with another is, whatever its variance; None if none."""
        return None

    # what a kernel has

    @property
    def stationary(self) -> bool:
        return True

    def sample_frequencies(self, n: int, d: int, rng: Generator) -> Float64:
        """n independent frequencies ω (n, d), in rad per unit of input."""
        return self.unit_frequencies(n, d, rng) / length_scale_vector(self, d)

    def frequencies_at(self, u: Float64, d: int) -> Float64:
        """Frequencies ω (n, d) at quantiles u (n, uniforms) in (0, 1)."""
        return np.asarray(self.unit_quantiles(u, d) / length_scale_vector(self, d))

    def sample_pitches(self, n: int, d: int, rng: Generator) -> Float64:
        return self.unit_pitches(n, d, rng) * length_scale_vector(self, d)

    def log_spectral_density(self, frequencies: Array) -> Float64:
        omega = np.asarray(frequencies, np.float64)
        scale = length_scale_vector(self, omega.shape[1])
        return np.asarray(self.unit_log_spectral_density(omega * scale) + np.log(scale).sum())

    def second_moment(self, d: int) -> float:
        """E‖ω‖² = −∇²κ(0)/κ(0); infinity where it is, or is not known."""
        return self.unit_second_moment(d) * float((length_scale_vector(self, d) ** -2.0).mean())


class RadialKernel(Kernel):
    """κ(δ) is a function of ‖δ/ℓ‖: write :meth:`unit_radial` in place of ``unit_value``."""

    __slots__ = ()

    @abstractmethod
    def unit_radial(self, squared: Float64) -> Float64:
        """κ (n, m) at variance 1, where ‖δ/ℓ‖² is ``squared``."""

    def write_radial(self, squared: Float64, spare: Float64) -> None:
        """The same in place of ``squared``; ``spare`` is an array like it, of any content."""
        squared[...] = self.unit_radial(squared)

    def unit_decay(self, squared: Float64) -> Float64:
        """−r dκ/dr (n, m) at variance 1, r² = ``squared``; by central differences."""
        closer, farther = (self.unit_radial(squared * math.exp(s)) for s in (-2 * STEP, 2 * STEP))
        return np.asarray((closer - farther) / (2 * STEP))

    def of_squared_distance(self, squared: Float64) -> Float64:
        """κ (n, m) where ‖δ/ℓ‖² is ``squared``."""
        values = self.unit_radial(squared)
        return values if self.variance == 1 else self.variance * values

    def write_value(self, squared: Float64, spare: Float64) -> None:
        """The same in place of ``squared``; ``spare`` is an array like it, of any content."""
        self.write_radial(squared, spare)
        if self.variance != 1:
            squared *= self.variance

    def slope(self, squared: Float64) -> Float64:
        """dκ/d‖δ/ℓ‖² (n, m) where ‖δ/ℓ‖² is ``squared``, and 0 where that is 0."""
        apart = squared > 0
        decay = np.where(apart, self.unit_decay(squared), 0) / np.where(apart, squared, 1)
        return np.asarray(-0.5 * self.variance * decay)

    def write_unit(self, squared: Float64, value: Float64, slope: Float64) -> None:
        """Write κ and dκ/d‖δ/ℓ‖² (n, m) at variance 1; may write over ``squared``.

        The slope is 0 where the distance is 0. For kernels where both share what is dear.
        """
        apart = squared > 0
        slope[...] = np.where(apart, self.unit_decay(squared), 0)
        slope /= np.where(apart, -2 * squared, 1)
        value[...] = self.unit_radial(squared)

    def write_value_and_slope(self, squared: Float64, value: Float64, slope: Float64) -> None:
        """Write κ and dκ/d‖δ/ℓ‖² (n, m) where ‖δ/ℓ‖² is ``squared``, which may be written over."""
        self.write_unit(squared, value, slope)
        if self.variance != 1:
            value *= self.variance
            slope *= self.variance

    @property
    def isotropic(self) -> bool:
        return True

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        return self.unit_radial(np.asarray(cdist(X, Y, "sqeuclidean")))

    def unit_gradient(self, X: Float64, Y: Float64) -> Float64:
        """−2 δⱼ² dκ/d‖δ‖² for each input j (d, n, m)."""
        share = -2 / self.variance * self.slope(np.asarray(cdist(X, Y, "sqeuclidean")))
        each = ((x[:, None] - y) ** 2 * share for x, y in zip(X.T, Y.T, strict=True))
        return np.reshape(list(each), (X.shape[1], len(X), len(Y)))

    def unit_slopes(self, X: Float64, Y: Float64, weights: Float64) -> Float64:
        """2 Σ_u c_u κ'(‖x − u‖²)(x_j − u_j): two products for each set of weights."""
        x, y = X - Y[:1], Y - Y[:1]  # about a row where little cancels
        decay = self.slope(np.asarray(cdist(x, y, "sqeuclidean")))
        decay *= 2 / self.variance
        found = np.empty((*x.shape, weights.shape[-1]))
        for t in range(weights.shape[-1]):
            share = decay * weights[..., t]
            found[..., t] = share.sum(axis=1)[:, None] * x - share @ y
        return found


class DotProductKernel(ExactKernel):
    """k is a function of xᵀx', ‖x‖ and ‖x'‖: write :meth:`unit_of_products`."""

    __slots__ = ()

    @abstractmethod
    def unit_of_products(self, products: Float64, x: Float64, y: Float64) -> Float64:
        """k (n, m) at variance 1 of xᵀx'/ℓ² (n, m) and the lengths ‖x/ℓ‖ (n,), ‖x'/ℓ‖ (m,)."""

    def unit_value(self, X: Float64, Y: Float64) -> Float64:
        lengths = (np.linalg.norm(rows, axis=1) for rows in (X, Y))
        return self.unit_of_products(X @ Y.T, *lengths)


def kernel_from_spec(spec: Mapping[str, Any]) -> Any:
    """The kernel that gave this ``spec()``.

    A :class:`UserKernel` comes back by its name, without its functions. A kernel of another
    package comes back once that package is imported.

    Raises
    ------
    ModelError
        When the spec names no kernel of this version or has other fields than it.
    """
    classes: Mapping[Any, type[ExactKernel]] = KERNELS.by_name
    name = spec.get("kernel")
    if name not in classes:
        raise ModelError(
            f"The spec names kernel {name!r} but this version has {', '.join(sorted(classes))}. "
            "Upgrade rff_stream, import the package of that kernel, or check where the spec comes "
            "from."
        )
    return classes[name].from_spec(spec)


def log_integral(kernel: Kernel, d: int) -> float:
    """log ∫κ = log(variance · (2π)ᵈ p(0)) over d inputs, in logarithms of (unit of input)ᵈ.

    The Fourier transform of the density κ/∫κ is p(ω)/p(0). (2π)ᵈ overflows for some hundred inputs.

    Raises
    ------
    ValueError
        For a kernel without a known or finite integral: no density can be made of it.

    Examples
    --------
    >>> from rff_stream.kernels import Gaussian
    >>> round(math.exp(log_integral(Gaussian(2.0), 1)), 6)  # 2·√(2π)
    5.013257
    """
    peak = float(kernel.log_spectral_density(np.zeros((1, d)))[0])
    integral = d * math.log(2 * math.pi) + peak
    if not math.isfinite(integral):
        raise ValueError(
            f"{kernel!r} has log ∫κ = {integral} in {d} dimensions, and only a kernel with a "
            "finite integral makes a density. Use a Gaussian or a Matern kernel."
        )
    return math.log(kernel.variance) + integral


def length_scale_vector(kernel: ExactKernel, d: int) -> Float64:
    """ℓ of each of d inputs (d,); refuses an ARD length-scale of another length."""
    scale = kernel.length_scale
    if isinstance(scale, tuple) and len(scale) != d:
        raise ValueError(
            f"length_scale has {len(scale)} values but the inputs have {d} columns. "
            "Give one value for all inputs, or one for each."
        )
    return np.full(d, 1.0 if scale is None else scale, dtype=np.float64)


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
        raise ValueError(f"{name}={value!r} but it must be a finite number > 0.")
    return number


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


def _plain(value: Any) -> Any:
    """A field as JSON."""
    return list(value) if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
