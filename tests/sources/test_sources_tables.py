"""Tables through Arrow, and paths by what they hold: the same rows whatever brought them."""

from __future__ import annotations

import gc
import hashlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from test_sources import read, whole

import rff_stream
from rff_stream.errors import DataError
from rff_stream.sources import Columns, kind_of, open_source, paths
from rff_stream.sources.arrow_and_parquet import RowGroups

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")

N = 900


def table() -> Any:
    rng = np.random.default_rng(0)
    when = np.datetime64("2000-01-01", "us") + np.arange(N) * np.timedelta64(12, "h")
    return pa.table(
        {
            "a": rng.normal(size=N),
            "b": pa.array([None if i % 90 == 7 else i % 9 for i in range(N)], pa.int32()),
            "ok": rng.random(N) > 0.5,
            "when": when,
            "name": pa.array(rng.choice(["x", "y"], N)),
            "t": rng.normal(size=N).astype("f4"),
        }
    )


def parquet(path: Path) -> Path:
    """Two files, five row groups."""
    path.mkdir()
    pq.write_table(table().slice(0, 500), path / "1.parquet", row_group_size=200)
    pq.write_table(table().slice(500), path / "2.parquet", row_group_size=250)
    return path


CONTAINERS = {
    "polars": lambda path: pl.from_arrow(table()),
    "polars lazy": lambda path: pl.from_arrow(table()).lazy(),
    "polars scan": lambda path: pl.scan_parquet(parquet(path)),
    "pyarrow": lambda path: table(),
    "record batch": lambda path: table().combine_chunks().to_batches()[0],
    "reader": lambda path: pa.RecordBatchReader.from_batches(
        table().schema, table().to_batches(99)
    ),
    "pyarrow dataset": lambda path: ds.dataset(parquet(path)),
    "dataset in memory": lambda path: ds.dataset(table()),
    "DuckDB": lambda path: duckdb.from_arrow(table()),
    "parquet folder": parquet,
    "parquet pattern": lambda path: str(parquet(path) / "*.parquet"),
    "pandas": lambda path: table().to_pandas(),
}


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=list(CONTAINERS))
def test_rows_of_a_table_are_the_same_in_every_container(make, tmp_path):
    frame = table().to_pandas()
    source = open_source(
        make(tmp_path / "p"), "t", inputs=["a", "b", "ok", "when", "when.month"], by="name",
        where=[("a", ">", -1)], missing_rows="drop",
    )  # fmt: skip
    assert source.columns.inputs == ("a", "b", "ok", "when", "when.month")
    assert source.columns.units[3] == "days since 1970-01-01"
    assert source.shape == (N,)
    assert source.generation() == source.generation()
    kept = frame[(frame.a > -1) & frame.b.notna()]
    found = read(source)
    np.testing.assert_array_equal(found.x[:, 0], kept.a)
    np.testing.assert_array_equal(found.x[:, 1], kept.b)
    np.testing.assert_array_equal(found.x[:, 2], kept.ok)
    days = (kept.when.to_numpy() - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    np.testing.assert_array_equal(found.x[:, 3], days)
    np.testing.assert_array_equal(found.x[:, 4], kept.when.dt.month)
    np.testing.assert_array_equal(found.y[:, 0], kept.t)
    np.testing.assert_array_equal(found.label, kept.name)


@pytest.mark.parametrize("name", ["polars", "polars lazy", "DuckDB", "parquet folder"])
def test_columns_of_the_fit_and_values_beside_a_table(name, tmp_path):
    y = np.arange(N) / 7
    X = CONTAINERS[name](tmp_path / "p")
    source = open_source(X, y, np.arange(N), inputs=["t", "a"])
    found = read(source)
    np.testing.assert_array_equal(found.y[:, 0], y[1:])
    np.testing.assert_array_equal(found.x[:, 1], table()["a"].to_numpy()[1:])
    if name == "polars":
        np.testing.assert_array_equal(read(open_source(X, X["t"], inputs=["a"])).y[:, 0], X["t"])
    fitted = open_source(X, columns=Columns(("a", "t")))
    np.testing.assert_array_equal(read(fitted).x[:, 0], table()["a"].to_numpy())
    with pytest.raises(DataError, match=r"no 'aa' in the table. Did you mean \"a\""):
        open_source(X, "t", inputs=["aa"])
    with pytest.raises(DataError, match=r"'name' holds strings .* encode it as numbers"):
        open_source(X, "name", inputs=["a"])
    with pytest.raises(DataError, match="equally long"):
        open_source(X, y[:-1], inputs=["a"])


def test_parquet_is_read_by_row_groups(tmp_path):
    """Lengths are known, a box reads its own row groups, and the reader is small."""
    path = parquet(tmp_path / "p")
    source = open_source(path, "t", inputs=["a"])
    assert kind_of(path) == "stored"
    assert source.bounds == ((0, 200, 400, 500, 750, 900),)
    assert source.cost(((0, 200),)).chunks == 2
    assert len(pickle.dumps(source.reader)) < 5000
    (path / "2.parquet").unlink()
    np.testing.assert_array_equal(read(source, ((100, 450),)).x[:, 0], table()["a"][100:450])
    with pytest.raises(DataError, match=r"2.parquet.*Every file must be whole"):
        read(source)


def test_generation_of_parquet_follows_its_files(tmp_path):
    path = parquet(tmp_path / "p")
    before = open_source(path, "t", inputs=["a"]).generation()
    pq.write_table(table().slice(500, 399), path / "2.parquet")
    assert open_source(path, "t", inputs=["a"]).generation() != before


def test_files_are_looked_at_once_for_all_columns(tmp_path, monkeypatch):
    """A state of files is that of a file, not of each of its columns."""
    source = open_source(parquet(tmp_path / "p"), "t", inputs=["a", "b", "ok"], missing_rows="drop")
    original, looks = RowGroups.identity, []
    monkeypatch.setattr(
        RowGroups, "identity", lambda groups: looks.append(groups) or original(groups)
    )
    source.generation()
    assert len(looks) == 1


def test_a_temporary_file_is_hashed_once(monkeypatch):
    """It may be larger than memory, and nothing writes to it after it was made."""
    source = open_source(pl.from_arrow(table()).lazy(), "t", inputs=["a", "ok", "when"])
    original, reads = hashlib.file_digest, []
    monkeypatch.setattr(
        hashlib, "file_digest", lambda *given: reads.append(given) or original(*given)
    )
    before = source.generation()
    assert source.generation() == before
    assert len(reads) == 1


@pytest.mark.slow
def test_what_is_read_from_its_start_is_written_once_and_cleaned(tmp_path, monkeypatch):
    """A query runs once; the columns that are needed are kept until nothing needs them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runs = []

    def count(frame: Any) -> Any:
        runs.append(frame.height)
        return frame

    query = pl.from_arrow(table()).lazy().map_batches(count, schema=None)
    source = open_source(query, "t", inputs=["a"])
    looked = len([height for height in runs if height])
    assert looked == 1
    whole_read = read(source)
    np.testing.assert_array_equal(whole_read.x[:, 0], table()["a"])
    assert len([height for height in runs if height]) == looked
    (file,) = tmp_path.glob("rff_stream-*/rows.parquet")
    assert pq.read_schema(file).names == ["a", "t"]
    reader = pickle.loads(pickle.dumps(source.reader))
    del reader
    gc.collect()
    assert file.exists(), "a copy deletes nothing"
    del source
    gc.collect()
    assert not list(tmp_path.glob("rff_stream-*"))


def test_a_filter_of_a_dataset_is_a_query(tmp_path):
    dataset = ds.dataset(parquet(tmp_path / "p")).filter(ds.field("a") > 0)
    values = table()["a"].to_numpy()
    source = open_source(dataset, "t", inputs=["a"])
    np.testing.assert_array_equal(read(source).x[:, 0], values[values > 0])


def nullable(path: Path, whole: Any) -> Any:
    """A column whose first row group alone has a null, and one without."""
    columns = {"k": pa.array([None, *whole[1:]]), "full": pa.array(whole), "t": np.arange(4.0)}
    made = pa.table(columns)
    pq.write_table(made, path, row_group_size=2)
    return made


@pytest.mark.parametrize("values", [[1, 2, 3, 4], [True, False, True, False]])
def test_a_column_with_nulls_has_one_dtype_in_all_its_row_groups(tmp_path, values):
    """A label 3 is "k=3" in each, and a hold-out by label keeps it on one side."""
    made = nullable(tmp_path / "x.parquet", values)
    for X in (ds.dataset(tmp_path / "x.parquet"), pl.from_arrow(made).lazy(), made):
        source = open_source(X, "t", inputs=["k", "full"], missing_rows="drop")
        declared = {each.name: each.dtype for each in source.variables}
        assert declared["k"] == np.float64
        assert declared["full"] == np.asarray(values).dtype
        for variable in source.variables:
            for lo in range(4):
                assert variable.data[(slice(lo, lo + 1),)].dtype == variable.dtype
        labels = read(open_source(X, "t", inputs=["full"], by=["k"]), ((2, 4),)).label
        assert set(labels) == {f"k={int(value)}" for value in values[2:]}


def test_integers_that_are_no_float64_are_refused_in_every_box(tmp_path):
    made = nullable(tmp_path / "x.parquet", [0, 1, 2, 2**53 + 1])
    frame = made.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    for X in (ds.dataset(tmp_path / "x.parquet"), pl.from_arrow(made).lazy(), made, frame):
        for name in ("k", "full"):
            with pytest.raises(DataError, match=f"'{name}' holds 1 integers .* exact"):
                read(open_source(X, "t", inputs=[name], missing_rows="drop"))


def test_partitions_in_the_names_of_folders_are_columns(tmp_path):
    ds.write_dataset(table(), tmp_path / "p", format="parquet", partitioning=["name"],
                     partitioning_flavor="hive")  # fmt: skip
    source = open_source(tmp_path / "p", "t", inputs=["a"], by="name")
    assert set(read(source).label) == {"x", "y"}


# --------------------------------------------------------------------------- paths
@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same rows in every format."""
    folder = tmp_path_factory.mktemp("places")
    frame = pl.from_arrow(table().select(["a", "t"]))
    data = xr.Dataset({name: ("i", frame[name].to_numpy()) for name in ("a", "t")})
    data.to_zarr(folder / "z.zarr", consolidated=False)
    data.to_netcdf(folder / "n.nc")
    (folder / "without_an_end").write_bytes((folder / "n.nc").read_bytes())
    frame.write_parquet(folder / "p.parquet", row_group_size=100)
    frame.write_csv(folder / "c.csv")
    frame.write_ipc(folder / "f.arrow")
    found = {each.name: each for each in folder.iterdir()}
    found["URL"] = f"file://{folder / 'p.parquet'}"
    found["text"] = str(folder / "p.parquet")
    icechunk = pytest.importorskip("icechunk")
    storage = icechunk.in_memory_storage()
    repository = icechunk.Repository.create(storage)
    session = repository.writable_session("main")
    data.to_zarr(session.store, consolidated=False)
    session.commit("rows")
    found["repository"] = repository
    found["session"] = repository.readonly_session("main")
    found["store"] = repository.readonly_session("main").store
    return found


@pytest.mark.slow
def test_a_path_is_opened_by_what_it_holds(places):
    fits = {
        name: rff_stream.KernelRidge(n_components=16, random_state=0, progress=False).fit(X, "t")
        for name, X in places.items()
    }
    assert len(fits) >= 11
    for name, model in fits.items():
        assert model.n_rows_ == N, name
        np.testing.assert_allclose(model.coef_, fits["z.zarr"].coef_, rtol=1e-6, err_msg=name)
        predicted = np.asarray(model.predict(places[name]))
        assert predicted.shape == (N,)


def test_an_icechunk_repository_in_a_folder(tmp_path):
    icechunk = pytest.importorskip("icechunk")
    storage = icechunk.local_filesystem_storage(str(tmp_path / "r"))
    repository = icechunk.Repository.create(storage)
    assert paths.format_of(str(tmp_path / "r")) == "icechunk"
    session = repository.writable_session("main")
    xr.Dataset({"a": ("i", np.arange(9.0))}).to_zarr(session.store, consolidated=False)
    session.commit("rows")
    np.testing.assert_array_equal(read(open_source(tmp_path / "r")).x[:, 0], np.arange(9.0))


def test_an_index_of_pandas_is_an_input_only_if_it_is_named(tmp_path):
    """As in a frame: rows that are left out leave an index, which files keep as a column."""
    rows = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [3.0, 1.0, 2.0, 0.0], "y": 1.0})
    rows = rows[rows["a"] != 2]
    rows.to_parquet(tmp_path / "numbered.parquet")
    rows.rename_axis("row").to_parquet(tmp_path / "named.parquet")
    rows.to_csv(tmp_path / "rows.csv")
    tables = [pq.read_table(tmp_path / "named.parquet")]
    for name in ("numbered.parquet", "named.parquet", "rows.csv"):
        tables.append(tmp_path / name)
    for reader in (pl.read_parquet, pl.scan_parquet):
        tables.append(reader(tmp_path / "numbered.parquet"))
    for table in (rows, *tables):
        assert open_source(table, "y").columns.inputs == ("a", "b")
    named = open_source(tmp_path / "named.parquet", "y", inputs=["row", "a"])
    assert named.columns.inputs == ("row", "a")
    rows.set_index(["a", "b"]).to_parquet(tmp_path / "index.parquet")
    with pytest.raises(DataError, match=r"no inputs left.*an index is an input if it is named"):
        open_source(tmp_path / "index.parquet", "y")


def test_paths_that_hold_nothing_are_said(tmp_path):
    for name in ("none.parquet", "none.nc", "none.csv", "none*.parquet"):
        with pytest.raises(DataError, match=r"none.* (does not exist|matches no file)"):
            open_source(tmp_path / name)
    for name, words in (("broken.nc", "netCDF"), ("broken.parquet", "parquet")):
        (tmp_path / name).write_text("nothing of the kind")
        with pytest.raises(DataError, match=rf"broken.*cannot be opened as {words}"):
            open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y\n1,2,3\n3,4\n", r"cannot be opened as csv: .*Expected 3 columns, got 2: 3,4"),
        ("a,é,y\n1,2,3\n", r"not UTF-8 in the names of its columns.*iconv.*encoding=…"),
        ("a,b,y\n1,é,3\n4,x,6\n", r"not UTF-8 in column 'b'.*iconv"),
    ],
    ids=["ragged", "names", "values"],
)
def test_a_csv_file_that_cannot_be_read_is_told_why(text, words, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(DataError, match=rf"rows\.csv .*{words}"):
        open_source(path, "y")


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("gs://b/x.zarr", "gcsfs", "gcs"),
        ("gs://b/x.parquet", "gcsfs", "gcs"),
        ("abfs://b/x.zarr", "adlfs", "azure"),
        ("s3://b/x.parquet", "s3fs", "s3"),
    ],
)
def test_a_missing_extra_is_named_with_its_line(url, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"pip install 'rff_stream\[{extra}\]'"):
        open_source(url)


def test_without_pyarrow_a_table_says_what_to_install(monkeypatch, tmp_path):
    frame, path = pl.from_arrow(table()), parquet(tmp_path / "p")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for X in (frame, path):
        with pytest.raises(DataError, match=r"pyarrow.*pip install 'rff_stream\[dataframe\]'"):
            open_source(X, "t", inputs=["a"])


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")  # t is noise
def test_frames_of_modin(monkeypatch):
    """Modin 0.37 wants pandas below 2.4, so it is not among what `test` installs."""
    monkeypatch.setenv("MODIN_ENGINE", "python")
    modin = pytest.importorskip("modin.pandas")
    plain = table().to_pandas().drop(columns=["name", "b"]).astype({"t": "f8"})
    frame = modin.DataFrame(plain)

    def ridge():
        return rff_stream.KernelRidge(n_components=16, random_state=0, progress=False)

    model, same = ridge().fit(frame, "t"), ridge().fit(plain, "t")
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(model.predict(frame), same.predict(plain))
    inputs = frame.drop(columns="t")
    given = ridge().fit(inputs, frame["t"], frame["a"].abs())
    assert given.n_rows_ == N
    assert ridge().fit(frame[:400], "t").partial_fit(frame[400:], "t").n_rows_ == N


def test_arrays_need_none_of_it():
    code = (
        "import sys, numpy as np\n"
        "from rff_stream.sources import open_source\n"
        "open_source(np.eye(3))\n"
        "print(*({'pyarrow', 'polars', 'duckdb', 'icechunk', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_whole_boxes_of_a_stream(tmp_path):
    source = open_source(pl.from_arrow(table()).lazy(), "t", inputs=["a"])
    assert whole(source) == ((0, N),)
    assert source.is_lazy
