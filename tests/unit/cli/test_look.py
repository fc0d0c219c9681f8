"""Looking at a lake: conditions in all their places, ``head``, ``describe``, and mistyped commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        ("qury {lake}", "unknown command 'qury'; did you mean 'query'?"),
        ("xyz", f"unknown command 'xyz'; available: {', '.join(COMMANDS)}"),
        ("count {lake} --wher x", "unknown option --wher; did you mean --where?"),
        ("count {lake} --zzz x", "unknown option --zzz"),
        ("count {lake} id = 7", 'put the condition in quotes, as in "user_id = 42"'),
        ("describe {lake} id = 7", "unexpected extra argument(s) (id = 7)"),
        ("index biuld {lake}", "No such command 'biuld'. Did you mean 'build'?"),
    ],
)
def test_mistakes_are_answered_with_a_suggestion(run: Run, events: Path, command: str, hint: str) -> None:
    done = run(*(str(events) if word == "{lake}" else word for word in command.split()))
    assert done.exit_code == Exit.USAGE
    assert hint in said(done)


def test_shells_complete_commands(run: Run) -> None:
    done = run("--show-completion", "bash")
    assert (done.exit_code, "_COMPLETE=complete_bash" in done.stdout) == (0, True)


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
    found = json.loads(run("describe", events, "--columns", "name", "--format", "json").stdout)
    (name,) = found["columns"]
    assert (name["lower"], name["upper"], name["null_count"]) == ("n001", "n399", 40)
    assert (name["lower_exact"], name["upper_exact"], name["null_count_exact"]) == (True, True, True)
