# %% [markdown]
# # A map of real data
# **Question.** How well is air temperature filled under a cloud, and is the stated error right?
#
# **Claim.** Forty days of air temperature over North America, with a cloud cut out of every day.
# Local features fill the cloud with less error than one map of the whole space, and with less
# error than linear interpolation in time. The 95 % intervals contain about 95 % of the hidden
# cells.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import rff_stream as rs

# %% [markdown]
# The data are xarray's tutorial data set `air_temperature` (NCEP reanalysis, four times a day, 2.5
# degrees). They are read from a local folder if there is one, otherwise from the network. A moving
# cloud hides one part of the map for a whole day, and another part the next day.

# %%
folder = Path(os.environ.get("RFF_STREAM_DATA", "../shared/data"))
store = folder / "air_temperature.zarr"
if store.exists():
    source = xr.open_zarr(store, consolidated=False)
else:
    source = xr.tutorial.open_dataset("air_temperature")
truth = (
    source.drop_encoding()["air"]
    .isel(time=slice(0, 160))
    .load()
    .astype("float32")
)
truth.attrs = {"units": "K", "long_name": "air temperature"}

rng = np.random.default_rng(0)
day = np.repeat(np.arange(40), 4)
centre_lat, centre_lon = (
    rng.uniform(20, 70, 40)[day],
    rng.uniform(210, 320, 40)[day],
)
cloud = (
    ((truth.lat - xr.DataArray(centre_lat, dims="time")) / 9) ** 2
    + ((truth.lon - xr.DataArray(centre_lon, dims="time")) / 16) ** 2
) < 1
cloud = cloud.transpose("time", "lat", "lon")
place = Path(tempfile.mkdtemp())
cube = truth.where(~cloud).to_dataset(name="air")
cube.chunk(time=40).to_zarr(
    place / "air.zarr", zarr_format=3, consolidated=False
)
print(f"{truth.size:,} cells, {float(cloud.mean()):.1%} of them under clouds")

# %% [markdown]
# ## Two models of the same kind
# One model has 2,048 columns for the whole space. The other has separate columns in each cell of a
# few random trees. Both find their length-scales by themselves. The package warns that the global
# map, with the penalty of its evidence, would oscillate in gaps, and that it takes a larger one.

# %%
choices = {
    "missing_rows": "drop",
    "random_state": 0,
    "progress": False,
    "kernel": "matern",
}
inputs = ["lat", "lon", "time"]
models = {
    "global map": rs.GaussianProcessRegressor(
        length_scale="ard", n_components=2048, sums="float64", **choices
    ),
    "local": rs.GaussianProcessRegressor(features="local", **choices),
}
filled = {}
for name, model in models.items():
    model.fit(place / "air.zarr", "air", inputs=inputs)
    mean, std = model.predict(cube, return_std=True)
    filled[name] = xr.Dataset({"air": mean, "std": std}).load()
    print(
        f"{name}: length-scales {np.round(model.length_scale_, 1)} degrees, "
        "degrees, days"
    )

# %% [markdown]
# ## Comparison with simple methods
# The true values under the clouds are known, because we cut the clouds out.

# %%
hidden = cube["air"].interpolate_na("time", fill_value="extrapolate")
climate = cube["air"].mean("time") + 0 * truth


def rmse(field: xr.DataArray) -> float:
    """Root mean square error under the clouds, in K."""
    return float(np.sqrt((((field - truth) ** 2).where(cloud)).mean()))


errors = {
    "mean of the cell over time": rmse(climate),
    "the cell before and after, linear": rmse(hidden),
    "global map": rmse(filled["global map"]["air"]),
    "local": rmse(filled["local"]["air"]),
}
for name, value in errors.items():
    print(f"{name:>35}: {value:.2f} K")
inside = np.abs(filled["local"]["air"] - truth) < 1.96 * filled["local"]["std"]
covered = float(inside.where(cloud).mean())
print(
    f"{covered:.1%} of the hidden cells are inside the 95 % interval of the "
    "local model"
)
# A gap has no seen neighbours: calibration on rows that have is not applied.

# %% [markdown]
# ## One hour

# %%
when = 61
limits = (float(truth[when].min()), float(truth[when].max()))
local = filled["local"].isel(time=when)
_, axes = plt.subplots(2, 2, figsize=(12, 6.4), dpi=62, layout="constrained")
rs.plot.surface(cube["air"][when], axes[0, 0], limits=limits)
axes[0, 0].set_title("seen; grey is under the cloud")
rs.plot.surface(
    local["air"].assign_attrs(truth.attrs), axes[0, 1], limits=limits
)
axes[0, 1].set_title("filled by the local model")
spread = local["std"].assign_attrs(units="K", long_name="standard deviation")
rs.plot.surface(spread, axes[1, 0], limits=(0, float(spread.max())))
axes[1, 0].set_title(f"how unsure ({covered:.0%} of hidden cells inside 95 %)")
missed = (local["air"] - truth[when]).assign_attrs(
    units="K", long_name="filled − truth"
)
rs.plot.surface(missed, axes[1, 1], center=0)
axes[1, 1].set_title(f"error; under clouds {errors['local']:.2f} K rms")
for ax in axes.flat:
    rs.plot.coastlines(ax)
    ax.contour(
        truth.lon,
        truth.lat,
        cloud[when],
        levels=[0.5],
        colors="k",
        linewidths=1,
    )
plt.show()

# %%
assert errors["local"] < 0.8 * errors["global map"]
assert errors["local"] < errors["the cell before and after, linear"]
assert errors["local"] < errors["mean of the cell over time"]
assert 0.92 < covered < 0.98  # 95 % are stated
print(
    "Answer: local features fill the clouds with an error of "
    f"{errors['local']:.2f} K. One map of "
    f"the whole space has {errors['global map']:.2f} K, linear interpolation "
    "in time "
    f"{errors['the cell before and after, linear']:.2f} K. {covered:.1%} of "
    "the hidden cells are "
    "inside the 95 % intervals."
)
