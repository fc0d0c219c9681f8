"""``skipstone agg``: counts, sums, quantiles and the like, of all rows that match or of groups of them."""

from __future__ import annotations

import functools
import operator
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone.cli.answers import AnswerFormat, Shown
from skipstone.cli.engine import Cluster, EngineName, EngineOption, engine_arguments, job_guarded
from skipstone.cli.groups import grouped
from skipstone.cli.options import (
    AnyWhereOption,
    DialectOption,
    ForceOption,
    LakeArgument,
    OutputOption,
    Reading,
    SkippingOption,
    ZoneOption,
    named_columns,
    named_format,
    open_scan,
    read_where,
)
from skipstone.cli.output import screen
from skipstone.cli.progress import progress, steps
from skipstone.cli.sink import check_output

_MEMBERS = "Sets of rows"
_IDS = (
    "a roaring bitmap as pyroaring serialises it (BitMap or BitMap64), text with an id per line, "
    "a .npy array, or a Parquet file, of which the column of the same name or the only one is taken; "
    "- is standard input"
)


IdsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ids",
        dir_okay=False,
        allow_dash=True,
        metavar="FILE",
        help=f"Only rows with these ids: {_IDS}. May be repeated: an id must be in all of them.",
        rich_help_panel=_MEMBERS,
    ),
]
NotIdsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--not-ids",
        dir_okay=False,
        allow_dash=True,
        metavar="FILE",
        help="Only rows without these ids, in a file like those of --ids; rows without an id stay.",
        rich_help_panel=_MEMBERS,
    ),
]
IdColumnOption = Annotated[
    str | None,
    typer.Option(
        "--id-column",
        metavar="COLUMN",
        help="The column of the ids; without it they are places of rows in the lake, from 0 on, "
        "files by path, then rows.",
        rich_help_panel=_MEMBERS,
    ),
]


@grouped
def agg(
    lake: LakeArgument,
    functions: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTIONS",
            help='As after SELECT: "count(*), sum(amount) as total". Also min, max, avg, var, var_pop, '
            "stddev, stddev_pop, approx_distinct, median, quantile(x, 0.9), approx_quantile, "
            "histogram(x, 10), first(x, ts), last(x, ts); a list of values is array(0.5, 0.9).",
        ),
    ],
    where: AnyWhereOption = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option("--group-by", metavar="A,B", help="One answer for each combination of values."),
    ] = None,
    ids: IdsOption = None,
    not_ids: NotIdsOption = None,
    id_column: IdColumnOption = None,
    cached: Annotated[
        bool,
        typer.Option(
            "--cached/--no-cached",
            help="Take answers from metadata where they are known; without, every row that counts is read.",
        ),
    ] = True,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Show answers while they improve; as json one object per line, the last is final.",
        ),
    ] = False,
    format: Annotated[
        AnswerFormat | None,
        typer.Option(
            "--format",
            help="text for people; json; csv, parquet, arrow: a row per group. "
            "By default what the name of --output ends in, else text.",
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also tell on standard error what metadata answered, what was read, and why."
        ),
    ] = False,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    skipping: SkippingOption = True,
    engine: EngineOption = EngineName.LOCAL,
    *,
    cluster: Cluster,
    reading: Reading,
) -> None:
    """Aggregate the rows that match; what metadata knows is not read."""
    engine_arguments(engine, cluster, reading.threads)
    check_output(output, force=force)
    format = format or named_format(output, AnswerFormat, AnswerFormat.TEXT)
    _check(format, ids, not_ids, id_column, stream=stream, output=output)
    began = time.perf_counter()
    with job_guarded(), ExitStack() as stack:
        from skipstone.cli.functions import read_functions

        asked = read_functions(functions, dialect, tz)
        scan = open_scan(lake, read_where(where, dialect, tz), reading, skipping=skipping)
        within = _members(ids, id_column, operator.and_)
        without = _members(not_ids, id_column, operator.or_)
        session = _session(stack, cluster) if engine is EngineName.SPARK else None
        answer = scan.aggregate(
            *asked,
            group_by=named_columns(group_by, "--group-by") or [],
            within=within,
            without=without,
            use_cached=cached,
            engine=session,
        )
        shown = Shown(answer, scan.lake, grouped=bool(group_by), began=began)
        if stream:
            shown.stream(format)
        else:
            with progress("aggregating", scan.lake):
                table = answer.to_arrow()
            shown.put(table, format, output, explain=explain, force=force)
        if explain and format is not AnswerFormat.JSON:
            on = screen(sys.stderr)
            typer.echo(shown.explained(on), err=True, color=True)


def _check(
    format: AnswerFormat,
    ids: Sequence[Path] | None,
    not_ids: Sequence[Path] | None,
    id_column: str | None,
    *,
    stream: bool,
    output: Path | None,
) -> None:
    """Refuse options that make no sense together."""
    if id_column is not None and not (ids or not_ids):
        raise typer.BadParameter("that is for --ids and --not-ids", param_hint="--id-column")
    if stream and output is not None:
        raise typer.BadParameter("answers that improve are for standard output", param_hint="--output")
    if stream and format not in (AnswerFormat.TEXT, AnswerFormat.JSON):
        raise typer.BadParameter("--stream is for text and json", param_hint="--format")
    if format in (AnswerFormat.PARQUET, AnswerFormat.ARROW) and output is None and sys.stdout.isatty():
        raise typer.BadParameter(
            f"{format} is not for terminals; give --output, or send it to a file or a pipe",
            param_hint="--format",
        )


def _members(paths: Sequence[Path] | None, column: str | None, join: Any) -> Any:
    """The sets in some files as one; None for no files."""
    if not paths:
        return None
    import skipstone as sk
    from skipstone.cli.ids import read_ids

    return functools.reduce(join, (sk.members(read_ids(path, column), column) for path in paths))


def _session(stack: ExitStack, cluster: Cluster) -> Any:
    with steps("starting Spark"):
        return stack.enter_context(cluster.session())
