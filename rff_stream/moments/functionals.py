"""Moments of rows that observe a function through a linear functional: slopes, coarse pixels.

A row of values is a = [z − z₀, 1, y − y₀]. One that sees Lf = L1·μ + (Lz)ᵀβ is
a = [Lz − cz₀, c, y − cy₀] with c = L1: 1 for a mean over a box, 0 for a slope. Both have the same
unknowns, so their moments add, and every answer takes them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rff_stream._array import Float64
from rff_stream.errors import ModelError
from rff_stream.moments.moments import AugmentedRow, Moments, pack
from rff_stream.moments.row_sample import RowSample


def observed(moments: Moments, row: AugmentedRow, constant: float) -> Moments:
    """Moments of observations Lf as moments of f itself: they add to those of values.

    Parameters
    ----------
    moments : Moments
        Order 2, of the map of Lz (:func:`~rff_stream.features.derivative` or
        :func:`~rff_stream.features.box_mean`) and of the observed numbers.
        Where their noise is c times that of values, give ``moments.scale(1 / c)``.
    row : AugmentedRow
        Of the moments of values, of the map z.
    constant : float
        What L makes of the function 1: 1 for means, 0 for slopes.

    Returns
    -------
    Moments
        Without a sample of rows: a row of it would be taken for a value of f.

    Raises
    ------
    ModelError
        Where inputs, targets or columns of features are not those of the row.
    ValueError
        For moments of order 1.

    Notes
    -----
    Exact: M is moved from its own origin to that of the row, 4R² flops. Σw is then the weight of
    rows that see the constant; n counts all.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> from rff_stream.from_moments import ridge
    >>> from rff_stream.features import derivative
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 1, 64, rng=0, dtype="float64")
    >>> one = rs.collect(features, x[:1], np.sin(x[:1, 0]))  # one value, and slopes
    >>> slopes = rs.collect(derivative(features, 0), x, np.cos(x[:, 0]))
    >>> found = ridge(one + observed(slopes, one.row, 0.0), 1e-6)
    >>> bool(abs(found.predict(features(x))[:, 0] - np.sin(x[:, 0])).max() < 0.01)
    True
    """
    own, r = moments.row, moments.row.n_features
    same = (own.n_features, own.n_targets, own.inputs) == (
        row.n_features,
        row.n_targets,
        row.inputs,
    )
    if not same:
        raise ModelError(
            f"The observations have {own.n_features} features, {own.n_targets} targets and inputs "
            f"{own.inputs}, the row {row.n_features}, {row.n_targets} and {row.inputs}. Make the "
            "map of the observations from the map of the values."
        )
    matrix = moments.matrix()
    shift = np.concatenate([own.feature_origin, [0.0], own.target_origin])
    shift -= constant * np.concatenate([row.feature_origin, [0.0], row.target_origin])
    sums = _shift_origin(matrix, r, shift, constant)
    sample = RowSample.empty(moments.sample.size, moments.sample.rows.shape[1])
    return replace(moments, row=row, sums=pack(sums), sample=sample)


def _shift_origin(matrix: Float64, r: int, shift: Float64, constant: float) -> Float64:
    """Σ w a aᵀ of a + shift·a₁, the entry a₁ = 1 of column r then times the constant."""
    ones = matrix[r].copy()
    moved = matrix + np.outer(shift, ones) + np.outer(ones, shift)
    moved += matrix[r, r] * np.outer(shift, shift)
    moved[r] *= constant
    moved[:, r] *= constant
    return np.asarray(moved)
