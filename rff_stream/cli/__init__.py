"""rff-stream: what every deployment runs."""

from __future__ import annotations

import click

from rff_stream import __version__
from rff_stream.cli.care import compact, verify
from rff_stream.cli.demonstrating import demo
from rff_stream.cli.density import density, drift, novelty
from rff_stream.cli.fitting import fit, plan
from rff_stream.cli.program import EXIT_CODES, Program
from rff_stream.cli.reporting import report
from rff_stream.cli.updating import update
from rff_stream.cli.using import inspect, predict, score

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
    demo, plan, fit, predict, score, density, novelty, drift, update, inspect, verify, compact,
    report,
)  # fmt: skip

for command in COMMANDS:
    main.add_command(command)
