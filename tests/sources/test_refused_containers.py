"""What a container, or rows of it, that cannot be used is told, in words of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.calibration import CalibratedClassifierCV
from sklearn.inspection import DecisionBoundaryDisplay

import rff_stream as rs
from rff_stream.cli import main
from rff_stream.errors import DataError
from toys import ridge

pytestmark = pytest.mark.usefixtures("quiet")

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def frame() -> Any:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 150))
    return pd.DataFrame({"a": a, "b": b, "y": np.sin(a) + b**2 / 3, "kind": a > 0})


def test_series_object_has_no_attribute_reshape() -> None:
    mpl.use("Agg")
    table = frame()
    model = rs.KernelClassifier(n_components=32, random_state=0, progress=False)
    model.fit(table[["a", "b"]], table["kind"])
    shown = DecisionBoundaryDisplay.from_estimator(model, table[["a", "b"]], grid_resolution=5)
    assert shown.response.shape == (5, 5)
    calibrated = CalibratedClassifierCV(model, cv=2).fit(table[["a", "b"]], table["kind"])
    assert calibrated.predict_proba(table[["a", "b"]]).shape == (150, 2)


def test_invalid_index_error_of_the_second_column() -> None:
    table = frame()
    model = rs.KernelClassifier(n_components=32, random_state=0, progress=False)
    model.fit(table[["a", "b"]], table["kind"])
    assert model.predict_proba(table[["a", "b"]])[:, 1].shape == (150,)


def test_feature_names_unseen_at_fit_time_y() -> None:
    table = frame().drop(columns="kind")
    assert ridge().fit(table, "y").predict(table).shape == (150,)


def test_lazy_frame_is_not_subscriptable() -> None:
    lazy = pl.from_pandas(frame()).lazy()
    assert ridge().fit(lazy, "y", inputs=["a", "b"]).n_rows_ == 150


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray, pl.DataFrame], ids=["pd", "np", "pl"])
def test_dimensions_of_rows_without_names_are_not_passed_over(kind: Any) -> None:
    X = kind(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(DataError, match=r"dim=\('time',\), but X has no dimension 'time'"):
        ridge().fit(X, np.arange(20.0), dim="time")


def test_x_has_no_column_y_prints_no_data() -> None:
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame())
    assert ridge().fit(table, "y", inputs=["a", "b"]).n_rows_ == 150
    with pytest.raises(rs.errors.DataError, match=r'no \'z\' in the table.*"a", "b", "y" and'):
        ridge().fit(table, "z")


def test_a_relation_is_indexed_by_one_column_name() -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.from_df(frame())
    assert ridge().fit(relation, "y", inputs=["a", "b"]).n_rows_ == 150


def test_fit_of_an_icechunk_store() -> None:
    icechunk = pytest.importorskip("icechunk")
    xr = pytest.importorskip("xarray")
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    xr.Dataset.from_dataframe(frame()).to_zarr(session.store, consolidated=False, zarr_format=3)
    assert ridge().fit(session.store, "y", inputs=["a", "b"]).n_rows_ == 150


def test_x_holds_strings() -> None:
    table = frame().astype({"kind": str})
    for given in (table, table.astype({"kind": "category"})):
        assert ridge().fit(given, "y").n_features_in_ == 4


@pytest.mark.parametrize("model", [ridge(), rs.KernelClassifier(), rs.NoveltyDetector()])
def test_a_missing_value_in_memory_has_a_remedy_of_ours(model: Any) -> None:
    gap = frame()[["a", "b"]].to_numpy(copy=True)
    gap[3, 0] = np.nan
    with pytest.raises(rs.errors.DataError, match=r"X contains NaN.*missing_rows=.drop") as failed:
        model.fit(gap, frame()["kind"])
    assert "HistGradientBoosting" not in str(failed.value)


def test_a_grid_of_coordinates_alone_is_predicted_in_its_own_order() -> None:
    xr = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    axes = {"time": np.arange(4.0), "lat": np.arange(5.0), "lon": np.arange(6.0)}
    data = xr.Dataset({"sst": ((*axes,), rng.normal(size=(4, 5, 6)))}, axes)
    model = ridge().fit(data, "sst", inputs=["lat", "lon", "time"])
    for order in (("time", "lat", "lon"), ("lon", "time", "lat")):
        found = model.predict(xr.Dataset(coords={dim: axes[dim] for dim in order}))
        assert found.dims == order
        np.testing.assert_allclose(found.transpose(*axes), model.predict(data))


def test_a_pattern_that_matches_no_file_is_named() -> None:
    with pytest.raises(rs.errors.DataError, match=r"days-\*\.nc matches no file.*Look at the"):
        ridge().fit("days-*.nc", "sst")


def test_errors_of_the_shell_have_its_own_words(tmp_path: Path) -> None:
    gap = frame().drop(columns="kind")
    gap.loc[3, "a"] = np.nan
    gap.to_parquet(tmp_path / "gap.parquet")
    words = ["fit", str(tmp_path / "gap.parquet"), "--target", "y", "--n-components", "16"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 3
    assert "--missing-rows drop" in done.stderr
    assert "missing_rows=" not in done.stderr


def test_help_writes_model_before_data() -> None:
    for command in ("predict", "score", "update"):
        done = CliRunner().invoke(main, [command, "--help"])
        assert "MODEL DATA" in done.stdout
        assert "--model" not in done.stdout


@pytest.mark.parametrize("sums", ["float64", "float32"])
@pytest.mark.parametrize("n", [40, 300])
def test_linalg_error_of_alpha_0(n: int, sums: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 2))
    y = np.sin(X[:, 0]) * X[:, 1]
    model = rs.KernelRidge("laplacian", 1.0, 512, 0.0, sums=sums, random_state=0, progress=False)
    # float32 sums leave out directions below 512·n·2⁻²⁴ of the trace, of n rows
    bound = 1e-6 if sums == "float64" else 0.05
    assert abs(model.fit(X, y).predict(X) - y).max() < bound
    assert model.alpha_ == 0
    assert model.df_ <= n + 1e-9
