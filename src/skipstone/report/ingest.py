"""What an ingest wrote, and how well it will skip.

20,000,000 rows in 9 files, 1.1 GB: 118.2 MB to 131.0 MB each, 27 row groups
lake/events: surveyed in 2.1 s, written in 21.4 s (52.3 MB/s), published in 10.2 ms

look-up of  reads of the lake
event_id    █░░░░░░░░░░░░░░░░░░░  <0.1 % of the rows, 11 % of the files
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from skipstone.report.lines import clean, pad, paint, shorten, width_of, wrap
from skipstone.report.tree import Line, listed
from skipstone.report.units import bar, count, duration, percent, plural, size

_ROOM = 100
_NARROWEST = 60
_CELLS = 20


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long each phase took."""

    survey: float = 0.0
    write: float = 0.0
    publish: float = 0.0
    index: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.survey + self.write + self.publish + self.index


@dataclass(frozen=True, slots=True)
class LookUps:
    """What ``column = value`` has to read, for values that the lake holds: shares of its rows and files."""

    column: str
    rows: float
    files: float


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest did."""

    lake: str
    rows: int
    sizes: tuple[int, ...]
    """Bytes of each file."""
    row_groups: int
    partitions: int
    seconds: Seconds
    index_bytes: int
    """Of the whole lake's index, afterwards."""
    skips: tuple[LookUps, ...] = ()
    index_problem: str = ""
    """Why the index is not up to date, though the rows are in; "" if nothing went wrong."""
    snapshot: int | None = None
    """The snapshot that a table has the rows in; None for a directory, or if nothing was done."""
    replaced: int = 0
    """Files that a table has no longer: all their rows were replaced, or some, and the others moved."""
    cluster_by: tuple[str, ...] = ()
    clustered_as_before: bool = False
    """Whether nobody named these columns, and they are those of the ingest before."""

    @property
    def files(self) -> int:
        """How many files were written."""
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were written."""
        return sum(self.sizes)

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers."""
        return {
            **asdict(self),
            "sizes": list(self.sizes),
            "cluster_by": list(self.cluster_by),
            "files": self.files,
            "bytes": self.bytes,
            "skips": [asdict(one) for one in self.skips],
        }

    def __str__(self) -> str:
        return draw_ingest(self)


def draw_ingest(report: IngestReport, *, width: int | None = None, color: bool = False) -> str:
    """Draw the report in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or _ROOM, _NARROWEST)
    lines: list[Line] = [[(text, "bold")] for text in wrap(_written(report), room, 3)]
    lines += [[(text, "dim")] for text in wrap(_spent(report), room, 3)]
    if report.index_problem:
        said = f"the rows are in, but the index is not up to date: {clean(report.index_problem)}"
        lines += [[(text, "bold")] for text in wrap(said, room, 3)]
    lines += _look_ups(report, room)
    return "\n".join(paint(line, color=color) for line in lines)


def _written(report: IngestReport) -> str:
    if not report.sizes:
        gone = f"; {plural(report.replaced, 'file')} dropped" if report.replaced else ""
        return f"no rows, so nothing was written{gone}"
    low, high = min(report.sizes), max(report.sizes)
    each = size(low) if low == high else f"{size(low)} to {size(high)} each"
    parts = f" in {plural(report.partitions, 'partition')}" if report.partitions > 1 else ""
    files = f"{plural(report.rows, 'row')} in {plural(report.files, 'file')}{parts}"
    gone = f", in the place of {plural(report.replaced, 'file')}" if report.replaced else ""
    how = f"; clustered by {', '.join(map(clean, report.cluster_by))}, as the lake is"
    return (
        f"{files}, {size(report.bytes)}: {each}, {plural(report.row_groups, 'row group')}{gone}"
        f"{how if report.clustered_as_before else ''}"
    )


def _spent(report: IngestReport) -> str:
    spent = report.seconds
    speed = f" ({size(int(report.bytes / spent.write))}/s)" if spent.write and report.bytes else ""
    parts = [f"surveyed in {duration(spent.survey)}"]
    if report.sizes:
        parts.append(f"written in {duration(spent.write)}{speed}")
        done = "published" if report.snapshot is None else f"committed as snapshot {report.snapshot}"
        parts.append(f"{done} in {duration(spent.publish)}")
    if report.index_bytes:
        parts.append(f"indexed in {duration(spent.index)} (the index has {size(report.index_bytes)})")
    return f"{clean(report.lake)}: {', '.join(parts)}"


def _look_ups(report: IngestReport, room: int) -> Iterator[Line]:
    if not report.skips:
        return
    names = ["look-up of", *(shorten(clean(one.column), room // 3) for one in report.skips)]
    said = [f"{percent(s.rows, 1)} of the rows, {percent(s.files, 1)} of the files" for s in report.skips]
    widest = max(map(width_of, names))
    cells = max(min(_CELLS, room - widest - 4 - max(map(len, said))), 1)
    yield [("", "")]
    yield [(f"{pad(names[0], widest)}  reads of the lake", "dim")]
    for name, one, text in zip(names[1:], report.skips, said, strict=True):
        filled, empty = bar(one.rows, 1, cells)
        yield [(f"{pad(name, widest)}  ", ""), (filled, "bold"), (empty, "dim"), (f"  {text}", "")]


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What a run over a source did."""

    lake: str
    new: int
    """Source files that were taken in."""
    known: int
    """Those that an earlier run had taken in."""
    changed: tuple[str, ...]
    """Those that have changed since, and were left alone."""
    batches: tuple[IngestReport, ...]

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def files(self) -> int:
        """Files that were written."""
        return sum(batch.files for batch in self.batches)

    @property
    def bytes(self) -> int:
        """Bytes of the files that were written."""
        return sum(batch.bytes for batch in self.batches)

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers."""
        totals = {"rows": self.rows, "files": self.files, "bytes": self.bytes}
        batches = [batch.to_json() for batch in self.batches]
        return {**asdict(self), **totals, "changed": list(self.changed), "batches": batches}

    def __str__(self) -> str:
        return draw_pipeline(self)


def draw_pipeline(report: PipelineReport, *, width: int | None = None, color: bool = False) -> str:
    """Draw the report in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or _ROOM, _NARROWEST)
    known = f"; {count(report.known)} were known already" if report.known else ""
    head = f"took in {plural(report.new, 'source file')}{known}" if report.new else _nothing(report)
    lines: list[Line] = [[(text, "bold")] for text in wrap(head, room, 3)]
    lines += listed("changed since they were taken in, and left alone", report.changed, room)
    drawn = [paint(line, color=color) for line in lines]
    drawn += [draw_ingest(batch, width=width, color=color) for batch in report.batches]
    return "\n".join(drawn)


def _nothing(report: PipelineReport) -> str:
    if not report.known:
        return "no new source files"
    return f"nothing to do: {plural(report.known, 'source file')}, all known already"
