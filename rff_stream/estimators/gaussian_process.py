"""Gaussian-process regression from one read of the data: mean and uncertainty."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_array

from rff_stream._array import Array, Float64
from rff_stream.answers.calibration import conformal_quantile
from rff_stream.answers.duplicate_rows import warn_of_copies
from rff_stream.arguments import PROBABILITY, Rule, numbers_or, whole
from rff_stream.contracts import Packed
from rff_stream.errors import PlanError
from rff_stream.estimators import regression
from rff_stream.estimators.base import Estimator
from rff_stream.estimators.regression import (
    RegressionRecipe,
    parts_of_targets,
    values_of_targets,
    warn_of_residuals,
)
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.kernel_request import AUTO, KernelRequest, LengthScale, length_scale_asked
from rff_stream.families.missing_noise import MissingFactors, with_missing_noise
from rff_stream.families.noise_by_inputs import InputFactors, with_noise_by_inputs
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.families.parameters import RULES, FeatureChoice, seed_of
from rff_stream.families.protocol import Process
from rff_stream.families.unknown_inputs import UnknownInputs, with_unknown_inputs
from rff_stream.kernels import Kernel
from rff_stream.length_scales.unseen_folds import NUMBERS_TOLD
from rff_stream.model.checked_values import is_in_memory
from rff_stream.model.fitted import Fitted
from rff_stream.model.gradients import importance
from rff_stream.model.predict import inputs_of_rows
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.moments.copies import sample_without_copies
from rff_stream.predictors import Band, WithStd
from rff_stream.process_memory import available_memory
from rff_stream.sources.labelled import is_labelled_answer, stack_draws
from rff_stream.systems.spectrum import alpha_of_targets
from rff_stream.text_formatting import format_bytes


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(MultiOutputMixin, RegressorMixin, Estimator):  # type: ignore[misc]
    """Gaussian-process regression on random features; any number of rows is read once.

    y ~ N(μ1, σ_f² Z diag(s) Zᵀ + σₙ² W⁻¹) with σₙ² and σ_f² by maximal marginal likelihood;
    as R grows this tends to ``sklearn.gaussian_process.GaussianProcessRegressor``.

    Parameters
    ----------
    kernel : str, Kernel or sequence of Kernel, default="auto"
        As in :class:`~rff_stream.KernelRidge`.
    length_scale : float, (d,) array, "auto", "median", "evidence" or "ard", default="auto"
        As in :class:`~rff_stream.KernelRidge`.
    n_components : int, optional
        R of one map of the whole space. With df above 0.8 R the variance is too small, and a
        warning says so.
    gamma : float, optional
        As in :class:`~rff_stream.KernelRidge`.
    noise : float, (T,) array or "evidence", default="evidence"
        α = σₙ²/σ_f². A number fixes the ratio; the level is still estimated. With "evidence" the
        variance of the noise may depend on the inputs and on the mean, where left-out rows of the
        row sample surely say so.
    features, metric, search_seconds, fit_intercept, missing_rows, missing_chunks, dtype, sums, \
sample_rows, memory, progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    importance_ : dict of input to float
        The share of each input in the squared slope of the fitted function over its row sample,
        computed when it is asked for; see :func:`rff_stream.inspect.gradient_outer_product`. Of a
        column of levels it is the mean variance of f where they are drawn again.
    kernel_ : Kernel
        The kernel with its length-scales. The prior covariance of f is ``signal_variance_`` times
        ``kernel_(X, X)``.
    noise_variance_, signal_variance_ : float or (T,) array
        σₙ² and σ_f², in units of y².
    misfit_variance_ : float or (T,) array
        Of one map the variance of the part of f that its columns cannot represent; a part of σₙ².
    log_marginal_likelihood_ : float or (T,) array
        log p(y), natural logarithm.
    posterior_ : Posterior
        Mean and covariance of β, given the hyperparameters.
    coef_, intercept_, alpha_, df_, features_, moments_, length_scale_, columns_, n_rows_, \
n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`.

    Notes
    -----
    ``predict(X, return_std=True)`` gives the standard deviation of a new observation,
    ``noise=False`` that of f. The one of f includes the misfit (``misfit_variance_``): the common
    part of the residuals of neighbouring rows is not noise, but the part of f that the columns
    cannot represent. It is estimated if there are at least 100 sampled rows. With the misfit and
    its standard error, intervals of 95 % for f had coverage .93 to .97 over 200 seeds of 100 or
    500 rows (.89 to .93 without it, .92 on a grid). Intervals for a new y had .95.

    Far from the data the standard deviation of a map with R columns is too small (d=5, R=1024,
    six length-scales away: .345; the exact process has .896). Increase R there, or use
    ``features="local"``. :meth:`predict_interval` is no remedy: it grows by the same variance.

    References
    ----------
    Rasmussen & Williams 2006, sections 2.1 and 5.4.1.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (400, 1)); y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=400)
    >>> model = rs.GaussianProcessRegressor(n_components=64, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> bool(0.9 < np.mean(abs(y - mean) < 1.96 * std) < 1)
    True
    >>> bool(0.08 < model.noise_variance_**0.5 < 0.12)
    True
    """

    warns_extrapolation = True

    kernel: Kernel | str | Sequence[Kernel] = "auto"
    length_scale: LengthScale = "auto"
    n_components: int | None = None
    noise: float | str | Array = "evidence"
    _: KW_ONLY
    gamma: float | None = None
    metric: Any = "auto"
    search_seconds: float | None = None
    fit_intercept: bool = True
    sums: SumsDtype = "auto"
    features: FeatureChoice = "auto"

    fit = regression.fit
    stream = regression.stream
    score = regression.score
    residuals = regression.residuals
    importance_ = functools.cached_property(importance)
    kernel_ = functools.cached_property(regression.kernel_of_fit)
    with_kernel = regression.with_kernel

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        noise: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Posterior mean, and the standard deviation or covariance of new observations if asked.

        All are lazy for lazy X. Before a fit it is the prior of rows in memory: mean 0, the
        kernel's variance (1 unless it has one), and its length-scale, 1 where none was given.

        Parameters
        ----------
        X : as in fit
        return_std : bool
            Also the standard deviation of a new y; 2R² flops a row.
        return_cov : bool
            Also the covariance of new y at all n rows, in place of the standard deviation: for
            a few thousand rows, as n² numbers are held in memory. For more, :meth:`sample_y`.
            The mean over a region has the variance that is the mean of the matrix of f there;
            of one map with a large misfit, which is independent from row to row, too small.
        noise : bool, default=True
            Whether the noise of a new y is included. With weights it is that of an observation
            of weight 1; the noise of weight w has 1/w of this variance. That of one map is
            ``noise_variance_``; cells have noises about it, calibrated on left-out rows. With
            ``missing_rows="indicate"`` rows without an input have a noise of their own, where
            left-out rows differ enough: 95 % of them are then within 1.96 standard deviations.
            Where left-out rows surely say that the noise depends on inputs or on the mean, it does.
            False: the standard deviation or covariance of f.

        Returns
        -------
        mean, or (mean, std), or (mean, cov)
            Mean and standard deviation in units of y, in the container of X; with
            ``missing_rows="drop"`` NaN where an input is missing. The covariance
            (n, n), or (n, n, T), is a NumPy array.

        Raises
        ------
        RuntimeError
            If both are asked for, as in scikit-learn.
        ValueError
            Before a fit, of rows that are not in memory.
        PlanError
            If the covariance of so many rows does not fit in memory.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        if return_std and return_cov:
            raise RuntimeError(
                "At most one of return_std or return_cov can be requested: the standard deviation "
                "is the root of the covariance's diagonal. Leave one of them out."
            )
        if self._fitted is None:
            found = prior_of_rows(self, X, noise)
            return found.mean_and(return_std, return_cov)
        process: Process = self._require_fit().answer
        if return_std:
            return mean_and_std(self, X, process, noise, storage_options)
        mean = regression.predict(self, X, storage_options=storage_options)
        if not return_cov:
            return mean
        return mean, covariance_of_rows(
            self, process, inputs_of_rows(self, X, storage_options), noise
        )

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.95,
        *,
        noise: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Any]:
        """Interval (lower, upper) of a new y, from leave-one-out residuals: the jackknife.

        ŷ ± q with q the ⌈(m + 1)·coverage⌉-th smallest residual ``|y − ŷ₋ᵢ|`` of the m rows of the
        row sample. Where f is less known than at 95 % of these rows, in gaps and beyond the data,
        its variance adds to q² what it is more, times the square of the normal quantile; a grid of
        many modes keeps q. Where the noise depends on the row, residuals are divided by standard
        deviations, and q is multiplied by that of the row. Where rows are few beside the numbers
        that a search found on them, q is larger by as much as searches without a third of the rows
        say. It needs no assumption about the noise.
        It assumes that rows and their weights are exchangeable, that one row hardly changes the map
        and the penalty,
        and ``sample_rows`` > 0.
        The coverage is asymptotic in n (Steinberger & Leeb 2023); for few rows there is no
        guarantee, unlike for jackknife+ or a split (Barber et al. 2021). All rows chose the
        penalty, so the next larger residual is used. Coverage over 200 seeds with
        heteroscedastic, heavy-tailed noise: .907 at level .90 for n=30, .960 at .95 for n=100,
        and .948 for n=1,000.

        Parameters
        ----------
        X : as in fit
        coverage : float
            Probability that the interval contains the value.
        noise : bool, default=True
            False: the interval of f, ŷ ± q·std with the standard deviation of f and q of the
            normal distribution, as residuals do not show f.

        Returns
        -------
        lower, upper
            In units of y and in the container of X; lazy for lazy X.

        Raises
        ------
        NotFittedError
            Before a fit.
        ValueError
            If ``coverage`` is no probability.
        ModelError
            If the model has no sampled rows, from whose residuals the interval follows.
        DataError
            If an input of the fit is absent or no number, or a value is missing or infinite. Lazy X
            raises it when it is computed.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        function = band(self._require_fit(), coverage, noise)
        targets = self.columns_.targets
        names = tuple(f"{target}_{side}" for side in ("lower", "upper") for target in targets)
        lower, upper = parts_of_targets(self, X, function, names, storage_options, parts=2)
        return lower, upper

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Functions drawn from the posterior at the rows of X: values of f, without noise.

        Before a fit they are drawn from the prior, as in :meth:`predict`.

        For new observations add to each value normal noise, whose variance is the difference of
        the squares of the standard deviations with and without noise. The misfit of one map
        (``misfit_variance_``) is an independent value at each row. A function of several trees of
        cells jumps where one of them has a seam, by less than a standard deviation; that of one
        cell does not.

        Parameters
        ----------
        X : as in fit
        n_samples : int
            Number of functions.
        random_state : int, Generator, RandomState or None

        Returns
        -------
        (n, n_samples) array, or (n, T, n_samples)
            The same functions, whichever rows you evaluate them at. Of labelled X a DataArray with
            ``draw`` as its last dimension, lazy if X is; a Dataset of them for several targets.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1, or the model has cells, which the default chooses, and a
            kernel that is no function of x − x': fit with ``features="whole"``.
        DataError
            If an input of the fit is absent or no number, or a value is missing or infinite.

        Warns
        -----
        NumericalWarning
            If more rows lie outside the range of the fit than chance explains.
        """
        whole(1).check("n_samples", n_samples)
        if self._fitted is None:
            return prior_of_rows(self, X, noise=False).draws(n_samples, seed_of(random_state))
        process: Process = self._require_fit().answer
        function = process.draws(n_samples, seed_of(random_state))
        names = tuple(f"draw{i}" for i in range(function.width))
        found = values_of_targets(self, X, function, names)
        if is_labelled_answer(found):
            targets, units = self.columns_.targets, self.columns_.units
            return stack_draws(found, targets, units[-len(targets) :])
        found = np.asarray(found)
        found = found.reshape(len(found), len(self.columns_.targets), -1)
        return found[:, 0] if np.ndim(self.alpha_) == 0 else found

    def log_marginal_likelihood(self) -> Any:
        """log p(y), natural logarithm: a number, or (T,) for several targets.

        At the fitted kernel; scikit-learn's argument ``theta`` has no meaning for a kernel that
        was found. To compare kernels, fit one model with each.

        Raises
        ------
        NotFittedError
            Before a fit.
        """
        self._require_fit()
        return self.log_marginal_likelihood_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False  # the prior
        return tags

    def _recipe(self) -> ProcessRecipe:
        return ProcessRecipe(self, penalty=self.noise, sums=self.sums, chooses=True, searches=True)


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """f at some rows, before a fit."""

    covariance: Float64  # (n, n)

    def mean_and(self, std: bool, covariance: bool) -> Any:
        """0, and the standard deviation or covariance if asked."""
        mean = np.zeros(len(self.covariance))
        if std:
            return mean, np.sqrt(self.covariance.diagonal())
        return (mean, self.covariance) if covariance else mean

    def draws(self, n_samples: int, seed: int) -> Float64:
        """Functions (n, n_samples)."""
        rng = np.random.default_rng(seed)
        zeros = np.zeros(len(self.covariance))
        found = rng.multivariate_normal(zeros, self.covariance, n_samples, method="eigh")
        return np.ascontiguousarray(found.T)


def prior_of_rows(model: GaussianProcessRegressor, X: Any, noise: bool) -> Prior:
    """The prior at rows in memory, of the parameters; noise if it was given as a number."""
    if not is_in_memory(X):
        raise ValueError(
            f"X is a {type(X).__name__} and the model is not fitted. The prior is computed for "
            "rows in memory. Give an array or a table, or fit the model."
        )
    rows = check_array(X, dtype=np.float64)
    kernel = prior_kernel(model.kernel, length_scale_asked(model))
    found = kernel(rows, rows)
    if noise and not isinstance(model.noise, str):
        found = found + kernel.variance * alpha_of_targets(model.noise, 1)[0] * np.eye(len(rows))
    return Prior(found)


def prior_kernel(kernel: Any, length_scale: Any) -> Any:
    """The kernel before a fit: at ℓ = 1 where it would be found, and the first of several."""
    automatic = isinstance(kernel, str) and kernel == AUTO
    first = KernelRequest.of("gaussian" if automatic else kernel, length_scale).named[0]
    if first.length_scale is not None or isinstance(length_scale, str):
        return first
    return first.with_length_scale(length_scale)


def mean_and_std(
    model: GaussianProcessRegressor, X: Any, process: Process, noise: bool, storage_options: Any
) -> tuple[Any, Any]:
    """Means and standard deviations at the rows of X, in its container."""
    targets = model.columns_.targets
    names = (*targets, *(f"{name}_std" for name in targets))
    function = WithStd(process.mean_and_variances(), len(targets), noise)
    mean, std = parts_of_targets(model, X, function, names, storage_options, parts=2)
    return mean, std


def covariance_of_rows(
    model: GaussianProcessRegressor, process: Process, rows: Float64, noise: bool
) -> Float64:
    """Covariance (n, n) of rows (n, d), or (n, n, T) for several targets."""
    n, targets = len(rows), len(model.columns_.targets)
    needed = 3 * 8 * targets * n**2  # the result, a term of it and its copy
    allowed = available_memory() if model.memory is None else model.memory
    if needed > allowed:
        raise PlanError(
            f"A covariance of {n:,} rows needs {format_bytes(needed)} but {format_bytes(allowed)} "
            "are allowed. Nothing was computed. Ask for fewer rows, or draw functions with "
            "sample_y: their spread is the covariance at any number of rows."
        )
    there = np.flatnonzero(np.isfinite(rows).all(axis=1))
    with single_threaded_blas():
        known = process.covariance(rows[there], noise)
    found = known
    if len(there) < n:
        found = np.full((targets, n, n), np.nan)
        found[:, there[:, None], there] = known
    return found[0] if np.ndim(model.alpha_) == 0 else np.moveaxis(found, 0, -1)


KNOWN = 0.95
"""Share of the sampled rows at which an interval has the width of their residuals."""


def band(fitted: Fitted, coverage: float, noise: bool) -> Band:
    """The interval of a new y, or of f without noise, as a function of rows."""
    process: Process = fitted.answer
    every, nothing = process.mean_and_variances(), np.zeros(len(process.target_origin))
    normal = normal_half_width(coverage)
    if not noise:
        return Band(every, nothing, normal)
    fitted.need_sample("and a conformal interval needs one")
    rows = different_rows(fitted)
    told = fitted.scales.get(NUMBERS_TOLD, 0.0)
    unseen = np.sqrt(1 + 2 * told / max(fitted.n_rows, 1))
    width = functools.partial(conformal_quantile, coverage=coverage, chosen=1)  # one number: α
    of_curves = process.unseen if isinstance(process, NoisyProcess) else None
    if of_curves is not None:
        left, unseen = process.left_out(rows), unseen * of_curves
        share = float(1 / np.median(rows[:, -1]))  # of the noise of weight 1: rows as fitted
        scaled = left.residual / np.sqrt(left.variance + share * left.noise)
        return Band(every, nothing, width(scaled * unseen), noise=share)
    if not fitted.family.tells_left_out(fitted.features):
        return Band(process.mean(), width(process.leave_one_out(rows) * unseen))
    left = process.left_out(rows)
    known = np.quantile(left.variance, KNOWN, axis=0)
    return Band(every, width(left.residual * unseen), normal, known)


def different_rows(fitted: Fitted) -> Float64:
    """The row sample [x, y, w] without copies, which are left out together."""
    total = fitted.total
    return fitted.sampled_rows if total is None else sample_without_copies(total)


def normal_half_width(coverage: float) -> Float64:
    """q with P(|ξ| < q) = coverage for a standard normal ξ."""
    PROBABILITY.check("coverage", coverage)
    return np.asarray(ndtri(0.5 + coverage / 2))


@dataclass(frozen=True, slots=True, eq=False)
class ProcessRecipe(RegressionRecipe):
    """Noise and signal by evidence, or their ratio given."""

    after_the_pass: ClassVar[frozenset[str]] = frozenset({"fit_intercept", "noise"})

    rules: ClassVar[Mapping[str, Rule]] = {
        **RULES,
        "noise": numbers_or("evidence", words="a number > 0, one number per target, or 'evidence'"),
    }

    def n_folds(self, n_targets: int) -> int:
        noise = self.params.noise
        if not isinstance(noise, str):
            alpha_of_targets(noise, n_targets, "noise")  # refused before rows are read
        return 0

    def answer(self, fitted: Fitted) -> Process:
        params = self.params
        if isinstance(params.noise, str) and fitted.total is not None:
            sample = fitted.total.sample
            warn_of_copies(sample.rows, fitted.n_rows, sample.keys)
        found: Process = fitted.family.solve(
            self.totals(fitted),
            params.noise,
            fit_intercept=params.fit_intercept,
            refine=0,
            variances=True,
        )
        by_evidence = isinstance(params.noise, str)
        warn_of_residuals(fitted, found, chosen=by_evidence)
        rows = different_rows(fitted)
        found = with_missing_noise(found, fitted.columns, rows)
        if by_evidence and fitted.family.tells_left_out(fitted.features):
            found = with_noise_by_inputs(found, rows, len(fitted.sampled_rows))
        return with_unknown_inputs(found, fitted.columns, known_levels(fitted), rows)

    def restore(self, fitted: Fitted, packed: Packed) -> Process:
        found: Process = fitted.family.restore(self.stored(fitted, packed), variances=True)
        columns, arrays = fitted.columns, packed.arrays
        for factors in (
            MissingFactors.restored(columns, arrays),
            InputFactors.restored(arrays),
            UnknownInputs.restored(columns, arrays, known_levels(fitted)),
        ):
            found = found if factors is None else NoisyProcess(found, factors)
        return found


def known_levels(fitted: Fitted) -> Mapping[int, Float64]:
    """Numbers of the levels that have a mean, by the place of their input."""
    found: Mapping[int, Float64] = getattr(fitted.features, "known_levels", {})
    return found
