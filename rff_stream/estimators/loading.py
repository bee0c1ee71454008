"""Models from the store: by the name of their class, with the parameters that were saved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rff_stream import __version__
from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.estimators.base import Estimator
from rff_stream.model.stored import parameters_in
from rff_stream.model.update import Later, Update
from rff_stream.store import MomentStore, StoredModel, load_model
from rff_stream.store.criteria import ChosenGroups, Weights, Where


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
    estimator
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
        return estimator_in(stored.header, stored.arrays)._restore(stored, chosen=chosen)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} holds a model that this version ({__version__}) cannot build: {error!r}. "
            "It was written by another version or another program; upgrade rff_stream."
        ) from error


def estimator_in(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Estimator:
    """The estimator that a store names, with its parameters and not fitted yet."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in Estimator.__subclasses__()}
    kind = kinds[header["model"]]
    made: Estimator = kind(**parameters_in(header, arrays))
    return made


def count_in_store(
    path: str,
    later: Later,
    *,
    memory: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Update, MomentStore]:
    """Count what is new in the model at a path, which is not solved for it."""
    store = MomentStore.open(path, storage_options=storage_options)
    if "model" not in store.header:
        raise ModelError(
            f"{path} is a store of moments and no model: it has no map. Append to it with "
            "MomentStore.append, or fit a model with rff-stream fit --model."
        )
    model = estimator_in(store.header, store.arrays)
    if memory is not None:
        model.set_params(memory=memory)
    return model._add_to_store(store, later), store


def keep_answer_in_store(
    path: str,
    *,
    memory: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Solve the model at a path for the batches that it holds now, and keep the answer there."""
    while True:
        before = MomentStore.open(path, storage_options=storage_options).batches()
        model = load(path, storage_options=storage_options)
        if memory is not None:
            model.set_params(memory=memory)
        if MomentStore.open(path, storage_options=storage_options).batches() == before:
            model._keep_answer(before)
            return
