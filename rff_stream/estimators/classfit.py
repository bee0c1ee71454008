"""How a classifier reads: labels of any container -> class moments under their own names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from rff_stream._array import Array
from rff_stream.accumulate import Sums
from rff_stream.errors import NumericalWarning
from rff_stream.estimators.classified import StreamedClassifier
from rff_stream.estimators.inputs import (
    checked_labels,
    in_memory,
    target_names,
    unchanged_on_error,
)
from rff_stream.estimators.mapping import (
    LengthScale,
    check_choices,
    check_n_components,
    find_kernel,
    length_scale_of,
    make_features,
    seed_of,
)
from rff_stream.features import FeatureMap
from rff_stream.kernels import Kernel
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.onehot import ClassMoments, joined, sorted_labels
from rff_stream.onepass import Reading, no_rows
from rff_stream.onepass.blas import few_features_blas, single_threaded_blas
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.sources import Columns, open_source

__all__ = ["ClassData", "FittingClassifier"]


@dataclass(slots=True, eq=False)
class ClassData:
    """What one fit reads from.

    Parameters
    ----------
    reading : Reading
    columns : Columns
        With the name of y as its target.
    table : (C,) array or None
        Labels of data in memory, whose rows carry their numbers.
    """

    reading: Reading
    columns: Columns
    table: Array | None

    def written(self, label: Any) -> Any:
        """A label as rows carry it; None where no row does."""
        if self.table is None:
            return label
        found = np.flatnonzero(self.table == label)
        return int(found[0]) if len(found) else None

    def named(self, part: ClassMoments) -> ClassMoments:
        """Class moments under the labels that were given."""
        if self.table is None:
            return part
        names = self.table.tolist()
        return part.renamed(tuple(names[int(code)] for code in part.labels))


def _takes_batches(estimator: Any) -> bool:
    """Whether moments alone are the model: then batches add."""
    return bool(
        estimator.loss == "squared"
        and estimator.class_weight != "balanced"
        and estimator.alpha != "cv"
    )


class FittingClassifier(StreamedClassifier):
    """Fits class moments and leaves their answer to a subclass: ``_check`` and ``_answer``."""

    loss: str
    kernel: Kernel | str | Sequence[Kernel]
    length_scale: LengthScale
    n_components: int
    alpha: float | str
    class_weight: Mapping[Any, float] | str | None
    features: FeatureMap | str
    cv: int
    warm_start: bool
    dtype: Literal["float32", "float64"]
    sums: Sums
    sample_rows: int
    random_state: Any
    _flat = True
    _expected: tuple[Any, ...] | None = None

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
        self._expected = None
        data = self._opened(X, y, sample_weight, inputs, dim, where, storage_options, None)
        check_choices(
            self.kernel, self.length_scale, self.features, self.sample_rows, self.n_features_in_
        )
        self._read(data)
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
        """
        if not hasattr(self, "coef_"):
            check_n_components(self.n_components, self.features)
            self._check()
            expected = None if classes is None else tuple(np.unique(classes).tolist())
            self._expected = expected
            data = self._opened(X, y, sample_weight, inputs, dim, where, storage_options, None)
            check_choices(
                self.kernel, self.length_scale, self.features, self.sample_rows,
                self.n_features_in_,
            )  # fmt: skip
            self._read(data, expected or ())
            return self
        columns = self.columns_
        data = self._opened(X, y, sample_weight, inputs, dim, where, storage_options, columns)
        self._add(data)
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
    ) -> None:
        """Set ``coef_``, ``intercept_`` and the rest of the answer."""
        raise NotImplementedError

    def _solve_classes(self, classes: ClassMoments, folds: Mapping[Any, ClassMoments]) -> None:
        """The answer where moments suffice."""
        raise NotImplementedError

    def _opened(
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
        self.n_features_in_ = len(found.inputs)
        reading = Reading(source, progress=self.progress)
        return ClassData(reading, columns or found, table)

    def _read(self, data: ClassData, expected: tuple[Any, ...] = ()) -> None:
        """Plan, pilot, map, pass, answer."""
        reading, columns, seed = data.reading, data.columns, seed_of(self.random_state)
        folds = self.cv if self.alpha == "cv" else 0
        apart = self.class_weight == "balanced"
        n = self.n_components
        n = n if isinstance(self.features, str) else self.features.n_components
        choices: Any = {"memory": self.memory, "sums": self.sums, "dtype": self.dtype}
        self.plan_ = reading.plan(n, n_groups=max(folds, 1), **choices)
        pilot, labels = reading.class_pilot(seed)
        if apart:
            groups = max(folds, 1) * len(labels)
            self.plan_ = reading.plan(n, n_groups=groups, **choices)
        self._draw(pilot, seed)
        row = self._row(pilot, columns)
        parts, seen = self._class_moments(data, row, labels, folds, apart)
        self.columns_ = columns
        whole = joined(parts.values())
        whole = whole.over(sorted_labels([*whole.labels, *expected]))
        self._count(whole, seen)
        with few_features_blas(n):
            self._answer(data, pilot, row, whole, parts)

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
                self.features, kernel, self.n_components, pilot, seed=seed, dtype=self.dtype
            )
        self.length_scale_ = length_scale_of(kernel)

    def _row(self, pilot: Pilot, columns: Columns) -> AugmentedRow:
        """[z − z₀, 1]: what class moments are sums of, before their one-hot y."""
        bare = replace(pilot, y=np.empty((len(pilot.x), 0)))
        with single_threaded_blas():
            units = columns.units[: len(columns.inputs)]
            return augmented_row(self.features_, bare, columns.inputs, (), units)

    def _class_moments(
        self, data: ClassData, row: AugmentedRow, labels: tuple[Any, ...], folds: int, apart: bool
    ) -> tuple[dict[Any, ClassMoments], int]:
        """Class moments of each fold (or of all rows, under None), under the labels given."""
        given = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        weights = {data.written(label): float(w) for label, w in given.items()}
        groups, seen = data.reading.classes(
            self.features_,
            row,
            self.plan_,
            labels=tuple(label for label in labels if weights.get(label, 1.0) > 0),
            sample_rows=self.sample_rows,
            class_weight=weights,
            folds=folds,
            apart=apart,
        )
        if not any(part.moments.n for part in groups.values()):
            raise no_rows(data.reading.source)
        named = {key: data.named(part) for key, part in groups.items()}
        self.class_weight_ = dict(given)
        if apart:
            named = self._balanced(named)
        every = sorted_labels(label for part in named.values() for label in part.labels)
        found: dict[Any, ClassMoments] = {}
        for (fold, _), part in sorted(named.items(), key=lambda item: str(item[0])):
            whole = part.over(every)
            found[fold] = found[fold] + whole if fold in found else whole
        return found, seen

    def _balanced(self, groups: dict[Any, ClassMoments]) -> dict[Any, ClassMoments]:
        """Sums of every label scaled so that all classes weigh the same."""
        totals: dict[Any, float] = {}
        for part in groups.values():
            label = part.labels[0]
            totals[label] = totals.get(label, 0.0) + part.moments.weight
        mean = sum(totals.values()) / len(totals)
        self.class_weight_ = {label: mean / weight for label, weight in totals.items()}
        return {key: part.scale(self.class_weight_[part.labels[0]]) for key, part in groups.items()}

    def _count(self, whole: ClassMoments, seen: int) -> None:
        """Rows, classes and moments; refuses a single class."""
        if len(whole.labels) < 2:
            raise ValueError(
                f"The data hold 1 class ({whole.labels[0]!r}), but a classifier tells two or more "
                "apart. Give rows of another class."
            )
        self.moments_: Moments = whole.moments
        self.classes_ = np.asarray(whole.labels)
        self.n_rows_, self.n_missing_ = whole.moments.n, seen - whole.moments.n

    def _add(self, data: ClassData) -> None:
        """The moments of one more batch, and the answer of all."""
        old = ClassMoments(tuple(self.classes_.tolist()), self.moments_)
        bare = self.moments_.with_targets([]).row
        self.plan_ = data.reading.plan(
            self.features_.n_components, memory=self.memory, sums=self.sums, dtype=self.dtype
        )
        parts, seen = self._class_moments(data, bare, (), 0, False)
        new = joined(parts.values())
        self._admit(set(new.labels) - set(old.labels))
        before = self.n_rows_ + self.n_missing_
        whole = old + new
        self._count(whole, before + seen)
        with few_features_blas(self.features_.n_components):
            self._solve_classes(whole, {None: whole})

    def _admit(self, new: set[Any]) -> None:
        """A label that was not met before: an error where others were announced."""
        if not new:
            return
        label = sorted_labels(new)[0]
        if self._expected is not None:
            raise ValueError(
                f"Label {label!r} is not among the classes that the first call announced "
                f"({', '.join(map(repr, self.classes_.tolist()))}). Announce it, or leave "
                "classes= out: a new label is then a new class."
            )
        warnings.warn(
            f"Label {label!r} is new in this batch ({len(new)} new in all): it is a class from "
            "now on, and rows before it count as not of it.",
            NumericalWarning,
            stacklevel=5,
        )
