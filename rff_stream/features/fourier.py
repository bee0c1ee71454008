"""Random Fourier features: cosines of random projections, as pairs or with phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.features.base import (
    MAP_ROWS,
    MARGIN,
    PRODUCT_COLUMNS,
    FeatureDtype,
    MapRequest,
    RandomState,
    check_drawn,
    check_dtype,
    frozen,
    padded_blocks,
    refuse_overflow,
    scratch,
)
from rff_stream.features.cosine_map import (
    CosineMap,
    Frequencies,
    check_components,
    draw,
    resolve,
    write_waves,
)
from rff_stream.kernels import Kernel, length_scale_vector

LINEAR, STEEP = 10.0, 10.0
"""Scales of an input per radian of a nearly linear column, and the variance of its slope."""

SAMPLING: dict[str, tuple[bool | None, Frequencies | None]] = {
    "auto": (None, None),
    "whole": (None, None),
    "orthogonal": (True, "orthogonal"),
    "fourier": (True, "iid"),
    "phase": (False, "iid"),
    "qmc": (None, "sobol"),
}
"""Pairs or phases (None: pairs if R is even), and how frequencies are drawn."""


@dataclass(frozen=True, eq=False, repr=False)
class FourierFeatures(CosineMap):
    """z(x) = cos and sin of Ωx̃, or cos(Ωx̃ + b), with x̃ = (x − origin)/scale.

    E z(x)ᵀ diag(s) z(x') = κ(x − x') for s = 2·variance/R: raw columns lie in [−1, 1].

    Parameters
    ----------
    frequencies : (m, d) float64
        Ω, in rad per unit of x̃.
    phases : (m,) float64 or None
        b. None: the paired map, R = 2m columns cos(ω₁x̃), sin(ω₁x̃), cos(ω₂x̃), …; else
        R = m columns cos(ωx̃ + b).
    origin, scale : (d,) float64
        In units of the inputs. Both are applied in float64, before any cast.
    variance : float
        κ(0).
    dtype : {"float32", "float64"}
        Type of the features. float64 costs 17 times more per cosine; use it for checks.
    kernel : mapping
        ``spec()`` of the kernel from which the frequencies were drawn; only for information.

    Raises
    ------
    ValueError
        If frequencies are no matrix, or a scale or the variance is not positive.

    Notes
    -----
    Rows are mapped 128 at a time, the last batch padded, so that (on one BLAS thread) a row has
    the same bits whatever batch it arrives in and however it lies in memory. Pairs need half
    the projections and, for the Gaussian, never have more variance than phases.

    References
    ----------
    Rahimi & Recht 2007, algorithm 1. Sutherland & Schneider 2015, section 2.1 (variances).
    Yu et al. 2016 (orthogonal random features).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> kernel, x = rs.Gaussian(1.0), np.array([[0.0, 0.0], [0.5, 0.5]])
    >>> features = rs.FourierFeatures.sample(kernel, n_inputs=2, n_components=4096, rng=0)
    >>> Z = features(x)
    >>> bool(abs((Z * features.prior()) @ Z.T - kernel(x, x)).max() < 0.05)
    True
    """

    frequencies: Float64
    phases: Float64 | None
    origin: Float64
    scale: Float64
    variance: float
    dtype: FeatureDtype
    kernel: Mapping[str, Any]
    choices: ClassVar[tuple[str, ...]] = tuple(SAMPLING)

    def __post_init__(self) -> None:
        if np.ndim(self.frequencies) != 2 or not np.size(self.frequencies):
            raise ValueError(f"frequencies has shape {np.shape(self.frequencies)}, not (m, d).")
        m, d = np.shape(self.frequencies)
        shapes: dict[str, tuple[int, ...]] = {"frequencies": (m, d), "origin": (d,), "scale": (d,)}
        if not self.paired:
            shapes["phases"] = (m,)
        check_dtype(self.dtype)
        for name, shape in shapes.items():
            object.__setattr__(self, name, frozen(name, getattr(self, name), shape))
        if not ((self.scale > 0).all() and 0 < self.variance < np.inf):
            raise ValueError(f"scale={self.scale}, variance={self.variance} but both must be > 0.")

    @classmethod
    def sample(
        cls,
        kernel: Kernel,
        n_inputs: int,
        n_components: int,
        *,
        paired: bool = True,
        frequencies: Frequencies | None = None,
        origin: ArrayLike | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """A map drawn from the kernel's spectral measure.

        Parameters
        ----------
        kernel : Kernel
            Its length-scale becomes ``scale``; Ω is drawn at ℓ = 1.
        n_inputs, n_components : int
            d and R; R is even for pairs.
        paired : bool
            False draws phases. Change it only to compare with the literature.
        frequencies : {"orthogonal", "iid", "sobol", "halton"}, optional
            By default orthogonal if the kernel is isotropic (much less variance at small
            distances), else iid. Use "iid" for error bounds that assume independence. Scrambled
            Sobol or Halton points at the quantiles of the measure are better for small d.
        origin : (d,) array, optional
            Subtracted from the inputs; 0 by default. Give the mean of columns with large
            offsets (times, coordinates), or float32 features lose their digits.
        rng : Generator, SeedSequence, int or None
            The same seed gives the same first columns for every R.
        dtype : {"float32", "float64"}
            Of the features.

        Raises
        ------
        ValueError
            For R < 1, an odd R of pairs, or orthogonal frequencies of an anisotropic measure.

        Examples
        --------
        >>> from rff_stream.kernels import Gaussian
        >>> FourierFeatures.sample(Gaussian(0.5), 3, 256, rng=0)
        <FourierFeatures of gaussian: 3 inputs to 256 components (cos/sin pairs), float32>
        """
        check_drawn(
            kernel=kernel, n_inputs=n_inputs, n_components=n_components,
            origin=origin, rng=rng, dtype=dtype,
        )  # fmt: skip
        check_components(n_components, paired)
        how = resolve(kernel, frequencies)
        scale = length_scale_vector(kernel, n_inputs)
        count = n_components // 2 if paired else n_components
        unit, generator = kernel.with_length_scale(None), np.random.default_rng(rng)
        omega, phases = draw(unit, count, n_inputs, how, generator, paired)
        return cls(
            frequencies=omega,
            phases=None if paired else phases,
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            scale=scale,
            variance=kernel.variance,
            dtype=dtype,
            kernel=kernel.spec(),
        )

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """About the pilot's mean."""
        paired, frequencies = SAMPLING[choice]
        return cls.sample(
            request.kernel,
            request.rows.shape[1],
            request.n_components,
            paired=request.n_components % 2 == 0 if paired is None else paired,
            frequencies=frequencies,
            origin=request.origin,
            rng=request.seed,
            dtype=request.dtype,
        )

    @cached_property
    def n_inputs(self) -> int:
        return int(self.frequencies.shape[1])

    @cached_property
    def n_frequencies(self) -> int:
        return len(self.frequencies)

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads."""
        plain, arrays = super().spec()
        return plain | {"paired": self.paired}, arrays

    @cached_property
    def _projections(self) -> Array:
        """[Ω, b] in the dtype of the features, in blocks (·, 288, d or d + 1) padded with 0."""
        table = self.frequencies
        if self.phases is not None:
            table = np.column_stack([table, self.phases])
        return padded_blocks(table, self.dtype)

    @cached_property
    def _tiles(self) -> tuple[Float64, Float64]:
        """Origin and scale under each other (128, d): rows of few inputs are then one sweep."""
        return np.tile(self.origin, (MAP_ROWS, 1)), np.tile(self.scale, (MAP_ROWS, 1))

    @cached_property
    def _largest_input(self) -> float:
        """The largest |x̃| whose angles are all finite."""
        widest = np.abs(self._projections).sum(axis=-1, dtype=np.float64).max()
        return float(np.finfo(self.dtype).max / max(2 * widest, 2.0))

    def _map_batch(self, x: Array, Z: Array) -> None:
        self._map_into(x, self._waves_of(Z))

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """Each cosine a quarter of a wave on, times its frequency: the price of a prediction."""
        turned = self if self.phases is None else replace(self, phases=self.phases + np.pi / 2)
        Z, speeds = turned(X).astype(np.float64), self.frequencies / self.scale
        found = np.empty((len(X), self.n_inputs, weights.shape[-1]))
        for t in range(weights.shape[-1]):
            own = weights[..., t]
            if self.paired:
                along = Z[:, 0::2] * own[..., 1::2] - Z[:, 1::2] * own[..., 0::2]
            else:
                along = Z * own
            found[:, :, t] = along @ speeds
        return found

    def write_halves(self, x: Float64, out: Array) -> None:
        """Features of at most 128 rows of float64 inputs, all cosines before all sines.

        The values are those of a call; for pairs alone. Cosines and sines that do not alternate
        are written in half the time: for sums, whose order is changed back once at their end.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            self._map_into(x, [out[:, : self.n_frequencies], out[:, self.n_frequencies :]])

    def _map_into(self, x: Array, columns: list[Array]) -> None:
        """Cosines (rows, m) of at most 128 rows into the first of the arrays, sines into a 2nd."""
        inputs = self._scale_rows(x)
        angles = scratch.take("angles", PRODUCT_COLUMNS + 2 * MARGIN, self.dtype)
        for block, projection in enumerate(self._projections):
            np.matmul(inputs, projection.T, out=angles)
            lo = block * PRODUCT_COLUMNS
            hi = min(lo + PRODUCT_COLUMNS, self.n_frequencies)
            used = angles[: len(x), MARGIN : MARGIN + hi - lo]
            write_waves(used, (out[:, lo:hi] for out in columns))

    def _scale_rows(self, x: Array) -> Array:
        """[x̃, 1] of one batch in the dtype of the features, padded to 144 rows."""
        rows, d = x.shape
        exact = scratch.take("exact", d, "float64")[:rows]
        origin, scale = self._tiles
        np.subtract(np.asarray(x, np.float64), origin[:rows], out=exact)
        np.divide(exact, scale[:rows], out=exact)
        if not np.abs(exact).max() <= self._largest_input:  # so too when there is a NaN
            refuse_overflow(
                x, exact, self._largest_input,
                lambda i, j: f"which origin {self.origin[j]} and scale {self.scale[j]} turn into "
                f"{exact[i, j]:.3g}: too large for {self.dtype}. Mask such values, or give the "
                "column a larger length-scale.",
            )  # fmt: skip
        inputs = scratch.take("inputs", self._projections.shape[-1], self.dtype)
        inputs[:rows, :d] = exact
        inputs[rows:] = 0
        inputs[:, d:] = 1  # what b is multiplied by; no column for pairs
        return inputs


def nearly_linear(
    origin: Float64, scale: Float64, varies: Array, dtype: FeatureDtype
) -> FourierFeatures:
    """Two columns for each input that varies: a sine and a cosine of a wave 60 scales long.

    Within three scales of the origin the sine is linear to 2 %, and it is bounded far away. Its
    slopes have ten times the variance of a kernel of length-scale 1, so that they are hardly
    penalised.
    """
    speeds = np.eye(len(scale))[varies] / LINEAR
    variance = STEEP * len(speeds) * LINEAR**2
    return FourierFeatures(speeds, None, origin, scale, variance, dtype, {})
