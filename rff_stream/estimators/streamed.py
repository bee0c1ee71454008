"""What regressors on streamed rows share: read once, then answer, predict and score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64
from rff_stream.answers.local import LocalPosterior
from rff_stream.estimators.inputs import (
    checked_fit,
    checked_rows,
    in_memory,
    target_names,
    unchanged_on_error,
)
from rff_stream.estimators.local import draw_locally, is_local, local_sizes
from rff_stream.estimators.mapping import (
    LengthScale,
    check_choices,
    check_n_components,
    find_kernel,
    length_scale_of,
    make_features,
    n_columns,
    n_entries,
    seed_of,
)
from rff_stream.estimators.resuming import read_all
from rff_stream.estimators.running import RunningEstimator
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import few_features_blas, single_threaded_blas
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel
from rff_stream.layout import rows_of
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Sums
from rff_stream.pilot import augmented_row
from rff_stream.planning import Plan
from rff_stream.predictor import LinearPredictor, LocalPredictor, RowFunction
from rff_stream.sources import Source, open_source
from rff_stream.statistics.residuals import Residuals, ResidualStatistic
from rff_stream.store import Checkpoint

__all__ = ["StreamedRegressor"]


class StreamedRegressor(MultiOutputMixin, RegressorMixin, RunningEstimator):  # type: ignore[misc]
    """Rows of any container -> moments -> an answer that predicts.

    A subclass has the parameters read here and says what the answer is:
    ``_n_folds(n_targets)``, ``_solve(folds)`` and ``_arrays()`` / ``_restore(arrays)``.
    """

    kernel: Kernel | str | Sequence[Kernel]
    length_scale: LengthScale
    n_components: int
    dtype: Literal["float32", "float64"]
    sums: Sums
    sample_rows: int
    memory: int | None
    progress: bool
    random_state: Any

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
        by: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        until: float | None = None,
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
        source = self._begun(
            X,
            y,
            sample_weight,
            inputs=inputs,
            dim=dim,
            where=where,
            by=by,
            storage_options=storage_options,
        )
        if until is None:
            self._read(source, checkpoint)
        else:
            self._settle(source, until, checkpoint)
        return self

    def _begun(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        by: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Source:
        """The rows to fit; sets what is known of them before they are read."""
        check_n_components(self.n_components, self.features)
        flat = y is None or isinstance(y, str) or getattr(y, "ndim", 1) == 1
        arrays, targets = in_memory(X), target_names(y)
        if arrays:
            X, y, sample_weight = checked_fit(self, X, y, sample_weight, inputs, self.missing_rows)
            flat, inputs = y.ndim == 1, None
        source = open_source(
            X,
            y,
            sample_weight,
            inputs=inputs,
            dim=dim,
            where=where,
            by=by,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
        )
        columns = source.columns
        if not columns.targets:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if arrays and hasattr(self, "feature_names_in_"):
            columns = replace(columns, inputs=tuple(self.feature_names_in_))
        if arrays and targets:
            columns = replace(columns, targets=targets)
        self._flat = flat and len(columns.targets) == 1
        self.columns_ = columns
        self._forget_history()
        self._selection = {"dim": dim, "where": tuple(where), "by": by}
        return source

    def _read(self, source: Source, checkpoint: Any) -> None:
        """Plan, map, pass, answer."""
        columns, ledger = self.columns_, self._recorded(source)
        d, grouped = len(columns.inputs), self._selection["by"] is not None
        check_choices(self.kernel, self.length_scale, self._chosen, self.sample_rows, d)
        self._n_folds(len(columns.targets))
        reading = Reading(source, progress=self.progress)
        groups, seen = read_all(self, reading, checkpoint, grouped=grouped)
        self.n_features_in_, self._ledger, self.fraction_seen_ = d, ledger, 1.0
        self._adopt(groups)
        self.n_missing_ = seen - self.n_rows_
        with few_features_blas(self.features_.n_components):
            self._polish(reading)

    def _mapped(self, reading: Reading) -> AugmentedRow:
        """The map, drawn from the pilot, and what a row of it means."""
        columns, seed = self.columns_, seed_of(self.random_state)
        if is_local(self._chosen):
            local: Any
            local, row = draw_locally(
                reading,
                columns,
                self._chosen,
                self.kernel,
                self.length_scale,
                seed=seed,
                dtype=self.dtype,
                progress=self.progress,
            )
            self.features_, self.length_scale_ = local, length_scale_of(local.kernel)
            return row
        pilot = reading.pilot(seed)
        kernel = find_kernel(self.kernel, self.length_scale, pilot, seed, self.progress)
        with single_threaded_blas():
            self.features_ = make_features(
                self._chosen, kernel, self.n_components, pilot, seed=seed, dtype=self.dtype
            )
            row = augmented_row(
                self.features_, pilot, columns.inputs, columns.targets, columns.units
            )
        self.length_scale_ = length_scale_of(kernel)
        return row

    def _plan(self, reading: Reading, features: FeatureMap | None = None) -> Plan:
        chosen = self._chosen if features is None else features
        folds = self._n_folds(len(self.columns_.targets))
        if is_local(chosen):
            return reading.plan(
                **local_sizes(chosen, rows_of(reading.source)),
                memory=self.memory,
                sums=self.sums,
                dtype=self.dtype,
                n_groups=max(folds, 1),
            )
        n_components = n_columns(chosen, self.n_components)
        return reading.plan(
            n_components,
            n_entries=n_entries(chosen, n_components),
            memory=self.memory,
            sums=self.sums,
            dtype=self.dtype,
            n_groups=max(folds, 1),
        )

    def _groups_of(
        self,
        reading: Reading,
        row: AugmentedRow,
        plan: Plan,
        *,
        grouped: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Moments], int]:
        folds = 0 if grouped else self._n_folds(len(self.columns_.targets))
        return reading.moments(
            self.features_,
            row,
            plan,
            sample_rows=self.sample_rows,
            grouped=grouped,
            folds=folds,
            checkpoint=checkpoint,
        )

    def _adopt(self, groups: Mapping[Any, Moments]) -> None:
        super()._adopt(groups)
        self._target_origin = self.moments_.row.target_origin

    def _n_folds(self, n_targets: int) -> int:
        """Folds to keep apart in the pass, 0 for none; refuses parameters of the answer."""
        raise NotImplementedError

    def _solve(self, folds: Mapping[Any, Moments]) -> None:
        """Set ``coef_``, ``intercept_`` and the rest of the answer."""
        raise NotImplementedError

    def _polish(self, reading: Reading) -> None:
        """Better the answer by reading again; nothing by default."""

    def _set_linear(self, coef: Float64, intercept: Float64, alpha: Float64, df: Float64) -> None:
        """The attributes of a linear model of features, without the axis of a single y."""
        one = self._flat
        self.coef_ = coef[:, 0] if one else coef
        self.intercept_ = float(intercept[0]) if one else intercept
        self.alpha_ = float(alpha[0]) if one else alpha
        self.df_ = float(df[0]) if one else df

    def _arrays(self) -> dict[str, Array]:
        """The answer as named arrays, for the store."""
        if is_local(self.features_):
            return {
                **self.posterior_.arrays(),
                "length_scale": np.asarray(self.length_scale_, dtype=np.float64),
                "target_origin": self._target_origin,
            }
        r = self.features_.n_components
        return {
            "coef": np.asarray(self.coef_, dtype=np.float64).reshape(r, -1),
            "intercept": np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64)),
            "alpha": np.atleast_1d(np.asarray(self.alpha_, dtype=np.float64)),
            "df": np.atleast_1d(np.asarray(self.df_, dtype=np.float64)),
            "length_scale": np.asarray(self.length_scale_, dtype=np.float64),
            "target_origin": self._target_origin,
        }

    def _restore(self, arrays: Mapping[str, Array]) -> None:
        """The answer from the store's arrays."""
        if is_local(self.features_):
            local: Any = self.features_
            self._set_local(LocalPosterior.from_arrays(local, arrays, self.columns_.targets))
        else:
            self._set_linear(*(arrays[name] for name in ("coef", "intercept", "alpha", "df")))
        scale = arrays["length_scale"]
        self.length_scale_ = float(scale) if scale.ndim == 0 else scale
        self._target_origin = arrays["target_origin"]

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
        return self._rowwise(X, self._predictor(), self.columns_.targets, storage_options)

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
            if self.missing_rows == "error":
                return float(super().score(X, y, sample_weight))
            X = checked_rows(self, X, self.missing_rows)
        found: Residuals = self.residuals(X, y, sample_weight, **choices)
        return float(np.mean(found.r2()))

    def residuals(
        self,
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
        check_is_fitted(self)
        source = self._source(
            X,
            y=list(self.columns_.targets) if y is None else y,
            weight=sample_weight,
            dim=dim,
            where=where,
            by=by,
            storage_options=storage_options,
        )
        statistic = ResidualStatistic(self._predictor(), self._target_origin)
        return self._scored(source, statistic, by)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        own = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "df_"):
            return own
        if is_local(self.features_):
            return f"{own}  # {self.features_!r}"
        return f"{own}  # df/R = {np.max(self.df_):.0f}/{self.features_.n_components}"

    def _set_local(self, posterior: LocalPosterior) -> None:
        """The attributes of a local model."""
        self.posterior_: Any = posterior
        alpha = np.exp(np.log(posterior.alpha).mean(axis=0))
        df = posterior.spectrum.df(posterior.alpha).mean(axis=0)
        self.alpha_ = float(alpha[0]) if self._flat else alpha
        self.df_ = float(df[0]) if self._flat else df

    def _predictor(self) -> Any:
        """x ↦ ŷ, as a picklable function."""
        if is_local(self.features_):
            return LocalPredictor(self.posterior_)
        coef = np.asarray(self.coef_).reshape(self.features_.n_components, -1)
        return LinearPredictor(self.features_, coef, np.atleast_1d(self.intercept_))

    def _rowwise(
        self,
        X: Any,
        function: RowFunction,
        names: tuple[str, ...],
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Values of a function of rows in the container of X."""
        units = self.columns_.units[len(self.columns_.inputs) :] or ("",) * self._width
        return self._values(
            X,
            function,
            names,
            tuple(units) * (function.width // self._width),
            flat=function.width == 1 and self._flat,
            storage_options=storage_options,
        )

    @property
    def _width(self) -> int:
        return len(self.columns_.targets)
