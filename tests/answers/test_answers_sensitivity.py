"""Any prior, sensitivity and pre-images: dense formulas, scikit-learn, SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.inspection import partial_dependence as sklearn_partial_dependence

import rff_stream as rs
from reference_answers import fourier, moments_of
from rff_stream.answers.evidence import evidence_at, log_evidence
from rff_stream.answers.posterior import posterior, spectrum_under_prior
from rff_stream.answers.principal_components import components, pre_images
from rff_stream.answers.sensitivity import (
    length_scale_relevance,
    partial_dependence,
    redrawn_variance,
    sobol_indices,
)
from rff_stream.errors import NumericalWarning
from rff_stream.moments.accumulate import accumulate
from rff_stream.predictors import LinearPredictor


@pytest.fixture
def problem(rng):
    x = rng.uniform(-2, 2, (70, 2))
    z = fourier(x, 12)
    y = np.sin(x[:, :1]) + 0.1 * rng.standard_normal((70, 1))
    root = rng.normal(size=(12, 12))
    return z, y, rng.uniform(0.5, 2.0, 70), root @ root.T


def test_posterior_under_a_general_prior_is_rasmussen_and_williams(problem, rng):
    """A = σₙ⁻² ΦWΦᵀ + Σ⁻¹, N(σₙ⁻² A⁻¹ΦWy, A⁻¹): equations 2.8 and 2.9."""
    z, y, w, covariance = problem
    noise, signal = 0.4, 0.005
    A = (z.T * w) @ z / noise + np.linalg.inv(signal * covariance)
    mean = np.linalg.solve(A, (z.T * w) @ y / noise)
    spectrum = spectrum_under_prior(moments_of(z, y, w), covariance, fit_intercept=False)
    found = posterior(spectrum, np.array([noise / signal]), np.array([noise]))
    new = fourier(rng.uniform(-2, 2, (20, 2)), 12)
    np.testing.assert_allclose(found.mean(new), new @ mean, atol=1e-7)
    variance = np.einsum("ir,ri->i", new, np.linalg.solve(A, new.T))
    np.testing.assert_allclose(found.variance(new)[:, 0], variance, rtol=1e-7)
    K = signal * z @ covariance @ z.T + np.diag(noise / w)
    expected = stats.multivariate_normal(np.zeros(70), K).logpdf(y[:, 0])
    value = log_evidence(spectrum, noise / signal, noise)
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_a_diagonal_prior_is_that_of_the_map(problem):
    z, y, w, _ = problem
    moments = moments_of(z, y, w)
    same = spectrum_under_prior(moments, np.diag(moments.row.prior))
    for each in (evidence_at(same, 0.1), evidence_at(moments, 0.1)):
        np.testing.assert_allclose(each.log_evidence, evidence_at(moments, 0.1).log_evidence)
        np.testing.assert_allclose(
            each.posterior().coef, evidence_at(moments, 0.1).posterior().coef
        )


def test_a_singular_prior_keeps_coefficients_in_its_range(problem):
    z, y, w, covariance = problem
    values, vectors = np.linalg.eigh(covariance)
    kept = vectors[:, 4:] * values[4:] @ vectors[:, 4:].T
    found = evidence_at(spectrum_under_prior(moments_of(z, y, w), kept), 500.0).posterior()
    assert np.abs(vectors[:, :4].T @ found.coef).max() < 1e-6 * np.abs(found.coef).max()
    low = evidence_at(moments_of(z @ vectors[:, 4:], y, w, prior=values[4:]), 500.0).posterior()
    np.testing.assert_allclose(found.mean(z), low.mean(z @ vectors[:, 4:]), atol=1e-6)


def test_priors_that_are_none_are_refused(problem):
    z, y, w, covariance = problem
    with pytest.raises(ValueError, match="12 by 12"):
        spectrum_under_prior(moments_of(z, y, w), covariance[:5, :5])
    with pytest.raises(ValueError, match="none below 0"):
        spectrum_under_prior(moments_of(z, y, w), covariance - 5 * np.eye(12))


def ishigami(x):
    a, b, c = x.T
    return (np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a))[:, None]


def test_sobol_indices_of_ishigami_are_the_published_ones():
    """Shares .314, .442, 0 alone and .558, .442, .244 in all (Saltelli et al.)."""
    x = np.pi * (2 * (np.arange(4096) + 0.5) / 4096 - 1)
    rows = np.column_stack([x, x, x])
    found = sobol_indices(ishigami, rows, size=16384)
    for value, error, exact in (
        (found.first, found.first_error, [0.3139, 0.4424, 0.0]),
        (found.total, found.total_error, [0.5576, 0.4424, 0.2437]),
    ):
        np.testing.assert_allclose(value[:, 0], exact, atol=0.01)
        assert (np.abs(value[:, 0] - exact) < 6 * error[:, 0] + 1e-3).all()
    assert found.variance[0] == pytest.approx(13.845, rel=0.01)


def test_sobol_indices_of_a_fitted_model(rng):
    X = rng.normal(size=(2000, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    model = rs.KernelRidge(length_scale=2.0, n_components=256, random_state=0, progress=False)
    model.fit(X, y)
    function = LinearPredictor(model.features_, model.coef_[:, None], np.array([model.intercept_]))
    rows = model.moments_.sample.rows[:, :3]
    found = sobol_indices(function, rows)
    parts = np.var(np.sin(X[:, 0])), np.var(0.5 * X[:, 1])
    np.testing.assert_allclose(found.first[:2, 0], parts / np.sum(parts), atol=0.03)
    assert found.total[2, 0] < 0.01


def test_a_constant_target_has_no_indices_and_a_warning_says_so(rng):
    """They were NaN without a word, or 0 where the mean of the constant was rounded."""
    x = rng.uniform(size=(300, 2))
    model = rs.KernelRidge(n_components=32, random_state=0, progress=False)
    with pytest.warns(NumericalWarning, match="Target y1 is constant"):
        model.fit(x, np.column_stack([x[:, 0], np.full(300, 3.3)]))
    with pytest.warns(NumericalWarning, match=r'The fit of "y1" has one value .* Leave this'):
        found = rs.inspect.sobol_indices(model, size=256)
    assert np.isnan(found.total[:, 1]).all() and np.isfinite(found.total[:, 0]).all()


def test_partial_dependence_is_scikit_learns(rng):
    X = rng.normal(size=(300, 2))
    model = rs.KernelRidge(length_scale=1.0, n_components=64, random_state=0, progress=False)
    model.fit(X, X[:, 0] * X[:, 1])
    exact = sklearn_partial_dependence(model, X, [1], method="brute", grid_resolution=7)
    grid = exact["grid_values"][0]
    found = partial_dependence(lambda x: model.predict(x)[:, None], X, 1, grid)
    np.testing.assert_allclose(found[:, 0], exact["average"][0], atol=1e-10)


def test_relevance_counts_length_scales():
    found = length_scale_relevance(np.array([0.5, np.inf]), np.array([1.0, 3.0]))
    np.testing.assert_array_equal(found, [2.0, 0.0])


@pytest.fixture
def circle(rng):
    angle = rng.uniform(0, 2 * np.pi, 400)
    exact = np.column_stack([np.cos(angle), np.sin(angle)])
    return exact, exact + 0.15 * rng.standard_normal(exact.shape)


FEATURES = rs.FourierFeatures.sample(rs.Gaussian(0.8), 2, 256, rng=0, dtype="float64")


def distance(x, point, prior):
    return float(((np.sqrt(prior) * FEATURES(x.reshape(1, -1))[0] - point) ** 2).sum())


def test_pre_images_are_minima_that_scipy_finds(circle):
    _, noisy = circle
    found = components(accumulate(FEATURES, noisy), 6)
    rows = noisy[:20]
    images = pre_images(FEATURES, found, found(FEATURES(rows)), rows)
    prior = FEATURES.prior()
    points = np.sqrt(prior) * found.feature_mean
    points = points + found(FEATURES(rows)) @ (found.rotation / np.sqrt(prior)[:, None]).T
    for image, row, point in zip(images, rows, points, strict=True):
        exact = optimize.minimize(distance, row, (point, prior), tol=1e-12)
        assert distance(image, point, prior) <= exact.fun + 1e-7


def test_rows_are_the_pre_images_of_all_their_coordinates(circle, rng):
    _, noisy = circle
    found = components(accumulate(FEATURES, noisy), 256)
    images = pre_images(FEATURES, found, found(FEATURES(noisy[:30])), noisy[:30] + 0.1)
    np.testing.assert_allclose(images, noisy[:30], atol=1e-3)


def test_pre_images_take_noise_away(circle):
    _, noisy = circle
    found = components(accumulate(FEATURES, noisy), 6)
    images = pre_images(FEATURES, found, found(FEATURES(noisy)), noisy)
    off = [np.abs(np.linalg.norm(x, axis=1) - 1).mean() for x in (noisy, images)]
    assert off[1] < 0.5 * off[0]


def test_inverse_transform_gives_rows_near_the_clean_ones(circle):
    _, noisy = circle
    choices = {"n_map_components": 256, "length_scale": 0.8, "random_state": 0, "progress": False}
    model = rs.KernelPCA(6, **choices).fit(noisy)
    coordinates = model.transform(noisy[:50])
    for found in (
        model.inverse_transform(coordinates),
        model.inverse_transform(coordinates, noisy[:50]),
    ):
        assert found.shape == (50, 2)
        assert np.abs(np.linalg.norm(found, axis=1) - 1).mean() < 0.06
        np.testing.assert_allclose(model.transform(found), coordinates, atol=0.2)
    with pytest.raises(ValueError, match=r"no row sample .*way back begins"):
        rs.KernelPCA(6, sample_rows=0, **choices).fit(noisy).inverse_transform(coordinates)


def test_redrawn_columns_have_the_variance_of_their_values(rng):
    """Of levels with weights, and of values that are too many to take all."""
    rows = np.column_stack([rng.choice(3, 900, p=[0.7, 0.2, 0.1]), rng.normal(size=(900, 2))])

    def function(x):
        return 2 * x[:, :1] + x[:, 1:2] * x[:, 2:]

    assert redrawn_variance(function, rows, [0])[0] == pytest.approx(4 * rows[:, 0].var())
    even = np.column_stack([rng.permutation(900), rng.normal(size=(900, 2))])  # 32 of 900 values
    assert redrawn_variance(function, even, [0])[0] == pytest.approx(4 * even[:, 0].var(), rel=0.01)
    together = even[:, [0, 0]]  # columns that are drawn together vary together
    drawn = redrawn_variance(lambda x: x[:, :1] - x[:, 1:], together, [0, 1])
    assert drawn[0] == 0
