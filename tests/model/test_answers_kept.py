"""What a model answers is as fresh after an update, or a batch forgotten, as after a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rff_stream as rs
from growing import fitted, grown
from rff_stream.cli import main
from rff_stream.errors import ModelError
from rff_stream.model import persistence as storing
from rff_stream.model import update as updating
from rff_stream.model.fitted import Fitted
from rff_stream.model.recipe import Recipe
from rff_stream.store import MomentStore

QUIET: dict[str, Any] = {"random_state": 0, "progress": False}
MADE: dict[str, Any] = {
    "KernelRidge": lambda: rs.KernelRidge(n_components=24, alpha="gcv", **QUIET),
    "GaussianProcessRegressor": lambda: rs.GaussianProcessRegressor(n_components=24, **QUIET),
    "KernelDensity": lambda: rs.KernelDensity(1.0, n_components=256, **QUIET),
    "NoveltyDetector": lambda: rs.NoveltyDetector(n_components=64, **QUIET),
    "KernelPCA": lambda: rs.KernelPCA(n_components=3, n_map_components=24, **QUIET),
}


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    return grown(tmp_path / "cube.zarr", 0, 30)


@pytest.fixture
def stored(tmp_path: Path, cube: Path) -> Path:
    """A model of 30 days, updated by three."""
    fitted(cube).save(tmp_path / "M.zarr", moments=True)
    grown(cube, 30, 33)
    rs.load(tmp_path / "M.zarr").update(cube)
    return tmp_path / "M.zarr"


@pytest.fixture
def unsolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be solved."""

    def solve(recipe: Recipe, fitted: Fitted) -> Fitted:
        raise AssertionError("solved again")

    for module in (storing, updating):
        monkeypatch.setattr(module, "solve", solve)


def same(a: Any, b: Any) -> bool:
    mine, theirs = (model._recipe().pack(model._fitted).arrays for model in (a, b))
    return mine.keys() == theirs.keys() and all(
        np.array_equal(mine[name], theirs[name], equal_nan=True) for name in mine
    )


@pytest.mark.parametrize("kind", MADE)
def test_an_updated_model_loads_as_it_was_solved(tmp_path, cube, kind, request):
    y = {"y": "t"} if "Regressor" in kind or "Ridge" in kind else {}
    path = tmp_path / "M.zarr"
    MADE[kind]().fit(cube, inputs=["u", "v"], **y).save(path, moments=True)
    grown(cube, 30, 33)
    found = rs.load(path).update(cube)
    anew = rs.load(path, where=MomentStore.open(path).ids())  # which always solves
    assert same(found, anew)
    request.getfixturevalue("unsolved")
    again = rs.load(path)
    assert same(again, found) and again.n_rows_ == found.n_rows_ == 33 * 8
    assert again.n_missing_ == found.n_missing_ == 0


def test_the_command_answers_when_it_has_counted(tmp_path, cube, request):
    path, other = tmp_path / "M.zarr", tmp_path / "N.zarr"
    for place in (path, other):
        fitted(cube).save(place, moments=True)
    grown(cube, 30, 33)
    for words in ([str(path)], [str(other), "--no-answer"]):
        done = CliRunner().invoke(main, ["update", words[0], str(cube), *words[1:]])
        assert done.exit_code == 0, done.output
    late = rs.load(other)
    assert late.n_rows_ == 33 * 8
    request.getfixturevalue("unsolved")
    assert same(rs.load(path), late)
    with pytest.raises(AssertionError, match="solved again"):
        rs.load(other)


def test_a_command_that_counts_nothing_answers_what_another_left(tmp_path, cube, request):
    """Killed between its commit and its answer, or told not to answer."""
    path = tmp_path / "M.zarr"
    fitted(cube).save(path, moments=True)
    grown(cube, 30, 33)
    for more, answers in ((["--no-answer"], 1), ([], 2), ([], 2)):
        done = CliRunner().invoke(main, ["update", str(path), str(cube), *more])
        assert done.exit_code == 0, done.output
        assert len(MomentStore.open(path).log.files.folders("answers")) == answers
    assert "nothing is new" in done.output
    request.getfixturevalue("unsolved")
    assert rs.load(path).n_rows_ == 33 * 8


def test_an_answer_is_of_the_batches_that_count(tmp_path, cube, stored):
    """Batches that come, go or are summed leave no old answer behind."""
    updated, first = rs.load(stored), rs.load(stored, where=["fit"])
    store = MomentStore.open(stored)
    before = set(store.log.files.folders("answers"))
    store.forget("time 30:33")
    assert same(rs.load(stored), first) and not same(first, updated)
    assert rs.load(stored).n_rows_ == 30 * 8
    grown(cube, 33, 36)
    x = np.random.default_rng(0).normal(size=(9, 2))
    rs.load(stored).partial_fit(x, x[:, 0], batch="late")
    streamed = rs.load(stored)
    assert streamed.n_rows_ == 30 * 8 + 9 and not same(streamed, first)
    assert set(store.log.files.folders("answers")) == before, "a stream writes none"
    store.compact()
    np.testing.assert_allclose(rs.load(stored).coef_, streamed.coef_, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_kept_answers_verify_and_go_when_they_are_old(cube, stored):
    store = MomentStore.open(stored)
    assert store.verify().unnamed == []
    whole = rs.load(stored)
    grown(cube, 33, 36)
    rs.load(stored).update(cube)
    found = store.verify()
    assert found.unnamed and all(name.startswith("answers/") for name in found.unnamed)
    assert store.gc(older_than=1e9) == []
    (old,) = store.gc(older_than=0)
    assert old.startswith("answers/") and store.verify().unnamed == []
    assert rs.load(stored).n_rows_ == 36 * 8 != whole.n_rows_
    newest = sorted((stored / "answers").iterdir(), key=lambda path: path.stat().st_mtime)[-1]
    (newest / "extra").write_text("")
    assert [name.rpartition("/")[2] for name in store.verify().unnamed] == ["extra"]
    chunk = next(path for path in newest.rglob("c/*") if path.parent.parent.name == "coef")
    target = next(path for path in [chunk, *chunk.rglob("*")] if path.is_file())
    target.write_bytes(target.read_bytes()[::-1])
    for act in (lambda: rs.load(stored), store.verify):
        with pytest.raises(ModelError, match=f"{newest.name}.*coef.*sha256"):
            act()
