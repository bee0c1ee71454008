"""NoveltyDetector: its scores, thresholds, containers, saving, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import reference
import rff_stream as rs
from rff_stream.answers.novelty import mean_without_itself, threshold, whitened
from rff_stream.estimators import novelty
from rff_stream.features import FourierFeatures
from rff_stream.kernels import ArcCosine, Gaussian
from rff_stream.moments.accumulate import accumulate
from rff_stream.sources.protocol import Rows
from rff_stream.statistics.scores import Histogram, HistogramStatistic


def model_of(**choices: Any) -> rs.NoveltyDetector:
    defaults: dict[str, Any] = {"n_components": 512, "random_state": 0, "progress": False}
    return rs.NoveltyDetector(**(defaults | choices))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Two clusters of different units, and 20 rows far from both."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 3))
    x[:800] += 5.0
    x[-20:] = rng.uniform(-14, -7, (20, 3))
    return x * [1.0, 100.0, 0.01]


# --------------------------------------------------------------------------------------- its score


def test_the_score_is_the_mean_kernel_value(rows: np.ndarray) -> None:
    model = model_of(kernel="gaussian", n_components=8192).fit(rows)
    exact = reference.gaussian(rows[:300], rows, np.asarray(model.length_scale_)).mean(axis=1)
    # one mean of 4,096 pairs errs by at most 1/√4096 of κ(0), and less for most rows
    assert np.abs(model.score_samples(rows[:300]) - exact).max() < 4 / 64
    assert np.corrcoef(model.score_samples(rows[:300]), exact)[0, 1] > 0.97


def test_the_length_scale_is_half_the_median_of_scaled_inputs(rows: np.ndarray) -> None:
    scale = rows.std(axis=0)
    from scipy.spatial.distance import pdist

    median = np.median(pdist(rows[::2] / scale))
    half, whole = model_of().fit(rows), model_of(length_scale="median").fit(rows)
    assert np.allclose(half.length_scale_, 0.5 * median * scale, rtol=0.05)  # of 1,024 rows
    assert np.allclose(np.asarray(whole.length_scale_), 2 * np.asarray(half.length_scale_))
    assert model_of(length_scale=[1.0, 2.0, 3.0]).fit(rows).length_scale_.tolist() == [1, 2, 3]
    assert model_of(length_scale=7.0).fit(rows).length_scale_ == 7.0


@pytest.mark.parametrize("seed", range(5))
def test_the_farthest_row_has_the_lowest_score(seed: int) -> None:
    x = np.random.default_rng(0).standard_normal((4000, 2))
    x[7, 1] = 20.0
    model = rs.NoveltyDetector(random_state=seed, progress=False).fit(x)
    assert model.score_samples(x).argmin() == 7


@pytest.mark.parametrize("choices", [{}, {"whitened": True, "n_components": 128}], ids=str)
def test_rows_far_from_all_others_are_novel(rows: np.ndarray, choices: Any) -> None:
    model = model_of(contamination=0.02, threshold="sample", **choices).fit(rows)
    labels = model.predict(rows)
    assert (labels[-20:] == -1).all()
    assert (labels == -1).sum() == 40
    assert np.array_equal(labels, np.where(model.decision_function(rows) >= 0, 1, -1))
    assert np.allclose(
        model.decision_function(rows), model.score_samples(rows) - model.offset_, atol=1e-12
    )


def test_the_whitened_score_is_a_mahalanobis_distance(rng: np.random.Generator) -> None:
    x = rng.normal(size=(400, 2))
    features = FourierFeatures.sample(Gaussian(), 2, 32, rng=0, dtype="float64")
    answer = whitened(accumulate(features, x, sums="float64"), ridge=0.1)
    Z = features(x) * np.sqrt(2 / 32)
    centred = Z - Z.mean(axis=0)
    covariance = centred.T @ centred / len(Z) + 0.1 * np.eye(32)
    exact = -np.einsum("nr,nr->n", centred, np.linalg.solve(covariance, centred.T).T)
    assert np.allclose(answer(features(x)), exact, rtol=1e-8)


def test_with_a_large_ridge_the_whitened_order_is_that_of_the_density(rows: np.ndarray) -> None:
    plain = model_of(n_components=128).fit(rows).score_samples(rows)
    found = model_of(n_components=128, whitened=True, ridge=1e6).fit(rows).score_samples(rows)
    assert np.corrcoef(np.argsort(np.argsort(plain)), np.argsort(np.argsort(found)))[0, 1] > 0.999


def test_weights_count_as_repeated_rows(rows: np.ndarray) -> None:
    x = rows[::6]  # so few that the median looks at all pairs
    times = np.random.default_rng(1).integers(1, 4, len(x))
    once = model_of().fit(np.repeat(x, times, axis=0))
    weighted = model_of().fit(x, sample_weight=times)
    assert np.allclose(once.decision_function(x), weighted.decision_function(x), atol=1e-7)


@pytest.mark.parametrize("features", ["nystroem", "structured", "fourier", "qmc"])
def test_rows_are_novel_by_any_map(rows: np.ndarray, features: str) -> None:
    kernel = "gaussian" if features == "qmc" else "rational_quadratic"
    model = model_of(contamination=0.02, features=features, kernel=kernel).fit(rows)
    assert np.mean(model.predict(rows[-20:]) == -1) >= 0.9


def test_a_map_given_as_a_value_brings_its_own_size(rows: np.ndarray) -> None:
    scale = tuple(rows.std(axis=0).tolist())
    features = FourierFeatures.sample(Gaussian(scale), 3, 1026, origin=rows.mean(axis=0), rng=0)
    model = model_of(features=features).fit(rows)
    assert model.features_ is features
    assert model.plan_.n_features == 1026
    exact = reference.gaussian(rows[:300], rows, np.asarray(scale)).mean(axis=1)
    assert np.abs(model.score_samples(rows[:300]) - exact).max() < 4 / 513**0.5


# -------------------------------------------------------------------------------------- thresholds


@pytest.mark.parametrize("contamination", [0.01, 0.1, 0.3, 0.5])
def test_the_threshold_leaves_its_share_below(
    rng: np.random.Generator, contamination: float
) -> None:
    scores = rng.normal(size=1000)
    found = threshold(scores, np.ones(1000), contamination)
    assert (scores < found).sum() == 1000 * contamination
    gap = np.abs(scores - found).min()
    assert gap > 0.4 * np.diff(np.sort(scores))[int(1000 * contamination) - 1]


def test_the_threshold_of_weighted_scores_is_that_of_repeated_ones(
    rng: np.random.Generator,
) -> None:
    scores, times = rng.normal(size=200), rng.integers(1, 5, 200)
    repeated = np.repeat(scores, times)
    assert threshold(scores, times, 0.1) == threshold(repeated, np.ones(len(repeated)), 0.1)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_row_without_itself_has_the_score_of_a_fit_without_it(
    rng: np.random.Generator, whiten: bool
) -> None:
    x, w = rng.normal(size=(60, 2)), rng.uniform(0.5, 2, 60)
    features = FourierFeatures.sample(Gaussian(), 2, 16, rng=0, dtype="float64")
    z, order = features(x), 2 if whiten else 1
    everything = accumulate(features, x, None, w, order=order, sums="float64")
    share, prior = w / w.sum(), everything.row.prior
    for i in range(5):
        kept = np.arange(60) != i
        rest = accumulate(features, x[kept], None, w[kept], order=order, sums="float64")
        if whiten:  # the ridge is in units of the trace, which moves by 1/n
            found = whitened(everything, 0.1).without_itself(z[[i]], share[[i]])
            exact = whitened(rest, 0.1)(z[[i]])
        else:
            scores = z[[i]] @ (prior * everything.feature_mean())
            found = mean_without_itself(scores, z[[i]] ** 2 @ prior, share[[i]])
            exact = z[[i]] @ (prior * rest.feature_mean())
        assert found == pytest.approx(exact, rel=0.03 if whiten else 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"whitened": True}], ids=str)
def test_of_new_rows_the_share_that_was_asked_is_novel(choices: Any) -> None:
    """Rows of the fit are nearer to their own mean: .087 of new rows were novel for .05."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = model_of(contamination=0.05, n_components=128, **choices)
        model.fit(rng.normal(size=(100, 2)))
        shares.append(np.mean(model.predict(rng.normal(size=(500, 2))) == -1))
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - 0.055) < 0.01 + 3 * error  # half-way between 5 and 6 of 101


def test_equal_scores_are_not_novel() -> None:
    assert threshold(np.full(50, 0.3), np.ones(50), 0.1) == 0.3


@pytest.mark.parametrize("whiten", [False, True])
def test_an_exact_threshold_reads_the_rows_again(whiten: bool) -> None:
    x = np.random.default_rng(0).standard_normal((30_000, 2))
    choices: dict[str, Any] = {"n_components": 64, "whitened": whiten, "contamination": 0.03}
    sampled = model_of(**choices, sample_rows=200).fit(x)
    exact = model_of(**choices, sample_rows=200, threshold="exact").fit(x)
    assert np.mean(exact.predict(x) == -1) == pytest.approx(0.03, abs=1e-4)
    assert np.mean(sampled.predict(x) == -1) != pytest.approx(0.03, abs=1e-4)


def test_a_histogram_finds_quantiles_between_its_bounds(rng: np.random.Generator) -> None:
    values, w = rng.normal(size=(4000, 1)), rng.uniform(1, 2, 4000)

    def of(low: float, high: float) -> Histogram:
        sink = HistogramStatistic(lambda x: x, low, high).start()
        for part in (slice(0, 1000), slice(1000, 4000)):
            sink.add(Rows(values[part], np.empty((0, 0)), w[part], None, 0), np.empty(0))
        found: Histogram = sink.result()
        return found

    found = of(-3.0, 1.0)
    assert found.weights.sum() == pytest.approx(w.sum())
    exact = np.interp(0.2, np.cumsum(w[values[:, 0].argsort()]) / w.sum(), np.sort(values[:, 0]))
    assert found.quantile(0.2) == pytest.approx(exact, abs=2e-3)
    assert of(0.0, 1.0).quantile(0.2) == -np.inf
    assert of(-3.0, -2.0).quantile(0.2) == np.inf
    assert (found + found).quantile(0.2) == found.quantile(0.2)


def test_a_sample_that_misled_is_searched_around(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((5000, 2))
    model = model_of(n_components=64, threshold="exact", sample_rows=200)
    own = novelty.sample_scores

    def far_off(fitted: Any) -> Any:
        scores, weights = own(fitted)
        return scores + 5.0, weights

    monkeypatch.setattr(novelty, "sample_scores", far_off)
    model.fit(x)
    assert np.mean(model.predict(x) == -1) == pytest.approx(0.1, abs=1e-3)


# -------------------------------------------------------------------------------------- containers


def test_lazy_labelled_and_framed_rows(rows: np.ndarray, tmp_path: Path) -> None:
    plain = model_of().fit(rows)
    expected = plain.predict(rows)
    lazy = da.from_array(rows, chunks=(300, 3))
    found = model_of().fit(lazy).predict(lazy)
    assert isinstance(found, da.Array)
    assert found.dtype == found.compute().dtype == expected.dtype == np.int64
    assert np.mean(found.compute() == expected) > 0.995
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    assert np.array_equal(model_of().fit(frame).predict(frame), expected)
    data = xr.Dataset({name: ("obs", rows[:, i].copy()) for i, name in enumerate("abc")})
    data["a"][4] = np.nan
    model = model_of(missing_rows="drop").fit(data)
    labels = model.predict(data)
    assert labels.dims == ("obs",)
    assert labels.dtype == np.int64 and labels.values[4] == 0
    assert set(np.unique(np.delete(labels.values, 4))) == {-1, 1}


def test_a_missing_row_is_neither_novel_nor_not(rows: np.ndarray) -> None:
    model = model_of(missing_rows="drop").fit(rows)
    x = rows[:3].copy()
    x[1, 0] = np.nan
    assert model.predict(x).dtype == np.int64 and model.predict(x)[1] == 0
    assert np.isnan(model.decision_function(x)[1])


@pytest.mark.parametrize("choices", [{}, {"whitened": True, "n_components": 64}], ids=str)
def test_a_saved_detector_says_the_same(rows: np.ndarray, choices: Any, tmp_path: Path) -> None:
    model = model_of(**choices).fit(rows)
    model.save(tmp_path / "m.zarr")
    loaded = rs.load(tmp_path / "m.zarr")
    assert isinstance(loaded, rs.NoveltyDetector)
    assert np.array_equal(loaded.decision_function(rows), model.decision_function(rows))
    assert np.array_equal(loaded.length_scale_, model.length_scale_)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"contamination": 0.0}, r"contamination=0\.0 but it must be a number in \(0, 0\.5\]"),
        ({"contamination": 0.7}, "contamination=0.7"),
        ({"length_scale": 0.0}, r"length_scale=0\.0 but it must be 'half-median', 'median'"),
        ({"length_scale": "mean"}, "length_scale='mean'"),
        ({"ridge": -1.0, "whitened": True}, r"ridge=-1\.0"),
        ({"threshold": "second"}, "'second' but it must be one of 'left_out', 'sample', 'exact'"),
        ({"sample_rows": 0}, "sample_rows=0 but the threshold"),
        ({"kernel": ArcCosine()}, "is no function of x − x'"),
        ({"features": "wavelet"}, "features='wavelet' but it must be one of"),
        (
            {"features": FourierFeatures.sample(Gaussian(), 5, 8, rng=0)},
            "maps 5 inputs but.*have 2",
        ),
        ({"features": "orthogonal", "n_components": 5}, "n_components=5 but cosines and sines"),
    ],
    ids=str,
)
def test_what_is_refused_before_a_row_is_read(choices: Any, words: str) -> None:
    def read(block: Any) -> Any:
        raise AssertionError("a row was read")

    zeros = da.from_array(np.zeros((100, 2)), chunks=50)
    lazy = zeros.map_blocks(read, dtype=float, meta=np.zeros((0, 2)))
    with pytest.raises(ValueError, match=words):
        model_of(**choices).fit(lazy)


def test_the_whitened_score_needs_second_moments_and_a_ridge(rows: np.ndarray) -> None:
    features = FourierFeatures.sample(Gaussian(), 3, 16, rng=0)
    with pytest.raises(ValueError, match="order=1"):
        whitened(accumulate(features, rows, order=1))
    with pytest.raises(ValueError, match=r"ridge=0\.0"):
        whitened(accumulate(features, rows), ridge=0.0)


@pytest.mark.parametrize("n", [1, 50])
def test_equal_rows_are_all_alike(n: int) -> None:
    x = np.tile([1.0, 2.0], (n, 1))
    model = model_of().fit(x)
    assert (model.predict(x) == 1).all()
    assert model.score_samples(x) == pytest.approx(np.ones(n))
    assert model.predict([[30.0, 30.0]])[0] == -1
