"""Where a command computes: threads of this process, or the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import click

from rff_stream.cli.arguments import Machine
from rff_stream.errors import ClusterError


@contextlib.contextmanager
def computing(machine: Machine) -> Iterator[None]:
    """Everything inside runs there; when it ends, nothing is left running."""
    if machine.scheduler is None:
        with threads(machine.threads):
            yield
        return
    if machine.threads is not None:
        raise click.UsageError(
            f"--threads {machine.threads} counts threads of this process, but --scheduler was "
            f"given. Set the threads when you start the workers: dask worker --nthreads."
        )
    with cluster(machine.scheduler):
        yield


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """A pool of threads; an interrupt waits for the leaves that run, and starts no other."""
    import dask
    from dask.system import CPU_COUNT

    pool = ThreadPoolExecutor(count or CPU_COUNT, "rff-stream")
    try:
        with dask.config.set(scheduler="threads", pool=pool):
            yield
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """The workers of a scheduler; its certificates come from Dask's configuration."""
    from distributed import Client

    started = time.monotonic()
    try:
        client = Client(address)
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # TypeError: no certificate
        waited = time.monotonic() - started
        raise ClusterError(
            f"No Dask scheduler answered at {address} within {waited:.1f} s "
            f"({type(error).__name__}: {error}). Look at the address, the network and, for "
            f"tls://, at the certificates in Dask's configuration (distributed.comm.tls)."
        ) from error
    with client:
        yield
