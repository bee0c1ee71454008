"""What was counted is known by its values and by what gives bytes their meaning."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import rff_stream as rs
from archives import unpack
from growing import days, grown, ridge
from places import TESTS
from rff_stream.errors import DataError, ModelError, NumericalWarning
from rff_stream.label_forms import canonical, text_of, texts_of
from rff_stream.sources import growth, zarr_chunks
from rff_stream.sources.protocol import Rows
from rff_stream.sources.request import InHoldOut
from rff_stream.statistics.content_hash import ContentStatistic

GOLDEN = TESTS / "golden"


def table(n: int, seed: int) -> pd.DataFrame:
    found = pd.DataFrame(np.random.default_rng(seed).normal(size=(n, 2)), columns=["u", "v"])
    return found.assign(a=np.sin(found.u), g=np.arange(n) // 10)


def content_of(x: Any, y: Any = None, label: Any = None, **choices: Any) -> str:
    """Hash of rows."""
    x = np.asarray(x, np.float64)
    y = np.empty((len(x), 0)) if y is None else np.asarray(y, np.float64)
    sink = ContentStatistic(**choices).start()
    sink.add(Rows(x, y, None, None, 0, label), np.arange(len(x)))
    return str(sink.result())


# ------------------------------------------------------------------------------ growing data


def cube(lo: int, hi: int) -> xr.Dataset:
    """Days lo:hi of u (time, level) and y, packed, and x (level)."""
    u = np.stack([np.random.default_rng(i).normal(size=3) for i in range(lo, hi)])
    return xr.Dataset(
        {"u": (("time", "level"), u), "y": ("time", np.sin(u[:, 0])), "h": ("level", u[0])},
        {"level": [200.0, 500.0, 850.0], "time": np.arange(lo, hi) * 1.0},
    )


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """30 days in chunks of 5, y as integers."""
    path, encoding = tmp_path / "packed.zarr", {"u": {"chunks": (5, 3)}, "h": {"chunks": (3,)}}
    own = {"chunks": (5,), "dtype": "int16", "scale_factor": 1e-3, "_FillValue": -32768}
    cube(0, 30).to_zarr(path, encoding={**encoding, "y": own}, consolidated=False)
    return path


def attribute(name: str, value: Any) -> Callable[[Path], None]:
    """Writes an attribute of y."""

    def write(path: Path) -> None:
        file = path / "y" / "zarr.json"
        plain = json.loads(file.read_text())
        plain["attributes"][name] = value
        file.write_text(json.dumps(plain))

    return write


def values(name: str, new: Any) -> Callable[[Path], None]:
    """Writes the values of an array."""

    def write(path: Path) -> None:
        zarr.open_group(path)[name][:] = new

    return write


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (attribute("scale_factor", 0.01), "'y' changed in time 0:30.* its scale_factor is 0.01"),
        (attribute("add_offset", 5.0), "'y' changed in time 0:30.* its add_offset is 5.0"),
        (attribute("_FillValue", 0), "'y' changed in time 0:30.* its _FillValue is 0, and was -32"),
        (values("level", [850, 500, 200]), "'labels of level' changed in all of it"),
        (values("time", np.arange(30) + 7.0), "'labels of time' changed in time 0:30"),
        (values("h", [7.0, 8.0, 9.0]), "'h' changed in all of it"),
    ],
)
@pytest.mark.parametrize("grows", [False, True])
def test_what_gives_bytes_their_meaning_is_compared(packed, change, words, grows):
    model = ridge(missing_rows="drop").fit(packed, "y", inputs=["u", "h"])
    change(packed)
    if grows:
        cube(30, 35).drop_vars(["h", "level"]).to_zarr(
            packed, append_dim="time", consolidated=False
        )
    with pytest.raises(DataError, match=words):
        model.update(packed)
    assert model.n_rows_ == 30


def test_an_index_coordinate_that_is_an_input_is_compared(tmp_path):
    path = grown(tmp_path / "c.zarr", 0, 10)
    model = ridge().fit(path, "t", inputs=["u", "lat"])
    zarr.open_group(path)["lat"][:] = np.arange(8.0)
    with pytest.raises(DataError, match="'lat' changed in all of it"):
        model.update(path)


def test_a_field_without_new_rows_may_be_of_any_size(packed, monkeypatch):
    monkeypatch.setattr(growth, "SMALL_BYTES", 16)
    model = ridge(missing_rows="drop").fit(packed, "y", inputs=["u", "h"])
    cube(30, 32).drop_vars("h").to_zarr(packed, append_dim="time", consolidated=False)
    cube(32, 37).drop_vars("h").to_zarr(packed, append_dim="time", consolidated=False)
    assert model.update(packed).n_rows_ == 37, "last chunks that are not full are hashed in slabs"
    cube(37, 38).drop_vars("h").to_zarr(packed, append_dim="time", consolidated=False)
    assert model.update(packed).n_rows_ == 38
    zarr.open_group(packed)["h"][0] = 9.0
    with pytest.raises(DataError, match="'h' changed in all of it"):
        model.update(packed)


def test_a_changed_value_in_last_chunks_of_any_size_is_found(packed, monkeypatch):
    monkeypatch.setattr(growth, "SMALL_BYTES", 16)
    cube(30, 33).drop_vars("h").to_zarr(packed, append_dim="time", consolidated=False)
    model = ridge(missing_rows="drop").fit(packed, "y", inputs=["u", "h"])
    zarr.open_group(packed)["u"][32, 2] = 9.0
    with pytest.raises(DataError, match="'u' changed in time 30:33"):
        model.update(packed)


def in_memory(start: int, stop: int) -> MemoryStore:
    store = MemoryStore()
    encoding = {name: {"chunks": (5, 8)} for name in "uvt"}
    days(start, stop).to_zarr(store, encoding=encoding, consolidated=False)
    return store


def in_zip(path: Path, data: xr.Dataset) -> Path:
    """A zip file that holds each name once."""
    memory, path = MemoryStore(), path / "data.zarr.zip"
    encoding = {name: {"chunks": (5, 8)} for name in "uvt"}
    data.to_zarr(memory, encoding=encoding, consolidated=False)
    with zipfile.ZipFile(path, mode="w") as file:
        for name, value in memory._store_dict.items():
            file.writestr(name, value.to_bytes())
    return path


def test_changes_are_seen_in_memory_and_in_a_zip_file(tmp_path):
    store = in_memory(0, 30)
    model = ridge().fit(zarr.open_group(store), "t", inputs=["u", "v"])
    days(30, 35).to_zarr(store, append_dim="time", consolidated=False)
    zarr.open_group(store)["u"][3, 0] = 99.0
    with pytest.raises(DataError, match="'u' changed in time 0:5"):
        model.update(zarr.open_group(store))
    model = ridge().fit(in_zip(tmp_path, days(0, 30)), "t", inputs=["u", "v"])
    assert model.update(in_zip(tmp_path, days(0, 35))).n_rows_ == 35 * 8
    other = days(0, 40)
    other["u"][3, 0] = 99.0
    with pytest.raises(DataError, match="'u' changed in time 0:5"):
        model.update(in_zip(tmp_path, other))


@pytest.mark.parametrize("shards", [None, (20, 3)])
@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_times_of_other_calendars_in_shards_grow(tmp_path, calendar, shards):
    """Conditions and hold-outs by time, an update, and a changed shard, beside a fit of all."""

    def rows(start: int, n: int) -> xr.Dataset:
        time = xr.date_range("2001-01-01", periods=start + n, calendar=calendar, use_cftime=True)
        x = np.random.default_rng(start).normal(size=(n, 3))
        columns = {"x": (("time", "s"), x), "a": (("time", "s"), np.sin(x))}
        return xr.Dataset(columns, {"time": time[start:]})

    choices: dict[str, Any] = {"consolidated": False, "zarr_format": 3}
    own: dict[str, Any] = {"chunks": (10, 3), "shards": shards}
    units = {"units": "days since 2001-01-01", "calendar": calendar, "chunks": (10,)}
    first, path = rows(0, 40), tmp_path / "r.zarr"
    first.to_zarr(path, encoding={"x": own, "a": own, "time": units}, **choices)
    where = [("time", "<", "2001-02-20"), rs.HoldOut(0.3, 2, by="time.month")]
    chosen = {"inputs": ["x", "time.dayofyear"], "where": where}
    model = ridge().fit(path, "a", **chosen)
    rows(40, 20).to_zarr(path, append_dim="time", **choices)
    whole = xr.concat([first, rows(40, 20)], "time")
    both = ridge(features=model.features_).fit(whole, "a", **chosen)
    assert model.update(path).update(path).n_rows_ == both.n_rows_ > 0
    np.testing.assert_allclose(model.predict(whole), both.predict(whole), rtol=1e-6, atol=1e-9)
    zarr.open_group(path)["x"][1:2] = 9.0
    with pytest.raises(DataError, match="'x' changed in time 0:"):
        model.update(path)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [None, (20,)])
def test_a_chunk_of_equal_size_in_icechunk_is_seen(tmp_path, shards):
    """Its sizes are all that a session tells; a repository tells what each version wrote."""
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())

    def write(act: Any, on: str = "main") -> None:
        session = repository.writable_session(on)
        act(session.store)
        session.commit("rows")

    def rows(start: int, n: int) -> xr.Dataset:
        x = np.random.default_rng(start).normal(size=n)
        columns = {"x": ("time", x), "a": ("time", np.sin(x))}
        return xr.Dataset(columns, {"time": np.arange(start, start + n)})

    own: dict[str, Any] = {"chunks": (10,), "compressors": None, "shards": shards}
    choices: dict[str, Any] = {"consolidated": False, "zarr_format": 3}
    write(lambda store: rows(0, 45).to_zarr(store, encoding={"x": own, "a": own}, **choices))
    model, second = (ridge().fit(repository, "a", inputs=["x"]) for _ in range(2))
    ridge_of_session = ridge().fit(repository.readonly_session("main"), "a", inputs=["x"])
    write(lambda store: rows(45, 10).to_zarr(store, append_dim="time", **choices))
    assert model.update(repository).update(repository).n_rows_ == 55
    session = repository.readonly_session("main")
    assert ridge_of_session.update(session).n_rows_ == 55, "its last chunk has the same size"
    third = ridge().fit(repository, "a", inputs=["x"])

    def change(place: int) -> Any:
        return lambda store: zarr.open_group(store)["x"].__setitem__(slice(place, place + 1), 9.0)

    write(change(54))  # in the last chunk, which is not full
    with pytest.raises(DataError, match=r"'x' changed in time 50:55|'x' changed in time 40:55"):
        third.update(repository)
    assert second.update(repository).n_rows_ == 55
    write(change(12))
    for each in (model, second):
        with pytest.raises(DataError, match=r"'x' changed in time (10:20|0:20)"):
            each.update(repository)


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_a_shard_that_is_half_written_waits(tmp_path, fill):
    """Its other rows were counted as zeros, or left out for ever."""
    x, path = np.random.default_rng(0).normal(size=(40, 2)), tmp_path / "s.zarr"
    group = zarr.open_group(path, mode="w")
    for name in "uy":
        array = group.create_array(
            name, shape=(30, 2), dtype="f8", chunks=(5, 2), shards=(10, 2), fill_value=fill,
            dimension_names=["time", "x"],
        )  # fmt: skip
        array[:] = x[:30]
    model = ridge(missing_rows="drop").fit(path, "y", inputs=["u"])
    for name in "uy":
        group[name].resize((40, 2))
        group[name][30:35] = x[30:35]
    assert model.update(path).n_rows_ == 35 * 2
    for name in "uy":
        group[name][35:] = x[35:]
    assert model.update(path).n_rows_ == model.update(path).n_rows_ == 40 * 2


def test_times_of_another_resolution_are_the_same(tmp_path):
    path = grown(tmp_path / "c.zarr", 0, 10)
    data = xr.open_zarr(path, chunks=None, consolidated=False)
    model = ridge().fit(data, "t", inputs=["u", "time"])
    grown(path, 10, 12)
    again = xr.open_zarr(path, chunks=None, consolidated=False)
    again = again.assign_coords(time=again["time"].astype("datetime64[s]"))
    assert model.update(again).n_rows_ == 12 * 8


# ---------------------------------------------------------------------------- rows in memory


def test_rows_of_a_fit_in_memory_count_once():
    rows = table(200, 0)
    model = ridge().fit(rows[["u", "v"]], rows.a)
    assert model.update(rows[["u", "v"]], rows.a).n_rows_ == 200
    order = np.random.default_rng(0).permutation(200)
    assert model.update(rows[["v", "u"]].iloc[order], rows.a.iloc[order]).n_rows_ == 200
    more = table(50, 1)
    model.partial_fit(more[["u", "v"]], more.a)
    assert model.update(more[["u", "v"]], more.a).n_rows_ == 250
    assert model.partial_fit(more[["u", "v"]], more.a).n_rows_ == 300, "every call counts"


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("n", [30, 6000])  # all rows are sampled, or a part of them
def test_rows_that_stand_at_their_places_again_are_told(tmp_path, n, saved):
    rows = table(n, 0)
    model = ridge(n_components=16).fit(rows, "a", inputs=["u", "v"])
    if saved:
        model.save(tmp_path / "m.zarr", moments=True)
        model = rs.load(tmp_path / "m.zarr").set_params(progress=False)
    with pytest.warns(NumericalWarning, match=r"(100|9\d)% of [\d,]+ sampled .* count twice now"):
        model.update(pd.concat([rows, table(n, 1)]))
    model.update(table(n, 2))  # other rows at the same places
    assert model.n_rows_ == 4 * n


CHANGES = {
    "order": lambda rows: rows.sample(frac=1, random_state=0),
    "columns": lambda rows: rows[["a", "v", "u"]].iloc[::-1],
    "precision": lambda rows: rows[["u", "v", "a"]].astype("float32"),
    "some": lambda rows: rows.iloc[: 2 * len(rows) // 3],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["table", "file"])
@pytest.mark.parametrize("n", [60, 3000])  # all rows are sampled, or a part of them
def test_rows_that_come_again_elsewhere_are_told(tmp_path, n, kind, change):
    """One day of two, in another order or precision, or in part: it counted twice in silence."""
    days = [table(n, seed) for seed in (0, 1)]
    again, new = change(days[1]), table(n, 2)
    model = ridge(n_components=16)
    if kind == "file":
        (tmp_path / "days").mkdir()
        for name, rows in {"days/0": days[0], "days/1": days[1], "2": again, "3": new}.items():
            rows.to_parquet(tmp_path / f"{name}.parquet")
        model.fit(tmp_path / "days", "a", inputs=["u", "v"])
        again, new = tmp_path / "2.parquet", tmp_path / "3.parquet"
    else:
        model.fit(pd.concat(days), "a", inputs=["u", "v"])
    model.update(new)  # without a warning
    with pytest.warns(NumericalWarning, match=r"About \d+% of these .* count twice now"):
        model.update(again)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Each row occurs")
def test_rows_that_come_again_before_the_map_is_chosen_again_are_told():
    rows, more = table(120, 0), table(110, 1)
    model = rs.KernelRidge(random_state=0, progress=False).fit(rows, "a", inputs=["u", "v"])
    with pytest.warns(NumericalWarning, match="of these 230 rows .* count twice now"):
        model.update(pd.concat([more, rows.iloc[::-1]]))


HONEST = {
    "rain": lambda rng, n: np.where(rng.random(n) < 0.85, 0.0, rng.exponential(size=n)),
    "whole numbers": lambda rng, n: rng.integers(0, 30, n).astype(float),
    "labels": lambda rng, n: np.where(rng.random(n) < 0.9, "up", "down"),
}


@pytest.mark.filterwarnings("ignore:Each row occurs|.*degrees of freedom|.*sampled rows cause")
@pytest.mark.parametrize("target", HONEST)
def test_places_that_are_observed_again_are_new_rows(target):
    """The same stations on another day: most targets are equal where they have few values."""
    rng = np.random.default_rng(0)
    stations = rng.uniform(size=(600, 2))
    days = [
        pd.DataFrame(stations, columns=["u", "v"]).assign(a=HONEST[target](rng, 600))
        for _ in range(3)
    ]
    kind = rs.KernelClassifier if target == "labels" else rs.KernelRidge
    model = kind(n_components=16, random_state=0, progress=False)
    model.fit(pd.concat(days[:2]), "a", inputs=["u", "v"])
    assert model.update(days[2].iloc[::-1]).n_rows_ == 1800
    assert model.update(days[0].assign(a=HONEST[target](rng, 600))).n_rows_ == 2400  # in order


@pytest.mark.parametrize(("share", "told"), [(0.2, False), (0.8, True)])
def test_how_many_come_again_does_not_hang_on_their_places(share, told):
    """The first rows of a batch are those of the fit, at their places: both samples hold them, or
    neither. 2 % were said to be 100 %."""
    n = 12_000
    before, after = table(n, 0), table(n, 1)
    k = int(share * n)
    again = pd.concat([before[:k], after[k:]])
    model = ridge(n_components=16).fit(before, "a", inputs=["u", "v"])
    if not told:
        model.update(again)
        return
    with pytest.warns(NumericalWarning, match="About ([0-9]+)% of these") as met:
        model.update(again)
    (said,) = (int(str(each.message).split("%")[0].split()[-1]) for each in met)
    # of 1,000 sampled rows, four standard errors of a share
    assert abs(said / 100 - share) < 4 * np.sqrt(share * (1 - share) / 1000) + 0.005


def test_a_cube_that_comes_again_as_a_table_is_told():
    cube = xr.Dataset({"y": (("a", "b"), np.arange(30.0).reshape(5, 6) ** 2)})
    cube = cube.assign_coords(a=np.arange(5.0), b=np.arange(6.0))
    model = ridge(n_components=16, features="whole", length_scale=1.0)
    model.fit(cube, "y", inputs=["a", "b"])
    with pytest.warns(NumericalWarning, match="count twice now"):
        model.update(cube.to_dataframe().reset_index())


def test_a_cube_in_memory_is_known_all_together():
    """It was to be opened without chunks, which it had not; a part of it could count twice."""
    cube = xr.Dataset({"y": (("a", "b"), np.arange(30.0).reshape(5, 6) ** 2)})
    cube = cube.assign_coords(a=np.arange(5.0), b=np.arange(6.0))
    model = ridge(n_components=16, features="whole", length_scale=1.0)
    model.fit(cube, "y", inputs=["a", "b"])
    assert model.update(cube).n_rows_ == 30
    grown = xr.concat([cube, cube.assign_coords(a=cube.a + 5)], "a")
    for other in (grown, cube.isel(a=slice(3))):
        with pytest.raises(ModelError, match=r"these were not counted .* Give the new rows alone"):
            model.update(other)
    assert model.update(grown.isel(a=slice(5, 10)), batch="next").n_rows_ == 60
    with pytest.raises(ModelError, match="its values are computed when they are read"):
        model.update(cube.chunk())


def test_growth_along_another_dimension_is_refused_with_its_reason(tmp_path):
    path, cube = tmp_path / "c.zarr", days(0, 4).transpose("lat", "time")
    cube.isel(time=slice(0, 3)).to_zarr(path, consolidated=False)
    model = ridge(n_components=16).fit(path, "t", inputs=["u", "v"])
    cube.isel(time=slice(3, 4)).to_zarr(path, append_dim="time", consolidated=False)
    with pytest.raises(DataError, match=r"first dimension, lat; these .* grew along another"):
        model.update(path)


def test_rows_of_a_fit_in_memory_count_once_in_a_store(tmp_path):
    x, y = table(200, 0)[["u", "v"]].to_numpy(), table(200, 0).a.to_numpy()
    ridge().fit(x, y).save(tmp_path / "M.zarr", moments=True)
    assert rs.load(tmp_path / "M.zarr").update(x, y).n_rows_ == 200
    assert rs.load(tmp_path / "M.zarr").update(x + 1, y).n_rows_ == 400
    assert rs.load(tmp_path / "M.zarr").update(x + 1, y).n_rows_ == 400


@pytest.mark.parametrize("by", [None, "g"])
def test_rows_of_a_fit_count_once_under_any_name_and_by_label(by):
    """Named, or by label, every row of a fit in memory counted twice."""
    rows, more = table(40, 0), table(40, 1)
    model = ridge().fit(rows, "a", inputs=["u", "v"], by=by)
    assert model.update(rows, "a", batch="k").update(rows, "a", by="g").n_rows_ == 40
    if by is not None:
        assert model.update(pd.concat([rows, more.assign(g=7)]), "a", by="g").n_rows_ == 80
    model.update(more, "a", batch="m")
    assert model.update(more, "a", by="g").update(more, "a").n_rows_ == model.n_rows_
    labels = np.asarray(rows.g)
    beside = ridge().fit(rows[["u", "v"]], rows.a, by=labels)
    assert beside.update(rows[["u", "v"]], rows.a).n_rows_ == 40


def test_rows_of_a_label_that_a_fit_read_once_are_refused(tmp_path):
    """Nothing tells whether they are those of the fit."""
    rows = table(40, 0)
    rows.to_parquet(tmp_path / "first.parquet")
    pd.concat([rows, table(40, 1).assign(g=7)]).to_parquet(tmp_path / "both.parquet")
    model = ridge().fit(tmp_path / "first.parquet", "a", inputs=["u", "v"], by="g")
    for choice in ({"by": "g"}, {"batch": "k"}):
        assert model.update(tmp_path / "first.parquet", **choice).n_rows_ == 40
    with pytest.raises(ModelError, match="The fit counted rows of 'g=0'"):
        model.update(tmp_path / "both.parquet", by="g")
    assert model.n_rows_ == 40
    table(10, 2).assign(g=8).to_parquet(tmp_path / "new.parquet")
    assert model.update(tmp_path / "new.parquet", by="g").n_rows_ == 50


def test_rows_are_known_by_what_counts_of_them():
    first, more = table(100, 0), table(100, 1)
    model = ridge().fit(first[["u", "v"]], first.a)
    swapped = more[["u", "v"]].rename(columns={"u": "v", "v": "u"})
    assert model.update(more[["u", "v"]], more.a).update(swapped, more.a).n_rows_ == 300

    model = ridge(missing_rows="drop").fit(first[["u", "v"]].to_numpy(), first.a.to_numpy())
    x, y, half = more[["u", "v"]].to_numpy(), more.a.to_numpy(), np.arange(100) < 50
    model.update(x, np.ma.array(y, mask=half)).update(x, np.ma.array(y, mask=~half))
    assert model.n_rows_ == 200
    model.update(x + 1, np.ma.array(y, mask=half), batch="k")
    with pytest.raises(ModelError, match="'k' was counted before with other rows"):
        model.update(x + 1, np.ma.array(y, mask=~half), batch="k")


def test_the_class_of_a_row_is_part_of_it():
    rows = table(200, 0).assign(c=lambda t: np.where(t.u > 0, "warm", "cold"))
    model = rs.KernelClassifier(n_components=16, loss="squared", random_state=0, progress=False)
    x, more = rows[["u", "v"]], table(40, 1)
    model.fit(x, rows.c).update(more[["u", "v"]], np.repeat("warm", 40), batch="k")
    assert model.update(more[["u", "v"]], np.array(["warm"] * 40, "O"), batch="k").n_rows_ == 240
    with pytest.raises(ModelError, match="'k' was counted before with other rows"):
        model.update(more[["u", "v"]], np.repeat("cold", 40), batch="k")
    assert model.update(x, rows.c).n_rows_ == 240


def test_rows_of_few_digits_are_told_apart():
    """Once 63 of 64 levels had hashes of their own, and 30,724 of 32,768 whole rows."""
    levels = np.eye(64)
    assert len({content_of(row[None]) for row in levels}) == 64
    grid = np.stack(np.meshgrid(*[np.arange(8.0)] * 3), axis=-1).reshape(-1, 3)
    assert len({content_of(row[None]) for row in grid}) == len(grid)
    assert content_of([[0.0]]) == content_of([[-0.0]])
    assert content_of(grid) == content_of(grid[::-1]) != content_of(grid[1:])


def test_classes_are_known_by_their_labels():
    x, codes, labels = np.zeros((2, 1)), np.array([0, 1]), np.array(["a", "b"])
    assert content_of(x, None, codes, labels=labels) == content_of(x, None, labels)
    assert content_of(x, None, codes, labels=labels) != content_of(x, None, codes)
    whole = content_of(x, None, np.array([0.0, 1.0]))
    assert whole == content_of(x, None, codes)


# ------------------------------------------------------------------------------------ labels


def test_labels_have_one_form():
    noon = np.datetime64("2020-01-01T12:00", "ns")
    assert text_of(1.0) == text_of(np.int8(1)) == "1" and text_of(0.5) == "0.5"
    assert text_of(b"a") == "a" and text_of(True) == "True"
    assert text_of(noon) == text_of(noon.astype("M8[s]")) == "2020-01-01T12:00"
    assert text_of(pd.Timestamp(noon)) == text_of(pd.Timestamp(noon, tz="UTC")) == text_of(noon)
    assert canonical(np.float32(3)) == 3 and isinstance(canonical(3.0), int)
    assert canonical(noon) == text_of(noon) and canonical(None) is None
    days_of_360 = xr.date_range("2000-02-28", periods=3, calendar="360_day", use_cftime=True)
    assert texts_of(np.array(days_of_360, "O")).tolist()[0] == "2000-02-28"
    assert len({text_of(day) for day in days_of_360}) == 3


@pytest.mark.parametrize(
    ("labels", "others"),
    [
        (np.arange(40) // 2, (np.arange(40) // 2).astype(float)),
        (np.arange(40) // 2, (np.arange(40) // 2).astype("O")),
        *(
            (np.datetime64("2020-01-01", "ns") + np.arange(40) // 2 * np.timedelta64(1, unit), form)
            for unit, form in (("D", "M8[D]"), ("h", "M8[s]"))
        ),
    ],
)
def test_a_label_in_another_form_is_held_out_and_counted_alike(labels, others):
    others = labels.astype(others) if isinstance(others, str) else others
    test = InHoldOut(rs.HoldOut(0.3, 1, "test", by="g"))
    np.testing.assert_array_equal(test(labels), test(others))
    first, more = table(40, 0), table(40, 1)
    model = ridge().fit(first, "a", inputs=["u", "v"])
    assert model.update(more.assign(g=labels), "a", by="g").n_rows_ == 80
    assert model.update(more.assign(g=others), "a", by="g").n_rows_ == 80


def test_groups_of_a_label_in_another_form_are_one(tmp_path):
    first, more = table(40, 0), table(40, 1)
    model = ridge().fit(first, "a", inputs=["u", "v"], by="g")
    model.update(more.assign(g=more.g + 0.0), "a", by="g").save(tmp_path / "M", moments=True)
    assert sorted(rs.MomentStore.open(tmp_path / "M").groups()) == [0, 1, 2, 3]
    assert rs.load(tmp_path / "M", groups=[1.0]).n_rows_ == 20


# --------------------------------------------------------------------- records of before


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Models G, A and H whose records a build wrote that kept none of this; data cube and south."""
    unpack(GOLDEN / "format1-records.tar.xz", tmp_path)
    return tmp_path


def test_a_model_of_before_goes_on_counting_once(before):
    model = rs.load(before / "G.zarr")
    model.update(before / "south", batch="south").update(days(100, 102), by="time")
    assert model.n_rows_ == 17 * 8, "known by names and hashes of before"
    assert model.update(grown(before / "cube", 12, 15)).n_rows_ == 20 * 8
    grown(before / "south", 3, 4)
    with pytest.raises(ModelError, match="'south' was counted before with other rows"):
        model.update(before / "south", batch="south")


def test_a_record_of_before_is_compared_as_far_as_it_tells(before):
    model, cube = rs.load(before / "G.zarr"), before / "cube"
    zarr.open_group(cube)["lat"][:] = np.arange(8.0)
    with pytest.raises(DataError, match="'lat' changed in all of it"):
        model.update(cube)


def test_stores_in_memory_of_before_were_known_by_the_names_of_their_chunks(monkeypatch):
    store = in_memory(0, 12)
    with monkeypatch.context() as patch:
        known = zarr_chunks.stamps_of
        patch.setattr(zarr_chunks, "stamps_of", lambda *of: dict.fromkeys(known(*of), ""))
        model = ridge().fit(zarr.open_group(store), "t", inputs=["u", "v"])
    days(12, 15).to_zarr(store, append_dim="time", consolidated=False)
    assert model.update(zarr.open_group(store)).n_rows_ == 15 * 8


def test_rows_of_before_are_known_where_their_hash_tells(before):
    x = np.arange(40.0).reshape(20, 2) / 10
    y, model = np.sin(x[:, 0]), rs.load(before / "A.zarr")
    assert model.update(x + 1, y).n_rows_ == 40
    with pytest.raises(ModelError, match="does not tell which of them were masked"):
        model.update(x + 1, np.ma.array(y, mask=np.arange(20) < 10))
    hidden = np.ma.array(y, mask=np.arange(20) < 10)
    assert model.update(x + 1, hidden, batch="half").n_rows_ == 50


def test_a_hold_out_of_before_keeps_its_rows(before):
    (holdout,) = rs.load(before / "H.zarr")._fitted.selection.where
    labels = np.arange(20.0) // 2
    assert InHoldOut(holdout)(labels).sum() == 16
    assert InHoldOut(rs.HoldOut(0.4, 1, by="g"))(labels).sum() != 16


def test_labels_of_a_named_fit_are_known_by_their_rows() -> None:
    """Else rows of a label that came again by themselves would count twice."""
    rows = table(40, 0)
    choices = {"inputs": ["u", "v"]}
    model = ridge().fit(rows, "a", by="g", batch="first", **choices)
    assert model.update(rows[rows.g == 2], "a", by="g").n_rows_ == 40
    assert model.update(table(40, 1).assign(g=9), "a", by="g").n_rows_ == 80


def test_the_same_groups_count_once(tmp_path: Path) -> None:
    line = np.arange(400.0)
    columns = {"y": ("t", np.sin(line / 50)), "x": ("t", line), "g": ("t", line // 200)}
    xr.Dataset(columns).to_zarr(tmp_path / "t.zarr", consolidated=False)
    path = str(tmp_path / "t.zarr")
    model = ridge(length_scale=20.0).fit(path, "y", inputs=["x"], by="g")
    assert model.update(path, by="g").n_rows_ == 400  # 800 before


@pytest.mark.parametrize("saved", [False, True])
def test_every_label_of_a_fit_can_be_forgotten(tmp_path: Path, saved: bool) -> None:
    rows = table(60, 0)
    rows.loc[3, "u"] = np.nan
    model = ridge(n_components=16, missing_rows="drop", features="whole")
    model.fit(rows, "a", inputs=["u", "v"], by="g", batch=True)
    names = [f"g={i}" for i in range(6)]
    if saved:
        model.save(tmp_path / "m.zarr", moments=True)
        model = rs.load(tmp_path / "m.zarr").set_params(progress=False)
        assert [each.id for each in rs.MomentStore.open(tmp_path / "m.zarr").batches()] == names
    assert (model.n_rows_, model.n_missing_) == (59, 1)
    assert model.update(rows, by="g").n_rows_ == 59
    with pytest.warns(UserWarning, match="made from") if saved else contextlib.nullcontext():
        model.forget("g=2", "g=4")
    left = ridge(features=model.features_, alpha=1e-3, missing_rows="drop")
    left.fit(rows[~rows.g.isin([2, 4])], "a", inputs=["u", "v"])
    np.testing.assert_allclose(model.predict(rows[4:]), left.predict(rows[4:]), atol=1e-9)
    assert (model.n_rows_, model.n_missing_) == (39, 1)


def test_all_values_of_a_named_batch_are_compared() -> None:
    def data(values: Any) -> xr.Dataset:
        return xr.Dataset({"y": ("i", values), "x": ("i", np.linspace(0, 1, 20_000))})

    values = np.zeros(20_000)
    model = ridge().fit(data(values + 1), "y").update(data(values), batch="k")
    values[1:4] = 1e6
    with pytest.raises((DataError, ModelError), match="counted before with other rows"):
        model.update(data(values), batch="k")  # "nothing new" before


@pytest.mark.parametrize("form", [np.asarray, list, pd.Series])
def test_labels_in_place_of_the_name_of_their_column_are_refused(form):
    """Arrays ended in words of NumPy, lists in batches that were named after the whole list."""
    x = np.random.default_rng(0).normal(size=(80, 2))
    model = rs.KernelRidge(n_components=8, random_state=0, progress=False).fit(x[:40], x[:40, 0])
    with pytest.raises(ValueError, match=r"by is a \w+ of labels.* Give the labels as a column"):
        model.update(x[40:], x[40:, 0], by=form([1, 2] * 20))
    assert model.n_rows_ == 40


@pytest.mark.parametrize("kind", ["memory", "file", "zarr"])
def test_a_name_that_is_in_one_sum_with_unnamed_rows_is_not_forgotten(tmp_path, kind):
    """A fit, then a named batch, were saved as one sum: forgetting the batch took out the fit."""
    data = {"memory": table(60, 0), "file": tmp_path / "d.parquet", "zarr": tmp_path / "d.zarr"}
    table(60, 0).to_parquet(data["file"])
    table(60, 0).to_xarray().to_zarr(data["zarr"], consolidated=False)
    model = ridge(n_components=16).fit(data[kind], "a", inputs=["u", "v"])
    model.update(table(40, 1), batch="b").save(tmp_path / "m.zarr", moments=True)
    model = rs.load(tmp_path / "m.zarr").update(table(20, 2), batch="c")
    with pytest.raises(ModelError, match=r"'b' was counted together with 1 others in the batch"):
        model.forget("b")
    assert model.forget("c").n_rows_ == 100
