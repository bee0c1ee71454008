"""The base class of every estimator: it holds a fit and replaces it by the next one."""

# Annotations are types here, not texts: the __init__ of a subclass has these fields, and its
# module need not know their names.
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from rff_stream import __version__
from rff_stream._array import Array
from rff_stream.answers.drift_alarm import Look
from rff_stream.arguments import number, whole
from rff_stream.errors import ModelError
from rff_stream.execution import Reading
from rff_stream.families.parameters import FeatureChoice
from rff_stream.features import FeatureMap
from rff_stream.model.batches import WINDOW, BatchFacts, drift_of, facts_of_batches
from rff_stream.model.facts import chosen_on, fewer_cells, model_card
from rff_stream.model.fit import fit_moments
from rff_stream.model.fitted import Fitted
from rff_stream.model.persistence import keep_answer, parameters_in, read_unsolved, restore, save
from rff_stream.model.recipe import Recipe
from rff_stream.model.update import LaterRows, Update, forget, ingest, partial_fit, update
from rff_stream.moments import Moments
from rff_stream.planning import Plan
from rff_stream.sources import Columns, Selection, Source
from rff_stream.sources.data_files import steady_files
from rff_stream.store import ModelPlace, MomentStore, StoredModel, keep_sums, load_model
from rff_stream.store.batch_reading import ChosenGroups, Weights, Where

LOCKS: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
"""A lock for each estimator. It is not an attribute, so it is neither copied nor pickled."""

ALL_LOCKS = threading.Lock()

SECONDS = number("0 or more seconds between two looks", lambda seconds: bool(0 <= seconds < np.inf))

CONTAINERS = ("default", "pandas", "polars")
"""What ``set_output`` can ask for."""


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Parameters, and at most one fit, which a method replaces only at its end.

    So a call that is refused or interrupted changes nothing. Several threads may change one
    estimator: each waits for the one before. A subclass is a dataclass of its own parameters, in
    addition to those that all estimators share, and defines :meth:`_recipe`.
    """

    _: KW_ONLY
    features: FeatureChoice = "whole"
    missing_rows: Literal["error", "drop", "indicate"] = "error"
    missing_chunks: Literal["auto", "error", "fill"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    sample_rows: int = 2000
    memory: int | None = None
    progress: bool = True
    random_state: Any = None

    features_: FeatureMap = field(init=False)
    moments_: Moments = field(init=False)
    columns_: Columns = field(init=False)
    n_features_in_: int = field(init=False)
    n_rows_: int = field(init=False)
    n_missing_: int = field(init=False)
    fraction_seen_: float = field(init=False)
    plan_: Plan = field(init=False)

    warns_extrapolation: ClassVar[bool] = False
    """Whether a prediction warns of rows outside the range of the fit."""

    _fitted: ClassVar[Fitted | None] = None

    _drawn_by: ClassVar[Mapping[str, Any] | None] = None
    """The parameters that the map of the fit was made by, as they were then."""

    @abstractmethod
    def _recipe(self) -> Recipe:
        """How this estimator reads and answers, with its present parameters."""

    def update(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch: str | None = None,
        by: str | None = None,
        replace: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add the rows that are new since the last fit or update, exactly once, and solve again.

        From growing data (a Zarr store, or xarray opened without chunks) only the new rows are
        read. The rows that were counted before must not have changed, nor what gives them their
        meaning: attributes such as scale_factor, coordinates, labels. Rows whose chunks are not
        written yet are left for the next update. A model that was loaded from a store commits
        to it, once, and includes what others committed. Any other model changes only in memory.

        If X is a file, a folder or a pattern ("days/", "days/*.parquet") of Parquet, Arrow, CSV or
        NetCDF files, every file is a batch under its name and the sha256 of its content. Files that
        were counted are not read again; the same content under another name is known, too. A file
        that is not complete is left for the next update.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            By default the names of the fit. Inputs, conditions and dimensions are those of the fit,
            whatever container the rows come in. Arrays are taken by place under its names.
        batch : str, optional
            Count all rows of X under this name. If the same rows come again, they are not
            counted; other rows under a known name are refused. Rows in memory need no name: those
            of a table or arrays that a fit, ``update`` or ``partial_fit`` got all together are
            known by a hash of what counts of them, in any order, under any name. Labelled data in
            memory are known by one, too; give their new rows alone, under a name. Two names that
            you give are two batches, even of equal rows. Other rows of a fit are known by their
            files, by the keys of their graph, or by their place along the first dimension: a cube
            that comes again as a table is counted again.
        by : str, optional
            Name of a column of labels: every label is a batch, and batches that are known are not
            counted again. 1 and 1.0 are one label. Reads X twice. A label that the fit met with
            ``by`` is refused where nothing tells whether its rows are those of the fit.

            The growing data of the fit need neither ``batch`` nor ``by``: their rows are known
            by their position, and only new rows are counted.
        replace : bool
            Count a file that has changed in place of what it was. By default it is refused.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If rows that were counted have changed, or units are not those of the fit; the error
            names them. Nothing is counted.
        ModelError
            If the columns are not those of the fit, if the batch has other content than before,
            if the model was saved without moments, or if a parameter that its map was made by
            has been set to something else.

        Warns
        -----
        NumericalWarning
            If nearly all sampled rows stand at their old places again, or most of the new rows have
            the inputs and targets of sampled ones, and so count twice.

        Notes
        -----
        The result equals a fit of all rows with the same map and origins, up to rounding. Where the
        data decided on the map of few rows in memory, it is chosen again, as by ``partial_fit``.
        ``refine`` and exact thresholds need the old rows and are not repeated.
        """
        data = Selection(X, y, sample_weight, storage_options=storage_options)
        later = LaterRows(data, batch, by, replace)
        with self._lock():
            self._check_map()
            return self._set_fit(update(self._recipe(), self._require_fit(), later), same_map=True)

    def watch(
        self,
        X: str | PathLike[str],
        *,
        every: float = 10.0,
        looks: int | None = None,
        replace: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[str, ...]]:
        """Count the files of a folder as they appear, one commit each.

        A file is counted when it is complete and did not change between two looks. Stop the loop
        whenever you like: what was counted stays, and a later one goes on from there.

        Parameters
        ----------
        X : path, pattern or URL
            As in :meth:`update`.
        every : float
            Seconds between two looks.
        looks : int, optional
            Number of looks; by default without end.
        replace : bool
            Count a file that has changed in place of what it was. By default it is refused.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.

        Yields
        ------
        tuple of str
            Names of the files that were counted since the last time.

        Raises
        ------
        ValueError
            If ``every`` is negative.
        DataError, ModelError
            As in :meth:`update`, or if nothing of a known format can ever match X.
        """
        SECONDS.check("every", every)
        whole(0, optional=True).check("looks", looks)
        seen: set[tuple[str, str]] = set()
        for files in islice(steady_files(X, storage_options, every), looks):
            new = [file for file in files if (file.name, file.stamp) not in seen]
            if not new:
                continue
            before = self._require_fit().ledger.files.keys()
            self.update(new, replace=replace, storage_options=storage_options)
            seen |= {(file.name, file.stamp) for file in new}
            counted = self._require_fit().ledger.files
            if names := tuple(counted[id]["name"] for id in sorted(counted.keys() - before)):
                yield names

    def forget(self, *batches: str) -> Self:
        """Take out batches, and solve again: the model of rows that never had them.

        A model that was loaded from a store commits this to it, once for each batch. The names of
        files, and rows, are still known: the same content is not counted again. Another content
        under the name of a file is.

        Parameters
        ----------
        *batches : str
            The name of a file, the name given with ``batch=``, or the id that
            ``MomentStore.ids()`` gives.

        Returns
        -------
        self

        Raises
        ------
        ModelError
            If a name is not that of one batch, or it was forgotten or compacted before. Nothing
            is forgotten then.
        """
        with self._lock():
            return self._set_fit(
                forget(self._recipe(), self._require_fit(), batches), same_map=True
            )

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, batch: str | None = None
    ) -> Self:
        """Add one more batch of rows; the first batches make the map, unless you gave one.

        Where the data decide on the map (``features="auto"``), it is chosen again each time that
        the rows are twice as many, for batches in memory and as long as all rows so far take less
        than 64 MiB: the rows are kept until then, but not by ``save``. A map of larger first
        batches, or one that you gave, stays.

        Parameters
        ----------
        X, y, sample_weight : as in fit
            The first batch determines length-scales, origins and (for densities) the bandwidth,
            so its rows should be like those of later batches.
        batch : str, optional
            Name of the batch. A batch whose name was counted is not counted again. Without a
            name every call counts.

        Returns
        -------
        self
            Unchanged if the batch is refused.

        Raises
        ------
        DataError, ValueError
            If columns are not those of the first batch, or a value is missing or infinite.
        ModelError
            If a batch of this name has other content, or the model was saved without moments.
        """
        with self._lock():
            data = Selection(X, y, sample_weight)
            same_map = self._check_map()
            found = partial_fit(self._recipe(), self._fitted, data, batch)
            return self._set_fit(found, same_map=same_map)

    def drift(self, X: Any = None, *, alarm: float = 0.01, window: int = WINDOW) -> Look:
        """Compare a batch with those that were counted before it.

        Its sampled rows give mean and spread of each input, of the predictions and of the
        residuals, and the share of rows that count. Each is compared with that of earlier batches,
        so days may differ from each other. Batches that are kept apart are needed: those of the
        files of a fit, or of a stored model.

        Parameters
        ----------
        X : str, path or container of rows, optional
            The name of a batch or of a counted file, from whose sums the answer comes: nothing is
            read. Other rows are read, but not counted. By default the newest batch.
        alarm : float
            Largest probability of a false alarm in all looks together, at the batches that come
            after the fit, one look each. The first hundred share a half of it.
        window : int
            Number of batches before it that it is compared with.

        Returns
        -------
        Look
            With ``alarm``, ``p_value``, ``level``, and in ``moved`` what is unlike before.

        Raises
        ------
        NotFittedError
            Before a fit.
        ModelError
            If no batches are kept apart, or X names none of them.
        ValueError
            If ``alarm`` is no probability, or ``window`` is below 1.

        Notes
        -----
        Valid if the numbers of normal days are exchangeable, with tails no heavier than those of
        a t distribution with 8 degrees of freedom. Changes with the season are drift, too.
        """
        return drift_of(
            self._recipe(), self._require_fit(), Selection(X), alpha=alarm, window=window
        )

    def batches(self, *, alarm: float = 0.01) -> list[BatchFacts]:
        """The batches that are kept apart: rows, time, residuals, and how each differs from others.

        Parameters
        ----------
        alarm : float
            Largest probability that any normal batch is called unlike the others.

        Returns
        -------
        list of BatchFacts
            In the order in which they were counted.

        Raises
        ------
        NotFittedError
            Before a fit.
        ValueError
            If ``alarm`` is no probability.
        """
        return facts_of_batches(self._recipe(), self._require_fit(), alarm)

    def fit_moments(
        self, features: Any, moments: Moments | Mapping[Any, Moments], *, flat: bool = True
    ) -> Self:
        """Fit from moments that were collected before: no data are read.

        Parameters
        ----------
        features : FeatureMap
            The map they were collected with.
        moments : Moments, or mapping of label to Moments
            From one store or one pass, such as ``store.total(groups=…)``. Groups are used as folds.
        flat : bool
            Predictions of a single target have shape (n,), not (n, 1).

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If ``moments`` are neither moments nor a mapping of them.
        ModelError
            If they are of another map, or of order 1 where the answer needs ZᵀZ.
        """
        with self._lock():
            return self._set_fit(fit_moments(self._recipe(), features, moments, flat))

    def save(
        self,
        path: str | PathLike[str],
        *,
        moments: bool = False,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model as a Zarr v3 group: data with checksums, no pickle.

        Parameters
        ----------
        path : str or path
        moments : bool
            Save the moments, too: then alpha and R can be changed without a read, and rows added.
        overwrite : bool
            Replace a model at this path. The old one is kept until the new one is complete.
        storage_options : mapping, optional
            For URLs, as fsspec takes them.

        Raises
        ------
        NotFittedError
            Before a fit.
        ModelError
            If something is at the path that is not to be replaced. It stays as it was.
        """
        save(
            self._recipe(),
            self._require_fit(),
            path,
            moments=moments,
            overwrite=overwrite,
            storage_options=storage_options,
        )

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Any:
        """Choose the container of values for rows in memory: NumPy (the default), pandas or polars.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            None leaves it as it is.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such container.
        """
        if transform not in (None, *CONTAINERS):
            raise ValueError(
                f"transform={transform!r} but values have a container of "
                f"{', '.join(map(repr, CONTAINERS))}. Give one of them, or None to leave it."
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        own = str(super().__repr__(N_CHAR_MAX))
        most = np.max(getattr(self, "df_", np.nan))
        if np.isnan(most):
            return own
        if hasattr(self, "choice_"):
            words = str(getattr(self.choice_, "words", self.choice_))
        elif not hasattr(self, "coef_"):
            words = repr(self.features_)
        else:
            words = f"df/R = {most:.0f}/{self.features_.n_components}"
        return f"{own}  # {words}{chosen_on(self)}{fewer_cells(self)}"

    def _repr_html_(self) -> str:
        return model_card(self).html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing_rows != "error"
        tags.input_tags.sparse = True
        return tags

    def _require_fit(self) -> Fitted:
        """The fit; refuses an estimator without one."""
        if self._fitted is None:  # check_is_fitted is silent of a process, which has a prior
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        return self._fitted

    def _set_fit(self, fitted: Fitted, *, same_map: bool = False) -> Self:
        """Take a fit in place of the one before: the only place that changes it."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        drawn_by = self._drawn_by if same_map else self._map_parameters()
        own = {"_fitted": fitted, "_drawn_by": drawn_by}
        self.__dict__ = {**kept, **_attributes(fitted, self._recipe()), **own}
        return self

    def _map_parameters(self) -> dict[str, Any]:
        """The parameters that a map is made by, as they are now."""
        given = self.get_params(deep=False)
        names = MAP_PARAMETERS.intersection(given)
        if "n_map_components" in given:
            names -= {"n_components"}  # of the answer
        return {name: given[name] for name in sorted(names)}

    def _check_map(self) -> bool:
        """Whether there is a map that later rows are added to.

        Raises ModelError: a parameter that it was made by has been set to something else.
        """
        was = self._drawn_by or {}
        for name, value in self._map_parameters().items():
            if name in was and not (value is was[name] or np.array_equal(value, was[name])):
                raise ModelError(
                    f"{name}={value!r}, but the map of this model was made by {name}="
                    f"{was[name]!r}. Later rows are added to the map as it is. Fit again, or set "
                    f"{name} back with set_params."
                )
        return self._fitted is not None

    def _lock(self) -> threading.RLock:
        """Held while the fit is changed."""
        with ALL_LOCKS:
            return LOCKS.setdefault(self, threading.RLock())


MAP_PARAMETERS = frozenset(
    (
        "bandwidth", "dtype", "features", "gamma", "kernel", "length_scale", "metric",
        "n_components", "n_map_components",
    )
)  # fmt: skip
"""Names of parameters that a map is made by, of any estimator."""


def _attributes(fitted: Fitted, recipe: Recipe) -> dict[str, Any]:
    """The public attributes of a fit, by name."""
    names: Sequence[str] = fitted.feature_names
    found: dict[str, Any] = {
        "features_": fitted.features,
        "columns_": fitted.columns,
        "n_features_in_": fitted.n_inputs - len(fitted.columns.indicated),
        "n_rows_": fitted.n_rows,
        "n_missing_": fitted.n_missing,
        "feature_names_in_": np.array(names, dtype=object) if names else None,
        "moments_": None if fitted.total is None else recipe.packed({None: fitted.total})[None],
        "fraction_seen_": fitted.fraction,
        "plan_": fitted.plan,
        "history_": list(fitted.history) or None,
    }
    if fitted.answer is not None:
        found |= recipe.attributes(fitted)
    return {name: value for name, value in found.items() if value is not None}


def load(
    path: str | os.PathLike[str],
    *,
    where: Where | None = None,
    groups: ChosenGroups | None = None,
    weights: Weights | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Load the model at a path and verify every byte of it.

    Parameters
    ----------
    path : path or URL
    where, groups, weights : optional
        Use only some of the batches and groups that the store keeps, or weights, as in
        :meth:`rff_stream.MomentStore.total`: for a window, a region or exponential forgetting.
        No data are read.
    storage_options : mapping, optional
        For URLs, as fsspec takes them.

    Returns
    -------
    estimator
        The model as it was saved, without ``plan_``, and with ``moments_`` if they were saved.
        ``update`` then commits to this store, unless batches, groups or weights were chosen.

    Raises
    ------
    ModelError
        If there is no model, if it has a newer format, or if a file is missing, extra or changed.

    Examples
    --------
    >>> import tempfile, numpy as np, rff_stream as rs
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = rs.KernelRidge(n_components=32, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.zarr")
    ...     again = rs.load(f"{folder}/model.zarr")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    chosen = not (where is None and groups is None and weights is None)
    if chosen:
        store = MomentStore.open(path, storage_options=storage_options)
        found = store.groups(where, groups=groups, weights=weights)
        stored = StoredModel(store.header, store.arrays, {}, found)
    else:
        stored = load_model(path, storage_options=storage_options)
    try:
        model = estimator_in(stored.header, stored.arrays)
        return model._set_fit(restore(model._recipe(), stored, chosen=chosen))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} holds a model that this version ({__version__}) cannot build: {error!r}. "
            "It was written by another version or another program; upgrade rff_stream."
        ) from error


def estimator_in(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Estimator:
    """The estimator that a store names, with its parameters and not fitted yet."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in Estimator.__subclasses__()}
    kind = kinds[header["model"]]
    made: Estimator = kind(**parameters_in(header, arrays))
    return made


def plan_of(model: Estimator, source: Source, processes: tuple[int, int] | None = None) -> Plan:
    """The plan of a fit of these rows; refuses parameters that the fit would refuse."""
    recipe = model._recipe()
    recipe.check()
    parameters = recipe.checked_parameters(source.columns)
    reading = Reading(source, processes=processes)
    reading.count_partitions()
    return recipe.plan(reading, source.columns, parameters)


def count_in_store(
    path: str,
    later: LaterRows,
    *,
    memory: int | None = None,
    missing_chunks: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Update, MomentStore]:
    """Count what is new in the model at a path, which is not solved for it."""
    store = MomentStore.open(path, storage_options=storage_options)
    if "model" not in store.header:
        raise ModelError(
            f"{path} is a store of moments and no model: it has no map. Append to it with "
            "MomentStore.append, or fit a model with rff-stream fit --model."
        )
    model = estimator_in(store.header, store.arrays)
    given = {"memory": memory, "missing_chunks": missing_chunks}
    model.set_params(**{name: each for name, each in given.items() if each is not None})
    fitted = read_unsolved(store.header, store.arrays)
    return ingest(model._recipe(), fitted, store, later), store


def keep_answer_in_store(
    path: str, *, memory: int | None = None, storage_options: Mapping[str, Any] | None = None
) -> Fitted:
    """Solve the model at a path for the batches that it holds now, and keep the answer there."""
    while True:
        store = MomentStore.open(path, storage_options=storage_options)
        keep_sums(ModelPlace.of(store.log, path, storage_options), store)
        before = store.batches()
        model = load(path, storage_options=storage_options)
        if memory is not None:
            model.set_params(memory=memory)
        if store.batches() == before:
            fitted: Fitted = model._require_fit()
            keep_answer(model._recipe(), fitted, store, before)
            return fitted
