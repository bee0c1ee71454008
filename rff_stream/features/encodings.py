"""Encodings: maps that are not random, for angles, times, categories and quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.features.base import (
    FeatureDtype,
    Nesting,
    RowwiseMap,
    check_dtype,
    frozen,
    prior_count,
)
from rff_stream.features.cosine_map import check_components


class Encoding(RowwiseMap):
    """What encodings share: columns in [−1, 1] or so, prior 1, computed in float64."""

    dtype: FeatureDtype

    @property
    def n_inputs(self) -> int:
        return 1

    @property
    def nesting(self) -> Nesting:
        return "none"

    def prior(self, n_components: int | None = None) -> Float64:
        """1 for each column.

        Raises
        ------
        ValueError
            If fewer columns are asked for: those of an encoding belong together.
        """
        if prior_count(n_components, self.n_components) < self.n_components:
            raise ValueError(
                f"n_components={n_components} but the {self.n_components} columns of an "
                "encoding belong together. Make the smaller encoding."
            )
        return np.ones(self.n_components)

    def __repr__(self) -> str:
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        return f"<{type(self).__name__}: {size}, {self.dtype}>"

    def _map_batch(self, x: Array, Z: Array) -> None:
        padded = np.zeros((128, self.n_inputs))  # one shape: the same bits in any batch
        padded[: len(x)] = x
        Z[...] = self._encode(padded)[: len(x)]

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """By the columns' own slopes."""
        own = self._encode_slopes(np.asarray(X, np.float64))
        sums = "nrd,rt->ndt" if weights.ndim == 2 else "nrd,nrt->ndt"
        return np.asarray(np.einsum(sums, own, weights))

    def _encode(self, x: Float64) -> Float64:
        """Columns (128, R) of padded rows (128, d)."""
        raise NotImplementedError

    def _encode_slopes(self, x: Float64) -> Float64:
        """∂z_r/∂x_j (n, R, d) of rows (n, d)."""
        raise ValueError(f"{self!r} has no slopes in closed form. Leave it out, or use another.")


class _Waves(Encoding):
    """cos and sin of 2πt, pair by pair, of turns t (n, R/2) that a subclass counts."""

    @property
    def nesting(self) -> Nesting:
        return "pairs"

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) = 2/R': k(x, x) = 1."""
        count = prior_count(n_components, self.n_components)
        check_components(count, paired=True)
        return np.full(count, 2 / count)

    def _encode(self, x: Float64) -> Float64:
        angles = 2 * np.pi * np.remainder(self._turns(x), 1.0)
        return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(len(x), -1)

    def _encode_slopes(self, x: Float64) -> Float64:
        angles = 2 * np.pi * np.remainder(self._turns(x), 1.0)
        waves = np.stack([-np.sin(angles), np.cos(angles)], axis=2) * self._speeds[:, None]
        return waves.reshape(len(x), -1, 1)

    def _turns(self, x: Float64) -> Float64:
        raise NotImplementedError

    @property
    def _speeds(self) -> Float64:
        """2π times the turns (R/2,) in a unit of the input."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class Periodic(_Waves):
    """cos and sin of 2πh(x − origin)/period for h = 1 … harmonics: 23:59 is next to 0:00.

    Parameters
    ----------
    period : float
        In units of the input: 24 for hours, 360 for degrees.
    harmonics : int
        1 makes the input periodic; more give a positional embedding with details down to
        period/harmonics.
    origin : float
        Origin of the phase. Give a time near the data if they are far from 0.
    dtype : {"float64", "float32"}

    Raises
    ------
    ValueError
        If the period is not positive, or there is no harmonic.
    """

    period: float
    harmonics: int = 1
    origin: float = 0.0
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if not (0 < self.period < np.inf and self.harmonics >= 1):
            raise ValueError(
                f"period={self.period} and harmonics={self.harmonics} but a period is > 0 and "
                "has at least 1 harmonic."
            )

    @property
    def n_components(self) -> int:
        return 2 * self.harmonics

    @property
    def periods(self) -> Mapping[int, float]:
        """The period of the one input."""
        return {0: self.period}

    def _turns(self, x: Float64) -> Float64:
        return np.remainder((x - self.origin) / self.period, 1.0) * np.arange(1, self.harmonics + 1)

    @property
    def _speeds(self) -> Float64:
        return np.asarray(2 * np.pi / self.period * np.arange(1, self.harmonics + 1))


@dataclass(frozen=True, eq=False, repr=False)
class Positional(_Waves):
    """cos and sin of 2π(x − origin)/pₖ for n_periods pₖ from ``longest`` to ``shortest``.

    pₖ = longest·(shortest/longest)^{k/(n_periods − 1)}: near values are similar at every period,
    far values only at the long ones, so the kernel falls with the logarithm of the distance. Use
    it for inputs with structure at many scales, such as a position along a line.

    Parameters
    ----------
    longest, shortest : float
        Periods in units of the input. ``longest`` must be at least twice the range of the input;
        otherwise its two ends look alike.
    n_periods : int
        R = 2·n_periods.
    origin : float
        Origin of the phases. Give a value near the data if they are far from 0.
    dtype : {"float64", "float32"}

    Raises
    ------
    ValueError
        If there are less than two periods, or they do not fall to one above 0.

    References
    ----------
    Vaswani et al. 2017, section 3.5 (longest 2π·10⁴, shortest 2π). Mildenhall et al. 2020, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> Z = Positional(longest=100.0, shortest=1.0, n_periods=3)(np.array([[0.0], [50.0]]))
    >>> Z.round(6) + 0.0  # periods 100, 10 and 1: half a turn, five turns, fifty
    array([[ 1.,  0.,  1.,  0.,  1.,  0.],
           [-1.,  0.,  1.,  0.,  1.,  0.]])
    """

    longest: float
    shortest: float
    n_periods: int
    origin: float = 0.0
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if not (0 < self.shortest < self.longest < np.inf and self.n_periods >= 2):
            raise ValueError(
                f"longest={self.longest}, shortest={self.shortest} and n_periods={self.n_periods} "
                "but there are two periods or more, from a longest to a shorter one > 0."
            )

    @property
    def n_components(self) -> int:
        return 2 * self.n_periods

    @cached_property
    def _periods(self) -> Float64:
        return np.geomspace(self.longest, self.shortest, self.n_periods)

    def _turns(self, x: Float64) -> Float64:
        return np.asarray((x - self.origin) / self._periods)

    @property
    def _speeds(self) -> Float64:
        return 2 * np.pi / self._periods


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseLinear(Encoding):
    """min(max((x − tᵢ)/(tᵢ₊₁ − tᵢ), 0), 1) for each bin between knots t: splines of degree 1.

    Parameters
    ----------
    knots : (R + 1,) float64
        Increasing.
    dtype : {"float64", "float32"}

    Raises
    ------
    ValueError
        If knots are fewer than two, or do not increase.

    References
    ----------
    Gorishniy et al. 2022, eq. 1.
    """

    knots: Float64
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        knots = frozen("knots", self.knots, (np.size(self.knots),))
        if len(knots) < 2 or not (np.diff(knots) > 0).all():
            raise ValueError(f"knots={knots} but there must be two or more, in increasing order.")
        object.__setattr__(self, "knots", knots)

    @classmethod
    def of_rows(cls, x: ArrayLike, n_bins: int = 16, *, dtype: FeatureDtype = "float64") -> Self:
        """Knots at the quantiles of rows x (n,), such as the pilot's; equal knots are merged."""
        values = np.asarray(x, np.float64)
        knots = np.unique(np.nanquantile(values, np.linspace(0, 1, n_bins + 1)))
        return cls(knots, dtype)

    @property
    def n_components(self) -> int:
        return len(self.knots) - 1

    def _encode(self, x: Float64) -> Float64:
        return np.clip((x - self.knots[:-1]) / np.diff(self.knots), 0, 1)

    def _encode_slopes(self, x: Float64) -> Float64:
        inside = (self.knots[:-1] <= x) & (x < self.knots[1:])
        return np.asarray((inside / np.diff(self.knots))[:, :, None])


@dataclass(frozen=True, eq=False, repr=False)
class OneHot(Encoding):
    """1 in the column of the category, 0 elsewhere; a category not listed is a row of 0.

    Parameters
    ----------
    categories : (R,) float64
        Numbers that stand for the categories, each once.
    dtype : {"float64", "float32"}

    Raises
    ------
    ValueError
        If a category is listed twice.
    """

    categories: Float64
    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        found = frozen("categories", self.categories, (np.size(self.categories),))
        if not len(found) or len(np.unique(found)) < len(found):
            raise ValueError(f"categories={found} but each must be listed once. Remove copies.")
        object.__setattr__(self, "categories", found)

    @property
    def n_components(self) -> int:
        return len(self.categories)

    def _encode(self, x: Float64) -> Float64:
        return np.where(np.isnan(x), np.nan, x == self.categories)

    def _encode_slopes(self, x: Float64) -> Float64:
        return np.zeros((len(x), self.n_components, 1))  # steps


POLE = 90.0 * (1 + 1e-6)
"""Latitude of a pole in degrees, and its rounding in float32 files."""


@dataclass(frozen=True, eq=False, repr=False)
class Sphere(Encoding):
    """The unit vector of (latitude, longitude) in degrees: no seam at the date line.

    zᵀz' is the cosine of the angle between two places. ``Sphere().then(map)`` makes any kernel
    one of chordal distance. A latitude beyond ±90° is refused: most often longitude stands first.
    """

    dtype: FeatureDtype = "float64"

    def __post_init__(self) -> None:
        check_dtype(self.dtype)

    @property
    def n_inputs(self) -> int:
        return 2

    @property
    def n_components(self) -> int:
        return 3

    def _encode(self, x: Float64) -> Float64:
        latitude = np.radians(np.ascontiguousarray(x[:, 0]))
        beyond = np.flatnonzero(np.abs(x[:, 0]) > POLE)
        if len(beyond):
            raise DataError(
                f"A row has latitude {x[beyond[0], 0]:g} and longitude {x[beyond[0], 1]:g}, but "
                f"latitudes lie between -90 and 90 degrees. Sphere takes (latitude, longitude), in "
                f"this order: look at the order of the columns, and at their units."
            )
        longitude = np.radians(np.remainder(x[:, 1], 360.0))
        east, north = np.cos(latitude), np.sin(latitude)
        return np.column_stack([east * np.cos(longitude), east * np.sin(longitude), north])

    def _encode_slopes(self, x: Float64) -> Float64:
        east, side, north = self._encode(x).T
        level = np.hypot(east, side)
        longitude = np.radians(np.remainder(x[:, 1], 360.0))
        along = np.stack([-north * np.cos(longitude), -north * np.sin(longitude), level], axis=1)
        across = np.stack([-side, east, np.zeros(len(x))], axis=1)
        return np.asarray(np.radians(np.stack([along, across], axis=2)))


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Encoding):
    """(x − origin)/scale: the inputs themselves, next to encodings or for a linear model."""

    origin: Float64  # (d,)
    scale: Float64  # (d,)
    dtype: FeatureDtype = "float64"  # {"float64", "float32"}

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        for name in ("origin", "scale"):
            shape = (np.size(self.origin),)
            object.__setattr__(self, name, frozen(name, getattr(self, name), shape))
        if not (self.scale > 0).all():
            raise ValueError(f"scale={self.scale} but scales must be > 0.")

    @property
    def n_inputs(self) -> int:
        return len(self.origin)

    @property
    def n_components(self) -> int:
        return len(self.origin)

    def _encode(self, x: Float64) -> Float64:
        return (x - self.origin) / self.scale

    def _encode_slopes(self, x: Float64) -> Float64:
        own: Float64 = np.diag(1 / self.scale)
        return np.broadcast_to(own, (len(x), *own.shape))
