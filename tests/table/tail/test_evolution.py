"""Schemas that change while rows are unflushed: fields are followed by id, at every level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

import skipstone as sk
from skipstone.table.tail.evolve import adapt

Step = Callable[[Any], Any]
PAIR = pa.struct({"a": pa.int32(), "b": pa.int32()})
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("st", PAIR),
        ("l", pa.list_(PAIR)),
        ("m", pa.map_(pa.struct({"k": pa.int32(), "n": pa.int32()}), PAIR)),
        ("deep", pa.struct({"l": pa.list_(pa.map_(pa.string(), pa.struct({"in": PAIR})))})),
    ]
)
PAIRS = ("st", "l.element", "m.value", "deep.l.element.value.in")
"""Every level at which a struct can be."""


def row(number: int) -> pa.Table:
    """The same values, under any key, beside NULLs at every level."""
    pair = {"a": 5, "b": 6}
    values: dict[str, Any] = {
        "st": pair,
        "l": [pair, None, {"a": None, "b": 7}],
        "m": [({"k": 1, "n": 2}, pair), ({"k": 3, "n": 4}, None)],
        "deep": {"l": [[("x", {"in": pair}), ("y", None)], [], None]},
    }
    rows = [{"id": number, **values}, {"id": -number}]
    return pa.Table.from_pylist(rows, SCHEMA)


def everywhere(make: Callable[[Any, str], Any]) -> Step:
    """A change of the structs at all levels."""
    return lambda change: [make(change, path) for path in PAIRS]


def path_to(path: str, name: str) -> tuple[str, ...]:
    return (*path.split("."), name)


rename = everywhere(lambda change, at: change.rename_column(path_to(at, "a"), "new"))
drop = everywhere(lambda change, at: change.delete_column(path_to(at, "a")))
add = everywhere(lambda change, at: change.add_column(path_to(at, "a"), LongType()))
CHANGES: dict[str, Sequence[Step]] = {
    "renamed": [rename],
    "exchanged names": [
        rename,
        everywhere(lambda change, at: change.rename_column(path_to(at, "b"), "a")),
        everywhere(lambda change, at: change.rename_column(path_to(at, "new"), "b")),
    ],
    "dropped": [drop],
    "dropped and added again": [drop, add],
    "all replaced": [
        everywhere(lambda change, at: change.add_column(path_to(at, "c"), StringType())),
        drop,
        everywhere(lambda change, at: change.delete_column(path_to(at, "b"))),
    ],
    "widened and renamed": [
        everywhere(lambda change, at: change.update_column(path_to(at, "a"), LongType())),
        rename,
    ],
    "moved": [everywhere(lambda change, at: change.move_first(path_to(at, "b")))],
    "renamed above": [
        lambda change: [change.rename_column(at, "new") for at in ("st", "deep.l", "deep.l.element.value.in")]
    ],
    "all columns dropped but one": [
        lambda change: [change.delete_column(at) for at in ("st", "l", "m", "deep")],
        lambda change: change.add_column("st", LongType()),
    ],
}


def rows_of(table: sk.Table) -> dict[int, Any]:
    return {found.pop("id"): found for found in table.scan().to_arrow().to_pylist()}


def evolve(catalog: sk.Catalog, steps: Sequence[Step]) -> None:
    for step in steps:
        with catalog.open("db.t").table.update_schema(allow_incompatible_changes=True) as change:
            step(change)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("recovers", [False, True], ids=["memtable", "log"])
@pytest.mark.parametrize("steps", CHANGES.values(), ids=list(CHANGES))
def test_unflushed_rows_are_those_of_a_commit(steps: Sequence[Step], recovers: bool, tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "w")
    table = catalog.create_table("db.t", SCHEMA, key=["id"])
    table.upsert(row(1))
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert(row(2))
    if recovers:
        writer.close(flush=False)
    evolve(catalog, steps)
    if recovers:
        table = catalog.open("db.t")
        writer = table.writer(sync="off", flush_seconds=None)
        before = rows_of(table)
        assert (before[2], before[-2]) == (before[1], before[-1])
    else:
        # The table object has the former schema until it is refreshed.
        writer.upsert(row(3))
        table.refresh()
        before = rows_of(table)
        assert (before[3], before[-3]) == (before[1], before[-1])
    writer.close()
    after = rows_of(catalog.open("db.t"))
    assert {key: after[abs(key) // key] for key in after} == after
    assert len(after) == 4 if recovers else 6
    assert after.items() >= before.items()


def test_keys_of_a_map_are_followed_by_id() -> None:
    """Other libraries refuse to change them, but a table can have been changed by any."""

    def schema(first: str, second: str) -> pa.Schema:
        fields = [
            pa.field(name, pa.int32(), metadata={"PARQUET:field_id": str(number)})
            for number, name in ((3, first), (4, second))
        ]
        return pa.schema([pa.field("m", pa.map_(pa.struct(fields), pa.int32()), metadata=own)])

    own = {"PARQUET:field_id": "1"}
    rows = pa.table({"m": [[({"k": 1, "n": 2}, 5)], None]}, schema("k", "n"))
    found = adapt(rows.slice(0), schema("n", "other"), "db.t")
    assert found.schema.equals(schema("n", "other"))
    assert found["m"].to_pylist() == [[({"n": 1, "other": 2}, 5)], None]
    assert adapt(rows.slice(1), schema("n", "other"), "db.t")["m"].to_pylist() == [None]


@pytest.mark.parametrize("recovers", [False, True], ids=["memtable", "log"])
def test_a_key_that_is_renamed(recovers: bool, tmp_path: Path) -> None:
    """Rows and deletes are still those of the same keys."""
    catalog = sk.catalog(tmp_path / "w")
    schema = pa.schema({"id": pa.int32(), "k": pa.string(), "v": pa.int64()})
    table = catalog.create_table("db.t", schema, key=["k", "id"])
    table.append(pa.table({"id": [1, 2, 3], "k": ["a", "b", "c"], "v": [10, 20, 30]}, schema))
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert(pa.table({"id": [1, 4], "k": ["a", "d"], "v": [11, 40]}, schema))
    writer.delete(keys=[("b", 2)])
    if recovers:
        writer.close(flush=False)
    evolve(
        catalog,
        [
            lambda change: change.rename_column("id", "old"),
            lambda change: change.rename_column("k", "id"),
            lambda change: change.update_column("old", LongType()),
            lambda change: change.move_first("v"),
        ],
    )
    if recovers:
        table = catalog.open("db.t")
        writer = table.writer(sync="off", flush_seconds=None)
        assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [11, 30, 40]
    else:
        assert sorted(table.refresh().scan().to_arrow()["v"].to_pylist()) == [11, 30, 40]
    writer.close()
    assert sorted(catalog.open("db.t").scan().to_arrow().to_pylist(), key=lambda one: one["old"]) == [
        {"v": 11, "old": 1, "id": "a"},
        {"v": 30, "old": 3, "id": "c"},
        {"v": 40, "old": 4, "id": "d"},
    ]


@pytest.mark.parametrize("recovers", [False, True], ids=["memtable", "log"])
def test_another_key_is_an_error(recovers: bool, tmp_path: Path) -> None:
    """Rows of distinct old keys can have the same new key; nothing is lost."""
    catalog = sk.catalog(tmp_path / "w")
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("id", "k")])
    table = catalog.create_table("db.t", schema, key=["id"])
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert(pa.table({"id": [1, 2], "k": [7, 7]}))
    evolve(catalog, [lambda change: change.set_identifier_fields("k")])
    with pytest.raises(sk.SchemaError, match="unflushed rows were written with the key id") as caught:
        writer.flush()
    assert "set the table's identifier fields to id again" in str(caught.value.hint)
    if recovers:
        writer.close(flush=False)
        with pytest.raises(sk.SchemaError, match="unflushed rows were written with the key id"):
            catalog.open("db.t").writer()
    evolve(catalog, [lambda change: change.set_identifier_fields("id")])
    if recovers:
        catalog.open("db.t").writer().close()
    else:
        writer.close()
    assert catalog.open("db.t").scan().count() == 2


def value_of(kind: pa.DataType, number: int) -> Any:
    """A value of any type; no two columns of a struct have the same one."""
    if pa.types.is_struct(kind):
        return {one.name: value_of(one.type, number + at) for at, one in enumerate(kind.fields)}
    if pa.types.is_map(kind):
        return [(value_of(kind.key_type, number), value_of(kind.item_type, number))]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value_of(kind.value_type, number)]
    return str(number) if pa.types.is_string(kind) or pa.types.is_large_string(kind) else number


@pytest.mark.sampled(7)
@pytest.mark.parametrize("moves", ["refresh", "flush"])
@pytest.mark.parametrize("steps", CHANGES.values(), ids=list(CHANGES))
def test_names_mean_the_columns_of_the_table_object(
    steps: Sequence[Step], moves: str, tmp_path: Path
) -> None:
    """An open writer follows its table object to another schema; earlier calls are followed by id."""
    catalog = sk.catalog(tmp_path / "w")
    table = catalog.create_table("db.t", SCHEMA, key=["id"])
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert(row(2))
    evolve(catalog, steps)
    if moves == "flush":
        writer.flush()
    else:
        table.refresh()
    earlier = rows_of(table)
    new = {name: value_of(table.schema.field(name).type, 10) for name in table.schema.names}
    for number in (3, 4):
        writer.upsert(pa.Table.from_pylist([{**new, "id": number}], table.schema))
    del new["id"]
    expected = {**earlier, 3: new, 4: new}
    assert rows_of(table) == expected
    writer.close(flush=False)
    # Each call is in the log under its own schema.
    table = catalog.open("db.t")
    writer = table.writer(sync="off", flush_seconds=None)
    assert rows_of(table) == expected
    writer.close()
    assert rows_of(catalog.open("db.t")) == expected


@pytest.mark.parametrize("flushes", [False, True], ids=["unflushed", "flushed"])
def test_columns_that_get_the_names_of_others(flushes: bool, tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "w")
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "t": pa.string()})
    table = catalog.create_table("db.t", schema, key=["id"])
    with table.writer(sync="off", flush_seconds=None) as writer:
        writer.upsert([{"id": 1, "s": "S", "t": "T"}])
        evolve(catalog, [lambda change: change.delete_column("s")])
        evolve(catalog, [lambda change: [change.add_column(one, StringType()) for one in ("s", "z")]])
        if flushes:
            writer.flush()
        table.refresh()
        writer.upsert([{"id": 2, "s": "S", "t": "T", "z": "Z"}])
        assert table.get(2) == {"id": 2, "s": "S", "t": "T", "z": "Z"}
        assert table.get(1) == {"id": 1, "s": None, "t": "T", "z": None}
        with pytest.raises(sk.SchemaError, match="no such column"):
            writer.upsert([{"id": 2, "other": 1}])
    assert rows_of(catalog.open("db.t")) == {
        1: {"s": None, "t": "T", "z": None},
        2: {"s": "S", "t": "T", "z": "Z"},
    }


def test_a_composite_key_whose_columns_are_renamed_and_moved(tmp_path: Path) -> None:
    """Later calls replace and delete the rows of earlier ones, in the memtables and in the flush."""
    catalog = sk.catalog(tmp_path / "w")
    schema = pa.schema({"id": pa.int32(), "k": pa.string(), "v": pa.int64()})
    table = catalog.create_table("db.t", schema, key=["k", "id"])
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert([{"id": one, "k": "a", "v": one} for one in (1, 2, 3)])
    evolve(
        catalog,
        [
            lambda change: change.rename_column("id", "old"),
            lambda change: change.rename_column("k", "id"),
            lambda change: change.move_first("v"),
        ],
    )
    table.refresh()
    writer.delete(keys=pa.table({"old": pa.array([2], pa.int32()), "id": ["a"]}))
    writer.upsert([{"old": 3, "id": "a", "v": 30}])
    expected = [{"v": 1, "old": 1, "id": "a"}, {"v": 30, "old": 3, "id": "a"}]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda one: one["old"]) == expected
    writer.close()
    assert sorted(catalog.open("db.t").scan().to_arrow().to_pylist(), key=lambda one: one["old"]) == expected


def test_a_key_of_another_type_ends_the_use_of_a_writer(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "w")
    table = catalog.create_table("db.t", pa.schema({"id": pa.int32(), "v": pa.int64()}), key=["id"])
    writer = table.writer(sync="off", flush_seconds=None)
    writer.upsert([{"id": 1, "v": 1}])
    evolve(catalog, [lambda change: change.update_column("id", LongType())])
    table.refresh()
    for call in (lambda: writer.upsert([{"id": 2, "v": 2}]), lambda: writer.delete(keys=[1])):
        with pytest.raises(sk.ConflictError, match="schema was changed") as caught:
            call()
        assert "open it again" in str(caught.value.hint)
    writer.close()
    with table.writer(sync="off") as writer:
        writer.upsert([{"id": 2, "v": 2}])
    assert rows_of(catalog.open("db.t")) == {1: {"v": 1}, 2: {"v": 2}}


ROWS = [{"id": 0, "s": "S2", "t": "T2"}, {"id": 5, "s": "S5", "t": "T5"}]
WRITES: dict[str, Callable[[sk.Table], Any]] = {
    "upsert": lambda table: table.upsert(ROWS),
    "append": lambda table: table.append(ROWS[1:]),
    "update": lambda table: table.update("s = 'S'", {"t": "'T2'"}),
    "delete": lambda table: table.delete("s = 'S'"),
    "merge": lambda table: table.merge(ROWS[:1], when_matched="update"),
}


@pytest.mark.parametrize("unflushed", [False, True], ids=["empty", "unflushed"])
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_unflushed_rows_do_not_hide_a_change_of_the_schema(
    write: Callable[[sk.Table], Any], unflushed: bool, tmp_path: Path
) -> None:
    """Other writes flush the tail first, which moves the table object; their names are of the time before."""
    catalog = sk.catalog(tmp_path / "w")
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "t": pa.string()})
    table = catalog.create_table("db.t", schema, key=["id"])
    token = {"token": "once"}
    table.append([{"id": 0, "s": "S", "t": "T"}], **token)
    with table.writer(sync="off", flush_seconds=None) as writer:
        if unflushed:
            writer.upsert([{"id": 1, "s": "a", "t": "b"}])
        for before, after in (("s", "x"), ("t", "s"), ("x", "t")):
            evolve(catalog, [lambda change, names=(before, after): change.rename_column(*names)])
        with pytest.raises(sk.ConflictError, match="schema was changed by another commit"):
            write(table)
        assert table.append([{"id": 0, "s": "S", "t": "T"}], **token).repeated
    expected = {0: {"s": "T", "t": "S"}, 1: {"s": "b", "t": "a"}}
    assert rows_of(catalog.open("db.t")) == (expected if unflushed else {0: expected[0]})
    write(table.refresh())
