"""What a fitted model depends on: inputs, and combinations of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rff_stream._array import Array, Float64
from rff_stream.answers import sensitivity
from rff_stream.answers.dependence import hsic
from rff_stream.answers.sensitivity import Relevance, SobolIndices, gradient, gradient_std
from rff_stream.arguments import (
    SEED_NUMBER,
    Rule,
    array_of,
    is_several,
    is_string,
    is_whole,
    whole,
    whole_or,
)
from rff_stream.errors import MODELS, takes, warn
from rff_stream.families.level_intercepts import quantities
from rff_stream.features.normal_scores import normal_scores_of
from rff_stream.model import gradients
from rff_stream.model.input_rows import values_of_input
from rff_stream.sources import Selection
from rff_stream.sources.levels import places_by_variable
from rff_stream.statistics.dependence import DependenceChange, DependenceScores
from rff_stream.statistics.gradients import Directions, GradientProducts
from rff_stream.statistics.metric_step import MetricStep
from rff_stream.text_formatting import list_names

__all__ = [
    "DependenceChange",
    "DependenceScores",
    "Directions",
    "GradientProducts",
    "MetricStep",
    "dependence_drift",
    "gradient",
    "gradient_outer_product",
    "gradient_std",
    "hsic",
    "metric_step",
    "partial_dependence",
    "relevance",
    "sobol_indices",
]

GRID = whole_or(
    array_of("an array of numbers (g,), or of times such as np.array(texts, 'M8[s]')", None)
)


@takes(MODELS, remedy="Give a fitted model.")
def gradient_outer_product(
    model: Any,
    X: Any = None,
    sample_weight: Any = None,
    *,
    by: Any = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """M, the mean of ∇f∇fᵀ over rows: the inputs and combinations along which f changes.

    Parameters
    ----------
    model : fitted KernelRidge, GaussianProcessRegressor, KernelRegressor or KernelClassifier
        Of a classifier f is its scores (log-odds); where a mean is an exponential, its logarithm.
    X, sample_weight, dim, where, storage_options : as in ``model.predict`` and ``model.score``
        One streamed pass over all rows. Without X, the row sample of the model.
    by : name or array-like, optional
        A group for each row: where, or when, f depends on what.

    Returns
    -------
    GradientProducts, or dict of group -> GradientProducts if ``by`` is given
        They add and subtract. ``matrix()`` is M, ``importance()`` the share of each input,
        ``directions()`` are the eigenvectors.

    Notes
    -----
    Heavy-tailed inputs that the map compares by their normal scores are taken in these: a mean of
    squared slopes by the inputs themselves would be that of a few rows.

    Levels have no slope: columns of text or categories, and marks of missing values, are not among
    the inputs here. ``model.importance_`` and :func:`sobol_indices` tell of them.

    Raises
    ------
    ModelError
        If the model fits no function of rows, or has no row sample and X is not given.
    ValueError
        If the slopes of its map are not known in closed form.

    References
    ----------
    Constantine, Dow & Wang 2014 (active subspaces). Radhakrishnan, Beaglehole, Pandit & Belkin
    2024 (recursive feature machines).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(500, 3)); y = np.sin(X[:, 0] - X[:, 1])
    >>> model = rs.KernelRidge(n_components=128, length_scale=2.0, random_state=0).fit(X, y)
    >>> found = gradient_outer_product(model).directions()
    >>> found.combination(), found.shares.round(2).tolist()
    ('0.72 x0 − 0.70 x1', [1.0, 0.0, 0.0])
    """
    if X is None:
        if by is not None or sample_weight is not None:
            raise ValueError(
                "by and sample_weight are of rows, but X is not given. Give the rows, too."
            )
        return gradients.of_sample(model)
    data = Selection(X, None, sample_weight, None, dim, where, by, storage_options)
    return gradients.of_rows(model, data)


@takes(MODELS, remedy="Give a fitted model.")
def metric_step(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    n_directions: int | None = None,
    by: Any = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """The directions along which y changes, moved to where all rows want them: one pass.

    A metric is found on pilot rows, and is as good as these. The error of these directions falls
    as 1/√n with the rows that are read. Where a few combinations of many inputs matter, fit again
    with ``metric=metric_step(model, X, y).matrix``.

    Parameters
    ----------
    model : fitted KernelRidge or GaussianProcessRegressor
        With a metric, and moments: directions begin from the slopes at its row sample.
    X, y, sample_weight, dim, where, storage_options : as in ``model.score``
    n_directions : int, optional
        k. Without it, all but those whose squared slopes are together below 2 % of the residual
        variance.
    by : name or array-like, optional
        A group for each row: a batch or a day, whose steps add and subtract.

    Returns
    -------
    MetricStep, or dict of group -> MetricStep if ``by`` is given
        ``matrix`` (d, k) is the ``metric`` of the next fit, ``n_directions`` is k, ``moved`` how
        far it is from the start, and ``standard_errors`` how well each direction is known, in
        degrees. They add, subtract and scale.

    Raises
    ------
    ModelError
        If the model has no residuals of a mean, no row sample, or is constant.

    References
    ----------
    Ichimura 1993 (least squares of single-index models). Xia, Tong, Li & Zhu 2002 (MAVE).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0); X = rng.normal(size=(2000, 3))
    >>> y = np.sin(X[:, 0] - X[:, 1]) + 0.1 * rng.normal(size=2000)
    >>> model = rs.KernelRidge(n_components=256, length_scale=2.0, random_state=0).fit(X, y)
    >>> step = metric_step(model, X, y, n_directions=1)
    >>> bool(step.standard_errors[0] < 1)  # degrees
    True
    >>> again = rs.KernelRidge(metric=step.matrix, n_components=256, random_state=0).fit(X, y)
    """
    data = Selection(X, y, sample_weight, None, dim, where, by, storage_options)
    return gradients.metric_step(model, data, n_directions)


@takes(MODELS, remedy="Give a fitted model.")
def dependence_drift(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    by: Any,
    reference: Any = None,
    n_directions: int | None = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> dict[Any, DependenceChange]:
    """Whether what y depends on has changed: each group against the others, one pass.

    Inputs may be distributed as ever, and residuals as large: what is compared is how residuals go
    with inputs, and with slopes along the leading directions of the fit. Where few rows were
    fitted the errors of the fit itself go with inputs, so a group that moves there differs, too:
    with 1,000 rows fitted and one input of 200 new rows moved by its deviation, 62 % of p-values
    were below .05; with 20,000 rows and a move of half of it none of 60. Fit more rows, or leave
    rows outside of the fitted range out.

    Parameters
    ----------
    model : fitted KernelRidge or GaussianProcessRegressor
        With moments. Rows of groups should not be those of the fit, or be few among these.
    X, y, sample_weight, dim, where, storage_options : as in ``model.score``
    by : name or array-like
        A group for each row: a day, a place.
    reference : label, optional
        The group that all others are compared with. Without it, each with the sum of all others.
    n_directions : int, optional
        Along how many leading directions slopes are compared. Without it so many that d inputs
        give at most 40 numbers, or one.

    Returns
    -------
    dict of label -> DependenceChange
        ``p_value`` is at most p with probability p when nothing changed; divide a level by the
        number of groups. ``inputs`` has a p-value for each input: where the change is.

    Raises
    ------
    ModelError
        If the model has no residuals of a mean, no row sample, or is constant.
    ValueError
        If there is one group, no such reference, several targets, or a group of few rows.

    References
    ----------
    Hotelling 1931; Krishnamoorthy & Yu 2004 (samples with covariances of their own).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0); X = rng.normal(size=(4000, 3))
    >>> day = np.repeat([0, 1, 2, 3], 1000)
    >>> y = np.sin(X[:, 0]) + np.where(day == 3, 0.3, 0) * X[:, 2] + 0.3 * rng.normal(size=4000)
    >>> model = rs.KernelRidge(n_components=64, length_scale=2.0, random_state=0)
    >>> model = model.fit(X[:1000], y[:1000])
    >>> found = dependence_drift(model, X[1000:], y[1000:], by=day[1000:])
    >>> [label for label, each in found.items() if each.p_value < 0.01 and each.inputs["x2"] < 0.01]
    [1, 2, 3]
    >>> found = dependence_drift(model, X[1000:], y[1000:], by=day[1000:], reference=1)
    >>> [label for label, each in found.items() if each.p_value < 0.01]
    [3]
    """
    data = Selection(X, y, sample_weight, None, dim, where, by, storage_options)
    groups = gradients.dependence_scores(model, data, n_directions)
    if len(groups) < 2:
        raise ValueError(
            f"by gives {len(groups)} group, and each is compared with others. Give at least two."
        )
    if reference is None:
        total = sum(list(groups.values())[1:], start=next(iter(groups.values())))
        return {label: (total - each).change(each) for label, each in groups.items()}
    if not isinstance(reference, Hashable) or reference not in groups:
        raise ValueError(
            f"reference={reference!r} but the groups are {', '.join(map(str, groups))}. Name one "
            "of them."
        )
    first = groups[reference]
    return {label: first.change(each) for label, each in groups.items() if label != reference}


@takes(MODELS, remedy="Give a fitted model.")
def sobol_indices(model: Any, *, size: int = 8192, random_state: int = 0) -> SobolIndices:
    """Shares of the variance of f: of each input alone, and with interactions.

    Inputs are distributed as in the row sample of the model, but independent, even if they are not
    in the data: an index describes f, not the data. A column of levels is one input, and an input
    and the mark of where it is missing are one: their columns vary together.

    Parameters
    ----------
    model : fitted estimator
    size : int
        Number of Sobol points, in eight scrambled sets; f is evaluated at (d + 2)·size rows.
    random_state : int

    Returns
    -------
    SobolIndices
        ``first`` and ``total`` (d, T) with their standard errors, of the ``inputs`` (d names);
        NaN for a constant function, with a warning. :func:`rff_stream.plot.sensitivity` draws them.

    References
    ----------
    Saltelli et al. 2010, table 2 (b, f): Saltelli's and Jansen's estimators.

    Examples
    --------
    >>> import numpy as np
    >>> import rff_stream as rs
    >>> x = np.random.default_rng(0).uniform(size=(500, 2))
    >>> model = rs.KernelRidge(n_components=64, random_state=0).fit(x, x @ [1.0, 2.0])
    >>> rs.inspect.sobol_indices(model, size=512).first.round(1).ravel().tolist()  # 1 : 4
    [0.2, 0.8]
    """
    whole(1).check("size", size)
    replace(SEED_NUMBER, optional=True).check("random_state", random_state)
    function, rows = gradients.function_of(model), _sample_of(model)
    inputs = places_by_variable(model._require_fit().columns.inputs)
    found = sensitivity.sobol_indices(
        function, rows, size=size, random_state=random_state, inputs=inputs
    )
    _warn_of_constants(found, model)
    return found


def _warn_of_constants(found: SobolIndices, model: Any) -> None:
    """Say which functions are constant: their indices are shares of nothing."""
    constant = np.flatnonzero(found.variance == 0).tolist()
    if constant:
        classes, targets = getattr(model, "classes_", ()), model.columns_.targets
        names = classes if len(classes) == len(found.variance) else targets
        words = list_names(names[each] for each in constant)
        warn(
            f"The fit of {words} has one value at all places, so its variance is 0 and its indices "
            "are NaN: no input has a share of nothing. Leave this target out."
        )


@takes(MODELS, remedy="Give a fitted model.")
def partial_dependence(model: Any, name: str, grid: ArrayLike | int = 50) -> tuple[Array, Float64]:
    """The mean of f over the row sample in which one input is set to each value of a grid.

    Parameters
    ----------
    model : fitted estimator
    name : str
        The input, or a column of levels.
    grid : (g,) array or int
        Values, or how many quantiles of the input in the row sample. Times become numbers in the
        units of the fit. Of a column of levels some of them; an int means all.

    Returns
    -------
    values (g,), means (g, T)
        Values are texts of a column of levels. :func:`rff_stream.plot.partial_dependence` draws
        them.

    Raises
    ------
    ValueError
        If a name is not that of an input, or is one level of a column of several, or the grid has
        a level that the fit did not see.
    DataError
        If the input cannot have the values of the grid, as times of an input of numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import rff_stream as rs
    >>> x = np.random.default_rng(0).uniform(size=(500, 2))
    >>> model = rs.KernelRidge(n_components=64, random_state=0).fit(x, x @ [1.0, 2.0])
    >>> values, means = rs.inspect.partial_dependence(model, "x1", [0.2, 0.7])
    >>> round(float(np.diff(means[:, 0])[0]), 1)  # 2 * .5
    1.0
    """
    columns = model._require_fit().columns
    inputs, variables = columns.inputs, places_by_variable(columns.inputs)
    known = f"one of the inputs {list(variables)}"
    Rule(known, is_string, lambda value: value in variables, "Name one of them.").check(
        "name", name
    )
    function, rows, places = gradients.function_of(model), _sample_of(model), variables[name]
    if name not in inputs:
        levels = [inputs[place].removeprefix(f"{name}=") for place in places]
        Rule(
            f"an int, or levels of {name!r}: {list_names(levels)}",
            lambda value: is_whole(value) or is_several(value),
            lambda value: is_whole(value) or all(level in levels for level in value),
        ).check("grid", grid)
        asked = levels if is_whole(grid) else list(np.asarray(grid))
        ones = np.equal.outer(asked, levels).astype(np.float64)
        return np.array(asked), sensitivity.partial_dependence(function, rows, places, ones)
    GRID.check("grid", grid)
    if is_several(grid):
        values = values_of_input(model, places[0], grid)
    else:
        shares = np.linspace(0, 1, int(np.asarray(grid)))
        values = np.unique(np.quantile(rows[:, places[0]], shares))
    marks = np.zeros((len(values), len(places) - 1))  # the value is not missing
    moved = np.column_stack([values, marks])
    return values, sensitivity.partial_dependence(function, rows, places, moved)


@takes(MODELS, remedy="Give a fitted model.")
def relevance(model: Any) -> Relevance:
    """The range of each input in length-scales; see :class:`Relevance`. Levels have none.

    Length-scales are those of the map alone: a warning tells of a line beside it.
    """
    fitted, rows = model._require_fit(), _sample_of(model)
    if hasattr(model, "trend_slopes_"):
        warn(
            "A line of the inputs stands beside the map, and length-scales tell of the map alone: "
            "trend_slopes_ has the line, and sobol_indices tells of both."
        )
    scores = normal_scores_of(fitted.features)
    rows = rows if scores is None else scores(rows)
    kept, inputs = quantities(fitted.columns.inputs), fitted.columns.inputs
    own, scale = [inputs[j] for j in kept], np.asarray(fitted.length_scale)
    if scale.shape == (len(inputs),):  # levels have one where they are means
        scale = scale[kept]
    return sensitivity.ard_relevance(scale, rows[:, kept], own)


def _sample_of(model: Any) -> Float64:
    """Inputs (m, d) of the row sample; refuses a model that has none."""
    fitted = model._require_fit()
    rows = fitted.need_sample("and this looks at its inputs")
    return np.asarray(rows[:, : fitted.n_inputs])
