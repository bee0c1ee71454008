"""Directions moved by the residuals of all rows: their error falls as 1/√n; laws of a sum."""

from __future__ import annotations

import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from scipy.linalg import subspace_angles

import reference
import rff_stream as rs
from rff_stream.model.gradients import metric_statistic

D, NOISE = 4, 0.1
QUIET: dict[str, Any] = {"progress": False, "random_state": 0, "dtype": "float64"}


def rows(rng, n):
    """y = sin(2u) + v²/2 of two orthogonal combinations of inputs in different units."""
    truth = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    z = rng.standard_normal((n, D))
    u, v = (z @ truth).T
    unit = np.array([1.0, 10.0, 0.1, 1.0])
    y = np.sin(2 * u) + v**2 / 2 + NOISE * rng.standard_normal(n)
    return 5 + z * unit, y, truth / unit[:, None]


def off(matrix, truth, X):
    """Largest principal angle in radians, of inputs over their standard deviations."""
    unit = X.std(axis=0)[:, None]
    return subspace_angles(matrix * unit, truth * unit).max()


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    X, y, truth = rows(rng, 3000)
    model = rs.KernelRidge(rs.Gaussian(), metric="full", n_components=256, **QUIET)
    return model.fit(X[:400], y[:400]), X, y, truth


@pytest.mark.slow
def test_it_is_the_least_squares_step_of_residuals(made):
    model, X, y, _ = made
    step, x = rs.inspect.metric_step(model, X[:200], y[:200]), X[:200]
    slopes = reference.slopes(model._require_fit().answer.mean(), x)[:, :, 0] * step.unit
    slopes = slopes @ np.linalg.pinv(step.start).T
    deviation = y[:400].std()
    columns = [np.outer((row - step.origin) / step.unit, own).ravel()
               for row, own in zip(x, slopes, strict=True)]  # fmt: skip
    residual = (y[:200] - model.predict(x)) / deviation
    columns = np.array(columns) / deviation
    ridge = (residual @ residual / 200) / (step.start**2).sum()
    wanted = np.linalg.solve(columns.T @ columns + ridge * np.eye(2 * D), columns.T @ residual)
    # slopes by differences are known to about 1e-9; the row sample is all 400 rows
    np.testing.assert_allclose(step.directions - step.start, wanted.reshape(D, 2), atol=1e-6)
    assert step.noise_variance == pytest.approx(residual @ residual / 200)


@pytest.mark.slow
def test_the_error_of_directions_falls_with_the_rows_that_are_read(rng):
    """As 1/√n, by 10 from 400 to 40,000 rows; and it is what the standard errors say."""
    X, y, truth = rows(rng, 40_400)
    asked: dict[str, Any] = {"features": "whole", "n_components": 256, **QUIET}
    model = rs.KernelRidge(rs.Gaussian(), metric="full", **asked).fit(X[:400], y[:400])
    few = rs.inspect.metric_step(model, X[:400], y[:400], n_directions=2)
    again = rs.KernelRidge(rs.Gaussian(), metric=few.matrix, **asked).fit(X, y)
    many = rs.inspect.metric_step(again, X, y)
    assert many.n_directions == 2
    # two directions across and two along: the largest angle is within 3.5 standard errors
    bound = 3.5 * np.radians(many.standard_errors.max())
    assert off(many.matrix, truth, X) < bound < np.radians(0.5)
    # residuals of the few are smaller by what 256 columns took up of 400 rows: by up to √(1 − .64)
    assert many.standard_errors.max() < few.standard_errors.max() / 5


def test_directions_that_do_nothing_are_left_out(made):
    model, X, y, _ = made
    step = rs.inspect.metric_step(model, X, y)
    assert step.n_directions == 2 and step.matrix.shape == (D, 2)
    again = rs.KernelRidge(metric=step.matrix, n_components=64, **QUIET).fit(X, y)
    assert again.features_.first.n_components == 2
    assert rs.inspect.metric_step(model, X, y, n_directions=3).matrix.shape == (D, 3)
    assert step.moved > 0


def test_parts_add_subtract_and_scale(made):
    model, X, y, _ = made
    whole = rs.inspect.metric_step(model, X, y)
    days = rs.inspect.metric_step(model, X, y, by=np.repeat(["a", "b"], 1500))
    both = days["a"] + days["b"]
    bound = 8 * np.finfo(float).eps * len(X) * abs(whole.normal).max()
    np.testing.assert_allclose(both.normal, whole.normal, atol=bound)
    np.testing.assert_allclose(both.matrix, whole.matrix, rtol=1e-8)
    left = whole - days["b"]
    np.testing.assert_allclose(left.matrix, days["a"].matrix, rtol=1e-8)
    assert (left.n, left.weight) == (1500, 1500)
    assert whole.scale(2.0).weight == 6000
    np.testing.assert_allclose(whole.scale(2.0).normal, 2 * whole.normal)
    zero = metric_statistic(model, None).start().result()
    np.testing.assert_array_equal((zero + whole).right, whole.right)
    np.testing.assert_array_equal(zero.directions, zero.start)


def test_weight_two_is_a_row_twice(made):
    model, X, y, _ = made
    w = np.r_[np.full(100, 2.0), np.ones(400)]
    found = rs.inspect.metric_step(model, X[:500], y[:500], w)
    twice = rs.inspect.metric_step(model, np.r_[X[:500], X[:100]], np.r_[y[:500], y[:100]])
    np.testing.assert_allclose(found.normal, twice.normal, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.matrix, twice.matrix, rtol=1e-9, atol=1e-12)


def test_units_of_targets_do_not_matter(made):
    _, X, y, _ = made
    asked: dict[str, Any] = {"n_components": 128, "length_scale": 2.0, "alpha": 0.1} | QUIET
    asked["sample_rows"] = len(X)  # which rows are sampled depends on their values
    steps = []
    for c in (1.0, 30.0):
        model = rs.KernelRidge(**asked).fit(X, c * y)
        steps.append(rs.inspect.metric_step(model, X, c * y, n_directions=2).matrix)
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-6, atol=1e-9)
    several = rs.KernelRidge(**asked).fit(X, np.stack([y, 30 * y], axis=1))
    found = rs.inspect.metric_step(several, X, np.stack([y, 30 * y], axis=1), n_directions=2)
    angle = subspace_angles(found.matrix, steps[0]).max()
    assert angle < 1e-6


def test_bits_do_not_depend_on_the_scheduler(made):
    model, X, y, _ = made
    found = []
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler):
            lazy = da.from_array(X, chunks=(500, D)), da.from_array(y, chunks=500)
            found.append(rs.inspect.metric_step(model, *lazy).normal)
    np.testing.assert_array_equal(*found)
    assert pickle.loads(pickle.dumps(metric_statistic(model, None))).inputs == model.columns_.inputs


def test_a_process_of_one_map_steps_as_the_ridge_that_is_its_mean(made):
    """It was refused, by a message that named its class as the remedy."""
    ridge, X, y, _ = made
    process = rs.GaussianProcessRegressor(features=ridge.features_, **QUIET).fit(X[:400], y[:400])
    alpha = float(process.alpha_)
    same = rs.KernelRidge(alpha=alpha, features=ridge.features_, **QUIET).fit(X[:400], y[:400])
    steps = [rs.inspect.metric_step(each, X, y, n_directions=2) for each in (process, same)]
    np.testing.assert_allclose(steps[0].matrix, steps[1].matrix, rtol=1e-6, atol=1e-9)
    counts = rs.KernelRegressor("poisson", length_scale=2.0, n_components=32, **QUIET)
    with pytest.raises(rs.errors.ModelError, match="KernelRegressor has no residuals of a mean"):
        rs.inspect.metric_step(counts.fit(X, np.round(y - y.min())), X, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")
def test_what_has_no_directions_is_refused(made, tmp_path):
    model, X, y, _ = made
    step = rs.inspect.metric_step
    with pytest.raises(ValueError, match="n_directions=5 but it must be from 1 to 4"):
        step(model, X, y, n_directions=5)
    constant = rs.KernelRidge(n_components=32, length_scale=2.0, **QUIET).fit(X, 0 * y)
    with pytest.raises(rs.errors.ModelError, match="changes along no direction"):
        step(constant, X, y)
    sorter = rs.KernelClassifier(n_components=32, length_scale=2.0, **QUIET).fit(X, y > 0)
    with pytest.raises(rs.errors.ModelError, match="KernelClassifier has no residuals of a mean"):
        step(sorter, X, y > 0)
    model.save(tmp_path / "m.zarr")
    with pytest.raises(rs.errors.ModelError, match="no row sample"):
        step(rs.load(tmp_path / "m.zarr"), X, y)
    heavy = X.copy()
    heavy[:, 0] = np.exp(2.5 * (X[:, 0] - 5))
    scored = rs.KernelRidge("gaussian", metric=None, **QUIET).fit(heavy[:400], y[:400])
    with pytest.raises(rs.errors.ModelError, match="on other scales"):
        step(scored, heavy, y)
    wide = rs.KernelRidge(n_components=32, length_scale=9.0, **QUIET)
    Z = np.random.default_rng(0).standard_normal((300, 70))
    with pytest.raises(ValueError, match=r"at most 4,096 are moved. Give n_directions=58"):
        step(wide.fit(Z, Z[:, 0]), Z, Z[:, 0], n_directions=60)
    other = step(model, X, y, n_directions=1)
    with pytest.raises(rs.errors.ModelError, match="unless they are steps of one fit"):
        other + step(model, X, y)
    with pytest.raises(ValueError, match="factor=0 but it must be"):
        other.scale(0)
