"""Random operations on a keyed table agree with a dict.

The cases in which stale rows would show are in ``tail/test_writer.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.samples import sample
from tests.table._model import KEYS, SCHEMA, Operation, check, operations, shorten

TABLES, EACH = (20, 250) if os.environ.get("SKIPSTONE_CASES") else (1, 45)
"""Tables of a seed, and operations on each of them: every commit makes metadata larger."""


@pytest.mark.parametrize("seed", range(sample("keyed model")))
def test_random_operations(seed: int, tmp_path: Path) -> None:
    for number in range(TABLES):
        trace = operations(seed * 1_000 + number, EACH)
        check(
            tmp_path / str(number), KEYS[number % len(KEYS)] if TABLES > 1 else KEYS[seed % len(KEYS)], trace
        )


def test_failing_traces_are_shortened() -> None:
    """Only what is needed to fail is left, in its order."""

    def fails(trace: Sequence[Operation]) -> bool:
        names = [name for name, *_ in trace]
        return "flush" in names and "compact" in names[names.index("flush") :]

    trace: list[Operation] = [("put", [])] * 40
    trace[11], trace[17], trace[33] = ("flush",), ("compact", True), ("flush",)
    assert shorten(trace, fails) == [("flush",), ("compact", True)]


def test_a_wrong_answer_is_shown_with_its_trace(tmp_path: Path) -> None:
    row = {**dict.fromkeys(SCHEMA.names), "region": "eu", "n": 1}
    trace: list[Operation] = [("tail", "off"), ("put", [row]), ("no_such_method",), ("count", None)]
    with pytest.raises(AssertionError, match="no_such_method") as caught:
        check(tmp_path, KEYS[0], trace)
    assert str(caught.value).endswith("keys=['n']\n[\n    ('no_such_method',),\n]")
