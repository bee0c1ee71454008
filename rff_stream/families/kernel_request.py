"""Which kernels are asked for, and what says their length-scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rff_stream._array import Array
from rff_stream.arguments import numbers_or
from rff_stream.kernels import Gaussian, as_kernel

AUTO = "auto"
"""What a parameter is if the data decide."""

LengthScale = float | str | Array

LENGTH_SCALE = numbers_or(
    AUTO, "median", "evidence", "ard",
    words="a number, one number per input, 'auto', 'median', 'evidence' or 'ard'",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class KernelRequest:
    """Kernels of which one is taken, and what says its length-scales."""

    named: tuple[Any, ...]
    """Where there are several, they compete."""
    length_scale: Any
    """Numbers in input units, or the rule that finds them: "auto", "median", "evidence", "ard"."""

    @classmethod
    def of(cls, kernel: Any, length_scale: LengthScale) -> KernelRequest:
        """From the parameters ``kernel=`` and ``length_scale=`` of an estimator."""
        several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
        if several and not kernel:
            raise ValueError(f"kernel={kernel!r} names no kernel. Give one, or leave it out.")
        return cls(tuple(map(as_kernel, kernel if several else [kernel])), length_scale)

    @property
    def known(self) -> Any:
        """The kernel with the length-scales that were given; None where they are to be found."""
        first, scale = self.named[0], self.length_scale
        if len(self.named) == 1 and getattr(first, "length_scale", None) is not None:
            return first
        if isinstance(scale, str):
            return None
        values = np.asarray(scale, np.float64)
        return first.with_length_scale(
            float(values) if values.ndim == 0 else tuple(values.tolist())
        )

    @property
    def rule(self) -> str | None:
        """The rule that finds length-scales; None where numbers are given."""
        return self.length_scale if isinstance(self.length_scale, str) else None

    @property
    def searched(self) -> bool:
        """Whether length-scales of highest evidence are asked for."""
        return self.rule in ("evidence", "ard")

    @property
    def free(self) -> bool:
        """Whether a search may take any length-scales, or a metric in their place."""
        return self.rule in (AUTO, "median")

    def check(self, d: int) -> None:
        """Refuse, before a row is read, what says no kernel of d inputs.

        Raises ValueError: naming the parameter.
        """
        if not self.searched and self.rule != AUTO:
            self.require(d)

    def require(self, d: int) -> None:
        """Refuse a request that no kernel of d inputs answers.

        Raises
        ------
        ValueError
            If both parameters say a length-scale, or neither a rule nor numbers for d inputs.
        """
        first, scale = self.named[0], self.length_scale
        if len(self.named) > 1 and not self.searched:
            raise ValueError(
                f"{len(self.named)} kernels can be compared only with length_scale='evidence' or "
                f"'ard', not {scale!r}. Give one of the two, or a single kernel."
            )
        if len(self.named) == 1 and first.length_scale is not None:
            if self.rule != "median":
                raise ValueError(
                    f"length_scale={scale!r} but the kernel {first!r} has a length-scale. "
                    "Give one of the two."
                )
            return
        if self.searched or self.rule == "median":
            return
        LENGTH_SCALE.check("length_scale", scale)
        _check_numbers(scale, d)


def has_frequencies(kernel: Any) -> bool:
    """Whether every kernel that is asked for is a function of x − x'."""
    automatic = isinstance(kernel, str) and kernel == AUTO
    return automatic or all(each.stationary for each in KernelRequest.of(kernel, AUTO).named)


def length_scale_asked(params: Any) -> Any:
    """``length_scale`` of an estimator, or what ``gamma`` says in its place.

    Raises
    ------
    ValueError
        If both are given, if there are several kernels, or one that has no gamma.
    """
    gamma, scale = getattr(params, "gamma", None), getattr(params, "length_scale", None)
    if gamma is None:
        return scale
    kernel = params.kernel
    if not (isinstance(scale, str) and scale in (AUTO, "median")):
        raise ValueError(
            f"gamma={gamma!r} and length_scale={scale!r} were both given, and both say the "
            "length-scale. Give one of the two."
        )
    if isinstance(kernel, Sequence) and not isinstance(kernel, str):
        raise ValueError(
            f"gamma={gamma!r} but {len(kernel)} kernels were given, and gamma is of one. Give one."
        )
    chosen = Gaussian() if isinstance(kernel, str) and kernel == AUTO else as_kernel(kernel)
    if chosen.length_scale is not None:
        raise ValueError(
            f"gamma={gamma!r} but the kernel {chosen!r} has a length-scale. Give one of the two."
        )
    return chosen.with_gamma(gamma).length_scale


def _check_numbers(length_scale: LengthScale, d: int) -> None:
    """One length-scale, or one per input."""
    values = np.asarray(length_scale, dtype=np.float64)
    if values.ndim > 1 or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(
            f"length_scale={length_scale!r} but length-scales must be finite and positive: "
            "one number, or one per input."
        )
    if values.ndim == 1 and len(values) != d:
        raise ValueError(
            f"length_scale has {len(values)} values but there are {d} inputs. "
            "Give one number, or one per input."
        )
