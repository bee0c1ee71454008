# %% [markdown]
# # Uncertainty on a map
# **Question.** Where can the filled map of a variable be trusted?
#
# **Claim.** A cube of air temperature with gaps becomes a map without gaps. Its standard deviation
# is small where there are data and large where there are none. Both have units and are written as
# labelled Zarr. The 95 % intervals contain about 95 % of the held-out cells.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm

import rff_stream as rs

# %% [markdown]
# A synthetic cube like xarray's `air_temperature` (25 × 53 cells over North America): a gradient,
# travelling waves, and noise of 1 K. A cloud hides a different part each day, and one region has
# no data at all.

# %%
rng = np.random.default_rng(0)
time = np.arange("2013-01-01", "2013-03-02", dtype="datetime64[D]")
lat, lon = np.linspace(75, 15, 25), np.linspace(200, 330, 53)
day = np.arange(len(time))[:, None, None]
truth = (
    301
    - 0.75 * (lat[:, None] - 15)
    + 6 * np.sin(np.deg2rad(3 * lon) - day / 5)
    + 4 * np.cos(np.deg2rad(5 * lat)[:, None] + day / 9)
)
air = truth + rng.standard_normal(truth.shape)
centre = np.stack(
    [rng.uniform(20, 70, len(time)), rng.uniform(205, 325, len(time))]
)
cloud = (
    np.hypot(
        (lat[:, None] - centre[0][:, None, None]) / 9,
        (lon - centre[1][:, None, None]) / 18,
    )
    < 1
)
never = (lat[:, None] > 52) & (lon > 285)
seen = np.where(cloud | never, np.nan, air).astype("float32")
cube = xr.Dataset(
    {
        "air": (
            ("time", "lat", "lon"),
            seen,
            {"units": "K", "long_name": "air temperature"},
        )
    },
    {
        "time": time,
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    },
)
place = Path(tempfile.mkdtemp())
cube.chunk(time=20).to_zarr(
    place / "air.zarr", zarr_format=3, consolidated=False
)
print(f"{float(cube.air.isnull().mean()):.0%} of the cells are missing")

# %% [markdown]
# ## Ten lines
# There is one length-scale for each input, in degrees and days; `length_scale="ard"` finds 28, 34
# and 12 in about a minute. A tenth of the cells is held out; a hash of the position chooses them.

# %%
model = rs.GaussianProcessRegressor(
    length_scale=[28, 34, 12],
    n_components=1024,
    missing_rows="drop",
    random_state=0,
    progress=False,
)
model.fit(
    place / "air.zarr",
    "air",
    inputs=["lat", "lon", "time"],
    where=[rs.HoldOut(0.1, seed=0)],
)
whole = xr.open_zarr(place / "air.zarr", consolidated=False)
mean, std = model.predict(whole, return_std=True, noise=False)  # of the field
filled = xr.Dataset({"air": mean, "std": std})
filled.to_zarr(place / "filled.zarr", zarr_format=3, consolidated=False)
model

# %%
filled

# %% [markdown]
# ## One day
# The scale of the standard deviation is logarithmic, because it is many times larger where there
# are no data.

# %%
when = 30
today = cube.isel(time=when)
drawn = filled.isel(time=when).load()
_, axes = plt.subplots(2, 2, figsize=(11, 6.2), dpi=80, layout="constrained")
limits = (float(truth[when].min()), float(truth[when].max()))
rs.plot.surface(today.air, axes[0, 0], limits=limits)
axes[0, 0].set_title("seen; grey is missing")
rs.plot.surface(
    drawn.air.assign_attrs(cube.air.attrs), axes[0, 1], limits=limits
)
axes[0, 1].set_title("filled")
unsure = drawn["std"].assign_attrs(long_name="standard deviation")
rs.plot.surface(unsure, axes[1, 0], norm=LogNorm())
axes[1, 0].set_title("how unsure")
missed = (drawn.air - truth[when]).assign_attrs(
    units="K", long_name="filled − truth"
)
rs.plot.surface(missed, axes[1, 1], center=0)
axes[1, 1].set_title("error against the truth")
plt.show()

# %% [markdown]
# ## Are the intervals right?
# For held-out cells, with the noise of a new observation: yes. For the true field, which is known
# only because the cube is synthetic, the intervals are slightly too narrow: a finite number of
# random features can represent fewer functions than the kernel.

# %%
test = [rs.HoldOut(0.1, seed=0, part="test")]
scored = model.residuals(place / "air.zarr", where=test)
print(
    f"held out: {scored.n:,} cells, RMSE {scored.rmse()[0]:.3f} K (noise "
    "1.000 K)"
)
full = filled.load()
half = 1.96 * full["std"].values
held = test[0].of_places(np.arange(truth.size)).reshape(
    truth.shape
) & np.isfinite(seen)
of_y = np.hypot(half, 1.96 * np.sqrt(model.noise_variance_))
held_covered = (np.abs(full.air.values - seen) < of_y)[held].mean()
print(
    f"{held_covered:.1%} of them are inside the 95% interval of a new "
    "observation"
)
inside = np.abs(full.air.values - truth) < half
gap, always = cloud & ~never, np.broadcast_to(never, truth.shape)
covered = {
    "seen": inside[~cloud & ~always].mean(),
    "clouds": inside[gap].mean(),
    "never seen": inside[always].mean(),
}
spread = {
    "seen": full["std"].values[~cloud & ~always].mean(),
    "clouds": full["std"].values[gap].mean(),
    "never seen": full["std"].values[always].mean(),
}
for name in covered:
    print(
        f"{name:>10}: the truth is inside {covered[name]:.1%} of the 95% "
        "intervals, "
        f"mean standard deviation {spread[name]:.2f} K"
    )
_, ax = plt.subplots(figsize=(4.6, 4), dpi=80, layout="constrained")
rs.plot.observed(model, ax)
plt.show()

# %%
assert mean.dims == ("time", "lat", "lon")
assert mean.attrs["units"] == "K"
assert not bool(full.air.isnull().any())
assert scored.rmse()[0] < 1.1
assert spread["never seen"] > 1.5 * spread["seen"]
assert held.sum() == scored.n
assert 0.93 < held_covered < 0.97
assert covered["seen"] > 0.85
assert covered["clouds"] > 0.85
print(
    "Answer: where there are data, and in short gaps. The error at held-out "
    "cells is "
    f"{scored.rmse()[0]:.2f} K (noise 1.00), and {held_covered:.1%} of them "
    "are inside the 95 % "
    f"intervals. The standard deviation is {spread['seen']:.2f} K at seen "
    "cells, "
    f"{spread['clouds']:.2f} under clouds and {spread['never seen']:.2f} "
    "where nothing was seen."
)
