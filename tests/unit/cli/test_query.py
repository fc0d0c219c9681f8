"""``skipstone query``: tables, questions, files."""

from __future__ import annotations

import json
import os
import re
import stat
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.cli.output import Exit
from skipstone.core.plain import type_name
from skipstone.report.lines import width_of
from skipstone.report.node import ReportNode
from skipstone.report.text import to_text
from skipstone.scan.row_view import row_table

Run = Callable[..., Any]


def drawn(table: pa.Table, width: int = 100) -> str:
    return to_text(ReportNode(body=(row_table(table),)), width)


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def lines_of(run: Run, *args: object) -> list[dict[str, Any]]:
    done = run("query", *args, "--format", "jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


class TestTable:
    def test_text(self, run: Run, hive: Path) -> None:
        done = run("query", hive, "--where", "id > 1397 and kind = 'b b'")
        assert (done.exit_code, done.stderr) == (0, "")
        table, _, last = done.stdout.rstrip("\n").rpartition("\n\n")
        assert table == dedent("""
               id   price  name       year  kind
            int64  double  string    int32  string
             1398   497.5  name 398   2026  b b
             1399  498.75  name 399   2026  b b
            """)
        assert re.fullmatch(
            r"2 rows · read \d+ B of [\d.]+ kB, \d+ % skipped · [\d.]+ kB of metadata · \d+ requests · "
            r"[\d.]+ m?s",
            last,
        )

    def test_first_rows_of_many(self, run: Run, hive: Path) -> None:
        lines = run("query", hive, "--columns", "id").stdout.splitlines()
        assert len(lines) == 2 + 40 + 3
        assert [line.strip() for line in lines[2:42]] == [str(n) for n in range(40)]
        assert lines[42] == "… 1,560 more rows; use --limit or --format csv"
        assert lines[44].startswith("40 rows shown · read ")

    def test_more_rows_than_metadata_can_count(self, run: Run, hive: Path, broken_end: Path) -> None:
        lines = run("query", hive, "--where", "id % 2 = 0", "--columns", "id").stdout.splitlines()
        assert lines[42] == "… 760 more rows; use --limit or --format csv"
        # Of many candidates only the first are read.
        lines = run("query", broken_end, "id % 2 = 0", "--columns", "id").stdout.splitlines()
        assert lines[42] == "… up to 199,970 more rows; use --limit or --format csv"

    def test_few_rows_are_all_shown(self, run: Run, hive: Path) -> None:
        lines = run("query", hive, "--where", "id < 20", "--columns", "id").stdout.splitlines()
        assert len(lines) == 2 + 40 + 2
        assert lines[-1].startswith("40 rows · read ")

    def test_limit_shows_as_many(self, run: Run, hive: Path) -> None:
        lines = run("query", hive, "--limit", "77").stdout.splitlines()
        assert len(lines) == 2 + 77 + 2
        assert lines[-1].startswith("77 rows · ")
        assert run("query", hive, "--limit", "0").stdout.splitlines()[-1].startswith("0 rows · ")

    def test_no_rows(self, run: Run, hive: Path) -> None:
        done = run("query", hive, "--where", "id < 0", "--columns", "id,kind")
        assert done.exit_code == 0
        assert done.stdout.startswith("   id  kind\nint64  string\n\n0 rows · read ")

    def test_only_what_is_needed_is_read_for_the_first_rows(self, run: Run, tmp_path: Path) -> None:
        table = pa.table({"id": range(1_000_000)})
        pq.write_table(table, tmp_path / "f.parquet", row_group_size=50_000, use_dictionary=False)
        last = run("query", tmp_path / "f.parquet").stdout.splitlines()[-1]
        assert float(re.search(r"([\d.]+) % skipped", last)[1]) > 85

    def test_odd_values(self, odd: Path) -> None:
        table = pq.read_table(odd)
        assert drawn(table.select(["big", "huge", "float", "single", "money"])) == dedent("""
                             big                  huge      float  single            money
                           int64                uint64     double   float   decimal(20, 8)
                9007199254740993  18446744073709551615        NaN     0.1       1.20000000
            -9223372036854775808                     0  -Infinity    -0.0      -0.00000001
                            NULL                  NULL       NULL    NULL             NULL
             9223372036854775807                     1      100.0   1e+20  123456.50000000
            """)
        assert drawn(table.select(["utc", "zurich", "day", "time", "flag"])) == dedent("""
            utc                          zurich                         day         time             flag
            timestamp[us, UTC]           timestamp[ms, Europe/Zurich]   date        time[us]         bool
            1970-01-01 00:00:00.000000Z  1970-01-01 01:00:00.000+01:00  2026-01-01  01:02:03.000004  true
            2026-01-01 00:00:00.123456Z  2026-01-01 01:00:00.123+01:00  0001-01-01  00:00:00.000000  false
            NULL                         NULL                           NULL        NULL             NULL
            1969-12-31 23:59:59.999999Z  2025-06-15 17:06:40.000+02:00  9999-12-31  23:59:59.000000  true
            """)
        assert drawn(table.select(["bytes", "fixed", "kind", "list", "map", "null"]), 80) == dedent("""
            bytes                  fixed      kind    list         map                  null
            binary                 binary[2]  string  list<int64>  map<string, double>  null
            0x00ff                 0x6162     a       [1,null]     {"k":1.5,"l":null}   NULL
            0x                     0x0000     b       []           {}                   NULL
            NULL                   NULL       NULL    NULL         NULL                 NULL
            0x787878787878787878…  0x7a7a     a       [3]          {"":"NaN"}           NULL
            """)

    def test_control_characters_are_made_visible(self, odd: Path) -> None:
        text = drawn(pq.read_table(odd).select([13, 19]))
        assert text.replace("\n", "").isprintable()
        assert r'q"uo,te\r\n' in text
        assert r"\x1b[31m\t\x7f" in text

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 400])
    def test_every_line_fits(self, odd: Path, width: int) -> None:
        table = pq.read_table(odd)
        lines = drawn(table, width).split("\n")
        assert max(map(width_of, lines)) <= width
        shown = len(re.split(r"  +", lines[1].strip()))
        if shown < table.num_columns:
            assert lines[6].startswith(f"… {table.num_columns - shown} more columns; use --columns: ")
            assert 2 + 4 < len(lines) <= 2 + 4 + 2
        else:
            assert width == 400
            assert len(lines) == 2 + 4

    def test_long_texts_give_way_and_numbers_do_not(self) -> None:
        table = pa.table({"text": ["x" * 10_000], "a_number_with_a_long_name": [12345678901234567]})
        assert drawn(table, 40) == dedent("""
            text                 a_number_with_a_lo…
            string                             int64
            xxxxxxxxxxxxxxxxxx…    12345678901234567
            """)

    def test_whole_seconds_are_short(self) -> None:
        table = pa.table(
            {"t": pa.array([0, None], pa.timestamp("us", "UTC")), "u": pa.array([0, 1], pa.time32("ms"))}
        )
        assert drawn(table).splitlines()[2] == "1970-01-01 00:00:00Z  00:00:00.000"

    def test_type_names(self) -> None:
        types = [
            pa.large_string(),
            pa.binary(3),
            pa.float16(),
            pa.date64(),
            pa.time64("ns"),
            pa.timestamp("ms"),
            pa.uuid(),
        ]
        names = ["string", "binary[3]", "float16", "date", "time[ns]", "timestamp[ms]", "uuid"]
        assert list(map(type_name, types)) == names
        lists = pa.large_list(pa.list_(pa.struct([("a", pa.int8())])))
        assert type_name(lists) == "list<list<struct<a: int8>>>"
        assert type_name(lists, brief=True) == "list<list<struct>>"
        assert type_name(pa.dictionary(pa.int8(), pa.string())) == "string"
        assert type_name(pa.map_(pa.string(), pa.string())) == "map<string, string>"

    def test_colours(self, run: Run, hive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        text = run("query", hive, "--limit", "1", "--columns", "id").stdout
        assert text.startswith(
            "   \x1b[1mid\x1b[0m\n\x1b[2mint64\x1b[0m\n    0\n\n\x1b[1m1 row\x1b[0m\x1b[2m · read"
        )


class TestQuestion:
    def test_hive(self, run: Run, hive: Path) -> None:
        found = lines_of(run, hive, "--where", "year = 2026 and kind = 'a' and id < 1002")
        assert found == [
            {"id": 1000 + n, "price": n * 1.25, "name": f"name {n}", "year": 2026, "kind": "a"}
            for n in range(2)
        ]

    def test_order_limit_and_columns(self, run: Run, hive: Path) -> None:
        found = lines_of(run, hive, "--order-by", "id desc, kind", "--limit", "3", "--columns", "kind,id")
        assert found == [{"kind": "a", "id": 1399}, {"kind": "b b", "id": 1399}, {"kind": "a", "id": 1398}]
        assert [list(row) for row in found] == [["kind", "id"]] * 3

    def test_struct_fields_and_names_with_commas(self, run: Run, odd: Path) -> None:
        name = pq.read_schema(odd).names[-1]
        quoted = '"' + name.replace('"', '""') + '"'
        found = lines_of(run, odd, "--columns", "struct.x", "--columns", quoted, "--where", "big > 0")
        assert found == [{"struct.x": "1.5", name: 1}, {"struct.x": "2.0", name: 4}]
        columns = "struct.x AS x, coalesce(big, 0) > 0 AS positive"
        found = lines_of(run, odd, "--columns", columns, "--where", "big > 0")
        assert found == [{"x": "1.5", "positive": True}, {"x": "2.0", "positive": True}]

    def test_file_glob_and_uri(self, run: Run, hive: Path) -> None:
        where = ("--where", "id = 7", "--columns", "id")
        assert lines_of(run, hive / "year=2025" / "kind=a" / "part.parquet", *where) == [{"id": 7}]
        assert lines_of(run, f"{hive}/year=2025/*/*.parquet", *where) == [{"id": 7}] * 2
        assert lines_of(run, hive.as_uri(), *where) == [{"id": 7}] * 2

    def test_zone_and_dialect(self, run: Run, events: Path) -> None:
        where = ("--where", "at = '2026-01-01 01:00:07'", "--columns", "id")
        assert lines_of(run, events, *where, "--tz", "+01:00") == [{"id": 7}]
        assert lines_of(run, events, "--where", '"id" = 7', "--dialect", "trino", "--columns", "id") == [
            {"id": 7}
        ]

    @pytest.mark.parametrize(
        "switch",
        ["--no-skipping", "--no-page-index", "--no-bloom", "--checksums", "--threads=1", "--threads=3"],
    )
    def test_no_switch_changes_the_answer(self, run: Run, events: Path, switch: str) -> None:
        where = ("--where", "device = 7000 or id between 20 and 30")
        assert lines_of(run, events, *where, switch) == lines_of(run, events, *where)

    def test_explain_goes_to_standard_error(self, run: Run, hive: Path) -> None:
        done = run("query", hive, "--where", "id > 1390", "--format", "csv", "--columns", "id", "--explain")
        assert done.stdout.startswith("id\n1391\n")
        assert len(done.stdout.splitlines()) == 19
        assert done.stderr.startswith(f"{hive}  id > 1390\n") or "id > 1390" in done.stderr.splitlines()[0]
        assert "18 rows in " in done.stderr


class TestErrors:
    @pytest.mark.parametrize("command", ["query", "explain", "count", "verify"])
    def test_of_every_command(self, run: Run, hive: Path, tmp_path: Path, command: str) -> None:
        def failed(code: Exit, *args: object) -> str:
            done = run(command, *args)
            assert (done.exit_code, done.stdout) == (code, "")
            assert done.stderr.startswith("error: ")
            assert done.stderr.count("\n") == 1
            return str(done.stderr)

        assert "no such file" in failed(Exit.FILE, tmp_path / "nowhere")
        assert "directory contains no files" in failed(Exit.FILE, tmp_path)
        failed(Exit.FILE, "gopher://host/lake")
        assert "operand is missing" in failed(Exit.PREDICATE, hive, "--where", "id =")
        assert "did you mean id?" in failed(Exit.PREDICATE, hive, "--where", "idd = 1")
        failed(Exit.PREDICATE, hive, "--where", "id = 'x'")
        failed(Exit.PREDICATE, hive, "--where", "id = 1", "--dialect", "klingon")
        failed(Exit.PREDICATE, hive, "--where", "id = 1", "--tz", "Mars/Base")
        (tmp_path / "f.parquet").write_bytes(b"these are only words, and not even many")
        failed(Exit.FILE, tmp_path)

    @pytest.mark.parametrize("command", ["query", "explain", "verify"])
    def test_of_columns_and_order(self, run: Run, hive: Path, command: str) -> None:
        assert run(command, hive, "--columns", "nmae").stderr.endswith("did you mean name?\n")
        assert run(command, hive, "--columns", "nmae").exit_code == Exit.PREDICATE
        assert run(command, hive, "--columns", "id,id").exit_code == Exit.OTHER
        assert run(command, hive, "--columns", " , ").exit_code == Exit.USAGE
        assert run(command, hive, "--order-by", "nmae desc").exit_code == Exit.PREDICATE
        assert run(command, hive, "--limit", "-1").exit_code == Exit.USAGE
        assert run(command, hive, "--threads", "0").exit_code == Exit.USAGE

    def test_a_file_that_breaks_on_the_way(self, run: Run, broken_end: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        done = run("query", broken_end, "--format", "json", "--output", out)
        assert done.exit_code == Exit.FILE
        assert "b.parquet" in done.stderr
        assert list(tmp_path.iterdir()) == []
        # What was written before must not look complete.
        done = run("query", broken_end, "--format", "json")
        assert done.exit_code == Exit.FILE
        assert not done.stdout_bytes.endswith(b"]\n")
        raw = run("query", broken_end, "--format", "arrow").stdout_bytes
        assert len(raw) > 1_000_000
        assert not raw.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
        raw = run("query", broken_end, "--format", "parquet").stdout_bytes
        assert raw == b"PAR1"


class TestOutput:
    def test_exists(self, run: Run, hive: Path, tmp_path: Path, words: Callable[[str], str]) -> None:
        out = tmp_path / "out.csv"
        out.write_text("precious")
        command = ("query", hive, "--where", "id = 7", "--columns", "id", "--format", "csv", "--output", out)
        done = run(*command)
        assert done.exit_code == Exit.USAGE
        assert "use --force to overwrite it" in words(done.stderr)
        assert out.read_text() == "precious"
        assert run(*command, "--force").exit_code == 0
        assert out.read_text() == "id\n7\n7\n"
        assert list(tmp_path.iterdir()) == [out]

    def test_an_error_leaves_the_old_file(self, run: Run, broken_end: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        out.write_text("precious")
        done = run("query", broken_end, "--format", "csv", "--output", out, "--force")
        assert done.exit_code == Exit.FILE
        assert out.read_text() == "precious"
        assert list(tmp_path.iterdir()) == [out]

    def test_mode_and_link(self, run: Run, hive: Path, tmp_path: Path) -> None:
        target, link = tmp_path / "target.csv", tmp_path / "link.csv"
        link.symlink_to(target)
        assert run("query", hive, "--limit", "1", "--format", "csv", "--output", link).exit_code == 0
        assert link.is_symlink()
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask

    def test_impossible_places(self, run: Run, hive: Path, tmp_path: Path) -> None:
        done = run("query", hive, "--format", "csv", "--output", tmp_path / "no" / "out.csv")
        assert done.exit_code == Exit.UNEXPECTED
        reason = "No such file or directory; hint: create its directory first"
        assert done.stderr == f"error: can't write {tmp_path}/no/out.csv: {reason}\n"
        assert run("query", hive, "--format", "csv", "--output", tmp_path).exit_code == Exit.USAGE

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs devices")
    def test_devices(self, run: Run, hive: Path) -> None:
        assert run("query", hive, "--format", "csv", "--output", "/dev/null").exit_code == 0
        done = run("query", hive, "--format", "csv", "--output", "/dev/full")
        assert (done.exit_code, done.stderr) == (1, "error: can't write /dev/full: No space left on device\n")

    def test_table(self, run: Run, hive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("FORCE_COLOR", "1")
        out = tmp_path / "out.txt"
        done = run("query", hive, "--limit", "1", "--columns", "id", "--output", out)
        assert (done.exit_code, done.stdout) == (0, "")
        assert out.read_text().startswith("   id\nint64\n    0\n\n1 row · read ")
