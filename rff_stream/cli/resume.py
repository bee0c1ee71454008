"""A fit that is stopped goes on when its command is run again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def checkpoint_of(model: str) -> str:
    """Where sums are kept until the model is."""
    return f"{model.rstrip('/')}.checkpoint"


def fitted_at(model: str | None, overwrite: bool, fit: Callable[[str | None], Value]) -> Value:
    """What ``fit(checkpoint)`` gives; ``overwrite`` drops the checkpoint of another fit."""
    from rff_stream.errors import ModelError
    from rff_stream.store import OtherPass, discard

    if model is None or "://" in model:
        return fit(None)
    path, taken = checkpoint_of(model), os.path.lexists(model)
    try:
        return fit(path)
    except OtherPass:
        if not overwrite:
            raise
        discard(path)
        return fit(path)
    except ModelError as error:
        if taken or not os.path.lexists(model):
            raise
        raise ModelError(
            f"{model} was saved by another run of this command while this one was reading. It is "
            "whole: load it, or choose another --model."
        ) from error


def finish(model: str) -> None:
    """The model is saved: its checkpoint goes."""
    from rff_stream.store import discard

    if "://" not in model:
        discard(checkpoint_of(model))


def was_finished(model: str, overwrite: bool) -> bool:
    """Whether an earlier run saved this model and was stopped before it could tidy up."""
    from rff_stream.store import facts_in, load_model

    if overwrite or "://" in model or not os.path.lexists(model):
        return False
    token = facts_in(checkpoint_of(model))
    if token is None or load_model(model).header.get("fitted", {}).get("pass") != token:
        return False
    finish(model)
    return True
