"""A tour of the lake of ``skipstone demo``: what is read for an answer, and proof that it is complete.

Then the same from an index, which knows what footers say; sums and averages of which it knows most; a lake
that Spark writes and asks; and last an Iceberg table whose partitioning changes on the way.

Run it with ``make demo`` or ``python examples/demo.py DIR``. It writes to ``demo/`` by default, and what it
writes stays there.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

import skipstone as sk
from skipstone.cli import demo
from skipstone.cli.output import drawn, screen
from skipstone.index.views import build_tree, status_tree
from skipstone.report.explain import aggregate_tree, scan_tree
from skipstone.report.node import ReportNode
from skipstone.report.text import paint
from skipstone.report.units import count, percent, plural, size
from skipstone.scan.forecast import forecast
from skipstone.scan.row_view import answer_blocks
from skipstone.write.views import ingest_tree

INGESTED = 300_000
INGESTED_FILE = 1_500_000


def questions(table: pa.Table) -> list[tuple[str, str, dict[str, Any]]]:
    """What each question shows, its predicate, and the rest of it."""
    device = table["device"][len(table) * 3 // 5].as_py()
    return [
        (
            "Partitions before footers, then files, row groups and pages",
            "day = DATE '2026-01-04' AND ts >= '2026-01-04 21:00:00' AND country = 'NG'",
            {},
        ),
        ("Two columns that agree cut deeper than one", "user_id = 31000 AND ts < '2026-01-04 03:00:00'", {}),
        ("A random id: bounds say nothing, bloom filters do", f"device = {device}", {}),
        ("Text is compared by its bytes: a prefix is a range", "path LIKE '/shop/007/4%'", {}),
        ("Null counts are evidence too", "refund IS NOT NULL AND amount < 1", {}),
        ("What metadata can't judge is left to the rows", "user_id < 100 AND lower(country) = 'de'", {}),
        (
            "The ten dearest: units by their bounds, best first",
            "amount < 1000",
            {"order_by": "amount desc", "limit": 10, "columns": ["ts", "user_id", "amount"]},
        ),
    ]


def head(title: str) -> None:
    """A title with a line behind it."""
    on = screen()
    rule = "─" * max(on.width - len(title) - 4, 2)
    print(paint([("── ", "dim"), (title, "bold"), (f" {rule}", "dim")], color=on.color))


def ask(lake: sk.Lake | sk.Table, title: str, where: str, more: dict[str, Any]) -> None:
    """Answer, draw what was read and why, and prove that the answer is that of a full scan."""
    head(title)
    scan = lake.scan(where, **more)
    ran = scan.execute()
    ran.to_arrow()
    trace = replace(ran.trace, lake=Path(lake.uri).name, reads=forecast(scan.plan()))
    print(drawn(scan_tree(trace)))
    checked = scan.verify()
    if not checked.ok:
        raise SystemExit(str(checked))
    print("the same rows as in a full scan ✓\n")


def reuse(lake: sk.Lake) -> None:
    """A plan is a value: it travels, combines with others, and reads other columns."""
    late, cheap = (lake.scan(where).plan() for where in ("ts >= '2026-01-05 23:00:00'", "amount < 2"))
    both = pickle.loads(pickle.dumps(late & cheap))  # as if on another machine
    rest = late - cheap
    counts = [sk.execute(plan, columns=["user_id"]).to_arrow().num_rows for plan in (late, both, rest)]
    print(
        f"plans combine: {plural(counts[0], 'late row')} = {count(counts[1])} cheap + {count(counts[2])} not"
    )
    if counts[0] != counts[1] + counts[2]:
        raise SystemExit("a row was lost in combining plans")


def cost(folder: Path, table: pa.Table, total: int) -> str:
    """What all answers take together, from a lake that was just opened."""
    lake = sk.open(folder)
    for _, where, more in questions(table):
        lake.scan(where, **more).to_arrow()
    share = percent(lake.io.bytes, total * len(questions(table)))
    return f"{size(lake.io.bytes)} read in {lake.io.requests} requests, {share} of what full scans take"


def index(folder: Path, where: str) -> None:
    """Index the lake, and plan the same question from footers and from the index."""
    head("An index: the contents of all footers in one place")
    lake = sk.open(folder)
    report = lake.index.build(engine="local")
    print(drawn(build_tree(report)))
    status = replace(lake.index.status(), location=f".skipstone/{folder.name}", segments=())
    print(drawn(status_tree(status)), "\n")
    for said, use in (("without the index", False), ("with the index", True)):
        fresh = sk.open(folder)
        plan = fresh.scan(where, index=use).plan()
        spent = f"{plural(fresh.io.requests, 'request')} to the lake's files, {size(fresh.io.bytes)}"
        print(f"a plan {said}: {spent}; {plural(len(plan.tasks), 'file')} to read")
        if use and fresh.io.requests:
            raise SystemExit("a file of the lake was opened, although the index covers all files")
    print()
    ask(sk.open(folder), "The second question again: no footer is opened", where, {})


def aggregates(folder: Path, table: pa.Table) -> None:
    """Sums of some users' events, most of them known to the index; and proof that they are exact."""
    head("Aggregates: answered from the index, only the edges of the range are read")
    lake = sk.open(folder)
    lake.index.build(engine="local", sums=["amount"])
    first, last = len(table) // 100, len(table) // 50
    members = BitMap(range(first, last))
    answer = lake.scan("ts >= '2026-01-02 12:34:00'").aggregate(
        sk.count(), sk.sum("amount"), sk.max("amount"), within=members, id_column="user_id"
    )
    print(drawn(ReportNode(body=answer_blocks(answer.to_arrow(), answer.bounds, grouped=False))))
    print()
    trace = replace(answer.trace, scan=replace(answer.trace.scan, lake=folder.name))
    print(drawn(aggregate_tree(trace)))
    since = pa.scalar(dt.datetime(2026, 1, 2, 12, 34, tzinfo=dt.UTC), table["ts"].type)
    member = pc.and_(pc.greater_equal(table["user_id"], first), pc.less(table["user_id"], last))
    rows = table["amount"].filter(pc.and_(member, pc.greater_equal(table["ts"], since))).to_numpy()
    if (answer["count"], answer["sum(amount)"]) != (len(rows), math.fsum(rows)):
        raise SystemExit("the sum differs from that of all rows")
    print("the exact sum of all these rows, rounded once ✓\n")


def spark(folder: Path, table: pa.Table) -> None:
    """Ingest unsorted rows through Spark, and look some of them up from there."""
    head("Spark: unsorted rows become a lake that skips")
    try:
        session = sk.spark()
    except sk.SkipstoneError as error:
        print(f"left out: {error}\n")
        return
    try:
        # Skipstone goes by the data, not by the order in which it comes.
        order = np.random.default_rng(7).permutation(len(table))[:INGESTED]
        report = sk.ingest(
            table.take(pa.array(order)),
            folder,
            cluster_by=["user_id", "ts"],
            cluster="hilbert",
            blooms=["device"],
            engine="spark",
            target_file_bytes=INGESTED_FILE,
            session=session,
        )
        print(drawn(ingest_tree(replace(report, lake=folder.name))), "\n")
        ask(sk.open(folder), "One user of that lake", "user_id = 31000", {})
        scan = sk.open(folder).scan("user_id BETWEEN 31000 AND 31009", columns=["country", "amount"])
        for route in ("auto", "slices"):
            told = json.loads(scan.explain(format="json", session=session, route=route))["spark"]
            print(f"to_spark(route={route!r}) takes the route {told['route']!r}: {told['why']}")
            if scan.to_spark(session, route=route).count() != scan.count():
                raise SystemExit("Spark has other rows")
        print("the same rows in Spark ✓\n")
        iceberg(folder.parent / "warehouse", table.slice(0, INGESTED), session)
    finally:
        session.stop()


def iceberg(warehouse: Path, table: pa.Table, session: Any) -> None:
    """A table by day, then by user as well: appends, an overwrite, and what is skipped in either part."""
    head("Iceberg: a table whose partitioning has changed")
    catalog = sk.catalog(warehouse)
    shop = catalog.create_table("shop.evolving", table.schema, partition_by=["day(ts)"], sort_by=["user_id"])
    half = len(table) // 2
    sk.ingest(table.slice(0, half), shop, session=session)
    with shop.table.update_spec() as spec:
        spec.add_field("user_id", "bucket[4]", "user")
    shop.refresh()
    sk.ingest(table.slice(half), shop, session=session)
    ask(shop, "One user, in files of two specs", "user_id = 5000", {})
    before = shop.snapshot
    sk.ingest(table.slice(0, 0), shop, mode="overwrite", where="country = 'DE'", session=session)
    gone = shop.scan(snapshot=before).count() - shop.scan().count()
    germans = pc.sum(pc.equal(table["country"], "DE")).as_py()
    print(f"{plural(gone, 'row')} of country DE were removed; the previous snapshot still has them")
    if gone != germans or shop.scan("country = 'DE'").count():
        raise SystemExit("the overwrite took other rows")
    print("no other rows were removed ✓\n")


def local(folder: Path, table: pa.Table) -> None:
    """Write the lake and query, index and aggregate it, without Spark."""
    began = time.perf_counter()
    demo.write_lake(table, folder)
    lake = sk.open(folder)
    total = sum(file.size for file in lake.files)
    took = time.perf_counter() - began
    print(f"{count(len(table))} events in {len(lake.files)} files, {size(total)}, written in {took:.1f} s\n")
    before = lake.scan("day = DATE '2026-01-02'").count()
    print(f"{plural(before, 'row')} on the second day, counted from metadata: {size(lake.io.bytes)} read\n")
    for title, where, more in questions(table):
        ask(lake, title, where, more)
    reuse(lake)
    print(f"all answers: {cost(folder, table, total)}, footers included\n")
    index(folder, questions(table)[1][1])
    print(f"all answers with the index: {cost(folder, table, total)}\n")
    aggregates(folder, table)
    # The commands at the end show both ways: without an index, and with one.
    sk.open(folder).index.drop()


def main(folder: Path) -> None:
    """Write the lake, ask, prove each answer, and say what to try next."""
    began = time.perf_counter()
    try:
        demo.prepare(folder, replace=True)
    except sk.SkipstoneError as error:
        raise SystemExit(f"error: {error}") from None
    table = demo.events()
    local(folder / "events", table)
    spark(folder / "ingested", table)
    print(f"{demo.write_table(folder)}; {time.perf_counter() - began:.1f} s in all")
    demo.finish(folder)
    print(f"\nTry:\n{demo.suggestions(folder)}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) > 1 else Path("demo"))
