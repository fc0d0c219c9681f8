"""Views of files, tables, snapshots and catalogs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from skipstone.index.results import IndexStatus
from skipstone.inspection.doctor import Diagnosis
from skipstone.inspection.file import Bounds, FileInspection, InspectedColumn
from skipstone.inspection.lake import LakeColumn, LakeInspection, LakeSchema
from skipstone.inspection.snapshots import SnapshotEntry, SnapshotList, TableList, snapshot_entries
from skipstone.inspection.table import TableInspection
from skipstone.prune.clustering import Clustering, Layout
from skipstone.report.node import (
    MISSING,
    Bar,
    Block,
    Cell,
    Code,
    Facts,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    fields,
    nbytes,
    number,
    table,
    text,
)
from skipstone.report.units import ago, cost, count, percent, phrase, plural, share, size, spark
from skipstone.scan import views as scan_views
from skipstone.scan.statistics import live_text

if TYPE_CHECKING:
    from skipstone.iceberg.metadata import SnapshotInfo

_STYLES = {Layout.SORTED: "kept", Layout.CLUSTERED: "kept", Layout.OVERLAPPING: "warn", Layout.RANDOM: "bad"}
_CHECKED = {"ok": "kept", "warn": "warn", "missing": "bad"}
_PARTITIONS, _TABLES = (20, "partition"), (40, "table")
_READS = (
    "= reads: average number of units that `column = value` reads",
    "overlap: the share of units that covers each part of the column's range",
)
# Zero fractions of a second; strings are quoted, so this is a time.
_NO_FRACTION = re.compile(r"^([-0-9 ]*:\d\d:\d\d)\.0+(?=Z?$)")


def _sections(
    label: str, facts: Facts, *sections: tuple[str, Block | None], notes: Sequence[str] = ()
) -> ReportNode:
    """Facts, a section for each block that is not None, and notes."""
    nodes = [ReportNode(name, body=(block,)) for name, block in sections if block is not None]
    return ReportNode(label, body=(facts,), children=tuple(nodes), tree=False, tail=(Items("notes", notes),))


# -- files -------------------------------------------------------------------------------------


def file_tree(file: FileInspection) -> ReportNode:
    """A section for the file itself and for each table that was requested."""
    values = table(
        file.columns,
        *fields(text, "column=leaf.name"),
        *_BOUNDS,
        number("nulls", lambda column: _count(column.null_count)),
        number("NaN", lambda c: _count(c.nan_count) if c.floating else None, optional=True),
    )
    return _sections(
        file.metadata.path,
        Facts(_file_facts(file)),
        ("columns", _file_columns(file)),
        ("values", values),
        ("clustering", _clustering(file)),
        ("row groups", _row_groups(file) if file.row_groups else None),
        ("pages", _pages(file) if file.pages else None),
        notes=[f"{note.unit}: {note.reason}" for note in file.notes],
    )


def _file_facts(file: FileInspection) -> list[tuple[str, str]]:
    metadata, data = file.metadata, file.data_bytes
    groups = plural(metadata.row_group_count, "row group")
    largest = int(metadata.row_group_rows.max()) if metadata.row_group_count else 0
    total = size(metadata.size) if metadata.size is not None else "unknown"
    plain = sum(group.total_byte_size or 0 for group in metadata.row_groups)
    ratio = f", {plain / data:.1f} × smaller" if data and plain else ""
    return [
        ("rows", f"{count(metadata.num_rows)} in {groups} of up to {count(largest)}"),
        ("size", f"{total}: data {size(data)}, footer {size(metadata.footer_size)}"),
        ("compression", (", ".join(file.codecs) or MISSING) + ratio),
        ("written by", metadata.created_by or MISSING),
        ("metadata read", cost(file.requests, file.bytes)),
    ]


def _file_columns(file: FileInspection) -> NodeTable:
    total, groups = file.data_bytes, file.metadata.row_group_count
    return table(
        file.columns,
        *fields(text, "column=leaf.name", "type=type_name"),
        TableColumn("null", lambda column: "no" if column.leaf.required else "yes", rank=2),
        *fields(TableColumn, "stored as=physical_name@5"),
        TableColumn("encoding", lambda column: column.encoding_names or None, rank=4),
        *fields(nbytes, "size=bytes@1"),
        number("share", lambda column: percent(column.bytes, total), rank=3),
        text("evidence", lambda column: column.coverage.describe(groups), 26),
    )


def _count(number: int | None) -> str:
    return "unknown" if number is None else count(number)


def _bound(bounds: Bounds, end: str, mark: str) -> str:
    """A bound; ≥ and ≤ mark one that need not occur as a value."""
    value = getattr(bounds, end)
    mark = "" if getattr(bounds, f"{end}_exact") else f"{mark} "
    return MISSING if value is None else mark + _NO_FRACTION.sub(r"\1", value)


def _range(bounds: Bounds) -> str:
    return MISSING if bounds.min is None else f"{_bound(bounds, 'min', '≥')} to {_bound(bounds, 'max', '≤')}"


_BOUNDS = (
    text("min", lambda unit: _bound(unit.bounds, "min", "≥")),
    text("max", lambda unit: _bound(unit.bounds, "max", "≤")),
)


def _clustering(file: FileInspection) -> NodeTable:
    return table(
        file.columns,
        *fields(text, "column=leaf.name"),
        TableColumn("row groups", lambda column: _layout(column.row_group_clustering)),
        number("= reads", lambda column: _depth(column.row_group_clustering)),
        TableColumn("pages", lambda column: _layout(column.page_clustering), rank=1),
        number("= reads", lambda column: _depth(column.page_clustering), rank=1),
        TableColumn("overlap", _overlap, rank=2),
        notes=_READS,
    )


def _layout(measured: Clustering | None) -> Cell | None:
    if measured is None or measured.layout is Layout.UNKNOWN:
        return None
    return measured.layout.value, _STYLES.get(measured.layout, "")


def _depth(measured: Clustering | None) -> str:
    if measured is None or measured.layout is Layout.UNKNOWN:
        return ""
    return f"{measured.depth:,.1f} ({percent(measured.depth, measured.units)})"


def _overlap(column: InspectedColumn) -> str:
    finest = column.page_clustering or column.row_group_clustering
    return spark(list(finest.profile)) if finest is not None else ""


# -- lakes -------------------------------------------------------------------------------------


def schema_tree(schema: LakeSchema) -> ReportNode:
    """The columns of a lake and their types."""
    return scan_views.lake_tree(schema.lake, most=None)


def lake_tree(lake: LakeInspection) -> ReportNode:
    """A section for the lake itself, its columns, their values, its partitions and its file sizes."""
    columns = table(
        lake.columns,
        *fields(text, "column=name", "type=type_name"),
        *fields(nbytes, "size=bytes@1"),
        number("share", lambda c: percent(c.bytes, lake.bytes) if c.coverage else None, rank=2),
        text("evidence", lambda c: c.coverage.describe(lake.row_groups) if c.coverage else "partition", 26),
    )
    partitions = table(
        lake.partitions,
        text(
            "partition",
            lambda use: phrase(
                *(f"{k} = {'NULL' if v is None else v}" for k, v in use.values.items()), by=", "
            ),
        ),
        *fields(number, "files", "rows@1"),
        *fields(nbytes, "size=bytes"),
        most=_PARTITIONS,
    )
    facts = [
        ("rows", f"{count(lake.rows)} in {plural(lake.row_groups, 'row group')}"),
        ("size", f"{size(lake.bytes)} in {plural(lake.files, 'file')}"),
        ("version", lake.version),
        ("index", _index(lake.index)),
        ("metadata read", cost(lake.requests, lake.bytes_read)),
    ]
    return _sections(
        lake.lake,
        Facts(facts),
        ("columns", columns),
        ("values", _values(lake.columns, "row groups")),
        ("partitions", partitions if lake.partitions else None),
        ("file sizes", _sizes(lake)),
    )


def _partition_text(value: tuple[str, str | None]) -> str:
    return f"{value[0]} = {'NULL' if value[1] is None else value[1]}"


def _values(columns: Sequence[LakeColumn], unit: str) -> NodeTable:
    return table(
        columns,
        *fields(text, "column=name"),
        _BOUNDS[0],
        text(
            "max", lambda c: _bound(c.bounds, "max", "≤") + (" or NaN" if c.may_nan and c.bounds.max else "")
        ),
        number("nulls", lambda column: _count(column.null_count), rank=2),
        TableColumn(unit, lambda column: _layout(column.clustering)),
        number("= reads", lambda column: _depth(column.clustering)),
        TableColumn("overlap", lambda column: spark(list(column.clustering.profile)), rank=3),
        notes=_READS,
    )


def _index(status: IndexStatus) -> str:
    if not status.version:
        return phrase("none", status.next_step)
    covered = f"{count(status.covered)} of {plural(status.files, 'file')}"
    return phrase(
        f"{covered}, {size(status.sizes.total)}, {ago(status.taken - status.written)}", status.next_step
    )


def doctor_tree(diagnosis: Diagnosis) -> ReportNode:
    """A line per check, with the command that fixes what it found."""
    lines = [
        ((f"{one.status:<7}  {one.name}", _CHECKED[one.status]), phrase(one.said, one.fix, by=" → "))
        for one in diagnosis.checks
    ]
    return ReportNode(body=(Facts(lines),))


# -- row groups and pages of files -------------------------------------------------------------


def _row_groups(file: FileInspection) -> NodeTable:
    """A line per row group, with the bounds of the named columns."""
    metadata = file.metadata
    chunks = [metadata.chunks(leaf.index) for leaf in metadata.leaves]
    return table(
        range(metadata.row_group_count),
        number("#", str),
        number("first row", lambda group: int(metadata.row_group_starts[group])),
        number("rows", lambda group: int(metadata.row_group_rows[group])),
        nbytes("size", lambda group: sum(chunk[group].total_compressed_size for chunk in chunks)),
        *(_group_bounds(column, metadata.row_group_count) for column in file.columns if file.named),
        more="use --format json",
    )


def _group_bounds(column: InspectedColumn, row_groups: int) -> TableColumn:
    bounds = column.row_group_bounds(row_groups)
    return text(column.leaf.name, lambda group: _range(bounds[group]), 20)


def _pages(file: FileInspection) -> NodeTable:
    return table(
        file.pages or (),
        number("group", lambda page: str(page.row_group)),
        *fields(number, "first row", "rows"),
        *fields(nbytes, "size=bytes@2"),
        *_BOUNDS,
        number("nulls", lambda page: _count(page.null_count), rank=1),
    )


# -- tables ------------------------------------------------------------------------------------

_KINDS = {"positions": "position deletes", "equality": "equality deletes", "vectors": "deletion vectors"}
_CONTENTS = {"data": "data files", "deletes": "delete files"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def table_tree(inspected: TableInspection) -> ReportNode:
    """A section for the table itself, its columns, partition specs, delete files and file sizes."""
    columns = table(
        inspected.columns,
        number("id", lambda field: str(field.id), rank=1),
        *fields(text, "column=name", "type"),
        TableColumn("null", lambda f: "key" if f.key else "no" if f.required else "yes"),
        text("in older files", lambda field: field.initial_default or "", rank=3, optional=True),
        text("default", lambda field: field.write_default or "", rank=2, optional=True),
        text("about", lambda field: field.doc or "", rank=4, optional=True),
    )
    return _sections(
        inspected.table,
        Facts(_table_facts(inspected)),
        ("columns", columns),
        ("values", _values(inspected.values, "files") if inspected.values else None),
        ("partitioning", _specs(inspected)),
        ("deletes", _deletes(inspected) if inspected.deletes else None),
        ("data file sizes", _sizes(inspected)),
    )


def _table_facts(inspected: TableInspection) -> list[tuple[str, str]]:
    snapshot, committed = "none yet", ""
    if (entry := inspected.entry) is not None:
        which = "the current snapshot" if inspected.snapshot_is_current else "not the current snapshot"
        refs = f" ({', '.join(map(str, entry.refs))})" if entry.refs else ""
        snapshot = f"{entry.id}{refs}, {which} of {count(inspected.snapshots)}"
        committed = phrase(f"{_when(entry.at)} UTC", entry.operation, by=" by ")
    older = "" if inspected.schema_is_current else ", not the current schema"
    manifests = [one for one in inspected.manifests if one.manifests]
    listed = [f"{count(m.manifests)} of {_CONTENTS[m.content]}, {size(m.bytes)}" for m in manifests]
    deleted = inspected.rows - inspected.live_rows if inspected.live_rows is not None else None
    gone = f", and {plural(deleted, 'deleted row')} in the files" if deleted else ""
    return [
        ("location", inspected.location),
        ("uuid", inspected.uuid),
        ("format", f"Iceberg version {inspected.format_version}"),
        ("snapshot", snapshot),
        ("committed", committed),
        ("rows", f"{live_text(inspected.live_rows, inspected.rows)}{gone}"),
        ("size", f"{size(inspected.bytes)} in {plural(inspected.files, 'data file')}"),
        ("schema", f"{inspected.schema_id}{older}: {plural(len(inspected.columns), 'field')}"),
        ("sort order", ", ".join(inspected.sort_order) or "none"),
        ("manifests", phrase(*listed) or "none"),
        ("index", _index(inspected.index)),
        ("metadata read", cost(inspected.requests, inspected.bytes_read)),
    ]


def _specs(inspected: TableInspection) -> NodeTable:
    return table(
        inspected.specs,
        number("spec", lambda spec: (f"* {spec.id}", "kept") if spec.default else str(spec.id)),
        text("partitioned by", lambda spec: ", ".join(spec.fields) or "unpartitioned", 16),
        *fields(number, "files", "rows@1"),
        number("size", lambda spec: size(spec.bytes), rank=2),
        number("share", lambda spec: percent(spec.bytes, inspected.bytes), rank=3),
        *fields(number, "partitions@1"),
        notes=("* marks the spec of new files",) if len(inspected.specs) > 1 else (),
    )


def _deletes(inspected: TableInspection) -> NodeTable:
    return table(
        inspected.delete_kinds,
        TableColumn("kind", lambda deletes: _KINDS.get(deletes.kind, deletes.kind)),
        *fields(number, "files", "rows@1"),
        number("size", lambda deletes: size(deletes.bytes), rank=2),
        text("applies to data files", lambda deletes: share(deletes.data_files, inspected.files), 20),
    )


def _sizes(inspected: TableInspection | LakeInspection) -> NodeTable | None:
    sizes = inspected.sizes
    if sizes is None:
        return None
    most = max(one.files for one in sizes.classes)
    return table(
        sizes.classes,
        number("from", lambda group: _binary(group.low)),
        number("to", lambda group: _binary(group.high)),
        TableColumn("", lambda group: Bar.of(group.files, most), rank=1),
        number("files", lambda group: group.files),
        number("share", lambda group: percent(group.files, inspected.files), rank=2),
        number("size", lambda group: size(group.bytes), rank=1),
        notes=(
            f"smallest {size(sizes.smallest)}, median {size(sizes.median)}, largest {size(sizes.largest)}",
        ),
    )


def _binary(power: int) -> str:
    """A power of two in the unit that leaves the smallest number."""
    unit = max(power.bit_length() - 1, 0) // 10
    return f"{power >> (10 * unit)} {_BINARY[unit]}"


# -- snapshots ---------------------------------------------------------------------------------


def snapshots_tree(listed: SnapshotList | SnapshotInfo | Sequence[SnapshotInfo]) -> ReportNode:
    """A line per snapshot, with the changes that its summary records."""
    if not isinstance(listed, SnapshotList):
        several = listed if isinstance(listed, Sequence) else [listed]
        listed = SnapshotList("", "", None, snapshot_entries(several, {}))
    if not listed.snapshots:
        return ReportNode(body=(Text("the table has no snapshots"),))
    snapshots = table(
        listed.snapshots,
        number("snapshot", lambda one: (f"* {one.id}", "kept") if one.current else str(one.id)),
        TableColumn("committed (UTC)", lambda one: (_when(one.at), "firm")),
        text("operation", lambda one: one.operation, rank=1),
        number("files", lambda one: _change(one, "files"), rank=4, optional=True),
        number("rows", lambda one: _change(one, "rows"), rank=2, optional=True),
        number("delete files", lambda one: _change(one, "delete_files"), rank=5, optional=True),
        number("live rows", lambda one: live_text(one.live_rows, one.total_rows), rank=3, optional=True),
        text("refs", lambda one: ", ".join(map(str, one.refs)), rank=1),
        notes=("* marks the current snapshot",),
    )
    return ReportNode(body=(snapshots,))


def _when(at: datetime) -> str:
    """A time to its millisecond, so that it can be used to name the snapshot."""
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def _change(snapshot: SnapshotEntry, noun: str) -> str | None:
    added, removed = (getattr(snapshot, f"{verb}_{noun}") for verb in ("added", "removed"))
    parts = (added and f"+{added:,}", removed and f"−{removed:,}")
    return phrase(*parts, by=" ") or ("0" if 0 in (added, removed) else None)


def catalog_tree(where: str, names: Sequence[str]) -> ReportNode:
    """The tables of a catalog."""
    spaces = plural(len({name.rpartition(".")[0] for name in names}), "namespace")
    said = f"{plural(len(names), 'table')} in {spaces}" if names else "no tables"
    return ReportNode(where, said, body=(table(names, TableColumn(), most=_TABLES),))


def tables_tree(listed: TableList) -> ReportNode:
    """The names of the tables."""
    return ReportNode(body=(Code(listed.tables or ("no tables",)),))
