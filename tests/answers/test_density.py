"""Densities from a mean vector, against dense Parzen estimates and their own errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

import reference
from rff_stream.answers.density import components_needed, density, independent_columns
from rff_stream.errors import ModelError
from rff_stream.features import FourierFeatures
from rff_stream.kernels import Gaussian, Laplacian, Matern
from rff_stream.moments import Moments
from rff_stream.moments.accumulate import accumulate

MEANS = np.array([[-2.0, 0.0], [1.5, 1.0], [1.0, -2.0]])
GAMMAS = [0.5, 1.0, 2.0]


def mixture(rng: np.random.Generator, n: int) -> np.ndarray:
    """The seed's picture: three Gaussian bumps in the plane."""
    spread = np.array([0.6, 0.8, 0.5])
    component = rng.integers(0, 3, n)
    return np.asarray(MEANS[component] + spread[component, None] * rng.standard_normal((n, 2)))


def map_of(kernel: Any, n_components: int, seed: int = 0, d: int = 2, **more: Any) -> Any:
    return FourierFeatures.sample(kernel, d, n_components, rng=seed, **more)


def means_of(features: FourierFeatures, x: np.ndarray, w: Any = None) -> Moments:
    return accumulate(features, x, weights=w, order=1)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return mixture(np.random.default_rng(1), 2000)


@pytest.fixture(scope="module")
def points(rows: np.ndarray) -> np.ndarray:
    """Where there are many rows, few, and none."""
    grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 9)] * 2), -1).reshape(-1, 2)
    return np.concatenate([rows[:80] + 0.1, grid])


# -------------------------------------------------------------------------- equal to the exact one


@pytest.mark.parametrize("gamma", GAMMAS)
def test_it_is_the_parzen_estimate_within_its_stated_error(
    rows: np.ndarray, points: np.ndarray, gamma: float
) -> None:
    from sklearn.neighbors import KernelDensity

    bandwidth = 1 / math.sqrt(2 * gamma)  # exp(−γ‖δ‖²)
    features = map_of(Gaussian(bandwidth), 10_000)
    answer = density(means_of(features, rows), features, Gaussian(bandwidth))
    q, error, _, _ = answer.relative(features(points))
    exact = np.exp(KernelDensity(bandwidth=bandwidth, rtol=1e-10).fit(rows).score_samples(points))
    assert np.allclose(exact, reference.parzen(points, rows, bandwidth), rtol=1e-6)
    missed = np.abs(q * math.exp(-answer.log_integral) - exact)
    stated = error * math.exp(-answer.log_integral)
    assert (missed < 4.5 * stated).all()
    assert np.mean(missed < 1.96 * stated) > 0.75  # one draw: its errors at points are correlated
    assert stated.max() < 0.03 * exact.max()


@pytest.mark.slow
def test_the_error_falls_with_the_root_of_the_components(
    rows: np.ndarray, points: np.ndarray
) -> None:
    kernel = Gaussian(1 / math.sqrt(2))
    rows = rows[:500]
    exact = kernel(points, rows).mean(axis=1)
    sizes = 2 ** np.arange(6, 13)
    errors = []
    for size in sizes:
        square = []
        for seed in range(8):
            features = map_of(kernel, int(size), seed, frequencies="iid")
            found = density(means_of(features, rows), features, kernel)
            square.append((found.relative(features(points))[0] - exact) ** 2)
        errors.append(np.sqrt(np.mean(square)))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        (Gaussian(1.0), "orthogonal"),
        (Gaussian(1.0), "iid"),
        (Matern(1.0), "orthogonal"),
        (Laplacian(1.0), "iid"),
    ],
    ids=str,
)
def test_the_stated_error_of_the_features_covers(
    rows: np.ndarray, points: np.ndarray, kernel: Any, how: Any
) -> None:
    rows, points = rows[:128], points[::12]
    exact = kernel(points, rows).mean(axis=1)
    scores = []
    for seed in range(200):
        features = map_of(kernel, 400, seed, frequencies=how)
        answer = density(means_of(features, rows), features, kernel)
        q, error, _, _ = answer.relative(features(points))
        scores.append((q - exact) / error)
    assert 0.92 <= np.mean(np.abs(scores) < 1.96) <= 0.98
    # the points are near each other and count as about three: their mean is known to 6 %
    assert 0.87 <= np.mean(np.square(scores)) <= 1.17


def test_weights_and_origins_change_nothing_that_they_should_not(rows: np.ndarray) -> None:
    features = map_of(Gaussian(0.7), 512, dtype="float64")
    times = np.random.default_rng(2).integers(1, 4, len(rows))
    once = means_of(features, np.repeat(rows, times, axis=0))
    weighted = means_of(features, rows, times.astype(float))
    shifted = accumulate(
        features,
        rows,
        weights=times.astype(float),
        order=1,
        row=replace(weighted.row, feature_origin=np.full(512, 0.3)),
    )
    Z = features(rows[:20])
    found = [density(m, features, Gaussian(0.7)).relative(Z)[0] for m in (once, weighted, shifted)]
    assert np.allclose(found[0], found[1], rtol=1e-9)
    assert np.allclose(found[0], found[2], rtol=1e-9)
    exact = reference.parzen(rows[:20], rows, 0.7, times)
    assert np.abs(found[0] * math.exp(-2 * math.log(0.7)) / (2 * np.pi) - exact).max() < 0.02


def test_a_sum_of_moments_is_the_density_of_all_rows(rows: np.ndarray) -> None:
    features = map_of(Gaussian(0.7), 256)
    whole = density(means_of(features, rows), features, Gaussian(0.7))
    parts = means_of(features, rows[:700]) + means_of(features, rows[700:])
    merged = density(parts, features, Gaussian(0.7))
    assert np.allclose(whole.coef, merged.coef, rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------------------ errors of the data


def true_deviation(draw: Any, features: FourierFeatures, kernel: Any, Z: Any) -> Any:
    """Deviation of q over 300 new data sets, and the root mean square of what is stated."""
    found, stated = [], []
    for seed in range(300):
        answer = density(means_of(features, draw(np.random.default_rng(seed))), features, kernel)
        q, _, error, _ = answer.relative(Z)
        found.append(q)
        stated.append(error**2)
    return np.std(found, axis=0), np.sqrt(np.mean(stated, axis=0))


@pytest.mark.slow
def test_the_stated_error_of_the_data_is_that_over_new_data(points: np.ndarray) -> None:
    features = map_of(Gaussian(0.7), 64)
    true, stated = true_deviation(
        lambda rng: mixture(rng, 640), features, Gaussian(0.7), features(points[::12])
    )
    # 300 data sets know a deviation to 4 %, and 31 degrees of freedom are averaged over them
    assert np.allclose(stated / true, 1.0, atol=0.15)
    assert np.mean((stated / true) ** 2) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_the_stated_error_of_the_data_knows_dependent_rows() -> None:
    kernel, features = Gaussian(0.7), map_of(Gaussian(0.7), 32, d=1)

    def series(rng: np.random.Generator) -> np.ndarray:
        return np.asarray(lfilter([0.6], [1, -0.8], rng.standard_normal((3200, 1)), axis=0))

    places = np.linspace(-2, 2, 9)[:, None]
    true, stated = true_deviation(series, features, kernel, features(places))
    assert np.allclose(stated / true, 1.0, atol=0.2)
    assert np.mean((stated / true) ** 2) == pytest.approx(1.0, abs=0.1)
    values = kernel(places, series(np.random.default_rng(0)))
    naive = values.std(axis=1) / np.sqrt(3200)  # as if rows were independent
    assert (stated > 1.5 * naive)[[0, 1, 2, 6, 7, 8]].all()


def test_without_sub_sums_the_error_of_the_data_is_not_known(rows: np.ndarray) -> None:
    features = map_of(Gaussian(1.0), 64)
    second = density(accumulate(features, rows), features, Gaussian(1.0))
    one = density(means_of(features, rows[:1]), features, Gaussian(1.0))
    for answer in (second, one):
        found = answer(features(rows[:5]))
        assert np.isnan(found.se_data).all()
        assert (found.se == found.se_features).all()


# ----------------------------------------------------------------------------- below its own error


def test_what_is_below_its_own_error_is_flagged(rows: np.ndarray) -> None:
    """Its error in its place made an estimate with larger errors the better one."""
    features = map_of(Gaussian(0.5), 512)
    answer = density(means_of(features, rows), features, Gaussian(0.5))
    far = features(np.random.default_rng(0).uniform(20, 40, (200, 2)))
    found = answer(far)
    assert (answer.relative(far)[0] < 0).sum() > 50  # the estimate itself is often negative
    assert found.below_error.mean() > 0.7
    assert (found.density >= 0).all()
    assert (found.density[found.below_error] < found.se[found.below_error]).all()
    with np.errstate(divide="ignore"):
        assert np.allclose(answer.log_density(far), np.log(found.density), rtol=0, atol=1e-14)
    near = answer(features(rows[:50]))
    assert near.below_error.mean() < 0.1
    assert (near.density >= near.se)[~near.below_error].all()


def test_root_sum_of_both_errors(rows: np.ndarray) -> None:
    features = map_of(Gaussian(0.5), 512)
    found = density(means_of(features, rows), features, Gaussian(0.5))(features(rows[:9]))
    assert np.allclose(found.se, np.hypot(found.se_features, found.se_data), rtol=1e-14)


def test_columns_are_the_fields_and_missing_rows_are_missing(rows: np.ndarray) -> None:
    features = map_of(Gaussian(0.5), 64)
    answer = density(means_of(features, rows), features, Gaussian(0.5))
    Z = features(np.vstack([rows[:3], [[np.nan, 0.0]]]))
    table = answer.columns(Z)
    assert np.isnan(table[3]).all()
    assert np.array_equal(table[:3, 0], answer(Z[:3]).density)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("how", "d", "frequencies"), [("iid", 3, 1), ("orthogonal", 3, 3)])
def test_what_is_drawn_independently(how: Any, d: int, frequencies: int, paired: bool) -> None:
    features = map_of(Gaussian(), 240, d=d, frequencies=how, paired=paired)
    assert independent_columns(features) == frequencies * (2 if paired else 1)


def test_few_orthogonal_blocks_are_counted_as_single_frequencies() -> None:
    assert independent_columns(map_of(Gaussian(), 64, d=30)) == 2


def test_one_frequency_has_an_error_that_bounds_it() -> None:
    features = map_of(Gaussian(), 2, d=1)
    x = np.random.default_rng(0).normal(size=(100, 1))
    q, error, _, _ = density(means_of(features, x), features, Gaussian()).relative(features(x))
    assert (np.abs(q) <= error).all()


def test_components_that_are_needed(rows: np.ndarray) -> None:
    kernel = Gaussian(0.03)

    def needed(n_components: int) -> float:
        features = map_of(kernel, n_components)
        answer = density(means_of(features, rows), features, kernel)
        return components_needed(answer, features(rows[:200]))

    few = needed(256)
    assert 1000 < few < 1e5
    enough = 2 * int(few)
    assert needed(enough) == enough


# ---------------------------------------------------------------------------------------- refusals


def test_moments_of_another_map_are_refused_with_both_fingerprints(rows: np.ndarray) -> None:
    mine, other = map_of(Gaussian(), 32), map_of(Gaussian(), 32, seed=1)
    with pytest.raises(ModelError) as caught:
        density(means_of(other, rows), mine, Gaussian())
    assert mine.fingerprint[:12] in str(caught.value)
    assert other.fingerprint[:12] in str(caught.value)


def test_no_rows_are_refused() -> None:
    features = map_of(Gaussian(), 16)
    with pytest.raises(ValueError, match="0 rows"):
        density(means_of(features, np.empty((0, 2))), features, Gaussian())
