"""Our estimators under scikit-learn's names and parameters, for scikit-learn's own tests.

A plugin of pytest: ``pytest -p peers_of_scikit_learn --pyargs sklearn.tests.test_kernel_ridge``
runs them with these classes. An adapter says what a parameter there is called here; of parameters
that say how something is computed there (``eigen_solver``, ``algorithm``) it takes no notice.
Maps are of Nyström type with all rows as landmarks and in float64, so answers are exact ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.decomposition
import sklearn.gaussian_process
import sklearn.kernel_approximation
import sklearn.kernel_ridge
import sklearn.neighbors
from sklearn.gaussian_process.kernels import RBF

import rff_stream as rs
from rff_stream.kernels import Chi2, Laplacian, Linear, Polynomial

EXACT: dict[str, Any] = {"features": "nystroem", "dtype": "float64", "progress": False}
OF_GAMMA = {"rbf": rs.Gaussian(), "laplacian": Laplacian(), "chi2": Chi2()}


def kernel_here(asked: Any, d: int) -> Any:
    """The kernel that scikit-learn's ``kernel``, ``gamma``, ``degree`` and ``coef0`` say."""
    kernel, gamma = asked.kernel, asked.gamma
    if kernel in ("poly", "polynomial"):
        return Polynomial(degree=asked.degree, offset=asked.coef0).with_gamma(gamma or 1 / d)
    if kernel == "linear":
        return Linear()
    if isinstance(kernel, str) and kernel in OF_GAMMA:
        default = 1.0 if kernel == "chi2" else 1 / d
        return OF_GAMMA[kernel].with_gamma(default if gamma is None else gamma)
    return kernel


def parameters_here(kind: Any, asked: Any, **translated: Any) -> Any:
    """Our estimator with the parameters of an adapter, of which some have another name or value."""
    given = {name: getattr(asked, name) for name in kind._get_param_names()}
    return kind(**(given | ({"gamma": None} if "gamma" in given else {}) | translated))


class KernelRidge(rs.KernelRidge):
    def __init__(
        self, alpha=1, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None
    ):
        given = {"alpha": alpha, "kernel": kernel, "gamma": gamma}
        super().__init__(**given, fit_intercept=False, sums="float64", random_state=0, **EXACT)
        self.degree, self.coef0, self.kernel_params = degree, coef0, kernel_params

    def fit(self, X, y=None, sample_weight=None):
        self._kernel = kernel_here(self, np.shape(X)[1])
        return super().fit(X, y, sample_weight)

    def _recipe(self):
        return parameters_here(rs.KernelRidge, self, kernel=self._kernel)._recipe()


class KernelPCA(rs.KernelPCA):
    def __init__(
        self, n_components=None, *, kernel="linear", gamma=None, degree=3, coef0=1,
        kernel_params=None, alpha=1.0, fit_inverse_transform=False, eigen_solver="auto", tol=0,
        max_iter=None, iterated_power="auto", remove_zero_eig=False, random_state=None,
    ):  # fmt: skip
        super().__init__(
            n_components, kernel, gamma=gamma, alpha=alpha, random_state=random_state,
            fit_inverse_transform=fit_inverse_transform, **EXACT,
        )  # fmt: skip
        self.degree, self.coef0, self.kernel_params = degree, coef0, kernel_params
        self.eigen_solver, self.tol, self.max_iter = eigen_solver, tol, max_iter
        self.iterated_power, self.remove_zero_eig = iterated_power, remove_zero_eig

    def fit(self, X, y=None):
        self._kernel = kernel_here(self, np.shape(X)[1])
        return super().fit(X)

    def _recipe(self):
        return parameters_here(rs.KernelPCA, self, kernel=self._kernel)._recipe()

    def inverse_transform(self, X):
        here = parameters_here(rs.KernelPCA, self, kernel=self._kernel)
        return here._set_fit(self._fitted).inverse_transform(X)


class GaussianProcessRegressor(rs.GaussianProcessRegressor):
    """``alpha`` is the ratio of noise and signal here; bounds of kernels are not looked at."""

    def __init__(
        self, kernel=None, *, alpha=1e-10, optimizer="fmin_l_bfgs_b", n_restarts_optimizer=0,
        normalize_y=False, copy_X_train=True, n_targets=None, random_state=None,
    ):  # fmt: skip
        super().__init__(kernel=kernel, noise=alpha, random_state=random_state, **EXACT)
        self.alpha, self.optimizer = alpha, optimizer
        self.n_restarts_optimizer, self.normalize_y = n_restarts_optimizer, normalize_y
        self.copy_X_train, self.n_targets = copy_X_train, n_targets

    def predict(self, X, return_std=False, return_cov=False):
        return self._here().predict(X, return_std, return_cov, noise=False)

    def sample_y(self, X, n_samples=1, random_state=0):
        return self._here().sample_y(X, n_samples, random_state)

    def fit(self, X, y):
        fitted = self._here().fit(X, y)
        for name in ("kernel_", "log_marginal_likelihood_"):
            setattr(self, name, getattr(fitted, name))
        self._fitted_here = fitted
        return self

    def log_marginal_likelihood(self):
        return self._here().log_marginal_likelihood()

    def _here(self):
        if hasattr(self, "_fitted_here"):
            return self._fitted_here
        kernel, scale = self.kernel, "median"
        if kernel is None:
            kernel = rs.Gaussian(1.0)
        elif (
            type(kernel) is RBF and self.optimizer and not kernel.hyperparameter_length_scale.fixed
        ):
            kernel, scale = rs.Gaussian(), "ard" if kernel.anisotropic else "evidence"
        return rs.GaussianProcessRegressor(
            kernel, scale, noise=self.alpha, fit_intercept=self.normalize_y, random_state=0, **EXACT
        )


class KernelDensity(rs.KernelDensity):
    def __init__(
        self, *, bandwidth=1.0, algorithm="auto", kernel="gaussian", metric="euclidean", atol=0,
        rtol=0, breadth_first=True, leaf_size=40, metric_params=None,
    ):  # fmt: skip
        super().__init__(bandwidth, kernel, 4096, random_state=0, dtype="float64", progress=False)
        self.algorithm, self.metric, self.atol, self.rtol = algorithm, metric, atol, rtol
        self.breadth_first, self.leaf_size = breadth_first, leaf_size
        self.metric_params = metric_params

    def _recipe(self):
        return parameters_here(rs.KernelDensity, self)._recipe()


class _Columns(rs.KernelFeatures):
    def fit(self, X, y=None):
        X = np.asarray(X) if isinstance(X, list) else X
        kernel = kernel_here(self, np.shape(X)[1])
        here = rs.KernelFeatures(
            kernel, self.n_components, features=self.features, dtype=self.dtype,
            random_state=self.random_state,
        )  # fmt: skip
        vars(self).update({k: v for k, v in vars(here.fit(X)).items() if k.endswith("_")})
        return self


class RBFSampler(_Columns):
    def __init__(self, *, gamma=1.0, n_components=100, random_state=None):
        super().__init__("rbf", n_components, gamma=gamma, dtype="float64")
        self.random_state = random_state


class Nystroem(_Columns):
    def __init__(
        self, kernel="rbf", *, gamma=None, coef0=None, degree=None, kernel_params=None,
        n_components=100, random_state=None, n_jobs=None,
    ):  # fmt: skip
        super().__init__(kernel, n_components, gamma=gamma, features="nystroem", dtype="float64")
        self.coef0, self.degree, self.kernel_params = coef0, degree, kernel_params
        self.random_state, self.n_jobs = random_state, n_jobs


def pytest_configure() -> None:
    """Put the adapters where the tests import from."""
    for module, classes in (
        (sklearn.kernel_ridge, [KernelRidge]),
        (sklearn.decomposition, [KernelPCA]),
        (sklearn.gaussian_process, [GaussianProcessRegressor]),
        (sklearn.neighbors, [KernelDensity]),
        (sklearn.kernel_approximation, [RBFSampler, Nystroem]),
    ):
        for each in classes:
            setattr(module, each.__name__, each)
