"""Names in a selection -> columns of a row, for every container.

A container is a :class:`Container`: it looks names up and says which grid its samples lie on.
:func:`align` asks it for inputs, targets, weight and labels, and collects them in a
:class:`SourceBuilder`, which checks that they fit the grid and gives the source.

Columns of categories or text are in :mod:`rff_stream.sources.levels`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from rff_stream.arguments import is_several
from rff_stream.errors import DataError
from rff_stream.sources.container_types import KindError, is_names
from rff_stream.sources.levels import (
    EVERY,
    holds_levels,
    is_coded,
    is_text,
    level_names,
    levels_of,
    split_level,
)
from rff_stream.sources.named_variables import NamedVariable, Picks, column_names, extra_dims
from rff_stream.sources.protocol import Columns
from rff_stream.sources.request import HoldOut, InHoldOut, Selection, comparison
from rff_stream.sources.rows import (
    EPOCH,
    TIME_FIELDS,
    Accessor,
    Convert,
    Filler,
    Labels,
    NamedLabels,
    Role,
    Rules,
    VariableUse,
)
from rff_stream.sources.variables import Variable, VariablesReader, VariablesSource, Window, Wrap
from rff_stream.text_formatting import list_names, suggestion


def with_levels(found: NamedVariable) -> NamedVariable:
    """A column of categories or text as an input for each level it has, or one for many."""
    variable = found.variable
    known = found.field or found.levels or found.columns is not None
    if known:
        return found
    if not (holds_levels(variable) or is_text(variable)):
        if is_coded(found.name):
            raise DataError(
                f"The column {found.name!r} holds {variable.dtype} values, but a name that ends in "
                f"'={EVERY}' is that of a column of text or categories with all its levels. Rename "
                f"the column."
            )
        return found
    levels = levels_of(variable) or ("",)  # a column without values, too, is looked at
    return replace(found, columns=level_names(found.name, levels), levels=levels)


def as_in_the_fit(found: NamedVariable) -> NamedVariable:
    """A column by its name in the fit: levels have names of their own, so this one has numbers.

    Raises KindError: it holds categories or text.
    """
    variable = found.variable
    if not found.levels and not found.field and (holds_levels(variable) or is_text(variable)):
        raise KindError(
            f"{found.name!r} holds {variable.holds or 'text'}, but the model was fitted on numbers "
            f"or times. A column is of one kind in the fit and after it. Convert it to the type "
            f"that it had, such as with pandas.to_numeric or pandas.to_datetime."
        )
    return found


def gather_levels(several: Iterable[NamedVariable]) -> list[NamedVariable]:
    """Levels of one column that stand side by side as one: its text is looked at once."""
    gathered = []
    for _, run in groupby(several, key=_same_levels):
        first, *others = run
        if others:
            names = tuple(n for each in (first, *others) for n in (each.columns or (each.name,)))
            levels = tuple(x for each in (first, *others) for x in each.levels)
            first = replace(first, columns=names, levels=levels)
        gathered.append(first)
    return gathered


def _same_levels(found: NamedVariable) -> Any:
    """What levels of one column have in common; nothing with any other column."""
    single = not found.levels or found.levels == (EVERY,)
    return found if single else id(found.variable)


Find = Callable[[str], NamedVariable]
"""Looks a name up in a container; raises with suggestions."""


class Container(Protocol):
    """A container as names over a grid: what a new one has to say of itself."""

    def find(self, name: str) -> NamedVariable:
        """A column by its name, or a virtual name; raises with suggestions."""

    def targets(self, y: Any) -> list[NamedVariable] | None:
        """Targets by name, or values with a place of their own; None: they lie on the grid."""

    def column(self, role: str, values: Any) -> NamedVariable | None:
        """A weight or label by name, or with a place of its own; None: it lies on the grid."""

    def inputs(
        self, selection: Selection, targets: Sequence[NamedVariable], weight: NamedVariable | None
    ) -> list[NamedVariable]:
        """Inputs: those of the fit, those asked for, or all that have no other part."""

    def sizes(
        self,
        selection: Selection,
        inputs: Sequence[NamedVariable],
        targets: Sequence[NamedVariable],
    ) -> dict[str, int]:
        """Name and length of each sample dimension, in the order in which rows are counted."""

    def on_samples(self, role: str, values: Any, sizes: Mapping[str, int]) -> NamedVariable:
        """Values without names that have the shape of the grid."""


def align(container: Container, selection: Selection) -> SourceBuilder:
    """The columns that were asked for, over one grid.

    Raises DataError: names that are not there, lengths that differ, columns that hold no numbers.
    """
    y, by = selection.y, selection.by
    targets = [] if y is None else container.targets(y)
    named_in = {"sample_weight": selection.sample_weight, "by": None if is_names(by) else by}
    given = {role: each for role, each in named_in.items() if each is not None}
    others = {role: container.column(role, values) for role, values in given.items()}
    asked_for = container.inputs(selection, targets or [], others.get("sample_weight"))
    known = as_in_the_fit if selection.columns is not None else with_levels
    inputs = gather_levels(known(each) for each in asked_for)
    sizes = container.sizes(selection, inputs, targets or [])
    if targets is None:
        targets = [container.on_samples("y", y, sizes)]
    if selection.columns is not None:
        check_units(selection.columns, inputs, [] if selection.y_labels else targets)
    builder = SourceBuilder(sizes)
    for each in inputs:
        builder.numbers("input", each)
    builder.check_inputs()
    for each in targets:
        if selection.y_labels:
            builder.label(each)
        else:
            add_target(builder, each)
    for role, values in given.items():
        each = others[role] or container.on_samples(role, values, sizes)
        if role == "by":
            builder.label(each)
        else:
            builder.weights(each)
    builder.add_conditions_and_labels(selection, container.find)
    return builder


def check_units(
    fitted: Columns, inputs: Sequence[NamedVariable], targets: Sequence[NamedVariable]
) -> None:
    """The units and calendars are those of the fit, where both are known; times stay times.

    Raises DataError: naming the column and both units.
    """
    inputs_of = dict(zip(fitted.inputs, fitted.units, strict=False))
    targets_of = dict(zip(fitted.targets, fitted.units[len(fitted.inputs) :], strict=False))
    for known, found in ((inputs_of, inputs), (targets_of, targets)):
        for each in found:
            names = each.columns or (each.name,)
            for name, unit in known.items():
                if name in names or base_of(name)[0] == each.name:
                    check_unit(name, unit, each)


def check_unit(name: str, fitted: str, found: NamedVariable) -> None:
    """A column of this unit in the fit has it still.

    Arrays are taken by place, and their numbers are in the units of the fit.
    """
    rule = "A column is of one kind in the fit and after it."
    by_place = len(found.variable.dims) > 1 and found.columns is not None
    if found.units_of_time and not fitted:
        raise KindError(
            f"{name!r} holds times ({found.units}), but the model was fitted on numbers. {rule} "
            f"Give the numbers of the fit, such as a field of the time: {found.name}.dayofyear."
        )
    if fitted.startswith(EPOCH) and not found.units and not by_place:
        empty = found.variable.shape[0] == 0
        holds = "no values" if empty else found.variable.holds or "numbers without a unit"
        raise KindError(
            f"{name!r} holds {holds}, but the model was fitted on times ({fitted}). "
            f"{rule} Give times, or an array of numbers in these units."
        )
    if fitted and found.units and fitted != found.units:
        raise DataError(
            f"{name!r} is in {found.units!r}, but the model was fitted on {fitted!r}. Numbers mean "
            f"the same only in the same units and calendar. Convert it, or correct the attribute."
        )


class SourceBuilder:
    """Collects the columns of a row over a grid with these sample dimensions, in their order."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.dims = tuple(sizes)
        self.sizes = {dim: int(size) for dim, size in sizes.items()}
        self.variables: list[Variable] = []
        self.uses: list[tuple[VariableUse, Picks]] = []
        self.names: dict[str, list[str]] = {"input": [], "target": []}
        self.units: dict[str, list[str]] = {"input": [], "target": []}
        self.long_names: dict[str, str] = {}
        self.weight = ""
        self.holdouts: list[HoldOut] = []

    def numbers(self, role: Literal["input", "target"], found: NamedVariable) -> None:
        """Add inputs or targets: one column, or one per place of the extra dimensions."""
        names = column_names(found, self.dims)
        first = len(self.names[role])
        self.add(role, found, found.numbers(), slice(first, first + len(names)))
        self.names[role] += names
        self.units[role] += [found.units] * len(names)
        if found.long_name:
            own = found.variable.name
            ends = {name: name.removeprefix(own) for name in names if name.startswith(own)}
            self.long_names |= {name: found.long_name + end for name, end in ends.items()}

    def check_inputs(self) -> None:
        """Refuse two inputs of one name: later rows could find only one of them."""
        names = self.names["input"]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"Two inputs have the name {twice!r}: a column of this name, and a level or a part "
                f"of another column. Every input has a name of its own. Rename one column, or "
                f"leave it out with inputs=[…]."
            )

    def weights(self, found: NamedVariable) -> None:
        """Add the weight of each row."""
        self.weight = found.name
        self.add("weight", found, found.numbers())

    def label(self, found: NamedVariable) -> None:
        """Add the group label of each row."""
        self.add("label", found, Labels(found.accessor))

    def add_conditions_and_labels(self, selection: Selection, find: Find) -> None:
        """Add what was asked for by name: labels of several columns, conditions, hold-outs."""
        for name in selection.by if is_names(selection.by) else ():
            found = find(name)
            self.add("named label", found, NamedLabels(name, found.accessor))
        for condition in selection.where:
            if not isinstance(condition, HoldOut):
                self.compare(condition, find)
            elif condition.by is None:
                self.holdouts.append(condition)
            else:
                found = find(condition.by)
                self.add("condition", found, InHoldOut(condition, found.accessor))

    def compare(self, condition: Any, find: Find) -> None:
        """Add a comparison that rows must meet."""
        if not is_several(condition) or len(condition) != 3:
            raise DataError(
                f"where holds {condition!r}, but a condition is (name, op, value), such as "
                '("time", "<", 2015), or a HoldOut. Write it so.'
            )
        name, op, value = condition
        found = find(name)
        self.add("condition", found, comparison(name, op, value, found.accessor, found.dtype))

    def add(
        self, role: Role, found: NamedVariable, convert: Convert, at: slice | None = None
    ) -> None:
        """Add a use of a variable whose sizes fit the grid."""
        variable = found.variable
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            if self.sizes.get(dim, size) != size:
                other = ", or leave it out: inputs=[…]" if role == "input" else ""
                raise DataError(
                    f"{variable.name!r} has {size} {dim}, but the others have "
                    f"{self.sizes[dim]}. X, y and weights must be equally long along every "
                    f"sample dimension; select the rows that they share{other}."
                )
        picks = self.picks(found)
        if at is None and len(picks) != 1:
            extra = list_names(extra_dims(variable, self.dims))
            raise DataError(
                f"{found.name!r} is used as {role}, but has the dimensions {extra} besides the "
                f"sample dimensions {self.dims}. A {role} is one value a row; select one place "
                f"of them, or make them sample dimensions with dim=."
            )
        if not any(variable is other for other in self.variables):
            self.variables.append(variable)
        index = next(i for i, other in enumerate(self.variables) if other is variable)
        self.uses.append((VariableUse(index, role, convert, at), picks))

    def picks(self, found: NamedVariable) -> Picks:
        """Places of the extra dimensions, one tuple a column."""
        extra = extra_dims(found.variable, self.dims)
        if found.picks is None:
            return tuple(product(*(range(found.variable.size(dim)) for dim in extra)))
        if any(len(pick) != len(extra) for pick in found.picks):
            raise DataError(
                f"{found.name!r} names {len(found.picks[0])} of its dimensions, but "
                f"{len(extra)} are no sample dimensions ({list_names(extra) or 'none'}; rows are "
                f"counted along {list_names(self.dims)}). Name a place for each of them, or none."
            )
        return found.picks

    def windows(self) -> tuple[Window, ...]:
        """The part of every variable's extra dimensions that any of its uses needs."""
        found: list[Window] = []
        for index, variable in enumerate(self.variables):
            picks = [pick for use, own in self.uses if use.part == index for pick in own]
            along = zip(*picks, strict=True) if picks else ()
            ends = [(min(places), max(places) + 1) for places in along]
            extra = extra_dims(variable, self.dims)
            found.append(dict(zip(extra, ends or [(0, 0)] * len(extra), strict=True)))
        return tuple(found)

    def filler(self, windows: Sequence[Window]) -> Filler:
        """How rows are filled from the variables."""
        uses = [replace(use, pick=pick_in(picks, windows[use.part])) for use, picks in self.uses]
        return Filler(tuple(uses), len(self.names["input"]), len(self.names["target"]))

    def rules(self, selection: Selection) -> Rules:
        """Which rows count, under the names of the columns."""
        inputs, targets = (tuple(self.names[role]) for role in ("input", "target"))
        units = (*self.units["input"], *self.units["target"])
        long_names = tuple(self.long_names.items())
        columns = Columns(inputs, targets, units, self.weight, long_names=long_names)
        return Rules(columns, selection.missing_rows)

    def source(self, wrap: Wrap, selection: Selection) -> VariablesSource:
        """The source of everything that was added."""
        parts, shape = tuple(each.part() for each in self.variables), tuple(self.sizes.values())
        rules, windows, holdouts = self.rules(selection), self.windows(), tuple(self.holdouts)
        filler = self.filler(windows)
        reader = VariablesReader(self.dims, shape, parts, windows, filler, rules, holdouts)
        return VariablesSource(
            rules.columns, reader, self.variables, wrap, selection.missing_chunks
        )


def pick_in(picks: Picks, window: Window) -> tuple[int, ...] | None:
    """Which columns of a window these places are, in C order; None: all of them, in order."""
    shape = tuple(hi - lo for lo, hi in window.values())
    origin = np.array([lo for lo, _ in window.values()], np.intp)
    inside = np.array(picks, np.intp).reshape(len(picks), len(shape)) - origin
    flat = np.ravel_multi_index(tuple(inside.T), shape).tolist() if shape else [0] * len(picks)
    return None if flat == list(range(prod(shape))) else tuple(flat)


def base_of(name: str) -> tuple[str, dict[str, str]]:
    """ "u[level=500,member=3]" -> ("u", {"level": "500", "member": "3"})."""
    match = re.fullmatch(r"(.+)\[(.+)\]", name)
    if match is None or "=" not in match[2]:
        return name, {}
    pairs = (part.partition("=") for part in match[2].split(","))
    return match[1], {dim: value for dim, _, value in pairs}


def plain_names(names: Sequence[str]) -> bool:
    """Whether these are the names of an unnamed array: x0, x1, …."""
    return list(names) == [f"x{i}" for i in range(len(names))]


def virtual_column(
    name: str, names: Sequence[str], variable: Callable[[str], Variable]
) -> NamedVariable | None:
    """A field of a time, time.dayofyear, or a level of a column, sky=rain; None for neither."""
    level = split_level(name, names)  # first: beside "age" there may be a column "age.group"
    if level is not None:
        return NamedVariable(name, variable(level[0]), levels=(level[1],))
    stem, _, field = name.rpartition(".")
    if stem not in names:
        return None
    check_field(name, stem, field, variable(stem))
    return NamedVariable(name, variable(stem), field)


def check_field(name: str, stem: str, field: str, variable: Variable) -> None:
    """``time.field`` is a number; tried on one made-up time, not on the data."""
    if variable.dtype.kind != "M" and not variable.calendar:
        raise DataError(
            f"There is no {name!r}: {stem!r} has dtype {variable.dtype}, and only times have "
            f"fields. Name a variable, or a field of a time coordinate."
        )
    try:
        found = Accessor(field)(one_time(variable))
    except AttributeError:
        raise DataError(
            f"There is no {name!r}: times have no field {field!r}. {suggestion(field, TIME_FIELDS)}"
        ) from None
    if found.dtype.kind not in "biuf":
        raise KindError(
            f"{name!r} holds {found.dtype} values such as {found[0]!r}, but a column holds "
            f"numbers. {suggestion(field, TIME_FIELDS)}"
        )


def add_target(builder: SourceBuilder, target: NamedVariable) -> None:
    """A target of numbers; one of classes is refused with the estimator that takes it."""
    try:
        builder.numbers("target", target)
    except KindError as error:
        raise KindError(
            f"{str(error).partition('. ')[0]}, for a regression. If its values are classes, fit a "
            "KernelClassifier (rff-stream fit --classify logistic). Else encode it as numbers."
        ) from error


def one_time(variable: Variable) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """A made-up time of the variable's kind."""
    if not variable.calendar:
        return np.array(["2000-01-01"], dtype="datetime64[ns]")
    import cftime

    return np.array([cftime.datetime(2000, 1, 1, calendar=variable.calendar)])
