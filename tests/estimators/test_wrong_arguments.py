"""Public functions of rs.inspect and rs.plot, rs.drift and rs.mmd, given what is no such thing.

Each refuses it in words, or works; no error comes from inside, without a rule and a remedy.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import rff_stream as rs
from rff_stream.errors import RffStreamError, takes

QUIET: dict[str, Any] = {"progress": False, "random_state": 0}
SMALL: dict[str, Any] = {"n_components": 16, "length_scale": 1.0} | QUIET

pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def things() -> dict[str, Any]:
    """What a user may give in the place of a first argument."""
    X = np.random.default_rng(0).normal(size=(120, 2))
    y = np.sin(X[:, 0])
    ridge = rs.KernelRidge(**SMALL).fit(X, y)
    return {
        "None": None,
        "text": "model",
        "a number": 3,
        "a list": [1, 2],
        "an array": X,
        "nothing by label": {},
        "unfitted": rs.KernelRidge(),
        "unfitted density": rs.KernelDensity(),
        "unfitted classifier": rs.KernelClassifier(),
        "unfitted components": rs.KernelPCA(),
        "a class": rs.KernelRidge,
        "of scikit-learn": Ridge().fit(X, y),
        "moments": ridge.moments_,
        "a map": ridge.features_,
        "source": rs.open_source(X, y),
        "ridge": ridge,
        "exact": rs.KernelRidge(**QUIET).fit(X, y),
        "cells": rs.KernelRidge(features="local", length_scale=1.0, **QUIET).fit(X, y),
        "grid": rs.KernelRidge(features="grid", length_scale=1.0, **QUIET).fit(X, y),
        "process": rs.GaussianProcessRegressor(**SMALL).fit(X, y),
        "loss": rs.KernelRegressor("huber", **SMALL).fit(X, y),
        "classifier": rs.KernelClassifier(**SMALL).fit(X, y > 0),
        "exact classifier": rs.KernelClassifier(**QUIET).fit(X, y > 0),
        "density": rs.KernelDensity(n_components=16, progress=False).fit(X),
        "novelty": rs.NoveltyDetector(n_components=16, progress=False).fit(X),
        "components": rs.KernelPCA(2, **QUIET).fit(X),
        "features": rs.KernelFeatures(n_components=16, length_scale=1.0).fit(X),
    }


def others(name: str, first: Any) -> Any:
    """A right value of another argument, by its name."""
    X, ridge = things()["an array"], things()["ridge"]
    known = {
        "X": X, "y": np.sin(X[:, 0]), "by": np.arange(len(X)) % 2, "split": 1, "name": "x0",
        "kernel": rs.Gaussian(1.0), "coef": np.ones((16, 1)), "std": np.ones(len(X)),
        "residuals": np.ones(len(X)), "latitude": np.ones(len(X)), "names": ["x0", "x1"],
        "groups": {0: ridge.moments_}, "b": ridge.moments_,
    }  # fmt: skip
    return known.get(name, first)


def functions() -> list[tuple[str, Any]]:
    modules = {"inspect": rs.inspect, "plot": rs.plot}
    found = [(f"{m}.{name}", getattr(at, name)) for m, at in modules.items() for name in at.__all__]
    found += [("drift", rs.drift), ("mmd", rs.mmd)]
    return [(name, each) for name, each in found if isinstance(each, FunctionType)]


WRONG: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "draws": (lambda model, X: model.sample_y(X, 0), ValueError, "n_samples=0 but"),
    "output": (lambda model, X: model.set_output(transform="list"), ValueError, "transform='list'"),
    "looks": (lambda model, X: next(model.watch("days", every=-1)), ValueError, "every=-1 but"),
    "no moments": (
        lambda model, X: model.fit_moments(model.features_, 3),
        TypeError,
        "moments is 3",
    ),
    "no groups": (
        lambda model, X: model.fit_moments(model.features_, {}),
        TypeError,
        "moments is {}",
    ),
    "coverage": (lambda model, X: model.predict_interval(X, coverage=2), ValueError, "coverage=2"),
    "alarm": (lambda model, X: model.drift(alarm=3.0), ValueError, "alarm=3"),
    "alarms": (lambda model, X: model.batches(alarm=3.0), ValueError, "alarm=3"),
    "memory": (
        lambda model, X: clone(model).set_params(memory="4GiB").fit(X, X[:, 0]),
        TypeError,
        "memory='4GiB' but it must be a number of bytes",
    ),
    "window": (lambda model, X: model.drift(window=0), ValueError, "window=0"),
    "part of a window": (lambda model, X: model.drift(window=2.5), TypeError, "window=2.5 but"),
    "text for an alarm": (lambda model, X: model.batches(alarm="x"), TypeError, "alarm='x' but"),
    "text for a share": (
        lambda model, X: model.fit(X, X[:, 0], until="x"),
        TypeError,
        "until='x' but it must be a share of the error in (0, 1). Use 0.01.",
    ),
    "text for a step": (
        lambda model, X: next(model.stream(X, X[:, 0], every="x")),
        TypeError,
        "every='x' but",
    ),
    "text for seconds": (
        lambda model, X: next(model.watch("d", every="x")),
        TypeError,
        "every='x'",
    ),
    "half a look": (lambda model, X: next(model.watch("d", looks=0.5)), TypeError, "looks=0.5 but"),
    "text for a coverage": (
        lambda model, X: model.predict_interval(X, "x"),
        TypeError,
        "coverage=",
    ),
    "half a draw": (lambda model, X: model.sample_y(X, 1.5), TypeError, "n_samples=1.5 but"),
    "one condition": (
        lambda model, X: model.score(X, X[:, 0], where=rs.HoldOut(0.1)),
        TypeError,
        "but it must be a list of conditions. Write where=[(",
    ),
    "a number for a dimension": (lambda model, X: model.fit(X, X[:, 0], dim=3), TypeError, "dim=3"),
    "text for options": (
        lambda model, X: model.predict(X, storage_options="x"),
        TypeError,
        "storage_options='x' but it must be a mapping",
    ),
    "a number for a checkpoint": (
        lambda model, X: model.fit(X, X[:, 0], checkpoint=3),
        TypeError,
        "checkpoint=3 but it must be a path",
    ),
    "a number for a place": (lambda model, X: model.save(3), TypeError, "path=3 but"),
    "zero in a place": (lambda model, X: model.save("a\0"), ValueError, "but it must be a path"),
    "a number for a batch": (
        lambda model, X: model.update(X, X[:, 0], batch=3),
        ValueError,
        "batch=3 is not text",
    ),
    "a batch without a name": (
        lambda model, X: model.fit(X, X[:, 0], batch=""),
        ValueError,
        "batch='' has 0 bytes",
    ),
    "no map": (
        lambda model, X: model.fit_moments("x", model.moments_),
        TypeError,
        "features='x' but it must be a map",
    ),
    "step": (lambda model, X: next(model.stream(X, X[:, 0], every=-1)), ValueError, "every=-1 but"),
}
"""Calls of a fitted process that were no errors, or errors from inside."""


ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ridge": (rs.KernelRidge, {"alpha": "cv"}),
    "process": (rs.GaussianProcessRegressor, {}),
    "squared": (rs.KernelClassifier, {"alpha": "cv"}),
    "logistic": (rs.KernelClassifier, {"loss": "logistic"}),
    "huber": (rs.KernelRegressor, {"loss": "huber", "alpha": 0.1}),
    "density": (rs.KernelDensity, {"length_scale": None}),
    "novelty": (rs.NoveltyDetector, {}),
    "components": (rs.KernelPCA, {"n_components": 2, "length_scale": "median"}),
    "features": (rs.KernelFeatures, {"progress": None}),
}

VALUES = (
    "x", -1.5, np.nan, None, [], {}, object(), np.arange(3), pd.NA, pd.DataFrame({"a": [1.0, 2.0]}),
    np.array([]), 10**40,
)  # fmt: skip
"""No parameter takes more than two of them; 10**40 is a number, and the size of nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("which", ESTIMATORS)
def test_a_wrong_parameter_is_refused_by_its_name(which):
    kind, choices = ESTIMATORS[which]
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = X[:, 0] > 0 if kind is rs.KernelClassifier else X[:, 0]
    known = inspect.signature(kind).parameters
    right = {name: value for name, value in (SMALL | choices).items() if name in known}
    for name in known.keys() - ({"cv"} if right.get("alpha") != "cv" else set()):
        refused: list[Exception] = []
        for value in VALUES:
            if name == "n_components" and value is None:
                continue  # right, and 2,048 columns
            try:
                kind(**{**right, name: value}).fit(X, y)
            except Exception as error:
                refused.append(error)
        assert len(refused) >= len(VALUES) - 2, name
        for error in refused:
            place = traceback.extract_tb(error.__traceback__)[-1]
            assert isinstance(error, TypeError | ValueError) and name in str(error), repr(error)
            assert "rff_stream" in place.filename and "raise" in (place.line or ""), repr(error)


CALLS: dict[str, Callable[[Any], Any]] = {
    "columns of cells": lambda value: rs.Cells(n_components=value),
    "trees": lambda value: rs.Cells(n_trees=value),
    "cells": lambda value: rs.Cells(n_cells=value),
    "encoding": lambda value: rs.Cells(encode=value),
    "modes": lambda value: rs.Grid(modes=value),
    "period": lambda value: rs.Grid(periods={"a": value}),
    "box": lambda value: rs.Grid(box={"a": value}),
    "trend": lambda value: rs.Grid(trend=value),
    "padding": lambda value: rs.Grid(padding=value),
    "columns of a grid": lambda value: rs.Grid(columns=value),
    "fraction": rs.HoldOut,
    "seed": lambda value: rs.HoldOut(0.1, seed=value),
    "part": lambda value: rs.HoldOut(0.1, part=value),
    "columns of a plan": lambda value: rs.plan(things()["source"], n_features=value),
    "threads": lambda value: rs.plan(things()["source"], n_features=8, threads=value),
    "sums": lambda value: rs.mmd(things()["moments"], value),
    "permutations": lambda value: rs.mmd(
        things()["moments"], things()["moments"], n_permutations=value
    ),
    "map": lambda value: rs.collect(value, np.zeros((9, 2))),
    "folds": lambda value: rs.collect(things()["a map"], np.zeros((9, 2)), folds=value),
    "source": lambda value: rs.plan(value, n_features=8),
    "kernel": lambda value: rs.FourierFeatures.sample(value, 2, 8),
    "inputs": lambda value: rs.FourierFeatures.sample(rs.Gaussian(1.0), value, 8),
    "random state": lambda value: rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 8, rng=value),
    "landmarks": lambda value: rs.NystroemFeatures.sample(rs.Gaussian(1.0), np.eye(9), value),
    "grids": lambda value: rs.RandomBinningFeatures.sample(rs.Laplacian(1.0), 2, 8, n_grids=value),
    "orders": lambda value: rs.HermiteFeatures.sample(rs.Gaussian(1.0), 2, value),
    "delta": rs.losses.Huber,
    "quantile": rs.losses.Quantile,
    "epsilon": rs.losses.EpsilonInsensitive,
    "candidates": rs.Candidates,
    "label": lambda value: rs.HoldOut(0.1, by=value or 0),
    "columns of a source": lambda value: rs.open_source(np.eye(3), columns=value),
    "classes of a source": lambda value: rs.open_source(np.eye(3), y_labels=value),
    "names of inputs": lambda value: rs.open_source(np.eye(3), inputs=[value, []]),
    "rows of a source": lambda value: rs.open_source([[1], [value, 2]]),
    "coordinates": lambda value: things()["components"].inverse_transform(value),
    "start of a search": lambda value: things()["components"].inverse_transform(
        np.ones((3, 2)), start=value
    ),
    "memory": lambda value: rs.collect(things()["a map"], np.zeros((9, 2)), memory=value),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_value_of_a_function_is_refused_in_words(what):
    for value in (b"\0", -1.5, np.nan, {}, object()):
        with pytest.raises((TypeError, ValueError), match="but it must be"):
            CALLS[what](value)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "modes": lambda value: rs.Grid(modes=(value,)),
    "columns of a grid": lambda value: rs.Grid(columns=value),
    "cells": lambda value: rs.Cells(n_cells=value),
    "folds": lambda value: rs.collect(things()["a map"], np.zeros((9, 2)), folds=value),
    "columns of a plan": lambda value: rs.plan(things()["source"], n_features=value),
    "threads": lambda value: rs.plan(things()["source"], n_features=8, threads=value),
    "draws": lambda value: things()["process"].sample_y(np.zeros((9, 2)), value),
    "steps": lambda value: rs.KernelRidge(refine=value).fit(np.zeros((9, 2)), np.zeros(9)),
}


@pytest.mark.parametrize("what", WHOLE)
def test_a_number_that_no_machine_can_count_to_is_refused_in_words(what):
    with pytest.raises(ValueError, match=rf"{10**40},?\)? but it must be .*below 2\*\*63"):
        WHOLE[what](10**40)


@pytest.mark.parametrize("alpha", [np.ma.masked, np.ma.masked_array([0.1], [True])])
def test_a_masked_number_is_no_number(alpha):
    """It counted as 0, and each row was fitted exactly."""
    with pytest.raises(TypeError, match=r"alpha=.* but it must be a number ≥ 0"):
        rs.KernelRidge(alpha=alpha, **SMALL).fit(np.eye(5), np.arange(5.0))


def test_a_seed_may_have_any_number_of_digits():
    """It counts nothing: all digits go into what is drawn."""
    assert rs.HoldOut(0.1, seed=10**40).seed == 10**40
    assert rs.plan(things()["source"], n_features=8, seed=10**40).n_rows == 120


@pytest.mark.parametrize("ways", [False, True])
@pytest.mark.parametrize("shape", [(4, 1), (4, 3), (2,), (2, 2, 2), (0, 2), (4, 0)])
def test_coordinates_of_another_shape_are_refused_with_it(shape, ways):
    X = things()["an array"]
    model = rs.KernelPCA(2, fit_inverse_transform=ways, sample_rows=50, **QUIET).fit(X)
    words = (
        f"of shape {shape} but it must be an array of numbers (n, 2). Give what transform gives."
    )
    with pytest.raises(ValueError, match=re.escape(words)):
        model.inverse_transform(np.ones(shape))
    with pytest.raises(TypeError, match=r"T=\[\['a', 'b'\]\] but it must be an array of numbers"):
        model.inverse_transform([["a", "b"]])


def test_a_search_that_starts_at_the_nearest_row_needs_finite_coordinates():
    model = things()["components"]
    with pytest.raises(ValueError, match="but it must be finite, where the search starts"):
        model.inverse_transform([[np.nan, 1.0]])
    with pytest.raises(
        ValueError, match=r"of shape \(1, 2\) but it must be .* \(4, 2\)\. Give a row"
    ):
        model.inverse_transform(np.ones((4, 2)), start=np.ones((1, 2)))


def test_sizes_of_small_types_are_whole_numbers():
    """np.int8(3) · 100 leaves its type; a model of such sizes has to be stored, too."""
    cells = rs.Cells(np.int8(3), np.int8(2), np.int8(4))
    assert cells == rs.Cells(3, 2, 4) and type(cells.n_trees) is int


@pytest.mark.parametrize("what", WRONG)
def test_a_method_refuses_a_wrong_value_in_words(what):
    call, kind, words = WRONG[what]
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = rs.GaussianProcessRegressor(**SMALL).fit(X, X[:, 0])
    before = model.predict(X)
    with pytest.raises(kind, match=re.escape(words)):
        call(model, X)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_process_without_a_fit_says_so_in_every_method_that_needs_one(tmp_path):
    """It has a prior, so scikit-learn's own check is silent: these ended in an AssertionError."""
    X = np.zeros((3, 1))
    for name, given in {
        "log_marginal_likelihood": (),
        "predict_interval": (X,),
        "residuals": (X, X[:, 0]),
        "score": (X, X[:, 0]),
        "save": (tmp_path / "m.zarr",),
        "update": (X, X[:, 0]),
        "forget": ("a",),
        "drift": (),
        "batches": (),
        "with_kernel": ("gaussian",),
    }.items():
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(rs.GaussianProcessRegressor(), name)(*given)


@pytest.mark.parametrize(("name", "function"), functions(), ids=[name for name, _ in functions()])
def test_what_is_no_such_thing_is_refused_in_words(name, function):
    from matplotlib.figure import Figure

    parameters = inspect.signature(function).parameters
    refused: list[tuple[str, Exception]] = []
    ax = Figure().subplots()
    for what, first in things().items():
        given: dict[str, Any] = {}
        for at, each in parameters.items():
            if not given:
                given[at] = first
            elif each.default is each.empty or (at == "y" and name.startswith("inspect")):
                given[at] = others(at, first)
            elif at == "ax":
                given[at] = ax
        try:
            function(**given)
        except Exception as error:
            refused.append((what, error))
    assert len(refused) >= 5
    for what, error in refused:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        ours = isinstance(error, TypeError | ValueError | ImportError) and "rff_stream" in place
        known = isinstance(error, RffStreamError | NotFittedError)
        assert (known or ours) and len(str(error)) > 40, f"{what}: {error!r}"


def test_words_of_a_refusal():
    ridge = things()["ridge"]
    with pytest.raises(TypeError, match=r"model is of type Ridge, but relevance takes a model of"):
        rs.inspect.relevance(things()["of scikit-learn"])
    with pytest.raises(TypeError, match=r"the class KernelRidge, but .*Give a fitted model\."):
        rs.inspect.sobol_indices(rs.KernelRidge)
    with pytest.raises(NotFittedError):
        rs.inspect.gradient_outer_product(rs.KernelRidge())
    with pytest.raises(rs.errors.ModelError, match=r"has no density_, and density shows it\."):
        rs.plot.density(ridge)
    with pytest.raises(TypeError, match=r"groups is of type KernelRidge, but drift takes"):
        rs.drift(ridge)
    with pytest.raises(TypeError, match="a mapping to KernelRidge, but drift takes a mapping of"):
        rs.drift(groups={"a": ridge})
    with pytest.raises(TypeError, match="posterior is of type KernelRidge"):
        rs.inspect.gradient_std(ridge.features_, ridge, np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"coef has shape \(16,\)"):
        rs.inspect.gradient(ridge.features_, np.ones(16), np.ones((3, 2)))
    with pytest.raises(ValueError, match="The numbers of rows differ: predicted 3, residuals 4"):
        rs.plot.error_curve(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="residuals is of type NoneType or holds no finite number"):
        rs.plot.histogram(None)


def test_the_rule_is_of_the_first_argument_alone():
    @takes("dict", "int", remedy="Give one.")
    def length(first: Any, second: Any = None) -> int:
        return 1

    assert length({}) == length(first=3, second="text") == 1
    with pytest.raises(TypeError, match=r"first is of type str, but length takes dict or int\."):
        length(first="text")
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        length()  # type: ignore[call-arg]


@cache
def drawn() -> dict[str, dict[str, Any]]:
    """Right arguments of the functions of SEVERAL."""
    X, ridge, process = (things()[name] for name in ("an array", "ridge", "process"))
    y, z, by = np.sin(X[:, 0]), X[:, 1], np.arange(len(X)) % 2
    half = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 8, rng=0)
    pair = rs.features.by_columns({"a": half, "b": half}, ["a", "b"])
    folds = rs.collect(ridge.features_, X, y, folds=3)
    rows = {"model": ridge, "X": X, "y": y}
    line = {"model": rs.GaussianProcessRegressor(**SMALL).fit(X[:, :1], y)}
    kernel = {"kernel": rs.Gaussian(1.0), "X": X}
    return {
        "inspect.gradient_outer_product": {"model": ridge, "X": X},
        "inspect.metric_step": rows,
        "inspect.dependence_drift": rows | {"by": by},
        "inspect.sobol_indices": {"model": ridge, "size": 64},
        "inspect.partial_dependence": {"model": ridge, "name": "x0"},
        "inspect.gradient": {"features": ridge.features_, "coef": np.ones((16, 1)), "X": X},
        "inspect.gradient_std": {
            "features": process.features_, "posterior": process.posterior_, "X": X,
        },
        "inspect.hsic": {"moments": rs.collect(pair, X, folds=16), "split": 8},
        "plot.residuals": {"model": ridge, "groups": folds},
        "plot.sensitivity": {
            "found": rs.inspect.sobol_indices(ridge, size=64), "names": ["x0", "x1"],
        },
        "plot.histogram": {"residuals": z},
        "plot.coverage": {"residuals": z, "std": np.ones(len(z)), "by": by},
        "plot.error_curve": {"predicted": y, "residuals": z},
        "plot.error_map": {"longitude": y, "latitude": y, "residuals": z, "coasts": False},
        "plot.curve": line,
        "plot.slope": line,
        "plot.observed": {"model": process, "X": X, "y": y},
        "plot.partial_dependence": {"model": ridge, "name": "x0"},
        "plot.surface": {"values": ridge},
        "plot.decision": {"model": things()["classifier"]},
        "plot.density": {"model": things()["density"]},
        "plot.novelty": {"model": things()["novelty"]},
        "plot.kernel_matrix": kernel,
        "plot.approximation_error": {"features": ridge.features_} | kernel,
        "plot.row_curve": {"found": rs.from_moments.row_curve([folds[0], folds[1]], folds[2])},
    }  # fmt: skip


OPENED = {"X", "y", "sample_weight", "by", "dim"}
"""Of functions that read rows: they are opened as those of a fit, in the words of its checks."""


SEVERAL = [
    (name, each)
    for name, each in functions()
    if {*[*inspect.signature(each).parameters][1:]} - {"ax"} and "." in name
    if each is not rs.plot.coastlines  # whose lines may not be installed
]
"""Functions of rs.inspect and rs.plot that take more than a value and ax."""


@pytest.mark.parametrize(("name", "function"), SEVERAL, ids=[name for name, _ in SEVERAL])
def test_a_wrong_argument_is_refused_by_its_name(name, function):
    from matplotlib.figure import Figure

    given = drawn()[name]
    known = inspect.signature(function).parameters
    ax = {"ax": Figure().subplots()} if "ax" in known else {}
    function(**given | ax)
    reads = "storage_options" in known
    for argument in [*known][1:]:
        if reads and argument in OPENED:
            continue
        refused: list[Exception] = []
        for value in ("x", -1.5, np.nan, b"\0", {}, object(), 10**40):
            try:
                function(**given | ax | {argument: value})
            except Exception as error:
                refused.append(error)
        assert len(refused) >= 5, argument
        for error in refused:
            place = traceback.extract_tb(error.__traceback__)[-1]
            assert isinstance(error, TypeError | ValueError) and " but " in str(error), repr(error)
            assert argument in str(error) or "'x'" in str(error), repr(error)
            assert "rff_stream" in place.filename and "raise" in (place.line or ""), repr(error)


def test_axes_of_a_picture_are_refused_by_their_name():
    with pytest.raises(TypeError, match=r"ax='x' but it must be Axes of matplotlib\. Give"):
        rs.plot.plan_memory(things()["ridge"].plan_, "x")


@pytest.mark.parametrize("argument", ["resolution", "colour", "width"])
def test_a_wrong_argument_of_coastlines_is_refused_without_their_data(argument):
    from matplotlib.figure import Figure

    for value in ("x", -1.5, np.nan, b"\0", {}, object()):
        with pytest.raises((TypeError, ValueError), match=f"{argument}=.* but it must be"):
            rs.plot.coastlines(Figure().subplots(), **{argument: value})
