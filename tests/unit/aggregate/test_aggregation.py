"""``scan.aggregate``: where answers come from, and what they are."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

import skipstone as sk
from skipstone.errors import ParseError, TypeMismatchError, UnknownColumnError, UsageError
from tests.unit.aggregate.conftest import FILES, ROWS

TOTAL = ROWS * FILES


def fsum(column: pa.ChunkedArray) -> float:
    return math.fsum(value for value in column.to_pylist() if value is not None)


def reads(answer: Any) -> dict[str, int]:
    return {use.column: use.read for use in answer.trace.columns}


# -- where answers come from -------------------------------------------------------------------


def test_sums_of_all_rows_read_nothing(indexed: sk.Lake, table: pa.Table) -> None:
    answer = indexed.scan().aggregate(
        sk.count(), sk.count("amount"), sk.sum("amount"), sk.min("amount"), sk.avg("amount"), sk.sum("big")
    )
    before = indexed.access.io()
    assert answer.to_pylist() == [
        {
            "count": TOTAL,
            "count(amount)": TOTAL - table["amount"].null_count,
            "sum(amount)": fsum(table["amount"]),
            "min(amount)": pc.min(table["amount"]).as_py(),
            "avg(amount)": fsum(table["amount"]) / (TOTAL - table["amount"].null_count),
            "sum(big)": sum(table["big"].to_pylist()),
        }
    ]
    assert indexed.access.io() == before
    assert set(reads(answer).values()) == {0}
    levels = {level.level: level.units for use in answer.trace.columns for level in use.answered}
    assert levels == {"files": FILES}


def test_without_an_index_bounds_and_counts_come_from_footers(plain: sk.Lake, table: pa.Table) -> None:
    answer = plain.scan().aggregate(sk.max("at"), sk.count("amount"), sk.sum("big"))
    assert reads(answer) == {"at": 0, "amount": 0, "big": TOTAL}
    assert answer["max(at)"] == pc.max(table["at"]).as_py()
    assert answer["sum(big)"] == sum(table["big"].to_pylist())
    assert "no index with sums of big in 12 row groups" in answer.explain()


def test_only_edges_of_a_range_are_read(indexed: sk.Lake, table: pa.Table) -> None:
    answer = indexed.scan("id >= 150 and id < 7777").aggregate(sk.count(), sk.sum("amount"))
    (use,) = [use for use in answer.trace.columns if use.column == "amount"]
    assert {level.level for level in use.answered} == {"row groups", "pages"}
    assert use.read == 200  # the pages in which 150 and 7,776 are
    assert answer["sum(amount)"] == fsum(table["amount"].slice(150, 7777 - 150))
    assert answer["count"] == 7777 - 150


@pytest.mark.parametrize("cached", [True, False])
def test_a_run_of_ids_reads_the_edges(indexed: sk.Lake, table: pa.Table, cached: bool) -> None:
    answer = indexed.scan().aggregate(
        sk.count(), sk.sum("big"), within=range(150, 7777), id_column="id", use_cached=cached
    )
    assert answer.to_pylist() == [
        {"count": 7777 - 150, "sum(big)": sum(table["big"].slice(150, 7777 - 150).to_pylist())}
    ]
    members = answer.trace.members
    assert members is not None
    # Row groups 0 and 7 in part, 8 to 11 not at all.
    assert (members.outside, members.inside, members.partly) == (4, 6, 2)
    assert reads(answer)["big"] == (200 if cached else 7_700)


def test_ids_that_count_up_are_not_read(indexed: sk.Lake, plain: sk.Lake, table: pa.Table) -> None:
    ids = BitMap(range(0, TOTAL, 3))
    answers = []
    for lake in (indexed, plain):
        answer = lake.scan().aggregate(sk.count(), sk.sum("big"), within=ids, id_column="id")
        answers.append(answer.to_pylist())
        phases = answer.trace.run.phases
        assert sum(phase.bytes for phase in phases) > 0
    assert answers[0] == answers[1]
    assert answers[0][0]["sum(big)"] == sum(table["big"].to_pylist()[::3])
    sizes = []
    for lake in (indexed, plain):
        answer = lake.scan().aggregate(sk.sum("big"), within=ids, id_column="id")
        answer.to_arrow()
        sizes.append(sum(phase.bytes for phase in answer.trace.run.phases))
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("shift", [0, 1])
def test_rows_in_another_order_don_t_count_up(tmp_path: Any, shift: int) -> None:
    import pyarrow.parquet as pq

    ids = np.arange(-5, 995)
    if shift:
        ids[[10, 11]] = ids[[11, 10]]
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"id": ids, "x": np.arange(1000)}), tmp_path / "lake" / "a.parquet")
    lake = sk.open(tmp_path / "lake")
    lake.index.build(sums=["x"], ids=["id"], engine="local")
    some = [0, 4, 5, 6, 993, 994, 5_000]
    answer = lake.scan().aggregate(sk.count(), sk.sum("x"), within=some, id_column="id")
    assert answer.to_pylist() == [{"count": 6, "sum(x)": int(np.flatnonzero(np.isin(ids, some)).sum())}]
    denied = lake.scan().aggregate(sk.count(), without=some, id_column="id")
    assert denied["count"] == 994


def test_first_and_last_pass_over_row_groups(plain: sk.Lake, table: pa.Table) -> None:
    answer = plain.scan().aggregate(sk.first("id", by="at"), sk.last("id", by="id"))
    at = table["at"].to_numpy()
    assert answer.to_pylist() == [{"first(id by at)": int(np.argmin(at)), "last(id by id)": TOTAL - 1}]
    assert [use.read for use in answer.trace.columns] == [1_000, 1_000]
    some = plain.scan().aggregate(
        sk.count(), sk.last("id", by="id"), within=[5, 6, 9_999_999], id_column="id"
    )
    assert some.to_pylist() == [{"count": 2, "last(id by id)": 6}]


# -- groups ------------------------------------------------------------------------------------


def test_groups_that_row_groups_have_throughout_need_no_reading(indexed: sk.Lake, table: pa.Table) -> None:
    answer = indexed.scan().aggregate(sk.count(), sk.sum("big"), group_by="region")
    assert reads(answer) == {"": 0, "big": 0}
    assert [(row["region"], row["count"]) for row in answer.to_pylist()] == [
        ("north", ROWS),
        ("south", ROWS),
        ("west", ROWS),
    ]
    sums = [sum(table["big"].slice(number * ROWS, ROWS).to_pylist()) for number in range(FILES)]
    assert answer["sum(big)"] == sums


def test_groups_within_row_groups_are_read(indexed: sk.Lake, table: pa.Table) -> None:
    answer = indexed.scan("id < 6000").aggregate(
        sk.count(), sk.sum("big"), sk.approx_distinct("region"), group_by=["kind", "region"]
    )
    part = table.slice(0, 6000)
    wanted = {
        (kind, region): part.filter(
            (pc.is_null(pc.field("kind")) if kind is None else pc.field("kind") == kind)
            & (pc.field("region") == region)
        )
        for kind in (None, "a", "b")
        for region in ("north", "south")
    }
    assert answer.to_pylist() == [
        {
            "kind": kind,
            "region": region,
            "count": len(rows),
            "sum(big)": sum(rows["big"].to_pylist()),
            "approx_distinct(region)": 1,
        }
        for (kind, region), rows in wanted.items()
    ]
    lower, upper = answer.bounds["approx_distinct(region)"]
    assert len(lower) == len(upper) == 6


def test_groups_of_floats_have_one_zero_and_one_nan(tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "lake").mkdir()
    floats = [0.0, -0.0, math.nan, -math.nan, None, -math.inf, 1.5]
    pq.write_table(pa.table({"f": floats}), tmp_path / "lake" / "a.parquet")
    found = sk.open(tmp_path / "lake").scan().aggregate(sk.count(), group_by="f").to_arrow()
    assert str(found["f"].to_pylist()) == "[None, -inf, 0.0, 1.5, nan]"
    assert found["count"].to_pylist() == [1, 1, 2, 1, 2]


# -- answers -----------------------------------------------------------------------------------


def test_nothing_counts(plain: sk.Lake) -> None:
    functions = (
        sk.count(), sk.count("amount"), sk.sum("amount"), sk.avg("big"), sk.min("kind"), sk.var("big"),
        sk.approx_distinct("kind"), sk.quantile("amount", [0.5]), sk.quantile("amount", 0.5, exact=False),
        sk.histogram("amount", 3), sk.first("kind", by="id"),
    )  # fmt: skip
    answer = plain.scan("id < 0").aggregate(*functions)
    assert list(answer.to_pylist()[0].values()) == [0, 0, None, None, None, None, 0, None, None, None, None]
    assert plain.scan("id < 0").aggregate(*functions, group_by="kind").to_arrow().num_rows == 0
    assert plain.scan().aggregate(sk.count(), within=[], id_column="id")["count"] == 0


def test_types_names_and_forms(plain: sk.Lake) -> None:
    answer = plain.scan("id < 10").aggregate(
        sk.sum("big").alias("total"), sk.max("at"), sk.sum("pair.x"), sk.quantile("big", 0.25)
    )
    assert answer.schema == pa.schema(
        {
            "total": pa.decimal128(38, 0),
            "max(at)": pa.timestamp("us"),
            "sum(pair.x)": pa.decimal128(38, 0),
            "quantile(big, 0.25)": pa.float64(),
        }
    )
    assert isinstance(answer["total"], int)
    assert isinstance(answer["max(at)"], datetime.datetime)
    assert answer.to_polars().shape == answer.to_pandas().shape == (1, 4)
    assert pa.table(answer) == answer.to_arrow()
    with pytest.raises(UsageError, match="unknown result column 'sum'"):
        answer["sum"]


def test_histograms_with_a_number_of_bins(plain: sk.Lake, table: pa.Table) -> None:
    (found,) = (
        plain.scan().aggregate(sk.histogram("amount", 5)).to_arrow()["histogram(amount, 5)"].to_pylist()
    )
    values = table["amount"].drop_null().to_numpy()
    counts, edges = np.histogram(values, 5)
    assert [cell["count"] for cell in found] == counts.tolist()
    assert [cell["low"] for cell in found] == pytest.approx(edges[:-1].tolist())


def test_a_histogram_of_whole_row_groups_in_one_bin_reads_nothing(plain: sk.Lake) -> None:
    answer = plain.scan().aggregate(sk.histogram("id", [0, 4_000, 8_000, 20_000]))
    assert reads(answer) == {"id": 0}
    assert [cell["count"] for cell in answer["histogram(id, 4 edges)"]] == [4_000] * 3


class Product:
    """The logarithm of a product, as a user would write it."""

    def init(self) -> float:
        return 0.0

    def update(self, state: float, batch: pa.RecordBatch) -> float:
        return state + sum(math.log(value) for value in batch.column("big").to_pylist())

    def merge(self, a: float, b: float) -> float:
        return a + b

    def finish(self, state: float) -> float:
        return state


def test_user_defined_aggregate(plain: sk.Lake, table: pa.Table) -> None:
    answer = plain.scan("id < 1500").aggregate(sk.udaf(Product(), ["big"], name="product", type=pa.float64()))
    assert answer["product"] == pytest.approx(sum(map(math.log, table["big"].slice(0, 1500).to_pylist())))
    with pytest.raises(UsageError, match="has no update, merge, finish"):
        plain.scan().aggregate(sk.udaf(type("Half", (), {"init": lambda self: 0})(), ["big"]))


# -- by and by ---------------------------------------------------------------------------------


def test_steps_get_better(indexed: sk.Lake) -> None:
    asked = (sk.count(), sk.sum("big"), sk.min("amount"))
    scan = indexed.scan(threads=1)
    steps = list(scan.aggregate(*asked, within=range(0, TOTAL, 2), id_column="id").stream())
    final = steps[-1]
    assert final.final
    assert (final.covered, final.rows_left) == (1.0, 0)
    assert final.to_pylist() == scan.aggregate(*asked, within=range(0, TOTAL, 2), id_column="id").to_pylist()
    assert [step.covered for step in steps] == sorted(step.covered for step in steps)
    for step in steps:
        for name in ("count", "sum(big)"):
            low, high = step.bounds[name]
            assert low <= final[name] <= high
    assert not steps[0].final
    assert final.bounds["count"] == (final["count"], final["count"])


def test_what_metadata_answers_takes_one_step(indexed: sk.Lake) -> None:
    (step,) = indexed.scan().aggregate(sk.sum("amount")).stream()
    assert step.final


# -- what makes no sense -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda scan: scan.aggregate(), UsageError, "no aggregate functions"),
        (lambda scan: scan.aggregate("count"), ParseError, "'count' is not a function"),
        (lambda scan: scan.aggregate(len), UsageError, "is not an aggregate function"),
        (lambda scan: scan.aggregate(sk.sum("kind")), TypeMismatchError, "can't be summed"),
        (lambda scan: scan.aggregate(sk.min("pair")), TypeMismatchError, "needs an ordered column"),
        (lambda scan: scan.aggregate(sk.histogram("kind", 3)), TypeMismatchError, "needs a numeric"),
        (lambda scan: scan.aggregate(sk.sum("amont")), UnknownColumnError, "did you mean amount"),
        (lambda scan: scan.aggregate(sk.count(), group_by="pair"), TypeMismatchError, "can't be grouped by"),
        (lambda scan: scan.aggregate(sk.count(), sk.count()), UsageError, "two result columns"),
        (lambda scan: scan.aggregate(sk.count(), id_column="id"), UsageError, "there is no set of ids"),
        (
            lambda scan: scan.aggregate(sk.count(), within=[1], id_column="kind"),
            TypeMismatchError,
            "not an integer type",
        ),
        (lambda scan: scan.aggregate(sk.count(), engine="flink"), UsageError, "unknown engine 'flink'"),
        (lambda scan: scan.aggregate(sk.count(), threads=2), UsageError, "threads without an engine"),
        (lambda scan: sk.quantile("big", 2), UsageError, "numbers from 0 to 1"),
        (lambda scan: sk.quantile("big", None), UsageError, "numbers from 0 to 1"),
        (lambda scan: scan.aggregate(sk.count(), within=sk.col("id") == 1), UsageError, "not a set"),
        (lambda scan: scan.aggregate(sk.count(), engine="local", threads=0), UsageError, "at least 1"),
        (lambda scan: scan.aggregate(sk.count(), use_cached="no"), UsageError, "True or False"),
        (lambda scan: sk.histogram("big", 0), UsageError, "1 to 100,000 bins"),
        (lambda scan: sk.var("big", ddof=3), UsageError, "1 for a sample"),
    ],
)
def test_invalid_arguments_raise_immediately(
    plain: sk.Lake, ask: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(plain.scan())


def test_a_limit_is_refused(plain: sk.Lake) -> None:
    with pytest.raises(UsageError, match="with a limit"):
        plain.scan(limit=3).aggregate(sk.count())


def test_bounds_of_pages_need_not_be_values(tmp_path: Any) -> None:
    # Polars gives every page the bounds of its row group.
    import polars as pl

    (tmp_path / "lake").mkdir()
    frame = pl.DataFrame({"id": range(100), "x": range(100)})
    frame.write_parquet(tmp_path / "lake" / "a.parquet", data_page_size=64, row_group_size=50)
    lake = sk.open(tmp_path / "lake")
    lake.index.build(engine="local")
    assert lake.scan().aggregate(sk.max("x"), within=[0, 1], id_column="id")["max(x)"] == 1
    assert lake.scan("id < 30").aggregate(sk.max("x"))["max(x)"] == 29


def test_a_column_that_never_had_a_value(tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "nothing": pa.nulls(2)}), tmp_path / "lake" / "a.parquet")
    answer = (
        sk.open(tmp_path / "lake")
        .scan()
        .aggregate(sk.count("nothing"), sk.max("nothing"), sk.sum("nothing"), sk.approx_distinct("nothing"))
    )
    assert list(answer.to_pylist()[0].values()) == [0, None, None, 0]
