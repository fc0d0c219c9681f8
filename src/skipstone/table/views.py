"""Views of writes to keyed tables, of changes between snapshots, and of tails.

10,000 rows updated, 12 inserted
db.events: upsert committed as snapshot 42; located in 31 ms, written in 80 ms, committed in 20 ms
"""

from __future__ import annotations

from skipstone.report.node import Facts, ReportNode, Text
from skipstone.report.units import count, duration, phrase, plural, size, some
from skipstone.scan.row_view import row_table
from skipstone.table.changes import TableChanges
from skipstone.table.report import WriteReport
from skipstone.table.tail.status import TailStatus

_SHOWN = 20


def write_tree(report: WriteReport) -> ReportNode:
    """Rows by what happened to them, files, and the time it took."""
    rows = [(name, getattr(report.rows, name)) for name in ("inserted", "updated", "deleted", "unchanged")]
    parts = [f"{count(number)} {name}" for name, number in rows if number]
    spent = report.seconds
    done = "nothing changed" if report.snapshot is None else f"committed as snapshot {report.snapshot}"
    if report.repeated:
        done = f"was already committed as snapshot {report.snapshot}"
    times = [
        f"{what} in {duration(seconds)}"
        for what, seconds in (
            ("located", spent.locate),
            ("written", spent.write),
            ("committed", spent.commit),
            ("indexed", spent.index),
        )
        if seconds > 0.0005
    ]
    files = [plural(report.files, "data file")] if report.files else []
    files += [plural(report.delete_files, "delete file")] if report.delete_files else []
    return ReportNode(
        body=(
            Text(f"rows: {', '.join(parts)}" if parts else "no rows", "bold"),
            Text(phrase(f"{report.table}: {report.operation} {done}", *times, by=", "), "dim"),
            Facts(
                (
                    ("files", f"{' and '.join(files)}, {size(report.bytes)}" if files else ""),
                    ("conflicts", some(report.attempts - 1, "time", " rebased after concurrent commits")),
                )
            ),
            Text(f"index is not up to date: {report.index_problem}" if report.index_problem else "", "bold"),
        )
    )


def changes_tree(changes: TableChanges) -> ReportNode:
    """The number of rows by what happened to them, and the first of them."""
    parts = [
        f"{count(len(rows))} {name}"
        for name in ("inserted", "updated", "deleted")
        if len(rows := getattr(changes, name))
    ]
    tail = f" and {plural(changes.unflushed, 'unflushed row')}" if changes.unflushed else ""
    between = f"{changes.table}: from snapshot {changes.start or 'none'} to {changes.end}{tail}"
    head = Text(f"rows: {', '.join(parts)}" if parts else "no row differs", "bold")
    if not parts:
        return ReportNode(body=(head, Text(between, "dim")))
    more = len(changes) - _SHOWN
    notes = (f"… {plural(more, 'more row')}",) if more > 0 else ()
    return ReportNode(
        body=(head, Text(between, "dim"), row_table(changes.to_arrow().slice(0, _SHOWN), notes=notes))
    )


def tail_tree(status: TailStatus) -> ReportNode:
    """Unflushed calls and rows, the log, and its writer."""
    head = "nothing to flush"
    if status.calls:
        what = phrase(some(status.rows, "row"), some(status.deletes, "deleted key"), by=", ")
        head = f"{what} in {plural(status.calls, 'unflushed call')}"
    numbers = f"{count(status.floor + 1)} to {count(status.last)}"
    log = f"{plural(status.segments, 'file')}, {size(status.size)}, calls {numbers}"
    torn = "damaged calls" if status.lost else "an unfinished call"
    writer = f"{status.holder}, open" if status.open else f"closed; the last one was {status.holder}"
    return ReportNode(
        body=(
            Text(head, "bold"),
            Facts(
                (
                    ("table", status.table),
                    ("directory", status.path),
                    ("log", log if status.calls else ""),
                    ("writer", writer if status.holder is not None else ""),
                    ("torn", f"{plural(status.torn, 'byte')} of {torn}" if status.torn else ""),
                    ("lost", f"{plural(status.lost, 'synced call')}" if status.lost else ""),
                )
            ),
        )
    )
