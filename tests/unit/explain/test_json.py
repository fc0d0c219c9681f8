"""The trace as JSON."""

from __future__ import annotations

import json

from skipstone.explain import trace_to_json
from skipstone.trace import Cause, Drop, Level, Note, Trace


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
