"""The command line: exit codes, one line for each fault, and the answers of the API."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner, Result

import rff_stream as rs
from rff_stream import progress
from rff_stream.cli import arguments, main
from rff_stream.cli.output import forget, redact_text
from rff_stream.sources import HoldOut
from rff_stream.text_formatting import hide_options, hide_url
from toys import columns_to_zarr

Cli = Callable[..., Result]

INPUTS = ["--inputs", "wind,lat,time.dayofyear", "--target", "flux"]
SMALL = [*INPUTS, "--n-components", "32", "--alpha", "0.001"]


@pytest.fixture
def cli() -> Cli:
    """Runs a command line in this process."""

    def run(*words: Any) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words])

    return run


def cube(seed: int = 0) -> xr.Dataset:
    """Wind -> flux on time × lat × lon, without gaps."""
    rng = np.random.default_rng(seed)
    shape = (60, 4, 5)
    wind = rng.uniform(0, 12, shape).astype(np.float32)
    flux = (10 * np.sin(wind / 3) + rng.normal(0, 0.1, shape)).astype(np.float32)
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {"wind": (dims, wind, {"units": "m s-1"}), "flux": (dims, flux, {"units": "W m-2"})},
        {
            "time": np.datetime64("2014-12-01", "ns") + np.arange(60) * np.timedelta64(1, "D"),
            "lat": ("lat", np.linspace(-30, 30, 4), {"units": "degrees_north"}),
            "lon": np.arange(5.0),
        },
    )


def written(data: xr.Dataset, path: Path) -> Path:
    encoding = {str(name): {"chunks": (20, 4, 5)} for name in data.data_vars}
    data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(cube(), tmp_path / "cube.zarr")


@pytest.fixture
def model(data: Path, tmp_path: Path, cli: Cli) -> Path:
    path = tmp_path / "model.zarr"
    assert cli("fit", data, *SMALL, "--model", path).exit_code == 0
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A Zarr group of plain arrays: a, b, c -> t."""
    rng = np.random.default_rng(1)
    columns = {name: rng.standard_normal(900) for name in "abc"}
    columns["t"] = np.sin(columns["a"]) + columns["b"]
    return columns_to_zarr(tmp_path / "table.zarr", columns, 200)


def lines_of(result: Result) -> list[str]:
    """What is on stderr, without the first word of a fit that will not be kept."""
    return [line for line in result.stderr.splitlines() if "no --model was given" not in line]


def failed(result: Result, code: int, *words: str) -> str:
    """The one line on stderr of a command that failed as it should, with these words."""
    assert result.exit_code == code, result.output
    lines = lines_of(result)
    assert len(lines) == 1
    assert lines[0].startswith("rff-stream: ")
    for word in words:
        assert word in lines[0]
    assert result.stdout == ""
    return lines[0]


def report(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout of a command that succeeded."""
    assert result.exit_code == 0, result.output
    assert lines_of(result) == []
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# ------------------------------------------------------------------------------- help


def test_help_names_commands_and_exit_codes(cli: Cli) -> None:
    text = " ".join(cli("--help").stdout.split())
    for word in ("demo", "plan", "fit", "predict", "score", "inspect", "143", "3 a problem"):
        assert word in text
    assert cli("--version").stdout == f"rff-stream, version {rs.__version__}\n"


@pytest.mark.parametrize("command", main.commands)
def test_every_option_says_what_it_is_for(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.exit_code == 0
    options = [each for each in main.commands[command].params if isinstance(each, click.Option)]
    shown = [each for each in options if not each.hidden]
    assert all(each.help and each.help.endswith(".") for each in shown)


def test_without_a_command_help_is_shown_and_the_exit_code_is_2(cli: Cli) -> None:
    result = cli()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


# -------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fti"], "No such command 'fti'"),
        (["fit", "DATA", *SMALL, "--wieghts", "w"], "--weights"),
        (["fit", "DATA", "--inputs", "wind"], "--target"),
        (["fit", "cube.zar", *SMALL], "does not exist"),
        (["fit", "DATA", *SMALL, "--n-components", "0"], "x>=1"),
        (["fit", "DATA", *SMALL, "--holdout", "1"], "0<x<1"),
        (["fit", "DATA", *SMALL, "--holdout-by", "time.year"], "--holdout-by needs --holdout"),
        (["fit", "DATA", *SMALL, "--where", "time=2015"], "NAME OP VALUE"),
        (["fit", "DATA", *SMALL, "--memory", "many"], "no amount of memory"),
        (["fit", "DATA", *SMALL, "--memory", "0"], "no amount of memory"),
        (["fit", "DATA", *SMALL, "--threads", "0"], "x>=1"),
        (["fit", "DATA", *SMALL, "--inputs", "wind,,lat"], "empty name"),
        (["fit", "DATA", *SMALL, "--scheduler", "host:8786"], "tcp://host:8786"),
        (["fit", "DATA", *SMALL, "--scheduler", "tcp://h:1", "--threads", "2"], "--nthreads"),
        (["fit", "DATA", *SMALL, "--storage-options", "{anon"], "is not JSON"),
        (["fit", "DATA", *SMALL, "--storage-options", "[1]"], "not an object"),
        (["fit", "DATA", *SMALL, "--nu", "2.5"], "--kernel matern"),
        (["fit", "DATA", *SMALL, "--alpha", "-1"], "alpha=-1.0"),
        (["fit", "DATA", *SMALL, "--alpha", "best"], "--alpha best"),
        (["fit", "DATA", *SMALL, "--length-scale", "0"], "positive"),
        (["fit", "DATA", *SMALL, "--length-scale", "1,2"], "2 values but there are 3 inputs"),
        (["predict", "DATA", "--output", "o.zarr"], "Write MODEL DATA"),
        (["predict", "DATA", "DATA"], "--output"),
        (["score", "no-model", "DATA"], "no-model does not exist"),
        (["demo", "--days", "1"], "x>=2"),
        (["demo", "--output", ""], "The text after --output is empty"),
        (["demo", "--output="], "The text after --output is empty"),
        (["fit", "DATA", *SMALL, "--batch", ""], "The text after --batch is empty"),
        (["fit", "DATA", *SMALL, "--memory", ""], "The text after --memory is empty"),
        (["update", "m.zarr", "DATA", "--by", ""], "The text after --by is empty"),
        (["novelty", "DATA", "--at", ""], "The text after --at is empty"),
        (["inspect", ""], "An argument is empty"),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_usage_faults_exit_2_in_one_line(
    cli: Cli, data: Path, words: Sequence[str], said: str
) -> None:
    failed(cli(*(data if word == "DATA" else word for word in words)), 2, said)


def test_a_path_that_is_nearly_there_is_suggested(cli: Cli, data: Path) -> None:
    failed(cli("fit", data.with_name("cubes.zarr"), *SMALL), 2, f"Did you mean {data}?")


# --------------------------------------------------------------------------------- data


def test_data_faults_exit_3_with_the_text_of_the_api(cli: Cli, data: Path) -> None:
    with pytest.raises(rs.errors.DataError) as error:
        rs.KernelRidge().fit(str(data), "flux", inputs=["wnid"])
    line = failed(cli("fit", data, "--inputs", "wnid", "--target", "flux"), 3, "wind")
    assert line == f"rff-stream: {error.value}"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--where", "time<2001"], "0 sample(s)"),
        (["--where", "time<soon"], "ISO text"),
        (["--where", "height>1"], "height"),
        (["--weights", "height"], "height"),
        (["--dim", "depth"], "depth"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_what_the_data_lack_exits_3(cli: Cli, data: Path, more: list[str], said: str) -> None:
    failed(cli("fit", data, *SMALL, *more), 3, said)


def test_missing_values_exit_3_unless_they_are_dropped(cli: Cli, tmp_path: Path) -> None:
    gappy = cube()
    gappy["flux"][:, 1] = np.nan
    path = written(gappy, tmp_path / "gappy.zarr")
    failed(cli("fit", path, *SMALL), 3, "NaN", "--missing-rows drop")
    found = report(cli("fit", path, *SMALL, "--missing-rows", "drop", "--json"))
    assert (found["n_rows"], found["n_rows_seen"]) == (900, 1200)


def test_a_plan_over_the_memory_limit_exits_3_before_anything_is_read(cli: Cli, data: Path) -> None:
    without_chunks(data)
    for command in ("plan", "fit"):
        failed(cli(command, data, *SMALL, "--memory", "1MiB"), 3, "1.0 MiB are allowed")


def test_a_file_that_is_no_data_exits_3(cli: Cli, tmp_path: Path) -> None:
    for name in ("notes.nc", "notes.txt"):
        path = tmp_path / name
        path.write_text("notes")
        failed(cli("fit", path, *SMALL), 3, str(path))


# -------------------------------------------------------------------------------- model


def test_models_that_are_in_the_way_or_damaged_exit_4(
    cli: Cli, data: Path, model: Path, tmp_path: Path
) -> None:
    failed(cli("fit", data, *SMALL, "--model", model), 4, "--overwrite")
    failed(cli("fit", data, *SMALL, "--model", tmp_path / "no" / "m.zarr"), 4, "does not exist")
    failed(cli("score", data, data), 4, str(data))
    array = next(path for path in sorted(model.rglob("c/**/*")) if path.is_file())
    array.write_bytes(array.read_bytes()[:-1] + b"x")
    for words in (["inspect", model], ["score", model, data]):
        failed(cli(*words), 4, str(model))


def test_a_taken_place_is_refused_before_the_data_are_read(
    cli: Cli, data: Path, model: Path
) -> None:
    without_chunks(data)
    failed(cli("fit", data, *SMALL, "--model", model), 4, "--overwrite")


def test_overwrite_replaces_a_model(cli: Cli, data: Path, model: Path) -> None:
    words = ["fit", data, *SMALL, "--model", model, "--n-components", "16"]
    assert cli(*words, "--overwrite").exit_code == 0
    assert rs.load(model).features_.n_components == 16


# ----------------------------------------------------------------------------- what it does


def without_chunks(data: Path) -> None:
    """Remove all values of wind and flux; metadata stay."""
    for name in ("wind", "flux"):
        for path in (data / name).rglob("c/**/*"):
            if path.is_file():
                path.unlink()


def test_plan_and_dry_run_read_metadata_only(cli: Cli, data: Path, tmp_path: Path) -> None:
    without_chunks(data)
    text = cli("plan", data, *SMALL).stdout
    for word in ("1,200 × 3 inputs", "R = 32", "leaves", "process", "about"):
        assert word in text
    place = tmp_path / "model.zarr"
    assert cli("fit", data, *SMALL, "--model", place, "--dry-run").stdout == text
    assert not place.exists()
    failed(cli("fit", data, *SMALL), 3, "1200 NaN")


def test_plan_counts_processes(cli: Cli, data: Path) -> None:
    alone = report(cli("plan", data, *SMALL, "--json"))
    many = report(cli("plan", data, *SMALL, "--json", "--workers", "8"))
    assert (alone["workers"], many["workers"]) == (1, 8)
    assert alone["traffic_bytes"] == 0 < many["traffic_bytes"]
    failed(cli("plan", data, *SMALL, "--workers", "8", "--memory", "1MiB"), 3, "1.0 MiB")
    folds = report(cli("plan", data, *SMALL, "--json", "--alpha", "cv"))
    assert folds["n_groups"] == 5


def test_plan_refuses_what_fit_refuses(cli: Cli, data: Path) -> None:
    for command in ("plan", "fit"):
        failed(cli(command, data, *SMALL, "--alpha", "-1"), 2, "alpha", "-1")


def test_plan_says_what_a_search_for_length_scales_takes(cli: Cli, data: Path) -> None:
    assert "for length-scales" not in cli("plan", data, *SMALL).stdout
    told = re.compile(r"^search +at most about .* for length-scales", re.MULTILINE)
    assert told.search(cli("plan", data, *SMALL, "--length-scale", "ard").stdout)
    cells = (data, *SMALL, "--cells", "8,1,2")
    assert told.search(cli("plan", *cells).stdout)
    assert not told.search(cli("plan", *cells, "--length-scale", "1").stdout)


def test_fit_gives_the_model_of_the_api(cli: Cli, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.zarr"
    found = report(cli("fit", data, *SMALL, "--seed", "3", "--model", path, "--json"))
    same = rs.KernelRidge(n_components=32, alpha=0.001, random_state=3)
    same.fit(str(data), "flux", inputs=["wind", "lat", "time.dayofyear"])
    loaded = rs.load(path)
    np.testing.assert_array_equal(loaded.coef_, same.coef_)
    assert found["n_rows"] == 1200
    assert found["length_scale"] == same.length_scale_.tolist()
    assert found["units"] == ["m s-1", "degrees_north", "", "W m-2"]
    assert found["planned_bytes"] == same.plan_.process_bytes
    assert found["peak_bytes"] > 2**20


def test_fit_prints_lines_for_people(cli: Cli, data: Path, tmp_path: Path) -> None:
    text = cli("fit", data, *SMALL, "--holdout", "0.25", "--model", tmp_path / "m.zarr").stdout
    for word in ("fitted of 1,200", "wind ", "rows/s", "planned", "R² 0.99", "W m-2 over", "saved"):
        assert word in text
    assert "on exactly the rows that the fit left out" in text


@pytest.mark.parametrize("by", [(), ("--holdout-by", "time.month")], ids=["rows", "labels"])
def test_held_out_rows_are_exactly_those_left_out(
    cli: Cli, data: Path, tmp_path: Path, by: tuple[str, ...]
) -> None:
    path, held = tmp_path / "m.zarr", ["--holdout", "0.4", *by, "--seed", "5"]
    where = ["--where", "time>=2014-12-11", "--where", "lat>-20"]

    def told(result: Result) -> dict[str, Any]:
        """A report; another month is outside of what the fit has seen, and that is said once."""
        lines = lines_of(result)
        assert len(lines) == len(by) // 2
        assert all("lie outside the range of the fit" in line for line in lines)
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    found = told(cli("fit", data, *SMALL, *held, *where, "--model", path, "--json"))
    assert found["n_rows"] + found["held_out"]["n_rows"] == 50 * 3 * 5
    scored = told(cli("score", path, data, *held, *where, "--json"))
    assert {name: scored[name] for name in found["held_out"]} == found["held_out"]
    part = HoldOut(0.4, 5, "test", by[1] if by else None)
    conditions = [("time", ">=", "2014-12-11"), ("lat", ">", -20), part]
    expected = rs.load(path).residuals(str(data), where=conditions)
    assert scored["n_rows"] == expected.n
    assert scored["r2"]["flux"] == expected.r2()[0]
    assert scored["rmse"]["flux"] == expected.rmse()[0]


def test_holdout_counts_rows_along_the_dimensions_given(cli: Cli, tmp_path: Path) -> None:
    data = cube().rename(flux="u").isel(lat=slice(2), lon=0, drop=True)
    path = tmp_path / "u.zarr"
    data.to_zarr(path, zarr_format=3, consolidated=False)
    words = ["--holdout", "0.3", "--dim", "time", "--json"]
    fitted = ["--inputs", "time.dayofyear", "--target", "u", "--model", tmp_path / "m.zarr"]
    found = report(cli("fit", path, *words, *fitted, "--n-components", "16"))
    assert found["targets"] == ["u[lat=-30]", "u[lat=-10]"]
    assert found["n_rows"] + found["held_out"]["n_rows"] == 60
    assert found["held_out"]["r2"].keys() == set(found["targets"])


def test_several_targets_weights_and_kernels(cli: Cli, tmp_path: Path) -> None:
    data = cube()
    data["rain"] = 2 * data["flux"]
    data["w"] = (data["wind"] > 3).astype(float)
    path = written(data, tmp_path / "two.zarr")
    kernel = ["--kernel", "matern", "--nu", "2.5", "--length-scale", "2", "--n-components", "32"]
    words = ["--target", "flux,rain", "--weights", "w", *kernel, "--json"]
    found = report(cli("fit", path, *words))
    assert found["inputs"] == ["wind"]
    assert found["n_rows"] == int(data["w"].sum())
    assert found["kernel"] == "matern nu=2.5"
    assert len(found["alpha"]) == 2


def test_a_repeated_option_of_names_adds_names(cli: Cli, data: Path) -> None:
    """The last target was fitted alone, without a word."""
    words = [
        "--target",
        "flux",
        "--target",
        "wind",
        "--inputs",
        "lat",
        "--inputs",
        "lon,time.dayofyear",
    ]
    facts = report(
        cli(
            "fit", data, *words, "--n-components", 16, "--model", data.with_name("M.zarr"), "--json"
        )
    )
    assert facts["targets"] == ["flux", "wind"]
    assert facts["inputs"] == ["lat", "lon", "time.dayofyear"]


def test_score_takes_a_target_of_another_name(cli: Cli, model: Path, tmp_path: Path) -> None:
    other = written(cube().rename(flux="measured"), tmp_path / "other.zarr")
    found = report(cli("score", model, other, "--target", "measured", "--json"))
    assert found["r2"]["flux"] > 0.99
    failed(cli("score", model, other), 3, "flux")


def test_model_and_data_are_given_in_two_ways(cli: Cli, data: Path, model: Path) -> None:
    before = cli("score", data, "--model", model)  # the form of an earlier version
    assert cli("score", model, data).stdout == before.stdout
    assert "deprecated" in before.stderr and "Write MODEL before DATA" in before.stderr


def test_inspect_says_what_a_model_is(cli: Cli, model: Path) -> None:
    found = report(cli("inspect", model, "--json"))
    assert found["estimator"] == "KernelRidge"
    assert found["inputs"] == ["wind", "lat", "time.dayofyear"]
    assert (found["n_rows"], found["n_components"], found["alpha"]) == (1200, 32, 0.001)
    text = cli("inspect", model).stdout
    for word in (
        "every byte verified",
        "wind ",
        "flux [W m-2]",
        "gaussian, R = 32",
        "1,200 fitted",
    ):
        assert word in text


def test_netcdf_is_read_like_zarr(cli: Cli, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "cube.nc"
    cube().to_netcdf(path)
    words = [*SMALL, "--holdout", "0.25", "--json"]
    netcdf, plain = report(cli("fit", path, *words)), report(cli("fit", data, *words))
    assert netcdf["n_rows"] == plain["n_rows"]
    assert netcdf["held_out"]["r2"]["flux"] == pytest.approx(plain["held_out"]["r2"]["flux"], 1e-3)


# ------------------------------------------------------------------------------ predictions


def test_predict_keeps_dims_coords_units_and_gaps(cli: Cli, model: Path, tmp_path: Path) -> None:
    gappy = cube(seed=2)
    gappy["wind"][3:7, 1] = np.nan
    data, out = written(gappy, tmp_path / "new.zarr"), tmp_path / "out.zarr"
    found = report(cli("predict", model, data, "--output", out, "--json"))
    assert (found["n_rows"], found["sizes"]) == (1200, {"time": 60, "lat": 4, "lon": 5})
    predicted = xr.open_zarr(out).load()
    assert predicted["flux"].dims == ("time", "lat", "lon")
    assert predicted["flux"].attrs["units"] == "W m-2"
    xr.testing.assert_equal(predicted.coords.to_dataset(), gappy.coords.to_dataset())
    expected = rs.load(model).set_params(missing_rows="drop").predict(gappy)
    np.testing.assert_array_equal(predicted["flux"], expected)
    assert int(predicted["flux"].isnull().sum()) == 20


def test_predict_counts_its_blocks(
    cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(progress, "_bar", lambda words, total, unit: Counter(counted, total))
    data = written(cube(seed=2), tmp_path / "new.zarr")
    assert cli("predict", model, data, "--output", tmp_path / "out.zarr").exit_code == 0
    assert len(counted) > 1 and counted[0] == sum(counted[1:])


class Counter:
    """Takes the place of a bar."""

    def __init__(self, counted: list[int], total: int) -> None:
        self._counted = counted
        counted[:] = [total]

    def update(self, count: int) -> None:
        self._counted.append(count)

    def close(self) -> None:
        pass


def test_plain_arrays_give_a_plain_array(cli: Cli, table: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.zarr", tmp_path / "out.zarr"
    words = ["--inputs", "b,a", "--target", "t", "--n-components", "64", "--holdout", "0.2"]
    found = report(cli("fit", table, *words, "--model", model, "--json"))
    assert found["held_out"]["r2"]["t"] > 0.9
    assert cli("predict", model, table, "--output", out).exit_code == 0
    array = zarr.open_array(out, mode="r")
    np.testing.assert_array_equal(array[:], rs.load(model).predict(str(table)).compute())


def test_predictions_replace_only_zarr_and_only_when_asked(
    cli: Cli, data: Path, model: Path, tmp_path: Path
) -> None:
    out, notes = tmp_path / "out.zarr", tmp_path / "notes"
    words = ["predict", model, data, "--output"]
    assert cli(*words, out).exit_code == 0
    failed(cli(*words, out), 4, "--overwrite")
    assert cli(*words, out, "--overwrite").exit_code == 0
    notes.mkdir()
    (notes / "diary.txt").write_text("dear")
    failed(cli(*words, notes, "--overwrite"), 4, "no Zarr store")
    assert (notes / "diary.txt").exists()
    failed(cli(*words, data, "--overwrite"), 4, "is read by this command")
    failed(cli(*words, tmp_path / "no" / "out.zarr"), 4, "no folder")


def test_dry_run_of_predict_writes_nothing(
    cli: Cli, data: Path, model: Path, tmp_path: Path
) -> None:
    without_chunks(data)
    result = cli("predict", model, data, "--output", tmp_path / "out.zarr", "--dry-run")
    assert "1,200 (time 60, lat 4, lon 5) to predict" in result.stdout
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_predictions_that_stop_half_way_leave_the_old_ones(
    cli: Cli, data: Path, model: Path, tmp_path: Path, monkeypatch: Any, error: Any
) -> None:
    out = tmp_path / "out.zarr"
    assert cli("predict", model, data, "--output", out).exit_code == 0
    before, names = zarr.open_group(out)["flux"][:], sorted(tmp_path.iterdir())
    to_zarr = xr.DataArray.to_zarr

    def stop(self: Any, *words: Any, **more: Any) -> None:
        to_zarr(self, *words, **more)
        raise error

    monkeypatch.setattr(xr.DataArray, "to_zarr", stop)
    result = cli("predict", model, data, "--output", out, "--overwrite")
    code = 130 if error is KeyboardInterrupt else 4
    failed(result, code, "Ctrl-C" if code == 130 else "ENOSPC")
    np.testing.assert_array_equal(zarr.open_group(out)["flux"][:], before)
    assert sorted(tmp_path.iterdir()) == names


# ------------------------------------------------------------------------ threads and cluster


def test_threads_change_nothing_but_time(cli: Cli, data: Path, tmp_path: Path) -> None:
    found = []
    for count in (1, 3):
        path = tmp_path / f"{count}.zarr"
        result = report(cli("plan", data, *SMALL, "--threads", count, "--json"))
        assert result["threads"] == count
        assert cli("fit", data, *SMALL, "--threads", count, "--model", path).exit_code == 0
        found.append(rs.load(path).coef_)
    np.testing.assert_array_equal(*found)


def test_a_scheduler_that_does_not_answer_is_named_with_the_time_waited(
    cli: Cli, data: Path
) -> None:
    importlib.import_module("distributed")  # inside config.set its defaults go with what was set
    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        result = cli("fit", data, *SMALL, "--scheduler", "tcp://127.0.0.1:9")
    failed(result, 1, "tcp://127.0.0.1:9", "within 0.", " s (")


# ------------------------------------------------------------------------------- secrets

MARKER = "hunter2secret"


@pytest.mark.parametrize(
    "words",
    [
        [f"memory://user:{MARKER}@host/cube.zarr"],
        [f"https://127.0.0.1:9/cube.zarr?X-Signature={MARKER}"],
        ["memory://nowhere/cube.zarr", "--storage-options", f'{{"token": "{MARKER}"}}'],
        ["memory://nowhere/cube.zarr", "--storage-options", f'{{"token": "{MARKER}"'],
        ["DATA", "--model", f"memory://u:{MARKER}@host/m.zarr"],
        ["DATA", "--storage-options", f'{{"token": "{MARKER}"}}', ""],
    ],
    ids=["password", "signature", "option", "option-broken", "model", "before-empty"],
)
@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
def test_secrets_are_never_printed(cli: Cli, data: Path, words: list[str], debug: bool) -> None:
    words = [str(data) if word == "DATA" else word for word in words]
    result = cli("fit", *words, *SMALL, *(["--debug"] if debug else []))
    assert MARKER not in result.output


def test_secrets_are_not_in_json_or_models(cli: Cli, tmp_path: Path) -> None:
    import fsspec

    path, url = tmp_path / "m.zarr", f"memory://user:{MARKER}@host/cube.zarr"
    local = written(cube(), tmp_path / "cube.zarr")
    fsspec.filesystem("memory").put(str(local), f"user:{MARKER}@host/cube.zarr", recursive=True)
    result = cli("fit", url, *SMALL, "--model", path, "--json")
    assert report(result)["data"] == "memory://…@host/cube.zarr"
    assert not [each for each in path.rglob("*") if MARKER in str(each)]
    text = b"".join(each.read_bytes() for each in path.rglob("*") if each.is_file())
    assert MARKER.encode() not in text


def test_what_is_hidden(monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    forget()
    hide_url("s3://key:pass%2Fword@bucket/x")
    hide_options({"client_kwargs": {"aws_session_token": "session"}, "secret": "ab", "anon": True})
    text = "from-the-environment pass%2Fword pass/word session ab tcp://u:p@h:1/x?sig=1, y?"
    assert redact_text(text) == "… … … … ab tcp://…@h:1/x?…, y?"
    monkeypatch.undo()
    forget()
    assert redact_text("session") == "session"


# ------------------------------------------------------------------------------- messages


def test_debug_adds_the_traceback(cli: Cli, data: Path) -> None:
    for words in (["--debug", "fit", data], ["fit", data, "--debug"]):
        result = cli(*words, "--inputs", "wnid", "--target", "flux")
        assert result.exit_code == 3
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("rff-stream: There is no 'wnid'")


def test_a_fault_of_the_program_exits_1_and_says_how_to_see_more(
    cli: Cli, data: Path, monkeypatch: Any
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(rs.KernelRidge, "fit", broken)
    failed(cli("fit", data, *SMALL), 1, "KeyError: 'lost'", "--debug")


def test_warnings_are_one_line_each(
    cli: Cli, data: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fit = rs.KernelRidge.fit

    def warn(self: Any, *words: Any, **more: Any) -> Any:
        import logging
        import warnings

        warnings.warn("alpha was\nraised", rs.errors.NumericalWarning, stacklevel=2)
        warnings.warn("alpha was\nraised", rs.errors.NumericalWarning, stacklevel=2)
        warnings.warn("of another package", FutureWarning, stacklevel=2)
        logging.getLogger("rff_stream").warning("1 worker(s) lost")
        for other in ("distributed.client", "tornado.application"):
            logging.getLogger(other).error("pages", exc_info=True)
        return fit(self, *words, **more)

    monkeypatch.setattr(rs.KernelRidge, "fit", warn)
    result = cli("fit", data, *SMALL, "--json")
    assert lines_of(result) == [
        "rff-stream: warning: alpha was raised",
        "rff-stream: 1 worker(s) lost",
    ]
    assert [record.name for record in caplog.records] == ["rff_stream"]
    assert result.exit_code == 0
    assert json.loads(result.stdout)


# ------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("time<2015", ("time", "<", "2015")),
        ("time >= 2014-10-20T06:00", ("time", ">=", "2014-10-20T06:00")),
        ("u[level=500] != -1e3", ("u[level=500]", "!=", "-1e3")),
        ("name=='sea ice'", ("name", "==", "sea ice")),
        ("time.dayofyear<=100", ("time.dayofyear", "<=", "100")),
    ],
)
def test_conditions(text: str, found: tuple[str, str, str]) -> None:
    assert arguments.condition(text) == found


@pytest.mark.parametrize("text", ["", "time", "<2015", "time<", "time=<2015", "time=2015", "a<<b"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(click.BadParameter, match="NAME OP VALUE"):
        arguments.condition(text)


def test_names_numbers_and_bytes() -> None:
    assert arguments.names("lat, u[level=500,member=3],t") == ("lat", "u[level=500,member=3]", "t")
    assert arguments.length_scale("median") == "median"
    assert arguments.length_scale("2.5") == 2.5
    assert arguments.length_scale("1,2e3") == [1, 2000]
    assert arguments.alpha("cv") == "cv"
    assert arguments.alpha("0.5") == 0.5
    assert arguments.alpha("1,2").tolist() == [1, 2]
    assert arguments.memory("4GiB") == 4 * 2**30
    assert arguments.memory("1e6") == 10**6
