"""``skipstone inspect`` and ``describe``: facts about a file, a table or a lake."""

from __future__ import annotations

from typing import Annotated

import typer

from skipstone.cli.options import (
    ColumnsOption,
    Format,
    FormatOption,
    LakeArgument,
    Opening,
    SnapshotOption,
    SourceOptions,
    StayOption,
    grouped,
    key_values,
    named_columns,
    split_names,
)
from skipstone.cli.output import check_file, forgo_pandas, guarded, show
from skipstone.cli.progress import progress


@grouped
def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|TABLE",
            help="Parquet file, as a path or a URI such as s3://bucket/key; or an Iceberg table, as a name "
            "with --catalog or as its metadata file.",
        ),
    ],
    columns: ColumnsOption = None,
    row_groups: Annotated[
        bool, typer.Option("--row-groups", help="List row groups, with the bounds of --columns.")
    ] = False,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="COLUMN", help="List the pages of COLUMN.")
    ] = None,
    format: FormatOption = Format.TEXT,
    snapshot: SnapshotOption = None,
    stay_below_root: StayOption = False,
    *,
    source: SourceOptions,
) -> None:
    """Show the schema, sizes, statistics and clustering of a Parquet file.

    For a table: schema, partition specs, data files, delete files and manifests.
    """
    names = split_names(columns)
    if source.is_table(file):
        for option, used in (("--columns", names), ("--row-groups", row_groups), ("--pages", pages)):
            if used:
                raise typer.BadParameter("needs a file, not a table", param_hint=option)
        with guarded():
            from skipstone.inspection.table import inspect_table

            opened = source.open_table(file, snapshot, stay_below_root=stay_below_root)
            show(inspect_table(opened), format)
        return
    for option, used in (("--snapshot", snapshot is not None), ("--stay-below-root", stay_below_root)):
        if used:
            raise typer.BadParameter("needs a table", param_hint=option)
    options = key_values(source.storage_option)
    with guarded():
        check_file(file, "`skipstone explain`")
        forgo_pandas()
        from skipstone.inspection.file import inspect_file

        inspected = inspect_file(
            file, columns=names, pages=pages, row_groups=row_groups, storage_options=options
        )
        show(inspected, format)


@grouped
def describe(
    lake: LakeArgument,
    columns: ColumnsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Show the type, minimum, maximum, NULLs and size of each column, from the footers of all files."""
    with guarded():
        forgo_pandas()
        opened = opening.open(lake)
        with progress("reading footers", opened):
            statistics = opened.statistics(named_columns(columns, "--columns"))
        show(statistics, format)
