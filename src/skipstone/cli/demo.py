"""``skipstone demo``: a lake and an Iceberg table to try things on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipstone.cli.output import emit, guarded
from skipstone.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 2_000_000
DAYS = 5
FILES_PER_DAY = 4
ROWS_PER_GROUP = 25_000
ROWS_PER_PAGE = 2_500
SEED = 20_260_101
COUNTRIES = ("AT", "BR", "CH", "DE", "ES", "FR", "IN", "JP", "NG", "US")
TABLE = "shop.events"
COMMANDS = (
    "skipstone inspect {demo}/events",
    "skipstone query {demo}/events \"user_id = 31000 AND ts >= '2026-01-04 02:00'\"",
    "skipstone explain {demo}/events \"user_id = 31000 AND ts >= '2026-01-04 02:00'\" --analyze",
    "skipstone verify {demo}/events \"user_id = 31000 AND ts >= '2026-01-04 02:00'\"",
    'skipstone agg {demo}/events "count(*), avg(amount)" "ts >= \'2026-01-05\'" --group-by country',
    "skipstone index build {demo}/events --engine local",
    f'skipstone count {TABLE} "user_id = 31000" --catalog {{demo}}/warehouse',
)
"""What the README and the demo itself suggest to try."""
# Only folders with this file are ever replaced, and of them only what the demo has made.
_MARKER = ".skipstone-demo"
_MADE = ("events", "warehouse", "ingested", ".skipstone")
_COMPLETE = "Written by skipstone demo, which may replace it.\n"


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write to; created if missing.")
    ] = Path("demo"),
    replace: Annotated[
        bool, typer.Option("--replace", metavar="", help="Write an earlier demo in DIR again.")
    ] = False,
) -> None:
    """Write a lake of two million events and an Iceberg table, and print commands to try on them."""
    with guarded(), _refusals(folder):
        began = time.perf_counter()
        if prepare(folder, replace=replace):
            write_lake(events(), folder / "events")
            tabled = write_table(folder)
            finish(folder)
            emit(f"wrote a lake of {ROWS:,} events to {folder}/events")
            emit(f"{tabled} · {time.perf_counter() - began:.1f} s")
        else:
            emit(f"{folder} has a demo already; use --replace to write it again")
        emit(f"\nTry:\n{suggestions(folder)}")


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"demo can't be written: {error.strerror or error}"
        raise UsageError(reason, path=str(folder), hint="choose a folder that you may write to") from None


def suggestions(folder: Path) -> str:
    """Return the commands to try, one per line; without the table's if there is no table."""
    tabled = (folder / "warehouse").exists()
    lines = [command.format(demo=folder) for command in COMMANDS if tabled or TABLE not in command]
    if shutil.which("skipstone") is None and Path(".venv/bin/activate").exists():
        lines.insert(0, "source .venv/bin/activate")
    return "\n".join(f"  {line}" for line in lines)


def prepare(folder: Path, *, replace: bool) -> bool:
    """Clear a folder for a demo; return whether it has to be written."""
    marker = folder / _MARKER
    if marker.is_file():
        if marker.read_text() == _COMPLETE and not replace:
            return False
        for name in _MADE:
            shutil.rmtree(folder / name, ignore_errors=True)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "folder is not empty, and no demo wrote it", path=str(folder), hint="choose a new folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("Unfinished.\n")
    return True


def finish(folder: Path) -> None:
    """Mark a demo as complete."""
    (folder / _MARKER).write_text(_COMPLETE)


def events(rows: int = ROWS) -> pa.Table:
    """Five days of events: time rises, users come and go, devices are anywhere."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(SEED)
    row = np.arange(rows)
    start = np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64)
    step = DAYS * 86_400_000_000 // rows
    amount = np.round(rng.gamma(2.0, 20.0, rows), 2)
    # On the first day some amounts got lost.
    amount[(row < rows // DAYS) & (rng.random(rows) < 0.001)] = np.nan
    # Refunds were only possible in the last hours.
    refund = pa.array(np.round(amount / 2, 2), mask=(row < rows * 19 // 20) | (rng.random(rows) < 0.7))
    return pa.table(
        {
            "ts": pa.array(start + row * step + rng.integers(0, step, rows), pa.timestamp("us", "UTC")),
            "user_id": row // 40 + rng.integers(0, 2_000, rows),
            "device": pa.array(rng.integers(1, 2**48, rows)),
            "country": pa.array(COUNTRIES).take(pa.array(rng.integers(0, len(COUNTRIES), rows))),
            "path": pa.array([f"/shop/{k // 100:03d}/{k % 100:02d}" for k in range(2_000)]).take(
                pa.array(row * 1_900 // rows + rng.integers(0, 100, rows))
            ),
            "amount": amount,
            "refund": refund,
        }
    )


def write_lake(table: pa.Table, lake: Path) -> None:
    """Write it as a careful writer would: by day, with page index, small pages, and a bloom filter on ids."""
    import pyarrow.parquet as pq

    rows = len(table) // DAYS // FILES_PER_DAY
    for number in range(DAYS * FILES_PER_DAY):
        folder = lake / f"day=2026-01-{1 + number // FILES_PER_DAY:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table.slice(number * rows, rows),
            folder / f"part-{number % FILES_PER_DAY}.parquet",
            row_group_size=ROWS_PER_GROUP,
            max_rows_per_page=ROWS_PER_PAGE,
            compression="zstd",
            write_page_index=True,
            use_dictionary=["country", "path"],
            bloom_filter_options={"device": {"ndv": ROWS_PER_GROUP, "fpp": 0.01}},
        )


def write_table(folder: Path) -> str:
    """Create an Iceberg table of the lake's files; return what was done."""
    import pyarrow.parquet as pq

    import skipstone as sk

    files = sorted((folder / "events").rglob("*.parquet"))
    try:
        catalog = sk.catalog(folder / "warehouse")
    except UsageError as error:
        return f"left out the Iceberg table: {error.message}; {error.hint}"
    table = catalog.create_table(TABLE, pq.read_schema(files[0]), partition_by=["day(ts)"])
    table.table.add_files([f"file://{file.resolve()}" for file in files])
    return f"and the Iceberg table {TABLE} of the same files to {folder}/warehouse"
