"""Length-scales of a kernel by the evidence of a small map on a few rows in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from rff_stream._array import Array, Float64
from rff_stream.errors import DataError, warn
from rff_stream.kernels import Gaussian, Kernel
from rff_stream.length_scales.whole_search import (
    Advance,
    Clock,
    End,
    KernelSearch,
    ProgressCallback,
    SearchRows,
    SearchSize,
    Trial,
)
from rff_stream.pilot import Pilot

MOST_SEARCHED, ITERATIONS = 6000, 60
"""Rows and L-BFGS iterations of the last search, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class LengthScales:
    """The kernel that explains the pilot best."""

    kernel: Kernel  # with its length-scale
    length_scale: Float64
    """(d,), ℓ, in units of the inputs: one multiple of their standard deviations, or ARD."""
    log_evidence: float  # log p of the pilot's targets, summed, in units of y
    alpha: float  # σₙ²/σ_f² on the pilot: a start, not the α of the fit
    noise_variance: Float64  # (T,): on the pilot, in units of y²
    signal_variance: Float64  # (T,): 0 for a constant target
    trials: tuple[Trial, ...] = field(repr=False)  # every search, in order
    seconds: float  # wall time

    @property
    def finished(self) -> bool:
        """Whether no search was ended by the clock: the result is then reproducible."""
        return all(trial.finished for trial in self.trials)


def fit_length_scales(
    X: Array,
    y: Array,
    kernels: Kernel | Sequence[Kernel] | None = None,
    *,
    ard: bool = False,
    n_components: int = 1024,
    max_rows: int = MOST_SEARCHED,
    max_iterations: int = ITERATIONS,
    max_seconds: float = 600.0,
    rng: Generator | int | None = None,
    weights: Array | None = None,
    progress: ProgressCallback | None = None,
    advance: Advance | None = None,
) -> LengthScales:
    """Length-scales of the kernel that explains pilot rows best, by evidence.

    Each kernel's unit frequencies are drawn once; log ℓ and log α maximise log p of the map
    they give (exact gradients, L-BFGS). Kernels compete on few rows and columns first, the
    best two on all.

    Parameters
    ----------
    X : (n, d) array
        Finite rows in memory.
    y : (n,) or (n, T) array
        Targets share ℓ and α, each with its own variances.
    kernels : Kernel or sequence of Kernel, optional
        Those that compete, Gaussian where absent; their length-scales are not used.
    ard : bool
        One ℓ for each input in place of one for all: for inputs of unequal relevance,
        where n is well above 10 d.
    n_components : int
        R of the largest map. 1536 for rough targets of many rows (kin40k at R=4096: RMSE .136
        after it, .150 after 768); a step costs 4nR² flops.
    max_rows : int
        Rows used at most, drawn at random.
    max_iterations : int
        Of the last search.
    max_seconds : float
        Wall time after which the best so far is taken, with a warning: iterations bound the
        work (at most about 100 CPU s), so that only a machine that is far too slow gets here.
        It is passed by one step at most for each search.
    rng : Generator or int, optional
        SearchRows and frequencies: the same seed, the same result, unless time ran out.
    weights : (n,) array, optional
        Positive; 1 where absent.
    progress : callable, optional
        Takes a line of text after each search.
    advance : callable, optional
        Takes the number of steps since the last call, for a bar.

    Returns
    -------
    LengthScales

    Raises
    ------
    DataError
        Fewer than three rows, values that are not finite, or targets that are all constant.
    ValueError
        No kernels, or a limit that is not positive.

    Notes
    -----
    Maps are compared, not kernels: a rough kernel spends its features on high frequencies, so
    that at finite R a Gaussian map may explain even a rough process better. On protein log p
    of the maps ranks Gaussian and Matérn 5/2, 3/2, 1/2 as their test errors do at R=4096,
    and that of the exact processes the other way round. One step costs 0.25 CPU s at
    n=6000, R=1024; a search takes 30 to 60 steps.
    """
    clock = Clock(time.monotonic(), max_seconds)
    generator = np.random.default_rng(rng)
    named = _kernels(kernels)
    for name, limit in {"n_components": n_components, "max_iterations": max_iterations}.items():
        if limit < 2:
            raise ValueError(f"{name}={limit} but it is at least 2.")
    if not max_seconds > 0:
        raise ValueError(f"max_seconds={max_seconds} but a limit is > 0. Give e.g. 60.")
    rows, varies = _rows(X, y, weights, max_rows, generator)
    search = KernelSearch(
        rows,
        int(generator.integers(2**63)),
        ard,
        clock,
        progress or _silent,
        advance or _without_bar,
    )
    end = search.run(named, SearchSize(len(rows.x), n_components, max_iterations))
    if not all(trial.finished for trial in search.trials):
        warn(
            f"The search for length-scales was ended by its limit of {max_seconds:g} s: another "
            "run may give other values. Raise the limit, or use fewer pilot rows or kernels."
        )
    return _result(end, search, varies)


def _kernels(kernels: Kernel | Sequence[Kernel] | None) -> tuple[Kernel, ...]:
    if kernels is None:
        return (Gaussian(),)
    named = tuple(kernels) if isinstance(kernels, Sequence) else (kernels,)
    if not named:
        raise ValueError("kernels is empty. Give at least one kernel, such as Gaussian().")
    return named


def _rows(
    X: Array, y: Array, weights: Array | None, max_rows: int, rng: Generator
) -> tuple[SearchRows, Array]:
    """Random rows in random order with the targets that vary, and which those are (T,)."""
    X = np.asarray(X, dtype=np.float64)
    targets = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not (np.isfinite(X).all() and np.isfinite(targets).all() and (w > 0).all()):
        raise DataError("The pilot holds NaN, inf or weights ≤ 0. Leave such rows out.")
    chosen = rng.permutation(len(X))[:max_rows]
    if len(chosen) < 3:
        raise DataError(f"{len(chosen)} rows say nothing about length-scales. Give at least 3.")
    # About the first row: a constant column is then exactly 0, whatever its value.
    pilot = Pilot(X[chosen] - X[chosen[0]], targets[chosen] - targets[chosen[0]], w[chosen])
    centred = pilot.y - pilot.target_origin
    unit = np.sqrt(np.average(centred**2, axis=0, weights=pilot.w))
    varies = unit > 1e-12 * np.abs(targets[chosen]).max(axis=0)
    if not varies.any():
        raise DataError(
            "Every target is constant on the pilot. Length-scales need a target that varies; "
            'use length_scale="median".'
        )
    median = float(np.median(pilot.median_length_scale() / pilot.scale))
    x, y = (pilot.x - pilot.origin) / pilot.scale, centred[:, varies] / unit[varies]
    return SearchRows(x, y, pilot.w, pilot.scale, unit[varies], median), varies


def _result(end: End, search: KernelSearch, varies: Array) -> LengthScales:
    alpha, noise = float(np.exp(end.log_alpha)), np.zeros(len(varies))
    noise[varies] = search.rows.unit**2 * end.target.noise(end.log_scale, end.log_alpha)
    return LengthScales(
        kernel=end.trial.kernel,
        length_scale=np.exp(end.log_scale) * search.rows.scale,
        log_evidence=end.score,
        alpha=alpha,
        noise_variance=noise,
        signal_variance=noise / alpha,
        trials=tuple(search.trials),
        seconds=search.clock.seconds,
    )


def _silent(line: str) -> None:
    """No progress."""


def _without_bar(steps: int) -> None:
    """No bar."""
