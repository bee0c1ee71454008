"""Streams that come as arrays: every batch counts once, a bad one changes nothing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import rff_stream as rs
from rff_stream.errors import ModelError
from rff_stream.store import MomentStore

MADE: dict[str, Any] = {
    "KernelRidge": lambda: rs.KernelRidge(
        length_scale=1.0, n_components=32, alpha=0.01, sums="float64", dtype="float64",
        random_state=0, progress=False,
    ),
    "GaussianProcessRegressor": lambda: rs.GaussianProcessRegressor(
        length_scale=1.0, n_components=64, noise=0.1, random_state=0, progress=False
    ),
    "KernelDensity": lambda: rs.KernelDensity(
        0.7, n_components=256, random_state=0, progress=False
    ),
    "NoveltyDetector": lambda: rs.NoveltyDetector(0.05, random_state=0, progress=False),
}  # fmt: skip


def batch(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, np.sin(x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def state(model: Any) -> Any:
    return model.moments_.sums.tobytes(), model.n_rows_


@pytest.mark.parametrize("kind", MADE)
def test_batches_add_up_to_a_fit_of_all_with_the_first_ones_map(kind):
    model = MADE[kind]()
    for seed in range(3):
        model.partial_fit(*batch(seed))
    assert model.n_rows_ == 600
    x, y = (np.concatenate(each) for each in zip(*(batch(seed) for seed in range(3)), strict=True))
    row = model.moments_.row
    every = rs.collect(
        model.features_, x, y if row.n_targets else None, row=row, order=model.moments_.order,
        sums="float64", progress=False,
    )  # fmt: skip
    scale = np.abs(every.sums).max()
    assert np.abs(model.moments_.sums - every.sums).max() <= 1e-6 * scale
    if kind == "KernelRidge":
        assert np.abs(model.moments_.sums - every.sums).max() <= 1e-12 * scale


@pytest.mark.parametrize("kind", MADE)
def test_a_bad_batch_changes_nothing_and_says_what_is_wrong(kind):
    model = MADE[kind]().partial_fit(*batch(0))
    before = state(model)
    x, y = batch(1)
    bad = x.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(bad, y)
    with pytest.raises(ValueError, match=rf"X has 1 features, but {kind} is expecting 2 features"):
        model.partial_fit(x[:, :1], y)
    if model.moments_.row.n_targets:
        with pytest.raises(ModelError, match="y has 2 targets, but the model was fitted on 1"):
            model.partial_fit(x, np.stack([y, y], axis=1))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.partial_fit(x, y[:-1])
    assert state(model) == before


CHANGED: dict[str, dict[str, Any]] = {
    "KernelRidge": {"kernel": "laplacian", "length_scale": 2.0, "n_components": 16},
    "GaussianProcessRegressor": {"features": "nystroem", "dtype": "float64"},
    "KernelDensity": {"bandwidth": 0.3},
    "NoveltyDetector": {"length_scale": [1.0, 2.0]},
}


@pytest.mark.parametrize("kind", MADE)
def test_later_rows_do_not_follow_parameters_that_the_map_was_not_made_by(tmp_path, kind):
    """It was as it is, and the model said otherwise of itself, in its store, too."""
    model = MADE[kind]().partial_fit(*batch(0))
    model.save(tmp_path / "M.zarr", moments=True)
    for each in (model, pickle.loads(pickle.dumps(model)), rs.load(tmp_path / "M.zarr")):
        was = each.get_params()
        for name, value in CHANGED[kind].items():
            each.set_params(**{name: value})
            before = state(each)
            for verb in (each.update, each.partial_fit):
                with pytest.raises(ModelError, match=rf"^{name}=.*was made by {name}=.*Fit again"):
                    verb(*batch(1))
            assert state(each) == before
            each.set_params(**{name: was[name]})
        assert each.set_params(progress=False).partial_fit(*batch(1)).n_rows_ == 400
        each.set_params(**CHANGED[kind]).fit(*batch(0))
        assert each.partial_fit(*batch(1)).n_rows_ == 400


def test_a_named_batch_is_counted_once_and_stands_for_its_rows():
    model = MADE["KernelRidge"]()
    for seed in (0, 1, 0, 1):
        model.partial_fit(*batch(seed), batch=f"message {seed}")
    assert model.n_rows_ == 400
    before = state(model)
    with pytest.raises(ModelError, match="'message 1' was counted before with other rows"):
        model.partial_fit(*batch(2), batch="message 1")
    assert state(model) == before
    model.partial_fit(*batch(0))
    assert model.n_rows_ == 600, "without a name every call counts"


def test_rows_in_memory_are_known_by_their_content_in_update():
    model = MADE["KernelRidge"]().fit(*batch(0))
    model.update(*batch(1)).update(*batch(1))
    assert model.n_rows_ == 400


def test_a_fit_starts_anew():
    model = MADE["KernelRidge"]().partial_fit(*batch(0), batch="a").fit(*batch(1))
    assert model.n_rows_ == 200
    assert model.partial_fit(*batch(0), batch="a").n_rows_ == 400


def test_a_stream_commits_to_the_store_it_was_loaded_from(tmp_path: Path):
    MADE["KernelRidge"]().fit(*batch(0)).save(tmp_path / "M.zarr", moments=True)
    for _ in range(2):  # the second time is a replay after a crash
        model = rs.load(tmp_path / "M.zarr")
        for seed in (1, 2):
            model.partial_fit(*batch(seed), batch=f"offset {seed}")
    store = MomentStore.open(tmp_path / "M.zarr")
    assert store.ids() == ["fit", "offset 1", "offset 2"]
    assert rs.load(tmp_path / "M.zarr").n_rows_ == model.n_rows_ == 600


def test_the_batch_that_made_a_stored_model_is_not_counted_again(tmp_path: Path):
    """Its name lies within the batch of the fit."""
    MADE["KernelRidge"]().partial_fit(*batch(0), batch="offset 0").save(
        tmp_path / "M.zarr", moments=True
    )
    for _ in range(2):
        assert rs.load(tmp_path / "M.zarr").partial_fit(*batch(0), batch="offset 0").n_rows_ == 200
    with pytest.raises(ModelError, match="'offset 0' was counted before with other rows"):
        rs.load(tmp_path / "M.zarr").partial_fit(*batch(1), batch="offset 0")


def test_frames_keep_their_names():
    pd = pytest.importorskip("pandas")
    x, y = batch(0)
    frame = pd.DataFrame(x, columns=["a", "b"])
    model = MADE["KernelRidge"]().partial_fit(frame, y).partial_fit(frame + 1, y)
    assert model.columns_.inputs == ("a", "b") and model.n_rows_ == 400
    turned = MADE["KernelRidge"]().partial_fit(frame, y).partial_fit(frame[["b", "a"]] + 1, y)
    assert np.array_equal(turned.coef_, model.coef_), "columns are found by name"
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["b"]], y)


def test_a_model_that_grew_is_pickled_and_cloned(tmp_path: Path):
    MADE["KernelRidge"]().fit(*batch(0)).save(tmp_path / "M.zarr", moments=True)
    model = pickle.loads(pickle.dumps(rs.load(tmp_path / "M.zarr").update(*batch(1))))
    assert model.n_rows_ == 400
    assert not hasattr(clone(model), "moments_")
    assert clone(model).partial_fit(*batch(2)).n_rows_ == 200


@pytest.mark.slow
def test_a_map_of_few_rows_is_named_when_four_times_as_many_came(tmp_path: Path):
    """Cells of a model that was loaded are drawn once. It is said once for each factor of 4."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9000, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1]
    model = rs.KernelRidge(random_state=0, progress=False).fit(x[:500], y[:500])
    model.save(tmp_path / "M.zarr", moments=True)
    model = rs.load(tmp_path / "M.zarr").partial_fit(x[500:900], y[500:900])
    with pytest.warns(UserWarning, match="than the 2,500 by now: a fit to all of them"):
        model.partial_fit(x[900:2500], y[900:2500])
    model.partial_fit(x[2500:3000], y[2500:3000])  # said before
    with pytest.warns(UserWarning, match="Fit all rows again"):
        rs.load(tmp_path / "M.zarr").partial_fit(x[3000:], y[3000:])
