"""Categories and text as inputs of 0 and 1, one a level, in every kind of table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.model_selection import GridSearchCV

import rff_stream as rs
from rff_stream.errors import DataError
from rff_stream.sources import Columns, open_source
from rff_stream.sources.levels import Indicators, text_of_time
from rff_stream.sources.rows import NonNumbers
from toys import ridge

pytestmark = pytest.mark.usefixtures("quiet")

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

N = 300
NAMES = ("a", "sky=fog", "sky=rain", "sky=sun")


def text() -> Any:
    """A frame whose column "sky" is text."""
    rng = np.random.default_rng(0)
    a, sky = rng.normal(size=N), rng.choice(["rain", "sun", "fog"], N)
    y = np.sin(a) + 2.0 * (sky == "rain") - (sky == "fog") + 0.1 * rng.normal(size=N)
    return pd.DataFrame({"a": a, "sky": sky, "y": y})


def categories() -> Any:
    return text().astype({"sky": "category"})


def numbers() -> tuple[np.ndarray, np.ndarray]:
    """What the inputs are: a, and one column of 0 and 1 a level."""
    table = text()
    levels = [table.sky == level for level in ("fog", "rain", "sun")]
    return np.column_stack([table.a, *levels]).astype(float), table.y.to_numpy()


def parquet(path: Path, frame: Any) -> str:
    frame.to_parquet(path / "x.parquet", row_group_size=70)
    return str(path / "x.parquet")


def csv(path: Path) -> str:
    text().to_csv(path / "x.csv", index=False)
    return str(path / "x.csv")


def enum(path: Path) -> Any:
    kind = "ENUM('fog', 'rain', 'snow', 'sun')"
    return duckdb.sql(f"select a, sky::{kind} as sky, y from '{csv(path)}'")


CATEGORIES: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda path: categories(),
    "polars": lambda path: pl.from_pandas(text()).with_columns(pl.col("sky").cast(pl.Categorical)),
    "polars lazy": lambda path: (
        pl.from_pandas(text())
        .lazy()
        .with_columns(pl.col("sky").cast(pl.Enum(["fog", "rain", "snow", "sun"])))
    ),
    "Arrow": lambda path: pa.Table.from_pandas(categories()),
    "DuckDB": enum,
    "Parquet": lambda path: parquet(path, categories()),
    "Dask": lambda path: dask_frame(categories()),
}
TEXT: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda path: text(),
    "pandas objects": lambda path: text().astype({"sky": object}),
    "polars": lambda path: pl.from_pandas(text()),
    "Arrow": lambda path: pa.Table.from_pandas(text()),
    "Parquet": lambda path: parquet(path, text()),
    "CSV": csv,
    "xarray": lambda path: xr.Dataset.from_dataframe(text()),
}


def dask_frame(frame: Any) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)


@pytest.mark.parametrize("kind", CATEGORIES)
def test_categories_are_inputs_of_0_and_1(kind: str, tmp_path: Path) -> None:
    """The fit is that of scikit-learn's one-hot columns, and goes to every other container."""
    X, (rows, y) = CATEGORIES[kind](tmp_path), numbers()
    model, same = ridge().fit(X, "y"), ridge().fit(rows, y)
    assert model.columns_.inputs == NAMES
    exact = kind in ("pandas", "polars", "Arrow")  # others draw their pilot from blocks
    close = {"rtol": 0.0 if exact else 1e-3, "atol": 0.0 if exact else 1e-3}
    np.testing.assert_allclose(model.predict(text()), same.predict(rows), **close)
    np.testing.assert_allclose(
        np.asarray(model.predict(X)).ravel(), model.predict(text()), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("kind", TEXT)
def test_text_has_levels_named_or_not(kind: str, tmp_path: Path) -> None:
    X = TEXT[kind](tmp_path)
    bare = ridge().fit(X, "y")
    assert set(bare.columns_.inputs) == set(NAMES)
    assert bare.score(text(), text().y) > 0.9
    by_column = ridge().fit(X, "y", inputs=["a", "sky"])
    by_level = ridge().fit(X, "y", inputs=list(NAMES))
    assert by_column.columns_.inputs == by_level.columns_.inputs == NAMES
    np.testing.assert_array_equal(by_column.predict(text()), by_level.predict(text()))
    assert by_column.score(text(), text().y) > 0.9


def test_words_of_a_refusal_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a column holds is a type: another wording changes no input."""
    monkeypatch.setattr(NonNumbers, "__str__", lambda _: "other words")
    for X in (categories(), pl.from_pandas(categories())):
        assert open_source(X, "y").columns.inputs == NAMES
    for X in (text(), pl.from_pandas(text())):
        assert open_source(X, "y").columns.inputs == NAMES


def test_a_level_that_the_fit_did_not_see_is_none_of_its_levels() -> None:
    model, rows = ridge().fit(categories(), "y"), numbers()[0]
    other = text().assign(sky="hail")
    none = np.column_stack([rows[:, 0], np.zeros((N, 3))])
    np.testing.assert_array_equal(model.predict(other), model.predict(table_of(none)))
    assert model.partial_fit(other, "y").n_rows_ == 2 * N


def table_of(rows: np.ndarray) -> Any:
    return pd.DataFrame(rows, columns=list(NAMES))


def test_a_missing_level_is_a_missing_value(tmp_path: Path) -> None:
    gap = categories()
    gap.loc[3, "sky"] = None
    with pytest.raises(ValueError, match="NaN"):
        ridge().fit(gap, "y")
    assert ridge(missing_rows="drop").fit(gap, "y").n_rows_ == N - 1
    stored = parquet(tmp_path, gap)
    with pytest.raises(DataError, match="'sky=fog' holds 1 NaN"):
        ridge().fit(stored, "y")
    assert ridge(missing_rows="drop").fit(stored, "y").n_rows_ == N - 1
    found = Indicators(("x", "y"))(np.array(["x", None, np.nan, "z"], object))
    np.testing.assert_array_equal(found, [[1, 0], [np.nan] * 2, [np.nan] * 2, [0, 0]])
    masked = text().astype({"sky": "string"})
    masked.loc[3, "sky"] = pd.NA
    model = ridge(missing_rows="drop").fit(masked, "y", inputs=["a", "sky"])
    assert model.n_rows_ == N - 1


def test_levels_are_kept_with_a_model_and_across_folds(tmp_path: Path) -> None:
    model = ridge().fit(categories(), "y")
    model.save(tmp_path / "m.zarr", moments=True)
    again = rs.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict(text()), model.predict(text()))
    more = categories().assign(a=categories().a + 0.1)
    assert again.update(more, "y", batch="more").n_rows_ == 2 * N
    search = GridSearchCV(ridge(), {"alpha": [0.1, 1.0]}, cv=3)
    assert search.fit(categories()[["a", "sky"]], text().y).best_score_ > 0.9


def test_numbers_and_flags_may_be_categories() -> None:
    frame = pd.DataFrame({"k": pd.Categorical([3, 1, 3, 2]), "f": pd.Categorical([True] * 4)})
    columns = ("f=True", "k=1", "k=2", "k=3")
    for X in (frame, pa.Table.from_pandas(frame)):
        source = open_source(X)
        assert set(source.columns.inputs) == set(columns)
        fitted = open_source(X, columns=Columns(columns))
        rows = next(iter(fitted.reader.read(((0, 4),), *fitted.arguments(((0, 4),)))))
        np.testing.assert_array_equal(rows.x, [[1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 1],
                                               [1, 0, 1, 0]])  # fmt: skip


def test_what_is_neither_text_nor_a_number_is_refused() -> None:
    unknown = dask_frame(text()).astype({"sky": "category"})
    with pytest.raises(DataError, match=r"not known before.*categorize\(columns=\['sky'\]\)"):
        ridge().fit(unknown, "y")
    mixed = text().assign(sky=["fog", 1.5] * (N // 2))
    with pytest.raises(DataError, match=r"'sky' holds 1.5, a float, beside text"):
        ridge().fit(mixed, "y")


def test_a_level_that_no_row_of_the_fit_has_is_told_of_with_its_share(tmp_path: Path) -> None:
    """All its inputs are 0 there: a prediction for rain, sun and fog was given for snow."""
    table = categories()
    model = ridge().fit(table[["a", "sky"]], table.y)
    new = text()[["a", "sky"]]
    new.loc[:29, "sky"] = "snow"
    told = r"^10.00% of the rows have a value of sky that no row of the fit has"
    model.save(tmp_path / "model.zarr", moments=False)
    for each in (model, rs.load(tmp_path / "model.zarr")):
        with pytest.warns(rs.NumericalWarning, match=told):
            each.predict(new)
        with pytest.warns(rs.NumericalWarning, match=told):
            each.score(new.assign(y=table.y))
    dask_frames = pytest.importorskip("dask.dataframe")
    with pytest.warns(rs.NumericalWarning, match="of sky that no row of the fit has"):
        model.predict(dask_frames.from_pandas(new, npartitions=2)).compute()
    some = ridge().fit(text(), "y", inputs=["a", "sky=rain"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", rs.NumericalWarning)
        model.predict(table[["a", "sky"]])
        some.predict(text())  # 0 for all but rain, as in the fit


def test_a_new_level_of_a_column_with_one_is_told_once() -> None:
    """Its input was also outside of a range from 1 to 1."""
    table = text().assign(sky="sun")
    model = ridge().fit(table, "y", inputs=["a", "sky"])
    with pytest.warns(rs.NumericalWarning) as told:
        model.predict(table[["a", "sky"]].assign(sky="rain"))
    assert ["have a value of sky" in str(each.message) for each in told] == [True]


def test_columns_along_a_dimension_are_no_levels() -> None:
    """Shares of two types of land that add up to 1 were levels of "frac[type"."""
    table = text()
    share = np.random.default_rng(1).random(N)
    parts = {"frac": (("row", "type"), np.stack([share, 1 - share], axis=1)), "y": ("row", table.y)}
    rows = xr.Dataset(parts)
    model = ridge().fit(rows, "y", inputs=["frac"])
    with pytest.warns(rs.NumericalWarning) as told:
        model.predict(rows[["frac"]] + 5.0)
    assert ["lie outside the range" in str(each.message) for each in told] == [True]


@pytest.mark.parametrize("kinds", [(int, float), (float, int)])
def test_whole_numbers_are_the_same_levels_as_integers_and_as_floats(
    kinds: tuple[type, ...],
) -> None:
    """ "k=3" of one file was "k=3.0" in another: no row had a level that the fit knows."""
    table = text()
    numbers = np.random.default_rng(1).integers(0, 3, N)
    first, other = (table[["a"]].assign(k=pd.Categorical(numbers.astype(k))) for k in kinds)
    model = ridge().fit(first, table.a + numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error", rs.NumericalWarning)
        assert (model.predict(other) == model.predict(first)).all()
    texts = Indicators(("3", "3.0"))
    assert texts(np.array(["3", "3.0"])).tolist() == [[1, 0], [0, 1]]


def test_the_remedy_for_text_of_a_lazy_data_set_is_one_that_it_has():
    """It named a method of Dask's frames."""
    rows = xr.Dataset({"sky": ("i", np.array(["a", "b"] * 5)), "y": ("i", np.arange(10.0))})
    with pytest.raises(DataError, match=r"'sky' are not known before.*or load the column before"):
        rs.KernelRidge().fit(rows.chunk(i=5), "y")


def coded(kind: str, missing: bool) -> Any:
    """A frame whose column "k" has categories that are no text."""
    rng = np.random.default_rng(1)
    k, a = rng.choice([3, 7, 11], N), rng.normal(size=N)
    days = np.datetime64("1969-12-30", "s") + k * np.timedelta64(43_200, "s")
    values = {
        "integers": k,
        "floats": k + 0.5,
        "truths": k == 7,
        "times": pd.to_datetime(days),
        "times with a zone": pd.to_datetime(days).tz_localize("UTC").tz_convert("Europe/Berlin"),
        "days": [day.date() for day in pd.to_datetime(days)],
    }
    y = a + 2.0 * (k == 7)
    frame = pd.DataFrame({"a": a, "k": pd.Categorical(values[kind]), "y": y})
    if missing:
        frame.loc[5, "k"] = None
    return frame


@pytest.mark.parametrize("missing", [False, True], ids=["all", "one missing"])
@pytest.mark.parametrize(
    "kind", ["integers", "floats", "truths", "times", "times with a zone", "days"]
)
def test_categories_of_any_type_are_levels_in_every_table(
    kind: str, missing: bool, tmp_path: Path
) -> None:
    """Parquet has categories of text only, and Arrow has its own text of times."""
    import dask.dataframe as dd
    import pyarrow.dataset as ds

    frame = coded(kind, missing)
    table, path = pa.Table.from_pandas(frame), parquet(tmp_path, frame)
    tables: dict[str, Any] = {
        "pandas": frame,
        "Arrow": table,
        "Parquet": path,
        "dataset": ds.dataset(path),
        "batches": None,
        "Dask": dd.from_pandas(frame, npartitions=2),
    }
    fitted = {}
    for name, X in tables.items():
        X = pa.RecordBatchReader.from_batches(table.schema, table.to_batches()) if X is None else X
        fitted[name] = ridge(missing_rows="drop").fit(X, "y")
    inputs = fitted["pandas"]._fitted.columns.inputs
    assert len(inputs) == (3 if kind == "truths" else 4)
    expected = fitted["pandas"].score(frame, "y")
    assert expected > 0.99
    for name, X in tables.items():
        assert fitted[name]._fitted.columns.inputs == inputs, name
        assert fitted[name].score(frame, "y") == pytest.approx(expected, rel=1e-3), name
        if X is not None:
            assert fitted["pandas"].score(X, "y") == pytest.approx(expected, rel=1e-3), name


def test_levels_of_times_have_one_text() -> None:
    moment = np.datetime64("2020-01-04T06:00:00.5", "us")
    zone = pd.Timestamp("2020-01-04 07:00:00.5", tz="Europe/Berlin")
    for values in (np.array([moment]), moment[None].astype("M8[ns]"), np.array([zone], object)):
        found = Indicators(("2020-01-04T06:00:00.500000", "2020-01-04 07:00:00.5+01:00"))(values)
        np.testing.assert_array_equal(found, [[1, 1]])
    for text, one in {
        "2020-01-04": "2020-01-04 00:00:00",
        "2020-01-04T06": "2020-01-04 06:00:00",
        "1969-12-31T23:59:59.123456789": "1969-12-31 23:59:59.123456789",
        "2020-01-04T06:00:00.120000000": "2020-01-04 06:00:00.120000",
        "no time": "no time",
    }.items():
        assert text_of_time(text) == one


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ([*map(str, range(12)), "-"], "beside '-'"),
        ([*map(str, range(12)), " ", "n/a"], "beside ' '"),
        (["1,234.5", "987.1", "12,000"], "'1,234.5'"),
        (["1,5", "2,25", "3"], "'1,5'"),
        ([f"{i / 8}" for i in range(100)], "'0.0'"),
        ([*map(str, range(12)), "2A"], ""),  # codes: of regions, of postcodes, of ratings
        ([f"{i:05}" for i in range(100)], ""),
        (["1", "2", "low", "high"], ""),
    ],
)
def test_text_whose_levels_are_numbers_is_told_of(tmp_path, levels, told):
    """In CSV one mark makes text of a column of numbers, and a fit takes its values for levels."""
    frame = pd.DataFrame({"n": np.resize(levels, N), "y": np.arange(float(N))})
    csv = tmp_path / "x.csv"
    frame.to_csv(csv, index=False)
    for table in (frame, pl.from_pandas(frame), *([csv] if told and len(levels) < 65 else [])):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            open_source(table, "y")
        words = [str(each.message) for each in found]
        assert bool(words) == bool(told) and all("'n' holds text" in each for each in words)
        assert all(told in each for each in words)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_source(frame.astype({"n": "category"}), "y")


def test_a_column_of_the_name_of_a_level_is_refused():
    """The model would have two inputs of one name, and later rows would give one of them twice."""
    frame = text()
    frame["sky=sun"] = frame["a"] ** 2
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        with pytest.raises(DataError, match=r"Two inputs have the name 'sky=sun'.*Rename"):
            ridge().fit(table, "y")
    inputs = ["a", "sky=rain", "sky=sun"]  # the column, by its name
    assert ridge().fit(frame, "y", inputs=inputs).columns_.inputs == tuple(inputs)


def test_names_that_a_fit_did_not_have_are_told_of():
    X, y = np.random.default_rng(0).normal(size=(2, N, 2))
    model, frame = ridge().fit(X, y[:, 0]), pd.DataFrame(X, columns=["b", "a"])
    calls: tuple[Callable[[Any], Any], ...] = (
        model.predict,
        lambda X: model.score(X, y[:, 0]),
        lambda X: model.update(X, y[:, 0]),
    )
    for call in calls:
        for table in (frame, pl.from_pandas(frame)):
            with pytest.warns(UserWarning, match=r"names \(b, a\).*taken by place"):
                call(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(pd.DataFrame(X))
        model.predict(pd.DataFrame(X, columns=["x0", "x1"])[["x1", "x0"]])


def test_lists_are_refused_by_name():
    frame = pl.from_pandas(text()).with_columns(pl.lit([1, 2]).alias("l"))
    with pytest.raises(DataError, match=r"'l' holds objects \(dtype .*list"):
        ridge().fit(frame, "y")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "csv"])
def test_a_column_may_be_named_as_if_it_were_a_field_of_another(kind: str, tmp_path: Path) -> None:
    """Beside "age", "age.group=old" was taken for a field of age, and not found again."""
    frame = text().rename(columns={"a": "sky.group", "sky": "sky.group.b"})
    table: Any = {"pandas": lambda: frame, "polars": lambda: pl.from_pandas(frame)}.get(
        kind, lambda: pa.Table.from_pandas(frame)
    )()
    if kind == "csv":
        table = str(tmp_path / "x.csv")
        frame.to_csv(table, index=False)
    model = ridge().fit(table, "y")
    assert model.columns_.inputs[1] == "sky.group.b=fog"
    known = ridge().fit(*numbers()).predict(numbers()[0])
    np.testing.assert_allclose(np.ravel(model.predict(table)), known, atol=1e-9)


@pytest.mark.parametrize("kind", ["pandas", "categories", "objects", "polars", "arrow", "dask"])
def test_a_text_that_ends_in_a_zero_is_refused(kind: str) -> None:
    """Texts of NumPy lose it: "a" and "a\\0" were one level, one group and one condition."""
    plain = text().replace({"sky": {"fog": "rain\0"}})
    table: Any = {
        "pandas": lambda: plain,
        "categories": lambda: plain.astype({"sky": "category"}),
        "objects": lambda: plain.astype({"sky": object}),
        "polars": lambda: pl.from_pandas(plain),
        "arrow": lambda: pa.Table.from_pandas(plain),
        "dask": lambda: dask_frame(plain.astype({"sky": "category"})),
    }[kind]()
    words = r"'rain\\x00', and NumPy does not keep a zero at the end of a text"
    with pytest.raises(DataError, match=words):
        ridge().fit(table, "y")
    with pytest.raises(DataError, match=words):
        ridge().fit(table, "y", inputs=["a"], by="sky")
    with pytest.raises(DataError, match=words):
        ridge().fit(table, "y", inputs=["a"], where=[("sky", "==", "rain")])
    model = ridge().fit(text(), "y")
    with pytest.raises(DataError, match=words):
        model.predict(plain)


def test_texts_with_half_of_a_pair_are_levels_and_labels(tmp_path: Path) -> None:
    """A lone surrogate cannot be UTF-8; hashes of labels ended in an error of Python."""
    frame = text().astype({"sky": object}).replace({"sky": {"fog": "\ud800"}})
    model = ridge().fit(frame, "y")
    assert model.columns_.inputs[-1] == "sky=\ud800"
    X, labels = frame[["a"]].to_numpy(), frame.sky.to_numpy()
    choices: Any = {"n_components": 16, "progress": False, "random_state": 0}
    for each, given in ((model, frame), (rs.KernelClassifier(**choices).fit(X, labels), X)):
        each.save(tmp_path / f"{type(each).__name__}.zarr")
        again = rs.load(tmp_path / f"{type(each).__name__}.zarr")
        np.testing.assert_array_equal(again.predict(given), each.predict(given))


def test_text_that_is_times_is_said() -> None:
    """Of rows in a file they are times; a later one is a level that was never seen."""
    days = [f"2020-{1 + k // 28:02}-{1 + k % 28:02}" for k in range(N)]
    table = text().assign(sky=days[:N])
    with pytest.warns(UserWarning, match=r"'sky' holds text.*they are times such as '2020-01-01'"):
        ridge().fit(table, "y")
    table["sky"] = [f"{day[:-3]} late" for day in days]
    ridge().fit(table, "y")  # no times, and no warning
