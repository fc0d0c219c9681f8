"""Which columns are wanted: names resolved to paths, and the schema they give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from skipstone.errors import SchemaError, UnknownColumnError, UsageError
from skipstone.ir.bind import Binder

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
        names = dict.fromkeys(path[0] for path in kept)
        fields = [_cut(schema.field(name), [path[1:] for path in kept if path[0] == name]) for name in names]
        return cls(kept, pa.schema(fields))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def without(self, names: Iterable[str], schema: pa.Schema) -> Projection:
        """The paths into other columns than these."""
        left_out = set(names)
        return Projection.of(schema, [path for path in self.paths if path[0] not in left_out])


def resolve(columns: Sequence[str] | None, schema: pa.Schema, *, case_sensitive: bool) -> Projection:
    """What a caller's list of names means; None is every column. ``s.x`` is field x of struct s."""
    if columns is None:
        twice = sorted({name for name in schema.names if len(schema.get_all_field_indices(name)) > 1})
        if twice:
            message = "the files have more than one column of this name"
            raise SchemaError(message, column=twice[0], hint="name the columns you want in columns=")
        return Projection(tuple((name,) for name in schema.names), schema)
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns={columns!r}", hint="give a list of column names")
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise UsageError(f"a column is asked for twice: {', '.join(repeated)}")
    binder = Binder(schema, case_sensitive)
    return Projection.of(schema, [find_path(binder, name) for name in columns])


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
