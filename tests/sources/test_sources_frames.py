"""DataFrames and blocks of unknown length: columns by name, partitions in step."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sources import boxes, cuts, read, whole

import rff_stream
import rff_stream as rs
from rff_stream.errors import DataError
from rff_stream.sources import Columns, HoldOut, open_source

LENGTHS = (3, 5, 0, 4, 7)


def table(rows: int = sum(LENGTHS), seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.random(rows),
            "b": rng.integers(0, 9, rows),
            "when": pd.date_range("2000-01-01", periods=rows, freq="D"),
            "name": rng.choice(["x", "y"], rows),
            "t": rng.random(rows).astype("f4"),
        },
        index=np.arange(rows) * 2,
    )


def parts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame.iloc[lo:hi] for lo, hi in pairwise(np.cumsum([0, *LENGTHS]))]


def part(i: int) -> pd.DataFrame:
    return parts(table())[i]


def lazy_frame() -> Any:
    """A Dask DataFrame of uneven partitions, one of them empty."""
    return dd.from_map(part, range(len(LENGTHS)), meta=table(0))


# --------------------------------------------------------------------------- pandas
def test_columns_of_a_frame_by_name():
    frame = table()
    source = open_source(frame.drop(columns="name"), "t")
    assert source.columns == Columns(
        ("a", "b", "when"), ("t",), ("", "", "days since 1970-01-01", "")
    )
    assert not source.is_lazy
    found = read(source)
    np.testing.assert_array_equal(found.x[:, 0], frame.a)
    np.testing.assert_array_equal(found.x[:, 2], 10957 + np.arange(len(frame)))
    np.testing.assert_array_equal(found.y[:, 0], frame.t)


def test_y_and_weights_of_a_frame():
    frame = table()
    for y in ("t", frame.t, ["t"], frame[["t"]]):
        source = open_source(frame[["a", "b", "t"]], y, "b", inputs=["a", "b"])
        assert source.columns.targets == ("t",)
        np.testing.assert_array_equal(read(source).w, frame.b[frame.b > 0])
    arrays = open_source(frame[["a"]], frame.t.to_numpy(), frame.b, by=frame.name)
    assert arrays.columns.targets == ("y",)
    np.testing.assert_array_equal(read(arrays).label, frame.name[frame.b > 0])
    two = open_source(frame[["a"]], frame[["t", "b"]])
    assert two.columns.targets == ("t", "b")


def test_rows_of_other_indexes_are_not_paired_by_place():
    frame = table()
    X, turned = frame[["a", "b"]], frame.t[::-1]
    with pytest.raises(DataError, match=r"y and X have other indexes: 36 and 0 at place 0.*y.loc"):
        open_source(X, turned)
    with pytest.raises(DataError, match=r"by and X have other indexes"):
        open_source(X, frame.t, by=turned)
    ridge = rff_stream.KernelRidge(n_components=8, progress=False)
    for fit in (ridge.fit, ridge.partial_fit):
        with pytest.raises(DataError, match=r"y and X have other indexes"):
            fit(X, turned)
        with pytest.raises(DataError, match=r"sample_weight and X have other indexes"):
            fit(X, frame.t, turned)
    assert ridge.fit(X, turned.to_numpy()).n_rows_ == ridge.fit(X, turned.loc[X.index]).n_rows_


def test_nullable_and_zoned_columns():
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None, 3], dtype="Int64"),
            "f": pd.array([1.5, 2.5, None], dtype="Float64"),
            "ok": pd.array([True, False, True], dtype="boolean"),
            "at": pd.to_datetime(["2000-01-01T01:00+01:00"] * 3, utc=True).tz_convert("CET"),
            "arrow": pd.array([1, 2, 3], dtype="int64[pyarrow]"),
            "span": pd.to_timedelta([12, 24, 36], unit="h"),
        }
    )
    source = open_source(frame, missing_rows="drop")
    found = read(source)
    assert found.keep.tolist() == [True, False, False]
    np.testing.assert_array_equal(found.x[0], [1, 1.5, 1, 10957, 1, 0.5])


def test_columns_that_are_no_numbers_are_refused_by_name():
    frame = table()
    with pytest.raises(DataError, match=r"'name' holds (strings|objects)"):
        open_source(frame, "name", inputs=["a"])
    with pytest.raises(DataError, match="'a' holds objects"):
        open_source(frame[["a"]].assign(a=[object()] * len(frame)))
    with pytest.raises(DataError, match='several columns named "a"'):
        open_source(frame[["a", "a"]])
    with pytest.raises(DataError, match=r"no 'aa' in the DataFrame. Did you mean \"a\""):
        open_source(frame, "t", inputs=["aa"])


@pytest.mark.filterwarnings("ignore:X has names")
def test_columns_of_the_fit_in_another_frame():
    frame = table()
    columns = open_source(frame, "t", inputs=["b", "when.dayofyear", "a"]).columns
    for other in (frame[["name", "a", "when", "b"]], dd.from_pandas(frame, npartitions=3)):
        found = read(open_source(other, columns=columns))
        np.testing.assert_array_equal(found.x[:, 0], frame.b)
        np.testing.assert_array_equal(found.x[:, 2], frame.a)
    nameless = Columns(("x0", "x1"))
    np.testing.assert_array_equal(
        read(open_source(frame[["b", "a"]], columns=nameless)).x[:, 1], frame.a
    )
    with pytest.raises(DataError, match=r"X has 1 features.*expecting 2 features"):
        open_source(frame[["a"]], columns=nameless)


def test_wrap_keeps_the_index():
    frame = table()
    source = open_source(frame[["a", "t"]], "t")
    one = source.wrap(np.zeros((len(frame), 1)), ("t",), ("",))
    assert isinstance(one, pd.Series)
    assert one.name == "t"
    assert one.index.equals(frame.index)
    two = source.wrap(np.zeros((len(frame), 2)), ("p", "q"), ("", ""))
    assert list(two.columns) == ["p", "q"]


# --------------------------------------------------------------------------- Dask DataFrames
def test_partitions_of_any_length():
    frame, lazy = table(), lazy_frame()
    source = open_source(lazy, "t", inputs=["a", "when.dayofyear"], by="name")
    assert (source.dims, source.shape, source.n_rows) == (("partitions",), (5,), None)
    assert source.bounds == ((0, 1, 2, 3, 4, 5),)
    assert source.describe(((0, 3),)) == "partitions 0:3"
    assert source.cost(((0, 2),)).rows > 0
    found = read(source)
    np.testing.assert_array_equal(found.x[:, 0], frame.a)
    np.testing.assert_array_equal(found.x[:, 1], frame.when.dt.day_of_year)
    np.testing.assert_array_equal(found.y[:, 0], frame.t)
    np.testing.assert_array_equal(found.label, frame.name)
    np.testing.assert_array_equal(read(source, ((1, 4),)).x[:, 0], frame.a[3:12])


def test_series_of_the_same_partitions_are_joined():
    frame, lazy = table(), lazy_frame()
    source = open_source(lazy, lazy.t * 2, lazy.b, inputs=["a"], by=lazy.name)
    assert source.columns == Columns(("a",), ("t",), ("", ""), "b")
    found, kept = read(source), frame[frame.b > 0]
    np.testing.assert_array_equal(found.y[:, 0], kept.t * 2)
    np.testing.assert_array_equal(found.w, kept.b)
    np.testing.assert_array_equal(found.label, kept.name)
    arrays = open_source(lazy, lazy.t.values, inputs=["a"])
    np.testing.assert_array_equal(read(arrays).y[:, 0], frame.t)


def test_parquet_is_read_once(tmp_path: Path):
    frame = table()
    for i, one in enumerate(parts(frame)):
        one.to_parquet(tmp_path / f"{i}.parquet")
    lazy = dd.read_parquet(tmp_path)
    source = open_source(lazy, lazy.t + 1, lazy.b, inputs=["a", "when"])
    assert source.shape == (lazy.npartitions,)
    reads = [key for key in source.graph if "parquet" in str(key)]
    assert len(reads) == lazy.npartitions
    np.testing.assert_array_equal(read(source).x[:, 0], frame.a[frame.b > 0])
    again = open_source(dd.read_parquet(tmp_path), lazy.t + 1, lazy.b, inputs=["a", "when"])
    assert again.generation() == source.generation()
    assert len(pickle.dumps(source.reader)) < 20_000


def test_partitions_that_are_not_in_step_are_refused():
    lazy = lazy_frame()
    with pytest.raises(DataError, match=r"Partition \d of X has \d rows, but that of y has \d"):
        read(open_source(lazy, lazy.t[lazy.t > 0.5], inputs=["a"]))
    with pytest.raises(DataError, match="X has 5 partitions, but y has 3"):
        open_source(lazy, dd.from_pandas(table(), npartitions=3).t, inputs=["a"])
    with pytest.raises(DataError, match=r"y is in memory .* lengths are unknown"):
        open_source(lazy, table().t, inputs=["a"])
    with pytest.raises(DataError, match=r"levels of 'name' are not known before it is computed"):
        open_source(lazy, "t")


def test_faults_in_partitions_are_named():
    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(a=frame.a.where(frame.a < 0.9, np.nan))

    frame = spoil(table())
    missing = frame.a.isna()
    first = int(np.flatnonzero(missing)[0])
    partition = int(np.searchsorted(np.cumsum(LENGTHS), first, side="right"))
    lazy = lazy_frame().map_partitions(spoil)
    with pytest.raises(DataError, match=rf"'a' holds \d+ NaN in partition {partition}, the first"):
        read(open_source(lazy, "t", inputs=["a"]))
    found = read(open_source(lazy, "t", inputs=["a"], missing_rows="drop"))
    np.testing.assert_array_equal(found.keep, ~missing)
    text = lazy.map_partitions(lambda f: f.assign(a="z"), meta=table(0))
    with pytest.raises(DataError, match="Partition 0 of 'a' has dtype object, but its meta"):
        read(open_source(text, "t", inputs=["a"]))


def test_predictions_of_joined_dask_frames_can_be_computed():
    """Dask's own way to give an array an index loses the tasks of an index of joined frames."""
    frame = table()
    model = rs.GaussianProcessRegressor(
        length_scale=1.0, n_components=32, noise=0.1, random_state=0, progress=False
    ).fit(frame[["a", "b"]], frame.t)
    whole = dd.from_pandas(frame[["a", "b"]], npartitions=3)
    joined = dd.concat([whole[whole.a > 0], whole[whole.a <= 0], whole[whole.a > 99]])
    for lazy in (whole, joined, joined.reset_index(drop=True)):
        rows = lazy.compute()
        for found, expected in zip(
            dask.compute(*model.predict(lazy, return_std=True)),
            model.predict(rows, return_std=True),
            strict=True,
        ):
            assert found.index.equals(rows.index)
            np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert model.predict(whole).divisions == whole.divisions


def test_predictions_come_back_as_a_dask_series():
    lazy = lazy_frame()
    source = open_source(lazy, "t", inputs=["a"])
    series = source.wrap(lazy.a.values, ("t",), ("",))
    assert series.name == "t"
    computed = series.compute()
    np.testing.assert_array_equal(computed, table().a)
    assert computed.index.equals(table().index)


# --------------------------------------------------------------------------- unknown chunks
def unknown(values: np.ndarray, edges: list[int], columns: int = 2) -> da.Array:
    """A dask array that does not know how long its blocks are."""
    steps = tuple(int(n) for n in np.diff(edges))
    chunks = (steps, columns) if values.ndim == 2 else (steps,)
    lazy = da.from_array(values, chunks=chunks)
    return da.Array(lazy.dask, lazy.name, ((np.nan,) * len(steps), *lazy.chunks[1:]), lazy.dtype)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_blocks_of_unknown_length_and_their_boxes_cannot_matter(data):
    n = data.draw(st.integers(1, 30))
    x = np.arange(3.0 * n).reshape(n, 3)
    edges = data.draw(cuts(n))
    source = open_source(unknown(x, edges), unknown(-x[:, 0], edges), where=[HoldOut(0.5)])
    every = read(source)
    taken = data.draw(cuts(len(edges) - 1))
    found = [read(source, box) for box in boxes([taken])]
    np.testing.assert_array_equal(np.concatenate([each.x for each in found]), every.x)
    np.testing.assert_array_equal(np.concatenate([each.keep for each in found]), every.keep)
    np.testing.assert_array_equal(every.x, x[every.keep])
    np.testing.assert_array_equal(every.y[:, 0], -every.x[:, 0])


def test_unknown_blocks_are_checked(rng):
    x = rng.random((20, 3))
    X = unknown(x, [0, 6, 20])
    y = unknown(x[:, 0], [0, 7, 20])
    with pytest.raises(DataError, match="Partition 0 of X has 6 rows, but that of y has 7"):
        read(open_source(X, y))
    with pytest.raises(DataError, match="X has 2 partitions, but y has 3"):
        open_source(X, unknown(x[:, 0], [0, 6, 9, 20]))
    with pytest.raises(DataError, match="y is in memory"):
        open_source(X, x[:, 0])
    known = open_source(X, da.from_array(x[:, 0], chunks=((6, 14),)), by="x1")
    np.testing.assert_array_equal(read(known).y[:, 0], x[:, 0])
    filtered = da.from_array(x, chunks=(5, 3))
    filtered = filtered[filtered[:, 0] > 0.5]
    source = open_source(filtered, filtered[:, 0])
    np.testing.assert_array_equal(read(source).x, x[x[:, 0] > 0.5])
    assert source.generation() == open_source(filtered, filtered[:, 0]).generation()
    assert whole(source) == ((0, 4),)
    predicted = open_source(X, columns=Columns(("x0", "x1", "x2")))
    np.testing.assert_array_equal(read(predicted).x, x)
