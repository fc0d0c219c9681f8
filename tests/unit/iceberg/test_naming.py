"""Names and ids of fields, dropped, added again, mapped and hidden."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    parse_mapping_from_json,
)
from pyiceberg.types import (
    ListType,
    LongType,
    NestedField,
    StructType,
)

from skipstone.core.ir.nodes import ColumnRef
from skipstone.errors import SchemaError, UnknownColumnError
from skipstone.iceberg.schema import FieldNaming, IdNaming, settled_fields
from skipstone.parquet.evidence import row_group_facts
from tests.unit.iceberg._files import f, paths, stored


def test_a_name_dropped_and_added_again_is_another_column() -> None:
    schema = Schema(NestedField(7, "a", LongType()))
    naming = FieldNaming.of(schema)
    table = pa.table([[1]], schema=pa.schema([f("a", 1)]))
    assert paths(naming, table) == [("#1",)]
    assert naming.apply(stored(table)).arrow_schema.names == ["#1"]


def test_hidden_names_never_clash_with_the_tables() -> None:
    schema = Schema(NestedField(2, "#1", LongType()), NestedField(3, "##/b", LongType()))
    naming = FieldNaming.of(schema)
    table = pa.table([[1]] * 4, schema=pa.schema([f("a", 1), f("x", 2), pa.field("b", pa.int64()), f("", 3)]))
    assert paths(naming, table) == [("###1",), ("#1",), ("###/b",), ("##/b",)]


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


@pytest.mark.parametrize(
    "mapping",
    [
        '[{"field-id": 1, "names": ["a", "b"]}, {"field-id": 2, "names": ["b"]}]',
        """[{"field-id": 9, "names": ["s"], "fields": [{"field-id": 1, "names": ["b"]},
              {"field-id": 2, "names": ["c", "b"]}]}]""",
    ],
)
def test_a_name_mapping_with_a_name_for_two_fields_is_refused(mapping: str) -> None:
    found = parse_mapping_from_json(mapping)
    for make in (lambda: IdNaming.of(found), lambda: FieldNaming.of(Schema(), found)):
        with pytest.raises(SchemaError, match="name mapping assigns b to two fields, 1 and 2"):
            make()


@pytest.mark.parametrize("naming", [FieldNaming.of(Schema(NestedField(1, "a", LongType()))), IdNaming.of()])
def test_a_file_without_ids_is_refused_in_a_table_without_a_name_mapping(
    naming: FieldNaming | IdNaming,
) -> None:
    with pytest.raises(SchemaError, match=r"has no field ids.*schema\.name-mapping\.default"):
        naming.apply(stored(pa.table({"a": [1]})))
    some = pa.table([[1], [2]], schema=pa.schema([f("a", 1), pa.field("b", pa.int64())]))
    assert len(paths(naming, some)) == 2
    assert FieldNaming.of(Schema(), NameMapping([])).apply(stored(pa.table({"a": [1]}))).num_rows == 1


def settled(mapping: str, *schemas: Schema) -> set[int]:
    return set(settled_fields(parse_mapping_from_json(mapping), schemas))


def test_fields_are_settled_by_the_names_that_the_schemas_gave_them() -> None:
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType()))
    first = Schema(NestedField(1, "a", LongType()), NestedField(2, "s", inner))
    renamed = Schema(NestedField(1, "b", LongType()), NestedField(2, "t", inner))
    again = Schema(*renamed.fields, NestedField(5, "a", LongType()))
    s = '{"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["x"]}]}'
    assert settled(f'[{{"field-id": 1, "names": ["a"]}}, {s}]', first) == {1, 2, 3}
    # A name is missing, one is not of the schemas, or two fields share it: the first has it.
    assert settled(f'[{{"field-id": 1, "names": ["a"]}}, {s}]', first, renamed) == set()
    assert settled('[{"field-id": 1, "names": ["a", "A"]}]', first) == set()
    assert settled('[{"field-id": 1, "names": ["b", "a"]}]', first, renamed) == {1}
    assert settled('[{"field-id": 5, "names": ["a"]}, {"field-id": 1, "names": ["b"]}]', first, again) == {5}
    shared = '[{"field-id": 1, "names": ["a", "b"]}, {"field-id": 5, "names": ["a"]}]'
    assert settled(shared, first, again) == {1}
    # A field is as settled as the struct that it is in; one that is mapped inside another is not.
    t = '{"field-id": 2, "names": ["t"], "fields": [{"field-id": 3, "names": ["x"]}]}'
    assert settled(f"[{t}]", first) == set()
    assert settled('[{"field-id": 3, "names": ["x"]}]', first) == set()
    assert settled("[]", first) == set()


def test_namings_differ_by_what_they_say() -> None:
    schema = Schema(NestedField(1, "a", LongType()))
    mapping = NameMapping([MappedField(field_id=1, names=["b"])])
    different = [
        FieldNaming.of(schema),
        FieldNaming.of(schema, mapping),
        FieldNaming.of(Schema()),
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
