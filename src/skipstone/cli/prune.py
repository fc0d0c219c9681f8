"""``skipstone prune``: which rows of a file can match, and why the others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    BloomOption,
    DialectOption,
    FileArgument,
    Format,
    FormatOption,
    PageIndexOption,
    StorageOption,
    WhereOption,
    ZoneOption,
    storage_options,
)
from skipstone.cli.output import emit, guarded, print_json, screen

if TYPE_CHECKING:
    from skipstone.prune import PruneResult


def prune(
    file: FileArgument,
    where: WhereOption,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    page_index: PageIndexOption = True,
    bloom: BloomOption = True,
    dictionary: Annotated[
        bool,
        typer.Option(
            "--dictionary",
            help="Read dictionaries as well: more bytes, sometimes more drops.",
            rich_help_panel="Reading",
        ),
    ] = False,
    ranges: Annotated[bool, typer.Option("--ranges", help="List the ranges of rows that may match.")] = False,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
) -> None:
    """Find the rows that can match a condition, from metadata alone, and show what dropped the rest."""
    options = storage_options(storage_option)
    with guarded():
        import skipstone as sk

        switches = sk.PruneOptions(page_index=page_index, bloom_filter=bloom, dictionary=dictionary)
        predicate = sk.parse(where, dialect=dialect, tz=tz)
        result = sk.prune(file, predicate, storage_options=options, options=switches)
        if format is Format.JSON:
            print_json(to_json(result))
        else:
            _draw(result, ranges=ranges)


def to_json(result: PruneResult) -> dict[str, Any]:
    """The trace and the answer: row groups, ranges of rows ``[start, stop)`` and the row selection."""
    from skipstone.report import trace_to_json

    return {
        **trace_to_json(result.trace),
        "row_groups": result.row_groups,
        "rows": [list(span) for span in result.rows.ranges()],
        "row_selection": [list(step) for step in result.row_selection()],
    }


def _draw(result: PruneResult, *, ranges: bool) -> None:
    from skipstone.report import draw_trace
    from skipstone.report.units import count

    on = screen()
    lines = [draw_trace(result.trace, width=on.width, color=on.color)]
    if ranges:
        lines.append(f"row groups: {', '.join(map(str, result.row_groups)) or 'none'}")
        lines += [f"rows {count(a)} to {count(b - 1)}  ({count(b - a)})" for a, b in result.rows.ranges()]
    emit("\n".join(lines))
