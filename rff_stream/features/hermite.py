"""Hermite features: the eigenfunctions of the Gaussian kernel under a Gaussian measure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.features.base import (
    PADDED_ROWS,
    FeatureDtype,
    MapRequest,
    Nesting,
    RowwiseMap,
    check_drawn,
    check_dtype,
    frozen,
    prior_count,
    scratch,
    shifted_rows,
)
from rff_stream.kernels import Gaussian, length_scale_vector


@dataclass(frozen=True, eq=False, repr=False)
class HermiteFeatures(RowwiseMap):
    """z_n(x) = √λₙ φₙ(x), the R products of Hermite functions of largest eigenvalue; prior 1.

    k(x, x') = Σ λₙ φₙ(x) φₙ(x') with φₙ orthonormal under N(origin, deviation²) (Mercer).

    Parameters
    ----------
    orders : (R, d) int64
        Degree of each input in each column, the largest eigenvalues first.
    length_scale, deviation, origin : (d,) float64
        ℓ of the kernel, and the measure the expansion is best for, in units of the inputs.
    variance : float
    dtype : {"float32", "float64"}

    Raises
    ------
    ValueError
        If a length-scale or deviation is not positive.

    Notes
    -----
    With one input the error decays geometrically: R = 20 is nearly exact, while random features
    have an error of 1/√R. The degrees grow only like R^{1/d}: for d above about 5, or a short ℓ,
    the R largest eigenvalues leave most of the kernel out (see ``captured``). Beyond 2 or 3
    standard deviations the features go to 0. The map is not random: it depends only on the pilot.

    References
    ----------
    Rasmussen & Williams 2006, section 4.3.1. Fasshauer & McCourt 2012, eq. 3.2.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.linspace(-2, 2, 50)[:, None]
    >>> Z = HermiteFeatures.sample(rs.Gaussian(1.0), 1, 32, dtype="float64")(x)
    >>> bool(abs(Z @ Z.T - rs.Gaussian(1.0)(x, x)).max() < 1e-4)
    True
    """

    orders: Array
    length_scale: Float64
    deviation: Float64
    origin: Float64
    variance: float
    dtype: FeatureDtype
    choices: ClassVar[tuple[str, ...]] = ("hermite",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        r, d = np.shape(self.orders)
        object.__setattr__(self, "orders", frozen("orders", self.orders, (r, d), np.int64))
        for name in ("length_scale", "deviation", "origin"):
            object.__setattr__(self, name, frozen(name, getattr(self, name), (d,)))
        if not ((self.length_scale > 0).all() and (self.deviation > 0).all()):
            raise ValueError("length_scale and deviation hold values that are not > 0.")

    @classmethod
    def sample(
        cls,
        kernel: Gaussian,
        n_inputs: int,
        n_components: int,
        *,
        origin: ArrayLike | None = None,
        deviation: ArrayLike | None = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """The map of the R largest eigenvalues.

        Parameters
        ----------
        kernel : Gaussian
        n_inputs, n_components : int
            d and R.
        origin, deviation : (d,) arrays, optional
            Mean and standard deviation of the inputs; 0 and ℓ by default.
        dtype : {"float32", "float64"}

        Raises
        ------
        ValueError
            If the kernel is not Gaussian, or there is no column.
        """
        if not isinstance(kernel, Gaussian):
            raise ValueError(
                f"The {type(kernel).__name__} kernel has no Hermite expansion. "
                "Use Gaussian(), or another map."
            )
        check_drawn(
            n_inputs=n_inputs, n_components=n_components, origin=origin, deviation=deviation,
            dtype=dtype,
        )  # fmt: skip
        scale = length_scale_vector(kernel, n_inputs)
        spread = scale if deviation is None else np.asarray(deviation, np.float64)
        spread = np.broadcast_to(spread, scale.shape)
        return cls(
            orders=_largest(-np.log(_ratios(scale, spread)), n_components),
            length_scale=scale,
            deviation=spread,
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            variance=kernel.variance,
            dtype=dtype,
        )

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """For the pilot's mean and standard deviation."""
        kernel: Any = request.kernel  # sample refuses what is not Gaussian
        return cls.sample(
            kernel,
            request.rows.shape[1],
            request.n_components,
            origin=request.origin,
            deviation=request.scale,
            dtype=request.dtype,
        )

    @property
    def n_inputs(self) -> int:
        return int(self.orders.shape[1])

    @property
    def n_components(self) -> int:
        return len(self.orders)

    @property
    def nesting(self) -> Nesting:
        return "prefix"

    @property
    def eigenvalues(self) -> Float64:
        """λ (R,) at variance 1; all of them sum to 1."""
        ratios = _ratios(self.length_scale, self.deviation)
        return np.asarray(((1 - ratios) * ratios**self.orders).prod(axis=1))

    @property
    def captured(self) -> float:
        """Σ λ of the columns: how much of κ(0) they have on average, at most 1."""
        return float(self.eigenvalues.sum())

    def prior(self, n_components: int | None = None) -> Float64:
        """1 for each of the first R' columns."""
        return np.ones(prior_count(n_components, self.n_components))

    def __repr__(self) -> str:
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<HermiteFeatures of gaussian: {size}, {self.captured:.3f} of it, {self.dtype}>"

    @cached_property
    def _starts(self) -> Array:
        """Where the functions of each input start in the table of all (d + 1,)."""
        return np.concatenate([[0], np.cumsum(self.orders.max(axis=0) + 1)])

    @cached_property
    def _columns(self) -> Array:
        """Column (d, R) of each factor of each product in the table of all functions."""
        return np.ascontiguousarray((self.orders + self._starts[:-1]).T)

    def _map_batch(self, x: Array, Z: Array) -> None:
        table = self._functions(x)
        product = scratch.take("hermite product", self.n_components, "float64")
        factor = scratch.take("hermite factor", self.n_components, "float64")
        np.take(table, self._columns[0], axis=1, out=product, mode="clip")
        for columns in self._columns[1:]:
            product *= np.take(table, columns, axis=1, out=factor, mode="clip")
        product *= np.sqrt(self.variance)
        Z[...] = product[: len(x)]

    def _functions(self, x: Array) -> Float64:
        """√λ φ of every order of every input (144, Σ orders), by their recurrence.

        With t = αβx the normalised Hermite functions obey
        hₙ₊₁ = t √(2/(n+1)) hₙ − √(n/(n+1)) hₙ₋₁; each step also multiplies by √ratio.
        """
        scaled = shifted_rows(x, self.origin, self.deviation)
        table = scratch.take("hermite table", int(self._starts[-1]), "float64", PADDED_ROWS)
        ratios = _ratios(self.length_scale, self.deviation)
        beta = _beta(self.length_scale, self.deviation)
        for j, (q, b) in enumerate(zip(ratios, beta, strict=True)):
            u = np.ascontiguousarray(scaled[:, j])
            t, first = b * u / np.sqrt(2), int(self._starts[j])
            before = np.zeros_like(u)
            now = np.sqrt((1 - q) * b) * np.exp(-(b**2 - 1) / 4 * u**2)
            now[np.isinf(u)] = np.nan  # 0·∞ in the recurrence, in every order alike
            for n in range(int(self._starts[j + 1]) - first):
                table[:, first + n] = now
                step = t * np.sqrt(2 * q / (n + 1)) * now - q * np.sqrt(n / (n + 1)) * before
                before, now = now, step
        return table


def _beta(length_scale: Float64, deviation: Float64) -> Float64:
    """β = (1 + 4σ²/ℓ²)^{1/4}: with ε² = 1/2ℓ² and α² = 1/2σ², (1 + (2ε/α)²)^{1/4}."""
    return np.asarray((1 + 4 * (deviation / length_scale) ** 2) ** 0.25)


def _ratios(length_scale: Float64, deviation: Float64) -> Float64:
    """λₙ₊₁/λₙ of each input: ε²/(α² + δ² + ε²) with δ² = α²(β² − 1)/2; λ₀ = 1 − ratio."""
    c = (deviation / length_scale) ** 2  # ε²/α²
    return np.asarray(c / (1 + (_beta(length_scale, deviation) ** 2 - 1) / 2 + c))


def _largest(costs: Float64, count: int) -> Array:
    """The ``count`` vectors of orders n (count, d) of smallest Σ nⱼ costⱼ, in that order."""
    d = len(costs)
    heap: list[tuple[float, tuple[int, ...], int]] = [(0.0, (0,) * d, 0)]
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        cost, orders, last = heapq.heappop(heap)
        found.append(orders)
        for j in range(last, d):  # each vector is reached once, by its orders left to right
            raised = (*orders[:j], orders[j] + 1, *orders[j + 1 :])
            heapq.heappush(heap, (cost + float(costs[j]), raised, j))
    return np.array(found, np.int64)
