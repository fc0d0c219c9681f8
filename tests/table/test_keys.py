"""Keys: codes of every type, and what users pass."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.table.keys import Keys, KeySet, last_of_each, repeated

from ._keyed import EVERY_TYPE, KEYS, SCHEMA, new_table, rows


def plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize("key", KEYS, ids=",".join)
def test_codes_sort_like_keys_and_differ_with_them(key: list[str]) -> None:
    keys = Keys("t", EVERY_TYPE.schema.empty_table().select(key).schema)
    codes = keys.encode(EVERY_TYPE)
    assert codes.type in (pa.int64(), pa.large_binary()) or pa.types.is_fixed_size_binary(codes.type)
    assert len(codes.unique()) == len(EVERY_TYPE)
    values = [tuple(map(plain, row.values())) for row in EVERY_TYPE.select(key).to_pylist()]
    order = range(len(values))
    assert sorted(order, key=codes.to_pylist().__getitem__) == sorted(order, key=values.__getitem__)
    # A slice is encoded by its own rows.
    assert keys.encode(EVERY_TYPE.slice(100, 50)).equals(codes.slice(100, 50))


@pytest.mark.parametrize("key", KEYS, ids=",".join)
def test_users_pass_keys_in_many_forms(key: list[str]) -> None:
    keys = Keys("t", EVERY_TYPE.select(key).schema)
    wanted = EVERY_TYPE.select(key).slice(7, 3)
    values = [tuple(row.values()) for row in wanted.to_pylist()]
    forms: list[Any] = [wanted, EVERY_TYPE.slice(7, 3), values, wanted.to_pylist(), wanted.to_struct_array()]
    if len(key) == 1:
        forms += [[value for (value,) in values], wanted.column(0)]
    for form in forms:
        assert keys.parse(form).equals(wanted), type(form)
    assert keys.parse(values[0] if len(key) > 1 else values[0][0]).equals(wanted.slice(0, 1))


def test_values_are_converted_to_the_type_of_the_key() -> None:
    one = Keys("t", pa.schema({"u": pa.uuid()}))
    number = uuid.UUID(int=5)
    assert one.parse(str(number)).equals(one.parse(number))
    day = Keys("t", pa.schema({"d": pa.date32()}))
    assert day.parse("2026-01-02").to_pylist() == [{"d": datetime.date(2026, 1, 2)}]
    assert Keys("t", pa.schema({"i": pa.int32()})).parse(pl.DataFrame({"i": [1, 2]})).num_rows == 2
    assert Keys("t", pa.schema({"i": pa.int32()})).parse(()).num_rows == 0


DAY, NOON = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 12)
OTHER_VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1.5),
    (pa.int64(), decimal.Decimal("2.9")),
    (pa.int64(), True),
    (pa.int64(), datetime.timedelta(microseconds=1)),
    (pa.int32(), 2**31),
    (pa.bool_(), 1),
    (pa.date32(), NOON),
    (pa.date32(), 5),
    (pa.timestamp("us"), 5),
    (pa.decimal128(6, 2), 1.504),
    (pa.decimal128(6, 2), decimal.Decimal("1.504")),
    (pa.time64("us"), NOON),
]


@pytest.mark.parametrize(("type", "value"), OTHER_VALUES)
def test_values_that_the_key_cannot_have_are_refused(type: pa.DataType, value: Any) -> None:
    """They are not rounded to the key of another row."""
    keys = Keys("t", pa.schema({"k": type}))
    for form in (value, [value], {"k": value}, [(value,)], pa.array([value]), pd.Series([value])):
        with pytest.raises(sk.SchemaError, match=r"column k: key values are not of type"):
            keys.parse(form)


def test_nanoseconds_are_not_cut_off() -> None:
    with pytest.raises(sk.SchemaError, match=r"column k: key values are not of type"):
        Keys("t", pa.schema({"k": pa.timestamp("us")})).parse(pd.Timestamp(1))


def test_equal_values_of_another_type_are_keys() -> None:
    cases: list[tuple[pa.DataType, Any, Any]] = [
        (pa.int64(), 2.0, 2),
        (pa.int32(), decimal.Decimal("2.00"), 2),
        (pa.int64(), np.int16(7), 7),
        (pa.decimal128(6, 2), 5, decimal.Decimal("5.00")),
        (pa.decimal128(6, 2), 1.1, decimal.Decimal("1.10")),
        (pa.date32(), pd.Timestamp(DAY), DAY),
        (pa.timestamp("us"), DAY, datetime.datetime(2026, 1, 2)),
        (pa.binary(), bytearray(b"ab"), b"ab"),
    ]
    for type, value, expected in cases:
        assert Keys("t", pa.schema({"k": type})).parse(value).to_pylist() == [{"k": expected}], value
    one = Keys("t", pa.schema({"k": pa.int64()}))
    for series in (pd.Series([3, 4]), pl.Series([3, 4]), np.array([3, 4]), pd.Index([3, 4]), range(3, 5)):
        assert one.parse(series)["k"].to_pylist() == [3, 4]


TWO = Keys("t", pa.schema({"a": pa.string(), "b": pa.int32()}))
MISTAKES: list[tuple[Keys, Any, str]] = [
    (TWO, ("a",), "('a',) is not a key"),
    (TWO, "a", "'a' is not a key"),
    (TWO, [3], "3 is not a key"),
    (TWO, [("a", 1, 2)], "is not a key"),
    (TWO, {"a": "x"}, "mapping with a is not a key"),
    (TWO, [("a", None)], "column b: key can't be NULL"),
    (TWO, pa.table({"a": ["x"]}), "column b: rows lack a key column"),
    (TWO, pa.array([1]), "an array of int64 is not a key"),
    (TWO, ("a", "x"), "column b"),
    (TWO, ("a", 2**40), "column b"),
]


@pytest.mark.parametrize(("keys", "given", "problem"), MISTAKES)
def test_mistakes_name_the_table_and_the_column(keys: Keys, given: Any, problem: str) -> None:
    with pytest.raises(sk.SkipstoneError, match=re.escape(problem)) as error:
        keys.parse(given)
    assert error.value.path == "t"
    assert error.value.hint


def test_the_key_is_that_of_the_identifier_fields(tmp_path: Path) -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "v": pa.float64()})
    table = new_table(tmp_path, schema=schema, key=["b", "a"])
    assert Keys.of(table).names == ["b", "a"]
    assert not any(table.schema.field(name).nullable for name in "ab")
    properties = table.table.properties
    assert properties["write.metadata.metrics.column.b"] == "full"
    assert [field.source_id for field in table.table.sort_order().fields] == [2, 1]
    plain_table = sk.catalog(tmp_path).create_table("db.plain", schema)
    with pytest.raises(sk.UsageError, match=r"db\.plain.*has no key") as error:
        Keys.of(plain_table)
    assert "key=" in str(error.value.hint)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (["x"], "no such key column"),
        (["id", "id"], "listed twice"),
        (["f"], "can't be a key"),
        ("id", None),
    ],
)
def test_creating_a_table_checks_its_key(tmp_path: Path, key: Any, problem: str | None) -> None:
    schema = SCHEMA.append(pa.field("f", pa.float64()))
    if problem is None:
        assert Keys.of(new_table(tmp_path, schema=schema, key=key)).names == ["id"]
        return
    with pytest.raises(sk.SkipstoneError, match=problem):
        new_table(tmp_path, schema=schema, key=key)


def test_version_1_tables_cannot_have_a_key(tmp_path: Path) -> None:
    with pytest.raises(sk.UsageError, match="format version 1"):
        new_table(tmp_path, properties={"format-version": "1"})


def test_a_set_of_keys_finds_others() -> None:
    few = KeySet(pa.array([5, 3, 9]))
    assert few.find(pa.array([9, 4, 5, 3])).tolist() == [2, -1, 0, 1]
    assert KeySet(pa.array([], pa.int64())).find(pa.array([1])).tolist() == [-1]
    codes = np.random.default_rng(0).permutation(200_000)
    many = KeySet(pa.array(codes))
    looked_up = pa.array([5, 199_999, 200_000, -1])
    at = many.find(looked_up)
    assert codes[at[:2]].tolist() == [5, 199_999]
    assert at[2:].tolist() == [-1, -1]
    assert many.find(pa.array([-7, -3])).tolist() == [-1, -1]
    assert many.find(pa.array([], pa.int64())).tolist() == []


@pytest.mark.parametrize("key", KEYS, ids="+".join)
def test_a_single_key_is_found(key: list[str]) -> None:
    codes = Keys("t", pa.schema([EVERY_TYPE.schema.field(name) for name in key])).encode(EVERY_TYPE)
    single = KeySet(codes.slice(7, 1))
    assert np.flatnonzero(single.find(codes) == 0).tolist() == [7]
    assert set(single.find(codes).tolist()) == {0, -1}
    assert single.find(codes.slice(0, 0)).tolist() == []


def test_last_versions_and_repeated_keys() -> None:
    codes = pa.array([1, 2, 1, 3, 2, 1])
    assert last_of_each(codes).tolist() == [3, 4, 5]
    assert repeated(codes).tolist() == [2, 4, 5]
    keys = Keys("t", pa.schema({"id": pa.int64()}))
    assert keys.last_versions(rows([1, 2, 1])).tolist() == [1, 2]
    assert keys.text(rows(range(5))) == "id = 0; id = 1; id = 2; 2 more"


def test_null_keys_are_refused() -> None:
    keys = Keys("t", pa.schema({"id": pa.int64()}))
    with pytest.raises(sk.SchemaError, match="1 NULL value") as error:
        keys.encode(pa.table({"id": pa.array([1, None])}))
    assert error.value.column == "id"
