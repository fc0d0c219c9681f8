"""``skipstone layout``: how well each column of a lake skips, today and under other orders of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone.cli.options import (
    ColumnsOption,
    DialectOption,
    Format,
    FormatOption,
    LakeArgument,
    Opening,
    ZoneOption,
    grouped,
    job_guarded,
    named_columns,
    parse,
)
from skipstone.cli.output import show
from skipstone.cli.progress import progress


@grouped
def layout(
    lake: LakeArgument,
    columns: ColumnsOption = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="SQL",
            help="Condition of a typical query, to compare orders by; repeatable.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Query log, as for `index advise`, to compare orders by."),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, metavar="N", help="Maximum number of files to sample.")
    ] = 64,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Show how much data each column lets queries skip, now and if rows were sorted or clustered.

    Reads footers, page indexes and some rows of a sample of files. Without conditions, values and ranges of
    every column are looked up.
    """
    if where and log is not None:
        raise typer.BadParameter("use --where or --log, not both", param_hint="--log")
    with job_guarded():
        queries: Any = log if log is not None else [parse(one, dialect, tz) for one in where or ()]
        opened = opening.open(lake)
        with progress("sampling", opened):
            measured = opened.layout(named_columns(columns, "--columns"), queries or None, sample=sample)
        show(replace(measured, arguments=(lake, *opening.arguments())), format)
