"""Advice compared with the truth: what is skipped today, and what is skipped once the lake is rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import PredicateError, ReadError, UsageError
from skipstone.index.advise.advice import Advice, LayoutAdvice
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import sort_batch
from tests.property._lakes import random_lake
from tests.support.samples import sample

ROWS, FILES = 80_000, 8
COUNTRIES = ("AT", "BE", "DE", "ES", "FR", "IT", "NL", "PL", "UK", "US")
START = 1_767_225_600_000_000


def events(rows: int = ROWS) -> pa.Table:
    """``ts`` rises, ``seq`` nearly so; ``user`` repeats, ``id`` and ``name`` never do, in any order.

    ``skew`` has a long tail, ``lon`` follows ``lat``.
    """
    rng = np.random.default_rng(5)
    n = np.arange(rows)
    lat = rng.normal(0, 1, rows)
    return pa.table(
        {
            "ts": pa.array(START + n * 1_000_000, pa.timestamp("us")),
            "seq": n // 10 + rng.integers(0, 300, rows),
            "user": rng.integers(0, 5_000, rows),
            "id": rng.permutation(rows),
            "name": [f"user-{number:06d}" for number in rng.permutation(rows)],
            "country": np.array(COUNTRIES)[rng.integers(0, len(COUNTRIES), rows)],
            "code": np.array([200, 301, 404, 500])[rng.integers(0, 4, rows)],
            "amount": rng.uniform(0, 1_000, rows),
            "refund": pa.array(rng.uniform(0, 10, rows), mask=rng.random(rows) < 0.8),
            "skew": np.minimum(rng.zipf(1.3, rows), 1_000_000),
            "lat": lat,
            "lon": 2 * lat + rng.normal(0, 0.3, rows),
        }
    )


def write(root: Path, table: pa.Table, *, files: int = FILES, pages: bool = True, **settings: Any) -> sk.Lake:
    root.mkdir(parents=True, exist_ok=True)
    per_file = len(table) // files
    for number in range(files):
        pq.write_table(
            table.slice(number * per_file, per_file),
            root / f"{number:03}.parquet",
            write_page_index=pages,
            **{"row_group_size": 2_000, "max_rows_per_page": 500, **settings},
        )
    return sk.open(root)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return events()


@pytest.fixture(scope="module", params=["pages", "row groups"])
def lake(
    request: pytest.FixtureRequest, table: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> sk.Lake:
    return write(tmp_path_factory.mktemp("events") / "lake", table, pages=request.param == "pages")


def kept(lake: sk.Lake, where: str, **switches: Any) -> float:
    """The share of rows that a scan really keeps."""
    trace = lake.scan(where, **switches).plan().trace
    return trace.rows_kept / ROWS


QUESTIONS = [
    "ts >= '2026-01-01 03:00:00' and ts < '2026-01-01 04:00:00'",
    "ts = '2026-01-01 05:00:00'",
    "seq between 3000 and 3100",
    "user = 31",
    "user in (7, 2500, 4999)",
    "id = 40000",
    "id < 800",
    "name = 'user-031000'",
    "name between 'user-010000' and 'user-019999'",
    "country = 'FR'",
    "country in ('AT', 'US')",
    "code = 404",
    "amount between 100 and 150",
    "refund is not null",
    "refund > 9.5",
    "user = 31 and ts < '2026-01-01 06:00:00'",
    "id = 5 or ts < '2026-01-01 00:10:00'",
    "not (country = 'DE')",
    "ts > '2030-01-01'",
]


# -- today -------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", QUESTIONS)
def test_what_is_skipped_today_is_what_a_scan_skips(lake: sk.Lake, where: str) -> None:
    advice = lake.index.advise([where])
    assert advice.skips == pytest.approx(1 - kept(lake, where), abs=0.03)
    if len(advice.by_column) == 1:
        (column,) = advice.by_column
        trace = lake.scan(where, page_index=False).plan().trace
        levels = {level.name: level for level in trace.levels}
        assert column.skip_files == pytest.approx(1 - levels["files"].rows / ROWS, abs=1e-9)
        assert column.skip_row_groups == pytest.approx(1 - levels["row groups"].rows / ROWS, abs=1e-9)
        assert (column.skip_pages is None) == (
            column.skip_row_groups == 1.0 or "pages" not in lake_levels(lake, where)
        )


def lake_levels(lake: sk.Lake, where: str) -> set[str]:
    return {level.name for level in lake.scan(where).plan().trace.levels}


def test_a_mean_is_weighted(lake: sk.Lake) -> None:
    wheres = ["id = 40000", "ts = '2026-01-01 05:00:00'"]
    advice = lake.index.advise([(wheres[0], 3), (wheres[1], 1)])
    truth = (3 * kept(lake, wheres[0]) + kept(lake, wheres[1])) / 4
    assert 1 - advice.skips == pytest.approx(truth, abs=0.03)
    assert (advice["id"].used, advice["ts"].used, advice.understood) == (3, 1, 2)


def test_a_sample_of_some_files_comes_close(table: pa.Table, tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", table, files=40)
    size = sum(entry.size for entry in lake.files)
    for where in ("id < 800", "user = 31", "ts < '2026-01-01 11:00:00'", "seq between 3000 and 3100"):
        assert lake.query_schema is not None  # read from every footer of a lake this small
        before = lake.io
        advice = lake.index.advise([where], sample=10)
        assert (advice.sampled, advice.files, advice.sampled_rows) == (10, 40, ROWS / 4)
        assert 1 - advice.skips == pytest.approx(kept(lake, where), abs=0.1), where
        assert 0.95 < advice.rows / ROWS < 1.05
        # A quarter of one column, and page indexes.
        assert 0 < (lake.io - before).bytes < size / 10


def test_of_a_large_lake_some_rows_are_read(tmp_path: Path) -> None:
    """The same rows each time."""
    rows = 2_000_000
    pq.write_table(
        pa.table({"id": np.random.default_rng(3).permutation(rows)}),
        tmp_path / "a.parquet",
        row_group_size=250_000,
        write_page_index=True,
        max_rows_per_page=1_000,
    )
    advice = sk.open(tmp_path).index.advise(["id = 500000"])
    assert 90_000 < advice.sampled_rows <= 100_000
    assert advice.rows == rows
    (best,) = advice.layouts
    assert best.columns == ("id",)
    assert 1_000 / rows / 2 <= 1 - best.after <= 2 * 1_000 / rows
    assert sk.open(tmp_path).index.advise(["id = 500000"]) == advice


def test_chunks_without_a_page_index_are_read_within_a_limit(tmp_path: Path) -> None:
    rows = 2_000_000
    values = np.random.default_rng(3).integers(0, 2**62, rows)
    pq.write_table(
        pa.table({"a": values, "b": values[::-1], "c": np.arange(rows)}),
        tmp_path / "a.parquet",
        row_group_size=50_000,
        use_dictionary=False,
        compression="none",
    )
    lake = sk.open(tmp_path)
    advice = lake.index.advise(["a = 5", "b = 5", f"a = {values[7]}"])
    assert advice["a"].skip_pages is None
    assert {"a", "b"} <= {name for layout in advice.layouts for name in layout.columns}
    assert lake.io.bytes < rows * 3 * 8
    assert (lake.index.advise(["c = 5"]).skips, lake.index.advise(["c = 5"]).layouts) == (1 - 1 / 40, ())


# -- bloom filters -----------------------------------------------------------------------------


def test_blooms_pay_where_bounds_say_nothing_and_values_are_many(lake: sk.Lake) -> None:
    asked = ["id = 40000", "user = 31", "country = 'FR'", "ts = '2026-01-01 05:00:00'", "code = 404"]
    advice = lake.index.advise(asked)
    assert set(advice.blooms) == {"id", "user"}
    assert "ts" in advice.columns
    assert not {"country", "code"} & set(advice.columns)
    assert advice["country"].skip_with_bloom == pytest.approx(0, abs=0.05)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "where", ["id = 40000", "user = 31", "user in (7, 2500, 4999)", "name = 'user-031000'", "skew = 77"]
)
def test_the_gain_of_blooms_is_near_the_truth(table: pa.Table, tmp_path: Path, where: str) -> None:
    """An index has a filter for each page. Of all files, and of some."""
    column = where.split(maxsplit=1)[0]
    lake = write(tmp_path / "lake", table.select([column]), files=40)
    advised = [lake.index.advise([where], sample=files)[column] for files in (64, 10)]
    before = kept(lake, where)
    lake.index.build(columns=[column], blooms=[column], engine="local")
    truth = kept(lake, where)
    assert 0 < truth < before
    size = lake.index.status().sizes.blooms
    for advice in advised:
        assert advice.skip_with_bloom is not None
        assert truth / 2 - 0.01 <= 1 - advice.skip_with_bloom <= 2 * truth + 0.01
        assert size / 2.1 <= advice.bloom_bytes <= 2.1 * size


def test_files_may_have_bloom_filters_already(table: pa.Table, tmp_path: Path) -> None:
    options = {"bloom_filter_options": {"id": {"ndv": 2_000, "fpp": 0.01}}}
    advice = write(tmp_path, table, **options).index.advise(["id = 40000"])["id"]
    assert not advice.bloom
    assert "already" in advice.why


def test_bytes_of_blooms(lake: sk.Lake) -> None:
    advice = lake.index.advise(["id = 1", "country = 'FR'"])
    units, size = (ROWS // 500, 1_024) if advice["id"].skip_pages is not None else (ROWS // 2_000, 4_096)
    assert advice["id"].bloom_bytes == units * size  # 1.5 bytes for each value, to a power of two
    assert advice["country"].bloom_bytes == units * 32


def test_bytes_of_an_index(lake: sk.Lake) -> None:
    advice = lake.index.advise(["id = 1", "name = 'user-000001'"])
    pages = ROWS // 500 if advice["id"].skip_pages is not None else 0
    units = ROWS // 2_000 + pages
    assert advice["id"].index_bytes == FILES * 29 + units * 17
    assert advice["name"].index_bytes == FILES * (29 + 22) + units * (17 + 22)


# -- layouts -----------------------------------------------------------------------------------


WORKLOADS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unique": ("id", ("id = 40000", "id = 777", "id between 10000 and 14000")),
    "repeated": ("user", ("user = 31", "user = 4100", "user between 1000 and 1200")),
    "strings": ("name", ("name = 'user-031000'", "name between 'user-010000' and 'user-019999'")),
    "few strings": ("country", ("country = 'FR'", "country = 'US'", "country in ('DE', 'PL')")),
    "few numbers": ("code", ("code = 200", "code = 404", "code = 500")),
    "floats": ("amount", ("amount between 100 and 150", "amount < 90")),
    "NULLs": ("refund", ("refund between 2 and 3", "refund is not null", "refund < 1")),
    "only NULLs": ("refund", ("refund is null",)),
    "skewed": ("skew", ("skew = 1", "skew between 100 and 200", "skew = 5")),
    "correlated": ("lat lon", ("lat between 0.1 and 0.2 and lon < 0.3", "lon between 1 and 1.1")),
    "independent": ("id user", ("id = 40000", "user = 31", "id < 4000", "user between 1000 and 1200")),
    "beside a sorted one": ("amount ts", ("amount between 100 and 150", "ts = '2026-01-01 05:00:00'")),
}
"""By what it shows: the columns of a layout that must be advised, and the questions."""
EVERY_TIME = ("repeated", "few strings", "NULLs", "skewed", "correlated", "independent")
SOME = [pytest.param(name, marks=() if name in EVERY_TIME else pytest.mark.slow) for name in WORKLOADS]


def rewritten(root: Path, table: pa.Table, layout: LayoutAdvice, **sizes: Any) -> sk.Lake:
    """The table as ``ingest`` would order it, in files of the same sizes as before."""
    return write(root, sort_batch(table, PageLayout(cluster_by=layout.columns, cluster=layout.kind)), **sizes)


def asked_of(table: pa.Table, wheres: tuple[str, ...]) -> pa.Table:
    """The columns that questions name: others only take time."""
    return table.select([name for name in table.schema.names if any(name in where for where in wheres)])


def mean_kept(lake: sk.Lake, wheres: tuple[str, ...], rows: int = ROWS) -> float:
    return float(np.mean([lake.scan(where).plan().trace.rows_kept / rows for where in wheres]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_layouts_do_what_is_predicted(lake: sk.Lake, table: pa.Table, tmp_path: Path, workload: str) -> None:
    by, wheres = WORKLOADS[workload]
    pages = "pages" in lake_levels(lake, "user = 31")
    advice = lake.index.advise(wheres)
    assert 1 - advice.skips == pytest.approx(mean_kept(lake, wheres), abs=0.03)
    layouts = {frozenset(layout.columns): layout for layout in advice.layouts}
    wanted = layouts[frozenset(by.split())]
    for number, layout in enumerate({wanted, advice.layouts[0]}):
        other = rewritten(tmp_path / str(number), asked_of(table, wheres), layout, pages=pages)
        truth = mean_kept(other, wheres)
        assert 1 - layout.after == pytest.approx(truth, rel=0.1), str(layout)
        assert 0 < truth < mean_kept(lake, wheres)


@pytest.mark.parametrize("workload", SOME)
def test_layouts_do_what_some_files_predict(table: pa.Table, tmp_path: Path, workload: str) -> None:
    by, wheres = WORKLOADS[workload]
    mine = asked_of(table, wheres)
    lake = write(tmp_path / "lake", mine, files=40)
    layouts = {frozenset(layout.columns): layout for layout in lake.index.advise(wheres, sample=10).layouts}
    layout = layouts[frozenset(by.split())]
    truth = mean_kept(rewritten(tmp_path / "other", mine, layout, files=40), wheres)
    page = 500 / ROWS
    assert truth / 1.5 - page <= 1 - layout.after <= 1.5 * truth + page


LARGE: dict[str, Any] = {"files": 4, "row_group_size": 50_000, "max_rows_per_page": 1_000}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, sk.Lake]:
    """Of this lake a quarter of the rows is read."""
    table = events(4 * 100_000)
    return table, write(tmp_path_factory.mktemp("large"), table, **LARGE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workload", SOME)
def test_layouts_do_what_some_rows_predict(
    large: tuple[pa.Table, sk.Lake], tmp_path: Path, workload: str
) -> None:
    table, lake = large
    by, wheres = WORKLOADS[workload]
    advice = lake.index.advise(wheres)
    assert 90_000 < advice.sampled_rows <= 100_000
    layouts = {frozenset(layout.columns): layout for layout in advice.layouts}
    layout = layouts[frozenset(by.split())]
    truth = mean_kept(rewritten(tmp_path, asked_of(table, wheres), layout, **LARGE), wheres, len(table))
    page = 1_000 / len(table)
    assert truth / 1.5 - page <= 1 - layout.after <= 1.5 * truth + page


SORTED = (
    ("ts = '2026-01-01 05:00:00'",),
    ("ts between '2026-01-01 02:00:00' and '2026-01-01 03:00:00'", "ts < '2026-01-01 00:00:30'"),
    ("seq between 3000 and 4000", "ts = '2026-01-01 05:00:00'"),
    ("ts > '2030-01-01'",),
)


@pytest.mark.parametrize("wheres", SORTED)
def test_a_sorted_lake_needs_no_other_order(table: pa.Table, tmp_path: Path, wheres: tuple[str, ...]) -> None:
    lake = write(tmp_path / "lake", asked_of(table, wheres), files=40)
    for files in (64, 10):
        assert lake.index.advise(wheres, sample=files).layouts == ()


@pytest.mark.parametrize("wheres", SORTED)
def test_a_large_sorted_lake_needs_no_other_order(
    large: tuple[pa.Table, sk.Lake], wheres: tuple[str, ...]
) -> None:
    assert large[1].index.advise(wheres).layouts == ()


def test_ranges_that_no_sampled_row_lies_in(tmp_path: Path) -> None:
    """Rows that are proven to match are read in any order, though the sample may have none of them."""
    rows = 2_000_000
    pq.write_table(
        pa.table({"ts": np.arange(rows)}),
        tmp_path / "a.parquet",
        row_group_size=250_000,
        write_page_index=True,
        max_rows_per_page=1_000,
    )
    lake = sk.open(tmp_path)
    for start in range(500, rows, rows // 10):
        advice = lake.index.advise([f"ts between {start} and {start + 3_000}"])
        assert 1 - advice.skips == pytest.approx(4_000 / rows)
        assert advice.layouts == ()


def test_values_at_the_ends_of_a_column_that_is_not_sorted(
    large: tuple[pa.Table, sk.Lake], tmp_path: Path
) -> None:
    """Few rows of a page hardly ever have its least value; what is predicted must not rely on that."""
    table, lake = large
    wheres = ("user between 1000 and 1200", "user = 2500", "name = 'user-000400'")
    layouts = [layout for layout in lake.index.advise(wheres).layouts if layout.kind == "sort"]
    assert ("user",) in {layout.columns for layout in layouts}
    for layout in layouts:
        other = rewritten(tmp_path / str(layout), asked_of(table, wheres), layout, **LARGE)
        truth = mean_kept(other, wheres, len(table))
        assert truth / 1.5 <= 1 - layout.after <= 1.5 * truth, str(layout)


def test_the_best_layout_comes_first(lake: sk.Lake) -> None:
    advice = lake.index.advise([("id = 40000", 9), "ts = '2026-01-01 05:00:00'"])
    best = advice.layouts[0]
    assert (best.columns, best.kind) == (("id",), "sort") or (best.kind == "zorder" and "id" in best.columns)
    shares = [round(layout.after, 2) for layout in advice.layouts]
    assert shares == sorted(shares, reverse=True)
    assert all(layout.factor > 1 and layout.before == advice.skips for layout in advice.layouts)
    alone = lake.index.advise(["id = 40000"]).layouts
    assert [layout.columns for layout in alone] == [("id",)]
    assert alone[0].factor > 20


# -- without questions -------------------------------------------------------------------------


def test_no_order_skips_rows_that_match(tmp_path: Path) -> None:
    """NaN is the largest number: blocks of nothing else match as well."""
    values = np.random.default_rng(5).random(50_000)
    values[values < 0.9] = np.nan
    pq.write_table(pa.table({"z": values}), tmp_path / "f.parquet", row_group_size=10_000)
    lake = sk.open(tmp_path)
    assert lake.scan("z > 0.5").count() == 50_000
    assert lake.index.advise(["z > 0.5"]).layouts == ()


def test_without_questions_the_data_speak(lake: sk.Lake) -> None:
    advice = lake.index.advise()
    assert advice.synthetic
    assert advice.understood == 0
    assert {"ts", "seq"} <= set(advice.columns)
    assert not {"country", "code"} & {*advice.columns, *advice.blooms}
    assert {"id", "name"} <= set(advice.blooms)
    assert {column.name for column in advice.by_column} == set(lake.schema.names)


# -- query logs --------------------------------------------------------------------------------


def test_a_query_log(lake: sk.Lake, tmp_path: Path) -> None:
    log = tmp_path / "queries.sql"
    log.write_text(
        """
        -- what was asked on Monday
        # and on Tuesday
        id = 40000;
        SELECT e.id, count(*) FROM lake.events e WHERE e.id = 40000 AND e.user > 3 GROUP BY 1 LIMIT 5
        select * from events
        {"where": "user = 31", "count": 3}
        {"where": 7}
        {broken
        nope = 3
        id = 'abc' and
        select * from a join b on a.x = b.x where a.id = 1
        {"where": "user = 31", "count": -1}
        """
    )
    advice = lake.index.advise(log)
    assert advice.understood == 4
    assert (advice["id"].used, advice["user"].used) == (2, 4)
    assert [refused.line for refused in advice.refused] == [8, 9, 10, 11, 12, 13]
    reasons = " ".join(refused.reason for refused in advice.refused)
    assert "unknown column" in reasons
    assert "exactly one table" in reasons
    assert lake.index.advise(str(log)) == advice


def test_many_questions_are_thinned_without_bias(lake: sk.Lake) -> None:
    many: list[Any] = [f"id = {number}" for number in range(500, 1_100)]
    many += [(f"ts > '20{year}-01-01'", 50) for year in range(30, 42)]
    advice = lake.index.advise(many)
    assert advice.understood == 612
    assert advice["id"].used == pytest.approx(600, rel=0.01)
    assert advice["ts"].used == pytest.approx(600, rel=0.01)
    truth = (1 - kept(lake, "id = 700")) / 2 + 1 / 2
    assert advice.skips == pytest.approx(truth, abs=0.1)


def test_other_forms_of_predicates(lake: sk.Lake) -> None:
    forms: list[Any] = [pc.field("id") == 4, sk.col("id") == 4, ("id = 4", 2.5), sk.parse("id = 4")]
    advice = lake.index.advise(forms)
    assert (advice.understood, advice["id"].used) == (4, 5.5)


def test_what_metadata_cannot_judge_is_said(lake: sk.Lake) -> None:
    advice = lake.index.advise(["id = 4 and reverse(name) = 'x'"])
    assert "can't judge" in advice["name"].why
    assert not advice["name"].index


# -- bad input ---------------------------------------------------------------------------------


def test_no_question_at_all(lake: sk.Lake, tmp_path: Path) -> None:
    (tmp_path / "empty.sql").write_text("\n-- nothing\n\n")
    for queries in ([], tmp_path / "empty.sql"):
        with pytest.raises(UsageError, match="no queries to advise on"):
            lake.index.advise(queries)


def test_no_question_is_understood(lake: sk.Lake) -> None:
    with pytest.raises(PredicateError, match="nope"):
        lake.index.advise(["nope = 3", "also wrong ="])


def test_an_unreadable_log(lake: sk.Lake, tmp_path: Path) -> None:
    for path in (tmp_path / "absent.sql", "id = 4", tmp_path, "a\0b"):
        with pytest.raises(ReadError, match="query log"):
            lake.index.advise(path)


@pytest.mark.parametrize("queries", [7, b"id = 4", {"id": 4}, sk.col("id") == 4])
def test_questions_of_a_wrong_type(lake: sk.Lake, queries: Any) -> None:
    with pytest.raises(UsageError, match="queries must be a list or a path, got"):
        lake.index.advise(queries)


@pytest.mark.parametrize("wrong", [7, ("id = 4", 0), ("id = 4", "many"), ("id = 4", float("nan")), "ts = 3"])
def test_one_wrong_question_is_reported(lake: sk.Lake, wrong: Any) -> None:
    advice = lake.index.advise(["id = 4", wrong])
    assert advice.understood == 1
    assert [refused.line for refused in advice.refused] == [2]


@pytest.mark.parametrize("sample", [0, -1, 2.5, True, None])
def test_a_sample_of_a_wrong_size(lake: sk.Lake, sample: Any) -> None:
    with pytest.raises(UsageError, match="sample"):
        lake.index.advise(["id = 4"], sample=sample)


# -- odd lakes ---------------------------------------------------------------------------------


def drawn(advice: Advice) -> str:
    json.dumps(advice.to_json(), allow_nan=False)
    assert advice._repr_html_().startswith("<div")
    return str(advice)


def test_one_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [3, 1, 2]}), tmp_path / "a.parquet")
    for queries in (["a = 2"], None):
        advice = sk.open(tmp_path / "a.parquet").index.advise(queries)
        assert (advice.files, advice.rows) == (1, 3)
        assert drawn(advice)


def test_no_rows(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    for queries in (["a = 2 and s = 'x'"], None):
        advice = sk.open(tmp_path).index.advise(queries)
        assert (advice.rows, advice.skips, advice.columns, advice.layouts) == (0, 0, (), ())
        assert "Neither" in drawn(advice)


def test_no_files(tmp_path: Path) -> None:
    lake = sk.open(tmp_path, schema=pa.schema([("a", pa.int64())]))
    assert lake.index.advise(["a = 2"]).files == 0
    assert lake.index.advise().layouts == ()


def test_partitions(table: pa.Table, tmp_path: Path) -> None:
    for number in range(8):
        write(tmp_path / f"day=2026-01-0{number + 1}", table.slice(number * ROWS // 8, ROWS // 8), files=2)
    lake = sk.open(tmp_path)
    where = "day = '2026-01-03' and id = 40000"
    advice = lake.index.advise([where])
    trace = lake.scan(where).plan().trace
    assert 1 - advice.skips == pytest.approx(trace.rows_kept / ROWS, abs=0.01)
    day = advice["day"]
    assert (day.skip_files, day.index, day.bloom, day.index_bytes) == (0.875, False, False, 0)
    assert "partition column" in day.why
    # Sorted within its partition: one page of the eighth that the day leaves.
    (best,) = [layout for layout in advice.layouts if layout.columns == ("id",)]
    assert 500 / ROWS / 2 <= 1 - best.after <= 2 * 500 / ROWS
    assert "day" in {column.name for column in lake.index.advise(["id = 4"]).by_column}
    assert drawn(advice)


def test_nested_columns_and_every_type(tmp_path: Path) -> None:
    n = 400
    table = pa.table(
        {
            "s": [{"x": i, "y": [i]} for i in range(n)],
            "list": [[i] for i in range(n)],
            "map": pa.array([[(str(i), i)] for i in range(n)], pa.map_(pa.string(), pa.int64())),
            "big": pa.array([2**63 + i for i in range(n)], pa.uint64()),
            "small": pa.array(range(-200, 200), pa.int16()),
            "flag": [i % 2 == 0 for i in range(n)],
            "float": pa.array([i / 3 if i % 5 else float("nan") for i in range(n)], pa.float32()),
            "infinite": [float("inf") if i % 2 else float("-inf") for i in range(n)],
            "huge": [1.7e308 if i % 2 else -1.7e308 for i in range(n)],
            "binary": [bytes([i % 256]) for i in range(n)],
            "decimal": pa.array(range(n), pa.int64()).cast(pa.decimal128(30, 2)),
            "date": pa.array(range(n), pa.date32()),
            "time": pa.array(range(n), pa.time64("us")),
            "zoned": pa.array(range(n), pa.timestamp("ns", "UTC")),
            "duration": pa.array(range(n), pa.duration("us")),
            "empty": pa.nulls(n, pa.string()),
            "nothing": pa.nulls(n),
            "text": ["ä" * (i % 7) for i in range(n)],
            "category": pa.array([str(i % 3) for i in range(n)]).dictionary_encode(),
            "a.b": range(n),
        }
    )
    for number in range(2):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100, write_page_index=True)
    lake = sk.open(tmp_path)
    advice = lake.index.advise()
    assert {"s.x", "big", "small", "decimal", "zoned"} <= set(advice.columns)
    assert drawn(advice)
    asked = [
        "s.x = 3 and list is not null",
        "empty = 'x'",
        "s is null",
        "`a.b` > 390",
        "float > 100",
        "nothing is null",
    ]
    advice = lake.index.advise(asked)
    assert advice.refused == ()
    assert advice["s.x"].skip_row_groups == 0.75
    assert "type has no order" in advice["s"].why
    assert drawn(advice)


def test_random_lakes(tmp_path: Path) -> None:
    """Whatever the files hold: advice comes without a complaint, and today's skips are a scan's."""
    judged = 0
    lakes = sample("advice")
    for number in range(lakes):
        made = random_lake(f"advice:{number}", tmp_path / str(number))
        lake = sk.open(tmp_path / str(number), schema=made.schema if made.explicit else None)
        assert drawn(lake.index.advise())
        rows = lake.statistics([]).rows
        for field in lake.schema:
            where = sk.col(field.name).is_null()
            advice = lake.index.advise([where])
            trace = lake.scan(where, bloom_filter=False).plan().trace
            share = trace.rows_kept / rows if rows else 1.0
            assert 1 - advice.skips == pytest.approx(share, abs=0.1), f"{made.words}: {field}"
            judged += share < 1
    assert judged > 0.8 * lakes


def test_files_without_statistics(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(1_000)}), tmp_path / "a.parquet", write_statistics=False)
    advice = sk.open(tmp_path).index.advise(["a = 3"])
    assert (advice["a"].skip_row_groups, advice.columns, advice.layouts) == (0, (), ())
    assert "no bounds" in advice["a"].why or advice["a"].bloom
