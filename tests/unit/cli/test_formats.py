"""``skipstone query --format …``: what is written reads back as what pyarrow reads from the lake."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import decimal
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from skipstone.cli.output import RowStream
from skipstone.scan.formats import json_texts, row_writer, texts

Run = Callable[..., Any]


def written(format: str, *batches: pa.RecordBatch) -> bytes:
    raw = io.BytesIO()
    writer = row_writer(format, batches[0].schema, RowStream(raw))
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return raw.getvalue()


def equal(a: pa.Table, b: pa.Table) -> bool:
    """Equal with NaN equal to itself, and batches cut anywhere."""
    return a.schema.equals(b.schema) and repr(a.to_pylist()) == repr(b.to_pylist())


NS = {"local"}  # Python's times have no nanoseconds


class TestBinary:
    def test_parquet(self, run: Run, odd: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.parquet"
        done = run("query", odd, "--format", "parquet", "--output", out)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"4 rows in {out}, ")
        found, wanted = pq.read_table(out), pq.read_table(odd)
        assert equal(found.drop_columns(list(NS)), wanted.drop_columns(list(NS)))
        assert found["local"].equals(wanted["local"])
        assert pq.ParquetFile(out).metadata.num_row_groups == 1
        assert run("query", out, "--format", "parquet", "--output", tmp_path / "again.parquet").exit_code == 0

    def test_arrow(self, run: Run, odd: Path) -> None:
        done = run("query", odd, "--format", "arrow")
        found, wanted = pa.ipc.open_stream(done.stdout_bytes).read_all(), pq.read_table(odd)
        assert equal(found.drop_columns(list(NS)), wanted.drop_columns(list(NS)))
        assert found["local"].equals(wanted["local"])

    @pytest.mark.parametrize("format", ["parquet", "arrow"])
    def test_no_rows(self, run: Run, odd: Path, format: str) -> None:
        done = run("query", odd, "--where", "big = 7", "--format", format)
        read = pq.read_table if format == "parquet" else lambda raw: pa.ipc.open_stream(raw).read_all()
        found = read(io.BytesIO(done.stdout_bytes))
        assert (found.num_rows, found.schema.names) == (0, pq.read_schema(odd).names)

    def test_row_groups_are_gathered(self) -> None:
        batch = pa.record_batch({"a": pa.array(range(400_000))})
        found = pq.ParquetFile(io.BytesIO(written("parquet", *[batch] * 4)))
        assert [found.metadata.row_group(n).num_rows for n in range(2)] == [1_200_000, 400_000]
        assert found.metadata.num_row_groups == 2
        assert found.metadata.row_group(0).column(0).has_offset_index

    def test_what_parquet_can_not_hold(self) -> None:
        from skipstone.errors import UsageError

        with pytest.raises(UsageError, match="Parquet can't store"):
            row_writer("parquet", pa.schema([("s", pa.struct([]))]), RowStream(io.BytesIO()))


class TestCsv:
    def test_reads_back(self, run: Run, odd: Path) -> None:
        wanted = pq.read_table(odd)
        raw = run("query", odd, "--format", "csv").stdout_bytes
        plain = {
            field.name: field.type
            for field in wanted.schema
            if not (pa.types.is_nested(field.type) or "binary" in str(field.type) or field.name == "kind")
        }
        options = pa.csv.ConvertOptions(
            column_types=plain, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        parse = pa.csv.ParseOptions(newlines_in_values=True)
        found = pa.csv.read_csv(io.BytesIO(raw), parse_options=parse, convert_options=options)
        assert found.column_names == wanted.column_names
        for name in plain:
            assert str(found[name].combine_chunks()) == str(wanted[name].combine_chunks()), name
        for name in ("bytes", "fixed"):
            values = [None if v is None else base64.b64decode(v) for v in found[name].to_pylist()]
            assert values == wanted[name].to_pylist()
        assert found["kind"].to_pylist() == ["a", "b", None, "a"]
        assert found["list"].to_pylist() == ["[1,null]", "[]", None, "[3]"]

    def test_text(self, run: Run, odd: Path) -> None:
        raw = run(
            "query", odd, "--format", "csv", "--columns", "float,money,utc,zurich,local,text,struct"
        ).stdout_bytes
        assert raw.decode().split("\n", 1)[0] == "float,money,utc,zurich,local,text,struct"
        rows = list(csv.reader(io.StringIO(raw.decode(), newline="")))
        assert rows[1] == [
            "NaN", "1.20000000", "1970-01-01T00:00:00.000000Z", "1970-01-01T01:00:00.000+01:00",
            "1970-01-01T00:00:00.000000000", 'q"uo,te\r\n', '{"x":"1.5","y":["a","b\\""]}',
        ]  # fmt: skip
        assert rows[2][:4] == [
            "-Infinity", "-0.00000001", "2026-01-01T00:00:00.123456Z", "2026-01-01T01:00:00.123+01:00"
        ]  # fmt: skip
        assert rows[3] == [""] * 7
        assert rows[4][3] == "2025-06-15T17:06:40.000+02:00"
        assert len(rows) == 5

    def test_quotes(self) -> None:
        batch = pa.record_batch({"a": ["x", "", None, " y", 'z"', "1,5"], 'b"': [1, 2, None, 4, 5, 6]})
        assert written("csv", batch) == b'a,"b"""\nx,1\n"",2\n,\n" y",4\n"z""",5\n"1,5",6\n'

    def test_one_column_of_nulls_keeps_its_rows(self) -> None:
        batch = pa.record_batch({"a": [None, 1, None]})
        assert written("csv", batch) == b'a\n""\n1\n""\n'
        assert len(list(csv.reader(io.StringIO(written("csv", batch).decode())))) == 4

    def test_no_rows_is_a_header(self, run: Run, hive: Path) -> None:
        done = run("query", hive, "--where", "id < 0", "--format", "csv", "--columns", "kind,id")
        assert (done.exit_code, done.stdout) == (0, "kind,id\n")


class TestJson:
    def check(self, rows: list[dict[str, Any]], odd: Path) -> None:
        wanted = pq.read_table(odd)
        assert [list(row) for row in rows] == [wanted.column_names] * 4

        def column(name: str, read: Callable[[Any], Any] = lambda value: value) -> list[Any]:
            return [None if row[name] is None else read(row[name]) for row in rows]

        def instants(name: str) -> list[Any]:
            return column(name, lambda text: dt.datetime.fromisoformat(text).astimezone(dt.UTC))

        for name in ("big", "huge", "flag", "text", "kind", "list", "null", wanted.column_names[-1]):
            assert column(name) == wanted[name].to_pylist()
            assert [type(v) for v in column(name)] == [type(v) for v in wanted[name].to_pylist()]
        assert column("money", decimal.Decimal) == wanted["money"].to_pylist()
        assert column("bytes", base64.b64decode) == wanted["bytes"].to_pylist()
        assert column("fixed", base64.b64decode) == wanted["fixed"].to_pylist()
        assert column("day", dt.date.fromisoformat) == wanted["day"].to_pylist()
        assert column("time", dt.time.fromisoformat) == wanted["time"].to_pylist()
        assert instants("utc") == wanted["utc"].to_pylist()
        assert instants("zurich") == wanted["zurich"].to_pylist()
        assert column("local")[1] == "2026-01-01T00:00:00.123456789"
        assert column("float") == ["NaN", "-Infinity", None, 100.0]
        assert isinstance(rows[3]["float"], float)
        assert repr(column("single")) == "[0.1, -0.0, None, 1e+20]"
        assert column("struct") == [
            {"x": "1.5", "y": ["a", 'b"']},
            {"x": None, "y": None},
            None,
            {"x": "2.0", "y": []},
        ]
        assert column("map") == [{"k": 1.5, "l": None}, {}, None, {"": "NaN"}]

    def test_lines(self, run: Run, odd: Path) -> None:
        text = run("query", odd, "--format", "jsonl").stdout_bytes.decode()
        assert text.endswith("}\n")
        assert "\x1b" not in text
        self.check([json.loads(line) for line in text[:-1].split("\n")], odd)

    def test_array(self, run: Run, odd: Path) -> None:
        self.check(json.loads(run("query", odd, "--format", "json").stdout_bytes), odd)

    def test_no_control_character_is_left(self, run: Run, tmp_path: Path) -> None:
        """Of C0, DEL, C1 and line separators a terminal obeys some; names and values come from files."""
        odd = "".join(map(chr, [*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029])) + "é"
        path = tmp_path / "odd.parquet"
        pq.write_table(pa.table({odd: [odd, "plain", "\x9b31m"], "s": [[{odd: odd}]] * 3}), path)
        rows = [{odd: text, "s": [{odd: odd}]} for text in (odd, "plain", "\x9b31m")]
        for format in ("json", "jsonl"):
            text = run("query", path, "--format", format).stdout_bytes.decode()
            assert text.replace("\n", "").isprintable()
            assert "é" in text
            read = json.loads(text) if format == "json" else [json.loads(line) for line in text.splitlines()]
            assert read == rows
        where = f"`{odd}` = 'plain'"
        commands = (
            *(("explain", path, "--where", where), ("inspect", path), ("prune", path, "--where", where)),
            ("agg", path, f"count(`{odd}`)"),
        )
        for command in commands:
            for format in ([], ["--format", "json"]):
                text = run(*command, *format).stdout_bytes.decode()
                assert text.replace("\n", "").isprintable(), command

    def test_no_rows(self, run: Run, odd: Path) -> None:
        assert run("query", odd, "--where", "big = 7", "--format", "jsonl").stdout == ""
        assert run("query", odd, "--where", "big = 7", "--format", "json").stdout == "[]\n"

    def test_batches_join(self) -> None:
        batches = [pa.record_batch({"a": values}) for values in ([1, 2], [3])]
        assert written("json", *batches) == b'[\n{"a":1},\n{"a":2},\n{"a":3}\n]\n'
        assert written("jsonl", *batches) == b'{"a":1}\n{"a":2}\n{"a":3}\n'


class TestValues:
    def test_slices_of_nested_values(self) -> None:
        array = pa.array([[{"a": [1]}], None, [{"a": None}, None], [], [{"a": [2, 3]}]])
        texts_of = ['[{"a":[1]}]', "null", '[{"a":null},null]', "[]", '[{"a":[2,3]}]']
        for start in range(5):
            for stop in range(start, 6):
                assert json_texts(array[start:stop]).to_pylist() == texts_of[start:stop]

    @pytest.mark.parametrize(
        "type",
        [
            pa.large_list(pa.int8()),
            pa.list_(pa.int8(), 2),
            pa.list_view(pa.int8()),
            pa.large_list_view(pa.int8()),
        ],
        ids=str,
    )
    def test_lists_of_every_kind(self, type: pa.DataType) -> None:
        array = pa.array([[9, 9], [1, 2], None, [3, None]], type)[1:]
        assert json_texts(array).to_pylist() == ["[1,2]", "null", "[3,null]"]

    def test_values_below_null(self) -> None:
        hidden = pa.StructArray.from_arrays([pa.array([1, 2])], ["x"], mask=pa.array([True, False]))
        assert json_texts(hidden).to_pylist() == ["null", '{"x":2}']
        lists = pa.ListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]), mask=pa.array([True, False]))
        assert json_texts(lists).to_pylist() == ["null", "[3]"]

    def test_maps_keep_keys_of_any_type(self) -> None:
        array = pa.array([[(1, "a"), (1, "b")], [(2, None)]], pa.map_(pa.int64(), pa.string()))
        assert json_texts(array).to_pylist() == ['{"1":"a","1":"b"}', '{"2":null}']

    def test_uuid(self) -> None:
        storage = pa.array([bytes(range(16)), None], pa.binary(16))
        array = pa.ExtensionArray.from_storage(pa.uuid(), storage)
        assert texts(array).to_pylist() == ["00010203-0405-0607-0809-0a0b0c0d0e0f", None]
        assert json_texts(array).to_pylist() == ['"00010203-0405-0607-0809-0a0b0c0d0e0f"', "null"]

    def test_times_beyond_the_calendar(self) -> None:
        for type in (pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("s", "Europe/Zurich")):
            far, near = texts(pa.array([2**50, 0], pa.int64()).cast(type)).to_pylist()
            assert far == "<value out of range: 1125899906842624>"
            assert near.startswith("1970-01-01T0")
        assert texts(pa.array([253_402_300_800], pa.timestamp("s"))).to_pylist() == ["10000-01-01T00:00:00"]

    def test_offsets(self) -> None:
        assert texts(pa.array([0], pa.timestamp("s", "-03:30"))).to_pylist() == ["1969-12-31T20:30:00-03:30"]

    def test_text_that_is_no_text(self) -> None:
        array = pa.array([b"ok", b"\xff\x00", None]).view(pa.string())
        assert texts(array).to_pylist() == ["ok", "\\xff\x00", None]
        assert [json.loads(text) for text in json_texts(array).to_pylist()] == ["ok", "\\xff\x00", None]

    def test_views_durations_and_halves(self) -> None:
        assert texts(pa.array(["a", None], pa.string_view())).to_pylist() == ["a", None]
        assert texts(pa.array([b"a", None], pa.binary_view())).to_pylist() == ["YQ==", None]
        assert json_texts(pa.array([5], pa.duration("us"))).to_pylist() == ["5"]
        spans = pa.array([(0, 1, 0), None], pa.month_day_nano_interval())
        assert texts(spans).to_pylist() == ["INTERVAL '1' DAY", None]
        assert json_texts(pa.array([1.5], pa.float16())).to_pylist() == ["1.5"]
        assert json_texts(pa.array([decimal.Decimal("1e5")], pa.decimal128(9, -3))).to_pylist() == [
            '"100000"'
        ]

    def test_floats_read_back_exactly(self) -> None:
        values = [0.1, 1e-300, 5e-324, 1.7976931348623157e308, 1 / 3, 2.0**60, -0.0, 123456789.125]
        found = [float(text) for text in texts(pa.array(values)).to_pylist()]
        assert found == values
        assert [math.copysign(1, v) for v in found] == [math.copysign(1, v) for v in values]
