"""The bits of a fit: the same whatever runs it, after a kill, and as they were before a change.

What is recorded, and how it is made anew, is in :mod:`recording`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

import recording
from processes import Processes, connected
from recording import MAPS, MODELS, SUMS, Digests

SAME_LEAVES = {"NumPy": "DataFrame", "Dask": "Zarr"}
"""Containers whose chunks are equal, and so are the leaves of their passes."""

IN_MEMORY = ("KernelRidge, evidence", "KernelClassifier, squared", "by label")
"""What NumPy and a frame are compared by where minutes count."""


@pytest.fixture(autouse=True)
def small_leaves() -> Iterator[None]:
    with recording.small_leaves():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Callable[[str, str], Digests]:
    """Digests of a whole fit in threads, by model (or sums) and container; each made once."""
    known: dict[tuple[str, str], Digests] = {}

    def made(name: str, container: str) -> Digests:
        if (name, container) not in known:
            known[name, container] = digests(name, container, folder)
        return known[name, container]

    return made


def digests(name: str, container: str, folder: Path) -> Digests:
    given = recording.containers(folder)[container]
    if name in MODELS:
        return recording.digests_of_model(recording.fit(name, given), container)
    return {"sums": recording.digest_of_groups(recording.collect(name, given))}


def without(names: set[str], digests: Digests) -> Digests:
    return {name: text for name, text in digests.items() if name not in names}


def slow_unless(fast: bool) -> Any:
    return () if fast else pytest.mark.slow


# Frames are arrays once they are read: two fits and sums tell that; chunks are met by all.
@pytest.mark.parametrize(
    ("container", "name"),
    [
        pytest.param(container, name, marks=slow_unless(container == "Dask" or name in IN_MEMORY))
        for container in SAME_LEAVES
        for name in (*MODELS, *SUMS)
    ],
)
def test_equal_leaves_give_equal_bits(container, name, whole):
    other = SAME_LEAVES[container]
    assert whole(name, container) == whole(name, other)


@pytest.mark.parametrize("name", [*MODELS, "by label", "by run"])
def test_threads_change_no_bit(name, whole, folder):
    """One leaf after another, as four at a time."""
    with dask.config.set(scheduler="synchronous"):
        assert digests(name, "Zarr", folder) == whole(name, "Zarr")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *SUMS])
def test_a_stopped_pass_goes_on_with_the_same_bits(name, whole, folder, tmp_path):
    given = recording.containers(folder)["Zarr"]
    run = recording.fit if name in MODELS else recording.collect
    path = tmp_path / "checkpoint"
    with pytest.raises(recording.Stopped), recording.stopping(7, recording.stop):
        run(name, given, checkpoint=path)
    assert recording.digests_of_checkpoint(path)
    found = run(name, given, checkpoint=path)
    digest = recording.digests_of_model if name in MODELS else of_groups
    assert digest(found, "Zarr") == whole(name, "Zarr")


def of_groups(groups: Any, container: str) -> Digests:
    return {"sums": recording.digest_of_groups(groups)}


def test_bits_are_those_on_file(whole, folder):
    """Of the machine at hand, where it is known: `make record` writes them anew."""
    known = recording.records().get(recording.machine())
    if known is None:
        pytest.skip(f"No digests on file for {recording.machine()}.")
    found = {
        f"{prefix}{name}; {container}": whole(name, container)
        for container in recording.containers(folder)
        for prefix, names in (("", MODELS), ("collect ", SUMS))
        for name in names
    }
    found |= {f"map {name}; NumPy": recording.digests_of_map(name, folder) for name in MAPS}
    found |= recording.digests_of_stopped(folder)
    changed = {
        name: sorted(
            what for what, text in digests.items() if known.get(name, {}).get(what) != text
        )
        for name, digests in found.items()
    }
    assert {name: what for name, what in changed.items() if what} == {}
    assert found.keys() == known.keys(), "run `make record` after a case is added"


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        found.have(2)
        with connected(found, 2) as client:
            yield client
    finally:
        found.stop()


@pytest.mark.cluster
@pytest.mark.parametrize("name", [*MODELS, *SUMS])
@pytest.mark.parametrize("container", ["NumPy", "Dask", "DataFrame", "Zarr"])
def test_two_processes_give_the_bits_of_threads(name, container, whole, folder, two_processes):
    found = digests(name, container, folder)
    with dask.config.set(scheduler="threads"):
        assert found == whole(name, container)


@pytest.mark.cluster
@pytest.mark.parametrize("name", MODELS)
def test_a_killed_fit_goes_on_with_the_same_bits(name, whole, folder, tmp_path):
    recording.containers(tmp_path)
    assert recording.killed_fit(name, tmp_path) == -signal.SIGKILL
    nodes = recording.MomentStore.open(tmp_path / "checkpoint").verify()
    assert nodes.rows == 2000, "one segment of three was written before the seventh leaf"
    given = recording.containers(tmp_path)["Zarr"]
    model = recording.fit(name, given, checkpoint=tmp_path / "checkpoint")
    assert recording.digests_of_model(model, "Zarr") == whole(name, "Zarr")
