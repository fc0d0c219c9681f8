"""Data files of tasks become snapshots: in the right spec, with metrics, once; a failure leaves nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from skipstone.errors import ConflictError, SchemaError, UsageError, WriteError
from skipstone.ingest.overwrite import Everything
from skipstone.lake.iceberg.partitions.values import internal, partition_values, source_span
from skipstone.lake.iceberg.writing import commit as commits
from skipstone.lake.iceberg.writing.commit import append, check_pyiceberg, committed, replace
from skipstone.lake.iceberg.writing.files import cut_above
from skipstone.lake.iceberg.writing.fit import check_columns
from skipstone.lake.iceberg.writing.produce import Changes, live_entries
from skipstone.lake.iceberg.writing.target import NewFile, Target
from skipstone.write.files import write_files
from skipstone.write.layout import Layout
from skipstone.write.profile import profile
from tests.iceberg._maker import Maker

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "x", DoubleType()),
    NestedField(
        5,
        "s",
        StructType(NestedField(6, "a", IntegerType()), NestedField(7, "b", ListType(8, StringType(), False))),
    ),
    identifier_field_ids=[1],
)
BY_DAY = PartitionSpec(
    PartitionField(3, 1000, DayTransform(), "at_day"),
    PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
)
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def head_of(table: Table) -> int | None:
    head = table.metadata.snapshot_by_name("main")
    return None if head is None else int(head.snapshot_id)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ware")
    made.create_namespace("db")
    return made


def make(catalog: SqlCatalog, name: str = "db.t", **given: Any) -> Table:
    arguments = {"schema": SCHEMA, "partition_spec": BY_DAY, **given}
    return catalog.create_table(name, **arguments)


def rows(start: int, stop: int) -> pa.Table:
    numbers = list(range(start, stop))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [None if n % 7 == 0 else f"{'long and longer ' * 3}{n}" for n in numbers],
            "at": pa.array([DAY + dt.timedelta(hours=7 * n) for n in numbers], pa.timestamp("us", "UTC")),
            "x": [math.nan if n % 5 == 0 else None if n % 3 == 0 else n / 2 for n in numbers],
            "s": pa.array([None if n % 4 == 0 else {"a": n, "b": ["p", None]} for n in numbers], STRUCT),
        }
    )


def write(target: Target, table: pa.Table, job: str = "ab", layout: Layout | None = None) -> list[NewFile]:
    layout = layout or Layout()
    seen = profile(table, layout)
    found = write_files(table.to_batches(), target.place, job, "0", layout, seen, shape=target)
    return [target.new_file(one) for one in found]


def data_files(table: Table) -> list[Any]:
    found = table.current_snapshot()
    manifests = found.manifests(table.io) if found is not None else []
    return [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(table.io)]


def paths(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "ware").rglob("*.parquet"))


def same(table: Table, *parts: pa.Table) -> None:
    found = table.scan().to_arrow().select(["id", "name", "at", "x", "s"]).sort_by("id")
    wanted = pa.concat_tables(parts).sort_by("id")
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())


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
    assert committed(table, {"who": "me"}) == number
    assert committed(table, {"who": "you"}) is None
    second = write(Target.of(table), rows(40, 50), job="ac")
    append(table, target, second)
    same(catalog.load_table("db.t"), rows(0, 40), rows(40, 50))
    assert committed(table, {"who": "me"}) == number
    assert table.current_snapshot().summary["total-records"] == "50"
    for path in paths(tmp_path):
        element = pq.ParquetFile(path).schema_arrow.field("s").type.field("b").type.value_field
        assert element.metadata[b"PARQUET:field_id"] == b"8"


def test_version_1_and_3(catalog: SqlCatalog) -> None:
    table = make(catalog, properties={"format-version": "1"})
    target = Target.of(table)
    append(table, target, write(target, rows(0, 20)))
    same(catalog.load_table("db.t"), rows(0, 20))
    with pytest.raises(UsageError, match=r"db\.t: a table of format version 1 can't be overwritten"):
        Everything().check(target)
    third = make(catalog, "db.three")
    said = {**third.metadata.model_dump(by_alias=True), "format-version": 3, "next-row-id": 0}
    third.metadata = TableMetadataV3.model_validate(said)
    with pytest.raises(UsageError, match=r"db.three: it is of format version 3, which can't be written"):
        Target.of(third)
    with pytest.raises(UsageError, match="version 3"):
        append(third, target, write(target, rows(0, 5), job="dd"))


def test_the_spec_that_files_were_written_under_counts(catalog: SqlCatalog) -> None:
    """Not the one that the table has when they are committed: pyiceberg's own appends get that wrong."""
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
    with pytest.raises(ConflictError, match="others commit all the time"):
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
        with pytest.raises(WriteError, match=r"not known: lost .*look for snapshot \d+.*no file was deleted"):
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
    assert append(table, target, late, properties=mark, done=lambda t: bool(committed(t, mark))) is None
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
    with pytest.raises(ConflictError, match="another table has taken its name"):
        append(table, target, files)
    assert paths(tmp_path) == []


def test_another_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    check_pyiceberg()
    check_pyiceberg.cache_clear()
    monkeypatch.setattr(Table, "_do_commit", lambda self, changes: None)
    with pytest.raises(UsageError, match="commits in another way"):
        check_pyiceberg()
    monkeypatch.undo()
    check_pyiceberg.cache_clear()


# -- replacing ---------------------------------------------------------------------------------


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
    with pytest.raises(ConflictError, match="a file to be replaced is gone"):
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
    gone = [file.path for file in first if any(isinstance(v, float) for v in file.note.key.partition or ())]
    assert 0 < len(gone) < len(first)
    replace(table, Target.of(table), [], gone, base=base, conflict=none)
    table = catalog.load_table("db.t")
    kept = {file.path for file in first} - set(gone)
    assert {file.file_path for file in data_files(table)} == kept
    assert {file.spec_id for file in data_files(table)} == {0}


# -- rows that fit, and those that don't -------------------------------------------------------


def test_columns_go_by_name_and_widen(catalog: SqlCatalog) -> None:
    table = make(catalog)
    target = Target.of(table)
    given_rows = pa.table({"x": pa.array([1.5], pa.float32()), "id": pa.array([3], pa.int16())})
    check_columns(given_rows.schema, target.schema, "db.t")
    append(table, target, write(target, given_rows))
    assert catalog.load_table("db.t").scan().to_arrow().to_pylist() == [
        {"id": 3, "name": None, "at": None, "x": 1.5, "s": None}
    ]


@pytest.mark.parametrize(
    ("given_rows", "problem"),
    [
        ({"name": ["x"]}, "column id: the table requires it"),
        ({"id": [1], "more": [1]}, "column more: the table has no such column"),
        ({"id": [1], "Name": ["x"]}, "column Name: the table calls it name"),
        ({"id": ["x"]}, "column id: the type is string"),
        ({"id": [1], "x": pa.array([1], pa.int64())}, "column x: the type is int64"),
        ({"id": [1], "s": [{"a": 1, "c": 2}]}, r"column s\.c: the table has no such column"),
        ({"id": [1], "s": [{"a": 2**40}]}, r"column s\.a: the type is int64"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("us"))}, "column at: the type is timestamp"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    catalog: SqlCatalog, given_rows: dict[str, Any], problem: str
) -> None:
    target = Target.of(make(catalog))
    with pytest.raises(SchemaError, match=problem):
        check_columns(pa.table(given_rows).schema, target.schema, "db.t")


def test_types_of_other_engines(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "u", UUIDType()),
        NestedField(2, "v", UUIDType()),
        NestedField(3, "f", FixedType(3)),
        NestedField(4, "t", TimeType()),
        NestedField(5, "m", MapType(6, StringType(), 7, UUIDType(), False)),
    )
    table = make(catalog, schema=schema, partition_spec=PartitionSpec())
    target = Target.of(table)
    one = uuid.uuid4()
    given_rows = pa.table(
        {
            "u": [str(one), None],
            "v": [one.bytes, None],
            "f": [b"abc", None],
            "t": pa.array([1000, None], pa.time64("ns")),
            "m": pa.array([[("k", one.bytes)], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    check_columns(given_rows.schema, target.schema, "db.t")
    append(table, target, write(target, given_rows))
    found = catalog.load_table("db.t").scan().to_arrow().to_pylist()
    assert found[0] == {"u": one, "v": one, "f": b"abc", "t": dt.time(0, 0, 0, 1), "m": [("k", one)]}
    for column, value in (("f", b"abcd"), ("u", "no"), ("t", pa.array([1001], pa.time64("ns")))):
        odd = pa.table({column: value if isinstance(value, pa.Array) else [value]})
        with pytest.raises(SchemaError, match=f"column {column}"):
            target.fitted(odd.to_batches()[0])
    with pytest.raises(SchemaError, match="column id: NULL"):
        Target.of(make(catalog, "db.u")).fitted(
            pa.table({"id": pa.array([None], pa.int64())}).to_batches()[0]
        )


# -- partition values --------------------------------------------------------------------------

MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
VALUES: list[tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]]] = [
    (IntegerType(), pa.int32(), st.integers(-(2**31) + 100, 2**31 - 1)),
    (LongType(), pa.int64(), st.integers(-(2**63) + 100, 2**63 - 1)),
    (BooleanType(), pa.bool_(), st.booleans()),
    (DoubleType(), pa.float64(), st.floats()),
    (DateType(), pa.date32(), st.dates()),
    (TimeType(), pa.time64("us"), st.times()),
    (TimestampType(), pa.timestamp("us"), MICROS),
    (TimestamptzType(), pa.timestamp("us", "UTC"), MICROS),
    (TimestampNanoType(), pa.timestamp("ns"), st.integers(-(2**63) + 1, 2**63 - 1)),
    (StringType(), pa.string(), st.text(max_size=8)),
    (BinaryType(), pa.binary(), st.binary(max_size=8)),
    (FixedType(4), pa.binary(4), st.binary(min_size=4, max_size=4)),
    (UUIDType(), pa.uuid(), st.uuids().map(lambda one: one.bytes)),
    (DecimalType(9, 2), pa.decimal128(9, 2), st.decimals(-9_999_990, 9_999_990, places=2)),
    (DecimalType(38, 5), pa.decimal128(38, 5), st.decimals(-(10**30), 10**30, places=5)),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    VoidTransform(),
    BucketTransform(16),
    BucketTransform(1_000_003),
    TruncateTransform(3),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind[0]))
def test_transforms_are_pyicebergs(kind: tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]]) -> None:
    type, arrow, values = kind

    @settings(max_examples=30)
    @given(st.lists(st.none() | values, max_size=20))
    def check(some: list[Any]) -> None:
        storage = pa.binary(16) if isinstance(type, UUIDType) else arrow
        column = pa.array(some, storage).cast(arrow)
        plain = internal(column).to_pylist()
        for transform in TRANSFORMS:
            if transform.can_transform(type):
                made = transform.transform(type)
                found = partition_values(transform, type, column).to_pylist()
                assert repr(found) == repr([made(value) for value in plain]), transform

    check()


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind[0]))
def test_spans_of_sources_hold_what_partitions_are_made_of(
    kind: tuple[PrimitiveType, pa.DataType, st.SearchStrategy[Any]],
) -> None:
    type, arrow, values = kind

    @settings(max_examples=20)
    @given(st.lists(values, min_size=1, max_size=8))
    def check(some: list[Any]) -> None:
        storage = pa.binary(16) if isinstance(type, UUIDType) else arrow
        column = pa.array(some, storage).cast(arrow)
        for transform in TRANSFORMS:
            if not transform.can_transform(type) or isinstance(transform, VoidTransform):
                continue
            made = partition_values(transform, type, column).to_pylist()
            span = source_span(transform, arrow, made)
            if isinstance(transform, IdentityTransform) and not isinstance(type, DoubleType | UUIDType):
                assert span is not None
            if span is not None:
                ends = internal(pa.concat_arrays([pa.repeat(one, 1) for one in span])).to_pylist()
                assert all(ends[0] <= value <= ends[1] for value in internal(column).to_pylist()), transform

    check()


def test_values_without_a_partition() -> None:
    with pytest.raises(SchemaError, match=r"column k: a value has no partition by truncate\[10\]"):
        partition_values(TruncateTransform(10), LongType(), pa.array([-(2**63)]), "k")
    with pytest.raises(SchemaError, match=r"no partition by truncate\[10\]"):
        partition_values(TruncateTransform(10), IntegerType(), pa.array([-(2**31)], pa.int32()))
    with pytest.raises(UsageError, match="can't be computed"):
        partition_values(DayTransform(), StringType(), pa.array(["x"]))


# -- metrics -----------------------------------------------------------------------------------

COLUMNS = {
    "i": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "f": (FloatType(), pa.float32(), st.floats(width=32)),
    "d": (DoubleType(), pa.float64(), st.floats()),
    "t": (StringType(), pa.string(), st.text(max_size=40)),
    "b": (BinaryType(), pa.binary(), st.binary(max_size=40) | st.just(b"\xff" * 20)),
    "n": (DecimalType(20, 3), pa.decimal128(20, 3), st.decimals(-(10**15), 10**15, places=3)),
    "ts": (TimestampType(), pa.timestamp("us"), MICROS),
    "day": (DateType(), pa.date32(), st.dates()),
    "ok": (BooleanType(), pa.bool_(), st.booleans()),
}


@settings(max_examples=40)
@given(st.data())
def test_bounds_hold_all_values(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    drawn = {
        name: data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        for name, (_, _, values) in COLUMNS.items()
    }
    fields = [NestedField(n + 1, name, type) for n, (name, (type, _, _)) in enumerate(COLUMNS.items())]
    inner = StructType(NestedField(21, "x", DoubleType()), NestedField(22, "y", StringType()))
    schema = Schema(*fields, NestedField(20, "s", inner))
    floats = drawn["d"]
    structs = [None if at % 3 == 2 else {"x": floats[at], "y": drawn["t"][at]} for at in range(count)]
    table = pa.table({name: pa.array(drawn[name], arrow) for name, (_, arrow, _) in COLUMNS.items()})
    table = table.append_column("s", pa.array(structs, pa.struct([("x", pa.float64()), ("y", pa.string())])))
    mode = data.draw(st.sampled_from(["full", "truncate(16)", "truncate(1)", "counts", "none"]))
    note = noted(schema, table, {"write.metadata.metrics.default": mode})
    assert note.rows == count
    columns = {**{name: table[name] for name in COLUMNS}, "s.x": pc.struct_field(table["s"], "x")}
    columns["s.y"] = pc.struct_field(table["s"], "y")
    for name, column in columns.items():
        number = schema.find_field(name).field_id
        type = schema.find_field(name).field_type
        assert isinstance(type, PrimitiveType)
        if mode == "none":
            assert number not in note.values
            continue
        assert (note.values[number], note.nulls[number]) == (count, column.null_count)
        plain = [v for v in internal(column.combine_chunks()).to_pylist() if v is not None]
        real = [v for v in plain if not (isinstance(v, float) and math.isnan(v))]
        assert note.nans.get(number, 0) == len(plain) - len(real)
        assert (number in note.nans) == pa.types.is_floating(column.type)
        if mode == "counts" or not real:
            assert number not in note.lower
            assert number not in note.upper
            continue
        low = from_bytes(type, note.lower[number])
        keyed = [v.encode() if isinstance(v, str) else v for v in real]
        assert (low.encode() if isinstance(low, str) else low) <= min(keyed)
        if number in note.upper:
            high = from_bytes(type, note.upper[number])
            assert (high.encode() if isinstance(high, str) else high) >= max(keyed)
        else:
            assert mode.startswith("truncate")
        if mode == "full":
            assert low == min(real, key=lambda v: v.encode() if isinstance(v, str) else v)


def noted(schema: Schema, table: pa.Table, properties: dict[str, str]) -> Any:
    import tempfile

    from skipstone.lake.iceberg.writing.files import measured_columns
    from skipstone.lake.iceberg.writing.target import place_of

    with tempfile.TemporaryDirectory() as folder:
        target = Target(
            "t", schema, PartitionSpec(), folder, place_of(folder), measured_columns(schema, properties)
        )
        return write(target, table)[0].note


def test_zeros_and_sizes() -> None:
    schema = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "l", ListType(3, LongType(), False)))
    note = noted(schema, pa.table({"d": [0.0, -0.0], "l": [[1], []]}), {})
    low, high = (from_bytes(DoubleType(), side[1]) for side in (note.lower, note.upper))
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)
    assert set(note.column_sizes) == {1, 3}
    assert set(note.values) == {1}
    assert note.offsets == (4,)


def test_keys_keep_their_bounds_whole(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "key", StringType(), required=True),
        NestedField(2, "other", StringType()),
        NestedField(3, "told", StringType()),
        NestedField(4, "plain", StringType()),
        identifier_field_ids=[1],
    )
    told = {"write.metadata.metrics.column.told": "truncate(3)"}
    table = make(catalog, schema=schema, partition_spec=PartitionSpec(), properties=told)
    target = Target.of(table, whole=["other"])
    long = "z" * 30
    note = write(target, pa.table({name: [long] for name in ("key", "other", "told", "plain")}))[0].note
    assert [len(note.lower[number]) for number in (1, 2, 3, 4)] == [30, 30, 3, 16]
    assert note.upper[3] == b"zz{"
    assert note.upper[4] == b"z" * 15 + b"{"


def test_wide_tables_keep_metrics_of_the_first_columns() -> None:
    from skipstone.lake.iceberg.writing.files import measured_columns

    schema = Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, 131)))
    kept = [one for one in measured_columns(schema, {}, [130]) if one.mode == "bounds"]
    assert [one.field_id for one in kept] == [*range(1, 101), 130]
    assert all(
        one.mode == "bounds"
        for one in measured_columns(schema, {"write.metadata.metrics.default": "truncate(16)"})
    )
    with pytest.raises(UsageError, match=r"column c1: the table's metrics are 'some'"):
        measured_columns(schema, {"write.metadata.metrics.default": "some"})


@pytest.mark.parametrize(
    ("value", "length", "wanted"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("a\U0010ffff\U0010ffffz", 3, "b"),
        ("\U0010ffff" * 4, 3, None),
        ("ab\ud7ffx", 3, "ab\ue000"),
        (b"ab\xffz", 3, b"ac"),
        (b"\xff\xff\xff", 2, None),
    ],
)
def test_bounds_are_cut_upwards(value: Any, length: int, wanted: Any) -> None:
    assert cut_above(value, length) == wanted


def test_null_and_the_text_null_are_two_partitions(catalog: SqlCatalog) -> None:
    """In one folder, in files of their own."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = make(catalog, partition_spec=spec)
    target = Target.of(table)
    files = write(target, pa.table({"id": [1, 2, 3], "name": ["null", None, "null"]}))
    assert {file.note.key.partition for file in files} == {("null",), (None,)}
    assert len({Path(file.path).parent for file in files}) == 1
    append(table, target, files)
    table = catalog.load_table("db.t")
    assert table.scan(row_filter="name is null").to_arrow()["id"].to_pylist() == [2]
    assert sorted(table.scan(row_filter="name = 'null'").to_arrow()["id"].to_pylist()) == [1, 3]


def test_decimals_are_partition_values(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "n", DecimalType(9, 2)), NestedField(2, "u", UUIDType()))
    spec = PartitionSpec(
        PartitionField(1, 1000, TruncateTransform(50), "nt"),
        PartitionField(2, 1001, IdentityTransform(), "u"),
    )
    table = make(catalog, schema=schema, partition_spec=spec)
    target = Target.of(table)
    one = uuid.uuid4()
    numbers = [decimal.Decimal("1.20"), decimal.Decimal("-0.01"), None]
    given_rows = pa.table(
        {
            "n": pa.array(numbers, pa.decimal128(9, 2)),
            "u": pa.array([one.bytes, one.bytes, None], pa.binary(16)),
        }
    )
    append(table, target, write(target, given_rows))
    table = catalog.load_table("db.t")
    assert table.scan().to_arrow().num_rows == 3
    assert table.scan(row_filter="n = 1.20").to_arrow().num_rows == 1
    assert {file.partition[0] for file in data_files(table)} == {
        decimal.Decimal("1.00"),
        decimal.Decimal("-0.50"),
        None,
    }


def test_doubles_of_partitions_stay_as_they_are_written(tmp_path: Path) -> None:
    """pyiceberg reads them as floats; an overwrite that wrote those back would lose the rows to `k = 0.1`."""
    m = Maker(tmp_path / "t", [("k", "double"), ("v", "int")], [("k", "identity")])
    values = [0.1, 0.2, 1.5, float("nan"), None]
    m.append([{"k": value, "v": 1} for value in values])
    table = StaticTable.from_metadata(m.metadata_location)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = [
        entry.data_file.partition[0]
        for manifest in snapshot.manifests(table.io)
        for entry in live_entries(table, manifest)
    ]
    assert sorted(map(str, found)) == sorted(map(str, values))
