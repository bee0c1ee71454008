"""Finished nodes of class moments in a checkpoint, whose moments have all one meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rff_stream._array import Array
from rff_stream.moments import AugmentedRow
from rff_stream.moments.classes import ClassMoments, class_row, sorted_labels
from rff_stream.moments.tree_sum import Node
from rff_stream.store import Checkpoint

__all__ = ["ClassNodes"]

LABELS = "labels"


class ClassNodes:
    """What a :class:`~rff_stream.execution.checkpoints.Keeper` writes class moments to.

    The moments of a checkpoint are those of the classes that the pilot and its first nodes
    held. Nodes with another class are not kept, so their rows are read again: the sum is the
    same.

    Parameters
    ----------
    checkpoint : Checkpoint
    row : AugmentedRow
        Without targets.
    labels : tuple
        Of the pilot.
    header, arrays
        To keep beside them.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        row: AugmentedRow,
        labels: tuple[Any, ...],
        header: Mapping[str, Any],
        arrays: Mapping[str, Array],
    ) -> None:
        self._checkpoint, self._row, self._expected = checkpoint, row, labels
        self._header, self._arrays = dict(header), dict(arrays)
        self._labels: tuple[Any, ...] | None = None
        if checkpoint.store is not None:
            self._begin(tuple(checkpoint.store.header[LABELS]))

    def nodes(self) -> dict[Node, tuple[dict[Any, Any], int]]:
        """Finished nodes: class moments by (fold, label), and the rows looked at for them."""
        labels = self._labels or ()
        return {
            node: ({_key(k): ClassMoments(labels, m) for k, m in groups.items()}, seen)
            for node, (groups, seen) in self._checkpoint.nodes().items()
        }

    def save(self, node: Node, groups: Mapping[Any, ClassMoments], seen: int) -> None:
        """Commit a node, unless it holds a class that the first ones did not."""
        found = sorted_labels(label for part in groups.values() for label in part.labels)
        if self._labels is None:
            self._begin(sorted_labels([*self._expected, *found]))
        labels = self._labels or ()
        if set(found) <= set(labels):
            kept = {json.dumps(key): part.over(labels).moments for key, part in groups.items()}
            self._checkpoint.save(node, kept, seen)

    def _begin(self, labels: tuple[Any, ...]) -> None:
        self._labels = labels
        header = {**self._header, LABELS: list(labels)}
        self._checkpoint.begin(class_row(self._row, labels), 2, header, self._arrays)


def _key(text: Any) -> Any:
    """(fold, label) from its text; of a node without rows, nothing."""
    return tuple(json.loads(text))
