"""Plans of tables as the Iceberg REST protocol writes them: pages of data files with their delete files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.conversions import to_json
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType, UUIDType

from skipstone.core.evidence import Array
from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.deletes.match import PATH_ID, DeleteMatches
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.table import TableSnapshot
from skipstone.scan.table import Table, current_table
from skipstone.serve.access import Refusal, bad_request, json_text
from skipstone.serve.filters import Filter, check_columns
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.local import resolve_directories_once

_CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
_BARE_SPEC: Final = 2**31 - 1
"""A spec without fields, which metadata has for clients that can't read NULL as a partition value."""


def _bare_spec(specs: Iterable[PartitionSpec]) -> PartitionSpec | None:
    """A spec without fields, whose files have no partition that a client would have to read."""
    return next((spec for spec in specs if not spec.fields), None)


def metadata_json(metadata: TableMetadata, *, nulls: bool, every_snapshot: bool) -> str:
    """The metadata of a table, if wanted only with the snapshots of its branches and tags."""
    changed: dict[str, Any] = {}
    if not every_snapshot:
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        changed["snapshots"] = [one for one in metadata.snapshots if one.snapshot_id in named]
    if not nulls and _bare_spec(metadata.partition_specs) is None:
        changed["partition_specs"] = [*metadata.partition_specs, PartitionSpec(spec_id=_BARE_SPEC)]
    return (metadata.model_copy(update=changed) if changed else metadata).model_dump_json()


def read_request(document: Any) -> PlanTableScanRequest:
    """A request to plan a scan; the document's limits are checked already."""
    if not isinstance(document, dict):
        raise bad_request("body is not a JSON object")
    for name in ("start-snapshot-id", "end-snapshot-id"):
        if document.get(name) is not None:
            raise Refusal(
                406, "UnsupportedOperationException", f"incremental scans are not supported: {name}"
            )
    try:
        return PlanTableScanRequest.model_validate(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise bad_request(f"request is not a valid plan request: {str(error)[:500]}") from None


def plan_table(table: Table, request: PlanTableScanRequest, size: int) -> TablePlan:
    """Plan a scan: files that statistics, bloom filters or pages exclude are left out.

    Plans of one table object are cached with their first page of ``size`` files; filters have no clock.
    """

    def make() -> tuple[TablePlan, int]:
        made = _plan(table, request, size)
        return made, 1 + len(made) // 1_000 + len(made.first) // 100_000

    made: TablePlan = table.plans.get_or_make((PlanTableScanRequest, size, request.model_dump_json()), make)
    return made


def _plan(table: Table, request: PlanTableScanRequest, size: int) -> TablePlan:
    chosen, schemas = _pin(table, request)
    sensitive = request.case_sensitive
    check_columns(request.select or (), schemas, case_sensitive=sensitive)
    expression = AlwaysTrue() if request.filter is None else request.filter
    filter = Filter.of(expression, schemas, case_sensitive=sensitive)
    residual = expression.model_dump(mode="json", by_alias=True)
    snapshot = chosen.pinned
    if filter.where is None:
        entries, _ = snapshot.inventory.everything
    else:
        plan = chosen.scan(filter.where, columns=[], case_sensitive=sensitive).plan()
        entries = snapshot.inventory.take(np.array([task.number for task in plan.tasks], dtype=np.int64))
    whole = np.zeros(len(entries), dtype=bool)
    if filter.certain is not None and len(entries):
        sure = snapshot.plan_files(filter.certain, case_sensitive=sensitive)
        paths = sure.entries.paths.filter(pa.array(sure.whole))
        whole = pc.is_in(entries.paths, value_set=paths).to_numpy(zero_copy_only=False)
    matches = snapshot.match_deletes(entries)
    return TablePlan(entries, whole, matches, residual, _Files(snapshot), size)


def _pin(table: Table, request: PlanTableScanRequest) -> tuple[Table, list[Schema]]:
    """The table at the requested snapshot, and the schemas that the names of the filter can refer to."""
    if request.snapshot_id is None:
        return table, [table.iceberg_schema]
    try:
        own = table.at(request.snapshot_id)
    except UsageError as error:
        raise Refusal(404, "NoSuchSnapshotException", str(error)) from None
    if request.use_snapshot_schema or own.iceberg_schema.schema_id == table.iceberg_schema.schema_id:
        return own, [own.iceberg_schema]
    # pyiceberg asks for the current schema and means that of the snapshot.
    return current_table(table, request.snapshot_id), [table.iceberg_schema, own.iceberg_schema]


@dataclass(frozen=True, eq=False)
class TablePlan:
    """The data files of a plan; its first page is written at once, others when they are requested."""

    entries: Entries
    whole: Array
    """Per file, whether all its rows match by the rules of every client."""
    matches: DeleteMatches | None
    residual: Any
    files: _Files
    size: int
    """Files of a page."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def of_files(self) -> int:
        """Data files of the snapshot."""
        return len(self.files.snapshot.inventory)

    @property
    def table_uuid(self) -> uuid.UUID:
        """The table, which another one of its name can replace."""
        return self.files.snapshot.metadata.table_uuid

    @property
    def pages(self) -> int:
        """Pages with files, the first included."""
        return -(-len(self) // self.size)

    @cached_property
    def first(self) -> str:
        """The first page."""
        return self.page(0)

    @cached_property
    def _first_without_nulls(self) -> str:
        keys = [*self.entries.keys, *(() if self.matches is None else self.matches.deletes.keys)]
        has_nulls = any(key.partition is None or None in key.partition for key in keys)
        return self.page(0, nulls=False) if has_nulls else self.first

    def first_page(self, *, nulls: bool) -> str:
        """The first page, made once."""
        return self.first if nulls else self._first_without_nulls

    def page(self, number: int, *, nulls: bool = True) -> str:
        """The scan tasks of some files, and the delete files that they refer to, as JSON.

        With ``nulls=False`` for clients that can't read NULL as a partition value.
        """
        units = np.arange(number * self.size, min((number + 1) * self.size, len(self)))
        some = self.entries.take(units)
        references, deletes = self._deletes(units, nulls=nulls)
        if not nulls:
            self.files.check_without_nulls(some)
        data = self.files.write(some, nulls=nulls)
        for file, row_id in zip(data, some.first_row_ids.tolist(), strict=True):
            if row_id >= 0:
                file["first-row-id"] = row_id
        tasks = []
        for file, whole, mine in zip(data, self.whole[units].tolist(), references, strict=True):
            task = {"data-file": file, "residual-filter": True if whole else self.residual}
            if mine:
                task["delete-file-references"] = mine
            tasks.append(task)
        return json_text({"file-scan-tasks": tasks, **({"delete-files": deletes} if deletes else {})})

    def _deletes(self, units: Array, *, nulls: bool) -> tuple[Sequence[list[int]], list[dict[str, Any]]]:
        """Per file the positions of its delete files in a list, and that list."""
        matches = self.matches
        if matches is None:
            return [[]] * len(units), []
        vectors = units[matches.vectors[units] >= 0]
        parts = [matches.positions.pairs(units), matches.equalities.pairs(units)]
        parts.append((vectors, matches.vectors[vectors]))
        owners, numbers = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        used, places = np.unique(numbers, return_inverse=True)
        order = np.argsort(owners, kind="stable")
        listed = places[order].tolist()
        edges = np.searchsorted(owners[order], np.append(units, units[-1:] + 1)).tolist()
        references = [listed[a:b] for a, b in pairwise(edges)]
        some = matches.deletes.take(used.astype(np.int64))
        named = self._referenced(some, places, owners)
        return references, self._delete_files(some, named, nulls=nulls)

    def _referenced(self, some: Entries, places: Array, owners: Array) -> list[str | None]:
        """Per delete file the only data file that it has deletes of, which its bounds can say as well."""
        bounds = some.metrics(PATH_ID)
        only = pc.if_else(pc.equal(bounds.lower, bounds.upper), bounds.lower, None)
        # Bounds can be truncated: they have to be the path of each data file that the deletes can apply to.
        paths = self.entries.paths.take(pa.array(owners)).cast(pa.large_binary())
        same = pc.equal(paths, only.take(pa.array(places))).fill_null(False).to_numpy(zero_copy_only=False)
        doubtful = np.zeros(len(some), dtype=bool)
        doubtful[places[~same]] = True
        only = pc.if_else(pa.array(doubtful), None, only).cast(pa.large_string())
        named: list[str | None] = pc.coalesce(some.referenced, only).to_pylist()
        return named

    def _delete_files(
        self, some: Entries, named: Sequence[str | None], *, nulls: bool
    ) -> list[dict[str, Any]]:
        files = self.files.write(some, nulls=nulls)
        spots = zip(some.content_offsets.tolist(), some.content_sizes.tolist(), strict=True)
        for file, path, (offset, size), ids in zip(files, named, spots, some.equality_ids, strict=True):
            if ids:
                file["equality-ids"] = list(ids)
            elif path is not None:
                file["referenced-data-file"] = path
            if offset >= 0:
                file |= {"content-offset": offset, "content-size-in-bytes": size}
        return files


@dataclass(frozen=True, slots=True)
class _Files:
    """Data and delete files as JSON."""

    snapshot: TableSnapshot

    def check_without_nulls(self, some: Entries) -> None:
        """Refuse files of which a client would need a partition value that it is not given.

        That is an identity value beside a NULL, unless the manifest says that the file has the column.
        """
        # A loop over partitions, of which there are few.
        for code, key in enumerate(some.keys):
            if key.partition is None or None not in key.partition:
                continue
            mine = some.partitions == code
            for field, value in zip(self._spec(key.spec_id).fields, key.partition, strict=True):
                if value is None or not isinstance(field.transform, IdentityTransform):
                    continue
                if (some.metrics(field.source_id).values[mine] < 0).any():
                    problem = f"client can't read a partition with a value of {field.name} beside NULL"
                    hint = "set scan-planning-mode=client"
                    raise Refusal(406, "UnsupportedOperationException", f"{problem}; {hint}")

    def write(self, some: Entries, *, nulls: bool) -> list[dict[str, Any]]:
        paths = some.paths.to_pylist()
        self._check_below(paths)
        values = [self._values(key.spec_id, key.partition) for key in some.keys]
        specs = some.specs
        if not nulls:
            unreadable = np.array([None in one for one in values], dtype=bool)
            bare = _bare_spec(self.snapshot.specs.values())
            specs = np.where(unreadable[some.partitions], _BARE_SPEC if bare is None else bare.spec_id, specs)
            values = [[] if None in one else one for one in values]
        columns = (
            specs.tolist(),
            some.partitions.tolist(),
            some.contents.tolist(),
            paths,
            some.formats.to_pylist(),
            some.sizes.tolist(),
            some.rows.tolist(),
            some.sort_orders.tolist(),
        )
        return [
            {
                "spec-id": spec,
                "partition": values[code],
                "content": _CONTENTS[content],
                "file-path": path,
                "file-format": format.lower(),
                "file-size-in-bytes": size,
                "record-count": rows,
                **({"sort-order-id": order} if order >= 0 else {}),
            }
            for spec, code, content, path, format, size, rows, order in zip(*columns, strict=True)
        ]

    def _check_below(self, paths: Sequence[str]) -> None:
        """Refuse to name a file outside the table's directory, unless the server trusts its tables."""
        store = self.snapshot.access.store
        if isinstance(store, AbsoluteStore) and store.root is not None:
            with resolve_directories_once():
                for path in paths:
                    store.check(path)

    def _spec(self, spec_id: int) -> PartitionSpec:
        spec = self.snapshot.specs.get(spec_id)
        if spec is None:
            raise SchemaError(
                "file has an unknown partition spec", path=self.snapshot.name, unit=str(spec_id)
            )
        return spec

    def _values(self, spec_id: int, partition: tuple[Any, ...] | None) -> list[Any]:
        spec = self._spec(spec_id)
        if partition is None:
            return [None for _ in spec.fields]
        return [self._value(field, one) for field, one in zip(spec.fields, partition, strict=True)]

    def _value(self, field: PartitionField, value: Any) -> Any:
        if value is None:
            return None
        source = self._source(field.source_id)
        kind = None if source is None else field.transform.result_type(source)
        if isinstance(kind, UUIDType) and isinstance(value, bytes):
            return str(uuid.UUID(bytes=value))
        if isinstance(kind, PrimitiveType):
            return to_json(kind, value)
        # The source column was dropped from all schemas.
        return value if isinstance(value, bool | int | float | str) else str(value)

    def _source(self, field_id: int) -> Any:
        for schema in (self.snapshot.iceberg_schema, *reversed(self.snapshot.metadata.schemas)):
            try:
                return schema.find_field(field_id).field_type
            except ValueError:
                continue
        return None
