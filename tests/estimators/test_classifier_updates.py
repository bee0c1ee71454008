"""Classifiers that live: more rows, rows that go again, fits that are stopped between passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import rff_stream as rs
from growing import Leaves, Stopped
from rff_stream.cli import main
from rff_stream.descents.statistic import LossStatistic
from rff_stream.errors import ModelError, NumericalWarning
from rff_stream.statistics.moment_statistics import ClassStatistic
from rff_stream.store import MomentStore, OtherPass
from toys import columns_to_zarr

QUIET: dict[str, Any] = {
    "n_components": 32, "length_scale": 1.0, "random_state": 0, "progress": False,
    "sums": "float64", "dtype": "float64",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("small_leaves")
NAMES = np.array(["cold", "mild", "warm"])


def days(start: int, stop: int, n_classes: int = 3, per_day: int = 40) -> xr.Dataset:
    """Days start:stop of rows whose class is how far out they are."""
    found = [np.random.default_rng([3, d]).normal(size=(2, per_day)) for d in range(start, stop)]
    u, v = np.stack(found, axis=1)
    code = np.clip((np.hypot(u, v) * n_classes / 3).astype(int), 0, n_classes - 1)
    dims = ("time", "place")
    return xr.Dataset({"u": (dims, u), "v": (dims, v), "kind": (dims, code)})


def grown(path: Path, start: int, stop: int, **choices: Any) -> Path:
    data = days(start, stop, **choices)
    if start:
        data.to_zarr(path, append_dim="time", consolidated=False)
        return path
    encoding = {str(name): {"chunks": (5, 40)} for name in data.data_vars}
    data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)
    return path


def fitted(path: Path, **choices: Any) -> rs.KernelClassifier:
    given = {name: choices.pop(name) for name in ("classes",) if name in choices}
    return rs.KernelClassifier(**QUIET | choices).fit(path, "kind", inputs=["u", "v"], **given)


def same(a: Any, b: Any) -> bool:
    sums = np.array_equal(a.moments_.sums, b.moments_.sums) if hasattr(a, "moments_") else True
    answers = np.array_equal(a.coef_, b.coef_) and np.array_equal(a.intercept_, b.intercept_)
    return bool(sums and answers and np.array_equal(a.classes_, b.classes_))


@pytest.mark.parametrize("choices", [{}, {"alpha": "cv", "cv": 3}, {"class_weight": {1: 2.0}}])
def test_an_updated_classifier_is_one_fitted_on_all_rows(tmp_path, choices):
    cube, path = grown(tmp_path / "c.zarr", 0, 20), tmp_path / "M.zarr"
    fitted(cube, **choices).save(path, moments=True)
    grown(cube, 20, 30)
    found = rs.load(path).update(cube)
    assert found.n_rows_ == 30 * 40 and len(MomentStore.open(path)) == 2
    assert same(rs.load(path).update(cube), found), "nothing is new"
    whole = found.moments_.row
    if "cv" not in choices:
        model = rs.KernelClassifier(**QUIET | choices, features=found.features_)
        alone = model.fit(cube, "kind", inputs=["u", "v"])
        shift = np.abs(alone.moments_.row.feature_origin - whole.feature_origin).max()
        assert shift < 0.5  # of another pilot: the answers do not depend on it
        np.testing.assert_allclose(alone.coef_, found.coef_, atol=1e-6 * np.abs(found.coef_).max())
    again = rs.load(path)
    assert same(again, found), "as it was stored"
    assert found.score(cube) > 0.9


def test_forgetting_is_never_having_seen(tmp_path):
    cube, path = grown(tmp_path / "c.zarr", 0, 20), tmp_path / "M.zarr"
    model = fitted(cube)
    model.save(path, moments=True)
    grown(cube, 20, 30)
    rs.load(path).update(cube)
    store = MomentStore.open(path)
    new = next(id for id in store.ids() if id != "fit")
    assert rs.load(path, where=["fit"]).n_rows_ == 20 * 40
    assert same(rs.load(path, where=["fit"]), model)
    store.forget(new)
    assert same(rs.load(path), model) and rs.load(path).n_rows_ == 20 * 40


def test_a_stored_model_refuses_a_class_that_it_was_not_saved_with(tmp_path):
    cube, path = grown(tmp_path / "c.zarr", 0, 20, n_classes=2), tmp_path / "M.zarr"
    fitted(cube).save(path, moments=True)
    fitted(cube, classes=[0, 1, 2]).save(tmp_path / "N.zarr", moments=True)
    grown(cube, 20, 30, n_classes=3)
    with pytest.raises(ValueError, match=r"Label 2 is not among the classes .* \(0, 1\)"):
        rs.load(path).update(cube)
    assert MomentStore.open(path).ids() == ["fit"], "nothing was counted"
    found = CliRunner().invoke(main, ["update", str(path), str(cube)])
    assert found.exit_code == 2 and "Label 2 is not among" in found.stderr
    declared_classes = rs.load(tmp_path / "N.zarr").update(cube)
    assert declared_classes.classes_.tolist() == [0, 1, 2] and declared_classes.n_rows_ == 30 * 40
    assert (declared_classes.predict(cube).values == 2).any()


def test_in_memory_a_new_class_is_named_and_grows(tmp_path):
    cube = grown(tmp_path / "c.zarr", 0, 20, n_classes=2)
    model = fitted(cube)
    grown(cube, 20, 30, n_classes=3)
    with pytest.warns(NumericalWarning, match="Label 2 is new in this batch"):
        model.update(cube)
    assert model.classes_.tolist() == [0, 1, 2] and model.n_rows_ == 30 * 40
    model.save(tmp_path / "M.zarr", moments=True)
    assert same(rs.load(tmp_path / "M.zarr"), model)


def arrays(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    data = days(start, stop)
    x = np.column_stack([data["u"].values.ravel(), data["v"].values.ravel()])
    return x, NAMES[data["kind"].values.ravel()]


def test_a_stream_of_labels_commits_each_batch_once(tmp_path):
    path = tmp_path / "M.zarr"
    first = rs.KernelClassifier(**QUIET).partial_fit(*arrays(0, 10), batch="week 0")
    first.save(path, moments=True)
    for number in (1, 2, 1):
        rows = arrays(10 * number, 10 * number + 10)
        rs.load(path).partial_fit(*rows, batch=f"week {number}")
        first.partial_fit(*rows, batch=f"week {number}")
    found = rs.load(path)
    assert found.n_rows_ == first.n_rows_ == 30 * 40 and len(MomentStore.open(path)) == 3
    assert same(found, first) and found.classes_.tolist() == NAMES.tolist()
    with pytest.raises(ModelError, match="'week 1' was"):
        rs.load(path).partial_fit(*arrays(50, 60), batch="week 1")
    assert rs.load(path).update(*arrays(0, 10), batch="week 0").n_rows_ == 30 * 40


@pytest.mark.parametrize("choices", [{"loss": "logistic"}, {"class_weight": "balanced"}])
def test_what_moments_do_not_answer_is_refused(tmp_path, choices):
    cube = grown(tmp_path / "c.zarr", 0, 20)
    model = fitted(cube, **choices)
    grown(cube, 20, 25)
    with pytest.raises(ModelError, match="looks at every row again"):
        model.update(cube)
    with pytest.raises(ValueError, match="rows of a classifier have a class"):
        fitted(cube).update(cube, by="kind")


# ------------------------------------------------------------------------------- stopped fits


@pytest.fixture
def leaves(leaves: Leaves, monkeypatch: pytest.MonkeyPatch) -> Leaves:
    """The same, where losses are read, as for large data."""
    monkeypatch.setattr("rff_stream.estimators.class_recipe.KEPT_BYTES", 0)
    return leaves


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """7,000 rows in seven leaves: one row is of class 2, and the last one of class 7."""
    x = np.random.default_rng(0).normal(size=(7000, 2)).astype(np.float32)
    y = (np.hypot(*x.T) > 1.2).astype(np.int64)
    y[-1], y[5] = 7, 2
    columns = {"a": x[:, 0], "b": x[:, 1], "y": y, "two": np.minimum(y, 1)}
    path = tmp_path_factory.mktemp("table") / "t.zarr"
    return columns_to_zarr(path, columns, 500, compressors=None)


def of(loss: str, **choices: Any) -> rs.KernelClassifier:
    given = QUIET | {"loss": loss, "alpha": 1.0, "n_components": 16, "dtype": "float32"}
    return rs.KernelClassifier(**given | choices)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:On 2,000 sampled rows")
@pytest.mark.parametrize("choices", [{}, {"class_weight": "balanced"}, {"alpha": "cv", "cv": 3}])
def test_a_stopped_read_of_classes_goes_on_with_the_same_bits(
    table, segments_kept, leaves, tmp_path, choices
):
    """Nodes are kept whatever classes they hold: here two that the pilot did not meet."""
    given: Any = {"y": "y", "inputs": ["a", "b"]}
    whole = of("squared", **choices).fit(table, **given)
    assert whole.classes_.tolist() == [0, 1, 2, 7]
    path = tmp_path / "c"
    for stop in (4, 3):
        leaves(ClassStatistic, stop)
        with pytest.raises(Stopped):
            of("squared", **choices).fit(table, checkpoint=path, **given)
        MomentStore.open(path).verify()
    run = leaves(ClassStatistic, 0)
    found = of("squared", **choices).fit(table, checkpoint=path, **given)
    assert same(found, whole) and found.n_missing_ == 0
    assert len(run) == 7 - 3 - 2, "only what is missing is read"
    with pytest.raises(OtherPass, match="class_weight was"):
        of("squared", class_weight={0: 3.0}).fit(table, checkpoint=path, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y"), [("logistic", "two"), ("logistic", "y"), ("squared_hinge", "y")]
)
def test_a_fit_stopped_between_passes_goes_on_with_the_same_bits(
    table, segments_kept, leaves, tmp_path, loss, y
):
    given: Any = {"y": y, "inputs": ["a", "b"]}
    run = leaves(LossStatistic, 0)
    whole = of(loss).fit(table, **given)
    reads = len(run)
    size = reads // (whole.n_passes_ - 1)  # leaves of a pass
    assert whole.n_passes_ >= 3
    path = tmp_path / "c"
    leaves(LossStatistic, size + 2)  # in the second of the passes
    with pytest.raises(Stopped):
        of(loss).fit(table, checkpoint=path, **given)
    first, second = leaves(ClassStatistic, 0), leaves(LossStatistic, 0)
    found = of(loss).fit(table, checkpoint=path, **given)
    assert same(found, whole) and found.objective_ == whole.objective_
    assert found.n_passes_ == whole.n_passes_ and len(second) == reads - size
    assert not first
    if y == "y":
        return
    run = leaves(LossStatistic, 0)
    more = of(loss, tol=1e-4).fit(table, checkpoint=path, **given)
    passes = more.n_passes_ - whole.n_passes_
    assert len(run) == passes * size, "a finer tolerance goes on from there"


@pytest.mark.slow
def test_a_map_drawn_without_a_seed_is_kept_with_its_pilot(table, segments_kept, leaves, tmp_path):
    given: Any = {"y": "two", "inputs": ["a", "b"], "checkpoint": tmp_path / "c"}
    choices: Any = {"random_state": None, "alpha": "sample", "tol": 1e-5}
    leaves(LossStatistic, 10)
    with pytest.raises(Stopped):
        of("logistic", **choices).fit(table, **given)
    run = leaves(LossStatistic, 0)
    found = of("logistic", **choices).fit(table, **given)
    again = of("logistic", **choices).fit(table, **given)
    assert same(found, again) and len(run) < 7 * (found.n_passes_ - 1)


@pytest.mark.slow
def test_the_command_goes_on_between_passes(table, segments_kept, leaves, tmp_path):
    model, kept = tmp_path / "M.zarr", tmp_path / "M.zarr.checkpoint"

    def fit(path: Path) -> Any:
        words = ["fit", table, "--target", "two", "--inputs", "a,b", "--classify", "logistic"]
        words += ["--n-components", "16", "--length-scale", "1.0", "--alpha", "1", "--model", path]
        return CliRunner().invoke(main, [str(word) for word in words])

    leaves(LossStatistic, 10)
    assert fit(model).exit_code == 130 and kept.exists() and not model.exists()
    run = leaves(LossStatistic, 0)
    done = fit(model)
    assert done.exit_code == 0, done.output
    assert not kept.exists()
    part = len(run)
    leaves(LossStatistic, 0)
    assert fit(tmp_path / "N.zarr").exit_code == 0
    a, b = rs.load(model), rs.load(tmp_path / "N.zarr")
    assert same(a, b) and part == 7 * (b.n_passes_ - 2)
