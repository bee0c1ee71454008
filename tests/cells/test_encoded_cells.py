"""Rows are encoded before they are sent to cells: the same as cells of encoded rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.features import OneHot, Periodic, Scaled, Sphere, by_columns

CHOICES = {"length_scale": 0.7, "random_state": 0, "progress": False, "sums": "float64"}


def rows(rng: Any, n: int = 900) -> tuple[Any, Any]:
    X = np.stack([rng.uniform(0, 24, n), rng.uniform(-1, 1, n)], axis=1)
    return X, np.cos(2 * np.pi * X[:, 0] / 24) * X[:, 1] + 0.05 * rng.normal(size=n)


def encode() -> dict[Any, Any]:
    return {"x0": Periodic(24.0), "x1": Scaled([0.0], [1.0])}


def cells(**changes: Any) -> Any:
    return rs.Cells(n_components=20, n_trees=2, n_cells=4, **changes)


def test_encoded_cells_are_cells_of_encoded_rows(rng: Any) -> None:
    X, y = rows(rng)
    fit = rs.GaussianProcessRegressor(features=cells(encode=encode()), **CHOICES).fit(X, y)
    Z = by_columns(encode(), ["x0", "x1"])(X).astype(float)
    plain = rs.GaussianProcessRegressor(features=cells(), **CHOICES).fit(Z, y)
    own, other = fit.predict(X, return_std=True), plain.predict(Z, return_std=True)
    np.testing.assert_allclose(own[0], other[0], atol=1e-9)
    np.testing.assert_allclose(own[1], other[1], atol=1e-9)
    # midnight is no seam
    late, early = ([[23.999, 0.5]], [[0.001, 0.5]])
    np.testing.assert_allclose(fit.predict(late), fit.predict(early), atol=0.05)
    assert fit.features_.n_inputs == 2


def test_length_scales_are_those_of_encoded_columns(rng: Any) -> None:
    X, y = rows(rng, 200)
    asked = rs.Cells(n_components=20, n_trees=1, n_cells=1, encode=encode())
    fit = rs.KernelRidge(features=asked, **CHOICES | {"length_scale": "median"}).fit(X, y)
    assert np.shape(fit.length_scale_) == (3,) and "length-scale" in fit._repr_html_()
    assert fit.score(X, y) > 0.9


def test_they_are_stored_and_grow(rng: Any, tmp_path: Any) -> None:
    X, y = rows(rng)
    asked = cells(encode=encode())
    fit = rs.KernelRidge(features=asked, **CHOICES).fit(X, y)
    path = tmp_path / "model.zarr"
    fit.save(path, moments=True)
    again = rs.load(path)
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))
    assert again.features_.fingerprint == fit.features_.fingerprint
    assert set(again.features.encode) == {"x0", "x1"}
    again.partial_fit(*rows(rng, 100), batch="later")
    assert again.n_rows_ == 1000
    again.fit(X, y)
    np.testing.assert_allclose(again.predict(X), fit.predict(X), atol=1e-9)


def test_classes_positions_and_categories(rng: Any) -> None:
    place = rng.uniform([-90, -180], [90, 180], (800, 2))
    level = rng.integers(0, 3, 800)
    X = np.column_stack([place, level])
    y = np.sin(np.deg2rad(place[:, 0])) + level
    asked = {("x0", "x1"): Sphere(), "x2": OneHot([0, 1, 2])}
    fit = rs.KernelRidge(features=cells(encode=asked), **CHOICES).fit(X, y)
    assert fit.score(X, y) > 0.95
    labels = rs.KernelClassifier(
        features=cells(encode=asked), length_scale=0.7, random_state=0, progress=False
    ).fit(X, level)
    assert labels.score(X, level) > 0.98


def test_what_does_not_fit_is_said_first(rng: Any) -> None:
    X, y = rows(rng, 60)
    with pytest.raises(ValueError, match="are not among the inputs"):
        rs.KernelRidge(features=cells(encode={"hour": Periodic(24)}), **CHOICES).fit(X, y)
    with pytest.raises(ValueError, match="maps 1 inputs but the data have 2"):
        rs.KernelRidge(features=cells(encode=Periodic(24)), **CHOICES).fit(X, y)
    with pytest.raises(TypeError, match=r"Cells\(encode="):
        rs.KernelRidge(features={"x0": Periodic(24), "x1": cells()}, **CHOICES).fit(X, y)
