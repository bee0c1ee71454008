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
import pytest
from click.testing import CliRunner

import rff_stream as rs
from rff_stream.cli import main
from rff_stream.costs import WholeCost
from rff_stream.execution.reading import Reading
from rff_stream.features import map_from_spec
from rff_stream.features.base import MAPS
from rff_stream.kernels import kernel_from_spec, kernel_names
from rff_stream.kernels.base import KERNELS
from rff_stream.planning import PlanRequest
from rff_stream.sources import open_source, opening
from rff_stream.statistics.groups import ByFold

PAGE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """The module that a recipe writes, outside of the package; what it added goes again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
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
    assert kernel.approximation_error(features, X[:60]).max < 6 * 2.0 / 4096**0.5
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
