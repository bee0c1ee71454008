"""Predictions of a table are a table: its rows in their order, its index, the columns to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

import rff_stream as rs
from growing import days, table, write, written
from rff_stream.cli import tables
from toys import run

READERS: dict[str, Any] = {
    "parquet": pd.read_parquet, "arrow": pd.read_feather, "csv": pd.read_csv,
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A Gaussian process of a day."""
    made = rs.GaussianProcessRegressor(n_components=32, random_state=0, progress=False)
    made.fit(table(0, 300), "t", inputs=["u", "v"]).save(tmp_path / "gp.zarr", moments=True)
    return tmp_path / "gp.zarr"


@pytest.mark.parametrize("end", READERS)
@pytest.mark.parametrize("source", ["parquet", "csv", "arrow"])
def test_rows_keep_their_order_and_their_keys(tmp_path, model, monkeypatch, source, end):
    monkeypatch.setattr(tables, "ROWS", 32)
    rows = table(1, 100).assign(id=[f"r{i}" for i in range(100)])
    rows.loc[3, "u"] = np.nan
    write(tmp_path / f"rows.{source}", rows)
    out = tmp_path / f"out.{end}"
    asked = ["--keep", "id,day", "--std", "--interval", 0.9]
    done = run("predict", model, tmp_path / f"rows.{source}", "--output", out, *asked)
    assert done.exit_code == 0, done.output
    found, loaded = READERS[end](out), rs.load(model).set_params(missing_rows="drop")
    assert list(found) == ["id", "day", "t", "t_std", "t_lower", "t_upper"]
    assert list(found["id"]) == list(rows["id"])
    mean, std = loaded.predict(rows[["u", "v"]], return_std=True)
    np.testing.assert_allclose(found["t"], mean, rtol=1e-12)
    np.testing.assert_allclose(found["t_std"], std, rtol=1e-12)
    assert np.isnan(found["t"][3]) and (found["t_lower"] < found["t_upper"]).sum() == 99


INDICES: dict[str, Any] = {
    "names": pd.Index([f"s{i}" for i in range(20)], name="station"),
    "a part": pd.RangeIndex(100, 120),
    "backwards": pd.RangeIndex(19, -1, -1, name="row"),  # in the notes of Parquet, not a column
}


@pytest.mark.parametrize("end", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", INDICES)
def test_the_index_of_pandas_comes_back(tmp_path, model, kind, end):
    rows = table(1, 20).set_index(INDICES[kind])
    rows.to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / f"out.{end}"
    assert run("predict", model, tmp_path / "rows.parquet", "--output", out).exit_code == 0
    found = READERS[end](out)
    pd.testing.assert_index_equal(found.index, rows.index)
    assert list(found) == ["t"]
    np.testing.assert_allclose(found["t"], rs.load(model).predict(rows), rtol=1e-12)


def test_several_files_make_a_folder_of_them(tmp_path, model):
    folder, out = written(tmp_path / "days", 1, 2, 3), tmp_path / "out.csv"
    write(folder / "d04.parquet", table(4).iloc[:0])
    assert run("predict", model, f"{folder}/*.parquet", "--output", out).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [f"d0{i}.csv" for i in (1, 2, 3, 4)]
    assert [len(pd.read_csv(out / f"d0{i}.csv")) for i in (1, 2, 3, 4)] == [60, 60, 60, 0]
    again = run("predict", model, folder, "--output", out)
    assert again.exit_code == 4 and "--overwrite" in again.stderr
    assert run("predict", model, folder, "--output", out, "--overwrite").exit_code == 0


def test_few_rows_are_held_at_a_time(tmp_path, model, monkeypatch):
    monkeypatch.setattr(tables, "ROWS", 25)
    write(tmp_path / "rows.parquet", table(1, 100))
    out = tmp_path / "out.parquet"
    assert run("predict", model, tmp_path / "rows.parquet", "--output", out).exit_code == 0
    assert pq.ParquetFile(out).num_row_groups == 4


WITHOUT_TARGET = {
    "density": (rs.KernelDensity, lambda model, rows: model.density(rows)),
    "novelty": (rs.NoveltyDetector, lambda model, rows: (model.predict(rows),)),
    "components": (rs.KernelPCA, lambda model, rows: model.transform(rows).T),
}


@pytest.mark.parametrize("kind", WITHOUT_TARGET)
def test_a_model_without_a_target_names_its_columns(tmp_path, kind):
    """They were refused: "no target to name a column by"."""
    made, answers = WITHOUT_TARGET[kind]
    write(tmp_path / "rows.parquet", table(1))
    rows, store = table(1)[["u", "v"]], tmp_path / "model.zarr"
    fitted = made(progress=False, random_state=0).fit(rows)
    fitted.save(store)
    for out in (tmp_path / "out.csv", tmp_path / "out.zarr"):
        done = run("predict", store, tmp_path / "rows.parquet", "--output", out)
        assert done.exit_code == 0, done.stderr
    found, stored = pd.read_csv(tmp_path / "out.csv"), zarr.open(tmp_path / "out.zarr")
    wanted = np.column_stack(answers(fitted, rows))
    assert wanted.shape[1] == found.shape[1] and found.columns.is_unique
    np.testing.assert_allclose(found.to_numpy(np.float64), wanted, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.reshape(stored[...], wanted.shape), wanted, rtol=1e-6, atol=1e-9)
    assert list(found) == list(stored.attrs["columns"])


def test_what_cannot_be_a_table_is_refused_first(tmp_path, model):
    write(tmp_path / "rows.parquet", table(1))
    days(0, 2).to_zarr(tmp_path / "cube.zarr", consolidated=False)
    rows, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    for words, code, message in (
        (("predict", model, tmp_path / "cube.zarr", "--output", out), 2, "is a table, and"),
        (("predict", model, rows, "--output", out, "--keep", "id"), 2, "--keep id is no column"),
        (("predict", model, rows, "--output", out, "--keep", "day,t"), 2, "each name once"),
        (("predict", model, rows, "--output", "s3://b/out.csv"), 4, "tables are written to local"),
        (("predict", model, rows, "--output", rows), 4, "read"),
        (
            ("predict", model, rows, "--output", tmp_path / "o.zarr", "--keep", "day"),
            2,
            "is no table",
        ),
    ):
        done = run(*words)
        assert done.exit_code == code and message in done.stderr, done.stderr
        assert not out.exists()
    write(tmp_path / "other.csv", table(1).rename(columns={"u": "U"}))
    done = run("predict", model, tmp_path / "other.csv", "--output", out)
    assert "X has no column 'u'; its columns are" in done.stderr and " U, v" in done.stderr
    assert not out.exists()
    assert run("predict", model, rows, "--output", out, "--dry-run").exit_code == 0
    assert not out.exists()
