"""A model with moments that was changed anywhere is refused, and the file is named."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import rff_stream as rs
from growing import fitted, grown
from rff_stream.cli import main
from rff_stream.errors import ModelError

EACH = 60


def files_of(root: Path) -> list[str]:
    """Names of all files, in order."""
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model that was updated once."""
    folder = tmp_path_factory.mktemp("mutants")
    cube = grown(folder / "cube.zarr", 0, 10)
    fitted(cube, n_components=4).save(folder / "M.zarr", moments=True)
    grown(cube, 10, 12)
    rs.load(folder / "M.zarr").update(cube)
    return folder / "M.zarr"


def flipped(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(data))


def cut(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])


def longer(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes() + rng.randbytes(rng.randint(1, 9)))


def deleted(file: Path, rng: random.Random) -> None:
    file.unlink()


def linked(file: Path, rng: random.Random) -> None:
    """The very same bytes, behind a link."""
    root = next(parent for parent in file.parents if parent.name == "M.zarr")
    target = root.parent / "elsewhere"
    target.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(target)


def swapped(file: Path, rng: random.Random) -> None:
    """Another file of the model takes its place, and it that of the other."""
    root = next(parent for parent in file.parents if parent.name == "M.zarr")
    others = [root / name for name in files_of(root) if root / name != file]
    other = rng.choice([o for o in others if o.read_bytes() != file.read_bytes()])
    mine = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(mine)


CHANGES: list[Callable[[Path, random.Random], None]] = [
    flipped, cut, longer, deleted, linked, swapped,
]  # fmt: skip


def put_back(root: Path, kept: dict[str, bytes]) -> None:
    for name, data in kept.items():
        file = root / name
        if file.is_symlink() or not file.is_file() or file.read_bytes() != data:
            file.unlink(missing_ok=True)
            file.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_sixty_changes_are_refused(model, change):
    """360 in all, spread over every file; the message names a file of the model."""
    rng = random.Random(change.__name__)
    kept = {name: (model / name).read_bytes() for name in files_of(model)}
    prediction = rs.load(model).predict(np.zeros((2, 2)))
    for number in range(EACH):
        name = list(kept)[number % len(kept)]
        if change is deleted and name == "log/00000000000000000001/zarr.json":
            continue  # a store of an earlier day: only who kept the head can tell
        change(model / name, rng)
        with pytest.raises(ModelError) as caught:
            rs.load(model)
        said = str(caught.value)
        named = any(f"{model}/{part}" in said for part in kept)
        root = name.partition("/log/")[0] if name.startswith("answers/") else ""
        place = model / root.removesuffix("/zarr.json")
        assert named or f"{place} is not a model of rff_stream" in said, (name, said)
        put_back(model, kept)
    assert np.array_equal(rs.load(model).predict(np.zeros((2, 2))), prediction)


@pytest.mark.parametrize("verb", ["update", "forget"])
@pytest.mark.parametrize("shell", [False, True], ids=["", "shell"])
def test_an_error_after_the_commit_says_what_was_committed(tmp_path, verb, shell):
    """A batch that was damaged meanwhile: the answer fails, the commit before it counts."""
    cube, path = grown(tmp_path / "cube.zarr", 0, 10), tmp_path / "M.zarr"
    fitted(cube, n_components=4).save(path, moments=True)
    first = next(path.glob("data/*/weights/zarr.json"))
    for start in (10, 12, 14):
        grown(cube, start, start + 2)
        if start < 14:
            rs.load(path).update(cube)
    stored = rs.load(path)
    second = stored.batches()[1].id  # no answer without it was kept
    kept = first.read_bytes()
    flipped(first, random.Random(0))
    said = f"The new rows are counted, but the model could not be solved: {path}"
    if verb == "forget":
        said = said.replace("new rows are counted", "batches are forgotten")
    if shell:
        words = [verb, str(path), str(cube) if verb == "update" else second]
        result = CliRunner().invoke(main, words)
        assert (result.exit_code, said in result.output) == (4, True), result.output
    else:
        with pytest.raises(ModelError, match=re.escape(said)):
            stored.update(cube) if verb == "update" else stored.forget(second)
    first.write_bytes(kept)
    assert rs.load(path).n_rows_ == (128 if verb == "update" else 96)
