"""The app: commands, global options and the entry point."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skipstone.cli import output
from skipstone.cli.output import EXIT_CODES

COMMANDS = {
    "inspect": "inspect",
    "schema": "inspect",
    "head": "query",
    "describe": "inspect",
    "layout": "layout",
    "query": "query",
    "explain": "explain",
    "count": "query",
    "agg": "agg",
    "verify": "explain",
    "prune": "explain",
    "ingest": "ingest",
    "compact": "compact",
    "maintain": "maintain",
    "upsert": "keyed",
    "delete": "keyed",
    "merge": "keyed",
    "get": "keyed",
    "changes": "keyed",
    "tail": "tail",
    "tables": "tables",
    "snapshots": "tables",
    "index": "index",
    "expire": "upkeep",
    "orphans": "upkeep",
    "manifests": "upkeep",
    "serve": "serve",
    "doctor": "doctor",
    "demo": "demo",
}
"""Commands in the order of the help, each with the module that defines it."""

# Typer's own name for this class moves between its versions.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """Loads the module of a command when it runs, or when its help is shown."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; usage errors name the next step."""
        args = [*getattr(ctx, "_protected_args", ()), *ctx.args]
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            from skipstone.cli.mistakes import explain

            explain(error, args)
            raise
        except KeyboardInterrupt as error:
            # While modules are loaded; Typer's own code would be 1.
            raise output.interrupted(error) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None if there is none of this name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            command = getattr(importlib.import_module(f"skipstone.cli.{COMMANDS[cmd_name]}"), cmd_name)
            if not isinstance(command, typer.Typer):
                function, command = command, typer.Typer(add_completion=False)
                command.command(epilog=EXIT_CODES)(function)
            self.add_command(typer.main.get_command(command), cmd_name)
        return super().get_command(ctx, cmd_name)


# Plain tracebacks: an unexpected error is a defect, and its report should paste well.
app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        from skipstone import __version__

        typer.echo(f"skipstone {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            metavar="",
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Query Parquet lakes and read only the pages that can match."""


def run() -> None:
    """Run the app in a process of its own."""
    output.own_process = True
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    app()


def _replace_unencodable(stream: Any) -> None:
    # File names may not be valid Unicode, and a terminal may lack characters of reports.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
