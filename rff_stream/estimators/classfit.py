"""How a classifier reads: labels of any container -> class moments under their own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from rff_stream.errors import ModelError
from rff_stream.estimators.classgrown import ClassData, GrowingClassifier
from rff_stream.estimators.growing import rows_of_batch
from rff_stream.estimators.inputs import (
    checked_labels,
    in_memory,
    target_names,
    unchanged_on_error,
)
from rff_stream.estimators.ledger import Ledger, content_of_arrays
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
from rff_stream.estimators.resuming import drawn, resumable, resumed
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.blas_threads import few_features_blas, single_threaded_blas
from rff_stream.kernels import Kernel
from rff_stream.moments import AugmentedRow
from rff_stream.moments.classes import ClassMoments, class_row, joined, sorted_labels
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.sources import Columns, open_source
from rff_stream.store import Checkpoint

__all__ = ["ClassData", "FittingClassifier"]

SEED = "seed"
"""Of the pilot, in the header of a checkpoint."""


def _takes_batches(estimator: Any) -> bool:
    """Whether moments alone are the model: then batches add."""
    return bool(
        estimator.loss == "squared"
        and estimator.class_weight != "balanced"
        and estimator.alpha != "cv"
    )


class FittingClassifier(GrowingClassifier):
    """Fits class moments and leaves their answer to a subclass: ``_check`` and ``_answer``."""

    kernel: Kernel | str | Sequence[Kernel]
    length_scale: LengthScale
    warm_start: bool
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
        classes: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fit from one read of the data, or one for each step of a loss that needs more.

        Parameters
        ----------
        X : array, DataFrame, DataArray, Dataset, Dask collection, Zarr path, URL or group
        y : array-like, or a name in X
            Labels: numbers or strings.
        sample_weight : array-like or name in X, optional
            Broadcast by name for labelled data; weight 0 leaves a row out. A row of weight 3
            counts as three.
        inputs, dim, where, storage_options
            As in :meth:`rff_stream.KernelRidge.fit`.
        classes : array-like, optional
            Labels to expect, of which the data need not hold any yet; others are then an
            error. A model in a store takes no class later that it was not saved with.
        checkpoint : path or URL, optional
            Where finished sums, and every pass of a loss that makes several, are kept while a
            long fit runs; the same fit goes on from there, with the same bits. Remove it when
            the model is saved.

        Returns
        -------
        self

        Raises
        ------
        DataError, ValueError
            Naming store, array, chunk, rows or parameter, or the only class there is; the
            model stays as it was.
        PlanError
            If the pass cannot fit in memory; nothing was read.
        """
        check_n_components(self.n_components, self.features)
        self._check()
        expected = None if classes is None else tuple(np.unique(classes).tolist())
        data = self._begun(X, y, sample_weight, inputs, dim, where, storage_options, expected)
        self._read(data, expected or (), checkpoint)
        return self

    @available_if(_takes_batches)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        batch: str | None = None,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a batch: the model is then that of all rows so far, exactly.

        The first batch sets map, scales and length-scale. For ``loss="squared"`` without
        "balanced" weights or "cv", where the moments are the model.

        Parameters
        ----------
        X, y, sample_weight, inputs, dim, where, storage_options : as in fit
        classes : array-like, optional
            Labels to expect, in the first call: others are then an error. Without it a new
            label is a new class, and a warning names it.
        batch : str, optional
            Its name: a batch that was counted is not counted again, whoever replays it.
        """
        if not hasattr(self, "coef_"):
            check_n_components(self.n_components, self.features)
            self._check()
            expected = None if classes is None else tuple(np.unique(classes).tolist())
            content = content_of_arrays(*rows_of_batch(X, y, sample_weight)) if batch else ""
            data = self._begun(X, y, sample_weight, inputs, dim, where, storage_options, expected)
            self._read(data, expected or ())
            self._ledger = Ledger(batches={batch: content}) if batch else self._ledger
            return self
        if in_memory(X) and not (inputs or dim or where):
            from rff_stream.estimators.updating import counted

            counted(self, X, y, sample_weight, batch)
            return self
        if batch is not None or self._home is not None:
            raise ModelError(
                f"A {type(X).__name__} with inputs={inputs!r} and where={where!r} is no batch of "
                "rows in memory, which a name, or the store of this model, asks for. Use update()."
            )
        columns = self.columns_
        self._add(self._labelled(X, y, sample_weight, inputs, dim, where, storage_options, columns))
        return self

    def _check(self) -> None:
        """Refuse parameters before a row is read."""
        raise NotImplementedError

    def _answer(
        self,
        data: ClassData,
        pilot: Pilot,
        row: AugmentedRow,
        classes: ClassMoments,
        folds: Mapping[Any, ClassMoments],
        kept: Checkpoint | None,
    ) -> None:
        """Set ``coef_``, ``intercept_`` and the rest of the answer."""
        raise NotImplementedError

    def _begun(
        self, X: Any, y: Any, weight: Any, inputs: Any, dim: Any, where: Any, options: Any,
        expected: tuple[Any, ...] | None,
    ) -> ClassData:  # fmt: skip
        """The rows of a fit that starts anew."""
        data = self._labelled(X, y, weight, inputs, dim, where, options, None)
        check_choices(
            self.kernel, self.length_scale, self._chosen, self.sample_rows, self.n_features_in_
        )
        self._expected = expected
        self._forget_history()
        self._selection = {"dim": dim, "where": tuple(where), "by": None}
        return data

    def _labelled(
        self, X: Any, y: Any, weight: Any, inputs: Any, dim: Any, where: Any, options: Any,
        columns: Columns | None,
    ) -> ClassData:  # fmt: skip
        """The rows of a fit; ``columns`` of the fit that it goes on from."""
        arrays, names, table = in_memory(X), target_names(y), None
        if arrays:
            again = columns is not None
            X, y, weight, table = checked_labels(
                self, X, y, weight, inputs, self.missing_rows, reset=not again
            )
            inputs = None
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        fitted = None if columns is None else replace(columns, targets=(), weight="")
        source = open_source(
            X,
            y,
            weight,
            inputs=inputs,
            dim=dim,
            where=where,
            y_labels=True,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=options,
            columns=fitted,
        )
        units = source.columns.units
        found = replace(
            source.columns, targets=names[:1] or ("y",), units=(*units, "") if units else ()
        )
        if arrays and hasattr(self, "feature_names_in_"):
            found = replace(found, inputs=tuple(self.feature_names_in_))
        self.n_features_in_, self.columns_ = len(found.inputs), columns or found
        reading = Reading(source, progress=self.progress)
        return ClassData(reading, columns or found, table)

    def _read(
        self,
        data: ClassData,
        expected: tuple[Any, ...] = (),
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        """Plan, pilot, map, pass, answer."""
        reading, columns = data.reading, data.columns
        source = reading.source
        self.columns_, ledger = columns, self._recorded(source)
        folds, apart = self._n_folds(1), self.class_weight == "balanced"
        plan = self._plan(reading)
        kept = None if checkpoint is None else resumable(self, source, plan, checkpoint)
        row = None if kept is None else resumed(self, kept)
        seed = seed_of(self.random_state)
        if row is not None and kept is not None and kept.store is not None:
            row, seed = class_row(row, ()), int(kept.store.header[SEED])
        pilot, labels = reading.class_pilot(seed)
        if apart:
            plan = self._plan_apart(reading, max(folds, 1) * len(labels))
        self.plan_ = plan
        if row is None:
            self._draw(pilot, seed)
            row = self._row(pilot, columns)
        if kept is not None:
            header, arrays = drawn(self)
            kept.begin(row, plan.order, {**header, SEED: seed}, arrays)
            self._pass = kept.token
        parts, seen = self._class_moments(
            data, row, plan, labels, folds, apart=apart, checkpoint=kept
        )
        if not any(part.moments.n for part in parts.values()):
            raise no_rows(source)
        every = sorted_labels([*next(iter(parts.values())).labels, *expected])
        parts = {fold: part.over(every) for fold, part in parts.items()}
        whole = joined(parts.values())
        self._hold(whole, parts)
        self._ledger, self.fraction_seen_ = ledger, 1.0
        self.n_missing_ = seen - self.n_rows_
        with few_features_blas(self.features_.n_components):
            self._answer(data, pilot, row, whole, parts, kept)

    def _plan_apart(self, reading: Reading, n_groups: int) -> Any:
        """The plan of a pass that keeps every class apart."""
        n = n_columns(self._chosen, self.n_components)
        choices: Any = {"memory": self.memory, "sums": self.sums, "dtype": self.dtype}
        few = n_entries(self._chosen, n)
        return reading.plan(n, n_entries=few, n_groups=n_groups, **choices)

    def _draw(self, pilot: Pilot, seed: int) -> None:
        """The map: drawn for the pilot, or that of the fit before."""
        before = getattr(self, "features_", None)
        if self.warm_start and before is not None and before.n_inputs == pilot.x.shape[1]:
            return
        two = pilot.y.shape[1] == 2
        kernel = find_kernel(
            self.kernel,
            self.length_scale,
            replace(pilot, y=pilot.y[:, 1:]) if two else pilot,
            seed,
            self.progress,
        )
        with single_threaded_blas():
            self.features_ = make_features(
                self._chosen, kernel, self.n_components, pilot, seed=seed, dtype=self.dtype
            )
        self.length_scale_ = length_scale_of(kernel)

    def _row(self, pilot: Pilot, columns: Columns) -> AugmentedRow:
        """[z − z₀, 1]: what class moments are sums of, before their one-hot y."""
        bare = replace(pilot, y=np.empty((len(pilot.x), 0)))
        with single_threaded_blas():
            units = columns.units[: len(columns.inputs)]
            return augmented_row(self.features_, bare, columns.inputs, (), units)

    def _add(self, data: ClassData) -> None:
        """The moments of one more batch, and the answer of all."""
        source = data.reading.source
        plan = self._plan(data.reading, self.features_)
        known = tuple(self.classes_.tolist())
        bare = class_row(self.moments_.row, ())
        parts, seen = self._class_moments(data, bare, plan, (), self._n_folds(1))
        if not any(part.moments.n for part in parts.values()):
            raise no_rows(source)
        self._admit({label for part in parts.values() for label in part.labels} - {*known}, known)
        before = self.n_rows_ + self.n_missing_
        self.plan_ = plan
        self._adopt(self._merged({fold: part.moments for fold, part in parts.items()}))
        self.n_missing_ = before + seen - self.n_rows_
