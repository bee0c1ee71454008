"""Conjugate-gradient steps remove the rounding of float32 sums."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rff_stream as rs


def data(n: int = 6000, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.01 * rng.standard_normal(n)
    return X, np.column_stack([y, np.cos(y)]), rng.uniform(0.5, 2.0, n)


def model(**choices: object) -> rs.KernelRidge:
    fixed: dict[str, object] = {
        "length_scale": 2.0,
        "n_components": 128,
        "alpha": 1e-3,
        "random_state": 0,
        "progress": False,
    }
    return rs.KernelRidge(**fixed | choices)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_refined_float32_sums_equal_float64_sums(fit_intercept: bool, weighted: bool) -> None:
    X, y, w = data()
    weights = w if weighted else None
    exact = model(sums="float64", fit_intercept=fit_intercept).fit(X, y, weights).predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.NumericalWarning)
        rough = model(sums="float32", fit_intercept=fit_intercept).fit(X, y, weights).predict(X)
    refined = model(sums="float32", refine=8, fit_intercept=fit_intercept).fit(X, y, weights)
    before, after = np.abs(rough - exact).max(), np.abs(refined.predict(X) - exact).max()
    assert after < 1e-6 * np.abs(exact).max()
    assert after < before / 10
    np.testing.assert_allclose(refined.alpha_, 1e-3)


def test_the_error_that_steps_leave_is_measured_and_a_warning_names_it() -> None:
    """α is far below the rounding in the sums: one step is too few, and so are ten."""
    X, y, _ = data()
    exact = model(sums="float64", alpha=1e-6).fit(X, y[:, 0]).predict(X)
    for steps, least in ((1, 1e-2), (10, 1e-4)):
        with pytest.warns(rs.NumericalWarning, match=f"refine={steps} left an error of") as caught:
            found = model(sums="float32", alpha=1e-6, refine=steps).fit(X, y[:, 0]).predict(X)
        told = float(str(caught[0].message).split("error of ")[1].split()[0])
        error = np.sqrt(np.mean((found - exact) ** 2)) / exact.std()
        assert least < error < told < 30 * error
        assert f"Use refine={2 * steps}" in str(caught[0].message)


def test_no_step_leaves_float64_sums_as_they_are() -> None:
    X, y, _ = data(2000)
    plain = model(sums="float64").fit(X, y)
    refined = model(sums="float64", refine=2).fit(X, y)
    np.testing.assert_allclose(refined.coef_, plain.coef_, rtol=1e-6, atol=1e-8)


def test_steps_end_where_nothing_is_left_to_remove() -> None:
    """Each is a pass: a large number of them read the rows for ever."""
    X, y, _ = data(2000)
    exact = model(sums="float64").fit(X, y).predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.NumericalWarning)
        found = model(sums="float32", refine=2**62).fit(X, y).predict(X)
    assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()


def test_a_negative_number_of_steps_is_refused() -> None:
    X, y, _ = data(100)
    with pytest.raises(ValueError, match="refine=-1"):
        model(refine=-1).fit(X, y)
