"""Sums of several maps of the same rows: a tuple of sums that add one by one."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream.moments.moments import AugmentedRow, ProductMoments
from rff_stream.moments.row_sample import RowSample
from rff_stream.moments.tree_sum import add_into


@dataclass(frozen=True, slots=True, eq=False)
class CandidateMoments(ProductMoments):
    """The sums of each map over the same rows: an abelian group under ``+``."""

    kind = "Sums of candidates"

    row: AugmentedRow  # those of the maps side by side: candidate_row
    members: tuple[Any, ...]
    """None: a row was met that this map does not reach. None plus anything is None (of sums or
    None)."""

    mark: ClassVar[str] = "candidates"
    dimensions: ClassVar[Mapping[str, tuple[str, ...]]] = {"candidates": ("candidate", "fact")}
    several: ClassVar[bool] = True

    @classmethod
    def member_rows(cls, row: AugmentedRow, sizes: Sequence[int]) -> list[AugmentedRow]:
        """The row of each map, which has so many columns."""
        return rows_of_candidates(row, sizes)

    def __iadd__(self, other: Self) -> Self:
        """The sum, for which the sums of this one may be written into."""
        self._require_same(other)
        return replace(self, members=_each(add_into, self, other))

    def plus(self, other: Self, out: Any = None) -> Self:
        """The sum; ``out`` is not needed."""
        self._require_same(other)
        return replace(self, members=_each(operator.add, self, other))

    def __neg__(self) -> Self:
        return replace(self, members=tuple(None if a is None else -a for a in self.members))

    def __sub__(self, other: Self) -> Self:
        self._require_same(other)
        return replace(self, members=_each(operator.sub, self, other))

    def _scaled(self, factor: float) -> Self:
        scaled = (None if a is None else a.scale(factor) for a in self.members)
        return replace(self, members=tuple(scaled))

    @property
    def known(self) -> Any:
        """Sums of a map that reaches every row: they count for all."""
        return next(each for each in self.members if each is not None)

    @property
    def n(self) -> int:
        """Rows, exactly."""
        return int(self.known.n)

    @property
    def weight(self) -> float:
        """Σ w."""
        return float(self.known.weight)

    @property
    def squared_weight(self) -> float:
        """Σ w² over the rows."""
        return float(self.known.squared_weight)

    @property
    def log_weight(self) -> float:
        """Σ log w over the rows."""
        return float(self.known.log_weight)

    @property
    def sample(self) -> RowSample:  # type: ignore[override]
        """A mergeable uniform sample of rows."""
        sample: RowSample = self.known.sample
        return sample

    @property
    def sums(self) -> None:
        """None: each map has its own."""
        return None

    def __sizeof__(self) -> int:
        return sum(int(each.__sizeof__()) for each in self.members if each is not None) + 256

    def __repr__(self) -> str:
        return f"<CandidateMoments: {', '.join(map(repr, self.members))}>"


def candidate_row(rows: Sequence[AugmentedRow]) -> AugmentedRow:
    """The rows of several maps side by side, of the same inputs and targets."""
    return replace(
        rows[0],
        map_fingerprint="+".join(row.map_fingerprint for row in rows),
        prior=np.concatenate([row.prior for row in rows]),
        nesting="none",
        feature_origin=np.concatenate([row.feature_origin for row in rows]),
        target_scale=np.max([row.target_scale for row in rows], axis=0),
    )


def rows_of_candidates(row: AugmentedRow, sizes: Sequence[int]) -> list[AugmentedRow]:
    """The row of each map again, from how many columns each has; a grid of frequencies has 0."""
    ends = np.cumsum(sizes)
    return [
        replace(
            row,
            map_fingerprint=name,
            prior=row.prior[end - size : end],
            feature_origin=row.feature_origin[end - size : end],
            target_scale=row.target_scale if size else np.ones(row.n_targets),
        )
        for name, size, end in zip(row.map_fingerprint.split("+"), sizes, ends, strict=True)
    ]


def _each(act: Any, one: CandidateMoments, other: CandidateMoments) -> tuple[Any, ...]:
    """What ``act`` makes of the sums of each map; None where one has none."""
    pairs = zip(one.members, other.members, strict=True)
    return tuple(None if a is None or b is None else act(a, b) for a, b in pairs)
