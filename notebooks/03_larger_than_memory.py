# %% [markdown]
# # Larger than memory
# **Claim.** A fit holds as much memory for 16 times the data: a slab of rows and a few R²
# matrices for each thread, not the cube. The plan says how much before anything is read, and
# keeps its word.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import rff_stream as rs

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# Three cubes of the same kind in Zarr: a quarter of a million to four million rows of six
# variables, written a month at a time, so that the cube is never in memory here either.

# %%
INPUTS = ["u", "v", "t", "q", "p"]


def write(path, months):
    """A cube time × lat × lon, 30 × 50 × 80 cells a month."""
    for month in range(months):
        rng = np.random.default_rng(month)
        block = {
            name: (("time", "lat", "lon"), rng.standard_normal((30, 50, 80), dtype="float32"))
            for name in INPUTS
        }
        flux = np.sin(block["u"][1]) * block["v"][1] + 0.5 * np.cos(2 * block["t"][1])
        noise = 0.3 * rng.standard_normal(flux.shape, dtype="float32")
        block["flux"] = (("time", "lat", "lon"), flux + noise)
        data = xr.Dataset(block, {"time": month * 30 + np.arange(30.0)})
        if month:
            data.to_zarr(path, append_dim="time", consolidated=False)
        else:
            chunks = {name: {"chunks": (30, 50, 80)} for name in block}
            data.to_zarr(path, zarr_format=3, consolidated=False, encoding=chunks)


sizes = {months: folder / f"{months}.zarr" for months in (2, 8, 32)}
for months, path in sizes.items():
    write(path, months)

# %% [markdown]
# What will it take? The plan reads metadata only.

# %%
source = rs.open_source(str(sizes[32]), "flux", inputs=INPUTS)
plan = rs.plan(source, n_features=128, threads=2)
plan

# %%
_, (left, right) = plt.subplots(1, 2, figsize=(9, 2.6), dpi=80, layout="constrained")
rs.plot.plan_memory(plan, left)
rs.plot.plan_time(plan, right)
plt.show()

# %% [markdown]
# Fit each in a process of its own, and ask the operating system for its peak.

# %%
PROGRAM = """
import json, sys, time
import rff_stream as rs
from rff_stream.demo.measure import peak_bytes
model = rs.KernelRidge(length_scale=2.0, n_components=128, random_state=0, progress=False)
rs.open_source(sys.argv[1], "flux", inputs=sys.argv[2].split(","))  # what it imports
before, started = peak_bytes(), time.monotonic()
model.fit(sys.argv[1], "flux", inputs=sys.argv[2].split(","))
print(json.dumps({
    "rows": model.n_rows_, "seconds": time.monotonic() - started,
    "imports": before, "peak": peak_bytes(), "planned": model.plan_.process_bytes,
}))
"""
runs = []
for months, path in sizes.items():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, ",".join(INPUTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout) | {"data": months * 30 * 50 * 80 * 6 * 4}
    runs.append(found)
    rows, size, fit = found["rows"], found["data"] >> 20, found["peak"] - found["imports"]
    print(
        f"{rows:>12,} rows, {size:4} MiB: peak {found['peak'] >> 20} MiB, of which the fit "
        f"{fit >> 20}; planned {found['planned'] >> 20} MiB; {found['seconds']:.1f} s"
    )

# %%
_, ax = plt.subplots(figsize=(5, 3.2), dpi=80, layout="constrained")
data = [run["data"] / 2**20 for run in runs]
for name, words, mark, colour in (
    ("planned", "promised by the plan", "--", "#595959"),
    ("peak", "peak of the process", "o-", "#0072B2"),
    ("imports", "of which the program itself", "s:", "#D55E00"),
):
    ax.plot(data, [run[name] / 2**20 for run in runs], mark, color=colour, label=words)
ax.plot(data, data, color="black", lw=0.8, label="the data")
ax.set(xlabel="data [MiB]", ylabel="memory [MiB]", xscale="log", ylim=(0, 820))
ax.set_xticks(data, [f"{each:.0f}" for each in data])
ax.minorticks_off()
ax.legend(fontsize="small", loc="upper left")
plt.show()

# %%
held = [run["peak"] - run["imports"] for run in runs]
assert runs[-1]["rows"] == 16 * runs[0]["rows"] == 32 * 30 * 50 * 80
assert all(run["peak"] < run["planned"] for run in runs)
assert held[-1] < held[0] + 64 * 2**20, "memory grew with the data"
