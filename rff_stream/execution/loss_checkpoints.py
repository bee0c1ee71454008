"""Passes of a loss that were made before: a fit of many reads goes on between two of them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from rff_stream._array import digest
from rff_stream.statistics.loss import LossStatistic, LossSums, SumOfRows
from rff_stream.store.passes import Passes

__all__ = ["remembered"]

logger = logging.getLogger("rff_stream")


def remembered(sums: SumOfRows, passes: Passes, token: str) -> SumOfRows:
    """The same sums, of which those that were asked before are not read again.

    A descent asks by what it was answered, so its second run asks what the first one did and
    is, to the bit, where that was stopped: nothing of its state needs to be kept.

    Parameters
    ----------
    sums : callable
        A statistic -> its sum over all rows.
    passes : Passes
    token : str
        Of data, map and choices.
    """
    told = False

    def asked(statistic: LossStatistic) -> LossSums:
        nonlocal told
        question = question_of(statistic, token)
        known = passes.find(question)
        if known is not None:
            if not told:
                logger.warning("goes on from passes that an earlier run made")
            told = True
            curvature = None if known.moments is None else known.moments[None]
            values, cross = (np.array(known.arrays[name]) for name in ("values", "cross"))
            return LossSums(values, cross, curvature)
        found = sums(statistic)
        arrays = {"values": found.values, "cross": found.cross}
        passes.save(question, {}, arrays, found.curvature)
        return found

    return asked


def question_of(statistic: LossStatistic, token: str) -> str:
    """sha256 of all that the sums of a statistic depend on."""
    weights: Any = sorted((str(k), v) for k, v in (statistic.class_weight or {}).items())
    plain = {
        "token": token,
        "map": statistic.features.fingerprint,
        "loss": repr(statistic.loss),
        "labels": [str(label) for label in statistic.labels],
        "steps": list(statistic.steps),
        "class_weight": weights,
        "row": None if statistic.row is None else statistic.row.fingerprint,
        "sums": statistic.sums,
    }
    return digest(plain, {"coef": statistic.coef, "intercept": statistic.intercept})
