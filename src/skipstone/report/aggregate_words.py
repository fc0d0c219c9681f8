"""What the trace of an aggregation says in words, shared by everything that draws one."""

from __future__ import annotations

from skipstone.report.trace.aggregate import AggregateRun, AggregateTrace, Answered, ColumnUse, MemberUse
from skipstone.report.units import count, percent, plural
from skipstone.report.words import rows_seen, run_work, scan_notes, scan_rows

ROWS_ALONE = "count"
"""What the count of rows is called among the columns."""
NOT_CACHED = "metadata answers nothing, as asked: every row that may count is read"


def asked(trace: AggregateTrace) -> str:
    """The functions, and the columns whose values make the groups."""
    groups = f" by {', '.join(trace.group_by)}" if trace.group_by else ""
    return f"{', '.join(trace.functions)}{groups}"


def counted(trace: AggregateTrace) -> str:
    """How many rows may count, of those that were looked at."""
    scan = trace.scan
    if scan.rows == 0:
        return scan_rows(scan)
    if trace.rows == 0:
        return f"none of {rows_seen(scan)} can count"
    if trace.rows == scan.rows:
        return f"all {rows_seen(scan)} may count"
    return f"{count(trace.rows)} of {rows_seen(scan)} may count ({percent(trace.rows, scan.rows)})"


def member_share(use: MemberUse) -> str:
    """How many row groups may hold members."""
    if use.units == 0:
        return "no row group left to look at"
    kept = use.units - use.outside
    share = f"kept {count(kept)} of {plural(use.units, 'row group')} ({percent(kept, use.units)})"
    return f"{share}, {count(use.inside)} wholly inside" if use.inside else share


def members_outside(use: MemberUse) -> str:
    """The rows that are proven not to be members; empty for none."""
    return f"{plural(use.rows_outside, 'row')} proven to be no members" if use.rows_outside else ""


def column_name(use: ColumnUse) -> str:
    """The column as a branch is called by it."""
    return use.column or ROWS_ALONE


def column_share(use: ColumnUse) -> str:
    """How much of a column is read."""
    rows = use.known + use.read
    if rows == 0:
        return "no row counts"
    if use.read == 0:
        return f"{plural(rows, 'row')} known from metadata"
    if use.known == 0:
        return f"reads {plural(rows, 'row')}"
    return f"reads {count(use.read)} of {plural(rows, 'row')} ({percent(use.read, rows)})"


def answered_by(use: ColumnUse) -> str:
    """The units whose aggregates are known, from the largest to the smallest; empty for none."""
    return ", ".join(_units(level) for level in use.answered if level.units)


def _units(level: Answered) -> str:
    if level.level == "rows":
        return plural(level.rows, "other row")
    noun = level.level.removesuffix("s")
    return f"{plural(level.units, noun)} ({plural(level.rows, 'row')})"


def passed_over(use: ColumnUse, trace: AggregateTrace) -> int:
    """Rows that can't count, which are neither known nor read."""
    return max(trace.scan.rows - use.known - use.read, 0)


def outcome(run: AggregateRun) -> str:
    """What a run has read, and where."""
    return f"{plural(run.rows, 'row')} read and counted in, on {run.engine}"


def worked(run: AggregateRun) -> str:
    """What a run worked through; what other processes read is not known here."""
    if run.pieces and not run.requests:
        return f"in {plural(run.pieces, 'part')}, whose requests are not counted here"
    return run_work(run)


def aggregate_notes(trace: AggregateTrace) -> list[str]:
    """What should be known about the answer, then what could not be used of the index and of files."""
    return [*trace.notes, *scan_notes(trace.scan)]
