"""``python -m rff_stream.cli``."""

from rff_stream.cli import main

main()
