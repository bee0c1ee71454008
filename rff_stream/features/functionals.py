"""Linear functionals of a function on its features: derivatives, and means over boxes.

f(x) = z(x)ᵀβ, so (Lf)(x) = (Lz)(x)ᵀβ for every linear L: an observation of a slope, or of a coarse
pixel, is one more row of features. For cosines both are cosines again, each times a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64, nested_arrays
from rff_stream.errors import ModelError
from rff_stream.features.base import (
    FeatureMap,
    Nesting,
    RowwiseMap,
    frozen,
    map_from_spec,
    prior_count,
)
from rff_stream.features.composed import ByColumns, SideBySide
from rff_stream.features.fourier import FourierFeatures


@dataclass(frozen=True, eq=False, repr=False)
class FunctionalFeatures(RowwiseMap):
    """(Lz)(x): each cosine of a Fourier map times a factor, perhaps a quarter of a wave on.

    Made by :func:`derivative` and :func:`box_mean`. Its prior is that of z, for the kernel of
    Lf is that of f seen through L twice.

    Parameters
    ----------
    base : FourierFeatures
        z.
    factors : (R,) float64
        What L does to the size of each cosine.
    turned : bool
        Whether cos becomes −sin and sin becomes cos, as under a derivative.
    """

    base: FourierFeatures
    factors: Float64
    turned: bool

    def __post_init__(self) -> None:
        shape = (self.base.n_components,)
        object.__setattr__(self, "factors", frozen("factors", self.factors, shape))

    @property
    def n_inputs(self) -> int:
        return self.base.n_inputs

    @property
    def n_components(self) -> int:
        return self.base.n_components

    @property
    def dtype(self) -> Any:
        """That of z."""
        return self.base.dtype

    @property
    def nesting(self) -> Nesting:
        return "none"

    def prior(self, n_components: int | None = None) -> Float64:
        """That of z.

        Raises
        ------
        ValueError
            If fewer columns are asked for: these are rows for another map.
        """
        if prior_count(n_components, self.n_components) < self.n_components:
            raise ValueError(
                f"n_components={n_components} but these columns are rows for another map. Add "
                "their moments to those of values first: what results has leading columns."
            )
        return self.base.prior()

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads."""
        plain, arrays = self.base.spec()
        own = {f"base_{name}": array for name, array in arrays.items()}
        named = {"map": self.short_name(), "base": plain, "turned": self.turned}
        return named, own | {"factors": self.factors}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit.

        Raises
        ------
        ModelError
            If a field is absent, or has a value that the map refuses.
        """
        try:
            base: Any = map_from_spec(plain["base"], nested_arrays(arrays, "base_"))
            return cls(base, arrays["factors"], bool(plain["turned"]))
        except (KeyError, TypeError) as error:
            raise ModelError(
                f"The spec of a functional of a map cannot be read: {error!r}. Check where it "
                "comes from; a stored model has all of its fields."
            ) from error

    def __repr__(self) -> str:
        name = "slopes" if self.turned else "means"
        return f"<FunctionalFeatures: {name} of {self.base!r}>"

    def _map_batch(self, x: Array, Z: Array) -> None:
        waves = self.base(x)
        if self.turned and self.base.paired:  # phases were turned in the base itself
            waves[:, 0::2], waves[:, 1::2] = -waves[:, 1::2], waves[:, 0::2].copy()
        np.multiply(waves, self.factors.astype(self.dtype), out=Z)


def derivative(features: FeatureMap, column: int) -> FeatureMap:
    """The map of slopes: ∂z/∂x_j (n, R), so that ∂f/∂x_j = (∂z/∂x_j)ᵀβ.

    Parameters
    ----------
    features : FeatureMap
        Fourier features, or such maps side by side or for separate columns.
    column : int
        j, the position of the input.

    Returns
    -------
    FeatureMap
        Of the same inputs, with the columns of z: rows of slopes are collected like rows of
        values, and :func:`~rff_stream.from_moments.observed` makes them moments of f.

    Raises
    ------
    ValueError
        If there is no such input, or the derivatives of the map are not known here.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(0.5), 1, 256, rng=0, dtype="float64")
    >>> x, step = np.array([[0.3], [0.7]]), 1e-6
    >>> slope = (features(x + step) - features(x - step)) / (2 * step)
    >>> bool(abs(derivative(features, 0)(x) - slope).max() < 1e-6)
    True
    """
    if not 0 <= column < features.n_inputs:
        raise ValueError(
            f"column={column} but the map has {features.n_inputs} inputs, from 0 on. Give the "
            "position of one of them."
        )
    unit = np.eye(features.n_inputs)[column]
    return _of_waves(features, lambda speeds: speeds @ unit, turned=True)


def box_mean(
    features: FeatureMap, widths: ArrayLike, points: Sequence[int] | None = None
) -> FeatureMap:
    """The map of means over boxes: the mean of z over a box about x (n, R).

    Parameters
    ----------
    features : FeatureMap
        As in :func:`derivative`.
    widths : (d,) array
        Sides of the box in units of the inputs; 0 if a row is one point along an input.
    points : (d,) sequence of int, optional
        Number of finer pixels along each side of a coarse pixel, if the coarse pixel is the mean
        of values at their centres. By default the mean is the integral over the box.

    Returns
    -------
    FeatureMap
        Of the same inputs, the centre of a box, with the columns of z.

    Raises
    ------
    ValueError
        If widths are negative or too few, or the means of the map are not known here.

    Notes
    -----
    The mean of cos(ωx + b) over a side h is cos(ωx + b) sin(ωh/2)/(ωh/2), and over k centres of
    pixels of side h/k it is cos(ωx + b) sin(ωh/2)/(k sin(ωh/2k)). So it has the same cost as z.
    """
    d = features.n_inputs
    sides = np.asarray(widths, np.float64)
    cells = np.ones(d, int) if points is None else np.asarray(points, int)
    fine = sides.shape == cells.shape == (d,) and np.isfinite(sides).all()
    if not (fine and (sides >= 0).all() and (cells >= 1).all()):
        raise ValueError(
            f"widths={widths!r} and points={points!r} but there are {d} inputs: one width ≥ 0 for "
            "each, and one number of points ≥ 1."
        )

    def shrink(speeds: Float64) -> Float64:
        turns = speeds * sides / (2 * np.pi)
        over = np.sinc(turns / cells) if points is not None else 1.0
        return np.asarray((np.sinc(turns) / over).prod(axis=1))

    return _of_waves(features, shrink, turned=False)


def _of_waves(features: FeatureMap, factor: Any, *, turned: bool) -> FeatureMap:
    """Every cosine times the factor of its speed Ω/scale (m, d), in units of the inputs."""
    if isinstance(features, FourierFeatures):
        own = np.asarray(factor(features.frequencies / features.scale), np.float64)
        base = features
        if turned and features.phases is not None:
            base = replace(features, phases=features.phases + np.pi / 2)
        return FunctionalFeatures(base, np.repeat(own, 2) if features.paired else own, turned)
    if isinstance(features, SideBySide):
        parts = (_of_waves(part, factor, turned=turned) for part in features.maps)
        return SideBySide(tuple(parts))
    if isinstance(features, ByColumns):
        parts = (
            _of_waves(part, _within(factor, columns, features.n_inputs), turned=turned)
            for part, columns in zip(features.maps, features.columns, strict=True)
        )
        return ByColumns(tuple(parts), features.columns, features.n_inputs)
    raise ValueError(
        f"{features!r} has no slopes or means over boxes here; only cosines have them. Use Fourier "
        "features (features='whole', 'orthogonal', 'fourier', 'phase' or 'qmc')."
    )


def _within(factor: Any, columns: Sequence[int], n_inputs: int) -> Any:
    """A factor of speeds along some of the inputs: the others do not move."""

    def of_part(speeds: Float64) -> Any:
        whole = np.zeros((len(speeds), n_inputs))
        whole[:, list(columns)] = speeds
        return factor(whole)

    return of_part
