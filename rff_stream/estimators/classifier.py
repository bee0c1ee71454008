"""Kernel classification: least squares from one read, or a loss in a few more passes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rff_stream._array import Array
from rff_stream.answers.choice import Selection
from rff_stream.answers.classify import (
    Linear,
    Sampled,
    almost_left_out,
    calibrated,
    sampled,
    squared,
    squared_by_folds,
)
from rff_stream.answers.descent import Descent
from rff_stream.answers.losses import LOSSES, Loss, SquaredHinge, loss_for
from rff_stream.answers.penalised import Penalised, penalised
from rff_stream.estimators.classfit import ClassData, FittingClassifier
from rff_stream.estimators.mapping import FeatureChoice, LengthScale
from rff_stream.execution.checkpoints import remember_passes
from rff_stream.kernels import Kernel
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import Sums
from rff_stream.moments.classes import ClassMoments
from rff_stream.pilot import Pilot
from rff_stream.statistics.loss import LossStatistic, LossSums, SumOfRows, descents
from rff_stream.statistics.loss_penalty import choose_alpha
from rff_stream.store import Checkpoint

__all__ = ["KernelClassifier"]

logger = logging.getLogger("rff_stream")

LOSS_NAMES = ("squared", *LOSSES)


class KernelClassifier(FittingClassifier):
    """Kernel classifier on random features: least squares in one read, or a loss in a few passes.

    Minimises Σ w ℓ(f(x), y) + (α/2) βᵀ diag(1/s) β with f(x) = μ + z(x)β, one score for two
    classes and one a class for more. Classes are found in the read, wherever they appear.

    Parameters
    ----------
    loss : {"squared", "logistic", "squared_hinge"}, default="squared"
        "squared" is least squares on one-hot classes from the moments of one read, its
        scores calibrated (Platt) on the row sample. "logistic" (multinomial for several
        classes) is often half a point better and reads the rows once for each step; its
        coefficients are those of ``sklearn.linear_model.LogisticRegression(C=1/alpha)`` on
        features times √s. "squared_hinge" is the loss of ``LinearSVC``, one against the
        others.
    kernel, length_scale, n_components, features
        As in :class:`~rff_stream.KernelRidge`; "evidence" and "ard" look at one-hot classes.
    alpha : float, "sample" or "cv", default="sample"
        "sample" is least leave-one-out Brier score on the row sample, or for the other losses
        least held-out loss on pilot rows. "cv" (squared only) is least Brier score on
        held-out runs of rows: for rows correlated along their order, not for rows sorted by
        class.
    class_weight : mapping of label to float, "balanced" or None
        Factors of row weights. "balanced" is Σw/(C Σw of the class), from the same read, with
        sums for every class: C times the memory.
    cv : int, default=5
        Folds of ``alpha="cv"``.
    max_passes : int, default=100
        Most reads for a loss other than squared, after the first.
    tol : float, default=1e-2
        Passes stop where the next step would gain about tol²/2 of the mean loss. 1e-7 for
        coefficients to five digits, which rarely predict better.
    warm_start : bool, default=False
        Go on from the coefficients and the map of the last fit: after ``max_passes``, or when
        rows were added.
    missing_rows, missing_chunks, dtype, sums, sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    classes_ : (C,) array
        Labels, sorted.
    coef_ : (R,) or (R, C) array
        Of log-odds, on raw feature columns.
    intercept_ : float or (C,) array
    alpha_, df_ : float
        The penalty; effective degrees of freedom (NaN where the loss is not squared).
    selection_ : Selection
        Scores of every α, where it was chosen.
    class_weight_ : dict of label to float
    n_passes_ : int
        Reads of all rows.
    converged_ : bool
    objective_ : tuple of float
        Mean penalised loss after each pass; empty for squared.
    features_, moments_, length_scale_, columns_, n_rows_, n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`; the targets of the moments are one-hot.

    References
    ----------
    Platt 1999. Böhning 1992. Rahimi & Recht 2007. Beirami et al. 2017 (leaving out by one
    Newton step).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = np.where((X**2).sum(axis=1) < 1, "inside", "outside")
    >>> model = rs.KernelClassifier(n_components=128, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 0.0], [2.0, 2.0]])
    array(['inside', 'outside'], dtype='<U7')
    """

    def __init__(
        self,
        loss: Literal["squared", "logistic", "squared_hinge"] = "squared",
        kernel: Kernel | str | Sequence[Kernel] = "gaussian",
        length_scale: LengthScale = "median",
        n_components: int = 2048,
        alpha: float | str = "sample",
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        features: FeatureChoice = "auto",
        cv: int = 5,
        max_passes: int = 100,
        tol: float = 1e-2,
        warm_start: bool = False,
        missing_rows: Literal["error", "drop"] = "error",
        missing_chunks: Literal["auto", "error", "fill"] = "auto",
        dtype: Literal["float32", "float64"] = "float32",
        sums: Sums = "auto",
        sample_rows: int = 2000,
        memory: int | None = None,
        progress: bool = True,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.alpha = alpha
        self.class_weight = class_weight
        self.features = features
        self.cv = cv
        self.max_passes = max_passes
        self.tol = tol
        self.warm_start = warm_start
        self.missing_rows = missing_rows
        self.missing_chunks = missing_chunks
        self.dtype = dtype
        self.sums = sums
        self.sample_rows = sample_rows
        self.memory = memory
        self.progress = progress
        self.random_state = random_state

    def _check(self) -> None:
        if self.loss not in LOSS_NAMES:
            known = ", ".join(map(repr, LOSS_NAMES))
            raise ValueError(f"loss={self.loss!r} but it is one of {known}.")
        choices = ("sample", "cv") if self.loss == "squared" else ("sample",)
        if isinstance(self.alpha, str) and self.alpha not in choices:
            raise ValueError(
                f"alpha={self.alpha!r} but for loss={self.loss!r} it is a number > 0 or "
                f"{' or '.join(map(repr, choices))}."
            )
        if not isinstance(self.alpha, str) and not 0 < self.alpha < np.inf:
            raise ValueError(f"alpha={self.alpha!r} but a penalty is finite and > 0.")
        if self.alpha == "cv" and self.cv < 2:
            raise ValueError(f"cv={self.cv!r} but cross-validation needs at least 2 folds.")
        if self.loss != "logistic" and not self.sample_rows:
            raise ValueError(
                f"sample_rows=0 but loss={self.loss!r} is calibrated on the row sample. Use "
                "sample_rows=2000, or loss='logistic'."
            )
        if not (self.max_passes >= 1 and 0 < self.tol < np.inf):
            raise ValueError(
                f"max_passes={self.max_passes!r} and tol={self.tol!r} but at least one pass is "
                "made and tol is a number > 0. Use max_passes=100, tol=1e-2."
            )
        self._check_class_weight()

    def _check_class_weight(self) -> None:
        given = self.class_weight
        if given is None or (isinstance(given, str) and given == "balanced"):
            return
        if not isinstance(given, Mapping):
            raise ValueError(
                f"class_weight={given!r} but it is a mapping of label to weight, 'balanced' or "
                "None."
            )
        for label, weight in given.items():
            if not 0 <= float(weight) < np.inf:
                raise ValueError(
                    f"class_weight has {weight!r} for {label!r} but weights are finite and ≥ 0."
                )

    def _answer(
        self,
        data: ClassData,
        pilot: Pilot,
        row: AugmentedRow,
        classes: ClassMoments,
        folds: Mapping[Any, ClassMoments],
        kept: Checkpoint | None,
    ) -> None:
        if self.loss == "squared":
            self._solve_classes(classes, folds)
        else:
            self._descend(data, pilot, row, classes, kept)

    def _solve_classes(self, classes: ClassMoments, folds: Mapping[Any, ClassMoments]) -> None:
        self.n_passes_, self.converged_ = 1, True
        self.objective_: tuple[float, ...] = ()
        if self.alpha == "cv":
            samples = {fold: self._sampled(part) for fold, part in folds.items()}
            self._set(squared_by_folds(classes, folds, samples))
            return
        alpha = None if isinstance(self.alpha, str) else float(self.alpha)
        self._set(squared(classes, self._sampled(classes), alpha))

    def _sampled(self, classes: ClassMoments) -> Sampled:
        return sampled(classes, self.features_, self.class_weight_)

    def _descend(
        self,
        data: ClassData,
        pilot: Pilot,
        row: AugmentedRow,
        classes: ClassMoments,
        kept: Checkpoint | None,
    ) -> None:
        """Passes over the rows until the loss is least."""
        loss = loss_for(self.loss, len(classes.labels))
        written = tuple(data.written(label) for label in classes.labels)
        weights = {data.written(label): w for label, w in self.class_weight_.items()}
        alpha, selection = self._penalty(pilot, row, loss, classes)
        problem = penalised(classes, loss, alpha)
        nothing = np.empty((self.features_.n_components, 0))
        newton = row if loss.n_classes == 2 else None
        sums: Any = self.plan_.sums
        statistic = LossStatistic(
            self.features_, loss, written, nothing, np.empty(0), (), weights, newton, sums
        )
        state: Descent | None = None
        for state in descents(
            self._passes(data, kept),
            statistic,
            problem,
            self._start(classes),
            tol=self.tol,
            max_passes=self.max_passes,
        ):
            self._tell(state, problem)
        assert state is not None
        coef, intercept = problem.linear(state.point.theta)
        self._last = (classes.labels, coef, intercept)
        linear = Linear(coef, intercept, alpha, np.nan, selection)
        if isinstance(loss, SquaredHinge):
            sample = self._sampled(classes)
            held_out = almost_left_out(problem, loss, state.point, sample)
            linear = calibrated(linear, held_out, sample)
        self._set(linear)
        self._finish(state, problem)

    def _passes(self, data: ClassData, kept: Checkpoint | None) -> SumOfRows:
        """A statistic -> its sum over all rows, or what an earlier run kept of it."""

        def read(asked: LossStatistic) -> LossSums:
            found: LossSums = data.reading.sums(asked, self.plan_.layout, "fitting").value
            return found

        return read if kept is None else remember_passes(read, kept)

    def _penalty(
        self, pilot: Pilot, row: AugmentedRow, loss: Loss, classes: ClassMoments
    ) -> tuple[float, Selection | None]:
        """The penalty given, or the best on pilot rows."""
        if not isinstance(self.alpha, str):
            return float(self.alpha), None
        weights = {i: self.class_weight_.get(c, 1.0) for i, c in enumerate(classes.labels)}
        found = choose_alpha(self.features_, row, pilot, loss, weights)
        return found.best.alpha, found

    def _start(self, classes: ClassMoments) -> tuple[Array, Array] | None:
        """Coefficients of the fit before, where it goes on and knew these classes."""
        last: tuple[Any, Any, Any] = getattr(self, "_last", (None, None, None))
        return last[1:] if self.warm_start and last[0] == classes.labels else None

    def _tell(self, state: Descent, problem: Penalised) -> None:
        if self.progress:
            weight = problem.system.weight
            logger.info(
                "pass %d: mean loss %.6f, decrement %.2g (stops at %.2g)",
                state.passes, state.point.value / weight, state.decrement / weight**0.5, self.tol,
            )  # fmt: skip

    def _finish(self, state: Descent, problem: Penalised) -> None:
        self.n_passes_, self.converged_ = 1 + state.passes, state.converged
        self.objective_ = tuple(value / problem.system.weight for value in state.history)
        if not state.converged:
            share = state.decrement / problem.system.weight**0.5
            warnings.warn(
                f"After max_passes={self.max_passes} the decrement is {share:.2g}, above "
                f"tol={self.tol:.2g}. Go on with warm_start=True and fit again, raise "
                "max_passes, or raise alpha.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _set(self, found: Linear) -> None:
        """The attributes of a linear classifier, without the axis of a single score."""
        one = found.coef.shape[1] == 1
        self.coef_ = found.coef[:, 0] if one else found.coef
        self.intercept_ = float(found.intercept[0]) if one else found.intercept
        self.alpha_, self.df_ = found.alpha, found.df
        if found.selection is not None:
            self.selection_ = found.selection
        elif hasattr(self, "selection_"):
            del self.selection_

    def _arrays(self) -> dict[str, Array]:
        return {
            "coef": np.asarray(self.coef_).reshape(self.features_.n_components, -1),
            "intercept": np.atleast_1d(np.asarray(self.intercept_, np.float64)),
            "alpha": np.array([self.alpha_]),
            "df": np.array([self.df_]),
            "length_scale": np.asarray(self.length_scale_, np.float64),
        }

    def _restore(self, arrays: Mapping[str, Array]) -> None:
        alpha, df = float(arrays["alpha"][0]), float(arrays["df"][0])
        self._set(Linear(arrays["coef"], arrays["intercept"], alpha, df))
        scale = arrays["length_scale"]
        self.length_scale_ = float(scale) if scale.ndim == 0 else scale

    def _facts(self) -> dict[str, Any]:
        weights = [[label, weight] for label, weight in self.class_weight_.items()]
        return {
            "classes": self.classes_.tolist(),
            "class_dtype": self.classes_.dtype.str,
            "class_weight": weights,
            "n_passes": self.n_passes_,
            "converged": self.converged_,
        }

    def _take_facts(self, facts: Mapping[str, Any]) -> None:
        self.classes_ = np.array(facts["classes"], dtype=facts["class_dtype"])
        self._expected = tuple(self.classes_.tolist())
        self.class_weight_ = dict(facts["class_weight"])
        self.n_passes_, self.converged_ = facts["n_passes"], facts["converged"]
        self.objective_ = ()

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        own = str(super().__repr__(N_CHAR_MAX))
        if not hasattr(self, "df_") or np.isnan(self.df_):
            return own
        return f"{own}  # df/R = {self.df_:.0f}/{self.features_.n_components}"
