"""``skipstone agg``: answers for people and programs, sets of ids, streams, errors."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

import skipstone as sk
from skipstone.cli.output import Exit
from skipstone.report.lines import width_of
from skipstone.report.node import ReportNode
from skipstone.report.text import to_text
from skipstone.scan.row_view import answer_blocks

Run = Callable[..., Any]


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def document(run: Run, *args: object) -> dict[str, Any]:
    done = run("agg", *args, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 rows in 4 files of 5 row groups with an index of sums and sketches; ``id`` rises."""
    root = tmp_path_factory.mktemp("indexed")
    rows = np.arange(2000)
    table = pa.table(
        {"id": rows, "x": rows % 7 * 0.5, "kind": pa.array(["a", "b"]).take(pa.array(rows // 1000))}
    )
    for number in range(4):
        pq.write_table(
            table.slice(number * 500, 500),
            root / f"part-{number}.parquet",
            row_group_size=100,
            max_rows_per_page=20,
            write_batch_size=20,
            write_page_index=True,
        )
    sk.open(root).index.build(engine="local", columns=["id", "x", "kind"], sums=True, sketches=True)
    return root


class TestText:
    def test_all_rows(self, run: Run, hive: Path) -> None:
        done = run(
            "agg", hive, "count(*), sum(price), min(name), max(id) as last, avg(id)", "--where", "id < 10"
        )
        assert (done.exit_code, done.stderr) == (0, "")
        table, _, last = done.stdout.rstrip("\n").rpartition("\n\n")
        assert table == dedent("""
            function    answer  type
            count       20      int64
            sum(price)  112.5   double
            min(name)   name 0  string
            last        9       int64
            avg(id)     4.5     double
            """)
        assert re.fullmatch(
            r"read 1?\d\d of \d+ rows that may qualify · \d+ requests?, [\d.]+ kB · .*s", last
        )

    def test_groups(self, run: Run, hive: Path) -> None:
        done = run("agg", hive, "count(*), max(price)", "--group-by", "year, kind", "--where", "id <> 399")
        table, _, _ = done.stdout.rpartition("\n\n")
        assert table == dedent("""
             year  kind    count  max(price)
            int32  string  int64      double
             2025  a         399       497.5
             2025  b b       399       497.5
             2026  a         400      498.75
             2026  b b       400      498.75
            """)

    def test_many_groups_and_columns(self, run: Run, hive: Path) -> None:
        lines = run("agg", hive, "count(*)", "--group-by", "id").stdout.splitlines()
        assert len(lines) == 2 + 40 + 3
        assert lines[42] == "… 760 more groups; use --format csv"
        functions = ", ".join(f"max(name) as a_rather_long_name_{n}" for n in range(9))
        lines = run("agg", hive, functions, "--group-by", "year").stdout.splitlines()
        assert lines[4].startswith("… ")
        assert "more columns; use --format csv: " in lines[4]

    def test_no_rows(self, run: Run, hive: Path) -> None:
        lines = run("agg", hive, "count(*), sum(id), max(name)", "--where", "id < 0").stdout.splitlines()
        assert [re.split("  +", line)[:2] for line in lines[1:4]] == [
            ["count", "0"],
            ["sum(id)", "NULL"],
            ["max(name)", "NULL"],
        ]
        assert run("agg", hive, "sum(id)", "--group-by", "year", "--where", "id < 0").exit_code == 0

    def test_what_metadata_knows_is_not_read(self, run: Run, indexed: Path) -> None:
        done = run("agg", indexed, "count(*), sum(x), approx_distinct(x)", "--where", "id >= 500")
        assert [line.split()[:3] for line in done.stdout.splitlines()[1:4]] == [
            ["count", "1500", "int64"],
            ["sum(x)", str(sum(row % 7 * 0.5 for row in range(500, 2000))), "double"],
            ["approx_distinct(x)", "7", "int64"],
        ]
        assert "\n1,500 rows answered from metadata · 0 requests, 0 B · " in done.stdout

    def test_bounds_and_histograms(self) -> None:
        bins = [{"low": 0.1 + 0.2, "high": 20.0, "count": 12_000}, {"low": 20.0, "high": 40.0, "count": 5}]
        answer = pa.table(
            {
                "approx_distinct(d)": [1_499_120],
                "max(ts)": pa.array([0], pa.timestamp("us", "UTC")),
                "wide": pa.array([Decimal(10**37)], pa.decimal128(38, 0)),
                "exact": [3],
                "odd": [float("nan")],
                "histogram(x, 2)": [bins],
                "histogram(y, 2)": pa.array([None], pa.list_(pa.struct(dict.fromkeys(bins[0], pa.int64())))),
            }
        )
        bounds = {
            "approx_distinct(d)": (1_480_000, 1_520_000),
            "exact": (3, 3),
            "wide": (None, None),
            "odd": (float("nan"),) * 2,
        }
        tree = ReportNode(body=answer_blocks(answer, bounds, grouped=False))
        assert to_text(tree) == dedent("""
            function            answer                                  type                at least  at most
            approx_distinct(d)  1499120                                 int64               1480000   1520000
            max(ts)             1970-01-01 00:00:00Z                    timestamp[us, UTC]
            wide                10000000000000000000000000000000000000  decimal(38, 0)
            exact               3                                       int64
            odd                 NaN                                     double

            histogram(x, 2)
            0.3 to  20  ████████████████████  12,000
             20 to  40  █░░░░░░░░░░░░░░░░░░░       5

            histogram(y, 2)
            no value
            """)
        narrow = to_text(tree, 60).splitlines()
        assert max(map(width_of, narrow)) <= 60
        assert any("10000000000000000000000000000000000000" in line for line in narrow)

    def test_explain_is_on_standard_error(self, run: Run, indexed: Path) -> None:
        done = run("agg", indexed, "count(*), sum(x)", "--where", "id >= 730", "--explain")
        plain = run("agg", indexed, "count(*), sum(x)", "--where", "id >= 730")
        assert done.stdout.splitlines()[:3] == plain.stdout.splitlines()[:3]
        assert "├─ x           █▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░  reads 20 of 1,280 rows (1.6 %)\n" in done.stderr
        assert "from  2 files (1,000 rows), 2 row groups (200 rows), 3 pages (60 rows)\n" in done.stderr
        assert "└─ ran         10 rows read and aggregated on " in done.stderr


class TestPrograms:
    def test_json(self, run: Run, indexed: Path) -> None:
        found = document(
            run, indexed, "count(*), sum(id), max(x), approx_distinct(id)", "--where", "id < 1990"
        )
        seconds, bounds = found.pop("seconds"), found.pop("bounds")
        assert seconds > 0
        assert found.pop("answer")[0] == {
            "count": 1990,
            "sum(id)": 1990 * 1989 // 2,
            "max(x)": 3.0,
            "approx_distinct(id)": pytest.approx(1990, rel=0.05),
        }
        assert list(bounds) == ["approx_distinct(id)"]
        assert bounds["approx_distinct(id)"]["lower"] <= 1990 <= bounds["approx_distinct(id)"]["upper"]
        # Of 2,000 rows that may qualify those of one row group are read, as sketches are of row groups.
        assert (found["rows"], found["from_metadata"], found["read"]) == (2000, 1900, 100)
        assert found["files"] == 4
        assert found["requests"] > 0
        assert "explain" not in found

    def test_json_keeps_every_digit(self, run: Run, tmp_path: Path) -> None:
        pq.write_table(pa.table({"x": [2**63 - 1] * 10, "y": [float("nan")] * 10}), tmp_path / "f.parquet")
        (row,) = document(run, tmp_path, "sum(x), max(y), min(x)")["answer"]
        assert row == {"sum(x)": 10 * (2**63 - 1), "max(y)": "NaN", "min(x)": 2**63 - 1}

    def test_json_explains(self, run: Run, indexed: Path) -> None:
        done = run("agg", indexed, "sum(x)", "--where", "id >= 730", "--format", "json", "--explain")
        assert done.stderr == ""
        explain = json.loads(done.stdout)["explain"]
        (column,) = explain["columns"]
        assert (column["column"], column["rows_known"], column["rows_read"]) == ("x", 1260, 20)
        assert explain["run"]["rows"] == 10

    def test_csv_and_files(self, run: Run, hive: Path, tmp_path: Path) -> None:
        args = ("agg", hive, "count(*), sum(id) as total", "--group-by", "kind")
        rows = list(csv.reader(io.StringIO(run(*args, "--format", "csv").stdout)))
        assert rows == [["kind", "count", "total"], ["a", "800", "559600"], ["b b", "800", "559600"]]
        for name, read in (("a.csv", None), ("a.parquet", pq.read_table), ("a.arrow", _stream)):
            assert run(*args, "--output", tmp_path / name).exit_code == 0
            if read is not None:
                assert read(tmp_path / name).column("total").to_pylist() == [559600, 559600]
        assert run(*args, "--output", tmp_path / "a.csv").exit_code == Exit.USAGE
        assert run(*args, "--output", tmp_path / "a.csv", "--force").exit_code == 0
        assert run(*args, "--output", tmp_path / "a.txt").exit_code == 0
        assert "559600" in (tmp_path / "a.txt").read_text()
        assert json.loads(_written(run, args, tmp_path / "a.json"))["answer"][0]["total"] == 559600
        said = " ".join(run(*args, "--output", tmp_path / "a.x").stderr.split())
        assert "unknown extension of a.x" in said


def _stream(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path).read_all()


def _written(run: Run, args: tuple[object, ...], path: Path) -> str:
    assert run(*args, "--output", path).exit_code == 0
    return path.read_text()


class TestIds:
    def count(self, run: Run, lake: Path, *args: object) -> int:
        return int(document(run, lake, "count(*)", *args)["answer"][0]["count"])

    def test_sets(self, run: Run, indexed: Path, tmp_path: Path) -> None:
        some, more = tmp_path / "some.ids", tmp_path / "more.txt"
        some.write_bytes(BitMap(range(450, 1050)).serialize())
        more.write_text("".join(f"{n}\n" for n in range(1000, 1100)))
        of_id = ("--id-column", "id")
        assert self.count(run, indexed, "--ids", some, *of_id) == 600
        assert self.count(run, indexed, "--ids", some, "--ids", more, *of_id) == 50
        assert self.count(run, indexed, "--ids", some, "--not-ids", more, *of_id) == 550
        assert self.count(run, indexed, "--not-ids", some, "--not-ids", more, *of_id) == 2000 - 650
        assert self.count(run, indexed, "--ids", some, "--where", "kind = 'b'", *of_id) == 50

    def test_positions(self, run: Run, hive: Path, tmp_path: Path) -> None:
        path = tmp_path / "rows"
        path.write_bytes(BitMap64([0, 1, 400, 1599, 5000]).serialize())
        found = document(run, hive, "count(*), max(id)", "--ids", path)["answer"]
        assert found == [{"count": 4, "max(id)": 1399}]

    def test_explain_tells_the_sets(self, run: Run, indexed: Path, tmp_path: Path) -> None:
        path = tmp_path / "some.ids"
        path.write_bytes(BitMap(range(450, 1050)).serialize())
        told = run("agg", indexed, "sum(x)", "--ids", path, "--id-column", "id", "--explain").stderr
        assert "├─ members  ███████░░░░░░░░░░░░░  kept 7 of 20 row groups (35 %), 5 entirely inside\n" in told
        assert "│     id in 600 ids (one run)\n" in told

    def test_wrong_usage(self, run: Run, hive: Path, tmp_path: Path, words: Callable[[str], str]) -> None:
        done = run("agg", hive, "count(*)", "--id-column", "id")
        assert done.exit_code == Exit.USAGE
        assert "needs --ids or --not-ids" in words(done.stderr)
        assert run("agg", hive, "count(*)", "--ids", tmp_path / "none").exit_code == Exit.FILE
        path = tmp_path / "ids"
        path.write_text("one\n")
        done = run("agg", hive, "count(*)", "--ids", path)
        assert done.exit_code == Exit.FILE
        assert done.stderr.startswith(
            f"error: {path}: line has 'one', which is not an id; hint: use a serialized"
        )
        path.write_text("1\n")
        done = run("agg", hive, "count(*)", "--ids", path, "--id-column", "name")
        assert done.exit_code == Exit.PREDICATE
        assert "column name" in done.stderr
        assert "--id-column" in done.stderr


class TestStream:
    def test_json(self, run: Run, hive: Path) -> None:
        done = run("agg", hive, "count(*), sum(price)", "--stream", "--no-cached", "--format", "json")
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        assert [step["final"] for step in steps] == [False] * (len(steps) - 1) + [True]
        covered = [step["covered"] for step in steps]
        assert covered == sorted(covered)
        assert covered[-1] == 1
        assert steps[-1]["answer"] == [{"count": 1600, "sum(price)": 399 * 400 / 2 * 1.25 * 4}]
        for step in steps:
            low, high = step["bounds"]["count"].values()
            assert low <= 1600 <= high

    def test_text(self, run: Run, hive: Path) -> None:
        done = run("agg", hive, "count(*)", "--stream", "--no-cached")
        tables = done.stdout.split("function")[1:]
        assert len(tables) > 1
        assert re.search(r"\d+ % of rows, [\d,]+ rows to go\n", tables[0])
        assert "read 1,600 of 1,600 rows that may qualify" in tables[-1]

    def test_wrong_usage(self, run: Run, hive: Path, tmp_path: Path, words: Callable[[str], str]) -> None:
        for more, said in (
            (("--format", "csv"), "--stream needs text or json"),
            (("--output", tmp_path / "a.json"), "--stream writes to standard output"),
        ):
            done = run("agg", hive, "count(*)", "--stream", *more)
            assert done.exit_code == Exit.USAGE
            assert said in words(done.stderr)


class TestErrors:
    @pytest.mark.parametrize(
        ("functions", "code", "said"),
        [
            ("foo(id)", Exit.PREDICATE, "unknown function 'foo'; hint: available: count(*), sum(x)"),
            ("sum(nothing)", Exit.PREDICATE, "nothing"),
            ("sum(name)", Exit.PREDICATE, "column name"),
            ("count(*), count(*)", Exit.OTHER, "'count'"),
        ],
    )
    def test_functions(self, run: Run, hive: Path, functions: str, code: Exit, said: str) -> None:
        done = run("agg", hive, functions)
        assert (done.exit_code, done.stdout) == (code, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1

    def test_groups(self, run: Run, hive: Path) -> None:
        assert run("agg", hive, "count(*)", "--group-by", ",").exit_code == Exit.USAGE
        assert run("agg", hive, "count(*)", "--group-by", "nothing").exit_code == Exit.PREDICATE

    def test_a_block_that_cannot_be_read(self, run: Run, broken_end: Path) -> None:
        done = run("agg", broken_end, "sum(id)")
        assert done.exit_code == Exit.FILE
        assert "b.parquet" in done.stderr
        assert run("agg", broken_end, "count(*)").exit_code == 0

    def test_engines(self, run: Run, hive: Path, words: Callable[[str], str]) -> None:
        done = run("agg", hive, "count(*)", "--master", "local[2]")
        assert done.exit_code == Exit.USAGE
        assert "needs --engine spark" in words(done.stderr)
