"""Directions along which two fits on different rows change alike: what noise gives is not shared.

With f and g fitted to two halves of the rows, each in a metric A (d, k), and u = xA over its
standard deviation, M = mean sym(∇f ∇gᵀ) at the same rows estimates the mean of ∇f∇fᵀ without the
noise of either: noise alone gives eigenvalues of both signs alike. Directions are the eigenvectors
whose eigenvalues are above the size of the most negative one. That much may hide along any other,
so a next turn compares rows in VΛVᵀ + floor·I, where it is smaller and more stands out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import linalg

from rff_stream._array import Float64
from rff_stream.kernels import RadialKernel
from rff_stream.length_scales.budget import FEW_COLUMNS, PRODUCT_SECONDS, seconds_of_look
from rff_stream.length_scales.window_evidence import (
    MetricFit,
    RowWindow,
    coefficients,
    rows_along,
    squared_distances,
)

HALF_ROWS, SLOPE_ROWS = 2000, 1000
"""Most rows of a half, and rows where slopes are compared."""

KEPT_DISTANCE = 0.999
"""Share of the squared distances of rows that the directions of many inputs must tell."""

ROUNDING = float(np.finfo(float).eps) ** 2
"""Mean squared slope, in units of inputs and targets, of a fit that is flat but for rounding."""

VECTOR_PRODUCTS = 3
"""Products of d³ that all eigenvectors take as long as."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedDirections:
    """What stands out of the noise, and how large what does not may be."""

    leading: Float64  # (d, k): each column as long as the root mean squared slope along it
    floor: float  # mean squared slope that noise can hide, along any direction
    unit: Float64  # (d,): scales of the inputs

    @property
    def metric(self) -> Float64:
        """Those that stand out alone, or the whole where none does, or all do."""
        return self.leading if 0 < self.n_leading < len(self.unit) else self.whole

    @property
    def n_leading(self) -> int:
        """How many stand out."""
        return int(self.leading.shape[1])

    @property
    def whole(self) -> Float64:
        """(d, d) metric in which hidden directions are seen, too."""
        rest = np.sqrt(self.floor) * np.eye(len(self.unit)) / self.unit[:, None]
        length = np.sqrt(((self.leading * self.unit[:, None]) ** 2).sum(axis=0))
        along = self.leading / length
        more = np.sqrt(length**2 + self.floor) - np.sqrt(self.floor)
        return np.asarray(rest + (along * more) @ (along * self.unit[:, None]).T)

    def of_metric(self, matrix: Float64) -> Float64:
        """(d, k): a metric A (d, m) along the leading directions alone."""
        span = linalg.orth(self.leading * self.unit[:, None])
        values, vectors = linalg.eigh(
            span.T @ (matrix * self.unit[:, None]) @ (matrix.T * self.unit) @ span
        )
        return np.asarray(span @ vectors * np.sqrt(np.maximum(values, 0)) / self.unit[:, None])


def shared_directions(
    rows: RowWindow, fit: MetricFit, most: int, unit: Float64, rng: Generator
) -> SharedDirections:
    """At most so many, by two halves of some of the rows; inputs are in units (d,)."""
    order = rng.permutation(len(rows.x))
    half = min(len(order) // 2, HALF_ROWS)
    at = rows.x[order[:SLOPE_ROWS]]
    halves = [rows.part(order[i * half : (i + 1) * half]) for i in range(2)]
    pairs = zip(*(_slopes(each, fit, at) for each in halves), strict=True)  # (m, d) of each target
    M = sum((f.T @ g for f, g in pairs), np.zeros((len(unit), len(unit))))
    if not np.isfinite(M).all():  # a fit failed: nothing is shared
        M = np.zeros_like(M)
    M = (M + M.T) / (2 * len(at)) * np.outer(unit, unit)
    values, vectors = linalg.eigh(M, driver="evd", check_finite=False)
    floor = max(float(-values[0]), ROUNDING)
    k = min(int((values > floor).sum()), most)
    first = len(values) - k
    leading = vectors[:, first:] * np.sqrt(values[first:]) / unit[:, None]
    return SharedDirections(leading, floor, unit)


def seconds_of_directions(n_rows: int, d: int, n_targets: int) -> float:
    """What they take in CPU: two fits, slopes of each in a metric (d, d), and the vectors of M."""
    half = min(n_rows // 2, HALF_ROWS)
    at = min(n_rows, SLOPE_ROWS)
    moved, pairs = (2 * half + at) * d**2, half * (half + at) * d
    products = 2 * (moved + pairs + n_targets * at * d * (half + d)) + n_targets * at * d**2
    vectors = VECTOR_PRODUCTS * d**3
    return 3 * seconds_of_look(half, 1, True) + PRODUCT_SECONDS * (products + vectors)


def slope_metric(rows: RowWindow, fit: MetricFit, unit: Float64, power: float = 0.5) -> Float64:
    """Mᵖ (d, k) of M = Σ mean ∇f∇fᵀ over targets, as wide at the rows as the metric of the fit.

    M is that of inputs in units (d,), and p = 1/2 the next turn of a recursive feature machine
    (Radhakrishnan et al. 2024). Of many inputs, directions along which rows hardly differ are left
    out.
    """
    d, k = fit.matrix.shape
    at = rows.x[:SLOPE_ROWS] if d > FEW_COLUMNS else rows.x
    own = sum((f.T @ f for f in _slopes_along(rows, fit, at)), np.zeros((k, k)))
    if not np.isfinite(own).all():  # the fit failed
        return fit.matrix
    scaled = fit.matrix * unit[:, None]
    values, vectors = linalg.eigh(scaled @ own @ scaled.T, driver="evd", check_finite=False)
    along = vectors * np.maximum(values, 0) ** power
    if d > FEW_COLUMNS:
        sizes = ((rows.x / unit) @ along).var(axis=0)
        order = np.argsort(-sizes)
        before = np.cumsum(sizes[order]) - sizes[order]
        along = along[:, np.sort(order[before < KEPT_DISTANCE * sizes.sum()])]
    else:
        along = along @ vectors.T
    along /= unit[:, None]
    width = _width(rows.x @ along)
    return np.asarray(
        along * (_width(rows_along(rows.x, fit.matrix)) / width if width > 0 else 0.0)
    )


def seconds_of_slopes(n_rows: int, d: int, k: int, n_targets: int) -> float:
    """What such a metric of a fit in A (d, k) takes in CPU: a fit, slopes, M and its vectors."""
    at = min(n_rows, SLOPE_ROWS) if d > FEW_COLUMNS else n_rows
    products = n_targets * at * (n_rows * (k + 1) + k**2) + (n_rows + k) * d**2 + at * n_rows * k
    return seconds_of_look(n_rows, 1, True) + PRODUCT_SECONDS * (products + VECTOR_PRODUCTS * d**3)


def _width(u: Float64) -> float:
    """The median distance of rows."""
    half = len(u) // 2
    return float(np.median(np.linalg.norm(u[:half] - u[half : 2 * half], axis=1)))


def _slopes(window: RowWindow, fit: MetricFit, at: Float64) -> Float64:
    """∇f (T, m, d) at rows of the exact fit to a window."""
    return _slopes_along(window, fit, at) @ fit.matrix.T


def _slopes_along(window: RowWindow, fit: MetricFit, at: Float64) -> Float64:
    """The same by rows xA (T, m, k)."""
    assert isinstance(fit.kernel, RadialKernel)
    middle = window.x.mean(axis=0)
    u, v = (rows_along(each - middle, fit.matrix) for each in (window.x, at))
    squared = squared_distances(v, u)
    value, decay = np.empty((2, *squared.shape))
    fit.kernel.write_value_and_slope(squared, value, decay)
    found, ends = [], np.column_stack([u, np.ones(len(u))])
    for own in coefficients(window, fit).T:
        both = decay @ (2 * own[:, None] * ends)
        found.append(both[:, -1:] * v - both[:, :-1])
    return np.asarray(found)
