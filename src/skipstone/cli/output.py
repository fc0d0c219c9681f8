"""What all commands share: exit codes, errors in one line, JSON and drawing on standard output."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import typer

from skipstone.errors import FileError, PredicateError, SkipstoneError

_PIPE_WIDTH = 120


class Exit(enum.IntEnum):
    """The exit codes of every command; scripts rely on them, so they never change their meaning."""

    OK = 0
    UNEXPECTED = 1
    """A defect (the traceback is printed), or an output that can't be written."""
    USAGE = 2
    """Options that don't parse, as Click has it."""
    PREDICATE = 3
    """The question is wrong: SQL that doesn't parse, an unknown column, a literal of the wrong type."""
    FILE = 4
    """A file that is missing, unreadable, no Parquet, corrupt or encrypted."""
    OTHER = 5
    """Any other error that Skipstone raises on purpose."""
    DIFFERENT = 6
    """``verify`` found that skipping changes the answer."""
    INTERRUPTED = 130
    """Ctrl-C, as shells have it."""


EXIT_CODES = (
    "Exit codes: 0 ok, 1 unexpected error, 2 wrong usage, 3 wrong predicate or column, 4 unusable file, "
    "5 any other error, 6 verify found a difference, 130 interrupted."
)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors meant for the user into a line on standard error and an exit code."""
    try:
        yield
    except SkipstoneError as error:
        typer.echo(error_line(error), err=True)
        raise typer.Exit(int(exit_code(error))) from None
    except KeyboardInterrupt:
        raise typer.Exit(int(Exit.INTERRUPTED)) from None


def emit(text: str) -> None:
    """Write to standard output, all at once: the one place where its reader may have gone away."""
    try:
        # Whether there are colours in it has been decided; they are not taken out again.
        typer.echo(text, color=True)
        sys.stdout.flush()
    except BrokenPipeError:
        # ``| head`` has seen enough, which is no failure.
        stop_writing()
        raise typer.Exit(int(Exit.OK)) from None
    except OSError as error:
        stop_writing()
        typer.echo(f"error: can't write the output: {error.strerror}", err=True)
        raise typer.Exit(int(Exit.UNEXPECTED)) from None


def stop_writing() -> None:
    """Give standard output up."""
    # What is still buffered must not fail once more at shutdown.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(error: SkipstoneError) -> Exit:
    """The exit code that stands for an error."""
    if isinstance(error, PredicateError):
        return Exit.PREDICATE
    return Exit.FILE if isinstance(error, FileError) else Exit.OTHER


def error_line(error: SkipstoneError) -> str:
    """The error in one line: where, what, and the next step."""
    from skipstone.report.lines import clean

    text = f"error: {error.place}: {error.message}" if error.place else f"error: {error.message}"
    hint = f"; hint: {error.hint}" if error.hint else ""
    return clean(" ".join(f"{text}{hint}".split()))


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON document in characters that standard output knows."""
    from skipstone.report.lines import visible

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return visible(json.dumps(value, indent=2, ensure_ascii=not unicode, allow_nan=False))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    emit(json_text(value))


@dataclass(frozen=True, slots=True)
class Screen:
    """Where text is drawn: how wide it is and whether it takes colours."""

    width: int
    color: bool


def screen(file: TextIO | None = None) -> Screen:
    """Standard output, unless given: colours on a terminal only, and not against NO_COLOR."""
    from rich.console import Console

    found = Console(file=file or sys.stdout)
    # Rich takes 80 columns where there is no terminal to ask; in a pipe nobody needs the cuts.
    piped = not found.is_terminal and "COLUMNS" not in os.environ
    color = found.is_terminal and not found.no_color and found.color_system is not None
    return Screen(_PIPE_WIDTH if piped else found.width, color)
