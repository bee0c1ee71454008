"""Selection from moments: equal to scikit-learn's folds, and honest about what it chose."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.model_selection import PredefinedSplit

import reference_answers as reference
from rff_stream.answers.penalty_selection import (
    alpha_grid,
    cross_validate,
    gcv,
    nested_sizes,
    ridge_path,
    sums_of_others,
)
from rff_stream.answers.ridge import ridge
from rff_stream.errors import NumericalWarning
from rff_stream.moments import Moments, total
from rff_stream.systems.spectrum import spectrum

N, R = 600, 64
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, 2))
Z = reference.fourier(X, R)
Y = np.c_[np.sin(2 * X[:, 0]), X[:, 1] * X[:, 0] + 40] + 0.3 * RNG.standard_normal((N, 2))
W = RNG.uniform(0.3, 2.0, N)
FOLD = RNG.integers(0, 4, N)
ALPHAS = np.array([1e-3, 0.05, 1.0, 20.0])


def groups_of(fold=FOLD, z=Z, y=Y, w=W) -> dict[int, Moments]:
    origins = (z[:50].mean(axis=0), y[:50].mean(axis=0))
    return {
        int(k): reference.moments_of(z[fold == k], y[fold == k], w[fold == k], origins=origins)
        for k in np.unique(fold)
    }


def sklearn_scores(sizes, alphas, fold=FOLD, *, fit_intercept=True):
    """Weighted mean squared error (F, K, A, T) of each held-out fold, by explicit fits."""
    scores = np.empty((len(np.unique(fold)), len(sizes), len(alphas), Y.shape[1]))
    for f, (train, test) in enumerate(PredefinedSplit(fold).split()):
        for k, size in enumerate(sizes):
            for a, alpha in enumerate(alphas):
                model = Ridge(alpha=alpha * size / 2, fit_intercept=fit_intercept)
                model.fit(Z[train, :size], Y[train], sample_weight=W[train])
                error = (Y[test] - model.predict(Z[test, :size])) ** 2
                scores[f, k, a] = np.average(error, axis=0, weights=W[test])
    return scores


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_cross_validation_equals_predefined_split_and_ridge(fit_intercept):
    sizes = (16, R)
    found = cross_validate(groups_of(), ALPHAS, sizes=sizes, fit_intercept=fit_intercept)
    expected = sklearn_scores(sizes, ALPHAS, fit_intercept=fit_intercept)
    assert np.allclose(found.scores, expected, rtol=1e-6)
    assert np.allclose(found.mean, expected.mean(axis=0), rtol=1e-6)
    variance = np.average((Y - np.average(Y, axis=0, weights=W)) ** 2, axis=0, weights=W)
    if fit_intercept:
        by_fold = (expected / variance).mean(axis=-1)
        assert np.allclose(found.scale, variance)
        assert np.allclose(found.relative_error, by_fold.std(axis=0, ddof=1) / 2, rtol=1e-6)


def test_cross_validation_of_fewer_rows_than_columns():
    """The spectrum of few rows has their rank: its size is no number of columns."""
    few = np.arange(N) < 30
    found = cross_validate(groups_of(FOLD[few], Z[few], Y[few], W[few]), ALPHAS, sizes=(R,))
    for f, fold in enumerate(np.unique(FOLD[few])):
        train, test = few & (fold != FOLD), few & (fold == FOLD)
        for a, alpha in enumerate(ALPHAS):
            model = Ridge(alpha=alpha * R / 2).fit(Z[train], Y[train], sample_weight=W[train])
            error = (Y[test] - model.predict(Z[test])) ** 2
            expected = np.average(error, axis=0, weights=W[test])
            np.testing.assert_allclose(found.scores[f, 0, a], expected, rtol=1e-6)


def test_the_best_is_the_smallest_and_each_target_has_its_own():
    found = cross_validate(groups_of(), ALPHAS, sizes=(16, R))
    k, a = np.unravel_index(np.argmin(found.relative), found.relative.shape)
    assert (found.best.alpha, found.best.n_components) == (ALPHAS[a], (16, R)[k])
    for t in range(2):
        alone = found.of_target(t)
        k, a = np.unravel_index(np.argmin(found.mean[..., t]), (2, 4))
        assert (alone.best.alpha, alone.best.n_components) == (ALPHAS[a], (16, R)[k])
        assert alone.targets == (f"y{t}",)


def test_one_standard_error_takes_the_simplest_within_it():
    plain = cross_validate(groups_of(), np.geomspace(1e-3, 1e3, 25))
    simple = cross_validate(groups_of(), np.geomspace(1e-3, 1e3, 25), rule="one_standard_error")
    limit = plain.best.score + plain.best.standard_error
    near = plain.relative <= limit
    k = np.flatnonzero(near.any(axis=1))[0]
    assert simple.best.n_components == plain.sizes[k] <= plain.best.n_components
    assert simple.best.alpha == plain.alphas[np.flatnonzero(near[k])[-1]]
    assert simple.best.score <= limit
    assert "within one standard error" in simple.why


def test_the_learning_curve_is_the_best_of_each_size():
    found = cross_validate(groups_of(), ALPHAS)
    assert [choice.n_components for choice in found.learning_curve] == [4, 8, 16, 32, 64]
    assert [choice.score for choice in found.learning_curve] == list(found.relative.min(axis=1))


def test_folds_join_neighbouring_groups():
    groups = groups_of()
    joined = cross_validate(groups, ALPHAS, folds=2, sizes=(R,))
    pairs = {0: groups[0] + groups[1], 1: groups[2] + groups[3]}
    assert np.allclose(joined.scores, cross_validate(pairs, ALPHAS, sizes=(R,)).scores)
    assert joined.folds == ("0 … 1", "2 … 3")


@given(st.integers(2, 9))
@settings(deadline=None, max_examples=8)
def testsums_of_others_leave_out_exactly_one(count):
    """Whole numbers: float64 sums are exact, so no tolerance is needed."""
    rng = np.random.default_rng(count)
    origins = (np.zeros(3), np.zeros(1))
    parts = [
        reference.moments_of(
            rng.integers(-9, 9, (4, 3)).astype(float),
            rng.integers(-9, 9, (4, 1)).astype(float),
            origins=origins,
        )
        for _ in range(count)
    ]
    seen = dict(sums_of_others(parts))
    for k in range(count):
        expected = total(part for j, part in enumerate(parts) if j != k)
        assert np.array_equal(seen[k].sums, expected.sums)
        assert seen[k].n == expected.n
    assert sorted(seen) == list(range(count))


def test_the_path_gives_every_alpha_that_ridge_gives():
    moments = total(groups_of().values())
    path = ridge_path(moments, ALPHAS)
    for a, alpha in enumerate(ALPHAS):
        alone = ridge(moments, alpha)
        residual = (W[:, None] * (Y - alone.predict(Z)) ** 2).sum(axis=0)
        assert np.allclose(path.at(alpha).predict(Z), alone.predict(Z), rtol=1e-8)
        assert np.allclose(path.residual_scatter[a], residual, rtol=1e-8)
        assert np.isclose(path.df[a], alone.df[0])


def test_the_default_grid_covers_df_from_r_to_a_few_and_never_goes_below_eta():
    z = reference.fourier(RNG.standard_normal((N, 5)), R)
    path = ridge_path(reference.moments_of(z, Y))
    assert len(path.alphas) >= 50
    assert path.df[0] > 0.9 * R
    assert path.df[-1] < 0.1 * R
    assert alpha_grid(np.array([-0.1, 1.0, 50.0]))[0] == pytest.approx(0.3)
    assert np.isfinite(alpha_grid(np.zeros(4))).all()


def test_gcv_is_its_formula():
    moments = total(groups_of().values())
    fit = ridge(moments, 0.05)
    residual = (W[:, None] * (Y - fit.predict(Z)) ** 2).sum(axis=0)
    df = fit.df[0]
    expected = residual / W.sum() / (1 - df / N) ** 2
    assert np.allclose(gcv(moments, ALPHAS, sizes=(R,)).mean[0, 1], expected)


def test_criteria_agree_on_independent_rows():
    """GCV and cross-validation come within 5 % of the best held-out error."""
    moments = total(groups_of().values())
    scores = cross_validate(groups_of(), sizes=(R,))
    found = gcv(moments, sizes=(R,))
    near = np.argmin(np.abs(np.log(scores.alphas / found.best.alpha)))
    assert scores.relative[0, near] < 1.05 * scores.best.score


def test_duplicated_rows_mislead_gcv_but_not_folds_of_whole_groups():
    """Design, Alpha: GCV fails on duplicated rows. Copies of a row share a fold here."""
    copies = np.repeat(np.arange(200), 8)
    y = Y + RNG.standard_normal((N, 2))
    fold = np.arange(200)[copies] % 4
    groups = groups_of(fold, Z[copies], y[copies], np.ones(1600))
    honest = cross_validate(groups, sizes=(R,)).best.alpha
    assert gcv(total(groups.values()), sizes=(R,)).best.alpha < honest / 10


def test_float32_sums_choose_no_alpha_below_eta():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (8000, 1))
    z, y = reference.fourier(x, 128), np.sin(3 * x) + 0.01 * rng.standard_normal(x.shape)
    origins = (z.mean(axis=0), y.mean(axis=0))
    parts = {
        k: reference.moments_of(z[k::4], y[k::4], origins=origins, dtype=np.float32)
        for k in range(4)
    }
    for found in (cross_validate(parts), gcv(total(parts.values()))):
        k = found.sizes.index(found.best.n_components)
        assert found.best.alpha >= found.eta[k] > 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            size = found.best.n_components
            fit = ridge(total(parts.values()).leading(size), found.best.alpha)
        scaled = fit.predict(z[:, :size])
        assert np.sqrt(np.mean((scaled - np.sin(3 * x)) ** 2)) < 0.01


def test_a_constant_target_decides_nothing_and_gives_no_nan():
    y = np.c_[Y, np.full(N, 0.1)]
    found = cross_validate(groups_of(y=y), ALPHAS, sizes=(R,))
    assert np.isfinite(found.scores).all()
    assert found.best.alpha == cross_validate(groups_of(), ALPHAS, sizes=(R,)).best.alpha
    assert (found.mean[..., 2] < 1e-25).all()
    assert np.isfinite(gcv(total(groups_of(y=y).values()), ALPHAS).mean).all()


def test_wide_inputs_duplicate_and_constant_columns_give_finite_scores():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 200))
    z = np.c_[reference.fourier(x, 60), np.ones(300), np.zeros(300)]
    z = np.c_[z, z[:, :2]]
    fold = np.arange(300) % 5
    found = cross_validate(groups_of(fold, z, x[:, :1], np.ones(300)))
    assert np.isfinite(found.scores).all()
    assert np.isfinite(gcv(reference.moments_of(z, x[:, :1])).mean).all()


def test_nested_sizes_are_even_distinct_and_end_at_r():
    moments = reference.moments_of(Z, Y)
    assert nested_sizes(moments) == (4, 8, 16, 32, 64)
    assert nested_sizes(moments.leading(10)) == (2, 4, 10)
    fixed = replace(moments, row=replace(moments.row, nesting="none"))
    assert nested_sizes(fixed) == (R,)


def test_the_result_shows_well():
    found = cross_validate(groups_of(), ALPHAS, sizes=(16, R))
    assert "<- chosen" in repr(found)
    assert f"n_components={found.best.n_components}" in found.why
    page = found._repr_html_()
    assert page.count("<b>") == 3  # the title, the best of its R', its cell
    assert page.count("<tr>") == 1 + (1 + 2) + (1 + len(ALPHAS))
    assert "R'=16" in page
    plain = gcv(total(groups_of().values()), ALPHAS)
    assert plain.relative_error is None
    assert "±" not in plain.why


def test_doubts_are_said():
    z = reference.fourier(RNG.standard_normal((N, 5)), R)
    far = cross_validate(groups_of(z=z), [1e-8, 1e-7], sizes=(R,))
    assert "largest alpha of the grid" in far.why
    assert "smallest alpha" in cross_validate(groups_of(), [1e3, 1e4], sizes=(R,)).why
    assert "df is above 0.8 R'" in far.why


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": 5}, "5 folds from 4 groups"),
        ({"folds": 1}, "1 folds from 4 groups"),
        ({"alphas": []}, "at least one"),
        ({"alphas": [-1.0]}, "finite and > 0"),
        ({"alphas": [np.nan]}, "finite and > 0"),
        ({"sizes": (R + 2,)}, f"n_components={R + 2}"),
        ({"rule": "simplest"}, "rule='simplest'"),
    ],
)
def test_bad_choices_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        cross_validate(groups_of(), **arguments)


def test_one_group_and_empty_groups_are_refused():
    groups = groups_of()
    with pytest.raises(ValueError, match="1 folds from 1 groups"):
        cross_validate({0: groups[0]})
    empty = {**groups, "leap": Moments.zero(groups[0].row)}
    with pytest.raises(ValueError, match="Group 'leap' holds 0 rows"):
        cross_validate(empty)


def test_a_grid_all_below_eta_is_refused_with_eta():
    rng = np.random.default_rng(5)
    z = reference.fourier(rng.uniform(-1, 1, (2000, 1)), 64)
    moments = reference.moments_of(z, z[:, :1], dtype=np.float32)
    eta = spectrum(moments).eta
    assert eta > 1e-9
    with pytest.raises(ValueError, match="below η="):
        ridge_path(moments, [eta / 100])
    with pytest.raises(ValueError, match="above η="):
        gcv(moments, [1e-30])
