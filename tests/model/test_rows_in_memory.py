"""Rows in memory follow the rules of the fit: each fault of an attack by its smallest case."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import rff_stream as rs
import toys
from rff_stream.errors import DataError, ModelError
from toys import ridge

pa = pytest.importorskip("pyarrow")

N = 200


def frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(rng.normal(size=(N, 2)), columns=["u", "v"])
    found["a"], found["b"] = np.sin(found.u), 10 + found.v**2
    return found.assign(w=rng.uniform(0.5, 2, N))


@pytest.mark.parametrize("verb", ["update", "partial_fit"])
def test_conditions_of_the_fit_choose_later_rows_of_a_frame(verb):
    first, second = frame(0), frame(1)
    model = ridge().fit(first, "a", inputs=["u", "v"], where=[("u", "<", 0)])
    getattr(model, verb)(second, "a")
    assert model.n_rows_ == (first.u < 0).sum() + (second.u < 0).sum()
    density = rs.KernelDensity(n_components=256, random_state=0, progress=False)
    density.fit(first, inputs=["u", "v"], where=[("u", "<", 0)])
    assert getattr(density, verb)(second).n_rows_ == model.n_rows_


def test_conditions_of_a_classifier_choose_later_rows():
    first, second = frame(0), frame(1)
    first["kind"], second["kind"] = (np.where(each.u > 0, "p", "n") for each in (first, second))
    model = rs.KernelClassifier(n_components=32, random_state=0, progress=False)
    model.fit(first, "kind", inputs=["u", "v"], where=[("v", "<", 1)])
    model.partial_fit(second, "kind", where=[("v", ">", -1)])
    kept = (second.v < 1) & (second.v > -1)
    assert model.n_rows_ == (first.v < 1).sum() + kept.sum()
    found = model.scores(second, where=[("v", "<", 0)])
    assert found.n == (second.v < 0).sum()


def test_other_targets_of_frames_are_refused():
    first, second = frame(0), frame(1)
    one = ridge().fit(first, "a", inputs=["u", "v"])
    with pytest.raises(ModelError, match=r"targets of the data are \('b',\)"):
        one.update(second, "b")
    assert one.score(second[["u", "v"]], second.b) == one.score(second, "b")  # a measurement
    by_name = ridge().fit(first, ["a", "b"], inputs=["u", "v"])
    beside = ridge().fit(first[["u", "v"]], first[["a", "b"]])
    for call in (
        lambda: by_name.partial_fit(second, ["b", "a"]),
        lambda: beside.partial_fit(second[["u", "v"]], second[["b", "a"]]),
        lambda: beside.score(second[["u", "v"]], second[["b", "a"]]),
    ):
        with pytest.raises(ModelError, match=r"targets of the data are \('b', 'a'\)"):
            call()
    assert by_name.score(first, ["a", "b"]) == by_name.score(first[["u", "v"]], first[["a", "b"]])


def test_the_weight_column_of_the_fit_is_that_of_later_frames():
    first, second = frame(0), frame(1)
    model = ridge().fit(first, "a", "w", inputs=["u", "v"])
    model.update(second)
    assert model.moments_.weight == pytest.approx(first.w.sum() + second.w.sum())
    with pytest.raises(ModelError, match="rows of the fit have weights, 'w', but X is a ndarray"):
        model.update(second[["u", "v"]].to_numpy(), second.a.to_numpy())


def test_conditions_choose_the_rows_of_a_score_in_memory():
    x = frame()[["u", "v"]].to_numpy()
    y = np.sin(x[:, 0]) + np.cos(x[:, 1])
    model, chosen = ridge(alpha=1.0).fit(x, y), x[:, 1] <= 0
    found = model.score(x, y, where=[("x1", "<=", 0)])
    assert found == pytest.approx(model.score(x[chosen], y[chosen]), rel=1e-12)
    labels = np.where(y > 0.5, "p", "n")
    classes = rs.KernelClassifier(n_components=32, random_state=0, progress=False).fit(x, labels)
    right = classes.predict(x) == labels
    assert classes.score(x, labels, where=[("x1", "<=", 0)]) == pytest.approx(right[chosen].mean())


def test_rows_that_are_dropped_are_no_errors_of_a_classifier():
    x = frame()[["u", "v"]].to_numpy(copy=True)
    labels = np.where(x[:, 0] > 0, "p", "n").astype(object)
    x[:30], labels[30:40] = np.nan, None
    model = rs.KernelClassifier(
        n_components=32, random_state=0, progress=False, missing_rows="drop"
    ).fit(x, labels)
    right = model.predict(x[40:]) == labels[40:]
    assert model.score(x, labels) == pytest.approx(right.mean())
    assert model.scores(x, labels).n == N - 40


def test_integer_names_are_names():
    rows = frame()[["u", "v"]].set_axis([0, 1], axis=1)
    y = np.sin(rows[0].to_numpy()) + rows[1].to_numpy() ** 2
    model = ridge().fit(rows, y)
    assert model.columns_.inputs == ("0", "1")
    assert np.array_equal(model.predict(rows), model.predict(rows[[1, 0]]))
    assert model.score(rows[[1, 0]], y) == model.score(rows, y) > 0.9
    with pytest.raises(DataError, match="no column '0'"):
        model.predict(rows.set_axis([2, 3], axis=1))
    with_target = rows.assign(y=y)
    assert len(ridge().fit(with_target, "y").predict(with_target)) == N


def test_a_score_does_not_pair_rows_of_other_indexes():
    rows = frame()
    model = ridge().fit(rows[["u", "v"]], rows.a)
    with pytest.raises(DataError, match="y and X have other indexes"):
        model.score(rows[["u", "v"]], rows.a.sample(frac=1, random_state=0))


def test_a_series_named_as_an_input_takes_no_input_away():
    rows = frame()[["u", "v"]].set_axis([0, 1], axis=1)
    model = ridge().fit(rows, pd.Series(np.arange(N) * 1.0, name=0))
    assert model.columns_.inputs == ("0", "1")


def test_labels_in_a_list_are_no_names_of_targets():
    x = frame()[["u", "v"]].to_numpy()
    labels = np.where(x[:, 0] > 0, "p", "n").tolist()
    model = rs.KernelClassifier(n_components=32, random_state=0, progress=False).fit(x, labels)
    assert model.columns_.targets == ("y",)
    assert model.update(x[:50] + 0.1, labels[:50]).n_rows_ == N + 50


CATEGORIES = {
    "Categorical": lambda labels: pd.Categorical(labels, ["never", *"qpn"]),
    "ordered": lambda labels: pd.Categorical(labels, list("qpn"), ordered=True),
    "index": lambda labels: pd.CategoricalIndex(labels, list("qpn")),
    "array of text": lambda labels: pd.array(labels.tolist()),
    "series": lambda labels: pd.Series(labels, dtype="category"),
    "polars": lambda labels: (
        pytest.importorskip("polars")
        .Series(labels)
        .cast(pytest.importorskip("polars").Enum(["never", *"qpn"]))
    ),
    "Arrow": lambda labels: pytest.importorskip("pyarrow").array(labels).dictionary_encode(),
}


@pytest.mark.parametrize("kind", CATEGORIES)
@pytest.mark.parametrize("named", [True, False])
def test_categories_beside_rows_are_their_labels(kind, named):
    """Those of pandas without an index ended in an AttributeError."""
    x = frame()[["u", "v"]] if named else frame()[["u", "v"]].to_numpy()
    labels = np.select([frame().u > 0.5, frame().v > 0.5], ["p", "q"], "n")
    model = rs.KernelClassifier(n_components=32, random_state=0, progress=False)
    expected = model.fit(x, labels).predict_proba(x)
    given = CATEGORIES[kind](labels)
    found = model.fit(x, given)
    assert found.classes_.tolist() == ["n", "p", "q"]
    np.testing.assert_array_equal(found.predict_proba(x), expected)
    assert found.score(x, given) == (found.predict(x) == labels).mean()


@pytest.mark.filterwarnings("ignore:X has names")
def test_arrays_of_pandas_beside_rows_are_values():
    rows = frame()
    x, y, w = rows[["u", "v"]], pd.array(rows.a), pd.array(rows.w, dtype="double[pyarrow]")
    expected = ridge().fit(x, rows.a, rows.w).predict(x)
    np.testing.assert_array_equal(ridge().fit(x, y, w).predict(x), expected)
    np.testing.assert_array_equal(
        ridge().fit(x.to_numpy(), pd.Index(rows.a), w).predict(x), expected
    )
    assert set(rs.collect(ridge().fit(x, y).features_, x, by=pd.Categorical(["s", "t"] * 100))) == {
        "s",
        "t",
    }


@pytest.mark.filterwarnings("ignore:X has names")
@pytest.mark.parametrize("verb", ["predict", "score", "update", "partial_fit"])
@pytest.mark.parametrize("kind", [str, "category", "string[pyarrow]"])
def test_text_where_the_fit_had_numbers_is_refused(verb, kind):
    data = frame()
    model = ridge().fit(data[["u", "v", "a"]], "a")
    later = data[["u", "v", "a"]].assign(u=data.u.round(1).astype(str).astype(kind))
    with pytest.raises(DataError, match=r"'u' holds .* but the model was fitted on numbers"):
        getattr(model, verb)(later, *(["a"] if verb != "predict" else []))
    with pytest.raises(DataError, match=r"'u' holds .* but the model was fitted on numbers"):
        ridge().fit(data[["u", "v"]].to_numpy(), data.a).predict(later[["u", "v"]])
    assert model.n_rows_ == N


@pytest.mark.filterwarnings("ignore:X has names")
@pytest.mark.parametrize("verb", ["predict", "score", "update", "partial_fit"])
@pytest.mark.parametrize("make", [pd.DataFrame, pa.Table.from_pandas, xr.Dataset.from_dataframe])
def test_times_where_the_fit_had_numbers_are_refused(verb, make):
    data = frame()[["u", "v", "a"]]
    times = pd.Series(pd.date_range("2000-01-01", periods=N, freq="D"))
    model, target = ridge().fit(data, "a"), () if verb == "predict" else ("a",)
    named = {"batch": "times"} if verb == "update" else {}
    with pytest.raises(DataError, match=r"'u' holds times .* but the model was fitted on numbers"):
        getattr(model, verb)(make(data.assign(u=times)), *target, **named)
    if target:
        with pytest.raises(DataError, match=r"'a' holds times"):
            getattr(model, verb)(make(data.assign(a=times)), "a", **named)
    by_place = ridge().fit(data[["u", "v"]].to_numpy(), data.a)
    with pytest.raises(DataError, match=r"'x0' holds times"):
        by_place.predict(data[["u", "v"]].assign(u=times))
    with pytest.raises(DataError, match=r"'x0' holds times"):
        by_place.predict(np.array([times, times]).T)
    assert model.n_rows_ == N


def test_arrays_of_times_are_days():
    times = np.datetime64("2020-01-01") + np.arange(N).astype("m8[D]")[:, None]
    a = frame().a
    model = ridge().fit(times, a)
    dense = ridge().fit(times.astype("M8[D]").astype(np.float64), a)
    for later in (times, times.astype("M8[ns]")):
        np.testing.assert_array_equal(model.predict(later), dense.predict(times.astype(float)))
    spans = ridge().fit(times - times[0], a)
    assert spans.score(times - times[0], a) == spans.score((times - times[0]).astype(float), a)


@pytest.mark.parametrize("make", [pd.DataFrame, pa.Table.from_pandas, xr.Dataset.from_dataframe])
def test_numbers_where_the_fit_had_times_are_refused(make):
    """The year 2015 was read as the day 2015 after 1970."""
    data = frame()[["v", "a"]].assign(u=pd.date_range("2000-01-01", periods=N, freq="D"))
    model = ridge().fit(make(data), "a")
    with pytest.raises(DataError, match=r"'u' holds numbers without a unit, but .* on times"):
        model.predict(make(data.assign(u=2015.0)))
    days = (data.u - pd.Timestamp("1970-01-01")).dt.days
    columns = {"u": days, "v": data.v}
    by_place = np.column_stack([columns[name] for name in model.columns_.inputs])
    with (
        pytest.warns(UserWarning, match="feature names")
        if make != xr.Dataset.from_dataframe
        else contextlib.nullcontext()
    ):
        found = model.predict(by_place)
    np.testing.assert_allclose(found, np.asarray(model.predict(make(data))))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("verb", ["fit", "score", "update", "partial_fit"])
def test_targets_whose_squares_overflow_are_named(verb):
    """The sums of an update were "not finite", whatever had made them so."""
    data = frame()[["u", "v", "a"]]
    model, far = ridge().fit(data, "a"), data.copy()
    far.loc[7, "a"] = -1e160
    rule = r"'a' holds 1 values beyond .*, the first -1e\+160 at row 7\. .* Multiply the target"
    with pytest.raises(DataError, match=rule):
        getattr(model, verb)(far, "a")
    assert model.n_rows_ == N


def test_a_column_without_any_value_is_missing_in_every_row(tmp_path):
    """Arrow gives it a type of its own, which was refused as text that is to be encoded."""
    data = frame()[["u", "v", "a"]].assign(empty=None)
    data.to_csv(tmp_path / "rows.csv", index=False)
    for rows in (data, pa.table({**data[["u", "v", "a"]], "empty": pa.nulls(N)}),
                 str(tmp_path / "rows.csv")):  # fmt: skip
        with pytest.raises(DataError, match=rf"'empty' holds {N} NaN in rows"):
            ridge().fit(rows, "a")
        with pytest.raises(
            DataError, match=r'Found 0 sample.* inputs "u", "v" and "empty"\) .* missing'
        ):
            ridge(missing_rows="drop").fit(rows, "a")
        assert ridge().fit(rows, "a", inputs=["u", "v"]).n_rows_ == N


def test_what_a_mask_hides_is_no_number() -> None:
    x, y = toys.rows(300, 0)
    hidden = np.ma.array(y, mask=np.arange(300) == 7)
    hidden.data[7] = 9.97e36
    predicted = ridge(missing_rows="drop").fit(x, hidden).predict(x[:2])
    assert np.allclose(predicted, y[:2], atol=0.2)  # 3e34 before
