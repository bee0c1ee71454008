"""Sums on a grid of frequencies: transforms, the group they form, dense kriging as the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import rff_stream as rs
from reference_grid import Kriging
from rff_stream._array import Array, Float64
from rff_stream.errors import DataError, ModelError
from rff_stream.grid.answers import (
    axes_of_product,
    draw_posterior,
    evaluate,
    posterior_covariance,
    solve_grid,
    steady_variance,
)
from rff_stream.grid.map import GridFeatures, share_modes, tail_beyond
from rff_stream.grid.moments import GridAccumulator, GridMoments, grid_row
from rff_stream.grid.selection import choose_grid_kernel, compare_kernels, grid_evidence
from rff_stream.grid.system import Elimination, GridSystem, conjugate_gradients, expected_steps

pytest.importorskip("finufft")

CASES: list[Any] = [(1, (120,), 0.4), (2, (26, 24), 0.8), (3, (6, 6, 6), 1.5)]


def rows(d: int, n: int = 250, seed: int = 0) -> tuple[Float64, Float64, Float64]:
    rng = np.random.default_rng(seed)
    x, w = rng.uniform(0, 3, (n, d)), rng.uniform(0.5, 2, n)
    y = np.sin(2 * x[:, 0]) + 0.3 * x.sum(axis=1) + 0.1 * rng.standard_normal(n) / np.sqrt(w)
    return x, y, w


def sums(
    x: Array, y: Array, w: Array | None, modes: tuple[int, ...], *, sample_rows: int = 0
) -> GridMoments:
    d = x.shape[1]
    grid = GridFeatures.over(np.zeros(d), np.full(d, 3.0), modes=modes, padding=2.5)
    row = grid_row(grid, tuple("abc"[:d]), ("y",), target_origin=np.array([0.7]))
    sink = GridAccumulator(grid, row, sample_rows)
    sink.add(x, y[:, None], w, np.arange(len(x)))
    return sink.result()


def trend_of(moments: GridMoments, x: Array, p: int) -> Float64:
    turned = moments.features.angles(x).T / (2 * np.pi)
    return np.column_stack([np.ones(len(x)), turned])[:, :p]


@pytest.mark.parametrize("scales", [(1e5, 1e-9), (1e-20, 1e-20), (1e-140, 1e140), (0.0, 1e-9)])
def test_sums_of_a_target_know_nothing_of_the_scale_of_others(scales: tuple[float, float]) -> None:
    """Two targets, and a trend, share transforms: the error of each is relative to itself."""
    x, _, w = rows(2, 60)
    y = np.random.default_rng(1).standard_normal((60, 2)) * scales
    grid = GridFeatures.over(np.zeros(2), np.full(2, 3.0), modes=(6, 5), padding=2.5)
    sink = GridAccumulator(grid, grid_row(grid, ("a", "b"), ("u", "v")))
    sink.add(x, y, w, np.arange(60))
    index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
    waves = np.exp(-1j * np.tensordot(grid.angles(x).T, index, ((1,), (-1,))))
    expected = np.tensordot((y * w[:, None]).T, waves, 1)
    for found, exact, scale in zip(sink.result().projections, expected, scales, strict=True):
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-7 * scale)


@pytest.mark.parametrize(("d", "modes", "_scale"), CASES)
def test_sums_are_what_they_say(d: int, modes: tuple[int, ...], _scale: float) -> None:
    x, y, w = rows(d, 60)
    moments = sums(x, y, w, modes)
    grid = moments.features
    index = np.stack(np.meshgrid(*grid.indices(), indexing="ij"), axis=-1)
    waves = np.exp(-1j * np.tensordot(grid.angles(x).T, index, ((1,), (-1,))))
    size = w.sum() * np.abs(y).max()
    dense = np.tensordot(w * (y - 0.7), waves, 1)
    assert np.abs(moments.projections[0] - dense).max() < 1e-9 * size
    columns = trend_of(moments, x, 1 + d) * w[:, None]
    assert np.abs(moments.trends - np.tensordot(columns.T, waves, 1)).max() < 1e-9 * size
    border = np.column_stack([trend_of(moments, x, 1 + d), y - 0.7])
    np.testing.assert_allclose(moments.border, border.T @ (border * w[:, None]), atol=1e-10)


def test_moments_on_a_grid_form_a_group() -> None:
    x, y, w = rows(2, 300)
    parts = [sums(x[i::3], y[i::3], w[i::3], (9, 8), sample_rows=20) for i in range(3)]
    whole = sums(x, y, w, (9, 8), sample_rows=20)
    total = parts[0] + parts[1] + parts[2]
    scale = np.abs(whole.sums).max()
    assert np.abs(total.sums - whole.sums).max() < 1e-12 * scale
    assert (total.n, len(total.sample.keys)) == (300, 20)
    without = total - parts[1]
    again = parts[0] + parts[2]
    assert np.abs(without.sums - again.sums).max() < 1e-12 * scale
    assert without.n == again.n
    twice = sums(x, y, 2 * w, (9, 8))
    assert np.abs(whole.scale(2).sums - twice.sums).max() < 1e-12 * 2 * scale
    assert whole.scale(2).log_weight == pytest.approx(twice.log_weight)
    zero = GridMoments.zero(whole.features, whole.row, 20)
    assert ((whole + zero).sums == whole.sums).all()
    with pytest.raises(ModelError, match="feature map"):
        whole + sums(x, y, w, (9, 9))


def test_portions_of_rows_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rff_stream.grid.moments.BATCH_ROWS", 64)
    x, y, w = rows(2, 300)
    whole = sums(x, y, w, (6, 6))
    sink = GridAccumulator(whole.features, whole.row)
    for lo, hi in ((0, 7), (7, 130), (130, 131), (131, 300)):
        sink.add(x[lo:hi], y[lo:hi, None], w[lo:hi], np.arange(lo, hi))
    assert (sink.result().sums == whole.sums).all()


@pytest.mark.slow
@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize(("d", "modes", "scale"), CASES)
def test_answers_equal_dense_kriging(
    d: int, modes: tuple[int, ...], scale: float, trend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rff_stream.grid.answers.BLOCK", 150)
    x, y, w = rows(d)
    kernel, alpha = rs.Gaussian(scale), 0.02
    moments = sums(x, y, w, modes)
    system = GridSystem(moments, kernel, trend)
    p = system.n_trend
    dense = Kriging(kernel(x, x), trend_of(moments, x, p), y, w, alpha)
    at = np.random.default_rng(1).uniform(0.1, 2.9, (12, d))
    k, h = kernel(at, x), trend_of(moments, at, p)
    # What the grid cuts off of the kernel, and its periodic images, bound the difference.
    image = kernel(np.zeros((1, d)), np.eye(1, d) * (moments.features.period[0] - 3)).item()
    allowed = 1e-6 + 30 * system.unresolved + 100 * image
    found = solve_grid(system, alpha, block=150, tolerance=1e-11)
    np.testing.assert_allclose(found.mean(at)[:, 0], dense.mean(k, h), atol=allowed)
    np.testing.assert_allclose(found.noise_variance, dense.noise_variance, rtol=allowed)
    variance = np.diag(posterior_covariance(system, alpha, dense.noise_variance, at))
    np.testing.assert_allclose(variance, dense.variance(np.ones(12), k, h), atol=allowed)
    value = grid_evidence(system, alpha, block=150, probes=8, tolerance=(1e-10, 1e-3))
    assert abs(value.log_evidence[0] - dense.log_evidence()) < 4 * value.error + 100 * allowed


def test_the_slopes_are_those_of_the_evidence() -> None:
    x, y, w = rows(2)
    moments = sums(x, y, w, (12, 12))

    def at(scale: float, alpha: float) -> Any:
        system = GridSystem(moments, rs.Matern(nu=1.5, length_scale=scale))
        return grid_evidence(system, alpha, block=2000, probes=8, tolerance=(1e-10, 1e-8))

    step = 1e-4
    up, down = at(0.8, 0.02 * np.exp(step)), at(0.8, 0.02 * np.exp(-step))
    slope = (up.log_evidence - down.log_evidence) / (2 * step)
    assert at(0.8, 0.02).slope_alpha == pytest.approx(slope, abs=0.1)
    longer, shorter = at(0.8 * np.exp(step), 0.02), at(0.8 * np.exp(-step), 0.02)
    grid = moments.features
    omega = grid.frequencies.reshape(-1, 2)
    bend = [
        rs.Matern(nu=1.5, length_scale=0.8 * np.exp(s)).log_spectral_density(omega) / 2
        for s in (step, -step)
    ]
    chain = (bend[0] - bend[1]).reshape(grid.half_shape) / (2 * step)
    found = float((at(0.8, 0.02).influence[0] * chain).sum())
    wanted = float((longer.log_evidence - shorter.log_evidence)[0]) / (2 * step)
    assert found == pytest.approx(wanted, abs=0.3)


@pytest.mark.slow
def test_elimination_saves_most_steps() -> None:
    """With a gap in the data and small noise, where the diagonal alone needs hundreds."""
    x, y, w = rows(2, 3000)
    seen = ~((np.abs(x - 1.5) < 0.6).all(axis=1))
    moments = sums(x[seen], y[seen], w[seen], (20, 20))
    system = GridSystem(moments, rs.Matern(nu=1.5, length_scale=1.0))
    steps = [
        conjugate_gradients(
            Elimination(system, 1e-2, block), system.right_sides, tolerance=1e-8
        ).steps
        for block in (2, 800)
    ]
    assert steps[1] < steps[0] / 4


@pytest.mark.slow
def test_draws_have_the_posterior_covariance() -> None:
    """Powered: 400 draws of 30 places; a variance off by a factor 1.2 fails."""
    x, y, w = rows(1, 80)
    moments, kernel, alpha = sums(x, y, w, (60,)), rs.Matern(nu=1.5, length_scale=0.5), 0.05
    system = GridSystem(moments, kernel)
    rng = np.random.default_rng(0)
    u = draw_posterior(system, alpha, 0.01, draws=400, rng=rng, block=60)
    theta = system.trend_deviation(u, 0.01, rng)
    at = np.linspace(0.05, 2.95, 30)[:, None]
    angles = system.features.angles(at)
    values = evaluate(system.features, system.weights * u, angles) + theta.T
    variance = np.diag(posterior_covariance(system, alpha, 0.01, at))
    wanted = variance - 0.01 * system.unresolved / alpha
    ratio = (values**2).mean(axis=0) / wanted
    assert abs(ratio.mean() - 1) < 0.1
    assert (np.abs(ratio - 1) < 5 * np.sqrt(2 / 400)).all()


@pytest.mark.slow
def test_a_comparison_of_kernels_is_that_of_their_searches() -> None:
    x, y, w = rows(2, 400)
    moments = sums(x, y, w, (9, 9))
    kernels, scales = [rs.Matern(nu=0.5), rs.Matern(nu=2.5)], [0.5, 1.0, 2.0]
    found = compare_kernels(moments, kernels, scales, ratios=(1.0, 2.0))
    for k, unit in enumerate(kernels):
        for at, scale in enumerate(scales):
            kernel = unit.with_length_scale((scale, 2 * scale))
            dense = GridSystem(moments, kernel)
            there = grid_evidence(dense, found.alpha[k, at])
            assert found.log_evidence[k, at] == pytest.approx(there.log_evidence[0], abs=1e-6)
            for step in (1.3, 1 / 1.3):
                beside = grid_evidence(dense, step * found.alpha[k, at]).log_evidence[0]
                assert beside < found.log_evidence[k, at]
    assert found.best == np.unravel_index(found.log_evidence.argmax(), (2, 3))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_regular_grid_is_evaluated_as_its_rows_are(order: tuple[int, ...]) -> None:
    """All combinations of uneven axes, one of a single value, whichever changes first."""
    rng = np.random.default_rng(0)
    moments = sums(*rows(3), (5, 4, 6))
    grid = moments.features
    coef = moments.projections
    axes = [np.sort(rng.uniform(0, 3, 9)), np.array([1.3]), np.linspace(0, 3, 12)]
    cube = np.meshgrid(*(axes[a] for a in order), indexing="ij")
    x = np.stack([cube[order.index(a)].reshape(-1) for a in range(3)], axis=1)
    angles = grid.angles(x)
    assert axes_of_product(angles) is not None
    mixed = rng.permutation(len(x))
    assert axes_of_product(angles[:, mixed]) is None
    found = evaluate(grid, coef, angles)
    wanted = evaluate(grid, coef, np.ascontiguousarray(angles[:, mixed]))
    assert np.abs(found[:, mixed] - wanted).max() < 1e-8 * np.abs(wanted).max()


def test_what_is_no_product_of_axes() -> None:
    two = np.repeat(np.arange(10.0), 10)
    for columns in (
        np.stack([two, two]),  # both change together
        np.stack([two, np.arange(100.0)]),  # values of the second differ from block to block
        np.stack([two[:95], np.tile(np.arange(10.0), 10)[:95]]),  # the last block is not whole
        np.ones((2, 100)),  # one place a hundred times
    ):
        assert axes_of_product(columns) is None
    found = axes_of_product(np.stack([np.tile(np.arange(10.0), 10), two]))
    assert found is not None and found[1] == [1, 0]


def test_an_axis_of_few_modes_takes_part_in_a_search() -> None:
    """Time in a short record: the coarse grids of a search have no more modes than the grid."""
    moments = sums(*rows(3, 400), (6, 6, 1))
    found = choose_grid_kernel(moments, [rs.Gaussian()], evaluations=6)
    assert np.isfinite(found.evidence.log_evidence).all()


def test_what_a_constant_explains_cancels_however_many_the_rows() -> None:
    """Weights of 1e8: an error of 1e-10 of a transform would be ten times α."""
    x, y, w = rows(2, 300)
    moments = sums(x, y, 1e8 * w, (12, 12))
    assert moments.density[0, 0] == pytest.approx(moments.weight, rel=1e-15)  # two orders of a sum
    elimination = Elimination(GridSystem(moments, rs.Gaussian(0.8)), 1e-3, 400)
    assert elimination.factor[0, 0] ** 2 == pytest.approx(1e-3, rel=0.05)
    with pytest.raises(ValueError, match=r"alpha=1e-18 is below the rounding"):
        solve_grid(GridSystem(moments, rs.Gaussian(0.8)), 1e-18)


@pytest.mark.slow
def test_the_kernel_is_chosen_after_the_read() -> None:
    """A rough function takes the rough kernel, at about the length-scale it was made with."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 3, (1500, 1))
    K = rs.Matern(nu=0.5, length_scale=0.6)(x, x)
    y = np.linalg.cholesky(K + 1e-10 * np.eye(len(x))) @ rng.standard_normal(len(x))
    y += 0.05 * rng.standard_normal(len(x))
    moments = sums(x, y, None, (400,))
    kernels = [rs.Matern(nu=0.5), rs.Matern(nu=1.5), rs.Gaussian()]
    chosen = choose_grid_kernel(moments, kernels, evaluations=25, block=300)
    assert getattr(chosen.kernel, "nu", None) == 0.5
    assert 0.2 < np.ravel(chosen.kernel.length_scale)[0] < 1.8
    # What 400 modes do not resolve of so rough a kernel counts as noise.
    system = GridSystem(moments, chosen.kernel)
    unresolved = system.unresolved * chosen.evidence.noise_variance[0] / chosen.alpha
    assert 0.5 * 0.05**2 < chosen.evidence.noise_variance[0] < 2 * (0.05**2 + unresolved)
    assert len(chosen.tried) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "modes", "gaps"),
    [
        (rs.Matern(nu=0.5, length_scale=0.3), (40, 40), 3),
        (rs.Matern(nu=1.5, length_scale=0.1), (60, 24), 0),
        (rs.Matern(nu=1.5, length_scale=0.1), (7, 7, 7), 2),
    ],
)
def test_steps_are_foreseen_within_a_factor_of_three(
    kernel: rs.Matern, modes: tuple[int, ...], gaps: int
) -> None:
    """Rows outside square gaps, whose function is no draw from the kernel, at two noises."""
    rng, d, n = np.random.default_rng(1), len(modes), 15_000
    x = rng.uniform(0, 1, (n, d))
    for centre in rng.uniform(0.1, 0.9, (gaps, d)):
        x = x[(np.abs(x - centre) > 0.08).any(axis=1)]
    y = np.sin(9 * x[:, 0]) + np.cos(7 * x[:, -1]) + 0.1 * rng.standard_normal(len(x))
    grid = GridFeatures.over(np.zeros(d), np.ones(d), modes=modes)
    sink = GridAccumulator(grid, grid_row(grid, tuple("abc"[:d]), ("y",)))
    sink.add(x, y[:, None], None, np.arange(len(x)))
    system = GridSystem(sink.result(), kernel)
    for alpha in (1.0, 1e-4):
        told = expected_steps(modes, kernel, alpha, n, 1e-6)
        found = conjugate_gradients(Elimination(system, alpha), system.right_sides, tolerance=1e-6)
        assert (told + 1) / (found.steps + 1) < 3, (alpha, told, found.steps)
        assert (found.steps + 1) / (told + 1) < 3, (alpha, told, found.steps)
    assert expected_steps((5, 5), kernel, 1.0, n) == 0


def test_variances_of_few_draws_are_steadied() -> None:
    """Half of the error goes where rows are alike; rows that are not keep their differences."""
    rng, draws = np.random.default_rng(0), 16
    alike, unlike = np.ones((2000, 1)), np.exp(2 * rng.standard_normal((2000, 1)))
    for true in (alike, unlike):
        rough = true * rng.chisquare(draws, (2000, 1)) / draws
        steady = steady_variance(rough, draws)
        errors = [np.log(v / true).std() for v in (rough, steady)]
        assert errors[1] < (0.15 if true is alike else 1.0) * errors[0]
        assert abs(np.log(steady / true).mean()) < 0.03


def test_rows_outside_the_box_are_refused_by_name() -> None:
    grid = GridFeatures.over(np.zeros(2), np.ones(2), modes=(3, 3))
    with pytest.raises(DataError, match=r"1 row\(s\) lie outside.*5\.0 for input 1"):
        grid.angles(np.array([[0.5, 0.5], [0.5, 5.0]]))
    around = GridFeatures.over(np.zeros(1), np.ones(1), modes=(3,), periods={0: 1.0})
    np.testing.assert_allclose(around.angles(np.array([[0.2]])), around.angles(np.array([[7.2]])))


def test_too_many_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 3 inputs"):
        GridFeatures.over(np.zeros(4), np.ones(4), modes=(2, 2, 2, 2))


def test_a_grid_is_rebuilt_from_its_spec() -> None:
    grid = GridFeatures.over(np.zeros(2), np.ones(2), modes=(3, 4), periods={1: 360.0})
    again = GridFeatures.from_spec(*grid.spec())
    assert again.fingerprint == grid.fingerprint


@pytest.mark.parametrize(
    ("kernel", "tail"),
    [
        (rs.Gaussian(1.0), lambda c: special.erfc(c / np.sqrt(2))),
        (rs.Matern(nu=0.5, length_scale=1.0), lambda c: 1 - 2 / np.pi * np.arctan(c)),
    ],
)
def test_the_variance_beyond_a_frequency_is_the_analytic_one(kernel: Any, tail: Any) -> None:
    cutoffs = np.array([0.1, 0.5, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(tail_beyond(kernel, cutoffs), tail(cutoffs), rtol=2e-3)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    scales=st.lists(st.floats(0.05, 50), min_size=1, max_size=3),
    columns=st.integers(200, 50_000),
    nu=st.sampled_from([0.5, 1.5, 2.5]),
)
def test_modes_are_shared_by_extents_over_length_scales(
    scales: list[float], columns: int, nu: float
) -> None:
    """One cut-off for all axes, as many columns as allowed, or fewer where the rest is nothing."""
    d, period = len(scales), np.arange(1.0, len(scales) + 1)
    kernel = rs.Matern(nu=nu, length_scale=tuple(scales))
    modes = np.array(share_modes(kernel, period, columns, tail=1e-3))
    size = np.prod(2.0 * modes + 1)
    assert size <= columns or (modes <= 8).any()
    cutoffs = 2 * np.pi * np.array(scales) / period * modes
    free = modes > 8  # not held up by the fewest modes
    if free.any():
        rounding = 1 + 1.02 / modes[free].min()
        assert cutoffs[free].max() < 1.02 * rounding * cutoffs[free].min()
        spent = size * (1.02 + 1 / modes).prod() ** 1.5 > columns
        resolved = tail_beyond(rs.Matern(nu=nu, length_scale=1.0), [cutoffs[free].min()])[0]
        assert spent or resolved < 1.1e-3
    finer = share_modes(kernel, period, columns, tail=1e-3, spacing=period / 20)
    assert max(finer) <= 10
    assert len(finer) == d
