"""``skipstone verify``: whether skipping changes an answer, which it never may."""

from __future__ import annotations

import typer

from skipstone.cli.groups import grouped
from skipstone.cli.options import (
    AnyWhereOption,
    ColumnsOption,
    DialectOption,
    Format,
    FormatOption,
    LakeArgument,
    LimitOption,
    OrderOption,
    Reading,
    ZoneOption,
    open_scan,
    read_where,
)
from skipstone.cli.output import Exit, emit, guarded, print_json, screen
from skipstone.cli.progress import progress


@grouped
def verify(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    columns: ColumnsOption = None,
    order_by: OrderOption = None,
    limit: LimitOption = None,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    format: FormatOption = Format.TEXT,
    *,
    reading: Reading,
) -> None:
    """Run a query with skipping and without, and report every difference."""
    with guarded():
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            reading,
            columns=columns,
            order_by=order_by,
            limit=limit,
        )
        with progress("verifying", scan.lake):
            found = scan.verify()
        if format is Format.JSON:
            print_json(found.to_json())
        else:
            from skipstone.report.verify import draw_verification

            on = screen()
            emit(draw_verification(found, width=on.width, color=on.color))
        if not found.ok:
            raise typer.Exit(int(Exit.DIFFERENT))
