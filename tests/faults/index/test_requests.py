"""Requests to the index that fail, and threads that meet damage at once."""

from __future__ import annotations

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.store.store import open_root
from tests.faults._store import Fails, Fault, Request, Truncates, WatchedStore
from tests.faults.index._indexes import (
    FILES,
    QUESTIONS,
    build,
    check,
    check_all,
    copied,
    open_beside,
    patience,
    regions,
    segments,
)
from tests.support.stores import own_files


@pytest.mark.parametrize("kind", ["refused", "out of reach", "short", "flipped"])
def test_any_request_to_the_index_may_fail(root: Path, table: pa.Table, kind: str, size: str) -> None:
    """On a store, at every request in turn: the rows are right, and what was not had is told."""
    struck = 0
    for number in range(200):
        fault: Any
        if kind == "short":
            fault = Truncates(number, times=math.inf)
        elif kind == "flipped":
            fault = Garbles(number)
        else:
            fault = Fails(number, math.inf if kind == "out of reach" else 1, transient=kind == "out of reach")
        index = WatchedStore(open_root(own_files(root)), fault)
        retry = sk.RetryPolicy(attempts=2, first_delay=0.0)
        lake = sk.Lake(WatchedStore.at(root), "", index_root=index, retry=retry)
        for question in (QUESTIONS[0], QUESTIONS[4]):
            used = check(lake, table, question)
        if not fault.struck:
            assert used.problems == ()
            break
        struck += 1
        problems = used.problems or lake.scan("id = 3").trace().index.problems
        # Asked for again, it may have come after all.
        assert problems or (used.covered == FILES and kind != "out of reach"), number
    assert struck >= 2


@dataclass
class Garbles(Fault):
    """The answer to one request has a byte that is wrong."""

    number: int
    struck: list[Request] = field(default_factory=list)

    def after(self, request: Request, bodies: list[bytes]) -> list[bytes]:
        if request.number != self.number:
            return bodies
        self.struck.append(request)
        return [body[:-1] + bytes([body[-1] ^ 4]) if body else body for body in bodies]


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_threads_that_meet_damage_at_once(
    root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str
) -> None:
    folder = copied(root, tmp_path / "i")
    for path in segments(folder):
        data = bytearray(path.read_bytes())
        for name in ("group/lower", "chunks", "page/lower"):
            for span in regions(path).get(name, [])[:1]:
                if len(span):
                    data[span.start] ^= 1
        path.write_bytes(data)
    lake, _ = open_beside(root, folder, near=near)
    wanted = {q.where: q.wanted(table).num_rows for q in QUESTIONS}
    with patience(), ThreadPoolExecutor(8) as pool:
        asks = [q.where for q in QUESTIONS] * 6
        found = list(pool.map(lambda where: len(lake.scan(where).to_arrow()), asks))
    assert found == [wanted[where] for where in asks]
    assert lake.scan("id = 3").trace().index.problems


def test_building_under_threads_that_read(own: Path, table: pa.Table) -> None:
    """One lake object, asked by some threads while another builds, refreshes and drops its index."""
    lake = sk.open(own)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            question = rng.choice(QUESTIONS)
            try:
                assert lake.scan(question.where).count() == question.wanted(table).num_rows
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        with patience():
            for turn in range(4):
                build(lake, rebuild=turn % 2 == 0)
                lake.index.refresh(engine="local")
                lake.index.drop()
                lake.refresh()
            build(lake)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:2]
    assert check_all(lake, table).covered == FILES
