"""A sum of thousands of batches reads the sums of blocks, which are kept; the bits are the same."""

from __future__ import annotations

import itertools
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import rff_stream as rs
from rff_stream.errors import ModelError
from rff_stream.store import ModelPlace, MomentStore, block_sums, keep_sums
from rff_stream.store import batch_reading as reading
from store_cases import a_row, same_moments, some_moments

pytestmark = pytest.mark.usefixtures("quiet")
NAMES = [f"day{i:03d}" for i in range(60)]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sums, "LENGTH", 8)
    monkeypatch.setattr(block_sums, "FEWEST", 3)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders of the batches that were read, of stores inside too."""
    found: list[str] = []
    plain = reading.read_batch

    def counted(log: Any, batch: Any, *rest: Any) -> Any:
        found.append(f"{log.files.place}/{batch.id}")
        return plain(log, batch, *rest)

    for module in (reading, block_sums):
        monkeypatch.setattr(module, "read_batch", counted)
    return found


def new_store(path: Path | str, names: list[str] = NAMES) -> MomentStore:
    store = MomentStore.create(path, a_row())
    for i, name in enumerate(names):
        store.append(name, some_moments(i))
    return store


def keep(store: MomentStore, path: Path) -> None:
    keep_sums(ModelPlace.of(store.log, path, None), store)


def kept(path: Path) -> set[str]:
    return {each.name for each in (path / "sums").glob("*") if each.is_dir()}


@pytest.mark.slow
def test_one_batch_more_changes_one_block(tmp_path: Path) -> None:
    batches = new_store(tmp_path / "S").batches()
    blocks = block_sums.blocks_of(batches)
    assert list(itertools.chain(*blocks)) == batches and len(blocks) > 3
    for i in range(len(batches)):
        fewer = block_sums.blocks_of(batches[:i] + batches[i + 1 :])
        others = [block for block in blocks if batches[i] not in block]
        assert len([block for block in others if block not in fewer]) <= 1  # one that it ended


@pytest.mark.slow
def test_a_sum_has_the_same_bits_whether_blocks_are_kept(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "S"
    store = new_store(path)
    plain = store.groups()[None]
    assert len(reads) == 60 and not kept(path)
    keep(store, path)
    reads.clear()
    assert same_moments(store.groups()[None], plain)
    assert same_moments(MomentStore.open(path).groups()[None], plain)
    short = sum(len(b) for b in block_sums.blocks_of(store.batches()) if len(b) < 3)
    newest = next(b for b in block_sums.blocks_of(store.batches()) if b[-1].id == NAMES[-1])
    assert len(reads) == 2 * (len(kept(path)) + short + len(newest) * (len(newest) >= 3))
    np.testing.assert_allclose(plain.sums, store.total().sums, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_sums_of_blocks_that_changed_go(tmp_path: Path) -> None:
    path = tmp_path / "S"
    store = new_store(path)
    keep(store, path)
    before = kept(path)
    gone = max(block_sums.blocks_of(store.batches())[:-1], key=len)[1]
    store.forget(gone.id)
    plain = new_store(tmp_path / "other", NAMES)
    plain.forget(gone.id)
    assert same_moments(store.groups()[None], plain.groups()[None])
    keep(store, path)
    assert len(before - kept(path)) == 1 and len(kept(path) - before) == 1
    assert same_moments(store.groups()[None], plain.groups()[None])


@pytest.mark.slow
def test_kept_sums_verify_and_a_damaged_one_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "S"
    store = new_store(path)
    keep(store, path)
    assert store.verify().unnamed == []
    plain = store.groups()[None]
    (name, *_) = sorted(kept(path))
    file = next(each for each in (path / "sums" / name / "data").rglob("c/*") if each.is_file())
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(bytes(data))
    for act in (store.groups, store.verify):
        with pytest.raises(ModelError, match=rf"{name}.*Or remove .*{name}: it is a cache"):
            act()
    shutil.rmtree(path / "sums" / name)
    assert same_moments(store.groups()[None], plain)


@pytest.mark.slow
def test_a_sum_that_another_driver_removes_is_made_of_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "S"
    store = new_store(path)
    keep(store, path)
    plain, names = store.groups()[None], kept(path)
    shutil.rmtree(path / "sums")
    listings = iter([names])
    monkeypatch.setattr(block_sums, "kept_sums", lambda log: next(listings, set()))
    assert same_moments(store.groups()[None], plain)


def test_another_driver_may_keep_sums_first(tmp_path: Path) -> None:
    """Its folder is there, and no sum in it yet: two watches of one model."""
    path = tmp_path / "S"
    store = new_store(path)
    keep(store, path)
    names = kept(path)
    for name in names:
        shutil.rmtree(path / "sums" / name)
    keep(store, path)
    assert kept(path) == names and store.verify().unnamed == []


@pytest.mark.slow
def test_sums_behind_a_url(reads: list[str]) -> None:
    url = f"memory://{uuid.uuid4().hex}/S"
    store = new_store(url, NAMES[:40])
    plain = store.groups()[None]
    keep_sums(ModelPlace.of(store.log, url, None), store)
    reads.clear()
    assert same_moments(MomentStore.open(url).groups()[None], plain) and len(reads) < 40
    assert store.verify().unnamed == []
    system, place = MemoryFileSystem(), url.removeprefix("memory:/")
    for name in system.ls(f"{place}/sums", detail=False):  # a driver died before it committed
        if system.isdir(f"{name}/log"):
            system.rm(f"{name}/log", recursive=True)
    assert MomentStore.open(url).verify().unnamed
    assert same_moments(MomentStore.open(url).groups()[None], plain)


@pytest.mark.slow
def test_old_sums_are_garbage(tmp_path: Path) -> None:
    path = tmp_path / "S"
    store = new_store(path)
    keep(store, path)
    long = next(b for b in block_sums.blocks_of(store.batches()) if len(b) >= 3)
    store.forget(long[0].id)
    week_ago = time.time() - 7 * 86_400
    for each in [*path.rglob("*"), path]:
        os.utime(each, (week_ago, week_ago))
    removed = [name for name in store.gc() if name.startswith("sums/")]
    assert len(removed) == 1 and store.verify().unnamed == []


@pytest.mark.slow
def test_an_update_among_many_files_reads_few_batches(tmp_path: Path, reads: list[str]) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "days").mkdir()
    for i in range(42):
        day = pd.DataFrame(rng.normal(size=(20, 2)), columns=["u", "t"])
        day.to_parquet(tmp_path / ("days" if i < 40 else "") / f"day{i:03d}.parquet")
    model = rs.KernelRidge(n_components=8, random_state=0, progress=False)
    model.fit(tmp_path / "days", "t").save(tmp_path / "model.zarr", moments=True)
    rs.load(tmp_path / "model.zarr").update(tmp_path / "day040.parquet")  # keeps the sums
    loaded = rs.load(tmp_path / "model.zarr")
    reads.clear()
    loaded.update(tmp_path / "day041.parquet")
    assert len(reads) < 40 and kept(tmp_path / "model.zarr")
    for i in (40, 41):
        model.update(tmp_path / f"day{i:03d}.parquet")
    x = np.linspace(-1, 1, 20)[:, None]
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-10, atol=1e-10)
    assert loaded.n_rows_ == 42 * 20
