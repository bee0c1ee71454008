"""The commands density, novelty and drift, before they are part of the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner, Result

import rff_stream as rs
from rff_stream.answers.density import DensityEstimate
from rff_stream.cli.density import density, drift, novelty
from rff_stream.cli.program import Program

Cli = Callable[..., Result]


@pytest.fixture
def cli() -> Cli:
    main = click.Group("rff-stream", commands={c.name: c for c in (density, novelty, drift)})
    program = Program("rff-stream", commands=main.commands)

    def run(*words: Any) -> Result:
        return CliRunner().invoke(program, [str(word) for word in words])

    return run


def cube() -> xr.Dataset:
    """Wind and temperature on time × lat; the last third of the time is windier."""
    rng = np.random.default_rng(0)
    wind = rng.normal(8, 2, (120, 30))
    wind[80:] += 2.0
    temperature = rng.normal(280, 5, (120, 30))
    temperature[3, 4] = 400.0
    day = np.datetime64("2014-01-01", "ns") + np.arange(120) * np.timedelta64(1, "D")
    coords = {"time": day, "lat": np.linspace(-30, 30, 30)}
    dims = ("time", "lat")
    return xr.Dataset(
        {"w": (dims, wind, {"units": "m/s"}), "t": (dims, temperature, {"units": "K"})}, coords
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "cube.zarr"
    cube().to_zarr(path, zarr_format=3, consolidated=False)
    return path


def facts_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_density_writes_what_the_estimator_says(cli: Cli, data: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "out.zarr", tmp_path / "m.zarr"
    facts = facts_of(
        cli("density", data, "--inputs", "w,t", "--bandwidth", "1,3", "--n-components", 512,
            "--model", model, "--output", out, "--json")
    )  # fmt: skip
    assert (facts["n_rows"], facts["bandwidth"]) == (3600, [1.0, 3.0])
    written = xr.open_zarr(out, consolidated=False)
    fitted = rs.KernelDensity([1.0, 3.0], n_components=512, random_state=0, progress=False)
    expected = fitted.fit(str(data), inputs=["w", "t"]).density(cube())
    assert np.allclose(written.density, expected.density)
    assert np.allclose(written.below_error, expected.below_error)
    assert facts["below_error"] == pytest.approx(float(expected.below_error.mean()), abs=0.03)
    assert written.density.attrs["units"] == "1/(m/s K)"
    assert np.allclose(rs.load(model).score_samples(cube()), np.log(written.density))


def test_density_says_what_it_did(cli: Cli, data: Path) -> None:
    result = cli("density", data, "--inputs", "w", "--n-components", 256)
    assert result.exit_code == 0
    assert "3,600 fitted of 3,600" in result.stdout
    assert "bandwidth" in result.stdout


def test_novelty_finds_the_odd_one(cli: Cli, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    facts = facts_of(
        cli("novelty", data, "--contamination", 0.001, "--output", out, "--exact", "--json")
    )
    assert facts["n_rows"] == 3600
    written = xr.open_zarr(out, consolidated=False)
    assert float(written.label[3, 4]) == -1
    assert 1 <= int((written.label < 0).sum()) <= 8


def test_answers_for_other_rows_and_plain_arrays(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("train", "other"):
        group = zarr.open_group(tmp_path / f"{name}.zarr", mode="w", zarr_format=3)
        for column in "ab":
            group.create_array(column, data=rng.normal(size=500))
    train, other = tmp_path / "train.zarr", tmp_path / "other.zarr"
    for command, width in (("density", 5), ("novelty", 2)):
        out = tmp_path / f"{command}.zarr"
        result = cli(command, train, "--at", other, "--output", out)
        assert result.exit_code == 0, result.output
        assert zarr.open_array(out, mode="r").shape == (500, width)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_answers_for_a_table_are_a_table_with_its_columns(
    cli: Cli, tmp_path: Path, ending: str
) -> None:
    """The refusal of a name in .csv advised one in .csv."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"id": range(300), "u": rng.normal(size=300), "v": rng.normal(size=300)})
    frame.loc[7, "u"] = np.nan
    frame.to_csv(tmp_path / "rows.csv", index=False)
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    columns = {"density": [*DensityEstimate._fields], "novelty": ["score", "label"]}
    for command, names in columns.items():
        out = tmp_path / f"{command}.{ending}"
        words = [command, tmp_path / "rows.csv", "--inputs", "u,v", "--missing-rows", "drop"]
        facts_of(cli(*words, "--output", out, "--keep", "id", "--json"))
        written = read(out)
        assert [*written.columns] == ["id", *names]
        assert [*written.id] == [*frame.id]
        assert [*np.flatnonzero(written[names[0]].isna())] == [7]
        again = cli(*words, "--output", out)
        assert again.exit_code == 4 and "--overwrite" in again.stderr
        store = cli(*words, "--output", tmp_path / f"{command}-{ending}.zarr")
        assert store.exit_code == 0, store.output
        array = zarr.open_array(tmp_path / f"{command}-{ending}.zarr", mode="r")
        assert array.attrs["columns"] == names
        np.testing.assert_allclose(array[:], written[names].astype(float), rtol=1e-6)


def test_other_names_of_an_output_are_told(cli: Cli, data: Path, tmp_path: Path) -> None:
    refused = cli("novelty", data, "--output", tmp_path / "scores.nc")
    assert refused.exit_code == 2 and "That of a table may also end in .parquet" in refused.stderr
    refused = cli("novelty", data, "--model", tmp_path / "model.csv")
    assert refused.exit_code == 2 and "table" not in refused.stderr
    for words in ([], ["--output", tmp_path / "scores.zarr"]):
        refused = cli("novelty", data, "--keep", "id", *words)
        assert refused.exit_code == 2 and "--keep id names columns of a table" in refused.stderr
    refused = cli("novelty", data, "--output", tmp_path / "scores.csv")
    assert refused.exit_code == 2 and "scores.csv is a table, and" in refused.stderr


def test_drift_prints_a_table(cli: Cli, data: Path) -> None:
    facts = facts_of(cli("drift", data, "--buckets", 6, "--reference", "0,1", "--json"))
    found = facts["buckets"]
    assert list(found) == ["2", "3", "4", "5"]
    assert [each["n_rows"] for each in found.values()] == [600] * 4
    assert all(found[k]["p_value"] > 0.01 for k in "23")
    assert all(found[k]["p_value"] < 0.001 for k in "45")
    result = cli("drift", data, "--buckets", 6)
    assert result.stdout.splitlines()[0].split() == [
        "bucket",
        "rows",
        "distance",
        "by",
        "chance",
        "p",
    ]
    assert len(result.stdout.splitlines()) == 7


def test_drift_by_label(cli: Cli, data: Path) -> None:
    found = facts_of(cli("drift", data, "--by", "time.month", "--json"))["buckets"]
    assert list(found) == ["1", "2", "3", "4"]
    assert found["4"]["p_value"] < 0.001


def test_labels_that_are_more_than_expected_are_counted(cli: Cli, data: Path) -> None:
    result = cli("drift", data, "--by", "time.dayofyear", "--inputs", "w")
    assert result.exit_code == 2
    assert "--by time.dayofyear has 120 labels" in result.stderr
    assert "Give --buckets 120" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["drift", "--reference", "99"], 2, "--reference 99 is none of the buckets"),
        (["density", "--bandwidth", "0"], 2, "bandwidth=0.0"),
        (["density", "--inputs", "nothing"], 3, "nothing"),
        (["novelty", "--contamination", "0.9"], 2, "0.9"),
        (["density", "--output", "cube.zarr"], 4, "is read by this command"),
    ],
    ids=str,
)
def test_faults_are_one_line(
    cli: Cli, data: Path, words: list[str], code: int, said: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(data.parent)
    result = cli(words[0], "cube.zarr", *words[1:])
    assert result.exit_code == code
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
