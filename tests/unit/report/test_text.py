"""Snapshots of the drawn trace."""

from __future__ import annotations

import re
import textwrap

import pytest

from skipstone.report.lines import width_of
from skipstone.report.trace import Cause, Drop, Level, Note, Trace
from tests.unit.report._drawing import draw_trace

CASCADE = Trace(
    path="f.parquet",
    predicate="user_id = 42 AND ts >= '2026-01-01'",
    rows=1_000_000,
    rows_kept=11_000,
    rows_whole=10_000,
    levels=(
        Level(
            "row groups",
            units=100,
            kept=4,
            whole=1,
            rows=40_000,
            drops=(
                Drop(Cause.NULLS, "ts >= '2026-01-01'", 9),
                Drop(Cause.BOUNDS, "user_id = 42", 87),
            ),
            requests=1,
            bytes=65_536,
        ),
        Level(
            "bloom filters",
            units=4,
            kept=2,
            whole=1,
            rows=20_000,
            drops=(Drop(Cause.BLOOM, "user_id = 42", 2),),
            requests=1,
            bytes=4_096,
        ),
        Level("pages", units=10, kept=1, whole=0, rows=1_000, drops=(Drop(Cause.PAGE, "user_id = 42", 9),)),
    ),
)


def drawn(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_whole_cascade() -> None:
    assert draw_trace(CASCADE) == drawn("""
        f.parquet  user_id = 42 AND ts >= '2026-01-01'
        ├─ row groups     █░░░░░░░░░░░░░░░░░░░  kept 4 of 100 (4 %), 1 proven, 40,000 rows
        │     87 dropped by bounds  user_id = 42
        │      9 dropped by nulls   ts >= '2026-01-01'
        ├─ bloom filters  ██████████░░░░░░░░░░  kept 2 of 4 (50 %), 1 proven, 20,000 rows
        │     2 dropped by bloom filter  user_id = 42
        └─ pages          ██░░░░░░░░░░░░░░░░░░  kept 1 of 10 (10 %), 1,000 rows
              9 dropped by page index  user_id = 42
        11,000 of 1,000,000 rows may match (1.1 %), 10,000 proven · metadata read: 2 requests, 69.6 kB
        """)


def test_narrow_screen_leaves_facts_out_whole() -> None:
    assert draw_trace(CASCADE, width=50) == drawn("""
        f.parquet  user_id = 42 AND ts >= '2026-01-01'
        ├─ row groups     █░░░░░░░░░  kept 4 of 100 (4 %)
        │     87 dropped by bounds  user_id = 42
        │      9 dropped by nulls   ts >= '2026-01-01'
        ├─ bloom filters  █████░░░░░  kept 2 of 4 (50 %)
        │     2 dropped by bloom filter  user_id = 42
        └─ pages          █░░░░░░░░░  kept 1 of 10 (10 %)
              9 dropped by page index  user_id = 42
        11,000 of 1,000,000 rows may match (1.1 %), 10,00…
        metadata read: 2 requests, 69.6 kB
        """)


def test_empty_file() -> None:
    trace = Trace("e.parquet", "a = 1", 0, 0, 0, (Level("row groups", 0, 0, 0, 0, requests=1, bytes=300),))
    assert draw_trace(trace) == drawn("""
        e.parquet  a = 1
        └─ row groups  ░░░░░░░░░░░░░░░░░░░░  nothing to judge
        the file has no rows · metadata read: 1 request, 300 B
        """)


def test_no_levels() -> None:
    assert draw_trace(Trace("f", "TRUE", 1, 1, 1, ())) == drawn("""
        f  TRUE
        1 of 1 row may match (100 %), 1 proven · metadata read: 0 requests, 0 B
        """)


def test_nothing_left() -> None:
    level = Level("row groups", 2, 0, 0, 0, (Drop(Cause.CONSTANT, "FALSE", 2),))
    assert draw_trace(Trace("f", "1 = 0", 20, 0, 0, (level,))) == drawn("""
        f  1 = 0
        └─ row groups  ░░░░░░░░░░░░░░░░░░░░  kept 0 of 2 (0 %)
              2 dropped by constant  FALSE
        none of 20 rows can match · metadata read: 0 requests, 0 B
        """)


def test_many_drops_name_the_largest() -> None:
    drops = tuple(Drop(Cause.BOUNDS, f"c{i} = {i}", i) for i in range(1, 8))
    level = Level("row groups", 30, 2, 0, 200, drops)
    assert draw_trace(Trace("f", "p", 3_000, 200, 0, (level,))) == drawn("""
        f  p
        └─ row groups  █░░░░░░░░░░░░░░░░░░░  kept 2 of 30 (6.7 %), 200 rows
              7 dropped by bounds  c7 = 7
              6 dropped by bounds  c6 = 6
              5 dropped by bounds  c5 = 5
              … 4 more reasons
        200 of 3,000 rows may match (6.7 %), 0 proven · metadata read: 0 requests, 0 B
        """)


def test_diagnostics_and_notes() -> None:
    trace = Trace(
        "f",
        "sin(x) > 0",
        10,
        10,
        0,
        (),
        notes=tuple(Note(f"row group {i}, column x", "page index ignored: pages overlap") for i in range(9)),
        unsupported=("sin(x) > 0: sin can't be looked through here (a function that is not monotone)",),
    )
    assert draw_trace(trace, width=60) == drawn("""
        f  sin(x) > 0
        10 of 10 rows may match (100 %), 0 proven
        metadata read: 0 requests, 0 B
        not prunable: sin(x) > 0: sin can't be looked through here
                        (a function that is not monotone)
        notes: row group 0, column x: page index ignored: pages
                 overlap
               row group 1, column x: page index ignored: pages
                 overlap
               row group 2, column x: page index ignored: pages
                 overlap
               row group 3, column x: page index ignored: pages
                 overlap
               row group 4, column x: page index ignored: pages
                 overlap
               4 more
        """)


def test_long_predicate_and_path_keep_the_file_name() -> None:
    condition = "id IN (" + ", ".join(map(str, range(500))) + ")"
    level = Level("row groups", 2, 1, 0, 5, (Drop(Cause.BOUNDS, condition, 1),))
    text = draw_trace(
        Trace("/a/very/long/way/to/the/file/f.parquet", condition, 10, 5, 0, (level,)), width=80
    )
    assert "file/f.parquet  id IN (0, 1, 2" in text.splitlines()[0]
    assert text.splitlines()[0].startswith("…")
    assert text.splitlines()[2].endswith("…")
    assert all(width_of(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("width", [10, 40, 60, 80, 120, 200])
def test_never_wider_than_asked_for(width: int) -> None:
    trace = Trace(
        "/data/日本語/ファイル.parquet",
        "name = '" + "値" * 90 + "'",
        10**12,
        10**11,
        10**10,
        CASCADE.levels,
        notes=(Note("u", "値" * 200),),
        unsupported=("x " * 100,),
    )
    assert all(width_of(line) <= max(width, 40) for line in draw_trace(trace, width=width).splitlines())


def test_control_characters_do_not_reach_the_terminal() -> None:
    trace = Trace("a\x1b[2Jb", "c = 'x\ny\r\x07'", 1, 1, 0, (), notes=(Note("u\x1b", "r\x9b"),))
    text = draw_trace(trace)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert text.splitlines()[0] == r"a\x1b[2Jb  c = 'x\ny\r\x07'"


def test_colour_only_when_asked_for() -> None:
    plain = draw_trace(CASCADE)
    colored = draw_trace(CASCADE, color=True)
    assert "\x1b" not in plain
    assert "\x1b[32m█\x1b[0m" in colored
    stripped = re.sub(r"\x1b\[[0-9]+m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()
