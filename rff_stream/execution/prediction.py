"""Row-wise functions over a source: a lazy array in the shape of its grid."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from rff_stream._array import Float64
from rff_stream.execution.blas_threads import single_threaded_blas
from rff_stream.execution.graph import Graph, ancestors, as_tasks
from rff_stream.leaf_layout import lay_out
from rff_stream.row_functions import RowFunction
from rff_stream.sources.protocol import Box, Reader, Source

ROW_SECONDS = 1e-5


@dataclass(frozen=True, slots=True)
class RowJob:
    """Reader and function: shipped once per worker, under one key."""

    reader: Reader
    function: RowFunction

    def run(self, box: Box, known: bool, *values: Any) -> Float64:
        """Function values (box shape + (width,)); NaN where a row is missing."""
        slabs = []
        with single_threaded_blas():
            for rows in self.reader.read(box, *values):
                values_of_slab = np.full((rows.n_slab, self.function.width), np.nan)
                kept = slice(None) if rows.keep is None else rows.keep
                values_of_slab[kept] = self.function(rows.x)
                slabs.append(values_of_slab)
        flat = np.concatenate(slabs) if slabs else np.empty((0, self.function.width))
        shape = tuple(hi - lo for lo, hi in box) if known else (len(flat),)
        return flat.reshape(*shape, self.function.width)


def map_rows(source: Source, function: RowFunction) -> Any:
    """Values of a row-wise function as a Dask array (grid shape + (width,)); lazy.

    Parameters
    ----------
    source : Source
    function : RowFunction
        (m, d) -> (m, width), picklable.

    Returns
    -------
    dask.array.Array
        Chunks follow the source's; unknown lengths stay unknown.
    """
    import dask.array as da

    known = source.n_rows is not None
    edges = lay_out(source, ROW_SECONDS).uniform_edges() if known else source.bounds
    token = uuid.uuid4().hex
    name, job = f"rff_rows-{token}", f"rff_rowjob-{token}"
    tasks: Graph = {job: Task(job, _itself, RowJob(source.reader, function))}
    counts = [len(e) - 1 for e in edges]
    for place in np.ndindex(*counts):
        box = tuple((e[i], e[i + 1]) for e, i in zip(edges, place, strict=True))
        key = (name, *place, 0)
        tasks[key] = Task(key, _run, TaskRef(job), box, known, *source.arguments(box))
    if source.graph is not None:
        own = as_tasks(source.graph)
        wanted = {k for task in tasks.values() for k in task.dependencies}
        tasks |= {k: own[k] for k in ancestors(own, wanted)}
    lengths = [np.diff(e).tolist() if known else [math.nan] * (len(e) - 1) for e in edges]
    chunks = (*map(tuple, lengths), (function.width,))
    return da.Array(tasks, name, chunks, dtype=np.float64)


def _itself(job: RowJob) -> RowJob:
    return job


def _run(job: RowJob, box: Box, known: bool, *values: Any) -> Float64:
    return job.run(box, known, *values)
