"""``skipstone tail``: the unflushed writes of a keyed table."""

from __future__ import annotations

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import EXIT_CODES, emit, guarded, print_json, show
from skipstone.cli.tables import TableName


@grouped
def status(table: TableName, format: FormatOption = Format.TEXT, *, source: SourceOptions) -> None:
    """Show the unflushed writes, the location of their log, and the process that writes to it."""
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
    help="Show and flush the tail of a keyed table: its unflushed writes in the write-ahead log.",
    epilog=EXIT_CODES,
)
tail.command(epilog=EXIT_CODES)(status)
tail.command(epilog=EXIT_CODES)(flush)
