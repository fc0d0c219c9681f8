"""Rewritten manifests: which ones, in what order, what they keep, and other commits at the same time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.errors import ConflictError, UsageError
from tests.compact._racing import ids_of, make, racing, rows
from tests.compact._reach import all_entries, on_disk, ours
from tests.compact._tables import registered
from tests.iceberg._maker import Maker


def ranges(table: sk.Table) -> list[tuple[bytes | None, bytes | None]]:
    return [(info.partitions[0].lower, info.partitions[0].upper) for info in table.inventory.infos]


def test_small_manifests_are_combined(tmp_path: Path) -> None:
    table = make(tmp_path)
    before, files, ids = all_entries(table)[table.snapshot or 0], ours(table), ids_of(table)
    plan = table.rewrite_manifests(dry_run=True)
    assert (plan.manifests_before, plan.manifests_after, plan.replaced, plan.created) == (4, 1, 4, 1)
    assert (plan.entries, plan.snapshot, plan.bytes_replaced) == (8, None, plan.bytes_created)
    report = table.rewrite_manifests(properties={"why": "test"})
    assert (report.manifests_before, report.manifests_after, report.replaced, report.created) == (4, 1, 4, 1)
    assert (report.entries, report.snapshot) == (8, table.snapshot)
    assert report.bytes_created < report.bytes_replaced == plan.bytes_replaced
    assert all_entries(table)[table.snapshot or 0] == before
    assert ours(table) == files
    assert ids_of(table) == ids
    last = table.snapshots()[-1]
    assert (last.operation, last.summary["why"]) == ("replace", "test")
    counts = {name: last.summary[f"manifests-{name}"] for name in ("created", "kept", "replaced")}
    assert counts == {"created": "1", "kept": "0", "replaced": "4"}
    assert last.summary["entries-processed"] == "8"
    assert (last.summary["total-data-files"], last.summary["total-records"]) == ("8", "40")
    assert "added-data-files" not in last.summary
    assert not table.rewrite_manifests().replaced


def test_entries_are_sorted_by_partition(tmp_path: Path) -> None:
    catalog = sk.catalog(tmp_path / "warehouse")
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    table = catalog.create_table("db.t", schema, partition_by=["p"])
    for first in range(6):
        table.table.append(pa.table([[first] * 40, list(range(40))], schema=schema))
    table.refresh()
    files = ours(table)
    table.rewrite_manifests(target_size_bytes=1, force=True, rewrite_all=True)
    assert len(table.inventory.infos) > 1, "blocks are the least size"
    assert ours(table) == files
    bounds = [
        (int.from_bytes(low or b"", "little"), int.from_bytes(high or b"", "little"))
        for low, high in ranges(table)
    ]
    assert (min(bounds)[0], max(bounds)[1]) == (0, 39)
    assert all(one[1] <= other[0] for one, other in pairwise(sorted(bounds)))
    # Appends that touch all partitions spread them again.
    for first in range(3):
        table.table.append(pa.table([[first] * 40, list(range(40))], schema=schema))
    report = table.rewrite_manifests(target_size_bytes=20_000, force=True)
    assert report.replaced == report.manifests_before > 3
    assert report.created < report.replaced
    assert not table.rewrite_manifests(target_size_bytes=20_000, force=True).replaced


def test_deletes_stay_what_they_are(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long"), ("p", "string")])
    maker.append([{"id": n, "p": "a"} for n in range(10)], files=2)
    maker.delete_equal([1], [(3,), (4,)])
    maker.append([{"id": n, "p": "b"} for n in (3, 10, 11)])
    for places in ([0], [2], [5]):
        maker.delete_positions([maker.places()[n] for n in places])
    maker.append([{"id": 20, "p": "a"}])
    table = registered(maker.metadata_location, tmp_path)
    files, ids = ours(table), ids_of(table)
    before = all_entries(table)[table.snapshot or 0]
    assert {row["contents"] for row in files} == {0, 1, 2}
    report = table.rewrite_manifests(rewrite_all=True)
    # Data, position deletes, and equality deletes under another spec.
    assert report.replaced == report.manifests_before == 6
    assert report.created == 3
    assert ids_of(table) == ids
    assert 3 in ids
    assert ours(table) == files
    assert all_entries(table)[table.snapshot or 0] == before


def test_where_and_spec_choose_manifests(tmp_path: Path) -> None:
    table = make(tmp_path, appends=0)
    for part in "aabbb":
        table.table.append(rows(0, 5, part))
    with table.table.update_spec() as change:
        change.remove_field("p")
    for part in "ab":
        table.table.append(rows(0, 5, part))
    table.refresh()
    plan = table.rewrite_manifests("p = 'a' and id > 2", dry_run=True)
    assert (plan.replaced, plan.created, plan.entries) == (4, 2, 4)
    assert table.rewrite_manifests(spec_id=0, dry_run=True).replaced == 5
    assert table.rewrite_manifests("p = 'b'", spec_id=0, dry_run=True).replaced == 3
    assert table.rewrite_manifests("p = 'c'", spec_id=0, dry_run=True).replaced == 0
    report = table.rewrite_manifests("p = 'a'", spec_id=0)
    assert (report.replaced, report.created, report.manifests_after) == (2, 1, 6)
    assert table.scan().count() == 35
    with pytest.raises(UsageError, match=r"db\.t: unknown partition spec 7 \(available: 0, 1\)"):
        table.rewrite_manifests(spec_id=7)
    with pytest.raises(UsageError, match="target_size_bytes must be a number of bytes, got 0"):
        table.rewrite_manifests(target_size_bytes=0)


def test_the_index_follows(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.index.build(engine="local")
    report = table.rewrite_manifests()
    assert (report.replaced, report.index_problem) == (4, "")
    # A new process finds all entries in the index.
    opened = sk.catalog(tmp_path / "warehouse").open("db.t")
    assert opened.index.coverage is not None
    assert opened.inventory.covered


# -- others ----------------------------------------------------------------------------------------


def test_an_append_in_between_is_kept(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = racing(tmp_path)
    other = sk.catalog(tmp_path / "warehouse").open("db.t")
    catalog.others = [lambda: other.table.append(rows(100, 110))]
    table = sk.catalog(catalog).open("db.t")
    report = table.rewrite_manifests()
    assert catalog.commits == 2
    assert (report.replaced, report.created) == (4, 1)
    assert ids_of(table) == [*range(40), *range(100, 110)]
    # The manifests of the first attempt served the second.
    live = {info.path for info in table.inventory.infos}
    assert len(live) == 2
    used = {str(path) for path in (tmp_path / "warehouse/db/t/metadata").glob("*-m0.avro")}
    assert len(used) == 6
    assert not table.remove_orphans(older_than="0s", allow_recent=True).files


def test_a_delete_in_between_is_kept(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = racing(tmp_path)
    other = sk.catalog(tmp_path / "warehouse").open("db.t")
    catalog.others = [lambda: other.table.delete("id < 10")]
    table = sk.catalog(catalog).open("db.t")
    report = table.rewrite_manifests()
    # The manifest of the deleted files is left to the other commit.
    assert (catalog.commits, report.replaced, report.created) == (2, 3, 1)
    assert ids_of(table) == list(range(10, 40))
    assert table.table.scan().to_arrow().num_rows == 30
    assert not table.remove_orphans(older_than="0s", allow_recent=True).files


def test_another_rewrite_in_between_leaves_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    catalog = racing(tmp_path)
    other = sk.catalog(tmp_path / "warehouse").open("db.t")
    catalog.others = [other.rewrite_manifests]
    table = sk.catalog(catalog).open("db.t")
    report = table.rewrite_manifests()
    assert (report.snapshot, report.replaced) == (None, 0)
    assert table.snapshot == other.refresh().snapshot
    assert ids_of(table) == list(range(40))
    assert not table.remove_orphans(older_than="0s", allow_recent=True).files


def test_a_failed_commit_leaves_no_files(tmp_path: Path) -> None:
    table = make(tmp_path, properties={"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    catalog = racing(tmp_path)
    other = sk.catalog(tmp_path / "warehouse").open("db.t")

    def append() -> None:
        other.table.refresh().append(rows(0, 1))

    catalog.others = [append, append]
    with pytest.raises(ConflictError, match="commit failed after 2 attempts"):
        sk.catalog(catalog).open("db.t").rewrite_manifests()
    assert table.refresh().scan().count() == 42
    assert not table.remove_orphans(older_than="0s", allow_recent=True).files


# -- what can't be rewritten -------------------------------------------------------------------------


def test_manifests_of_version_1_stay(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long")], format_version=1)
    for n in range(3):
        maker.append([{"id": n}], merge=False)
    maker.upgrade(2)
    for n in range(3, 6):
        maker.append([{"id": n}], merge=False)
    table = registered(maker.metadata_location, tmp_path)
    report = table.rewrite_manifests()
    assert (report.manifests_before, report.unsupported, report.created) == (6, 3, 1)
    assert 2 <= report.replaced <= 3
    assert ids_of(table) == [*range(6)]
    assert table.table.scan().to_arrow().num_rows == 6


@pytest.mark.parametrize("version", [1, 3])
def test_other_versions_are_refused_before_any_work(tmp_path: Path, version: int) -> None:
    maker = Maker(tmp_path / "t", [("id", "long")], format_version=version)
    for n in range(3):
        maker.append([{"id": n}])
    table = registered(maker.metadata_location, tmp_path)
    before = on_disk(table)
    with pytest.raises(UsageError, match=f"version {version}"):
        table.rewrite_manifests()
    if version == 3:
        with pytest.raises(UsageError, match="version 3 is not supported"):
            table.expire(older_than="0s")
        assert table.remove_orphans(older_than="0s", dry_run=True).listed == len(before)
    assert on_disk(table) == before


def test_a_metadata_file_is_read_only(tmp_path: Path) -> None:
    table = sk.open(make(tmp_path).table.metadata_location)
    assert isinstance(table, sk.Table)
    for run in (table.rewrite_manifests, table.expire, table.remove_orphans):
        with pytest.raises(UsageError, match="read-only"):
            run()
    assert table.rewrite_manifests(dry_run=True).replaced == 4
    assert len(table.expire(older_than="0s", dry_run=True).snapshots) == 3
