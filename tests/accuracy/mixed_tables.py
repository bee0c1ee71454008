"""The bare call on real tables with text, gaps and few to many rows, beside what others would try.

    git clone --depth 1 https://github.com/vincentarelbundock/Rdatasets
    python tests/accuracy/mixed_tables.py Rdatasets/csv [--sets gapminder,taxi] [--classes]
        [--seeds 0] [--states 0]

Nothing is set but ``missing_rows="indicate"`` where a table has gaps. A quarter of the rows, of at
most 20,000, is held out. RMSE in standard deviations of y, share of held-out values inside the 95 %
interval; of classes the share of errors and the log-loss; CPU seconds of the fit.

Rivals: LightGBM (2,000 trees of 63 leaves, rate .05, and 100 trees as by default; of classes 500
and 100), with text as its own categories and gaps as they are; ridge or logistic regression and
the mean of five neighbours, on one-hot columns (of levels of five rows and more), medians in gaps
and marks. The last column is our error, or log-loss, over the least of theirs.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rff_stream import GaussianProcessRegressor, KernelClassifier

MOST_ROWS, FEWEST_OF_A_CLASS, RARE = 20_000, 5, 5

NUMBERS = """
ggplot2/diamonds: log price; openintro/loans_full_schema: interest_rate - grade sub_grade
modeldata/hotel_rates: avg_price_per_room; AER/CPS1988: log wage; AER/HousePrices: log price
AER/CASchools: read - math district; Ecdat/BudgetFood: wfood; Ecdat/Computers: log price
Ecdat/Males: wage; Ecdat/Wages: lwage; ISLR/Carseats: Sales; ISLR/College: Outstate
ISLR/Hitters: log Salary; ISLR/Wage: logwage - wage; ISLR/Auto: mpg; carData/Salaries: salary
carData/SLID: log wages; causaldata/castle: homicide - murder
causaldata/restaurant_inspections: inspection_score
dplyr/storms: wind - name category status tropicalstorm_force_diameter hurricane_force_diameter
dslabs/gapminder: life_expectancy; gapminder/gapminder: lifeExp; mlmRev/Exam: normexam - student
mlmRev/star: math - id read; modeldata/Chicago: ridership - date; modeldata/ames: log Sale_Price
openintro/ames: log price - Order PID; modeldata/stackoverflow: Salary
modeldata/check_times: log check_time - package; openintro/births14: weight - lowbirthweight
openintro/cars04: log msrp - dealer_cost name
openintro/epa2021: comb_mpg - city_mpg hwy_mpg carline; openintro/evals: score - course_id
openintro/hfi: hf_score - hf_rank hf_quartile pf_score ef_score pf_rank ef_rank countries
openintro/nycflights: arr_delay - dep_delay tailnum air_time; plyr/baseball: hr - id rbi
sampleSelection/nlswork: ln_wage - idcode; survival/flchain: creatinine
tsibbledata/vic_elec: Demand - Time; AER/STAR: math3 - read3; AER/DoctorVisits: reduced
"""
"""Folder/table: target - columns that tell it, or that are names of rows."""

CLASSES = """
ISLR/Default: default; ISLR/OJ: Purchase; ISLR/Caravan: Purchase; carData/TitanicSurvival: survived
modeldata/attrition: Attrition; modeldata/credit_data: Status; modeldata/mlc_churn: churn
modeldata/wa_churn: churn; modeldata/lending_club: Class; modeldata/stackoverflow: Remote
modeldata/taxi: tip; modeldata/cells: class - case; modeldata/ad_data: Class
DAAG/nassCDS: dead - injSeverity caseid; openintro/resume: received_callback - job_ad_id
carData/Arrests: released; survival/colon: status - id time
openintro/loans_full_schema: grade - sub_grade interest_rate; psych/bfi: gender
dplyr/storms: status - category name; openintro/epa2021: class - carline; ggplot2/diamonds: cut
openintro/nba_players_19: position - first_name last_name
"""


def sets(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, target and columns to leave out of each table."""
    for each in re.split(r"[;\n]", text.strip()):
        name, _, rest = each.strip().partition(": ")
        target, _, left_out = rest.partition(" - ")
        yield name, target, left_out.split()


def load(folder: Path, name: str, target: str, left_out: list[str]) -> tuple[pd.DataFrame, Any]:
    """Inputs and targets of the rows that have a target."""
    table = pd.read_csv(folder / f"{name}.csv", low_memory=False)
    table = table.drop(columns=["rownames", *left_out], errors="ignore")
    column = target.removeprefix("log ")
    table = table.dropna(subset=[column])
    if column != target:
        table = table[table[column] > 0]
    table = table[[each for each in table if table[each].nunique() > 1]]
    y = table.pop(column)
    return table, (np.log(y) if column != target else y).to_numpy()


def prepared(table: pd.DataFrame) -> Any:
    """One-hot columns, and medians with marks in gaps of numbers."""
    texts = [each for each in table if not pd.api.types.is_numeric_dtype(table[each])]
    numbers = [each for each in table if each not in texts]
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=RARE)
    filled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer((filled, numbers), (one_hot, texts))


def for_trees(table: pd.DataFrame) -> pd.DataFrame:
    """Text as categories, under names that LightGBM takes."""
    texts = [each for each in table if not pd.api.types.is_numeric_dtype(table[each])]
    found = table.astype(dict.fromkeys(texts, "category"))
    return found.set_axis([f"x{place}" for place in range(found.shape[1])], axis=1)


def rivals(is_class: bool, table: pd.DataFrame) -> list[tuple[Any, Callable[..., Any]]]:
    """Models, and what makes of a table what they take."""
    import lightgbm

    kind = lightgbm.LGBMClassifier if is_class else lightgbm.LGBMRegressor
    strong = {"n_estimators": 500 if is_class else 2000, "learning_rate": 0.05, "num_leaves": 63}
    trees = [kind(verbose=-1, n_jobs=1, **own) for own in (strong, {"n_estimators": 100})]
    line = LogisticRegression(max_iter=500) if is_class else RidgeCV(np.logspace(-3, 4, 12))
    near = KNeighborsClassifier() if is_class else KNeighborsRegressor()
    others = [make_pipeline(prepared(table), each) for each in (line, near)]
    return [(each, for_trees) for each in trees] + [(each, lambda rows: rows) for each in others]


def figures(table: pd.DataFrame, y: Any, is_class: bool, seed: int, state: int) -> str:
    """Our figures, those of the rivals, and the ratio to the best of them."""
    order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    rows, held_out = np.split(order, [int(0.75 * len(order))])
    if is_class:
        y = y.astype(str)
        names, counts = np.unique(y[rows], return_counts=True)
        names = names[counts >= FEWEST_OF_A_CLASS]
        rows, held_out = (each[np.isin(y[each], names)] for each in (rows, held_out))

    def missed(model: Any, inputs: pd.DataFrame) -> float:
        if not is_class:
            error = model.predict(inputs.iloc[held_out]) - y[held_out]
            return float(np.sqrt(np.mean(error**2)) / y[rows].std())
        odds = np.clip(model.predict_proba(inputs.iloc[held_out]), 1e-7, 1)
        odds /= odds.sum(axis=1, keepdims=True)
        return float(log_loss(y[held_out], odds, labels=model.classes_))

    choices: dict[str, Any] = {"missing_rows": "indicate"} if table.isna().any().any() else {}
    kind: Any = KernelClassifier if is_class else GaussianProcessRegressor
    started = time.process_time()
    model = kind(random_state=state, progress=False, **choices).fit(table.iloc[rows], y[rows])
    seconds, own = time.process_time() - started, missed(model, table)
    if is_class:
        beside = float((model.predict(table.iloc[held_out]) != y[held_out]).mean())
    else:
        mean, std = model.predict(table.iloc[held_out], return_std=True)
        beside = float((np.abs(mean - y[held_out]) < 1.96 * std).mean())
    others = []
    for rival, made in rivals(is_class, table):
        inputs = made(table)
        others.append(missed(rival.fit(inputs.iloc[rows], y[rows]), inputs))
    theirs = " ".join(f"{each:8.4f}" for each in others)
    return f"{own:8.4f} {beside:7.3f} {seconds:6.1f} | {theirs} | {own / min(others):6.3f}"


def main() -> None:
    """Print a line for each table and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default="", help="parts of names, with commas")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--states", default="0")
    asked = parser.parse_args()
    trees = "LightGBM, 500, 100" if asked.classes else "LightGBM 2,000, 100"
    ours = "log-loss   error" if asked.classes else "    RMSE   cover"
    print(f"{'table, seed':34} {ours}  CPU s | {trees}, line, 5 near | ratio")
    for name, target, left_out in sets(CLASSES if asked.classes else NUMBERS):
        if not any(part in name for part in asked.sets.split(",")):
            continue
        table, y = load(asked.folder, name, target, left_out)
        for seed in map(int, asked.seeds.split(",")):
            for state in map(int, asked.states.split(",")):
                line = figures(table, y, asked.classes, seed, state)
                print(f"{name + ', ' + str(seed):34} {line}", flush=True)


if __name__ == "__main__":
    main()
