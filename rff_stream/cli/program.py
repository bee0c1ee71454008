"""The result of a command -> an exit code; an error -> one line on stderr."""

from __future__ import annotations

import codecs
import contextlib
import logging
import re
import signal
import sys
import threading
import traceback
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import click

from rff_stream.cli.output import forget, redact_text
from rff_stream.errors import ClusterError, ModelError, NumericalWarning, RffStreamError
from rff_stream.text_formatting import printable

EXIT_CODES = """
0 success; 1 the cluster was lost, or an error in the program; 2 a wrong option or path; 3 a
problem with the data, or a plan over the memory limit; 4 a problem with the model or its store;
5 an alarm of drift;
130 and 143 stopped by Ctrl-C or SIGTERM: no incomplete file is left, and the same command can
be run again.
"""

CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    (ModelError, 4),
    (ClusterError, 1),
    (RffStreamError, 3),
    (OSError, 3),
    ((ValueError, TypeError, ImportError), 2),
)


NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())  # from click 8.2 on


QUOTES = r"['\" ]"
OPTIONS = ("alpha", "batch", "by", "dtype", "length_scale", "missing_chunks", "missing_rows",
           "n_components", "sums")  # fmt: skip
"""Parameters that are options of the same name."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: stops what Ctrl-C stops."""


class Stopped(click.ClickException):
    """Ctrl-C, after everything was cancelled."""

    exit_code = 130
    by = "Ctrl-C"

    def __init__(self) -> None:
        super().__init__(
            f"stopped by {self.by}; work on the cluster is cancelled and nothing half-written is "
            f"left under its name. Run the same command again."
        )


class StoppedBySystem(Stopped):
    """SIGTERM, after everything was cancelled."""

    exit_code = 143
    by = "SIGTERM"


class Program(click.Group):
    """A group of commands that ends with the exit codes of the design.

    ``--debug``, anywhere on the command line, adds the traceback.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit."""
        given = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in given
        given = [word for word in given if word != "--debug"]
        forget()
        make_readable()
        with one_line_notes(debug), sigterm_interrupts():
            try:
                check_words(given)
                code = super().main(
                    given, prog_name or self.name, complete_var, standalone_mode=False, **extra
                )
            except Exception as error:
                code = report(error, debug)
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command with its whole first sentence; click would cut it."""
        rows = [(name, self.commands[name].get_short_help_str(1000)) for name in self.commands]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt becomes an exit code before click prints about it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise (StoppedBySystem() if isinstance(error, Terminated) else Stopped()) from error


def check_words(given: Sequence[str]) -> None:
    """Refuse an empty text: no name, path or number is one.

    Raises UsageError: with the option before it; other words may hold secrets.
    """
    for before, word in zip(("", *given), given, strict=False):
        name, equals, value = word.partition("=")
        if not word or (equals and not value and name.startswith("-")):
            option = name or before.partition("=")[0]
            where = f"The text after {option}" if option.startswith("-") else "An argument"
            raise click.UsageError(
                f"{where} is empty, but a name, a path or a number has at least one character. "
                "Give one, or leave it out; a variable of the shell that is not set is empty."
            )


def report(error: Exception, debug: bool) -> int:
    """Say what happened in one line; its exit code."""
    if isinstance(error, NO_ARGUMENTS):
        error.show()
        return 2
    if debug:
        click.echo(redact_text("".join(traceback.format_exception(error))), err=True, nl=False)
    click.echo(f"rff-stream: {one_line(sentence(error))}", err=True)
    return exit_code(error)


def exit_code(error: Exception) -> int:
    """The exit code of the first kind that fits."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, click.Abort):
        return 130
    return next((code for kind, code in CODES if isinstance(error, kind)), 1)


def sentence(error: Exception) -> str:
    """What an error says, with a remedy where it brings none."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "rff-stream"
        return f"{error.format_message()} See {command} --help."
    if isinstance(error, click.ClickException):
        return error.format_message()
    known = (RffStreamError, OSError, ValueError, TypeError)
    if isinstance(error, known) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}. Run again with --debug to see where it comes from."


def one_line(text: str) -> str:
    """A message on one line, in words of the command line and without secrets."""
    return printable(redact_text(in_options(" ".join(text.split()))))


def in_options(text: str) -> str:
    """A message of the library in words of the command line: missing_rows="drop" is --missing-rows.

    Only what an option can say is put so.
    """
    text = text.replace("overwrite=True (--overwrite)", "--overwrite")
    text = text.replace("replace=True", "--replace")
    text = re.sub(r" \(of a fitted model: model\.set_params\([^)]*\)\)", "", text)  # Python alone

    def names(found: re.Match[str]) -> str:
        return f"--inputs {re.sub(QUOTES, '', found[1])}"

    def option(found: re.Match[str]) -> str:
        value = (found[2] or found[3] or "").strip()
        return f"--{found[1].replace('_', '-')}{' ' * bool(value)}{value}"

    return re.sub(
        rf"\b({'|'.join(OPTIONS)})=(?:[\"']([^\"']*)[\"']|([\w.…]+))",
        option,
        re.sub(r"\binputs=\[([^]]*)\]", names, text),
    )


class OneLine(logging.Formatter):
    """Log records as one line without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(f"rff-stream: {record.getMessage()}")


@contextlib.contextmanager
def one_line_notes(debug: bool) -> Iterator[None]:
    """Our warnings, each once, and log lines on stderr; those of others only with --debug."""
    shown: set[str] = set()  # means and deviations are read one after the other

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if (line := one_line(str(message))) not in shown:
            shown.add(line)
            click.echo(f"rff-stream: warning: {line}", err=True)

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logger = logging.getLogger("rff_stream")
    logger.addHandler(handler)
    # A lost scheduler is an error of ours, in a line; Dask's client would log a page of traceback,
    # and its loop one where a signal comes before a request has begun.
    others = [logging.getLogger(name) for name in ("distributed.client", "tornado.application")]

    def wanted(record: logging.LogRecord) -> bool:
        return debug

    for each in others:
        each.addFilter(wanted)
    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("default" if debug else "ignore")
        warnings.simplefilter("always", NumericalWarning)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            for each in others:
                each.removeFilter(wanted)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does; only here, never in the library."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: let it clean up
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def plainer(error: UnicodeError) -> tuple[str, int]:
    """Letters that an encoding lacks, in simpler ones: R² becomes R2."""
    assert isinstance(error, UnicodeEncodeError)
    text = unicodedata.normalize("NFKD", error.object[error.start : error.end])
    return text.replace("×", "x").encode("ascii", "replace").decode(), error.end


def make_readable() -> None:
    """Output never fails for a letter that the terminal's encoding lacks."""
    codecs.register_error("plainer", plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plainer")
