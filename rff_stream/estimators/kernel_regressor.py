"""Kernel regression by any loss: robust, of quantiles, of counts, with support vectors."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if

from rff_stream._array import Float64
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.answers.penalty_selection import Selection as PenaltySelection
from rff_stream.arguments import Rule, number_or
from rff_stream.contracts import Packed, RowFunction, Slopes
from rff_stream.descents.regression_penalty import (
    choose_regression,
    of_target,
    regression_starts,
    unit_of,
)
from rff_stream.descents.search_targets import FEWEST_SEARCHED, PilotFit
from rff_stream.descents.statistic import LossStatistic, minimisers
from rff_stream.errors import ModelError, NumericalWarning, warn
from rff_stream.estimators import regression
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.class_recipe import passes_of
from rff_stream.estimators.regression import RegressionRecipe, warn_of_residuals
from rff_stream.families import DrawnMap, MapParameters, check_whole_space
from rff_stream.families.kernel_request import LengthScale
from rff_stream.families.linear_answer import LinearAnswer
from rff_stream.families.parameters import RULES, FeatureChoice, seed_of
from rff_stream.kernels import Kernel
from rff_stream.losses.descent import Descent
from rff_stream.losses.penalised import Penalised
from rff_stream.losses.regression import (
    EpsilonInsensitive,
    Quantile,
    RegressionLoss,
    regression_loss,
)
from rff_stream.model.fit import fit as fit_rows
from rff_stream.model.fitted import Fitted
from rff_stream.model.gradients import importance
from rff_stream.model.recipe import PassRequest, PassResult
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.moments.class_moments import class_row
from rff_stream.predictors import AnswerPredictor
from rff_stream.sources import Columns, Selection
from rff_stream.sources.protocol import Rows
from rff_stream.stored_fields import NOT_STORED, pack_fields, stored, unpack_fields
from rff_stream.systems.normal_equations import ridge_system

EVERY_ROW = (
    "A loss other than the squared one needs every row again when rows are added or left out, so "
    "moments are not enough. Fit all rows again, or use KernelRidge."
)
"""The refusal of more or fewer rows, and of an answer from sums alone."""


def _takes_batches(estimator: Any) -> bool:
    """Never; the reason is the cause."""
    raise AttributeError(EVERY_ROW)


@dataclass(eq=False, repr=False)
class KernelRegressor(MultiOutputMixin, RegressorMixin, Estimator):  # type: ignore[misc]
    """Kernel regression with a loss that you choose, in a few reads of data of any size.

    Minimises Σ w ℓ(f(x), y) + (α/2) βᵀ diag(1/s) β with f(x) = μ + z(x)β. The first read gives
    moments and a least-squares start; each further read gives one step of Newton's method.
    Each target has a loss scale, an α and reads of its own: its answer is that of a fit to it
    alone.

    Parameters
    ----------
    loss : str or RegressionLoss, default="huber"
        "huber", "student_t", "epsilon_insensitive", "quantile" (the median), "poisson",
        "negative_binomial", or a value with its parameters such as ``Quantile(0.9)``. For
        counts ``predict`` gives the mean, exp(f).
    kernel, length_scale, n_components, features
        As in :class:`~rff_stream.KernelRidge`, for one map of the whole space, which is also
        the meaning of "auto" here: kernel, length-scales and metric are searched for by squared
        errors of targets whose far values are bounded. With ``n_components``, or where held-out
        rows of the pilot do not clearly say otherwise, the median length-scale.
    gamma : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    alpha : float or "sample", default="sample"
        1/C of ``sklearn.svm.SVR`` on features times √s. "sample" minimises the
        held-out loss on the row sample.
    max_passes : int, default=100
        The largest number of reads after the first, for each target. Smooth losses need 3 to 20,
        losses with corners 20 to 50.
    tol : float, default=1e-2
        Reads stop when the next step would reduce the loss by about tol²/2 of that of a constant.
    metric : {"auto", "full"}, (d, k) array or None, default="auto"
        As in :class:`~rff_stream.KernelRidge`, learnt by the squared loss.
    search_seconds : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    missing_rows, missing_chunks, dtype, sums, sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`; ``sample_rows`` > 0.

    Attributes
    ----------
    importance_ : dict of input to float
        The share of each input in the squared slope of the fitted function over its row sample,
        computed when it is asked for; see :func:`rff_stream.inspect.gradient_outer_product`. Of a
        column of levels it is the mean variance of f where they are drawn again.
    loss_ : RegressionLoss
        The loss with its estimated scale or dispersion; of several targets a tuple.
    coef_, intercept_, alpha_, features_, moments_, length_scale_, columns_, n_rows_, \
n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`.
    selection_ : Selection
        Held-out losses of every α, where it was chosen; of several targets a tuple.
    n_passes_ : int
        Reads of all rows.
    converged_ : bool
    objective_ : tuple of float
        Mean penalised loss after each pass; of several targets a tuple of these.
    support_share_ : float
        For "epsilon_insensitive": the share of sampled rows on or outside of the tube.
    support_vectors_ : (m, d) array
        The sampled rows on or outside the tube.

    Notes
    -----
    To add rows, fit again: every loss except the squared one needs all rows again.

    References
    ----------
    Huber 1964. Koenker & Bassett 1978. Chen & Mangasarian 1996 (corners).

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (600, 1)); y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=600)
    >>> y[::10] += 5  # one row in ten is wrong
    >>> model = rs.KernelRegressor("huber", n_components=64, random_state=0, progress=False)
    >>> error = model.fit(X, y).predict(X) - np.sin(2 * X[:, 0])
    >>> bool(np.sqrt(np.mean(error**2)) < 0.1)
    True
    """

    warns_extrapolation = True

    loss: RegressionLoss | str = "huber"
    kernel: Kernel | str | Sequence[Kernel] = "auto"
    length_scale: LengthScale = "auto"
    n_components: int | None = None
    alpha: float | str = "sample"
    _: KW_ONLY
    max_passes: int = 100
    tol: float = 1e-2
    gamma: float | None = None
    features: FeatureChoice = "auto"
    metric: Any = "auto"
    search_seconds: float | None = None
    sums: SumsDtype = "auto"

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        checkpoint: str | PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fit by several reads of the data.

        Parameters
        ----------
        X, y, sample_weight, inputs, dim, where, checkpoint, storage_options
            As in :meth:`rff_stream.KernelRidge.fit`. A checkpoint keeps every finished read.

        Returns
        -------
        self

        Raises
        ------
        DataError, ValueError
            The message names store, array, chunk, rows or parameter. The model stays as it was.
        PlanError
            If a pass does not fit in memory. Nothing was read.
        """
        data = Selection(X, y, sample_weight, inputs, dim, where, None, storage_options)
        with self._lock():
            return self._set_fit(fit_rows(self._recipe(), data, checkpoint))

    @available_if(_takes_batches)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Not available: all rows are needed again.

        Parameters
        ----------
        X, y : as in fit

        Returns
        -------
        self
            Never.

        Raises
        ------
        ModelError
            Always. Use ``fit``.
        """
        raise ModelError("KernelRegressor needs all rows in every fit. Use fit.")

    predict = regression.predict
    score = regression.score
    residuals = regression.residuals
    importance_ = functools.cached_property(importance)

    def _recipe(self) -> LossRecipe:
        # Sums need no more precision than those of a penalty that is chosen.
        return LossRecipe(self, penalty="sample", sums=self.sums, searches=True)


@dataclass(frozen=True, slots=True, eq=False)
class Exponential:
    """z ↦ exp(μ + zβ)."""

    coef: Float64  # (R, T)
    intercept: Float64  # (T,)

    def __call__(self, Z: Float64) -> Float64:
        return np.asarray(np.exp(Z @ self.coef + self.intercept))


def specs_of(losses: Sequence[RegressionLoss]) -> Any:
    """Plain JSON of the losses: of a single one its own."""
    specs = [loss.spec() for loss in losses]
    return specs[0] if len(specs) == 1 else specs


def losses_of(specs: Any) -> tuple[RegressionLoss, ...]:
    """The losses that gave these."""
    several = [specs] if isinstance(specs, Mapping) else specs
    return tuple(regression_loss(spec) for spec in several)


SPECS = stored("loss", plain=True, write=specs_of, read=losses_of)


@dataclass(frozen=True, slots=True, eq=False)
class LossAnswer:
    """The scores of least loss: a :class:`~rff_stream.families.protocol.RidgeAnswer`."""

    linear: LinearAnswer  # f = μ + zβ
    losses: tuple[RegressionLoss, ...] = field(metadata=SPECS)
    """One for each target; of a store of before a single one for all."""
    n_passes: int = field(metadata=stored(plain=True))
    converged: bool = field(metadata=stored(plain=True))
    objectives: tuple[tuple[float, ...], ...] = field(default=(), metadata=NOT_STORED)
    selections: tuple[PenaltySelection, ...] = field(default=(), metadata=NOT_STORED)
    support: Float64 | None = None  # (m, d): sampled rows on or outside of the tube
    support_share: float = np.nan

    @property
    def target_origin(self) -> Float64:
        """(T,)."""
        return self.linear.target_origin

    def mean(self) -> RowFunction:
        """x ↦ f, or its exponential."""
        linear = self.linear
        if not self.losses[0].log_link:
            return linear.mean()
        answer = Exponential(linear.coef, linear.intercept)
        return AnswerPredictor(linear.features, answer, len(linear.intercept))

    def slopes(self) -> Slopes:
        """Of f, also where the mean is its exponential."""
        return self.linear.slopes()

    def state(self, tests: Sequence[Moments], n_rows: int, fraction: float) -> HeldOutError:
        """The squared error of f on leaves held out."""
        return self.linear.state(tests, n_rows, fraction)

    def attributes(self, flat: bool) -> dict[str, Any]:
        """Public attributes by name."""
        found = self.linear.attributes(flat) | {
            "loss_": _alone(self.losses),
            "n_passes_": self.n_passes,
            "converged_": self.converged,
            "objective_": _alone(self.objectives),
        }
        if self.selections:
            found["selection_"] = _alone(self.selections)
        if self.support is not None:
            found |= {"support_vectors_": self.support, "support_share_": self.support_share}
        return found

    def pack(self) -> Packed:
        """The linear answer, the rows that hold it, the loss and the passes."""
        return Packed(*pack_fields(self))


def _alone(values: tuple[Any, ...]) -> Any:
    """What there is one of; of several targets all."""
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True, slots=True, eq=False)
class LossRecipe(RegressionRecipe):
    """Moments of one read, then a descent of the loss."""

    after_the_pass: ClassVar[frozenset[str]] = frozenset({"alpha", "loss", "max_passes", "tol"})

    rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "alpha": number_or("sample", words="a finite number > 0, or 'sample'"),
    }

    def check(self) -> None:
        RegressionRecipe.check(self)
        params = self.params
        regression_loss(params.loss)
        if not params.sample_rows:
            raise ValueError(
                "sample_rows=0 but scale, penalty and tolerance of a loss come from the row "
                "sample. Use sample_rows=2000."
            )

    def check_columns(self, columns: Columns, parameters: MapParameters) -> None:
        RegressionRecipe.check_columns(self, columns, parameters)
        check_whole_space(parameters.features, type(self.params).__name__)

    def require_mergeable(self) -> None:
        raise ModelError(EVERY_ROW)

    def draw(self, request: PassRequest) -> DrawnMap:
        """The map of the median length-scale, or that of a search if it is clearly better.

        Both are compared on held-out rows of the pilot.
        """
        parameters, columns = request.parameters, request.opened.columns
        plain = replace(self, searches=False).map_parameters(columns)
        if plain.kernels.rule == parameters.kernels.rule:
            return RegressionRecipe.draw(self, request)
        pilot = request.reading.pilot(seed_of(self.params.random_state))
        if len(pilot.x) < FEWEST_SEARCHED:
            return RegressionRecipe.draw(self, replace(request, parameters=plain))
        loss = regression_loss(self.params.loss)
        loss.check_targets(pilot.y)
        with warnings.catch_warnings():  # the search says it
            warnings.simplefilter("ignore", NumericalWarning)
            median = RegressionRecipe.draw(self, replace(request, parameters=plain))

        def fit_of(drawn: DrawnMap) -> PilotFit:
            return PilotFit.of(drawn.features, class_row(drawn.row, ()), pilot, loss)

        before = fit_of(median)
        own = replace(parameters, searched=before.working_pilot())
        found = RegressionRecipe.draw(self, replace(request, parameters=own))
        return found if before.is_clearly_worse_than(fit_of(found)) else median

    def answer(self, fitted: Fitted) -> LossAnswer:
        raise ModelError(EVERY_ROW)

    def answer_of_pass(self, fitted: Fitted, done: PassResult) -> LossAnswer:
        """Reads of all rows until the loss is least."""
        params, moments, features = self.params, fitted.needed_total, fitted.features
        d, sample = len(moments.row.inputs), moments.sample.rows
        rows = Rows(sample[:, :d], sample[:, d:-1], sample[:, -1], None, 0)
        bare = class_row(moments.row, ())
        given = None if isinstance(params.alpha, str) else float(params.alpha)
        free = regression_loss(params.loss)
        free.check_targets(rows.y)
        each = [of_target(rows, t) for t in range(moments.row.n_targets)]
        chosen = [choose_regression(features, bare, own, free, given) for own in each]
        losses = tuple(found.loss for found in chosen)
        alphas = np.array([found.alpha for found in chosen])
        system, nothing = ridge_system(moments), np.empty((features.n_components, 0))
        sums: Any = done.request.plan.sums
        starts, found, states = regression_starts(features, moments, losses, alphas, rows), [], []
        for t, (own, loss) in enumerate(zip(each, losses, strict=True)):
            problem = Penalised(system, loss, float(alphas[t]))
            statistic = LossStatistic(
                features, loss, None, nothing, np.empty(0), (), None, bare, sums,
                target=t if len(each) > 1 else None,
            )  # fmt: skip
            unit = unit_of(loss, own)
            *_, state = minimisers(
                passes_of(done), statistic, problem, starts[t],
                unit=unit, tol=params.tol, max_passes=params.max_passes,
            )  # fmt: skip
            self.warn_of_slow(state, unit * moments.weight, moments.row.targets[t])
            found.append(problem.linear(state.point.theta))
            states.append(state)
        linear = LinearAnswer(
            features,
            np.hstack([coef for coef, _ in found]),
            np.concatenate([intercept for _, intercept in found]),
            alphas,
            np.full(len(alphas), np.nan),
            moments.row.target_origin,
        )
        answer = LossAnswer(
            linear,
            losses,
            n_passes=1 + sum(state.passes for state in states),
            converged=all(state.converged for state in states),
            objectives=tuple(
                tuple(value / moments.weight for value in state.history) for state in states
            ),
            selections=tuple(each.selection for each in chosen if each.selection is not None),
        )
        if not free.log_link and not isinstance(free, Quantile):  # about a mean, in units of y
            warn_of_residuals(fitted, answer, chosen=given is None, robust=True)
        return with_support(answer, each, params.tol**2 / 2)

    def warn_of_slow(self, state: Descent, unit: float, target: str) -> None:
        """Warn where the reads for a target ended before the descent did."""
        if state.converged:
            return
        share, most = state.decrement / unit**0.5, self.params.max_passes
        remedy = "Raise max_passes, or raise alpha."
        if state.passes < most:
            remedy = "No step reduces the loss by more than rounding. Raise alpha, or tol."
        warn(
            f"After {state.passes} passes (max_passes={most}) for target {target!r} the decrement "
            f"is {share:.2g}, above tol={self.params.tol:.2g}. {remedy}",
            ConvergenceWarning,
        )

    def restore(self, fitted: Fitted, packed: Packed) -> LossAnswer:
        return unpack_fields(LossAnswer, packed.plain, packed.arrays, features=fitted.features)


def with_support(answer: LossAnswer, each: Sequence[Rows], share_of_unit: float) -> LossAnswer:
    """The answer with the sampled rows that hold it, where the loss is 0 inside of a tube.

    ``each`` are the rows with one target each; corners are rounded over a share of the unit.
    """
    (first, *_), F = each, answer.linear.mean()(each[0].x)
    if not isinstance(answer.losses[0], EpsilonInsensitive) or first.w is None:
        return answer
    held = np.zeros(len(F), bool)
    for t, (own, loss) in enumerate(zip(each, answer.losses, strict=True)):
        rounded: Any = loss.with_width(share_of_unit * unit_of(loss, own))
        held |= rounded.supports(F[:, t, None], own.y)[:, 0]
    share = float(first.w[held].sum() / first.w.sum())
    return replace(answer, support=first.x[held], support_share=share)
