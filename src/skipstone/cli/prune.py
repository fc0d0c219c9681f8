"""``skipstone prune``: which rows of a file can match, and why the others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.output import (
    FileArgument,
    Format,
    FormatOption,
    StorageOption,
    emit,
    guarded,
    print_json,
    screen,
    storage_options,
)

if TYPE_CHECKING:
    from skipstone.prune import PruneResult


def prune(
    file: FileArgument,
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help="The condition, as in a WHERE clause.")
    ],
    dialect: Annotated[
        str, typer.Option(help="SQL dialect of --where: spark, hive, trino, presto or duckdb.")
    ] = "spark",
    tz: Annotated[str, typer.Option(help="Time zone of timestamps written without one.")] = "UTC",
    page_index: Annotated[
        bool, typer.Option("--page-index/--no-page-index", help="Look at the bounds of pages.")
    ] = True,
    bloom: Annotated[
        bool, typer.Option("--bloom/--no-bloom", help="Look values up in bloom filters.")
    ] = True,
    dictionary: Annotated[
        bool,
        typer.Option("--dictionary", help="Read dictionaries as well: more bytes, sometimes more drops."),
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
    from skipstone.explain import trace_to_json

    return {
        **trace_to_json(result.trace),
        "row_groups": result.row_groups,
        "rows": [list(span) for span in result.rows.ranges()],
        "row_selection": [list(step) for step in result.row_selection()],
    }


def _draw(result: PruneResult, *, ranges: bool) -> None:
    from skipstone.explain import draw_trace
    from skipstone.explain.units import count

    on = screen()
    lines = [draw_trace(result.trace, width=on.width, color=on.color)]
    if ranges:
        lines.append(f"row groups: {', '.join(map(str, result.row_groups)) or 'none'}")
        lines += [f"rows {count(a)} to {count(b - 1)}  ({count(b - a)})" for a, b in result.rows.ranges()]
    emit("\n".join(lines))
