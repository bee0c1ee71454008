"""A grid of equispaced frequencies: columns whose sums do not depend on the kernel.

    z_j(x) = exp(2πi j·(x − c)/L),   j ∈ ℤᵈ, |j_a| ≤ m_a

A stationary kernel enters afterwards, as weights of the columns (Greengard, Rachh & Barnett
2023, section 2): k(x, x') ≈ Σ_j D_j² z_j(x) z_j(x')*, with D_j² = κ(0) p(2πj/L) Π 2π/L_a and
p the kernel's spectral density. That is the kernel with period L, cut off at the frequency
m/L. Letters: d inputs (1 to 3), m modes to each side, M = Π (2m_a + 1) columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.fft import next_fast_len

from rff_stream._array import Array, Float64
from rff_stream.arguments import (
    ENDS,
    POSITIVE,
    Rule,
    is_mapping,
    is_several,
    is_whole,
    one_of,
    whole,
)
from rff_stream.errors import OutsideGridError
from rff_stream.features.base import MapRequest, NamedMap, UndrawnMap
from rff_stream.kernels import Kernel, length_scale_vector

MOST_INPUTS = 3
"""The number of columns grows as this power; for more than three inputs other maps are better."""

MODES = {1: (2048,), 2: (150, 150), 3: (24, 24, 24)}
"""Modes on each side of zero if a map is made directly, and the largest number of columns of a
request."""

PADDING = 0.3
"""The period is longer than the extent by this share, so that opposite ends of the data are not
neighbours."""

TAIL, FEWEST_MODES, LEAST_MODES = 1e-7, 8, 2
"""Share of a kernel's variance that modes may leave out; smallest numbers of modes, because
fewer save nothing unless other axes need them."""

SLACK = 0.05
"""Rows may lie outside the box of the grid by this share of its extent."""


Trend = Literal["constant", "linear"]


BY_COLUMN = Rule("a mapping of columns", is_mapping, optional=True)

MODES_OF_AXES = Rule(
    f"{whole(1).words} for each axis",
    lambda value: is_several(value) and all(map(is_whole, value)),
    lambda value: len(value) > 0 and all(map(whole(1).holds, value)),
)


@dataclass(frozen=True, slots=True)
class Grid(UndrawnMap):
    """How to make a frequency grid: ``features=Grid(…)`` of an estimator; "grid" is ``Grid()``.

    Parameters
    ----------
    modes : tuple of int, optional
        Frequencies on each side of zero for every axis. By default they follow from the
        length-scales: those that you give, or those found on small windows of the first rows.
    columns : int, optional
        Largest number of columns Π (2m + 1) of such modes; by default 4,097, 90,601 or 117,649
        for one, two or three inputs. A warning comes if many more are needed.
    periods : mapping of input to float, optional
        Inputs that are periodic by nature: ``{"lon": 360, "time.dayofyear": 365.25}``. By name,
        or by number if inputs have no names.
    box : mapping of input to (float, float), optional
        Least and greatest value of an input; by default those of the pilot rows. A row that
        lies outside by more than 5 % of the extent is refused.
    trend : {"constant", "linear"}
        Unpenalised part of the model if ``fit_intercept`` is True: a mean, or a mean and a slope
        along each input.
    padding : float
        The period is longer than the extent by this share of it. It should be about the distance
        at which the kernel is small.

    Raises
    ------
    ValueError
        If both modes and columns are given, there is no such trend, or a size, an end of
        the box or a period is none.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (2000, 1)); y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2000)
    >>> grid = rs.Grid(modes=(64,))
    >>> model = rs.GaussianProcessRegressor("matern", features=grid, random_state=0).fit(X, y)
    >>> bool(0.09 < model.noise_variance_**0.5 < 0.11)
    True
    """

    modes: tuple[int, ...] | None = None
    periods: Mapping[Any, float] | None = None
    box: Mapping[Any, tuple[float, float]] | None = None
    trend: Trend = "constant"
    padding: float = PADDING
    columns: int | None = None

    def __post_init__(self) -> None:
        whole(3, optional=True).check("columns", self.columns)
        for name in ("periods", "box"):
            BY_COLUMN.check(name, getattr(self, name))
        if self.modes is not None and self.columns is not None:
            raise ValueError(
                f"modes={self.modes} and columns={self.columns}, but modes say how many columns "
                "there are. Give one of the two."
            )
        one_of("constant", "linear").check("trend", self.trend)
        if self.modes is not None:
            check_modes(self.modes)
            object.__setattr__(self, "modes", tuple(int(m) for m in self.modes))
        for name, ends in (self.box or {}).items():
            ENDS.check(f"box[{name!r}]", ends)
        for name, period in (self.periods or {}).items():
            POSITIVE.check(f"periods[{name!r}]", period)
        if self.box is not None:
            pairs = {name: (float(low), float(high)) for name, (low, high) in self.box.items()}
            object.__setattr__(self, "box", pairs)
        POSITIVE.check("padding", self.padding)

    def modes_of(self, n_inputs: int) -> tuple[int, ...]:
        """Modes to each side of every axis; alike for all where length-scales will say.

        Raises
        ------
        ValueError
            If there are modes for another number of inputs.
        """
        if self.modes is None:
            side = self.columns_of(n_inputs) ** (1 / n_inputs)
            return (max(1, int((side + 1e-9 - 1) / 2)),) * n_inputs
        if len(self.modes) != n_inputs:
            raise ValueError(
                f"modes={self.modes} but the data have {n_inputs} inputs. Give one for each."
            )
        return self.modes

    def columns_of(self, n_inputs: int) -> int:
        """Most columns of modes that length-scales share out."""
        check_n_inputs(n_inputs)
        if self.columns is not None:
            return self.columns
        return int(np.prod([2 * m + 1 for m in MODES[n_inputs]]))


def share_modes(
    kernel: Kernel,
    period: Float64,
    columns: int,
    *,
    tail: float = TAIL,
    spacing: Float64 | None = None,
) -> tuple[int, ...]:
    """Modes to each side of every axis for the length-scales of a kernel.

    m_a = ρ L_a/(2π ℓ_a): one cut-off ρ for all axes, in units of their length-scales. It is where
    the kernel's variance beyond is a ``tail`` of the whole along an axis, or less where there
    would be more than so many ``columns`` Π (2m + 1); these are exceeded only by 2 modes to each
    side. Waves finer than the ``spacing`` of values of an input look like coarser ones there.
    """
    d = len(period)
    each = np.asarray(period) / (2 * np.pi * length_scale_vector(kernel, d))  # m at ρ = 1
    finest = (
        np.full(d, np.inf) if spacing is None else np.maximum(np.ceil(period / (2 * spacing)), 1)
    )

    def modes_at(cutoff: float, fewest: int) -> tuple[int, ...]:
        wanted = np.clip(np.ceil(np.minimum(cutoff * each, 1e6)), fewest, finest)
        return tuple(int(m) for m in wanted)

    def size(modes: tuple[int, ...]) -> float:
        return float(np.prod([2.0 * m + 1 for m in modes]))

    along = kernel.with_length_scale(1.0)
    cutoffs = np.geomspace(1e-2, 1e6, 1601)
    enough = cutoffs[tail_beyond(along, cutoffs) <= tail]
    most = float(enough[0]) if len(enough) else float(cutoffs[-1])
    if size(modes_at(most, FEWEST_MODES)) <= columns:
        return modes_at(most, FEWEST_MODES)
    within = [cut for cut in cutoffs if size(modes_at(cut, LEAST_MODES)) <= columns]
    return modes_at(min(within[-1], most) if within else 0.0, LEAST_MODES)


def tail_beyond(kernel: Kernel, cutoffs: Array) -> Float64:
    """Share of the variance along one axis at frequencies above each of rising cut-offs."""
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1e7, 3001)])
    middle = np.sqrt(edges[1:] * np.maximum(edges[:-1], 1e-12))
    middle[0] = edges[1] / 2
    mass = kernel.spectral_density(middle[:, None]) * np.diff(edges)
    beyond = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
    return np.asarray(np.interp(cutoffs, edges, beyond) / beyond[0])


def check_n_inputs(d: int) -> None:
    """Refuse more inputs than a grid is for."""
    if not 1 <= d <= MOST_INPUTS:
        raise ValueError(
            f"A grid of frequencies for {d} inputs would have {'×'.join(['(2m+1)'] * d)} "
            f"columns. It is for 1 to {MOST_INPUTS} inputs; use features='local' or Fourier "
            "features for more."
        )


def check_modes(modes: Sequence[int]) -> None:
    """Refuse an axis without modes."""
    MODES_OF_AXES.check("modes", modes)


@dataclass(frozen=True, eq=False)
class GridFeatures(NamedMap):
    """Equispaced frequencies j/L around a centre c, for one to three inputs.

    Parameters
    ----------
    centre : (d,) float64
        c, in units of the inputs.
    period : (d,) float64
        L > 0, in units of the inputs.
    reach : (d,) float64
        Rows have ``|x − c| ≤ reach``; infinite along an axis that is periodic by nature.
    modes : tuple of d int
        m ≥ 1.

    Examples
    --------
    >>> import numpy as np
    >>> grid = GridFeatures.over(np.zeros(2), np.ones(2), modes=(3, 4))
    >>> grid.n_components, grid.half_shape
    (63, (7, 5))
    """

    reaches_all: ClassVar[bool] = False
    centre: Float64
    period: Float64
    reach: Float64
    modes: tuple[int, ...]

    choices: ClassVar[tuple[str, ...]] = ("grid",)

    def __post_init__(self) -> None:
        check_n_inputs(len(self.modes))
        check_modes(self.modes)

    @classmethod
    def over(
        cls,
        low: Array,
        high: Array,
        *,
        modes: Sequence[int] | None = None,
        periods: Mapping[int, float] | None = None,
        padding: float = PADDING,
    ) -> Self:
        """The grid for rows between two corners (d,) of a box.

        Parameters
        ----------
        low, high : (d,) array
            Least and greatest value of each input.
        modes : sequence of int, optional
            m of each axis; by default 2048, 150 × 150 or 24 × 24 × 24.
        periods : mapping of axis to float, optional
            Axes that are periodic by nature, such as longitude (360) or day of year (365.25).
        padding : float
            The period is longer than the extent by this share of it. It should be about the
            distance at which the kernel is small.

        Returns
        -------
        GridFeatures
        """
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        check_n_inputs(len(low))
        extent = np.where(high > low, high - low, 1.0)
        period, reach = extent * (1 + padding), extent * (0.5 + SLACK)
        for axis, length in (periods or {}).items():
            period[axis], reach[axis] = length, np.inf
        sides = MODES[len(low)] if modes is None else modes
        return cls((low + high) / 2, period, reach, tuple(int(m) for m in sides))

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: estimators that take a grid make it for the extent of the rows.

        Raises
        ------
        ValueError
            If the estimator cannot be fitted on a grid.
        """
        raise ValueError(
            f"features={choice!r} but grids are for KernelRidge and GaussianProcessRegressor. "
            "Choose a map of the whole space here."
        )

    @property
    def periods(self) -> Mapping[int, float]:
        """Of axes that are periodic by nature."""
        axes = np.flatnonzero(np.isinf(self.reach)).tolist()
        return {axis: float(self.period[axis]) for axis in axes}

    @property
    def n_inputs(self) -> int:
        """d."""
        return len(self.modes)

    @property
    def dtype(self) -> str:
        """float64: sums of lower precision do not resolve small noise."""
        return "float64"

    @property
    def row_columns(self) -> int:
        return 0

    @property
    def n_components(self) -> int:
        """M, the number of columns."""
        return int(np.prod([2 * m + 1 for m in self.modes]))

    @property
    def half_shape(self) -> tuple[int, ...]:
        """Shape of coefficients j with j_d ≥ 0: the others are their conjugates."""
        return (*(2 * m + 1 for m in self.modes[:-1]), self.modes[-1] + 1)

    @property
    def difference_shape(self) -> tuple[int, ...]:
        """Shape of differences of two frequencies, k = j − j' with k_d ≥ 0."""
        return (*(4 * m + 1 for m in self.modes[:-1]), 2 * self.modes[-1] + 1)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Lengths of real Fourier transforms that hold a product with T without wrapping."""
        return tuple(next_fast_len(4 * m + 1, real=True) for m in self.modes)

    def indices(self) -> tuple[Array, ...]:
        """j (1-d arrays) along each axis of coefficients in half shape."""
        full = [np.fft.ifftshift(np.arange(-m, m + 1)) for m in self.modes[:-1]]
        return (*full, np.arange(self.modes[-1] + 1))

    @cached_property
    def frequencies(self) -> Float64:
        """Angular frequencies 2πj/L (half shape, d)."""
        axes = [
            2 * np.pi * j / length for j, length in zip(self.indices(), self.period, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)

    @cached_property
    def multiplicity(self) -> Float64:
        """2 for a coefficient that stands for its conjugate too, 1 for the plane j_d = 0."""
        found = np.full(self.half_shape, 2.0)
        found[..., 0] = 1.0
        return found

    def angles(self, X: Array) -> Float64:
        """2π(x − c)/L, contiguous (d, n), in float64.

        Raises
        ------
        OutsideGridError
            If a row lies beyond the reach of the grid: names the first, its input and its value.
        """
        shifted = np.asarray(X, np.float64) - self.centre
        outside = ~self._reached(shifted)
        if outside.any():
            row, axis = np.argwhere(outside)[0]
            low, high = self.centre[axis] - self.reach[axis], self.centre[axis] + self.reach[axis]
            raise OutsideGridError(
                f"{int(outside.any(axis=1).sum())} row(s) lie outside the box of the frequency "
                f"grid; the first has {float(X[row, axis])!r} for input {axis}, and the grid was "
                f"made for {low:.6g} to {high:.6g}. Give the box of all rows, as in "
                "features=Grid(box={'x': (low, high)}), or leave these out."
            )
        turned = np.remainder(shifted / self.period + 0.5, 1.0) - 0.5
        return np.ascontiguousarray(2 * np.pi * turned.T)

    def covers(self, X: Array) -> Array:
        """Whether each row of X (n, d) lies within the reach of the grid."""
        return np.asarray(self._reached(np.asarray(X, np.float64) - self.centre).all(axis=1))

    def _reached(self, shifted: Float64) -> Array:
        return np.asarray(np.abs(shifted) <= self.reach)

    def spec(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        """Plain JSON and arrays, enough to rebuild the grid."""
        plain = {"map": "grid", "modes": list(self.modes)}
        return plain, {"centre": self.centre, "period": self.period, "reach": self.reach}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The grid of a spec."""
        centre, period, reach = (
            np.asarray(arrays[name], np.float64) for name in ("centre", "period", "reach")
        )
        return cls(centre, period, reach, tuple(plain["modes"]))
