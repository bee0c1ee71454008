"""Faults that need no process of their own, and the table of all of them: see faults.md."""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
import zarr

import rff_stream as rs
from faulttable import TABLE, rows
from places import ROOT, TESTS
from rff_stream.errors import ClusterError, DataError
from rff_stream.execution import scheduler as clusters
from rff_stream.execution.leaves import Job

N = 3000


@pytest.fixture
def store(rng: np.random.Generator, tmp_path: Path) -> Path:
    """Columns a, b and t in chunks of 500 rows with a checksum."""
    path = tmp_path / "table.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    a, b = rng.normal(size=(2, N))
    for name, column in {"a": a, "b": b, "t": np.sin(a) + b}.items():
        checked = zarr.codecs.Crc32cCodec()
        group.create_array(
            name,
            data=column,
            chunks=(500,),
            compressors=[checked],
            fill_value=0,
            dimension_names=["row"],
        )
    return path


def collect(X: Any, y: Any = "t", **choices: Any) -> rs.Moments:
    features = rs.FourierFeatures.sample(rs.Gaussian(1.5), 2, 32, rng=0)
    names = ["a", "b"] if isinstance(X, Path) else None
    found: rs.Moments = rs.collect(features, X, y, inputs=names, progress=False, **choices)
    return found


# -------------------------------------------------------------------------------------- the table


def test_every_fault_has_its_row() -> None:
    names = [row.name for row in rows(TABLE.read_text())]
    counts = {group: sum(name[0] == group for name in names) for group in "ABCDEF"}
    assert names == [f"{group}{i + 1}" for group, count in counts.items() for i in range(count)]
    least = {
        "A": 29,
        "B": 27,
        "C": 24,
        "D": 18,
        "E": 9,
        "F": 15,
    }  # of the list that the design began with
    assert all(counts[group] >= count for group, count in least.items())


@pytest.mark.slow
def test_every_row_has_a_test_that_exists_or_a_reason() -> None:
    known = {
        f"{path.stem}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    for row in rows(TABLE.read_text()):
        assert bool(row.tests) != bool(row.reason), row.name
        assert {test for test, _ in row.tests} <= known, row.name


@pytest.mark.parametrize(("attack", "count"), [("first", 29), ("third", 13)])
def test_every_fault_of_an_attack_has_rows_in_the_table(attack: str, count: int) -> None:
    text = TABLE.read_text()
    known = {row.name: row for row in rows(text)}
    own = text.split(f"### The {attack} attack\n")[1].split("\n### ")[0]
    cells = re.findall(r"\| (\d+) [^|]+\| ([A-F]\d+(?:, [A-F]\d+)*) (?=\|)", own)
    assert sorted(int(number) for number, _ in cells) == list(range(1, count + 1))
    for _, names in cells:
        assert any(known[name].tests for name in names.split(", "))


def test_a_row_knows_its_tests() -> None:
    (row,) = rows("| A1 | fault | seen | `test_a::test_b` `test_a::test_c[two words]` |")
    assert row.shown_by("tests/test_a.py::test_b[any]")
    assert row.shown_by("tests/test_a.py::test_c[x-two words-y]")
    assert not row.shown_by("tests/test_a.py::test_c[x]")
    assert not row.shown_by("tests/test_b.py::test_b")


# ----------------------------------------------------------------------------- cluster, processes

SUMS = """
import sys
import numpy as np
import rff_stream as rs
x = np.random.default_rng(0).normal(size=(5000, 3))
features = rs.FourierFeatures.sample(rs.Gaussian(), 3, 64, rng=0)
found = rs.collect(features, x, x[:, 0] ** 2, sums="float64", progress=False)
np.save(sys.argv[1], found.matrix())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 kernels")
def test_other_cpus_differ_by_rounding_alone(tmp_path: Path) -> None:
    found = []
    for core in ("Haswell", "Sandybridge"):
        path = tmp_path / f"{core}.npy"
        known = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", SUMS, path], env=known, check=True, timeout=120)
        found.append(np.load(path))
    # Features are float32: a cosine may round either way. Sums are float64.
    scale = np.sqrt(np.outer(np.diag(found[0]), np.diag(found[0])))
    assert np.abs(found[0] - found[1]).max() <= 8 * np.finfo(np.float32).eps * scale.max()


class Answering:
    """A client whose scheduler and workers have some versions."""

    def __init__(self, **changed: str) -> None:
        self._versions = clusters.versions_question()() | changed

    def run_on_scheduler(self, function: Any) -> dict[str, str | None]:
        return clusters.versions_question()()

    def run(self, function: Any) -> dict[str, dict[str, str | None]]:
        return {"tcp://127.0.0.1:1": dict(self._versions)}


@pytest.mark.parametrize("package", ["rff_stream", "numpy", "scipy"])
def test_what_decides_the_bits_must_be_the_same_everywhere(package: str) -> None:
    clusters.check_versions(Answering())
    mine = clusters.versions_question()()[package]
    words = rf"{package} {mine} but tcp://127.0.0.1:1 has 0\.1"
    with pytest.raises(ClusterError, match=words):
        clusters.check_versions(Answering(**{package: "0.1"}))


# ------------------------------------------------------------------------------------------- data


def test_a_flipped_bit_is_named_where_the_codec_has_a_checksum(store: Path) -> None:
    chunk = store / "a/c/3"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 4
    chunk.write_bytes(content)
    with pytest.raises(DataError, match=r"table.zarr: chunk c/3 of array 'a'"):
        collect(store)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_a_flipped_bit_in_parquet_is_an_error_where_pages_have_checksums(
    compression: str, tmp_path: Path
) -> None:
    """The checksum is of a page without its header; a flip there is an error or changes nothing."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=300) for name in "ab"} | {"k": rng.integers(0, 9, 300)}
    pq.write_table(
        pa.table(table), tmp_path / "whole.parquet", compression=compression,
        row_group_size=100, write_page_checksum=True,
    )  # fmt: skip

    def fitted(name: str) -> bytes:
        model = rs.KernelRidge(
            n_components=16, length_scale=1.0, alpha=1.0, random_state=0, progress=False
        )
        return model.fit(tmp_path / name, "b").predict(np.eye(2)).tobytes()

    content, expected = (tmp_path / "whole.parquet").read_bytes(), fitted("whole.parquet")
    footer, errors = int.from_bytes(content[-8:-4], "little") + 8, []
    for place in rng.integers(4, len(content) - footer, 40).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "damaged.parquet").write_bytes(damaged)
        try:
            assert fitted("damaged.parquet") == expected
        except DataError as error:
            errors.append(str(error))
    assert len(errors) > 30
    assert all("could not be read" in each for each in errors)


def test_temporary_and_predicted_tables_have_checksums(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from rff_stream.cli.tables import writer
    from rff_stream.sources.arrow_and_parquet import written

    table = pa.table({"a": np.random.default_rng(0).normal(size=1000)})
    with writer(str(tmp_path / "out.parquet"), table.schema) as write:
        write(table)
    _, folder = written(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), ["a"])
    for path in (tmp_path / "out.parquet", folder.rows):
        content = bytearray(path.read_bytes())
        content[1000] ^= 1
        (tmp_path / "damaged.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"'a' could not be read: .*CRC"):
            rs.KernelDensity(n_components=16, progress=False).fit(tmp_path / "damaged.parquet")


def test_rows_that_were_announced_but_not_written_are_refused(store: Path) -> None:
    group = zarr.open_group(store, mode="r+")
    for name in ("a", "b", "t"):
        group[name].resize((N + 1000,))
    with pytest.raises(DataError, match=r"chunk c/[67] of array '[abt]' is absent"):
        collect(store)


def test_stale_consolidated_metadata_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "cube.zarr"
    a = np.arange(20.0)
    data = xr.Dataset({"a": ("row", a), "b": ("row", a**2), "t": ("row", -a)})
    data.isel(row=slice(10)).to_zarr(path, consolidated=True)
    data.isel(row=slice(10, 20)).to_zarr(path, append_dim="row", consolidated=False)
    assert collect(path).n == 20


def test_new_data_under_the_same_path_are_read(store: Path) -> None:
    from distributed import Client

    with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0"):
        before = collect(store)
        column = zarr.open_array(store / "t", mode="r+")
        column[...] = 2 * column[...]
        after = collect(store)
    assert after.n == before.n
    assert not np.array_equal(after.sums, before.sums)


def test_data_that_change_under_a_fit_are_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Job.run
    calls: list[int] = []

    def run(self: Job, leaf: Any, *values: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:  # the first is the pilot's
            column = zarr.open_array(store / "b", mode="r+")
            column[:10] = 0.5
        return plain(self, leaf, *values)

    monkeypatch.setattr(Job, "run", run)
    with dask.config.set(scheduler="sync"), pytest.raises(DataError, match="changed"):
        collect(store)
    assert len(calls) >= 2


def test_a_chunk_that_swells_is_named(store: Path) -> None:
    """A few kilobytes that decode to 64 MiB where 4 kB belong."""
    group = zarr.open_group(store, mode="r+")
    made = group.create_array("z", shape=(N,), chunks=(500,), dtype="f8", dimension_names=["row"])
    made[...] = 1.0
    path, size = store.parent / "o.zarr", 1 << 23
    other = zarr.create_array(path, shape=(size,), chunks=(size,), dtype="f8")
    other[...] = 1.0
    bomb = (path / "c/0").read_bytes()
    assert len(bomb) < 1 << 16
    (store / "z/c/2").write_bytes(bomb)
    with pytest.raises(DataError, match=r"chunk c/2 of array 'z'"):
        collect(store, "z")


# ---------------------------------------------------------------------------------------- numerics


def test_a_tiny_length_scale_fits(rng: np.random.Generator) -> None:
    x = rng.normal(size=(400, 2))
    model = rs.KernelRidge(length_scale=1e-6, n_components=64, alpha=1.0, random_state=0)
    assert np.isfinite(model.fit(x, x[:, 0]).predict(x)).all()


# ----------------------------------------------------------------------------------------- scripts

SCRIPT = """
import numpy as np
import rff_stream as rs
x = np.random.default_rng(0).normal(size=(2000, 2))
print(rs.KernelRidge(n_components=32, alpha=1.0, random_state=0).fit(x, x[:, 0]).score(x, x[:, 0]))
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_fits(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    known = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], env=known, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.9
