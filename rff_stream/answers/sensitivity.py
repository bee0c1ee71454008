"""Which inputs matter to a fitted function, and how: by variance, by slope, by its mean.

Of a function of rows (a predictor) and a sample, or of coefficients; nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from rff_stream._array import Array, Float64
from rff_stream.answers.posterior import Posterior
from rff_stream.errors import takes
from rff_stream.features.base import FeatureMap
from rff_stream.features.functionals import derivative

Function = Callable[[Array], Float64]
"""(m, d) -> (m, T)."""

REPLICATES = 8
"""Number of independent scrambled point sets; their spread gives the error."""

REDRAWN_ROWS, REDRAWN_VALUES = 128, 32
"""At most so many rows and values of columns that are drawn again: 4,096 predictions."""


@dataclass(frozen=True, slots=True, eq=False)
class SobolIndices:
    """Shares of the variance of f over inputs that vary independently."""

    first: Float64
    """(d, T), S_j = Var E[f | x_j]/Var f, the share of x_j alone, and 1 − Var E[f | all but
    x_j]/Var f, the share that involves x_j. Their difference is the interaction."""
    total: Float64  # (d, T)
    first_error: Float64  # (d, T): standard errors
    total_error: Float64  # (d, T)
    variance: Float64  # (T,): Var f
    inputs: tuple[str, ...]
    """Names of the d inputs: a column of levels is one, and so is one with missing values."""


@dataclass(frozen=True, slots=True, eq=False)
class Relevance:
    """The range of each input in a sample, in length-scales."""

    inputs: tuple[str, ...]
    spans: Float64
    """(d,), std(x_j)/ℓ_j. The function changes along inputs with 1 or more, and hardly along
    those far below 1; 0 for an input that the fit left out."""


def sobol_indices(
    function: Function,
    rows: Array,
    *,
    size: int = 8192,
    random_state: int = 0,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> SobolIndices:
    """Sobol indices of a function, for inputs distributed as in a sample but independent.

    See :func:`rff_stream.inspect.sobol_indices`, which gives it the function and sample of a model.

    Parameters
    ----------
    function : callable
        (m, d) -> (m, T), such as :class:`~rff_stream.predictors.LinearPredictor`.
    rows : (m, d) array
        A sample, of whose inputs the scrambled Sobol points are quantiles.
    size, random_state : int
    inputs : mapping of name to columns, optional
        Columns that vary together, as the levels of one column do; by default each alone.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(1000, 2))
    >>> found = sobol_indices(lambda x: x[:, :1] + 2 * x[:, 1:], x)  # 1 : 4 in variance
    >>> found.first.round(2).ravel().tolist()
    [0.2, 0.8]
    """
    if inputs is None:
        inputs = {f"x{j}": (j,) for j in range(rows.shape[1])}
    each = max(1 << int(np.ceil(np.log2(max(size // REPLICATES, 2)))), 2)
    seeds = np.random.SeedSequence(random_state).spawn(REPLICATES)
    ordered = [_Ordered.of(np.asarray(rows, np.float64), own) for own in inputs.values()]
    found = [_one(function, ordered, each, np.random.default_rng(seed)) for seed in seeds]
    variance = np.mean([v for v, _, _ in found], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.array([part / variance for _, part, _ in found])
        total = np.array([part / variance for _, _, part in found])
    root = np.sqrt(REPLICATES)
    return SobolIndices(
        first.mean(axis=0),
        total.mean(axis=0),
        first.std(axis=0, ddof=1) / root,
        total.std(axis=0, ddof=1) / root,
        variance,
        tuple(inputs),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """The values of columns that vary together, in lexical order of the rows of a sample."""

    columns: list[int]  # (c,)
    values: Float64  # (m, c)

    @classmethod
    def of(cls, rows: Float64, columns: Sequence[int]) -> _Ordered:
        own = rows[:, list(columns)]
        return cls(list(columns), own[np.lexsort(own.T[::-1])])

    def at(self, shares: Float64) -> Float64:
        """Values (n, c) at these shares (n,) of the sample."""
        places = (shares * len(self.values)).astype(int)
        return np.asarray(self.values[np.minimum(places, len(self.values) - 1)])


def _one(
    function: Function, ordered: Sequence[_Ordered], size: int, rng: np.random.Generator
) -> tuple[Float64, Float64, Float64]:
    """Variance (T,) and the two variances of each input (d, T), from one set of points."""
    d = len(ordered)
    shares = qmc.Sobol(2 * d, seed=rng).random(size)
    a, b = (_at_quantiles(ordered, part) for part in (shares[:, :d], shares[:, d:]))
    of_a, of_b = function(a), function(b)
    centre = (of_a.mean(axis=0) + of_b.mean(axis=0)) / 2
    first, total = np.empty((d, of_a.shape[1])), np.empty((d, of_a.shape[1]))
    for j, own in enumerate(ordered):
        mixed = a.copy()
        mixed[:, own.columns] = b[:, own.columns]
        of_mixed = function(mixed)
        first[j] = ((of_b - centre) * (of_mixed - of_a)).mean(axis=0)
        total[j] = ((of_a - of_mixed) ** 2).mean(axis=0) / 2
    apart = np.concatenate([of_a, of_b]) - of_a[0]  # of a constant exactly 0: its mean is rounded
    return apart.var(axis=0), first, total


def _at_quantiles(ordered: Sequence[_Ordered], shares: Float64) -> Float64:
    """Rows of the values of the sample at these shares (n, d) of it."""
    rows = np.empty((len(shares), sum(len(own.columns) for own in ordered)))
    for own, part in zip(ordered, shares.T, strict=True):
        rows[:, own.columns] = own.at(part)
    return rows


def redrawn_variance(function: Function, rows: Array, columns: Sequence[int]) -> Float64:
    """E Var f (T,) over rows, where columns are drawn again, together, from a sample.

    What a mean squared slope times the variance is for a quantity: levels have no slope. Of at most
    128 rows and 32 values, spread evenly over the sample.
    """
    rows = np.asarray(rows, np.float64)
    values, counts = np.unique(rows[:, list(columns)], axis=0, return_counts=True)
    if len(values) > REDRAWN_VALUES:
        shares = (np.arange(REDRAWN_VALUES) + 0.5) / REDRAWN_VALUES
        values, counts = _Ordered.of(rows, columns).at(shares), np.ones(REDRAWN_VALUES, int)
    some = rows[:: -(-len(rows) // REDRAWN_ROWS)]
    moved = np.repeat(some, len(values), axis=0)
    moved[:, list(columns)] = np.tile(values, (len(some), 1))
    found = function(moved).reshape(len(some), len(values), -1)
    mean = np.average(found, axis=1, weights=counts, keepdims=True)
    return np.asarray(np.average((found - mean) ** 2, axis=1, weights=counts).mean(axis=0))


def variance_of_mark(
    function: Function, rows: Array, columns: Sequence[int], fill: float
) -> Float64:
    """E Var f (T,) over rows with a value, where as many lose it as in the sample.

    A row that loses it has ``fill`` in the first of the columns, and 1 in the second, its mark.
    """
    rows = np.asarray(rows, np.float64)
    absent = rows[:, columns[1]] == 1
    there = rows[~absent]
    there = there[:: max(-(-len(there) // REDRAWN_ROWS), 1)]
    if not len(there):
        return np.zeros(function(rows[:1]).shape[1])
    moved = there.copy()
    moved[:, list(columns)] = fill, 1.0
    share = absent.mean()
    squares = (function(moved) - function(there)) ** 2
    return np.asarray(share * (1 - share) * squares.mean(axis=0))


def partial_dependence(
    function: Function,
    rows: Array,
    column: int | Sequence[int],
    grid: Array,
    weights: Array | None = None,
) -> Float64:
    """The mean of f (g, T) over a sample in which input j is set to each value of a grid.

    Parameters
    ----------
    function : callable
        (m, d) -> (m, T).
    rows : (m, d) array
    column : int, or (c,) sequence of int
        j; several columns are set together.
    grid : (g,) or (g, c) array
    weights : (m,) array, optional

    Notes
    -----
    As ``sklearn.inspection.partial_dependence(method="brute")``, one grid value at a time.
    """
    found = []
    for value in np.asarray(grid, np.float64):
        moved = np.array(rows, np.float64)
        moved[:, column] = value
        found.append(np.average(function(moved), axis=0, weights=weights))
    return np.stack(found)


def length_scale_relevance(length_scale: Array | float, spread: Array) -> Float64:
    """How many length-scales each input spans (d,): std(x_j)/ℓ_j, 0 for an input left out.

    Parameters
    ----------
    length_scale : float or (d,) array
        From a fit with ``length_scale="ard"``.
    spread : (d,) array
        Standard deviations of the inputs.
    """
    return np.asarray(np.asarray(spread, np.float64) / np.asarray(length_scale, np.float64))


def ard_relevance(length_scale: Array | float, rows: Array, inputs: Sequence[str]) -> Relevance:
    """Relevance of the inputs of a fit with one length-scale for each (ARD).

    Parameters
    ----------
    length_scale : float or (d,) array
        ``model.length_scale_`` of a fit with ``length_scale="ard"``.
    rows : (m, d) array
        A sample: ``model.moments_.sample.rows[:, :d]``.
    inputs : sequence of str
        ``model.columns_.inputs``.

    References
    ----------
    Neal 1996, section 1.2.4 (automatic relevance determination). Rasmussen & Williams 2006, 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(2000, 2))
    >>> ard_relevance([0.5, 100.0], rows, ["a", "b"]).spans.round(1).tolist()
    [2.0, 0.0]
    """
    spread = np.asarray(rows, np.float64).std(axis=0)
    scale = np.broadcast_to(np.asarray(length_scale, np.float64), spread.shape)
    return Relevance(tuple(inputs), length_scale_relevance(scale, spread))


@takes("NamedMap", remedy="Give a map: model.features_.")
def gradient(features: FeatureMap, coef: Float64, X: Array) -> Float64:
    """Slopes ∂f/∂x_j (n, d, T) of f = μ + zᵀβ, in units of y per unit of the input.

    Parameters
    ----------
    features : FeatureMap
        One whose slopes are known in closed form; see ``features.slopes``.
    coef : (R, T) float64
        β.
    X : (n, d) array

    Raises
    ------
    ValueError
        If ``coef`` or X have another shape than the map takes.

    Notes
    -----
    Costs about as much as two predictions: n·R cosines for Fourier features.
    """
    shape, rows = np.shape(coef), np.shape(X)
    if len(shape) != 2 or shape[0] != features.n_components or len(rows) != 2:
        raise ValueError(
            f"coef has shape {shape} and X {rows}, but this map takes coef "
            f"({features.n_components}, T) and X (n, {features.n_inputs}). Give a column of coef "
            "for each function: coef[:, None]."
        )
    return features.slopes(X, coef)


@takes("NamedMap", remedy="Give a map: model.features_.")
def gradient_std(features: FeatureMap, posterior: Posterior, X: Array) -> Float64:
    """Standard deviations (n, d, T) of the slopes of a Gaussian process, given the data.

    Raises
    ------
    TypeError
        If the posterior is not that of the columns of one map.
    """
    if not hasattr(posterior, "of_functionals"):
        raise TypeError(
            f"posterior is of type {type(posterior).__name__}, but slopes have deviations where "
            "the columns of one map have a posterior. Give model.posterior_ of a "
            "GaussianProcessRegressor with n_components."
        )
    process = posterior.of_functionals()
    slopes = (derivative(features, j)(X).astype(np.float64) for j in range(features.n_inputs))
    return np.stack([process.std(each) for each in slopes], axis=1)
