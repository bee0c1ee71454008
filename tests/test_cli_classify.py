"""Labels from the command line: fit --classify, predict, score and inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner, Result

from rff_stream.cli import main


def cli(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


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
    fitted = cli("fit", data, *choices, "--classify", "logistic", "--model", model)
    assert fitted.exit_code == 0, fitted.output
    held_out = json.loads(fitted.stdout)["held_out"]
    assert held_out["accuracy"] > 0.8 and set(held_out["auroc"]) == {"calm", "storm"}
    scored = cli("score", model, data, "--holdout", "0.2", "--json")
    assert json.loads(scored.stdout)["accuracy"] == held_out["accuracy"]
    shown = cli("score", model, data)
    assert "accuracy" in shown.stdout and "log-loss" in shown.stdout
    assert "2: calm, storm" in cli("inspect", model).stdout
    assert cli("predict", model, data, "--output", output).exit_code == 0
    labels = xr.open_zarr(output)["kind"]
    assert labels.sizes == {"time": 60, "lat": 10} and set(labels.values.ravel()) == {
        "calm",
        "storm",
    }


def test_a_label_without_classify_is_refused_and_a_loss_named(data: Path) -> None:
    refused = cli("fit", data, "--target", "kind", "--n-components", 32)
    assert refused.exit_code == 3 and "'kind' holds strings" in refused.stderr
    unknown = cli("fit", data, "--target", "kind", "--classify", "perceptron")
    assert unknown.exit_code == 2 and "'squared', 'logistic'" in unknown.stderr
    planned = cli("plan", data, "--target", "kind", "--classify", "squared", "--json")
    assert planned.exit_code == 0 and json.loads(planned.stdout)["n_rows"] == 600
