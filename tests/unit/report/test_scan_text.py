"""Snapshots of the drawn scan."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace

import pytest

from skipstone.report.lines import width_of
from skipstone.report.trace import Cause, Drop, IndexUse, Level, Reads, ScanTrace, Trace
from tests.unit.report import _samples as samples
from tests.unit.report._drawing import draw_scan, draw_trace


def drawn(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_analyzed() -> None:
    assert draw_scan(samples.ANALYZED) == drawn("""
        s3://lake/events  country = 'DE' AND user_id = 42 AND ts >= '2026-01-01'
        │  4,380 files, version b41f09c2, columns user_id, ts, amount, country, payload
        ├─ partitions     ██░░░░░░░░░░░░░░░░░░  kept 31 of 365 (8.5 %)
        │     334 dropped by partition  country = 'DE'
        ├─ files          █████░░░░░░░░░░░░░░░  kept 96 of 372 (26 %), 2 proven, 48,000,000 rows
        │     251 dropped by bounds  ts >= '2026-01-01'
        │      22 dropped by bounds  user_id = 42
        │       3 dropped by nulls   user_id = 42
        │     metadata read: 96 requests, 6.3 MB
        ├─ row groups     █░░░░░░░░░░░░░░░░░░░  kept 24 of 480 (5 %), 3 proven, 2,400,000 rows
        │     456 dropped by bounds  user_id = 42
        ├─ bloom filters  ████████░░░░░░░░░░░░  kept 9 of 24 (38 %), 3 proven, 900,000 rows
        │     15 dropped by bloom filter  user_id = 42
        │     metadata read: 24 requests, 786.4 kB
        ├─ dictionaries   ██████████████████░░  kept 8 of 9 (89 %), 3 proven, 800,000 rows
        │     1 dropped by dictionary  user_id = 42
        │     metadata read: 9 requests, 65.5 kB
        ├─ pages          ██░░░░░░░░░░░░░░░░░░  kept 31 of 410 (7.6 %), 4 proven, 61,000 rows
        │     379 dropped by page index  user_id = 42
        │     metadata read: 14 requests, 213.0 kB
        ├─ read           █░░░░░░░░░░░░░░░░░░░  1.7 MB of 9.7 GB (<0.1 %)
        │     from  7 of 4,380 files, about 38 requests
        │     rows  61,000 of 48,000,000 rows looked at may match (0.1 %), 9,000 proven
        │     test  user_id = 42 AND ts >= '2026-01-01'
        │     how   late: about 1 row in 2,000 matches, and 3 columns can wait
        │     with  4 threads, route slice, batches of up to 65,536 rows
        │     cost  metadata read: 143 requests, 7.4 MB
        └─ ran            212 rows in 7 batches, 418 ms
              read 11 parts of row groups in 35 requests, 1.7 MB
              phase                rows  requests     bytes     time
              plan               61,000       143    7.4 MB   257 ms
              predicate columns     212        22    1.2 MB   110 ms
              other columns         212        13  497.9 kB  43.1 ms
        notes: part-00017.parquet, row group 2, column ts: statistics ignored: min is above max
               index: stale for 3 files, read from their footers
        """)


def test_limit_and_order_on_a_narrow_screen() -> None:
    assert draw_scan(samples.TOP, width=72) == drawn("""
        warehouse.db.events  amount > 100
        │  40 files, version 7312206612, columns id, amount
        ├─ files  █░░░░░░░░░░░░░  kept 1 of 40 (2.5 %), 100,000 rows
        │     39 dropped by bounds  amount > 100
        │     metadata read: 1 request, 20.5 kB
        └─ read   █░░░░░░░░░░░░░  900.0 kB of 64.0 MB (1.4 %)
              from   1 of 40 files, about 2 requests
              rows   100,000 of 4,000,000 rows may match (2.5 %), 50,000 proven
              test   amount > 100
              how    late
              with   1 thread, route slice, batches of up to 1,024 rows
              limit  10 rows
              order  amount DESC, id
              cost   metadata read: 1 request, 20.5 kB
        not prunable: soundex(name) = 'M600': soundex can't be judged by
                        metadata
        """)


def test_a_plan_alone_ends_at_the_read() -> None:
    lines = draw_scan(samples.HIVE).splitlines()
    assert not any("ran " in line for line in lines)
    assert sum(line.startswith("└─ read ") for line in lines) == 1
    assert sum(line.startswith("├─ ") for line in lines) == len(samples.HIVE.levels)


def test_no_predicate_reads_every_row() -> None:
    text = draw_scan(samples.EVERYTHING)
    assert text.splitlines()[0] == "/data/cities.parquet  every row"
    assert "rows  all 12,000 rows\n" in text
    assert "test  none: every row is proven to match\n" in text
    assert "read        ████████████████████  240.0 kB of 240.0 kB (100 %)" in text


def test_empty_lake() -> None:
    assert draw_scan(samples.EMPTY) == drawn("""
        /data/empty  a = 1
        │  0 files, version 0, no columns
        ├─ files  ░░░░░░░░░░░░░░░░░░░░  nothing to judge
        └─ read   nothing to read
              rows  the lake has no files
        """)


def test_nothing_kept() -> None:
    assert draw_scan(samples.NOTHING) == drawn("""
        /data/events  day = '1999-01-01'
        │  120 files, version 77, columns day
        ├─ partitions  ░░░░░░░░░░░░░░░░░░░░  kept 0 of 30 (0 %)
        │     30 dropped by partition  day = '1999-01-01'
        ├─ files       ░░░░░░░░░░░░░░░░░░░░  nothing to judge
        ├─ read        nothing to read
        │     rows  no rows remain
        └─ ran         0 rows in 0 batches, 400 µs
              read nothing in 0 requests, 0 B
        """)


def test_unknown_rows_are_left_out() -> None:
    level = Level("files", 3, 2, 0, None, (Drop(Cause.BOUNDS, "a = 1", 1),))
    for text in (
        draw_scan(replace(samples.HIVE, levels=(level,))),
        draw_trace(Trace("f", "a = 1", 3, 2, 0, (level,))),
    ):
        assert "kept 2 of 3 (67 %)\n" in text
        assert "None" not in text


def test_rows_dropped_unseen_are_not_part_of_the_whole() -> None:
    assert "of 48,000,000 rows looked at may match" in draw_scan(samples.HIVE)
    known = replace(samples.HIVE, levels=samples.HIVE.levels[1:])
    assert "of 48,000,000 rows may match" in draw_scan(known)


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        (None, "└─ read           7 of 4,380 files"),
        (Reads(1, 500, 0), "└─ read           500 B"),
        (Reads(1, 500, 400), "└─ read           ████████████████████  500 B of 400 B (125 %)"),
    ],
)
def test_reads_that_are_not_a_share(reads: Reads | None, said: str) -> None:
    assert said in draw_scan(replace(samples.HIVE, reads=reads)).splitlines()


def test_a_level_says_what_it_cost_only_if_it_did() -> None:
    text = draw_scan(samples.HIVE)
    costly = [level for level in samples.HIVE.levels if level.requests]
    assert len(re.findall(r"^│     metadata read: ", text, re.MULTILINE)) == len(costly) == 4


@pytest.mark.parametrize("width", [10, 40, 72, 100, 140, 200])
@pytest.mark.parametrize("trace", samples.ALL.values(), ids=samples.ALL)
def test_never_wider_than_asked_for(trace: ScanTrace, width: int) -> None:
    lines = draw_scan(trace, width=width).splitlines()
    assert max(map(width_of, lines)) <= max(width, 40)
    assert len(lines) < 60


def test_counts_wider_than_a_narrow_screen() -> None:
    drops = tuple(Drop(Cause.BLOOM, "a = 1", 10**18) for _ in range(9))
    trace = replace(samples.TOP, levels=(Level("pages", 10**20, 10**19, 10**18, 10**19, drops, 10**18),))
    assert max(map(width_of, draw_scan(trace, width=40).splitlines())) == 40


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = draw_scan(samples.EVIL, width=400)
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"&amp;\x1b[2J\u202e\n\ud800" in text
    text.encode()


def test_colour_only_when_asked_for() -> None:
    plain, colored = draw_scan(samples.ANALYZED), draw_scan(samples.ANALYZED, color=True)
    assert "\x1b" not in plain
    stripped = re.sub(r"\x1b\[[0-9]+m", "", colored)
    assert stripped != colored
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


class TestIndex:
    """The line that tells what the index knew, and notes on what of it was not used."""

    @pytest.mark.parametrize(
        ("use", "line"),
        [
            (IndexUse("ix", 3, 4_378), "│  index version 3 covers 4,378 of 4,380 files"),
            (IndexUse("ix", 1_200, 0), "│  index version 1,200 covers none of 4,380 files"),
            (IndexUse("ix", 0, 0, ("manifest is damaged",)), "│  the index is not used"),
        ],
    )
    def test_line(self, use: IndexUse, line: str) -> None:
        lines = draw_scan(replace(samples.HIVE, index=use)).splitlines()
        assert lines[2] == line
        assert [*lines[:2], *lines[3 : 3 + 24]] == draw_scan(samples.HIVE).splitlines()[:26]

    def test_problems_are_notes(self) -> None:
        problems = ("segment-1f.skip: segment is damaged", "manifest is damaged")
        drawn = draw_scan(replace(samples.HIVE, index=IndexUse("ix", 3, 7, problems)))
        assert "notes: index: segment-1f.skip ignored: segment is damaged\n" in drawn
        assert "       index ignored: manifest is damaged\n       part-00017" in drawn

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_it_fits(self, width: int) -> None:
        use = IndexUse("ix", 10**9, 10**9, ("segment-" + "f" * 200 + ": broken",))
        drawn = draw_scan(replace(samples.HIVE, index=use), width=width)
        assert max(map(width_of, drawn.splitlines())) <= width
