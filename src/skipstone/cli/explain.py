"""``skipstone explain``: what a query reads and what it doesn't, and why."""

from __future__ import annotations

import enum
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipstone.cli.engine import Cluster, job_guarded
from skipstone.cli.groups import grouped
from skipstone.cli.options import (
    AnyWhereOption,
    ColumnsOption,
    DialectOption,
    ForceOption,
    LakeArgument,
    LimitOption,
    OrderOption,
    OutputOption,
    Reading,
    SkippingOption,
    ZoneOption,
    open_scan,
    read_where,
)
from skipstone.cli.output import emit, json_text, screen
from skipstone.cli.progress import progress, steps
from skipstone.cli.sink import check_output, open_output

if TYPE_CHECKING:
    from skipstone.report.trace.scan import ScanTrace, SparkUse
    from skipstone.report.why import Why
    from skipstone.scan.scan import Scan


class PlanFormat(enum.StrEnum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


class SparkRoute(enum.StrEnum):
    """How rows come to Spark."""

    AUTO = "auto"
    DRIVER = "driver"
    SLICES = "slices"
    READER = "reader"


@grouped
def explain(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    columns: ColumnsOption = None,
    order_by: OrderOption = None,
    limit: LimitOption = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the query as well, and tell what that took.")
    ] = False,
    why: Annotated[
        str | None, typer.Option("--why", metavar="PATH", help="Why this file was kept or dropped.")
    ] = None,
    row_group: Annotated[
        int | None,
        typer.Option("--row-group", min=0, metavar="N", help="With --why: this row group of the file."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", min=0, metavar="N", help="With --why: the page around this row of the file."),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also tell how the rows would come to a Spark data frame.")
    ] = False,
    route: Annotated[
        SparkRoute | None,
        typer.Option(
            "--route", help="With --spark: how they shall come; by default (auto) what suits the plan."
        ),
    ] = None,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    skipping: SkippingOption = True,
    format: Annotated[
        PlanFormat, typer.Option("--format", help="text or html for people, json for programs.")
    ] = PlanFormat.TEXT,
    output: OutputOption = None,
    force: ForceOption = False,
    *,
    cluster: Cluster,
    reading: Reading,
) -> None:
    """Show what a query reads, what it skips, and what let it skip that."""
    _check(why, row_group, row, format, analyze=analyze)
    _check_spark(why, route, cluster, spark=spark)
    check_output(output, force=force)
    with job_guarded(spark_only=True):
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            reading,
            columns=columns,
            order_by=order_by,
            limit=limit,
            skipping=skipping,
        )
        if why is not None:
            text = _why(scan.plan().why(why, row_group, row), format, to_file=output is not None)
        else:
            trace = _trace(scan, analyze=analyze)
            if spark:
                trace = replace(trace, spark=_spark_use(scan, cluster, route or SparkRoute.AUTO))
            text = _plan(trace, format, to_file=output is not None)
        _put(text, output, force=force)


def _check(
    why: str | None, row_group: int | None, row: int | None, format: PlanFormat, *, analyze: bool
) -> None:
    """Refuse options that make no sense together."""
    if why is None and (row_group is not None or row is not None):
        raise typer.BadParameter("name the file with --why", param_hint="--row-group, --row")
    if why is not None and analyze:
        raise typer.BadParameter("a plan tells why, without a run", param_hint="--analyze")
    if why is not None and format is PlanFormat.HTML:
        raise typer.BadParameter("--why is told as text or json", param_hint="--format")


def _check_spark(why: str | None, route: SparkRoute | None, cluster: Cluster, *, spark: bool) -> None:
    if spark and why is not None:
        raise typer.BadParameter("--why is about one file, whoever reads it", param_hint="--spark")
    if not spark:
        cluster.refuse("--spark")
        if route is not None:
            raise typer.BadParameter("that is for --spark", param_hint="--route")


def _why(found: Why, format: PlanFormat, *, to_file: bool) -> str:
    from skipstone.report.why import draw_why

    if format is PlanFormat.JSON:
        return json_text(found.to_json())
    on = screen()
    return draw_why(found, width=on.width, color=on.color and not to_file)


def _trace(scan: Scan, *, analyze: bool) -> ScanTrace:
    """The plan's trace, with a forecast of what it reads and, if asked for, with a run."""
    from skipstone.scan.forecast import forecast

    with progress("planning", scan.lake):
        plan = scan.plan()
        trace = replace(plan.trace, reads=forecast(plan))
    if not analyze:
        return trace
    ran = scan.execute()
    known = plan.rows if plan.residual is None else None
    with progress("running", scan.lake, rows=known) as advance, closing(ran.to_batches()) as batches:
        for batch in batches:
            advance(batch.num_rows)
    return replace(trace, run=ran.trace.run)


def _spark_use(scan: Scan, cluster: Cluster, route: SparkRoute) -> SparkUse:
    """The way to a session of this cluster, whose cores and time zone count."""
    from skipstone.spark.frames import told_by, way_of

    plan = scan.plan()
    with steps("starting Spark"), cluster.session() as session:
        return way_of(plan, session, route.value, told=told_by(scan.lake)).use


def _plan(trace: ScanTrace, format: PlanFormat, *, to_file: bool) -> str:
    from skipstone.report import draw_scan, scan_to_json, scan_to_page

    if format is PlanFormat.JSON:
        return json_text(scan_to_json(trace))
    if format is PlanFormat.HTML:
        return scan_to_page(trace)
    on = screen()
    return draw_scan(trace, width=on.width, color=on.color and not to_file)


def _put(text: str, output: Path | None, *, force: bool) -> None:
    if output is None:
        emit(text)
        return
    with open_output(output, force=force) as out:
        out.write((text.rstrip("\n") + "\n").encode(errors="backslashreplace"))
