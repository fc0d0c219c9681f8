"""Mistakes that other compactions of Iceberg tables have made: each loses rows, or brings some back."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, RemovePartitionSpecsUpdate
from pyiceberg.transforms import BucketTransform, DayTransform

import skipstone as sk
from skipstone.errors import ConflictError, UsageError
from tests.compact._tables import append_ids, data_paths, ids_of, live_keys, numbered, registered, rows_of
from tests.compact._writers import delete_equal, delete_positions, file_with, files_of
from tests.iceberg._maker import Maker

EVERYTHING: dict[str, Any] = {"rewrite_all": True}


def planned(table: sk.Table, where: Any = None, **options: Any) -> Any:
    return table.plan_compaction(where, **{**EVERYTHING, **options})


def other(folder: Path) -> sk.Table:
    """The table as another process opens it."""
    return sk.open("db.t", catalog=folder / "w")


# -- specs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["day(ts)", "p"])
def test_a_spec_id_that_is_used_again_conflicts(name: str, tmp_path: Path) -> None:
    """Another process removes the target spec, and gives its id to another one, while files are written."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.timestamp("us"))])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema)
    rows = {"id": range(10), "p": ["a", "b"] * 5, "ts": pa.array(range(10), pa.timestamp("us"))}
    table.table.append(pa.table(rows, schema=schema))
    with table.table.update_spec() as change:
        change.add_identity("p")
    with table.table.update_spec() as change:
        change.remove_field("p")
    table.refresh()
    spec = next(number for number, one in table.specs.items() if any(f.name == "p" for f in one.fields))

    def replaced(phase: str, done: int, total: int) -> None:
        writer = other(tmp_path).table
        (again,) = [one for one in table.specs.values() if one.spec_id == spec]
        source = schema.get_field_index("ts") + 1 if name != "p" else again.fields[0].source_id
        changed = {"source_id": source, "field_id": again.fields[0].field_id + 1, "name": "ts_day"}
        fields = [again.fields[0].model_copy(update={**changed, "transform": DayTransform()})]
        used = again if name == "p" else PartitionSpec(*fields, spec_id=spec)
        if phase == "rewriting" and done == total:
            writer._do_commit(
                (RemovePartitionSpecsUpdate(spec_ids=[spec]), AddPartitionSpecUpdate(spec=used)), ()
            )

    plan, before = planned(table, target_spec_id=spec), rows_of(table)
    if name == "p":
        # The same definition again is the same spec.
        assert table.compact(plan, engine="local", progress=replaced).files_added == 2
    else:
        with pytest.raises(ConflictError, match=f"partition spec {spec} was removed by another commit"):
            table.compact(plan, engine="local", progress=replaced)
    assert rows_of(other(tmp_path)) == before


def test_files_stay_in_their_own_spec(tmp_path: Path) -> None:
    """Bucket files under a default by day: a manifest of the wrong spec would cut filtered scans."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema, partition_by=["bucket(4, id)"])
    day = 86_400 * 10**6

    def append(first: int) -> None:
        rows = {
            "id": range(first, first + 16),
            "ts": pa.array([n * day // 8 for n in range(16)], "timestamp[us]"),
        }
        table.table.append(pa.table(rows, schema=schema))

    append(0)
    append(16)
    with table.table.update_spec() as spec:
        spec.remove_field("id_bucket")
        spec.add_field("ts", DayTransform(), "ts_day")
    append(32)
    table.refresh()
    keys, before = live_keys(table), rows_of(table)
    report = table.compact(planned(table), engine="local", checksums=True)
    assert (report.groups, report.files_removed, report.files_added) == (6, 10, 6)
    assert (rows_of(table), live_keys(table)) == (before, keys)
    assert {key.spec_id for key in keys} == {0, 1}
    # By pyiceberg as well, which prunes manifests by their specs.
    for number in range(48):
        assert len(table.table.scan(row_filter=f"id = {number}").to_arrow()) == 1
        assert table.scan(f"id = {number}").count() == 1
    for manifest in table.table.current_snapshot().manifests(table.table.io):
        for entry in manifest.fetch_manifest_entry(table.table.io):
            transform = {0: BucketTransform, 1: DayTransform}[manifest.partition_spec_id]
            spec_fields = table.specs[manifest.partition_spec_id].fields
            assert isinstance(spec_fields[0].transform, transform)
            assert len(entry.data_file.partition) == 1


def test_partitions_that_are_odd(tmp_path: Path) -> None:
    """NaN is one partition; 9 comes before 10; NULL and the text "None" are two; so are both zeros."""
    values = [math.nan, 10.0, 9.0, None, -0.0, 0.0]
    maker = Maker(tmp_path / "t", [("id", "long"), ("x", "double")], [("x", "identity")], seed=3)
    for _ in range(2):
        maker.append([{"id": n, "x": x} for n, x in enumerate(values)])
    table = registered(maker.metadata_location, tmp_path)
    plan = table.plan_compaction(min_input_files=2)
    names = [f"spec 0 ({x})" for x in ("NULL", "-0.0", "0.0", "9.0", "10.0", "nan")]
    assert [(str(group.key), group.count) for group in plan.groups] == [(name, 2) for name in names]
    before, keys = rows_of(table), live_keys(table)
    assert table.compact(plan, engine="local", checksums=True).groups == 6
    assert (rows_of(table), live_keys(table), len(files_of(table))) == (before, keys, 6)
    texts = [None, "None", "null", "a, b", "a", "b, c"]
    maker = Maker(tmp_path / "u", [("s", "string"), ("u", "string")], [("s", "identity"), ("u", "identity")])
    for _ in range(2):
        maker.append([{"s": one, "u": two} for one in texts for two in texts])
    table = registered(maker.metadata_location, tmp_path / "second")
    before = rows_of(table)
    plan = table.plan_compaction(min_input_files=2)
    assert [group.count for group in plan.groups] == [2] * 36
    assert table.compact(plan, engine="local").files_added == 36
    assert rows_of(table) == before


def test_old_specs_of_nans_and_dropped_columns(tmp_path: Path) -> None:
    maker = Maker(
        tmp_path / "t",
        [("id", "long"), ("x", "double"), ("s", "string")],
        [("x", "identity"), ("s", "truncate[2]")],
        seed=4,
    )
    for _ in range(3):
        maker.append([{"id": n, "x": [math.nan, 1.5, None][n % 3], "s": "abcdef"} for n in range(6)])
    maker.evolve_spec([("id", "bucket[2]")])
    maker.evolve_schema(drop=["x", "s"])
    for n in (6, 9):
        maker.append([{"id": n + k} for k in range(3)])
    table = registered(maker.metadata_location, tmp_path)
    before, keys = rows_of(table), live_keys(table)
    report = table.compact(planned(table, target_file_size_bytes=1 << 20), engine="local")
    assert (report.groups, rows_of(table)) == (len(keys), before)
    assert live_keys(table) == keys
    assert len(files_of(table)) == len(keys)
    # To another spec the rows move by their own values.
    report = table.compact(planned(table, target_spec_id=table.metadata.default_spec_id), engine="local")
    assert (rows_of(table), {key.spec_id for key in live_keys(table)}) == (before, {1})


def test_void_specs_are_unpartitioned(tmp_path: Path) -> None:
    """So an equality delete of one is global, and a compaction elsewhere keeps it."""
    maker = Maker(tmp_path / "t", [("id", "long"), ("s", "string")], [("s", "identity")], seed=5)
    for _ in range(2):
        maker.append([{"id": n, "s": "ab"[n % 2]} for n in range(6)])
    void = maker.evolve_spec([("s", "void")])
    maker.delete_equal([1], [(3,)], partitions=[(void.id, (None,))])
    table = registered(maker.metadata_location, tmp_path)
    before = rows_of(table)
    assert len(before) == 10
    report = table.compact(table.plan_compaction("s = 'a'", min_input_files=2), engine="local")
    assert (report.groups, report.delete_files_removed, rows_of(table)) == (1, 0, before)
    report = table.compact(table.plan_compaction(rewrite_all=True), engine="local")
    assert (report.rows_removed, report.delete_files_removed, rows_of(table)) == (2, 1, before)


# -- other writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("refresh", [False, True], ids=["unaware", "refreshed"])
def test_deletes_meanwhile_stay_deleted(tmp_path: Path, refresh: bool) -> None:
    """First of a rewritten file, then of another: the base of the check is the plan, not the head.

    A table that is refreshed before the commit is checked on the first attempt all the same.
    """
    table = numbered(tmp_path, 3)
    plan = planned(table)
    writer = other(tmp_path).table
    first, second = (file_with(table, f"id = {n}") for n in (5, 15))
    delete_positions(writer, {first: [5]})
    delete_positions(writer, {second: [5]})
    append_ids(other(tmp_path), 100, 103)
    if refresh:
        table.refresh()
    report = table.compact(plan, engine="local")
    wanted = [n for n in (*range(30), 100, 101, 102) if n not in (5, 15)]
    assert ids_of(table) == wanted
    assert (report.rewritten_again, report.rows_removed, report.delete_files_removed) == (1, 2, 2)
    assert not report.failures
    assert len(table.delete_inventory) == 0


def test_only_groups_in_conflict_are_planned_again(tmp_path: Path) -> None:
    table = numbered(tmp_path, 2, partition_by=["p"])
    plan = planned(table)
    assert len(plan.groups) == 2
    writer = other(tmp_path).table
    delete_positions(writer, {file_with(table, "id = 5 AND p = 'b'"): [2]})
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, len(report.snapshots), report.groups) == (1, 2, 2)
    assert ids_of(table) == [n for n in range(20) if n != 5]
    operations = [one.operation for one in table.snapshots()][-2:]
    assert operations == ["replace", "replace"]
    # The first one has the group without a conflict.
    added = [one.summary["added-records"] for one in table.snapshots()[-2:]]
    assert added == ["10", "9"]


def test_appends_meanwhile_are_welcome(tmp_path: Path) -> None:
    """At pyiceberg's default isolation, which lets an append fail an overwrite; nothing is written twice."""
    table = numbered(tmp_path, 3)
    plan, paths = planned(table), data_paths(tmp_path)
    for first in (30, 40):
        append_ids(other(tmp_path), first, first + 10)
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, len(report.snapshots), report.groups) == (0, 1, 1)
    assert ids_of(table) == list(range(50))
    assert len(data_paths(tmp_path) - paths) == 3


def test_equality_deletes_meanwhile_still_apply(tmp_path: Path) -> None:
    """New files are as old as the plan's snapshot."""
    table = numbered(tmp_path, 3, partition_by=["p"])
    plan = planned(table)
    key = next(key for key in live_keys(table) if key.partition == ("b",))
    delete_equal(other(tmp_path).table, "id", [5, 6, 15], key)
    report = table.compact(plan, engine="local")
    assert report.rewritten_again == 0
    wanted = [n for n in range(30) if n not in (5, 15)]
    assert ids_of(table) == wanted
    assert set(files_of(table).sequences.tolist()) == {plan.sequence} == {3}
    head = table.table.current_snapshot()
    for manifest in head.manifests(table.table.io):
        if manifest.content == ManifestContent.DATA and manifest.has_added_files():
            # Or readers would prune the deletes.
            assert (manifest.sequence_number, manifest.min_sequence_number) == (head.sequence_number, 3)
    # The next compaction applies them.
    report = table.compact(planned(table), engine="local")
    assert (report.rows_removed, report.delete_files_removed, ids_of(table)) == (2, 1, wanted)


def test_without_the_starting_sequence_number_they_conflict(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3)
    plan = planned(table, use_starting_sequence_number=False)
    delete_equal(other(tmp_path).table, "id", [5], files_of(table).keys[0])
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, report.rows_removed) == (1, 1)
    assert ids_of(table) == [n for n in range(30) if n != 5]
    assert files_of(table).sequences.tolist() == [5]


def test_equality_deletes_meanwhile_conflict_with_another_spec(tmp_path: Path) -> None:
    """Their scope is the old partition, which the rows leave."""
    table = numbered(tmp_path, 3, partition_by=["p"])
    with table.table.update_spec() as spec:
        spec.remove_field("p")
        spec.add_field("id", BucketTransform(2), "id_bucket")
    append_ids(table, 30, 40)
    table.refresh()
    plan = planned(table, target_spec_id=1)
    assert [group.key is None for group in plan.groups].count(True) == 1
    key = next(key for key in live_keys(table) if key.partition == ("b",))
    delete_equal(other(tmp_path).table, "id", [5, 15], key)
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, report.rows_removed) == (1, 2)
    assert ids_of(table) == [n for n in range(40) if n not in (5, 15)]
    assert {key.spec_id for key in live_keys(table)} == {1}
    assert len(table.delete_inventory) == 0


def test_an_equality_delete_with_an_old_sequence_number_conflicts(tmp_path: Path) -> None:
    """It is not newer than the rewritten rows, so it would miss them."""
    table = numbered(tmp_path, 3)
    plan = planned(table)
    delete_equal(other(tmp_path).table, "id", [5, 25], files_of(table).keys[0], sequence=None)
    late = other(tmp_path)
    assert ids_of(late) == [n for n in range(30) if n not in (5, 25)]
    # The delete becomes as old as the plan's snapshot, as when a writer rewrites its deletes.
    _age_deletes(late, plan.sequence)
    late = other(tmp_path)
    wanted = ids_of(late)
    assert wanted == [n for n in range(30) if n != 5]
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, ids_of(table)) == (1, wanted)


def _age_deletes(table: sk.Table, sequence: int) -> None:
    """Rewrite the entries of all delete files with an older sequence number."""
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation

    from skipstone.iceberg.writing.producer import Producer, live_entries
    from skipstone.iceberg.writing.target import Target

    class Aged(Producer):
        def _carried(self, head: Any) -> Any:
            kept, _ = super()._carried(head)
            found = []
            for manifest in kept:
                if manifest.content == ManifestContent.DATA:
                    found.append(manifest)
                    continue
                entries = (
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.EXISTING,
                        snapshot_id=entry.snapshot_id,
                        sequence_number=sequence,
                        file_sequence_number=entry.file_sequence_number,
                        data_file=entry.data_file,
                    )
                    for entry in live_entries(self.table, manifest)
                )
                spec = self.table.metadata.specs()[manifest.partition_spec_id]
                found += self._manifests(entries, spec, ManifestContent.DELETES)
            return found, []

    iceberg = table.table
    work = Aged(iceberg, Target.of(iceberg), (), frozenset(), {}, "main", Operation.OVERWRITE)
    updates, requirements = work.updates()
    iceberg._do_commit(updates, requirements)


def test_files_that_are_gone_conflict(tmp_path: Path) -> None:
    """Those of an overwrite, and those of another compaction; what is left is planned again."""
    table = numbered(tmp_path, 3, partition_by=["p"])
    plan = planned(table)
    writer = other(tmp_path)
    # pyiceberg rewrites the file.
    writer.table.delete("id = 5")
    report = table.compact(plan, engine="local")
    assert (report.rewritten_again, report.groups) == (1, 2)
    assert ids_of(table) == [n for n in range(30) if n != 5]
    plan = planned(table)
    writer.refresh()
    writer.compact(planned(writer), engine="local")
    files = data_paths(tmp_path)
    with pytest.raises(ConflictError, match="are no longer in the table"):
        table.compact(plan, engine="local")
    assert ids_of(table) == [n for n in range(30) if n != 5]
    # Nothing of it stays behind.
    assert data_paths(tmp_path) == files


def test_columns_renamed_meanwhile_keep_their_values(tmp_path: Path) -> None:
    """Two columns swap their names between plan and compaction: a plan is of files, not of names."""
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema)
    for n in range(3):
        table.table.append(pa.table([[n], [f"a{n}"], [f"b{n}"]], schema=schema))
    table.refresh()
    plan = planned(table)
    writer = other(tmp_path)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        with writer.table.update_schema() as update:
            update.rename_column(old, new)
    writer.table.append(pa.table({"id": [9], "b": ["a9"], "a": ["b9"]}))
    for way in ("before", "after the new schema is known"):
        if way != "before":
            plan = planned(table.at(plan.snapshot))
        table.compact(plan, engine="local", checksums=True)
        found = {row["id"]: (row["b"], row["a"]) for row in table.scan().to_arrow().to_pylist()}
        assert found == {n: (f"a{n}", f"b{n}") for n in (0, 1, 2, 9)}
        with writer.table.manage_snapshots() as manage:
            manage.rollback_to_snapshot(writer.table.refresh().metadata.snapshots[3].snapshot_id)
        table.refresh()


def test_a_plan_of_a_lost_snapshot_is_refused(tmp_path: Path) -> None:
    table = numbered(tmp_path, 3)
    plan = planned(table)
    with table.table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(table.snapshots()[0].id)
    before = data_paths(tmp_path)
    with pytest.raises(ConflictError, match="no longer in the history of the branch") as refused:
        table.compact(plan, engine="local")
    assert refused.value.hint == "make a new plan; only the branch main can be compacted"
    assert ids_of(table) == list(range(10))
    lost = dataclasses.replace(plan, snapshot=77)
    with pytest.raises(ConflictError, match="snapshot 77 of the plan has expired"):
        table.compact(lost, engine="local")
    stranger = dataclasses.replace(plan, uuid="another")
    with pytest.raises(UsageError, match=r"plan belongs to table db\.t"):
        table.compact(stranger, engine="local")
    assert data_paths(tmp_path) == before


# -- deletes ---------------------------------------------------------------------------------------


def test_deletes_are_applied_by_their_sequence_numbers(tmp_path: Path) -> None:
    """An equality delete takes older rows only, a position delete those of its own commit, too."""
    maker = Maker(tmp_path / "t", [("id", "long"), ("s", "string")], seed=6)
    row = [{"id": n, "s": "old"} for n in range(4)]
    maker.append(row)
    maker.delete_equal([1], [(2,)])
    made = maker.files_of([{"id": 2, "s": "new"}, {"id": 3, "s": "new"}])
    maker.commit("overwrite", made)
    maker.delete_positions([(made[0].path, 1)])
    table = registered(maker.metadata_location, tmp_path)
    before = rows_of(table)
    assert len(before) == 4
    report = table.compact(planned(table), engine="local")
    assert (report.rows_removed, report.delete_files_removed) == (2, 2)
    assert rows_of(table) == before
    assert len(table.delete_inventory) == 0


def test_dangling_deletes_go_with_the_commit(tmp_path: Path) -> None:
    """And no others: those that apply to files that stay, or can apply to them, are kept."""
    table = numbered(tmp_path, 4, partition_by=["p"])
    one, two = (file_with(table, f"id = {n} AND p = 'a'") for n in (0, 10))
    third = file_with(table, "id = 1 AND p = 'b'")
    delete_positions(table.table, {one: [0]})
    delete_positions(table.table, {one: [1], two: [1]}, together=True)
    delete_positions(table.table, {third: [0]})
    table.refresh()
    before = rows_of(table)
    kept = table.plan_compaction("p = 'a'", remove_dangling_deletes=False, **EVERYTHING)
    only_one = dataclasses.replace(
        kept, groups=tuple(dataclasses.replace(g, table=g.table.slice(0, 1)) for g in kept.groups)
    )
    report = table.compact(only_one, engine="local")
    assert (report.files_removed, report.delete_files_removed) == (1, 0)
    assert (rows_of(table), len(table.delete_inventory)) == (before, 3)
    # The delete file of the rewritten file is dangling now; those of two and third are not.
    report = table.compact(
        table.plan_compaction("p = 'a' AND id > 99", since=table.snapshots()[-2], rewrite_all=True),
        engine="local",
    )
    assert (report.delete_files_removed, len(table.delete_inventory), rows_of(table)) == (1, 2, before)
    report = table.compact(planned(table), engine="local")
    assert (report.delete_files_removed, len(table.delete_inventory), rows_of(table)) == (2, 0, before)
    assert table.snapshots()[-1].summary["total-delete-files"] == "0"


def test_rows_that_are_all_deleted_leave_no_file(tmp_path: Path) -> None:
    table = numbered(tmp_path, 2)
    delete_positions(table.table, {file_with(table, "id = 5"): range(10)})
    table.refresh()
    plan = table.plan_compaction(min_file_size_bytes=0)
    assert plan.files == 1
    report = table.compact(plan, engine="local")
    assert (report.files_added, report.rows, report.rows_removed) == (0, 0, 10)
    assert (ids_of(table), len(files_of(table))) == (list(range(10, 20)), 1)


# -- what plans are made from ----------------------------------------------------------------------


def test_plans_are_made_from_entries(tmp_path: Path) -> None:
    """Files without rows are in the plan, metrics drop nothing, and equality deletes raise no error."""
    maker = Maker(tmp_path / "t", [("id", "long"), ("s", "string")], seed=7)
    maker.append([{"id": n, "s": "x"} for n in range(5)])
    maker.commit("append", [maker.empty_file()])
    maker.append([{"id": n, "s": "x"} for n in range(5, 10)])
    maker.delete_equal([1], [(7,)])
    table = registered(maker.metadata_location, tmp_path)
    plan = table.plan_compaction("id = 99", min_input_files=2)
    (group,) = plan.groups
    assert [(file.rows, file.sequence) for file in group.files] == [(5, 1), (0, 2), (5, 3)]
    assert plan.filter_stats.unconstrained_specs == 1
    before = rows_of(table)
    report = table.compact(plan, engine="local")
    assert (report.files_removed, report.files_added, report.rows) == (3, 1, 9)
    assert rows_of(table) == before


def test_summaries_of_replace_snapshots_add_up(tmp_path: Path) -> None:
    """pyiceberg can't compute those of the operation replace."""
    table = numbered(tmp_path, 4, partition_by=["p"])
    delete_positions(table.table, {file_with(table, "id = 0 AND p = 'a'"): [0, 1]})
    table.refresh()
    table.compact(planned(table, "p = 'a'"), engine="local", properties={"who": "me"})
    last = table.snapshots()[-1]
    files = files_of(table)
    summary = {name: value for name, value in last.summary.items() if name not in ("skipstone.job", "who")}
    assert (last.operation, last.summary["who"]) == ("replace", "me")
    mine = [n for n, key in enumerate(files.keys) if key.partition == ("a",)]
    new = files.sizes[[code in mine for code in files.partitions]].sum()
    old = int(summary.pop("removed-files-size"))
    assert old > new
    assert summary == {
        "added-data-files": "1",
        "deleted-data-files": "4",
        "added-records": "18",
        "deleted-records": "20",
        "added-files-size": str(new),
        "removed-delete-files": "1",
        "removed-position-delete-files": "1",
        "removed-position-deletes": "2",
        "changed-partition-count": "1",
        "total-data-files": "5",
        "total-records": "38",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
        "total-files-size": str(files.sizes.sum()),
    }


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["binpack", "sort", "hilbert"])
def test_sizes_converge_in_written_bytes(tmp_path: Path, strategy: Any) -> None:
    """Rows that compress to a tenth: files have the target size on disk, and a second plan is empty."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema)
    rng = random.Random(8)
    for n in range(20):
        ids = [rng.randrange(1 << 40) for _ in range(2_000)]
        words = [f"a long and repeated text {m % 30}" for m in range(2_000)]
        table.table.append(pa.table([ids, words, [n] * 2_000], schema=schema))
    table.refresh()
    target = 100_000
    options: dict[str, Any] = {"target_file_size_bytes": target, "force": True, "strategy": strategy}
    if strategy != "binpack":
        options["sort_by"] = ["id", "n"] if strategy == "hilbert" else ["id"]
    before = table.scan().count(), table.scan("id < 1000000").count()
    plan = table.plan_compaction(rewrite_all=True, **options)
    report = table.compact(plan, engine="local", threads=2)
    assert all(0.75 * target <= size <= 1.8 * target for size in report.sizes), report.sizes
    in_memory = sum(
        pq.read_table(path.removeprefix("file://")).nbytes for path in files_of(table).paths.to_pylist()
    )
    assert in_memory > 3 * report.bytes_added
    assert 2 <= report.files_added <= 2 * plan.expected_files
    assert table.plan_compaction(**options).groups == ()
    assert (table.scan().count(), table.scan("id < 1000000").count()) == before


def test_partition_values_longer_than_a_file_name(tmp_path: Path) -> None:
    """Directories of partitions are cut, and values that begin alike stay apart."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema)
    texts = ["\u00e9" * 900, "\u00e9" * 900 + "!", None]
    for number, text in enumerate(texts):
        table.table.append(pa.table([[number], [text]], schema=schema))
    with table.table.update_spec() as change:
        change.add_identity("p")
    table.refresh()
    report = table.compact(table.plan_compaction(target_spec_id=1), engine="local", checksums=True)
    assert (report.files_removed, report.files_added) == (3, 3)
    found = table.table.refresh().scan().to_arrow().to_pylist()
    assert {row["id"]: row["p"] for row in found} == dict(enumerate(texts))
    assert table.scan("p IS NULL").to_arrow()["id"].to_pylist() == [2]
    folders = {Path(path).parent.name for path in files_of(table).paths.to_pylist()}
    assert folders == {"p=null", "p=" + "%C3%A9" * 42}
    assert table.plan_compaction(target_spec_id=1).groups == ()
