"""Kernels of scikit-learn, given as ``kernel=``: equal values, or a true sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import rff_stream as rs
from rff_stream.features import FourierFeatures, Periodic
from rff_stream.kernels import as_kernel

EQUAL = [
    RBF(0.7),
    RBF([0.5, 2.0, 1.3]),
    Matern(0.7, nu=1.5),
    Matern([0.5, 2.0, 1.3], nu=2.5),
    Matern(0.7, nu=0.8),
    Matern(0.7, nu=math.inf),
    RationalQuadratic(0.7, alpha=0.3),
    ConstantKernel(2.5),
    ConstantKernel(2.5) * RBF(0.7),
    RBF(0.7) * ConstantKernel(2.5),
    RBF(0.7) * 3.5,
    ConstantKernel(0.5) * ConstantKernel(3.0),
    RBF(0.7) + ConstantKernel(2.5) * Matern(2.0),
    RBF(0.7) + 3.0,
    RBF(0.7) * RationalQuadratic(2.0) + Matern(0.5, nu=0.5),
    2.0 * (RBF(0.7) + Matern()) * RBF(3.0),
    RBF(0.7) ** 2,
    (RBF(0.7) + RBF(2.0)) ** 3,
    DotProduct(1.5),
    DotProduct(0.0),
    PairwiseKernel(metric="linear"),
    DotProduct(1.5) ** 2,
    DotProduct(1.5) + RBF(0.7),
    PairwiseKernel(0.8, metric="rbf"),
    PairwiseKernel(0.8, metric="laplacian"),
]


@pytest.mark.parametrize("kernel", EQUAL, ids=repr)
def test_values_are_those_of_scikit_learn(rng, kernel):
    X, Y = rng.standard_normal((12, 3)), rng.standard_normal((9, 3))
    X[0] = Y[0]
    np.testing.assert_allclose(as_kernel(kernel)(X, Y), kernel(X, Y), rtol=1e-11, atol=1e-13)


def test_chi2_values_are_those_of_scikit_learn(rng):
    X, Y = rng.uniform(size=(2, 9, 3))
    kernel = PairwiseKernel(0.8, metric="chi2")
    np.testing.assert_allclose(as_kernel(kernel)(X, Y), kernel(X, Y), rtol=1e-11)


class Stretched(RBF):
    """A class of a user's, with values of its own."""


REFUSED = [
    (RBF() + WhiteKernel(0.1), r"noise of single rows, and that is alpha here.*alpha=0\.1"),
    (ExpSineSquared(0.5, 24.0), r"circle is a feature map.*Periodic\(24\)\.then.*Gaussian\(0\.5\)"),
    (CompoundKernel([RBF(), RBF(2.0)]), r"2 kernels, each with its own matrix.*Fit a model for"),
    (RBF() ** 1.5, r"power 1\.5 of a kernel.*Use a whole power"),
    (PairwiseKernel(metric="cosine"), r"metric 'cosine'.*'rbf', 'laplacian', 'chi2' and 'linear'"),
    (Stretched(), r"class of its own.*rff_stream\.kernels\.Kernel"),
]


@pytest.mark.parametrize(("kernel", "message"), REFUSED, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("make", [rs.KernelRidge, rs.KernelPCA])
def test_a_kernel_without_an_equal_is_refused(rng, make, kernel, message):
    X = rng.standard_normal((30, 2))
    with pytest.raises(ValueError, match=message):
        make(kernel=kernel).fit(X, X[:, 0] if make is rs.KernelRidge else None)


def test_the_remedy_for_a_periodic_kernel_has_its_values(rng):
    kernel = ExpSineSquared(0.7, 24.0)
    x = rng.uniform(0, 100, (40, 1))
    features = Periodic(24).then(FourierFeatures.sample(rs.Gaussian(0.7), 2, 8192, rng=0))
    Z = features(x).astype(float)
    error = np.abs((Z * features.prior()) @ Z.T - kernel(x))
    assert error.max() < 5 / math.sqrt(8192)  # of 4,096 pairs: 4.5 standard errors and more


def test_what_is_no_kernel_at_all_is_named(rng):
    X = rng.standard_normal((30, 2))
    with pytest.raises(TypeError, match=r"kernel=3 is a int, and a kernel is a name such as"):
        rs.KernelRidge(kernel=3).fit(X, X[:, 0])


def test_a_model_of_such_a_kernel_is_scikit_learns_and_is_kept(rng, tmp_path):
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    kernel = ConstantKernel(2.0) * RBF(0.8) + Matern(2.0, nu=2.5)
    exact = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(X, y)
    model = rs.KernelRidge(
        kernel=kernel,
        alpha=0.1,
        features="nystroem",
        n_components=60,
        fit_intercept=False,
        dtype="float64",
        random_state=0,
    ).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-6)
    model.save(tmp_path / "model.zarr")
    again = rs.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
