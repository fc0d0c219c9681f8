"""Numbers and lines as people read them."""

from __future__ import annotations

import doctest

import pytest

from skipstone.explain import lines, units


@pytest.mark.parametrize("module", [units, lines])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 1
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


def test_bar_never_hides_a_part() -> None:
    for kept in range(1, 1_000):
        filled, empty = units.bar(kept, 1_000, 20)
        assert len(filled) + len(empty) == 20
        assert filled
        assert empty
    assert units.bar(5, 5, 20) == ("█" * 20, "")
    assert units.bar(0, 5, 20) == ("", "░" * 20)


def test_shorten_counts_cells() -> None:
    assert lines.shorten("値値値", 5) == "値値…"
    assert lines.shorten("値値値", 4) == "値…"
    assert lines.shorten("e\u0301e\u0301", 2) == "e\u0301e\u0301"
    assert lines.shorten("abc", 0) == ""
