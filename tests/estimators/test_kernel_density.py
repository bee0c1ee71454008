"""KernelDensity: bandwidths, containers, errors and flags, saving, and what it refuses."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.model_selection import GridSearchCV

import reference
import rff_stream as rs
from rff_stream.answers.density import DensityEstimate
from rff_stream.errors import NumericalWarning
from rff_stream.kernels import ArcCosine, RationalQuadratic
from rff_stream.kernels.base import log_integral
from rff_stream.predictors import AnswerPredictor


def model_of(**choices: Any) -> rs.KernelDensity:
    defaults: dict[str, Any] = {"n_components": 2048, "random_state": 0, "progress": False}
    return rs.KernelDensity(**(defaults | choices))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 2)) * [1.0, 20.0] + [0.0, 1000.0]
    x[:1200] += [4.0, 60.0]
    return x


# -------------------------------------------------------------------------------------- bandwidths


@pytest.mark.slow
def test_rules_are_shares_of_the_spread(rows: np.ndarray) -> None:
    deviation, n = rows.std(axis=0), len(rows)
    scott = model_of(n_components=4096).fit(rows)
    assert np.allclose(scott.bandwidth_, deviation * n ** (-1 / 6), rtol=1e-9)
    x = rows[:, :1]
    silverman = model_of(bandwidth="silverman").fit(x)
    expected = x.std(axis=0) * (n * 3 / 4) ** (-1 / 5)
    assert np.allclose(silverman.bandwidth_, expected, rtol=1e-9)


def test_numbers_are_in_input_units(rows: np.ndarray) -> None:
    assert model_of(bandwidth=5.0).fit(rows).bandwidth_ == 5.0
    found = model_of(bandwidth=[0.5, 10.0]).fit(rows)
    assert np.array_equal(found.bandwidth_, [0.5, 10.0])
    estimate = found.density(rows[:40])
    exact = reference.parzen(rows[:40], rows, np.array([0.5, 10.0]))
    assert (np.abs(estimate.density - exact) < 4.5 * estimate.se_features).all()


@pytest.mark.parametrize("d", [1, 2])
def test_cross_validation_sees_two_bumps(rows: np.ndarray, d: int) -> None:
    x = rows[:, :d] / [1.0, 20.0][:d]
    model = model_of(bandwidth="cv").fit(x)
    scott = model_of().fit(x)
    assert np.all(model.bandwidth_ < 0.75 * np.asarray(scott.bandwidth_))
    assert model.scores_.shape == (2, 40)
    ratio = np.asarray(model.bandwidth_) / x.std(axis=0)
    assert np.allclose(ratio, ratio[0])
    estimate = model.density(x[:40])
    exact = reference.parzen(x[:40], x, np.asarray(model.bandwidth_))
    assert (np.abs(estimate.density - exact) < 4.5 * estimate.se_features).all()


@pytest.mark.parametrize(("d", "bandwidth"), [(1, "cv"), (1, "scott"), (5, "cv")])
@pytest.mark.parametrize("sample_rows", [500, 2000])
def test_copies_are_left_out_with_their_row(d: int, bandwidth: str, sample_rows: int) -> None:
    """Every row 20 times: the smallest bandwidth predicted each from its copies, .009 for .38."""
    x = np.random.default_rng(0).normal(size=(100, d))
    once = model_of(bandwidth=bandwidth).fit(x).bandwidth_
    often = model_of(bandwidth=bandwidth, sample_rows=sample_rows).fit(np.repeat(x, 20, axis=0))
    np.testing.assert_allclose(often.bandwidth_, once, rtol=0.1)


def test_cross_validation_in_many_dimensions_uses_rows_and_their_rate() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 6))
    x[:2000] += 4.0
    model = model_of(bandwidth="cv", n_components=1024)
    with pytest.warns(NumericalWarning, match="too small for 1024"):  # at n rows, for R
        model.fit(x)
    factors, scores = model.scores_
    assert factors.shape == scores.shape == (24,)
    best = factors[np.argmin(scores)]
    expected = best * (1000 / 4000) ** (1 / 10)
    assert np.allclose(np.asarray(model.bandwidth_) / x.std(axis=0), expected, rtol=1e-6)
    assert expected < 0.5 * 4000 ** (-1 / 10)


@pytest.mark.slow
def test_weights_move_the_density_and_the_bandwidth(rows: np.ndarray) -> None:
    x, w = rows[:, :1], np.ones(len(rows))
    w[:1200] = 9.0
    model = model_of(bandwidth=0.4).fit(x, sample_weight=w)
    exact = reference.parzen(x[:50], x, 0.4, w)
    found = model.density(x[:50])
    assert (np.abs(found.density - exact) < 4.5 * found.se_features).all()
    scaled = model_of().fit(x, sample_weight=1000 * w)
    assert np.allclose(scaled.bandwidth_, model_of().fit(x, sample_weight=w).bandwidth_)


def test_a_kernel_with_its_own_length_scale_is_used_as_it_is(rows: np.ndarray) -> None:
    assert model_of(kernel=rs.Matern(3.0, nu=2.5)).fit(rows[:, :1]).bandwidth_ == 3.0


@pytest.mark.parametrize("kernel", [rs.Laplacian(0.5), rs.Cauchy(0.5), rs.Matern(0.5)], ids=str)
def test_other_kernels_are_normalised(rows: np.ndarray, kernel: Any) -> None:
    x = rows[:, :1]
    found = model_of(kernel=kernel).fit(x).density(x[:60])
    exact = kernel(x[:60], x).mean(axis=1) / np.exp(log_integral(kernel, 1))
    assert (np.abs(found.density - exact) < 4.5 * found.se_features).all()


# -------------------------------------------------------------------------------------- containers


def test_arrays_give_arrays(rows: np.ndarray) -> None:
    model = model_of().fit(rows)
    found = model.density(rows[:7])
    assert isinstance(found, DensityEstimate)
    assert all(isinstance(field, np.ndarray) and field.shape == (7,) for field in found)
    assert found.below_error.dtype == bool
    assert np.allclose(model.score_samples(rows[:7]), np.log(found.density))
    mass = (model.score_samples(rows[:7]).sum() - model.score(rows[:7])) / 7
    assert abs(mass) < 0.2, "the log of the density's own mass"


def test_frames_give_frames_where_set_output_asks(rows: np.ndarray) -> None:
    frame = pd.DataFrame(rows, columns=["u", "v"], index=np.arange(len(rows)) + 5)
    model = model_of().fit(frame)
    assert isinstance(model.density(frame[:7]), DensityEstimate)
    model.set_output(transform="pandas")
    found = model.density(frame[:7])
    assert list(found.columns) == list(DensityEstimate._fields)
    assert list(found.index) == list(range(5, 12))
    scores = model.score_samples(frame[:7])
    assert scores.name == "log_density"
    assert model.score(frame[:7]) == pytest.approx(scores.sum(), abs=7 * 0.2)


@pytest.mark.slow
def test_lazy_gives_lazy_and_the_same_numbers(rows: np.ndarray) -> None:
    lazy = da.from_array(rows, chunks=(500, 2))
    model, plain = model_of().fit(lazy), model_of().fit(rows)
    assert np.allclose(model.bandwidth_, plain.bandwidth_)
    scores = model.score_samples(lazy)
    assert isinstance(scores, da.Array)
    assert np.allclose(scores.compute(), plain.score_samples(rows), atol=1e-3)
    found = model.density(lazy)
    assert isinstance(found.density, da.Array)
    assert found.below_error.dtype == bool
    assert model.score(lazy) == pytest.approx(plain.score(rows), rel=1e-4)


def grid(rng: np.random.Generator) -> xr.Dataset:
    shape, dims = (60, 20, 8), ("time", "lat", "lon")
    t = xr.DataArray(rng.normal(280, 10, shape), dims=dims, attrs={"units": "K"})
    q = xr.DataArray(rng.normal(5, 1, shape), dims=dims, attrs={"units": "g/kg"})
    coords = {"time": np.arange(60), "lat": np.linspace(-50, 50, 20), "lon": np.arange(8) * 45.0}
    return xr.Dataset({"t": t, "q": q}, coords=coords)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"time": 20}])
def test_a_labelled_grid_gives_a_labelled_grid(rng: np.random.Generator, chunks: Any) -> None:
    data = grid(rng)
    data["t"][3, 4, 5] = np.nan
    data = data if chunks is None else data.chunk(chunks)
    model = model_of(missing_rows="drop").fit(data)
    assert (model.n_rows_, model.n_missing_) == (60 * 20 * 8 - 1, 1)
    found = model.density(data)
    assert set(DensityEstimate._fields) == set(found.data_vars)
    assert found.density.dims == ("time", "lat", "lon")
    assert found.density.attrs["units"] == "1/(K g/kg)"
    assert (found.density.chunks is not None) == (chunks is not None)
    assert np.isnan(found.density.values[3, 4, 5])
    assert np.isnan(found.below_error.values[3, 4, 5])
    assert int(found.density.isnull().sum()) == 1
    assert np.array_equal(found.lat, data.lat)
    weights = np.cos(np.deg2rad(data.lat))
    weighted = model_of(missing_rows="drop").fit(data, sample_weight=weights)
    assert weighted.moments_.weight == pytest.approx(float((weights * 480).sum() - weights[4]))


@pytest.mark.slow
def test_zarr_in_labelled_out(rng: np.random.Generator, tmp_path: Path) -> None:
    data = grid(rng)
    data.to_zarr(tmp_path / "d.zarr")
    model = model_of().fit(str(tmp_path / "d.zarr"), inputs=["t"])
    assert model.columns_.inputs == ("t",)
    found = model.score_samples(str(tmp_path / "d.zarr"))
    assert np.allclose(found.values, model_of().fit(data, inputs=["t"]).score_samples(data))


# -------------------------------------------------------------------------------------- model file


@pytest.mark.slow
def test_a_saved_model_says_the_same(rows: np.ndarray, tmp_path: Path) -> None:
    for name, choices in {"scott": {}, "cv": {"bandwidth": "cv"}}.items():
        model = model_of(**choices).fit(rows)
        model.save(tmp_path / f"{name}.zarr")
        loaded = rs.load(tmp_path / f"{name}.zarr")
        assert isinstance(loaded, rs.KernelDensity)
        assert np.array_equal(loaded.bandwidth_, model.bandwidth_)
        for one, other in zip(loaded.density(rows[:9]), model.density(rows[:9]), strict=True):
            assert np.array_equal(one, other)


def test_what_is_shipped_to_a_worker_is_a_function_of_rows(rows: np.ndarray) -> None:
    model = model_of().fit(rows)
    function = AnswerPredictor(model.features_, model.density_.log_density)
    shipped = pickle.dumps(function)
    assert len(shipped) < 8 * 2048 * (32 + 6)  # deviations, coefficients and the map
    assert np.array_equal(pickle.loads(shipped)(rows[:9]), function(rows[:9]))


def test_with_its_moments_a_model_can_be_compared(rows: np.ndarray, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).permutation(rows)
    model = model_of().fit(rows)
    model.save(tmp_path / "m.zarr", moments=True)
    loaded = rs.load(tmp_path / "m.zarr")
    assert loaded.moments_.order == 1
    row, choices = model.moments_.row, {"order": 1, "progress": False}
    same = rs.collect(model.features_, rows[::-1], row=row, **choices)
    later = rs.collect(model.features_, rows + np.array([0.5, 10.0]), row=row, **choices)
    assert rs.mmd(loaded.moments_, same).p_value > 0.5
    assert rs.mmd(loaded.moments_, later).p_value < 0.001


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("bandwidth", [0, -1.0, np.nan, np.inf, "scot", [1.0], [1.0, 0.0], None])
def test_what_is_no_bandwidth_is_refused_before_a_row_is_read(bandwidth: Any) -> None:
    def read(block: Any) -> Any:
        raise AssertionError("a row was read")

    lazy = da.from_array(np.zeros((100, 2)), chunks=50).map_blocks(
        read, dtype=float, meta=np.zeros((0, 2))
    )
    with pytest.raises(ValueError, match=r"bandwidth=.*'scott', 'silverman', 'cv', a number > 0"):
        model_of(bandwidth=bandwidth).fit(lazy)


def test_two_length_scales_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"bandwidth=2\.0 but the kernel.*has a length-scale"):
        model_of(bandwidth=2.0, kernel=rs.Gaussian(1.0)).fit(rows)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (RationalQuadratic(mixture=1.0), "log ∫κ = inf in 2 dimensions"),
        (rs.Gaussian() * rs.Laplacian(), "no spectral density"),
        (ArcCosine(), "is no function of x − x'"),
    ],
    ids=["heavy", "product", "arc"],
)
def test_kernels_without_an_integral_are_refused(rows: np.ndarray, kernel: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_of(kernel=kernel).fit(rows)


@pytest.mark.slow
def test_a_bandwidth_that_the_components_cannot_resolve_warns_with_how_many_can(
    rows: np.ndarray,
) -> None:
    x, sizes = rows / rows.std(axis=0), [256]
    while sizes[-1]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model_of(bandwidth=0.05, n_components=sizes[-1]).fit(x)
        said = "".join(str(each.message) for each in caught)
        assert "bandwidth_=0.05 is too small" in said or not said
        sizes.append(int(said.partition("n_components=")[2].split()[0]) if said else 0)
    assert sizes[:-1] == sorted(sizes[:-1])
    assert 3 <= len(sizes) <= 5  # the last is 0
    assert 1000 < sizes[-2] < 50_000


@pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")
def test_a_hopeless_bandwidth_warns_without_a_number(rows: np.ndarray) -> None:
    with pytest.warns(NumericalWarning, match=r"too small for 2 components"):
        model_of(bandwidth=1e-6, n_components=2).fit(rows)


def test_one_row_has_no_spread_but_a_density() -> None:
    with pytest.raises(ValueError, match=r"input 0 is 1\.5 in all n_samples=1 pilot rows"):
        model_of().fit([[1.5, 2.0]])
    model = model_of(bandwidth=1.0).fit([[1.5, 2.0]])
    found = model.density([[1.5, 2.0], [2.5, 2.0]])
    assert np.isnan(found.se_data).all()
    assert found.density[0] == pytest.approx(1 / (2 * np.pi), rel=1e-5)
    assert abs(found.density[1] - np.exp(-0.5) / (2 * np.pi)) < 4.5 * found.se_features[1]


def test_equal_rows_have_no_spread_but_a_density() -> None:
    x = np.tile([1.0, 2.0], (500, 1))
    with pytest.raises(ValueError, match=r"bandwidth='cv' is relative to the spread of each"):
        model_of(bandwidth="cv").fit(x)
    found = model_of(bandwidth=[1.0, 2.0]).fit(x).density([[1.0, 2.0]])
    assert found.density[0] == pytest.approx(1 / (4 * np.pi), rel=1e-5)
    assert found.se_data[0] == pytest.approx(0, abs=1e-7)


def test_a_constant_input_is_named(rows: np.ndarray) -> None:
    x = np.column_stack([rows, np.full(len(rows), 7.0)])
    with pytest.raises(ValueError, match=r"input 2 is 7\.0 in all n_samples=3000 pilot rows"):
        model_of().fit(x)


def test_rows_that_repeat_warn_where_no_bandwidth_is_best() -> None:
    x = np.repeat(np.arange(5.0), 400)[:, None]
    with pytest.warns(NumericalWarning, match=r"no minimum between bandwidths of.*repeated rows"):
        model_of(bandwidth="cv").fit(x)


def test_a_bad_fit_leaves_the_model_as_it_was(rows: np.ndarray) -> None:
    model = model_of().fit(rows)
    before = model.score_samples(rows[:3])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((10, 2), np.nan))
    assert np.array_equal(model.score_samples(rows[:3]), before)
    with pytest.raises(ValueError, match="sample_rows=-1"):
        model_of(sample_rows=-1).fit(rows)


# -------------------------------------------------------------------------------------------- maps


@pytest.mark.parametrize(
    "features", ["orthogonal", "fourier", "phase", "qmc", "structured", "nystroem", "hermite"]
)
def test_a_density_of_any_map_is_that_of_its_kernel(features: str) -> None:
    x = np.random.default_rng(0).standard_normal((2000, 1))
    places = np.linspace(-1, 1, 9)[:, None]
    model = model_of(bandwidth=0.5, features=features, n_components=1024).fit(x)
    exact = reference.parzen(places, x, 0.5)
    # Five standard errors of 512 independent frequencies, whose variance is at most 1/2.
    assert np.abs(model.density(places).density - exact).max() < 5 / np.sqrt(1024) / 1.25


def test_a_map_given_as_a_value_is_used_for_the_bandwidth_that_is_named(rows: np.ndarray) -> None:
    made = rs.FourierFeatures.sample(rs.Gaussian((1.0, 20.0)), 2, 512, rng=0)
    model = model_of(bandwidth=[1.0, 20.0], features=made).fit(rows)
    assert model.features_ is made
    assert len(model.density_.coef) == 512
    by_kernel = model_of(kernel=rs.Gaussian((1.0, 20.0)), features=made).fit(rows)
    np.testing.assert_array_equal(model.score_samples(rows), by_kernel.score_samples(rows))


@pytest.mark.parametrize("bandwidth", ["scott", "silverman", "cv"])
def test_a_map_has_a_bandwidth_already(rows: np.ndarray, bandwidth: str) -> None:
    made = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 512, rng=0)
    with pytest.raises(ValueError, match="features is a map, which was made for one bandwidth"):
        model_of(bandwidth=bandwidth, features=made).fit(rows)


def test_an_unknown_map_is_named(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match="features='wavelets' but it must be one of"):
        model_of(features="wavelets").fit(rows)


# ------------------------------------------------------------------------------------------- scores


def test_fewer_features_have_no_better_score() -> None:
    """R=16 scored −0.70 a row, where the truth itself scores −1.416."""
    rng = np.random.default_rng(0)
    rows, test = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 1))
    truth = float(np.mean(-0.5 * test**2 - 0.5 * np.log(2 * np.pi)))
    for size in (16, 64, 1024):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            model = rs.KernelDensity(n_components=size, random_state=0, progress=False).fit(rows)
        assert truth - 0.5 < model.score(test) / 1000 < truth + 0.02
    assert model.score(test) / 1000 > truth - 0.02


@pytest.mark.parametrize("d", [1, 2])
def test_of_few_inputs_the_density_is_that_of_all_kernels(d: int, rng: Any) -> None:
    """Sobol frequencies: log densities of typical rows were .08 (d = 1) and .18 off."""
    rows, new = rng.normal(size=(2000, d)), rng.normal(size=(300, d))
    model = model_of(n_components=4096).fit(rows)
    scale = np.broadcast_to(model.bandwidth_, d)
    squared = (((new[:, None] - rows) / scale) ** 2).sum(axis=2)
    exact = np.exp(-squared / 2).mean(axis=1) / np.prod(scale * np.sqrt(2 * np.pi))
    found = model.density(new)
    typical = exact > np.quantile(exact, 0.2)
    assert np.abs(np.log(found.density / exact))[typical].max() < 0.05
    error = np.abs(found.density - exact)
    assert (error < 3 * found.se_features).mean() > 0.99
    assert np.median(found.se_features) < 0.02 * np.median(exact)  # it was .1 and more


@pytest.mark.slow
def test_a_grid_search_does_not_pick_the_smallest_bandwidth() -> None:
    rows = np.random.default_rng(0).normal(size=(900, 1))
    model = rs.KernelDensity(n_components=512, random_state=0, progress=False)
    candidates = [0.02, 0.05, 0.1, 0.2, 0.3, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        search = GridSearchCV(model, {"bandwidth": candidates}, cv=3).fit(rows)
    assert 0.1 <= search.best_params_["bandwidth"] <= 0.3


def test_the_published_density_integrates_to_1_within_its_error() -> None:
    rows = np.random.default_rng(0).normal(size=(1500, 1))
    model = rs.KernelDensity(random_state=0, progress=False).fit(rows)
    places = np.linspace(-8, 8, 3001)[:, None]
    found, step = model.density(places), 16 / 3000
    assert abs(found.density.sum() * step - 1) < found.se.sum() * step
