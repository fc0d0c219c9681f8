"""The trace of a scan as HTML: figures at the top, the levels as a funnel, then why and how.

Nothing is fetched and nothing runs: one element with its own style sheet, and <details> to fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.explain.html_style import ROOT, page_style, style
from skipstone.explain.lines import clean, shorten
from skipstone.explain.markup import Markup, Node, joined, tag
from skipstone.explain.units import count, duration, percent, plural, size
from skipstone.explain.words import (
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
from skipstone.trace import Cause, Level
from skipstone.trace.scan import Run, ScanTrace

_MOST_DROPS = 200
_MOST_OPEN = 12
# Lists of thousands of values would fill a notebook; the JSON has them whole.
_LONGEST_PREDICATE = 5_000
_LONGEST_CONDITION = 400
_NOT_SAID = "other"
_EMPTY = Markup()

Part = tuple[str, int, str]
"""A part of a bar: the name of its colour, its units, and what it stands for."""


def scan_to_html(trace: ScanTrace) -> str:
    """The scan as one HTML element, fit for a notebook."""
    sections = (
        Markup(f"<style>{style()}</style>"),
        tag("div", trace.lake, cls=f"{ROOT}-lake"),
        tag("div", lake_line(trace), cls=f"{ROOT}-about"),
        *_index(trace),
        *_partitions(trace),
        *_deletes(trace),
        tag("div", _code(trace.predicate or EVERY_ROW, _LONGEST_PREDICATE), cls=f"{ROOT}-where"),
        tag("div", *_cards(trace), cls=f"{ROOT}-cards"),
        *_funnel(trace),
        *_reading(trace),
        *_ran(trace.run),
        *_reasons(trace.levels),
        *_list("Not judged by metadata", trace.unsupported),
        *_list("Notes", scan_notes(trace)),
    )
    return tag("div", *sections, cls=ROOT)


def scan_to_page(trace: ScanTrace, title: str | None = None) -> str:
    """The scan as a whole HTML document, titled by its lake unless given."""
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title if title is not None else f"Scan of {trace.lake}"),
        Markup(f"<style>{page_style()}</style>"),
    )
    body = Markup(scan_to_html(trace))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def _index(trace: ScanTrace) -> Iterator[Markup]:
    if trace.index is not None:
        said = index_line(trace.index, trace.files)
        yield tag("div", said, cls=f"{ROOT}-about", title=trace.index.place)


def _partitions(trace: ScanTrace) -> Iterator[Markup]:
    if trace.partitions is not None and (said := partition_line(trace.partitions)):
        yield tag("div", said, cls=f"{ROOT}-about")


def _deletes(trace: ScanTrace) -> Iterator[Markup]:
    if trace.deletes is not None:
        yield tag("div", delete_line(trace.deletes), cls=f"{ROOT}-about")


def _cards(trace: ScanTrace) -> Iterator[Markup]:
    yield _card("rows", count(trace.rows_kept), _row_share(trace), _row_parts(trace), trace.rows)
    if trace.reads is not None:
        reads = trace.reads
        share = f"{percent(reads.bytes, reads.of_bytes)} of the columns' {size(reads.of_bytes)}"
        aside = share if reads.of_bytes else NOTHING_TO_READ
        yield _card("data to read", size(reads.bytes), aside, [("kept", reads.bytes, "read")], reads.of_bytes)
    data = trace.reads.requests if trace.reads is not None else 0
    aside = f"{count(trace.requests)} for {size(trace.bytes)} of metadata"
    aside += f", about {count(data)} for data" if data else ""
    spent = [(_NOT_SAID, trace.requests, "for metadata"), ("kept", data, "for data")]
    yield _card("requests", count(trace.requests + data), aside, spent, trace.requests + data)
    files = [("kept", trace.tasks, "read")]
    yield _card("files to read", count(trace.tasks), f"of {plural(trace.files, 'file')}", files, trace.files)
    if trace.run is not None:
        yield _card("ran", duration(trace.run.seconds), _outcome(trace.run), (), 0)


def _row_share(trace: ScanTrace) -> str:
    if trace.rows_kept == 0 or trace.rows_kept == trace.rows_whole == trace.rows:
        return scan_rows(trace)
    share = f"{percent(trace.rows_kept, trace.rows)} of {rows_seen(trace)} may match"
    return f"{share}, {count(trace.rows_whole)} proven"


def _row_parts(trace: ScanTrace) -> list[Part]:
    unproven = trace.rows_kept - trace.rows_whole
    return [("proven", trace.rows_whole, "proven"), ("kept", unproven, "may match")]


def _card(label: str, figure: str, aside: str, parts: Sequence[Part], whole: int) -> Markup:
    return tag(
        "div",
        tag("div", label, cls=f"{ROOT}-label"),
        tag("div", figure, cls=f"{ROOT}-figure"),
        *([_bar(parts, whole, f"{ROOT}-gauge ")] if whole else []),
        tag("div", aside, cls=f"{ROOT}-aside"),
        cls=f"{ROOT}-card",
    )


def _bar(parts: Sequence[Part], whole: int, kind: str = "") -> Markup:
    """Parts of a whole side by side; what they leave of it stays the colour of the ground."""
    shown = [part for part in parts if part[1] > 0]
    rest = whole - sum(units for _, units, _ in shown)
    spans = [
        tag("span", style=f"flex-grow:{units};background:var(--{ROOT}-{ink})", title=f"{count(units)} {what}")
        for ink, units, what in shown
    ]
    if rest > 0:
        spans.append(tag("span", style=f"flex-grow:{rest}"))
    said = ", ".join(f"{count(units)} {what}" for _, units, what in shown) or "nothing"
    return tag("div", *spans, cls=f"{kind}{ROOT}-bar", role="img", aria_label=said)


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


def _funnel(trace: ScanTrace) -> Iterator[Markup]:
    yield _heading("From lake to rows")
    yield from (_level(level) for level in trace.levels)
    yield _rows(trace)
    seen = {ink: what for level in trace.levels for ink, units, what in _parts(level) if units > 0}
    if trace.rows > trace.rows_kept:
        seen["line"] = "rows dropped with their units"
    # In the order of the bars, whatever level a colour was first seen on.
    order = ["proven", "kept", *(cause.value for cause in Cause), _NOT_SAID, "line"]
    entries = [tag("span", _dot(ink), seen[ink]) for ink in order if ink in seen]
    if entries:
        yield tag("div", *entries, cls=f"{ROOT}-legend")


def _level(level: Level) -> Markup:
    proven = f"{count(level.whole)} proven" if level.whole else ""
    left = ", ".join(text for text in (rows_left(level), proven) if text)
    spent = f"metadata: {cost(level.requests, level.bytes)}" if level.requests or level.bytes else ""
    return _row(level.name, _bar(_parts(level), level.units), kept_share(level), [left, spent], _zoom(level))


def _rows(trace: ScanTrace) -> Markup:
    bar = _bar(_row_parts(trace), trace.rows)
    if trace.rows == 0:
        return _row("rows", bar, scan_rows(trace), ())
    share = f"kept {count(trace.rows_kept)} ({percent(trace.rows_kept, trace.rows)})"
    proven = f"{count(trace.rows_whole)} proven" if trace.rows_whole else ""
    return _row("rows", bar, share, [f"of {rows_seen(trace)}", proven])


def _row(name: str, bar: Markup, said: str, more: Sequence[str], below: Markup = _EMPTY) -> Markup:
    asides = [tag("div", text, cls=f"{ROOT}-aside") for text in more if text]
    text = tag("div", tag("b", said), *asides, cls=f"{ROOT}-said")
    return tag("div", tag("div", name, cls=f"{ROOT}-name", title=name), bar, text, below, cls=f"{ROOT}-row")


def _zoom(level: Level) -> Markup:
    """The strip that opens what a level kept into the whole of the next."""
    if level.kept == 0:
        return _EMPTY
    share = f"{100 * level.kept / level.units:.2f}"
    shape = f"clip-path:polygon(0 0,{share}% 0,100% 100%,0 100%)"
    return tag("div", style=shape, cls=f"{ROOT}-zoom", aria_hidden="true")


def _reading(trace: ScanTrace) -> Iterator[Markup]:
    yield _heading("What is read, and how")
    if trace.tasks == 0:
        yield tag("div", f"{NOTHING_TO_READ}: {scan_rows(trace)}")
        return
    facts = [tag("dt", "from"), tag("dd", scan_files(trace))]
    for label, value in scan_facts(trace):
        # The condition is code, the rest is prose.
        code = label == "test" and trace.residual
        facts += [tag("dt", label), tag("dd", _code(value, _LONGEST_PREDICATE) if code else value)]
    yield tag("dl", *facts, cls=f"{ROOT}-facts")


def _ran(run: Run | None) -> Iterator[Markup]:
    if run is None:
        return
    yield _heading("What the run did")
    yield tag("div", f"{_outcome(run)}, {duration(run.seconds)}; {run_work(run)}")
    if not run.phases:
        return
    total = sum(phase.seconds for phase in run.phases)
    rows = []
    for phase in run.phases:
        # Bars take whole numbers; microseconds are fine enough.
        spent = [("kept", round(phase.seconds * 1e6), "µs")]
        numbers = (count(phase.rows), count(phase.requests), size(phase.bytes), duration(phase.seconds))
        cells = [_cell(phase.name, "tight"), *(_cell(text, "number") for text in numbers)]
        bar = _bar(spent, round(total * 1e6), f"{ROOT}-gauge ")
        rows.append(tag("tr", *cells, _cell(bar, "wide")))
    yield _table(("phase", "rows", "requests", "bytes", "time", ""), rows, range(1, 5))


def _outcome(run: Run) -> str:
    return f"{plural(run.rows, 'row')} in {plural(run.batches, 'batch', 'batches')}"


def _reasons(levels: Sequence[Level]) -> Iterator[Markup]:
    found = [(level, drop) for level in levels for drop in ranked(level.drops)]
    if not found:
        return
    rows = []
    for level, drop in found[:_MOST_DROPS]:
        cause = joined(_dot(drop.cause.value), cause_name(drop.cause))
        units = (count(drop.units), percent(drop.units, level.units))
        condition = tag("div", _code(drop.condition, _LONGEST_CONDITION), cls=f"{ROOT}-clip")
        cells = (_cell(level.name, "tight"), _cell(cause, "tight"), _cell(condition, "wide"))
        rows.append(tag("tr", *cells, *(_cell(text, "number") for text in units)))
    table = _table(("level", "dropped by", "condition", "units", "share"), rows, range(3, 5))
    rest = [tag("div", f"{count(len(found) - len(rows))} more", cls=f"{ROOT}-aside")]
    summary = tag("summary", f"Why units were dropped ({plural(len(found), 'reason')})")
    folded = joined(summary, table, *(rest if len(found) > len(rows) else ()))
    yield _details(folded, len(found), cls=f"{ROOT}-why")


def _list(title: str, items: Sequence[str]) -> Iterator[Markup]:
    if items:
        summary = tag("summary", f"{title} ({count(len(items))})", cls=f"{ROOT}-warn")
        entries = tag("ul", *(tag("li", item) for item in items))
        yield _details(joined(summary, tag("div", entries, cls=f"{ROOT}-scroll")), len(items))


def _details(content: Markup, items: int, cls: str = "") -> Markup:
    return tag("details", content, cls=cls, **({"open": ""} if items <= _MOST_OPEN else {}))


def _table(names: Sequence[str], rows: Sequence[Markup], numbers: range) -> Markup:
    heads = [
        tag("th", name, cls=f"{ROOT}-number" if place in numbers else "") for place, name in enumerate(names)
    ]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("div", table, cls=f"{ROOT}-scroll")


def _cell(content: Node, kind: str = "") -> Markup:
    return tag("td", content, cls=f"{ROOT}-{kind}" if kind else "")


def _code(text: str, most: int) -> Markup:
    return tag("code", shorten(clean(text), most))


def _dot(ink: str) -> Markup:
    return tag("span", cls=f"{ROOT}-dot", style=f"background:var(--{ROOT}-{ink})")


def _heading(text: str) -> Markup:
    return tag("div", text, cls=f"{ROOT}-head")
