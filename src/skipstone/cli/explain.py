"""``skipstone explain``, ``verify`` and ``prune``: what a query reads, and a check of it."""

from __future__ import annotations

import enum
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from skipstone.cli.options import (
    BloomOption,
    ClusterOptions,
    ConditionOptions,
    ForceOption,
    Format,
    FormatOption,
    LakeArgument,
    OutputOption,
    PageIndexOption,
    ReadOptions,
    ShapeOptions,
    SkippingOption,
    StorageOption,
    grouped,
    job_guarded,
    key_values,
)
from skipstone.cli.options import (
    reading as reading_option,
)
from skipstone.cli.output import (
    Exit,
    check_file,
    check_output,
    drawn,
    emit,
    forgo_pandas,
    guarded,
    json_text,
    print_json,
    show,
    write_text,
)
from skipstone.cli.progress import progress, steps

if TYPE_CHECKING:
    from skipstone.report import Reported
    from skipstone.report.trace import ScanTrace, SparkUse
    from skipstone.scan.scan import Scan


class PlanFormat(enum.StrEnum):
    """Formats of plans."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


class SparkRoute(enum.StrEnum):
    """Routes of rows to Spark."""

    AUTO = "auto"
    DRIVER = "driver"
    SLICES = "slices"
    READER = "reader"


@grouped
def explain(
    lake: LakeArgument,
    *,
    condition: ConditionOptions,
    shape: ShapeOptions,
    analyze: Annotated[bool, typer.Option("--analyze", help="Also run the query and show its cost.")] = False,
    why: Annotated[
        str | None,
        typer.Option("--why", metavar="PATH", help="Explain why the file at PATH was kept or dropped."),
    ] = None,
    row_group: Annotated[
        int | None,
        typer.Option("--row-group", min=0, metavar="N", help="With --why: explain row group N of the file."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            "--row", min=0, metavar="N", help="With --why: explain the page that contains row N of the file."
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also show the route of the rows to a Spark data frame.")
    ] = False,
    route: Annotated[
        SparkRoute | None,
        typer.Option("--route", help="With --spark: the route to use. Default: auto."),
    ] = None,
    skipping: SkippingOption = True,
    format: Annotated[
        PlanFormat,
        typer.Option("--format", help="Output format: text or html for people, json for programs."),
    ] = PlanFormat.TEXT,
    output: OutputOption = None,
    force: ForceOption = False,
    cluster: ClusterOptions,
    reading: ReadOptions,
) -> None:
    """Show what a query reads, what it skips, and why."""
    if why is None and (row_group is not None or row is not None):
        raise typer.BadParameter("needs --why", param_hint="--row-group, --row")
    if why is not None and analyze:
        raise typer.BadParameter("can't be combined with --why", param_hint="--analyze")
    if why is not None and spark:
        raise typer.BadParameter("can't be combined with --why", param_hint="--spark")
    if not spark:
        cluster.refuse("--spark")
        if route is not None:
            raise typer.BadParameter("needs --spark", param_hint="--route")
    check_output(output, force=force)
    with job_guarded(spark_only=True):
        scan = condition.scan(lake, reading, skipping=skipping, spark=spark, **shape.arguments())
        result: Reported
        if why is not None:
            result = scan.plan().why(why, row_group, row)
            title = f"Why {result.path}"
        else:
            result = trace = _trace(scan, analyze=analyze)
            title = f"Scan of {trace.lake}"
            if spark:
                result = replace(trace, spark=_spark_use(scan, cluster, route or SparkRoute.AUTO))
        write_text(_text(result, title, format, color=output is None), output, force=force)


def _text(result: Reported, title: str, format: PlanFormat, *, color: bool) -> str:
    if format is PlanFormat.JSON:
        return json_text(result.to_json())
    from skipstone.report import render, tree_of

    return render(result, "html", title) if format is PlanFormat.HTML else drawn(tree_of(result), color=color)


def _trace(scan: Scan, *, analyze: bool) -> ScanTrace:
    """The trace of the plan, with a forecast of its reads and, if requested, with its run."""
    from skipstone.scan.forecast import forecast

    with progress("planning", scan.lake):
        plan = scan.plan()
        trace = replace(plan.trace, reads=forecast(plan))
    if not analyze:
        return trace
    ran = scan.execute()
    rows = plan.rows if plan.residual is None else None
    with progress("running", scan.lake, rows=rows) as advance, closing(ran.to_batches()) as batches:
        for batch in batches:
            advance(batch.num_rows)
    return replace(trace, run=ran.trace.run)


def _spark_use(scan: Scan, cluster: ClusterOptions, route: SparkRoute) -> SparkUse:
    """The route to a session of the cluster, which depends on its cores and time zone."""
    plan = scan.plan()
    with steps("starting Spark"), cluster.session() as session:
        # After the session, whose error names the extra that installs PySpark.
        from skipstone.spark.frames import route_of, stored_spark_schema

        return route_of(plan, session, route.value, stored=stored_spark_schema(scan.lake)).use


@grouped
def verify(
    lake: LakeArgument,
    *,
    condition: ConditionOptions,
    shape: ShapeOptions,
    format: FormatOption = Format.TEXT,
    reading: ReadOptions,
) -> None:
    """Run a query with and without skipping, and report every difference."""
    with guarded():
        scan = condition.scan(lake, reading, **shape.arguments())
        with progress("verifying", scan.lake):
            check = scan.verify()
        show(check, format)
        if not check.ok:
            raise typer.Exit(int(Exit.DIFFERENT))


@grouped
def prune(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Parquet file, as a path or a URI such as s3://bucket/key.")
    ],
    *,
    condition: ConditionOptions,
    page_index: PageIndexOption = True,
    bloom: BloomOption = True,
    dictionary: Annotated[
        bool,
        reading_option("--dictionary", help="Also read dictionaries, which can drop more row groups."),
    ] = False,
    ranges: Annotated[bool, typer.Option("--ranges", help="List the row ranges that may match.")] = False,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
) -> None:
    """Show which rows of a file can match, from its metadata alone."""
    options = key_values(storage_option)
    if condition.sql is None and not condition.where:
        raise typer.BadParameter('missing; give one such as "user_id = 42"', param_hint="CONDITION")
    with guarded():
        check_file(file, "`skipstone explain`")
        forgo_pandas()
        import skipstone as sk

        switches = sk.PruneOptions(page_index=page_index, bloom_filter=bloom, dictionary=dictionary)
        result = sk.prune(file, condition.predicate(), storage_options=options, options=switches)
        if format is Format.TEXT:
            show(result.trace, format)
            if ranges:
                from skipstone.report.explain import ranges_tree

                emit(drawn(ranges_tree(result.row_groups, result.rows.ranges())))
            return
        print_json(
            {
                **result.trace.to_json(),
                "row_groups": result.row_groups,
                "rows": [list(span) for span in result.rows.ranges()],
                "row_selection": [list(step) for step in result.row_selection()],
            }
        )
