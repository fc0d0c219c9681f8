"""The trace of an aggregation as a tree of text: levels, members, then where each column's answer comes from.

events  ts >= '2026-01-02'
│  count, sum(amount) by country
│  20 files, version 1f3a
├─ files    ████████████████░░░░  kept 16 of 20 (80 %), 1,600,000 rows
│     4 dropped by bounds  ts >= '2026-01-02'
├─ members  ██████░░░░░░░░░░░░░░  kept 20 of 64 row groups (31 %), 18 wholly inside
│     user_id in 20,000 ids (1 run)
│     1,100,000 rows proven to be no members
├─ rows     █████░░░░░░░░░░░░░░░  500,000 of 2,000,000 rows may count (25 %)
├─ count    ▒▒▒▒▒░░░░░░░░░░░░░░░  500,000 rows known from metadata
│     from  4 files (400,000 rows), 4 row groups (100,000 rows)
└─ amount   █▒▒▒▒░░░░░░░░░░░░░░░  reads 20,000 of 500,000 rows (4 %)
      for   sum(amount)
      from  4 files (400,000 rows), 3 row groups (75,000 rows), 2 pages (5,000 rows)
      why   ids of 2 row groups are looked up one by one
█ read  ▒ known from metadata  ░ passed over
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.report.aggregate_words import (
    NOT_CACHED,
    ROWS_ALONE,
    aggregate_notes,
    answered_by,
    asked,
    column_name,
    column_share,
    counted,
    member_share,
    members_outside,
    outcome,
    passed_over,
    worked,
)
from skipstone.report.lines import Span, clean, paint, shorten, wrap
from skipstone.report.scan_text import ROOT_STEM, lake_lines, plain, work_lines
from skipstone.report.trace.aggregate import AggregateRun, AggregateTrace, ColumnUse, MemberUse
from skipstone.report.tree import Layout, Line, barred, branch, facts, header, listed, parted, stem
from skipstone.report.units import duration
from skipstone.report.words import EVERY_ROW, cost, data_share, state_line

_READ: Span = ("█", "kept")
_KNOWN: Span = ("▒", "known")
_PASSED: Span = ("░", "dropped")
_MEANINGS = ((_READ, "read"), (_KNOWN, "known from metadata"), (_PASSED, "passed over"))


def draw_aggregate(trace: AggregateTrace, *, width: int | None = None, color: bool = False) -> str:
    """Draw the aggregation in at most ``width`` columns (100 unless given), without a final line break."""
    scan = trace.scan
    levels = [level.name for level in scan.levels]
    columns = [column_name(use) for use in trace.columns]
    layout = Layout.of([*levels, "members", "rows", *columns], width)
    lines = [header(scan.lake, scan.predicate or EVERY_ROW, layout.room)]
    lines += _asked(trace, layout.room)
    lines += lake_lines(scan, state_line(scan), layout.room)
    for level in scan.levels:
        lines += branch(level, layout, last=False, costs=True)
    if trace.members is not None:
        lines += _members(trace.members, layout)
    lines += _rows(trace, layout, last=not trace.columns and trace.run is None)
    for number, use in enumerate(trace.columns, 1):
        lines += _column(use, trace, layout, last=number == len(trace.columns) and trace.run is None)
    if trace.run is not None:
        lines += _ran(trace.run, layout)
    lines.append(_legend())
    lines += listed("not judged", scan.unsupported, layout.room)
    lines += listed("notes", aggregate_notes(trace), layout.room)
    return "\n".join(paint(line, color=color) for line in lines)


def _asked(trace: AggregateTrace, room: int) -> Iterator[Line]:
    texts = [asked(trace), *([] if trace.cached else [NOT_CACHED])]
    for text in texts:
        for part in wrap(clean(text), room - len(ROOT_STEM), 3):
            yield [(ROOT_STEM, ""), (part, "")]


def _members(use: MemberUse, layout: Layout) -> Iterator[Line]:
    yield barred("members", use.units - use.outside, use.units, [member_share(use)], layout, last=False)
    below = stem(last=False)
    for text in (*use.sets, members_outside(use)):
        if text:
            yield [(below, ""), (shorten(clean(text), layout.room - len(below)), "dim")]


def _rows(trace: AggregateTrace, layout: Layout, *, last: bool) -> Iterator[Line]:
    scan = trace.scan
    yield barred("rows", trace.rows, scan.rows, [counted(trace)], layout, last=last)
    pairs = [("test", scan.residual)] if scan.residual and trace.rows else []
    if scan.reads is not None:
        pairs.append(("data", data_share(scan.reads)))
    if scan.requests or scan.bytes:
        pairs.append(("cost", f"metadata read: {cost(scan.requests, scan.bytes)}"))
    if pairs:
        yield from facts(pairs, stem(last=last), layout.room)


def _column(use: ColumnUse, trace: AggregateTrace, layout: Layout, *, last: bool) -> Iterator[Line]:
    parts = [(use.read, _READ), (use.known, _KNOWN), (passed_over(use, trace), _PASSED)]
    yield parted(column_name(use), parts, [column_share(use)], layout, last=last)
    functions = ", ".join(use.functions)
    pairs = [("for", functions)] if functions != ROWS_ALONE else []
    if known := answered_by(use):
        pairs.append(("from", known))
    pairs += [("why" if number == 0 else "", reason) for number, reason in enumerate(use.why)]
    if pairs:
        yield from facts(pairs, stem(last=last), layout.room)


def _ran(run: AggregateRun, layout: Layout) -> Iterator[Line]:
    yield plain("ran", clean(f"{outcome(run)}, {duration(run.seconds)}"), layout, last=True)
    yield from work_lines(worked(run), run.phases, layout.room)


def _legend() -> Line:
    line: Line = []
    for (glyph, style), meaning in _MEANINGS:
        line += [(glyph, style), (f" {meaning}  ", "dim")]
    return line
