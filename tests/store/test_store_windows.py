"""Windows, weights and groups of a store: models of a part of the rows, from no read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rff_stream as rs
from growing import days, fitted, grown, ridge
from rff_stream.errors import DataError, ModelError
from rff_stream.moments import total
from rff_stream.store import MomentStore
from store_cases import a_row, expected_total, new_store, same_moments, whole_moments


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "S.zarr"


def test_batches_are_chosen_by_id_label_and_range(path):
    store = MomentStore.create(path, a_row())
    for month in range(1, 7):
        labels = {"month": f"2024-{month:02}", "half": month // 4}
        store.append(f"m{month}", whole_moments(month), labels)

    def of(*months: int) -> Any:
        return total(whole_moments(month) for month in months)

    assert same_moments(store.total(where=["m2", "m1"]), of(1, 2))
    assert same_moments(store.total(where=store.ids()[-2:]), of(5, 6))
    assert same_moments(store.total(where={"half": 1}), of(4, 5, 6))
    assert same_moments(store.total(where={"month": slice("2024-02", "2024-04")}), of(2, 3, 4))
    assert same_moments(store.total(where={"month": slice(None, "2024-02")}), of(1, 2))
    assert same_moments(store.total(where={"month": ["2024-01", "2024-06"]}), of(1, 6))
    assert store.total(where={"nothing": 1}).n == 0
    with pytest.raises(ModelError, match=r"where='m1' is one text"):
        store.total(where="m1")


def test_a_sliding_window_is_never_having_seen_the_others(path, tmp_path):
    """Bit for bit: by not summing what slid out of it."""
    store, window = new_store(path, "abcdef"), "cdef"
    alone = new_store(tmp_path / "alone.zarr", window)
    assert same_moments(store.total(where=list(window)), alone.total())
    for letter in "ab":
        store.forget(letter)
    assert same_moments(store.total(), alone.total())
    assert same_moments(alone.total(), expected_total(window))


def test_weights_scale_whole_batches(path):
    store = new_store(path, "abc")
    age = {"a": 2, "b": 1, "c": 0}
    found = store.total(weights=lambda batch: 0.5 ** age[batch.id])
    a, b, c = (whole_moments(ord(letter)) for letter in "abc")
    assert np.array_equal(found.sums, a.sums / 4 + b.sums / 2 + c.sums)
    assert found.n == a.n + b.n + c.n
    assert found.squared_weight == a.squared_weight / 16 + b.squared_weight / 4 + c.squared_weight
    assert same_moments(store.total(weights={"a": 0}), expected_total("bc"))
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ModelError, match=r"weight of the batch 'a' is .*finite and >= 0"):
            store.total(weights={"a": wrong})
    with pytest.raises(ModelError, match=r"There is no batch 'd'\. The store has 3 batches"):
        store.total(weights={"a": 1.0, "d": 0.5})
    store.forget("a")
    with pytest.raises(ModelError, match=r"'a' was forgotten"):
        store.total(weights={"a": 0.5})


def test_a_model_of_any_union_of_groups_reads_nothing(tmp_path):
    """A cube of month × lat: what one read kept answers for every part of it."""
    cube, data = grown(tmp_path / "c.zarr", 0, 120), days(0, 120)
    model = ridge().fit(cube, "t", inputs=["u", "v"], by=["time.month", "lat"])
    model.save(tmp_path / "M.zarr", moments=True)
    store = MomentStore.open(tmp_path / "M.zarr")
    assert len(store.groups()) == 4 * 8
    cube.rename(tmp_path / "away.zarr")
    chosen = {"time.month": [2, 3], "lat": [-70.0, 70.0]}
    found = rs.load(tmp_path / "M.zarr", groups=chosen)
    part = data.sel(time=data["time.month"].isin([2, 3]), lat=[-70.0, 70.0])
    assert found.n_rows_ == part["t"].size == 60 * 2
    alone = rs.collect(
        found.features_, part, "t", inputs=["u", "v"], row=found.moments_.row, sums="float64",
        progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(found.moments_.sums, alone.sums, rtol=0, atol=1e-11)
    other = ridge(features=found.features_).fit_moments(found.features_, store.total(groups=chosen))
    np.testing.assert_allclose(other.coef_, found.coef_, rtol=0, atol=1e-9)
    with pytest.raises(ModelError, match="0 rows are left"):
        rs.load(tmp_path / "M.zarr", groups={"lat": 5})


def test_a_collected_cube_in_a_store_answers_for_any_union(tmp_path, path):
    """No model was fitted: what was collected by month and latitude is a store of its own."""
    cube, data = grown(tmp_path / "c.zarr", 0, 120), days(0, 120)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.5), 2, 24, rng=0)
    by = ["time.month", "lat"]
    groups = rs.collect(
        features, cube, "t", inputs=["u", "v"], by=by, sums="float64", progress=False
    )
    row = next(iter(groups.values())).row
    store = MomentStore.create(path, row)
    assert store.append("2000", groups) and not store.append("2000", groups)
    cube.rename(tmp_path / "away.zarr")
    for chosen in ({"time.month": [1]}, {"lat": [-70.0, 70.0], "time.month": [2, 3]}):
        found = ridge().fit_moments(features, store.total(groups=chosen))
        part = data.sel(time=data["time.month"].isin(chosen["time.month"]))
        part = part.sel(lat=chosen["lat"]) if "lat" in chosen else part
        alone = rs.collect(
            features, part, "t", inputs=["u", "v"], row=row, sums="float64", progress=False
        )
        assert found.n_rows_ == alone.n == part["t"].size
        expected = ridge().fit_moments(features, alone)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-9)


def test_groups_are_chosen_by_label_or_by_a_function(path):
    store = MomentStore.create(path, a_row())
    groups = {label: whole_moments(i) for i, label in enumerate([1, "1", 2, None])}
    store.append("a", groups)
    assert same_moments(store.total(groups=[1]), groups[1])
    assert same_moments(store.total(groups=["1", None]), groups[None] + groups["1"])
    assert same_moments(store.total(groups=lambda label: label == 2), groups[2])
    with pytest.raises(ModelError, match="is one text"):
        store.total(groups="1")


def test_a_model_of_a_window_is_not_updated(tmp_path):
    cube = grown(tmp_path / "c.zarr", 0, 30)
    fitted(cube).save(tmp_path / "M.zarr", moments=True)
    for stop in (33, 36):
        grown(cube, stop - 3, stop)
        rs.load(tmp_path / "M.zarr").update(cube)
    recent = rs.load(tmp_path / "M.zarr", where={"first": slice("2000-01-31", None)})
    assert recent.n_rows_ == 6 * 8
    fading = rs.load(tmp_path / "M.zarr", weights={"fit": 0.1})
    assert fading.n_rows_ == 36 * 8 and fading.moments_.weight == pytest.approx(9 * 8)
    with pytest.raises(ModelError, match="not known which rows"):
        recent.update(cube)


def test_moments_of_another_map_are_refused():
    one, two = (rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 8, rng=i) for i in (0, 1))
    x = np.random.default_rng(0).normal(size=(50, 2))
    moments = rs.collect(one, x, x[:, 0], progress=False)
    with pytest.raises(ModelError, match="moments are of the map"):
        ridge().fit_moments(two, moments)


def test_labels_of_several_columns_are_told_apart(tmp_path):
    """A comma in a value cut it; "u,g=1" was u of g=1; the text "None" was no label."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=X[:, 0], g=np.arange(60) % 3)
    table["h"] = np.array(["Oslo, Norway", "None", "x=1"], object)[np.arange(60) // 20]
    choices = {"n_components": 8, "length_scale": 1.0, "progress": False, "random_state": 0}
    model = rs.KernelRidge(**choices)
    model.fit(table, "y", inputs=["a", "b"], by=["g", "h"]).save(tmp_path / "m", moments=True)
    for place in ("Oslo, Norway", "None", "x=1"):
        assert rs.load(tmp_path / "m", groups={"h": [place]}).n_rows_ == 20
    chosen = rs.load(tmp_path / "m", groups={"g": [1], "h": ["Oslo, Norway"]})
    assert chosen.n_rows_ == ((table.g == 1) & (table.h == "Oslo, Norway")).sum()
    odd = table.replace({"h": {"None": "u,g=1"}})
    with pytest.raises(DataError, match=r"'u,g=1', and labels of several columns are joined"):
        model.fit(odd, "y", inputs=["a", "b"], by=["g", "h"])
    assert model.fit(odd, "y", inputs=["a", "b"], by="h").n_rows_ == 60
    missing = table.replace({"h": {"None": None}})
    with pytest.raises(DataError, match="A row without a label belongs to no group"):
        model.fit(missing, "y", inputs=["a", "b"], by=["g", "h"])
