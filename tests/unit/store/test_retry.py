import errno
import http.server
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from skipstone.errors import ReadError
from skipstone.store.retry import RetryPolicy, RetrySource
from skipstone.store.source import BufferSource, ByteRange, TailSource, open_source

DATA = bytes(range(200))
RANGES = [ByteRange(10, 20), ByteRange(0, 5)]
EXACT = RetryPolicy(jitter=False)


class Flaky(BufferSource):
    """Fails as told, one failure per read, then gives the bytes; every attempt is counted."""

    def __init__(self, *failures: Any) -> None:
        super().__init__(DATA, "flaky.parquet")
        self.failures = list(failures)

    def _fail(self) -> int:
        failure = self.failures.pop(0) if self.failures else 0
        if isinstance(failure, Exception):
            self.counter.add(1, 0)
            raise failure
        return int(failure)

    def size(self) -> int:
        self._fail()
        return len(DATA)

    def tail(self, length: int) -> tuple[bytes, int]:
        short = self._fail()
        return DATA[-length + short :], len(DATA)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        short = self._fail()
        first, *rest = super().read_ranges(ranges)
        return [first[: len(first) - short], *rest]


def blip() -> ReadError:
    return ReadError("it hiccuped", path="flaky.parquet", column="c", transient=True)


def retrying(below: Any, policy: RetryPolicy = EXACT) -> tuple[RetrySource, list[float]]:
    delays: list[float] = []
    return RetrySource(below, policy, sleep=delays.append), delays


@pytest.fixture
def read() -> Any:
    """Reads ranges."""
    return lambda source: source.read_ranges(RANGES)


def test_nothing_is_added_to_a_source_that_works(read: Any) -> None:
    source, delays = retrying(Flaky())
    assert read(source) == [DATA[10:20], DATA[:5]]
    assert (source.size(), source.path, source.gap, source.version()) == (200, "flaky.parquet", 0, None)
    assert (source.counter.requests, source.counter.bytes, delays) == (2, 15, [])


def test_transient_failures_are_retried_with_growing_delays(read: Any) -> None:
    source, delays = retrying(Flaky(blip(), blip(), blip()))
    assert read(source) == [DATA[10:20], DATA[:5]]
    assert delays == [0.05, 0.1, 0.2]
    assert source.counter.requests == 3 + 2


def test_after_the_last_attempt_the_error_says_how_many(read: Any) -> None:
    source, delays = retrying(Flaky(*[blip()] * 9))
    with pytest.raises(
        ReadError, match=r"flaky\.parquet, column c: it hiccuped; gave up after 4 att"
    ) as info:
        read(source)
    assert info.value.transient
    assert info.value.__cause__.message == "it hiccuped"  # type: ignore[union-attr]
    assert (len(delays), source.counter.requests) == (3, 4)


@pytest.mark.parametrize(
    "failure",
    [ReadError("no such file"), FileNotFoundError(errno.ENOENT, "gone"), PermissionError(errno.EACCES, "no")],
)
def test_permanent_failures_are_not_retried(failure: Exception, read: Any) -> None:
    source, delays = retrying(Flaky(failure))
    with pytest.raises(ReadError, match=r"no such file|permission denied") as info:
        read(source)
    assert not info.value.transient
    assert (delays, source.counter.requests) == ([], 1)


@pytest.mark.parametrize(
    "failure",
    [
        3,
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError(),
        *[OSError(code, "x") for code in (errno.EIO, errno.EINTR, errno.ESTALE, errno.EAGAIN, errno.EMFILE)],
    ],
)
def test_short_reads_and_system_errors_that_pass_are_retried(failure: Any, read: Any) -> None:
    source, delays = retrying(Flaky(failure))
    assert read(source) == [DATA[10:20], DATA[:5]]
    assert delays == [0.05]


def test_a_read_that_stays_short_is_an_error(read: Any) -> None:
    source, _ = retrying(Flaky(3, 3, 3, 3))
    with pytest.raises(ReadError, match=r"bytes 10-20: got only 7 bytes; gave up after 4 attempts"):
        read(source)


def test_tail_and_size_are_retried_too() -> None:
    assert retrying(Flaky(blip(), 1))[0].tail(10) == (DATA[-10:], 200)
    assert retrying(Flaky(blip()))[0].tail(200) == (DATA, 200)
    assert retrying(Flaky(blip()))[0].size() == 200
    source, delays = retrying(Flaky(blip()))
    source.expect(None, 200)
    assert delays == [0.05]


def test_delays_are_bounded_and_jittered() -> None:
    policy = RetryPolicy(first_delay=0.5, factor=3, max_delay=2, jitter=False)
    assert [policy.delay(attempt) for attempt in (1, 2, 3, 9)] == [0.5, 1.5, 2, 2]
    jittered = {RetryPolicy(first_delay=1).delay(1) for _ in range(50)}
    assert len(jittered) > 10
    assert 0.5 <= min(jittered) < max(jittered) <= 1


def test_one_attempt_means_no_retry(read: Any) -> None:
    source, delays = retrying(Flaky(blip()), RetryPolicy(attempts=1))
    with pytest.raises(ReadError, match=r"after 1 attempt$"):
        read(source)
    assert delays == []


def test_no_attempt_begins_when_the_time_is_up() -> None:
    now = [0.0]
    below = Flaky(*[blip()] * 9)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    policy = RetryPolicy(attempts=9, first_delay=1, max_delay=60, timeout=5, jitter=False)
    source = RetrySource(below, policy, sleep=sleep, clock=lambda: now[0])
    with pytest.raises(ReadError, match="gave up after 3 attempts in 5 s"):
        source.tail(1)
    assert now[0] == 3


def test_a_transient_error_is_pickled_as_such() -> None:
    again = pickle.loads(pickle.dumps(blip()))
    assert (again.transient, again.column, str(again)) == (True, "c", str(blip()))
    assert not pickle.loads(pickle.dumps(ReadError("x"))).transient


def test_layers_tell_the_gap_of_the_source_below() -> None:
    below = BufferSource(DATA)
    assert RetrySource(below).gap == TailSource(below).gap == 0


# ---------------------------------------------------------------- a server that fails, on the loopback


class _Failing(http.server.BaseHTTPRequestHandler):
    """Serves DATA in ranges, unless the next entry of ``plan`` says how to fail."""

    plan: ClassVar[list[str]] = []
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        how = self.plan.pop(0) if self.plan else "serve"
        if how == "hang":
            time.sleep(0.6)
        if how in ("reset", "hang"):
            self.close_connection = True
            return
        if how.isdigit():
            self.send_response(int(how))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, _, stop = self.headers["Range"].removeprefix("bytes=").partition("-")
        body = DATA[int(start) : int(stop) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {start}-{stop}/{len(DATA)}")
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body[:2] if how == "cut" else body)
        if how == "cut":
            self.close_connection = True


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Failing)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/f.parquet"
    server.shutdown()
    thread.join()
    server.server_close()


def impatient(url: str) -> Any:
    options = {
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        "client_options": {"timeout": "300ms"},
    }
    return open_source(url, storage_options=options)


@pytest.mark.parametrize("how", ["500", "503", "429", "reset", "hang", "cut"])
def test_failures_of_the_network_are_transient(server: str, how: str, read: Any) -> None:
    _Failing.plan[:] = [how]
    with pytest.raises(ReadError) as info:
        read(impatient(server))
    assert info.value.transient, str(info.value.__cause__)
    _Failing.plan[:] = [how]
    source, delays = retrying(impatient(server))
    assert read(source) == [DATA[10:20], DATA[:5]]
    assert len(delays) == 1
    assert source.counter.requests == 2


@pytest.mark.parametrize("how", ["400", "401", "403", "404", "412", "416"])
def test_refusals_are_not(server: str, how: str, read: Any) -> None:
    _Failing.plan[:] = [how]
    source, delays = retrying(impatient(server))
    with pytest.raises(ReadError) as info:
        read(source)
    assert not info.value.transient, str(info.value.__cause__)
    assert delays == []


def test_nobody_there_is_transient() -> None:
    with pytest.raises(ReadError) as info:
        impatient("http://127.0.0.1:1/f").read_ranges(RANGES)
    assert info.value.transient
