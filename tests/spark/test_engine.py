"""Spark as the engine of long work, on the session that all tests share."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from skipstone.engine.jobs import open_engine
from skipstone.engine.spark import SparkEngine
from skipstone.errors import JobError, ReadError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    found = open_engine(spark)
    assert isinstance(found, SparkEngine)
    return found


def test_results_come_in_the_order_of_the_tasks(engine: SparkEngine) -> None:
    told: list[int] = []
    factor = 3
    tasks = [{"n": n, "text": "ü" * n} for n in range(6)]
    results = engine.map(lambda task: (task["n"] * factor, len(task["text"])), tasks, on_done=told.append)
    assert results == [(n * 3, n) for n in range(6)]
    assert told == sorted(set(told))
    assert told[-1] == 6
    assert engine.map(len, ["one"]) == [3]
    assert engine.map(len, []) == []
    assert engine.map(functools.partial(max, 5), range(4, 7)) == [5, 5, 6]


def test_each_task_is_a_partition_and_none_runs_here(engine: SparkEngine) -> None:
    def work(_: bytes) -> tuple[int, int]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return context.partitionId(), os.getpid()

    results = engine.map(work, [os.urandom(1000 * n) for n in range(6)])
    assert [partition for partition, _ in results] == list(range(6))
    assert os.getpid() not in {pid for _, pid in results}


def test_large_payloads(engine: SparkEngine) -> None:
    tasks = [os.urandom(3_000_000) for _ in range(6)]
    assert engine.map(len, tasks) == [3_000_000] * 6


def test_progress_is_told_while_tasks_run(engine: SparkEngine) -> None:
    told: list[tuple[int, float]] = []
    engine.map(lambda _: time.sleep(0.4), range(8), on_done=lambda n: told.append((n, time.monotonic())))
    assert [n for n, _ in told] == sorted({n for n, _ in told})
    assert len(told) > 2
    assert told[-1][0] == 8
    assert told[-1][1] - told[0][1] > 0.5


def test_a_failure_of_our_own_arrives_as_it_was_raised(engine: SparkEngine) -> None:
    def work(n: int) -> None:
        if n == 3:
            raise ReadError("it broke", path="s3://b/ü", unit="row group 3", hint="mend it", transient=True)

    with pytest.raises(ReadError) as caught:
        engine.map(work, range(6))
    assert type(caught.value) is ReadError
    assert str(caught.value) == "s3://b/ü, row group 3: it broke (mend it)"
    assert caught.value.transient
    assert caught.value.__cause__ is None


def test_another_failure_is_told_by_its_last_lines(engine: SparkEngine) -> None:
    def work(n: int) -> float:
        return 1 / (n - 2)

    with pytest.raises(JobError, match=r"ZeroDivisionError: .*division by zero$") as caught:
        engine.map(work, range(6))
    assert "in work" in str(caught.value)
    assert "\tat " not in str(caught.value)
    assert len(str(caught.value).splitlines()) < 12


def test_a_failure_does_not_wait_for_the_other_tasks(engine: SparkEngine) -> None:
    def work(n: int) -> None:
        if n == 0:
            raise ReadError("early")
        time.sleep(0.5)

    started = time.monotonic()
    with pytest.raises(ReadError, match="early"):
        engine.map(work, range(400))
    # All of them would take 100 s on two cores.
    assert time.monotonic() - started < 60


def test_who_follows_the_progress_can_stop_the_job(engine: SparkEngine) -> None:
    class EnoughError(Exception):
        pass

    def stop(_: int) -> None:
        raise EnoughError

    started = time.monotonic()
    with pytest.raises(EnoughError):
        engine.map(lambda _: time.sleep(0.5), range(400), on_done=stop)
    assert time.monotonic() - started < 60
    assert engine.map(len, ["still there"]) == [11]


def test_calls_side_by_side(engine: SparkEngine) -> None:
    outcomes: dict[int, list[int]] = {}

    def call(number: int) -> None:
        outcomes[number] = engine.map(lambda n: n + number, range(4))

    threads = [threading.Thread(target=call, args=(100 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {100 * n: [100 * n + k for k in range(4)] for n in range(3)}


def test_the_running_session_is_used_and_left_as_it_is(spark: SparkSession) -> None:
    from pyspark.sql import SparkSession as Classic

    before = {key: spark.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.master")}
    with open_engine("spark", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}) as engine:
        assert isinstance(engine, SparkEngine)
        assert (engine.session is spark, engine.owned) == (True, False)
        assert engine.map(len, ["abc"]) == [3]
    assert spark.range(3).count() == 3
    assert Classic.getActiveSession() is spark
    assert {key: spark.conf.get(key) for key in before} == before


def test_work_on_another_session_leaves_the_active_one(spark: SparkSession) -> None:
    from pyspark import RDD
    from pyspark.sql import SparkSession as Classic

    frames = RDD.toDF  # a new session takes this over
    other = spark.newSession()
    RDD.toDF = frames
    assert open_engine(other).map(len, ["abc", ""]) == [3, 0]
    assert Classic.getActiveSession() is spark
    assert Classic.builder.getOrCreate() is spark
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert not spark.catalog.listTables()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"master": "local[7]"}, "different spark.master"),
        ({"remote": "sc://127.0.0.1:1"}, "different remote"),
        ({"conf": {"spark.sql.shuffle.partitions": "77"}}, "different spark.sql.shuffle.partitions"),
    ],
)
def test_another_session_than_the_running_one_is_refused(
    spark: SparkSession, options: dict[str, object], what: str
) -> None:
    with pytest.raises(UsageError, match=f"already running with a {what}.*pass it as the engine"):
        open_engine("spark", **options)  # type: ignore[arg-type]
    assert spark.range(3).count() == 3
