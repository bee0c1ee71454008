"""All pictures of ``docs/_static``: ``python docs/pictures.py`` or ``… flow coverage`` for some."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image

import rff_stream as rs
from rff_stream.plot.canvas import COLOURS, GREY, plain_ticks

HERE = Path(__file__).resolve().parent
STATIC = HERE / "_static"
NOTEBOOKS = HERE.parent / "notebooks"

STEPS = (
    ("rows", "Zarr, NetCDF, Parquet,\nNumPy, Dask, xarray,\npandas, polars, Arrow"),
    ("features", "a map of each row,\nz(x) with R columns:\nFourier, Nyström, cells"),
    ("moments", "Σzzᵀ, Σzy, Σyyᵀ, Σw:\nR² numbers,\nfor any number of rows"),
    ("answers", "ridge, Gaussian process,\ncross-validation, classes,\ndensity, drift"),
)
NOTES = ("read once, in slabs", "in each thread", "add; saved as a store")

SIZES = (10_000, 30_000, 100_000, 300_000)
COMPONENTS = 512


def flow() -> None:
    """How data flow: rows, features, moments, answers."""
    figure, ax = plt.subplots(figsize=(12.8, 3.0), dpi=100, layout="constrained")
    for i, (title, words) in enumerate(STEPS):
        box = FancyBboxPatch(
            (i, 0), 0.74, 1, boxstyle="round,pad=0.02", fc="white", ec=COLOURS[0], lw=2
        )
        ax.add_patch(box)
        ax.text(i + 0.37, 0.84, title, ha="center", va="center", fontsize=16, weight="bold")
        ax.text(i + 0.37, 0.38, words, ha="center", va="center", fontsize=12.5, linespacing=1.5)
    for i, words in enumerate(NOTES):
        arrow = FancyArrowPatch(
            (i + 0.77, 0.5), (i + 0.97, 0.5), arrowstyle="-|>", mutation_scale=22, color=COLOURS[1]
        )
        ax.add_patch(arrow)
        ax.text(i + 0.87, -0.14, words, ha="center", va="center", fontsize=11.5, color="#333333")
    ax.set(xlim=(-0.04, 3.8), ylim=(-0.25, 1.06))
    ax.axis("off")
    figure.savefig(STATIC / "flow.png")


def coverage() -> None:
    """Errors of held-out rows of the demo's cube: histogram, coverage, map."""
    from rff_stream.demo.cube import Cube

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
    figure, axes = plt.subplots(1, 3, figsize=(12.8, 3.8), dpi=100, layout="constrained")
    rs.plot.histogram(errors, axes[0], label="observed − predicted [K]")
    rs.plot.coverage(errors, std[:, 0], axes[1])
    rs.plot.error_map(
        test.x[:, 1], test.x[:, 0], errors, axes[2], label="observed − predicted [K]", coasts=False
    )
    figure.savefig(STATIC / "coverage.png")


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


def speed() -> None:
    """CPU time and memory of whole processes, from Zarr, beside scikit-learn."""
    import zarr

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.8, 4.2), dpi=100, layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            rng = np.random.default_rng(n)
            group = zarr.open_group(f"{folder}/{n}.zarr", mode="w")
            x = rng.normal(size=(n, 8)).astype(np.float32)
            group.create_array("x", data=x, chunks=(10_000, 8))
            group.create_array("y", data=np.sin(x[:, 0]) + x[:, 1] ** 2, chunks=(10_000,))
        for colour, (name, code) in zip((COLOURS[1], COLOURS[0]), FITS.items(), strict=True):
            found = [
                process(f"path = '{folder}/{n}.zarr'" + code.format(R=COMPONENTS)) for n in SIZES
            ]
            seconds, peak = zip(*found, strict=True)
            left.loglog(SIZES, seconds, "o-", color=colour, label=name)
            right.loglog(SIZES, np.array(peak) / 2**20, "o-", color=colour, label=name)
            print(name, [f"{s:.2f} s, {p / 2**20:.0f} MiB" for s, p in found])
    left.set(xlabel="rows", ylabel="CPU seconds of the process")
    right.set(xlabel="rows", ylabel="peak memory of the process [MiB]")
    for ax in (left, right):
        ax.grid(color=GREY, alpha=0.3, lw=0.5)
        ax.set_xticks(SIZES, [f"{n:,}" for n in SIZES])
        ax.minorticks_off()
        plain_ticks(ax.yaxis)
        ax.legend()
    left.set_title(f"8 inputs, R = {COMPONENTS}, from Zarr, one thread", fontsize="medium")
    figure.savefig(STATIC / "speed.png")


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


def living() -> None:
    """The last picture of the executed notebook 05."""
    cells = json.loads((NOTEBOOKS / "05_a_model_that_lives.ipynb").read_text())["cells"]
    drawn = [
        output["data"]["image/png"]
        for cell in cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    (STATIC / "living.png").write_bytes(base64.b64decode(drawn[-1]))


def map_() -> None:
    """The map of notebook 08, which is run: some minutes, and its data set."""
    code = (NOTEBOOKS / "08_a_map_of_real_data.py").read_text()
    code = code.replace("dpi=62", "dpi=80").replace("plt.show()", "plt.savefig(PICTURE)")
    exec(compile(code, "notebook 08", "exec"), {"PICTURE": STATIC / "map.png"})


def cells() -> None:
    """Cells of a tree over a satellite image, and the seams of one tree and of six."""
    data = np.load(data_folder() / "heaton_sim.npz")
    X, y = data["X"].astype(float), data["y"].astype(float)
    seen = np.isfinite(y)
    X, y = X[seen], y[seen]
    low, high = X.min(axis=0), X.max(axis=0)
    lon, lat = (np.linspace(a, b, n) for a, b, n in zip(low, high, (500, 300), strict=True))
    grid = np.stack(np.meshgrid(lon, lat), axis=-1).reshape(-1, 2)
    extent = (low[0], high[0], low[1], high[1])
    figure, axes = plt.subplots(1, 3, figsize=(12.8, 3.1), dpi=100, layout="constrained")
    for ax, trees in zip(axes[1:], (1, 6), strict=True):
        model = rs.KernelRidge(
            rs.Matern(nu=1.5, length_scale=0.15), features=rs.Cells(24, trees, 64), alpha=0.1,
            random_state=0, progress=False,
        ).fit(X, y)  # fmt: skip
        image = model.predict(grid).reshape(300, 500)
        shown = ax.imshow(image, origin="lower", extent=extent, aspect="auto", cmap="turbo",
                          vmin=np.quantile(y, 0.01), vmax=np.quantile(y, 0.99))  # fmt: skip
        words = "one tree: seams between cells" if trees == 1 else f"the mean of {trees} trees"
        ax.set_title(words)
    figure.colorbar(shown, ax=axes[1:], label="°C")
    cell = model.features_.route(grid)[0].reshape(300, 500)
    mixed = np.random.default_rng(1).permutation(64)[cell]
    axes[0].imshow(mixed, origin="lower", extent=extent, aspect="auto", cmap="tab20")
    axes[0].set_title("64 cells of one tree, equal in rows")
    figure.savefig(STATIC / "cells.png")
    with Image.open(STATIC / "cells.png") as whole:
        whole.convert("RGB").quantize(128).save(STATIC / "cells.png", optimize=True)


def air() -> None:
    """One hour of the air temperature of North America, fitted with a tenth of all cells apart."""
    import xarray as xr

    source = xr.open_zarr(data_folder() / "air_temperature.zarr", consolidated=False)
    truth = source["air"].isel(time=slice(0, 160)).load().astype("float64")
    hours = 6.0 * np.arange(truth.sizes["time"])
    axes = np.meshgrid(hours, truth.lat, truth.lon, indexing="ij")
    X, y = np.stack([axis.ravel() for axis in axes], axis=1), truth.values.ravel()
    apart = np.random.default_rng(0).random(len(y)) < 0.1
    figure, panels = plt.subplots(1, 3, figsize=(12.8, 3.0), dpi=85, layout="constrained")
    truth.attrs = {"units": "K", "long_name": "temperature"}
    when, limits = 61, (float(truth[61].min()), float(truth[61].max()))
    rs.plot.surface(truth[when], panels[0], limits=limits)
    panels[0].set_title("truth")
    known = {"random_state": 0, "progress": False, "kernel": "matern", "length_scale": "ard"}
    maps = {"one map": "whole", "cells": rs.Cells(128, 3)}
    for ax, (title, features) in zip(panels[1:], maps.items(), strict=True):
        model = rs.KernelRidge(features=features, **known).fit(X[~apart], y[~apart])
        error = np.sqrt(np.mean((model.predict(X[apart]) - y[apart]) ** 2))
        own = X.reshape(*truth.shape, 3)[when].reshape(-1, 3)
        rs.plot.surface(truth[when].copy(data=model.predict(own).reshape(truth[when].shape)), ax,
                        limits=limits)  # fmt: skip
        ax.set_title(f"{title}: {error:.2f} K where kept apart")
    for ax in panels:
        rs.plot.coastlines(ax)
    figure.savefig(STATIC / "air.png")


def data_folder() -> Path:
    """Where the data sets of the pictures are."""
    return Path(os.environ.get("RFF_STREAM_DATA", HERE.parent / "shared" / "data"))


def hermite() -> None:
    """Hermite against random features: some minutes."""
    script = HERE.parent / "tests" / "accuracy" / "hermite.py"
    subprocess.run([sys.executable, script, "--plot", STATIC / "hermite.png"], check=True)


def report() -> None:
    """The demo's report on a wide screen and on a phone; needs Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("No Chromium was found on PATH, which takes the pictures of the report.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "demo" / "report.html"
        words = ["-m", "rff_stream", "demo", "--days", "20", "--output", page.parent]
        subprocess.run([sys.executable, *words], check=True)
        for width, height in ((1280, 2900), (390, 5200)):
            shot = STATIC / f"report-{width}.png"
            subprocess.run(
                [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={shot}",
                 f"--window-size={width},{height}", page.as_uri()],
                check=True, capture_output=True,
            )  # fmt: skip
            trim(shot)


def trim(path: Path) -> None:
    """Cut the empty rows at the end of a picture."""
    pixels = plt.imread(path)
    used = np.flatnonzero((pixels[..., :3] < 0.98).any(axis=(1, 2)))
    plt.imsave(path, pixels[: used[-1] + 24])


PICTURES: dict[str, Callable[[], None]] = {
    "flow": flow, "coverage": coverage, "speed": speed, "living": living, "map": map_,
    "cells": cells, "air": air, "hermite": hermite, "report": report,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
