"""``skipstone query`` and ``skipstone count``: matching rows, and their number."""

from __future__ import annotations

import enum
import os
import stat
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    ColumnsOption,
    ConditionOptions,
    EngineName,
    EngineOption,
    ForceOption,
    Format,
    FormatOption,
    LakeArgument,
    OutputOption,
    ReadOptions,
    ShapeOptions,
    SkippingOption,
    engine_arguments,
    grouped,
    job_guarded,
    named_columns,
    named_format,
)
from skipstone.cli.output import (
    check_output,
    drawn,
    emit,
    guarded,
    open_output,
    print_json,
    refuse_terminal,
    show_on_stderr,
    write_text,
)
from skipstone.cli.progress import progress

if TYPE_CHECKING:
    from skipstone.scan.execute import Execution
    from skipstone.scan.plan import ScanPlan
    from skipstone.scan.scan import Scan


# Up to this many candidate rows are read at once: reading them bit by bit until enough are found would read
# pages twice.
_FEW_ROWS = 32_768


class RowFormat(enum.StrEnum):
    """Formats of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


@grouped
def query(
    lake: LakeArgument,
    *,
    condition: ConditionOptions,
    shape: ShapeOptions,
    format: Annotated[
        RowFormat | None,
        typer.Option(
            "--format",
            help="Output format; json is one array, jsonl one object per line, arrow an IPC stream. "
            "Default: by the extension of --output, else table.",
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also explain the query, on standard error.")
    ] = False,
    skipping: SkippingOption = True,
    reading: ReadOptions,
) -> None:
    """Print the matching rows, or write them to a file."""
    check_output(output, force=force)
    format = format or named_format(output, RowFormat, RowFormat.TABLE)
    if format in (RowFormat.PARQUET, RowFormat.ARROW):
        refuse_terminal(format, output)
    began = time.perf_counter()
    with guarded():
        scan = condition.scan(lake, reading, skipping=skipping, **shape.arguments())
        wanted = _Query(scan, shape.limit, output, force, began)
        ran = wanted.show() if format is RowFormat.TABLE else wanted.write(format)
        if explain:
            show_on_stderr(ran.explained())


@grouped
def head(
    lake: LakeArgument,
    *,
    condition: ConditionOptions,
    columns: ColumnsOption = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, metavar="N", help="Number of rows.")] = 10,
    format: Annotated[RowFormat, typer.Option("--format", help="Output format.")] = RowFormat.TABLE,
    reading: ReadOptions,
) -> None:
    """Print the first rows."""
    if format in (RowFormat.PARQUET, RowFormat.ARROW):
        refuse_terminal(format, None)
    began = time.perf_counter()
    with guarded():
        scan = condition.scan(lake, reading, columns=named_columns(columns, "--columns"), limit=rows)
        wanted = _Query(scan, rows, None, False, began)
        if format is RowFormat.TABLE:
            wanted.show()
        else:
            wanted.write(format)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query and its output."""

    scan: Scan
    limit: int | None
    output: Path | None
    force: bool
    began: float

    def write(self, format: RowFormat) -> Execution:
        """Write rows as they are read; stops if the reader of the output goes away."""
        from skipstone.report.units import plural, size
        from skipstone.scan.forecast import forecast
        from skipstone.scan.formats import row_writer

        rows, lake, unseen = 0, self.scan.lake, self._goes_to_file()
        with open_output(self.output, force=self.force) as out:
            with progress("planning", lake, shown=unseen):
                ran = self.scan.execute()
            writer, plan = row_writer(format, ran.schema, out), ran.plan
            rows_total = _exact_rows(plan)
            bar = progress(
                "reading", lake, rows=rows_total, to_read=lambda: forecast(plan).bytes, shown=unseen
            )
            with bar as advance, closing(ran.to_batches()) as batches:
                for batch in batches:
                    writer.write(batch)
                    out.flush()
                    rows += batch.num_rows
                    advance(batch.num_rows)
            writer.finish()
        if self.output is not None:
            emit(f"{plural(rows, 'row')} in {self.output}, {size(out.tell())} · {self._spent(ran)}")
        return ran

    def _goes_to_file(self) -> bool:
        """Whether the rows go to a file, not to a terminal or a pipe."""
        if self.output is not None:
            return True
        try:
            return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
        except OSError:
            return False

    def show(self) -> Execution:
        """Draw a table of the first rows, or of all rows up to --limit."""
        from skipstone.report.units import plural
        from skipstone.scan.execute import execute
        from skipstone.scan.row_view import SHOWN, rows_tree, with_zones

        plan = self.scan.plan()
        whole = self.limit is not None or plan.rows <= _FEW_ROWS
        # One row more than is shown says whether there are more.
        ran = execute(plan if whole else plan.limited(SHOWN + 1))
        with progress("reading", self.scan.lake):
            table = ran.to_arrow()
        rows = table if self.limit is not None else table.slice(0, SHOWN)
        # What was ignored can be why nothing was found.
        notes = () if len(table) else tuple(f"{note.unit}: {note.reason}" for note in plan.trace.notes)
        shown = plural(len(rows), "row")
        if len(rows) < len(table):
            exact = "" if whole or plan.residual is None else "up to "
            left = (len(table) if whole else plan.rows) - SHOWN
            more = f"… {exact}{plural(left, 'more row')}; use --limit or --format csv"
            notes, shown = (more,), f"{shown} shown"
        tree = rows_tree(with_zones(rows, self.scan.lake), notes, shown, self._spent(ran))
        write_text(drawn(tree, color=self.output is None), self.output, force=self.force)
        return ran

    def _spent(self, ran: Execution) -> str:
        """Bytes of the columns that were read and skipped, bytes of metadata, requests and time."""
        from skipstone.report.units import duration, percent, phrase, plural, size
        from skipstone.scan.forecast import column_bytes

        io, run = self.scan.lake.io, ran.trace.run
        assert run is not None
        total, metadata = column_bytes(ran.plan, run.bytes), io.bytes - run.bytes_transferred
        of = f" of {size(total)}, {percent(total - run.bytes, total)} skipped" if total else ""
        return phrase(
            f"read {size(run.bytes)}{of}",
            metadata > 0 and f"{size(metadata)} of metadata",
            plural(io.requests, "request"),
            duration(time.perf_counter() - self.began),
            by=" · ",
        )


def _exact_rows(plan: ScanPlan) -> int | None:
    """The number of rows, if metadata proves it."""
    if plan.residual is not None:
        return None
    return plan.rows if plan.limit is None else min(plan.rows, plan.limit)


@grouped
def count(
    lake: LakeArgument,
    *,
    condition: ConditionOptions,
    skipping: SkippingOption = True,
    format: FormatOption = Format.TEXT,
    engine: EngineOption = EngineName.LOCAL,
    cluster: ClusterOptions,
    reading: ReadOptions,
) -> None:
    """Count the matching rows, from metadata where possible."""
    # A scan counts on its own threads, within its own memory limit.
    arguments = engine_arguments(engine, cluster, reading.threads)
    work: dict[str, Any] = {} if engine is EngineName.LOCAL else arguments
    began = time.perf_counter()
    with job_guarded():
        spark = engine is EngineName.SPARK
        scan = condition.scan(lake, reading, skipping=skipping, spark=spark)
        with progress("counting", scan.lake):
            plan = scan.plan()
            number = scan.count(**work)
        if format is Format.TEXT:
            emit(str(number))
            return
        io = scan.lake.io
        print_json(
            {
                "count": number,
                "from_metadata": sum(len(task.proven) for task in plan.tasks),
                "tested": sum(len(task.rows) - len(task.proven) for task in plan.tasks),
                "engine": str(engine),
                "files": len(scan.lake.entries),
                # Executors count their own.
                "requests": None if spark else io.requests,
                "bytes": None if spark else io.bytes,
                "seconds": round(time.perf_counter() - began, 6),
            }
        )
