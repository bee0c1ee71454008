"""Labels from the command line: fit --classify, predict, score and inspect."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from toys import run


@pytest.fixture
def data(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A label of wind and wave on time × lat, windier days more often "storm"."""
    wind, wave = rng.uniform(0, 12, (2, 60, 10))
    kind = np.where(wind + rng.normal(size=wind.shape) > 6, "storm", "calm").astype("U5")
    dims = ("time", "lat")
    cube = xr.Dataset({"wind": (dims, wind), "wave": (dims, wave), "kind": (dims, kind)})
    path = tmp_path / "cube.zarr"
    cube.to_zarr(path, zarr_format=2, consolidated=False)
    return path


def test_labels_are_fitted_scored_and_predicted(data: Path, tmp_path: Path) -> None:
    model, output = tmp_path / "model.zarr", tmp_path / "out.zarr"
    choices = ["--target", "kind", "--n-components", 32, "--holdout", "0.2", "--json"]
    fitted = run("fit", data, *choices, "--classify", "logistic", "--model", model)
    assert fitted.exit_code == 0, fitted.output
    held_out = json.loads(fitted.stdout)["held_out"]
    assert held_out["accuracy"] > 0.8 and set(held_out["auroc"]) == {"calm", "storm"}
    scored = run("score", model, data, "--holdout", "0.2", "--json")
    assert json.loads(scored.stdout)["accuracy"] == held_out["accuracy"]
    shown = run("score", model, data)
    assert "accuracy" in shown.stdout and "log-loss" in shown.stdout
    assert "2: calm, storm" in run("inspect", model).stdout
    assert run("predict", model, data, "--output", output).exit_code == 0
    labels = xr.open_zarr(output)["kind"]
    assert labels.sizes == {"time": 60, "lat": 10} and set(labels.values.ravel()) == {
        "calm",
        "storm",
    }


def test_probabilities_are_written_of_grids_and_of_tables(data: Path, tmp_path: Path) -> None:
    model, output = tmp_path / "model.zarr", tmp_path / "out.zarr"
    table = tmp_path / "table.csv"
    cube = xr.open_zarr(data, consolidated=False).load()
    cube.to_dataframe().to_csv(table, index=False)
    words = ["--target", "kind", "--n-components", 32, "--classify", "squared", "--model", model]
    assert run("fit", data, *words).exit_code == 0
    names = ["probability[kind=calm]", "probability[kind=storm]"]
    asked = ["--probabilities", "--output", output, "--overwrite"]
    assert run("predict", model, data, *asked).exit_code == 0
    found = xr.open_zarr(output)[names].to_dataarray().load()
    np.testing.assert_allclose(found.sum("variable"), 1)
    assert run("predict", model, table, *asked).exit_code == 0
    rows = zarr.open_array(output, mode="r")
    assert rows.attrs["columns"] == names
    np.testing.assert_array_equal(rows[:], found.values.reshape(2, -1).T)
    assert run("predict", model, table, "--output", output, "--overwrite").exit_code == 0
    assert zarr.open_array(output, mode="r").attrs["columns"] == ["kind"]


def test_what_predictions_cannot_be_is_refused_first(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    words = ["--target", "wave", "--inputs", "wind", "--n-components", 8, "--model", model]
    assert run("fit", data, *words).exit_code == 0
    table = tmp_path / "table.csv"
    xr.open_zarr(data, consolidated=False).load().to_dataframe().to_csv(table, index=False)
    for asked, code, message in (
        (["--output", tmp_path / "out.nc"], 2, r"out.nc ends in .nc, but a Zarr store is written"),
        (["--output", tmp_path / "out.zarr", "--std", "--probabilities"], 2, "Give one of them"),
        (["--output", tmp_path / "out.xlsx"], 2, r"out.xlsx ends in .xlsx, but a Zarr store"),
        (["--output", tmp_path / "out.zarr", "--probabilities"], 4, "--classify logistic"),
        (["--output", tmp_path / "out.csv", "--probabilities"], 4, "--classify logistic"),
    ):
        rows = table if str(asked[1]).endswith(".csv") else data
        refused = run("predict", model, rows, *asked)
        assert refused.exit_code == code and message in refused.stderr
        assert not (tmp_path / "out.nc").exists() and not (tmp_path / "out.zarr").exists()


def test_a_label_without_classify_is_refused_and_a_loss_named(data: Path) -> None:
    refused = run("fit", data, "--target", "kind", "--n-components", 32)
    assert refused.exit_code == 3 and "'kind' holds strings" in refused.stderr
    assert "rff-stream fit --classify logistic" in refused.stderr
    assert "Else encode it as numbers" in refused.stderr
    unknown = run("fit", data, "--target", "kind", "--classify", "perceptron")
    assert unknown.exit_code == 2 and "'squared', 'logistic'" in unknown.stderr
    planned = run("plan", data, "--target", "kind", "--classify", "squared", "--json")
    assert planned.exit_code == 0 and json.loads(planned.stdout)["n_rows"] == 600


def test_a_row_of_a_table_without_an_input_has_no_label(data: Path, tmp_path: Path) -> None:
    """It had the first class."""
    model, table, output = (tmp_path / name for name in ("model.zarr", "rows.csv", "out.csv"))
    words = ["--target", "kind", "--n-components", 8, "--classify", "squared", "--model", model]
    assert run("fit", data, *words).exit_code == 0
    table.write_text("wind,wave\n11,1\n,1\n1,1\n")
    assert run("predict", model, table, "--output", output).exit_code == 0
    assert output.read_text().split("\n")[1:4] == ['"storm"', '""', '"calm"']
