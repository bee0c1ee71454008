"""Every picture draws on any axes, says what it shows, and leaves everything else alone."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import rff_stream as rs
from rff_stream.answers.dependence import Dependence
from rff_stream.answers.learning_curves import row_curve
from rff_stream.answers.maximum_mean_discrepancy import drift
from rff_stream.answers.penalty_selection import cross_validate, gcv, ridge_path
from rff_stream.answers.sensitivity import ard_relevance, sobol_indices
from rff_stream.errors import DataError, ModelError
from rff_stream.grid.selection import KernelComparison
from rff_stream.plot.canvas import mean_of

ROWS = 600


@pytest.fixture(scope="module", autouse=True)
def _agg() -> Any:
    before = plt.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.switch_backend(before)


class Shelf:
    """Answers that pictures are drawn of, each made once."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.uniform(-2, 2, (ROWS, 2))
        self.y = np.sin(2 * self.x[:, 0]) + 0.1 * rng.standard_normal(ROWS)
        choices: dict[str, Any] = {"n_components": 64, "random_state": 0, "progress": False}
        self.line = rs.GaussianProcessRegressor(**choices).fit(self.x[:, :1], self.y)
        self.plane = rs.KernelRidge(**choices).fit(self.x, self.y)
        self.searched = rs.KernelRidge(random_state=0, progress=False).fit(self.x, self.y)
        self.folds = rs.collect(self.plane.features_, self.x, self.y, folds=4)
        means = rs.collect(self.plane.features_, self.x, folds=9, order=1)
        self.drift = drift({f"2020-0{k + 1}": each for k, each in means.items()})
        self.cv, self.gcv = cross_validate(self.folds), gcv(self.plane.moments_)
        self.sobol = sobol_indices(lambda x: mean_of(self.plane, x), self.x)
        self.relevance = ard_relevance([0.5, 50.0], self.x, ["x0", "x1"])
        self.hsic = [Dependence(0.3, 0.01, 1e-9, ROWS), Dependence(0.012, 0.01, 0.3, ROWS)]
        kinds = np.where(self.x[:, 0] > 0, "right", "left")
        self.kinds = kinds
        self.sorter = rs.KernelClassifier(**choices).fit(self.x, kinds)
        self.scores = self.sorter.scores(self.x, kinds)
        self.pca = rs.KernelPCA(3, n_map_components=64, random_state=0).fit(self.x)
        self.cloud = rs.KernelDensity(n_components=512, random_state=0).fit(self.x)
        self.bump = rs.KernelDensity(n_components=512, random_state=0).fit(self.x[:, :1])
        self.detector = rs.NoveltyDetector(n_components=64, random_state=0).fit(self.x)
        self.kernels = KernelComparison(
            (rs.Matern(nu=1.5), rs.Gaussian()),
            np.array([0.1, 0.2, 0.4]),
            np.array([[-9.0, -5.0, -7.0], [-99.0, -4.0, -20.0]]),
            np.full((2, 3), 0.5),
            np.ones((2, 3)),
        )
        coordinates = {
            "lat": ("lat", np.linspace(-10, 10, 5), {"units": "degrees_north"}),
            "lon": ("lon", np.linspace(0, 30, 7), {"units": "degrees_east"}),
        }
        values = np.arange(35.0).reshape(5, 7)
        values[0, 0] = np.nan
        self.map = xr.DataArray(
            values, coordinates, ("lat", "lon"), name="sst", attrs={"units": "degC"}
        )


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


Draw = Callable[[Shelf, Any], Any]

PICTURES: dict[str, tuple[Draw, tuple[str, ...]]] = {
    "kernel_matrix": (
        lambda s, ax: rs.plot.kernel_matrix(rs.Gaussian(1.0), s.x[:50], ax),
        ("row",),
    ),
    "kernel_matrix of a map": (
        lambda s, ax: rs.plot.kernel_matrix(s.plane.features_, s.x[:50], ax),
        ("R = 64 features",),
    ),
    "approximation_error": (
        lambda s, ax: rs.plot.approximation_error(
            rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0),
            rs.Gaussian(1.0),
            s.x[:50],
            ax,
        ),
        ("features R", "∝ 1/√R"),
    ),
    "curve": (lambda s, ax: rs.plot.curve(s.line, ax), ("x0", "95% of f", "95% of y", "rows")),
    "surface": (lambda s, ax: rs.plot.surface(s.plane, ax), ("x0", "x1")),
    "surface of a DataArray": (
        lambda s, ax: rs.plot.surface(s.map, ax),
        ("lat [degrees_north]", "lon [degrees_east]", "sst [degC]"),
    ),
    "surface about 0": (
        lambda s, ax: rs.plot.surface(s.map - 17, ax, center=0, limits=(-20, 10)),
        ("lat [degrees_north]",),
    ),
    "surface on a logarithmic scale": (
        lambda s, ax: rs.plot.surface(s.map, ax, norm=LogNorm()),
        ("sst [degC]",),
    ),
    "observed": (lambda s, ax: rs.plot.observed(s.line, ax), ("inside the 95% interval", "RMSE")),
    "observed on new rows": (
        lambda s, ax: rs.plot.observed(s.plane, ax, X=s.x[:90], y=s.y[:90]),
        ("90 rows", "rows given"),
    ),
    "selection": (lambda s, ax: rs.plot.selection(s.cv, ax), ("penalty α", "chosen: α", "±")),
    "selection by GCV": (lambda s, ax: rs.plot.selection(s.gcv, ax), ("GCV", "chosen: α")),
    "path": (lambda s, ax: rs.plot.path(ridge_path(s.plane.moments_), ax), ("of R = 64",)),
    "learning_curve": (lambda s, ax: rs.plot.learning_curve(s.cv, ax), ("features R′", "chosen")),
    "row_curve": (
        lambda s, ax: rs.plot.row_curve(row_curve([s.folds[0], s.folds[1]], s.folds[2]), ax),
        ("rows read", "on held-out rows"),
    ),
    "kernel_evidence": (
        lambda s, ax: rs.plot.kernel_evidence(s.kernels, ax),
        ("length-scale", "Matern 3/2", "highest: "),
    ),
    "choice": (
        lambda s, ax: rs.plot.choice(s.searched.choice_, ax),
        ("left-out rows", "taken", "5 neighbours", "a line", " s"),
    ),
    "residuals": (
        lambda s, ax: rs.plot.residuals(s.plane, s.folds, ax),
        ("residual of y", "mean residual"),
    ),
    "drift": (lambda s, ax: rs.plot.drift(s.drift, ax), ("2020-01", "expected by chance")),
    "density": (lambda s, ax: rs.plot.density(s.cloud, ax), ("x0", "x1", "rows", "blank")),
    "density of one input": (lambda s, ax: rs.plot.density(s.bump, ax), ("± 2 standard errors",)),
    "novelty": (lambda s, ax: rs.plot.novelty(s.detector, ax), ("threshold", "novel: ")),
    "components": (lambda s, ax: rs.plot.components([0.5, 0.3, 0.1], ax), ("so far",)),
    "components of a model": (lambda s, ax: rs.plot.components(s.pca, ax), ("component",)),
    "slope": (lambda s, ax: rs.plot.slope(s.line, ax), ("∂y/∂x0", "95% of the slope", "R = 64")),
    "partial_dependence": (
        lambda s, ax: rs.plot.partial_dependence(s.plane, "x1", ax, grid=9),
        ("x1", "mean of y"),
    ),
    "partial_dependence of a class": (
        lambda s, ax: rs.plot.partial_dependence(s.sorter, "x0", ax, grid=9),
        ("mean of the score of right",),
    ),
    "decision": (lambda s, ax: rs.plot.decision(s.sorter, ax), ("x0", "x1")),
    "decision with rows": (
        lambda s, ax: rs.plot.decision(s.sorter, ax, data=(s.x, s.kinds), margins=(-1, 1)),
        ("600 rows", "% right", "left", "class"),
    ),
    "coverage of groups": (
        lambda s, ax: rs.plot.coverage(s.y, np.full(ROWS, 0.7), ax, by=s.kinds),
        ("left: ", "right: ", "in 95 %"),
    ),
    "confusion": (lambda s, ax: rs.plot.confusion(s.scores, ax), ("answered", "left", "right")),
    "calibration": (lambda s, ax: rs.plot.calibration(s.scores, ax), ("mean gap", "as often")),
    "sensitivity": (
        lambda s, ax: rs.plot.sensitivity(s.sobol, ["x0", "x1"], ax),
        ("alone", "with interactions", "x1"),
    ),
    "relevance": (lambda s, ax: rs.plot.relevance(s.relevance, ax), ("length-scale", "x1")),
    "metric": (
        lambda s, ax: rs.plot.metric(rs.inspect.gradient_outer_product(s.plane), ax),
        ("share of each direction", "x0", "x1", "over its deviation"),
    ),
    "dependence": (
        lambda s, ax: rs.plot.dependence({"x0, y": s.hsic[0], "x1, y": s.hsic[1]}, ax),
        ("dependent: p < 0.05/2", "explained by chance", "x1, y", "p = "),
    ),
    "plan_memory": (lambda s, ax: rs.plot.plan_memory(s.plane.plan_, ax), ("promised", "leaves")),
    "plan_time": (lambda s, ax: rs.plot.plan_time(s.plane.plan_, ax), ("reading", "solve")),
}


def words_of(figure: Figure) -> str:
    """Every text that a figure shows."""
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_draws_and_says_what_it_shows_inside_its_figure(name: str, shelf: Shelf) -> None:
    draw, expected = PICTURES[name]
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    canvas, ax = FigureCanvasAgg(figure), figure.subplots()
    settings, open_figures = dict(mpl.rcParams), plt.get_fignums()
    assert draw(shelf, ax) is ax
    canvas.draw()
    assert dict(mpl.rcParams) == settings
    assert plt.get_fignums() == open_figures
    for word in expected:
        assert word in words_of(figure), name
    assert ax.get_xlabel() or ax.get_ylabel()
    renderer, room = canvas.get_renderer(), figure.bbox
    for text in labels_of(figure):
        box = text.get_window_extent(renderer)
        assert box.x0 > -2 and box.x1 < room.width + 2, text.get_text()
        assert box.y0 > -2 and box.y1 < room.height + 2, text.get_text()


def labels_of(figure: Figure) -> list[Any]:
    """Titles, labels of axes and legends; ticks are laid out by matplotlib itself."""
    found: list[Any] = []
    for ax in figure.axes:
        found += [ax.title, ax.xaxis.label, ax.yaxis.label]
        found += ax.get_legend().get_texts() if ax.get_legend() else []
    return [text for text in found if text.get_text()]


def test_without_axes_a_new_figure_is_made(shelf: Shelf) -> None:
    before = plt.get_fignums()
    ax = rs.plot.components([0.6, 0.4])
    made = set(plt.get_fignums()) - set(before)
    assert len(made) == 1
    plt.close(ax.figure)


def test_a_colour_bar_says_where_values_lie_beyond_it(shelf: Shelf) -> None:
    low, high = float(shelf.map.min()), float(shelf.map.max())
    for limits, ends in (
        (None, "neither"), ((low, high), "neither"), ((low, high - 1), "max"),
        ((low + 1, high), "min"), (np.array([low + 1, high - 1]), "both"),
    ):  # fmt: skip
        ax = rs.plot.surface(shelf.map, limits=limits)
        assert ax.collections[0].colorbar.extend == ends
        plt.close(ax.figure)


def colour_at(ax: Any, x: float, y: float) -> tuple[float, ...]:
    """The colour (r, g, b) of the pixel that shows a place of the data."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    column, row = ax.transData.transform((x, y))
    pixels = np.asarray(canvas.buffer_rgba())
    return tuple(pixels[len(pixels) - 1 - int(row), int(column), :3].tolist())


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_a_map_of_one_row_or_column_shows_its_values(shape: tuple[int, int]) -> None:
    """Its cells had no width: all was in the colour of what is missing."""
    values = xr.DataArray(np.arange(float(np.prod(shape))).reshape(shape), dims=("lat", "lon"))
    values = values.assign_coords(lat=10.0 + np.arange(shape[0]), lon=np.arange(float(shape[1])))
    ax = rs.plot.surface(values, Figure().subplots(), limits=(0, 5))
    drawn = ax.collections[0]
    for i, j in np.ndindex(*shape):
        expected = 255 * np.array(drawn.cmap(drawn.norm(values.values[i, j]))[:3])
        np.testing.assert_allclose(colour_at(ax, j, 10 + i), expected, atol=1)


@pytest.mark.parametrize(
    "lat", [[1, 2, 4, 8, 16], [16, 8, 4, 2, 1], [4, 1, 2, 16, 8],
            pd.to_datetime(["2020-03-01", "2020-01-01", "2020-02-01", "2020-05-01", "2020-04-01"])],
)  # fmt: skip
def test_a_map_shows_values_at_their_coordinates_in_any_order(lat: Any) -> None:
    """Of coordinates that are not sorted, cells lay over one another."""
    values = xr.DataArray(np.arange(15.0).reshape(5, 3), dims=("lat", "lon"))
    values = values.assign_coords(lat=lat, lon=[20.0, 0.0, 10.0])
    ax = rs.plot.surface(values, Figure().subplots())
    drawn, up = ax.collections[0], ax.convert_yunits(values.lat.values)
    for i, j in np.ndindex(*values.shape):
        expected = 255 * np.array(drawn.cmap(drawn.norm(values.values[i, j]))[:3])
        np.testing.assert_allclose(colour_at(ax, values.lon.values[j], up[i]), expected, atol=1)


@pytest.mark.parametrize("lon", [[3.0, np.nan, 1.0], np.array(["2020", "NaT", "2021"], "M8[s]")])
def test_a_coordinate_without_a_value_has_no_place_in_a_map(lon: Any) -> None:
    values = xr.DataArray(np.ones((2, 3)), dims=("lat", "lon"), coords={"lon": lon})
    with pytest.raises(ValueError, match=r"lon holds 1 values that are missing .* at place 1"):
        rs.plot.surface(values, Figure().subplots())


def test_numbers_on_a_short_logarithmic_scale_are_plain() -> None:
    std = xr.DataArray([[0.04, 0.3], [1.1, 3.4]], dims=("lat", "lon"), name="std")
    ax = rs.plot.surface(std, norm=LogNorm())
    ax.figure.canvas.draw()
    labels = ax.collections[0].colorbar.ax.get_yticklabels()
    shown = [text.get_text() for text in labels if 0.04 <= text.get_position()[1] <= 3.4]
    assert shown == ["0.05", "0.1", "0.2", "0.5", "1", "2"]
    plt.close(ax.figure)


def test_what_cannot_be_drawn_says_why(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"has 2 inputs .x0, x1., and this picture shows 1"):
        rs.plot.curve(shelf.plane)
    with pytest.raises(ValueError, match=r"a map has two\. Select one place"):
        rs.plot.surface(shelf.map.expand_dims("time"))
    with pytest.raises(ValueError, match=r"'lon': 0\}, so there is no place to draw\. Select"):
        rs.plot.surface(shelf.map[:, :0])
    with pytest.raises(ValueError, match=r"norm stands beside center or limits.*LogNorm"):
        rs.plot.surface(shelf.map, limits=(0, 1), norm=LogNorm())
    with pytest.raises(ValueError, match=r"4,001 rows.*at most 4,000"):
        rs.plot.kernel_matrix(rs.Gaussian(1.0), np.zeros((4001, 1)))
    with pytest.raises(ValueError, match="1 names were given for 2 inputs"):
        rs.plot.sensitivity(shelf.sobol, ["a"])
    with pytest.raises(ValueError, match="no pairs to draw"):
        rs.plot.dependence({})
    with pytest.raises(ValueError, match="no groups to draw"):
        rs.plot.drift({})
    with pytest.raises(ValueError, match=r"has 2 inputs .x0, x1., and this picture shows 1"):
        rs.plot.slope(shelf.plane)
    with pytest.raises(ValueError, match=r"by has 7 groups, and this picture has 6 colours"):
        rs.plot.coverage(np.zeros(70), np.ones(70), by=np.arange(70) % 7)
    bare = rs.KernelRidge(n_components=8, sample_rows=0, progress=False).fit(shelf.x, shelf.y)
    with pytest.raises(ValueError, match="no row sample"):
        rs.plot.surface(bare)
    with pytest.raises(ValueError, match="no row sample"):
        rs.plot.observed(bare)
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pip install 'rff_stream\[plot\]'"):
        rs.plot.components([1.0])


@pytest.mark.parametrize("west", [-180.0, 0.0, 200.0])
def test_coastlines_keep_the_limits_of_the_map(west: float) -> None:
    ax = Figure().subplots()
    ax.set(xlim=(west, west + 100), ylim=(10, 60))
    rs.plot.coastlines(ax, resolution="crude")
    assert (ax.get_xlim(), ax.get_ylim()) == ((west, west + 100), (10, 60))
    lines = np.concatenate(ax.collections[0].get_segments())
    inside = (lines[:, 0] >= west) & (lines[:, 0] <= west + 100) & (lines[:, 1] > 10)
    assert inside.sum() > 100  # of North America, Africa and Europe, and North America again


def test_coastlines_are_where_the_coast_is() -> None:
    ax = Figure().subplots()
    ax.set(xlim=(-10, 3), ylim=(49, 60))
    rs.plot.coastlines(ax)
    lines = np.concatenate(ax.collections[0].get_segments())
    lands_end = np.hypot((lines[:, 0] + 5.716) * np.cos(np.radians(50)), lines[:, 1] - 50.066)
    assert lands_end.min() < 0.05  # degrees


def test_a_curve_of_errors_shows_what_a_model_misses(rng: np.random.Generator) -> None:
    """Means of bins of equally many rows; rows without a value are left out."""
    at = np.append(rng.uniform(-1, 1, 1200), np.nan)
    ax = rs.plot.error_curve(at, at**2 - 1 / 3)
    points = ax.containers[0].lines[0].get_xydata()
    assert points.shape == (12, 2)
    np.testing.assert_allclose(points[:, 1], points[:, 0] ** 2 - 1 / 3, atol=0.01)


def test_axes_have_the_long_names_of_the_data_also_after_a_load(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    attrs = {"units": "K", "long_name": "sea surface temperature"}
    data = xr.Dataset(
        {
            "sst": (("lat", "lon"), rng.normal(size=(12, 15)), attrs),
            "wind": (("lat", "lon", "level"), rng.normal(size=(12, 15, 1))),
        },
        coords={
            "lat": ("lat", np.arange(12.0), {"units": "degrees_north", "long_name": "latitude"}),
            "lon": ("lon", np.arange(15.0), {"units": "degrees_east"}),
            "level": [500],
        },
    )
    model = rs.KernelRidge(n_components=16, features="fourier", random_state=0, progress=False)
    model.fit(data, "sst", inputs=["lat", "lon"])
    model.save(tmp_path / "model.zarr", moments=True)
    for each in (model, rs.load(tmp_path / "model.zarr")):
        figure = Figure()
        rs.plot.surface(each, figure.subplots())
        words = words_of(figure).splitlines()
        assert "sea surface temperature [K]" in words
        assert {"latitude [degrees_north]", "lon [degrees_east]"} <= set(words)
    assert "wind" not in str(model.fit(data, "sst", inputs=["wind"]).columns_.long_names)
    named = data.assign(wind=data.wind.assign_attrs(long_name="eastward wind"))
    of_level = model.fit(named, "sst", inputs=["wind"]).columns_
    assert dict(of_level.long_names)["wind[level=500]"] == "eastward wind[level=500]"


def test_coverage_of_a_group_is_that_of_its_rows(rng: np.random.Generator) -> None:
    wrong, std, side = rng.normal(size=400), rng.uniform(0.5, 2, 400), np.arange(400) % 3
    ax = rs.plot.coverage(wrong, std, by=side)
    for k, line in enumerate(ax.lines[1:]):  # after the diagonal
        alone = rs.plot.coverage(wrong[side == k], std[side == k]).lines[1]
        np.testing.assert_array_equal(line.get_xydata(), alone.get_xydata())
        assert str(line.get_label()).startswith(f"{k}: {(side == k).sum()} rows")
        plt.close(alone.figure)
    assert len(ax.lines) == 4
    plt.close(ax.figure)


@pytest.mark.parametrize(
    "side",
    [np.array([np.nan, 1.0]), np.array([None, "a"], object), np.array(["NaT", "2020"], "M8[D]")],
)
def test_a_row_without_a_group_is_refused(side: Any, rng: np.random.Generator) -> None:
    """NaN was a group of "0 rows; nan%", and None a TypeError of NumPy."""
    wrong, by = rng.normal(size=60), np.tile(side, 30)
    with pytest.raises(ValueError, match=r"by holds 30 missing labels, the first at row 0, and"):
        rs.plot.coverage(wrong, np.ones(60), by=by)
    named = pd.Series(by, dtype=object).fillna("none")
    assert len(rs.plot.coverage(wrong, np.ones(60), by=named).lines) == 3
    gaps = np.where(np.arange(60) % 2, wrong, np.nan)  # such rows are left out anyway
    assert "30 rows" in str(rs.plot.coverage(gaps, np.ones(60), by=by).lines[1].get_label())
    plt.close("all")


def test_groups_of_several_types_have_a_curve_each(rng: np.random.Generator) -> None:
    by = np.tile(np.array([1, "a"], object), 30)
    lines = rs.plot.coverage(rng.normal(size=60), np.ones(60), by=by).lines
    assert [str(line.get_label()).partition(":")[0] for line in lines[1:]] == ["1", "a"]
    plt.close("all")


def test_evidence_is_drawn_along_the_length_scales_in_any_order(shelf: Shelf) -> None:
    """The line went back and forth."""
    mixed = [2, 0, 1]
    own = {"length_scales": shelf.kernels.length_scales[mixed]}
    for name in ("log_evidence", "error"):
        own[name] = getattr(shelf.kernels, name)[:, mixed]
    sorted_, other = (rs.plot.kernel_evidence(each, Figure().subplots()) for each in
                      (shelf.kernels, replace(shelf.kernels, **own)))  # fmt: skip
    for one, same in zip(sorted_.lines, other.lines, strict=True):
        np.testing.assert_array_equal(same.get_xydata(), one.get_xydata())


LONG = ("mean surface downwelling shortwave radiation flux", "short",
        "total_precipitation_of_the_last_twenty_four_hours_in_millimetres",
        "mean surface downwelling longwave radiation flux")  # fmt: skip

NAMED: dict[str, Draw] = {
    "sensitivity": lambda s, ax: rs.plot.sensitivity(s.sobol, LONG[:2], ax),
    "relevance": lambda s, ax: rs.plot.relevance(replace(s.relevance, inputs=LONG[:2]), ax),
    "dependence": lambda s, ax: rs.plot.dependence(
        {f"{a}, {b}": s.hsic[0] for a in LONG for b in LONG if a < b}, ax
    ),
    "confusion": lambda s, ax: rs.plot.confusion(replace(s.scores, labels=LONG[2:]), ax),
    "residuals": lambda s, ax: rs.plot.residuals(
        s.plane, dict(zip(LONG, s.folds.values(), strict=True)), ax
    ),
    "metric": lambda s, ax: rs.plot.metric(
        replace(rs.inspect.gradient_outer_product(s.plane).directions(), inputs=LONG[2:]), ax
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_long_names_leave_room_for_the_axes(name: str, shelf: Shelf) -> None:
    """The axes were a stripe, or nothing: "axes sizes collapsed to zero"."""
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    ax = NAMED[name](shelf, figure.subplots())
    FigureCanvasAgg(figure).draw()
    assert min(ax.get_window_extent().size / figure.bbox.size) > 0.35
    ticks = [*ax.get_xticklabels(), *ax.get_yticklabels()]
    shown = [text.get_text() for text in ticks if any(each.isalpha() for each in text.get_text())]
    assert len({*shown}) == (len(shown) if name != "confusion" else 2)


def test_a_function_at_one_place_is_a_dot(shelf: Shelf) -> None:
    """A line between one place and nothing was an empty picture."""
    for ax in (
        rs.plot.partial_dependence(shelf.plane, "x0", grid=[0.7]),
        rs.plot.curve(shelf.line, at=[0.7]),
        rs.plot.slope(shelf.line, at=[0.7]),
    ):
        assert [line.get_marker() for line in ax.lines if 0.7 in line.get_xdata()][:1] == ["o"]
    plt.close("all")


def test_values_that_no_picture_can_show_are_refused(shelf: Shelf) -> None:
    for draw in (rs.plot.curve, rs.plot.slope):
        for at in ([1.0, np.nan], [-np.inf, 0]):
            with pytest.raises(ValueError, match=r"at=.* must be an array of finite numbers"):
                draw(shelf.line, at=at)
    with pytest.raises(ValueError, match=r"latitude holds 170, but latitudes are from -90 to 90"):
        rs.plot.error_map([10, 20], [170, 80], [1, 2], coasts=False)
    with pytest.raises(ValueError, match=r"shares hold -0\.2, but a share of a variance is ≥ 0"):
        rs.plot.components([0.9, -0.2])


def test_one_gross_error_does_not_ask_for_thousands_of_bars(rng: np.random.Generator) -> None:
    ax = rs.plot.histogram(np.r_[rng.normal(size=500), 1e9])
    assert len(ax.patches) == 100
    plt.close(ax.figure)


def test_rows_without_a_value_are_not_drawn(shelf: Shelf, rng: np.random.Generator) -> None:
    """A missing residual had counted as outside of its interval."""
    wrong, std, gap = rng.normal(size=400), np.ones(400), np.full(400, np.nan)
    kind = np.arange(400) % 2
    for picture, known, more in (
        (rs.plot.coverage, (wrong, std), (gap, std)),
        (rs.plot.histogram, (wrong,), (gap,)),
        (rs.plot.error_curve, (std, wrong), (std, gap)),
    ):
        alone = picture(*known)
        both = picture(*(np.r_[a, b] for a, b in zip(known, more, strict=True)))
        assert [str(t.get_text()) for t in alone.texts] == [str(t.get_text()) for t in both.texts]
        for one, other in zip(alone.lines, both.lines, strict=True):
            np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
            assert one.get_label() == other.get_label()
        plt.close("all")
    by = rs.plot.coverage(np.r_[gap, wrong], np.r_[std, std], by=np.r_[kind, kind])
    assert str(by.lines[1].get_label()).startswith("0: 200 rows")
    x, y = shelf.x.copy(), shelf.y.copy()
    y[:5] = np.nan
    assert "nan" not in rs.plot.observed(shelf.plane, X=x, y=y).get_title()
    plt.close("all")
    with pytest.raises(ValueError, match="residuals holds 1 infinite values"):
        rs.plot.histogram([0.0, np.inf])
    with pytest.raises(ValueError, match="std holds -1, but standard deviations are ≥ 0"):
        rs.plot.coverage(wrong, -std)
    with pytest.raises(ValueError, match=r"box is .* but its first row holds lowest values"):
        rs.plot.decision(shelf.sorter, box=[[1, 0], [0, 1]])


def test_rows_without_a_value_do_not_set_the_colours_of_a_map(rng: np.random.Generator) -> None:
    """One missing residual had made the limits ±0.1, and ninety of a hundred rows lay beyond."""
    east, north, wrong = rng.uniform(-60, 60, 300), rng.uniform(-60, 60, 300), rng.normal(size=300)
    alone = rs.plot.error_map(east, north, wrong, coasts=False).collections[0]
    for gap in ((np.nan, 0, 0), (0, np.nan, 9), (0, 0, np.nan)):
        rows = (np.append(a, b) for a, b in zip((east, north, wrong), gap, strict=True))
        both = rs.plot.error_map(*rows, coasts=False).collections[0]
        assert both.get_clim() == alone.get_clim()
        np.testing.assert_array_equal(both.get_offsets(), alone.get_offsets())
    plt.close("all")
    with pytest.raises(ValueError, match=r"No row has a number in each of predicted, residuals"):
        rs.plot.error_curve([0, np.nan], [np.nan, 0])


@pytest.mark.parametrize(
    ("coverage", "words"), [(0.95, "95%"), (0.975, "97.5%"), (0.999, "99.9%"), (0.68269, "68.269%")]
)
def test_an_interval_is_named_by_its_coverage(coverage: float, words: str, shelf: Shelf) -> None:
    """It had been rounded: one of 99.9 % was the "100% interval"."""
    labels = [
        text.get_text()
        for draw in (rs.plot.curve, rs.plot.slope, rs.plot.observed)
        for text in draw(shelf.line, coverage=coverage).get_legend().get_texts()
    ]
    plt.close("all")
    for label in (f"{words} of f", f"{words} of y", f"{words} of the slope"):
        assert label in labels
    assert any(label.startswith(f"inside the {words} interval: ") for label in labels)


def test_labelled_errors_are_paired_by_their_dimensions(rng: np.random.Generator) -> None:
    """Of two arrays in other orders each error had been divided by the deviation of another row."""
    std = xr.DataArray(rng.uniform(0.1, 3, (5, 8, 9)), dims=("time", "lat", "lon"))
    std = std.assign_coords(lat=np.arange(8.0), lon=np.arange(9.0))
    wrong, turned = std * rng.normal(size=std.shape), std.transpose("lon", "time", "lat")
    side, east = std > 1, 0 * std + std.lon
    calls: list[Callable[[Any], Any]] = [
        lambda each: rs.plot.coverage(wrong, each(std)).lines[1],
        lambda each: rs.plot.coverage(wrong, std, by=each(side)).lines[1],
        lambda each: rs.plot.error_curve(std, each(wrong)).collections[0],
        lambda each: rs.plot.error_map(east, std, each(wrong), coasts=False).collections[0],
    ]
    for draw in calls:
        alike, other = draw(lambda each: each), draw(lambda each: each.transpose(*turned.dims))
        for drawn in ("get_label", "get_array", "get_offsets", "get_xydata"):
            if hasattr(alike, drawn):
                one, same = getattr(alike, drawn)(), getattr(other, drawn)()
                np.testing.assert_array_equal(same, one, err_msg=drawn)
    plt.close("all")
    assert rs.plot.coverage(wrong, std.drop_vars("lat")).lines  # as xarray pairs them
    assert rs.plot.coverage(wrong, std.values).lines
    plt.close("all")
    with pytest.raises(ValueError, match=r"std has the dimensions \{'lat': 8\}, but residuals has"):
        rs.plot.coverage(wrong, std.lat + 1)
    with pytest.raises(ValueError, match=r"other coordinates along 'lat': 7.0 and 0.0 at place 0"):
        rs.plot.coverage(wrong, std.isel(lat=slice(None, None, -1)))
    with pytest.raises(ValueError, match=r"std has the dimensions .*'lat': 7.* residuals has .*8"):
        rs.plot.coverage(wrong, std[:, :7])
    with pytest.raises(ValueError, match=r"by and residuals have other coordinates along 'lon'"):
        rs.plot.coverage(wrong, std, by=side.assign_coords(lon=side.lon + 0.5))


def test_errors_with_other_indexes_are_not_paired_by_place(rng: np.random.Generator) -> None:
    """As a fit and a score refuse y with another index than that of X."""
    pd = pytest.importorskip("pandas")
    wrong, std = pd.Series(rng.normal(size=9)), pd.Series(rng.uniform(1, 2, 9))
    assert rs.plot.coverage(wrong, std[::-1].to_numpy()).lines
    plt.close("all")
    for draw in (
        lambda std: rs.plot.coverage(wrong, std),
        lambda std: rs.plot.coverage(wrong, np.ones(9), by=std),
        lambda std: rs.plot.error_curve(wrong, std),
        lambda std: rs.plot.error_map(wrong, wrong, std, coasts=False),
    ):
        with pytest.raises(DataError, match=r"other indexes: 8 and 0 at place 0.*\.loc\["):
            draw(std[::-1])


def test_a_constant_column_depends_on_nothing() -> None:
    ax = rs.plot.dependence({"c": Dependence(0.0, 0.0, 1.0, ROWS)})
    assert ax.patches[0].get_height() == 1
    plt.close(ax.figure)


def test_the_line_of_a_slope_is_the_derivative_of_the_curve(shelf: Shelf) -> None:
    at, step = np.linspace(-1.5, 1.5, 31), 1e-4
    ax = rs.plot.slope(shelf.line, at=at)
    drawn = ax.lines[-1].get_ydata()
    above, below = (mean_of(shelf.line, (at + each)[:, None])[:, 0] for each in (step, -step))
    largest = np.abs(drawn).max()
    # Rows are float32: a difference of two means has 1e-7 of the fit, over 2e-4 of the step.
    np.testing.assert_allclose(drawn, (above - below) / (2 * step), atol=0.02 * largest)
    assert ax.get_ylabel() == "∂y/∂x0"
    plt.close(ax.figure)


@pytest.mark.parametrize("kind", [rs.KernelRidge, rs.GaussianProcessRegressor])
def test_a_slope_of_the_default_is_the_derivative_of_its_curve(kind: Any, rng: Any) -> None:
    """Cells have slopes and no coefficients; the picture asked for these."""
    x = rng.uniform(-2, 2, (300, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=300)
    model = kind(random_state=0, progress=False).fit(x, y)
    at, step = np.linspace(-1.5, 1.5, 31), 1e-4
    drawn = (ax := rs.plot.slope(model, at=at)).lines[-1].get_ydata()
    above, below = (mean_of(model, (at + each)[:, None])[:, 0] for each in (step, -step))
    np.testing.assert_allclose(drawn, (above - below) / (2 * step), atol=1e-3)
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        (pd.to_datetime(["2020-02-01", "2021-06-01"]), "ns"),
        (pd.to_datetime(["2020-02-01", "2021-06-01"]).tz_localize("UTC"), "s"),
        (pd.to_timedelta(["31D", "517D"]), "us"),
    ],
    ids=["times", "zone", "durations"],
)
def test_places_that_are_times_are_in_the_units_of_the_fit(given: Any, unit: str) -> None:
    """As they were, their ticks were taken for days: 1.58e9 and 1.58e18 were predicted at."""
    epoch = pd.Timestamp(0) if given.dtype.kind == "M" else pd.Timedelta(0)
    days = np.arange(17800.0, 19000.0) if given.dtype.kind == "M" else np.arange(0.0, 1200.0)
    table = pd.DataFrame({"when": epoch + pd.to_timedelta(days, unit="D"), "y": days})
    model = rs.KernelRidge(n_components=64, random_state=0, progress=False)
    model.fit(table, "y", inputs=["when"])
    at = pd.DataFrame({"when": given.as_unit(unit)})
    wanted = model.predict(at)
    places, means = rs.inspect.partial_dependence(model, "when", given.as_unit(unit))
    np.testing.assert_allclose(means[:, 0], wanted, rtol=1e-12)
    drawn = rs.plot.curve(model, at=given.as_unit(unit)).lines[-1]
    np.testing.assert_array_equal(drawn.get_xdata(), places)
    np.testing.assert_allclose(drawn.get_ydata(), wanted, rtol=1e-6)
    plt.close(drawn.axes.figure)
    with pytest.raises(DataError, match=r"'when' (is in|holds)"):
        rs.plot.slope(model, at=given - given if given.dtype.kind == "M" else pd.to_datetime([0]))
    plain = rs.KernelRidge(n_components=16, random_state=0, progress=False)
    plain.fit(days[:, None], days)
    with pytest.raises(DataError, match="'x0' holds times"):
        rs.inspect.partial_dependence(plain, "x0", given[:1])


def test_pictures_of_named_columns_say_nothing_of_names(rng: Any) -> None:
    """They ask the model about places of their own: a warning told the user to give names."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["u", "v"])
    novel = rs.NoveltyDetector(n_components=64, random_state=0, progress=False).fit(table)
    plt.close(rs.plot.novelty(novel).figure)
    labels = np.where(table.u > 0, "a", "b")
    model = rs.KernelClassifier(n_components=64, random_state=0, progress=False).fit(table, labels)
    plt.close(rs.plot.decision(model, data=(table.to_numpy(), labels)).figure)


def test_rows_with_names_are_taken_by_name(rng: np.random.Generator) -> None:
    """As predict takes them; pictures took columns by place, and said 57 % of 99.7 % were right."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["u", "v"])
    other, y = table[["v", "u"]], table.u + np.sin(table.v)
    kinds = np.where(table.u > 0, "a", "b")
    choices: dict[str, Any] = {"n_components": 64, "random_state": 0, "progress": False}
    sorter = rs.KernelClassifier(**choices).fit(table, kinds)
    model = rs.KernelRidge(**choices).fit(table, y)
    several = rs.KernelRidge(**choices).fit(table, np.column_stack([-y, y]))
    for each in (sorter, LogisticRegression().fit(table, kinds)):
        ax = rs.plot.decision(each, data=(other, kinds))
        assert ax.get_title() == f"300 rows, {each.score(table, kinds):.1%} right"
    error = np.sqrt(np.mean((model.predict(table) - y) ** 2))
    assert rs.plot.observed(model, X=other, y=y).get_title().endswith(f"RMSE {error:.3g}")
    assert rs.plot.observed(several, X=other, y=y, target=1).get_xlabel() == "observed y1"
    line = rs.KernelRidge(**choices).fit(table[["u"]], y)
    for x in (other, table.u, table.u.to_numpy()):
        drawn = rs.plot.curve(line, data=(x, y)).lines[0].get_xydata()
        np.testing.assert_array_equal(drawn, np.column_stack([table.u, y]))
    plt.close("all")
    with pytest.raises(DataError, match="X has no column 'v'; its columns are u, w"):
        rs.plot.observed(model, X=table.rename(columns={"v": "w"}), y=y)
    with pytest.raises(ValueError, match=r"data\[1\]=.* but it must be .* for each row, 300 of"):
        rs.plot.decision(sorter, data=(table, kinds[:9]))
    with pytest.raises(ValueError, match="No row has all inputs in X and a value in y"):
        rs.plot.observed(model, X=table, y=np.nan * y)


def test_rows_of_a_picture_hold_what_those_of_a_fit_may_hold(rng: np.random.Generator) -> None:
    """Dates were "no pair of arrays"; a cube was none, and y in another order was other rows."""
    pd = pytest.importorskip("pandas")
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.uniform(0, 99, 300), unit="D")
    table = pd.DataFrame({"u": rng.normal(size=300), "when": days})
    kinds = np.where(table.u > 0, "a", "b")
    choices: dict[str, Any] = {"n_components": 64, "random_state": 0, "progress": False}
    sorter = rs.KernelClassifier(**choices).fit(table, kinds)
    gap = table.assign(u=table.u.where(table.index > 8))
    ax = rs.plot.decision(sorter, data=(gap, kinds))
    assert ax.get_title() == f"291 rows, {sorter.score(table[9:], kinds[9:]):.1%} right"
    assert ax.get_ylabel() == "when [days since 1970-01-01]"
    with pytest.raises(DataError, match=r"'when' holds strings .* but the model was fitted on"):
        rs.plot.decision(sorter, data=(table.assign(when="today"), kinds))
    cube = xr.Dataset({"u": (("time", "lat"), rng.normal(size=(20, 9)))}, {"lat": np.arange(9.0)})
    cube["v"] = np.sin(cube.u) + cube.lat
    model = rs.KernelRidge(**choices).fit(cube, "v", inputs=["u", "lat"])
    error = float(np.sqrt(((model.predict(cube) - cube.v) ** 2).mean()))
    for y in (cube.v, cube.v.transpose("lat", "time")):
        assert rs.plot.observed(model, X=cube, y=y).get_title().endswith(f"RMSE {error:.3g}")
    plt.close("all")


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_picture_of_classes_is_of_the_score_that_it_names(
    loss: Any, classes: int, rng: np.random.Generator
) -> None:
    """It was that of the first class, under the name of y, with class numbers as rows."""
    x = rng.uniform(-2, 2, (300, 2))
    label = np.array(["dry", "damp", "wet"])[np.digitize(x[:, 0], (0, 1)) % classes]
    choices: dict[str, Any] = {"n_components": 64, "random_state": 0, "progress": False}
    line = rs.KernelClassifier(loss, **choices).fit(x[:, :1], label)
    plane = rs.KernelClassifier(loss, **choices).fit(x, label)
    at = np.linspace(-1, 1, 9)
    scores = line.decision_function(at[:, None]).reshape(9, -1)
    for target, name in enumerate(line.classes_ if classes > 2 else line.classes_[1:]):
        ax = rs.plot.curve(line, at=at, target=target)
        assert (ax.get_ylabel(), len(ax.lines)) == (f"score of {name}", 1)
        np.testing.assert_allclose(ax.lines[0].get_ydata(), scores[:, target], rtol=1e-9)
        assert rs.plot.slope(line, target=target).get_ylabel() == f"∂ score of {name}/∂x0"
        drawn = rs.plot.surface(plane, target=target).collections[0]
        assert drawn.colorbar.ax.get_ylabel() == f"score of {name}"
        low, high = (
            plane.moments_.sample.rows[:, :2].min(0),
            plane.moments_.sample.rows[:, :2].max(0),
        )
        corners = plane.decision_function(np.stack([low, high])).reshape(2, -1)[:, target]
        np.testing.assert_allclose(drawn.get_array().ravel()[[0, -1]], corners, rtol=1e-9)
        plt.close("all")
    for picture, model in ((rs.plot.curve, line), (rs.plot.surface, plane)):
        with pytest.raises(ValueError, match=f"from 0 to {classes - 1 - (classes == 2)}, of a"):
            picture(model, target=3)
    with pytest.raises(ValueError, match=r"data holds classes, .* Leave data out"):
        rs.plot.curve(line, data=(x[:, :1], label))


def test_a_model_that_a_picture_does_not_serve_is_told_another(
    shelf: Shelf, rng: np.random.Generator
) -> None:
    """Scores stood against class numbers with an RMSE; residuals of counts were of logarithms."""
    with pytest.raises(ModelError, match=r"predicts classes, and this .* Use plot\.confusion"):
        rs.plot.observed(shelf.sorter)
    with pytest.raises(ModelError, match=r"predicts classes, .* Use model\.scores"):
        rs.plot.residuals(shelf.sorter, shelf.folds)
    count = rng.poisson(np.exp(shelf.y)).astype(float)
    counts = rs.KernelRegressor("poisson", n_components=64, random_state=0, progress=False)
    counts.fit(shelf.x, count)
    with pytest.raises(ModelError, match=r"fits the logarithm of a mean, .* Use model\.residuals"):
        rs.plot.residuals(counts, {"all": counts.moments_})
    for picture, model in (
        (rs.plot.curve, shelf.bump), (rs.plot.slope, shelf.bump), (rs.plot.surface, shelf.cloud),
        (rs.plot.observed, shelf.detector), (rs.plot.observed, shelf.pca),
    ):  # fmt: skip
        with pytest.raises(ModelError, match="fits no function of rows"):
            picture(model)


@pytest.mark.parametrize("loss", ["poisson", "negative_binomial"])
def test_a_slope_of_a_logarithm_says_so(loss: Any, rng: np.random.Generator) -> None:
    """It was named ∂y/∂x0, whose largest value was 7.9 where 2.1 was drawn."""
    x = rng.uniform(-2, 2, 300)
    count = rng.poisson(np.exp(1 + np.sin(2 * x))).astype(float)
    data = xr.Dataset({"y": ("row", count, {"units": "mm"})})
    data["x"] = "row", x, {"units": "m"}
    model = rs.KernelRegressor(loss, n_components=64, random_state=0, progress=False)
    model.fit(data, "y", inputs=["x"])
    at, step = np.linspace(-1.5, 1.5, 31), 1e-3
    ax = rs.plot.slope(model, at=at)
    assert ax.get_ylabel() == "∂ log E y/∂x [1/m]"
    drawn = ax.lines[-1].get_ydata()
    above, below = (np.log(mean_of(model, (at + each)[:, None])[:, 0]) for each in (step, -step))
    # Of float32 rows: see the line of a slope.
    np.testing.assert_allclose(drawn, (above - below) / (2 * step), atol=0.02 * np.abs(drawn).max())
    plt.close(ax.figure)


def test_a_target_counted_from_the_end_has_its_own_unit(rng: np.random.Generator) -> None:
    sea = xr.Dataset({"depth": ("row", rng.uniform(0, 9, 100), {"units": "m"})})
    for name, unit in (("temp", "K"), ("salt", "g/kg")):
        sea[name] = "row", rng.normal(size=100), {"units": unit}
    model = rs.KernelRidge(n_components=16, random_state=0, progress=False)
    model.fit(sea, ["temp", "salt"], inputs=["depth"])
    assert rs.plot.curve(model, target=-1).get_ylabel() == "salt [g/kg]"
    assert rs.plot.slope(model, target=-1).get_ylabel() == "∂salt/∂depth [g/kg/m]"
    plt.close("all")


def test_a_slope_has_the_units_of_its_columns(rng: np.random.Generator) -> None:
    depth = rng.uniform(0, 100, 200)
    sea = xr.Dataset(
        {
            "temp": ("row", np.sin(depth / 20), {"units": "K"}),
            "depth": ("row", depth, {"units": "m"}),
        }
    )
    model = rs.KernelRidge(n_components=32, length_scale=30.0, random_state=0, progress=False)
    ax = rs.plot.slope(model.fit(sea, "temp", inputs=["depth"]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth [m]", "∂temp/∂depth [K/m]")
    plt.close(ax.figure)


def test_partial_dependence_draws_what_inspect_returns(shelf: Shelf) -> None:
    values, mean = rs.inspect.partial_dependence(shelf.plane, "x0", 7)
    ax = rs.plot.partial_dependence(shelf.plane, "x0", grid=7)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.column_stack([values, mean[:, 0]]))
    rows = shelf.plane.moments_.sample.rows[:, 0]
    deciles = np.quantile(rows, np.linspace(0.1, 0.9, 9))
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), deciles)
    plt.close(ax.figure)


def test_partial_dependence_of_a_grid_in_any_order_is_one_picture(shelf: Shelf) -> None:
    """A falling grid had no ticks: they stand between its first and its last value."""
    rising, falling, mixed = (
        rs.plot.partial_dependence(shelf.plane, "x0", grid=grid)
        for grid in ([-1.5, 0, 1.5], [1.5, 0, -1.5], [0, 1.5, -1.5])
    )
    assert len(rising.lines[1].get_xdata()) > 4
    for other in (falling, mixed):
        for one, same in zip(rising.lines, other.lines, strict=True):
            np.testing.assert_allclose(same.get_xydata(), one.get_xydata(), rtol=1e-12)
    plt.close("all")


def test_regions_of_a_decision_are_what_is_predicted(rng: np.random.Generator) -> None:
    """Of any classifier with scikit-learn's methods; the line is where its score is 0."""
    rows = rng.uniform(-1, 1, (300, 2))
    label = np.array(["dry", "wet"])[(rows @ (1, 2) > 0.4).astype(int)]
    model = LogisticRegression(C=1e6).fit(rows, label)
    ax = rs.plot.decision(model, data=(rows, label))
    line = ax.collections[-1].get_paths()[0].vertices
    assert len(line) > 50
    # A linear score is interpolated without error between points of the grid.
    np.testing.assert_allclose(
        model.decision_function(line), 0, atol=1e-6 * np.abs(model.coef_).max()
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["dry", "wet"]
    assert ax.get_title() == f"300 rows, {model.score(rows, label):.1%} right"
    three = LogisticRegression().fit(rows, np.digitize(rows[:, 0], (-0.3, 0.3)))
    assert rs.plot.decision(three, box=np.array([[-1, -1], [1, 1]])).get_xlim() == (-1, 1)
    with pytest.raises(ValueError, match=r"margins=.-1, 1. but the model has 3 classes"):
        rs.plot.decision(three, data=(rows, label), margins=(-1, 1))
    many = LogisticRegression().fit(rows, np.arange(300) % 7)
    with pytest.raises(ValueError, match=r"7 classes, and this picture has 6 colours"):
        rs.plot.decision(many, data=(rows, label))
    wide = LogisticRegression().fit(np.column_stack([rows, rows]), label)
    with pytest.raises(ValueError, match=r"has 4 inputs, and this picture shows 2"):
        rs.plot.decision(wide)
    plt.close("all")


def test_rows_of_a_class_that_the_fit_did_not_see_are_drawn(shelf: Shelf) -> None:
    """They were counted in the title, and nowhere in the picture."""
    new = shelf.x[:, 1] > 0
    for kinds in (np.where(new, "above", shelf.kinds), np.where(new, 7, shelf.kinds.astype("O"))):
        ax = rs.plot.decision(shelf.sorter, Figure().subplots(), data=(shelf.x, kinds))
        words = [text.get_text() for text in ax.get_legend().get_texts()]
        assert words == ["left", "right", f"not in the fit: {new.sum()} rows"]
        drawn = np.concatenate([line.get_xydata() for line in ax.lines])
        assert sorted(map(tuple, drawn)) == sorted(map(tuple, shelf.x))
        right = np.mean(shelf.sorter.predict(shelf.x) == kinds)
        assert ax.get_title() == f"600 rows, {right:.1%} right"


def test_partial_dependence_of_levels_has_a_dot_for_each(rng):
    frame = pd.DataFrame({"u": rng.normal(size=300), "city": rng.choice(["Oslo", "Rome"], 300)})
    y = frame["u"] + 3 * (frame["city"] == "Oslo")
    model = rs.KernelRidge(n_components=64, random_state=0, progress=False).fit(frame, y)
    ax = rs.plot.partial_dependence(model, "city", Figure().subplots())
    assert [each.get_text() for each in ax.get_xticklabels()] == ["Oslo", "Rome"]
    (dots,) = ax.get_lines()
    np.testing.assert_allclose(-np.diff(dots.get_ydata()), 3, atol=0.2)
    assert ax.get_xlabel() == "city" and dots.get_linestyle() == "None"
