"""Classifiers in the cells of random trees, beside dense least squares in every cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from reference_local import columns
from rff_stream.answers.calibration import probabilities
from rff_stream.cells.moments import CellMoments
from rff_stream.length_scales.class_errors import probability_errors, scaled_errors

CELLS = rs.Cells(n_components=16, n_trees=2, n_cells=4)


def rows(rng: Any, n: int = 1200, classes: int = 3) -> tuple[Any, Any]:
    X = rng.uniform(-3, 3, (n, 2))
    score = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.3 * rng.normal(size=n)
    return X, np.digitize(score, np.linspace(-1, 1, classes + 1)[1:-1])


def model(**changes: Any) -> Any:
    chosen = {
        "features": CELLS,
        "length_scale": 0.8,
        "alpha": 0.3,
        "random_state": 0,
        "progress": False,
        "dtype": "float64",
        "sums": "float64",
    }
    return rs.KernelClassifier(**(chosen | changes))


def dense_scores(fit: Any, X: Any, y: Any, probe: Any, alpha: float) -> list[Any]:
    """Scores (m, C) of each tree: least squares on one-hot classes in each cell."""
    features, Y = fit.features_, np.eye(y.max() + 1)[y]
    found = []
    for tree, (own, asked) in enumerate(zip(features.route(X), features.route(probe), strict=True)):
        scores = np.empty((len(probe), Y.shape[1]))
        for cell in range(features.n_cells):
            U = features.landmark_rows(tree, cell)
            Z = columns(features.kernel, U, X[own == cell], features.nugget)
            P = columns(features.kernel, U, probe[asked == cell], features.nugget)
            z, m = Z.mean(axis=0), Y[own == cell].mean(axis=0)
            G = (Z - z).T @ (Z - z) + alpha * np.eye(Z.shape[1])
            coef = np.linalg.solve(G, (Z - z).T @ (Y[own == cell] - m))
            scores[asked == cell] = m + (P - z) @ coef
        found.append(scores)
    return found


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_dense_least_squares_in_each_cell(classes: int, rng: Any) -> None:
    X, y = rows(rng, classes=classes)
    fit = model().fit(X, y)
    assert isinstance(fit.moments_, CellMoments) and fit.moments_.n == len(X)
    posterior = fit.posterior_
    probe = rows(rng, 50)[0]
    trees = dense_scores(fit, X, y, probe, 0.3)
    for own, expected in zip(posterior._of_trees(probe), trees, strict=True):
        np.testing.assert_allclose(own.mean, expected, atol=1e-8)
    scores = posterior.mean(probe)
    found = fit._fitted.answer.log_odds
    odds, beside = found.calibration, found.beside
    sides = scores[:, 1:] - scores[:, :1] if classes == 2 else scores
    along = 0 if odds.line is None else probe @ odds.line
    along += 0 if beside is None else beside.features(probe) @ beside.weights
    expected = probabilities(odds.slope * sides + along + odds.offset)
    np.testing.assert_allclose(fit.predict_proba(probe), expected, atol=1e-6)
    np.testing.assert_array_equal(fit.predict(probe), fit.classes_[expected.argmax(axis=1)])


@pytest.mark.slow
def test_the_penalty_and_probabilities_come_from_left_out_rows(rng: Any) -> None:
    X, y = rows(rng, 4000)
    fit = model(alpha="sample").fit(X[:3000], y[:3000])
    accuracy = np.mean(fit.predict(X[3000:]) == y[3000:])
    chance = fit.predict_proba(X[3000:])[np.arange(1000), y[3000:]]
    one = rs.KernelClassifier(n_components=512, random_state=0, progress=False)
    other = np.mean(one.fit(X[:3000], y[:3000]).predict(X[3000:]) == y[3000:])
    assert accuracy > other - 0.02 and accuracy > 0.75
    assert abs(chance.mean() - (fit.predict_proba(X[3000:]) ** 2).sum(axis=1).mean()) < 0.03


@pytest.mark.slow
def test_labels_of_any_kind_grow_are_forgotten_and_stored(rng: Any, tmp_path: Any) -> None:
    X, y = rows(rng)
    names = np.array(["low", "mid", "top"])[y]
    fit = model().fit(X[:800][y[:800] < 2], names[:800][y[:800] < 2])
    with pytest.warns(rs.NumericalWarning, match="'top' is new"):
        fit.partial_fit(X[800:], names[800:])
    chosen = np.r_[np.flatnonzero(y[:800] < 2), np.arange(800, 1200)]
    again = model(features=fit.features_, length_scale="median").fit(X[chosen], names[chosen])
    np.testing.assert_allclose(fit.predict_proba(X), again.predict_proba(X), atol=1e-6)
    path = tmp_path / "model.zarr"
    fit.save(path, moments=True)
    loaded = rs.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(X), fit.predict_proba(X))
    assert isinstance(loaded.moments_, CellMoments)
    loaded.partial_fit(X[:100], names[:100], batch="again")
    assert rs.load(path).n_rows_ == fit.n_rows_ + 100
    fit.save(tmp_path / "small.zarr")
    np.testing.assert_array_equal(rs.load(tmp_path / "small.zarr").predict(X), fit.predict(X))


@pytest.mark.slow
def test_classes_are_weighted_and_searched_for(rng: Any) -> None:
    X, y = rows(rng)
    few = np.flatnonzero((y < 2) | (rng.uniform(size=len(y)) < 0.1))
    plain = model(alpha="sample").fit(X[few], y[few])
    even = model(class_weight="balanced").fit(X[few], y[few])
    rare = y == 2
    assert np.mean(even.predict(X[rare]) == 2) > np.mean(plain.predict(X[rare]) == 2)
    weighted = model(class_weight={2: 5.0}).fit(X[few], y[few])
    assert np.mean(weighted.predict(X[rare]) == 2) >= np.mean(plain.predict(X[rare]) == 2)


@pytest.mark.slow
def test_length_scales_are_searched_for_on_windows_of_rows(rng: Any) -> None:
    X, y = rows(rng, 800, classes=6)
    fit = model(length_scale="median", alpha="sample").fit(X[:500], y[:500])
    assert np.shape(fit.length_scale_) == (2,)
    known = model(length_scale=1.0, alpha="sample").fit(X[:500], y[:500])
    assert fit.score(X[500:], y[500:]) > known.score(X[500:], y[500:]) - 0.05


@pytest.mark.slow
def test_the_map_is_chosen_where_nothing_is_said(rng: Any, tmp_path: Any) -> None:
    X, y = rows(rng, 900)
    fit = rs.KernelClassifier(random_state=0, progress=False).fit(X[:500], y[:500])
    assert fit.choice_.taken in fit.choice_.names
    assert len(set(fit.choice_.names)) == len(fit.choice_.names)
    assert fit.choice_.errors.min() < 0.8  # of that of the shares of the classes
    assert fit.plan_.n_features == fit.features_.n_components
    one = rs.KernelClassifier(n_components=256, random_state=0, progress=False)
    assert not hasattr(one.fit(X[:500], y[:500]), "choice_")
    assert fit.score(X[500:], y[500:]) > one.score(X[500:], y[500:]) - 0.03
    fit.save(tmp_path / "model.zarr", moments=True)
    loaded = rs.load(tmp_path / "model.zarr")
    assert loaded.choice_ == fit.choice_
    loaded.update(X[500:], y[500:])
    assert loaded.n_rows_ == 900 and loaded.choice_ == fit.choice_
    later = rs.KernelClassifier(random_state=0, progress=False).partial_fit(X[:120], y[:120])
    assert later.choice_.taken in later.choice_.names


def test_candidates_are_compared_by_their_calibrated_probabilities(rng: Any) -> None:
    y = np.eye(3)[rng.integers(3, size=5000)]
    origin, spread = y.mean(axis=0), y.std(axis=0)
    noise, truth = 0.5 * rng.normal(size=y.shape), (y - origin) / spread
    found = [
        probability_errors((y - pressed * (y + noise)) / spread, truth, spread, origin)
        for pressed in (1.0, 0.1)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)  # calibration undoes the factor
    none = probability_errors((y - 0.01 * noise) / spread, truth, spread, origin)
    assert (none**2).mean() == pytest.approx(1, abs=0.01)  # that of the shares
    pressed = scaled_errors(truth - 0.1 * (truth + noise), truth)
    np.testing.assert_allclose(pressed, scaled_errors(-noise, truth), atol=1e-12)
    assert (scaled_errors(2 * truth, truth) == truth).all()  # no factor below 0
    failed = np.full_like(y, np.nan)
    assert np.isnan(probability_errors(failed, truth, spread, origin)).all()


@pytest.mark.slow
def test_the_command_line_fits_labels_in_cells_and_maps_that_compete(
    rng: Any, tmp_path: Any
) -> None:
    pd = pytest.importorskip("pandas")
    from click.testing import CliRunner

    from rff_stream.cli import main

    X, y = rows(rng)
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "z": X[:, 0] * X[:, 1]}).to_parquet(path)

    def run(*words: Any) -> Any:
        return CliRunner().invoke(main, [str(word) for word in words])

    asked = ["--inputs", "a,b", "--length-scale", "0.8", "--n-components", "64"]
    fitted = run(
        "fit", path, *asked, "--target", "y", "--classify", "squared", "--cells", "16,2,4",
        "--model", tmp_path / "labels.zarr", "--holdout", "0.2",
    )  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    assert isinstance(rs.load(tmp_path / "labels.zarr").features_, rs.LocalFeatures)
    both = run(
        "fit", path, *asked, "--target", "z", "--features", "auto", "--cells", "16,2,4",
        "--model", tmp_path / "numbers.zarr",
    )  # fmt: skip
    assert both.exit_code == 0 and "leave-one-out RMSE" in both.output, both.output
    planned = run("plan", path, *asked, "--target", "z", "--features", "auto")
    assert planned.exit_code == 0, planned.output
    wrong = run("fit", path, *asked, "--target", "z", "--features", "grid", "--cells", "16,2")
    assert wrong.exit_code == 2 and "has no cells" in wrong.output


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_the_same_bits(rng: Any, tmp_path: Any) -> None:
    import zarr

    X, y = rows(rng, 3000)
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=3)
    for name, values in {"a": X[:, 0], "b": X[:, 1], "y": y}.items():
        group.create_array(name, data=values, chunks=(500,), dimension_names=["row"])
    at = tmp_path / "checkpoint"
    first = model().fit(tmp_path / "data.zarr", "y", checkpoint=at)
    again = model().fit(tmp_path / "data.zarr", "y", checkpoint=at)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))


def test_what_cells_have_no_answer_for_is_said_first(rng: Any) -> None:
    X, y = rows(rng, 200)
    for loss in ("logistic", "hinge", "squared_hinge"):
        with pytest.raises(ValueError, match="classes in cells come from moments: loss='squared'"):
            model(loss=loss, alpha="sample").fit(X, y)
    with pytest.raises(ValueError, match="a number or 'sample'"):
        model(alpha="cv").fit(X, y)


@pytest.mark.slow
def test_classes_of_a_line_have_its_odds(rng: Any, tmp_path: Any) -> None:
    """Least squares alone had a log-loss of 1.07 times that of logistic regression."""
    from sklearn.linear_model import LogisticRegression

    X, B = rng.normal(size=(1800, 10)), rng.normal(size=(10, 3))
    y = (X @ B + 2 * rng.gumbel(size=(1800, 3))).argmax(axis=1)
    fit = rs.KernelClassifier(random_state=0, progress=False).fit(X[:600], y[:600])
    logistic = LogisticRegression().fit(X[:600], y[:600])
    p, best = fit.predict_proba(X[600:]), logistic.predict_proba(X[600:])
    losses = [-np.log(each[np.arange(1200), y[600:]]).mean() for each in (p, best)]
    assert losses[0] < 1.03 * losses[1]
    assert fit._fitted.answer.log_odds.calibration.line.shape == (10, 3)
    fit.save(tmp_path / "model.zarr", moments=False)
    np.testing.assert_array_equal(rs.load(tmp_path / "model.zarr").predict_proba(X[600:]), p)
