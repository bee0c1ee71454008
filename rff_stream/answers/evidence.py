"""Noise and signal variance by maximising the marginal likelihood, from eigenvalues.

    y ~ N(μ1, σ_f² Z diag(s) Zᵀ + σₙ² W⁻¹),  μ flat,  α = σₙ²/σ_f²

In the eigenbasis of G every evaluation costs O(R), and for given α both variances have a
closed form: one search over log α is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.dual import row_space
from rff_stream.answers.posterior import Posterior, posterior
from rff_stream.answers.ridge import Ridge
from rff_stream.errors import warn
from rff_stream.moments import Moments
from rff_stream.systems.normal_equations import ridge_system
from rff_stream.systems.spectrum import (
    FEW_ROWS,
    Decomposition,
    Floor,
    Spectrum,
    alpha_of_targets,
    decompose,
    largest_eigenvalue,
    raised_to_floor,
    tridiagonal,
    warn_at_floor,
)

LOWEST, HIGHEST = 1e-14, 1e4
"""Ends of the search over α/λ_max. If η is above the lower one, the search starts at η."""

GRID = 128
"""First search over log α: steps of 0.33, while every term of log p changes on a scale of 1."""

HALVINGS = 50
"""Number of bisections of the best step: log α to 1e-15."""

FEW_FEATURES = 256
"""Largest R for which the cost of eigenvectors is negligible."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Noise and signal variance of highest evidence, and the evidence.

    Parameters
    ----------
    alpha : (T,) float64
        σₙ²/σ_f², in units of w; at least η.
    noise_variance : (T,) float64
        σₙ² of a row of weight 1, in units of y².
    signal_variance : (T,) float64
        σ_f², in units of y²; multiplies the map's prior.
    log_evidence : (T,) float64
        log p(y | α, σₙ²), natural logarithm.
    df : (T,) float64
        Effective degrees of freedom.
    eta : float
        η, the rounding error in the sums.
    spectrum : Decomposition
        The decomposition of the moments, for predictions and other α.
    """

    alpha: Float64
    noise_variance: Float64
    signal_variance: Float64
    log_evidence: Float64
    df: Float64
    eta: float
    spectrum: Decomposition

    def posterior(self) -> Posterior:
        """The Gaussian process given the data, at these variances."""
        return posterior(self.spectrum.directions(), self.alpha, self.noise_variance)

    def ridge(self) -> Ridge:
        """The ridge regression at this α: the process's mean."""
        coef = self.spectrum.coef(self.alpha)
        intercept = self.spectrum.system.intercept(coef)
        return Ridge(coef, intercept, self.alpha, self.df, self.eta)


def evidence(
    moments: Moments | Decomposition, *, shared: bool = False, fit_intercept: bool = True
) -> Evidence:
    """Noise and signal variance of each target by maximal marginal likelihood.

    log p = −½[(n−1)log 2π + (n−1)log σₙ² + Σ log(1 + λ/α) + (ỹᵀWỹ − cᵀβ)/σₙ² + log Σw − Σ log w]

    Parameters
    ----------
    moments : Moments or Decomposition
        Order 2, with targets and at least two rows; or a decomposition that exists already.
    shared : bool
        One α for all targets, but each with its own variances: for outputs of one kind, if a
        single target has too little information.
    fit_intercept : bool
        μ flat, or 0. A decomposition has it already.

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        If there are fewer than two rows, or no targets.

    Notes
    -----
    Copies of a row, as far as the row sample tells, are one row of their summed weight.

    One decomposition, then about 180·R·T flops. λ < 0 (rounded sums) counts as 0 in
    logarithms only, and no α below η is tried. Without this floor, float32 sums gave an α with an
    RMSE of 6,597; with it, .367. A constant target has no noise and no signal; a
    NumericalWarning names it. Tests compare it with dense universal kriging.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(0.7), 1, 64, rng=0)
    >>> y = np.sin(3 * x[:, 0]) + 0.3 * rng.standard_normal(2000)
    >>> found = evidence(rs.collect(features, x, y))
    >>> bool(abs(found.noise_variance[0] ** 0.5 - 0.3) < 0.02)
    True
    """
    found = _decompose(moments, fit_intercept)
    profile = Profile.of(found)
    warn_of_constants(found.system.target_scatter, found.system.targets)
    largest = largest_eigenvalue(found.eigenvalues)
    alpha = best_alpha(profile, largest, found.eta, shared)
    warn_at_floor(alpha, found.eta, largest, found.system.targets)
    return _evidence(found, profile, alpha)


def evidence_at(
    moments: Moments | Decomposition,
    alpha: Array | float,
    *,
    fit_intercept: bool = True,
    floor: Floor = "raise_alpha",
) -> Evidence:
    """The variances at a given α: σₙ² = (ỹᵀWỹ − cᵀβ)/(n − 1), σ_f² = σₙ²/α."""
    found = _decompose(moments, fit_intercept)
    given = raised_to_floor(alpha_of_targets(alpha, found.system.n_targets), found.eta, floor)
    if (given == 0).any():
        raise ValueError("alpha=0 has no signal variance. A Gaussian process needs alpha > 0.")
    return _evidence(found, Profile.of(found), given)


def log_evidence(
    moments: Moments | Decomposition,
    alpha: Array | float,
    noise_variance: Array | float,
    *,
    fit_intercept: bool = True,
) -> Float64:
    """Log p(y) (T,) at any α ≥ η and σₙ²; see :func:`evidence` for the formula."""
    found = _decompose(moments, fit_intercept)
    wanted = alpha_of_targets(alpha, found.system.n_targets)
    used = raised_to_floor(wanted, found.eta, "raise_alpha")
    return Profile.of(found).log_evidence(used, np.asarray(noise_variance, dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """log p as a function of α (T,), in the eigenbasis.

    R is the number of all eigenvalues: blocks of a block-diagonal G stand one under the other.
    """

    eigenvalues: Float64  # (R, 1), as computed
    squared_rhs: Float64  # c² (R, T)
    scatter: Float64  # ỹᵀWỹ (T,)
    least: Float64  # (T,), what rounding leaves of Q
    freedom: int  # n − 1, or n without μ
    constant: float  # (n − 1) log 2π + log Σw − Σ log w

    @classmethod
    def of(cls, found: Decomposition) -> Profile:
        """log p of what was decomposed."""
        system = found.system
        counted = system.observations
        freedom = counted.n - int(system.fit_intercept)
        if freedom < 1:
            raise ValueError(
                f"These moments hold {counted.n} sample(s). Variances need at least "
                f"{1 + int(system.fit_intercept)}. Collect more rows."
            )
        # What η says of a feature column of unit variance, for a target of unit variance.
        rounding = found.eta / (3 * np.mean(system.root_prior**2) * system.weight)
        border = np.log(system.weight) if system.fit_intercept else 0.0
        choices: dict[str, Any] = {
            "eigenvalues": found.eigenvalues[:, None],
            "scatter": system.target_scatter,
            "least": system.target_scatter * max(rounding, np.finfo(np.float64).eps),
            "freedom": freedom,
            "constant": float(freedom * np.log(2 * np.pi) + border - counted.log_weight),
        }
        if isinstance(found, Spectrum):
            return cls(squared_rhs=found.rhs**2, **choices)
        return SolvedProfile(squared_rhs=np.empty((0, 0)), found=found, **choices)

    def quadratics(self, alpha: Float64) -> tuple[Float64, Float64]:
        """cᵀ(Λ + α)⁻¹c and cᵀ(Λ + α)⁻²c (T,)."""
        shifted = self.eigenvalues + alpha
        return (self.squared_rhs / shifted).sum(axis=0), (self.squared_rhs / shifted**2).sum(axis=0)

    def objective(self, alpha: Float64) -> Float64:
        """Q = ỹᵀWỹ − cᵀ(Λ + α)⁻¹c (T,), the least squares objective, and not below rounding."""
        return np.asarray(np.maximum(self.scatter - self.quadratics(alpha)[0], self.least))

    def noise(self, alpha: Float64) -> Float64:
        """σₙ² (T,) that maximises log p at α."""
        return self.objective(alpha) / self.freedom

    def log_evidence(self, alpha: Float64, noise: Float64 | None = None) -> Float64:
        """Log p (T,), σₙ² at its maximum where it is not given; +∞ without noise."""
        objective = self.objective(alpha)
        noise = objective / self.freedom if noise is None else noise
        log_det = np.log1p(np.maximum(self.eigenvalues, 0.0) / alpha).sum(axis=0)
        known = noise > 0
        safe = np.where(known, noise, 1.0)
        fit = self.freedom * np.log(safe) + objective / safe
        return np.where(known, -0.5 * (self.constant + log_det + fit), np.inf)

    def slope(self, alpha: Float64) -> Float64:
        """∂ log p/∂ log α (T,) with σₙ² at its maximum; 0 for a constant target."""
        explained, change = self.quadratics(alpha)  # the second is ∂Q/∂α
        clipped = np.maximum(self.eigenvalues, 0.0)
        share = (clipped / (clipped + alpha)).sum(axis=0)
        objective = np.maximum(self.scatter - explained, self.least)
        gain = self.freedom * alpha * change / _positive(objective)
        return np.where(self.scatter > 0, 0.5 * (share - gain), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class SolvedProfile(Profile):
    """The same without the eigenbasis: c² is not known, but what it is summed to is."""

    found: Decomposition

    def quadratics(self, alpha: Float64) -> tuple[Float64, Float64]:
        return self.found.quadratics(alpha)


def best_alpha(profile: Profile, largest: float, eta: float, shared: bool) -> Float64:
    """α (T,) of the highest log p: a grid over log α, then bisection of its slope.

    Safe where log p is not concave, and at the ends; of equals, the largest α. Looked for from η
    or 1e-14 λ_max to 1e4 λ_max.
    """
    lowest = max(eta, LOWEST * largest)
    bounds = lowest, max(HIGHEST * largest, 10 * lowest)
    grid = np.linspace(np.log(bounds[0]), np.log(bounds[1]), GRID)[::-1]
    ones = np.ones(len(profile.scatter))
    varies = profile.scatter > 0

    def joined(values: Float64) -> Float64:
        return ones * values[varies].sum() if shared else values

    def value(log_alpha: float) -> Float64:
        alpha = np.exp(log_alpha) * ones
        return joined(np.where(varies, profile.log_evidence(alpha), 0.0))

    best = np.argmax([value(log_alpha) for log_alpha in grid], axis=0)
    high, low = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, GRID - 1)]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rising = joined(profile.slope(np.exp(middle))) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.asarray(np.clip(np.exp((low + high) / 2), *bounds))


def _evidence(found: Decomposition, profile: Profile, alpha: Float64) -> Evidence:
    noise = profile.noise(alpha)
    value = profile.log_evidence(alpha, noise)
    return Evidence(alpha, noise, noise / alpha, value, found.df(alpha), found.eta, found)


def _decompose(moments: Moments | Decomposition, fit_intercept: bool) -> Decomposition:
    if isinstance(moments, Decomposition):
        return moments
    few = None if moments.kept is None else row_space(moments, fit_intercept=fit_intercept)
    if few is not None:
        return few
    system = ridge_system(moments, fit_intercept=fit_intercept)
    if system.n_features <= FEW_FEATURES or system.n <= FEW_ROWS * system.n_features:
        return decompose(system)
    return tridiagonal(system)


def warn_of_constants(scatter: Float64, targets: tuple[str, ...]) -> None:
    """Name the targets of no scatter."""
    constant = np.flatnonzero(scatter == 0)
    if len(constant):
        names = ", ".join(targets[t] if targets else f"y{t}" for t in constant)
        warn(
            f"Target {names} is constant: its noise and signal variance are 0. "
            "It is predicted by this constant. Leave it out if you did not expect this."
        )


def _positive(value: Float64) -> Float64:
    return np.where(value > 0, value, 1.0)
