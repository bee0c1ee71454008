"""scikit-learn's meta-estimators, displays and searches on pandas, polars and Arrow tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.inspection import (
    DecisionBoundaryDisplay,
    PartialDependenceDisplay,
    permutation_importance,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    DetCurveDisplay,
    PrecisionRecallDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    LearningCurveDisplay,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    ValidationCurveDisplay,
    cross_val_predict,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import rff_stream as rs
from rff_stream.errors import DataError, ModelError
from toys import ridge

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N = 120


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """No window, and no word on how much so few columns resolve."""
    mpl.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.NumericalWarning)
        yield
    import matplotlib.pyplot as plt

    plt.close("all")


def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N))
    y = np.sin(a) + b**2 / 3
    return {"a": a, "b": b, "y": y, "c": np.where(a + 0.1 * b > 0, "yes", "no")}


MAKE: dict[str, Callable[[dict[str, np.ndarray]], Any]] = {
    "pandas": lambda table: pd.DataFrame(table, index=np.arange(N) + 7),
    "polars": pl.DataFrame,
}


@pytest.fixture(params=list(MAKE))
def frame(request: pytest.FixtureRequest) -> Any:
    return MAKE[request.param](columns())


def classifier(**choices: Any) -> rs.KernelClassifier:
    given: dict[str, Any] = {"n_components": 32, "length_scale": 1.0, "alpha": 0.1}
    return rs.KernelClassifier(**{**given, "random_state": 0, "progress": False, **choices})


def members() -> list[tuple[str, Any]]:
    return [("k", classifier()), ("l", LogisticRegression())]


REGRESSORS: dict[str, Callable[[], Any]] = {
    "transformed target": lambda: TransformedTargetRegressor(
        ridge(), func=np.arctan, inverse_func=np.tan
    ),
    "stacking": lambda: StackingRegressor([("k", ridge()), ("l", Ridge())], cv=2),
    "voting": lambda: VotingRegressor([("k", ridge()), ("l", Ridge())]),
    "bagging": lambda: BaggingRegressor(ridge(), n_estimators=2, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), ridge()),
    "grid search": lambda: GridSearchCV(ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    "random search": lambda: RandomizedSearchCV(
        ridge(), {"alpha": [0.1, 1.0]}, n_iter=1, cv=2, random_state=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSORS)
def test_meta_regressors(frame: Any, name: str) -> None:
    X, y = frame[["a", "b"]], frame["y"]
    model = REGRESSORS[name]().fit(X, y)
    found = model.predict(X)
    assert type(found) is np.ndarray
    assert found.shape == (N,)
    plain = REGRESSORS[name]().fit(np.asarray(X), np.asarray(y)).predict(np.asarray(X))
    np.testing.assert_allclose(found, plain, rtol=1e-9)


def test_several_targets_and_predictions_of_folds(frame: Any) -> None:
    X = frame[["a", "b"]]
    both = MultiOutputRegressor(ridge()).fit(X, frame[["y", "a"]])
    assert both.predict(X).shape == (N, 2)
    assert cross_val_predict(ridge(), X, frame["y"], cv=2).shape == (N,)
    assert cross_val_score(ridge(), X, frame["y"], cv=2).min() > 0.5
    if hasattr(X, "iloc"):  # scikit-learn takes away the names of others, and warns of it
        model = ridge().fit(X, frame["y"])
        found = permutation_importance(model, X, frame["y"], n_repeats=2, random_state=0)
        assert found.importances.shape == (2, 2)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "calibrated": lambda: CalibratedClassifierCV(classifier(), cv=2),
    "stacking": lambda: StackingClassifier(members(), cv=2),
    "voting": lambda: VotingClassifier(members(), voting="soft"),
    "threshold": lambda: TunedThresholdClassifierCV(classifier(), cv=2, scoring="accuracy"),
    "fixed threshold": lambda: FixedThresholdClassifier(classifier(), threshold=0.3),
    "one against the rest": lambda: OneVsRestClassifier(classifier()),
    "grid search": lambda: GridSearchCV(classifier(), {"alpha": [0.1, 1]}, cv=2, scoring="roc_auc"),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_meta_classifiers(frame: Any, name: str) -> None:
    X, y = frame[["a", "b"]], np.asarray(frame["c"])
    found = CLASSIFIERS[name]().fit(X, y).predict(X)
    assert type(found) is np.ndarray
    assert np.mean(found == y) > 0.8


def test_columns_of_probabilities(frame: Any) -> None:
    model = classifier().fit(frame[["a", "b"]], frame["c"])
    assert model.predict_proba(frame)[:, 1].shape == (N,)
    assert model.predict_log_proba(frame[["b", "a"]])[:, 0].max() <= 0
    assert model.score(frame[["a", "b"]], np.asarray(frame["c"])) > 0.9


def test_displays_of_classifiers(frame: Any) -> None:
    X, y = frame[["a", "b"]], np.asarray(frame["c"])
    model = classifier().fit(X, y)
    for show in (RocCurveDisplay, PrecisionRecallDisplay, DetCurveDisplay):
        show.from_estimator(model, X, y)
    CalibrationDisplay.from_estimator(model, X, y, pos_label="yes", n_bins=3)
    ConfusionMatrixDisplay.from_estimator(model, X, y)
    for method in ("predict", "predict_proba", "decision_function"):
        DecisionBoundaryDisplay.from_estimator(model, X, response_method=method, grid_resolution=9)


def test_displays_of_regressors(frame: Any) -> None:
    X, y = frame[["a", "b"]], np.asarray(frame["y"])
    model = ridge().fit(X, y)
    PredictionErrorDisplay.from_estimator(model, X, y)
    LearningCurveDisplay.from_estimator(ridge(), X, y, cv=2, train_sizes=[0.5, 1.0])
    ValidationCurveDisplay.from_estimator(
        ridge(), X, y, cv=2, param_name="alpha", param_range=[1, 2]
    )
    DecisionBoundaryDisplay.from_estimator(model, X, grid_resolution=9)
    if hasattr(X, "iloc"):  # it looks for columns of pandas
        PartialDependenceDisplay.from_estimator(model, X, ["a"], grid_resolution=5)


# --------------------------------------------------------------------------- by name
def table(kind: str) -> Any:
    return pa.table(columns()) if kind == "Arrow" else MAKE[kind](columns())


def picked(X: Any, names: list[str]) -> Any:
    return X.select(names) if hasattr(X, "select") else X[names]


@pytest.mark.parametrize("kind", [*MAKE, "Arrow"])
def test_columns_are_found_by_name_and_others_ignored(kind: str) -> None:
    X = picked(table(kind), ["a", "b", "y"])
    model = ridge().fit(X, "y")
    assert model.feature_names_in_.tolist() == ["a", "b"]
    expected = ridge().fit(np.c_[columns()["a"], columns()["b"]], columns()["y"])
    rows = np.c_[columns()["a"], columns()["b"]]
    for other in (X, table(kind), picked(X, ["y", "b", "a"]), picked(X, ["b", "a"])):
        np.testing.assert_array_equal(model.predict(other), expected.predict(rows))
        assert model.score(other, columns()["y"]) == expected.score(rows, columns()["y"])
    assert model.score(X) == pytest.approx(expected.score(rows, columns()["y"]), rel=1e-9)
    with pytest.raises(DataError, match=r"no column 'b'; its columns are a, y.*passed during fit"):
        model.predict(picked(X, ["a", "y"]))
    with pytest.raises(DataError, match=r"no 'z' in the (DataFrame|table)"):
        ridge().fit(X, "z")
    assert ridge().fit(picked(X, ["a", "y"]), "y", np.ones(N)).n_features_in_ == 1
    labels = classifier().fit(picked(table(kind), ["a", "b", "c"]), "c")
    assert labels.classes_.tolist() == ["no", "yes"]
    assert labels.partial_fit(table(kind), "c").n_rows_ == 2 * N
    assert model.partial_fit(table(kind), "y").n_rows_ == 2 * N


@pytest.mark.parametrize("kind", [*MAKE, "Arrow"])
def test_columns_of_text_are_inputs_as_scikit_learn_encodes_them(kind: str) -> None:
    X = table(kind)
    names = np.unique(columns()["c"])
    fit = ridge().fit(X, "y")
    assert fit.columns_.inputs == ("a", "b", *(f"c={name}" for name in names))
    if kind == "pandas":  # scikit-learn's own transformers do not take Arrow, nor 1.7 polars
        encode = make_column_transformer((OneHotEncoder(), ["c"]), remainder="passthrough")
        model = make_pipeline(encode, ridge()).fit(picked(X, ["a", "b", "c"]), columns()["y"])
        assert model.predict(picked(X, ["c", "b", "a"])).shape == (N,)
    assert ridge().fit(X, "y", inputs=["a"]).n_features_in_ == 1


def test_booleans_and_times_of_frames() -> None:
    frame = MAKE["pandas"](columns())
    flags = frame[["a", "y"]].assign(ok=frame.a > 0, when=pd.date_range("2000", periods=N))
    model = ridge(length_scale=[1.0, 1.0, 10.0]).fit(flags, "y")
    days = 10957 + np.arange(N)
    same = ridge(length_scale=[1.0, 1.0, 10.0]).fit(np.c_[frame.a, frame.a > 0, days], frame.y)
    np.testing.assert_array_equal(
        model.predict(flags), same.predict(np.c_[frame.a, frame.a > 0, days])
    )


@pytest.mark.parametrize("kind", list(MAKE))
def test_set_output_chooses_the_container(kind: str) -> None:
    X = table(kind)
    module = {"pandas": pd, "polars": pl}[kind]
    model = ridge().fit(picked(X, ["a", "b", "y"]), "y").set_output(transform=kind)
    found = model.predict(X)
    assert isinstance(found, module.Series)
    assert found.name == "y"
    labels = classifier().fit(picked(X, ["a", "b"]), X["c"]).set_output(transform=kind)
    assert isinstance(labels.predict(X), module.Series)
    assert set(labels.predict(X)) == {"yes", "no"}
    assert isinstance(labels.predict_proba(X), module.DataFrame)
    assert list(labels.predict_proba(X).columns) == ["probability[c=no]", "probability[c=yes]"]
    model.set_output(transform="default")
    assert type(model.predict(X)) is np.ndarray


def test_a_batch_of_a_table_is_known_by_its_content() -> None:
    """Objects (labels that are strings) once entered by their addresses."""
    frame = MAKE["pandas"](columns())
    model = classifier().partial_fit(frame, "c", batch="a", inputs=["a", "b"])
    again = MAKE["pandas"](columns())
    assert model.partial_fit(again, "c", batch="a").n_rows_ == N
    again.loc[7, "a"] = 5.0
    with pytest.raises(ModelError, match="counted before with other rows"):
        model.partial_fit(again, "c", batch="a")


@pytest.mark.parametrize("kind", [*MAKE, "Arrow"])
def test_rows_of_a_table_are_chosen_and_labelled_by_its_columns(kind: str) -> None:
    X, plain = table(kind), columns()
    kept = plain["a"] > 0
    rows = np.c_[plain["a"], plain["b"]]
    model = ridge().fit(X, "y", inputs=["a", "b"], where=[("a", ">", 0)])
    same = ridge().fit(rows[kept], plain["y"][kept])
    assert model.n_rows_ == kept.sum()
    np.testing.assert_allclose(model.predict(X), same.predict(rows), rtol=1e-6)
    groups = ridge().fit(X, "y", inputs=["a", "b"], by="c").residuals(X, "y", by="c")
    assert set(groups) == {"no", "yes"}
    assert sum(each.n for each in groups.values()) == N
    density = rs.KernelDensity(n_components=32, random_state=0, progress=False)
    assert density.fit(picked(X, ["a", "b"]), where=[("a", ">", 0)]).n_rows_ == kept.sum()
    labels = classifier().fit(X, "c", inputs=["a", "b"], where=[("b", "<", 1)])
    assert labels.n_rows_ == (plain["b"] < 1).sum()
    assert labels.predict(X).shape == (N,)


# --------------------------------------------------------------------------- sparse rows
def sparse_rows(shape: tuple[int, int], density: float) -> Any:
    from scipy import sparse

    rng = np.random.default_rng(0)
    return sparse.csr_array(rng.uniform(size=shape) * (rng.uniform(size=shape) < density))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_rows_are_made_dense_by_slab(form: str, monkeypatch: Any) -> None:
    """Same bits as dense rows, and no more of them dense at a time than a slab."""
    from scipy import sparse

    X = sparse_rows((9000, 40), 0.05).asformat(form)
    dense = X.toarray()
    y = dense.sum(axis=1)
    sizes = []
    toarray = sparse.csr_array.toarray

    def seen(self: Any, *arguments: Any, **choices: Any) -> Any:
        sizes.append(self.shape[0])
        return toarray(self, *arguments, **choices)

    monkeypatch.setattr(sparse.csr_array, "toarray", seen)
    model = ridge().fit(X, y)
    same = ridge().fit(dense, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(model.predict(X), same.predict(dense))
    assert 0 < max(sizes) <= 8192
    assert model.residuals(X, y).n == 9000
    labels = classifier().fit(X, y > y.mean())
    assert labels.score(X, y > y.mean()) == classifier().fit(dense, y > y.mean()).score(
        dense, y > y.mean()
    )


def test_sparse_where_it_is_not_taken_is_refused_with_a_true_remedy() -> None:
    from scipy import sparse

    X = sparse_rows((50, 3), 0.5)
    y = np.asarray(X.sum(axis=1)).ravel()
    with pytest.raises(TypeError, match=r"y is a sparse .*Convert it: y.toarray\(\)"):
        ridge().fit(X, sparse.csr_array(y[:, None]))


def test_later_rows_may_be_sparse() -> None:
    """As a batch that is counted once, under a name or by its content, with the bits of dense."""
    X = sparse_rows((300, 3), 0.5)
    dense, y = X.toarray(), np.asarray(X.sum(axis=1)).ravel()
    model = ridge().partial_fit(X[:200], y[:200], batch="a")
    same = ridge().partial_fit(dense[:200], y[:200]).partial_fit(dense[200:], y[200:])
    for _ in range(2):
        model.partial_fit(X[200:], y[200:], batch="b")
        assert model.n_rows_ == 300
        np.testing.assert_array_equal(model.coef_, same.coef_)
    grown = ridge().fit(X[:200], y[:200])
    for _ in range(2):
        assert grown.update(X[200:], y[200:]).n_rows_ == 300
    labels = y > y.mean()
    classes = classifier().fit(X[:200], labels[:200]).partial_fit(X[200:], labels[200:])
    dense_classes = classifier().fit(dense[:200], labels[:200])
    dense_classes.partial_fit(dense[200:], labels[200:])
    np.testing.assert_array_equal(classes.predict(X), dense_classes.predict(dense))


@pytest.mark.parametrize("kind", ["lazy", "duckdb", "arrow", "polars"])
def test_later_rows_may_be_a_query(kind: str) -> None:
    """``partial_fit`` adds the rows of any container; ``update`` counts a named one once."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    table["y"] = np.sin(table.a) + table.b

    def made(frame: Any) -> Any:
        if kind == "duckdb":
            return pytest.importorskip("duckdb").from_df(frame)
        if kind == "arrow":
            return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)
        frame = pl.from_pandas(frame)
        return frame.lazy() if kind == "lazy" else frame

    first, later = table[:200], table[200:]
    same = ridge().fit(first, "y").partial_fit(later, "y")
    model = ridge().fit(made(first), "y").partial_fit(made(later), "y")
    assert model.n_rows_ == 300
    np.testing.assert_allclose(model.predict(first), same.predict(first), rtol=1e-4, atol=1e-5)
    grown = ridge().fit(made(first), "y")
    for _ in range(2):
        assert grown.update(made(later), "y", batch="later").n_rows_ == 300
    with pytest.raises(rs.errors.ModelError, match="'later' was counted before with other rows"):
        grown.update(made(later[:50]), "y", batch="later")
