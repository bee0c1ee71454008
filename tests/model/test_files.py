"""Files as batches: counted once under their name and content, replaced, forgotten."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import rff_stream as rs
from growing import ridge, table, write, written
from rff_stream.errors import DataError, ModelError
from rff_stream.model import file_batches, update
from rff_stream.sources.data_files import files_at, is_complete
from rff_stream.store import MomentStore
from toys import run


def small(data: Any, **choices: Any) -> Any:
    return ridge(**choices).fit(data, "t", inputs=["u", "v"])


ignores_the_map = pytest.mark.filterwarnings("ignore:The feature map and origins")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four days."""
    return written(tmp_path / "days", 0, 1, 2, 3)


@pytest.fixture
def stored(tmp_path: Path, folder: Path) -> Path:
    """A model of the four days."""
    small(folder).save(tmp_path / "M.zarr", moments=True)
    return tmp_path / "M.zarr"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the rows of each file are read."""
    found: Counter[str] = Counter()
    original = file_batches.read_file

    def counted(recipe: Any, fitted: Any, row: Any, data: Any, new: Any) -> Any:
        found[new.file.name] += 1
        return original(recipe, fitted, row, data, new)

    monkeypatch.setattr(file_batches, "read_file", counted)
    monkeypatch.setattr(update, "read_file", counted)
    return found


def printed(*words: Any) -> Any:
    """What a command says as JSON."""
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def same(model: Any, *numbers: int) -> None:
    """A model answers as one of exactly these days, with its map and origins."""
    rows = pd.concat([table(day) for day in numbers])
    moments = rs.collect(
        model.features_, rows, "t", inputs=["u", "v"], row=model.moments_.row, sums="float64",
        progress=False,
    )  # fmt: skip
    other = ridge(features=model.features_).fit_moments(model.features_, moments)
    assert model.n_rows_ == len(rows)
    np.testing.assert_allclose(model.predict(rows), other.predict(rows), rtol=0, atol=1e-10)


def test_each_file_of_a_fit_is_a_batch(folder, stored):
    assert [id.partition("@")[0] for id in MomentStore.open(stored).ids()] == sorted(
        path.name for path in folder.iterdir()
    )
    same(rs.load(stored), 0, 1, 2, 3)


@pytest.mark.parametrize("end", ["parquet", "csv", "arrow", "nc"])
def test_new_files_are_counted_once_in_every_format(tmp_path, reads, end):
    folder = written(tmp_path / "days", 0, 1, 2, end=end)
    model = small(folder)
    model.save(tmp_path / "M.zarr", moments=True)
    written(folder, 3, 4, end=end)
    loaded = rs.load(tmp_path / "M.zarr")
    for place in (folder, f"{folder}/*.{end}", folder / f"d03.{end}", f"{folder}/d0[34].{end}"):
        loaded.update(place)
        model.update(str(place))
    every = small(folder)
    assert loaded.n_rows_ == model.n_rows_ == every.n_rows_
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert reads == {f"d{day:02}.{end}": 2 if day > 2 else 1 for day in range(5)} | {
        f"d{day:02}.{end}": 2 + (day > 2) for day in range(5)
    }


def test_content_decides_not_time_or_name(folder, stored, reads):
    os.utime(folder / "d01.parquet", ns=(1, 1))
    shutil.copy(folder / "d02.parquet", folder / "copy.parquet")
    assert rs.load(stored).update(folder).n_rows_ == 4 * 60
    assert not reads


def test_the_same_content_twice_in_a_fit_counts_once(folder):
    shutil.copy(folder / "d02.parquet", folder / "copy.parquet")
    same(small(folder), 0, 1, 2, 3)


def test_copies_alone_in_a_folder_count_once(tmp_path):
    folder = written(tmp_path / "days", 2)
    shutil.copy(folder / "d02.parquet", folder / "copy.parquet")
    same(small(folder), 2)


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_other_files_of_a_folder_are_no_rows(tmp_path, end):
    """Every verb reads the files that ``update`` counts: backups and notes are none of them."""
    folder = written(tmp_path / "run=3" / "days", 0, end=end)
    for name in (f"d00.{end}.bak", f"d00.{end}~", "notes.txt"):
        shutil.copy(written(tmp_path / "other", 1, end=end) / f"d01.{end}", folder / name)
    model = small(folder)
    same(model, 0)
    assert model.residuals(folder).n == len(model.predict(folder)) == 60
    assert model.update(folder).n_rows_ == 60
    # The name of a folder above names no column.
    assert ridge().fit(folder, "t").columns_.inputs == ("day", "u", "v")
    written(folder, 1, end=end)
    assert ridge().fit(folder, "t").columns_.inputs == ("day", "u", "v")


def test_a_folder_may_begin_with_one_netcdf_file(tmp_path):
    folder = written(tmp_path / "days", 0, end="nc")
    for place in (folder, f"{folder}/*.nc"):
        model = small(place)
        assert model.residuals(place).n == model.n_rows_ == small(folder / "d00.nc").n_rows_
    written(folder, 1, end="nc")
    model.update(folder)
    assert model.residuals(folder).n == model.n_rows_


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda cube: cube.isel(lat=slice(None, None, -1)), "lat"),
        (lambda cube: cube.drop_vars("height"), r"d01\.nc has no .height., which d00\.nc has"),
        (
            lambda cube: cube.assign(height=cube.height.assign_attrs(units="km")),
            r"height. is in .m. in d00\.nc, and in .km. in d01\.nc",
        ),
        (lambda cube: cube.drop_vars("lat"), r"d00\.nc has the coordinates.*d01\.nc has .time"),
    ],
)
def test_netcdf_files_that_do_not_fit_together_are_refused(tmp_path, other, words):
    folder = netcdf_folder(tmp_path / "days", [cube_of(0), other(cube_of(1))])
    model = ridge().fit(cube_of(0), "t", inputs=["height", "time"])
    for verb in (model.predict, model.residuals, lambda X: model.fit(X, "t")):
        with pytest.raises(DataError, match=rf"cannot be read as one: .*{words}.*Correct the file"):
            verb(folder)


def test_a_field_without_time_is_that_of_its_file(tmp_path):
    """It was that of the first file, where the files of a folder were read as one."""
    cubes = [cube_of(0), cube_of(1).assign(height=("lat", np.arange(20.0)[::-1]))]
    folder, inputs = netcdf_folder(tmp_path / "days", cubes), ["height", "time"]
    dense = xr.concat([cube.assign(height=cube.height + 0 * cube.t) for cube in cubes], "time")
    model, other = ridge().fit(folder, "t", inputs=inputs), ridge().fit(dense, "t", inputs=inputs)
    np.testing.assert_allclose(model.predict(folder), other.predict(dense), atol=1e-9)
    np.testing.assert_allclose(model.residuals(folder).rmse(), other.residuals(dense).rmse())


def test_a_variable_that_is_not_used_may_be_absent_in_a_netcdf_file(tmp_path):
    cubes = [cube_of(0).assign(other=1.0), cube_of(1)]
    folder = netcdf_folder(tmp_path / "days", cubes)
    model = ridge().fit(folder, "t", inputs=["height", "time"])
    assert model.residuals(folder).n == model.n_rows_ == 200
    netcdf_folder(tmp_path / "later", [cube_of(2), cube_of(3).drop_vars("t")])
    assert model.predict(tmp_path / "later").sizes == {"time": 10, "lat": 20}


def cube_of(day: int) -> xr.Dataset:
    """Five steps of time on 20 latitudes, with a field of latitude alone."""
    t = np.random.default_rng([6, day]).normal(size=(5, 20))
    fields = {"t": (("time", "lat"), t), "height": ("lat", np.arange(20.0), {"units": "m"})}
    return xr.Dataset(fields, {"time": np.arange(5.0) + 5 * day, "lat": np.arange(20.0)})


def netcdf_folder(folder: Path, cubes: list[xr.Dataset]) -> Path:
    folder.mkdir()
    for day, cube in enumerate(cubes):
        cube.to_netcdf(folder / f"d{day:02}.nc")
    return folder


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_numbers_of_every_file_fit_in_their_column(tmp_path, end):
    """The types were those of the first file: whole numbers there refused others, or cut them."""
    whole = table(0).round().astype({"u": "int32"})
    folder = written(tmp_path / "days", 0, 1, end=end)
    write(folder / f"d00.{end}", whole)
    rows = pd.concat([whole, table(1)])
    model = ridge().fit(rows, "t", inputs=["u", "v"])
    np.testing.assert_allclose(model.predict(folder), model.predict(rows), atol=1e-10)
    assert model.residuals(folder).n == small(folder).n_rows_ == 120


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_a_column_that_one_file_lacks_or_has_of_another_kind_is_refused(tmp_path, end):
    """Rows without the column were left out as missing ones are; numbers became truths."""
    folder = written(tmp_path / "days", 0, 1, end=end)
    model = small(folder, missing_rows="drop")
    write(folder / f"d01.{end}", table(1).drop(columns="v"))
    for verb in (model.predict, model.residuals, model.score):
        with pytest.raises(DataError, match=rf"d01\.{end} has no column 'v'"):
            verb(folder)
    write(folder / f"d00.{end}", table(0).assign(u=table(0).u > 0))
    write(folder / f"d01.{end}", table(1))
    with pytest.raises(DataError, match=rf"'u' is bool in d00\.{end} and double in d01\.{end}"):
        model.predict(folder)
    times = pd.Series(pd.date_range("2020-01-01", periods=60, freq="h"))
    write(folder / f"d00.{end}", table(0).assign(day=times))
    write(folder / f"d01.{end}", table(1).assign(day=times.dt.tz_localize("UTC")))
    assert model.residuals(folder).n == 120  # it is not used
    with pytest.raises(DataError, match=r"'day' is timestamp\[.*neither can stand for the other"):
        ridge().fit(folder, "t")


def test_a_csv_that_cannot_be_read_is_named_with_a_remedy(tmp_path):
    folder = written(tmp_path / "days", 0, 1, end="csv")
    (folder / "d02.csv").write_text("u,v,t\n1,2\n")
    with pytest.raises(DataError, match=r"d02\.csv.*Expected 3 columns.*have the same columns"):
        small(folder)


def test_a_file_without_a_byte_waits(tmp_path):
    """It was made, and is not written yet; files after it are counted."""
    folder = written(tmp_path / "days", 0, 1, end="csv")
    small(folder).save(tmp_path / "M.zarr", moments=True)
    (folder / "d02.csv").touch()
    written(folder, 3, end="csv")
    found = printed("update", tmp_path / "M.zarr", folder)
    assert (found["n_rows"], found["waiting"]) == (180, "d02.csv")
    with pytest.raises(DataError, match=r"d02\.csv.*is not complete: it is empty"):
        small(folder)
    written(folder, 2, end="csv")
    same(rs.load(tmp_path / "M.zarr").update(folder), 0, 1, 2, 3)


def test_a_file_that_changed_is_refused_or_replaced(folder, stored):
    write(folder / "d02.parquet", table(9))
    written(folder, 4)
    head = MomentStore.open(stored).head
    for model in (rs.load(stored), small(written(folder.parent / "other", 0, 1, 2))):
        at = folder if model.n_rows_ == 240 else folder.parent / "other"
        write(at / "d02.parquet", table(9))
        before = model.n_rows_
        with pytest.raises(DataError, match=r"d02\.parquet.*changed.*replace=True"):
            model.update(at)
        assert model.n_rows_ == before
    assert MomentStore.open(stored).head == head
    with pytest.warns(UserWarning, match="feature map and origins"):
        replaced = rs.load(stored).update(folder, replace=True)
    same(replaced, 0, 1, 3, 4, 9)
    same(model.update(at, replace=True), 0, 1, 9)


def test_what_is_forgotten_stays_so_until_its_content_changes(folder, stored, reads):
    written(folder, 4)
    model = rs.load(stored).update(folder).forget("d04.parquet")
    same(model, 0, 1, 2, 3)
    model.update(folder)
    same(model, 0, 1, 2, 3)
    write(folder / "d04.parquet", table(7))
    same(model.update(folder), 0, 1, 2, 3, 7)
    assert reads == {"d04.parquet": 2}


@pytest.fixture(params=["stored", "in memory"])
def model(request: pytest.FixtureRequest, folder: Path, stored: Path) -> Any:
    """A model of the four days."""
    return rs.load(stored) if request.param == "stored" else small(folder)


@ignores_the_map
def test_a_content_that_was_replaced_counts_again_when_it_is_put_back(folder, model):
    write(folder / "d02.parquet", table(9))
    same(model.update(folder, replace=True), 0, 1, 3, 9)
    write(folder / "d02.parquet", table(2))
    with pytest.raises(DataError, match=r"d02\.parquet.*changed"):
        model.update(folder)
    same(model.update(folder, replace=True), 0, 1, 2, 3)
    same(model.update(folder), 0, 1, 2, 3)
    write(folder / "d02.parquet", table(9))
    same(model.update(folder, replace=True), 0, 1, 3, 9)


@ignores_the_map
@pytest.mark.parametrize("name", ["d02.parquet", "d99.parquet"])
def test_what_was_replaced_put_back_and_forgotten_stays_out(folder, model, name):
    """Having been replaced once, it counted again at the next update."""
    write(folder / "d02.parquet", table(9))
    model.update(folder, replace=True)
    write(folder / "d02.parquet", table(2))
    model.update(folder, replace=True).forget("d02.parquet")
    (folder / "d02.parquet").rename(folder / name)
    same(model.update(folder), 0, 1, 3)


def test_names_may_be_given_to_other_files(folder, model):
    """As by log rotation: contents move on by a name, and the first name has a new one."""
    for day in range(4):  # files of a size that are written at once may have one time
        os.utime(folder / f"d0{day}.parquet", (1e9 + day, 1e9 + day))
    model.update(folder)
    for day in (3, 2, 1, 0):
        (folder / f"d0{day}.parquet").rename(folder / f"d0{day + 1}.parquet")
    write(folder / "d00.parquet", table(7))
    same(model.update(folder), 0, 1, 2, 3, 7)
    (folder / "d00.parquet").rename(folder / "first.parquet")
    (folder / "d01.parquet").rename(folder / "d00.parquet")
    (folder / "first.parquet").rename(folder / "d01.parquet")
    same(model.update(folder), 0, 1, 2, 3, 7)


@ignores_the_map
def test_a_file_that_becomes_a_copy_of_another_counts_once(folder, model):
    (folder / "d02.parquet").write_bytes((folder / "d03.parquet").read_bytes())
    with pytest.raises(DataError, match=r"d02\.parquet.*changed"):
        model.update(folder)
    same(model.update(folder, replace=True), 0, 1, 3)
    write(folder / "d03.parquet", table(8))
    same(model.update(folder), 0, 1, 3, 8)
    write(folder / "d02.parquet", table(2))
    same(model.update(folder, replace=True), 0, 1, 2, 8)


@ignores_the_map
def test_what_was_forgotten_and_put_back_over_other_content_is_asked_for(folder, model):
    model.forget("d02.parquet")
    write(folder / "d02.parquet", table(9))
    same(model.update(folder), 0, 1, 3, 9)
    write(folder / "d02.parquet", table(2))
    with pytest.raises(DataError, match=r"d02\.parquet.*changed"):
        model.update(folder)
    same(model.update(folder, replace=True), 0, 1, 2, 3)


def test_rows_in_one_sum_with_others_are_not_replaced(folder, stored):
    """They counted twice, in the sum and as a new batch."""
    MomentStore.open(stored).compact()
    model = rs.load(stored)
    write(folder / "d02.parquet", table(9))
    with pytest.raises(DataError, match=r"d02\.parquet.*in one sum.*fit all files again"):
        model.update(folder, replace=True)
    write(folder / "d02.parquet", table(2))
    write(folder / "d04.parquet", table(4))
    same(model.update(folder, replace=True), 0, 1, 2, 3, 4)


@pytest.mark.filterwarnings("ignore:The feature map and origins of this store")
@pytest.mark.parametrize("saved", [False, True])
def test_a_corrected_file_is_no_file_that_comes_again(tmp_path, saved):
    """It is counted in place of what it was, whose rows are nearly all the same."""
    days = tmp_path / "days"
    days.mkdir()
    for day in (1, 2):
        write(days / f"{day}.csv", table(day))
    model = ridge().fit(days, "t", inputs=["u", "v"])
    if saved:
        model.save(tmp_path / "m.zarr", moments=True)
        model = rs.load(tmp_path / "m.zarr").set_params(progress=False)
    corrected = table(2)
    corrected.loc[:2, "t"] += 1
    write(days / "2.csv", corrected)
    assert model.update(days, replace=True).n_rows_ == 120  # without a warning


def test_the_shell_tells_of_a_day_that_comes_again_in_another_format(tmp_path):
    store = tmp_path / "m.zarr"
    for day in (1, 2, 3):
        write(tmp_path / f"{day}.csv", table(day))
    ridge().fit(tmp_path / "1.csv", "t", inputs=["u", "v"]).save(store, moments=True)
    done = run("update", store, tmp_path / "2.csv")
    assert done.exit_code == 0 and "warning" not in done.stderr, done.stderr
    write(tmp_path / "again.parquet", table(2).sample(frac=1, random_state=0))
    done = run("update", store, tmp_path / "3.csv", tmp_path / "again.parquet")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("About 100% of these 60 rows have the inputs and targets of rows") == 1


def test_a_model_in_memory_forgets_the_files_of_its_fit(folder):
    model = small(folder)
    same(model.forget("d01.parquet"), 0, 2, 3)
    same(model.update(folder), 0, 2, 3)
    write(folder / "d01.parquet", table(8))
    same(model.update(folder), 0, 2, 3, 8)
    with pytest.raises(ModelError, match=r"no batch 'd01\.csv'"):
        model.forget("d02.parquet", "d01.csv")
    same(model, 0, 2, 3, 8)
    with pytest.raises(ModelError, match=r"kept together.*moments=True"):
        ridge().fit(table(0), "t").forget("d01.parquet")


def test_a_file_that_is_not_complete_waits(folder, stored):
    whole = folder / "d04.parquet"
    write(whole, table(4))
    content = whole.read_bytes()
    whole.write_bytes(content[:-100])
    found = printed("update", stored, folder)
    assert (found["added"], found["waiting"]) == ({}, "d04.parquet")
    with pytest.raises(DataError, match=r"d04\.parquet.*not complete"):
        small(folder)
    whole.write_bytes(content)
    same(rs.load(stored).update(folder), 0, 1, 2, 3, 4)


def test_errors_name_the_file(folder, stored):
    table(4).drop(columns="v").to_parquet(folder / "d04.parquet")
    with pytest.raises(DataError, match=r"d04\.parquet: .*'v'"):
        rs.load(stored).update(folder)
    with pytest.raises(DataError, match="matches no file"):
        rs.load(stored).update(f"{folder}/*.pq")


def test_a_file_without_rows_is_a_batch(folder, stored):
    table(4).iloc[:0].to_parquet(folder / "d04.parquet")
    model = rs.load(stored).update(folder)
    same(model, 0, 1, 2, 3)
    assert len(MomentStore.open(stored)) == 5


def test_a_fit_of_one_file_knows_it(tmp_path, folder):
    small(folder / "d00.parquet").save(tmp_path / "one.zarr", moments=True)
    model = rs.load(tmp_path / "one.zarr").update(folder)
    same(model, 0, 1, 2, 3)
    with pytest.warns(UserWarning, match="feature map and origins"):
        same(model.forget("d00.parquet"), 1, 2, 3)


def test_files_behind_a_url(tmp_path, stored):
    system = fsspec.filesystem("memory")
    with system.open("/bucket/days/d04.csv", "w") as file:
        table(4).to_csv(file, index=False)
    model = rs.load(stored)
    same(model.update("memory://bucket/days"), 0, 1, 2, 3, 4)
    same(model.update("memory://bucket/days/*.csv"), 0, 1, 2, 3, 4)


def test_a_server_that_refuses_parts_of_a_file_is_named(monkeypatch):
    """An error of the file system's library came without the address."""
    system = fsspec.filesystem("memory")
    with system.open("/bucket/parts/d04.parquet", "wb") as file:
        table(4).to_parquet(file)

    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("The server doesn't support range requests.")

    monkeypatch.setattr(type(system), "tail", refuse)
    with pytest.raises(DataError, match=r"d04\.parquet cannot be reached: .*requests\. L"):
        small("memory://bucket/parts")


def test_sums_that_take_too_much_memory_are_one_batch(folder, monkeypatch, caplog):
    monkeypatch.setattr(file_batches, "APART", 0.0)
    model = small(folder)
    assert "one batch" in caplog.text and not model._fitted.batches
    same(model.update(folder), 0, 1, 2, 3)


def test_a_fit_of_files_goes_on_from_its_checkpoint(folder, tmp_path, monkeypatch, reads):
    counted = file_batches.read_file

    def stops(*given: Any) -> Any:
        if given[-1].file.name == "d02.parquet":
            raise KeyboardInterrupt
        return counted(*given)

    monkeypatch.setattr(file_batches, "read_file", stops)
    place = tmp_path / "M.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        ridge().fit(folder, "t", inputs=["u", "v"], checkpoint=place)
    monkeypatch.setattr(file_batches, "read_file", counted)
    model = ridge().fit(folder, "t", inputs=["u", "v"], checkpoint=place)
    assert reads == {f"d0{day}.parquet": 1 for day in range(4)}
    np.testing.assert_array_equal(model.coef_, small(folder).coef_)


def test_another_process_may_count_a_file_first(folder, stored, monkeypatch):
    written(folder, 4)
    read = update.read_file

    def late(*given: Any) -> Any:
        monkeypatch.setattr(update, "read_file", read)
        rs.load(stored).update(folder)
        return read(*given)

    monkeypatch.setattr(update, "read_file", late)
    same(rs.load(stored).update(folder), 0, 1, 2, 3, 4)
    assert len(MomentStore.open(stored)) == 5


@pytest.mark.slow
def test_the_shell_counts_replaces_and_forgets(folder, tmp_path):
    model = tmp_path / "S.zarr"
    words = ["--target", "t", "--inputs", "u,v", "--n-components", 24, "--model", model]
    assert run("fit", f"{folder}/*.parquet", *words).exit_code == 0
    written(folder, 4)
    assert printed("update", model, folder, "--dry-run")["new"] == ["d04.parquet"]
    found = printed("update", model, folder / "d03.parquet", folder / "d04.parquet")
    assert [id.partition("@")[0] for id in found["added"]] == ["d04.parquet"]
    assert found["known"] == ["d03.parquet"] and found["n_rows"] == 300
    write(folder / "d04.parquet", table(6))
    refused = run("update", model, folder)
    assert refused.exit_code == 3 and "--replace" in refused.stderr
    assert printed("update", model, folder, "--replace")["n_rows_added"] == 60
    would = printed("forget", model, "d04.parquet", "--dry-run")
    assert would["n_rows"] == 240 and len(MomentStore.open(model)) == 5
    assert printed("forget", model, "d04.parquet")["n_rows"] == 240
    missing = run("forget", model, "d04.parquet")
    assert missing.exit_code == 4 and "no batch 'd04.parquet'" in missing.stderr
    assert rs.load(model).n_rows_ == 240


@pytest.mark.parametrize("words", [("--by", "day"), ("--batch", "first")])
def test_a_first_file_that_comes_again_with_a_name_counts_once(tmp_path, words):
    """It counted twice: a fit took no name of a batch."""
    data, model = tmp_path / "all.parquet", tmp_path / "B.zarr"
    pd.concat([table(0), table(1)]).to_parquet(data)
    fit = ["--target", "t", "--inputs", "u,v", "--n-components", 24, "--model", model]
    assert run("fit", data, *fit, *words).exit_code == 0
    assert printed("update", model, data, *words)["n_rows"] == 120
    both = run("fit", data, *fit, "--by", "day", "--batch", "x", "--overwrite")
    assert both.exit_code == 2 and "--batch and --by" in both.stderr


def test_the_first_obvious_command(tmp_path):
    """It said "It is not known which rows of a str are new"."""
    folder = written(tmp_path / "days", 1, 2)
    model = tmp_path / "M.zarr"
    fit = ["--target", "t", "--inputs", "u,v", "--n-components", 24, "--model", model]
    assert run("fit", folder / "d01.parquet", *fit).exit_code == 0
    done = run("update", model, folder / "d02.parquet")
    assert done.exit_code == 0 and "120 in 2 batches" in done.output
    again = run("update", model, folder / "d01.parquet")
    assert again.exit_code == 0 and "nothing is new" in again.output


def test_a_folder_is_watched(folder, stored, monkeypatch):
    """Files that still change wait; each is one commit; a stop loses nothing."""
    late = folder / "d05.csv"
    happens = iter([
        lambda: written(folder, 4),
        lambda: late.write_text("u,v,t\n1,2,3\n"),
        lambda: write(late, table(5)),
        lambda: None,
        lambda: written(folder, 6),
    ])  # fmt: skip
    monkeypatch.setattr("rff_stream.sources.data_files.time.sleep", lambda _: next(happens)())
    model = rs.load(stored)
    assert list(model.watch(folder, every=0, looks=5)) == [("d04.parquet",), ("d05.csv",)]
    same(model, 0, 1, 2, 3, 4, 5)
    assert len(MomentStore.open(stored)) == 6
    happens = iter([lambda: None] * 9)
    written(folder, 6)
    assert next(rs.load(stored).watch(folder, every=0)) == ("d06.parquet",)
    write(folder / "d07.arrow", table(7))
    done = run("watch", stored, folder, "--every", 0, "--looks", 2)
    assert done.exit_code == 0 and "d07.arrow: 480 rows" in done.output


def test_a_watch_ends_by_a_signal_and_goes_on(folder, stored, monkeypatch):
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rff_stream.sources.data_files.time.sleep", stop)
    done = run("watch", stored, folder)
    assert done.exit_code == 130 and "Run the same command again" in done.stderr
    same(rs.load(stored), 0, 1, 2, 3)


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_a_file_without_rows_may_be_filled_later(tmp_path, end):
    """It was a batch of no rows, and refused as changed when its rows came."""
    folder = written(tmp_path / "days", 0, 1, 2, end=end)
    model = small(folder)
    model.save(tmp_path / "model.zarr", moments=True)
    write(folder / f"d03.{end}", table(3)[:0])
    stored = rs.load(tmp_path / "model.zarr").update(folder)
    model.update(folder)
    write(folder / f"d03.{end}", table(3))
    stored.update(folder)
    model.update(folder)
    assert stored.n_rows_ == model.n_rows_ == 240
    assert rs.load(tmp_path / "model.zarr").n_rows_ == 240
    write(folder / f"d03.{end}", table(4))
    with pytest.raises(DataError, match="changed after it was counted"):
        model.update(folder)


@pytest.mark.parametrize("length", [0, 4, 8, 12, 40])
def test_a_file_that_is_still_written_is_not_complete(tmp_path: Path, length: int) -> None:
    """A Parquet file begins as it ends: its first 8 bytes counted as complete."""
    whole, part = tmp_path / "whole.parquet", tmp_path / "part.parquet"
    pd.DataFrame({"a": [1.0, 2.0]}).to_parquet(whole)
    part.write_bytes(whole.read_bytes()[:length])
    found = {each.name: is_complete(each, None) for each in files_at(str(tmp_path)) or ()}
    assert found == {"whole.parquet": True, "part.parquet": False}


@ignores_the_map
def test_a_store_of_which_all_is_forgotten_counts_again(folder, stored, tmp_path):
    """The first update counted its rows and ended in a division by zero."""
    model = rs.load(stored)
    for day in range(3):
        model.forget(f"d0{day}.parquet")
    with pytest.raises(ModelError, match=r"forgotten.*rff-stream update MODEL DATA"):
        model.forget("d03.parquet")
    with pytest.raises(ModelError, match=r"^0 rows are left"):
        model.update(folder)  # nothing new
    write(folder / "d07.parquet", table(7))
    same(model.update(folder), 7)
