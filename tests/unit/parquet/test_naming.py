"""Metadata under other names: what reads it finds columns by the new ones, and nothing else changes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError
from skipstone.lake.files import Files
from skipstone.parquet import compact as c
from skipstone.parquet import naming as room
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.metadata import ParquetMetadata, parse_footer
from skipstone.parquet.naming import Naming, renamed
from skipstone.scan.projection import Projection
from skipstone.scan.reader import FileReader
from skipstone.store.store import open_store


@dataclass(frozen=True)
class Names(Naming):
    """Names by id, ids by path."""

    names: tuple[tuple[int, str], ...]
    ids: tuple[tuple[tuple[str, ...], int], ...] = ()
    filled: frozenset[tuple[str, ...]] = field(default_factory=frozenset)

    def id_of(self, path: tuple[str, ...]) -> int | None:
        return dict(self.ids).get(path)

    def name(self, field_id: int | None, path: tuple[str, ...], parent: int | None) -> str:
        hidden = f"#/{path[-1]}" if field_id is None else f"#{field_id}"
        return hidden if field_id is None else dict(self.names).get(field_id, hidden)

    def supplies(self, path: tuple[str, ...]) -> bool:
        return path in self.filled

    def path(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        return ids

    def stored(self, path: tuple[str, ...]) -> tuple[str, ...]:
        return path

    def apply(self, metadata: ParquetMetadata) -> ParquetMetadata:
        return renamed(metadata, self)


def names(of: Mapping[int, str], ids: Mapping[tuple[str, ...], int] | None = None, *filled: Any) -> Names:
    return Names(tuple(of.items()), tuple((ids or {}).items()), frozenset(filled))


def f(name: str, type: pa.DataType, field_id: int, **options: Any) -> pa.Field:
    return pa.field(name, type, metadata={"PARQUET:field_id": str(field_id)}, **options)


SCHEMA = pa.schema(
    [
        f("a", pa.int32(), 1),
        f("b", pa.large_string(), 2),
        f("s", pa.struct([f("x", pa.int64(), 4), f("y", pa.int64(), 5)]), 3),
        f("l", pa.list_(f("element", pa.struct([f("p", pa.int64(), 8)]), 7)), 6),
        f(
            "m",
            pa.map_(
                f("key", pa.string(), 10, nullable=False),
                f("value", pa.struct([f("q", pa.float64(), 12)]), 11),
            ),
            9,
        ),
        f("d", pa.dictionary(pa.int32(), pa.string()), 13),
    ]
)
ROWS = 400
TABLE = pa.table(
    {
        "a": range(ROWS),
        "b": [f"text {i:03}" if i % 5 else None for i in range(ROWS)],
        "s": [{"x": i, "y": -i} if i % 7 else None for i in range(ROWS)],
        "l": [[{"p": j} for j in range(i % 3)] for i in range(ROWS)],
        "m": [[("k", {"q": i / 2})] for i in range(ROWS)],
        "d": pa.array([f"d{i % 4}" for i in range(ROWS)]).dictionary_encode(),
    },
    schema=SCHEMA,
)
# a and b change names, so do x and y; l is gone; p and q have other names.
SWAPPED = names({1: "b", 2: "a", 3: "s.t", 4: "y", 5: "x", 8: "ö", 9: "M", 12: "", 13: "d"})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("named") / "f.parquet"
    pq.write_table(TABLE, path, row_group_size=200, write_page_index=True, max_rows_per_page=20)
    return path


def reader(path: Path, naming: Naming, route: Any) -> FileReader:
    store = open_store(path.parent)[0]
    files = Files(store, naming=naming)
    entry = next(entry for entry in store.list() if entry.key == path.name)
    return FileReader.open(files, entry, {}, route, True)


def test_every_view_of_the_footer_has_the_new_names(file: Path) -> None:
    seen = SWAPPED.apply(sk.read_metadata(file))
    assert [leaf.path for leaf in seen.leaves] == [
        ("b",),
        ("a",),
        ("s.t", "y"),
        ("s.t", "x"),
        ("#6", "list", "element", "ö"),
        ("M", "key_value", "key"),
        ("M", "key_value", "value", ""),
        ("d",),
    ]
    assert [leaf.field_id for leaf in seen.leaves] == [1, 2, 4, 5, 8, 10, 12, 13]
    assert seen.arrow_schema.names == ["b", "a", "s.t", "#6", "M", "d"]
    assert seen.arrow_schema.field("s.t").type == pa.struct({"y": pa.int64(), "x": pa.int64()})
    assert seen.arrow_schema.field("a").type == seen.arrow_schema.field("d").type == pa.string()
    assert b"ARROW:schema" not in seen.key_value_metadata
    again = ParquetMetadata.__new__(ParquetMetadata)
    with pytest.raises(CorruptFileError, match="chunk belongs to column a"):
        again.__init__(seen.footer, "f", None)  # the new names are in the schema only


def test_everything_else_is_the_files_own(file: Path) -> None:
    own = sk.read_metadata(file)
    seen = SWAPPED.apply(own)
    assert (seen.path, seen.size, seen.version, seen.created_by) == (
        own.path,
        own.size,
        own.version,
        own.created_by,
    )
    assert seen.num_rows == ROWS
    assert seen.row_group_starts.tolist() == [0, 200]
    assert seen.footer_size == own.footer_size
    for leaf in range(len(own.leaves)):
        assert seen.chunks(leaf) == own.chunks(leaf)
        assert seen.encoding_stats(1, leaf) == own.encoding_stats(1, leaf)
    assert seen.identity[:2] == own.identity[:2]
    assert len({seen.identity, own.identity, names({1: "b"}).apply(own).identity}) == 3
    assert seen.identity == SWAPPED.apply(sk.read_metadata(file)).identity


def test_it_pickles(file: Path) -> None:
    seen = pickle.loads(pickle.dumps(SWAPPED.apply(sk.read_metadata(file))))
    assert seen.leaves[0].path == ("b",)
    assert seen.version == sk.read_metadata(file).version


def test_files_of_one_schema_share_the_work(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(TABLE.slice(0, 50), other)
    first = SWAPPED.apply(sk.read_metadata(file))
    monkeypatch.setattr(room, "_rewrite", None)  # not called again, not for the bytes either
    second = SWAPPED.apply(sk.read_metadata(other))
    assert second.schema_group is first.schema_group
    assert len(second.footer) > 0


@pytest.mark.parametrize("route", ["slice", "pyarrow"])
@pytest.mark.parametrize("rows", [RowSet.all(200), RowSet.from_ranges(200, [3, 150], [9, 151])])
def test_both_ways_of_reading_go_by_the_new_names(file: Path, route: Any, rows: RowSet) -> None:
    wanted = pa.schema(
        {
            "a": pa.string(),
            "b": pa.int64(),
            "s.t": pa.struct({"x": pa.int64(), "new": pa.string()}),
            "M": pa.map_(pa.string(), pa.struct({"": pa.float64()})),
            "d": pa.string(),
            "l": pa.int8(),
        }
    )
    found = reader(file, SWAPPED, route).read(
        1, rows, Projection.of(wanted, [(name,) for name in wanted.names])
    )
    chosen = [200 + row for row in rows]
    given = TABLE.take(chosen).to_pylist()
    assert found.schema == wanted
    assert found.to_pylist() == [
        {
            "a": row["b"],
            "b": row["a"],
            "s.t": row["s"] and {"x": row["s"]["y"], "new": None},
            "M": [(key, {"": value["q"]}) for key, value in row["m"]],
            "d": row["d"],
            "l": None,
        }
        for row in given
    ]


def test_pruning_goes_by_the_new_names(file: Path) -> None:
    seen = SWAPPED.apply(sk.read_metadata(file))
    kept = sk.prune(file, sk.col("b") == 250, metadata=seen)
    assert kept.row_groups == [1]
    assert list(kept.rows) == list(range(240, 260))
    assert list(sk.prune(file, "a = 'text 012'", metadata=seen).rows) == list(range(20))
    # The field x was y, with falling values.
    nested = sk.prune(file, "`s.t`.x = -398", metadata=seen)
    assert list(nested.rows) == list(range(380, 400))


def test_a_field_that_is_supplied_is_not_taken_for_null(file: Path) -> None:
    own = sk.read_metadata(file)
    ref = ColumnRef(("later",), pa.int64())
    absent = row_group_facts(names({1: "a"}).apply(own), ref)
    assert absent.may_null.all()
    assert not absent.may_value.any()
    assert row_group_facts(names({1: "a"}, None, ("later",)).apply(own), ref).may_value.all()
    there = row_group_facts(names({1: "later"}, None, ("later",)).apply(own), ref)
    assert there.upper.tolist() == [199, 399]


# -- ids that the file doesn't have ------------------------------------------------------------


def bare(table: pa.Table, **options: Any) -> ParquetMetadata:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sk.read_metadata(io.BytesIO(sink.getvalue()))


def test_ids_by_path_and_then_in_the_schema() -> None:
    table = pa.table(
        {
            "a": [1],
            "s": [{"x": 1}],
            "l": [[{"p": 1}]],
            "m": pa.array([[("k", {"q": 2})]], TABLE.schema.field("m").type),
        }
    )
    plain = pa.table([column.cast(_without_ids(column.type)) for column in table.columns], table.schema.names)
    mapped = names(
        {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"},
        {("a",): 1, ("s",): 2, ("s", "x"): 3, ("l",): 4, ("l", "element", "p"): 5, ("m", "value", "q"): 6},
    )
    seen = mapped.apply(bare(plain))
    paths = [
        ("one",),
        ("two", "three"),
        ("four", "list", "element", "five"),
        ("#/m", "key_value", "key"),
        ("#/m", "key_value", "value", "six"),
    ]
    assert [leaf.path for leaf in seen.leaves] == paths
    assert [leaf.field_id for leaf in seen.leaves] == [1, 3, 5, None, 6]
    # A shell, which is all that an index keeps, has the ids too: it needs no mapping any more.
    shell = parse_footer(seen.shell(), "shell", None)
    later = names({1: "uno", 3: "tre"}).apply(shell)
    assert [leaf.path for leaf in later.leaves][:2] == [("uno",), ("#2", "tre")]


def _without_ids(type: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), pa.struct({"q": pa.float64()})) if pa.types.is_map(type) else type


def test_an_id_in_the_file_stands_over_one_by_path() -> None:
    table = pa.table([[1], [2]], schema=pa.schema([pa.field("old", pa.int64()), f("new", pa.int64(), 1)]))
    seen = names({1: "x"}, {("old",): 1}).apply(bare(table))
    assert [leaf.path for leaf in seen.leaves] == [("#/old",), ("x",)]


# -- odd footers -------------------------------------------------------------------------------


def element(name: str, repetition: int | None = None, children: int | None = None, **more: int) -> bytes:
    fields = {1: more.get("type"), 3: repetition, 5: children, 6: more.get("converted"), 9: more.get("id")}
    encoded = [
        (number, c.I32, b"\x01" if value == -1 else c.integer(value))
        for number, value in fields.items()
        if value is not None
    ]
    return c.structure(sorted([*encoded, (4, c.BINARY, c.binary(name.encode()))]))


def shell(*elements: bytes) -> ParquetMetadata:
    schema = (2, c.LIST, c.listing(c.STRUCT, elements))
    rows = [(3, c.I64, c.integer(0)), (4, c.LIST, c.list_head(c.STRUCT, 0))]
    return parse_footer(c.structure([(1, c.I32, c.integer(2)), schema, *rows]), "f", None)


def test_minus_one_is_no_id() -> None:
    own = shell(element("root", children=1), element("a", 1, type=1, id=-1))
    assert own.leaves[0].field_id == -1
    seen = names({7: "x"}, {("a",): 7}).apply(own)
    assert (seen.leaves[0].path, seen.leaves[0].field_id) == (("x",), 7)
    assert seen.arrow_schema.names == ["x"]


@pytest.mark.parametrize(
    ("outer", "inner", "new"),
    [
        ("my", "my_tuple", "other"),
        ("other", "my_tuple", "my"),
        ("my", "array", "other"),
        ("my", "bag", "other"),
        ("my", "my_tuple", "my"),
    ],
)
def test_old_lists_stay_what_they_were(outer: str, inner: str, new: str) -> None:
    own = shell(
        element("root", children=1),
        element(outer, 1, 1, converted=3, id=1),
        element(inner, 2, 1),
        element("x", 1, type=1, id=2),
    )
    seen = names({1: new, 2: "y"}).apply(own)
    before, after = own.arrow_schema.field(0).type, seen.arrow_schema.field(0).type
    assert seen.arrow_schema.names == [new]
    assert pa.types.is_struct(before.value_type) == pa.types.is_struct(after.value_type)
    if pa.types.is_struct(after.value_type):
        assert after.value_type.names == ["y"]
    else:
        assert seen.leaves[0].path[-1] == "x"


def test_a_repeated_item_and_a_list_of_lists() -> None:
    own = shell(
        element("root", children=2),
        element("a", 1, 1, converted=3, id=1),
        element("list", 2, 1),
        element("x", 2, type=1, id=2),
        element("b", 1, 1, converted=3, id=3),
        element("list", 2, 1),
        element("element", 1, 1, converted=3),
        element("list", 2, 1),
        element("element", 1, 2),
        element("u", 1, type=1, id=4),
        element("v", 1, type=1, id=5),
    )
    seen = names({1: "A", 2: "X", 3: "B", 4: "U", 5: "V"}).apply(own)
    assert str(seen.arrow_schema.field("A").type).count("struct<X:") == 1
    assert str(seen.arrow_schema.field("B").type).count("struct<U: int32, V: int32>") == 1


def test_many_columns_and_pairs(tmp_path: Path) -> None:
    schema = pa.schema(
        [f(f"c{n}", pa.int64(), n + 1) for n in range(300)], {f"k{n}": "v" * n for n in range(200)}
    )
    table = pa.table([[n] for n in range(300)], schema=schema)
    naming = names({n: f"n{n}" for n in range(1, 301)})
    seen = naming.apply(bare(table))
    assert seen.arrow_schema.names == [f"n{n}" for n in range(1, 301)]
    assert len(seen.key_value_metadata) == 200
    raw = b"".join((b"PAR1", seen.footer, len(seen.footer).to_bytes(4, "little"), b"PAR1"))
    told = pq.read_metadata(pa.BufferReader(raw))
    assert told.schema.names == seen.arrow_schema.names
    assert told.metadata.keys() == seen.key_value_metadata.keys()


def test_pairs_and_schemas_that_are_encoded_in_another_way() -> None:
    own = bare(pa.table([[1]], schema=pa.schema([f("a", pa.int64(), 1)])))
    naming = names({1: "x"})
    naming.apply(own)
    # Field numbers written out, not as steps from the one before: the same to every reader.
    key = b"\x18\x0cARROW:schema"
    odd = own.footer.replace(key, b"\x08\x02\x0cARROW:schema", 1)
    name = b"\x18\x01a\x55"
    odd = odd.replace(name, b"\x08\x08\x01a\x55", 1)
    assert (key in odd, name in odd, len(odd)) == (False, False, len(own.footer) + 2)
    seen = naming.apply(parse_footer(odd, "f", None))
    raw = b"".join((b"PAR1", seen.footer, len(seen.footer).to_bytes(4, "little"), b"PAR1"))
    told = pq.read_metadata(pa.BufferReader(raw))
    assert told.schema.names == ["x"]
    assert told.metadata == {}


def test_a_schema_that_cannot_be_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    own = shell(element("root", children=1), element("a", 1, type=1, id=1))
    monkeypatch.setattr(room, "_SCHEMA", 99)
    with pytest.raises(CorruptFileError, match="by field id"):
        names({1: "x"}).apply(own)
