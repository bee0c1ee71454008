"""Random binning: the cells of random grids that contain a row, hashed to a fixed width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError
from rff_stream.features.base import (
    MAP_ROWS,
    FeatureDtype,
    MapRequest,
    Nesting,
    RandomState,
    RowwiseMap,
    check_drawn,
    check_dtype,
    check_rows,
    frozen,
    prior_count,
)
from rff_stream.hashes import mix_bits
from rff_stream.kernels import ExactKernel

N_GRIDS = 256
"""κ is the share of grids in which two rows meet: its standard error √(κ(1 − κ)/256) is at most
.031."""

FARTHEST_CELL = 2.0**62  # the last power of 2 within 64-bit integers


@dataclass(frozen=True, eq=False, repr=False)
class RandomBinningFeatures(RowwiseMap):
    """z(x): one ±1 for each random grid, in the column to which the cell of x is hashed.

    Two rows share a cell of a grid with probability κ(δ)/κ(0), so
    E z(x)ᵀ diag(s) z(x') = κ(δ) with s = variance/grids.

    Parameters
    ----------
    pitches, shifts : (grids, d) float64
        Width of the cells and offset of the grid, in units of the inputs.
    multipliers : (grids, d + 1) uint64
        Odd numbers that hash the whole-number coordinates of a cell, and a seed.
    n_buckets : int
        B hashed columns of each grid.
    n_columns : int
        R ≤ grids·B; the last grid may be cut.
    origin : (d,) float64
    variance : float
    dtype : {"float32", "float64"}
    kernel : mapping
        ``spec()`` of the kernel: provenance only.

    Raises
    ------
    ValueError
        If grids and buckets do not make the columns, or a pitch is not positive.

    Notes
    -----
    This is feature hashing as a kernel map. Two different cells of a grid share a column
    with probability 1/B; their signs are independent, so a collision has mean 0 and only adds
    variance. With κ at variance 1 and P grids, the variance of the estimate is
    (κ(1 − κ) + (1 − κ)/B)/P: the second term is that of the collisions, (1 − κ)/R.
    A row costs P·d operations and has P entries, for every R.

    References
    ----------
    Rahimi & Recht 2007, algorithm 2. Weinberger et al. 2009 (signed hashing).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.array([[0.0], [0.5]])
    >>> features = RandomBinningFeatures.sample(rs.Laplacian(1.0), 1, 4096, rng=0)
    >>> Z = features(x)
    >>> met = float((Z * features.prior() @ Z.T)[0, 1])  # exp(−½) = 0.61
    >>> 0.5 < met < 0.7
    True
    """

    pitches: Float64
    shifts: Float64
    multipliers: Array
    n_buckets: int
    n_columns: int
    origin: Float64
    variance: float
    dtype: FeatureDtype
    kernel: Mapping[str, Any]
    choices: ClassVar[tuple[str, ...]] = ("binning",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        grids, d = np.shape(self.pitches)
        most = grids * self.n_buckets
        if not (self.n_buckets >= 1 and most - self.n_buckets < self.n_columns <= most):
            raise ValueError(
                f"{grids} grids of {self.n_buckets} buckets do not make {self.n_columns} columns."
            )
        for name, shape in {"pitches": (grids, d), "shifts": (grids, d), "origin": (d,)}.items():
            object.__setattr__(self, name, frozen(name, getattr(self, name), shape))
        if not (self.pitches > 0).all():
            raise ValueError("pitches holds values that are not > 0.")
        numbers = frozen("multipliers", self.multipliers, (grids, d + 1), np.uint64)
        object.__setattr__(self, "multipliers", numbers)

    @classmethod
    def sample(
        cls,
        kernel: ExactKernel,
        n_inputs: int,
        n_components: int,
        *,
        n_grids: int = N_GRIDS,
        origin: ArrayLike | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """A map of random grids.

        Parameters
        ----------
        kernel : Kernel
            Laplacian, and sums and scalings of Laplacians.
        n_inputs, n_components : int
            d and R.
        n_grids : int
            Largest number of grids; each has ⌈R/grids⌉ columns. More grids at the same R have
            less variance and cost more per row.
        origin : (d,) array, optional
            Subtracted from the inputs; 0 by default.
        rng : Generator, SeedSequence, int or None
        dtype : {"float32", "float64"}

        Raises
        ------
        ValueError
            If there is no column or no grid.
        """
        check_drawn(
            kernel=kernel, n_inputs=n_inputs, n_components=n_components, n_grids=n_grids,
            origin=origin, rng=rng, dtype=dtype,
        )  # fmt: skip
        generator = np.random.default_rng(rng)
        grids, buckets = cls.shape_of(n_components, n_grids)
        pitches = kernel.sample_pitches(grids, n_inputs, generator)
        numbers = generator.integers(0, 2**63, (grids, n_inputs + 1), np.uint64)
        return cls(
            pitches=pitches,
            shifts=pitches * generator.uniform(size=pitches.shape),
            multipliers=numbers * np.uint64(2) + np.uint64(1),
            n_buckets=buckets,
            n_columns=n_components,
            origin=np.zeros(n_inputs) if origin is None else np.asarray(origin, np.float64),
            variance=kernel.variance,
            dtype=dtype,
            kernel=kernel.spec(),
        )

    @classmethod
    def short_name(cls) -> str:
        return "binning"

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """About the pilot's mean."""
        return cls.sample(
            request.kernel,
            request.rows.shape[1],
            request.n_components,
            origin=request.origin,
            rng=request.seed,
            dtype=request.dtype,
        )

    @classmethod
    def row_entries(cls, n_components: int) -> int:
        """One for each grid."""
        return cls.shape_of(n_components)[0]

    @staticmethod
    def shape_of(n_components: int, n_grids: int = N_GRIDS) -> tuple[int, int]:
        """P grids of B buckets that make R columns of at most ``n_grids`` grids."""
        buckets = -(-n_components // n_grids)
        return -(-n_components // buckets), buckets

    @property
    def n_inputs(self) -> int:
        return int(self.pitches.shape[1])

    @property
    def n_components(self) -> int:
        return self.n_columns

    @property
    def n_grids(self) -> int:
        """P: entries of a row that are not 0, which second moments may count."""
        return len(self.pitches)

    @property
    def nesting(self) -> Nesting:
        return "average"

    @property
    def independent_terms(self) -> tuple[int, float]:
        """How many terms the kernel is the mean of, and the range of one at variance 1."""
        return self.n_grids, 2.0

    def prior(self, n_components: int | None = None) -> Float64:
        """s (R',) = variance·B/R': 1/grids where R' is whole grids."""
        count = prior_count(n_components, self.n_components)
        return np.full(count, self.variance * self.n_buckets / count)

    def __repr__(self) -> str:
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        name = self.kernel.get("kernel")
        return f"<RandomBinningFeatures of {name}: {size} ({self.n_grids} grids), {self.dtype}>"

    def cells(self, X: Array) -> tuple[Array, Array]:
        """Column (n, P) and sign (n, P) of each row in each grid: Z without its zeros.

        Columns at or beyond R are cut off from Z. Rows are finite.
        """
        X = check_rows(X, self.n_inputs)
        parts = [self._cells(X[i : i + MAP_ROWS]) for i in range(0, len(X), MAP_ROWS)]
        empty = np.empty((0, self.n_grids), np.int64)
        columns, signs = zip(*parts, strict=True) if parts else ([empty], [empty])
        return np.concatenate(columns), np.concatenate(signs)

    def _cells(self, x: Array) -> tuple[Array, Array]:
        shifted = np.asarray(x, np.float64) - self.origin
        hashed = np.broadcast_to(self.multipliers[:, -1], (len(x), self.n_grids)).copy()
        for j in range(self.n_inputs):
            cell = np.floor((shifted[:, j : j + 1] - self.shifts[:, j]) / self.pitches[:, j])
            far = np.abs(cell) >= FARTHEST_CELL
            if far.any():
                i = int(np.flatnonzero(far.any(axis=1))[0])
                raise DataError(
                    f"Column {j} of X holds {x[i, j]}, too many cells from the origin "
                    f"{self.origin[j]}. Mask such values, or give a larger length-scale."
                )
            cell[np.isnan(cell)] = 0
            hashed += cell.astype(np.int64).view(np.uint64) * self.multipliers[:, j]
        mixed = mix_bits(hashed)
        bucket = (mixed >> np.uint64(32)) % np.uint64(self.n_buckets)
        columns = bucket.astype(np.int64) + np.arange(self.n_grids) * self.n_buckets
        return columns, 1 - 2 * (mixed & np.uint64(1)).astype(np.int64)

    def _map_batch(self, x: Array, Z: Array) -> None:
        columns, signs = self._cells(x)
        rows = np.broadcast_to(np.arange(len(x))[:, None], columns.shape)
        Z[...] = 0
        inside = columns < self.n_columns
        Z[rows[inside], columns[inside]] = signs[inside]
        Z[np.isnan(np.asarray(x, np.float64)).any(axis=1)] = np.nan
