"""From a selection to rows that can be read: those of a fit, and later ones by its columns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.errors import ModelError
from rff_stream.execution import Reading
from rff_stream.families.level_intercepts import refuse_coded
from rff_stream.model.checked_values import (
    Target,
    check_values,
    is_in_memory,
    names_of,
    with_class_numbers,
)
from rff_stream.model.fitted import Fitted
from rff_stream.model.kept_rows import MOST_BYTES, KeptRows
from rff_stream.pilot import weighted_median
from rff_stream.sources import Columns, Selection, Source, kind_of, open_selection
from rff_stream.sources.arrays import target_names as unnamed_targets
from rff_stream.sources.columns import base_of
from rff_stream.sources.container_types import is_from, is_names, is_sparse
from rff_stream.sources.levels import column_of_level
from rff_stream.sources.missing import (
    FEWEST_MARKED,
    between_values,
    fill_alike,
    fill_missing,
    without_indicators,
)
from rff_stream.sources.protocol import Rows
from rff_stream.sources.variables import is_loaded


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Rows that can be read."""

    source: Source
    columns: Columns  # under the names that they were given by
    flat: bool = True  # the target is (n,), not (n, 1)
    feature_names: tuple[str, ...] = ()  # of a DataFrame
    class_labels: Array | None = None  # (C,): labels of rows in memory, which carry their numbers
    X: Any = None  # the rows as they were checked: (n, d) where they are an array in memory

    @property
    def in_memory(self) -> bool:
        """Whether they came as an array or a table in memory."""
        return is_in_memory(self.X)

    @property
    def are_loaded(self) -> bool:
        """Whether all values are in memory, of labelled data too: a hash of them tells rows."""
        return self.in_memory or (kind_of(self.X) == "labelled" and is_loaded(self.source))

    @property
    def inputs(self) -> Any:
        """Inputs (n, d) of rows in memory, sparse ones as they are; NaN where a row is missing."""
        array = kind_of(self.X) == "array" and self.X.dtype.kind not in "mM"  # times are read
        if array and not self.columns.fills:
            return self.X
        source = self.source
        found = np.full((source.shape[0], len(source.columns.inputs)), np.nan)
        for rows in self.slabs:
            stop = rows.start + (len(rows.x) if rows.keep is None else len(rows.keep))
            found[rows.start : stop][slice(None) if rows.keep is None else rows.keep] = rows.x
        return found

    @property
    def slabs(self) -> Iterator[Rows]:
        """All rows, some at a time."""
        source = self.source
        box = tuple((0, size) for size in source.shape)
        return source.reader.read(box, *source.arguments(box))

    @property
    def rows_to_keep(self) -> KeptRows | None:
        """The rows that count; None of rows that are not kept.

        They are not in memory, sparse, with missing inputs that are information, or too many.
        """
        source, columns = self.source, self.columns
        width = len(columns.inputs) + len(columns.targets) + 1
        if not self.in_memory or is_sparse(self.X) or columns.fills:
            return None
        if source.n_rows is None or 8 * width * source.n_rows > MOST_BYTES:
            return None
        slabs = list(self.slabs)
        if not slabs:
            return None
        x = np.concatenate([each.x for each in slabs])
        w = np.concatenate([np.ones(len(each.x)) if each.w is None else each.w for each in slabs])
        labels = [each.label for each in slabs if each.label is not None]
        y = np.concatenate(labels or [each.y for each in slabs])
        if self.class_labels is not None:
            y = self.class_labels[y.astype(np.int64)]
        return KeptRows(x, y, w)


def open_rows(params: Any, selection: Selection, target: Target) -> Opened:
    """The rows of a fit, from any container; refuses those without the target that is needed."""
    y = None if target == "none" else selection.y
    names = target_names(selection.X, y)
    if target == "none" and params.missing_rows == "indicate":
        raise ValueError(
            f"missing_rows='indicate' but {type(params).__name__} has no target that missing "
            "inputs could tell of. Use 'drop', or fill them before."
        )
    checked, labels = check_values(copy.copy(params), replace(selection, y=y), target)
    source = open_selection(under_rules(params, checked, target))
    if params.missing_rows == "indicate":
        source = filled_by_pilot(source)
    columns, units = source.columns, source.columns.units
    if target == "none":
        refuse_coded(columns.inputs, type(params).__name__)
    if target == "labels":
        columns = replace(columns, targets=names[:1] or ("y",), units=(*units, "") if units else ())
    elif names and is_in_memory(checked.X):
        columns = replace(columns, targets=names)
    weight = selection.sample_weight
    if not (isinstance(weight, str) or getattr(weight, "name", None)):
        columns = replace(columns, weight="")  # values beside X: later ones cannot be found
    own = names_of(selection.X) if kind_of(selection.X) == "table" else None
    text = own is not None and all(isinstance(name, str) for name in own)
    single = not is_names(checked.y) and getattr(checked.y, "ndim", 1) == 1
    return Opened(
        source,
        columns,
        target == "labels" or (single and len(columns.targets) <= 1),
        without_indicators(columns).inputs if text else (),  # as scikit-learn keeps them
        labels,
        checked.X,
    )


def open_later(
    params: Any, columns: Columns, selection: Selection, target: Target, *, scored: bool = False
) -> Opened:
    """Later rows with the columns of a fit, from any container.

    Without y they have the target of the fit, by its name. Labels are compared with the classes
    where they are ``scored``, and may be new where they are counted.

    Raises ModelError: when the names of inputs or targets are not those of the fit.
    """
    X, y, params = selection.X, selection.y, keep_missing_rule(params, columns)
    wanted = {"none": (), "labels": columns.targets[:1], "numbers": columns.targets}[target]
    if y is None and wanted and kind_of(X) != "array":
        y = wanted[0] if len(wanted) == 1 else list(wanted)
    named = isinstance(y, str) or (is_names(y) and kind_of(X) != "array")
    if wanted and (target == "labels" or not named):
        check_targets(wanted, target_names(X, y), named=True, scored=scored)
    check_inputs(without_indicators(columns).inputs, selection.inputs)
    selection = replace(selection, y=y if wanted else None, inputs=None)
    checked, labels = check_values(params, selection, target, later=True, scored=scored)
    known = replace(columns, weight="")
    source = open_selection(replace(under_rules(params, checked, target), columns=known))
    if columns.fills:
        source = fill_alike(source, columns)
    if target == "numbers":
        check_targets(wanted, source.columns.targets, named=named, scored=scored)
    return Opened(source, columns, class_labels=labels, X=checked.X)


def open_counted(params: Any, columns: Columns, selection: Selection, target: Target) -> Opened:
    """Rows that were counted, as arrays in the columns of a fit: their values were checked then."""
    labels = None
    if target == "labels":
        selection, labels = with_class_numbers(params, selection)
    known = replace(columns, weight="")
    source = open_selection(replace(under_rules(params, selection, target), columns=known))
    return Opened(source, columns, class_labels=labels, X=selection.X)


def values_of_input(model: Any, place: int, values: Any) -> Float64:
    """Values of one input alone (m,), of any shape: numbers, or times in the units of the fit.

    Raises DataError: values that this input cannot have.
    """
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64).ravel()
    import pandas

    columns = model.columns_
    name, unit = columns.inputs[place], columns.units[place : place + 1]
    own, alone = copy.copy(model), Columns((name,), units=unit)
    own.missing_rows = "drop"  # NaN where there is no value
    if isinstance(values, np.ndarray):
        values = array.ravel()
    opened = open_later(own, alone, Selection(pandas.DataFrame({name: values})), "none")
    return np.asarray(opened.inputs[:, 0])


def chosen_alike(fitted: Fitted, selection: Selection) -> Selection:
    """Later rows by the dimensions, conditions and weights of a fit."""
    weight, chosen = selection.sample_weight, fitted.selection
    if weight is None and fitted.columns.weight:
        weight = default_weight(fitted.columns.weight, selection.X)
    where = (*chosen.where, *selection.where)
    return replace(selection, sample_weight=weight, dim=chosen.dim, where=where)


def filled_by_pilot(source: Source) -> Source:
    """The source whose missing inputs are information, as far as the pilot's rows tell."""
    pilot = Reading(source, progress=False).pilot(0)
    absent = np.isnan(pilot.x)
    there = [(x[~gone], pilot.w[~gone]) for x, gone in zip(pilot.x.T, absent.T, strict=True)]
    marked = [bool(gone.sum() >= FEWEST_MARKED) for gone in absent.T]
    fills = [float(weighted_median(x, w)) if len(x) else 0.0 for x, w in there]
    for place, (x, _) in enumerate(there):
        if len(x) and not marked[place]:
            fills[place] = between_values(x, fills[place])
    found: Source = fill_missing(source, fills, marked)
    return found


def keep_missing_rule(params: Any, columns: Columns) -> Any:
    """The estimator's parameters; missing inputs are information where they were in the fit."""
    missing = params.missing_rows
    if columns.fills:
        missing = "indicate"
    elif missing == "indicate":
        missing = "error"
    if missing == params.missing_rows:
        return params
    own = copy.copy(params)
    own.missing_rows = missing
    return own


def under_rules(params: Any, selection: Selection, target: Target) -> Selection:
    """A selection with what the parameters of the estimator say of missing values."""
    return replace(
        selection,
        missing_rows=params.missing_rows,
        missing_chunks=params.missing_chunks,
        y_labels=target == "labels",
    )


def target_names(X: Any, y: Any) -> tuple[str, ...]:
    """Names that targets were given by, or bring; none for arrays.

    Texts beside an array are labels, and the name of a Dask array is a key of its graph.
    """
    if isinstance(y, str):
        return (y,)
    if is_from(y, "dask.array") or (is_names(y) and kind_of(X) == "array"):
        return ()
    own: Any = y if is_names(y) else names_of(y) or (getattr(y, "name", None),)
    return () if None in own or "" in own else tuple(str(name) for name in own)


def default_weight(name: str, X: Any) -> str | None:
    """The weight column of a fit, which weighs later rows, too.

    Raises ModelError: where X is an array, which has no such column.
    """
    if kind_of(X) != "array":
        return name
    if name == "sample_weight":  # earlier versions noted values beside X so
        return None
    raise ModelError(
        f"The rows of the fit have weights, {name!r}, but X is a {type(X).__name__} without "
        "names. Rows that are added are weighted alike: give their weights as sample_weight=."
    )


def check_inputs(wanted: tuple[str, ...], given: Any) -> None:
    """Inputs that are named again are those of the fit.

    Raises ModelError: naming the first that is not.
    """
    names = () if given is None else (given,) if isinstance(given, str) else tuple(map(str, given))
    stems = [(name, column_of_level(name), base_of(name)[0]) for name in wanted]
    other = [name for name in names if not any(name in known for known in stems)]
    absent = [known[0] for known in stems if names and not set(known) & set(names)]
    if other or absent:
        raise ModelError(
            f"The inputs of the data are {names}, but the model was fitted on {wanted}: "
            f"{(other or absent)[0]!r} is only in one of them. Later rows have the inputs of the "
            "fit: leave inputs= out."
        )


def check_targets(
    wanted: tuple[str, ...], given: tuple[str, ...], *, named: bool, scored: bool
) -> None:
    """Targets are those of the fit, in their order; without names, as many.

    ``scored`` ones may have other names, such as that of a measurement, but none may be another
    target of the fit.

    Raises ModelError: when they are others.
    """
    if given and len(given) != len(wanted):
        raise ModelError(
            f"y has {len(given)} targets, but the model was fitted on {len(wanted)} "
            f"({', '.join(wanted)}). Give those."
        )
    unnamed = unnamed_targets(len(wanted))
    if not given or wanted == unnamed or (given == unnamed and not named):
        return
    pairs = [(a, b) for a, b in zip(wanted, given, strict=True) if a != b]
    if any(b in wanted or not scored for _, b in pairs):
        raise ModelError(
            f"The targets of the data are {given}, but the model was fitted on {wanted}. "
            "Give the targets of the fit, in its order; values without names are taken by place."
        )
