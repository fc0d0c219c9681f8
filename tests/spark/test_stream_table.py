"""``df.writeStream`` into Iceberg tables: every micro-batch once, over restarts and replays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone.errors import UsageError
from tests.spark._tables import SCHEMA, frame, iceberg, read, rows, stray, warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def make(root: Path) -> Any:
    return warehouse(root).create_table("db.t", SCHEMA, partition_by=["bucket(2, id)"])


def arrive(spark: SparkSession, root: Path, start: int, stop: int) -> None:
    frame(spark, start, stop).coalesce(1).write.mode("append").parquet(f"{root}/source")


def stream(spark: SparkSession, root: Path, checkpoint: str = "checkpoint", **options: Any) -> None:
    """Take in what has arrived, a batch for each file, and stop."""
    source = spark.readStream.schema(frame(spark, 0, 1).schema).option("maxFilesPerTrigger", 1)
    given = source.parquet(f"{root}/source")
    told = {"catalog": f"{root}/ware/", "index": "false", "checkpointLocation": f"{root}/{checkpoint}"}
    writer = given.writeStream.format("skipstone").options(**told, **options)
    query = writer.trigger(availableNow=True).start("db.t")
    assert query.awaitTermination(300)


def batches(root: Path) -> list[tuple[str, int]]:
    """The streams and batches of a table's snapshots, oldest first."""
    told = [one.summary.additional_properties for one in iceberg(root).snapshots()]
    return [(one["skipstone.stream"], int(one["skipstone.batch"])) for one in told]


def test_a_stream_is_stopped_restarted_and_replayed(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path)
    arrive(spark, tmp_path, 0, 40)
    stream(spark, tmp_path)
    arrive(spark, tmp_path, 40, 60)
    stream(spark, tmp_path)
    assert read(tmp_path) == rows(frame(spark, 0, 60))
    assert [batch for _, batch in batches(tmp_path)] == [0, 1]
    assert len({one for one, _ in batches(tmp_path)}) == 1
    # The driver dies after the table has the batch, and before Spark knows: it is given once more.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    stream(spark, tmp_path)
    assert read(tmp_path) == rows(frame(spark, 0, 60))
    assert [batch for _, batch in batches(tmp_path)] == [0, 1]
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
    assert stray(tmp_path) == []


@pytest.mark.slow
def test_another_checkpoint_is_another_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Its batches have the same numbers, and are no replays."""
    make(tmp_path)
    arrive(spark, tmp_path, 0, 20)
    stream(spark, tmp_path)
    stream(spark, tmp_path, "other")
    twice = frame(spark, 0, 20)
    assert read(tmp_path) == rows(twice.unionAll(twice))
    assert len(set(batches(tmp_path))) == 2


def test_the_drivers_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that come again, also earlier ones, and batches without rows."""
    from pyspark.sql.types import LongType, StructField, StructType

    from skipstone.spark import table_sink
    from skipstone.spark.table_sink import NewFiles, TableStreamWriter, make_stream_writer

    make(tmp_path)
    monkeypatch.setattr(table_sink, "task_name", lambda: "0-0")
    schema = StructType([StructField("id", LongType())])
    given = {"catalog": f"{tmp_path}/ware/", "path": "db.t", "index": "false", "checkpointlocation": "x"}

    def written(number: int, stream: str = "a") -> NewFiles:
        made = TableStreamWriter(dict(given), schema, False)
        return NewFiles(made._tasks.write(iter([pa.record_batch({"id": [number]})]), f"{number:02x}"), stream)

    def commit(number: int, messages: list[Any], *, replaces: bool = False) -> None:
        TableStreamWriter(dict(given), schema, replaces).commit(messages, number)

    commit(0, [written(0), written(1)])
    commit(1, [NewFiles((), "a")])
    commit(2, [])
    commit(3, [written(3)])
    commit(3, [written(4)])
    commit(0, [written(5)])
    commit(0, [written(6, "b")])
    assert sorted(iceberg(tmp_path).scan().to_arrow()["id"].to_pylist()) == [0, 1, 3, 6]
    assert stray(tmp_path) == []
    # Complete output replaces all, once.
    commit(4, [written(7)], replaces=True)
    commit(4, [written(8)], replaces=True)
    assert iceberg(tmp_path).scan().to_arrow()["id"].to_pylist() == [7]
    made = TableStreamWriter(dict(given), schema, False)
    made.abort([written(9), None], 5)
    assert stray(tmp_path) == []
    with pytest.raises(UsageError, match="where and overwrite-mode don't apply to streams"):
        TableStreamWriter({**given, "where": "id = 1"}, schema, False)
    with pytest.raises(UsageError, match=r"directories don't support streaming writes .*Iceberg"):
        make_stream_writer({"path": str(tmp_path)}, schema, False)
