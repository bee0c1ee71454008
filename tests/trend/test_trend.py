"""A map beside a line: the map for what the line leaves, and the line; and where it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.choice.map import CandidateFeatures
from rff_stream.errors import ModelError, NumericalWarning
from rff_stream.families import family_of
from rff_stream.features.base import map_from_spec
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.linear_fit import PENALTIES, LinearFit
from rff_stream.length_scales.map_search import MapSearch
from rff_stream.length_scales.scale_search import MORE_STEPS
from rff_stream.length_scales.window_evidence import RowWindow
from rff_stream.trend.map import TrendFeatures

N = 400
QUIET = {"random_state": 0, "progress": False}


def rows(rng: Any, n: int = N, n_targets: int = 1) -> tuple[Any, Any]:
    X = rng.normal(size=(n, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    y = np.stack([f + 3 * X[:, 2], f - X[:, 0]], axis=1)[:, :n_targets]
    y = y + 0.1 * rng.normal(size=y.shape)
    return X, y[:, 0] if n_targets == 1 else y


def maps(rng: Any, n_targets: int, several: bool) -> tuple[Any, Any, LinearTrend]:
    """Cells, or two of them, alone and beside a line."""
    x = rng.normal(size=(N, 3))
    cells = [
        rs.LocalFeatures.sample(rs.Gaussian(scale), x, n_cells=4, n_trees=2, n_components=32, rng=i)
        for i, scale in enumerate((1.0, 3.0))
    ]
    plain = CandidateFeatures(tuple(cells)) if several else cells[0]
    root = np.diag([0.05, 0.02, 0.01])
    slopes, noise = rng.normal(size=(3, n_targets)), np.full(n_targets, 0.5)
    trend = LinearTrend(np.array([0.5, 0, -1]), slopes, root, noise)
    return plain, TrendFeatures(plain, trend), trend


def in_order(x: Any) -> Any:
    """Rows in one order, whatever it was."""
    return x[np.lexsort(x[:, :3].T)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*one input alone")
@pytest.mark.parametrize(("n_targets", "several"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_it_is_the_map_for_what_the_line_leaves_and_the_line(
    kind: Any, n_targets: int, several: bool, rng: Any, tmp_path: Path
) -> None:
    X, y = rows(rng, n_targets=n_targets)
    more, ask = rows(rng, 100, n_targets), rng.normal(size=(50, 3))
    plain, beside, trend = maps(rng, n_targets, several)

    def line(x: Any) -> Any:
        return trend(x) if n_targets > 1 else trend(x)[:, 0]

    known = kind(features=plain, **QUIET).fit(X, y - line(X), batch="a")
    found = kind(features=beside, **QUIET).fit(X, y, batch="a")

    def same(found: Any) -> None:
        np.testing.assert_allclose(found.predict(ask), known.predict(ask) + line(ask), atol=1e-9)
        own, of_rest = found._fitted.answer, known._fitted.answer
        slopes = of_rest.slopes()(ask) + trend.slopes
        np.testing.assert_allclose(own.slopes()(ask), slopes, atol=1e-9)
        sample = [in_order(each.moments_.sample.rows) for each in (found, known)]
        np.testing.assert_allclose(sample[0][:, 3:-1] - trend(sample[0][:, :3]), sample[1][:, 3:-1])
        if kind is rs.KernelRidge:
            return
        left = own.leave_one_out(sample[0]), of_rest.leave_one_out(sample[1])
        np.testing.assert_allclose(*left, atol=1e-9)
        variance = trend.variance(ask).reshape(line(ask).shape)
        for noise in (False, True):
            mean, std = found.predict(ask, return_std=True, noise=noise)
            rest = known.predict(ask, return_std=True, noise=noise)[1]
            np.testing.assert_allclose(std, np.sqrt(rest**2 + variance))
            np.testing.assert_array_equal(mean, found.predict(ask))

    same(found)
    np.testing.assert_allclose(in_order(found.moments_.sample.rows)[:, 3:-1].squeeze(),
                               in_order(np.column_stack([X, y]))[:, 3:].squeeze())  # fmt: skip
    found.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict(ask), found.predict(ask))
    before = again.predict(ask)
    known.update(more[0], more[1] - line(more[0]), batch="b")
    for each in (found, again):
        same(each.update(*more, batch="b"))
    np.testing.assert_array_equal(rs.load(tmp_path / "m.zarr").predict(ask), again.predict(ask))
    np.testing.assert_allclose(again.forget("b").predict(ask), before, atol=1e-9)


def test_a_line_is_that_of_least_error_at_rows_left_out(rng: Any) -> None:
    """Residuals without each row, its leverage and the variance, by fits without the row."""
    n, d = 40, 3
    x, w = rng.normal(size=(n, d)) * [1.0, 100.0, 0.0], rng.uniform(0.5, 2.0, n)
    y = np.stack([x[:, 0], x[:, 1] / 50], axis=1) + rng.normal(size=(n, 2))

    def dense(rows: Any, penalty: float) -> tuple[Any, Any, Any]:
        middle = np.average(x[rows], 0, w[rows]), np.average(y[rows], 0, w[rows])
        scale = np.sqrt(np.average((x - np.average(x, 0, w)) ** 2, 0, w)) + (x.std(axis=0) == 0)
        u = (x - middle[0]) / scale
        gram = np.linalg.inv((u[rows].T * w[rows]) @ u[rows] + penalty * w.sum() * np.eye(d))
        b = gram @ (u[rows].T * w[rows]) @ (y[rows] - middle[1])
        return middle[1] + u @ b, b / scale[:, None], np.einsum("ij,jk,ik->i", u, gram, u)

    everyone = np.arange(n)
    errors = [
        [y[i] - dense(everyone[everyone != i], each)[0][i] for i in range(n)] for each in PENALTIES
    ]
    best = PENALTIES[np.argmin([(w[:, None] * np.square(each)).sum() for each in errors])]
    line, (values, slopes, reach) = LinearFit.of(x, y, w), dense(everyone, best)
    np.testing.assert_allclose(line.slopes, slopes, atol=1e-9)
    np.testing.assert_allclose(line.residuals(x, y), y - values, atol=1e-9)
    leverage = line.leverage(x, w)
    np.testing.assert_allclose(leverage, w * (1 / w.sum() + reach), atol=1e-9)
    left = line.residuals(x, y) / (1 - leverage)[:, None]
    np.testing.assert_allclose(left, errors[PENALTIES.tolist().index(best)], rtol=2e-3)
    trend = LinearTrend(line.origin, line.slopes, line.root, np.array([2.0, 3.0]))
    np.testing.assert_allclose(trend.variance(x), reach[:, None] * [2.0, 3.0])


@pytest.mark.parametrize("bounded", [False, True])
def test_a_line_that_is_worse_than_the_mean_at_far_rows_does_not_serve(
    bounded: bool, rng: Any
) -> None:
    """Most of y is a line; where inputs of heavy tails are far out it stays what it was, or not."""
    x = rng.standard_t(2, (2000, 2))
    y = np.where(abs(x).max(axis=1, keepdims=True) < 4, x, 0.0) if bounded else x
    y, w = y.sum(axis=1, keepdims=True) + 0.1 * rng.normal(size=(2000, 1)), np.ones(2000)
    line = LinearFit.of(x, y, w)
    assert np.square(line.residuals(x, y)).mean() < 0.8 * y.var()
    assert line.serves_far_rows(x, y, w) is not bounded


def test_an_input_that_is_constant_in_the_rows_of_a_line_has_no_slope(rng: Any) -> None:
    """Its mean is rounded, and its deviation was 1e-17: slopes of 1e8 for rows where it differs."""
    x = np.column_stack([rng.normal(size=90), np.full(90, 0.1)])
    line = LinearFit.of(x, x[:, :1] + 0.1 * rng.normal(size=(90, 1)), np.ones(90))
    assert line.slopes[1, 0] == 0 and (line.root[1] == 0).all()


def test_a_line_through_all_rows_does_not_count_as_one_without_errors(rng: Any) -> None:
    """1 − h of 10⁻⁹ counted as 10⁻⁶: noise of 26 inputs had errors of .1."""
    for n in 20, 26, 27, 28:
        x, y = rng.normal(size=(n, 26)), rng.normal(size=(n, 1))
        line = LinearFit.of(x, y, np.ones(n))
        left = line.residuals(x, y)[:, 0] / (1 - line.leverage(x, np.ones(n)))
        alone = (y - (y.sum() - y) / (n - 1)).std()  # the mean of the others
        assert np.sqrt((left**2).mean()) > 0.5 * alone


def heavy(rng: Any, n: int) -> tuple[Any, Any]:
    """A line of an input with rare large values, and waves of its logarithm."""
    X = np.column_stack([rng.lognormal(0, 1.5, n), rng.uniform(-2, 2, (n, 2))])
    return X, X[:, 0] + np.sin(4 * np.log(X[:, 0])) * X[:, 2] + 0.05 * rng.normal(size=n)


@pytest.mark.slow
def test_the_bare_call_takes_a_line_where_it_pays(rng: Any) -> None:
    """Rare large values have no near rows: scores alone are many times as far off there."""
    (X, y), (X_test, y_test) = heavy(rng, 500), heavy(rng, 500)
    fit = rs.GaussianProcessRegressor(**QUIET).fit(X, y)
    assert isinstance(fit.features_, TrendFeatures) and fit.choice_.taken.startswith("a line + ")
    few, rare = X_test[:, 0] < 5, X_test[:, 0] > 5
    scores = rs.GaussianProcessRegressor(features=fit.features_.map, **QUIET).fit(X, y)
    for asked, most in ((few, 2.0), (rare, 0.5)):
        own, other = (
            np.sqrt(np.mean((each.predict(X_test[asked]) - y_test[asked]) ** 2))
            for each in (fit, scores)
        )
        assert own < most * other
    far = fit.predict(np.array([[1e6, 0.0, 0.0]]), return_std=True)
    assert abs(far[0][0] - 1e6) < 4 * far[1][0], "what is far is unsure"
    with pytest.warns(NumericalWarning, match="tell of the map alone: trend_slopes_ has the line"):
        rs.inspect.relevance(fit)
    np.testing.assert_allclose(fit.trend_slopes_, [1, 0, 0], atol=0.5)
    shown = {each.name for each in fit.choice_.trials}
    assert {"their normal scores", "what a line leaves"} <= shown
    assert repr(fit.features_).startswith("<Trend: a line + ")


@pytest.mark.slow
def test_a_line_of_many_rows_is_compared_with_as_many_steps_without_it() -> None:
    """The steps alone made a line of two tables look better than none."""
    X, y = heavy(np.random.default_rng(0), 1200)
    fit = rs.GaussianProcessRegressor(**QUIET).fit(X, y)
    assert fit.choice_.taken.startswith("a line + ")
    errors = dict(zip(fit.choice_.names, fit.choice_.errors, strict=True))
    assert errors["what a line leaves"] < errors[MORE_STEPS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "share", "taken"),
    [(400, 1, True), (400, 1.3, False), (900, 1, False), (11, 0.7, False), (11, 0.4, True)],
)
def test_of_few_rows_a_line_is_taken_unless_it_is_worse(
    n: int, share: float, taken: bool, rng: Any
) -> None:
    errors = rng.standard_normal((n, 1))

    class Judged(MapSearch):
        def _judge(self, name: str, fit: Any, started: float, *_: Any, **__: Any) -> None:
            own = share * errors[::-1] if "leaves" in name else errors
            found = Candidate(name, fit.kernel, fit.matrix, fit.alpha, self.shape, own, 0.0)
            self.candidates.append(found)

    x = rng.standard_normal((n, 2))
    rows = RowWindow(x, x[:, :1] + 0.1 * rng.standard_normal((n, 1)), np.ones(n))
    search = Judged(
        rows, [rows], True, [rs.Gaussian()], CellShape(n, n), rng, metric=False, trends=True
    )
    search.run()
    assert (search.trend is not None) == taken


def test_a_line_of_so_few_rows_is_not_taken() -> None:
    """Three rows for two numbers: what is left out of them hardly tells a line from a curve."""
    missed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (308, 3))
        f = np.sin(4 * X[:, 0] + X[:, 1])
        fit = rs.KernelRidge(**QUIET).fit(X[:8], f[:8] + 0.5 * rng.normal(size=8))
        assert not isinstance(fit.features_, TrendFeatures)
        missed.append(np.square(fit.predict(X[8:]) - f[8:]).mean())
    assert np.mean(missed) < 0.7  # .62; with lines .82, of the mean .56


def test_so_few_rows_of_a_line_are_one() -> None:
    """Without it errors were .0005 to .03: 14 length-scales do not follow from 25 rows."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(0, 1.5, (75, 14))
    y = X @ rng.uniform(0.5, 1.5, 14)
    fit = rs.GaussianProcessRegressor(**QUIET).fit(X[:25], y[:25])
    assert isinstance(fit.features_, TrendFeatures)
    assert np.std(fit.predict(X[25:]) - y[25:]) < 1e-5 * y.std()


@pytest.mark.slow
def test_a_curve_has_no_line(rng: Any) -> None:
    X = rng.uniform(-2, 2, (600, 2))
    y = np.cos(3 * X[:, 0]) * X[:, 1] ** 2 + 0.05 * rng.normal(size=600)
    fit = rs.KernelRidge(**QUIET).fit(X, y)
    assert not isinstance(fit.features_, TrendFeatures)
    assert "what a line leaves" not in fit.choice_.names


def test_what_a_line_cannot_do_is_refused(rng: Any) -> None:
    X, y = rows(rng)
    _, beside, trend = maps(rng, 1, False)
    assert family_of(beside).name is None
    with pytest.raises(ValueError, match="beside a line is for KernelRidge and Gaussian"):
        rs.KernelClassifier(features=beside, **QUIET).fit(X, y > 0)
    with pytest.raises(ValueError, match="beside a line is solved once"):
        rs.KernelRidge(features=beside, refine=2, **QUIET).fit(X, y)
    with pytest.raises((ValueError, ModelError), match="beside a line is read to the end"):
        rs.KernelRidge(features=beside, **QUIET).fit(X, y, until=0.1)
    with pytest.raises(ValueError, match="found by a search"):
        TrendFeatures.drawn_for("trend", None)  # type: ignore[arg-type]
    again: Any = map_from_spec(*beside.spec())
    assert again.fingerprint == beside.fingerprint and again.nesting == "none"
    np.testing.assert_array_equal(again.trend(X), trend(X))


@pytest.mark.slow
def test_a_line_goes_on_beside_a_target_of_much_noise() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, far = rng.uniform(0, 10, (300, 1)), np.linspace(12, 20, 300)[:, None]
        y = 3 * x[:, 0] + 1 + 0.01 * rng.normal(size=300)
        both = np.column_stack([y, 3 * x[:, 0] + 100 * rng.normal(size=300)])
        model = rs.GaussianProcessRegressor(random_state=seed, progress=False).fit(x, both)
        with pytest.warns(NumericalWarning, match="outside the range"):
            mean, std = model.predict(far, return_std=True)
        error = np.abs(mean[:, 0] - (3 * far[:, 0] + 1))
        assert (error < 0.015).all() and (error < 3 * std[:, 0]).all()  # was .02 to .04


@pytest.mark.parametrize("counts", [False, True])
def test_whole_targets_of_levels_are_no_copies_beside_a_line(counts: bool, rng: Any) -> None:
    """16 levels, 600 whole targets: what the line leaves has a value for each level and target,
    which looked like rows written many times; deviations were 1.3 to 1.8 times too large."""
    x = rng.integers(0, 4, (600, 2)).astype(float)
    f = 3 + x[:, 0]
    y = rng.poisson(f).astype(float) if counts else np.rint(f + 2 * rng.normal(size=600))
    model = rs.GaussianProcessRegressor(random_state=0, progress=False).fit(x, y)
    assert isinstance(model.features_, TrendFeatures)
    assert np.isin(model.moments_.sample.rows[:, 2], y).all()
    noise = (f.mean() if counts else 4 + 1 / 12) ** 0.5  # of rounding, 1/12
    said = np.sqrt((model.predict(x, return_std=True)[1] ** 2).mean())
    assert abs(np.log(said / noise)) < 4 / np.sqrt(2 * 600)  # a deviation of 600 rows
