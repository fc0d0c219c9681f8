"""The oracle itself: DuckDB, given the same predicates as SQL over the same rows in memory, agrees."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from tests.property._layouts import WRITERS
from tests.property._oracle import CantEvaluate, Oracle, read
from tests.property._predicates import Predicates

FILES = 25
PER_FILE = 30
# Types that DuckDB has no equal of, or reads otherwise.
WITHOUT = ("f16", "dec50", "span", "day64", "clock_ns", "view", "ts_ns_tz", "u64", "blob", "fixed")
DAYS = re.compile("date_trunc|year")


def expressible(predicate: tree.Predicate) -> bool:
    """Whether DuckDB means the same by it: no zone but UTC, no text or double that it coerces otherwise."""
    for node in predicate.walk():
        if isinstance(node, (tree.Literal, tree.Cast, tree.Call)) and node.zone != "UTC":
            return False
        if isinstance(node, (tree.Opaque, tree.Like)):
            return False
        if isinstance(node, tree.Call) and node.name not in ("+", "-"):
            return False
        if isinstance(node, (tree.Compare, tree.Between, tree.IsIn)) and not _plain(node):
            return False
    return True


def _plain(node: tree.Predicate) -> bool:
    """Whether the literals are of the columns' own kind, so that no rule of coercion matters."""
    kinds = {_kind(n.scalar.type) for n in node.children() if isinstance(n, tree.Literal)}
    if isinstance(node, tree.IsIn):
        kinds.add(_kind(node.values.type))
    return len(kinds) <= 1 and not kinds & {"decimal", "null"}


def _kind(type: pa.DataType) -> str:
    if pa.types.is_decimal(type):
        return "decimal"
    return "null" if pa.types.is_null(type) else str(type)


def test_duckdb_agrees(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    writer = next(w for w in WRITERS if w.name == "pyarrow")
    count: Counter[str] = Counter()
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for number in range(FILES):
            layout = writer.file(number, tmp_path)
            table = read(layout.path)
            kept = {p: v for p, v in layout.made.pools.items() if v[0].name not in WITHOUT}
            names = [n for n in table.column_names if (n,) in kept or n == "st"]
            layout.made.pools.clear()
            layout.made.pools.update(kept)
            layout.made.nested.clear()
            if not kept:
                continue
            oracle = Oracle(table)
            db.register("t", table.select(names).append_column("_n", pa.array(range(table.num_rows))))
            for case in range(PER_FILE):
                seed = f"duckdb-oracle:{number}:{case}"
                predicate = Predicates(random.Random(seed), layout.made).tree()
                if not expressible(predicate):
                    count["not said the same"] += 1
                    continue
                try:
                    truth = oracle.answer(predicate)
                    sql = predicate.to_sql("duckdb")
                    found = db.execute(f"SELECT ({sql}) FROM t ORDER BY _n").fetchall()
                except (CantEvaluate, NotExpressibleError):
                    count["not expressible"] += 1
                    continue
                except duckdb.Error as error:
                    count[type(error).__name__] += 1
                    continue
                theirs = [row[0] for row in found]
                differ = [
                    row for row, pair in enumerate(zip(truth, theirs, strict=True)) if pair[0] is not pair[1]
                ]
                if differ:
                    row = differ[0]
                    values = {path: oracle.column(path).items[row] for path in predicate.columns()}
                    pytest.fail(
                        f"{seed}: {predicate}\nas {sql}\nrow {row} {values}: we say {truth[row]}, "
                        f"DuckDB {theirs[row]}"
                    )
                count["agree"] += 1
            db.unregister("t")
    print(f"\n{dict(count)}")
    assert count["agree"] >= 150, dict(count)
