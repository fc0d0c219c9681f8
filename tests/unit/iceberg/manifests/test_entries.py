from __future__ import annotations

import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.entries import Entries, JoinedMetrics
from skipstone.iceberg.manifests.lists import ManifestInfo
from skipstone.iceberg.manifests.reading import read_manifest
from skipstone.iceberg.partitions.values import PartitionKey
from tests.unit.iceberg import _avro as av

_SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1)
_ENTRY = av.entry_schema(av.field("p", 1000, av.optional("string")))
_COLUMNS = ("sizes", "rows", "contents", "specs", "sequences", "snapshots")
_MORE = ("content_offsets", "content_sizes", "first_row_ids")


def _made(*files: dict[str, Any]) -> Entries:
    """Entries with partitions, bounds of column 5 and counts of columns 5 and 6."""
    written = []
    for file in files:
        maps = {name: av.as_map(value) for name, value in file.items() if name.endswith(("counts", "bounds"))}
        written.append(av.entry(**{**file, **maps}))
    data = av.manifest(_ENTRY, written)
    return read_manifest(data, ManifestInfo("m", len(data), 1, sequence=4, snapshot=9), {1: _SPEC})


def _file(number: int, partition: str | None = "a", **more: Any) -> dict[str, Any]:
    return {
        "path": f"s3://b/{number}.parquet",
        "partition": {"p": partition},
        "record_count": number,
        "value_counts": {5: number, 6: number},
        "null_value_counts": {5: 0},
        "lower_bounds": {5: b"l%d" % number},
        "upper_bounds": {5: b"u%d" % number} if number % 2 else None,
        **more,
    }


def _seen(entries: Entries) -> list[dict[str, Any]]:
    """Everything about each file, in plain Python."""
    columns: dict[str, list[Any]] = {name: getattr(entries, name).tolist() for name in (*_COLUMNS, *_MORE)}
    columns |= {name: getattr(entries, name).to_pylist() for name in ("paths", "formats", "referenced")}
    columns["keys"] = [entries.keys[i] for i in entries.partitions]
    columns["ids"] = list(entries.equality_ids)
    for field_id in (5, 6, 7):
        metrics = entries.metrics(field_id)
        columns |= {f"{n}.{field_id}": getattr(metrics, n).tolist() for n in ("values", "nulls", "nans")}
        columns |= {f"{n}.{field_id}": getattr(metrics, n).to_pylist() for n in ("lower", "upper")}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_metrics_by_column() -> None:
    entries = _made(_file(1), _file(2))
    found = entries.metrics(5)
    assert found.values.tolist() == [1, 2]
    assert found.nulls.tolist() == [0, 0]
    assert found.nans.tolist() == [-1, -1]
    assert found.lower.to_pylist() == [b"l1", b"l2"]
    assert found.upper.to_pylist() == [b"u1", None]
    assert entries.metrics(5) is found
    assert entries.metrics(7).values.tolist() == [-1, -1]
    assert entries.metric_fields() == (5, 6)


def test_take_chooses_files_and_their_metrics() -> None:
    entries = _made(*(_file(n, "ab"[n % 2], equality_ids=[n] if n == 3 else None) for n in range(6)))
    whole = _seen(entries)
    assert _seen(entries.take(np.array([4, 3, 3]))) == [whole[4], whole[3], whole[3]]
    mask = np.array([False, True, False, True, False, False])
    chosen = entries.take(mask)
    assert _seen(chosen) == [whole[1], whole[3]]
    assert chosen.keys == tuple(key for key in entries.keys if key.partition == ("b",))
    again = chosen.take(np.array([1]))
    assert _seen(again) == [whole[3]]
    assert again.metrics(5) is again.metrics(5)
    assert _seen(entries.take(np.array([], np.int64))) == []


def test_concat_joins_keys_and_keeps_metrics_unread() -> None:
    one, two = _made(_file(1, "b"), _file(2, None)), _made(_file(3, "a"), _file(4, "b"))
    joined = Entries.concat([one, Entries.empty(), two])
    assert joined.keys == tuple(PartitionKey(1, (v,)) for v in (None, "a", "b"))
    assert joined.partitions.tolist() == [2, 0, 1, 2]
    assert isinstance(joined.measures, JoinedMetrics)
    assert not joined.measures.columns
    assert not one.measures.columns
    assert _seen(joined) == _seen(one) + _seen(two)
    mixed = Entries.concat([joined.take(np.array([3, 0])), two, Entries.from_table(one.to_table())])
    assert _seen(mixed) == [_seen(joined)[3], _seen(joined)[0], *_seen(two), *_seen(one)]
    assert len(Entries.concat([])) == 0
    assert Entries.concat([one]) is one


def test_pickled_entries_carry_only_themselves() -> None:
    entries = _made(*(_file(n) for n in range(200)))
    few = entries.take(np.array([7, 150]))
    for made in (few, entries, Entries.concat([few, entries]), Entries.from_table(few.to_table())):
        assert _seen(pickle.loads(pickle.dumps(made))) == _seen(made)
    assert len(pickle.dumps(few)) < len(pickle.dumps(entries)) / 5


_KEYS = st.none() | st.tuples(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False, allow_infinity=False).map(Decimal)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_KEYS, min_size=1, max_size=6), st.data())
def test_a_table_holds_everything(values, data) -> None:
    files = data.draw(st.integers(0, 5))
    entries = _made(*(_file(n, referenced_data_file="r" if n == 1 else None) for n in range(files)))
    keys = tuple(sorted({PartitionKey(1, v) for v in values}, key=PartitionKey.sort_key))
    places = data.draw(st.lists(st.integers(0, len(keys) - 1), min_size=files, max_size=files))
    ids = data.draw(st.lists(st.sampled_from([(), (1,), (2, 1)]), min_size=files, max_size=files))
    fields = {name: getattr(entries, name) for name in Entries.__dataclass_fields__}
    fields |= {"keys": keys, "partitions": np.array(places, np.int32), "equality_ids": tuple(ids)}
    made = Entries(**fields)
    sink = pa.BufferOutputStream()
    table = made.to_table()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    found = Entries.from_table(pa.ipc.open_file(sink.getvalue()).read_all())
    assert _seen(found) == _seen(made)
    assert found.keys == keys
    assert found.metric_fields() == made.metric_fields()
    assert [type(v) for k in found.keys for v in k.partition or ()] == [
        type(v) for k in keys for v in k.partition or ()
    ]
    assert Entries.from_table(found.to_table()).to_table().equals(table, check_metadata=True)


def test_a_mapped_table_is_not_copied(tmp_path: Path) -> None:
    entries = _made(*(_file(n, "abc"[n % 3]) for n in range(100)))
    table = Entries.concat([entries] * 500).to_table()
    with pa.OSFile(str(tmp_path / "e.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    before = pa.total_allocated_bytes()
    with pa.memory_map(str(tmp_path / "e.arrow")) as source:
        found = Entries.from_table(pa.ipc.open_file(source).read_all())
        assert pa.total_allocated_bytes() - before < 100_000
        assert len(found) == 50_000
        assert found.rows[49_999] == 99
        assert not found.rows.flags.writeable


def test_tables_in_chunks_and_parts() -> None:
    entries = _made(*(_file(n) for n in range(4)))
    table = entries.to_table()
    chunked = pa.concat_tables([table[:1], table[1:]])
    assert _seen(Entries.from_table(chunked)) == _seen(entries)
    assert _seen(Entries.from_table(table[2:])) == _seen(entries)[2:]


@pytest.mark.parametrize("damage", ["meta", "layout", "column", "partition", "type"])
def test_a_table_that_is_not_ours_is_refused(damage: str) -> None:
    table = _made(_file(1), _file(2)).to_table()
    meta = dict(table.schema.metadata)
    if damage == "meta":
        table = table.replace_schema_metadata({})
    elif damage == "layout":
        table = table.replace_schema_metadata(
            {k: v.replace(b'"layout": 2', b'"layout": 9') for k, v in meta.items()}
        )
    elif damage == "column":
        table = table.drop_columns(["rows"])
    elif damage == "partition":
        places = pa.array([0, 4], pa.int32())
        table = table.set_column(table.column_names.index("partitions"), "partitions", places)
    else:
        table = table.set_column(table.column_names.index("rows"), "rows", pa.array([1, None]))
    with pytest.raises(CorruptFileError):
        Entries.from_table(table)


def test_nan_keys_survive() -> None:
    entries = _made(_file(1))
    fields = {name: getattr(entries, name) for name in Entries.__dataclass_fields__}
    made = Entries(**(fields | {"keys": (PartitionKey(1, (math.nan, -0.0)),)}))
    assert Entries.from_table(made.to_table()).keys == made.keys
