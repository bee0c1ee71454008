"""Maximum mean discrepancy: its value, its level, its power, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom, kstest

import reference
import rff_stream as rs
from rff_stream.answers.maximum_mean_discrepancy import TwoSample, drift, mmd
from rff_stream.errors import DataError, ModelError, NumericalWarning
from rff_stream.features import FourierFeatures
from rff_stream.kernels import Gaussian
from rff_stream.moments import Moments, total
from rff_stream.moments.accumulate import accumulate, plain_row

SEEDS = 200


def map_of(d: int, n_components: int = 64, seed: int = 0, length_scale: Any = None) -> Any:
    kernel = Gaussian(np.sqrt(2 * d) if length_scale is None else length_scale)
    return FourierFeatures.sample(kernel, d, n_components, rng=seed)


def p_values(features: Any, draw: Any, seeds: int = SEEDS, permutations: int = 499) -> Any:
    found = []
    for seed in range(seeds):
        a, b = draw(np.random.default_rng(seed))
        moments = (accumulate(features, x, order=1) for x in (a, b))
        found.append(mmd(*moments, n_permutations=permutations, random_state=seed).p_value)
    return np.array(found)


def most(level: float) -> float:
    """Share of seeds that are rejected at this level with probability 1e-3 if it is kept."""
    return float(binom.ppf(0.999, SEEDS, level)) / SEEDS


def independent(d: int, n: int, m: int, shift: float = 0.0) -> Any:
    def draw(rng: np.random.Generator) -> Any:
        b = rng.standard_normal((m, d))
        b[:, 0] += shift
        return rng.standard_normal((n, d)), b

    return draw


def series(rng: np.random.Generator, n: int, shift: float = 0.0) -> Any:
    """Two runs of one autoregression of 0.8, variance 1."""
    noise = rng.standard_normal((2 * n + 200, 2))
    x = lfilter([0.6], [1, -0.8], noise, axis=0)[200:]
    return x[:n], x[n:] + shift


# --------------------------------------------------------------------------------------- its value


def test_the_distance_is_that_of_kernel_means(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((600, 2)), rng.standard_normal((500, 2)) + 1.0
    features = map_of(2, 8192, length_scale=1.0)
    found = mmd(accumulate(features, a, order=1), accumulate(features, b, order=1))
    assert found.distance == pytest.approx(reference.mean_discrepancy(a, b, 1.0), rel=0.03)
    assert (found.n_a, found.n_b) == (600, 500)
    assert found.p_value == 1e-4


def test_the_same_rows_are_at_distance_0(rng: np.random.Generator) -> None:
    moments = accumulate(map_of(2), rng.standard_normal((640, 2)), order=1)
    found = mmd(moments, moments)
    assert found.distance == pytest.approx(0, abs=1e-7)
    assert found.p_value > 0.99


def test_nothing_changed_gives_the_expected_distance(rng: np.random.Generator) -> None:
    features = map_of(2)
    found = []
    for seed in range(30):
        a, b = independent(2, 640, 1280)(np.random.default_rng(seed))
        found.append(mmd(accumulate(features, a, order=1), accumulate(features, b, order=1)))
    actual = np.sqrt(np.mean([each.distance**2 for each in found]))
    assert actual == pytest.approx(np.mean([each.expected for each in found]), rel=0.15)


def test_one_seed_one_answer(rng: np.random.Generator) -> None:
    a, b = (accumulate(map_of(2), rng.standard_normal((640, 2)), order=1) for _ in range(2))
    assert mmd(a, b) == mmd(a, b)
    assert mmd(a, b) == rs.mmd(a, b)
    assert isinstance(mmd(a, b), TwoSample)


# --------------------------------------------------------------------------------- level and power


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (1000, 200)])
def test_p_values_are_uniform_when_nothing_changed(n: int, m: int) -> None:
    found = p_values(map_of(3), independent(3, n, m))
    assert kstest(found, "uniform").pvalue > 0.001
    assert np.mean(found <= 0.05) <= most(0.05)


@pytest.mark.slow
def test_the_level_is_kept_where_runs_are_short_beside_the_dependence() -> None:
    """12 rows a run: 14 % of p-values were below .05; 21 % of eight such days had one of .05/8."""
    found = p_values(map_of(2), lambda rng: series(rng, 200))
    assert np.mean(found <= 0.05) <= most(0.05)


@pytest.mark.slow
def test_the_level_is_kept_for_dependent_rows() -> None:
    found = p_values(map_of(2), lambda rng: series(rng, 2000))
    assert kstest(found, "uniform").pvalue > 0.001
    assert np.mean(found <= 0.05) <= most(0.05)
    assert np.mean(found <= 0.2) <= most(0.2)


def test_dependent_rows_taken_for_independent_would_lose_the_level() -> None:
    """What the sub-sums are for: the same series, its rows dealt at random to the parts."""

    def shuffled(rng: np.random.Generator) -> Any:
        a, b = series(rng, 2000)
        return rng.permutation(a), rng.permutation(b)

    assert np.mean(p_values(map_of(2), shuffled, 60) <= 0.05) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 10])
def test_half_a_standard_deviation_is_seen(d: int) -> None:
    found = p_values(map_of(d, 256), independent(d, 2000, 2000, 0.5), 40)
    assert np.mean(found <= 0.05) >= 0.9


def test_a_shift_of_dependent_rows_is_seen() -> None:
    found = p_values(map_of(2), lambda rng: series(rng, 2000, 0.5), 40)
    assert np.mean(found <= 0.05) >= 0.9


def test_a_change_of_spread_alone_is_seen() -> None:
    def spread(rng: np.random.Generator) -> Any:
        return rng.standard_normal((2000, 2)), 1.4 * rng.standard_normal((2000, 2))

    assert np.mean(p_values(map_of(2), spread, 20) <= 0.05) >= 0.9


# ----------------------------------------------------------------------- groups, stores, real data


def buckets(x: np.ndarray, count: int, features: Any) -> dict[Any, Moments]:
    found: dict[Any, Moments] = rs.collect(
        features, x, order=1, folds=count, progress=False, sample_rows=10
    )
    return found


def test_drift_names_the_bucket_that_differs() -> None:
    x = np.random.default_rng(0).standard_normal((8000, 2))
    x[6000:7000] += 0.7
    found = drift(buckets(x, 8, map_of(2)))
    assert list(found) == [*range(8)]
    assert max(found, key=lambda label: found[label].distance) == 6
    assert found[6].p_value < 0.001
    assert [each.n_a for each in found.values()] == [1000] * 8
    assert [each.n_b for each in found.values()] == [6000] * 6 + [7000, 6000]


def test_a_bad_bucket_does_not_hide_another() -> None:
    x = np.random.default_rng(0).standard_normal((3600, 1))
    x[600:900] += 0.4
    x[1800:2100] += 2
    found = drift(buckets(x, 12, map_of(1)), n_permutations=1999)
    assert [label for label, each in found.items() if each.p_value < 0.05 / 12] == [2, 6]
    assert [found[label].n_b for label in (0, 2, 6)] == [2700, 3000, 3000]


@pytest.mark.slow
def test_the_level_of_the_smallest_of_many_p_values() -> None:
    """Each of 12 buckets against 11. With their runs joined, .15 of seeds had one below .05/12."""
    features, seeds, found = map_of(1), 100, []
    for seed in range(seeds):
        x = np.random.default_rng(seed).standard_normal((1200, 1))
        each = drift(buckets(x, 12, features), n_permutations=999).values()
        found.append(min(one.p_value for one in each))
    assert np.mean(np.array(found) < 0.05 / 12) <= binom.ppf(0.999, seeds, 0.05) / seeds


def test_weights_in_another_unit_are_the_same_rows(rng: np.random.Generator) -> None:
    features, (x, y), w = map_of(2), rng.standard_normal((2, 600, 2)), rng.uniform(1, 3, 600)
    first = rs.collect(features, x, order=1, progress=False)

    def compared(weights: Any) -> TwoSample:
        other = rs.collect(features, y + 0.3, sample_weight=weights, order=1, progress=False)
        return mmd(first, other)

    assert compared(128 * w) == compared(w)
    assert compared(w).p_value < 0.01


@pytest.mark.parametrize("choices", [{"folds": 4}, {"by": "time.month", "n_groups": 4}], ids=str)
def test_runs_of_rows_are_runs_of_time_whatever_the_chunks(choices: Any, monkeypatch: Any) -> None:
    """Chunks of a map are no time buckets: what differs between places is not drift."""
    import xarray as xr

    from rff_stream import leaf_layout as layout

    monkeypatch.setattr(layout, "LEAF_ROWS", 300)
    time = np.datetime64("2014-01-01", "ns") + np.arange(120) * np.timedelta64(1, "D")
    values = np.random.default_rng(0).standard_normal((120, 40)) + np.linspace(-5, 5, 40)
    values[90:] += 0.5
    data = xr.Dataset({"t": (("time", "lat"), values)}, {"time": time, "lat": np.arange(40.0)})
    chunked = data.chunk({"time": 30, "lat": 10})
    features = map_of(1, length_scale=2.0)
    found = [
        rs.collect(features, each, order=1, inputs=["t"], progress=False, **choices)
        for each in (data, chunked)
    ]
    for label, moments in found[0].items():
        assert np.allclose(found[1][label].parts, moments.parts, atol=1e-4)
    distances = drift(found[1])
    last = max(distances)
    assert distances[last].p_value < 0.001
    assert max(distances, key=lambda label: distances[label].distance) == last


def test_labels_that_are_contiguous_need_their_number(rng: np.random.Generator) -> None:
    features, x = map_of(2), rng.standard_normal((6400, 2))
    month = np.repeat(np.arange(20), 320)
    groups = rs.collect(features, x, by=month, order=1, n_groups=20, progress=False)
    assert mmd(groups[0], groups[1]).p_value > 0.001
    without = rs.collect(features, x, by=month, order=1, progress=False)
    with pytest.raises(ValueError, match=r"a has 320 row.s. in 2 of its 32 sub-sums.*n_groups"):
        mmd(without[0], without[1])


def test_stored_segments_are_compared(tmp_path: Path, rng: np.random.Generator) -> None:
    features = map_of(2)
    store = rs.MomentStore.create(tmp_path / "m.zarr", plain_row(features), order=1)
    for name, shift in (("january", 0.0), ("february", 0.0), ("march", 0.6)):
        store.append(name, accumulate(features, rng.standard_normal((2000, 2)) + shift, order=1))
    one = {name: store.total(lambda batch, n=name: batch.id == n) for name in store.ids()}
    assert mmd(one["january"], one["february"]).p_value > 0.001
    assert mmd(one["january"] + one["february"], one["march"]).p_value < 0.001


def test_the_known_change_of_the_electricity_market_is_seen(shared_data: Any) -> None:
    # elec2 in its own order; row 17,760 (May 1997): Victoria joins the market
    x = np.load(shared_data("elec2.npz"))["X"].astype(float)
    kernel = Gaussian(tuple(2 * x.std(axis=0)))
    features = FourierFeatures.sample(kernel, 6, 512, origin=x.mean(axis=0), rng=0)
    groups = buckets(x, 27, features)  # of five weeks; number 10 holds the change
    found = drift({k: groups[k] for k in range(8, 27)}, total(groups[k] for k in range(8)))
    before, after = [8, 9], [*range(11, 27)]
    assert all(found[k].p_value > 0.2 for k in before)
    assert all(found[k].p_value < 0.05 for k in after)  # days beside each other are alike
    assert np.mean([found[k].p_value < 0.05 / len(found) for k in after]) > 0.5
    assert min(found[k].distance for k in after) > 2 * max(found[k].distance for k in before)


# ---------------------------------------------------------------------------------------- refusals


def test_different_maps_are_refused_with_both_fingerprints(rng: np.random.Generator) -> None:
    x = rng.standard_normal((640, 2))
    one, other = map_of(2), map_of(2, seed=1)
    with pytest.raises(ModelError) as caught:
        mmd(accumulate(one, x, order=1), accumulate(other, x, order=1))
    assert one.fingerprint[:12] in str(caught.value)
    assert other.fingerprint[:12] in str(caught.value)


def test_different_inputs_are_refused(rng: np.random.Generator) -> None:
    from dataclasses import replace

    features, x = map_of(2), rng.standard_normal((640, 2))
    one = accumulate(features, x, order=1)
    row = replace(one.row, inputs=("u", "v"))
    with pytest.raises(ModelError, match=r"names of inputs \(\('x0', 'x1'\) and \('u', 'v'\)\)"):
        mmd(one, accumulate(features, x, order=1, row=row))


def test_second_moments_are_refused(rng: np.random.Generator) -> None:
    features, x = map_of(2), rng.standard_normal((640, 2))
    with pytest.raises(ValueError, match=r"b has order 2 moments.*order=1"):
        mmd(accumulate(features, x, order=1), accumulate(features, x))


def test_few_rows_are_refused(rng: np.random.Generator) -> None:
    features = map_of(2)
    moments = [accumulate(features, rng.standard_normal((n, 2)), order=1) for n in (640, 7)]
    with pytest.raises(ValueError, match=r"b has 7 row.s. in 7 of its 32 sub-sums.*more rows"):
        mmd(*moments)


def test_groups_of_few_rows_are_left_out_and_named(rng: np.random.Generator) -> None:
    features, x = map_of(2), rng.standard_normal((640, 2))
    label = np.repeat(["a", "b", "c", "y", "z"], [200, 200, 230, 5, 5])
    choices: Any = {"order": 1, "progress": False, "n_groups": 5}
    groups = rs.collect(features, x, by=label, **choices)
    with pytest.warns(
        NumericalWarning, match=r"2 group.*needs: 'y' .5 row.s. in \d., 'z' .*They are left out"
    ):
        found = drift(groups)
    assert list(found) == ["a", "b", "c"] and found["a"].n_b == 430
    with pytest.warns(NumericalWarning, match="left out"):
        assert list(drift({k: groups[k] for k in "az"}, groups["b"])) == ["a"]
    with pytest.raises(DataError, match=r"'y' .5 row"):
        drift({k: groups[k] for k in "ayz"})
    with pytest.raises(ValueError, match="'a' has order 2 moments"):
        drift({k: rs.collect(features, x, progress=False) for k in "ab"})


@pytest.mark.parametrize("different", [5, 19])
def test_copies_of_few_rows_are_told_by_the_rows_that_they_are_compared_with(
    different: int, rng: np.random.Generator
) -> None:
    """200 rows beside 200 of which few differ: nearly all p-values were below .05."""
    small, features = 0, map_of(2)

    def collected(*rows: Any) -> Any:
        by = np.repeat(range(len(rows)), [len(each) for each in rows])
        found = rs.collect(features, np.concatenate(rows), by=by, order=1, n_groups=len(rows))
        return list(found.values())

    for _ in range(20):
        x, few = rng.standard_normal((200, 2)), rng.standard_normal((different, 2))
        copies = few[rng.permutation(np.arange(200) % different)]
        a, b = collected(x, copies)
        found = mmd(b, a, n_permutations=499)
        small += found.p_value <= 0.05
        assert drift({"a": a, "b": b}, n_permutations=499)["b"] == found
    assert small <= 3
    levels = rng.integers(0, 3, (400, 2)).astype(float)  # equal rows of levels are observations
    a, b = collected(levels[:200], levels[200:] / 2)
    assert mmd(a, b, n_permutations=499).p_value < 0.01


def test_one_group_is_no_drift(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="1 group was given"):
        drift({0: accumulate(map_of(2), rng.standard_normal((640, 2)), order=1)})


# --------------------------------------------------------------------------- batches that are added


def days(rng: np.random.Generator, count: int, effect: float, shift: float = 0.0) -> Any:
    """Days of one autoregression each, with an effect of the day's own; 120 rows a day."""
    own = effect * rng.standard_normal((count, 1, 2))
    return [series(rng, 120)[0] + each + shift for each in own]


def added(features: Any, batches: Any) -> Moments:
    return total(accumulate(features, x, order=1) for x in batches)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "effect"), [(8, 8, 0.0), (8, 8, 0.3), (1, 12, 0.3)])
def test_the_level_is_kept_for_sums_of_batches(first: int, second: int, effect: float) -> None:
    """Runs of days once mixed: every one of 130 pairs of sums was rejected at 5 %."""
    features, found, seeds = map_of(2, 32), [], 12
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        a, b = (added(features, days(rng, count, effect)) for count in (first, second))
        found.append(mmd(a, b, n_permutations=199, random_state=seed).p_value)
    assert np.mean(np.array(found) <= 0.05) <= binom.ppf(0.999, seeds, 0.05) / seeds


def test_drift_is_seen_in_sums_of_batches(rng: np.random.Generator) -> None:
    features = map_of(2)
    a, b = added(features, days(rng, 20, 0.3)), added(features, days(rng, 20, 0.3, 0.7))
    assert mmd(a, b).p_value < 0.01
    assert mmd(added(features, days(rng, 1, 0.0, 1.5)), a).p_value < 0.01


def test_a_sum_of_batches_is_that_of_one_pass(rng: np.random.Generator) -> None:
    """The same runs, whoever adds them: groups of one pass, batches, batches from a store."""
    features, x = map_of(2), rng.standard_normal((6400, 2))
    by = np.arange(6400) // 640
    groups = rs.collect(features, x, by=by, order=1, n_groups=10, progress=False)
    one = rs.collect(features, x, order=1, progress=False)
    whole = total(groups.values())
    assert whole.parts is not None
    up_to, weights = whole.parts.cumsum(axis=0), whole.parts[:, -1]
    assert weights.min() >= 160 and weights.max() <= 320
    for stop, expected in zip(weights.cumsum().astype(int), up_to, strict=True):
        run = accumulate(features, x[:stop], order=1, row=whole.row)  # rows 0 … stop, no others
        np.testing.assert_allclose(expected, run.sums, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.sums, up_to[-1], rtol=0, atol=1e-8)


def test_a_batch_that_is_subtracted_takes_its_runs_along(rng: np.random.Generator) -> None:
    features = map_of(2)
    a, b = (accumulate(features, rng.standard_normal((10, 2)), order=1) for _ in range(2))
    back = a + b - b
    assert back.parts is not None and a.parts is not None
    held = a.parts[:, -1] > 0
    np.testing.assert_allclose(back.parts[: held.sum()], a.parts[held], atol=1e-12)
    many = added(features, [rng.standard_normal((320, 2)) for _ in range(3)])
    with pytest.raises(ModelError, match="whose runs had been joined"):
        mmd(many + b - accumulate(features, rng.standard_normal((320, 2)), order=1), many)


def test_runs_stay_runs_in_a_store(tmp_path: Path, rng: np.random.Generator) -> None:
    features = map_of(2)
    batches = [accumulate(features, x, order=1) for x in days(rng, 12, 0.3)]
    store = rs.MomentStore.create(tmp_path / "m.zarr", batches[0].row, order=1)
    for k, moments in enumerate(batches):
        store.append(f"{k:02}", moments)
    one, again = total(batches), store.total()
    assert one.parts is not None and again.parts is not None
    assert np.array_equal(again.parts, one.parts)
    store.compact()
    assert mmd(store.total(), one).distance == pytest.approx(0, abs=1e-9)
    compacted = store.total()
    assert compacted.runs is not None and one.runs is not None
    assert np.array_equal(compacted.runs, one.runs)
