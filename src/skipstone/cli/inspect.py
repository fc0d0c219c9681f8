"""``skipstone inspect``: what a file is made of, and how well each column would skip."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.options import (
    ColumnsOption,
    FileArgument,
    Format,
    FormatOption,
    StorageOption,
    split_names,
    storage_options,
)
from skipstone.cli.output import emit, guarded, print_json, screen


def inspect(
    file: FileArgument,
    columns: ColumnsOption = None,
    row_groups: Annotated[
        bool, typer.Option("--row-groups", help="List the row groups, with the bounds of --columns.")
    ] = False,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="COLUMN", help="List the pages of one column.")
    ] = None,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
) -> None:
    """Show a file's facts: schema, sizes, statistics, indexes, and how well each column is clustered."""
    options = storage_options(storage_option)
    names = split_names(columns)
    with guarded():
        from skipstone.cli.inspection import gather

        found = gather(file, columns=names, pages=pages, storage_options=options)
        if format is Format.JSON:
            from skipstone.cli.inspect_json import to_json

            print_json(to_json(found, row_groups=row_groups))
        else:
            from skipstone.cli.inspect_text import draw
            from skipstone.explain.lines import paint

            on = screen()
            lines = draw(found, on.width, row_groups=row_groups, bounds_of=found.columns if names else ())
            emit("\n".join(paint(line, color=on.color) for line in lines).rstrip("\n"))
