"""All pictures of ``docs/_static``: ``python docs/pictures.py`` or ``… flow coverage`` for some.

Each has a light and a dark form, ``name.png`` and ``name-dark.png``; the site shows the one that
suits the reader's colours. Values are in cividis, differences in red and blue, lines in the
colours of Okabe & Ito: the same as in ``rff_stream.plot``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image
from scipy.special import ndtri

import rff_stream as rs
from rff_stream.plot.canvas import COLOURS, GREY, on_paper, plain_ticks

HERE = Path(__file__).resolve().parent
STATIC = HERE / "_static"
NOTEBOOKS = HERE.parent / "notebooks"

PAPER, INK = "#131416", "#CFD0D0"
"""Background and text of the dark site (Furo)."""

Drawing = Callable[..., Figure]
"""Draws what was computed before, in the colours that are set; ``narrow`` for a phone."""

NARROW = {"map", "cells", "coverage"}
"""Pictures that have a form for a phone, too: panels below each other, whose words are read."""

STEPS = (
    ("rows", "Zarr, NetCDF, Parquet,\nNumPy, Dask, xarray,\npandas, polars, Arrow"),
    ("features", "a map of each row,\nz(x) with R columns:\nFourier, Nyström, cells"),
    ("moments", "Σzzᵀ, Σzy, Σyyᵀ, Σw:\nR² numbers,\nfor any number of rows"),
    ("answers", "ridge, Gaussian process,\ncross-validation, classes,\ndensity, drift"),
)
NOTES = ("read once, in slabs", "in each thread", "add; saved as a store")

SIZES = (10_000, 30_000, 100_000, 300_000)
COMPONENTS = 512


def flow() -> Drawing:
    """How data flow: rows, features, moments, answers."""

    def draw() -> Figure:
        figure, ax = plt.subplots(figsize=(12.8, 3.0), dpi=100, layout="constrained")
        paper = plt.rcParams["figure.facecolor"]
        for i, (title, words) in enumerate(STEPS):
            box = FancyBboxPatch(
                (i, 0), 0.74, 1, boxstyle="round,pad=0.02", fc=paper, ec=COLOURS[0], lw=2
            )
            ax.add_patch(box)
            ax.text(i + 0.37, 0.84, title, ha="center", va="center", fontsize=16, weight="bold")
            ax.text(i + 0.37, 0.38, words, ha="center", va="center", fontsize=12.5, linespacing=1.5)
        for i, words in enumerate(NOTES):
            arrow = FancyArrowPatch(
                (i + 0.77, 0.5), (i + 0.97, 0.5), arrowstyle="-|>", mutation_scale=22,
                color=COLOURS[1],
            )  # fmt: skip
            ax.add_patch(arrow)
            ax.text(i + 0.87, -0.14, words, ha="center", va="center", fontsize=11.5)
        ax.set(xlim=(-0.04, 3.8), ylim=(-0.25, 1.06))
        ax.axis("off")
        return figure

    return draw


def coverage() -> Drawing:
    """Errors of held-out rows of the demo's cube: histogram, coverage, map."""
    from rff_stream.demo import Cube

    data = Cube(n_days=40).block(0, 40)
    inputs, target = ["lat", "lon", "time"], "sea_surface_temperature"
    model = rs.GaussianProcessRegressor(
        n_components=1024, missing_rows="drop", random_state=0, length_scale="ard", progress=False
    )
    model.fit(data, target, inputs=inputs, where=[rs.HoldOut(0.1)])
    from rff_stream.plot.canvas import mean_of, std_of
    from rff_stream.report import assess

    test = assess(model, data, where=[rs.HoldOut(0.1, part="test")])
    errors = (test.y - mean_of(model, test.x))[:, 0]
    std = std_of(model, test.x, noise=True)
    assert std is not None
    spread = std[:, 0]

    def draw(narrow: bool = False) -> Figure:
        shape, size = ((3, 1), (5.0, 10.5)) if narrow else ((1, 3), (12.8, 3.8))
        dpi = 80 if narrow else 100
        figure, axes = plt.subplots(*shape, figsize=size, dpi=dpi, layout="constrained")
        words = "observed − predicted [K]"
        rs.plot.histogram(errors, axes[0], label=words)
        rs.plot.coverage(errors, spread, axes[1])
        rs.plot.error_map(
            test.x[:, 1], test.x[:, 0], errors, axes[2], label=words, coasts=False
        )  # fmt: skip
        return figure

    return draw


FITS = {
    "scikit-learn: RBFSampler + Ridge": """
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
import zarr
group = zarr.open_group(path, mode="r")
x, y = group["x"][:], group["y"][:]
make_pipeline(RBFSampler(gamma=0.05, n_components={R}, random_state=0), Ridge(1.0)).fit(x, y)
""",
    "rff_stream.KernelRidge": """
import rff_stream as rs
model = rs.KernelRidge(n_components={R}, length_scale=3.2, alpha=1.0, random_state=0,
                       features="fourier", progress=False)
model.fit(path, "y", inputs=["x"])
""",
}


def speed() -> Drawing:
    """CPU time and memory of whole processes, from Zarr, beside scikit-learn."""
    import zarr

    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            rng = np.random.default_rng(n)
            group = zarr.open_group(f"{folder}/{n}.zarr", mode="w")
            x = rng.normal(size=(n, 8)).astype(np.float32)
            group.create_array("x", data=x, chunks=(10_000, 8))
            group.create_array("y", data=np.sin(x[:, 0]) + x[:, 1] ** 2, chunks=(10_000,))
        for name, code in FITS.items():
            measured[name] = [
                process(f"path = '{folder}/{n}.zarr'" + code.format(R=COMPONENTS)) for n in SIZES
            ]
            print(name, [f"{s:.2f} s, {p / 2**20:.0f} MiB" for s, p in measured[name]])

    def draw() -> Figure:
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(12.8, 4.2), dpi=100, layout="constrained"
        )
        for colour, (name, found) in zip((COLOURS[1], COLOURS[0]), measured.items(), strict=True):
            seconds, peak = zip(*found, strict=True)
            left.loglog(SIZES, seconds, "o-", color=colour, label=name)
            right.loglog(SIZES, np.array(peak) / 2**20, "o-", color=colour, label=name)
        left.set(xlabel="rows", ylabel="CPU seconds of the process")
        right.set(xlabel="rows", ylabel="peak memory of the process [MiB]")
        for ax in (left, right):
            ax.grid(color=GREY, alpha=0.3, lw=0.5)
            ax.set_xticks(SIZES, [f"{n:,}" for n in SIZES])
            ax.minorticks_off()
            plain_ticks(ax.yaxis)
            ax.legend()
        left.set_title(f"8 inputs, R = {COMPONENTS}, from Zarr, one thread", fontsize="medium")
        return figure

    return draw


def process(code: str) -> tuple[float, float]:
    """CPU seconds and peak bytes of a fresh process that runs some code."""
    tail = "\nimport resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    tail += "\nprint(next(l.split()[1] for l in open('/proc/self/status') if 'VmHWM' in l))"
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + tail], env=os.environ | alone, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    seconds, kilobytes = done.stdout.split()[-2:]
    return float(seconds), float(kilobytes) * 1024


def living() -> Drawing:
    """The last picture of notebook 05, which is run for each form: half a minute."""

    def draw() -> Figure:
        code = (NOTEBOOKS / "05_a_model_that_lives.py").read_text(encoding="utf-8")
        exec(compile(code.replace("plt.show()", ""), "notebook 05", "exec"), {})
        return plt.gcf()

    return draw


def map_() -> Drawing:
    """What the first lines of Python in the README give: a minute."""
    code = (HERE.parent / "README.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code.split("```python\n")[1].split("```")[0], "README", "exec"), found)
        found["std"].load()
    day, error, std = found["day"], found["error"].load()[0], found["std"][0]
    sea = day["sea_surface_temperature"][0]
    seen = found["seen"].loc[day["time"].values].reset_index()
    inside = abs(error) < ndtri(0.975) * std
    unseen = sea.notnull() & ~sea.stack(cell=("lat", "lon")).cell.isin(
        [*zip(seen["lat"], seen["lon"], strict=True)]
    ).unstack("cell")  # fmt: skip
    rmse = float((error.where(unseen) ** 2).mean() ** 0.5)
    covered = float(inside.where(unseen).sum() / unseen.sum())
    print(f"not read: RMSE {rmse:.3f} K, inside 95 %: {covered:.1%}")

    def draw(narrow: bool = False) -> Figure:
        shape, size = ((4, 1), (5.0, 11.6)) if narrow else ((2, 2), (12.8, 6.4))
        figure, axes = plt.subplots(*shape, figsize=size, dpi=80, layout="constrained")
        panels = axes.ravel()
        limits = float(sea.min()), float(sea.max())
        blank = sea.where(False).assign_attrs(sea.attrs)
        rs.plot.surface(blank, panels[0], limits=limits)
        panels[0].scatter(seen["lon"], seen["lat"], c=seen[sea.name], s=5, cmap="cividis",
                          vmin=limits[0], vmax=limits[1])  # fmt: skip
        panels[0].set_title("read: a tenth of the cells, on this day and 19 others")
        mean = found["mean"][0].where(sea.notnull()).assign_attrs(sea.attrs)
        rs.plot.surface(mean, panels[1], limits=limits)
        panels[1].set_title("predicted")
        spread = std.where(sea.notnull()).assign_attrs(units="K", long_name="standard deviation")
        rs.plot.surface(spread, panels[2])
        panels[2].set_title("standard deviation of a new observation")
        rs.plot.surface(error.assign_attrs(units="K", long_name="predicted − observed"), panels[3],
                        center=0)  # fmt: skip
        gap, words = "\n" if narrow else " ", "of which the noise is 0.30"
        panels[3].set_title(f"error; where nothing was read {rmse:.2f} K,{gap}{words}")
        return figure

    return draw


def cells() -> Drawing:
    """Cells of a tree over a satellite image, and the seams of one tree and of six."""
    data = np.load(data_folder() / "heaton_sim.npz")
    X, y = data["X"].astype(float), data["y"].astype(float)
    seen = np.isfinite(y)
    X, y = X[seen], y[seen]
    low, high = X.min(axis=0), X.max(axis=0)
    lon, lat = (np.linspace(a, b, n) for a, b, n in zip(low, high, (500, 300), strict=True))
    grid = np.stack(np.meshgrid(lon, lat), axis=-1).reshape(-1, 2)
    extent = (low[0], high[0], low[1], high[1])
    images = {}
    for trees in (1, 6):
        model = rs.KernelRidge(
            rs.Matern(nu=1.5, length_scale=0.15), features=rs.Cells(24, trees, 64), alpha=0.1,
            random_state=0, progress=False,
        ).fit(X, y)  # fmt: skip
        images[trees] = model.predict(grid).reshape(300, 500)
    cell = model.features_.route(grid)[0].reshape(300, 500)
    mixed = np.random.default_rng(1).permutation(64)[cell]
    edges = (np.diff(cell, axis=0, append=cell[-1:]) != 0) | (
        np.diff(cell, axis=1, append=cell[:, -1:]) != 0
    )

    def draw(narrow: bool = False) -> Figure:
        shape, size = ((3, 1), (5.0, 8.4)) if narrow else ((1, 3), (12.8, 3.1))
        dpi = 80 if narrow else 100
        figure, axes = plt.subplots(*shape, figsize=size, dpi=dpi, layout="constrained")
        style: dict[str, Any] = {"origin": "lower", "extent": extent, "aspect": "auto"}
        axes[0].imshow(mixed, cmap="cividis", **style)
        axes[0].imshow(np.ma.masked_equal(edges, False), cmap="gray", vmin=0, vmax=1, **style)
        axes[0].set_title("64 cells of one tree, equal in rows")
        low_y, high_y = np.quantile(y, [0.01, 0.99])
        for ax, (trees, image) in zip(axes[1:], images.items(), strict=True):
            shown = ax.imshow(image, cmap="cividis", vmin=low_y, vmax=high_y, **style)
            words = "one tree: seams between cells" if trees == 1 else f"the mean of {trees} trees"
            ax.set_title(words)
        figure.colorbar(shown, ax=axes[1:], label="°C")
        return figure

    return draw


def air() -> Drawing:
    """One hour of the air temperature of North America, fitted with a tenth of all cells apart."""
    import xarray as xr

    source = xr.open_zarr(data_folder() / "air_temperature.zarr", consolidated=False)
    truth = source["air"].isel(time=slice(0, 160)).load().astype("float64")
    hours = 6.0 * np.arange(truth.sizes["time"])
    axes = np.meshgrid(hours, truth.lat, truth.lon, indexing="ij")
    X, y = np.stack([axis.ravel() for axis in axes], axis=1), truth.values.ravel()
    apart = np.random.default_rng(0).random(len(y)) < 0.1
    truth.attrs = {"units": "K", "long_name": "temperature"}
    when, limits = 61, (float(truth[61].min()), float(truth[61].max()))
    shown = {"truth": truth[when]}
    known = {"random_state": 0, "progress": False, "kernel": "matern", "length_scale": "ard"}
    maps = {"one map": "whole", "cells": rs.Cells(128, 3)}
    for title, features in maps.items():
        model = rs.KernelRidge(features=features, **known).fit(X[~apart], y[~apart])
        error = np.sqrt(np.mean((model.predict(X[apart]) - y[apart]) ** 2))
        own = model.predict(X.reshape(*truth.shape, 3)[when].reshape(-1, 3))
        image = truth[when].copy(data=own.reshape(truth[when].shape))
        shown[f"{title}: {error:.2f} K where kept apart"] = image

    def draw() -> Figure:
        figure, panels = plt.subplots(1, 3, figsize=(12.8, 3.0), dpi=85, layout="constrained")
        figure.get_layout_engine().set(wspace=0.06)  # a label of one panel is not one of the next
        for ax, (title, image) in zip(panels, shown.items(), strict=True):
            rs.plot.surface(image, ax, limits=limits)
            ax.set_title(title)
            rs.plot.coastlines(ax)
        return figure

    return draw


def data_folder() -> Path:
    """Where the data sets of the pictures are."""
    return Path(os.environ.get("RFF_STREAM_DATA", HERE.parent / "shared" / "data"))


def hermite() -> Drawing:
    """Hermite against random features: some minutes."""
    sys.path.insert(0, str(HERE.parent))
    from tests.accuracy import hermite as script

    table = script.measured()
    return lambda: script.draw(table)


FLOOR_LETTERS = 100
"""Letters of a line of rooms."""


def floors() -> Drawing:
    """Rooms by the longest chain of imports below each, read from the package."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import shape

    rows: dict[int, list[str]] = {}
    for room, level in shape.floors().items():
        rows.setdefault(level, []).append(room)

    def draw() -> Figure:
        figure, axes = plt.subplots(figsize=(8, 0.33 * len(rows) + 0.2), layout="constrained")
        for level, rooms in rows.items():
            axes.axhspan(level - 0.42, level + 0.42, color=COLOURS[0], alpha=0.12, linewidth=0)
            lines = textwrap.wrap("   ".join(rooms), FLOOR_LETTERS)
            axes.text(0.5, level, "\n".join(lines), ha="center", va="center", fontsize=8)
        axes.set(xlim=(0, 1), ylim=(-0.6, max(rows) + 0.6))
        axes.axis("off")
        return figure

    return draw


def report() -> None:
    """The demo's report on a wide screen and on a phone; needs Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("No Chromium was found on PATH, which takes the pictures of the report.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "demo" / "report.html"
        words = ["-m", "rff_stream", "demo", "--days", "20", "--output", page.parent]
        subprocess.run([sys.executable, *words], check=True)
        for width, height in ((1280, 3600), (390, 5200)):
            for form, number in (("", 1), ("-dark", 0)):  # of Chromium's preferredColorScheme
                shot = STATIC / f"report-{width}{form}.png"
                subprocess.run(
                    [browser, "--headless", "--no-sandbox", "--hide-scrollbars",
                     f"--blink-settings=preferredColorScheme={number}", f"--screenshot={shot}",
                     f"--window-size={width},{height}", page.as_uri()],
                    check=True, capture_output=True,
                )  # fmt: skip
                trim(shot)
                in_few_colours(shot)


def trim(path: Path) -> None:
    """Cut the empty rows at the end of a picture."""
    pixels = plt.imread(path)[..., :3]
    used = np.flatnonzero((abs(pixels - pixels[-1, 0]) > 0.02).any(axis=(1, 2)))
    plt.imsave(path, pixels[: used[-1] + 24])


def keep(draw: Drawing, name: str) -> None:
    """Save both forms of a picture."""
    for form, colours in (("", {}), ("-dark", on_paper(PAPER, INK))):
        for narrow in (False, True)[: 1 + (name in NARROW)]:
            path = STATIC / f"{name}{'-narrow' if narrow else ''}{form}.png"
            with plt.rc_context(colours):
                (draw(narrow=True) if narrow else draw()).savefig(path)
                plt.close("all")
            in_few_colours(path)


def in_few_colours(path: Path) -> None:
    """Write a picture again in no more colours than an eye tells apart."""
    with Image.open(path) as whole:
        few = whole.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


PICTURES: dict[str, Callable[[], Drawing]] = {
    "flow": flow, "coverage": coverage, "speed": speed, "living": living, "map": map_,
    "cells": cells, "air": air, "hermite": hermite, "floors": floors,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or (*PICTURES, "report"):
        if name == "report":
            report()
        else:
            keep(PICTURES[name](), name)
