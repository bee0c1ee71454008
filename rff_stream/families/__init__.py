"""Families of feature maps: what each kind of map needs to be planned, drawn, summed and solved.

A family is a kind of map together with the sums that answer for it: a folder, with one value that
keeps :class:`~rff_stream.families.protocol.Family`. Estimators and passes ask :func:`family_of`
for the one of a map (or of ``features=``) and look at the kind no further, so that a model that is
loaded or goes on knows its own. To add a family: write a folder whose ``family`` module defines
``FAMILY``, and name the folder in ``FAMILY_FOLDERS`` of :mod:`rff_stream.registry`.
"""

from __future__ import annotations

from rff_stream.families.linear_answer import LinearAnswer
from rff_stream.families.protocol import (
    DrawnMap,
    Family,
    MapParameters,
    StoredAnswer,
    SumRequest,
    Totals,
    family_of,
)
from rff_stream.families.register import check_map, check_whole_space, class_family_of, require

__all__ = [
    "DrawnMap",
    "Family",
    "LinearAnswer",
    "MapParameters",
    "StoredAnswer",
    "SumRequest",
    "Totals",
    "check_map",
    "check_whole_space",
    "class_family_of",
    "family_of",
    "require",
]
