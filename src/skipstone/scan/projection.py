"""Which columns are wanted: names resolved to paths, and the schema they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from skipstone.core.ir.bind import Binder
from skipstone.errors import SchemaError, UnknownColumnError, UsageError
from skipstone.lake.snapshot import AntiJoin

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """Paths into a lake's schema, none inside another, and the columns they make up.

    Several paths into one struct make one column, cut down to them, as Parquet readers have it.
    """

    paths: tuple[Path, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema, paths: Iterable[Path]) -> Projection:
        """The columns at ``paths``, in the order of their first mention."""
        kept = _outermost(paths)
        fields = [_cut(schema.field(name), mine) for name, mine in _below(kept).items()]
        return cls(kept, pa.schema(fields))

    @property
    def below(self) -> dict[str, list[Path]]:
        """For each column the paths into it; the empty path is all of it."""
        return _below(self.paths)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def without(self, names: Iterable[str], schema: pa.Schema) -> Projection:
        """The paths into other columns than these."""
        left_out = set(names)
        return Projection.of(schema, [path for path in self.paths if path[0] not in left_out])


_RESOLVED = 64
_resolved: dict[tuple[Sequence[str] | None, int, bool], tuple[Projection, pa.Schema]] = {}


def resolve(columns: Sequence[str] | None, schema: pa.Schema, *, case_sensitive: bool) -> Projection:
    """What a caller's list of names means; None is every column. ``s.x`` is field x of struct s."""
    if columns is not None and not isinstance(columns, tuple):
        return _resolve(columns, schema, case_sensitive)
    # By identity, as in ``binder_of``: a lake has one schema object per version, which is held here.
    key = columns, id(schema), case_sensitive
    found = _resolved.get(key)
    if found is None:
        if len(_resolved) >= _RESOLVED:
            _resolved.clear()
        found = _resolved[key] = _resolve(columns, schema, case_sensitive), schema
    return found[0]


def _resolve(columns: Sequence[str] | None, schema: pa.Schema, case_sensitive: bool) -> Projection:
    if columns is None:
        for name in _repeated(schema.names):
            message = "the files have more than one column of this name"
            raise SchemaError(message, column=name, hint="name the columns you want in columns=")
        return Projection(tuple((name,) for name in schema.names), schema)
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns={columns!r}", hint="give a list of column names")
    repeated = _repeated(columns)
    if repeated:
        raise UsageError(f"a column is asked for twice: {', '.join(repeated)}")
    binder = Binder(schema, case_sensitive)
    return Projection.of(schema, [find_path(binder, name) for name in columns])


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _below(paths: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path[0], []).append(path[1:])
    return found


def find_path(binder: Binder, name: str) -> Path:
    """The column of this name, or else the struct field that a dotted name leads to."""
    try:
        return binder.column((name,)).path
    except UnknownColumnError:
        if "." not in name:
            raise
    return binder.column(tuple(name.split("."))).path


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Paths without those that lie inside another one."""
    wanted = dict.fromkeys(paths)
    return tuple(p for p in wanted if not any(p[:depth] in wanted for depth in range(1, len(p))))


def _cut(field: pa.Field, below: list[Path]) -> pa.Field:
    if () in below:
        return field
    children = []
    for child in field.type.fields:
        mine = [path[1:] for path in below if path[0] == child.name]
        if mine:
            children.append(_cut(child, mine))
    return field.with_type(pa.struct(children))


def with_hidden(schema: pa.Schema, deletes: Iterable[AntiJoin]) -> pa.Schema:
    """A lake's schema, with columns that are no part of it but tell deleted rows."""
    fields = list(schema)
    for anti in deletes:
        for path, type in zip(anti.columns, anti.types, strict=True):
            fields = _with_path(fields, path, type)
    return schema if fields == list(schema) else pa.schema(fields)


def _with_path(fields: list[pa.Field], path: Path, type: pa.DataType) -> list[pa.Field]:
    """Fields with one more at a path, unless it is there."""
    place = next((at for at, one in enumerate(fields) if one.name == path[0]), len(fields))
    if len(path) == 1:
        return fields if place < len(fields) else [*fields, pa.field(path[0], type)]
    inner = list(fields[place].type.fields) if place < len(fields) else []
    struct = pa.struct(_with_path(inner, path[1:], type))
    found = fields[place].with_type(struct) if place < len(fields) else pa.field(path[0], struct)
    return [*fields[:place], found, *fields[place + 1 :]]
