"""From an estimator's parameters and the pilot to a feature map."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rff_stream._array import Array, Float64
from rff_stream.answers.evidence import FEW_FEATURES
from rff_stream.cells.map import Cells, ChosenCells, LocalFeatures, encode_rows
from rff_stream.costs import CellCost
from rff_stream.execution import Reading
from rff_stream.execution.leaves import Leaf
from rff_stream.execution.pilot_boxes import pilot_boxes
from rff_stream.execution.progress import Progress
from rff_stream.execution.threads import single_threaded_blas
from rff_stream.families.protocol import MapParameters, SumRequest
from rff_stream.features import FeatureMap, MapRequest, Projection, Then, by_columns, map_class
from rff_stream.features.normal_scores import NormalScores, heavy_inputs
from rff_stream.kernels import (
    ExactKernel,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    RadialKernel,
    as_kernel,
    length_scale_vector,
)
from rff_stream.leaf_layout import n_rows_of
from rff_stream.length_scales.left_out import CellShape
from rff_stream.length_scales.map_search import MOST_OF_METRIC, MapChoice, MapSearch, search_map
from rff_stream.length_scales.whole_space import (
    ITERATIONS,
    MOST_SEARCHED,
    TrialSize,
    fit_length_scales,
    search_seconds,
)
from rff_stream.length_scales.window_evidence import RowWindow
from rff_stream.length_scales.windows import compact_windows
from rff_stream.moments.counted_entries import entries_of
from rff_stream.moments.few_rows import Context
from rff_stream.pilot import (
    MOST_OF_LEAF,
    PILOT_ROWS,
    Pilot,
    WindowRows,
    WindowStatistic,
    neighbour_scale,
)
from rff_stream.systems.spectrum import FEW_ROWS

logger = logging.getLogger("rff_stream")

PILOT_COMPONENTS = 1536
"""R of the map whose evidence determines length-scales: kin40k needs more than 1,000."""

AUTO = "auto"
"""What a parameter is if the data decide."""

WINDOWS, BLOCK_ROWS = 10, 1024
"""Number of windows from which length-scales are found; neighbouring rows kept for each."""

MOST_WINDOW_TARGETS = 8
"""If there are more targets, a search by windows takes random combinations of them: it needs
only their variation in space."""

SEARCH_SECONDS, SEARCHED_ROWS = 3.0, 4000
"""Approximate CPU seconds of a search by windows, for each kernel and once more for a metric, and
approximate rows of all its windows."""

COMPETING = (Gaussian(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5), Laplacian())
"""Kernels that compete where none is asked for: from smooth to rough, and a product over inputs,
for functions that change at values of single inputs."""

RADIAL = tuple(each for each in COMPETING if isinstance(each, RadialKernel))
"""Those that a full metric is learnt for."""

DEFAULT_COMPONENTS = 2048
"""R of one map of the whole space, where it is not said."""

FEWEST_LEVELS = 4
"""With fewer values of an input in a window, its length-scale cannot be estimated there."""

LengthScale = float | str | Array

FeatureChoice = FeatureMap | str | Mapping[Any, FeatureMap]
"""A map, the name of one, or a mapping from columns to maps."""


def context_of_few(asked: SumRequest) -> Context | None:
    """What sums are made in when they are asked for, where one leaf keeps its few rows."""
    plan, r = asked.plan, asked.row.n_features
    few = plan.sums == "float64" and asked.n_places <= FEW_ROWS * r
    keeps = (
        plan.layout.n_leaves == 1
        and plan.order == 2
        and (few or plan.kept_bytes > 0)
        and r > FEW_FEATURES
        and n_entries(asked.features, r) == r
    )
    return single_threaded_blas if keeps else None


def find_kernel(
    kernel: Kernel | str | Sequence[Kernel],
    length_scale: LengthScale,
    pilot: Pilot,
    seed: int,
    progress: bool,
    n_components: int = PILOT_COMPONENTS,
) -> Kernel:
    """The kernel with its length-scale in input units.

    A kernel given with its own length-scale is used as it is; a numeric ``length_scale``
    is in input units; "median" is the median distance between rows of standardised inputs;
    "evidence" and "ard" are found on the pilot, where several kernels may compete, by a map of so
    many columns.
    """
    given = given_kernel(kernel, length_scale, pilot.x.shape[1])
    if not isinstance(given, list):
        return given
    if searches(length_scale):
        found = _search_map(given, length_scale, pilot, seed, progress, n_components)
        pilot.warn_of_far_gaps(length_scale_vector(found, pilot.x.shape[1]))
        return found
    pilot.warn_of_outliers()
    if pilot.y.shape[1]:
        pilot.warn_of_wide_gaps()
    median = pilot.leave_out(pilot.median_length_scale())
    return given[0].with_length_scale(tuple(median.tolist()))


def given_kernel(
    kernel: Kernel | str | Sequence[Kernel], length_scale: LengthScale, d: int
) -> Kernel | list[Kernel]:
    """The kernel of d inputs with the length-scale that was given; those that rows decide on.

    Raises
    ------
    ValueError
        If both say a length-scale, or a name is unknown.
    """
    several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
    kernels, chosen = named_kernels(kernel), searches(length_scale)
    if several and not chosen:
        raise ValueError(
            f"{len(kernels)} kernels can be compared only with length_scale='evidence' or 'ard', "
            f"not {length_scale!r}. Give one of the two, or a single kernel."
        )
    named: Kernel = kernels[0]
    median = isinstance(length_scale, str) and length_scale == "median"
    if not several and named.length_scale is not None:
        if not median:
            raise ValueError(
                f"length_scale={length_scale!r} but the kernel {named!r} has a length-scale. "
                "Give one of the two."
            )
        return named
    if chosen or median:
        return kernels
    if isinstance(length_scale, str):
        raise ValueError(
            f"length_scale={length_scale!r} but it must be a number, one number per input, "
            "'auto', 'median', 'evidence' or 'ard'."
        )
    return named.with_length_scale(_numbers(length_scale, d))


def decided(asked: MapParameters, *, choose: bool) -> MapParameters:
    """The parameters with what was left open: ``"auto"``, and no ``n_components``.

    The data decide on everything where neither a map nor its size is said, and on kernels,
    length-scales and metric of cells. Any other map is one of the whole space with 2,048 columns,
    a Gaussian kernel and the median length-scale. Numbers are length-scales of a Gaussian.
    """
    features: Any = asked.features
    kernel: Any = asked.kernel
    scale: Any = asked.length_scale
    if isinstance(features, str) and features == AUTO:
        features = ChosenCells() if choose and asked.n_components is None else "whole"
    cells = _has_cells(features)
    found = isinstance(scale, str) and scale in (AUTO, "median", "ard", "evidence")
    if isinstance(kernel, str) and kernel == AUTO:
        every = RADIAL if isinstance(asked.metric, str) and asked.metric == "full" else COMPETING
        kernel = every if cells and found else "gaussian"
    if isinstance(scale, str) and scale in (AUTO, "median"):
        scale = AUTO if cells and known_kernel(kernel, AUTO) is None else "median"
    r = asked.n_components
    return replace(
        asked,
        features=features,
        kernel=kernel,
        length_scale=scale,
        n_components=DEFAULT_COMPONENTS if r is None else int(r),
    )


def is_name_of_map(features: Any) -> bool:
    """Whether one map of the whole space is drawn by its name."""
    return isinstance(features, str) and features not in ("local", "grid")


def _has_cells(features: Any) -> bool:
    """Whether cells are asked for that are not drawn yet."""
    return isinstance(features, Cells) or (isinstance(features, str) and features == "local")


def searches(length_scale: LengthScale) -> bool:
    """Whether length-scales are found on the pilot."""
    return isinstance(length_scale, str) and length_scale in ("evidence", "ard")


def seconds_of_search(kernel: Any, length_scale: Any, n_rows: int) -> float:
    """CPU seconds, at most about, of the search for length-scales on the pilot."""
    several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
    size = TrialSize(min(n_rows, MOST_SEARCHED), PILOT_COMPONENTS, ITERATIONS)
    return search_seconds(size, len(kernel) if several else 1, ard=length_scale == "ard")


def seconds_of_windows(kernel: Any, n_rows: int) -> float:
    """CPU seconds, about, of a search by windows: for each kernel and once more for a metric."""
    looks = len(named_kernels(kernel)) + 1
    return looks * SEARCH_SECONDS * min(1.0, n_rows / SEARCHED_ROWS)


def _search_map(
    kernels: list[Kernel],
    length_scale: LengthScale,
    pilot: Pilot,
    seed: int,
    progress: bool,
    n_components: int,
) -> Kernel:
    """The kernel and length-scales of highest evidence on the pilot, by a map of its own."""
    weights = None if (pilot.w == 1).all() else pilot.w
    # Small products: a second thread waits, and bits differ.
    with (
        single_threaded_blas(),
        Progress("length-scales", None, shown=progress, unit="step") as bar,
    ):
        found = fit_length_scales(
            pilot.x,
            pilot.y,
            kernels,
            ard=length_scale == "ard",
            one_unit=pilot.one_unit and length_scale != "ard",
            n_components=n_components,
            rng=seed,
            weights=weights,
            progress=logger.info if progress else None,
            advance=bar.advance,
        )
    pilot.warn_of_outliers()
    return found.kernel.with_length_scale(tuple(pilot.leave_out(found.length_scale).tolist()))


def pilot_windows(rows: RowWindow, rng: np.random.Generator) -> list[RowWindow]:
    """Compact windows of pilot rows."""
    size, centres = min(BLOCK_ROWS, len(rows.x)), rng.permutation(len(rows.x))[:WINDOWS]
    return compact_windows(rows, np.diag(1 / neighbour_scale(rows.x)), size=size, centres=centres)


def neighbouring_rows(
    reading: Reading, rows: RowWindow, rng: np.random.Generator, seed: int, encoding: Any = None
) -> tuple[list[RowWindow], bool]:
    """Neighbouring rows: of the pilot (True), or of boxes of the data that lie closer together.

    Rows that are stored side by side are neighbours on a grid, and strangers in a shuffled table.
    A cube in one long table has slices side by side, so boxes are as large as a fortieth of the
    data and the windows' own limit allow: those of few slices tell little of the input across.
    """
    near = pilot_windows(rows, rng)
    if reading.source.n_rows is not None and len(rows.x) >= reading.source.n_rows / 2:
        return near, True
    size = max(min(MOST_OF_LEAF, n_rows_of(reading.source) // (4 * WINDOWS)) // 4, PILOT_ROWS)
    boxes, _ = pilot_boxes(reading.source, WINDOWS, size, seed)
    leaves = [Leaf(box, 0) for box, _ in zip(boxes, range(WINDOWS), strict=False)]
    found: WindowRows = reading.add_up(
        WindowStatistic(BLOCK_ROWS, seed), leaves, words="pilot"
    ).value
    d = len(reading.source.columns.inputs)
    stored = [
        RowWindow(encode_rows(encoding, each[:, :d]), each[:, d:-1], each[:, -1])
        for each in found.windows
    ]
    unit = rows.x.std(axis=0) + np.finfo(float).tiny
    closer = _log_volume(stored, unit) < _log_volume(near, unit)
    thin = (_levels(stored) < FEWEST_LEVELS) & (_levels(near) >= FEWEST_LEVELS)
    return (stored, False) if closer and not thin.any() else (near, True)


def _levels(blocks: list[RowWindow]) -> Float64:
    """How many different values (d,) each input has in some blocks, in the middle one."""
    counts = [[len(np.unique(column)) for column in block.x.T] for block in blocks]
    return np.asarray(np.median(counts, axis=0) if counts else 0.0)


def _log_volume(blocks: list[RowWindow], unit: Float64) -> float:
    """Mean log extent of some blocks along the inputs, for as many rows; ∞ where there are none."""
    sizes = [
        np.log(np.ptp(block.x, axis=0) / unit + 1e-12).mean() - np.log(len(block.x)) / len(unit)
        for block in blocks
        if len(block.x) > 1
    ]
    return float(np.median(sizes)) if sizes else np.inf


def _numbers(length_scale: LengthScale, d: int) -> float | tuple[float, ...]:
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
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def named_kernels(kernel: Kernel | str | Sequence[Kernel | str]) -> list[Any]:
    """Those that compete."""
    several = [kernel] if isinstance(kernel, str) or not isinstance(kernel, Sequence) else kernel
    return [as_kernel(each) for each in several]


def known_kernel(kernel: Any, length_scale: Any) -> Any:
    """The kernel with the length-scales that were given; None where they are to be found."""
    named = named_kernels(kernel)
    own = getattr(named[0], "length_scale", None)
    if len(named) == 1 and own is not None:
        return named[0]
    if isinstance(length_scale, str):
        return None
    values = np.asarray(length_scale, np.float64)
    return named[0].with_length_scale(float(values) if values.ndim == 0 else tuple(values.tolist()))


def chosen_map(features: Any, inputs: Sequence[str]) -> Any:
    """A map or a name as it is; columns that choose their own as one map of the inputs.

    Raises
    ------
    ValueError
        Naming the columns that are not among the inputs.
    TypeError
        Naming the column whose choice is no map.
    """
    if isinstance(features, Cells):
        return replace(features, encode=chosen_map(features.encode, inputs))
    return by_columns(features, inputs) if isinstance(features, Mapping) else features


def encoding_of(features: Any) -> Any:
    """What is applied to rows before they are sent to cells, None for nothing."""
    return features.encode if isinstance(features, Cells) else None


def cost_of_shape(sizes: CellCost, shape: CellShape, n_rows: int) -> CellCost:
    """Of cells of the shape that was chosen; the same for the shape that was asked for."""
    if sizes.n_cells == 1:
        return sizes
    halvings = round(np.log2(max(n_rows / shape.n_rows, 1.0)))
    n_cells = min(1 << halvings, sizes.n_cells)
    return CellCost(shape.n_components, sizes.n_trees if n_cells > 1 else 1, n_cells)


def draw_cells(
    kernel: Any, pilot: Pilot, asked: MapParameters, cost: CellCost, encoding: Any
) -> LocalFeatures:
    """Cells of the sizes that are priced, cut and filled from pilot rows."""
    exact = cost.n_cells == 1 and cost.n_features >= len(pilot.x)
    with single_threaded_blas():
        return LocalFeatures.sample(
            kernel,
            pilot.x,
            n_cells=cost.n_cells,
            n_trees=cost.n_trees,
            n_components=cost.n_features,
            rng=asked.seed,
            dtype="float64" if exact and isinstance(asked.features, ChosenCells) else asked.dtype,
            encoding=encoding,
        )


def matrix_of(metric: Any) -> Float64 | None:
    """A (d, k) of a metric that was given; None for one by name, and for none."""
    return None if metric is None or isinstance(metric, str) else np.asarray(metric, np.float64)


def few_targets(y: Float64, rng: np.random.Generator) -> Float64:
    """At most eight combinations of targets (m, T), drawn at random: they vary where these do."""
    if y.shape[1] <= MOST_WINDOW_TARGETS:
        return y
    return np.asarray(y @ rng.choice([-1.0, 1.0], (y.shape[1], MOST_WINDOW_TARGETS)))


def learns_metric(asked: MapParameters) -> bool:
    """Whether a metric is learnt whatever left-out rows say."""
    return isinstance(asked.metric, str) and asked.metric == "full"


def with_metric(asked: MapParameters, pilot: Pilot) -> tuple[MapParameters, Projection | None]:
    """The metric in front of one map of the whole space, and parameters for rows behind it.

    One that is learnt is that of windows of pilot rows. What these see is often finer than what
    the columns of one map can represent, so one factor of it is found by the evidence of the map.
    """
    matrix = matrix_of(asked.metric)
    if learns_metric(asked):
        with single_threaded_blas():
            found = _learn_metric(pilot, asked)
        matrix, kernel = found.matrix, found.unit_kernel.with_length_scale(None)
        varies = (pilot.y != pilot.y[:1]).any()
        scale = asked.length_scale if searches(asked.length_scale) else "evidence"
        asked = replace(asked, kernel=kernel, length_scale=scale if varies else "median")
    return asked, behind(None, matrix, pilot.x)


def _learn_metric(pilot: Pilot, asked: MapParameters) -> MapChoice:
    rng = np.random.default_rng(asked.seed)
    rows = RowWindow(pilot.x, few_targets(pilot.y, rng), pilot.w)
    r, _, n_cells = Cells().sizes(len(pilot.x), pilot.x.shape[1])
    shape = CellShape(max(len(pilot.x) // n_cells, 1), r)
    if not rows.varies:
        return MapChoice.of_constant(named_kernels(asked.kernel)[0], rows.x, shape)
    blocks = pilot_windows(rows, rng)
    return search_map(map_search(rows, blocks, True, asked, shape, rng))


def behind(encoding: Any, matrix: Float64 | None, x: Float64) -> Any:
    """The encoding of rows x (n, d) with a metric behind it, about the mean of x."""
    if matrix is None:
        return encoding
    metric = Projection(matrix, encode_rows(encoding, x).mean(axis=0))
    return metric if encoding is None else Then(encoding, metric)


def in_metric(found: MapChoice, encoding: Any, x: Float64) -> tuple[Any, Any]:
    """The kernel of a choice, and the encoding of rows x (n, d) before it, with the metric."""
    before = (
        encoding if found.normal_scores is None else found.normal_scores
    )  # none was asked for then
    return found.own_kernel, behind(before, found.metric, x)


def length_scale_behind(encoding: Any, kernel: Any) -> Float64:
    """In units of the inputs, or of the columns of an encoding that is no metric."""
    metric = encoding.second if isinstance(encoding, Then) else encoding
    if isinstance(metric, Projection):
        own = length_scale_vector(kernel, metric.n_components)
        return replace(metric, matrix=metric.matrix / own).length_scale
    return np.asarray(length_scale_of(kernel))


def columns_of_metric(metric: Any, n_columns: int) -> int:
    """k: the columns that kernels see, of so many before the metric.

    Raises ValueError: where a matrix is not for them.
    """
    matrix = matrix_of(metric)
    if matrix is None:
        return n_columns
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"metric has shape {matrix.shape}, or holds values that are not finite, but a metric "
            f"is a matrix of finite numbers: one row for each of the {n_columns} inputs, one "
            "column for each combination."
        )
    if len(matrix) != n_columns:
        raise ValueError(
            f"metric has {len(matrix)} rows but there are {n_columns} inputs (of an encoding: its "
            "columns). Give one row for each."
        )
    return int(matrix.shape[1])


def check_metric(asked: MapParameters, n_inputs: int) -> None:
    """Refuse a metric that is no choice, or that must be learnt where none can be.

    Raises ValueError: naming the parameter.
    """
    metric = asked.metric
    if metric is None or (isinstance(metric, str) and metric == AUTO):
        return
    drawn = _has_cells(asked.features) or is_name_of_map(asked.features)
    if not isinstance(metric, str):
        if not drawn:
            raise ValueError(
                f"metric is a matrix but features={asked.features!r}, and a metric goes in front "
                "of cells, or of a map that is drawn by name. Make the map behind it: "
                "Projection(matrix, origin).then(map)."
            )
        return
    if metric != "full":
        raise ValueError(f"metric={metric!r} but it must be 'auto', 'full', a matrix or None.")
    if not drawn:
        raise ValueError(
            f"metric='full' but features={asked.features!r}, and a metric is learnt in front of "
            "cells, or of a map that is drawn by name. Leave features out, or use metric='auto'."
        )
    if known_kernel(asked.kernel, asked.length_scale) is not None:
        raise ValueError(
            f"metric='full' but length_scale={asked.length_scale!r} and kernel={asked.kernel!r} "
            "give length-scales, and a metric is learnt in their place. Leave one of them out."
        )
    for kernel in named_kernels(asked.kernel):
        if not isinstance(kernel, RadialKernel):
            raise ValueError(
                f"metric='full' but {kernel!r} is no function of ‖x − x'‖, and a metric is learnt "
                "for such kernels. Use gaussian or matern, or metric='auto'."
            )
    if not 1 < n_inputs <= MOST_OF_METRIC:
        raise ValueError(
            f"metric='full' but there are {n_inputs} inputs, and a metric is learnt for 2 to "
            f"{MOST_OF_METRIC}. Choose inputs, or use metric='auto'."
        )


def finds_scales(asked: MapParameters) -> bool:
    """Whether a search may take any length-scales, or a metric in their place."""
    return isinstance(asked.length_scale, str) and asked.length_scale in (AUTO, "median")


def map_search(
    rows: RowWindow,
    blocks: Sequence[RowWindow],
    in_rows: bool,
    asked: MapParameters,
    shape: CellShape,
    rng: np.random.Generator,
    encoding: Any = None,
) -> MapSearch:
    """The search that the parameters ask for, before it has run."""
    free = finds_scales(asked)
    sought = free and encoding is None and _has_cells(asked.features)
    heavy = heavy_inputs(rows.x) if sought else np.empty(0, np.int64)
    learns = isinstance(asked.metric, str) and (free or asked.metric == "full")
    return MapSearch(
        rows,
        blocks,
        in_rows,
        named_kernels(asked.kernel),
        shape,
        rng,
        ard=asked.length_scale != "evidence",
        metric=learns,
        only_metric=learns and asked.metric == "full",
        sizes=isinstance(asked.features, ChosenCells),
        normal_scores=NormalScores.of_rows(rows.x, heavy) if len(heavy) else None,
        say=logger.info if asked.progress else lambda line: None,
    )


def check_cells(
    given: Any, kernel: Any, length_scale: LengthScale, d: int, metric: Any = None
) -> None:
    """Refuse cells, an encoding or metric before them, or a kernel, that are not for d inputs."""
    encoding = encoding_of(given)
    if isinstance(given, LocalFeatures) or encoding is not None:
        check_inputs((given if encoding is None else encoding).n_inputs, d)
    if encoding is not None:
        d = encoding.n_components
    d = columns_of_metric(metric, d)
    open_scale = isinstance(length_scale, str) and length_scale == AUTO
    if not isinstance(given, LocalFeatures) and not open_scale:
        check_kernel(kernel, length_scale, d)


def n_columns(features: FeatureMap | str, n_components: int) -> int:
    """R: a map given as a value brings its own."""
    return n_components if isinstance(features, str) else features.n_components


def n_entries(features: FeatureMap | str, n_components: int) -> int:
    """Entries of a row of R columns that are not 0, before the map is drawn."""
    if isinstance(features, str):
        return int(map_class(features).row_entries(n_components))
    return entries_of(features)


def make_features(
    features: FeatureMap | str,
    kernel: Kernel,
    n_components: int,
    pilot: Pilot,
    *,
    seed: int,
    dtype: str,
) -> FeatureMap:
    """A map given as a value, or the map of this name drawn for the kernel and the pilot."""
    if not isinstance(features, str):
        return features
    request = MapRequest(kernel, n_components, pilot.x, pilot.origin, pilot.scale, seed, dtype)
    drawn: FeatureMap = map_class(features).drawn_for(features, request)
    return drawn


def check_choices(
    kernel: Kernel | str | Sequence[Kernel],
    length_scale: LengthScale,
    features: FeatureMap | str,
    d: int,
) -> None:
    """Refuse, before a row is read, what would be refused after the pilot.

    Raises ValueError: naming the parameter.
    """
    if isinstance(features, str):
        map_class(features)
    else:
        check_inputs(features.n_inputs, d)
    check_kernel(kernel, length_scale, d)


def check_inputs(mapped: int, d: int) -> None:
    """Refuse a map of so many inputs for data that have others."""
    if mapped != d:
        raise ValueError(
            f"features maps {mapped} inputs but the data have {d}. Make the map for these columns."
        )


def check_kernel(
    kernel: Kernel | str | Sequence[Kernel], length_scale: LengthScale, d: int
) -> None:
    """Refuse a kernel, or length-scales, that say no kernel of d inputs."""
    if not searches(length_scale):
        given_kernel(kernel, length_scale, d)


def check_sample_rows(size: Any) -> None:
    """A whole number ≥ 0."""
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"sample_rows={size!r} but it must be a whole number ≥ 0.")


def check_n_components(n_components: Any, features: Any) -> None:
    """R is an integer ≥ 1, even where cosines and sines come in pairs; None if it is not said."""
    if n_components is None:
        return
    if not isinstance(n_components, (int, np.integer)) or isinstance(n_components, bool):
        raise TypeError(f"n_components={n_components!r} but it must be a whole number.")
    if n_components < 1:
        raise ValueError(f"n_components={n_components} but a map has at least 1 column.")
    if n_components % 2 and features in ("orthogonal", "fourier"):
        raise ValueError(
            f"n_components={n_components} but cosines and sines come in pairs: it must be even. "
            f"Use n_components={n_components + 1}."
        )


def seed_of(random_state: Any) -> int:
    """A seed that is stored with the model; drawn afresh for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint64))
    raise ValueError(
        f"random_state={random_state!r} but it must be None, an integer ≥ 0, a Generator or a "
        "RandomState."
    )


def number_or_array(values: Float64, flat: bool) -> Any:
    """A number for a single y."""
    return float(values[0]) if flat else values


def scale_of_map(features: Any) -> Float64:
    """The length-scale that a map was drawn with; 1 where it does not say."""
    return np.asarray(getattr(features, "scale", 1.0), np.float64)


def length_scale_of(kernel: ExactKernel) -> Float64 | float:
    """The kernel's length-scale in input units: a number, or one per input."""
    own = getattr(kernel, "length_scale", None)
    values = np.asarray(1.0 if own is None else own, dtype=np.float64)
    return float(values) if values.ndim == 0 else values
