"""``skipstone query``: the rows that match, as a table for people or in a format for programs."""

from __future__ import annotations

import enum
import os
import stat
import sys
import time
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    named_format,
    open_scan,
    read_where,
)
from skipstone.cli.output import emit, guarded, screen
from skipstone.cli.progress import Advance, progress
from skipstone.cli.sink import check_output, open_output
from skipstone.cli.summaries import lake_bytes

if TYPE_CHECKING:
    from skipstone.scan.execute import Execution
    from skipstone.scan.plan import ScanPlan
    from skipstone.scan.scan import Scan

_SHOWN = 40


class RowFormat(enum.StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


@grouped
def query(
    lake: LakeArgument,
    where: AnyWhereOption = None,
    columns: ColumnsOption = None,
    order_by: OrderOption = None,
    limit: LimitOption = None,
    format: Annotated[
        RowFormat | None,
        typer.Option(
            "--format",
            help="table for people; csv, json (one array), jsonl (an object per line), parquet, "
            "arrow (an IPC stream). By default what the name of --output ends in, else table.",
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also tell on standard error what was read, and why.")
    ] = False,
    dialect: DialectOption = "spark",
    tz: ZoneOption = "UTC",
    skipping: SkippingOption = True,
    *,
    reading: Reading,
) -> None:
    """Print the rows that match, or write them to a file."""
    check_output(output, force=force)
    format = format or named_format(output, RowFormat, RowFormat.TABLE)
    if format in (RowFormat.PARQUET, RowFormat.ARROW) and output is None and sys.stdout.isatty():
        raise typer.BadParameter(
            f"{format} is not for terminals; give --output, or send it to a file or a pipe",
            param_hint="--format",
        )
    began = time.perf_counter()
    with guarded():
        scan = open_scan(
            lake,
            read_where(where, dialect, tz),
            reading,
            columns=columns,
            order_by=order_by,
            limit=limit,
            skipping=skipping,
        )
        asked = _Asked(scan, limit, output, force, began)
        ran = asked.show() if format is RowFormat.TABLE else asked.write(format)
        if explain:
            _explain(ran)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One query of one command."""

    scan: Scan
    limit: int | None
    output: Path | None
    force: bool
    began: float

    # -- for programs ------------------------------------------------------------------------

    def write(self, format: RowFormat) -> Execution:
        """Hand the rows on as they are read; a reader that goes away stops the reading."""
        from skipstone.cli.formats import row_writer
        from skipstone.report.units import plural, size

        rows = 0
        with open_output(self.output, force=self.force) as out:
            with progress("planning", self.scan.lake, shown=self._to_file):
                ran = self.scan.execute()
            writer = row_writer(format, ran.schema, out)
            with self._progress(ran.plan) as advance, closing(ran.to_batches()) as batches:
                for batch in batches:
                    writer.write(batch)
                    out.flush()
                    rows += batch.num_rows
                    advance(batch.num_rows)
            writer.finish()
        if self.output is not None:
            emit(f"{plural(rows, 'row')} in {self.output}, {size(out.tell())}{self._spent()}")
        return ran

    def _progress(self, plan: ScanPlan) -> AbstractContextManager[Advance]:
        from skipstone.scan.forecast import forecast

        return progress(
            "reading",
            self.scan.lake,
            rows=_known(plan),
            to_read=lambda: forecast(plan).bytes,
            shown=self._to_file,
        )

    @property
    def _to_file(self) -> bool:
        """Whether nobody watches the rows go by."""
        if self.output is not None:
            return True
        try:
            return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
        except OSError:
            return False

    # -- for people --------------------------------------------------------------------------

    def show(self) -> Execution:
        """Draw a table: all rows up to the limit that was given, else the first few."""
        from skipstone.cli.preview import draw_rows
        from skipstone.report.lines import paint
        from skipstone.report.units import plural
        from skipstone.scan.execute import execute

        whole = self.scan.plan()
        # One more than is shown tells whether there are more.
        ran = execute(whole if self.limit is not None else whole.limited(_SHOWN + 1))
        with progress("reading", self.scan.lake):
            found = ran.to_arrow()
        rows = found if self.limit is not None else found.slice(0, _SHOWN)
        on = screen()
        lines = list(draw_rows(rows, on.width))
        cut = len(rows) < len(found)
        if cut:
            lines.append([(_more(whole), "dim")])
        said = f"{plural(len(rows), 'row')}{' shown' if cut else ''}"
        lines += [[], [(said, "bold"), (self._spent(), "dim")]]
        color = on.color and self.output is None
        text = "\n".join(paint(line, color=color) for line in lines)
        if self.output is None:
            emit(text)
        else:
            with open_output(self.output, force=self.force) as out:
                out.write(f"{text}\n".encode())
        return ran

    def _spent(self) -> str:
        """What the answer took: bytes, requests, time, and what was not touched."""
        from skipstone.report.units import duration, percent, plural, size

        io, whole = self.scan.lake.io, lake_bytes(self.scan.lake)
        of = f" of {size(whole)}" if whole is not None else ""
        skipped = f", {percent(whole - io.bytes, whole)} skipped" if whole and io.bytes < whole else ""
        seconds = duration(time.perf_counter() - self.began)
        read = f"read {size(io.bytes)}{of} in {plural(io.requests, 'request')}"
        return f" · {read}{skipped} · {seconds}"


def _known(plan: ScanPlan) -> int | None:
    """How many rows come, if metadata tells."""
    if plan.residual is not None:
        return None
    return plan.rows if plan.limit is None else min(plan.rows, plan.limit)


def _more(plan: ScanPlan) -> str:
    from skipstone.report.units import plural

    exact = "" if plan.residual is None else "up to "
    return f"… {exact}{plural(plan.rows - _SHOWN, 'more row')}; use --limit or --format csv"


def _explain(ran: Execution) -> None:
    from skipstone.report import draw_scan
    from skipstone.scan.forecast import forecast

    on = screen(sys.stderr)
    trace = replace(ran.trace, reads=forecast(ran.plan))
    typer.echo(draw_scan(trace, width=on.width, color=on.color), err=True, color=True)
