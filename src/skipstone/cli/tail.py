"""``skipstone tail``: the unflushed writes of a keyed table."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import EXIT_CODES, emit, guarded, print_json, show
from skipstone.cli.tables import TableName
from skipstone.report.units import plural


@grouped
def status(table: TableName, format: FormatOption = Format.TEXT, *, source: SourceOptions) -> None:
    """Show the unflushed writes, the location of their log, and the process that writes to it."""
    with guarded():
        show(source.open_table(table).tail_status(), format)


@grouped
def flush(
    table: TableName,
    format: FormatOption = Format.TEXT,
    drop_damaged: Annotated[
        bool,
        typer.Option(
            "--drop-damaged", help="If the log is damaged, give up the calls from the first damage on."
        ),
    ] = False,
    *,
    source: SourceOptions,
) -> None:
    """Recover the unflushed rows that an earlier process left, and commit them."""
    with guarded():
        opened = source.open_table(table)
        found = None if drop_damaged else opened.tail_status()
        if found is None or found.calls or found.torn:
            with opened.writer(on_damage="drop" if drop_damaged else "error") as writer:
                found = writer.recovered
        if format is Format.JSON:
            answer = {"table": opened.name, "calls": found.calls, "snapshot": opened.snapshot}
            print_json({**answer, "dropped_bytes": found.torn, "lost_calls": found.lost})
            return
        if found.calls:
            emit(f"flushed {plural(found.calls, 'call')} of {opened.name}; its snapshot is {opened.snapshot}")
        else:
            emit(f"{opened.name} has nothing to flush")
        if found.lost:
            lost = plural(found.lost, "synced call")
            emit(f"dropped {plural(found.torn, 'byte')} of damaged calls, among them {lost}")
        elif found.torn:
            emit(f"dropped {plural(found.torn, 'byte')} of calls that were not synced and are not whole")


tail = typer.Typer(
    name="tail",
    add_completion=False,
    no_args_is_help=True,
    help="Show and flush the tail of a keyed table: its unflushed writes in the write-ahead log.",
    epilog=EXIT_CODES,
)
tail.command(epilog=EXIT_CODES)(status)
tail.command(epilog=EXIT_CODES)(flush)
