"""Snapshots that drop files as well: what came since the plan is looked at, and old specs are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    IdentityTransform,
)

from skipstone.errors import ConflictError
from skipstone.iceberg.writing.commit import Changes, append, replace
from skipstone.iceberg.writing.target import Target
from tests.unit.iceberg.writing._tables import data_files, head_of, make, paths, rows, same, write


def none(_: Changes) -> str | None:
    return None


def test_a_replacement_drops_and_adds(catalog: SqlCatalog) -> None:
    table = make(catalog)
    target = Target.of(table)
    first = write(target, rows(0, 10))
    append(table, target, first)
    append(table, target, write(target, rows(10, 20), job="ac"))
    base = head_of(table)
    new = write(target, rows(100, 105), job="ad")
    replace(table, target, new, [file.path for file in first], base=base, conflict=none)
    table = catalog.load_table("db.t")
    same(table, rows(10, 20), rows(100, 105))
    summary = table.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert (summary["deleted-records"], summary["added-records"], summary["total-records"]) == (
        "10",
        "5",
        "15",
    )
    # Older snapshots are what they were.
    assert table.scan(snapshot_id=base).to_arrow().num_rows == 20
    # Files alone can be dropped.
    base = head_of(table)
    replace(table, target, [], [file.path for file in new], base=base, conflict=none)
    same(catalog.load_table("db.t"), rows(10, 20))


def test_replacements_look_at_what_came_since_their_plan(catalog: SqlCatalog, tmp_path: Path) -> None:
    """On the first try, too, and though the table they are given knows the newer snapshots."""
    table = make(catalog)
    target = Target.of(table)
    first = write(target, rows(0, 10))
    append(table, target, first)
    base = head_of(table)
    late = write(target, rows(10, 12), job="ac")
    append(table, target, late)
    seen: list[Changes] = []

    def refuse(found: Changes) -> str | None:
        seen.append(found)
        return "rows have come"

    new = write(target, rows(20, 22), job="ad")
    with pytest.raises(ConflictError, match=r"db\.t: rows have come"):
        replace(table, target, new, [first[0].path], base=base, conflict=refuse)
    assert {file.file_path for file in seen[0].data} == {file.path for file in late}
    assert (seen[0].deletes, seen[0].lost) == ((), frozenset())
    assert not any("ad.parquet" in path.name for path in paths(tmp_path))
    # A file that is to be dropped, and that another commit has dropped.
    dropped = first[0].path
    replace(table, target, [], [dropped], base=head_of(table), conflict=none)
    new = write(target, rows(20, 22), job="ae")
    with pytest.raises(ConflictError, match="another commit has dropped"):
        replace(table, target, new, [dropped], base=base, conflict=none)
    with pytest.raises(ConflictError, match="file to replace no longer exists"):
        replace(table, target, [], [dropped], base=head_of(table), conflict=none)
    with pytest.raises(ConflictError, match="has expired"):
        replace(table, target, [], [first[1].path], base=12345, conflict=none)


def test_old_specs_are_kept_when_files_are_dropped(catalog: SqlCatalog) -> None:
    """Even of partitions that are NaN, and of columns that are no more."""
    spec = PartitionSpec(
        PartitionField(4, 1000, IdentityTransform(), "x"), PartitionField(2, 1001, IdentityTransform(), "n")
    )
    table = make(catalog, partition_spec=spec)
    target = Target.of(table)
    first = write(target, rows(0, 8))
    append(table, target, first)
    with table.update_spec() as update:
        update.remove_field("x")
        update.remove_field("n")
    with table.update_schema() as schema:
        schema.delete_column("x")
    base = head_of(table)
    gone = [
        file.path for file in first if any(isinstance(v, float) for v in file.metrics.key.partition or ())
    ]
    assert 0 < len(gone) < len(first)
    replace(table, Target.of(table), [], gone, base=base, conflict=none)
    table = catalog.load_table("db.t")
    kept = {file.path for file in first} - set(gone)
    assert {file.file_path for file in data_files(table)} == kept
    assert {file.spec_id for file in data_files(table)} == {0}
