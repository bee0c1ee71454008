"""Models to and from the store: plain values and arrays, no pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rff_stream import __version__
from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.estimators.growing import GrowingEstimator
from rff_stream.estimators.ledger import Ledger
from rff_stream.estimators.streaming import StreamedEstimator
from rff_stream.features import Cells, map_from_spec
from rff_stream.kernels import ExactKernel, as_kernel, kernel_from_spec
from rff_stream.kernels.scikit_learn import is_scikit_learn
from rff_stream.moments import Moments, total
from rff_stream.sources import Columns, HoldOut
from rff_stream.store import (
    Batch,
    MomentStore,
    StoredModel,
    load_model,
    save_answer,
    save_model,
)
from rff_stream.store.criteria import ChosenGroups, Weights, Where

__all__ = ["keep_answer", "load", "plain_value", "save", "shell_of", "value_of"]

ELSEWHERE = {"memory", "missing_chunks", "missing_rows", "progress"}
"""Parameters that no answer from given moments depends on."""

MAP = "map/"
STATE = "fitted/"


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
        "parameters": {name: plain_value(v) for name, v in model.get_params(deep=False).items()},
        "columns": _listed(asdict(model.columns_)),
        "map": dict(plain),
        "fitted": facts_of(model),
    }
    if moments and not hasattr(model, "moments_"):
        raise ModelError(
            "moments=True but this model was loaded without moments. Save it with moments=False."
        )
    named = {MAP + name: values for name, values in arrays.items()}
    if isinstance(model, GrowingEstimator):
        named |= {STATE + name: values for name, values in model._state().items()}
    save_model(
        path,
        header,
        named,
        model._arrays(),
        groups_of(model) if moments else None,
        labels=labels_of(model) if moments else None,
        overwrite=overwrite,
        storage_options=storage_options,
    )


def keep_answer(model: GrowingEstimator, batches: Collection[Batch]) -> None:
    """Write what a loaded model answers from exactly these batches, so that loading does not.

    Nothing is written where parameters were set since: what is kept there is everyone's.
    """
    assert model._home is not None
    store = model._home.open()
    saved = shell_of(store.header, store.arrays).get_params(deep=False)
    mine = model.get_params(deep=False)
    if all(plain_value(mine[name]) == plain_value(saved[name]) for name in mine.keys() - ELSEWHERE):
        save_answer(model._home, batches, {"fitted": facts_of(model)}, model._arrays())


def facts_of(model: StreamedEstimator) -> dict[str, Any]:
    """What a fit left behind besides arrays, as plain JSON."""
    return {
        "flat": model._flat,
        "n_rows": model.n_rows_,
        "n_missing": model.n_missing_,
        "feature_names": [str(n) for n in getattr(model, "feature_names_in_", [])],
        **history_of(model),
        **model._facts(),
    }


def history_of(model: StreamedEstimator) -> dict[str, Any]:
    """How a model that can grow was read: conditions, token of its pass, share of the rows."""
    if not isinstance(model, GrowingEstimator):
        return {}
    fraction = getattr(model, "fraction_seen_", None)
    return {"selection": selection_of(model), "pass": model._pass, "fraction_seen": fraction}


def groups_of(model: StreamedEstimator) -> dict[Any, Moments]:
    """Moments by group."""
    grown = isinstance(model, GrowingEstimator)
    return dict(model._grouped()) if grown else {None: model.moments_}


def labels_of(model: StreamedEstimator) -> dict[str, Any]:
    """What is known of all rows that were counted, as labels of one batch."""
    ledger = model._ledger if isinstance(model, GrowingEstimator) else Ledger()
    return {**ledger.labels(), "seen": model.n_rows_ + model.n_missing_}


def load(
    path: str | os.PathLike[str],
    *,
    where: Where | None = None,
    groups: ChosenGroups | None = None,
    weights: Weights | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """The model saved at a path, every byte of it verified.

    Parameters
    ----------
    path : path or URL
    where, groups, weights : optional
        Answer from some of the batches and groups that the store keeps, or with weights, as in
        :meth:`rff_stream.MomentStore.total`: a window, a region, exponential forgetting. No
        data are read.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Returns
    -------
    KernelRidge or GaussianProcessRegressor
        As it was saved, without ``plan_``; with ``moments_`` if they were saved. ``update``
        then commits to this store; not where batches, groups or weights were chosen.

    Raises
    ------
    ModelError
        No model there, one of a newer format, or a file that is missing, extra or changed.

    Examples
    --------
    >>> import tempfile, numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = rs.KernelRidge(n_components=32, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.zarr")
    ...     again = rs.load(f"{folder}/model.zarr")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    chosen = not (where is None and groups is None and weights is None)
    if chosen:
        store = MomentStore.open(path, storage_options=storage_options)
        found = store.groups(where, groups=groups, weights=weights)
        stored = StoredModel(store.header, store.arrays, {}, found)
    else:
        stored = load_model(path, storage_options=storage_options)
    try:
        model = _restored(stored)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} holds a model that this version ({__version__}) cannot build: {error!r}. "
            "It was written by another version or another program; upgrade rff_stream."
        ) from error
    if isinstance(model, GrowingEstimator) and stored.moments is not None and not chosen:
        model._home, model._answer_name = stored.home, stored.answer
        model._ledger = Ledger.of(stored.known.values())
    return model


def shell_of(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> StreamedEstimator:
    """A model that knows its map, columns and parameters, and no answer yet."""
    model: StreamedEstimator = _kinds()[header["model"]]()
    model.features_ = map_of(header, arrays)
    parameters = {name: value_of(v, model.features_) for name, v in header["parameters"].items()}
    model.set_params(**parameters)
    columns = {name: _tupled(value) for name, value in header["columns"].items()}
    model.columns_ = Columns(**columns)
    fitted = header["fitted"]
    model._flat = fitted["flat"]
    model.n_rows_, model.n_missing_ = fitted["n_rows"], fitted["n_missing"]
    model.n_features_in_ = len(model.columns_.inputs)
    model._take_facts(fitted)
    if fitted["feature_names"]:
        model.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
    if isinstance(model, GrowingEstimator):
        chosen = fitted.get("selection", {})
        model._selection = {name: value_of(v, None) for name, v in chosen.items()}
        state = {k.removeprefix(STATE): v for k, v in arrays.items() if k.startswith(STATE)}
        if state:
            model._take_state(state)
        if fitted.get("fraction_seen") is not None:
            model.fraction_seen_ = fitted["fraction_seen"]
    return model


def map_of(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """The feature map that a store keeps."""
    maps = {k.removeprefix(MAP): v for k, v in arrays.items() if k.startswith(MAP)}
    return map_from_spec(header["map"], maps)


def selection_of(model: GrowingEstimator) -> dict[str, Any]:
    """Conditions and dimensions of the fit, as JSON; arrays of labels are not kept."""
    chosen = dict(model._selection)
    by = chosen.pop("by", None)
    named = by if isinstance(by, str) or _is_names(by) else None
    return {name: plain_value(value) for name, value in {**chosen, "by": named}.items()}


def _is_names(by: Any) -> bool:
    return isinstance(by, list | tuple) and all(isinstance(name, str) for name in by)


def _restored(stored: StoredModel) -> StreamedEstimator:
    model = shell_of(stored.header, stored.arrays)
    groups = stored.moments
    if groups is not None and not isinstance(model, GrowingEstimator):
        model.moments_ = total(groups.values())
    elif groups is not None and isinstance(model, GrowingEstimator) and stored.answers:
        model.moments_ = total(groups.values())
        model._groups = groups if len(groups) > 1 else None
    if stored.answers:
        model._restore(stored.answers)
    elif isinstance(model, GrowingEstimator) and groups is not None:
        model._adopt(groups)
        if stored.seen is not None:
            model.n_missing_ = stored.seen - model.n_rows_
    else:
        model._solve(groups or {})
    return model


def _kinds() -> dict[str, Callable[[], Any]]:
    """Estimators by the name that a store knows them under."""
    from rff_stream import estimators

    return {name: getattr(estimators, name) for name in estimators.__all__ if name[0].isupper()}


def plain_value(value: Any) -> Any:
    """A parameter as JSON; what cannot be written is told apart by its kind."""
    if isinstance(value, ExactKernel) or is_scikit_learn(value):
        return {"kernel": as_kernel(value).spec()}
    if isinstance(value, HoldOut):
        return {"holdout": [value.fraction, value.seed, value.part, value.by]}
    if isinstance(value, Cells):
        return {"cells": asdict(value)}
    if hasattr(value, "fingerprint"):
        return {"map": value.fingerprint}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        return None
    if isinstance(value, Mapping) and any(hasattr(v, "fingerprint") for v in value.values()):
        # Columns that chose their own: one map when it is read.
        marks = [[plain_value(key), getattr(v, "fingerprint", None)] for key, v in value.items()]
        return {"map": marks}
    if isinstance(value, Mapping):
        return {"mapping": [[plain_value(key), plain_value(item)] for key, item in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"sequence": [plain_value(item) for item in value]}
    return value


def value_of(plain: Any, features: Any) -> Any:
    """A parameter from JSON."""
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    builders: dict[str, Callable[[], Any]] = {
        "kernel": lambda: kernel_from_spec(content),
        "cells": lambda: Cells(**content),
        "map": lambda: features,
        "holdout": lambda: HoldOut(*content),
        "array": lambda: np.array(content),
        "sequence": lambda: [value_of(item, features) for item in content],
        "mapping": lambda: {value_of(k, features): value_of(v, features) for k, v in content},
    }
    return builders[kind]()


def _listed(columns: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
