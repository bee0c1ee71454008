"""A pass that is stopped goes on with the same bits, and says so where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import rff_stream as rs
from failing_files import fail_everywhere
from growing import Stopped, fitted, grown, ridge
from places import TESTS
from recording import innermost
from rff_stream.cli import main
from rff_stream.errors import DataError, ModelError
from rff_stream.execution import leaves as leaf_module
from rff_stream.model import update as updating
from rff_stream.model.persistence import read_unsolved
from rff_stream.model.update import LaterRows, Update
from rff_stream.moments import Moments
from rff_stream.moments.tree_sum import RunningSum, TreeSum
from rff_stream.sources import Selection
from rff_stream.statistics.moment_statistics import MomentStatistic
from rff_stream.store import Checkpoint, MomentStore, OtherPass
from store_cases import a_row, same_moments, whole_moments


def rows(n: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    return x, np.sin(x[:, 0]) + x[:, 1] ** 2


def features(seed: int = 0) -> rs.FourierFeatures:
    return rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 16, rng=seed)


@pytest.fixture
def stored(tmp_path: Path, small_leaves: None) -> Path:
    """10,000 rows in a Zarr group of plain columns: ten leaves."""
    x, y = rows()
    group = zarr.create_group(tmp_path / "d.zarr")
    for name, values in (("a", x[:, 0]), ("b", x[:, 1]), ("y", y)):
        group.create_array(name, data=values, chunks=(500,), compressors=None)
    return tmp_path / "d.zarr"


def same(a: Moments, b: Moments) -> bool:
    return np.array_equal(a.sums, b.sums) and np.array_equal(a.sample.rows, b.sample.rows)


@pytest.mark.parametrize("choices", [{}, {"folds": 3}, {"by": "b", "order": 1}])
def test_a_stopped_collect_goes_on_with_the_same_bits(
    stored, segments_kept, leaves, tmp_path, choices
):
    group = zarr.open_group(stored)
    group["b"][:] = np.round(group["b"][:]).clip(-1, 1)
    arguments: Any = {"progress": False, **choices}
    whole = rs.collect(features(), stored, "y", **arguments)
    path = tmp_path / "c"
    for stop in (4, 3):
        leaves(MomentStatistic, stop)
        with pytest.raises(Stopped):
            rs.collect(features(), stored, "y", checkpoint=path, **arguments)
        MomentStore.open(path).verify()
    run = leaves(MomentStatistic, 0)
    found = rs.collect(features(), stored, "y", checkpoint=path, **arguments)
    assert 1 <= len(run) <= 10 - 3 - 2, "only what is missing is read"
    pairs = (
        [(found, whole)] if isinstance(whole, Moments) else [(found[k], whole[k]) for k in whole]
    )
    assert pairs and all(same(a, b) for a, b in pairs)
    run = leaves(MomentStatistic, 0)
    rs.collect(features(), stored, "y", checkpoint=path, **arguments)
    assert not run, "nothing is left to read"


def test_what_differs_is_named(stored, segments_kept, tmp_path):
    given: Any = {"checkpoint": tmp_path / "c", "progress": False}
    rs.collect(features(), stored, "y", **given)
    with pytest.raises(OtherPass, match='sums was "float64" and is "float32"'):
        rs.collect(features(), stored, "y", sums="float32", **given)
    with pytest.raises(OtherPass, match="map was"):
        rs.collect(features(1), stored, "y", **given)
    with pytest.raises(OtherPass, match="folds was 0 and is 2"):
        rs.collect(features(), stored, "y", folds=2, **given)
    zarr.open_group(stored)["y"][5] = 0.0
    with pytest.raises(OtherPass, match="data was"):
        rs.collect(features(), stored, "y", **given)
    ridge().fit_moments(features(), rs.collect(features(), *rows(1000))).save(
        tmp_path / "M.zarr", moments=True
    )
    with pytest.raises(ModelError, match="is a model and no checkpoint"):
        rs.collect(features(), stored, "y", checkpoint=tmp_path / "M.zarr", progress=False)


@pytest.mark.parametrize("changed", ["a target", "a label"])
def test_an_array_that_changed_anywhere_is_other_data(tmp_path: Path, changed: str) -> None:
    """Only every fourth value entered the checkpoint: its sums were given for other rows."""
    x, y = np.random.default_rng(0).normal(size=(2, 20_000))
    label = np.arange(20_000) % 2
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 8, rng=0)

    def collect() -> Any:
        path = tmp_path / "checkpoint"
        return rs.collect(features, x[:, None], y, by=label, checkpoint=path, progress=False)

    first = collect()
    assert same_moments(collect()[0], first[0])
    {"a target": y, "a label": label}[changed][1001] = 1 - label[1001]
    with pytest.raises(ModelError, match=r"another pass.*data"):
        collect()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["KernelRidge", "KernelDensity"])
def test_a_stopped_fit_goes_on_with_its_own_map(stored, segments_kept, leaves, tmp_path, kind):
    """The map was drawn without a seed: the second run takes the first one's."""

    def made() -> Any:
        if kind == "KernelRidge":
            return rs.KernelRidge(n_components=16, alpha="cv", cv=3, progress=False)
        return rs.KernelDensity(0.5, n_components=256, progress=False)

    inputs: Any = {"inputs": ["a", "b"], "y": "y" if kind == "KernelRidge" else None}
    leaves(MomentStatistic, 5)
    with pytest.raises(Stopped):
        made().fit(stored, checkpoint=tmp_path / "c", **inputs)
    run = leaves(MomentStatistic, 0)
    model = made().fit(stored, checkpoint=tmp_path / "c", **inputs)
    assert 1 <= len(run) <= 6
    assert model.n_rows_ == 10_000
    known = MomentStore.open(tmp_path / "c")
    assert known.row.map_fingerprint == model.features_.fingerprint
    made_anew = made().set_params(
        **({"features": model.features_} if kind == "KernelRidge" else {})
    )
    if kind == "KernelRidge":
        again = made_anew.fit(stored, **inputs)
        assert np.array_equal(again.moments_.sums, model.moments_.sums) is (
            again.moments_.row.fingerprint == model.moments_.row.fingerprint
        )
        with pytest.raises(OtherPass, match="n_components was 16 and is 32"):
            made().set_params(n_components=32).fit(stored, checkpoint=tmp_path / "c", **inputs)


def test_data_that_change_during_a_pass_are_refused(stored, leaves, monkeypatch):
    original = leaf_module.Job.run
    changed: list[bool] = []

    def changing(self: Any, leaf: Any, *values: Any) -> Any:
        if isinstance(innermost(self.statistic), MomentStatistic) and not changed:
            changed.append(True)
            zarr.open_group(stored)["y"][7] = 5.0
        return original(self, leaf, *values)

    monkeypatch.setattr(leaf_module.Job, "run", changing)
    with pytest.raises(DataError, match="data changed while"):
        rs.collect(features(), stored, "y", progress=False)


@pytest.mark.slow
def test_the_command_goes_on_after_an_interrupt(stored, segments_kept, leaves, tmp_path):
    model = tmp_path / "M.zarr"

    def fit(*more: str, path: Path = model) -> Any:
        words = ["fit", stored, "--target", "y", "--n-components", "16", "--model", path, *more]
        return CliRunner().invoke(main, [str(word) for word in words])

    leaves(MomentStatistic, 5)
    stopped = fit()
    assert stopped.exit_code == 130 and not model.exists()
    assert (tmp_path / "M.zarr.checkpoint").exists()
    other = fit("--sums", "float32")
    assert other.exit_code == 4 and 'sums was "float64" and is "float32"' in other.stderr
    run = leaves(MomentStatistic, 0)
    again = fit()
    assert again.exit_code == 0 and "resuming from a checkpoint of" in again.stderr
    assert len(run) < 10 and not (tmp_path / "M.zarr.checkpoint").exists()
    leaves(MomentStatistic, 0)
    assert fit(path=tmp_path / "N.zarr").exit_code == 0
    a, b = rs.load(model), rs.load(tmp_path / "N.zarr")
    assert np.array_equal(a.moments_.sums, b.moments_.sums) and np.array_equal(a.coef_, b.coef_)


def test_a_model_saved_before_its_checkpoint_went_is_finished(
    stored, segments_kept, tmp_path, monkeypatch
):
    from rff_stream.cli import fit

    words = ["fit", stored, "--target", "y", "--n-components", "16", "--model", tmp_path / "M.zarr"]
    with monkeypatch.context() as patch:
        patch.setattr(fit, "finish", lambda model: None)
        CliRunner().invoke(main, [str(word) for word in words])
    assert (tmp_path / "M.zarr.checkpoint").exists() and (tmp_path / "M.zarr").exists()
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    assert not (tmp_path / "M.zarr.checkpoint").exists()


@pytest.mark.parametrize("order", [range(8), [5, 1, 0, 7, 6, 2, 4, 3]])
def test_nodes_are_replaced_by_their_parent(tmp_path, order):
    """Whatever the order: what is live is disjoint and adds up to what was taken."""
    kept = Checkpoint(tmp_path / "c", {"a": 1})
    kept.begin(a_row(), 2)
    total: TreeSum[Any] = TreeSum()
    for count, index in enumerate(order, start=1):
        total.add(index, whole_moments(index))
        for node, moments in sorted(total.nodes.items(), reverse=True):
            kept.save(node, {None: moments}, 1)
        found = Checkpoint(tmp_path / "c", {"a": 1}).nodes()
        assert found.keys() == total.nodes.keys()
        assert sum(1 << level for level, _ in found) == count
    assert list(found) == [(3, 0)]
    assert same_moments(found[3, 0][0][None], total.nodes[3, 0])


@pytest.mark.parametrize("order", [range(8), [5, 1, 0, 7, 6, 2, 4, 3]])
def test_nodes_are_replaced_by_the_running_sum(tmp_path, order):
    """Sums one after the other: the sum of the first values takes the place of each of them."""
    kept = Checkpoint(tmp_path / "c", {"a": 1})
    kept.begin(a_row(), 2)
    total: RunningSum[Any] = RunningSum()
    for index in order:
        total.add(index, whole_moments(index))
        for node, moments in sorted(total.nodes.items(), reverse=True):
            kept.save(node, {None: moments}, 1)
        assert Checkpoint(tmp_path / "c", {"a": 1}).nodes().keys() == total.nodes.keys()
    found = Checkpoint(tmp_path / "c", {"a": 1}).nodes()
    assert list(found) == [(64, 8)]
    assert same_moments(found[64, 8][0][None], total.total())


def kept_at(path: Path) -> Checkpoint:
    kept = Checkpoint(path, {"a": 1})
    kept.begin(a_row(), 2)
    return kept


@pytest.mark.slow
def test_every_failing_operation_of_a_checkpoint_leaves_disjoint_nodes(quick_path):
    """The k-th operation of the commit of a parent fails: its children are there, or it is."""
    first, second = whole_moments(1), whole_moments(2)

    def prepare(path: Path) -> None:
        kept_at(path).save((0, 0), {None: first}, 1)

    def act(path: Path) -> None:
        kept_at(path).save((1, 0), {None: first + second}, 2)

    def check(path: Path, done: bool) -> None:
        nodes = Checkpoint(path, {"a": 1}).nodes()
        assert list(nodes) in ([(0, 0)], [(1, 0)]) and (list(nodes) == [(1, 0)] or not done)
        act(path)
        found = Checkpoint(path, {"a": 1}).nodes()
        assert list(found) == [(1, 0)]
        assert same_moments(found[1, 0][0][None], first + second)

    assert fail_everywhere(prepare, act, check, quick_path) > 30


@pytest.mark.slow
def test_every_failing_operation_of_an_update_leaves_the_old_state(
    quick_path, tmp_path, monkeypatch
):
    cube = grown(tmp_path / "cube.zarr", 0, 30)
    model = fitted(cube)
    grown(cube, 30, 33)
    later, recipe = LaterRows(Selection(str(cube))), model._recipe()
    model.save(tmp_path / "first.zarr", moments=True)
    first = MomentStore.open(tmp_path / "first.zarr")
    known = updating.Ledger.of(first.ever().values())
    saved = read_unsolved(first.header, first.arrays)
    new = updating.NewRowFinder(recipe, saved, known, first.row, later).read()
    monkeypatch.setattr(
        updating.NewRowFinder,
        "read",
        lambda search: new if len(search.ledger.records) < 2 else Update(),
    )

    def act(path: Path) -> None:
        updating.ingest(recipe, saved, MomentStore.open(path), later)

    def check(path: Path, done: bool) -> None:
        store = MomentStore.open(path)
        assert store.ids() in (["fit"], ["fit", "time 30:33"]) and (len(store) == 2 or not done)
        act(path)
        assert store.verify().rows == 33 * 8

    count = fail_everywhere(lambda path: model.save(path, moments=True), act, check, quick_path)
    assert count > 30


def killing(folder: Path, trials: str, seed: int) -> None:
    """Run trials such as fit:3,update:2 in one program, which says what went wrong."""
    words = [sys.executable, str(TESTS / "killing.py"), str(folder), trials, str(seed)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all well") == len(trials.split(","))


@pytest.mark.slow
def test_killed_drivers_leave_what_a_rerun_completes(tmp_path):
    """Two random moments, two drivers at once on one store, and two on one checkpoint."""
    killing(tmp_path, "fit:1,update:1,two:1,rivals:1", 5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_many_killed_drivers(tmp_path, seed):
    killing(tmp_path, "fit:6,update:6,two:3,rivals:3", 1000 + seed)
