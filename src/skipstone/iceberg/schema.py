"""Iceberg columns: their Arrow types, and how files' columns are resolved by field id.

The value of a column that a file lacks is, in this order: the identity partition value, the column that the
name mapping assigns its id to, the field's initial default, NULL. A file without ids is refused in a table
without a name mapping: other readers refuse it too, or resolve by position.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming, renamed

Path: TypeAlias = tuple[str, ...]

_TYPES: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
    # Stored as well-known binary.
    GeometryType: pa.binary(),
    GeographyType: pa.binary(),
}


# -- types -------------------------------------------------------------------------------------


def arrow_schema(schema: Schema) -> pa.Schema:
    """The table's columns as the Arrow types that pyarrow reads."""
    return pa.schema([_arrow_field(field, (field.name,)) for field in schema.fields])


def arrow_type(type: IcebergType, path: Path = ()) -> pa.DataType:
    """Arrow type of a field at ``path``."""
    if isinstance(type, StructType):
        return pa.struct([_arrow_field(field, (*path, field.name)) for field in type.fields])
    if isinstance(type, ListType):
        return pa.list_(_arrow_field(type.element_field, (*path, "element")))
    if isinstance(type, MapType):
        key, value = (
            _arrow_field(field, (*path, field.name)) for field in (type.key_field, type.value_field)
        )
        return pa.map_(key, value)
    if isinstance(type, DecimalType):
        return pa.decimal128(type.precision, type.scale)
    if isinstance(type, FixedType):
        return pa.binary(len(type))
    arrow = _TYPES.get(type.__class__)
    if arrow is None:
        raise SchemaError(f"unsupported type {type!r}", column=".".join(path), hint="drop the column")
    return arrow


def _arrow_field(field: NestedField, path: Path) -> pa.Field:
    return pa.field(field.name, arrow_type(field.field_type, path), nullable=field.optional)


# -- fields ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field of a struct and its path.

    In ``path`` and ``ids``, list elements, map keys and map values are called ``element``, ``key`` and
    ``value``. ``parent`` is the id of the field whose struct contains it.
    """

    field: NestedField
    path: Path
    ids: Path
    parent: int | None
    repeated: bool


def walk_fields(
    fields: Iterable[NestedField],
    path: Path = (),
    ids: Path = (),
    parent: int | None = None,
    repeated: bool = False,
) -> Iterator[FieldPath]:
    """All fields of structs, outer ones first."""
    for field in fields:
        at = FieldPath(field, (*path, field.name), (*ids, str(field.field_id)), parent, repeated)
        yield at
        yield from _inside(field.field_type, at.path, at.ids, field.field_id, repeated)


def _inside(type: IcebergType, path: Path, ids: Path, parent: int, repeated: bool) -> Iterator[FieldPath]:
    if isinstance(type, StructType):
        yield from walk_fields(type.fields, path, ids, parent, repeated)
    elif isinstance(type, ListType):
        yield from _inside(type.element_type, (*path, "element"), (*ids, "element"), parent, True)
    elif isinstance(type, MapType):
        for name, part in (("key", type.key_type), ("value", type.value_type)):
            yield from _inside(part, (*path, name), (*ids, name), parent, True)


def field_paths(schema: Schema) -> dict[int, Path]:
    """Paths of the primitive columns outside lists and maps, by field id."""
    return {
        at.field.field_id: at.path
        for at in walk_fields(schema.fields)
        if not at.repeated and at.field.field_type.is_primitive
    }


def defaults(schema: Schema) -> dict[Path, pa.Scalar]:
    """Initial defaults of fields, including nested ones, as Arrow scalars."""
    return {
        at.path: _scalar(at.field, at.path)
        for at in walk_fields(schema.fields)
        if at.field.initial_default is not None
    }


def _scalar(field: NestedField, path: Path) -> pa.Scalar:
    value: Any = field.initial_default
    type = arrow_type(field.field_type, path)
    try:
        if isinstance(value, uuid.UUID):
            return pa.ExtensionScalar.from_storage(type, pa.scalar(value.bytes, type.storage_type))
        return pa.scalar(value, type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        message = f"initial default {value!r} is not a {type_name(type)}: {error}"
        raise SchemaError(message, column=".".join(path)) from error


# -- names -------------------------------------------------------------------------------------

# Prefix of the names of fields without ids in an IdNaming.
_NO_ID = "#/"


class _DigestNaming(Naming):
    """A naming identified by a digest; ids that files lack come from a name mapping."""

    __slots__ = ()
    mapping: Mapping[Path, int] | None
    digest: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DigestNaming) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def id_of(self, path: Path) -> int | None:
        """The id that the name mapping assigns to a field, if any."""
        return None if self.mapping is None else self.mapping.get(path)

    @property
    def fallback(self) -> bytes:
        """Digest of the name mapping, which resolves the columns of files without ids; empty without one."""
        return b"" if self.mapping is None else _digest(sorted(self.mapping.items()))

    def apply(self, metadata: ParquetMetadata) -> ParquetMetadata:
        """Rename the columns of a file."""
        result = renamed(metadata, self)
        if self.mapping is None and not result.has_ids:
            # Reading NULLs would contradict the manifests, which can have metrics of the columns.
            raise SchemaError(
                "file has no field ids, and the table has no name mapping",
                path=metadata.path,
                hint=f"set the table property {TableProperties.DEFAULT_NAME_MAPPING}, or rewrite the file",
            )
        return result


@dataclass(frozen=True, slots=True, eq=False)
class FieldNaming(_DigestNaming):
    """Names files' fields by the table's current names of their ids."""

    mapping: Mapping[Path, int] | None
    digest: bytes
    names: Mapping[int, tuple[int | None, str]]
    """Parent id and name, by field id."""
    ids: Mapping[tuple[int | None, str], int]
    mark: str
    """Prefix of the names of fields that the table lacks; no name of the table begins with it."""
    filled: frozenset[Path]

    @classmethod
    def of(
        cls,
        schema: Schema,
        name_mapping: NameMapping | None = None,
        supplied: Iterable[int] = (),
    ) -> FieldNaming:
        """The names of a schema.

        Fields with ``supplied`` ids, and those with an initial default, are not NULL in files that lack them.
        """
        ids_supplied, fields = set(supplied), [*walk_fields(schema.fields)]
        names = {at.field.field_id: (at.parent, at.field.name) for at in fields}
        mark = "#"
        while any(name.startswith(mark) for _, name in names.values()):
            mark += "#"
        filled = frozenset(at.path for at in fields if _is_filled(at, ids_supplied))
        mapping = mapped_ids(name_mapping)
        mapped = None if mapping is None else sorted(mapping.items())
        digest = _digest("names", sorted(names.items()), sorted(filled), mapped)
        ids = {name: field_id for field_id, name in names.items()}
        return cls(mapping, digest, names, ids, mark, filled)

    def name(self, field_id: int | None, path: Path, parent: int | None = None) -> str:
        """The table's name for an id, or one that begins with ``mark``."""
        if field_id is None:
            return f"{self.mark}/{path[-1]}"
        name = self.names.get(field_id)
        # A field never moves to another struct, so elsewhere the id is not the table's.
        return f"{self.mark}{field_id}" if name is None or name[0] != parent else name[1]

    def supplies(self, path: Path) -> bool:
        """Whether a field has a value in files that lack it."""
        return path in self.filled

    def path(self, ids: Path) -> Path:
        """Convert a path of :class:`IdNaming` to names."""
        steps: list[str] = []
        parent: int | None = None
        for step in ids:
            if not step.startswith(_NO_ID) and not step.isdecimal():
                steps.append(step)  # elements, keys and values have no ids here
                continue
            field_id = None if step.startswith(_NO_ID) else int(step)
            steps.append(self.name(field_id, (step.removeprefix(_NO_ID),), parent))
            parent = field_id
        return tuple(steps)

    def stored(self, path: Path) -> Path:
        """Convert a path of names to one of :class:`IdNaming`."""
        steps: list[str] = []
        parent: int | None = None
        for step in path:
            parent = self.ids.get((parent, step))
            if parent is None:
                raise UnknownColumnError("table has no such column", column=".".join(path))
            steps.append(str(parent))
        return tuple(steps)


@dataclass(frozen=True, slots=True, eq=False)
class IdNaming(_DigestNaming):
    """Names fields by their ids, so that recorded facts survive renames."""

    mapping: Mapping[Path, int] | None
    digest: bytes
    filled: frozenset[Path] | None

    @classmethod
    def of(
        cls,
        name_mapping: NameMapping | None = None,
        schemas: Iterable[Schema] | None = None,
        supplied: Iterable[int] = (),
    ) -> IdNaming:
        """A naming by the ids of files, or of a name mapping for files without ids.

        ``schemas`` are all schemas of the table: fields with an initial default, or with ``supplied`` ids,
        are not NULL in files that lack them. Without schemas this can hold for any field.
        """
        mapping, ids_supplied = mapped_ids(name_mapping), set(supplied)
        filled = None
        if schemas is not None:
            fields = (at for schema in schemas for at in walk_fields(schema.fields))
            filled = frozenset(at.ids for at in fields if _is_filled(at, ids_supplied))
        mapped = [None if some is None else sorted(some) for some in (filled, mapping and mapping.items())]
        return cls(mapping, _digest("ids", *mapped), filled)

    def name(self, field_id: int | None, path: Path, parent: int | None = None) -> str:  # noqa: ARG002
        """The id, or for a field without one a name that is not a number."""
        return f"{_NO_ID}{path[-1]}" if field_id is None else str(field_id)

    def supplies(self, path: Path) -> bool:
        """Whether a field can have a value in files that lack it."""
        return self.filled is None or path in self.filled

    def path(self, ids: Path) -> Path:
        """The same path."""
        return ids

    def stored(self, path: Path) -> Path:
        """The same path."""
        return path


def _is_filled(at: FieldPath, supplied: set[int]) -> bool:
    return at.field.initial_default is not None or at.field.field_id in supplied


def settled_fields(name_mapping: NameMapping, schemas: Iterable[Schema]) -> frozenset[int]:
    """Fields whose names in the name mapping are exactly those in the table's schemas.

    Iceberg creates and maintains such mappings: metrics of such a field in a file without ids are of the
    column that is read. If a name was removed, dropped and added again, or edited, they can be of another
    column.
    """
    mapped: dict[tuple[int | None, int], set[str]] = {}
    _collect_names(name_mapping.root, None, mapped)
    had: dict[tuple[int | None, int], set[str]] = {}
    for schema in schemas:
        for one in walk_fields(schema.fields):
            had.setdefault((one.parent, one.field.field_id), set()).add(one.field.name)
    settled: set[int] = set()
    # Outer fields come first.
    for (parent, field_id), names in had.items():
        if mapped.get((parent, field_id)) == names and (parent is None or parent in settled):
            settled.add(field_id)
    return frozenset(settled)


def _collect_names(
    fields: Iterable[MappedField], parent: int | None, into: dict[tuple[int | None, int], set[str]]
) -> None:
    """Names by the ids of parent and field; the first of several fields with the same name has it."""
    taken: set[str] = set()
    for field in fields:
        if field.field_id is not None:
            into.setdefault((parent, field.field_id), set()).update(set(field.names) - taken)
            _collect_names(field.fields, field.field_id, into)
        taken.update(field.names)


def mapped_ids(name_mapping: NameMapping | None) -> dict[Path, int] | None:
    """Ids of a name mapping by path, None without one; raises if a name has two ids."""
    if name_mapping is None:
        return None
    ids: dict[Path, int] = {}
    for field in name_mapping:
        _map_field(field, (), ids)
    return ids


def _map_field(field: MappedField, above: Path, into: dict[Path, int]) -> None:
    for name in field.names:
        path = (*above, name)
        if field.field_id is not None:
            other = into.setdefault(path, field.field_id)
            if other != field.field_id:
                raise SchemaError(
                    f"name mapping assigns {name} to two fields, {other} and {field.field_id}",
                    column=".".join(path),
                    hint=f"fix the table property {TableProperties.DEFAULT_NAME_MAPPING}",
                )
        for child in field.fields:
            _map_field(child, path, into)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
