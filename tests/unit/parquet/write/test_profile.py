import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import UnknownColumnError
from skipstone.parquet.write.columns import leaf_paths, stored_schema
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Distinct, Profile, profile, writer_options
from tests.unit.parquet.write._tables import hexes, make_events, page_index

ROWS = 20_000


def column(kind: str, rng: np.random.Generator) -> pa.Array:
    words = pa.array([f"word{number}" for number in range(3_000)])
    makers: dict[str, Any] = {
        "unique ids": lambda: np.arange(ROWS),
        "random ids": lambda: rng.integers(0, 2**60, ROWS),
        "random floats": lambda: rng.random(ROWS),
        "hex": lambda: hexes(rng, ROWS),
        "payload": lambda: [f"{a} {b} {c}" for a, b, c in rng.integers(0, 10**6, (ROWS, 3))],
        "users, each a few times": lambda: rng.integers(0, 8_000, ROWS) * 1_000_003,
        "words, too many": lambda: words.take(rng.integers(0, 3_000, ROWS)),
        "sorted times": lambda: pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
        "booleans": lambda: rng.random(ROWS) < 0.5,
        "nulls": lambda: pa.nulls(ROWS, pa.string()),
        "kinds": lambda: pa.array(["view", "click", "cart"]).take(rng.integers(0, 3, ROWS)),
        "countries": lambda: words.take(rng.zipf(1.3, ROWS) % 200),
        "true and false as text": lambda: pa.array(["true", "false"]).take(rng.integers(0, 2, ROWS)),
        "repeated ints": lambda: rng.integers(0, 50, ROWS) * 1_000_003,
        "one text": lambda: ["always the same"] * ROWS,
        "kinds and nulls": lambda: pa.array(["a", "b", None]).take(rng.integers(0, 3, ROWS)),
        "days": lambda: pa.array(rng.integers(20_000, 20_300, ROWS), pa.int32()).cast(pa.date32()),
        "prices": lambda: (
            pa.array(rng.integers(1, 30, ROWS)).cast(pa.decimal128(22, 0)).cast(pa.decimal128(22, 2))
        ),
    }
    return pa.array(makers[kind]())


ON = [
    "kinds",
    "countries",
    "true and false as text",
    "repeated ints",
    "one text",
    "kinds and nulls",
    "days",
    "prices",
]
OFF = [
    "unique ids",
    "random ids",
    "random floats",
    "hex",
    "payload",
    "users, each a few times",
    "words, too many",
    "sorted times",
    "booleans",
    "nulls",
]


@pytest.mark.parametrize("kind", ON + OFF)
def test_where_a_dictionary_pays(kind: str) -> None:
    table = pa.table({"c": column(kind, np.random.default_rng(0))})
    assert profile(table, PageLayout()).dictionary == (("c",) if kind in ON else ())
    # A small sample says the same.
    assert profile(table.slice(0, 4_000), PageLayout()).dictionary == (("c",) if kind in ON else ())


def test_fewer_rows_a_page_allow_smaller_dictionaries() -> None:
    words = pa.array([f"a rather long word {number * 7919 % 10**6}" for number in range(1_000)])
    table = pa.table({"c": words.take(np.random.default_rng(0).integers(0, 1_000, ROWS))})
    assert profile(table, PageLayout(page_rows=5_000)).dictionary == ("c",)
    assert profile(table, PageLayout(page_rows=1_000)).dictionary == ()


def test_dictionaries_that_are_asked_for() -> None:
    table = make_events(2_000).append_column("s", pa.array([{"x": 1, "y": "a"}] * 2_000))
    assert profile(table, PageLayout(dictionary=())).dictionary == ()
    assert profile(table, PageLayout(dictionary=("session", "s"))).dictionary == ("session", "s.x", "s.y")
    assert profile(table, PageLayout(dictionary=("s.y",))).dictionary == ("s.y",)


def test_leaves_of_nested_columns() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2**60, 8_000).tolist()
    rows = [
        {
            "m": [("k", one), ("l", one + 1)][: row % 3],
            "l": None if row % 7 == 0 else [{"id": one, "kind": "ab"[row % 2]}] * (row % 3),
            "s": {"id": one, "in": {"kind": "xy"[row % 2]}} if row % 5 else None,
        }
        for row, one in enumerate(ids)
    ]
    item = pa.struct([("id", pa.int64()), ("kind", pa.string())])
    schema = pa.schema(
        [
            ("m", pa.map_(pa.string(), pa.int64())),
            ("l", pa.list_(item)),
            ("s", pa.struct([("id", pa.int64()), ("in", pa.struct([("kind", pa.string())]))])),
        ]
    )
    table = pa.Table.from_pylist(rows, schema)
    assert profile(table, PageLayout()).dictionary == ("m.key_value.key", "l.list.element.kind", "s.in.kind")
    # A slice is counted without what is left and right of it.
    assert (
        profile(table.slice(3_000, 4_000), PageLayout()).dictionary == profile(table, PageLayout()).dictionary
    )


@pytest.mark.parametrize(
    ("spread", "truth"),
    [
        (lambda rng, n: np.arange(n), 1_000_000),
        (lambda rng, n: rng.integers(0, 20, n), 20),
        (lambda rng, n: rng.integers(0, 4_000_000, n), 885_000),
        (lambda rng, n: rng.zipf(1.5, n), 9_600),
    ],
    ids=["unique", "few", "many", "skewed"],
)
def test_distinct_values_of_a_row_group(spread: Any, truth: int) -> None:
    sample = pa.table({"c": spread(np.random.default_rng(0), 20_000)})
    ((name, found),) = profile(sample, PageLayout(blooms=("c",))).distinct
    assert name == "c"
    assert truth * 0.6 <= found.among(1_000_000) <= truth * 1.6
    assert found.among(20_000) == found.distinct
    assert 0 < found.among(100) <= 100


def test_nothing_has_no_distinct_values() -> None:
    assert Distinct(0, 0, 0).among(100) == 0
    assert Distinct(5, 1, 1).among(0) == 1


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_bytes_per_row(compression: str) -> None:
    table = make_events(40_000)
    layout = PageLayout(compression=compression, page_rows=2_000)
    guess = profile(table.slice(0, 8_000), layout)
    sink = io.BytesIO()
    options = writer_options(layout, guess, stored_schema(table.schema))
    with pq.ParquetWriter(sink, **options) as writer:
        writer.write_table(table)
    assert 0.95 < guess.bytes_per_row * 40_000 / len(sink.getvalue()) < 1.05
    pages = pq.read_metadata(sink).row_group(0).total_byte_size
    tail = guess.tail_bytes(layout, 40_000, 1)
    if compression == "none":
        assert 0.5 < tail / (len(sink.getvalue()) - pages) < 2


def test_an_empty_sample() -> None:
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.string()),
            ("l", pa.list_(pa.int32())),
            ("s", pa.struct([("x", pa.bool_()), ("m", pa.map_(pa.string(), pa.date32()))])),
        ]
    )
    found = profile(schema.empty_table(), PageLayout(blooms=("a",)))
    assert found.bytes_per_row == 8 + 16 + 4 * 4 + 1 / 8 + 4 * (16 + 4)
    assert (found.dictionary, found.distinct, found.leaves) == ((), (("a", Distinct(0, 0, 0)),), 6)
    assert pickle.loads(pickle.dumps(found)) == found
    # Filters are large enough for whatever comes.
    options = writer_options(PageLayout(blooms=("a",), bloom_fpp=0.1), found, schema)
    assert options["bloom_filter_options"] == {"a": {"ndv": 1_000_000, "fpp": 0.1}}


def test_a_sample_of_nulls_and_odd_types() -> None:
    table = pa.table(
        {
            "n": pa.nulls(100),
            "h": pa.array(np.arange(100).astype(np.float16)),
            "v": pa.array(["a"] * 100, pa.string_view()),
            "u": pa.array([b"0123456789abcdef"] * 100, pa.uuid()),
            "d": pa.array(["a", "b"] * 50).dictionary_encode(),
            "r": pa.array(["a", "b"] * 50),
        }
    )
    found = profile(table, PageLayout(page_rows=100))
    assert found.leaves == 6
    assert set(found.dictionary) <= {"v", "u", "d", "r"}
    assert found.bytes_per_row > 0


def test_partition_columns_are_not_in_the_files() -> None:
    layout = PageLayout(partition_by=("kind",))
    table = make_events(3_000)
    assert profile(table, layout).leaves == len(table.column_names) - 1
    assert "kind" not in profile(table, layout).dictionary
    with pytest.raises(UnknownColumnError):
        profile(table.drop_columns(["kind"]), layout)


@pytest.mark.parametrize("page_rows", [100, 1_000, 5_000])
def test_files_have_what_was_asked_for(tmp_path: Any, page_rows: int) -> None:
    table = make_events(11_000).append_column(
        "s", pa.array([{"x": n % 9, "l": [n, n]} for n in range(11_000)])
    )
    layout = PageLayout(page_rows=page_rows, blooms=("user", "s.x"), cluster_by=("id", "s.x"))
    schema = stored_schema(table.schema)
    options = writer_options(layout, profile(table, layout), schema)
    path = tmp_path / "f.parquet"
    with pq.ParquetWriter(path, **options) as writer:
        writer.write_table(table.cast(schema), row_group_size=6_000)
    metadata = pq.read_metadata(path)
    paths = leaf_paths(schema)
    group = metadata.row_group(1)
    chunks = {chunk.path_in_schema: chunk for chunk in (group.column(at) for at in range(len(paths)))}
    assert all(chunk.has_column_index and chunk.has_offset_index for chunk in chunks.values())
    assert [name for name, chunk in chunks.items() if chunk.bloom_filter_offset] == ["user", "s.x"]
    coded = [name for name, chunk in chunks.items() if chunk.has_dictionary_page]
    assert coded == list(options["use_dictionary"])
    assert {"kind", "level"} <= set(coded) <= {"kind", "level", "s.x"}
    assert {chunk.compression for chunk in chunks.values()} == {"ZSTD"}
    assert [(c.column_index, c.descending, c.nulls_first) for c in group.sorting_columns] == [
        (paths.index("id"), False, True),
        (paths.index("s.x"), False, True),
    ]
    assert metadata.metadata is None
    for number, rows in enumerate((6_000, 5_000)):
        counts = [min(page_rows, rows - start) for start in range(0, rows, page_rows)]
        for leaf in range(len(paths)):
            assert page_index(path, number, leaf).row_counts.tolist() == counts
    assert pq.read_table(path, page_checksum_verification=True).equals(table.cast(schema))
    assert sk.read_metadata(path).num_rows == 11_000


def test_no_order_is_claimed_along_a_curve() -> None:
    table = make_events(100)
    blank = Profile(1.0, (), (), 0)
    for layout in (PageLayout(cluster="hilbert", cluster_by=("id", "user")), PageLayout()):
        assert "sorting_columns" not in writer_options(layout, blank, table.schema)
    single = PageLayout(cluster="hilbert", cluster_by=("id",))
    assert "sorting_columns" in writer_options(single, blank, table.schema)
