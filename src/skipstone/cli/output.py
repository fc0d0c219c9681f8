"""What all commands share: exit codes, errors in one line, JSON and drawing on standard output."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

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


EXIT_CODES = (
    "Exit codes: 0 ok, 1 unexpected error, 2 wrong usage, 3 wrong predicate or column, 4 unusable file, "
    "5 any other error."
)


class Format(enum.StrEnum):
    """Who reads the output."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A Parquet file: a path or a URI such as s3://bucket/key.")
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="A setting of the object store; may be repeated."
    ),
]


def storage_options(pairs: list[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` settings as a mapping."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            # The value may be a secret typed into the wrong place; it is not repeated.
            raise typer.BadParameter("give it as KEY=VALUE", param_hint="--storage-option")
        found[key] = value
    return found


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors meant for the user into a line on standard error and an exit code."""
    try:
        yield
    except SkipstoneError as error:
        typer.echo(error_line(error), err=True)
        raise typer.Exit(int(exit_code(error))) from None


def emit(text: str) -> None:
    """Write to standard output, all at once: the one place where its reader may have gone away."""
    try:
        typer.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # ``| head`` has seen enough, which is no failure.
        _give_up_stdout()
        raise typer.Exit(int(Exit.OK)) from None
    except OSError as error:
        _give_up_stdout()
        typer.echo(f"error: can't write the output: {error.strerror}", err=True)
        raise typer.Exit(int(Exit.UNEXPECTED)) from None


def _give_up_stdout() -> None:
    # What is still buffered must not fail once more at shutdown.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(error: SkipstoneError) -> Exit:
    """The exit code that stands for an error."""
    if isinstance(error, PredicateError):
        return Exit.PREDICATE
    return Exit.FILE if isinstance(error, FileError) else Exit.OTHER


def error_line(error: SkipstoneError) -> str:
    """The error in one line: where, what, and the next step."""
    from skipstone.explain.lines import clean

    column = f"column {error.column}" if error.column else None
    parts = [part for part in (error.path, error.unit, column) if part]
    text = f"error: {', '.join(parts)}: {error.message}" if parts else f"error: {error.message}"
    hint = f"; hint: {error.hint}" if error.hint else ""
    return clean(" ".join(f"{text}{hint}".split()))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    emit(json.dumps(value, indent=2, ensure_ascii=not unicode, allow_nan=False))


@dataclass(frozen=True, slots=True)
class Screen:
    """Where text is drawn: how wide it is and whether it takes colours."""

    width: int
    color: bool


def screen() -> Screen:
    """Standard output: colours on a terminal only, and not against NO_COLOR."""
    from rich.console import Console

    found = Console(file=sys.stdout)
    # Rich takes 80 columns where there is no terminal to ask; in a pipe nobody needs the cuts.
    piped = not found.is_terminal and "COLUMNS" not in os.environ
    color = found.is_terminal and not found.no_color and found.color_system is not None
    return Screen(_PIPE_WIDTH if piped else found.width, color)
