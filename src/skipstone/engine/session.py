"""Spark sessions: reuse the running one, or start one with settings for this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import JobError, UsageError, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Lines of a traceback to report.
_LINES: Final = 8
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: ([^\n]+)|(?:Exception|Error): (\[[A-Z0-9_.]+\] [^\n]+)")
_STATE: Final = re.compile(r"\s+SQLSTATE: \w+\s*$")
_CAUSES: Final = 3


def spark_session(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session if it has the requested settings, or start one if none is running.

    Without a ``master`` Spark uses the one it was submitted to or configured for, else ``local[*]``.
    """
    if master is not None and remote is not None:
        raise UsageError("master and remote can't be combined", hint="pass one of them")
    require_pyspark()
    running = running_session()
    if running is None:
        return _start(master, remote, dict(conf or {}))
    settings = {**({"spark.master": master} if master is not None else {}), **(conf or {})}
    other = [key for key, value in settings.items() if running.conf.get(key, None) != value]
    if remote is not None or other:
        what = "remote" if remote is not None else ", ".join(other)
        hint = "stop that session first, or pass it as the engine"
        raise UsageError(f"a Spark session is already running with a different {what}", hint=hint)
    return running


def _start(master: str | None, remote: str | None, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    remote = remote or os.environ.get("SPARK_REMOTE")
    here = remote is None or remote.startswith("local")
    if here:
        _require_java()
    # A remote server has its own settings, and would warn about those it can't change.
    settings = {**(_jvm_settings(master or remote) if here else {}), **_QUERIES, **conf}
    # Executors must run the driver's Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("skipstone")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    try:
        with warnings.catch_warnings():
            if here:
                # A Connect server started here already has all settings, and warns about static ones.
                warnings.filterwarnings("ignore", ".*CANNOT_MODIFY_")
            return builder.getOrCreate()
    except Exception as error:
        text = str(error)
        hint = memory_hint(text) or (
            _JAVA if "JAVA_GATEWAY" in text else 'use engine="local", which needs no Spark'
        )
        raise JobError(f"Spark can't be started: {reason(str(error))}", hint=hint) from error


_QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.python.filterPushdown.enabled": "true",
}
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_MEMORY_SHARE = 0.4
_GIB = 2**30
_JAVA = 'install Java 17 or newer, such as the package openjdk-17-jre-headless, or use engine="local"'
_NO_MEMORY = re.compile(
    r"OutOfMemoryError|[Ss]ystem memory \d+ must be|Executor memory \d+ must be|heap size"
)


def memory_hint(text: str) -> str | None:
    """The next step if an error of Spark says that it has too little memory."""
    if _NO_MEMORY.search(text) is None:
        return None
    return 'start Spark with more memory: conf={"spark.driver.memory": "4g"}, or spark.executor.memory'


def _jvm_settings(master: str | None) -> dict[str, str]:
    """Settings of a JVM started here; memory and parallelism only if it also runs the tasks."""
    if master is not None and not master.startswith("local"):
        return _quiet()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        **_quiet(),
        "spark.driver.memory": f"{max(int(memory * _MEMORY_SHARE / _GIB), 1)}g",
        "spark.sql.shuffle.partitions": str(4 * cores),
        # Listing local files takes less time than starting a job for it.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def _quiet() -> dict[str, str]:
    """Settings without UI and progress bars that log errors only, unless Spark has its own log settings."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))
    if folder and Path(folder).is_dir():
        return {**_QUIET, "spark.log.level": "ERROR"}
    # A log level set in the session would apply too late, and be logged itself.
    log = Path(__file__).with_name("log4j2.properties")
    return {**_QUIET, "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()}"}


def running_session() -> SparkSession | None:
    """Return the active session, if there is one."""
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def is_connect(session: SparkSession) -> bool:
    """Whether a session uses Spark Connect."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(session).__mro__)


def parallelism_of(session: SparkSession) -> int:
    """Number of tasks that the session's cluster runs at once; an estimate for Spark Connect."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    for key in ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism"):
        # Spark rejects a default of another type than the setting's.
        value = session.conf.get(key, None) or ""
        if value.isdigit():
            return int(value)
    local = re.fullmatch(r"local\[(\d+).*", session.conf.get("spark.master", None) or "")
    return int(local[1]) if local else os.cpu_count() or 1


def require_pyspark() -> None:
    """Raise an error if PySpark is not installed."""
    require("pyspark", instead='use engine="local"')


def _require_java() -> None:
    missing = _missing_java()
    if missing:
        raise UsageError(f"Spark needs Java {_LEAST_JAVA} or newer; {missing}", hint=_JAVA)


def missing_for_spark() -> str:
    """Return what a Spark session needs and this machine lacks; "" if one is running or can be started."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed"
    remote = os.environ.get("SPARK_REMOTE", "local")
    here = remote.startswith("local") and running_session() is None
    return _missing_java() if here else ""


def _missing_java() -> str:
    # Under spark-submit Java is already running.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return ""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    version = None if path is None else _java_version(os.path.realpath(path))
    where = f"in JAVA_HOME ({home})" if home else "on this machine"
    if version is None:
        return f"Java is not installed {where}"
    return f"Java {version} {where} is too old" if version < _LEAST_JAVA else ""


_LEAST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version[ ="]+(?:1\.)?(\d+)', re.IGNORECASE)


@cache
def _java_version(path: str) -> int | None:
    """Return the major version of a Java executable, from the file that describes its installation."""
    try:
        about = Path(path).parents[1].joinpath("release").read_text(encoding="utf-8")
    except OSError:
        try:
            ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            # A placeholder that only asks to install Java.
            return None
        about = ran.stderr + ran.stdout
    version = _JAVA_VERSION.search(about)
    return None if version is None else int(version[1])


def reason(text: str) -> str:
    """Return the last lines of the Python traceback in an error message, or the causes in a Java trace."""
    _, separator, traceback = text.rpartition("Traceback (most recent call last):\n")
    if not separator:
        # Outer causes name the file, inner ones the problem.
        causes = dict.fromkeys(_STATE.sub("", cause or first) for cause, first in _CAUSE.findall(text))
        if causes:
            return "\n".join([*causes][:_CAUSES])
        return text.strip().partition("\n")[0] or "unknown error"
    lines = re.split(r"\n\s*\n|\n\tat ", traceback, maxsplit=1)[0].rstrip().splitlines()
    return "\n".join(["..." if len(lines) > _LINES else "", *lines[-_LINES:]])
