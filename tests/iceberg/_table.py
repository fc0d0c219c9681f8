"""A table in tests: schemas, partition specs, snapshots and their names, and the metadata that says so."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.transforms import UnknownTransform, parse_transform

from tests.iceberg._manifests import ADDED, DATA, Clerk, Entry, File, Manifest
from tests.iceberg._mapping import every_field, found_by, name_mapping
from tests.iceberg._specs import Spec, SpecField, transformed
from tests.iceberg._types import (
    Field,
    List,
    Map,
    Raw,
    Struct,
    Type,
    all_fields,
    field_json,
    numbers,
    tagged,
)

Columns = dict[int, list[Raw]]
START = 1_760_000_000_000
"""When the first snapshot is made, in milliseconds; the next ones follow every ten seconds."""


@dataclass(frozen=True)
class Snapshot:
    """One committed state."""

    id: int
    parent: int | None
    sequence: int
    time: int
    schema: int
    manifests: tuple[Manifest, ...]
    location: str
    operation: str
    first_row: int
    added_rows: int

    @property
    def files(self) -> list[Entry]:
        return [e for m in self.manifests for e in m.live]


@dataclass(frozen=True)
class Written:
    """What a data file holds: the fields as they were, and every row, columns left out too."""

    fields: tuple[Field, ...]
    columns: Columns
    ids: bool = True
    """Whether the file has field ids: without, the table's name mapping says what is found in it."""
    left_out: frozenset[int] = frozenset()

    @property
    def stored(self) -> list[Field]:
        return [f for f in self.fields if f.id not in self.left_out]


class IllegibleError(Exception):
    """A change of schema or mapping after which a file could not be read."""


class Table:
    """A table under ``root``; every change writes the next metadata file."""

    def __init__(
        self,
        root: Path,
        columns: Sequence[tuple[str, Any]],
        spec: Sequence[tuple[str, str]] = (),
        *,
        format_version: int = 2,
        seed: Any = 0,
        scheme: str = "",
        name_mapping: bool = False,
        required: Collection[str] = (),
        odd: bool = False,
        totals: str = "right",
    ) -> None:
        self.root = root
        self.version = format_version
        self.rng = random.Random(f"maker:{seed}")
        self.location = f"{scheme}{root}"
        self.uuid = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.name_mapping = name_mapping
        self.totals = totals
        """What summaries say: the right totals, none, or too many, as some writers do."""
        self.last_column = 0
        self.last_partition = 999
        self.sequence = 0
        self.next_row = 0
        self.clock = START
        first = [self._field(name, type) for name, type in columns]
        self.schemas = [tuple(replace(f, required=f.name in required) for f in first)]
        self.current_schema = 0
        self.names: dict[int, list[str]] = {}
        self.specs: dict[int, Spec] = {}
        self.default_spec = 0
        self.snapshots: dict[int, Snapshot] = {}
        self.expired: set[int] = set()
        self.log: list[tuple[int, int]] = []
        self.refs: dict[str, tuple[int, str]] = {}
        self.written: dict[str, Written] = {}
        self.positions: dict[File, list[tuple[str, int]]] = {}
        self.equal: dict[File, tuple[tuple[Field, ...], list[tuple[Raw, ...]]]] = {}
        self.metadata_files: list[Path] = []
        self.clerk = Clerk(root / "metadata", f"{self.location}/metadata", format_version, self.rng, odd)
        (root / "metadata").mkdir(parents=True, exist_ok=True)
        self.names = self._names_with(self.schema)
        self.evolve_spec(spec)

    # -- schema --------------------------------------------------------------------------------

    @property
    def schema(self) -> tuple[Field, ...]:
        """The current columns."""
        return self.schemas[self.current_schema]

    def field(self, path: str | int) -> Field:
        """The current field of this dotted path, or the latest of this id, dropped or not."""
        if isinstance(path, str):
            return next(f for names, f in all_fields(self.schema) if ".".join(names) == path)
        return next(f for s in self._newest_first() for _, f in all_fields(s) if f.id == path)

    def _newest_first(self) -> Iterable[tuple[Field, ...]]:
        return [self.schema, *reversed(self.schemas)]

    def _way(self, id: int) -> tuple[Field, ...]:
        """The fields from the top to this one, in the newest schema that has it."""
        return next(w for s in self._newest_first() for w in _ways(s) if w[-1].id == id)

    def _field(self, name: str, type: Any, default: Raw = None) -> Field:
        self.last_column += 1
        return Field(self.last_column, name, self._type(type), default=default)

    def _type(self, type: Any) -> Type:
        """A struct is said as a dict, a list as a list of one, a map as a pair."""
        if isinstance(type, dict):
            return Struct(tuple(self._field(name, inner) for name, inner in type.items()))
        if isinstance(type, list):
            self.last_column += 1
            return List(self.last_column, self._type(type[0]))
        if isinstance(type, tuple):
            self.last_column += 2
            key, value = self.last_column - 1, self.last_column
            return Map(key, self._type(type[0]), value, self._type(type[1]))
        return type

    def evolve_schema(
        self,
        *,
        add: Mapping[str, Any] = {},
        drop: Collection[str] = (),
        rename: Mapping[str, str] = {},
        order: Sequence[str] | None = None,
        widen: Mapping[str, str] = {},
        defaults: Mapping[str, Raw] = {},
    ) -> None:
        """Change the schema: by dotted paths of the schema as it was, ``order`` as it will be."""
        used = {f.source for f in self.specs[self.default_spec].fields if not f.is_void}
        gone = {id for path in drop for id in _ids(self.field(path))}
        assert not gone & used, "a column that the default spec is made of can't be dropped"

        def walk(fields: Sequence[Field], above: str) -> list[Field]:
            out = []
            for f in fields:
                path = above + f.name
                if path in drop:
                    continue
                type = widen.get(path, f.type)
                if isinstance(type, Struct):
                    type = Struct(tuple(walk(type.fields, f"{path}.")))
                out.append(replace(f, name=rename.get(path, f.name), type=type))
            for path, type in add.items():
                parent, _, name = path.rpartition(".")
                if (f"{parent}." if parent else "") == above:
                    out.append(self._field(name, type, defaults.get(path)))
            return out

        made = walk(self.schema, "")
        if order is not None:
            made.sort(key=lambda f: order.index(f.name))
        assert len({f.name for f in made}) == len(made)
        schemas, names = [*self.schemas, tuple(made)], self._names_with(made)
        self._check_legible(schemas, names)
        self.schemas, self.names = schemas, names
        self.current_schema = len(self.schemas) - 1
        self.save()

    def map_names(self, names: Mapping[int, list[str]]) -> None:
        """Have the name mapping call fields by other names, as people do who write it by hand."""
        changed = {**self.names, **names}
        self._check_legible(self.schemas, changed)
        self.names = changed
        self.save()

    def _names_with(self, made: Sequence[Field]) -> dict[int, list[str]]:
        """The mapping's names as Iceberg keeps them: a new name is added, and taken from other fields."""
        before = {f.id: f.name for f in every_field(self.schema)} if self.names else {}
        fresh = [f for f in every_field(made) if before.get(f.id) != f.name]
        names = {id: [*known] for id, known in self.names.items()}
        for f in fresh:
            if f.name not in names.setdefault(f.id, []):
                names[f.id].append(f.name)
        parents = {id: up for schema in (*self.schemas, tuple(made)) for id, up in _parents(schema)}
        for f in fresh:
            for id, known in names.items():
                if id != f.id and parents[id] == parents[f.id] and f.name in known:
                    known.remove(f.name)
        return names

    def _check_legible(self, schemas: Sequence[tuple[Field, ...]], names: Mapping[int, list[str]]) -> None:
        """Refuse what would have files hold a field twice, or in a type that can't be its own."""
        for written in self.written.values():
            if not written.ids:
                check_file(written.fields, written.stored, schemas, names)

    # -- specs ---------------------------------------------------------------------------------

    def evolve_spec(self, fields: Sequence[tuple[str, str]], *, default: bool = True) -> Spec:
        """Partition by these (column, transform) pairs from now on; version 1 keeps old fields as void."""
        wanted = [(self.field(path).id, transform) for path, transform in fields]
        made: list[SpecField] = []
        old = self.specs[self.default_spec].fields if self.specs else ()
        if self.version == 1:
            for f in old:
                if (f.source, f.transform) in wanted:
                    made.append(f)
                    wanted.remove((f.source, f.transform))
                else:
                    name = f"{f.name}_{f.id}" if not f.is_void else f.name
                    made.append(replace(f, transform="void", name=name))
        for source, transform in wanted:
            made.append(self._spec_field(source, transform, {f.name for f in made}))
        same = next((s for s in self.specs.values() if s.fields == tuple(made)), None)
        spec = same or Spec(max(self.specs, default=-1) + 1, tuple(made))
        self.specs[spec.id] = spec
        if default:
            self.default_spec = spec.id
        self.save()
        return spec

    def _spec_field(self, source: int, transform: str, taken: set[str]) -> SpecField:
        for spec in self.specs.values():
            for f in spec.fields:
                if (f.source, f.transform) == (source, transform) and f.name not in taken:
                    return replace(f, type=self._result(source, transform))
        self.last_partition += 1
        base = self.field(source).name
        name = base if transform == "identity" else f"{base}_{transform.partition('[')[0]}"
        known = {f.name for s in self.specs.values() for f in s.fields} | {f.name for f in self.schema}
        if name in taken or (name in known and transform != "identity"):
            name += f"_{self.last_partition}"
        return SpecField(self.last_partition, name, source, transform, self._result(source, transform))

    def _result(self, source: int, transform: str) -> str:
        type = str(self.field(source).type)
        if transform in ("identity", "void") or transform.startswith("truncate"):
            return type
        if isinstance(parse_transform(transform), UnknownTransform):
            return "string"
        return "date" if transform == "day" else "int"

    def spec(self, id: int) -> Spec:
        """A spec with the types its fields have now."""
        made = self.specs[id]
        return replace(
            made, fields=tuple(replace(f, type=self._result(f.source, f.transform)) for f in made.fields)
        )

    def unpartitioned(self) -> Spec:
        """A spec that divides nothing; made if there is none."""
        found = [s for s in self.specs.values() if s.unpartitioned]
        if found:
            return self.rng.choice(found)
        spec = Spec(max(self.specs) + 1, ())
        self.specs[spec.id] = spec
        self.save()
        return spec

    def partition(
        self, spec: Spec, columns: Columns, fields: Sequence[Field], row: int, old: bool
    ) -> tuple[Raw, ...]:
        """The partition values of one row."""
        return tuple(self._partition_value(f, columns, fields, row, old) for f in spec.fields)

    def _partition_value(
        self, f: SpecField, columns: Columns, fields: Sequence[Field], row: int, old: bool
    ) -> Raw:
        way = next((w for w in _ways(fields) if w[-1].id == f.source), None)
        if way is None or f.is_void:
            return None
        value = columns[way[0].id][row]
        for part in way[1:]:
            value = None if value is None else value[part.id]
        return transformed(f.transform, str(way[-1].type), value, old)

    # -- snapshots and their names ---------------------------------------------------------------

    def head(self, branch: str = "main") -> Snapshot | None:
        """The newest snapshot of a branch."""
        found = self.refs.get(branch)
        return self.snapshots[found[0]] if found else None

    def tag(self, name: str, snapshot: int | None = None) -> None:
        """Name a snapshot for good."""
        self.refs[name] = self.refs["main"][0] if snapshot is None else snapshot, "tag"
        self.save()

    def branch(self, name: str, snapshot: int | None = None) -> None:
        """Name a line of snapshots."""
        self.refs[name] = self.refs["main"][0] if snapshot is None else snapshot, "branch"
        self.save()

    def rollback(self, snapshot: int) -> None:
        """Make an earlier snapshot the current one."""
        self.clock += 10_000
        self.refs["main"] = snapshot, "branch"
        self.log.append((self.clock, snapshot))
        self.save()

    def expire(self, keep: int = 1) -> list[int]:
        """Forget all but the newest snapshots and those with names; the ones forgotten."""
        named = {id for id, _ in self.refs.values()}
        old = [id for id in [*self.snapshots][:-keep] if id not in named and id not in self.expired]
        self.expired |= {*old}
        self.log = [(time, id) for time, id in self.log if id not in self.expired]
        self.save()
        return old

    def upgrade(self, version: int) -> None:
        """Raise the version of the format."""
        assert version >= self.version
        self.version = self.clerk.version = version
        self.save()

    # -- metadata ------------------------------------------------------------------------------

    @property
    def metadata_location(self) -> str:
        """The newest metadata file."""
        return str(self.metadata_files[-1])

    def save(self) -> None:
        """Write the next metadata file."""
        folder = self.root / "metadata"
        path = folder / f"v{len(self.metadata_files) + 1}.metadata.json"
        path.write_text(json.dumps(self.to_json()))
        self.metadata_files.append(path)
        (folder / "version-hint.text").write_text(str(len(self.metadata_files)))

    def to_json(self) -> dict[str, Any]:
        """The table's metadata."""
        schemas = [_schema_json(id, fields) for id, fields in enumerate(self.schemas)]
        found: dict[str, Any] = {
            "format-version": self.version,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-updated-ms": self.clock,
            "last-column-id": self.last_column,
            "schemas": schemas,
            "current-schema-id": self.current_schema,
            "partition-specs": [{"spec-id": s.id, "fields": s.to_json()} for s in self.specs.values()],
            "default-spec-id": self.default_spec,
            "last-partition-id": self.last_partition,
            "properties": self._properties(),
            "snapshots": [
                self._snapshot_json(s) for s in self.snapshots.values() if s.id not in self.expired
            ],
            "snapshot-log": [{"timestamp-ms": time, "snapshot-id": id} for time, id in self.log],
            "metadata-log": [],
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "refs": {name: {"snapshot-id": id, "type": kind} for name, (id, kind) in self.refs.items()},
        }
        if "main" in self.refs:
            found["current-snapshot-id"] = self.refs["main"][0]
        if self.version == 1:
            found |= {"schema": schemas[self.current_schema]}
            found |= {"partition-spec": self.specs[self.default_spec].to_json() if self.specs else []}
        else:
            found["last-sequence-number"] = self.sequence
        if self.version > 2:
            found["next-row-id"] = self.next_row
        return found

    def _properties(self) -> dict[str, str]:
        if not self.name_mapping:
            return {}
        return {"schema.name-mapping.default": json.dumps(name_mapping(self.schemas, self.names))}

    def _totals(self, snapshot: Snapshot) -> dict[str, str]:
        if self.totals == "none":
            return {}
        data = [e.file for e in snapshot.files if e.file.content == DATA]
        deletes = len(snapshot.files) - len(data)
        added = [e for e in snapshot.files if e.status == ADDED and e.snapshot == snapshot.id]
        found = {
            "added-data-files": sum(e.file.content == DATA for e in added),
            "total-data-files": len(data),
            "total-delete-files": deletes,
            "total-records": sum(file.records for file in data),
        }
        if self.totals == "wrong" and snapshot.manifests:
            found |= {name: count + deletes + 3 for name, count in found.items() if name.startswith("total")}
        return {name: str(count) for name, count in found.items() if count}

    def _snapshot_json(self, snapshot: Snapshot) -> dict[str, Any]:
        found: dict[str, Any] = {
            "snapshot-id": snapshot.id,
            "timestamp-ms": snapshot.time,
            "manifest-list": snapshot.location,
            "summary": {"operation": snapshot.operation, **self._totals(snapshot)},
            "schema-id": snapshot.schema,
        }
        if snapshot.parent is not None:
            found["parent-snapshot-id"] = snapshot.parent
        if self.version > 1:
            found["sequence-number"] = snapshot.sequence
        if self.version > 2:
            found |= {"first-row-id": snapshot.first_row, "added-rows": snapshot.added_rows}
        return found


# -- help --------------------------------------------------------------------------------------


def _parents(fields: Sequence[Field], parent: int | None = None) -> Iterable[tuple[int, int | None]]:
    """Every field's id, and that of the field whose struct it is in."""
    for f in fields:
        yield f.id, parent
        inner = f.type
        while isinstance(inner, List | Map):
            inner = inner.element if isinstance(inner, List) else inner.value
        if isinstance(inner, Struct):
            yield from _parents(inner.fields, f.id)


def check_file(
    fields: tuple[Field, ...],
    stored: Sequence[Field],
    schemas: Sequence[tuple[Field, ...]],
    names: Mapping[int, list[str]],
) -> None:
    """Refuse a file without ids that could not be read under the schemas from its own on."""
    found = Struct(tuple(found_by(name_mapping(schemas, names), stored).values()))
    # No snapshot with the file is read under an older one.
    if not all(_fits(found, Struct(schema)) for schema in schemas[schemas.index(fields) :]):
        raise IllegibleError


def _fits(found: Type, wanted: Type) -> bool:
    """Whether columns of a file can be read as those of a schema."""
    match found, wanted:
        case Struct(mine), Struct(fields):
            ids = [f.id for f in mine]
            types = {f.id: f.type for f in fields}
            return len({*ids}) == len(ids) and all(_fits(f.type, types.get(f.id, f.type)) for f in mine)
        case List(_, mine), List(_, element):
            return _fits(mine, element)
        case Map(_, _, _, mine), Map(_, key, _, value):
            return found.key == key and _fits(mine, value)
    return found == wanted or (isinstance(found, str) and isinstance(wanted, str) and _widens(found, wanted))


def _widens(found: str, wanted: str) -> bool:
    if found.startswith("decimal") and wanted.startswith("decimal"):
        (mine, scale), (wide, other) = numbers(found), numbers(wanted)
        return scale == other and mine <= wide
    if found == "date":
        return wanted in ("timestamp", "timestamp_ns")
    return (found, wanted) in [("int", "long"), ("float", "double")]


def _ids(field: Field) -> list[int]:
    return [
        field.id,
        *(f.id for _, f in all_fields(field.type.fields if isinstance(field.type, Struct) else ())),
    ]


def _ways(fields: Sequence[Field], above: tuple[Field, ...] = ()) -> Iterable[tuple[Field, ...]]:
    for f in fields:
        yield (*above, f)
        if isinstance(f.type, Struct):
            yield from _ways(f.type.fields, (*above, f))


def partition_key(file: File) -> Any:
    """What two files of one partition share; a spec that divides nothing has one."""
    if file.spec.unpartitioned:
        return file.spec.id
    return file.spec.id, tuple(tagged(v) for v in file.partition)


def _schema_json(id: int, fields: Sequence[Field]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": id, "fields": [field_json(f) for f in fields]}
