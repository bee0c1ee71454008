"""G = U diag(λ) Uᵀ, or QTQᵀ with T tridiagonal, once; then every α for every target costs O(R).

T takes a third of the work, and has no directions: it is for answers that are means.

The rounding in the sums G sets the smallest useful α, the floor η. Rounded sums move the
eigenvalues of G by up to −λ_min(G) > 0; an α below three times that fits the rounding. Cholesky's
success at G + αI proves nothing about it, and clipping the eigenvalues does not help: the
eigenvectors are wrong, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError, warn
from rff_stream.moments import Moments
from rff_stream.systems.normal_equations import System, mirror_lower, ridge_system

Floor = Literal["raise_alpha", "raise_silently", "refuse"]
"""What happens to α < η: it is raised to η with a warning (or without, where the rounding is
removed afterwards), or refused."""

SAME = 1e-9
"""Relative distance at which α is η: η itself may come from another run of the eigenvalues."""

FLOAT64_ROUNDING = 1e-11
"""η over λ_max that float64 sums stay below, and float32 sums do not."""

TINY = 1e-100
"""λ_max of features that are all constant: any α does, and its square is a number."""

FEW_ROWS = 0.6
"""Largest n/R for which the low-rank method is used; above it an R×R decomposition is as cheap."""

ZERO_PIVOT = 64 * np.finfo(np.float64).eps
"""Pivots below this share of the largest are rounding: what they leave of G is 0 to η."""

BLOCK = 64
"""Columns that LAPACK reduces or turns together."""

NOT_CONVERGED = "Eigenvalues of G did not converge. Look for features of extreme size."


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition(ABC):
    """G in a basis in which every α costs little."""

    eigenvalues: Float64
    """(r,), λ as computed, increasing: below 0 where the sums were rounded. r = R, or about the
    rank where rows are few: eigenvalues of 0 are then left out."""
    system: System  # where they came from; its matrix was overwritten and is left empty

    @abstractmethod
    def quadratics(self, alpha: Array) -> tuple[Float64, Float64]:
        """Cᵀ(G + α)⁻¹C and Cᵀ(G + α)⁻²C of each target (T,), each at its α (T,)."""

    @abstractmethod
    def coef(self, alpha: Array) -> Float64:
        """Raw coefficients β (R, T) for α (T,); 2R²T flops."""

    @abstractmethod
    def directions(self) -> Spectrum:
        """The same with eigenvectors, which variances need."""

    @property
    def eta(self) -> float:
        """η, the smallest α that the rounding of the sums allows."""
        return rounding_floor(self.all_eigenvalues)

    @property
    def all_eigenvalues(self) -> Float64:
        """λ (R,), those of 0 included."""
        return np.concatenate([np.zeros(self.n_zeros), self.eigenvalues])

    @property
    def n_zeros(self) -> int:
        """R − r, how many eigenvalues of 0 were left out."""
        return len(self.system.root_prior) - len(self.eigenvalues)

    def df(self, alpha: Array) -> Float64:
        """Effective degrees of freedom for each α: 1 + Σ λ/(λ + α), no 1 without μ."""
        return degrees_of_freedom(self.eigenvalues, alpha, self.system.fit_intercept)


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum(Decomposition):
    """Eigenvalues of G, increasing, and everything else in its eigenbasis."""

    rotation: Float64
    """(R, r), S^½U: β = rotation · γ, and (z − z̄)·rotation are a row's coordinates. Directions of
    eigenvalues that were left out have nothing of C."""
    rhs: Float64  # (r, T): c = UᵀC

    def quadratics(self, alpha: Array) -> tuple[Float64, Float64]:
        shifted = self.eigenvalues[:, None] + alpha
        return (self.rhs**2 / shifted).sum(axis=0), (self.rhs**2 / shifted**2).sum(axis=0)

    def directions(self) -> Spectrum:
        return self

    def complete(self) -> Spectrum:
        """The same with all R directions: for variances, and whatever leaves the span of the rows.

        2R²r flops; itself where nothing was left out.
        """
        if not self.n_zeros:
            return self
        root = self.system.root_prior[:, None]
        whole = np.empty((len(root), len(root)))
        rest = whole[:, : self.n_zeros]
        write_complement(self.rotation / root, rest)
        rest *= root
        whole[:, self.n_zeros :] = self.rotation
        return Spectrum(
            self.all_eigenvalues,
            self.system,
            whole,
            np.concatenate([np.zeros((self.n_zeros, self.rhs.shape[1])), self.rhs]),
        )

    def coef(self, alpha: Array) -> Float64:
        return np.asarray(self.rotation @ (self.rhs / (self.eigenvalues[:, None] + alpha)))

    def least_norm(self, alpha: Array) -> tuple[Float64, Float64]:
        """β (R, T) and df (T,), where α = 0 is its limit: the solution of least norm.

        There 1/(λ + α) is 1/λ above η, and 0 in directions that are rounding.
        """
        kept = (self.eigenvalues > self.eta)[:, None]
        held = np.where((alpha > 0) | kept, self.eigenvalues[:, None] + alpha, np.inf)
        df = (np.maximum(self.eigenvalues, 0)[:, None] / held).sum(axis=0)
        return self.rotation @ (self.rhs / held), df + float(self.system.fit_intercept)

    def residual_scatter(self, alpha: Array) -> Float64:
        """Σ w (y − μ − zβ)² (T,) of the fit at α (T,), from γ = c/(λ + α).

        ỹᵀWỹ − 2cᵀγ + γᵀΛγ, and never below the rounding of ỹᵀWỹ.
        """
        shifted = self.eigenvalues[:, None] + alpha  # (R, T)
        explained = (self.rhs**2 * (shifted + alpha) / shifted**2).sum(axis=0)
        scatter = self.system.target_scatter
        return np.asarray(np.maximum(scatter - explained, np.finfo(float).eps * scatter))


def spectrum(moments: Moments, *, fit_intercept: bool = True) -> Spectrum:
    """Eigen-decomposition of the centred, prior-scaled system of moments.

    Notes
    -----
    About ten Cholesky factorisations: 0.35 CPU s at R=1024, 1.5 at 2048. Three R×R float64
    beside the packed moments. Driver "evd" takes the time of "evr" and is orthogonal to 4e-15
    where "evr" has 4e-13. Of n ≤ 0.6 R rows: one pivoted Cholesky that stops at the rank r,
    and the rest in Rr² flops (R=2048: 0.02 CPU s for 20 rows, 0.25 for 1,000).
    """
    return decompose(ridge_system(moments, fit_intercept=fit_intercept))


def decompose(system: System) -> Spectrum:
    """The spectrum of a system, whose matrix it overwrites."""
    found = span_of_few_rows(system.matrix, system.n)
    if found is None:
        eigenvalues, vectors = linalg.eigh(
            system.matrix.T, overwrite_a=True, check_finite=False, driver="evd"
        )
    else:
        eigenvalues, vectors = with_rest(*found, system.rhs)
    rhs = vectors.T @ system.rhs
    vectors *= system.root_prior[:, None]
    return Spectrum(eigenvalues, replace(system, matrix=np.empty((0, 0))), vectors, rhs)


def span_of_few_rows(matrix: Float64, n: int) -> tuple[Float64, Float64] | None:
    """λ (r,) > 0, increasing, and U (R, r) of G from n ≤ 0.6 R rows, or None.

    None, and G as it was, for more rows and where n rows have no such rank.
    """
    factor = _low_rank_factor(matrix, n) if n <= FEW_ROWS * len(matrix) else None
    return None if factor is None else range_of(factor)


def _low_rank_factor(matrix: Float64, n: int) -> Float64 | None:
    """L (R, r) with G = LLᵀ to rounding, r ≤ n; None, and G as it was, where n rows have no such L.

    Sums of float32 have full rank: their rounding is no smaller along other directions. Pivots of
    rounding may end early at one below 0; what L leaves of the diagonal is then below 0, too.
    """
    diagonal = matrix.diagonal().copy()
    # The triangle that LAPACK sees as the lower one is overwritten, the other one is kept.
    factor, pivots, rank, _ = lapack.dpstrf(
        matrix.T, tol=ZERO_PIVOT * max(float(diagonal.max()), 0.0), lower=1, overwrite_a=1
    )
    if 0 < rank <= n:
        lower = np.empty((len(matrix), rank), order="F")
        lower[pivots - 1] = np.tril(factor[:, :rank])
        left = diagonal - np.einsum("ij,ij->i", lower, lower)
        if left.min() >= -FLOAT64_ROUNDING * diagonal.max():
            return lower
    mirror_lower(matrix)
    np.fill_diagonal(matrix, diagonal)
    return None


def range_of(factor: Float64) -> tuple[Float64, Float64]:
    """λ (r,) > 0 and U (R, r) of LLᵀ: by QR, so that small λ have exact directions, too."""
    (reflectors, tau), upper = linalg.qr(factor, mode="raw", overwrite_a=True, check_finite=False)
    eigenvalues, small = linalg.eigh(upper @ upper.T, overwrite_a=True, driver="evd")
    vectors = np.zeros(factor.shape, order="F")
    vectors[: len(small)] = small
    _, work, _ = lapack.dormqr("L", "N", reflectors, tau, vectors, -1)
    vectors, _, _ = lapack.dormqr("L", "N", reflectors, tau, vectors, int(work[0]), overwrite_c=1)
    return eigenvalues, vectors


def with_rest(eigenvalues: Float64, vectors: Float64, rhs: Float64) -> tuple[Float64, Float64]:
    """λ and U with what is left of C (R, T) outside of U's span, as directions of λ = 0.

    λ = 1e-15 λ_max was left out, but C has its square root there: 3e-8 of its size.
    """
    rest = rhs - vectors @ (vectors.T @ rhs)
    size, least = linalg.norm(rest, axis=0), len(rhs) * np.finfo(np.float64).eps
    rest = rest[:, size > least * linalg.norm(rhs, axis=0)]
    if not 0 < rest.shape[1] <= len(rhs) - len(eigenvalues):
        return eigenvalues, vectors
    span, _ = linalg.qr(rest, mode="economic")
    span, _ = linalg.qr(span - vectors @ (vectors.T @ span), mode="economic")
    return np.concatenate([np.zeros(span.shape[1]), eigenvalues]), np.hstack([span, vectors])


def write_complement(span: Float64, out: Float64) -> None:
    """An orthonormal basis (R, R − r) of what is orthogonal to the columns of span (R, r).

    The last columns of I − VTVᵀ, the product of the reflectors of QR as one matrix: LAPACK applies
    few reflectors one by one, which reads R×R as often.

    References
    ----------
    Schreiber & Van Loan 1989. Puglisi 1992 (T⁻¹ from VᵀV).
    """
    (reflectors, tau), _ = linalg.qr(span, mode="raw", check_finite=False)
    r = len(tau)
    V = np.tril(reflectors[:, :r], -1)
    V[np.arange(r), np.arange(r)] = 1.0
    used = tau != 0  # the others are the identity
    V, tau = V[:, used], tau[used]
    inverse = np.triu(V.T @ V, 1)
    inverse[np.diag_indices(len(tau))] = 1 / tau
    np.matmul(V, linalg.solve_triangular(inverse, -V[r:].T), out=out)
    out[np.arange(r, len(out)), np.arange(len(out) - r)] += 1.0


def degrees_of_freedom(eigenvalues: Float64, alpha: Array, fit_intercept: bool) -> Float64:
    """Σ λ/(λ + α), and 1 for the intercept, of α of any shape; λ clipped at 0."""
    clipped = np.maximum(eigenvalues, 0.0)
    alpha = np.asarray(alpha, dtype=np.float64)[..., None]
    held = clipped + alpha
    share = np.divide(clipped, held, out=np.zeros(held.shape), where=held > 0)
    return np.asarray(share.sum(axis=-1) + float(fit_intercept))


def alpha_of_targets(alpha: Array | float, n_targets: int, name: str = "alpha") -> Float64:
    """α (T,) from one number or one for each target; refuses what no penalty can be."""
    given = np.asarray(alpha, dtype=np.float64)
    if given.shape not in ((), (n_targets,)):
        raise ValueError(
            f"{name} has shape {given.shape} but there are {n_targets} targets. "
            "Give one number, or one for each target."
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError(f"{name}={alpha!r} but it must be finite and ≥ 0. Use e.g. {name}=1.0.")
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
        raise ValueError(f"floor={floor!r} but it must be one of {', '.join(get_args(Floor))}.")
    if (alpha >= eta * (1 - SAME)).all() or floor == "raise_silently":
        return np.maximum(alpha, eta)
    fact = (
        f"alpha={alpha.min():.3g} is below η={eta:.3g}, the rounding in the sums. "
        "A smaller alpha would fit that rounding."
    )
    if floor == "refuse":
        raise ModelError(f'{fact} Use alpha ≥ η, or collect the moments with sums="float64".')
    warn(f'{fact} alpha was raised to η; sums="float64" lowers η.')
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
        warn(
            f"alpha={alpha[held[0]]:.3g} was chosen for {names} because no smaller one is allowed: "
            f"η={eta:.3g} is the rounding error in the sums, and the data need less. Noise is "
            'overestimated and the fit is too smooth. Use sums="float64".'
        )


def _resolution(eigenvalues: Float64) -> float:
    """R·ε·λ_max: eigenvalues below it are zero in float64."""
    return float(len(eigenvalues) * np.finfo(np.float64).eps * max(eigenvalues.max(), 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Tridiagonal(Decomposition):
    """T, Q as reflectors, and C in the basis of Q."""

    diagonal: Float64  # (R,): T
    beside: Float64  # (R − 1,)
    reflectors: Float64  # (R, R − 1): Q, as LAPACK keeps it
    scales: Float64  # (R − 1,): its last row is not looked at
    rotated: Float64  # (R, T): QᵀC

    def solve(self, alpha: Array) -> Float64:
        """(T + αI)⁻¹QᵀC (R, T) for α (T,) above η.

        Raises
        ------
        numpy.linalg.LinAlgError
            Where T + αI is not positive definite.
        """
        found = np.empty_like(self.rotated)
        for value in sorted(set(alpha.tolist())):
            chosen = alpha == value
            *_, found[:, chosen], info = lapack.dptsv(
                self.diagonal + value, self.beside, self.rotated[:, chosen]
            )
            if info:
                raise np.linalg.LinAlgError(
                    f"G + αI is not positive definite at alpha={value:.3g}. "
                    "The penalty must exceed the rounding in the sums. Use a larger alpha."
                )
        return found

    def quadratics(self, alpha: Array) -> tuple[Float64, Float64]:
        solved = self.solve(alpha)
        return (self.rotated * solved).sum(axis=0), (solved**2).sum(axis=0)

    def coef(self, alpha: Array) -> Float64:
        coef = self.rotate(self.solve(alpha))
        coef *= self.system.root_prior[:, None]
        return coef

    def rotate(self, values: Float64, *, back: bool = False) -> Float64:
        """Q times values (R, k), which it overwrites, or Qᵀ times them: 2R²k flops."""
        below = np.asfortranarray(values[1:])
        values[1:], _, _ = lapack.dormqr(
            "L",
            "T" if back else "N",
            self.reflectors,
            self.scales,
            below,
            BLOCK * max(1, values.shape[1]),
            overwrite_c=1,
        )
        return values

    def directions(self) -> Spectrum:
        """The same with eigenvectors; R³ flops and more."""
        eigenvalues, vectors, failed = lapack.dstevd(self.diagonal, self.beside)
        if failed:
            raise np.linalg.LinAlgError(NOT_CONVERGED)
        rhs = vectors.T @ self.rotated
        rotation = self.rotate(vectors)
        rotation *= self.system.root_prior[:, None]
        return Spectrum(eigenvalues, self.system, rotation, rhs)


def tridiagonal(system: System) -> Tridiagonal:
    """T and Q of a system of R ≥ 2, whose matrix it overwrites.

    Notes
    -----
    4R³/3 flops, half of them bound by memory: 0.4 CPU s at R=2048, against 1.4 for a
    spectrum. One R×R float64 beside the system.
    """
    packed, diagonal, beside, scales, _ = lapack.dsytrd(
        system.matrix.T, lower=1, lwork=BLOCK * system.n_features, overwrite_a=1
    )
    eigenvalues, failed = lapack.dsterf(diagonal, beside)
    if failed:
        raise np.linalg.LinAlgError(NOT_CONVERGED)
    bare = replace(system, matrix=np.empty((0, 0)), rhs=np.empty((0, system.n_targets)))
    # Columns from the second row on, without a copy: their leading dimension stays R.
    reflectors = packed.ravel("F")[1 : 1 + packed[:, 1:].size].reshape(
        packed[:, 1:].shape, order="F"
    )
    found = Tridiagonal(eigenvalues, bare, diagonal, beside, reflectors, scales, system.rhs)
    return replace(found, rotated=found.rotate(system.rhs.copy(), back=True))
