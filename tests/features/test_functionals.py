"""Slopes and block means as rows: dense universal kriging, and the same functions, from moments."""

from __future__ import annotations

import json
from typing import Any

import dask.array as da
import numpy as np
import pytest

import rff_stream as rs
from rff_stream.answers.evidence import evidence_at
from rff_stream.answers.ridge import ridge
from rff_stream.answers.sensitivity import gradient, gradient_std
from rff_stream.errors import ModelError
from rff_stream.features import Periodic, box_mean, by_columns, derivative, map_from_spec
from rff_stream.moments.functionals import observed
from rff_stream.systems.spectrum import spectrum

SCALE = (0.7, 1.5)


def fourier(**choices: Any) -> rs.FourierFeatures:
    chosen = {"origin": (0.3, -2.0), "rng": 0, "dtype": "float64"} | choices
    return rs.FourierFeatures.sample(rs.Gaussian(SCALE, 2.0), 2, 60, **chosen)


def beside(**choices: Any) -> Any:
    other = rs.FourierFeatures.sample(rs.Matern(2.0), 2, 20, rng=1, dtype="float64")
    return fourier(**choices) | other


def columns() -> Any:
    one = rs.FourierFeatures.sample(rs.Gaussian(0.5), 1, 20, rng=2, dtype="float64")
    return by_columns({"a": one, "b": one, ("b", "a"): fourier()}, ["a", "b"])


MAPS = {
    "pairs": fourier(),
    "phases": fourier(paired=False),
    "beside": beside(),
    "columns": columns(),
}
every_map = pytest.mark.parametrize("features", MAPS.values(), ids=MAPS)


@pytest.fixture
def X(rng):
    return rng.uniform(-2, 2, (50, 2))


@every_map
def test_a_derivative_is_the_limit_of_differences(features, X):
    step = 1e-5  # error: ω³h²/6 of |ω| < 40, and ε/h
    for j in range(2):
        move = step * np.eye(2)[j]
        expected = (features(X + move) - features(X - move)) / (2 * step)
        np.testing.assert_allclose(derivative(features, j)(X), expected, atol=1e-6)


@every_map
def test_a_box_mean_is_the_mean_of_finer_pixels(features, X):
    found = box_mean(features, (0.6, 0.9), points=(3, 2))(X)
    offsets = [(i, j) for i in (-0.2, 0.0, 0.2) for j in (-0.225, 0.225)]
    expected = np.mean([features(X + offset) for offset in offsets], axis=0)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@every_map
def test_a_box_mean_is_an_integral(features, X):
    nodes, weights = np.polynomial.legendre.leggauss(10)
    found, expected = box_mean(features, (0.6, 0.9))(X), 0
    for u, a in zip(nodes, weights, strict=True):
        for v, b in zip(nodes, weights, strict=True):
            expected = expected + a * b / 4 * features(X + np.array([0.3 * u, 0.45 * v]))
    np.testing.assert_allclose(found, expected, atol=1e-10)


@every_map
def test_a_box_without_sides_is_a_place(features, X):
    np.testing.assert_array_equal(box_mean(features, (0.0, 0.0))(X), features(X))


@every_map
def test_functionals_rebuild_from_their_spec(features, X):
    for each in (derivative(features, 1), box_mean(features, (0.5, 0.0))):
        plain, arrays = each.spec()
        again = map_from_spec(json.loads(json.dumps(plain)), arrays)
        assert again.fingerprint == each.fingerprint != features.fingerprint
        np.testing.assert_array_equal(again(X), each(X))
    plain, arrays = derivative(fourier(), 0).spec()
    with pytest.raises(ModelError, match="functional"):
        map_from_spec({k: v for k, v in plain.items() if k != "turned"}, arrays)


def test_a_row_has_the_same_bits_in_any_batch(X):
    for each in (derivative(fourier(dtype="float32"), 0), box_mean(fourier(), (1.0, 1.0))):
        np.testing.assert_array_equal(each(X)[7:8], each(X[7:8]))


def test_refusals(X):
    with pytest.raises(ValueError, match="column=2 but the map has 2 inputs"):
        derivative(fourier(), 2)
    with pytest.raises(ValueError, match="one width ≥ 0 for each"):
        box_mean(fourier(), (1.0,))
    with pytest.raises(ValueError, match="has no slopes"):
        derivative(Periodic(24.0), 0)
    with pytest.raises(ValueError, match="n_components=10"):
        derivative(fourier(), 0).prior(10)
    values = rs.collect(fourier(), X, X[:, 0])
    with pytest.raises(ModelError, match="Make the map of the observations"):
        observed(rs.collect(fourier(rng=1), X, X), values.row, 1.0)


class Mixed:
    """Values, slopes and coarse pixels of one function, as rows [Lz, c, y, w] and as moments."""

    def __init__(self, features: Any, rng: np.random.Generator, noise: float) -> None:
        def f(x: np.ndarray) -> np.ndarray:
            return 5 + np.sin(2 * x[:, 0]) * x[:, 1]

        def slope(x: np.ndarray) -> np.ndarray:
            return 2 * np.cos(2 * x[:, 0]) * x[:, 1]

        def pixel(x: np.ndarray) -> np.ndarray:  # mean over 1 by .5
            return 5 + np.sin(2 * x[:, 0]) * np.sinc(1 / np.pi) * x[:, 1]

        kinds = [
            (features, 1.0, f, 30, 1.0),
            (derivative(features, 0), 0.0, slope, 40, 0.25),
            (box_mean(features, (1.0, 0.5)), 1.0, pixel, 20, 4.0),
        ]
        self.rows, self.moments = [], None
        for own, constant, truth, n, weight in kinds:
            x = rng.uniform(-1.5, 1.5, (n, 2))
            y = truth(x) + noise * rng.standard_normal(n) / np.sqrt(weight)
            lazy = da.from_array(x, chunks=(11, 2))
            part = rs.collect(own, lazy, y, sample_weight=np.full(n, weight), progress=False)
            if self.moments is not None:
                part = observed(part, self.moments.row, constant)
            self.moments = part if self.moments is None else self.moments + part
            self.rows.append((own(x), np.full(n, constant), y, np.full(n, weight)))
        self.z, self.c, self.y, self.w = (
            np.concatenate(each) for each in zip(*self.rows, strict=True)
        )


@pytest.fixture
def mixed(rng):
    return Mixed(fourier(), rng, 0.1)


def test_ridge_on_values_slopes_and_pixels_is_that_of_all_rows(mixed):
    s, alpha = fourier().prior(), 0.02
    design = np.column_stack([mixed.z, mixed.c])
    penalty = np.diag(np.r_[alpha / s, 0.0])
    expected = np.linalg.solve(
        design.T @ (mixed.w[:, None] * design) + penalty, design.T @ (mixed.w * mixed.y)
    )
    found = ridge(mixed.moments, alpha)
    np.testing.assert_allclose(found.coef[:, 0], expected[:-1], atol=1e-8)
    np.testing.assert_allclose(found.intercept, expected[-1:], atol=1e-8)


def test_evidence_and_posterior_are_those_of_kriging_with_that_trend(mixed, X):
    """y ~ N(cμ, σ_f² Lz S (Lz)ᵀ + σₙ²/w) with flat μ: dense, in function space."""
    s = fourier().prior()
    found = evidence_at(mixed.moments, 0.05)
    noise, signal = found.noise_variance[0], found.signal_variance[0]
    K = signal * (mixed.z * s) @ mixed.z.T + np.diag(noise / mixed.w)
    inverse = np.linalg.inv(K)
    c, y, n = mixed.c, mixed.y, len(mixed.y)
    precision = c @ inverse @ c
    mu = c @ inverse @ y / precision
    rest = y - mu * c
    misfit = rest @ inverse @ rest
    log_p = -0.5 * (
        misfit + np.linalg.slogdet(K)[1] + np.log(precision) + (n - 1) * np.log(2 * np.pi)
    )
    np.testing.assert_allclose(found.log_evidence, log_p, rtol=1e-9)
    posterior, z = found.posterior(), fourier()(X)
    slopes = derivative(fourier(), 1)(X)
    for rows, one, process in ((z, 1.0, posterior), (slopes, 0.0, posterior.of_functionals())):
        cross = signal * (rows * s) @ mixed.z.T
        left = one - cross @ inverse @ c
        variance = signal * ((rows**2) @ s) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        variance += left**2 / precision
        np.testing.assert_allclose(
            process.mean(rows)[:, 0], one * mu + cross @ inverse @ rest, atol=1e-8
        )
        np.testing.assert_allclose(process.variance(rows)[:, 0], variance, atol=1e-8)


def test_slopes_of_a_fitted_process_are_its_differences(X, rng):
    Y = np.stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]], axis=1)
    model = rs.GaussianProcessRegressor(length_scale=1.0, n_components=60, random_state=0)
    model.set_params(noise=0.1, dtype="float64", progress=False).fit(X, Y)
    found = gradient(model.features_, model.coef_, X)
    assert found.shape == (50, 2, 2)
    step = 1e-5
    draws = model.posterior_.functions(4000, np.random.default_rng(1))
    std = gradient_std(model.features_, model.posterior_, X)
    for j in range(2):
        move = step * np.eye(2)[j]
        ahead, behind = X + move, X - move
        np.testing.assert_allclose(
            found[:, j], (model.predict(ahead) - model.predict(behind)) / (2 * step), atol=1e-6
        )
        values = draws(model.features_(ahead)) - draws(model.features_(behind))
        sampled = (values / (2 * step)).std(axis=0)
        # a deviation of 4,000 draws has an error of 1.1 %; the largest of 100 is within 3.5 of it
        np.testing.assert_allclose(std[:, j], sampled, rtol=0.05)


def test_moments_without_slopes_are_moved_exactly(X, rng):
    """Box means of no width are values: the same moments about another origin."""
    y = rng.normal(size=50) + 100
    values = rs.collect(fourier(), X, y)
    others = rs.collect(box_mean(fourier(), (0.0, 0.0)), X[:20], y[:20] - 3)
    moved = observed(others, values.row, 1.0)
    expected = rs.collect(fourier(), X[:20], y[:20] - 3, row=values.row)
    np.testing.assert_allclose(
        moved.matrix(), expected.matrix(), atol=1e-8 * np.abs(expected.sums).max()
    )
    assert spectrum(values + moved).system.n == 70
