"""The alarm of drift: its level over a season, its power, and what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import rff_stream as rs
from growing import ridge, table, write, written
from rff_stream.answers.drift_alarm import SEASON, level_of_look, look_at, profile
from rff_stream.answers.maximum_mean_discrepancy import drift
from rff_stream.errors import ModelError
from rff_stream.model import file_batches, update
from toys import run

Day = tuple[str, Any]


def day(rng: np.random.Generator, shift: float = 0.0, *, freedom: float = np.inf) -> Any:
    """The profile of 100 rows of a day, whose inputs differ by 0.3 from day to day."""
    effect = rng.normal(size=3) if np.isinf(freedom) else rng.standard_t(freedom, size=3)
    x = rng.normal(size=(100, 3)) + 0.3 * effect
    y = x[:, :1] + 0.1 * rng.normal(size=(100, 1)) + 0.05 * rng.normal()
    x[:, 1] += shift * np.hypot(0.3, 0.1)  # in standard deviations of a day
    return profile(["a", "b", "c"], x, x[:, :1], y - x[:, :1], ["t"], (100, 100))


def alarms(seed: int, looks: int, alpha: float, freedom: float = np.inf) -> bool:
    """Whether a season of normal days has any alarm, after a week."""
    rng = np.random.default_rng([3, seed])
    past: list[Day] = [(f"{i}", day(rng, freedom=freedom)) for i in range(7)]
    for number in range(1, looks + 1):
        new = day(rng, freedom=freedom)
        if look_at("", new, 100, past[-100:], level_of_look(alpha, number)).alarm:
            return True
        past.append((f"{len(past)}", new))
    return False


def power(shift: float, before: int, alpha: float, seasons: int) -> float:
    """Share of seasons whose day with this shift, after so many days, raises the alarm."""
    found = 0
    for seed in range(seasons):
        rng = np.random.default_rng([4, seed])
        past = [(f"{i}", day(rng)) for i in range(before)]
        look = look_at("", day(rng, shift), 100, past, level_of_look(alpha, before))
        found += look.alarm and look.moved[0].name == "mean of b"
    return found / seasons


def test_the_levels_of_all_looks_sum_to_alpha():
    levels = [level_of_look(0.01, k) for k in range(1, 7 * SEASON + 1)]
    assert sum(levels) == pytest.approx(0.01 * (1 / 2 + 1 / 4 + 1 / 8), rel=1e-12)
    assert levels[0] == levels[SEASON - 1] > levels[SEASON]


@pytest.mark.slow
@pytest.mark.parametrize("freedom", [np.inf, 5.0])
def test_few_seasons_have_a_false_alarm(freedom):
    count = sum(alarms(seed, 40, 0.2, freedom) for seed in range(12))
    assert count <= stats.binom.ppf(0.9999, 12, 0.2)


@pytest.mark.accuracy
@pytest.mark.parametrize("freedom", [np.inf, 5.0])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_the_level_of_200_seasons_of_100_looks(freedom, alpha):
    count = sum(alarms(seed, 100, alpha, freedom) for seed in range(200))
    assert count <= stats.binom.ppf(0.999, 200, alpha)


@pytest.mark.accuracy
@pytest.mark.parametrize(("shift", "least"), [(12, 0.5), (16, 0.9), (20, 0.97)])
def test_the_power_after_a_month(shift, least):
    found = power(shift, 30, 0.01, 200)
    assert found >= least


def test_a_broken_sensor_is_found_and_named():
    assert power(25.0, 20, 0.01, 10) == 1.0


def test_what_the_target_depends_on_is_watched_too():
    """Residuals as large as ever, inputs as ever: y has begun to depend on c."""
    rng = np.random.default_rng(0)

    def another(slope: float) -> Any:
        x = rng.normal(size=(200, 3))
        noise = np.sqrt(1 - slope**2) * rng.normal(size=(200, 1))
        y = x[:, :1] + slope * x[:, 2:] + noise
        return profile(["a", "b", "c"], x, x[:, :1], y - x[:, :1], ["t"], (200, 200))

    past = [(f"d{i}", another(0.0)) for i in range(20)]
    look = look_at("new", another(0.7), 200, past, 1e-3)
    assert [each.name for each in look.moved] == ["correlation of residual of t with c"]
    assert not look_at("same", another(0.0), 200, past, 1e-3).alarm
    constant = profile(["a"], np.ones((5, 1)), np.ones((5, 1)), np.zeros((5, 1)), ["t"], (5, 5))
    assert np.isnan(
        dict(zip(constant.names, constant.values, strict=True))[
            "correlation of residual of t with a"
        ]
    )


def test_one_bad_day_in_the_reference_neither_hides_nor_spreads():
    rng = np.random.default_rng(0)
    past = [(f"d{i}", day(rng, 30.0 if i == 4 else 0.0)) for i in range(12)]
    good = look_at("good", day(rng), 100, past, 1e-4)
    assert not good.alarm and good.left_out == ("d4",) and good.n_reference == 11
    assert look_at("bad", day(rng, 30.0), 100, past, 1e-4).moved[0].name == "mean of b"


def test_a_batch_without_rows_is_no_reference():
    """One header without rows had switched all alarms off."""
    rng = np.random.default_rng(0)
    past = [(f"d{i}", day(rng)) for i in range(12)]
    x = np.empty((0, 3))
    nothing = profile(["a", "b", "c"], x, x[:, :1], x[:, :1], ["t"], (0, 0))
    new = day(rng, 30.0)
    assert look_at("new", new, 100, [*past, ("none", nothing)], 1e-4) == look_at(
        "new", new, 100, past, 1e-4
    )
    assert look_at("none", nothing, 0, past, 1e-4).p_value == 1


def test_a_number_is_compared_with_the_batches_in_which_it_is_defined():
    """One row has no spread and no correlation."""
    rng = np.random.default_rng(0)
    past = [(f"d{i}", day(rng)) for i in range(12)]
    x = rng.normal(size=(1, 3))
    one = profile(["a", "b", "c"], x, x[:, :1], 0.1 * x[:, :1], ["t"], (1, 1))
    wide = rng.normal(size=(100, 3)) * [1, 8, 1]
    new = profile(["a", "b", "c"], wide, wide[:, :1], 0.1 * wide[:, :1], ["t"], (100, 100))
    assert look_at("", new, 100, [*past, ("one", one)], 1e-4).moved[0].name == "log spread of b"


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_few_rows_of_a_normal_day_raise_no_alarm(n_rows):
    """A mean of few rows varies more than those of the days before: of 1 row .96 had an alarm."""
    rng = np.random.default_rng(n_rows)
    past, found = [(f"d{i}", day(rng)) for i in range(12)], 0
    for _ in range(200):
        x = rng.normal(size=(n_rows, 3)) + 0.3 * rng.normal(size=3)
        residuals = 0.1 * rng.normal(size=(n_rows, 1))
        few = profile(["a", "b", "c"], x, x[:, :1], residuals, ["t"], (n_rows, n_rows))
        found += look_at("", few, n_rows, past, 0.01).alarm
    assert found <= stats.binom.ppf(0.999, 200, 0.01)


def test_a_constant_input_that_changes_is_found():
    rng = np.random.default_rng(1)

    def flat(value: float) -> Any:
        x = np.column_stack([rng.normal(size=50), np.full(50, value)])
        return profile(["a", "flat"], x, None, None, (), (50, 50))

    past = [(f"{i}", flat(2.0)) for i in range(6)]
    assert not look_at("", flat(2.0), 50, past, 1e-3).alarm
    assert look_at("", flat(2.5), 50, past, 1e-3).moved[0].name == "mean of flat"


def test_too_few_batches_are_no_alarm():
    rng = np.random.default_rng(1)
    look = look_at("", day(rng, 100.0), 100, [("a", day(rng)), ("b", day(rng))], 0.01)
    assert not look.alarm and "at least 3 are needed" in str(look)


def test_seven_good_days_of_eight_are_not_called_drifted():
    """All eight had p ≤ .0005, because "all others" held the bad one."""
    features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0)
    rows = [np.random.default_rng([9, i]).normal(size=(400, 2)) + 2.0 * (i == 5) for i in range(8)]
    groups = rs.collect(
        features, np.concatenate(rows), by=np.repeat(np.arange(8), 400), order=1, n_groups=8,
        progress=False,
    )  # fmt: skip
    found = drift(groups)
    assert [k for k, each in found.items() if each.p_value < 0.05 / 8] == [5]


@pytest.fixture
def season(tmp_path: Path) -> Path:
    """Eight days in a model."""
    folder = written(tmp_path / "days", *range(8))
    model = ridge().fit(folder, "t", inputs=["u", "v"])
    model.save(tmp_path / "M.zarr", moments=True)
    return tmp_path / "M.zarr"


@pytest.mark.slow
def test_a_counted_file_is_compared_without_a_read(season, monkeypatch):
    folder = season.parent / "days"
    write(folder / "d08.parquet", table(8))
    write(folder / "d09.parquet", table(9, shift=8.0))
    model = rs.load(season).update(folder)
    monkeypatch.setattr(update, "read_file", None)
    monkeypatch.setattr(file_batches, "read_file", None)
    bad = model.drift("d09.parquet")
    assert bad.alarm and {each.name for each in bad.moved} >= {"mean of u", "mean of v"}
    assert bad.batch == "d09.parquet" and bad.n_reference == 9
    assert model.drift().p_value == model.drift(folder / "d09.parquet").p_value == bad.p_value
    assert not model.drift("d08.parquet").alarm
    listed = model.batches()
    assert [each.name for each in listed if each.look.alarm] == ["d09.parquet"]
    assert [each.rows for each in listed] == [60] * 10 and all(each.errors for each in listed)


@pytest.mark.slow
def test_rows_that_are_not_counted_are_compared(season):
    model = rs.load(season)
    assert model.drift(table(20, shift=8.0)).alarm and not model.drift(table(20)).alarm
    wrong = table(21).assign(t=lambda rows: rows["t"] + 5.0)
    moved = model.drift(wrong)
    assert moved.alarm and moved.moved[0].name == "mean of residual of t"
    assert model.n_rows_ == rs.load(season).n_rows_
    with pytest.raises(ValueError, match=r"alarm=2 but it must be a probability"):
        model.drift(table(3), alarm=2)
    with pytest.raises(ModelError, match="no batches apart"):
        ridge().fit(table(0), "t").drift()


def test_a_model_in_memory_compares_the_files_of_its_fit(season):
    model = ridge().fit(season.parent / "days", "t", inputs=["u", "v"])
    assert model.drift().n_reference == 7 and not model.drift("d03.parquet").alarm


@pytest.mark.slow
def test_the_alarm_has_an_exit_code_of_its_own(season):
    folder = season.parent / "days"
    write(folder / "d08.parquet", table(8, shift=8.0))
    assert run("update", season, folder).exit_code == 0
    words = ["drift", season, folder / "d08.parquet"]
    done = run(*words, "--alarm", 0.01)
    assert done.exit_code == 5 and "mean of u" in done.output
    assert run(*words).exit_code == 0, "without --alarm it is told only"
    assert json.loads(run(*words, "--json").stdout)["moved"]
    listed = json.loads(run("batches", season, "--json").stdout)["batches"]
    assert [each["alarm"] for each in listed] == [False] * 8 + [True]
    assert run("batches", season).exit_code == 0
    assert run("forget", season, "d08.parquet").exit_code == 0
    assert run("drift", season, "--alarm", 0.01, "--window", 5).exit_code == 0
    data = season.parent / "all.parquet"
    pd.concat([table(i, 200, 9.0 * (i == 3)) for i in range(8)]).to_parquet(data)
    buckets = ["drift", data, "--by", "day", "--inputs", "u,v", "--alarm", 0.01]
    done = run(*buckets)
    assert done.exit_code == 5 and done.output.splitlines()[-1].split() == ["alarm", "3"]
    assert run("drift", data, "x").exit_code == 2
