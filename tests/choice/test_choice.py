"""Maps that compete: one read collects them all, and left-out rows choose."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import rff_stream as rs
from rff_stream.choice.map import CandidateFeatures
from rff_stream.choice.moments import CandidateMoments
from rff_stream.choice.stacking import choose_models
from rff_stream.errors import ModelError
from rff_stream.length_scales.candidates import Candidate
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_search import MapSearch
from rff_stream.length_scales.window_evidence import RowWindow
from toys import columns_to_zarr

pytestmark = pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")

CELLS = rs.Cells(n_components=24, n_trees=2, n_cells=8)

BOTH = rs.Candidates(("whole", CELLS))


def rows(rng: Any, n: int = 1500, rough: float = 2.0) -> tuple[Any, Any]:
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(rough * X[:, 0]) * np.cos(X[:, 1]) + 7 + 0.1 * rng.normal(size=n)


def model(kind: Any = rs.KernelRidge, **changes: Any) -> Any:
    chosen = {
        "features": BOTH,
        "n_components": 64,
        "length_scale": 1.0,
        "random_state": 0,
        "progress": False,
        "sums": "float64",
    }
    return kind(**(chosen | changes))


def left_out(fit: Any) -> tuple[Any, Any]:
    """Sampled rows, and the error of each member at them under its fit without each."""
    sample, total = fit.moments_.sample.rows, fit.moments_
    found = []
    for features, sums in zip(fit.features_.maps, total.members, strict=True):
        own = model(rs.GaussianProcessRegressor).fit_moments(features, sums)
        found.append(own._fitted.answer.leave_one_out(sample)[:, 0])
    return sample, np.array(found)


def test_weights_are_those_of_least_squared_leave_one_out_error(rng: Any) -> None:
    fit = model(rs.GaussianProcessRegressor).fit(*rows(rng))
    sample, errors = left_out(fit)
    y = sample[:, 2]
    big = 1e6
    system = np.vstack([y[:, None] - errors.T, big * np.ones((1, 2))])
    expected, _ = nnls(system, np.append(y, big))
    weights = fit.choice_.weights[:, 0]
    stack_wins = (weights > 0).all()
    single = np.eye(2)[np.argmin((errors**2).mean(axis=1))]
    np.testing.assert_allclose(weights, expected if stack_wins else single, atol=1e-4)
    np.testing.assert_allclose(fit.choice_.errors[:, 0], np.sqrt((errors**2).mean(axis=1)))
    np.testing.assert_allclose(
        fit._fitted.answer.leave_one_out(sample)[:, 0], weights @ errors, atol=1e-9
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(30, 60), st.integers(0, 2**32 - 1))
def test_a_choice_is_a_weighted_mean_no_worse_than_any_candidate(k: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    errors = [rng.normal(size=(m, 2)) * rng.uniform(0.1, 2) for _ in range(k)]
    w = rng.uniform(0.1, 2, m)
    choice = choose_models(tuple(map(str, range(k))), list(errors), w)
    assert (choice.weights >= 0).all()
    np.testing.assert_allclose(choice.weights.sum(axis=0), 1)
    assert (choice.error <= choice.errors.min(axis=0) + 1e-9).all()


def test_a_model_that_has_no_answer_or_none_that_is_finite_is_left_out() -> None:
    errors = np.ones((40, 1))
    wrong = np.full((40, 1), np.nan)
    choice = choose_models(("a", "b", "c"), [None, errors, wrong], np.ones(40))
    np.testing.assert_array_equal(choice.weights[:, 0], [0, 1, 0])
    assert "a left out" in str(choice) and choice.best == 1


def test_rough_functions_choose_cells(rng: Any) -> None:
    fit = model(length_scale=0.2).fit(*rows(rng, 4000, rough=12.0))
    assert fit.choice_.names == ("whole", "local")
    assert fit.choice_.weights[1, 0] == 1 and "local (leave-one-out RMSE" in repr(fit)
    assert "choice" in fit._repr_html_()
    assert not hasattr(model(features="whole").fit(*rows(rng, 60)), "choice_")


def test_the_sums_of_each_candidate_are_those_of_its_own_fit(rng: Any) -> None:
    X, y = rows(rng)
    fit = model().fit(X, y)
    for each, features in enumerate((fit.features_.maps[0], fit.features_.maps[1])):
        alone = model(features=features, length_scale="median").fit(X, y)
        np.testing.assert_allclose(
            alone.moments_.sums, fit.moments_.members[each].sums, rtol=1e-12, atol=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_it_is_stored_updated_and_answers_for_groups(kind: Any, rng: Any, tmp_path: Any) -> None:
    X, y = rows(rng)
    label = np.arange(len(X)) % 3
    fit = model(kind).fit(X, y, by=label)
    path = tmp_path / "model.zarr"
    fit.save(path, moments=True)
    again = rs.load(path)
    assert isinstance(again.features_, CandidateFeatures)
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))
    assert str(again.choice_) == str(fit.choice_)
    two = rs.load(path, groups=[0, 1])
    part = model(kind).fit_moments(fit.features_, fit._fitted.groups[0] + fit._fitted.groups[1])
    np.testing.assert_allclose(two.predict(X), part.predict(X), atol=1e-9)
    fit.save(tmp_path / "small.zarr")
    np.testing.assert_array_equal(rs.load(tmp_path / "small.zarr").predict(X), fit.predict(X))
    more = rows(rng, 400)
    again.partial_fit(*more, batch="more")
    assert again.n_rows_ == rs.load(path).n_rows_ == 1900
    np.testing.assert_allclose(rs.load(path).predict(X), again.predict(X))


def test_a_forgotten_batch_was_never_seen(rng: Any) -> None:
    X, y = rows(rng)
    fit = model().fit(X, y)
    later = rs.collect(
        fit.features_, *rows(rng, 300), row=fit.moments_.row, progress=False, sums="float64"
    )
    assert isinstance(later, CandidateMoments)
    back = (fit.moments_ + later) - later
    for own, other in zip(back.members, fit.moments_.members, strict=True):
        np.testing.assert_allclose(own.sums, other.sums, atol=1e-8)
    doubled = fit.moments_.scale(2.0)
    np.testing.assert_allclose(doubled.weight, 2 * fit.moments_.weight)


@pytest.mark.slow
def test_a_fit_goes_on_from_its_checkpoint(rng: Any, tmp_path: Any) -> None:

    X, y = rows(rng, 3000)
    columns_to_zarr(
        tmp_path / "data.zarr", {"a": X[:, 0], "b": X[:, 1], "y": y}, 500, dimension_names=["row"]
    )
    at = tmp_path / "checkpoint"
    first = model().fit(tmp_path / "data.zarr", "y", checkpoint=at)
    again = model().fit(tmp_path / "data.zarr", "y", checkpoint=at)
    probe = {"a": X[:50, 0], "b": X[:50, 1]}
    np.testing.assert_array_equal(
        first.predict(np.stack([*probe.values()], 1)), again.predict(np.stack([*probe.values()], 1))
    )


@pytest.mark.slow
def test_several_targets_choose_for_themselves(rng: Any) -> None:
    X, y = rows(rng, 3000, rough=12.0)
    y = np.stack([y, X[:, 0]], axis=1)
    fit = model(rs.GaussianProcessRegressor, length_scale=0.3).fit(X, y)
    assert fit.choice_.weights.shape == (2, 2)
    mean, std = fit.predict(X, return_std=True)
    assert mean.shape == std.shape == (3000, 2)
    assert (np.mean(abs(y - mean) < 1.96 * std, axis=0) > 0.9).all()


def test_intervals_of_a_mean_of_several_cover(rng: Any) -> None:
    X = rng.uniform(-3, 3, (4000, 2))
    f = np.sin(2 * X[:, 0]) + np.where(X[:, 1] > 0, np.sin(9 * X[:, 1]), 0)
    y = f + 0.3 * rng.normal(size=4000)
    fit = model(rs.GaussianProcessRegressor, length_scale=0.7, n_components=128)
    fit.fit(X[:3000], y[:3000])
    mean, std = fit.predict(X[3000:], return_std=True)
    inside = np.mean(abs(y[3000:] - mean) < 1.96 * std)
    assert 0.92 < inside < 0.98, (inside, str(fit.choice_))
    low, high = fit.predict_interval(X[3000:])
    assert 0.92 < np.mean((low < y[3000:]) & (y[3000:] < high)) < 0.98


@pytest.mark.slow
def test_a_grid_that_does_not_reach_a_row_leaves_the_choice_to_the_others(rng: Any) -> None:
    pytest.importorskip("finufft")
    X, y = rows(rng, 3000)
    asked = rs.Candidates(("whole", rs.Grid(modes=(12, 12))))
    fit = model(rs.GaussianProcessRegressor, features=asked, n_components=16).fit(X, y)
    assert fit.choice_.weights[1, 0] > 0.5
    far = np.array([[50.0, 0.0], [0.0, 0.0]])
    mean, std = fit.predict(far, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()
    narrow = rs.Candidates(("whole", rs.Grid(modes=(12, 12), box={0: (-1.0, 1.0)})))
    fit = model(features=narrow).fit(X, y)
    assert fit.moments_.members[1] is None and fit.choice_.weights[1, 0] == 0
    assert "grid left out" in str(fit.choice_)


def test_plan_prices_every_candidate(rng: Any) -> None:
    X, y = rows(rng, 3000)
    together = model().fit(X, y).plan_
    apart = [model(features=f, length_scale=1.0).fit(X, y).plan_ for f in ("whole", CELLS)]
    assert together.state_bytes == sum(each.state_bytes for each in apart)
    assert together.flops == sum(each.flops for each in apart)
    assert together.seconds > max(each.seconds for each in apart)
    assert "2 trees of 8" in str(together)


def test_what_a_choice_cannot_do_is_said_before_a_row_is_read(rng: Any) -> None:
    X, y = rows(rng, 300)
    with pytest.raises(ValueError, match="compared at the penalty of highest evidence"):
        model(alpha="cv").fit(X, y)
    with pytest.raises(ValueError, match="Use refine=0"):
        model(refine=2).fit(X, y)
    with pytest.raises(ValueError, match="sample_rows=0 but candidates"):
        model(sample_rows=0).fit(X, y)
    with pytest.raises(ValueError, match="read to the end"):
        model().fit(X, y, until=0.1)
    with pytest.raises(ValueError, match="Give one or more"):
        rs.Candidates(("whole", "nothing"))
    with pytest.raises(ValueError, match="Choose one map"):
        rs.KernelClassifier(features=BOTH).fit(X, y > 7)
    fit = model().fit(X, y)
    other = model(random_state=1).fit(X, y)
    with pytest.raises(ModelError, match="that differ in"):
        fit.moments_ + other.moments_


@pytest.mark.slow
@pytest.mark.parametrize("features", [CELLS, BOTH], ids=repr)
def test_reports_and_pictures_show_any_kind_of_map(features: Any, rng: Any, tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    from rff_stream.report import write_report

    fit = model(rs.GaussianProcessRegressor, features=features).fit(*rows(rng, 600))
    write_report(tmp_path / "report.html", fit)
    assert "standard deviation" in (tmp_path / "report.html").read_text(encoding="utf-8")
    rs.plot.surface(fit)
    rs.plot.observed(fit)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "foo"}, "metric='foo' but it must be 'auto', 'full', a matrix or None"),
        (
            {"metric": "full", "features": "grid"},
            "features='grid', and a metric is learnt in front",
        ),
        ({"metric": "full", "kernel": "laplacian"}, "no function of .*Use gaussian or matern"),
        ({"metric": "full", "length_scale": 1.0}, "length_scale=1.0.*Leave one of them out"),
    ],
)
def test_a_metric_that_cannot_be_learnt_is_refused(changes: Any, words: str, rng: Any) -> None:
    """Each was taken in silence, and no metric was learnt."""
    X, y = rows(rng, 60)
    with pytest.raises(ValueError, match=words):
        rs.KernelRidge(random_state=0, progress=False, **changes).fit(X, y)
    with pytest.raises(ValueError, match=r"there are 1 inputs, and .* for 2 to 1,000"):
        rs.KernelRidge(metric="full", progress=False).fit(X[:, :1], y)


def test_a_metric_that_is_asked_for_is_taken(rng: Any) -> None:
    X, y = rows(rng, 200)
    fit = rs.GaussianProcessRegressor(metric="full", random_state=0, progress=False).fit(X, y)
    looks = {"targets as they are", "what a line leaves"}
    assert all(name.endswith("metric") for name in {*fit.choice_.names} - looks)
    assert fit.features_.encoding.matrix.shape == (2, 2)
    none = rs.GaussianProcessRegressor(metric=None, random_state=0, progress=False).fit(X, y)
    assert not any(name.endswith("metric") for name in none.choice_.names)


@pytest.mark.slow
@pytest.mark.parametrize("features", [BOTH, "auto", "local"])
def test_units_and_signs_of_targets_choose_nothing(rng: Any, features: Any) -> None:
    """y, 2y and −y got other weights of maps."""
    X = rng.uniform(-2, 2, (150, 2))
    y, z = np.sin(2 * X[:, 0]) + X[:, 1], np.cos(3 * X[:, 1]) + 0.1 * rng.normal(size=150)

    def fit(*targets: Any) -> Any:
        own = (
            model(features=features)
            if features is BOTH
            else rs.KernelRidge(features=features, random_state=0, progress=False)
        )
        return own.fit(X, np.column_stack(targets)).predict(X[:30])

    together = fit(y, 2 * y, -y)
    np.testing.assert_allclose(together[:, 1:], together[:, :1] * [2, -1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fit(2 * y), 2 * fit(y), rtol=1e-9, atol=1e-9)
    both = fit(y, z)
    units = np.array([-1024.0, 8.0])  # powers of 2: the same digits
    np.testing.assert_allclose(fit(*(units * np.c_[y, z]).T), both * units, rtol=1e-9, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [rs.GaussianProcessRegressor, rs.KernelRidge])
def test_inputs_of_heavy_tails_are_compared_as_scores_where_these_predict_better(
    rng: Any, tmp_path: Any, kind: Any
) -> None:
    """On the scale of a lognormal most rows are one place; a line in x itself stays a line."""
    z = rng.normal(size=(600, 2))
    X, y = np.exp(2.5 * z), np.sin(2 * z[:, 0]) + z[:, 1] + 0.05 * rng.normal(size=600)
    asked: dict[str, Any] = {"metric": None, "random_state": 0, "progress": False}
    fit = kind("gaussian", **asked).fit(X[:400], y[:400])
    error = y[400:] - fit.predict(X[400:])
    assert np.sqrt(np.mean(error**2)) < 0.2 * y.std()
    assert {"inputs as they are", "their normal scores"} <= set(fit.choice_.names)
    fit.save(tmp_path / "model")
    again = rs.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X[400:]), fit.predict(X[400:]))
    assert np.shape(fit.length_scale_) == (2,)
    with_line = kind("gaussian", **asked).fit(X[:400], X[:400] @ [1.0, 2.0])
    error = with_line.predict(X[400:]) - X[400:] @ [1.0, 2.0]
    assert np.abs(error).max() < 1e-4 * X.std()


@pytest.mark.parametrize("factor", [1.01, 2.0, np.inf])
def test_a_metric_that_left_out_rows_are_against_is_told_of(factor: float, rng: Any) -> None:
    rows, shape = RowWindow(np.eye(2), np.ones((2, 1)), np.ones(2)), CellShape(2, 2)
    search = MapSearch(rows, [rows], True, [rs.Gaussian()], shape, rng, only_metric=True)
    errors = rng.standard_normal((200, 1))
    for name, own in (("gaussian", errors), ("gaussian, metric", factor * errors[::-1])):
        learnt = name.endswith("metric")
        found = Candidate(name, rs.Gaussian(), np.eye(2), 0.1, shape, own, 0.0, learnt)
        search.candidates.append(found)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        search._take_metrics()
    assert [each.name for each in search.candidates] == ["gaussian, metric"]
    words = [str(each.message) for each in told]
    assert len(words) == (factor > 1.5), words  # not where the difference is chance
    assert all("length-scales alone have" in each for each in words)


def test_the_mean_of_two_maps_is_not_calibrated_on_few_rows(rng: Any) -> None:
    """The quantile of 40 rows without noise made deviations of 200 times those of y."""
    x, new = np.split(np.random.default_rng(2).uniform(size=(540, 2)), [40])

    def surface(x: Any) -> Any:
        return np.column_stack([np.sin(6 * x[:, 0]) * np.cos(2 * x[:, 1]), np.exp(x.sum(axis=1))])

    model = rs.GaussianProcessRegressor(progress=False, random_state=0).fit(x, surface(x))
    assert len(model.choice_.taken.split(" and ")) == 2
    mean, std = model.predict(new, return_std=True)
    size = np.sqrt(((mean - surface(new)) ** 2).mean(axis=0))
    assert (np.median(std, axis=0) < 10 * size).all()


def test_a_few_points_are_interpolated_without_a_warning() -> None:
    """Rows so few that no variance is known beside others: each was divided by nearly 0."""
    x = np.array([[0.7], [2.1], [3.2], [5.0], [7.6], [9.0]])
    y = x[:, 0] * np.sin(x[:, 0])
    fit = rs.GaussianProcessRegressor(progress=False, random_state=0).fit(x, y)
    mean, std = fit.predict(np.linspace(0, 10, 50)[:, None], return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()
    np.testing.assert_allclose(fit.predict(x), y, atol=0.01 * y.std())


@pytest.mark.slow
def test_the_bare_call_answers_by_the_mean_of_two_maps_where_it_pays(tmp_path: Any) -> None:
    """One part of the function is smooth in two inputs together, one has steps in single inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1400, 4))
    f = np.sin(4 * X[:, 0] + 3 * X[:, 1]) + np.floor(3 * X[:, 2]) * np.sign(X[:, 3])
    y = f + 0.2 * rng.normal(size=len(X))
    fit = rs.GaussianProcessRegressor(random_state=0, progress=False).fit(X[:600], y[:600])
    first, second = fit.features_.maps
    assert fit.choice_.taken.startswith("mean of ") and fit.choice_.taken == fit.choice_.names[-1]
    assert fit.choice_.errors[-1] < fit.choice_.errors[:-1].min()
    weights = fit._fitted.answer.choice.weights[:, 0]
    mean, std = fit.predict(X[600:], return_std=True)
    alone = []
    for own in (first, second):
        one = rs.GaussianProcessRegressor(features=own, random_state=0, progress=False)
        alone.append(one.fit(X[:600], y[:600]).predict(X[600:]))
    np.testing.assert_allclose(mean, weights @ np.array(alone), atol=1e-6)
    errors = [np.std(y[600:] - each) for each in (mean, *alone)]
    assert errors[0] < 1.01 * min(errors[1:])
    assert 0.91 < (np.abs(y[600:] - mean) < 1.96 * std).mean() < 0.985
    assert np.shape(fit.length_scale_) == (4,) and sum(fit.importance_.values()) == pytest.approx(1)

    fit.save(tmp_path / "mean.zarr", moments=True)
    assert "2 maps, R = 1200" in fit._repr_html_() and "the process itself" in fit._repr_html_()
    again = rs.load(tmp_path / "mean.zarr")
    np.testing.assert_array_equal(again.predict(X[600:]), mean)
    assert str(again.choice_) == str(fit.choice_)
    again.partial_fit(X[600:1000], y[600:1000], batch="later")
    assert again.n_rows_ == 1000 and again.score(X[1000:], y[1000:]) > fit.score(X[1000:], y[1000:])
    few = rs.GaussianProcessRegressor(random_state=0, progress=False, sample_rows=100)
    assert not hasattr(few.fit(X[:400], y[:400]).features_, "maps")  # too few rows tell weights


def test_of_candidates_that_chance_explains_the_simpler_is_taken_else_the_least(rng: Any) -> None:
    """An earlier kernel is no simpler: one was taken on heaton_sim, and errors grew by a tenth."""

    def best_of(*several: tuple[str, float, int]) -> str:
        rows = RowWindow(np.eye(2), np.ones((2, 1)), np.ones(2))
        search = MapSearch(rows, [rows], True, [rs.Gaussian()], CellShape(2, 256), rng)
        for name, error, columns in several:
            noise = rng.permutation(np.repeat([-1.0, 1.0], 100))[:, None]
            errors = error * np.sqrt(1 + 0.5 * noise)  # squares of mean error² that vary by chance
            shape = CellShape(2, columns)
            found = Candidate(name, rs.Gaussian(), np.eye(2), 0.1, shape, errors, 0.0)
            search.candidates.append(found)
        return search.best.name

    assert best_of(("first", 1.001, 256), ("least", 1.0, 256)) == "least"
    assert best_of(("few columns", 1.001, 256), ("many", 1.0, 512)) == "few columns"
    assert best_of(("few columns", 1.2, 256), ("many", 1.0, 512)) == "many"


@pytest.mark.slow
def test_a_target_of_noise_does_not_hide_what_a_map_tells_of_another() -> None:
    """The mean squared error of both was ruled by the noise: y became a straight line in half."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, new = rng.uniform(0, 10, (2, 300, 1))
        truth, wave = (each[:, 0] + np.sin(2 * each[:, 0]) for each in (new, x))
        y = wave + 0.05 * rng.normal(size=300)
        both = np.column_stack([y, 50 * rng.normal(size=300)])
        model = rs.GaussianProcessRegressor(random_state=seed, progress=False).fit(x, both)
        mean, std = model.predict(new, return_std=True)
        assert np.sqrt(np.mean((mean[:, 0] - truth) ** 2)) < 0.03  # .01 to .02 alone; was .7
        assert np.abs(std[:, 0] / 0.05 - 1).mean() < 0.25  # the deviation of a new observation
