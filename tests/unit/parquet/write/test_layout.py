import pickle
from typing import Any

import pyarrow as pa
import pytest

from skipstone.errors import SchemaError, UnknownColumnError, UsageError
from skipstone.parquet.write.layout import CODECS, PageLayout

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("flag", pa.bool_()),
        ("f", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("s", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])),
        ("coded", pa.dictionary(pa.int32(), pa.string())),
        ("dot.ted", pa.int64()),
    ]
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_file_bytes": 0}, "target_file_bytes must be a positive integer, got 0"),
        ({"row_group_rows": -1}, "row_group_rows must be a positive integer, got -1"),
        ({"row_group_bytes": 1.5}, "row_group_bytes must be a positive integer, got 1.5"),
        ({"page_rows": True}, "page_rows must be a positive integer, got True"),
        ({"bloom_fpp": 1.0}, "bloom_fpp must be between 0 and 1, got 1.0 (use a fraction such as 0.01"),
        ({"compression": "zip"}, "unknown compression 'zip' (did you mean gzip?)"),
        ({"compression": "snappy", "compression_level": 3}, "compression snappy has no levels"),
        ({"compression_level": 99}, "zstd has no level 99 (use a level from"),
        ({"cluster": "random"}, "unknown clustering 'random' (use one of sort, zorder, hilbert)"),
        ({"cluster": "zorder"}, "zorder does not support 0 columns (cluster by one to 8 columns"),
        ({"cluster": "hilbert", "cluster_by": tuple("abcdefghi")}, "hilbert does not support 9 columns"),
        ({"cluster_by": ("a", "b", "a")}, "column a: duplicate column in cluster_by"),
        ({"blooms": ("a", "a")}, "column a: duplicate column in blooms"),
        ({"blooms": "abc"}, "blooms must be a tuple of column names, got 'abc'"),
        ({"partition_by": ("",)}, "partition_by must be"),
        (
            {"partition_by": (".p",)},
            "column .p: directories of a partition column whose name starts with a dot",
        ),
        ({"partition_by": ("p",), "cluster_by": ("p",)}, "column p: partition column can't be in cluster_by"),
        ({"partition_by": ("p",), "blooms": ("p",)}, "partition column can't be in blooms"),
        ({"partition_by": ("p",), "dictionary": ("p",)}, "partition column can't be in dictionary"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        PageLayout(**options)
    assert message in str(caught.value)
    assert caught.value.hint


def test_what_makes_sense() -> None:
    for codec in CODECS:
        PageLayout(compression=codec)
    layout = PageLayout(cluster="zorder", cluster_by=("a",), compression="gzip", compression_level=9)
    assert layout.curve is None
    assert PageLayout(cluster="hilbert", cluster_by=("a", "b")).curve == "hilbert"
    assert PageLayout(cluster_by=("a", "b")).curve is None
    assert pickle.loads(pickle.dumps(layout)) == layout


@pytest.mark.parametrize("name", ["id", "day", "name", "coded", "dot.ted"])
def test_types_to_partition_by(name: str) -> None:
    PageLayout(partition_by=(name,)).check(SCHEMA)


@pytest.mark.parametrize("name", ["f", "price", "flag", "ts", "raw", "tags", "s", "s.x"])
def test_types_not_to_partition_by(name: str) -> None:
    with pytest.raises(UsageError, match=rf"column {name}: .* can't be a partition column \(partit"):
        PageLayout(partition_by=(name,)).check(SCHEMA)


@pytest.mark.parametrize("what", ["partition_by", "cluster_by", "blooms"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ID", "did you mean id?"),
        ("s.z", "available columns: x, deep"),
        ("s.x.y", "available columns: none"),
        ("tags.a", "available columns: none"),
    ],
)
def test_unknown_columns(what: str, name: str, hint: str) -> None:
    layout = PageLayout(**{what: (name,)})
    with pytest.raises(UnknownColumnError) as caught:
        layout.check(SCHEMA)
    assert f"column {name}: unknown column ({hint}" in str(caught.value)


def test_columns_of_dictionaries() -> None:
    PageLayout(dictionary=("name", "s", "tags.list.element")).check(SCHEMA)
    for name, hint in (
        ("s.deep.z", r"did you mean s\.deep\.y\?"),
        ("q", r"leaf columns: id, day, .* s\.deep\.y, coded"),
    ):
        with pytest.raises(UnknownColumnError, match=f"column {name}: .*{hint}"):
            PageLayout(dictionary=("id", name)).check(SCHEMA)


def test_columns_of_one_name() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(UnknownColumnError, match="column a: name is ambiguous"):
        PageLayout(cluster_by=("a",)).check(schema)


def test_a_column_must_be_left() -> None:
    with pytest.raises(UsageError, match="all columns are partition columns"):
        PageLayout(partition_by=("a",)).check(pa.schema([("a", pa.int64())]))
    with pytest.raises(UsageError, match="schema has no columns"):
        PageLayout().check(pa.schema([]))


def test_columns_to_cluster_by() -> None:
    names = ("id", "day", "s.x", "s.deep.y", "coded", "f", "raw", "flag", "dot.ted")
    PageLayout(cluster_by=names).check(SCHEMA)
    for name in ("tags", "s", "s.deep"):
        with pytest.raises(UsageError, match=rf"column {name}: .* has no order"):
            PageLayout(cluster_by=(name,)).check(SCHEMA)


def test_columns_of_blooms() -> None:
    PageLayout(blooms=("id", "day", "name", "price", "f", "ts", "raw", "s.x", "s.deep.y", "coded")).check(
        SCHEMA
    )
    for name in ("flag", "tags", "s"):
        with pytest.raises(UsageError, match=f"column {name}: bloom filters don't support"):
            PageLayout(blooms=(name,)).check(SCHEMA)


@pytest.mark.parametrize(
    "type",
    [
        pa.duration("us"),
        pa.list_(pa.duration("us")),
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.dense_union([pa.field("a", pa.int32())]),
    ],
    ids=str,
)
def test_types_that_parquet_lacks(type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column odd: .*\(omit the column, or cast it"):
        PageLayout().check(pa.schema([("id", pa.int64()), ("odd", type)]))
