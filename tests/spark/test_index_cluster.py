"""Indexes built where executors are processes of their own, some of which die, and over Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import skipstone as sk
from skipstone.index import build
from tests.spark.test_cluster_engine import gone, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMMON = """
import json, os, signal, sys, time
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
import skipstone as sk
from skipstone.engine.jobs import open_engine
from skipstone.index import build

folder = Path(sys.argv[1])
root = folder / "lake"
build._GROUP_FILES = 2

def write(numbers):
    for n in numbers:
        (root / f"day={n % 3}").mkdir(parents=True, exist_ok=True)
        ids = list(range(100 * n, 100 * n + 100))
        table = pa.table({"id": ids, "name": [f"name {id * 7919 % 3000}" for id in ids]})
        pq.write_table(table, root / f"day={n % 3}" / f"{n:03}.parquet")

def checked(lake, report):
    wheres = ("id = 1234", "id between 300 and 555", "name = 'name 77'", "day = 1 and id > 2000")
    trace = lake.scan("id = 1234").plan().trace
    return {
        "right": all(lake.scan(w).count() == lake.scan(w, index=False).count() > 0 for w in wheres),
        "files": len(lake.entries),
        "covered": trace.index.covered,
        "kept": trace.rows_kept,
        "problems": trace.index.problems,
        "report": [report.indexed, report.already_indexed, report.dropped],
    }
"""

CLUSTER = (
    COMMON
    + """
def executor():
    # A Python worker is the child of a daemon, which is the child of the executor.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

def where(_):
    time.sleep(0.3)
    return executor()

def watched(group):
    from skipstone.index.build import index_group
    (folder / "ran" / f"{executor()} {os.urandom(4).hex()}").touch()
    time.sleep(0.2)
    return index_group(group)

def killing(group):
    from skipstone.index.build import index_group
    try:
        (folder / "killed").open("x").write(str(executor()))
    except FileExistsError:
        pass
    else:
        os.kill(executor(), signal.SIGKILL)
        time.sleep(10)
    return index_group(group)

if __name__ == "__main__":
    found = {}
    (folder / "ran").mkdir()
    write(range(24))
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with open_engine("spark", master="local-cluster[2,1,1024]", conf=conf) as engine:
        # The second executor may need longer to start than a task takes.
        until = time.monotonic() + 120
        while len(pids := set(engine.map(where, range(8)))) < 2 and time.monotonic() < until:
            pass
        lake = sk.open(root)
        build.index_group = watched
        told = []
        report = lake.index.build(engine=engine, blooms=["name"], progress=lambda *step: told.append(step))
        found["build"] = checked(lake, report)
        found["told"] = told
        found["executors"] = sorted({int(path.name.split()[0]) for path in (folder / "ran").iterdir()})
        write(range(24, 30))
        (root / "day=0" / "003.parquet").unlink()
        found["refresh"] = checked(lake, lake.index.refresh(engine=engine))
        build.index_group = killing
        other = sk.open(root, index_root=folder / "other")
        # Given by its session, as a notebook does.
        found["other"] = checked(other, other.index.build(engine=engine.session, blooms=["name"]))
        found["killed"] = int((folder / "killed").read_text())
        found["pids"] = sorted(pids | set(engine.map(where, range(4))))
    print(json.dumps(found))
"""
)

DRIVER = (
    COMMON
    + """
def slow(group):
    from skipstone.index.build import index_group
    if len(list((folder / "index").glob("segment-*"))) >= 3:
        time.sleep(60)
    return index_group(group)

def die(done, total):
    (folder / "told").write_text(f"{done} {total}")
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    write(range(24))
    build.index_group = slow
    with open_engine("spark", master="local[2]") as engine:
        java = engine.session._jvm.java.lang.ProcessHandle.current().pid()
        print(json.dumps({"java": java}), flush=True)
        sk.open(root, index_root=folder / "index").index.build(engine=engine, progress=die)
"""
)

CONNECT = (
    COMMON
    + """
if __name__ == "__main__":
    found = {}
    write(range(12))
    conf = {"spark.connect.grpc.binding.address": "127.0.0.1"}
    with open_engine("spark", remote="local[2]", conf=conf) as engine:
        session = engine.session
        found["kind"] = type(session).__module__
        lake = sk.open(root)
        told = []
        report = lake.index.build(
            engine=session, values=True, blooms=["name"], progress=lambda *step: told.append(step)
        )
        write(range(12, 24))
        found["told"] = told
        # The session that is running is found, and left running.
        found["refresh"] = checked(lake, lake.index.refresh(engine="spark"))
        found["alive"] = session.range(5).count()
    print(json.dumps(found))
"""
)


def debris(root: Path) -> set[str]:
    """What lies in an index and is neither a manifest nor a segment."""
    return {path.name for path in root.iterdir() if not path.name.startswith(("manifest-", "segment-"))}


@pytest.mark.slow
def test_executors_of_their_own_one_of_which_is_killed(tmp_path: Path) -> None:
    found = run(CLUSTER, tmp_path)
    whole = {"right": True, "kept": 100, "problems": []}
    assert found["build"] == {**whole, "files": 24, "covered": 24, "report": [24, 0, 0]}
    assert found["told"] == sorted(found["told"])
    assert found["told"][-1] == [24, 24]
    assert len(found["executors"]) == 2
    assert found["refresh"] == {**whole, "files": 29, "covered": 29, "report": [6, 23, 1]}
    assert debris(tmp_path / ".skipstone" / "lake") == set()
    # The killed executor's group was done by another one.
    assert found["other"] == {**whole, "files": 29, "covered": 29, "report": [29, 0, 0]}
    assert found["killed"] in found["pids"]
    assert debris(tmp_path / "other") == set()
    assert all(gone(pid) for pid in found["pids"])


@pytest.mark.slow
def test_a_job_whose_driver_is_killed_is_resumed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(DRIVER, tmp_path, ends=-9)
    assert gone(found["java"])
    assert (tmp_path / "told").read_text() in [f"{2 * n} 24" for n in range(1, 5)]
    root = tmp_path / "index"
    before = {path: path.stat().st_mtime_ns for path in root.glob("segment-*.skip")}
    assert 1 <= len(before) <= 5
    assert not list(root.glob("manifest-*"))
    lake = sk.open(tmp_path / "lake", index_root=root)
    assert lake.index.coverage is None
    monkeypatch.setattr(build, "MANY_SEGMENTS", 100)
    report = lake.index.build(engine=spark)
    assert (report.adopted, report.indexed, report.already_indexed) == (
        2 * len(before),
        24 - 2 * len(before),
        0,
    )
    assert {path: path.stat().st_mtime_ns for path in before} == before
    trace = lake.scan("id = 1234").plan().trace
    assert trace.index is not None
    assert (trace.index.covered, trace.rows_kept) == (24, 100)
    assert lake.scan("id between 300 and 555").count() == 256
    assert debris(root) == set()


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    found = run(CONNECT, tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["told"] == sorted(found["told"])
    assert found["told"][-1] == [12, 12]
    whole = {"right": True, "kept": 100, "problems": []}
    assert found["refresh"] == {**whole, "files": 24, "covered": 24, "report": [12, 12, 0]}
    assert found["alive"] == 5
    assert debris(tmp_path / ".skipstone" / "lake") == set()
