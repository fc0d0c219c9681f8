"""Snapshots of drawn advice."""

from __future__ import annotations

import json
import shlex
import textwrap
from dataclasses import replace

import pyarrow as pa
import pytest

from skipstone.index.advise.advice import Advice, ColumnAdvice, LayoutAdvice, RefusedQuery
from skipstone.index.views import advice_tree
from skipstone.report.lines import width_of
from skipstone.report.text import to_text

TS = ColumnAdvice(
    name="ts",
    type=pa.timestamp("us"),
    used=12,
    skip_files=0.9,
    skip_row_groups=0.95,
    skip_pages=0.97,
    skip_with_bloom=None,
    index_bytes=8_700,
    bloom_bytes=655_400,
    index=True,
    bloom=False,
    why="index: bounds skip 97 %",
)
DEVICE = replace(
    TS,
    name="device",
    type=pa.int64(),
    used=2.5,
    skip_files=0.0,
    skip_row_groups=0.0,
    skip_pages=0.001,
    skip_with_bloom=0.98,
    index=False,
    bloom=True,
    why="bloom: +98 %",
)
DAY = replace(
    TS, name="day", type=pa.date32(), used=0, skip_pages=None, index_bytes=0, bloom_bytes=0, index=False,
    why="partition column, needs no index",
)  # fmt: skip
ADVICE = Advice(
    lake="s3://lake/events",
    version="b41f09c2",
    files=4_380,
    sampled=64,
    rows=438_000_000,
    sampled_rows=100_000,
    understood=13,
    refused=(RefusedQuery(7, "nope = 3", "column nope: there is no such column"),),
    synthetic=False,
    is_table=False,
    partition_by=("day",),
    skips=0.38,
    by_column=(TS, DEVICE, DAY),
    layouts=(
        LayoutAdvice(("device",), "sort", 0.38, 0.97),
        LayoutAdvice(("device", "ts"), "zorder", 0.38, 0.73),
    ),
)
NOTHING = replace(ADVICE, by_column=(), layouts=(), refused=(), synthetic=True, understood=0)


def test_drawn() -> None:
    assert str(ADVICE) == textwrap.dedent("""\
        Index ts (8.7 kB); add a bloom filter on device (655.4 kB); sort by device to read 21 × less.
        s3://lake/events: 13 queries, 1 not parsed; 38 % skipped today; sampled 64 of 4,380 files and 100,000 of 438,000,000
        rows

        column  type           queries  files  row groups  pages  bloom   index   filters  why
        ts      timestamp[us]       12   90 %        95 %   97 %      –  8.7 kB  655.4 kB  index: bounds skip 97 %
        device  int64              2.5    0 %         0 %  0.1 %   98 %  8.7 kB  655.4 kB  bloom: +98 %
        day     date                 –   90 %        95 %      –      –       –         –  partition column, needs no index

        layout                 skips today  would skip  reads
        sort by device                38 %        97 %  21 × less
        Z-order by device, ts         38 %        73 %  2.3 × less

        skipstone index build s3://lake/events --columns ts --blooms device
        skipstone ingest s3://lake/events NEW_LAKE --partition-by day --cluster-by device

        Percentages are shares of rows skipped: today's are measured on the bounds of the sampled files, those of a layout on
        the sampled rows in that order, with pages and row groups of the current size.
        not parsed: 7: nope = 3: column nope: there is no such column""")  # noqa: E501


def test_nothing_to_advise() -> None:
    text = str(NOTHING)
    assert text.startswith("Neither an index nor another order of rows would help these queries.")
    assert "no queries: tried values and ranges" in text
    assert NOTHING.commands == ()
    assert "skipstone" not in text


def test_commands_are_quoted_and_never_cut() -> None:
    named = replace(TS, name="n o; rm -rf " + "x" * 200)
    curve = LayoutAdvice(("a", "b c"), "zorder", 0.1, 0.9)
    odd = replace(ADVICE, lake="/my lake", partition_by=(), by_column=(named,), layouts=(curve,))
    build, ingest = odd.commands
    assert shlex.split(build) == ["skipstone", "index", "build", "/my lake", "--columns", named.name]
    assert shlex.split(ingest) == [
        "skipstone", "ingest", "/my lake", "NEW_LAKE", "--cluster-by", "a,b c", "--cluster", "zorder",
    ]  # fmt: skip
    lines = to_text(advice_tree(odd), 60).splitlines()
    assert build in lines
    assert ingest in lines
    assert "<pre>" in odd._repr_html_()
    build, compact = replace(odd, is_table=True, arguments=("db.t", "--catalog", "wh")).commands
    assert shlex.split(compact) == [
        "skipstone", "compact", "db.t", "--catalog", "wh", "--strategy", "zorder", "--sort-by", "a,b c",
        "--rewrite-all",
    ]  # fmt: skip
    table = ["db.t", "--catalog", "wh"]
    assert shlex.split(build) == ["skipstone", "index", "build", *table, "--columns", named.name]


def test_names_to_build_with() -> None:
    assert (ADVICE.columns, ADVICE.blooms) == (("ts",), ("device",))
    assert ADVICE["device"] is DEVICE
    with pytest.raises(KeyError, match="nope"):
        ADVICE["nope"]


def test_factor() -> None:
    assert LayoutAdvice(("a",), "sort", 0.5, 0.9).factor == pytest.approx(5)
    assert LayoutAdvice(("a",), "sort", 1.0, 1.0).factor == 1
    assert LayoutAdvice(("a",), "sort", 0.0, 1.0).factor > 1e6
    assert ">10,000 ×" in str(replace(ADVICE, layouts=(LayoutAdvice(("a",), "sort", 0.0, 1.0),)))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_fits(width: int) -> None:
    wide = replace(TS, name="n" * 90, why="x" * 300)
    many = replace(ADVICE, by_column=(wide, *(replace(TS, name=f"c{n}") for n in range(60))))
    lines = to_text(advice_tree(many), width).splitlines()
    assert all(width_of(line) <= width for line in lines if line not in many.commands)
    assert "more columns" in to_text(advice_tree(many), width)


def test_colour_and_control_characters() -> None:
    odd = replace(ADVICE, by_column=(replace(TS, name="a\x1b[31m\n"),))
    assert "\x1b" not in str(odd)
    assert "\x1b[1m" in to_text(advice_tree(odd), color=True)


def test_html() -> None:
    odd = replace(ADVICE, by_column=(replace(TS, name="<script>"),))
    html = odd._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "Not parsed (1)" in html


def test_json() -> None:
    found = json.loads(json.dumps(ADVICE.to_json(), allow_nan=False))
    assert found["columns"] == ["ts"]
    assert found["by_column"][0]["type"] == "timestamp[us]"
    assert found["by_column"][0]["skip_with_bloom"] is None
    assert found["layouts"][0]["factor"] == pytest.approx(0.62 / 0.03)
    assert found["refused"] == [
        {"line": 7, "text": "nope = 3", "reason": "column nope: there is no such column"}
    ]
    assert found["recommendation"].startswith("Index ts")
    assert found["commands"] == list(ADVICE.commands)
    assert (found["sampled_rows"], found["partition_by"]) == (100_000, ["day"])
