"""``python -m rff_stream`` and the script ``rff-stream``: the command line."""

import sys


def run() -> None:
    """Run the command line; an interrupt while it is imported is no error, as later (exit 130)."""
    try:
        from rff_stream.cli import main

        main(prog_name="rff-stream")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
