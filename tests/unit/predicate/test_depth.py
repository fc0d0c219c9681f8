"""Trees that are nested too deeply for Python's stack: an answer, or an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk

ROWS = 20
SCHEMA = pa.schema({"id": pa.int64(), "s": pa.string()})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deep") / "f.parquet"
    pq.write_table(pa.table({"id": range(ROWS), "s": ["a"] * ROWS}, SCHEMA), path)
    return path


def deep_sum(depth: int) -> sk.Predicate:
    total: Any = sk.col("id")
    for _ in range(depth):
        total = total + 0
    return total > 9


def deep_not(depth: int) -> sk.Predicate:
    made = sk.col("id") > 9
    for _ in range(depth // 2 * 2):
        made = ~made
    return made


def alternating(depth: int) -> sk.Predicate:
    made = sk.col("id") > 9
    for number in range(depth // 2):
        made = (made & (sk.col("id") > -number)) | (sk.col("s") == "b")
    return made


CONDITIONS: dict[str, Callable[[int], Any]] = {
    "sum": lambda depth: "id" + " + 0" * depth + " > 9",
    "concatenation": lambda depth: "id > 9 and s" + " || ''" * depth + " = 'a'",
    "cases": lambda depth: "case" + " when id = -1 then 0" * depth + " else id end > 9",
    "casts": lambda depth: "cast(" * depth + "id" + " as bigint)" * depth + " > 9",
    "parentheses": lambda depth: "(" * depth + "id > 9" + ")" * depth,
    "sum, built": deep_sum,
    "NOT, built": deep_not,
    "AND in OR, built": alternating,
}
USES: dict[str, Callable[[Any, Path], int | None]] = {
    "count": lambda where, file: sk.open(file).scan(where).count(),
    "read": lambda where, file: sk.open(file).scan(where).to_arrow().num_rows,
    "explain": lambda where, file: _none(str(sk.open(file).scan(where).explain(analyze=True))),
    "prune": lambda where, file: _none(str(sk.prune(str(file), where).trace)),
    "verify": lambda where, file: _none(sk.open(file).scan(where).verify()),
    "compare": lambda where, _: _none(sk.predicate(where) == sk.predicate(where)),
    "write": lambda where, _: _none(str(sk.predicate(where)), sk.predicate(where).to_sql()),
    "domain": lambda where, _: _none(sk.predicate(where).to_domain(SCHEMA)),
}


def _none(*_: object) -> None:
    """For uses without a number of rows."""


def attempt(ask: Callable[[], Any]) -> tuple[Any, str]:
    """The answer, and the message of an error."""
    try:
        return ask(), ""
    except sk.NotExpressibleError:
        return None, ""
    except sk.PredicateError as error:
        return None, str(error)


@pytest.mark.parametrize("depth", [60, 500, pytest.param(1_200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(file: Path, name: str, depth: int) -> None:
    where = CONDITIONS[name](depth)
    for use, ask in USES.items():
        answer, problem = attempt(lambda ask=ask: ask(where, file))  # type: ignore[misc]
        assert answer in (None, ROWS - 10), use
        assert not problem or "nested too deeply" in problem, use
        # What people write is not refused.
        assert not problem or depth > 60 or name in ("casts", "parentheses"), (use, problem)


VALUES: dict[str, Callable[[int], str]] = {
    "sum": lambda depth: "id" + " + 0" * depth,
    "calls": lambda depth: "abs(" * depth + "id" + ")" * depth,
    "cases": lambda depth: "case when id = -1 then 1 else " * depth + "id" + " end" * depth,
}


@pytest.mark.parametrize("depth", [40, 500, pytest.param(1_200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", VALUES)
def test_expressions_of_columns(file: Path, name: str, depth: int) -> None:
    value, lake = VALUES[name](depth), sk.open(file)
    uses: dict[str, Callable[[], Any]] = {
        "columns": lambda: lake.scan("id > 9", [f"{value} as x"]).to_arrow()["x"].to_pylist(),
        "explain": lambda: _none(str(lake.scan("id > 9", [f"{value} as x"]).explain())),
        "aggregate": lambda: _none(lake.scan("id > 9").aggregate(f"sum({value})").to_arrow()),
        "groups": lambda: _none(lake.scan("id > 9").aggregate("count(*)", group_by=[value]).to_arrow()),
    }
    for use, ask in uses.items():
        answer, problem = attempt(ask)
        assert answer in (None, [*range(10, ROWS)]), use
        assert not problem or "nested too deeply" in problem, use
        assert not problem or depth > 40 or name != "sum", (use, problem)
