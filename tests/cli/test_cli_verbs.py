"""What the command line says and does beyond a fit: processes, care, words, secrets, escapes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from growing import fitted, grown
from rff_stream.cli import main
from rff_stream.cli.output import forget, redact_text
from rff_stream.cli.program import in_options
from rff_stream.errors import ModelError
from rff_stream.sources.rows import LEAVE_OUT
from rff_stream.store import MomentStore, files
from rff_stream.text_formatting import hide_options, hide_url, printable
from toys import run

SMALL = ["--target", "t", "--inputs", "u,v", "--n-components", "32"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return grown(tmp_path / "cube.zarr", 0, 12)


def test_a_gaussian_process_and_its_standard_deviation_from_the_shell(data, tmp_path):
    model, out = tmp_path / "gp.zarr", tmp_path / "out.zarr"
    done = run("fit", data, *SMALL, "--estimator", "gp", "--model", model)
    assert done.exit_code == 0, done.output
    done = run("predict", model, data, "--output", out, "--std")
    assert done.exit_code == 0, done.output
    found = xr.open_zarr(out, consolidated=False)
    mean, error = rs.load(model).predict(xr.open_zarr(data, consolidated=False), return_std=True)
    xr.testing.assert_allclose(found["t"], mean.compute())
    xr.testing.assert_allclose(found["t_std"], error.compute())
    assert found["t_std"].attrs["units"] == "K" and float(found["t_std"].min()) > 0
    assert float(found["t_std"].min()) > rs.load(model).noise_variance_ ** 0.5


@pytest.mark.slow
def test_an_interval_of_what_is_observed_or_of_the_function_from_the_shell(data, tmp_path):
    model, out = tmp_path / "gp.zarr", tmp_path / "out.zarr"
    fitted = run("fit", data, *SMALL, "--estimator", "gp", "--model", model, "--moments")
    assert fitted.exit_code == 0, fitted.output
    loaded, cube = rs.load(model), xr.open_zarr(data, consolidated=False)
    for noise in (True, False):
        more = ["--interval", "0.9", "--overwrite", *([] if noise else ["--no-noise"])]
        done = run("predict", model, data, "--output", out, "--std", *more)
        assert done.exit_code == 0, done.output
        found = xr.open_zarr(out, consolidated=False)
        assert set(found.data_vars) == {"t", "t_std", "t_lower", "t_upper"}
        _, std = loaded.predict(cube, return_std=True, noise=noise)
        xr.testing.assert_allclose(found["t_std"], std.compute())
        edges = loaded.predict_interval(cube, 0.9, noise=noise)
        for name, edge in zip(("t_lower", "t_upper"), edges, strict=True):
            xr.testing.assert_allclose(found[name], edge.compute())
            assert found[name].attrs["units"] == "K"
        assert found["t"].attrs["ancillary_variables"] == "t_std t_lower t_upper"
        assert found["t_lower"].attrs["long_name"] == "lower end of the interval of t"
    for more, words in (
        (["--interval", "1.5"], "between 0 and 1"),
        (["--no-noise"], "Give --std or --interval"),
        (["--interval", "0.9", "--probabilities"], "Give one of them"),
    ):
        done = run("predict", model, data, "--output", tmp_path / "no.zarr", *more)
        assert done.exit_code == 2 and words in done.output


def test_a_model_without_a_standard_deviation_says_so(data, tmp_path):
    fitted(data).save(tmp_path / "m.zarr")
    done = run("predict", tmp_path / "m.zarr", data, "--output", tmp_path / "o.zarr", "--std")
    assert done.exit_code == 4 and "--estimator gp" in done.output
    for more in (["--alpha", "0.1"], ["--classify", "logistic"]):
        done = run("fit", data, *SMALL, "--estimator", "gp", *more)
        assert done.exit_code == 2 and more[0] in done.output


def test_a_fit_that_is_not_kept_says_so_before_it_reads(data):
    """In a log, too; before what is wrong with the data."""
    done = run("fit", data, *SMALL)
    assert done.exit_code == 0 and "nowhere: no --model was given" in done.stdout
    assert "no --model was given" in done.stderr
    first, second = run("fit", data, *SMALL, "--weights", "no").stderr.splitlines()
    assert "no --model was given" in first and "'no'" in second
    assert "no --model" not in run("fit", data, *SMALL, "--dry-run").stderr


def test_verify_reads_every_byte(data, tmp_path):
    path = tmp_path / "m.zarr"
    fitted(data).save(path, moments=True)
    found = json.loads(run("verify", path, "--json").stdout)
    assert found["n_rows"] == 12 * 8 and found["batches"] == 1 and found["unnamed"] == []
    assert "verified" in run("verify", path).stdout
    chunk = next(each for each in (path / "data").rglob("c/*") if each.is_file())
    chunk.write_bytes(chunk.read_bytes()[::-1])
    done = run("verify", path)
    assert done.exit_code == 4 and "sha256" in done.stderr


def test_compact_sums_batches(data, tmp_path):
    path = tmp_path / "m.zarr"
    fitted(data).save(path, moments=True)
    assert "nothing to do: 1 batches" in run("compact", path).stdout
    grown(data, 12, 15)
    assert run("update", path, data).exit_code == 0
    before = rs.load(path)
    found = json.loads(run("compact", path, "--gc", "--json").stdout)
    assert (found["batches_before"], found["batches"], found["removed"]) == (2, 1, [])
    assert len(MomentStore.open(path)) == 1
    np.testing.assert_allclose(rs.load(path).coef_, before.coef_, atol=1e-9)
    assert "nothing is new" in run("update", path, data).stdout


def test_help_is_whole_and_has_examples():
    assert "..." not in run("--help").stdout.partition("Commands:")[2]
    for name in main.commands:
        text = run(name, "--help").stdout
        assert f"Example: rff-stream {name} " in text.replace("\n", " "), text


def test_errors_speak_the_words_of_the_command_line(data):
    xr.open_zarr(data, consolidated=False).load().where(lambda d: d.time > d.time[2]).to_zarr(
        data, mode="w", zarr_format=3, consolidated=False
    )
    done = run("fit", data, *SMALL)
    assert done.exit_code == 3 and "--missing-rows drop" in done.stderr
    assert "missing_rows=" not in done.stderr
    assert in_options("raise n_components=64 or batch=…") == "raise --n-components 64 or --batch …"
    assert (
        in_options("replace it with overwrite=True (--overwrite).")
        == "replace it with --overwrite."
    )
    assert in_options("my_batch=x and alphabet=2") == "my_batch=x and alphabet=2"
    assert in_options(LEAVE_OUT) == "Leave such rows out with --missing-rows drop"


def test_control_characters_reach_no_terminal(data, tmp_path):
    cube = xr.open_zarr(data, consolidated=False).load()
    cube["t"].attrs["units"] = "K\x1b]0;owned\x07"
    cube["u"].attrs["units"] = "m\x1b[2J"
    evil = tmp_path / "evil\x1b[31m.zarr"
    cube.drop_encoding().to_zarr(evil, zarr_format=3, consolidated=False)
    model = tmp_path / "m.zarr"
    outputs = [run("fit", evil, *SMALL, "--model", model), run("inspect", model)]
    outputs += [run("fit", evil / "no", *SMALL), run("score", model, evil)]
    for done in outputs:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.output), repr(done.output)
    assert "\\x1b[2J" in outputs[1].output
    assert printable("a\tb\n°C\x9b") == "a\tb\n°C\\x9b"


@pytest.mark.parametrize("password", ["PW", "s3cret-long"])
def test_passwords_in_any_address_are_hidden(data, password):
    forget()
    address = f"tcp://user:{password}@127.0.0.1:1"
    done = run("fit", data, *SMALL, "--scheduler", address)
    assert done.exit_code == 2 and password not in done.output
    for place in (f"http//u:{password}@host", f"u:{password}@host:9000", f"https://u:{password}@h"):
        forget()
        hide_options({"client_kwargs": {"endpoint_url": place}})
        assert password not in redact_text(f"Invalid endpoint: {place}")
    forget()
    hide_url(address)
    assert password not in redact_text(f"cannot connect to user:{password}@127.0.0.1:1")


def test_what_a_model_may_take_is_the_memory_there_is(data, tmp_path, monkeypatch):
    fitted(data).save(tmp_path / "m.zarr")
    monkeypatch.setattr(files, "available_memory", lambda: 1000)
    with pytest.raises(ModelError, match="max_bytes=1,000"):
        rs.load(tmp_path / "m.zarr")
    monkeypatch.undo()

    def full(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(files, "_read_all", full)
    with pytest.raises(ModelError, match="so much is not free"):
        rs.load(tmp_path / "m.zarr")
