"""scikit-learn's whole estimator suite, with no expected failure."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import rff_stream as rs
from rff_stream.losses.regression import Huber

ESTIMATORS = [
    rs.KernelRidge(n_components=64, alpha=1e-2, random_state=0, progress=False),
    rs.KernelRidge(
        kernel="laplacian", n_components=512, missing_rows="drop", random_state=0, progress=False
    ),
    # Noise by evidence cannot pass: a weight is a precision there, and three equal rows say more
    # about the noise than one row of weight 3.
    rs.GaussianProcessRegressor(n_components=64, noise=0.1, random_state=0, progress=False),
    rs.KernelClassifier(n_components=64, random_state=0, progress=False),
    rs.KernelClassifier(
        "logistic",
        n_components=32,
        alpha=0.1,
        tol=1e-7,
        max_passes=2000,
        missing_rows="drop",
        random_state=0,
        progress=False,
    ),
    rs.KernelClassifier(
        "squared_hinge",
        n_components=16,
        alpha=1.0,
        tol=1e-8,
        max_passes=2000,
        random_state=0,
        progress=False,
    ),
    rs.KernelRegressor(n_components=16, alpha=0.1, tol=1e-6, random_state=0, progress=False),
    rs.KernelRegressor(Huber(scale=1.0), n_components=16, random_state=0, progress=False),
    rs.KernelPCA(n_map_components=64, random_state=0, progress=False),
    rs.KernelFeatures(n_components=64, random_state=0),
    rs.KernelFeatures(features="nystroem", n_components=16, random_state=0),
    rs.KernelDensity(n_components=256, random_state=0, progress=False),
    rs.KernelDensity("cv", n_components=512, missing_rows="drop", random_state=0, progress=False),
    # A threshold for new rows cannot pass: of the rows of the fit a smaller share is below it.
    # In float32 the scores of equal rows differ by their places, on some processors by 1e-8.
    rs.NoveltyDetector(
        n_components=256, threshold="sample", dtype="float64", random_state=0, progress=False
    ),
    rs.NoveltyDetector(
        n_components=128,
        whitened=True,
        threshold="exact",
        missing_rows="drop",
        random_state=0,
        progress=False,
    ),
]


def checks_of_all() -> dict[str, tuple[Any, Any]]:
    """Every check of every estimator, once: scikit-learn 1.7 yields some twice."""
    marked = parametrize_with_checks(ESTIMATORS).mark
    name = marked.kwargs["ids"]
    return {f"{name(each)}-{name(check)}": (each, check) for each, check in marked.args[1]}


def is_repeated(name: str) -> bool:
    """Matrices are sparse arrays to all estimators, which KernelRidge shows for all."""
    return "check_estimator_sparse_matrix" in name and not name.startswith("KernelRidge(")


CHECKS = [
    pytest.param(*case, id=name, marks=pytest.mark.slow if is_repeated(name) else ())
    for name, case in checks_of_all().items()
]


# The suite sets n_components=1, and a density of one component warns that it resolves nothing.
@pytest.mark.filterwarnings("ignore::rff_stream.errors.NumericalWarning")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    assert check(estimator) is None


# Not check_dataframe_column_names_consistency: it wants columns in another order, and columns that
# are not needed, refused. Here they are found by name (test_tables_sklearn).
@pytest.mark.parametrize("name", ["check_inplace_ensure_writeable"])
def test_checks_that_the_suite_does_not_yield(name: str) -> None:
    check = getattr(estimator_checks, name)
    assert check("KernelRidge", ESTIMATORS[0]) is None


@pytest.mark.parametrize("make", [rs.KernelRegressor, rs.KernelRidge, rs.KernelClassifier])
def test_one_row_is_fitted_or_refused_in_the_words_of_the_suite(make: Any) -> None:
    """With the parameters of a bare call."""
    check = estimator_checks.check_fit2d_1sample
    assert check(make.__name__, make(progress=False, random_state=0)) is None
