"""One writer per tail: the lease, and what it records."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import skipstone as sk
from skipstone.store.local import LocalStore
from skipstone.table.tail.lease import LOCK, STATE, Holder, Intent, Lease, TailState, is_held, read_state

TABLE = "3f2b"


def acquire(folder: Path, table: str = TABLE) -> Lease:
    return Lease.acquire(LocalStore(str(folder)), table, "db.t")


def test_tokens_increase_and_the_id_stays(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tail"
    first = acquire(folder)
    state = first.state
    assert (first.token, state.table, state.floor) == (1, TABLE, 0)
    assert state.holder is not None
    assert (state.holder.host, state.holder.pid) == (Holder.current().host, os.getpid())
    first.record(floor=7, durable=9)
    first.release()
    second = acquire(folder)
    assert (second.token, second.state.floor, second.state.durable) == (2, 7, 9)
    assert second.state.id == state.id
    second.release()
    assert read_state(second.store) == second.state


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    assert is_held(lease.store)
    with pytest.raises(sk.ConflictError, match=r"db\.t already has a tail writer: process") as caught:
        acquire(tmp_path)
    assert f"process {os.getpid()} on" in caught.value.message
    assert "close that writer first" in str(caught.value.hint)
    assert read_state(lease.store) == lease.state
    lease.release()
    assert not is_held(lease.store)
    acquire(tmp_path).release()


HOLD = """
import sys, time
from skipstone.store.local import LocalStore
from skipstone.table.tail.lease import Lease
lease = Lease.acquire(LocalStore(sys.argv[1]), "3f2b", "db.t")
print("held", flush=True)
time.sleep(600)
"""


def test_the_lease_of_a_killed_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(sk.ConflictError, match=f"process {process.pid} on"):
            acquire(tmp_path)
        process.send_signal(signal.SIGKILL)
    lease = acquire(tmp_path)
    assert lease.token == 2
    lease.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_inherit_the_lease(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    told, tell = os.pipe()
    go, wait = os.pipe()
    child = os.fork()
    if not child:
        try:
            lease.check()
            os.write(tell, b"held")
        except sk.ConflictError:
            os.write(tell, b"lost")
        os.read(go, 1)
        os._exit(0)
    assert os.read(told, 4) == b"lost"
    lease.check()
    lease.release()
    # The child lives, and holds nothing.
    acquire(tmp_path).release()
    os.write(wait, b"x")
    os.waitpid(child, 0)


def test_a_lost_lock_is_noticed(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    lease.check()
    (tmp_path / LOCK).unlink()
    other = acquire(tmp_path)
    for call in (lease.check, lambda: lease.record(floor=1)):
        with pytest.raises(sk.ConflictError, match=r"tail writer of db\.t has lost its lease"):
            call()
    other.check()
    assert (other.token, read_state(other.store)) == (2, other.state)
    other.release()
    lease.release()


def test_a_tail_of_another_table(tmp_path: Path) -> None:
    acquire(tmp_path).release()
    with pytest.raises(sk.ConflictError, match="directory is the tail of another table, 3f2b"):
        acquire(tmp_path, "77aa")
    # The lock was given back.
    acquire(tmp_path).release()


def test_a_lease_that_was_dropped_is_free(tmp_path: Path) -> None:
    lease: Lease | None = acquire(tmp_path)
    assert lease is not None
    lease = None
    gc.collect()
    acquire(tmp_path).release()


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "none"))
    assert not is_held(store)
    assert read_state(store) is None
    assert not (tmp_path / "none").exists()


def test_an_intent_ends_with_the_next_record(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    lease.record(intent=Intent(5, 12))
    assert read_state(lease.store) == lease.state
    assert lease.state.intent == Intent(5, 12)
    lease.record(floor=5)
    assert (lease.state.intent, lease.state.floor) == (None, 5)
    # A floor never falls.
    lease.record(floor=3)
    assert lease.state.floor == 5
    lease.release()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"id": "a"}', {"floor": -1}, {"token": "1"}, {"id": 3}, {"intent": {}}]
)
def test_damaged_states(tmp_path: Path, damage: bytes | dict[str, object]) -> None:
    store = LocalStore(str(tmp_path))
    whole = TailState("a", TABLE).encode()
    if isinstance(damage, dict):
        damage = json.dumps({**json.loads(whole), **damage}).encode()
    (tmp_path / STATE).write_bytes(damage)
    with pytest.raises(sk.CorruptFileError, match="state of the tail is damaged"):
        read_state(store)
    (tmp_path / STATE).write_bytes(whole)
    assert read_state(store) == TailState("a", TABLE)


def test_every_changed_bit_of_a_state_is_noticed(tmp_path: Path) -> None:
    """A smaller or larger floor would lose calls, or make them twice."""
    store = LocalStore(str(tmp_path))
    lease = Lease.acquire(store, TABLE, "db.t")
    lease.record(floor=12, durable=15)
    path = tmp_path / STATE
    data = path.read_bytes()
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(sk.CorruptFileError, match="state of the tail is damaged"):
            read_state(store)
    lease.release()
