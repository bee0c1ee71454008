"""Regressors that can be looked at while they read, and stop when the error has settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rff_stream.estimators.growing import GrowingEstimator
from rff_stream.estimators.inputs import kept_on_error, lock_of
from rff_stream.estimators.looking import STEP, State, has_settled, states
from rff_stream.sources import Source

__all__ = ["RunningEstimator"]


class RunningEstimator(GrowingEstimator):
    """Adds ``stream`` and what ``fit(until=…)`` does; see :mod:`~.looking`."""

    history_: list[State]

    def stream(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        every: float = 0.1,
        **choices: Any,
    ) -> Iterator[State]:
        """Models of more and more rows, in a seeded random order of leaves.

        After each step this estimator is fitted on the rows so far: it may predict, be saved,
        or be left as it is by ending the loop.

        Parameters
        ----------
        X, y, sample_weight : as in fit
        every : float
            Share of the rows in a step; above 1, the factor by which the rows grow.
        **choices
            ``inputs``, ``dim``, ``where`` and ``storage_options``, as in fit.

        Yields
        ------
        State
            Rows, share read, and the error on held-out leaves with its standard error.
        """
        steps = self._steps(X, y, sample_weight, every, choices)
        while True:
            with lock_of(self):
                state = kept_on_error(self, lambda: next(steps, None))
            if state is None:
                return
            yield state

    def _steps(
        self, X: Any, y: Any, sample_weight: Any, every: float, choices: Mapping[str, Any]
    ) -> Iterator[State]:
        """The states of a stream; this estimator may be half-way to the next one."""
        yield from states(self, self._begun(X, y, sample_weight, **choices), every)

    def _settle(self, source: Source, until: float, checkpoint: Any) -> None:
        """Fit on more and more leaves until the error stands still."""
        if not 0 < until < 1 or checkpoint is not None or self._selection["by"] is not None:
            raise ValueError(
                f"until={until!r} is a share of the error in (0, 1), and goes without checkpoint "
                "and by: a fit that stops early is short. Use 0.01."
            )
        self.history_ = []
        for state in states(self, source, STEP):
            self.history_.append(state)
            if has_settled(self.history_, until):
                break

    def _begun(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        inputs: Sequence[str] | None = None,
        dim: str | Sequence[str] | None = None,
        where: Sequence[Any] = (),
        by: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Source:
        """The rows to fit; sets what is known of them before they are read."""
        raise NotImplementedError
