"""The recipes of CONTRIBUTING.md, followed: each toy is the text of the page, in its own file."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import rff_stream as rs
from places import ROOT, TESTS
from rff_stream.cli import main
from rff_stream.costs import WholeCost
from rff_stream.estimators.base import plan_of
from rff_stream.execution.reading import Reading
from rff_stream.features import map_from_spec
from rff_stream.features.base import MAPS, UNDRAWN
from rff_stream.kernels import approximation_error, kernel_from_spec, kernel_names
from rff_stream.kernels.base import KERNELS
from rff_stream.moments import stored
from rff_stream.planning import PlanRequest
from rff_stream.registry import FAMILY_FOLDERS, family_modules
from rff_stream.sources import open_source, opening
from rff_stream.statistics.groups import ByFold

PAGE = ROOT / "CONTRIBUTING.md"


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """The module that a recipe writes, outside of the package; what it added goes again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    family_modules("family")  # or what is first imported here is forgotten with the toy
    for registry in (KERNELS, MAPS):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))

    def module_of(recipe: str) -> ModuleType:
        section = PAGE.read_text().split(f"### Add {recipe}:")[1]
        code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
        assert code is not None
        name = f"toy_{recipe.split()[-1]}"
        (tmp_path / f"{name}.py").write_text(code.group(1))
        return importlib.import_module(name)

    yield module_of
    for registry in (KERNELS, MAPS):
        registry.forget_names()
    for name in set(sys.modules) - before:
        if name.startswith("toy_"):
            del sys.modules[name]


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (400, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1]


def test_a_kernel(follow: Any, rows: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    kernel = follow("a kernel").HyperbolicSecant((0.7, 1.3), 2.0)
    X, y = rows
    # the sampler is that of the value, and the density that of the sampler
    features = rs.FourierFeatures.sample(kernel, 2, 8192, frequencies="iid", rng=rng)
    # 1,800 pairs: 6 standard errors of at most variance/√4096
    assert approximation_error(features, kernel, X[:60]).max < 6 * 2.0 / 4096**0.5
    edges = np.linspace(-40, 40, 400_001)[:, None]
    density = kernel.with_length_scale(1.0).spectral_density(edges)
    assert np.trapezoid(density, edges[:, 0]) == pytest.approx(1, abs=1e-9)
    # all that comes from the base
    assert kernel_from_spec(json.loads(json.dumps(kernel.spec()))) == kernel
    assert "hyperbolic_secant" in kernel_names(stationary=True)
    assert (kernel + rs.Gaussian()).text == "hyperbolic_secant + gaussian"
    assert "hyperbolic_secant" in CliRunner().invoke(main, ["fit", "--help"]).output
    model = rs.KernelRidge("hyperbolic_secant", n_components=256, alpha=1e-3, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95
    model.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(rs.load(tmp_path / "model.zarr").predict(X), model.predict(X))


def test_a_map(follow: Any, rows: Any, tmp_path: Path) -> None:
    follow("a feature map")
    X, y = rows
    model = rs.KernelRidge(features="sign", n_components=512, alpha=0.1, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.8
    features: Any = model.features_
    again = map_from_spec(*features.spec())
    assert again.fingerprint == features.fingerprint
    np.testing.assert_array_equal(again(X[5:9]), features(X)[5:9])
    assert (features | features).n_components == 1024
    model.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(rs.load(tmp_path / "model.zarr").predict(X), model.predict(X))


def test_an_answer(follow: Any, rows: Any) -> None:
    X, y = rows
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 16, rng=0)
    moments = rs.collect(features, X, y, progress=False)
    found = follow("an answer").correlations(moments)
    expected = np.corrcoef(features(X).astype(float), y, rowvar=False)[:16, 16:]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_statistic(follow: Any, rows: Any) -> None:
    toy = follow("a statistic")
    X, y = rows
    for data, targets in ((X, y), (da.from_array(X, chunks=(90, 2)), da.from_array(y, chunks=90))):
        reading = Reading(open_source(data, targets), progress=False)
        layout = reading.plan(PlanRequest(WholeCost(16))).layout
        tally = reading.sums(toy.ExtremesStatistic(), layout)
        assert tally.value == toy.Extremes(y.min(), y.max())
        folds = reading.sums(ByFold(toy.ExtremesStatistic(), 3, 400), layout).value
        assert min(each.low for each in folds.by_label.values()) == y.min()


def test_a_source(follow: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows
    toy = follow("a source")
    line = opening.Opener("toy_source", "lazy", ("toy_source",))
    monkeypatch.setattr(opening, "OPENERS", (*opening.OPENERS, line))
    numbers = np.round(X / 0.001).astype(np.int64)
    model = rs.KernelRidge(n_components=64, alpha=0.1, random_state=0, progress=False)
    found = model.fit(toy.Counts(numbers, 0.001), y).predict(toy.Counts(numbers, 0.001))
    expected = model.fit(numbers * 0.001, y).predict(numbers * 0.001)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_an_estimator(follow: Any, rows: Any, tmp_path: Path) -> None:
    """Its answer is ridge's; it grows, is saved and loaded, and describes itself."""
    module = follow("an estimator")
    x, y = rows
    model = module.PlainRidge(0.1, length_scale=1.0, random_state=0).fit(x, y)
    same = rs.KernelRidge(alpha=0.1, n_components=64, length_scale=1.0, random_state=0).fit(x, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    model.partial_fit(x + 1, y, batch="later").save(tmp_path / "M.zarr", moments=True)
    again = rs.load(tmp_path / "M.zarr").update(x + 2, y)
    assert type(again) is module.PlainRidge and again.n_rows_ == 1200
    assert "1,200 fitted" in again._repr_html_()


# A family ----------------------------------------------------------------------------------------


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The folder ``tests/boxes``, made known as CONTRIBUTING says; all of it goes again."""
    family_modules("family")  # or what is first imported here is forgotten with the toy
    before = set(sys.modules)
    for registry in (MAPS, UNDRAWN):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
        registry.forget_names()
    monkeypatch.setattr(stored, "_CLASSES", dict(stored._CLASSES))
    FAMILY_FOLDERS.insert(-1, "boxes")
    yield importlib.import_module("boxes.map").Boxes
    FAMILY_FOLDERS.remove("boxes")
    for registry in (MAPS, UNDRAWN):
        registry.forget_names()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "boxes":
            del sys.modules[name]


@pytest.fixture
def steps(rng: np.random.Generator, tmp_path: Path) -> tuple[str, Any]:
    """A Zarr store of 1,600 rows whose target is a number of each of four columns, and noise."""
    a, b = rng.uniform(0, 1, (2, 40, 40))
    a[0, 0], a[1, 1] = 0, 1  # boxes of the range end where the steps do
    y = np.array([3.0, -1.0, 7.0, 2.0, 2.0])[(a * 4).astype(int)] + 0.1 * rng.normal(size=a.shape)
    kind = np.array(["low", "high"])[(y > 2.5).astype(int)]
    names = ("i", "j")
    data = xr.Dataset({"a": (names, a), "b": (names, b), "y": (names, y), "kind": (names, kind)})
    path = f"{tmp_path}/steps.zarr"
    data.drop_vars("kind").chunk(i=20).to_zarr(path, consolidated=False)
    return path, data


def test_the_table_of_a_family_names_the_files_of_the_example() -> None:
    section = PAGE.read_text().split("### Add a family of maps:")[1].split("## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    files = {path.stem for path in (TESTS / "boxes").glob("*.py")}
    assert listed == files - {"__init__"}


def test_a_family_is_planned_fitted_stored_and_grows(
    boxes: Any, steps: Any, tmp_path: Path
) -> None:
    path, data = steps
    inputs = ["a", "b"]
    model = rs.KernelRidge(features=boxes(4), alpha=1.0, random_state=0, progress=False)
    plan = plan_of(model, open_source(path, "y", inputs=inputs))
    assert "boxes" in str(plan) and plan.n_features == 16
    model.fit(path, "y", inputs=inputs, batch="first")
    X, y = (np.stack([data[name].values.ravel() for name in names], axis=1)
            for names in (inputs, ["y"]))  # fmt: skip
    box = model.features_.box_of(X)
    mean = y.mean()
    for each in np.unique(box):  # a dense, obvious reference
        own = y[box == each]
        expected = mean + (own - mean).sum() / (len(own) + 1.0)
        np.testing.assert_allclose(model.predict(X[box == each][:1]), expected, rtol=1e-12)
    model.save(tmp_path / "boxes.zarr", moments=True)
    again = rs.load(tmp_path / "boxes.zarr")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again.update(X, y[:, 0], batch="second")
    assert again.n_rows_ == 2 * len(X)
    again.forget("second")
    assert again.n_rows_ == len(X)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9)
    with pytest.raises(ValueError, match="refine=1 but means of boxes are exact"):
        rs.KernelRidge(features=boxes(4), alpha=1.0, refine=1).fit(X, y)


def test_a_family_is_a_process(boxes: Any, steps: Any, tmp_path: Path) -> None:
    path, data = steps
    model = rs.GaussianProcessRegressor(features="boxes", random_state=0, progress=False)
    model.fit(path, "y", inputs=["a", "b"])
    assert model.noise_variance_**0.5 == pytest.approx(0.1, rel=0.1)
    X = np.stack([data[name].values.ravel() for name in ("a", "b")], axis=1)
    y = data.y.values.ravel()
    mean, std = model.predict(X, return_std=True)
    assert np.mean(np.abs(y - mean) < 1.96 * std) == pytest.approx(0.95, abs=0.02)
    low, high = model.predict_interval(X, 0.9)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.03)
    drawn = model.sample_y(X[:50], n_samples=4000, random_state=0)
    _, of_f = model.predict(X[:50], return_std=True, noise=False)
    for noise in (True, False):
        _, std_there = model.predict(X[:50], return_std=True, noise=noise)
        _, found = model.predict(X[:50], return_cov=True, noise=noise)
        np.testing.assert_allclose(np.sqrt(found.diagonal()), std_there, rtol=1e-12)
    np.testing.assert_allclose(drawn.std(axis=1), of_f, rtol=6 / 4000**0.5)  # 6 standard errors
    model.save(tmp_path / "process.zarr")
    again = rs.load(tmp_path / "process.zarr").predict(X, return_std=True)
    np.testing.assert_array_equal(again, (mean, std))


def test_a_family_has_classes(boxes: Any, steps: Any, tmp_path: Path) -> None:
    data = steps[1]
    table = pd.DataFrame({name: data[name].values.ravel() for name in ("a", "b", "kind")})
    X, kind = table[["a", "b"]], table.kind
    model = rs.KernelClassifier(features=boxes(4), random_state=0, progress=False).fit(X, kind)
    assert model.score(X, kind) > 0.99
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    model.save(tmp_path / "classes.zarr", moments=True)
    again = rs.load(tmp_path / "classes.zarr")
    np.testing.assert_array_equal(again.predict_proba(X), probability)
    again.update(X + 1e-9, kind, batch="second")
    assert again.n_rows_ == 2 * len(X)
    with pytest.warns(UserWarning, match="Label 'other' is new"):
        model.partial_fit(X, np.full(len(X), "other"), batch="second")
    assert model.classes_.tolist() == ["high", "low", "other"]
    np.testing.assert_allclose(model.predict_proba(X)[:, 2], 0.5, atol=0.02)
    with pytest.raises(ValueError, match="but boxes count classes"):
        rs.KernelClassifier("hinge", features=boxes(4)).fit(X, kind)
