"""The app: every command, the options before them, and the way in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from skipstone.cli.agg import agg
from skipstone.cli.count import count
from skipstone.cli.explain import explain
from skipstone.cli.index import INDEX_COMMANDS
from skipstone.cli.ingest import ingest
from skipstone.cli.inspect import inspect
from skipstone.cli.output import EXIT_CODES
from skipstone.cli.prune import prune
from skipstone.cli.query import query
from skipstone.cli.snapshots import snapshots
from skipstone.cli.table_names import tables
from skipstone.cli.verify import verify

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
_INDEX = "Build, look at and drop the index of a lake, which spares opening its files' footers."


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
    """Answers selective questions about Parquet files by touching only what can hold the answer."""


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
        _forgiving(stream)
    app()


def _forgiving(stream: Any) -> None:
    # File names may be no valid text, and a terminal may know fewer characters than we draw with.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
