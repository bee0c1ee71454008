"""What regressors share: their rows, their map, and the methods of a linear model of features."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeVar

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.answers.duplicate_rows import Neighbours
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed, RowFunction
from rff_stream.errors import warn
from rff_stream.estimators.base import Estimator
from rff_stream.execution import Reading
from rff_stream.families import DrawnMap, MapParameters, StoredAnswer, Totals, check_map, require
from rff_stream.families.parameters import seed_of
from rff_stream.families.protocol import WHOLE, RidgeAnswer
from rff_stream.kernels import kernel_from_spec
from rff_stream.length_scales.map_choice import SearchRecord
from rff_stream.model.extrapolation import SeenInputs, count_outside, warn_where_outside
from rff_stream.model.fit import fit as fit_rows
from rff_stream.model.fit import solve
from rff_stream.model.fitted import Fitted
from rff_stream.model.predict import parts_of_rows, score_rows
from rff_stream.model.recipe import PassRequest, Recipe, with_slabs
from rff_stream.model.stream import fit_until
from rff_stream.model.stream import stream as stream_rows
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Selection
from rff_stream.sources.labelled import with_meaning
from rff_stream.statistics.scores import Residuals, ResidualStatistic

Model = TypeVar("Model", bound=Estimator)

FEWEST_FAR, FAR, MOST, NOTED = 200, 4.0, 0.6, 0.2
"""Smallest number of sampled rows for the test of extreme targets; ratio of the standard
deviation of residuals to a robust one; share of the squared error from a hundredth of the rows.
Noise of a t distribution with 3 degrees of freedom has 1.5 and .2. Last, the standard deviation
of residuals relative to that of y: without noise, errors are largest at corners and edges of the
data, and these rows are right."""

BINS, LEAST_SHARE, SMALL = 20, 0.2, 0.1
"""Number of parts of an input; share of the residuals' variance between them at which a warning
is given, beyond 5 standard errors of chance; their standard deviation relative to that of y. The
share was below .05 for fits to functions that they can represent, and .23 to .62 for fits with
too long or too many length-scales. Of 17 real sets three get the warning: in two of them "ard"
halves the error."""


@dataclass(frozen=True, slots=True, eq=False)
class RegressionRecipe(Recipe):
    """Rows with targets; a map drawn for a kernel found on the pilot.

    A subclass answers, and says by ``n_folds`` which parameters that allows.
    """

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        check_map(parameters, columns.inputs)
        self.n_folds(len(columns.targets))  # refuses parameters of the answer

    def draw(self, request: PassRequest) -> DrawnMap:
        seed, columns = seed_of(self.params.random_state), request.opened.columns
        precision_is_open = self.params.sums == "auto"
        parameters = request.drawn_by(seed, self.params.memory, float64=precision_is_open)
        drawn = parameters.family.draw(request.reading, columns, parameters)
        folds = 0 if request.grouped else self.n_folds(len(columns.targets))
        return with_slabs(drawn, request.reading.pilot(seed), folds) if folds else drawn

    def plan(
        self,
        reading: Reading,
        columns: Columns,
        parameters: MapParameters,
        n_groups: int | None = None,
    ) -> Plan:
        plan = Recipe.plan(self, reading, columns, parameters, n_groups)
        open_yet = self.params.sums == "auto" and plan.sums == "float32"
        return replace(plan, float64_if_needed=open_yet)

    def choose_precision(self, plan: Plan, scales: Mapping[str, Array], reading: Reading) -> Plan:
        plan = replace(plan, float64_if_needed=False)
        if "float64_sums" not in scales or self.params.sums != "auto":
            return plan
        precise = replace(plan, sums="float64")
        return precise if reading.allows(precise, self.params.memory) else plan

    def attributes(self, fitted: Fitted) -> dict[str, Any]:
        answer: RidgeAnswer = fitted.answer
        found = {"length_scale_": fitted.length_scale} | answer.attributes(fitted.flat)
        return found | searched(fitted)

    def pack(self, fitted: Fitted) -> Packed:
        found: Packed = fitted.answer.pack()
        return Packed(found.plain, fitted.stored_scale | dict(found.arrays))

    def totals(self, fitted: Fitted) -> Totals:
        """The sums, and the parameters of a kernel that is chosen after the read."""
        return fitted.totals(self.map_parameters(fitted.columns))

    def stored(self, fitted: Fitted, packed: Packed) -> StoredAnswer:
        """An answer as the store keeps it."""
        targets = fitted.columns.targets
        return StoredAnswer(fitted.features, packed.arrays, packed.plain, targets, fitted.total)

    def restore(self, fitted: Fitted, packed: Packed) -> RidgeAnswer:
        found: RidgeAnswer = fitted.family.restore(self.stored(fitted, packed), variances=False)
        return found


def searched(fitted: Fitted) -> dict[str, SearchRecord]:
    """``choice_``, where the map was searched before the read."""
    packed = fitted.scales.get("choice")
    return {} if packed is None else {"choice_": SearchRecord.of(packed)}


def warn_of_residuals(
    fitted: Fitted, answer: RidgeAnswer, *, chosen: bool, robust: bool = False
) -> None:
    """Warn where residuals of sampled rows are more than noise.

    Where a few rows make most of the squared error, unless the loss is ``robust``; where the
    penalty was ``chosen`` here, and one input predicts the residuals; or, for one map of the whole
    space, where the mean of a row's neighbours is a better prediction.
    """
    rows = np.empty((0, 0)) if fitted.total is None else fitted.total.sample.rows
    if len(rows) < FEWEST_FAR:
        return
    x, y, w = rows[:, : fitted.n_inputs], rows[:, fitted.n_inputs : -1], rows[:, -1]
    missed, pilot, neighbours = y - answer.mean()(x), Pilot(x, y, w), None
    if chosen and fitted.family.name == WHOLE:
        neighbours = Neighbours.of((x - pilot.origin) / pilot.scale)
    for name, residual, values in zip(fitted.columns.targets, missed.T, y.T, strict=True):
        words = "" if robust else _far_targets(residual, values)
        if chosen and not words:
            words = _underfit(fitted.columns.inputs, x, residual, values)
            if neighbours and not words:
                words = _worse_than_neighbours(neighbours, residual, values, w)
        if words:
            warn(f"{name}: {words}")


def _far_targets(residual: Array, values: Array) -> str:
    """The warning that a few rows make most of the squared error: least squares follows them."""
    low, middle, high = np.quantile(residual, (0.25, 0.5, 0.75))
    spread, squares = (high - low) / 1.349, np.sort((residual - middle) ** 2)
    most = squares[-max(len(squares) // 100, 1) :].sum() / max(squares.sum(), 1e-300)
    deviation = float(np.sqrt(squares.mean()))
    if not 0 < FAR * spread < deviation or most <= MOST or deviation <= NOTED * values.std():
        return ""
    return (
        f"1 % of the sampled rows cause {most:.0%} of the squared error. Its root mean square is "
        f"{deviation:.3g}; the quartiles give {spread:.3g}. Least squares follows such rows. Look "
        "at them, or use KernelRegressor('huber') or another robust loss."
    )


def _underfit(inputs: Sequence[str], x: Array, residual: Array, values: Array) -> str:
    """The warning that one input predicts the residuals, which a fit takes for noise."""
    share, chance = shares_of_inputs(x, residual), (2 * BINS) ** 0.5 / len(x)
    if share.max() <= LEAST_SHARE + 5 * chance or residual.std() <= SMALL * values.std():
        return ""
    return (
        f"one input alone, {inputs[int(share.argmax())]}, explains {share.max():.0%} of the "
        f"variance of the residuals of sampled rows. So the noise of {residual.std():.3g} is not "
        "only noise, and standard deviations of the mean are too small. Use length_scale='ard', "
        "shorter length-scales, more components, or a smaller alpha."
    )


def _worse_than_neighbours(neighbours: Neighbours, residual: Array, values: Array, w: Array) -> str:
    """The warning that the mean of a row's neighbours is a better prediction than the fit."""
    y = values[:, None]
    found = neighbours.errors(y, y - residual[:, None], w)
    if found is None:
        return ""
    own, theirs = np.sqrt(found)
    return (
        f"on {len(y):,} sampled rows the root mean squared error is {own:.3g}, and that of the "
        f"mean of {neighbours.who} is {theirs:.3g}: the target changes faster than this map "
        "can represent. Use columns for each part of the data (features='local'), shorter "
        "length-scales, or more components."
    )


def shares_of_inputs(x: Array, residual: Array) -> Array:
    """Share (d,) of the variance of residuals (m,) between 20 parts of each input, less chance."""
    m, found, residual = len(x), np.zeros(x.shape[1]), residual - residual.mean()
    for j, values in enumerate(x.T):
        levels, part = np.unique(values, return_inverse=True)
        if len(levels) > BINS:
            part = np.argsort(np.argsort(values, kind="stable")) * BINS // m
        counts, sums = np.bincount(part), np.bincount(part, residual)
        between = (sums**2 / counts).sum() / max(residual @ residual, 1e-300)
        found[j] = between - (len(counts) - 1) / (m - 1)
    return found


def kernel_of_fit(model: Any) -> Any:
    """The kernel that the map of a fit was drawn for, with its length-scales."""
    kernel: Any = getattr(model.features_, "kernel", None)
    if kernel is None:
        raise AttributeError(
            f"{model.features_!r} is drawn for no kernel of its inputs: no kernel_."
        )
    return kernel_from_spec(kernel) if isinstance(kernel, Mapping) else kernel


def values_of_targets(
    model: Any,
    X: Any,
    function: RowFunction,
    names: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Values in units of the targets, in the container of X."""
    return parts_of_targets(model, X, function, names, storage_options)[0]


def parts_of_targets(
    model: Any,
    X: Any,
    function: RowFunction,
    names: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    parts: int = 1,
) -> tuple[Any, ...]:
    """Columns of such values in so many equal parts, each in the container of X."""
    columns = model.columns_
    width = len(columns.targets)
    units = columns.units[len(columns.inputs) :] or ("",) * width
    found = parts_of_rows(
        model,
        X,
        function,
        names,
        tuple(units) * (function.width // width),
        parts=parts,
        flat=function.width == parts and np.ndim(model.alpha_) == 0,
        storage_options=storage_options,
    )
    endings = [name.removeprefix(columns.targets[0]) for name in names[:: len(names) // parts]]
    return tuple(
        with_meaning(each, columns.targets, ending, [] if ending else endings[1:])
        for each, ending in zip(found, endings, strict=True)
    )


# ------------------------------------------------------------------ methods of both regressors


def fit(
    self: Model,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    inputs: Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    by: Any = None,
    batch: str | Literal[True] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    until: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Model:
    """Fit from one read of the data.

    Parameters
    ----------
    X : array, DataFrame, DataArray, Dataset, Dask collection, Zarr path, URL or group
    y : array-like, or name(s) in X
    sample_weight : array-like or name in X, optional
        For labelled data it is broadcast by name. Rows of weight 0 are left out.
    inputs : sequence of str, optional
        Variables, coordinates or virtual names ("time.dayofyear"). By default all data
        variables except y and the weight.
    dim : str or sequence of str, optional
        Sample dimensions, by default those of y. Other dimensions become columns, such as
        u[level=500].
    where : sequence of (name, op, value) or HoldOut
        Conditions. Rows that do not meet all of them are left out.
    by : name(s) or array, optional
        Label of each row. Each label has its own moments, so that a saved model can be solved for
        any union of labels (``load(path, groups=…)``). With ``alpha="cv"`` they are the folds.
    batch : str or True, optional
        The name under which ``update(batch=…)`` knows these rows. True: every label of the column
        ``by`` is a batch, which ``update(by=…)`` knows; at one more read. Of a folder or a pattern
        of Parquet, Arrow, CSV or NetCDF files each file is a batch under its own name.
    checkpoint : path or URL, optional
        Where a long fit stores its finished sums. If it is interrupted, give the same call again:
        it continues from there and gives the same bits. Remove it when the model is saved.
    until : float, optional
        Stop reading when all other rows would reduce the error by less than this share, with a
        confidence of 95 %, if errors fall at least as 1/√n. (With 0.02 this held in 94.5 % of
        200 fits.) ``fraction_seen_`` is the share that was read and ``history_`` has the errors, at
        held-out leaves: a tenth of all, from 6 to 24, which are added at the end. ``update`` knows
        all rows that were given here, also those that were not read.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Returns
    -------
    self

    Raises
    ------
    DataError, ValueError
        The message names store, array, chunk, rows or parameter. The model stays as it was.
    PlanError
        If the pass does not fit in memory, and nothing was read; or where ``until`` finds rows in
        fewer than 12 leaves of 65,536 rows or more.
    """
    data = Selection(X, y, sample_weight, inputs, dim, where, by, storage_options)
    with self._lock():
        recipe = self._recipe()
        if until is None:
            return self._set_fit(fit_rows(recipe, data, checkpoint, batch=batch))
        recipe = replace(recipe, chooses=False)
        return self._set_fit(fit_until(recipe, data, until, checkpoint, batch))


def stream(
    self: Estimator,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    every: float = 0.1,
    inputs: Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[HeldOutError]:
    """Fit step by step, on more and more rows, in a seeded random order of leaves.

    After each step this estimator is fitted on the rows so far. You can predict with it, save it,
    or end the loop and keep it. ``update`` knows all rows that are given here, also those held out
    and those not read.

    Parameters
    ----------
    X, y, sample_weight, inputs, dim, where, storage_options : as in fit
    every : float
        Below 1: the share of the rows in a step. Above 1: the factor by which the number of rows
        grows. A step has one leaf or more.

    Yields
    ------
    HeldOutError
        Rows, share read, and the error on held-out leaves with its standard error.

    Raises
    ------
    ValueError
        If ``every`` is neither a share nor a factor.
    DataError, PlanError
        As in ``fit``. The model stays as it was after the last step.
    """
    data = Selection(X, y, sample_weight, inputs, dim, where, None, storage_options)
    for step in stream_rows(replace(self._recipe(), chooses=False), data, every):
        with self._lock():
            self._set_fit(step.fitted)
        yield step.state


def with_kernel(self: Model, kernel: Any, **parameters: Any) -> Model:
    """The same fit with another kernel: a new estimator from the same sums, without a read.

    For ``features="grid"``, whose sums are the same for every kernel.

    Parameters
    ----------
    kernel : Kernel, str or sequence of Kernel
        A kernel with its own length-scales is used as it is; otherwise they are found by evidence.
    **parameters
        Other parameters of this estimator to change at the same time, such as ``alpha``, ``noise``,
        ``length_scale`` or ``fit_intercept``.

    Returns
    -------
    estimator
        A fitted copy; this estimator stays as it is.

    Raises
    ------
    ValueError
        If the columns were drawn for one kernel.
    ModelError
        If the model was saved without moments.
    """
    fitted: Fitted = self._require_fit()
    require(fitted.features, "with_kernel")
    other: Model = clone(self)
    given = {"length_scale": "median", "gamma": None} | parameters
    other.set_params(kernel=kernel, **given)
    recipe: Any = other._recipe()
    fitted.family.check(recipe.map_parameters(fitted.columns), fitted.n_inputs)
    return other._set_fit(solve(recipe, replace(fitted, saved_at=None)))


def predict(self: Estimator, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Predictions in the container of X: lazy for lazy, labelled for labelled.

    Parameters
    ----------
    X : as in fit
        Inputs are matched by name if they have names, else by position.

    Returns
    -------
    (n,) or (n, T) array, DataArray or Dataset
        In units of y; with ``missing_rows="drop"`` NaN where an input is missing.

    Raises
    ------
    NotFittedError
        Before a fit.
    DataError, ValueError
        If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
        raises it when it is computed.

    Warns
    -----
    NumericalWarning
        If more rows lie outside the range of the fit than chance explains.
    """
    answer: RidgeAnswer = self._require_fit().answer
    return values_of_targets(self, X, answer.mean(), self.columns_.targets, storage_options)


def score(
    self: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> float:
    """R² of the predictions, averaged over targets; lazy data in one streamed pass.

    Parameters
    ----------
    X, y, sample_weight, dim, where, storage_options : as in fit
        y may be left out where the data hold it under its name.

    Returns
    -------
    float
        At most 1; 0 is the error of the mean of these rows.

    Raises
    ------
    NotFittedError
        Before a fit.
    DataError, ValueError
        If a column of the fit is absent or no number, or a value is missing or infinite.

    Warns
    -----
    NumericalWarning
        If more rows lie outside the range of the fit than chance explains.
    """
    check_is_fitted(self)
    found: Residuals = self.residuals(
        X, y, sample_weight, dim=dim, where=where, storage_options=storage_options
    )
    return float(np.mean(found.r2()))


def residuals(
    self: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    dim: str | Sequence[str] | None = None,
    where: Sequence[Any] = (),
    by: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Sums of squared residuals from one streamed pass: R², RMSE and the rows counted.

    To get exactly the rows that the fit left out, give the ``dim`` of the fit, and the other part
    of its :class:`HoldOut` in ``where``.

    Parameters
    ----------
    X, y, sample_weight, dim, where, storage_options : as in fit
        y may be left out where the data hold it under its name.
    by : name or array-like, optional
        A group for each row.

    Returns
    -------
    Residuals, or dict of group -> Residuals
        A dict if ``by`` is given: a name, or a group for each row.

    Raises
    ------
    NotFittedError
        Before a fit.
    DataError, ValueError
        If a column of the fit is absent or no number, or a value is missing or infinite.

    Warns
    -----
    NumericalWarning
        If more rows lie outside the range of the fit than chance explains.
    """
    fitted: Fitted = self._require_fit()
    answer: RidgeAnswer = fitted.answer
    data = Selection(X, y, sample_weight, None, dim, where, by, storage_options)
    seen = SeenInputs.of(fitted)
    count = None if seen is None else functools.partial(count_outside, seen=seen)
    statistic = ResidualStatistic(answer.mean(), len(answer.target_origin), count)
    found = score_rows(self, data, statistic)
    if count is not None:
        parts = found.values() if isinstance(found, dict) else [found]
        told = [part.outside for part in parts if part.outside is not None]
        warn_where_outside(fitted, functools.reduce(operator.add, told) if told else None)
    return found
