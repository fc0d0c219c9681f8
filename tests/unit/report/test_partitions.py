"""How far partitions could be judged, in every form of a plan."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest

from skipstone.report.trace import FilterStats
from tests.unit.report import _samples as samples
from tests.unit.report._drawing import draw_scan, scan_to_html, scan_to_json

OPEN = FilterStats(1, 2, 3, 1_200, 1)


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        (
            FilterStats(fail_open_partitions=2, fail_open_files=5, eval_errors=2),
            "2 partitions (5 files) kept without a verdict; 2 evaluations failed",
        ),
        (
            FilterStats(1, 0, 1, 1),
            "1 partition (1 file) kept without a verdict; 1 partition spec can't be evaluated",
        ),
        (
            FilterStats(0, 1, 1, 0, unconstrained_specs=1),
            "1 partition (0 files) kept without a verdict; 1 evaluation failed; "  # noqa: ISC004
            "1 partition spec without a field from the predicate's columns",
        ),
    ],
)
def test_said_below_the_lake(stats: FilterStats, said: str) -> None:
    trace = replace(samples.HIVE, partitions=stats)
    lines = draw_scan(trace).splitlines()
    assert " ".join(line.removeprefix("│  ") for line in lines[2:4]).startswith(said)
    assert escape(said) in scan_to_html(trace)


def test_nothing_is_said_where_all_could_be_judged() -> None:
    for stats in (FilterStats(), FilterStats(unconstrained_specs=1)):
        trace = replace(samples.HIVE, partitions=stats)
        assert draw_scan(trace) == draw_scan(samples.HIVE)
        assert scan_to_html(trace) == scan_to_html(samples.HIVE)


def test_every_counter_is_in_the_json() -> None:
    assert scan_to_json(replace(samples.HIVE, partitions=OPEN))["partitions"] == {
        "unevaluable_specs": 1,
        "eval_errors": 2,
        "fail_open_partitions": 3,
        "fail_open_files": 1_200,
        "unconstrained_specs": 1,
    }


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits(width: int) -> None:
    lines = draw_scan(replace(samples.HIVE, partitions=OPEN), width=width).splitlines()
    assert max(map(len, lines)) <= width
