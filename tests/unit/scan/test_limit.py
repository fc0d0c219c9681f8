from __future__ import annotations

import pytest

from skipstone.errors import UsageError


@pytest.mark.parametrize("where", [None, "id >= 7", "kind = 'kind 3'", "x > 2.5", "id < 0"])
@pytest.mark.parametrize("limit", [0, 1, 7, 2_000, 10**9])
def test_no_more_rows_than_match(lake, where, limit):
    matching = {*lake.scan(where, columns="id").to_arrow()["id"].to_pylist()}
    scan = lake.scan(where, columns=["id"], limit=limit)
    found = scan.to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found)) == min(limit, len(matching)) == scan.count()
    assert set(found) <= matching


def test_proven_rows_are_enough(lake):
    lake.scan("id >= 1234").plan()
    before = lake.io
    plan = lake.scan("id >= 1234 and part = 0", limit=10).plan()
    (task,) = plan.tasks
    assert task.rows == task.proven
    assert len(task.rows) == 10
    assert plan.residual is None
    assert (lake.io - before).bytes == 0


def test_a_limit_alone_opens_few_footers(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    import skipstone as sk

    for n in range(40):
        pq.write_table(pa.table({"id": [n]}), tmp_path / f"{n:02d}.parquet")
    lake = sk.open(tmp_path, schema=pa.schema({"id": pa.int64()}))
    assert lake.scan(limit=3).to_arrow()["id"].to_pylist() == [0, 1, 2]
    assert lake.io.requests == 8 + 3
    assert lake.scan(limit=20).to_arrow()["id"].to_pylist() == list(range(20))


def test_a_filter_with_a_limit_stops_early(lake):
    lake.scan("x > 1").plan()
    run = lake.scan("x > 1", limit=5, threads=1, batch_rows=100).execute()
    assert run.to_arrow().num_rows == 5
    assert run.trace.run.pieces == 1
    assert run.trace.run.bytes < 100_000


@pytest.mark.parametrize("limit", [-1, 2.5, "3", True])
def test_what_is_no_limit(lake, limit):
    with pytest.raises(UsageError, match="limit"):
        lake.scan(limit=limit)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", [None, "kind = 'kind 3'", "x < 1"])
@pytest.mark.parametrize("order", ["x", "x desc", "x desc nulls first", ["kind", "id desc"], ["part", "x"]])
def test_order(lake, where, order):
    terms = [order] if isinstance(order, str) else order
    names = [term.split()[0] for term in terms]
    rows = lake.scan(where, columns=names).to_arrow().to_pylist()
    for term in reversed(terms):
        name, *rest = term.split()
        descending, nulls_first = "desc" in rest, "first" in rest or "desc" not in rest
        known = [row for row in rows if row[name] is not None]
        known.sort(key=lambda row, name=name: row[name], reverse=descending)
        nulls = [row for row in rows if row[name] is None]
        rows = nulls + known if nulls_first else known + nulls
    for limit in (None, 1, 25):
        scan = lake.scan(where, order_by=order, limit=limit)
        wanted = rows[:limit]
        assert scan.to_arrow().select(names).to_pylist() == wanted
        assert scan.count() == len(wanted)


def test_top_k_visits_few_row_groups(lake):
    run = lake.scan("x < 9", order_by="id desc", limit=10, threads=1).execute()
    assert run.to_arrow()["id"].to_pylist() == list(range(39_999, 39_989, -1))
    assert run.trace.run.pieces == 1


def test_without_skipping_top_k_visits_every_row_group(lake):
    run = lake.scan(order_by="id desc", limit=10, skipping=False).execute()
    assert run.to_arrow()["id"].to_pylist() == list(range(39_999, 39_989, -1))
    assert run.trace.run.pieces == 16


def test_a_plan_cut_to_proven_rows_says_so(lake):
    plan = lake.scan("id < 30000 and part = 0").plan().limited(7)
    assert (plan.trace.limit, plan.trace.rows_kept, plan.trace.residual) == (7, 7, "")
