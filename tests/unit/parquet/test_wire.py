import gc
import subprocess
import sys
import textwrap

import pytest

from skipstone.errors import CorruptFileError
from skipstone.parquet.structs import FileMetaData, KeyValue, LogicalType, PageHeader, RawColumnIndex
from skipstone.parquet.wire import decode, decode_prefix


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_a_struct_and_what_follows_it() -> None:
    data = b"\x18\x01k\x18\x03abc\x00rest"
    pair, consumed = decode_prefix(KeyValue, data, "pair")
    assert (pair.key, pair.value, consumed) == (b"k", b"abc", 9)
    assert repr(pair) == "KeyValue(key=b'k', value=b'abc')"


def test_absent_and_unknown_fields() -> None:
    # Field 9 is a string nobody declared; field 1 is an integer where a string belongs.
    pair = decode(KeyValue, b"\x98\x02hi\x05\x02\x2a\x00", "pair")
    assert pair.key is None
    assert pair.value is None


def test_a_variant_that_is_newer_than_the_code_leaves_the_union_empty() -> None:
    assert decode(LogicalType, b"\x05\x9c\x01\x00\x00"[1:2] + b"\x00\x00", "type").variant is None
    assert decode(LogicalType, b"\x1c\x00\x00", "type").variant == "STRING"


def test_the_collector_is_left_as_it_was() -> None:
    big = b"\x18" + varint(100_000) + b"x" * 100_000 + b"\x00"
    assert decode(KeyValue, big, "pair").key == b"x" * 100_000
    assert gc.isenabled()
    gc.disable()
    try:
        decode(KeyValue, big, "pair")
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(CorruptFileError):
        decode(KeyValue, big[:-2], "pair")
    assert gc.isenabled()


HOSTILE = {
    "nothing": b"",
    "truncated string": b"\x18\x05ab",
    "string longer than the data": b"\x18" + varint(2**31 - 1) + b"abc",
    "negative string length": b"\x18" + varint(2**32 - 1) + b"abc",
    "string length of 64 bits": b"\x18" + varint(2**63) + b"abc",
    "endless varint": b"\x15" + b"\xff" * 100,
    "list longer than the data": b"\x29\xfc" + varint(2**31 - 1),
    "negative list length": b"\x29\xfc" + varint(2**32 - 1),
    "list that ends too early": b"\x29\x15\x01",
    "skipped list of nothing": b"\xf9\xf0" + varint(5) + b"\x00" * 10,
    "unknown wire type": b"\x1e\x00\x00\x00",
    "deep skipped structs": b"\xfc" + b"\x1c" * 1_000_000,
    "deep skipped lists": b"\xf9" + b"\x19" * 1_000_000,
    "deep skipped maps": b"\xfb" + b"\x01\xbb" * 500_000,
    "skipped lists that claim much": b"\xf9\xf9" + varint(100_000) + (b"\xf1" + varint(400_000)) * 100_000,
    "skipped maps that claim much": b"\xfb" + varint(500_000) + b"\x11" + b"\x01" * 400_000,
}


@pytest.mark.parametrize("cls", [FileMetaData, PageHeader, RawColumnIndex])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_with_file_and_part(cls: type, name: str) -> None:
    with pytest.raises(CorruptFileError) as info:
        decode(cls, HOSTILE[name], "footer", "some.parquet")
    assert str(info.value).startswith("some.parquet: footer can't be decoded: ")
    assert info.value.__cause__ is not None


def test_a_list_of_the_wrong_type() -> None:
    with pytest.raises(CorruptFileError, match="wrong ttype"):
        decode(FileMetaData, b"\x29\x15\x01\x00", "footer")


def run(code: str) -> None:
    """In a process of its own, since a crash of the C decoder would take the tests down."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=600)


def test_the_c_decoder_neither_crashes_nor_hoards() -> None:
    run(
        """
        import random, resource
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        from skipstone.errors import CorruptFileError
        from skipstone.parquet.structs import FileMetaData
        from skipstone.parquet.wire import decode
        for byte in range(256):
            for prefix in (b"", b"\\x15\\x02\\x19\\xfc", b"\\x49\\xfc\\xff\\xff\\x3f"):
                try:
                    decode(FileMetaData, prefix + bytes([byte]) * 1_000_000, "footer")
                except CorruptFileError:
                    pass
        rng = random.Random(7)
        for _ in range(3_000):
            try:
                decode(FileMetaData, rng.randbytes(rng.randrange(200)), "footer")
            except CorruptFileError:
                pass
        """
    )


def test_the_pure_python_decoder_is_as_careful() -> None:
    # Thrift builds its C extension only where there is a compiler.
    run(
        """
        import sys
        sys.modules["thrift.protocol.fastbinary"] = None
        import random
        from skipstone.errors import CorruptFileError
        from skipstone.parquet.structs import FileMetaData, KeyValue
        from skipstone.parquet.wire import _thrift, decode
        assert decode(KeyValue, b"\\x18\\x01k\\x18\\x03abc\\x00", "pair").value == b"abc"
        rng = random.Random(7)
        hostile = [rng.randbytes(rng.randrange(200)) for _ in range(1_000)]
        hostile += [bytes([byte]) * 20_000 for byte in range(256)]
        for data in hostile:
            try:
                decode(FileMetaData, data, "footer")
            except CorruptFileError:
                pass
        """
    )


def test_importing_the_room_imports_no_thrift_and_no_obstore() -> None:
    run(
        """
        import sys
        import skipstone.parquet.metadata, skipstone.parquet.pageindex, skipstone.parquet.bloom
        import skipstone.parquet.dictionary
        heavy = {"thrift", "obstore"} & set(sys.modules)
        assert not heavy, heavy
        """
    )
