"""Spark as the engine of long work where executors are processes of their own, and over Spark Connect.

A process has one Java virtual machine, so each of these runs in one of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JAVA

pytestmark = pytest.mark.spark

CLUSTER = """
import json, os, signal, sys, time
from pathlib import Path
from skipstone.engine.jobs import open_engine
from skipstone.errors import JobError, ReadError

folder = Path(sys.argv[1])

def executor():
    # A Python worker is the child of a daemon, which is the child of the executor.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

def where(_):
    time.sleep(0.3)
    return executor()

def fail_once(n):
    mark = folder / f"failed {n}"
    if n % 3 == 0 and not mark.exists():
        mark.touch()
        raise OSError("this once")
    return n * n

def kill_once(n):
    mark = folder / "killed"
    if n == 2 and not mark.exists():
        mark.write_text(str(executor()))
        os.kill(executor(), signal.SIGKILL)
    time.sleep(0.2)
    return n, executor()

def refuse(n):
    (folder / f"refused {n} {os.urandom(4).hex()}").touch()
    raise ReadError("it broke", path=f"file {n}")

def never(n):
    raise ValueError(f"never {n}")

if __name__ == "__main__":
    found = {}
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with open_engine("spark", master="local-cluster[2,1,1024]", conf=conf) as engine:
        found["owned"] = engine.owned
        # The second executor may need longer to start than a task takes.
        until = time.monotonic() + 60
        while len(pids := set(engine.map(where, range(8)))) < 2 and time.monotonic() < until:
            pass
        found["executors"] = sorted(pids)
        found["retried"] = engine.map(fail_once, range(7))
        told = []
        results = engine.map(kill_once, range(12), on_done=told.append)
        found["numbers"] = [n for n, _ in results]
        found["killed"] = int((folder / "killed").read_text())
        found["after"] = sorted({pid for _, pid in results})
        found["told"] = told
        for name, work in (("refused", refuse), ("failed", never)):
            try:
                engine.map(work, [7])
            except Exception as error:
                found[name] = [type(error).__name__, str(error)]
        found["attempts"] = len(list(folder.glob("refused *")))
    print(json.dumps(found))
"""

CONNECT = """
import functools, json, os, time
from concurrent.futures import ThreadPoolExecutor
from skipstone.engine.jobs import open_engine
from skipstone.errors import ReadError

def partition(payload):
    from pyspark import TaskContext
    return TaskContext.get().partitionId(), len(payload), os.getpid()

def refuse(n):
    if n == 1:
        raise ReadError("it broke", path="file 1", unit="row group " + "x" * 3000, transient=True)

def divide(n):
    return 1 / n

def stop(_):
    raise InterruptedError

if __name__ == "__main__":
    found = {}
    conf = {"spark.connect.grpc.binding.address": "127.0.0.1"}
    with open_engine("spark", remote="local[2]", conf=conf) as engine:
        found["kind"] = type(engine.session).__module__
        before = engine.session.conf.getAll
        results = engine.map(partition, [os.urandom(n * 1000) for n in range(40)])
        found["partitions"] = [number for number, _, _ in results]
        found["sizes"] = [size for _, size, _ in results]
        found["elsewhere"] = os.getpid() not in {pid for _, _, pid in results}
        found["large"] = engine.map(len, [os.urandom(5_000_000)] * 4)
        told = []
        factor = 3
        found["order"] = engine.map(lambda n: time.sleep(0.5) or n * factor, range(16), on_done=told.append)
        found["told"] = told
        for name, work in (("refused", refuse), ("failed", divide)):
            try:
                engine.map(work, range(3))
            except Exception as error:
                found[name] = [type(error).__name__, str(error), getattr(error, "transient", None)]
        found["same"] = before == engine.session.conf.getAll
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(engine.map, functools.partial(max, n), range(4)) for n in range(3)]
            found["side by side"] = [call.result() for call in calls]
        with open_engine(engine.session) as again:
            found["again"] = [again.owned, again.map(len, ["abc"])]
        try:
            engine.map(lambda _: time.sleep(1), range(200), on_done=stop)
        except InterruptedError:
            found["stopped"] = True
        found["alive"] = engine.session.range(5).count()
    print(json.dumps(found))
"""


def run(script: str, folder: Path, *, ends: int = 0) -> dict[str, Any]:
    """What a script that ends so prints as JSON; it is killed with all it started if it takes too long."""
    import pyspark

    # Standalone workers keep their files in Spark's home, so it gets one of links.
    home = folder / "home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    path = folder / "script.py"
    path.write_text(script)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "JDK_JAVA_OPTIONS": JAVA,
    }
    command = [sys.executable, "-W", "error::UserWarning", str(path), str(folder)]
    log = folder / "stderr"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=900)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    assert process.returncode == ends, log.read_text()[-3000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def gone(pid: int) -> bool:
    for _ in range(100):
        with contextlib.suppress(PermissionError):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
        time.sleep(0.1)
    return False


@pytest.mark.slow  # the index's own cluster test runs the same engine
def test_executors_of_their_own(tmp_path: Path) -> None:
    found = run(CLUSTER, tmp_path)
    assert found["owned"]
    assert len(found["executors"]) == 2
    assert found["retried"] == [n * n for n in range(7)]
    # The killed executor's task ran elsewhere, and no other result is missing.
    assert found["numbers"] == list(range(12))
    assert found["killed"] in found["executors"]
    assert set(found["after"]) - {found["killed"]}
    assert found["told"] == sorted(set(found["told"]))
    assert found["told"][-1] == 12
    assert found["refused"] == ["ReadError", "file 7: it broke"]
    assert found["attempts"] == 4
    assert found["failed"][0] == "JobError"
    assert found["failed"][1].endswith("ValueError: never 7")
    assert all(gone(pid) for pid in {*found["executors"], *found["after"]})


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    found = run(CONNECT, tmp_path)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["partitions"] == list(range(40))
    assert found["sizes"] == [n * 1000 for n in range(40)]
    assert found["elsewhere"]
    assert found["large"] == [5_000_000] * 4
    assert found["order"] == [n * 3 for n in range(16)]
    assert found["told"] == sorted(set(found["told"]))
    assert found["told"][-1] == 16
    kind, text, transient = found["refused"]
    assert (kind, transient) == ("ReadError", True)
    assert text == f"file 1, row group {'x' * 3000}: it broke"
    assert found["failed"][0] == "JobError"
    assert "ZeroDivisionError: " in found["failed"][1]
    assert found["same"]
    assert found["side by side"] == [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3]]
    assert found["again"] == [False, [3]]
    # 200 s of work for one core: the script would be killed if it went on.
    assert found["stopped"]
    assert found["alive"] == 5
