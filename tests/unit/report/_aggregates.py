"""Traces of aggregations as planning would leave them."""

from __future__ import annotations

from dataclasses import replace

from skipstone.report.trace import (
    AggregateRun,
    AggregateTrace,
    Cause,
    ColumnUse,
    Drop,
    Hints,
    IndexUse,
    Level,
    LevelAnswer,
    MemberUse,
    Phase,
    ScanTrace,
)
from tests.unit.report import _samples as scans

_SCAN = ScanTrace(
    lake="s3://lake/events",
    version="b41f09c2",
    predicate="ts >= '2026-01-02 12:00:00'",
    residual="ts >= '2026-01-02 12:00:00'",
    columns=("ts", "country", "amount", "device"),
    limit=None,
    order=(),
    files=20,
    rows=2_000_000,
    rows_kept=1_425_000,
    rows_whole=1_400_000,
    tasks=15,
    levels=(
        Level("partitions", 5, 4, 3, 1_600_000, (Drop(Cause.PARTITION, "ts >= '2026-01-02 12:00:00'", 1),)),
        Level("files", 16, 15, 14, 1_500_000, (Drop(Cause.BOUNDS, "ts >= '2026-01-02 12:00:00'", 1),)),
        Level("row groups", 60, 57, 56, 1_425_000, (Drop(Cause.BOUNDS, "ts >= '2026-01-02 12:00:00'", 3),)),
    ),
    hints=Hints("one-pass", "", 2, 65_536, "auto"),
    index=IndexUse("s3://lake/events/_skipstone", 4, 20),
)

PLANNED = AggregateTrace(
    scan=_SCAN,
    functions=("count", "sum(amount)", "avg(amount)", "quantile(device, 0.5)"),
    group_by=("country",),
    rows=600_000,
    columns=(
        ColumnUse(
            "",
            ("count",),
            (
                LevelAnswer("files", 4, 400_000),
                LevelAnswer("row groups", 6, 150_000),
                LevelAnswer("pages", 16, 40_000),
            ),
            10_000,
            ("the predicate is tested on rows of 1 row group", "ids of 1 row group are looked up one by one"),
        ),
        ColumnUse(
            "amount",
            ("sum(amount)", "avg(amount)"),
            (LevelAnswer("files", 4, 400_000), LevelAnswer("row groups", 6, 150_000)),
            50_000,
            ("ids of 2 row groups are looked up one by one",),
        ),
        ColumnUse("device", ("quantile(device, 0.5)",), (), 600_000, ("exact quantiles need every value",)),
    ),
    members=MemberUse(("user_id in 20,000 ids (1 run)", "not in 12 places of 3 files"), 57, 33, 22, 825_000),
)

RAN = replace(
    PLANNED,
    run=AggregateRun(
        rows=598_112,
        pieces=26,
        requests=31,
        bytes=4_812_113,
        seconds=0.0841,
        engine="2 threads",
        phases=(Phase("plan", 600_000, 0, 0, 0.0042), Phase("read", 598_112, 31, 4_812_113, 0.0712)),
    ),
)

KNOWN = AggregateTrace(
    scan=scans.EVERYTHING,
    functions=("count", "max(population)"),
    group_by=(),
    rows=12_000,
    columns=(
        ColumnUse("", ("count",), (LevelAnswer("files", 1, 12_000),), 0, ()),
        ColumnUse("population", ("max(population)",), (LevelAnswer("rows", 12_000, 12_000),), 0, ()),
    ),
    run=AggregateRun(0, 0, 0, 0, 0.0004, "1 thread"),
)

READ = AggregateTrace(
    scan=scans.TOP,
    functions=("sum(amount)",),
    group_by=("id",),
    rows=100_000,
    columns=(ColumnUse("amount", ("sum(amount)",), (), 100_000, ()),),
    cached=False,
    notes=("the groups are found in rows",),
)

EMPTY = AggregateTrace(
    scan=scans.EMPTY,
    functions=("count",),
    group_by=(),
    rows=0,
    columns=(ColumnUse("", ("count",), (), 0, ()),),
    members=MemberUse(("a in no ids",), 0, 0, 0, 0),
)

EVIL = AggregateTrace(
    scan=scans.EVIL,
    functions=(scans.EVIL_TEXT,),
    group_by=(scans.EVIL_TEXT,),
    rows=1,
    columns=(
        ColumnUse(scans.EVIL_TEXT, (scans.EVIL_TEXT,), (LevelAnswer("pages", 1, 1),), 1, (scans.EVIL_TEXT,)),
    ),
    members=MemberUse((scans.EVIL_TEXT,), 2, 1, 0, 1),
    notes=(scans.EVIL_TEXT,),
    run=AggregateRun(1, 1, 1, 1, 75.0, scans.EVIL_TEXT, (Phase(scans.EVIL_TEXT, 1, 1, 1, 75.0),)),
)

MANY = replace(
    RAN,
    scan=scans.MANY_REASONS,
    functions=tuple(f"sum(column_{number})" for number in range(40)),
    group_by=tuple(f"group_{number}" for number in range(40)),
    columns=tuple(
        ColumnUse(f"column_{number}_{'x' * 60}", (f"sum(column_{number})",), (), 10**12, ("why " * 60,))
        for number in range(6)
    ),
    notes=tuple(f"note {number} " * 30 for number in range(20)),
)

ALL = {
    "planned": PLANNED,
    "ran": RAN,
    "known": KNOWN,
    "read": READ,
    "empty": EMPTY,
    "evil": EVIL,
    "many": MANY,
}
