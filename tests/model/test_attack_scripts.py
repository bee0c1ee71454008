"""The scripts of the first attack, as they were written, each with its right outcome."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from faulttable import TABLE
from faulttable import rows as rows_of
from rff_stream.errors import DataError, ModelError, PlanError


def rows(n: int, seed: int, offset: float = 0.0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return x, np.sin(x[:, 0]) + x[:, 1] ** 2 + offset


def ridge(**choices: Any) -> rs.KernelRidge:
    given = {"n_components": 64, "length_scale": 1.0, "alpha": 1e-6, "random_state": 0}
    return rs.KernelRidge(**{**given, "progress": False, **choices})


def collect(model: Any, store: Any, x: Any, y: Any) -> Any:
    return rs.collect(model.features_, x, y, row=store.row, progress=False)


def test_script_2_a_batch_in_place_of_another_of_equal_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    model = ridge().partial_fit(*rows(300, 0), batch="0")
    model.save(path, moments=True)
    store = rs.MomentStore.open(path)
    store.append("bad", collect(model, store, *rows(500, 1, 100)))
    live = rs.load(path)
    store.forget("bad")
    store.append("good", collect(model, store, *rows(500, 1)))
    live.update(*rows(300, 0), batch="0")
    assert rs.load(path).score(*rows(500, 2)) > 0.99  # -1604 before


def test_script_3_a_model_overwritten_under_a_loaded_one(tmp_path: Path) -> None:
    path = tmp_path / "b"
    ridge(length_scale=3.0).fit(*rows(300, 0)).save(path, moments=True)
    loaded = rs.load(path)
    ridge().fit(*rows(300, 0)).save(path, moments=True, overwrite=True)
    with pytest.raises(ModelError, match="is no longer what was opened"):
        loaded.partial_fit(*rows(3000, 1), batch="q")
    assert rs.load(path).score(*rows(500, 2)) > 0.99  # -37 before


def test_script_4_what_a_mask_hides_is_no_number() -> None:
    x, y = rows(300, 0)
    hidden = np.ma.array(y, mask=np.arange(300) == 7)
    hidden.data[7] = 9.97e36
    predicted = ridge(missing_rows="drop").fit(x, hidden).predict(x[:2])
    assert np.allclose(predicted, y[:2], atol=0.2)  # 3e34 before


def test_script_5_the_same_groups_count_once(tmp_path: Path) -> None:
    line = np.arange(400.0)
    columns = {"y": ("t", np.sin(line / 50)), "x": ("t", line), "g": ("t", line // 200)}
    xr.Dataset(columns).to_zarr(tmp_path / "t.zarr", consolidated=False)
    path = str(tmp_path / "t.zarr")
    model = ridge(length_scale=20.0).fit(path, "y", inputs=["x"], by="g")
    assert model.update(path, by="g").n_rows_ == 400  # 800 before


def test_script_6_a_warning_as_an_error_leaves_the_model() -> None:
    choices: dict[str, Any] = {"n_components": 200, "alpha": 1e-12, "length_scale": 50.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ridge(sums="float32", **choices).partial_fit(*rows(400, 0), batch="a")
        warnings.simplefilter("error")
        with pytest.raises(Warning):
            model.update(*rows(100, 1), batch="b")
        warnings.simplefilter("ignore")
        assert model.update(*rows(100, 1), batch="b").n_rows_ == 500  # 600 before


def test_script_7_a_refused_stream_leaves_the_model() -> None:
    model = ridge().partial_fit(*rows(500, 0), batch="a")
    with pytest.raises(PlanError, match="are needed"):
        next(model.stream(*rows(500, 0)))
    assert model.partial_fit(*rows(500, 0), batch="a").n_rows_ == 500  # 1000 before


def test_script_8_all_values_of_a_named_batch_are_compared() -> None:
    def data(values: Any) -> xr.Dataset:
        return xr.Dataset({"y": ("i", values), "x": ("i", np.linspace(0, 1, 20_000))})

    values = np.zeros(20_000)
    model = ridge().fit(data(values + 1), "y").update(data(values), batch="k")
    values[1:4] = 1e6
    with pytest.raises((DataError, ModelError), match="counted before with other rows"):
        model.update(data(values), batch="k")  # "nothing new" before


def test_script_9_a_store_overwritten_under_a_handle(tmp_path: Path) -> None:
    path = tmp_path / "c"
    model = ridge().fit(*rows(300, 0))
    model.save(path, moments=True)
    store = rs.MomentStore.open(path)
    batch = collect(model, store, *rows(9, 1))
    model.save(path, moments=True, overwrite=True)
    with pytest.raises(ModelError, match="is no longer what was opened"):
        store.append("x", batch)
    assert rs.load(path).n_rows_ == 300  # destroyed before


def test_script_10_a_backup_restored_under_a_handle(tmp_path: Path) -> None:
    path, backup = tmp_path / "d", tmp_path / "backup"
    model = ridge().fit(*rows(300, 0))
    model.save(path, moments=True)
    shutil.copytree(path, backup)
    store = rs.MomentStore.open(path)
    store.append("1", collect(model, store, *rows(9, 1)))
    shutil.rmtree(path)
    shutil.move(backup, path)
    other = rs.MomentStore.open(path)
    other.append("2", collect(model, other, *rows(9, 2)))
    with pytest.raises(ModelError, match="is no longer what was opened"):
        store.append("3", collect(model, other, *rows(9, 3)))
    assert rs.load(path).n_rows_ == 309


@pytest.mark.parametrize(("attack", "count"), [("first", 29), ("third", 13)])
def test_every_fault_of_an_attack_has_rows_in_the_table(attack: str, count: int) -> None:
    text = TABLE.read_text()
    known = {row.name: row for row in rows_of(text)}
    own = text.split(f"### The {attack} attack\n")[1].split("\n### ")[0]
    cells = re.findall(r"\| (\d+) [^|]+\| ([A-F]\d+(?:, [A-F]\d+)*) (?=\|)", own)
    assert sorted(int(number) for number, _ in cells) == list(range(1, count + 1))
    for _, names in cells:
        assert any(known[name].tests for name in names.split(", "))
