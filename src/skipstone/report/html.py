"""The trace of a scan as HTML: figures at the top, the levels as a funnel, then why and how.

Nothing is fetched and nothing runs: one element with its own style sheet, and <details> to fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.html_parts import (
    Part,
    bar,
    card,
    cell,
    code,
    details,
    dot,
    element,
    facts,
    heading,
    legend,
    listing,
    page,
    phase_table,
    row,
    table,
)
from skipstone.report.html_style import ROOT
from skipstone.report.markup import Markup, joined, tag
from skipstone.report.trace import Cause, Level
from skipstone.report.trace.scan import Run, ScanTrace
from skipstone.report.units import count, duration, percent, plural, size
from skipstone.report.words import (
    EVERY_ROW,
    NOTHING_TO_READ,
    cause_name,
    cost,
    delete_line,
    index_line,
    kept_share,
    lake_line,
    partition_line,
    ranked,
    rows_left,
    rows_seen,
    run_work,
    scan_facts,
    scan_files,
    scan_notes,
    scan_rows,
)

_MOST_DROPS = 200
# Lists of thousands of values would fill a notebook; the JSON has them whole.
LONGEST_PREDICATE = 5_000
_LONGEST_CONDITION = 400
_NOT_SAID = "other"


def scan_to_html(trace: ScanTrace) -> str:
    """The scan as one HTML element, fit for a notebook."""
    return element(
        *about(trace, lake_line(trace)),
        tag("div", *_cards(trace), cls=f"{ROOT}-cards"),
        *funnel(trace),
        *_reading(trace),
        *_ran(trace.run),
        *reasons(trace.levels),
        *listing("Not judged by metadata", trace.unsupported),
        *listing("Notes", scan_notes(trace)),
    )


def scan_to_page(trace: ScanTrace, title: str | None = None) -> str:
    """The scan as a whole HTML document, titled by its lake unless given."""
    return page(scan_to_html(trace), title if title is not None else f"Scan of {trace.lake}")


def about(trace: ScanTrace, what: str) -> Iterator[Markup]:
    """What was scanned, in words, with what, and for what."""
    yield tag("div", trace.lake, cls=f"{ROOT}-lake")
    yield tag("div", what, cls=f"{ROOT}-about")
    if trace.index is not None:
        said = index_line(trace.index, trace.files)
        yield tag("div", said, cls=f"{ROOT}-about", title=trace.index.place)
    if trace.partitions is not None and (said := partition_line(trace.partitions)):
        yield tag("div", said, cls=f"{ROOT}-about")
    if trace.deletes is not None:
        yield tag("div", delete_line(trace.deletes), cls=f"{ROOT}-about")
    yield tag("div", code(trace.predicate or EVERY_ROW, LONGEST_PREDICATE), cls=f"{ROOT}-where")


def _cards(trace: ScanTrace) -> Iterator[Markup]:
    yield card("rows", count(trace.rows_kept), _row_share(trace), _row_parts(trace), trace.rows)
    if trace.reads is not None:
        reads = trace.reads
        share = f"{percent(reads.bytes, reads.of_bytes)} of the columns' {size(reads.of_bytes)}"
        aside = share if reads.of_bytes else NOTHING_TO_READ
        yield card("data to read", size(reads.bytes), aside, [("kept", reads.bytes, "read")], reads.of_bytes)
    data = trace.reads.requests if trace.reads is not None else 0
    aside = f"{count(trace.requests)} for {size(trace.bytes)} of metadata"
    aside += f", about {count(data)} for data" if data else ""
    spent = [(_NOT_SAID, trace.requests, "for metadata"), ("kept", data, "for data")]
    yield card("requests", count(trace.requests + data), aside, spent, trace.requests + data)
    files = [("kept", trace.tasks, "read")]
    yield card("files to read", count(trace.tasks), f"of {plural(trace.files, 'file')}", files, trace.files)
    if trace.run is not None:
        yield card("ran", duration(trace.run.seconds), _outcome(trace.run), (), 0)


def _row_share(trace: ScanTrace) -> str:
    if trace.rows_kept == 0 or trace.rows_kept == trace.rows_whole == trace.rows:
        return scan_rows(trace)
    share = f"{percent(trace.rows_kept, trace.rows)} of {rows_seen(trace)} may match"
    return f"{share}, {count(trace.rows_whole)} proven"


def _row_parts(trace: ScanTrace) -> list[Part]:
    unproven = trace.rows_kept - trace.rows_whole
    return [("proven", trace.rows_whole, "proven"), ("kept", unproven, "may match")]


def _parts(level: Level) -> list[Part]:
    """A level's units: proven, kept, and dropped by each cause."""
    dropped = {cause: sum(drop.units for drop in level.drops if drop.cause is cause) for cause in Cause}
    rest = level.dropped - sum(dropped.values())
    return [
        ("proven", level.whole, "proven"),
        ("kept", level.kept - level.whole, "kept"),
        *((cause.value, units, f"dropped by {cause_name(cause)}") for cause, units in dropped.items()),
        (_NOT_SAID, rest, "dropped otherwise"),
    ]


def funnel(trace: ScanTrace) -> Iterator[Markup]:
    """The levels, each opening into the next, and the rows that are left."""
    yield heading("From lake to rows")
    yield from (_level(level) for level in trace.levels)
    yield _rows(trace)
    seen = {ink: what for level in trace.levels for ink, units, what in _parts(level) if units > 0}
    if trace.rows > trace.rows_kept:
        seen["line"] = "rows dropped with their units"
    # In the order of the bars, whatever level a colour was first seen on.
    order = ["proven", "kept", *(cause.value for cause in Cause), _NOT_SAID, "line"]
    yield from legend([(ink, seen[ink]) for ink in order if ink in seen])


def _level(level: Level) -> Markup:
    proven = f"{count(level.whole)} proven" if level.whole else ""
    left = ", ".join(text for text in (rows_left(level), proven) if text)
    spent = f"metadata: {cost(level.requests, level.bytes)}" if level.requests or level.bytes else ""
    drawn = bar(_parts(level), level.units)
    return row(level.name, drawn, kept_share(level), [left, spent], zoom(level.kept, level.units))


def _rows(trace: ScanTrace) -> Markup:
    drawn = bar(_row_parts(trace), trace.rows)
    if trace.rows == 0:
        return row("rows", drawn, scan_rows(trace), ())
    share = f"kept {count(trace.rows_kept)} ({percent(trace.rows_kept, trace.rows)})"
    proven = f"{count(trace.rows_whole)} proven" if trace.rows_whole else ""
    return row("rows", drawn, share, [f"of {rows_seen(trace)}", proven])


def zoom(kept: int, units: int) -> Markup:
    """The strip that opens what a level kept into the whole of the next."""
    if kept == 0:
        return Markup()
    shape = f"clip-path:polygon(0 0,{100 * kept / units:.2f}% 0,100% 100%,0 100%)"
    return tag("div", style=shape, cls=f"{ROOT}-zoom", aria_hidden="true")


def _reading(trace: ScanTrace) -> Iterator[Markup]:
    yield heading("What is read, and how")
    if trace.tasks == 0:
        yield tag("div", f"{NOTHING_TO_READ}: {scan_rows(trace)}")
        return
    # The condition is code, the rest is prose.
    told = [
        (label, code(value, LONGEST_PREDICATE) if label == "test" and trace.residual else value)
        for label, value in scan_facts(trace)
    ]
    yield facts([("from", scan_files(trace)), *told])


def _ran(run: Run | None) -> Iterator[Markup]:
    if run is None:
        return
    yield heading("What the run did")
    yield tag("div", f"{_outcome(run)}, {duration(run.seconds)}; {run_work(run)}")
    yield from phase_table(run.phases)


def _outcome(run: Run) -> str:
    return f"{plural(run.rows, 'row')} in {plural(run.batches, 'batch', 'batches')}"


def reasons(levels: Sequence[Level]) -> Iterator[Markup]:
    """Why units were dropped, the largest reasons of each level first."""
    found = [(level, drop) for level in levels for drop in ranked(level.drops)]
    if not found:
        return
    rows = []
    for level, drop in found[:_MOST_DROPS]:
        cause = joined(dot(drop.cause.value), cause_name(drop.cause))
        units = (count(drop.units), percent(drop.units, level.units))
        condition = tag("div", code(drop.condition, _LONGEST_CONDITION), cls=f"{ROOT}-clip")
        cells = (cell(level.name, "tight"), cell(cause, "tight"), cell(condition, "wide"))
        rows.append(tag("tr", *cells, *(cell(text, "number") for text in units)))
    drawn = table(("level", "dropped by", "condition", "units", "share"), rows, range(3, 5))
    rest = [tag("div", f"{count(len(found) - len(rows))} more", cls=f"{ROOT}-aside")]
    summary = tag("summary", f"Why units were dropped ({plural(len(found), 'reason')})")
    folded = joined(summary, drawn, *(rest if len(found) > len(rows) else ()))
    yield details(folded, len(found), cls=f"{ROOT}-why")
