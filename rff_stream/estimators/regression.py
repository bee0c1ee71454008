"""What regressors share: their rows, their map, and the methods of a linear model of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64
from rff_stream.answers.choice import Selection
from rff_stream.answers.early_stopping import State
from rff_stream.answers.foresight import Foresight
from rff_stream.answers.local import LocalPosterior
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.local import answer_locally, draw_locally, is_local, local_sizes
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import single_threaded_blas
from rff_stream.features import FeatureMap, LocalFeatures
from rff_stream.layout import rows_of
from rff_stream.model.fit import fit as fit_rows
from rff_stream.model.fitted import Data, Draft, Fitted
from rff_stream.model.inputs import checked_rows, in_memory
from rff_stream.model.maps import (
    check_choices,
    check_n_components,
    find_kernel,
    length_scale_of,
    make_features,
    scale_of_map,
    seed_of,
)
from rff_stream.model.opening import Opened, open_later, open_values
from rff_stream.model.predict import score_rows, values_of_rows
from rff_stream.model.recipe import Recipe
from rff_stream.model.stream import fit_until
from rff_stream.model.stream import stream as stream_rows
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import resolve_sums
from rff_stream.moments.cells import CellMoments
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.planning import Plan
from rff_stream.predictor import LinearPredictor, LocalPredictor, RowFunction
from rff_stream.sources import Columns
from rff_stream.statistics.residuals import Residuals, ResidualStatistic

__all__ = ["fit", "predict", "residuals", "score", "stream"]

Model = TypeVar("Model", bound=Estimator)


@dataclass(frozen=True, slots=True, eq=False)
class LinearAnswer:
    """A linear model of feature columns: ŷ = intercept + Z coef.

    Parameters
    ----------
    coef, intercept : (R, T), (T,) float64
    alpha, df : (T,) float64
        Penalty and effective degrees of freedom of every target.
    target_origin : (T,) float64
        y₀ of the moments: residuals are summed about it.
    selection : Selection or None
        Scores of every α, where it was chosen.
    """

    coef: Float64
    intercept: Float64
    alpha: Float64
    df: Float64
    target_origin: Float64
    selection: Selection | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LocalAnswer:
    """A process in the cells of random trees.

    Parameters
    ----------
    posterior : LocalPosterior
    log_evidence : (T,) float64
        log p(y) as the mean over trees.
    target_origin : (T,) float64
        y₀ of the moments: residuals are summed about it.
    """

    posterior: LocalPosterior
    log_evidence: Float64
    target_origin: Float64


@dataclass(frozen=True, slots=True, eq=False)
class RegressionRecipe(Recipe):
    """Rows with targets; a map drawn for a kernel found on the pilot.

    A subclass answers, and says by ``check_answer(n_targets)`` which parameters that allows.
    """

    def check(self) -> None:
        check_n_components(self.asked.n_components, self.asked.features)

    def open(self, data: Data) -> Opened:
        return open_values(self.asked, data)

    def check_streams(self, columns: Columns) -> None:
        if is_local(self.choice(columns)):
            raise ValueError(
                "features='local' is read to the end: its error on leaves held out is not told "
                "from sums. Use fit without until, or a map of the whole space."
            )

    def open_more(self, fitted: Fitted, data: Data) -> Opened:
        return open_later(self.asked, fitted, data)

    def check_columns(self, columns: Columns) -> None:
        asked, chosen = self.asked, self.choice(columns)
        d = len(columns.inputs)
        check_choices(asked.kernel, asked.length_scale, chosen, asked.sample_rows, d)
        self.n_folds(len(columns.targets))  # refuses parameters of the answer

    def plan(
        self, reading: Reading, columns: Columns, features: FeatureMap | None = None, **more: Any
    ) -> Plan:
        chosen = self.choice(columns) if features is None else features
        if not is_local(chosen):
            return Recipe.plan(self, reading, columns, features, **more)
        asked = self.asked
        return reading.plan(
            **local_sizes(chosen, rows_of(reading.source)),
            memory=asked.memory,
            sums=asked.sums,
            dtype=asked.dtype,
            n_groups=max(self.n_folds(len(columns.targets)), 1),
        )

    def draw(self, reading: Reading, columns: Columns, before: Fitted | None) -> Draft:
        asked, seed = self.asked, seed_of(self.asked.random_state)
        if is_local(self.choice(columns)):
            local: Any
            local, row = draw_locally(
                reading, columns, self.choice(columns), asked.kernel, asked.length_scale,
                seed=seed, dtype=asked.dtype, progress=asked.progress,
            )  # fmt: skip
            scale = length_scale_of(local.kernel)
            return Draft(local, row, {"length_scale": np.asarray(scale)})
        pilot = reading.pilot(seed)
        kernel = find_kernel(asked.kernel, asked.length_scale, pilot, seed, asked.progress)
        with single_threaded_blas():
            features = make_features(
                self.choice(columns), kernel, asked.n_components, pilot, seed=seed,
                dtype=asked.dtype,
            )  # fmt: skip
            row = augmented_row(features, pilot, columns.inputs, columns.targets, columns.units)
            scales = {"length_scale": np.asarray(length_scale_of(kernel))}
            if self.needs_float64(reading, pilot, features, row):
                scales["float64_sums"] = np.ones(1)
        return Draft(features, row, scales)

    def needs_float64(
        self, reading: Reading, pilot: Pilot, features: FeatureMap, row: AugmentedRow
    ) -> bool:
        """Whether sums="auto" is float64 beyond its number of rows, for the pilot's penalty."""
        n_rows = rows_of(reading.source)
        if self.asked.sums != "auto" or resolve_sums("auto", int(n_rows)) == "float64":
            return False
        seen = Foresight.of(pilot.x, pilot.y, pilot.w, pilot.origin, pilot.scale)
        asked = getattr(self.asked, "alpha", getattr(self.asked, "noise", None))
        return seen.needs_float64(features, row, n_rows, None if isinstance(asked, str) else asked)

    def precise(self, plan: Plan, scales: Mapping[str, Array]) -> Plan:
        wanted = "float64_sums" in scales and self.asked.sums == "auto"
        return replace(plan, sums="float64") if wanted else plan

    def scales_in(self, features: FeatureMap) -> Mapping[str, Array]:
        return {"length_scale": scale_of_map(features)}

    def nothing(self, fitted: Fitted, row: AugmentedRow) -> Any:
        features = fitted.features
        if isinstance(features, LocalFeatures):
            return CellMoments.zero(row, features.n_trees, features.n_cells)
        return Recipe.nothing(self, fitted, row)

    def local_answer(self, fitted: Fitted, alpha: Any) -> LocalAnswer:
        """The process in cells at a penalty; None: by evidence."""
        moments, features = fitted.whole, fitted.features
        assert isinstance(features, LocalFeatures)
        posterior, evidence = answer_locally(
            features, moments, alpha, fit_intercept=self.asked.fit_intercept
        )
        return LocalAnswer(posterior, evidence, moments.row.target_origin)

    def local_attributes(self, fitted: Fitted, local: LocalAnswer) -> dict[str, Any]:
        """The attributes of a process in cells: α and df are those of the trees, averaged."""
        posterior, one = local.posterior, fitted.flat
        alpha = np.exp(np.log(posterior.alpha).mean(axis=0))
        df = posterior.spectrum.df(posterior.alpha).mean(axis=0)
        return {
            "posterior_": posterior,
            "alpha_": number_or_array(alpha, one),
            "df_": number_or_array(df, one),
            "length_scale_": fitted.length_scale,
        }

    def local_arrays(self, fitted: Fitted, local: LocalAnswer) -> dict[str, Array]:
        """The same as arrays of the store."""
        return {
            **local.posterior.arrays(),
            "length_scale": np.asarray(fitted.length_scale, np.float64),
            "target_origin": local.target_origin,
        }

    def local_in(self, fitted: Fitted, arrays: Mapping[str, Array]) -> LocalAnswer:
        """A process in cells from arrays of the store."""
        features: Any = fitted.features
        posterior = LocalPosterior.from_arrays(features, arrays, fitted.columns.targets)
        unknown = np.full(len(fitted.columns.targets), np.nan)
        evidence = arrays.get("log_marginal_likelihood", unknown)
        return LocalAnswer(posterior, evidence, arrays["target_origin"])

    def linear_attributes(self, fitted: Fitted, linear: LinearAnswer) -> dict[str, Any]:
        """The attributes of a linear model, without the axis of a single y."""
        one = fitted.flat
        found = {
            "coef_": linear.coef[:, 0] if one else linear.coef,
            "intercept_": number_or_array(linear.intercept, one),
            "alpha_": number_or_array(linear.alpha, one),
            "df_": number_or_array(linear.df, one),
            "length_scale_": fitted.length_scale,
        }
        return found if linear.selection is None else found | {"selection_": linear.selection}

    def linear_arrays(self, fitted: Fitted, linear: LinearAnswer) -> dict[str, Array]:
        """The same as arrays of the store."""
        return {
            "coef": np.asarray(linear.coef, np.float64),
            "intercept": np.asarray(linear.intercept, np.float64),
            "alpha": np.asarray(linear.alpha, np.float64),
            "df": np.asarray(linear.df, np.float64),
            "length_scale": np.asarray(fitted.length_scale, np.float64),
            "target_origin": linear.target_origin,
        }

    def linear_in(self, arrays: Mapping[str, Array]) -> LinearAnswer:
        """A linear model from arrays of the store."""
        return LinearAnswer(
            coef=arrays["coef"],
            intercept=arrays["intercept"],
            alpha=arrays["alpha"],
            df=arrays["df"],
            target_origin=arrays["target_origin"],
        )


def number_or_array(values: Float64, one: bool) -> Any:
    """A number for a single y."""
    return float(values[0]) if one else values


def predictor_of(model: Any) -> RowFunction:
    """x ↦ ŷ of a fitted regressor, as a picklable function."""
    if is_local(model.features_):
        return LocalPredictor(model.posterior_)
    coef = np.asarray(model.coef_).reshape(model.features_.n_components, -1)
    return LinearPredictor(model.features_, coef, np.atleast_1d(model.intercept_))


def values_of_targets(
    model: Any,
    X: Any,
    function: RowFunction,
    names: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Values in units of the targets, in the container of X."""
    columns = model.columns_
    width = len(columns.targets)
    units = columns.units[len(columns.inputs) :] or ("",) * width
    return values_of_rows(
        model,
        X,
        function,
        names,
        tuple(units) * (function.width // width),
        flat=function.width == 1 and np.ndim(model.alpha_) == 0,
        storage_options=storage_options,
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
        Broadcast by name for labelled data; weight 0 leaves a row out.
    inputs : sequence of str, optional
        Variables, coordinates or virtual names ("time.dayofyear"); default all data
        variables except y and the weight.
    dim : str or sequence of str, optional
        Sample dimensions, default those of y; others become columns u[level=500].
    where : sequence of (name, op, value) or HoldOut
        Rows that do not meet all of them are left out.
    by : name(s) or array, optional
        Label of each row: moments are kept per label, so that a saved model answers for
        any union of them (``load(path, groups=…)``). With ``alpha="cv"`` they are the folds.
    checkpoint : path or URL, optional
        Where finished sums are kept while a long fit runs; the same fit goes on from
        there, with the same bits. Remove it when the model is saved.
    until : float, optional
        Stop reading when the error has settled to this share of itself (0.01: what all
        other rows could win is below 1 %, at 95 %). ``fraction_seen_`` says how much was
        read and ``history_`` the errors; a tenth of the leaves is kept apart for them.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Returns
    -------
    self

    Raises
    ------
    DataError, ValueError
        Naming store, array, chunk, rows or parameter; the model stays as it was.
    PlanError
        If the pass cannot fit in memory; nothing was read.
    """
    data = Data(X, y, sample_weight, inputs, dim, tuple(where), by, storage_options)
    with self._lock():
        recipe = self._recipe()
        if until is None:
            return self._now(fit_rows(recipe, data, checkpoint))
        return self._now(fit_until(recipe, data, until, checkpoint))


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
) -> Iterator[State]:
    """Models of more and more rows, in a seeded random order of leaves.

    After each step this estimator is fitted on the rows so far: it may predict, be saved,
    or be left as it is by ending the loop.

    Parameters
    ----------
    X, y, sample_weight, inputs, dim, where, storage_options : as in fit
    every : float
        Share of the rows in a step; above 1, the factor by which the rows grow.

    Yields
    ------
    State
        Rows, share read, and the error on held-out leaves with its standard error.
    """
    data = Data(X, y, sample_weight, inputs, dim, tuple(where), None, storage_options)
    for fitted, state in stream_rows(self._recipe(), data, every):
        with self._lock():
            self._now(fitted)
        yield state


def predict(self: Estimator, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Predictions in the container of X: lazy for lazy, labelled for labelled.

    Parameters
    ----------
    X : as in fit
        Inputs by name where they have names, else by position.

    Returns
    -------
    (n,) or (n, T) array, DataArray or Dataset
        In units of y; NaN where an input is missing.
    """
    check_is_fitted(self)
    return values_of_targets(self, X, predictor_of(self), self.columns_.targets, storage_options)


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
    """
    check_is_fitted(self)
    if in_memory(X) and not isinstance(y, str) and y is not None:
        if self.missing_rows == "error":
            return float(RegressorMixin.score(self, X, y, sample_weight))
        X = checked_rows(self, X, self.missing_rows)
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

    With the ``dim`` of the fit and the other part of its :class:`HoldOut` in ``where``,
    exactly the rows that the fit left out.

    Returns
    -------
    Residuals, or dict of group -> Residuals
        The latter where ``by`` names or holds a group for each row.
    """
    fitted: Fitted = self._held()
    y = list(fitted.columns.targets) if y is None else y
    data = Data(X, y, sample_weight, None, dim, tuple(where), by, storage_options)
    statistic = ResidualStatistic(predictor_of(self), fitted.answer.target_origin)
    return score_rows(self, data, statistic)
