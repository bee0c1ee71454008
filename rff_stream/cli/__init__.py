"""The command line program ``rff-stream``."""

from rff_stream.cli.commands import main

__all__ = ["main"]
