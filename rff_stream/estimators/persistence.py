"""Models to and from the store: plain values and arrays, no pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rff_stream import __version__
from rff_stream.errors import ModelError
from rff_stream.estimators.streaming import StreamedEstimator
from rff_stream.features import map_from_spec
from rff_stream.kernels import kernel_from_spec
from rff_stream.moments import total
from rff_stream.sources import Columns
from rff_stream.store import StoredModel, load_model, save_model

__all__ = ["load", "save"]

MAP = "map/"


def save(
    model: StreamedEstimator,
    path: str | os.PathLike[str],
    moments: bool,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Write a fitted model; see :meth:`StreamedEstimator.save`."""
    plain, arrays = model.features_.spec()
    header = {
        "model": type(model).__name__,
        "version": __version__,
        "parameters": {name: _plain(v) for name, v in model.get_params(deep=False).items()},
        "columns": _listed(asdict(model.columns_)),
        "map": dict(plain),
        "fitted": {
            "flat": model._flat,
            "n_rows": model.n_rows_,
            "n_missing": model.n_missing_,
            "feature_names": [str(n) for n in getattr(model, "feature_names_in_", [])],
        },
    }
    groups = {None: model.moments_} if moments else None
    if moments and not hasattr(model, "moments_"):
        raise ModelError(
            "moments=True but this model was loaded without moments. Save it with moments=False."
        )
    named = {MAP + name: values for name, values in arrays.items()}
    save_model(
        path,
        header,
        named,
        model._arrays(),
        groups,
        overwrite=overwrite,
        storage_options=storage_options,
    )


def load(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """The model saved at a path, every byte of it verified.

    Parameters
    ----------
    path : path or URL
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Returns
    -------
    KernelRidge or GaussianProcessRegressor
        As it was saved, without ``plan_``; with ``moments_`` if they were saved.

    Raises
    ------
    ModelError
        No model there, one of a newer format, or a file that is missing, extra or changed.
    """
    stored = load_model(path, storage_options=storage_options)
    try:
        return _restored(stored)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} holds a model that this version ({__version__}) cannot build: {error!r}. "
            "It was written by another version or another program; upgrade rff_stream."
        ) from error


def _restored(stored: StoredModel) -> StreamedEstimator:
    header = stored.header
    model: StreamedEstimator = _kinds()[header["model"]]()
    maps = {k.removeprefix(MAP): v for k, v in stored.arrays.items() if k.startswith(MAP)}
    model.features_ = map_from_spec(header["map"], maps)
    parameters = {name: _value(v, model.features_) for name, v in header["parameters"].items()}
    model.set_params(**parameters)
    columns = {name: _tupled(value) for name, value in header["columns"].items()}
    model.columns_ = Columns(**columns)
    fitted = header["fitted"]
    model._flat = fitted["flat"]
    model.n_rows_, model.n_missing_ = fitted["n_rows"], fitted["n_missing"]
    model.n_features_in_ = len(model.columns_.inputs)
    if fitted["feature_names"]:
        model.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
    if stored.moments is not None:
        model.moments_ = total(stored.moments.values())
    if stored.answers:
        model._restore(stored.answers)
    else:
        model._solve(stored.moments or {})
    return model


def _kinds() -> dict[str, Callable[[], Any]]:
    """Estimators by the name that a store knows them under."""
    from rff_stream import estimators

    return {name: getattr(estimators, name) for name in estimators.__all__ if name[0].isupper()}


def _plain(value: Any) -> Any:
    """A parameter as JSON; what cannot be written is told apart by its kind."""
    if hasattr(value, "with_length_scale"):
        return {"kernel": value.spec()}
    if hasattr(value, "fingerprint"):
        return {"map": value.fingerprint}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"sequence": [_plain(item) for item in value]}
    return value


def _value(plain: Any, features: Any) -> Any:
    """A parameter from JSON."""
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    builders: dict[str, Callable[[], Any]] = {
        "kernel": lambda: kernel_from_spec(content),
        "map": lambda: features,
        "array": lambda: np.array(content),
        "sequence": lambda: [_value(item, features) for item in content],
    }
    return builders[kind]()


def _listed(columns: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
