"""Encodings and maps of maps: what each column says, and how they compose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm, rankdata
from sklearn.preprocessing import PolynomialFeatures as SklearnPolynomials

import rff_stream as rs
from rff_stream.errors import DataError, ModelError
from rff_stream.features import (
    ByColumns,
    FourierFeatures,
    NormalScores,
    OneHot,
    Periodic,
    PiecewiseLinear,
    PolynomialFeatures,
    Positional,
    Scaled,
    Sphere,
    Then,
    by_columns,
    map_from_spec,
)
from rff_stream.features.normal_scores import heavy_inputs
from rff_stream.kernels import Gaussian, Polynomial


def test_a_period_wraps_around():
    hours = Periodic(24, 2)
    Z = hours(np.array([[0.0], [24.0], [6.0], [23.999], [-18.0]]))
    np.testing.assert_allclose(Z[0], [1, 0, 1, 0], atol=1e-15)
    assert np.array_equal(Z[0], Z[1])
    np.testing.assert_allclose(Z[2], [0, 1, -1, 0], atol=1e-15)
    np.testing.assert_allclose(Z[4], Z[2], atol=1e-15)
    assert np.abs(Z[3] - Z[0]).max() < 1e-3
    assert (Z @ np.diag(hours.prior()) @ Z.T).diagonal() == pytest.approx(np.ones(5))
    assert np.array_equal(hours.prior(2), np.ones(2))


def test_a_period_keeps_its_digits_far_from_zero():
    day = Periodic(86_400.0)
    seconds = 86_400.0 * 20_000 + np.arange(5.0)[:, None]
    np.testing.assert_allclose(day(seconds), day(np.arange(5.0)[:, None]), atol=1e-12)


def test_piecewise_linear_fills_its_bins_from_the_left(rng):
    bins = PiecewiseLinear(np.array([0.0, 1.0, 3.0]))
    Z = bins(np.array([[-1.0], [0.25], [1.0], [2.0], [9.0]]))
    assert Z.tolist() == [[0, 0], [0.25, 0], [1, 0], [1, 0.5], [1, 1]]
    x = rng.standard_normal(1000)
    found = PiecewiseLinear.of_rows(x, 4)
    np.testing.assert_allclose(found.knots, np.quantile(x, [0, 0.25, 0.5, 0.75, 1]))
    assert PiecewiseLinear.of_rows(np.r_[x * 0, 1.0], 4).n_components == 1  # equal knots are one


def test_knots_are_quantiles_of_a_stream(rng):
    """From the row sample of a pass over chunks: off in rank by what 2,000 rows are."""
    x = np.exp(rng.standard_normal(40_000))
    features = PiecewiseLinear.of_rows(x[:100], 8)
    found = rs.collect(
        features, da.from_array(x[:, None], chunks=(5_000, 1)), order=1, progress=False
    )
    knots = PiecewiseLinear.of_rows(found.sample.rows[:, 0], 8).knots
    ranks, wanted = np.searchsorted(np.sort(x), knots) / len(x), np.linspace(0, 1, 9)
    assert (np.abs(ranks - wanted) < 4.5 * np.sqrt(0.25 / 2000)).all()


def test_normal_scores_are_those_of_ranks_and_keep_order(rng):
    X = np.exp(3 * rng.normal(size=(3000, 3)))
    X[:, 1] = np.floor(X[:, 1])  # many equal values
    scores = NormalScores.of_rows(X, np.array([0, 1]))
    found = scores(X)
    np.testing.assert_array_equal(found[:, 2], X[:, 2])
    for j in (0, 1):
        expected = norm.ppf((rankdata(X[:, j]) - 0.5) / len(X))
        # knots are a sixteenth of a standard deviation apart, and the distribution bends between
        assert np.abs(found[:, j] - expected).max() < 1 / 16
        order = np.argsort(X[:, j], kind="stable")
        assert (np.diff(found[order, j]) >= 0).all()
    beyond = scores(np.array([[1e9, 0, 0], [2e9, 0, 0], [-1e3, 0, 0], [-2e3, 0, 0]]))[:, 0]
    assert beyond[1] > beyond[0] > found[:, 0].max()
    assert beyond[3] < beyond[2] < found[:, 0].min()


def test_inputs_of_heavy_tails_are_found(rng):
    normal, two = rng.normal(size=4000), (rng.uniform(size=4000) < 0.02).astype(float)
    x = np.column_stack([normal, np.exp(normal), two, rng.uniform(size=4000), np.ones(4000)])
    np.testing.assert_array_equal(heavy_inputs(x), [1])
    np.testing.assert_array_equal(heavy_inputs(1e150 * x), [1])  # x⁴ is no number


def test_one_hot_knows_its_categories():
    Z = OneHot(np.array([3.0, 7.0]))(np.array([[7.0], [3.0], [5.0], [np.nan]]))
    assert Z[:3].tolist() == [[0, 1], [1, 0], [0, 0]]
    assert np.isnan(Z[3]).all()


def test_places_on_the_sphere_know_no_date_line():
    places = np.array([[0.0, 0.0], [0.0, 360.0], [90.0, 12.0], [10.0, 179.99], [10.0, -179.99]])
    Z = Sphere()(places)
    np.testing.assert_allclose(Z[:3], [[1, 0, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)
    np.testing.assert_allclose((Z**2).sum(axis=1), 1, rtol=1e-14)
    angle = np.radians(0.02) * np.cos(np.radians(10))
    assert np.linalg.norm(Z[3] - Z[4]) == pytest.approx(angle, rel=1e-6)


def test_a_latitude_beyond_a_pole_is_refused():
    """Longitude in the place of latitude gave places on the other side of the pole, in silence."""
    X = np.array([[50.0, 10.0], [120.0, 45.0], [90.0, 0.0], [-90.0, 0.0], [np.nan, 0.0]])
    with pytest.raises(DataError, match=r"latitude 120 and longitude 45.*\(latitude, longitude\)"):
        Sphere()(X)
    assert np.isfinite(Sphere()(X[[0, 2, 3]])).all() and np.isnan(Sphere()(X[4:])).all()
    model = rs.KernelRidge(features={("x0", "x1"): Sphere()}, progress=False)
    with pytest.raises(DataError, match="latitude 120"):
        model.fit(X[:4], np.arange(4.0))
    with pytest.raises(DataError, match="latitude 120"):
        model.fit(X[[0, 2, 3]], np.arange(3.0)).predict(X[:2])


def test_maps_side_by_side_add_their_kernels(rng):
    X = rng.standard_normal((30, 2))
    a = FourierFeatures.sample(Gaussian(), 2, 10, rng=0)
    b = Scaled(np.zeros(2), np.ones(2))
    c = FourierFeatures.sample(Gaussian(3.0), 2, 6, rng=1)
    both = a | b | c
    assert len(both.maps) == 3
    assert both.dtype == "float64"
    assert both.nesting == "none"
    np.testing.assert_array_equal(both(X), np.hstack([a(X), b(X), c(X)]))
    np.testing.assert_array_equal(both.prior(), np.r_[a.prior(), b.prior(), c.prior()])


def test_then_maps_the_columns_of_the_first(rng):
    X = rng.uniform(-80, 80, (30, 2))
    second = FourierFeatures.sample(Gaussian(0.5), 3, 40, rng=0)
    place = Sphere().then(second)
    assert isinstance(place, Then)
    np.testing.assert_array_equal(place(X), second(Sphere()(X)))
    assert (place.nesting, place.n_components) == ("pairs", 40)
    np.testing.assert_array_equal(place.prior(10), second.prior(10))


def test_columns_choose_their_own_map(rng):
    X = rng.uniform(0, 24, (30, 4))
    maps = {"hour": Periodic(24), ("lat", "lon"): Sphere()}
    features = by_columns(maps, ["lat", "hour", "unused", "lon"])
    expected = np.hstack([Periodic(24)(X[:, 1:2]), Sphere()(X[:, [0, 3]])])
    np.testing.assert_array_equal(features(X), expected)
    deep = features | Scaled(np.zeros(4), np.ones(4))
    plain, arrays = deep.then(OneHotOfAll(deep.n_components)).spec()
    assert map_from_spec(json.loads(json.dumps(plain)), arrays)(X).shape == (30, 9)


def OneHotOfAll(d: int) -> ByColumns:
    return ByColumns(tuple(OneHot(np.ones(1)) for _ in range(d)), [[j] for j in range(d)], d)


def test_a_wave_in_the_hour_is_learnt_by_an_encoding(rng):
    X = np.column_stack([rng.uniform(0, 24, 400), rng.standard_normal(400)])
    y = np.cos(2 * np.pi * X[:, 0] / 24) + 0.5 * X[:, 1]
    features = by_columns(
        {"hour": Periodic(24), "x": Scaled(np.zeros(1), np.ones(1))}, ["hour", "x"]
    )
    model = rs.KernelRidge(features=features, alpha=1e-6).fit(X, y)
    assert model.score(X, y) > 0.999999


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Periodic(0), "period=0 .* > 0"),
        (lambda: PiecewiseLinear(np.array([1.0, 1.0])), "two or more, in increasing order"),
        (lambda: OneHot(np.array([1.0, 1.0])), "each must be listed once"),
        (lambda: Scaled(np.zeros(1), np.zeros(1)), "scales must be > 0"),
        (lambda: Sphere("float16"), "dtype='float16'"),
        (lambda: Sphere() | Periodic(1), r"take \[2, 1\] inputs but must take the same"),
        (lambda: Sphere().then(Periodic(1)), "gives 3 columns but the second takes 1"),
        (lambda: by_columns({"a": Sphere()}, ["a"]), r"takes 2 inputs but got columns \(0,\)"),
        (lambda: by_columns({"z": Periodic(1)}, ["a"]), r"\['z'\] are not among .*\['a'\]"),
        (lambda: Sphere().prior(2), "columns of an encoding belong together"),
        (lambda: Periodic(1).prior(1), "n_components=1 is odd"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_only_maps_stand_side_by_side():
    with pytest.raises(TypeError):
        Sphere() | 3


# ------------------------------------------------------------------ columns choose in an estimator


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {"z": rng.normal(size=n), "lat": rng.uniform(-60, 60, n), "hour": rng.uniform(0, 24, n)}
    )
    found["y"] = np.sin(np.radians(found["lat"])) + np.cos(2 * np.pi * found["hour"] / 24)
    return found


CHOICES: dict[Any, Any] = {"lat": PiecewiseLinear(np.linspace(-60, 60, 9)), "hour": Periodic(24)}


@pytest.mark.parametrize("container", ["pandas", "xarray", "zarr"])
def test_columns_choose_their_own_map_by_name(container: str, tmp_path: Path) -> None:
    frame, choices = table(), {"features": CHOICES, "alpha": 1e-3, "progress": False}
    model = rs.KernelRidge(**choices)
    if container == "pandas":
        model.fit(frame[["z", "lat", "hour"]], frame["y"])
        found = model.score(frame[["z", "lat", "hour"]], frame["y"])
    else:
        data: Any = xr.Dataset.from_dataframe(frame)
        if container == "zarr":
            data.to_zarr(tmp_path / "t.zarr", zarr_format=3, consolidated=False)
            data = tmp_path / "t.zarr"
        found = model.fit(data, "y", inputs=["hour", "z", "lat"]).score(data)
    expected = by_columns(CHOICES, model.columns_.inputs)
    assert model.features_.fingerprint == expected.fingerprint
    assert found > 0.999
    model.save(tmp_path / "m.zarr")
    again = rs.load(tmp_path / "m.zarr")
    assert again.features.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_other_choices_of_columns_are_another_fit(tmp_path: Path) -> None:
    frame = table()
    X, y = frame[["lat", "hour"]], frame["y"]
    choices: dict[str, Any] = {"random_state": 0, "progress": False}
    rs.KernelRidge(features=CHOICES, **choices).fit(X, y, checkpoint=tmp_path / "c")
    other = {"lat": CHOICES["lat"], "hour": Periodic(12)}
    with pytest.raises(ModelError, match="features"):
        rs.KernelRidge(features=other, **choices).fit(X, y, checkpoint=tmp_path / "c")


@pytest.mark.parametrize(
    "estimator",
    [
        rs.KernelRidge, rs.GaussianProcessRegressor, rs.KernelClassifier, rs.KernelDensity,
        rs.NoveltyDetector, rs.KernelPCA,
    ],
)  # fmt: skip
def test_columns_that_do_not_exist_or_choose_no_map_are_named(estimator: Any) -> None:
    frame = table()
    y = frame["y"] > 0 if estimator is rs.KernelClassifier else frame["y"]
    X = frame[["lat", "hour"]]
    with pytest.raises(ValueError, match=r"Columns \['depth'\] are not among the inputs"):
        estimator(features={"depth": Periodic(24)}, progress=False).fit(X, y)
    with pytest.raises(TypeError, match="Column 'lat' chose 3, which is no feature map"):
        estimator(features={"lat": 3}, progress=False).fit(X, y)


# positions and polynomials


def test_a_position_is_near_itself_at_every_period():
    features = Positional(200.0, 0.5, 12)
    x = np.concatenate([[0.0], np.geomspace(1e-3, 90, 40)])[:, None]
    Z = features(x)
    similarity = (Z * features.prior()) @ Z[0]
    periods = np.geomspace(200, 0.5, 12)
    expected = np.cos(2 * np.pi * x / periods).mean(axis=1)
    np.testing.assert_allclose(similarity, expected, atol=1e-12)
    assert similarity[0] == pytest.approx(1)
    assert similarity[x[:, 0] > 50].max() < similarity[x[:, 0] < 1e-2].min()
    assert np.array_equal(features.prior(6), np.full(6, 1 / 3))


@pytest.mark.parametrize(("longest", "shortest", "count"), [(1, 1, 3), (2, 1, 1), (np.inf, 1, 3)])
def test_periods_that_do_not_fall_are_refused(longest, shortest, count):
    with pytest.raises(ValueError, match="two periods or more, from a longest to a shorter"):
        Positional(longest, shortest, count)


@pytest.mark.parametrize("kernel", [Polynomial(degree=1), Polynomial((0.5, 2.0, 1.3), 3.0, 4, 0.7)])
def test_polynomial_features_are_the_kernel(kernel, rng):
    x, y = rng.standard_normal((2, 20, 3))
    features = PolynomialFeatures.sample(kernel, 3)
    found = (features(x) * features.prior()) @ features(y).T
    np.testing.assert_allclose(found, kernel(x, y), rtol=1e-11, atol=1e-11 * kernel(x, x).max())


def test_polynomial_columns_are_those_of_scikit_learn(rng):
    x = rng.standard_normal((20, 4))
    features = PolynomialFeatures.sample(Polynomial(degree=3), 4)
    np.testing.assert_allclose(features(x), SklearnPolynomials(3).fit_transform(x), rtol=1e-12)


def test_polynomial_regression_by_name_is_that_of_scikit_learn(rng):
    X = rng.uniform(5, 7, (300, 3))  # far from 0: columns about the mean
    y = X[:, 0] * X[:, 1] - X[:, 2] ** 2
    model = rs.KernelRidge(
        "polynomial", 1.0, features="polynomial", n_components=10, alpha=1e-6, dtype="float64"
    ).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-4)
    with pytest.raises(ValueError, match=r"n_components=9 but degree 2 of 3 inputs makes 10"):
        rs.KernelRidge("polynomial", 1.0, features="polynomial", n_components=9).fit(X, y)
    with pytest.raises(ValueError, match=r"Gaussian kernel is no polynomial"):
        rs.KernelRidge(features="polynomial", n_components=10).fit(X, y)


def test_a_power_too_large_is_named():
    features = PolynomialFeatures.sample(Polynomial(degree=3), 2, dtype="float32")
    with pytest.raises(
        DataError, match=r"Column 1 of X holds 1e\+20, and its power 3 is too large"
    ):
        features(np.array([[0.0, 1e20]]))
