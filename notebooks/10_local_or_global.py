# %% [markdown]
# # When local features are better than one global map, and when not
# **Question.** When are features in cells better than one map of the whole space?
#
# **Claim.** With many rows of a function that varies over short distances, cells have several
# times less error, and the factor grows with the number of rows. If a cell has fewer rows than
# columns, cells are worse. `features="auto"` reads the data once and chooses by the errors on
# left-out rows. But left-out rows give no information about gaps.

# %%
import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import rff_stream as rs

folder = Path(os.environ.get("RFF_STREAM_DATA", "../shared/data"))
warnings.simplefilter("ignore", rs.NumericalWarning)

# %% [markdown]
# ## Air temperature, with more and more rows
# Forty days over North America, four times a day, 2.5 degrees: 212,000 cells. Some of them are
# drawn at random and fitted, others are held out. One read collects a map of 512 columns for the
# whole space, and cells with 128 columns each. Both use the length-scales that notebook 08 found
# for cells. (With length-scales from its own search, the one map had an error of 4.9 K with 3,000
# rows and 4.4 K with 96,000.)

# %%
store = folder / "air_temperature.zarr"
if store.exists():
    source = xr.open_zarr(store, consolidated=False)
else:
    source = xr.tutorial.open_dataset("air_temperature")
air = source["air"].isel(time=slice(0, 160)).load().astype("float64")
hours = 6.0 * np.arange(air.sizes["time"])
axes = np.meshgrid(hours, air.lat, air.lon, indexing="ij")
X, y = np.stack([axis.ravel() for axis in axes], axis=1), air.values.ravel()
order = np.random.default_rng(0).permutation(len(y))
test, train = order[:4000], order[4000:]

candidates = rs.Candidates(("whole", rs.Cells(n_components=128, n_trees=3)))
choices = {"kernel": "matern", "random_state": 0, "progress": False}
scales = [26.0, 12.0, 17.0]  # hours, degrees, degrees
known = choices | {"length_scale": scales}


def rmse(model, X, y) -> float:
    """Root mean square error."""
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def alone(model, place):
    """The model of one candidate: from its sums, nothing is read again."""
    features, sums = model.features_.maps[place], model.moments_.members[place]
    return rs.GaussianProcessRegressor().fit_moments(features, sums)


sizes, errors = (2_000, 8_000, 32_000), []
for size in sizes:
    rows = train[:size]
    model = rs.GaussianProcessRegressor(
        n_components=512, features=candidates, **known
    )
    model.fit(X[rows], y[rows])
    own = [rmse(alone(model, place), X[test], y[test]) for place in (0, 1)]
    errors.append([*own, rmse(model, X[test], y[test])])
    print(f"{size:>7,} rows: {model.choice_}")
errors = np.array(errors)

# %% [markdown]
# The error of the map of the whole space stops falling; that of cells continues to fall.

# %%
_, ax = plt.subplots(figsize=(7.2, 4), dpi=80, layout="constrained")
for name, column, style in zip(
    ("whole", "local", "auto"), errors.T, ("o-", "s-", "k^--"), strict=True
):
    ax.loglog(sizes, column, style, label=name)
ax.set(
    xlabel="rows",
    ylabel="RMSE at cells kept apart [K]",
    title="Air temperature",
)
ax.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
ax.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Whole hidden days
# The same cube, but five whole days are held out. A left-out row has neighbours at the same hour;
# a row of a hidden day has none. So the leave-one-out errors of these models are not valid for the
# gap, where only the day before and the day after are known.

# %%
day = (X[:, 0] // 24).astype(int)
hidden = np.isin(day, (5, 13, 21, 28, 35))
seen = np.flatnonzero(~hidden)[::6]
model = rs.GaussianProcessRegressor(
    n_components=512, features=candidates, **known
)
model.fit(X[seen], y[seen])
gap = {
    name: rmse(alone(model, i), X[hidden], y[hidden])
    for i, name in enumerate(model.choice_.names)
}
left_out = dict(
    zip(model.choice_.names, model.choice_.errors[:, 0], strict=True)
)
for name in gap:
    print(
        f"{name:>6}: {left_out[name]:.2f} K at left-out rows, {gap[name]:.2f} "
        "K on hidden days"
    )
mean, std = model.predict(X[hidden], return_std=True)
covered = np.mean(abs(y[hidden] - mean) < 1.96 * std)
print(f"{covered:.1%} of the hidden days are inside the 95 % interval")

# %% [markdown]
# ## Too few rows for the cells
# The mean over time at 300 of 1,325 places, with eight cells: about 37 rows in each, for 128
# columns. Cells fail and one map does not, and the errors on left-out rows show it. (If you do not
# give the number of cells, it follows from the number of rows: here there would be one cell.)

# %%
climate = air.mean("time")
places = np.stack(
    [a.ravel() for a in np.meshgrid(air.lat, air.lon, indexing="ij")], axis=1
)
means = climate.values.ravel()
order = np.random.default_rng(0).permutation(len(means))
some, others = order[:300], order[300:]
asked = rs.Candidates(
    ("whole", rs.Cells(n_components=128, n_trees=3, n_cells=8))
)
few = rs.GaussianProcessRegressor(
    n_components=512, features=asked, length_scale=scales[1:], **choices
).fit(places[some], means[some])
print(few.choice_)
print(f"at the other places: {rmse(few, places[others], means[others]):.2f} K")

# %% [markdown]
# ## A table
# House prices in California: 8,000 of 20,640 districts, eight inputs, the logarithm of the price.

# %%
table = folder / "california_housing.npz"
if table.exists():
    houses = np.load(table)
    X_houses, y_houses = (
        houses["X"].astype(float),
        houses["y"].astype(float).ravel(),
    )
else:
    from sklearn.datasets import fetch_california_housing

    X_houses, y_houses = fetch_california_housing(return_X_y=True)
y_houses = np.log(y_houses)
order = np.random.default_rng(0).permutation(len(y_houses))
kept, used = order[:4000], order[4000:12_000]
found = choices | {"length_scale": "evidence"}
houses = rs.GaussianProcessRegressor(
    n_components=512, features=candidates, **found
)
houses.fit(X_houses[used], y_houses[used])
own = [rmse(alone(houses, i), X_houses[kept], y_houses[kept]) for i in (0, 1)]
together = rmse(houses, X_houses[kept], y_houses[kept])
print(houses.choice_)
print(
    f"districts kept apart: whole {own[0]:.4f}, local {own[1]:.4f}, auto "
    f"{together:.4f}"
)

# %%
_, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.6), dpi=80, layout="constrained"
)
at = np.arange(2)
left.bar(
    at - 0.2, left_out.values(), 0.4, color="#56B4E9", label="at left-out rows"
)
left.bar(at + 0.2, gap.values(), 0.4, color="#D55E00", label="on hidden days")
left.set_xticks(at, list(gap))
left.set(ylabel="RMSE [K]", title="air")
left.legend(frameon=False)
right.bar(
    ["whole", "local", "auto"],
    [*own, together],
    color=["#0072B2", "#E69F00", "#595959"],
)
right.set(ylabel="RMSE of the log price [log dollars]", title="houses")
plt.show()

# %%
whole, local, auto = errors.T
assert local[-1] < 0.7 * whole[-1]  # many rows of a rough function
assert (auto <= 1.05 * np.minimum(whole, local)).all()
assert together <= 1.05 * min(own)
assert (
    few.choice_.weights[0, 0] > 0.9
)  # one map, where cells have too few rows
assert gap["local"] > 1.2 * left_out["local"]  # a gap is not a left-out row
print(
    f"Answer: with many rows of a rough function: at {sizes[-1]:,} rows "
    f"{local[-1]:.2f} K in "
    f"cells, {whole[-1]:.2f} K with one map. Not where a cell has fewer rows "
    "than columns: there "
    f"the error of cells at left-out rows is {few.choice_.errors[1, 0]:.2f} "
    "K, of one map "
    f"{few.choice_.errors[0, 0]:.2f} K. On hidden days cells have "
    f"{gap['local']:.2f} K, where "
    f"left-out rows say {left_out['local']:.2f} K."
)
