"""Every kind of model says what it is: in its repr, its HTML, a report and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import rff_stream as rs
from rff_stream.model.facts import facts, values_of
from toys import run

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
MADE: dict[str, Any] = {
    "KernelRidge": lambda: rs.KernelRidge(n_components=32, **QUIET),
    "GaussianProcessRegressor": lambda: rs.GaussianProcessRegressor(
        length_scale=1.0, n_components=64, noise=0.1, **QUIET
    ),
    "KernelClassifier": lambda: rs.KernelClassifier(n_components=32, **QUIET),
    "logistic": lambda: rs.KernelClassifier("logistic", n_components=32, alpha=1.0, **QUIET),
    "KernelDensity": lambda: rs.KernelDensity(0.5, n_components=512, **QUIET),
    "NoveltyDetector": lambda: rs.NoveltyDetector(n_components=64, **QUIET),
    "KernelPCA": lambda: rs.KernelPCA(n_map_components=32, **QUIET),
}
OWN = {
    "KernelRidge": "alpha", "GaussianProcessRegressor": "noise", "KernelClassifier": "classes",
    "logistic": "classes", "KernelDensity": "bandwidth", "NoveltyDetector": "threshold",
    "KernelPCA": "explained_variance_ratio",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows of two inputs, a value and a class."""
    a, b = np.random.default_rng(0).normal(size=(2, 300))
    path = tmp_path_factory.mktemp("facts") / "d.zarr"
    xr.Dataset(
        {
            "a": ("row", a, {"units": "m"}),
            "b": ("row", b),
            "value": ("row", np.sin(a) + b**2, {"units": "K"}),
            "kind": ("row", (a > 0).astype(np.int64)),
        }
    ).to_zarr(path, zarr_format=3, consolidated=False, encoding={"kind": {"fill_value": -1}})
    return path


@pytest.fixture(scope="module", params=MADE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def target(kind: str) -> str | None:
    if kind in ("KernelClassifier", "logistic"):
        return "kind"
    return "value" if kind in ("KernelRidge", "GaussianProcessRegressor") else None


@pytest.fixture(scope="module")
def model(kind: str, data: Path, target: str | None) -> Any:
    return MADE[kind]().fit(data, target, inputs=["a", "b"])


def test_a_model_says_the_same_everywhere(model: Any, kind: str) -> None:
    found = {fact.name: fact.text for fact in facts(model) if fact.text}
    assert found["rows"] == "300 fitted"
    assert found["inputs"] == "d = 2: a [m], b"
    values = values_of(model)
    assert values["estimator"] == type(model).__name__ and values["n_rows"] == 300
    assert OWN[kind] in values
    page = model._repr_html_().replace("<wbr>", "")  # where a long name may break
    for text in found.values():
        assert text.replace("&", "&amp;").replace("<", "&lt;") in page
    assert page.count("<details>") == 1, "one card, with all parameters"
    assert all(name in page for name in model.get_params(deep=False))


def test_an_estimator_that_is_not_fitted_says_so(kind: str) -> None:
    found = {fact.name: fact.text for fact in facts(MADE[kind]())}
    assert found["state"] == "not fitted" and "random_state=0" in found["asked"]


@pytest.mark.parametrize("moments", [pytest.param(True, marks=pytest.mark.slow), False])
def test_inspect_and_report_know_every_kind(
    model: Any, kind: str, target: str | None, data: Path, tmp_path: Path, moments: bool
) -> None:
    path = tmp_path / "M.zarr"
    model.save(path, moments=moments)
    done = run("inspect", path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["estimator"] == type(model).__name__ and found["n_rows"] == 300
    assert found["has_moments"] is moments and OWN[kind] in found
    text = run("inspect", path).stdout
    for fact in facts(rs.load(path)):
        assert fact.text in text
    if not moments:
        return  # test_report has a report of a model without them
    more = [] if target is None else ["--target", target]
    done = run("report", path, "--data", data, *more, "-o", tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    assert "d = 2: a [m], b" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_predict_writes_what_a_model_says_of_rows(model: Any, data: Path, tmp_path: Path) -> None:
    """Attack 22: a density has no predict, components have transform."""
    model.save(tmp_path / "M.zarr")
    done = run("predict", tmp_path / "M.zarr", data, "--output", tmp_path / "o.zarr")
    assert done.exit_code == 0, done.output
    written = zarr.open_group(tmp_path / "o.zarr", mode="r")
    assert all(array.shape == (300,) for _, array in written.arrays())


def test_score_says_why_there_is_none(
    model: Any, target: str | None, data: Path, tmp_path: Path
) -> None:
    model.save(tmp_path / "M.zarr")
    done = run("score", tmp_path / "M.zarr", data)
    if target is not None:
        assert done.exit_code == 0, done.output
        return
    assert done.exit_code == 4 and "fitted without a target" in done.stderr
    assert "Traceback" not in done.output
