"""Looking at a lake: conditions in all their places, ``inspect``, ``schema``, ``head``, ``doctor``, typos."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.cli.main import COMMANDS
from skipstone.cli.output import Exit

Run = Callable[..., Any]

# -- conditions ----------------------------------------------------------------------------------

ASKING: dict[str, tuple[str, ...]] = {
    "query": ("--format", "csv"),
    "explain": ("--format", "json"),
    "count": (),
    "agg": (),
    "verify": ("--format", "json"),
    "head": ("--format", "csv"),
    "prune": ("--format", "json"),
}


@pytest.mark.parametrize("command", ASKING)
def test_conditions_have_a_place_and_two_options(run: Run, events: Path, command: str) -> None:
    lake = (events, "count(*)") if command == "agg" else (events,)
    forms = (("id < 7",), ("-w", "id < 7"), ("--where", "id < 7"))
    outputs = []
    for form in forms:
        done = run(command, *lake, *form, *ASKING[command])
        assert done.exit_code == 0, done.output
        timed = ("seconds", "ms", "µs", "bytes", "requests")
        outputs.append([line for line in done.stdout.splitlines() if not any(word in line for word in timed)])
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0]
    done = run(command, *lake, "id < 7", "-w", "id < 8")
    assert done.exit_code == Exit.USAGE
    assert "conflicts with the condition 'id < 7'" in said(done)


def test_all_of_several_conditions_hold(run: Run, events: Path) -> None:
    repeated = ("-w", "id >= 2 or id = 0", "--where", "id < 7", "-w", "id <> 3")
    assert run("count", events, *repeated).stdout.split()[0] == "5"
    rows = run("query", events, *repeated, "--columns", "id", "--format", "csv", "--order-by", "id desc")
    assert rows.stdout.split() == ["id", "6", "5", "4", "2", "0"]
    tree = run("explain", events, *repeated).stdout
    assert "(id >= 2 OR id = 0) AND id < 7 AND id <> 3" in tree


def test_repeated_orders_follow_each_other(run: Run, odd: Path) -> None:
    orders = ("--order-by", "flag desc", "--order-by", "big")
    rows = run("query", odd, "flag is not null", "--columns", "big", "--format", "csv", *orders)
    assert rows.stdout.split() == ["big", str(2**53 + 1), str(2**63 - 1), str(-(2**63))]


def test_prune_needs_a_condition(run: Run, events: Path) -> None:
    done = run("prune", events)
    assert done.exit_code == Exit.USAGE
    assert "for CONDITION: missing" in said(done)


def said(done: Any) -> str:
    """The words of an error, without the box around them."""
    return " ".join(done.stderr.replace("│", " ").split())


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("qury {lake}", "unknown command 'qury'; did you mean query?"),
        ("xyz", f"unknown command 'xyz'; available: {', '.join(COMMANDS)}"),
        ("count {lake} --wher x", "unknown option --wher; did you mean --where?"),
        ("count {lake} --zzz x", "unknown option --zzz"),
        ("count {lake} id = 7", 'put the condition in quotes: "id = 7"'),
        ("describe {lake} id = 7", "unexpected arguments: id = 7"),
        ("index biuld {lake}", "No such command 'biuld'. Did you mean 'build'?"),
    ],
)
def test_mistakes_are_answered_with_a_suggestion(run: Run, events: Path, command: str, hint: str) -> None:
    done = run(*(str(events) if word == "{lake}" else word for word in command.split()))
    assert done.exit_code == Exit.USAGE
    assert hint in said(done)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("skipstone ver", ["verify"]),
        ("skipstone index b", ["build"]),
        ("skipstone query --or", ["--order-by"]),
        ("skipstone --show", ["--show-completion"]),
        ("skipstone --install", ["--install-completion"]),
    ],
)
def test_shells_complete_commands(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, completed: list[str]
) -> None:
    # What the script of --show-completion runs; the option itself detects the shell that started the tests.
    monkeypatch.setenv("_ROOT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    done = run()
    assert (done.exit_code, done.stdout.split()) == (0, completed)


# -- rows and statistics -------------------------------------------------------------------------


def test_head(run: Run, hive: Path) -> None:
    done = run("head", hive)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("10 rows · read ")
    done = run("head", hive, "id > 1397", "-n", "1", "--columns", "id,kind", "--format", "json")
    assert json.loads(done.stdout) == [{"id": 1398, "kind": "a"}]
    assert json.loads(run("head", hive, "-n", "0", "--format", "json").stdout) == []
    assert "unknown column" in run("head", hive, "--columns", "nothing").stderr


def test_describe(run: Run, hive: Path, events: Path) -> None:
    done = run("describe", hive)
    assert done.exit_code == 0
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert rows["id"][:5] == ["id", "int64", "0", "1,399", "0"]
    assert rows["year"][:4] == ["year", "int32", "2,025", "2,026"]
    # Known where every row group has only one value.
    found = json.loads(run("describe", hive, "--format", "json").stdout)
    distinct = {column["name"]: column["distinct"] for column in found["columns"]}
    assert distinct == {"id": None, "price": None, "name": None, "year": 2, "kind": 2}
    found = json.loads(run("describe", events, "--columns", "name", "--format", "json").stdout)
    (name,) = found["columns"]
    assert (name["lower"], name["upper"], name["null_count"]) == ("n001", "n399", 40)
    assert (name["lower_exact"], name["upper_exact"], name["null_count_exact"]) == (True, True, True)
    assert found["lake"] == str(events)


def test_bounds_of_floats(run: Run, tmp_path: Path) -> None:
    """``describe`` and ``inspect`` agree; NaN is above all numbers, and not in the statistics of a file."""
    nan, inf = float("nan"), float("inf")
    pq.write_table(
        pa.table({"x": [1.5, nan, 2.5], "up": [0.5, inf, nan], "wide": [-inf, inf, nan]}),
        tmp_path / "f.parquet",
    )
    bounds = {"x": "1.5 2.5 or NaN", "up": "0.5 inf or NaN", "wide": "-inf inf or NaN"}
    described = run("describe", tmp_path / "f.parquet").stdout.splitlines()
    assert described[0].split()[0] == str(tmp_path / "f.parquet")
    values = run("inspect", tmp_path).stdout.partition("\nvalues\n")[2].splitlines()
    for name, text in bounds.items():
        (line,) = (" ".join(line.split()) for line in described if line.startswith(f"{name} "))
        assert line.startswith(f"{name} double {text} 0 ")
        (line,) = (" ".join(line.split()) for line in values if line.startswith(f"{name} "))
        assert line.startswith(f"{name} {text} 0 ")


# -- lakes ---------------------------------------------------------------------------------------


def test_schema(run: Run, hive: Path, events: Path) -> None:
    lines = run("schema", hive).stdout.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["name", "string"],
        ["year", "int32", "partition"],
        ["kind", "string", "partition"],
    ]
    found = json.loads(run("schema", hive, "--format", "json").stdout)
    year = {"name": "year", "type": "int32", "nullable": True, "partition": True}
    assert (found["lake"], found["columns"][-2]) == (str(hive), year)
    assert "place" in run("schema", events).stdout


def test_inspect_a_lake(run: Run, hive: Path) -> None:
    done = run("inspect", hive)
    assert done.exit_code == 0
    parts = done.stdout.strip("\n").split("\n\n")
    assert [part.split("\n")[0] for part in parts[1:]] == ["columns", "values", "partitions", "file sizes"]
    assert parts[0].splitlines()[:2] == [str(hive), "rows           1,600 in 32 row groups"]
    assert "index          none; build the index" in parts[0]
    columns = {line.split()[0]: line.split()[-3:] for line in parts[1].splitlines()[2:]}
    assert columns["id"] == ["bounds,", "pages,", "dict"]
    assert columns["kind"][-1] == "partition"
    values = {line.split()[0]: line.split() for line in parts[2].splitlines()[2:]}
    # Each id is in two of the 32 row groups: one per kind.
    assert values["id"][:7] == ["id", "0", "1399", "0", "clustered", "2.0", "(6.2"]
    assert values["year"][:7] == ["year", "2025", "2026", "0", "sorted", "16.0", "(50"]
    assert parts[3].splitlines()[2].split()[:8] == ["year", "=", "2025,", "kind", "=", "a", "1", "400"]


def test_inspect_a_lake_as_json(run: Run, hive: Path, events: Path) -> None:
    found = json.loads(run("inspect", hive, "--format", "json").stdout)
    assert (found["files"], found["rows"], found["row_groups"]) == (4, 1_600, 32)
    assert found["bytes"] == sum(file.stat().st_size for file in hive.rglob("*.parquet"))
    assert [use["rows"] for use in found["partitions"]] == [400] * 4
    assert found["partitions"][0]["values"] == {"year": "2025", "kind": "a"}
    (price,) = (one for one in found["columns"] if one["name"] == "price")
    assert (price["min"], price["max"], price["null_count"]) == ("-0.0", "498.75", 0)
    assert price["coverage"]["page_index"] == price["clustering"]["row_groups"]["units"] == 32
    assert found["index"]["exists"] is False
    assert found["read"]["requests"] == 4
    # A glob of one file is a lake; fields of structs are columns of their own.
    found = json.loads(run("inspect", f"{events.parent}/ev*.parquet", "--format", "json").stdout)
    names = [one["name"] for one in found["columns"]]
    assert {"place.x", "place.tags", "device"} < set(names)
    assert found["columns"][names.index("device")]["coverage"]["bloom_filter"] == 4


def test_inspect_odd_lakes(run: Run, tmp_path: Path) -> None:
    dotted = pa.table({"a": [{"b": 3, "c": 5}], "a.b": [1], "m": pa.array([None], pa.list_(pa.int64()))})
    pq.write_table(dotted, tmp_path / "dotted.parquet")
    found = json.loads(run("inspect", f"{tmp_path}/dot*", "--format", "json").stdout)
    assert [(one["name"], one["min"]) for one in found["columns"]] == [
        ("a.b", "1"),
        ("a.c", "5"),
        ("m", None),
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    pq.write_table(dotted.slice(0, 0), empty / "none.parquet")
    for command in ("inspect", "schema", "describe", "head"):
        for form in ("text", "json") if command != "head" else ("table", "json"):
            assert run(command, empty, "--format", form).exit_code == 0


def test_inspect_chosen_columns(run: Run, hive: Path) -> None:
    found = json.loads(run("inspect", hive, "--columns", "id,year", "--format", "json").stdout)
    assert [one["name"] for one in found["columns"]] == ["id", "year"]
    assert run("inspect", hive, "--columns", "nothing").exit_code == Exit.PREDICATE
    for option in (("--pages", "id"), ("--row-groups",)):
        assert "needs a file" in said(run("inspect", hive, *option))


# -- doctor --------------------------------------------------------------------------------------


def test_doctor(run: Run, hive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("doctor", hive, "--format", "json")
    assert done.exit_code == 0
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["Python"]["status"] == "ok"
    assert found["Java"]["status"] == "missing"
    assert "JAVA_HOME=/nowhere" in found["Java"]["said"]
    assert "install Java 17" in found["Java"]["fix"]
    assert "AWS_SECRET_ACCESS_KEY" in found["S3 credentials"]["said"]
    assert "hush" not in done.output
    assert found["lake"]["said"].startswith(f"{hive}: 4 files, ")
    assert (found["index"]["status"], found["index"]["fix"]) == ("warn", f"skipstone index build {hive}")
    assert found["write to lake"]["status"] == "ok"


def test_doctor_fails_if_the_lake_can_not_be_used(run: Run, tmp_path: Path) -> None:
    done = run("doctor", tmp_path / "nowhere")
    assert done.exit_code == 1
    # Long paths are wrapped anywhere.
    last = "".join(done.stdout.split()).rpartition("missinglake")[2]
    assert last == f"{tmp_path}/nowhere:nosuchfileordirectory"
    assert run("doctor").exit_code == 0
