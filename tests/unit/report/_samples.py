"""Traces of scans as planning would leave them."""

from __future__ import annotations

from dataclasses import replace

from skipstone.report.trace import Cause, Drop, Hints, Level, Note, Phase, Reads, Run, ScanTrace

LATE = Hints("late", "about 1 row in 2,000 matches, and 3 columns can wait", 4, 65_536, "slice")
ONE_PASS = Hints("one-pass", "nothing is left to test on rows", 2, 65_536, "pyarrow")

HIVE = ScanTrace(
    lake="s3://lake/events",
    version="b41f09c2",
    predicate="country = 'DE' AND user_id = 42 AND ts >= '2026-01-01'",
    residual="user_id = 42 AND ts >= '2026-01-01'",
    columns=("user_id", "ts", "amount", "country", "payload"),
    limit=None,
    order=(),
    files=4_380,
    rows=48_000_000,
    rows_kept=61_000,
    rows_whole=9_000,
    tasks=7,
    levels=(
        Level("partitions", 365, 31, 0, None, (Drop(Cause.PARTITION, "country = 'DE'", 334),)),
        Level(
            "files",
            372,
            96,
            2,
            48_000_000,
            (
                Drop(Cause.BOUNDS, "ts >= '2026-01-01'", 251),
                Drop(Cause.BOUNDS, "user_id = 42", 22),
                Drop(Cause.NULLS, "user_id = 42", 3),
            ),
            96,
            6_291_456,
        ),
        Level("row groups", 480, 24, 3, 2_400_000, (Drop(Cause.BOUNDS, "user_id = 42", 456),)),
        Level("bloom filters", 24, 9, 3, 900_000, (Drop(Cause.BLOOM, "user_id = 42", 15),), 24, 786_432),
        Level("dictionaries", 9, 8, 3, 800_000, (Drop(Cause.DICTIONARY, "user_id = 42", 1),), 9, 65_536),
        Level("pages", 410, 31, 4, 61_000, (Drop(Cause.PAGE, "user_id = 42", 379),), 14, 212_992),
    ),
    hints=LATE,
    notes=(
        Note("part-00017.parquet, row group 2, column ts", "statistics ignored: min is above max"),
        Note("index", "stale for 3 files, read from their footers"),
    ),
    reads=Reads(38, 1_874_321, 9_663_676_416),
)

ANALYZED = replace(
    HIVE,
    run=Run(
        rows=212,
        batches=7,
        pieces=11,
        seconds=0.4183,
        requests=35,
        bytes=1_702_144,
        phases=(
            Phase("plan", 61_000, 143, 7_356_416, 0.2571),
            Phase("predicate columns", 212, 22, 1_204_224, 0.1102),
            Phase("other columns", 212, 13, 497_920, 0.04307),
        ),
    ),
)

EVERYTHING = ScanTrace(
    lake="/data/cities.parquet",
    version="1",
    predicate="",
    residual="",
    columns=("name", "population"),
    limit=None,
    order=(),
    files=1,
    rows=12_000,
    rows_kept=12_000,
    rows_whole=12_000,
    tasks=1,
    levels=(Level("files", 1, 1, 1, 12_000, (), 1, 4_096), Level("row groups", 2, 2, 2, 12_000)),
    hints=ONE_PASS,
    reads=Reads(1, 240_000, 240_000),
)

TOP = ScanTrace(
    lake="warehouse.db.events",
    version="7312206612",
    predicate="amount > 100",
    residual="amount > 100",
    columns=("id", "amount"),
    limit=10,
    order=("amount DESC", "id"),
    files=40,
    rows=4_000_000,
    rows_kept=100_000,
    rows_whole=50_000,
    tasks=1,
    levels=(Level("files", 40, 1, 0, 100_000, (Drop(Cause.BOUNDS, "amount > 100", 39),), 1, 20_480),),
    hints=Hints("late", "", 1, 1_024, "slice"),
    reads=Reads(2, 900_000, 64_000_000),
    unsupported=("soundex(name) = 'M600': soundex can't be judged by metadata",),
)

EMPTY = ScanTrace(
    lake="/data/empty",
    version="0",
    predicate="a = 1",
    residual="a = 1",
    columns=(),
    limit=None,
    order=(),
    files=0,
    rows=0,
    rows_kept=0,
    rows_whole=0,
    tasks=0,
    levels=(Level("files", 0, 0, 0, 0),),
    hints=ONE_PASS,
)

NOTHING = ScanTrace(
    lake="/data/events",
    version="77",
    predicate="day = '1999-01-01'",
    residual="",
    columns=("day",),
    limit=None,
    order=(),
    files=120,
    rows=0,
    rows_kept=0,
    rows_whole=0,
    tasks=0,
    levels=(
        Level("partitions", 30, 0, 0, None, (Drop(Cause.PARTITION, "day = '1999-01-01'", 30),)),
        Level("files", 0, 0, 0, None),
    ),
    hints=ONE_PASS,
    reads=Reads(0, 0, 0),
    run=Run(0, 0, 0, 0.0004, 0, 0),
)

_LONG = "id IN (" + ", ".join(map(str, range(1_000, 1_400))) + ") AND name <> '" + "長い名前" * 40 + "'"

MANY_REASONS = replace(
    HIVE,
    lake="/a/very/long/way/through/many/folders/to/the/lake/of/" + "x" * 80,
    predicate=_LONG,
    residual=_LONG,
    columns=tuple(f"column_{number}" for number in range(300)),
    levels=(
        Level(
            "row groups",
            100_000,
            1,
            0,
            10**12,
            tuple(
                Drop(cause, f"c{number} = {number} AND {_LONG}", 40 * number + position)
                for number in range(1, 21)
                for position, cause in enumerate(Cause)
            ),
            10**9,
            10**15,
        ),
    ),
    hints=replace(LATE, why="w" * 300),
    notes=tuple(Note(f"file {number}", "値" * 200) for number in range(90)),
    unsupported=tuple(f"f{number}(x): " + "why not " * 40 for number in range(9)),
)

EVIL_TEXT = (
    "</style></code><script>alert('\"x\"')</script><img src=x onerror=alert(1)>&amp;\x1b[2J\u202e\n\ud800"
)

EVIL = ScanTrace(
    lake=EVIL_TEXT,
    version=EVIL_TEXT,
    predicate=EVIL_TEXT,
    residual=EVIL_TEXT,
    columns=(EVIL_TEXT,),
    limit=1,
    order=(EVIL_TEXT,),
    files=2,
    rows=2,
    rows_kept=1,
    rows_whole=0,
    tasks=1,
    levels=(Level(EVIL_TEXT, 2, 1, 0, 1, (Drop(Cause.BOUNDS, EVIL_TEXT, 1),)),),
    hints=Hints(EVIL_TEXT, EVIL_TEXT, 1, 1, EVIL_TEXT),
    notes=(Note(EVIL_TEXT, EVIL_TEXT),),
    unsupported=(EVIL_TEXT,),
    reads=Reads(1, 1, 2),
    run=Run(1, 1, 1, 75.0, 1, 1, (Phase(EVIL_TEXT, 1, 1, 1, 75.0),)),
)

ALL = {
    "hive": HIVE,
    "analyzed": ANALYZED,
    "everything": EVERYTHING,
    "top": TOP,
    "empty": EMPTY,
    "nothing": NOTHING,
    "many reasons": MANY_REASONS,
    "evil": EVIL,
}
