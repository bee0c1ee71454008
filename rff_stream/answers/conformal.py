"""Intervals that cover without a law of the noise: a quantile of residuals of held-out rows."""

from __future__ import annotations

import numpy as np

from rff_stream._array import Array, Float64


def conformal_quantile(residuals: Array, coverage: float = 0.95, *, chosen: int = 0) -> Float64:
    """Half width q (T,) of intervals ŷ ± q that cover a new row with this probability.

    The ⌈(m + 1)·coverage⌉-th smallest of m |residuals|: exact for exchangeable rows that
    the fit did not see, whatever the model.

    Parameters
    ----------
    residuals : (m,) or (m, T) array
        Of held-out rows, or of training rows by :meth:`Posterior.leave_one_out`. Divided by
        each row's standard deviation they give intervals ŷ ± q·std of varying width.
    coverage : float
        Between 0 and 1.
    chosen : int
        Numbers that all m rows chose together, such as a penalty: residuals under fits without
        single rows do not show that, and each takes the next larger one, where there is one.

    Returns
    -------
    (T,) float64
        Infinite where m is too small for that coverage.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani & Wasserman 2018, algorithm 2 (split conformal).
    """
    sizes = np.abs(np.asarray(residuals, dtype=np.float64))
    sizes = sizes.reshape(len(sizes), -1)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage!r} but a probability lies between 0 and 1.")
    if not np.isfinite(sizes).all():
        raise ValueError("residuals hold NaN or inf. Give residuals of finite rows only.")
    rank = int(np.ceil((len(sizes) + 1) * coverage * (1 - 1e-12)))
    if rank > len(sizes):
        return np.full(sizes.shape[1], np.inf)
    rank = min(rank + chosen, len(sizes))
    return np.asarray(np.partition(sizes, rank - 1, axis=0)[rank - 1])
