"""``skipstone index``: build, refresh, show, advise on and drop the index of a lake."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    DialectOption,
    EngineName,
    EngineOption,
    Format,
    FormatOption,
    LakeArgument,
    Opening,
    ZoneOption,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    parse,
    working,
)
from skipstone.cli.output import EXIT_CODES, emit, print_json, show
from skipstone.cli.progress import Steps, steps

if TYPE_CHECKING:
    from skipstone.api import Lake, Table

_content = partial(typer.Option, rich_help_panel="What is recorded")
JobThreadsOption = Annotated[
    int | None,
    working("--threads", min=1, metavar="N", help="Threads of the local engine; by default one per core."),
]


@grouped
def build(
    lake: LakeArgument,
    columns: Annotated[
        list[str] | None,
        _content(
            "--columns",
            metavar="A,B,S.X",
            help="Columns to index, whose values are read where footers don't say enough; "
            "by default the first 32 comparable ones, from footers alone.",
        ),
    ] = None,
    blooms: Annotated[
        list[str] | None,
        _content(
            "--blooms",
            metavar="A,B",
            help="Make bloom filters for these columns, one per page; reads their values.",
        ),
    ] = None,
    no_blooms: Annotated[
        bool, _content("--no-blooms", help="Don't copy the bloom filters of files.")
    ] = False,
    pages: Annotated[bool, _content("--pages/--no-pages", help="Go down to pages.")] = True,
    values: Annotated[
        bool | None,
        _content(
            "--values/--no-values",
            help="Read values for what footers don't say: pages of files without a page index, NaN counts. "
            "By default for columns that are named.",
            show_default=False,
        ),
    ] = None,
    sums: Annotated[bool, _content("--sums", help="Add sums of the numeric columns; reads them.")] = False,
    sketches: Annotated[
        bool,
        _content(
            "--sketches",
            help="Add sketches for estimates of distinct counts and quantiles; reads the columns.",
        ),
    ] = False,
    ids: Annotated[
        list[str] | None,
        _content(
            "--ids",
            help="Integer id columns: where one counts up from row to row, "
            "`agg` with sets of ids need not read it.",
            show_default=False,
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Ignore what the index holds already.")] = False,
    engine: EngineOption = EngineName.SPARK,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    cluster: ClusterOptions,
    opening: Opening,
) -> None:
    """Index a lake; files that an earlier build indexed with the same options are not indexed again."""
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
    engine: EngineOption = EngineName.SPARK,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    *,
    cluster: ClusterOptions,
    opening: Opening,
) -> None:
    """Index new and changed files and drop those that are gone, with the options of the last build."""
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
    """Show what the index covers, how old and how large it is, and what it holds."""
    with job_guarded():
        show(opening.open(lake).index.status(), format)


@grouped
def advise(
    lake: LakeArgument,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="SQL", help="A condition that queries have; may be repeated."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help='A query log: on each line a condition, a SELECT, or {"where": ..., "count": ...}.',
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, metavar="N", help="Files to sample, at most.")
    ] = 64,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    format: FormatOption = Format.TEXT,
    *,
    opening: Opening,
) -> None:
    """Recommend columns and bloom filters to index, and the order of rows that would help most."""
    if where and log is not None:
        raise typer.BadParameter("give --where or --log, not both", param_hint="--log")
    with job_guarded():
        queries: Any = log if log is not None else [parse(one, dialect, tz) for one in where or ()]
        show(opening.open(lake).index.advise(queries or None, sample=sample), format)


@grouped
def drop(
    lake: LakeArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    *,
    opening: Opening,
) -> None:
    """Delete the index; the lake's own files stay as they are."""
    from skipstone.report.units import plural, size

    with job_guarded():
        opened = opening.open(lake)
        found = opened.index.status()
        if not found.exists:
            emit(f"no index in {found.place}")
            return
        covers = f"{plural(found.covered, 'file')}, {size(found.sizes.total + found.old_bytes)}"
        if not yes and not _agreed(f"Delete the index in {found.place} ({covers})?"):
            emit("nothing was deleted")
            return
        opened.index.drop()
        emit(f"deleted the index in {found.place}")


index = typer.Typer(
    name="index",
    no_args_is_help=True,
    add_completion=False,
    help="Manage the metadata index of a lake, which replaces footer reads.",
    epilog=EXIT_CODES,
)
for _command in (build, refresh, status, advise, drop):
    index.command(epilog=EXIT_CODES)(_command)


# -- what they share ---------------------------------------------------------------------------


def _progress(bar: Steps | None) -> Callable[[int, int], None] | None:
    return None if bar is None else lambda done, total: bar.update("indexing", done, total)


def _show_report(lake: Lake | Table, report: Any, format: Format) -> None:
    if format is Format.JSON:
        print_json({"lake": lake.uri, "place": lake.index.uri, **report.to_json()})
    else:
        show(report, format)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "not a terminal, so nobody can confirm; give --yes to delete the index", param_hint="--yes"
        )
    return typer.confirm(question, err=True)
