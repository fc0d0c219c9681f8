"""What ``skipstone inspect`` shows of a table: gathered from its metadata and manifests, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.cli.tables import pinned, ref_names, when
from skipstone.core.evidence import Array
from skipstone.report.json import record
from skipstone.report.node import Bar, Cell, Facts, ReportNode, TableColumn, number, text
from skipstone.report.node import NodeTable as Grid
from skipstone.report.units import count, percent, plural, size

if TYPE_CHECKING:
    from skipstone.api import NodeTable, SnapshotInfo
    from skipstone.iceberg.inventory import Inventory
    from skipstone.iceberg.manifests.entries import Entries


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A field of the schema, nested ones by their path."""

    id: int
    name: str
    type: str
    required: bool
    key: bool
    """Whether it is one of the columns that identify a row."""
    initial_default: str | None
    write_default: str | None
    doc: str | None


@dataclass(frozen=True, slots=True)
class SpecUse:
    """A partition spec and the data files that were written under it."""

    id: int
    default: bool
    fields: tuple[str, ...]
    """As in ``day(ts)``; none where it divides nothing."""
    files: int
    rows: int
    bytes: int
    partitions: int


@dataclass(frozen=True, slots=True)
class TableDeletes:
    """Delete files of one kind, and how many data files they may have rows of."""

    kind: str
    files: int
    rows: int
    """Positions or keys in them, some of which may delete nothing."""
    bytes: int
    data_files: int


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Files of at least ``low`` and less than ``high`` bytes."""

    low: int
    high: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSizes:
    """How large the data files are; ``classes`` go by powers of two, empty ones between others included."""

    smallest: int
    median: int
    largest: int
    classes: tuple[SizeClass, ...]


@dataclass(frozen=True, slots=True)
class ManifestUse:
    """Manifests of one kind."""

    content: str
    manifests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableInspection:
    """All that is shown about one table at one of its snapshots."""

    table: str
    location: str
    uuid: str
    format_version: int
    snapshot: int | None
    snapshots: int
    snapshot_is_current: bool
    schema_id: int
    schema_is_current: bool
    columns: tuple[ColumnField, ...]
    sort_order: tuple[str, ...]
    specs: tuple[SpecUse, ...]
    files: int
    rows: int
    bytes: int
    deletes: tuple[TableDeletes, ...]
    files_with_deletes: int
    sizes: TableSizes | None
    manifests: tuple[ManifestUse, ...]
    properties: dict[str, str]
    requests: int
    bytes_read: int
    taken: SnapshotInfo | None = None
    names: tuple[str, ...] = ()
    """Branches and tags that name the snapshot."""

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers; keys are stable, new ones may be added."""
        found = record(self)
        del found["taken"], found["names"]
        read = {"requests": found.pop("requests"), "bytes": found.pop("bytes_read")}
        return {**found, "read": read}


def gather_table(table: NodeTable) -> TableInspection:
    """Read the manifests of a table's snapshot and sum them up; no data file is opened."""
    metadata = table.metadata
    data, _ = table.inventory.everything
    deletes, _ = table.delete_inventory.everything
    kinds, touched = _deletes(table, data, deletes)
    schema = table.iceberg_schema
    taken, io = pinned(table), table.io
    return TableInspection(
        table=table.name,
        location=table.uri,
        uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        snapshot=table.snapshot,
        snapshots=len(metadata.snapshots),
        snapshot_is_current=table.snapshot == metadata.current_snapshot_id,
        schema_id=schema.schema_id,
        schema_is_current=schema.schema_id == metadata.current_schema_id,
        columns=_columns(schema),
        sort_order=_sort_order(table),
        specs=_specs(table, data),
        files=len(data),
        rows=int(data.rows.sum()),
        bytes=int(data.sizes.sum()),
        deletes=kinds,
        files_with_deletes=touched,
        sizes=measure_sizes(data.sizes) if len(data) else None,
        manifests=(_manifests("data", table.inventory), _manifests("deletes", table.delete_inventory)),
        properties=dict(metadata.properties),
        requests=io.requests,
        bytes_read=io.bytes,
        taken=taken,
        names=() if taken is None else tuple(ref_names(taken, table)),
    )


# -- columns -----------------------------------------------------------------------------------


def _columns(schema: Any) -> tuple[ColumnField, ...]:
    from skipstone.iceberg.schema import walk_fields

    keys = set(schema.identifier_field_ids)
    return tuple(
        ColumnField(
            one.field.field_id,
            ".".join(one.path),
            _type_text(one.field.field_type),
            one.field.required,
            one.field.field_id in keys,
            _default_text(one.field.initial_default),
            _default_text(one.field.write_default),
            one.field.doc,
        )
        for one in walk_fields(schema.fields)
    )


def _type_text(type: Any) -> str:
    """A type without the fields of structs, which have lines of their own."""
    if type.is_primitive:
        return str(type)
    if type.is_struct:
        return "struct"
    if hasattr(type, "element_type"):
        return f"list<{_type_text(type.element_type)}>"
    return f"map<{_type_text(type.key_type)}, {_type_text(type.value_type)}>"


def _default_text(value: Any) -> str | None:
    if value is None:
        return None
    return repr(value) if isinstance(value, str | bytes) else str(value)


def _names(table: NodeTable) -> dict[int, str]:
    """Columns by field id; dropped ones go by their last name."""
    from skipstone.iceberg.schema import walk_fields

    older = sorted(table.metadata.schemas, key=lambda one: one.schema_id)
    schemas = (*older, table.metadata.schema(), table.iceberg_schema)
    return {
        one.field.field_id: ".".join(one.path) for schema in schemas for one in walk_fields(schema.fields)
    }


def _transformed(transform: str, source: str) -> str:
    """A column in the words of ``partition_by``: ``day(ts)``, ``bucket(16, id)``."""
    name, bracket, size = transform.rstrip("]").partition("[")
    if name == "identity":
        return source
    return f"{name}({size}, {source})" if bracket else f"{name}({source})"


def _field_text(field: Any, names: Mapping[int, str]) -> str:
    return _transformed(str(field.transform), names.get(field.source_id, f"field {field.source_id}"))


def _sort_order(table: NodeTable) -> tuple[str, ...]:
    metadata = table.metadata
    orders = {order.order_id: order for order in metadata.sort_orders}
    order = orders.get(metadata.default_sort_order_id)
    names = _names(table)
    return tuple(
        f"{_field_text(field, names)} {field.direction.value} {field.null_order.value.replace('-', ' ')}"
        for field in (order.fields if order is not None else ())
    )


# -- files -------------------------------------------------------------------------------------


def _specs(table: NodeTable, data: Entries) -> tuple[SpecUse, ...]:
    names, default = _names(table), table.metadata.default_spec_id
    used = np.zeros(len(data.keys), dtype=bool)
    used[data.partitions] = True
    of_keys = np.array([key.spec_id for key in data.keys], dtype=np.int64)[used]
    found = []
    for spec_id, spec in sorted(table.specs.items()):
        mine = data.specs == spec_id
        found.append(
            SpecUse(
                spec_id,
                spec_id == default,
                tuple(_field_text(field, names) for field in spec.fields),
                int(mine.sum()),
                int(data.rows[mine].sum()),
                int(data.sizes[mine].sum()),
                int((of_keys == spec_id).sum()),
            )
        )
    return tuple(found)


def _deletes(table: NodeTable, data: Entries, deletes: Entries) -> tuple[tuple[TableDeletes, ...], int]:
    """Delete files by kind, and how many data files any of them may apply to."""
    from skipstone.iceberg.deletes.match import DeleteIndex

    if not len(deletes):
        return (), 0
    index = DeleteIndex.of(deletes)
    matched = index.match(data, table.file_facts)
    kinds = (
        ("positions", index.positions, matched.positions.counts > 0),
        ("equality", index.equalities, matched.equalities.counts > 0),
        ("vectors", index.vectors, matched.vectors >= 0),
    )
    uses = tuple(
        TableDeletes(
            kind,
            len(numbers),
            int(deletes.rows[numbers].sum()),
            _delete_bytes(deletes, numbers, vectors=kind == "vectors"),
            int(touched.sum()),
        )
        for kind, numbers, touched in kinds
        if len(numbers)
    )
    return uses, int(matched.touched.sum())


def _delete_bytes(deletes: Entries, numbers: Array, *, vectors: bool) -> int:
    """Bytes of delete files; vectors share theirs, and have only their own part of it."""
    return int((deletes.content_sizes if vectors else deletes.sizes)[numbers].sum())


def measure_sizes(sizes: Array) -> TableSizes:
    """Sizes by powers of two, and those in the middle and at the ends; there is at least one."""
    # The exponent of the power of two that is not above a size; that of 0 is -1.
    exponents = np.frexp(sizes.astype(np.float64))[1] - 1
    first = int(exponents.min())
    files = np.bincount(exponents - first)
    weights = np.bincount(exponents - first, sizes.astype(np.float64))
    classes = tuple(
        SizeClass(0 if place < 0 else 1 << place, 1 << (place + 1), number, int(weight))
        for place, number, weight in zip(count_from(first), files.tolist(), weights.tolist(), strict=False)
    )
    return TableSizes(int(sizes.min()), int(np.median(sizes)), int(sizes.max()), classes)


def _manifests(content: str, inventory: Inventory) -> ManifestUse:
    return ManifestUse(content, len(inventory.infos), sum(info.length for info in inventory.infos))


# -- drawn -------------------------------------------------------------------------------------

_KINDS = {"positions": "position deletes", "equality": "equality deletes", "vectors": "deletion vectors"}
_CONTENTS = {"data": "data files", "deletes": "delete files"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def table_tree(found: TableInspection) -> ReportNode:
    """A section for the table itself, its columns, partition specs, delete files and file sizes."""
    sections = [
        ReportNode(found.table, body=(Facts(_facts(found)),)),
        ReportNode("columns", body=(_column_table(found.columns),)),
        ReportNode("partitioning", body=(_spec_table(found),)),
    ]
    if found.deletes:
        sections.append(ReportNode("deletes", body=(_delete_table(found),)))
    if found.sizes is not None:
        sections.append(ReportNode("sizes of data files", body=(_size_table(found.sizes, found.files),)))
    return ReportNode(children=tuple(sections), tree=False)


def _facts(found: TableInspection) -> list[tuple[str, str]]:
    taken, snapshot = found.taken, [("snapshot", "none yet")]
    if taken is not None:
        which = "the current one" if found.snapshot_is_current else "not the current one"
        names = f" ({', '.join(found.names)})" if found.names else ""
        made = f" by {taken.operation}" if taken.operation else ""
        snapshot = [
            ("snapshot", f"{taken.id}{names}, {which} of {count(found.snapshots)}"),
            ("committed", f"{when(taken.at)} UTC{made}"),
        ]
    older = "" if found.schema_is_current else ", not the current one"
    manifests = [
        f"{count(one.manifests)} of {_CONTENTS[one.content]}, {size(one.bytes)}"
        for one in found.manifests
        if one.manifests
    ]
    return [
        ("location", found.location),
        ("uuid", found.uuid),
        ("format", f"Iceberg version {found.format_version}"),
        *snapshot,
        ("rows", f"{count(found.rows)}{', minus deleted ones' if found.files_with_deletes else ''}"),
        ("size", f"{size(found.bytes)} in {plural(found.files, 'data file')}"),
        ("schema", f"{found.schema_id}{older}: {plural(len(found.columns), 'field')}"),
        ("sorted by", ", ".join(found.sort_order) or "nothing"),
        ("manifests", "; ".join(manifests) or "none"),
        ("metadata read", f"{plural(found.requests, 'request')}, {size(found.bytes_read)}"),
    ]


def _column_table(columns: Sequence[ColumnField]) -> Grid:
    head = [number("id"), text("column"), text("type"), TableColumn("null")]
    parts: list[list[Cell]] = [
        [str(one.id) for one in columns],
        [one.name for one in columns],
        [one.type for one in columns],
        ["key" if one.key else "no" if one.required else "yes" for one in columns],
    ]
    more = (
        (text("in older files"), [one.initial_default for one in columns]),
        (text("default"), [one.write_default for one in columns]),
        (TableColumn("about", least=6, spare=1), [one.doc for one in columns]),
    )
    for column, values in more:
        # Few tables have any of these.
        if any(value is not None for value in values):
            head.append(column)
            parts.append([value or "" for value in values])
    return Grid(head, list(zip(*parts, strict=True)))


def _spec_table(found: TableInspection) -> Grid:
    columns = (
        *(number("spec"), text("partitioned by", least=16), number("files"), number("rows"), number("size")),
        *(number("share", spare=1), number("partitions")),
    )
    rows = [
        (
            (f"* {spec.id}", "kept") if spec.default else str(spec.id),
            ", ".join(spec.fields) or "unpartitioned",
            count(spec.files),
            count(spec.rows),
            size(spec.bytes),
            percent(spec.bytes, found.bytes),
            count(spec.partitions),
        )
        for spec in found.specs
    ]
    return Grid(columns, rows, ("* marks the spec of new files",) if len(rows) > 1 else ())


def _delete_table(found: TableInspection) -> Grid:
    kinds = [
        (_KINDS[kind.kind], kind.files, kind.rows, kind.bytes, kind.data_files) for kind in found.deletes
    ]
    if len(kinds) > 1:
        totals = [
            sum(part) for part in zip(*((k.files, k.rows, k.bytes) for k in found.deletes), strict=True)
        ]
        kinds.append(("all", totals[0], totals[1], totals[2], found.files_with_deletes))
    return Grid(
        (TableColumn("kind"), number("files"), number("rows"), number("size"), text("applies to data files")),
        [
            (
                kind,
                count(files),
                count(rows),
                size(nbytes),
                f"{count(touched)} of {count(found.files)} ({percent(touched, found.files)})",
            )
            for kind, files, rows, nbytes, touched in kinds
        ],
    )


def _size_table(sizes: TableSizes, files: int) -> Grid:
    most = max(one.files for one in sizes.classes)
    rows = [
        (
            _binary(one.low),
            _binary(one.high),
            Bar.of(one.files, most),
            count(one.files),
            percent(one.files, files),
            size(one.bytes),
        )
        for one in sizes.classes
    ]
    ends = f"smallest {size(sizes.smallest)}, median {size(sizes.median)}, largest {size(sizes.largest)}"
    columns = (*map(number, ("from", "to")), TableColumn(), *map(number, ("files", "share", "size")))
    return Grid(columns, rows, (ends,))


def _binary(power: int) -> str:
    """A power of two in the unit that leaves the smallest number."""
    unit = max(power.bit_length() - 1, 0) // 10
    return f"{power >> (10 * unit)} {_BINARY[unit]}"
