"""Rows that come later are counted once: what is new is read, what changed is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import rff_stream as rs
from growing import counted_reads, days, fitted, grown, ridge
from rff_stream.cli import main
from rff_stream.errors import DataError, ModelError, NumericalWarning
from rff_stream.estimators.base import count_in_store
from rff_stream.model import update as updating
from rff_stream.sources import Selection
from rff_stream.store import MomentStore
from toys import run


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    """30 days in chunks of 5."""
    return grown(tmp_path / "cube.zarr", 0, 30)


@pytest.fixture
def stored(tmp_path: Path, cube: Path) -> Path:
    """A model of the 30 days, with its moments."""
    path = tmp_path / "M.zarr"
    fitted(cube).save(path, moments=True)
    return path


def scratch(path: Path, model: Any) -> rs.Moments:
    """Moments of all rows with the map and origins of a model."""
    found: rs.Moments = rs.collect(
        model.features_, path, "t", inputs=["u", "v"], row=model.moments_.row, sums="float64",
        progress=False,
    )  # fmt: skip
    return found


def test_an_updated_model_is_one_fitted_on_all_rows(cube, stored):
    grown(cube, 30, 37)
    model = rs.load(stored).update(cube)
    every = scratch(cube, model)
    assert model.n_rows_ == every.n == 37 * 8
    scale = np.abs(every.sums).max()
    assert np.abs(model.moments_.sums - every.sums).max() <= 1e-13 * scale
    other = ridge(features=model.features_).fit_moments(model.features_, every)
    new = days(40, 42)
    np.testing.assert_allclose(
        model.predict(new).values, other.predict(new).values, rtol=0, atol=1e-10
    )


@pytest.mark.slow
def test_only_new_rows_are_read(tmp_path, monkeypatch):
    """1 % more days: their own chunks are read, and no byte of the others."""
    cube, path = grown(tmp_path / "c.zarr", 0, 500), tmp_path / "M.zarr"
    fitted(cube).save(path, moments=True)
    grown(cube, 500, 505)
    total = sum(
        file.stat().st_size
        for name in "tuv"
        for file in (cube / name / "c").rglob("*")
        if file.is_file()
    )
    model, reads = rs.load(path), counted_reads(monkeypatch)
    model.update(cube)
    assert sum(reads[name] for name in "tuv") <= 1.1 * total / 101
    reads.clear()
    rs.load(path).update(cube)
    assert not sum(reads[name] for name in "tuv"), "nothing is new, so nothing is read"


@pytest.mark.slow
def test_a_chunk_that_is_filled_up_is_counted_once(cube, stored):
    for start, stop in ((30, 32), (32, 33), (33, 41)):
        grown(cube, start, stop)
        rs.load(stored).update(cube)
    model = rs.load(stored)
    assert model.n_rows_ == 41 * 8
    assert MomentStore.open(stored).ids() == ["fit", "time 30:32", "time 32:33", "time 33:41"]
    np.testing.assert_allclose(model.moments_.sums, scratch(cube, model).sums, rtol=0, atol=1e-9)


def test_twice_is_once(cube, stored):
    grown(cube, 30, 33)
    model = rs.load(stored).update(cube)
    head = MomentStore.open(stored).head
    model.update(cube)
    again = rs.load(stored).update(cube)
    assert MomentStore.open(stored).head == head
    assert np.array_equal(again.moments_.sums, model.moments_.sums)


def test_a_model_in_memory_grows_and_is_saved_with_what_it_knows(tmp_path, cube):
    model = fitted(cube)
    grown(cube, 30, 34)
    model.update(cube).save(tmp_path / "N.zarr", moments=True)
    assert model.n_rows_ == 34 * 8
    grown(cube, 34, 36)
    assert rs.load(tmp_path / "N.zarr").update(cube).n_rows_ == 36 * 8
    assert model.n_rows_ == 34 * 8


@pytest.mark.parametrize("day", [3, 28])
def test_data_that_changed_are_refused_and_named(cube, stored, day):
    zarr.open_group(cube)["u"][day, 0] = 99.0
    grown(cube, 30, 33)
    head = MomentStore.open(stored).head
    first = 5 * (day // 5)
    with pytest.raises(
        DataError, match=rf"'u' changed in time {first}:{first + 5}.*counted before"
    ):
        rs.load(stored).update(cube)
    assert MomentStore.open(stored).head == head


def test_values_of_a_chunk_that_is_not_full_are_compared(tmp_path, cube):
    grown(cube, 30, 32)
    fitted(cube).save(tmp_path / "M.zarr", moments=True)
    zarr.open_group(cube)["v"][31, 0] = 99.0
    grown(cube, 32, 34)
    with pytest.raises(DataError, match="'v' changed in time 30:32"):
        rs.load(tmp_path / "M.zarr").update(cube)


def test_data_that_were_cut_are_refused(cube, stored):
    group = zarr.open_group(cube)
    for name in ("u", "v", "t"):
        group[name].resize((20, 8))
    group["time"].resize((20,))
    with pytest.raises(DataError, match=r"20 time × 8 lat, but 30 time × 8 lat were counted"):
        rs.load(stored).update(cube)


def test_rows_that_are_not_written_yet_wait(cube, stored):
    """A writer makes arrays longer, then writes chunk by chunk."""
    group = zarr.open_group(cube)
    for name in ("u", "v", "t"):
        group[name].resize((37, 8))
    group["time"].resize((37,))
    group["time"][30:37] = np.arange(30, 37)
    new = days(30, 37)
    group["u"][30:37] = new["u"].values
    group["v"][30:35] = new["v"].values[:5]
    group["t"][30:35] = new["t"].values[:5]
    found, _ = count_in_store(str(stored), updating.LaterRows(Selection(cube)))
    assert [added.id for added in found.added] == ["time 30:35"]
    assert "lacks chunk 7 along time" in found.waiting
    group["v"][35:37] = new["v"].values[5:]
    group["t"][35:37] = new["t"].values[5:]
    assert rs.load(stored).update(cube).n_rows_ == 37 * 8


def test_a_chunk_that_later_ones_pass_is_told(tmp_path, cube, stored):
    """A writer leaves out chunks of missing values: rows waited for ever, without a word."""
    missing = days(30, 40)
    missing["v"][:5] = np.nan
    missing.to_zarr(cube, append_dim="time", consolidated=False)
    assert not (Path(cube) / "v" / "c" / "6" / "0").exists()
    model = rs.load(stored)
    with pytest.warns(NumericalWarning, match=r"'v' lacks chunk 6.*chunk 7.*missing_chunks='fill'"):
        model.update(cube)
    assert model.n_rows_ == 30 * 8
    model.set_params(missing_rows="drop").save(again := tmp_path / "N.zarr", moments=True)
    model.set_params(missing_chunks="fill").update(cube)
    assert model.n_rows_ == 35 * 8 and model.n_missing_ == 5 * 8
    found = run("update", again, cube, "--missing-chunks", "fill", "--json")
    assert json.loads(found.stdout)["n_rows"] == 35 * 8


def test_a_chunk_made_longer_and_not_yet_written_waits(tmp_path, cube):
    grown(cube, 30, 32)
    fitted(cube).save(tmp_path / "M.zarr", moments=True)
    group = zarr.open_group(cube)
    for name in ("u", "v", "t"):
        group[name].resize((34, 8))
    group["time"].resize((34,))
    group["time"][32:34] = np.arange(32, 34)
    model = rs.load(tmp_path / "M.zarr").update(cube)
    assert model.n_rows_ == 32 * 8


def test_two_updates_at_once_count_every_row_once(cube, stored, monkeypatch):
    """The second sees one day more than the first, which commits while the second still reads."""
    grown(cube, 30, 35)
    original, raced = updating.NewRowFinder.read_sums, []

    def read(*given: Any) -> Any:
        found = original(*given)
        if not raced:
            raced.append(True)
            rs.load(stored).update(cube)
            grown(cube, 35, 40)
        return found

    monkeypatch.setattr(updating.NewRowFinder, "read_sums", read)
    model = rs.load(stored).update(cube)
    model = rs.load(stored).update(cube)
    assert model.n_rows_ == 40 * 8
    assert MomentStore.open(stored).ids() == ["fit", "time 30:35", "time 35:40"]


def test_an_update_that_another_overtook_reads_what_is_left(cube, stored, monkeypatch):
    grown(cube, 30, 40)
    original, raced = updating.NewRowFinder.read_sums, []

    def read(*given: Any) -> Any:
        found = original(*given)
        if not raced:  # another driver saw only five of the days
            raced.append(True)
            with monkeypatch.context() as patch:
                growth = updating.growth_of

                def five(*given: Any) -> Any:
                    found = growth(*given)
                    return type(found)(found.dim, found.start, 35)

                patch.setattr(updating, "growth_of", five)
                rs.load(stored).update(cube)
        return found

    monkeypatch.setattr(updating.NewRowFinder, "read_sums", read)
    model = rs.load(stored).update(cube)
    assert MomentStore.open(stored).ids() == ["fit", "time 30:35", "time 35:40"]
    np.testing.assert_allclose(model.moments_.sums, scratch(cube, model).sums, rtol=0, atol=1e-9)


def test_a_store_that_never_rests_is_given_up(cube, stored, monkeypatch):
    """Others commit during each read of the sums."""
    model, grows = rs.load(stored), []
    original, batches = MomentStore.groups, MomentStore.batches

    def groups(store: MomentStore) -> Any:
        grows.append(None)
        return original(store)

    monkeypatch.setattr(updating, "ATTEMPTS", 3)
    monkeypatch.setattr(updating, "answer_name", lambda *_: "another")
    monkeypatch.setattr(MomentStore, "groups", groups)
    monkeypatch.setattr(
        MomentStore, "batches", lambda store, where=None: batches(store, where) * (1 + len(grows))
    )
    with pytest.raises(ModelError, match=r"changed 3 times during an update. Run it again"):
        model.update(cube)
    assert len(grows) == 3


def test_what_is_forgotten_does_not_come_back(cube, stored):
    grown(cube, 30, 33)
    rs.load(stored).update(cube)
    store = MomentStore.open(stored)
    before = store.total(where=["fit"])
    store.forget("time 30:33")
    model = rs.load(stored).update(cube)
    assert model.n_rows_ == 30 * 8 and store.ids() == ["fit"]
    assert np.array_equal(model.moments_.sums, before.sums), "bit for bit as never seen"


def test_hold_outs_and_conditions_of_the_fit_hold_for_new_rows(tmp_path, cube):
    where = [rs.HoldOut(0.3, 1), ("u", "<", 1.0)]
    model = ridge().fit(cube, "t", inputs=["u", "v"], where=where)
    model.save(tmp_path / "M.zarr", moments=True)
    grown(cube, 30, 40)
    updated = rs.load(tmp_path / "M.zarr").update(cube)
    every = ridge(features=model.features_).fit(cube, "t", inputs=["u", "v"], where=where)
    assert updated.n_rows_ == every.n_rows_
    assert updated.n_missing_ == every.n_missing_


def test_a_named_batch_is_counted_once(tmp_path, stored):
    other = grown(tmp_path / "other.zarr", 0, 4)
    model = rs.load(stored)
    model.update(other, batch="south").update(other, batch="south")
    assert model.n_rows_ == 34 * 8
    shutil.rmtree(other)
    grown(other, 0, 3)
    with pytest.raises(ModelError, match="'south' was counted before with other rows"):
        rs.load(stored).update(other, batch="south")


def test_every_label_is_a_batch(tmp_path, cube, stored):
    """Two files that share a day: the day is counted once; changed rows of it are refused."""
    data = days(100, 103)
    model = rs.load(stored).update(data, by="time.dayofyear")
    assert model.n_rows_ == 33 * 8
    model.update(days(101, 104), by="time.dayofyear")
    assert model.n_rows_ == 34 * 8
    assert MomentStore.open(stored).ids()[1:] == [
        f"time.dayofyear={d}" for d in (101, 102, 103, 104)
    ]
    with pytest.raises(ModelError, match=r"'time.dayofyear=102' was counted before with other"):
        with xr.set_options(keep_attrs=True):
            twice = days(101, 104) * 2
        model.update(twice, by="time.dayofyear")


def test_data_that_cannot_be_told_apart_need_a_name(cube, stored):
    import xarray as xr

    chunked = xr.open_zarr(cube, chunks={}, consolidated=False)
    with pytest.raises(ModelError, match="name the rows: batch="):
        rs.load(stored).update(chunked)


def test_other_columns_are_refused(tmp_path, cube, stored):
    other = days(0, 3)
    other["u"].attrs["units"] = "km h-1"
    with pytest.raises(DataError, match=r"'u' is in 'km h-1', .*fitted on 'm s-1'"):
        rs.load(stored).update(other, batch="x")


def test_a_model_without_moments_says_so(tmp_path, cube):
    fitted(cube).save(tmp_path / "small.zarr")
    with pytest.raises(ModelError, match="no moments"):
        rs.load(tmp_path / "small.zarr").update(cube)


def test_folds_are_kept_for_the_choice_of_alpha(tmp_path, cube):
    model = fitted(cube, alpha="cv", cv=3)
    model.save(tmp_path / "M.zarr", moments=True)
    grown(cube, 30, 36)
    updated = rs.load(tmp_path / "M.zarr").update(cube)
    assert updated.n_rows_ == 36 * 8 and updated.alpha_ > 0
    assert sorted(MomentStore.open(tmp_path / "M.zarr").groups()) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["KernelDensity", "NoveltyDetector", "GaussianProcessRegressor"])
def test_every_estimator_grows(tmp_path, cube, kind):
    made: Any = {
        "KernelDensity": lambda: rs.KernelDensity(
            1.0, n_components=256, progress=False, random_state=0
        ),
        "NoveltyDetector": lambda: rs.NoveltyDetector(0.05, progress=False, random_state=0),
        "GaussianProcessRegressor": lambda: rs.GaussianProcessRegressor(
            n_components=200, noise=0.1, progress=False, random_state=0
        ),
    }[kind]()
    target = {"y": "t"} if kind.startswith("Gauss") else {}
    made.fit(cube, inputs=["u", "v"], **target).save(tmp_path / "M.zarr", moments=True)
    grown(cube, 30, 40)
    model = rs.load(tmp_path / "M.zarr").update(cube)
    assert model.n_rows_ == 40 * 8
    again = rs.load(tmp_path / "M.zarr")
    new = days(50, 51)
    value = "score_samples" if hasattr(model, "score_samples") else "predict"
    assert np.array_equal(getattr(again, value)(new), getattr(model, value)(new))


def test_the_command_says_what_it_counted(cube, stored):
    grown(cube, 30, 33)

    def run(*words: object) -> Any:
        return CliRunner().invoke(main, [str(word) for word in words])

    found = run("update", stored, cube, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["added"] == {"time 30:33": 24}
    assert "nothing is new" in run("update", stored, cube).stdout
    shown = json.loads(run("inspect", stored, "--json").stdout)
    assert [batch["id"] for batch in shown["batches"]] == ["fit", "time 30:33"]
    assert shown["n_rows"] == 33 * 8
    zarr.open_group(cube)["u"][3, 0] = 99.0
    refused = run("update", stored, cube)
    assert refused.exit_code == 3 and "changed in time 0:5" in refused.stderr
    assert run("update", stored, cube, "--batch", "a", "--by", "b").exit_code == 2


def test_the_content_of_a_named_batch_is_all_of_it():
    def cube(values: Any) -> xr.Dataset:
        return xr.Dataset({"y": ("i", values), "x": ("i", np.linspace(0, 1, 20_000))})

    values = np.random.default_rng(0).normal(size=20_000)
    model = rs.KernelRidge(n_components=16, length_scale=1.0, random_state=0, progress=False)
    model.fit(cube(values + 1), "y").update(cube(values), batch="k")
    assert model.update(cube(values), batch="k").n_rows_ == 40_000
    values[1:4] = 1e6
    with pytest.raises(ModelError, match="'k' was counted before with other rows"):
        model.update(cube(values), batch="k")
