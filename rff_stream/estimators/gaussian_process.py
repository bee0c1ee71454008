"""Gaussian-process regression from one read of the data: mean and uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import evidence, evidence_at
from rff_stream.answers.floor import alpha_of_targets
from rff_stream.answers.local import LocalPosterior, leave_one_out
from rff_stream.answers.posterior import Posterior, conformal_quantile
from rff_stream.estimators.local import answer_locally, is_local
from rff_stream.estimators.mapping import FeatureChoice, LengthScale, seed_of
from rff_stream.estimators.streamed import StreamedRegressor
from rff_stream.kernels import Kernel
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import Sums
from rff_stream.predictor import (
    FunctionPredictor,
    LocalStdPredictor,
    PosteriorPredictor,
    RowFunction,
)

__all__ = ["GaussianProcessRegressor"]


class GaussianProcessRegressor(StreamedRegressor):
    """Gaussian process in the space of random features: rows are read once, in any amount.

    y ~ N(μ1, σ_f² Z diag(s) Zᵀ + σₙ² W⁻¹) with σₙ² and σ_f² by maximal marginal likelihood;
    as R grows this tends to ``sklearn.gaussian_process.GaussianProcessRegressor``.

    Parameters
    ----------
    kernel : str, Kernel or sequence of Kernel, default="gaussian"
        As in :class:`~rff_stream.KernelRidge`.
    length_scale : float, (d,) array, "median", "evidence" or "ard", default="median"
        As in :class:`~rff_stream.KernelRidge`. "ard" is what makes uncertainties sharp.
    n_components : int, default=2048
        R. With df above 0.8 R the map starves the variance and a warning says so.
    noise : float, (T,) array or "evidence", default="evidence"
        α = σₙ²/σ_f². A number fixes the ratio; the level is estimated all the same.
    features, fit_intercept, missing_rows, missing_chunks, dtype, sums, sample_rows, memory, \
progress, random_state
        As in :class:`~rff_stream.KernelRidge`.

    Attributes
    ----------
    noise_variance_, signal_variance_ : float or (T,) array
        σₙ² and σ_f², in units of y².
    log_marginal_likelihood_ : float or (T,) array
        log p(y), natural logarithm.
    posterior_ : Posterior
    coef_, intercept_, alpha_, df_, features_, moments_, length_scale_, columns_, n_rows_, \
n_missing_, plan_
        As in :class:`~rff_stream.KernelRidge`.

    Notes
    -----
    Far from data the standard deviation of a finite map is too small (d=5, R=1024, six
    length-scales away: .345 where the exact process says .896): there
    :meth:`predict_interval` is the honest alternative.

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
    >>> bool(0.08 < model.noise_variance_**0.5 < 0.12)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | Sequence[Kernel] = "gaussian",
        length_scale: LengthScale = "median",
        n_components: int = 2048,
        noise: float | str | Array = "evidence",
        *,
        features: FeatureChoice = "auto",
        fit_intercept: bool = True,
        missing_rows: Literal["error", "drop"] = "error",
        missing_chunks: Literal["auto", "error", "fill"] = "auto",
        dtype: Literal["float32", "float64"] = "float32",
        sums: Sums = "auto",
        sample_rows: int = 2000,
        memory: int | None = None,
        progress: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.length_scale = length_scale
        self.n_components = n_components
        self.noise = noise
        self.features = features
        self.fit_intercept = fit_intercept
        self.missing_rows = missing_rows
        self.missing_chunks = missing_chunks
        self.dtype = dtype
        self.sums = sums
        self.sample_rows = sample_rows
        self.memory = memory
        self.progress = progress
        self.random_state = random_state

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        noise: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Posterior mean, and its standard deviation if asked; lazy for lazy X.

        Parameters
        ----------
        X : as in fit
        return_std : bool
            Also the standard deviation of f; 2R² flops a row.
        noise : bool
            The standard deviation of a new y in place of that of f.

        Returns
        -------
        mean, or (mean, std)
            In units of y, in the container of X; NaN where an input is missing.
        """
        mean = super().predict(X, storage_options=storage_options)
        if not return_std:
            return mean
        function: RowFunction = PosteriorPredictor(self.features_, self.posterior_, noise)
        if is_local(self.features_):
            function = LocalStdPredictor(self.posterior_, noise)
        names = tuple(f"{name}_std" for name in self.columns_.targets)
        return mean, self._rowwise(X, function, names, storage_options)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[Any, Any]:
        """Conformal interval (lower, upper): covers whatever the model gets wrong.

        ŷ ± q with q the quantile of leave-one-out residuals of the row sample
        (Lei et al. 2018); it needs exchangeable rows and ``sample_rows`` > 0.
        """
        check_is_fitted(self)
        half = self._conformal_half_width(coverage)
        half = half[0] if self._flat else half
        mean = super().predict(X)
        return mean - half, mean + half

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Functions drawn from the posterior at the rows of X.

        Returns
        -------
        (n, n_samples) array, or (n, T, n_samples)
            The same functions whatever rows they are asked at.
        """
        check_is_fitted(self)
        if is_local(self.features_):
            raise ValueError(
                "Functions are drawn from one process, but features='local' is a mean of several "
                "trees. Use predict with return_std, or a map of the whole space."
            )
        rng = np.random.default_rng(seed_of(random_state))
        draws = self.posterior_.functions(n_samples, rng)
        found = self._rowwise_of_draws(X, FunctionPredictor(self.features_, draws))
        return found[:, 0] if self._flat else found

    def _rowwise_of_draws(self, X: Any, function: FunctionPredictor) -> Float64:
        names = tuple(f"draw{i}" for i in range(function.width))
        found = np.asarray(self._rowwise(X, function, names))
        return found.reshape(len(found), self._width, -1)

    def _conformal_half_width(self, coverage: float) -> Float64:
        sample = self.moments_.sample.rows
        if not len(sample):
            raise ValueError(
                "This model has no row sample (sample_rows=0, or saved without moments), and "
                "a conformal interval needs one. Fit with sample_rows=2000."
            )
        d = self.n_features_in_
        if is_local(self.features_):
            return conformal_quantile(leave_one_out(self.posterior_, sample), coverage)
        x, y, w = sample[:, :d], sample[:, d:-1], sample[:, -1]
        Z = self.features_(x).astype(np.float64)
        return conformal_quantile(self.posterior_.leave_one_out(Z, y, w), coverage)

    def _n_folds(self, n_targets: int) -> int:
        if isinstance(self.noise, str) and self.noise != "evidence":
            raise ValueError(
                f"noise={self.noise!r} but it is a number > 0, one number per target, or "
                "'evidence'."
            )
        if not isinstance(self.noise, str):
            alpha_of_targets(self.noise, n_targets)  # refused before rows are read
        return 0

    def _solve(self, folds: Mapping[Any, Moments]) -> None:
        if is_local(self.features_):
            self._solve_locally()
            return
        if isinstance(self.noise, str):
            found = evidence(self.moments_, fit_intercept=self.fit_intercept)
        else:
            found = evidence_at(self.moments_, self.noise, fit_intercept=self.fit_intercept)
        one = self._flat
        self.posterior_ = found.posterior()
        self.noise_variance_ = _one(found.noise_variance, one)
        self.signal_variance_ = _one(found.signal_variance, one)
        self.log_marginal_likelihood_ = _one(found.log_evidence, one)
        self._set_linear(self.posterior_.coef, self.posterior_.intercept, found.alpha, found.df)

    def _solve_locally(self) -> None:
        alpha = None if isinstance(self.noise, str) else self.noise
        features: Any = self.features_
        moments: Any = self.moments_
        posterior, value = answer_locally(
            features, moments, alpha, fit_intercept=self.fit_intercept
        )
        self._set_local(posterior)
        self.log_marginal_likelihood_ = _one(value, self._flat)

    def _set_local(self, posterior: LocalPosterior) -> None:
        super()._set_local(posterior)
        noise, one = posterior.noise(), self._flat
        signal = (posterior.noise_variance / posterior.alpha).mean(axis=0)
        self.noise_variance_ = _one(noise, one)
        self.signal_variance_ = _one(signal, one)

    def _arrays(self) -> dict[str, Array]:
        posterior = self.posterior_
        if is_local(self.features_):
            value = np.atleast_1d(self.log_marginal_likelihood_)
            return super()._arrays() | {"log_marginal_likelihood": value}
        return super()._arrays() | {
            "noise_variance": np.atleast_1d(self.noise_variance_),
            "signal_variance": np.atleast_1d(self.signal_variance_),
            "log_marginal_likelihood": np.atleast_1d(self.log_marginal_likelihood_),
            "rotation": posterior.rotation,
            "eigenvalues": posterior.eigenvalues,
            "feature_mean": posterior.feature_mean,
            "inverse_weight": np.array([1 / posterior.weight]),
        }

    def _restore(self, arrays: Mapping[str, Array]) -> None:
        super()._restore(arrays)
        one = self._flat
        if is_local(self.features_):
            self.log_marginal_likelihood_ = _one(arrays["log_marginal_likelihood"], one)
            return
        self.noise_variance_ = _one(arrays["noise_variance"], one)
        self.signal_variance_ = _one(arrays["signal_variance"], one)
        self.log_marginal_likelihood_ = _one(arrays["log_marginal_likelihood"], one)
        inverse = float(arrays["inverse_weight"][0])
        self.posterior_ = Posterior(
            coef=arrays["coef"],
            intercept=arrays["intercept"],
            alpha=arrays["alpha"],
            noise_variance=arrays["noise_variance"],
            rotation=arrays["rotation"],
            eigenvalues=arrays["eigenvalues"],
            feature_mean=arrays["feature_mean"],
            weight=1 / inverse if inverse else np.inf,
        )


def _one(values: Float64, one: bool) -> Any:
    """A number for a single y."""
    return float(values[0]) if one else values
