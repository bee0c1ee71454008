"""Whether what a target depends on has changed: level, power, laws of a sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import stats

import reference
import rff_stream as rs
from rff_stream.model.gradients import dependence_scores, metric_statistic
from rff_stream.sources import Selection

D, DAY = 4, 400
QUIET: dict[str, Any] = {"progress": False, "random_state": 0, "dtype": "float64"}


def day(rng, n, turn=0.0, new=0.0):
    """sin(2u), u a combination of two inputs; ``turn`` in radians towards a third one."""
    X = rng.standard_normal((n, D))
    u = np.cos(turn) * (X[:, 0] - X[:, 1]) / np.sqrt(2) + np.sin(turn) * X[:, 2]
    return X, np.sin(2 * u) + new * X[:, 3] + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def model():
    X, y = day(np.random.default_rng(0), 1500)
    return rs.KernelRidge(length_scale=1.0, n_components=256, **QUIET).fit(X, y)


def days(rng, count, **last):
    """Rows of some days, the last of which may have changed, and their labels."""
    parts = [day(rng, DAY, **(last if i == count - 1 else {})) for i in range(count)]
    label = np.repeat(np.arange(count), DAY)
    return *(np.concatenate(each) for each in zip(*parts, strict=True)), label


def p_values(model, seed, **last):
    X, y, label = days(np.random.default_rng(seed), 4, **last)
    found = rs.inspect.dependence_drift(model, X, y, by=label, n_directions=1)
    return [each.p_value for each in found.values()]


def test_it_is_the_test_of_two_means(model, rng):
    X, y, label = days(rng, 2)
    found = rs.inspect.dependence_drift(model, X, y, by=label, reference=0, n_directions=1)[1]
    step = metric_statistic(model, 1)
    slopes = reference.slopes(model._require_fit().answer.mean(), X)[:, :, 0] * step.unit
    along = np.column_stack([np.ones(len(X)), slopes @ np.linalg.pinv(step.directions).T])
    z = (X - step.origin) / step.unit
    scores = (y - model.predict(X))[:, None] * np.einsum("ij,ik->ijk", z, along).reshape(len(X), -1)
    a, b = scores[label == 0], scores[label == 1]
    V = np.cov(a.T, bias=True) / DAY + np.cov(b.T, bias=True) / DAY
    apart = a.mean(axis=0) - b.mean(axis=0)
    assert found.statistic == pytest.approx(apart @ np.linalg.solve(V, apart), rel=1e-4)
    # 8 numbers and 800 rows: the p-value is near to that of χ²
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 2 * D), abs=0.02)
    assert (found.n_a, found.n_b) == (DAY, DAY)


def test_it_finds_a_turn_and_a_new_input(model):
    for last, name in (({"turn": 0.3}, "x2"), ({"new": 0.15}, "x3")):
        X, y, label = days(np.random.default_rng(1), 4, **last)
        found = rs.inspect.dependence_drift(model, X, y, by=label, reference=0, n_directions=1)
        assert found[3].p_value < 0.001 and found[1].p_value > 0.01
        assert min(found[3].inputs, key=found[3].inputs.__getitem__) == name


@pytest.mark.long
def test_level_and_power_over_200_days(model):
    """p-values of days that did not change are uniform; changes are found."""
    alike = np.array([p_values(model, seed) for seed in range(200)])
    for level in (0.01, 0.05):
        found = int((alike[:, -1] < level).sum())
        # binomial, 99.9 %: too many, and too few
        assert stats.binom.ppf(0.0005, 200, level) <= found <= stats.binom.ppf(0.9995, 200, level)
    assert stats.kstest(alike[:, -1], "uniform").pvalue > 0.001
    turned = np.array([p_values(model, seed, turn=0.2)[-1] for seed in range(50)])
    assert (turned < 0.01).mean() > 0.9


def test_scores_add_subtract_and_scale(model, rng):
    X, y, label = days(rng, 2)

    def scores(X, y, w=None, by=None):
        return dependence_scores(model, Selection(X, y, w, by=by), 1)

    whole, parts = scores(X, y), scores(X, y, by=label)
    bound = 8 * np.finfo(float).eps * len(X) * abs(whole.squares).max()
    np.testing.assert_allclose((parts[0] + parts[1]).squares, whole.squares, atol=bound)
    np.testing.assert_allclose((whole - parts[1]).total, parts[0].total, atol=bound)
    assert (whole - parts[1]).n == DAY
    twice = scores(np.r_[X, X], np.r_[y, y])
    np.testing.assert_allclose(scores(X, y, np.full(len(X), 2.0)).squares, twice.squares)
    change = parts[0].change(parts[1])
    scaled = parts[0].scale(3.0).change(parts[1].scale(0.5))
    assert scaled.p_value == pytest.approx(change.p_value)
    found = []
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler):
            lazy = da.from_array(X, chunks=(100, D)), da.from_array(y, chunks=100)
            found.append(scores(*lazy).squares)
    np.testing.assert_array_equal(*found)


def copied(X, y, label, rng, times):
    """Each row so many times, in any order."""
    order = rng.permutation(times * len(X))
    return (np.tile(each, (times, *[1] * (each.ndim - 1)))[order] for each in (X, y, label))


@pytest.mark.parametrize("times", [2, 5])
def test_copies_are_one_row(model, rng, times):
    X, y, label = days(rng, 2)
    change = partial(rs.inspect.dependence_drift, model, reference=0, n_directions=1)
    once = change(X, y, by=label)[1]
    some, y_some, label_some = copied(X, y, label, rng, times)
    found = change(some, y_some, by=label_some)[1]
    assert (found.n_a, found.n_b) == (DAY, DAY)
    assert found.statistic == pytest.approx(once.statistic)
    assert found.p_value == pytest.approx(once.p_value)
    heavy = change(X, y, np.full(len(X), float(times)), by=label)[1]
    assert heavy.p_value == pytest.approx(once.p_value)


@pytest.mark.slow
def test_copies_are_counted_by_the_sample_of_large_days(model, rng):
    """20,000 rows three times in each of two days, of which 2,000 are kept: the ratio of
    two statistics is known to a third, whose log is 7 standard errors of 160 pairs from 0."""
    X, y = day(rng, 40_000)
    label = np.repeat([0, 1], 20_000)
    change = partial(rs.inspect.dependence_drift, model, reference=0, n_directions=1)
    once = change(X, y, by=label)[1]
    some, y_some, label_some = copied(X, y, label, rng, 3)
    found = change(some, y_some, by=label_some)[1]
    assert found.statistic == pytest.approx(once.statistic, rel=0.35)
    assert found.n_a == pytest.approx(20_000, rel=0.35)


@pytest.mark.slow
def test_level_with_copies(model):
    """Each row three times: with copies as rows of their own 47 of 60 p-values were below .05."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y, label = copied(*days(rng, 2), rng, 3)
        change = rs.inspect.dependence_drift(model, X, y, by=label, reference=0, n_directions=1)
        found.append(change[1].p_value)
    assert (np.array(found) < 0.05).sum() <= stats.binom.ppf(0.9995, 60, 0.05)
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_what_cannot_be_compared_is_refused(model, rng):
    X, y, label = days(rng, 2)
    drift = rs.inspect.dependence_drift
    with pytest.raises(ValueError, match="by gives 1 group"):
        drift(model, X, y, by=np.zeros(len(X)))
    with pytest.raises(ValueError, match="reference=7 but the groups are 0, 1"):
        drift(model, X, y, by=label, reference=7)
    with pytest.raises(ValueError, match="A sample has 10 rows, and 8 numbers are compared"):
        drift(model, X[:20], y[:20], by=label[390:410], n_directions=1)
    one = dependence_scores(model, Selection(X, y), 1)
    with pytest.raises(rs.errors.ModelError, match="unless they are about one fit"):
        one.change(dependence_scores(model, Selection(X, y), 2))
    with pytest.raises(ValueError, match="target='z' but the targets are y"):
        one.change(one, "z")
