"""Values whose fields are sums over rows: they add, subtract and scale, field by field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from rff_stream.errors import ModelError


class AddedFields(ABC):
    """A frozen dataclass with ``n`` rows, whose fields of the names ``sums`` are sums."""

    n: int
    sums: ClassVar[tuple[str, ...]]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]

    def __add__(self, other: Self) -> Self:
        return self._plus(other, 1)

    def __sub__(self, other: Self) -> Self:
        return self._plus(other, -1)

    def scale(self, factor: float) -> Self:
        """Every weight times ``factor`` > 0; n unchanged.

        Raises
        ------
        ValueError
            If the factor is not finite and positive.
        """
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(f"factor={factor!r} but it must be a finite number > 0.")
        return self._with({name: getattr(self, name) * factor for name in self.sums})

    @abstractmethod
    def matched(self, other: Self) -> Self:
        """The other value in the form of this one; refuses one of other columns or another fit."""

    def target_index(self, target: str | None) -> int:
        """The number of a target; of the only one, where none is named.

        Raises
        ------
        ValueError
            If no target has this name, or there are several to name one of.
        """
        if target not in (None, *self.targets) or (target is None and len(self.targets) > 1):
            raise ValueError(
                f"target={target!r} but the targets are {', '.join(self.targets)}. Name one of "
                "them."
            )
        return 0 if target is None else self.targets.index(target)

    def require_alike(self, other: Self, what: str, rule: str, *, same: bool = True) -> None:
        """Refuse a value of other inputs or targets, or one that is not the ``same`` otherwise.

        Raises
        ------
        ModelError
            If they differ: names the columns of both, ``what`` they are of and the ``rule``.
        """
        if (self.inputs, self.targets) == (other.inputs, other.targets) and same:
            return
        raise ModelError(
            f"{what} of {', '.join(self.targets)} by {', '.join(self.inputs)} and of "
            f"{', '.join(other.targets)} by {', '.join(other.inputs)} {rule}"
        )

    def _plus(self, other: Self, sign: int) -> Self:
        found = self.matched(other)
        names = (*self.sums, "n")
        return self._with({
            name: getattr(self, name) + sign * getattr(found, name) for name in names
        })  # fmt: skip

    def _with(self, fields: dict[str, Any]) -> Self:
        own: Any = self
        changed: Self = replace(own, **fields)
        return changed
