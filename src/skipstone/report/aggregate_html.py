"""The trace of an aggregation as HTML: the scan's funnel, members, and a bar per column of what was known."""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.report.aggregate_words import (
    NOT_CACHED,
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
from skipstone.report.html import LONGEST_PREDICATE, about, funnel, reasons
from skipstone.report.html_parts import (
    Part,
    bar,
    card,
    code,
    element,
    heading,
    legend,
    listing,
    page,
    phase_table,
    row,
)
from skipstone.report.html_style import ROOT
from skipstone.report.markup import Markup, tag
from skipstone.report.trace.aggregate import AggregateRun, AggregateTrace, ColumnUse, MemberUse
from skipstone.report.units import count, duration, percent, plural, size
from skipstone.report.words import state_line

_LEVELS = {"files": "files", "row groups": "groups", "pages": "pages", "rows": "proven"}
_READ = "kept"
_PASSED = "line"


def aggregate_to_html(trace: AggregateTrace) -> str:
    """The aggregation as one HTML element, fit for a notebook."""
    return element(
        *about(trace.scan, state_line(trace.scan)),
        tag("div", code(asked(trace), LONGEST_PREDICATE), cls=f"{ROOT}-where"),
        *([] if trace.cached else [tag("div", NOT_CACHED, cls=f"{ROOT}-about")]),
        tag("div", *_cards(trace), cls=f"{ROOT}-cards"),
        *funnel(trace.scan),
        *_members(trace.members),
        *_columns(trace),
        *_ran(trace.run),
        *reasons(trace.scan.levels),
        *listing("Not judged by metadata", trace.scan.unsupported),
        *listing("Notes", aggregate_notes(trace)),
    )


def aggregate_to_page(trace: AggregateTrace, title: str | None = None) -> str:
    """The aggregation as a whole HTML document, titled by its lake unless given."""
    return page(aggregate_to_html(trace), title if title is not None else f"Aggregation of {trace.scan.lake}")


def _cards(trace: AggregateTrace) -> Iterator[Markup]:
    scan = trace.scan
    # A row that one column needs is read, whatever the others know of it.
    read = max((use.read for use in trace.columns), default=0)
    known = trace.rows - read
    yield card("rows that count", count(trace.rows), counted(trace), [(_READ, trace.rows, "")], scan.rows)
    aside = f"{percent(known, trace.rows)} of the rows that may count"
    yield card("from metadata", count(known), aside, [("files", known, "known")], trace.rows)
    yield card(
        "read", count(read), f"{percent(read, scan.rows)} of all rows", [(_READ, read, "read")], scan.rows
    )
    run = trace.run
    if run is not None:
        yield card("ran", duration(run.seconds), f"on {run.engine}", (), 0)
        yield card("data read", size(run.bytes), plural(run.requests, "request"), (), 0)
    elif scan.reads is not None:
        yield card(
            "data to read", size(scan.reads.bytes), f"about {plural(scan.reads.requests, 'request')}", (), 0
        )


def _members(use: MemberUse | None) -> Iterator[Markup]:
    if use is None:
        return
    yield heading("Members")
    parts: list[Part] = [
        ("proven", use.inside, "wholly inside"),
        ("kept", use.partly, "looked into"),
        ("other", use.outside, "without a member"),
    ]
    drawn = bar(parts, use.units)
    yield row("row groups", drawn, member_share(use), [members_outside(use)], _below(*use.sets))
    yield from legend([(ink, what) for ink, units, what in parts if units])


def _columns(trace: AggregateTrace) -> Iterator[Markup]:
    yield heading("Where the answers come from")
    yield from (_column(use, trace) for use in trace.columns)
    seen = {ink: what for use in trace.columns for ink, units, what in _parts(use, trace) if units}
    order = [_READ, *_LEVELS.values(), _PASSED]
    yield from legend([(ink, seen[ink]) for ink in order if ink in seen])


def _column(use: ColumnUse, trace: AggregateTrace) -> Markup:
    drawn = bar(_parts(use, trace), trace.scan.rows)
    told = _below(answered_by(use), *use.why)
    return row(column_name(use), drawn, column_share(use), [", ".join(use.functions)], told)


def _below(*texts: str) -> Markup:
    asides = [tag("div", text, cls=f"{ROOT}-aside") for text in texts if text]
    return tag("div", *asides, cls=f"{ROOT}-below")


def _parts(use: ColumnUse, trace: AggregateTrace) -> list[Part]:
    known = [(_LEVELS[part.level], part.rows, _known(part.level)) for part in use.answered]
    return [(_READ, use.read, "read"), *known, (_PASSED, passed_over(use, trace), "passed over")]


def _known(level: str) -> str:
    return "known row by row" if level == "rows" else f"known from {level}"


def _ran(run: AggregateRun | None) -> Iterator[Markup]:
    if run is None:
        return
    yield heading("What the run did")
    yield tag("div", f"{outcome(run)}, {duration(run.seconds)}; {worked(run)}")
    yield from phase_table(run.phases)
