"""xarray objects: variables, coordinates and virtual names over named dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rff_stream._array import Array
from rff_stream.errors import DataError
from rff_stream.sources.arrays import array_like, target_names
from rff_stream.sources.columns import align, base_of, plain_names, virtual_column
from rff_stream.sources.container_types import is_from, is_names
from rff_stream.sources.graph_arrays import recheck
from rff_stream.sources.named_variables import NamedVariable, labels_of
from rff_stream.sources.protocol import Columns, regular_bounds
from rff_stream.sources.request import Selection
from rff_stream.sources.variables import Variable, VariablesSource, Wrap, variable_of
from rff_stream.text_formatting import list_names, suggestion

if TYPE_CHECKING:
    import xarray

UNNAMED = "x"
"""Name of the values of a DataArray that has none."""


def open_container(selection: Selection) -> VariablesSource:
    """A source of the samples of a Dataset or DataArray."""
    import xarray

    X = selection.X
    if not isinstance(X, xarray.DataArray):
        return Labelled(X, None, selection.missing_chunks).source(selection)
    data = as_dataset(X, selection.columns)
    (name,) = data.data_vars
    return Labelled(data, str(name), selection.missing_chunks).source(selection)


def as_dataset(X: xarray.DataArray, columns: Columns | None) -> xarray.Dataset:
    """A DataArray as the one variable of a Dataset, under the name of the fit.

    A fit on an array without a name takes one of any name, and the other way round.
    """
    bases = {base_of(column)[0] for column in columns.inputs} if columns else set()
    fitted = next(iter(bases), UNNAMED) if len(bases) < 2 else UNNAMED
    name = fitted if X.name is None or bases == {UNNAMED} else str(X.name)
    name = UNNAMED if name in X.coords else name
    return X.rename(None).to_dataset(name=name)


class Labelled:
    """A Dataset as a table of names; ``one`` is the only variable where X is a DataArray."""

    def __init__(self, data: xarray.Dataset, one: str | None, missing_chunks: str) -> None:
        self.data = data
        self.one = one
        self.missing_chunks = missing_chunks
        self.variable = cache(lambda name: self.make(name, data[name]))

    def find(self, name: str) -> NamedVariable:
        """A variable, coordinate, dimension, virtual name, column u[level=500], level sky=rain."""
        if name in self.data.variables or name in self.data.dims:
            return NamedVariable(name, self.variable(name))
        base, places = base_of(name)
        if places and (base in self.data.variables):
            return self.single(name, base, places)
        known = [str(each) for each in (*self.data.data_vars, *self.data.coords)]
        found = virtual_column(name, known, self.variable)
        if found is not None:
            return found
        odd = next(
            (v for v in self.data.variables if not isinstance(v, str) and str(v) == name), ""
        )
        if odd != "":
            raise DataError(
                f"The data set names a variable {odd!r} (type {type(odd).__name__}), but names are "
                f"text here. Rename it: data.rename({{{odd!r}: {name!r}}})."
            )
        raise DataError(
            f"There is no {name!r} in the data set. A name is a variable, a coordinate or a "
            f'virtual name such as "time.dayofyear". {suggestion(name, known)}'
        )

    def single(self, name: str, base: str, places: Mapping[str, str]) -> NamedVariable:
        """One place of the extra dimensions of a variable: u[level=500]."""
        variable = self.variable(base)
        extra = [dim for dim in variable.dims if dim in places]
        if len(extra) != len(places):
            raise DataError(
                f"{name!r} names {list_names(places)}, but {base!r} has the dimensions "
                f"{list_names(variable.dims)}. Name dimensions that it has."
            )
        pick = []
        for dim in extra:
            texts = labels_of(variable, dim)
            if places[dim] not in texts:
                raise DataError(
                    f"{base!r} has no {dim}={places[dim]} ({name!r} was asked for). "
                    f"{suggestion(places[dim], texts)}"
                )
            pick.append(texts.index(places[dim]))
        return NamedVariable(name, variable, picks=(tuple(pick),))

    def make(self, name: str, array: xarray.DataArray) -> Variable:
        """A variable with the labels of the dimensions that have coordinates."""
        indexed = [str(dim) for dim in array.dims if dim in self.data.indexes]
        labels = {dim: np.asarray(without_zone(self.data[dim].variable.data)) for dim in indexed}
        return variable_from(name, array.variable, labels, self.missing_chunks)

    def source(self, selection: Selection) -> VariablesSource:
        """The source of what was asked for."""
        builder = align(self, selection)
        return builder.source(labelled_wrap(self.data, builder.dims), selection)

    def targets(self, y: Any) -> list[NamedVariable] | None:
        """Targets by name, or from a labelled array; None for a plain array."""
        if is_names(y):
            return [self.find(name) for name in y]
        one = self.column("y", y)
        return None if one is None else [one]

    def column(self, role: str, values: Any) -> NamedVariable | None:
        """A name in the data, or a labelled array that lies on the same coordinates."""
        if isinstance(values, str):
            return self.find(values)
        return self.align(role, values) if is_from(values, "xarray") else None

    def align(self, role: str, array: xarray.DataArray) -> NamedVariable:
        """A DataArray whose coordinates are those of X."""
        name = role if array.name is None else str(array.name)
        for dim in array.dims:
            self.same_index(name, str(dim), array)
        return NamedVariable(name, self.make(name, array))

    def same_index(self, name: str, dim: str, array: xarray.DataArray) -> None:
        """Both have the same coordinate values along a dimension, or one has none."""
        sizes = int(array.sizes[dim]), int(self.data.sizes.get(dim, array.sizes[dim]))
        if sizes[0] != sizes[1]:
            raise DataError(
                f"{name!r} has {sizes[0]} {dim}, but X has {sizes[1]}. X, y and weights must be "
                f"equally long along every sample dimension; align them with xarray.align."
            )
        if dim not in array.indexes or dim not in self.data.indexes:
            return
        ours, theirs = self.data.indexes[dim], array.indexes[dim]
        if not ours.equals(theirs):
            first = next((i for i in range(sizes[0]) if ours[i] != theirs[i]), 0)
            raise DataError(
                f"{name!r} and X have other coordinates along {dim!r}: {theirs[first]} and "
                f"{ours[first]} at position {first}. Rows are paired by position, so coordinates "
                f"must agree; align them with xarray.align."
            )

    def on_samples(self, role: str, values: Any, sizes: Mapping[str, int]) -> NamedVariable:
        """A plain array of the grid's shape (targets may have one more axis)."""
        values = array_like(role, values, self.missing_chunks)
        dims, shape = tuple(sizes), tuple(sizes.values())
        extra = values.shape[len(shape) :]
        if values.shape[: len(shape)] != shape or len(extra) > (role == "y"):
            raise DataError(
                f"{role} has shape {values.shape}, but the samples of X are {shape} along "
                f"{dims}. A plain array must have the shape of the grid; give a DataArray, or "
                f"the sample dimensions with dim=."
            )
        own = (*dims, "targets")[: len(values.shape)]
        columns = target_names(extra[0] if extra else 1) if role == "y" else None
        return NamedVariable(role, variable_of(role, own, values), columns=columns)

    def inputs(
        self, selection: Selection, targets: Sequence[NamedVariable], weight: NamedVariable | None
    ) -> list[NamedVariable]:
        """Inputs: those of the fit, those asked for, or all other data variables."""
        if selection.columns is not None:
            return self.columns_of_fit(selection.columns.inputs)
        if selection.input_names is not None:
            return [self.find(str(name)) for name in selection.input_names]
        names = [str(name) for name in self.data.data_vars]
        used = set() if self.one else {each.name for each in targets}
        used |= (
            {str(selection.sample_weight)} if isinstance(selection.sample_weight, str) else set()
        )
        left = [self.find(name) for name in names if name not in used]
        if not left:
            raise DataError(
                f"There are no inputs left: the data variables ({list_names(names) or 'none'}) are "
                f"all target or weight. Name the inputs, coordinates included: inputs=[…]."
            )
        return left

    def columns_of_fit(self, names: Sequence[str]) -> list[NamedVariable]:
        """The inputs of the fit, by name; by count for a DataArray after an array."""
        if self.one is not None and plain_names(names) and self.one not in names:
            return [self.by_count(names)]
        return [self.find(name) for name in names]

    def by_count(self, names: Sequence[str]) -> NamedVariable:
        """A DataArray whose last dimension holds the columns of a fit on arrays."""
        variable = self.variable(next(str(name) for name in self.data.data_vars))
        if variable.shape[-1:] != (len(names),):
            raise DataError(
                f"X has {variable.shape[-1]} features along {variable.dims[-1]!r}, but the model "
                f"is expecting {len(names)} features as input. Give the columns of the fit."
            )
        picks = tuple((i,) for i in range(len(names)))
        return NamedVariable("x", variable, picks=picks, columns=tuple(names))

    def dims(
        self,
        selection: Selection,
        inputs: Sequence[NamedVariable],
        targets: Sequence[NamedVariable],
    ) -> tuple[str, ...]:
        """Sample dimensions, in the order in which rows are counted."""
        if selection.dims is not None:
            return self.given(selection.dims, [*inputs, *targets])
        if targets:
            return union(sample_dims(found) for found in targets)
        if selection.columns is not None:
            return self.order_dims(union(sample_dims(found) for found in inputs))
        if self.one is not None and selection.inputs is None:
            y = selection.y
            count = 1 if y is None else self.axes_of(y, inputs[0].variable)
            return inputs[0].variable.dims[:count]
        largest = sorted(inputs, key=lambda found: found.variable.nbytes, reverse=True)
        return self.order_dims(union(sample_dims(found) for found in largest))

    def order_dims(self, dims: tuple[str, ...]) -> tuple[str, ...]:
        """The dimensions in the order of a data variable that has them all, if there is one."""
        every = (tuple(str(dim) for dim in v.dims) for v in self.data.data_vars.values())
        alone = not self.data.data_vars  # coordinates of a grid to predict on, in their own order
        written = tuple(str(dim) for dim in self.data.sizes) if alone else dims
        own = next((each for each in every if set(dims) <= set(each)), written)
        return tuple(dim for dim in own if dim in dims)

    def axes_of(self, y: Any, variable: Variable) -> int:
        """How many leading dimensions of X a plain y has."""
        shape = array_like("y", y).shape
        same = [a == b for a, b in zip(shape, variable.shape, strict=False)]
        return same.index(False) if False in same else len(same)

    def given(self, dim: Sequence[str], found: Sequence[NamedVariable]) -> tuple[str, ...]:
        """The sample dimensions that were asked for, if they are there."""
        known = union(each.variable.dims for each in found)
        for name in dim:
            if name not in known:
                raise DataError(
                    f"dim={tuple(dim)!r}, but no column has the dimension {name!r}. "
                    f"{suggestion(name, known)}"
                )
        return tuple(dim)

    def sizes(
        self,
        selection: Selection,
        inputs: Sequence[NamedVariable],
        targets: Sequence[NamedVariable],
    ) -> dict[str, int]:
        sizes = {str(dim): int(size) for dim, size in self.data.sizes.items()}
        for each in (*inputs, *targets):
            for dim, size in zip(each.variable.dims, each.variable.shape, strict=True):
                sizes.setdefault(dim, size)
        dims = self.dims(selection, inputs, targets)
        if not dims:
            raise DataError(
                "The data have no dimension along which rows could lie. A single row has one of "
                "length 1: take cube.isel(time=[3]), not cube.isel(time=3)."
            )
        return {dim: sizes[dim] for dim in dims}


def sample_dims(found: NamedVariable) -> tuple[str, ...]:
    """Dimensions of a column that are not part of its name."""
    if found.picks is None:
        return found.variable.dims
    if found.columns is not None:
        return found.variable.dims[:-1]
    named = base_of(found.name)[1]
    return tuple(dim for dim in found.variable.dims if dim not in named)


def union(several: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """All names, each once, in the order in which they first come."""
    return tuple(dict.fromkeys(dim for dims in several for dim in dims))


def variable_from(
    name: str, variable: xarray.Variable, labels: Mapping[str, Array], missing_chunks: str
) -> Variable:
    """A variable of the data set; values in a file stay there."""
    variable = masked(name, variable)
    dims = tuple(str(dim) for dim in variable.dims)
    more: dict[str, Any] = {
        "units": str(variable.attrs.get("units", "")),
        "long_name": str(variable.attrs.get("long_name", "")),
        "calendar": calendar_of(variable),
        "labels": labels,
        "file": str(variable.encoding.get("source", "")),
    }
    if variable.chunks is not None or is_loaded(variable):
        values = variable.data
        return variable_of(name, dims, values if variable.chunks else without_zone(values), **more)
    bounds, chunked = chunks_of(variable)
    handle = recheck(bare(variable), masked_values(variable), missing_chunks)
    return Variable(name, dims, handle, "lazy", bounds, chunked, **more)


PACKED = {"scale_factor": 1, "add_offset": 0, "_Unsigned": "false"}
"""Attributes that change values where they are decoded, and what they are if they change none."""

MASKS = ("_FillValue", "missing_value")
"""Attributes that name values which are missing."""


def masked(name: str, variable: xarray.Variable) -> xarray.Variable:
    """The variable with NaN for the values that its attributes name as missing.

    xarray decodes these when it opens a file, and then moves them into the encoding. Attributes
    are those of values that were not decoded (``mask_and_scale=False``, rioxarray).

    Raises DataError: other attributes that change values: whether they were decoded is not known.
    """
    packed = [key for key, plain in PACKED.items() if variable.attrs.get(key, plain) != plain]
    if packed:
        raise DataError(
            f"{name!r} has the attribute {packed[0]}={variable.attrs[packed[0]]!r}: its values are "
            f"packed, or were unpacked and it was kept. Only values in their units can be used. "
            f"Unpack them with xarray.decode_cf(X), or remove the attribute: "
            f"del X[{name!r}].attrs[{packed[0]!r}]."
        )
    absent = {key: np.asarray(variable.attrs[key]) for key in MASKS if key in variable.attrs}
    marks = {k: v for k, v in absent.items() if v.dtype.kind in "iuf" and not np.isnan(v).all()}
    if variable.dtype.kind not in "iuf" or not marks:
        return variable
    import xarray

    plain = bare(variable).to_base_variable()
    plain.attrs = {key: variable.attrs[key] for key in marks}
    decoded = xarray.decode_cf(xarray.Dataset({"values": plain}), decode_times=False)
    found = decoded["values"].variable
    found = found.load() if variable.chunks is None and is_loaded(variable) else found
    found.attrs = {key: each for key, each in variable.attrs.items() if key not in marks}
    found.encoding = variable.encoding | found.encoding
    return found


def bare(variable: xarray.Variable) -> xarray.Variable:
    """The variable without attributes: a smaller pickle."""
    found = variable.copy(deep=False)
    found.attrs, found.encoding = {}, {}
    return found


def masked_values(variable: xarray.Variable) -> list[Any]:
    """Stored values that decode to missing."""
    encoding = variable.encoding
    return [encoding[name] for name in MASKS if name in encoding]


def without_zone(values: Any) -> Any:
    """Times with a zone in UTC, without it; other values as they are."""
    plain = isinstance(values.dtype, np.dtype) and values.dtype.kind != "O"
    if plain or getattr(first_of(values), "tzinfo", None) is None:
        return values
    import pandas

    try:
        times = pandas.to_datetime(np.asarray(values).ravel(), utc=True).tz_localize(None)
    except (TypeError, ValueError):  # other objects among them, which are refused by their kind
        return values
    return times.to_numpy("datetime64[ns]").reshape(values.shape)


def first_of(values: Any) -> Any:
    """The first value that is there; None where there is none."""
    flat = np.asarray(values).ravel()
    return next((value for value in flat if value is not None and value == value), None)


def is_loaded(variable: xarray.Variable) -> bool:
    """Whether the values are loaded."""
    return bool(variable._in_memory)


def calendar_of(variable: xarray.Variable) -> str:
    """Calendar of cftime objects; "" for anything else."""
    if variable.dtype.kind != "O" or variable.size == 0:
        return ""
    if "since" in str(variable.encoding.get("units", "")):
        return str(variable.encoding.get("calendar", "standard"))
    if not is_loaded(variable):
        return ""
    first = np.asarray(variable[(0,) * variable.ndim].values).item()
    return str(getattr(first, "calendar", ""))


def chunks_of(variable: xarray.Variable) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Where the stored chunks of a lazily sliced variable begin, and whether it has any."""
    sizes = variable.encoding.get("chunks") or variable.encoding.get("chunksizes")
    if not sizes or len(sizes) != variable.ndim:
        return tuple((0, size) for size in variable.shape), False
    return regular_bounds(variable.shape, sizes), True


def labelled_wrap(data: xarray.Dataset, dims: Sequence[str]) -> Wrap:
    """Wraps in a DataArray with the coordinates of the sample dimensions."""
    coords = data.coords.to_dataset().drop_encoding()
    other = [name for name, coord in coords.variables.items() if not set(coord.dims) <= {*dims}]
    return partial(label_values, coords.drop_vars(other), tuple(dims))


MEANINGS: Mapping[str, Mapping[str, str]] = {
    "": {"long_name": "prediction of {}"},
    "_std": {
        "long_name": "standard deviation of {}",
        "cell_methods": "realization: standard_deviation",
    },
    "_lower": {"long_name": "lower end of the interval of {}"},
    "_upper": {"long_name": "upper end of the interval of {}"},
}
"""Attributes of the CF conventions by what follows the name of a target."""


def is_labelled_answer(values: Any) -> bool:
    """Whether predictions are a DataArray or a Dataset."""
    return hasattr(values, "data_vars") or hasattr(values, "to_dataset")


def stack_draws(values: Any, targets: Sequence[str], units: Sequence[str]) -> Any:
    """A DataArray with ``draw`` as its last dimension, of single draws target by target.

    A Dataset where there are several targets.
    """
    import xarray

    every = values if hasattr(values, "data_vars") else values.to_dataset()
    names = list(every.data_vars)
    count = len(names) // len(targets)
    found = {}
    for k, target in enumerate(targets):
        own = every[names[k * count : (k + 1) * count]].to_dataarray("draw")
        own = own.assign_coords(draw=np.arange(count)).transpose(..., "draw").rename(target)
        own.attrs = {"long_name": f"draws of {target}"}
        own.attrs |= {"units": units[k]} if units and units[k] else {}
        found[target] = own
    return found[targets[0]] if len(targets) == 1 else xarray.Dataset(found)


def with_meaning(values: Any, targets: Sequence[str], ending: str, beside: Sequence[str]) -> Any:
    """Predictions whose attributes say what they are of each target, and what stands beside them.

    Of arrays and tables as they are: they have no attributes.
    """
    if ending not in MEANINGS or not is_labelled_answer(values):
        return values
    for target in targets:
        array = values[target + ending] if hasattr(values, "data_vars") else values
        array.attrs |= {name: text.format(target) for name, text in MEANINGS[ending].items()}
        if beside:
            array.attrs["ancillary_variables"] = " ".join(target + each for each in beside)
    return values


def label_values(
    coords: xarray.Dataset,
    dims: tuple[str, ...],
    values: Any,
    names: tuple[str, ...],
    units: tuple[str, ...],
) -> Any:
    """A DataArray; a Dataset where there are several values a row."""
    if values.ndim == len(dims):
        return one(coords, dims, values, names[0], units[0])
    columns = (values[..., i] for i in range(len(names)))
    arrays = {
        name: one(coords, dims, column, name, unit)
        for name, column, unit in zip(names, columns, units, strict=True)
    }
    if len(arrays) == 1:
        return arrays[names[0]]
    return coords.assign(arrays)


def one(coords: xarray.Dataset, dims: Sequence[str], values: Any, name: str, unit: str) -> Any:
    """One DataArray with its name and units."""
    import xarray

    attrs = {"units": unit} if unit else {}
    return xarray.DataArray(values, coords.coords, dims, name, attrs)
