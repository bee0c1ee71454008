"""Kernel ridge regression from one read of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.accumulate import Sums
from rff_stream.answers.ridge import Ridge, ridge
from rff_stream.estimators.inputs import (
    checked_fit,
    checked_rows,
    in_memory,
    names_of,
    unchanged_on_error,
)
from rff_stream.estimators.mapping import (
    LengthScale,
    check_n_components,
    length_scale_of,
    make_features,
    resolve_kernel,
    seed_of,
)
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel
from rff_stream.moments import Moments
from rff_stream.onepass import Reading, no_rows
from rff_stream.onepass.blas import single_threaded_blas
from rff_stream.onepass.rowwise import map_rows
from rff_stream.onepass.scoring import Residuals, ResidualStatistic
from rff_stream.pilot import augmented_row
from rff_stream.predictor import LinearPredictor
from rff_stream.sources import Columns, Source, open_source

__all__ = ["KernelRidge"]

ONE_THREAD_FEATURES = 2048
"""R up to which a solve is too short for a second BLAS thread to pay."""

DIRECT_ROWS = 65_536
"""Rows in memory up to which predictions are made without a scheduler."""


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel ridge regression on random features: rows are read once, in any amount.

    Minimises Σ w (y − μ − z(x)β)² + α βᵀ diag(1/s) β over the R feature columns; as R
    grows this tends to ``sklearn.kernel_ridge.KernelRidge`` with the same ``alpha``.

    Parameters
    ----------
    kernel : str or Kernel, default="gaussian"
        "gaussian" ("rbf"), "laplacian", "cauchy", "matern", or a value such as
        ``Matern(nu=2.5)``. A kernel with its own length-scale is used as it is.
    length_scale : float, (d,) array or "median", default="median"
        In input units. "median" is the median distance between rows of inputs divided by
        their pilot standard deviation. Give numbers when they are known.
    n_components : int, default=2048
        R. Error falls as 1/√R, cost grows as R² a row; √n·log n keep the exact rate
        (Rudi & Rosasco 2017).
    alpha : float, default=1.0
        Penalty on the scale of ``sklearn.kernel_ridge.KernelRidge``: σ²(noise)/σ²(signal).
    features : {"auto", "orthogonal", "fourier", "phase"} or FeatureMap, default="auto"
        "auto" is cosine/sine pairs (phases for an odd R) with orthogonal frequencies where
        the kernel is isotropic, independent ones elsewhere.
    fit_intercept : bool, default=True
        An unpenalised μ. False for equality with scikit-learn's KernelRidge.
    missing_rows : {"error", "drop"}, default="error"
        "drop" when rows with NaN (land, gaps) should be left out.
    missing_chunks : {"auto", "error", "fill"}, default="auto"
        What an absent Zarr chunk means; see :func:`rff_stream.open_source`.
    dtype : {"float32", "float64"}, default="float32"
        Of the features. float64 is slower and rarely changes an answer.
    sums : {"auto", "float32", "float64"}, default="auto"
        Of the sums: float64 up to n = 2·10⁵. Ask for float64 when ``alpha`` is raised.
    sample_rows : int, default=2000
        Rows kept beside the moments; 0 keeps none.
    memory : int, optional
        Bytes that a computing process may use; default all there is.
    progress : bool, default=True
        Show a bar on reads longer than two seconds.
    random_state : int, Generator, RandomState or None
        Of the frequencies and the pilot.

    Attributes
    ----------
    features_ : FeatureMap
    moments_ : Moments
    coef_ : (R,) or (R, T) array
        β of the raw feature columns.
    intercept_ : float or (T,) array
    alpha_ : float or (T,) array
        The penalty used; at least the rounding in the sums.
    df_ : float or (T,) array
        Effective degrees of freedom: R is enough while df is well below R.
    length_scale_ : float or (d,) array
        In input units.
    columns_ : Columns
    n_rows_, n_missing_ : int
        Rows that were used; rows looked at and not used.
    plan_ : Plan

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 1)); y = np.sin(2 * X[:, 0])
    >>> model = rs.KernelRidge(n_components=64, alpha=1e-3, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 3)
    1.0
    """

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        length_scale: LengthScale = "median",
        n_components: int = 2048,
        alpha: float | Array = 1.0,
        *,
        features: FeatureMap | str = "auto",
        fit_intercept: bool = True,
        missing_rows: Literal["error", "drop"] = "error",
        missing_chunks: Literal["auto", "error", "fill"] = "auto",
        dtype: Literal["float32", "float64"] = "float32",
        sums: Sums = "auto",
        sample_rows: int = 2000,
        memory: int | None = None,
        progress: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.alpha = alpha
        self.features = features
        self.fit_intercept = fit_intercept
        self.missing_rows = missing_rows
        self.missing_chunks = missing_chunks
        self.dtype = dtype
        self.sums = sums
        self.sample_rows = sample_rows
        self.memory = memory
        self.progress = progress
        self.random_state = random_state

    @unchanged_on_error
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
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
        check_n_components(self.n_components, self.features)
        flat = y is None or isinstance(y, str) or getattr(y, "ndim", 1) == 1
        names = names_of(X) if in_memory(X) else None
        if in_memory(X):
            X, y, sample_weight = checked_fit(self, X, y, sample_weight, inputs, self.missing_rows)
            flat, inputs = y.ndim == 1, None
        source = open_source(
            X,
            y,
            sample_weight,
            inputs=inputs,
            dim=dim,
            where=where,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
        )
        columns = source.columns
        if names is not None and hasattr(self, "feature_names_in_"):
            columns = replace(columns, inputs=tuple(self.feature_names_in_))
        if not columns.targets:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        self._fit_source(source, columns)
        self._flat = flat and len(columns.targets) == 1
        self._labelled = not in_memory(X) and columns.inputs != tuple(
            f"x{i}" for i in range(len(columns.inputs))
        )
        self._set_answer(self._answer(self.moments_))
        return self

    def _fit_source(self, source: Source, columns: Columns) -> None:
        """Pilot, map, plan, pass: sets everything but the answer."""
        reading = Reading(source, progress=self.progress)
        self.plan_ = reading.plan(
            self.n_components,
            memory=self.memory,
            sums=self.sums,
            dtype=self.dtype,
        )
        seed = seed_of(self.random_state)
        pilot = reading.pilot(seed)
        kernel = resolve_kernel(self.kernel, self.length_scale, pilot)
        self.features_ = make_features(
            self.features, kernel, self.n_components, pilot, seed=seed, dtype=self.dtype
        )
        with single_threaded_blas():
            row = augmented_row(
                self.features_, pilot, columns.inputs, columns.targets, columns.units
            )
        moments, seen = reading.moments(
            self.features_, row, self.plan_, sample_rows=self.sample_rows
        )
        if not moments.n:
            raise no_rows(source)
        self.moments_: Moments = moments
        self.columns_ = columns
        self.n_rows_, self.n_missing_ = moments.n, seen - moments.n
        self.n_features_in_ = len(columns.inputs)
        self.length_scale_ = length_scale_of(kernel, self.n_features_in_)

    def _answer(self, moments: Moments) -> Ridge:
        few = moments.row.n_features <= ONE_THREAD_FEATURES
        with single_threaded_blas() if few else nullcontext():
            return ridge(moments, self.alpha, fit_intercept=self.fit_intercept)

    def _set_answer(self, answer: Ridge) -> None:
        one = self._flat
        self.coef_ = answer.coef[:, 0] if one else answer.coef
        self.intercept_ = float(answer.intercept[0]) if one else answer.intercept
        self.alpha_ = float(answer.alpha[0]) if one else answer.alpha
        self.df_ = float(answer.df[0]) if one else answer.df

    def predict(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
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
        if not in_memory(X):
            source = self._source(X, storage_options=storage_options)
            return self._wrapped(source, map_rows(source, self._predictor(), self._width))
        rows = checked_rows(self, X, self.missing_rows)
        found = self._of_array(rows)
        return found[:, 0] if self._flat else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **choices: Any) -> float:
        """R² of the predictions, averaged over targets; lazy data in one streamed pass.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            y may be left out where the data hold it under its name.
        **choices
            ``where`` and ``storage_options``, as in fit.
        """
        check_is_fitted(self)
        if in_memory(X) and not isinstance(y, str) and y is not None:
            return float(super().score(X, y, sample_weight))
        return float(np.mean(self.residuals(X, y, sample_weight, **choices).r2()))

    def residuals(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Residuals:
        """Sums of squared residuals from one streamed pass: R², RMSE and the rows counted."""
        check_is_fitted(self)
        source = self._source(
            X,
            y=list(self.columns_.targets) if y is None else y,
            weight=sample_weight,
            where=where,
            storage_options=storage_options,
        )
        reading = Reading(source, progress=self.progress)
        found = reading.plan(1, order=1, memory=self.memory)
        predictor = LinearPredictor(self.features_, *self._linear())
        origin = self.moments_.row.target_origin
        tally = reading.sums(ResidualStatistic(predictor, origin), found.layout, "scoring")
        residuals: Residuals = tally.value
        if not residuals.n:
            raise no_rows(source)
        return residuals

    def save(
        self, path: str | PathLike[str], *, moments: bool = False, overwrite: bool = False
    ) -> None:
        """Write the model as a Zarr v3 group: data with checksums, no pickle.

        Parameters
        ----------
        path : str or path
        moments : bool
            Keep the moments too, for other choices of alpha and R without a read.
        overwrite : bool
            Replace a model that stands there; the old one is kept until the new is whole.
        """
        from rff_stream.estimators.persistence import save

        check_is_fitted(self)
        save(self, path, moments=moments, overwrite=overwrite)

    @property
    def _width(self) -> int:
        return len(self.columns_.targets)

    def _linear(self) -> tuple[Array, Array]:
        """β (R, T) and μ (T,)."""
        coef = np.asarray(self.coef_).reshape(self.features_.n_components, -1)
        return coef, np.atleast_1d(self.intercept_)

    def _predictor(self) -> LinearPredictor:
        return LinearPredictor(self.features_, *self._linear())

    def _of_array(self, rows: Array) -> Array:
        """Predictions (n, T) of an array in memory."""
        if len(rows) > DIRECT_ROWS:
            source = open_source(rows, columns=self.columns_, missing_rows="drop")
            return np.asarray(map_rows(source, self._predictor(), self._width).compute())
        with single_threaded_blas():
            return self._predictor()(rows)

    def _source(
        self,
        X: Any,
        *,
        y: Any = None,
        weight: Any = None,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Source:
        """A source with the fitted inputs: to predict (no y) or to score."""
        columns = replace(self.columns_, targets=(), weight="")
        fitted: dict[str, Any] = {"columns": columns, "missing_rows": "drop"}
        if y is not None:
            inputs = list(self.columns_.inputs) if self._labelled else None
            fitted = {"inputs": inputs, "missing_rows": self.missing_rows}
        return open_source(
            X,
            y,
            weight,
            where=where,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
            **fitted,
        )

    def _wrapped(self, source: Source, values: Any) -> Any:
        """A Dask array in grid shape + (T,), in the container that was given."""
        if self._flat:
            values = values[..., 0]
        if not getattr(source, "is_lazy", True):
            values = values.compute()
        units = self.columns_.units[len(self.columns_.inputs) :] or ("",) * self._width
        return source.wrap(values, self.columns_.targets, units)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing_rows == "drop"
        return tags

