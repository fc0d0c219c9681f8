"""Scans as HTML: well formed, escaped, self-contained, and with the facts in it."""

from __future__ import annotations

import doctest
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import pytest

from skipstone.report import html
from skipstone.report.html import ROOT, style
from skipstone.report.trace import Cause, IndexUse, Level, ScanTrace
from tests.unit.report import _samples as samples
from tests.unit.report._drawing import scan_to_html, scan_to_page

VOID = {"meta"}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "div", "span", "code", "b", "dl", "dt", "dd"),
    *("details", "summary", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre"),
}

every_sample = pytest.mark.parametrize("trace", samples.ALL.values(), ids=samples.ALL)


class Reader(HTMLParser):
    """What a browser would make of it: elements in balance, their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def test_examples() -> None:
    assert doctest.testmod(html).attempted == 1


@every_sample
def test_parses_and_uses_known_tags_only(trace: ScanTrace) -> None:
    for page in (scan_to_html(trace), scan_to_page(trace)):
        read = Reader(page)
        assert set(read.tags) <= TAGS
        assert {name for name, _ in read.attributes} <= {
            *("class", "style", "title", "role", "aria-label", "aria-hidden", "open"),
            *("lang", "charset", "name", "content"),
        }
        # No address of any kind is asked for, by an attribute or by the style sheet.
        assert not re.search(r"<(script|link|img|iframe)|url\(|@import", page)


def test_what_users_and_files_say_stays_text() -> None:
    page = scan_to_page(samples.EVIL, title=samples.EVIL_TEXT)
    shown = samples.EVIL_TEXT.encode("unicode_escape").decode()
    places = sum(text.count(shown) for text in Reader(page).texts)
    # Title, lake, version, column, predicate, level, condition, residual, how twice, route, order, phase,
    # not judged, note twice.
    assert places == 16
    assert page.count("<style>") == page.count("</style>") == 2
    page.encode()


def test_every_class_and_rule_is_the_drawings_own() -> None:
    classes = {
        part
        for trace in samples.ALL.values()
        for name, value in Reader(scan_to_html(trace)).attributes
        if name == "class"
        for part in value.split()
    }
    assert all(part == ROOT or part.startswith(f"{ROOT}-") for part in classes)
    sheet = re.sub(r"/\*.*?\*/", "", style())
    selectors = re.findall(r"(?:^|[{}])\s*([^{}@]+)\{", sheet)
    assert len(selectors) > 40
    assert all(f".{ROOT}" in part for selector in selectors for part in selector.split(","))
    assert classes - {ROOT} <= set(re.findall(rf"{ROOT}-[a-z]+", sheet))


def test_every_colour_has_a_light_and_a_dark_value() -> None:
    sheet = style()
    assert "color-scheme: light dark" in sheet
    used = set(re.findall(rf"var\((--{ROOT}-[a-z]+)\)", sheet + scan_to_html(samples.MANY_REASONS)))
    assert {f"--{ROOT}-{cause.value}" for cause in Cause} <= used
    for name in used:
        assert re.search(rf"{name}: light-dark\(#\w+, #\w+\);", sheet)
    # A notebook's own theme decides.
    for theme in ("light", "dark"):
        assert re.search(rf"vscode-{theme} .{ROOT} {{ color-scheme: {theme}; }}", sheet)


def test_the_facts_are_there() -> None:
    text = Reader(scan_to_html(samples.ANALYZED)).text
    for fact in (
        "s3://lake/events",
        "country = 'DE' AND user_id = 42 AND ts >= '2026-01-01'",
        "61,000 of 48,000,000 rows looked at may match (0.1 %), 9,000 proven",
        "1.7 MB of 9.7 GB (<0.1 %)",
        "143 for 7.4 MB of metadata",
        "kept 96 of 372 (26 %)",
        "metadata read: 96 requests, 6.3 MB",
        "dropped by dictionary",
        "7 of 4,380 files",
        "late: about 1 row in 2,000 matches, and 3 columns can wait",
        "212 rows in 7 batches, 418 ms",
        "read 11 parts of row groups in 35 requests, 1.7 MB",
        "predicate columns",
        "251 dropped by bounds",
        "index: stale for 3 files, read from their footers",
    ):
        assert fact in text
    assert "dropped otherwise" not in text


def test_bars_add_up_to_their_level() -> None:
    page = scan_to_html(samples.HIVE)
    for level in samples.HIVE.levels:
        said = f"{level.kept - level.whole} kept, "
        bar = next(part for part in page.split('<div class="skst-bar"')[1:] if said in part.split(">")[0])
        spans = bar.split("</div>")[0]
        assert sum(map(int, re.findall(r"flex-grow:(\d+)", spans))) == level.units


def test_a_drop_without_a_reason_shows() -> None:
    trace = replace(samples.HIVE, levels=(Level("files", 10, 4, 0, None),))
    assert "dropped otherwise" in Reader(scan_to_html(trace)).texts


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (samples.EMPTY, "the lake has no files"),
        (samples.NOTHING, "no rows remain"),
        (samples.EVERYTHING, "none: every row is proven to match"),
        (samples.EVERYTHING, "every row"),
        (samples.EVERYTHING, "all 12,000 rows"),
        (samples.TOP, "amount DESC, id"),
    ],
)
def test_edges(trace: ScanTrace, said: str) -> None:
    assert said in Reader(scan_to_html(trace)).texts


def test_many_reasons_are_bounded() -> None:
    page = scan_to_html(samples.MANY_REASONS)
    level = samples.MANY_REASONS.levels[0]
    assert all(f"<code>{escape(drop.condition[:60])}" in page for drop in level.drops)
    more = replace(samples.MANY_REASONS, levels=(replace(level, drops=level.drops * 100),))
    assert "13,800 more" in Reader(scan_to_html(more)).texts
    assert len(scan_to_html(more)) < 2 * len(page)


def test_long_lists_are_folded() -> None:
    few, many = ("a",) * 3, ("a",) * 30
    assert '<details open=""><summary>Not prunable (3)' in scan_to_html(
        replace(samples.HIVE, unsupported=few)
    )
    assert "<details><summary>Not prunable (30)" in scan_to_html(replace(samples.HIVE, unsupported=many))


def test_page() -> None:
    page = scan_to_page(samples.HIVE, title="Q&A")
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert "<title>Q&amp;A</title>" in page
    assert scan_to_html(samples.HIVE) in page


def test_the_index_and_its_problems() -> None:
    use = IndexUse("s3://ix/<1>", 3, 4_378, ("segment-1f.skip: a part <b> is damaged",))
    read = Reader(scan_to_html(replace(samples.HIVE, index=use)))
    assert "index version 3 covers 4,378 of 4,380 files" in read.texts
    assert "index: segment-1f.skip ignored: a part <b> is damaged" in read.texts
    assert "covers" not in scan_to_html(samples.HIVE)
