"""One value for each family of maps: which one a map has, and who refuses it by name."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import rff_stream as rs
from rff_stream.cells.family import CellFamily
from rff_stream.errors import ModelError
from rff_stream.families import family_of
from rff_stream.families.noise_of_rows import NoisyProcess
from rff_stream.features.base import MAPS
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.grid.family import GridFamily
from rff_stream.trend.family import TrendAnswer
from rff_stream.whole.family import WholeFamily

CELLS = rs.Cells(n_components=8, n_trees=2, n_cells=2)


GRID = rs.Grid(modes=(6, 6))


def test_every_name_and_value_has_a_family() -> None:
    features = rs.FourierFeatures.sample(rs.Gaussian(), 2, 8, rng=0)
    others = {"local": CellFamily(), "grid": GridFamily()}
    for choice in (*MAPS.by_choice, features):
        named = others.get(choice) if isinstance(choice, str) else None
        assert family_of(choice) == (named or WholeFamily())
    assert family_of({"x": features}) == WholeFamily()
    assert (family_of(CELLS), family_of(GRID)) == (CellFamily(), GridFamily())


def test_a_loaded_model_knows_its_family_without_its_parameter(rng: Any, tmp_path: Any) -> None:
    X = rng.uniform(-1, 1, (300, 2))
    model = rs.KernelRidge(features=CELLS, length_scale=1.0, random_state=0, progress=False)
    model.fit(X, X[:, 0]).save(tmp_path / "model.zarr", moments=True)
    again = rs.load(tmp_path / "model.zarr").set_params(features="auto")
    assert again._fitted.family == CellFamily()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ModelError, match="set features back"):
        again.partial_fit(X + 0.1, X[:, 0], batch="later")
    again.set_params(features=CELLS).partial_fit(X + 0.1, X[:, 0], batch="later")
    assert again.n_rows_ == 600


@pytest.mark.parametrize("features", ["grid", GRID, "local", CELLS], ids=repr)
@pytest.mark.parametrize(
    "kind",
    [rs.KernelDensity, rs.KernelPCA, rs.NoveltyDetector, rs.KernelFeatures, rs.KernelClassifier],
)
def test_estimators_without_cells_and_grids_say_so(kind: Any, features: Any, rng: Any) -> None:
    X = rng.normal(size=(60, 2))
    if kind is rs.KernelClassifier and features in ("local", CELLS):
        return  # it answers for cells: test_cell_classes
    with pytest.raises(ValueError, match="are for KernelRidge and GaussianProcessRegressor"):
        kind(features=features).fit(X, X[:, 0] > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [rs.KernelDensity(bandwidth="cv"), rs.KernelPCA(2), rs.NoveltyDetector(), rs.KernelFeatures()],
    ids=lambda model: type(model).__name__,
)
def test_where_no_maps_compete_auto_is_whole_the_default(model: Any, rng: Any) -> None:
    X = rng.normal(size=(300, 2))
    y = X[:, 0] > 0
    assert model.get_params()["features"] == "whole"
    size = "n_map_components" if isinstance(model, rs.KernelPCA) else "n_components"
    model.set_params(**{size: 256, "random_state": 0})
    prints = {
        clone(model).set_params(features=name).fit(X, y).features_.fingerprint
        for name in ("whole", "auto")
    }
    assert prints == {clone(model).fit(X, y).features_.fingerprint}


def test_moments_of_cells_are_collected_too(rng: Any) -> None:
    X = rng.uniform(-1, 1, (400, 2))
    y = X[:, 0] * X[:, 1]
    model = rs.KernelRidge(features=CELLS, length_scale=1.0, random_state=0, progress=False)
    model.fit(X, y)
    found = rs.collect(model.features_, X, y, row=model.moments_.row, progress=False)
    assert found.n == 400
    np.testing.assert_array_equal(found.sums, model.moments_.sums)


class Halves:
    """Noise that is twice as large where the first input is positive."""

    width, arrays, unseen = 2, {}, None

    def __call__(self, x: Any, mean: Any) -> Any:
        return np.where(x[:, :1] > 0, 4.0, 1.0) + 0 * mean()

    def of_function(self, x: Any, factors: Any, of_f: Any, noise: Any) -> Any:
        return of_f + 0.1 * (factors - 1) * noise


PROCESSES: dict[str, Any] = {
    "whole": rs.FourierFeatures.sample(rs.Gaussian(), 2, 32, rng=0),
    "cells": CELLS,
    "grid": GRID,
    "mean of two": rs.Candidates((CELLS, GRID)),
}


@pytest.mark.parametrize("beside", ["alone", "a line", "uneven noise"])
@pytest.mark.parametrize("features", PROCESSES.values(), ids=list(PROCESSES))
def test_means_variances_and_covariances_say_the_same(rng: Any, features: Any, beside: str) -> None:
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    y = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.3 * rng.normal(size=(300, 2))
    scale = {} if isinstance(features, rs.FourierFeatures) else {"length_scale": 1.0}
    model = rs.GaussianProcessRegressor(
        features=features, **scale, random_state=0, progress=False
    ).fit(X, y)
    process: Any = model._fitted.answer
    if beside == "a line":
        line = LinearTrend(np.zeros(2), np.ones((2, 2)), np.eye(2), np.ones(2))
        process = TrendAnswer(process, line)
    elif beside == "uneven noise":
        process = NoisyProcess(process, Halves())
    mean, of_f, noise = np.split(process.mean_and_variances()(new), 3, axis=1)
    np.testing.assert_allclose(mean, process.mean()(new), rtol=1e-12)
    np.testing.assert_array_equal(np.hstack([of_f, noise]), process.variances()(new))
    for with_noise in (False, True):
        found = np.diagonal(process.covariance(new, with_noise), axis1=1, axis2=2).T
        # a grid solves its variances to a residual of 1e-8
        np.testing.assert_allclose(found, of_f + noise * with_noise, rtol=1e-6)
    model._fitted = replace(model._fitted, answer=process)
    told, std = model.predict(new, return_std=True)
    np.testing.assert_array_equal(np.hstack([told, std]), np.hstack([mean, np.sqrt(of_f + noise)]))
    std = model.predict(new, return_std=True, noise=False)[1]
    np.testing.assert_array_equal(std, np.sqrt(of_f))


@pytest.mark.parametrize("kind", ["cells", "mean of two", "beside a line", "classes"])
def test_an_answer_of_cells_says_how_many_bytes_it_holds(rng: Any, kind: str) -> None:
    """Plans of later reads count them."""
    X = rng.normal(size=(1500, 2))
    y, cells = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1500), rs.Cells(32, 2, 4)
    quiet: Any = {"length_scale": 1.0, "random_state": 0, "progress": False}
    if kind == "classes":
        model: Any = rs.KernelClassifier(features=cells, **quiet).fit(X, y > 0)
    else:
        own = rs.Candidates((cells, rs.Cells(48, 2, 2))) if kind == "mean of two" else cells
        model = rs.GaussianProcessRegressor(features=own, **quiet).fit(X, y)
    answer: Any = model._fitted.answer
    parts = {
        "cells": lambda: [answer],
        "mean of two": lambda: answer.processes.values(),
        "beside a line": lambda: [answer],
        "classes": lambda: [answer.log_odds],
    }[kind]()
    held = [sum(array.nbytes for array in each.posterior.arrays().values()) for each in parts]
    if kind == "beside a line":
        line = LinearTrend(np.zeros(2), np.ones((2, 1)), np.eye(2), np.ones(1))
        answer = TrendAnswer(answer, line)
    assert sys.getsizeof(answer) > sum(held) / 2 > 10_000
