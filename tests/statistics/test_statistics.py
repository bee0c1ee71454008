"""What a pass can add up: laws of every statistic, and one that the package does not know."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import recording
import rff_stream as rs
from extent_statistic import ExtentStatistic
from places import TESTS
from processes import Processes, connected
from recording import table
from rff_stream.contracts import PackingStatistic
from rff_stream.costs import WholeCost
from rff_stream.descents.statistic import LossStatistic
from rff_stream.execution import Reading
from rff_stream.execution.checkpoints import CheckpointWriter, description_of
from rff_stream.losses.classification import loss_for
from rff_stream.moments import AugmentedRow
from rff_stream.moments.class_moments import sorted_labels
from rff_stream.pilot import augmented_row
from rff_stream.planning import PlanRequest
from rff_stream.sources import open_source
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.content_hash import ContentStatistic
from rff_stream.statistics.groups import ByClass, ByFold, ByGroup, ClassWeighted, Groups
from rff_stream.statistics.moment_statistics import ClassStatistic, MomentStatistic
from rff_stream.statistics.scores import (
    ClassScoreStatistic,
    HistogramStatistic,
    NormalEquationStatistic,
    ResidualStatistic,
)
from rff_stream.store import Checkpoint, MomentStore, OtherPass

INPUTS = ["a", "b", "c"]


def plain(value: Any) -> Any:
    """Any value of the toy, as what ``==`` compares."""
    if isinstance(value, Groups):
        return {label: plain(each) for label, each in value.by_label.items()}
    return value.box.tolist(), value.n, value.by_digit


WRAPS: dict[str, Any] = {
    "all rows": lambda statistic, places: statistic,
    "by group": lambda statistic, places: ByGroup(statistic),
    "by fold": lambda statistic, places: ByFold(statistic, 3, places),
    "by fold and group": lambda statistic, places: ByFold(ByGroup(statistic), 3, places),
}


def expected(wrap: str) -> Any:
    """The obvious answer, from the whole table."""
    columns = table()
    x = np.column_stack([columns[name] for name in INPUTS]).astype(float)
    fold = np.arange(recording.ROWS) * 3 // recording.ROWS

    def of(chosen: Any) -> Any:
        digits = np.floor(columns["y"][chosen])
        w = columns["w"][chosen]
        weights = {str(digit): w[digits == digit] for digit in np.unique(digits).tolist()}
        return x[chosen].min(axis=0), x[chosen].max(axis=0), chosen.sum(), weights

    groups = {label: columns["label"] == label for label in range(3)}
    folds = {k: fold == k for k in range(3)}
    if wrap == "by group":
        return {label: of(chosen) for label, chosen in groups.items()}
    if wrap == "by fold":
        return {k: of(chosen) for k, chosen in folds.items()}
    if wrap == "by fold and group":
        return {k: {label: of(a & b) for label, b in groups.items()} for k, a in folds.items()}
    return of(np.ones(recording.ROWS, bool))


def check(value: Any, truth: Any) -> None:
    if isinstance(truth, dict):
        assert value.by_label.keys() == truth.keys()
        for label, each in truth.items():
            check(value.by_label[label], each)
        return
    low, high, n, weights = truth
    assert np.array_equal(value.box, [low, high]) and value.n == n
    assert value.by_digit.keys() == weights.keys()
    for digit, w in weights.items():
        bound = 8 * np.finfo(float).eps * len(w) * w.max()  # a sum of len(w) terms
        assert abs(value.by_digit[digit] - w.sum()) <= bound


@pytest.fixture(autouse=True)
def small_leaves() -> Iterator[None]:
    with recording.small_leaves():
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recording.write_zarr(tmp_path_factory.mktemp("rows") / "rows.zarr")


def reading_of(path: Path) -> Reading:
    source = open_source(path, "y", "w", inputs=INPUTS, by="label")
    return Reading(source, progress=False)


def summed(reading: Reading, wrap: str, checkpoint: Path | None = None) -> Any:
    plan = reading.plan(PlanRequest(WholeCost(1), order=1))
    statistic = WRAPS[wrap](ExtentStatistic(3), reading.places(plan))
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, description_of(reading.source, plan, what=wrap))
        kept.begin(a_row(), 1)
    return reading.whole(statistic, plan, kept).value


def a_row() -> AugmentedRow:
    """What begins a checkpoint whose nodes are no moments: its map and names."""
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 2, rng=0)
    return AugmentedRow(
        features.fingerprint, np.ones(2), features.nesting, np.zeros(2), np.zeros(1), np.ones(1),
        tuple(INPUTS), ("y",), (),
    )  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_statistic_from_outside_is_added_up(path, wrap):
    value = summed(reading_of(path), wrap)
    check(value, expected(wrap))
    with dask.config.set(scheduler="synchronous"):
        assert plain(summed(reading_of(path), wrap)) == plain(value)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_statistic_from_outside_goes_on_from_a_checkpoint(path, wrap, tmp_path):
    whole = summed(reading_of(path), wrap)
    with pytest.raises(recording.Stopped), recording.stopping(7, recording.stop):
        summed(reading_of(path), wrap, tmp_path / "c")
    store = MomentStore.open(tmp_path / "c")
    assert store.verify().batches == len(store.ids()) >= 1
    read: list[int] = []
    with recording.stopping(-1, lambda: None, read):
        found = summed(reading_of(path), wrap, tmp_path / "c")
    assert plain(found) == plain(whole)
    assert 0 < len(read) < 12, "only what is missing is read"
    with pytest.raises(OtherPass, match="what was"):
        other = next(name for name in WRAPS if name != wrap)
        summed(reading_of(path), other, tmp_path / "c")


def test_a_checkpoint_asks_for_pack(path, tmp_path):
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 2, rng=0)
    statistic = NormalEquationStatistic(features, np.zeros((2, 1)), np.zeros(1), residuals=True)
    kept = Checkpoint(tmp_path / "c", {"a": 1})
    with pytest.raises(TypeError, match="NormalEquationStatistic has no pack and unpack"):
        CheckpointWriter(kept, statistic)


@pytest.mark.cluster
@pytest.mark.parametrize("wrap", WRAPS)
def test_a_statistic_from_outside_on_two_processes(path, wrap, tmp_path):
    processes = Processes(tmp_path)
    try:
        processes.have(2)
        with connected(processes, 2) as client:
            client.upload_file(str(TESTS / "extent_statistic.py"))
            found = summed(reading_of(path), wrap)
    finally:
        processes.stop()
    assert plain(found) == plain(summed(reading_of(path), wrap))


# Every statistic of the package -------------------------------------------------------------------


def rows_of(x: Any, y: Any, label: Any = None, w: Any = None) -> Rows:
    return Rows(x, y, w, None, 0, label)


def statistics() -> dict[str, Any]:
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 8, rng=0)
    x = np.random.default_rng(0).normal(size=(40, 2))
    pilot = rs.pilot.Pilot(x, x[:, :1], np.ones(40))
    row = augmented_row(features, pilot, ("a", "b"), ("y",))
    bare = augmented_row(features, replace(pilot, y=np.empty((40, 0))), ("a", "b"), ())
    moments = MomentStatistic(features, row, 2, "float64", 10, 40)
    means = MomentStatistic(features, row, 1, "float64", 10, 40)
    classes = ClassStatistic(MomentStatistic(features, bare, 2, "float64", 10, 40))
    loss = LossStatistic(
        features, loss_for("logistic", 2), (0, 1), np.ones((8, 2)), np.ones(2), (0.0, 1.0),
        {1: 2.0}, bare,
    )  # fmt: skip
    p = np.array([[0.25, 0.75]])
    return {
        "moments": moments,
        "moments of order 1": means,
        "moments by group": ByGroup(moments),
        "moments by fold": ByFold(moments, 3, 40),
        "classes": classes,
        "classes by fold and class": ByFold(ByClass(classes), 3, 40),
        "classes with weights": ClassWeighted(classes, {0: 0.0, 1: 3.0}),
        "loss": loss,
        "residuals": ResidualStatistic(lambda x: x[:, :1], 1),
        "scores": ClassScoreStatistic(lambda x: np.repeat(p, len(x), axis=0), (0, 1)),
        "normal equations": NormalEquationStatistic(
            features, np.ones((8, 1)), np.ones(1), residuals=True
        ),
        "quantile": HistogramStatistic(lambda x: x[:, :1], -1.0, 1.0, 16),
        "content": ContentStatistic(),
    }


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    """All numbers of a value, in one order."""
    if isinstance(value, Groups | dict):
        groups = value.by_label if isinstance(value, Groups) else value
        return [each for label in sorted(groups) for each in flat(groups[label])]
    if isinstance(value, np.ndarray | float | int):
        return [np.asarray(value, float)]
    if isinstance(value, tuple | list):
        return [each for part in value for each in flat(part)]
    if value is None or isinstance(value, str | AugmentedRow):
        return []
    names = getattr(value, "__dataclass_fields__", {})
    return [each for name in names for each in flat(getattr(value, name))]


def run(statistic: Any, *parts: Rows, start: int = 0) -> Any:
    sink = statistic.start()
    for rows in parts:
        sink.add(rows, np.arange(start, start + len(rows.x)))
        start += len(rows.x)
    return sink.result()


@pytest.mark.parametrize("name", statistics())
def test_zero_rows_and_sums_agree(name, rng):
    """Zero is neutral; one leaf of all rows, or sums of leaves, are one value to rounding."""
    statistic = statistics()[name]
    x = rng.normal(size=(40, 2))
    label = (x[:, 0] > 0).astype(int)
    whole = rows_of(x, x[:, 1:], label, rng.uniform(1, 2, 40))
    cuts = [0, 7, 7, 20, 40]
    parts = [
        rows_of(whole.x[a:b], whole.y[a:b], label[a:b], whole.w[a:b])
        for a, b in itertools.pairwise(cuts)
    ]
    values = [run(statistic, part, start=a) for part, a in zip(parts, cuts, strict=False)]
    together, summed = run(statistic, whole), functools.reduce(operator.add, values)
    zero = statistic.start().result()
    for a, b in ((together, summed), (together, zero + together), (together + zero, together)):
        assert len(flat(a)) == len(flat(b)) > 0
        for one, other in zip(flat(a), flat(b), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert together.__sizeof__() > 0


@pytest.mark.parametrize(
    "name", [name for name, each in statistics().items() if isinstance(each, PackingStatistic)]
)
def test_what_is_packed_comes_back_bit_for_bit(name, rng):
    statistic = statistics()[name]
    x = rng.normal(size=(40, 2))
    label = (x[:, 0] > 0).astype(int)
    for value in (run(statistic, rows_of(x, x[:, 1:], label)), statistic.start().result()):
        if isinstance(value, Groups) and "with" not in name and not value.by_label:
            assert statistic.unpack(statistic.pack(value)).by_label == {}
            continue
        again = statistic.unpack(statistic.pack(value))
        assert type(again) is type(value)
        for one, other in zip(flat(value), flat(again), strict=True):
            assert np.array_equal(one, other)


def test_classes_by_fold_are_found_where_they_are(rng):
    """Of a label that only the last fold holds, the others know nothing."""
    x = rng.normal(size=(40, 2))
    label = np.r_[np.zeros(20, int), np.ones(19, int), 7]
    value = run(statistics()["classes by fold and class"], rows_of(x, x[:, :0], label))
    assert {k: sorted(fold.by_label) for k, fold in value.by_label.items()} == {
        0: [0], 1: [0, 1], 2: [1, 7],
    }  # fmt: skip
    parts = [part for fold in value.by_label.values() for part in fold.by_label.values()]
    whole = functools.reduce(operator.add, parts)
    assert whole.labels == sorted_labels(label.tolist()) and whole.moments.n == 40
