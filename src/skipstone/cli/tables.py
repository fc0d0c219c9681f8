"""``skipstone tables`` and ``skipstone snapshots``: the Iceberg tables of a catalog, and a table's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import Format, FormatOption, SourceOptions, grouped
from skipstone.cli.output import emit, guarded, print_json, show

if TYPE_CHECKING:
    from datetime import datetime

    from skipstone.api import NodeTable, SnapshotInfo
    from skipstone.report.node import Cell, ReportNode

_MISSING = "–"
_CHANGES = {
    "files": ("added-data-files", "deleted-data-files"),
    "rows": ("added-records", "deleted-records"),
    "delete files": ("added-delete-files", "removed-delete-files"),
}
"""What a snapshot adds and removes, by the keys of its summary."""
_NUMBERS = {
    "added_files": "added-data-files",
    "removed_files": "deleted-data-files",
    "added_rows": "added-records",
    "removed_rows": "deleted-records",
    "added_delete_files": "added-delete-files",
    "removed_delete_files": "removed-delete-files",
    "total_files": "total-data-files",
    "total_rows": "total-records",
    "total_bytes": "total-files-size",
}


@grouped
def tables(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Only tables of this namespace.")
    ] = None,
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the Iceberg tables of a catalog by name."""
    with guarded():
        catalog = source.open_catalog()
        names = catalog.tables(namespace)
        if format is Format.JSON:
            print_json({"catalog": catalog.iceberg.name, "namespace": namespace, "tables": names})
        else:
            from skipstone.report.lines import clean

            emit("\n".join(map(clean, names)) or "no tables")


@grouped
def snapshots(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="An Iceberg table: its name, such as db.events, and --catalog, or its metadata file.",
        ),
    ],
    format: FormatOption = Format.TEXT,
    *,
    source: SourceOptions,
) -> None:
    """List the snapshots of an Iceberg table, each of which --snapshot takes by id, name or time."""
    with guarded():
        opened = source.open_table(table)
        if format is Format.JSON:
            print_json(
                {
                    "table": opened.name,
                    "location": opened.uri,
                    "current": opened.metadata.current_snapshot_id,
                    "snapshots": [_document(one, opened) for one in opened.snapshots()],
                }
            )
        else:
            show(opened, snapshots_tree, format)


def summed(snapshot: SnapshotInfo, key: str) -> int | None:
    """A number of a snapshot's summary; None where its writer left it out."""
    text = snapshot.summary.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None


def pinned(table: Any) -> SnapshotInfo | None:
    """The snapshot that a table is opened at; None for one without any."""
    return next((one for one in table.snapshots() if one.id == table.snapshot), None)


def when(at: datetime) -> str:
    """A time to its millisecond, so that it names the snapshot when it is given back."""
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def ref_names(snapshot: SnapshotInfo, opened: NodeTable) -> list[str]:
    """Branches and tags of a snapshot, tags marked as such."""
    return [f"tag {name}" if _kind(opened, name) == "tag" else name for name in snapshot.refs]


def _kind(opened: NodeTable, name: str) -> str:
    return str(opened.metadata.refs[name].snapshot_ref_type.value)


def _document(one: SnapshotInfo, opened: NodeTable) -> dict[str, Any]:
    return {
        "id": one.id,
        "parent": one.parent,
        "sequence_number": one.sequence,
        "at": one.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "operation": one.operation or None,
        "schema_id": one.schema_id,
        "current": one.current,
        "refs": [{"name": name, "type": _kind(opened, name)} for name in one.refs],
        **{name: summed(one, key) for name, key in _NUMBERS.items()},
        "summary": one.summary,
    }


def snapshots_tree(opened: NodeTable) -> ReportNode:
    """A line per snapshot; what it adds and removes as far as its summary says."""
    from skipstone.report.node import NodeTable, ReportNode, TableColumn, Text, number, text
    from skipstone.report.units import count

    found = opened.snapshots()
    if not found:
        return ReportNode(body=(Text("the table has no snapshot"),))
    columns = [
        number("snapshot"),
        TableColumn("when (UTC)"),
        text("operation"),
        number("files", 2),
        number("rows"),
        number("delete files", 3),
        number("total", 1),
        text("names"),
    ]
    rows: list[list[Cell]] = []
    for one in found:
        total = summed(one, "total-records")
        rows.append(
            [
                (f"* {one.id}", "kept") if one.current else str(one.id),
                when(one.at),
                one.operation or _MISSING,
                *(_change(one, name) for name in _CHANGES),
                _MISSING if total is None else count(total),
                ", ".join(ref_names(one, opened)),
            ]
        )
    # Most tables have no delete files.
    said = [place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) != {_MISSING}]
    table = NodeTable(
        [columns[place] for place in said],
        [[row[place] for place in said] for row in rows],
        ("* marks the current snapshot",),
    )
    return ReportNode(body=(table,))


def _change(snapshot: SnapshotInfo, name: str) -> str:
    added, removed = (summed(snapshot, key) for key in _CHANGES[name])
    parts = [f"+{added:,}" if added else "", f"−{removed:,}" if removed else ""]
    said = " ".join(part for part in parts if part)
    return said or ("0" if added == 0 or removed == 0 else _MISSING)
