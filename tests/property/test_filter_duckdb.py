"""RowFilter against DuckDB in memory, over the types and forms that both give one meaning."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter
from skipstone.errors import NotExpressibleError, TypeMismatchError
from skipstone.predicate import tree
from tests.property._layouts import random_table
from tests.property._predicates import Predicates, by_name
from tests.support.samples import sample

duckdb = pytest.importorskip("duckdb")

PER_TABLE = 30
FAMILIES = by_name(
    *["i8", "i16", "i32", "i64", "u32", "f64", "flag", "text", "blob", "day", "ts_us", "dec9", "dec18"]
)
SAME_MEANING = (
    *(tree.And, tree.Or, tree.Not, tree.Truth, tree.Constant, tree.BooleanValue, tree.Compare, tree.Between),
    *(tree.IsIn, tree.IsNull, tree.IsNan, tree.Match, tree.Like, tree.Column, tree.Literal),
)


def comparable(predicate: tree.Predicate, schema: pa.Schema) -> bool:
    """Whether every literal has its column's own type: DuckDB coerces other ones by other rules."""
    for node in predicate.walk():
        if not isinstance(node, SAME_MEANING):
            return False
        types = {schema.field(c.path[0]).type for c in node.walk() if isinstance(c, tree.Column)}
        if isinstance(node, (tree.Compare, tree.Between)):
            types |= {c.scalar.type for c in node.children() if isinstance(c, tree.Literal)}
        if isinstance(node, tree.IsIn):
            types.add(node.values.type)
        if isinstance(node, (tree.Compare, tree.Between, tree.IsIn)) and len(types) > 1:
            return False
    return True


def test_rows_agree_with_duckdb() -> None:
    cases = sample("filters, duckdb")
    count: Counter[str] = Counter()
    number = 0
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        while count["cases"] < cases:
            run(number, db, count)
            number += 1
    print(f"\n{dict(count)}")
    assert count["mixed"] > 0.2 * count["cases"]


def run(number: int, db: object, count: Counter[str]) -> None:
    """Predicates about the table of this number, asked of both."""
    rng = random.Random(f"duckdb filter:{number}")
    made = random_table(rng, FAMILIES, nested=False)
    db.register("rows", made.table)  # type: ignore[attr-defined]
    for case in range(PER_TABLE):
        predicate = Predicates(random.Random(f"duckdb filter:{number}:{case}"), made).tree()
        if not comparable(predicate, made.table.schema):
            continue
        try:
            text = predicate.to_sql("duckdb")
            true, null = RowFilter(predicate, made.table.schema).truth(made.table)
        except (NotExpressibleError, TypeMismatchError):
            count["refused"] += 1
            continue
        wanted = [row[0] for row in db.execute(f"SELECT ({text}) FROM rows").fetchall()]  # type: ignore[attr-defined]
        got = [None if n else bool(t) for t, n in zip(true, null, strict=True)]
        wrong = [row for row, (a, b) in enumerate(zip(got, wanted, strict=True)) if a is not b]
        if wrong:
            values = made.table.slice(wrong[0], 1).select([p[0] for p in predicate.columns()]).to_pylist()
            both = f"{got[wrong[0]]}, DuckDB says {wanted[wrong[0]]}"
            pytest.fail(f"case {number}:{case}: {text[:1000]}\n  row {wrong[0]} {values}: {both}")
        count["cases"] += 1
        count["mixed"] += True in wanted and False in wanted
