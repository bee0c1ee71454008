"""How a classifier grows: class moments of more rows under the labels that it knows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import ModelError, NumericalWarning
from rff_stream.estimators.classified import StreamedClassifier
from rff_stream.estimators.growing import GrowingEstimator
from rff_stream.estimators.inputs import checked_labels
from rff_stream.estimators.mapping import n_columns, n_entries
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import few_features_blas
from rff_stream.features import FeatureMap
from rff_stream.moments import AugmentedRow, Moments
from rff_stream.moments.accumulate import Sums
from rff_stream.moments.classes import ClassMoments, class_row, joined, sorted_labels
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Source, open_source
from rff_stream.store import Checkpoint

__all__ = ["ClassData", "GrowingClassifier"]


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
    table: Array | None = None

    def written(self, label: Any) -> Any:
        """A label as rows carry it; None where no row does."""
        if self.table is None:
            return label
        found = np.flatnonzero(self.table == label)
        return int(found[0]) if len(found) else None

    def label(self, written: Any) -> Any:
        """The label that rows carry so."""
        return written if self.table is None else self.table.tolist()[int(written)]

    def named(self, part: ClassMoments) -> ClassMoments:
        """Class moments under the labels that were given."""
        if self.table is None:
            return part
        return part.renamed(tuple(self.label(code) for code in part.labels))


class GrowingClassifier(StreamedClassifier, GrowingEstimator):
    """Class moments by fold, and what they need to take more rows.

    A subclass answers by ``_solve_classes(classes, folds)``.
    """

    loss: str
    n_components: int
    alpha: float | str
    class_weight: Mapping[Any, float] | str | None
    cv: int
    dtype: Literal["float32", "float64"]
    sums: Sums
    sample_rows: int
    class_weight_: dict[Any, float]
    _flat = True
    _expected: tuple[Any, ...] | None = None

    def _solve_classes(self, classes: ClassMoments, folds: Mapping[Any, ClassMoments]) -> None:
        """The answer where moments suffice."""
        raise NotImplementedError

    def _check_grows(self) -> None:
        """Refuse more rows where moments are not the model."""
        if self.loss != "squared" or self.class_weight == "balanced":
            what = f"loss={self.loss!r}" if self.loss != "squared" else "class_weight='balanced'"
            raise ModelError(
                f"{what} looks at every row again when rows are added or left out, so moments do "
                "not answer for it. Fit all rows again (warm_start=True is faster), or use "
                "loss='squared' without 'balanced'."
            )

    def _n_folds(self, n_targets: int) -> int:
        return self.cv if self.alpha == "cv" else 0

    def _plan(self, reading: Reading, features: FeatureMap | None = None) -> Plan:
        chosen = self._chosen if features is None else features
        n_components = n_columns(chosen, self.n_components)
        return reading.plan(
            n_components,
            n_entries=n_entries(chosen, n_components),
            n_groups=max(self._n_folds(1), 1),
            memory=self.memory,
            sums=self.sums,
            dtype=self.dtype,
        )

    def _opened(
        self, X: Any, y: Any, sample_weight: Any, storage_options: Any, **choices: Any
    ) -> Source:
        self._check_grows()
        if choices.pop("by", None) is not None:
            raise ValueError(
                "by= names the batch of each row, but rows of a classifier carry their class "
                "alone. Give one batch at a time: batch=…."
            )
        given: Any = (X, y, sample_weight, storage_options)
        return super()._opened(*given, y_labels=True, **choices)

    def _check_columns(self, source: Source) -> None:
        """As for any model; labels have a name, but are no column of numbers."""
        found, wanted, d = source.columns, self.columns_, len(self.columns_.inputs)
        units = wanted.units[:d], found.units[:d]
        for what, a, b in (("inputs", wanted.inputs, found.inputs), ("units", *units)):
            if a != b and not (what == "units" and not any((*a, *b))):
                raise ModelError(
                    f"The {what} of the data are {b}, but the model was fitted on {a}. "
                    "Give data with the names and units of the fit."
                )

    def _of_arrays(self, X: Any, y: Any, sample_weight: Any) -> Source:
        self._check_grows()
        X, codes, weight, table = checked_labels(
            self, X, y, sample_weight, None, self.missing_rows, reset=False
        )
        there = ~np.isnan(codes)
        labels = table[np.where(there, codes, 0).astype(int)] if len(table) else codes
        if not there.all():
            labels = np.where(there, labels, "" if labels.dtype.kind == "U" else np.nan)
        choices: Any = {"missing_rows": self.missing_rows, "missing_chunks": self.missing_chunks}
        return open_source(X, labels, weight, y_labels=True, **choices)

    def _groups_of(
        self,
        reading: Reading,
        row: AugmentedRow,
        plan: Plan,
        *,
        grouped: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Moments], int]:
        known, bare = self._labels_of(row), class_row(row, ())
        data, folds = ClassData(reading, self.columns_), self._n_folds(1)
        parts, seen = self._class_moments(data, bare, plan, known, folds)
        new = {label for part in parts.values() for label in part.labels} - set(known)
        self._admit(new, known)
        labels = sorted_labels([*known, *new])
        return {fold: part.over(labels).moments for fold, part in parts.items()}, seen

    def _class_moments(
        self,
        data: ClassData,
        row: AugmentedRow,
        plan: Plan,
        labels: tuple[Any, ...],
        folds: int,
        *,
        apart: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, ClassMoments], int]:
        """Class moments of each fold (or of all rows, under None), under the labels given."""
        given = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        weights = {data.written(label): float(w) for label, w in given.items()}
        groups, seen = data.reading.classes(
            self.features_,
            row,
            plan,
            labels=tuple(label for label in labels if weights.get(label, 1.0) > 0),
            sample_rows=self.sample_rows,
            class_weight=weights,
            folds=folds,
            apart=apart,
            checkpoint=checkpoint,
        )
        self.class_weight_ = dict(given)
        if apart:
            groups = self._balanced(groups, data)
        named = {key: data.named(part) for key, part in groups.items()}
        every = sorted_labels(label for part in named.values() for label in part.labels)
        found: dict[Any, ClassMoments] = {}
        for (fold, _), part in sorted(named.items(), key=lambda item: str(item[0])):
            whole = part.over(every)
            found[fold] = found[fold] + whole if fold in found else whole
        return found, seen

    def _balanced(
        self, groups: Mapping[tuple[Any, Any], ClassMoments], data: ClassData
    ) -> dict[tuple[Any, Any], ClassMoments]:
        """Sums of every label scaled so that all classes weigh the same."""
        totals: dict[Any, float] = {}
        for (_, label), part in groups.items():
            totals[label] = totals.get(label, 0.0) + part.moments.weight
        mean = sum(totals.values()) / max(len(totals), 1)
        factors = {label: mean / weight for label, weight in totals.items()}
        self.class_weight_ = {data.label(label): factor for label, factor in factors.items()}
        return {key: part.scale(factors[key[1]]) for key, part in groups.items()}

    def _admit(self, new: set[Any], known: tuple[Any, ...]) -> None:
        """A label that was not met before: an error where others were announced or stored."""
        if not new:
            return
        label = sorted_labels(new)[0]
        if self._expected is not None:
            raise ValueError(
                f"Label {label!r} is not among the classes that were announced or stored with this "
                f"model ({', '.join(map(repr, known))}). Fit again and announce it (classes=…), "
                "or leave classes= out: in memory, a new label is then a new class."
            )
        warnings.warn(
            f"Label {label!r} is new in this batch ({len(new)} new in all): it is a class from "
            "now on, and rows before it count as not of it.",
            NumericalWarning,
            stacklevel=5,
        )

    def _labels_of(self, row: AugmentedRow) -> tuple[Any, ...]:
        """The labels that are the targets of a row."""
        classes = getattr(self, "classes_", np.array([], str))
        known, kind = {str(label): label for label in classes.tolist()}, classes.dtype.kind
        return tuple(known[name] if name in known else label_of(name, kind) for name in row.targets)

    def _merged(self, groups: Mapping[Any, Moments]) -> dict[Any, Moments]:
        mine, theirs = (
            {fold: ClassMoments(self._labels_of(m.row), m) for fold, m in each.items()}
            for each in (self._grouped(), groups)
        )
        every = [*mine.values(), *theirs.values()]
        labels = sorted_labels(label for part in every for label in part.labels)
        found = {fold: part.over(labels) for fold, part in mine.items()}
        for fold, part in theirs.items():
            found[fold] = found[fold] + part if fold in found else part.over(labels)
        return {fold: part.over(labels).moments for fold, part in found.items()}

    def _adopt(self, groups: Mapping[Any, Moments]) -> None:
        self._check_grows()
        self.class_weight_ = dict(self.class_weight) if self.class_weight else {}  # type: ignore[arg-type]
        if not any(moments.n for moments in groups.values()):
            super()._adopt(groups)  # which says so
        folds = {fold: ClassMoments(self._labels_of(m.row), m) for fold, m in groups.items()}
        whole = joined(folds.values())
        self._hold(whole, folds)
        with few_features_blas(self.features_.n_components):
            self._solve_classes(whole, folds)

    def _hold(self, whole: ClassMoments, folds: Mapping[Any, ClassMoments]) -> None:
        """Rows, classes and moments; refuses a single class."""
        if len(whole.labels) < 2:
            raise ValueError(
                f"The data hold 1 class ({whole.labels[0]!r}), but a classifier tells two or more "
                "apart. Give rows of another class."
            )
        self.moments_ = whole.moments
        self.classes_ = np.asarray(whole.labels)
        self.n_rows_ = whole.moments.n
        parts = {fold: part.moments for fold, part in folds.items()}
        self._groups = parts if len(parts) > 1 else None


def label_of(name: str, kind: str) -> Any:
    """A label of a row's target, in the kind of those that are known."""
    if kind == "U":
        return name
    if name in ("True", "False"):
        return name == "True"
    return int(name) if name.lstrip("-").isdigit() else float(name)
