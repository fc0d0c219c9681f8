from __future__ import annotations

import datetime as dt
import math
import pickle
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import CorruptFileError, FileError, SchemaError, UsageError
from skipstone.iceberg.deletes import equality
from skipstone.iceberg.deletes.equality import DeleteKeys, EqualityDeletes
from skipstone.iceberg.deletes.match import DeleteFile
from skipstone.store.cache import Cache
from skipstone.store.source import BufferSource, Source

NAN2 = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]  # another NaN, negative


def marked(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(number)})


class Shelf:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.opened = 0

    def __call__(self, file: DeleteFile) -> Source:
        self.opened += 1
        return BufferSource(self.files[file.path], file.path)

    def write(self, name: str, table: pa.Table, sequence: int = 5, **options: Any) -> DeleteFile:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        self.files[name] = sink.getvalue().to_pybytes()
        return DeleteFile(name, len(self.files[name]), "PARQUET", len(table), sequence)


def keys_table(*columns: pa.Array) -> pa.Table:
    fields = [marked(pa.field(f"c{n}", column.type), n) for n, column in enumerate(columns, 1)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def loaded(shelf: Shelf, files: Sequence[DeleteFile], types: Sequence[pa.DataType]) -> DeleteKeys:
    columns = tuple((f"c{n}",) for n in range(1, len(types) + 1))
    made = EqualityDeletes(tuple(range(1, len(types) + 1)), columns, tuple(types), tuple(files))
    return pickle.loads(pickle.dumps(made)).load(shelf, threads=2)


def masked(deletes: Sequence[pa.Array], rows: Sequence[pa.Array], types: Sequence[Any] = ()) -> list[bool]:
    shelf = Shelf()
    file = shelf.write("f", keys_table(*deletes), row_group_size=2)
    keys = loaded(shelf, [file], types or [row.type for row in rows])
    table = pa.Table.from_arrays(list(rows), names=[f"c{n}" for n in range(1, len(rows) + 1)])
    return keys.mask(table).tolist()


UUIDS = [uuid.UUID(int=n).bytes for n in (1, 2, 3)]
STAMPS = [dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 1, 1)]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, True]),
    "int": (pa.int32(), [-5, 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "float": (pa.float32(), [-1.5, 0.0, math.inf]),
    "double": (pa.float64(), [-1.5, 0.1, -math.inf]),
    "narrow decimal": (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("9999999.99")]),
    "wide decimal": (pa.decimal128(38, 4), [Decimal("-1.25"), Decimal(0), Decimal("9" * 34 + ".0001")]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999_999)]),
    "timestamp": (pa.timestamp("us"), STAMPS),
    "timestamptz": (pa.timestamp("us", "UTC"), [s.replace(tzinfo=dt.UTC) for s in STAMPS]),
    "timestamp_ns": (pa.timestamp("ns"), [*STAMPS[:2], dt.datetime(2200, 1, 1)]),
    "string": (pa.string(), ["", "a", "äöü" * 50]),
    "large string": (pa.large_string(), ["", "a", "a\0"]),
    "binary": (pa.large_binary(), [b"", b"\0", b"\xff\0"]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0", b"\xff\xff\xff"]),
    "uuid": (pa.uuid(), UUIDS),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_equals_itself_only(name: str) -> None:
    type, values = TYPES[name]
    array = pa.array([*values, None], type)
    for at, value in enumerate([*values, None]):
        expected = [other == value for other in [*values, None]]
        assert masked([array[at : at + 1]], [array]) == expected
        if not isinstance(type, pa.BaseExtensionType):
            # With another column at its side the key is made of bytes.
            twos = pa.array([2] * 4, pa.int64())
            assert masked([array[at : at + 1], twos[:1]], [array, twos]) == expected


def test_floats_are_equal_as_java_compares_them() -> None:
    for type in (pa.float64(), pa.float32()):
        rows = pa.array([0.0, -0.0, math.nan, NAN2, None, 1.0], type)
        assert masked([pa.array([0.0], type)], [rows]) == [True, False, False, False, False, False]
        assert masked([pa.array([-0.0], type)], [rows]) == [False, True, False, False, False, False]
        for nan in (math.nan, NAN2):
            assert masked([pa.array([nan], type)], [rows]) == [False, False, True, True, False, False]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (pa.int32(), pa.int64(), 7),
        (pa.float32(), pa.float64(), 0.1),
        (pa.decimal128(9, 2), pa.decimal128(30, 2), Decimal("1.25")),
        (pa.decimal128(9, 2), pa.decimal128(12, 2), Decimal("1.25")),
        (pa.string(), pa.large_string(), "x"),
        (pa.binary(), pa.large_binary(), b"x"),
        (pa.binary(16), pa.uuid(), UUIDS[0]),
        (pa.uuid(), pa.binary(16), UUIDS[0]),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), STAMPS[1]),
        (pa.timestamp("ms"), pa.timestamp("us"), dt.datetime(2024, 1, 1)),
        (pa.date32(), pa.timestamp("us"), dt.date(2024, 1, 1)),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "x"),
    ],
    ids=str,
)
def test_types_that_were_widened_since(old: pa.DataType, new: pa.DataType, value: Any) -> None:
    deletes = pa.array([value, None], old)
    rows = pa.array([value, None], old)
    if not any(isinstance(type, pa.BaseExtensionType) for type in (old, new)):
        rows = rows.cast(new)
    assert masked([deletes[:1]], [rows], [new]) == [True, False]
    assert masked([deletes[1:]], [rows], [new]) == [False, True]


def test_a_type_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(SchemaError, match=r"f, column c1: can't compare equality deletes of type string"):
        masked([pa.array(["x"])], [pa.array([1])], [pa.int64()])
    with pytest.raises(SchemaError, match="can't be compared"):
        masked([pa.nulls(1)], [pa.nulls(1)])
    with pytest.raises(CorruptFileError, match="no column with field id 1"):
        masked([pa.array([[1]])], [pa.array([[1]])])


@pytest.mark.parametrize(
    ("deletes", "type"),
    [
        (pa.array(["1"]), pa.int64()),
        (pa.array([True]), pa.int64()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1], pa.timestamp("us")), pa.int64()),
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1], pa.int32()), pa.float64()),
        (pa.array([1.0], pa.float64()), pa.float32()),
        (pa.array([1]), pa.string()),
        (pa.array([b"x"]), pa.string()),
        (pa.array([1], pa.int32()), pa.decimal128(20, 0)),
        (pa.array([Decimal("1.5")], pa.decimal128(9, 1)), pa.decimal128(12, 2)),
        (pa.array([Decimal("1.5")], pa.decimal128(12, 1)), pa.decimal128(9, 1)),
    ],
    ids=str,
)
def test_a_type_that_iceberg_does_not_promote_is_an_error(deletes: pa.Array, type: pa.DataType) -> None:
    for values in (deletes, pa.nulls(1, deletes.type)):
        with pytest.raises(SchemaError, match=r"f, column c1: can't compare equality deletes of type"):
            masked([values], [pa.nulls(1, type)], [type])


def test_keys_inside_structs_and_extra_columns() -> None:
    inner = pa.struct([marked(pa.field("x", pa.int64()), 7), marked(pa.field("y", pa.string()), 8)])
    form = pa.schema([marked(pa.field("s", inner), 6), marked(pa.field("other", pa.int64()), 9)])
    shelf = Shelf()
    rows = [{"s": {"x": 1, "y": "a"}, "other": 5}, {"s": None, "other": 6}]
    file = shelf.write("f", pa.Table.from_pylist(rows, form))
    columns = (("renamed", "y"), ("renamed", "deep", "x"))
    made = EqualityDeletes((8, 7), columns, (pa.string(), pa.int64()), (file,))
    data = [
        {"y": "a", "deep": {"x": 1}},
        {"y": "a", "deep": {"x": 2}},
        {"y": "a", "deep": None},
        {"y": None, "deep": None},
        None,
        {"y": None, "deep": {"x": None}},
    ]
    type = pa.struct([("y", pa.string()), ("deep", pa.struct([("x", pa.int64())]))])
    table = pa.table({"renamed": pa.chunked_array([pa.array(data[:2], type), pa.array(data[2:], type)])})
    assert made.load(shelf).mask(table).tolist() == [True, False, False, True, True, True]


def test_borders_between_columns_are_kept() -> None:
    deletes = [pa.array(["ab", "", None]), pa.array(["c", "abc", "x"])]
    rows = [pa.array(["ab", "a", "abc", "", "", None]), pa.array(["c", "bc", "", "abc", "x", "x"])]
    assert masked(deletes, rows) == [True, False, False, True, False, True]


VALUE = st.sampled_from([None, 0, 1, 2, -1])
TEXT = st.sampled_from([None, "", "a", "aa", "b"])
FLOAT = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
ROW = st.tuples(VALUE, TEXT, FLOAT)
MADE = (pa.int64(), pa.string(), pa.float64())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both = math.isnan(one) and math.isnan(other)
        return both or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return bool(one == other)


@given(
    st.lists(st.tuples(st.lists(ROW, max_size=6), st.integers(1, 4)), min_size=1, max_size=3),
    st.lists(ROW, max_size=12),
    st.sets(st.integers(0, 2), min_size=1),
    st.sampled_from([None, 0, 1, 2, 3, 4]),
    st.booleans(),
)
def test_the_answer_is_that_of_two_loops(
    files: list[tuple[list[Any], int]], rows: list[Any], used: set[int], sequence: int | None, many: bool
) -> None:
    chosen = sorted(used)

    def arrays(some: list[Any]) -> list[pa.Array]:
        return [pa.array([row[at] for row in some], MADE[at]) for at in chosen]

    shelf = Shelf()
    notes = [shelf.write(f"f{n}", keys_table(*arrays(some)), age) for n, (some, age) in enumerate(files)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equality, "_FEW", 0 if many else 4)
        keys = loaded(shelf, notes, [MADE[at] for at in chosen])
        table = pa.Table.from_arrays(arrays(rows), names=[f"c{n}" for n in range(1, len(chosen) + 1)])
        found = keys.mask(table, sequence).tolist()
    expected = [
        any(
            (sequence is None or age > sequence) and all(_same(row[at], key[at]) for at in chosen)
            for some, age in files
            for key in some
        )
        for row in rows
    ]
    assert found == expected


def test_an_empty_file_deletes_nothing() -> None:
    none = pa.array([], pa.int64())
    assert masked([none], [pa.array([1, None])]) == [False, False]
    assert (
        masked([none, pa.array([], pa.string())], [pa.array([1, None]), pa.array(["a", None])]) == [False] * 2
    )


def test_the_same_set_is_loaded_once() -> None:
    shelf = Shelf()
    file = shelf.write("f", keys_table(pa.array([1, 2])))
    cache: Cache[Any, Any] = Cache(10**6)

    def made() -> EqualityDeletes:
        return EqualityDeletes((1,), (("a",),), (pa.int64(),), (file,))

    assert made().load(shelf, cache=cache) is made().load(shelf, cache=cache)
    assert shelf.opened == 1
    assert 0 < cache.weight < 1_000


def test_what_is_missing_is_named() -> None:
    shelf = Shelf()
    file = shelf.write("f", keys_table(pa.array([1])))
    with pytest.raises(CorruptFileError, match="f: delete file has no column with field id 9"):
        EqualityDeletes((9,), (("a",),), (pa.int64(),), (file,)).load(shelf)
    keys = EqualityDeletes((1,), (("a", "b"),), (pa.int64(),), (file,)).load(shelf)
    with pytest.raises(UsageError, match=r"column a\.b"):
        keys.mask(pa.table({"b": [1]}))
    avro = DeleteFile("f.avro", 1, "AVRO", 1, 1)
    with pytest.raises(FileError, match="format is AVRO"):
        EqualityDeletes((1,), (("a",),), (pa.int64(),), (avro,)).load(shelf)


@pytest.mark.parametrize("text", [False, True])
def test_many_keys_are_built_once_and_probed_often(text: bool) -> None:
    rng = np.random.default_rng(3)
    values = pa.array(rng.integers(0, 10**6, 50_000))
    values = values.cast(pa.string()) if text else values
    shelf = Shelf()
    keys = loaded(shelf, [shelf.write("f", keys_table(values))], [values.type])
    deleted = set(values.to_pylist())
    for _ in range(20):
        rows = pa.array(rng.integers(0, 10**6, 1_000))
        rows = rows.cast(pa.string()) if text else rows
        expected = [value in deleted for value in rows.to_pylist()]
        assert keys.mask(pa.table({"c1": rows})).tolist() == expected
    assert len(keys) == len(deleted)
