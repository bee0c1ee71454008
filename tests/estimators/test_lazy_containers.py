"""Behaviour that scikit-learn checks on arrays, with dask and xarray in their place.

The values are those of arrays, the class that comes out is the one that went in, and no
block is computed before someone asks for values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.metrics import r2_score

import rff_stream as rs
from rff_stream._array import Array, Float64
from rff_stream.errors import NumericalWarning

N, D = 900, 4
SIZES = {
    "one block": (N,),
    "three blocks": (300, 300, 300),
    "ragged": (1, 511, 300, 88),
    "an empty block": (400, 0, 500, 0),
}


def in_blocks(values: Array, sizes: tuple[int, ...]) -> Any:
    chunks = (sizes, *((size,) for size in values.shape[1:]))
    return da.from_array(values, chunks=chunks)


def unknown(values: Array, sizes: tuple[int, ...]) -> Any:
    """The same rows, of a length that no one knows before they are computed."""
    lazy = in_blocks(values, sizes)
    return lazy[da.from_array(np.ones(len(values), bool), chunks=(sizes,))]


def labelled(values: Array, sizes: tuple[int, ...]) -> Any:
    return xr.DataArray(in_blocks(values, sizes), dims=dims_of(values))


def labelled_in_memory(values: Array, sizes: tuple[int, ...]) -> Any:
    return xr.DataArray(values, dims=dims_of(values))


def dims_of(values: Array) -> list[str]:
    return ["sample", *(f"{size} columns" for size in values.shape[1:])]


CONTAINERS: dict[str, tuple[Callable[..., Any], str]] = {
    **{f"dask, {name}": (in_blocks, name) for name in SIZES},
    **{f"unknown lengths, {name}": (unknown, name) for name in SIZES},
    "DataArray, three blocks": (labelled, "three blocks"),
    "DataArray, ragged": (labelled, "ragged"),
    "DataArray in memory": (labelled_in_memory, "one block"),
}


@pytest.fixture(params=CONTAINERS)
def wrap(request: pytest.FixtureRequest) -> Callable[[Array], Any]:
    make, name = CONTAINERS[request.param]
    return lambda values: make(values, SIZES[name])


def model_of(**choices: Any) -> rs.KernelRidge:
    fixed: dict[str, Any] = {"n_components": 32, "alpha": 0.1, "sums": "float64"}
    return rs.KernelRidge(**(fixed | choices), random_state=0, progress=False)


def refuse(graph: Any, keys: Any, **_: Any) -> Any:
    raise AssertionError("A block was computed.")


Rows = tuple[Float64, Float64, Float64]


@pytest.fixture
def xyw(rng: np.random.Generator) -> Rows:
    x = rng.normal(size=(N, D))
    return x, np.sin(x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=N), rng.uniform(0.5, 2, N)


def test_the_fit_is_that_of_arrays(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, w = xyw
    expected = model_of().fit(x, y, w)
    found = model_of().fit(wrap(x), wrap(y), wrap(w))
    if not any(np.isnan(size) for size in wrap(x).shape):  # else the pilot is added up in parts
        assert found.features_.fingerprint == expected.features_.fingerprint
    assert found.n_features_in_ == D
    assert found.n_rows_ == N
    assert not hasattr(found, "feature_names_in_")
    assert np.allclose(found.predict(x), expected.predict(x), rtol=1e-10)
    assert found.score(x, y) == pytest.approx(expected.score(x, y), rel=1e-10)


def test_several_targets(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, _ = xyw
    both = np.column_stack([y, -2 * y])
    expected = model_of().fit(x, both)
    given = wrap(both)
    labels: dict[str, Any] = {"dim": "sample"} if isinstance(given, xr.DataArray) else {}
    found = model_of().fit(wrap(x), given, **labels)  # else every dimension of y is of samples
    assert np.allclose(found.predict(x), expected.predict(x), rtol=1e-10)
    assert found.coef_.shape == (32, 2)


def test_predictions_come_in_the_container_and_compute_nothing(
    xyw: Rows, wrap: Callable[[Array], Any]
) -> None:
    x, y, _ = xyw
    model = model_of().fit(x, y)
    given = wrap(x)
    lazy = getattr(given, "chunks", None) is not None
    with dask.config.set(scheduler=refuse if lazy else "sync"):
        found = model.predict(given)
    assert type(found) is type(given)
    assert found.ndim == 1
    if isinstance(found, xr.DataArray):
        assert found.dims == ("sample",)
        assert (found.chunks is not None) == lazy
    assert np.allclose(np.asarray(found), model.predict(x), rtol=1e-10)


def test_a_lazy_score_is_that_of_arrays(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, w = xyw
    model = model_of().fit(x, y)
    expected = r2_score(y, model.predict(x), sample_weight=w)
    found = model.score(wrap(x), wrap(y), wrap(w))
    assert isinstance(found, float)
    assert found == pytest.approx(expected, rel=1e-10)


def test_making_setting_and_cloning_compute_nothing(
    xyw: Rows, wrap: Callable[[Array], Any]
) -> None:
    x, y, _ = xyw
    with dask.config.set(scheduler=refuse):
        model = model_of().set_params(alpha=0.2)
        assert clone(model).get_params()["alpha"] == 0.2
        assert repr(model)
    model.fit(x, y)
    if getattr(wrap(x), "chunks", None) is not None:
        with dask.config.set(scheduler=refuse):
            model.predict(wrap(x))
            pickle.loads(pickle.dumps(model)).predict(wrap(x))


def test_fitting_again_changes_nothing(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, _ = xyw
    lazy = wrap(x), wrap(y)
    model = model_of().fit(*lazy)
    first = model.coef_.copy()
    assert np.array_equal(model.fit(*lazy).coef_, first)


def test_the_dtype_of_the_container_does_not_matter(
    xyw: Rows, wrap: Callable[[Array], Any]
) -> None:
    x, y, _ = (np.round(part * 8) / 8 for part in xyw)  # exact in every dtype
    expected = model_of().fit(x, y).predict(x)
    for dtype in (np.float32, np.float16):
        found = model_of().fit(wrap(x.astype(dtype)), wrap(y.astype(dtype)))
        assert np.allclose(found.predict(x), expected, rtol=1e-10)
    whole = model_of().fit(np.round(x), np.round(y)).predict(x)
    found = model_of().fit(wrap(np.round(x).astype(np.int8)), wrap(np.round(y).astype(np.int64)))
    assert np.allclose(found.predict(x), whole, rtol=1e-10)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["x", "y", "w"])
def test_what_is_not_finite_is_refused(
    xyw: Rows, wrap: Callable[[Array], Any], place: str, value: float
) -> None:
    rows = {name: part.copy() for name, part in zip("xyw", xyw, strict=True)}
    rows[place][123] = value
    model = model_of()
    with pytest.raises(ValueError, match="NaN" if np.isnan(value) else "inf"):
        model.fit(wrap(rows["x"]), wrap(rows["y"]), wrap(rows["w"]))
    assert not hasattr(model, "coef_")


def test_rows_with_a_gap_are_left_out(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, w = (part.copy() for part in xyw)
    x[5, 1] = x[700, 3] = y[44] = np.nan
    w[::2] = 0
    model = model_of(missing_rows="drop").fit(wrap(x), wrap(y), wrap(w))
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y) & (w > 0)
    expected = model_of().fit(x[keep], y[keep], w[keep])
    assert model.n_rows_ == keep.sum()
    assert np.allclose(model.predict(x[keep]), expected.predict(x[keep]), rtol=1e-6)
    found = np.asarray(model.predict(wrap(x)))
    assert np.array_equal(np.isnan(found), np.isnan(x).any(axis=1))


def test_one_column_and_one_row(rng: np.random.Generator, wrap: Callable[[Array], Any]) -> None:
    x = rng.normal(size=(N, 1))
    expected = model_of().fit(x, 2 * x[:, 0]).predict(x)
    assert np.allclose(model_of().fit(wrap(x), wrap(2 * x[:, 0])).predict(x), expected, rtol=1e-10)


def test_one_row(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(1, D)), np.array([3.0])
    for lazy in (da.from_array(x), xr.DataArray(x, dims=("sample", "column"))):
        target = da.from_array(y) if isinstance(lazy, da.Array) else xr.DataArray(y, dims="sample")
        model = model_of().fit(lazy, target)
        assert model.n_rows_ == 1
        assert model.predict(x) == pytest.approx(3.0)


def test_all_weights_zero_are_refused(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, w = xyw
    with pytest.raises(ValueError, match=r"weight 0|zero"):
        model_of().fit(wrap(x), wrap(y), wrap(0 * w))


def test_equal_weights_are_no_weights(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, y, _ = xyw
    plain = model_of().fit(wrap(x), wrap(y)).predict(x)
    ones = model_of().fit(wrap(x), wrap(y), wrap(np.ones(N))).predict(x)
    assert np.allclose(plain, ones, rtol=1e-10)


def test_a_constant_target_and_a_constant_input(xyw: Rows, wrap: Callable[[Array], Any]) -> None:
    x, _, _ = (part.copy() for part in xyw)
    x[:, 2] = 7.5
    with pytest.warns(NumericalWarning, match="constant in the"):
        model = model_of().fit(wrap(x), wrap(np.full(N, -4.25)))
    assert np.allclose(model.predict(x), -4.25, atol=1e-10)


def test_lengths_that_differ_are_refused(xyw: Rows) -> None:
    x, y, _ = xyw
    with pytest.raises(ValueError, match=r"899.*900|900.*899"):
        model_of().fit(da.from_array(x), da.from_array(y[:-1]))
    with pytest.raises(ValueError, match=r"899.*900|900.*899"):
        model_of().fit(
            xr.DataArray(x, dims=("sample", "column")), xr.DataArray(y[:-1], dims="sample")
        )


@pytest.mark.parametrize("chunks", [None, {}])
def test_no_rows_are_predicted_as_no_values(chunks):
    x = np.random.default_rng(0).normal(size=(60, 2))
    data = xr.Dataset({"a": ("t", x[:, 0]), "b": ("t", x[:, 1]), "y": ("t", x[:, 0])})
    model = rs.KernelRidge(n_components=32, progress=False).fit(data, "y", inputs=["a", "b"])
    none = data[["a", "b"]].isel(t=slice(0, 0))
    found = model.predict(none if chunks is None else none.chunk(chunks))
    assert found.shape == (0,) and found.compute().dtype == np.float64
