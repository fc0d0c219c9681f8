"""Snapshots of the drawn status and report of an index."""

from __future__ import annotations

import json
import pickle
import textwrap
from dataclasses import replace

import pyarrow as pa
import pytest

from skipstone.index.results import (
    BuildOptions,
    ColumnStatus,
    IndexReport,
    IndexStatus,
    Origins,
    SegmentStatus,
    Sizes,
    SkippedFile,
)
from skipstone.index.views import build_tree, status_tree
from skipstone.report.lines import width_of
from skipstone.report.text import to_text
from skipstone.report.units import ago
from tests.unit.report.test_html import TAGS, Reader

USER = ColumnStatus(
    "user_id", pa.int64(), Origins(page_index=98), Sizes(34, 900, 1_200, 40_000, 2_600_000, offsets=9_000)
)
AMOUNT = ColumnStatus(
    "place.amount", pa.float64(), Origins(footer=20, values=78), Sizes(34, 700, 900, sums=4_000)
)
SEGMENT = SegmentStatus("segment-" + "0f" * 16 + ".skip", 101, 3, 2_700_000, 1_000_000.0)
STATUS = IndexStatus(
    lake="s3://lake/events",
    location="s3://lake/events/_skipstone",
    version=3,
    format=1,
    written=1_000_000.0,
    taken=1_007_300.0,
    files=100,
    covered=98,
    stale=3,
    stale_such_as=("a.parquet (deleted)", "b.parquet (changed)"),
    unknown_such_as=("b.parquet", "c.parquet"),
    segments=(SEGMENT,),
    sizes=Sizes(68, 1_600, 2_100, 40_000, 2_600_000, 4_000, 0, 40_000, 12_000, 232),
    columns=(USER, AMOUNT),
    data_bytes=44_600_000,
    old_bytes=30_000,
    options=BuildOptions(("user_id", "place.amount"), True, ("user_id",), True, (), ("place.amount",), ()),
    problems=(),
)
NONE = replace(
    STATUS, version=0, covered=0, stale=0, stale_such_as=(), unknown_such_as=(), segments=(), sizes=Sizes(),
    columns=(), old_bytes=0, options=BuildOptions(),
)  # fmt: skip


def drawn(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_text() -> None:
    assert str(STATUS) == drawn("""
        s3://lake/events/_skipstone  version 3, format 1, written 2 h ago
        ├─ files    ███████████████████░  98 of 100 indexed
        │     not indexed  2 files: b.parquet, c.parquet
        │     stale        3 entries, such as a.parquet (deleted), b.parquet (changed)
        ├─ size     █░░░░░░░░░░░░░░░░░░░  2.7 MB, 6.1 % of the lake's 44.6 MB
        │     bloom filters      ███████████████████░  2.6 MB (96 %)
        │     pages              █░░░░░░░░░░░░░░░░░░░  40.0 kB (1.5 %)
        │     chunk offsets      █░░░░░░░░░░░░░░░░░░░  40.0 kB (1.5 %)
        │     file names         █░░░░░░░░░░░░░░░░░░░  12.0 kB (0.4 %)
        │     sums               █░░░░░░░░░░░░░░░░░░░  4.0 kB (0.1 %)
        │     row groups         █░░░░░░░░░░░░░░░░░░░  2.1 kB (<0.1 %)
        │     file-level stats   █░░░░░░░░░░░░░░░░░░░  1.6 kB (<0.1 %)
        │     index metadata     █░░░░░░░░░░░░░░░░░░░  232 B (<0.1 %)
        │     block-level stats  █░░░░░░░░░░░░░░░░░░░  68 B (<0.1 %)
        │     and 30.0 kB of merged segments and earlier versions, for readers that use them
        └─ options  user_id, place.amount; down to pages; bloom filters of the files; bloom filters built
                    for user_id; sums of place.amount

        column        type    source                    bounds    pages  filters  extras    size
        user_id       int64   page index                2.1 kB  49.0 kB   2.6 MB       –  2.7 MB
        place.amount  double  footer 20 %, values 80 %  1.6 kB        –        –  4.0 kB  5.6 kB

        segment                                        files  stale    size
        segment-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f.skip    101      3  2.7 MB

        next: refresh the index: lake.index.refresh(), or skipstone index refresh
        """)


def test_no_index_says_what_to_do() -> None:
    assert str(NONE) == drawn("""
        s3://lake/events/_skipstone  no index
        next: build the index: lake.index.build(), or skipstone index build
        """)
    assert not NONE.exists


def test_an_index_that_can_not_be_used() -> None:
    assert str(replace(NONE, problems=("manifest is damaged",))) == drawn("""
        s3://lake/events/_skipstone  the index can't be used
        ignored: manifest is damaged
        next: rebuild the index: lake.index.build(rebuild=True), or skipstone index build --rebuild
        """)


def test_nothing_to_do_is_not_said() -> None:
    whole = replace(STATUS, covered=100, stale=0, unknown_such_as=(), stale_such_as=())
    assert whole.next_step == ""
    assert str(whole).endswith("2.7 MB")


def test_problems_come_before_what_is_missing() -> None:
    broken = replace(STATUS, problems=("segment-1f.skip: segment is missing",))
    assert str(broken).splitlines()[-2] == "ignored: segment-1f.skip: segment is missing"
    assert "--rebuild" in broken.next_step


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_it_fits(width: int) -> None:
    long = replace(
        STATUS,
        location="s3://" + "x" * 300,
        columns=(replace(USER, name="n" * 90, type=pa.struct([("a" * 50, pa.int8())])), AMOUNT),
        problems=("y" * 400,),
        options=replace(STATUS.options, columns=tuple(f"column_{i}" for i in range(300))),
    )
    lines = to_text(status_tree(long), width).splitlines()
    assert max(map(width_of, lines)) <= width
    assert len(lines) < 50


def test_many_are_counted() -> None:
    many = replace(STATUS, columns=(USER,) * 100, segments=(SEGMENT,) * 20)
    assert "… 60 more columns" in str(many)
    assert "… 12 more segments" in str(many)


def test_control_characters_are_made_visible() -> None:
    odd = replace(STATUS, unknown_such_as=("a\x1b[31m",), columns=(replace(USER, name="n\n"),))
    assert "\x1b" not in str(odd)
    assert "n\\n" in str(odd)


def test_json() -> None:
    told = json.loads(json.dumps(STATUS.to_json()))
    assert (told["exists"], told["version"], told["written"]) == (True, 3, "1970-01-12T13:46:40+00:00")
    assert (told["files"], told["covered"], told["unknown"], told["stale"]) == (100, 98, 2, 3)
    assert told["bytes"]["total"] == STATUS.sizes.total == 2_700_000
    assert told["columns"][1]["origins"] == {"footer": 20, "page_index": 0, "values": 78, "nowhere": 0}
    assert told["columns"][1]["bytes"]["sums"] == 4_000
    assert told["options"]["blooms"] == ["user_id"]
    told = NONE.to_json()
    assert (told["exists"], told["written"], told["options"]) == (False, None, None)


def test_html() -> None:
    read = Reader(replace(STATUS, location="<ix>", problems=("it < that",))._repr_html_())
    assert {"<ix>", "it < that", "98 of 100 indexed", "2 files: b.parquet, c.parquet"} <= set(read.texts)
    assert set(read.tags) <= TAGS
    assert "no index" in Reader(NONE._repr_html_()).texts


def test_columns_by_name() -> None:
    assert STATUS["place.amount"] is AMOUNT
    with pytest.raises(KeyError, match=r"indexed columns are user_id, place\.amount"):
        STATUS["nope"]


def test_it_travels() -> None:
    assert pickle.loads(pickle.dumps(STATUS)) == STATUS


def test_ages() -> None:
    assert ago(-5) == "just now"
    assert [ago(59.9), ago(60), ago(3_599), ago(86_400), ago(172_800)] == [
        *("59 s ago", "1 min ago", "59 min ago", "24 h ago", "2 days ago")
    ]


def test_origins() -> None:
    assert str(Origins()) == "–"
    assert str(Origins(footer=3, nowhere=1)) == "footer 75 %, none 25 %"


class TestReport:
    REPORT = IndexReport(4, 2, 98, 2, 0, 3, 6, 412_900, 0.073)

    @pytest.mark.parametrize(
        ("report", "text"),
        [
            (
                REPORT,
                """
                indexed 2 files, 98 already indexed; 2 files deleted or changed
                read 412.9 kB in 6 requests, 73.0 ms; version 4 has 3 segments
                """,
            ),
            (
                IndexReport(1, 1, 0, 0, 0, 1, 3, 9_000, 0.5, merged=8),
                """
                indexed 1 file
                read 9.0 kB in 3 requests, 500 ms; version 1 has 1 segment, 8 merged
                """,
            ),
            (
                IndexReport(7, 0, 20, 0, 0, 1, 0, 0, 0.5),
                """
                nothing to do: 20 files already indexed
                500 ms; version 7 has 1 segment
                """,
            ),
            (
                IndexReport(7, 0, 9, 0, 5, 1, 0, 0, 0.5),
                """
                indexed 0 files, 9 already indexed; 5 files reused from an earlier job
                500 ms; version 7 has 1 segment
                """,
            ),
            (
                IndexReport(2, 0, 0, 0, 0, 0, 1, 8, 0.5, (SkippedFile("a.parquet", "file is not Parquet"),)),
                """
                indexed 0 files; 1 file could not be indexed
                read 8 B in 1 request, 500 ms; version 2 has 0 segments
                not indexed: a.parquet: file is not Parquet
                """,
            ),
            (
                IndexReport(1, 0, 0, 0, 0, 0, 0, 0, 0.5),
                """
                indexed 0 files
                500 ms; version 1 has 0 segments
                """,
            ),
        ],
    )
    def test_text(self, report: IndexReport, text: str) -> None:
        assert str(report) == drawn(text)

    def test_it_fits(self) -> None:
        report = replace(self.REPORT, skipped=(SkippedFile("x" * 200, "y" * 200),) * 30)
        lines = to_text(build_tree(report), 80).splitlines()
        assert max(map(width_of, lines)) <= 80
        assert lines[-1].endswith("25 more")

    def test_json(self) -> None:
        told = replace(self.REPORT, skipped=(SkippedFile("a", "b"),)).to_json()
        assert (told["version"], told["indexed"], told["skipped"]) == (4, 2, [{"path": "a", "reason": "b"}])
