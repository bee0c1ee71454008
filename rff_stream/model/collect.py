"""The moments of all rows, for a feature map: what models are made of, without a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rff_stream.arguments import Rule, one_of, whole
from rff_stream.errors import ModelError, PlanError
from rff_stream.execution import Reading, no_rows
from rff_stream.execution.checkpoints import checkpoint_of_pass, kept_row
from rff_stream.families import SumRequest, family_of
from rff_stream.families.parameters import MEMORY
from rff_stream.features import FeatureMap
from rff_stream.features.base import MAP
from rff_stream.moments import AugmentedRow
from rff_stream.moments.accumulate import SumsDtype
from rff_stream.planning import Plan
from rff_stream.sources import Source, open_source

PLAN = Rule("that of rs.plan", lambda value: isinstance(value, Plan), optional=True)

ROW = Rule(
    "that of other sums: moments.row", lambda value: isinstance(value, AugmentedRow), optional=True
)


def collect(
    features: FeatureMap,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    by: Any = None,
    folds: int = 0,
    order: int = 2,
    sums: SumsDtype = "auto",
    inputs: Sequence[str] | None = None,
    dim: Any = None,
    missing_rows: str = "error",
    missing_chunks: str = "auto",
    sample_rows: int = 2000,
    n_groups: int = 1,
    row: AugmentedRow | None = None,
    plan: Plan | None = None,
    memory: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Any:
    """Moments of all rows, from one read: eager, same bits on any scheduler.

    Parameters
    ----------
    features : FeatureMap
        d inputs, R features.
    X, y, sample_weight, inputs, dim
        Data, as in :meth:`rff_stream.KernelRidge.fit`.
    by : str, list of str or array, optional
        Label of each row: the same read then keeps moments for each label. Several columns
        make labels such as "month=1,region=north".
    folds : int
        Number of runs of rows with their own moments, for cross-validation. This needs no extra
        work, and gives a realistic error if neighbouring rows are correlated. For random folds
        give their labels as ``by``.
    order : {2, 1}
        1 keeps only mean feature vectors.
    sums : {"auto", "float32", "float64"}
        Precision of the sums.
    missing_rows : {"error", "drop"}
    missing_chunks : {"auto", "error", "fill"}
    sample_rows : int
        Number of rows in the row sample; 0 turns it off.
    n_groups : int
        Expected number of groups, for the memory in the plan.
    row : AugmentedRow, optional
        Origins and names of the sums; by default from the pilot.
    plan : Plan, optional
        A layout to use; the same plan gives the same bits.
    memory : int, optional
        Bytes that a computing process may use.
    checkpoint : path or URL, optional
        Where finished sums are stored every 30 seconds. If the read was interrupted, the next
        call with the same arguments continues from there and gives the same bits. Remove it when
        the result is saved.
    progress : bool

    Returns
    -------
    Moments, or dict of label -> Moments if ``by`` or ``folds`` is given.

    Raises
    ------
    DataError
        Naming store, array, chunk or rows.
    PlanError
        If the pass does not fit in memory, or the plan is for other data; nothing was read.
    ModelError
        If ``row`` is of another map or of other columns, or the checkpoint of another pass.

    Examples
    --------
    >>> import numpy as np, rff_stream as rs
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> features = rs.FourierFeatures.sample(rs.Gaussian(1.0), 2, 64, rng=0)
    >>> rs.collect(features, x, x[:, 0]).n
    500
    """
    MAP.check("features", features)
    one_of("error", "drop").check("missing_rows", missing_rows)
    whole(0).check("sample_rows", sample_rows)
    whole(0).check("folds", folds)
    whole(1).check("n_groups", n_groups)
    MEMORY.check("memory", memory)
    PLAN.check("plan", plan)
    ROW.check("row", row)
    missing: Any = {"missing_rows": missing_rows, "missing_chunks": missing_chunks}
    source = open_source(X, y, sample_weight, inputs=inputs, dim=dim, by=by, **missing)
    _check_map_row_and_plan(source, features, row, plan, order, sums)
    reading = Reading(source, progress=progress)
    family = family_of(features)
    request = replace(
        family.request(features, 0, source),
        order=order, sums=sums, dtype=features.dtype, n_groups=max(int(n_groups), int(folds)),
    )  # fmt: skip
    plan = plan or reading.plan(request, memory=memory)
    chosen: dict[str, Any] = {"sample_rows": sample_rows, "folds": folds}
    kept = checkpoint_of_pass(checkpoint, source, plan, features, by=str(by), **missing, **chosen)
    row = row or kept_row(kept) or family.row(features, reading.pilot(), source.columns)
    if kept is not None:
        kept.begin(row, plan.order)
    sums_of = SumRequest(features, row, plan, sample_rows, reading.places(plan))
    groups, _ = reading.moments(
        family.statistic(sums_of), plan, grouped=by is not None, folds=folds, checkpoint=kept
    )
    if not any(moments.n for moments in groups.values()):
        raise no_rows(source)
    return groups[None] if by is None and not folds else groups


def _check_map_row_and_plan(
    source: Source,
    features: FeatureMap,
    row: AugmentedRow | None,
    plan: Plan | None,
    order: int,
    sums: SumsDtype,
) -> None:
    """Refuse a map, row or plan that was made for other data."""
    columns, d = source.columns, len(source.columns.inputs)
    if features.n_inputs != d:
        raise ValueError(
            f"The feature map takes {features.n_inputs} inputs but the data have {d} "
            f"({', '.join(columns.inputs)}). Name the inputs of the map with inputs=[…]."
        )
    if row is not None:
        mine = replace(
            row,
            map_fingerprint=features.fingerprint,
            inputs=columns.inputs,
            targets=columns.targets,
            units=columns.units,
        )
        if mine.fingerprint != row.fingerprint:
            raise ModelError(
                f"The row= that was given differs from the data in {row.difference(mine)}. Give "
                "data with the names and units of that AugmentedRow, or leave row= out."
            )
    if plan is not None:
        wanted = plan.sums if sums == "auto" else sums
        if (order, wanted) != (plan.order, plan.sums):
            raise PlanError(
                f"The plan is for order={plan.order} and sums={plan.sums!r}, but order={order} and "
                f"sums={sums!r} were requested. Make the plan with these values, or omit plan=."
            )
        ends = tuple(edges[-1] for edges in plan.layout.edges)
        planned = (ends, plan.n_features, plan.n_inputs, plan.n_targets)
        given = (source.shape, features.n_components, d, len(columns.targets))
        if planned != given:
            words = ("grid of rows", "number of features", "inputs", "targets")
            different = [w for w, a, b in zip(words, planned, given, strict=True) if a != b]
            raise PlanError(
                f"The plan is for another {' and '.join(different)}: {planned} and not {given}. "
                "Make the plan from these data and this map."
            )
