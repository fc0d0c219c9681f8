"""``skipstone explain``, ``count`` and ``verify``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.cli.output import Exit

Run = Callable[..., Any]


class TestExplain:
    def test_text(self, run: Run, hive: Path) -> None:
        done = run("explain", hive, "--where", "year = 2026 and id > 1390")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "year = 2026" in done.stdout.splitlines()[0]
        assert "kept 2 of 4 (50 %)" in done.stdout
        assert "└─ read" in done.stdout
        assert "└─ ran" not in done.stdout

    def test_analyze(self, run: Run, hive: Path) -> None:
        done = run("explain", hive, "--where", "id > 1390", "--analyze")
        assert "└─ ran         18 rows in " in done.stdout

    def test_json(self, run: Run, hive: Path) -> None:
        command = ("explain", hive, "--where", "id > 1390", "--columns", "id", "--format", "json")
        found = json.loads(run(*command).stdout)
        assert (found["rows_total"], found["rows_kept"], found["columns"]) == (1600, 100, ["id"])
        assert found["run"] is None
        assert 0 < found["reads"]["bytes"] < found["reads"]["bytes_total"]
        assert json.loads(run(*command, "--analyze").stdout)["run"]["rows"] == 18
        assert json.loads(run(*command, "--no-skipping").stdout)["rows_kept"] == 1600

    def test_html_to_a_file(self, run: Run, hive: Path, tmp_path: Path) -> None:
        out = tmp_path / "plan.html"
        command = ("explain", hive, "--where", "id > 1390", "--format", "html", "--output", out)
        done = run(*command)
        assert (done.exit_code, done.stdout) == (0, "")
        assert out.read_text().lower().startswith("<!doctype html>")
        assert run(*command).exit_code == Exit.USAGE
        assert run(*command, "--force").exit_code == 0

    def test_why(self, run: Run, hive: Path) -> None:
        command = ("explain", hive, "--where", "id > 1390", "--why")
        done = run(*command, "year=2026/kind=a/part.parquet", "--row-group", "3")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "min 1,150, max 1,199" in done.stdout
        assert done.stdout.endswith("dropped: no row can match\n")
        done = run(*command, "year=2026/kind=a/part.parquet", "--row", "399", "--format", "json")
        assert json.loads(done.stdout)["rows"] == [350, 400]
        page = run(*command, "year=2026/kind=a/part.parquet", "--row-group", "3", "--format", "html").stdout
        assert page.startswith("<!DOCTYPE html>")
        assert "min 1,150, max 1,199" in page
        done = run(*command, "nothing.parquet")
        assert (done.exit_code, done.stdout) == (Exit.OTHER, "")
        assert "lake has no file 'nothing.parquet'" in done.stderr

    @pytest.mark.parametrize(
        "options",
        [
            ("--row", "3"),
            ("--row-group", "3"),
            ("--why", "f", "--analyze"),
        ],
    )
    def test_options_that_make_no_sense(self, run: Run, hive: Path, options: tuple[str, ...]) -> None:
        done = run("explain", hive, *options)
        assert (done.exit_code, done.stdout) == (Exit.USAGE, "")


class TestCount:
    @pytest.mark.parametrize(
        ("where", "count"),
        [
            (None, 1600),
            ("id > 1390", 18),
            ("year = 2025", 800),
            ("id % 2 = 0 and kind = 'a'", 400),
            ("false", 0),
        ],
    )
    def test_text(self, run: Run, hive: Path, where: str | None, count: int) -> None:
        done = run("count", hive, *([] if where is None else ["--where", where]))
        assert (done.exit_code, done.stdout, done.stderr) == (0, f"{count}\n", "")

    def test_json(self, run: Run, hive: Path) -> None:
        found = json.loads(run("count", hive, "--where", "id < 60", "--format", "json").stdout)
        assert found["count"] == 120
        assert found["from_metadata"] == 100
        assert found["tested"] == 100
        assert found["files"] == 4
        assert found["requests"] > 0
        assert found["bytes"] > 0
        assert found["seconds"] > 0
        found = json.loads(
            run("count", hive, "--where", "id < 60", "--format", "json", "--no-skipping").stdout
        )
        assert (found["count"], found["from_metadata"], found["tested"]) == (120, 0, 1600)


class TestVerify:
    def test_equal(self, run: Run, hive: Path) -> None:
        done = run("verify", hive, "--where", "id > 1390")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "no difference" in done.stdout
        found = json.loads(run("verify", hive, "--where", "id > 1390", "--format", "json").stdout)
        assert (found["ok"], found["rows_matching"]) == (True, 18)

    def test_different(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "liar.parquet"
        path.write_bytes(liar())
        assert run("verify", path, "--where", "id = 5").exit_code == Exit.DIFFERENT == 6
        done = run("verify", path, "--where", "id = 5", "--format", "json")
        assert done.exit_code == Exit.DIFFERENT
        assert json.loads(done.stdout)["ok"] is False
        assert run("verify", path, "--where", "id = 5000").exit_code == 0


def liar() -> bytes:
    """A file that holds 0 to 99 and whose footer, another file's, says 1000 to 1099."""

    def written(first: int) -> tuple[bytes, bytes]:
        sink = pa.BufferOutputStream()
        table = pa.table({"id": range(first, first + 100)})
        pq.write_table(table, sink, compression="none", use_dictionary=False)
        raw = sink.getvalue().to_pybytes()
        footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
        return raw[:footer], raw[footer:]

    (values, _), (others, footer) = written(0), written(1000)
    assert len(values) == len(others)
    return values + footer
