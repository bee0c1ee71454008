"""Which inputs matter to a fitted function, and how: by variance, by slope, by its mean.

Of a function of rows (a predictor) and a sample, or of coefficients; nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True, slots=True, eq=False)
class Relevance:
    """The range of each input in a sample, in length-scales."""

    inputs: tuple[str, ...]
    spans: Float64
    """(d,), std(x_j)/ℓ_j. The function changes along inputs with 1 or more, and hardly along
    those far below 1; 0 for an input that the fit left out."""


def sobol_indices(
    function: Function, rows: Array, *, size: int = 8192, random_state: int = 0
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

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(1000, 2))
    >>> found = sobol_indices(lambda x: x[:, :1] + 2 * x[:, 1:], x)  # 1 : 4 in variance
    >>> found.first.round(2).ravel().tolist()
    [0.2, 0.8]
    """
    d = rows.shape[1]
    each = max(1 << int(np.ceil(np.log2(max(size // REPLICATES, 2)))), 2)
    seeds = np.random.SeedSequence(random_state).spawn(REPLICATES)
    ordered = np.sort(np.asarray(rows, np.float64), axis=0)
    found = [_one(function, ordered, each, np.random.default_rng(seed), d) for seed in seeds]
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
    )


def _one(
    function: Function, ordered: Float64, size: int, rng: np.random.Generator, d: int
) -> tuple[Float64, Float64, Float64]:
    """Variance (T,) and the two variances of each input (d, T), from one set of points."""
    shares = qmc.Sobol(2 * d, seed=rng).random(size)
    a, b = (_at_quantiles(ordered, part) for part in (shares[:, :d], shares[:, d:]))
    of_a, of_b = function(a), function(b)
    centre = (of_a.mean(axis=0) + of_b.mean(axis=0)) / 2
    first, total = np.empty((d, of_a.shape[1])), np.empty((d, of_a.shape[1]))
    for j in range(d):
        mixed = a.copy()
        mixed[:, j] = b[:, j]
        of_mixed = function(mixed)
        first[j] = ((of_b - centre) * (of_mixed - of_a)).mean(axis=0)
        total[j] = ((of_a - of_mixed) ** 2).mean(axis=0) / 2
    return np.concatenate([of_a, of_b]).var(axis=0), first, total


def _at_quantiles(ordered: Float64, shares: Float64) -> Float64:
    """Values (m, d) of the sample at these shares of it."""
    places = np.minimum((shares * len(ordered)).astype(int), len(ordered) - 1)
    return np.take_along_axis(ordered, places, axis=0)


def partial_dependence(
    function: Function, rows: Array, column: int, grid: Array, weights: Array | None = None
) -> Float64:
    """The mean of f (g, T) over a sample in which input j is set to each value of a grid.

    Parameters
    ----------
    function : callable
        (m, d) -> (m, T).
    rows : (m, d) array
    column : int
        j.
    grid : (g,) array
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
