"""Runs what README and docs show: Python in one namespace per page, and ``$ skipstone`` commands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap
from typer.testing import CliRunner

import skipstone as sk
from skipstone.cli.main import app
from skipstone.store.store import open_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
ROWS = 20_000
COUNTRIES = ["DE", "NG", "NL", "US"]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> Iterator[tuple[int, str, str]]:
    """The line, language and text of each fenced block of a page."""
    text = (ROOT / page).read_text()
    for match in _BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2]


def events() -> pa.Table:
    """Five days of events with the columns of the demo's lake."""
    row = np.arange(ROWS)
    rng = np.random.default_rng(7)
    step = 5 * 86_400_000_000 // ROWS
    start = np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64)
    amount = np.round(rng.gamma(2.0, 20.0, ROWS), 2)
    return pa.table(
        {
            "ts": pa.array(start + row * step, pa.timestamp("us", "UTC")),
            "user_id": np.where(row % 50 == 0, 31_000, row % 1_000),
            "device": rng.integers(1, 2**48, ROWS),
            "country": pa.array(COUNTRIES).take(pa.array(row % 4)),
            "amount": amount,
            "refund": pa.array(amount / 2, mask=row % 7 != 0),
        }
    )


def write_events(root: Path) -> None:
    """A lake by day below a directory, and one file beside it."""
    table = events()
    for day in range(5):
        folder = root / "events" / f"day=2026-01-{day + 1:02d}"
        folder.mkdir(parents=True)
        part = table.slice(day * ROWS // 5, ROWS // 5)
        pq.write_table(
            part,
            folder / "part-0.parquet",
            row_group_size=1_000,
            max_rows_per_page=200,
            write_page_index=True,
        )
    pq.write_table(table, root / "events.parquet", row_group_size=1_000, write_page_index=True)
    (root / "incoming").mkdir()
    pq.write_table(table.slice(0, 500), root / "incoming" / "0.parquet")
    (root / "zips").mkdir()
    (root / "zips" / "0.csv").write_text("id;zip;at\n1;01069;2026-01-01 00:00:00\n")
    (root / "members.ids").write_text("\n".join(map(str, range(500))))


def write_bucket(root: Path, endpoint: str) -> dict[str, str]:
    """Copy the lake into the bucket ``bucket``; returns variables that give access to it by a profile."""
    make = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    urllib.request.urlopen(make).close()
    keys = {"access_key_id": "testing", "secret_access_key": "testing"}
    options = {**keys, "endpoint": endpoint, "allow_http": "true"}
    store = open_root("s3://bucket/events", storage_options=options)
    for path in (root / "events").rglob("*.parquet"):
        store.write(path.relative_to(root / "events").as_posix(), [path.read_bytes()])
    lines = ["[profile analytics]", f"endpoint_url = {endpoint}"]
    config = root / "aws-config"
    config.write_text("\n".join([*lines, *(f"aws_{name} = {value}" for name, value in keys.items())]))
    return {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "analytics", "AWS_ALLOW_HTTP": "true"}


def spark_frames(session: SparkSession, root: Path) -> dict[str, Any]:
    """The data frames ``frame`` and ``frames`` of the page about ingest."""
    pq.write_table(events().slice(0, 2_000), root / "rows.parquet")
    frame = session.read.parquet(str(root / "rows.parquet"))
    (root / "streamed").mkdir()
    return {"frame": frame, "frames": session.readStream.schema(frame.schema).parquet(str(root / "streamed"))}


def namespace(root: Path) -> dict[str, Any]:
    """The names that pages use without defining them."""
    table = events()
    return {
        "sk": sk,
        "lake": sk.open(root / "events"),
        "bitmap": BitMap(range(500)),
        "schema": table.schema,
        "frame": table,
    }


def write_table() -> None:
    """The table ``db.events`` of the catalog ``warehouse/`` in the current directory."""
    catalog = sk.catalog("warehouse/")
    catalog.create_table("db.events", events().schema, partition_by=["day(ts)"])
    sk.ingest(events(), "db.events", catalog=catalog, engine="local")


def run_page(page: str, names: dict[str, Any], endpoint: str = "") -> int:
    """Run what a page shows, in order; how many snippets it has. ``endpoint`` stands in for MinIO's."""
    ran = 0
    for line, language, shown in blocks(page):
        text = shown.replace("http://localhost:9000", endpoint or "http://localhost:9000")
        if language == "python":
            run_python(absolute(text), f"{page}:{line}", names)
            ran += 1
        elif language == "console":
            ran += run_console(text, f"{page}:{line}")
    return ran


def absolute(text: str) -> str:
    """Code with the full paths of its directories: Spark's workers have a current directory of their own."""
    return re.sub(r'"(\w+/)"', lambda match: repr(str(Path.cwd() / match[1])), text)


def run_python(text: str, where: str, names: dict[str, Any]) -> None:
    """Run a block, which may await."""
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # the repository's own documentation
    if inspect.iscoroutine(result):
        asyncio.run(result)


def run_console(text: str, where: str) -> int:
    """Run the ``skipstone`` commands of a block; how many there are."""
    lines = (re.sub(r"^\$ (?:[A-Z_]+=\S+ )*", "$ ", line) for line in text.splitlines())
    commands = [line[2:] for line in lines if line.startswith("$ skipstone ")]
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        assert done.exit_code == 0, f"{where}: {command}\n{done.output}"
    return len(commands)
