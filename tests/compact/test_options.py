"""Options of compactions: Iceberg's names, defaults and checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import skipstone as sk
from skipstone.compact.options import MIB, NO_THRESHOLD, CompactionOptions, parse_java
from skipstone.errors import UsageError
from tests.compact._tables import ids_of, numbered

DEFAULTS = {
    "strategy": "binpack",
    "sort-by": (),
    "target-file-size-bytes": 512 * MIB,
    "min-file-size-bytes": 384 * MIB,
    "max-file-size-bytes": int(512 * MIB * 1.8),
    "min-input-files": 5,
    "max-file-group-size-bytes": 100 * 1024 * MIB,
    "rewrite-all": False,
    "delete-file-threshold": NO_THRESHOLD,
    "delete-ratio-threshold": 0.3,
    "output-spec-id": None,
    "rewrite-job-order": "none",
    "max-concurrent-file-group-rewrites": 5,
    "partial-progress.enabled": False,
    "partial-progress.max-commits": 10,
    "use-starting-sequence-number": True,
    "remove-dangling-deletes": True,
}


def test_names_and_defaults_are_icebergs() -> None:
    assert CompactionOptions().to_json() == DEFAULTS
    assert CompactionOptions.of({}, {}) == CompactionOptions()
    assert CompactionOptions.from_json(DEFAULTS) == CompactionOptions()


def test_sizes_follow_the_target() -> None:
    chosen = CompactionOptions.of({"target_file_size_bytes": 1000}, {})
    assert (chosen.min_file_size_bytes, chosen.max_file_size_bytes) == (750, 1800)
    chosen = CompactionOptions.of({"min_file_size_bytes": 7}, {"write.target-file-size-bytes": "2000"})
    sizes = (chosen.target_file_size_bytes, chosen.min_file_size_bytes, chosen.max_file_size_bytes)
    assert sizes == (2000, 7, 3600)
    chosen = CompactionOptions.of({"target_file_size_bytes": "64MiB", "min_file_size_bytes": "1 MB"}, {})
    assert (chosen.target_file_size_bytes, chosen.min_file_size_bytes) == (64 * MIB, 1_000_000)
    chosen = CompactionOptions.of({"target_file_size_bytes": 1}, {})
    assert (chosen.min_file_size_bytes, chosen.max_file_size_bytes) == (0, 2)
    assert parse_java({"max-file-group-size-bytes": "2GiB"}) == {"max_file_group_size_bytes": 2 << 30}
    with pytest.raises(UsageError, match="size-bytes must be an integer of at least 1, got '1 GB'"):
        CompactionOptions.of({}, {"write.target-file-size-bytes": "1 GB"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"target_file_size_bytes": 0}, "target_file_size_bytes must be an integer of at least 1, got 0"),
        ({"target_file_size_bytes": "1 foot"}, "target_file_size_bytes must be a number of bytes or text"),
        ({"target_file_size_bytes": True}, "target_file_size_bytes must be a number of bytes or text"),
        ({"min_file_size_bytes": -1}, "min_file_size_bytes must be an integer of at least 0"),
        ({"min_file_size_bytes": 512 * MIB}, "min_file_size_bytes must be less than the target 536870912"),
        ({"max_file_size_bytes": 512 * MIB}, "max_file_size_bytes must be more than the target 536870912"),
        ({"min_input_files": 0}, "min_input_files must be an integer of at least 1"),
        ({"max_file_group_size_bytes": 0}, "max_file_group_size_bytes must be an integer of at least 1"),
        ({"delete_file_threshold": -1}, "delete_file_threshold must be an integer of at least 0"),
        ({"delete_ratio_threshold": 0}, "delete_ratio_threshold must be above 0 and at most 1, got 0"),
        ({"delete_ratio_threshold": 1.5}, "delete_ratio_threshold must be above 0"),
        ({"delete_ratio_threshold": float("nan")}, "delete_ratio_threshold must be above 0"),
        ({"max_concurrent_file_group_rewrites": 0}, "max_concurrent_file_group_rewrites must be"),
        ({"partial_progress_max_commits": 0}, "partial_progress_max_commits must be"),
        ({"strategy": "z-order"}, "unknown strategy 'z-order'"),
        ({"rewrite_job_order": "bytes"}, "unknown rewrite_job_order 'bytes'"),
        ({"rewrite_all": "no"}, "rewrite_all must be True or False, got 'no'"),
        ({"partial_progress_enabled": 1}, "partial_progress_enabled must be True or False"),
        ({"target_spec_id": "0"}, "target_spec_id must be an integer of at least 0, got '0'"),
        ({"sort_by": ("id",)}, "sort_by= does not apply to binpack"),
        ({"strategy": "zorder"}, "zorder does not support 0 columns"),
        ({"strategy": "hilbert", "sort_by": tuple("abcdefghi")}, "hilbert does not support 9 columns"),
    ],
)
def test_checks(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        CompactionOptions.of(options, {})
    assert str(refused.value).startswith(problem)


def test_options_as_procedures_take_them() -> None:
    texts = {
        "min-input-files": "3",
        "rewrite-all": "TRUE",
        "delete-ratio-threshold": "0.5",
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": "4",
        "rewrite-job-order": "bytes-desc",
        "output-spec-id": "2",
        "strategy": "sort",
        "sort-by": "a, b",
    }
    assert parse_java(texts) == {
        "min_input_files": 3,
        "rewrite_all": True,
        "delete_ratio_threshold": 0.5,
        "partial_progress_enabled": True,
        "partial_progress_max_commits": 4,
        "rewrite_job_order": "bytes-desc",
        "target_spec_id": 2,
        "strategy": "sort",
        "sort_by": ("a", "b"),
    }
    with pytest.raises(UsageError, match="unknown option 'min-input-file'") as refused:
        parse_java({"min-input-file": "3"})
    assert "min-input-files" in (refused.value.hint or "")
    for name, text in (("min-input-files", "few"), ("rewrite-all", "yes"), ("delete-ratio-threshold", "x")):
        with pytest.raises(UsageError, match=f"{name} must be of type"):
            parse_java({name: text})


def test_options_of_a_table(tmp_path: Any) -> None:
    table = numbered(tmp_path, 3)
    assert table.plan_compaction(options={"min-input-files": "3"}).groups[0].count == 3
    assert table.plan_compaction(options={"min-input-files": "4"}).groups == ()
    # Options by Iceberg's names take precedence.
    assert table.plan_compaction(min_input_files=9, options={"min-input-files": "2"}).files == 3
    with pytest.raises(UsageError, match="unknown option 'min_input_files'"):
        table.plan_compaction(options={"min_input_files": "2"})
    with pytest.raises(sk.SkipstoneError, match="other"):
        table.plan_compaction(strategy="sort", sort_by="other")
    with table.table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "7000"})
    table.refresh()
    assert table.plan_compaction().options.target_file_size_bytes == 7000


def test_a_sort_order_without_an_ordered_column(tmp_path: Any) -> None:
    table = numbered(tmp_path, 1, sort_by=["bucket(4, p)", "id"])
    with pytest.raises(UsageError, match="sort order begins with no column that has an order") as refused:
        table.plan_compaction(strategy="sort")
    assert refused.value.hint == "name columns in sort_by"


@pytest.mark.parametrize("memory", [0, -1, "0 MB", "1 day", True])
def test_memory_is_checked_before_any_work(memory: Any, tmp_path: Any) -> None:
    table = numbered(tmp_path, 2)
    with pytest.raises(UsageError, match=r"memory must be a(n integer of at least 1| number of bytes)"):
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", memory=memory)


def test_the_least_memory_is_enough(tmp_path: Any) -> None:
    table = numbered(tmp_path, 2)
    plan = table.plan_compaction(rewrite_all=True, strategy="sort", sort_by="p")
    report = table.compact(plan, engine="local", memory=1)
    assert (report.files_removed, report.rows) == (2, 20)
    assert ids_of(table) == list(range(20))


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"run": 5}, "property 'run' must be a string, got 5"),
        ({5: "run"}, "property 5 must be a string, got 'run'"),
        ({"operation": "append"}, "property operation is set by the commit itself"),
        ({"added-records": "1"}, "property added-records is set by the commit itself"),
        ({"total-records": "1"}, "property total-records is set by the commit itself"),
        (["run"], "properties must be a dict of strings, got a list"),
    ],
)
def test_properties_that_would_damage_a_summary(properties: Any, problem: str, tmp_path: Any) -> None:
    """Other engines refuse to read a table with a summary whose values are not text."""
    table = numbered(tmp_path, 2)
    plan, before = table.plan_compaction(rewrite_all=True), table.snapshots()
    writes: list[Callable[[], object]] = [
        lambda: table.compact(plan, engine="local", properties=properties),
        lambda: table.rewrite_manifests(rewrite_all=True, properties=properties),
        lambda: sk.ingest(table.head(1), table, engine="local", properties=properties),
    ]
    for write in writes:
        with pytest.raises(UsageError) as refused:
            write()
        assert refused.value.message == problem
    assert table.refresh().snapshots() == before
    table.compact(plan, engine="local", properties={"run": "5"})
    summary = table.table.refresh().metadata.snapshots[-1].summary
    assert summary is not None
    assert summary.additional_properties["run"] == "5"


@pytest.mark.parametrize(("ids", "hint"), [(5, "pass [5]"), ("5", None), (None, None)])
def test_snapshot_ids_are_a_list(ids: Any, hint: str | None, tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="snapshot_ids must be a list of snapshot ids") as refused:
        numbered(tmp_path, 1).expire(snapshot_ids=ids)
    assert refused.value.hint == hint
