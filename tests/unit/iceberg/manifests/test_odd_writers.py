"""Manifests of odd writers, damaged ones, and ones that say what can't be."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.errors import CorruptFileError, SchemaError
from skipstone.iceberg.manifests.lists import read_manifest_list
from skipstone.iceberg.manifests.reading import read_manifest, slicer_of
from tests.unit.iceberg import _avro as av
from tests.unit.iceberg.manifests._notes import PLAIN, SPEC, av_schema, manifest_of, note_of

_LIMIT = 2**63 - 1
_FILES = st.fixed_dictionaries(
    {
        "file_path": st.text(max_size=90),
        "record_count": st.integers(0, _LIMIT),
        "file_size_in_bytes": st.integers(0, _LIMIT),
        "value_counts": st.none()
        | st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-5, _LIMIT), max_size=4),
        "null_value_counts": st.dictionaries(st.integers(0, 9), st.integers(0, 99), max_size=3),
        "lower_bounds": st.none() | st.dictionaries(st.integers(0, 9), st.binary(max_size=80), max_size=4),
        "upper_bounds": st.dictionaries(st.integers(0, 300), st.binary(max_size=3), max_size=3),
        "equality_ids": st.none() | st.lists(st.integers(-1, 2**31 - 1), max_size=3),
    }
)
_MAPS = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


def _reversed_unions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_reversed_unions(s) for s in reversed(schema)]
    if isinstance(schema, dict):
        return {
            key: value if key == "symbols" else _reversed_fields(key, value) for key, value in schema.items()
        }
    return schema


def _reversed_fields(key: str, value: Any) -> Any:
    if key == "fields":
        return [{**f, "type": _reversed_unions(f["type"])} for f in value]
    return _reversed_unions(value) if key in ("type", "items") else value


def _make_records_nullable(schema: Any) -> None:
    """Fields of entries and files that are records become unions with null, as some writers have them."""
    for f in schema["fields"]:
        if isinstance(f["type"], dict) and f["type"]["type"] == "record":
            _make_records_nullable(f["type"])
            f["type"] = av.optional(f["type"])


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(_FILES, max_size=6),
    odd=st.integers(0, 2),
    nullable=st.booleans(),
    turned=st.booleans(),
    patience=st.sampled_from([1, 2, 99]),
)
def test_any_entries_in_any_encoding(files, odd: int, nullable: bool, turned: bool, patience: int) -> None:
    schema = av.entry_schema()
    if nullable:
        _make_records_nullable(schema)
    schema = _reversed_unions(schema) if turned else schema
    written = [av.entry(**{**f, **{name: av.as_map(f[name]) for name in _MAPS}}) for f in files]
    blocks = [[av.encode(schema, entry, lambda: odd)] for entry in written]
    data = av.container(schema, blocks, codec="deflate", meta={"format-version": b"3"})
    slicer_of.cache_clear()
    slicer_of(av_schema(data)).patience = patience
    for _ in range(2):  # the second time with what the first has taught
        found = read_manifest(data, note_of(data), {0: PLAIN})
        assert found.paths.to_pylist() == [f["file_path"] for f in files]
        assert found.rows.tolist() == [f["record_count"] for f in files]
        assert found.equality_ids == tuple(tuple(f["equality_ids"] or ()) for f in files)
        for i in {0, 5, *(i for f in files for name in _MAPS for i in f[name] or ())}:
            metrics = found.metrics(i)
            assert metrics.values.tolist() == [max(-1, (f["value_counts"] or {}).get(i, -1)) for f in files]
            assert metrics.nulls.tolist() == [f["null_value_counts"].get(i, -1) for f in files]
            assert metrics.lower.to_pylist() == [(f["lower_bounds"] or {}).get(i) for f in files]
            assert metrics.upper.to_pylist() == [f["upper_bounds"].get(i) for f in files]


def test_other_names_other_order_extra_fields_and_other_types() -> None:
    """Fields go by their ids; what isn't known is skipped; numbers and texts may be of other widths."""
    pair = av.record("p", av.field("value", 127, av.optional("bytes")), av.field("key", 126, "long"))
    tree = av.record("tree", av.field("kids", None, {"type": "array", "items": "tree"}))
    file = av.record(
        "f",
        av.field("größe", 104, "int"),
        av.field("extra", None, {"type": "map", "values": ["null", "double", "string"]}),
        av.field("low", 125, {"type": "array", "items": pair}),
        av.field("tree", None, tree),
        av.field("where", 100, "bytes"),
        av.field("as", 101, {"type": "enum", "name": "e", "symbols": ["orc", "parquet"]}),
        av.field("empties", None, {"type": "array", "items": "null"}),
        av.field("rows", 103, ["null", "int", "long"]),
        av.field("values", 109, {"type": "map", "values": "long"}),
    )
    schema = av.record(
        "entry", av.field("flag", None, "boolean"), av.field("file", 2, file), av.field("s", 0, "long")
    )
    body = (
        b"\x01"
        + av.long(5)
        + av.block([av.blob(b"k") + av.long(1) + struct.pack("<d", 1.5), av.blob(b"l") + av.long(0)])
        + av.block([av.long(1) + av.blob(b"lo") + av.long(9), av.long(0) + av.long(8)])
        + av.block([av.block([]), av.block([av.block([])])])
        + av.blob(b"path")
        + av.long(1)
        + av.block([b"", b""])
        + av.long(2)
        + av.long(77, overlong=2)
        + av.block([av.blob(b"9") + av.long(77)])
        + av.long(1)
    )
    data = av.container(schema, [[body] * 80])
    found = read_manifest(data, note_of(data), {0: PLAIN})
    assert len(found) == 80
    assert (found.paths[79].as_py(), found.formats[0].as_py()) == ("path", "PARQUET")
    assert (found.sizes[0], found.rows[79]) == (5, 77)
    assert found.metric_fields() == (9,)
    assert found.metrics(9).lower[3].as_py() == b"lo"
    assert found.metrics(9).values[79] == 77


@pytest.mark.parametrize("patience", [1, 99])
def test_records_that_may_be_null(patience: int) -> None:
    """The data file of an entry and its partition as unions with null, which is refused where it is taken."""
    parts = [av.field("ts_day", 1000, av.optional("int")), av.field("name", 1001, av.optional("string"))]
    schema = av.entry_schema(*parts)
    _make_records_nullable(schema)
    files = [av.entry(f"f{n}", partition={"ts_day": n, "name": "a"}) for n in range(40)]
    data = av.manifest(schema, files)
    slicer_of.cache_clear()
    slicer_of(av_schema(data)).patience = patience
    found = read_manifest(data, note_of(data, spec_id=3), {3: SPEC})
    assert found.paths.to_pylist() == [f"f{n}" for n in range(40)]
    assert found.keys[7].partition == (7, "a")
    for broken, words in (
        ({**files[0], "data_file": None}, "null instead of a record"),
        (av.entry("g", partition=None), "no partition"),
    ):
        data = av.manifest(schema, [*files, broken])
        with pytest.raises(CorruptFileError, match=words):
            read_manifest(data, note_of(data, spec_id=3), {3: SPEC})


@pytest.mark.parametrize("missing", [0, 100, 101, 103, 104])
def test_a_field_that_must_be_there(missing: int) -> None:
    schema = av.entry_schema()
    inner = schema["fields"][-1]["type"]
    for fields in (schema["fields"], inner["fields"]):
        fields[:] = [f for f in fields if f["field-id"] != missing]
    data = av.manifest(schema, [av.entry()])
    with pytest.raises(CorruptFileError, match="no field"):
        read_manifest(data, note_of(data), {0: PLAIN})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (av.entry(record_count=-4), "record_count"),
        (av.entry(content=3), "content"),
        (av.entry(status=3), "status"),
    ],
)
def test_an_entry_that_can_not_be(entry: dict[str, Any], words: str) -> None:
    data = av.manifest(av.entry_schema(), [entry])
    with pytest.raises(CorruptFileError, match=words):
        read_manifest(data, note_of(data), {0: PLAIN})


def test_a_path_that_is_no_text() -> None:
    schema = av.entry_schema()
    raw = av.encode(schema, av.entry("XXXX")).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    data = av.container(schema, [[raw]])
    with pytest.raises(CorruptFileError, match="invalid string"):
        read_manifest(data, note_of(data), {0: PLAIN})


def test_long_paths() -> None:
    paths = ["p" * n for n in (0, 62, 63, 64, 65, 8191, 8192, 70_000, 1_048_575, 1_048_576)]
    data = av.manifest(av.entry_schema(), [av.entry(p) for p in paths])
    assert read_manifest(data, note_of(data), {0: PLAIN}).paths.to_pylist() == paths


def test_no_entries() -> None:
    data = av.manifest(av.entry_schema(), [])
    found = read_manifest(data, note_of(data), {0: PLAIN})
    assert len(found) == 0
    assert found.metrics(1).values.tolist() == []


# -- bombs -------------------------------------------------------------------------------------


def _bomb(codec: str) -> tuple[bytes, int]:
    """A container that unpacks to more than its size allows for, and how many bytes that is."""
    zeros = av.pack(codec, bytes(48 << 20))
    head = av.container(av.entry_schema(), [], codec=codec)
    return head + (av.long(1) + av.blob(zeros) + av.SYNC) * 3, 3 * (48 << 20)


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2"])
def test_a_manifest_that_unpacks_to_far_more_than_it_is(codec: str) -> None:
    data, unpacked = _bomb(codec)
    assert len(data) < unpacked // 500
    tracemalloc.start()
    try:
        for read in (
            lambda: read_manifest(data, note_of(data), {0: PLAIN}),
            lambda: read_manifest_list(data, "m.avro"),
        ):
            with pytest.raises(CorruptFileError, match="implausibly many bytes") as refused:
                read()
            assert refused.value.path == "m.avro"
            assert refused.value.hint
        assert tracemalloc.get_traced_memory()[1] < unpacked
    finally:
        tracemalloc.stop()


def test_more_records_than_a_file_can_hold() -> None:
    schema = av.record("entry", av.field("status", 0, "int"))
    data = av.container(schema, [[b"\x02"] * 300_000], codec="deflate")
    assert len(data) < 1_000
    with pytest.raises(CorruptFileError, match="can't contain 300,000 records"):
        read_manifest(data, note_of(data), {0: PLAIN})


@pytest.mark.parametrize("item", ["null", av.record("nothing"), {"type": "fixed", "name": "f", "size": 0}])
def test_items_without_a_size_can_not_be_many(item: Any) -> None:
    for key in (None, 507):
        schema = av.entry_schema()
        schema["fields"].append(av.field("empties", key, {"type": "array", "items": item}))
        written = av.encode({**schema, "fields": schema["fields"][:-1]}, av.entry())
        data = av.container(schema, [[written + av.long(50_000) + bytes(50_001)]])
        for read in (
            lambda: read_manifest(data, note_of(data), {0: PLAIN}),  # noqa: B023
            lambda: read_manifest_list(data, "m.avro"),  # noqa: B023
        ):
            with pytest.raises(CorruptFileError, match="too short for 50000 items"):
                read()


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_truncated_manifest_is_an_error(tmp_path: Path, codec: str) -> None:
    manifest_of(tmp_path / "m.avro", 2, codec, 6)
    data = (tmp_path / "m.avro").read_bytes()
    note = note_of(data, spec_id=3)
    assert len(read_manifest(data, note, {3: SPEC}))
    # Behind the header and behind every block, where nothing but the size tells, and elsewhere.
    sync = data[-16:]
    ends = [at + 16 for at in range(len(data)) if data.startswith(sync, at)]
    for cut in {*range(0, len(data), 5), *ends[:-1]}:
        with pytest.raises(CorruptFileError, match=r"^m\.avro: "):
            read_manifest(data[:cut], note, {3: SPEC})


def test_flipped_bits_never_hang_nor_crash(tmp_path: Path) -> None:
    manifest_of(tmp_path / "m.avro", 2, "null", 6)
    data = (tmp_path / "m.avro").read_bytes()
    note = note_of(data, spec_id=3)
    rng = random.Random(4)
    begun, refused = time.process_time(), 0
    for _ in range(800):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            found = read_manifest(bytes(broken), note, {3: SPEC})
            for field_id in found.metric_fields()[:6]:
                found.metrics(field_id)
        except (CorruptFileError, SchemaError):
            refused += 1
    assert refused > 80
    assert time.process_time() - begun < 60
