"""Targets that no row around tells do not decide which map is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rff_stream as rs
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_search import MapSearch
from rff_stream.length_scales.outliers import FAR, FEWEST, MOST, WEIGHED_AS, Outliers
from rff_stream.length_scales.window_evidence import RowWindow

UNIT = np.ones(2)


def waves(rng: Any, n: int) -> RowWindow:
    x = rng.uniform(-2, 2, (n, 2))
    y = np.sin(2 * x[:, :1]) + x[:, 1:] ** 2 / 2 + 0.2 * rng.normal(size=(n, 1))
    return RowWindow(x, y, np.full(n, 2.0))


def with_outliers(rows: RowWindow, rng: Any, share: float, size: float) -> tuple[RowWindow, Any]:
    far = rng.random(len(rows.x)) < share
    signs = rng.choice([-1, 1], len(far))
    return RowWindow(rows.x, rows.y + (size * signs * far)[:, None], rows.w), far


def test_few_far_rows_weigh_as_at_three_deviations(rng: Any) -> None:
    rows, far = with_outliers(waves(rng, 500), rng, 0.02, 20.0)
    found = Outliers.of(rows, UNIT)
    assert found is not None and (found.bound > 0.5).all() and (found.bound < 3).all()
    weighed = found.weighed(rows)
    np.testing.assert_array_equal(weighed.w[~far], 2.0)
    expected = 2 * (WEIGHED_AS / FAR * found.bound / abs(found.apart[far, 0])) ** 2
    np.testing.assert_allclose(weighed.w[far], expected)
    np.testing.assert_array_equal(weighed.y, rows.y)


def test_there_are_none_where_noise_is_normal_far_rows_are_many_or_rows_are_few(rng: Any) -> None:
    assert Outliers.of(waves(rng, 4000), UNIT) is None
    assert Outliers.of(with_outliers(waves(rng, 500), rng, 2 * MOST, 20.0)[0], UNIT) is None
    assert Outliers.of(with_outliers(waves(rng, FEWEST - 1), rng, 0.1, 20.0)[0], UNIT) is None


def test_a_target_without_any_has_no_bound(rng: Any) -> None:
    rows, far = with_outliers(waves(rng, 300), rng, 0.03, 20.0)
    both = RowWindow(rows.x, np.hstack([rows.y, rows.x[:, :1]]), rows.w)
    found = Outliers.of(both, UNIT)
    assert found is not None
    assert np.isfinite(found.bound[0]) and np.isinf(found.bound[1])
    assert (found.weighed(both).w < 2).sum() == far.sum()


@pytest.mark.parametrize(
    ("share", "expected"), [(0.6, False), (0.9, True), (1.1, True), (2, False)]
)
def test_they_are_as_far_from_a_fit_as_from_the_rows_around(
    share: float, expected: bool, rng: Any
) -> None:
    """A fit that tells them has learnt what they are, and a poor one says nothing."""
    rows, _ = with_outliers(waves(rng, 500), rng, 0.02, 20.0)
    found = Outliers.of(rows, UNIT)
    assert found is not None
    assert found.are_as_far_from(np.sqrt(share) * found.apart) is expected
    assert not found.are_as_far_from(np.full_like(found.apart, np.nan))


def searched(x: Any, y: Any) -> MapSearch:
    n = len(x)
    rows, rng = RowWindow(x, y[:, None], np.ones(n)), np.random.default_rng(0)
    kernels = [rs.Gaussian(), rs.Matern(nu=1.5)]
    search = MapSearch(rows, [rows], True, kernels, CellShape(n, n), rng, metric=False)
    search.run()
    return search


def test_what_is_steep_is_learnt_and_not_bounded(rng: Any) -> None:
    """Far from the rows around are those of a peak, which a fit without them tells."""
    x = rng.uniform(-1, 1, (600, 2))
    peak = 30 * np.exp(-40 * (x**2).sum(axis=1))
    y = peak + 0.1 * rng.normal(size=600)
    assert Outliers.of(RowWindow(x, y[:, None], np.ones(600)), UNIT) is not None
    assert searched(x, y).bound is None
    wild = y - peak + np.where(rng.random(600) < 0.02, 20.0, 0.0) * rng.normal(size=600)
    found = searched(x, wild)
    assert found.bound is not None and found.best.error <= 1.1


@pytest.mark.filterwarnings("ignore:y. 1 % of the sampled rows")  # they are meant
def test_a_fit_does_not_go_through_outliers() -> None:
    """Of these four fits one had no noise, and an error of f of 1.4 (its deviation is .9)."""
    errors, noises = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows, _ = with_outliers(waves(rng, 400), rng, 0.015, 16.0)
        new = waves(rng, 500)
        f = np.sin(2 * new.x[:, 0]) + new.x[:, 1] ** 2 / 2
        model = rs.GaussianProcessRegressor(random_state=0, progress=False)
        model.fit(rows.x, rows.y[:, 0])
        errors.append(np.sqrt(np.mean((model.predict(new.x) - f) ** 2)))
        noises.append(model.noise_variance_)
    assert min(noises) > 1 and max(errors) < 0.7, (errors, noises)
