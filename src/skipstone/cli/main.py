"""The app: every command, the options before them, and the way in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from skipstone.cli.agg import agg
from skipstone.cli.explain import explain, prune, verify
from skipstone.cli.index import INDEX_COMMANDS
from skipstone.cli.ingest import ingest
from skipstone.cli.inspect import inspect
from skipstone.cli.output import EXIT_CODES
from skipstone.cli.query import count, query
from skipstone.cli.tables import snapshots, tables

COMMANDS: tuple[Callable[..., None], ...] = (
    inspect,
    prune,
    query,
    explain,
    count,
    agg,
    verify,
    ingest,
    tables,
    snapshots,
)
"""Each by the name of its function, in the order of the help."""
_INDEX = "Manage the metadata index of a lake, which replaces footer reads."


def _version(wanted: bool) -> None:
    if wanted:
        from skipstone import __version__

        typer.echo(f"skipstone {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Answers selective queries on Parquet files by reading only what can hold the answer."""


def _make() -> typer.Typer:
    # Plain tracebacks: an unexpected error is a defect, and its report should paste well.
    made = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
    made.callback(epilog=EXIT_CODES)(_options)
    for command in COMMANDS:
        made.command(epilog=EXIT_CODES)(command)
    below = typer.Typer(no_args_is_help=True, help=_INDEX, epilog=EXIT_CODES)
    for command in INDEX_COMMANDS:
        below.command(epilog=EXIT_CODES)(command)
    made.add_typer(below, name="index")
    return made


app = _make()


def run() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    app()


def _replace_unencodable(stream: Any) -> None:
    # File names may not be valid text, and a terminal may lack characters that we draw with.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
