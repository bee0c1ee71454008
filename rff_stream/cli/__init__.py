"""rff-stream: what every deployment runs."""

from rff_stream.cli.commands import main

__all__ = ["main"]
