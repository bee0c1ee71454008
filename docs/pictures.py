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

import rff_stream as rs
from rff_stream.plot.canvas import COLOURS, GREY

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
        words = ["-m", "rff_stream.cli", "demo", "--days", "20", "--output", page.parent]
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
    "hermite": hermite, "report": report,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
