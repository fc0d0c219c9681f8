"""Maintenance of random evolved tables: no snapshot that stays changes, and exactly the garbage goes.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=upkeep:12`` runs one of them again. What a
table refers to is what pyiceberg says.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import skipstone as sk
from tests.compact._reach import (
    all_entries,
    all_rows,
    metadata_files,
    on_disk,
    ours,
    reachable,
    rows_at,
    their_rows,
)
from tests.compact._tables import registered
from tests.iceberg._chains import random_chain
from tests.property._frame import REPLAY, run_part
from tests.support.samples import sample


def run_chain(seed: str, folder: Path, _numbers: range, count: Counter[str]) -> None:
    """Rewrite the manifests of a table, expire some snapshots, and remove the orphans."""
    root = folder / seed.replace(":", "-")
    readable = seed.endswith(("1", "4", "7"))
    chain = random_chain(seed, root / "table", writable=True, readable=readable)
    table = registered(chain.maker.metadata_location, root)
    words = f"SKIPSTONE_REPLAY={seed}\n  " + "\n  ".join(chain.words)
    count["cases"] += 1
    try:
        all_rows(table)
    except sk.CorruptFileError:
        # Manifest lists that lack what a merge of the maker forgot look truncated.
        count["refused"] += 1
        return
    try:
        rewrite(table, random.Random(f"{seed}:manifests"), readable, count)
        expire(table, random.Random(f"{seed}:expire"), readable, count)
        remove_orphans(table, random.Random(f"{seed}:orphans"), readable, count)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{words}") from error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{words}") from error


def rewrite(table: sk.Table, rng: random.Random, readable: bool, count: Counter[str]) -> None:
    before, theirs, entries = all_rows(table), their_rows(table) if readable else {}, all_entries(table)
    old, current, files = table.snapshot, rows_at(table, None), ours(table)
    options = {
        "target_size_bytes": rng.choice([None, 6_000, 30_000]),
        "force": True,
        "rewrite_all": rng.random() < 0.5,
        "spec_id": rng.choice([None, None, *table.specs]),
    }
    plan = table.rewrite_manifests(**options, dry_run=True)
    assert (table.snapshot, plan.snapshot) == (old, None)
    report = table.rewrite_manifests(**options)
    assert (report.replaced, report.unsupported) == (plan.replaced, plan.unsupported)
    after = all_rows(table)
    assert {number: after[number] for number in before} == before
    found = all_entries(table)
    assert {number: found[number] for number in entries} == entries
    if report.snapshot is not None:
        assert report.snapshot == table.snapshot
        assert rows_at(table, None) == current
        assert ours(table) == files
        assert found[report.snapshot] == entries[old]
        snapshot = table.metadata.snapshot_by_id(report.snapshot)
        live = [one for one in snapshot.manifests(table.table.io) if one.existing_files_count]
        assert report.entries <= sum(one.existing_files_count for one in live)
        count["rewritten"] += 1
        count["manifests combined"] += report.created < report.replaced
    if readable:
        now = their_rows(table)
        assert {number: now[number] for number in theirs} == theirs
        assert report.snapshot is None or len(now[report.snapshot]) == len(current)
    if not options["rewrite_all"]:
        assert not table.rewrite_manifests(**options, dry_run=True).replaced
        count["converged"] += report.snapshot is not None


def expire(table: sk.Table, rng: random.Random, readable: bool, count: Counter[str]) -> None:
    before, disk, needed = all_rows(table), on_disk(table), reachable(table)
    theirs = their_rows(table) if readable else {}
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    times = sorted(one.timestamp_ms for one in table.metadata.snapshots)
    free = [number for number in before if number not in heads]
    options: dict[str, object] = {
        "older_than": datetime.fromtimestamp((rng.choice(times) + rng.choice([0, 1])) / 1000, UTC),
        "retain_last": rng.choice([1, 1, 2, 3]),
    }
    if free and rng.random() < 0.3:
        options = {"snapshot_ids": rng.sample(free, rng.randrange(1, len(free) + 1))}
    plan = table.expire(**options, dry_run=True)
    assert on_disk(table) == disk
    assert set(all_rows(table)) == set(before)
    report = table.expire(**options)
    assert (report.snapshots, report.files, report.bytes) == (plan.snapshots, plan.files, plan.bytes)
    assert not report.failures
    left = {number: rows for number, rows in before.items() if number not in report.snapshots}
    assert all_rows(table) == left
    assert heads <= left.keys()
    if readable:
        assert their_rows(table) == {number: theirs[number] for number in left}
    gone = needed - reachable(table)
    assert {path.removeprefix("file://") for path in report.files} == gone
    assert on_disk(table) - metadata_files(table) == disk - gone - metadata_files(table)
    assert report.deleted == len(gone) == sum(one.files for one in report.counts)
    count["expired"] += bool(report.snapshots)
    count["snapshots left"] += len(left) > 1
    count["data deleted"] += any(one.kind == "data" for one in report.counts)
    count["deletes deleted"] += any("deletes" in one.kind for one in report.counts)


def remove_orphans(table: sk.Table, rng: random.Random, readable: bool, count: Counter[str]) -> None:
    before, theirs = all_rows(table), their_rows(table) if readable else {}
    root = Path(table.metadata.location.removeprefix("file://"))
    rubbish = {root / "data" / "left.parquet", root / "metadata" / "left-m0.avro", root / "deep" / "er" / "x"}
    for path in rng.sample(sorted(rubbish), 2):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
    (root / "_own").mkdir()
    (root / "_own" / "file").write_bytes(b"theirs")
    needed = reachable(table) | metadata_files(table) | {str(root / "_own" / "file")}
    garbage = on_disk(table) - needed
    assert not table.remove_orphans(dry_run=True).files
    report = table.remove_orphans(older_than="0s", allow_recent=True)
    assert {path.removeprefix("file://") for path in report.files} == garbage
    assert report.deleted == len(garbage)
    assert on_disk(table) == needed
    assert all_rows(table) == before
    if readable:
        assert their_rows(table) == theirs
    again = table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True)
    assert (again.files, again.listed) == ((), again.referenced)
    count["orphans"] += len(garbage)


def test_only_garbage_goes(tmp_path: Path) -> None:
    count = run_part("upkeep", run_chain, tmp_path, 0, sample("upkeep"), 1)
    assert count["refused"] < 0.1 * count["cases"]
    assert count["expired"] > 0.4 * count["cases"]
    assert count["snapshots left"] > 0.2 * count["cases"]
    assert count["data deleted"] > 0.1 * count["cases"]
    assert count["rewritten"] > 0.2 * count["cases"]
    assert count["manifests combined"] > 0.05 * count["cases"]
    assert count["orphans"] >= 2 * count["cases"]


def test_replay(tmp_path: Path) -> None:
    if REPLAY.startswith("upkeep:"):
        run_chain(REPLAY, tmp_path, range(1), Counter())
