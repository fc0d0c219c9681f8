"""The trace of a scan as a tree of text: the levels, what is left to read, and what a run did.

lake/events  user_id = 42
│  12 files, version 1f3a, columns user_id, amount
├─ files  ██░░░░░░░░░░░░░░░░░░  kept 1 of 12 (8.3 %), 10,000 rows
│     11 dropped by bounds  user_id = 42
└─ read   █░░░░░░░░░░░░░░░░░░░  80.0 kB of 9.6 MB (0.8 %)
      from  1 of 12 files, about 2 requests
      rows  10,000 of 120,000 rows may match (8.3 %), 0 proven
      test  user_id = 42
      how   late: few rows match
      with  4 threads, route slice, batches of up to 65,536 rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.lines import clean, pad, paint, shorten, width_of, wrap
from skipstone.report.trace.scan import Phase, Run, ScanTrace
from skipstone.report.tree import Layout, Line, barred, branch, facts, header, listed, stem
from skipstone.report.units import count, duration, plural, size
from skipstone.report.words import (
    EVERY_ROW,
    NOTHING_TO_READ,
    cost,
    data_share,
    delete_line,
    index_line,
    lake_line,
    partition_line,
    run_work,
    scan_facts,
    scan_files,
    scan_notes,
    scan_rows,
)

ROOT_STEM = "│  "
"""What stands before lines that belong to the root."""
_SHORTEST_NAME = 6


def draw_scan(trace: ScanTrace, *, width: int | None = None, color: bool = False) -> str:
    """Draw the scan in at most ``width`` columns (100 unless given), without a final line break."""
    layout = Layout.of([*(level.name for level in trace.levels), "read", "ran"], width)
    lines = [header(trace.lake, trace.predicate or EVERY_ROW, layout.room)]
    lines += lake_lines(trace, lake_line(trace), layout.room)
    for level in trace.levels:
        lines += branch(level, layout, last=False, costs=True)
    lines += _read(trace, layout, last=trace.run is None)
    if trace.run is not None:
        lines += _ran(trace.run, layout)
    lines += listed("not judged", trace.unsupported, layout.room)
    lines += listed("notes", scan_notes(trace), layout.room)
    return "\n".join(paint(line, color=color) for line in lines)


def lake_lines(trace: ScanTrace, what: str, room: int) -> Iterator[Line]:
    """What was scanned, in words, and what its index, partitions and deletes have to say."""
    for text in wrap(clean(what), room - len(ROOT_STEM), 2):
        yield [(ROOT_STEM, ""), (text, "dim")]
    if trace.index is not None:
        said = shorten(index_line(trace.index, trace.files), room - len(ROOT_STEM))
        yield [(ROOT_STEM, ""), (said, "dim")]
    if trace.partitions is not None and (said := partition_line(trace.partitions)):
        for text in wrap(said, room - len(ROOT_STEM), 3):
            yield [(ROOT_STEM, ""), (text, "dim")]
    if trace.deletes is not None:
        for text in wrap(delete_line(trace.deletes), room - len(ROOT_STEM), 3):
            yield [(ROOT_STEM, ""), (text, "dim")]


def _read(trace: ScanTrace, layout: Layout, *, last: bool) -> Iterator[Line]:
    reads, files = trace.reads, scan_files(trace)
    pairs = [("rows", scan_rows(trace))]
    if trace.tasks == 0:
        yield plain("read", NOTHING_TO_READ, layout, last=last)
    elif reads is None:
        yield plain("read", files, layout, last=last)
    else:
        share = data_share(reads)
        if reads.of_bytes:
            yield barred("read", reads.bytes, reads.of_bytes, [share], layout, last=last)
        else:
            yield plain("read", share, layout, last=last)
        pairs.insert(0, ("from", f"{files}, about {plural(reads.requests, 'request')}"))
    if trace.tasks:
        pairs += scan_facts(trace)
    if trace.requests or trace.bytes:
        pairs.append(("cost", f"metadata read: {cost(trace.requests, trace.bytes)}"))
    yield from facts(pairs, stem(last=last), layout.room)


def plain(name: str, text: str, layout: Layout, *, last: bool) -> Line:
    """A branch without a bar."""
    head = layout.head(name, last=last)
    return [(head, ""), (shorten(text, layout.room - width_of(head)), "")]


def _ran(run: Run, layout: Layout) -> Iterator[Line]:
    said = f"{plural(run.rows, 'row')} in {plural(run.batches, 'batch', 'batches')}, {duration(run.seconds)}"
    yield plain("ran", said, layout, last=True)
    yield from work_lines(run_work(run), run.phases, layout.room)


def work_lines(work: str, phases: Sequence[Phase], room: int) -> Iterator[Line]:
    """What stands below the last branch: what a run worked through, and its phases."""
    below = stem(last=True)
    room -= len(below)
    yield [(below, ""), (shorten(work, room), "")]
    for number, text in enumerate(_table(phases, room)):
        yield [(below, ""), (text, "" if number else "dim")]


def _table(phases: Sequence[Phase], room: int) -> Iterator[str]:
    """A head and a line per phase, numbers to the right; nothing for no phases."""
    if not phases:
        return
    cells = [("rows", "requests", "bytes", "time")]
    cells += [(count(p.rows), count(p.requests), size(p.bytes), duration(p.seconds)) for p in phases]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    names = ["phase", *(clean(phase.name) for phase in phases)]
    most = max(room - sum(widths) - 2 * len(widths), _SHORTEST_NAME)
    widest = min(max(map(width_of, names)), most)
    for name, row in zip(names, cells, strict=True):
        numbers = "".join(f"  {text:>{width}}" for text, width in zip(row, widths, strict=True))
        # A screen too narrow for every number loses the last ones.
        yield shorten(pad(shorten(name, widest), widest) + numbers, room)
