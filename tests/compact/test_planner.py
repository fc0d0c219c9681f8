"""Plans of compactions on evolved tables: which files, in which groups, and how partitions were judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.compact.plan import CompactionPlan, CompactionPlanner
from skipstone.compact.run import resolve_options
from skipstone.errors import CorruptFileError, SchemaError, UnknownColumnError, UsageError
from skipstone.iceberg.manifests.reading import clear_cache
from skipstone.iceberg.partitions.values import PartitionKey
from skipstone.report.trace import FilterStats
from tests.compact._tables import data_paths, numbered, rows_of
from tests.compact._writers import delete_equal, delete_positions, file_with, files_of
from tests.iceberg._maker import Maker

HOURS = 3_600 * 10**6
SMALL = 2_000
"""Bytes: the files of a few rows have less, those of many rows have more."""


def rows(first: int, last: int, s: str = "xyz") -> list[dict[str, Any]]:
    return [{"id": n, "s": s[n % len(s)], "ts": n * HOURS} for n in range(first, last)]


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Four specs: by s (3 partitions), by id (4), none, by day (2); in x also a file that is not small."""
    columns = [("id", "long"), ("s", "string"), ("ts", "timestamp")]
    maker = Maker(tmp_path_factory.mktemp("evolved") / "t", columns, [("s", "identity")], seed="planner")
    for first in (0, 6, 12):
        maker.append(rows(first, first + 6))
    maker.append(rows(1_000, 2_500, "x"))
    for spec in ([("id", "identity")], [], [("ts", "day")]):
        maker.evolve_spec(spec)
        for first in (0, 4):
            maker.append(rows(first % 4 if spec and spec[0][0] == "id" else first, first + 4)[:4])
    return maker


def edited(maker: Maker, name: str, **changes: dict[str, Any] | None) -> sk.Table:
    """The table with damaged partition specs: fields are changed, or specs removed."""
    metadata = json.loads(Path(maker.metadata_location).read_text())
    specs = {f"spec{spec['spec-id']}": spec for spec in metadata["partition-specs"]}
    for spec, change in changes.items():
        if change is None:
            del specs[spec]
        else:
            for field in specs[spec]["fields"]:
                field.update(change)
    metadata["partition-specs"] = [*specs.values()]
    path = Path(maker.metadata_location).with_name(f"{name}.metadata.json")
    path.write_text(json.dumps(metadata))
    return sk.open(str(path))


def plan(table: sk.Table, where: Any = None, **options: Any) -> CompactionPlan:
    return table.plan_compaction(where, **{"min_input_files": 2, "min_file_size_bytes": SMALL, **options})


def shape(found: CompactionPlan) -> list[tuple[str, int]]:
    """Partition and number of files of each group."""
    return [(str(group.key), group.count) for group in found.groups]


BY_S = [("spec 0 ('x')", 3), ("spec 0 ('y')", 3), ("spec 0 ('z')", 3)]
BY_ID = [(f"spec 1 ({n})", 2) for n in range(4)]
REST = [("spec 2 (unpartitioned)", 2), ("spec 3 (0)", 2)]


# -- the keys of groups ----------------------------------------------------------------------------


def test_partition_key_from_partitioned_spec(evolved: Maker) -> None:
    table = sk.open(evolved.metadata_location)
    keys = {key for key in files_of(table).keys if key.spec_id == 0}
    assert {key.partition for key in keys} == {("x",), ("y",), ("z",)}
    assert keys == {PartitionKey.of(table.specs[0], [value]) for value in "xyz"}


def test_partition_key_from_unpartitioned_spec(evolved: Maker, tmp_path: Path) -> None:
    """The spec of the file decides, not the table's default; void fields alone divide nothing."""
    table = sk.open(evolved.metadata_location)
    assert table.metadata.default_spec_id == 3
    assert PartitionKey.of(table.specs[2], []).partition is None
    maker = Maker(tmp_path / "t", [("id", "long"), ("s", "string")], [("s", "void")], seed=1)
    maker.append(rows(0, 3))
    maker.append(rows(3, 6))
    found = plan(sk.open(maker.metadata_location))
    assert shape(found) == [("spec 0 (unpartitioned)", 2)]


def test_partition_key_hash_equality() -> None:
    one, other = PartitionKey(1, ("a", 5, None)), PartitionKey(1, ("a", 5, None))
    assert (one == other, hash(one) == hash(other), len({one, other})) == (True, True, 1)
    nan = PartitionKey(1, (float("nan"),))
    assert nan == PartitionKey(1, (float("nan"),))
    different = [1, 1.0, True, 0.0, -0.0, "1", b"1", None, float("nan")]
    assert len({PartitionKey(1, (value,)) for value in different}) == len(different)
    assert PartitionKey(1, ("a",)) != PartitionKey(2, ("a",))


def test_partition_key_sort_key_stable() -> None:
    """Numbers sort as numbers; texts that print alike stay apart; NULL is first, NaN last."""
    numbers: list[Any] = [float("nan"), 10.0, 9.0, None, -0.0, 0.0]
    ordered = sorted((PartitionKey(0, (n,)) for n in numbers), key=PartitionKey.sort_key)
    assert [str(key) for key in ordered] == [
        f"spec 0 ({n})" for n in ("NULL", "-0.0", "0.0", 9.0, 10.0, "nan")
    ]
    texts = [PartitionKey(0, key) for key in ((None,), ("None",), ("a, b", "c"), ("a", "b, c"))]
    assert len({key.sort_key() for key in texts}) == len(texts)
    backwards = [*reversed(texts)]
    assert sorted(texts, key=PartitionKey.sort_key) == sorted(backwards, key=PartitionKey.sort_key)


# -- plans of evolved tables -----------------------------------------------------------------------


def test_plan_single_spec_table(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "t", [("id", "long"), ("s", "string")], [("s", "identity")], seed=2)
    for first in (0, 6):
        maker.append(rows(first, first + 6))
    found = plan(sk.open(maker.metadata_location), "s = 'y'")
    assert (shape(found), found.files_considered, found.files_matched) == ([("spec 0 ('y')", 2)], 6, 2)
    assert found.filter_stats == FilterStats()


def test_plan_evolved_table_no_filter(evolved: Maker) -> None:
    found = plan(sk.open(evolved.metadata_location))
    assert shape(found) == BY_S + BY_ID + REST
    assert [group.id for group in found.groups] == list(range(9))
    # The file of 1,500 rows is large enough.
    assert (found.files_considered, found.files_matched, found.files) == (22, 22, 21)
    assert found.filter_stats == FilterStats()


def test_plan_evolved_table_with_filter(evolved: Maker) -> None:
    """Each spec judges the filter by its own fields, and keeps what they can't tell."""
    table = sk.open(evolved.metadata_location)
    found = plan(table, "s = 'x'")
    assert shape(found) == BY_S[:1] + BY_ID + REST
    assert found.files_matched == 16
    # Specs without a field from s are unconstrained, not fail-open.
    assert found.filter_stats == FilterStats(unconstrained_specs=3)
    found = plan(table, "id = 3 AND ts < '1960-01-01'")
    assert shape(found) == [*BY_S, BY_ID[3], REST[0]]
    assert found.filter_stats == FilterStats(unconstrained_specs=2)
    found = plan(table, "false")
    assert (found.groups, found.files_matched, found.filter_stats) == ((), 0, FilterStats())


def test_plan_unevaluable_spec_fail_open(evolved: Maker) -> None:
    """A day of a text can't be projected: the spec's files are included, and counted."""
    table = edited(evolved, "unevaluable", spec0={"transform": "day"})
    found = plan(table, "s = 'x'")
    assert shape(found) == BY_S + BY_ID + REST
    # Three partitions of ten files; nine of these are candidates.
    assert found.files_matched == 22
    assert found.filter_stats == FilterStats(
        unevaluable_specs=1, fail_open_partitions=3, fail_open_files=9, unconstrained_specs=3
    )
    # A filter on other columns doesn't need the projection.
    assert plan(table, "id = 3").filter_stats.unevaluable_specs == 0
    with pytest.raises(SchemaError, match="partition can't be judged") as refused:
        plan(table, "s = 'x'", strict=True)
    assert "strict" in (refused.value.hint or "")


def test_plan_eval_error_fail_open(evolved: Maker) -> None:
    """Values of the wrong type fail one by one."""
    table = edited(evolved, "errors", spec0={"source-id": 1})
    found = plan(table, "id = 3")
    assert shape(found) == [*BY_S, BY_ID[3], *REST]
    assert found.filter_stats == FilterStats(
        eval_errors=3, fail_open_partitions=3, fail_open_files=9, unconstrained_specs=2
    )
    with pytest.raises(SchemaError, match="'x' is not a partition value of int64"):
        plan(table, "id = 3", strict=True)


def test_fail_open_files_counts_candidates(evolved: Maker) -> None:
    """Not entries: files that are not selected don't count, files of groups that are skipped do."""
    table = edited(evolved, "candidates", spec0={"source-id": 1})
    assert plan(table, "id = 3", rewrite_all=True).filter_stats.fail_open_files == 10
    assert plan(table, "id = 3", min_file_size_bytes=0).filter_stats.fail_open_files == 0
    none = plan(table, "id = 3", min_input_files=4)
    assert (none.groups, none.filter_stats.fail_open_files) == ((), 9)
    assert none.filter_stats.fail_open_partitions == 3


def test_plan_unknown_spec_hard_error(evolved: Maker) -> None:
    table = edited(evolved, "unknown", spec1=None)
    for where in (None, "s = 'x'"):
        with pytest.raises(SchemaError, match="table has no partition spec 1; its specs are 0, 2, 3"):
            plan(table, where)


def test_plan_binding_errors_are_hard(evolved: Maker) -> None:
    table = sk.open(evolved.metadata_location)
    with pytest.raises(UnknownColumnError, match="nothing"):
        plan(table, "nothing = 3")
    with pytest.raises(UnknownColumnError, match="ID"):
        plan(table, "ID = 3")
    assert shape(plan(table, "ID = 3", case_sensitive=False)) == shape(plan(table, "id = 3"))


def test_plan_with_stats_is_plan(evolved: Maker) -> None:
    table = edited(evolved, "stats", spec0={"source-id": 1})
    options = resolve_options(table, {"min_input_files": 2, "min_file_size_bytes": SMALL})
    planner = CompactionPlanner(table.pinned, options, "id = 3")
    both = planner.plan_with_stats()
    assert planner.plan().hash == both.plan.hash == plan(table, "id = 3").hash
    assert both.filter_stats == both.plan.filter_stats
    assert both.filter_stats.eval_errors == 3


def test_partitions_are_judged_once(evolved: Maker) -> None:
    """Of ten files in three partitions; a second plan judges them again, and finds the same."""
    table = sk.open(evolved.metadata_location)
    judged = table.pinned.prune_partitions(sk.parse("s = 'x'"))
    partitions = set(files_of(table).keys)
    assert len(partitions) == 9
    assert judged.filter.evaluations == len(partitions)
    judged.filter.stats([*partitions])
    assert judged.filter.evaluations == len(partitions)


# -- the same plan everywhere ----------------------------------------------------------------------

SCRIPT = """
import json, sys
import skipstone as sk
plan = sk.open(sys.argv[1]).plan_compaction(
    "s >= 'x'",
    min_input_files=2,
    rewrite_job_order="files-desc",
    target_file_size_bytes=3000,
    force=True,
)
print(plan.hash, json.dumps(plan.to_json(), sort_keys=True))
"""


def test_plan_deterministic_group_ids(evolved: Maker) -> None:
    """In a process with another hash seed, too."""
    command = [sys.executable, "-c", SCRIPT, evolved.metadata_location]
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    found = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    table = sk.open(evolved.metadata_location)
    options = {"min_input_files": 2, "rewrite_job_order": "files-desc", "target_file_size_bytes": 3000}
    here = table.plan_compaction("s >= 'x'", force=True, **options)  # type: ignore[arg-type]
    assert found == f"{here.hash} {json.dumps(here.to_json(), sort_keys=True)}\n".encode()
    assert len(here.groups) == 9


def test_hash_covers_what_is_planned(evolved: Maker) -> None:
    table = sk.open(evolved.metadata_location)
    plans = [
        plan(table),
        plan(table, "s = 'x'"),
        plan(table, min_input_files=3),
        plan(table, strategy="sort", sort_by="id"),
        plan(table, strategy="sort", sort_by=["id", "ts"]),
        plan(table, rewrite_job_order="bytes-desc"),
    ]
    assert len({one.hash for one in plans}) == len(plans)
    assert plan(table).hash == plans[0].hash


def test_files_of_a_group_are_ordered_by_age_then_path(evolved: Maker) -> None:
    found = plan(sk.open(evolved.metadata_location))
    for group in found.groups:
        keys = [(file.sequence, file.path) for file in group.files]
        assert keys == sorted(keys)
        assert all(file.rows and file.bytes < SMALL for file in group.files)
        assert {file.reasons for file in group.files} == {("small",)}
        assert group.rows == sum(file.rows for file in group.files)


@pytest.mark.parametrize(
    ("order", "key", "reverse"),
    [
        ("bytes-asc", "bytes", False),
        ("bytes-desc", "bytes", True),
        ("files-asc", "count", False),
        ("files-desc", "count", True),
    ],
)
def test_job_order(evolved: Maker, order: Any, key: str, reverse: bool) -> None:
    table = sk.open(evolved.metadata_location)
    found = plan(table, rewrite_job_order=order)
    sizes = [getattr(group, key) for group in found.groups]
    assert sizes == sorted(sizes, reverse=reverse)
    assert sizes[0] != sizes[-1]
    # Ids number the groups by partition, whatever the order.
    assert sorted((group.id, str(group.key)) for group in found.groups) == [
        (group.id, str(group.key)) for group in plan(table).groups
    ]


# -- groups ----------------------------------------------------------------------------------------


def test_groups_are_packed_up_to_their_size(evolved: Maker) -> None:
    table = sk.open(evolved.metadata_location)
    whole = plan(table, "s = 'x' AND id < 0")
    (group,) = [one for one in whole.groups if str(one.key) == BY_S[0][0]]
    sizes = [file.bytes for file in group.files]
    two = plan(table, "s = 'x' AND id < 0", max_file_group_size_bytes=sum(sizes[:2]))
    parts = [one.count for one in two.groups if one.key == group.key]
    assert parts == [2]
    assert [(one.files, one.reason) for one in two.skipped if one.key == group.key] == [(1, "only one file")]
    assert all(one.bytes <= sum(sizes[:2]) for one in two.groups)


def test_groups_that_are_not_worth_it_say_why(evolved: Maker) -> None:
    found = plan(sk.open(evolved.metadata_location), min_input_files=3)
    assert shape(found) == BY_S
    assert [(str(one.key), one.files) for one in found.skipped] == BY_ID + REST
    assert {one.reason.partition(", and ")[0] for one in found.skipped} == {
        "2 files, fewer than min-input-files 3"
    }
    # More than one file of the target size is worth it, however few they are.
    assert (
        len(
            plan(
                sk.open(evolved.metadata_location),
                min_input_files=9,
                target_file_size_bytes=1_000,
                min_file_size_bytes=999,
                force=True,
            ).groups
        )
        > 0
    )


def test_expected_files_and_bytes(evolved: Maker) -> None:
    found = plan(
        sk.open(evolved.metadata_location), rewrite_all=True, target_file_size_bytes=4_000, force=True
    )
    for group in found.groups:
        assert group.expected_files == max(round(group.bytes / 4_000), 1)
    assert found.expected_files == sum(group.expected_files for group in found.groups) > len(found.groups)
    assert found.bytes_to_read == found.bytes_to_write == sum(group.bytes for group in found.groups)
    assert found.groups[0].reasons == {"small": 3, "large": 1, "rewrite-all": 4}


# -- reasons ---------------------------------------------------------------------------------------


def keyed(tmp_path: Path, files: int = 3) -> sk.Table:
    """A table of its own, partitioned by p, of files of ten rows: ids count up."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema, partition_by=["p"])
    for n in range(files):
        table.table.append(pa.table([range(n * 10, n * 10 + 10), ["a"] * 10], schema=schema))
    table.refresh()
    return table


def test_delete_thresholds(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    one, other, last = (file_with(table, f"id = {n}") for n in (0, 10, 20))
    # Three of ten rows are deleted of the first file, two of the second by two delete files.
    delete_positions(table.table, {one: [0, 5, 7]})
    delete_positions(table.table, {other: [1]})
    delete_positions(table.table, {other: [2]})
    table.refresh()
    none = {"min_file_size_bytes": 0, "min_input_files": 9}

    def reasons(**options: Any) -> dict[str, tuple[tuple[str, ...], int]]:
        found = table.plan_compaction(**{**none, **options})
        return {file.path: (file.reasons, file.deletes) for group in found.groups for file in group.files}

    # By default three tenths of the rows, and no number of delete files.
    assert reasons() == {one: (("ratio",), 1)}
    assert reasons(delete_ratio_threshold=0.31) == {}
    assert reasons(delete_ratio_threshold=0.2) == {one: (("ratio",), 1), other: (("ratio",), 2)}
    assert reasons(delete_ratio_threshold=1.0, delete_file_threshold=2) == {other: (("deletes",), 2)}
    assert reasons(delete_file_threshold=1) == {one: (("deletes", "ratio"), 1), other: (("deletes",), 2)}
    (group,) = table.plan_compaction(**{**none, "delete_file_threshold": 1}).groups
    assert len(group.delete_files) == 3
    # An equality delete counts as a file of each data file that it may apply to, and not for the ratio.
    delete_equal(table.table, "id", [5, 6, 7, 8, 9], files_of(table).keys[0])
    table.refresh()
    assert reasons(delete_ratio_threshold=0.5) == {}
    found = reasons(delete_ratio_threshold=0.5, delete_file_threshold=1)
    assert {path: count for path, (_, count) in found.items()} == {one: 2, other: 3, last: 1}


def test_a_partition_wide_delete_file_does_not_count_for_the_ratio(tmp_path: Path) -> None:
    table = keyed(tmp_path, 2)
    one, other = (file_with(table, f"id = {n}") for n in (0, 10))
    delete_positions(table.table, {one: range(9), other: [0]}, together=True)
    table.refresh()
    assert table.plan_compaction(min_file_size_bytes=0).groups == ()
    (group,) = table.plan_compaction(min_file_size_bytes=0, delete_file_threshold=1).groups
    assert [(file.path, file.reasons, file.deletes) for file in group.files] == [
        (path, ("deletes",), 1) for path in (one, other)
    ]


def test_sort_order_mismatch(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    catalog = sk.catalog(tmp_path / "w")
    table = catalog.create_table("db.t", schema, sort_by=["p"])
    table.table.append(pa.table([[1, 2], ["b", "a"]], schema=schema))
    table.refresh()
    found = table.plan_compaction(strategy="sort", min_file_size_bytes=0)
    assert [group.reasons for group in found.groups] == [{"unsorted": 1}]
    # Another order is not the table's: files don't say that they have it.
    assert table.plan_compaction(strategy="sort", sort_by="id", min_file_size_bytes=0).groups == ()
    table.compact(found, engine="local")
    assert table.plan_compaction(strategy="sort", min_file_size_bytes=0).groups == ()
    assert table.scan().to_arrow()["p"].to_pylist() == ["a", "b"]
    unsorted = catalog.create_table("db.u", schema)
    with pytest.raises(UsageError, match="table has no sort order") as refused:
        unsorted.plan_compaction(strategy="sort")
    assert "sort_by" in (refused.value.hint or "")


def test_since_plans_newer_files_only(tmp_path: Path) -> None:
    table = keyed(tmp_path, 4)
    snapshots = [one.id for one in table.snapshots()]
    new = {file_with(table, f"id = {n}") for n in (20, 30)}
    for since in (snapshots[1], table.snapshots()[1], table.snapshots()[1].at + timedelta(milliseconds=1)):
        (group,) = table.plan_compaction(since=since, min_input_files=2).groups
        assert {file.path for file in group.files} == new
    assert table.plan_compaction(since=snapshots[-1], min_input_files=1).groups == ()
    table.table.manage_snapshots().create_tag(snapshots[0], "start").commit()
    table.refresh()
    (group,) = table.plan_compaction(since="start", min_input_files=2, rewrite_all=True).groups
    assert group.count == 3
    before = rows_of(table)
    table.compact(table.plan_compaction(since=snapshots[1], min_input_files=2), engine="local")
    assert (rows_of(table), len(files_of(table))) == (before, 3)
    with pytest.raises(UsageError, match="is not an ancestor of snapshot"):
        table.at(snapshots[0]).plan_compaction(since=snapshots[1])


def test_target_spec_joins_files_of_other_specs(evolved: Maker) -> None:
    table = sk.open(evolved.metadata_location)
    found = plan(table, target_spec_id=3)
    assert shape(found) == [("None", 20), ("spec 3 (0)", 2)]
    # Whatever their size: the file of 1,500 rows moves, too.
    assert found.groups[0].reasons == {"small": 19, "spec": 20}
    with pytest.raises(UsageError, match="table has no partition spec 7") as refused:
        plan(table, target_spec_id=7)
    assert refused.value.hint == "use one of 0, 1, 2, 3"


# -- work ------------------------------------------------------------------------------------------


def test_planning_reads_no_data_and_no_manifest_that_is_in_the_index(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    expected = table.plan_compaction(min_input_files=2)
    table.index.build(engine="local")
    for path in (tmp_path / "w").rglob("*.parquet"):
        path.rename(path.with_suffix(".away"))
    clear_cache()
    cold = sk.open("db.t", catalog=tmp_path / "w")
    assert cold.plan_compaction(min_input_files=2).hash == expected.hash
    table.keep_manifests()
    lists = {manifest.manifest_path for manifest in table.table.current_snapshot().manifests(table.table.io)}
    for manifest in lists:
        Path(manifest.removeprefix("file://")).rename(f"{manifest.removeprefix('file://')}.away")
    clear_cache()
    warm = sk.open("db.t", catalog=tmp_path / "w")
    assert warm.plan_compaction("p = 'a'", min_input_files=2).groups[0].count == 3
    assert warm.plan_compaction(min_input_files=2).hash == expected.hash


def test_an_empty_table_has_an_empty_plan(tmp_path: Path) -> None:
    table = sk.catalog(tmp_path / "w").create_table("db.t", pa.schema([("id", pa.int64())]))
    found = table.plan_compaction(rewrite_all=True)
    assert (found.groups, found.snapshot, found.files_considered) == ((), None, 0)
    report = table.compact(found, engine="local")
    assert (report.groups, report.snapshots) == (0, ())


# -- plans as data ---------------------------------------------------------------------------------


def test_a_plan_survives_json(evolved: Maker) -> None:
    table = edited(evolved, "json", spec0={"source-id": 1})
    found = plan(table, "id = 3", min_input_files=3)
    again = CompactionPlan.from_json(json.dumps(found.to_json()))
    assert again.to_json() == found.to_json()
    assert again.groups[0].files == found.groups[0].files
    assert [group.key for group in again.groups] == [group.key for group in found.groups]
    assert (again.skipped, again.options, again.filter_stats) == (
        found.skipped,
        found.options,
        found.filter_stats,
    )


def test_a_damaged_plan_is_refused(evolved: Maker) -> None:
    document = plan(sk.open(evolved.metadata_location)).to_json()
    text = json.dumps(document)
    damaged: list[Any] = [
        text[:-5],
        "[]",
        "5",
        {**document, "snapshot": 5},
        {**document, "groups": document["groups"][1:]},
        {**document, "groups": [5]},
        {**document, "groups": "none"},
        {**document, "filter_stats": {"odd": 1}},
        {name: value for name, value in document.items() if name != "options"},
        {**document, "options": 5},
    ]
    for one in damaged:
        with pytest.raises(CorruptFileError, match="compaction plan") as refused:
            CompactionPlan.from_json(one)
        assert refused.value.hint == "make a new plan"
    with pytest.raises(UsageError, match="plan has layout 99, expected 1"):
        CompactionPlan.from_json({**document, "layout": 99})


# -- mistakes that would make very many files ----------------------------------------------------


def test_tiny_targets_and_very_many_files_must_be_meant(tmp_path: Path) -> None:
    table = numbered(tmp_path, 2, rows=20_000)
    for options in ({"target_file_size_bytes": 64}, {"options": {"target-file-size-bytes": "64"}}):
        problem = r"target_file_size_bytes is 64 bytes, which is less than 1 MiB.*64MB.*force=True"
        with pytest.raises(UsageError, match=problem):
            table.plan_compaction(rewrite_all=True, **options)  # type: ignore[arg-type]
    units = table.plan_compaction(
        rewrite_all=True, target_file_size_bytes="64MB", min_file_size_bytes="1 MiB"
    )
    sizes = (units.options.target_file_size_bytes, units.options.min_file_size_bytes)
    assert sizes == (64_000_000, 1 << 20)
    assert (
        table.plan_compaction(rewrite_all=True, target_file_size_bytes=64, force=True).expected_files > 1_000
    )
    # The table's own target is not a slip of the hand, but so many files are.
    with table.table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "10"})
    table.refresh()
    with pytest.raises(UsageError, match=r"db\.t: about [\d,]+ new files would be written.*force=True"):
        table.plan_compaction(rewrite_all=True)
    assert table.plan_compaction(rewrite_all=True, force=True).expected_files > 10_000
    # A look at what could be done is not refused.
    assert table.maintenance().table == "db.t"


def test_ingests_of_very_many_files_must_be_meant(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(40_000), pa.int64()), "p": ["a"] * 40_000})
    with pytest.raises(
        UsageError, match=r"target_file_bytes is 64 bytes, which is less than 1 MiB.*force=True"
    ):
        sk.ingest(rows, tmp_path / "lake", target_file_bytes=64, engine="local")
    with pytest.raises(UsageError, match=r"target_file_bytes is 64,000 bytes"):
        sk.ingest_new(tmp_path, tmp_path / "lake", target_file_bytes="64kB", engine="local")
    assert not (tmp_path / "lake").exists()
    assert sk.ingest(rows, tmp_path / "lake", target_file_bytes="1.5MB", engine="local").files == 1
    table = numbered(tmp_path, 1, properties={"write.target-file-size-bytes": "2"})
    known = data_paths(tmp_path)
    with pytest.raises(UsageError, match=r"db\.t: about [\d,]+ new files would be written.*force=True"):
        sk.ingest(rows, table, engine="local")
    assert data_paths(tmp_path) == known
    with pytest.raises(UsageError, match="target_size_bytes is 5 bytes"):
        table.rewrite_manifests(target_size_bytes=5)
    assert table.rewrite_manifests(target_size_bytes="8MiB").replaced == 0


def test_sizes_have_units_wherever_bytes_are_taken(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    table = sk.catalog(tmp_path / "w").create_table("db.t", schema, key=["id"])
    with table.writer(flush_bytes="1MB", memory="4 MiB") as writer:
        writer.upsert(pa.table({"id": [1, 2], "v": [3, 4]}))
    assert table.scan(memory="1MiB").count() == 2
    assert table.scan(options=sk.ScanOptions(), memory="1MiB").to_arrow().num_rows == 2
    (answer,) = table.scan().aggregate(sk.count_distinct("v", memory="1GB")).to_pylist()
    assert [*answer.values()] == [2]
    plan = table.plan_compaction(rewrite_all=True, max_file_group_size_bytes="1TB")
    assert table.compact(plan, engine="local", memory="64MB").groups == 1
