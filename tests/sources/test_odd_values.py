"""The second attack: values, names and labels that no fit should meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import rff_stream as rs
from rff_stream.errors import DataError, PlanError
from toys import ridge

X = np.random.default_rng(0).normal(size=(200, 2))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2
WEIGHTS = np.ones(200)


def classifier() -> rs.KernelClassifier:
    return rs.KernelClassifier(n_components=32, length_scale=1.0, progress=False)


def cube(times: Any = None, n: int = 60) -> xr.Dataset:
    x = np.random.default_rng(0).normal(size=(n, 4))
    coords = {"t": np.arange(n) * 1.0 if times is None else times}
    return xr.Dataset({"x": (("t", "s"), x), "y": (("t", "s"), np.sin(x))}, coords=coords)


def days(n: int = 60) -> Any:
    return np.arange(n).astype("M8[D]").astype("M8[ns]")


def on(data: Any, **asked: Any) -> rs.KernelRidge:
    choices = {name: asked.pop(name) for name in ("missing_rows", "length_scale") if name in asked}
    return ridge(**choices).fit(data, "y", **{"inputs": ["x"], **asked})


def first(values: Any, fill: float) -> Any:
    changed = np.array(values, float)
    changed[0] = fill
    return changed


def lazy(function: Callable[[Any], Any]) -> Any:
    rows = da.from_array(X, chunks=(50, 2))
    return rows.map_blocks(function, dtype=float, meta=np.empty((0, 0)))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "NaN weight": (lambda: ridge().fit(X, Y, first(WEIGHTS, np.nan)), ValueError, "NaN"),
    "negative weight": (lambda: ridge().fit(X, Y, first(WEIGHTS, -1)), ValueError, "Negative"),
    "infinite weight": (lambda: ridge().fit(X, Y, first(WEIGHTS, np.inf)), ValueError, "infinity"),
    "weights 1e300": (lambda: ridge().fit(X, Y, WEIGHTS * 1e300), DataError, "range of float64"),
    "subnormal weights": (lambda: ridge().fit(X, Y, WEIGHTS * 5e-324), DataError, "range of floa"),
    "only weights 0": (lambda: ridge().fit(X, Y, WEIGHTS * 0), ValueError, "non-zero"),
    "negative weights in a score": (
        lambda: ridge().fit(X, Y).score(X, Y, -WEIGHTS), ValueError, "Negative values",
    ),
    "NaN weights in a score": (
        lambda: ridge().fit(X, Y).score(X, Y, first(WEIGHTS, np.nan)), ValueError, "NaN",
    ),
    "weights under a mask": (
        lambda: ridge().fit(X, Y, np.ma.array(WEIGHTS, mask=np.arange(200) == 3)),
        ValueError, "NaN",
    ),
    "targets 1e300": (lambda: ridge().fit(X, Y * 1e300), DataError, "range of float64"),
    "inputs 1e200": (lambda: ridge().fit(X * 1e200, Y), DataError, "range of float64"),
    "no rows": (lambda: ridge().fit(X[:0], Y[:0]), ValueError, r"0 sample\(s\)"),
    "no columns": (lambda: ridge().fit(X[:, :0], Y), ValueError, r"0 feature\(s\)"),
    "no targets": (lambda: ridge().fit(X, np.empty((200, 0))), ValueError, r"0 feature\(s\)"),
    "objects that are no numbers": (
        lambda: ridge().fit(np.array([[1, "a"], [2, 3]], object), [1, 2]), ValueError, "'a'",
    ),
    "None among objects": (
        lambda: ridge().fit(np.array([[1, None], [2, 3]], object), [1, 2]), ValueError, "NaN",
    ),
    "a generator": (lambda: ridge().fit((row for row in X), Y), TypeError, "not a known type"),
    "R = 10^12": (lambda: ridge(n_components=10**12).fit(X, Y), PlanError, "Nothing was read"),
    "inputs that name nothing": (lambda: on(cube(), inputs=[]), DataError, "inputs names nothing"),
    "dim that names nothing": (lambda: on(cube(), dim=[]), DataError, "dim names nothing"),
    "an input twice": (lambda: on(cube(), inputs=["x", "x"]), DataError, "'x' twice"),
    "the target as an input": (
        lambda: on(cube(), inputs=["x", "y"]), DataError, "'y' is the target and an input",
    ),
    "a condition as text": (
        lambda: on(cube(), where=["t<30"]), DataError, r"where holds 't<30', but a condition is \(",
    ),
    "a condition that calls": (
        lambda: on(cube(), where=[("__import__('os')", "<", 1)]), DataError, "There is no",
    ),
    "a condition nothing meets": (lambda: on(cube(), where=[("t", "<", -5)]), DataError, "0 sampl"),
    "a field that is private": (
        lambda: on(cube(days()), inputs=["t.__class__"]), TypeError, 'There are: "year"',
    ),
    "a dimension of length 0": (lambda: on(cube(n=0)), DataError, r"0 sample\(s\)"),
    "NaT": (lambda: on(cube(first_day_gone()), inputs=["t.dayofyear"]), DataError, "1 of|4 NaN"),
    "columns of one name": (
        lambda: ridge().fit(pd.DataFrame(np.eye(3), columns=["a", "a", "y"]), "y"),
        DataError, "several columns",
    ),
    "a pandas interval": (
        lambda: ridge().fit(pd.DataFrame({"a": pd.interval_range(0, 3), "y": [1.0, 2, 3]}), "y"),
        TypeError, "objects",
    ),
    "weights of another index": (
        lambda: ridge().fit(pd.DataFrame(X), pd.Series(Y), pd.Series(WEIGHTS, np.arange(200) + 5)),
        DataError, "other indexes",
    ),
    "weights of other coordinates": (
        lambda: on(cube(), sample_weight=xr.DataArray(np.ones(60), [("t", np.arange(60) + 0.5)])),
        DataError, "other coordinates",
    ),
    "a block of other type": (
        lambda: ridge().fit(lazy(lambda block: block.astype("U5")), Y), DataError, "dtype <U5",
    ),
    "a block too short": (
        lambda: ridge().fit(lazy(lambda block: block[:-1]), Y), DataError, r"shape \(49, 2\)",
    ),
    "a block too wide": (
        lambda: ridge().fit(lazy(lambda block: np.c_[block, block]), Y), DataError, r"\(50, 4\)",
    ),
    "a label that ends in a zero": (
        lambda: classifier().fit(X[:4], np.array(["a\0", "a", "b", "b"], object)),
        DataError, "would become another label",
    ),
    "an infinite label": (
        lambda: classifier().fit(X[:4], np.array([np.inf, 0, 1, 1])), ValueError, "infinity",
    ),
    "a length-scale of 0": (lambda: ridge(length_scale=0).fit(X, Y), ValueError, "positive"),
    "a NaN length-scale": (lambda: ridge(length_scale=np.nan).fit(X, Y), ValueError, "finite"),
    "a penalty below 0": (lambda: ridge(alpha=-1).fit(X, Y), ValueError, "≥ 0"),
    "inputs beyond float32 at prediction": (
        lambda: ridge().fit(X, Y).predict(np.array([[1e308, 1.0]])), DataError, "too large",
    ),
    "2^64": (
        lambda: ridge().fit(np.array([[2**64 - 1], [2**64 - 2]], np.uint64), [1, 2]),
        DataError, "2\\^53",
    ),
}  # fmt: skip


def first_day_gone() -> Any:
    return np.r_[np.array(["NaT"], "M8[ns]"), days(59)]


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("trial", REFUSED)
def test_what_no_fit_should_meet_is_refused_by_name(trial: str) -> None:
    call, kind, words = REFUSED[trial]
    with pytest.raises(kind, match=words):
        call()


WORKS: dict[str, Callable[[], Any]] = {
    "weights that are true or false": lambda: n_of(X, Y, np.arange(200) % 2 == 0) == 100,
    "a weight of -0.0": lambda: n_of(X, Y, first(WEIGHTS, -0.0)) == 199,
    "one row": lambda: np.allclose(ridge().fit(X[:1], Y[:1]).predict(X), Y[0]),
    "a constant target": lambda: np.allclose(ridge().fit(X, WEIGHTS * 7e15).predict(X), 7e15),
    "inputs about 10^12": lambda: score_at(1e12) > 0.99,
    "decimals": lambda: n_of(np.array([[Decimal(1)], [Decimal(2)]]), [1, 2]) == 2,
    "objects that are numbers": lambda: same(ridge().fit(X.astype(object), Y), ridge().fit(X, Y)),
    "sparse rows": lambda: near(ridge().fit(sparse(X), Y), ridge().fit(X, Y)),
    "rows from the end": lambda: same(backwards(X, Y), backwards(X.copy(), Y.copy())),
    "one row said 200 times": lambda: n_of(np.broadcast_to(X[:1], (200, 2)), WEIGHTS) == 200,
    "chunks of no rows": lambda: n_of(da.from_array(X, chunks=((50, 0, 150), (2,))), Y) == 200,
    "matrix blocks": lambda: n_of(lazy(as_matrix), Y) == 200,
    "everything hidden but five": lambda: hidden(5).n_rows_ == 195,
    "times in any order": lambda: near(on(cube().isel(t=np.r_[30:60, 0:30])), on(cube())),
    "one time for all": lambda: on(cube(np.zeros(60))).n_rows_ == 240,
    "a dimension of length 1": lambda: on(cube().isel(s=[0])).n_rows_ == 60,
    "times in s, not ns": lambda: zones_agree(cube(days()), cube(days().astype("M8[s]"))),
    "names with spaces, lines and nothing": lambda: odd_names(),
    "nullable numbers": lambda: ridge(missing_rows="drop").fit(nullable(), "y").n_rows_ == 2,
    "units that are no text": lambda: on(with_units(np.array([1, 2]))).predict(cube()).size == 240,
    "a random state of 2^200": lambda: ridge(random_state=2**200).fit(X, Y).n_rows_ == 200,
    "labels with escapes, spaces or pictures": lambda: (
        classes_of(["\x1b[31m", "a\nb", " ", "\U0001f600"])
        == ["\x1b[31m", " ", "a\nb", "\U0001f600"]
    ),
    "a label of a million letters": lambda: (
        len(classes_of(["a", "b" * 10**6, "a", "a"])[1]) == 10**6
    ),
}


def n_of(x: Any, y: Any, weight: Any = None) -> int:
    return int(ridge().fit(x, y, weight).n_rows_)


def score_at(offset: float) -> float:
    return float(ridge(length_scale="median").fit(X + offset, Y).score(X + offset, Y))


def backwards(x: Any, y: Any) -> Any:
    return ridge().fit(x[::-1], y[::-1])


def classes_of(labels: list[str]) -> list[str]:
    return list(classifier().fit(X[: len(labels)], np.array(labels)).classes_)


def same(mine: Any, other: Any) -> bool:
    return bool(mine.coef_.tobytes() == other.coef_.tobytes())


def near(mine: Any, other: Any) -> bool:
    given = X if mine.n_features_in_ == 2 else cube()
    return bool(np.allclose(mine.predict(given), other.predict(given), atol=1e-4))


def sparse(rows: Any) -> Any:
    return pytest.importorskip("scipy.sparse").csr_array(rows)


def as_matrix(block: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asmatrix(block)


def hidden(n: int) -> Any:
    y = np.ma.array(Y, mask=np.arange(200) < n)
    return ridge(missing_rows="drop").fit(X, y)


def zones_agree(fitted_on: Any, other: Any) -> bool:
    model = on(fitted_on, inputs=["t"], length_scale=86_400 * 5.0)
    return bool(np.array_equal(model.predict(fitted_on), model.predict(other)))


def odd_names() -> bool:
    line = np.arange(9.0)
    data = xr.Dataset({"a b\n\t:;": ("t", line), "": ("t", line**2), "y": ("t", line)})
    return bool(ridge(length_scale=9.0).fit(data, "y").score(data, "y") > 0.9)


def nullable() -> Any:
    return pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "y": [1.0, 2, 3]})


def with_units(units: Any) -> Any:
    data = cube()
    data["x"].attrs["units"] = units
    return data


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("trial", WORKS)
def test_what_is_only_odd_works(trial: str) -> None:
    assert WORKS[trial]()


def test_times_with_zones_are_moments() -> None:
    """The same moments in another zone are the same rows."""
    table = pd.DataFrame({"t": pd.date_range("2000-01-01", periods=60, tz="Europe/Berlin")})
    model = ridge(length_scale=86_400 * 5.0).fit(table, np.sin(np.arange(60.0)))
    there = pd.DataFrame({"t": table["t"].dt.tz_convert("UTC")})
    assert np.array_equal(model.predict(table), model.predict(there))


@pytest.mark.parametrize("kind", ["index", "variable", "objects"])
def test_times_with_zones_in_a_data_set_are_moments(kind: str) -> None:
    """In UTC, as those of a DataFrame; fields of them too."""
    there = pd.date_range("2000-01-01", periods=60, tz="Europe/Berlin")
    plain = there.tz_convert("UTC").tz_localize(None)
    line = np.sin(np.arange(60.0))

    def data(times: Any) -> xr.Dataset:
        given = np.array(times, object) if kind == "objects" and times is there else times
        if kind == "index":
            return xr.Dataset({"y": ("t", line)}, {"t": given})
        return xr.Dataset({"y": ("row", line), "t": ("row", given)})

    asked: dict[str, Any] = {
        "inputs": ["t", "t.hour"],
        "length_scale": 5.0,
        "where": [("t", "<", "2000-02-20")],
    }
    mine, other = on(data(there), **asked), on(data(plain), **asked)
    assert mine.n_rows_ == other.n_rows_ == 51
    assert np.array_equal(mine.predict(data(there)).values, other.predict(data(plain)).values)


def test_names_that_are_no_text_are_said() -> None:
    line = np.arange(9.0)
    data = xr.Dataset({1: ("t", line), "y": ("t", line)})
    for asked in ({}, {"inputs": [1]}):
        with pytest.raises(DataError, match=r"data\.rename\(\{1: '1'\}\)"):
            ridge().fit(data, "y", **asked)
    table = pd.DataFrame({1: line, 2: line**2})
    with pytest.raises(
        DataError, match=r"y is 2, which is neither an array nor a name: names are text"
    ):
        ridge().fit(table, 2)
    assert same(ridge().fit(table, "2", inputs=[1]), ridge().fit(table, "2"))
