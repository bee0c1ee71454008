"""What estimators of streamed rows share: values of new rows in their container, and saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import numpy as np
from dask.base import is_dask_collection
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64
from rff_stream.estimators.inputs import checked_rows, framed_like, in_memory, in_storage
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.blas_threads import single_threaded_blas
from rff_stream.execution.prediction import map_rows
from rff_stream.features import FeatureMap
from rff_stream.model.facts import model_card
from rff_stream.moments import Moments
from rff_stream.pilot import warn_where_left_out_vary
from rff_stream.predictor import RowFunction
from rff_stream.sources import Columns, Source, open_source
from rff_stream.statistics.groups import ByGroup

__all__ = ["StreamedEstimator"]

DIRECT_ROWS = 65_536
"""Rows in memory up to which values are computed without a scheduler."""


class StreamedEstimator(BaseEstimator):  # type: ignore[misc]
    """Rows of any container -> values in the same container, by the fitted inputs.

    A subclass fits ``columns_`` and ``features_``, and says what its answer is as named
    arrays: ``_arrays()`` and ``_restore(arrays)``, or ``_solve(moments)`` without them.
    """

    missing_rows: Literal["error", "drop"]
    missing_chunks: Literal["auto", "error", "fill"]
    memory: int | None
    progress: bool
    features_: FeatureMap
    moments_: Moments
    columns_: Columns
    n_rows_: int
    n_missing_: int
    n_features_in_: int
    _flat: bool

    def save(
        self,
        path: str | PathLike[str],
        *,
        moments: bool = False,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model as a Zarr v3 group: data with checksums, no pickle.

        Parameters
        ----------
        path : str or path
        moments : bool
            Keep the moments too, for other choices of alpha and R without a read.
        overwrite : bool
            Replace a model that stands there; the old one is kept until the new is whole.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.
        """
        from rff_stream.estimators.persistence import save

        check_is_fitted(self)
        save(self, path, moments, overwrite, storage_options)

    def _arrays(self) -> dict[str, Array]:
        """The answer as named arrays, for the store."""
        raise NotImplementedError

    def _restore(self, arrays: Mapping[str, Array]) -> None:
        """The answer from the store's arrays."""
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """What else the answer is, as plain JSON, for the store."""
        return {}

    def _take_facts(self, facts: Mapping[str, Any]) -> None:
        """The attributes that ``_facts`` said."""

    def _solve(self, folds: Mapping[Any, Moments]) -> None:
        """Set the attributes of the answer."""
        raise NotImplementedError

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Any:
        """What values of rows in memory come in: NumPy by default, or pandas or polars.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            None leaves it as it is.
        """
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _repr_html_(self) -> str:
        return str(estimator_html_repr(self)) + model_card(self).html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing_rows == "drop"
        return tags

    def _values(
        self,
        X: Any,
        function: RowFunction,
        names: tuple[str, ...],
        units: tuple[str, ...],
        *,
        flat: bool,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Values of a function of rows in the container of X, (n,) if ``flat``."""
        if in_memory(X):
            rows = checked_rows(self, X, self.missing_rows)
            scale = np.asarray(getattr(self, "length_scale_", 1.0))
            warn_where_left_out_vary(rows, scale, self.columns_.inputs)
            found = _of_array(rows, function, self.columns_)
            return framed_like(self, X, found[:, 0] if flat else found, names)
        source = self._source(X, storage_options=storage_options)
        values = map_rows(source, function)
        values = values[..., 0] if flat else values
        if not (source.is_lazy or in_storage(X) or is_dask_collection(X)):
            values = values.compute()
        return source.wrap(values, names, units)

    def _source(
        self,
        X: Any,
        *,
        y: Any = None,
        weight: Any = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        by: Any = None,
        y_labels: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Source:
        """A source with the fitted inputs: to predict (no y) or to score."""
        return open_source(
            X,
            y,
            weight,
            dim=dim,
            where=where,
            by=by,
            y_labels=y_labels,
            missing_rows="drop" if y is None else self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
            columns=replace(self.columns_, weight=""),
        )

    def _scored(self, source: Source, statistic: Any, by: Any) -> Any:
        """Sum of a statistic over rows; for each group where groups are asked for."""
        reading = Reading(source, progress=self.progress)
        layout = reading.plan(1, order=1, memory=self.memory).layout
        if by is not None:
            return dict(reading.sums(ByGroup(statistic), layout, "scoring").value.by_label)
        found = reading.sums(statistic, layout, "scoring").value
        if not found.n:
            raise no_rows(source)
        return found


def _of_array(rows: Array, function: RowFunction, columns: Columns) -> Float64:
    """Values (n, width) for an array in memory: at once, or in threads if it is long."""
    if len(rows) <= DIRECT_ROWS:
        with single_threaded_blas():
            return function(rows)
    source = open_source(rows, columns=columns, missing_rows="drop")
    lazy = map_rows(source, function)
    return np.asarray(lazy.compute())
