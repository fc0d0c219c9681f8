"""Every view in every format: HTML that parses and brings its classes, text that fits."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest

from skipstone.core.judge import Verdict
from skipstone.core.rows import RowSet
from skipstone.index.views import advice_tree, build_tree, status_tree
from skipstone.report.explain import aggregate_tree, prune_tree, scan_tree
from skipstone.report.html import ROOT, style, to_html, to_page
from skipstone.report.lines import width_of
from skipstone.report.node import (
    Bar,
    Code,
    Facts,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
    number,
    table,
    text,
)
from skipstone.report.text import to_text
from skipstone.report.trace import Cause
from skipstone.scan.results import Difference, Verification, Why, WhyStep
from skipstone.scan.row_view import answer_blocks, row_table
from skipstone.scan.views import verification_tree, why_tree
from skipstone.write.views import ingest_tree
from tests.unit.index.test_advice_view import ADVICE
from tests.unit.index.test_status_view import STATUS, TestReport
from tests.unit.report import _aggregates, _samples
from tests.unit.report.test_html import TAGS, Reader
from tests.unit.report.test_text import CASCADE
from tests.unit.write.test_report import REPORT

STEPS = (
    WhyStep("files", "file", Verdict.SOME, "id = 1", "id: min 0, max 9 (footer)"),
    *(WhyStep("pages", f"page {n}", Verdict.NONE, "id = 1", "min 5, max 9", Cause.PAGE) for n in range(9)),
)
WHY = Why("d/f.parquet", "file", (0, 10), "id = 1", Verdict.NONE, STEPS, ruled_out=True, notes=("a note",))
LOST = Difference("lost", "f.parquet", 3, RowSet.from_ranges(100, [(4, 7)]), "id is 1 in row 4", WHY)
VERIFIED = Verification("lake", "id = 1", 4, 57, 3, 500, 4_000, 80_000, 8_100_000, 0.012, 0.12)
ROWS = pa.table({"id": [1, None], "text": ["a<b", "c" * 300], "x": [1.5, 2.5]})

TREES = {
    "prune": prune_tree(CASCADE),
    "scan": scan_tree(_samples.ANALYZED),
    "aggregate": aggregate_tree(_aggregates.RAN),
    "why": why_tree(WHY),
    "verified": verification_tree(VERIFIED),
    "different": verification_tree(replace(VERIFIED, differences=(LOST,), left_out=2)),
    "status": status_tree(STATUS),
    "build": build_tree(TestReport.REPORT),
    "advice": advice_tree(ADVICE),
    "ingest": ingest_tree(REPORT),
    "rows": ReportNode(body=(row_table(ROWS), Text("2 rows", "bold", aside="read 1 kB"))),
    "answers": ReportNode(body=answer_blocks(ROWS.slice(0, 1), {"id": (0, 2)}, grouped=False)),
    "sections": ReportNode(
        children=(
            ReportNode("one", body=(Facts([("a", "b")]),)),
            ReportNode("two", body=(Text("c", "warn"),)),
        ),
        tree=False,
    ),
}

every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


@every_tree
def test_html(tree: ReportNode) -> None:
    for page in (to_html(tree), to_page(tree, "t")):
        read = Reader(page)
        assert set(read.tags) <= TAGS
        assert not re.search(r"<(script|link|img|iframe)|url\(|@import", page)
        classes = {part for name, value in read.attributes if name == "class" for part in value.split()}
        assert classes - {ROOT} <= set(re.findall(rf"{ROOT}-[a-z]+", style()))
        assert len(read.texts) > 1


@every_tree
@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_text_fits(tree: ReportNode, width: int) -> None:
    lines = to_text(tree, width).splitlines()
    commands = [line for block in tree.body if isinstance(block, Code) for line in block.lines]
    assert max(width_of(line) for line in lines if line not in commands) <= max(width, 48)
    assert not any(line != line.rstrip() for line in lines)


@every_tree
def test_colours_change_nothing_else(tree: ReportNode) -> None:
    plain, colored = to_text(tree), to_text(tree, color=True)
    assert "\x1b" not in plain
    stripped = re.sub(r"\x1b\[[0-9]+m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_the_certificate_of_a_difference_is_drawn_below_it() -> None:
    lines = to_text(TREES["different"]).splitlines()
    assert lines[6:10] == [
        "└─ ✗ 3 differences",
        "      lost: matching rows are missing: 3 rows: f.parquet, row group 3, rows 4–6",
        "      id is 1 in row 4",
        "        d/f.parquet  id = 1",
    ]
    assert lines[-3:] == [
        "        └─ dropped: no row can match",
        "        notes: a note",
        "      2 more",
    ]
    assert "6 more dropped" in to_text(TREES["different"])


def test_narrow_tables_cut_texts_then_leave_out_columns_and_name_them() -> None:
    table = NodeTable(
        (text("name"), number("rows"), number("share", rank=1), TableColumn("note", rank=2)),
        [("a long name of a column", "1,000", "10 %", "something"), ("b", "2", "90 %", "")],
    )
    tree = ReportNode(body=(table,))
    assert to_text(tree, 60).splitlines()[1] == "a long name of a column  1,000   10 %  something"
    assert to_text(tree, 42).splitlines()[1] == "a long name of a…  1,000   10 %  something"
    narrow = replace(table, rows=[("x" * 80, "1,000,000", "10 %", "something")])
    assert to_text(ReportNode(body=(narrow,)), 40).splitlines() == [
        "name                         rows  share",
        f"{'x' * 21}…  1,000,000   10 %",
        "… 1 more column; no room for note",
    ]


def test_a_column_without_values_is_left_out_if_it_is_optional() -> None:
    drawn = table([1, 2], number("n", lambda n: n), number("none", lambda n: None, optional=True))
    assert to_text(ReportNode(body=(drawn,))) == "n\n1\n2"


def test_empty_lines_around_tables_only() -> None:
    table = NodeTable((text("a"),), [("1",)], notes=("noted",))
    tree = ReportNode(body=(Text("first"), Text("second"), table, Items("notes", ["n"]), Items("none", [])))
    assert to_text(tree) == "first\nsecond\n\na\n1\nnoted\n\nnotes: n"


def test_bars_show_every_part() -> None:
    tree = ReportNode(
        children=(ReportNode("a", "x", bar=Bar.of(1, 10**9)), ReportNode("b", "y", bar=Bar.of(0, 0)))
    )
    assert to_text(tree) == "├─ a  █░░░░░░░░░░░░░░░░░░░  x\n└─ b  ░░░░░░░░░░░░░░░░░░░░  y"
