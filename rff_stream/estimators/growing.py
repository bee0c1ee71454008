"""Models that live: rows that come later are counted once and answered from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import ModelError
from rff_stream.estimators.inputs import checked_batch, in_memory, unchanged_on_error
from rff_stream.estimators.ledger import Ledger, content_of_arrays
from rff_stream.estimators.mapping import FeatureChoice, chosen_map
from rff_stream.estimators.streaming import StreamedEstimator
from rff_stream.execution import Reading
from rff_stream.execution.blas_threads import few_features_blas
from rff_stream.features import FeatureMap
from rff_stream.moments import AugmentedRow, Moments, total
from rff_stream.planning import Plan
from rff_stream.sources import Source, open_source
from rff_stream.sources.growth import can_grow, record_of

if TYPE_CHECKING:
    from rff_stream.store import Checkpoint, Home, MomentStore

__all__ = ["GrowingEstimator"]


class GrowingEstimator(StreamedEstimator):
    """What is fitted can be updated: it keeps the moments, the map and what was counted.

    A subclass reads by ``_plan(reading)`` and ``_groups_of(reading, row)``, answers by
    ``_solve(groups)``, and says by ``_state()`` / ``_take_state(arrays)`` what solving again
    needs besides the moments.
    """

    _ledger: Ledger = Ledger()
    _home: Home | None = None
    _answer_name: str = ""
    _groups: Mapping[Any, Moments] | None = None
    _selection: Mapping[str, Any] = {}
    _pass: str = ""
    fraction_seen_: float
    features: FeatureChoice

    @property
    def _chosen(self) -> FeatureMap | str:
        """``features``, where columns that choose their own are one map of the inputs."""
        return chosen_map(self.features, self.columns_.inputs)

    @unchanged_on_error
    def update(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch: str | None = None,
        by: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Count the rows that came since, exactly once, and answer from all.

        Growing data (a Zarr store, or xarray opened without chunks) are read from the row on
        that was not there before. What was counted must be as it was; rows whose chunks are
        not written yet wait for the next update. A model that was loaded from a store commits
        to it, once, and takes what others committed; any other model changes in memory only.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            Names of the fit by default; inputs, conditions and dimensions are those of the fit.
        batch : str, optional
            Count all rows of X under this name. The same rows again are nothing new; other
            rows under a known name are refused. Default for rows in memory: a hash of them.
        by : str, optional
            Label of each row: every label is a batch, and those that are known are not
            counted again. Reads X twice.

            The growing data of the fit need neither: their rows are known by their place, and
            only those that came since are counted, with or without a name or labels.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.

        Returns
        -------
        self

        Raises
        ------
        DataError
            When rows that were counted have changed: it names them. Nothing is counted.
        ModelError
            When the columns are not those of the fit, the batch has other content, or the
            model was saved without moments.

        Notes
        -----
        Equal to a fit of all rows with the same map and origins, to rounding. ``refine`` and
        exact thresholds need the old rows and are not repeated.
        """
        from rff_stream.estimators.updating import updated

        updated(self, X, y, sample_weight, batch=batch, by=by, storage_options=storage_options)
        return self

    @unchanged_on_error
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, batch: str | None = None
    ) -> Self:
        """Count one more batch of rows; the first one makes the map, unless one was given.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            The first batch should look like those to come: length-scales, origins and (for
            densities) the bandwidth are its own.
        batch : str, optional
            Its name: a batch that was counted is not counted again, whoever replays it.
            Without a name every call counts.

        Returns
        -------
        self
            Unchanged where the batch is refused.
        """
        from rff_stream.estimators.updating import counted

        if hasattr(self, "features_"):
            counted(self, X, y, sample_weight, batch)
            return self
        self.fit(X, y, sample_weight)
        content = content_of_arrays(*rows_of_batch(X, y, sample_weight)) if batch else ""
        self._ledger = Ledger(batches={batch: content}) if batch else Ledger()
        return self

    @unchanged_on_error
    def fit_moments(
        self, features: Any, moments: Moments | Mapping[Any, Moments], *, flat: bool = True
    ) -> Self:
        """A fitted model from moments that were collected: nothing is read.

        Parameters
        ----------
        features : FeatureMap
            The map they were collected with.
        moments : Moments, or mapping of label to Moments
            Of one store or one pass: ``store.total(groups=…)``. Groups serve as folds.
        flat : bool
            A single target predicts (n,) in place of (n, 1).

        Returns
        -------
        self
        """
        from rff_stream.sources import Columns

        groups = moments if isinstance(moments, Mapping) else {None: moments}
        row = next(iter(groups.values())).row
        if row.map_fingerprint != features.fingerprint:
            raise ModelError(
                f"The moments are of the map {row.map_fingerprint[:12]}…, but the one given is "
                f"{features.fingerprint[:12]}…. Give the map that they were collected with."
            )
        self.features_ = features
        self.columns_ = Columns(row.inputs, row.targets, row.units)
        self.n_features_in_, self.n_missing_ = len(row.inputs), 0
        self._flat = flat and row.n_targets <= 1
        self._take_state({"length_scale": length_scale_in(features)})
        self._forget_history()
        self._adopt(groups)
        return self

    def _forget_history(self) -> None:
        """As before any rows were counted."""
        for name in ("_ledger", "_home", "_answer_name", "_groups", "_selection", "_pass"):
            self.__dict__.pop(name, None)

    def _adopt(self, groups: Mapping[Any, Moments]) -> None:
        """Answer from these moments."""
        if not any(moments.n for moments in groups.values()):
            raise ModelError(
                "0 rows are left to answer from: the batches and groups that were chosen hold "
                "none. Choose others."
            )
        self.moments_ = total(groups.values())
        self.n_rows_ = self.moments_.n
        self._groups = dict(groups) if len(groups) > 1 else None
        with few_features_blas(self.features_.n_components):
            self._solve(groups)

    def _recorded(self, source: Source) -> Ledger:
        """What a fit of a source counts."""
        if not can_grow(source):
            return Ledger()
        size = source.shape[0]
        return Ledger((record_of(source, source.dims[0], 0, size),)) if size else Ledger()

    def _grouped(self) -> Mapping[Any, Moments]:
        """Moments by group, as they are kept."""
        return self._groups or {None: self.moments_}

    def _store(self) -> MomentStore | None:
        """The store that this model was loaded from, as it is now; refuses another one."""
        return None if self._home is None else self._home.open()

    def _opened(
        self, X: Any, y: Any, sample_weight: Any, storage_options: Any, **choices: Any
    ) -> Source:
        """The rows of X by the columns and conditions of the fit."""
        columns, chosen = self.columns_, self._selection
        names = list(columns.targets)
        if y is None and names:
            y = names[0] if len(names) == 1 else names
        if sample_weight is None and columns.weight:
            sample_weight = columns.weight
        where = [*chosen.get("where", ()), *choices.pop("where", ())]
        source = open_source(
            X,
            y,
            sample_weight,
            inputs=list(columns.inputs),
            dim=chosen.get("dim"),
            where=where,
            missing_rows=self.missing_rows,
            missing_chunks=self.missing_chunks,
            storage_options=storage_options,
            **choices,
        )
        self._check_columns(source)
        return source

    def _of_arrays(self, X: Any, y: Any, sample_weight: Any) -> Source:
        """Rows in memory, checked against the fit."""
        targets = self.columns_.targets
        X, y, weight = checked_batch(self, X, y, sample_weight, bool(targets), self.missing_rows)
        found = 0 if y is None else int(np.prod(y.shape[1:]))
        if found != len(targets):
            raise ModelError(
                f"y has {found} targets, but the model was fitted on {len(targets)} "
                f"({', '.join(targets)}). Give those."
            )
        choices: Any = {"missing_rows": self.missing_rows, "missing_chunks": self.missing_chunks}
        return open_source(X, y, weight, **choices)

    @property
    def _labels_by(self) -> Any:
        """Name(s) of the labels of the fit; None where it had none, or an array."""
        by = self._selection.get("by")
        named = isinstance(by, str) or (
            isinstance(by, list | tuple) and all(isinstance(name, str) for name in by)
        )
        return by if named else None

    def _merged(self, groups: Mapping[Any, Moments]) -> dict[Any, Moments]:
        """Moments by group with those of one more batch."""
        found = dict(self._grouped())
        for label, moments in groups.items():
            found[label] = found[label] + moments if label in found else moments
        return found

    def _check_columns(self, source: Source) -> None:
        """Refuse other names or units than those of the fit."""
        found, wanted = source.columns, self.columns_
        for what, a, b in (
            ("inputs", wanted.inputs, found.inputs),
            ("targets", wanted.targets, found.targets),
            ("units", wanted.units, found.units),
        ):
            if a != b and not (what == "units" and not any((*a, *b))):
                raise ModelError(
                    f"The {what} of the data are {b}, but the model was fitted on {a}. "
                    "Give data with the names and units of the fit."
                )

    def _plan(self, reading: Reading, features: FeatureMap | None = None) -> Plan:
        """The plan of a pass: of the map to come, or of one that is drawn."""
        raise NotImplementedError

    def _mapped(self, reading: Reading) -> AugmentedRow:
        """The map, drawn from the pilot, and what a row of it means."""
        raise NotImplementedError

    def _groups_of(
        self,
        reading: Reading,
        row: AugmentedRow,
        plan: Plan,
        *,
        grouped: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[dict[Any, Moments], int]:
        """Moments of all rows of a source by group, and how many were looked at."""
        raise NotImplementedError

    def _state(self) -> dict[str, Array]:
        """What solving again needs besides map and moments, as named arrays."""
        return {"length_scale": np.asarray(getattr(self, "length_scale_", 1.0), np.float64)}

    def _take_state(self, arrays: Mapping[str, Array]) -> None:
        """The attributes that ``_state`` said."""
        if "length_scale" in arrays:
            scale = np.asarray(arrays["length_scale"])
            self.length_scale_ = float(scale) if scale.ndim == 0 else scale


def rows_of_batch(X: Any, y: Any, weight: Any) -> tuple[Array | None, ...]:
    """Rows in memory as arrays, for their hash."""
    if not in_memory(X):
        raise ModelError(
            f"A batch by name needs rows in memory, but X is a {type(X).__name__}. Use update()."
        )
    return tuple(None if each is None else np.asarray(each) for each in (X, y, weight))


def length_scale_in(features: Any) -> Array:
    """The length-scale that a map was drawn with; 1 where it does not say."""
    return np.asarray(getattr(features, "scale", 1.0), np.float64)
