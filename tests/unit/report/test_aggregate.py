"""Aggregations drawn as text, HTML and JSON."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import replace

import pytest

from skipstone.report.html import ROOT, style
from skipstone.report.lines import width_of
from skipstone.report.trace import AggregateTrace, ColumnUse, LevelAnswer
from skipstone.report.units import shares
from tests.unit.report import _aggregates as samples
from tests.unit.report._drawing import (
    aggregate_to_html,
    aggregate_to_json,
    aggregate_to_page,
    draw_aggregate,
)
from tests.unit.report._samples import EVIL_TEXT
from tests.unit.report.test_html import TAGS, Reader

every_sample = pytest.mark.parametrize("trace", samples.ALL.values(), ids=samples.ALL)


def drawn(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


class TestText:
    def test_a_run(self) -> None:
        assert draw_aggregate(samples.RAN) == drawn("""
            s3://lake/events  ts >= '2026-01-02 12:00:00'
            │  count, sum(amount), avg(amount), quantile(device, 0.5) by country
            │  20 files, version b41f09c2
            │  index version 4 covers 20 of 20 files
            ├─ partitions  ████████████████░░░░  kept 4 of 5 (80 %), 3 proven, 1,600,000 rows
            │     1 dropped by partition  ts >= '2026-01-02 12:00:00'
            ├─ files       ███████████████████░  kept 15 of 16 (94 %), 14 proven, 1,500,000 rows
            │     1 dropped by bounds  ts >= '2026-01-02 12:00:00'
            ├─ row groups  ███████████████████░  kept 57 of 60 (95 %), 56 proven, 1,425,000 rows
            │     3 dropped by bounds  ts >= '2026-01-02 12:00:00'
            ├─ members     ████████░░░░░░░░░░░░  kept 24 of 57 row groups (42 %), 22 entirely inside
            │     user_id in 20,000 ids (1 run)
            │     not in 12 places of 3 files
            │     825,000 rows proven not to be members
            ├─ rows        ██████░░░░░░░░░░░░░░  600,000 of 2,000,000 rows may qualify (30 %)
            │     test  ts >= '2026-01-02 12:00:00'
            ├─ count       █▒▒▒▒▒▒░░░░░░░░░░░░░  reads 10,000 of 600,000 rows (1.7 %)
            │     from  4 files (400,000 rows), 6 row groups (150,000 rows), 16 pages (40,000 rows)
            │     why   the predicate is tested on rows of 1 row group
            │           ids of 1 row group are looked up one by one
            ├─ amount      █▒▒▒▒▒░░░░░░░░░░░░░░  reads 50,000 of 600,000 rows (8.3 %)
            │     for   sum(amount), avg(amount)
            │     from  4 files (400,000 rows), 6 row groups (150,000 rows)
            │     why   ids of 2 row groups are looked up one by one
            ├─ device      ██████░░░░░░░░░░░░░░  reads 600,000 rows
            │     for  quantile(device, 0.5)
            │     why  exact quantiles need every value
            └─ ran         598,112 rows read and aggregated on 2 threads, 84.1 ms
                  read 26 parts of row groups in 31 requests, 4.8 MB
                  phase     rows  requests   bytes     time
                  plan   600,000         0     0 B   4.2 ms
                  read   598,112        31  4.8 MB  71.2 ms
            █ read  ▒ answered from metadata  ░ skipped
            """)

    def test_a_plan_ends_at_the_last_column(self) -> None:
        lines = draw_aggregate(samples.PLANNED).splitlines()
        assert [line for line in lines if line.startswith("└─")] == [
            "└─ device      ██████░░░░░░░░░░░░░░  reads 600,000 rows"
        ]

    def test_everything_known(self) -> None:
        text = draw_aggregate(samples.KNOWN)
        assert "├─ population  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  12,000 rows answered from metadata\n" in text
        assert "│     from  1 file (12,000 rows)\n" in text
        assert "│     from  12,000 other rows\n" in text
        assert "all 12,000 rows may qualify\n" in text
        assert "└─ ran         0 rows read and aggregated on 1 thread, 400 µs\n" in text
        assert "why" not in text

    def test_nothing_is_taken_from_metadata(self) -> None:
        text = draw_aggregate(samples.READ)
        assert "│  use_cached is off: every row that may qualify is read\n" in text
        assert text.endswith("\nnotes: the groups are found in rows")

    def test_what_others_read_is_not_counted(self) -> None:
        assert samples.RAN.run is not None
        run = replace(samples.RAN.run, requests=0, bytes=0, engine="spark, 3 tasks", pieces=3, phases=())
        assert draw_aggregate(replace(samples.RAN, run=run)).splitlines()[-3:-1] == [
            "└─ ran         598,112 rows read and aggregated on spark, 3 tasks, 84.1 ms",
            "      in 3 parts, whose requests are not counted here",
        ]

    def test_an_empty_lake(self) -> None:
        assert draw_aggregate(samples.EMPTY) == drawn("""
            /data/empty  a = 1
            │  count
            │  0 files, version 0
            ├─ files    ░░░░░░░░░░░░░░░░░░░░  nothing to judge
            ├─ members  ░░░░░░░░░░░░░░░░░░░░  no row groups remain
            │     a in no ids
            ├─ rows     ░░░░░░░░░░░░░░░░░░░░  the lake has no files
            └─ count    ░░░░░░░░░░░░░░░░░░░░  no row counts
            █ read  ▒ answered from metadata  ░ skipped
            """)

    def test_no_row_counts(self) -> None:
        text = draw_aggregate(replace(samples.PLANNED, rows=0, columns=()))
        assert "└─ rows        ░░░░░░░░░░░░░░░░░░░░  none of 2,000,000 rows can count\n" in text
        assert "test" not in text

    @every_sample
    @pytest.mark.parametrize("width", [10, 40, 72, 100, 200])
    def test_never_wider_than_asked_for(self, trace: AggregateTrace, width: int) -> None:
        lines = draw_aggregate(trace, width=width).splitlines()
        # The legend is the one line of a fixed width.
        assert max(width_of(line) for line in lines if not line.startswith("█")) <= max(width, 40)
        assert len(lines) < 90

    @every_sample
    def test_control_characters_do_not_reach_the_terminal(self, trace: AggregateTrace) -> None:
        text = draw_aggregate(trace, width=400)
        assert all(line.isprintable() for line in text.split("\n"))

    def test_colour_only_when_asked_for(self) -> None:
        plain, colored = draw_aggregate(samples.RAN), draw_aggregate(samples.RAN, color=True)
        stripped = re.sub(r"\x1b\[[0-9]+m", "", colored)
        assert "\x1b" not in plain
        assert stripped != colored
        assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(
    ("parts", "cells", "found"),
    [
        ([1, 1, 10**9], 20, [1, 1, 18]),
        ([5, 5], 20, [10, 10]),
        ([1, 1, 1], 20, [7, 7, 6]),
        ([0, 0, 7], 20, [0, 0, 20]),
        ([1, 2, 3], 3, [1, 1, 1]),
        ([0, 0, 0], 20, [0, 0, 0]),
    ],
)
def test_shares_of_a_bar(parts: list[float], cells: int, found: list[int]) -> None:
    assert shares(parts, cells) == found


class TestHtml:
    @every_sample
    def test_parses_and_uses_known_tags_only(self, trace: AggregateTrace) -> None:
        for page in (aggregate_to_html(trace), aggregate_to_page(trace)):
            read = Reader(page)
            assert set(read.tags) <= TAGS
            assert not re.search(r"<(script|link|img|iframe)|url\(|@import", page)
            classes = {part for name, value in read.attributes if name == "class" for part in value.split()}
            assert classes - {ROOT} <= set(re.findall(rf"{ROOT}-[a-z]+", style()))

    def test_what_users_and_files_say_stays_text(self) -> None:
        page = aggregate_to_page(samples.EVIL, title=EVIL_TEXT)
        shown = EVIL_TEXT.encode("unicode_escape").decode()
        # Title, lake, version, predicate, function, group, level, condition, set, residual, column, function,
        # why, engine twice, phase, not judged, notes three times.
        assert sum(text.count(shown) for text in Reader(page).texts) == 20
        page.encode()

    def test_every_colour_is_defined(self) -> None:
        used = set(re.findall(rf"var\((--{ROOT}-[a-z]+)\)", aggregate_to_html(samples.RAN)))
        assert {f"--{ROOT}-{name}" for name in ("files", "groups", "pages", "kept", "line")} <= used
        for name in used:
            assert re.search(rf"{name}: light-dark\(#\w+, #\w+\);", style())

    def test_bars_add_up_to_the_rows_looked_at(self) -> None:
        page = aggregate_to_html(samples.RAN).partition(">members</div>")[2].partition(">count</div>")[2]
        bars = re.findall(r'<div class="skst-bar"[^>]*>(.*?)</div>', page)
        assert len(bars) == len(samples.RAN.columns)
        for bar in bars:
            assert sum(map(int, re.findall(r"flex-grow:(\d+)", bar))) == samples.RAN.scan.rows

    def test_the_facts_are_there(self) -> None:
        text = Reader(aggregate_to_html(samples.RAN)).text
        for fact in (
            "count, sum(amount), avg(amount), quantile(device, 0.5) by country",
            "600,000 of 2,000,000 rows may qualify (30 %)",
            "kept 24 of 57 row groups (42 %), 22 entirely inside",
            "user_id in 20,000 ids (1 run)",
            "reads 50,000 of 600,000 rows (8.3 %)",
            "4 files (400,000 rows), 6 row groups (150,000 rows)",
            "answered from row groups",
            "exact quantiles need every value",
            "598,112 rows read and aggregated on 2 threads, 84.1 ms",
            "read 26 parts of row groups in 31",
        ):
            assert fact in text

    def test_page(self) -> None:
        page = aggregate_to_page(samples.KNOWN)
        assert "<title>Aggregation</title>" in page
        assert aggregate_to_html(samples.KNOWN) in page


class TestJson:
    def test_every_fact_is_there(self) -> None:
        found = json.loads(json.dumps(aggregate_to_json(samples.RAN)))
        scan, columns = found.pop("scan"), found.pop("columns")
        assert scan["lake"] == "s3://lake/events"
        assert found == {
            "functions": ["count", "sum(amount)", "avg(amount)", "quantile(device, 0.5)"],
            "group_by": ["country"],
            "cached": True,
            "rows": 600_000,
            "members": {
                "sets": ["user_id in 20,000 ids (1 run)", "not in 12 places of 3 files"],
                "row_groups": 57,
                "outside": 33,
                "inside": 22,
                "partly": 2,
                "rows_outside": 825_000,
            },
            "run": {
                "engine": "2 threads",
                "rows": 598_112,
                "pieces": 26,
                "seconds": 0.0841,
                "requests": 31,
                "bytes": 4_812_113,
                "phases": [
                    {"name": "plan", "rows": 600_000, "requests": 0, "bytes": 0, "seconds": 0.0042},
                    {"name": "read", "rows": 598_112, "requests": 31, "bytes": 4_812_113, "seconds": 0.0712},
                ],
                "bytes_transferred": 0,
            },
            "notes": [],
        }
        assert columns[0]["column"] is None
        assert columns[1] == {
            "column": "amount",
            "functions": ["sum(amount)", "avg(amount)"],
            "rows_known": 550_000,
            "rows_read": 50_000,
            "answered": [
                {"level": "files", "units": 4, "rows": 400_000},
                {"level": "row groups", "units": 6, "rows": 150_000},
            ],
            "why": ["ids of 2 row groups are looked up one by one"],
        }

    @every_sample
    def test_keys_are_the_same_for_every_aggregation(self, trace: AggregateTrace) -> None:
        found = aggregate_to_json(trace)
        assert json.loads(json.dumps(found)) == found
        assert list(found) == list(aggregate_to_json(samples.RAN))


def test_known_rows_of_a_column() -> None:
    use = ColumnUse("x", (), (LevelAnswer("files", 2, 5), LevelAnswer("pages", 1, 3)), 7, ())
    assert use.rows_answered == 8
