"""``skipstone tail``: the unflushed writes of a keyed table."""

from __future__ import annotations

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import EXIT_CODES, emit, guarded, print_json, show
from skipstone.cli.tables import TableName


@grouped
def status(table: TableName, format: FormatOption = Format.TEXT, *, source: SourceOptions) -> None:
    """Show what is not flushed yet, where it is, and which process writes to it."""
    with guarded():
        show(source.open_table(table).tail_status(), format)


@grouped
def flush(table: TableName, format: FormatOption = Format.TEXT, *, source: SourceOptions) -> None:
    """Recover the unflushed rows that an earlier process left, and commit them."""
    with guarded():
        opened = source.open_table(table)
        before = opened.tail_status()
        if before.calls:
            with opened.writer():
                pass
        if format is Format.JSON:
            print_json({"table": opened.name, "calls": before.calls, "snapshot": opened.snapshot})
        elif before.calls:
            calls = "1 call" if before.calls == 1 else f"{before.calls:,} calls"
            emit(f"flushed {calls} of {opened.name}; its snapshot is {opened.snapshot}")
        else:
            emit(f"{opened.name} has nothing to flush")


tail = typer.Typer(
    name="tail",
    add_completion=False,
    no_args_is_help=True,
    help="Show and flush the tail of a keyed table: writes that are in its write-ahead log only.",
    epilog=EXIT_CODES,
)
tail.command(epilog=EXIT_CODES)(status)
tail.command(epilog=EXIT_CODES)(flush)
