"""Losses of regression, and the hinge: equal to scikit-learn and SciPy on equal features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.linear_model import HuberRegressor, PoissonRegressor, QuantileRegressor
from sklearn.svm import SVC, SVR

import rff_stream as rs
from rff_stream.answers.ridge import ridge
from rff_stream.descents.regression_penalty import choose_regression, regression_starts, unit_of
from rff_stream.descents.statistic import LossStatistic, minimisers
from rff_stream.errors import ModelError
from rff_stream.losses.classification import Hinge
from rff_stream.losses.penalised import Penalised
from rff_stream.losses.regression import (
    EpsilonInsensitive,
    Huber,
    NegativeBinomial,
    Poisson,
    Quantile,
    RegressionLoss,
    StudentT,
    regression_loss,
)
from rff_stream.moments.accumulate import accumulate, plain_row
from rff_stream.sources.protocol import Rows
from rff_stream.systems.normal_equations import ridge_system

R = 24
FEATURES = rs.FourierFeatures.sample(rs.Gaussian(0.7), 1, R, rng=0, dtype="float64")
LOSSES = {
    "huber": Huber(scale=0.2),
    "student_t": StudentT(scale=0.2),
    "epsilon_insensitive": EpsilonInsensitive(0.1),
    "quantile": Quantile(0.9),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(0.4),
}
CORNERED = [name for name, loss in LOSSES.items() if loss.nonsmooth]


class Data:
    """Rows with outliers, counts, weights."""

    def __init__(self, rng: np.random.Generator, n: int = 200) -> None:
        self.x = rng.uniform(-3, 3, (n, 1))
        wave = np.sin(2 * self.x[:, 0])
        self.real = wave + 0.2 * rng.standard_normal(n)
        self.real[::10] += 3
        self.counts = rng.poisson(np.exp(wave + 1)).astype(float)
        self.w = rng.integers(1, 4, n).astype(float)
        self.z = FEATURES(self.x) * np.sqrt(FEATURES.prior())

    def y(self, loss: RegressionLoss) -> np.ndarray:
        return self.counts if loss.log_link else self.real

    def rows(self, y: np.ndarray, w: np.ndarray | None = None) -> Rows:
        return Rows(self.x, y.reshape(len(y), -1), w, None, 0)


@pytest.fixture
def data(rng):
    return Data(rng)


def sums_over(rows: Rows) -> Any:
    def sums(statistic: LossStatistic) -> Any:
        parts = []
        for part in np.array_split(np.arange(len(rows.x)), 3):  # values of leaves add
            sink = statistic.start()
            w = None if rows.w is None else rows.w[part]
            label = None if rows.label is None else rows.label[part]
            sink.add(Rows(rows.x[part], rows.y[part], w, None, 0, label), part)
            parts.append(sink.result())
        return parts[0] + parts[1] + parts[2]

    return sums


def fit(
    loss: Any, rows: Rows, alpha: float, tol: float = 1e-4, features: Any = FEATURES
) -> tuple[Any, Any, Any]:
    """γ = β/√s and μ, and where the descent ended."""
    labels = (0, 1) if isinstance(loss, Hinge) else None
    y = rows.y if labels is None else 2.0 * rows.label[:, None] - 1
    moments = accumulate(features, rows.x, y, rows.w)
    problem = Penalised(ridge_system(moments), loss, alpha)
    nothing = np.empty((features.n_components, 0))
    statistic = LossStatistic(
        features, loss, labels, nothing, np.empty(0), (), None, plain_row(features)
    )
    if labels is None:
        (start,) = regression_starts(features, moments, [loss], np.array([alpha]), rows)
        unit = unit_of(loss, rows)
    else:
        least = ridge(moments, alpha)
        start, unit = (least.coef, least.intercept), 1.0
    sums = sums_over(rows)
    *_, last = minimisers(sums, statistic, problem, start, unit=unit, tol=tol, max_passes=150)
    coef, intercept = problem.linear(last.point.theta)
    return coef / np.sqrt(features.prior())[:, None], intercept, last


def objective(loss: Any, data: Data, y: np.ndarray, w: np.ndarray, alpha: float) -> Any:
    def value(theta: np.ndarray) -> float:
        F = data.z @ theta[:-1] + theta[-1]
        return float(w @ loss.value(F[:, None], y[:, None]) + alpha / 2 * theta[:-1] @ theta[:-1])

    return value


@pytest.mark.parametrize("name", ["huber", "student_t", "poisson", "negative_binomial"])
def test_smooth_losses_are_minimised_as_by_scipy(name, data):
    loss, alpha = LOSSES[name], 0.3
    y = data.y(loss)
    gamma, mu, last = fit(loss, data.rows(y, data.w), alpha, tol=1e-6)
    value = objective(loss, data, y, data.w, alpha)
    start = np.r_[gamma[:, 0], mu] if name == "student_t" else np.zeros(R + 1)
    exact = optimize.minimize(value, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 4000})
    assert last.converged and last.passes < 20
    assert value(np.r_[gamma[:, 0], mu]) == pytest.approx(exact.fun, rel=1e-9)
    found = data.z @ gamma[:, 0] + mu
    np.testing.assert_allclose(found, data.z @ exact.x[:-1] + exact.x[-1], atol=2e-4)


def test_values_are_log_likelihoods_of_scipy(data):
    f, y = np.linspace(-1, 1, 7)[:, None], np.arange(7.0)[:, None]
    loss = StudentT(3.0, 0.5)
    law = stats.t(3.0, scale=0.5)
    np.testing.assert_allclose(loss.values(f, y), law.logpdf(0) - law.logpdf(y - f))
    poisson = stats.poisson.logpmf(y, np.maximum(y, 1e-300)) - stats.poisson.logpmf(y, np.exp(f))
    np.testing.assert_allclose(Poisson().values(f, y), poisson, atol=1e-12)
    a = 0.4

    def log_p(mean):
        return stats.nbinom.logpmf(y, 1 / a, 1 / (1 + a * mean))

    binomial = log_p(np.maximum(y, 1e-300)) - log_p(np.exp(f))
    np.testing.assert_allclose(NegativeBinomial(a).values(f, y), binomial, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_epsilon_insensitive_is_svr(alpha, data):
    loss, y = EpsilonInsensitive(0.1), data.real
    gamma, mu, last = fit(loss, data.rows(y, data.w), alpha)
    exact = SVR(kernel="linear", C=1 / alpha, epsilon=0.1, tol=1e-8).fit(data.z, y, data.w)
    assert last.converged
    found = data.z @ gamma[:, 0] + mu
    np.testing.assert_allclose(found, exact.predict(data.z), atol=2e-3)
    value = objective(loss, data, y, data.w, alpha)
    least = value(np.r_[exact.coef_[0], exact.intercept_])
    assert value(np.r_[gamma[:, 0], mu]) <= least * (1 + 1e-8)
    width = unit_of(loss, data.rows(y, data.w)) * 1e-8 / 2
    supports = loss.with_width(width).supports(found[:, None], y[:, None])[:, 0]
    near = np.abs(np.abs(y - exact.predict(data.z)) - 0.1) < 1e-4  # on the tube: either way
    assert {*exact.support_} - {*np.flatnonzero(near)} == {*np.flatnonzero(supports & ~near)}


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_hinge_is_the_support_vector_machine(alpha, data):
    label = (data.real > 0.3).astype(int)
    rows = replace(data.rows(np.empty((200, 0)), data.w), label=label)
    loss = Hinge(2)
    gamma, mu, last = fit(loss, rows, alpha)
    exact = SVC(kernel="linear", C=1 / alpha, tol=1e-8).fit(data.z, label, data.w)
    assert last.converged
    found = data.z @ gamma[:, 0] + mu

    def total(theta):
        F = data.z @ theta[:-1] + theta[-1]
        return data.w @ loss.value(F[:, None], label) + alpha / 2 * theta[:-1] @ theta[:-1]

    least = total(np.r_[exact.coef_[0], exact.intercept_])
    assert least * (1 - 1e-5) < total(np.r_[gamma[:, 0], mu]) < least * (1 + 1e-8)
    np.testing.assert_allclose(found, exact.decision_function(data.z), atol=5e-3)
    margins = (2 * label - 1) * exact.decision_function(data.z)
    near = np.abs(margins - 1) < 1e-2
    supports = loss.with_width(1e-6).supports(found[:, None], label)[:, 0]
    assert {*exact.support_} - {*np.flatnonzero(near)} == {*np.flatnonzero(supports & ~near)}


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles_are_those_of_the_linear_program(q, data):
    """scikit-learn has no ridge penalty: α is next to nothing here, and the columns are few."""
    few = rs.FourierFeatures.sample(rs.Gaussian(0.4), 1, 8, rng=3, dtype="float64")
    z = few(data.x)
    exact = QuantileRegressor(quantile=q, alpha=0.0).fit(z, data.real, data.w)
    gamma, mu, last = fit(Quantile(q), data.rows(data.real, data.w), 1e-5, features=few)
    found = z @ (gamma[:, 0] * np.sqrt(few.prior())) + mu
    losses = [
        data.w @ Quantile(q).value(each[:, None], data.real[:, None])
        for each in (found, exact.predict(z))
    ]
    penalties = [0.5e-5 * (each**2).sum() for each in (gamma, exact.coef_ / np.sqrt(few.prior()))]
    assert losses[1] * (1 - 1e-9) <= losses[0]  # the least without a penalty
    assert losses[0] + penalties[0] <= (losses[1] + penalties[1]) * (1 + 1e-7)  # and with one
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    below = data.w @ (data.real < found) / data.w.sum()
    assert below == pytest.approx(q, abs=9 * 3 / data.w.sum())  # 9 rows are met exactly
    assert last.converged


def test_the_median_is_svr_without_a_tube(data):
    gamma, mu, _ = fit(Quantile(0.5), data.rows(data.real, data.w), 0.3)
    exact = SVR(kernel="linear", C=0.5 / 0.3, epsilon=0.0, tol=1e-8)
    exact.fit(data.z, data.real, data.w)
    np.testing.assert_allclose(data.z @ gamma[:, 0] + mu, exact.predict(data.z), atol=1e-3)


def test_huber_is_scikit_learns_at_its_scale(data):
    exact = HuberRegressor(epsilon=1.35, alpha=0.05, tol=1e-9, max_iter=5000)
    exact.fit(data.z, data.real, data.w)
    loss = Huber(1.35, float(exact.scale_))
    gamma, mu, _ = fit(loss, data.rows(data.real, data.w), 0.05 * float(exact.scale_))
    np.testing.assert_allclose(data.z @ gamma[:, 0] + mu, exact.predict(data.z), atol=1e-3)


def test_poisson_is_scikit_learns(data):
    alpha = 0.5
    exact = PoissonRegressor(alpha=alpha / data.w.sum(), tol=1e-9, max_iter=2000)
    exact.fit(data.z, data.counts, data.w)
    gamma, mu, last = fit(Poisson(), data.rows(data.counts, data.w), alpha)
    np.testing.assert_allclose(np.exp(data.z @ gamma[:, 0] + mu), exact.predict(data.z), rtol=1e-4)
    assert last.passes <= 8


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_and_curvatures_are_those_of_the_values(name, data):
    loss = LOSSES[name].with_width(0.05) if LOSSES[name].nonsmooth else LOSSES[name]
    y = data.y(loss)[:, None]
    F, step = 0.5 * np.sin(np.arange(len(y)))[:, None], 1e-5
    ahead, behind = loss.values(F + step, y), loss.values(F - step, y)
    np.testing.assert_allclose(loss.slope(F, y), (ahead - behind) / (2 * step), atol=1e-5)
    if name != "student_t":  # there a parabola above the loss
        second = (loss.slope(F + step, y) - loss.slope(F - step, y)) / (2 * step)
        if name == "huber":
            second = np.where(
                np.abs(second - np.round(second)) < 1e-9, second, loss.curvatures(F, y)
            )
        np.testing.assert_allclose(loss.curvatures(F, y), second, atol=1e-4)
    assert (loss.values(F, y) >= -1e-12).all()
    assert loss.value(F, y).shape == (len(y),)


@pytest.mark.parametrize("name", CORNERED)
def test_a_rounded_corner_is_above_the_loss_by_at_most_its_width(name, data):
    loss, y = LOSSES[name], data.real[:, None]
    F = np.linspace(-2, 2, len(y))[:, None]
    more = loss.with_width(0.01).values(F, y) - loss.values(F, y)
    assert (more >= 0).all() and more.max() <= 0.01 * 1.1  # two corners for the tube


@pytest.mark.parametrize("name", LOSSES)
def test_losses_come_back_from_their_spec_and_name(name):
    loss = LOSSES[name]
    assert regression_loss(loss.spec()) == loss
    assert type(regression_loss(name)) is type(loss)
    assert regression_loss(loss) is loss


def test_refusals(data):
    with pytest.raises(ValueError, match="loss='hubber' but it must be one of"):
        regression_loss("hubber")
    with pytest.raises(ModelError, match="no parameters"):
        regression_loss({"loss": "poisson", "power": 2})
    with pytest.raises(ValueError, match=r"quantile=1\.0"):
        Quantile(1.0)
    with pytest.raises(ValueError, match="epsilon=-1"):
        EpsilonInsensitive(-1)
    with pytest.raises(ValueError, match="delta=0"):
        Huber(0)
    with pytest.raises(ValueError, match="poisson is for counts"):
        Poisson().check_targets(data.real)
    with pytest.raises(ModelError, match="no scale yet"):
        Huber().values(np.zeros((1, 1)), np.ones((1, 1)))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("y", [0.5, 3.0, 1e8])
def test_the_unit_of_a_constant_target_is_one(name, y, data):
    """It was the smallest number, of which steps were multiples: overflow in every product."""
    loss = replace(LOSSES[name], scale=None) if name in ("huber", "student_t") else LOSSES[name]
    rows = data.rows(np.full(200, y), data.w)
    constant = np.tile(loss.constant(rows.y, data.w), (200, 1))
    assert unit_of(loss.of_residuals(constant, rows.y, data.w), rows) == 1


def test_the_scale_of_counts_with_many_zeros_is_that_of_the_others():
    y, w = np.r_[np.zeros(60), np.full(40, 2.0)][:, None], np.ones(100)
    assert Huber().of_residuals(np.zeros((100, 1)), y, w).scale == pytest.approx(2 * 1.4826)
    assert Huber().of_residuals(y, y, w).scale == 1


def test_scale_and_penalty_come_from_held_out_rows(rng):
    data = Data(rng, 1200)
    rows = data.rows(data.real, np.ones(1200))
    found = choose_regression(FEATURES, plain_row(FEATURES), rows, Huber(), None)
    # a tenth of the rows are 3 too high: the median miss is that of the other nine, 13 % larger
    assert found.loss.scale == pytest.approx(0.2 * 1.15, rel=0.15)
    assert found.selection.best.alpha == found.alpha and found.selection.best.score < 0.3
    # each quarter of few rows is held out: every row has a score of a fit without it
    held_out = np.median(np.abs(found.scores - rows.y)) * 1.4826
    assert held_out == pytest.approx(found.loss.scale, rel=1e-3)
    given = choose_regression(FEATURES, plain_row(FEATURES), rows, Huber(), 0.1)
    assert given.alpha == 0.1 and given.selection is None
    assert given.loss.scale == pytest.approx(found.loss.scale, rel=0.1)
    mean = np.exp(np.sin(2 * data.x[:, 0]) + 1)
    crowd = rng.poisson(mean * rng.gamma(2.0, 0.5, 1200)).astype(float)  # a = 1/2
    rows = data.rows(crowd, np.ones(1200))
    found = choose_regression(FEATURES, plain_row(FEATURES), rows, NegativeBinomial(), None)
    assert found.loss.dispersion == pytest.approx(0.5, rel=0.3)
