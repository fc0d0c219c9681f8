"""Files of a source as rows of one schema: CSV, JSON, ORC and Parquet, read without Spark."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import pickle
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import SkipstoneError
from skipstone.lake.append import Append
from skipstone.store.store import open_root
from skipstone.write.readers import FileSource, format_of, open_files
from skipstone.write.sources import as_schema, find_sources


def source(root: Path, texts: Mapping[str, str | bytes] | None = None, **options: Any) -> FileSource:
    for name, text in (texts or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    store = open_root(root)
    entries = store.list()
    schema = as_schema(options.pop("schema", None))
    return open_files(store, format_of(entries[0].key) or "csv", entries, schema=schema, **options)


def rows(found: FileSource) -> list[dict[str, Any]]:
    batches = list(found.batches())
    assert all(batch.schema.equals(found.schema) for batch in batches)
    assert list(pickle.loads(pickle.dumps(found)).batches()) == batches
    return [row for batch in batches for row in batch.to_pylist()]


def test_csv_types(tmp_path: Path) -> None:
    text = (
        "whole,large,real,flag,day,time,zoned,zip,text,none\n"
        "1,123456789012345678901,1,true,2026-01-01,2026-01-01 10:00:00,2026-01-01T10:00:00+02:00,01234,"
        '"a,\nb",\n'
        '-2,5,2.5,FALSE,2026-01-02,2026-01-02 10:00:00.5,2026-01-01T10:00:00Z,99999,"",\n'
        ",,,,,,,,,\n"
    )
    found = source(tmp_path, {"a.csv": text})
    assert [str(type) for type in found.schema.types] == [
        *("int64", "decimal128(38, 0)", "double", "bool", "date32[day]"),
        *("timestamp[us]", "timestamp[us, tz=UTC]", "string", "string", "string"),
    ]
    first, second, third = rows(found)
    assert first["large"] == Decimal(123456789012345678901)
    assert first["zoned"].hour == 8
    assert (first["zip"], first["text"], second["text"], second["flag"]) == ("01234", "a,\nb", "", False)
    assert set(third.values()) == {None}


def test_csv_text_that_looks_like_numbers(tmp_path: Path) -> None:
    digits = "9" * 39
    header = "zip,phone,hex,digits,big,mixed,code\n"
    text = f"00501,+4930123,0x1F,{digits},{2**64},1.5,1e5\n1,2,3,4,5,{2**64},7\n"
    found = source(tmp_path, {"a.csv": header + text})
    assert [str(type) for type in found.schema.types] == [
        *["string"] * 4,
        "decimal128(38, 0)",
        "string",
        "double",
    ]
    assert rows(found)[0]["mixed"] == "1.5"
    # A file that ends after its header has no rows.
    assert rows(source(tmp_path / "b", {"b.csv": "id,name"})) == []


@pytest.mark.parametrize(
    ("first", "second", "type"),
    [
        (str(2**53 + 1), "1.5", "string"),
        (str(2**53), "1.5", "double"),
        (str(2**53 + 1), "5", "int64"),
        (str(2**53 + 1), str(2**64), "decimal128(38, 0)"),
        ("12345678901234567.89", "1", "string"),
        ("0.1234567890123456789", "1", "string"),
        ("0.10000000000000001", "-73.98765432109876", "double"),
        ("1.50000000000000000000", "4.9e-324", "double"),
        ("1e400", "1", "string"),
        ("1e-400", "1", "string"),
        ("Nan", "Inf", "string"),
        ("NaN", "1", "double"),
        (" 1", "2", "string"),
    ],
)
def test_csv_numbers_keep_their_digits(tmp_path: Path, first: str, second: str, type: str) -> None:
    header = "x,y\n"
    one = source(tmp_path / "one", {"a.csv": f"{header}{first},\n{second},\n"})
    two = source(tmp_path / "two", {"a.csv": f"{header}{first},\n", "b.csv": f"{header}{second},\n"})
    assert str(one.schema.field("x").type) == str(two.schema.field("x").type) == type
    kind = {"string": str, "double": float}.get(type, int)
    for found in (one, two):
        values = [str(value) for batch in found.batches() for value in batch.column("x").to_pylist()]
        assert values == [str(kind(first)), str(kind(second))]


@pytest.mark.parametrize(
    ("type", "valid", "text"),
    [
        (pa.int64(), "-7", "01069"),
        (pa.int64(), "7", " 7"),
        (pa.int32(), "7", "+49"),
        (pa.bool_(), "True", "1"),
        (pa.float64(), "1e5", str(2**53 + 1)),
        (pa.float64(), "0.30000000000000004", "0.1234567890123456789"),
        (pa.float64(), "inf", "1e400"),
        (pa.decimal128(9, 2), "1.5", "007"),
    ],
)
def test_later_csv_values_are_exact_in_the_types_of_the_lake(
    tmp_path: Path, type: pa.DataType, valid: str, text: str
) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"x": pa.nulls(1, type)}), tmp_path / "lake" / "a.parquet")
    lake = sk.open(tmp_path / "lake")
    good = source(tmp_path / "good", {"a.csv": f"x,y\n{valid},\n,\n"}, lake=lake)
    assert (good.schema.field("x").type, rows(good)[1]["x"]) == (type, None)
    found = source(tmp_path / "bad", {"a.csv": f"x,y\n{valid},\n,\n{text},\n"}, lake=lake)
    with pytest.raises(
        SkipstoneError, match=rf"line 4, column x: '{re.escape(text)}' is not a valid .*new lake"
    ):
        rows(found)


def test_a_chosen_type_accepts_leading_zeros(tmp_path: Path) -> None:
    assert rows(source(tmp_path, {"a.csv": "x\n007\n"}, schema="x long")) == [{"x": 7}]


def test_csv_columns_go_by_name(tmp_path: Path) -> None:
    texts = {
        "a.csv": "id,name\n1,a\n",
        "b.csv": "more,id\n2.5,2\n",
        "c.csv": "name,id\nc,3\n",
        "d.csv": "name,id\n",
    }
    every = [
        {"id": 1, "name": "a", "more": None},
        {"id": 2, "name": None, "more": 2.5},
        {"id": 3, "name": "c", "more": None},
    ]
    assert rows(source(tmp_path, texts)) == every
    for names in (("name", "id"), ("more",), ("id",), ("more", "name", "id")):
        types = {"id": "long", "name": "string", "more": "double"}
        schema = ", ".join(f"{name} {types[name]}" for name in names)
        assert rows(source(tmp_path, schema=schema)) == [{name: row[name] for name in names} for row in every]
    with pytest.raises(SkipstoneError, match=r"column nam: no file has this column \(did you mean name"):
        source(tmp_path, schema="id long, nam string")


def test_csv_without_header(tmp_path: Path) -> None:
    header = {"header": "false"}
    found = source(tmp_path, {"a.csv": "1,a\n2,b\n"}, schema="id int, name string", options=header)
    assert rows(found) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    with pytest.raises(SkipstoneError, match=r"without a header need a schema"):
        source(tmp_path, options=header)
    with pytest.raises(SkipstoneError, match=r"a\.csv, line 1: expected 3 columns, got 2"):
        rows(source(tmp_path, schema="id int, name string, x int", options=header))


@pytest.mark.parametrize(
    ("name", "body", "options"),
    [
        ("a.tsv", b"id\tname\n1\ta;b\n", {}),
        ("a.csv", b"id;name\n1;'a;b'\n", {"sep": ";", "quote": "'"}),
        ("a.csv", "id,name\n1,a;b\n".encode("utf-16"), {"encoding": "utf-16"}),
        ("a.csv", b"\xef\xbb\xbfid,name\r\n\r\n1,a;b\r\n", {}),
        ("a.csv", b"id,name\n1,a;b\nNA,NA\n", {"nullValue": "NA"}),
        ("a.csv", b'id,name\n1,"a\\;b"\n', {"escape": "\\"}),
        ("a.csv.gz", gzip.compress(b"id,name\n", mtime=0) + gzip.compress(b"1,a;b\n", mtime=0), {}),
        ("a.csv.bz2", bz2.compress(b"id,name\n1,a;b\n"), {}),
        ("a.csv", b",id,name,id2\n0,1,a;b,\n", {}),
    ],
)
def test_csv_dialects(tmp_path: Path, name: str, body: bytes, options: dict[str, str]) -> None:
    first = rows(source(tmp_path, {name: body}, options=options))[0]
    assert (first["id"], first["name"]) == (1, "a;b")


@pytest.mark.parametrize(
    ("text", "schema", "problem"),
    [
        (
            "id,name\n5,a\n\nx6,b\n",
            "id long",
            r"a\.csv, line 4, column id: 'x6' is not a valid int64 \(fix the v",
        ),
        (
            "id,name\n5,a\n6,b,c,d\n",
            "name string",
            r"a\.csv, line 3: expected 2 columns, got 4: 6,b,c,d \(fix or",
        ),
        ('id,t\n1,"a\nb"\n2,c\nx,d\n', "id long, t string", r"line 5, column id: 'x' is not a valid int64"),
        (
            "id,t\n1,2026-01-01\n2,never\n",
            "t timestamp",
            r"line 3, column t: 'never' is not a valid timestamp",
        ),
        ("id\n300\n", "id byte", r"line 2, column id: '300' is not a valid int8"),
        (
            "id\n12.345\n",
            "id decimal(5,2)",
            r"line 2, column id: Rescaling Decimal value would cause data loss",
        ),
        ("id,id\n1,2\n", "id int", r"column id: two columns have this name"),
        ("id\n1\n", "id array<int>", r"column id: CSV files have no values of type list<"),
        (b"id,t\n1,\xff\n", "t string", r"line 2, column t: invalid UTF8 data \(pass the encoding"),
        ('id,t\n1,"a\nb"\n2,"c\n3,d\n', "id long", r"a\.csv, line 4: quote is not closed"),
        ('id,t\n1,"a\nb"\n2,c,d\n', "id long", r"a\.csv, line 4: expected 2 columns, got 3"),
        (b"id,t\xff\n1,2\n", "id int", r"a\.csv, line 1: header is not utf-8"),
    ],
)
def test_csv_errors_name_the_place(tmp_path: Path, text: str | bytes, schema: str, problem: str) -> None:
    with pytest.raises(SkipstoneError, match=problem):
        rows(source(tmp_path, {"a.csv": text}, schema=schema))


def test_json_types(tmp_path: Path) -> None:
    texts = {
        "a.json": '{"id": 1, "s": {"a": 1}, "l": [1], "n": null, "e": {}, "t": "2026-01-01"}\n'
        '{"big": 18446744073709551615, "deep": {"o": {}}}\n',
        "b.jsonl": '\n{"s": {"b": "x"}, "id": 2.5, "l": [], "mixed": 1}\n{"mixed": {"x": [1.50, "ü"]}}\n\n',
    }
    found = source(tmp_path, texts)
    assert found.schema.field("s").type == pa.struct({"a": pa.int64(), "b": pa.string()})
    assert [str(found.schema.field(name).type) for name in ("id", "n", "t", "big", "mixed")] == [
        *("double", "string", "string", "decimal128(38, 0)", "string")
    ]
    first, large, second, third = rows(found)
    assert (first["e"], large["e"], large["deep"]) == ("{}", None, {"o": "{}"})
    assert (first["s"], second["s"], third["s"]) == ({"a": 1, "b": None}, {"a": None, "b": "x"}, None)
    assert (large["big"], second["mixed"]) == (2**64 - 1, "1")
    assert json.loads(third["mixed"]) == {"x": [1.5, "ü"]}


@pytest.mark.parametrize(
    ("first", "second", "type"),
    [
        (str(2**53 + 1), "0.5", "string"),
        (str(2**53), "0.5", "double"),
        (str(2**53 + 1), "5", "int64"),
        ("1e400", "1", "string"),
        ("-1e99999999999999999999", "1", "string"),
        ("1.10", "true", "string"),
        ("1E5", '{"x": [1.10, 1e5, "ü"]}', "string"),
        ("1e20", "2.5", "double"),
    ],
)
def test_json_numbers_keep_their_digits(tmp_path: Path, first: str, second: str, type: str) -> None:
    lines = f'{{"x": {first}, "l": [{first}]}}\n', f'{{"x": {second}, "l": [{second}]}}\n'
    one = source(tmp_path / "one", {"a.json": "".join(lines)})
    two = source(tmp_path / "two", dict(zip(("a.json", "b.json"), lines, strict=True)))
    assert [str(name) for name in one.schema.types] == [type, f"list<item: {type}>"]
    assert one.schema == two.schema
    kind = {"string": str, "double": float}.get(type, int)
    assert rows(one) == rows(two) == [{"x": kind(text), "l": [kind(text)]} for text in (first, second)]


@pytest.mark.parametrize("text", [str(2**53 + 1), "1e400", "-1e400"])
def test_later_json_numbers_are_exact_in_the_types_of_the_lake(tmp_path: Path, text: str) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "lake" / "a.parquet")
    found = source(
        tmp_path / "raw", {"a.json": f'{{"x": 1e20}}\n{{"x": {text}}}\n'}, lake=sk.open(tmp_path / "lake")
    )
    with pytest.raises(SkipstoneError, match=rf"line 2, column x: {text} is not a valid double .*new lake"):
        rows(found)
    assert rows(source(tmp_path / "raw", schema="x double"))[1]["x"] == float(text)


def test_json_with_a_schema(tmp_path: Path) -> None:
    text = (
        '{"m": {"k": "2026-01-02"}, "day": "2026-01-01", "at": "2026-01-01T10:00:00", "price": 1.1, "x": 3}\n'
        '{"s": {"day": "2026-01-01"}, "at": "2026-01-01T10:00:00+01:00", "price": "7"}\n'
    )
    schema = "price decimal(9,2), at timestamp, day date, m map<string, date>, s struct<day: date>"
    for columns in (schema, "price decimal(9,2), at timestamp, day date"):
        first, second = rows(source(tmp_path, {"a.json": text}, schema=columns))
        assert (first["price"], second["price"]) == (Decimal("1.10"), Decimal("7.00"))
        assert (first["at"].hour, second["at"].hour, first["day"]) == (10, 9, dt.date(2026, 1, 1))
    first, second = rows(source(tmp_path, schema=schema))
    assert first["m"] == [("k", dt.date(2026, 1, 2))]
    assert second["s"] == {"day": dt.date(2026, 1, 1)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"id": 1}\n\n{"id": "x"}\n',
            r'a\.json, line 3, column id: "x" is not a valid int64 \(fix the value',
        ),
        (
            '{"id": 1, "s": {"a": [1, 2]}}\n{"s": {"a": [1.5]}}',
            r"line 2, column s\.a\.element: 1\.5|\"1\.5\"",
        ),
        ('{"id": 1}\n{"id":\n', r"a\.json, line 2: not a JSON object: .* \(write one JSON object per line"),
        ('[{"id": 1}]\n', r"a\.json, line 1: line is a JSON array, not an object \(.*jq -c"),
        (b'{"id": 1}\n{"s": "\xff"}\n', r"a\.json, line 2: not UTF-8"),
        ('{"id": 1}\n{"id": 4294967296000000000000}\n', r"line 2, column id: 4294967296000000000000 is not"),
        ("[\n{}]\n", r"a\.json, line 1: not a JSON object"),
    ],
)
def test_json_errors_name_the_place(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(SkipstoneError, match=problem):
        rows(source(tmp_path, {"a.json": text}, schema="id long, s struct<a: array<int>>"))


def test_partitions_of_folders(tmp_path: Path) -> None:
    found = source(tmp_path, {"day=2026-01-01/k=1/a.csv": "id\n1\n", "day=2026-01-02/k=2/a.csv": "id\n2\n"})
    assert rows(found)[1] == {"id": 2, "day": dt.date(2026, 1, 2), "k": 2}
    found = source(tmp_path, schema="day string, id long")
    assert rows(found)[1] == {"id": 2, "day": "2026-01-02", "k": 2}


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_partitions_that_are_strings_in_the_lake(tmp_path: Path, format: str) -> None:
    """Alone, the new directory would be an integer."""
    folder, lake = tmp_path / "in" / "k=01", tmp_path / "lake"
    folder.mkdir(parents=True)
    if format == "csv":
        (folder / "a.csv").write_text("id\n1\n")
    else:
        pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    sk.ingest(pa.table({"k": ["2A"], "id": [2]}), lake, partition_by=["k"], engine="local", index=False)
    sk.ingest_new(tmp_path / "in", lake, engine="local", index=False)
    assert sk.open(lake).scan("k = '01'").to_arrow().to_pylist() == [{"id": 1, "k": "01"}]


def test_orc(tmp_path: Path) -> None:
    orc.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "a.orc")
    orc.write_table(pa.table({"name": ["b"], "id": pa.array([2**40])}), tmp_path / "b.orc")
    assert rows(source(tmp_path)) == [{"id": 1, "name": None}, {"id": 2**40, "name": "b"}]
    (tmp_path / "c.orc").write_bytes(b"ORC?")
    with pytest.raises(SkipstoneError, match=r"c\.orc: file can't be read as ORC"):
        source(tmp_path)


def test_parquet_has_the_schema_of_the_opened_folder(tmp_path: Path) -> None:
    for at, table in enumerate(
        [
            pa.table({"id": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")]), "a.b": ["x"]}),
            pa.table({"d": pa.array([Decimal("10.25")]), "id": pa.array([2**40])}),
        ]
    ):
        (tmp_path / f"k={at}").mkdir()
        pq.write_table(table, tmp_path / f"k={at}" / "a.parquet")
    opened = sk.open(tmp_path)
    found = source(tmp_path)
    assert found.schema == opened.schema
    assert rows(found) == opened.scan().to_arrow().to_pylist()
    assert rows(source(tmp_path, schema="d decimal(9,2)")) == [
        {"d": Decimal("1.50"), "k": 0},
        {"d": Decimal("10.25"), "k": 1},
    ]


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SkipstoneError, match=r"unknown read option 'sepp' of csv files \(use one of sep, "):
        source(tmp_path, {"a.csv": "a\n1\n"}, options={"sepp": ";"})
    with pytest.raises(SkipstoneError, match=r"read option sep must be one character, got ';;'"):
        source(tmp_path, options={"sep": ";;"})
    with pytest.raises(SkipstoneError, match=r"unknown encoding 'utf-88'"):
        source(tmp_path, options={"encoding": "utf-88"})
    with pytest.raises(SkipstoneError, match=r"a\.csv\.gz: file can't be read as CSV: .*header"):
        source(tmp_path / "g", {"a.csv.gz": "a\n1\n"})
    with pytest.raises(SkipstoneError, match=r"snappy compression is not supported"):
        source(tmp_path / "s", {"a.csv.snappy": "a\n1\n"})


def test_files_in_an_object_store(s3: dict[str, str]) -> None:
    """New files of a bucket are listed, and read with the same rules, without Spark."""
    root = open_root("s3://bucket/raw", storage_options=s3)
    lake = open_root("s3://bucket/lake", storage_options=s3)
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [5]}), body)
    for name, text in {
        "day=1/a.csv": b"id,name\n1,a\n",
        "day=2/b.csv.gz": gzip.compress(b"name,id\nb,2\n", mtime=0),
        "x.json": b'{"id": 3}\n{"id": 4, "name": "d"}\n',
        "y.parquet": body.getvalue().to_pybytes(),
    }.items():
        root.write(name, [text])
    expected = {
        "csv": [{"id": 1, "name": "a", "day": 1}, {"id": 2, "name": "b", "day": 2}],
        "json": [{"id": 3, "name": None}, {"id": 4, "name": "d"}],
        "parquet": [{"id": 5}],
    }
    for format, wanted in expected.items():
        found = find_sources("s3://bucket/raw", lake, format, s3)
        files = open_files(found.store, format, found.new)
        assert [row for batch in files.batches() for row in batch.to_pylist()] == wanted
    with Append.begin(lake) as append:
        append.publish([], sources=found.journal_sources(found.new))
    root.write("z.parquet", [body.getvalue().to_pybytes()])
    again = find_sources("s3://bucket/raw/", lake, "parquet", s3)
    assert ([entry.key for entry in again.new], again.already_ingested) == (["z.parquet"], 1)
    # A file that is replaced after it was listed is an error, not a mixture.
    listed = find_sources("s3://bucket/raw", lake, "json", s3)
    root.write("x.json", [b'{"id": 7}\n'])
    with pytest.raises(SkipstoneError, match=r"s3://bucket/raw/x\.json: file has changed"):
        open_files(listed.store, "json", listed.new)
