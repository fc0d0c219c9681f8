"""Data files of tasks become snapshots: in the right spec, once; a failure leaves nothing."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.transforms import (
    TruncateTransform,
)

from skipstone.errors import ConflictError, CorruptFileError, UsageError, WriteError
from skipstone.iceberg.writing import commit as commits
from skipstone.iceberg.writing.commit import append, check_pyiceberg, summaries
from skipstone.iceberg.writing.target import Target
from skipstone.write.overwrite import FullOverwrite
from tests.unit.iceberg.writing._tables import DAY, data_files, head_of, make, paths, rows, same, write


def test_an_append_is_one_snapshot(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 40))
    number = append(table, target, files, properties={"who": "me"})
    table = catalog.load_table("db.t")
    assert head_of(table) == number
    same(table, rows(0, 40))
    summary = table.current_snapshot().summary
    assert summary.operation.value == "append"
    assert summary["who"] == "me"
    assert summary["added-records"] == summary["total-records"] == "40"
    assert summary["added-data-files"] == str(len(files))
    assert {path.parent.parent.name for path in paths(tmp_path)} >= {"at_day=2024-05-01", "at_day=2024-05-02"}
    assert [one for one, told in summaries(table) if told.get("who") == "me"] == [number]
    second = write(Target.of(table), rows(40, 50), job="ac")
    append(table, target, second)
    same(catalog.load_table("db.t"), rows(0, 40), rows(40, 50))
    assert [one for one, told in summaries(table) if told.get("who") == "me"] == [number]
    assert table.current_snapshot().summary["total-records"] == "50"
    for path in paths(tmp_path):
        element = pq.ParquetFile(path).schema_arrow.field("s").type.field("b").type.value_field
        assert element.metadata[b"PARQUET:field_id"] == b"8"


def test_nothing_is_added_to_a_manifest_list_that_is_cut_short(catalog: SqlCatalog) -> None:
    table = make(catalog)
    target = Target.of(table)
    append(table, target, write(target, rows(0, 20)))
    head = table.current_snapshot()
    assert head is not None
    path = Path(head.manifest_list.removeprefix("file://"))
    body = path.read_bytes()
    header = body.index(body[-16:]) + 16
    path.write_bytes(body[:header])
    second = write(target, rows(20, 30), job="ac")
    with pytest.raises(CorruptFileError, match="manifest list is truncated"):
        append(table, target, second)
    assert catalog.load_table("db.t").current_snapshot() == head
    path.write_bytes(body)
    append(table, target, write(target, rows(20, 30), job="ad"))
    same(catalog.load_table("db.t"), rows(0, 20), rows(20, 30))


def test_version_1_and_3(catalog: SqlCatalog) -> None:
    table = make(catalog, properties={"format-version": "1"})
    target = Target.of(table)
    append(table, target, write(target, rows(0, 20)))
    same(catalog.load_table("db.t"), rows(0, 20))
    with pytest.raises(UsageError, match=r"db\.t: tables of format version 1 can't be overwritten"):
        FullOverwrite().check(target)
    third = make(catalog, "db.three")
    said = {**third.metadata.model_dump(by_alias=True), "format-version": 3, "next-row-id": 0}
    third.metadata = TableMetadataV3.model_validate(said)
    with pytest.raises(UsageError, match=r"db.three: writing tables of format version 3 is not supported"):
        Target.of(third)
    with pytest.raises(UsageError, match="version 3"):
        append(third, target, write(target, rows(0, 5), job="dd"))


def test_the_spec_that_files_were_written_under_counts(catalog: SqlCatalog) -> None:
    """Not the one that the table has when they are summaries: pyiceberg's own appends get that wrong."""
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 20))
    other = catalog.load_table("db.t")
    with other.update_spec() as update:
        update.remove_field("at_day")
        update.add_field("name", TruncateTransform(3), "name_trunc")
    append(table, target, files)
    table = catalog.load_table("db.t")
    assert {file.spec_id for file in data_files(table)} == {0}
    assert table.spec().spec_id == 1
    append(table, Target.of(table), write(Target.of(table), rows(20, 40), job="ac"))
    table = catalog.load_table("db.t")
    assert {file.spec_id for file in data_files(table)} == {0, 1}
    same(table, rows(0, 20), rows(20, 40))
    assert table.scan(row_filter="at >= '2024-05-03T00:00:00+00:00'").to_arrow().num_rows == sum(
        at >= DAY + dt.timedelta(days=2) for at in rows(0, 40)["at"].to_pylist()
    )


@pytest.mark.parametrize("hashed", ["true", "false"])
def test_where_files_lie(catalog: SqlCatalog, tmp_path: Path, hashed: str) -> None:
    settings = {"write.object-storage.enabled": hashed, "write.data.path": f"file://{tmp_path}/ware/a b%20c"}
    table = make(catalog, properties=settings)
    target = Target.of(table)
    append(table, target, write(target, rows(0, 10)))
    same(catalog.load_table("db.t"), rows(0, 10))
    assert all(path.is_relative_to(tmp_path / "ware" / "a b%20c") for path in paths(tmp_path))
    assert all(file.file_path.startswith(f"file://{tmp_path}/ware/a b%20c/") for file in data_files(table))


def test_an_object_store(tmp_path: Path, s3: dict[str, str]) -> None:
    """Data files go there by our own store, with what the catalog knows of it."""
    catalog = SqlCatalog(
        "test",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse="s3://bucket/ware",
        **{
            "s3.endpoint": s3["aws_endpoint"],
            "s3.access-key-id": s3["aws_access_key_id"],
            "s3.secret-access-key": s3["aws_secret_access_key"],
            "s3.region": s3["aws_region"],
        },
    )
    catalog.create_namespace("db")
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 10))
    append(table, target, files)
    same(catalog.load_table("db.t"), rows(0, 10))
    assert all(file.path.startswith("s3://bucket/ware/db/t/data/at_day=2024") for file in files)
    late = write(target, rows(10, 12), job="ee")
    assert sorted(target.leftovers("ee", [])) == sorted(file.path.partition("/data/")[2] for file in late)
    target.delete(late)
    assert target.leftovers("ee", []) == []


# -- conflicts and failures --------------------------------------------------------------------


def test_two_writers_at_once(catalog: SqlCatalog, tmp_path: Path) -> None:
    make(catalog)
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            own = SqlCatalog(
                "test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ware"
            )
            table = own.load_table("db.t")
            for step in range(3):
                start = number * 100 + step * 10
                target = Target.of(table)
                append(table, target, write(target, rows(start, start + 10), job=f"{start:x}"))
            own.close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    table = catalog.load_table("db.t")
    same(table, *(rows(n * 100 + s * 10, n * 100 + s * 10 + 10) for n in range(3) for s in range(3)))
    assert len(table.snapshots()) == 9


def failing(monkeypatch: pytest.MonkeyPatch, errors: list[Exception], *, lands: bool = False) -> None:
    """The next commits fail with these errors, after they have landed or before."""
    real = SqlCatalog.commit_table

    def commit_table(self: Any, *arguments: Any, **named: Any) -> Any:
        if not errors:
            return real(self, *arguments, **named)
        error = errors.pop(0)
        if lands:
            real(self, *arguments, **named)
        raise error

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    monkeypatch.setattr(commits.time, "sleep", lambda _: None)


def left(tmp_path: Path) -> list[str]:
    """Manifests and data files that lie about."""
    return sorted(
        path.name for path in (tmp_path / "ware").rglob("*") if path.suffix in (".avro", ".parquet")
    )


def test_a_commit_that_others_beat_is_tried_again(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 10))
    failing(monkeypatch, [CommitFailedException("slow")] * 3)
    append(table, target, files)
    same(catalog.load_table("db.t"), rows(0, 10))
    # The manifests of tries that failed are gone.
    assert len([name for name in left(tmp_path) if name.endswith(".avro")]) == 2
    before = left(tmp_path)
    files = write(target, rows(10, 20), job="ac")
    failing(monkeypatch, [CommitFailedException("slow")] * 99)
    with pytest.raises(ConflictError, match="because of concurrent commits"):
        append(table, target, files)
    assert left(tmp_path) == before


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_answer_is_lost(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 10))
    failing(monkeypatch, [CommitStateUnknownException("lost")], lands=lands)
    if lands:
        number = append(table, target, files)
        assert head_of(catalog.load_table("db.t")) == number
        same(catalog.load_table("db.t"), rows(0, 10))
    else:
        with pytest.raises(
            WriteError, match=r"unknown: lost .*check whether snapshot \d+ exists.*no file was deleted"
        ):
            append(table, target, files)
        assert len(paths(tmp_path)) == len(files)


def test_a_conflict_that_had_landed(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a commit was lost, and the transport tried again: the rows are in once."""
    table = make(catalog)
    target = Target.of(table)
    failing(monkeypatch, [CommitFailedException("again")], lands=True)
    append(table, target, write(target, rows(0, 10)))
    same(catalog.load_table("db.t"), rows(0, 10))


def test_what_is_done_is_not_done_again(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make(catalog)
    target = Target.of(table)
    mark = {"batch": "7"}
    assert append(table, target, write(target, rows(0, 10)), properties=mark) is not None
    before = left(tmp_path)
    late = write(target, rows(0, 10), job="ac")
    assert (
        append(
            table,
            target,
            late,
            properties=mark,
            done=lambda t: any(told.get("batch") == "7" for _, told in summaries(t)),
        )
        is None
    )
    assert left(tmp_path) == before
    same(catalog.load_table("db.t"), rows(0, 10))


def test_a_table_that_is_another_one_now(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 10))
    catalog.drop_table("db.t")
    make(catalog)
    monkeypatch.setattr(commits.time, "sleep", lambda _: None)
    with pytest.raises(ConflictError, match="was replaced by another one"):
        append(table, target, files)
    assert paths(tmp_path) == []


def test_a_table_that_was_dropped(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make(catalog)
    target = Target.of(table)
    files = write(target, rows(0, 10))
    catalog.drop_table("db.t")
    with pytest.raises(ConflictError, match="table no longer exists"):
        append(table, target, files)
    assert paths(tmp_path) == []


def test_another_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    check_pyiceberg()
    check_pyiceberg.cache_clear()
    monkeypatch.setattr(Table, "_do_commit", lambda self, changes: None)
    with pytest.raises(UsageError, match="write with pyiceberg"):
        check_pyiceberg()
    monkeypatch.undo()
    check_pyiceberg.cache_clear()
