"""Length-scales from compact windows of rows, against dense formulas and known scales."""

from __future__ import annotations

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.cells.family import warn_of_spacing
from rff_stream.cells.gap_factor import gap_factor
from rff_stream.errors import NumericalWarning
from rff_stream.execution import Reading
from rff_stream.families.windows_of_pilot import neighbouring_rows
from rff_stream.kernels import RadialKernel
from rff_stream.length_scales.budget import SearchBudget, seconds_of_look
from rff_stream.length_scales.left_out import CellShape, left_out_errors, merge_inputs
from rff_stream.length_scales.linear_fit import PENALTIES
from rff_stream.length_scales.map_choice import SearchRecord
from rff_stream.length_scales.map_search import MapSearch, search_map
from rff_stream.length_scales.window_evidence import (
    MetricFit,
    RowWindow,
    WindowEvidence,
    climb_from,
    fit_windows,
    left_out_residuals,
)
from rff_stream.length_scales.windows import compact_windows, scattered_windows
from rff_stream.sources import open_source

KERNELS = [
    rs.Gaussian(),
    rs.Matern(nu=0.5),
    rs.Matern(nu=1.5),
    rs.Matern(nu=2.5),
    rs.RationalQuadratic(),
    rs.Laplacian(),
]


def some_windows(rng, targets=1):
    x = rng.normal(size=(120, 2))
    y = np.sin(x[:, :1]) * np.arange(1, targets + 1) + 0.1 * rng.normal(size=(120, targets))
    w = rng.uniform(0.5, 2, 120)
    rows = RowWindow(x, y, w)
    compact = compact_windows(rows, np.eye(2), size=30, centres=rng.permutation(120)[:2])
    return compact + scattered_windows(rows, size=20, count=2, rng=rng)


def dense_log_evidence(windows, kernel, alpha):
    """log p with flat means and one σ² at its maximum, by numpy.linalg; one target."""
    log_det, misfit, freedom = 0.0, 0.0, 0
    for each in windows:
        K, one = kernel(each.x, each.x) + alpha * np.diag(1 / each.w), np.ones(len(each.x))
        inverse = np.linalg.inv(K)
        total = one @ inverse @ one
        residual = each.y[:, 0] - (one @ inverse @ each.y[:, 0]) / total
        misfit += residual @ inverse @ residual
        log_det += np.linalg.slogdet(K)[1] + np.log(total)
        freedom += len(each.x) - 1
    return -0.5 * (freedom * (np.log(2 * np.pi * misfit / freedom) + 1) + log_det)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{type(k).__name__}{k.spec().get('nu')}")
def test_log_p_and_its_gradient_are_those_of_dense_formulas(rng, kernel):
    windows = some_windows(rng)
    matrix = np.array([[0.8, 0.3], [-0.2, 0.6]])
    if not isinstance(kernel, RadialKernel):
        matrix = np.diag(matrix.diagonal())
    evidence, alpha = WindowEvidence(windows, matrix), np.exp(-2.0)
    rows = evidence._rows

    def value(rows, alpha):
        return evidence._evaluate(kernel, rows, alpha)[0]

    dense = dense_log_evidence(
        [RowWindow(each.x @ matrix, each.y, each.w) for each in windows], kernel, alpha
    )
    unit = np.sqrt(np.mean([each.y.var() for each in windows]))
    found, slopes, to_alpha = evidence._evaluate(kernel, rows, alpha)
    assert -found * evidence.freedom == pytest.approx(
        dense + evidence.freedom * np.log(unit), abs=1e-7
    )
    step = 1e-5
    ends = [value(rows, alpha * np.exp(sign * step)) for sign in (1, -1)]
    assert to_alpha == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)
    moves = np.eye(4).reshape(4, 2, 2) if isinstance(kernel, RadialKernel) else [np.eye(2)]
    for move in moves:
        ends = [
            value([each @ (np.eye(2) + sign * step * move) for each in rows], alpha)
            for sign in (1, -1)
        ]
        told = sum(
            float(s.sum() if s.ndim == 1 else (r @ move * s).sum())
            for r, s in zip(rows, slopes, strict=True)
        )
        assert told == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def test_targets_share_the_kernel_and_keep_their_units(rng):
    windows = some_windows(rng, targets=2)
    joint = WindowEvidence(windows, np.eye(2)).at(rs.Gaussian(), 1.0)
    single = [
        WindowEvidence([RowWindow(e.x, e.y[:, t : t + 1], e.w) for e in windows], np.eye(2)).at(
            rs.Gaussian(), 1.0
        )
        for t in range(2)
    ]
    assert joint == pytest.approx(sum(single))


def test_a_window_holds_the_nearest_rows(rng):
    x = rng.uniform(size=(400, 2)) * [1, 1000]
    rows = RowWindow(x, x[:, :1], np.ones(400))
    for each in compact_windows(rows, np.diag([1, 1e-3]), size=25, centres=[3, 5, 7]):
        assert each.x.shape == (25, 2)
        assert (np.ptp(each.x, axis=0) / [1, 1000] < 0.6).all()
    sets = scattered_windows(rows, size=150, count=5, rng=rng)
    assert [len(each.x) for each in sets] == [150, 150, 100]


def test_windows_find_short_scales_that_scattered_rows_cannot_see(rng):
    """A function of scale .02 along the first input and 1 along the second, 40,000 rows."""
    x = rng.uniform(size=(40_000, 2))
    y = (np.sin(x[:, :1] / 0.02) + x[:, 1:] ** 2 + 0.05 * rng.normal(size=(40_000, 1))) * 7
    rows, scale = RowWindow(x, y, np.ones(len(x))), x.std(axis=0)
    compact = compact_windows(
        rows, np.diag(1 / scale), size=80, centres=rng.permutation(40_000)[:6]
    )
    found = fit_windows(compact, rs.Matern(nu=2.5), scale, ard=True)
    first, second = found.own_kernel.length_scale
    assert first < 0.1 < 0.5 < second
    assert np.isfinite(found.log_evidence)
    assert 1e-5 < found.alpha < 0.05


def test_the_smoothness_that_made_the_data_wins(rng):
    x = rng.uniform(size=(160, 1)) * 6
    for nu in (0.5, 2.5):
        K = rs.Matern(1.0, nu=nu)(x, x) + 1e-6 * np.eye(160)
        y = np.linalg.cholesky(K) @ rng.normal(size=(160, 2))
        windows = [RowWindow(x, y, np.ones(160))]
        ends = {
            each: fit_windows(windows, rs.Matern(nu=each), np.ones(1), ard=False)
            for each in (0.5, 2.5)
        }
        assert max(ends, key=lambda each: ends[each].log_evidence) == nu
        again = climb_from(windows, rs.Matern(nu=nu), np.eye(1), False, 60)
        assert again.log_evidence == pytest.approx(ends[nu].log_evidence, abs=0.2)


def test_left_out_errors_are_those_of_fits_without_the_row(rng):
    x, w = rng.normal(size=(30, 2)), rng.uniform(0.5, 2, 30)
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    kernel, order = rs.Matern((1.0, 2.0), nu=1.5), np.random.default_rng(5).permutation(30)
    fit, window = MetricFit(rs.Matern(nu=1.5), np.diag([1.0, 0.5]), 0.1, 0.0), RowWindow(x, y, w)
    found = left_out_errors(fit, [window], CellShape(30, 12), seed=5)
    U = x[order[:12]]
    K = kernel(x, U) @ np.linalg.inv(kernel(U, U) + 1e-8 * np.eye(12)) @ kernel(U, x)

    def solved(kept, alpha):
        """K⁻¹ and the mean of rows that are kept, and −2 log p."""
        inverse = np.linalg.inv(K[np.ix_(kept, kept)] + alpha * np.diag(1 / w[kept]))
        total = inverse.sum()
        mean = (inverse @ y[kept]).sum() / total
        residual = (y[kept] - mean)[:, 0]
        misfit = residual @ inverse @ residual
        log_det = np.log(total) - np.linalg.slogdet(inverse)[1]
        return inverse @ residual, mean, (len(kept) - 1) * np.log(misfit) + log_det

    rows = np.arange(30)
    alpha = min(np.exp(np.linspace(-9, 3, 2000)), key=lambda each: solved(rows, each)[2])
    for i in rows:
        kept = np.delete(rows, i)
        weighed, mean, _ = solved(kept, alpha)
        assert found[i, 0] == pytest.approx(y[i, 0] - mean - K[i, kept] @ weighed, abs=2e-3)

    weighed, mean, _ = solved(rows, alpha)
    signal = (y[:, 0] - mean) @ weighed / 29  # σ_f²
    upper, ratios = x > np.median(x, axis=0), []
    for out in (*upper.T, *~upper.T):
        kept = np.flatnonzero(~out)
        weighed, mean, _ = solved(kept, alpha)
        inverse = np.linalg.inv(K[np.ix_(kept, kept)] + alpha * np.diag(1 / w[kept]))
        across = K[np.ix_(np.flatnonzero(out), kept)]
        apart = 1 - (across @ inverse).sum(axis=1)
        variance = 1 - ((across @ inverse) * across).sum(axis=1) + apart**2 / inverse.sum()
        error = y[out, 0] - mean - across @ weighed
        ratios.extend(abs(error) / np.sqrt(signal * (variance + alpha / w[out])))
    told = gap_factor(kernel, [RowWindow(x, y, w)], 12, order)
    assert told**2 == pytest.approx(np.quantile(ratios, 0.95) / 1.959964, rel=3e-3)  # α of a grid


def search(rows, kernels, shape, **choices):
    """A search in windows of these rows."""
    blocks = compact_windows(rows, np.diag(1 / rows.x.std(axis=0)), size=150, centres=[3, 50, 90])
    rng = np.random.default_rng(1)
    return search_map(MapSearch(rows, blocks, True, kernels, shape, rng, **choices))


def test_exact_errors_of_a_window_are_those_of_fits_without_the_row(rng):
    x, w = rng.normal(size=(20, 2)), rng.uniform(0.5, 2, 20)
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.normal(size=(20, 1))
    fit = MetricFit(rs.Matern(nu=1.5), np.array([[1.0, 0.2], [0.0, 0.5]]), 0.1, 0.0)
    found, u = left_out_residuals(RowWindow(x, y, w), fit), x @ fit.matrix
    for i in range(20):
        kept = np.delete(np.arange(20), i)
        K = fit.kernel(u[kept], u[kept]) + 0.1 * np.diag(1 / w[kept])
        inverse = np.linalg.inv(K)
        mean = (inverse @ y[kept]).sum() / inverse.sum()
        told = mean + fit.kernel(u[i : i + 1], u[kept]) @ inverse @ (y[kept] - mean)
        assert found[i, 0] == pytest.approx(float(y[i, 0] - told[0, 0]))


def test_the_inputs_that_matter_are_looked_for_first():
    """Two of 16 inputs in 300 rows: one length-scale for all sees noise, and stayed there."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (300, 16))
    y = np.sin(4 * x[:, 3:4]) * x[:, 11:12] + 0.05 * rng.normal(size=(300, 1))
    rows = RowWindow(x, y, np.ones(300))
    found = search(rows, [rs.Gaussian()], CellShape(300, 300), metric=False)
    scales = np.array(found.own_kernel.length_scale)
    assert scales[[3, 11]].max() < 5 < np.delete(scales, [3, 11]).min()


@pytest.mark.slow
@pytest.mark.parametrize("share", [3.0, 20.0], ids=["two first", "no pair alone"])
def test_inputs_that_act_in_products_alone_are_found_by_sizes(share):
    """Four of 30 inputs; of two or of all no mean of y tells. Before, errors were .7 to 1."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (1200, 30))
    y = np.sin(4 * x[:, 3]) * x[:, 11]
    y *= 1 + share * np.cos(2 * x[:, 20]) * np.sin(2 * x[:, 27])
    y = (y / y.std() + 0.05 * rng.standard_normal(1200))[:, None]
    rows = RowWindow(x, y, np.ones(1200))
    found = search(rows, [rs.Gaussian()], CellShape(200, 200), metric=False)
    scales = np.argsort(found.own_kernel.length_scale)
    assert sorted(scales[:4].tolist()) == [3, 11, 20, 27]
    assert min(each.error for each in found.trials) < 0.2


@pytest.mark.slow
def test_a_function_of_combinations_takes_a_metric_and_one_of_single_inputs_need_not(rng):
    """Two directions of six: the metric sees only them, and predicts far better."""
    x = rng.normal(size=(1200, 6))
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0][:, :2]
    u = x @ turn
    y = np.sin(2 * u[:, :1]) * u[:, 1:] + 0.05 * rng.normal(size=(1200, 1))
    rows = RowWindow(x, y, np.ones(1200))
    found = search(rows, [rs.Gaussian()], CellShape(1200, 1200))
    assert found.taken.startswith("gaussian, metric, ")  # directions that do nothing are dropped
    assert found.matrix.shape[1] < 6
    errors = {each.name: each.error for each in found.trials}
    assert errors["gaussian, metric"] < 0.5 * errors["gaussian"]
    M = found.matrix @ found.matrix.T
    seen = np.trace(turn.T @ M @ turn) / np.trace(M)
    assert seen > 0.98  # of the metric lies in the two directions
    record = SearchRecord.of(found.packed())
    assert record.taken == found.taken and "left-out rows" in str(record)
    assert record.names == tuple(each.name for each in found.trials)
    assert (record.errors > 0).all()


@pytest.mark.slow
def test_the_kernel_that_made_the_rows_is_taken(rng):
    x = rng.uniform(size=(500, 1)) * 12
    for nu in (0.5, 2.5):
        K = rs.Matern(1.0, nu=nu)(x, x) + 1e-4 * np.eye(500)
        rows = RowWindow(x, np.linalg.cholesky(K) @ rng.normal(size=(500, 1)), np.ones(500))
        found = search(rows, [rs.Matern(nu=0.5), rs.Matern(nu=2.5)], CellShape(500, 500))
        assert found.unit_kernel == rs.Matern(nu=nu)


@pytest.mark.slow
def test_steps_of_single_inputs_take_the_laplacian():
    """As hours and ages are: a kernel of distances sees them half as well."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(500, 4))
    y = np.sum(np.floor(4 * x) * [1.0, 2.0, 1.0, 0.5], axis=1, keepdims=True)
    rows = RowWindow(x, y, np.ones(500))
    kernels = [rs.Matern(nu=1.5), rs.Laplacian()]
    found = search(rows, kernels, CellShape(500, 500))
    errors = {each.name: each.error for each in found.trials}
    assert found.taken == "laplacian"
    assert errors["laplacian"] < 0.9 * errors["matern nu=1.5"]


def test_copies_of_rows_leave_together(rng):
    x, y = rng.normal(size=(50, 2)), rng.normal(size=(150, 1))
    w = rng.uniform(0.5, 2, 150)
    merged = merge_inputs(RowWindow(np.vstack([x, x, x]), y, w))
    np.testing.assert_array_equal(merged.x, x)
    own, share = y.reshape(3, 50), w.reshape(3, 50)
    np.testing.assert_allclose(merged.y[:, 0], (own * share).sum(axis=0) / share.sum(axis=0))
    np.testing.assert_allclose(merged.w, share.mean(axis=0))


def test_rows_further_apart_than_the_structure_are_told():
    warn_of_spacing(0.9, 1500)
    with pytest.warns(NumericalWarning, match=r"1500 rows .*Structure finer than"):
        warn_of_spacing(0.99, 1500)


def test_a_kernel_without_a_known_slope_is_searched_without_it(rng):
    found = fit_windows(some_windows(rng), rs.Laplacian(), np.ones(2), ard=False)
    assert found.own_kernel.length_scale[0] == found.own_kernel.length_scale[1] > 0


def test_a_target_that_is_equal_in_all_windows_has_no_say(rng):
    """Its variance is rounding: a class that no window has gave overflow in slopes."""
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    equal = np.full((60, 1), 0.1 + 0.2)
    assert equal.var() > 0
    alone, beside = (
        WindowEvidence([RowWindow(x, each, np.ones(60))], np.eye(2))
        for each in (y, np.hstack([y, equal]))
    )
    assert beside.at(rs.Gaussian(), 0.7) == alone.at(rs.Gaussian(), 0.7)


def test_constant_targets_are_refused(rng):
    window = RowWindow(rng.normal(size=(9, 2)), np.ones((9, 1)), np.ones(9))
    with pytest.raises(ValueError, match="constant in all windows"):
        fit_windows([window], rs.Gaussian(), np.ones(2), ard=True)


@pytest.mark.parametrize(("noise", "finer"), [(0.0, True), (1.0, False)])
def test_cells_of_half_the_rows_are_taken_where_columns_are_too_few(noise, finer):
    """Waves that 20 columns for 200 rows cannot follow, and rows that average noise out."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 40, (4000, 2))
    y = np.sin(x[:, :1]) * np.cos(x[:, 1:]) + noise * rng.normal(size=(4000, 1))
    rows, shape = RowWindow(x, y, np.ones(4000)), CellShape(200, 20, 3)
    choices = {"metric": False, "finer": CellShape(100, 16, 2)}
    found = search(rows, [rs.Gaussian()], shape, **choices)
    assert found.shape == (choices["finer"] if finer else shape)
    assert (", 2 trees of cells of 100 rows" in found.taken) == finer


@pytest.mark.slow
def test_weather_is_seen_beside_a_season(rng):
    """Rows of everywhere see the season alone; cells of 100 rows need the scale of the weather."""
    x = np.sort(rng.uniform(0, 10_000, (10_000, 1)), axis=0)
    weather = rs.FourierFeatures.sample(rs.Gaussian(3.0), 1, 256, rng=0, dtype="float64")
    y = 8 * np.sin(x / 1600) + weather(x) @ rng.normal(size=(256, 1)) / 12
    y += 0.3 * rng.normal(size=y.shape)
    rows = RowWindow(x, y, np.ones(len(x)))
    found = search(rows, [rs.Gaussian()], CellShape(100, 40))
    assert 1.5 < found.own_kernel.length_scale[0] < 6


def test_slices_of_a_cube_in_one_table_tell_nothing_across_them(rng):
    """40 times of 1,000 places: rows that are stored side by side are of one time or two."""
    time, place = np.meshgrid(np.arange(40.0), np.arange(1000.0), indexing="ij")
    X = np.stack([time.ravel(), place.ravel()], axis=1)
    y = np.sin(time.ravel() / 3) + np.sin(place.ravel() / 30)
    reading = Reading(open_source(X, y), progress=False)
    pilot = reading.pilot(0)
    rows = RowWindow(pilot.x, pilot.y, pilot.w)
    blocks, of_pilot = neighbouring_rows(reading, rows, len(X), rng, 0)
    assert of_pilot
    assert np.median([len(np.unique(block.x[:, 0])) for block in blocks]) >= 4


def test_a_long_cube_in_one_table_gives_windows_at_its_own_density(rng):
    """400 times of 500 places: boxes of ten times, where they were of four."""
    time, place = np.meshgrid(np.arange(400.0), np.arange(500.0), indexing="ij")
    X = np.stack([time.ravel(), place.ravel()], axis=1)
    reading = Reading(open_source(X, np.sin(X[:, 0])), progress=False)
    pilot = reading.pilot(0)
    rows = RowWindow(pilot.x, pilot.y, pilot.w)
    blocks, of_pilot = neighbouring_rows(reading, rows, len(X), rng, 0)
    assert not of_pilot
    for block in blocks:
        assert len(np.unique(block.x[:, 0])) >= 9
        assert (np.diff(np.unique(block.x[:, 1])) == 1).all()


@pytest.mark.slow
def test_a_search_ends_within_its_budget_and_the_same_map_is_found_again(rng):
    """Its seconds are counted by work: a limit that is not reached changes nothing."""
    x, w = rng.normal(size=(300, 3)), np.ones(300)
    y = np.sin(2 * x[:, :1]) * x[:, 1:2] + 0.1 * rng.normal(size=(300, 1))
    kernels, shape = [rs.Matern(nu=1.5), rs.Gaussian(), rs.Laplacian()], CellShape(300, 300)
    free = search(RowWindow(x, y, w), kernels, shape)
    spent = free.budget.spent
    for share in (2.0, 0.5, 0.0):
        budget = SearchBudget(share * spent)
        found = search(RowWindow(x, y, w), kernels, shape, budget=budget)
        first, look = search_cost_of_start(300), seconds_of_look(300, 3, radial=True)
        # what is always done, an iteration of the climb that is under way, and one judgement
        assert budget.spent <= max(budget.limit, first) + 21 * look
        assert bool(budget.left_out) == (share < 1)
        assert len(found.trials) + len(budget.left_out) >= 3
        if share == 2.0:
            assert found.taken == free.taken and (found.matrix == free.matrix).all()
            assert found.rivals == free.rivals
    assert share == 0 and len(found.trials) == 1
    assert set(free.rivals) == {"5 neighbours", "a line"}


def search_cost_of_start(n_rows):
    """Three starts of five looks, and two iterations from each with at most 20 looks."""
    return 3 * (5 + 2 * 2 * 20) * seconds_of_look(n_rows, 3, radial=True)


def test_length_scales_are_near_to_each_other_a_priori(rng):
    """log p − Σ (log ℓ − mean)²/2 is what is found, and is greatest there."""
    x = rng.normal(size=(60, 5))
    y = np.sin(2 * x[:, :1]) + 0.3 * rng.normal(size=(60, 1))
    windows = [RowWindow(x, y, np.ones(60))]
    found = WindowEvidence(windows, np.eye(5) / 3).climb_scales(rs.Gaussian(), 0.3, ard=True)

    def log_p(scales):
        evidence = WindowEvidence(windows, np.diag(np.exp(-scales)))
        return -evidence.freedom * evidence.at(found.kernel, 1.0, found.alpha)

    best = -np.log(found.matrix.diagonal())
    prior = np.square(best - best.mean()).sum() / 2
    assert found.log_evidence == pytest.approx(log_p(best) - prior)
    steps = np.vstack([np.eye(5), -np.eye(5)])
    for step in steps / 2:
        moved = best + step
        after = log_p(moved) - np.square(moved - moved.mean()).sum() / 2
        assert after < log_p(best) - prior + 0.1 * 6  # the gain of a last step, for six numbers


@pytest.mark.slow
def test_few_rows_of_many_inputs_are_looked_at_whole(rng):
    """A quarter of 150 rows judged alone, which is too few."""
    x = rng.normal(size=(150, 60))
    y = (x[:, :8].sum(axis=1) + 0.5 * rng.normal(size=150))[:, None]
    rows = RowWindow(x, y, np.ones(150))
    found = search(rows, [rs.Gaussian(), rs.Matern(nu=1.5)], CellShape(150, 150))
    assert found.n_rows == 150 and found.left_out_error < 0.5


@pytest.mark.slow
def test_no_direction_is_learnt_of_fewer_rows_than_inputs(rng):
    """20 rows of 46 inputs had left-out errors of .03, and errors of .6 at new rows."""
    x = rng.normal(size=(120, 130))
    y = x[:, 0] + 0.3 * rng.normal(size=120)
    for n, d, learns in (25, 30, False), (40, 30, True), (100, 101, False), (120, 101, True):
        model = rs.GaussianProcessRegressor("gaussian", progress=False, random_state=0)
        found = model.fit(x[:n, :d], y[:n]).choice_.trials
        assert any("metric" in each.name for each in found) == learns


def test_simple_rules_are_compared_at_rows_that_they_did_not_see(rng):
    x = rng.normal(size=(100, 2))
    y = x[:, :1] + 0.3 * rng.normal(size=(100, 1))
    found = search(RowWindow(x, y, np.ones(100)), [rs.Gaussian()], CellShape(100, 100))
    u, t = x / x.std(axis=0), (y - y.mean()) / y.std()
    lines, near = np.empty((len(PENALTIES), 100)), []
    for i in range(100):
        kept = np.arange(100) != i
        middle, mean = u[kept].mean(axis=0), t[kept].mean()
        moved = u[kept] - middle
        for place, each in enumerate(PENALTIES):  # over 100 rows: each row by 1/100
            gram = moved.T @ moved + 100 * each * np.eye(2)
            slopes = np.linalg.solve(gram, moved.T @ (t[kept, 0] - mean))
            lines[place, i] = t[i, 0] - mean - (u[i] - middle) @ slopes
        order = np.argsort(((u[kept] - u[i]) ** 2).sum(axis=1))[:5]
        near.append(t[i, 0] - t[kept][order].mean())
    line = min(lines, key=lambda each: (each**2).sum())
    expected = {"5 neighbours": near, "a line": line}
    for name, missed in expected.items():
        assert found.rivals[name] == pytest.approx(np.sqrt(np.mean(np.square(missed))))


@pytest.mark.parametrize("columns", [3, 60])
def test_a_search_without_a_cholesky_factor_ends(rng, columns):
    """Of more than 48 columns it was a TypeError: what stood for the slopes were arrays."""
    x = np.repeat(rng.normal(size=(40, columns)), 2, axis=0)
    x += 1e-12 * rng.normal(size=x.shape)
    y = x[:, :1].round(3)
    evidence = WindowEvidence([RowWindow(x, y, np.full(80, 1e30))], np.eye(columns))
    found = evidence.climb_scales(rs.Matern(nu=0.5), 1e-8, ard=False)
    assert np.isfinite(found.matrix).all() and found.alpha > 0


@pytest.mark.parametrize("failing", [(0.01, 0.02), (0.0, np.inf)])
def test_a_penalty_is_found_where_some_fits_fail(rng, monkeypatch, failing):
    """Errors that are not finite compare with none: the steps went to and fro without an end."""
    from rff_stream.length_scales import search as module

    def residuals(window, fit):
        found = left_out_residuals(window, fit)
        return np.full_like(found, np.nan) if failing[0] < fit.alpha < failing[1] else found

    monkeypatch.setattr(module, "left_out_residuals", residuals)
    x = rng.normal(size=(60, 2))
    rows = RowWindow(x, x[:, :1] + rng.normal(size=(60, 1)), np.ones(60))
    own = MapSearch(rows, [], True, [rs.Gaussian()], CellShape(60, 60), rng)
    alpha = own._alpha_of(rows, MetricFit(rs.Gaussian(), np.eye(2), 0.05, np.nan))
    assert np.isfinite(alpha) and 1e-9 < alpha < 1e3


def test_directions_of_a_fit_that_failed_are_none(rng, monkeypatch):
    from rff_stream.length_scales import shared_slopes

    monkeypatch.setattr(
        shared_slopes, "coefficients", lambda rows, fit: np.full_like(rows.y, np.nan)
    )
    x = rng.normal(size=(60, 3))
    rows = RowWindow(x, x[:, :1], np.ones(60))
    fit = MetricFit(rs.Gaussian(), np.eye(3), 0.05, np.nan)
    found = shared_slopes.shared_directions(rows, fit, 3, np.ones(3), rng)
    assert found.n_leading == 0 and np.isfinite(found.metric).all()


@pytest.mark.parametrize("seed", [38, 50, 105])
def test_an_input_without_a_slope_has_no_length_scale(seed):
    """A metric of one input alone was taken for length-scales, one of them infinite."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 12))
    X, labels = rng.normal(size=(n, 2)), rng.integers(0, 3, n)
    model = rs.KernelClassifier(progress=False, random_state=0).fit(X, labels)
    found = model.predict_proba(rng.normal(size=(20, 2)))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)


def test_simple_rules_are_compared_in_all_places(rng):
    """Where one place alone was looked at, near rows seemed better than a map that was not."""
    x = rng.normal(size=(30_000, 2))
    y = np.where(x[:, :1] > 0, 3.0, 0.1) * np.sin(40 * x[:, 1:]) + x[:, :1]
    rows = RowWindow(x, y, np.ones(len(x)))
    own = MapSearch(rows, [], True, [rs.Gaussian()], CellShape(100, 100), rng)
    scaled = RowWindow(x - x.mean(axis=0), (y - y.mean()) / y.std(), rows.w)
    own.regions = [scaled.part(x[:, 0] > 0.5), scaled.part(x[:, 0] < -0.5)]
    sizes = [len(each.x) for each in own.regions]
    unit = np.concatenate([each.x for each in own.regions]).std(axis=0)
    squares, kept = 0.0, 0
    for each in own.regions:
        count = -(-1000 * len(each.x) // sum(sizes))
        for i in range(count):
            apart = (((each.x - each.x[i]) / unit) ** 2).sum(axis=1)
            apart[i] = np.inf
            squares += (each.y[i, 0] - each.y[np.argsort(apart)[:5], 0].mean()) ** 2
        kept += count
    assert own.rivals()["5 neighbours"] == pytest.approx(np.sqrt(squares / kept))


@pytest.mark.slow
def test_what_a_search_may_take_is_a_parameter(rng):
    x = rng.normal(size=(300, 2))
    y = np.sin(x[:, 0])
    model = rs.KernelRidge(search_seconds=0, random_state=0, progress=False).fit(x, y)
    assert model.choice_.limit == 0 and "gaussian" in model.choice_.not_begun
    assert "not begun" in str(model.choice_) and "not begun" in repr(model)
    assert model.score(x, y) > 0.99
    model = rs.KernelRidge(random_state=0, progress=False).fit(x, y)
    assert model.choice_.limit == model.plan_.search_limit == 10 and not model.choice_.not_begun
    for wrong, kind in ((-1, ValueError), (np.inf, ValueError), ("long", TypeError)):
        with pytest.raises(kind, match="search_seconds"):
            rs.KernelClassifier(search_seconds=wrong).fit(x, y > 0)


@pytest.mark.slow
def test_equal_rows_are_one_of_their_weights_in_a_search(rng):
    """Copies said that there is no noise: rows twice and weights of 2 found other length-scales."""
    x = rng.uniform(-2, 2, (300, 2))
    y = np.sin(3 * x[:, 0]) + 0.3 * rng.normal(size=300)
    # the halves that find a metric's directions follow the order of rows
    choices = {"random_state": 0, "progress": False, "sample_rows": 0, "metric": None}
    twice = rs.KernelRidge(**choices).fit(np.repeat(x, 2, axis=0), np.repeat(y, 2))
    heavy = rs.KernelRidge(**choices).fit(x, y, sample_weight=np.full(300, 2.0))
    np.testing.assert_allclose(twice.length_scale_, heavy.length_scale_, rtol=1e-6)
    assert twice.choice_.taken == heavy.choice_.taken
    mine, other = (
        dict(zip(m.choice_.names, m.choice_.errors, strict=True)) for m in (twice, heavy)
    )
    assert len(mine) >= 5
    assert mine == pytest.approx(other, rel=1e-6)


def test_windows_have_rare_rows_where_no_target_varies(rng):
    """One row of a class in 4,000: no length-scale could be found, in words about windows."""
    rows = RowWindow(rng.normal(size=(4000, 3)), np.zeros((4000, 1)), np.ones(4000))
    rows.y[17] = 1.0
    search = MapSearch(rows, [], True, [rs.Gaussian(1.0)], CellShape(400, 256), rng)
    for _ in range(20):
        assert sum(each.y.any() for each in search._windows(np.eye(3), 2, 5)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("rare", [1, 2])
def test_a_class_of_one_row_is_a_class(rng, rare):
    X, y = rng.normal(size=(4000, 4)), np.zeros(4000, int)
    y[:rare] = 1
    odds = rs.KernelClassifier(random_state=0, progress=False).fit(X, y).predict_proba(X)[:, 1]
    assert 0 < odds.mean() < 0.002


def test_windows_of_equal_rows_do_not_say_where_length_scales_begin():
    """Rows of one level less their mean are rounding errors: the search began at 1e-17, ended at
    1e-31, and squared distances were infinite."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    level = RowWindow(np.full((40, 2), 0.1), rng.normal(size=(40, 1)), np.ones(40))
    own = RowWindow(x, y, np.ones(40))
    alone = WindowEvidence([own], np.eye(2)).spread
    assert WindowEvidence([level, own, level], np.eye(2)).spread == alone
    assert WindowEvidence([level], np.eye(2)).spread == 1


def test_levels_that_stand_hundreds_of_times_have_finite_sums():
    """16 levels of two inputs; windows of near rows hold one of them each."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (6000, 2)).astype(float)
    y = 3 + x[:, 0] + 2 * rng.normal(size=6000)
    y = np.rint(np.column_stack([y, 3 + x[:, 0] - 2 * x[:, 1] + rng.normal(size=6000)]))
    model = rs.GaussianProcessRegressor(random_state=0, search_seconds=2.0, progress=False)
    model.fit(x, y)
    errors = (model.predict(x) - np.column_stack([3 + x[:, 0], 3 + x[:, 0] - 2 * x[:, 1]])) ** 2
    # 16 means of 375 rows each: variances 4.1/375 and 1.1/375 at most, times 16 of 16 levels
    assert (errors.mean(axis=0) < 3 * np.array([4.1, 1.1]) / 375).all()


def two_targets(noise, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (400, 3))
    y = np.column_stack([np.sin(3 * x[:, 0]) + noise * rng.normal(size=400), np.cos(2 * x[:, 2])])
    return x, y


@pytest.mark.parametrize("seed", [1, 2])
def test_an_exact_target_does_not_hide_what_another_one_depends_on(seed):
    """Length-scales were those of the exact one: errors of .41 and .40 beside a noise of .3."""
    x, y = two_targets(0.3, seed)
    model = rs.GaussianProcessRegressor(random_state=0, progress=False).fit(x, y)
    new = np.random.default_rng(seed + 10).uniform(-1, 1, (1000, 3))
    truth = np.column_stack([np.sin(3 * new[:, 0]), np.cos(2 * new[:, 2])])
    errors = np.sqrt(((model.predict(new) - truth) ** 2).mean(axis=0))
    # alone about 15 degrees of freedom: .3 √(15/400) = .06
    assert errors[0] < 0.12
    assert errors[1] < 0.01


@pytest.mark.parametrize(
    ("noise", "constant", "added"),
    [(0.3, False, True), (0.0, False, False), (0.3, True, False)],
    ids=["one exact", "both exact", "one constant"],
)
def test_noise_is_added_to_exact_targets_beside_noisy_ones_alone(noise, constant, added):
    x, y = two_targets(noise)
    if constant:
        y[:, 1] = 2.0
    found = []
    for sign in (1, -1):
        rows = RowWindow(x, sign * y, np.ones(400))
        rng = np.random.default_rng(0)
        search = MapSearch(rows, [rows], True, [rs.Matern(nu=1.5)], CellShape(400, 64), rng)
        search_map(search)
        found.append(search.added_noise)
    if not added:
        assert found == [None, None]
        return
    np.testing.assert_array_equal(found[0], -found[1])  # turns with the targets
    assert found[0][0] == 0
    share = abs(found[0][1]) / search.rows.y[:, 1].std()
    assert 0.02 < share < 0.06  # a tenth of .3 over √(.3² + .7²)
