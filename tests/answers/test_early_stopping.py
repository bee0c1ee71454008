"""Running models over the seeded order of leaves: unbiased, with an honest error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rff_stream as rs
from rff_stream import progress as bars
from rff_stream.answers.early_stopping import (
    HeldOutError,
    has_settled,
    leaf_errors,
    limit_of_ratio,
    root_ratio,
)
from rff_stream.errors import NumericalWarning, PlanError
from rff_stream.model.stream import step_bounds

pytestmark = pytest.mark.usefixtures("small_leaves")


def rows(n: int, noise: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose neighbours resemble each other: every 1,000 share an error."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    shared = np.repeat(rng.normal(size=-(-n // 1000)), 1000)[:n]
    y = np.sin(2 * x[:, 0]) + x[:, 1] ** 2 / 4 + noise * (shared + rng.normal(size=n))
    return x, y


def made(**choices: Any) -> rs.KernelRidge:
    given: dict[str, Any] = {
        "length_scale": 1.0, "n_components": 48, "alpha": 0.1, "random_state": 0,
        "progress": False, "sums": "float64",
    }  # fmt: skip
    return rs.KernelRidge(**given | choices)


def test_an_error_from_moments_is_that_of_the_rows():
    x, y = rows(3000)
    weights = np.random.default_rng(1).uniform(0.5, 2, 3000)
    model = made(dtype="float64").fit(x, y)
    test = rs.collect(
        model.features_, x[:700], y[:700], sample_weight=weights[:700], row=model.moments_.row,
        progress=False,
    )  # fmt: skip
    found = leaf_errors(test, model.coef_[:, None], np.array([model.intercept_]))
    expected = weights[:700] @ (y[:700] - model.predict(x[:700])) ** 2
    np.testing.assert_allclose(found, [expected], rtol=1e-9)


def test_states_see_more_and_more_and_never_what_is_held_out():
    x, y = rows(30_000)
    model = made()
    found = list(model.stream(x, y, every=0.25))
    assert [state.fraction for state in found] == sorted(state.fraction for state in found)
    assert len(found) == 4 and found[-1].fraction == 1 == model.fraction_seen_
    held = len(found[-1].weights) * 1000
    assert model.n_rows_ == found[-1].n_rows == pytest.approx(30_000 - held, abs=2000)
    assert all((state.rmse_se > 0).all() for state in found)
    assert "RMSE" in str(found[0])


def test_a_loop_that_ends_leaves_the_model_of_then():
    x, y = rows(30_000)
    model = made()
    state = next(model.stream(x, y, every=0.25))
    assert model.n_rows_ == state.n_rows < 10_000
    assert model.fraction_seen_ == state.fraction < 0.5
    assert model.predict(x[:5]).shape == (5,)


@pytest.mark.slow
def test_the_standard_error_is_between_leaves_and_covers_the_truth():
    """Errors of neighbours resemble each other: a standard error by rows would be far too small.

    Six leaves or a few more: 2.5 standard errors cover some 95 % (Student's t); 12 of 15 or
    more in all but one run of 1,000.
    """
    truth, inside, wider = 0.3 * np.sqrt(2), 0, 0
    for seed in range(15):
        x, y = rows(24_000, seed=seed)
        state = next(iter(made(random_state=seed).stream(x, y, every=0.5)))
        inside += bool(abs(state.rmse[0] - truth) < 2.5 * state.rmse_se[0] + 0.01)
        by_rows = state.rmse[0] / np.sqrt(2 * state.weights.sum())
        wider += bool(state.rmse_se[0] > 2 * by_rows)
    assert inside >= 12 and wider >= 12


@pytest.mark.slow
def test_an_interval_covers_skewed_leaves() -> None:
    """Six to 24 leaves that share an error each: ± 1.96 standard errors cover 79 to 89 %."""
    rng, truth = np.random.default_rng(0), np.sqrt(2.0)
    for h in (6, 24):
        covered = []
        for _ in range(1500):
            weights = rng.integers(900, 1100, h).astype(float)
            errors = (weights * (1 + rng.standard_normal(h) ** 2))[:, None]
            state = HeldOutError(1, 0.1, *root_ratio(errors, weights), errors, weights)
            low, high = state.interval()
            covered.append(low[0] <= truth <= high[0])
        assert 0.9 < np.mean(covered) < 0.97


def test_a_limit_is_that_of_student_where_leaves_are_not_skewed() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])[:, None]
    found = limit_of_ratio(values, np.ones(5), 0.975)
    expected = 3 + 2.7764451 * np.sqrt(2.5 / 5)
    assert found[0] == pytest.approx(expected, rel=1e-5)
    assert limit_of_ratio(np.ones((5, 1)), np.ones(5), 0.975)[0] == 1


def test_one_bar_counts_the_rows_read_and_says_how_large_the_error_is(monkeypatch):
    x, y = rows(30_000)
    shown: list[tuple[str, int | str]] = []

    class Bar:
        def __init__(self, words: str, n_rows: int | None, unit: str) -> None:
            self.words = words
            shown.append((words, n_rows or 0))

        def update(self, rows: int) -> None:
            shown.append((f"rows of {self.words}", rows))

        def set_postfix_str(self, text: str, refresh: bool) -> None:
            shown.append(("said", text))

        def close(self) -> None:
            shown.append(("closed", 0))

    monkeypatch.setattr(bars, "_bar", Bar)
    found = list(made(progress=True).stream(x, y, every=0.25))
    assert [name for name, _ in shown].count("looking") == 1
    assert (
        sum(n for name, n in shown if name == "rows of looking") == 30_000 == dict(shown)["looking"]
    )
    said = [text for name, text in shown if name == "said"]
    assert said == [state.error for state in found] and said[-1].startswith("RMSE 0.")
    assert all("±" in text for text in said) and shown[-1][0] == "closed"


@pytest.mark.slow
def test_a_fit_stops_when_the_error_has_settled():
    x, y = rows(120_000, noise=0.5)
    whole, early = made().fit(x, y), made().fit(x, y, until=0.02)
    assert whole.fraction_seen_ == 1 > early.fraction_seen_
    new_x, new_y = rows(50_000, noise=0.5, seed=9)
    errors = [np.sqrt(np.mean((new_y - m.predict(new_x)) ** 2)) for m in (whole, early)]
    assert errors[1] <= 1.02 * errors[0]
    last = early.history_[-1]
    assert last.n_rows + last.weights.sum() == early.n_rows_  # those held out are added


def test_a_fit_that_never_settles_reads_all(tmp_path):
    x, y = rows(20_000)
    model = made().fit(x, y, until=1e-9)
    assert model.fraction_seen_ == 1
    early = made().fit(x, y, until=0.5)
    early.save(tmp_path / "M.zarr")
    assert rs.load(tmp_path / "M.zarr").fraction_seen_ == early.fraction_seen_ < 1


def test_the_same_seed_gives_the_same_states_on_any_number_of_threads():
    import dask

    x, y = rows(20_000)
    found = []
    for count in (1, 3):
        with dask.config.set(num_workers=count):
            found.append([(s.n_rows, s.rmse.tolist()) for s in made().stream(x, y, every=0.5)])
    assert found[0] == found[1]


def test_settled_means_that_twice_the_rows_won_little():
    weights = np.ones(8)

    def state(n: int, mean: float, spread: float = 0.0) -> HeldOutError:
        errors = (mean + spread * np.linspace(-1, 1, 8))[:, None]
        rmse, se = root_ratio(errors, weights)
        return HeldOutError(n, n / 5000, rmse, se, errors, weights)

    assert not has_settled([state(100, 1.0)], 0.5)
    assert not has_settled([state(100, 1.0), state(150, 1.0)], 0.5), "not twice the rows yet"
    assert has_settled([state(100, 1.01), state(200, 1.0)], 0.01)
    assert not has_settled([state(100, 1.01), state(200, 1.0)], 0.009), "errors fall as n^-1/2"
    assert has_settled([state(2450, 1.04), state(4900, 1.0)], 0.001), "few rows are left"
    assert not has_settled([state(100, 1.1), state(200, 1.0)], 0.01)
    assert not has_settled([state(100, 1.01, 0.5), state(200, 1.0)], 0.01), "too unsure"


def test_what_cannot_be_told_is_refused():
    x, y = rows(3000)
    with pytest.raises(PlanError, match="3 leaves, but at least 12"):
        made().fit(x, y, until=0.01)
    with pytest.raises(ValueError, match=r"until=2 but it must be a share"):
        made().fit(*rows(20_000), until=2)
    with pytest.raises(ValueError, match="every=1"):
        next(iter(made().stream(*rows(20_000), every=1)))


@pytest.mark.parametrize("until", [None, 0.5])
def test_rows_that_were_given_are_not_counted_again(tmp_path, until):
    x, y = rows(30_000)
    model = made()
    if until is None:
        next(model.stream(x, y, every=0.25))
    else:
        model.fit(x, y, until=until, batch="first")
    n = model.n_rows_
    assert n < 25_000 and model.fraction_seen_ < 1
    with pytest.warns(NumericalWarning, match="No row was counted"):
        assert model.update(x, y).n_rows_ == n
    model.save(tmp_path / "model", moments=True)
    loaded = rs.load(tmp_path / "model")
    with pytest.warns(NumericalWarning, match="No row was counted"):
        assert loaded.update(x, y, batch=until and "first").n_rows_ == n
    if until is not None:
        for one, other in zip(model.history_, loaded.history_, strict=True):
            assert (one.n_rows, one.fraction) == (other.n_rows, other.fraction)
            for name in "rmse", "rmse_se", "errors", "weights":
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert loaded.update(x[:100] + 9, y[:100], batch="second").n_rows_ == n + 100


def test_a_store_grows_after_a_fit_that_stopped(tmp_path):
    x, y = rows(30_000)
    data = xr.Dataset({"a": ("t", x[:, 0]), "b": ("t", x[:, 1]), "y": ("t", y)})
    data.to_zarr(tmp_path / "data.zarr", encoding={name: {"chunks": (1000,)} for name in data})
    model = made()
    next(model.stream(tmp_path / "data.zarr", "y", every=0.25))
    n = model.n_rows_
    data.isel(t=slice(0, 700)).to_zarr(tmp_path / "data.zarr", append_dim="t")
    assert model.update(tmp_path / "data.zarr").n_rows_ == n + 700


def test_leaves_without_rows_are_not_held_out():
    """Where all those held out had none, a stream ended without a word, and until was no error."""
    x, y = rows(60_000)
    for share in 0.5, 0.25:
        w = (np.arange(len(x)) < share * len(x)).astype(float)
        found = list(made().stream(x, y, w, every=0.5))
        assert len(found[-1].weights) == 6 and (found[-1].weights > 0).all()
        assert found[-1].n_rows + found[-1].weights.sum() == share * len(x)
    w = (np.arange(len(x)) < 6000).astype(float)
    model = made()
    for go in (
        lambda: list(model.stream(x, y, w)),
        lambda: model.fit(x, y, w, until=0.05),
        lambda: model.fit(x[:9000], y[:9000], until=0.05),
    ):
        with pytest.raises(PlanError, match=r"[69] leaves, but at least 12 are needed"):
            go()
    assert not hasattr(model, "coef_")


def test_batch_true_goes_without_until():
    x, y = rows(3000)
    with pytest.raises(ValueError, match="Name the batch"):
        made().fit(x, y, until=0.05, batch=True)


@pytest.mark.parametrize("every", [1e-9, 0.01, 0.3, 1 + 1e-9, 1.001, 1.01, 1.4, 3.0, 1e9])
def test_steps_hold_all_leaves_and_each_has_one(every):
    for count in 1, 2, 13, 200:
        bounds = step_bounds(count, every)
        starts, stops = zip(*bounds, strict=True)
        assert starts == (0, *stops[:-1]) and stops[-1] == count
        assert all(stop > start for start, stop in bounds)
        if every > 1:
            assert all(b <= max(a + 1, np.ceil(a * every)) for a, b in itertools.pairwise(stops))
        else:
            assert max(b - a for a, b in bounds) <= max(1, np.ceil(every * count))


@pytest.mark.parametrize("alpha", [0.1, "cv"])
def test_a_fit_that_read_all_is_the_fit_of_all(alpha):
    x, y = rows(30_000)
    w = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    y[::7] = np.nan
    own = {"alpha": alpha, "missing_rows": "drop"}
    whole, found = made(**own).fit(x, y, w), made(**own).fit(x, y, w, until=1e-9)
    assert found.fraction_seen_ == 1
    assert (found.n_rows_, found.n_missing_) == (whole.n_rows_, whole.n_missing_)
    np.testing.assert_allclose(found.predict(x[:100]), whole.predict(x[:100]), atol=1e-7)
    assert found.alpha_ == pytest.approx(whole.alpha_, rel=1e-9)
    assert found.history_[-1].n_rows < found.n_rows_
    mixed = made(sums="auto", **own).fit(x, y, w, until=1e-9)  # float64 where held out
    np.testing.assert_allclose(mixed.predict(x[:100]), whole.predict(x[:100]), atol=1e-5)


@pytest.mark.slow
def test_a_map_that_nothing_is_said_of_is_searched():
    """It had the median length-scale of all inputs: RMSE .5 for a function with noise .2."""
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-2, 2, (13_000, 4)), rng.uniform(-2, 2, (2000, 4))
    y, truth = (np.sin(4 * each[:, 0]) + each[:, 1] for each in (x, new))
    model = rs.KernelRidge(random_state=0, progress=False)
    (state,) = model.stream(x, y + 0.2 * rng.normal(size=len(y)), every=0.9999)
    assert model.plan_.search_seconds > 0
    error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
    assert error < 0.03 and 0.19 < state.rmse[0] < 0.21
