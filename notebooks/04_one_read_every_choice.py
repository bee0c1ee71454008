# %% [markdown]
# # One read, every choice
# **Question.** How many choices can be made after one read of the data?
#
# **Claim.** After one read of the data, the moments are enough to choose penalties, numbers of
# features, folds, targets and months, and to estimate how much more data would help. No block is
# read a second time.

# %%
import threading
from collections import Counter

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import rff_stream as rs
from rff_stream import from_moments

# %% [markdown]
# These data count how often each of their blocks is read: 240,000 rows, 12 months, two targets.

# %%
reads, lock = Counter(), threading.Lock()
ROWS, BLOCK = 240_000, 10_000


def counted(block, block_info=None):
    with lock:
        reads[block_info[0]["chunk-location"][0]] += 1
    return block


rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (ROWS, 3))
truth = np.stack(
    [np.sin(2 * X[:, 0]) * X[:, 1], np.cos(X[:, 2] * X[:, 0])], axis=1
)
month = np.repeat(np.arange(1, 13), ROWS // 12)
y = (
    truth
    + 0.3 * rng.standard_normal(truth.shape)
    + 0.2 * (month == 11)[:, None]
)
lazy = da.from_array(X, chunks=(BLOCK, 3)).map_blocks(counted, meta=X[:0])

# %%
features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 3, 512, rng=0)
months = rs.collect(
    features,
    lazy,
    da.from_array(y, chunks=(BLOCK, 2)),
    by=da.from_array(month, chunks=BLOCK),
    n_groups=12,
    progress=False,
)
pilot_and_pass = reads.copy()
print(
    f"{len(reads)} blocks, each read {min(reads.values())} to "
    f"{max(reads.values())} times: "
    "once by the pass, and a few rows of some of them by the pilot"
)
whole = sum(list(months.values())[1:], start=months[1])
whole

# %% [markdown]
# ## The penalty, chosen in three ways

# %%
cv = from_moments.cross_validate(
    months
)  # leave one month out, all α × R' × targets
chosen = {
    "cross-validation": cv.best.alpha,
    "GCV": from_moments.gcv(whole, sizes=[512]).best.alpha,
    "evidence": float(
        np.exp(np.log(from_moments.evidence(whole).alpha).mean())
    ),
}
print({name: f"{alpha:.2g}" for name, alpha in chosen.items()})
cv

# %%
_, axes = plt.subplots(2, 2, figsize=(10, 7), dpi=80, layout="constrained")
rs.plot.selection(cv, axes[0, 0])
rs.plot.learning_curve(cv, axes[0, 1])
rs.plot.path(from_moments.ridge_path(whole), axes[1, 0])
growing = [months[k] for k in range(1, 11)]
rs.plot.row_curve(from_moments.row_curve(growing, months[12]), axes[1, 1])
plt.show()

# %% [markdown]
# ## A penalty for each target, and the month that differs
# November was shifted by 0.2. Its residual under the model of all months shows this, without
# another read of its rows.

# %%
for t, name in enumerate(cv.targets):
    print(name, cv.of_target(t).why)
model = from_moments.ridge(whole, cv.best.alpha)

fitted = rs.KernelRidge(alpha=cv.best.alpha, progress=False).fit_moments(
    features, whole
)
_, ax = plt.subplots(figsize=(7, 3.4), dpi=80, layout="constrained")
rs.plot.residuals(fitted, months, ax)
ax.set_xlabel("month")
plt.show()

# %% [markdown]
# ## A smaller model from the same moments

# %%
small = from_moments.ridge(whole.leading(128), 1.0)
T = rng.uniform(-2, 2, (2000, 3))
answer = np.stack(
    [np.sin(2 * T[:, 0]) * T[:, 1], np.cos(T[:, 2] * T[:, 0])], axis=1
)
Z = features(T).astype(float)
rmse = {
    512: np.sqrt(np.mean((model.predict(Z) - answer) ** 2)),
    128: np.sqrt(np.mean((small.predict(Z[:, :128]) - answer) ** 2)),
}
print(
    {size: f"{error:.4f}" for size, error in rmse.items()},
    "against the truth; noise 0.3",
)

# %%
of_month = {
    k: from_moments.group_errors(part, model.coef, model.intercept)
    for k, part in months.items()
}
bias = {k: errors.bias[0] for k, errors in of_month.items()}
assert reads == pilot_and_pass, "a block was read again"
assert len(reads) == ROWS // BLOCK
assert max(bias, key=bias.get) == 11
assert abs(bias[11] - 0.2 * 11 / 12) < 0.02
assert rmse[512] < 0.03
assert 0.1 < chosen["evidence"] / chosen["cross-validation"] < 1e3
print(
    f"Answer: {len(chosen)} choices of the penalty, a smaller model and the "
    "month that differs "
    f"(off by {bias[11]:.3f}; 0.2 less its share of the mean is "
    f"{0.2 * 11 / 12:.3f}). The error "
    f"against the truth is {rmse[512]:.4f} with 512 columns, {rmse[128]:.4f} "
    "with 128."
)
