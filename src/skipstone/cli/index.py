"""``skipstone index``: build, refresh, look at, be advised on, and drop the index of a lake."""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    DialectOption,
    Format,
    FormatOption,
    IndexRootOption,
    LakeArgument,
    StorageOption,
    ZoneOption,
    read_where,
    split_names,
    storage_options,
)
from skipstone.cli.output import emit, guarded, print_json, screen
from skipstone.errors import JobError, UsageError

if TYPE_CHECKING:
    from skipstone.api import Lake

# Work that is done before anyone looks needs no bar.
_PATIENCE = 0.5


class EngineName(enum.StrEnum):
    """Where the work is done."""

    SPARK = "spark"
    LOCAL = "local"


_WORK = "Working"
_CONTENT = "What is recorded"
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="spark: on a Spark cluster, or on one of its own; local: on threads of this process.",
        rich_help_panel=_WORK,
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark master, such as spark://host:7077; by default as Spark is set up, else local[*].",
        rich_help_panel=_WORK,
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server instead, such as sc://host:15002.",
        rich_help_panel=_WORK,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=_WORK
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Threads of the local engine; by default one per core.",
        rich_help_panel=_WORK,
    ),
]


def build(
    lake: LakeArgument,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="A,B,S.X",
            help="Columns to index, whose values are read where footers don't tell enough; "
            "by default the first 32 that can be compared, by their footers alone.",
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    blooms: Annotated[
        list[str] | None,
        typer.Option(
            "--blooms",
            metavar="A,B",
            help="Make bloom filters for these columns, one per page; reads their values.",
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    no_blooms: Annotated[
        bool,
        typer.Option(
            "--no-blooms", help="Don't take over the bloom filters of files.", rich_help_panel=_CONTENT
        ),
    ] = False,
    pages: Annotated[
        bool, typer.Option("--pages/--no-pages", help="Go down to pages.", rich_help_panel=_CONTENT)
    ] = True,
    values: Annotated[
        bool | None,
        typer.Option(
            "--values/--no-values",
            help="Read values for what footers don't tell: pages of files without a page index, NaN counts. "
            "By default for columns that are named.",
            rich_help_panel=_CONTENT,
            show_default=False,
        ),
    ] = None,
    sums: Annotated[
        bool,
        typer.Option("--sums", help="Add sums of the numeric columns; reads them.", rich_help_panel=_CONTENT),
    ] = False,
    sketches: Annotated[
        bool,
        typer.Option(
            "--sketches", help="Add DataSketches of the columns; reads them.", rich_help_panel=_CONTENT
        ),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Do without what the index holds already.")
    ] = False,
    engine: EngineOption = EngineName.SPARK,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    threads: ThreadsOption = None,
    format: FormatOption = Format.TEXT,
    index_root: IndexRootOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Index a lake; what an earlier build has done with the same choices is kept."""
    storage = storage_options(storage_option)
    work = _engine(engine, master, remote, conf, threads)
    named, filtered = _named(columns, "--columns"), _named(blooms, "--blooms")
    if filtered and no_blooms:
        raise typer.BadParameter("--blooms asks for some", param_hint="--no-blooms")
    with _guarded():
        opened = _open(lake, index_root, storage)
        with _bar() as progress:
            report = opened.index.build(
                named,
                False if no_blooms else filtered,
                pages=pages,
                values=values,
                sums=sums,
                sketches=sketches,
                rebuild=rebuild,
                progress=progress,
                **work,
            )
        _show_report(opened, report, format)


def refresh(
    lake: LakeArgument,
    engine: EngineOption = EngineName.SPARK,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    threads: ThreadsOption = None,
    format: FormatOption = Format.TEXT,
    index_root: IndexRootOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Index files that are new or have changed and drop those that are gone, as the last build was asked."""
    storage = storage_options(storage_option)
    work = _engine(engine, master, remote, conf, threads)
    with _guarded():
        opened = _open(lake, index_root, storage)
        with _bar() as progress:
            report = opened.index.refresh(progress=progress, **work)
        _show_report(opened, report, format)


def status(
    lake: LakeArgument,
    format: FormatOption = Format.TEXT,
    index_root: IndexRootOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Show what the index covers, how old and how large it is, and what it holds."""
    storage = storage_options(storage_option)
    with _guarded():
        found = _open(lake, index_root, storage).index.status()
        if format is Format.JSON:
            print_json(found.to_json())
        else:
            from skipstone.explain.status_text import draw_status

            on = screen()
            emit(draw_status(found, width=on.width, color=on.color))


def advise(
    lake: LakeArgument,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="SQL", help="A condition that is asked; may be repeated."),
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
        int, typer.Option("--sample", min=1, metavar="N", help="How many files are looked at, at most.")
    ] = 64,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    format: FormatOption = Format.TEXT,
    index_root: IndexRootOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Tell which columns and bloom filters are worth an index, and which order of rows would help most."""
    storage = storage_options(storage_option)
    if where and log is not None:
        raise typer.BadParameter("conditions come from --where or from a log", param_hint="--log")
    with _guarded():
        queries: Any = log if log is not None else [read_where(one, dialect, tz) for one in where or ()]
        found = _open(lake, index_root, storage).index.advise(queries or None, sample=sample)
        if format is Format.JSON:
            print_json(found.to_json())
        else:
            from skipstone.explain.advice import draw_advice

            on = screen()
            emit(draw_advice(found, width=on.width, color=on.color))


def drop(
    lake: LakeArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    index_root: IndexRootOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Delete the index; the lake's own files stay as they are."""
    from skipstone.explain.units import plural, size

    storage = storage_options(storage_option)
    with _guarded():
        opened = _open(lake, index_root, storage)
        found = opened.index.status()
        if not found.exists:
            emit(f"there is no index in {found.place}")
            return
        covers = f"{plural(found.covered, 'file')}, {size(found.sizes.total + found.old_bytes)}"
        if not yes and not _agreed(f"Delete the index in {found.place} ({covers})?"):
            emit("nothing was deleted")
            return
        opened.index.drop()
        emit(f"deleted the index in {found.place}")


INDEX_COMMANDS: tuple[Callable[..., None], ...] = (build, refresh, status, advise, drop)
"""Each by the name of its function, in the order of the help."""


# -- what they share ---------------------------------------------------------------------------


def _open(lake: str, index_root: str | None, storage: dict[str, str]) -> Lake:
    import skipstone as sk

    return sk.open(lake, storage_options=storage or None, index_root=index_root)


def _named(names: list[str] | None, option: str) -> list[str] | None:
    found = split_names(names)
    if names is not None and not found:
        raise typer.BadParameter("name a column", param_hint=option)
    return found or None


def _engine(
    engine: EngineName,
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    threads: int | None,
) -> dict[str, Any]:
    """What ``open_engine`` takes; options that make no sense together are refused."""
    of_spark = {"--master": master, "--remote": remote, "--conf": conf}
    given = [name for name, value in of_spark.items() if value is not None]
    if engine is EngineName.LOCAL:
        if given:
            raise typer.BadParameter("that is for --engine spark", param_hint=given[0])
        return {"engine": "local", "threads": threads}
    if threads is not None:
        raise typer.BadParameter(
            "that is for --engine local; Spark has --master 'local[N]'", param_hint="--threads"
        )
    if master is not None and remote is not None:
        raise typer.BadParameter("give --master or --remote, not both", param_hint="--remote")
    settings = storage_options(conf, "--conf") or None
    return {"engine": "spark", "master": master, "remote": remote, "conf": settings}


@contextmanager
def _guarded() -> Iterator[None]:
    """As every command; what errors say of Python's arguments is said of options."""
    with guarded():
        try:
            yield
        except (JobError, UsageError) as error:
            error.hint = error.hint and error.hint.replace('engine="local"', "--engine local")
            raise


def _show_report(lake: Lake, report: Any, format: Format) -> None:
    from skipstone.explain.report import draw_report, report_to_json

    if format is Format.JSON:
        print_json({"lake": lake.uri, "place": lake.index.uri, **report_to_json(report)})
        return
    on = screen()
    emit(draw_report(report, width=on.width, color=on.color))


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask; give --yes to delete the index", param_hint="--yes")
    return typer.confirm(question, err=True)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """Tell how many files are done, on a terminal only; gone when all are."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shown = Progress(
        TextColumn("indexing"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("", total=None, said="")

    def told(done: int, total: int) -> None:
        shown.update(task, completed=done, total=total, said=f"{done:,} of {total:,} files")

    timer = threading.Timer(_PATIENCE, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        shown.stop()
