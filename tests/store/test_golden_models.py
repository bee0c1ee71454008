"""Models that an earlier build wrote load, predict to the last bit and go on growing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rff_stream as rs
from archives import unpack
from places import TESTS
from rff_stream.errors import ModelError
from rff_stream.model import persistence
from rff_stream.store import Checkpoint, MomentStore

GOLDEN = TESTS / "golden"
NEW = np.array([[0.5, 0.6], [2.0, 2.1]])
ROUNDING = 1e-12  # of predictions of order 1 that another BLAS may sum in another order


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of format 1 with two groups that got one batch more, and a checkpoint."""
    unpack(GOLDEN / "format1-model.tar.xz", tmp_path)
    return tmp_path


def test_a_model_of_format_1_answers_as_it_did(folder):
    model = rs.load(folder / "M.zarr")
    assert model.n_rows_ == 40 and model.length_scale_ == pytest.approx(1.0)
    assert model.moments_.sums[:2].tolist() == [0.15940558932930468, 0.49958592209608593]
    found = model.predict(NEW)
    np.testing.assert_allclose(found, [0.5690419160032207, 0.6374039628992132], rtol=ROUNDING)
    part = rs.load(folder / "M.zarr", groups=["n"])
    np.testing.assert_allclose(
        part.predict(NEW), [0.5077088075078866, 1.073714562502333], rtol=ROUNDING
    )


def test_a_model_of_format_1_goes_on_growing(folder):
    x = np.arange(40.0).reshape(20, 2) / 10
    model = rs.load(folder / "M.zarr")
    model.partial_fit(x + 1, np.sin(x[:, 0]), batch="later")
    assert model.n_rows_ == 40, "the batch is known by its content"
    assert model.partial_fit(x + 2, np.sin(x[:, 0]), batch="more").n_rows_ == 60
    assert MomentStore.open(folder / "M.zarr").verify().batches == 3


def test_a_checkpoint_of_format_1_goes_on(folder):
    kept = Checkpoint(folder / "M.zarr.checkpoint", {"rows": {"time": 8}, "model": "KernelRidge"})
    nodes = kept.nodes()
    assert {node: seen for node, (_, seen) in nodes.items()} == {(1, 0): 20, (0, 2): 5}
    assert nodes[0, 2][0] == {} and nodes[1, 0][0][None].n == 20


def test_models_of_format_1_that_kept_their_answers_are_not_solved(tmp_path, monkeypatch):
    """A regressor and a classifier, both updated once: answers beside the moments."""
    unpack(GOLDEN / "format1-grown.tar.xz", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "solve", None)
        model, classifier = (rs.load(tmp_path / f"{name}.zarr") for name in "AC")
    assert model.n_rows_ == classifier.n_rows_ == 80
    # Written with Numba's float32 cosines, which differ from NumPy's in their last bit.
    waves = 2.0**-23 * max(np.abs(grown.coef_).sum(0).max() for grown in (model, classifier))
    np.testing.assert_allclose(
        model.predict(NEW), [0.6026633902618966, 0.48273911096002775], atol=waves
    )
    assert classifier.classes_.tolist() == ["cold", "hot", "warm"]
    np.testing.assert_allclose(
        classifier.predict_proba(NEW)[:, 0], [0.8564208107430941, 0.4225741273451109], atol=waves
    )
    x = np.arange(20.0).reshape(10, 2) / 10
    assert classifier.update(x, ["hot"] * 10, batch="warmer").n_rows_ == 90
    assert MomentStore.open(tmp_path / "C.zarr").verify().batches == 3


@pytest.mark.parametrize("name", ["zarr.json", "log/00000000000000000001/zarr.json"])
def test_a_newer_format_is_refused_by_name(folder, name):
    file = folder / "M.zarr" / name
    plain = json.loads(file.read_text())
    plain["attributes"]["format"] = 2
    file.write_text(json.dumps(plain))
    with pytest.raises(ModelError, match=rf"{name} has format 2, this build reads <= 1; upgrade"):
        rs.load(folder / "M.zarr")
