"""What is installed, configured and permitted: for the work in general, and for one lake."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from skipstone.errors import SkipstoneError
from skipstone.report import Reported
from skipstone.report.units import ago, count, plural, size

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake

_EXTRAS = {
    "spark": "Spark",
    "iceberg": "Iceberg tables",
    "engines": "DuckDB, DataFusion and Polars",
    "server": "the planning server",
}
_LEAST_JAVA = 17
_REQUIRED = re.compile(r"([\w.-]+).*extra == .(\w+).")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
# Variables, what to set, and a file below the home directory in which each store finds credentials as well.
_STORES = {
    "S3": ("AWS_", "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", ".aws/credentials"),
    "GCS": (
        "GOOGLE_",
        "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login",
        ".config/gcloud/application_default_credentials.json",
    ),
    "Azure": ("AZURE_", "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY", ""),
}
_CREDENTIAL = re.compile(
    "KEY|TOKEN|PROFILE|CREDENTIALS|SERVICE_ACCOUNT|SAS|CLIENT_ID|CONNECTION|SKIP_SIGNATURE"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    status: Literal["ok", "warn", "missing"]
    said: str
    fix: str = ""
    """What to do, usually a command."""
    needed: bool = False
    """Whether the lake can't be used without it."""


@dataclass(frozen=True, slots=True)
class Diagnosis(Reported):
    """Everything that was checked."""

    view: ClassVar[str] = "skipstone.inspection.views:doctor_tree"
    json_also: ClassVar[Mapping[str, str]] = {"ok": "ok"}

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing that is needed is missing."""
        return not any(check.needed and check.status == "missing" for check in self.checks)


def diagnose(name: str = "", open_lake: Callable[[], Lake] | None = None) -> Diagnosis:
    """Check the installation and, if there is one, a lake; no data is read and nothing is written."""
    checks = [_python(), *_extras(), _java(), *_credentials()]
    if open_lake is not None:
        checks += _lake(name, open_lake)
    return Diagnosis(tuple(checks))


# -- installation ------------------------------------------------------------------------------


def _python() -> Check:
    version = _version("skipstone")
    ours = "" if version is None else f", skipstone {version}"
    return Check("Python", "ok", f"{platform.python_version()} ({sys.executable}){ours}")


def _extras() -> Iterator[Check]:
    try:
        required = metadata.requires("skipstone") or []
    except metadata.PackageNotFoundError:
        yield Check("installation", "warn", "runs from a source folder", "pip install --editable .")
        return
    pairs = [match.groups() for one in required if (match := _REQUIRED.match(one))]
    for extra, what in _EXTRAS.items():
        versions = {name: _version(name) for name, mine in pairs if mine == extra}
        absent = [name for name, version in versions.items() if version is None]
        said = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        if not absent:
            yield Check(f"[{extra}]", "ok", f"{what}: {said}")
            continue
        lacks = f"{what}: {', '.join(absent)} not installed"
        yield Check(f"[{extra}]", "missing", lacks, f'pip install "skipstone[{extra}]"')


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "JAVA_HOME is not set"
    fix = "install Java 17 or newer, for example: sudo apt-get install openjdk-17-jre-headless"
    if java is None or not Path(java).exists():
        return Check("Java", "missing", f"not found; {where}", fix)
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("Java", "missing", f"{java} doesn't run: {error}", fix)
    version = _VERSION.search(done.stderr + done.stdout)
    if version is None:
        return Check("Java", "warn", f"{java} doesn't state its version; {where}", fix)
    said = f"{version[1]} ({java}); {where}"
    if int(version[1]) < _LEAST_JAVA:
        return Check("Java", "missing", f"{said}; Spark needs Java {_LEAST_JAVA}", fix)
    return Check("Java", "ok", said)


def _credentials() -> Iterator[Check]:
    """Where credentials come from; their values are never shown."""
    for store, (prefix, fix, file) in _STORES.items():
        found = sorted(name for name, value in os.environ.items() if value and name.startswith(prefix))
        if file and (Path.home() / file).is_file():
            found.append(f"~/{file}")
        if any(map(_CREDENTIAL.search, found)):
            yield Check(f"{store} credentials", "ok", ", ".join(found))
        else:
            others = f"; set: {', '.join(found)}" if found else ""
            yield Check(f"{store} credentials", "missing", f"none in the environment{others}", fix)


# -- one lake ----------------------------------------------------------------------------------


def _lake(name: str, open_lake: Callable[[], Lake]) -> Iterator[Check]:
    try:
        lake = open_lake()
        columns = len(lake.schema)
        files = len(lake.entries)
        total = sum(entry.size for entry in lake.entries)
    except SkipstoneError as error:
        place = f"{error.place}: " if error.place else ""
        yield Check("lake", "missing", f"{place}{error.message}", error.hint or "", needed=True)
        return
    said = f"{lake.uri}: {plural(files, 'file')}, {size(total)}, {plural(columns, 'column')}"
    yield Check("lake", "ok", said)
    yield _index(name, lake)
    yield from _permissions(lake)


def _index(name: str, lake: Lake) -> Check:
    try:
        status = lake.index.status()
    except SkipstoneError as error:
        return Check("index", "warn", f"unreadable: {error.message}", error.hint or "")
    if not status.exists:
        said = f"none in {status.location}; every new process reads all footers"
        return Check("index", "warn", said, f"skipstone index build {name}")
    if status.problems:
        return Check("index", "warn", status.problems[0], f"skipstone index build {name} --rebuild")
    covered = f"{count(status.covered)} of {plural(status.files, 'file')}"
    said = f"{covered}, {size(status.sizes.total)}, written {ago(status.taken - status.written)}"
    if status.unknown:
        return Check("index", "warn", said, f"skipstone index refresh {name}")
    return Check("index", "ok", said)


def _permissions(lake: Lake) -> Iterator[Check]:
    """Whether this user may write files and the index; object stores say so only on a write."""
    for name, uri, fix in (
        ("write to lake", lake.uri, "ask its owner; queries need no write access"),
        ("write index", lake.index.uri, "use --index-root with a folder that you may write to"),
    ):
        path = Path(uri.removeprefix("file://"))
        if not path.is_absolute():
            continue
        # The index may not exist yet: then its nearest folder counts.
        folder = next(one for one in (path, *path.parents) if one.exists())
        if os.access(folder, os.W_OK):
            yield Check(name, "ok", str(folder))
        else:
            yield Check(name, "warn", f"no write access to {folder}", fix)
