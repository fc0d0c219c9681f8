"""``skipstone inspect``, ``schema`` and ``describe``: facts about a file, a lake or a table."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from skipstone.cli.options import (
    ColumnsOption,
    Format,
    FormatOption,
    LakeArgument,
    Opening,
    grouped,
    key_values,
    named_columns,
    split_names,
)
from skipstone.cli.output import forgo_pandas, guarded, show
from skipstone.cli.progress import progress


@grouped
def inspect(
    lake: LakeArgument,
    columns: ColumnsOption = None,
    row_groups: Annotated[
        bool, typer.Option("--row-groups", help="Of a file: list row groups, with the bounds of --columns.")
    ] = False,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="COLUMN", help="Of a file: list the pages of COLUMN.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Show the schema, sizes, statistics and clustering of a lake, a table or a file, and its index.

    Reads footers, or the manifests of a table, but no data. The clustering of a column says how much of the
    lake a look-up reads.
    """
    names = split_names(columns)
    table = opening.is_table(lake)
    file = not table and _is_file(lake)
    needs = {
        "a file": (("--row-groups", row_groups), ("--pages", pages)) if not file else (),
        "a lake or a file": (("--columns", names),) if table else (),
        "a lake or a table": (
            (("--index-root", opening.index_root), ("--stay-below-root", opening.stay_below_root))
            if file
            else ()
        ),
        "a table": (("--snapshot", opening.snapshot),) if not table else (),
    }
    for need, options in needs.items():
        for option, used in options:
            if used:
                raise typer.BadParameter(f"needs {need}", param_hint=option)
    with guarded():
        if table:
            from skipstone.inspection.table import inspect_table

            opened_table = opening.open_table(
                lake,
                opening.snapshot,
                index_root=opening.index_root,
                stay_below_root=opening.stay_below_root,
            )
            show(inspect_table(opened_table), format)
            return
        forgo_pandas()
        if file:
            from skipstone.inspection.file import inspect_file

            storage = key_values(opening.storage_option)
            inspected = inspect_file(
                lake, columns=names, pages=pages, row_groups=row_groups, storage_options=storage
            )
            show(inspected, format)
            return
        from skipstone.inspection.lake import inspect_lake

        opened = opening.open(lake)
        with progress("reading footers", opened):
            inspection = inspect_lake(opened, names)
        show(inspection, format)


def _is_file(lake: str) -> bool:
    """Whether ``lake`` names one file, by what is there or else by its extension."""
    named = lake.endswith((".parquet", ".parq", ".pq")) and not any(sign in lake for sign in "*?[")
    # Unlike pathlib's, these accept names that are too long.
    return os.path.isfile(lake) or (named and not os.path.isdir(lake))  # noqa: PTH112, PTH113


@grouped
def schema(lake: LakeArgument, format: FormatOption = Format.TEXT, *, opening: Opening) -> None:
    """Show the columns of a lake and their types."""
    with guarded():
        forgo_pandas()
        from skipstone.inspection.lake import LakeSchema

        show(LakeSchema(opening.open(lake)), format)


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
