"""One way in: every container, verb and rule gives the rows and numbers of one dense reference.

20 containers (5 of them in the shell); the verbs fit, update, partial_fit, score, scores,
residuals, predict, predict_interval and collect; the rules where, hold-outs by place and by label,
weights, several targets, missing rows, classes, categories, times with a zone and units; refusals.
The rule of missing rows has conditions, too.
274 cases in 25 CPU seconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import reference_answers as reference
import rff_stream as rs
from rff_stream._array import Array
from rff_stream.cli import main
from rff_stream.errors import DataError, ModelError
from rff_stream.sources import kind_of
from rff_stream.sources.blocks import PARTITION_BITS

N = 80
MAP = rs.FourierFeatures.sample(rs.Gaussian(1.5), 2, 16, rng=0, dtype="float64")
ALPHA = 0.1

Columns = dict[str, Array]


def columns(seed: int, *, gaps: bool = False) -> Columns:
    """Two inputs, of which v has few values, two targets, weights and labels; some u missing."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=N), rng.integers(0, 12, N) / 4.0
    found = {"u": u, "v": v, "a": np.sin(u) + v, "b": u * v + 10, "w": rng.uniform(0.5, 2, N)}
    if gaps:
        found["u"] = np.where(rng.random(N) < 0.1, np.nan, u)
    return found


# ----------------------------------------------------------------------------- containers


@dataclass(frozen=True)
class Container:
    """Columns as a container holds them; arrays stand beside each other and have no names."""

    make: Callable[[Columns, Path], Any]
    kind: str = "named"  # {"named", "arrays"}
    name: Callable[[str], str] = str  # of a column
    partitions: tuple[int, ...] = ()  # rows in each, where a place is one in a partition

    def places(self) -> Array:
        """The places that a hold-out looks at."""
        if not self.partitions:
            return np.arange(N)
        pairs = enumerate(self.partitions)
        return np.concatenate([(i << PARTITION_BITS) + np.arange(size) for i, size in pairs])

    def give(self, cols: Columns, path: Path) -> Any:
        """The container."""
        return self.make(cols, path)


def frame(cols: Columns, _: Any = None) -> pd.DataFrame:
    return pd.DataFrame(cols)


def by_number(cols: Columns, _: Any) -> pd.DataFrame:
    """Names are integers, and stand in another order than the numbers."""
    return frame(cols).rename(columns=dict(zip("uvabwk", (3, 1, 4, 0, 2, 5), strict=True)))


def by_level(cols: Columns, _: Any) -> pd.DataFrame:
    found = frame(cols)
    found.columns = pd.MultiIndex.from_tuples([("in", name) for name in cols])
    return found


def masked(values: Array) -> Any:
    hidden = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    return np.ma.MaskedArray(np.where(hidden, 7.0, values) if hidden.any() else values, hidden)


def data_set(cols: Columns, _: Any = None) -> xr.Dataset:
    return xr.Dataset({name: ("row", values) for name, values in cols.items()})


def polars(cols: Columns, _: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(cols, nan_to_null=True)


def arrow(cols: Columns, _: Any) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pandas(frame(cols))


def duck(cols: Columns, _: Any) -> Any:
    return pytest.importorskip("duckdb").from_df(frame(cols))


def dask_frame(cols: Columns, _: Any) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame(cols), npartitions=3)


def arrow_frame(cols: Columns, _: Any) -> pd.DataFrame:
    pytest.importorskip("pyarrow")
    text = "string[pyarrow]"
    found = frame(cols)
    return found.astype(
        {k: text if v.dtype == "str" else "double[pyarrow]" for k, v in found.items()}
    )


def to_zarr(cols: Columns, path: Path) -> str:
    group = zarr.create_group(path / "rows.zarr")
    for name, values in cols.items():
        group.create_array(name, data=values, chunks=(30,), dimension_names=["row"])
    return str(path / "rows.zarr")


def to_file(name: str, write: Callable[[Columns, Path], Any]) -> Callable[[Columns, Path], str]:
    def make(cols: Columns, path: Path) -> str:
        write(cols, path / name)
        return str(path / name)

    return make


def to_folder(cols: Columns, path: Path) -> str:
    (path / "folder").mkdir()
    for i, part in enumerate((slice(0, 30), slice(30, N))):
        frame(cols).iloc[part].to_parquet(path / "folder" / f"{i}.parquet")
    return str(path / "folder")


CONTAINERS = {
    "array": Container(lambda cols, _: cols, "arrays"),
    "masked array": Container(lambda cols, _: {k: masked(v) for k, v in cols.items()}, "arrays"),
    "Dask array": Container(
        lambda cols, _: {k: da.from_array(v, chunks=30) for k, v in cols.items()}, "arrays"
    ),
    "pandas": Container(frame),
    "pandas, integer names": Container(
        by_number, name=dict(zip("uvabwk", "314025", strict=True)).__getitem__
    ),
    "pandas, levels of names": Container(by_level, name=lambda name: str(("in", name))),
    "pandas, nullable": Container(lambda cols, _: frame(cols).convert_dtypes()),
    "pandas, Arrow": Container(arrow_frame),
    "pandas, objects": Container(lambda cols, _: frame(cols).astype(object)),
    "polars": Container(polars),
    "Arrow": Container(arrow),
    "DuckDB": Container(duck),
    "xarray": Container(data_set),
    "xarray, lazy": Container(lambda cols, _: data_set(cols).chunk(row=30)),
    "Dask frame": Container(dask_frame, partitions=(27, 27, 26)),
    "Zarr": Container(to_zarr),
    "NetCDF": Container(to_file("rows.nc", lambda cols, path: data_set(cols).to_netcdf(path))),
    "Parquet": Container(to_file("rows.parquet", lambda c, path: frame(c).to_parquet(path))),
    "CSV": Container(to_file("rows.csv", lambda c, path: frame(c).to_csv(path, index=False))),
    "TSV": Container(
        to_file("rows.tsv", lambda c, path: frame(c).to_csv(path, index=False, sep="\t"))
    ),
    "folder": Container(to_folder),
}

# ---------------------------------------------------------------------------------- rules


@dataclass(frozen=True)
class Rule:
    """What a fit was told of its rows."""

    where: tuple[Any, ...] = ()
    weighted: bool = False
    targets: tuple[str, ...] = ("a",)
    gaps: bool = False

    def conditions(self, name: Callable[[str], str]) -> list[Any]:
        """The conditions under the names of a container."""
        found: list[Any] = []
        for each in self.where:
            if isinstance(each, tuple):
                found.append((name(each[0]), *each[1:]))
            elif each.by is None:
                found.append(each)
            else:
                found.append(rs.HoldOut(each.fraction, each.seed, by=name(each.by)))
        return found

    def kept(self, cols: Columns, places: Array) -> Array:
        """Which rows count."""
        found = ~np.isnan(cols["u"])
        for each in self.where:
            if isinstance(each, tuple):
                found &= cols[each[0]] < each[2]
            elif each.by is None:
                found &= each.of_places(places)
            else:
                found &= each.of_labels(cols[each.by])
        return found


RULES = {
    "all rows": Rule(),
    "where": Rule((("v", "<", 1.5),)),
    "held out by place": Rule((rs.HoldOut(0.3, 1),)),
    "held out by label": Rule((rs.HoldOut(0.3, 1, by="v"),)),
    "weights and two targets": Rule(weighted=True, targets=("a", "b")),
    "missing rows": Rule((("v", "<", 1.5),), weighted=True, gaps=True),
}


def inputs_of(cols: Columns) -> Array:
    """The inputs u and v (n, 2)."""
    return np.column_stack([cols["u"], cols["v"]])


class Dense:
    """The answer of the rows that count, from one dense system of equations."""

    def __init__(
        self,
        rule: Rule,
        places: Array,
        *parts: Columns,
        features: Any = MAP,
        scored: Rule | None = None,
        inputs: Callable[[Columns], Array] = inputs_of,
    ) -> None:
        cols, self.inputs = counted(rule, places, *parts), inputs
        self.rule, self.places, self.n = scored or rule, places, len(cols["u"])
        self.features = features
        w = cols["w"] if rule.weighted else np.ones(self.n)
        self.weight = w.sum()
        y = np.column_stack([cols[name] for name in rule.targets])
        z = features(inputs(cols))
        self.answer = reference.ridge(z, y, w, features.prior(), ALPHA, fit_intercept=True)

    def predict(self, cols: Columns) -> Array:
        """Predictions (n, T)."""
        coef, intercept = self.answer
        return self.features(self.inputs(cols)) @ coef + intercept

    def r2(self, cols: Columns) -> tuple[int, float]:
        """Rows that count and the mean R² of them."""
        kept = self.rule.kept(cols, self.places)
        y = np.column_stack([cols[name] for name in self.rule.targets])[kept]
        w = (cols["w"] if self.rule.weighted else np.ones(N))[kept, None]
        missed = (w * (y - self.predict(cols)[kept]) ** 2).sum(axis=0)
        scatter = (w * (y - np.average(y, axis=0, weights=w[:, 0])) ** 2).sum(axis=0)
        return int(kept.sum()), float((1 - missed / scatter).mean())


class Given:
    """Data and arguments of every verb for one container and rule."""

    def __init__(self, container: Container, rule: Rule, cols: Columns, path: Path) -> None:
        path.mkdir()
        data = container.give(cols, path)
        self.named = container.kind == "named"
        self.weights: dict[str, Any] = {}
        if self.named:
            targets: list[str] = [container.name(name) for name in rule.targets]
            self.X, self.y = data, targets[0] if len(targets) == 1 else targets
            self.inputs = {"inputs": [container.name("u"), container.name("v")]}
            if rule.weighted:
                self.weights = {"sample_weight": container.name("w")}
            self.where = rule.conditions(container.name)
            self.later: tuple[Any, ...] = (self.X,)
            self.later_weights: dict[str, Any] = {}
            return
        lazy = isinstance(data["u"], da.Array)
        stack: Any = da.stack if lazy else np.ma.stack
        if not lazy and not np.ma.isMaskedArray(data["u"]):
            stack = np.stack
        self.X = stack([data["u"], data["v"]], axis=1)
        if lazy:
            self.X = self.X.rechunk((30, 2))
        ys = [data[name] for name in rule.targets]
        self.y = ys[0] if len(ys) == 1 else stack(ys, axis=1)
        self.inputs = {}
        if rule.weighted:
            self.weights = {"sample_weight": data["w"]}
        self.where = rule.conditions({"u": "x0", "v": "x1"}.__getitem__)
        self.later, self.later_weights = (self.X, self.y), self.weights


def model(**choices: Any) -> rs.KernelRidge:
    return rs.KernelRidge(
        features=MAP, alpha=ALPHA, dtype="float64", sums="float64", progress=False, **choices
    )


def same(found: rs.KernelRidge, dense: Dense, cols: Columns) -> None:
    """The rows, their weight and the answer are those of the reference."""
    assert found.n_rows_ == dense.n
    assert found.moments_.weight == pytest.approx(dense.weight, rel=1e-12)
    x = np.column_stack([cols["u"], cols["v"]])[~np.isnan(cols["u"])]
    full = {"u": x[:, 0], "v": x[:, 1]}
    values = np.asarray(found.predict(x)).reshape(len(x), -1)
    np.testing.assert_allclose(values, dense.predict(full), rtol=1e-8, atol=1e-8)


def in_numpy(values: Any, width: int) -> Array:
    """Predictions in any container (n, T)."""
    values = values.to_array().T if isinstance(values, xr.Dataset) else values
    values = values.compute() if hasattr(values, "compute") else values
    return np.asarray(values, np.float64).reshape(-1, width)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "where"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_verb_and_rule(container: str, rule: str, tmp_path: Path) -> None:
    made, told = CONTAINERS[container], RULES[rule]
    first, second = columns(0, gaps=told.gaps), columns(1, gaps=told.gaps)
    a = Given(made, told, first, tmp_path / "a")
    b = Given(made, told, second, tmp_path / "b")
    choices = {"missing_rows": "drop"} if told.gaps else {}
    places = made.places()
    dense, both = Dense(told, places, first), Dense(told, places, first, second)

    def fit() -> rs.KernelRidge:
        return model(**choices).fit(a.X, a.y, where=a.where, **a.inputs, **a.weights)

    fitted = fit()
    same(fitted, dense, second)
    same(fit().update(*b.later, batch="second", **b.later_weights), both, second)
    y = () if b.named else (b.y,)
    same(fit().partial_fit(b.X, *y, **b.later_weights), both, second)
    n, r2 = dense.r2(second)
    assert fitted.residuals(b.X, b.y, where=b.where, **b.weights).n == n
    for target in [b.y, None] if b.named else [b.y]:
        score = fitted.score(b.X, target, where=b.where, **b.weights)
        assert score == pytest.approx(r2, rel=1e-8)
    predicted = in_numpy(fitted.predict(b.X), len(told.targets))
    np.testing.assert_allclose(predicted, dense.predict(second), rtol=1e-8, atol=1e-8)
    if not told.where:
        sums = rs.collect(MAP, a.X, a.y, **a.inputs, **a.weights, progress=False, **choices)
        assert (sums.n, sums.weight) == (dense.n, pytest.approx(dense.weight))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_and_verb_refuses_alike(container: str, tmp_path: Path) -> None:
    made, rule = CONTAINERS[container], Rule(targets=("a", "b"))
    swapped, gaps = Rule(targets=("b", "a")), columns(1, gaps=True)
    a = Given(made, rule, columns(0), tmp_path / "a")
    missing = Given(made, rule, gaps, tmp_path / "b")
    fitted = model().fit(a.X, a.y, **a.inputs)
    before = fitted.predict(np.ones((1, 2)))
    verbs = [lambda: model().fit(missing.X, missing.y, **missing.inputs)]
    for verb in (fitted.update, fitted.partial_fit, fitted.score, fitted.residuals):
        named = {"batch": "x"} if verb == fitted.update else {}
        verbs.append(lambda verb=verb, named=named: verb(missing.X, missing.y, **named))
    verbs.append(lambda: in_numpy(fitted.predict(missing.X), 2))
    verbs.append(lambda: rs.collect(MAP, missing.X, missing.y, **missing.inputs, progress=False))
    for verb in verbs:
        with pytest.raises(ValueError, match="NaN"):
            verb()
    if a.named:
        other = Given(made, swapped, columns(1), tmp_path / "c")
        for verb in (fitted.update, fitted.partial_fit, fitted.score, fitted.residuals):
            named = {"batch": "x"} if verb == fitted.update else {}
            with pytest.raises(ModelError, match="targets of the data are"):
                verb(other.X, other.y, **named)
    assert np.array_equal(fitted.predict(np.ones((1, 2))), before)
    fitted.set_params(missing_rows="drop")  # then a row without an input has no prediction
    predicted = in_numpy(fitted.predict(missing.X), 2)
    assert np.array_equal(np.isnan(predicted[:, 0]), np.isnan(gaps["u"]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_of_a_fit_count_once_from_every_container(container: str, tmp_path: Path) -> None:
    """Without a name they are known or refused; under one, or by label, they are known."""
    made = CONTAINERS[container]
    given = Given(made, Rule(), columns(0), tmp_path / "a")
    fitted = model().fit(given.X, given.y, **given.inputs)
    assert fitted.update(*given.later, batch="again").n_rows_ == N
    if given.named:
        assert fitted.update(*given.later, by=made.name("v")).n_rows_ == N
    known = kind_of(given.X) in ("array", "table", "stored") or container == "xarray"
    unknown = pytest.raises(ModelError, match="It is not known which rows")
    with contextlib.nullcontext() if known else unknown:
        fitted.update(*given.later)
    assert fitted.n_rows_ == N


# ---------------------------------------------------- columns of categories, times with a zone

LEVELS = np.array(["high", "low", "mid"])


@dataclass(frozen=True)
class Odd:
    """A column k beside v: how frames and other containers hold it, and what it means."""

    values: Callable[[Columns], Array]
    in_frame: Callable[[Array], Any]  # a column of pandas
    numbers: Callable[[Array], Array]  # (n, 1 or more)

    def columns(self, seed: int) -> Columns:
        """Columns with k."""
        found = columns(seed)
        return found | {"k": self.values(found)}

    def inputs(self, cols: Columns) -> Array:
        """The inputs v and k as numbers."""
        return np.column_stack([cols["v"], self.numbers(cols["k"])])


def levels_of(cols: Columns) -> Array:
    """Text of three levels; later rows have two of them."""
    return LEVELS[np.digitize(cols["u"], [-0.5, 0.5]) % (3 if cols["u"][0] < 0.2 else 2)]


def times_of(cols: Columns) -> Array:
    """Moments about a change of summer time, in whole seconds."""
    return np.datetime64("2024-03-31T00", "ns") + (cols["u"] * 86400).astype("m8[s]")


ODD = {
    "categories": Odd(
        levels_of,
        lambda values: pd.Categorical(values, list(dict.fromkeys(values))),  # in any order
        lambda values: (values[:, None] == LEVELS).astype(np.float64),
    ),
    "times with a zone": Odd(
        times_of,
        lambda values: pd.Series(values).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
        lambda values: values.astype("i8")[:, None] / 86400e9,
    ),
}

IN_FRAMES = ("pandas", "pandas, integer names", "pandas, levels of names", "pandas, nullable",
             "Arrow", "DuckDB", "Dask frame", "Parquet", "folder")  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "container", [*IN_FRAMES, "polars", "xarray", "xarray, lazy", "Zarr", "NetCDF", "CSV"]
)
def test_categories_and_zones_mean_the_same_everywhere(
    container: str, kind: str, tmp_path: Path
) -> None:
    made, odd = CONTAINERS[container], ODD[kind]
    first, second = odd.columns(0), odd.columns(1)

    def given(cols: Columns, path: Path) -> Any:
        path.mkdir()
        if container == "Zarr":
            data_set(cols).to_zarr(path / "rows.zarr", consolidated=False)
            return str(path / "rows.zarr")
        if container in IN_FRAMES or container == "polars":
            cols = cols | {"k": odd.in_frame(cols["k"])}
        if container == "polars":
            return pytest.importorskip("polars").from_pandas(frame(cols))
        return made.give(cols, path)

    a, b = given(first, tmp_path / "a"), given(second, tmp_path / "b")
    features = rs.FourierFeatures.sample(
        rs.Gaussian(1.5), odd.inputs(first).shape[1], 16, rng=0, dtype="float64"
    )
    rule, places = Rule((("v", "<", 1.5),)), made.places()

    def fit() -> rs.KernelRidge:
        own = model().set_params(features=features)
        levels = [f"k={level}" for level in LEVELS]  # of text that is not read before the fit
        unread = container == "xarray, lazy" and kind == "categories"
        names = ["v", *levels] if unread else [made.name("v"), made.name("k")]
        return own.fit(a, made.name("a"), inputs=names, where=rule.conditions(made.name))

    dense = Dense(rule, places, first, features=features, inputs=odd.inputs)
    both = Dense(rule, places, first, second, features=features, inputs=odd.inputs)
    fitted, (n, r2) = fit(), dense.r2(second)
    assert fitted.n_rows_ == dense.n
    predicted = in_numpy(fitted.predict(b), 1)
    np.testing.assert_allclose(predicted, dense.predict(second), rtol=1e-8, atol=1e-8)
    where = rule.conditions(made.name)
    assert fitted.score(b, where=where) == pytest.approx(r2)
    assert fitted.residuals(b, where=where).n == n
    for found in (fit().update(b, batch="second"), fit().partial_fit(b)):
        assert found.n_rows_ == both.n
        np.testing.assert_allclose(
            in_numpy(found.predict(b), 1), both.predict(second), rtol=1e-8, atol=1e-8
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", ["xarray", "xarray, lazy", "Zarr", "NetCDF"])
def test_other_units_are_refused_by_every_verb(container: str, tmp_path: Path) -> None:
    def given(units: str, path: Path) -> Any:
        path.mkdir()
        rows = data_set(columns(0))
        rows["u"].attrs["units"] = units
        if container == "xarray, lazy":
            return rows.chunk(row=30)
        if container == "Zarr":
            rows.to_zarr(path / "rows.zarr", consolidated=False)
            return str(path / "rows.zarr")
        if container == "NetCDF":
            rows.to_netcdf(path / "rows.nc")
            return str(path / "rows.nc")
        return rows

    right, other = given("K", tmp_path / "a"), given("degC", tmp_path / "b")
    fitted = model().fit(right, "a", inputs=["u", "v"])
    before = fitted.predict(np.ones((1, 2)))
    for verb in (fitted.update, fitted.partial_fit, fitted.score, fitted.residuals, fitted.predict):
        named = {"batch": "x"} if verb == fitted.update else {}
        with pytest.raises((DataError, ModelError), match="degC"):
            verb(other, **named)
    assert np.array_equal(fitted.predict(np.ones((1, 2))), before)


# --------------------------------------------- classes and intervals: rows chosen by NumPy first


def counted(rule: Rule, places: Array, *parts: Columns) -> Columns:
    """The rows that count, as plain arrays."""
    rows = [{k: v[rule.kept(cols, places)] for k, v in cols.items()} for cols in parts]
    return {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}


def plain(rule: Rule, cols: Columns) -> tuple[Array, Array, Array | None]:
    """Inputs, first target and weights."""
    return inputs_of(cols), cols[rule.targets[0]], cols["w"] if rule.weighted else None


LABELS = np.array(["mild", "cold", "warm"])


def with_labels(cols: Columns) -> Columns:
    """Classes in place of the target a."""
    return cols | {"a": LABELS[np.digitize(cols["a"], [0.5, 1.8])]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["held out by label", "missing rows"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_and_verb_of_classes(container: str, rule: str, tmp_path: Path) -> None:
    made, told = CONTAINERS[container], RULES[rule]
    first, second = (with_labels(columns(seed, gaps=told.gaps)) for seed in (0, 1))
    a = Given(made, told, first, tmp_path / "a")
    b = Given(made, told, second, tmp_path / "b")
    choices: Any = {"features": MAP, "alpha": 0.1, "dtype": "float64", "progress": False}
    choices |= {"missing_rows": "drop"} if told.gaps else {}
    places, rows = made.places(), counted(told, made.places(), second)
    fitted = rs.KernelClassifier(**choices).fit(a.X, a.y, where=a.where, **a.inputs, **a.weights)
    dense = rs.KernelClassifier(**choices).fit(*plain(told, counted(told, places, first)))
    assert fitted.classes_.tolist() == sorted(LABELS)
    assert fitted.n_rows_ == dense.n_rows_
    x, y, w = plain(told, rows)
    p = dense.predict_proba(x)
    found = fitted.scores(b.X, b.y, where=b.where, **b.weights)
    own = p[np.arange(len(y)), np.searchsorted(dense.classes_, y)]
    accuracy = np.average(dense.classes_[p.argmax(axis=1)] == y, weights=w)
    assert found.n == len(y)
    assert found.accuracy() == pytest.approx(accuracy)
    assert found.log_loss() == pytest.approx(np.average(-np.log(own), weights=w))
    for target in [b.y, None] if b.named else [b.y]:
        score = fitted.score(b.X, target, where=b.where, **b.weights)
        assert score == pytest.approx(accuracy)
    labels = fitted.predict(b.X)
    labels = labels.compute() if hasattr(labels, "compute") else labels
    inside = ~np.isnan(second["u"])
    assert (np.asarray(labels)[inside] == dense.predict(plain(told, second)[0][inside])).all()
    n = dense.n_rows_ + len(y)
    assert fitted.update(*b.later, batch="second", **b.later_weights).n_rows_ == n


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["all rows", "missing rows"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_has_the_same_intervals(container: str, rule: str, tmp_path: Path) -> None:
    made, told = CONTAINERS[container], RULES[rule]
    first, second = columns(0, gaps=told.gaps), columns(1, gaps=told.gaps)
    a = Given(made, told, first, tmp_path / "a")
    b = Given(made, told, second, tmp_path / "b")
    choices: Any = {"features": MAP, "dtype": "float64", "sums": "float64", "progress": False}
    choices |= {"missing_rows": "drop"} if told.gaps else {}
    fitted = rs.GaussianProcessRegressor(**choices).fit(
        a.X, a.y, where=a.where, **a.inputs, **a.weights
    )
    dense = rs.GaussianProcessRegressor(**choices).fit(
        *plain(told, counted(told, made.places(), first))
    )
    x = plain(told, second)[0]
    expected = [*dense.predict(x, return_std=True), *dense.predict_interval(x, 0.9)]
    found = [*fitted.predict(b.X, return_std=True), *fitted.predict_interval(b.X, 0.9)]
    for values, same_values in zip(found, expected, strict=True):
        np.testing.assert_allclose(in_numpy(values, 1)[:, 0], same_values, rtol=1e-6, atol=1e-8)


# -------------------------------------------------------------------------------- the shell

STORED = ("Zarr", "NetCDF", "Parquet", "CSV", "folder")

SHELL_RULES = ("where", "held out by label", "weights and two targets", "missing rows")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", SHELL_RULES)
@pytest.mark.parametrize("container", STORED)
def test_every_stored_container_in_the_shell(container: str, rule: str, tmp_path: Path) -> None:
    """fit, score, predict and update give what the reference gives on the map that was drawn."""
    made, told = CONTAINERS[container], RULES[rule]
    first, second = columns(0, gaps=told.gaps), columns(1, gaps=told.gaps)
    a, b = made.give(first, tmp_path), made.give(second, new_folder(tmp_path / "b"))

    def shell(*words: Any) -> dict[str, Any]:
        found = CliRunner().invoke(main, [*map(str, words), "--json"])
        assert found.exit_code == 0, found.output
        report: dict[str, Any] = json.loads(found.stdout)
        return report

    chosen: list[str] = ["--weights", "w"] if told.weighted else []
    chosen += ["--missing-rows", "drop"] if told.gaps else []
    for each in told.where:
        if isinstance(each, tuple):
            chosen += ["--where", f"{each[0]}{each[1]}{each[2]}"]
        else:
            chosen += ["--holdout", str(each.fraction), "--holdout-by", each.by, "--seed", "1"]
    targets = [word for name in told.targets for word in ("--target", name)]
    path = tmp_path / "M.zarr"
    shell(
        "fit", a, "--inputs", "u,v", *targets, *chosen, "--n-components", 16, "--length-scale", 1.5,
        "--alpha", ALPHA, "--dtype", "float64", "--sums", "float64", "--model", path, "--moments",
    )  # fmt: skip
    features, places = rs.load(path).features_, made.places()
    dense = Dense(told, places, first, features=features)
    same(rs.load(path), dense, second)
    test = replace(told, where=tuple(map(other_part, told.where)))
    n, r2 = Dense(told, places, first, features=features, scored=test).r2(second)
    scored = shell("score", path, b, *chosen)
    assert scored["n_rows"] == n
    assert np.mean(list(scored["r2"].values())) == pytest.approx(r2)
    shell("predict", path, b, "--output", tmp_path / "P.zarr")
    node = zarr.open(tmp_path / "P.zarr", mode="r")
    parts = [node] if isinstance(node, zarr.Array) else [node[name] for name in told.targets]
    found = np.column_stack([np.asarray(part[...]) for part in parts])
    np.testing.assert_allclose(found, dense.predict(second), rtol=1e-8, atol=1e-8)
    shell("update", path, b, "--batch", "second")
    same(rs.load(path), Dense(told, places, first, second, features=features), second)


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def other_part(condition: Any) -> Any:
    """The test part in place of the training part: the shell scores those rows."""
    return replace(condition, part="test") if isinstance(condition, rs.HoldOut) else condition
