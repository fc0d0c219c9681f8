import http.server
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from skipstone.errors import ReadError, UsageError
from skipstone.store.objects import ObjectSource, ObjectVersion
from skipstone.store.source import ByteRange, open_source
from skipstone.store.store import open_store

DATA = bytes(range(250)) * 20_000
T1 = datetime(2026, 1, 1, tzinfo=UTC)
T2 = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def bucket() -> Any:
    bucket = MemoryStore()
    obstore.put(bucket, "lake/f.parquet", DATA)
    return bucket


def counts(source: Any) -> tuple[int, int]:
    return source.counter.requests, source.counter.bytes


def test_the_tail_tells_the_size_in_one_request(bucket: Any) -> None:
    source = open_source((bucket, "lake/f.parquet"))
    assert source.tail(100) == (DATA[-100:], len(DATA))
    assert source.size() == len(DATA)
    assert counts(source) == (1, 100)


def test_ranges_are_coalesced_at_one_mebibyte(bucket: Any) -> None:
    source = open_source((bucket, "lake/f.parquet"))
    ranges = [ByteRange(3_000_000, 3_000_010), ByteRange(0, 10), ByteRange(500_000, 500_010)]
    assert source.read_ranges(ranges) == [DATA[r.start : r.stop] for r in ranges]
    assert counts(source) == (2, 500_020)


def test_empty_ranges_cost_no_request(bucket: Any) -> None:
    source = open_source((bucket, "lake/f.parquet"))
    assert source.read_ranges([ByteRange(0, 0), ByteRange(7, 7)]) == [b"", b""]
    assert counts(source) == (0, 0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ObjectVersion(5, '"0x8D"', T1), ObjectVersion(5, "0x8D", T2), True),
        (ObjectVersion(5, 'W/"a"', T1), ObjectVersion(5, '"a"', T1), True),
        (ObjectVersion(5, '"a"', T1), ObjectVersion(5, '"b"', T1), False),
        (ObjectVersion(5, '"a"', T1), ObjectVersion(6, '"a"', T1), False),
        (ObjectVersion(5, None, T1), ObjectVersion(5, '"a"', T1.replace(microsecond=9)), True),
        (ObjectVersion(5, None, T1), ObjectVersion(5, None, T2), False),
        (ObjectVersion(5, None, None), ObjectVersion(5, None, None), True),
    ],
)
def test_what_makes_two_versions_one(one: ObjectVersion, other: ObjectVersion, same: bool) -> None:
    assert one.same(other) is same
    assert other.same(one) is same


def test_what_a_version_asks_for() -> None:
    etags = ['"a"', 'W/"a"', "0x8D", '"0x8D"', None]
    assert [ObjectVersion(5, etag, T1).condition() for etag in etags] == [
        '"a"',
        None,
        '"0x8D"',
        '"0x8D"',
        None,
    ]


@pytest.mark.parametrize("new", [DATA[::-1], DATA[:-1]])
def test_a_replaced_object_is_noticed(bucket: Any, new: bytes) -> None:
    source = open_source((bucket, "lake/f.parquet"))
    source.tail(10)
    obstore.put(bucket, "lake/f.parquet", new)
    with pytest.raises(ReadError, match="file changed while it was being read"):
        source.read_ranges([ByteRange(0, 10)])


def test_short_and_outside_reads_are_refused(bucket: Any) -> None:
    source = open_source((bucket, "lake/f.parquet"))
    with pytest.raises(ReadError, match="only 5 bytes"):
        source.read_ranges([ByteRange(len(DATA) - 5, len(DATA) + 5)])
    with pytest.raises(ReadError, match=r"lake/f\.parquet"):
        source.read_ranges([ByteRange(len(DATA) + 5, len(DATA) + 50)])


def test_a_missing_object(bucket: Any) -> None:
    with pytest.raises(ReadError, match="no such object"):
        open_source((bucket, "nothing")).tail(10)
    with pytest.raises(ReadError, match="no such object"):
        open_source((bucket, "nothing")).size()


def test_an_empty_object(bucket: Any) -> None:
    obstore.put(bucket, "empty", b"")
    assert open_source((bucket, "empty")).tail(10) == (b"", 0)


def test_a_store_without_suffix_ranges_costs_one_request_more(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = obstore.get

    def no_suffix(bucket: Any, key: str, *, options: Any) -> Any:
        if isinstance(options["range"], dict):
            raise obstore.exceptions.NotSupportedError("no suffix ranges")
        return get(bucket, key, options=options)

    monkeypatch.setattr(obstore, "get", no_suffix)
    source = open_source((bucket, "lake/f.parquet"))
    assert source.tail(10) == (DATA[-10:], len(DATA))
    assert counts(source) == (2, 10)


# ---------------------------------------------------------------- real protocols, on the loopback


def test_s3(s3: dict[str, str]) -> None:
    bucket = obstore.store.S3Store("bucket", config=s3)
    obstore.put(bucket, "a/b c.parquet", DATA[:10_000])
    source = open_source("s3://bucket/a/b c.parquet", storage_options=s3)
    assert source.tail(100) == (DATA[9_900:10_000], 10_000)
    assert source.read_ranges([ByteRange(0, 4), ByteRange(100, 104)]) == [DATA[:4], DATA[100:104]]
    assert counts(source) == (2, 204)
    obstore.put(bucket, "a/b c.parquet", DATA[5:10_005])
    with pytest.raises(ReadError, match="file changed"):
        source.read_ranges([ByteRange(0, 4)])


def test_s3_empty_and_missing(s3: dict[str, str]) -> None:
    bucket = obstore.store.S3Store("bucket", config=s3)
    obstore.put(bucket, "empty", b"")
    assert open_source("s3://bucket/empty", storage_options=s3).tail(100) == (b"", 0)
    with pytest.raises(ReadError, match="no such object"):
        open_source("s3://bucket/missing", storage_options=s3).tail(100)


def test_one_bucket_shares_one_store(s3: dict[str, str]) -> None:
    first = open_source("s3://bucket/a", storage_options=s3)
    second = open_source("s3://bucket/b", storage_options=s3)
    assert isinstance(first, ObjectSource)
    assert isinstance(second, ObjectSource)
    assert first._client is second._client


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """A file server that knows bounded ranges but no suffixes, as many do."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        data = path.read_bytes()
        start, _, stop = (self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")
        if not start:
            self.send_error(416)
            return
        body = data[int(start) : int(stop or len(data)) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {start}-{int(start) + len(body) - 1}/{len(data)}")
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        self.wfile.write(body)


def test_http(tmp_path: Path) -> None:
    (tmp_path / "f x.parquet").write_bytes(DATA[:1_000])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Ranges, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        source = open_source(f"http://127.0.0.1:{server.server_port}/f%20x.parquet")
        assert source.tail(10) == (DATA[990:1_000], 1_000)
        assert source.read_ranges([ByteRange(5, 9)]) == [DATA[5:9]]
        store, pattern = open_store(source.path)
        (listed,) = store.list()
        assert (listed.key, listed.size) == (pattern, 1_000) == ("f x.parquet", 1_000)
        source = store.open(listed.key, version=listed.version)
        assert source.tail(10) == (DATA[990:1_000], 1_000)
        assert counts(source) == (1, 10)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_url_with_a_query_is_refused() -> None:
    with pytest.raises(ReadError, match="query"):
        open_source("https://host/f?signature=x")


def test_an_unknown_option_is_an_error_that_names_the_uri() -> None:
    with pytest.raises(UsageError, match=r"s3://bucket/f.*no_such_option"):
        open_source("s3://bucket/f", storage_options={"no_such_option": "1"})
