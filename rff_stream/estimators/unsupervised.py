"""What estimators of the rows themselves share: a mean feature vector from one read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np

from rff_stream.estimators.growing import GrowingEstimator
from rff_stream.estimators.inputs import checked_inputs, in_memory, unchanged_on_error
from rff_stream.estimators.mapping import check_n_components, n_columns, n_entries, seed_of
from rff_stream.estimators.resuming import read_all
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import few_features_blas, single_threaded_blas
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel, as_kernel
from rff_stream.layout import rows_of
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.planning import Plan
from rff_stream.sources import Source, open_source
from rff_stream.store import Checkpoint

__all__ = ["StreamedMean", "kernel_of", "positive_numbers"]


class StreamedMean(GrowingEstimator):
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
        by: Any = None,
        checkpoint: str | PathLike[str] | None = None,
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
        by : name(s) or array, optional
            Label of each row: a saved model answers for any union (``load(path, groups=…)``).
        checkpoint : path or URL, optional
            Where a long fit is kept while it runs, and goes on with the same bits.
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
            by=by,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
        )
        columns = source.columns
        if arrays and hasattr(self, "feature_names_in_"):
            columns = replace(columns, inputs=tuple(self.feature_names_in_))
        self.columns_ = columns
        self._check(len(columns.inputs))
        self._forget_history()
        self._selection = {"dim": dim, "where": tuple(where), "by": by}
        self._read(source, checkpoint)
        return self

    def _read(self, source: Source, checkpoint: Any) -> None:
        """Plan, map, pass, answer."""
        ledger, grouped = self._recorded(source), self._selection["by"] is not None
        reading = Reading(source, progress=self.progress)
        groups, seen = read_all(self, reading, checkpoint, grouped=grouped)
        self.n_features_in_, self._ledger = len(self.columns_.inputs), ledger
        self._adopt(groups)
        self.n_missing_ = seen - self.n_rows_
        with few_features_blas(self.n_components):
            self._polish(reading)

    def _mapped(self, reading: Reading) -> AugmentedRow:
        """The map, drawn for the pilot's scales, and what a row of it means."""
        columns, seed = self.columns_, seed_of(self.random_state)
        with single_threaded_blas():
            pilot = reading.pilot(seed)
            self.features_ = self._make_features(pilot, rows_of(reading.source), seed)
            return augmented_row(self.features_, pilot, columns.inputs, (), columns.units)

    def _plan(self, reading: Reading, features: FeatureMap | None = None) -> Plan:
        size = self._n_map() if features is None else features.n_components
        return reading.plan(
            size,
            n_entries=n_entries(self._chosen if features is None else features, size),
            order=self._order(),
            memory=self.memory,
            dtype=self.dtype,
        )

    def _n_map(self) -> int:
        """R: columns of the map to come."""
        return n_columns(self._chosen, self.n_components)

    def _groups_of(
        self,
        reading: Reading,
        row: AugmentedRow,
        plan: Plan,
        *,
        grouped: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Moments], int]:
        return reading.moments(
            self.features_,
            row,
            plan,
            sample_rows=self.sample_rows,
            grouped=grouped,
            checkpoint=checkpoint,
        )

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
    found: Kernel = as_kernel(kernel)
    if not found.stationary:
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
