"""Spectra of few rows and tridiagonal forms, beside the decomposition of R×R."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

import rff_stream as rs
from rff_stream.answers.evidence import evidence, evidence_at
from rff_stream.answers.principal_components import components
from rff_stream.answers.ridge import ridge
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import SumsDtype, accumulate
from rff_stream.systems import spectrum as room
from rff_stream.systems.normal_equations import ridge_system
from rff_stream.systems.spectrum import Spectrum, Tridiagonal, spectrum, tridiagonal

R = 256
EPS = np.finfo(np.float64).eps


def moments_of(n: int, d: int = 3, *, sums: SumsDtype = "float64", copies: int = 1) -> Moments:
    rng = np.random.default_rng(n)
    x = np.tile(rng.normal(size=(n // copies, d)), (copies, 1))
    y = np.stack([np.sin(x[:, 0]), x[:, -1] ** 2], axis=1) + 0.1 * rng.normal(size=(len(x), 2))
    features = rs.FourierFeatures.sample(rs.Gaussian(d**0.5), d, R, rng=0)
    return accumulate(features, x, y, rng.uniform(0.5, 2, len(x)), sums=sums)


def of_all(moments: Moments, monkeypatch: pytest.MonkeyPatch, **choices: bool) -> Spectrum:
    """The spectrum of R×R, however few the rows are."""
    with monkeypatch.context() as patch:
        patch.setattr(room, "FEW_ROWS", 0.0)
        return spectrum(moments, **choices)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("n", "copies"), [(1, 1), (2, 1), (20, 1), (60, 3), (150, 1)])
def test_few_rows_have_the_spectrum_of_all_columns(n, copies, fit_intercept, monkeypatch):
    moments = moments_of(n, copies=copies)
    few = spectrum(moments, fit_intercept=fit_intercept)
    full = of_all(moments, monkeypatch, fit_intercept=fit_intercept)
    different = n // copies - int(fit_intercept)
    assert 0 < len(few.eigenvalues) <= different + 2 if different else few.n_zeros == 0
    if n < 100:  # more rows of three inputs have smaller eigenvalues than rounding
        assert few.n_zeros == (R - different if different else 0)
    largest = full.eigenvalues[-1]
    np.testing.assert_allclose(few.all_eigenvalues, full.eigenvalues, atol=R * EPS * largest)
    assert few.eta == pytest.approx(full.eta, rel=1e-6, abs=R * EPS * largest)
    if not largest:
        return
    alpha = np.array([1e-3, 1.0]) * largest  # well above η: G's rounding moves nothing
    Z = np.random.default_rng(0).uniform(-1, 1, (50, R))
    unit = 1e3 * R * EPS * np.abs(Z @ full.coef(alpha)).max()
    np.testing.assert_allclose(Z @ few.coef(alpha), Z @ full.coef(alpha), atol=unit)
    np.testing.assert_allclose(few.df(alpha), full.df(alpha), rtol=1e-9)
    left = R * EPS * full.system.target_scatter.max()
    np.testing.assert_allclose(few.residual_scatter(alpha), full.residual_scatter(alpha), atol=left)


def test_the_directions_left_out_complete_a_basis(monkeypatch):
    moments = moments_of(40)
    few, full = spectrum(moments), of_all(moments, monkeypatch)
    whole = few.complete()
    basis = whole.rotation / whole.system.root_prior[:, None]
    np.testing.assert_allclose(basis.T @ basis, np.eye(R), atol=R * EPS)
    G = ridge_system(moments).matrix
    np.testing.assert_allclose(
        (basis * whole.eigenvalues) @ basis.T, G, atol=R * EPS * linalg.norm(G, 2)
    )
    assert whole.complete() is whole and full.complete() is full


def test_variances_see_directions_that_no_row_has(monkeypatch):
    moments = moments_of(40)
    Z = np.random.default_rng(1).uniform(-1, 1, (30, R))
    few = evidence_at(spectrum(moments), 0.3).posterior()
    full = evidence_at(of_all(moments, monkeypatch), 0.3).posterior()
    np.testing.assert_allclose(few.variance(Z), full.variance(Z), rtol=1e-9)
    prior = (Z - few.feature_mean) ** 2 @ moments.row.prior
    assert (few.variance(Z)[:, 0] > 0.5 * prior * few.noise_variance[0] / 0.3).all()


def test_evidence_of_few_rows_is_that_of_all_columns(monkeypatch):
    moments = moments_of(100)
    few, full = evidence(moments), evidence(of_all(moments, monkeypatch))
    np.testing.assert_allclose(few.alpha, full.alpha, rtol=1e-8)
    np.testing.assert_allclose(few.log_evidence, full.log_evidence, rtol=1e-8)


def test_a_given_penalty_of_few_rows_is_that_of_a_factor(monkeypatch):
    moments = moments_of(50)
    few = ridge(moments, [0.1, 2.0])
    monkeypatch.setattr("rff_stream.answers.ridge.VERY_FEW_ROWS", 0.0)
    factored = ridge(moments, [0.1, 2.0])
    np.testing.assert_allclose(few.coef, factored.coef, atol=1e-10 * np.abs(few.coef).max())
    np.testing.assert_allclose(few.df, factored.df, rtol=1e-9)
    np.testing.assert_allclose(ridge(moments, 0.0).df, 50, rtol=1e-12)  # rank 49, and the intercept


@pytest.mark.parametrize(("n", "d"), [(60, 3), (150, 1), (150, 3)])
def test_sums_of_float32_have_full_rank(n, d, monkeypatch):
    """Their rounding is in all directions, and η must see it.

    Of one input, pivots of rounding end below 0 long before there are n of them.
    """
    moments = moments_of(n, d, sums="float32")
    few, full = spectrum(moments), of_all(moments, monkeypatch)
    assert few.n_zeros == 0
    assert few.eta == full.eta > 1e-8
    assert (few.rotation == full.rotation).all()


def test_components_of_few_rows_are_those_of_all_columns(monkeypatch):
    moments = moments_of(40)
    few = components(moments, 5)
    with monkeypatch.context() as patch:
        patch.setattr(room, "FEW_ROWS", 0.0)
        full = components(moments, 5)
    np.testing.assert_allclose(few.variance, full.variance, rtol=1e-9)
    np.testing.assert_allclose(few.rotation, full.rotation, atol=1e-9 * np.abs(full.rotation).max())
    assert (components(moments, 60).variance[39:] == 0).all(), "more than there are directions"


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("sums", ["float64", "float32"])
def test_a_tridiagonal_form_answers_as_the_spectrum_does(fit_intercept, sums):
    moments = moments_of(2 * R, sums=sums)
    full = spectrum(moments, fit_intercept=fit_intercept)
    found = tridiagonal(ridge_system(moments, fit_intercept=fit_intercept))
    largest = full.eigenvalues[-1]
    unit = R * EPS * largest
    np.testing.assert_allclose(found.eigenvalues, full.eigenvalues, atol=unit)
    assert found.eta == pytest.approx(full.eta, rel=1e-6, abs=R * EPS * largest)
    alpha = np.array([1e-3, 1.0]) * largest
    Z = np.random.default_rng(0).uniform(-1, 1, (50, R))
    error = 1e3 * R * EPS * np.abs(Z @ full.coef(alpha)).max()
    np.testing.assert_allclose(Z @ found.coef(alpha), Z @ full.coef(alpha), atol=error)
    np.testing.assert_allclose(found.df(alpha), full.df(alpha), rtol=1e-9)
    for mine, theirs in zip(found.quadratics(alpha), full.quadratics(alpha), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    whole = found.directions()
    np.testing.assert_allclose(whole.eigenvalues, full.eigenvalues, atol=unit)
    np.testing.assert_allclose(Z @ whole.coef(alpha), Z @ full.coef(alpha), atol=error)
    spread = [(each.rotation**2 / (each.eigenvalues + alpha[0])).sum() for each in (whole, full)]
    assert spread[0] == pytest.approx(spread[1], rel=1e-9)


def test_a_penalty_below_rounding_is_refused_by_its_value():
    found = tridiagonal(ridge_system(moments_of(2 * R, sums="float32")))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite at alpha=1e-12"):
        found.solve(np.array([1e-12, 1e-12]))


def test_evidence_of_many_columns_needs_no_eigenvectors(monkeypatch):
    moments = moments_of(2 * R)
    full = evidence(moments)
    monkeypatch.setattr("rff_stream.answers.evidence.FEW_FEATURES", 0)
    found = evidence(moments)
    assert isinstance(found.spectrum, Tridiagonal) and isinstance(full.spectrum, Spectrum)
    np.testing.assert_allclose(found.alpha, full.alpha, rtol=1e-9)
    np.testing.assert_allclose(found.log_evidence, full.log_evidence, rtol=1e-12)
    Z = np.random.default_rng(1).uniform(-1, 1, (30, R))
    np.testing.assert_allclose(
        found.posterior().variance(Z), full.posterior().variance(Z), rtol=1e-8
    )
