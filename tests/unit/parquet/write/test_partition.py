import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import SchemaError, UsageError
from skipstone.lake.partitions import infer_array, parse_array, split_segment
from skipstone.parquet.write.partition import NULL_FOLDER, partition_folder

# What Spark 4.3 escapes of ASCII; it made these folders itself.
SPARK_ESCAPES = {chr(code) for code in range(1, 32)} | set("\"#%'*/:=?\\[]^{\x7f")


def read(folder: str, type: pa.DataType) -> tuple[str, Any]:
    segment = split_segment(folder)
    assert segment is not None
    values = parse_array([segment.raw], type)
    assert values is not None
    return segment.name, values[0].as_py()


def test_ascii_is_escaped_as_spark_does() -> None:
    for code in range(1, 128):
        text = chr(code)
        inside = f"%{code:02X}" if text in SPARK_ESCAPES else text
        assert partition_folder(["p"], [f"a{text}b"]) == f"p=a{inside}b"
    assert partition_folder(["p"], ["é雪 ~"]) == "p=é雪 ~"


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
        (" ", "p= "),
        (-5, "p=-5"),
        (2**63 - 1, "p=9223372036854775807"),
        (dt.date(2026, 1, 2), "p=2026-01-02"),
        (dt.date(999, 1, 1), "p=0999-01-01"),
    ],
)
def test_values_are_written_as_spark_does(value: Any, folder: str) -> None:
    assert partition_folder(["p"], [value]) == folder


def test_folders() -> None:
    assert partition_folder(["n:a=m e", "b"], ["x ", "x/y"]) == "n%3Aa%3Dm e=x /b=x%2Fy"
    assert partition_folder([], []) == ""


@pytest.mark.parametrize("value", [True, 1.5, Decimal("1.50"), b"x", dt.datetime(2026, 1, 1), [1]])
def test_values_that_name_no_partition(value: Any) -> None:
    with pytest.raises(UsageError, match=r"column p: \w+ can't be a partition value \(partition by strings"):
        partition_folder(["p"], [value])


@pytest.mark.parametrize("text", ["", NULL_FOLDER])
def test_strings_that_would_be_read_back_as_null(text: str) -> None:
    with pytest.raises(SchemaError, match=rf"column p: partition value '{text}' would be read back as NULL"):
        partition_folder(["p"], [text])


@given(
    st.text(min_size=1).filter(lambda name: name.encode("utf-8", "ignore")),
    st.text(min_size=1).filter(lambda text: text != NULL_FOLDER),
)
def test_text_is_read_back(name: str, text: str) -> None:
    folder = partition_folder([name], [text])
    assert "/" not in folder
    assert read(folder, pa.string()) == (name, text)


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.date32(), st.dates()),
    ],
    ids=str,
)
def test_typed_values_are_read_back(type: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def check(value: Any) -> None:
        typed = pa.scalar(value, type).as_py()
        assert read(partition_folder(["p"], [typed]), type) == ("p", value)

    check()


def test_inferred_types_are_those_that_were_written() -> None:
    for type, values in [(pa.int32(), [1, -2]), (pa.date32(), [dt.date(2026, 1, 1)]), (pa.string(), ["a=b"])]:
        folders = [partition_folder(["p"], [value]) for value in values]
        assert infer_array([folder.partition("=")[2] for folder in folders]).equals(pa.array(values, type))
