"""``skipstone snapshots``: the states of a table that can be asked, newest last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from skipstone.cli.groups import grouped
from skipstone.cli.options import Format, FormatOption, Source, TableArgument
from skipstone.cli.output import emit, guarded, print_json, screen
from skipstone.cli.summaries import summed
from skipstone.cli.tables import Cell, Heading, number, table, text
from skipstone.report.lines import Span
from skipstone.report.units import count

if TYPE_CHECKING:
    from datetime import datetime

    from skipstone.api import SnapshotInfo, Table

_MISSING = "–"
_CHANGES = {
    "files": ("added-data-files", "deleted-data-files"),
    "rows": ("added-records", "deleted-records"),
    "delete files": ("added-delete-files", "removed-delete-files"),
}
"""What a snapshot adds and takes away, by the names that its summary has for them."""


@grouped
def snapshots(
    table: TableArgument,
    format: FormatOption = Format.TEXT,
    *,
    source: Source,
) -> None:
    """List the snapshots of an Iceberg table, each of which --snapshot takes by id, name or time."""
    with guarded():
        opened = source.open_table(table)
        if format is Format.JSON:
            print_json(to_json(opened))
            return
        from skipstone.report.lines import paint

        on = screen()
        emit("\n".join(paint(line, color=on.color) for line in draw(opened, on.width)))


def to_json(opened: Table) -> dict[str, Any]:
    """All snapshots; null where a summary doesn't say."""
    return {
        "table": opened.name,
        "location": opened.uri,
        "current": opened.metadata.current_snapshot_id,
        "snapshots": [_snapshot(one, opened) for one in opened.snapshots()],
    }


def when(at: datetime) -> str:
    """A time of the log to its millisecond, so that it names the snapshot when it is given back."""
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def ref_names(snapshot: SnapshotInfo, opened: Table) -> list[str]:
    """Branches and tags that name a snapshot, tags marked as such."""
    return [f"tag {name}" if _kind(opened, name) == "tag" else name for name in snapshot.refs]


def draw(opened: Table, width: int) -> Iterator[list[Span]]:
    """A line per snapshot; what it adds and takes away as far as its summary says."""
    found = opened.snapshots()
    if not found:
        yield [("the table has no snapshot", "")]
        return
    yield from _drawn(found, opened, width)
    yield [("* is what the table holds now", "dim")]


def _drawn(found: Sequence[SnapshotInfo], opened: Table, width: int) -> Iterator[list[Span]]:
    headings = [
        number("snapshot"),
        Heading("when (UTC)"),
        text("operation"),
        Heading("files", right=True, spare=2),
        number("rows"),
        Heading("delete files", right=True, spare=3),
        Heading("total", right=True, spare=1),
        text("names"),
    ]
    rows: list[list[Cell]] = [
        [
            (f"* {one.id}", "kept") if one.current else str(one.id),
            when(one.at),
            one.operation or _MISSING,
            *(_change(one, name) for name in _CHANGES),
            _count(summed(one, "total-records")),
            ", ".join(ref_names(one, opened)),
        ]
        for one in found
    ]
    # Most tables have no delete files.
    said = [place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) != {_MISSING}]
    yield from table([headings[at] for at in said], [[row[at] for at in said] for row in rows], width)


def _change(snapshot: SnapshotInfo, name: str) -> str:
    added, removed = (summed(snapshot, key) for key in _CHANGES[name])
    parts = [f"+{count(added)}" if added else "", f"−{count(removed)}" if removed else ""]
    said = " ".join(part for part in parts if part)
    return said or ("0" if added == 0 or removed == 0 else _MISSING)


def _count(known: int | None) -> str:
    return _MISSING if known is None else count(known)


def _kind(opened: Table, name: str) -> str:
    return str(opened.metadata.refs[name].snapshot_ref_type.value)


def _snapshot(one: SnapshotInfo, opened: Table) -> dict[str, Any]:
    return {
        "id": one.id,
        "parent": one.parent,
        "sequence_number": one.sequence,
        "at": one.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "operation": one.operation or None,
        "schema_id": one.schema_id,
        "current": one.current,
        "refs": [{"name": name, "type": _kind(opened, name)} for name in one.refs],
        "added_files": summed(one, "added-data-files"),
        "removed_files": summed(one, "deleted-data-files"),
        "added_rows": summed(one, "added-records"),
        "removed_rows": summed(one, "deleted-records"),
        "added_delete_files": summed(one, "added-delete-files"),
        "removed_delete_files": summed(one, "removed-delete-files"),
        "total_files": summed(one, "total-data-files"),
        "total_rows": summed(one, "total-records"),
        "total_bytes": summed(one, "total-files-size"),
        "summary": one.summary,
    }
