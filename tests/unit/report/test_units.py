"""Numbers and lines as people read them."""

from __future__ import annotations

import doctest

import pytest

from skipstone.cli import options
from skipstone.report import html, lines, units
from skipstone.scan import formats


@pytest.mark.parametrize("module", [units, lines, html, options, formats])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (65_536, "65.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**18, "5.0 EB"),
        (5 * 10**21, "5000.0 EB"),
    ],
)
def test_size(number: int, text: str) -> None:
    assert units.size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (0.00099949, "999 µs"),
        (0.0009995, "1.0 ms"),
        (0.0999, "99.9 ms"),
        (0.09996, "100 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (59.99, "59.99 s"),
        (59.999, "1 min 0 s"),
        (90_061, "1,501 min 1 s"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33 %"),
        (1, 40, "2.5 %"),
        (1, 10_000, "<0.1 %"),
        (9_999, 10_000, ">99.9 %"),
        (995, 1_000, "99.5 %"),
        (0, 0, "–"),
    ],
)
def test_percent(part: int, whole: int, text: str) -> None:
    assert units.percent(part, whole) == text


def test_shares_never_hide_a_part() -> None:
    for kept in range(1, 1_000):
        filled, empty = units.shares([kept, 1_000 - kept], 20)
        assert filled + empty == 20
        assert filled
        assert empty
    assert units.shares([5, 0], 20) == [20, 0]
    assert units.shares([0, 5], 20) == [0, 20]


def test_shorten_counts_cells() -> None:
    assert lines.shorten("値値値", 5) == "値値…"
    assert lines.shorten("値値値", 4) == "値…"
    assert lines.shorten("e\u0301e\u0301", 2) == "e\u0301e\u0301"
    assert lines.shorten("abc", 0) == ""


def test_wrap_counts_cells_and_loses_nothing_but_the_end() -> None:
    assert lines.wrap("", 10, 2) == [""]
    assert lines.wrap("値値値値値", 4, 3) == ["値値", "値値", "値"]
    assert lines.wrap("値値値値値", 4, 2) == ["値値", "値…"]
    assert lines.wrap("ab cd ef", 5, 9) == ["ab cd", "ef"]
    assert lines.wrap("abcdefgh ij", 4, 9) == ["abcd", "efgh", "ij"]
