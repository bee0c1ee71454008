"""Safety between the data: blocks that are held out, and sums as precise as the answer needs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import rff_stream as rs
from rff_stream.answers.evidence import evidence
from rff_stream.errors import NumericalWarning
from rff_stream.features.fourier import LINEAR, STEEP, nearly_linear
from rff_stream.moments.accumulate import accumulate
from rff_stream.pilot import Pilot, augmented_row
from rff_stream.whole.family import rounding_is_felt
from rff_stream.whole.gap_remedy import CheckRows
from rff_stream.whole.gap_test import FOLDS, HALVINGS, PARTITIONS, GapRows, block_of_rows, gap_test

QUIET: Any = {"random_state": 0, "progress": False}


def smooth(x: Any) -> Any:
    return np.sin(2 * x[:, 0]) * x[:, 1]


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(values**2)))


def rough(x: Any) -> Any:
    """A trend and a field that is rougher than a few columns can follow."""
    z = rs.FourierFeatures.sample(rs.Laplacian(0.3), 2, 2000, rng=1, dtype="float64")(x)
    return 2 * x[:, 0] + z @ np.random.default_rng(2).normal(size=2000) / 2000**0.5


def clustered() -> tuple[Any, Any]:
    """Rows in 16 clusters, their targets, and nothing between."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(-2, 2, (16, 2))
    x = centres[rng.integers(16, size=3000)] + 0.1 * rng.normal(size=(3000, 2))
    return x, rough(x) + 0.02 * rng.normal(size=3000)


def test_blocks_are_compact_and_of_one_size(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1000, 3))
    block = block_of_rows(x, 5)
    sizes = np.bincount(block)
    assert len(sizes) == 32 and sizes.max() - sizes.min() <= 5
    spread = np.mean([x[block == b].var(axis=0).sum() for b in range(32)])
    assert spread < 0.5 * x.var(axis=0).sum()


@pytest.mark.parametrize("n_components", [64, 400])
def test_the_error_is_that_of_models_without_the_blocks(n_components: int) -> None:
    """With fewer columns than rows or more: a ridge regression of the rows that are left."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-2, 2, (300, 2)), rng.uniform(0.5, 2, 300)
    y = smooth(x)[:, None] + 0.1 * rng.normal(size=(300, 1))
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, n_components, rng=0, dtype="float64")
    z, prior = features(x), features.prior()
    (found,) = gap_test(GapRows(x, y, w, z, prior), np.array([0.02]), 300.0, largest=300.0)
    penalty, logs, worst = 0.02 * w.sum() * (1 - 1 / FOLDS) / 300, [], 0.0
    for seed, gaps in PARTITIONS:
        fold, missed = block_of_rows(x, HALVINGS, seed, at_gaps=gaps) % FOLDS, []
        for k in range(FOLDS):
            kept, out = fold != k, fold == k
            mean_z = np.average(z[kept], axis=0, weights=w[kept])
            mean_y = np.average(y[kept, 0], weights=w[kept])
            centred, root = (z[kept] - mean_z) * np.sqrt(prior), np.sqrt(w[kept])[:, None]
            system = (root * centred).T @ (root * centred) + penalty * np.eye(n_components)
            coef = np.linalg.solve(system, centred.T @ (w[kept] * (y[kept, 0] - mean_y)))
            line = LinearRegression().fit(x[kept], y[kept, 0], w[kept]).predict(x[out])
            fitted = mean_y + (z[out] - mean_z) * np.sqrt(prior) @ coef
            missed += [[w[out] @ (y[out, 0] - each) ** 2 for each in (fitted, line, mean_y)]]
        model, line, mean = np.transpose(missed)
        line = np.maximum(np.minimum(line, mean), 0.01 * mean.mean())
        logs += [np.log(model / line) / 2]
        worst = max(worst, np.sqrt(model.sum() / line.sum()))
    assert found.ratio == pytest.approx(np.exp(np.clip(logs, -2, 2).mean()), rel=1e-8)
    assert found.worst == pytest.approx(worst, rel=1e-8)
    assert found.least_alpha == found.alpha and found.ratio < 1


def test_nearly_linear_columns_are_linear_and_bounded() -> None:
    columns = nearly_linear(np.array([5.0, 1.0, 0.0]), np.array([2.0, 1.0, 3.0]),
                            np.array([True, False, True]), "float64")  # fmt: skip
    x = np.linspace(-3, 3, 7)[:, None] * [2.0, 9.0, 3.0] + [5.0, 1.0, 0.0]
    line = np.linspace(-3, 3, 7)[:, None] / LINEAR
    assert columns.n_components == 4
    np.testing.assert_allclose(columns(x)[:, 1::2], np.repeat(line, 2, axis=1), rtol=0.02)
    assert columns.prior()[0] / LINEAR**2 == pytest.approx(STEEP)
    assert np.abs(columns(1e6 * x)).max() <= 1


@pytest.mark.slow
def test_short_length_scales_return_to_a_trend_in_gaps() -> None:
    """Columns that are linear are taken: where no row is near, the model is a line."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (2500, 2))
    y, kept = rough(x), x[:, 0] < 0.8
    pilot = Pilot(x[kept], y[kept, None], np.ones(kept.sum()))
    seen = CheckRows.of(pilot)
    plain = rs.FourierFeatures.sample(rs.Matern(1.5, 0.15), 2, 1024, rng=0)
    both = seen.with_trend(plain, float(kept.sum()))
    assert both.n_components == 1024 + 4
    errors = []
    for features in (plain, both):
        found = evidence(accumulate(features, x[kept], y[kept], sums="float64")).posterior()
        errors.append(rms(y[~kept] - found.mean(features(x[~kept]))[:, 0]))
    line = LinearRegression().fit(x[kept], y[kept])
    errors.append(rms(y[~kept] - line.predict(x[~kept])))
    assert errors[2] < errors[1] < 0.75 * errors[0], errors


def test_a_map_that_serves_in_gaps_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1000, 2))
    for y in (smooth(x), smooth(x) + x[:, 0], rng.normal(size=1000)):
        pilot = Pilot(x, y[:, None], np.ones(1000))
        seen = CheckRows.of(pilot)
        features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 256, rng=0)
        assert seen.with_trend(features, 1000.0) is features


def test_clusters_are_held_out_whole() -> None:
    """Cut at gaps: a cluster in two blocks would be a gap that its own rows fill."""
    rng = np.random.default_rng(0)
    label = rng.integers(8, size=2000)
    x = 4.0 * np.column_stack([label % 4, label // 4]) + 0.3 * rng.normal(size=(2000, 2))
    block = block_of_rows(x, 3, 0, at_gaps=True)
    assert all(len(np.unique(block[label == each])) == 1 for each in range(8))


def test_a_good_model_in_gaps_is_not_warned_of() -> None:
    """Blocks held out of smooth data, where the model is far better than a line."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    y = smooth(x) + 0.1 * rng.normal(size=3000)
    kept = ~np.isin(block_of_rows(x, 5, 7), np.arange(0, 32, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rs.GaussianProcessRegressor(n_components=256, **QUIET).fit(x[kept], y[kept])
    errors = [np.std(y[~kept] - each) for each in (model.predict(x[~kept]), 0.0)]
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.parametrize(("noise", "expected"), [(0.01, True), (2.0, False)])
def test_sums_are_as_precise_as_the_answer_needs(noise: float, expected: bool) -> None:
    """Row 200,001 made the default fit 13 times worse: the penalty sat on the rounding."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (2000, 2))
    y = smooth(x) + noise * rng.normal(size=2000)
    features = rs.FourierFeatures.sample(rs.Gaussian(0.8), 2, 128, rng=0)
    pilot = Pilot(x, y[:, None], np.ones(2000))
    row = augmented_row(features, pilot, ("a", "b"), ("y",))
    assert rounding_is_felt(pilot, features, row, 3e5, None) is expected
    assert rounding_is_felt(pilot, features, row, 3e5, 1e-6)
    assert not rounding_is_felt(pilot, features, row, 3e5, 1.0)


@pytest.mark.slow
def test_what_swings_between_the_data_gets_a_larger_penalty() -> None:
    """Evidence buys interpolation: the error was 20 times that of a linear trend, in silence."""
    x, y = clustered()
    pilot = Pilot(x, y[:, None], np.ones(len(x)))
    seen = CheckRows.of(pilot)
    features = rs.FourierFeatures.sample(rs.Matern(1.5, 1.2), 2, 128, rng=0)
    row = augmented_row(features, pilot, ("a", "b"), ("y",))
    found = evidence(accumulate(features, x, y, row=row))
    with pytest.warns(NumericalWarning, match="predictions would oscillate"):
        safe = seen.check_evidence(features, found)
    gap = np.random.default_rng(1).uniform(-1.8, 1.8, (500, 2))
    slope, *_ = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), y, rcond=None)
    trend = np.column_stack([np.ones(len(gap)), gap]) @ slope
    truth, z = rough(gap), features(gap)
    before, after = (each.posterior().mean(z)[:, 0] for each in (found, safe))
    errors = [np.sqrt(np.mean((each - truth) ** 2)) for each in (before, after, trend)]
    assert safe.alpha > found.alpha and errors[1] < 2 * errors[2] < errors[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*10 nearest neighbours")  # of too few columns
@pytest.mark.parametrize("alpha", ["cv", "gcv"])
def test_other_criteria_are_tested_in_gaps_too(alpha: str) -> None:
    """Held-out runs of rows lie among the others: their errors do not show what gaps do."""
    x, y = clustered()
    choices: Any = {"n_components": 128, "length_scale": 1.2, "kernel": "matern", **QUIET}
    with pytest.warns(NumericalWarning, match="predictions would oscillate"):
        model = rs.KernelRidge(alpha=alpha, **choices).fit(x, y)
    assert model.alpha_ > 10 * model.selection_.best.alpha


@pytest.mark.parametrize("values", [2, 3, 5])
@pytest.mark.parametrize("d", [1, 2])
def test_inputs_of_few_values_have_no_empty_block(values: int, d: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(values, size=(600, d)).astype(float)
    y = x[:, 0] ** 2 + 0.1 * rng.normal(size=600)
    model = rs.KernelRidge(n_components=64, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        model.fit(x, y)
    assert model.score(x, y) > 0.9


def test_kind_data_keep_the_very_answer() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1000, 2))
    y = smooth(x) + 0.05 * rng.normal(size=1000)
    pilot = Pilot(x, y[:, None], np.ones(1000))
    seen = CheckRows.of(pilot)
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 128, rng=0)
    found = evidence(accumulate(features, x, y))
    assert seen.check_evidence(features, found) is found


@pytest.mark.slow
def test_the_default_fit_of_many_rows_is_no_worse_than_that_of_fewer() -> None:
    rng = np.random.default_rng(0)
    test, errors = rng.uniform(-2, 2, (1000, 2)), []
    for n in (2000, 200_001):
        x = rng.uniform(-2, 2, (n, 2))
        y = smooth(x) + 0.05 * rng.normal(size=n)
        model = rs.KernelRidge(n_components=64, length_scale=1.2, **QUIET).fit(x, y)
        errors.append(np.sqrt(np.mean((model.predict(test) - smooth(test)) ** 2)))
    assert model.plan_.sums == "float64"
    assert errors[1] < errors[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*10 nearest neighbours")  # of too few columns
def test_what_was_unsafe_stays_safe_in_a_loaded_model(tmp_path: Any) -> None:
    x, y = clustered()
    model = rs.KernelRidge(n_components=128, length_scale=1.2, kernel="matern", **QUIET)
    with pytest.warns(NumericalWarning, match="would oscillate"):
        model.fit(x, y)
    model.save(tmp_path / "m.zarr", moments=True)
    with pytest.warns(NumericalWarning, match="would oscillate"):
        again = rs.load(tmp_path / "m.zarr").update(x[:50], y[:50], batch="more")
    assert 0.1 < again.alpha_ / model.alpha_ < 10  # a step of penalties, or two


@pytest.mark.parametrize("alpha", ["gcv", "cv", "evidence"])
def test_a_penalty_that_rounding_holds_up_is_said(alpha: str) -> None:
    """Sums in float32 allow no smaller penalty than η, and the criterion asks for one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    choices: Any = {"n_components": 128, "length_scale": 2.0, "random_state": 0, "progress": False}
    with pytest.warns(rs.NumericalWarning, match="no smaller one is allowed.*float64"):
        rs.KernelRidge(alpha=alpha, sums="float32", **choices).fit(X, y)
    rs.KernelRidge(alpha=alpha, sums="float64", **choices).fit(X, y)  # without a warning


def test_a_linear_function_that_is_met_well_is_no_swing() -> None:
    """A line is exact there, and the model leaves a thousandth of the spread: no warning."""
    X, y = np.arange(1000.0)[:, None], np.arange(1000.0)
    model = rs.KernelRidge(n_components=32, random_state=0, progress=False).fit(X, y)
    assert model.score(X, y) > 0.999


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "slope"),
    [(rs.Cells(64, 2, 8), 0.0), (rs.Cells(64, 2, 8), 5.0), (rs.Grid(modes=(16, 16)), 0.0)],
)
def test_cells_and_grids_are_not_warned_of_gaps(features: Any, slope: float) -> None:
    """They answer with their kernel, and their intervals are those of a gap there."""
    x, y = clustered()
    model = rs.GaussianProcessRegressor(length_scale=0.2, features=features, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, slope * x[:, 0] + y)
    gap = np.random.default_rng(1).uniform(-1.8, 1.8, (500, 2))
    mean, std = model.predict(gap, return_std=True)
    assert np.mean(abs(slope * gap[:, 0] + rough(gap) - mean) < 1.96 * std) > 0.9
