"""``skipstone inspect``: what a file or a table is made of, and how well each column of a file would skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skipstone.cli.groups import grouped
from skipstone.cli.options import (
    ColumnsOption,
    Format,
    FormatOption,
    SnapshotOption,
    Source,
    StayOption,
    split_names,
    storage_options,
)
from skipstone.cli.output import emit, guarded, print_json, screen
from skipstone.report.lines import paint

if TYPE_CHECKING:
    from skipstone.api import Table


@grouped
def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|TABLE",
            help="A Parquet file: a path or a URI such as s3://bucket/key. "
            "Or an Iceberg table: its name and --catalog, or its metadata file.",
        ),
    ],
    columns: ColumnsOption = None,
    row_groups: Annotated[
        bool, typer.Option("--row-groups", help="List the row groups, with the bounds of --columns.")
    ] = False,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="COLUMN", help="List the pages of one column.")
    ] = None,
    format: FormatOption = Format.TEXT,
    snapshot: SnapshotOption = None,
    stay_below_root: StayOption = False,
    *,
    source: Source,
) -> None:
    """Show a file's facts: schema, sizes, statistics, indexes, and how well each column is clustered.

    Of a table its schema, partition specs, files, delete files and manifests.
    """
    names = split_names(columns)
    if source.is_table(file):
        for option, given in (("--columns", names), ("--row-groups", row_groups), ("--pages", pages)):
            if given:
                raise typer.BadParameter("that is for a file", param_hint=option)
        with guarded():
            opened = source.open_table(file, snapshot, stay_below_root=stay_below_root)
            _inspect_table(opened, format)
        return
    for option, asked in (("--snapshot", snapshot is not None), ("--stay-below-root", stay_below_root)):
        if asked:
            raise typer.BadParameter("that is for a table", param_hint=option)
    options = storage_options(source.storage_option)
    with guarded():
        from skipstone.cli.inspection import gather

        found = gather(file, columns=names, pages=pages, storage_options=options)
        if format is Format.JSON:
            from skipstone.cli.inspect_json import to_json

            print_json(to_json(found, row_groups=row_groups))
        else:
            from skipstone.cli.inspect_text import draw

            on = screen()
            lines = draw(found, on.width, row_groups=row_groups, bounds_of=found.columns if names else ())
            emit("\n".join(paint(line, color=on.color) for line in lines).rstrip("\n"))


def _inspect_table(table: Table, format: Format) -> None:
    from skipstone.cli.table_inspection import gather_table

    found = gather_table(table)
    if format is Format.JSON:
        print_json(found.to_json())
    else:
        from skipstone.cli.table_text import draw_table

        on = screen()
        lines = draw_table(found, on.width)
        emit("\n".join(paint(line, color=on.color) for line in lines).rstrip("\n"))
