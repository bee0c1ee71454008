"""Arguments where=, groups= and weights= -> functions that select and weight batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rff_stream.errors import ModelError
from rff_stream.store.append import checked_id
from rff_stream.store.log_entries import Batch
from rff_stream.store.moments_codec import Label

Where = Callable[[Batch], bool] | Collection[str] | Mapping[str, Any]
"""Truth of "this batch counts", ids, or values of labels: a value, several, or a slice."""

ChosenGroups = Callable[[Label], bool] | Collection[Label] | Mapping[str, Any]
"""The same for groups; names are those of ``by=["month", "region"]``."""

Weights = Callable[[Batch], float] | Mapping[str, float]
"""A weight ≥ 0 for each batch, by a function or by id; 0 leaves it out."""


def batch_chooser(where: Where | None) -> Callable[[Batch], bool]:
    """Truth of "this batch counts"."""
    if where is None:
        return lambda batch: True
    if callable(where):
        return where
    if isinstance(where, Mapping):
        wanted = dict(where)
        return lambda batch: _agrees(wanted, batch.labels)
    ids = {checked_id(id) for id in _several("where", where)}
    return lambda batch: batch.id in ids


def group_chooser(groups: ChosenGroups | None) -> Callable[[Label], bool]:
    """Truth of "this group counts"."""
    if groups is None:
        return lambda label: True
    if callable(groups):
        return groups
    if isinstance(groups, Mapping):
        wanted = {name: _texts(value) for name, value in groups.items()}
        return lambda label: _agrees(wanted, named_parts(label))
    chosen = {(type(label), label) for label in _several("groups", groups)}
    return lambda label: (type(label), label) in chosen


def weigher(weights: Weights | None) -> Callable[[Batch], float]:
    """The weight of a batch; refuses what is none."""
    if weights is None:
        return lambda batch: 1.0
    by_id = weights if isinstance(weights, Mapping) else None
    found: Any = weights

    def weight(batch: Batch) -> float:
        value = float(by_id.get(batch.id, 1.0) if by_id is not None else found(batch))
        if not (math.isfinite(value) and value >= 0):
            raise ModelError(
                f"The weight of the batch {batch.id!r} is {value}, but weights are finite and "
                ">= 0; 0 leaves a batch out."
            )
        return value

    return weight


def named_parts(label: Label) -> dict[str, str]:
    """ "month=1,region=north" -> {"month": "1", "region": "north"}; {} for other labels."""
    parts = (part.partition("=") for part in str(label).split(","))
    return {name: value for name, equals, value in parts if equals}


def _agrees(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether every name that was asked for is there with a value that was asked for."""
    return all(name in found and _is_in(found[name], value) for name, value in wanted.items())


def _is_in(value: Any, wanted: Any) -> bool:
    """Whether a value is the one, one of several, or between both ends of a slice."""
    if isinstance(wanted, slice):
        above = wanted.start is None or value >= wanted.start
        return above and (wanted.stop is None or value <= wanted.stop)
    if isinstance(wanted, list | tuple | set | frozenset | range):
        return value in wanted
    return bool(value == wanted)


def _texts(wanted: Any) -> Any:
    """Values as the text that labels of several columns hold."""
    if isinstance(wanted, slice):
        raise ModelError(
            f"groups={wanted} is a slice, but groups of several columns are told apart by text. "
            "List the values."
        )
    several = isinstance(wanted, list | tuple | set | frozenset | range)
    return {str(value) for value in wanted} if several else str(wanted)


def _several(name: str, values: Any) -> Collection[Any]:
    """Refuse a lone text, whose letters would be taken for ids."""
    if isinstance(values, str):
        raise ModelError(f"{name}={values!r} is one text; give several as a list: [{values!r}].")
    found: Collection[Any] = values
    return found
