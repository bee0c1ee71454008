"""Nyström features: the kernel with landmarks, whitened; which rows are landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import Generator
from scipy import linalg

from rff_stream._array import Array, Float64
from rff_stream.arguments import one_of
from rff_stream.errors import warn
from rff_stream.features.base import (
    MARGIN,
    PADDED_ROWS,
    PRODUCT_COLUMNS,
    FeatureDtype,
    MapRequest,
    Nesting,
    RandomState,
    RowwiseMap,
    check_drawn,
    check_dtype,
    frozen,
    padded_blocks,
    prior_count,
    scratch,
)
from rff_stream.kernels import (
    DotProductKernel,
    ExactKernel,
    RadialKernel,
    kernel_from_spec,
    length_scale_vector,
)

FLOOR = {"float32": 4e-6, "float64": 1e-12}
"""Directions with a smaller share of the largest variance are left out: they would be rounding
errors."""

MISSED = 1e-3
"""Share of the largest variance from which a direction that is left out is missed: what is left out
in float32 is 250 times smaller, unless rows lie far from 0."""

NO_KERNEL = 1e-6
"""Share of the largest value by which values may break a law of kernels: far above the rounding of
float64, and below what float32 features show."""

Whitening = Literal["cholesky", "eigen"]
LandmarkMethod = Literal["uniform", "kmeans++", "leverage"]

LEVERAGE_ROWS = 2048
"""Rows that predict the others when leverage scores are estimated: the size of one matrix."""


@dataclass(frozen=True, eq=False, repr=False)
class NystroemFeatures(RowwiseMap):
    """z(x) = W k(landmarks, x), with WᵀW the inverse of K on the landmarks; prior 1.

    z(x)ᵀz(x') is the exact kernel projected on the landmarks: never above it on the diagonal,
    and equal to it if one of the rows is a landmark.

    Parameters
    ----------
    landmarks : (m, d) float64
        In units of the inputs, in the order of the pivots for "cholesky".
    whitening : array
        W: for "cholesky" the packed rows of L⁻¹ (R(R+1)/2,), R = m; for "eigen"
        Λ^{-1/2}Uᵀ (R, m).
    method : {"cholesky", "eigen"}
    dtype : {"float32", "float64"}
    kernel : ExactKernel

    Notes
    -----
    A row costs m kernel values and R² flops (Cholesky) or 2Rm (eigen): once or twice the cost of
    the pass itself. Distances are taken in float64, products in ``dtype``.

    References
    ----------
    Williams & Seeger 2001. Harbrecht et al. 2012 (pivoted Cholesky).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> kernel = rs.Gaussian(1.0)
    >>> Z = NystroemFeatures.sample(kernel, x, 64, rng=0)(x)
    >>> bool(abs(Z @ Z.T - kernel(x, x)).mean() < 0.01)
    True
    """

    landmarks: Float64
    whitening: Array
    method: Whitening
    dtype: FeatureDtype
    kernel: ExactKernel
    choices: ClassVar[tuple[str, ...]] = ("nystroem",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        m, d = np.shape(self.landmarks)
        shape: tuple[int, ...] = (m * (m + 1) // 2,)
        if self.method != "cholesky":
            shape = (len(self.whitening), m)
        object.__setattr__(self, "landmarks", frozen("landmarks", self.landmarks, (m, d)))
        whitening = frozen("whitening", self.whitening, shape, self.dtype)
        object.__setattr__(self, "whitening", whitening)

    @classmethod
    def sample(
        cls,
        kernel: ExactKernel,
        X: Array,
        n_components: int,
        *,
        method: LandmarkMethod = "uniform",
        whitening: Whitening = "cholesky",
        floor: float | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
    ) -> Self:
        """A map whose landmarks are rows of X.

        Parameters
        ----------
        kernel : ExactKernel
            Shift-invariant or not.
        X : (n, d) array
            Finite rows, such as those of the pilot.
        n_components : int
            R, the largest number of landmarks; there are fewer if X has fewer different rows.
        method : {"uniform", "kmeans++", "leverage"}
            How rows are chosen. "kmeans++" spreads them, "leverage" prefers rows that others
            do not explain. Both help if most rows are alike and a few are far away.
        whitening : {"cholesky", "eigen"}
            Pivoted Cholesky nests (the first columns are a map); eigenvalues do not, and need
            twice the work per row.
        floor : float, optional
            Directions with less of the variance are left out: 4e-6 for float32, 1e-12 for
            float64. Raise it for fewer columns of a smooth kernel.
        rng : Generator, SeedSequence, int or None
        dtype : {"float32", "float64"}

        Raises
        ------
        ValueError
            If there are no rows or no landmarks, or there is no such whitening.
        """
        check_drawn(kernel=kernel, n_components=n_components, floor=floor, rng=rng, dtype=dtype)
        one_of("cholesky", "eigen").check("whitening", whitening)
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or not len(X):
            raise ValueError(f"X has shape {X.shape} but landmarks are some of its rows (n, d).")
        chosen = choose_landmarks(kernel, X, n_components, method, np.random.default_rng(rng))
        values, floor = kernel(chosen, chosen), FLOOR[dtype] if floor is None else floor
        check_values(kernel, values)
        if whitening == "cholesky":
            order, packed = _inverse_factor(values, floor)
            found = cls(chosen[order], packed, whitening, dtype, kernel)
        else:
            found = cls(chosen, _inverse_root(values, floor), whitening, dtype, kernel)
        if isinstance(kernel, DotProductKernel):
            _warn_of_far_rows(kernel, chosen, found.n_components, dtype)
        return found

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Of rows of the pilot."""
        return cls.sample(
            request.kernel,
            request.rows,
            request.n_components,
            rng=request.seed,
            dtype=request.dtype,
        )

    @property
    def n_inputs(self) -> int:
        return int(self.landmarks.shape[1])

    @property
    def n_components(self) -> int:
        return len(self.landmarks) if self.method == "cholesky" else len(self.whitening)

    @property
    def nesting(self) -> Nesting:
        return "prefix" if self.method == "cholesky" else "none"

    def prior(self, n_components: int | None = None) -> Float64:
        """1 for each of the first R' columns.

        Raises
        ------
        ValueError
            If fewer columns by eigenvalues are asked for, which do not nest.
        """
        count = prior_count(n_components, self.n_components)
        if count < self.n_components and self.method == "eigen":
            raise ValueError(
                f"n_components={count} but columns by eigenvalues do not nest. "
                "Use whitening='cholesky', or draw the smaller map."
            )
        return np.ones(count)

    def _batch_slopes(self, X: Array, weights: Float64) -> Float64:
        """Those of the kernel at the landmarks, whose weights are Wᵀc."""
        whitening = np.zeros((self.n_components, len(self.landmarks)))
        for i, own in enumerate(whitening):
            row = self._whitening_row(i)
            own[: len(row)] = row
        return self.kernel.input_slopes(X, self.landmarks, np.asarray(whitening.T @ weights))

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit."""
        kernel = kernel_from_spec(plain.get("kernel", {}))
        return super().from_spec(dict(plain) | {"kernel": kernel}, arrays)

    def __repr__(self) -> str:
        size = f"{self.n_inputs} inputs to {self.n_components} components"
        name = self.kernel.spec()["kernel"]
        return f"<NystroemFeatures of {name}: {size} ({self.method}), {self.dtype}>"

    @cached_property
    def _landmark_blocks(self) -> Float64:
        """Landmarks (·, 288, d) as the kernel takes them."""
        rows = self.landmarks
        if self._radial:
            rows = (rows - rows[0]) / self._scale
        elif self._of_products:
            rows = rows / self._scale
        return padded_blocks(rows, "float64")

    @cached_property
    def _scale(self) -> Float64:
        return length_scale_vector(self.kernel, self.n_inputs)

    @property
    def _radial(self) -> bool:
        return isinstance(self.kernel, RadialKernel)

    @property
    def _of_products(self) -> bool:
        return isinstance(self.kernel, DotProductKernel)

    @cached_property
    def _whitening_blocks(self) -> list[Array]:
        """W in blocks of 256 columns of Z: (288, depth), padded with 0."""
        m, r = len(self.landmarks), self.n_components
        width = -(-m // PRODUCT_COLUMNS) * PRODUCT_COLUMNS
        blocks = []
        for lo in range(0, r, PRODUCT_COLUMNS):
            hi = min(lo + PRODUCT_COLUMNS, r)
            depth = lo + PRODUCT_COLUMNS if self.method == "cholesky" else width
            block = np.zeros((PRODUCT_COLUMNS + 2 * MARGIN, depth), self.dtype)
            for i in range(lo, hi):
                row = self._whitening_row(i)
                block[MARGIN + i - lo, : len(row)] = row
            blocks.append(block)
        return blocks

    def _whitening_row(self, i: int) -> Array:
        if self.method == "eigen":
            return np.asarray(self.whitening[i])
        start = i * (i + 1) // 2
        return self.whitening[start : start + i + 1]

    def _map_batch(self, x: Array, Z: Array) -> None:
        values = self._kernel_values(x)
        product = scratch.take("whitened", PRODUCT_COLUMNS + 2 * MARGIN, self.dtype)
        for lo, block in zip(
            range(0, self.n_components, PRODUCT_COLUMNS), self._whitening_blocks, strict=True
        ):
            np.matmul(values[:, : block.shape[1]], block.T, out=product)
            columns = Z[:, lo : lo + PRODUCT_COLUMNS]
            columns[...] = product[: len(x), MARGIN : MARGIN + columns.shape[1]]

    def _kernel_values(self, x: Array) -> Array:
        """k(x, landmarks) (144, m rounded up to blocks) in ``dtype``."""
        rows = scratch.take("landmark rows", self.n_inputs, "float64")
        rows[: len(x)] = x
        rows[len(x) :] = self.landmarks[0]
        if self._radial:
            np.subtract(rows, self.landmarks[0], out=rows)
        if self._radial or self._of_products:
            np.divide(rows, self._scale, out=rows)
        width = len(self._landmark_blocks) * PRODUCT_COLUMNS
        values = scratch.take("landmark values", width, self.dtype)
        for i, block in enumerate(self._landmark_blocks):
            lo = i * PRODUCT_COLUMNS
            found = self._block_values(rows, block)
            values[:, lo : lo + PRODUCT_COLUMNS] = found[:, MARGIN : MARGIN + PRODUCT_COLUMNS]
        return values

    def _block_values(self, rows: Float64, block: Float64) -> Float64:
        """k (144, 288) of padded rows and a block of landmarks."""
        kernel = self.kernel
        if not isinstance(kernel, (RadialKernel, DotProductKernel)):
            return np.asarray(kernel(rows, block))
        product = scratch.take("landmark products", len(block), "float64", PADDED_ROWS)
        np.matmul(rows, block.T, out=product)
        x, y = (np.square(a).sum(axis=1) for a in (rows, block))
        if isinstance(kernel, DotProductKernel):
            values = kernel.unit_of_products(product, np.sqrt(x), np.sqrt(y))
            return np.asarray(kernel.variance * values)
        product *= -2
        product += x[:, None]
        product += y
        return np.asarray(kernel.of_squared_distance(np.maximum(product, 0, out=product)))


def check_values(kernel: ExactKernel, values: Float64) -> None:
    """Refuse values at pairs of rows that no kernel has: a user's function may be none.

    Raises ValueError: not finite, not symmetric, or |k(x, x')| above √(k(x, x) k(x', x')).
    """
    diagonal = np.diag(values)
    most = np.abs(values).max()
    fact = ""
    if not np.isfinite(most):
        fact = "has values that are not finite"
    elif not most:
        fact = "is 0 for all pairs of rows"
    elif np.abs(values - values.T).max() > NO_KERNEL * most:
        fact = "is not symmetric"
    elif diagonal.min() < -NO_KERNEL * most:
        fact = f"is {diagonal.min():.3g} for a row and itself"
    else:
        root = np.sqrt(np.maximum(diagonal, 0.0))
        if (np.abs(values) - np.outer(root, root)).max() > NO_KERNEL * most:
            fact = "is larger for two rows than for each and itself"
    if fact:
        raise ValueError(
            f"The function {kernel.spec()['kernel']!r} {fact}, but a kernel is a symmetric and "
            f"positive definite function of two rows: |k(x, x')| is at most √(k(x, x) k(x', x')). "
            f"Distances are none: exp(−distance) may be one."
        )


def _warn_of_far_rows(kernel: ExactKernel, rows: Float64, count: int, dtype: FeatureDtype) -> None:
    """Warn where the rows (m, d) have fewer than the columns that matter about their mean."""
    x = rows / length_scale_vector(kernel, rows.shape[1])
    middle = x.mean(axis=0)
    spread = np.sqrt(((x - middle) ** 2).sum() / len(x))
    far = float(np.linalg.norm(middle))
    if far <= spread or not spread:
        return
    moved = rows - rows.mean(axis=0)
    needed = len(_inverse_factor(kernel(moved, moved), MISSED)[0])
    if count < needed:
        more = ", or give dtype='float64'" if dtype == "float32" else ""
        warn(
            f"Rows lie {far / spread:.3g} times their spread from 0, so that kernel="
            f"{kernel.spec()['kernel']!r} has {count} columns; about their mean they have {needed} "
            f"of more than {MISSED:g} of the variance. Products of large numbers round: subtract "
            f"the mean of each input{more}."
        )


def _inverse_factor(values: Float64, floor: float) -> tuple[Array, Float64]:
    """Order of the pivots (r,) and the packed rows of L⁻¹ where K = LLᵀ in that order."""
    factor, pivots, rank, _ = linalg.lapack.dpstrf(
        values, tol=floor * np.diag(values).max(), lower=1
    )
    inverse, _ = linalg.lapack.dtrtri(factor[:rank, :rank], lower=1)
    return pivots[:rank] - 1, inverse[np.tril_indices(rank)]


def _inverse_root(values: Float64, floor: float) -> Float64:
    """Λ^{-1/2}Uᵀ of the eigenvalues above the floor, the largest first."""
    eigenvalues, vectors = linalg.eigh(values)
    kept = eigenvalues > floor * eigenvalues[-1]
    root = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return np.asarray(root.T[::-1])


def choose_landmarks(
    kernel: ExactKernel, X: Float64, count: int, method: LandmarkMethod, rng: Generator
) -> Float64:
    """At most ``count`` different rows of X, in the order of the choice."""
    X = X[np.sort(np.unique(X, axis=0, return_index=True)[1])]
    count = min(count, len(X))
    if method == "uniform":
        return X[rng.permutation(len(X))[:count]]
    if method == "kmeans++":
        return X[_sample_spread(kernel, X, count, rng)]
    if method == "leverage":
        scores = _leverage(kernel, X, count, rng)
        keys = rng.exponential(size=len(X)) / scores  # smallest: without replacement
        return X[np.argsort(keys)[:count]]
    raise ValueError(f"method={method!r} but it must be one of 'uniform', 'kmeans++', 'leverage'.")


def self_kernel(kernel: ExactKernel, X: Float64) -> Float64:
    """k(x, x) (n,)."""
    if kernel.stationary:
        return np.full(len(X), kernel.variance)
    parts = (X[i : i + 64] for i in range(0, len(X), 64))
    return np.concatenate([np.diag(kernel(part, part)) for part in parts])


def _sample_spread(kernel: ExactKernel, X: Float64, count: int, rng: Generator) -> Array:
    """Rows drawn with their squared distance in feature space to those drawn before."""
    own = self_kernel(kernel, X)
    chosen = [int(rng.integers(len(X)))]
    nearest = np.full(len(X), np.inf)
    while len(chosen) < count:
        last = chosen[-1]
        distance = own + own[last] - 2 * kernel(X, X[last : last + 1])[:, 0]
        nearest = np.minimum(nearest, np.maximum(distance, 0))
        nearest[last] = 0
        cumulative = np.cumsum(nearest)
        if cumulative[-1] <= 0:
            break
        draw = rng.uniform(0, cumulative[-1])
        chosen.append(int(min(np.searchsorted(cumulative, draw, side="right"), len(X) - 1)))
    return np.array(chosen)


def _leverage(kernel: ExactKernel, X: Float64, count: int, rng: Generator) -> Float64:
    """Ridge leverage scores (n,), estimated from at most 2,048 uniform rows.

    λ is such that the effective dimension is half the number of landmarks (Alaoui & Mahoney
    2015); the estimate is that of Rudi et al. 2018, eq. 4, with one level.
    """
    some = X[rng.permutation(len(X))[:LEVERAGE_ROWS]]
    values = kernel(some, some)
    eigenvalues = np.maximum(linalg.eigvalsh(values), 0)
    penalty = _penalty(eigenvalues, min(count, len(some)) / 2)
    factor = linalg.cho_factor(values + penalty * np.eye(len(some)), lower=True)
    explained = np.empty(len(X))
    for start in range(0, len(X), LEVERAGE_ROWS):
        cross = kernel(some, X[start : start + LEVERAGE_ROWS])
        explained[start : start + LEVERAGE_ROWS] = (cross * linalg.cho_solve(factor, cross)).sum(0)
    own = self_kernel(kernel, X)
    return np.asarray(np.maximum(own - explained, 1e-9 * own.max()) / penalty)


def _penalty(eigenvalues: Float64, dimension: float) -> float:
    """λ with Σ e/(e + λ) = ``dimension``, by bisection of its logarithm."""
    lo, hi = 1e-12 * eigenvalues[-1], float(eigenvalues.sum())
    for _ in range(60):
        middle = np.sqrt(lo * hi)
        if (eigenvalues / (eigenvalues + middle)).sum() > dimension:
            lo = middle
        else:
            hi = middle
    return float(hi)
