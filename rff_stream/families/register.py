"""What is left open by the parameters of a map, and what its family refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rff_stream._array import Array
from rff_stream.execution import Reading
from rff_stream.families.kernel_request import AUTO, KernelRequest
from rff_stream.families.level_intercepts import mapped_inputs, refuse_coded
from rff_stream.families.metric import matrix_of
from rff_stream.families.parameters import COMPETING, DEFAULT_COMPONENTS, RADIAL
from rff_stream.families.protocol import (
    WHOLE,
    ClassFamily,
    DrawnMap,
    Family,
    MapParameters,
    families,
    family_of,
)
from rff_stream.features import FeatureMap
from rff_stream.features.linear_trend import LinearTrend
from rff_stream.kernels import RadialKernel
from rff_stream.length_scales.metric_search import MOST_OF_DIRECTIONS
from rff_stream.pilot import Pilot
from rff_stream.planning import Plan
from rff_stream.sources import Columns


def default_request() -> Any:
    """What is asked for where the data decide on the map."""
    found = (family.default_request for family in families())
    return next(each for each in found if each is not None)


def decided(
    features: Any,
    kernel: Any,
    length_scale: Any,
    n_components: Any,
    metric: Any,
    *,
    choose: bool,
    search: bool = False,
    coded: bool = False,
) -> tuple[Any, KernelRequest, int]:
    """Map, kernels and R, with what was left open: ``"auto"``, and no ``n_components``.

    The data decide on everything where neither a map nor its size is said, and on kernels,
    length-scales and metric of cells. Beside ``coded`` levels that have intercepts, and where one
    map is asked for that may ``search``, they decide on kernel, length-scales and metric of one map
    of the whole space. Any other map is one of 2,048 columns, a Gaussian kernel and the median
    length-scale. Numbers are length-scales of a Gaussian.
    """
    open_map = isinstance(features, str) and features == AUTO and n_components is None
    if isinstance(features, str) and features == AUTO:
        features = default_request() if open_map and choose and not coded else WHOLE
    finds = family_of(features).finds_kernels(features)
    rule = length_scale if isinstance(length_scale, str) else None
    open_scale = rule == AUTO and matrix_of(metric) is None
    finds = finds or (open_map and (search or coded) and open_scale)
    if isinstance(kernel, str) and kernel == AUTO:
        every = RADIAL if isinstance(metric, str) and metric == "full" else COMPETING
        found = finds and rule in (AUTO, "median", "ard", "evidence")
        kernel = every if found else "gaussian"
    if rule in (AUTO, "median"):
        is_open = finds and KernelRequest.of(kernel, AUTO).known is None
        length_scale = AUTO if is_open else "median"
    size = DEFAULT_COMPONENTS if n_components is None else int(n_components)
    return features, KernelRequest.of(kernel, length_scale), size


def joined(maps: Sequence[Any]) -> Any:
    """Maps whose sums one read collects and whose answers are averaged, as one; one as it is."""
    if len(maps) == 1:
        return maps[0]
    found = (family.join(maps) for family in families())
    return next(each for each in found if each is not None)


def beside(features: Any, trend: LinearTrend) -> Any:
    """A map for what a line leaves of the targets, and the line, as one map."""
    found = (family.beside(features, trend) for family in families())
    return next(each for each in found if each is not None)


def behind_means(
    family: Family, reading: Reading, columns: Columns, parameters: MapParameters
) -> DrawnMap:
    """What a family draws for the means of levels, where columns have many."""
    found = (each.draw_behind(family, reading, columns, parameters) for each in families())
    return next(each for each in found if each is not None)


def classes_behind_means(
    family: ClassFamily, pilot: Pilot, inputs: Sequence[str], parameters: MapParameters, plan: Plan
) -> tuple[FeatureMap, Mapping[str, Array]]:
    """The same for classes."""
    several = (getattr(each.classes, "draw_behind", None) for each in families())
    draw: Any = next(each for each in several if each is not None)
    found: tuple[FeatureMap, Mapping[str, Array]] = draw(family, pilot, inputs, parameters, plan)
    return found


def require(features: Any, ability: str, value: Any = None) -> None:
    """Refuse what the family of a map cannot do, for the value of the parameter that asks for it.

    Raises ValueError: with the reason and the remedy that the family gives.
    """
    refuses = family_of(features).refuses
    if ability in refuses:
        raise ValueError(refuses[ability].format(value=value))


def class_family_of(features: Any) -> ClassFamily:
    """What the family of a map decides for classifiers; refuses a family that has none."""
    require(features, "classes")
    found = family_of(features).classes
    assert found is not None  # or it is refused above
    return found


def check_map(parameters: MapParameters, inputs: Sequence[str]) -> None:
    """Refuse, before a row is read, a map that is not for these inputs.

    Raises
    ------
    ValueError
        Naming the parameter, or the column of many levels that the family has no columns for.
    """
    check_metric(parameters, len(inputs))
    family = parameters.family
    takes_levels = family.name == WHOLE or hasattr(parameters.features, "known_levels")
    if not takes_levels and parameters.features != default_request():
        refuse_coded(inputs, f"features={parameters.features!r}")
    family.check(parameters, mapped_inputs(parameters.features, inputs))


def check_whole_space(features: Any, name: str) -> None:
    """Refuse maps of other families for an estimator (by name) that has no answer for them."""
    if family_of(features).name != WHOLE:
        raise ValueError(
            f"features={features!r} but {name} answers for maps of the whole space; cells and "
            "grids are for KernelRidge and GaussianProcessRegressor. Choose another map."
        )


def check_metric(parameters: MapParameters, n_inputs: int) -> None:
    """Refuse a metric that is no choice, or that must be learnt where none can be.

    Raises ValueError: naming the parameter.
    """
    metric = parameters.metric
    if metric is None or (isinstance(metric, str) and metric == AUTO):
        return
    one = parameters.family.name == WHOLE and parameters.is_named
    drawn = one or parameters.family.finds_kernels(parameters.features)
    if not isinstance(metric, str):
        if not drawn:
            raise ValueError(
                f"metric is a matrix but features={parameters.features!r}, and a metric goes in "
                "front of cells, or of a map that is drawn by name. Make the map behind it: "
                "Projection(matrix, origin).then(map)."
            )
        return
    if not drawn:
        raise ValueError(
            f"metric='full' but features={parameters.features!r}, and a metric is learnt in front "
            "of cells, or of a map that is drawn by name. Leave features out, or use metric='auto'."
        )
    if parameters.kernels.known is not None:
        raise ValueError(
            f"metric='full' but {parameters.kernels.known!r} has length-scales, and a metric is "
            "learnt in their place. Leave one of them out."
        )
    for kernel in parameters.kernels.named:
        if not isinstance(kernel, RadialKernel):
            raise ValueError(
                f"metric='full' but {kernel!r} is no function of ‖x − x'‖, and a metric is learnt "
                "for such kernels. Use gaussian or matern, or metric='auto'."
            )
    if not 1 < n_inputs <= MOST_OF_DIRECTIONS:
        raise ValueError(
            f"metric='full' but there are {n_inputs} inputs, and a metric is learnt for 2 to "
            f"{MOST_OF_DIRECTIONS:,}. Choose inputs, or use metric='auto'."
        )
