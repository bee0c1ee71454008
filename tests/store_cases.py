"""Small stores for the tests of the store, and what "the same" means for what comes back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from rff_stream.moments import N_PARTS, AugmentedRow, Moments, ended_readings, packed_size
from rff_stream.moments.row_sample import RowSample
from rff_stream.store import MomentStore, save_model

HEADER = {"model": "KernelRidge", "parameters": {"alpha": 0.1, "seed": None}, "é": ["°C", 1, True]}


def a_row(n_features: int = 4, n_targets: int = 1, seed: int = 0) -> AugmentedRow:
    rng = np.random.default_rng(seed)
    targets = tuple(f"y{i}" for i in range(n_targets))
    return AugmentedRow(
        map_fingerprint=f"{seed:064x}"[::-1],
        prior=np.full(n_features, 2 / n_features),
        nesting="average",
        feature_origin=rng.normal(size=n_features),
        target_origin=rng.normal(size=n_targets),
        target_scale=np.ones(n_targets),
        inputs=("t", "ü"),
        targets=targets,
        units=("K", "", *["m s⁻¹"] * n_targets),
    )


def some_moments(seed: int, row: AugmentedRow | None = None, order: int = 2, k: int = 3) -> Moments:
    row = a_row() if row is None else row
    rng = np.random.default_rng(seed)
    size = packed_size(row.width) if order == 2 else row.width
    width = len(row.inputs) + row.n_targets + 1
    keys = rng.integers(0, 2**63, 2 * k).astype(np.uint64)
    made = Moments(
        row=row,
        order=order,
        sums=rng.normal(size=size),
        n=int(rng.integers(1, 2**40)),
        squared_weight=float(rng.uniform()),
        log_weight=float(rng.normal()),
        parts=rng.normal(size=(N_PARTS, row.width)) if order == 1 else None,
        sample=RowSample.of(k, keys, rng.normal(size=(2 * k, width))),
    )
    return ended_readings({None: made})[None]


def whole_moments(seed: int, row: AugmentedRow | None = None) -> Moments:
    """Whole numbers: their sums are exact in any order."""
    made = some_moments(seed, row)
    whole = np.random.default_rng(seed).integers(-1000, 1000, made.sums.shape).astype(float)
    return dataclasses.replace(made, sums=whole, squared_weight=float(seed % 97), log_weight=0.0)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "map/frequencies": rng.normal(size=(3, 2)),
        "map/origin": np.array([np.nan, -0.0]),
        "map/deep/er": np.arange(6, dtype=np.float32).reshape(1, 2, 3),
        "map/scalar": np.array(-np.inf),
        "map/empty": np.empty((0, 3)),
        "pilot/keys": np.array([0, 2**64 - 1], np.uint64),
        "pilot/counts": np.array([-(2**63)], np.int64),
    }


def answers() -> dict[str, Any]:
    return {"coef": np.arange(4.0), "mean": np.array(1 / 3)}


def save(path: Path, version: int = 0, *, small: bool = False, **options: Any) -> None:
    """A model whose every part says which version it is."""
    save_model(
        path,
        HEADER | {"version": version},
        ({} if small else arrays()) | {"map/version": np.full(3, float(version))},
        answers() | {"version": np.array(float(version))},
        {None: whole_moments(version)},
        **options,
    )


def version_of(stored: Any) -> int:
    """The version of a loaded model; its parts must agree."""
    version = stored.header["version"]
    assert stored.arrays["map/version"].tolist() == [version] * 3
    assert stored.answers["version"] == version
    assert same_moments(stored.moments[None], whole_moments(version))
    return int(version)


def new_store(path: Path, ids: str = "", **options: Any) -> MomentStore:
    """A store with a batch for each letter."""
    store = MomentStore.create(path, a_row(), header=HEADER, arrays=arrays(), **options)
    for letter in ids:
        store.append(letter, whole_moments(ord(letter)), {"letter": letter})
    return store


def expected_total(ids: str) -> Moments:
    first, *rest = (whole_moments(ord(letter)) for letter in ids)
    for moments in rest:
        first = first + moments
    return first


def bits(value: Any) -> Any:
    """Something equal exactly where values are equal to the last bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value):
        return [bits(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return {key: bits(inner) for key, inner in value.items()}
    return (type(value), value.hex()) if isinstance(value, float) else (type(value), value)


def same_moments(one: Moments, other: Moments) -> bool:
    return bool(bits(one) == bits(other))


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())
