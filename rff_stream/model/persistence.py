"""A fit to and from the store: what it knows as a header, arrays, answers and moments."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rff_stream import __version__
from rff_stream._array import Array
from rff_stream.answers.early_stopping import HeldOutError
from rff_stream.contracts import Packed
from rff_stream.errors import ModelError
from rff_stream.model.fit import solve
from rff_stream.model.fitted import CountedBatch, Fitted, Ledger
from rff_stream.model.recipe import Recipe
from rff_stream.model.serialisation import (
    columns_from_plain,
    map_in,
    named_arrays,
    plain_columns,
    plain_selection,
    plain_value,
    scales_in,
    value_of,
)
from rff_stream.sources import Selection
from rff_stream.store import Batch, MomentStore, StoredModel, save_answer, save_model
from rff_stream.store.batch_writing import FIT, NewBatch

OF_READING = {"memory", "missing_chunks", "missing_rows", "progress"}
"""Parameters of every estimator that no answer from given sums depends on."""


def save(
    recipe: Recipe,
    fitted: Fitted,
    path: str | os.PathLike[str],
    *,
    moments: bool,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Write a fit with the parameters of its estimator as a Zarr v3 group."""
    if moments and fitted.groups is None:
        raise ModelError(
            "moments=True but this model was loaded without moments. Save it with moments=False."
        )
    ends, text = fitted.input_range, fitted.text_columns
    scales = fitted.scales if ends is None else {**fitted.scales, "input_range": ends}
    scales = {**scales, "text_columns": text} if text.any() else scales
    plain, arrays = named_arrays(fitted.features, scales)
    parameters = recipe.params.get_params(deep=False).items()
    answer = recipe.pack(fitted)
    header = {
        "model": type(recipe.params).__name__,
        "version": __version__,
        "parameters": {name: plain_value(value) for name, value in parameters},
        "columns": plain_columns(fitted.columns),
        "map": plain,
        "fitted": _plain_of(fitted, answer),
    }
    seen = fitted.n_rows + fitted.n_missing
    whole = CountedBatch(FIT, dict(fitted.groups or {}), seen, fitted.ledger)
    batches = (fitted.batches or (whole,)) if moments else ()
    save_model(
        path,
        header,
        arrays,
        answer.arrays,
        None,
        batches=[NewBatch(each.id, recipe.packed(each.groups), each.labels) for each in batches],
        overwrite=overwrite,
        storage_options=storage_options,
    )


def keep_answer(
    recipe: Recipe, fitted: Fitted, store: MomentStore, batches: Collection[Batch]
) -> None:
    """Write what a stored model answers from exactly these batches, so that loading does not.

    Nothing is written where parameters were set since: what is kept there is everyone's.
    """
    assert fitted.saved_at is not None
    saved = store.header["parameters"]
    mine = recipe.params.get_params(deep=False)
    if all(plain_value(mine[name]) == saved.get(name) for name in mine.keys() - OF_READING):
        answer = recipe.pack(fitted)
        header = {"fitted": _plain_of(fitted, answer)}
        save_answer(fitted.saved_at, store.log, batches, header, answer.arrays)


def parameters_in(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The parameters that a model was saved with."""
    features = map_in(header, arrays)
    return {name: value_of(value, features) for name, value in header["parameters"].items()}


def read_unsolved(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Fitted:
    """What a store knows of a fit besides sums and answer."""
    plain = header["fitted"]
    chosen, classes = plain.get("selection", {}), tuple(plain.get("classes", ()))
    return Fitted(
        columns=columns_from_plain(header["columns"]),
        features=map_in(header, arrays),
        scales=scales_in(arrays),
        n_rows=plain["n_rows"],
        n_missing=plain["n_missing"],
        flat=plain["flat"],
        feature_names=tuple(plain["feature_names"]),
        selection=Selection(**{name: value_of(value, None) for name, value in chosen.items()}),
        fraction=plain.get("fraction_seen"),
        history=tuple(HeldOutError.from_plain(each) for each in plain.get("history", ())),
        classes=classes,
        declared_classes=classes or None,
    )


def restore(recipe: Recipe, stored: StoredModel, *, chosen: bool) -> Fitted:
    """The fit that a store keeps; solved again where it keeps no answer.

    Where some batches or groups were ``chosen``, the fit does not commit to the store.
    """
    plain, fitted = stored.header["fitted"], read_unsolved(stored.header, stored.arrays)
    scales = stored.answers.get("length_scale")
    if scales is not None and not fitted.scales:
        fitted = replace(fitted, scales={"length_scale": scales})
    if stored.moments is not None:
        groups = recipe.unpacked(stored.moments, plain)
        if stored.answers:
            fitted = replace(fitted, groups=groups)
        else:
            fitted = solve(recipe, fitted.with_groups(groups))
            if stored.seen is not None:
                fitted = replace(fitted, n_missing=stored.seen - fitted.n_rows)
    if stored.answers:
        fitted = replace(fitted, answer=recipe.restore(fitted, Packed(plain, stored.answers)))
    if stored.moments is None or chosen:
        return fitted
    ledger = Ledger.of(stored.known.values())
    return replace(fitted, saved_at=stored.saved_at, answer_name=stored.answer, ledger=ledger)


def _plain_of(fitted: Fitted, answer: Packed) -> dict[str, Any]:
    """What a fit left behind besides arrays, as plain JSON."""
    return {
        "flat": fitted.flat,
        "n_rows": fitted.n_rows,
        "n_missing": fitted.n_missing,
        "feature_names": [str(name) for name in fitted.feature_names],
        "selection": plain_selection(fitted.selection),
        "pass": fitted.token,
        "fraction_seen": fitted.fraction,
        **({"history": [state.plain for state in fitted.history]} if fitted.history else {}),
        **answer.plain,
    }
