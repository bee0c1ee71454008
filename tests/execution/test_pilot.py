"""What the pilot says equals what dense formulas say about its rows."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

import rff_stream as rs
from rff_stream._array import Array, Float64
from rff_stream.errors import DataError, NumericalWarning
from rff_stream.execution import Reading
from rff_stream.features import FourierFeatures
from rff_stream.kernels import Gaussian
from rff_stream.pilot import (
    PILOT_BLOCKS,
    PILOT_ROWS,
    Pilot,
    augmented_row,
    smallest,
    weighted_median,
)
from rff_stream.sources import open_source


def pilot_of(x: Array, y: Array | None = None, w: Array | None = None) -> Pilot:
    y = np.zeros((len(x), 1)) if y is None else y
    return Pilot(np.asarray(x, float), y, np.ones(len(x)) if w is None else w)


def test_origins_and_scales_are_weighted_means_and_deviations(rng: np.random.Generator) -> None:
    x, y, w = rng.normal(5, 2, (400, 3)), rng.normal(-9, 40, (400, 2)), rng.integers(1, 6, 400)
    found = pilot_of(x, y, w.astype(float))
    xs, ys = np.repeat(x, w, axis=0), np.repeat(y, w, axis=0)
    assert np.allclose(found.origin, xs.mean(axis=0), rtol=1e-12)
    assert np.allclose(found.scale, xs.std(axis=0), rtol=1e-12)
    assert np.allclose(found.target_origin, ys.mean(axis=0), rtol=1e-12)
    ratio = found.target_scale / ys.std(axis=0)
    assert ((ratio > 0.7) & (ratio < 1.42)).all()
    assert (np.log2(found.target_scale) % 1 == 0).all()


@given(value=st.floats(-1e12, 1e12, allow_subnormal=False), n=st.integers(1, 50))
def test_a_constant_column_has_scale_1(value: float, n: int) -> None:
    found = pilot_of(np.full((n, 1), value), np.full((n, 1), value))
    assert found.scale.tolist() == [1.0]
    assert found.target_scale.tolist() == [1.0]
    assert found.median_length_scale().tolist() == [1.0]


def test_a_large_offset_is_not_taken_for_a_constant(rng: np.random.Generator) -> None:
    x = 1e9 + rng.normal(size=(500, 1))  # seconds since 1970
    assert pilot_of(x).scale[0] == pytest.approx(x.std(), rel=1e-6)


def test_the_median_is_that_of_all_pairs_of_standardised_rows(rng: np.random.Generator) -> None:
    x = rng.normal(size=(301, 3)) * [1.0, 100.0, 1e-3]
    expected = np.median(pdist(x / x.std(axis=0)))
    found = pilot_of(x).median_length_scale()
    assert np.allclose(found, expected * x.std(axis=0), rtol=1e-3)


def test_weights_of_the_median_are_repeated_rows(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(120, 2)), rng.integers(1, 4, 120)
    weighted = pilot_of(x, w=w.astype(float)).median_length_scale()
    repeated = pilot_of(np.repeat(x, w, axis=0)).median_length_scale()
    assert np.allclose(weighted, repeated, rtol=1e-12)


def test_equal_rows_do_not_count_for_the_median(rng: np.random.Generator) -> None:
    x = rng.normal(size=(60, 1))
    many = np.concatenate([x, np.repeat(x[:1], 300, axis=0)])
    found = pilot_of(many).median_length_scale() / pilot_of(many).scale
    distances = pdist(many / many.std())
    assert found[0] == pytest.approx(np.median(distances[distances > 0]), rel=1e-2)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 5)), min_size=1, max_size=30))
def test_a_weighted_median_is_the_median_of_repeated_values(pairs: list[tuple[int, int]]) -> None:
    values, weights = np.array(pairs, float).T
    repeated = np.sort(np.repeat(values, weights.astype(int)))
    assert weighted_median(values, weights) == repeated[(len(repeated) - 1) // 2]


def test_the_row_has_the_mean_features_of_the_pilot(rng: np.random.Generator) -> None:
    x, y, w = rng.normal(size=(9000, 2)), rng.normal(size=(9000, 1)), rng.uniform(1, 2, 9000)
    features = FourierFeatures.sample(Gaussian(), 2, 8, rng=0, dtype="float64")
    row = augmented_row(features, pilot_of(x, y, w), ("a", "b"), ("y",), ("", "", "K"))
    assert np.allclose(row.feature_origin, np.average(features(x), axis=0, weights=w), atol=1e-14)
    assert row.map_fingerprint == features.fingerprint
    assert (row.inputs, row.targets, row.units) == (("a", "b"), ("y",), ("", "", "K"))


# ---------------------------------------------------------------------------------- read from data


def read(X: Any, y: Any, **choices: Any) -> Pilot:
    seed = choices.pop("seed", 0)
    return Reading(open_source(X, y, **choices), progress=False).pilot(seed)


def test_all_rows_of_small_data_are_taken(rng: np.random.Generator) -> None:
    x, y, w = rng.normal(size=(3000, 2)), rng.normal(size=3000), rng.uniform(0.5, 2, 3000)
    found = read(x, y, sample_weight=w)
    order = np.lexsort(found.x.T)
    expected = np.lexsort(x.T)
    assert np.array_equal(found.x[order], x[expected])
    assert np.array_equal(found.y[order, 0], y[expected])
    assert np.array_equal(found.w[order], w[expected])


@pytest.mark.parametrize("chunk", [100_000, 2_000, 37])
def test_large_data_are_sampled_all_over(rng: np.random.Generator, chunk: int) -> None:
    n = 100_000
    x = np.column_stack([np.arange(n), rng.normal(size=n)])
    found = read(da.from_array(x, chunks=(chunk, 2)), da.from_array(x[:, 1], chunks=chunk))
    assert PILOT_ROWS <= len(found.x) <= PILOT_BLOCKS * PILOT_ROWS
    assert len(np.unique(found.x[:, 0])) == len(found.x)
    filled = np.bincount((found.x[:, 0] * 16 // n).astype(int), minlength=16)
    assert (filled > 0).all(), "every sixteenth of the data is there"
    assert abs(found.origin[0] - n / 2) < 0.1 * n


def test_the_same_seed_gives_the_same_rows(rng: np.random.Generator) -> None:
    x = rng.normal(size=(50_000, 1))
    lazy = da.from_array(x, chunks=(1000, 1))
    first, again, other = (read(lazy, lazy[:, 0], seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.x, again.x)
    assert first.x.shape != other.x.shape or not np.array_equal(first.x, other.x)


def test_rows_of_weight_0_and_missing_rows_are_not_pilot_rows(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2000, 1)), np.ones(2000)
    w[::2] = 0
    x[1::4] = np.nan
    found = read(x, np.ones(2000), sample_weight=w, missing_rows="drop")
    assert len(found.x) == 500
    assert np.isfinite(found.x).all()


def test_a_pilot_looks_on_where_the_first_blocks_are_land(rng: np.random.Generator) -> None:
    """All but 1 of 16 chunks are missing rows."""
    x: Float64 = rng.normal(size=(400_000, 1))
    chunk = np.arange(400_000) // 1000
    x[(chunk * 7919) % 16 != 3] = np.nan
    lazy = da.from_array(x, chunks=(1000, 1))
    found = read(lazy, da.ones(400_000, chunks=1000), missing_rows="drop")
    assert len(found.x) >= PILOT_ROWS
    assert np.isfinite(found.x).all()


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_valid_chunk_in_many_is_enough(where: str) -> None:
    """What is valid is found, or nothing can be fitted; 'every row is missing' would be false."""
    n, chunk = 600_000, 1000
    x = np.full((n, 1), np.nan)
    start = {"first": 0, "middle": n // 2, "last": n - chunk}[where]
    x[start : start + chunk, 0] = np.arange(chunk)
    lazy = da.from_array(x, chunks=(chunk, 1))
    found = read(lazy, da.ones(n, chunks=chunk), missing_rows="drop")
    assert 0 < len(found.x) <= chunk


def test_nothing_valid_is_an_error_that_names_the_inputs() -> None:
    with pytest.raises(DataError, match=r'0 sample\(s\).*"x0" and "x1"'):
        read(np.full((100, 2), np.nan), np.ones(100), missing_rows="drop")


# ----------------------------------------------------------------- rows that meet conditions
def cube() -> Any:
    """Two years, four times a day, on a small grid, in chunks of half a year."""
    import xarray as xr

    rng = np.random.default_rng(0)
    time = np.datetime64("2013-01-01T00", "ns") + np.arange(2920) * np.timedelta64(6, "h")
    data = xr.Dataset(
        {"t": (("time", "lat", "lon"), rng.normal(size=(2920, 5, 6)))},
        {"time": time, "lat": np.arange(5.0), "lon": np.arange(6.0)},
    )
    data["warm"] = data.t.mean("lon") > 0.9
    return data


@pytest.mark.parametrize(
    ("where", "least"),
    [
        (("time.month", "==", 4), 300.0),  # the span of two Aprils in days, nearly
        (("time", "<", "2013-03-01"), 50.0),
        (("lat", ">", 3.5), 700.0),
        (("warm", "==", 1), 600.0),  # of two dimensions: known only where it is read
    ],
)
@pytest.mark.parametrize("place", ["memory", "zarr", "dask"])
def test_the_pilot_sees_the_rows_that_will_be_fitted(
    where: Any, least: float, place: str, tmp_path: Any
) -> None:
    data = cube()
    data = data.chunk(time=730) if place != "memory" else data
    if place == "zarr":
        data.to_zarr(tmp_path / "c.zarr")
        data = tmp_path / "c.zarr"
    source = open_source(data, "t", inputs=["time", "lat", "lon"], where=[where])
    pilot = Reading(source, progress=False).pilot()
    every = cube()
    kept = every.where(
        {
            "time.month": every["time"].dt.month == 4,
            "time": every.time < np.datetime64("2013-03-01"),
            "lat": every.lat > 3.5,
            "warm": every.warm,
        }[where[0]],
        drop=True,
    ).stack(row=("time", "lat", "lon"))
    rows = kept.t.dropna("row")
    assert len(pilot.x) >= min(4096, rows.size)
    assert np.ptp(pilot.x[:, 0]) > least
    days = (rows.time.values - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    assert np.isin(pilot.x[:, 0], days).all()
    assert pilot.x[:, 0].mean() == pytest.approx(days.mean(), abs=0.2 * days.std())
    assert pilot.x[:, 0].std() == pytest.approx(days.std(), rel=0.15)


@pytest.mark.slow
def test_a_condition_that_leaves_little_is_no_error(shared_data: Any) -> None:
    """Few chunks: the places looked at first held no April, and "every row is missing"."""
    import rff_stream as rs

    path = shared_data("air_temperature.zarr")
    every = rs.KernelRidge(alpha=1.0, n_components=64, random_state=0, progress=False)
    with pytest.warns(NumericalWarning, match="time has no rows: 85% of its range"):
        april = every.fit(path, "air", inputs=["time", "lat"], where=[("time.month", "==", 4)])
    assert april.n_rows_ == 318_000


# ------------------------------------------------------------------- far values, constant columns


def named_pilot(x: Any, inputs: tuple[str, ...] = ()) -> Pilot:
    return Pilot(x, np.zeros((len(x), 1)), np.ones(len(x)), inputs)


@pytest.mark.parametrize("far", [1e3, 1e9])
def test_one_far_value_does_not_make_a_scale(far: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal((500, 2))
    kind = named_pilot(x.copy())
    x[7, 0] = far
    pilot = named_pilot(x, ("a", "b"))
    assert pilot.scale[0] == pytest.approx(1, rel=0.15)
    assert pilot.scale[1] == kind.scale[1], "where data are kind, no bit changes"
    assert abs(pilot.origin[0]) < 0.1
    with pytest.warns(NumericalWarning, match=r"a \(.* and 0\.9"):
        pilot.warn_of_outliers()


@pytest.mark.parametrize("law", ["normal", "uniform", "exponential", "lognormal", "laplace"])
def test_lawful_tails_keep_the_standard_deviation(law: str, rng: np.random.Generator) -> None:
    x = getattr(rng, law)(size=(4000, 1))
    assert named_pilot(x).scale[0] == pytest.approx(x.std(), rel=1e-12)


def test_indicators_keep_the_standard_deviation(rng: np.random.Generator) -> None:
    for share in (0.001, 0.02, 0.1, 0.3, 0.5):
        x = (rng.uniform(size=(4000, 1)) < share) * 1.0
        assert named_pilot(x).scale[0] == pytest.approx(x.std(), rel=1e-9)


def test_a_weight_counts_as_that_many_rows(rng: np.random.Generator) -> None:
    x, w = rng.standard_cauchy((300, 2)), rng.integers(1, 4, 300)
    one = Pilot(x, np.zeros((300, 1)), w.astype(float))
    repeated = named_pilot(np.repeat(x, w, axis=0))
    np.testing.assert_allclose(one.scale, repeated.scale, rtol=1e-9)
    np.testing.assert_allclose(one.origin, repeated.origin, rtol=1e-9)


@pytest.mark.parametrize("length_scale", ["median", "evidence", "ard"])
def test_a_constant_input_is_left_out_of_the_map(length_scale: Any) -> None:
    """It had standard deviation 743 where the function has 1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (400, 3))
    x[:, 2] = 5.0
    y = np.sin(2 * x[:, 0]) * x[:, 1]
    model = rs.KernelRidge(
        n_components=64, length_scale=length_scale, alpha=0.01, random_state=0, progress=False
    )
    with pytest.warns(NumericalWarning, match="left out of the map: x2=5"):
        model.fit(x, y)
    plain = model.predict(x)
    x[:, 2] = rng.uniform(-9, 9, 400)
    with pytest.warns(NumericalWarning, match="x2 vary in these rows but were constant"):
        varied = model.predict(x)
    np.testing.assert_array_equal(varied, plain)


def test_inputs_of_large_scale_are_not_called_constant(rng: np.random.Generator) -> None:
    x = 1e32 * rng.normal(size=(200, 2))
    model = rs.KernelRidge(n_components=16, random_state=0, progress=False).fit(x, x[:, 0])
    model.predict(x)  # warnings are errors


def test_outliers_of_training_do_not_hide_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    x[:20] *= 1e4
    with pytest.warns(NumericalWarning, match="The quartiles are used"):
        model = rs.NoveltyDetector(random_state=0, progress=False).fit(x)
    assert list(model.predict([[50.0, 0.0], [0.0, 0.0]])) == [-1, 1]


@pytest.mark.parametrize("factor", [1e-170, 1e154, 1e160, 1e305])
@pytest.mark.parametrize("what", ["input", "target"])
def test_numbers_whose_squares_are_none_are_refused(factor: float, what: str) -> None:
    """A poor fit with NumPy's warnings, or an error that named no column."""
    x = np.random.default_rng(0).uniform(1, 2, (50, 2))
    with pytest.raises(DataError, match=rf"The {what} .* varies by .* Multiply the {what}"):
        if what == "input":
            pilot_of(x * [1.0, factor])
        else:
            pilot_of(x, x * factor)


@pytest.mark.parametrize("weight", [1e-300, 1e-90, 1e200])
def test_weights_that_vanish_beside_any_penalty_are_refused(weight: float) -> None:
    x = np.random.default_rng(0).uniform(1, 2, (50, 2))
    model = rs.KernelRidge(n_components=16, random_state=0, progress=False)
    with pytest.raises(DataError, match=r"A row has weight .* Multiply the weights"):
        model.fit(x, x[:, 0], np.full(50, weight))


@pytest.mark.parametrize(("gap", "told"), [(10_000.0, True), (1000.0, False)])
def test_a_median_that_measures_a_gap_is_told(gap: float, told: bool) -> None:
    """Two years of days with thirty years between: the year was lost, in silence."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 730, (600, 1)) + gap * rng.integers(2, size=(600, 1))
    pilot = Pilot(t, np.sin(t), np.ones(600), ("day",))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pilot.warn_of_wide_gaps()
        Pilot(np.round(t / gap), np.sin(t), np.ones(600)).warn_of_wide_gaps()  # two levels
    assert [f"day has no rows: {9270 / 10730:.0%}" in str(each.message) for each in caught] == (
        [True] if told else []
    )


@pytest.mark.slow
@pytest.mark.parametrize("gap", [900.0, 20.0])
def test_a_gap_of_many_length_scales_is_told(gap: float) -> None:
    """Ten years with a season, a trend and a gap: the mean filled it, worse than a line."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 3650, 800))
    t = t[(t < 1500) | (t > 1500 + gap)]
    y = 0.003 * t + 5 * np.sin(2 * np.pi * t / 365) + 0.5 * rng.normal(size=len(t))
    model = rs.GaussianProcessRegressor(
        length_scale="evidence", n_components=128, random_state=0, progress=False
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(t[:, None], y)
    told = [each for each in caught if "x0 has no rows" in str(each.message)]
    assert len(told) == (gap > 500)


def test_a_warning_names_the_line_that_called() -> None:
    x = np.column_stack([np.arange(300.0), np.ones(300)])
    with pytest.warns(NumericalWarning, match="constant in the 300 pilot rows") as caught:
        model = rs.KernelRidge(n_components=32, progress=False).fit(x, x[:, 0])
    assert {each.filename for each in caught} == {__file__}
    with pytest.warns(NumericalWarning, match="outside") as caught:
        model.score(x + 1e4, x[:, 0])  # a method of scikit-learn stands between
    assert {each.filename for each in caught} == {__file__}


def test_a_program_without_a_name_is_warned() -> None:
    program = """
x = np.column_stack([np.arange(300.0), np.ones(300)])
rs.KernelRidge(n_components=32, progress=False).fit(x, x[:, 0])
"""
    with pytest.warns(NumericalWarning, match="constant in the 300 pilot rows"):
        exec(program, {"np": np, "rs": rs})


@pytest.mark.parametrize("size", [1, 7, 100, 999, 1000, 2000])
def test_the_nearest_rows_are_the_first_of_a_stable_sort(size: int) -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=1000), rng.integers(0, 9, 1000) / 3, np.zeros(1000)):
        expected = np.sort(np.argsort(values, kind="stable")[:size])
        assert smallest(values, size).tolist() == expected.tolist()
