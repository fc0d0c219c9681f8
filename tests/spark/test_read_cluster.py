"""Every way into Spark where executors are processes of their own, some of which die, and over Connect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.test_cluster_engine import run

pytestmark = pytest.mark.spark

COMMON = """
import json, os, signal, sys, time
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
import skipstone as sk

folder = Path(sys.argv[1])
root = folder / "lake"
FILES, ROWS = 12, 500

def write():
    for n in range(FILES):
        ids = range(n * ROWS, (n + 1) * ROWS)
        table = pa.table({
            "id": ids,
            "f": [float("nan") if i % 9 == 0 else i / 4 for i in ids],
            "s": [None if i % 8 == 0 else f"name {i % 12}" for i in ids],
            "st": [{"x": i % 5, "l": [i, None]} for i in ids],
            "t": pa.array([i * 3_600_000_000 for i in ids], pa.timestamp("us", "UTC")),
        })
        (root / f"p={n % 3}").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / f"p={n % 3}" / f"{n}.parquet", row_group_size=100)

TEXTS = ["id between 700 and 4100", "f > 1200", "s = 'name 3' and p = 1", "st.x = 3", "t < '1970-01-05'"]
TEXTS += ["id < 0"]
ROUTES = ("driver", "slices", "reader", "auto")

def same(session):
    # Each way gives the rows that the driver reads.
    from skipstone.scan import parts
    parts._LEAST_BYTES = 1  # a task for each core
    lake, wrong, asked = sk.open(root), [], 0
    for text in TEXTS:
        wanted = sorted(lake.scan(text, columns=["id"]).to_arrow()["id"].to_pylist())
        frames = {route: lake.scan(text).to_spark(session, route=route) for route in ROUTES}
        load = session.read.format("skipstone")
        frames["pushed"] = load.option("pushdown", "true").load(str(root)).where(text)
        frames["option"] = session.read.format("skipstone").option("where", text).load(str(root))
        schemas = {str(frame.schema) for frame in frames.values()}
        for way, frame in frames.items():
            asked += 1
            found = sorted(frame.select("id").toArrow()["id"].to_pylist())
            if found != wanted or len(schemas) > 1:
                wrong.append([way, text, len(found), len(wanted), sorted(schemas)])
        if lake.scan(text).count(engine=session) != len(wanted):
            wrong.append(["count", text])
    asked_for = (sk.count(), sk.sum("f"), sk.sum("id"), sk.quantile("id", 0.5), sk.max("s"))
    sets = {"within": range(0, FILES * ROWS, 3), "id_column": "id"}
    for text in TEXTS[:2]:
        ways = [lake.scan(text).aggregate(*asked_for, **sets, engine=e) for e in (None, session)]
        if len({str(way.to_pylist()) for way in ways}) > 1:
            wrong.append(["aggregate", text, *map(str, ways)])
    return {"wrong": wrong, "asked": asked}
"""

CONNECT = (
    COMMON
    + """
if __name__ == "__main__":
    write()
    session = sk.spark(remote="local[2]", conf={"spark.connect.grpc.binding.address": "127.0.0.1"})
    before = session.conf.getAll
    found = {"kind": type(session).__module__, **same(session)}
    lake = sk.open(root)
    scan = lake.scan("id > 100", columns=["s", "st.x"], order_by=["st.x desc", "id"], limit=30)
    rows = [scan.to_spark(session, route=route).toArrow().to_pylist() for route in ROUTES[:3]]
    found["ordered"] = rows[0] == rows[1] == rows[2] and len(rows[0]) == 30
    bare = lake.scan("id > 100", columns=[])
    counts = [bare.to_spark(session, route=route).count() for route in ROUTES[:3]]
    found["counts"] = counts
    found["route"] = json.loads(lake.scan("id = 3").explain(format="json", session=session))["spark"]["route"]
    found["conf"] = before == session.conf.getAll
    session.stop()
    print(json.dumps(found))
"""
)

CLUSTER = (
    COMMON
    + """
def executor():
    # A Python worker is the child of a daemon, which is the child of the executor.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

def once(name):
    try:
        (folder / name).open("x").write(str(executor()))
    except FileExistsError:
        return False
    return True

def poisoned(read_part, what):
    # What a task does, with one accident: sent by value, so that it happens on the executors.
    def read(plan, target):
        first, whose = True, once(what)
        for batch in read_part(plan, target):
            yield batch
            if whose and first:
                if what == "kill executor":
                    os.kill(executor(), signal.SIGKILL)
                elif what == "kill worker":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif what == "slow":
                    time.sleep(15)
                else:
                    raise OSError("this once")
            first = False
    return read

def accident(lake, session, what):
    from skipstone.spark import frames
    from skipstone.scan import parts
    parts._OPEN_BYTES = 0
    parts._LEAST_BYTES, parts.PART_BYTES = 1, 1
    old, made = frames.read_part, frames._reader
    read = poisoned(old, what)

    def reader(plan_bytes, target):
        def run(batches):
            import pickle
            from dataclasses import replace
            common = pickle.loads(plan_bytes)
            for batch in batches:
                for payload in batch.column("payload").to_pylist():
                    yield from read(replace(common, tasks=pickle.loads(payload)), target)
        return run

    frames._reader = reader
    try:
        frame = lake.scan("id >= 250", batch_rows=50).to_spark(session, route="slices")
        ids = frame.select("id").toArrow()["id"].to_pylist()
    finally:
        frames._reader = made
    return [len(ids), sorted(ids) == list(range(250, FILES * ROWS)), (folder / what).exists()]

def suits(session):
    # What a session that is started here is like.
    found = {}
    names = ("arrow.pyspark.enabled", "arrow.maxRecordsPerBatch")
    found["arrow"] = [session.conf.get(f"spark.sql.execution.{name}") for name in names]
    found["pushing"] = session.conf.get("spark.sql.python.filterPushdown.enabled")
    found["zone"] = session.conf.get("spark.sql.session.timeZone")
    found["memory"] = session.conf.get("spark.driver.memory")
    found["heap"] = session.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
    found["same"] = sk.spark() is session
    try:
        sk.spark("local[7]")
    except Exception as error:
        found["other"] = str(error)
    # Nobody has registered it: the package pyspark_skipstone is found by its name.
    frame = session.read.format("skipstone").option("where", "id >= 5990").load(str(root))
    found["rows"] = frame.where("id <> 5995").count()
    frame = session.read.format("skipstone").option("pushdown", "true").load(str(root))
    found["pushed"] = "Filter " not in frame.where("id = 95")._jdf.queryExecution().executedPlan().toString()
    return found

if __name__ == "__main__":
    early = "pyspark" in sys.modules
    write()
    conf = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.speculation": str("slow" in ACCIDENTS).lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.task.maxFailures": "6",
    }
    session = sk.spark("local-cluster[2,1,1024]", conf=conf)
    found = {"early": early, **suits(session)} if SESSION else {}
    for what in ACCIDENTS:
        found[what] = accident(sk.open(root), session, what)
    if WAYS:
        found.update(same(session))
    session.stop()
    print(json.dumps(found))
"""
)


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    found = run(CONNECT, tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["wrong"] == []
    assert found["asked"] == 36
    assert found["ordered"]
    assert len({*found["counts"]}) == 1
    assert found["route"] == "driver"
    assert found["conf"]


@pytest.mark.slow
def test_every_way_on_a_cluster(tmp_path: Path) -> None:
    found = run(f"SESSION, ACCIDENTS, WAYS = False, (), True\n{CLUSTER}", tmp_path)
    assert found["wrong"] == []
    assert found["asked"] == 36


@pytest.mark.slow
def test_accidents_neither_lose_rows_nor_double_them(tmp_path: Path) -> None:
    """An executor and a worker are killed, a task fails once, one is slow and so tried elsewhere as well."""
    what = ("kill executor", "kill worker", "fail", "slow")
    found = run(f"SESSION, ACCIDENTS, WAYS = False, {what!r}, False\n{CLUSTER}", tmp_path)
    assert found == {name: [5750, True, True] for name in what}


def test_a_session_of_our_own_and_a_killed_executor(tmp_path: Path) -> None:
    found = run(f"SESSION, ACCIDENTS, WAYS = True, ('kill executor',), False\n{CLUSTER}", tmp_path)
    assert found["kill executor"] == [5750, True, True]
    assert not found["early"]
    assert found["arrow"] == ["true", "32768"]
    assert found["pushing"] == "true"
    assert found["zone"] == "UTC"
    assert found["memory"].endswith("g")
    assert found["heap"] > 0.8 * int(found["memory"][:-1]) * 2**30
    assert found["same"]
    assert "with a different spark.master" in found["other"]
    assert found["rows"] == 9
    assert found["pushed"]
