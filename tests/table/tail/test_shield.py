"""Ctrl-C in calls of a tail: they end before the caller goes on, or have changed nothing."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.table.tail.shield import NOTHING_WRITTEN, Call, Shield, StoppedError
from tests.table.tail.conftest import Gate

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Signals interrupt the main thread, in which tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def test_results_and_errors_are_those_of_the_call() -> None:
    shield = Shield()
    threads = set[threading.Thread]()

    def answer(call: Call[int]) -> int:
        threads.add(threading.current_thread())
        return 7

    def fail(call: Call[int]) -> int:
        raise ZeroDivisionError

    assert [shield.run(answer), shield.run(answer)] == [7, 7]
    with pytest.raises(ZeroDivisionError):
        shield.run(fail)
    (thread,) = threads
    assert thread is not threading.main_thread()
    # Other threads are not interrupted, and make their calls themselves.
    other = threading.Thread(target=shield.run, args=(answer,))
    other.start()
    other.join()
    assert threads == {thread, other}
    del shield
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_an_interrupted_call_comes_to_its_end() -> None:
    shield, ended = Shield(), []

    def work(call: Call[None]) -> None:
        interrupt()
        while not call.interrupted:
            threading.Event().wait(0.001)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt) as caught:
        shield.run(work, "it is done")
    assert (ended, notes(caught.value)) == ([True], ["it is done"])

    def fail(call: Call[None]) -> None:
        work(call)
        raise ZeroDivisionError("by nothing")

    with pytest.raises(KeyboardInterrupt) as caught:
        shield.run(fail, "it is done")
    assert notes(caught.value) == ["the interrupted call failed: by nothing"]

    def stop(call: Call[None]) -> None:
        work(call)
        raise StoppedError

    with pytest.raises(KeyboardInterrupt) as caught:
        shield.run(stop, "it is done")
    assert notes(caught.value) == [NOTHING_WRITTEN]


def test_a_second_interrupt_ends_the_wait() -> None:
    shield, leave, ended = Shield(), threading.Event(), threading.Event()

    def hang(call: Call[None]) -> None:
        interrupt()
        while not call.interrupted:
            threading.Event().wait(0.001)
        interrupt()
        assert leave.wait(60)
        ended.set()

    with pytest.raises(KeyboardInterrupt) as caught:
        shield.run(hang, "it is done", "who knows")
    assert notes(caught.value) == ["who knows"]
    assert not ended.is_set()
    leave.set()
    # The next call waits for it.
    assert shield.run(lambda _: ended.is_set())


def test_a_write_that_waits_for_memory(gate: Gate) -> None:
    """Ctrl-C ends the wait, and nothing was written."""
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    writer = table.writer(memory=20_000, flush_bytes=20_000, flush_seconds=None, sync="off")
    gate.opens.clear()
    gate.waiting.clear()
    many = pa.table([list(range(1000))], schema=SCHEMA)
    writer.upsert(many)
    # The write behind it fits only after a flush, which the gate holds back.
    timer = threading.Thread(target=lambda: gate.waiting.wait(60) and interrupt())
    timer.start()
    returned: list[int] = []

    def write_on() -> None:
        for number in range(1, 9):
            writer.upsert(pa.table([range(1000 * number, 1000 * number + 1000)], schema=SCHEMA))
            returned.append(number)

    with pytest.raises(KeyboardInterrupt) as caught:
        write_on()
    timer.join()
    assert notes(caught.value) == [NOTHING_WRITTEN]
    found = table.scan().count()
    assert found == 1000 * (1 + len(returned))
    gate.opens.set()
    writer.close()
    assert table.scan().count() == found


def test_a_flush_that_is_interrupted_can_be_made_again(gate: Gate) -> None:
    table = sk.catalog(gate).create_table("db.t", SCHEMA, key=["id"])
    with table.writer(flush_seconds=None, sync="off") as writer:
        writer.upsert(pa.table([[1, 2]], schema=SCHEMA))
        gate.refusal = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt) as caught:
            writer.flush()
        assert "rows of the tail that are not committed are in its write-ahead log" in notes(caught.value)
        assert table.scan().count() == 2
        gate.refusal = None
        writer.flush()
    assert (table.scan().count(), len(table.snapshots())) == (2, 1)


def test_a_sync_that_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the sync, the next one and the end of the log don't wait for it."""
    table = sk.catalog(tmp_path).create_table("db.t", SCHEMA, key=["id"])
    writer = table.writer(flush_seconds=None)
    sync = os.fdatasync

    def interrupted(descriptor: int) -> None:
        sync(descriptor)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.upsert(pa.table([[1]], schema=SCHEMA))
    writer.upsert(pa.table([[2]], schema=SCHEMA))
    writer.close()
    assert table.scan().count() == 2
