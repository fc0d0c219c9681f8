"""Random operations on a keyed table agree with a dict, and faults of the table are noticed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import skipstone as sk
from skipstone.table.keys import Keys
from skipstone.table.tail.memtable import Versions
from skipstone.table.tail.view import TailView
from tests.support.samples import sample
from tests.table._model import SETUPS, check
from tests.table._operations import SCHEMA, Operation, operations, shorten

COUNT = 5_000 if os.environ.get("SKIPSTONE_CASES") else 45
"""Operations of a seed."""


@pytest.mark.parametrize("seed", range(sample("keyed model")))
def test_random_operations(seed: int, tmp_path: Path) -> None:
    check(tmp_path / "w", SETUPS[seed % len(SETUPS)], operations(seed, COUNT))


def test_failing_traces_are_shortened() -> None:
    """Only what is needed to fail is left, in its order."""

    def fails(trace: Sequence[Operation]) -> bool:
        names = [name for name, *_ in trace]
        return "flush" in names and "compact" in names[names.index("flush") :]

    trace: list[Operation] = [("put", [])] * 40
    trace[11], trace[17], trace[33] = ("flush",), ("compact", True), ("flush",)
    assert shorten(trace, fails) == [("flush",), ("compact", True)]


def test_rows_of_a_failing_trace_are_left_out() -> None:
    """So are keys, and operations of transactions."""

    def fails(trace: Sequence[Operation]) -> bool:
        staged = [one for name, *args in trace if name == "transaction" for one in args[0]]
        return any(name == "put" and 3 in rows for name, rows in staged)

    inside: list[Operation] = [("delete", [1, 2]), ("put", [3]), ("delete", [4])]
    trace: list[Operation] = [("put", [1, 2]), ("transaction", inside, True), ("count", None)]
    assert shorten(trace, fails) == [("transaction", [("put", [3])], True)]


def test_a_wrong_answer_is_shown_with_its_trace(tmp_path: Path) -> None:
    row = {**dict.fromkeys(SCHEMA.names), "region": "eu", "n": 1}
    trace: list[Operation] = [("tail", "off", 9), ("put", [row]), ("no_such_method",), ("count", None)]
    with pytest.raises(AssertionError, match="no_such_method") as caught:
        check(tmp_path / "w", SETUPS[0], trace)
    assert str(caught.value).endswith("\n[\n    ('no_such_method',),\n]")


# -- faults that the model must notice ---------------------------------------------------------


def filtered_first(
    view: TailView, base: sk.Table, keys: Keys, part: Versions, hide: Any = TailView._hide
) -> None:
    """Law 13 is broken: versions are filtered by ``v > 50`` before they are merged."""
    hide(view, base, keys, part.take(np.flatnonzero(pc.fill_null(pc.greater(part.rows["v"], 50), False))))


FAULTS: dict[str, tuple[str, Any]] = {
    "stale rows of files": ("skipstone.table.tail.view.TailView._hide", filtered_first),
    "stale rows of the tail": ("skipstone.table.tail.view._replaced", lambda *_: None),
    "conflicts that nobody sees": (
        "skipstone.table.transaction.Transaction._check_conflicts",
        lambda *_: None,
    ),
    "nested fields that are followed by name": (
        "skipstone.table.tail.evolve._renamed_type",
        lambda own, _wanted: own,
    ),
    "rows that a flush leaves behind": (
        "skipstone.table.tail.memtable.Versions.deletes",
        lambda versions, keys: versions.rows.select(list(keys)).slice(0, 0),
    ),
}


@pytest.mark.parametrize("fault", [pytest.param(name, marks=pytest.mark.slow) for name in list(FAULTS)[1:]])
def test_faults_are_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within some random operations, of which only a few are shown."""
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError) as caught:
        check_seeds(tmp_path / "w")
    shown = str(caught.value).split("[\n")[1].splitlines()[:-1]
    assert 2 <= len(shown) <= 10, str(caught.value)


def check_seeds(folder: Path) -> None:
    for seed in range(30):
        check(folder, SETUPS[seed % len(SETUPS)], operations(seed, 60))


def test_the_stale_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """k has 100 in a file, and 5 in the tail: the fault shows one of them too many."""
    monkeypatch.setattr(*FAULTS["stale rows of files"])
    old, new = ({**dict.fromkeys(SCHEMA.names), "region": "eu", "n": 7, "v": v} for v in (100, 5))
    trace: list[Operation] = [
        *(("tail", "off", 100_000), ("put", [{**new, "n": 3}, old]), ("delete", [("eu", 2)]), ("flush",)),
        *(("count", None), ("put", [{**old, "n": 4}, new]), ("get", [("eu", 3)])),
        ("scan", ("v", ">", 50), ["n"], None, None),
    ]
    with pytest.raises(AssertionError) as caught:
        check(tmp_path / "w", SETUPS[0], trace)
    steps = [("tail", "off", 100_000), ("put", [old]), ("flush",), ("put", [new]), trace[-1]]
    shown = "".join(f"    {step!r},\n" for step in steps)
    assert str(caught.value) == (f"AssertionError: wrong rows: [(('n', 7),)]\n{SETUPS[0]}\n[\n{shown}]")
