from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.iceberg.manifests.avro import (
    AvroError,
    parse_schema,
    read_container,
    read_long,
    read_value,
    write_long,
)
from tests.unit.iceberg import _avro as av

_WORDS = av.record("w", av.field("word", None, "string"))


@pytest.mark.parametrize("codec", [None, "null", "deflate", "zstandard", "snappy", "bzip2"])
def test_every_codec_gives_the_records_of_all_blocks(codec: str | None) -> None:
    words = [av.encode(_WORDS, {"word": w}) for w in ("stone", "skips", "", "x" * 5000)]
    data = av.container(_WORDS, [words[:1], [], words[1:]], codec=codec, meta={"a": b"b"})
    found = read_container(data)
    assert found.body == b"".join(words)
    assert found.blocks == ((1, 6), (0, 6), (3, len(found.body)))
    assert found.text("a") == "b"
    assert found.text("c") is None
    assert read_container(data).meta["a"] == b"b"
    assert json.loads(found.schema) == _WORDS


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(AvroError, match="'lzo'"):
        read_container(av.container(_WORDS, [], codec="lzo"))


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy", "bzip2"])
def test_a_block_that_unpacks_to_nonsense_is_an_error(codec: str) -> None:
    data = av.container(_WORDS, [], codec=codec)
    for junk in (b"", b"\xff" * 9, b"\xff\xff\xff\xff\x7f" + bytes(8)):
        broken = data + av.long(3) + av.blob(junk) + av.SYNC
        with pytest.raises(AvroError):
            read_container(broken)


def test_a_zstd_frame_without_a_size_is_read() -> None:
    import zstandard

    packed = zstandard.ZstdCompressor(write_content_size=False).compress(b"\x02a\x02b")
    data = av.container(_WORDS, [], codec="zstandard") + av.long(2) + av.blob(packed) + av.SYNC
    assert read_container(data).body == b"\x02a\x02b"


@pytest.mark.parametrize("number", [0, -1, 63, 64, -64, -65, 2**31, 2**63 - 1, -(2**63)])
def test_numbers_there_and_back(number: int) -> None:
    assert write_long(number) == av.long(number)
    assert read_long(write_long(number), 0) == (number, len(write_long(number)))


def test_a_number_ends_and_fits_64_bits() -> None:
    assert read_long(av.long(5, overlong=3), 0) == (5, 4)
    for bad in (b"", b"\x80", b"\xff" * 9 + b"\x7f", b"\x80" * 40 + b"\x01"):
        with pytest.raises(AvroError):
            read_long(bad, 0)


_TYPES = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "double", "bytes", "string", "fixed", "enum"]),
    lambda inner: st.one_of(
        st.tuples(st.just("array"), inner),
        st.tuples(st.just("map"), inner),
        st.tuples(st.just("union"), inner.filter(lambda t: t != "null" and t[0] != "union"), st.booleans()),
        st.tuples(st.just("record"), st.lists(inner, max_size=3)),
    ),
    max_leaves=6,
)
_VALUES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=70),
    "string": st.text(max_size=20),
    "fixed": st.binary(min_size=3, max_size=3),
    "enum": st.sampled_from(["a", "b"]),
}


def _schema_and_values(shape, names) -> tuple:
    if isinstance(shape, str):
        names.append(shape)
        schema = {
            "fixed": {"type": "fixed", "name": f"f{len(names)}", "size": 3},
            "enum": {"type": "enum", "name": f"e{len(names)}", "symbols": ["a", "b"]},
        }.get(shape, shape)
        return schema, _VALUES[shape]
    if shape[0] == "record":
        names.append("record")
        name = f"r{len(names)}"
        parts = [_schema_and_values(part, names) for part in shape[1]]
        fields = [av.field(f"x{i}", None, part[0]) for i, part in enumerate(parts)]
        values = st.fixed_dictionaries({f"x{i}": part[1] for i, part in enumerate(parts)})
        return av.record(name, *fields), values
    inner, values = _schema_and_values(shape[1], names)
    if shape[0] == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if shape[0] == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    return (["null", inner] if shape[2] else [inner, "null"]), st.none() | values


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_of_any_schema_is_read_back(data) -> None:
    schema, values = _schema_and_values(data.draw(_TYPES), [])
    value = data.draw(values)
    odd = data.draw(st.sampled_from([0, 1, 2]))
    raw = av.encode(schema, value, lambda: odd)
    node = parse_schema(json.dumps(schema).encode())
    assert read_value(node, raw, 0) == (value, len(raw))
    for cut in range(len(raw)):
        try:
            read_value(node, raw[:cut], 0)
        except AvroError:
            continue
        # A prefix can be whole only if nothing but empty values was cut off.
        raise AssertionError(f"{raw[:cut]!r} was read")


@pytest.mark.parametrize(
    ("type", "raw", "value"),
    [
        ({"type": "int", "logicalType": "date"}, av.long(-1), -1),
        ({"type": "long", "logicalType": "timestamp-micros"}, av.long(7), 7),
        ({"type": "long", "logicalType": "timestamp-nanos"}, av.long(7), 7),
        ({"type": "long", "logicalType": "timestamp-millis"}, av.long(7), 7000),
        ({"type": "int", "logicalType": "time-millis"}, av.long(7), 7000),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            b"\x04\xff\x38",
            Decimal("-2.00"),
        ),
        (
            {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 3},
            b"\x00\x01",
            Decimal("0.001"),
        ),
        (
            {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
            bytes(range(16)),
            bytes(range(16)),
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            av.blob(b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
            bytes(range(16)),
        ),
        ({"type": "float"}, b"\x00\x00\xc0\x3f", 1.5),
        ({"type": {"type": "string", "avro.java.string": "String"}}, av.blob(b"x"), "x"),
    ],
)
def test_values_are_in_internal_form(type, raw: bytes, value) -> None:
    found, end = read_value(parse_schema(json.dumps(type).encode()), raw, 0)
    assert (found, end) == (value, len(raw))
    assert isinstance(found, value.__class__)


def test_named_types_are_found_by_name_and_namespace() -> None:
    schema = {
        "type": "record",
        "name": "top",
        "namespace": "org.x",
        "fields": [
            av.field("a", None, {"type": "fixed", "name": "two", "size": 2}),
            av.field("b", None, "two"),
            av.field("c", None, "org.x.two"),
            av.field("next", None, ["null", "top"]),
        ],
    }
    node = parse_schema(json.dumps(schema).encode())
    raw = b"aabbcc\x02ddeeff\x00"
    last = {"a": b"dd", "b": b"ee", "c": b"ff", "next": None}
    assert read_value(node, raw, 0)[0] == {"a": b"aa", "b": b"bb", "c": b"cc", "next": last}


@pytest.mark.parametrize(
    "text", ["", "{", '"tow"', '{"type": "record"}', "[1]", '{"type": "fixed", "size": -1}', "[" * 5000]
)
def test_a_schema_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(AvroError):
        parse_schema(text.encode())


def test_damage_to_the_file_is_an_error() -> None:
    words = [av.encode(_WORDS, {"word": "stone"}) for _ in range(3)]
    data = av.container(_WORDS, [words[:2], words[2:]])
    for cut in range(len(data)):
        try:
            # What ends after a block is whole as far as anyone can tell.
            assert read_container(data[:cut]).body in (b"", b"".join(words[:2]))
        except AvroError:
            continue
    for bad in (b"PAR1", b"Obj\x01", data[:-1] + b"!", data + av.long(1 << 40) + av.long(5)):
        with pytest.raises(AvroError):
            read_container(bad)
    with pytest.raises(AvroError, match="records"):
        read_container(data + av.long(99) + av.blob(b"\x00") + av.SYNC)
    with pytest.raises(AvroError, match="schema"):
        _ = read_container(b"Obj\x01\x00" + av.SYNC).schema
