"""Facts about one Iceberg table, from its metadata and manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError
from skipstone.inspection.file import overall
from skipstone.inspection.lake import FileSizes, LakeColumn, measure_sizes
from skipstone.inspection.snapshots import SnapshotEntry, ref_types, snapshot_entries
from skipstone.prune.clustering import clustering
from skipstone.report import Reported
from skipstone.report.json import record

if TYPE_CHECKING:
    from skipstone.iceberg.inventory import Inventory
    from skipstone.iceberg.manifests.entries import Entries
    from skipstone.index.results import IndexStatus
    from skipstone.scan.table import Table


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A field of the schema, by its path."""

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
    """A partition spec and the data files written with it."""

    id: int
    default: bool
    fields: tuple[str, ...]
    """Such as ``day(ts)``; empty if it doesn't partition."""
    files: int
    rows: int
    bytes: int
    partitions: int


@dataclass(frozen=True, slots=True)
class TableDeletes:
    """Delete files of one kind, and the number of data files they may apply to."""

    kind: str
    files: int
    rows: int
    """Positions or keys, some of which may delete nothing."""
    bytes: int
    data_files: int


@dataclass(frozen=True, slots=True)
class ManifestUse:
    """Manifests of one kind."""

    content: str
    manifests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableInspection(Reported):
    """Facts about one table at one of its snapshots."""

    view: ClassVar[str] = "skipstone.inspection.views:table_tree"

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
    """Rows of the data files, deleted ones included."""
    live_rows: int | None
    """Rows that are not deleted; None if neither the delete files nor the snapshots' summaries tell."""
    bytes: int
    deletes: tuple[TableDeletes, ...]
    files_with_deletes: int
    sizes: FileSizes | None
    manifests: tuple[ManifestUse, ...]
    values: tuple[LakeColumn, ...]
    """Bounds and clustering of columns over the data files, from the manifests."""
    index: IndexStatus
    properties: dict[str, str]
    requests: int
    bytes_read: int
    entry: SnapshotEntry | None = None
    """The snapshot; None for a table without any."""

    @property
    def delete_kinds(self) -> tuple[TableDeletes, ...]:
        """Delete files by kind, and all of them if there are several kinds."""
        kinds = self.deletes
        if len(kinds) < 2:
            return kinds
        files, rows = sum(kind.files for kind in kinds), sum(kind.rows for kind in kinds)
        total = TableDeletes("all", files, rows, sum(k.bytes for k in kinds), self.files_with_deletes)
        return (*kinds, total)

    def to_json(self) -> dict[str, Any]:
        """Return the same as dicts, lists, strings and numbers."""
        fields = record(self)
        del fields["entry"]
        read = {"requests": fields.pop("requests"), "bytes": fields.pop("bytes_read")}
        return {**fields, "read": read}


def inspect_table(table: Table) -> TableInspection:
    """Read the manifests of a table's snapshot and sum them up; opens no data file."""
    metadata = table.metadata
    data, _ = table.inventory.everything
    deletes, _ = table.delete_inventory.everything
    kinds, touched = _deletes(table, data, deletes)
    schema = table.iceberg_schema
    entries = snapshot_entries(table.snapshots(), ref_types(table))
    entry = next((one for one in entries if one.id == table.snapshot), None)
    rows = int(data.rows.sum())
    io = table.io
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
        rows=rows,
        live_rows=rows if not touched else entry.live_rows if entry is not None else None,
        bytes=int(data.sizes.sum()),
        deletes=kinds,
        files_with_deletes=touched,
        sizes=measure_sizes(data.sizes) if len(data) else None,
        manifests=(_manifests("data", table.inventory), _manifests("deletes", table.delete_inventory)),
        values=_values(table, data),
        index=table.index.status(),
        properties=dict(metadata.properties),
        requests=io.requests,
        bytes_read=io.bytes,
        entry=entry,
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


def _values(table: Table, data: Entries) -> tuple[LakeColumn, ...]:
    """Columns whose bounds the manifests have, including fields of structs."""
    from skipstone.iceberg.schema import walk_fields

    values = []
    for one in walk_fields(table.iceberg_schema.fields):
        field = one.field
        if not field.field_type.is_primitive or field.field_id not in data.metric_fields():
            continue
        facts = table.file_facts(data, field.field_id)
        counts = data.metrics(field.field_id).nulls
        # A zero that isn't trusted, or -1, may be any number.
        known = not (facts.may_null & (counts <= 0)).any()
        column = LakeColumn(
            ".".join(one.path),
            _type_text(field.field_type),
            field.required,
            overall(facts),
            int(counts.clip(0).sum()) if known else None,
            clustering(facts, data.rows),
            "files",
            bool(facts.may_nan.any()),
        )
        values.append(column)
    return tuple(values)


def _type_text(type: Any) -> str:
    """Return the name of the Arrow type, without the fields of structs, which are listed separately."""
    from skipstone.iceberg.schema import arrow_type

    try:
        return type_name(arrow_type(type), brief=True)
    except SchemaError:
        return str(type)  # such as variant, which has no Arrow type


def _default_text(value: Any) -> str | None:
    if value is None:
        return None
    return repr(value) if isinstance(value, str | bytes) else str(value)


def _names(table: Table) -> dict[int, str]:
    """Return column names by field id; dropped columns have their last name."""
    from skipstone.iceberg.schema import walk_fields

    older = sorted(table.metadata.schemas, key=lambda one: one.schema_id)
    schemas = (*older, table.metadata.schema(), table.iceberg_schema)
    return {
        one.field.field_id: ".".join(one.path) for schema in schemas for one in walk_fields(schema.fields)
    }


def _field_text(field: Any, names: Mapping[int, str]) -> str:
    from skipstone.iceberg.create import transform_text

    return transform_text(field.transform, names.get(field.source_id, f"field {field.source_id}"))


def _sort_order(table: Table) -> tuple[str, ...]:
    metadata = table.metadata
    orders = {order.order_id: order for order in metadata.sort_orders}
    order = orders.get(metadata.default_sort_order_id)
    names = _names(table)
    return tuple(
        f"{_field_text(field, names)} {field.direction.value} {field.null_order.value.replace('-', ' ')}"
        for field in (order.fields if order is not None else ())
    )


# -- files -------------------------------------------------------------------------------------


def _specs(table: Table, data: Entries) -> tuple[SpecUse, ...]:
    names, default = _names(table), table.metadata.default_spec_id
    used = np.zeros(len(data.keys), dtype=bool)
    used[data.partitions] = True
    of_keys = np.array([key.spec_id for key in data.keys], dtype=np.int64)[used]
    uses = []
    for spec_id, spec in sorted(table.specs.items()):
        mine = data.specs == spec_id
        uses.append(
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
    return tuple(uses)


def _deletes(table: Table, data: Entries, deletes: Entries) -> tuple[tuple[TableDeletes, ...], int]:
    """Return delete files by kind, and the number of data files that any of them may apply to."""
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
    """Bytes of delete files; vectors share files, so only their own part counts."""
    return int((deletes.content_sizes if vectors else deletes.sizes)[numbers].sum())


def _manifests(content: str, inventory: Inventory) -> ManifestUse:
    return ManifestUse(content, len(inventory.infos), sum(info.length for info in inventory.infos))
