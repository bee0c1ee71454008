# %% [markdown]
# # A model that lives
# **Question.** Can a model get a new day, or lose a bad one, without another read of the old days?
#
# **Claim.** Each new day is added exactly once. A bad day can be removed, as if it had never been
# added. A sliding window is possible. A day that differs from the others is detected before it is
# used. Nothing is read twice.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rff_stream as rs
from rff_stream.from_moments import ridge

rng = np.random.default_rng(0)


def day(number, broken=False):
    """Rows of a day: the truth moves slowly; a broken sensor is off."""
    x = rng.uniform(-2, 2, (3000, 2))
    y = (
        np.sin(2 * x[:, 0] + 0.02 * number)
        + x[:, 1] ** 2
        + 0.2 * rng.standard_normal(3000)
    )
    if broken:
        x[:, 0] += 0.8
    return x, y


# %% [markdown]
# ## The first week, and a store

# %%
week = [day(k) for k in range(7)]
model = rs.KernelRidge(
    length_scale=1.0, n_components=256, random_state=0, progress=False
)
model.fit(
    np.concatenate([x for x, _ in week]), np.concatenate([y for _, y in week])
)
row = model.moments_.row
place = Path(tempfile.mkdtemp()) / "days.zarr"
store = rs.MomentStore.create(place, row)


def moments(x, y, order=2):
    """Moments of a day, with the map and the origins of the store."""
    return rs.collect(
        model.features_, x, y, row=row, order=order, progress=False
    )


days = dict(enumerate(week))
for number, (x, y) in days.items():
    store.append(f"day-{number:02}", moments(x, y))
store

# %% [markdown]
# ## Exactly once
# A second try changes nothing. Other rows under the same name are refused.

# %%
head = store.head
assert store.append("day-03", moments(*days[3])) is False
try:
    store.append("day-03", moments(*day(99)))
    refused = False
except Exception as error:
    refused = type(error).__name__ == "ModelError"
    print(error)
same_head = store.head == head

# %% [markdown]
# ## Three more weeks; on day 20 a sensor fails

# %%
for number in range(7, 28):
    days[number] = day(number, broken=number == 20)
    store.append(
        f"day-{number:02}", moments(*days[number]), {"week": number // 7}
    )

# %% [markdown]
# The test for drift uses only the inputs, so it can be made before anything is predicted. It
# compares the mean features of each new day with those of the first week. Its p-values allow for
# correlation between neighbouring rows.

# %%
bare = {f"{k}": moments(x, y, order=1) for k, (x, y) in days.items()}
normal = sum((bare[f"{k}"] for k in range(1, 7)), start=bare["0"])
new = [f"{k}" for k in range(7, 28)]
unlike = rs.drift({k: bare[k] for k in new}, reference=normal)
_, (top, bottom) = plt.subplots(
    2, 1, figsize=(8, 6), dpi=80, layout="constrained"
)
rs.plot.drift(unlike, top)
top.set_xlabel("day")
groups = {
    k: store.total(lambda batch, k=k: batch.id == f"day-{int(k):02}")
    for k in new
}
rs.plot.residuals(model, groups, bottom)
bottom.set_xlabel("day")
plt.show()
suspect = max(unlike, key=lambda k: unlike[k].distance)
print(
    f"day {suspect}: distance {unlike[suspect].distance:.3f}, by chance "
    f"{unlike[suspect].expected:.3f}, p = {unlike[suspect].p_value:.4f}"
)

# %% [markdown]
# ## Remove the bad day
# Moments can be subtracted: after that the model is as if the day had never been added.

# %%
x_new, y_new = day(28)


def rmse(total):
    """On a day that no model has seen."""
    found = ridge(total, 1e-2)
    Z = model.features_(x_new).astype(float)
    return float(np.sqrt(np.mean((found.predict(Z)[:, 0] - y_new) ** 2)))


with_it = rmse(store.total())
store.forget("day-20")
without = rmse(store.total())
never = None
for number, (x, y) in days.items():
    if number != 20:
        part = moments(x, y)
        never = part if never is None else never + part
away = np.abs(ridge(store.total(), 1e-2).coef - ridge(never, 1e-2).coef).max()
print(
    f"RMSE on day 28: {with_it:.3f} with the broken day, {without:.3f} "
    "without; noise 0.2"
)
print(f"coefficients of a model that never saw it differ by {away:.1e}")

# %% [markdown]
# ## A window, and the history

# %%
last_week = rmse(store.total(lambda batch: batch.id >= "day-21"))
print(f"the last week alone: {last_week:.3f}")
for entry in store.history()[-3:]:
    print(entry.number, entry.op, entry.id)
checked = store.verify()
print(
    f"verified: {checked.entries} entries, {checked.rows:,} rows, "
    f"{checked.bytes:,} bytes"
)
print(
    f"{len(checked.unnamed)} files of the batch that was refused: compact() "
    "removes them"
)
store

# %%
assert same_head
assert refused
assert suspect == "20"
assert unlike["20"].p_value < 0.05 / 21
assert sum(each.p_value < 0.05 / 21 for each in unlike.values()) == 1
assert without < with_it
assert away == 0.0, "forgetting leaves the same bits"
assert last_week < without
assert "day-20" not in store
assert len(store) == 27
print(
    f"Answer: yes. Day {suspect} was found before it was used. Without it the "
    "RMSE of the next day "
    f"is {without:.3f}, with it {with_it:.3f} (noise 0.2); the last week "
    f"alone has {last_week:.3f}."
)
