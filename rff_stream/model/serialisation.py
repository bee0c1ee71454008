"""Parameters, columns and maps as plain JSON and arrays, and back: no pickle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import GENERATORS
from rff_stream.families import DrawnMap
from rff_stream.features import FeatureMap, map_from_spec
from rff_stream.features.base import UNDRAWN, UndrawnMap
from rff_stream.kernels import ExactKernel, as_kernel, kernel_from_spec
from rff_stream.kernels.kernel_argument import is_scikit_learn
from rff_stream.losses.regression import RegressionLoss, regression_loss
from rff_stream.sources import Columns, HoldOut, Selection
from rff_stream.store import Checkpoint

MAP = "map/"
SCALES = "fitted/"
ONE_FORM = "labels in one form"
"""Stands behind the values of a hold-out; absent from those of older models."""


def named_arrays(
    features: FeatureMap, scales: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A map, and what it was drawn for, as plain values and arrays of a store."""
    plain, arrays = features.spec()
    named = {MAP + name: values for name, values in arrays.items()}
    return dict(plain), named | {SCALES + name: values for name, values in scales.items()}


def pack_map(drawn: DrawnMap) -> tuple[dict[str, Any], dict[str, Array]]:
    """What is decided before the pass as the header and arrays of a checkpoint."""
    plain, arrays = named_arrays(drawn.features, drawn.scales)
    return {"map": plain}, arrays


def unpack_map(checkpoint: Checkpoint) -> DrawnMap | None:
    """What an earlier run of the same fit decided; None without one."""
    store = checkpoint.store
    if store is None:
        return None
    return DrawnMap(map_in(store.header, store.arrays), store.row, scales_in(store.arrays))


def map_in(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
    """The feature map that a store keeps."""
    maps = {name.removeprefix(MAP): a for name, a in arrays.items() if name.startswith(MAP)}
    return map_from_spec(header["map"], maps)


def scales_in(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What the map of a store was drawn for."""
    return {name.removeprefix(SCALES): a for name, a in arrays.items() if name.startswith(SCALES)}


def plain_selection(selection: Selection) -> dict[str, Any]:
    """Conditions and dimensions of a fit, as JSON; arrays of labels are not kept."""
    chosen = {"dim": selection.dim, "where": selection.where, "by": selection.labels_by}
    return {name: plain_value(value) for name, value in chosen.items()}


def plain_columns(columns: Columns) -> dict[str, Any]:
    """Names and units of columns, as JSON."""
    plain = asdict(columns)
    for name in ("fills", "indicated", "long_names"):  # what most fits do not have
        if not plain[name]:
            del plain[name]
    return {n: list(value) if isinstance(value, tuple) else value for n, value in plain.items()}


def columns_from_plain(plain: Mapping[str, Any]) -> Columns:
    """Columns from JSON."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()
    }
    fills = tuple((str(name), float(value)) for name, value in values.pop("fills", ()))
    words = tuple((str(name), str(text)) for name, text in values.pop("long_names", ()))
    return Columns(**values, fills=fills, long_names=words)


def plain_value(value: Any) -> Any:
    """A parameter as JSON; other values than plain ones are marked by their kind."""
    if isinstance(value, ExactKernel) or is_scikit_learn(value):
        return {"kernel": as_kernel(value).spec()}
    if isinstance(value, HoldOut):
        found = [value.fraction, value.seed, value.part, value.by]
        return {"holdout": found if value.as_before else [*found, ONE_FORM]}
    if isinstance(value, RegressionLoss):
        return {"loss": value.spec()}
    if isinstance(value, UndrawnMap):
        return {value.short_name(): value.plain(plain_value)}
    if hasattr(value, "fingerprint"):
        return {"map": value.fingerprint}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, GENERATORS):
        return None
    if isinstance(value, Mapping) and any(hasattr(v, "fingerprint") for v in value.values()):
        # Columns that chose their own: one map when it is read.
        marks = [[plain_value(key), getattr(v, "fingerprint", None)] for key, v in value.items()]
        return {"map": marks}
    if isinstance(value, Mapping):
        return {"mapping": [[plain_value(key), plain_value(item)] for key, item in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"sequence": [plain_value(item) for item in value]}
    if callable(value):
        return {"kernel": as_kernel(value).spec()}  # by its name: functions are not stored
    return value


def value_of(plain: Any, features: Any) -> Any:
    """A parameter from JSON."""
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind in UNDRAWN.by_name:
        kind_of_map = UNDRAWN.by_name[kind]
        return kind_of_map.from_plain(content, functools.partial(value_of, features=features))
    builders: dict[str, Callable[[], Any]] = {
        "kernel": lambda: kernel_from_spec(content),
        "loss": lambda: regression_loss(content),
        "map": lambda: features,
        "holdout": lambda: HoldOut(*content[:4], as_before=content[4:] != [ONE_FORM]),
        "array": lambda: np.array(content),
        "sequence": lambda: [value_of(item, features) for item in content],
        "mapping": lambda: {value_of(k, features): value_of(v, features) for k, v in content},
    }
    return builders[kind]()
