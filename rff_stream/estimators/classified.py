"""What a fitted classifier says of rows: labels, probabilities, log-odds, scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64
from rff_stream.estimators.decoding import Decoder
from rff_stream.estimators.inputs import in_memory
from rff_stream.estimators.streaming import StreamedEstimator
from rff_stream.predictor import ClassPredictor, LinearPredictor, ProbabilityPredictor, RowFunction
from rff_stream.statistics.class_scores import ClassScores, ClassScoreStatistic

__all__ = ["StreamedClassifier"]


class StreamedClassifier(ClassifierMixin, StreamedEstimator):  # type: ignore[misc]
    """Log-odds of classes, linear in the features, for rows of any container.

    A subclass fits ``classes_``, ``coef_`` and ``intercept_``.
    """

    classes_: Array
    coef_: Float64
    intercept_: Any

    def predict(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """The most probable label of every row, in the container of X: lazy for lazy.

        Returns
        -------
        (n,) array or DataArray; a Series where ``set_output`` asks for it
            In the dtype of the labels; NaN ("" for strings) where an input is missing, for
            which numbers are float64 in lazy containers.
        """
        check_is_fitted(self)
        numbers = self._of_rows(X, ClassPredictor(self._linear()), (self._name,), storage_options)
        return Decoder(self.classes_).of(numbers)

    def predict_proba(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Probabilities (n, C) of the classes, in the order of ``classes_``.

        A labelled X gives a Dataset of one variable a class: "probability[y=spam]".
        """
        check_is_fitted(self)
        return self._of_rows(
            X, ProbabilityPredictor(self._linear()), self._names("probability"), storage_options
        )

    def predict_log_proba(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Natural logarithm of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X, storage_options=storage_options))

    def decision_function(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Log-odds: (n,) of the second of two classes, else (n, C) up to a constant a row."""
        check_is_fitted(self)
        linear = self._linear()
        names = (self._name,) if linear.width == 1 else self._names("score")
        return self._of_rows(X, linear, names, storage_options)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **choices: Any) -> float:
        """Accuracy; lazy data in one streamed pass.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            y may be left out where the data hold it under its name.
        **choices
            ``dim``, ``where`` and ``storage_options``, as in fit.
        """
        check_is_fitted(self)
        if in_memory(X) and y is not None and not isinstance(y, str):
            return float(super().score(X, y, sample_weight))
        found: ClassScores = self.scores(X, y, sample_weight, **choices)
        return found.accuracy()

    def scores(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        by: Any = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Sums of one streamed pass: accuracy, log-loss, Brier score, AUROC, calibration.

        Parameters
        ----------
        X, y, sample_weight, dim, where, storage_options : as in fit
            y may be left out where the data hold it under its name.
        by : name or array-like, optional
            A group for each row.

        Returns
        -------
        ClassScores, or dict of group -> ClassScores if ``by`` is given.
        """
        check_is_fitted(self)
        if in_memory(X) and getattr(getattr(y, "dtype", None), "kind", "") == "O":
            y = np.array(list(y))  # numbers that came as objects are numbers
        source = self._source(
            X,
            y=self._name if y is None else y,
            weight=sample_weight,
            dim=dim,
            where=where,
            by=by,
            y_labels=True,
            storage_options=storage_options,
        )
        statistic = ClassScoreStatistic(
            ProbabilityPredictor(self._linear()), tuple(self.classes_.tolist())
        )
        return self._scored(source, statistic, by)

    def _of_rows(
        self,
        X: Any,
        function: RowFunction,
        names: tuple[str, ...],
        storage_options: Mapping[str, Any] | None,
    ) -> Any:
        return self._values(
            X,
            function,
            names,
            ("",) * len(names),
            flat=function.width == 1,
            storage_options=storage_options,
        )

    def _linear(self) -> LinearPredictor:
        """x ↦ log-odds."""
        coef = np.asarray(self.coef_).reshape(self.features_.n_components, -1)
        return LinearPredictor(self.features_, coef, np.atleast_1d(self.intercept_))

    @property
    def _name(self) -> str:
        return self.columns_.targets[0]

    def _names(self, what: str) -> tuple[str, ...]:
        return tuple(f"{what}[{self._name}={label}]" for label in self.classes_)
