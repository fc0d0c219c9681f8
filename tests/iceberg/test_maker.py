"""Tables made by hand are Iceberg tables: other readers find the oracle's rows in them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from tests.iceberg._chains import random_chain
from tests.iceberg._maker import Maker
from tests.property._lakes import ROW_ID
from tests.support.samples import sample

COLUMNS = [
    (ROW_ID, "long"),
    ("s", "string"),
    ("d", "decimal(9, 2)"),
    ("ts", "timestamp"),
    ("f", "double"),
    ("st", {"a": "int", "b": "string"}),
    ("l", ["int"]),
    ("m", ("string", "long")),
    ("u", "uuid"),
]


def some_rows(count: int) -> list[dict[str, Any]]:
    start = dt.datetime(1969, 12, 30)
    return [
        {
            ROW_ID: n,
            "s": f"s{n}" * (n % 5),
            "d": decimal.Decimal(n) / 4 if n % 3 else None,
            "ts": start + dt.timedelta(hours=7 * n),
            "f": float("nan") if n % 4 == 0 else n / 2,
            "st": {"a": n, "b": str(n)} if n % 3 else None,
            "l": [1, None, n] if n % 2 else None,
            "m": {"k": n} if n % 4 else {},
            "u": uuid.UUID(int=n),
        }
        for n in range(count)
    ]


def by_row(table: pa.Table) -> dict[int, str]:
    return {row[ROW_ID]: str(row) for row in table.to_pylist()}


def read(maker: Maker, **scan: Any) -> pa.Table:
    return StaticTable.from_metadata(maker.metadata_location).scan(**scan).to_arrow()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_of_every_version_reads_as_the_oracle_says(version: int, tmp_path: Path) -> None:
    spec = [(ROW_ID, "bucket[4]"), ("ts", "day")]
    maker = Maker(tmp_path, COLUMNS, spec, format_version=version, seed=version)
    rows = some_rows(30)
    first = maker.append(rows[:20], files=2, writer="duckdb", metrics="truncate")
    maker.tag("first")
    maker.evolve_spec([("s", "truncate[2]")])
    maker.evolve_schema(add={"x": "int", "st.c": "double"}, rename={"s": "text", "st.a": "aa"}, drop=["l"])
    maker.append([row | {"text": row["s"], "x": row[ROW_ID]} for row in rows[20:]], metrics="partial")
    maker.evolve_schema(widen={"x": "long"}, order=["u", "x", ROW_ID, "text", "st", "m", "d", "ts", "f"])
    maker.evolve_spec([("text", "identity")])
    maker.append([{ROW_ID: 99, "text": "q", "x": 2**40}, {ROW_ID: 98}], leave_out=True)
    if version == 2:
        maker.delete_positions(maker.places()[::5], scope="partition")
        maker.delete_positions(maker.places()[::7])
    if version == 3:
        vectors: dict[str, list[int]] = {}
        for path, position in maker.places()[::3]:
            vectors.setdefault(path, []).append(position)
        maker.delete_vector(vectors)
    maker.rewrite_manifests()
    maker.remove_files([maker.places()[0][0]])
    assert by_row(read(maker)) == by_row(maker.table())
    assert 10 < len(maker.rows()) < 32
    then = read(maker, snapshot_id=first.id)
    assert by_row(then) == by_row(maker.table(first.id, first.schema))
    assert then.num_rows == 20


def test_the_oracle_applies_the_sequence_rules(tmp_path: Path) -> None:
    """An equality delete spares rows of its own commit, a position delete doesn't; partitions bound both."""
    maker = Maker(tmp_path, [(ROW_ID, "long"), ("k", "int"), ("p", "string")], [("p", "identity")])
    maker.append([{ROW_ID: n, "k": n % 3 or None, "p": "ab"[n % 2]} for n in range(12)])
    key = [maker.field("k").id]
    files = maker.files_of([{ROW_ID: 100, "k": 1, "p": "a"}])
    maker.commit("overwrite", [*files, *maker.equality_files(key, [(1,)], partitions=[(0, ("a",))])])
    assert [r[ROW_ID] for r in maker.rows() if r["k"] == 1 and r["p"] == "a"] == [100]
    assert sum(r["k"] == 1 and r["p"] == "b" for r in maker.rows()) == 2
    maker.delete_equal(key, [(None,)])
    assert all(r["k"] is not None for r in maker.rows())
    left = len(maker.rows())
    maker.append([{ROW_ID: 200, "k": None, "p": "a"}])
    maker.append([{ROW_ID: 300, "k": None, "p": "a"}], sequence=2)
    assert [r[ROW_ID] for r in maker.rows() if r["k"] is None] == [200]
    assert len(maker.rows()) == left + 1


def test_a_vector_stands_for_all_position_deletes_of_its_file(tmp_path: Path) -> None:
    maker = Maker(tmp_path, [(ROW_ID, "long")])
    maker.append([{ROW_ID: n} for n in range(6)])
    ((path, _), *_) = maker.places()
    maker.delete_positions([(path, 0), (path, 1)])
    maker.upgrade(3)
    maker.delete_vector({path: [1, 2]})
    assert [r[ROW_ID] for r in maker.rows()] == [0, 3, 4, 5]
    maker.delete_vector({path: [5]})
    assert [r[ROW_ID] for r in maker.rows()] == [0, 1, 2, 3, 4]


def polars_rows(maker: Maker) -> dict[int, str]:
    import polars as pl

    frame = pl.scan_iceberg(maker.metadata_location).select(ROW_ID).collect()
    return dict.fromkeys(frame[ROW_ID].to_list(), "")


READERS: dict[str, Callable[[Maker], dict[int, str]]] = {
    "pyiceberg": lambda maker: by_row(read(maker)),
    "polars": polars_rows,
}


@pytest.mark.parametrize("reader", READERS)
def test_random_chains_read_as_the_oracle_says(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for number in range(sample("chains")):
        chain = random_chain(f"{reader}:{number}", tmp_path / str(number), readable=True)
        wanted = by_row(chain.maker.table())
        found = READERS[reader](chain.maker)
        note = "\n".join([f"{reader}:{number}", *chain.words])
        assert {*found} == {*wanted}, note
        assert reader != "pyiceberg" or found == wanted, note
