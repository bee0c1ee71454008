"""What a model is: the lines that its HTML, reports and commands show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from rff_stream.features.composed import periods_of
from rff_stream.features.normal_scores import normal_scores_of
from rff_stream.kernels import as_kernel
from rff_stream.length_scales.map_choice import SearchRecord
from rff_stream.notebook_display import Card, names_with_units, numbers, some, table
from rff_stream.text_formatting import format_bytes


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about a model."""

    name: str  # as people read it: "length-scale"
    text: str  # the text of the line; "" where there is none
    values: Mapping[str, Any] = field(default_factory=dict)  # the same for programs


def facts(model: Any) -> tuple[Fact, ...]:
    """All that is known of an estimator, fitted or not, in the order in which it is shown.

    Only its public parameters and attributes are looked at. Facts without a text are left out.
    """
    if not hasattr(model, "features_"):
        return _parameters(model), Fact("state", "not fitted")
    every = (describe(model) for describe in (_parameters, *DESCRIPTIONS))
    return tuple(fact for fact in every if fact.text or fact.values)


def values_of(model: Any) -> dict[str, Any]:
    """The facts of a fitted model as plain values by name, for programs."""
    found: dict[str, Any] = {"estimator": type(model).__name__}
    for fact in facts(model):
        found |= fact.values
    return found


def model_card(model: Any) -> Card:
    """All about a model under its class name: facts, and tables that fold.

    The importance of inputs is computed once, from the row sample.
    """
    known = [*facts(model)]
    if hasattr(model, "features_"):
        known += [_intervals(model), _importance(model)]
    rows = tuple((fact.name, fact.text) for fact in known if fact.text)
    return Card(type(model).__name__, rows, (*_compared(model), _all_parameters(model)))


def _intervals(model: Any) -> Fact:
    """The narrowest intervals of a new observation: those of the noise alone."""
    if not hasattr(model, "noise_variance_"):
        return Fact("intervals", "")
    half = ndtri(0.975) * np.sqrt(np.asarray(model.noise_variance_))
    return Fact("intervals", f"95 %: ± {numbers(half)} near data, wider in gaps (return_std=True)")


def _importance(model: Any) -> Fact:
    """Shares of the inputs in the squared slope, the largest first."""
    shares = getattr(model, "importance_", None)
    if not isinstance(shares, Mapping):
        return Fact("importance", "")
    order = sorted(shares, key=lambda name: -shares[name])
    return Fact("importance", some([f"{name} {shares[name]:.0%}" for name in order]))


def _compared(model: Any) -> tuple[tuple[str, str], ...]:
    """Every candidate of the search before the read, with its error."""
    found = getattr(model, "choice_", None)
    if not isinstance(found, SearchRecord):
        return ()
    trials = sorted(found.trials, key=lambda trial: trial.error)
    taken = next(i for i, each in enumerate(trials) if each.name == found.taken)
    rows = [(each.name, f"{each.error:.4g}", f"{each.seconds:.1f}") for each in trials]
    rows += [(name, f"{error:.4g}", "") for name, error in found.rivals.items()]
    caption = f"{len(trials)} compared at {found.n_rows:,} left-out rows"
    head = ("candidate", "error over the spread of y", "CPU s")
    return ((caption, table(head, rows, (taken, 0))),)


def _all_parameters(model: Any) -> tuple[str, str]:
    """Every parameter, those of the defaults, too."""
    given = model.get_params(deep=False)
    return "parameters", table(("", "value"), [(name, repr(each)) for name, each in given.items()])


def maps_of(model: Any) -> tuple[Any, ...]:
    """The map, or each of several whose answers are averaged; maps side by side are one."""
    features: Any = model.features_
    return tuple(features.maps) if features.short_name() == "candidates" else (features,)


def enough_features(model: Any) -> str:
    """Whether R is enough, from the degrees of freedom that the fit uses; "" if not known."""
    most = np.max(getattr(model, "df_", np.nan))
    if np.isnan(most):
        return ""
    features = maps_of(model)[getattr(getattr(model, "choice_", None), "best", 0)]
    r = features.n_components
    cells = getattr(features, "n_cells", 0)
    if cells == 1 and r >= model.n_rows_:
        return f"{most:.0f} of {r}: every row is a column, the process itself"
    words = "R is enough" if most < 0.8 * r * max(cells, 1) else "more components may do better"
    columns = f"R = {r} in each of {cells} cells" if cells else f"R = {r}"
    return f"{most:.0f} of {columns}: {words}"


def _parameters(model: Any) -> Fact:
    """Parameters that are not the defaults of the class."""
    defaults, given = type(model)().get_params(deep=False), model.get_params(deep=False)
    changed = {k: value for k, value in given.items() if repr(value) != repr(defaults[k])}
    words = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return Fact("asked", words or "defaults")


def _rows(model: Any) -> Fact:
    missing = f", {model.n_missing_:,} looked at and not used" if model.n_missing_ else ""
    return Fact("rows", f"{model.n_rows_:,} fitted{missing}", {"n_rows": model.n_rows_})


def _inputs(model: Any) -> Fact:
    columns = model.columns_
    d = len(columns.inputs)
    periods = periods_of(model.features_)
    named = [
        f"{name} (periodic: {periods[place]:g})" if place in periods else name
        for place, name in enumerate(columns.inputs)
    ]
    words = f"d = {d}: {some(names_with_units(named, columns.units[:d]))}"
    plain = {"inputs": columns.inputs, "units": columns.units}
    if periods:
        plain["periods"] = {columns.inputs[place]: own for place, own in periods.items()}
    return Fact("inputs", words, plain)


def _targets(model: Any) -> Fact:
    columns = model.columns_
    units = columns.units[len(columns.inputs) :]
    names = names_with_units(columns.targets, units)
    return Fact("targets", some(names), {"targets": columns.targets})


def _classes(model: Any) -> Fact:
    if not hasattr(model, "classes_"):
        return Fact("classes", "")
    labels = model.classes_.tolist()
    words = f"{len(labels)}: {some([str(label) for label in labels], most=12)}"
    return Fact("classes", words, {"classes": labels, "n_passes": model.n_passes_})


def _kernel(model: Any) -> Fact:
    default = kernel_name("gaussian" if model.kernel == "auto" else model.kernel)
    maps = maps_of(model)
    names = [getattr(getattr(each, "kernel", None), "text", default) for each in maps]
    words = [f"{name}, R = {each.n_components}" for name, each in zip(names, maps, strict=True)]
    return Fact("kernel", "; ".join(words), {"kernel": " and ".join(dict.fromkeys(names))})


def _features(model: Any) -> Fact:
    features, maps = model.features_, maps_of(model)
    kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in maps))
    several = f"{len(maps)} maps, " if len(maps) > 1 else ""
    words = f"{several}R = {features.n_components}, {kinds}, {features.dtype}"
    return Fact("features", words + fewer_cells(model), {"n_components": features.n_components})


def fewer_cells(model: Any) -> str:
    """Words after others: that memory allowed less than the default; "" where it did not limit."""
    reduced = getattr(getattr(model, "plan_", None), "reduced_from", None)
    return "" if reduced is None else "; fewer cells than by default, as more do not fit the memory"


def chosen_on(model: Any) -> str:
    """Words after others: that more rows were counted since the map was chosen."""
    fitted = model._fitted
    if not fitted or not 0 < fitted.n_chosen < fitted.n_rows:
        return ""
    return f"; chosen on {fitted.n_chosen:,} of {fitted.n_rows:,} rows"


def _choice(model: Any) -> Fact:
    """What was compared before the read, or after it, and what was chosen."""
    if not hasattr(model, "choice_"):
        return Fact("choice", "")
    choice = model.choice_
    if isinstance(choice, SearchRecord):
        errors = dict(zip(choice.names, choice.errors.tolist(), strict=True))
        plain = {"choice": choice.taken, "left_out_errors": errors, "not_begun": choice.not_begun}
        return Fact("choice", choice.words + chosen_on(model), plain)
    weights = dict(zip(choice.names, choice.weights.tolist(), strict=True))
    return Fact("choice", str(choice), {"choice": weights})


def _alpha(model: Any) -> Fact:
    found = getattr(model, "alpha_", None)
    return Fact("alpha", numbers(found), {} if found is None else {"alpha": found})


def _df(model: Any) -> Fact:
    found = getattr(model, "df_", None)
    return Fact("df", enough_features(model), {} if found is None else {"df": found})


def _noise(model: Any) -> Fact:
    if not hasattr(model, "noise_variance_"):
        return Fact("noise", "")
    deviation = np.sqrt(model.noise_variance_)
    return Fact("noise", f"standard deviation {numbers(deviation)}", {"noise": deviation})


def _threshold(model: Any) -> Fact:
    if not hasattr(model, "offset_"):
        return Fact("threshold", "")
    words = f"{numbers(model.offset_)}: {model.contamination:.3g} of the rows below"
    return Fact("threshold", words, {"threshold": model.offset_})


def _components(model: Any) -> Fact:
    if not hasattr(model, "explained_variance_ratio_"):
        return Fact("components", "")
    shares = model.explained_variance_ratio_
    words = f"{len(shares)}, with {shares.sum():.1%} of the variance"
    return Fact("components", words, {"explained_variance_ratio": shares})


def _moments(model: Any) -> Fact:
    held = getattr(model, "moments_", None)
    words = "" if held is None else f"{format_bytes(held.__sizeof__())}, order {held.order}"
    return Fact("moments", words, {"has_moments": held is not None})


def _map(model: Any) -> Fact:
    found = model.features_.fingerprint
    return Fact("map", found[:16], {"fingerprint": found})


def units_of_scales(model: Any) -> tuple[str, ...]:
    """The unit of the length-scale of each input."""
    columns, scores = model.columns_, normal_scores_of(model.features_)
    units = list(columns.units[: len(columns.inputs)] or ("",) * len(columns.inputs))
    if scores is not None:
        for j in scores.columns:
            units[j] = scores.unit
    return tuple(units)


def _of_inputs(name: str, attribute: str, model: Any) -> Fact:
    """A number in units of the inputs: one for all, or one for each."""
    found = getattr(model, f"{attribute}_", None)
    if found is None:
        return Fact(name, "")
    columns, values = model.columns_, {attribute: found}
    if np.ndim(found) == 0:
        return Fact(name, numbers(found), values)
    if len(found) != len(columns.inputs):  # of encoded columns
        return Fact(name, some([numbers(value) for value in found]), values)
    several = [
        f"{each} {numbers(value)}" for each, value in zip(columns.inputs, found, strict=True)
    ]
    return Fact(name, some(names_with_units(several, units_of_scales(model))), values)


DESCRIPTIONS: tuple[Callable[[Any], Fact], ...] = (
    _rows, _inputs, _targets, _classes, _kernel, _features, _choice,
    partial(_of_inputs, "length-scale", "length_scale"),
    partial(_of_inputs, "bandwidth", "bandwidth"),
    _alpha, _df, _noise, _threshold, _components, _moments, _map,
)  # fmt: skip
"""One function for each line, in the order of the lines."""


def kernel_name(kernel: Any) -> str:
    """ "gaussian", "matern nu=2.5", "best of gaussian, laplacian"."""
    if isinstance(kernel, str):
        return kernel
    if isinstance(kernel, Sequence):
        return f"best of {', '.join(map(kernel_name, kernel))}"
    return str(as_kernel(kernel).text)
