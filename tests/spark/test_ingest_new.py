"""``sk.ingest_new``: each file of a source is taken in once, wholly, whatever comes in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import ConflictError, FileError, ReadError, SchemaError, SkipstoneError, UsageError
from skipstone.write import frame as frame_module
from tests.spark.test_ingest import files, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def csv(path: Path, ids: range, header: str = "id,name", line: str = "{0},n{0}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(line.format(n) for n in ids)]) + "\n")


def ids(root: Path) -> list[int]:
    return sorted(sk.open(root).scan(columns=["id"]).to_arrow()["id"].to_pylist())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    for n in range(4):
        csv(root / f"{n}.csv", range(100 * n, 100 * n + 100))
    return root


def test_only_what_is_new(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (source / "_SUCCESS").write_text("x")
    (source / ".0.csv.crc").write_text("x")
    told: list[tuple[int, int]] = []
    report = sk.ingest_new(source, lake, cluster_by=["id"], session=spark, on_batch=lambda *b: told.append(b))
    assert (report.new, report.already_ingested, report.changed, report.rows) == (4, 0, (), 400)
    assert told == [(0, 1)]
    assert ids(lake) == list(range(400))
    assert sk.open(lake).schema.field("id").type == pa.int64()
    report = sk.ingest_new(source, lake, session=spark)
    assert (report.new, report.already_ingested, report.batches) == (0, 4, ())
    assert str(report) == "nothing to do: 4 files already ingested"
    # Values that would be guessed to be of other types are of the lake's; a new column is a new column.
    csv(source / "4.csv", range(400, 500), "id,name,more", "{0},{0},{0}.5")
    csv(source / "1.csv", range(9000, 9100))
    report = sk.ingest_new(source, lake, session=spark, evolve=True)
    assert (report.new, report.already_ingested, report.changed, report.rows) == (
        1,
        3,
        (f"{source}/1.csv",),
        100,
    )
    assert f"changed files skipped: {source}/1.csv" in str(report)
    assert ids(lake) == list(range(500))
    found = sk.open(lake)
    assert found.schema.field("name").type == pa.string()
    assert found.scan("more > 450").count() == 50
    assert staged(lake) == []


@pytest.mark.slow
def test_names_that_are_odd(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "in [1] {x}, %20 # ü"
    names = ["a b.csv", "50%.csv", "x{1,2}.csv", "[z]*.csv", "a,b.csv", "q?.csv", "h#1.csv", "day=1/ü.csv"]
    for n, name in enumerate(names):
        csv(root / name, range(n, n + 1))
    report = sk.ingest_new(str(root) + "/", tmp_path / "lake", session=spark, evolve=True)
    assert (report.new, report.rows) == (8, 8)
    assert ids(tmp_path / "lake") == list(range(8))
    assert sk.ingest_new(root, tmp_path / "lake", session=spark).already_ingested == 8


def test_every_format(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"id": range(100), "name": [f"n{n}" for n in range(100)]})
    for format in ("parquet", "orc", "json", "tsv"):
        (tmp_path / format).mkdir()
    for start in (0, 50):
        part = table.slice(start, 50)
        pq.write_table(part, tmp_path / "parquet" / f"{start}.parquet")
        orc.write_table(part, tmp_path / "orc" / f"{start}.orc")
        lines = [json.dumps(row) for row in part.to_pylist()]
        # Blank lines are no rows.
        (tmp_path / "json" / f"{start}.jsonl").write_text("\n\n".join(lines) + "\n\n")
        csv(tmp_path / "tsv" / f"{start}.tsv", range(start, start + 50), "id\tname", "{0}\tn{0}\n")
    for format in ("parquet", "orc", "json", "tsv"):
        report = sk.ingest_new(tmp_path / format, tmp_path / "lakes" / format, session=spark, index=False)
        assert (report.new, report.rows) == (2, 100), format
        found = sk.open(tmp_path / "lakes" / format).scan().to_arrow().sort_by("id")
        assert found.to_pylist() == table.to_pylist(), format


def test_json_with_new_fields(spark: SparkSession, tmp_path: Path) -> None:
    root, lake = tmp_path / "in", tmp_path / "lake"
    root.mkdir()
    (root / "1.json").write_text('{"id": 1, "s": {"a": 1}, "v": 1.5, "l": [1]}\n{"id": 2, "s": null}\n')
    sk.ingest_new(root, lake, session=spark)
    # NULLs alone would be guessed to be texts, and whole numbers to be such.
    (root / "2.json").write_text('{"id": 3, "s": {"b": "x", "a": null}, "v": 7, "l": null, "new": true}\n')
    with pytest.raises(SchemaError, match=r"column new: not in the lake, nor are s\.b"):
        sk.ingest_new(root, lake, session=spark)
    report = sk.ingest_new(root, lake, session=spark, evolve=True)
    assert (report.new, report.already_ingested) == (1, 1)
    found = sk.open(lake).scan(order_by="id").to_arrow()
    assert found["v"].to_pylist() == [1.5, None, 7.0]
    assert found["new"].to_pylist() == [None, None, True]
    assert [row and row.get("a") for row in found["s"].to_pylist()] == [1, None, None]
    assert [row and row.get("b") for row in found["s"].to_pylist()] == [None, None, "x"]
    # What doesn't fit the lake's type is an error, and no NULL.
    (root / "3.json").write_text('{"id": 4, "v": "much"}\n')
    with pytest.raises(SkipstoneError, match=r"3\.json"):
        sk.ingest_new(root, lake, session=spark)
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,name\n5,a\n6,b,c,d\n", r"b\.csv, line 3: expected 2 columns, got 4"),
        ("id,name\n5,a\nx6,b\n", r"b\.csv, line 3, column id: 'x6' is not a valid int64"),
    ],
    ids=["columns", "type"],
)
def test_a_line_that_can_t_be_read(spark: SparkSession, tmp_path: Path, text: str, problem: str) -> None:
    root, lake = tmp_path / "in", tmp_path / "lake"
    csv(root / "a.csv", range(3))
    (root / "b.csv").write_text(text)
    with pytest.raises(FileError, match=problem):
        sk.ingest_new(root, lake, schema="id long, name string", session=spark)
    assert files(lake) == staged(lake) == []
    (root / "b.csv").write_text("id,name\n3,n\n")
    assert sk.ingest_new(root, lake, schema="id long, name string", session=spark).rows == 4
    assert ids(lake) == [0, 1, 2, 3]


def test_a_run_that_fails_is_resumed(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    whole = (source / "2.csv").read_text()
    (source / "2.csv").write_text(whole + "oops,1,2,3\n")
    size = (source / "0.csv").stat().st_size
    batches: list[tuple[int, int]] = []
    options: dict[str, Any] = {
        "batch_bytes": size + 1,
        "schema": "id int, name string",
        "session": spark,
        "on_batch": lambda *batch: batches.append(batch),
        "index": False,
    }
    with pytest.raises(FileError, match=r"2\.csv, line 102: expected 2 columns, got 4"):
        sk.ingest_new(source, lake, **options)
    assert batches == [(0, 4), (1, 4), (2, 4)]
    assert ids(lake) == list(range(200))
    assert staged(lake) == []
    (source / "2.csv").write_text(whole)
    report = sk.ingest_new(source, lake, **options)
    assert (report.new, report.already_ingested, len(report.batches)) == (2, 2, 2)
    assert ids(lake) == list(range(400))


def test_files_that_change_meanwhile(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = frame_module.write_frame

    def change(*given: Any) -> Any:
        found = written(*given)
        with (source / "1.csv").open("a") as file:
            file.write("777,late\n")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(frame_module, "write_frame", change)
        with pytest.raises(ReadError, match=r"1\.csv: file changed during the ingest"):
            sk.ingest_new(source, tmp_path / "lake", session=spark, index=False)
    assert files(tmp_path / "lake") == []
    sk.ingest_new(source, tmp_path / "lake", session=spark, index=False)
    assert ids(tmp_path / "lake") == sorted([*range(400), 777])


def test_two_runs_at_once_take_nothing_twice(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    written = frame_module.write_frame
    problems: list[SkipstoneError] = []

    def other(*given: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(frame_module, "write_frame", written)
            try:
                sk.ingest_new(source, lake, session=spark, index=False)
            except SkipstoneError as error:
                problems.append(error)
        return written(*given)

    monkeypatch.setattr(frame_module, "write_frame", other)
    sk.ingest_new(source, lake, session=spark, index=False)
    assert [type(problem) for problem in problems] == [ConflictError]
    assert "another run is ingesting this file" in str(problems[0])
    assert ids(lake) == list(range(400))


def test_files_that_spark_would_leave_out(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """They would be noted as taken in."""
    with pytest.raises(UsageError, match=r"unknown read option 'pathGlobFilter' of csv files"):
        sk.ingest_new(source, tmp_path / "lake", read_options={"pathGlobFilter": "0*"}, session=spark)
    root = tmp_path / "parquet"
    root.mkdir()
    pq.write_table(pa.table({"id": [1]}), root / "a.parquet")
    body = bytearray((root / "a.parquet").read_bytes())
    body[4:40] = b"\xff" * 36
    (root / "b.parquet").write_bytes(body)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(FileError, match=r"b\.parquet"):
            sk.ingest_new(root, tmp_path / "lake", session=spark)
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert files(tmp_path / "lake") == staged(tmp_path / "lake") == []


def test_a_source_without_rows_is_done_with(spark: SparkSession, tmp_path: Path) -> None:
    csv(tmp_path / "in" / "a.csv", range(0))
    for already_ingested in (0, 1):
        report = sk.ingest_new(
            tmp_path / "in", tmp_path / "lake", session=spark, schema="id int, name string"
        )
        assert (report.new, report.already_ingested, report.rows, report.files) == (
            1 - already_ingested,
            already_ingested,
            0,
            0,
        )
    csv(tmp_path / "in" / "b.csv", range(5))
    assert sk.ingest_new(tmp_path / "in", tmp_path / "lake", session=spark).rows == 5
    assert ids(tmp_path / "lake") == list(range(5))
