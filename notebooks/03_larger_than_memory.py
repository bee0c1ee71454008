# %% [markdown]
# # Larger than memory
# **Question.** Does a fit need more memory if there are more data?
#
# **Claim.** A fit needs the same memory for 16 times the data: for each thread a block of rows and
# a few R² matrices, not the cube. The plan gives an upper limit before anything is read, and the
# fit stays below it. Here the operating system allows each process half of the memory of the
# largest cube: reading the cube fails, fitting it succeeds. The features of all rows would need
# several times as much memory as the cube.

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
# Three cubes of the same kind in Zarr: half a million to eight million rows of four variables on
# six levels and one target, as float64. They are written a month at a time, so that a whole cube
# is never in memory here either. The largest has 1,465 MiB.

# %%
INPUTS, LEVELS, R = ["u", "v", "t", "q"], [1000, 850, 700, 500, 300, 100], 128
COLUMNS = len(INPUTS) * len(LEVELS)


def write(path, months):
    """A cube time × level × lat × lon, 30 × 6 × 50 × 80 cells a month."""
    for month in range(months):
        rng = np.random.default_rng(month)
        block = {
            name: (
                ("time", "level", "lat", "lon"),
                rng.standard_normal((30, 6, 50, 80)),
            )
            for name in INPUTS
        }
        flux = sum(values.mean(axis=1) for _, values in block.values())
        flux = np.sin(flux / 2) + 0.3 * rng.standard_normal(flux.shape)
        block["flux"] = (("time", "lat", "lon"), flux)
        data = xr.Dataset(
            block, {"time": month * 30 + np.arange(30.0), "level": LEVELS}
        )
        if month:
            data.to_zarr(path, append_dim="time", consolidated=False)
        else:
            chunks = {
                name: {"chunks": values.shape}
                for name, (_, values) in block.items()
            }
            data.to_zarr(
                path, zarr_format=3, consolidated=False, encoding=chunks
            )


sizes = {months: folder / f"{months}.zarr" for months in (4, 16, 64)}
for months, path in sizes.items():
    write(path, months)

# %% [markdown]
# How much memory will a fit need? The plan reads only metadata.

# %%
source = rs.open_source(str(sizes[64]), "flux", inputs=INPUTS)
plan = rs.plan(source, n_features=R, threads=2)
plan

# %%
_, (left, right) = plt.subplots(
    1, 2, figsize=(9, 2.6), dpi=80, layout="constrained"
)
rs.plot.plan_memory(plan, left)
rs.plot.plan_time(plan, right)
plt.show()

# %% [markdown]
# From here on a process may use half of the size of the cube. If it needs more, the operating
# system refuses memory (`RLIMIT_DATA`, which covers all memory that a process writes to). A
# program that reads the largest cube into memory ends with an error:

# %%
LIMIT = 64 * 30 * 50 * 80 * (COLUMNS + 1) * 8 // 2
LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
"""
READ = """
import sys, xarray
xarray.open_zarr(sys.argv[1], consolidated=False).load()
"""
reading = subprocess.run(
    [sys.executable, "-c", LIMITED + READ, sizes[64]],
    capture_output=True,
    text=True,
    check=False,
)
print(
    f"limit {LIMIT / 2**20:.0f} MiB: {reading.stderr.strip().splitlines()[-1]}"
)

# %% [markdown]
# Fit each cube under the same limit, in a separate process, and print its peak memory.

# %%
PROGRAM = """
import json, sys, time
import dask
import rff_stream as rs
from rff_stream.from_moments import group_errors
from rff_stream.process_memory import peak_bytes
R = int(sys.argv[3])
dask.config.set(num_workers=2)  # as planned above
model = rs.KernelRidge(
    length_scale=10.0, n_components=R, random_state=0, progress=False
)
inputs = sys.argv[2].split(",")
rs.open_source(sys.argv[1], "flux", inputs=inputs)  # what it imports
before, started = peak_bytes(), time.monotonic()
model.fit(sys.argv[1], "flux", inputs=inputs)
seconds = time.monotonic() - started
errors = group_errors(model.moments_, model.coef_, model.intercept_)
print(json.dumps({
    "rmse": errors.rmse[0],
    "rows": model.n_rows_,
    "seconds": seconds,
    "imports": before,
    "peak": peak_bytes(),
    "planned": model.plan_.process_bytes,
}))
"""
runs = []
for path in sizes.values():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            LIMITED + PROGRAM,
            path,
            ",".join(INPUTS),
            str(R),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    found |= {
        "data": found["rows"] * (COLUMNS + 1) * 8,
        "features": found["rows"] * R * 8,
    }
    runs.append(found)
    mib = {
        name: round(found[name] / 2**20)
        for name in ("data", "peak", "planned", "features")
    }
    print(
        f"{found['rows']:>9,} rows, {mib['data']:5,} MiB: peak {mib['peak']} "
        "MiB of "
        f"{mib['planned']} planned; their features would be "
        f"{mib['features']:5,} MiB; "
        f"RMSE {found['rmse']:.3f}, noise 0.3; {found['seconds']:.1f} s"
    )

# %%
_, ax = plt.subplots(figsize=(6, 4), dpi=80, layout="constrained")
data = [run["data"] / 2**20 for run in runs]
for name, words, mark, colour in (
    ("features", "all features, never held (float64)", "^-.", "#CC79A7"),
    ("data", "the data", "-", "black"),
    ("planned", "promised by the plan", "--", "#595959"),
    ("peak", "peak of the process", "o-", "#0072B2"),
    ("imports", "of which the program itself", "s:", "#D55E00"),
):
    ax.loglog(
        data,
        [run[name] / 2**20 for run in runs],
        mark,
        color=colour,
        label=words,
    )
ax.axhline(
    LIMIT / 2**20,
    color="#009E73",
    linestyle=(0, (1, 1)),
    label="allowed to the process",
)
ax.set(xlabel="data [MiB]", ylabel="memory [MiB]")
ax.set_xticks(data, [f"{each:.0f}" for each in data])
marks = [50, 100, 200, 500, 1000, 2000, 4000, 8000]
ax.set_yticks(marks, [f"{each:,}" for each in marks])
ax.minorticks_off()
ax.legend(fontsize="small")
plt.show()

# %%
held = [run["peak"] - run["imports"] for run in runs]
assert "MemoryError" in reading.stderr
assert runs[-1]["rows"] == 16 * runs[0]["rows"] == 64 * 30 * 50 * 80
assert all(run["peak"] < run["planned"] for run in runs)
assert held[-1] < held[0] + 64 * 2**20, "memory grew with the data"
assert runs[-1]["planned"] < LIMIT < runs[-1]["data"], (
    "the cube fits into memory"
)
assert runs[-1]["features"] > 4 * runs[-1]["planned"]
assert all(run["rmse"] < 0.32 for run in runs)
print(
    f"Answer: no. Beside its imports the fit of {runs[0]['rows']:,} rows held "
    f"{held[0] / 2**20:.0f} MiB, that of {runs[-1]['rows']:,} rows "
    f"{held[-1] / 2**20:.0f} MiB, of "
    f"{runs[-1]['data'] / 2**20:,.0f} MiB of data. The error is "
    f"{runs[-1]['rmse']:.3f}, where the "
    "noise is 0.300."
)
