"""``skipstone maintain``: recommended maintenance of a table, and running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    DialectOption,
    Format,
    FormatOption,
    JobEngine,
    JobEngineOption,
    JobThreadsOption,
    SourceOptions,
    ZoneOption,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    parse,
)
from skipstone.cli.output import Exit, show
from skipstone.cli.progress import steps
from skipstone.cli.upkeep import TableArgument


@grouped
def maintain(
    table: TableArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Do what is recommended.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="A,B", help="With --apply: do exactly these tasks."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", metavar="SQL", help="Condition of a typical query; repeatable."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Query log, as for `index advise`."),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, metavar="N", help="Maximum number of files to sample.")
    ] = 16,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    engine: JobEngineOption = JobEngine.AUTO,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    cluster: ClusterOptions,
    source: SourceOptions,
) -> None:
    """Propose maintenance tasks for an Iceberg table, with their savings; --apply runs them.

    Queries (--where or --log) determine which row order is worth a rewrite.
    """
    if where and log is not None:
        raise typer.BadParameter("use --where or --log, not both", param_hint="--log")
    if only is not None and not apply:
        raise typer.BadParameter("needs --apply", param_hint="--only")
    work = engine_arguments(engine, cluster, threads)
    with job_guarded():
        queries: Any = log if log is not None else [parse(one, dialect, tz) for one in where or ()]
        queries = queries or None
        opened = source.open_table(table)
        if not apply:
            with steps("examining"):
                proposal = opened.maintenance(queries, sample=sample)
            named = [part for one in where or () for part in ("--where", one)]
            named += [] if log is None else ["--log", str(log)]
            arguments = (table, *source.arguments())
            show(replace(proposal, arguments=arguments, options=tuple(named)), format)
            return
        chosen: Any = named_columns(only, "--only")
        with steps("examining", {"rewriting": "row", "committing": "group", "indexing": "file"}) as bar:
            progress = None if bar is None else bar.update
            report = opened.maintain(only=chosen, queries=queries, sample=sample, progress=progress, **work)
        show(report, format)
        if report.failed:
            raise typer.Exit(int(Exit.OTHER))
