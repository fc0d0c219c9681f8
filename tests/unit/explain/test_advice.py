"""Snapshots of drawn advice."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace

import pyarrow as pa
import pytest

from skipstone.explain.advice import Advice, ColumnAdvice, LayoutAdvice, Refused, draw_advice
from skipstone.explain.lines import width_of

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
    why="directories tell it already",
)  # fmt: skip
ADVICE = Advice(
    lake="s3://lake/events",
    version="b41f09c2",
    files=4_380,
    sampled=64,
    rows=438_000_000,
    understood=13,
    refused=(Refused(7, "nope = 3", "column nope: there is no such column"),),
    synthetic=False,
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
        Index ts (8.7 kB); a bloom filter on device (655.4 kB); sorting by device would read 21 × less.
        s3://lake/events: 13 questions, 1 not understood; 38 % skipped today; estimated from 64 of 4,380 files

        column  type           asked  files  row groups  pages  bloom   index   filters  why
        ts      timestamp[us]     12   90 %        95 %   97 %      –  8.7 kB  655.4 kB  index: bounds skip 97 %
        device  int64            2.5    0 %         0 %  0.1 %   98 %  8.7 kB  655.4 kB  bloom: +98 %
        day     date32[day]        –   90 %        95 %      –      –       –         –  directories tell it already

        layout                 skips today  would skip  reads
        sort by device                38 %        97 %  21 × less
        Z-order by device, ts         38 %        73 %  2.3 × less

        Skips are shares of rows. They are estimates: bounds and counts of the sample say where values may be, not how often
        each occurs, and values between two bounds are taken to be spread evenly.
        not understood: 7: nope = 3: column nope: there is no such column""")  # noqa: E501


def test_nothing_to_advise() -> None:
    text = str(NOTHING)
    assert text.startswith("Neither an index nor another order of rows would help these questions.")
    assert "no questions given" in text


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
    assert all(width_of(line) <= width for line in draw_advice(many, width=width).splitlines())
    assert "more columns" in draw_advice(many, width=width)


def test_colour_and_control_characters() -> None:
    odd = replace(ADVICE, by_column=(replace(TS, name="a\x1b[31m\n"),))
    assert "\x1b" not in str(odd)
    assert "\x1b[1m" in draw_advice(odd, color=True)


def test_html() -> None:
    odd = replace(ADVICE, by_column=(replace(TS, name="<script>"),))
    html = odd._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "Not understood (1)" in html


def test_json() -> None:
    found = json.loads(json.dumps(ADVICE.to_json(), allow_nan=False))
    assert found["columns"] == ["ts"]
    assert found["by_column"][0]["type"] == "timestamp[us]"
    assert found["by_column"][0]["skip_with_bloom"] is None
    assert found["layouts"][0]["factor"] == pytest.approx(0.62 / 0.03)
    assert found["refused"] == [
        {"place": 7, "text": "nope = 3", "reason": "column nope: there is no such column"}
    ]
    assert found["recommendation"].startswith("Index ts")
