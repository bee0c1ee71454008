"""Any statistic by group, class or fold, and with weights of classes: rows are split here alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.contracts import Packed, Sink, Statistic, pack_parts, packing_of, unpack_parts
from rff_stream.errors import DataError
from rff_stream.label_forms import canonical
from rff_stream.moments.tree_sum import add_into
from rff_stream.sources.protocol import Rows

Value = TypeVar("Value", bound=Any)

RUNS = 16
"""Runs of rows in each fold by which a penalty is chosen. With rows sorted by one of two inputs,
errors were .122 with one run per fold, .02 to .06 with 2 to 8 and .014 with 16; by evidence
.013."""

Split = Callable[[Rows, Array], Iterator[tuple[Any, Rows, Array]]]
"""Rows and places -> (key, rows, places) of each part."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups(Generic[Value]):
    """Values of any statistic by label; they add label by label."""

    by_label: Mapping[Any, Value]

    def __add__(self, other: Self) -> Self:
        return self._merged(other, operator.add)

    def __iadd__(self, other: Self) -> Self:
        """The sum, for which the values of this one may be written into."""
        return self._merged(other, add_into)

    def _merged(self, other: Self, add: Callable[[Value, Value], Value]) -> Self:
        merged = dict(self.by_label)
        for label, value in other.by_label.items():
            merged[label] = add(merged[label], value) if label in merged else value
        return type(self)(merged)

    def __sizeof__(self) -> int:
        return sum(int(value.__sizeof__()) for value in self.by_label.values()) + 64


def by_label(value: Any) -> Mapping[Any, Any]:
    """The values by label; the value itself under None where rows were not split."""
    return value.by_label if isinstance(value, Groups) else {None: value}


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """Any statistic of each part of the rows; a checkpoint keeps its values label by label."""

    statistic: Statistic

    def pack(self, value: Groups[Any]) -> Packed:
        pack = packing_of(self.statistic).pack
        return pack_parts({label: pack(each) for label, each in value.by_label.items()})

    def unpack(self, packed: Packed) -> Groups[Any]:
        unpack = packing_of(self.statistic).unpack
        return Groups({label: unpack(part) for label, part in unpack_parts(packed).items()})


@dataclass(frozen=True, slots=True, eq=False)
class ByGroup(_Split):
    """Any statistic for each group of rows: :class:`Groups` by the label they carry.

    Rows of labelled classes carry pairs (class, group); the statistic then sees the class.
    """

    def start(self) -> Sink:
        return _Parts(self.statistic, _groups)


@dataclass(frozen=True, slots=True, eq=False)
class ByClass(_Split):
    """Any statistic for each class: as :class:`ByGroup`, but rows keep the label they carry."""

    def start(self) -> Sink:
        return _Parts(self.statistic, _classes)


@dataclass(frozen=True, slots=True, eq=False)
class Slabs:
    """The space of inputs, cut along one direction: equal rows are in one slab."""

    towards: Float64  # (d,)
    cuts: Float64  # (s − 1,), increasing

    @classmethod
    def of_rows(cls, x: Array, folds: int, runs: int = RUNS) -> Self:
        """At most ``runs`` slabs for each fold, with about as many different rows x (m, d) each."""
        spread = x.std(axis=0)
        towards = np.random.default_rng(0).normal(size=x.shape[1]) / np.where(spread > 0, spread, 1)
        along = np.unique(_along(x, towards))
        count = folds * max(min(runs, len(along) // folds), 1)
        return cls(towards, along[np.arange(1, count) * len(along) // count])

    @property
    def numbers(self) -> Float64:
        """Both in one array, as a model keeps them."""
        return np.concatenate([self.towards, self.cuts])

    @classmethod
    def from_numbers(cls, numbers: Float64, n_inputs: int) -> Self:
        """From what a model kept."""
        return cls(numbers[:n_inputs], numbers[n_inputs:])

    def of(self, x: Array) -> Array:
        """The slab (m,) of each of the rows x (m, d)."""
        return np.searchsorted(self.cuts, _along(x, self.towards), side="right")


def _along(x: Array, towards: Float64) -> Float64:
    """x·t (m,), added up input by input: the same bits for equal rows in any block."""
    found = np.zeros(len(x))
    for values, factor in zip(x.T, towards, strict=True):
        found += values * factor
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ByFold(_Split):
    """Any statistic for each fold of cross-validation: :class:`Groups` by 0, …, folds − 1.

    The places of the data are cut into so many runs for each fold (fewer where there are fewer
    places), dealt in turn: run i goes to fold i modulo folds. Whole runs are honest for rows that
    resemble their neighbours; several a fold keep it among the others where rows are sorted. Runs
    come one after the other, and only one sum is open at a time: folds cost no memory.

    Where rows stand more than once, the runs are of rows in the order of their inputs
    (``slabs``): copies are in one fold, wherever they stand. A leaf then has a sum for each fold.
    """

    folds: int
    n_places: int
    runs: int = 1
    slabs: Slabs | None = None

    def start(self) -> Sink:
        if self.slabs is not None:
            return _Parts(self.statistic, self._slabs)
        return _Parts(self.statistic, self._runs, one_at_a_time=True)

    def _slabs(self, rows: Rows, places: Array) -> Iterator[tuple[int, Rows, Array]]:
        assert self.slabs is not None
        fold = self.slabs.of(rows.x) % self.folds
        for k in np.unique(fold).tolist():
            chosen = fold == k
            yield k, select(rows, chosen), places[chosen]

    def _runs(self, rows: Rows, places: Array) -> Iterator[tuple[int, Rows, Array]]:
        count = self.folds * max(min(self.runs, self.n_places // self.folds), 1)
        run = np.minimum(places * count // self.n_places, count - 1)
        cuts = np.r_[0, np.flatnonzero(np.diff(run)) + 1, len(run)]
        for lo, hi in pairwise(cuts.tolist()):
            if hi > lo:
                yield int(run[lo]) % self.folds, select(rows, slice(lo, hi)), places[lo:hi]


class _Parts:
    """A sink for each part of the rows, opened when its first row is met.

    With ``one_at_a_time`` a part is closed when another begins: for parts that come in turn.
    """

    def __init__(self, statistic: Statistic, split: Split, *, one_at_a_time: bool = False) -> None:
        self._statistic, self._split, self._alone = statistic, split, one_at_a_time
        self._closed: Groups[Any] = Groups({})
        self._open: dict[Any, Sink] = {}

    def add(self, rows: Rows, places: Array) -> None:
        for key, part, at in self._split(rows, places):
            self._sink(key).add(part, at)

    def _sink(self, key: Any) -> Sink:
        if key not in self._open:
            if self._alone:
                self._closed, self._open = self.result(), {}
            self._open[key] = self._statistic.start()
        return self._open[key]

    def result(self) -> Groups[Any]:
        return self._closed + Groups({key: sink.result() for key, sink in self._open.items()})


def select(rows: Rows, chosen: Any) -> Rows:
    """Some of the rows, by a slice, a mask or indices; they no longer know their slab."""
    return replace(
        rows,
        x=rows.x[chosen],
        y=rows.y[chosen],
        w=None if rows.w is None else rows.w[chosen],
        keep=None,
        label=None if rows.label is None else rows.label[chosen],
    )


def _groups(rows: Rows, places: Array) -> Iterator[tuple[Any, Rows, Array]]:
    """By labels in their one form: a leaf may hold as integers what another holds as floats."""
    if rows.label is None:
        raise DataError("Rows carry no labels. Open the source with by=….")
    pairs = rows.label.dtype.names is not None
    own, classes = (rows.label["f1"], rows.label["f0"]) if pairs else (rows.label, None)
    for label, part, at in _by(own, replace(rows, label=classes), places):
        yield canonical(label), part, at


def _classes(rows: Rows, places: Array) -> Iterator[tuple[Any, Rows, Array]]:
    return _by(labels_of(rows), rows, places)


def _by(labels: Array, rows: Rows, places: Array) -> Iterator[tuple[Any, Rows, Array]]:
    known, codes = np.unique(labels, return_inverse=True)
    for code, label in enumerate(known.tolist()):
        chosen = codes == code
        yield label, select(rows, chosen), places[chosen]


@dataclass(frozen=True, slots=True, eq=False)
class ClassWeighted:
    """Any statistic of rows whose weights are multiplied by that of their class."""

    statistic: Statistic
    class_weight: Mapping[Any, float]
    """1 if absent; 0 leaves out the rows of a class."""

    def start(self) -> Sink:
        return weigh_classes(self.statistic.start(), self.class_weight)

    def pack(self, value: Any) -> Packed:
        return packing_of(self.statistic).pack(value)

    def unpack(self, packed: Packed) -> Any:
        return packing_of(self.statistic).unpack(packed)


class _WeightedSink:
    def __init__(self, sink: Sink, class_weight: Mapping[Any, float]) -> None:
        self._sink, self._class_weight = sink, class_weight

    def add(self, rows: Rows, places: Array) -> None:
        known, codes = np.unique(labels_of(rows), return_inverse=True)
        weights = [float(self._class_weight.get(label, 1.0)) for label in known.tolist()]
        own = np.array(weights)[codes]
        w = own if rows.w is None else rows.w * own
        keep: Any = w > 0
        if keep.all():
            keep = slice(None)  # no copies
        self._sink.add(select(replace(rows, w=w), keep), places[keep])

    def result(self) -> Any:
        return self._sink.result()


def weigh_classes(sink: Sink, class_weight: Mapping[Any, float] | None) -> Sink:
    """The same sink behind weights of classes; the sink itself where there are none."""
    return _WeightedSink(sink, class_weight) if class_weight else sink


def codes_of(rows: Rows, labels: tuple[Any, ...]) -> Array:
    """Class numbers (m,) of the rows' labels; −1 for a label that is not among these."""
    present, inverse = np.unique(labels_of(rows), return_inverse=True)
    known = {label: i for i, label in enumerate(labels)}
    return np.array([known.get(label, -1) for label in present.tolist()], dtype=int)[inverse]


def labels_of(rows: Rows) -> Array:
    """Labels (m,) of rows that carry some."""
    if rows.label is None:
        raise DataError("Rows carry no labels. Open the source with a y of labels.")
    return rows.label
