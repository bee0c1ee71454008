"""M = Σ w ∇f∇fᵀ: equal to finite differences, and the laws of a sum over rows."""

from __future__ import annotations

import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest

import reference
import rff_stream as rs
from rff_stream.features import (
    NormalScores,
    OneHot,
    Periodic,
    PiecewiseLinear,
    Positional,
    Projection,
    Scaled,
    Sphere,
    Then,
    by_columns,
)
from rff_stream.model.gradients import gradient_statistic

D = 3
QUIET: dict[str, Any] = {"progress": False, "random_state": 0, "dtype": "float64"}
ONE_TREE = rs.Cells(48, n_trees=1, n_cells=4)
FITS: dict[str, Any] = {
    "whole": rs.KernelRidge(length_scale=1.5, n_components=128, **QUIET),
    "process": rs.GaussianProcessRegressor(length_scale=1.5, n_components=127, **QUIET),
    "landmarks": rs.KernelRidge(
        rs.Matern(nu=2.5, length_scale=2.0), features="nystroem", n_components=64, **QUIET
    ),
    "cells": rs.GaussianProcessRegressor("gaussian", 1.5, features=ONE_TREE, **QUIET),
    "cells, factored": rs.KernelRidge("gaussian", 1.5, features=ONE_TREE, alpha=0.1, **QUIET),
    "metric": rs.KernelRidge("gaussian", features=ONE_TREE, metric="full", **QUIET),
    "product": rs.KernelRidge(
        rs.Gaussian(2.0) * rs.RationalQuadratic(length_scale=2.0), features=ONE_TREE, **QUIET
    ),
    "grid": rs.KernelRidge(
        rs.Gaussian(1.0), features=rs.Grid(modes=(4, 4, 4)), alpha=0.1, **QUIET
    ),
    "several": rs.KernelRidge(
        "gaussian", 1.5, features=rs.Candidates((ONE_TREE, "whole")), **QUIET
    ),
    "counts": rs.KernelRegressor("poisson", length_scale=2.0, n_components=64, **QUIET),
}  # fmt: skip


@pytest.fixture
def X(rng):
    return rng.uniform(-1, 1, (400, D)) * [1.0, 2.0, 3.0]


@pytest.fixture
def Y(X, rng):
    wave = np.sin(X[:, 0] + X[:, 1] / 2)
    return np.stack([wave, X[:, 2] ** 2], axis=1) + 0.1 * rng.standard_normal((len(X), 2))


def plain(**parameters: Any) -> rs.KernelRidge:
    return rs.KernelRidge(**{"length_scale": 1.5, "n_components": 64} | QUIET | parameters)


@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")
@pytest.mark.parametrize("name", FITS)
def test_it_is_that_of_finite_differences(name, X, Y):
    model = FITS[name]
    model.fit(X, np.rint(Y[:, 1]) if name == "counts" else Y)
    x, answer = X[:40], model._require_fit().answer
    mean = answer.linear.mean() if name == "counts" else answer.mean()
    found = rs.inspect.gradient_outer_product(model, x)
    wanted = reference.gradient_outer_product(mean, x)
    # see reference.slopes: 2e-7 where coefficients nearly cancel, far less elsewhere
    np.testing.assert_allclose(found.outer, wanted, rtol=0, atol=1e-5 * abs(wanted).max())
    assert found.n == 40 and found.weight == 40


def test_trees_are_weighed_as_at_the_row(X, Y):
    model = rs.GaussianProcessRegressor(
        "gaussian", 1.5, features=rs.Cells(32, n_trees=3, n_cells=4), **QUIET
    ).fit(X, Y[:, 0])
    posterior, x = model.posterior_, X[:30]
    shares = posterior._tree_shares(x)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    trees = (lambda x, t=t: posterior._of_trees(x)[t].mean for t in range(3))
    wanted = sum(
        share[:, None] * reference.slopes(tree, x)
        for share, tree in zip(shares, trees, strict=True)
    )
    np.testing.assert_allclose(posterior.slopes(x), wanted, atol=1e-6 * abs(wanted).max())


@pytest.mark.parametrize("features", ["local", "whole"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_has_slopes_of_its_scores(features, n_classes, X):
    kinds = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1) * (n_classes > 2)]
    cells = rs.Cells(48, n_trees=1, n_cells=2) if features == "local" else features
    model = rs.KernelClassifier(features=cells, length_scale=1.5, **QUIET)
    model.set_params(n_components=64).fit(X, kinds)
    x = X[:30]
    found = rs.inspect.gradient_outer_product(model, x)
    wanted = reference.gradient_outer_product(model._require_fit().answer.log_odds.predictor(), x)
    # differences of the map beside cells are of float32 columns
    rounding = 1e-4 if features == "local" else 1e-5
    np.testing.assert_allclose(found.outer, wanted, atol=rounding * abs(wanted).max())
    assert len(found.targets) == (1 if n_classes == 2 else 3)
    assert model.importance_["x0"] > model.importance_["x2"]


ENCODINGS: dict[str, Any] = {
    "periodic": {"x0": Periodic(3.0, 2), "x2": PiecewiseLinear(np.linspace(-3, 3, 8))},
    "positional": {"x1": Positional(9.0, 1.0, 3), "x2": OneHot(np.zeros(1))},
    "sphere": {("x1", "x0"): Sphere()},
    "scaled": {("x0", "x1", "x2"): Scaled(np.ones(3), np.array([1.0, 2, 3]))},
    "normal scores": {
        ("x0", "x1"): NormalScores(
            2, np.array([1]), np.array([[-3.0, 0.5, 3.0]]), np.array([[-1, 0, 2.0]])
        )
    },
    "metric": {("x0", "x2"): Projection(np.array([[1.0, 2], [3, -1]]), np.zeros(2))},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_slopes_pass_through_encodings(name, X, rng):
    before = by_columns(ENCODINGS[name], ["x0", "x1", "x2"])
    after = rs.FourierFeatures.sample(
        rs.Gaussian(1.0), before.n_components, 32, rng=0, dtype="float64"
    )
    features, coef = Then(before, after | after), rng.standard_normal((64, 2))
    wanted = reference.slopes(lambda x: features(x) @ coef, X[:20])
    np.testing.assert_allclose(features.slopes(X[:20], coef), wanted, atol=1e-4)


@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")
def test_a_map_of_steps_is_refused(X, Y):
    model = plain(kernel=rs.Laplacian(1.0), length_scale="auto", features="binning").fit(X, Y)
    with pytest.raises(ValueError, match=r"has no slopes in closed form. Use cells"):
        rs.inspect.gradient_outer_product(model, X)


@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")
def test_kernels_that_are_no_function_of_a_difference_are_refused(X, Y):
    kernel = rs.kernels.Polynomial(degree=2)
    model = plain(kernel=kernel, length_scale="auto", features="nystroem").fit(X, Y)
    with pytest.raises(ValueError, match="it is no function of x − x'"):
        rs.inspect.gradient_outer_product(model, X)


def test_models_without_a_function_are_refused(X):
    model = rs.KernelPCA(**QUIET).fit(X)
    with pytest.raises(rs.errors.ModelError, match="KernelPCA fits no function of rows"):
        rs.inspect.gradient_outer_product(model, X)


# ------------------------------------------------------------------------------ laws of a sum


def test_parts_add_and_subtract(X, Y):
    model = plain().fit(X, Y)
    whole = rs.inspect.gradient_outer_product(model, X)
    parts = rs.inspect.gradient_outer_product(model, X, by=np.repeat(["a", "b"], 200))
    both = parts["a"] + parts["b"]
    bound = 8 * np.finfo(float).eps * len(X) * abs(whole.outer).max()
    np.testing.assert_allclose(both.outer, whole.outer, atol=bound)
    np.testing.assert_allclose(both.spread, X.std(axis=0), rtol=1e-12)
    left = whole - parts["b"]
    np.testing.assert_allclose(left.outer, parts["a"].outer, atol=bound)
    assert (left.n, left.weight) == (200, 200)
    np.testing.assert_allclose(left.spread, X[:200].std(axis=0), rtol=1e-9)
    zero = gradient_statistic(model).start().result()
    np.testing.assert_array_equal((zero + whole).outer, whole.outer)


def test_weight_two_is_a_row_twice(X, Y):
    model = plain().fit(X, Y)
    w = np.ones(len(X))
    w[:100] = 2
    found = rs.inspect.gradient_outer_product(model, X, w)
    twice = rs.inspect.gradient_outer_product(model, np.concatenate([X, X[:100]]))
    np.testing.assert_allclose(found.outer, twice.outer, rtol=1e-12)
    assert found.weight == twice.weight == 500
    np.testing.assert_allclose(found.spread, twice.spread, rtol=1e-12)
    once = rs.inspect.gradient_outer_product(model, X)
    assert once.scale(3.0).weight == 1200
    np.testing.assert_allclose(once.scale(3.0).matrix(), once.matrix())


def test_a_target_times_c_gives_c_squared(X, Y):
    once, thrice = (plain(alpha=0.1).fit(X, c * Y[:, 0]) for c in (1.0, 3.0))
    one, three = (rs.inspect.gradient_outer_product(m).matrix() for m in (once, thrice))
    np.testing.assert_allclose(three, 9 * one, rtol=1e-9)
    assert once.importance_ == pytest.approx(thrice.importance_)


def test_rotated_inputs_give_the_rotated_matrix(X, Y, rng):
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    features = rs.FourierFeatures.sample(rs.Gaussian(1.5), D, 128, rng=0, dtype="float64")
    turned = Then(Projection(turn, np.zeros(D)), features)
    plain_fit = rs.KernelRidge(features=features, alpha=0.1, **QUIET).fit(X, Y[:, 0])
    turned_fit = rs.KernelRidge(features=turned, alpha=0.1, **QUIET).fit(X @ turn.T, Y[:, 0])
    M = rs.inspect.gradient_outer_product(plain_fit, X).matrix()
    rotated = rs.inspect.gradient_outer_product(turned_fit, X @ turn.T).matrix()
    np.testing.assert_allclose(rotated, turn @ M @ turn.T, atol=1e-8 * abs(M).max())


def test_copies_of_an_input_share_evenly(X, Y):
    """The kernel sees both alike, so f changes as much along one as along the other."""
    doubled = np.column_stack([X, X[:, 0]])
    cells = rs.KernelRidge("gaussian", 1.5, features=ONE_TREE, alpha=0.1, **QUIET)
    M = rs.inspect.gradient_outer_product(cells.fit(doubled, Y[:, 0])).matrix()
    np.testing.assert_allclose(M[0], M[3], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::rff_stream.NumericalWarning")
def test_a_constant_target_gives_zero(X):
    model = plain().fit(X, np.full(len(X), 7.0))
    found = rs.inspect.gradient_outer_product(model)
    assert not found.matrix().any() and found.directions().n_active == 0
    assert model.importance_ == {"x0": 0.0, "x1": 0.0, "x2": 0.0}
    assert not found.directions().shares.any()


def test_units_of_inputs_do_not_matter(X, Y):
    factor = np.array([1.0, 1000.0, 1e-3])
    one = plain(length_scale="median").fit(X, Y)
    other = plain(length_scale="median").fit(X * factor, Y)
    for name, share in one.importance_.items():
        assert other.importance_[name] == pytest.approx(share, rel=1e-6)


def test_targets_count_by_their_variance(X, Y):
    model = plain().fit(X, Y * [1.0, 100.0])
    alike = plain().fit(X, Y)
    found, wanted = (rs.inspect.gradient_outer_product(m) for m in (model, alike))
    np.testing.assert_allclose(found.matrix(), wanted.matrix(), rtol=1e-6)
    assert found.importance("y0")["x2"] < 0.1 < found.importance("y1")["x2"]
    np.testing.assert_allclose(found.matrix("y1"), 1e4 * wanted.matrix("y1"), rtol=1e-6)
    with pytest.raises(ValueError, match="target='z' but the targets are y0, y1"):
        found.matrix("z")


def test_bits_do_not_depend_on_the_scheduler(X, Y):
    model = plain().fit(X, Y)
    lazy = da.from_array(X, chunks=(100, D))
    found = []
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(rs.inspect.gradient_outer_product(model, lazy))
    np.testing.assert_array_equal(found[0].outer, found[1].outer)
    other = rs.inspect.gradient_outer_product(model, da.from_array(X, chunks=(37, D)))
    np.testing.assert_allclose(other.outer, found[0].outer, rtol=1e-11)


def test_a_checkpoint_keeps_it(X, Y):
    model = plain().fit(X, Y)
    statistic = gradient_statistic(model)
    found = rs.inspect.gradient_outer_product(model)
    again = statistic.unpack(statistic.pack(found))
    np.testing.assert_array_equal(again.outer, found.outer)
    assert again.importance() == found.importance()
    assert pickle.loads(pickle.dumps(statistic)).inputs == ("x0", "x1", "x2")


def test_other_columns_do_not_add(X, Y):
    both, first = (
        rs.inspect.gradient_outer_product(plain().fit(X, y)) for y in (Y, Y[:, 0])
    )  # fmt: skip
    with pytest.raises(rs.errors.ModelError, match="y0, y1 by x0, x1, x2 and of y by"):
        both + first
    with pytest.raises(ValueError, match="factor=-1 but it must be"):
        both.scale(-1)


def test_a_model_without_rows_says_so(X, Y, tmp_path):
    plain().fit(X, Y).save(tmp_path / "m.zarr")
    model = rs.load(tmp_path / "m.zarr")
    with pytest.raises(rs.errors.ModelError, match="has no row sample"):
        rs.inspect.gradient_outer_product(model)
    found = rs.inspect.gradient_outer_product(model, X)
    with pytest.raises(ValueError, match="variances of the 2 targets are not known"):
        found.matrix()
    assert found.importance("y1")["x2"] > 0.9


def test_importance_is_that_of_the_last_fit(X, Y):
    model = plain().fit(X, Y[:, 0])
    assert model.importance_["x0"] > 0.3
    assert "importance_" not in vars(model.fit(X, Y[:, 1]))
    assert model.importance_["x2"] > 0.9
    with pytest.raises(AttributeError):
        plain().importance_  # noqa: B018


# ----------------------------------------------------------------------------- what it tells


def test_a_direction_is_found(rng):
    X = rng.normal(size=(2000, 5)) * [1, 10, 0.1, 1, 1]
    y = np.sin(X[:, 0] - X[:, 1] / 10) + 0.1 * rng.standard_normal(2000)
    model = plain(length_scale="median", n_components=256).fit(X, y)
    found = rs.inspect.gradient_outer_product(model).directions()
    truth = np.array([1, -1, 0, 0, 0]) / np.sqrt(2)
    assert abs(found.vectors[:, 0] @ truth) > 0.99
    assert found.shares[0] > 0.9 and 1 <= found.n_active < 1.3
    first = found.combination(most=2)
    assert " x0" in first and " x1" in first and "−" in first


@pytest.mark.slow
def test_noise_alone_has_hardly_a_slope():
    """By evidence a fit of noise is flat: its mean squared slope is a small share of Var y."""
    sizes = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(400, D)), rng.standard_normal(400)
        model = plain(length_scale="median", random_state=seed).fit(X, y)
        M = rs.inspect.gradient_outer_product(model).standardised()
        sizes.append(np.trace(M) / y.var())
    # a linear function that chance fits has d/n of the variance, .0075; one of a wave has about 1
    assert np.median(sizes) < 0.0075
    assert np.mean(np.array(sizes) < 0.1) >= 0.9


def test_groups_tell_where_the_target_depends_on_what(rng):
    X = rng.uniform(-1, 1, (1000, 2))
    north = X[:, 0] > 0
    y = np.where(north, X[:, 0] ** 2, 0) + np.where(north, 0, X[:, 1])
    model = plain(length_scale=0.5, n_components=128).fit(X, y)
    names = np.where(north, "north", "south")
    found = rs.inspect.gradient_outer_product(model, X, by=names)
    assert found["north"].importance()["x0"] > 0.7 > 0.5 > found["south"].importance()["x0"]


def test_indices_and_dependence_of_a_model(X, Y):
    model = plain().fit(X, Y[:, 1])
    assert rs.inspect.sobol_indices(model, size=256).total[2, 0] > 0.8
    grid, mean = rs.inspect.partial_dependence(model, "x2", [0.0, 2.0])
    np.testing.assert_allclose(mean[1, 0] - mean[0, 0], 4, atol=0.5)
    grid, mean = rs.inspect.partial_dependence(model, "x2", 5)
    assert grid.shape == (5,) and mean.shape == (5, 1)
    assert rs.inspect.relevance(model).inputs == ("x0", "x1", "x2")
    with pytest.raises(ValueError, match="name='x9' but it must be one of the inputs"):
        rs.inspect.partial_dependence(model, "x9")
    with pytest.raises(ValueError, match="by and sample_weight are of rows"):
        rs.inspect.gradient_outer_product(model, by=np.zeros(400))


@pytest.mark.slow
def test_inputs_of_heavy_tails_matter_as_much_as_their_normal_scores(rng):
    """Squared slopes by a lognormal are those of its least values: it had a share of all."""
    z = rng.normal(size=(600, 2))
    X, y = np.column_stack([z[:, 0], np.exp(2.5 * z[:, 1])]), np.sin(2 * z[:, 0]) + 0.3 * z[:, 1]
    model = rs.KernelRidge("gaussian", metric=None, progress=False, random_state=0).fit(X, y)
    one = getattr(model.features_, "maps", (model.features_,))[0]  # a mean of two, or one
    assert "NormalScores" in repr(one.encoding)
    # E(2 cos 2z)² = 2(1 + e⁻⁸) and .3²; smoothing and 600 rows move a share by less than a half
    assert 0.02 < model.importance_["x1"] < 0.06
    assert "of its normal score" in model._repr_html_()
    spans = rs.inspect.relevance(model).spans
    # Not the range of a lognormal over a length-scale of its scores; a line may have a long one.
    assert 0 < spans[1] < 10


@pytest.fixture(scope="module")
def cities():
    """Rows with a number and a text, f = sin(temp/5) + that of the city, and these."""
    rng, of_city = np.random.default_rng(0), {"Bern": 0.5, "Lima": -1.0, "Oslo": 1.0, "Rome": 0.0}
    frame = pd.DataFrame({"temp": rng.uniform(0, 30, 1500)})
    frame["city"] = rng.choice(list(of_city), 1500)
    y = np.sin(frame["temp"] / 5) + frame["city"].map(of_city)
    return frame, y.to_numpy() + 0.05 * rng.normal(size=1500), of_city


@pytest.mark.parametrize(
    "n_components", [256, pytest.param(None, marks=pytest.mark.slow)], ids=["one map", "bare"]
)
def test_levels_of_a_column_are_one_input(cities, n_components):
    """Of one map f is not known between levels: slopes there took all of the importance."""
    frame, y, of_city = cities
    model = rs.KernelRidge(n_components=n_components, random_state=0, progress=False).fit(frame, y)
    wave, place = np.sin(frame["temp"] / 5), frame["city"].map(of_city)
    squared_slope = np.mean((np.cos(frame["temp"] / 5) / 5) ** 2) * frame["temp"].var()
    shares = model.importance_
    assert [*shares] == ["temp", "city"]
    expected = squared_slope / (squared_slope + place.var())
    assert shares["temp"] == pytest.approx(expected, abs=0.02)
    found = rs.inspect.sobol_indices(model, size=2048)
    assert found.inputs == ("temp", "city")
    expected = np.array([wave.var(), place.var()]) / (wave.var() + place.var())
    np.testing.assert_allclose(found.first[:, 0], expected, atol=0.04)
    np.testing.assert_allclose(found.total[:, 0], expected, atol=0.04)
    names, mean = rs.inspect.partial_dependence(model, "city")
    assert names.tolist() == [*of_city]
    np.testing.assert_allclose(mean[:, 0], wave.mean() + np.array([*of_city.values()]), atol=0.05)
    some, part = rs.inspect.partial_dependence(model, "city", ["Rome", "Lima"])
    assert some.tolist() == ["Rome", "Lima"]
    np.testing.assert_array_equal(part[:, 0], mean[[3, 1], 0])
    with pytest.raises(ValueError, match=r"name='city=Lima' .* one of the inputs .*'city'"):
        rs.inspect.partial_dependence(model, "city=Lima")
    with pytest.raises(ValueError, match=r"grid=\['Rom'\] .* levels of 'city': \"Bern\", \"Lima\""):
        rs.inspect.partial_dependence(model, "city", ["Rom"])
    assert rs.inspect.gradient_outer_product(model).inputs == ("temp",)


def test_an_input_and_the_mark_of_its_missing_values_vary_together(cities):
    frame, y, _ = cities
    frame = frame.assign(temp=frame["temp"].where(np.random.default_rng(1).random(1500) > 0.3))
    options = {"missing_rows": "indicate", "random_state": 0, "progress": False}
    model = rs.KernelRidge(n_components=256, **options).fit(frame, y)
    assert [*model.importance_] == ["temp", "city", "temp=missing"]
    assert rs.inspect.sobol_indices(model, size=256).inputs == ("temp", "city")
    values, mean = rs.inspect.partial_dependence(model, "temp", [7.0, 24.0])
    np.testing.assert_allclose(np.diff(mean[:, 0]), np.diff(np.sin(values / 5)), atol=0.1)


@pytest.mark.parametrize("classes", [2, 3])
def test_levels_of_a_classifier(cities, classes):
    frame, y, _ = cities
    noisy = y + np.random.default_rng(2).normal(size=len(y))
    label = np.digitize(noisy, [0.5] if classes == 2 else [0, 1])
    shares = rs.KernelClassifier(n_components=128, random_state=0).fit(frame, label).importance_
    assert [*shares] == ["temp", "city"] and 0.2 < shares["city"] < 0.8


def test_levels_of_counts(cities):
    """Of the logarithm of the mean, as slopes are."""
    frame, y, _ = cities
    counts = np.random.default_rng(0).poisson(np.exp(1 + y))
    model = rs.KernelRegressor("poisson", n_components=128, random_state=0).fit(frame, counts)
    assert 0.15 < model.importance_["city"] < 0.45  # .28 of f
