"""Exit codes, error lines, and the program as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skipstone
from skipstone.cli.output import Exit, error_line, exit_code
from skipstone.errors import CorruptFileError, NotParquetError, ParseError, RowSetError, SkipstoneError

Run = Callable[..., Any]


@pytest.mark.parametrize("command", [("inspect",), ("prune", "--where", "id = 1")])
class TestFiles:
    def test_missing(self, run: Run, command: tuple[str, ...], tmp_path: Path) -> None:
        done = run(*command, tmp_path / "no.parquet")
        assert done.exit_code == Exit.FILE
        assert done.stdout == ""
        assert done.stderr == f"error: {tmp_path}/no.parquet: no such file\n"

    def test_directory(self, run: Run, command: tuple[str, ...], tmp_path: Path) -> None:
        done = run(*command, tmp_path)
        assert done.exit_code == Exit.FILE
        said = {
            "inspect": "directory contains no files",
            "prune": "path is a directory, not a Parquet file; hint: pass one of its files",
        }
        assert done.stderr.startswith(f"error: {tmp_path}: {said[command[0]]}")

    def test_not_parquet(self, run: Run, command: tuple[str, ...], tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("these are only words")
        done = run(*command, path)
        assert done.exit_code == Exit.FILE
        assert "instead of b'PAR1'; hint: " in done.stderr
        assert done.stderr.count("\n") == 1

    def test_unknown_store(self, run: Run, command: tuple[str, ...]) -> None:
        assert run(*command, "gopher://host/f.parquet").exit_code == Exit.FILE

    def test_json_asked_for_changes_no_error(self, run: Run, command: tuple[str, ...]) -> None:
        done = run(*command, "/no/such/file", "--format", "json")
        assert done.exit_code == Exit.FILE
        assert done.stdout == ""

    def test_storage_option_without_value(self, run: Run, command: tuple[str, ...]) -> None:
        done = run(*command, "s3://b/k", "--storage-option", "hunter2")
        assert done.exit_code == Exit.USAGE
        assert "KEY=VALUE" in done.stderr
        assert "hunter2" not in done.output


@pytest.mark.parametrize(
    "where", ["id =", "id = 1 2", "SELECT", "nothing = 1", "id = 'x'", "id = 1)", "id = 1; DROP TABLE x"]
)
def test_wrong_predicates(run: Run, events: Path, where: str) -> None:
    done = run("prune", events, "--where", where)
    assert done.exit_code == Exit.PREDICATE
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_unknown_dialect_zone_and_column(run: Run, events: Path) -> None:
    assert run("prune", events, "--where", "id = 1", "--dialect", "klingon").exit_code == Exit.PREDICATE
    assert run("prune", events, "--where", "id = 1", "--tz", "Mars/Base").exit_code == Exit.PREDICATE
    done = run("inspect", events, "--columns", "id,mixd")
    assert done.exit_code == Exit.PREDICATE
    assert done.stderr.endswith("unknown column 'mixd'; hint: did you mean mixed?\n")
    done = run("inspect", events, "--pages", "place")
    assert done.exit_code == Exit.PREDICATE
    assert "use one of place.x, place.tags.list.element" in done.stderr


def test_usage(run: Run, events: Path, words: Callable[[str], str]) -> None:
    assert run("prune", events).exit_code == Exit.USAGE
    assert run("inspect", events, "--format", "xml").exit_code == Exit.USAGE
    assert run("juggle").exit_code == Exit.USAGE
    help_text = words(run("--help").stdout)
    for code in (
        "0 success",
        "1 unexpected",
        "2 invalid usage",
        "3 invalid predicate",
        "4 unreadable file",
        "5 other error",
        "6 verify found a difference",
        "130 interrupted",
    ):
        assert code in help_text


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"skipstone {skipstone.__version__}\n"


def test_codes_of_errors() -> None:
    assert exit_code(ParseError("x")) is Exit.PREDICATE
    assert exit_code(NotParquetError("x")) is Exit.FILE
    assert exit_code(RowSetError("x")) is Exit.OTHER
    assert exit_code(SkipstoneError("x")) is Exit.OTHER


def test_error_line_is_one_line() -> None:
    error = CorruptFileError("two\nlines", path="f\x1b", unit="row group 3", column="c", hint="try\n again")
    assert error_line(error) == r"error: f\x1b, row group 3, column c: two lines; hint: try again"
    long = error_line(CorruptFileError("x" * 10**6, path="p" * 10**6, column="c\x9b" * 10**6))
    assert len(long) < 10_000
    assert long.isprintable()


def process(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "skipstone.cli", *args],
        text=True,
        check=False,
        timeout=600,
        encoding="utf-8",
        env=environment | options.pop("env", {}),
        **options,
    )


def test_as_a_process(events: Path) -> None:
    done = process("prune", str(events), "--where", "id = 7", "--format", "json", capture_output=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"] == [[0, 25]]
    assert done.stderr == ""
    done = process("prune", "nowhere.parquet", "--where", "id = 7", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "error: nowhere.parquet: no such file\n")


def test_a_reader_that_went_away_is_no_error(events: Path) -> None:
    # The pipe has no reader from the start, so the first write fails.
    read, write = os.pipe()
    os.close(read)
    try:
        done = process("inspect", str(events), stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_output_that_can_not_be_written(events: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = process("inspect", str(events), stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "error: can't write the output: No space left on device\n")


def test_text_survives_a_narrow_encoding(events: Path) -> None:
    done = process(
        "prune", str(events), "--where", "name = 'ü'", capture_output=True, env={"PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = process(
        "prune", str(events), "--where", "name = 'ü'", "--format", "json",
        capture_output=True, env={"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert json.loads(done.stdout)["predicate"] == "name = 'ü'"


def test_help_needs_none_of_the_heavy_packages() -> None:
    heavy = "{'pyarrow', 'numpy', 'sqlglot', 'obstore'} & set(sys.modules)"
    load = "[app.import_module(f'skipstone.cli.{name}') for name in main.COMMANDS.values()]"
    code = f"import sys, importlib as app; from skipstone.cli import main; {load}; print({heavy})"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, timeout=600
    )
    assert done.stdout == "set()\n"


def test_a_command_loads_its_own_modules_only(events: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from skipstone.cli.main import app\n"
        f"print(CliRunner().invoke(app, ['count', {str(events)!r}, '--where', 'id < 7']).stdout.strip())\n"
        "loaded = {name.split('.', 2)[2] for name in sys.modules if name.startswith('skipstone.cli.')}\n"
        "drawn = {f'skipstone.report.{name}' for name in ('text', 'html', 'node', 'explain')}\n"
        "print(sorted(loaded), drawn & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, timeout=600
    )
    assert done.stdout == "7\n['main', 'options', 'output', 'progress', 'query'] set()\n"


@pytest.mark.parametrize("spark", [False, True])
def test_a_process_of_its_own_does_without_pandas(spark: bool, events: Path) -> None:
    pytest.importorskip("pandas")
    code = (
        "import sys; from skipstone.cli import main, options\n"
        "scan = options.ConditionOptions.scan\n"
        f"options.ConditionOptions.scan = lambda *a, **more: scan(*a, **{{**more, 'spark': {spark}}})\n"
        f"sys.argv = ['skipstone', 'count', {str(events)!r}, '--where', \"name = 'n001'\"]\n"
        "try: main.run()\n"
        "except SystemExit: print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, timeout=600
    )
    assert done.stdout == f"1\n{spark}\n"
