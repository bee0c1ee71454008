"""Polynomial features: all products of up to ``degree`` inputs; exact for the polynomial kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.features.base import (
    FeatureDtype,
    MapRequest,
    Nesting,
    RowwiseMap,
    check_dtype,
    frozen,
    prior_count,
    refuse_overflow,
    shifted_rows,
)
from rff_stream.kernels import Polynomial, length_scale_vector


@dataclass(frozen=True, eq=False, repr=False)
class PolynomialFeatures(RowwiseMap):
    """z_m(x) = Πⱼ x̃ⱼ^mⱼ for every m with Σ mⱼ ≤ degree, x̃ = (x − origin)/scale, low degrees first.

    z(x)ᵀ diag(s) z(x') = variance·(x̃ᵀx̃' + offset)^degree exactly, for the multinomial
    s_m = variance · degree!/(Π mⱼ! · (degree − Σm)!) · offset^{degree − Σm}.

    Parameters
    ----------
    degree : int
        1 is linear regression; 2 has the interactions.
    offset : float
        c > 0 weighs lower degrees against higher ones.
    origin, scale : (d,) float64
        In units of the inputs. Give the mean of columns with large offsets.
    variance : float
    dtype : {"float64", "float32"}

    Raises
    ------
    ValueError
        If a scale is not positive.

    Notes
    -----
    R = (d + degree choose degree): 45 columns for 8 inputs and degree 2, 496 for 30. Where that
    is too many, ``NystroemFeatures`` of the kernel ``Polynomial`` has the best few of them.

    Examples
    --------
    >>> import numpy as np
    >>> features = PolynomialFeatures.sample(Polynomial(2.0, degree=2), 2)
    >>> x = np.array([[1.0, 2.0], [3.0, -4.0]])
    >>> Z = features(x)
    >>> Z[1] * 4  # 1, x₀/2, x₁/2 and their products, times 4
    array([  4.,   6.,  -8.,   9., -12.,  16.])
    >>> np.allclose((Z * features.prior()) @ Z.T, Polynomial(2.0, degree=2)(x, x))
    True
    """

    degree: int
    offset: float
    origin: Float64
    scale: Float64
    variance: float = 1.0
    dtype: FeatureDtype = "float64"
    choices: ClassVar[tuple[str, ...]] = ("polynomial",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        kernel = Polynomial(None, self.variance, self.degree, self.offset)  # checks them
        object.__setattr__(self, "degree", int(kernel.degree))
        shape = (np.size(self.origin),)
        for name in ("origin", "scale"):
            object.__setattr__(self, name, frozen(name, getattr(self, name), shape))
        if not (self.scale > 0).all():
            raise ValueError(f"scale={self.scale} but scales must be > 0.")

    @classmethod
    def sample(
        cls,
        kernel: Polynomial,
        n_inputs: int,
        *,
        origin: ArrayLike | None = None,
        dtype: FeatureDtype = "float64",
    ) -> Self:
        """The map of a polynomial kernel; nothing is drawn.

        Parameters
        ----------
        kernel : Polynomial
        n_inputs : int
            d.
        origin : (d,) array, optional
            Subtracted from the inputs; 0 by default, which gives the kernel as it is.
        dtype : {"float64", "float32"}

        Raises
        ------
        ValueError
            If the kernel is no polynomial.
        """
        if not isinstance(kernel, Polynomial):
            raise ValueError(
                f"The {type(kernel).__name__} kernel is no polynomial. Use "
                "Polynomial(degree=2), or another map."
            )
        return cls(
            degree=kernel.degree,
            offset=kernel.offset,
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            scale=length_scale_vector(kernel, n_inputs),
            variance=kernel.variance,
            dtype=dtype,
        )

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """About the pilot's mean; refuses fewer columns than the degree makes.

        Raises
        ------
        ValueError
            If another number of columns is asked for than the degree makes.
        """
        kernel: Any = request.kernel  # sample refuses what is no polynomial
        d = request.rows.shape[1]
        features = cls.sample(kernel, d, origin=request.origin, dtype=request.dtype)
        if features.n_components > request.n_components:
            raise ValueError(
                f"n_components={request.n_components} but degree {features.degree} of {d} inputs "
                f"makes {features.n_components} columns. Give so many, or use "
                "features='nystroem', which chooses among them."
            )
        return features

    @property
    def n_inputs(self) -> int:
        return len(self.origin)

    @property
    def n_components(self) -> int:
        return math.comb(self.n_inputs + self.degree, self.degree)

    @property
    def nesting(self) -> Nesting:
        return "prefix"

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) of the first R' columns: lower degrees first."""
        count = prior_count(n_components, self.n_components)
        return self._weights[:count].copy()

    def __repr__(self) -> str:
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<PolynomialFeatures of degree {self.degree}: {size}, {self.dtype}>"

    @cached_property
    def _factors(self) -> list[tuple[int, ...]]:
        """The inputs that each column multiplies, in increasing order."""
        inputs = range(self.n_inputs)
        return [
            factors
            for power in range(self.degree + 1)
            for factors in combinations_with_replacement(inputs, power)
        ]

    @cached_property
    def _weights(self) -> Float64:
        """s (R,), by logarithms: factorials overflow."""
        found = []
        for factors in self._factors:
            rest = self.degree - len(factors)
            times = np.bincount(factors, minlength=1) if factors else np.zeros(1, np.int64)
            log = math.lgamma(self.degree + 1) - math.lgamma(rest + 1)
            log -= sum(math.lgamma(m + 1) for m in times.tolist())
            found.append(log + rest * math.log(self.offset))
        return np.asarray(self.variance * np.exp(found))

    @cached_property
    def _steps(self) -> list[tuple[slice, Array, Array]]:
        """Of each degree: its columns, the columns of one degree less, and the inputs that join."""
        places = {factors: i for i, factors in enumerate(self._factors)}
        steps, start = [], 1
        for power in range(1, self.degree + 1):
            own = [factors for factors in self._factors if len(factors) == power]
            before = np.array([places[factors[:-1]] for factors in own], np.intp)
            joined = np.array([factors[-1] for factors in own], np.intp)
            steps.append((slice(start, start + len(own)), before, joined))
            start += len(own)
        return steps

    @cached_property
    def _largest_input(self) -> float:
        """The largest |x̃| whose powers are finite."""
        return float((float(np.finfo(self.dtype).max) / 4) ** (1 / self.degree))

    def _map_batch(self, x: Array, Z: Array) -> None:
        rows = shifted_rows(x, self.origin, self.scale)[: len(x)]
        if not np.abs(rows).max(initial=0) <= self._largest_input:  # so too when there is a NaN
            refuse_overflow(
                x, rows, self._largest_input,
                lambda i, j: f"and its power {self.degree} is too large for {self.dtype}. Mask "
                "such values, or give the column a larger scale.",
            )  # fmt: skip
        columns = np.empty((len(x), self.n_components))
        columns[:, 0] = np.where(np.isnan(rows).any(axis=1), np.nan, 1.0)
        for own, before, joined in self._steps:
            np.multiply(columns[:, before], rows[:, joined], out=columns[:, own])
        Z[...] = columns
