"""Columns by field id: schemas that evolve at random are read and pruned as a model of the rows says."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import io
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
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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

import skipstone as sk
from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.ir.nodes import ColumnRef
from skipstone.lake.conform import Evolution, conform
from skipstone.lake.files import Files
from skipstone.lake.iceberg.columns.naming import FieldNaming, IdNaming
from skipstone.lake.iceberg.columns.schema import arrow_schema, arrow_type, defaults, field_paths, missing
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.footer import parse_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.predicate.tree import Column
from skipstone.rows import RowSet
from skipstone.scan.projection import Projection
from skipstone.scan.reader import FileReader, Meter
from skipstone.store.place import open_place

# -- a model of schemas and rows ---------------------------------------------------------------

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


def reader(path: Path, naming: FieldNaming, route: Any) -> FileReader:
    place = open_place(path.parent)[0]
    entry = next(entry for entry in place.list() if entry.key == path.name)
    return FileReader.open(Files(place, naming=naming), entry, {}, route, False, Meter())


def read(
    path: Path, naming: FieldNaming, schema: Schema, paths: list[tuple[str, ...]], route: Any, rows: RowSet
) -> pa.Table:
    """Rows of both row groups, as the reader gives them to the lake."""
    found = reader(path, naming, route)
    wanted = Projection.of(arrow_schema(schema), paths)
    evolution = Evolution(defaults(schema))
    half = rows.total // 2
    parts = []
    for group in (0, 1):
        mine = [row - group * half for row in rows if row // half == group]
        if mine:
            chosen = RowSet.from_ranges(half, mine, [row + 1 for row in mine])
            table = found._decoded(found.fetch(group, chosen, wanted))
            parts.append(conform(table, wanted.schema, path=str(path), evolution=evolution))
    return pa.concat_tables(parts)


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


# -- names -------------------------------------------------------------------------------------


def stored(table: pa.Table) -> ParquetMetadata:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sk.read_metadata(io.BytesIO(sink.getvalue()))


def f(name: str, field_id: int, type: pa.DataType | None = None) -> pa.Field:
    return pa.field(name, type or pa.int64(), metadata={"PARQUET:field_id": str(field_id)})


def paths(naming: FieldNaming | IdNaming, table: pa.Table) -> list[tuple[str, ...]]:
    return [leaf.path for leaf in naming.apply(stored(table)).leaves]


def test_a_name_dropped_and_added_again_is_another_column() -> None:
    schema = Schema(NestedField(7, "a", LongType()))
    naming = FieldNaming.of(schema)
    table = pa.table([[1]], schema=pa.schema([f("a", 1)]))
    assert paths(naming, table) == [("#1",)]
    assert missing(naming.apply(stored(table)), arrow_schema(schema)) == (("a",),)


def test_hidden_names_never_clash_with_the_tables() -> None:
    schema = Schema(NestedField(2, "#1", LongType()), NestedField(3, "##/b", LongType()))
    naming = FieldNaming.of(schema)
    table = pa.table([[1]] * 4, schema=pa.schema([f("a", 1), f("x", 2), pa.field("b", pa.int64()), f("", 3)]))
    assert paths(naming, table) == [("###1",), ("#1",), ("###/b",), ("##/b",)]


def test_hidden_ids_are_not_the_tables() -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    table = pa.table([[1], [2]], schema=pa.schema([f("a", 1), f("b", 2)]))
    assert paths(FieldNaming.of(schema, hidden=[1]), table) == [("#1",), ("b",)]


def test_an_id_of_another_struct_means_nothing() -> None:
    inner = StructType(NestedField(2, "x", LongType()))
    schema = Schema(
        NestedField(1, "s", inner), NestedField(3, "t", StructType(NestedField(4, "x", LongType())))
    )
    table = pa.table([[{"x": 1, "y": 2}]], schema=pa.schema([f("s", 1, pa.struct([f("x", 4), f("y", 2)]))]))
    assert paths(FieldNaming.of(schema), table) == [("s", "#4"), ("s", "x")]


def test_paths_of_ids_and_of_names() -> None:
    inner = StructType(NestedField(2, "x.y", LongType()))
    naming = FieldNaming.of(Schema(NestedField(1, "s", inner), NestedField(3, "x.y", LongType())))
    assert naming.stored(("s", "x.y")) == ("1", "2")
    assert naming.path(("1", "2")) == ("s", "x.y")
    assert naming.stored(("x.y",)) == ("3",)
    assert naming.path(("9",)) == ("#9",)
    assert naming.path(("#/gone",)) == ("#/gone",)
    assert naming.path(("2",)) == ("#2",)
    with pytest.raises(UnknownColumnError):
        naming.stored(("s", "z"))
    ids = IdNaming.of()
    assert ids.path(("1", "2")) == ids.stored(("1", "2")) == ("1", "2")


def test_a_name_mapping_has_many_names_for_a_field() -> None:
    mapping = parse_mapping_from_json(
        """[{"field-id": 1, "names": ["a", "old a"]},
            {"field-id": 2, "names": ["l"], "fields": [{"field-id": 3, "names": ["element"],
              "fields": [{"field-id": 4, "names": ["p", "P"]}]}]},
            {"names": ["s"], "fields": [{"field-id": 6, "names": ["x"]}]}]"""
    )
    item = StructType(NestedField(4, "q", LongType()))
    schema = Schema(NestedField(1, "one", LongType()), NestedField(2, "l", ListType(3, item)))
    table = pa.table({"old a": [1], "l": [[{"P": 1}]], "s": [{"x": 1}], "b": [1]})
    seen = [("one",), ("l", "list", "element", "q"), ("#/s", "#6"), ("#/b",)]
    assert paths(FieldNaming.of(schema, mapping), table) == seen
    assert paths(IdNaming.of(mapping), table) == [
        ("1",),
        ("2", "list", "element", "4"),
        ("#/s", "6"),
        ("#/b",),
    ]
    # Without a mapping the file has none of the table's columns.
    assert [path[0] for path in paths(FieldNaming.of(schema), table)] == ["#/old a", "#/l", "#/s", "#/b"]


def test_namings_differ_by_what_they_say() -> None:
    schema = Schema(NestedField(1, "a", LongType()))
    mapping = NameMapping([MappedField(field_id=1, names=["b"])])
    different = [
        FieldNaming.of(schema),
        FieldNaming.of(schema, mapping),
        FieldNaming.of(schema, hidden=[1]),
        FieldNaming.of(schema, supplied=[1]),
        FieldNaming.of(Schema(NestedField(2, "a", LongType()))),
        IdNaming.of(),
        IdNaming.of(mapping),
        IdNaming.of(mapping, [schema]),
    ]
    assert len(set(different)) == len(different)
    assert len({naming.digest for naming in different}) == len(different)


def test_a_supplied_column_is_not_null_where_a_file_lacks_it() -> None:
    inner = StructType(NestedField(2, "x", LongType()), NestedField(3, "y", LongType(), initial_default=7))
    schema = Schema(
        NestedField(1, "s", inner), NestedField(4, "p", LongType()), NestedField(5, "q", LongType())
    )
    table = pa.table([[{"x": 1}]], schema=pa.schema([f("s", 1, pa.struct([f("x", 2)]))]))
    own = stored(table)

    def may_hold(naming: FieldNaming | IdNaming, *path: str) -> bool:
        facts = row_group_facts(naming.apply(own), ColumnRef(path, pa.int64()))
        return bool(facts.may_value.all())

    named = FieldNaming.of(schema, supplied=[4])
    assert [may_hold(named, *path) for path in (("s", "y"), ("p",), ("q",))] == [True, True, False]
    known = IdNaming.of(None, [schema], supplied=[4])
    assert [may_hold(known, *path) for path in (("1", "3"), ("4",), ("5",))] == [True, True, False]
    assert may_hold(IdNaming.of(), "5")


# -- types -------------------------------------------------------------------------------------

TYPES: dict[str, tuple[IcebergType, pa.DataType]] = {
    "flag": (BooleanType(), pa.bool_()),
    "i": (IntegerType(), pa.int32()),
    "l": (LongType(), pa.int64()),
    "f": (FloatType(), pa.float32()),
    "d": (DoubleType(), pa.float64()),
    "day": (DateType(), pa.date32()),
    "time": (TimeType(), pa.time64("us")),
    "ts": (TimestampType(), pa.timestamp("us")),
    "tz": (TimestamptzType(), pa.timestamp("us", "UTC")),
    "ns": (TimestampNanoType(), pa.timestamp("ns")),
    "zns": (TimestamptzNanoType(), pa.timestamp("ns", "UTC")),
    "s": (StringType(), pa.string()),
    "b": (BinaryType(), pa.binary()),
    "u": (UUIDType(), pa.uuid()),
    "fix": (FixedType(3), pa.binary(3)),
    "n": (DecimalType(9, 2), pa.decimal128(9, 2)),
    "w": (DecimalType(38, 10), pa.decimal128(38, 10)),
    "list": (ListType(101, StringType(), element_required=False), pa.list_(pa.string())),
    "map": (MapType(102, StringType(), 103, LongType()), None),
    "st": (StructType(NestedField(104, "x", LongType(), required=True)), None),
}
TYPES["map"] = (
    MapType(102, StringType(), 103, LongType(), value_required=False),
    pa.map_(pa.string(), pa.int64()),
)
TYPES["st"] = (TYPES["st"][0], pa.struct([pa.field("x", pa.int64(), nullable=False)]))


def test_types_are_those_that_files_are_read_as() -> None:
    schema = Schema(*(NestedField(n + 1, name, type) for n, (name, (type, _)) in enumerate(TYPES.items())))
    lake = arrow_schema(schema)
    assert {one.name: one.type for one in lake} == {name: type for name, (_, type) in TYPES.items()}
    # As pyiceberg writes them: with large strings and UUIDs in the Arrow schema that the file keeps.
    table = schema_to_pyarrow(schema).empty_table()
    assert pa.schema(list(FieldNaming.of(schema).apply(stored(table)).arrow_schema)).equals(lake)


def test_required_columns_and_types_of_version_three() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "n", UnknownType()))
    assert arrow_schema(schema) == pa.schema([pa.field("a", pa.int64(), nullable=False), ("n", pa.null())])
    assert arrow_schema(Schema(NestedField(1, "g", GeometryType()))).field("g").type == pa.binary()


def test_a_type_that_cannot_be_read_names_its_column() -> None:
    class Variant(IcebergType):
        """Not known here."""

    with pytest.raises(SchemaError, match=r"column s\.v: type Variant\(\) can't be read"):
        arrow_type(Variant(), ("s", "v"))


def test_defaults_are_scalars_of_the_columns_types() -> None:
    number = uuid.uuid4()
    item = StructType(NestedField(6, "x", DecimalType(9, 2), initial_default=decimal.Decimal("1.5")))
    schema = Schema(
        NestedField(1, "u", UUIDType(), initial_default=number),
        NestedField(2, "day", DateType(), initial_default=dt.date(2020, 1, 1)),
        NestedField(3, "tz", TimestamptzType(), initial_default=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        NestedField(4, "l", ListType(5, item)),
        NestedField(7, "none", LongType()),
    )
    found = defaults(schema)
    assert found.keys() == {("u",), ("day",), ("tz",), ("l", "element", "x")}
    assert found["u",].type == pa.uuid()
    assert found["u",].as_py() == number
    assert found["day",] == pa.scalar(dt.date(2020, 1, 1), pa.date32())
    assert found["tz",] == pa.scalar(1_577_836_800_000_000, pa.timestamp("us", "UTC"))
    assert found["l", "element", "x"] == pa.scalar(decimal.Decimal("1.50"), pa.decimal128(9, 2))


def test_paths_of_leaves_leave_lists_and_maps_out() -> None:
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(
            2, "s", StructType(NestedField(3, "x", LongType()), NestedField(4, "l", ListType(5, LongType())))
        ),
        NestedField(6, "m", MapType(7, StringType(), 8, LongType())),
    )
    assert field_paths(schema) == {1: ("a",), 3: ("s", "x")}


def test_missing_fields_of_structs() -> None:
    inner = StructType(NestedField(2, "x", LongType()), NestedField(3, "y", LongType()))
    schema = Schema(
        NestedField(1, "s", inner), NestedField(4, "t", LongType()), NestedField(5, "a", LongType())
    )
    table = pa.table([[{"z": 1}], [1]], schema=pa.schema([f("s", 1, pa.struct([f("z", 2)])), f("b", 5)]))
    assert missing(FieldNaming.of(schema).apply(stored(table)), arrow_schema(schema)) == (("s", "y"), ("t",))


# -- files in older types, and without some fields ---------------------------------------------


def one_column(path: Path, array: pa.Array, type: IcebergType, **options: Any) -> tuple[FieldNaming, Schema]:
    table = pa.table([array], schema=pa.schema([f("old", 1, array.type)]))
    pq.write_table(table, path, row_group_size=len(array) // 2, **options)
    schema = Schema(NestedField(1, "new", type))
    return FieldNaming.of(schema), schema


def values(path: Path, naming: FieldNaming, schema: Schema) -> list[Any]:
    every = [(name,) for name in arrow_schema(schema).names]
    total = RowSet.all(sk.read_metadata(path).num_rows)
    tables = [read(path, naming, schema, every, route, total) for route in ("slice", "pyarrow")]
    assert tables[0].equals(tables[1])
    assert tables[0].schema == arrow_schema(schema)
    return tables[0].column(0).to_pylist()


@pytest.mark.parametrize("stored_as", [pa.uuid(), pa.binary(16)])
@pytest.mark.parametrize("keep", [True, False])
def test_uuids_by_both_routes(tmp_path: Path, stored_as: pa.DataType, keep: bool) -> None:
    numbers = [uuid.UUID(int=n) for n in range(20)]
    array = pa.array([number.bytes for number in numbers], stored_as)
    path = tmp_path / "f.parquet"
    naming, schema = one_column(path, array, UUIDType(), store_schema=keep)
    assert values(path, naming, schema) == numbers
    kept = sk.prune(
        path, f"new = '{numbers[3]}'", arrow_schema(schema), metadata=naming.apply(sk.read_metadata(path))
    )
    assert kept.row_groups == [0]


@pytest.mark.parametrize(("type", "unit"), [(TimestampType(), "us"), (TimestampNanoType(), "ns")])
def test_a_date_that_became_a_timestamp_is_pruned_as_one(
    tmp_path: Path, type: IcebergType, unit: str
) -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(n) for n in range(20)]
    path = tmp_path / "f.parquet"
    naming, schema = one_column(
        path, pa.array(days), type, write_page_index=True, max_rows_per_page=2, write_batch_size=1
    )
    assert [str(value)[:10] for value in values(path, naming, schema)] == [str(day) for day in days]
    seen = naming.apply(sk.read_metadata(path))
    kept = sk.prune(path, "new >= timestamp '2020-01-18 12:00:00'", arrow_schema(schema), metadata=seen)
    assert arrow_schema(schema).field("new").type == pa.timestamp(unit)
    assert list(kept.rows) == [18, 19]
    noon = sk.prune(path, "new = timestamp '2020-01-18 12:00:00'", arrow_schema(schema), metadata=seen)
    assert noon.row_groups == []


def test_a_date_beyond_the_range_of_nanoseconds_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    naming, schema = one_column(path, pa.array([dt.date(9999, 1, 1)] * 2), TimestampNanoType())
    seen = naming.apply(sk.read_metadata(path))
    assert sk.prune(path, "new > timestamp '2020-01-01'", arrow_schema(schema), metadata=seen).row_groups == [
        0,
        1,
    ]
    with pytest.raises(SchemaError, match="doesn't fit the lake's type"):
        values(path, naming, schema)


@pytest.mark.parametrize("options", [{"use_deprecated_int96_timestamps": True}, {"version": "2.6"}])
@pytest.mark.parametrize("type", [TimestampType(), TimestamptzType()])
def test_finer_timestamps_if_nothing_is_cut(
    tmp_path: Path, options: dict[str, Any], type: IcebergType
) -> None:
    path = tmp_path / "f.parquet"
    moments = [dt.datetime(2020, 1, 1, microsecond=n) for n in range(10)]
    naming, schema = one_column(path, pa.array(moments, pa.timestamp("ns")), type, **options)
    zone = dt.UTC if type == TimestamptzType() else None
    assert values(path, naming, schema) == [moment.replace(tzinfo=zone) for moment in moments]
    seen = naming.apply(sk.read_metadata(path))
    assert sk.prune(path, "new > timestamp '2020-01-01'", arrow_schema(schema), metadata=seen).row_groups == [
        0,
        1,
    ]
    naming, schema = one_column(path, pa.array([1, 2], pa.timestamp("ns")), type, **options)
    with pytest.raises(SchemaError, match="doesn't fit the lake's type"):
        values(path, naming, schema)


def test_defaults_at_any_depth() -> None:
    inner = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    schema = pa.schema(
        {"s": inner, "l": pa.list_(inner), "m": pa.map_(pa.string(), inner), "t": pa.int8(), "u": pa.uuid()}
    )
    table = pa.table(
        {
            "s": [{"x": 1}, None],
            "l": [[{"x": 1}, None], None],
            "m": pa.array([[("k", {"x": 2})], []], pa.map_(pa.string(), pa.struct({"x": pa.int64()}))),
        }
    )
    text, number = pa.scalar("d"), uuid.UUID(int=5)
    told = {
        ("s", "y"): text,
        ("l", "element", "y"): text,
        ("m", "value", "y"): text,
        ("t",): pa.scalar(3, pa.int8()),
        ("u",): pa.ExtensionScalar.from_storage(pa.uuid(), pa.scalar(number.bytes, pa.binary(16))),
    }
    found = conform(table, schema, path="f", evolution=Evolution(told))
    found.validate(full=True)
    filled = {"x": 1, "y": "d"}
    assert found.to_pylist() == [
        {"s": filled, "l": [filled, None], "m": [("k", {"x": 2, "y": "d"})], "t": 3, "u": number},
        {"s": None, "l": None, "m": [], "t": 3, "u": number},
    ]
    with pytest.raises(
        SchemaError, match=r"column s\.y: NULL in a column that the lake's schema says has none"
    ):
        conform(table, schema, path="f", evolution=Evolution({}))


def test_directories_still_refuse_what_only_tables_allow() -> None:
    for own, wanted in [
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.binary(16), pa.uuid()),
    ]:
        with pytest.raises(SchemaError, match="some values would be lost"):
            conform(pa.table({"a": pa.nulls(1, own)}), pa.schema({"a": wanted}), path="f")


@pytest.mark.parametrize("route", ["slice", "pyarrow"])
def test_a_default_inside_of_a_struct_of_which_nothing_else_is_asked_for(tmp_path: Path, route: str) -> None:
    path = tmp_path / "f.parquet"
    inner = f("in", 3, pa.struct([f("y", 4)]))
    told = [{"a": 1, "in": {"y": 2}}, {"a": 1, "in": None}]
    pq.write_table(
        pa.table([told], schema=pa.schema([f("s", 1, pa.struct([f("a", 2), inner]))])), path, row_group_size=1
    )
    within = StructType(NestedField(4, "y", LongType()), NestedField(5, "x", LongType(), initial_default=7))
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "a", LongType()), NestedField(3, "in", within)))
    )
    naming = FieldNaming.of(schema)
    alone = read(path, naming, schema, [("s", "in", "x")], route, RowSet.all(2))
    assert alone.column("s").to_pylist() == [{"in": {"x": 7}}, {"in": None}]
    beside = read(path, naming, schema, [("s", "a"), ("s", "in", "x")], route, RowSet.all(2))
    assert beside.column("s").to_pylist() == [{"a": 1, "in": {"x": 7}}, {"a": 1, "in": None}]
