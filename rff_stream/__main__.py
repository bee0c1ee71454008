"""``python -m rff_stream``: the command ``rff-stream``."""

from rff_stream.cli import main

main(prog_name="rff-stream")
