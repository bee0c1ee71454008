"""Kernel classification: least squares from one read, or a loss in a few more passes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array
from rff_stream.contracts import RowFunction
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.class_recipe import ClassAnswer, ClassRecipe
from rff_stream.families.kernel_request import LengthScale
from rff_stream.families.parameters import FeatureChoice, check_parameters
from rff_stream.kernels import Kernel
from rff_stream.model.fit import fit as fit_rows
from rff_stream.model.gradients import importance
from rff_stream.model.predict import score_rows, values_of_rows
from rff_stream.model.update import partial_fit
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.predictors import ClassPredictor, ProbabilityPredictor
from rff_stream.sources import Selection
from rff_stream.statistics.scores import ClassScores, ClassScoreStatistic


def _takes_batches(estimator: Any) -> bool:
    """Whether moments alone are the model: then batches add. Else the reason is the cause."""
    alone = {
        "loss": estimator.loss == "squared",
        "class_weight": estimator.class_weight != "balanced",
        "alpha": estimator.alpha != "cv",
    }
    for name, takes in alone.items():
        if not takes:
            raise AttributeError(
                f"{name}={getattr(estimator, name)!r} needs all rows again, so no batch can be "
                "added. Fit all rows, or use loss='squared', a class_weight of numbers or None, "
                "and an alpha that is not 'cv'."
            )
    return True


@dataclass(eq=False, repr=False)
class KernelClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Kernel classifier on random features: least squares in one read, or a loss in a few passes.

    Minimises Σ w ℓ(f(x), y) + (α/2) βᵀ diag(1/s) β with f(x) = μ + z(x)β, one score for two
    classes and one a class for more. The classes are found during the read.

    Parameters
    ----------
    loss : {"squared", "logistic", "squared_hinge", "hinge"}, default="squared"
        "squared" is least squares on one-hot classes from the moments of one read, its
        scores calibrated (Platt) on the row sample. "logistic" (multinomial for several
        classes) often has half a percentage point more accuracy and reads the rows once for each
        step; its coefficients are those of ``sklearn.linear_model.LogisticRegression(C=1/alpha)``
        on features times √s. "squared_hinge" is the loss of ``LinearSVC``, one class against the
        others. "hinge" is the support vector machine: the decision of
        ``sklearn.svm.SVC(C=1/alpha)`` on these features, up to calibration; for C classes it
        keeps C matrices of second moments.
    kernel, length_scale, n_components, features
        As in :class:`~rff_stream.KernelRidge`, with one-hot classes: "auto" compares kernels,
        length-scales, a metric and sizes of cells by the calibrated probabilities of left-out rows
        of the pilot. With ``n_components``, ``alpha="cv"``, a loss other than "squared" or a first
        ``partial_fit`` it is one map of the whole space: with ``n_components``, or for other losses
        unless held-out rows are predicted clearly better with what was found, of the median
        length-scale. "grid" is for numbers only.
    gamma : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    alpha : float, "sample" or "cv", default="sample"
        "sample" minimises the leave-one-out Brier score on the row sample; for the other
        losses, the held-out loss on pilot rows. For "squared_hinge" and "hinge" that is the
        log-loss of calibrated scores (their own loss if a class has fewer than 20 rows); if there
        are fewer than 2,000 rows, or 100 of a class, the largest alpha within one standard error
        of the best is used. "cv" (squared loss only) minimises the Brier score on held-out runs of
        rows, 16 runs per fold: use it if neighbouring rows are correlated.
    class_weight : mapping of label to float, "balanced" or None
        Factors of row weights. "balanced" is Σw/(C Σw of the class). It needs no further read,
        but sums for every class: C times the memory. A factor is no number of rows, as a weight is:
        probabilities are smoothed by the rows that there are.
    cv : int, default=5
        Folds of ``alpha="cv"``, as in :class:`KernelRidge`.
    max_passes : int, default=100
        The largest number of reads after the first, for a loss other than squared.
    tol : float, default=1e-2
        Passes stop when the next step would reduce the mean loss by about tol²/2 of that of the
        best constant. 1e-7 gives coefficients to five digits, which rarely predict better.
    warm_start : bool, default=False
        Continue from the coefficients and the map of the last fit: use it after ``max_passes``
        passes, or after rows were added.
    laplace : "sample", float or None, default=None
        With loss="logistic": average probabilities over the posterior of the coefficients
        (Laplace's approximation), so that they are less extreme where there are few rows. A
        number scales its standard deviations: 1 is the posterior, which is too wide if classes
        hardly overlap. "sample" uses the scale with the smallest held-out loss on pilot rows.
        This needs one more read and a matrix of (R + 1)·C columns, at most 16,384.
    metric : {"auto", "full"}, (d, k) array or None, default="auto"
        As in :class:`~rff_stream.KernelRidge`, learnt from the slopes of scores in cells.
    search_seconds : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    missing_rows, missing_chunks, dtype, sums, sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    importance_ : dict of input to float
        The share of each input in the squared slope of the fitted function over its row sample,
        computed when it is asked for; see :func:`rff_stream.inspect.gradient_outer_product`. Of a
        column of levels it is the mean variance of f where they are drawn again.
    classes_ : (C,) array
        Labels, sorted.
    coef_ : (R,) or (R, C) array
        Coefficients of the log-odds, on raw feature columns.
    intercept_ : float or (C,) array
    alpha_, df_ : float
        The penalty, and the effective degrees of freedom (NaN if the loss is not squared).
    choice_ : SearchRecord
        What was compared, with errors of probabilities at left-out rows relative to those of the
        shares of the classes, if the data chose the map.
    selection_ : Selection
        Scores of every α, where it was chosen for one map.
    class_weight_ : dict of label to float
    laplace_ : float
        The scale of the posterior, where probabilities are averaged over it.
    support_share_ : float or (C,) array
        For "hinge": the share of sampled rows that are support vectors (on the margin or inside).
    margins_ : (2,) or (2, C) array
        For "hinge": the log-odds of its margins −1 and 1.
    n_passes_ : int
        Number of reads of all rows. If the features need at most 512 MiB, the rows are read
        twice and the features are kept in memory; then this is the number of passes over them.
    converged_ : bool
    objective_ : tuple of float
        Mean penalised loss after each pass; empty for squared.
    features_, moments_, length_scale_, columns_, n_rows_, n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`; the targets of the moments are one-hot.

    References
    ----------
    Platt 1999. Böhning 1992. Rahimi & Recht 2007. Beirami et al. 2017 (leaving out by one
    Newton step). Williams & Barber 1998 (Laplace posterior of several classes).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = np.where((X**2).sum(axis=1) < 1, "inside", "outside")
    >>> model = rs.KernelClassifier(n_components=128, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]])
    array(['inside', 'outside'], dtype='<U7')
    """

    warns_extrapolation = True

    loss: Literal["squared", "logistic", "squared_hinge", "hinge"] = "squared"
    kernel: Kernel | str | Sequence[Kernel] = "auto"
    length_scale: LengthScale = "auto"
    n_components: int | None = None
    alpha: float | str = "sample"
    _: KW_ONLY
    class_weight: Mapping[Any, float] | str | None = None
    cv: int = 5
    max_passes: int = 100
    tol: float = 1e-2
    warm_start: bool = False
    laplace: float | str | None = None
    gamma: float | None = None
    metric: Any = "auto"
    search_seconds: float | None = None
    sums: SumsDtype = "auto"
    features: FeatureChoice = "auto"

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
        """Fit from one read of the data, or from one read per step for losses that need several.

        Parameters
        ----------
        X : array, DataFrame, DataArray, Dataset, Dask collection, Zarr path, URL or group
        y : array-like, or a name in X
            Labels: numbers or strings.
        sample_weight, inputs, dim, where, storage_options
            As in :meth:`rff_stream.KernelRidge.fit`. A row of weight 3 counts as three.
        classes : array-like, optional
            Labels to expect; the data need not contain all of them yet. Other labels are then an
            error. A model in a store cannot get new classes after it was saved.
        checkpoint : path or URL, optional
            As in :meth:`rff_stream.KernelRidge.fit`; it keeps every pass of a loss with several.

        Returns
        -------
        self

        Raises
        ------
        DataError, ValueError
            The message names store, array, chunk, rows or parameter, or the only class. The
            model stays as it was.
        PlanError
            If the pass cannot fit in memory; nothing was read.
        """
        data = Selection(X, y, sample_weight, inputs, dim, where, None, storage_options)
        with self._lock():
            recipe = self._recipe(classes)
            before = self._fitted if self.warm_start else None
            return self._set_fit(fit_rows(recipe, data, checkpoint, before))

    @available_if(_takes_batches)  # type: ignore[untyped-decorator]
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
        """Add a batch: the model then equals a fit of all rows so far, with the same map.

        The first batch determines map, scales and length-scale. Where the data decide on the map
        (``features="auto"``), it is chosen again each time that the rows are twice as many, for
        batches in memory and as long as all rows so far take less than 64 MiB. Only for
        ``loss="squared"`` without "balanced" weights and "cv", because then moments are enough.

        Parameters
        ----------
        X, y, sample_weight, inputs, dim, where, storage_options : as in fit
        classes : array-like, optional
            In the first call: labels to expect; other labels are then an error. Without it, a
            new label becomes a new class, and a warning names it.
        batch : str, optional
            Name of the batch. A batch whose name was counted is not counted again.

        Returns
        -------
        self

        Raises
        ------
        DataError, ValueError
            If a column of the first batch is absent, a value is missing or infinite, or a label is
            not among ``classes``. The model stays as it was.
        ModelError
            For another loss than the squared one, "balanced" weights or "cv", which need all rows;
            or if a batch of this name has other content.
        """
        data = Selection(X, y, sample_weight, inputs, dim, where, None, storage_options)
        with self._lock():
            same_map = self._check_map()
            found = partial_fit(self._recipe(classes), self._fitted, data, batch)
            return self._set_fit(found, same_map=same_map)

    def predict(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """The most probable label of every row, in the container of X: lazy for lazy.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n,) array or DataArray; a Series where ``set_output`` asks for it
            In the dtype of the labels; with ``missing_rows="drop"`` NaN ("" for strings) where an
            input is missing. For this, labels that are numbers are float64 then, if lazy.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        check_is_fitted(self)
        numbers = values_of_rows(
            self, X, ClassPredictor(log_odds_of(self)), self.columns_.targets[:1], flat=True,
            storage_options=storage_options,
        )  # fmt: skip
        return Decoder(self.classes_, self.missing_rows == "drop").of(numbers)

    importance_ = functools.cached_property(importance)

    def predict_proba(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Probabilities (n, C) of the classes, in the order of ``classes_``.

        A labelled X gives a Dataset of one variable a class: "probability[y=spam]".

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n, C) array, DataArray or Dataset
            Between 0 and 1, with sum 1; with ``missing_rows="drop"`` NaN where an input is missing.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        check_is_fitted(self)
        function, names = ProbabilityPredictor(log_odds_of(self)), names_of(self, "probability")
        return values_of_rows(self, X, function, names, flat=False, storage_options=storage_options)

    def predict_log_proba(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Natural logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n, C) array, DataArray or Dataset
            −∞ where a probability rounds to 0.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        return np.log(self.predict_proba(X, storage_options=storage_options))

    def decision_function(self, X: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
        """Log-odds: (n,) of the second of two classes, else (n, C) up to a constant per row.

        Parameters
        ----------
        X, storage_options : as in fit
            Inputs are matched by name if they have names, else by position.

        Returns
        -------
        (n,) or (n, C) array, DataArray or Dataset
            With ``missing_rows="drop"`` NaN where an input is missing.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        check_is_fitted(self)
        linear = log_odds_of(self)
        one = linear.width == 1
        names = self.columns_.targets[:1] if one else names_of(self, "score")
        return values_of_rows(self, X, linear, names, flat=one, storage_options=storage_options)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> float:
        """Accuracy; lazy data in one streamed pass.

        Parameters
        ----------
        X, y, sample_weight, dim, where, storage_options : as in fit
            y may be left out where the data hold it under its name.

        Returns
        -------
        float
            Share of the weight of the rows whose label is predicted.

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If a column of the fit is absent or no number, or a value is missing or infinite.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        check_is_fitted(self)
        found: ClassScores = self.scores(
            X, y, sample_weight, dim=dim, where=where, storage_options=storage_options
        )
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

        Raises
        ------
        NotFittedError
            Before a fit.
        DataError, ValueError
            If a column of the fit is absent or no number, or a value is missing or infinite.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        check_is_fitted(self)
        data = Selection(X, y, sample_weight, None, dim, where, by, storage_options)
        labels = tuple(self.classes_.tolist())
        statistic = ClassScoreStatistic(ProbabilityPredictor(log_odds_of(self)), labels)
        found = score_rows(self, data, statistic, "labels")
        for each in found.values() if isinstance(found, dict) else (found,):
            check_kind(each.unseen, labels)
        return found

    def _recipe(self, classes: Any = None) -> ClassRecipe:
        check_parameters(self, ClassRecipe.rules)  # of which some are asked for here
        declared_classes = None if classes is None else tuple(np.unique(classes).tolist())
        guides = self.sums == "auto" and self.loss != "squared"  # of the steps, and no answer
        return ClassRecipe(
            self,
            declared_classes,
            self.alpha,
            "float32" if guides else self.sums,
            chooses=self.loss == "squared" and self.alpha != "cv",
            searches=True,
        )


def check_kind(unseen: Mapping[Any, float], classes: tuple[Any, ...]) -> None:
    """Refuse labels of text for classes of numbers, or of numbers for text: none would be right.

    Raises ValueError: naming one of them.
    """
    text = isinstance(classes[0], str)
    other = next((label for label in unseen if isinstance(label, str) is not text), None)
    if other is not None:
        raise ValueError(
            f"A label is {other!r}, but the classes of the model are {classes[0]!r} and others. "
            f"Text and numbers are different labels, so none of these rows could be right. Convert "
            f"the labels to the kind that they had in the fit."
        )


def log_odds_of(model: KernelClassifier) -> RowFunction:
    """x ↦ log-odds."""
    answer: ClassAnswer = model._require_fit().answer
    return answer.log_odds.predictor()


def names_of(model: KernelClassifier, what: str) -> tuple[str, ...]:
    """ "probability[kind=warm]": a name for each class."""
    return tuple(f"{what}[{model.columns_.targets[0]}={label}]" for label in model.classes_)


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """Labels of class numbers; NaN where a number is NaN, "" for labels that are strings."""

    classes: Array  # (C,): sorted
    may_miss: bool = True  # whether a row can be without a label

    def __call__(self, numbers: Array) -> Array:
        """Labels in the dtype of the classes where every row has one."""
        missing = np.isnan(numbers)
        found: Array = self.classes[np.where(missing, 0, numbers).astype(np.int64)]
        if missing.any():
            found = found.astype(self.lazy_dtype)
            found[missing] = self._nothing
        return found

    def of(self, numbers: Any) -> Any:
        """Labels in the container of the numbers: lazy for lazy."""
        kind = type(numbers).__module__.partition(".")[0]
        if kind == "xarray":
            return numbers.copy(data=self.of(numbers.data))
        if kind == "pandas":
            return type(numbers)(self(numbers.to_numpy()), index=numbers.index, name=numbers.name)
        if kind == "polars":
            return type(numbers)(numbers.name, self(numbers.to_numpy()))
        if hasattr(numbers, "map_blocks"):
            return numbers.map_blocks(self._even, dtype=self.lazy_dtype)
        if hasattr(numbers, "map_partitions"):
            return numbers.map_partitions(
                self._even_series, meta=(numbers.name, self.lazy_dtype), enforce_metadata=False
            )
        return self(numbers)

    @property
    def lazy_dtype(self) -> Any:
        """A dtype that every label fits, and a row without one if there can be one."""
        numbers = self.classes.dtype.kind in "iufb"
        return np.dtype(float) if numbers and self.may_miss else self.classes.dtype

    @property
    def _nothing(self) -> Any:
        return {"f": np.nan, "O": None}.get(self.lazy_dtype.kind, "")

    def _even(self, numbers: Array) -> Array:
        """Labels in one dtype, whatever a block holds."""
        return self(numbers).astype(self.lazy_dtype)

    def _even_series(self, numbers: Any) -> Any:
        values = self._even(numbers.to_numpy())
        return type(numbers)(values, index=numbers.index, name=numbers.name)
