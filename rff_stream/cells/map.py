"""Local features: Nyström columns in the cells of a few random trees."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64, column_range, nested_arrays
from rff_stream.arguments import Rule, whole
from rff_stream.errors import DataError, ModelError
from rff_stream.features.base import (
    FeatureDtype,
    MapRequest,
    NamedMap,
    Nesting,
    RandomState,
    UndrawnMap,
    check_drawn,
    check_dtype,
    check_rows,
    frozen,
    is_map,
    map_from_spec,
)
from rff_stream.features.composed import by_columns, encode_rows, periods_of
from rff_stream.features.dense_triangle import inverse_factor
from rff_stream.features.packed_triangle import (
    add_outer,
    multiply_rows,
    pack_triangle,
    triangle_size,
)
from rff_stream.features.projection import length_scale_behind
from rff_stream.features.random_trees import Partition, check_n_cells, order_by_cell
from rff_stream.kernels import ExactKernel, RadialKernel, kernel_from_spec, length_scale_vector
from rff_stream.length_scales.left_out import COLUMNS, ROWS_A_COLUMN
from rff_stream.process_memory import return_freed_pages

NUGGET = {"float32": 1e-6, "float64": 1e-10}
"""ε, in units of k(x, x): smaller eigenvalues are lost in the precision of the columns."""


FEWEST_PILOT_ROWS, MOST_PILOT_ROWS = 1 << 16, 1 << 20
"""With fewer rows short scales are not visible; with more, additional landmarks lie between
others."""

BLOCK_VALUES = 32_768
"""Kernel values that are computed at once: they and their arguments stay in the L2 cache, in 512
KiB of scratch that a thread uses again. Half as many take 5 % longer, for calls from Python."""

MOST_CELLS = 4096
"""Largest number of cells of a tree if R is given: the sums of one tree then take 1.1 GB at R =
256."""

MOST_SUMS = 1.75e9
"""Largest size of all sums in bytes if nothing is given: a process holds them about four times."""

LITTLE = 64 << 20
"""Bytes of factors that are kept where a plan has no room for them: 1,800 cells of R = 128, 480 of
R = 256, which take .6 CPU s."""

FEW_INPUTS, MANY_ROWS = 3, 1 << 20
"""With at most this many inputs and at least this many rows, small cells with 128 columns
represent as much as with 256."""

MOST_VALUE = 1e150
"""The square of a larger input is outside the range of float64."""


ENCODING = Rule(
    "a map, or a mapping of columns to maps",
    lambda value: is_map(value) or isinstance(value, Mapping),
    lambda value: not isinstance(value, Mapping) or len(value) > 0,
    "Give e.g. {'hour': Periodic(24)}.",
    optional=True,
)


@dataclass(frozen=True, slots=True)
class Cells(UndrawnMap):
    """How to divide data into cells: ``features=Cells(…)`` of an estimator; "local" is ``Cells()``.

    Parameters
    ----------
    n_components : int, optional
        R, the columns (landmarks) of a cell. The cost of a row is 2R² flops per tree, and the
        sums take R²/2 numbers per cell: half the R with twice the cells costs less, but
        represents less. The default is 256, or 128 for at least a million rows of at most three
        inputs.
    n_trees : int, optional
        J. With more trees the seams between cells get smaller. The default is 4, or 3 if R is not
        given either and four trees with enough cells would not fit into 1.75 GB.
    n_cells : int, optional
        B, a power of two. The default gives about 1.5 R rows to each cell, with at most
        4,096 cells or, if R is not given either, as many as keep the sums below 1.75 GB. A fit
        that needs more memory than it may use takes half of them, a quarter and so on.
    encode : FeatureMap or mapping of column(s) to FeatureMap, optional
        An encoding of rows before they are assigned to cells: ``{"hour": Periodic(24), ("lat",
        "lon"): Sphere()}``. Columns that are not named are left out. Length-scales are then
        those of the encoded columns.

    Raises
    ------
    ValueError
        If a size is below 1.

    Examples
    --------
    >>> Cells().sizes(40_000, 9), Cells().sizes(4_000_000, 3), Cells(128).sizes(1_000_000, 4)
    ((256, 4, 128), (128, 3, 8192), (128, 4, 4096))
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 2)); y = np.sin(20 * X[:, 0]) * X[:, 1]
    >>> cells = Cells(n_components=32, n_trees=2, n_cells=16)
    >>> model = rs.KernelRidge(features=cells, length_scale=[0.1, 1.0], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    n_components: int | None = None
    n_trees: int | None = None
    n_cells: int | None = None
    encode: Any = None

    def __post_init__(self) -> None:
        for name in ("n_components", "n_trees", "n_cells"):
            given = getattr(self, name)
            whole(1, optional=True).check(name, given)
            object.__setattr__(self, name, None if given is None else int(given))
        if self.n_cells is not None:
            check_n_cells(self.n_cells)
        ENCODING.check("encode", self.encode)

    def plain(self, of: Callable[[Any], Any]) -> Any:
        """Its fields as JSON; the encoding with all that its maps are made of."""
        sizes = {name: getattr(self, name) for name in ("n_components", "n_trees", "n_cells")}
        if isinstance(self.encode, Mapping):
            pairs = [[of(key), _plain_map(each)] for key, each in self.encode.items()]
            return sizes | {"encode": {"columns": pairs}}
        return sizes if self.encode is None else sizes | {"encode": _plain_map(self.encode)}

    @classmethod
    def from_plain(cls, plain: Any, value: Callable[[Any], Any]) -> Any:
        encode = plain.get("encode")
        if encode is not None and "columns" in encode:
            pairs = ((value(key), _map_from(each)) for key, each in encode["columns"])
            encode = {tuple(key) if isinstance(key, list) else key: each for key, each in pairs}
        elif encode is not None:
            encode = _map_from(encode)
        return cls(**{**plain, "encode": encode})

    def for_inputs(self, inputs: Sequence[str]) -> Self:
        """The same with an encoding of single columns as one of all inputs."""
        encode = self.encode
        return (
            replace(self, encode=by_columns(encode, inputs))
            if isinstance(encode, Mapping)
            else self
        )

    def sizes(self, n_rows: int, n_inputs: int) -> tuple[int, int, int]:
        """R, J and B for so many rows of data with so many inputs."""
        few = n_inputs <= FEW_INPUTS and n_rows >= MANY_ROWS
        r = self.n_components or (128 if few else COLUMNS)
        wanted = 1 << int(np.round(np.log2(max(n_rows / (ROWS_A_COLUMN * r), 1.0))))
        if self.n_cells is not None or self.n_components is not None:
            return r, self.n_trees or 4, self.n_cells or min(wanted, MOST_CELLS)
        n_trees = self.n_trees or (4 if 16 * r**2 * wanted <= MOST_SUMS else 3)
        most = max(MOST_SUMS / (4 * r**2 * n_trees), 1.0)
        return r, n_trees, min(wanted, 1 << int(np.log2(most)))


@dataclass(frozen=True, slots=True)
class ChosenCells(Cells):
    """Cells of which nothing was said: the data decide on their number, columns and trees."""


FARTHEST = 1e15
"""Length-scales that a row is away at most: the square fits float32 for up to 10⁸ inputs, and every
kernel is as good as 0 there."""


@dataclass(frozen=True, eq=False, repr=False)
class LocalFeatures(NamedMap):
    """z_c(x) = L_c⁻¹ k(U_c, x) in the cell c of row x, L_c L_cᵀ = k(U_c, U_c) + εI.

    Each of J trees assigns a row to one of its B cells, and each cell c has its own R landmarks
    U_c. So a tree is a map of B·R columns of which a row fills R, and z(x)ᵀz(x') is the kernel
    projected on the landmarks of the cell that both share, or 0.

    Parameters
    ----------
    partition : Partition
        J trees of B cells.
    pool : (m, d) float64
        Rows that landmarks are taken from, in units of the inputs.
    landmarks : (J, B, R) int32
        Place in the pool of each landmark of each cell.
    kernel : ExactKernel
    nugget : float
        ε, in units of k(x, x).
    dtype : {"float32", "float64"}
        Of the columns. Distances are always float64.
    encoding : FeatureMap or None
        Encoding of a row x before it is assigned to cells; pool, trees and length-scales refer to
        its columns.

    Raises
    ------
    ValueError
        If a landmark is no row of the pool, or the nugget is not positive.

    Notes
    -----
    A row costs J(2R² + Rd) flops in the pass: the kernel block, and a triangular product that
    costs as much as the rank-k update. L_c⁻¹ is computed when it is first needed (2R³/3 flops)
    and kept: J·B·R²/2 numbers in each process that has rows of every cell.

    References
    ----------
    Snelson & Ghahramani 2007 (partially independent conditional); Park & Apley 2018.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> LocalFeatures.sample(rs.Gaussian(1.0), x, n_cells=4, n_trees=2, n_components=32, rng=0)
    <LocalFeatures of gaussian: 2 inputs, 2 trees of 4 cells with 32 columns each, float32>
    """

    partition: Partition
    pool: Float64
    landmarks: Array
    kernel: ExactKernel
    nugget: float
    dtype: FeatureDtype
    encoding: Any = None

    choices: ClassVar[tuple[str, ...]] = ("local",)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        pool = np.asarray(self.pool, np.float64)
        object.__setattr__(self, "pool", frozen("pool", pool, (len(pool), self.partition.n_inputs)))
        shape = (self.n_trees, self.n_cells, np.shape(self.landmarks)[-1])
        landmarks = frozen("landmarks", self.landmarks, shape, np.int32)
        if landmarks.size and not (landmarks.min() >= 0 and landmarks.max() < len(pool)):
            raise ValueError(
                f"landmarks name rows {landmarks.min()} to {landmarks.max()} of a pool of "
                f"{len(pool)}. Give places in the pool."
            )
        object.__setattr__(self, "landmarks", landmarks)
        if not (np.isfinite(self.nugget) and self.nugget > 0):
            raise ValueError(f"nugget={self.nugget!r} but it must be a finite number > 0.")
        object.__setattr__(self, "_factors", {})
        object.__setattr__(self, "_scaled", {})

    @classmethod
    def sample(
        cls,
        kernel: ExactKernel,
        X: Array,
        *,
        n_cells: int,
        n_trees: int = 4,
        n_components: int = 256,
        nugget: float | None = None,
        rng: RandomState = None,
        dtype: FeatureDtype = "float32",
        encoding: Any = None,
    ) -> Self:
        """A map whose cells and landmarks come from rows X.

        Parameters
        ----------
        kernel : ExactKernel
            Its length-scales determine along which inputs cells are cut.
        X : (m, d) array
            Finite rows, such as those of the pilot; best m ≥ B·R.
        n_cells : int
            B, a power of two. As many as leave each cell two to four times R rows of data.
        n_trees : int
            J, 3 to 6. With more trees the seams between cells get smaller.
        n_components : int
            R, landmarks of a cell.
        nugget : float, optional
            ε: 1e-6 for float32, 1e-10 for float64.
        rng : Generator, SeedSequence, int or None
        dtype : {"float32", "float64"}
        encoding : FeatureMap, optional
            Encoding of the rows, before they are assigned to cells.

        Raises
        ------
        ValueError
            If a cell would have no column.

        Notes
        -----
        A cell with fewer than R rows of X takes all of them and is filled with points between
        two of its rows. A cell without rows borrows those of its neighbour in the tree.
        """
        check_drawn(
            kernel=kernel, n_components=n_components, n_trees=n_trees, nugget=nugget,
            rng=rng, dtype=dtype,
        )  # fmt: skip
        ENCODING.check("encoding", encoding)
        X = encode_rows(encoding, np.asarray(X, np.float64))
        rng = np.random.default_rng(rng)
        X = X[np.sort(np.unique(X, axis=0, return_index=True)[1])]
        partition = Partition.plant(
            X,
            n_cells=n_cells,
            n_trees=n_trees,
            length_scale=length_scale_vector(kernel, X.shape[1]) if X.ndim == 2 else 1.0,
            rng=rng,
        )
        pool, landmarks = _choose(partition, X, n_components, rng)
        nugget = NUGGET[dtype] if nugget is None else nugget
        return cls(partition, pool, landmarks, kernel, nugget, dtype, encoding)

    @classmethod
    def drawn_for(cls, choice: str, request: MapRequest) -> Self:
        """Refused: estimators that take cells draw them for the number of rows, too.

        Raises
        ------
        ValueError
            If the estimator cannot be fitted on cells.
        """
        raise ValueError(
            f"features={choice!r} but cells are for KernelRidge and GaussianProcessRegressor. "
            "Choose a map of the whole space here."
        )

    @property
    def rounding(self) -> float:
        """About the largest squared error of a row of columns: u²R k(x, x)/ε.

        z = L⁻¹k, ‖L⁻¹‖² is at most 1/(εk(x, x)), and each of R values is rounded to u. Rows of a
        pass and rows of a prediction differ by as much: a smaller penalty tells nothing.
        """
        unit = float(np.finfo(self.dtype).eps) / 2
        return unit**2 * self.n_components * self.kernel.variance / self.nugget

    def in_float64(self) -> Self:
        """The same cells with columns in float64, and its nugget."""
        return replace(self, dtype="float64", nugget=NUGGET["float64"])

    @property
    def periods(self) -> Mapping[int, float]:
        """Those of the encoding."""
        return periods_of(self.encoding)

    @property
    def n_inputs(self) -> int:
        """d, the columns of a row before it is encoded."""
        own = self.partition if self.encoding is None else self.encoding
        return int(own.n_inputs)

    @property
    def n_trees(self) -> int:
        """J."""
        return self.partition.n_trees

    @property
    def n_cells(self) -> int:
        """B, the cells of one tree."""
        return self.partition.n_cells

    @property
    def length_scale(self) -> Float64:
        """In units of the inputs, or of the columns of an encoding that is no metric."""
        return length_scale_behind(self.encoding, self.kernel)

    @property
    def n_components(self) -> int:
        """R, the columns of one cell."""
        return int(self.landmarks.shape[2])

    @property
    def nesting(self) -> Nesting:
        """The first R' landmarks of every cell are a map."""
        return "prefix"

    def leading(self, n_components: int) -> Self:
        """The map of the first R' landmarks of each cell.

        Raises
        ------
        ValueError
            If a cell has not so many columns.
        """
        if not 1 <= n_components <= self.n_components:
            raise ValueError(
                f"n_components={n_components} but each cell has 1 to {self.n_components} columns. "
                "Ask for a number in this range."
            )
        return replace(self, landmarks=self.landmarks[:, :, :n_components])

    def route(self, X: Array) -> Array:
        """Cell (J, n) of each row X (n, d) in each tree, from 0 to B − 1."""
        return self.partition.route(self.encode(X))

    def encode(self, X: Array) -> Float64:
        """Rows X (n, d) in the columns that cells are cut in."""
        return encode_rows(self.encoding, self._check_rows(X))

    def landmark_rows(self, tree: int, cell: int) -> Float64:
        """U_c (R, d), in units of the inputs."""
        return np.asarray(self.pool[self.landmarks[tree, cell]])

    def landmarks_at(self, tree: int, cell: int, X: Array) -> tuple[Array, Array]:
        """Which encoded rows X (n, d) are landmarks of a cell: places in X and in U_c."""
        U = self.landmark_rows(tree, cell)
        same = (X[:, None] == U).all(axis=2)
        return np.flatnonzero(same.any(axis=1)), same[same.any(axis=1)].argmax(axis=1)

    def rows_of_cells(self, tree: int, cells: Array, X: Array) -> Float64:
        """What :meth:`kernel_values` takes of encoded rows X (n, d) in these cells (n,), or in one.

        [x, ‖x‖², 1] about one landmark of the row's cell, where little cancels; for a kernel that
        is no function of a distance, X.
        """
        if not isinstance(self.kernel, RadialKernel):
            return X
        n, d = X.shape
        # Whole arrays at once: a sweep of rows of d numbers takes three times as long.
        near = self.pool.take(self.landmarks[tree, :, 0].take(cells), axis=0)
        near = np.subtract(X, near, out=near if len(near) == n else None)
        near /= np.tile(self._scale, (n, 1))
        np.clip(near, -FARTHEST, FARTHEST, out=near)
        rows = np.ones((n, d + 2))
        rows[:, :d] = near
        np.einsum("ij,ij->i", near, near, out=rows[:, d])
        return rows

    def kernel_values(
        self, tree: int, cell: int, rows: Float64, out: Array, mean: Array | float = 0.0
    ) -> None:
        """Write k(x, U_c) − mean (n, R) into ``out``, of any floating dtype.

        The rows are those of :meth:`rows_of_cells`. The mean is a number; or an array (n,) of the
        same dtype, into which the mean of each row is written.
        """
        kernel = self.kernel
        if not isinstance(kernel, RadialKernel):
            out[...] = kernel(rows, self.landmark_rows(tree, cell))
            out -= mean if isinstance(mean, float) else _row_means(out, mean)
            return
        # ‖x − u‖² = [x, ‖x‖², 1] · [−2u, 1, ‖u‖²]
        columns = self._scaled_landmarks(tree, cell)
        # A few rows at a time: what is between distances and values stays in the cache.
        size = max(BLOCK_VALUES // columns.shape[1], 1)
        shape = (min(size, len(rows)), columns.shape[1])
        exact, spare = _scratch("d", shape), _scratch(f"{out.dtype.char} spare", shape)
        rounded = exact if out.dtype == exact.dtype else _scratch(out.dtype.char, shape)
        for start in range(0, len(rows), size):
            block = out[start : start + size]
            values = rounded[: len(block)]
            np.matmul(rows[start : start + size], columns, out=exact[: len(block)])
            if rounded is not exact:
                values[...] = exact[: len(block)]
            np.abs(values, out=values)  # negative by rounding alone; half the time of a maximum
            kernel.write_value(values, spare[: len(block)])
            taken = (
                mean if isinstance(mean, float) else _row_means(values, mean[start : start + size])
            )
            np.subtract(values, taken, out=block)

    def _scaled_landmarks(self, tree: int, cell: int) -> Float64:
        """[−2u, 1, ‖u‖²] (d + 2, R) of the landmarks u about the first of them; kept."""
        held: dict[tuple[int, int], Float64] = self._scaled  # type: ignore[attr-defined]
        columns = held.get((tree, cell))
        if columns is None:
            U, d = self.landmark_rows(tree, cell), self.partition.n_inputs
            columns = np.ones((d + 2, len(U)))
            columns[:d] = ((U - U[0]) / self._scale).T
            columns[d + 1] = (columns[:d] ** 2).sum(axis=0)
            columns[:d] *= -2
            held[tree, cell] = columns
        return columns

    def inverse_factor(self, tree: int, cell: int) -> tuple[Array, Array]:
        """L_c⁻¹, packed (R(R+1)/2,), and L_c⁻¹1 (R,), in ``dtype``; kept once they are computed.

        Raises
        ------
        ValueError
            If the kernel matrix of a cell is not positive definite.
        """
        held: dict[tuple[int, int], tuple[Array, Array]] = self._factors  # type: ignore[attr-defined]
        found = held.get((tree, cell))
        if found is None:
            ones = np.ones((1, self.n_components))
            exact = pack_triangle(self.inverse_triangle(tree, cell))
            multiply_rows(exact, ones)
            found = held[tree, cell] = exact.astype(self.dtype), ones[0].astype(self.dtype)
        return found

    def inverse_triangle(self, tree: int, cell: int) -> Float64:
        """L_c⁻¹ (R, R) below the diagonal, in float64, before :meth:`inverse_factor` rounds it.

        It serves wherever a z_c is: rounding of k(U_c, U_c) to u turns L_c by u/ε, so that a factor
        that is computed in another way is that of another map.

        Raises
        ------
        ValueError
            If the kernel matrix of a cell is not positive definite.
        """
        inverse = inverse_factor(self._landmark_kernel(tree, cell))
        if inverse is None:
            raise ValueError(
                f"The kernel matrix of the landmarks of cell {cell} of tree {tree} is not "
                f"positive definite, with nugget={self.nugget:g} added. Use a kernel that is "
                "positive definite, or a larger nugget."
            )
        return inverse

    def keep_factors(self, X: Array, room: int) -> None:
        """Keep what is computed once for a cell for the cells of rows X (n, d).

        And for others, in so many bytes and ``LITTLE``: it would be computed again.
        """
        n_trees, routes = self.n_trees, self.route(X)
        kept = {(tree, cell) for tree in range(n_trees) for cell in set(routes[tree].tolist())}
        own = self._factors, self._scaled  # type: ignore[attr-defined]
        others = sorted((self._factors.keys() | self._scaled.keys()) - kept)  # type: ignore[attr-defined]
        a_cell = cell_bytes(self.n_components, self.partition.n_inputs, self.dtype)
        gone = others[max(room + LITTLE, 0) // a_cell :]
        for key in gone:
            for held in own:
                held.pop(key, None)
        if gone:
            return_freed_pages()

    def forget_factor(self, tree: int, cell: int) -> None:
        """Keep L_c⁻¹ no longer, where something else of its size is kept in its place."""
        self._factors.pop((tree, cell), None)  # type: ignore[attr-defined]

    def project(self, tree: int, cell: int, values: Array, mean: Array) -> None:
        """Turn rows k(x, U_c) − c (n, R), of any floating dtype, into z_c, in their place.

        L⁻¹k = L⁻¹(k − c1) + cL⁻¹1 with c the mean of k (n,). Where the kernel hardly varies over a
        cell little is left to cancel: the rounding is below that of a triangular solve.
        """
        inverse, of_ones = (
            each.astype(values.dtype, copy=False) for each in self.inverse_factor(tree, cell)
        )
        multiply_rows(inverse, values)
        add_outer(mean, of_ones, values)

    def _landmark_kernel(self, tree: int, cell: int) -> Float64:
        """k(U_c, U_c) + εI (R, R), in Fortran order."""
        U = self.landmark_rows(tree, cell)
        values = np.asarray(self.kernel(U, U)).T
        values[np.diag_indices_from(values)] += self.nugget * values.diagonal().max()
        return values

    def columns(self, tree: int, cell: int, X: Array) -> Array:
        """z_c (n, R) of rows X (n, d) of one cell, in ``dtype``."""
        Z = np.empty((len(X), self.n_components), self.dtype)
        X = encode_rows(self.encoding, X)
        self.write_columns(tree, cell, self.rows_of_cells(tree, np.array([cell]), X), Z)
        return Z

    def write_columns(self, tree: int, cell: int, rows: Float64, out: Array) -> None:
        """Write z_c (n, R) into ``out``, of ``dtype``, of what :meth:`rows_of_cells` gives."""
        mean = np.empty(len(rows), out.dtype)
        self.kernel_values(tree, cell, rows, out, mean)
        self.project(tree, cell, out, mean)

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON and arrays that :meth:`from_spec` reads."""
        cuts, arrays = self.partition.spec()
        plain = {
            "map": "local",
            "dtype": self.dtype,
            "nugget": self.nugget,
            "kernel": self.kernel.spec(),
            **cuts,
        }
        if self.encoding is not None:
            plain["encoding"], own = self.encoding.spec()
            arrays = arrays | {f"encoding_{name}": values for name, values in own.items()}
        return plain, {"pool": self.pool, "landmarks": self.landmarks.astype(np.int64), **arrays}

    @classmethod
    def from_spec(cls, plain: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The map that gave this spec, bit for bit.

        Raises
        ------
        ModelError
            If a field is absent, or has a value that the map refuses.
        """
        try:
            partition = Partition.from_spec(plain, arrays)
            rows = (arrays["pool"], arrays["landmarks"])
            kernel = kernel_from_spec(plain["kernel"])
            encoding = None
            if "encoding" in plain:
                own = nested_arrays(arrays, "encoding_")
                encoding = map_from_spec(plain["encoding"], own)
            return cls(partition, *rows, kernel, plain["nugget"], plain["dtype"], encoding)
        except (KeyError, ValueError, TypeError) as error:
            raise ModelError(
                f"The spec of a local map cannot be read: {error!r}. "
                "Check where it comes from; a stored model has all of its fields."
            ) from error

    @cached_property
    def _scale(self) -> Float64:
        return length_scale_vector(self.kernel, self.partition.n_inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        own = tuple(getattr(self, each.name) for each in fields(self))
        return type(self), own  # without the factors: the map travels light

    def __repr__(self) -> str:
        name = self.kernel.spec()["kernel"]
        trees = f"{self.n_trees} trees of {self.n_cells} cells"
        size = f"{self.n_inputs} inputs, {trees} with {self.n_components} columns each"
        return f"<LocalFeatures of {name}: {size}, {self.dtype}>"

    def _check_rows(self, X: Array) -> Array:
        X = check_rows(X, self.n_inputs)
        if X.dtype.kind == "f" and len(X):
            largest = (
                np.abs(column_range(X)).max(axis=0).astype(np.float64)
            )  # to compare with 1e150
            for j in np.flatnonzero(largest > MOST_VALUE):
                raise DataError(
                    f"Column {j} of X holds values of {largest[j]:.3g}, and the square of a "
                    "distance to it leaves the range of float64. Mask such values, or multiply "
                    "the column by a constant."
                )
        return X


def _plain_map(features: Any) -> dict[str, Any]:
    plain, arrays = features.spec()
    return {"plain": plain, "arrays": {name: a.tolist() for name, a in arrays.items()}}


def _map_from(plain: Any) -> Any:
    arrays = {name: np.array(values) for name, values in plain["arrays"].items()}
    return map_from_spec(plain["plain"], arrays)


def _row_means(values: Array, out: Array) -> Array:
    """Their means (n, 1), which are written into ``out`` (n,), too."""
    # One BLAS sum a row: the bits of a row do not depend on its place, as a whole product's do.
    return np.vecdot(values, _shares(values.shape[1], values.dtype.char), out=out)[:, None]


@lru_cache(maxsize=16)
def _shares(count: int, dtype: str) -> Array:
    """1/R, R times."""
    return np.full(count, 1 / count, dtype)


_thread = threading.local()


def _scratch(name: str, shape: tuple[int, int]) -> Array:
    """An array of any content, the memory of which this thread uses again; of the dtype named."""
    held, size = getattr(_thread, name, None), math.prod(shape)
    if held is None or len(held) < size:
        held = np.empty(max(size, BLOCK_VALUES), name.partition(" ")[0])
        setattr(_thread, name, held)
    return np.asarray(held[:size].reshape(shape))


def cell_bytes(n_components: int, n_inputs: int, dtype: Any) -> int:
    """Bytes that a process keeps for a cell whose rows it has met: L_c⁻¹ and scaled landmarks."""
    factor = triangle_size(n_components) * np.dtype(dtype).itemsize
    return int(factor + 8 * n_components * (n_inputs + 2))


def pilot_rows(n_cells: int, n_components: int) -> int:
    """Rows from which cells are cut and landmarks are taken."""
    return min(max(n_cells * n_components, FEWEST_PILOT_ROWS), MOST_PILOT_ROWS)


def _choose(
    partition: Partition, X: Float64, n_components: int, rng: Generator
) -> tuple[Float64, Array]:
    """The pool and the landmarks (J, B, R): rows of each cell, then points between its rows."""
    n_trees, n_cells = partition.n_trees, partition.n_cells
    landmarks = np.empty((n_trees, n_cells, n_components), np.int32)
    extra: list[Float64] = []
    size = len(X)
    for tree, cells in enumerate(partition.route(X)):
        order, ends = order_by_cell(cells, n_cells)
        for cell in range(n_cells):
            own = _rows_of(order, ends, cell)
            chosen = rng.permutation(own)[:n_components]
            missing = n_components - len(chosen)
            landmarks[tree, cell, : len(chosen)] = chosen
            if missing:
                a, b = rng.choice(own, (2, missing))
                extra.append(X[a] + rng.uniform(size=(missing, 1)) * (X[b] - X[a]))
                landmarks[tree, cell, len(chosen) :] = np.arange(size, size + missing)
                size += missing
    return np.concatenate([X, *extra]), landmarks


def _rows_of(order: Array, ends: Array, cell: int) -> Array:
    """Rows of a cell, or of the smallest group of cells around it in the tree that has some."""
    width = 1
    while True:
        first = cell // width * width
        own = order[ends[first] : ends[first + width]]
        if len(own):
            return own
        width *= 2
