"""One caller can't keep others waiting: shares of threads and queue, bounds of cost, and work that ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.noop import NoopCatalog

import skipstone as sk
from skipstone.serve.access import ANYONE, Caller, Limits, Refusal
from skipstone.serve.lakes import Plans
from skipstone.serve.workers import Workers
from skipstone.store.source import Stopped, checkpoint
from tests.serve._server import make_table, serving, write_tokens

BOTH = ["read", "plan"]
TABLE = "/v1/namespaces/db/tables/events"
ANA, BEN = Caller("ana", ()), Caller("ben", ())


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(Limits(workers=4, queue=8))
    yield made
    made.close()


def test_a_caller_has_half_of_the_threads_and_of_the_queue(workers: Workers) -> None:
    hold, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        begun.release()
        assert hold.wait(60)
        return "done"

    mine = [workers.submit(ANA, wait, 60) for _ in range(4)]
    for _ in range(2):
        assert begun.acquire(timeout=60)
    assert [one.running() for one in mine] == [True, True, False, False]
    with pytest.raises(Refusal, match="caller has too many requests"):
        workers.submit(ANA, wait, 60)
    # Others are answered meanwhile.
    assert workers.submit(BEN, lambda: 7, 60).result(60) == 7
    others = [workers.submit(BEN, wait, 60) for _ in range(4)]
    with pytest.raises(Refusal, match="server is busy"):
        workers.submit(Caller("cleo", ()), wait, 60)
    # Work that is cancelled while it waits frees its place.
    assert mine[3].cancel()
    mine.append(workers.submit(ANA, wait, 60))
    hold.set()
    assert [one.result(60) for one in (*mine[:3], mine[4], *others)] == ["done"] * 8


def test_callers_take_turns() -> None:
    """A long queue of one caller is not served before that of another."""
    workers, hold, order = Workers(Limits(workers=1, queue=20)), threading.Event(), list[str]()
    blocker = workers.submit(BEN, lambda: hold.wait(60), 60)
    late = [workers.submit(ANA, lambda: order.append("ana"), 60) for _ in range(8)]
    late += [workers.submit(BEN, lambda: order.append("ben"), 60) for _ in range(2)]
    hold.set()
    for one in (blocker, *late):
        one.result(60)
    assert order == ["ana", "ben", "ana", "ben", *["ana"] * 6]
    workers.close()


def test_without_tokens_there_is_one_caller() -> None:
    workers, hold = Workers(Limits(workers=2, queue=4), shared=False), threading.Event()
    made = [workers.submit(ANYONE, lambda: hold.wait(60), 60) for _ in range(4)]
    while not all(one.running() for one in made[:2]):
        time.sleep(0.005)
    with pytest.raises(Refusal, match="server is busy"):
        workers.submit(ANYONE, lambda: None, 60)
    hold.set()
    assert all(one.result(60) for one in made)
    workers.close()


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_work_ends_at_a_checkpoint(workers: Workers, how: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        except Stopped:
            ended.set()
            raise

    one = workers.submit(ANA, work, 60 if how == "cancelled" else 0)
    assert begun.wait(60)
    if how == "cancelled":
        assert not one.cancel()  # it runs
    assert ended.wait(60)
    with pytest.raises(CancelledError):
        one.result(60)
    # The thread is free again, and its next work is not stopped.
    assert workers.submit(ANA, lambda: checkpoint() or "ok", 60).result(60) == "ok"  # type: ignore[func-returns-value]


def test_planning_has_checkpoints(tmp_path: Path) -> None:
    """Without an index between footers and before page indexes; nothing of a stopped plan is wrong later."""
    for number in range(6):
        table = pa.table({"id": range(number * 100, number * 100 + 100)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=20, write_page_index=True)
    workers, lake = Workers(Limits()), sk.open(tmp_path)
    stops = []
    for after in range(100):
        count = 0

        def unwanted(after: int = after) -> bool:
            nonlocal count
            count += 1
            return count > after

        work = workers.submit(ANA, lambda: None, 60)
        work.result(60)
        work = type(work)("ana", lambda: sk.open(tmp_path).scan("id = 250").plan().rows, 0)
        work.is_over = unwanted  # type: ignore[method-assign]
        work.run()()
        if work.exception() is None:
            assert work.result() == lake.scan("id = 250").plan().rows
            break
        assert isinstance(work.exception(), CancelledError)
        stops.append(after)
    assert len(stops) >= 6
    workers.close()


class Busy(NoopCatalog):
    """A catalog that works on one of its tables until it is stopped."""

    name = "busy"

    def __init__(self, inner: Any) -> None:
        self.inner, self.begun, self.ended = inner, threading.Semaphore(0), threading.Semaphore(0)

    def load_table(self, name: Any) -> Any:
        if name[-1] != "heavy":
            return self.inner.load_table(name)
        self.begun.release()
        try:
            while True:
                checkpoint()
                time.sleep(0.002)
        except Stopped:
            self.ended.release()
            raise


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("fair"))


def test_others_are_answered_beside_heavy_requests(warehouse: Path, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.json", ana={"db.events": BOTH}, mallory={"db.heavy": BOTH})
    busy = Busy(sk.catalog(f"{warehouse}/").iceberg)
    heavy = "/v1/namespaces/db/tables/heavy/plan"
    with (
        serving(catalog=busy, token_file=str(tokens), limits={"queue": 16}) as running,
        running.client("ana") as ana,
        running.client("mallory") as mallory,
        ThreadPoolExecutor(12) as pool,
    ):
        wait = {"Prefer": "respond-async"}
        answers = [pool.submit(mallory.post, heavy, json={}, headers=wait) for _ in range(12)]
        statuses = sorted(one.result(60).status_code for one in answers)
        # Half of the queue is hers, and half of the threads.
        assert statuses == [200] * 8 + [503] * 4
        for _ in range(2):
            assert busy.begun.acquire(timeout=60)
        for _ in range(3):
            assert len(ana.post(f"{TABLE}/plan", json={}).json()["file-scan-tasks"]) == 8
        assert not busy.begun.acquire(blocking=False)
        # Forgotten plans stop.
        for one in answers:
            if one.result().status_code == 200:
                assert mallory.delete(f"{heavy}/{one.result().json()['plan-id']}").status_code == 204
        for _ in range(2):
            assert busy.ended.acquire(timeout=60)


def test_requests_that_nobody_waits_for_end(warehouse: Path) -> None:
    busy = Busy(sk.catalog(f"{warehouse}/").iceberg)
    heavy = "/v1/namespaces/db/tables/heavy"
    with serving(catalog=busy) as running:
        port = int(running.uri.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET {heavy} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert busy.begun.acquire(timeout=60)
        # The connection is closed.
        assert busy.ended.acquire(timeout=60)
        while not running.log():
            time.sleep(0.005)
        assert [one["status"] for one in running.log()] == [499]
    with serving(catalog=busy, limits={"seconds": 0.05}) as running, running.client() as client:
        assert client.get(heavy).status_code == 503
        assert busy.ended.acquire(timeout=60)


def test_costs_are_bounded_before_planning(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(4):
        pq.write_table(pa.table({"id": [number]}), lake / f"{number}.parquet")
    limits = {"values": 60, "cost": 120}
    with serving(warehouse, {"lake": str(lake)}, limits=limits) as running, running.client() as client:

        def ask(ranges: int) -> Any:
            domain = {"columns": [{"name": "id", "ranges": [{"low": n} for n in range(ranges)]}]}
            return client.post("/api/plan", json={"lake": "lake", "domain": domain})

        def plan(values: int) -> Any:
            filter = {"type": "in", "term": "v", "values": [*range(values)]}
            return client.post(f"{TABLE}/plan", json={"filter": filter})

        assert ask(5).status_code == 200
        assert "too many for 4 files; ask with fewer" in ask(20).json()["error"]["message"]
        assert "request has more than 60 values" in ask(40).json()["error"]["message"]
        assert plan(5).status_code == 200
        assert "too many for 8 files" in plan(20).json()["error"]["message"]
        # A long text counts by its conditions.
        where = " or ".join(f"id = {number}" for number in range(200))
        answer = client.post("/api/plan", json={"lake": "lake", "where": where})
        assert "more than 60 values" in answer.json()["error"]["message"]
        assert [one["status"] for one in running.log()] == [200, 400, 400, 200, 400, 400]


def test_stored_plans_of_the_busiest_caller_are_dropped_first() -> None:
    plans, table = Plans(Limits(plans=4)), ("db", "t")
    first = plans.add(BEN, table, Future())  # type: ignore[arg-type]
    paged = plans.add(ANA, table, Future())  # type: ignore[arg-type]
    whole = [plans.add(ANA, table, Future(), is_delivered=True) for _ in range(5)]  # type: ignore[arg-type]
    assert len(plans) == 4
    for kept in (first, paged, *whole[-2:]):
        assert plans.get(BEN if kept is first else ANA, table, kept.id) is kept
    with pytest.raises(Refusal):
        plans.get(ANA, table, whole[0].id)
