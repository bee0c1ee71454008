"""The command ``rff-stream`` and its list of commands."""

from __future__ import annotations

import click

from rff_stream import __version__
from rff_stream.cli.demo import demo
from rff_stream.cli.density import density, drift, novelty
from rff_stream.cli.fit import fit, plan
from rff_stream.cli.inspect import compact, inspect, verify
from rff_stream.cli.predict import predict, score
from rff_stream.cli.program import EXIT_CODES, Program
from rff_stream.cli.report import report
from rff_stream.cli.update import update


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
