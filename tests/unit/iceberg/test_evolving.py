"""Columns by field id: schemas that evolve at random are read and pruned as a model of the rows says."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import pickle
import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import (
    create_mapping_from_schema,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

import skipstone as sk
from skipstone.core.rows import RowSet
from skipstone.iceberg.schema import FieldNaming, IdNaming, arrow_schema, field_paths
from skipstone.parquet.metadata import ParquetMetadata, parse_footer
from skipstone.predicate.tree import Column
from tests.unit.iceberg._files import read

NAMES = ["a", "b", "A", "a.dot", "ü", "", "#1", "#/a", "1", "element", "x"]
LEAVES = {
    "int": (IntegerType(), lambda r: r.randrange(-50, 50)),
    "long": (LongType(), lambda r: r.randrange(-50, 50)),
    "float": (FloatType(), lambda r: float(r.randrange(-50, 50))),
    "double": (DoubleType(), lambda r: r.randrange(-50, 50) / 4),
    "string": (StringType(), lambda r: f"text {r.randrange(20):02}"),
    "narrow": (DecimalType(5, 2), lambda r: decimal.Decimal(r.randrange(-9999, 9999)).scaleb(-2)),
    "wide": (DecimalType(25, 2), lambda r: decimal.Decimal(r.randrange(-9999, 9999)).scaleb(-2)),
    "date": (DateType(), lambda r: dt.date(2020, 1, 1) + dt.timedelta(r.randrange(400))),
    "timestamp": (
        TimestampType(),
        lambda r: dt.datetime(2020, 1, 1) + dt.timedelta(hours=r.randrange(9_000)),
    ),
    "uuid": (UUIDType(), lambda r: uuid.UUID(int=r.randrange(50))),
}
WIDER = {"int": "long", "float": "double", "narrow": "wide", "date": "timestamp"}


@dataclass
class Node:
    """A field; ``kind`` is a leaf's, or struct, list (of structs) or map (to structs)."""

    id: int
    name: str
    kind: str
    fields: list[Node] = field(default_factory=list)
    default: Any = None

    @property
    def type(self) -> IcebergType:
        if self.kind in LEAVES:
            return LEAVES[self.kind][0]
        struct = StructType(*(one.nested for one in self.fields))
        if self.kind == "list":
            return ListType(self.id + 1, struct)
        if self.kind == "map":
            return MapType(self.id + 1, StringType(), self.id + 2, struct)
        return struct

    @property
    def nested(self) -> NestedField:
        return NestedField(self.id, self.name, self.type, initial_default=self.default)


class Evolving:
    """A schema, and changes to it drawn at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.last = 0
        self.fields = self._fields(0, self.random.randrange(2, 5))

    def schema(self) -> Schema:
        return Schema(*(node.nested for node in self.fields))

    def _fields(self, depth: int, count: int) -> list[Node]:
        return [self._node(name, depth) for name in self.random.sample(NAMES, count)]

    def _node(self, name: str, depth: int) -> Node:
        self.last += 3
        node_id = self.last
        nested = depth < 2 and self.random.random() < 0.35
        if not nested:
            return Node(node_id, name, self.random.choice(list(LEAVES)))
        kind = self.random.choice(["struct", "struct", "list", "map"])
        return Node(node_id, name, kind, self._fields(depth + 1, self.random.randrange(1, 4)))

    def change(self) -> None:
        """Rename, swap, reorder, drop, add (also a name that was dropped) or widen, at any depth."""
        fields = self._somewhere()
        action = self.random.choice(["rename", "swap", "shuffle", "drop", "add", "add", "widen"])
        one = self.random.choice(fields)
        free = [name for name in NAMES if name not in {node.name for node in fields}]
        if action == "rename" and free:
            one.name = self.random.choice(free)
        elif action == "swap":
            other = self.random.choice(fields)
            one.name, other.name = other.name, one.name
        elif action == "shuffle":
            self.random.shuffle(fields)
        elif action == "drop" and len(fields) > 1:
            fields.remove(one)
        elif action == "add" and free:
            made = self._node(self.random.choice(free), 1)
            if made.kind in LEAVES and self.random.random() < 0.5:
                made.default = LEAVES[made.kind][1](self.random)
            fields.insert(self.random.randrange(len(fields) + 1), made)
        elif action == "widen" and one.default is None:
            one.kind = WIDER.get(one.kind, one.kind)

    def _somewhere(self) -> list[Node]:
        fields = self.fields
        while True:
            deeper = [node.fields for node in fields if node.fields]
            if not deeper or self.random.random() < 0.5:
                return fields
            fields = self.random.choice(deeper)

    def row(self, fields: list[Node]) -> dict[int, Any]:
        return {node.id: self._value(node) for node in fields}

    def _value(self, node: Node) -> Any:
        if self.random.random() < 0.2:
            return None
        if node.kind in LEAVES:
            return LEAVES[node.kind][1](self.random)
        if node.kind == "struct":
            return self.row(node.fields)
        count = self.random.randrange(3)
        if node.kind == "list":
            return [self.row(node.fields) for _ in range(count)]
        return [(f"k{n}", self.row(node.fields)) for n in range(count)]


def shown(row: dict[int, Any], fields: list[Node]) -> dict[str, Any]:
    """A row by the names of a schema, which need not be the one it was made with."""
    return {node.name: _shown(row[node.id], node) if node.id in row else node.default for node in fields}


def _shown(value: Any, node: Node) -> Any:
    if value is None:
        return None
    if node.kind == "struct":
        return shown(value, node.fields)
    if node.kind == "list":
        return [shown(item, node.fields) for item in value]
    if node.kind == "map":
        return [(key, shown(item, node.fields)) for key, item in value]
    if node.kind == "timestamp" and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value


def raw(value: Any) -> Any:
    """A value with bytes for UUIDs, which pyarrow makes no nested arrays of."""
    if isinstance(value, dict):
        return {name: raw(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(raw(part) for part in value)
    return value.bytes if isinstance(value, uuid.UUID) else value


# -- random evolution --------------------------------------------------------------------------


def written(schema: Schema, *, ids: bool) -> pa.Schema:
    """As pyiceberg writes a schema, but for UUIDs, which are bytes as in its older versions."""
    return pa.schema([_written(one, ids) for one in schema_to_pyarrow(schema)])


def _written(one: pa.Field, ids: bool) -> pa.Field:
    return pa.field(one.name, _written_type(one.type, ids), one.nullable, one.metadata if ids else None)


def _written_type(type: pa.DataType, ids: bool) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([_written(one, ids) for one in type])
    if pa.types.is_large_list(type):
        return pa.large_list(_written(type.value_field, ids))
    if pa.types.is_map(type):
        return pa.map_(_written(type.key_field, ids), _written(type.item_field, ids))
    return pa.binary(16) if type == pa.uuid() else type


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evolved")


def evolves(folder: Path, seed: int, changes: int, ids: bool) -> None:
    table = Evolving(seed)
    then, schema = copy.deepcopy(table.fields), table.schema()
    rows = [table.row(then) for _ in range(40)]
    # The first leaf rises, so that there is something to prune.
    leaf = next((node for node in then if node.kind in LEAVES), None)
    if leaf is not None:
        some = [row for row in rows if row[leaf.id] is not None]
        for row, value in zip(some, sorted(row[leaf.id] for row in some), strict=True):
            row[leaf.id] = value
    for _ in range(changes):
        table.change()
    now, evolved = table.fields, table.schema()
    path = folder / "f.parquet"
    made = pa.Table.from_pylist([raw(shown(row, then)) for row in rows], schema=written(schema, ids=ids))
    pq.write_table(made, path, row_group_size=20, write_page_index=True, max_rows_per_page=5)
    mapping = None if ids else create_mapping_from_schema(schema)
    naming = FieldNaming.of(evolved, mapping)
    assert naming == FieldNaming.of(evolved, mapping) == pickle.loads(pickle.dumps(naming))

    expected = [shown(row, now) for row in rows]
    every = [(one.name,) for one in arrow_schema(evolved)]
    for route in ("slice", "pyarrow"):
        assert read(path, naming, evolved, every, route, RowSet.all(40)).to_pylist() == expected
        few = RowSet.from_ranges(40, [3, 17], [5, 22])
        found = read(path, naming, evolved, every, route, few)
        assert found.to_pylist() == [expected[row] for row in few]

    own = sk.read_metadata(path)
    seen = naming.apply(own)
    indexed = parse_footer(IdNaming.of(mapping).apply(own).shell(), "shell", None)
    again = FieldNaming.of(evolved).apply(indexed)
    assert [leaf.path for leaf in again.leaves] == [leaf.path for leaf in seen.leaves]
    check_pruning(path, seen, evolved, expected)


def check_pruning(path: Path, seen: ParquetMetadata, schema: Schema, rows: list[dict[str, Any]]) -> None:
    lake = arrow_schema(schema)
    for column in field_paths(schema).values():
        values = [value_at(row, column) for row in rows]
        told = next((value for value in values if value is not None), None)
        asked = [(Column(column).is_null(), [value is None for value in values])]
        asked.append((Column(column).is_not_null(), [value is not None for value in values]))
        if told is not None:
            asked.append((Column(column) == told, [value == told for value in values]))
            asked.append((Column(column) > told, [value is not None and value > told for value in values]))
        for predicate, truth in asked:
            kept = sk.prune(path, predicate, lake, metadata=seen).rows
            lost = [row for row, true in enumerate(truth) if true and row not in kept]
            assert not lost, (predicate, lost)


def value_at(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for step in path:
        if value is None:
            return None
        value = value[step]
    return value


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 8), st.booleans())
def test_a_schema_that_evolved_at_random(folder: Path, seed: int, changes: int, ids: bool) -> None:
    evolves(folder, seed, changes, ids)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.integers(0, 2**32), st.integers(0, 12), st.booleans())
def test_many_schemas_that_evolved_at_random(folder: Path, seed: int, changes: int, ids: bool) -> None:
    evolves(folder, seed, changes, ids)
