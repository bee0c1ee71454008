"""Length-scales by evidence: exact gradients, and scales that the data were made with."""

from __future__ import annotations

import numpy as np
import pytest

import reference_answers as reference
from rff_stream import KernelRidge
from rff_stream.answers.evidence import evidence_at
from rff_stream.errors import DataError, NumericalWarning
from rff_stream.kernels import Gaussian, Laplacian, Matern
from rff_stream.length_scales import whole_space
from rff_stream.length_scales.relevant_inputs import inputs_of_sizes, relevant_inputs
from rff_stream.length_scales.whole_space import fit_length_scales
from rff_stream.length_scales.whole_space_evidence import FAILED, MapEvidence

N, D, M = 260, 3, 14
RNG = np.random.default_rng(31)
X = RNG.standard_normal((N, D))
Y = np.c_[np.sin(2 * X[:, 0]), X[:, 1] ** 2] + 0.2 * RNG.standard_normal((N, 2))
W = RNG.uniform(0.3, 2.0, N)


def map_evidence(n_targets=2, weights=W, dtype="float64", kernel=None, m=M):
    omega = (kernel or Matern(nu=1.5)).sample_frequencies(m, D, np.random.default_rng(1))
    return MapEvidence(X.astype(dtype), Y[:, :n_targets], weights, omega.astype(dtype), dtype=dtype)


@pytest.mark.parametrize("log_scale", [[0.1], [0.1, -0.4, 0.7]], ids=["one", "ard"])
@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("weights", [np.ones(N), W], ids=["plain", "weighted"])
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
@pytest.mark.parametrize("m", [M, N], ids=["columns", "rows"])
def test_the_gradient_is_that_of_finite_differences(log_scale, n_targets, weights, alpha, m):
    """Central differences: their error is h² |f'''| + ε|f|/h, below 1e-6 of |∇| here."""
    function = map_evidence(n_targets, weights, m=m)
    point, step = np.r_[log_scale, np.log(alpha)], 1e-5
    _, to_scale, to_alpha = function(point[:-1], point[-1])
    found = np.r_[to_scale, to_alpha]
    for i, axis in enumerate(np.eye(len(point))):
        up, down = point + step * axis, point - step * axis
        slope = (function(up[:-1], up[-1])[0] - function(down[:-1], down[-1])[0]) / (2 * step)
        assert abs(found[i] - slope) < 1e-5 * np.abs(found).max()


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(nu=0.5), Laplacian()])
@pytest.mark.parametrize("m", [M, N], ids=["columns", "rows"])
def test_the_value_and_noise_are_the_evidence_of_that_map(kernel, m):
    function, scale = map_evidence(kernel=kernel, m=m), np.array([1.2, 0.8, 2.0])
    angles = X @ (function.frequencies / scale).T
    z = np.c_[np.cos(angles), np.sin(angles)]
    expected = evidence_at(reference.moments_of(z, Y, W), 0.3)
    value, _, _ = function(np.log(scale), np.log(0.3))
    assert np.isclose(value, expected.log_evidence.sum(), rtol=1e-10)
    noise = function.noise(np.log(scale), np.log(0.3))
    assert np.allclose(noise, expected.noise_variance, rtol=1e-10)


def test_float32_is_close_to_float64():
    exact = map_evidence()(np.zeros(D), np.log(0.1))
    rounded = map_evidence(dtype="float32")(np.zeros(D), np.log(0.1))
    assert np.isclose(rounded[0], exact[0], rtol=1e-4)
    assert np.allclose(rounded[1], exact[1], rtol=1e-2)


def test_no_factor_is_worse_than_anything_and_has_no_slope():
    """ℓ = e²⁰: every column is constant, G is rounding."""
    function = map_evidence(dtype="float32")
    value, to_scale, to_alpha = function(np.full(D, 20.0), -80.0)
    assert value == FAILED
    assert not np.any([*to_scale, to_alpha])
    assert not function.noise(np.full(D, 20.0), -80.0).any()


def gaussian_draw(n=900, length_scale=(0.6, 0.6), noise=0.1, seed=0):
    """Rows in the square and a draw of a Gaussian process there, by many features."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, (n, 2))
    z = reference.fourier(x / np.asarray(length_scale), 800, seed=seed + 1)
    f = z @ rng.standard_normal((800, 1)) * np.sqrt(2 / 800)
    return x, f + noise * rng.standard_normal((n, 1))


def test_it_finds_the_length_scale_and_noise_of_a_gaussian_process():
    x, y = gaussian_draw()
    found = fit_length_scales(x, y, n_components=200, rng=0)
    assert found.finished
    assert np.allclose(found.length_scale, 0.6, rtol=0.2)
    assert 0.08**2 < found.noise_variance[0] < 0.12**2
    assert np.allclose(found.signal_variance, found.noise_variance / found.alpha)
    assert found.kernel.length_scale == pytest.approx(tuple(found.length_scale))


@pytest.mark.slow
def test_ard_tells_which_inputs_matter():
    x, y = gaussian_draw(length_scale=(0.4, 1.6))
    x = np.c_[x, np.random.default_rng(1).standard_normal(len(x))]
    found = fit_length_scales(x, y, ard=True, n_components=200, rng=0)
    assert 2 < found.length_scale[1] / found.length_scale[0] < 8
    assert found.length_scale[2] > 5
    one = fit_length_scales(x, y, n_components=200, rng=0)
    assert found.log_evidence > one.log_evidence + 50


def product_of_two_among_many(n: int, seed: int = 0):
    """Four of thirty inputs matter, none of them by itself."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 30))
    signal = np.sin(4 * x[:, 3]) * x[:, 11] + np.cos(5 * x[:, 20]) * x[:, 27]
    return x, signal / signal.std() + 0.2 * rng.standard_normal(n)


@pytest.mark.slow
def test_relevance_sees_single_inputs_and_pairs_and_nothing_in_noise():
    x, y = product_of_two_among_many(2500)
    assert np.flatnonzero(relevant_inputs(x, y[:, None], np.ones(2500))).tolist() == [3, 11, 20, 27]
    rng = np.random.default_rng(1)
    wave, w = np.sin(12 * x[:, 5]) + rng.standard_normal(2500), rng.uniform(0.5, 2, 2500)
    both = np.stack([wave / wave.std(), rng.standard_normal(2500)], axis=1)
    x[:, 7], x[:, 8] = 1.0, x[:, 8] > 0
    assert np.flatnonzero(relevant_inputs(x, both, w)).tolist() == [5]
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_normal((2500, 2))
        assert not relevant_inputs(x, noise, w).any()
        assert not relevant_inputs(x[:, :1], noise, w).any()
    wide = np.random.default_rng(2).standard_normal((2500, 600))  # parts; a cosine of each in pairs
    y = wide[:, 5] + wide[:, 410] * wide[:, 77]
    found = relevant_inputs(wide, (y / y.std())[:, None], np.ones(2500))
    assert np.flatnonzero(found).tolist() == [5, 77, 410]
    assert relevant_inputs(x[:, 5:6], both, w).all()


@pytest.mark.slow
def test_sizes_see_factors_that_no_mean_shows_and_nothing_in_noise():
    """The level of all inputs together is .01: more than 3 of 100 draws of noise have p = .02."""
    rng = np.random.default_rng(5)
    x, ones = rng.uniform(-1, 1, (2500, 30)), np.ones(2500)
    y = (x[:, 3] * x[:, 11] * x[:, 20])[:, None]
    assert not relevant_inputs(x, y / y.std(), ones).any()
    assert np.flatnonzero(inputs_of_sizes(x, y, ones)).tolist() == [3, 11, 20]
    noise = rng.standard_normal((100, 1000, 1))
    assert sum(inputs_of_sizes(x[:1000], each, ones[:1000]).any() for each in noise) <= 3


@pytest.mark.slow
def test_ard_finds_the_few_inputs_that_matter_among_thirty():
    """One ℓ for all sees noise there, and a search from it ended where it began."""
    x, y = product_of_two_among_many(2500)
    found = fit_length_scales(x, y, ard=True, rng=0, n_components=256, max_iterations=20)
    assert sorted(np.argsort(found.length_scale)[:4].tolist()) == [3, 11, 20, 27]
    assert np.sort(found.length_scale)[4] > 2 * np.sort(found.length_scale)[3]
    assert found.noise_variance[0] < 0.3


@pytest.mark.slow
def test_kernels_compete_and_the_best_map_wins():
    x, y = gaussian_draw()
    lines: list[str] = []
    kernels = [Matern(nu=0.5), Gaussian(), Laplacian()]
    found = fit_length_scales(x, y, kernels, n_components=200, rng=0, progress=lines.append)
    assert found.kernel.spec()["kernel"] == "gaussian"
    assert len(lines) == len(found.trials) == 3 * 2 + 3 + 2  # screen, middle, finalists
    assert "log p" in lines[0]
    assert max(trial.log_evidence for trial in found.trials[-2:]) == found.log_evidence


def test_units_of_inputs_and_targets_are_units_of_the_answer():
    """Powers of two round nothing, so the search takes the same steps."""
    x, y = gaussian_draw(n=300)
    base = fit_length_scales(x, y, ard=True, n_components=64, rng=0)
    other = fit_length_scales(x * [4.0, 0.5], 8 * y, ard=True, n_components=64, rng=0)
    assert np.allclose(other.length_scale, base.length_scale * [4.0, 0.5], rtol=1e-12)
    assert np.allclose(other.noise_variance, 64 * base.noise_variance, rtol=1e-12)
    expected = base.log_evidence - 299 * np.log(8)
    assert np.isclose(other.log_evidence, expected, rtol=1e-12)


def test_the_same_seed_gives_the_same_bits():
    x, y = gaussian_draw(n=300)
    first, second, third = (
        fit_length_scales(x, y, n_components=64, max_rows=200, rng=seed) for seed in (5, 5, 6)
    )
    assert np.array_equal(first.length_scale, second.length_scale)
    assert first.log_evidence == second.log_evidence
    assert first.log_evidence != third.log_evidence


def test_no_point_is_looked_at_twice(monkeypatch):
    """Line searches ask again for the same numbers; what comes back has the same bits."""
    asked, looked = [], []
    ask, look = whole_space._Best.__call__, whole_space.MapEvidence.__call__

    def asking(best, parameters):
        found = ask(best, parameters)
        asked.append((id(best), parameters.tobytes(), found[0], found[1].tobytes()))
        kept.append(best)
        return found

    def looking(target, log_scale, log_alpha):
        looked.append((id(target), log_scale.tobytes(), log_alpha))
        return look(target, log_scale, log_alpha)

    kept = []  # so that no id is given twice
    monkeypatch.setattr(whole_space, "PATIENCE", 8)  # else this search ends before it comes back
    monkeypatch.setattr(whole_space._Best, "__call__", asking)
    monkeypatch.setattr(whole_space.MapEvidence, "__call__", looking)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.normal(size=(300, 1))
    found = fit_length_scales(x, y, [Gaussian()], n_components=64, rng=0)
    assert len(looked) < len(asked)
    assert len(set(asked)) == len({(best, place) for best, place, *_ in asked})
    assert sum(trial.evaluations for trial in found.trials) == len(looked)


def test_work_is_bounded_and_the_best_so_far_is_taken():
    x, y = gaussian_draw()
    with pytest.warns(NumericalWarning, match="reached its limit of 0 CPU s"):
        found = fit_length_scales(x, y, [Gaussian(), Matern()], n_components=200, max_seconds=0)
    assert not found.finished
    assert all(trial.evaluations == 1 for trial in found.trials)
    assert np.isfinite(found.length_scale).all()


@pytest.mark.parametrize("rule", ["evidence", "ard"])
def test_the_search_by_evidence_of_a_model_takes_no_more_than_it_may(rule):
    """It took 60 steps whatever was asked for, and the plan said that it would not."""
    x, y = gaussian_draw()
    choices = {"length_scale": rule, "n_components": 64, "random_state": 0, "progress": False}
    whole = KernelRidge(**choices).fit(x, y)
    assert whole.plan_.seconds > whole.plan_.search_seconds > 0
    limit = whole.plan_.search_seconds / 50
    with pytest.warns(NumericalWarning, match="Raise search_seconds"):
        found = KernelRidge(**choices, search_seconds=limit).fit(x, y)
    assert limit < found.plan_.seconds < whole.plan_.seconds / 10
    with pytest.warns(NumericalWarning, match="Raise search_seconds"):
        again = KernelRidge(**choices, search_seconds=limit).fit(x, y)
    np.testing.assert_array_equal(again.length_scale_, found.length_scale_)  # no clock decides


def test_targets_of_any_size_share_the_scales_and_constant_ones_have_no_variance():
    x, y = gaussian_draw(n=300)
    wide = np.c_[y, np.full(300, 0.1), 1e30 * y + 1e31]
    found = fit_length_scales(x, wide, n_components=64, rng=0)
    assert found.noise_variance[1] == found.signal_variance[1] == 0
    assert np.isclose(found.noise_variance[2], 1e60 * found.noise_variance[0], rtol=1e-4)


def test_a_column_that_is_constant_on_the_pilot_keeps_a_usable_scale():
    """Its standard deviation is rounding, not a scale: seen on elevators and keggdirected."""
    x, y = gaussian_draw(n=600)
    x = np.c_[x, np.full(600, -0.010977102382)]
    for ard in (False, True):
        found = fit_length_scales(x, y, ard=ard, n_components=64, rng=0)
        assert found.length_scale[2] > 0.1
        assert np.isfinite(found.length_scale).all()


@pytest.mark.parametrize("unit", [1e-8, 37.0, 1e8])
def test_the_unit_of_weights_changes_no_length_scale(unit):
    """A start at σₙ²/σ_f² = .1 of rows of weight 1 was pure noise for rows of weight 1e-8."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=400)
    w = rng.uniform(0.5, 2.0, 400)
    choices = {"ard": True, "n_components": 64, "rng": 0}
    found, other = (fit_length_scales(x, y, weights=w * u, **choices) for u in (1.0, unit))
    np.testing.assert_allclose(other.length_scale, found.length_scale, rtol=0.1)
    np.testing.assert_allclose(other.noise_variance, found.noise_variance * unit, rtol=0.05)


def test_more_inputs_than_rows_duplicates_and_weights_give_finite_scales():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((150, 200))
    x[100:] = x[:50]
    found = fit_length_scales(
        x, x[:, 0], ard=True, n_components=64, rng=0, weights=rng.uniform(0.1, 9, 150)
    )
    assert np.isfinite(found.length_scale).all()
    assert np.isfinite([found.log_evidence, found.alpha]).all()


@pytest.mark.parametrize(
    ("rows", "arguments", "error", "message"),
    [
        ((X[:2], Y[:2]), {}, DataError, "2 rows"),
        ((np.where(X > 2, np.nan, X), Y), {}, DataError, "NaN"),
        ((X, np.full(N, 3.1)), {}, DataError, "constant"),
        ((X, Y), {"weights": np.zeros(N)}, DataError, "weights ≤ 0"),
        ((X, Y), {"kernels": []}, ValueError, "kernels is empty"),
        ((X, Y), {"n_components": 1}, ValueError, "n_components=1"),
        ((X, Y), {"max_seconds": -1}, ValueError, "max_seconds=-1"),
    ],
)
def test_bad_input_is_refused(rows, arguments, error, message):
    with pytest.raises(error, match=message):
        fit_length_scales(*rows, **arguments)


def test_steps_are_counted_for_a_bar() -> None:
    rng, counted = np.random.default_rng(0), []
    x = rng.normal(size=(200, 2))
    found = fit_length_scales(
        x, np.sin(x[:, 0]), n_components=32, max_iterations=5, rng=0, advance=counted.append
    )
    assert sum(counted) == sum(trial.evaluations for trial in found.trials) > 0
