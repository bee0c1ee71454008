"""scikit-learn's own tests of these estimators, from the installed package, on ours.

``peers_of_scikit_learn`` has the adapters. What cannot pass has its reason here, test by test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from places import ROOT, TESTS

THEIRS = {
    "KernelRidge": "sklearn.tests.test_kernel_ridge",
    "GaussianProcessRegressor": "sklearn.gaussian_process.tests.test_gpr",
    "KernelDensity": "sklearn.neighbors.tests.test_kde",
    "KernelPCA": "sklearn.decomposition.tests.test_kernel_pca",
    "RBFSampler, Nystroem": "sklearn.tests.test_kernel_approximation",
}
"""Modules of tests by the classes that stand in."""

OTHERS = "not polynomial_count and not chi2 and not additive and not skewed and not array_api"
"""Tests of classes that have no equal here, and of arrays of other libraries, are left out."""

PRECOMPUTED = "kernel='precomputed' is refused: no n × n matrix is read"
THETA = "kernels have no `theta`, no bounds and no optimizer: length-scales are found by evidence"
SIGNAL = "the variance of f is estimated, so it depends on y; there it is the kernel's"
SHAPE = "y of shape (n, 1) has predictions of shape (n, 1); before a fit there is one target"
RANK = "a map has no more components than its rank, here 1 or 2"
PARAMETER = "tells of a parameter or a word of scikit-learn's that has no equal here"
ATTRIBUTE = "looks at an attribute of scikit-learn's way of computing"
KERNEL = "a kernel that has no equal here is refused, with what to give in its place"
APPROXIMATE = "densities are those of random features, with an error of 1/√R of the peak"
PRE_IMAGES = "`inverse_transform` needs no `fit_inverse_transform`: it searches for pre-images"

PASSED = {
    "KernelRidge": (4, 7),
    "GaussianProcessRegressor": (8, 35),
    "KernelDensity": (5, 10),
    "KernelPCA": (12, 23),
    "RBFSampler, Nystroem": (5, 13),
}
"""Tests that pass in all their cases, and tests that ran, with scikit-learn 1.9."""

REASONS = {
    "KernelRidge": {
        "test_kernel_ridge_precomputed": PRECOMPUTED,
        "test_kernel_ridge_precomputed_kernel_unchanged": PRECOMPUTED,
        "test_kernel_ridge_sample_weights": PRECOMPUTED,
    },
    "GaussianProcessRegressor": {
        "test_anisotropic_kernel": THETA,
        "test_bound_check_fixed_hyperparameter": THETA,
        "test_constant_target": ATTRIBUTE,
        "test_converged_to_local_maximum": THETA,
        "test_custom_optimizer": THETA,
        "test_gpr_consistency_std_cov_non_invertible_kernel": KERNEL,
        "test_gpr_correct_error_message": PARAMETER,
        "test_gpr_fit_error": PARAMETER,
        "test_gpr_interpolation_structured": "rows are numbers or columns of a table, no texts",
        "test_gpr_lml_error": THETA,
        "test_gpr_predict_input_not_modified": KERNEL,
        "test_large_variance_y": SIGNAL,
        "test_lml_gradient": THETA,
        "test_lml_improving": THETA,
        "test_lml_precomputed": THETA,
        "test_lml_without_cloning_kernel": THETA,
        "test_n_targets_error": PARAMETER,
        "test_no_optimizer": THETA,
        "test_predict_shape_with_prior": SHAPE,
        "test_predict_shapes": SHAPE,
        "test_random_starts": KERNEL,
        "test_sample_y_shape_with_prior": SHAPE,
        "test_sample_y_shapes": SHAPE,
        "test_solution_inside_bounds": THETA,
        "test_warning_bounds": THETA,
        "test_y_multioutput": SIGNAL,
        "test_y_normalization": "the mean is estimated, and its error is in the std",
    },
    "KernelDensity": {
        "test_bandwidth": "Scott's rule is per input, times its standard deviation",
        "test_kde_algorithm_metric_choice": PARAMETER,
        "test_kde_sample_weights": "draws of weighted rows are other draws than of repeated rows",
        "test_kernel_density": APPROXIMATE,
        "test_kernel_density_sampling": KERNEL,
    },
    "KernelPCA": {
        "test_gridsearch_pipeline_precomputed": PRECOMPUTED,
        "test_kernel_pca_inverse_correct_gamma": ATTRIBUTE,
        "test_kernel_pca_invalid_parameters": PRECOMPUTED,
        "test_kernel_pca_precomputed": PRECOMPUTED,
        "test_kernel_pca_precomputed_non_symmetric": PRECOMPUTED,
        "test_kernel_pca_raise_not_fitted_error": PRE_IMAGES,
        "test_kernel_pca_solvers_equivalence": RANK,
        "test_kernel_pca_sparse": PRE_IMAGES,
        "test_leave_zero_eig": RANK,
        "test_precomputed_kernel_not_psd": PRECOMPUTED,
        "test_remove_zero_eig": RANK,
    },
    "RBFSampler, Nystroem": {
        "test_nystroem_approximation": KERNEL,
        "test_nystroem_callable": PARAMETER,
        "test_nystroem_component_indices": ATTRIBUTE,
        "test_nystroem_poly_kernel_params": "the degree of a polynomial is a whole number",
        "test_nystroem_precomputed_kernel": PRECOMPUTED,
        "test_rbf_sampler_dtype_equivalence": ATTRIBUTE,
        "test_rbf_sampler_fitted_attributes_dtype": ATTRIBUTE,
        "test_rbf_sampler_gamma_scale": PARAMETER,
    },
}


def outcomes(module: str, folder: Path) -> dict[str, bool]:
    """Whether each test of a module passes on ours, in all its cases; skipped ones are left out."""
    found = folder / "report.xml"
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    words = (
        f"-m pytest -q -c {os.devnull} -p no:cacheprovider -p peers_of_scikit_learn -W ignore "
        f"--timeout=60 --rootdir={folder} --junitxml={found} --pyargs {module} -k"
    )
    subprocess.run(
        [sys.executable, *words.split(), OTHERS],
        cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True,
    )  # fmt: skip
    passed: dict[str, list[bool]] = defaultdict(list)
    for case in ElementTree.parse(found).iter("testcase"):
        if case.find("skipped") is None:
            failed = case.find("failure") is not None or case.find("error") is not None
            passed[case.attrib["name"].partition("[")[0]].append(not failed)
    return {name: all(each) for name, each in passed.items()}


@pytest.mark.long
@pytest.mark.parametrize("classes", THEIRS)
def test_scikit_learns_own_tests_pass_or_have_a_reason(classes: str, tmp_path: Path) -> None:
    found = outcomes(THEIRS[classes], tmp_path)
    failed = {name for name, passed in found.items() if not passed}
    assert failed == set(REASONS[classes])
    assert PASSED[classes] == (len(found) - len(failed), len(found))


def test_the_page_has_the_numbers() -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    for classes, (passed, run) in PASSED.items():
        names = ", ".join(f"`{name}`" for name in classes.split(", "))
        assert f"| {names} | {passed} of {run} |" in page
