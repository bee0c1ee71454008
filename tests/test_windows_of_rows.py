"""Length-scales from compact windows of rows, against dense formulas and known scales."""

from __future__ import annotations

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.errors import NumericalWarning
from rff_stream.execution import Reading
from rff_stream.families.cells import warn_of_spacing
from rff_stream.families.maps import neighbouring_rows
from rff_stream.length_scales.cell_windows import (
    CellSize,
    RowWindow,
    _Targets,
    compact_windows,
    fit_windows,
    gap_factor,
    left_out_error,
    scattered_windows,
    search_windows,
)
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
    compact = compact_windows(x, y, w, scale=np.ones(2), size=30, count=2, rng=rng)
    return compact + scattered_windows(x, y, w, size=20, count=2, rng=rng)


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
    target = _Targets(windows, [np.ones(2)])
    point, first = np.array([0.2, -0.3, -2.0]), np.array([1.0, 1.5])

    def value(at):
        found = target.objective(at, kernel, first)
        return found[0] if isinstance(found, tuple) else found

    scales = tuple(np.exp(point[:2]) * first)
    dense = dense_log_evidence(windows, kernel.with_length_scale(scales), np.exp(-2.0))
    unit = np.sqrt(np.mean([each.y.var() for each in windows]))
    assert -value(point) * target.freedom == pytest.approx(
        dense + target.freedom * np.log(unit), abs=1e-7
    )
    found = target.objective(point, kernel, first)
    if isinstance(found, tuple):
        numeric = [(value(point + e) - value(point - e)) / 2e-5 for e in 1e-5 * np.eye(3)]
        assert found[1] == pytest.approx(numeric, abs=1e-8)
        shared = target.objective(np.array([0.2, -2.0]), kernel, first)[1]
        both = target.objective(np.array([0.2, 0.2, -2.0]), kernel, first)[1]
        assert shared == pytest.approx([both[0] + both[1], both[2]])


def test_targets_share_the_kernel_and_keep_their_units(rng):
    windows = some_windows(rng, targets=2)
    joint = _Targets(windows, np.ones(2)).objective(np.zeros(3), rs.Gaussian(), np.ones(2))[0]
    single = [
        _Targets([RowWindow(e.x, e.y[:, t : t + 1], e.w) for e in windows], np.ones(2)).objective(
            np.zeros(3), rs.Gaussian(), np.ones(2)
        )[0]
        for t in range(2)
    ]
    assert joint == pytest.approx(sum(single))


def test_a_window_holds_the_nearest_rows(rng):
    x = rng.uniform(size=(400, 2)) * [1, 1000]
    y, w = x[:, :1], np.ones(400)
    for each in compact_windows(x, y, w, scale=np.array([1, 1000]), size=25, count=3, rng=rng):
        assert each.x.shape == (25, 2)
        assert (np.ptp(each.x, axis=0) / [1, 1000] < 0.6).all()
    sets = scattered_windows(x, y, w, size=150, count=5, rng=rng)
    assert [len(each.x) for each in sets] == [150, 150, 100]


def test_windows_find_short_scales_that_scattered_rows_cannot_see(rng):
    """A function of scale .02 along the first input and 1 along the second, 40,000 rows."""
    x = rng.uniform(size=(40_000, 2))
    y = (np.sin(x[:, :1] / 0.02) + x[:, 1:] ** 2 + 0.05 * rng.normal(size=(40_000, 1))) * 7
    w, scale = np.ones(len(x)), x.std(axis=0)
    compact = compact_windows(x, y, w, scale=scale, size=80, count=6, rng=rng)
    found = fit_windows(compact, [rs.Matern(nu=2.5)], scale=scale)
    first, second = found.kernel.length_scale
    assert first < 0.1 < 0.5 < second
    assert np.isfinite(found.log_evidence)
    assert 1e-5 < found.alpha < 0.05


def test_the_smoothness_that_made_the_data_wins(rng):
    x = rng.uniform(size=(160, 1)) * 6
    for nu in (0.5, 2.5):
        K = rs.Matern(1.0, nu=nu)(x, x) + 1e-6 * np.eye(160)
        y = np.linalg.cholesky(K) @ rng.normal(size=(160, 2))
        windows = [RowWindow(x, y, np.ones(160))]
        kernels = [rs.Matern(nu=0.5), rs.Matern(nu=2.5)]
        found = fit_windows(windows, kernels, scale=np.ones(1), ard=False)
        assert found.kernel.spec()["nu"] == nu
        again = fit_windows(windows, [found.kernel], scale=np.ones(1), start=np.ones(1))
        assert again.log_evidence == pytest.approx(found.log_evidence, abs=0.1)


def test_left_out_errors_are_those_of_fits_without_the_row(rng):
    x, w = rng.normal(size=(30, 2)), rng.uniform(0.5, 2, 30)
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    kernel, order = rs.Matern((1.0, 2.0), nu=1.5), rng.permutation(64)
    found = left_out_error(kernel, [RowWindow(x, y, w)], 12, order)
    U = x[order[order < 30][:12]]
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
    errors = 0.0
    for i in rows:
        kept = np.delete(rows, i)
        weighed, mean, _ = solved(kept, alpha)
        errors += np.sqrt(w[i]) * abs(y[i, 0] - mean - K[i, kept] @ weighed)
    deviations = (np.sqrt(w) * abs(y[:, 0] - np.average(y[:, 0], weights=w))).sum()
    assert found == pytest.approx(errors / deviations, rel=1e-3)

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


def test_the_inputs_that_matter_are_looked_for_first():
    """Two of 16 inputs in 300 rows: one length-scale for all sees noise, and stayed there."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (300, 16))
    y = np.sin(4 * x[:, 3:4]) * x[:, 11:12] + 0.05 * rng.normal(size=(300, 1))
    rows = RowWindow(x, y, np.ones(300))
    found = search_windows([rows], rows, [rs.Gaussian()], ard=True, rng=rng)
    scales = np.array(found.kernel.length_scale)
    assert scales[[3, 11]].max() < 5 < np.delete(scales, [3, 11]).min()


def test_few_landmarks_ask_for_a_longer_length_scale(rng):
    """Rough rows, 150 a cell: between 6 landmarks only a longer scale says anything."""
    x = rng.uniform(size=(800, 1)) * 8
    K = rs.Matern(1.0, nu=0.5)(x, x) + 1e-8 * np.eye(800)
    y = np.linalg.cholesky(K) @ rng.normal(size=(800, 1))
    rows = RowWindow(x, y, np.ones(800))
    blocks = compact_windows(x, y, rows.w, scale=np.ones(1), size=150, count=3, rng=rng)
    plain, many, few = (
        search_windows(
            blocks, rows, [rs.Gaussian()], ard=False, rng=np.random.default_rng(1), cell=cell
        ).kernel.length_scale[0]
        for cell in (None, CellSize(150, 150, True), CellSize(150, 6, True))
    )
    assert few > plain == many


def test_rows_further_apart_than_the_structure_are_told(rng):
    """A wave 1/20 of the distance between rows: the search cannot see it, and says so."""
    x = np.arange(1500.0)[:, None] + rng.uniform(-0.3, 0.3, (1500, 1))
    for turns, seen in ((125.0, False), (0.3, True)):
        rows = RowWindow(x, np.sin(turns * x), np.ones(1500))
        blocks = compact_windows(x, rows.y, rows.w, scale=np.ones(1), size=100, count=3, rng=rng)
        cell = CellSize(100, 50, in_rows=True)
        found = search_windows(blocks, rows, [rs.Gaussian()], ard=False, rng=rng, cell=cell)
        assert (found.left_out_error < 0.1) == seen
        if seen:
            warn_of_spacing(found, 1500)
        else:
            with pytest.warns(NumericalWarning, match=r"1500 rows .*Structure finer than"):
                warn_of_spacing(found, 1500)


def test_rows_that_want_a_rougher_kernel_than_the_only_one_are_told(rng):
    """At most what a full search finds; nothing where the wave is smooth, or kernels compete."""
    x = np.sort(rng.uniform(0, 20, (900, 1)), axis=0)
    K = rs.Matern(1.0, nu=0.5)(x, x) + 1e-6 * np.eye(900)
    told = {}
    for name, y in (
        ("rough", np.linalg.cholesky(K) @ rng.normal(size=(900, 1))),
        ("smooth", np.sin(x)),
    ):
        rows = RowWindow(x, y, np.ones(900))
        blocks = compact_windows(x, y, rows.w, scale=np.ones(1), size=100, count=3, rng=rng)
        for kernels in ([rs.Gaussian()], [rs.Gaussian(), rs.Matern(nu=2.5)]):
            found = search_windows(blocks, rows, kernels, ard=False, rng=np.random.default_rng(1))
            told[name, len(kernels)] = found.rougher
    assert told["rough", 1] > 0.1
    assert told["smooth", 1] == told["smooth", 2] == told["rough", 2] == 0


def test_a_kernel_without_a_known_slope_is_searched_without_it(rng):
    found = fit_windows(some_windows(rng), [rs.Laplacian()], scale=np.ones(2), ard=False)
    assert found.kernel.length_scale[0] == found.kernel.length_scale[1] > 0


def test_constant_targets_are_refused(rng):
    window = RowWindow(rng.normal(size=(9, 2)), np.ones((9, 1)), np.ones(9))
    with pytest.raises(ValueError, match="constant in all windows"):
        fit_windows([window], [rs.Gaussian()], scale=np.ones(2))


def test_weather_is_seen_beside_a_season(rng):
    """Rows of everywhere see the season alone; cells of 100 rows need the scale of the weather."""
    x = np.sort(rng.uniform(0, 20_000, (20_000, 1)), axis=0)
    weather = rs.FourierFeatures.sample(rs.Gaussian(3.0), 1, 256, rng=0, dtype="float64")
    y = 8 * np.sin(x / 1600) + weather(x) @ rng.normal(size=(256, 1)) / 12
    y += 0.3 * rng.normal(size=y.shape)
    rows = RowWindow(x, y, np.ones(len(x)))
    blocks = compact_windows(x, y, rows.w, scale=np.ones(1), size=100, count=4, rng=rng)
    cell = CellSize(100, 40, True)
    found = search_windows(blocks, rows, [rs.Gaussian()], ard=True, rng=rng, cell=cell)
    assert 1.5 < found.kernel.length_scale[0] < 6


def test_slices_of_a_cube_in_one_table_tell_nothing_across_them(rng):
    """40 times of 1,000 places: rows that are stored side by side are of one time or two."""
    time, place = np.meshgrid(np.arange(40.0), np.arange(1000.0), indexing="ij")
    X = np.stack([time.ravel(), place.ravel()], axis=1)
    y = np.sin(time.ravel() / 3) + np.sin(place.ravel() / 30)
    reading = Reading(open_source(X, y), progress=False)
    pilot = reading.pilot(0)
    rows = RowWindow(pilot.x, pilot.y, pilot.w)
    blocks, of_pilot = neighbouring_rows(reading, rows, rng, 0)
    assert of_pilot
    assert np.median([len(np.unique(block.x[:, 0])) for block in blocks]) >= 4


def test_a_long_cube_in_one_table_gives_windows_at_its_own_density(rng):
    """400 times of 500 places: boxes of ten times, where they were of four."""
    time, place = np.meshgrid(np.arange(400.0), np.arange(500.0), indexing="ij")
    X = np.stack([time.ravel(), place.ravel()], axis=1)
    reading = Reading(open_source(X, np.sin(X[:, 0])), progress=False)
    pilot = reading.pilot(0)
    rows = RowWindow(pilot.x, pilot.y, pilot.w)
    blocks, of_pilot = neighbouring_rows(reading, rows, rng, 0)
    assert not of_pilot
    for block in blocks:
        assert len(np.unique(block.x[:, 0])) >= 9
        assert (np.diff(np.unique(block.x[:, 1])) == 1).all()
