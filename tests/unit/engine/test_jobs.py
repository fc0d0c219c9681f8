from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from skipstone.engine import session, spark
from skipstone.engine.jobs import (
    SMALL_BYTES,
    Engine,
    EngineChoice,
    EngineUse,
    LocalEngine,
    choose_engine,
    open_engine,
)
from skipstone.engine.spark import SparkEngine
from skipstone.errors import JobError, ReadError, UsageError


@pytest.mark.parametrize("threads", [None, 1, 2, 8])
def test_results_come_in_the_order_of_the_tasks(threads: int | None) -> None:
    told: list[int] = []

    def work(n: int) -> int:
        time.sleep(0.002 * (n % 3))
        return n * n

    engine: Engine = LocalEngine(threads)
    assert engine.map(work, range(50), on_done=told.append) == [n * n for n in range(50)]
    assert told == list(range(1, 51))
    assert engine.map(work, [], on_done=told.append) == []
    engine.close()


def test_threads_work_side_by_side() -> None:
    together = threading.Barrier(3, timeout=120)
    LocalEngine(3).map(lambda _: together.wait(), range(3))


def test_a_failure_is_raised_as_it_is_and_starts_nothing_more() -> None:
    begun: list[int] = []
    error = ReadError("it broke", path="f")

    def work(n: int) -> None:
        begun.append(n)
        time.sleep(0.01)
        if n == 1:
            raise error

    with pytest.raises(ReadError) as caught:
        LocalEngine(2).map(work, range(100))
    assert caught.value is error
    assert 2 <= len(begun) < 20


def test_engines_by_name() -> None:
    assert open_engine("local") == LocalEngine()
    assert open_engine("local", threads=3) == LocalEngine(3)
    engine = LocalEngine(2)
    assert open_engine(engine) is engine
    assert engine.name == "local"


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("flink", {}, r"unknown engine 'flink' \(use \"auto\", \"spark\", \"local\" or a Spark session\)"),
        (3, {}, "int is not an engine"),
        ("local", {"master": "local[2]"}, r'master= does not apply to engine="local" \(use engine="spark"'),
        ("local", {"remote": "sc://host"}, "remote= does not apply"),
        ("local", {"conf": {}}, "conf= does not apply"),
        ("spark", {"threads": 2}, r'threads= does not apply to engine="spark" \(use engine="local"'),
        ("spark", {"master": "local[2]", "remote": "sc://host"}, "master and remote can't be combined"),
        (LocalEngine(), {"threads": 2}, "threads= does not apply to a running engine"),
        ("local", {"threads": 0}, "threads must be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense(engine, options, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_engine(engine, **options)


def _of(choice: EngineChoice) -> tuple[object, str]:
    return choice.engine, choice.reason


def test_auto_is_chosen_in_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "running_session", lambda: None)
    for name in ("SKIPSTONE_ENGINE", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    assert _of(choose_engine("auto")) == ("spark", "PySpark and Java are installed")
    assert _of(choose_engine("local")) == ("local", "requested")
    assert _of(choose_engine("auto", threads=2)) == ("local", "threads is set")
    assert _of(choose_engine("auto", master="local[2]")) == ("spark", "master is set")
    session._java_version.cache_clear()
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert _of(choose_engine("auto")) == ("local", f"Java 8 in JAVA_HOME ({tmp_path}) is too old")
    java.unlink()
    assert _of(choose_engine("auto")) == ("local", f"Java is not installed in JAVA_HOME ({tmp_path})")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert _of(choose_engine("auto")) == ("local", "PySpark is not installed")
    monkeypatch.setenv("SKIPSTONE_ENGINE", "spark")
    assert _of(choose_engine("auto")) == ("spark", "SKIPSTONE_ENGINE=spark")
    assert _of(choose_engine("local")) == ("local", "requested")
    monkeypatch.setenv("SKIPSTONE_ENGINE", "loacl")
    with pytest.raises(UsageError, match=r"unknown engine 'loacl' in SKIPSTONE_ENGINE \(did you mean local"):
        choose_engine("auto")
    session._java_version.cache_clear()


SMALL = (LocalEngine(), "input is below 64 MB; use engine spark to run it on Spark")


def test_auto_needs_no_new_session_for_a_small_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "running_session", lambda: None)
    monkeypatch.setattr(session, "missing_for_spark", lambda: "")
    monkeypatch.delenv("SKIPSTONE_ENGINE", raising=False)
    auto = choose_engine("auto")
    assert _of(auto.for_input(0)) == _of(auto.for_input(SMALL_BYTES - 1)) == SMALL
    assert _of(auto.for_input(SMALL_BYTES)) == ("spark", "PySpark and Java are installed")
    # Whatever asks for Spark has it.
    assert _of(choose_engine("spark").for_input(0)) == ("spark", "requested")
    assert _of(choose_engine("auto", conf={}).for_input(0)) == ("spark", "conf is set")
    monkeypatch.setenv("SKIPSTONE_ENGINE", "spark")
    assert _of(choose_engine("auto").for_input(0)) == ("spark", "SKIPSTONE_ENGINE=spark")
    monkeypatch.setenv("SKIPSTONE_ENGINE", "auto")
    assert _of(choose_engine("auto").for_input(0)) == SMALL
    monkeypatch.setattr(session, "running_session", object)
    assert _of(choose_engine("auto").for_input(0)) == ("spark", "a Spark session is running")


def test_the_other_engine_is_estimated_for_small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "running_session", lambda: None)
    use = EngineUse("local", "PySpark is not installed")
    assert str(use) == "ran on local threads (PySpark is not installed)"
    assert str(use.compared(files=10)) == f"{use}; Spark would take about 7 s"
    assert str(EngineUse("spark", "requested").compared(bytes=1.2e8)).endswith(
        "ran on Spark (requested); local threads would take about 2 s"
    )
    assert use.compared(bytes=1e12) == use
    assert EngineUse("here", "requested").compared(files=1).other_seconds is None


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(
        UsageError, match=r"not installed \(run pip install 'skipstone\[spark\]', or .*\"local\""
    ):
        open_engine("spark")


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    for module in (session, spark):
        monkeypatch.setattr(module, "running_session", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(
        UsageError, match=rf"Java 17 or newer; Java is not installed .*{home or 'machine'}.*engine=\"local\""
    ):
        open_engine("spark")


def test_the_local_engine_loads_no_spark() -> None:
    code = "import sys; from skipstone.engine.jobs import open_engine; open_engine('local').map(str, [1]); "
    code += "print([name for name in sys.modules if name.startswith(('pyspark', 'pyarrow'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_owned_session_is_stopped_and_no_other() -> None:
    class Session:
        stopped = 0

        def stop(self) -> None:
            self.stopped += 1

    running = Session()
    with SparkEngine(running, owned=False):  # type: ignore[arg-type]
        pass
    assert running.stopped == 0
    with SparkEngine(running, owned=True) as engine:  # type: ignore[arg-type]
        assert engine.name == "spark"
        assert engine.map(str, []) == []
    assert running.stopped == 1


def test_what_is_told_of_a_failure() -> None:
    text = (
        "Job aborted due to stage failure: Task 1 in stage 2.0 failed 1 times, most recent failure: "
        'Traceback (most recent call last):\n  File "/x/worker.py", line 1, in main\n    process()\n'
        "ValueError: no\n\n\tat org.apache.spark.api.python.BasePythonRunner\n\tat java.lang.Thread\n"
    )
    error = spark._failure(RuntimeError(text))
    assert isinstance(error, JobError)
    assert str(error) == (
        'Spark job failed: \n  File "/x/worker.py", line 1, in main\n    process()\nValueError: no'
    )
    lost = spark._failure(RuntimeError("Job aborted: ExecutorLostFailure\n\tat x"))
    assert str(lost) == "Spark job failed: Job aborted: ExecutorLostFailure"
    missing = spark._failure(RuntimeError("Traceback\nModuleNotFoundError: No module named 'skipstone'"))
    assert "install skipstone on the executors" in str(missing)


def test_a_failure_of_our_own_comes_out_of_the_text() -> None:
    from pyspark import cloudpickle

    original = ReadError("it broke", path="s3://b/f", unit="row group 3", transient=True)

    def work(_: int) -> None:
        raise original

    with pytest.raises(Exception, match="it broke") as caught:
        spark._attempt(cloudpickle.dumps(work))(cloudpickle.dumps(1))
    text = f"org.apache.SparkException: Job aborted\n  Traceback\n{caught.value}\n\tat x"
    error = spark._failure(RuntimeError(text))
    assert type(error) is ReadError
    assert (str(error), error.transient) == ("s3://b/f, row group 3: it broke", True)


SPARK_ERRORS = """
An error occurred while calling o90.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.csv.
\tat org.apache.spark.x
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD] Malformed records: [null,3].  SQLSTATE: 22023
Caused by: java.lang.NumberFormatException: For input string: "x"
=> /a.csv: Spark job failed: Malformed records: [null,3]; For input string: "x" \
(check that the file is complete and of the format that it is read as)

x.Exception: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///b. File is gone.
Caused by: java.io.FileNotFoundException: File file:/b does not exist
=> /b: Spark job failed: File is gone (create the data frame again, so that it lists the files again)

Exception: [FAILED_READ_FILE.X] Encountered error while reading file s3a://in/a. Types of column [id].
Caused by: org.apache.NotSupportedException: column: [id], physicalType: BINARY
=> s3a://in/a, column id: Spark job failed: Types of column [id]

SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file /z.
Caused by: java.io.IOException: can not read class org.apache.parquet.format.PageHeader: type: 15
Caused by: java.io.IOException: type: 15
=> /z: Spark job failed: type: 15 (check that the file is complete and of the format that it is read as)

Job aborted due to stage failure: Lost task (TID 1) (host): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream
=> Spark job failed: No space left on device \
(free disk space, or set spark.local.dir to a directory on a larger disk)

Job aborted due to stage failure: Lost task (TID 1) (host driver): java.lang.OutOfMemoryError: Java heap space
=> Spark job failed: Java heap space \
(start Spark with more memory: conf={"spark.driver.memory": "4g"}, or spark.executor.memory)

[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` instead. If necessary set "x.y". SQLSTATE: 22012
=> Spark job failed: Division by zero (use `try_divide` instead)

[UNRESOLVED_COLUMN] Name `nam` cannot be resolved. Did you mean one of these? [`name`]. SQLSTATE: 42703;
=> Spark job failed: Name `nam` cannot be resolved. Did you mean one of these? [`name`]
"""


@pytest.mark.parametrize("case", SPARK_ERRORS.strip().split("\n\n"))
def test_causes_of_spark_errors(case: str) -> None:
    text, shown = case.split("\n=> ")
    assert str(spark.spark_error(text)) == shown
