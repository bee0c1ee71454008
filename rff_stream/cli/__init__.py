"""The command line program ``rff-stream``, and its list of commands."""

from __future__ import annotations

import click

from rff_stream import __version__
from rff_stream.cli import demo, density, fit, predict, stored
from rff_stream.cli.program import EXIT_CODES, Program

__all__ = ["main"]


@click.group(
    name="rff-stream",
    cls=Program,
    epilog=f"Exit codes: {EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rff-stream")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.", expose_value=False)
def main() -> None:
    """Kernel machines on data larger than memory, from one read.

    On threads of this process, or on the workers of a Dask scheduler.
    """


COMMANDS = (
    demo.demo, fit.plan, fit.fit, predict.predict, predict.score, density.density,
    density.novelty, density.drift, stored.update, stored.watch, stored.batches,
    stored.forget, stored.inspect, stored.verify, stored.compact, stored.report,
)  # fmt: skip

for command in COMMANDS:
    main.add_command(command)
