"""What a build or a refresh of an index did, in a few lines.

indexed 2 files, 98 were known already; 2 were gone or had changed
read 412.9 kB in 6 requests, 73.0 ms; version 4 has 3 segments
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from skipstone.report.lines import paint, wrap
from skipstone.report.tree import Line, listed
from skipstone.report.units import count, duration, plural, size

_ROOM = 100
_NARROWEST = 60


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be indexed; a query that needs it will say so."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a build or a refresh did."""

    version: int
    """The index's version after it."""
    indexed: int
    """Files that were indexed."""
    kept: int
    """Files the index knew already."""
    dropped: int
    """Files it knew that are gone, or have changed."""
    adopted: int
    """Files whose segments lay there already, as an interrupted job or an older index left them."""
    segments: int
    requests: int
    bytes: int
    seconds: float
    skipped: tuple[Skipped, ...] = ()
    merged: int = 0
    """Segments that were merged into others."""

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers."""
        return report_to_json(self)

    def __str__(self) -> str:
        return draw_report(self)


def report_to_json(report: Report) -> dict[str, Any]:
    """A report as dicts, lists, strings and numbers."""
    return {**asdict(report), "skipped": [asdict(one) for one in report.skipped]}


def draw_report(report: Report, *, width: int | None = None, color: bool = False) -> str:
    """Draw the report in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or _ROOM, _NARROWEST)
    lines: list[Line] = [[(text, "bold")] for text in wrap("; ".join(_parts(report)), room, 3)]
    lines += [[(text, "dim")] for text in wrap(_spent(report), room, 3)]
    lines += listed("not indexed", [f"{one.path}: {one.reason}" for one in report.skipped], room)
    return "\n".join(paint(line, color=color) for line in lines)


def _parts(report: Report) -> Iterator[str]:
    kept = f"{count(report.kept)} were known already" if report.kept else ""
    if report.indexed or not (report.kept or report.adopted or report.skipped):
        yield ", ".join(filter(None, (f"indexed {plural(report.indexed, 'file')}", kept)))
    elif report.kept and not (report.dropped or report.adopted or report.skipped):
        yield f"nothing to do: {plural(report.kept, 'file')}, all known already"
    else:
        yield ", ".join(filter(None, ("indexed no file", kept)))
    if report.adopted:
        yield f"{plural(report.adopted, 'file')} as an earlier job had left them"
    if report.dropped:
        yield f"{count(report.dropped)} were gone or had changed"
    if report.skipped:
        yield f"{plural(len(report.skipped), 'file')} could not be indexed"


def _spent(report: Report) -> str:
    read = f"read {size(report.bytes)} in {plural(report.requests, 'request')}, " if report.requests else ""
    merged = f", {count(report.merged)} merged" if report.merged else ""
    held = f"version {count(report.version)} has {plural(report.segments, 'segment')}{merged}"
    return f"{read}{duration(report.seconds)}; {held}"
