"""A source gives the rows of its container in C order, whatever its chunks and the boxes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.task_spec import Task
from hypothesis import given
from hypothesis import strategies as st

import rff_stream
from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.execution.leaves import size_of_slab
from rff_stream.sources import (
    SLAB_ROWS,
    Columns,
    HoldOut,
    Selection,
    kind_of,
    open_selection,
    open_source,
    opening,
)
from rff_stream.sources.rows import slab_slices

Box = tuple[tuple[int, int], ...]


@dataclass
class Read:
    """All slabs of a box, joined."""

    x: Array
    y: Array
    w: Array | None
    keep: Array
    label: Array | None


def whole(source: Any) -> Box:
    return tuple((0, size) for size in source.shape)


def read(source: Any, box: Box | None = None) -> Read:
    """Rows of a box, as the pass reads them: one task over the graph and the arguments."""
    box = whole(source) if box is None else box
    arguments = source.arguments(box)
    reader = pickle.loads(pickle.dumps(source.reader))
    if source.graph is None:
        slabs = list(reader.read(box, *arguments))
    else:
        task = Task("leaf", lambda *values: list(reader.read(box, *values)), *arguments)
        slabs = dask.get({**source.graph, "leaf": task}, "leaf")
    return joined(slabs)


def joined(slabs: Sequence[Any]) -> Read:
    starts = np.cumsum([0, *(size_of_slab(slab) for slab in slabs)])
    assert [slab.start for slab in slabs] == list(starts[:-1])
    assert all(0 < size_of_slab(slab) <= SLAB_ROWS for slab in slabs)
    keep = [np.ones(len(s.x), bool) if s.keep is None else s.keep for s in slabs]
    weighted = slabs[0].w is not None
    labelled = slabs[0].label is not None
    return Read(
        np.concatenate([slab.x for slab in slabs]),
        np.concatenate([slab.y for slab in slabs]),
        np.concatenate([slab.w for slab in slabs]) if weighted else None,
        np.concatenate(keep),
        np.concatenate([slab.label for slab in slabs]) if labelled else None,
    )


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    """Where to cut a dimension: a sorted list from 0 to its size."""
    inner = st.sets(st.integers(1, max(1, size - 1)), max_size=4)
    return inner.map(lambda places: sorted({0, size, *places}))


def boxes(edges: Sequence[Sequence[int]]) -> list[Box]:
    return list(product(*(list(pairwise(edge)) for edge in edges)))


def check_any_partition(source: Any, edges: Sequence[Sequence[int]], x: Array, y: Array) -> None:
    """The boxes of a partition, put in place, are the whole: x (…grid, d), y (…grid, T)."""
    for box in boxes(edges):
        inside = tuple(slice(lo, hi) for lo, hi in box)
        found = read(source, box)
        np.testing.assert_array_equal(found.x, x[inside].reshape(-1, x.shape[-1]))
        np.testing.assert_array_equal(found.y, y[inside].reshape(-1, y.shape[-1]))


def chunks(edges: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(size) for size in np.diff(edges))


# --------------------------------------------------------------------------- arrays
def test_numpy_rows_are_float64_and_in_order(rng):
    x = rng.random((SLAB_ROWS * 2 + 5, 3)).astype("f4")
    source = open_source(x, x[:, 0], np.arange(len(x)) + 1)
    found = read(source)
    assert found.x.dtype == found.y.dtype == found.w.dtype == np.float64
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y[:, 0], x[:, 0])
    np.testing.assert_array_equal(found.w, np.arange(len(x)) + 1)
    assert source.columns == Columns(("x0", "x1", "x2"), ("y",), ("",) * 4, "sample_weight")
    assert (source.dims, source.shape, source.n_rows) == (("rows",), (len(x),), len(x))
    assert not source.is_lazy
    assert source.graph is None


def test_numpy_views_travel_with_the_task_and_the_reader_holds_no_data(rng):
    x = rng.random((100_000, 4))
    source = open_source(x, x[:, :2])
    views = source.arguments(((10, 20),))
    assert all(np.shares_memory(view, x) for view in views)
    assert len(pickle.dumps(source.reader)) < 2000
    assert source.describe(((10, 20),)) == "rows 10:20"
    assert source.columns.targets == ("y0", "y1")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "?", "f2", "f4", "f8", ">f4", ">i2"])
def test_every_kind_of_number_becomes_float64(dtype, rng):
    x = rng.integers(0, 100, (50, 2)).astype(dtype)
    found = read(open_source(x, x[:, 1]))
    np.testing.assert_array_equal(found.x, x.astype("f8"))


def test_times_become_days_since_1970():
    times = np.array(["1970-01-02", "1969-12-31T12", "NaT"], "M8[ns]")
    for unit in ("D", "h", "s", "ms", "us", "ns"):
        found = read(open_source(times[:2, None].astype(f"M8[{unit}]")))
        expected = times[:2].astype(f"M8[{unit}]").astype("M8[ns]").astype("i8") / 86_400e9
        np.testing.assert_array_equal(found.x[:, 0], expected)
    source = open_source(times[:, None], missing_rows="drop")
    np.testing.assert_array_equal(read(source).keep, [True, True, False])
    assert source.columns.units == ("days since 1970-01-01",)
    spans = np.array([[36]], "m8[h]")
    assert read(open_source(spans)).x == 1.5
    assert open_source(spans).columns.units == ("days",)
    months = np.array([["2000-03"]], "M8[M]")
    assert read(open_source(months)).x == 11017


def test_masked_values_are_missing():
    x = np.ma.masked_equal(np.array([[1, 2], [3, 4]]), 3)
    found = read(open_source(x, missing_rows="drop"))
    np.testing.assert_array_equal(found.keep, [True, False])


@pytest.mark.slow
@given(st.data())
def test_chunks_and_boxes_of_dask_arrays_cannot_matter(data):
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5))
    x = np.arange(n * d, dtype="f8").reshape(n, d)
    y = -np.arange(2 * n, dtype="f4").reshape(n, 2)
    rows, columns, other, edges = (data.draw(cuts(size)) for size in (n, d, n, n))
    lazy = da.from_array(x, chunks=(chunks(rows), chunks(columns)))
    source = open_source(lazy, da.from_array(y, chunks=(chunks(other), (1, 1))))
    assert source.is_lazy
    check_any_partition(source, [edges], x, y)
    expected = sorted({*rows}) if x.nbytes >= y.nbytes else sorted({*other})
    assert list(source.bounds[0]) == expected


def test_dask_and_memory_mix(rng):
    x = rng.random((30, 3))
    source = open_source(da.from_array(x, chunks=(7, 2)), x[:, 0], da.ones(30, chunks=11))
    found = read(source, ((5, 23),))
    np.testing.assert_array_equal(found.x, x[5:23])
    np.testing.assert_array_equal(found.y[:, 0], x[5:23, 0])


def test_a_block_that_one_chunk_holds_is_not_copied():
    block = np.arange(40.0).reshape(20, 2)
    source = open_source(da.from_array(block, chunks=-1))
    layout, key = source.arguments(((5, 9),))
    part = source.reader.parts[0]
    assert np.shares_memory(part.place_blocks(layout, iter([block])), block)
    assert key.key == source.variables[0].data.__dask_keys__()[0][0]


def test_cost_counts_chunks_that_are_cut():
    source = open_source(da.zeros((100, 2), chunks=(30, 1)), da.zeros(100, chunks=50))
    cost = source.cost(((25, 35),))
    assert cost.rows == 10
    assert cost.needed_bytes == 10 * 3 * 8
    assert cost.decoded_bytes == (60 * 2 + 50) * 8
    assert cost.chunks == 5
    assert open_source(np.zeros((9, 2))).cost(((0, 9),)).chunks == 0


def test_building_computes_nothing():
    def fail(block: Array) -> Array:
        raise AssertionError("computed")

    x = da.ones((20, 2), chunks=5).map_blocks(fail, dtype="f8", meta=np.empty((0, 0)))
    source = open_source(x, x[:, 0], where=[("x0", ">", 1)], by="x1")
    source.generation()
    source.cost(whole(source))
    assert source.graph is not None
    with pytest.raises(AssertionError, match="computed"):
        read(source)


def test_columns_at_prediction_are_counted(rng):
    x = rng.random((9, 3))
    columns = open_source(x, x[:, 0]).columns
    assert read(open_source(x, columns=columns)).y.shape == (9, 0)
    for other in (x[:, :2], da.from_array(x[:, :2])):
        with pytest.raises(DataError, match=r"X has 2 features.*expecting 3 features"):
            open_source(other, columns=columns)


def test_missing_values_after_a_fit_follow_the_same_rule_in_every_container():
    x, columns = np.array([[1.0], [np.nan]]), Columns(("x0",))
    for data in (x, da.from_array(x)):
        with pytest.raises(DataError, match="NaN"):
            read(open_source(data, columns=columns))
        kept = read(open_source(data, columns=columns, missing_rows="drop")).keep
        assert kept.tolist() == [True, False]


def test_inputs_of_arrays_by_name_or_number(rng):
    x = rng.random((9, 4))
    for inputs in (["x3", "x1"], [3, 1]):
        source = open_source(x, inputs=inputs)
        np.testing.assert_array_equal(read(source).x, x[:, [3, 1]])
        assert source.columns.inputs == ("x3", "x1")


def test_wrap_gives_arrays_for_arrays():
    source = open_source(np.zeros((4, 2)))
    values = np.arange(4)
    assert source.wrap(values, ("y",), ("",)) is values


def test_generation_changes_with_the_data(rng):
    x = rng.random((1000, 3))
    before = open_source(x, x[:, 0]).generation()
    assert open_source(x.copy(), x[:, 0]).generation() == before
    x[0, 1] += 1
    assert open_source(x, x[:, 0]).generation() != before
    lazy = [da.from_array(each, chunks=100) for each in (x, x + 1)]
    first, second = (open_source(each).generation() for each in lazy)
    assert first != second
    assert open_source(lazy[0]).generation() == first


def test_slabs_cover_a_box_in_order():
    @given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 30))
    def check(shape: list[int], limit: int) -> None:
        places = np.arange(np.prod(shape)).reshape(shape)
        slabs = list(slab_slices(tuple(shape), limit))
        sizes = [places[slices].size for _, slices in slabs]
        assert max(sizes) <= limit
        assert [start for start, _ in slabs] == list(np.cumsum([0, *sizes[:-1]]))
        flat = np.concatenate([places[slices].ravel() for _, slices in slabs])
        np.testing.assert_array_equal(flat, places.ravel())

    check()


def test_no_rows_at_all():
    source = open_source(np.zeros((0, 2)), np.zeros(0))
    assert source.n_rows == 0
    assert list(source.reader.read(((0, 0),), *source.arguments(((0, 0),)))) == []


# --------------------------------------------------------------------------- rows that count
def test_rows_of_weight_zero_are_as_if_removed(rng):
    x, w = rng.random((50, 2)), rng.integers(0, 3, 50).astype(float)
    x[w == 0] = np.nan
    found = read(open_source(x, x[:, 0], w))
    np.testing.assert_array_equal(found.keep, w > 0)
    np.testing.assert_array_equal(found.x, x[w > 0])
    np.testing.assert_array_equal(found.w, w[w > 0])


def test_missing_rows_are_dropped_or_an_error(rng):
    x = rng.random((20_000, 3))
    x[[5, 12_000, 12_001], [1, 1, 2]] = np.nan
    y = rng.random(20_000)
    y[7] = np.nan
    found = read(open_source(x, y, missing_rows="drop"))
    good = ~np.isnan(x).any(axis=1) & ~np.isnan(y)
    np.testing.assert_array_equal(found.keep, good)
    np.testing.assert_array_equal(found.x, x[good])
    for container in (x, da.from_array(x, chunks=3000)):
        with pytest.raises(DataError, match="'x1' holds 2 NaN in rows 0:20000, the first at row 5"):
            read(open_source(container, y))


def test_conditions_leave_rows_out(rng):
    x = rng.integers(0, 10, (1000, 2)).astype(float)
    tests = {
        "<": x[:, 0] < 4,
        "<=": x[:, 0] <= 4,
        ">": x[:, 0] > 4,
        ">=": x[:, 0] >= 4,
        "==": x[:, 0] == 4,
        "!=": x[:, 0] != 4,
    }
    for op, expected in tests.items():
        np.testing.assert_array_equal(read(open_source(x, where=[("x0", op, "4")])).keep, expected)
    both = open_source(x, x[:, 1], where=[("x0", ">", 2), ("y", "<", 5)])
    np.testing.assert_array_equal(read(both).keep, (x[:, 0] > 2) & (x[:, 1] < 5))


def test_rows_that_a_condition_leaves_out_may_hold_anything():
    x = np.array([[1.0, 2.0], [np.inf, 3.0], [np.nan, 3.0]])
    assert read(open_source(x, where=[("x1", "<", 3)])).keep.tolist() == [True, False, False]


@pytest.mark.slow
@given(st.data())
def test_holdout_parts_are_complements_whatever_the_boxes(data):
    n = data.draw(st.integers(1, 300))
    fraction, seed = data.draw(st.floats(0.01, 0.99)), data.draw(st.integers(0, 5))
    x = np.arange(float(n))[:, None]
    edges = data.draw(cuts(n))
    parts = {}
    for part in ("train", "test"):
        source = open_source(x, where=[HoldOut(fraction, seed, part)])
        parts[part] = np.concatenate([read(source, box).x[:, 0] for box in boxes([edges])])
        np.testing.assert_array_equal(parts[part], read(source).x[:, 0])
    together = np.sort(np.concatenate([parts["train"], parts["test"]]))
    np.testing.assert_array_equal(together, x[:, 0])


def test_holdout_takes_its_fraction():
    x = np.zeros((100_000, 1))
    for fraction in (0.1, 0.5):
        share = read(open_source(x, where=[HoldOut(fraction, part="test")])).keep.mean()
        assert abs(share - fraction) < 5 * np.sqrt(fraction * (1 - fraction) / len(x))


def test_holdout_by_label_keeps_labels_together(rng):
    x = np.stack([rng.random(1000), rng.integers(0, 20, 1000)], axis=1)
    kept = {
        part: set(read(open_source(x, where=[HoldOut(0.3, 1, part, by="x1")])).x[:, 1])
        for part in ("train", "test")
    }
    assert kept["train"] | kept["test"] == set(range(20))
    assert not kept["train"] & kept["test"]
    assert kept["test"]


def test_labels_of_kept_rows(rng):
    x = rng.random((100, 2))
    names = np.array(["a", "b"])[rng.integers(0, 2, 100)]
    found = read(open_source(x, by=names, where=[("x0", ">", 0.5)]))
    np.testing.assert_array_equal(found.label, names[x[:, 0] > 0.5])
    numbers = rng.integers(0, 5, 100)
    np.testing.assert_array_equal(read(open_source(x, by=da.from_array(numbers, 7))).label, numbers)
    times = np.array("2000-01-01", "M8[D]") + numbers
    for unit in ("D", "s", "ns"):
        found = read(open_source(x, by=times.astype(f"M8[{unit}]"))).label
        np.testing.assert_array_equal(found, times.astype(str))


def test_a_row_without_label_is_missing():
    label = np.array([1.0, np.nan])
    with pytest.raises(DataError, match=r"the group label.*NaN"):
        read(open_source(np.zeros((2, 1)), by=label))
    found = read(open_source(np.zeros((2, 1)), by=label, missing_rows="drop"))
    assert found.keep.tolist() == [True, False]


def test_the_remedy_for_a_missing_label_of_a_fitted_model_is_one_it_takes(rng):
    """It was an argument that ``residuals`` does not have."""
    x, label = rng.normal(size=(60, 1)), np.tile(np.array([None, "a"], object), 30)
    model = rff_stream.KernelRidge(n_components=8, random_state=0, progress=False).fit(x, x[:, 0])
    with pytest.raises(DataError, match=r"belongs to no group.*model\.set_params\(missing_rows="):
        model.residuals(x, x[:, 0], by=label)
    named = np.where(label == "a", label, "none")
    assert [*model.residuals(x, x[:, 0], by=named)] == ["a", "none"]
    model.set_params(missing_rows="drop")
    assert [*model.residuals(x, x[:, 0], by=label)] == ["a"]


def test_numpy_needs_no_other_package():
    code = (
        "import sys, numpy as np\n"
        "from rff_stream.sources import open_source\n"
        "s = open_source(np.ones((9, 2)), np.ones(9), where=[('x0', '>', 0)])\n"
        "list(s.reader.read(((0, 9),), *s.arguments(((0, 9),)))), s.generation()\n"
        "print(*{'dask', 'xarray', 'pandas', 'zarr'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# --------------------------------------------------------------------------- containers
class Sliced:
    """A dataset in a file, as h5py's: NumPy would read all of it."""

    shape, ndim = (4, 2), 2

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise AssertionError("read as a whole")


def test_a_container_that_is_not_known_is_refused_by_name():
    for X in (Sliced(), {"a": [1.0]}, {1.0, 2.0}, None, iter([[1.0]])):
        kind = f"{type(X).__module__}.{type(X).__name__}"
        assert kind_of(X) is None
        with pytest.raises(DataError, match=rf"^X is a {kind}, which is not a known"):
            open_source(X)
    with pytest.raises(DataError, match=r"^y is a test_sources.Sliced, which is not a known"):
        open_source(np.eye(4), Sliced())
    with pytest.raises(DataError, match=r"^sample_weight is a test_sources.Sliced"):
        open_source(np.eye(4), np.ones(4), Sliced())
    with pytest.raises(DataError, match=r"^X is a test_sources.Sliced, which is not a known"):
        rff_stream.KernelRidge().fit(Sliced(), np.ones(4))


def test_a_container_is_known_by_the_bases_of_its_type():
    class Mine(np.ndarray):
        pass

    mine = np.eye(3).view(Mine)
    assert kind_of(mine) == "array"
    np.testing.assert_array_equal(read(open_source(mine)).x, np.eye(3))
    assert kind_of(da.ones((3, 2))) == "lazy"
    assert kind_of("data.zarr") == kind_of(Path("data.zarr")) == "stored"


def open_container(selection: Selection) -> Any:
    """The recipe of CONTRIBUTING: a file with this function, and one line in OPENERS."""
    return open_selection(replace(selection, X=selection.X.values))


class Box3:
    """A container of someone else."""

    def __init__(self, values: Array) -> None:
        self.values = values


def test_a_new_source_is_one_file_and_one_line(monkeypatch):
    line = opening.Opener("test_sources", "table", ("test_sources.Box3",))
    monkeypatch.setattr(opening, "OPENERS", (*opening.OPENERS, line))
    source = open_source(Box3(np.arange(6.0).reshape(3, 2)), [1.0, 2, 3], where=[("x0", ">", 0)])
    np.testing.assert_array_equal(read(source).y[:, 0], [2, 3])
    assert kind_of(Box3(np.eye(2))) == "table"


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_rows_are_made_dense_by_slab(form, monkeypatch):
    from scipy import sparse

    rng = np.random.default_rng(0)
    X = sparse.csr_array(
        rng.normal(size=(20_000, 6)) * (rng.uniform(size=(20_000, 6)) < 0.1)
    ).asformat(form)
    dense, sizes, toarray = X.toarray(), [], sparse.csr_array.toarray

    def seen(self: Any) -> Array:
        sizes.append(self.shape[0])
        return toarray(self)

    monkeypatch.setattr(sparse.csr_array, "toarray", seen)
    source = open_source(X, dense[:, 0], inputs=["x1", "x4"], where=[("x2", "==", 0)])
    found = read(source)
    kept = dense[:, 2] == 0
    np.testing.assert_array_equal(found.x, dense[kept][:, [1, 4]])
    np.testing.assert_array_equal(found.y[:, 0], dense[kept, 0])
    assert 0 < max(sizes) <= SLAB_ROWS
    again = open_source(X.copy(), dense[:, 0])
    assert again.generation() == open_source(X, dense[:, 0]).generation()
    with pytest.raises(DataError, match=r"y is a sparse .* Convert it: y.toarray\(\)"):
        open_source(dense, X)
