"""Views of ingest reports.

20,000,000 rows in 9 files, 1.1 GB: 118.2 MB to 131.0 MB each, 27 row groups
lake/events: surveyed in 2.1 s, written in 21.4 s (52.3 MB/s), published in 10.2 ms

lookup column  share of lake read      rows  files
event_id       █░░░░░░░░░░░░░░░░░░░  <0.1 %   11 %
"""

from __future__ import annotations

from skipstone.report.node import (
    Bar,
    Block,
    Items,
    ReportNode,
    TableColumn,
    Text,
    fields,
    portion,
    table,
    text,
)
from skipstone.report.units import count, duration, phrase, plural, size, some
from skipstone.write.report import IngestReport, PipelineReport


def ingest_tree(report: IngestReport) -> ReportNode:
    """Rows and files written, the time it took, and how well look-ups will skip."""
    return ReportNode(body=_blocks(report))


def pipeline_tree(report: PipelineReport) -> ReportNode:
    """The files of a source that were ingested, and each batch of them."""
    old = report.already_ingested
    already = f"; {count(old)} already ingested" if old else ""
    head = some(old, "file", " already ingested", "nothing to do: ") or "no new files"
    if report.new:
        head = f"ingested {plural(report.new, 'file')}{already}"
    changed = Items("changed files skipped", report.changed)
    batches = [block for batch in report.batches for block in _blocks(batch)]
    return ReportNode(body=(Text(head, "bold"), changed, *batches))


def _blocks(report: IngestReport) -> tuple[Block, ...]:
    problem = f"rows were ingested, but the index is not up to date: {report.index_problem}"
    return (
        Text(_written(report), "bold"),
        Text(_spent(report), "dim"),
        Text(str(report.engine or ""), "dim"),
        Text(problem if report.index_problem else "", "bold"),
        table(
            report.skips,
            *fields(text, "lookup column=column"),
            TableColumn("share of lake read", lambda lookup: Bar.of(lookup.rows, 1)),
            *fields(portion, "rows", "files"),
        ),
    )


def _written(report: IngestReport) -> str:
    if not report.sizes:
        return phrase("no rows, so nothing was written", some(report.replaced, "file", " dropped"))
    low, high = min(report.sizes), max(report.sizes)
    each = size(low) if low == high else f"{size(low)} to {size(high)} each"
    parts = f" in {plural(report.partitions, 'partition')}" if report.partitions > 1 else ""
    files = f"{plural(report.rows, 'row')} in {plural(report.files, 'file')}{parts}"
    gone = some(report.replaced, "file", before=", replacing ")
    order = f"; clustered by {', '.join(report.cluster_by)}, like the lake"
    return (
        f"{files}, {size(report.bytes)}: {each}, {plural(report.row_groups, 'row group')}{gone}"
        f"{order if report.clustered_as_before else ''}"
    )


def _spent(report: IngestReport) -> str:
    spent = report.seconds
    speed = f" ({size(int(report.bytes / spent.write))}/s)" if spent.write and report.bytes else ""
    done = "published" if report.snapshot is None else f"committed as snapshot {report.snapshot}"
    written = f"written in {duration(spent.write)}{speed}, {done} in {duration(spent.publish)}"
    indexed = f"indexed in {duration(spent.index)} (index size {size(report.index_bytes)})"
    surveyed = f"{report.lake}: surveyed in {duration(spent.survey)}"
    return phrase(surveyed, report.sizes and written, report.index_bytes and indexed, by=", ")
