"""Traces as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from skipstone.report.trace import Cause, Drop, IndexUse, Level, Note, ScanTrace, Trace
from tests.unit.report import _samples as samples
from tests.unit.report._drawing import scan_to_json, trace_to_json


def test_every_fact_is_there() -> None:
    level = Level("pages", 4, 3, 1, 30, (Drop(Cause.PAGE, "a = 1", 1),), requests=2, bytes=90)
    trace = Trace("f", "a = 1", 40, 30, 10, (level,), (Note("file", "why"),), ("b LIKE 'x'",))
    assert json.loads(json.dumps(trace_to_json(trace))) == {
        "path": "f",
        "predicate": "a = 1",
        "rows_total": 40,
        "rows_kept": 30,
        "rows_proven": 10,
        "requests": 2,
        "bytes": 90,
        "levels": [
            {
                "name": "pages",
                "units": 4,
                "kept": 3,
                "dropped": 1,
                "proven": 1,
                "rows": 30,
                "requests": 2,
                "bytes": 90,
                "drops": [{"cause": "page", "condition": "a = 1", "units": 1}],
            }
        ],
        "unsupported": ["b LIKE 'x'"],
        "notes": [{"unit": "file", "reason": "why"}],
    }


def test_every_fact_of_a_scan_is_there() -> None:
    found = json.loads(json.dumps(scan_to_json(samples.ANALYZED)))
    levels = found.pop("levels")
    assert found == {
        "lake": "s3://lake/events",
        "version": "b41f09c2",
        "predicate": "country = 'DE' AND user_id = 42 AND ts >= '2026-01-01'",
        "residual": "user_id = 42 AND ts >= '2026-01-01'",
        "columns": ["user_id", "ts", "amount", "country", "payload"],
        "limit": None,
        "order": [],
        "files": 4_380,
        "file_bytes": 0,
        "tasks": 7,
        "rows_total": 48_000_000,
        "rows_kept": 61_000,
        "rows_proven": 9_000,
        "requests": 143,
        "bytes": 7_356_416,
        "index": None,
        "partitions": None,
        "deletes": None,
        "overlay": None,
        "reads": {"requests": 38, "bytes": 1_874_321, "bytes_total": 9_663_676_416},
        "hints": {
            "materialise": "late",
            "why": "about 1 row in 2,000 matches, and 3 columns can wait",
            "threads": 4,
            "batch_rows": 65_536,
            "route": "slice",
        },
        "spark": None,
        "engine": None,
        "run": {
            "rows": 212,
            "batches": 7,
            "pieces": 11,
            "seconds": 0.4183,
            "requests": 35,
            "bytes": 1_702_144,
            "phases": [
                {"name": name, "rows": rows, "requests": requests, "bytes": size, "seconds": seconds}
                for name, rows, requests, size, seconds in (
                    ("plan", 61_000, 143, 7_356_416, 0.2571),
                    ("predicate columns", 212, 22, 1_204_224, 0.1102),
                    ("other columns", 212, 13, 497_920, 0.04307),
                )
            ],
            "bytes_transferred": 0,
        },
        "unsupported": [],
        "notes": [
            {
                "unit": "part-00017.parquet, row group 2, column ts",
                "reason": "statistics ignored: min is above max",
            },
            {"unit": "index", "reason": "stale for 3 files, read from their footers"},
        ],
    }
    assert [level["name"] for level in levels] == [level.name for level in samples.ANALYZED.levels]
    assert levels[0] == {
        "name": "partitions",
        "units": 365,
        "kept": 31,
        "dropped": 334,
        "proven": 0,
        "rows": None,
        "requests": 0,
        "bytes": 0,
        "drops": [{"cause": "partition", "condition": "country = 'DE'", "units": 334}],
    }


@pytest.mark.parametrize("trace", samples.ALL.values(), ids=samples.ALL)
def test_keys_are_the_same_for_every_scan(trace: ScanTrace) -> None:
    found = scan_to_json(trace)
    assert json.loads(json.dumps(found)) == found
    assert list(found) == list(scan_to_json(samples.ANALYZED))


def test_what_there_is_not_is_null() -> None:
    found = scan_to_json(samples.EMPTY)
    assert found["reads"] is found["run"] is None
    assert found["limit"] is None
    assert scan_to_json(samples.TOP)["limit"] == 10
    assert scan_to_json(samples.TOP)["order"] == ["amount DESC", "id"]


def test_the_index_that_was_asked() -> None:
    use = IndexUse("s3://lake/events/_skipstone", 3, 4_378, ("segment-1f.skip: segment is missing",))
    assert scan_to_json(replace(samples.HIVE, index=use))["index"] == {
        "place": "s3://lake/events/_skipstone",
        "version": 3,
        "covered": 4_378,
        "problems": ["segment-1f.skip: segment is missing"],
    }
