"""``skipstone index``: build, refresh, inspect and drop the index of a lake; advice on indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    DialectOption,
    Format,
    FormatOption,
    JobEngine,
    JobEngineOption,
    JobThreadsOption,
    LakeArgument,
    Opening,
    ZoneOption,
    confirm,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    parse,
)
from skipstone.cli.output import EXIT_CODES, emit, print_json, show
from skipstone.cli.progress import Steps, steps

if TYPE_CHECKING:
    from skipstone import Lake, Table

_content = partial(typer.Option, rich_help_panel="Index content")


@grouped
def build(
    lake: LakeArgument,
    columns: Annotated[
        list[str] | None,
        _content(
            "--columns",
            metavar="A,B,S.X",
            help="Columns to index; reads their values where footers lack statistics. "
            "Default: the first 32 comparable columns, from footers only.",
        ),
    ] = None,
    blooms: Annotated[
        list[str] | None,
        _content(
            "--blooms",
            metavar="A,B",
            help="Build bloom filters for these columns, one per page; reads their values.",
        ),
    ] = None,
    no_blooms: Annotated[
        bool, _content("--no-blooms", help="Don't copy bloom filters from the files.")
    ] = False,
    pages: Annotated[bool, _content("--pages/--no-pages", help="Index pages.")] = True,
    values: Annotated[
        bool | None,
        _content(
            "--values/--no-values",
            help="Read values where footers lack statistics: pages of files without a page index, NaN "
            "counts. Default: only for --columns.",
            show_default=False,
        ),
    ] = None,
    sums: Annotated[
        bool, _content("--sums", help="Store sums of numeric columns; reads their values.")
    ] = False,
    sketches: Annotated[
        bool,
        _content(
            "--sketches",
            help="Store sketches for approximate distinct counts and quantiles; reads the values.",
        ),
    ] = False,
    ids: Annotated[
        list[str] | None,
        _content(
            "--ids",
            metavar="A,B",
            help="Id columns for `agg --ids`; where ids are consecutive, `agg` doesn't read the id column.",
            show_default=False,
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Index all files again.")] = False,
    engine: JobEngineOption = JobEngine.AUTO,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    cluster: ClusterOptions,
    opening: Opening,
) -> None:
    """Build the index of a lake; files that are already indexed with the same options are skipped."""
    work = engine_arguments(engine, cluster, threads)
    named, filtered = named_columns(columns, "--columns"), named_columns(blooms, "--blooms")
    if filtered and no_blooms:
        raise typer.BadParameter("conflicts with --blooms", param_hint="--no-blooms")
    with job_guarded():
        opened = opening.open(lake)
        with steps("indexing", {"indexing": "file"}) as bar:
            report = opened.index.build(
                named,
                False if no_blooms else filtered,
                pages=pages,
                values=values,
                sums=sums,
                sketches=sketches,
                ids=named_columns(ids, "--ids") or (),
                rebuild=rebuild,
                progress=_progress(bar),
                **work,
            )
        _show_report(opened, report, format)


@grouped
def refresh(
    lake: LakeArgument,
    engine: JobEngineOption = JobEngine.AUTO,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    cluster: ClusterOptions,
    opening: Opening,
) -> None:
    """Index new and changed files, with the options of the last build."""
    work = engine_arguments(engine, cluster, threads)
    with job_guarded():
        opened = opening.open(lake)
        with steps("indexing", {"indexing": "file"}) as bar:
            report = opened.index.refresh(progress=_progress(bar), **work)
        _show_report(opened, report, format)


@grouped
def status(
    lake: LakeArgument,
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Show the coverage, age, size and content of the index."""
    with job_guarded():
        show(opening.open(lake).index.status(), format)


@grouped
def advise(
    lake: LakeArgument,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", metavar="SQL", help="Condition of a typical query; repeatable."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help='Query log: a condition, a SELECT or {"where": ..., "count": ...} per line.',
        ),
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
    """Recommend columns and bloom filters to index, and a row order."""
    if where and log is not None:
        raise typer.BadParameter("use --where or --log, not both", param_hint="--log")
    with job_guarded():
        queries: Any = log if log is not None else [parse(one, dialect, tz) for one in where or ()]
        advice = opening.open(lake).index.advise(queries or None, sample=sample)
        show(replace(advice, arguments=(lake, *opening.arguments())), format)


@grouped
def drop(
    lake: LakeArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    *,
    opening: Opening,
) -> None:
    """Delete the index; the files of the lake are not touched."""
    from skipstone.report.units import plural, size

    with job_guarded():
        opened = opening.open(lake)
        status = opened.index.status()
        if not status.exists:
            emit(f"no index in {status.location}")
            return
        covers = f"{plural(status.covered, 'file')}, {size(status.sizes.total + status.old_bytes)}"
        if not yes and not confirm(f"Delete the index in {status.location} ({covers})?"):
            emit("nothing was deleted")
            return
        opened.index.drop()
        emit(f"deleted the index in {status.location}")


index = typer.Typer(
    name="index",
    no_args_is_help=True,
    add_completion=False,
    help="Manage the index of a lake, which lets queries plan without reading file footers.",
    epilog=EXIT_CODES,
)
for _command in (build, refresh, status, advise, drop):
    index.command(epilog=EXIT_CODES)(_command)


def _progress(bar: Steps | None) -> Callable[[int, int], None] | None:
    return None if bar is None else lambda done, total: bar.update("indexing", done, total)


def _show_report(lake: Lake | Table, report: Any, format: Format) -> None:
    if format is Format.JSON:
        print_json({"lake": lake.uri, "location": lake.index.uri, **report.to_json()})
    else:
        show(report, format)
