"""One suite of laws that every feature map keeps."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest

import rff_stream as rs
from places import ROOT
from rff_stream.errors import DataError, ModelError
from rff_stream.features import (
    FeatureMap,
    FourierFeatures,
    HermiteFeatures,
    NystroemFeatures,
    OneHot,
    Periodic,
    PiecewiseLinear,
    PolynomialFeatures,
    Positional,
    RandomBinningFeatures,
    Scaled,
    Sphere,
    StructuredFeatures,
    by_columns,
    map_from_spec,
)
from rff_stream.kernels import (
    ArcCosine,
    Chi2,
    Gaussian,
    Laplacian,
    Matern,
    Polynomial,
    RationalQuadratic,
    UserKernel,
    approximation_error,
)
from rff_stream.moments.accumulate import accumulate
from toys import same_bits

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PILOT = np.random.default_rng(7).standard_normal((700, 3))
ROWS = np.random.default_rng(8).standard_normal((333, 3))
SCALE = (1.5, 2.0, 3.0)


def nystroem(kernel: Any, rows: np.ndarray = PILOT, **choices: Any) -> Callable[[str], FeatureMap]:
    choices = {"floor": 4e-6, "rng": 0} | choices  # one floor: the same directions in any dtype
    return lambda dtype: NystroemFeatures.sample(kernel, rows, 300, dtype=dtype, **choices)


def fourier(kernel: Any, r: int = 520, **choices: Any) -> Callable[[str], FeatureMap]:
    return lambda dtype: FourierFeatures.sample(kernel, 3, r, rng=0, dtype=dtype, **choices)


def structured(**choices: Any) -> Callable[[str], FeatureMap]:
    return lambda dtype: StructuredFeatures.sample(
        RationalQuadratic(SCALE), 3, 100, rng=0, dtype=dtype, origin=(1, 2, 3), **choices
    )


def beside(dtype: str) -> FeatureMap:
    first = FourierFeatures.sample(Gaussian(2.0), 3, 20, rng=0, dtype=dtype)
    return first | HermiteFeatures.sample(Gaussian(2.0), 3, 9, dtype=dtype)


def columns(dtype: str) -> FeatureMap:
    place = Sphere().then(FourierFeatures.sample(Matern(0.5), 3, 30, rng=1, dtype=dtype))
    return by_columns({("a", "c"): place, "b": Periodic(2.0, 3, dtype=dtype)}, ["a", "b", "c"])


def then_binning(dtype: str) -> FeatureMap:
    encoded = Scaled(np.zeros(3), np.array(SCALE)) | Scaled(np.ones(3), np.ones(3))
    grids = RandomBinningFeatures.sample(Laplacian(4.0), 6, 130, n_grids=20, rng=0, dtype=dtype)
    return encoded.then(grids)


def knots(dtype: str) -> FeatureMap:
    own = {name: PiecewiseLinear.of_rows(PILOT[:, 0], 8, dtype=dtype) for name in "ab"}
    return by_columns({**own, "c": OneHot(np.arange(-2.0, 3.0), dtype)}, list("abc"))


BOX = UserKernel(
    "box",
    lambda X, Y: np.sinc((X[:, None] - Y) / np.pi).prod(axis=2),
    lambda n, d, rng: rng.uniform(-1, 1, (n, d)),
)

MAPS: dict[str, Callable[[str], FeatureMap]] = {
    "fourier": fourier(Gaussian(SCALE), origin=(1, 2, 3)),
    "phases": fourier(Gaussian(SCALE), paired=False),
    "sobol": fourier(Matern(SCALE, nu=2.5), frequencies="sobol"),
    "halton": fourier(Gaussian(SCALE), paired=False, frequencies="halton"),
    "iid": fourier(Laplacian(SCALE), frequencies="iid"),
    "sum": fourier(Gaussian(SCALE) + 0.5 * Matern(2.0)),
    "product": fourier(Gaussian(SCALE) * Laplacian(2.0)),
    "user": fourier(BOX.with_length_scale(0.8)),
    "structured": structured(),
    "structured-phases": structured(paired=False),
    "nystroem": nystroem(Gaussian(SCALE, 2.0)),
    "nystroem-eigen": nystroem(Matern(SCALE), whitening="eigen"),
    "nystroem-spread": nystroem(Laplacian(SCALE), method="kmeans++"),
    "nystroem-leverage": nystroem(Gaussian(2.0) + Matern(2.0), method="leverage"),
    "nystroem-polynomial": nystroem(Polynomial(SCALE, degree=3)),
    "nystroem-arc-cosine": nystroem(ArcCosine(SCALE)),
    "binning": lambda dtype: RandomBinningFeatures.sample(
        Laplacian(SCALE, 2.0), 3, 500, n_grids=60, rng=0, dtype=dtype, origin=(1, 2, 3)
    ),
    "hermite": lambda dtype: HermiteFeatures.sample(
        Gaussian(SCALE, 2.0), 3, 300, deviation=(1, 1, 1.5), dtype=dtype
    ),
    "polynomial": lambda dtype: PolynomialFeatures.sample(
        Polynomial(SCALE, 2.0, degree=3), 3, origin=(0.1, 0.2, 0.3), dtype=dtype
    ),
    "positional": lambda dtype: by_columns(
        {name: Positional(20.0, 0.5, 6, dtype=dtype) for name in "abc"}, list("abc")
    ),
    "beside": beside,
    "then-binning": then_binning,
    "columns": columns,
    "knots": knots,
    "scaled": lambda dtype: Scaled(np.ones(3), np.array(SCALE), dtype),
}
every_map = pytest.mark.parametrize("name", MAPS)


@functools.cache
def made(name: str, dtype: str = "float32") -> FeatureMap:
    return MAPS[name](dtype)


@every_map
def test_a_map_keeps_the_contract(name):
    features = made(name)
    assert isinstance(features, FeatureMap)
    assert features.dtype == "float32"
    Z = features(ROWS)
    assert Z.shape == (333, features.n_components)
    assert Z.dtype == np.float32
    assert np.isfinite(Z).all()
    assert features.prior().shape == (features.n_components,)
    assert (features.prior() > 0).all()
    assert type(features).__name__ in repr(features)
    assert features(ROWS[:0]).shape == (0, features.n_components)


@every_map
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_has_the_same_bits_in_any_batch(name, dtype, rng):
    features = made(name, dtype)
    Z, order = features(ROWS), rng.permutation(333)
    assert same_bits(features(ROWS[order]), Z[order])
    assert same_bits(np.vstack([features(ROWS[:7]), features(ROWS[7:])]), Z)
    assert same_bits(features(np.asfortranarray(ROWS)), Z)
    assert same_bits(features(ROWS[100:101]), Z[100:101])
    wide = np.full((333, 2 * features.n_components), 7, dtype)
    out = wide[:, ::2]
    assert features(ROWS, out=out) is out
    assert same_bits(out.copy(), Z)
    assert (wide[:, 1::2] == 7).all()


@every_map
def test_float32_is_within_a_thousandth_of_float64(name):
    single, double = made(name), made(name, "float64")
    values = []
    for features in (single, double):
        Z = features(ROWS).astype(np.float64)
        values.append((Z * features.prior()) @ Z.T)
    np.testing.assert_allclose(values[0], values[1], atol=1e-3 * np.abs(values[1]).max())
    if not name.endswith("eigen"):  # there the signs of near vectors are free
        np.testing.assert_allclose(single(ROWS), double(ROWS), atol=1e-3)


@every_map
def test_leading_columns_are_a_map_or_refused(name):
    features = made(name)
    moments = accumulate(features, ROWS, ROWS[:, :1])
    small = max(2, 2 * (features.n_components // 4))
    if features.nesting == "none":
        with pytest.raises(ValueError, match="not a map by themselves"):
            moments.leading(small)
        with pytest.raises(ValueError, match=f"n_components={small}"):
            features.prior(small)
        return
    leading = moments.leading(small)
    np.testing.assert_allclose(leading.row.prior, features.prior(small), rtol=1e-14)
    Z = features(ROWS).astype(np.float64)[:, :small]
    diagonal = (Z**2 * features.prior(small)).sum(axis=1)  # of the smaller map
    if features.nesting == "pairs":
        np.testing.assert_allclose(diagonal, features.prior().sum() / 2, rtol=1e-5)


@pytest.mark.parametrize("name", ["nystroem", "hermite"])
def test_more_columns_of_a_prefix_map_never_add_error(name):
    features, kernel = made(name, "float64"), Gaussian(SCALE, 2.0)
    exact, Z = kernel(ROWS[:50], ROWS[:50]), features(ROWS[:50])
    errors = [np.linalg.norm(exact - Z[:, :r] @ Z[:, :r].T) for r in (5, 20, 60, 120, 200)]
    assert (np.diff(errors) <= 0).all()
    assert errors[-1] < 1e-3 * errors[0]


REBUILD = """
import json, sys
import numpy as np
from rff_stream.features import map_from_spec
for folder in sys.argv[1:]:
    arrays = dict(np.load(folder + "/arrays.npz"))
    X = arrays.pop("X")
    features = map_from_spec(json.load(open(folder + "/plain.json")), arrays)
    np.save(folder + "/Z.npy", features(X))
    print(features.fingerprint)
"""


@pytest.mark.slow
def test_specs_give_the_same_bits_in_another_process(tmp_path):
    folders = []
    for name in MAPS:
        folder = tmp_path / name
        folder.mkdir()
        folders.append(folder)
        plain, arrays = made(name).spec()
        (folder / "plain.json").write_text(json.dumps(plain))
        np.savez(folder / "arrays.npz", X=ROWS, **arrays)
    command = [sys.executable, "-c", REBUILD, *map(str, folders)]
    printed = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert printed.stdout.split() == [made(name).fingerprint for name in MAPS]
    for name, folder in zip(MAPS, folders, strict=True):
        assert same_bits(np.load(folder / "Z.npy"), made(name)(ROWS)), name


@every_map
def test_a_spec_with_a_field_missing_is_refused(name):
    plain, arrays = made(name).spec()
    for key in plain.keys() - {"map", "phases"}:
        with pytest.raises(ModelError):
            map_from_spec({k: v for k, v in plain.items() if k != key}, arrays)
    for key in arrays:
        with pytest.raises((ModelError, ValueError)):
            map_from_spec(plain, {k: v for k, v in arrays.items() if k != key} | {"extra": ROWS})


@every_map
def test_a_missing_value_is_a_row_of_missing_values(name):
    if name in ("columns", "knots", "positional"):
        return  # there only the columns of its map are missing
    X = ROWS.copy()
    X[5, 1] = X[200, 2] = np.nan
    Z, expected = made(name)(X), made(name)(ROWS)
    missing = np.isin(np.arange(len(X)), [5, 200])
    if name != "scaled":
        assert np.isnan(Z[missing]).all()
    assert np.isnan(Z[missing]).any(axis=1).all()
    assert same_bits(Z[~missing], expected[~missing])


@every_map
def test_wrong_columns_and_dtypes_are_named(name):
    features = made(name)
    for X in (np.ones((5, 2)), np.ones(3), np.ones((5, 4))):
        with pytest.raises(
            ValueError, match=r"X has (2 columns|4 columns|shape \(3,\)).* 3 inputs"
        ):
            features(X)
    with pytest.raises(DataError, match=r"X has dtype <U1 but a map takes numbers"):
        features(np.full((5, 3), "x"))
    with pytest.raises(ValueError, match="out has shape"):
        features(ROWS, out=np.empty((333, 1 + features.n_components)))


@every_map
def test_values_are_those_of_any_chunks(name):
    features = made(name)
    whole = da.from_array(ROWS, chunks=(ROWS.shape[0], 3)).map_blocks(
        features, dtype="float32", chunks=((333,), (features.n_components,))
    )
    cut = da.from_array(ROWS, chunks=(50, 3)).map_blocks(
        features, dtype="float32", chunks=(whole.rechunk((50, -1)).chunks[0], whole.chunks[1])
    )
    assert same_bits(cut.compute(scheduler="threads"), features(ROWS))


@every_map
def test_a_model_of_the_map_is_saved_and_loaded(name, tmp_path):
    y = np.sin(ROWS[:, 0]) + ROWS[:, 1]
    features = made(name)
    model = rs.KernelRidge(features=features, n_components=features.n_components, alpha=0.1)
    model.fit(ROWS, y)
    model.save(tmp_path / "model.zarr")
    again = rs.load(tmp_path / "model.zarr")
    assert again.features_.fingerprint == features.fingerprint
    assert same_bits(again.predict(ROWS), model.predict(ROWS))


def test_chi2_features_are_those_of_histograms():
    X = np.abs(PILOT)
    features = nystroem(Chi2(0.5), X)("float64")
    assert approximation_error(features, Chi2(0.5), X[:100]).mean < 1e-2
    with pytest.raises(DataError, match="Column 1 holds values below 0"):
        features(np.array([[1.0, -1.0, 1.0]]))


@pytest.mark.parametrize(
    ("features", "kernel"),
    [
        ("nystroem", "rational_quadratic"),
        ("nystroem", Polynomial(degree=2)),
        ("binning", "laplacian"),
        ("hermite", "gaussian"),
        ("structured", "matern"),
        ("qmc", "gaussian"),
        ("qmc", Matern(nu=2.5)),
        ("orthogonal", Gaussian() + Matern()),
    ],
)
def test_an_estimator_makes_a_map_by_its_name(features, kernel, tmp_path):
    y = np.sin(PILOT[:, 0]) + PILOT[:, 1]
    model = rs.KernelRidge(
        features=features, kernel=kernel, n_components=256, alpha=1e-2, random_state=0
    )
    model.fit(PILOT, y)
    error = np.sqrt(np.mean((model.predict(ROWS) - np.sin(ROWS[:, 0]) - ROWS[:, 1]) ** 2))
    assert error < (0.6 if features == "binning" or kernel == Polynomial() else 0.2)
    model.save(tmp_path / "model.zarr")
    assert same_bits(rs.load(tmp_path / "model.zarr").predict(ROWS), model.predict(ROWS))


@pytest.mark.parametrize(
    ("features", "kernel", "message"),
    [
        ("binning", "gaussian", "Gaussian kernel has no density of cell widths"),
        ("hermite", "laplacian", "Laplacian kernel has no Hermite expansion"),
        ("structured", "cauchy", "Cauchy kernel is not isotropic"),
        ("orthogonal", "polynomial", "Polynomial kernel has no spectral measure.*NystroemFeatures"),
        ("qmc", Gaussian() + Laplacian(), "Sum kernel does not know the quantiles"),
        ("wavelet", "gaussian", "'wavelet' but it must be one of 'auto', 'binning', .* or a map"),
    ],
)
def test_a_map_that_does_not_fit_the_kernel_is_refused(features, kernel, message):
    model = rs.KernelRidge(features=features, kernel=kernel, n_components=32)
    with pytest.raises(ValueError, match=message):
        model.fit(PILOT, PILOT[:, 0])


def test_a_model_of_a_user_kernel_predicts_when_it_is_loaded(tmp_path):
    model = rs.KernelRidge(kernel=BOX, n_components=64, features="fourier", random_state=0)
    model.fit(PILOT, PILOT[:, 0])
    model.save(tmp_path / "model.zarr")
    again = rs.load(tmp_path / "model.zarr")
    assert same_bits(again.predict(ROWS), model.predict(ROWS))
    with pytest.raises(ModelError, match="pass the kernel with its functions"):
        again.fit(PILOT, PILOT[:, 0])
