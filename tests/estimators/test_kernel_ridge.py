"""KernelRidge equals dense solutions, keeps containers, and stays as it was when refused."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge as Exact
from sklearn.metrics import mean_squared_error, r2_score

import reference_answers as reference
import rff_stream as rs
from counted_blocks import Blocks
from rff_stream._array import Array, Float64
from rff_stream.errors import DataError, NumericalWarning, PlanError
from rff_stream.estimators.kernel_ridge import RidgeRecipe

N, D = 3000, 3


def model_of(**choices: Any) -> Any:
    fixed: dict[str, Any] = {
        "n_components": 64,
        "alpha": 1e-2,
        "random_state": 0,
        "progress": False,
    }
    return rs.KernelRidge(**(fixed | choices))


Rows = tuple[Float64, Float64, Float64]


@pytest.fixture
def xyw(rng: np.random.Generator) -> Rows:
    x = rng.normal(size=(N, D)) * [1.0, 50.0, 0.01] + [0.0, 1e3, -3.0]
    y = np.column_stack([np.sin(x[:, 0]), (x[:, 1] / 50) ** 2 + 40])
    return x, y + 0.1 * rng.normal(size=y.shape), rng.uniform(0.2, 3, N)


def rounding(z: Any, coef: Any) -> Any:
    """What a product of R columns in float32 may lose, and columns and coefficients before it.

    (R + 8) u Σ|z||c| with u = ε/2 (Higham 2002, section 3.1).
    """
    unit = np.finfo(np.float32).eps / 2
    return (len(coef) + 8) * unit * np.abs(z).astype(float) @ np.abs(coef)


def refuse(graph: Any, keys: Any, **_: Any) -> Any:
    raise AssertionError("Something was computed.")


# --------------------------------------------------------------------------------- equal to dense


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("alpha", [1e-6 * N, 1.0, 1e3])
def test_predictions_equal_the_dense_solution_on_the_same_features(
    xyw: Rows, alpha: float, weighted: bool, fit_intercept: bool
) -> None:
    x, y, w = xyw
    weights = w if weighted else None
    model = model_of(alpha=alpha, sums="float64", fit_intercept=fit_intercept)
    model.fit(x, y, weights)
    z = model.features_(x).astype(np.float64)
    coef, intercept = reference.ridge(
        z,
        y,
        w if weighted else np.ones(N),
        model.features_.prior(),
        alpha,
        fit_intercept=fit_intercept,
    )
    assert (np.abs(model.predict(x) - z @ coef - intercept) <= rounding(z, coef)).all()
    assert model.alpha_.tolist() == [alpha, alpha]
    assert model.moments_.n == model.n_rows_ == N


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("features", ["orthogonal", "fourier", "phase"])
@pytest.mark.parametrize("kernel", ["gaussian", "matern"])
def test_every_map_and_precision_equals_the_dense_solution(
    xyw: Rows, kernel: str, features: str, dtype: Any
) -> None:
    x, y, _ = xyw
    model = model_of(kernel=kernel, features=features, dtype=dtype).fit(x, y[:, 0])
    z = model.features_(x).astype(np.float64)
    prior = model.features_.prior()
    coef, intercept = reference.ridge(z, y[:, :1], np.ones(N), prior, 1e-2, fit_intercept=True)
    assert model.features_(x[:1]).dtype == dtype
    lost = rounding(z, coef)[:, 0] if dtype == "float32" else 0.0
    off = np.abs(model.predict(x) - (z @ coef + intercept)[:, 0])
    assert (off <= lost + 1e-7 * np.abs(z @ coef + intercept)[:, 0]).all()


def test_targets_may_have_penalties_of_their_own(xyw: Rows) -> None:
    x, y, _ = xyw
    both = model_of(alpha=np.array([1e-2, 10.0])).fit(x, y)
    for t, alpha in enumerate([1e-2, 10.0]):
        alone = model_of(alpha=alpha).fit(x, y[:, t])
        np.testing.assert_allclose(both.coef_[:, t], alone.coef_, rtol=1e-8)
        lost = 2 * rounding(alone.features_(x), alone.coef_)
        assert (np.abs(both.predict(x)[:, t] - alone.predict(x)) <= lost).all()
        assert both.df_[t] == pytest.approx(alone.df_, rel=1e-9)


def test_weights_are_repeated_rows(xyw: Rows, rng: np.random.Generator) -> None:
    x, y, _ = xyw
    times = rng.integers(0, 4, N)
    weighted = model_of(length_scale=1.0).fit(x[:, :1], y, times.astype(float))
    repeated = model_of(length_scale=1.0).fit(np.repeat(x[:, :1], times, 0), np.repeat(y, times, 0))
    assert weighted.n_rows_ == (times > 0).sum()
    assert weighted.n_missing_ == (times == 0).sum()
    assert np.allclose(weighted.predict(x[:, :1]), repeated.predict(x[:, :1]), rtol=1e-5)


@pytest.mark.slow
def test_it_tends_to_scikit_learns_kernel_ridge(rng: np.random.Generator) -> None:
    """The error of a prediction falls as 1/√R: a slope of −1/2, within the noise of five maps."""
    x = rng.uniform(-2, 2, (250, 2))
    y = np.sin(x[:, 0]) * np.cos(2 * x[:, 1])
    new = rng.uniform(-2, 2, (200, 2))
    exact = Exact(kernel="rbf", gamma=1 / (2 * 0.8**2), alpha=0.5).fit(x, y).predict(new)
    sizes = 2 ** np.arange(8, 13)
    errors = []
    for r in sizes:
        seeds = range(6 if r < 2048 else 2)
        found = [
            model_of(
                kernel="rbf",
                length_scale=0.8,
                n_components=int(r),
                alpha=0.5,
                features="fourier",
                fit_intercept=False,
                random_state=seed,
                sample_rows=0,
            )
            .fit(x, y)
            .predict(new)
            for seed in seeds
        ]
        errors.append(np.sqrt(np.mean([(f - exact) ** 2 for f in found])))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35
    assert errors[-1] < 0.01


def test_the_intercept_is_not_penalised(xyw: Rows) -> None:
    x, y, _ = xyw
    heavy = model_of(alpha=1e12).fit(x, y)
    assert np.allclose(heavy.predict(x), y.mean(axis=0), rtol=1e-6)
    shifted = model_of().fit(x, y + 1e6)
    assert np.allclose(shifted.predict(x) - 1e6, model_of().fit(x, y).predict(x), atol=1e-6)


def test_an_alpha_below_the_rounding_of_the_sums_is_raised_with_both_numbers(
    rng: np.random.Generator,
) -> None:
    x = rng.normal(size=(20_000, 1))
    y = np.sin(x[:, 0])
    model = model_of(alpha=1e-9, sums="float32", n_components=128)
    with pytest.warns(NumericalWarning, match=r"alpha=1e-09 is below η=.*sums=\"float64\""):
        model.fit(x, y)
    assert model.alpha_ > 1e-9
    assert model.score(x, y) > 0.99


def test_least_squares_of_a_full_rank_needs_no_penalty(xyw: Rows) -> None:
    x, y, _ = xyw
    model = model_of(alpha=0.0, n_components=8, length_scale=np.array([0.5, 20.0, 0.005]))
    model.fit(x, y)
    z = np.column_stack([model.features_(x).astype(np.float64), np.ones(N)])
    expected = z @ np.linalg.lstsq(z, y, rcond=None)[0]
    assert np.allclose(model.predict(x), expected, rtol=1e-6)
    assert model.alpha_.tolist() == [0.0, 0.0]


# -------------------------------------------------------------------------------- hyper-parameters


def test_numeric_length_scales_are_in_input_units(xyw: Rows) -> None:
    x, y, _ = xyw
    for length_scale in (0.7, np.array([0.5, 40.0, 0.02]), [1.0, 1.0, 1.0]):
        model = model_of(length_scale=length_scale).fit(x, y)
        assert np.array_equal(model.length_scale_, length_scale)
        assert np.array_equal(np.broadcast_to(length_scale, D), model.features_.scale)


def test_the_median_is_reported_in_input_units(xyw: Rows) -> None:
    x, y, _ = xyw
    found = model_of().fit(x, y).length_scale_
    rescaled = model_of().fit(x * [10.0, 0.1, 3.0], y).length_scale_
    assert np.allclose(rescaled, found * [10.0, 0.1, 3.0], rtol=1e-6)
    assert (found / x.std(axis=0) > 0.5).all()
    assert (found / x.std(axis=0) < 5).all()


def test_a_large_offset_of_the_inputs_changes_nothing(xyw: Rows) -> None:
    """Seconds since 1970: shifted in float64 before the cast."""
    x, y, _ = xyw
    x = np.round(x[:, :1] * 2**10) / 2**10
    here, there = model_of().fit(x, y), model_of().fit(x + 1.7e9, y)
    assert np.allclose(here.predict(x), there.predict(x + 1.7e9), atol=1e-4)


def test_a_kernel_with_its_own_length_scale_is_used_as_it_is(xyw: Rows) -> None:
    x, y, _ = xyw
    own = model_of(kernel=rs.Gaussian(2.5)).fit(x, y)
    given = model_of(kernel=rs.Gaussian(), length_scale=2.5).fit(x, y)
    assert own.length_scale_ == 2.5
    assert np.array_equal(own.predict(x), given.predict(x))
    with pytest.raises(ValueError, match="has a length-scale"):
        model_of(kernel=rs.Gaussian(2.5), length_scale=1.0).fit(x, y)


def test_a_map_that_is_given_is_the_map(xyw: Rows) -> None:
    x, y, _ = xyw
    features = rs.FourierFeatures.sample(rs.Matern(nu=2.5, length_scale=2.0), D, 32, rng=3)
    model = model_of(features=features, n_components=32).fit(x, y)
    assert model.features_.fingerprint == features.fingerprint
    assert model.coef_.shape == (32, 2)
    with pytest.raises(ValueError, match="3 inputs but the data have 2"):
        model_of(features=features).fit(x[:, :2], y)


def test_a_map_of_another_size_than_n_components_decides(xyw: Rows) -> None:
    """n_components says nothing where the map is given; plan and coefficients follow the map."""
    x, y, _ = xyw
    features = rs.FourierFeatures.sample(rs.Gaussian(2.0), D, 32, rng=3)
    model = model_of(features=features, n_components=2048).fit(x, y)
    assert model.coef_.shape == (32, 2)
    assert model.plan_.n_features == 32


@pytest.mark.parametrize("r", [1, 2, 7, 33])
def test_any_number_of_components(xyw: Rows, r: int) -> None:
    x, y, _ = xyw
    model = model_of(n_components=r).fit(x, y[:, 0])
    assert model.features_.n_components == r
    assert model.coef_.shape == (r,)
    assert np.isfinite(model.predict(x)).all()


def test_odd_pairs_are_refused_with_the_next_number(xyw: Rows) -> None:
    with pytest.raises(ValueError, match="n_components=34"):
        model_of(n_components=33, features="orthogonal").fit(*xyw)


@pytest.mark.parametrize("seed", [0, 12345, "generator", "state", "sequence"])
def test_the_same_seed_gives_the_same_bits(xyw: Rows, seed: Any) -> None:
    x, y, w = xyw

    def state() -> Any:
        named = {"generator": np.random.default_rng(1), "state": np.random.RandomState(1)}
        named["sequence"] = np.random.SeedSequence(1)
        return named.get(seed, seed) if isinstance(seed, str) else seed

    first, again = (model_of(random_state=state()).fit(x, y, w) for _ in range(2))
    assert np.array_equal(first.coef_, again.coef_)
    assert np.array_equal(first.predict(x), again.predict(x))
    assert first.features_.fingerprint == again.features_.fingerprint


def test_another_seed_gives_another_map(xyw: Rows) -> None:
    x, y, _ = xyw
    prints = {
        model_of(random_state=seed).fit(x, y).features_.fingerprint for seed in (0, 1, None, None)
    }
    assert len(prints) == 4


def test_fitting_again_is_fitting_afresh(xyw: Rows) -> None:
    x, y, w = xyw
    model = model_of().fit(x[:, :2], y[:, 0])
    again, fresh = model.fit(x, y, w), model_of().fit(x, y, w)
    assert np.array_equal(again.coef_, fresh.coef_)
    assert np.array_equal(model.fit(x, y, w).coef_, fresh.coef_)
    assert vars(again).keys() == vars(fresh).keys()


def test_fit_changes_neither_parameters_nor_data(xyw: Rows) -> None:
    x, y, w = xyw
    before = x.copy(), y.copy(), w.copy()
    model = model_of(length_scale=np.array([1.0, 50.0, 0.01]), alpha=np.array([1.0, 2.0]))
    parameters = copy.deepcopy(model.get_params())
    model.fit(x, y, w).predict(x)
    model.score(x, y)
    assert all(np.array_equal(a, b) for a, b in zip((x, y, w), before, strict=True))
    after = model.get_params()
    assert parameters.keys() == after.keys()
    assert all(np.array_equal(parameters[name], after[name]) for name in parameters)
    assert clone(model).get_params().keys() == after.keys()


def test_a_fitted_model_is_pickled_without_its_data(xyw: Rows) -> None:
    x, y, _ = xyw
    lazy = da.from_array(np.tile(x, (20, 1)), chunks=(5000, D))
    model = model_of(sample_rows=0).fit(lazy, da.from_array(np.tile(y, (20, 1)), chunks=(5000, 2)))
    content = pickle.dumps(model)
    assert len(content) < 300_000
    assert np.array_equal(pickle.loads(content).predict(x), model.predict(x))


def test_the_repr_says_how_much_of_the_map_is_used(xyw: Rows) -> None:
    x, y, _ = xyw
    model = model_of()
    assert "df/R" not in repr(model)
    assert f"df/R = {model.fit(x, y).df_.max():.0f}/64" in repr(model)


# ---------------------------------------------------------------------------- containers of predict


@pytest.fixture
def fitted(xyw: Rows) -> Any:
    x, y, _ = xyw
    return model_of().fit(x, y[:, 0])


def test_numpy_in_numpy_out(fitted: Any, xyw: Rows) -> None:
    x, y, _ = xyw
    assert type(fitted.predict(x)) is np.ndarray
    assert fitted.predict(x).shape == (N,)
    assert fitted.predict(x).dtype == np.float64
    assert model_of().fit(x, y).predict(x[:5]).shape == (5, 2)
    assert model_of().fit(x, y[:, :1]).predict(x[:5]).shape == (5, 1)


def test_long_arrays_are_predicted_in_threads_to_the_same_values(fitted: Any, xyw: Rows) -> None:
    x = np.tile(xyw[0], (30, 1))
    assert np.allclose(fitted.predict(x)[:N], fitted.predict(x[:N]), rtol=1e-12)


def test_dask_in_dask_out(fitted: Any, xyw: Rows) -> None:
    x, _, _ = xyw
    expected = fitted.predict(x)
    with dask.config.set(scheduler=refuse):
        lazy = fitted.predict(da.from_array(x, chunks=(700, 2)))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (N,)
    assert lazy.dtype == np.float64
    assert np.allclose(lazy.compute(), expected, rtol=1e-12)
    assert np.allclose((lazy[100:200] * 2).compute(), 2 * expected[100:200], rtol=1e-12)


def test_unknown_lengths_stay_unknown(fitted: Any, xyw: Rows) -> None:
    x, _, _ = xyw
    lazy = da.from_array(x, chunks=(700, D))
    some = lazy[lazy[:, 0] > 0]
    with dask.config.set(scheduler=refuse):
        found = fitted.predict(some)
    assert np.isnan(found.shape[0])
    assert np.allclose(found.compute(), fitted.predict(x[x[:, 0] > 0]), rtol=1e-12)


def test_a_data_frame_in_numpy_out_unless_set_output_says_otherwise(xyw: Rows) -> None:
    x, y, _ = xyw
    frame = pd.DataFrame(x, columns=["a", "b", "c"], index=pd.RangeIndex(100, 100 + N, name="id"))
    frame["flux"] = y[:, 0]
    model = model_of().fit(frame, "flux")
    plain = model.predict(frame[["a", "b", "c"]])
    assert type(plain) is np.ndarray
    found = model.set_output(transform="pandas").predict(frame[["a", "b", "c"]])
    assert isinstance(found, pd.Series)
    assert np.array_equal(found, plain)
    assert type(model.set_output(transform="default").predict(frame)) is np.ndarray
    assert found.name == "flux"
    assert found.index.equals(frame.index)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.columns_.inputs == ("a", "b", "c")
    two = model_of().fit(frame, ["flux", "a"], inputs=["b", "c"]).set_output(transform="pandas")
    both = two.predict(frame[["b", "c"]])
    assert isinstance(both, pd.DataFrame)
    assert both.columns.tolist() == ["flux", "a"]


def test_a_dask_frame_in_a_lazy_series_out(xyw: Rows) -> None:
    import dask.dataframe as dd

    x, y, _ = xyw
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["flux"] = y[:, 0]
    lazy = dd.from_pandas(frame, npartitions=4)
    choices: dict[str, Any] = {"length_scale": 0.5}
    model = model_of(**choices).fit(lazy, "flux")
    assert model.plan_.sums == "float64"  # partitions are counted before
    with dask.config.set(scheduler=refuse):
        found = model.predict(lazy)
    expected = model_of(**choices).fit(x, y[:, 0]).predict(x)
    assert found.npartitions == 4
    assert np.allclose(np.asarray(found.compute()), expected, rtol=1e-10)


def cube(rng: np.random.Generator) -> xr.Dataset:
    """time × lat × lon with land, units, a coordinate that is no index, a variable turned over."""
    t, lat, lon = 12, 9, 10
    sst = rng.normal(290, 3, (lat, t, lon))
    wind = rng.normal(7, 2, (t, lat, lon)).astype(np.float32)
    sst[2, :, 3:6] = np.nan
    data = xr.Dataset(
        {
            "wind": (("time", "lat", "lon"), wind, {"units": "m/s"}),
            "sst": (("lat", "time", "lon"), sst, {"units": "K"}),
            "depth": (("lat", "lon"), rng.normal(100, 10, (lat, lon)), {"units": "m"}),
        },
        coords={
            "time": np.datetime64("2020-01-01", "ns") + np.arange(t) * np.timedelta64(1, "D"),
            "lat": np.linspace(-60, 60, lat),
            "lon": np.linspace(0, 350, lon),
            "region": ("lat", np.arange(lat) % 3),
        },
    )
    flux = 3 * data.wind + 0.5 * (data.sst - 290) + data.depth / 100
    data["flux"] = flux.transpose("time", "lat", "lon").assign_attrs(units="W m-2", long_name="q")
    return data


@pytest.mark.parametrize("lazy", [True, False])
def test_labelled_in_labelled_out(rng: np.random.Generator, tmp_path: Path, lazy: bool) -> None:
    data = cube(rng)
    model = model_of(missing_rows="drop").fit(data, "flux")
    given = data.drop_vars("flux")
    given = given.chunk(time=5, lat=4, lon=10) if lazy else given
    with dask.config.set(scheduler=refuse if lazy else "threads"):
        found = model.predict(given)
    assert isinstance(found, xr.DataArray)
    assert found.dims == ("time", "lat", "lon")
    assert found.name == "flux"
    assert found.attrs["units"] == "W m-2"
    assert set(found.coords) == {"time", "lat", "lon", "region"}
    assert found.chunks is not None if lazy else found.chunks is None
    assert xr.testing.assert_equal(found.coords.to_dataset(), data.coords.to_dataset()) is None
    missing = data.sst.transpose("time", "lat", "lon").isnull()
    assert np.array_equal(np.isnan(found.values), missing.values)
    rows = np.column_stack([column(data, name) for name in model.columns_.inputs])
    keep = np.isfinite(rows).all(axis=1)
    expected = np.full(len(rows), np.nan)
    z = model.features_(rows[keep]).astype(float)
    expected[keep] = model.intercept_ + z @ model.coef_
    off = np.abs(found.values.ravel() - expected)
    assert (off[keep] <= rounding(z, model.coef_)).all() and np.isnan(off[~keep]).all()
    found.to_dataset().to_zarr(tmp_path / "out.zarr")
    again = xr.open_zarr(tmp_path / "out.zarr").flux
    assert np.array_equal(again.values, found.values, equal_nan=True)
    assert again.attrs == {"units": "W m-2", "long_name": "prediction of flux"}


def test_predictions_of_a_grid_have_attributes_of_cf(rng: np.random.Generator) -> None:
    data = cube(rng).assign(twice=lambda given: 2 * given.flux)
    model = rs.GaussianProcessRegressor(
        n_components=32, noise=1.0, missing_rows="drop", random_state=0, progress=False
    )
    mean, std = model.fit(data, "flux").predict(data, return_std=True)
    assert mean.attrs["ancillary_variables"] == std.name == "flux_std"
    assert std.attrs["long_name"] == "standard deviation of flux"
    assert std.attrs["cell_methods"] == "realization: standard_deviation"
    both, errors = model.fit(data, ["flux", "twice"]).predict(data, return_std=True)
    assert both.twice.attrs["ancillary_variables"] == "twice_std"
    assert errors.twice_std.attrs["long_name"] == "standard deviation of twice"


def column(data: xr.Dataset, name: str) -> Array:
    full = data[name].broadcast_like(data.flux).transpose("time", "lat", "lon")
    return np.asarray(full, np.float64).ravel()


@pytest.mark.parametrize("order", [("time", "lat", "lon"), ("lon", "lat", "time")])
def test_predictions_lie_as_the_user_has_his_data(
    rng: np.random.Generator, order: tuple[str, ...]
) -> None:
    data = cube(rng).transpose(*order)
    model = model_of(missing_rows="drop").fit(data, "flux")
    found = model.predict(data)
    assert found.dims == order
    truth = data.flux.where(found.notnull())
    assert float(((found - truth) ** 2).mean()) < 0.1 * float(truth.var())


def test_several_targets_of_a_dataset_make_a_dataset(rng: np.random.Generator) -> None:
    data = cube(rng)
    data["twice"] = (2 * data.flux).assign_attrs(units="W")
    model = model_of(missing_rows="drop").fit(
        data, ["flux", "twice"], inputs=["sst", "wind", "depth"]
    )
    found = model.predict(data)
    assert isinstance(found, xr.Dataset)
    assert list(found.data_vars) == ["flux", "twice"]
    assert found.twice.attrs["units"] == "W"
    assert np.allclose(found.twice, 2 * found.flux, rtol=1e-4, atol=1e-3, equal_nan=True)


def test_coordinates_and_virtual_names_are_inputs(rng: np.random.Generator) -> None:
    data = cube(rng)
    names = ["sst", "lat", "time.dayofyear", "time"]
    model = model_of(missing_rows="drop").fit(data, "flux", inputs=names)
    assert model.columns_.inputs == tuple(names)
    assert model.predict(data.chunk(time=4)).dims == ("time", "lat", "lon")


def test_inputs_are_found_by_name_not_by_place(rng: np.random.Generator) -> None:
    data = cube(rng)
    model = model_of(missing_rows="drop").fit(data, "flux", inputs=["wind", "sst"])
    shuffled = data[["flux", "depth", "sst", "wind"]]
    assert model.predict(data).equals(model.predict(shuffled))


# ------------------------------------------------------------------------------------------- score


def test_lazy_data_whose_inputs_are_coordinates_are_predicted_lazily(
    rng: np.random.Generator,
) -> None:
    """No input is chunked, but the cube is: all of its rows may be too many."""
    values = rng.standard_normal((20, 5))
    cube = xr.Dataset({"t": (("time", "lat"), values)}, {"time": np.arange(20.0), "lat": range(5)})
    fitted = rs.KernelRidge(n_components=16, random_state=0, progress=False)
    fitted.fit(cube, "t", inputs=["time", "lat"])
    lazy, eager = fitted.predict(cube.chunk(time=5)), fitted.predict(cube)
    assert lazy.chunks is not None and eager.chunks is None
    xr.testing.assert_equal(lazy.compute(), eager)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("targets", [1, 2])
def test_score_of_lazy_data_is_the_r2_score(xyw: Rows, targets: int, weighted: bool) -> None:
    x, y, w = xyw
    y = y[:, 0] if targets == 1 else y
    model = model_of(n_components=6).fit(x, y)
    weights = w if weighted else None
    expected = r2_score(y, model.predict(x), sample_weight=weights)
    lazy = da.from_array(x, chunks=(999, 2))
    target = da.from_array(y, chunks=(777,) if targets == 1 else (777, 1))
    found = model.score(lazy, target, None if weights is None else da.from_array(w, chunks=500))
    assert isinstance(found, float)
    assert found == pytest.approx(expected, rel=1e-10)
    assert model.score(x, y, weights) == pytest.approx(expected, rel=1e-12)
    residuals = model.residuals(lazy, target)
    assert residuals.n == N
    rmse = np.sqrt(mean_squared_error(y, model.predict(x), multioutput="raw_values"))
    assert np.allclose(residuals.rmse(), rmse, rtol=1e-10)


def test_a_score_reads_every_block_once(fitted: Any, xyw: Rows) -> None:
    x, y, _ = xyw
    blocks = Blocks(x, 500)
    fitted.score(blocks.array, da.from_array(y[:, 0], chunks=500))
    assert set(blocks.computed.values()) == {1}


def test_a_dataset_is_scored_against_its_own_target(rng: np.random.Generator) -> None:
    data = cube(rng)
    model = model_of(missing_rows="drop").fit(data, "flux")
    truth, found = data.flux.values.ravel(), model.predict(data).values.ravel()
    keep = np.isfinite(found)
    assert np.array_equal(keep, np.isfinite(truth))
    expected = r2_score(truth[keep], found[keep])
    assert model.score(data) == pytest.approx(expected, rel=1e-10)
    assert model.score(data.chunk(lat=4), "flux") == pytest.approx(expected, rel=1e-10)


def test_missing_rows_are_left_out_of_a_score_of_arrays_too(xyw: Rows) -> None:
    x, y, _ = (part.copy() for part in xyw)
    x[::7, 1] = np.nan
    y[::11] = np.nan
    model = model_of(missing_rows="drop").fit(x, y)
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    assert model.n_rows_ == keep.sum()
    assert model.n_missing_ == (~keep).sum()
    expected = r2_score(y[keep], model.predict(x[keep]))
    assert model.score(x, y) == pytest.approx(expected, rel=1e-10)
    lazy = da.from_array(x, chunks=(500, D)), da.from_array(y, chunks=(500, 2))
    assert model.score(*lazy) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("container", ["pandas", "dask", "dataset", "plain Zarr"])
def test_score_takes_the_inputs_of_the_fit_not_all_columns(
    xyw: Rows, tmp_path: Path, container: str
) -> None:
    x, y, _ = xyw
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(flux=y[:, 0])
    makers: dict[str, Callable[[], Any]] = {
        "pandas": lambda: frame,
        "dask": lambda: as_dask_frame(frame),
        "dataset": lambda: frame.to_xarray(),
        "plain Zarr": lambda: plain_group(frame, tmp_path),
    }
    data = makers[container]()
    model = model_of(sums="float64", length_scale=0.5).fit(data, "flux", inputs=["b", "a"])
    expected = model_of(length_scale=0.5).fit(x[:, [1, 0]], y[:, 0]).score(x[:, [1, 0]], y[:, 0])
    assert model.score(data, "flux") == pytest.approx(expected, rel=1e-9)
    assert model.score(data) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("container", ["dask", "dataset", "plain Zarr"])
def test_a_frame_after_a_fit_on_other_named_data_is_taken_by_name(
    xyw: Rows, tmp_path: Path, container: str
) -> None:
    x, y, _ = xyw
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(flux=y[:, 0])
    makers: dict[str, Callable[[], Any]] = {
        "dask": lambda: as_dask_frame(frame),
        "dataset": lambda: frame.to_xarray(),
        "plain Zarr": lambda: plain_group(frame, tmp_path),
    }
    model = model_of(length_scale=0.5).fit(makers[container](), "flux", inputs=["a", "b", "c"])
    shuffled = frame[["c", "flux", "a", "b"]]
    assert np.array_equal(model.predict(shuffled), model.predict(x))
    assert model.score(shuffled, y[:, 0]) == model.score(x, y[:, 0])
    with pytest.raises(DataError, match=r"no column 'b'; its columns are a, c.*fit: a, b, c"):
        model.predict(frame[["a", "c"]])


def as_dask_frame(frame: pd.DataFrame) -> Any:
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=3)


def plain_group(frame: pd.DataFrame, path: Path) -> str:
    group = zarr.create_group(path / "table.zarr")
    for name in frame.columns:
        values = frame[name].to_numpy()
        group.create_array(name, shape=(N,), dtype="f8", chunks=(500,))[:] = values
    return str(path / "table.zarr")


# ------------------------------------------------------------------------- refused, and as it was


def stored_cube(rng: np.random.Generator, path: Path) -> Path:
    """A group whose chunks no one left out on purpose: the fill value is not missing."""
    group = zarr.create_group(path)
    for name in ("a", "b", "flux"):
        made = group.create_array(
            name, shape=(4000,), chunks=(1000,), dtype="f8", fill_value=0, dimension_names=["row"]
        )
        made[:] = rng.random(4000) + 1
    return path


def without(path: Path, chunk: str) -> Path:
    (path / chunk).unlink()
    return path


def truncated(path: Path, chunk: str, size: int) -> Path:
    file = path / chunk
    file.write_bytes(file.read_bytes()[:size])
    return path


Bad = Callable[[np.random.Generator, Path], tuple[dict[str, Any], dict[str, Any]]]
X, Y = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500.0)


def spoilt(values: Array, row: int, value: float) -> Array:
    found = values.copy()
    found[row, ...] = value
    return found


Kind = type[Exception] | tuple[type[Exception], ...]
BAD: dict[str, tuple[Bad, Kind, str]] = {
    "missing chunk": (
        lambda rng, path: ({}, {"X": without(stored_cube(rng, path), "a/c/2"), "y": "flux"}),
        DataError,
        r"'a' in row .*data.zarr: chunk c/2 of array 'a' is absent",
    ),
    "empty chunk": (
        lambda rng, path: ({}, {"X": truncated(stored_cube(rng, path), "b/c/1", 0), "y": "flux"}),
        DataError,
        r"chunk c/1 of array 'b' is empty \(0 bytes\)",
    ),
    "truncated chunk": (
        lambda rng, path: ({}, {"X": truncated(stored_cube(rng, path), "b/c/1", 99), "y": "flux"}),
        DataError,
        r"data.zarr: chunk c/1 of array 'b' could not be decoded",
    ),
    "missing store": (
        lambda rng, path: ({}, {"X": path / "nowhere.zarr", "y": "flux"}),
        DataError,
        "nowhere.zarr",
    ),
    "unknown column": (
        lambda rng, path: ({}, {"X": stored_cube(rng, path), "y": "fluxes"}),
        DataError,
        "fluxes.*flux",
    ),
    "unknown input": (
        lambda rng, path: ({}, {"X": stored_cube(rng, path), "y": "flux", "inputs": ["aa"]}),
        DataError,
        "aa",
    ),
    "other lengths": (
        lambda rng, path: ({}, {"X": da.from_array(X, chunks=(100, 3)), "y": Y[:-1]}),
        DataError,
        "499.*500|500.*499",
    ),
    "other lengths in memory": (
        lambda rng, path: ({}, {"X": X, "y": Y[:-1]}),
        ValueError,
        "inconsistent numbers of samples",
    ),
    "zero rows": (lambda rng, path: ({}, {"X": X[:0], "y": Y[:0]}), ValueError, r"0 sample\(s\)"),
    "zero lazy rows": (
        lambda rng, path: ({}, {"X": da.from_array(X)[:0], "y": da.from_array(Y)[:0]}),
        DataError,
        r"0 sample\(s\)",
    ),
    "all rows missing": (
        lambda rng, path: ({"missing_rows": "drop"}, {"X": da.from_array(X * np.nan), "y": Y}),
        DataError,
        r"0 sample\(s\)",
    ),
    "NaN": (
        lambda rng, path: ({}, {"X": da.from_array(spoilt(X, 321, np.nan)), "y": Y}),
        DataError,
        "NaN.*321|321.*NaN",
    ),
    "inf": (
        lambda rng, path: (
            {"missing_rows": "drop"},
            {"X": da.from_array(X), "y": spoilt(Y, 123, np.inf)},
        ),
        DataError,
        "inf.*123|123.*inf",
    ),
    "inf in memory": (
        lambda rng, path: ({}, {"X": spoilt(X, 3, -np.inf), "y": Y}),
        ValueError,
        "inf",
    ),
    "complex": (lambda rng, path: ({}, {"X": X * 1j, "y": Y}), ValueError, "[Cc]omplex"),
    "lazy complex": (
        lambda rng, path: ({}, {"X": da.from_array(X * 1j), "y": Y}),
        (ValueError, TypeError),
        "[Cc]omplex",
    ),
    "objects": (
        lambda rng, path: ({}, {"X": da.from_array(X.astype(object), chunks=(100, 3)), "y": Y}),
        (ValueError, TypeError),
        "object",
    ),
    "strings": (
        lambda rng, path: ({}, {"X": da.from_array(X.astype("U8")), "y": Y}),
        (ValueError, TypeError),
        "U8|string|text",
    ),
    "negative weights": (
        lambda rng, path: ({}, {"X": da.from_array(X), "y": Y, "sample_weight": -np.ones(500)}),
        ValueError,
        "[Nn]egative",
    ),
    "no target": (lambda rng, path: ({}, {"X": da.from_array(X)}), ValueError, "requires y"),
    "one dimension": (lambda rng, path: ({}, {"X": da.from_array(Y), "y": Y}), ValueError, "2D"),
    "alpha < 0": (lambda rng, path: ({"alpha": -1.0}, {"X": X, "y": Y}), ValueError, "alpha=-1.0"),
    "alpha NaN": (lambda rng, path: ({"alpha": np.nan}, {"X": X, "y": Y}), ValueError, "alpha=nan"),
    "alphas for other targets": (
        lambda rng, path: ({"alpha": [1.0, 2.0, 3.0]}, {"X": X, "y": Y}),
        ValueError,
        r"alpha has shape \(3,\)",
    ),
    "alpha a word": (lambda rng, path: ({"alpha": "aic"}, {"X": X, "y": Y}), ValueError, "'aic'"),
    "R = 0": (lambda rng, path: ({"n_components": 0}, {"X": X, "y": Y}), ValueError, "=0"),
    "R < 0": (lambda rng, path: ({"n_components": -2}, {"X": X, "y": Y}), ValueError, "=-2"),
    "R a fraction": (lambda rng, path: ({"n_components": 2.5}, {"X": X, "y": Y}), TypeError, "2.5"),
    "length-scale 0": (
        lambda rng, path: ({"length_scale": 0.0}, {"X": X, "y": Y}),
        ValueError,
        "length_scale=0.0",
    ),
    "length-scales for other inputs": (
        lambda rng, path: ({"length_scale": [1.0, 2.0]}, {"X": X, "y": Y}),
        ValueError,
        "length_scale has 2 values",
    ),
    "length-scale a word": (
        lambda rng, path: ({"length_scale": "mean"}, {"X": X, "y": Y}),
        ValueError,
        "'mean'",
    ),
    "unknown kernel": (
        lambda rng, path: ({"kernel": "box"}, {"X": X, "y": Y}),
        ValueError,
        "'box'",
    ),
    "unknown map": (lambda rng, path: ({"features": "box"}, {"X": X, "y": Y}), ValueError, "'box'"),
    "unknown precision": (
        lambda rng, path: ({"dtype": "float16"}, {"X": X, "y": Y}),
        ValueError,
        "float16",
    ),
    "unknown sums": (
        lambda rng, path: ({"sums": "float16"}, {"X": X, "y": Y}),
        ValueError,
        "float16",
    ),
    "unknown rule": (
        lambda rng, path: ({"missing_rows": "ignore"}, {"X": X, "y": Y}),
        ValueError,
        "missing_rows='ignore'",
    ),
    "negative sample": (
        lambda rng, path: ({"sample_rows": -1}, {"X": X, "y": Y}),
        ValueError,
        "sample_rows=-1",
    ),
    "too little memory": (
        lambda rng, path: ({"memory": 1 << 20}, {"X": X, "y": Y}),
        PlanError,
        "1.0 MiB are allowed",
    ),
    "seed of no kind": (
        lambda rng, path: ({"random_state": -1}, {"X": X, "y": Y}),
        ValueError,
        "random_state=-1",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("before", ["fresh", "fitted"])
def test_what_is_refused_leaves_the_model_as_it_was(
    rng: np.random.Generator, tmp_path: Path, case: str, before: str
) -> None:
    make, kind, words = BAD[case]
    parameters, data = make(rng, tmp_path / "data.zarr")
    model = model_of(n_components=8)
    if before == "fitted":
        model.fit(X[:, :2], Y)
    model.set_params(**parameters)
    state = dict(vars(model))
    with pytest.raises(kind, match=words) as caught:
        model.fit(**data)
    assert vars(model).keys() == state.keys()
    assert all(vars(model)[name] is state[name] for name in state)
    message = str(caught.value)
    assert len(message) > 20
    if before == "fitted":
        model.set_params(**{name: model_of().get_params()[name] for name in parameters})
        assert np.isfinite(model.predict(X[:, :2])).all()


READS_NOTHING = [
    "alpha < 0",
    "alphas for other targets",
    "R = 0",
    "length-scale 0",
    "length-scales for other inputs",
    "length-scale a word",
    "unknown kernel",
    "unknown map",
    "unknown precision",
    "unknown sums",
    "negative sample",
    "too little memory",
    "seed of no kind",
]


@pytest.mark.parametrize("case", READS_NOTHING)
def test_a_wrong_parameter_is_refused_before_anything_is_read(case: str, tmp_path: Path) -> None:
    make, kind, words = BAD[case]
    parameters, _ = make(np.random.default_rng(0), tmp_path)
    blocks = Blocks(X, 100)
    with pytest.raises(kind, match=words):
        model_of(n_components=8).set_params(**parameters).fit(
            blocks.array, da.from_array(Y, chunks=100)
        )
    assert not blocks.computed


@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("lazy", [False, True])
def test_other_columns_at_predict_are_refused(fitted: Any, columns: int, lazy: bool) -> None:
    rows = np.zeros((10, columns))
    state = dict(vars(fitted))
    with pytest.raises(ValueError, match=f"{columns} features.*expecting {D} features"):
        fitted.predict(da.from_array(rows) if lazy else rows)
    assert dict(vars(fitted)).keys() == state.keys()


def test_a_dataset_without_an_input_is_refused_by_its_name(rng: np.random.Generator) -> None:
    data = cube(rng)
    model = model_of(missing_rows="drop").fit(data, "flux")
    with pytest.raises(DataError, match="wind"):
        model.predict(data.drop_vars(["wind", "flux"]))


@pytest.mark.parametrize("method", ["predict", "score", "residuals", "save"])
def test_nothing_is_asked_of_an_unfitted_model(method: str, tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        getattr(model_of(), method)(tmp_path / "x")


def test_an_interrupted_fit_leaves_the_model_as_it_was(
    fitted: Any, xyw: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, _ = xyw

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    state = dict(vars(fitted))
    monkeypatch.setattr(RidgeRecipe, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(x[:, :2], y)
    assert all(vars(fitted)[name] is state[name] for name in state)
    assert vars(fitted).keys() == state.keys()


def test_data_that_disappear_under_a_lazy_prediction_are_named(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    path = stored_cube(rng, tmp_path / "data.zarr")
    model = model_of(n_components=8).fit(path, "flux")
    lazy = model.predict(path)
    shutil.rmtree(path / "b" / "c")
    with pytest.raises(DataError, match=r"chunk c/\d of array 'b' is absent"):
        np.asarray(lazy)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:y. where blocks of sampled rows")
def test_sorted_rows_do_not_choose_the_penalty_of_extrapolation(rng):
    """Folds of whole runs lie outside of the others where rows are sorted: many runs a fold."""
    X = rng.normal(size=(3000, 2))
    X = X[np.argsort(X[:, 0])]
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=3000)
    mixed = rng.permutation(3000)
    sorted_, shuffled = (
        rs.KernelRidge(alpha="cv", n_components=128, random_state=0, progress=False).fit(a, b)
        for a, b in [(X, y), (X[mixed], y[mixed])]
    )
    at = rng.normal(size=(500, 2))
    truth = np.sin(2 * at[:, 0]) + 0.5 * at[:, 1]
    errors = [np.median(abs(m.predict(at) - truth)) for m in (sorted_, shuffled)]
    assert errors[0] < 1.5 * errors[1], errors


def test_folds_of_few_rows_are_told(rng):
    X = rng.normal(size=(40, 2))
    with pytest.warns(NumericalWarning, match="folds of 8 rows, 40 in all for 64 components"):
        rs.KernelRidge(alpha="cv", n_components=64, random_state=0, progress=False).fit(X, X[:, 0])
