"""Answers that are functions of moments: :func:`rff_stream.collect` gives all they need."""

from rff_stream.answers.density import density
from rff_stream.answers.dual import dual
from rff_stream.answers.evidence import evidence
from rff_stream.answers.learning_curves import group_errors, row_curve
from rff_stream.answers.penalty_selection import Selection, cross_validate, gcv, ridge_path
from rff_stream.answers.posterior import Posterior, spectrum_under_prior
from rff_stream.answers.principal_components import components, pre_images
from rff_stream.answers.ridge import ridge
from rff_stream.grid.selection import compare_kernels, cross_validate_grid
from rff_stream.moments.functionals import observed

__all__ = [
    "Posterior",
    "Selection",
    "compare_kernels",
    "components",
    "cross_validate",
    "cross_validate_grid",
    "density",
    "dual",
    "evidence",
    "gcv",
    "group_errors",
    "observed",
    "pre_images",
    "ridge",
    "ridge_path",
    "row_curve",
    "spectrum_under_prior",
]
