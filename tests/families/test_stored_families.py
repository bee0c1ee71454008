"""The third attack: what came after the second. Cells, grids, losses, classes, kept answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.errors import ModelError

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
CELLS = {"features": rs.Cells(16, 2, 8), "length_scale": 1.0, **QUIET}
GRID = {"features": rs.Grid(modes=(6, 6)), "length_scale": 1.0, **QUIET}

KINDS: dict[str, Callable[[], Any]] = {
    "cells": lambda: rs.KernelRidge(**CELLS),
    "process of cells": lambda: rs.GaussianProcessRegressor(**CELLS),
    "grid": lambda: rs.KernelRidge(**GRID),
    "process on a grid": lambda: rs.GaussianProcessRegressor(**GRID),
}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return KINDS[request.param]


def rows(n: int, seed: int, offset: float = 0.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.normal(size=n) + offset


def saved(made: Callable[[], Any], path: Path, n: int = 300) -> Path:
    made().partial_fit(*rows(n, 0), batch="0").save(path, moments=True)
    return path


AT = rows(50, 9)[0]


def test_a_forgotten_batch_leaves_nothing(made, tmp_path):
    path = saved(made, tmp_path / "M.zarr")
    before = rs.load(path).predict(AT)
    rs.load(path).update(*rows(200, 1, 100), batch="bad")
    assert np.abs(rs.load(path).predict(AT) - before).max() > 1
    rs.MomentStore.open(path).forget("bad")
    again = rs.load(path)
    assert again.n_rows_ == 300
    np.testing.assert_allclose(again.predict(AT), before, atol=1e-6)


def test_a_batch_counts_once_and_only_as_it_was(made, tmp_path):
    path = saved(made, tmp_path / "M.zarr")
    model = rs.load(path).update(*rows(100, 1), batch="b")
    assert model.update(*rows(100, 1), batch="b").n_rows_ == 400
    x, y = rows(100, 1)
    y[3] = np.nextafter(y[3], 9)
    with pytest.raises(ModelError, match="counted before with other rows"):
        model.update(x, y, batch="b")


def test_an_overwritten_or_moved_model_is_missed(made, tmp_path):
    path = saved(made, tmp_path / "M.zarr")
    model = rs.load(path)
    os.rename(path, tmp_path / "away")
    with pytest.raises(ModelError):
        model.update(*rows(20, 1), batch="q")
    os.rename(tmp_path / "away", path)
    assert model.update(*rows(20, 1), batch="q").n_rows_ == 320
    made().fit(*rows(250, 5)).save(path, moments=True, overwrite=True)
    with pytest.raises(ModelError, match="no longer what was opened"):
        model.update(*rows(20, 2), batch="r")
    assert rs.load(path).n_rows_ == 250


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: (np.where(x == x[3, 1], np.nan, x), y),
        lambda x, y: (x, np.where(np.arange(len(y)) == 2, np.inf, y)),
        lambda x, y: (np.c_[x, x[:, 0]], y),
        lambda x, y: (x, np.c_[y, y]),
        lambda x, y: (x * 1e200, y),
        lambda x, y: (x, y[:-1]),
    ],
    ids=["NaN", "infinite target", "a column more", "a target more", "1e200", "a target less"],
)
def test_what_no_update_should_meet_leaves_the_model(made, wrong):
    model = made().partial_fit(*rows(300, 0), batch="0")
    before = model.predict(AT)
    words = "NaN|infinity|features|targets|range of float64|too large|outside|inconsistent"
    with pytest.raises(ValueError, match=words):
        model.update(*wrong(*rows(20, 1)), batch="w")
    assert model.n_rows_ == 300
    assert np.array_equal(model.predict(AT), before)


@pytest.mark.slow
def test_handles_and_threads_lose_nothing(made, tmp_path):
    path = saved(made, tmp_path / "M.zarr")
    models = [rs.load(path) for _ in range(3)]
    errors: list[Exception] = []

    def count(i: int) -> None:
        try:
            models[i % 3].update(*rows(20, 60 + i), batch=f"t{i}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=count, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert rs.load(path).n_rows_ == rs.MomentStore.open(path).verify().rows == 420


def test_flipped_bits_do_not_load(made, tmp_path):
    path = saved(made, tmp_path / "M.zarr")
    rs.load(path).update(*rows(50, 1), batch="1")
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
    rng = np.random.default_rng(0)
    for file in rng.choice(np.array(files), 10, replace=False):
        data = file.read_bytes()
        place = int(rng.integers(len(data)))
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(ModelError):
            rs.load(path)
        file.write_bytes(data)


@pytest.mark.filterwarnings("ignore:.*one input alone")  # length-scales that are too long
def test_what_is_asked_of_a_loaded_grid_is_its_own(tmp_path):
    """with_kernel answers for another kernel; what is stored stays as it was."""
    path = saved(KINDS["process on a grid"], tmp_path / "M.zarr")
    model = rs.load(path)
    before = model.predict(AT)
    other = model.with_kernel(rs.Gaussian(5.0))
    assert np.abs(other.predict(AT) - before).max() > 1e-3
    assert np.array_equal(model.predict(AT), before)
    assert np.array_equal(rs.load(path).predict(AT), before)
