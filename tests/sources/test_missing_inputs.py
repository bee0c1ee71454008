"""Missing inputs as information: a median in their place, and an input that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from test_every_container import CONTAINERS, Columns, Given, Rule, columns, in_numpy

import reference_answers as reference
import rff_stream as rs
from rff_stream._array import Array
from rff_stream.cli import main
from rff_stream.errors import DataError

N = 80
MAP = rs.FourierFeatures.sample(rs.Gaussian(1.5), 3, 16, rng=0, dtype="float64")
ALPHA = 0.1


@pytest.fixture(autouse=True)
def one_row_gives_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are small here."""
    monkeypatch.setattr("rff_stream.model.input_rows.FEWEST_MARKED", 1)


def ridge(**choices: Any) -> rs.KernelRidge:
    return rs.KernelRidge(
        features=MAP, alpha=ALPHA, missing_rows="indicate", dtype="float64", sums="float64",
        progress=False, **choices,
    )  # fmt: skip


def filled(cols: Columns, median: float) -> Array:
    """u with its median of the fit, v, and where u is missing."""
    absent = np.isnan(cols["u"])
    return np.column_stack([np.where(absent, median, cols["u"]), cols["v"], absent])


def dense(median: float, *parts: Columns) -> Any:
    """x ↦ ŷ of the rows, from one dense system of equations."""
    z = MAP(np.concatenate([filled(cols, median) for cols in parts]))
    y = np.concatenate([cols["a"] for cols in parts])[:, None]
    coef, intercept = reference.ridge(z, y, np.ones(len(y)), MAP.prior(), ALPHA, fit_intercept=True)
    return lambda cols: (MAP(filled(cols, median)) @ coef + intercept)[:, 0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_and_verb(container: str, tmp_path: Path) -> None:
    made, rule = CONTAINERS[container], Rule(gaps=True)
    first, second = columns(0, gaps=True), columns(1, gaps=True)
    a = Given(made, rule, first, tmp_path / "a")
    b = Given(made, rule, second, tmp_path / "b")
    median = float(np.nanmedian(first["u"]))
    one, both = dense(median, first), dense(median, first, second)
    fitted = ridge().fit(a.X, a.y, **a.inputs)
    name = fitted.columns_.inputs[0]
    assert fitted.columns_.inputs[2:] == (f"{name}=missing",)
    assert (fitted.n_features_in_, fitted.n_rows_) == (2, N)
    found = in_numpy(fitted.predict(b.X), 1)[:, 0]
    np.testing.assert_allclose(found, one(second), rtol=1e-8, atol=1e-8)
    missed = ((second["a"] - one(second)) ** 2).sum()
    r2 = 1 - missed / ((second["a"] - second["a"].mean()) ** 2).sum()
    assert fitted.score(b.X, b.y) == pytest.approx(r2, rel=1e-8)
    assert fitted.residuals(b.X, b.y).n == N
    for grown in (
        ridge().fit(a.X, a.y, **a.inputs).update(*b.later, batch="second"),
        ridge().fit(a.X, a.y, **a.inputs).partial_fit(b.X, *(() if b.named else (b.y,))),
    ):
        assert grown.n_rows_ == 2 * N
        found = in_numpy(grown.predict(b.X), 1)[:, 0]
        np.testing.assert_allclose(found, both(second), rtol=1e-8, atol=1e-8)


def table(n: int = 400) -> tuple[Array, Array]:
    """Inputs (n, 3) of which the second is missing where that tells of the target."""
    rng = np.random.default_rng(0)
    x, gone = rng.normal(size=(n, 3)), rng.random(n) < 0.3
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 2 * gone
    x[gone, 1] = np.nan
    return x, y


@pytest.mark.slow
def test_a_saved_model_fills_alike(tmp_path: Path) -> None:
    x, y = table()
    model = rs.KernelRidge(missing_rows="indicate", random_state=0).fit(x, y)
    model.save(tmp_path / "model.zarr", moments=True)
    loaded = rs.load(tmp_path / "model.zarr")
    assert loaded.columns_ == model.columns_
    assert np.array_equal(loaded.predict(x), model.predict(x))
    loaded.set_params(missing_rows="drop")  # says what a target without a value means
    assert np.array_equal(loaded.predict(x), model.predict(x))


@pytest.mark.slow
def test_that_a_value_is_missing_tells_of_the_target() -> None:
    x, y = table(1200)
    asked = {"missing_rows": "indicate", "random_state": 0}
    model = rs.GaussianProcessRegressor("gaussian", metric=None, **asked).fit(x[:800], y[:800])
    spread = y[800:].std()
    error = np.sqrt(np.mean((model.predict(x[800:]) - y[800:]) ** 2))
    # x1 is unknown in 30 % of the rows: its variance there is the least error, √.3 = .55.
    assert error < 1.1 * 0.3**0.5 < 0.5 * spread
    assert model.importance_["x1=missing"] > 0.2
    classes = rs.KernelClassifier(n_components=256, **asked).fit(x[:800], y[:800] > 1)
    assert classes.score(x[800:], y[800:] > 1) > 0.88


def test_rows_without_a_target_are_left_out_and_other_inputs_may_miss_values_later() -> None:
    x, y = table()
    y[:7] = np.nan
    model = rs.KernelRidge(missing_rows="indicate", n_components=64, random_state=0).fit(x, y)
    assert model.n_rows_ == len(y) - 7
    later = x.copy()
    later[:, 0] = np.nan  # had no missing value in the fit: its median stands there
    alike = np.where(np.isnan(later), dict(model.columns_.fills)["x0"], later)
    alike[:, 1] = x[:, 1]
    assert np.array_equal(model.predict(later), model.predict(alike))


@pytest.mark.slow
def test_a_missing_category_is_none_of_the_levels() -> None:
    rng = np.random.default_rng(1)
    sky = rng.choice(np.array(["sun", "rain", None], object), 300)
    frame = pd.DataFrame({"sky": sky, "u": rng.normal(size=300)})
    effect = {"sun": 1.0, "rain": -1.0, None: 4.0}
    frame["y"] = [effect[level] for level in sky] + 0.1 * frame["u"]
    asked: dict[str, Any] = {"kernel": "gaussian", "metric": None, "random_state": 0}
    model = rs.KernelRidge(missing_rows="indicate", **asked).fit(frame, "y")
    assert model.columns_.inputs == ("sky=rain", "sky=sun", "u")
    assert model.score(frame, "y") > 0.99
    many = frame.assign(sky=[f"level {i % 90}" for i in range(300)])
    many.loc[:40, "sky"] = None
    coded = rs.KernelRidge(missing_rows="indicate", **asked).fit(many, "y")
    assert coded.columns_.inputs == ("sky=*", "u")
    assert np.isfinite(coded.predict(many)).all()


@pytest.mark.parametrize("missing", ["drop", "error"])
def test_columns_are_as_before_where_nothing_is_indicated(missing: str) -> None:
    x, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50.0)
    model = rs.KernelRidge(n_components=16, missing_rows=missing).fit(x, y)
    assert (model.columns_.fills, model.columns_.indicated) == ((), ())


def test_medians_are_those_of_the_rows_that_count() -> None:
    """Rows that are held out, or left out by a condition or a weight of 0, tell a fit nothing."""
    x, y = table(60)
    asked = {"missing_rows": "indicate", "n_components": 16, "random_state": 0}
    frame = pd.DataFrame({"u": x[:, 1], "v": x[:, 2], "y": y, "w": (x[:, 2] > 0).astype(float)})
    part = frame[frame.v > 0]
    alone = rs.KernelRidge(**asked).fit(part[["u", "v", "y"]], "y").columns_.fills
    where = rs.KernelRidge(**asked).fit(frame, "y", inputs=["u", "v"], where=[("v", ">", 0)])
    weighted = rs.KernelRidge(**asked).fit(frame, "y", "w", inputs=["u", "v"])
    assert where.columns_.fills == weighted.columns_.fills == alone
    held = rs.HoldOut(0.5, 1)
    train = held.of_places(np.arange(60))
    found = rs.KernelRidge(**asked).fit(x, y, where=[held])
    assert dict(found.columns_.fills)["x1"] in x[train, 1]


def test_a_collection_of_unknown_lengths_is_filled_alike() -> None:
    x, y = table(120)
    asked = {"missing_rows": "indicate", "n_components": 16, "random_state": 0}
    lazy, targets = da.from_array(x, chunks=(40, 3)), da.from_array(y, chunks=40)
    every = lazy[:, 0] > -9
    unknown = rs.KernelRidge(**asked).fit(lazy[every], targets[every])
    assert unknown.columns_ == rs.KernelRidge(**asked).fit(x, y).columns_


def test_missing_inputs_after_a_fit_without_any_rule_are_an_error() -> None:
    x, y = table(60)
    model = rs.KernelRidge(n_components=16, random_state=0).fit(np.nan_to_num(x), y)
    with pytest.raises(ValueError, match="NaN"):
        model.set_params(missing_rows="indicate").predict(x)


def test_what_has_no_target_is_refused() -> None:
    x, y = table(60)
    with pytest.raises(ValueError, match="KernelDensity has no target"):
        rs.KernelDensity(missing_rows="indicate").fit(x)
    with pytest.raises(ValueError, match="missing_rows='indicate' but it must be one of"):
        rs.collect(MAP, x, y, missing_rows="indicate")


def test_the_shell_knows_it(tmp_path: Path) -> None:
    x, y = table(120)
    rows, made, out = (str(tmp_path / name) for name in ("rows.csv", "model.zarr", "out.csv"))
    pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y}).to_csv(rows, index=False)
    asked = ["--target", "y", "--missing-rows", "indicate", "--n-components", "32"]
    run = CliRunner()
    assert run.invoke(main, ["fit", rows, *asked, "--model", made]).exit_code == 0
    assert run.invoke(main, ["predict", made, rows, "--output", out]).exit_code == 0
    assert np.isfinite(pd.read_csv(out)["y"]).all() and len(pd.read_csv(out)) == 120


@pytest.mark.filterwarnings("ignore:.*explains")
def test_masked_entries_of_a_dask_array_are_no_part_of_a_median() -> None:
    x, y = table()
    absent = np.isnan(x)
    masked = da.from_array(np.ma.array(np.where(absent, 99.0, x), mask=absent), chunks=(100, 3))
    model = rs.KernelRidge(missing_rows="indicate", n_components=16, random_state=0).fit(masked, y)
    assert dict(model.columns_.fills)["x1"] == np.nanmedian(x[:, 1])


@pytest.mark.parametrize("inputs", [None, ["u", "u=missing"]])
def test_an_input_of_the_name_of_an_indicator_is_refused(inputs: Any) -> None:
    x, y = table(60)
    frame = pd.DataFrame({"u": x[:, 1], "u=missing": x[:, 0], "y": y})
    model = rs.KernelRidge(missing_rows="indicate", n_components=16)
    with pytest.raises(DataError, match=r"'u=missing' is an input already.*Rename the column"):
        model.fit(frame, "y", inputs=inputs)
    assert not hasattr(model, "columns_")
    complete = model.fit(frame.fillna({"u": 0.0}), "y", inputs=inputs)
    assert complete.columns_.inputs == ("u", "u=missing")


def test_a_column_of_numbers_with_the_name_of_many_levels_is_refused() -> None:
    x, y = table(60)
    frame = pd.DataFrame({"u=*": x[:, 0], "y": y})
    with pytest.raises(DataError, match=r"column 'u=\*' holds float64 values.*Rename"):
        rs.KernelRidge(n_components=16).fit(frame, "y")


def test_empty_cells_of_text_in_csv_are_missing(tmp_path: Path) -> None:
    sky = np.array(["sun", "rain", None], object)[np.arange(90) % 3]
    frame = pd.DataFrame({"sky": sky, "u": np.arange(90) % 7, "y": np.arange(90.0)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    path = str(tmp_path / "rows.csv")
    dropped = rs.KernelRidge(missing_rows="drop", n_components=16, random_state=0).fit(path, "y")
    assert (dropped.columns_.inputs, dropped.n_rows_) == (("sky=rain", "sky=sun", "u"), 60)
    with pytest.raises(DataError, match="sky"):
        rs.KernelRidge(n_components=16).fit(path, "y")


@pytest.mark.parametrize("made", ["None", "NA", "arrow", "complete"])
def test_truths_of_which_some_are_missing_are_numbers(made: str) -> None:
    truth = pd.array(np.arange(60) % 2 == 0, dtype="boolean")
    if made != "complete":
        truth[::5] = pd.NA
    column: Any = {"None": truth.to_numpy(object, na_value=None), "NA": truth.astype(object)}.get(
        made, pd.array(truth.to_numpy(object, na_value=None), dtype="bool[pyarrow]")
    )
    y = np.arange(60.0)
    asked = {"missing_rows": "indicate", "n_components": 16, "random_state": 0}
    frames = [pd.DataFrame({"u": y % 7, "v": each}) for each in (column, truth.astype("Float64"))]
    found, same = (rs.KernelRidge(**asked).fit(frame, y) for frame in frames)
    assert found.columns_ == same.columns_
    np.testing.assert_array_equal(found.predict(frames[0]), same.predict(frames[1]))
