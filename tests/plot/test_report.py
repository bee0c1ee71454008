"""The report: one page, nothing from outside, and every figure where it belongs."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import rff_stream as rs
from rff_stream.cli import main
from rff_stream.report import COLOURS_OF_DRAWING, assess, drift_section, report, write_report

VOID = {"img", "link", "meta", "wbr"}
HEADINGS = [
    "What was fitted, and on what",
    "How good it is",
    "What it depends on",
    "How sure it is",
    "What it costs",
]


class Page(HTMLParser):
    """A page as its words, headings and everything that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.references: list[str] = []
        self.headings: list[str] = []
        self.alts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in {"script", "iframe", "object", "embed", "base"}
        for name, value in attrs:
            assert not name.startswith("on"), "a script in an attribute"
            if name in {"src", "href", "srcset", "action", "data", "poster"}:
                self.references.append(value)
            if name == "alt":
                self.alts.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


def read(text: str) -> Page:
    """The page, refused where it refers to anything outside itself."""
    page = Page(text)
    assert all(each.startswith("data:") for each in page.references)
    style = re.search("<style>(.*?)</style>", text, re.S)
    assert style is not None
    assert "url(" not in style[1] and "@import" not in style[1]
    for each in page.references:
        if "svg" in each:
            drawn = base64.b64decode(each.partition(",")[2]).decode()
            assert "<script" not in drawn
            links = re.findall(r'(?:href|src)="([^"]*)"', drawn)
            assert all(link.startswith(("#", "data:")) for link in links)
    assert 'name="viewport"' in text
    return page


@pytest.fixture(scope="module")
def process() -> rs.GaussianProcessRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (400, 1))
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(400)
    made = rs.GaussianProcessRegressor(
        length_scale=0.7, n_components=64, random_state=0, progress=False
    )
    return made.fit(x, y)


def rows(rng: np.random.Generator, n: int, shift: float = 0.0) -> tuple[Any, Any]:
    x = rng.uniform(-3, 3, (n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(n) + shift


@pytest.fixture(scope="module")
def tested(process: Any) -> tuple[Any, str]:
    """The process at 500 other rows, and the report of both."""
    x, y = rows(np.random.default_rng(1), 500)
    test = assess(process, x, target=y, place="fresh rows")
    return test, report(process, test=test, notes=[("fit", "1.5 s")])


@pytest.mark.slow
def test_a_report_says_what_how_good_how_sure_and_at_what_cost(process: Any, tested: Any) -> None:
    test, html = tested
    page = read(html)
    assert page.headings == [*HEADINGS, "Where it comes from"]
    assert f"{test.residuals.r2()[0]:.5f}" in page.words
    assert test.residuals.n == 500 == len(test.x)
    for word in ("500 rows of fresh rows", "95% interval", "1.5 s", "degrees of freedom", "0.7"):
        assert word in page.words
    share = re.search(r"fresh rows, ([\d.]+)% lie inside", page.words)
    assert share is not None
    assert abs(float(share[1]) - 95) < 100 * 4 * np.sqrt(0.95 * 0.05 / 500)
    assert process.features_.fingerprint in page.words
    assert page.words.index("Details") < page.words.index(process.features_.fingerprint[:16])
    of_model, of_trend, of_mean = map(float, re.search(
        r"this model([\d.]+)linear trend([\d.]+)mean([\d.]+)", page.words
    ).groups())  # fmt: skip
    assert of_model < 0.3 < of_trend < 1.1 * of_mean
    for words in ("Errors on these rows.", "Share of rows inside their intervals."):
        assert words in page.alts
    assert len(page.alts) >= 5 and all(page.alts)


@pytest.mark.slow
def test_weights_count_in_every_number_of_the_page(process: Any, rng: Any) -> None:
    """The error of the fit had them, its row of the table and the share in intervals had not."""
    x, y = rows(rng, 300)
    w = np.where(np.abs(x[:, 0]) < 1, 9.0, 0.5)
    y = np.where(w > 1, y + 0.5, y)
    test = assess(process, x, target=y, weights=w)
    page = read(report(process, test=test))
    mean, std = process.predict(x, return_std=True)
    error = np.sqrt(np.average((y - mean) ** 2, weights=w))
    found = re.search(r"this model([\d.]+)linear", page.words)
    assert found is not None and float(found[1]) == pytest.approx(error, rel=1e-3)
    share = re.search(r"([\d.]+)% lie inside", page.words)
    inside = np.average(np.abs(y - mean) < 1.95996 * std, weights=w)
    assert share is not None and float(share[1]) == pytest.approx(100 * inside, abs=0.06)


@pytest.mark.slow
def test_blocks_fill_their_rows_where_there_is_no_map(rng: np.random.Generator) -> None:
    """Two stand side by side on a wide screen: an odd number would leave half a row empty."""
    x = rng.uniform(-2, 2, (400, 3))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(400)
    for estimator in (rs.KernelRidge, rs.GaussianProcessRegressor):
        model = estimator(n_components=64, random_state=0, progress=False).fit(x, y)
        html = report(model, test=assess(model, x, target=y, place="rows"))
        sections = html.split("<section>")[1:]
        blocks = {part.split("</h2>")[0]: part.count('<div class="wide">') for part in sections}
        wide = {part.split("</h2>")[0]: part.count('<div class="wide"><p>') for part in sections}
        for title in blocks:
            alone = "What it costs" in title
            assert alone or (blocks[title] - wide[title]) % 2 == 0, title
        assert "Errors against predictions." in read(html).alts


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "quantile", "poisson"])
def test_a_report_of_another_loss_has_no_path_of_least_squares(loss: str, rng: Any) -> None:
    """It asked for ``fit_intercept``, which these models do not have."""
    x, y = rng.uniform(-2, 2, (300, 1)), rng.poisson(3, 300).astype(float)
    model = rs.KernelRegressor(loss, n_components=32, random_state=0, progress=False).fit(x, y)
    page = read(report(model, test=assess(model, x, target=y, place="rows")))
    assert not any("every penalty" in each for each in page.alts)


@pytest.mark.slow
def test_a_model_alone_says_what_is_not_known(process: Any, tmp_path: Path) -> None:
    process.save(tmp_path / "bare.zarr")
    page = read(report(rs.load(tmp_path / "bare.zarr"), place=tmp_path / "bare.zarr"))
    assert "it holds no rows" in page.words
    assert "Drift" not in page.headings
    ridge = rs.KernelRidge(n_components=32, random_state=0).fit(*rows(np.random.default_rng(1), 50))
    assert "KernelRidge gives no standard deviations" in read(report(ridge)).words


@pytest.mark.slow
def test_batches_of_a_store_are_set_beside_each_other(
    process: Any, rng: np.random.Generator, tmp_path: Path
) -> None:
    place = tmp_path / "model.zarr"
    process.save(place, moments=True)
    store = rs.MomentStore.open(place)
    for k in range(3):
        part = rs.collect(process.features_, *rows(rng, 200, 0.5 * k), row=store.row)
        store.append(f"2024-0{k + 1}", part)
    page = read(report(process, place=place))
    assert "Drift" in page.headings
    drift = page.words.partition("Drift")[2]
    assert store.head in page.words
    for name in ("2024-01", "2024-02", "2024-03", "mean residual"):
        assert name in drift


@pytest.mark.slow
def test_times_are_dates_and_rows_that_the_fit_may_know_are_named(rng: Any) -> None:
    time = np.arange("2020-01-01", "2020-03-01", dtype="datetime64[D]").astype("datetime64[ns]")
    data = xr.Dataset({"y": ("time", rng.normal(size=len(time)))}, {"time": time})
    model = rs.KernelRidge(n_components=16, random_state=0, progress=False)
    model.fit(data, "y", inputs=["time"], where=[rs.HoldOut(0.3)])
    known = read(report(model, test=assess(model, data))).words
    assert "2020-01-" in known and "2020-02-" in known and "e+04" not in known.split("asked")[0]
    assert "look too small" in known
    held = assess(model, data, where=[rs.HoldOut(0.3, part="test")])
    assert "look too small" not in read(report(model, test=held)).words


@pytest.mark.slow
def test_densities_and_detectors_have_reports_too(rng: np.random.Generator, tmp_path: Path) -> None:
    x = rng.normal(size=(500, 2))
    density = rs.KernelDensity(n_components=512, random_state=0).fit(x)
    assert "What it sees" in read(report(density)).headings
    detector = rs.NoveltyDetector(n_components=32, random_state=0).fit(x)
    detector.save(tmp_path / "d.zarr", moments=True)
    store = rs.MomentStore.open(tmp_path / "d.zarr")
    store.append("later", rs.collect(detector.features_, x + 1, row=store.row, order=1))
    page = read(report(detector, place=tmp_path / "d.zarr", test=assess(detector, x)))
    assert "Drift" in page.headings
    assert "later" in page.words


@pytest.mark.slow
def test_classifiers_and_components_have_reports_too(rng: np.random.Generator) -> None:
    x = rng.normal(size=(600, 2))
    kinds = np.where((x**2).sum(axis=1) < 1.4, "in", "out")
    model = rs.KernelClassifier(n_components=64, random_state=0, progress=False)
    model.fit(x[:300], kinds[:300])
    html = report(model, test=assess(model, x[300:], target=kinds[300:], place="others"))
    good = html.split("<section>")[2]
    assert "How good it is" in good and good.count('<div class="wide">') == 2  # pictures
    page = read(html)
    assert f"{np.mean(model.predict(x[300:]) == kinds[300:]):.2%} right of 300 rows" in page.words
    assert "recall" in page.words
    assert "Not known" in read(report(model)).words
    pca = rs.KernelPCA(2, n_map_components=64, random_state=0).fit(x)
    assert "What it sees" in read(report(pca)).headings


@pytest.mark.slow
def test_the_command_writes_a_page(tmp_path: Path, rng: np.random.Generator) -> None:
    lat, lon = np.linspace(-20, 20, 12), np.linspace(0, 40, 16)
    field = np.cos(np.deg2rad(5 * lat))[:, None] + np.sin(lon / 9)
    values = field + 0.1 * rng.standard_normal((20, 12, 16))
    cube = xr.Dataset(
        {"sst": (("time", "lat", "lon"), values, {"units": "degC"})},
        {"time": np.arange(20.0), "lat": lat, "lon": lon},
    )
    cube.to_zarr(tmp_path / "cube.zarr", zarr_format=3, consolidated=False)
    run = CliRunner()
    words = [str(tmp_path / "cube.zarr"), "--target", "sst", "--inputs", "lat,lon"]
    words += ["--holdout", "0.2", "--n-components", "64", "--model", str(tmp_path / "m.zarr")]
    assert run.invoke(main, ["fit", *words]).exit_code == 0
    page = tmp_path / "report.html"
    asked = ["report", str(tmp_path / "m.zarr"), "--data", str(tmp_path / "cube.zarr")]
    asked += ["--holdout", "0.2", "-o", str(page), "--json"]
    done = run.invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bytes"] == page.stat().st_size < 2**20
    found = read(page.read_text(encoding="utf-8"))
    assert "sst [degC]" in found.words
    assert "cube.zarr" in found.words
    done = run.invoke(main, asked)
    assert done.exit_code == 4 and "--overwrite" in done.stderr
    absent = [*asked[:-3], "-o", str(tmp_path / "no" / "r.html")]
    done = run.invoke(main, absent)
    assert done.exit_code == 4 and "there is no folder" in done.stderr


@pytest.mark.slow
def test_names_cannot_break_the_page(rng: np.random.Generator, tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"<b>x</b>": rng.normal(size=99), "y&": rng.normal(size=99)})
    model = rs.KernelRidge(n_components=8, random_state=0).fit(frame, "y&", inputs=["<b>x</b>"])
    write_report(tmp_path / "r.html", model)
    assert "<b>x</b>" in read((tmp_path / "r.html").read_text(encoding="utf-8")).words


@pytest.mark.slow
def test_every_colour_of_page_and_pictures_has_a_light_and_a_dark_form(tested: Any) -> None:
    html = tested[1]
    style = re.search("<style>(.*?)</style>", html, re.S)
    assert style is not None
    free = re.sub(r"--\w+: #\w+;", "", style[1])
    assert "prefers-color-scheme: dark" in style[1] and "#" not in free
    drawn = [
        base64.b64decode(each).decode() for each in re.findall(r"svg\+xml;base64,([^\"]+)", html)
    ]
    assert drawn
    for each in drawn:
        assert "prefers-color-scheme: dark" in each
        outside = re.sub("<style>.*?</style>", "", each, flags=re.S)
        assert {"var(--ink)", "var(--paper)"} <= set(re.findall(r"var\(--\w+\)", outside))
        named = set(re.findall("#[0-9a-f]{6}", outside))
        assert not named & {"#000000", "#ffffff", *COLOURS_OF_DRAWING.values()}


@pytest.mark.optional
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_asks_for_nothing_and_complains_of_nothing(
    process: Any, rng: np.random.Generator, tmp_path: Path, width: int, dark: bool
) -> None:
    """Headless Chromium with every host but this one cut off; its own pings are not the page's."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("No chromium or google-chrome on PATH.")
    x, y = rows(rng, 300)
    write_report(tmp_path / "r.html", process, test=assess(process, x, target=y))
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    words += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    words += ["--enable-logging=stderr", f"--log-net-log={tmp_path / 'net.json'}"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},3000"]
    words += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    words += [f"--screenshot={tmp_path / 'shot.png'}", (tmp_path / "r.html").as_uri()]
    done = subprocess.run([browser, *words], capture_output=True, text=True, timeout=100)
    assert (tmp_path / "shot.png").stat().st_size > 20_000
    light = plt.imread(tmp_path / "shot.png")[..., :3].mean()
    assert light < 0.2 if dark else light > 0.8
    assert "CONSOLE" not in done.stderr, done.stderr
    asked = re.findall(r'"url":"(\w+)://([^/"]*)', (tmp_path / "net.json").read_text())
    own = ("google.com", "googleapis.com", "gvt1.com", "gstatic.com")
    assert not [host for scheme, host in asked if scheme != "file" and not host.endswith(own)]


def test_batches_of_counts_are_told_by_their_distances(rng: np.random.Generator) -> None:
    """Residuals of a logarithm had stood beside each other as if they were those of y."""
    x, count = rng.uniform(-2, 2, (300, 2)), rng.poisson(3.0, 300).astype(float)
    model = rs.KernelRegressor("poisson", n_components=32, random_state=0, progress=False)
    folds = rs.collect(model.fit(x, count).features_, x, folds=2, order=1)
    words = drift_section(model, folds).html()
    assert "distance" in words
    assert "mean residual" not in words


def test_batches_of_cells_are_told_by_their_sampled_rows(rng: np.random.Generator) -> None:
    """A report of the default after an update was an AttributeError: no coef_."""
    x = rng.uniform(-2, 2, (300, 2))
    y = np.sin(x[:, 0]) + np.repeat([0.0, 1.0], 150)
    cells = rs.Cells(16, 1, 2)
    model = rs.KernelRidge(features=cells, length_scale=1.0, random_state=0, progress=False)
    model.fit(x[:150], y[:150])
    each = {
        name: rs.collect(model.features_, x[own], y[own], row=model.moments_.row, progress=False)
        for name, own in {"before": slice(0, 150), "after": slice(150, 300)}.items()
    }
    words = drift_section(model, each).html()
    told = re.sub("<[^>]*>", " ", words).split()
    place = told.index("after")
    error = y[150:] - model.predict(x[150:])
    assert float(told[place + 2]) == pytest.approx(error.mean(), rel=1e-3)
    assert float(told[place + 3]) == pytest.approx(np.sqrt((error**2).mean()), rel=1e-3)


def test_batches_of_rows_with_holes_and_text_are_told_too(rng: Any, tmp_path: Path) -> None:
    """Columns were counted as the user has them: marks and levels are columns of the map."""
    frame = pd.DataFrame({"x": rng.uniform(-2, 2, 120), "kind": rng.choice(["a", "b", "c"], 120)})
    y = np.sin(frame.x) + (frame.kind == "a")
    frame.loc[::10, "x"] = np.nan
    model = rs.KernelRidge(missing_rows="indicate", random_state=0, progress=False)
    place = tmp_path / "model.zarr"
    model.fit(frame[:80], y[:80], batch="one").save(place, moments=True)
    model = rs.load(place).update(frame[80:], y[80:], batch="two")
    drift = read(report(model, place=place)).words.partition("Drift")[2]
    assert "two" in drift and "mean residual" in drift
