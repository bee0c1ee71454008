"""What estimators of the rows themselves share: a mean feature vector from one read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from rff_stream.estimators.inputs import checked_inputs, in_memory, unchanged_on_error
from rff_stream.estimators.mapping import check_n_components, seed_of
from rff_stream.estimators.streaming import StreamedEstimator
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel, kernel_named
from rff_stream.layout import rows_of
from rff_stream.moments import Moments, total
from rff_stream.onepass import Reading, no_rows
from rff_stream.onepass.blas import few_features_blas, single_threaded_blas
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.sources import Columns, Source, open_source

__all__ = ["StreamedMean", "kernel_of", "positive_numbers"]


class StreamedMean(StreamedEstimator):
    """Rows of any container -> mean feature vector -> an answer about rows.

    A subclass has the parameters read here and says what the answer is: ``_check(d)``,
    ``_make_features(pilot, n_rows, seed)``, ``_solve(groups)`` and ``_arrays()`` /
    ``_restore(arrays)``.
    """

    kernel: Kernel | str
    n_components: int
    dtype: Literal["float32", "float64"]
    sample_rows: int
    memory: int | None
    progress: bool
    random_state: Any
    _flat = True

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
        y : None
            Not looked at; scikit-learn passes one.
        sample_weight : array-like or name in X, optional
            Broadcast by name for labelled data; weight 0 leaves a row out.
        inputs : sequence of str, optional
            Variables, coordinates or virtual names ("time.dayofyear"); default all data
            variables except the weight.
        dim : str or sequence of str, optional
            Sample dimensions; others become columns u[level=500].
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
        check_n_components(self.n_components, "auto")
        size: Any = self.sample_rows
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"sample_rows={size!r} but it is a whole number ≥ 0.")
        arrays = in_memory(X)
        if arrays:
            X, sample_weight = checked_inputs(self, X, sample_weight, inputs, self.missing_rows)
            inputs = None
        source = open_source(
            X,
            None,
            sample_weight,
            inputs=inputs,
            dim=dim,
            where=where,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
        )
        columns = source.columns
        if arrays and hasattr(self, "feature_names_in_"):
            columns = replace(columns, inputs=tuple(self.feature_names_in_))
        self._check(len(columns.inputs))
        self._read(source, columns)
        return self

    def _read(self, source: Source, columns: Columns) -> None:
        """Plan, pilot, map, pass, answer."""
        reading, seed = Reading(source, progress=self.progress), seed_of(self.random_state)
        self.plan_ = reading.plan(
            self.n_components, order=self._order(), memory=self.memory, dtype=self.dtype
        )
        with single_threaded_blas():
            pilot = reading.pilot(seed)
            self.features_: FeatureMap = self._make_features(pilot, rows_of(source), seed)
            row = augmented_row(self.features_, pilot, columns.inputs, (), columns.units)
            groups, seen = reading.moments(
                self.features_, row, self.plan_, sample_rows=self.sample_rows
            )
        self.moments_: Moments = total(groups.values())
        if not self.moments_.n:
            raise no_rows(source)
        self.columns_, self.n_features_in_ = columns, len(columns.inputs)
        self.n_rows_, self.n_missing_ = self.moments_.n, seen - self.moments_.n
        with few_features_blas(self.n_components):
            self._solve(groups)
            self._polish(reading)

    def _order(self) -> int:
        """Of the moments that the answer needs."""
        return 1

    def _check(self, d: int) -> None:
        """Refuse parameters before a row is read."""
        raise NotImplementedError

    def _make_features(self, pilot: Pilot, n_rows: int, seed: int) -> FeatureMap:
        """The map, drawn for the pilot's scales."""
        raise NotImplementedError

    def _polish(self, reading: Reading) -> None:
        """Better the answer by reading again; nothing by default."""


def kernel_of(kernel: Kernel | str) -> Kernel:
    """A kernel by name or as a value; refuses one without frequencies."""
    found = kernel_named(kernel) if isinstance(kernel, str) else kernel
    if not isinstance(found, Kernel):
        raise ValueError(
            f"kernel={kernel!r} is no function of x − x', and a density needs one. Use "
            "'gaussian', 'laplacian', 'cauchy', 'matern' or a kernel like them."
        )
    return found


def positive_numbers(name: str, value: Any, d: int, *rules: str) -> None:
    """Refuse what is neither one of the rules nor one number > 0, or one for each input."""
    known = [*map(repr, rules), "a number > 0", "one number > 0 per input"]
    try:
        values = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    fine = values.shape in ((), (d,)) and bool((np.isfinite(values) & (values > 0)).all())
    if not (isinstance(value, str) and value in rules) and not fine:
        raise ValueError(
            f"{name}={value!r} but it is {', '.join(known[:-1])} or {known[-1]} (here {d})."
        )
