"""The smallest useful α: the rounding in the sums G sets it.

Rounded sums move the eigenvalues of G by up to −λ_min(G) > 0; an α below three times that
fits the rounding. Cholesky's success at G + αI proves nothing about it, and clipping the
eigenvalues does not help: the eigenvectors are wrong, too.
"""

from __future__ import annotations

import warnings
from typing import Literal, get_args

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError, NumericalWarning

__all__ = ["Floor", "alpha_of_targets", "rounding_floor", "warn_at_floor"]

Floor = Literal["raise_alpha", "raise_silently", "refuse"]
"""What happens to α < η: it is raised to η with a warning (or without, where the rounding is
removed afterwards), or refused."""

SAME = 1e-9
"""Relative distance at which α is η: η itself may come from another run of the eigenvalues."""

FLOAT64_ROUNDING = 1e-11
"""η over λ_max that float64 sums stay below, and float32 sums do not."""

TINY = 1e-100
"""λ_max of features that are all constant: any α does, and its square is a number."""


def alpha_of_targets(alpha: Array | float, n_targets: int) -> Float64:
    """α (T,) from one number or one for each target; refuses what no penalty can be."""
    given = np.asarray(alpha, dtype=np.float64)
    if given.shape not in ((), (n_targets,)):
        raise ValueError(
            f"alpha has shape {given.shape} but there are {n_targets} targets. "
            "Give one number, or one for each target."
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError(f"alpha={alpha!r} but a penalty is finite and ≥ 0. Use e.g. alpha=1.0.")
    return np.broadcast_to(given, (n_targets,)).copy()


def rounding_floor(eigenvalues: Float64) -> float:
    """η = 3·max(0, −λ_min(G)), and at least R·ε·λ_max where G is singular to that.

    The second part is the rounding of float64 itself: it matters only for sums that were
    exact, where λ_min may come out as +1e-17 by luck.
    """
    smallest, resolution = float(eigenvalues.min()), _resolution(eigenvalues)
    return max(-3 * smallest, resolution if smallest <= resolution else 0.0)


def largest_eigenvalue(eigenvalues: Float64) -> float:
    """λ_max, and never 0: features that are all constant have some scale too."""
    return max(float(eigenvalues.max()), TINY)


def raised_to_floor(alpha: Float64, eta: float, floor: Floor) -> Float64:
    """max(α, η), with a warning that gives both, or a refusal."""
    if floor not in get_args(Floor):
        raise ValueError(f"floor={floor!r} but it is one of {', '.join(get_args(Floor))}.")
    if (alpha >= eta * (1 - SAME)).all() or floor == "raise_silently":
        return np.maximum(alpha, eta)
    fact = (
        f"alpha={alpha.min():.3g} is below η={eta:.3g}, the rounding in the sums. "
        "A smaller alpha would fit that rounding."
    )
    if floor == "refuse":
        raise ModelError(f'{fact} Use alpha ≥ η, or collect the moments with sums="float64".')
    warnings.warn(
        f'{fact} alpha was raised to η; sums="float64" lowers η.', NumericalWarning, stacklevel=3
    )
    return np.maximum(alpha, eta)


def warn_at_floor(
    alpha: Float64, eta: float, largest: float, targets: tuple[str, ...], *, slack: float = 1.0
) -> None:
    """Say that a criterion would have chosen a smaller α than rounded sums allow.

    Only where η is above the rounding of float64 sums: there no penalty is needed at all.
    ``slack`` is the step of the grid that α was chosen from.
    """
    held = np.flatnonzero(alpha <= eta * slack * (1 + 1e-6))
    if len(held) and eta > FLOAT64_ROUNDING * largest:
        names = ", ".join(targets[t] for t in held)
        warnings.warn(
            f"alpha={alpha[held[0]]:.3g} was chosen for {names} because no smaller one is allowed: "
            f"η={eta:.3g} is the rounding in the sums, and they ask for less. Noise is "
            'overestimated and the fit too stiff. Use sums="float64".',
            NumericalWarning,
            stacklevel=4,
        )


def require_rank(alpha: Float64, eigenvalues: Float64) -> None:
    """Refuse α = 0 where G has not full rank: β is then not determined."""
    rank = int((eigenvalues > max(rounding_floor(eigenvalues), _resolution(eigenvalues))).sum())
    if (alpha == 0).any() and rank < len(eigenvalues):
        raise np.linalg.LinAlgError(
            f"alpha=0 but the {len(eigenvalues)} feature columns have rank {rank}. "
            "Without a penalty the rank must be full. "
            f"Use alpha ≥ {rounding_floor(eigenvalues):.2g}, or fewer components."
        )


def _resolution(eigenvalues: Float64) -> float:
    """R·ε·λ_max: eigenvalues below it are zero in float64."""
    return float(len(eigenvalues) * np.finfo(np.float64).eps * max(eigenvalues.max(), 0.0))
