"""What a model has counted: row ranges of growing data, and batches by their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rff_stream._array import Array, digest
from rff_stream.errors import ModelError

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Identities of rows that were counted: they are counted once.

    Parameters
    ----------
    records : tuple of dict
        Row ranges along one dimension, each beginning where the one before ends; see
        :mod:`rff_stream.sources.growth`.
    batches : dict of str to str
        Hash of the content of every named batch.
    """

    records: tuple[Mapping[str, Any], ...] = ()
    batches: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Iterable[Mapping[str, Any]]) -> Self:
        """A hash of the labels of some batches, whatever their order."""
        records: list[Mapping[str, Any]] = []
        batches: dict[str, str] = {}
        for each in labels:
            records += each.get("records", ())
            batches |= each.get("batches", {})
        records.sort(key=lambda record: (record["start"], record["stop"]))
        return cls(tuple(records), batches)

    def __add__(self, other: Self) -> Self:
        return type(self).of([self.labels(), other.labels()])

    def labels(self) -> dict[str, Any]:
        """The labels of a batch, with the ends of its rows: batches are chosen by them."""
        found: dict[str, Any] = {}
        if self.records:
            first, last = self.records[0], self.records[-1]
            found |= {"start": first["start"], "stop": last["stop"]}
            found |= {"first": first["first"], "last": last["last"]} if "first" in first else {}
            found["records"] = [dict(record) for record in self.records]
        return found | ({"batches": dict(self.batches)} if self.batches else {})

    def knows(self, batch: str, content: str, before: str = "") -> bool:
        """Whether this batch was counted; refuses other content under its name.

        ``before`` is what an older rff_stream would have called the same content.
        """
        known = self.batches.get(batch)
        if known is not None and known not in (content, before):
            raise ModelError(
                f"The batch {batch!r} was counted before with other rows ({known[:12]}…, now "
                f"{content[:12]}…). A name stands for one content: give another, and forget this "
                "one in the store if it was wrong."
            )
        return known is not None


def content_of_arrays(*arrays: Array | None) -> str:
    """sha256 of rows in memory."""
    return digest(
        [a is None for a in arrays], {str(i): a for i, a in enumerate(arrays) if a is not None}
    )
