"""A call that is refused, interrupted or overtaken leaves a model as it was."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from growing import fitted as fitted_on
from growing import grown
from rff_stream.errors import ModelError, NumericalWarning, PlanError
from rff_stream.store import MomentStore
from toys import ridge, rows


def density() -> rs.KernelDensity:
    return rs.KernelDensity(1.0, n_components=256, random_state=0, progress=False)


# --------------------------------------------------------------------------- a refused stream()


def test_a_refused_stream_forgets_no_batch():
    """Attack 7: too few leaves to look at; the batch that was counted stays counted."""
    model = ridge().partial_fit(*rows(500, 0), batch="a")
    with pytest.raises(PlanError, match="leaves"):
        next(model.stream(*rows(500, 0)))
    assert model.partial_fit(*rows(500, 0), batch="a").n_rows_ == 500


def test_a_refused_stream_leaves_a_loaded_model_its_store(tmp_path: Path):
    ridge().partial_fit(*rows(500, 0), batch="a").save(tmp_path / "M.zarr", moments=True)
    model = rs.load(tmp_path / "M.zarr")
    with pytest.raises(PlanError, match="leaves"):
        next(model.stream(*rows(500, 0)))
    model.partial_fit(*rows(100, 1), batch="b")
    assert (
        model.n_rows_
        == 600
        == sum(batch.rows for batch in MomentStore.open(tmp_path / "M.zarr").batches())
    )


def test_a_stream_refused_on_other_columns_leaves_those_of_the_fit():
    x, y = rows(500, 0)
    model = ridge().fit(x, y)
    before = model.predict(x)
    with pytest.raises(PlanError, match="leaves"):
        next(model.stream(np.hstack([x, x]), y))
    np.testing.assert_array_equal(model.predict(x), before)


# ---------------------------------------------------------------- interrupts, warnings as errors


def test_a_warning_as_error_in_the_solve_of_an_update_counts_nothing():
    """Attack 6: the rounding of float32 sums raises alpha, which warns."""
    model = ridge(n_components=200, alpha=1e-12, sums="float32", length_scale=50.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(*rows(400, 0), batch="a")
    before = dict(vars(model))
    with pytest.raises(NumericalWarning):
        model.update(*rows(100, 1), batch="b")
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.update(*rows(100, 1), batch="b").n_rows_ == 500


def test_refused_moments_leave_a_model_without_an_answer():
    """The moments of a density answer no regression."""
    model, x = ridge(), rows(300, 0)[0]
    of_rows = density().fit(x)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="hold a mean and no ZᵀZ"):
        model.fit_moments(of_rows.features_, of_rows.moments_)
    assert vars(model) == before


# ------------------------------------------------------------------------------ several threads


def test_batches_of_eight_threads_are_all_counted():
    """Attack 18."""
    model, errors = ridge().partial_fit(*rows(200, 0)), []
    start = threading.Barrier(8)

    def add(seed: int) -> None:
        start.wait()
        try:
            for i in range(4):
                model.partial_fit(*rows(100, 10 * seed + i), batch=f"{seed} {i}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert model.n_rows_ == 200 + 8 * 4 * 100 == model.moments_.n


# -------------------------------------------------------- rows that are known by their own place


def table(n: int) -> xr.Dataset:
    at = np.arange(n)
    return xr.Dataset(
        {"y": ("t", np.sin(at / 50)), "x": ("t", at / 20.0), "g": ("t", 1 + at // 200)}
    )


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """400 rows of two groups in a store that can grow."""
    encoding = {name: {"chunks": (50,)} for name in "yxg"}
    table(400).to_zarr(tmp_path / "t.zarr", encoding=encoding, consolidated=False)
    return tmp_path / "t.zarr"


def more(path: Path) -> None:
    """100 rows more, in a group of their own."""
    part = table(500).isel(t=slice(400, 500))
    part.to_zarr(path, append_dim="t", consolidated=False)


@pytest.mark.parametrize("fit_by", ["g", None])
@pytest.mark.parametrize("asked", [{}, {"by": "g"}, {"batch": "x"}], ids=str)
@pytest.mark.parametrize("in_store", [False, True])
def test_rows_of_growing_data_are_counted_once_however_they_are_asked_for(
    stored: Path, tmp_path: Path, fit_by: str | None, asked: Any, in_store: bool
):
    """Attack 5: data that a fit counted are known by their place, labelled or named."""
    model: Any = ridge().fit(stored, "y", inputs=["x"], by=fit_by)
    if in_store:
        model.save(tmp_path / "M.zarr", moments=True)
        model = rs.load(tmp_path / "M.zarr")
    assert model.update(stored, **asked).n_rows_ == 400
    more(stored)
    assert model.update(stored, **asked).n_rows_ == 500
    assert model.update(stored).n_rows_ == 500
    assert model.update(stored, by="g").n_rows_ == 500
    assert model.update(stored, batch="y").n_rows_ == 500
    if fit_by and in_store:
        groups = MomentStore.open(tmp_path / "M.zarr").groups()
        assert {int(label): part.n for label, part in groups.items()} == {1: 200, 2: 200, 3: 100}


def test_other_growing_data_are_still_batches_of_their_own(tmp_path: Path):
    model: Any = fitted_on(grown(tmp_path / "a.zarr", 0, 30))
    other = grown(tmp_path / "b.zarr", 0, 4)
    assert model.update(other, batch="south").update(other, batch="south").n_rows_ == 34 * 8
    with pytest.raises(ModelError, match="'south' was counted before with other rows"):
        model.update(grown(tmp_path / "c.zarr", 0, 3), batch="south")


def test_a_warning_as_an_error_leaves_the_model() -> None:
    choices: dict[str, Any] = {"n_components": 200, "alpha": 1e-12, "length_scale": 50.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ridge(sums="float32", **choices).partial_fit(*rows(400, 0), batch="a")
        warnings.simplefilter("error")
        with pytest.raises(Warning):
            model.update(*rows(100, 1), batch="b")
        warnings.simplefilter("ignore")
        assert model.update(*rows(100, 1), batch="b").n_rows_ == 500  # 600 before


def test_a_refused_stream_leaves_the_model() -> None:
    model = ridge().partial_fit(*rows(500, 0), batch="a")
    with pytest.raises(PlanError, match="are needed"):
        next(model.stream(*rows(500, 0)))
    assert model.partial_fit(*rows(500, 0), batch="a").n_rows_ == 500  # 1000 before
